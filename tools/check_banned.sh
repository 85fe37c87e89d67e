#!/bin/sh
# tools/check_banned.sh ROOT: outside base/ and app/, src/ calls no function that base/ wraps (memory, output, abort,
# number parsing, unbounded string copies, environment, clocks, threads, files), and nothing at all calls the hopeless.
set -u
tools=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
cd "$1" || exit 1
"$tools/list_files.sh" . | grep -E '^(src|include|test|fuzz)/.*\.(c|h|inc)$' | grep -v '^test/data/' | {
    status=0
    while IFS= read -r f; do
        awk -v file="$f" -f "$tools/strip_c.awk" -f "$tools/check_banned.awk" "$f" || status=1
    done
    exit $status
}
