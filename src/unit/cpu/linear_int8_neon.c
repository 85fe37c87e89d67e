// The int8 linear kernels for plain NEON: products widen to 16 bits, neighbours are added into 32.
#include "base/plain.h"

#define LINEAR_ISA neon
#define LINEAR_ROWS 4
#define LINEAR_TURNS 1
#define LINEAR_QUADS 8
#define LINEAR_PREFETCH 2048
#define LINEAR_SIGNED_BYTES 1 // vec_dot takes 8-bit weights as signed: the packed offset is undone there
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_neon.h"

// acc + the products of n quads of values with `bits` bits. Each output's four products end up in two neighbouring
// lanes, which are added at the end.
static LINEAR_INLINE vec_i vec_dot(vec_i acc, const vec_w *w, int n, const int8_t *x, int bits) {
    vec_i low = vec_i_zero(), high = vec_i_zero(); // outputs 0, 1 and 2, 3 of each quarter
    UNROLL
    for (int q = 0; q < n; q++) {
        const int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32((int32_t)load_u32(x + 4 * q)));
        QUARTERS {
            const int8x16_t s = weight_signed(w[q].r[i], bits);
            low.r[i] = vpadalq_s16(low.r[i], vmull_s8(vget_low_s8(s), vget_low_s8(v)));
            high.r[i] = vpadalq_s16(high.r[i], vmull_high_s8(s, v));
        }
    }
    QUARTERS acc.r[i] = vaddq_s32(acc.r[i], vpaddq_s32(low.r[i], high.r[i]));
    return acc;
}

#include "unit/cpu/linear_int8.inc"
