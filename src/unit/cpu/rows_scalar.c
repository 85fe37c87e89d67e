// The scalar rows of the kernel list: op/'s reference under the kernels' signatures. They run on every CPU and serve
// the mask "scalar"; vector rows must give their bits.
#include "base/plain.h"
#include "unit/cpu/cpu_kernels.h"
#include <math.h>

void k_quantise_row__scalar(const float *x, int n, int8_t *q, float *scale, int32_t *sum) {
    op_quantise_row(x, n, q, scale, sum);
}
void k_quantise_row_whole__scalar(const float *x, int n, int8_t *q, float *scale, int32_t *sum) {
    op_quantise_row_whole(x, n, q, scale);
    *sum = 0;
    for (int i = 0; i < n; i++) *sum += q[i];
}
void k_rmsnorm__scalar(const float *x, const float *w, int n, float eps, float *y) { op_rmsnorm(x, w, n, eps, y); }
void k_qk_norm_rope__scalar(float *head, int head_dim, const float *w, float eps, const float *table, bool interleaved,
                            float factor) {
    op_qk_norm_rope(head, head_dim, w, eps, table, interleaved);
    for (int i = 0; i < head_dim; i++) head[i] *= factor;
}
void k_swiglu__scalar(const float *gate, const float *up, int n, float *y) { op_swiglu(gate, up, n, y); }
void k_geglu__scalar(const float *gate, const float *up, int n, float *y) { op_geglu(gate, up, n, y); }
void k_axpy__scalar(float a, const float *x, int n, float *y) { op_axpy(a, x, n, y); }
void k_add__scalar(const float *a, const float *b, int n, float *y) { op_add(a, b, n, y); }
void k_conv_gate__scalar(const float *bcx, int n, float *u_out) { op_conv_gate(bcx, n, u_out); }

// op_short_conv's sums with the taps of one channel n apart.
void k_short_conv__scalar(const float *const *u, const float *taps_by_tap, int len, int n, const float *c, float *y) {
    for (int i = 0; i < n; i++) {
        float v = taps_by_tap[i] * (u[0] ? u[0][i] : 0.0f);
        for (int j = 1; j < len; j++) v = fmaf(taps_by_tap[j * n + i], u[j] ? u[j][i] : 0.0f, v);
        y[i] = c[i] * v;
    }
}

static void attention(enum op_kv_type type, const float *const *q, int n_q, const uint8_t *k_half,
                      const uint8_t *v_half, const int *n_pos, int head_dim, bool join,
                      struct op_attn_part *const *parts) {
    for (int i = 0; i < n_q; i++) {
        struct op_attn_part part, *to = join ? &part : parts[i];
        op_attention_block(type, q[i], k_half, v_half, n_pos[i], head_dim, to);
        if (join) op_attention_combine(parts[i], &part, head_dim);
    }
}
void k_attention_f16__scalar(const float *const *q, int n_q, const uint8_t *k_half, const uint8_t *v_half,
                             const uint8_t *k_next, const uint8_t *v_next, const int *n_pos, int head_dim, bool join,
                             struct op_attn_part *const *parts) {
    (void)k_next;
    (void)v_next;
    attention(OP_KV_F16, q, n_q, k_half, v_half, n_pos, head_dim, join, parts);
}
void k_attention_q8__scalar(const float *const *q, int n_q, const uint8_t *k_half, const uint8_t *v_half,
                            const uint8_t *k_next, const uint8_t *v_next, const int *n_pos, int head_dim, bool join,
                            struct op_attn_part *const *parts) {
    (void)k_next;
    (void)v_next;
    attention(OP_KV_Q8, q, n_q, k_half, v_half, n_pos, head_dim, join, parts);
}
void k_attention_f32__scalar(const float *const *q, int n_q, const uint8_t *k_half, const uint8_t *v_half,
                             const uint8_t *k_next, const uint8_t *v_next, const int *n_pos, int head_dim, bool join,
                             struct op_attn_part *const *parts) {
    (void)k_next;
    (void)v_next;
    attention(OP_KV_F32, q, n_q, k_half, v_half, n_pos, head_dim, join, parts);
}
void k_attention_combine__scalar(struct op_attn_part *const *a, const struct op_attn_part *const *b, int n,
                                 int head_dim) {
    for (int i = 0; i < n; i++) op_attention_combine(a[i], b[i], head_dim);
}
void k_attention_finish__scalar(const struct op_attn_part *a, int head_dim, float *y) {
    op_attention_finish(a, head_dim, y);
}

void k_kv_write_f16__scalar(uint8_t *k_half, uint8_t *v_half, int pos_in_block, const float *k, const float *v,
                            int head_dim) {
    op_kv_write(OP_KV_F16, k_half, v_half, pos_in_block, k, v, head_dim);
}
void k_kv_write_q8__scalar(uint8_t *k_half, uint8_t *v_half, int pos_in_block, const float *k, const float *v,
                           int head_dim) {
    op_kv_write(OP_KV_Q8, k_half, v_half, pos_in_block, k, v, head_dim);
}
void k_kv_write_f32__scalar(uint8_t *k_half, uint8_t *v_half, int pos_in_block, const float *k, const float *v,
                            int head_dim) {
    op_kv_write(OP_KV_F32, k_half, v_half, pos_in_block, k, v, head_dim);
}

int32_t k_argmax__scalar(const float *x, int n, float *max) { return op_argmax(x, n, max); }
