#!/bin/sh
# tern serve before it serves: options, files of settings, the environment, what is refused. test/server/ has the rest.
. test/cli/cli_lib.sh
unset TERN_API_KEY TERN_SERVE_CONFIG
XDG_CONFIG_HOME=$work/none
export XDG_CONFIG_HOME

run serve --help
want_code 'serve --help' 0
want_in 'serve --help' out '--api-key-file'

run serve --host 0.0.0.0 --check
want_code 'serve on the network without a key' 2
want_in 'serve on the network without a key' err '--api-key'
run serve --host 0.0.0.0 --open-to-network --check
want_code 'serve --open-to-network' 0
run serve --log xml --check
want_code 'serve --log xml' 2
run serve test/data/gguf/script-lfm2.gguf no-such-model
want_code 'serve: a second model that is not there' 1
run serve --port 70000
want_code 'serve --port 70000' 2
run serve --streams 0
want_code 'serve --streams 0' 2
: >"$work/empty"
run serve --api-key-file "$work/empty" --check
want_code 'serve with a file of no key' 1
run serve --api-key 'two words' --check
want_code 'serve with a key of two words' 1

printf '# comment\nport = 1234\nalias = "one # not a comment"\nalias = two # comment\nlog = json\ntemp = 0.5\r\n\n' >"$work/conf"
run serve --config "$work/conf" --check
want_code 'serve --config' 0
want_in 'serve --config' out '^port = 1234$'
want_in 'serve --config' out '^alias = "one # not a comment"$'
want_in 'serve --config' out '^alias = "two"$'
want_in 'serve --config' out '^temp = 0.5$'
TERN_SERVE_PORT=4321 TERN_SERVE_KEY_JOBS=9 run serve --config "$work/conf" --check --streams 2
want_in 'environment over file' out '^port = 4321$'
want_in 'environment, a name with a dash' out '^key-jobs = 9$'
TERN_SERVE_PORT=4321 run serve --config="$work/conf" --check --port 99 --api-key secret-key
want_in 'command line over environment' out '^port = 99$'
want_not_in 'keys are not shown' out 'secret-key'
mkdir -p "$work/home/tern"
echo 'queue = 77' >"$work/home/tern/serve.conf"
XDG_CONFIG_HOME=$work/home run serve --check
want_in 'the user'\''s file' out '^queue = 77$'

# bad NAME LINE MESSAGE
bad() {
    printf '%b\n' "$2" >"$work/bad"
    run serve --config "$work/bad" --check
    want_code "$1" 2
    want_in "$1" err "bad:1: .*$3"
}
printf '\357\273\277port = 4322\n' >"$work/mark"
run serve --config "$work/mark" --check
want_in 'a byte order mark' out '^port = 4322$'
printf '\377\376p\0o\0' >"$work/wide"
run serve --config "$work/wide" --check
want_code 'UTF-16' 2
want_in 'UTF-16' err 'save it as UTF-8'
TERN_SERVE_PROT=1 run serve --check
want_code 'an unknown variable' 2
want_in 'an unknown variable' err 'TERN_SERVE_PROT: .*did you mean TERN_SERVE_PORT?'
TERN_SERVE_port=1 run config check
want_code 'a variable in small letters' 2
TERN_SERVE_XYZZY=1 TERN_SERVE_PORT=70 run serve -m no-such-model
want_in 'an unknown variable at the start' err 'TERN_SERVE_XYZZY: no setting has this variable, it does nothing'
OLLAMA_KEEP_ALIVE=1h OLLAMA_NUM_PARALLEL=3 OLLAMA_MAX_QUEUE=9 OLLAMA_CONTEXT_LENGTH=777 OLLAMA_HOST=9.9.9.9 run serve --check
want_code 'the variables of Ollama' 0
want_in 'OLLAMA_KEEP_ALIVE' out '^idle = 3600$'
want_in 'OLLAMA_NUM_PARALLEL' out '^streams = 3$'
want_in 'OLLAMA_MAX_QUEUE' out '^queue = 9$'
want_in 'OLLAMA_CONTEXT_LENGTH' out '^ctx = 777$'
want_in 'OLLAMA_HOST' out '^host = "127.0.0.1"$'
OLLAMA_KEEP_ALIVE=-1 OLLAMA_NUM_PARALLEL=0 OLLAMA_MAX_QUEUE=many run serve --check
want_code 'values of Ollama that mean nothing' 0
want_in 'OLLAMA_KEEP_ALIVE for ever' out '^idle = 0$'
want_in 'OLLAMA_NUM_PARALLEL by itself' out '^streams = 4$'
OLLAMA_NUM_PARALLEL=3 run serve --config "$work/conf" --check --streams 2
want_in 'options over variables of Ollama' out '^streams = 2$'
bad 'an unknown setting' 'prot = 1' 'prot'
bad 'a line without =' 'port' 'name = value'
bad 'a value out of range' 'port = 99999' '65535'
bad 'an open quote' 'alias = "x' 'quote'
bad 'a flag that is no flag' 'open-to-network = maybe' 'true or false'
TERN_SERVE_QUEUE=x run serve --check
want_code 'a bad variable' 2
want_in 'a bad variable' err 'TERN_SERVE_QUEUE'
run serve --config "$work/absent" --check
want_code 'an absent file' 1
no_escapes 'serve'
finish
