// The part of op/'s face that knows no weight format: the constants of the contract (op.h), functions of rows,
// attention, choice. Kernels include it in place of op.h, so that they are not compiled again for what does not
// concern them.
#pragma once
#include "base/plain.h"

#define OP_LANES 16
#define OP_GROUP 32 // values per activation scale
#define OP_BLOCK 32 // positions per attention and KV block
#define OP_ATTN_SPLIT \
    8 // blocks per attention split: partials are combined left to right inside a split, then over splits
#define OP_HEAD_DIM_MAX 256
#define OP_CONV_LEN_MAX 16

// The sixteen values that the nibbles of IQ4_NL and IQ4_XS stand for, ascending.
extern const int8_t op_iq4_values[16];

// The orders of sums of the bf16 class (op_linear_bf16 says which is which).
enum op_bf16_order { OP_BF16_PAIRS, OP_BF16_TILES };
uint16_t op_bf16_round(float x);

// ---------------------------------------------------------------------------------------------------- activations

// Below this magnitude a group counts as zero: 127 / amax must stay finite.
#define OP_AMAX_MIN 0x1p-120f

// A row of activations as int8: per OP_GROUP values amax / 127 is the scale, q = round-to-nearest-even(x * (127 /
// amax)); scale and q all zeros when amax < OP_AMAX_MIN. NaN or infinity in the group: scale NaN (so that it shows), q
// zero. sum[g] is the integer sum of q over 16 values (twice as many entries as scales): formats with groups of 32 add
// two. n is a multiple of 32 (shorter rows are padded with zeros by the caller).
void op_quantise_row(const float *x, int n, int8_t *q /* [n] */, float *scale /* [n/32] */, int32_t *sum /* [n/16] */);
// One scale for the whole row (FORMAT_I8C).
void op_quantise_row_whole(const float *x, int n, int8_t *q, float *scale /* [1] */);

// ---------------------------------------------------------------------------------------------------- elementary
// functions

// e^x by own polynomial with fma, equal bits everywhere. Max error 2 ulp on [-87.33, 88.72]; below: 0 (flushed before
// subnormals), above: +inf; NaN stays NaN. Kernels repeat exactly these steps:
//   n = round-to-nearest-even(x * LOG2E);  r = fma(n, -LN2_HI, x);  r = fma(n, -LN2_LO, r)
//   p = C5;  p = fma(p, r, C4) … fma(p, r, C0);  y = fma(p, r * r, r) + 1;  result y * 2^n (exact)
#define OP_EXP_LO -87.33654f
#define OP_EXP_HI 88.72283f
#define OP_LOG2E 1.44269504088896341f
#define OP_LN2_HI 0.693359375f
#define OP_LN2_LO -2.12194440e-4f
#define OP_EXP_C5 1.9875691500e-4f
#define OP_EXP_C4 1.3981999507e-3f
#define OP_EXP_C3 8.3334519073e-3f
#define OP_EXP_C2 4.1665795894e-2f
#define OP_EXP_C1 1.6666665459e-1f
#define OP_EXP_C0 5.0000001201e-1f
float op_exp(float x);
float op_silu(float x);    // x / (1 + op_exp(-x))
float op_sigmoid(float x); // 1 / (1 + op_exp(-x))
// x * Phi(x) in its tanh form, x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), which is x * sigmoid of twice
// tanh's argument: z = x * fma(x * x, OP_GELU_C3, OP_GELU_C1); x / (1 + op_exp(-z)).
#define OP_GELU_C1 1.5957691216057308f  // 2 sqrt(2/pi)
#define OP_GELU_C3 0.07135481282572459f // 2 sqrt(2/pi) * 0.044715
float op_gelu(float x);
float op_sum_squares(const float *x, int n); // OP_LANES order

// ---------------------------------------------------------------------------------------------------- row operations

// y = (x * r) * w, r = 1 / sqrtf(sum_squares / n + eps).
void op_rmsnorm(const float *x, const float *w, int n, float eps, float *y);
// cos and sin of pos * freq[i], i < head_dim/2, computed in double and rounded: out = cos[half] then sin[half].
void op_rope_table(int32_t pos, const double *freq, int half, float *out);
// freq[i] = base^(-2i/head_dim) / (factors ? factors[i] : 1).
void op_rope_freqs(float base, int head_dim, const float *factors, double *freq);
// In place on one head: optional RMS norm with weight w (NULL: none), then rotation of the pairs.
// (a, b) -> (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)). interleaved: pairs (2i, 2i+1), else (i, i + half).
void op_qk_norm_rope(float *head, int head_dim, const float *w, float eps, const float *table, bool interleaved);
// y = silu(gate) * up.
void op_swiglu(const float *gate, const float *up, int n, float *y);
// y = gelu(gate) * up.
void op_geglu(const float *gate, const float *up, int n, float *y);
void op_add(const float *a, const float *b, int n, float *y);
// Gated short convolution for one row. bcx: [3n] thirds B, C, X; u_out[n] = B * X, kept for later rows.
void op_conv_gate(const float *bcx, int n, float *u_out);
// y = C * v, v = taps oldest first: v = w[0]*u[0], then v = fma(w[j], u[j], v). u[j]: the row tap j reads, NULL = zeros
// (the product with zero is still made). taps: [n, len] as in the file, oldest first.
void op_short_conv(const float *const *u, const float *taps, int len, int n, const float *c, float *y);

// y = fma(a, x, y).
void op_axpy(float a, const float *x, int n, float *y);

// ---------------------------------------------------------------------------------------------------- experts
//
// A layer with experts sends each row to k of n feed-forward parts. The router's logits are a product of the fp32 class
// (in the int8 class too). Everything below is per row, so who else is in a window decides nothing:
//   score   sigmoid: op_sigmoid(logit); softmax: e = op_exp(logit - max), score = e / (sum of e, ascending)
//   choice  the k largest of score + bias (without a bias: of score); ties to the lowest expert; NaN is the least
//   weight  the score of the chosen without the bias; normalised: / (sum over the chosen, ascending experts, + eps);
//           then * scale
//   result  y = 0; for the chosen, ascending: y = fma(weight, expert(row), y); then the residual + y
struct op_router {
    int n, k; // k <= n
    bool sigmoid, normalise;
    float eps, scale;
};
// ids: ascending. bias: NULL or [n]. score: [n], scratch.
void op_route(const struct op_router *r, const float *logits, const float *bias, float *score, int32_t *ids /* [k] */,
              float *weights /* [k] */);

// ---------------------------------------------------------------------------------------------------- attention

enum op_kv_type { OP_KV_F16, OP_KV_Q8, OP_KV_F32 };
// Bytes of the K (or V) half of one block of one head: K is [head_dim][32] (transposed), V is [32][head_dim], in the
// stored type; Q8 adds 32 float scales (one per position) after the values.
size_t op_kv_half_bytes(enum op_kv_type type, int head_dim);
// Writes one position (0..31) of K and of V of one head into the block halves.
// F16: round to nearest even. Q8: one scale per position and head = amax / 127, as op_quantise_row.
void op_kv_write(enum op_kv_type type, uint8_t *k_half, uint8_t *v_half, int pos_in_block, const float *k,
                 const float *v, int head_dim);
// A block without its first positions: positions first … 31 of the source lie at 0 … in the destination, which is
// another block. What is behind them there stays.
void op_kv_shift(enum op_kv_type type, uint8_t *k_dst, uint8_t *v_dst, const uint8_t *k_src, const uint8_t *v_src,
                 int first, int head_dim);
// Copies one position's stored K and V between blocks (no rounding).
void op_kv_move(enum op_kv_type type, uint8_t *k_dst, uint8_t *v_dst, int pos_dst, const uint8_t *k_src,
                const uint8_t *v_src, int pos_src, int head_dim);

// The running result of one query head: max score, sum of exponentials, weighted sum of V (not yet divided).
struct op_attn_part {
    _Alignas(64) float out[OP_HEAD_DIM_MAX]; // at a cache line, for vector kernels
    float max;
    float sum;
};
// One block: the first n_pos (1..32) positions. q already carries the scale (q * attn_scale, rounded once).
//   s[p]  = sum over d ascending of fma(q[d], k[d][p], acc)      (Q8: then * scale_k[p])
//   max   = max of s; e[p] = op_exp(s[p] - max), 0 for p >= n_pos; sum = fold of e in halves 16, 8, 4, 2, 1
//   out[c] = p ascending: fma(e[p] (Q8: e[p] * scale_v[p]), v[p][c], acc)
void op_attention_block(enum op_kv_type type, const float *q, const uint8_t *k_half, const uint8_t *v_half, int n_pos,
                        int head_dim, struct op_attn_part *part);
// A row with a window (it sees positions pos - window + 1 … pos) reads its first block shifted, when it sees only the
// end of it (op_kv_shift); blocks and splits before it are as if they were not there.
// a := a combined with b (b to the right): m = max; fa = exp(a.max - m), fb = exp(b.max - m);
// sum = fma(a.sum, fa, b.sum * fb); out[c] = fma(a.out[c], fa, b.out[c] * fb).
void op_attention_combine(struct op_attn_part *a, const struct op_attn_part *b, int head_dim);
// y[c] = out[c] / sum.
void op_attention_finish(const struct op_attn_part *a, int head_dim, float *y);

// ---------------------------------------------------------------------------------------------------- choice

// Index of the largest value; ties to the lowest index; NaN never wins; all NaN, or n = 0: -1, and *max is NaN.
int32_t op_argmax(const float *x, int n, float *max);
