#!/bin/sh
# Each command does what its help says, on the model that comes along and on the script model.
. test/cli/cli_lib.sh

run show $script_model
want_code 'show' 0
want_in 'show' out 'lfm2'
run show models/pico.gguf
want_code 'show pico' 0
want_in 'show pico' out 'Q4_0'

run template -m $script_model '[{"role": "user", "content": "s01"}]'
want_code 'template' 0
want_out 'template' '<|startoftext|><|im_start|>user\ns01<|im_end|>\n<|im_start|>assistant\n<|script_s01|>'
run template -m $script_model --no-prompt '[{"role": "user", "content": "s01"}]'
want_out 'template --no-prompt' '<|startoftext|><|im_start|>user\ns01<|im_end|>\n'

run tokenize --json 'Hello'
want_code 'tokenize --json' 0
want_in 'tokenize --json' out '^\[[0-9, ]*\]$'
run tokenize --special --bos '<|im_start|>'
want_out 'tokenize --special --bos' '1 6\n'

run run -m $script_model --max-tokens 2 s21
want_code 'run -n' 0
want_out 'run -n' '0001 0\n'
run run -m $script_model --stop 0003 s21
want_out 'run --stop' '0001 0002 \n'
for window in 1 7 256; do
    run run -m $script_model --window $window --kv q8 --threads 2 --class fp32 s02
    want_code "run --window $window" 0
    run run -m $script_model --window $window s15
    want_out "run --window $window" 'items = [1, 2, 3]; see [get the notes](http://x.example/a) or a[0](b).\n'
done
run run -m $script_model --json s04 --tools test/data/script/tools.json
want_code 'run --tools' 0
want_in 'run --tools' out '"name": *"get_weather"'
want_in 'run --tools' out '"finish": *"tool_calls"'

# Drafting changes the speed, never the text.
run run --json 'Tell me about the moon.' -n 40
want_code 'run plain' 0
text=$(sed 's/.*"text": *\("[^"]*"\).*/\1/' "$work/out")
for mode in chain tree ngram; do
    run run --json --draft $mode --draft-model models/pico-dspark.gguf 'Tell me about the moon.' -n 40
    want_code "run --draft $mode" 0
    grep -qF -- "$text" "$work/out" && pass || fail "run --draft $mode: another text than plain decoding's $text"
done

# The built-in model, greedy: its golden answer (the 64 tokens of test/data/pico/golden.json).
run run -n 64 'What are common mistakes people make with solenogaster?'
want_code 'run, built-in model' 0
golden=$(printf '%s' 'The solenogaster is a fascinating and complex creature with a rich history and cultural ' \
    'significance. While it is often associated with the solenogaster family, it is also a complex and diverse group ' \
    'of animals that can be found in various ecosystems worldwide.\n\nOne of the most notable mistakes people make ' \
    'with solenogaster')
want_out 'run, built-in model' "$golden\n"
run run --temp 0.8 --seed 5 -n 20 'Tell me a story.'
cp "$work/out" "$work/first"
run run --temp 0.8 --seed 5 -n 20 --window 7 'Tell me a story.'
cmp -s "$work/first" "$work/out" && pass || fail 'the same seed gives another text with another window'

head -c 1500 test/data/pico/heldout.txt >"$work/text"
run perplexity --row 64 "$work/text"
want_code 'perplexity' 0
want_in 'perplexity' out '^perplexity [0-9.]* over 252 predictions'
run perplexity --row 64 --second-half "$work/text"
want_in 'perplexity of second halves' out '^perplexity [0-9.]* over 124 predictions (second halves of rows of 64'
run perplexity --row 3 --second-half "$work/text"
want_code 'perplexity of halves without predictions' 2

run fidelity cpu/fp32 npu:coreai-linux/int8 --answer 8
want_code 'fidelity' 0
want_in 'fidelity' out '^all  *[0-9]'
run fidelity cpu/fp32 cpu/fp32 cpu/fp32,weights=int4c --answer 8 --json
want_code 'fidelity --json' 0
want_in 'fidelity --json' out '"name":"cpu/fp32",.*"verdict":"adopt".*"name":"cpu/fp32,weights=int4c",.*"verdict":"reject"'
run fidelity cpu/fp32 cpu/int8,weights=int5
want_code 'fidelity of no format' 2
want_in 'fidelity of no format' err 'lut4'
run fidelity cpu/fp32 --formats cpu --each 1 --answer 2
want_code 'fidelity --formats' 0
want_in 'fidelity --formats' out '^int4 in groups of 32  *cpu  *[0-9.]* .*\(adopt\|reject\)'
run fidelity cpu/fp32 --formats npu:m9 --answer 2
want_code 'fidelity --formats of no rule set' 1
run fidelity cpu/fp32 npu:m9/int8 --answer 8
want_code 'fidelity of no rule set' 1
want_in 'fidelity of no rule set' err 'ane-m1'

# A class of the npu unit is offered once it was validated here.
unset TERN_UNVALIDATED
XDG_CACHE_HOME="$work/cache" && export XDG_CACHE_HOME
run run --unit npu:fp32 -n 4 'Hi'
want_code 'run of a class not validated' 1
want_in 'run of a class not validated' err 'tern validate npu:fp32/int8'
run validate npu:fp32/int8 --answer 24
want_code 'validate' 0
want_in 'validate' out '^verdict: adopted'
run run --unit npu:fp32 -n 4 'Hi'
want_code 'run of a validated class' 0
run doctor
want_in 'doctor' out 'pico npu:fp32 int8/kv-f16: adopted'
run validate npu:fp32+int4/int8 --answer 8
want_code 'validate what is rejected' 1
run run --unit npu:fp32+int4 -n 4 'Hi'
want_in 'run of a rejected class' err 'rejected: top-1'
# Prompt routing, and the agreement of a unit with the reference.
run route -m test/data/route --class fp32 -r billing -r delivery -r returns 'My parcel never came.'
want_code 'route' 0
want_in 'route' out '^0.50.* returns$'
run route -m test/data/route --unit npu:fp32 -r a -r b 'x'
want_code 'route of a class not validated' 1
want_in 'route of a class not validated' err 'tern route --cases FILE --agree npu:fp32/int8'
run route -m test/data/route --class fp32 --cases test/data/route/expect.jsonl --agree npu:fp32/int8
want_code 'route --agree' 0
want_in 'route --agree' out 'accuracy of npu:fp32/int8'
run route -m test/data/route --unit npu:fp32 -r a -r b 'x'
want_code 'route of a validated class' 0
head -n 24 test/data/route_trained/cases.jsonl >"$work/trained"
run route -m test/data/route_trained --class fp32 --cases "$work/trained" --agree npu:fp32/int8
want_code 'route --agree, a trained head' 0
want_in 'route --agree, a trained head' out 'accuracy of npu:fp32/int8  *\(9[0-9]\|100\)[.]'
run route -m test/data/route 'x'
want_code 'route without routes' 2
printf '{"text": "x", "routes": ["a"], "label": "b"}\n' >"$work/cases"
run route -m test/data/route --cases "$work/cases" --agree npu:fp32/int8
want_code 'route with a broken case' 1
want_in 'route with a broken case' err "cases, line 1: .*'label'"
TERN_UNVALIDATED=1 && export TERN_UNVALIDATED

# On the npu unit a drafter's chain and tree give the text of plain decoding.
for draft in off chain tree; do
    run run --unit npu -c 256 -n 24 --draft-model models/pico-dspark.gguf --draft $draft 'Write a story about a fox.'
    want_code "run --unit npu --draft $draft" 0
    cp "$work/out" "$work/npu_$draft"
    cmp -s "$work/npu_off" "$work/npu_$draft" || fail "run --unit npu --draft $draft: another text than plain decoding"
done

# Two units: a text goes on where the first unit's programs end; one unit alone says so before it begins.
run run -c 256 -n 24 --draft off 'Write a story about a fox.'
cp "$work/out" "$work/cpu_off"
run run -c 256 -n 24 --draft off --plan handoff --then cpu 'Write a story about a fox.'
want_code 'run --plan handoff' 0
cmp -s "$work/cpu_off" "$work/out" || fail 'run --plan handoff: another text than on the one unit'
TERN_NPU_CTX=32 && export TERN_NPU_CTX
run run --unit npu -c 256 -n 24 --draft off --plan extend --then npu:fp32 'Write a story about a fox.'
want_code 'run --plan extend, bounded twice' 1
want_in 'run --plan extend, bounded twice' err 'unit npu:fp32 holds 32'
run run --unit npu -c 256 -n 40 --draft off --plan extend --then cpu 'Write a story about a fox.'
want_code 'run --plan extend' 0
[ "$(wc -c <"$work/out")" -gt 100 ] || fail 'run --plan extend: the text ends where the first unit does'
run run --unit npu -c 256 'x'
want_code 'run beyond the largest bucket' 1
want_in 'run beyond the largest bucket' err 'unit npu holds 32 .*TERN_NPU_CTX.*--plan extend --then cpu'
run run --unit npu --plan handoff 'x'
want_in 'run --plan handoff alone' err 'a second one is needed (--then)'
run run --plan split 'x'
want_in 'run --plan split' err 'there are whole, handoff and extend'
TERN_NPU_CTX=many && export TERN_NPU_CTX
run doctor
want_in 'doctor, buckets' out "npu  *no  *TERN_NPU_CTX='many'"
run run --unit npu 'x'
want_in 'run, buckets' err "TERN_NPU_CTX='many'"
unset TERN_NPU_CTX
run fidelity cpu/fp32 npu:fp32/fp32,plan=handoff,then=cpu --prompts test/data/pico/prompts.jsonl --each 1 --answer 4
want_code 'fidelity of a plan' 0
want_in 'fidelity of a plan' out 'verdict: adopt'

run explain --program
want_code 'explain --program' 0
want_in 'explain --program' out 'attention'
for kind in inject draft markov; do
    run explain --kind $kind --draft-model models/pico-dspark.gguf
    want_code "explain --kind $kind" 0
    want_in "explain --kind $kind" out 'propose 9 tokens'
done
run explain --kind inject --draft-model models/pico-dspark.gguf --draft-unit npu:fp32
want_in 'explain --draft-unit' out 'cross from the target'
run explain --kind draft
want_code 'explain --kind draft alone' 2
want_in 'explain --kind draft alone' err 'draft-model'
run doctor
want_code 'doctor' 0
want_in 'doctor' out 'cpu'

# The pack cache: an own folder for this test.
XDG_CACHE_HOME=$work/cache
export XDG_CACHE_HOME
run cache list
want_code 'cache list, empty' 0
run run -m $script_model s01
want_out 'run, cold' 'Hello, world.\n'
run cache verify
want_code 'cache verify' 0
run run -m $script_model s01
want_out 'run, warm' 'Hello, world.\n'
run cache prune
want_code 'cache prune' 0
HOME=/nonexistent XDG_CACHE_HOME=/proc/nonexistent run run -m $script_model s01
want_out 'run without a place for a cache' 'Hello, world.\n'
run run -m $script_model --no-pack-cache s01
want_out 'run --no-pack-cache' 'Hello, world.\n'
finish
