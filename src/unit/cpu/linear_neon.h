// Private to unit/cpu: the vectors of a tile in NEON, four registers each. Shared by the int8 and the float kernels;
// the int8 ones add their dot product.
#pragma once
#include <arm_neon.h>
#include "base/plain.h"

typedef struct {
    uint8x16_t r[4];
} vec_w;
typedef struct {
    int32x4_t r[4];
} vec_i;
typedef struct {
    float32x4_t r[4];
} vec_f;
#define QUARTERS \
    UNROLL       \
    for (int i = 0; i < 4; i++)

static inline vec_w vec_w_load(const uint8_t *p) {
    vec_w w;
    QUARTERS w.r[i] = vld1q_u8(p + 16 * i);
    return w;
}
static inline vec_w vec_w_low(vec_w w) {
    QUARTERS w.r[i] = vandq_u8(w.r[i], vdupq_n_u8(15));
    return w;
}
static inline vec_w vec_w_high(vec_w w) {
    QUARTERS w.r[i] = vshrq_n_u8(w.r[i], 4);
    return w;
}
// low | (h shifted left by n, or right by -n) & mask
static inline vec_w or_shifted(vec_w low, vec_w h, int n, int mask) {
    QUARTERS {
        const uint8x16_t v = vshlq_u8(h.r[i], vdupq_n_s8((int8_t)n));
        low.r[i] = vorrq_u8(low.r[i], vandq_u8(v, vdupq_n_u8((uint8_t)mask)));
    }
    return low;
}
static inline vec_w vec_w_or_bit(vec_w low, vec_w h, int q, int to) { return or_shifted(low, h, to - q, 1 << to); }
static inline vec_w vec_w_pair(vec_w w, int f) {
    QUARTERS w.r[i] = vandq_u8(vshlq_u8(w.r[i], vdupq_n_s8((int8_t)(-2 * f))), vdupq_n_u8(3));
    return w;
}
static inline vec_w vec_w_look_up(vec_w w, const uint8_t *table) {
    const uint8x16_t t = vld1q_u8(table);
    QUARTERS w.r[i] = vqtbl1q_u8(t, w.r[i]);
    return w;
}
static inline vec_w vec_w_or_pair(vec_w low, vec_w h, int f) { return or_shifted(low, h, 4 - 2 * f, 48); }
// A quarter of the weights as signed bytes: 8-bit ones lose their packed offset of 128.
static inline int8x16_t weight_signed(uint8x16_t w, int bits) {
    return vreinterpretq_s8_u8(bits == 8 ? veorq_u8(w, vdupq_n_u8(128)) : w);
}

static inline vec_i vec_i_dup(const void *p) {
    vec_i v;
    QUARTERS v.r[i] = vdupq_n_s32((int32_t)load_u32(p));
    return v;
}
static inline vec_i vec_i_zero(void) {
    vec_i v;
    QUARTERS v.r[i] = vdupq_n_s32(0);
    return v;
}
static inline vec_i vec_i_load(const void *p) {
    vec_i v;
    QUARTERS v.r[i] = vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p + 16 * i));
    return v;
}
static inline void vec_i_store(void *p, vec_i v) {
    QUARTERS vst1q_u8((uint8_t *)p + 16 * i, vreinterpretq_u8_s32(v.r[i]));
}
static inline vec_i vec_i_add(vec_i a, vec_i b) {
    QUARTERS a.r[i] = vaddq_s32(a.r[i], b.r[i]);
    return a;
}

static inline vec_f vec_f_zero(void) {
    vec_f v;
    QUARTERS v.r[i] = vdupq_n_f32(0);
    return v;
}
static inline vec_f vec_f_dup(const void *p) {
    vec_f v;
    QUARTERS v.r[i] = vdupq_n_f32(f32_from_bits(load_u32(p)));
    return v;
}
static inline vec_f vec_f_load(const void *p) {
    vec_f v;
    QUARTERS v.r[i] = vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p + 16 * i));
    return v;
}
static inline void vec_f_store(void *p, vec_f v) {
    QUARTERS vst1q_u8((uint8_t *)p + 16 * i, vreinterpretq_u8_f32(v.r[i]));
}
static inline vec_f vec_f_half(const uint8_t *p) {
    vec_f v;
    QUARTERS v.r[i] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i)));
    return v;
}
static inline vec_f vec_f_bf16(const uint8_t *p) {
    vec_f v;
    QUARTERS v.r[i] = vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)), 16));
    return v;
}
static inline vec_f from_u8(uint8x16_t b) {
    const uint16x8_t low = vmovl_u8(vget_low_u8(b)), high = vmovl_u8(vget_high_u8(b));
    return (vec_f){{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
                    vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}
static inline vec_f vec_f_u8(const uint8_t *p) { return from_u8(vld1q_u8(p)); }
static inline vec_f vec_f_u4_low(const uint8_t *p) { return from_u8(vandq_u8(vld1q_u8(p), vdupq_n_u8(15))); }
static inline vec_f vec_f_u4_high(const uint8_t *p) { return from_u8(vshrq_n_u8(vld1q_u8(p), 4)); }
static inline vec_f vec_f_s8(const uint8_t *p) {
    const int8x16_t b = vreinterpretq_s8_u8(vld1q_u8(p));
    const int16x8_t low = vmovl_s8(vget_low_s8(b)), high = vmovl_s8(vget_high_s8(b));
    return (vec_f){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                    vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
static inline vec_f vec_f_negate(vec_f v) {
    QUARTERS v.r[i] = vnegq_f32(v.r[i]);
    return v;
}
static inline vec_f vec_f_mul(vec_f a, vec_f b) {
    QUARTERS a.r[i] = vmulq_f32(a.r[i], b.r[i]);
    return a;
}
static inline vec_f vec_f_fma(vec_f a, vec_f b, vec_f c) {
    QUARTERS c.r[i] = vfmaq_f32(c.r[i], a.r[i], b.r[i]);
    return c;
}
static inline vec_f vec_f_from_i(vec_i a) {
    vec_f v;
    QUARTERS v.r[i] = vcvtq_f32_s32(a.r[i]);
    return v;
}
