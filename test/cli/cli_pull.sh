#!/bin/sh
# tern pull and tern rm against a mirror of ours ($HUB), sound and unsound; everything stays on this machine.
. test/cli/cli_lib.sh
: "${HUB:?the server that plays a hub}"
home=$work/home
hub=$home/.cache/huggingface/hub
mkdir -p "$home" "$work/hub" "$work/cdn"
unset XDG_CACHE_HOME HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_TOKEN HF_TOKEN_PATH HF_HUB_OFFLINE OLLAMA_MODELS
HOME=$home
export HOME
start() { # NAME FOLDER [OTHER_PORT]: a server; $port
    $HUB "$2" ${3:-} >"$work/port.$1" &
    servers="${servers:-} $!"
    while [ ! -s "$work/port.$1" ]; do sleep 0.02; done
    port=$(cat "$work/port.$1")
}
start cdn "$work/cdn"
cdn_port=$port
start hub "$work/hub" "$cdn_port"
trap 'kill $servers 2>/dev/null; rm -rf "$work"' EXIT
HF_ENDPOINT=http://127.0.0.1:$port/
export HF_ENDPOINT

commit=1111111111111111111111111111111111111111
sha256() { sha256sum "$1" | cut -d ' ' -f 1; }
git_sha() { { printf 'blob %d\0' "$(wc -c <"$1")"; cat "$1"; } | sha1sum | cut -d ' ' -f 1; }
mode() { echo "$*" >"$work/hub/mode"; }
# repo NAME: begins a repository; file SOURCE NAME lfs|git [DIGEST] adds a file; done_ ends its listing.
repo() {
    repo=$1
    tree=$work/hub/$repo/resolve/$commit
    mkdir -p "$work/hub/api/models/$repo/revision" "$tree"
    listing=
}
file() {
    mkdir -p "$(dirname "$tree/$2")" "$(dirname "$work/cdn/$repo/resolve/$commit/$2")"
    cp "$1" "$tree/$2"
    cp "$1" "$work/cdn/$repo/resolve/$commit/$2"
    size=$(wc -c <"$1")
    if [ "$3" = lfs ]; then
        entry=$(printf '{"rfilename":"%s","size":%d,"blobId":"%s","lfs":{"sha256":"%s","size":%d,"pointerSize":130}}' \
            "$2" "$size" "$(git_sha "$1")" "${4:-$(sha256 "$1")}" "$size")
    else
        entry=$(printf '{"rfilename":"%s","size":%d,"blobId":"%s"}' "$2" "$size" "${4:-$(git_sha "$1")}")
    fi
    listing="$listing${listing:+,}$entry"
}
done_() { printf '{"id":"%s","sha":"%s","siblings":[%s]}' "$repo" "$commit" "$listing" >"$work/hub/api/models/$repo/revision/${1:-main}"; }
head -c 200000 /dev/urandom >"$work/big"
head -c 300 /dev/urandom >"$work/small"

repo acme/Tiny-GGUF
file $script_model Tiny-Q4_K_M.gguf lfs
file "$work/big" Tiny-Q8_0.gguf lfs
file "$work/small" README.md git
file "$work/small" mmproj-Tiny-F16.gguf lfs
done_
repo acme/llama-plain
file test/data/hf/llama-plain/config.json config.json git
file test/data/hf/llama-plain/model.safetensors model.safetensors lfs
file "$work/small" pytorch_model.bin lfs
file "$work/small" original/consolidated.safetensors lfs
done_
repo acme/wrong
file "$work/big" wrong-Q4_0.gguf lfs "$(sha256 "$work/small")"
done_
repo acme/wrong-git
file test/data/hf/llama-plain/config.json config.json git "$(git_sha "$work/small")"
file "$work/small" model.safetensors lfs
done_
repo acme/evil
file "$work/big" x-Q4_0.gguf lfs
listing=$(echo "$listing" | sed 's|x-Q4_0|../../../../x-Q4_0|')
done_
repo acme/pickle
file "$work/small" pytorch_model.bin lfs
done_
repo acme/split
head -c 100000 "$work/big" >"$work/s1"
tail -c 100000 "$work/big" >"$work/s2"
file "$work/s1" Q4_0/split-Q4_0-00001-of-00002.gguf lfs
file "$work/s2" Q4_0/split-Q4_0-00002-of-00002.gguf lfs
done_
repo acme/many
awk 'BEGIN { printf "{\"sha\":\"%040d\",\"siblings\":[", 1; for (i = 0; i < 20000; i++) printf "%s{\"rfilename\":\"f%d.gguf\",\"size\":1,\"blobId\":\"%040d\"}", i ? "," : "", i, i; print "]}" }' \
    >"$work/hub/api/models/acme/many/revision/main"

mode ok
run pull acme/Tiny-GGUF
if grep -q 'needs libcurl' "$work/err"; then # the clear message is all that can be tested
    want_code 'without libcurl' 1
    finish
    exit
fi
want_code 'pull' 0
want_in 'pull' err 'taking Q4_K_M; there are also: Q8_0 (195.3 KiB)'
want_in 'pull' err 'tern run -m acme/Tiny-GGUF:Q4_K_M'
want_out 'pull' "$hub/models--acme--Tiny-GGUF/snapshots/$commit/Tiny-Q4_K_M.gguf\n"
no_escapes 'pull'
layout=$(cd "$hub/models--acme--Tiny-GGUF" && find . -type f -o -type l | sort | tr '\n' ' ')
digest=$(sha256 $script_model)
[ "$layout" = "./blobs/$digest ./refs/main ./snapshots/$commit/Tiny-Q4_K_M.gguf " ] && pass || fail "layout: $layout"
[ "$(readlink "$hub/models--acme--Tiny-GGUF/snapshots/$commit/Tiny-Q4_K_M.gguf")" = "../../blobs/$digest" ] && pass || fail 'link'
[ "$(cat "$hub/models--acme--Tiny-GGUF/refs/main")" = $commit ] && pass || fail 'refs/main'
[ -f "$hub/.locks/models--acme--Tiny-GGUF/$digest.lock" ] && pass || fail 'lock'
run run -m acme/Tiny-GGUF --no-pack-cache s15
want_in 'run what was pulled' out 'get the notes'
: >"$work/hub/log"
run pull hf:acme/Tiny-GGUF:q4_k_m --json
want_in 'again' err 'there already'
want_in 'again --json' out '"name":"acme/Tiny-GGUF:Q4_K_M".*"commit":"1111.*"bytes_fetched":0,"resumed_from":0'
[ "$(grep -c resolve "$work/hub/log")" = 0 ] && pass || fail 'again: asked for files'
run pull acme/llama-plain
want_code 'pull a folder' 0
want_out 'pull a folder' "$hub/models--acme--llama-plain/snapshots/$commit\n"
[ "$(ls "$hub/models--acme--llama-plain/snapshots/$commit" | tr '\n' ' ')" = 'config.json model.safetensors ' ] && pass || fail 'folder: other files'
run show acme/llama-plain
want_code 'show what was pulled' 0
run pull acme/split
want_code 'pull shards' 0
cat "$hub/models--acme--split/snapshots/$commit/Q4_0/"*.gguf | cmp -s - "$work/big" && pass || fail 'shards: other bytes'
rm -rf "$hub/models--acme--split"

big=$(sha256 "$work/big")
blob=$hub/models--acme--Tiny-GGUF/blobs/$big
fetched() { # NAME: Tiny-Q8_0 is there, whole, and nothing else is left
    want_code "$1" 0
    cmp -s "$blob" "$work/big" && pass || fail "$1: other bytes"
    [ -e "$blob.incomplete" ] && fail "$1: a part is left"
    rm -f "$blob" "$hub/models--acme--Tiny-GGUF/snapshots/$commit/Tiny-Q8_0.gguf"
    : >"$work/hub/log"
    : >"$work/cdn/log"
}
refused() { # NAME PATTERN ARGUMENT…: a failure that leaves no file under its name
    name=$1
    pattern=$2
    shift 2
    run pull --tries 1 "$@"
    want_code "$name" 1
    want_in "$name" err "$pattern"
    want_lines_at_most "$name" out 0
    [ -e "$blob" ] && fail "$name: a file is there"
    rm -f "$blob.incomplete"
}
: >"$work/hub/log"
mode cut 60000
run pull acme/Tiny-GGUF:Q8_0
[ "$(grep -c 'resolve.*bytes=' "$work/hub/log")" = 3 ] && pass || fail 'cut: not three resumptions'
fetched 'an answer that breaks off'
mode norange
head -c 70000 "$work/big" >"$blob.incomplete"
run pull acme/Tiny-GGUF:Q8_0
fetched 'a server that cannot resume'
mode ok
head -c 70000 "$work/big" >"$blob.incomplete"
run pull acme/Tiny-GGUF:Q8_0 --json
want_in 'resume' out '"bytes_fetched":130000,"resumed_from":70000'
want_in 'resume' err 'resumed at 68.4 KiB'
fetched 'resume'
head -c 70000 /dev/zero >"$blob.incomplete"
run pull acme/Tiny-GGUF:Q8_0
want_in 'a damaged part' err 'damaged; all of it again'
fetched 'a damaged part'
head -c 300000 /dev/zero >"$blob.incomplete"
run pull acme/Tiny-GGUF:Q8_0
fetched 'a part longer than the file'
cp "$work/big" "$blob.incomplete"
run pull acme/Tiny-GGUF:Q8_0
[ "$(grep -c resolve "$work/hub/log")" = 0 ] && pass || fail 'whole part: asked for bytes'
fetched 'a whole part'
mode busy 2
run pull acme/Tiny-GGUF:Q8_0
want_in 'busy' err 'HTTP status 503; again in'
fetched 'busy'
mode hop
HF_TOKEN=hf_secret run pull acme/Tiny-GGUF:Q8_0
[ "$(grep -c 'resolve.*Bearer hf_secret' "$work/hub/log")" = 2 ] && pass || fail 'hop: the token stays on the same host'
fetched 'a redirect on the same host'
mode redirect
HF_TOKEN=hf_secret run pull acme/Tiny-GGUF:Q8_0
[ "$(grep -c 'Bearer hf_secret' "$work/hub/log")" = 2 ] && pass || fail 'redirect: the hub got the token'
[ "$(grep -c 'resolve.* -$' "$work/cdn/log")" = 1 ] && pass || fail 'redirect: the other host was asked'
grep -q 'Bearer\|hf_secret' "$work/cdn/log" && fail 'redirect: the other host got the token'
fetched 'a redirect to another host'
echo hf_from_file >"$work/token"
mode ok
HF_TOKEN_PATH=$work/token run pull acme/Tiny-GGUF:Q8_0
grep -q 'Bearer hf_from_file' "$work/hub/log" && pass || fail 'HF_TOKEN_PATH'
fetched 'HF_TOKEN_PATH'
# Another disk, another place.
HF_HUB_CACHE=$work/elsewhere run pull acme/Tiny-GGUF:Q8_0
want_code 'HF_HUB_CACHE' 0
[ -f "$work/elsewhere/models--acme--Tiny-GGUF/blobs/$big" ] && pass || fail 'HF_HUB_CACHE'

mode loop
refused 'a redirect to itself' 'over 5 redirects' acme/Tiny-GGUF:Q8_0
mode down
refused 'a redirect with a user name' 'redirects to nowhere' acme/Tiny-GGUF:Q8_0
mode long
refused 'more bytes than listed' 'more bytes come' acme/Tiny-GGUF:Q8_0
mode gzip
refused 'encoded' 'encoded, unasked' acme/Tiny-GGUF:Q8_0
mode etag
refused 'another digest' 'the hub lists the digest' acme/Tiny-GGUF:Q8_0
mode commit
refused 'another commit' 'changed while it was pulled' acme/Tiny-GGUF:Q8_0
head -c 7000 "$work/big" >"$blob.incomplete"
mode range
refused 'another range' 'another part than was asked for' acme/Tiny-GGUF:Q8_0
mode cut 0
refused 'no byte comes' 'partial file\|ended 200000 bytes early' acme/Tiny-GGUF:Q8_0
mode status 401
refused '401' '401 (it says: as the test wants it): there is no such repository.*HF_TOKEN' acme/Tiny-GGUF:Q8_0
HF_TOKEN=hf_old refused '401 with a token' 'does not take the token of HF_TOKEN' acme/Tiny-GGUF:Q8_0
grep -q 'hf_old' "$work/err" "$work/out" && fail '401: the token is told'
mode status 403
refused '403' 'gated.*terms' acme/Tiny-GGUF:Q8_0
mode status 429
refused '429' 'too many requests' acme/Tiny-GGUF:Q8_0
mode status 500
refused '500' 'HTTP status 500' acme/Tiny-GGUF:Q8_0
mode ok
refused '404' 'not found at' acme/none
refused 'no such tag' "no ':Q2_K'; there are: Q4_K_M" acme/Tiny-GGUF:Q2_K
refused 'no such revision' 'not found' --revision v9 acme/Tiny-GGUF
refused 'wrong SHA-256' 'thrown away' acme/wrong
[ -z "$(find "$hub/models--acme--wrong" -type f -o -type l)" ] && pass || fail 'wrong SHA-256: something is left'
refused 'wrong SHA-1' 'thrown away' acme/wrong-git
refused 'a name that leads out' 'could lead out' acme/evil
refused 'pickles' 'pickles are not opened' acme/pickle
refused 'a listing of 20000 files' 'over 4096 files' acme/many
HF_HUB_OFFLINE=1 refused 'offline' 'HF_HUB_OFFLINE' acme/Tiny-GGUF
HF_ENDPOINT=ftp://x refused 'HF_ENDPOINT' 'expected http' acme/Tiny-GGUF
HF_ENDPOINT=http://127.0.0.1:1 refused 'nobody listens' 'onnect' acme/Tiny-GGUF
printf 'a b' >"$work/token"
HF_TOKEN_PATH=$work/token refused 'no token' 'holds no token' acme/Tiny-GGUF
for name in '' x acme/ /x acme/../x 'acme/x y' acme/x/y acme/x: 'acme/x:..' acme/x--y; do
    run pull "$name"
    want_code "pull '$name'" 2
done
run pull acme/Tiny-GGUF --revision ../x
want_code '--revision ../x' 2

# Killed in the middle, three times, then whole; and two at once.
mode slow
for i in 1 2 3; do
    $TERN pull acme/Tiny-GGUF:Q8_0 >/dev/null 2>&1 &
    pid=$!
    sleep 0.3
    kill -9 $pid
    wait $pid 2>/dev/null
    [ -e "$blob" ] && fail 'killed: the file is there'
done
[ -s "$blob.incomplete" ] && pass || fail 'killed: no part is left'
mode ok
run pull acme/Tiny-GGUF:Q8_0
want_in 'killed' err 'resumed at'
fetched 'killed, then whole'
mode slow
$TERN pull acme/Tiny-GGUF:Q8_0 >/dev/null 2>"$work/err1" &
pid=$!
sleep 0.2
run pull acme/Tiny-GGUF:Q8_0
want_in 'two at once' err 'waiting for it'
wait $pid && pass || fail 'two at once: the first failed'
[ "$(grep -c 'resolve' "$work/hub/log")" = 1 ] && pass || fail 'two at once: both asked'
fetched 'two at once'
mode ok
# A disk that is full after 40 KiB, as files of at most so many bytes.
(trap '' XFSZ && ulimit -f 80 && run pull --tries 1 acme/Tiny-GGUF:Q8_0; exit $code)
code=$?
want_code 'a full disk' 1
want_in 'a full disk' err 'cannot write'
[ "$(wc -c <"$blob.incomplete")" = 40960 ] && pass || fail 'a full disk: what came is not kept'
run pull acme/Tiny-GGUF:Q8_0 --json
want_in 'after a full disk' out '"resumed_from":40960'
want_code 'after a full disk' 0

# A newer commit keeps the models of the older one that did not change; the cache's links are not believed.
old=$commit
commit=2222222222222222222222222222222222222222
repo acme/Tiny-GGUF
file $script_model Tiny-Q4_K_M.gguf lfs
file "$work/big" Tiny-Q8_0.gguf lfs
file "$work/s1" Tiny-Q4_0.gguf lfs
done_
run pull acme/Tiny-GGUF:Q4_0
want_code 'newer commit' 0
run list --json
for tag in Q4_K_M Q8_0 Q4_0; do want_in 'newer commit' out "\"name\":\"acme/Tiny-GGUF:$tag\""; done
mkdir -p "$work/out_of"
ln -s "$work/out_of" "$hub/models--acme--evil"
repo acme/evil
file "$work/s1" x-Q4_0.gguf lfs
done_
run pull acme/evil
want_code 'a cache that is a link' 1
want_in 'a cache that is a link' err 'link out of the cache'
[ -z "$(ls "$work/out_of")" ] && pass || fail 'a cache that is a link: written to'
rm "$hub/models--acme--evil"

# tern rm
run rm acme/Tiny-GGUF
want_code 'rm, several' 1
want_in 'rm, several' err 'may be one of 3'
run rm acme/Tiny-GGUF:Q8_1
want_code 'rm, a name that is not there' 1
want_in 'rm, a name that is not there' err 'did you mean .*acme/Tiny-GGUF:'
want_not_in 'rm, a name that is not there' err 'pull'
run rm acme/quite-other-things
want_in 'rm, a name that is like none' err 'no model of that name is installed .*tern list'
want_not_in 'rm, a name that is like none' err 'pull'
run rm acme/Tiny-GGUF:Q8_0 --dry-run
want_in 'rm --dry-run' out '195.3 KiB would be freed'
[ -f "$blob" ] && pass || fail 'rm --dry-run removed'
run rm acme/Tiny-GGUF:Q8_0
want_out 'rm' 'acme/Tiny-GGUF:Q8_0: 195.3 KiB freed\n'
[ -e "$blob" ] && fail 'rm: the blob is there' || pass
[ -L "$hub/models--acme--Tiny-GGUF/snapshots/$old/Tiny-Q8_0.gguf" ] && fail 'rm: a link is left' || pass
run run -m acme/Tiny-GGUF:Q4_K_M --no-pack-cache s15
want_in 'rm: others stay' out 'get the notes'
run rm acme/Tiny-GGUF:Q4_0 --json
want_in 'rm --json' out '"bytes_freed":100000,"removed":true'
run rm acme/Tiny-GGUF:Q4_K_M
want_code 'rm the last' 0
[ -e "$hub/models--acme--Tiny-GGUF" ] && fail 'rm the last: the folder is there' || pass
run rm acme/llama-plain
want_code 'rm a folder' 0
[ -e "$hub/models--acme--llama-plain" ] && fail 'rm a folder: it is there' || pass
mode slow
$TERN pull acme/Tiny-GGUF:Q8_0 >/dev/null 2>&1 &
pid=$!
sleep 0.3
run rm --all acme/Tiny-GGUF
want_code 'rm while it is pulled' 1
want_in 'rm while it is pulled' err 'being downloaded'
kill -9 $pid
wait $pid 2>/dev/null
run rm --all acme/Tiny-GGUF
want_code 'rm --all of a part' 0
[ -e "$hub/models--acme--Tiny-GGUF" ] && fail 'rm --all: the folder is there' || pass
mkdir -p "$home/.lmstudio/models/pub/m"
cp $script_model "$home/.lmstudio/models/pub/m/m-F16.gguf"
run rm pub/m:F16
want_in 'rm of another store' err 'belongs to LM Studio'
run rm none/such
want_in 'rm of nothing' err 'no model of that name'
run rm
want_code 'rm without a name' 2
run run -m acme/Not-Here-GGUF:Q4_0 hi
want_code 'run what is not there' 1
want_in 'run what is not there' err 'tern pull acme/Not-Here-GGUF:Q4_0'
finish
