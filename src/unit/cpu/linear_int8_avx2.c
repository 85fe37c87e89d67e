// The int8 linear kernels for AVX2: a quad line is two registers.
//
// VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits, saturating. With values of b bits and
// |x| <= 127 the pair reaches 2 * 2^b * 127: packs of up to 6 bits never saturate, and 8 (to 4 bits), 4 and 2 pairs are
// added in 16 bits before they are widened. For 8 bits the signs are moved from the weight to the activation
// (|w| * sign(w) x), where a pair reaches 2 * 128 * 127 = 32,512: exact, too, since activations are never -128.
#include "base/plain.h"

#define LINEAR_ISA avx2
#define LINEAR_ROWS 4
#define LINEAR_TURNS 1
#define LINEAR_QUADS 8
#define LINEAR_PREFETCH 4096
#define LINEAR_SIGNED_BYTES 1 // vec_dot takes 8-bit weights as signed: the packed offset is undone there
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx2.h"

typedef struct {
    __m256i a, b;
} vec_w;
typedef struct {
    __m256i a, b;
} vec_i;

static inline __m256i line_half(const void *p) { return _mm256_loadu_si256(p); }
static inline vec_w vec_w_load(const uint8_t *p) { return (vec_w){line_half(p), line_half(p + 32)}; }
static inline vec_w vec_w_low(vec_w v) {
    const __m256i m = _mm256_set1_epi8(15);
    return (vec_w){_mm256_and_si256(v.a, m), _mm256_and_si256(v.b, m)};
}
static inline vec_w vec_w_high(vec_w v) {
    return vec_w_low((vec_w){_mm256_srli_epi16(v.a, 4), _mm256_srli_epi16(v.b, 4)});
}
// low | (h shifted left by n, or right by -n) & mask
static inline vec_w or_shifted(vec_w low, vec_w h, int n, int mask) {
    const __m256i m = _mm256_set1_epi8((char)mask);
    const __m256i a = n > 0 ? _mm256_slli_epi16(h.a, n) : _mm256_srli_epi16(h.a, -n);
    const __m256i b = n > 0 ? _mm256_slli_epi16(h.b, n) : _mm256_srli_epi16(h.b, -n);
    return (vec_w){_mm256_or_si256(low.a, _mm256_and_si256(a, m)), _mm256_or_si256(low.b, _mm256_and_si256(b, m))};
}
static inline vec_w vec_w_or_bit(vec_w low, vec_w h, int q, int to) { return or_shifted(low, h, to - q, 1 << to); }
static inline vec_w vec_w_pair(vec_w v, int f) {
    const __m256i m = _mm256_set1_epi8(3);
    return (vec_w){_mm256_and_si256(_mm256_srli_epi16(v.a, 2 * f), m),
                   _mm256_and_si256(_mm256_srli_epi16(v.b, 2 * f), m)};
}
static inline vec_w vec_w_look_up(vec_w v, const uint8_t *table) {
    const __m256i t = _mm256_broadcastsi128_si256(line_quarter(table));
    return (vec_w){_mm256_shuffle_epi8(t, v.a), _mm256_shuffle_epi8(t, v.b)};
}
static inline vec_w vec_w_or_pair(vec_w low, vec_w h, int f) { return or_shifted(low, h, 4 - 2 * f, 48); }

static inline vec_i vec_i_zero(void) { return (vec_i){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline vec_i vec_i_dup(const void *p) {
    const __m256i v = _mm256_set1_epi32((int32_t)load_u32(p));
    return (vec_i){v, v};
}
static inline vec_i vec_i_load(const void *p) { return (vec_i){line_half(p), line_half((const uint8_t *)p + 32)}; }
static inline void vec_i_store(void *p, vec_i v) {
    _mm256_storeu_si256(p, v.a);
    _mm256_storeu_si256((__m256i *)p + 1, v.b);
}
static inline vec_i vec_i_add(vec_i x, vec_i y) {
    return (vec_i){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}

static inline vec_f from_u8(__m128i v) {
    return (vec_f){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
                   _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}
static inline vec_f vec_f_u8(const uint8_t *p) { return from_u8(line_quarter(p)); }
static inline vec_f vec_f_u4_low(const uint8_t *p) {
    return from_u8(_mm_and_si128(line_quarter(p), _mm_set1_epi8(15)));
}
static inline vec_f vec_f_u4_high(const uint8_t *p) {
    return from_u8(_mm_and_si128(_mm_srli_epi16(line_quarter(p), 4), _mm_set1_epi8(15)));
}
static inline vec_f vec_f_s8(const uint8_t *p) {
    const __m128i v = line_quarter(p);
    return (vec_f){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
                   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))};
}
static inline vec_f vec_f_negate(vec_f v) {
    const __m256 s = _mm256_set1_ps(-0.0f);
    return (vec_f){_mm256_xor_ps(v.a, s), _mm256_xor_ps(v.b, s)};
}
static inline vec_f vec_f_mul(vec_f x, vec_f y) { return (vec_f){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline vec_f vec_f_from_i(vec_i v) { return (vec_f){_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }

static LINEAR_INLINE __m256i widen_add(__m256i acc, __m256i pairs) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// acc + the products of n quads of values with `bits` bits. 8-bit values carry an offset of 128 here, which the
// accumulator's start takes off: it is put back for the signed product.
static LINEAR_INLINE vec_i vec_dot(vec_i acc, const vec_w *w, int n, const int8_t *x, int bits) {
    if (bits == 8) {
        const __m256i top = _mm256_set1_epi8((char)128);
        UNROLL
        for (int q = 0; q < n; q++) {
            const __m256i v = _mm256_set1_epi32((int32_t)load_u32(x + 4 * q));
            const __m256i a = _mm256_xor_si256(w[q].a, top), b = _mm256_xor_si256(w[q].b, top);
            acc.a = widen_add(acc.a, _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(v, a)));
            acc.b = widen_add(acc.b, _mm256_maddubs_epi16(_mm256_abs_epi8(b), _mm256_sign_epi8(v, b)));
        }
        return acc;
    }
    const int n_pairs = MIN(bits <= 4 ? 8 : bits == 5 ? 4 : 2, n);
    UNROLL
    for (int q = 0; q < n; q += n_pairs) {
        __m256i a = _mm256_setzero_si256(), b = a;
        UNROLL
        for (int i = q; i < q + n_pairs; i++) {
            const __m256i v = _mm256_set1_epi32((int32_t)load_u32(x + 4 * i));
            a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w[i].a, v));
            b = _mm256_add_epi16(b, _mm256_maddubs_epi16(w[i].b, v));
        }
        acc.a = widen_add(acc.a, a);
        acc.b = widen_add(acc.b, b);
    }
    return acc;
}

#include "unit/cpu/linear_int8.inc"
