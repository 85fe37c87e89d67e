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
kinds='dots: steps of 1, 2, 3 … 64 rows (numbers: 1, 8, 64), all with the head'
colour=0
for model in $(awk -F, 'NR > 1 && !seen[$1]++ { print $1 }' "$1"); do
    colour=$((colour + 1))
    threads=$(awk -F, -v m="$model" 'NR > 1 && $1 == m { print $2; exit }' "$1")
    awk -F, -v m="$model" 'NR > 1 && $1 == m { print $8 / $9, $8 / $6 / 1e6, $4 }' "$1" >"$tmp/$colour.rows"
    awk '$3 == 1 || $3 == 8 || $3 == 64' "$tmp/$colour.rows" >"$tmp/$colour.some"
    awk -F, -v m="$model" -v t="$threads" '
        NR > 1 && $4 "-" $5 == m && $6 == "prefill" && $7 == 512 && $9 == t && $10 == "tern" && $13 == 0 {
            print $11, 256 * $19 / $18, $11 * $19 / 1e9
        }' "$2" | sort -g | awk '{ v[NR] = $2 " " $3 } END { if (NR) print v[int((NR + 1) / 2)] }' >"$tmp/$colour.prefill"
    plot="$plot, '$tmp/$colour.rows' with linespoints ls $colour title '$model'"
    [ $colour != 1 ] || plot="$plot, '$tmp/1.some' with labels offset 0,-0.8 font ',11' tc ls 1 notitle"
    [ -s "$tmp/$colour.prefill" ] || continue
    plot="$plot, '$tmp/$colour.prefill' with points ls $colour pt 9 ps 1.2 notitle"
    kinds='dots: steps of 1, 2, 3 … 64 rows (numbers: 1, 8, 64), all with the head; triangles: prefill of 512 tokens'
done
gnuplot <<END
set terminal svg noenhanced size 900,560 font 'sans-serif,14' background 'white'
set output '$3'
set logscale xy
set xlabel 'operations for each byte read'
set ylabel 'GOP/s'
set xrange [1:500]
set yrange [20:2500]
set ytics add (20, 50, 200, 500, 2000)
set xtics add (2, 5, 20, 50, 200, 500)
set grid lc rgb '#dddddd'
set key bottom right spacing 1.2
$(n=0; for rgb in 0072b2 d55e00 009e73 cc79a7 000000 7a5c00; do n=$((n + 1)); echo "set style line $n lc rgb '#$rgb' lw 1.5 pt 7 ps 0.6"; done)
roof(x) = x * $read_gbs < $int8 ? x * $read_gbs : $int8
ridge = $int8 / $read_gbs
set arrow from ridge, 20 to ridge, $int8 nohead dt 3 lc rgb '#888888'
set label sprintf('ridge: %.0f', ridge) at ridge * 0.95, 25 right tc rgb '#555555'
set title "$kinds"
set samples 400
plot roof(x) with lines lw 2 lc rgb '#555555' title sprintf('roof: %.1f GB/s, int8 %.0f G/s', $read_gbs, $int8)$plot
END
