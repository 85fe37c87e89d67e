# Sourced by the scripts of this folder: $TERN (unquoted: it may be an emulator and a program), counts, a work folder.
set -u
: "${TERN:?the program to test}"
script_model=test/data/gguf/script-lfm2.gguf
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n_passed=0
n_failed=0

pass() { n_passed=$((n_passed + 1)); }
fail() {
    n_failed=$((n_failed + 1))
    printf 'FAIL  %s\n' "$1"
    for file in "$work/out" "$work/err"; do
        [ -s "$file" ] && { printf '  %s:\n' "${file##*/}"; head -c 800 "$file" | sed 's/^/    /'; }
    done
}
# run ARGUMENT…: stdout, stderr and exit code of the program into $work/out, $work/err and $code; stdin as it is.
run() {
    code=0
    $TERN "$@" >"$work/out" 2>"$work/err" || code=$?
}
# want_code NAME CODE…: the exit code is one of these.
want_code() {
    name=$1
    shift
    for c in "$@"; do
        [ "$code" = "$c" ] && { pass; return 0; }
    done
    fail "$name: exit $code, expected $*"
    return 1
}
# want_out NAME TEXT: stdout is exactly the text (printf escapes).
want_out() {
    printf "$2" >"$work/want"
    if cmp -s "$work/want" "$work/out"; then pass; else fail "$1: other output than '$2'"; fi
}
# want_in NAME out|err PATTERN: a line of stdout or stderr matches the basic regular expression.
want_in() {
    if grep -q -- "$3" "$work/$2"; then pass; else fail "$1: std$2 has no '$3'"; fi
}
want_not_in() {
    if grep -q -- "$3" "$work/$2"; then fail "$1: std$2 has '$3'"; else pass; fi
}
want_lines_at_most() { # NAME out|err N
    lines=$(wc -l <"$work/$2")
    if [ "$lines" -le "$3" ]; then pass; else fail "$1: $lines lines on std$2, at most $3 expected"; fi
}
no_escapes() { # NAME: no terminal control codes on either stream
    if LC_ALL=C grep -q "$(printf '\033')" "$work/out" "$work/err"; then fail "$1: escape codes"; else pass; fi
}
finish() {
    echo "$n_passed passed, $n_failed failed"
    [ "$n_failed" -eq 0 ]
}
