// What layers are made of, as operations. One builder serves every architecture: a layer is attention or a gated short
// convolution, then a gated feed-forward part; what an architecture lacks (norms of q and k) is a NULL weight.
//
//   x ── rmsnorm ─┬─ q, k, v ─ norm+rope ─ K/V write ─ attention ─ o ─┐
//      │          └─ conv_in ─ short conv ─────────────── conv_out ──┤+x
//      └────────────────────────── the residual, updated in place ◀──┘  … rmsnorm ─ gate, up (swiglu) ─ down ─▶ +x
//
// Every part makes new values; the memory plan finds out which can lie in the same place. Only the residual lives on.
#include "base/base.h"
#include "prog/prog_int.h"

struct prog_op *build_op(struct prog_builder *b, enum prog_op_kind kind, int layer) {
    if (b->p->n_ops >= b->ops_cap) TERN_BUG("prog: more than %d ops", b->ops_cap);
    struct prog_op *op = &b->p->ops[b->p->n_ops++];
    *op = (struct prog_op){.kind = kind, .layer = layer, .state_index = PROG_NONE, .index = PROG_NONE};
    for (size_t i = 0; i < ARRAY_LEN(op->in); i++) op->in[i] = PROG_NONE;
    for (size_t i = 0; i < ARRAY_LEN(op->out); i++) op->out[i] = PROG_NONE;
    return op;
}

int build_value(struct prog_builder *b, const char *name, int n_cols) {
    if (b->p->n_values >= b->values_cap) TERN_BUG("prog: more than %d values", b->values_cap);
    b->p->values[b->p->n_values] = (struct prog_value){.n_cols = n_cols, .name = name};
    return b->p->n_values++;
}

static void op_weights(struct prog_op *op, const struct tensor *w0, const struct tensor *w1, const struct tensor *w2,
                       int n_w) {
    op->w[0] = w0;
    op->w[1] = w1;
    op->w[2] = w2;
    op->n_w = n_w;
}

void build_embed(struct prog_builder *b) {
    b->x = build_value(b, "x", b->m->hyper.n_embd);
    struct prog_op *op = build_op(b, PROG_OP_EMBED, PROG_NONE);
    op->out[0] = b->x;
    op_weights(op, b->m->embedding, NULL, NULL, 1);
}

void build_rope(struct prog_builder *b) {
    b->rope = build_value(b, "rope", b->m->hyper.head_dim);
    build_op(b, PROG_OP_ROPE_TABLE, PROG_NONE)->out[0] = b->rope;
    if (b->m->hyper.rope_base_local == 0) return;
    b->rope_local = build_value(b, "rope_local", b->m->hyper.head_dim);
    struct prog_op *op = build_op(b, PROG_OP_ROPE_TABLE, PROG_NONE);
    op->out[0] = b->rope_local;
    op->index = 1;
}

static int build_norm_of(struct prog_builder *b, int layer, const struct tensor *w, int in) {
    int n = build_value(b, "n", b->m->hyper.n_embd);
    struct prog_op *op = build_op(b, PROG_OP_RMSNORM, layer);
    op->in[0] = in;
    op->out[0] = n;
    op_weights(op, w, NULL, NULL, 1);
    return n;
}

static int build_norm(struct prog_builder *b, int layer, const struct tensor *w) {
    return build_norm_of(b, layer, w, b->x);
}

static int build_linear(struct prog_builder *b, int layer, const struct tensor *w, int in, const char *name,
                        int n_cols) {
    int y = build_value(b, name, n_cols);
    struct prog_op *op = build_op(b, PROG_OP_LINEAR, layer);
    op->in[0] = in;
    op->out[0] = y;
    op_weights(op, w, NULL, NULL, 1);
    return y;
}

// x += norm of a part's result.
static void build_norm_add(struct prog_builder *b, int layer, const struct tensor *w, int in) {
    struct prog_op *op = build_op(b, PROG_OP_RMSNORM, layer);
    op->in[0] = in;
    op->in[1] = b->x;
    op->out[0] = b->x;
    op->add = true;
    op_weights(op, w, NULL, NULL, 1);
}

static void build_linear_add(struct prog_builder *b, int layer, const struct tensor *w, int in) {
    struct prog_op *op = build_op(b, PROG_OP_LINEAR, layer);
    op->in[0] = in;
    op->in[1] = b->x;
    op->out[0] = b->x;
    op->add = true;
    op_weights(op, w, NULL, NULL, 1);
}

void build_attn_in(struct prog_builder *b, int layer) {
    const struct model_layer *l = &b->m->layers[layer];
    const struct model_hyper *h = &b->m->hyper;
    int n = build_norm(b, layer, l->attn_norm);
    b->q = build_value(b, "q", h->n_head * h->head_dim);
    b->k = build_value(b, "k", l->n_head_kv * h->head_dim);
    b->v = build_value(b, "v", l->n_head_kv * h->head_dim);
    struct prog_op *op = build_op(b, PROG_OP_LINEAR, layer);
    op->in[0] = n;
    op->out[0] = b->q;
    op->out[1] = b->k;
    op->out[2] = b->v;
    op_weights(op, l->q, l->k, l->v, 3);
    op = build_op(b, PROG_OP_QK_NORM_ROPE, layer);
    op->in[0] = b->q;
    op->in[1] = b->k;
    op->in[2] = l->rope_local ? b->rope_local : b->rope;
    op_weights(op, l->q_norm, l->k_norm, NULL, 2);
}

static int state_index(const struct prog_builder *b, int layer) {
    return prog_layer_count(b->m, b->m->layers[layer].kind, b->p->spec.state_begin, layer);
}

static void build_kv_write(struct prog_builder *b, int layer) {
    struct prog_op *op = build_op(b, PROG_OP_KV_WRITE, layer);
    op->state_index = state_index(b, layer);
    op->in[0] = b->k;
    op->in[1] = b->v;
}

void build_attn_core(struct prog_builder *b, int layer) {
    build_kv_write(b, layer);
    b->attn = build_value(b, "attn", b->m->hyper.n_head * b->m->hyper.head_dim);
    struct prog_op *op = build_op(b, PROG_OP_ATTENTION, layer);
    op->state_index = state_index(b, layer);
    op->in[0] = b->q;
    op->out[0] = b->attn;
}

void build_attn_out(struct prog_builder *b, int layer) {
    const struct model_layer *l = &b->m->layers[layer];
    if (l->attn_post_norm)
        build_norm_add(b, layer, l->attn_post_norm, build_linear(b, layer, l->o, b->attn, "o", b->m->hyper.n_embd));
    else
        build_linear_add(b, layer, l->o, b->attn);
}

void build_conv_in(struct prog_builder *b, int layer, int *out) {
    const struct model_layer *l = &b->m->layers[layer];
    int n_embd = b->m->hyper.n_embd;
    int n = build_norm(b, layer, l->attn_norm);
    int bcx = build_linear(b, layer, l->conv_in, n, "bcx", 3 * n_embd);
    *out = build_value(b, "conv", n_embd);
    struct prog_op *op = build_op(b, PROG_OP_SHORT_CONV, layer);
    op->state_index = state_index(b, layer);
    op->in[0] = bcx;
    op->out[0] = *out;
    op_weights(op, l->conv_taps, NULL, NULL, 1);
}

void build_conv_out(struct prog_builder *b, int layer, int in) {
    build_linear_add(b, layer, b->m->layers[layer].conv_out, in);
}

// Rows go to n_expert_used experts each: the router's logits, the choice, and all experts' work in one op.
static void build_experts(struct prog_builder *b, int layer, int n) {
    const struct model_layer *l = &b->m->layers[layer];
    const struct model_hyper *h = &b->m->hyper;
    int logits = build_linear(b, layer, l->router, n, "router", h->n_expert);
    int routes = build_value(b, "routes", 2 * h->n_expert_used);
    struct prog_op *op = build_op(b, PROG_OP_ROUTE, layer);
    op->in[0] = logits;
    op->out[0] = routes;
    op_weights(op, l->router_bias, NULL, NULL, 1);
    int gated = build_value(b, "gated", h->n_expert_used * h->n_ff_expert);
    int sum = build_value(b, "sum", h->n_embd);
    op = build_op(b, PROG_OP_EXPERTS, layer);
    op->in[0] = n;
    op->in[1] = b->x;
    op->in[2] = routes;
    op->out[0] = b->x;
    op->out[1] = gated;
    op->out[2] = sum;
}

static void build_dense(struct prog_builder *b, int layer, int n) {
    const struct model_layer *l = &b->m->layers[layer];
    int h = build_value(b, "h", b->m->hyper.n_ff);
    struct prog_op *op = build_op(b, PROG_OP_LINEAR, layer);
    op->in[0] = n;
    op->out[0] = h;
    op->swiglu = true;
    op_weights(op, l->ffn_gate, l->ffn_up, NULL, 2);
    if (l->ffn_post_norm)
        build_norm_add(b, layer, l->ffn_post_norm, build_linear(b, layer, l->ffn_down, h, "d", b->m->hyper.n_embd));
    else
        build_linear_add(b, layer, l->ffn_down, h);
}

void build_ffn(struct prog_builder *b, int layer) {
    const struct model_layer *l = &b->m->layers[layer];
    struct prog_op *op;
    int n = build_norm(b, layer, l->ffn_norm);
    if (l->router)
        build_experts(b, layer, n);
    else
        build_dense(b, layer, n);
    for (int i = 0; i < b->spec->n_features; i++) {
        if (b->spec->feature_layers[i] != layer) continue;
        op = build_op(b, PROG_OP_TAP, layer);
        op->in[0] = b->x;
        op->index = i;
    }
}

// cut_last: the last layer ends where its state is written, because nothing reads what comes after.
void build_layers(struct prog_builder *b, int begin, int end, bool cut_last) {
    for (int i = begin; i < end; i++) {
        bool cut = cut_last && i == end - 1;
        if (b->m->layers[i].kind == LAYER_ATTENTION) {
            build_attn_in(b, i);
            if (cut) build_kv_write(b, i);
            if (cut) return;
            build_attn_core(b, i);
            build_attn_out(b, i);
        } else {
            int conv = PROG_NONE;
            build_conv_in(b, i, &conv);
            if (cut) return;
            build_conv_out(b, i, conv);
        }
        build_ffn(b, i);
    }
}

// The context of a drafter gets no queries and no feed-forward part: per layer only k and v, of the same normed rows.
void build_inject(struct prog_builder *b) {
    const struct model_hyper *h = &b->m->hyper;
    const struct model_drafter *d = b->m->drafter;
    int features = build_port_in(b, PORT_ROWS_IN, "features", d->n_features * d->n_embd_target);
    build_rope(b);
    int fused = build_linear(b, PROG_NONE, d->fc, features, "fc", h->n_embd);
    int n = build_norm_of(b, PROG_NONE, d->hidden_norm, fused);
    for (int i = 0; i < h->n_layers; i++) {
        const struct model_layer *l = &b->m->layers[i];
        b->k = build_value(b, "k", l->n_head_kv * h->head_dim);
        b->v = build_value(b, "v", l->n_head_kv * h->head_dim);
        struct prog_op *op = build_op(b, PROG_OP_LINEAR, i);
        op->in[0] = n;
        op->out[0] = b->k;
        op->out[1] = b->v;
        op_weights(op, l->k, l->v, NULL, 2);
        op = build_op(b, PROG_OP_K_NORM_ROPE, i);
        op->in[0] = b->k;
        op->in[1] = b->rope;
        op_weights(op, l->k_norm, NULL, NULL, 1);
        build_kv_write(b, i);
    }
}

int build_port_in(struct prog_builder *b, enum prog_port port, const char *name, int n_cols) {
    int v = build_value(b, name, n_cols);
    struct prog_op *op = build_op(b, PROG_OP_PORT_IN, PROG_NONE);
    op->out[0] = v;
    op->index = (int)port;
    return v;
}

void build_port_out(struct prog_builder *b, enum prog_port port, int value) {
    struct prog_op *op = build_op(b, PROG_OP_PORT_OUT, PROG_NONE);
    op->in[0] = value;
    op->index = (int)port;
}
