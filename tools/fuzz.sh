#!/bin/sh
# tools/fuzz.sh SECONDS [NAME…]: runs each fuzz target (or those named) with libFuzzer under ASan and UBSan for SECONDS.
# New inputs go to build/fuzz/corpus/NAME; what crashes goes to build/fuzz/found/NAME-…, with the command to repeat it.
# A fixed fault's input belongs into fuzz/corpus/NAME.
set -u
seconds=$1
shift
cd "$(dirname "$0")/.." || exit 1
if [ ! -f build/fuzz/build.ninja ]; then
    CC=clang meson setup build/fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Dtests=disabled \
        -Ddefault_library=static -Dc_args='-fno-sanitize-recover=all' >/dev/null || exit 1
fi
ninja -C build/fuzz || exit 1
if [ $# = 0 ]; then
    for f in build/fuzz/fuzz_*; do
        [ -f "$f" ] && [ -x "$f" ] && set -- "$@" "${f##*/fuzz_}"
    done
fi
passed=0
failed=0
for name in "$@"; do
    mkdir -p "build/fuzz/corpus/$name" build/fuzz/found
    dict=
    [ -f "fuzz/$name.dict" ] && dict="-dict=fuzz/$name.dict"
    echo "fuzz $name: $seconds s"
    # The dictionary flag is empty or one word.
    # shellcheck disable=SC2086
    if "build/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 $dict -print_final_stats=1 \
        -artifact_prefix="build/fuzz/found/$name-" "build/fuzz/corpus/$name" "fuzz/corpus/$name" \
        >"build/fuzz/$name.log" 2>&1; then
        grep -E 'number_of_executed_units|new_units_added|DONE' "build/fuzz/$name.log" | sed 's/^/    /'
        passed=$((passed + 1))
    else
        tail -n 40 "build/fuzz/$name.log"
        for found in build/fuzz/found/"$name"-*; do
            [ -f "$found" ] && echo "repeat: build/fuzz/fuzz_$name $found"
        done
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
