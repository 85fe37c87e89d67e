// The evaluator's inner loops, once per instruction set (npu_kernels.inc). Private to unit/npu. Every table gives the
// same bits: lanes lie across columns, never across a sum.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_rules.h"

#define NPU_TILE_COLS 64   // columns of a tile at most
#define NPU_TILE_ROWS 16   // rows (outputs) of one call
#define NPU_TILE_DEPTH 128 // terms of one call: a multiple of 4, so that tiles of 4 do not straddle calls

enum npu_fix { // what happens to a float result before it is stored
    NPU_FIX_NONE,
    NPU_FIX_HALF, // fp16, nearest even
    NPU_FIX_ANE,  // and NaN becomes +0, -0 becomes +0
};

// One tile of sums of products: for r < rows, c < cols (a multiple of 16): acc[r][c] goes on over w[r][k] * x[k][c],
// k < depth. With a cliff, a partial sum whose magnitude reaches it becomes infinite.
struct npu_tile {
    const float *w; // [rows][w_stride]
    int w_stride;
    const float *x; // [depth][x_stride]
    int x_stride;
    float *acc; // [NPU_TILE_ROWS][NPU_TILE_COLS]
    int rows, cols, depth;
    float cliff; // 0: none
};

#define NPU_LOOK_WILD 0x80000000u
struct npu_kernels {
    const char *isa;
    void (*mac)(enum npu_mac mac, const struct npu_tile *t);
    // Row pieces of weights as floats. half: rounded to fp16.
    void (*dequant)(const int8_t *q, float scale, int n, bool half, float *out);
    void (*widen)(const uint16_t *h, int n, float *out);
    // y = fix(a op b); kind: enum npu_op_kind ADD … MAX; a_step, b_step: 1, or 0 for one value
    void (*binary)(int kind, enum npu_fix fix, int n, const float *a, int a_step, const float *b, int b_step, float *y);
    void (*round)(enum npu_fix fix, int n, const float *x, float *y);
    void (*flush)(int n, const float *x, float *y); // subnormal fp16 values become +0
    void (*add)(int n, const float *x, float *acc); // acc += x, float
    void (*max)(int n, const float *x, float *acc); // acc = x > acc or x is NaN ? x : acc
    void (*div)(enum npu_fix fix, int n, const float *x, const float *d, float *y);
    void (*narrow)(int n, const float *x, uint16_t *out); // fp16
    // The bits of all magnitudes ored together, and NPU_LOOK_WILD when one is infinite or NaN. 0: nothing but zeros.
    uint32_t (*look)(int n, const float *x);
};
extern const struct npu_kernels npu_kernels_scalar;
extern const struct npu_kernels npu_kernels_avx2;
extern const struct npu_kernels npu_kernels_avx512;
// The widest that this CPU has, at most `isa` ("scalar", "avx2", "avx512"; NULL: no bound).
const struct npu_kernels *npu_kernels_get(const char *isa);
