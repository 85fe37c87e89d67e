#!/bin/sh
# bench/amx.sh: what AMX gives, on a machine that has it: prefill and decode of LFM2-350M's shape with random weights,
# AMX beside AVX-512 (VNNI; BF16) on the same packed weights, interleaved, then over threads. CSV on standard output.
#   bench/amx.sh [threads, default 1] > FILE       ISAS, REPEATS, PROMPT: see below; TERN: the program
set -eu
cd "$(dirname "$0")/.."
TERN=${TERN:-build/tern}
REPEATS=${REPEATS:-3}
PROMPT=${PROMPT:-512}
THREADS=${*:-1}

# one format class isa threads
one() {
    TERN_CPU=$3 "$TERN" bench --shape lfm2-350m --format "$1" --class "$2" -p "$PROMPT" -n 32 -r "$REPEATS" -t "$4" |
        awk -v row="$1,$2,$3,$4" '/^prefill|^decode/ {
            value = $0; sub(/^[a-z]+ [0-9]+ *(@ [0-9]+ *)?/, "", value); split(value, v, " ")
            print row "," $1 "," $2 "," v[1] "," v[2] "," v[3]
        }'
}

echo format,class,isa,threads,phase,tokens,median_tokens_per_s,min,max
for t in $THREADS; do
    for format in I8C Q8_0 Q4_0; do
        for isa in avx512vnni amx; do one $format int8 $isa "$t"; done
    done
    one BF16 int8 avx512vnni "$t" # BF16 weights by float activations: the fp32 arithmetic
    for isa in avx512bf16 amx; do one BF16 bf16 $isa "$t"; done
done
