// Private to unit/cpu: the 16 floats of a tile's outputs in AVX-512. Shared by the int8 and the float kernels.
#pragma once
#include <immintrin.h>
#include "base/base.h"

typedef __m512 vec_f;

static inline vec_f vec_f_zero(void) { return _mm512_setzero_ps(); }
static inline vec_f vec_f_dup(const void *p) { return _mm512_set1_ps(f32_from_bits(load_u32(p))); }
static inline vec_f vec_f_load(const void *p) { return _mm512_loadu_ps(p); }
static inline void vec_f_store(void *p, vec_f v) { _mm512_storeu_ps(p, v); }
static inline vec_f vec_f_half(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)p));
}
static inline vec_f vec_f_fma(vec_f a, vec_f b, vec_f c) { return _mm512_fmadd_ps(a, b, c); }
