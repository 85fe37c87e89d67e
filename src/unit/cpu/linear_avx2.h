// Private to unit/cpu: the 16 floats of a tile's outputs in AVX2, two registers. Shared by the int8 and the float
// kernels.
#pragma once
#include <immintrin.h>
#include "base/plain.h"

typedef struct {
    __m256 a, b;
} vec_f;

static inline __m128i line_quarter(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
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
static inline vec_f vec_f_half(const uint8_t *p) {
    return (vec_f){_mm256_cvtph_ps(line_quarter(p)), _mm256_cvtph_ps(line_quarter(p + 16))};
}
static inline __m256 bf16_widen(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
static inline vec_f vec_f_bf16(const uint8_t *p) {
    return (vec_f){bf16_widen(line_quarter(p)), bf16_widen(line_quarter(p + 16))};
}
static inline vec_f vec_f_fma(vec_f x, vec_f y, vec_f z) {
    return (vec_f){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
