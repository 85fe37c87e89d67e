#!/bin/sh
# tools/check_format.sh ROOT: C files are as clang-format 14 with the tree's .clang-format leaves them. Exit 77 (skipped)
# without that version: others format differently.
set -u
tools=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 1
format=
for c in clang-format-14 clang-format; do
    if command -v "$c" >/dev/null 2>&1 && "$c" --version | grep -q 'version 14\.'; then
        format=$c
        break
    fi
done
[ -n "$format" ] || { echo "clang-format 14 is not here"; exit 77; }
list=$("$tools/list_files.sh" . | grep -E '^(src|include|test|fuzz|bench)/.*\.(c|h)$' | grep -v '^test/data/')
[ -n "$list" ] || exit 0
# File names of the project hold no blanks (check_names.sh).
# shellcheck disable=SC2086
out=$("$format" --dry-run --Werror --style=file $list 2>&1)
code=$?
[ $code = 0 ] || printf '%s\n' "$out" | grep -E 'error:' | sed 's/error: .*/not in format (make format)/' | sort -u -t: -k1,1
exit $code
