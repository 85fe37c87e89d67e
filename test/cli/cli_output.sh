#!/bin/sh
# stdout holds the answer and nothing else; a reader that leaves and a full disk end the program as they should (case
# U03).
. test/cli/cli_lib.sh

run run -m $script_model s01
want_code 'run' 0
want_out 'run' 'Hello, world.\n'
no_escapes 'run'
want_not_in 'run' err 'Hello'

# To a file and through a pipe: the same bytes.
$TERN run -m $script_model s02 >"$work/file" 2>/dev/null
$TERN run -m $script_model s02 2>/dev/null | cat >"$work/pipe"
cmp -s "$work/file" "$work/pipe" && pass || fail 'file and pipe differ'

# --json: one object that a JSON reader takes; stats and warnings stay on stderr.
run run -m $script_model --json --stats s40
want_code 'run --json' 0
want_lines_at_most 'run --json' out 1
want_in 'run --json' out '^{.*"text": *"caf.*"finish": *"stop".*}$'
want_in 'run --json' out '"answer_tokens": *25'

# A reader that has seen enough: quiet, with 0 or 141.
{
    $TERN run -m $script_model --ignore-eos -n 200 s20 2>"$work/err"
    echo $? >"$work/code"
} | head -c 3 >"$work/out"
code=$(cat "$work/code")
want_code 'broken pipe' 0 141
want_lines_at_most 'broken pipe' err 0

# A full disk is an error with a message.
if [ -w /dev/full ]; then
    code=0
    $TERN run -m $script_model s01 >/dev/full 2>"$work/err" || code=$?
    : >"$work/out"
    want_code 'full disk' 1
    want_in 'full disk' err 'cannot write'
    code=0
    $TERN --help >/dev/full 2>"$work/err" || code=$?
    want_code 'full disk, help' 1
fi

# Logging goes to stderr whatever its level.
code=0
TERN_LOG=debug $TERN run -m $script_model s01 >"$work/out" 2>"$work/err" || code=$?
want_code 'debug log' 0
want_in 'debug log' err 'memory: weights .* per position.* at most'
want_out 'debug log' 'Hello, world.\n'
finish
