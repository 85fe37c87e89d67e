#!/usr/bin/env python3
"""Few rows and batches beside llama.cpp, in turn: steps of 1 to 64 rows behind 512 tokens, and decoding 1 to 32
sequences together.

    llama_rows.py [-t 2] [-r 3] TERN LLAMA_BIN MODEL.gguf…

LLAMA_BIN: the folder of llama-bench and llama-batched-bench. Rows: `tern bench --rows` (all rows with argmax) beside
`llama-bench -p ROWS -d 512`, which makes logits for the last row only, so its times are a little too good. Batches: 32
prompt and 32 generated tokens for each sequence. Columns: medians of the rounds, and the median of the rounds' ratios.
"""
import argparse
import json
import os
import statistics
import subprocess

p = argparse.ArgumentParser()
p.add_argument("-t", "--threads", default="2")
p.add_argument("-r", "--rounds", type=int, default=3)
p.add_argument("--rows", default="1,2,4,8,16,32,64")
p.add_argument("--sequences", default="1,2,4,8,16,32")
p.add_argument("tern")
p.add_argument("bin")
p.add_argument("models", nargs="+")
a = p.parse_args()


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=600).stdout


def rows_ours(m):
    j = json.loads(run(a.tern, "bench", "--rows", "-m", m, "-t", a.threads, "-d", "512", "-r", "3", "--json"))
    return {r["rows"]: r["ms"]["median"] for r in j["rows"]}


def rows_theirs(m):
    j = json.loads(run(os.path.join(a.bin, "llama-bench"), "-m", m, "-t", a.threads, "-p", a.rows, "-n", "0", "-d", "512",
                       "-r", "3", "-o", "json"))
    return {r["n_prompt"]: r["avg_ns"] * 1e-6 for r in j}


def batch_ours(m):
    j = json.loads(run(a.tern, "bench", "--batch", a.sequences, "-m", m, "-t", a.threads, "-p", "32", "-n", "32", "-r",
                       "3", "--json"))
    return {r["sequences"]: r["tokens_per_s"] for r in j["batches"]}


def batch_theirs(m):
    out = run(os.path.join(a.bin, "llama-batched-bench"), "-m", m, "-c", "4096", "-b", "2048", "-ub", "512", "-t",
              a.threads, "-npp", "32", "-ntg", "32", "-npl", a.sequences, "--output-format", "jsonl")
    return {j["pl"]: j["speed_tg"] for j in (json.loads(x) for x in out.splitlines() if x.startswith(b"{"))}


for what, ours, theirs, points in (("tokens/s of all sequences", batch_ours, batch_theirs, a.sequences),
                                   ("ms of a step of rows behind 512", rows_ours, rows_theirs, a.rows)):
    for model in a.models:
        found = []
        for r in range(a.rounds):
            first = (ours if r % 2 == 0 else theirs)(model)
            second = (theirs if r % 2 == 0 else ours)(model)
            found.append((first, second) if r % 2 == 0 else (second, first))
        print(f"{os.path.basename(model)}, {a.threads} threads: {what}; tern, llama.cpp, tern / llama.cpp")
        for n in map(int, points.split(",")):
            v = [(x[n], y[n]) for x, y in found]
            ratios = [x / y for x, y in v]
            print(f"{n:4} {statistics.median(x for x, _ in v):9.2f} {statistics.median(y for _, y in v):9.2f} "
                  f"{statistics.median(ratios):6.2f} ({min(ratios):.2f}, {max(ratios):.2f})", flush=True)
