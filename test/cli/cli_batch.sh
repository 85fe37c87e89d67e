#!/bin/sh
# tern batch in one process: exactly one result for each custom_id, whatever is repeated; killed at any point it loses no
# line that was in the output and goes on; what is wrong is refused before anything is answered.
. test/cli/cli_lib.sh
model=models/pico.gguf

request() { # ID TEXT [TOKENS]
    printf '{"custom_id": "%s", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "%s"}], "max_tokens": %s}}\n' \
        "$1" "$2" "${3:-6}"
}
# What was answered, without times and names: "custom_id content", sorted.
answers() { sed -n 's/.*"custom_id":"\([^"]*\)".*"content":"\([^"]*\)".*/\1 \2/p' "$1" | sort; }

N_REQUESTS=60
[ -z "${TERN_TEST_SHORT:-}" ] || N_REQUESTS=24
i=0
while [ $i -lt "$N_REQUESTS" ]; do
    request "r$i" "Count from $i." 24
    i=$((i + 1))
done >"$work/in.jsonl"
request r5 'Count from 5.' 24 >>"$work/in.jsonl" # the same again is one request

run batch "$work/in.jsonl" -m $model -o "$work/whole.jsonl" --json
want_code 'batch' 0
want_in 'batch --json' out "\"requests\":$N_REQUESTS,\"answered\":$N_REQUESTS,\"reused\":0,\"errors\":0"
want_lines_at_most 'batch --json' out 1
answers "$work/whole.jsonl" >"$work/whole"
[ "$(wc -l <"$work/whole")" -eq "$N_REQUESTS" ] && pass || fail 'not one answer for each request'

# The same request alone gives the same text.
$TERN run -m $model -n 24 'Count from 5.' >"$work/out" 2>"$work/err"
[ "r5 $(cat "$work/out")" = "$(grep '^r5 ' "$work/whole")" ] && pass || fail 'the answer of a batch is not that of tern run'

cp "$work/whole.jsonl" "$work/before"
run batch "$work/in.jsonl" -m $model -o "$work/whole.jsonl"
want_code 'batch again' 0
want_in 'batch again' err "$N_REQUESTS from before"
cmp -s "$work/before" "$work/whole.jsonl" && pass || fail 'a second run changed the results'

# Killed, again and again, with more results in the file each time. What was in it stays, byte by byte.
: >"$work/killed.jsonl"
for step in 1 5 15 30 45; do
    before=$(wc -l <"$work/killed.jsonl")
    $TERN batch "$work/in.jsonl" -m $model -o "$work/killed.jsonl" --streams 2 >/dev/null 2>&1 &
    pid=$!
    tries=0
    while [ "$(wc -l <"$work/killed.jsonl")" -le "$before" ] || [ "$(wc -l <"$work/killed.jsonl")" -lt $step ]; do
        kill -0 $pid 2>/dev/null || break
        tries=$((tries + 1))
        [ $tries -lt 3000 ] || break
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null && n_killed=$((${n_killed:-0} + 1))
    wait $pid 2>/dev/null
    if [ -f "$work/acknowledged" ]; then
        head -c "$(wc -c <"$work/acknowledged")" "$work/killed.jsonl" | cmp -s - "$work/acknowledged" && pass ||
            fail "kill $step: a result that was there changed or went"
    fi
    # Whole lines are acknowledged.
    head -n "$(wc -l <"$work/killed.jsonl")" "$work/killed.jsonl" >"$work/acknowledged"
done
[ "${n_killed:-0}" -ge 2 ] && pass || fail "only ${n_killed:-0} runs were killed at work"
printf '{"id":"batch_req_torn' >>"$work/killed.jsonl" # a write that the power cut
run batch "$work/in.jsonl" -m $model -o "$work/killed.jsonl" --json
want_code 'batch after kills' 0
want_not_in 'batch after kills' out '"reused":0,'
answers "$work/killed.jsonl" >"$work/killed"
cmp -s "$work/whole" "$work/killed" && pass || fail 'the answers after kills are others'
[ "$(wc -l <"$work/killed.jsonl")" -eq "$N_REQUESTS" ] && pass || fail 'after kills there are more or fewer lines than requests'
head -c "$(wc -c <"$work/acknowledged")" "$work/killed.jsonl" | cmp -s - "$work/acknowledged" && pass || fail 'after kills: a result changed'

# SIGTERM: what runs is dropped, exit 130, the same command goes on.
$TERN batch "$work/in.jsonl" -m $model -o "$work/term.jsonl" --streams 1 >/dev/null 2>"$work/err" &
pid=$!
tries=0
while [ ! -s "$work/term.jsonl" ] && [ $tries -lt 1000 ]; do tries=$((tries + 1)); sleep 0.01; done
kill -TERM $pid
wait $pid
code=$?
want_code 'batch ended by SIGTERM' 130
want_in 'batch ended by SIGTERM' err 'goes on'
run batch "$work/in.jsonl" -m $model -o "$work/term.jsonl"
want_code 'batch after SIGTERM' 0
answers "$work/term.jsonl" | cmp -s - "$work/whole" && pass || fail 'the answers after SIGTERM are others'

# A request's own fault is its result; other routes; other models.
{
    request few 'x' 0
    printf '{"custom_id":"text","method":"POST","url":"/v1/completions","body":{"prompt":"One, two,","max_tokens":3}}\n'
    printf '\n{"custom_id":"other","method":"POST","url":"/v1/chat/completions","body":{"model":"nosuch","messages":[]}}\n'
    printf '{"custom_id":"format \\"x\\"","method":"POST","url":"/v1/responses","body":{"input":"Hi",\r"max_output_tokens":3}}\n'
} >"$work/mixed.jsonl"
run batch "$work/mixed.jsonl" -m $model -o "$work/mixed.out"
want_code 'batch with faults' 0
want_in 'batch with faults' err '2 are errors'
[ "$(wc -l <"$work/mixed.out")" -eq 4 ] && pass || fail 'not one line for each request'
grep -q '"custom_id":"few","response":{"status_code":400,.*max_tokens' "$work/mixed.out" && pass || fail 'no error result'
grep -q '"custom_id":"other","response":{"status_code":404' "$work/mixed.out" && pass || fail 'another model is answered'
grep -q '"custom_id":"text","response":{"status_code":200,.*text_completion' "$work/mixed.out" && pass || fail '/v1/completions'
grep -q '"custom_id":"format \\"x\\"","response":{"status_code":200' "$work/mixed.out" && pass || fail '/v1/responses'

# Refused before anything is answered.
refuse() { # NAME PATTERN LINE…
    name=$1
    pattern=$2
    shift 2
    request first 'x' >"$work/bad.jsonl"
    printf '%s\n' "$@" >>"$work/bad.jsonl"
    rm -f "$work/bad.out"
    run batch "$work/bad.jsonl" -m $model -o "$work/bad.out"
    want_code "$name" 1
    want_in "$name" err "bad.jsonl:2: .*$pattern"
    [ ! -s "$work/bad.out" ] && pass || fail "$name: something was answered"
}
refuse 'no JSON' '' 'hello'
refuse 'cut line' '' '{"custom_id": "b", "method": "POST"'
refuse 'no custom_id' 'custom_id is missing' '{"method":"POST","url":"/v1/chat/completions","body":{}}'
refuse 'GET' 'POST' '{"custom_id":"b","method":"GET","url":"/v1/models","body":{}}'
refuse 'unknown url' "no url '/v2/x'" '{"custom_id":"b","method":"POST","url":"/v2/x","body":{}}'
refuse 'a stream' 'no streams' '{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":{"stream":true}}'
refuse 'two requests of one id' 'another request' "$(request first 'other')"
refuse 'list as body' 'body' '{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":[]}'
: >"$work/empty.jsonl"
run batch "$work/empty.jsonl" -o "$work/o"
want_code 'no request' 1
run batch "$work/nosuch.jsonl" -o "$work/o"
want_code 'no file' 1
run batch "$work/in.jsonl" -o "$work/in.jsonl"
want_code 'output over input' 1
request r5 'Another text.' >"$work/other.jsonl"
run batch "$work/other.jsonl" -m $model -o "$work/whole.jsonl"
want_code 'the output of another batch' 1
want_in 'the output of another batch' err "custom_id 'r5'"
cp CONTRIBUTING.md "$work/text.md"
run batch "$work/in.jsonl" -m $model -o "$work/text.md"
want_code 'an output that is another file' 1
cmp -s CONTRIBUTING.md "$work/text.md" && pass || fail 'another file was changed'
printf 'no line end' >"$work/text.txt"
run batch "$work/in.jsonl" -m $model -o "$work/text.txt"
want_code 'an output that is another file without lines' 1
[ "$(cat "$work/text.txt")" = 'no line end' ] && pass || fail 'another file was cut'
run batch "$work/in.jsonl"
want_code 'no output' 2
run batch -o "$work/o"
want_code 'no input' 2
run batch work -m $model
want_code 'work without Redis' 2
run batch "$work/in.jsonl" -o "$work/o" --name x
want_code 'a name without an action' 2

# Two at once on one output: the second is refused.
$TERN batch "$work/in.jsonl" -m $model -o "$work/two.jsonl" --streams 1 >/dev/null 2>&1 &
pid=$!
tries=0
while [ ! -s "$work/two.jsonl" ] && [ $tries -lt 1000 ]; do tries=$((tries + 1)); sleep 0.01; done
run batch "$work/in.jsonl" -m $model -o "$work/two.jsonl"
want_code 'two batches on one output' 1
want_in 'two batches on one output' err 'another tern batch'
kill -9 $pid
wait $pid 2>/dev/null
finish
