#!/bin/sh
# tools/check_includes.sh ROOT: who includes whom in src/, as the table of doc/architecture.md says; only face headers
# cross a folder's border; system headers beyond plain C, and #if on a system or vendor, only where the OS or a device
# is met; base/base.h comes first.
set -u
tools=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
cd "$1" || exit 1
"$tools/list_files.sh" . | grep -E '^(src|include)/.*\.(c|h|inc|cu|cuh)$' | {
    status=0
    while IFS= read -r f; do
        awk -v file="$f" -f "$tools/check_includes.awk" "$f" || status=1
    done
    exit $status
}
