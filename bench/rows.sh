#!/bin/sh
# bench/rows.sh MODEL…: what steps of 1 to 64 rows cost (`tern bench --rows`), as CSV on stdout, a line for each number of
# rows: model, threads, tokens before, rows, milliseconds (least, median, most), operations and bytes of the step, and
# the read bandwidth and int8 peak measured in the same run.
#
#   TERN     our program       default build/tern
#   THREADS  default 2         REPEATS  default 5       DEPTH  tokens before, default 512
set -eu
cd "$(dirname "$0")/.."
TERN=${TERN:-build/tern} THREADS=${THREADS:-2} REPEATS=${REPEATS:-5} DEPTH=${DEPTH:-512}
[ $# -gt 0 ] || { echo "usage: bench/rows.sh MODEL.gguf…" >&2; exit 2; }
[ "${HEAD:-1}" = 0 ] || echo "model,threads,depth,rows,ms_min,ms_median,ms_max,ops,bytes,read_gbs,int8_gops"
for file in "$@"; do
    echo "$(basename "$file")" >&2
    "$TERN" bench --rows -m "$file" -t "$THREADS" -d "$DEPTH" -r "$REPEATS" --json |
        awk -v model="$(basename "$file" .gguf)" -v threads="$THREADS" -v depth="$DEPTH" '
            function number(text, key) {
                if (!match(text, "\"" key "\":[0-9.eE+-]+")) return 0
                return substr(text, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
            }
            {
                read_gbs = number($0, "read_gbs")
                if (match($0, /"int8_[a-z0-9]*_gops":[0-9.]+/)) int8 = substr($0, RSTART, RLENGTH)
                sub(/.*:/, "", int8)
                n = split($0, point, /\{"rows":/)
                for (i = 2; i <= n; i++) {
                    rows = point[i]
                    sub(/[^0-9].*/, "", rows)
                    printf "%s,%d,%d,%d,%.4f,%.4f,%.4f,%.6g,%.6g,%.2f,%.1f\n", model, threads, depth, rows,
                        number(point[i], "min"), number(point[i], "median"), number(point[i], "max"),
                        number(point[i], "ops"), number(point[i], "bytes"), read_gbs, int8
                }
            }'
done
