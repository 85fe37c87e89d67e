// The int8 linear kernels for AVX-512 VNNI: a quad line is one register, a product with four activation bytes of every
// output one instruction, whose operand is broadcast from memory.
#include "base/base.h"

#define LINEAR_ISA avx512vnni
#define LINEAR_ROWS 16 // 8 registers of weights, 16 accumulators, the rest for scales and sums in flight
#define LINEAR_TURNS 8 // 512 rows of Q4_0 (linear_bench, Sapphire Rapids): 411 GOP/s with 1, 419 with 4, 451 with 8
#define LINEAR_QUADS 1
#define LINEAR_PREFETCH 4096  // one row of Q4_0: 11.9 GB/s with 512, 13.2 with 1024, 14.5 with 2048, 15.0 with 4096
#define LINEAR_SIGNED_BYTES 0 // vec_dot takes 8-bit weights as they are packed
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx512.h"

typedef __m512i vec_w;
typedef __m512i vec_i;

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

// acc + the products of n quads. In assembly, since gcc 12 loads the broadcast into a register of its own, and the
// processor then runs out of registers for rows in flight: 340 instead of 530 GOP/s at 64 rows of Q4_0 (Sapphire
// Rapids, peak 745).
static LINEAR_INLINE vec_i vec_dot(vec_i acc, const vec_w *w, int n, const int8_t *x, int bits) {
    (void)bits;
    UNROLL
    for (int q = 0; q < n; q++) {
        __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w[q]), "m"(*(const int8_t(*)[4])(x + 4 * q)));
    }
    return acc;
}

#include "unit/cpu/linear_int8.inc"
