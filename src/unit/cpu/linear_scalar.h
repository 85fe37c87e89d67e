// Private to unit/cpu: the 16 floats of a tile's outputs in plain C: arrays, which compilers vectorise as far as the
// base instruction set goes. Shared by the int8 and the float kernels.
#pragma once
#include <math.h>
#include "base/base.h"

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
static inline vec_f vec_f_fma(vec_f a, vec_f b, vec_f c) {
    LANES c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
