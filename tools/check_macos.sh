#!/bin/sh
# tools/check_macos.sh: compiles and links everything but the tests for macOS on both processors, with warnings as
# errors. Nothing runs: what it shows is that base/ and all above it are clean of Linux. The compiler is zig's, from the
# Python package ziglang, fetched into build/zig at need; exit 77 where it is not to be had.
set -u
cd "$(dirname "$0")/.." || exit 1
ZIGLANG=0.17.1

if [ ! -f build/zig/complete ]; then
    rm -rf build/zig
    python3 -m venv build/zig >/dev/null 2>&1 || { echo 'no Python with venv to fetch zig with'; exit 77; }
    build/zig/bin/python3 -m pip install -q --no-cache-dir "ziglang==$ZIGLANG" >/dev/null 2>&1 ||
        { echo "the Python package ziglang $ZIGLANG could not be fetched"; exit 77; }
    touch build/zig/complete
fi

for arch in aarch64 x86_64; do
    folder=build/macos-$arch
    if [ ! -f "$folder/build.ninja" ]; then
        mkdir -p "$folder"
        cat >"build/zig/$arch.ini" <<EOF
[binaries]
c = ['$PWD/tools/zig_macos.sh', '$arch', 'cc']
ar = ['$PWD/tools/zig_macos.sh', '$arch', 'ar']
[host_machine]
system = 'darwin'
cpu_family = '$arch'
cpu = '$arch'
endian = 'little'
EOF
        meson setup "$folder" --cross-file "build/zig/$arch.ini" --werror -Dhwloc=disabled -Deditline=disabled -Dhttp=disabled -Dredis=disabled -Dtests=disabled \
            -Ddefault_library=static || exit 1
    fi
    ninja -C "$folder" || exit 1
    # A 64-bit Mach-O file begins with 0xfeedfacf, low byte first.
    [ "$(od -An -tx1 -N4 "$folder/tern" | tr -d ' ')" = cffaedfe ] || { echo "$folder/tern is no Mach-O file"; exit 1; }
done
echo 'compiled and linked for macOS: aarch64, x86_64'
