#!/bin/sh
# tools/check_files.sh ROOT: the models are what models/SHA256SUMS says and all are named there; no other file of the
# project is over 1 MiB; the models stay under 27 MiB together.
set -u
tools=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C
cd "$1" || exit 1
status=0
if [ -d models ]; then
    (cd models && sha256sum -c --quiet --strict SHA256SUMS) 2>&1 || { echo "models/: not what models/SHA256SUMS says"; status=1; }
    for f in models/*; do
        case $f in models/README.md | models/SHA256SUMS) continue ;; esac
        grep -q "  ${f#models/}\$" models/SHA256SUMS || { echo "$f: not in models/SHA256SUMS"; status=1; }
    done
    bytes=$(cat models/* | wc -c)
    [ "$bytes" -le $((27 << 20)) ] || { echo "models/: $bytes bytes; 27 MiB at most"; status=1; }
fi
big=$("$tools/list_files.sh" . | grep -v '^models/' | while IFS= read -r f; do
    size=$(wc -c <"$f")
    [ "$size" -le 1048576 ] || echo "$f: $size bytes; 1 MiB at most outside models/"
done)
[ -z "$big" ] || { echo "$big"; status=1; }
exit $status
