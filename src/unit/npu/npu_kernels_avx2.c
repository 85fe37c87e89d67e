// The evaluator's kernels on AVX2, FMA and F16C.
#include "base/base.h"
#include <immintrin.h>
#include "unit/npu/npu_kernels.h"
#include "unit/npu/oplist.h"

typedef float vf __attribute__((vector_size(32)));
typedef uint32_t vi __attribute__((vector_size(32)));
#define VL 8
#define VECS_MAX 2
#define KERNELS npu_kernels_avx2
#define ISA "avx2"
static inline vf load(const float *p) { return _mm256_loadu_ps(p); }
static inline void store(float *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf set1(float v) { return _mm256_set1_ps(v); }
static inline vi set1i(int32_t v) { return (vi)_mm256_set1_epi32(v); }
static inline vf fma_(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf round_half(vf v) { return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
static inline vf mask_abs(vf v) { return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))); }
static inline vi as_int(vf v) { return (vi)v; }
static inline vf as_float(vi v) { return (vf)v; }
static inline vf beyond(vf v, vf limit) {
    return _mm256_blendv_ps(v, v * set1(__builtin_inff()), _mm256_cmp_ps(mask_abs(v), limit, _CMP_GE_OQ));
}
static inline vf zero_below(vf v) { return _mm256_and_ps(v, _mm256_cmp_ps(mask_abs(v), set1(0x1p-14f), _CMP_NLT_UQ)); }
static inline vf max_(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf max_nan(vf a, vf b) {
    return _mm256_blendv_ps(b, a, _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ), _mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
}
static inline vf cut_to(vf v, vf magic, vf step) {
    vf sign = _mm256_and_ps(v, set1(-0.0f)), m = _mm256_or_ps(_mm256_andnot_ps(set1(-0.0f), magic), sign);
    vf r = (v + m) - m, over = _mm256_cmp_ps(mask_abs(r), mask_abs(v), _CMP_GT_OQ);
    return r - _mm256_and_ps(_mm256_or_ps(_mm256_andnot_ps(set1(-0.0f), step), sign), over);
}
static inline vf nan_to_zero(vf v) { return _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q)); }
static inline vf load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
static inline vf load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline void store_f16(uint16_t *p, vf v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#include "unit/npu/npu_kernels.inc"
