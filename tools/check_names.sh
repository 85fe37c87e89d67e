#!/bin/sh
# tools/check_names.sh ROOT: file names are lower_snake_case and unique in the whole tree (build files, documents and
# test data apart).
set -u
tools=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
cd "$1" || exit 1
"$tools/list_files.sh" . | grep -E '\.(c|h|inc|S|cu|cuh|sh|awk|py|in)$' | grep -vE '^(test/data|fuzz/corpus|bench/results)/' |
    awk '
    {
        n = split($0, part, "/")
        name = part[n]
        if (name !~ /^[a-z][a-z0-9_]*(\.[a-z0-9]+)+$/ && name !~ /\.S$/) { print $0 ": not lower_snake_case"; bad = 1 }
        if (name in seen) { print $0 ": same name as " seen[name]; bad = 1 }
        seen[name] = $0
    }
    END { exit bad }'
