#!/bin/sh
# bench/speed.sh MODEL…: prefill and decode speed of each GGUF file, ours beside llama.cpp's, interleaved.
#
# Each repetition runs one process of every engine per file and thread count, the order turned round every other time
# (ABBA), so that a machine that slows down slows everyone. CSV on stdout, one line per run; progress on stderr.
#
#   TERN         our program                       default build/tern
#   LLAMA_BENCH  llama.cpp's llama-bench           left out: only ours
#   THREADS      default "1 2"     REPEATS  default 5
#   PROMPT       prompt tokens, default 512        ANSWER  answer tokens, default 64
#   DEPTH        tokens before the decode test's answer, default 0
#
# Columns: repetition, model, threads, engine, test (pp = prefill, tg = decode), tokens, depth, tokens per second.
set -eu
cd "$(dirname "$0")/.."
TERN=${TERN:-build/tern} LLAMA_BENCH=${LLAMA_BENCH:-} THREADS=${THREADS:-1 2} REPEATS=${REPEATS:-5}
PROMPT=${PROMPT:-512} ANSWER=${ANSWER:-64} DEPTH=${DEPTH:-0}
[ $# -gt 0 ] || { echo "usage: bench/speed.sh MODEL.gguf…" >&2; exit 2; }

# A number from one line of JSON on standard input.
number() { sed -n "s/.*\"$1\": {[^}]*\"median\": \([0-9.]*\).*/\1/p"; }

ours() { # file threads
    name=$(basename "$1" .gguf)
    json=$("$TERN" bench -m "$1" -t "$2" -p "$PROMPT" -n 0 -r 1 --json)
    echo "$i,$name,$2,tern,pp,$PROMPT,0,$(echo "$json" | number prefill_tps)"
    json=$("$TERN" bench -m "$1" -t "$2" -p 1 -d "$DEPTH" -n "$ANSWER" -r 1 --json)
    echo "$i,$name,$2,tern,tg,$ANSWER,$DEPTH,$(echo "$json" | number decode_tps)"
}
theirs() { # file threads
    [ -n "$LLAMA_BENCH" ] || return 0
    name=$(basename "$1" .gguf)
    # llama-bench repeats a whole test to warm up; a first short test does that cheaper (its own warm-up is off).
    "$LLAMA_BENCH" -m "$1" -t "$2" -r 1 --no-warmup -p "16,$PROMPT" -n 0 -o csv 2>/dev/null | tail -n 1 | last_tps pp "$name" "$2"
    "$LLAMA_BENCH" -m "$1" -t "$2" -r 1 --no-warmup -p 0 -n "8,$ANSWER" -d "$DEPTH" -o csv 2>/dev/null | tail -n 1 | last_tps tg "$name" "$2"
}
# llama-bench's CSV ends with avg_ts, stddev_ts, each quoted.
last_tps() { # test name threads
    tps=$(awk -F'","' '{ print $(NF - 1) }')
    case $1 in
    pp) echo "$i,$2,$3,llama.cpp,pp,$PROMPT,0,$tps" ;;
    tg) echo "$i,$2,$3,llama.cpp,tg,$ANSWER,$DEPTH,$tps" ;;
    esac
}

echo "repetition,model,threads,engine,test,tokens,depth,tokens_per_s"
for i in $(seq "$REPEATS"); do
    for file in "$@"; do
        for t in $THREADS; do
            echo "repetition $i: $(basename "$file"), $t threads" >&2
            if [ $((i % 2)) -eq 1 ]; then
                ours "$file" "$t"
                theirs "$file" "$t"
            else
                theirs "$file" "$t"
                ours "$file" "$t"
            fi
        done
    done
done
