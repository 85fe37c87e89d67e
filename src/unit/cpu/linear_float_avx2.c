// The float linear kernels for AVX2: a tile's 16 outputs are two registers.
#include "base/base.h"

#define LINEAR_ISA avx2
#define LINEAR_ROWS 6
#define LINEAR_ACCS 6
#define LINEAR_PREFETCH 4096
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx2.h"

static inline __m256 bf16_widen(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
static inline vec_f vec_f_bf16(const uint8_t *p) {
    return (vec_f){bf16_widen(line_quarter(p)), bf16_widen(line_quarter(p + 16))};
}

#include "unit/cpu/linear_float.inc"
