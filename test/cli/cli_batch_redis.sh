#!/bin/sh
# tern batch over Redis: workers are killed at any point, a batch is submitted and collected in pieces, Redis itself goes
# away and comes back; at the end each custom_id has exactly one result, the same as a batch in one process gives.
# Skipped where there is no redis-server or no hiredis, but not in CI.
. test/cli/cli_lib.sh
model=models/pico.gguf
absent() {
    [ "${CI:-}" = true ] && { echo "$1, and CI needs it"; exit 1; }
    echo "$1"
    exit 77
}
case $TERN in *' '*) echo 'the program runs in an emulator'; exit 77 ;; esac
command -v redis-server >/dev/null 2>&1 || absent 'redis-server is not installed'
run batch status --redis unix://"$work/none.sock" --name x
grep -q 'built without a Redis client' "$work/err" && absent 'tern was built without hiredis'
want_code 'no server' 1
want_in 'no server' err 'no connection to Redis'

redis_start() {
    redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --appendonly yes --appendfsync always \
        --dir "$work" --daemonize no >"$work/redis.log" 2>&1 &
    redis=$!
    tries=0
    while ! $TERN batch status --redis "$url" --name probe >/dev/null 2>&1 && [ $tries -lt 200 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}
workers=''
trap 'kill -9 $redis $workers 2>/dev/null; rm -rf "$work"' EXIT
url=unix://$work/redis.sock
redis_start
at="--redis $url --name test.1"

n=40
i=0
while [ $i -lt $n ]; do
    printf '{"custom_id": "r%s", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "Count from %s."}], "max_tokens": 24}}\n' $i $i
    i=$((i + 1))
done >"$work/in.jsonl"
answers() { sed -n 's/.*"custom_id":"\([^"]*\)".*"content":"\([^"]*\)".*/\1 \2/p' "$1" | sort; }
run batch "$work/in.jsonl" -m $model -o "$work/local.jsonl"
answers "$work/local.jsonl" >"$work/whole"
[ "$(wc -l <"$work/whole")" -eq $n ] && pass || fail 'the batch in one process'

# Submitted in pieces and again: every request once.
head -n 10 "$work/in.jsonl" >"$work/part.jsonl"
run batch submit $at "$work/part.jsonl" --json
want_code 'submit' 0
want_out 'submit' '{"requests":10,"submitted":10,"there_before":0}\n'
run batch submit $at "$work/in.jsonl" --json
want_out 'submit all' "{\"requests\":$n,\"submitted\":$((n - 10)),\"there_before\":10}\n"
run batch submit $at "$work/in.jsonl" --json
want_out 'submit again' "{\"requests\":$n,\"submitted\":0,\"there_before\":$n}\n"
sed 's/Count/Sing/' "$work/part.jsonl" >"$work/other.jsonl"
run batch submit $at "$work/other.jsonl"
want_code 'another request of the same custom_id' 1
want_in 'another request of the same custom_id' err "custom_id 'r0'"
run batch status $at --json
want_in 'status' out "\"submitted\":$n,\"results\":0,\"waiting\":$n,\"held\":0"

# Workers that die: three generations are killed while they hold requests.
work_start() { # OPTION…
    $TERN batch work $at -m $model --streams 2 --lease 2 --threads 1 "$@" >/dev/null 2>>"$work/workers.log" &
    workers="$workers $!"
    last=$!
}
results() { $TERN batch status $at --json | sed 's/.*"results":\([0-9]*\).*/\1/'; }
held() { $TERN batch status $at --json | sed 's/.*"held":\([0-9]*\).*/\1/'; }
n_holding=0
for generation in 1 2 3; do
    work_start
    first=$last
    work_start
    tries=0
    while { [ "$(results)" -lt $((generation * 6)) ] || [ "$(held)" -lt 1 ]; } && [ $tries -lt 600 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    kill -9 "$first" "$last" 2>/dev/null
    wait "$first" "$last" 2>/dev/null
    [ "$(held)" -ge 1 ] && n_holding=$((n_holding + 1))
done
workers=''
[ $n_holding -ge 1 ] && pass || fail 'no worker was killed while it held a request'
[ "$(results)" -lt $n ] && pass || fail 'the workers were done before they were killed'

# What is there can be collected meanwhile; a collector that is killed goes on.
run batch collect $at -o "$work/out.jsonl" --no-wait
want_code 'collect --no-wait' 0
[ "$(wc -l <"$work/out.jsonl")" -ge 1 ] && pass || fail 'nothing was collected'
cp "$work/out.jsonl" "$work/collected"
$TERN batch collect $at -o "$work/out.jsonl" >/dev/null 2>"$work/collect.err" &
collector=$!
work_start
sleep 0.3
kill -9 $collector
wait $collector 2>/dev/null

# Redis dies and comes back; the workers find it again.
kill -9 $redis
wait $redis 2>/dev/null
sleep 0.5
redis_start
work_start --once
once=$last
run batch collect $at -o "$work/out.jsonl" --json
want_code 'collect' 0
want_in 'collect' out "\"submitted\":$n,\"results\":$n,"
answers "$work/out.jsonl" | cmp -s - "$work/whole" && pass || fail 'the answers are others than in one process'
[ "$(wc -l <"$work/out.jsonl")" -eq $n ] && pass || fail 'more or fewer lines than requests'
head -c "$(wc -c <"$work/collected")" "$work/out.jsonl" | cmp -s - "$work/collected" && pass || fail 'a collected result changed'
wait $once
code=$?
want_code 'work --once' 0
run batch collect $at -o "$work/again.jsonl"
answers "$work/again.jsonl" | cmp -s - "$work/whole" && pass || fail 'collected anew: other answers'

# A worker that is told to stop ends cleanly and hands back what it holds.
for pid in $workers; do kill -TERM "$pid" 2>/dev/null; done
for pid in $workers; do
    [ "$pid" != "$once" ] || continue
    wait "$pid"
    code=$?
    want_code 'work ended by SIGTERM' 0
done
workers=''
run batch status $at --json
want_in 'status at the end' out "\"results\":$n,\"waiting\":0,\"held\":0"

# A request that no tern can answer gets its result; one that kills its workers is given up (its deliveries are counted
# by Redis: here they are set by hand).
printf '{"custom_id":"bad","method":"POST","url":"/v1/chat/completions","body":{"messages":3}}\n' >"$work/bad.jsonl"
run batch submit --redis "$url" --name bad "$work/bad.jsonl"
printf '{"custom_id":"poison","method":"POST","url":"/v1/chat/completions","body":{"messages":[]}}\n' >"$work/bad.jsonl"
run batch submit --redis "$url" --name poison "$work/bad.jsonl"
if command -v redis-cli >/dev/null 2>&1; then
    cli() { redis-cli -s "$work/redis.sock" "$@" >/dev/null; }
    cli XGROUP CREATE 'tern:batch:{poison}:jobs' workers 0
    cli XREADGROUP GROUP workers dead COUNT 1 STREAMS 'tern:batch:{poison}:jobs' '>'
    id=$(redis-cli -s "$work/redis.sock" XPENDING 'tern:batch:{poison}:jobs' workers - + 1 | head -n 1)
    cli XCLAIM 'tern:batch:{poison}:jobs' workers dead 0 "$id" RETRYCOUNT 8 IDLE 60000
    run batch work --redis "$url" --name poison -m $model --once --lease 1
    run batch collect --redis "$url" --name poison -o "$work/poison.jsonl"
    grep -q '"custom_id":"poison","response":{"status_code":500.*given up' "$work/poison.jsonl" && pass || fail 'a poisoned request'
fi
run batch work --redis "$url" --name bad -m $model --once
want_code 'work on a bad request' 0
run batch collect --redis "$url" --name bad -o "$work/bad.out"
want_in 'a bad request' err '1 errors'
grep -q '"custom_id":"bad","response":{"status_code":400' "$work/bad.out" && pass || fail 'the result of a bad request'

run batch remove $at
want_code 'remove' 0
run batch collect $at -o "$work/none.jsonl"
want_code 'collect of a removed batch' 1
want_in 'collect of a removed batch' err 'nothing was submitted'

# Addresses.
for address in http://x redis:// redis://h:port 'redis://h:70000' rediss://h redis://h/db 'redis://[::1' unix://; do
    run batch status --redis "$address" --name x
    want_code "address $address" 1
    want_lines_at_most "address $address" err 1
done
run batch status --redis "$url" --name 'two words'
want_code 'a bad name' 1
finish
