#!/bin/sh
# tern bench and its wrong usages; --peers beside programs that only say how fast they are.
. test/cli/cli_lib.sh

wrong() { # NAME PATTERN ARGUMENT…
    name=$1
    pattern=$2
    shift 2
    run bench "$@"
    want_code "$name" 2
    want_in "$name" err "$pattern"
}
wrong 'grid alone' 'go with --peers' --grid small
wrong 'grid size' "small or full, not 'tiny'" --peers . --grid tiny
wrong 'peers and shape' 'from the manifest' --peers . --shape lfm2-350m
wrong 'format alone' 'goes with --shape' --format Q8_0

run bench -p 8 -n 4 -r 1 --warm 2 --no-ceilings --json
want_code 'bench --json' 0
want_in 'bench --json' out '"decode_tps": {"min": [0-9.]*, "median": [0-9.]*'

want_not_in 'bench --no-ceilings' out 'peak_gops'
run bench -p 8 -n 4 -r 1
want_in 'bench: both ceilings' out '^prefill 8 .* % of [0-9]* GOP/s int8$'
want_in 'bench: both ceilings' out '^decode 4 .* % of [0-9.]* GB/s read'

# What a file calls itself reaches neither the terminal as codes nor JSON as anything but a string.
cp models/pico.gguf "$work/named.gguf"
name_at=$(($(LC_ALL=C grep -abo general.name models/pico.gguf | head -n 1 | cut -d: -f1) + 12 + 12))
printf 'p"\033\\' | dd of="$work/named.gguf" bs=1 seek="$name_at" conv=notrunc 2>/dev/null
run bench -p 8 -n 4 -r 1 --no-ceilings --json -m "$work/named.gguf"
want_in 'a hostile name' out '^{"model": "p\\"\\\\x1b\\\\", '
run show "$work/named.gguf"
want_in 'a hostile name' out '^name  *p"\\x1b\\$'
no_escapes 'a hostile name'

wrong 'depth' "rising numbers with commas, up to 1048576; not '5,3'" --depth 5,3
wrong 'depth' "not 'x'" --depth x
wrong 'batch' "1 to 256, not '0'" --batch 0
wrong 'two curves' 'one of --rows' --rows --busy
wrong 'two lists' 'take one --depth' --rows --depth 1,2

# Curves. --rows checks that rows are the same in steps of every size, and fails if not.
run bench --rows --depth 40 -r 1 --json
want_code 'rows' 0
want_in 'rows' out '"rows":64,"kv":"f16","ms":{"min":[0-9.]*,"median":[0-9.]*,"max":[0-9.]*},"over_one":[0-9.]*,"over_floor":'
want_in 'rows' out '"same_rows":true'
run bench --rows --depth 40 -r 1
want_in 'rows' out '^ *64 *f16 '
run bench --depth 40,70 -n 2 -r 1
want_code 'depths' 0
want_in 'depths' out '^ *0 *f16 '
want_in 'depths' out '^ *70 *q8 '
run bench --service 1,2 -p 100 -n 6 -r 1 --json
want_code 'service' 0
want_in 'service' out '"cached": 96, '
want_in 'service' out '{"streams": 2, "total_tps": [0-9.]*, "gap_ms": {.*"arrival": {"gap_max_ms": [0-9.]*'
run bench --service 2 -p 100 -n 6 -r 1
want_in 'service' out '^ *2 *[0-9.]* '
wrong 'service' "1 to 64, not '65'" --service 65
wrong 'service and rows' 'a bench of its own' --service 2 --rows
run bench --batch 1,3 -n 2 -r 1 --kv q8 --json
want_code 'batch' 0
want_in 'batch' out '"sequences":3,"kv":"q8",.*"gain":'
run bench --busy -n 2 -r 1 --json
want_code 'busy' 0
want_in 'busy' out '"speed_left":[0-9.]*,"neighbour_share":'

dir=$work/peers
mkdir "$dir"
run bench --peers "$dir" --grid small
want_code 'no manifest' 1
want_in 'no manifest' err 'peers.json'
echo '{"models": [], "peers": [' >"$dir/peers.json"
run bench --peers "$dir" --grid small
want_code 'cut manifest' 1
want_in 'cut manifest' err 'peers.json, byte '
manifest() { # COMMAND-OF-THE-SECOND
    cat >"$dir/peers.json" <<END
{"models": [{"name": "pico", "format": "Q4_0", "file": "pico.gguf"}],
 "peers": [{"name": "one", "kind": "command", "command": ["sh", "one.sh", "{threads}", "{answer}"]},
           {"name": "two", "kind": "command", "command": [$1], "limit_s": 1}]}
END
}
manifest '"sh", "two.sh"'
run bench --peers "$dir" --grid small
want_code 'no model' 1
want_in 'no model' err "the file 'pico.gguf' of the model 'pico Q4_0' is not there"
cp models/pico.gguf "$dir"
run bench --peers "$dir" --grid full
want_code 'full grid' 1
want_in 'full grid' err 'the full grid wants the model'
manifest '"./none"'
run bench --peers "$dir" --grid small
want_in 'no program' err "the program './none' of the peer 'two' is not there"

# The rest runs our own program, which an emulator cannot start.
case $TERN in *' '*) finish; exit ;; esac
echo 'echo loading; echo "{\"tokens_per_s\": 0.5}"' >"$dir/one.sh"
echo 'echo "{\"tokens_per_s\": 2000000}"' >"$dir/two.sh"
manifest '"sh", "two.sh"'
run bench --peers "$dir" --grid small -r 2 -t 1 --json
want_code 'peers' 0
want_in 'peers' out '"missing":\[\]'
want_in 'peers' out '"phase":"decode","tokens":32,"threads":1,"depth":0,"ours":[0-9.]*,"peer":0.5,"peer_name":"one","peer_command":"sh one.sh 1 32"'
want_in 'peers' out '^{"ceilings":\[{"threads":1,"blocks":4,"read_gbs":{"min":'
want_in 'peers' out '"ratios":\[{"model":"pico","format":"Q4_0","phase":"decode"'
want_in 'peers' out '"ratio":[0-9.e-]*,"lo":[0-9.e-]*,"hi":[0-9.e-]*,"pairs":2'
want_in 'peers' err '0 blocks left'
[ "$(wc -l <"$dir/results/cells.csv")" -eq 13 ] && pass || fail 'peers: 2 cells, 2 blocks, 3 engines and a head'
# ABBA: the first of a block is the last of the next.
[ "$(awk -F, 'NR > 1 && $3 == 0 { printf "%s ", $10 }' "$dir/results/cells.csv")" = 'tern two tern two ' ] && pass ||
    fail 'peers: order does not turn round'
grep -q '"tokens_per_s": 0.5' "$dir/results/raw/pico-Q4_0-decode32-d0-t1-one.txt" && pass || fail 'peers: no raw output'

# It goes on where it ended: nothing is measured twice.
run bench --peers "$dir" --grid small -r 2 -t 1
want_code 'peers again' 0
want_in 'peers again' out 'geometric mean'
[ "$(wc -l <"$dir/results/cells.csv")" -eq 13 ] && pass || fail 'peers again: something was measured'
echo 'cut,' >>"$dir/results/cells.csv"
run bench --peers "$dir" --grid small -r 2 -t 1
want_code 'broken runs' 1
want_in 'broken runs' err 'cells.csv: line 14'

# A peer that fails, that takes too long: its cells are missing, and that is a failure.
for script in 'exit 3' 'sleep 30'; do
    rm -r "$dir/results"
    echo "$script" >"$dir/two.sh"
    run bench --peers "$dir" --grid small -r 1 -t 1 --json
    want_code "peer: $script" 1
    want_in "peer: $script" out '"peer_name":"two","pairs":0,"wanted":1'
    want_in "peer: $script" out '"peer_name":"one","peer_command"'
    want_in "peer: $script" err 'cells are missing'
done
run bench --peers "$dir" --grid small -r 1 -t 1 --only 'decode 32'
want_code 'missing in words' 1
want_in 'missing in words' out 'missing: pico Q4_0 decode 32 behind 0, 1 threads, two: 0 of 1'
want_in 'time limit' err 'pico Q4_0 decode 32 behind 0, 1 threads, two (.*two.txt): it was killed after its time limit'
# Drafts. Every mode gives the same tokens, or the run says so; a replay takes acceptance from a record.
run bench --spec --draft-model models/pico-dspark.gguf --modes plain,chain,tree8 -n 12 --skip-loops --json
want_code 'spec' 0
want_in 'spec' out '"same_tokens": *true'
want_in 'spec' out '"loops_left_out": *0'
wrong 'spec mode' "no mode 'trees'" --spec --modes trees
wrong 'skip-loops alone' 'go with --spec' --skip-loops
printf 'prompt chat open 9 4\n0 0 0 1 2\n0 0 0\n0 3 2 1\n0 0 0\n' >"$work/paths"
run bench --replay "$work/paths" --draft-model models/pico-dspark.gguf --modes plain,tree4 -t 1
want_code 'replay' 0
want_in 'replay' out '^tree4 *all *2.00'
grep -q '^auto' "$work/out" && fail 'replay ran a mode that was not asked for' || pass
run study acceptance --draft-model models/pico-dspark.gguf -n 8 --cycles 10,20,40
want_code 'study acceptance' 0
want_in 'study acceptance' out '^plain *10.0 *all 100.0 (1.00)'
run study acceptance --draft-model models/pico-dspark.gguf --cycles 10,20
want_code 'cycles' 2
finish
