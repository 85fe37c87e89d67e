// Private to unit/cpu: what the arithmetic of this CPU can do at most, measured by loops of one instruction.
//
// Twelve independent chains of the instruction hide its latency on any core of today (4–5 cycles times two ports need
// ten); the empty asm keeps the compiler from folding equal products. Operands are in registers: no memory is read.
#pragma once
#include "base/base.h"

#define PEAK_CHAINS 12

// A peak's loop: n times PEAK_CHAINS instructions. The result depends on all of them, so that nothing is left out.
typedef int32_t peak_fn(uint64_t n);
peak_fn peak_int8__avx2, peak_fp32__avx2, peak_fp32__avx512, peak_int8__avx512vnni, peak_bf16__avx512bf16,
    peak_int8__amx, peak_bf16__amx, peak_fp32__neon, peak_int8__neondot;

// ALL(STEP): one instruction for every chain.
#define PEAK_ALL(STEP) STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11)

// Defines a peak's loop. TYPE: of the sums, ZERO its start; OPERANDS: declares what STEP uses and KEEP touches.
#define PEAK_LOOP(NAME, TYPE, ZERO, OPERANDS, KEEP, STEP)          \
    int32_t NAME(uint64_t n) {                                     \
        TYPE s[PEAK_CHAINS];                                       \
        for (int i = 0; i < PEAK_CHAINS; i++) s[i] = ZERO;         \
        OPERANDS;                                                  \
        for (uint64_t k = 0; k < n; k++) {                         \
            KEEP;                                                  \
            PEAK_ALL(STEP)                                         \
        }                                                          \
        int32_t sum = 0;                                           \
        for (int i = 0; i < PEAK_CHAINS; i++) {                    \
            int32_t v[sizeof(TYPE) / sizeof(int32_t)];             \
            memcpy(v, &s[i], sizeof v);                            \
            for (size_t j = 0; j < ARRAY_LEN(v); j++) sum ^= v[j]; \
        }                                                          \
        return sum;                                                \
    }
