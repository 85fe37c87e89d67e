// The float linear kernels for AVX-512.
#include "base/base.h"

#define LINEAR_ISA avx512
#define LINEAR_ROWS 16
#define LINEAR_ACCS 24
#define LINEAR_PREFETCH 4096
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx512.h"

static inline vec_f vec_f_bf16(const uint8_t *p) {
    const __m256i v = _mm256_load_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

#include "unit/cpu/linear_float.inc"
