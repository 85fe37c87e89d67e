#!/bin/sh
# tools/debian_arm64.sh FOLDER PACKAGE…: Debian's arm64 packages, unpacked into FOLDER (once), with apt's state kept apart,
# so that the machine gets no second architecture. Exit 77 where they are not to be had.
set -u
sysroot=$1
shift
[ ! -f "$sysroot/complete" ] || exit 0
command -v apt-get >/dev/null 2>&1 || { echo "no apt-get to fetch $* for arm64"; exit 77; }
rm -rf "$sysroot"
mkdir -p "$sysroot/apt/state/lists/partial" "$sysroot/apt/cache/archives/partial" "$sysroot/debs"
apt() {
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$sysroot/apt/state" \
        -o Dir::Cache="$sysroot/apt/cache" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@" </dev/null
}
apt update || { echo 'apt-get update for arm64 failed'; exit 77; }
(cd "$sysroot/debs" && apt download "$@") || { echo "$* for arm64 could not be fetched"; exit 77; }
for deb in "$sysroot"/debs/*.deb; do
    dpkg -x "$deb" "$sysroot" || exit 1
done
rm -rf "$sysroot/apt"
touch "$sysroot/complete"
