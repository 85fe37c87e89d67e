// The int8 linear kernels in plain C: lanes are arrays, which compilers vectorise as far as the base instruction set
// goes. fmaf is the library's where the machine's base set has no fused multiply-add.
#include "base/plain.h"

#define LINEAR_ISA scalar
#define LINEAR_ROWS 4
#define UNROLL
#define LINEAR_INLINE inline
#define LINEAR_TURNS 1
#define LINEAR_QUADS 8
#define LINEAR_PREFETCH 1024
#define LINEAR_SIGNED_BYTES 0 // vec_dot takes 8-bit weights as they are packed
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_scalar.h"

static LINEAR_INLINE vec_i vec_dot(vec_i acc, const vec_w *w, int n, const int8_t *x, int bits) {
    (void)bits;
    UNROLL
    for (int q = 0; q < n; q++) {
        LANES {
            const uint8_t *v = &w[q].v[4 * i];
            acc.v[i] += v[0] * x[4 * q] + v[1] * x[4 * q + 1] + v[2] * x[4 * q + 2] + v[3] * x[4 * q + 3];
        }
    }
    return acc;
}

#include "unit/cpu/linear_int8.inc"
