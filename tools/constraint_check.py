#!/usr/bin/env python3
"""Samples answers under every schema of test/data/schema with the program and judges them by the jsonschema package.

usage: tools/constraint_check.py build/tern [SEEDS] [MODEL]
An answer that its token limit cut off is not judged. Exit 1 when one does not fit.
"""
import json
import subprocess
import sys
import tempfile

from jsonschema import Draft202012Validator


def answer(tern, model, schema_path, seed):
    command = [tern, "run", "--json", "--schema", schema_path, "--temp", "0.9", "--seed", str(seed), "-n", "300"]
    command += (["-m", model] if model else []) + ["Give an example."]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{schema_path}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    tern, seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    model = sys.argv[3] if len(sys.argv) > 3 else None
    n_judged = n_cut = n_bad = 0
    for name in ("cases", "keywords"):
        for case in json.load(open(f"test/data/schema/{name}.json", encoding="utf-8")):
            checker = Draft202012Validator(case["schema"], format_checker=Draft202012Validator.FORMAT_CHECKER)
            with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as f:
                json.dump(case["schema"], f)
                f.flush()
                for seed in range(seeds):
                    got = answer(tern, model, f.name, seed)
                    if got["finish"] != "stop":
                        n_cut += 1
                        continue
                    n_judged += 1
                    try:
                        fault = next(checker.iter_errors(json.loads(got["text"])), None)
                    except ValueError as e:
                        fault = e
                    if fault:
                        n_bad += 1
                        print(f"{case['id']}: {got['text']!r}: {fault}")
    print(f"{n_judged} answers judged, {n_bad} do not fit, {n_cut} cut off by the limit")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
