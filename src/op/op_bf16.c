// Products of the bf16 class, as the two kinds of dot instruction make them: what Intel's manual says of VDPBF16PS and
// of TDPBF16PS. Both take subnormal numbers for zero, going in and coming out, and fuse each product with its sum.
#include "op/op.h"
#include <math.h>

#define BF16_TILE 32 // values of k that one tile instruction adds up

static float flush(float v) { return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v; }
static float fma_flush(float a, float b, float c) { return flush(fmaf(flush(a), flush(b), flush(c))); }

uint16_t op_bf16_round(float x) { return f32_to_bf16(flush(x)); }

// acc + w[k] * x[k], nothing lying beyond n.
static float add(const uint8_t *w, int n, const float *x, int k, float acc) {
    if (k >= n) return fma_flush(0, 0, acc);
    return fma_flush(bf16_to_f32((uint16_t)(w[2 * k] | w[2 * k + 1] << 8)), bf16_to_f32(op_bf16_round(x[k])), acc);
}

static float row_pairs(const uint8_t *w, int n, const float *x) {
    float acc = 0;
    for (int k = 0; k < n; k += 2) {
        acc = add(w, n, x, k + 1, acc);
        acc = add(w, n, x, k, acc);
    }
    return acc;
}

static float row_tiles(const uint8_t *w, int n, const float *x) {
    float acc = 0;
    for (int at = 0; at < n; at += BF16_TILE) {
        float even = 0, odd = 0;
        for (int k = at; k < at + BF16_TILE; k += 2) {
            even = add(w, n, x, k, even);
            odd = add(w, n, x, k + 1, odd);
        }
        acc = flush(acc + flush(even + odd));
    }
    return acc;
}

void op_linear_bf16(enum op_bf16_order order, const uint8_t *w, int n_out, int n_in, const float *x, float *y) {
    const size_t row_bytes = (size_t)n_in * 2;
    for (int o = 0; o < n_out; o++, w += row_bytes) {
        y[o] = order == OP_BF16_TILES ? row_tiles(w, n_in, x) : row_pairs(w, n_in, x);
    }
}
