#!/usr/bin/env python3
"""Tests of OpenVINO GenAI, for `tern bench --peers` (kind "command") and for openvino_turns.py.

    openvino_bench.py -m DIR_OR_GGUF -t THREADS [-d DEPTH] (-p PROMPT | -n ANSWER)
    openvino_bench.py -m DIR_OR_GGUF -t THREADS --serve

Random token ids, greedy, end of text ignored; a short request, and a prompt of the same length, warm up. -p: tokens per
second of a prompt (behind nothing); -n: of an answer behind DEPTH tokens. The last line is {"tokens_per_s": NUMBER}.
--serve: {} when the model is open, then a line of input "PROMPT ANSWER DEPTH" (one of the first two 0) gives such a line.
Needs the PyPI packages openvino-genai and numpy.
"""
import argparse
import json
import sys

import numpy as np
import openvino as ov
import openvino_genai as og

p = argparse.ArgumentParser()
p.add_argument("-m", "--model", required=True)
p.add_argument("-t", "--threads", type=int, required=True)
p.add_argument("-p", "--prompt", type=int, default=0)
p.add_argument("-n", "--answer", type=int, default=0)
p.add_argument("-d", "--depth", type=int, default=0)
p.add_argument("--serve", action="store_true")
a = p.parse_args()
pipe = og.LLMPipeline(a.model, "CPU", INFERENCE_NUM_THREADS=a.threads, PERFORMANCE_HINT="LATENCY", NUM_STREAMS=1)
rng = np.random.default_rng(1)
warmed = set()


def run(n_prompt, n_answer):
    """Seconds to the first token, and for the n_answer tokens behind it."""
    c = og.GenerationConfig()
    c.max_new_tokens = c.min_new_tokens = n_answer + 1
    c.ignore_eos, c.do_sample = True, False
    x = rng.integers(300, 45000, (1, n_prompt)).astype(np.int64)
    m = pipe.generate(og.TokenizedInputs(ov.Tensor(x), ov.Tensor(np.ones_like(x))), c).perf_metrics
    return m.get_ttft().mean / 1e3, n_answer * m.get_tpot().mean / 1e3 if n_answer else 0


def test(prompt, answer, depth):
    if not prompt:
        return answer / run(max(depth, 4), answer)[1]
    if prompt not in warmed:
        run(prompt, 0)
    warmed.add(prompt)
    return prompt / run(prompt, 0)[0]


run(16, 8)
if a.serve:
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps({"tokens_per_s": test(*map(int, line.split()))}), flush=True)
else:
    print(json.dumps({"tokens_per_s": test(a.prompt, a.answer, a.depth)}))
