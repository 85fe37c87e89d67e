#!/bin/sh
# Wrong options are never ignored: exit 2 for what was typed wrongly, 1 for what could not be done, a line or two on
# stderr that say what and what to do, nothing on stdout (case U04).
. test/cli/cli_lib.sh

refused() { # CODES ARGUMENT…
    codes=$1
    shift
    run "$@" </dev/null
    want_code "$*" $codes
    want_out "$*" ''
    want_lines_at_most "$*" err 5
    if [ -s "$work/err" ]; then pass; else fail "$*: no message"; fi
    no_escapes "$*"
}
mkdir "$work/empty"
printf 'GGUF' >"$work/unreadable.gguf"
chmod 000 "$work/unreadable.gguf"
: >"$work/nothing.gguf"

refused 2 --nosuch
refused 2 -m
refused 1 -m /nonexistent.gguf
want_in 'missing file' err '/nonexistent.gguf'
refused 1 -m "$work/empty"
want_in 'folder without a model' err 'config.json'
refused 1 -m /tmp
refused 1 run -m "$work/unreadable.gguf" s01
refused 1 run -m "$work/nothing.gguf" s01
refused 2 nosuch
want_in 'unknown command' err 'nosuch'
for command in chat run bench show tokenize template perplexity explain doctor cache; do
    refused 2 $command --nosuch
    want_in "$command --nosuch" err "$command"
    want_in "$command --nosuch" err "$command --help"
    run $command --help
    want_code "$command --help" 0
    want_in "$command --help" out "^usage: tern $command"
    want_lines_at_most "$command --help" err 0
done
refused 2 run -m $script_model --ctx 0 s01
refused 2 run -m $script_model --ctx 12x s01
refused 2 run -m $script_model --ctx
refused 2 run -m $script_model --ctx= s01
refused 2 run -m $script_model --window 513 s01
refused 2 run -m $script_model --temp warm s01
refused 2 run -m $script_model --temp -1 s01
refused 2 run -m $script_model --top-p 1.5 s01
refused 2 run -m $script_model --kv f8 s01
refused 2 run -m $script_model --class int4 s01
refused 2 run -m $script_model --ignore-eos=yes s01
refused 2 run -m $script_model s01 s02
refused 2 run -m $script_model -f a.txt s01
refused '1 2' run -m $script_model --unit abacus s01
refused 1 run -m $script_model -f /nonexistent.txt
refused 1 run -m $script_model --memory 1000 s01
refused 2 run -m $script_model --draft sideways s01
want_in 'draft mode' err 'chain'
refused 2 run -m $script_model --draft-max 64 s01
refused 1 run -m $script_model --draft tree s01
want_in 'no draft model' err 'draft model'
refused 1 run -m $script_model --draft tree --draft-model models/pico-dspark.gguf s01
refused 1 run -m $script_model --draft tree --draft-model /nonexistent.gguf s01
refused 2 bench -m $script_model --each 3
refused 1 bench -m $script_model --spec --prompts /nonexistent.jsonl
refused 2 tokenize -m $script_model -d x
refused 1 tokenize -m $script_model -d 673
refused '1 2' template -m $script_model 'not json'
refused '1 2' cache nosuch
refused 2 run -m $script_model # stdin is at its end: no prompt

run --help
want_code '--help' 0
want_in '--help' out '^usage: tern'
run --version
want_code '--version' 0
want_lines_at_most '--version' out 1
want_in '--version' out '^tern [0-9]'
run -h
want_code '-h' 0

# A slip of the hand, and another program's word: what is meant is told.
refused 2 rnu x
want_in 'rnu' err 'tern run'
refused 2 ls
want_in 'ls' err 'tern list'
refused 2 run --temperature 1 x
want_in '--temperature' err '--temp?'
refused 2 chat --modell=x
want_in '--modell' err '--model?'
refused 2 help serv
want_in 'help serv' err 'serve?'
refused 2 xyzzy
want_in 'xyzzy' err 'tern --help'
refused 1 serve -m /no/such.gguf --port 0
want_lines_at_most 'serve without its model' out 0

# Columns of --help stand below each other, where an option has letters of several bytes too.
run bench --help
if sed 's/…/x/g' "$work/out" | grep '^  [ -].*--' | grep -qv '^.\{30\} [^ ]'; then fail 'columns of bench --help'; else pass; fi

# A message quotes a short, escaped piece of what was typed.
refused 2 "$(printf 'a\033[2Jb')"
refused 1 -m "$(printf '/no\033[2J\r\nsuch')"
refused 2 run "--$(head -c 100000 /dev/zero | tr '\0' x)"
if [ "$(wc -c <"$work/err")" -le 2000 ]; then pass; else fail 'a message of a long option is long'; fi
finish
