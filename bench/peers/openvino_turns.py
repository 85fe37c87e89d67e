#!/usr/bin/env python3
"""OpenVINO GenAI and tern in turn, test by test, with OpenVINO's model kept open: tables on stdout, every run as CSV.

    openvino_turns.py [-t 2] [-r 5] [--limit SECONDS] [--python PYTHON] [--csv RUNS.csv] TERN OV_DIR=A.gguf[,B.gguf]…

Tests: decode 64, prefill 64, 512 and 2,048. A round runs OpenVINO once and tern, as a process of its own, on each of
the files beside it; who begins changes. The ratio is tern's speed over OpenVINO's, the median of the rounds; at the end
its geometric mean and least value by format and test. PYTHON (default: this one) has openvino-genai.
"""
import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import time

p = argparse.ArgumentParser()
p.add_argument("-t", "--threads", type=int, default=2)
p.add_argument("-r", "--rounds", type=int, default=5)
p.add_argument("--limit", type=float, default=1e9)
p.add_argument("--python", default=sys.executable)
p.add_argument("--csv", default=os.devnull)
p.add_argument("--tests", default="d64,p64,p512,p2048")
p.add_argument("tern")
p.add_argument("pairs", nargs="+")
a = p.parse_args()
start = time.time()
tests = [(t[0], int(t[1:])) for t in a.tests.split(",")]
runs = csv.writer(open(a.csv, "a"), lineterminator="\n")
cells = {}


def ours(path, kind, n):
    command = [a.tern, "bench", "-m", path, "-t", str(a.threads), "-r", "1", "--no-ceilings", "--json"]
    command += ["-p", str(n), "-n", "0", "--warm", "64"] if kind == "p" else ["-p", "1", "-n", str(n), "--warm", "1"]
    out = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=300).stdout
    return json.loads(out)["prefill_tps" if kind == "p" else "decode_tps"]["median"]


def pair_run(folder, files):
    bench = os.path.join(os.path.dirname(os.path.abspath(__file__)), "openvino_bench.py")
    server = subprocess.Popen([a.python, bench, "-m", folder, "-t", str(a.threads), "--serve"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def theirs(kind, n):
        server.stdin.write(f"{n} 0 0\n" if kind == "p" else f"0 {n} 0\n")
        server.stdin.flush()
        return json.loads(server.stdout.readline())["tokens_per_s"]

    if server.stdout.readline().strip() != "{}":
        sys.exit(f"{folder}: OpenVINO did not open it")
    for kind, n in tests:
        theirs(kind, n)  # warms up its shape
    for r in range(a.rounds):
        for i, (kind, n) in enumerate(tests):
            if time.time() - start > a.limit:
                break
            before = theirs(kind, n) if (r + i) % 2 == 0 else None
            speeds = [(f, ours(f, kind, n)) for f in (files if r % 2 == 0 else files[::-1])]
            other = before or theirs(kind, n)
            for f, x in speeds:
                cells.setdefault((f, kind, n), []).append((x, other))
                runs.writerow([a.threads, folder, f, kind, n, r, f"{x:.2f}", f"{other:.2f}"])
    server.stdin.close()
    server.wait()


pairs = [(folder, files.split(",")) for folder, files in (pair.split("=", 1) for pair in a.pairs)]
for _, files in pairs:
    for f in files:
        ours(f, "d", 2)  # its packed weights are on disk from here on
for folder, files in pairs:
    pair_run(folder, files)
names = {"d": "decode", "p": "prefill"}
kinds = {}
print(f"{a.threads} threads: tern's tokens/s, OpenVINO's, median of the ratios (least, largest)")
for (f, kind, n), v in cells.items():
    ratios = [x / y for x, y in v]
    name = os.path.basename(f).removesuffix(".gguf")
    kinds.setdefault((name.rsplit("-", 1)[-1], kind, n), []).append(statistics.median(ratios))
    print(f"{name:24} {names[kind]:7} {n:5} {statistics.median(x for x, _ in v):9.1f} "
          f"{statistics.median(y for _, y in v):9.1f} {statistics.median(ratios):6.2f} "
          f"({min(ratios):.2f}, {max(ratios):.2f}; {len(v)})")
for (form, kind, n), v in sorted(kinds.items()):
    mean = math.exp(sum(map(math.log, v)) / len(v))
    print(f"{form:8} {names[kind]:7} {n:5}: geometric mean {mean:.2f}, least {min(v):.2f}, of {len(v)} models")
