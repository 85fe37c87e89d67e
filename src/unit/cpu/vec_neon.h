// Sixteen floats as four NEON registers; the words are explained in vec_avx512.h.
#pragma once
#if defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>
#include "op/op_math.h"

#define VEC_SCORE_QUERIES 2 // 16 accumulators of 32 registers
#define VEC_VALUE_QUERIES 2
#define VEC_VALUE_CHANNELS 2

typedef struct {
    float32x4_t r[4];
} vf;
typedef struct {
    int32x4_t r[4];
} vi;
typedef struct {
    uint32x4_t r[4];
} vm; // all bits of a lane, or none

#define VEC_EACH(out, expr) \
    for (int i = 0; i < 4; i++) (out).r[i] = (expr)

static inline vi vi_set1(int32_t x) {
    vi v;
    VEC_EACH(v, vdupq_n_s32(x));
    return v;
}
static inline vi vi_ramp(void) {
    static const int32_t ramp[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vi v;
    VEC_EACH(v, vld1q_s32(ramp + 4 * i));
    return v;
}
static inline vm vm_first(int n) {
    vi ramp = vi_ramp();
    vm m;
    VEC_EACH(m, vcgtq_s32(vdupq_n_s32(n), ramp.r[i]));
    return m;
}
static inline vf vf_load(const float *p) {
    vf v;
    VEC_EACH(v, vld1q_f32(p + 4 * i));
    return v;
}
static inline vf vf_loadn(const float *p, int n) {
    float t[16] = {0};
    memcpy(t, p, (size_t)n * sizeof(float));
    return vf_load(t);
}
static inline void vf_store(float *p, vf v) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, v.r[i]);
}
static inline void vf_storen(float *p, vf v, int n) {
    float t[16];
    vf_store(t, v);
    memcpy(p, t, (size_t)n * sizeof(float));
}
static inline vf vf_set1(float x) {
    vf v;
    VEC_EACH(v, vdupq_n_f32(x));
    return v;
}
static inline vf vf_zero(void) { return vf_set1(0.0f); }
static inline vf vf_add(vf a, vf b) {
    VEC_EACH(a, vaddq_f32(a.r[i], b.r[i]));
    return a;
}
static inline vf vf_sub(vf a, vf b) {
    VEC_EACH(a, vsubq_f32(a.r[i], b.r[i]));
    return a;
}
static inline vf vf_mul(vf a, vf b) {
    VEC_EACH(a, vmulq_f32(a.r[i], b.r[i]));
    return a;
}
static inline vf vf_div(vf a, vf b) {
    VEC_EACH(a, vdivq_f32(a.r[i], b.r[i]));
    return a;
}
static inline vf vf_fma(vf a, vf b, vf c) {
    VEC_EACH(c, vfmaq_f32(c.r[i], a.r[i], b.r[i]));
    return c;
}
static inline vf vf_neg(vf a) {
    VEC_EACH(a, vnegq_f32(a.r[i]));
    return a;
}
static inline vf vf_max(vf a, vf b) {
    VEC_EACH(a, vmaxq_f32(a.r[i], b.r[i]));
    return a;
}
static inline vm vm_lt(vf a, vf b) {
    vm m;
    VEC_EACH(m, vcltq_f32(a.r[i], b.r[i]));
    return m;
}
static inline vm vm_gt(vf a, vf b) {
    vm m;
    VEC_EACH(m, vcgtq_f32(a.r[i], b.r[i]));
    return m;
}
static inline vm vm_nan(vf a) {
    vm m;
    VEC_EACH(m, vmvnq_u32(vceqq_f32(a.r[i], a.r[i])));
    return m;
}
static inline vf vf_select(vm m, vf a, vf b) {
    VEC_EACH(a, vbslq_f32(m.r[i], a.r[i], b.r[i]));
    return a;
}
static inline float vf_fold(vf v) {
    float32x4_t a = vaddq_f32(vaddq_f32(v.r[0], v.r[2]), vaddq_f32(v.r[1], v.r[3]));
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
static inline float vf_largest(vf v) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(v.r[0], v.r[1]), vmaxq_f32(v.r[2], v.r[3])));
}
static inline vf vf_scale2(vf y, vf n) {
    for (int i = 0; i < 4; i++) {
        int32x4_t k = vcvtq_s32_f32(n.r[i]), low = vshrq_n_s32(k, 1), high = vsubq_s32(k, low);
        int32x4_t bias = vdupq_n_s32(127);
        float32x4_t a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(low, bias), 23));
        float32x4_t b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(high, bias), 23));
        y.r[i] = vmulq_f32(vmulq_f32(y.r[i], a), b);
    }
    return y;
}
// x < low ? 0 : y * 2^n, one factor: n is neither above 127 nor, where x is not below low, below -126.
static inline vf vf_scale2_above(vf x, vf low, vf y, vf n) {
    for (int i = 0; i < 4; i++) {
        int32x4_t k = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n.r[i]), vdupq_n_s32(127)), 23);
        float32x4_t v = vmulq_f32(y.r[i], vreinterpretq_f32_s32(k));
        y.r[i] = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(x.r[i], low.r[i])));
    }
    return y;
}
static inline vf vf_load_f16(const uint8_t *p) {
    vf v;
    VEC_EACH(v, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))));
    return v;
}
static inline void vf_store_f16(uint8_t *p, vf v) {
    for (int i = 0; i < 4; i++) vst1_u8(p + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(v.r[i])));
}
static inline vf vf_load_i8(const uint8_t *p) {
    int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(p));
    int16x8_t lo = vmovl_s8(vget_low_s8(b)), hi = vmovl_s8(vget_high_s8(b));
    vf v;
    v.r[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo)));
    v.r[1] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo)));
    v.r[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi)));
    v.r[3] = vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi)));
    return v;
}

static inline vi vf_bits(vf v) {
    vi b;
    VEC_EACH(b, vreinterpretq_s32_f32(v.r[i]));
    return b;
}
static inline vi vi_add(vi a, vi b) {
    VEC_EACH(a, vaddq_s32(a.r[i], b.r[i]));
    return a;
}
static inline vi vi_and(vi a, vi b) {
    VEC_EACH(a, vandq_s32(a.r[i], b.r[i]));
    return a;
}
static inline vi vi_max(vi a, vi b) {
    VEC_EACH(a, vmaxq_s32(a.r[i], b.r[i]));
    return a;
}
static inline vi vi_select(vm m, vi a, vi b) {
    VEC_EACH(a, vbslq_s32(m.r[i], a.r[i], b.r[i]));
    return a;
}
static inline int32_t vi_largest(vi v) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(v.r[0], v.r[1]), vmaxq_s32(v.r[2], v.r[3])));
}
static inline int32_t vi_sum(vi v) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(v.r[0], v.r[1]), vaddq_s32(v.r[2], v.r[3])));
}
static inline void vi_store(int32_t *p, vi v) {
    for (int i = 0; i < 4; i++) vst1q_s32(p + 4 * i, v.r[i]);
}
static inline vi vf_round(vf v) {
    vi b;
    VEC_EACH(b, vcvtnq_s32_f32(v.r[i]));
    return b;
}
static inline void vi_store_i8(int8_t *p, vi v) {
    int16x8_t lo = vcombine_s16(vqmovn_s32(v.r[0]), vqmovn_s32(v.r[1]));
    int16x8_t hi = vcombine_s16(vqmovn_s32(v.r[2]), vqmovn_s32(v.r[3]));
    vst1q_s8(p, vcombine_s8(vqmovn_s16(lo), vqmovn_s16(hi)));
}
#endif
