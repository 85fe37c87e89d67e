#!/bin/sh
# Manual pages and shell completions hold every option that --help shows, and are well formed. A shell that is not
# installed is left out; bash's completion is also run.
. test/cli/cli_lib.sh
unset TERN_SERVE_CONFIG

run --help
want_code 'tern --help' 0
cp "$work/out" "$work/overview"
run help
want_code 'tern help' 0
if cmp -s "$work/out" "$work/overview"; then pass; else fail 'tern help differs from tern --help'; fi
commands=$(sed -n 's/^  \([a-z]*\)  *.*/\1/p' "$work/overview" | grep -v '^TERN')
[ "$(echo "$commands" | wc -l)" -ge 20 ] && pass || fail 'tern --help lists the commands'

for shell in bash zsh fish; do
    run completion $shell
    want_code "completion $shell" 0
    cp "$work/out" "$work/completion.$shell"
    want_lines_at_most "completion $shell" err 0
    if command -v $shell >/dev/null 2>&1; then
        if $shell -n "$work/completion.$shell" 2>"$work/err"; then pass; else fail "completion $shell: syntax"; fi
    fi
done
run help --man
want_code 'help --man' 0
cp "$work/out" "$work/page.tern"
missing=''
for command in $commands; do
    run $command --help
    want_code "$command --help" 0
    grep '^ *-' "$work/out" | sed 's/   *[^-].*//' | tr ', ' '\n\n' | grep '^--' | sort -u >"$work/options"
    run help "$command"
    want_in "help $command" out "^usage: tern $command"
    run help --man "$command"
    want_code "help --man $command" 0
    sed 's/\\-/-/g' "$work/out" >"$work/page"
    grep -qF "tern\\-$command" "$work/page.tern" || missing="$missing tern.1:$command"
    command -v man >/dev/null 2>&1 && [ "$command" = serve ] && {
        man --warnings -E UTF-8 -l -Tutf8 "$work/out" >/dev/null 2>"$work/err"
        want_lines_at_most "page of $command" err 0
    }
    sed -n "/^    $command)/,/ ;;\$/p" "$work/completion.bash" >"$work/in.bash"
    sed -n "/^    $command)/,/ ;;\$/p" "$work/completion.zsh" >"$work/in.zsh"
    grep -e "_from $command'" -e '-l help' "$work/completion.fish" >"$work/in.fish"
    while IFS= read -r option; do
        grep -qe "fB$option\\\\fR" "$work/page" || missing="$missing $command.1:$option"
        grep -qe "$option[ ']" "$work/in.bash" || missing="$missing $command.bash:$option"
        grep -qe "$option['},)]" "$work/in.zsh" || missing="$missing $command.zsh:$option"
        grep -qe "-l ${option#--} " "$work/in.fish" || missing="$missing $command.fish:$option"
    done <"$work/options"
done
if [ -z "$missing" ]; then pass; else fail "not held:$missing"; fi

# The page of settings has all that `tern config check` tells, and the broken settings of a machine do not spoil it.
echo 'no-such-setting = 1' >"$work/broken.conf"
run help --man serve.conf
want_code 'help --man serve.conf' 0
sed 's/\\-/-/g' "$work/out" >"$work/page"
run config check
want_code 'config check' 0
while read -r name rest; do
    grep -q "fB$name\\\\fR = " "$work/page" && pass || fail "serve.conf.5 lacks $name"
done <"$work/out"
TERN_SERVE_CONFIG=$work/broken.conf
export TERN_SERVE_CONFIG
run config check
want_code 'config check of a broken file' 2
want_in 'config check of a broken file' err 'broken.conf:1'
run help --man serve.conf
want_code 'help --man beside a broken file' 0
run completion fish
want_code 'completion beside a broken file' 0
unset TERN_SERVE_CONFIG
run config check --port 9
want_in 'config check --port' out '^port = 9'
run config
want_code 'config' 2
run completion csh
want_code 'completion csh' 2
run help nosuch
want_code 'help nosuch' 2
run help --man nosuch
want_code 'help --man nosuch' 2

if command -v bash >/dev/null 2>&1; then
    cat >"$work/complete.sh" <<'EOF'
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_tern
printf '%s\n' "${COMPREPLY[@]}"
EOF
    complete() { bash "$work/complete.sh" "$work/completion.bash" tern "$@" >"$work/out" 2>"$work/err"; }
    complete ser
    want_out 'tern ser<tab>' 'serve\n'
    complete serve --dra
    want_in 'tern serve --dra<tab>' out '^--drain$'
    complete --temp
    want_in 'tern --temp<tab>' out '^--temp$'
    complete run -m models/pico.g
    want_out 'tern run -m models/pico.g<tab>' 'models/pico.gguf\n'
    complete serve --port ''
    want_out 'tern serve --port <tab>' '\n'
fi
finish
