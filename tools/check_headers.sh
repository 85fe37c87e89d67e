#!/bin/sh
# tools/check_headers.sh ROOT: every header compiles alone, twice included, with the warnings of the build; the public
# header also as C++ where a C++ compiler is at hand, and src/tern.map lists its functions.
set -u
tools=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
cc=${CC:-cc}
cd "$1" || exit 1
warnings='-Wall -Wextra -Wshadow -Wstrict-prototypes -Wundef -Wpointer-arith -Werror'
"$tools/list_files.sh" . | grep -E '^(src|include)/.*\.h$' | {
    status=0
    while IFS= read -r f; do
        case $f in
        *_avx2.h) isa='-mavx2 -mfma -mf16c' ;;
        *_avx512*.h) isa='-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16' ;;
        *_amx.h) isa='-mavx512f -mamx-tile -mamx-int8 -mamx-bf16' ;;
        *_neon*.h) case $(uname -m) in aarch64 | arm64) isa='-march=armv8.2-a+dotprod' ;; *) continue ;; esac ;;
        *) isa='' ;;
        esac
        case $(uname -m) in x86_64) ;; *) case $isa in -mavx*) continue ;; esac ;; esac
        # Words of flags: split on purpose.
        # shellcheck disable=SC2086
        if ! printf '#include "%s"\n#include "%s"\nextern int x;\n' "$f" "$f" |
            $cc -std=c17 $warnings $isa -I. -Iinclude -Isrc -fsyntax-only -x c - 2>&1; then
            echo "$f: does not compile alone"
            status=1
        fi
        grep -q '^#pragma once' "$f" || {
            echo "$f: no #pragma once"
            status=1
        }
    done
    cxx=$(command -v c++ || command -v g++ || command -v clang++)
    if [ -n "$cxx" ] && [ -f include/tern.h ]; then
        printf '#include "tern.h"\nint main() { return tern_version() == 0; }\n' |
            "$cxx" -std=c++11 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ - || {
            echo "include/tern.h: does not compile as C++"
            status=1
        }
    fi
    if [ -f src/tern.map ]; then
        declared=$(tr '\n' ' ' <include/tern.h | grep -o 'TERN_API [a-z][^;(#]*(' | sed 's/.*[ *]\(tern_[a-z0-9_]*\)($/\1/' | sort)
        mapped=$(sed -n 's/^ *\(tern_[a-z0-9_]*\);$/\1/p' src/tern.map | sort)
        [ "$declared" = "$mapped" ] || {
            echo "src/tern.map must list the functions of include/tern.h, these once, no others:"
            printf '%s\n' "$declared" "$mapped" | sort | uniq -u
            status=1
        }
    fi
    exit $status
}
