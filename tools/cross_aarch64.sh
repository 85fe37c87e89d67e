#!/bin/sh
# tools/cross_aarch64.sh BUILD_FOLDER: sets up an aarch64 build whose tests run under qemu-user. The two test libraries
# are taken from Debian's arm64 packages into build/sysroot-aarch64, with apt's state kept apart, so that the machine
# gets no second architecture. Exit 77 where compiler, emulator or packages are not to be had.
set -u
folder=$1
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null 2>&1 || { echo "$tool is not installed"; exit 77; }
done

sysroot=$root/build/sysroot-aarch64
if [ ! -f "$sysroot/complete" ]; then
    command -v apt-get >/dev/null 2>&1 || { echo 'no apt-get to fetch cmocka and jansson for arm64'; exit 77; }
    rm -rf "$sysroot"
    mkdir -p "$sysroot/apt/state/lists/partial" "$sysroot/apt/cache/archives/partial" "$sysroot/debs"
    apt() {
        apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$sysroot/apt/state" \
            -o Dir::Cache="$sysroot/apt/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@" </dev/null
    }
    apt update || { echo 'apt-get update for arm64 failed'; exit 77; }
    (cd "$sysroot/debs" && apt download libcmocka0 libcmocka-dev libjansson4 libjansson-dev) ||
        { echo 'cmocka and jansson for arm64 could not be fetched'; exit 77; }
    for deb in "$sysroot"/debs/*.deb; do
        dpkg -x "$deb" "$sysroot" || exit 1
    done
    rm -rf "$sysroot/apt"
    touch "$sysroot/complete"
fi

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
