#!/bin/sh
# bench/models.sh: what `make bench` does. Whole models: the one that comes along, and the shapes of LFM2 with random weights,
# each beside the read bandwidth measured in the same run. Beside a peer, on the same files: bench/speed.sh.
set -eu
cd "$(dirname "$0")/.."
TERN=${TERN:-build/tern}
"$TERN" bench -p 512 -n 64
for shape in lfm2-350m lfm2-1.2b; do
    for format in Q4_0 Q8_0; do "$TERN" bench --shape $shape --format $format -p 256 -n 64 -r 3; done
done
