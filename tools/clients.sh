#!/bin/sh
# tools/clients.sh TERN: real clients against `TERN serve`: the openai, anthropic, ollama and litellm packages of Python
# (test/server/clients/), sampled JSON against the jsonschema package, requests that schemathesis makes from
# doc/openapi.json, and the chat page in Chromium
# (tools/check_page.py). The packages are installed into build/clients by name. Ends with "N passed, N failed". What is
# missing is skipped; with CI=true it is a failure.
set -u
cd "$(dirname "$0")/.." || exit 1
tern=${1:?the program to test}
venv=build/clients
missing() {
    echo "$1"
    [ "${CI:-}" = true ] && exit 1
    exit 77
}
command -v python3 >/dev/null 2>&1 || missing 'no python3 here'
[ -x $venv/bin/python ] || python3 -m venv $venv >/dev/null 2>&1 || missing 'python3 cannot make a venv (Debian: apt install python3-venv)'
packages='openai anthropic ollama litellm jsonschema schemathesis'
if ! $venv/bin/python -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' $packages; then
    $venv/bin/python -m pip install -q --disable-pip-version-check $packages >$venv/install.log 2>&1 ||
        missing "the packages $packages could not be installed: $(tail -n 1 $venv/install.log)"
fi
LITELLM_LOCAL_MODEL_COST_MAP=True # else it asks the network for prices
export LITELLM_LOCAL_MODEL_COST_MAP
passed=0
failed=0
# count COMMAND…: adds what the last line of its output says.
count() {
    timeout 120 "$@" >$venv/out 2>&1
    code=$?
    line=$(tail -n 1 $venv/out)
    case $line in
    *' passed, '*' failed')
        passed=$((passed + ${line%% *}))
        line=${line#* passed, }
        failed=$((failed + ${line%% *}))
        ;;
    *)
        [ $code = 77 ] && [ "${CI:-}" != true ] && { echo "skipped: $line"; return; }
        failed=$((failed + 1))
        ;;
    esac
    grep -v ' passed, ' $venv/out
    [ $code = 0 ] || echo "exit $code of $*"
}
for script in test/server/clients/client_*.py; do count $venv/bin/python "$script" "$tern"; done
count python3 tools/check_page.py "$tern"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
