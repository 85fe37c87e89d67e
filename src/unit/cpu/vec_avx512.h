// Sixteen floats as one vector, on AVX-512: the words in which rows_vec.inc and attention_vec.inc are written. The same
// set exists for AVX2 (two registers) and NEON (four); sixteen is OP_LANES, so sums over a row fold alike everywhere.
#pragma once
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>
#include "op/op_math.h"

#define VEC_SCORE_QUERIES 8 // queries that share one pass over K: 16 accumulators
#define VEC_VALUE_QUERIES 4 // queries and channel vectors of one pass over V: 16 accumulators
#define VEC_VALUE_CHANNELS 4

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline vm vm_first(int n) { return (vm)((1u << n) - 1u); } // lanes 0 … n-1, n ≤ 16
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf vf_loadn(const float *p, int n) { return _mm512_maskz_loadu_ps(vm_first(n), p); } // then zeros
static inline void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline void vf_storen(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, vm_first(n), v); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); } // a * b + c
static inline vf vf_neg(vf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vm vm_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vm vm_gt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline vm vm_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); } // m ? a : b
static inline float vf_fold(vf v) {                                                    // halves: 8, 4, 2, 1
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
#define VEC_SIXTEEN // sixteen vectors folded side by side: two halves of two of them in every step
#define VF_FOLD_EACH(op)                                                                                           \
    vf t[8], u[4], p[2];                                                                                           \
    for (int i = 0; i < 8; i++)                                                                                    \
        t[i] = op(_mm512_shuffle_f32x4(v[i], v[i + 8], 0x44), _mm512_shuffle_f32x4(v[i], v[i + 8], 0xee));         \
    for (int i = 0; i < 4; i++)                                                                                    \
        u[i] = op(_mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd));         \
    for (int i = 0; i < 2; i++) p[i] = op(_mm512_unpacklo_ps(u[i], u[i + 2]), _mm512_unpackhi_ps(u[i], u[i + 2])); \
    const vf all = op(_mm512_shuffle_ps(p[0], p[1], 0x44), _mm512_shuffle_ps(p[0], p[1], 0xee));                   \
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15), all)
static inline vf vf_fold_each(const vf v[16]) { VF_FOLD_EACH(_mm512_add_ps); }    // lane i: vf_fold(v[i])
static inline vf vf_largest_each(const vf v[16]) { VF_FOLD_EACH(_mm512_max_ps); } // lane i: vf_largest(v[i])
static inline float vf_largest(vf v) { return _mm512_reduce_max_ps(v); }
// The float `offset` bytes behind each of n addresses, n ≤ 16, then zeros. Loaded as a vector behind sixteen stores it
// would wait for these.
static inline vf vf_gather(const void *const *at, int n, size_t offset) {
    const vm m = vm_first(n);
    const __m512i add = _mm512_set1_epi64((long long)offset);
    const __m512i lo = _mm512_maskz_loadu_epi64((__mmask8)m, at),
                  hi = _mm512_maskz_loadu_epi64((__mmask8)(m >> 8), at + 8);
    const __m256 none = _mm256_setzero_ps();
    return _mm512_insertf32x8(
        _mm512_castps256_ps512(_mm512_mask_i64gather_ps(none, (__mmask8)m, _mm512_add_epi64(lo, add), NULL, 1)),
        _mm512_mask_i64gather_ps(none, (__mmask8)(m >> 8), _mm512_add_epi64(hi, add), NULL, 1), 1);
}
static inline vf vf_scale2(vf y, vf n) { return _mm512_scalef_ps(y, n); } // y * 2^n, n whole, rounded once
static inline vf vf_scale2_above(vf x, vf low, vf y, vf n) {              // x < low ? 0 : y * 2^n
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), y, n);
}
static inline vf vf_load_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline void vf_store_f16(uint8_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_load_i8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static inline vi vf_bits(vf v) { return _mm512_castps_si512(v); }
static inline vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi vi_ramp(void) { return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
static inline vi vi_select(vm m, vi a, vi b) { return _mm512_mask_blend_epi32(m, b, a); }
static inline int32_t vi_largest(vi v) { return _mm512_reduce_max_epi32(v); }
static inline int32_t vi_sum(vi v) { return _mm512_reduce_add_epi32(v); }
static inline void vi_store(int32_t *p, vi v) { _mm512_storeu_si512(p, v); }
static inline vi vf_round(vf v) { return _mm512_cvtps_epi32(v); } // nearest, ties to even
static inline void vi_store_i8(int8_t *p, vi v) { _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(v)); }
#endif
