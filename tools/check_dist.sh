#!/bin/sh
# tools/check_dist.sh [ARCH…]: builds what `make dist` makes twice, from copies of the tree in two folders of different
# names, and compares the bytes; then uses each thing as its receiver would: the static program alone in a folder and an
# empty environment, the .deb unpacked, the wheel installed by pip. ARCH: x86_64, aarch64 (both). Exit 77 where a tool
# is missing.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
[ $# -gt 0 ] || set -- x86_64 aarch64
for tool in git dpkg-deb python3 objdump; do
    command -v $tool >/dev/null 2>&1 || { echo "$tool is not installed"; exit 77; }
done
status=0
bad() {
    echo "$1"
    status=1
}
work=$root/build/dist-check
rm -rf "$work" # times of files that go back would mislead ninja
mkdir -p "$work"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
export SOURCE_DATE_EPOCH GIT_CEILING_DIRECTORIES="$work" # no revision: the copies lie in a repository, but are none
# The files of the tree, as they are now; the folders have no git, so the revision is the same for both.
for copy in one the_other_one; do
    mkdir -p "$work/$copy"
    tools/list_files.sh . | tar -cf - -T - | tar -xf - -C "$work/$copy"
done
# Without the packages of this processor, pages come from the build that there is.
case " $* " in
*" $(uname -m) "*) ;;
*)
    DESTDIR=$work/installed meson install -C "$root/build" --no-rebuild --quiet >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    TERN_PAGES=$(dirname "$(find "$work/installed" -type d -name man | head -n 1)")
    export TERN_PAGES
    ;;
esac
for copy in one the_other_one; do
    (cd "$work/$copy" && tools/dist.sh "$@" >"$work/$copy.log" 2>&1) || { tail -n 30 "$work/$copy.log"; exit 1; }
    sleep 1
done
cat "$work/one/build/dist/SHA256SUMS"
cmp "$work/one/build/dist/SHA256SUMS" "$work/the_other_one/build/dist/SHA256SUMS" || bad 'two builds differ'
[ "$(wc -l <"$work/one/build/dist/SHA256SUMS")" -eq $((3 * $#)) ] || bad 'not three packages for each processor'

cd "$work/one/build/dist" || exit 1
rm -rf "$work/use"
mkdir -p "$work/use"
prompt='What is a solenogaster?'
want=$("$root/build/tern" run -m "$root/models/pico.gguf" -n 24 "$prompt" 2>/dev/null)
[ -n "$want" ] || bad 'build/tern does not answer (ninja -C build first)'
for arch; do
    run=''
    if [ "$arch" != "$(uname -m)" ]; then
        run="qemu-$arch"
        command -v "$run" >/dev/null 2>&1 || { echo "not run: $arch ($run is not installed)"; continue; }
    fi
    tar -xzf tern-*-linux-"$arch".tar.gz -C "$work/use"
    program=$(find "$work/use" -path "*$arch/bin/tern")
    file=$(objdump -p "$program" 2>&1)
    case $file in *NEEDED* | *INTERP*) bad "$program is not static" ;; esac
    said=$(cd "$work/use" && env -i HOME="$work/home" $run "$program" run -n 24 "$prompt" 2>&1) || bad "$arch: the static program fails"
    [ "$said" = "$want" ] || bad "$arch: the static program answers '$said', not '$want'"
    said=$(env -i HOME="$work/home" $run "$program" pull a/b 2>&1) && bad 'a static program loaded a library'
    case $said in *'one static file'*) ;; *) bad "$arch: tern pull says '$said'" ;; esac
    case $arch in x86_64) deb=amd64 ;; aarch64) deb=arm64 ;; *) deb=$arch ;; esac
    dpkg-deb --info tern_*_$deb.deb >"$work/use/info" || bad "tern_*_$deb.deb is no package"
    dpkg-deb -x tern_*_$deb.deb "$work/use/deb-$arch"
    for part in usr/bin/tern usr/include/tern.h usr/share/man/man1/tern-serve.1.gz usr/share/doc/tern/copyright \
        lib/systemd/system/tern.service usr/share/bash-completion/completions/tern; do
        [ -s "$work/use/deb-$arch/$part" ] || bad "the .deb for $deb lacks $part"
    done
    for library in libmicrohttpd libhiredis libedit libncurses libbsd libmd; do
        grep -qi "^Of $library" "$work/use/deb-$arch/usr/share/doc/tern/copyright" || bad "the licence of $library is missing"
    done
    [ -z "$run" ] || continue
    # Of this processor: the program of the .deb, and the wheel.
    said=$("$work/use/deb-$arch/usr/bin/tern" run -n 24 "$prompt" 2>&1)
    [ "$said" = "$want" ] || bad "the program of the .deb answers '$said'"
    needs=$(objdump -p "$work/use/deb-$arch/usr/bin/tern" | awk '/NEEDED/ { print $2 }' | grep -v '^libc\.\|^libm\.\|^ld-' | tr '\n' ' ')
    [ -z "$needs" ] || bad "the program of the .deb needs $needs"
    if python3 -m venv "$work/use/venv" >"$work/use/log" 2>&1; then
        "$work/use/venv/bin/pip" install --no-index --no-deps --disable-pip-version-check ./tern-*_"$arch".whl \
            >"$work/use/log" 2>&1 || { cat "$work/use/log"; bad 'pip does not install the wheel'; }
        case $("$work/use/venv/bin/tern" --version) in tern\ [0-9]*) ;; *) bad 'the program of the wheel does not run' ;; esac
    else
        bad 'no venv: python3-venv is missing'
    fi
done
exit $status
