#!/bin/sh
# tools/dist.sh [x86_64] [aarch64]: what is given to people, in build/dist (both processors when none is named; the other
# processor's is cross-built):
#
#   tern-VERSION-linux-ARCH.tar.gz                 one static program, pages, completions: runs on any Linux
#   tern_VERSION_DEBARCH.deb                       program, library, header, pages, completions, unit (Debian, Ubuntu)
#   tern-VERSION-py3-none-manylinux_N_ARCH.whl     the program, for pip
#   SHA256SUMS
#
# Reproducible: the same source, compilers and packages give the same bytes, wherever and whenever it is built (times are
# those of the commit, or of $SOURCE_DATE_EPOCH). libmicrohttpd, hiredis and libedit (with the tinfo, bsd and md that it
# asks for) are linked in; of the first, what it calls for TLS is replaced by functions that end the program, since tern never asks it for TLS and gnutls cannot be linked
# statically. No build id: it is made of the debug information too, which names folders. The program of .deb and wheel
# needs the C library alone; it loads libcurl (tern pull) and runtimes of NPUs when they are there. The static one loads
# nothing and says so. hwloc is in none of them.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
export LC_ALL=C TZ=UTC
umask 022
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)
export SOURCE_DATE_EPOCH DPKG_DEB_THREADS_MAX=1
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
out=$root/build/dist
host=$(uname -m)
[ $# -gt 0 ] || set -- x86_64 aarch64
mkdir -p "$out"
fail() {
    echo "dist.sh: $1" >&2
    exit 1
}

# The archives to link with, and headers: of this machine, or Debian's for the other processor.
libraries() { # ARCH
    libs=$out/libs-$1
    mkdir -p "$libs"
    if [ "$1" = "$host" ]; then
        cross=''
        nm=nm cc=${CC:-cc} strip=strip
        places=$(dirname "$($cc -print-file-name=libmicrohttpd.a)")
        include=''
        [ -f "$places/libmicrohttpd.a" ] || fail 'libmicrohttpd.a is missing (Debian: libmicrohttpd-dev)'
        [ -f "$places/libhiredis.a" ] || fail 'libhiredis.a is missing (Debian: libhiredis-dev)'
        [ -f "$places/libedit.a" ] || fail 'libedit.a is missing (Debian: libedit-dev)'
    else
        [ "$1" = aarch64 ] || fail "no cross build for $1 from $host"
        cc=aarch64-linux-gnu-gcc nm=aarch64-linux-gnu-nm strip=aarch64-linux-gnu-strip
        command -v $cc >/dev/null || fail "$cc is missing (Debian: gcc-aarch64-linux-gnu)"
        sysroot=$out/sysroot-aarch64
        tools/debian_arm64.sh "$sysroot" libmicrohttpd-dev libhiredis-dev libedit-dev libncurses-dev libbsd-dev libmd-dev ||
            fail 'no arm64 packages of libmicrohttpd, hiredis and libedit'
        places=$sysroot/usr/lib/aarch64-linux-gnu
        include=-isystem$sysroot/usr/include
        cross="--cross-file tools/cross-aarch64.ini"
    fi
    for name in microhttpd hiredis edit tinfo bsd md; do
        cp "$places/lib$name.a" "$libs/" || fail "lib$name.a is missing beside libedit.a"
    done
    {
        echo '#include <stdlib.h>'
        echo 'int gnutls_global_init(void);'
        echo 'int gnutls_global_init(void) { return 0; }'
        echo 'void gnutls_global_deinit(void);'
        echo 'void gnutls_global_deinit(void) {}'
        echo 'void tls_none(void);'
        echo 'void tls_none(void) { abort(); }'
        $nm "$libs/libmicrohttpd.a" 2>/dev/null | sed -n 's/^ *U \(gnutls_.*\)/\1/p' | sort -u |
            grep -v '^gnutls_global_\(de\)\?init$' | while read -r name; do
                echo "void $name(void) __attribute__((alias(\"tls_none\")));"
            done
    } >"$libs/tls_none.c"
    (cd "$libs" && $cc -w -O2 -fPIC -c tls_none.c && rm -f libtls_none.a && ar rcsD libtls_none.a tls_none.o)
}

build() { # ARCH
    folder=$out/build-$1
    # Words of $cross on purpose.
    # shellcheck disable=SC2086
    [ -f "$folder/build.ninja" ] || meson setup "$folder" $cross --prefix /usr --libdir "lib/$1-linux-gnu" -Ddist="$libs" -Dhwloc=disabled \
        -Dtests=disabled -Dc_args="$include" -Dc_link_args=-Wl,--build-id=none >"$out/setup-$1.log" 2>&1 ||
        { cat "$out/setup-$1.log"; fail "meson setup for $1"; }
    ninja -C "$folder" >"$out/build-$1.log" 2>&1 || { tail -n 30 "$out/build-$1.log"; fail "build for $1"; }
    tree=$out/tree-$1
    rm -rf "$tree"
    DESTDIR=$tree meson install -C "$folder" --no-rebuild --strip --quiet >"$out/install-$1.log" 2>&1
    find "$tree" -name libtern.a -exec $strip -g --enable-deterministic-archives {} +
    cp "$folder/tern-static" "$out/tern-static-$1"
    $strip "$out/tern-static-$1"
    if [ ! -d "$tree/usr/share/man" ]; then # pages are the same for every processor
        pages=$out/tree-$host/usr/share
        [ -d "$pages/man" ] || pages=${TERN_PAGES:-}
        [ -d "$pages/man" ] ||
            fail "pages for $1 come from the build for $host: name it first, or set TERN_PAGES to the share folder of an installed tern"
        cp -R "$pages/." "$tree/usr/share/"
    fi
    mkdir -p "$tree/usr/share/doc/tern"
    licences >"$tree/usr/share/doc/tern/copyright"
}

licences() {
    cat LICENSE
    for package in libmicrohttpd-dev libhiredis-dev libedit-dev libncurses-dev libbsd-dev libmd-dev; do
        for place in "${sysroot:-/nonexistent}" ''; do
            [ -f "$place/usr/share/doc/$package/copyright" ] || continue
            printf '\n----------------\nOf %s, which is linked in:\n\n' "$package"
            cat "$place/usr/share/doc/$package/copyright"
            break
        done
    done
}

times_set() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

tarball() { # ARCH
    name=tern-$version-linux-$1
    top=$out/pack/$name
    rm -rf "$out/pack"
    mkdir -p "$top/bin"
    cp "$out/tern-static-$1" "$top/bin/tern"
    chmod 755 "$top/bin/tern"
    cp -R "$tree/usr/share" "$top/share"
    cp README.md "$top/"
    rm -rf "$top/share/doc/tern/examples"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -C "$out/pack" \
        -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
}

libc_of() { # the newest version of the C library that the program asks for
    objdump -T "$1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1
}

debian() { # ARCH
    case $1 in x86_64) deb=amd64 ;; aarch64) deb=arm64 ;; *) deb=$1 ;; esac
    pack=$out/pack-deb
    rm -rf "$pack"
    cp -R "$tree" "$pack"
    # Debian has pages and documents compressed, and units in /lib.
    find "$pack/usr/share/man" -type f -exec gzip -9n {} +
    mkdir -p "$pack/DEBIAN" "$pack/lib/systemd"
    mv "$pack/usr/lib/systemd/system" "$pack/lib/systemd/system"
    rmdir "$pack/usr/lib/systemd"
    cat >"$pack/DEBIAN/control" <<EOF
Package: tern
Version: $version
Architecture: $deb
Maintainer: the maintainers of tern <maintainers@tern.invalid>
Section: science
Priority: optional
Depends: libc6 (>= $(libc_of "$pack/usr/bin/tern"))
Recommends: libcurl4
Installed-Size: $(find "$pack" -type f ! -path '*/DEBIAN/*' -printf '%s\n' | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
Description: run language models on this machine
 A chat, a server with the APIs of OpenAI, Anthropic and Ollama, batches, and a
 C library. A small model is in the program.
EOF
    echo 'activate-noawait ldconfig' >"$pack/DEBIAN/triggers"
    (cd "$pack" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | sort | xargs md5sum) >"$pack/DEBIAN/md5sums"
    find "$pack" -type d -exec chmod 755 {} +
    times_set "$pack"
    dpkg-deb --root-owner-group -Zxz --build "$pack" "$out/tern_${version}_$deb.deb" >/dev/null
}

wheel() { # ARCH
    libc=$(libc_of "$tree/usr/bin/tern")
    python3 tools/make_wheel.py "$out" "$version" "manylinux_$(echo "$libc" | tr . _)_$1" "$tree/usr/bin/tern" \
        "$tree/usr/share/doc/tern/copyright" README.md
}

rm -f "$out"/tern-*.tar.gz "$out"/tern_*.deb "$out"/tern-*.whl "$out/SHA256SUMS"
for arch; do
    unset sysroot
    libraries "$arch"
    build "$arch"
    tarball "$arch"
    if command -v dpkg-deb >/dev/null; then debian "$arch"; else echo 'no .deb: dpkg-deb is missing' >&2; fi
    if command -v python3 >/dev/null; then wheel "$arch"; else echo 'no wheel: python3 is missing' >&2; fi
done
rm -rf "$out/pack" "$out/pack-deb"
cd "$out"
sha256sum tern-*.tar.gz tern_*.deb tern-*.whl 2>/dev/null >SHA256SUMS || true
cat SHA256SUMS
