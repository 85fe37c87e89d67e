// Every operation of oplist.h in one list, and a reference that knows nothing of units: one loop per kind.
#include "npu_lists.h"
#include "tiny_model.h"
#include <math.h>

#define C 64 // channels
#define S 32 // columns

static int matrix(struct npu_list *l, struct npu_store *s, const char *name, int rows, int cols, uint64_t *seed) {
    const struct npu_weight *w;
    struct tern_err err;
    int8_t *q = mem_alloc((size_t)rows * (size_t)cols);
    float *scale = mem_alloc((size_t)rows * sizeof *scale);
    int32_t shape[] = {rows, cols, 1, 1};
    for (int i = 0; i < rows * cols; i++) q[i] = (int8_t)((int)(tiny_random(seed) % 255) - 127);
    for (int i = 0; i < rows; i++) scale[i] = 0.0005f + 0.002f * fabsf(tiny_random_float(seed));
    if (npu_store_values(s, name, 4, shape, scale, q, &w, &err) != TERN_OK) TERN_BUG("test: %s", err.message);
    mem_free(q);
    mem_free(scale);
    return npu_const(l, w);
}

static int vector(struct npu_list *l, struct npu_store *s, const char *name, int n, uint64_t *seed) {
    const struct npu_weight *w;
    struct tern_err err;
    float v[512];
    int32_t shape[] = {1, n, 1, 1};
    for (int i = 0; i < n; i++) v[i] = 1 + 0.25f * tiny_random_float(seed);
    if (npu_store_values(s, name, 4, shape, v, NULL, &w, &err) != TERN_OK) TERN_BUG("test: %s", err.message);
    return npu_const(l, w);
}

static int scalar(struct npu_list *l, struct npu_store *s, float value) {
    const struct npu_weight *w;
    struct tern_err err;
    if (npu_store_scalar(s, value, &w, &err) != TERN_OK) TERN_BUG("test: %s", err.message);
    return npu_const(l, w);
}

struct npu_list *npu_every_op(struct npu_store *s, const char *name, uint64_t seed) {
    struct npu_list *l;
    struct tern_err err;
    if (npu_list_begin(&l, name, &err) != TERN_OK) TERN_BUG("test: %s", err.message);
    l->window = S;
    l->stateful = true;
    int x = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", C, S), mask = npu_input4(l, NPU_IN_MASK, NPU_NONE, "mask", S, S);
    int tap = npu_input(l, NPU_IN_TAP, NPU_NONE, 0, "tap.0", 2, (int32_t[]){S, S});
    int old = npu_state(l, "k.0", 4, (int32_t[]){1, C, 1, S}), frames = npu_state(l, "c.1", 4, (int32_t[]){1, C, 1, S});
    // norm, two products, gate
    int square = npu_binary(l, NPU_OP_MUL, x, x);
    int mean = npu_reduce(l, NPU_OP_MEAN, square, 1);
    int r = npu_unary(l, NPU_OP_RSQRT, npu_binary(l, NPU_OP_ADD, mean, scalar(l, s, 1e-5f)));
    int h = npu_binary(l, NPU_OP_MUL, npu_binary(l, NPU_OP_MUL, x, r), vector(l, s, "every.norm", C, &seed));
    int up = npu_conv(l, h, matrix(l, s, "every.up", 96, C, &seed)),
        gate = npu_conv(l, h, matrix(l, s, "every.gate", 96, C, &seed));
    int y = npu_conv(l, npu_binary(l, NPU_OP_MUL, npu_unary(l, NPU_OP_SILU, gate), up),
                     matrix(l, s, "every.down", C, 96, &seed));
    x = npu_binary(l, NPU_OP_ADD, x, y);
    // states: one blended, one shifted through a product with an input
    int now = npu_binary(l, NPU_OP_ADD, npu_binary(l, NPU_OP_MUL, old, scalar(l, s, 0.5f)), h);
    npu_state_set(l, old, now);
    int flat = npu_reshape(l, frames, 3, (int32_t[]){1, C, S});
    int moved = npu_matmul(l, flat, npu_reshape(l, tap, 3, (int32_t[]){1, S, S}));
    int frames_now = npu_binary(l, NPU_OP_SUB, npu_reshape(l, moved, 4, (int32_t[]){1, C, 1, S}), h);
    npu_state_set(l, frames, frames_now);
    // attention of two heads in two forms: softmax, and two chunks merged
    int heads[2];
    for (int g = 0; g < 2; g++) {
        int k = npu_reshape(l, npu_slice(l, now, 1, g * C / 2, (g + 1) * C / 2), 3, (int32_t[]){1, C / 2, S});
        int q = npu_reshape(l, npu_slice(l, x, 1, g * C / 2, (g + 1) * C / 2), 3, (int32_t[]){1, C / 2, S});
        int kt = npu_transpose(l, k, (int[]){0, 2, 1});
        int product = npu_reshape(l, npu_matmul(l, kt, q), 4, (int32_t[]){1, S, 1, S});
        int score = npu_binary(l, NPU_OP_ADD, npu_binary(l, NPU_OP_MUL, product, scalar(l, s, 0.125f)), mask);
        int p = npu_reduce(l, NPU_OP_SOFTMAX, score, 1);
        if (g == 1) {
            int max = npu_binary(l, NPU_OP_MAX, npu_reduce(l, NPU_OP_REDUCE_MAX, npu_slice(l, score, 1, 0, 16), 1),
                                 npu_reduce(l, NPU_OP_REDUCE_MAX, npu_slice(l, score, 1, 16, S), 1));
            int e = npu_unary(l, NPU_OP_EXP, npu_binary(l, NPU_OP_SUB, score, max));
            p = npu_binary(l, NPU_OP_DIV, e, npu_reduce(l, NPU_OP_SUM, e, 1));
        }
        int o = npu_matmul(l, k, npu_reshape(l, p, 3, (int32_t[]){1, S, S}));
        heads[g] = npu_reshape(l, o, 4, (int32_t[]){1, C / 2, 1, S});
    }
    int attn = npu_concat(l, 1, heads, 2);
    // head: maximum and index of two subranges of 100
    int logits = npu_conv(l, attn, matrix(l, s, "every.head", 200, C, &seed));
    int parts = npu_reshape(l, logits, 4, (int32_t[]){1, 2, 100, S});
    int max = npu_reshape(l, npu_reduce(l, NPU_OP_REDUCE_MAX, parts, 2), 4, (int32_t[]){1, 2, 1, S});
    int arg = npu_reshape(l, npu_reduce(l, NPU_OP_ARGMAX, parts, 2), 4, (int32_t[]){1, 2, 1, S});
    npu_output(l, npu_unary(l, NPU_OP_SIGMOID, x), NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "rows");
    npu_output(l, attn, NPU_OUT_ATTN, NPU_NONE, NPU_NONE, "attn");
    npu_output(l, max, NPU_OUT_MAX, NPU_NONE, 0, "max.0");
    npu_output(l, arg, NPU_OUT_ARG, NPU_NONE, 0, "arg.0");
    npu_output(l, logits, NPU_OUT_LOGITS, NPU_NONE, 0, "logits.0");
    if (npu_list_end(l, &err) != TERN_OK) TERN_BUG("test: %s", err.message);
    return l;
}

static void **buffers(struct arena *a, const struct npu_list *l, const int *ids, int n) {
    void **out = arena_calloc(a, (size_t)MAX(n, 1), sizeof *out);
    for (int i = 0; out && i < n; i++) {
        out[i] = arena_calloc(a, (size_t)npu_tensor_len(&l->tensors[ids[i]]), 2);
        if (!out[i]) TERN_BUG("test: no memory");
    }
    return out;
}

void npu_test_buffers_init(struct npu_test_buffers *b, const struct npu_list *l) {
    int old[64], now[64];
    if (l->n_states > 64) TERN_BUG("test: more than 64 states");
    for (int i = 0; i < l->n_states; i++) {
        old[i] = l->states[i].old;
        now[i] = l->states[i].now;
    }
    arena_init(&b->arena, 0);
    b->inputs = buffers(&b->arena, l, l->inputs, l->n_inputs);
    b->outputs = buffers(&b->arena, l, l->outputs, l->n_outputs);
    b->old = buffers(&b->arena, l, old, l->n_states);
    b->now = buffers(&b->arena, l, now, l->n_states);
}

static void fill(uint16_t *out, int64_t n, uint64_t *seed) {
    for (int64_t i = 0; i < n; i++) out[i] = f32_to_f16(tiny_random_float(seed));
}

void npu_test_buffers_fill(struct npu_test_buffers *b, const struct npu_list *l, uint64_t seed) {
    for (int i = 0; i < l->n_inputs; i++) {
        const struct npu_tensor *t = &l->tensors[l->inputs[i]];
        fill(b->inputs[i], npu_tensor_len(t), &seed);
        if (t->role == NPU_IN_MASK)
            for (int64_t k = 0; k < npu_tensor_len(t); k++)
                ((uint16_t *)b->inputs[i])[k] = tiny_random(&seed) % 3 ? 0 : f32_to_f16(NPU_MASK_OFF);
    }
    for (int i = 0; i < l->n_states; i++) fill(b->old[i], npu_tensor_len(&l->tensors[l->states[i].old]), &seed);
}

void npu_test_buffers_release(struct npu_test_buffers *b) { arena_release(&b->arena); }

// ------------------------------------------------------------------------------------------------------- reference
struct values {
    float **v; // [n_tensors]
    const struct npu_list *l;
};

static void index_split(int64_t i, const struct npu_tensor *t, int32_t at[NPU_RANK_MAX]) {
    memset(at, 0, NPU_RANK_MAX * sizeof *at);
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = (int32_t)(i % t->shape[d]);
        i /= t->shape[d];
    }
}
static int64_t index_join(const int32_t at[NPU_RANK_MAX], const struct npu_tensor *t) {
    int64_t i = 0;
    for (int d = 0; d < t->rank; d++) i = i * t->shape[d] + (t->shape[d] == 1 ? 0 : at[d]);
    return i;
}

static float unary(enum npu_op_kind k, float x) {
    switch (k) {
    case NPU_OP_SILU: return x / (1 + expf(-x));
    case NPU_OP_SIGMOID: return 1 / (1 + expf(-x));
    case NPU_OP_EXP: return expf(x);
    case NPU_OP_RSQRT: return 1 / sqrtf(x);
    default: return x;
    }
}
static float binary(enum npu_op_kind k, float a, float b) {
    switch (k) {
    case NPU_OP_ADD: return a + b;
    case NPU_OP_SUB: return a - b;
    case NPU_OP_MUL: return a * b;
    case NPU_OP_DIV: return a / b;
    default: return fmaxf(a, b);
    }
}

// The value of op at `at` of its result.
// flat: one case per operation
static float element(const struct values *e, const struct npu_op *op, int32_t at[NPU_RANK_MAX], int64_t flat) {
    const struct npu_tensor *a = &e->l->tensors[op->in[0]], *b = op->n_in > 1 ? &e->l->tensors[op->in[1]] : NULL;
    const float *va = e->v[op->in[0]], *vb = b ? e->v[op->in[1]] : NULL;
    int32_t from[NPU_RANK_MAX];
    memcpy(from, at, sizeof from);
    double sum = 0;
    float best = -INFINITY;
    int where = 0;
    switch (op->kind) {
    case NPU_OP_CONV:
        for (int i = 0; i < a->shape[1]; i++)
            sum += (double)va[(int64_t)i * a->shape[3] + at[3]] * vb[(int64_t)at[1] * a->shape[1] + i];
        return (float)sum;
    case NPU_OP_MATMUL:
        for (int k = 0; k < a->shape[2]; k++)
            sum += (double)va[((int64_t)at[0] * a->shape[1] + at[1]) * a->shape[2] + k] *
                   vb[((int64_t)at[0] * b->shape[1] + k) * b->shape[2] + at[2]];
        return (float)sum;
    case NPU_OP_ADD:
    case NPU_OP_SUB:
    case NPU_OP_MUL:
    case NPU_OP_DIV:
    case NPU_OP_MAX: return binary(op->kind, va[index_join(at, a)], vb[index_join(at, b)]);
    case NPU_OP_SUM:
    case NPU_OP_MEAN:
    case NPU_OP_REDUCE_MAX:
    case NPU_OP_ARGMAX:
    case NPU_OP_SOFTMAX:
        for (int k = 0; k < a->shape[op->axis]; k++) {
            from[op->axis] = k;
            float v = va[index_join(from, a)];
            sum += v;
            if (v > best) where = k;
            best = fmaxf(best, v);
        }
        if (op->kind == NPU_OP_SUM) return (float)sum;
        if (op->kind == NPU_OP_MEAN) return (float)(sum / a->shape[op->axis]);
        if (op->kind == NPU_OP_REDUCE_MAX) return best;
        if (op->kind == NPU_OP_ARGMAX) return (float)where;
        sum = 0;
        for (int k = 0; k < a->shape[op->axis]; k++) {
            from[op->axis] = k;
            sum += exp((double)va[index_join(from, a)] - best);
        }
        return (float)(exp((double)va[index_join(at, a)] - best) / sum);
    case NPU_OP_RESHAPE: return va[flat];
    case NPU_OP_TRANSPOSE:
        for (int d = 0; d < a->rank; d++) from[op->perm[d]] = at[d];
        return va[index_join(from, a)];
    case NPU_OP_SLICE: from[op->axis] += op->begin; return va[index_join(from, a)];
    case NPU_OP_CONCAT:
        for (int i = 0; i < op->n_in; i++) {
            const struct npu_tensor *t = &e->l->tensors[op->in[i]];
            if (from[op->axis] < t->shape[op->axis]) return e->v[op->in[i]][index_join(from, t)];
            from[op->axis] -= t->shape[op->axis];
        }
        return NAN;
    default: return unary(op->kind, va[flat]);
    }
}

static void load(const struct values *e, int id, const uint16_t *half) {
    for (int64_t i = 0; i < npu_tensor_len(&e->l->tensors[id]); i++) e->v[id][i] = f16_to_f32(half[i]);
}
static void store(const struct values *e, int id, uint16_t *half) {
    for (int64_t i = 0; i < npu_tensor_len(&e->l->tensors[id]); i++) half[i] = f32_to_f16(e->v[id][i]);
}

static void constant(const struct values *e, int id) {
    const struct npu_weight *w = e->l->tensors[id].weight;
    int64_t n = npu_tensor_len(&e->l->tensors[id]), row = w->shape[0] > 0 ? n / w->shape[0] : n;
    if (w->kind == NPU_WEIGHT_F16) load(e, id, w->half);
    for (int64_t i = 0; w->kind == NPU_WEIGHT_I8 && i < n; i++)
        e->v[id][i] = f16_to_f32(f32_to_f16((float)w->q[i] * f16_to_f32(w->scale[i / row])));
}

void npu_test_reference(const struct npu_list *l, const struct npu_test_buffers *b) {
    struct arena a;
    struct values e = {.l = l};
    arena_init(&a, 0);
    e.v = arena_calloc(&a, (size_t)l->n_tensors, sizeof *e.v);
    for (int i = 0; i < l->n_tensors; i++) {
        e.v[i] = arena_calloc(&a, (size_t)npu_tensor_len(&l->tensors[i]), sizeof **e.v);
        if (l->tensors[i].role == NPU_CONST) constant(&e, i);
    }
    for (int i = 0; i < l->n_inputs; i++) load(&e, l->inputs[i], b->inputs[i]);
    for (int i = 0; i < l->n_states; i++) load(&e, l->states[i].old, b->old[i]);
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        const struct npu_tensor *t = &l->tensors[op->out];
        for (int64_t k = 0; k < npu_tensor_len(t); k++) {
            int32_t at[NPU_RANK_MAX];
            index_split(k, t, at);
            e.v[op->out][k] = f16_to_f32(f32_to_f16(element(&e, op, at, k)));
        }
    }
    for (int i = 0; i < l->n_outputs; i++) store(&e, l->outputs[i], b->outputs[i]);
    for (int i = 0; i < l->n_states; i++) store(&e, l->states[i].now, b->now[i]);
    arena_release(&a);
}
