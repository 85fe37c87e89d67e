// Attention over blocks of 32 positions: the stored form of K and V, one block's partial result, and how partials are
// combined.
//
//   K half  [head_dim][32]   a row of 32 holds one channel of all positions: scores vectorise over positions
//   V half  [32][head_dim]   a row holds one position: the weighted sum vectorises over channels
//   Q8      32 float scales behind each half, one per position
#include "base/base.h"
#include <math.h>
#include "op/op_int.h"

static size_t element_bytes(enum op_kv_type type) {
    switch (type) {
    case OP_KV_F16: return 2;
    case OP_KV_Q8: return 1;
    case OP_KV_F32: return 4;
    }
    TERN_BUG("KV type %d", (int)type);
}

static size_t values_bytes(enum op_kv_type type, int head_dim) {
    return (size_t)head_dim * OP_BLOCK * element_bytes(type);
}

size_t op_kv_half_bytes(enum op_kv_type type, int head_dim) {
    return values_bytes(type, head_dim) + (type == OP_KV_Q8 ? OP_BLOCK * sizeof(float) : 0);
}

// Element number i of a half, as a float without the position's scale.
static float element_read(enum op_kv_type type, const uint8_t *half, size_t i) {
    switch (type) {
    case OP_KV_F16: return f16_to_f32(load_u16(half + 2 * i));
    case OP_KV_Q8: return (float)(int8_t)half[i];
    case OP_KV_F32: return f32_from_bits(load_u32(half + 4 * i));
    }
    TERN_BUG("KV type %d", (int)type);
}

static float scale_read(enum op_kv_type type, const uint8_t *half, int head_dim, int pos) {
    return f32_from_bits(load_u32(half + values_bytes(type, head_dim) + (size_t)pos * sizeof(float)));
}

// Writes one position: element d goes to index first + d * stride.
static void half_write(enum op_kv_type type, uint8_t *half, int pos, size_t first, size_t stride, const float *x,
                       int head_dim) {
    int8_t q[OP_HEAD_DIM_MAX];
    if (type == OP_KV_Q8) {
        float scale;
        op_quantise_row_whole(x, head_dim, q, &scale);
        memcpy(half + values_bytes(type, head_dim) + (size_t)pos * sizeof(float), &scale, sizeof(float));
    }
    for (int d = 0; d < head_dim; d++) {
        const size_t i = first + (size_t)d * stride;
        switch (type) {
        case OP_KV_F16: store_u16(half + 2 * i, f32_to_f16(x[d])); break;
        case OP_KV_Q8: half[i] = (uint8_t)q[d]; break;
        case OP_KV_F32: memcpy(half + 4 * i, &x[d], sizeof(float)); break;
        }
    }
}

void op_kv_write(enum op_kv_type type, uint8_t *k_half, uint8_t *v_half, int pos_in_block, const float *k,
                 const float *v, int head_dim) {
    half_write(type, k_half, pos_in_block, (size_t)pos_in_block, OP_BLOCK, k, head_dim);
    half_write(type, v_half, pos_in_block, (size_t)pos_in_block * (size_t)head_dim, 1, v, head_dim);
}

void op_kv_move(enum op_kv_type type, uint8_t *k_dst, uint8_t *v_dst, int pos_dst, const uint8_t *k_src,
                const uint8_t *v_src, int pos_src, int head_dim) {
    const size_t e = element_bytes(type), values = values_bytes(type, head_dim), row = (size_t)head_dim * e;
    for (int d = 0; d < head_dim; d++) {
        memmove(k_dst + ((size_t)d * OP_BLOCK + (size_t)pos_dst) * e,
                k_src + ((size_t)d * OP_BLOCK + (size_t)pos_src) * e, e);
    }
    memmove(v_dst + (size_t)pos_dst * row, v_src + (size_t)pos_src * row, row);
    if (type != OP_KV_Q8) return;
    const size_t to = values + (size_t)pos_dst * sizeof(float), from = values + (size_t)pos_src * sizeof(float);
    memmove(k_dst + to, k_src + from, sizeof(float));
    memmove(v_dst + to, v_src + from, sizeof(float));
}

void op_kv_shift(enum op_kv_type type, uint8_t *k_dst, uint8_t *v_dst, const uint8_t *k_src, const uint8_t *v_src,
                 int first, int head_dim) {
    const size_t e = element_bytes(type), values = values_bytes(type, head_dim), row = (size_t)head_dim * e;
    const size_t n = (size_t)(OP_BLOCK - first), skip = (size_t)first;
    for (size_t d = 0; d < (size_t)head_dim; d++)
        memcpy(k_dst + d * OP_BLOCK * e, k_src + (d * OP_BLOCK + skip) * e, n * e);
    memcpy(v_dst, v_src + skip * row, n * row);
    if (type != OP_KV_Q8) return;
    memcpy(k_dst + values, k_src + values + skip * sizeof(float), n * sizeof(float));
    memcpy(v_dst + values, v_src + values + skip * sizeof(float), n * sizeof(float));
}

void op_attention_block(enum op_kv_type type, const float *q, const uint8_t *k_half, const uint8_t *v_half, int n_pos,
                        int head_dim, struct op_attn_part *part) {
    float s[OP_BLOCK] = {0}, e[OP_BLOCK], lane[OP_BLOCK];
    if (n_pos < 1 || n_pos > OP_BLOCK || head_dim > OP_HEAD_DIM_MAX) TERN_BUG("%d positions of %d", n_pos, head_dim);
    for (int p = 0; p < n_pos; p++) {
        float acc = 0;
        for (int d = 0; d < head_dim; d++) {
            acc = fmaf(q[d], element_read(type, k_half, (size_t)d * OP_BLOCK + (size_t)p), acc);
        }
        s[p] = type == OP_KV_Q8 ? acc * scale_read(type, k_half, head_dim, p) : acc;
    }
    part->max = s[0];
    for (int p = 1; p < n_pos; p++) part->max = s[p] > part->max ? s[p] : part->max;
    for (int p = 0; p < OP_BLOCK; p++) lane[p] = e[p] = p < n_pos ? op_exp(s[p] - part->max) : 0;
    part->sum = lanes_fold(lane, OP_BLOCK);
    for (int p = 0; p < n_pos; p++) e[p] = type == OP_KV_Q8 ? e[p] * scale_read(type, v_half, head_dim, p) : e[p];
    for (int c = 0; c < head_dim; c++) {
        float acc = 0;
        for (int p = 0; p < n_pos; p++) {
            acc = fmaf(e[p], element_read(type, v_half, (size_t)p * (size_t)head_dim + (size_t)c), acc);
        }
        part->out[c] = acc;
    }
}

void op_attention_combine(struct op_attn_part *a, const struct op_attn_part *b, int head_dim) {
    const float m = b->max > a->max ? b->max : a->max;
    const float fa = op_exp(a->max - m), fb = op_exp(b->max - m);
    a->max = m;
    a->sum = fmaf(a->sum, fa, b->sum * fb);
    for (int c = 0; c < head_dim; c++) a->out[c] = fmaf(a->out[c], fa, b->out[c] * fb);
}

void op_attention_finish(const struct op_attn_part *a, int head_dim, float *y) {
    for (int c = 0; c < head_dim; c++) y[c] = a->out[c] / a->sum;
}
