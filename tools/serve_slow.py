#!/usr/bin/env python3
"""tools/serve_slow.py TERN [N]: what N clients that dawdle (default 1000) cost the others (script model).

A third of them never end their head, a third never their body, a third never read their stream. Prints the 99th
percentile of an ordinary answer while nothing runs, beside 16 streams that are read, and beside the slow clients, whose
streams are computed all the same, 16 at a time; and when the last of each kind was cut off. Fails when ordinary answers
take more than twice the time (and 4 ms, a turn of the system's scheduler) that they take beside those who read, when a
head or body that does not come is still there after 15 s, or a stream that nobody reads after 30 s beyond the time until
the last one has begun.
"""
import json
import os
import re
import resource
import select
import socket
import subprocess
import sys
import time

# Reads N streams, each begun anew when it ends, in a process of its own.
READER = r'''
import os, select, socket, sys
port, request = int(sys.argv[1]), sys.argv[2].encode().decode("unicode_escape").encode()
def begin():
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(request)
    return s
open_ = [begin() for _ in range(int(sys.argv[3]))]
while True:
    for s in select.select(open_, [], [])[0]:
        if b"[DONE]" in s.recv(65536):
            open_.remove(s)
            s.close()
            open_.append(begin())
'''
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
tern, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
resource.setrlimit(resource.RLIMIT_NOFILE, (n + 256,) * 2)
server = subprocess.Popen([tern, "serve", "-m", os.path.join(ROOT, "test/data/gguf/script-lfm2.gguf"), "--port", "0",
                           "--log", "none", "--streams", "16", "--queue", str(n), "--connections", str(n + 200)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
port = int(server.stdout.readline().rsplit(b":", 1)[1])
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def body(text, **more):
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()


def connect(data, small=False):
    s = socket.socket()
    if small:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.connect(("127.0.0.1", port))
    s.sendall(data)
    return s


def ordinary():
    """Seconds for the model's list, which is asked of nobody but the server itself."""
    start = time.perf_counter()
    s = connect(b"GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")
    data = b""
    while piece := s.recv(65536):
        data += piece
    assert b" 200 " in data, data[:200]
    return time.perf_counter() - start


def p99(times):
    return sorted(times)[int(len(times) * 0.99)] * 1e3


def waiting():
    """Answers in the queue."""
    s = connect(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
    data = b""
    while piece := s.recv(65536):
        data += piece
    return int(re.search(rb"^tern_requests_waiting\{.*\} (\d+)", data, re.M)[1])


def ready():
    return b" 200 " in connect(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n").recv(4096)


def over(s):
    """Has the server ended the connection?"""
    p = select.poll()
    p.register(s, select.POLLHUP | select.POLLERR | select.POLLRDHUP)
    return bool(p.poll(0))


while not ready():
    time.sleep(0.05)
idle = p99([ordinary() for _ in range(500)])
stream = body("s20", stream=True, ignore_eos=True)
request = (HEAD + b"Content-Length: %d\r\n\r\n" % len(stream) + stream).decode().replace("\r\n", "\\r\\n")
reader = subprocess.Popen([sys.executable, "-c", READER, str(port), request, "16"], stderr=subprocess.DEVNULL)
time.sleep(1)
before = p99([ordinary() for _ in range(1500)])
reader.kill()
reader.wait()
time.sleep(1)
begin = time.time()
kinds = {"head": [connect(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ") for _ in range(n // 3)],
         "body": [connect(HEAD + b"Content-Length: 100\r\n\r\n{") for _ in range(n // 3)]}
unread = [connect(HEAD + b"Content-Length: %d\r\n\r\n" % len(stream) + stream, small=True)
          for _ in range(n - 2 * (n // 3))]
kinds["stream"] = unread
last, times, begun = {}, [], begin
while len(last) < len(kinds) and time.time() < begin + 240:
    if waiting():
        begun = time.time()
    times += [ordinary() for _ in range(20)]
    for kind, sockets in kinds.items():
        if kind not in last and all(map(over, sockets)):
            last[kind] = time.time() - begin
    time.sleep(0.2)
during = p99(times)
print(f"an answer's 99th percentile: {idle:.2f} ms alone, {before:.2f} ms beside 16 streams that are read, "
      f"{during:.2f} ms ({during / before:.2f} x) beside {n} slow clients ({len(times)} answers)")
for kind in kinds:
    print(f"slow {kind}: {'the last was cut off after %.1f s' % last[kind] if kind in last else 'some are still there'}")
server.terminate()
print(f"the last stream had begun after {begun - begin:.1f} s")
good = (during <= 2 * before + 4 and last.get("head", 99) <= 15 and last.get("body", 99) <= 15 and
        last.get("stream", 999) <= begun - begin + 32)
sys.exit(server.wait() or not good)
