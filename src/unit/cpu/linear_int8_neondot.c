// The int8 linear kernels for NEON with the dot-product instructions: 16 bytes of a quad line are one operand.
#include "base/plain.h"

#define LINEAR_ISA neondot
#define LINEAR_ROWS 4
#define LINEAR_TURNS 1
#define LINEAR_QUADS 8
#define LINEAR_PREFETCH 2048
#define LINEAR_SIGNED_BYTES 1 // vec_dot takes 8-bit weights as signed: the packed offset is undone there
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_neon.h"

// acc + the products of n quads of values with `bits` bits.
static LINEAR_INLINE vec_i vec_dot(vec_i acc, const vec_w *w, int n, const int8_t *x, int bits) {
    UNROLL
    for (int q = 0; q < n; q++) {
        const int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32((int32_t)load_u32(x + 4 * q)));
        QUARTERS acc.r[i] = vdotq_s32(acc.r[i], weight_signed(w[q].r[i], bits), v);
    }
    return acc;
}

#include "unit/cpu/linear_int8.inc"
