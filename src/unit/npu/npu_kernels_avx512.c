// The evaluator's kernels on AVX-512 (F, BW, VL, DQ).
#include "base/base.h"
#include <immintrin.h>
#include "unit/npu/npu_kernels.h"
#include "unit/npu/oplist.h"

typedef float vf __attribute__((vector_size(64)));
typedef uint32_t vi __attribute__((vector_size(64)));
#define VL 16
#define VECS_MAX 4
#define KERNELS npu_kernels_avx512
#define ISA "avx512"
static inline vf load(const float *p) { return _mm512_loadu_ps(p); }
static inline void store(float *p, vf v) { _mm512_storeu_ps(p, v); }
static inline vf set1(float v) { return _mm512_set1_ps(v); }
static inline vi set1i(int32_t v) { return (vi)_mm512_set1_epi32(v); }
static inline vf fma_(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf round_half(vf v) { return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
static inline vf mask_abs(vf v) { return _mm512_abs_ps(v); }
static inline vi as_int(vf v) { return (vi)v; }
static inline vf as_float(vi v) { return (vf)v; }
static inline vf beyond(vf v, vf limit) {
    return _mm512_mask_mul_ps(v, _mm512_cmp_ps_mask(mask_abs(v), limit, _CMP_GE_OQ), v, set1(__builtin_inff()));
}
static inline vf zero_below(vf v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(mask_abs(v), set1(0x1p-14f), _CMP_NLT_UQ), v);
}
static inline vf max_(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf max_nan(vf a, vf b) {
    __mmask16 m = _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) | _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_mask_blend_ps(m, b, a);
}
static inline vf cut_to(vf v, vf magic, vf step) {
    vf m = _mm512_or_ps(_mm512_abs_ps(magic), _mm512_and_ps(v, set1(-0.0f)));
    (void)step;
    return _mm512_add_round_ps(v, m, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC) - m;
}
static inline vf nan_to_zero(vf v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v); }
static inline vf load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
static inline vf load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline void store_f16(uint16_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#include "unit/npu/npu_kernels.inc"
