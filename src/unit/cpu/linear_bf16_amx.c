// The linear kernels of the bf16 class for AMX.
#include "base/plain.h"

#define LINEAR_ISA amx
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx512.h"
#include "unit/cpu/tile_amx.h"

// The instruction takes subnormal numbers for zero and keeps NaN, as op_bf16_round.
static inline void row_round(const float *x, int n, uint16_t *out) {
    for (int i = 0; i < n; i += 16) {
        const __mmask16 m = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1u);
        const __m256bh v = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, x + i));
        __m256i bits;
        memcpy(&bits, &v, sizeof(bits));
        _mm256_mask_storeu_epi16(out + i, m, bits);
    }
}

#include "unit/cpu/linear_bf16_tiles.inc"
