// The linear kernels of the bf16 class for AVX-512 BF16: a line of 16 pairs is one register, a product with a pair of
// activations one instruction, whose operand is broadcast from memory.
#include "base/plain.h"

#define LINEAR_ISA avx512bf16
#define LINEAR_ROWS 16
#define LINEAR_ACCS 24
#define LINEAR_PREFETCH 4096
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx512.h"

// In assembly for the reason of linear_int8_avx512vnni.c: the broadcast stays an operand.
static LINEAR_INLINE vec_f vec_f_dot(vec_f acc, vec_f w, const uint32_t *pair) {
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*pair));
    return acc;
}

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

#include "unit/cpu/linear_bf16.inc"
