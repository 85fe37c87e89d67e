#!/bin/sh
# tools/deps.sh [build|check|ci|cross|fuzz|dist]: what tern needs to be built (default), checked, checked as CI does,
# cross-built for aarch64, fuzzed, or packed for others. Looks for each tool itself; what is missing is installed with apt-get when this
# user may (root, or sudo without a password), else the command to type is printed and the script fails. A package that
# only makes more possible (hwloc, libmicrohttpd, hiredis, clang-format …) is asked for but may stay away.
set -u
tier=${1:-build}
need='' # packages without which the tier cannot run
want='' # packages that it can do without

have() { command -v "$1" >/dev/null 2>&1; }
need_tool() { have "$1" || need="$need $2"; }
want_tool() { have "$1" || want="$want $2"; }
# A library is there when a program that includes its header links.
library() {
    printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <%s>\nint main(void) { return 0; }\n' "$2" |
        "$cc" -x c - -o /dev/null "-l$1" >/dev/null 2>&1
}

cc=
for c in ${CC:-} cc gcc clang; do
    if have "${c%% *}"; then
        cc=$c
        break
    fi
done
if [ -z "$cc" ]; then need="$need gcc libc6-dev"; cc=gcc
elif ! printf '#include <stdio.h>\nint main(void) { return 0; }\n' | $cc -x c - -o /dev/null >/dev/null 2>&1; then
    need="$need libc6-dev"
fi
need_tool meson meson
have ninja || have ninja-build || need="$need ninja-build"
have pkg-config || have pkgconf || need="$need pkg-config"
library hwloc hwloc.h || want="$want libhwloc-dev"
library microhttpd microhttpd.h || want="$want libmicrohttpd-dev"
library hiredis hiredis/hiredis.h || want="$want libhiredis-dev"
library edit histedit.h || want="$want libedit-dev"

case $tier in
build) ;;
dist)
    library microhttpd microhttpd.h || need="$need libmicrohttpd-dev"
    library hiredis hiredis/hiredis.h || need="$need libhiredis-dev"
    library edit histedit.h || need="$need libedit-dev"
    have aarch64-linux-gnu-gcc || need="$need gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    want_tool python3 python3
    want_tool dpkg-deb dpkg
    ;;
check | ci | cross | fuzz)
    library cmocka cmocka.h || need="$need libcmocka-dev"
    library jansson jansson.h || need="$need libjansson-dev"
    # Loaded at run time by what speaks HTTP as a client; the tests of that need it too.
    have ldconfig && ldconfig -p | grep -q 'libcurl.*\.so\.4' || want="$want libcurl4"
    have clang-format-14 || clang-format --version 2>/dev/null | grep -q 'version 14\.' || want="$want clang-format-14"
    ;;
*)
    echo "deps.sh: unknown tier '$tier' (build, check, ci, cross, fuzz, dist)" >&2
    exit 2
    ;;
esac
case $tier in
ci) # Clients of the server (tools/clients.sh).
    python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || want="$want python3-venv"
    have chromium || have google-chrome || want="$want chromium"
    have chromedriver || want="$want chromium-driver"
    want_tool clang clang
    want_tool redis-server redis-server
    python3 -c 'import ensurepip, venv' 2>/dev/null || want="$want python3-venv"
    have clang && echo 'int main(void) { return 0; }' | clang -x c - -fsanitize=address -o /dev/null 2>/dev/null ||
        want="$want libclang-rt-14-dev" ;;
fuzz)
    need_tool clang clang
    have clang && echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n ? 0 : 0; }' |
        clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null || need="$need libclang-rt-14-dev" ;;
esac
case $tier in
ci | cross)
    cross=''
    have aarch64-linux-gnu-gcc || cross="$cross gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    have qemu-aarch64 || cross="$cross qemu-user"
    if [ "$tier" = cross ]; then need="$need$cross"; else want="$want$cross"; fi
    ;;
esac

install() {
    if ! have apt-get; then return 1; fi
    if [ "$(id -u)" = 0 ]; then as=; elif have sudo && sudo -n true 2>/dev/null; then as=sudo; else return 1; fi
    export DEBIAN_FRONTEND=noninteractive
    $as apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null 2>&1 && return 0
    # The package lists may be old or missing.
    $as apt-get update -qq </dev/null >/dev/null 2>&1
    $as apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

if [ -n "$need" ]; then
    echo "installing:$need" >&2
    # Package names, split on purpose.
    # shellcheck disable=SC2086
    if ! install $need; then
        echo "tern needs these packages:$need" >&2
        if have apt-get; then
            echo "type:  sudo apt-get update && sudo apt-get install -y$need" >&2
        else
            echo "these are Debian's names; install their like with this system's package manager" >&2
        fi
        exit 1
    fi
fi
for package in $want; do
    echo "installing: $package" >&2
    install "$package" 2>/dev/null || echo "not installed: $package (what needs it is left out)" >&2
done

version=$(meson --version 2>/dev/null)
case $version in
'' | 0.*)
    echo "tern needs Meson 1.0 or newer; found '${version:-none}'. Debian 12 has it; elsewhere: pip install meson" >&2
    exit 1
    ;;
esac
exit 0
