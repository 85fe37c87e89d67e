// Private to unit/cpu: the vectors of a tile in plain C: arrays, which compilers vectorise as far as the
// base instruction set goes. Shared by the int8 and the float kernels.
#pragma once
#include <math.h>
#include "base/plain.h"

#define LANES for (int i = 0; i < 16; i++)

typedef struct {
    float v[16];
} vec_f;

static inline vec_f vec_f_zero(void) { return (vec_f){{0}}; }
static inline vec_f vec_f_dup(const void *p) {
    vec_f r;
    LANES r.v[i] = f32_from_bits(load_u32(p));
    return r;
}
static inline vec_f vec_f_load(const void *p) {
    vec_f r;
    memcpy(r.v, p, sizeof(r.v));
    return r;
}
static inline void vec_f_store(void *p, vec_f a) { memcpy(p, a.v, sizeof(a.v)); }
static inline vec_f vec_f_half(const uint8_t *p) {
    vec_f r;
    LANES r.v[i] = f16_to_f32(load_u16(p + 2 * i));
    return r;
}
static inline vec_f vec_f_bf16(const uint8_t *p) {
    vec_f r;
    LANES r.v[i] = bf16_to_f32(load_u16(p + 2 * i));
    return r;
}
static inline vec_f vec_f_fma(vec_f a, vec_f b, vec_f c) {
    LANES c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}

#define BYTES for (int i = 0; i < 64; i++)

typedef struct {
    uint8_t v[64];
} vec_w;
typedef struct {
    int32_t v[16];
} vec_i;

static inline vec_w vec_w_load(const uint8_t *p) {
    vec_w w;
    memcpy(w.v, p, 64);
    return w;
}
static inline vec_w vec_w_low(vec_w w) {
    BYTES w.v[i] &= 15;
    return w;
}
static inline vec_w vec_w_high(vec_w w) {
    BYTES w.v[i] >>= 4;
    return w;
}
static inline vec_w vec_w_pair(vec_w v, int f) {
    BYTES v.v[i] = (uint8_t)((v.v[i] >> 2 * f) & 3);
    return v;
}
static inline vec_w vec_w_look_up(vec_w v, const uint8_t *table) {
    BYTES v.v[i] = table[v.v[i]];
    return v;
}
static inline vec_w vec_w_or_bit(vec_w low, vec_w h, int q, int to) {
    BYTES low.v[i] = (uint8_t)(low.v[i] | ((h.v[i] >> q) & 1) << to);
    return low;
}
static inline vec_w vec_w_or_pair(vec_w low, vec_w h, int f) {
    BYTES low.v[i] = (uint8_t)(low.v[i] | ((h.v[i] >> 2 * f) & 3) << 4);
    return low;
}

static inline vec_i vec_i_zero(void) { return (vec_i){{0}}; }
static inline vec_i vec_i_dup(const void *p) {
    vec_i r;
    LANES r.v[i] = (int32_t)load_u32(p);
    return r;
}
static inline vec_i vec_i_load(const void *p) {
    vec_i r;
    memcpy(r.v, p, sizeof(r.v));
    return r;
}
static inline void vec_i_store(void *p, vec_i a) { memcpy(p, a.v, sizeof(a.v)); }
static inline vec_i vec_i_add(vec_i a, vec_i b) {
    LANES a.v[i] += b.v[i];
    return a;
}

static inline vec_f vec_f_u8(const uint8_t *p) {
    vec_f r;
    LANES r.v[i] = (float)p[i];
    return r;
}
static inline vec_f vec_f_s8(const uint8_t *p) {
    vec_f r;
    LANES r.v[i] = (float)(int8_t)p[i];
    return r;
}
static inline vec_f vec_f_u4_low(const uint8_t *p) {
    vec_f r;
    LANES r.v[i] = (float)(p[i] & 15);
    return r;
}
static inline vec_f vec_f_u4_high(const uint8_t *p) {
    vec_f r;
    LANES r.v[i] = (float)(p[i] >> 4);
    return r;
}
static inline vec_f vec_f_negate(vec_f a) {
    LANES a.v[i] = -a.v[i];
    return a;
}
static inline vec_f vec_f_mul(vec_f a, vec_f b) {
    LANES a.v[i] *= b.v[i];
    return a;
}
static inline vec_f vec_f_from_i(vec_i a) {
    vec_f r;
    LANES r.v[i] = (float)a.v[i];
    return r;
}
