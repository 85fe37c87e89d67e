// The evaluator's kernels in plain C: the reference of the vector ones, and what other processors run.
#include "base/base.h"
#include <math.h>
#include "unit/npu/npu_kernels.h"
#include "unit/npu/oplist.h"

typedef float vf;
typedef uint32_t vi; // bits that may wrap, as in vectors
#define VL 1
#define VECS_MAX 4
#define KERNELS npu_kernels_scalar
#define ISA "scalar"
static inline vf load(const float *p) { return *p; }
static inline void store(float *p, vf v) { *p = v; }
static inline vf set1(float v) { return v; }
static inline vi set1i(int32_t v) { return (vi)v; }
static inline vf fma_(vf a, vf b, vf c) { return fmaf(a, b, c); }
static inline vf round_half(vf v) { return f16_to_f32(f32_to_f16(v)); }
static inline vf mask_abs(vf v) { return fabsf(v); }
static inline vi as_int(vf v) { return (vi)f32_bits(v); }
static inline vf as_float(vi v) { return f32_from_bits(v); }
static inline vf beyond(vf v, vf limit) { return fabsf(v) >= limit ? v * INFINITY : v; }
static inline vf zero_below(vf v) { return fabsf(v) < 0x1p-14f ? 0 : v; }
static inline vf max_(vf a, vf b) { return a > b ? a : b; }
static inline vf max_nan(vf a, vf b) { return a != a || a > b ? a : b; }
static inline vf cut_to(vf v, vf magic, vf step) {
    vf m = copysignf(magic, v), r = (v + m) - m;
    return fabsf(r) > fabsf(v) ? r - copysignf(step, v) : r;
}
static inline vf nan_to_zero(vf v) { return v != v ? 0 : v; }
static inline vf load_i8(const int8_t *p) { return (float)*p; }
static inline vf load_f16(const uint16_t *p) { return f16_to_f32(*p); }
static inline void store_f16(uint16_t *p, vf v) { *p = f32_to_f16(v); }
#include "unit/npu/npu_kernels.inc"
