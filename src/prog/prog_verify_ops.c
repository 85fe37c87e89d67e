// Per operation: columns of its values, shapes and bytes of its weights, layer, state index, port.
#include "base/base.h"
#include "prog/prog_int.h"

#define BAD(...) err_set(err, TERN_INVALID_ARGUMENT, __VA_ARGS__)

static enum tern_status want_cols(const struct prog *p, int value, int64_t n, const char *what, struct tern_err *err) {
    if (p->values[value].n_cols != n)
        return BAD("%s (%s) has %d columns, expected %lld", what, p->values[value].name, p->values[value].n_cols,
                   (long long)n);
    return TERN_OK;
}

// A weight of n_in columns and n_out rows (a vector: n_out 1).
// Not its data: a unit that packed a made model's tensor has given that up, and the next program is built without it.
static enum tern_status want_weight(const struct tensor *w, int64_t n_in, int64_t n_out, const char *what,
                                    struct tern_err *err) {
    if (!w) return BAD("no %s", what);
    if (w->ne[0] != n_in || w->ne[1] != n_out || w->ne[2] != 1 || w->ne[3] != 1)
        return BAD("%s (%.*s) is %lld x %lld, expected %lld x %lld", what, (int)w->name.len, w->name.data,
                   (long long)w->ne[0], (long long)w->ne[1], (long long)n_in, (long long)n_out);
    uint64_t bytes = 0;
    if (!format_row_bytes(w->format, (uint64_t)n_in, &bytes) || !u64_mul(bytes, (uint64_t)n_out, &bytes) ||
        bytes != w->n_bytes)
        return BAD("%s (%.*s) has %llu bytes, expected %llu", what, (int)w->name.len, w->name.data,
                   (unsigned long long)w->n_bytes, (unsigned long long)bytes);
    return TERN_OK;
}

static enum tern_status want_vector(const struct tensor *w, int64_t n, const char *what, struct tern_err *err) {
    if (w && !format_is_float(w->format))
        return BAD("%s (%.*s) is not in a float format", what, (int)w->name.len, w->name.data);
    return want_weight(w, n, 1, what, err);
}

static enum tern_status verify_linear(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    int n_in = p->values[op->in[0]].n_cols;
    if (op->n_w < 1) return BAD("no weight");
    if (op->swiglu && (op->n_w != 2 || op->add)) return BAD("swiglu takes two weights and no residual");
    if (op->add && op->n_w != 1) return BAD("a sum with the residual takes one weight, found %d", op->n_w);
    for (int i = 0; i < op->n_w; i++) {
        int out = op->out[op->swiglu ? 0 : i];
        TRY(want_weight(op->w[i], n_in, p->values[out].n_cols, "weight", err));
    }
    return op->add ? want_cols(p, op->in[1], p->values[op->out[0]].n_cols, "residual", err) : TERN_OK;
}

static enum tern_status verify_qk(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    const struct model_hyper *h = p->hyper;
    TRY(want_cols(p, op->in[0], (int64_t)h->n_head * h->head_dim, "q", err));
    TRY(want_cols(p, op->in[1], (int64_t)h->n_head_kv * h->head_dim, "k", err));
    TRY(want_cols(p, op->in[2], h->head_dim, "table", err));
    if (op->w[0]) TRY(want_vector(op->w[0], h->head_dim, "norm of q", err));
    if (op->w[1]) TRY(want_vector(op->w[1], h->head_dim, "norm of k", err));
    return TERN_OK;
}

static enum tern_status verify_k(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    const struct model_hyper *h = p->hyper;
    TRY(want_cols(p, op->in[0], (int64_t)h->n_head_kv * h->head_dim, "k", err));
    TRY(want_cols(p, op->in[1], h->head_dim, "table", err));
    return op->w[0] ? want_vector(op->w[0], h->head_dim, "norm of k", err) : TERN_OK;
}

static enum tern_status verify_short_conv(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    const struct model_hyper *h = p->hyper;
    TRY(want_cols(p, op->in[0], 3 * (int64_t)h->n_embd, "input", err));
    TRY(want_cols(p, op->out[0], h->n_embd, "output", err));
    const struct tensor *w = op->w[0];
    if (w && !format_is_float(w->format))
        return BAD("taps (%.*s) are not in a float format", (int)w->name.len, w->name.data);
    return want_weight(w, h->conv_len, h->n_embd, "taps", err);
}

static enum tern_status verify_route(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    const struct model_hyper *h = p->hyper;
    if (h->n_expert_used < 1 || h->n_expert_used > h->n_expert)
        return BAD("%d experts of %d", h->n_expert_used, h->n_expert);
    TRY(want_cols(p, op->in[0], h->n_expert, "logits", err));
    TRY(want_cols(p, op->out[0], 2 * (int64_t)h->n_expert_used, "routes", err));
    return op->w[0] ? want_vector(op->w[0], h->n_expert, "bias of the router", err) : TERN_OK;
}

static enum tern_status verify_experts(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    const struct model_hyper *h = p->hyper;
    const struct model_layer *l = &p->model->layers[op->layer];
    TRY(want_cols(p, op->in[0], h->n_embd, "input", err));
    TRY(want_cols(p, op->in[1], h->n_embd, "residual", err));
    TRY(want_cols(p, op->in[2], 2 * (int64_t)h->n_expert_used, "routes", err));
    TRY(want_cols(p, op->out[0], h->n_embd, "output", err));
    TRY(want_cols(p, op->out[1], (int64_t)h->n_expert_used * h->n_ff_expert, "gated rows", err));
    TRY(want_cols(p, op->out[2], h->n_embd, "sum", err));
    if (!l->experts) return BAD("a layer without experts");
    for (int e = 0; e < h->n_expert; e++) {
        TRY(want_weight(l->experts[e].gate, h->n_embd, h->n_ff_expert, "gate of an expert", err));
        TRY(want_weight(l->experts[e].up, h->n_embd, h->n_ff_expert, "up of an expert", err));
        TRY(want_weight(l->experts[e].down, h->n_ff_expert, h->n_embd, "down of an expert", err));
    }
    return TERN_OK;
}

static enum tern_status verify_head(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    TRY(want_cols(p, op->in[0], p->hyper->n_embd, "input", err));
    TRY(want_vector(op->w[0], p->hyper->n_embd, "output norm", err));
    if (!(p->spec.outputs & PROG_HEAD_OUTPUTS)) return BAD("a head, but no output asks for it");
    return want_weight(op->w[1], p->hyper->n_embd, p->hyper->n_vocab, "output weight", err);
}

static enum tern_status verify_port(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    const struct model_hyper *h = p->hyper;
    const bool in = op->kind == PROG_OP_PORT_IN;
    const int *v = in ? op->out : op->in;
    switch (op->index) {
    case PORT_ROWS_IN:
        if (!in) break;
        return want_cols(p, v[0], prog_rows_cols(p, true), "port rows_in", err);
    case PORT_ROWS_OUT:
        if (in) break;
        return want_cols(p, v[0], prog_rows_cols(p, false), "port rows_out", err);
    case PORT_ATTN: return want_cols(p, v[0], (int64_t)h->n_head * h->head_dim, "port attn", err);
    case PORT_QKV:
        TRY(want_cols(p, v[0], (int64_t)h->n_head * h->head_dim, "q of port qkv", err));
        TRY(want_cols(p, v[1], (int64_t)h->n_head_kv * h->head_dim, "k of port qkv", err));
        return want_cols(p, v[2], (int64_t)h->n_head_kv * h->head_dim, "v of port qkv", err);
    default: break;
    }
    return BAD("port %d (%s) cannot be %s this way", op->index, prog_port_name(op->index), in ? "read" : "written");
}

static enum tern_status check_place(const struct prog *p, const struct prog_op *op, struct tern_err *err) {
    const struct prog_op_info *info = &prog_op_table[op->kind];
    if (info->needs_layer && (op->layer < p->layer_begin || op->layer >= p->layer_end))
        return BAD("layer %d; the program covers %d to %d", op->layer, p->layer_begin, p->layer_end);
    if (!info->needs_attn_index && !info->needs_conv_index) return TERN_OK;
    enum layer_kind kind = info->needs_attn_index ? LAYER_ATTENTION : LAYER_CONV;
    if (p->model->layers[op->layer].kind != kind) return BAD("layer %d is of the other kind", op->layer);
    int index = prog_layer_count(p->model, kind, p->spec.state_begin, op->layer);
    if (op->state_index != index) return BAD("state index %d, expected %d", op->state_index, index);
    return TERN_OK;
}

enum tern_status prog_verify_op(const struct prog *p, int i, struct tern_err *err) {
    const struct prog_op *op = &p->ops[i];
    const struct model_hyper *h = p->hyper;
    int n_in, n_out, n_w;
    prog_op_counts(op, &n_in, &n_out, &n_w);
    if (op->kind != PROG_OP_LINEAR && op->n_w != n_w) return BAD("%d weights, expected %d", op->n_w, n_w);
    TRY(check_place(p, op, err));
    switch (op->kind) {
    case PROG_OP_EMBED:
        TRY(want_cols(p, op->out[0], h->n_embd, "output", err));
        return want_weight(op->w[0], h->n_embd, h->n_vocab, "embedding", err);
    case PROG_OP_ROPE_TABLE: return want_cols(p, op->out[0], h->head_dim, "output", err);
    case PROG_OP_RMSNORM:
        TRY(want_cols(p, op->in[0], h->n_embd, "input", err));
        TRY(want_cols(p, op->out[0], h->n_embd, "output", err));
        if (op->add) TRY(want_cols(p, op->in[1], h->n_embd, "residual", err));
        return want_vector(op->w[0], h->n_embd, "norm", err);
    case PROG_OP_LINEAR: return verify_linear(p, op, err);
    case PROG_OP_QK_NORM_ROPE: return verify_qk(p, op, err);
    case PROG_OP_K_NORM_ROPE: return verify_k(p, op, err);
    case PROG_OP_KV_WRITE:
        TRY(want_cols(p, op->in[0], (int64_t)h->n_head_kv * h->head_dim, "k", err));
        return want_cols(p, op->in[1], (int64_t)h->n_head_kv * h->head_dim, "v", err);
    case PROG_OP_ATTENTION:
        TRY(want_cols(p, op->in[0], (int64_t)h->n_head * h->head_dim, "q", err));
        return want_cols(p, op->out[0], (int64_t)h->n_head * h->head_dim, "output", err);
    case PROG_OP_SHORT_CONV: return verify_short_conv(p, op, err);
    case PROG_OP_ROUTE: return verify_route(p, op, err);
    case PROG_OP_EXPERTS: return verify_experts(p, op, err);
    case PROG_OP_TAP:
        if (op->index < 0 || op->index >= p->spec.n_features)
            return BAD("feature %d of %d", op->index, p->spec.n_features);
        if (p->spec.feature_layers[op->index] != op->layer)
            return BAD("feature %d belongs to layer %d", op->index, p->spec.feature_layers[op->index]);
        return want_cols(p, op->in[0], h->n_embd, "input", err);
    case PROG_OP_HEAD: return verify_head(p, op, err);
    case PROG_OP_NORM_OUT:
        TRY(want_cols(p, op->in[0], h->n_embd, "input", err));
        return want_vector(op->w[0], h->n_embd, "output norm", err);
    case PROG_OP_PORT_IN:
    case PROG_OP_PORT_OUT: return verify_port(p, op, err);
    case PROG_OP_COMMIT: return p->n_ops == 1 ? TERN_OK : BAD("a commit stands alone, found %d ops", p->n_ops);
    case PROG_OP_COUNT: break;
    }
    return BAD("operation number %d", (int)op->kind);
}
