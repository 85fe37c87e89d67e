#!/bin/sh
# tools/cross_aarch64.sh BUILD_FOLDER: sets up an aarch64 build whose tests run under qemu-user. The two test libraries
# are taken from Debian's arm64 packages into build/sysroot-aarch64 (tools/debian_arm64.sh). Exit 77 where compiler,
# emulator or packages are not to be had.
set -u
folder=$1
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null 2>&1 || { echo "$tool is not installed"; exit 77; }
done

sysroot=$root/build/sysroot-aarch64
tools/debian_arm64.sh "$sysroot" libcmocka0 libcmocka-dev libjansson4 libjansson-dev || exit $?

[ -f "$folder/build.ninja" ] && exit 0
libraries=$sysroot/usr/lib/aarch64-linux-gnu
emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$libraries"
cat >"$sysroot/tests.ini" <<EOF
[binaries]
exe_wrapper = ['$(printf '%s' "$emulator" | sed "s/ /', '/g")']
[properties]
needs_exe_wrapper = true
sys_root = '$sysroot'
pkg_config_libdir = '$libraries/pkgconfig'
tern_wrapper = '$emulator'
EOF
set --
if [ "${CI:-}" = true ]; then set -- --werror; fi
# A static libtern only: the tests need no other, and it halves the linking.
meson setup "$folder" --cross-file tools/cross-aarch64.ini --cross-file "$sysroot/tests.ini" \
    -Dhwloc=disabled -Dhttp=disabled -Dredis=disabled -Dtests=enabled -Ddefault_library=static "$@"
