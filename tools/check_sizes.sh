#!/bin/sh
# tools/check_sizes.sh ROOT: files of src/ have a median of at most 250 lines; a C file over 800 lines says why in its
# head comment ("Long file: …"), over 1,500 only tables and generated files ("Table: …" or "Generated: …" in the head).
# Functions have at most 70 lines; kernels (src/unit/*/) and functions whose comment line before says "// flat:" or
# "// kernel:" and why are exempt.
set -u
tools=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
cd "$1" || exit 1
list=${TMPDIR:-/tmp}/tern_sizes.$$
trap 'rm -f "$list"' EXIT
"$tools/list_files.sh" . | grep -E '^(src|include|test|fuzz|bench)/.*\.(c|h|inc|cu|cuh)$' | grep -v '^test/data/' >"$list"
status=0
while IFS= read -r f; do
    lines=$(wc -l <"$f")
    head=$(sed -n '1,25p' "$f" | grep -E '^(//|/?\*| \*)')
    if [ "$lines" -gt 1500 ] && ! printf '%s' "$head" | grep -qE '(Table|Generated): '; then
        echo "$f: $lines lines; 1,500 is the end, except for tables and generated files (\"Table: \" in the head comment)"
        status=1
    elif [ "$lines" -gt 800 ] && ! printf '%s' "$head" | grep -qE '(Long file|Table|Generated): '; then
        echo "$f: $lines lines; over 800 the head comment must say why (\"Long file: \")"
        status=1
    fi
    awk -v file="$f" -f "$tools/strip_c.awk" -f "$tools/check_functions.awk" "$f" || status=1
done <"$list"
median=$(grep -E '^src/.*\.(c|h)$' "$list" | while IFS= read -r f; do wc -l <"$f"; done | sort -n |
    awk '{ a[NR] = $1 } END { if (NR) print a[int((NR + 1) / 2)]; else print 0 }')
if [ "$median" -gt 250 ]; then
    echo "src/: the median file has $median lines; 250 at most"
    status=1
fi
exit $status
