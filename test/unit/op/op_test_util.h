// Shared by the tests of op/: cmocka and a small generator of numbers.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include "op/op.h"

static inline uint32_t rng_next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}
// Uniform in [-1, 1).
static inline float rng_float(uint64_t *state) { return (float)(int32_t)rng_next(state) * 0x1p-31f; }
static inline void rng_fill(uint64_t *state, float *x, int n, float scale) {
    for (int i = 0; i < n; i++) x[i] = rng_float(state) * scale;
}
// Equal bits, except that any NaN equals any NaN.
static inline void assert_same_float(float a, float b) {
    if (a != a && b != b) return;
    assert_int_equal(f32_bits(a), f32_bits(b));
}
