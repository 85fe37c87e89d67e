#!/bin/sh
# test/style/style_selftest.sh: each check of tools/ finds what it is for. A small sound tree must pass every check; then
# one fault at a time is put in and the check that should see it must fail with the right words.
set -u
tools=$(cd "$(dirname "$0")/../../tools" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
n=0

sound_tree() {
    rm -rf "$work/t"
    mkdir -p "$work/t/src/base" "$work/t/src/model" "$work/t/src/text" "$work/t/src/unit/cpu" "$work/t/src/unit/npu" \
        "$work/t/include" "$work/t/models" "$work/t/src/engine" "$work/t/src/app"
    cd "$work/t" || exit 1
    cp "$tools/../.clang-format" .
    printf '// The public header.\n#pragma once\n#ifdef __cplusplus\nextern "C" {\n#endif\nconst char *tern_version(void);\n#ifdef __cplusplus\n}\n#endif\n' >include/tern.h
    printf '// The face of base.\n#pragma once\n#include "tern.h"\nvoid *mem_alloc(unsigned long n);\n' >src/base/base.h
    printf '// Memory.\n#include "base/base.h"\n#include <stdlib.h>\n#include <sys/mman.h>\nvoid *mem_alloc(unsigned long n) { return malloc(n); }\n' >src/base/heap.c
    for f in model text unit engine; do
        printf '// The face of %s.\n#pragma once\n#include "base/base.h"\nint %s_open(void);\n' $f $f >src/$f/$f.h
    done
    printf '// Private.\n#pragma once\nint model_int(void);\n' >src/model/model_int.h
    printf '// Opens a model.\n#include "base/base.h"\n#include "model/model.h"\n#include "model/model_int.h"\n#include <string.h>\n\n// malloc( in a comment and "free(" in a string are fine\nint model_int(void) { return "free(x)"[0] == %s; }\nint model_open(void) { return model_int(); }\n' "'\"'" >src/model/open.c
    printf '// The face of the CPU unit.\n#pragma once\n#include "unit/unit.h"\n' >src/unit/cpu/cpu.h
    printf '// The unit.\n#include "base/base.h"\n#include "unit/unit.h"\n#ifdef __linux__\n#include <sys/auxv.h>\n#endif\nint unit_open(void) { return 0; }\n' >src/unit/cpu/cpu_open.c
    printf '// The face of the NPU unit.\n#pragma once\n' >src/unit/npu/npu.h
    printf 'model\n' >models/small.gguf
    (cd models && sha256sum small.gguf >SHA256SUMS)
}

# expect CHECK WORDS: the check must fail and say the words.
expect() {
    n=$((n + 1))
    if out=$("$tools/check_$1.sh" "$work/t" 2>&1); then
        echo "check_$1 passed a tree with a fault: $2"
        failed=$((failed + 1))
    elif ! printf '%s' "$out" | grep -qF -- "$2"; then
        echo "check_$1 failed without saying \"$2\":"
        printf '%s\n' "$out"
        failed=$((failed + 1))
    fi
    sound_tree
}
# passes CHECK: the check must pass.
passes() {
    n=$((n + 1))
    out=$("$tools/check_$1.sh" "$work/t" 2>&1)
    case $? in
    0 | 77) ;; # 77: what the check needs is not installed
    *)
        echo "check_$1 failed on a sound tree ($2):"
        printf '%s\n' "$out"
        failed=$((failed + 1))
        ;;
    esac
}
body() { # a function of $1 lines between the braces
    printf 'int long_one(void) {\n'
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) print "    (void)0;" }'
    printf '}\n'
}

sound_tree
for c in text banned includes names sizes headers files; do passes $c 'as it is'; done

printf 'int x; \n' >>src/model/open.c && expect text 'blank at the end of the line'
printf '\tint x;\n' >>src/model/open.c && expect text 'tab'
printf 'int x;' >>src/model/open.c && expect text 'no newline at the end'
printf 'int x;\r\n' >>src/model/open.c && expect text 'CR at the end'
printf '// a\302\240b\n' >>src/model/open.c && expect text 'invisible character'
printf '// %s: later\n' 'TO''DO' >>src/model/open.c && expect text 'finish it or leave it out'
printf '// %s enough\n' 'good for n''ow' >>src/model/open.c && expect text 'finish it or leave it out'
printf '// see /wo''rk/notes\n' >>src/model/open.c && expect text 'a path of one machine'
printf 'int a;\n' >src/model/bare.c && expect text 'does not open with a comment'
awk 'BEGIN { printf "// "; for (i = 0; i < 118; i++) printf "x"; print "" }' >>src/model/open.c && expect text 'line of 121 columns'
awk 'BEGIN { printf "// "; for (i = 0; i < 117; i++) printf "\303\251"; print "" }' >>src/model/open.c && passes text '120 columns of two bytes'
sound_tree

printf 'int f(void *p) {\n    free(p);\n}\n' >>src/model/open.c && expect banned 'free(): base/ has a wrapper'
printf 'int f(char *p) { return atoi(p); }\n' >>src/text/text.h && expect banned 'atoi()'
printf 'int f(char *p) { return /* a */ sprintf (p, "x"); }\n' >>src/base/heap.c && expect banned 'sprintf(): never used here'
printf 'int f(void) {\n    /* malloc(\n    */ printf("");\n}\n' >>src/model/open.c && expect banned 'printf()'
printf 'int f(struct s *p) { return p->free(1) + q.malloc(2) + my_free(3); }\n' >>src/model/open.c && passes banned 'members and longer names'
sound_tree

printf '#include "model/model.h"\n' >>src/text/text.h && expect includes 'text/ must not include model/'
printf '#include "model/model.h"\n' >>src/base/heap.c && expect includes 'base/ must not include model/'
printf '#include "model/model_int.h"\n' >>src/engine/engine.h && expect includes 'only the face model/model.h'
printf '#include "base/heap.h"\n' >>src/model/open.c && expect includes 'only the face base/base.h'
printf '// x\n#pragma once\n' >src/base/plain.h && printf '#include "base/plain.h"\n' >>src/model/open.c && expect includes 'only the face base/base.h'
printf '// x\n#pragma once\n' >src/base/plain.h && printf '// x\n#include "base/plain.h"\n' >src/unit/cpu/k_avx2.c && passes includes 'kernels see plain.h'
sound_tree
printf '#include "unit/npu/npu.h"\n' >>src/unit/cpu/cpu_open.c && expect includes 'unit/cpu must not see unit/npu'
printf '#include "unit/cpu/cpu_open.h"\n' >>src/unit/unit.h && expect includes 'only the face of unit/cpu'
printf '#include "../base/base.h"\n' >>src/model/open.c && expect includes 'no way up'
printf '#include <sys/mman.h>\n' >>src/model/open.c && expect includes 'system headers belong to'
printf '#ifdef __linux__\n#endif\n' >>src/model/open.c && expect includes '#if on __linux'
printf '// x\n#include <string.h>\n#include "base/base.h"\n' >src/model/late.c && expect includes 'base/base.h must be the first'
printf '// x\n#include "model/model_int.h"\n' >src/model/late.c && expect includes 'base/base.h must be the first'
printf '// x\n#include "model/model.h"\n' >src/model/late.c && passes includes 'base.h through the own face'
printf '// x\n#include "model.h"\n' >src/model/late.c && passes includes 'base.h through a header beside the file'
sound_tree
printf '// x\n#include "base/base.h"\n#include "model/model.h"\n' >src/app/chat.c && expect includes 'app/ must not include model/'
printf '// x\n#include "base/base.h"\n#include "model/model.h"\n' >src/app/bench.c && passes includes 'bench sees what it measures'
sound_tree
mkdir src/extra && printf '// x\n' >src/extra/extra.h && expect includes 'not in the include table'

cp src/model/open.c src/text/open.c && expect names 'same name as'
printf '// x\n' >src/model/CamelCase.c && expect names 'not lower_snake_case'

body 69 >>src/model/open.c && expect sizes 'long_one() has 71 lines'
body 68 >>src/model/open.c && passes sizes 'a function of 70 lines'
sound_tree
{ printf '// flat: one case per opcode\n' && body 100; } >>src/model/open.c && passes sizes 'an exempt function'
{ printf 'static int z;\n' && body 100; } >>src/model/open.c && expect sizes 'long_one() has 102 lines'
body 100 >>src/unit/cpu/cpu_open.c && passes sizes 'a kernel file'
sound_tree
awk 'BEGIN { for (i = 0; i < 801; i++) print "int v" i ";" }' >>src/model/open.c && expect sizes 'over 800 the head comment must say why'
{ printf '// Long file: a table\n' && awk 'BEGIN { for (i = 0; i < 801; i++) print "int v" i ";" }'; } >src/model/long.c && passes sizes 'a long file with its reason'
awk 'BEGIN { for (i = 0; i < 1501; i++) print "int v" i ";" }' >>src/model/long.c && expect sizes '1,500 is the end'
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do awk -v k=$i 'BEGIN { for (i = 0; i < 260; i++) print "int v" k "_" i ";" }' >src/model/m$i.c; done
expect sizes 'the median file has'

printf 'size_t x;\n' >>src/model/model_int.h && expect headers 'src/model/model_int.h: does not compile alone'
printf '// x\nint y;\n' >src/model/nopragma.h && expect headers 'no #pragma once'
printf 'TERN_1 {\nglobal:\n    tern_gone;\n};\n' >src/tern.map && expect headers 'src/tern.map must list'
if command -v c++ >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1; then
    printf 'int class(int new);\n' >>include/tern.h && expect headers 'does not compile as C++'
fi

printf 'other\n' >models/small.gguf && expect files 'not what models/SHA256SUMS says'
printf 'x\n' >models/more.gguf && expect files 'not in models/SHA256SUMS'
head -c 1048577 /dev/zero >src/model/blob.bin && expect files '1 MiB at most'

passes format 'as it is'
printf 'int   f( void ){return 0 ;}\n' >>src/model/open.c
"$tools/check_format.sh" "$work/t" >/dev/null 2>&1
[ $? = 77 ] || expect format 'not in format'

echo "$n cases, $failed wrong"
[ $failed = 0 ]
