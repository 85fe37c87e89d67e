// Private to unit/cpu: the vectors of a tile in AVX-512, one register each. Shared by the int8, the tile-register and
// the float kernels; the int8 ones add their dot product.
#pragma once
#include <immintrin.h>
#include "base/plain.h"

typedef __m512 vec_f;
typedef __m512i vec_w;
typedef __m512i vec_i;

static inline vec_f vec_f_zero(void) { return _mm512_setzero_ps(); }
static inline vec_f vec_f_dup(const void *p) { return _mm512_set1_ps(f32_from_bits(load_u32(p))); }
static inline vec_f vec_f_load(const void *p) { return _mm512_loadu_ps(p); }
static inline void vec_f_store(void *p, vec_f v) { _mm512_storeu_ps(p, v); }
static inline vec_f vec_f_half(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)p));
}
static inline vec_f vec_f_bf16(const uint8_t *p) {
    const __m256i v = _mm256_load_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
static inline vec_f vec_f_fma(vec_f a, vec_f b, vec_f c) { return _mm512_fmadd_ps(a, b, c); }

static inline vec_w vec_w_load(const uint8_t *p) { return _mm512_load_si512(p); }
static inline vec_w vec_w_low(vec_w v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
static inline vec_w vec_w_high(vec_w v) { return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15)); }
// Bits 2f, 2f + 1 of each byte.
static inline vec_w vec_w_pair(vec_w v, int f) {
    return _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)(2 * f)), _mm512_set1_epi8(3));
}
// Bytes below 16 by their entries of a table.
static inline vec_w vec_w_look_up(vec_w v, const uint8_t *table) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)table)), v);
}
// low | bit q of h as bit `to`.
static inline vec_w vec_w_or_bit(vec_w low, vec_w h, int q, int to) {
    const vec_w bit = q < to ? _mm512_slli_epi16(h, (unsigned)(to - q)) : _mm512_srli_epi16(h, (unsigned)(q - to));
    return _mm512_ternarylogic_epi64(low, bit, _mm512_set1_epi8((char)(1 << to)), 0xf8); // a | (b & c)
}
// low | bits 2f, 2f + 1 of h as the fifth and sixth.
static inline vec_w vec_w_or_pair(vec_w low, vec_w h, int f) {
    const vec_w pair =
        f < 2 ? _mm512_slli_epi16(h, (unsigned)(4 - 2 * f)) : _mm512_srli_epi16(h, (unsigned)(2 * f - 4));
    return _mm512_ternarylogic_epi64(low, pair, _mm512_set1_epi8(48), 0xf8);
}

static inline vec_i vec_i_zero(void) { return _mm512_setzero_si512(); }
static inline vec_i vec_i_dup(const void *p) { return _mm512_set1_epi32((int32_t)load_u32(p)); }
static inline vec_i vec_i_load(const void *p) { return _mm512_loadu_si512(p); }
static inline void vec_i_store(void *p, vec_i v) { _mm512_storeu_si512(p, v); }
static inline vec_i vec_i_add(vec_i a, vec_i b) { return _mm512_add_epi32(a, b); }

static inline vec_f vec_f_u8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)p)));
}
static inline vec_f vec_f_s8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)p)));
}
static inline vec_f vec_f_u4_low(const uint8_t *p) {
    const __m512i v = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)p));
    return _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32(15)));
}
static inline vec_f vec_f_u4_high(const uint8_t *p) {
    const __m512i v = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)p));
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(v, 4));
}
static inline vec_f vec_f_negate(vec_f v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }
static inline vec_f vec_f_mul(vec_f a, vec_f b) { return _mm512_mul_ps(a, b); }
static inline vec_f vec_f_from_i(vec_i v) { return _mm512_cvtepi32_ps(v); }
