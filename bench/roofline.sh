#!/bin/sh
# bench/roofline.sh ROWS.csv CELLS.csv OUT.svg: the roofline of doc/performance.md, with gnuplot. ROWS.csv is what
# bench/rows.sh printed, CELLS.csv a file of `tern bench --peers`: from it the prefill of 512 tokens, whose steps have 256
# rows. Operations for each byte read to the right, operations per second upwards, a line for each model, the roof from
# the medians of the ceilings measured in the same runs.
set -eu
[ $# -eq 3 ] || { echo "usage: bench/roofline.sh ROWS.csv CELLS.csv OUT.svg" >&2; exit 2; }
command -v gnuplot >/dev/null || { echo "bench/roofline.sh: gnuplot is not here (Debian: gnuplot-nox)" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
median() { sort -g | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : 0 }'; }
read_gbs=$(awk -F, 'NR > 1 { print $10 }' "$1" | median)
int8=$(awk -F, 'NR > 1 { print $11 }' "$1" | median)
plot=''
colour=0
for model in $(awk -F, 'NR > 1 && !seen[$1]++ { print $1 }' "$1"); do
    colour=$((colour + 1))
    threads=$(awk -F, -v m="$model" 'NR > 1 && $1 == m { print $2; exit }' "$1")
    awk -F, -v m="$model" 'NR > 1 && $1 == m { print $8 / $9, $8 / $6 / 1e6 }' "$1" >"$tmp/$colour.rows"
    awk -F, -v m="$model" -v t="$threads" '
        NR > 1 && $4 "-" $5 == m && $6 == "prefill" && $7 == 512 && $9 == t && $10 == "tern" && $13 == 0 {
            print $11, 256 * $19 / $18, $11 * $19 / 1e9
        }' "$2" | sort -g | awk '{ v[NR] = $2 " " $3 } END { if (NR) print v[int((NR + 1) / 2)] }' >"$tmp/$colour.prefill"
    plot="$plot, '$tmp/$colour.rows' with linespoints lc $colour pt 7 ps 0.5 title '$model'"
    [ ! -s "$tmp/$colour.prefill" ] || plot="$plot, '$tmp/$colour.prefill' with points lc $colour pt 9 ps 1.2 notitle"
done
gnuplot <<END
set terminal svg noenhanced size 900,560 font 'sans-serif,13' background 'white'
set output '$3'
set logscale xy
set xlabel 'operations for each byte read'
set ylabel 'GOP/s'
set xrange [1:2000]
set yrange [10:4000]
set grid lc rgb '#dddddd'
set key bottom right
roof(x) = x * $read_gbs < $int8 ? x * $read_gbs : $int8
set title 'dots: steps of 1, 2, 3 … 64 rows, all with the head; triangles: prefill of 512 tokens'
plot roof(x) with lines lw 2 lc rgb 'black' title sprintf('roof: %.1f GB/s, int8 %.0f G/s', $read_gbs, $int8)$plot
END
