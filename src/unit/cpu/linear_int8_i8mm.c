// The int8 linear kernels for NEON with the matrix instruction: a product of two rows of activations with two outputs
// over eight k at once, twice the work of a dot product. The hottest packs; the others stay with linear_int8_neondot.c.
#include "base/plain.h"

#define LINEAR_ISA i8mm
#define LINEAR_ROWS 4
#define LINEAR_TURNS 2
#define LINEAR_QUADS 8
#define LINEAR_PREFETCH 2048
#define LINEAR_SIGNED_BYTES 1 // vec_dot takes 8-bit weights as signed: the packed offset is undone there
#define LINEAR_PAIRED 1       // two rows share a product
#define LINEAR_PACKS(X) X(Q4_0, q4_0) X(Q8_0, q8_0) X(Q4_K, q4_k) X(Q6_K, q6_k) X(I8C, i8c)
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_neon.h"

// A row alone: acc + the products of n quads of values with `bits` bits.
static LINEAR_INLINE vec_i vec_dot(vec_i acc, const vec_w *w, int n, const int8_t *x, int bits) {
    UNROLL
    for (int q = 0; q < n; q++) {
        const int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32((int32_t)load_u32(x + 4 * q)));
        QUARTERS acc.r[i] = vdotq_s32(acc.r[i], weight_signed(w[q].r[i], bits), v);
    }
    return acc;
}

// Two rows at once, over an even number of quads. Two quads of four outputs, woven, are twice eight k of two outputs;
// a product leaves | row 0: output 0, 1 | row 1: output 0, 1 |, which is sorted at the end.
static LINEAR_INLINE void vec_dot2(vec_i *acc0, vec_i *acc1, const vec_w *w, int n, const int8_t *x0, const int8_t *x1,
                                   int bits) {
    vec_i low = vec_i_zero(), high = vec_i_zero(); // outputs 0, 1 and 2, 3 of each quarter
    UNROLL
    for (int q = 0; q < n; q += 2) {
        const int8x16_t v = vcombine_s8(vld1_s8(x0 + 4 * q), vld1_s8(x1 + 4 * q));
        QUARTERS {
            const int32x4_t a = vreinterpretq_s32_s8(weight_signed(w[q].r[i], bits));
            const int32x4_t b = vreinterpretq_s32_s8(weight_signed(w[q + 1].r[i], bits));
            low.r[i] = vmmlaq_s32(low.r[i], v, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
            high.r[i] = vmmlaq_s32(high.r[i], v, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
        }
    }
    QUARTERS {
        const int64x2_t l = vreinterpretq_s64_s32(low.r[i]), h = vreinterpretq_s64_s32(high.r[i]);
        acc0->r[i] = vaddq_s32(acc0->r[i], vreinterpretq_s32_s64(vtrn1q_s64(l, h)));
        acc1->r[i] = vaddq_s32(acc1->r[i], vreinterpretq_s32_s64(vtrn2q_s64(l, h)));
    }
}

#include "unit/cpu/linear_int8.inc"
