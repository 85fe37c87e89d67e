#!/bin/sh
# tools/check.sh [TIER…]: runs the tiers named (default: style gcc) and ends with one line, "N passed, N failed" (and
# ", N skipped"); exit 1 when anything failed. Every check and every test program counts as one.
#
#   style   what tools/check_*.sh hold, and that each of them can fail
#   gcc     build/            the default build and all its tests
#   clang   build/clang       the same with clang
#   san     build/san         AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan    build/tsan        ThreadSanitizer
#   fault   build/            only the fault suite
#   drafts  build/            100 prompts in every kind of draft, budget, thread count and state: the same tokens. An hour
#                             of two processors; build/draft-matrix.txt has what is done, so a stopped run goes on from there
#   cross   build/aarch64     aarch64, all tests under qemu (hours)
#   arm     build/aarch64     of these the operations, the kernels and the equality of bits
#   dist    build/dist*       what `make dist` makes: built twice, equal bytes; installed and run (long)
#   clients build/            real clients of the server: packages of Python, a browser (tools/clients.sh)
#   macos   build/macos-*     compiled and linked for macOS on both processors; nothing runs
#
# With CI=true warnings are errors. What a tier needs but does not find (clang, a cross compiler) is one skipped check.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0
failed=0
skipped=0
failures=''
start=$(date +%s)
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

pass() { passed=$((passed + 1)); printf 'ok    %s\n' "$1"; }
skip() { skipped=$((skipped + 1)); printf 'skip  %s: %s\n' "$1" "$2"; }
fail() {
    failed=$((failed + 1))
    failures="$failures
      $1"
    printf 'FAIL  %s\n' "$1"
    sed 's/^/      /' "$log" | tail -n "${2:-60}"
}

# one NAME COMMAND…: a check that is a command.
one() {
    name=$1
    shift
    "$@" >"$log" 2>&1
    case $? in
    0) pass "$name" ;;
    77) skip "$name" "$(tail -n 1 "$log")" ;;
    *) fail "$name" ;;
    esac
}

count_of() { awk -v what="$1" 'index($0, what) == 1 { n = $NF } END { print n + 0 }' "$log"; }

# tests NAME FOLDER MESON_TEST_ARGUMENT…: the tests of a build folder, each counted.
tests() {
    name=$1
    folder=$2
    shift 2
    meson test -C "$folder" --no-rebuild --print-errorlogs "$@" >"$log" 2>&1
    code=$?
    ok=$(($(count_of 'Ok:') + $(count_of 'Expected Fail:')))
    bad=$(($(count_of 'Fail:') + $(count_of 'Unexpected Pass:') + $(count_of 'Timeout:')))
    none=$(count_of 'Skipped:')
    passed=$((passed + ok))
    skipped=$((skipped + none))
    if [ "$bad" -gt 0 ]; then
        fail "$name: $bad of $((ok + bad)) tests" 200
        failed=$((failed + bad - 1))
    elif [ "$code" -ne 0 ] || [ "$ok" -eq 0 ]; then
        fail "$name: no test ran or the runner failed ($code)"
    else
        printf 'ok    %s: %s tests (%s skipped)\n' "$name" "$ok" "$none"
    fi
}

# build NAME FOLDER MESON_SETUP_ARGUMENT…: configures once, builds; fails the tier when it does not build.
build() {
    name=$1
    folder=$2
    shift 2
    [ "${CI:-}" = true ] && set -- --werror "$@"
    # A folder that was set up before the test libraries were installed (make run) is set up anew.
    if [ -f "$folder/build.ninja" ] && ! grep -q '"name": "tests", "value": "enabled"' "$folder/meson-info/intro-buildoptions.json"; then
        rm -f "$folder/build.ninja"
        set -- --wipe "$@"
    fi
    if [ ! -f "$folder/build.ninja" ]; then
        if ! meson setup "$folder" -Dtests=enabled "$@" >"$log" 2>&1; then
            fail "$name: meson setup"
            return 1
        fi
    fi
    if ! ninja -C "$folder" >"$log" 2>&1; then
        grep -nE 'error|warning|FAILED' "$log" >"$log.short" && mv "$log.short" "$log"
        fail "$name: build"
        return 1
    fi
    pass "$name: build"
}

tier_style() {
    one 'text: blanks, line ends, unfinished work' tools/check_text.sh .
    one 'format: clang-format 14' tools/check_format.sh .
    one 'functions that base/ wraps' tools/check_banned.sh .
    one 'include table' tools/check_includes.sh .
    one 'file names' tools/check_names.sh .
    one 'file and function sizes' tools/check_sizes.sh .
    one 'headers compile alone' tools/check_headers.sh .
    one 'models and file sizes' tools/check_files.sh .
    one 'the checks can fail' test/style/style_selftest.sh
}

sanitizer() { # NAME FOLDER b_sanitize
    build "$1" "$2" -Db_sanitize="$3" -Db_lundef=false -Ddefault_library=static -Dc_args=-fno-sanitize-recover=all &&
        ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
            TSAN_OPTIONS=halt_on_error=1 tests "$1" "$2" -t 5
}

# The runtimes of NPU back ends, which CI fetches; elsewhere their tests are skipped until tools/npu_packages.sh ran.
npu_packages() {
    [ "${CI:-}" != true ] || one 'runtimes of NPU back ends' tools/npu_packages.sh build/npu-packages
    [ ! -f build/npu-packages/npu-packages.txt ] || export TERN_NPU_PACKAGES="$PWD/build/npu-packages"
}

tier_gcc() {
    npu_packages
    build "$(${CC:-cc} --version | head -n 1)" build || return
    tests 'tests' build
    one 'the installed library from outside' tools/check_install.sh build
}
tier_fault() { build 'fault' build && tests 'fault' build --suite fault; }
tier_drafts() {
    build 'drafts' build || return
    one 'drafts: every rule set of the npu unit' env TERN_UNVALIDATED=1 build/test/test_draft_units all
    one 'drafts: 100 prompts, every combination' \
        build/test/test_draft_matrix whole build/draft-matrix.txt "$(getconf _NPROCESSORS_ONLN)"
}
tier_san() { sanitizer 'address and undefined' build/san address,undefined; }
tier_tsan() { sanitizer 'thread' build/tsan thread; }
tier_clang() {
    command -v clang >/dev/null 2>&1 || { skip clang 'not installed'; return; }
    npu_packages
    CC=clang build 'clang' build/clang && tests 'clang' build/clang
}
cross_build() {
    tools/cross_aarch64.sh build/aarch64 >"$log" 2>&1
    case $? in
    0) build 'aarch64' build/aarch64 ;;
    77) skip 'aarch64' "$(tail -n 1 "$log")"; return 1 ;;
    *) fail 'aarch64: set-up'; return 1 ;;
    esac
}
tier_cross() { cross_build && tests 'aarch64 under qemu' build/aarch64 -t 20; }
# pico_int8 compares the logits of the int8 class with the bits that x86 gives.
tier_arm() {
    cross_build || return
    tests 'aarch64 under qemu: operations, kernels' build/aarch64 -t 10 --suite op --suite kernel
    tests 'aarch64 under qemu: equal bits' build/aarch64 -t 10 contract compose pico_int8
}
tier_clients() {
    build 'clients' build || return
    tools/clients.sh build/tern >"$log" 2>&1
    code=$?
    line=$(tail -n 1 "$log")
    case $code:$line in
    77:*) skip 'clients' "$line" ;;
    *:*' passed, '*' failed')
        passed=$((passed + ${line%% *}))
        bad=${line#* passed, }
        bad=${bad%% *}
        if [ "$bad" -gt 0 ]; then
            fail "clients: $line" 200
            failed=$((failed + bad - 1))
        else
            printf 'ok    clients: %s tests\n' "${line%% *}"
        fi
        ;;
    *) fail 'clients' ;;
    esac
}
tier_dist() { one 'dist: packages, twice the same' tools/check_dist.sh; }
tier_macos() { one 'macOS: compiles and links' tools/check_macos.sh; }

[ $# -gt 0 ] || set -- style gcc
for tier in "$@"; do
    case $tier in
    style | gcc | clang | san | tsan | fault | drafts | cross | arm | clients | dist | macos) "tier_$tier" ;;
    *)
        echo "check.sh: no tier '$tier' (style gcc clang san tsan fault drafts cross arm clients dist macos)" >&2
        exit 2
        ;;
    esac
done

[ -z "$failures" ] || printf '\nfailed:%s\n' "$failures"
printf '\n%s seconds\n' $(($(date +%s) - start))
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ]
