// From a model and a checked spec to a program: lays the parts of build_layers.c behind one another as the kind says,
// plans memory, and verifies the result, so that every program that exists has been verified.
//
// Program kinds are cuts of one op list: a whole model is its layers between tokens and head; a range starts or ends at
// PORT_ROWS; segments and attention cores are the same list cut around each core. That their composition gives the
// whole's bits follows from the ops being the same; test/equal/test_compose.c shows it on a unit.
#include "base/base.h"
#include "prog/prog_int.h"

const struct prog_op_info prog_op_table[PROG_OP_COUNT] = {
    [PROG_OP_EMBED] = {.name = "embed", .n_out = 1, .n_w = 1},
    [PROG_OP_ROPE_TABLE] = {.name = "rope_table", .n_out = 1},
    [PROG_OP_RMSNORM] = {.name = "rmsnorm", .n_in = -1, .n_out = 1, .n_w = 1},
    [PROG_OP_LINEAR] = {.name = "linear", .n_in = -1, .n_out = -1, .n_w = -1},
    [PROG_OP_QK_NORM_ROPE] = {.name = "qk_norm_rope", .n_in = 3, .n_w = 2, .needs_layer = true},
    [PROG_OP_K_NORM_ROPE] = {.name = "k_norm_rope", .n_in = 2, .n_w = 1, .needs_layer = true},
    [PROG_OP_KV_WRITE] = {.name = "kv_write", .n_in = 2, .needs_layer = true, .needs_attn_index = true},
    [PROG_OP_ATTENTION] = {.name = "attention", .n_in = 1, .n_out = 1, .needs_layer = true, .needs_attn_index = true},
    [PROG_OP_SHORT_CONV] =
        {.name = "short_conv", .n_in = 1, .n_out = 1, .n_w = 1, .needs_layer = true, .needs_conv_index = true},
    [PROG_OP_ROUTE] = {.name = "route", .n_in = 1, .n_out = 1, .n_w = 1, .needs_layer = true},
    [PROG_OP_EXPERTS] = {.name = "experts", .n_in = 3, .n_out = 3, .needs_layer = true},
    [PROG_OP_TAP] = {.name = "tap", .n_in = 1, .needs_layer = true},
    [PROG_OP_HEAD] = {.name = "head", .n_in = 1, .n_w = 2},
    [PROG_OP_NORM_OUT] = {.name = "norm_out", .n_in = 1, .n_w = 1},
    [PROG_OP_PORT_IN] = {.name = "port_in", .n_out = -1},
    [PROG_OP_PORT_OUT] = {.name = "port_out", .n_in = -1},
    [PROG_OP_COMMIT] = {.name = "commit"},
};

static const char *const kind_names[] = {
    [PROG_WHOLE] = "whole",     [PROG_LAYERS] = "layers", [PROG_SEGMENT] = "segment",
    [PROG_ATTN] = "attention",  [PROG_LINEAR] = "linear", [PROG_COMMIT] = "commit",
    [PROG_ENCODER] = "encoder", [PROG_INJECT] = "inject", [PROG_DRAFT] = "draft",
};
static const char *const port_names[] = {
    [PORT_ROWS_IN] = "rows_in", [PORT_ROWS_OUT] = "rows_out", [PORT_QKV] = "qkv",           [PORT_ATTN] = "attn",
    [PORT_LOGITS] = "logits",   [PORT_ARGMAX] = "argmax",     [PORT_FEATURES] = "features", [PORT_HIDDEN] = "hidden",
};

const char *prog_kind_name(enum prog_kind k) { return (size_t)k < ARRAY_LEN(kind_names) ? kind_names[k] : "unknown"; }

const char *prog_port_name(int port) {
    return port >= 0 && (size_t)port < ARRAY_LEN(port_names) ? port_names[port] : "unknown";
}

void prog_op_counts(const struct prog_op *op, int *n_in, int *n_out, int *n_w) {
    const struct prog_op_info *info = &prog_op_table[op->kind];
    bool qkv = op->index == (int)PORT_QKV;
    *n_in = info->n_in >= 0 ? info->n_in : op->add ? 2 : 1;
    *n_out = info->n_out >= 0 ? info->n_out : 1;
    *n_w = info->n_w >= 0 ? info->n_w : MAX(op->n_w, 1);
    if (op->kind == PROG_OP_LINEAR) {
        *n_in = op->add ? 2 : 1;
        *n_out = op->swiglu || op->add ? 1 : *n_w;
    }
    if (op->kind == PROG_OP_PORT_IN && qkv) *n_out = 3;
    if (op->kind == PROG_OP_PORT_OUT && qkv) *n_in = 3;
}

int64_t prog_rows_cols(const struct prog *p, bool in) {
    const struct tensor *w = p->spec.kind == PROG_LINEAR ? p->spec.weight : NULL;
    const struct model_drafter *d = p->spec.kind == PROG_INJECT ? p->model->drafter : NULL;
    if (w) return in ? w->ne[0] : w->ne[1];
    return d && in ? (int64_t)d->n_features * d->n_embd_target : p->hyper->n_embd;
}

int prog_attn_layer(const struct model *m, int index) {
    for (int i = 0; i < m->hyper.n_layers; i++)
        if (m->layers[i].kind == LAYER_ATTENTION && index-- == 0) return i;
    return -1;
}

// ---------------------------------------------------------------------------------------------------------- the parts

static void build_head(struct prog_builder *b) {
    struct prog_op *op = build_op(b, PROG_OP_HEAD, PROG_NONE);
    op->in[0] = b->x;
    op->w[0] = b->m->output_norm;
    op->w[1] = b->m->output;
    op->n_w = 2;
}

// The end of a program that reaches the last layer: the head and the rows as the outputs ask.
static void build_tail(struct prog_builder *b) {
    bool head = (b->spec->outputs & PROG_HEAD_OUTPUTS) != 0;
    bool rows = (b->spec->outputs & PROG_OUT_ROWS) != 0;
    if (rows || (!head && b->spec->kind != PROG_WHOLE)) build_port_out(b, PORT_ROWS_OUT, b->x);
    if (head) build_head(b);
}

static void build_start(struct prog_builder *b, bool tokens) {
    if (tokens)
        build_embed(b);
    else
        b->x = build_port_in(b, PORT_ROWS_IN, "x", b->m->hyper.n_embd);
}

static void build_whole(struct prog_builder *b) {
    int n = b->m->hyper.n_layers;
    bool cut = !(b->spec->outputs & (PROG_HEAD_OUTPUTS | PROG_OUT_ROWS));
    for (int i = 0; i < b->spec->n_features; i++) cut = cut && b->spec->feature_layers[i] < n - 1;
    build_start(b, true);
    if (b->p->has_attn) build_rope(b);
    build_layers(b, 0, n, cut);
    build_tail(b);
}

static void build_range(struct prog_builder *b) {
    build_start(b, b->spec->layer_begin == 0);
    if (b->p->has_attn) build_rope(b);
    build_layers(b, b->spec->layer_begin, b->spec->layer_end, false);
    if (b->spec->layer_end == b->m->hyper.n_layers)
        build_tail(b);
    else
        build_port_out(b, PORT_ROWS_OUT, b->x);
}

static void build_segment(struct prog_builder *b) {
    int before = prog_attn_layer(b->m, b->spec->index - 1); // -1: none
    int behind = prog_attn_layer(b->m, b->spec->index);
    build_start(b, b->spec->index == 0);
    if (behind >= 0) build_rope(b);
    if (before >= 0) {
        b->attn = build_port_in(b, PORT_ATTN, "attn", b->m->hyper.n_head * b->m->hyper.head_dim);
        build_attn_out(b, before);
        build_ffn(b, before);
    }
    build_layers(b, before + 1, behind >= 0 ? behind : b->m->hyper.n_layers, false);
    if (behind < 0) {
        build_tail(b);
        return;
    }
    build_attn_in(b, behind);
    build_port_out(b, PORT_ROWS_OUT, b->x);
    build_port_out(b, PORT_QKV, b->q);
    struct prog_op *op = &b->p->ops[b->p->n_ops - 1];
    op->in[1] = b->k;
    op->in[2] = b->v;
}

static void build_attention(struct prog_builder *b) {
    int layer = prog_attn_layer(b->m, b->spec->index);
    const struct model_hyper *h = &b->m->hyper;
    b->q = build_port_in(b, PORT_QKV, "q", h->n_head * h->head_dim);
    b->k = build_value(b, "k", h->n_head_kv * h->head_dim);
    b->v = build_value(b, "v", h->n_head_kv * h->head_dim);
    struct prog_op *op = &b->p->ops[b->p->n_ops - 1];
    op->out[1] = b->k;
    op->out[2] = b->v;
    build_attn_core(b, layer);
    build_port_out(b, PORT_ATTN, b->attn);
}

static void build_one_linear(struct prog_builder *b) {
    const struct tensor *w = b->spec->weight;
    int x = build_port_in(b, PORT_ROWS_IN, "x", (int)w->ne[0]);
    int y = build_value(b, "y", (int)w->ne[1]);
    struct prog_op *op = build_op(b, PROG_OP_LINEAR, PROG_NONE);
    op->in[0] = x;
    op->out[0] = y;
    op->w[0] = w;
    op->n_w = 1;
    build_port_out(b, PORT_ROWS_OUT, y);
}

static void build_encoder(struct prog_builder *b) {
    build_start(b, true);
    if (b->p->has_attn) build_rope(b);
    build_layers(b, 0, b->m->hyper.n_layers, false);
    struct prog_op *op = build_op(b, PROG_OP_NORM_OUT, PROG_NONE);
    op->in[0] = b->x;
    op->w[0] = b->m->output_norm;
    op->n_w = 1;
}

static void build_draft(struct prog_builder *b) {
    build_start(b, true);
    build_rope(b);
    build_layers(b, 0, b->m->hyper.n_layers, false);
    build_head(b);
}

static void build_kind(struct prog_builder *b) {
    switch (b->spec->kind) {
    case PROG_WHOLE: build_whole(b); break;
    case PROG_LAYERS: build_range(b); break;
    case PROG_SEGMENT: build_segment(b); break;
    case PROG_ATTN: build_attention(b); break;
    case PROG_LINEAR: build_one_linear(b); break;
    case PROG_COMMIT: build_op(b, PROG_OP_COMMIT, PROG_NONE); break;
    case PROG_ENCODER: build_encoder(b); break;
    case PROG_INJECT: build_inject(b); break;
    case PROG_DRAFT: build_draft(b); break;
    }
}

static uint32_t ports_of(const struct prog *p) {
    uint32_t ports = 0;
    uint32_t out = p->spec.outputs;
    for (int i = 0; i < p->n_ops; i++) {
        const struct prog_op *op = &p->ops[i];
        if (op->kind == PROG_OP_PORT_IN || op->kind == PROG_OP_PORT_OUT) ports |= 1u << op->index;
        if (op->kind == PROG_OP_TAP) ports |= 1u << PORT_FEATURES;
        if (op->kind == PROG_OP_NORM_OUT) ports |= 1u << PORT_HIDDEN;
        if (op->kind != PROG_OP_HEAD) continue;
        if (out & PROG_OUT_LOGITS) ports |= 1u << PORT_LOGITS;
        if (out & PROG_OUT_ARGMAX) ports |= 1u << PORT_ARGMAX;
        if (out & PROG_OUT_HIDDEN) ports |= 1u << PORT_HIDDEN;
    }
    return ports;
}

static void set_facts(struct prog *p, const struct model *m, const int range[2]) {
    enum prog_kind kind = p->spec.kind;
    int state_range[2] = {range[0], range[1]};
    if (kind == PROG_COMMIT) {
        state_range[0] = p->spec.state_begin;
        state_range[1] = p->spec.state_end;
    }
    bool none = kind == PROG_LINEAR;
    p->layer_begin = state_range[0];
    p->layer_end = state_range[1];
    p->has_attn =
        !none && kind != PROG_SEGMENT && prog_layer_count(m, LAYER_ATTENTION, state_range[0], state_range[1]) > 0;
    p->has_conv = !none && kind != PROG_ATTN && prog_layer_count(m, LAYER_CONV, state_range[0], state_range[1]) > 0;
    p->needs_state = p->has_attn || p->has_conv;
    for (int i = p->layer_begin; i < p->layer_end; i++) p->has_windows = p->has_windows || m->layers[i].window > 0;
    p->n_out_max = p->spec.n_out_max < 0 ? p->spec.window : p->spec.n_out_max;
}

enum tern_status prog_build(struct prog **out, const struct model *m, const struct prog_spec *spec,
                            struct tern_err *err) {
    int range[2] = {0};
    TRY(prog_spec_check(m, spec, range, err));
    struct prog *p = mem_calloc(1, sizeof(*p));
    if (!p) return err_set(err, TERN_NO_MEMORY, "program: no memory");
    arena_init(&p->arena, 0);
    p->spec = *spec;
    p->model = m;
    p->hyper = &m->hyper;
    p->spec.state_end = prog_state_end(m, spec);
    enum tern_status status = TERN_OK;
    set_facts(p, m, range);
    struct prog_builder b = {
        .p = p,
        .m = m,
        .spec = &p->spec,
        .ops_cap = m->hyper.n_layers * PROG_LAYER_OPS_MAX + spec->n_features + PROG_EDGE_OPS_MAX,
        .values_cap = m->hyper.n_layers * PROG_LAYER_VALUES_MAX + PROG_EDGE_OPS_MAX,
        .x = PROG_NONE,
        .rope = PROG_NONE,
        .rope_local = PROG_NONE,
    };
    p->ops = arena_calloc(&p->arena, (size_t)b.ops_cap, sizeof(*p->ops));
    p->values = arena_calloc(&p->arena, (size_t)b.values_cap, sizeof(*p->values));
    if (!p->ops || !p->values) {
        status = err_set(err, TERN_NO_MEMORY, "program: no memory for its %d operations", b.ops_cap);
        goto fail;
    }
    build_kind(&b);
    p->reads_tokens = p->ops[0].kind == PROG_OP_EMBED;
    p->has_head = p->ops[p->n_ops - 1].kind == PROG_OP_HEAD;
    p->ports = ports_of(p);
    TRY_GOTO(prog_memory_plan(p, err), fail);
    TRY_GOTO(prog_verify(p, err), fail);
    *out = p;
    return TERN_OK;
fail:
    prog_free(p);
    return status;
}

void prog_free(struct prog *p) {
    if (!p) return;
    arena_release(&p->arena);
    mem_free(p);
}
