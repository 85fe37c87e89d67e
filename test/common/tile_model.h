// The tile registers of AMX in plain C, for tests on machines without them: the words of src/unit/cpu/tile_amx.h, with
// the meaning that Intel's Software Developer's Manual gives each instruction. What the processor would refuse with a
// fault (shapes that do not fit one another, tiles without a shape) stops the program.
#pragma once
#include <math.h>
#include "base/base.h"
#include "unit/cpu/tile_config.h"

static struct {
    bool is_set;
    struct tile_config config;
    uint8_t data[8][TILE_ROWS][TILE_BYTES];
} tile_model;

static inline void tile_model_setup(const struct tile_config *c) {
    if ((uintptr_t)c % 64 != 0 || c->palette != 1 || c->start_row != 0) TERN_BUG("tile configuration");
    for (int t = 0; t < 16; t++) {
        if (c->rows[t] > TILE_ROWS || c->row_bytes[t] > TILE_BYTES || (t >= 8 && (c->rows[t] || c->row_bytes[t])) ||
            (c->rows[t] == 0) != (c->row_bytes[t] == 0)) {
            TERN_BUG("shape of tile %d: %d rows of %d bytes", t, c->rows[t], c->row_bytes[t]);
        }
    }
    memset(&tile_model, 0, sizeof(tile_model));
    tile_model.config = *c;
    tile_model.is_set = true;
}
static inline void tile_model_release(void) { memset(&tile_model, 0, sizeof(tile_model)); }
static inline int tile_model_rows(int t) {
    if (!tile_model.is_set || tile_model.config.rows[t] == 0) TERN_BUG("tile %d has no shape", t);
    return tile_model.config.rows[t];
}
static inline int tile_model_bytes(int t) { return tile_model.config.row_bytes[t]; }
static inline void tile_model_zero(int t) {
    tile_model_rows(t);
    memset(tile_model.data[t], 0, sizeof(tile_model.data[t]));
}
// Rows and bytes beyond the shape become zeros.
static inline void tile_model_load(int t, const void *p, size_t stride) {
    tile_model_zero(t);
    for (int r = 0; r < tile_model_rows(t); r++) {
        memcpy(tile_model.data[t][r], (const uint8_t *)p + (size_t)r * stride, (size_t)tile_model_bytes(t));
    }
}
static inline void tile_model_store(int t, void *p, size_t stride) {
    for (int r = 0; r < tile_model_rows(t); r++) {
        memcpy((uint8_t *)p + (size_t)r * stride, tile_model.data[t][r], (size_t)tile_model_bytes(t));
    }
}
// c: rows of a by columns of b; b has a row for each four bytes of a's.
static inline void tile_model_fit(int c, int a, int b) {
    if (c == a || c == b || a == b || tile_model_rows(c) != tile_model_rows(a) ||
        tile_model_bytes(c) != tile_model_bytes(b) || tile_model_bytes(a) != 4 * tile_model_rows(b)) {
        TERN_BUG("tiles %d, %d and %d do not fit", c, a, b);
    }
}
static inline void tile_model_dot_bytes(int c, int a, int b, bool b_signed) {
    tile_model_fit(c, a, b);
    for (int r = 0; r < tile_model_rows(c); r++) {
        for (int n = 0; n < tile_model_bytes(c) / 4; n++) {
            uint32_t sum = load_u32(&tile_model.data[c][r][4 * n]);
            for (int k = 0; k < tile_model_bytes(a); k++) {
                const uint8_t w = tile_model.data[b][k / 4][4 * n + k % 4];
                sum += (uint32_t)((int8_t)tile_model.data[a][r][k] * (b_signed ? (int8_t)w : w));
            }
            memcpy(&tile_model.data[c][r][4 * n], &sum, 4);
        }
    }
}

static inline float tile_model_flush(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }
static inline float tile_model_bf16(const uint8_t *p) {
    return tile_model_flush(f32_from_bits((uint32_t)(p[0] | p[1] << 8) << 16));
}
static inline void tile_model_dot_bf16(int c, int a, int b) {
    tile_model_fit(c, a, b);
    for (int r = 0; r < tile_model_rows(c); r++) {
        for (int n = 0; n < tile_model_bytes(c) / 4; n++) {
            float sums[2] = {0, 0}; // of even and odd elements
            for (int k = 0; k < tile_model_bytes(a) / 2; k++) {
                const float w = tile_model_bf16(&tile_model.data[b][k / 2][4 * n + 2 * (k % 2)]);
                sums[k % 2] = tile_model_flush(fmaf(tile_model_bf16(&tile_model.data[a][r][2 * k]), w, sums[k % 2]));
            }
            uint8_t *at = &tile_model.data[c][r][4 * n];
            const float old = tile_model_flush(f32_from_bits(load_u32(at)));
            const float sum = tile_model_flush(old + tile_model_flush(sums[0] + sums[1]));
            memcpy(at, &sum, 4);
        }
    }
}

#define TILE_SETUP(config) tile_model_setup(config)
#define TILE_RELEASE() tile_model_release()
#define TILE_ZERO(t) tile_model_zero(t)
#define TILE_LOAD(t, p, stride) tile_model_load(t, p, stride)
#define TILE_STORE(t, p, stride) tile_model_store(t, p, stride)
#define TILE_DOT_SS(c, a, b) tile_model_dot_bytes(c, a, b, true)
#define TILE_DOT_BF16(c, a, b) tile_model_dot_bf16(c, a, b)
#define TILE_DOT_SU(c, a, b) tile_model_dot_bytes(c, a, b, false)
