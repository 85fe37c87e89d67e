#!/bin/sh
# tools/check_install.sh BUILD_FOLDER: what a user of an installed tern gets. Installs into a folder of the build;
# builds C programs against the installed header through pkg-config, shared and static, and runs them; the shared library
# shows the functions of tern.h, with versions, and nothing else; the examples answer what the installed program answers
# (the one for ctypes where there is a python3); every command has its page; the unit for systemd is sound and shut
# tight (where there is a systemd-analyze). Exit 77 when the build has no library.
set -u
build=$(cd "$1" && pwd) || exit 1
source=$(cd "$(dirname "$0")/.." && pwd)
[ -f "$build/meson-private/tern.pc" ] || { echo 'the build has no libtern'; exit 77; }
work=$build/install-check
rm -rf "$work"
mkdir -p "$work" || exit 1
cc=${CC:-cc}
status=0
bad() {
    echo "$1"
    status=1
}
export XDG_CACHE_HOME="$work/cache" TERN_MODEL=''

DESTDIR=$work/root meson install -C "$build" --no-rebuild --quiet >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
pc=$(find "$work/root" -name tern.pc)
export PKG_CONFIG_PATH="${pc%/tern.pc}" PKG_CONFIG_SYSROOT_DIR="$work/root"
lib=${pc%/pkgconfig/tern.pc}
tern=$(find "$work/root" -path '*/bin/tern')
share=${tern%/bin/tern}/share

# Programs that use the library.
cat >"$work/user.c" <<'EOF'
#include <tern.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    struct tern_engine_options o;
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    tern_engine_options_default(&o);
    o.model_path = "/nonexistent/model.gguf";
    enum tern_status status = tern_engine_open(&e, &o, &err);
    printf("%s: %s: %s\n", tern_version(), tern_status_text(status), err.message);
    return status == TERN_NOT_FOUND && e == NULL && strstr(err.message, "model.gguf") ? 0 : 1;
}
EOF
build_shared() { # SOURCE PROGRAM [FLAG]; pkg-config's words are flags: split on purpose
    # shellcheck disable=SC2046
    $cc -std=c17 -Wall -Wextra -Werror "$1" -o "$2" $(pkg-config --cflags --libs tern) ${3:-} ||
        bad "$1 does not build against the installed shared library"
}
build_shared "$work/user.c" "$work/shared" && { LD_LIBRARY_PATH=$lib "$work/shared" ||
    bad 'a program built against the shared library fails'; }
# libtern.a with the shared libraries that it needs itself (a static hwloc would want more packages).
needs=$(pkg-config --print-requires-private tern | sed 's/ .*//')
# shellcheck disable=SC2046,SC2086
if ! $cc -std=c17 "$work/user.c" $(pkg-config --cflags tern) "$lib/libtern.a" -o "$work/static" \
    ${needs:+$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --libs $needs)} -lm -lpthread; then
    bad 'a program does not build against the installed static library'
elif ! "$work/static"; then
    bad 'a program built against the static library fails'
fi

# What the shared library shows.
tr '\n' ' ' <"$source/include/tern.h" | grep -o 'TERN_API [a-z][^;(#]*(' | sed 's/.*[ *]\(tern_[a-z0-9_]*\)($/\1/' | sort >"$work/declared"
nm -D --defined-only "$lib/libtern.so" | awk '$2 != "A" { print $3 }' >"$work/shown"
sed 's/@.*//' "$work/shown" | sort | cmp -s - "$work/declared" ||
    bad "libtern.so shows other names than tern.h declares: $(sed 's/@.*//' "$work/shown" | sort | diff - "$work/declared" | tr '\n' ' ')"
[ "$(wc -l <"$work/declared")" -ge 40 ] || bad 'the functions of tern.h were not found'
if grep -v '@@TERN_[0-9]*$' "$work/shown"; then bad 'a function has no version'; fi

# The examples.
model=$source/models/pico.gguf
"$tern" run -m "$model" -n 64 'What is a solenogaster?' 2>"$work/err" >"$work/want" || { bad 'tern run fails'; cat "$work/err"; }
build_shared "$share/doc/tern/examples/hello.c" "$work/hello"
{ LD_LIBRARY_PATH=$lib "$work/hello" "$model" 2>"$work/err" && echo; } >"$work/said" || { bad 'hello.c fails'; cat "$work/err"; }
[ "$(wc -c <"$work/want")" -gt 40 ] && cmp "$work/want" "$work/said" || bad 'hello.c answers otherwise than tern run'
build_shared "$share/doc/tern/examples/chat.c" "$work/chat"
printf 'Multiply 27 by 7.\nAnd 3 by 5?\n' | LD_LIBRARY_PATH=$lib "$work/chat" "$model" >"$work/said" 2>"$work/err" ||
    { bad 'chat.c fails'; cat "$work/err"; }
grep -q '189' "$work/said" || bad 'chat.c does not answer'
grep -q '[1-9][0-9]* of them known' "$work/err" || bad 'the second turn of chat.c reads the first again'
build_shared "$share/doc/tern/examples/jobs.c" "$work/jobs" -pthread
LD_LIBRARY_PATH=$lib "$work/jobs" "$model" 60 A B C D E F >"$work/said" 2>"$work/err" || { bad 'jobs.c fails'; cat "$work/err"; }
[ "$(grep -c '^[0-5], [a-z]*: ' "$work/said")" = 6 ] || bad 'jobs.c: not six answers'
LD_LIBRARY_PATH=$lib "$work/jobs" "$model" 0 A B C D E F >"$work/said" || bad 'jobs.c fails when all is cancelled'
grep -q '^5, cancelled: ' "$work/said" || bad 'jobs.c: the sixth of four streams was not cancelled'
if command -v python3 >/dev/null 2>&1; then
    { TERN_LIBRARY=$lib/libtern.so.0 python3 "$share/doc/tern/examples/hello.py" "$model" 2>"$work/err" && echo; } \
        >"$work/said" || { bad 'hello.py fails'; cat "$work/err"; }
    cmp "$work/want" "$work/said" || bad 'hello.py answers otherwise than tern run'
fi

# Pages and completions.
for command in $("$tern" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    [ -s "$share/man/man1/tern-$command.1" ] || bad "no page tern-$command.1: share/meson.build names the commands"
done
for file in man/man1/tern.1 man/man5/tern-serve.conf.5 doc/tern/LICENSE bash-completion/completions/tern \
    zsh/site-functions/_tern fish/vendor_completions.d/tern.fish; do
    [ -s "$share/$file" ] || bad "share/$file is not installed"
done

# The unit, with the program's place in this folder.
unit=$(find "$work/root" -name tern.service)
if [ -z "$unit" ]; then
    [ "$(uname)" != Linux ] || bad 'tern.service is not installed'
elif command -v systemd-analyze >/dev/null 2>&1; then
    sed "s|^ExecStart=[^ ]*/bin/tern|ExecStart=$tern|" "$unit" >"$work/tern.service"
    out=$(systemd-analyze verify --man=no "$work/tern.service" 2>&1)
    [ -z "$out" ] || bad "tern.service: $out"
    out=$(systemd-analyze security --offline=yes --threshold=15 "$work/tern.service" 2>&1) ||
        bad "tern.service is open wider than 1.5: $(echo "$out" | tail -n 1)"
fi
exit $status
