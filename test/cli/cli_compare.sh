#!/bin/sh
# tern compare against a small server of ours ($FAKE) that plays the engines, sound and unsound.
. test/cli/cli_lib.sh
: "${FAKE:?the server that plays an engine}"
case $FAKE in *' '*) exit 77 ;; esac # an emulator cannot be started as an engine
TMPDIR=$work
export TMPDIR
cat >"$work/prompts" <<'END'
{"prompt": "s21", "note": [1, 2]}

s21 <b>&"x"
END
export FAKE_ENGINE

with() { # MODE ARGUMENT…
    FAKE_ENGINE=$1
    shift
    run compare -m $script_model --no-pack-cache --engine-path "$FAKE" --prompts "$work/prompts" --repeats 2 -n 8 --threads 1 \
        --stall 2 "$@"
}
with ok
if grep -q 'needs libcurl' "$work/err"; then # the clear message is all that can be tested
    want_code 'without libcurl' 1
    finish
    exit
fi
want_code 'compare' 0
want_in 'compare' out 'first token, ms'
want_in 'compare' out 'writing the answer, tokens/s .* 66.7 '
want_in 'compare' out 'reading the prompt, tokens/s .* 100 '
want_in 'compare' out 'equal text: '
want_in 'compare' out 'fake-1'
no_escapes 'compare'
with ok --json --html "$work/page.html"
want_code 'compare --json' 0
want_in 'compare --json' out '"engine":"llama-server","engine_version":"fake-1"'
want_in 'compare --json' out '"text_theirs":"0001 0002"'
want_in 'compare --json' out '"decode_tokens_s":{"ours":[0-9.]*,"theirs":66.6'
cp "$work/page.html" "$work/out"
want_in 'page' out '<svg '
want_in 'page' out '&lt;b&gt;&amp;&quot;x&quot;'
want_in 'page' out '<b>[^/]*\.gguf</b>.*answered 2 times'
want_in 'page' out '<br>fake_engine -m [^/ ]*\.gguf --host'
want_not_in 'page' out '<script\|http://[^1]\|https://\|<b>&'

unsound() { # MODE PATTERN
    with $1
    want_code "compare, $1" 1
    want_in "compare, $1" err "$2"
    want_lines_at_most "compare, $1" out 0
}
unsound die 'ended before it was ready (exit code 7).*not to my taste'
unsound slow 'ended before it was ready'
unsound broken 'JSON'
unsound truncated 'broke off'
unsound cut 'completion: '
unsound error 'the model is tired'
unsound http500 'HTTP 500'
unsound crash 'ended while it answered (exit code 3)'
unsound mute 'completion: '
unsound endless 'longer than'

# Engines that run already.
FAKE_ENGINE=ok $FAKE --port 0 >"$work/port" &
server=$!
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
for i in 1 2 3 4 5 6 7 8 9 10; do
    [ ! -s "$work/port" ] || break
    sleep 0.3
done
port=$(cat "$work/port")
with ok --with ollama --url http://127.0.0.1:$port/ --engine-model m
want_code 'ollama' 0
want_in 'ollama' out '0.fake'
want_in 'ollama' out '117.7 MiB'
with ok --with ollama --url http://127.0.0.1:$port
want_code 'ollama, a file of no store' 1
want_in 'ollama, a file of no store' err 'engine-model'
with ok --with lmstudio --url http://127.0.0.1:$port
want_code 'lmstudio' 0
want_in 'lmstudio' out 'LM Studio'
kill $server
wait $server 2>/dev/null
with ok --with ollama --url http://127.0.0.1:$port --engine-model m
want_code 'ollama does not run' 1
want_in 'ollama does not run' err 'is it running'

run compare --with something
want_code '--with something' 2
run compare
want_code 'no model' 2
with ok --engine-path "$work/none"
want_code 'no such engine' 1
want_in 'no such engine' err 'engine-path'
run compare -m test/data/hf/llama-plain --engine-path "$FAKE"
want_code 'a folder for llama-server' 2
printf '{"text": "x"}\n' >"$work/prompts"
with ok
want_code 'prompts without a prompt' 1
for left in "$work"/tern-compare-*; do
    [ -e "$left" ] && fail "left behind: $left"
done
finish
