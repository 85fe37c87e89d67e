// Private to unit/cpu: what the arithmetic of this CPU can do at most, measured by loops of one instruction.
//
// Twelve independent chains of the instruction hide its latency on any core of today (4–5 cycles times two ports need
// ten); the empty asm keeps the compiler from folding equal products. Operands are in registers: no memory is read.
#pragma once
#include "base/plain.h"

#define PEAK_CHAINS 12

// A peak's loop: n times PEAK_CHAINS instructions. The result depends on all of them, so that nothing is left out.
typedef int32_t peak_fn(uint64_t n);
peak_fn peak_int8__avx2, peak_fp32__avx2, peak_fp32__avx512, peak_int8__avx512vnni, peak_bf16__avx512bf16,
    peak_int8__amx, peak_bf16__amx, peak_fp32__neon, peak_int8__neondot;
// Reads n bytes (a multiple of PEAK_READ_GRAIN) and sums them as words.
typedef uint64_t peak_read_fn(const void *data, size_t n);
peak_read_fn peak_read__scalar, peak_read__avx2, peak_read__avx512;
#define PEAK_READ_STREAMS 4
#define PEAK_READ_GRAIN (64 * PEAK_READ_STREAMS)
#define PEAK_READ_AHEAD 2048 // bytes: 1,024 to 4,096 were equally good on a Xeon (Sapphire Rapids), 2026-11

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

// Defines a reader with vectors of WIDTH bytes. Several streams, fetched ahead by hand: one alone leaves the memory of
// a Xeon (Sapphire Rapids, two threads, 2026-11) at 30 of 37 GB/s.
#define PEAK_READ(NAME, WIDTH)                                                         \
    uint64_t NAME(const void *data, size_t n) {                                        \
        typedef uint64_t vec __attribute__((vector_size(WIDTH)));                      \
        enum { VECS = 64 / (WIDTH) };                                                  \
        const char *p = data;                                                          \
        size_t part = n / PEAK_READ_STREAMS;                                           \
        vec sums[PEAK_READ_STREAMS][VECS] = {0};                                       \
        for (size_t at = 0; at < part; at += 64)                                       \
            for (int s = 0; s < PEAK_READ_STREAMS; s++) {                              \
                const vec *v = (const vec *)(const void *)(p + (size_t)s * part + at); \
                __builtin_prefetch(p + (size_t)s * part + at + PEAK_READ_AHEAD);       \
                for (int i = 0; i < VECS; i++) sums[s][i] += v[i];                     \
            }                                                                          \
        uint64_t sum = 0, words[sizeof sums / sizeof(uint64_t)];                       \
        memcpy(words, sums, sizeof sums);                                              \
        for (size_t i = 0; i < ARRAY_LEN(words); i++) sum += words[i];                 \
        return sum;                                                                    \
    }
