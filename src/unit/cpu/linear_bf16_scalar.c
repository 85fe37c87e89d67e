// The linear kernels of the bf16 class in plain C: the arithmetic of VDPBF16PS for machines without it, which is slow.
#include "base/plain.h"

#define LINEAR_ISA scalar
#define LINEAR_ROWS 4
#define LINEAR_ACCS 4
#define UNROLL
#define LINEAR_INLINE inline
#define LINEAR_PREFETCH 1024
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_scalar.h"

static inline float flush(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }

static inline vec_f vec_f_dot(vec_f acc, vec_f w, const uint32_t *pair) {
    const float low = flush(f32_from_bits(*pair << 16)), high = flush(f32_from_bits(*pair & 0xffff0000u));
    LANES {
        const uint32_t bits = f32_bits(w.v[i]);
        const float sum = flush(fmaf(flush(f32_from_bits(bits & 0xffff0000u)), high, acc.v[i]));
        acc.v[i] = flush(fmaf(flush(f32_from_bits(bits << 16)), low, sum));
    }
    return acc;
}

static inline void row_round(const float *x, int n, uint16_t *out) {
    for (int i = 0; i < n; i++) out[i] = op_bf16_round(x[i]);
}

#include "unit/cpu/linear_bf16.inc"
