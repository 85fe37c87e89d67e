#!/bin/sh
# Where text comes from: chat at the end of its input (case U01), and prompts that reach the model byte for byte from
# an argument, a file and standard input (case U06).
. test/cli/cli_lib.sh

chat() { # NAME STDIN-AS-PRINTF EXPECTED
    start=$(date +%s)
    printf "$2" | { run chat -m $script_model; echo "$code" >"$work/code"; }
    code=$(cat "$work/code")
    want_code "chat, $1" 0
    want_out "chat, $1" "$3"
    if [ $(($(date +%s) - start)) -le "${CHAT_SECONDS:-10}" ]; then pass; else fail "chat, $1: took too long"; fi
    no_escapes "chat, $1"
}
chat 'nothing on stdin' '' ''
chat 'one message' 's01' 'Hello, world.\n'
chat 'one message and a line end' 's01\n' 'Hello, world.\n'
chat 'only line ends' '\n\n\n' ''
run chat -m $script_model </dev/null
want_code 'chat, /dev/null' 0
want_out 'chat, /dev/null' ''

# ids_same NAME TEXT-AS-PRINTF: argument, file and stdin give the same ids, and the ids give the text back.
ids_same() {
    printf "$2" >"$work/text"
    run tokenize -m $script_model -f "$work/text"
    want_code "$1, file" 0
    cp "$work/out" "$work/ids"
    run tokenize -m $script_model <"$work/text"
    cmp -s "$work/ids" "$work/out" && pass || fail "$1: stdin gives other ids than the file"
    run tokenize -m $script_model -f - <"$work/text"
    cmp -s "$work/ids" "$work/out" && pass || fail "$1: -f - gives other ids than the file"
    case $2 in
    *'\n') ;; # an argument from a shell substitution would lose the line end
    *)
        run tokenize -m $script_model -- "$(cat "$work/text")"
        cmp -s "$work/ids" "$work/out" && pass || fail "$1: the argument gives other ids than the file"
        ;;
    esac
    run tokenize -m $script_model -d $(cat "$work/ids")
    printf '\n' >>"$work/text"
    cmp -s "$work/text" "$work/out" && pass || fail "$1: the ids do not give the text back"
}
ids_same 'emoji' '\360\237\221\251\342\200\215\360\237\222\273'
ids_same 'tab' 'a\tb'
ids_same 'CRLF' 'a\r\nb'
ids_same 'letter' 'x'
ids_same 'letter and line end' 'x\n'
ids_same 'option as text' '\055\055help'
ids_same 'dash' '\055'
ids_same 'accent' '\303\251'
ids_same 'decomposed accent' 'e\314\201'
run tokenize -m $script_model "$(printf 'a\nb\n\nc')"
cp "$work/out" "$work/ids"
printf 'a\nb\n\nc' | { run tokenize -m $script_model; }
cmp -s "$work/ids" "$work/out" && pass || fail 'line ends inside: stdin gives other ids than the argument'

# The same prompt by each way gives the same answer.
printf 's05' >"$work/prompt"
for way in "s05" "-f $work/prompt" "-f -"; do
    run run -m $script_model $way <"$work/prompt"
    want_code "run $way" 0
    want_in "run $way" out '^Let me check'
done
run run -m $script_model <"$work/prompt"
want_in 'run from stdin' out '^Let me check'

# Bytes that are no UTF-8: refused with their place, or kept.
printf 'ab\377cd' >"$work/text"
run tokenize -m $script_model -f "$work/text"
if [ "$code" = 0 ]; then
    run tokenize -m $script_model -d $(cat "$work/out")
    printf '\n' >>"$work/text"
    cmp -s "$work/text" "$work/out" && pass || fail 'invalid UTF-8: changed'
else
    want_in 'invalid UTF-8' err 'byte 2'
fi

# At a terminal: a message of several lines is one message (the next line is the next).
if command -v script >/dev/null 2>&1 && [ "$(uname)" = Linux ]; then
    printf '"""s01\nsecond line\n"""\n"""s15"""\n/bye\n' |
        script -qec "$TERN chat -m $script_model" /dev/null 2>/dev/null | tr -d '\r' >"$work/out"
    [ "$(grep -c 'Hello, world' "$work/out")" = 1 ] && pass || fail 'several lines are one message'
    [ "$(grep -c '\(^\|h\)> ' "$work/out")" = 3 ] && pass || fail 'chat: three prompts for two messages and the end'
    want_in 'quotes on one line' out 'items = \[1, 2, 3\]'
fi
finish
