#!/usr/bin/env python3
"""tools/serve_idle.py TERN N [ACTIVE]: N streams that wait in the queue of `tern serve` beside 16 that run (pico).

Prints the memory that a waiting stream takes, the threads before and after, and how long /health takes meanwhile. Fails
when a stream is not open, a waiting one takes more than 64 KiB, or /health more than 100 ms in the 99th percentile.
"""
import json
import os
import resource
import socket
import subprocess
import sys
import time

tern, n_idle, n_active = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 16
resource.setrlimit(resource.RLIMIT_NOFILE, (n_idle + 256,) * 2)
server = subprocess.Popen([tern, "serve", "--port", "0", "--log", "none", "--streams", str(n_active), "--ctx", "2048",
                           "--queue", str(n_idle + 100), "--connections", str(n_idle + 200), "--prefix-ram", "0"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ, TERN_MODEL=""))
port = int(server.stdout.readline().rsplit(b":", 1)[1])


def get(path):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n" % path.encode())
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data.decode()


def post(i):
    body = json.dumps({"messages": [{"role": "user", "content": f"Tell me a story about number {i}."}],
                       "max_tokens": 1500, "ignore_eos": True, "stream": True}).encode()
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
              b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return s


def resident():
    with open(f"/proc/{server.pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def threads():
    return len(os.listdir(f"/proc/{server.pid}/task"))


def streams():
    return int(get("/metrics").split("\ntern_http_streams{", 1)[1].split("}", 1)[1].split()[0])


while " 200 " not in get("/health"):
    time.sleep(0.05)
for s in [post(i) for i in range(n_active)]:  # the state of those that run is resident before it is measured
    while b"[DONE]" not in s.recv(1 << 20)[-64:]:
        pass
    s.close()
active = [post(i) for i in range(n_active)]
time.sleep(1.5)
before, threads_before = resident(), threads()
idle = [post(100 + i) for i in range(n_idle)]
end = time.time() + 60
while streams() < n_idle + n_active and time.time() < end:
    time.sleep(0.05)
n_open, each, threads_after = streams(), (resident() - before) / n_idle, threads()
took = []
for _ in range(200):
    start = time.perf_counter()
    assert " 200 " in get("/health")
    took.append((time.perf_counter() - start) * 1e3)
took.sort()
print(f"{n_open} streams open, {each:.0f} bytes for each that waits; threads {threads_before} before, {threads_after} after")
print(f"/health: median {took[100]:.2f} ms, 99th percentile {took[197]:.2f} ms, longest {took[-1]:.2f} ms")
for s in active + idle:
    s.close()
server.terminate()
good = n_open == n_idle + n_active and each <= 64 << 10 and took[197] <= 100
sys.exit(server.wait() or not good)
