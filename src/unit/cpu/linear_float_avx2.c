// The float linear kernels for AVX2: a tile's 16 outputs are two registers.
#include "base/base.h"
#include <immintrin.h>

#define LINEAR_ISA avx2
#define LINEAR_ROWS 4
#define LINEAR_PREFETCH 1024
#include "unit/cpu/linear_common.h"

typedef struct {
    __m256 a, b;
} vec_f;

static inline vec_f vec_f_zero(void) { return (vec_f){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline vec_f vec_f_dup(const void *p) {
    const __m256 v = _mm256_broadcast_ss(p);
    return (vec_f){v, v};
}
static inline vec_f vec_f_load(const void *p) {
    return (vec_f){_mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8)};
}
static inline void vec_f_store(void *p, vec_f v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps((float *)p + 8, v.b);
}
static inline __m128i half_line(const uint8_t *p) { return _mm_load_si128((const __m128i *)(const void *)p); }
static inline vec_f vec_f_half(const uint8_t *p) {
    return (vec_f){_mm256_cvtph_ps(half_line(p)), _mm256_cvtph_ps(half_line(p + 16))};
}
static inline __m256 bf16_widen(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
static inline vec_f vec_f_bf16(const uint8_t *p) {
    return (vec_f){bf16_widen(half_line(p)), bf16_widen(half_line(p + 16))};
}
static inline vec_f vec_f_fma(vec_f a, vec_f b, vec_f c) {
    return (vec_f){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)};
}

#include "unit/cpu/linear_float.inc"
