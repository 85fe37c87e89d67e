#!/bin/sh
# tools/npu_packages.sh DIR: the runtimes that the NPU back ends are tested with, by name and version from the Python
# package registry, in a virtual environment DIR. Then TERN_NPU_PACKAGES=DIR lets tern and its tests find them.
set -eu
dir=${1:?usage: tools/npu_packages.sh DIR}
packages='onnxruntime==1.32.0 openvino==2026.4.1 coreai-core==1.0.0b3 numpy>=2.3'
stamp="$dir/npu-packages.txt"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$packages" ]; then
    echo "npu packages: already in $dir"
    exit 0
fi
python3 -m venv "$dir"
# shellcheck disable=SC2086
"$dir/bin/pip" install --quiet --disable-pip-version-check $packages
printf '%s' "$packages" >"$stamp"
echo "npu packages: TERN_NPU_PACKAGES=$dir"
