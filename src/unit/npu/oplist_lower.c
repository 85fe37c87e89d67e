// Lowering: one walk over a program's ops. Each prog value becomes the tensor that holds it at that moment; the
// residual, which program IR updates in place, simply gets a new tensor.
//
// Layout choices, all from what is known to run on the Neural Engine: heads lie on the batch axis while they are normed
// and rotated; attention is one product per head, K^T q with the softmax over the channel axis; gathers are products
// with one-hot matrices that the host gives; keys are [cache | window] (stateless) or the cache after the window's
// blocks were blended in (stateful).
#include "base/base.h"
#include <math.h>
#include <stdio.h>
#include "unit/npu/oplist_lower.h"

// A row's largest magnitude counts as at least this, so that a row of zeros divides by something.
#define NORM_FLOOR 0x1p-10f

struct lowering {
    struct npu_list *l;
    const struct prog *p;
    const struct model *m;
    const struct model_hyper *h;
    struct npu_store *store;
    const struct npu_lower_options *o;
    struct tern_err *err;
    enum tern_status status;
    int *value; // [n_values] tensor of each prog value
    int cos, sin, mask, place, sel, pick;
    int tap[OP_CONV_LEN_MAX];
    int S, F, keys; // keys: columns that attention sees
    int k_full, v_full;
};

enum tern_status npu_lower_check(const struct model *m, struct tern_err *err) {
    const struct model_hyper *h = &m->hyper;
    if (h->n_expert > 0)
        return err_set(err, TERN_UNSUPPORTED,
                       "npu: %s is a mixture of experts (%d experts): the engine has no gather of weights; run it on "
                       "unit cpu",
                       m->name, h->n_expert);
    if (h->ffn_gelu)
        return err_set(err, TERN_UNSUPPORTED, "npu: %s has gelu gates, which have no lowering; run it on unit cpu",
                       m->name);
    if (h->rope_base_local > 0)
        return err_set(err, TERN_UNSUPPORTED, "npu: %s rotates by two RoPE bases; run it on unit cpu", m->name);
    for (int i = 0; i < h->n_layers; i++) {
        if (m->layers[i].window > 0)
            return err_set(err, TERN_UNSUPPORTED, "npu: layer %d of %s has a sliding window; run it on unit cpu", i,
                           m->name);
        if (m->layers[i].attn_post_norm || m->layers[i].ffn_post_norm)
            return err_set(err, TERN_UNSUPPORTED, "npu: layer %d of %s norms its results; run it on unit cpu", i,
                           m->name);
    }
    return TERN_OK;
}

// ----------------------------------------------------------------------------------------------------------- constants

static float pow2(int e) { return ldexpf(1, e); }

static int scale_of(const struct lowering *b, const int8_t *list, int layer) {
    const struct npu_scales *s = b->o->scales;
    return s && list && layer >= 0 && layer < s->n_layers ? list[layer] : 0;
}
static int scale_residual(const struct lowering *b) { return b->o->scales ? b->o->scales->residual : 0; }
#define LAYER_SCALE(b, which, layer) scale_of(b, (b)->o->scales ? (b)->o->scales->which : NULL, layer)

static int made(struct lowering *b, enum tern_status status, const struct npu_weight *w) {
    if (status != TERN_OK && b->status == TERN_OK) b->status = status;
    if (status != TERN_OK) {
        b->l->failed = true;
        return 0;
    }
    return npu_const(b->l, w);
}

static int scalar(struct lowering *b, float v) {
    const struct npu_weight *w = NULL;
    enum tern_status status = npu_store_scalar(b->store, v, &w, b->err);
    return made(b, status, w);
}

static int vector(struct lowering *b, const char *name, const struct tensor *t, int column, float factor, int unpair) {
    const struct npu_weight *w = NULL;
    enum tern_status status = npu_store_vector(b->store, name, t, column, factor, unpair, &w, b->err);
    return made(b, status, w);
}

// The name of a matrix and what is folded into it, by the place it has in its layer.
static void matrix_role(const struct lowering *b, const struct tensor *t, int layer, char name[NPU_NAME_MAX],
                        struct npu_cut *cut) {
    const struct model_layer *l = layer >= 0 ? &b->m->layers[layer] : NULL;
    const struct model_drafter *d = b->m->drafter;
    int unpair = b->h->rope == ROPE_INTERLEAVED ? b->h->head_dim : 0;
    const char *what = NULL;
    int exponent = 0;
    *cut = (struct npu_cut){0};
    if (l && t == l->q) {
        what = "q";
        cut->unpair = unpair;
        cut->factor = l->q_norm ? 0 : b->h->attn_scale * pow2(-LAYER_SCALE(b, key, layer));
    } else if (l && t == l->k) {
        what = "k";
        cut->unpair = unpair;
        exponent = l->k_norm ? 0 : LAYER_SCALE(b, key, layer);
    } else if (l && t == l->v) {
        what = "v";
        exponent = LAYER_SCALE(b, value, layer);
    } else if (l && t == l->o) {
        what = "o";
        exponent = scale_residual(b) - LAYER_SCALE(b, value, layer);
    } else if (l && t == l->conv_in) {
        what = "conv_in";
    } else if (l && t == l->conv_out) {
        what = "conv_out";
        exponent = scale_residual(b);
    } else if (l && t == l->ffn_gate) {
        what = "gate";
    } else if (l && t == l->ffn_up) {
        what = "up";
        exponent = LAYER_SCALE(b, ffn, layer);
    } else if (l && t == l->ffn_down) {
        what = "down";
        exponent = scale_residual(b) - LAYER_SCALE(b, ffn, layer);
    }
    if (exponent != 0) cut->factor = pow2(exponent);
    if (what)
        (void)snprintf(name, NPU_NAME_MAX, "l%d.%s", layer, what);
    else if (d && t == d->fc)
        (void)snprintf(name, NPU_NAME_MAX, "fc");
    else
        (void)snprintf(name, NPU_NAME_MAX, "linear.%d", (int)(t - b->m->tensors));
}

static int linear(struct lowering *b, int x, const struct tensor *t, int layer) {
    char name[NPU_NAME_MAX];
    struct npu_cut cut;
    const struct npu_weight *w = NULL;
    matrix_role(b, t, layer, name, &cut);
    npu_site(b->l, "%s", name);
    enum tern_status status = npu_store_matrix(b->store, name, t, cut, &w, b->err);
    return npu_conv(b->l, x, made(b, status, w));
}

// -------------------------------------------------------------------------------------------------------------- pieces

static int shape4(struct npu_list *l, int x, int a, int b, int c, int d) {
    return npu_reshape(l, x, 4, (const int32_t[]){a, b, c, d});
}
static int shape3(struct npu_list *l, int x, int a, int b, int c) {
    return npu_reshape(l, x, 3, (const int32_t[]){a, b, c});
}
static int32_t axis_len(const struct npu_list *l, int x, int axis) { return l->failed ? 1 : l->tensors[x].shape[axis]; }

// RMS norm over the channel axis by gamma (1, C, 1, 1). The safe form divides by the row's largest magnitude before
// squaring, so squares lie in [0, 1] whatever the residual is; only the statistic is divided, not the row itself.
static int rms_norm(struct lowering *b, int x, int gamma, float eps_scale) {
    struct npu_list *l = b->l;
    float eps = b->h->norm_eps * eps_scale * eps_scale;
    if (b->o->plain_norm) {
        int mean = npu_reduce(l, NPU_OP_MEAN, npu_binary(l, NPU_OP_MUL, x, x), 1);
        int r = npu_unary(l, NPU_OP_RSQRT, npu_binary(l, NPU_OP_ADD, mean, scalar(b, eps)));
        return npu_binary(l, NPU_OP_MUL, npu_binary(l, NPU_OP_MUL, x, r), gamma);
    }
    int low = npu_reduce(l, NPU_OP_REDUCE_MAX, npu_binary(l, NPU_OP_MUL, x, scalar(b, -1)), 1);
    int top = npu_binary(l, NPU_OP_MAX, npu_reduce(l, NPU_OP_REDUCE_MAX, x, 1), low);
    top = npu_binary(l, NPU_OP_MAX, top, scalar(b, NORM_FLOOR));
    int part = npu_binary(l, NPU_OP_DIV, x, top);
    int mean = npu_reduce(l, NPU_OP_MEAN, npu_binary(l, NPU_OP_MUL, part, part), 1);
    int e = npu_binary(l, NPU_OP_DIV, scalar(b, sqrtf(eps)), top);
    int r = npu_unary(l, NPU_OP_RSQRT, npu_binary(l, NPU_OP_ADD, mean, npu_binary(l, NPU_OP_MUL, e, e)));
    return npu_binary(l, NPU_OP_MUL, npu_binary(l, NPU_OP_MUL, x, npu_binary(l, NPU_OP_DIV, r, top)), gamma);
}

// Columns of z (1, C, 1, N) by a one-hot (N, M).
static int gather(struct lowering *b, int z, int onehot) {
    struct npu_list *l = b->l;
    int c = axis_len(l, z, 1), n = axis_len(l, onehot, 0), m = axis_len(l, onehot, 1);
    return shape4(l, npu_matmul(l, shape3(l, z, 1, c, n), shape3(l, onehot, 1, n, m)), 1, c, 1, m);
}

static int rope(struct lowering *b, int x) {
    struct npu_list *l = b->l;
    int half = b->h->head_dim / 2;
    int neg = npu_binary(l, NPU_OP_MUL, npu_slice(l, x, 1, half, 2 * half), scalar(b, -1));
    int rot = npu_concat(l, 1, (const int[]){neg, npu_slice(l, x, 1, 0, half)}, 2);
    return npu_binary(l, NPU_OP_ADD, npu_binary(l, NPU_OP_MUL, x, b->cos), npu_binary(l, NPU_OP_MUL, rot, b->sin));
}

static int input2(struct lowering *b, enum npu_role role, int index, const char *name, int rows, int cols) {
    return npu_input(b->l, role, NPU_NONE, index, name, 2, (const int32_t[]){rows, cols});
}

// A tensor that may be declared an output: inputs and other outputs get a copy.
static void output(struct lowering *b, int id, enum npu_role role, int layer, int index, const char *name) {
    struct npu_list *l = b->l;
    if (l->failed) return;
    if (l->tensors[id].role != NPU_INNER) id = npu_reshape(l, id, l->tensors[id].rank, l->tensors[id].shape);
    npu_output(l, id, role, layer, index, name);
}

static void output_layer(struct lowering *b, int id, enum npu_role role, int layer, const char *what) {
    char name[NPU_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%s.%d", what, layer);
    output(b, id, role, layer, NPU_NONE, name);
}

// ----------------------------------------------------------------------------------------------------------- attention

static int head_norm_rope(struct lowering *b, int x, int n_head, const struct tensor *norm, const char *name, int layer,
                          float factor) {
    struct npu_list *l = b->l;
    int unpair = b->h->rope == ROPE_INTERLEAVED ? b->h->head_dim : 0;
    char full[NPU_NAME_MAX];
    (void)snprintf(full, sizeof(full), "l%d.%s", layer, name);
    npu_site(l, "%s", full);
    x = shape4(l, x, n_head, b->h->head_dim, 1, b->S);
    if (norm) x = rms_norm(b, x, vector(b, full, norm, -1, factor, unpair), 1);
    return rope(b, x);
}

// The cache with the window's columns behind it, or blended into its blocks; stateless: the columns are given back.
static int cache_put(struct lowering *b, int now, int layer, bool is_key) {
    struct npu_list *l = b->l;
    int c = b->h->n_head_kv * b->h->head_dim, T = b->o->bucket, S = b->S;
    char name[NPU_NAME_MAX];
    (void)snprintf(name, sizeof(name), "%s.%d", is_key ? "k" : "v", layer);
    npu_site(l, "l%d.cache", layer);
    if (!b->o->stateful) {
        int cache = npu_input4(l, is_key ? NPU_IN_K : NPU_IN_V, layer, name, c, T);
        output_layer(b, now, is_key ? NPU_OUT_K : NPU_OUT_V, layer, is_key ? "k_new" : "v_new");
        return npu_concat(l, 3, (const int[]){cache, now}, 2);
    }
    int n = T / NPU_BLOCK, P = MAX(n, NPU_BLOCK);
    if (b->place == NPU_NONE) b->place = input2(b, NPU_IN_PLACE, NPU_NONE, "place", 1 + S / NPU_BLOCK, P);
    int old = npu_state(l, name, 4, (const int32_t[]){1, c, 1, T});
    int y = NPU_NONE;
    now = shape4(l, now, 1, c, S / NPU_BLOCK, NPU_BLOCK);
    for (int i = 0; i <= S / NPU_BLOCK; i++) {
        int row = npu_slice(l, npu_slice(l, b->place, 0, i, i + 1), 1, 0, n);
        int what = i == 0 ? shape4(l, old, 1, c, n, NPU_BLOCK) : npu_slice(l, now, 2, i - 1, i);
        int part = npu_binary(l, NPU_OP_MUL, what, shape4(l, row, 1, 1, n, 1));
        y = i == 0 ? part : npu_binary(l, NPU_OP_ADD, y, part);
    }
    y = shape4(l, y, 1, c, 1, T);
    npu_state_set(l, old, y);
    return y;
}

// One head's slice of the columns [t0, t1) of a cache: (1, head_dim, t1 - t0).
static int head_cut(struct lowering *b, int full, int head, int t0, int t1) {
    int d = b->h->head_dim;
    return shape3(b->l, npu_slice(b->l, npu_slice(b->l, full, 1, head * d, (head + 1) * d), 3, t0, t1), 1, d, t1 - t0);
}

#define HEADS_MAX 256
#define CHUNKS_MAX 8

// Scores of the columns [t0, t1) plus the mask: (1, t1 - t0, H, S).
static int scores(struct lowering *b, const int *q, int t0, int t1) {
    struct npu_list *l = b->l;
    int kt[HEADS_MAX], s[HEADS_MAX], H = b->h->n_head, KV = b->h->n_head_kv;
    for (int g = 0; g < KV; g++) kt[g] = npu_transpose(l, head_cut(b, b->k_full, g, t0, t1), (const int[]){0, 2, 1});
    for (int i = 0; i < H; i++) s[i] = shape4(l, npu_matmul(l, kt[i * KV / H], q[i]), 1, t1 - t0, 1, b->S);
    return npu_binary(l, NPU_OP_ADD, npu_concat(l, 2, s, H), npu_slice(l, b->mask, 1, t0, t1));
}

// The products with V, one per head: (1, head_dim, 1, S) each.
static void weighted(struct lowering *b, int p, int t0, int t1, int *out) {
    struct npu_list *l = b->l;
    int v[HEADS_MAX], H = b->h->n_head, KV = b->h->n_head_kv;
    for (int g = 0; g < KV; g++) v[g] = head_cut(b, b->v_full, g, t0, t1);
    for (int i = 0; i < H; i++) {
        int row = shape3(l, npu_slice(l, p, 2, i, i + 1), 1, t1 - t0, b->S);
        out[i] = shape4(l, npu_matmul(l, v[i * KV / H], row), 1, b->h->head_dim, 1, b->S);
    }
}

// Exact merge of chunks: one maximum over all, sums and products added, one division.
static void attention_chunks(struct lowering *b, const int *q, int *out) {
    struct npu_list *l = b->l;
    int n = b->o->n_chunks, H = b->h->n_head, blocks = b->keys / NPU_BLOCK, top = NPU_NONE, sum = NPU_NONE,
        o = NPU_NONE;
    int s[CHUNKS_MAX], t[CHUNKS_MAX + 1];
    for (int i = 0; i <= n; i++) t[i] = (int)((int64_t)blocks * i / n) * NPU_BLOCK;
    for (int i = 0; i < n; i++) {
        s[i] = scores(b, q, t[i], t[i + 1]);
        int m = npu_reduce(l, NPU_OP_REDUCE_MAX, s[i], 1);
        top = i == 0 ? m : npu_binary(l, NPU_OP_MAX, top, m);
    }
    for (int i = 0; i < n; i++) {
        int e = npu_unary(l, NPU_OP_EXP, npu_binary(l, NPU_OP_SUB, s[i], top));
        int part[HEADS_MAX], es = npu_reduce(l, NPU_OP_SUM, e, 1);
        weighted(b, e, t[i], t[i + 1], part);
        int eo = npu_concat(l, 2, part, H);
        sum = i == 0 ? es : npu_binary(l, NPU_OP_ADD, sum, es);
        o = i == 0 ? eo : npu_binary(l, NPU_OP_ADD, o, eo);
    }
    o = npu_binary(l, NPU_OP_DIV, o, sum);
    for (int i = 0; i < H; i++) out[i] = npu_slice(l, o, 2, i, i + 1);
}

static int attention(struct lowering *b, int q, int layer) {
    struct npu_list *l = b->l;
    int H = b->h->n_head, d = b->h->head_dim, qs[HEADS_MAX], out[HEADS_MAX];
    npu_site(l, "l%d.attention", layer);
    if (b->mask == NPU_NONE) b->mask = npu_input4(l, NPU_IN_MASK, NPU_NONE, "mask", b->keys, b->S);
    q = shape4(l, q, H, d, 1, b->S);
    for (int i = 0; i < H; i++) qs[i] = shape3(l, npu_slice(l, q, 0, i, i + 1), 1, d, b->S);
    if (b->o->n_chunks > 1) {
        attention_chunks(b, qs, out);
    } else {
        int p = npu_reduce(l, NPU_OP_SOFTMAX, scores(b, qs, 0, b->keys), 1);
        weighted(b, p, 0, b->keys, out);
    }
    return npu_concat(l, 1, out, H);
}

// --------------------------------------------------------------------------------------------------------- convolution

// Frames before the window: an input, or those that "sel" picks from the last call's history, which becomes this one's.
static int conv_frames(struct lowering *b, int u, int layer) {
    struct npu_list *l = b->l;
    int c = b->h->n_embd, F = b->F, S = b->S;
    char name[NPU_NAME_MAX];
    if (F == 0) return u;
    if (!b->o->stateful) {
        (void)snprintf(name, sizeof(name), "frames.%d", layer);
        int before = npu_input4(l, NPU_IN_FRAMES, layer, name, c, F);
        output_layer(b, u, NPU_OUT_FRAMES, layer, "frames_new");
        return npu_concat(l, 3, (const int[]){before, u}, 2);
    }
    (void)snprintf(name, sizeof(name), "c.%d", layer);
    if (b->sel == NPU_NONE) b->sel = input2(b, NPU_IN_SEL, NPU_NONE, "sel", F + S, F);
    int old = npu_state(l, name, 4, (const int32_t[]){1, c, 1, F + S});
    int z = npu_concat(l, 3, (const int[]){gather(b, old, b->sel), u}, 2);
    npu_state_set(l, old, z);
    return z;
}

static int short_conv(struct lowering *b, int bcx, const struct prog_op *op) {
    struct npu_list *l = b->l;
    int c = b->h->n_embd, L = b->h->conv_len, y = NPU_NONE, layer = op->layer;
    bool encoder = b->p->spec.kind == PROG_ENCODER;
    char name[NPU_NAME_MAX];
    npu_site(l, "l%d.u", layer);
    int u = npu_binary(l, NPU_OP_MUL, npu_slice(l, bcx, 1, 0, c), npu_slice(l, bcx, 1, 2 * c, 3 * c));
    int z = conv_frames(b, u, layer);
    npu_site(l, "l%d.conv", layer);
    for (int j = 0; j < L; j++) {
        bool self = !encoder && j == L - 1;
        if (!self && b->tap[j] == NPU_NONE) {
            (void)snprintf(name, sizeof(name), "tap.%d", j);
            b->tap[j] = input2(b, NPU_IN_TAP, j, name, b->F + b->S, b->S);
        }
        (void)snprintf(name, sizeof(name), "l%d.tap.%d", layer, j);
        int w = vector(b, name, op->w[0], j, pow2(-LAYER_SCALE(b, conv, layer)), 0);
        int part = npu_binary(l, NPU_OP_MUL, self ? u : gather(b, z, b->tap[j]), w);
        y = j == 0 ? part : npu_binary(l, NPU_OP_ADD, y, part);
    }
    return npu_binary(l, NPU_OP_MUL, npu_slice(l, bcx, 1, c, 2 * c), y);
}

// conv_in with the B third scaled: three pieces would be three products, so the factor goes to a matrix of its own.
static int conv_in(struct lowering *b, int x, const struct tensor *t, int layer) {
    struct npu_list *l = b->l;
    int c = b->h->n_embd, part[3], e = LAYER_SCALE(b, conv, layer);
    static const char *const thirds[] = {"b", "c", "x"};
    if (e == 0) return linear(b, x, t, layer);
    for (int i = 0; i < 3; i++) {
        char name[NPU_NAME_MAX];
        const struct npu_weight *w = NULL;
        (void)snprintf(name, sizeof(name), "l%d.conv_in.%s", layer, thirds[i]);
        npu_site(l, "%s", name);
        struct npu_cut cut = {.row = (int64_t)i * c, .n_rows = c, .factor = i == 0 ? pow2(e) : 0};
        enum tern_status status = npu_store_matrix(b->store, name, t, cut, &w, b->err);
        part[i] = npu_conv(l, x, made(b, status, w));
    }
    return npu_concat(l, 1, part, 3);
}

// ---------------------------------------------------------------------------------------------------------------- head

static void head_piece(struct lowering *b, int x, const struct tensor *t, int i, int64_t row, int n) {
    struct npu_list *l = b->l;
    char name[NPU_NAME_MAX];
    const struct npu_weight *w = NULL;
    (void)snprintf(name, sizeof(name), "head.%d", i);
    npu_site(l, "%s", name);
    struct npu_cut cut = {.row = row, .n_rows = n};
    enum tern_status status = npu_store_matrix(b->store, name, t, cut, &w, b->err);
    int z = npu_conv(l, x, made(b, status, w)), R = axis_len(l, x, 3);
    if (b->p->spec.outputs & PROG_OUT_ARGMAX) {
        int sub = MIN(n, NPU_SUBRANGE);
        int g = shape4(l, z, 1, n / sub, sub, R);
        (void)snprintf(name, sizeof(name), "max.%d", i);
        output(b, shape4(l, npu_reduce(l, NPU_OP_REDUCE_MAX, g, 2), 1, n / sub, 1, R), NPU_OUT_MAX, NPU_NONE, i, name);
        (void)snprintf(name, sizeof(name), "arg.%d", i);
        output(b, shape4(l, npu_reduce(l, NPU_OP_ARGMAX, g, 2), 1, n / sub, 1, R), NPU_OUT_ARG, NPU_NONE, i, name);
    }
    if (!(b->p->spec.outputs & PROG_OUT_LOGITS) && !b->o->logits) return;
    (void)snprintf(name, sizeof(name), "logits.%d", i);
    output(b, z, NPU_OUT_LOGITS, NPU_NONE, i, name);
}

// Pieces are whole numbers of sub-ranges, so that a piece's reshape is exact; the rest of the vocabulary is the last.
static void head(struct lowering *b, int x, const struct prog_op *op) {
    struct npu_list *l = b->l;
    npu_site(l, "head");
    if (b->o->n_pick > 0) {
        b->pick = input2(b, NPU_IN_PICK, NPU_NONE, "pick", b->S, b->o->n_pick);
        x = gather(b, x, b->pick);
    }
    l->n_pick = b->o->n_pick > 0 ? b->o->n_pick : b->S;
    l->picks = b->o->n_pick > 0;
    x = rms_norm(b, x, vector(b, "norm", op->w[0], -1, 0, 0), pow2(scale_residual(b)));
    if (b->p->spec.outputs & PROG_OUT_HIDDEN) output(b, x, NPU_OUT_HIDDEN, NPU_NONE, NPU_NONE, "hidden");
    if (!(b->p->spec.outputs & (PROG_OUT_LOGITS | PROG_OUT_ARGMAX))) return;
    int whole = b->h->n_vocab_used / NPU_SUBRANGE * NPU_SUBRANGE, i = 0;
    for (int row = 0; row < whole; row += NPU_HEAD_PIECE)
        head_piece(b, x, op->w[1], i++, row, MIN(NPU_HEAD_PIECE, whole - row));
    if (whole < b->h->n_vocab_used) head_piece(b, x, op->w[1], i, whole, b->h->n_vocab_used - whole);
}

// ------------------------------------------------------------------------------------------------------------ the walk

static void lower_linear(struct lowering *b, const struct prog_op *op) {
    int x = b->value[op->in[0]], y[PROG_OP_WEIGHTS];
    bool in = op->layer >= 0 && op->w[0] == b->m->layers[op->layer].conv_in;
    for (int i = 0; i < op->n_w; i++)
        y[i] = in ? conv_in(b, x, op->w[i], op->layer) : linear(b, x, op->w[i], op->layer);
    if (op->swiglu) {
        npu_site(b->l, "l%d.swiglu", op->layer);
        y[0] = npu_binary(b->l, NPU_OP_MUL, npu_unary(b->l, NPU_OP_SILU, y[0]), y[1]);
        b->value[op->out[0]] = y[0];
    } else if (op->add) {
        npu_site(b->l, "l%d.residual", op->layer);
        b->value[op->out[0]] = npu_binary(b->l, NPU_OP_ADD, b->value[op->in[1]], y[0]);
    } else {
        for (int i = 0; i < op->n_w; i++) b->value[op->out[i]] = y[i];
    }
}

static void lower_norm(struct lowering *b, const struct prog_op *op) {
    const struct model_layer *l = op->layer >= 0 ? &b->m->layers[op->layer] : NULL;
    char name[NPU_NAME_MAX];
    if (l && op->w[0] == l->attn_norm)
        (void)snprintf(name, sizeof(name), "l%d.norm1", op->layer);
    else if (l && op->w[0] == l->ffn_norm)
        (void)snprintf(name, sizeof(name), "l%d.norm2", op->layer);
    else
        (void)snprintf(name, sizeof(name), "hidden_norm");
    npu_site(b->l, "%s", name);
    float eps_scale = l ? pow2(scale_residual(b)) : 1;
    b->value[op->out[0]] = rms_norm(b, b->value[op->in[0]], vector(b, name, op->w[0], -1, 0, 0), eps_scale);
}

static void lower_qk(struct lowering *b, const struct prog_op *op) {
    const struct model_hyper *h = b->h;
    bool both = op->kind == PROG_OP_QK_NORM_ROPE;
    int k = both ? 1 : 0, key = LAYER_SCALE(b, key, op->layer);
    const struct tensor *norm_k = op->w[k];
    if (both)
        b->value[op->in[0]] = head_norm_rope(b, b->value[op->in[0]], h->n_head, op->w[0], "qnorm", op->layer,
                                             h->attn_scale * pow2(norm_k ? -key : 0));
    int y = head_norm_rope(b, b->value[op->in[k]], h->n_head_kv, norm_k, "knorm", op->layer, pow2(key));
    b->value[op->in[k]] = shape4(b->l, y, 1, h->n_head_kv * h->head_dim, 1, b->S);
}

static void lower_port_in(struct lowering *b, const struct prog_op *op) {
    const struct model_hyper *h = b->h;
    int kv = h->n_head_kv * h->head_dim, q = h->n_head * h->head_dim;
    if (op->index != (int)PORT_QKV) {
        int n = b->p->values[op->out[0]].n_cols;
        const char *name = op->index == (int)PORT_ATTN ? "attn_in" : "x";
        b->value[op->out[0]] = npu_input4(b->l, NPU_IN_ROWS, op->index, name, n, b->S);
        return;
    }
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        const int32_t shape[] = {1, i == 0 ? q : kv, 1, b->S};
        b->value[op->out[i]] = npu_input(b->l, NPU_IN_ROWS, NPU_NONE, i, names[i], 4, shape);
    }
}

static void lower_port_out(struct lowering *b, const struct prog_op *op) {
    static const char *const names[] = {"q", "k", "v"};
    if (op->index == (int)PORT_ROWS_OUT)
        output(b, b->value[op->in[0]], NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "rows");
    else if (op->index == (int)PORT_ATTN)
        output(b, b->value[op->in[0]], NPU_OUT_ATTN, NPU_NONE, NPU_NONE, "attn");
    for (int i = 0; op->index == (int)PORT_QKV && i < 3; i++) {
        int x = b->value[op->in[i]], n = b->p->values[op->in[i]].n_cols;
        output(b, shape4(b->l, x, 1, n, 1, b->S), NPU_OUT_QKV, NPU_NONE, i, names[i]);
    }
}

static void lower_op(struct lowering *b, const struct prog_op *op) {
    struct npu_list *l = b->l;
    char name[NPU_NAME_MAX];
    switch (op->kind) {
    case PROG_OP_EMBED: b->value[op->out[0]] = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", b->h->n_embd, b->S); break;
    case PROG_OP_ROPE_TABLE:
        b->cos = npu_input4(l, NPU_IN_COS, NPU_NONE, "cos", b->h->head_dim, b->S);
        b->sin = npu_input4(l, NPU_IN_SIN, NPU_NONE, "sin", b->h->head_dim, b->S);
        break;
    case PROG_OP_RMSNORM: lower_norm(b, op); break;
    case PROG_OP_LINEAR: lower_linear(b, op); break;
    case PROG_OP_QK_NORM_ROPE:
    case PROG_OP_K_NORM_ROPE: lower_qk(b, op); break;
    case PROG_OP_KV_WRITE:
        b->k_full = cache_put(b, b->value[op->in[0]], op->layer, true);
        b->v_full = cache_put(b, b->value[op->in[1]], op->layer, false);
        break;
    case PROG_OP_ATTENTION: b->value[op->out[0]] = attention(b, b->value[op->in[0]], op->layer); break;
    case PROG_OP_SHORT_CONV: b->value[op->out[0]] = short_conv(b, b->value[op->in[0]], op); break;
    case PROG_OP_TAP:
        (void)snprintf(name, sizeof(name), "feature.%d", op->index);
        output(b, b->value[op->in[0]], NPU_OUT_FEATURE, NPU_NONE, op->index, name);
        break;
    case PROG_OP_HEAD: head(b, b->value[op->in[0]], op); break;
    case PROG_OP_NORM_OUT: {
        npu_site(l, "norm");
        int gamma = vector(b, "norm", op->w[0], -1, 0, 0);
        int y = rms_norm(b, b->value[op->in[0]], gamma, pow2(scale_residual(b)));
        output(b, y, NPU_OUT_HIDDEN, NPU_NONE, NPU_NONE, "hidden");
        break;
    }
    case PROG_OP_PORT_IN: lower_port_in(b, op); break;
    case PROG_OP_PORT_OUT: lower_port_out(b, op); break;
    default:
        b->status = err_set(b->err, TERN_UNSUPPORTED, "npu list %s: operation %d of the program has no lowering",
                            l->name, (int)op->kind);
        l->failed = true;
    }
}

static enum tern_status options_check(const struct prog *p, const struct npu_lower_options *o, struct tern_err *err) {
    if (o->window % NPU_BLOCK || o->window < p->spec.window || o->bucket % NPU_BLOCK || o->bucket < NPU_BLOCK ||
        o->n_frames % NPU_BLOCK || o->n_pick % NPU_BLOCK || o->n_chunks < 1 || o->n_chunks > CHUNKS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "npu list %s: window %d for a program of %d rows, bucket %d, frames %d, head columns %d, %d "
                       "chunks; each a multiple of %d, chunks 1 to %d",
                       o->name, o->window, p->spec.window, o->bucket, o->n_frames, o->n_pick, o->n_chunks, NPU_BLOCK,
                       CHUNKS_MAX);
    if (p->spec.kind == PROG_COMMIT)
        return err_set(err, TERN_UNSUPPORTED, "npu list %s: a commit is host work and has no lowering", o->name);
    if (p->hyper->n_head > HEADS_MAX)
        return err_set(err, TERN_UNSUPPORTED, "npu list %s: %d heads; at most %d", o->name, p->hyper->n_head,
                       HEADS_MAX);
    if (o->stateful && o->window > o->bucket)
        return err_set(err, TERN_INVALID_ARGUMENT, "npu list %s: bucket %d is too small", o->name, o->bucket);
    return npu_lower_check(p->model, err);
}

enum tern_status npu_lower(struct npu_list **out, const struct prog *p, struct npu_store *s,
                           const struct npu_lower_options *o, struct tern_err *err) {
    TRY(options_check(p, o, err));
    struct npu_list *l = NULL;
    TRY(npu_list_begin(&l, o->name, err));
    struct lowering b = {.l = l,
                         .p = p,
                         .m = p->model,
                         .h = p->hyper,
                         .store = s,
                         .o = o,
                         .err = err,
                         .cos = NPU_NONE,
                         .sin = NPU_NONE,
                         .mask = NPU_NONE,
                         .place = NPU_NONE,
                         .sel = NPU_NONE,
                         .pick = NPU_NONE,
                         .S = o->window,
                         .F = p->spec.kind == PROG_ENCODER ? 0 : o->n_frames};
    b.keys = o->stateful ? o->bucket : o->bucket + o->window;
    for (size_t i = 0; i < ARRAY_LEN(b.tap); i++) b.tap[i] = NPU_NONE;
    b.value = mem_calloc((size_t)MAX(p->n_values, 1), sizeof(int));
    l->window = o->window;
    l->bucket = o->bucket;
    l->n_frames = b.F;
    l->stateful = o->stateful;
    l->n_chunks = o->n_chunks;
    l->failed = !b.value;
    for (int i = 0; i < p->n_ops && !l->failed; i++) lower_op(&b, &p->ops[i]);
    if (!l->failed && l->n_outputs == 0 && l->n_states > 0) { // a program with state only
        int v = npu_slice(l, l->states[l->n_states - 1].now, 3, 0, NPU_BLOCK);
        output(&b, v, NPU_OUT_DONE, NPU_NONE, NPU_NONE, "done");
    }
    mem_free(b.value);
    enum tern_status status = b.status != TERN_OK ? b.status : npu_list_end(l, err);
    if (status != TERN_OK)
        npu_list_free(l);
    else
        *out = l;
    return status;
}
