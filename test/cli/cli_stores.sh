#!/bin/sh
# Models of other programs' stores, in trees made here: found, opened by name, refused where a store is broken or leads
# out of itself, and never written to.
. test/cli/cli_lib.sh
home=$work/home
hub=$home/.cache/huggingface/hub
ollama=$home/.ollama/models
studio=$home/.lmstudio/models
revision=0123456789abcdef0123456789abcdef01234567
root=$PWD
unset XDG_CACHE_HOME HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE OLLAMA_MODELS
HOME=$home
export HOME

# repo NAME [REVISION]: an empty repository of the Hugging Face cache; $snapshot, $blobs.
repo() {
    snapshot=$hub/models--$1/snapshots/${2:-$revision}
    blobs=$hub/models--$1/blobs
    mkdir -p "$hub/models--$1/refs" "$snapshot" "$blobs"
    printf '%s' "${2:-$revision}" >"$hub/models--$1/refs/main"
}
blob() { # FILE NAME: a file of the repository, as a link into its blobs
    cp "$1" "$blobs/$2"
    ln -s "../../blobs/$2" "$snapshot/$2"
}
repo acme--Tiny-GGUF
blob $script_model Tiny-F16.gguf
blob test/data/gguf/00-sound.gguf Tiny-Q8_0.gguf
ln -s ../../blobs/none "$snapshot/Tiny-Q4_0.gguf"
repo acme--One-GGUF
blob $script_model One.Q4_K_M.gguf
repo acme--llama-plain
blob test/data/hf/llama-plain/config.json config.json
blob test/data/hf/llama-plain/model.safetensors model.safetensors
repo evil--file
ln -s "$root/$script_model" "$snapshot/x-Q4_0.gguf"
repo evil--config
blob test/data/hf/llama-plain/model.safetensors model.safetensors
ln -s /etc/passwd "$snapshot/config.json"
repo evil--ref
printf ../../../../../../../etc >"$hub/models--evil--ref/refs/main"
rmdir "$snapshot"
mkdir -p "$hub/models--acme--nothing" "$hub/datasets--acme--data"
repo acme--no-ref
blob $script_model Old.gguf
rm "$hub/models--acme--no-ref/refs/main"
repo acme--split
blob $script_model big-00001-of-00002.gguf

manifest() { # REGISTRY/NAMESPACE/MODEL/TAG DIGEST SIZE
    mkdir -p "$ollama/manifests/${1%/*}" "$ollama/blobs"
    printf '{"schemaVersion":2,"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"%s","size":%d},' \
        "$2" "$3" >"$ollama/manifests/$1"
    printf '{"mediaType":"application/vnd.ollama.image.template","digest":"sha256:0","size":1}]}' >>"$ollama/manifests/$1"
}
hex=$(printf 'a%.0s' 1 2 3 4 5 6 7 8)
hex=$hex$hex$hex$hex$hex$hex$hex$hex
size=$(wc -c <$script_model)
manifest registry.ollama.ai/library/script/latest sha256:$hex $size
manifest registry.ollama.ai/library/script/old sha256:$hex $size
manifest registry.ollama.ai/user/script/v1 sha256:$hex $size
manifest hf.co/acme/Tiny-GGUF/Q5_0 sha256:$hex $size
manifest registry.ollama.ai/library/broken/size sha256:$hex 5
manifest registry.ollama.ai/library/broken/path "sha256:../../../../../../../../../../../../../../../../../../../../etc/passwd" 5
manifest registry.ollama.ai/library/broken/gone "sha256:$(printf '%s' $hex | tr a b)" 5
echo '{' >"$ollama/manifests/registry.ollama.ai/library/broken/json"
cp $script_model "$ollama/blobs/sha256-$hex"

mkdir -p "$studio/pub/script-GGUF" "$studio/pub/cut"
cp $script_model "$studio/pub/script-GGUF/script-f16.gguf"
head -c 2000 $script_model >"$studio/pub/cut/cut-Q4_0.gguf"
(cd "$home" && find . | sort) >"$work/before"

run list
want_code 'list' 0
for name in acme/Tiny-GGUF:F16 acme/One-GGUF:Q4_K_M acme/no-ref:Old script:latest user/script:v1 hf.co/acme/Tiny-GGUF:Q5_0 \
    pub/script-GGUF:f16; do
    want_in "list $name" out "^  $name .*lfm2 .*F16"
done
want_in 'list folder' out '^  acme/llama-plain .*llama'
for name in acme/Tiny-GGUF:Q4_0 evil/config evil/ref acme/nothing acme/split:big broken:size broken:path broken:gone \
    broken:json pub/cut:Q4_0; do
    want_in "list $name" out "^  $name .*unusable"
done
want_in 'list evil/file' out '^  evil/file .*unusable: .*link out'
want_not_in 'list' out 'datasets'
no_escapes 'list'
run list --json
want_code 'list --json' 0
want_in 'list --json' out '"name":"acme/llama-plain","store":"hf".*"architecture":"llama"'
want_in 'list --json' out '"usable":false,"reason":"'

answer() { # NAME: the model of that name answers
    run run -m "$1" --no-pack-cache s15
    want_code "run -m $1" 0
    want_in "run -m $1" out 'get the notes'
}
answer acme/Tiny-GGUF:F16
answer acme/tiny-gguf:f16
answer Tiny-GGUF:Tiny-F16.gguf
answer acme/One-GGUF
answer script
answer script:old
answer ollama:script
answer user/script
answer hf:acme/no-ref
answer lmstudio:pub/script-GGUF
answer pub/script-GGUF:F16
TERN_MODEL=script:old
export TERN_MODEL
run tokenize Hello
want_code 'TERN_MODEL=NAME' 0
TERN_MODEL=
run show acme/llama-plain
want_in 'show NAME' out '^name  *llama-plain$'
run explain acme/One-GGUF
want_code 'explain NAME' 0
run quantize acme/llama-plain "$work/q.gguf" --type Q8_0
want_code 'quantize NAME' 0

refused() { # NAME PATTERN
    run run -m "$1" --no-pack-cache s15
    want_code "run -m $1" 1
    want_in "run -m $1" err "$2"
}
refused acme/Tiny-GGUF 'one of 3 models: acme/Tiny-GGUF:F16, acme/Tiny-GGUF:Q4_0'
refused broken 'one of 4 models'
refused Tiny-GGUF 'may be one of'
refused evil/config 'link out of the store'
refused evil/file 'link out of the store'
refused broken:path 'hexadecimal'
refused acme/split '1 of 2 shards'
refused acme/One-GGFU 'did you mean acme/One-GGUF:Q4_K_M'
refused nothing-like-it 'tern list'
refused ollama:acme/One-GGUF 'no model of that name'
refused ./script 'no such file'
refused scripts.gguf 'no such file'

# A path wins over a name; other places by variables.
cp $script_model "$work/script"
(cd "$work" && HOME=$home && case $TERN in /*) $TERN show script ;; *) "$root/$TERN" show script ;; esac) >"$work/out" 2>"$work/err"
want_in 'a path wins' out 'script'
HF_HOME=$home/.cache/huggingface OLLAMA_MODELS=$work/none
export HF_HOME OLLAMA_MODELS
run list
want_in 'list HF_HOME' out 'acme/One-GGUF'
want_not_in 'list OLLAMA_MODELS' out 'script:latest'
HF_HUB_CACHE=$work/none
export HF_HUB_CACHE
HOME=$work/empty
run list
want_code 'list without stores' 0
want_in 'list without stores' out 'no models'

(cd "$home" && find . | grep -v '^./.cache/tern' | grep -v '^./.cache$' | sort) >"$work/after"
grep -v '^./.cache$' "$work/before" >"$work/before2"
cmp -s "$work/before2" "$work/after" && pass || fail 'a store was written to'
finish
