# The figure of doc/speculation.md: tokens a round against drafted tokens, from `tern study acceptance --csv`.
#   gnuplot -e "csv='acceptance.csv'; out='doc/acceptance.svg'" bench/acceptance.gp
set terminal svg size 760,420 font 'sans-serif,12' background '#ffffff'
set output out
set datafile separator ','
set key outside right top samplen 2
set grid lc rgb '#dddddd'
set xlabel 'drafted tokens checked in a round'
set ylabel 'tokens a round'
set xrange [0:64]
set yrange [1:*]
do for [i = 1:6] { set linetype i lw 2 lc rgb word('#9400d3 #009e73 #0072b2 #e69f00 #000000 #a05000', i) }
set multiplot layout 1,2
set title 'open prompts (57)' 
set key at graph 0.98, graph 0.42 spacing 0.9
plot for [k in 'seeded tree biased chain factorised n-grams'] csv using 2:(strcol(1) eq k ? $4 : NaN) with lines title k
set title 'nearly fixed answers (43)'
unset key
plot for [k in 'seeded tree biased chain factorised n-grams'] csv using 2:(strcol(1) eq k ? $5 : NaN) with lines
unset multiplot
