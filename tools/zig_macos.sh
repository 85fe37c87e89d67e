#!/bin/sh
# tools/zig_macos.sh ARCH cc|ar ARGUMENT…: zig's C compiler for macOS (it carries the headers and stubs of libSystem),
# from build/zig, for Meson. tools/check_macos.sh sets it up.
#
# Meson 1.0 does not know zig's linker: to its two questions this answers as Apple's does. zig spells two options in its
# own way: -march=armv8.2-a+dotprod is the CPU generic+v8_2a+dotprod, and -force_load has its file in the same argument.
arch=$1
tool=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
export ZIG_GLOBAL_CACHE_DIR="$root/build/zig/cache" ZIG_LOCAL_CACHE_DIR="$root/build/zig/cache"
[ "$tool" = cc ] || exec "$root/build/zig/bin/python3" -m ziglang "$tool" "$@"

n=$#
while [ "$n" -gt 0 ]; do
    arg=$1
    shift
    n=$((n - 1))
    case $arg in
    -Wl,--version) echo 'ld: unknown option: --version' >&2; exit 1 ;;
    -Wl,-v) echo '@(#)PROGRAM:ld  PROJECT:ld64-950.9' >&2; exit 0 ;;
    -march=armv8.*) arg=$(printf '%s' "$arg" | sed 's/^-march=armv8\.\([0-9]\)-a/-mcpu=generic+v8_\1a/') ;;
    esac
    if [ "$arg" = -Wl,-force_load ]; then
        arg=$arg,$1
        shift
        n=$((n - 1))
    fi
    set -- "$@" "$arg"
done
exec "$root/build/zig/bin/python3" -m ziglang cc -target "$arch-macos" "$@"
