#!/bin/sh
# tools/check_install.sh BUILD_FOLDER: what a user of the library gets. Installs into a scratch folder, builds a C
# program against the installed header through pkg-config, shared and static, and runs it; the shared library exports
# tern_ names only. Exit 77 when the build has no library.
set -u
build=$(cd "$1" && pwd) || exit 1
[ -f "$build/meson-private/tern.pc" ] || { echo 'the build has no libtern'; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}
status=0

DESTDIR=$work/root meson install -C "$build" --no-rebuild --quiet >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
pc=$(find "$work/root" -name tern.pc)
export PKG_CONFIG_PATH="${pc%/tern.pc}" PKG_CONFIG_SYSROOT_DIR="$work/root"
lib=${pc%/pkgconfig/tern.pc}

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
# pkg-config's words are flags: split on purpose.
# shellcheck disable=SC2046
if ! $cc -std=c17 -Wall -Wextra -Werror "$work/user.c" -o "$work/shared" $(pkg-config --cflags --libs tern); then
    echo 'a program does not build against the installed shared library'
    status=1
elif ! LD_LIBRARY_PATH=$lib "$work/shared"; then
    echo 'a program built against the shared library fails'
    status=1
fi
# libtern.a with the shared libraries that it needs itself (a static hwloc would want more packages).
needs=$(pkg-config --print-requires-private tern | sed 's/ .*//')
# shellcheck disable=SC2046,SC2086
if ! $cc -std=c17 "$work/user.c" $(pkg-config --cflags tern) "$lib/libtern.a" -o "$work/static" \
    ${needs:+$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --libs $needs)} -lm -lpthread; then
    echo 'a program does not build against the installed static library'
    status=1
elif ! "$work/static"; then
    echo 'a program built against the static library fails'
    status=1
fi
other=$(nm -D --defined-only "$lib/libtern.so" | awk '$3 !~ /^tern_/ { print $3 }')
[ -z "$other" ] || { echo "libtern.so exports names that are not tern_: $other"; status=1; }
exit $status
