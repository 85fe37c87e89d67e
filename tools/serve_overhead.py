#!/usr/bin/env python3
"""tools/serve_overhead.py TERN MODEL THREADS TOKENS ROUNDS: what `tern serve` costs over the bare engine at one stream.

Alternates `tern run --json` with a streamed request to a server of the same options, drafts off, and prints medians of
the time to the first token and of tokens per second, beside what the engine inside the server says of itself. MODEL
"pico" is the built-in one.
"""
import json
import os
import socket
import statistics
import subprocess
import sys
import time

tern, model, threads, n, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
PROMPT = "Tell me a long story about the sea, the wind and an old lighthouse keeper."
options = (["-m", model] if model != "pico" else []) + ["--threads", threads, "--draft", "off"]
env = dict(os.environ, TERN_MODEL="")


def connect():
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def all_of(s):
    """Pieces of an answer with the time of each."""
    while piece := s.recv(65536):
        yield time.perf_counter(), piece


def ready():
    s = connect()
    s.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    return b" 200 " in b"".join(p for _, p in all_of(s))


def served():
    body = json.dumps({"messages": [{"role": "user", "content": PROMPT}], "max_tokens": n, "ignore_eos": True,
                       "stream": True, "stream_options": {"include_usage": True}}).encode()
    s = connect()
    start = time.perf_counter()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
              b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    data, first, end = b"", None, start
    for end, piece in all_of(s):
        data += piece
        if first is None and data.count(b'"delta":') > 1:  # the first one names the role
            first = end
    usage = [line for line in data.decode().split("\n") if '"choices":[]' in line][-1]
    timings = json.loads(usage[6:])["timings"]
    return first - start, (timings["predicted_n"] - 1) / (end - first), timings["predicted_per_second"]


def bare():
    run = subprocess.run([tern, "run", "--json", "-n", str(n), "--ignore-eos"] + options + [PROMPT],
                         capture_output=True, env=env, check=True)
    o = json.loads(run.stdout)
    return o["first_token_s"], (o["answer_tokens"] - 1) / o["answer_s"]


server = subprocess.Popen([tern, "serve", "--port", "0", "--log", "none", "--streams", "1", "--prefix-ram", "0"] + options,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
port = int(server.stdout.readline().rsplit(b":", 1)[1])
while not ready():
    time.sleep(0.05)
served()
bare()
b, s = [], []
for _ in range(rounds):
    b.append(bare())
    s.append(served())
server.terminate()
server.wait()


def median(rows, i):
    return statistics.median(row[i] for row in rows)


print(f"first token: bare {median(b, 0) * 1e3:.2f} ms, served {median(s, 0) * 1e3:.2f} ms")
print(f"tokens/s: bare {median(b, 1):.1f}, served {median(s, 1):.1f} "
      f"({(1 - median(s, 1) / median(b, 1)) * 100:+.2f} % lost), the engine in the server {median(s, 2):.1f}")
