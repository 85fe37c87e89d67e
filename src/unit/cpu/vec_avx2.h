// Sixteen floats as two AVX2 registers; the words are explained in vec_avx512.h.
#pragma once
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#include <string.h>
#include "op/op_math.h"

#define VEC_SCORE_QUERIES 2 // 8 accumulators of 16 registers
#define VEC_VALUE_QUERIES 2
#define VEC_VALUE_CHANNELS 2

typedef struct {
    __m256 lo, hi;
} vf;
typedef struct {
    __m256i lo, hi;
} vi;
typedef vi vm; // all bits of a lane, or none

static inline vf vf_make(__m256 lo, __m256 hi) { return (vf){lo, hi}; }
static inline vi vi_make(__m256i lo, __m256i hi) { return (vi){lo, hi}; }
static inline vi vi_set1(int32_t x) { return vi_make(_mm256_set1_epi32(x), _mm256_set1_epi32(x)); }
static inline vi vi_ramp(void) {
    return vi_make(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
}
static inline vm vm_first(int n) {
    __m256i limit = _mm256_set1_epi32(n);
    vi ramp = vi_ramp();
    return vi_make(_mm256_cmpgt_epi32(limit, ramp.lo), _mm256_cmpgt_epi32(limit, ramp.hi));
}
static inline vf vf_load(const float *p) { return vf_make(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
static inline vf vf_loadn(const float *p, int n) {
    vm m = vm_first(n);
    return vf_make(_mm256_maskload_ps(p, m.lo), n > 8 ? _mm256_maskload_ps(p + 8, m.hi) : _mm256_setzero_ps());
}
static inline void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
static inline void vf_storen(float *p, vf v, int n) {
    vm m = vm_first(n);
    _mm256_maskstore_ps(p, m.lo, v.lo);
    if (n > 8) _mm256_maskstore_ps(p + 8, m.hi, v.hi);
}
static inline vf vf_set1(float x) { return vf_make(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
static inline vf vf_zero(void) { return vf_make(_mm256_setzero_ps(), _mm256_setzero_ps()); }
static inline vf vf_add(vf a, vf b) { return vf_make(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)); }
static inline vf vf_sub(vf a, vf b) { return vf_make(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)); }
static inline vf vf_mul(vf a, vf b) { return vf_make(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)); }
static inline vf vf_div(vf a, vf b) { return vf_make(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)); }
static inline vf vf_fma(vf a, vf b, vf c) {
    return vf_make(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
static inline vf vf_neg(vf a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return vf_make(_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign));
}
static inline vf vf_max(vf a, vf b) { return vf_make(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)); }
#define VM_CMP(a, b, op)                                            \
    vi_make(_mm256_castps_si256(_mm256_cmp_ps((a).lo, (b).lo, op)), \
            _mm256_castps_si256(_mm256_cmp_ps((a).hi, (b).hi, op)))
static inline vm vm_lt(vf a, vf b) { return VM_CMP(a, b, _CMP_LT_OQ); }
static inline vm vm_gt(vf a, vf b) { return VM_CMP(a, b, _CMP_GT_OQ); }
static inline vm vm_nan(vf a) { return VM_CMP(a, a, _CMP_UNORD_Q); }
static inline vf vf_select(vm m, vf a, vf b) {
    return vf_make(_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(m.lo)),
                   _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(m.hi)));
}
static inline float vf_fold(vf v) {
    __m256 a = _mm256_add_ps(v.lo, v.hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
static inline float vf_largest(vf v) {
    __m256 a = _mm256_max_ps(v.lo, v.hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
// Two exact factors: n may be one more than an exponent holds.
static inline __m256 vf_scale2_half(__m256 y, __m256 n) {
    __m256i k = _mm256_cvttps_epi32(n), low = _mm256_srai_epi32(k, 1), high = _mm256_sub_epi32(k, low);
    __m256i bias = _mm256_set1_epi32(127);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(low, bias), 23));
    __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(high, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(y, a), b);
}
static inline vf vf_scale2(vf y, vf n) { return vf_make(vf_scale2_half(y.lo, n.lo), vf_scale2_half(y.hi, n.hi)); }
// x < low ? 0 : y * 2^n, one factor: n is neither above 127 nor, where x is not below low, below -126.
static inline __m256 vf_scale2_above_half(__m256 x, __m256 low, __m256 y, __m256 n) {
    __m256i k = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), _mm256_mul_ps(y, _mm256_castsi256_ps(k)));
}
static inline vf vf_scale2_above(vf x, vf low, vf y, vf n) {
    return vf_make(vf_scale2_above_half(x.lo, low.lo, y.lo, n.lo), vf_scale2_above_half(x.hi, low.hi, y.hi, n.hi));
}
static inline vf vf_load_f16(const uint8_t *p) {
    return vf_make(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 16))));
}
static inline void vf_store_f16(uint8_t *p, vf v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(void *)(p + 16), _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline vf vf_load_i8(const uint8_t *p) {
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return vf_make(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(b, b))));
}

static inline vi vf_bits(vf v) { return vi_make(_mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi)); }
static inline vi vi_add(vi a, vi b) { return vi_make(_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)); }
static inline vi vi_and(vi a, vi b) { return vi_make(_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)); }
static inline vi vi_max(vi a, vi b) { return vi_make(_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)); }
static inline vi vi_select(vm m, vi a, vi b) {
    return vi_make(_mm256_blendv_epi8(b.lo, a.lo, m.lo), _mm256_blendv_epi8(b.hi, a.hi, m.hi));
}
static inline int32_t vi_largest(vi v) {
    __m256i a = _mm256_max_epi32(v.lo, v.hi);
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}
static inline int32_t vi_sum(vi v) {
    __m256i a = _mm256_add_epi32(v.lo, v.hi);
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}
static inline void vi_store(int32_t *p, vi v) {
    _mm256_storeu_si256((__m256i *)(void *)p, v.lo);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), v.hi);
}
static inline vi vf_round(vf v) { return vi_make(_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi)); }
static inline void vi_store_i8(int8_t *p, vi v) {
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.lo, v.hi), 0xd8); // 16 int16 in order
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
#endif
