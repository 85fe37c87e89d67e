#!/bin/sh
# tools/list_files.sh ROOT: the project's files, one a line, relative to ROOT. With git: what is tracked or could be
# (not ignored) and exists; else everything outside build/ and hidden folders.
cd "$1" || exit 1
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ]; then
    git ls-files -co --exclude-standard | while IFS= read -r f; do
        [ -f "$f" ] && printf '%s\n' "$f"
    done
else
    find . -path './.[a-z]*' -prune -o -path ./build -prune -o -type f -print | sed 's,^\./,,'
fi | LC_ALL=C sort
