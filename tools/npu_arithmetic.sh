#!/bin/sh
# tools/npu_arithmetic.sh FILE…: a C header with a checksum of the sources that decide what NPU programs compute.
set -eu
sum=$(cat "$@" | cksum | cut -d ' ' -f 1)
printf '// Made by the build: tools/npu_arithmetic.sh.\n#pragma once\n#define NPU_ARITHMETIC "%08x"\n' "$sum"
