#!/bin/sh
# tern quantize from outside: what it writes runs, what it refuses it says, and nothing is left behind.
. test/cli/cli_lib.sh
pico=models/pico.gguf
prompt='Multiply 27 by 7.'

run quantize $pico "$work/f16.gguf" --type F16
want_code 'quantize F16' 0
want_in 'quantize F16' out '16.0[0-9] bits a weight'
run show "$work/f16.gguf"
want_in 'show F16' out 'mostly F16'
run quantize "$work/f16.gguf" "$work/q8.gguf" --type q8_0
want_code 'quantize Q8_0' 0
run run -m "$work/q8.gguf" "$prompt" --no-pack-cache
want_in 'run Q8_0' out '189'
run quantize "$work/f16.gguf" "$work/k.gguf" --threads 2
want_code 'quantize, default type' 0
want_in 'quantize, default type' out 'Q4_K_M'
want_in 'quantize, default type' err 'instead'
run run -m "$work/k.gguf" "$prompt" --no-pack-cache
want_code 'run Q4_K_M' 0
run quantize "$work/f16.gguf" "$work/one.gguf" --type Q4_0 --threads 1
run quantize "$work/f16.gguf" "$work/two.gguf" --type Q4_0 --threads 2
cmp -s "$work/one.gguf" "$work/two.gguf" && pass || fail 'threads change the file'

# Unchanged formats are copied: a file written as what it is has the same tensors.
run quantize $pico "$work/same.gguf" --type Q4_0 --token-embedding-type Q4_0 --allow-requantize
want_code 'quantize to itself' 0
run quantize test/data/hf/llama-plain "$work/folder.gguf" --type Q8_0
want_code 'quantize a folder' 0
run show "$work/folder.gguf"
want_in 'show what was a folder' out 'architecture  llama'

# The tokenizer, the template and the answers come through.
run quantize test/data/gguf/script-lfm2.gguf "$work/script.gguf" --type F32
run run -m "$work/script.gguf" --class fp32 s21
cp "$work/out" "$work/answer"
run run -m test/data/gguf/script-lfm2.gguf --class fp32 s21
cmp -s "$work/out" "$work/answer" && pass || fail 'another answer after quantize --type F32'

# Refused.
run quantize $pico "$work/no.gguf" --type Q8_0
want_code 'requantize' 1
want_in 'requantize' err 'allow-requantize'
run quantize "$work/f16.gguf" "$work/q8.gguf" --type Q4_0
want_code 'overwrite' 1
want_in 'overwrite' err '--force'
run quantize "$work/f16.gguf" "$work/q8.gguf" --type Q4_0 --force
want_code 'overwrite --force' 0
run quantize "$work/f16.gguf" "$work/f16.gguf" --type Q4_0 --force
want_code 'onto itself' 1
run quantize "$work/f16.gguf" "$work/no.bin"
want_code 'not called .gguf' 2
run quantize "$work/f16.gguf"
want_code 'one path' 2
run quantize "$work/f16.gguf" "$work/no.gguf" --type Q9
want_code 'no such type' 2
want_in 'no such type' err 'Q4_K_M'
run quantize "$work/f16.gguf" "$work/no.gguf" --tensor-type attn_v
want_code '--tensor-type without =' 2
run quantize "$work/f16.gguf" "$work/no.gguf" --tensor-type nothing=F16
want_code '--tensor-type of nothing' 1
run quantize "$work/f16.gguf" "$work/folder/no.gguf"
want_code 'no such folder' 1
run quantize "$work/none.gguf" "$work/no.gguf"
want_code 'no such model' 1
head -c 100000 "$work/f16.gguf" >"$work/cut.gguf"
run quantize "$work/cut.gguf" "$work/no.gguf"
want_code 'truncated model' 1

run quantize "$work/f16.gguf" --dry-run --tensor-type attn_v=Q8_0
want_code '--dry-run' 0
want_in '--dry-run' out 'attn_v.weight  *F16  *-> Q8_0'
want_in '--dry-run' out 'attn_norm.weight  *F32  *-> F32'

# Interrupted: either it was done by then, or nothing is there.
$TERN quantize "$work/f16.gguf" "$work/stop.gguf" --type Q4_K_M >"$work/out" 2>"$work/err" &
pid=$!
sleep 0.1
kill -TERM $pid
code=0
wait $pid || code=$?
if [ -e "$work/stop.gguf" ]; then want_code 'done before the signal' 0; else want_code 'interrupted' 130 143; fi

for left in "$work"/no.gguf "$work"/*.tmp.*; do
    [ -e "$left" ] && fail "left behind: $left"
done
finish
