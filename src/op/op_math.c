// Elementary functions and sums with one order of operations on every machine.
#include "base/base.h"
#include <math.h>
#include "op/op_int.h"

float op_exp(float x) {
    if (x != x) return x;
    if (x < OP_EXP_LO) return 0;
    if (x > OP_EXP_HI) return INFINITY;
    const float n = round_even(x * OP_LOG2E);
    float r = fmaf(n, -OP_LN2_HI, x);
    r = fmaf(n, -OP_LN2_LO, r);
    float p = OP_EXP_C5;
    p = fmaf(p, r, OP_EXP_C4);
    p = fmaf(p, r, OP_EXP_C3);
    p = fmaf(p, r, OP_EXP_C2);
    p = fmaf(p, r, OP_EXP_C1);
    p = fmaf(p, r, OP_EXP_C0);
    const float y = fmaf(p, r * r, r) + 1;
    // 2^n in two factors: n reaches 128, one more than a float's exponent. Both products are exact.
    const int32_t k = (int32_t)n, low = k >> 1, high = k - low;
    return (y * f32_from_bits((uint32_t)(low + 127) << 23)) * f32_from_bits((uint32_t)(high + 127) << 23);
}

float op_sigmoid(float x) { return 1 / (1 + op_exp(-x)); }
float op_silu(float x) { return x / (1 + op_exp(-x)); }

float op_gelu(float x) {
    const float z = x * fmaf(x * x, OP_GELU_C3, OP_GELU_C1);
    return x / (1 + op_exp(-z));
}

float op_sum_squares(const float *x, int n) {
    float lane[OP_LANES] = {0};
    for (int i = 0; i < n; i++) lane[i % OP_LANES] = fmaf(x[i], x[i], lane[i % OP_LANES]);
    return lanes_fold(lane, OP_LANES);
}

int32_t op_argmax(const float *x, int n, float *max) {
    int32_t best = -1;
    float value = NAN;
    for (int i = 0; i < n; i++) {
        if (x[i] != x[i] || (best >= 0 && !(x[i] > value))) continue;
        best = i;
        value = x[i];
    }
    *max = value;
    return best;
}
