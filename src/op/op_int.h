// Private to op/: what its files share.
#pragma once
#include "op/op.h"

// One block of a format as integers and scales, and its encoder. q holds n_block values, scale and min one entry per
// group of the block.
typedef void (*block_decompose_fn)(const uint8_t *block, int8_t *q, float *scale, float *min);
typedef void (*block_encode_fn)(const float *x, uint8_t *block);

void block_decompose_q4_k(const uint8_t *block, int8_t *q, float *scale, float *min);
void block_decompose_q5_k(const uint8_t *block, int8_t *q, float *scale, float *min);
void block_decompose_q6_k(const uint8_t *block, int8_t *q, float *scale, float *min);
void block_decompose_q2_k(const uint8_t *block, int8_t *q, float *scale, float *min);
void block_decompose_q3_k(const uint8_t *block, int8_t *q, float *scale, float *min);
void block_decompose_iq4_nl(const uint8_t *block, int8_t *q, float *scale, float *min);
void block_decompose_iq4_xs(const uint8_t *block, int8_t *q, float *scale, float *min);
void mlx_decompose(enum format f, const uint8_t *row, int64_t n, int8_t *q, float *scale, float *min);
void mlx_dequant(enum format f, const uint8_t *row, int64_t n, float *out);
void mlx_block_encode(enum format f, const float *x, uint8_t *block);
void block_encode_q4_0(const float *x, uint8_t *block);
void block_encode_q4_1(const float *x, uint8_t *block);
void block_encode_q5_0(const float *x, uint8_t *block);
void block_encode_q5_1(const float *x, uint8_t *block);
void block_encode_q8_0(const float *x, uint8_t *block);
void block_encode_q4_k(const float *x, uint8_t *block);
void block_encode_q5_k(const float *x, uint8_t *block);
void block_encode_q6_k(const float *x, uint8_t *block);
void block_encode_q2_k(const float *x, uint8_t *block);
void block_encode_q3_k(const float *x, uint8_t *block);
void block_encode_iq4_nl(const float *x, uint8_t *block);
void block_encode_iq4_xs(const float *x, uint8_t *block);

// Rows are walked in pieces of this many values: a multiple of every block, small enough for the stack.
#define OP_PIECE 256
#define OP_PIECE_GROUPS (OP_PIECE / 16)
_Static_assert(OP_PIECE_GROUPS * 16 == OP_PIECE, "whole groups");

static inline void store_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
// Nearest integer, ties to even, for |x| < 2^22: the addition does the rounding, so the bits are those of a vector
// unit's conversion.
static inline float round_even(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }
// The nearest integer in [low, high]; low for NaN.
static inline int clamp_round(float x, int low, int high) {
    int v = (int)round_even(MIN(MAX(x, (float)low), (float)high));
    return MIN(MAX(v, low), high);
}
// The value of largest magnitude, with its sign; the first of equals.
static inline float largest_find(const float *x, int n) {
    float amax = 0, largest = 0;
    for (int i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        if (a > amax) {
            amax = a;
            largest = x[i];
        }
    }
    return largest;
}
// Folds the lanes in halves: lane j += lane j + n/2, then n/4 … 1. n is a power of two; destroys lane.
static inline float lanes_fold(float *lane, int n) {
    for (int half = n / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) lane[j] += lane[j + half];
    }
    return lane[0];
}
