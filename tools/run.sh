#!/bin/sh
# tools/run.sh PROMPT: what `make run` does with the built program. On a terminal a chat; else one prompt, answered
# greedily, so that scripts and first-time readers see the same text.
set -u
cd "$(dirname "$0")/.." || exit 1
if [ -t 0 ] && [ -t 1 ]; then exec build/tern chat; fi
exec build/tern run "$1"
