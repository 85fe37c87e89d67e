// See reference_model.h.
#include "base/base.h"
#include "reference_model.h"
#include <math.h>

struct reference {
    const struct model *m;
    const struct reference_options *o;
    int n;
    struct arena arena;
};

static void *take(struct reference *r, size_t n, size_t size) {
    void *p = arena_calloc(&r->arena, n, size);
    if (!p) TERN_BUG("reference model: no memory");
    return p;
}

static float *floats_of(struct reference *r, const struct tensor *t) {
    float *v = take(r, (size_t)(t->ne[0] * t->ne[1]), sizeof(float));
    uint64_t row_bytes = 0;
    if (!format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes)) TERN_BUG("reference model: row size");
    for (int64_t i = 0; i < t->ne[1]; i++)
        op_dequant_row(t->format, t->data + (uint64_t)i * row_bytes, t->ne[0], v + i * t->ne[0]);
    return v;
}

static void linear(struct reference *r, const struct tensor *w, const float *x, float *y) {
    int n_in = (int)w->ne[0], n_out = (int)w->ne[1];
    if (r->o->numerics == PROG_CLASS_FP32 || format_is_float(w->format)) {
        op_linear_fp32(w->format, w->data, n_out, n_in, x, y);
        return;
    }
    int8_t *q = take(r, (size_t)n_in, 1);
    float *scale = take(r, (size_t)n_in / OP_GROUP + 1, sizeof(float));
    int32_t *sum = take(r, (size_t)n_in / 16 + 1, sizeof(int32_t));
    if (w->format == FORMAT_I8C)
        op_quantise_row_whole(x, n_in, q, scale);
    else
        op_quantise_row(x, n_in, q, scale, sum);
    op_linear_int8(w->format, w->data, n_out, n_in, q, scale, sum, y);
}

static void attend(struct reference *r, const uint8_t *kv, size_t half, int n_kv, const float *q, int visible,
                   int window, float *y) {
    const struct model_hyper *h = &r->m->hyper;
    int group = h->n_head / n_kv, first = window > 0 ? MAX(visible - window, 0) : 0;
    uint8_t *shifted = take(r, 2, half);
    for (int i = 0; i < h->n_head; i++) {
        struct op_attn_part total, split, part;
        for (int b = first / OP_BLOCK; b * OP_BLOCK < visible; b++) {
            const uint8_t *k = kv + ((size_t)b * (size_t)n_kv + (size_t)(i / group)) * 2 * half;
            int n_pos = MIN(visible - b * OP_BLOCK, OP_BLOCK), hidden = first - b * OP_BLOCK;
            if (hidden > 0) {
                op_kv_shift(r->o->kv_type, shifted, shifted + half, k, k + half, hidden, h->head_dim);
                k = shifted;
                n_pos -= hidden;
            }
            op_attention_block(r->o->kv_type, q + i * h->head_dim, k, k + half, n_pos, h->head_dim, &part);
            if (b % OP_ATTN_SPLIT == 0 || b == first / OP_BLOCK)
                split = part;
            else
                op_attention_combine(&split, &part, h->head_dim);
            bool last = (b + 1) * OP_BLOCK >= visible;
            if (!last && b % OP_ATTN_SPLIT != OP_ATTN_SPLIT - 1) continue;
            if (b / OP_ATTN_SPLIT == first / OP_BLOCK / OP_ATTN_SPLIT)
                total = split;
            else
                op_attention_combine(&total, &split, h->head_dim);
        }
        op_attention_finish(&total, h->head_dim, y + i * h->head_dim);
    }
}

static void attention_layer(struct reference *r, const struct model_layer *l, const float *norms, float *out) {
    const struct model_hyper *h = &r->m->hyper;
    int hd = h->head_dim, n_q = h->n_head * hd, n_kv = l->n_head_kv * hd, n = r->n;
    size_t half = op_kv_half_bytes(r->o->kv_type, hd), blocks = (size_t)int_div_up(n, OP_BLOCK);
    uint8_t *kv = take(r, blocks * (size_t)l->n_head_kv, 2 * half);
    float *q = take(r, (size_t)(n * n_q), sizeof(float)), *k = take(r, (size_t)n_kv, sizeof(float));
    float *v = take(r, (size_t)n_kv, sizeof(float)), *y = take(r, (size_t)n_q, sizeof(float));
    float *table = take(r, (size_t)hd, sizeof(float));
    const float *q_norm = l->q_norm ? floats_of(r, l->q_norm) : NULL;
    const float *k_norm = l->k_norm ? floats_of(r, l->k_norm) : NULL;
    double freqs[OP_HEAD_DIM_MAX / 2];
    op_rope_freqs(l->rope_local ? h->rope_base_local : h->rope_base, hd, l->rope_local ? NULL : h->rope_factors, freqs);
    bool interleaved = h->rope == ROPE_INTERLEAVED;
    for (int i = 0; i < n; i++) {
        linear(r, l->q, norms + i * h->n_embd, q + i * n_q);
        linear(r, l->k, norms + i * h->n_embd, k);
        linear(r, l->v, norms + i * h->n_embd, v);
        op_rope_table(i, freqs, hd / 2, table);
        for (int j = 0; j < h->n_head; j++)
            op_qk_norm_rope(q + i * n_q + j * hd, hd, q_norm, h->norm_eps, table, interleaved);
        for (int j = 0; j < n_q; j++) q[i * n_q + j] *= h->attn_scale;
        for (int j = 0; j < l->n_head_kv; j++) {
            op_qk_norm_rope(k + j * hd, hd, k_norm, h->norm_eps, table, interleaved);
            uint8_t *at = kv + ((size_t)(i / OP_BLOCK) * (size_t)l->n_head_kv + (size_t)j) * 2 * half;
            op_kv_write(r->o->kv_type, at, at + half, i % OP_BLOCK, k + j * hd, v + j * hd, hd);
        }
    }
    for (int i = 0; i < n; i++) {
        attend(r, kv, half, l->n_head_kv, q + i * n_q, r->o->full ? n : i + 1, l->window, y);
        linear(r, l->o, y, out + i * h->n_embd);
    }
}

static void conv_layer(struct reference *r, const struct model_layer *l, const float *norms, float *out) {
    const struct model_hyper *h = &r->m->hyper;
    int d = h->n_embd, n = r->n, len = h->conv_len, after = r->o->full ? len - 1 - (len - 1) / 2 : 0;
    float *bcx = take(r, (size_t)(n * 3 * d), sizeof(float)), *u = take(r, (size_t)(n * d), sizeof(float));
    float *y = take(r, (size_t)d, sizeof(float));
    const float *taps = floats_of(r, l->conv_taps);
    for (int i = 0; i < n; i++) {
        linear(r, l->conv_in, norms + i * d, bcx + i * 3 * d);
        op_conv_gate(bcx + i * 3 * d, d, u + i * d);
    }
    for (int i = 0; i < n; i++) {
        const float *rows[OP_CONV_LEN_MAX];
        for (int j = 0; j < len; j++) {
            int at = i - (len - 1 - after) + j;
            rows[j] = at >= 0 && at < n ? u + at * d : NULL;
        }
        op_short_conv(rows, taps, len, d, bcx + i * 3 * d + d, y);
        linear(r, l->conv_out, y, out + i * d);
    }
}

static void feed_forward(struct reference *r, const struct model_layer *l, const float *norm, float *out) {
    size_t n_ff = (size_t)r->m->hyper.n_ff;
    float *gate = take(r, n_ff, sizeof(float)), *up = take(r, n_ff, sizeof(float));
    linear(r, l->ffn_gate, norm, gate);
    linear(r, l->ffn_up, norm, up);
    (r->m->hyper.ffn_gelu ? op_geglu : op_swiglu)(gate, up, (int)n_ff, gate);
    linear(r, l->ffn_down, gate, out);
}

static void expert_run(struct reference *r, const struct model_layer *l, const float *norm, float *out) {
    const struct model_hyper *h = &r->m->hyper;
    struct op_router router = {h->n_expert,    h->n_expert_used, h->router_sigmoid,
                               h->router_norm, h->router_eps,    h->router_scale};
    size_t n_ff = (size_t)h->n_ff_expert, k = (size_t)h->n_expert_used, n = (size_t)h->n_expert;
    float *logits = take(r, n, sizeof(float)), *score = take(r, n, sizeof(float)), *y = take(r, (size_t)h->n_embd, 4);
    float *gate = take(r, n_ff, sizeof(float)), *up = take(r, n_ff, sizeof(float)), *weights = take(r, k, 4);
    int32_t *ids = take(r, k, sizeof(int32_t));
    const struct tensor *w = l->router;
    op_linear_fp32(w->format, w->data, h->n_expert, h->n_embd, norm, logits);
    op_route(&router, logits, l->router_bias ? floats_of(r, l->router_bias) : NULL, score, ids, weights);
    memset(out, 0, (size_t)h->n_embd * sizeof(float));
    for (size_t j = 0; j < k; j++) {
        const struct model_expert *e = &l->experts[ids[j]];
        linear(r, e->gate, norm, gate);
        linear(r, e->up, norm, up);
        op_swiglu(gate, up, (int)n_ff, gate);
        linear(r, e->down, gate, y);
        op_axpy(weights[j], y, h->n_embd, out);
    }
}

static void layer_run(struct reference *r, const struct model_layer *l, float *x, float *norms, float *out) {
    const struct model_hyper *h = &r->m->hyper;
    int d = h->n_embd;
    const float *w = floats_of(r, l->attn_norm), *w_ff = floats_of(r, l->ffn_norm);
    for (int i = 0; i < r->n; i++) op_rmsnorm(x + i * d, w, d, h->norm_eps, norms + i * d);
    if (l->kind == LAYER_ATTENTION)
        attention_layer(r, l, norms, out);
    else
        conv_layer(r, l, norms, out);
    if (l->attn_post_norm)
        for (int i = 0; i < r->n; i++)
            op_rmsnorm(out + i * d, floats_of(r, l->attn_post_norm), d, h->norm_eps, out + i * d);
    op_add(x, out, r->n * d, x);
    for (int i = 0; i < r->n; i++) {
        op_rmsnorm(x + i * d, w_ff, d, h->norm_eps, norms);
        if (l->router)
            expert_run(r, l, norms, out);
        else
            feed_forward(r, l, norms, out);
        if (l->ffn_post_norm) op_rmsnorm(out, floats_of(r, l->ffn_post_norm), d, h->norm_eps, out);
        op_add(x + i * d, out, d, x + i * d);
    }
}

void reference_run(const struct model *m, const struct reference_options *o, const int32_t *tokens, int n,
                   float *hidden) {
    struct reference r = {.m = m, .o = o, .n = n};
    arena_init(&r.arena, 0);
    int d = m->hyper.n_embd;
    uint64_t row_bytes = 0;
    if (!format_row_bytes(m->embedding->format, (uint64_t)d, &row_bytes)) TERN_BUG("reference model: row size");
    float *x = take(&r, (size_t)(n * d), sizeof(float)), *norms = take(&r, (size_t)(n * d), sizeof(float));
    float *out = take(&r, (size_t)(n * d), sizeof(float));
    for (int i = 0; i < n; i++)
        op_dequant_row(m->embedding->format, m->embedding->data + (uint64_t)tokens[i] * row_bytes, d, x + i * d);
    for (int i = 0; m->hyper.embed_scale != 0 && i < n * d; i++) x[i] *= m->hyper.embed_scale;
    for (int i = 0; i < m->hyper.n_layers; i++) {
        struct arena_mark mark = arena_mark_get(&r.arena);
        layer_run(&r, &m->layers[i], x, norms, out);
        arena_mark_reset(&r.arena, mark);
    }
    const float *w = floats_of(&r, m->output_norm);
    for (int i = 0; i < n; i++) op_rmsnorm(x + i * d, w, d, m->hyper.norm_eps, norms + i * d);
    memcpy(hidden, norms, (size_t)(n * d) * sizeof(float));
    arena_release(&r.arena);
}

void reference_logits(const struct model *m, const struct reference_options *o, const float *hidden, float *logits) {
    struct reference r = {.m = m, .o = o, .n = 1};
    arena_init(&r.arena, 0);
    linear(&r, m->output, hidden, logits);
    for (int i = m->hyper.n_vocab_used; i < m->hyper.n_vocab; i++) logits[i] = -INFINITY;
    arena_release(&r.arena);
}
