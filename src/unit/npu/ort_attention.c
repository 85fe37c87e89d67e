// Attention on the CPU provider: what an operation list spells out head by head, as engines want it, is found again and
// becomes products over all heads, or over as many as keep the scores small.
//
// The list's form costs sixteen nodes a head, and its scores of all heads lie side by side, keys before columns, where
// a softmax walks across memory. Here scores are (columns, keys), so the runtime's softmax reads rows, and products
// take their operands transposed. The numbers are the same but for the order of sums in fp32. Anything that is not
// exactly this pattern stays as it is spelt (chunks, a single head).
#include "unit/npu/ort_graph.h"
#include <stdio.h>

#define SCORES_MAX ((int64_t)1 << 20) // of heads taken at once: 4 MB

static const struct npu_op *maker(const struct ort_build *g, int id, enum npu_op_kind kind) {
    int op = g->l->tensors[id].op;
    if (op == NPU_NONE || op < g->cut->begin || op >= g->cut->end || g->l->ops[op].kind != kind) return NULL;
    return &g->l->ops[op];
}

// The tensor that a reshape of a slice [i n, (i + 1) n) of an axis is made of; NPU_NONE: it is none. A slice of the
// whole axis is no operation.
static int sliced(const struct ort_build *g, int id, int axis, int i, int n) {
    const struct npu_op *r = maker(g, id, NPU_OP_RESHAPE), *s = r ? maker(g, r->in[0], NPU_OP_SLICE) : NULL;
    if (!r) return NPU_NONE;
    if (s && s->axis == axis && s->begin == i * n && s->end == (i + 1) * n) return s->in[0];
    return i == 0 && g->l->tensors[r->in[0]].shape[axis] == n ? r->in[0] : NPU_NONE;
}

static bool is_shape(const struct ort_build *g, int id, int rank, int a, int b, int c, int d) {
    const struct npu_tensor *t = &g->l->tensors[id];
    return t->rank == rank && t->shape[0] == a && t->shape[1] == b && t->shape[2] == c &&
           (rank < 4 || t->shape[3] == d);
}

// The first head tells what all must look like.
static bool first_head(const struct ort_build *g, const struct npu_op *join, struct ort_attention *a, int *softmax,
                       const struct npu_op **scores) {
    const struct npu_op *o = maker(g, join->in[0], NPU_OP_RESHAPE), *m = o ? maker(g, o->in[0], NPU_OP_MATMUL) : NULL;
    if (!m || join->axis != 1 || join->n_in < 2) return false;
    a->n_head = join->n_in;
    a->d = g->l->tensors[m->in[0]].shape[1];
    a->T = g->l->tensors[m->in[0]].shape[2];
    a->S = g->l->tensors[m->in[1]].shape[2];
    a->v = sliced(g, m->in[0], 1, 0, a->d);
    *softmax = sliced(g, m->in[1], 2, 0, 1);
    if (a->v == NPU_NONE || *softmax == NPU_NONE || a->d < 1) return false;
    a->n_kv = g->l->tensors[a->v].shape[1] / a->d;
    const struct npu_op *p = maker(g, *softmax, NPU_OP_SOFTMAX), *add = p ? maker(g, p->in[0], NPU_OP_ADD) : NULL;
    *scores = add ? maker(g, add->in[0], NPU_OP_CONCAT) : NULL;
    if (!*scores || p->axis != 1 || (*scores)->axis != 2 || (*scores)->n_in != a->n_head || a->n_kv < 1) return false;
    a->mask = add->in[1];
    const struct npu_op *s = maker(g, (*scores)->in[0], NPU_OP_RESHAPE),
                        *qk = s ? maker(g, s->in[0], NPU_OP_MATMUL) : NULL;
    const struct npu_op *kt = qk ? maker(g, qk->in[0], NPU_OP_TRANSPOSE) : NULL;
    if (!kt) return false;
    a->k = sliced(g, kt->in[0], 1, 0, a->d);
    a->q = sliced(g, qk->in[1], 0, 0, 1);
    return a->k != NPU_NONE && a->q != NPU_NONE && a->n_head % a->n_kv == 0 &&
           is_shape(g, a->q, 4, a->n_head, a->d, 1, a->S) && is_shape(g, a->k, 4, 1, a->n_kv * a->d, 1, a->T) &&
           is_shape(g, a->v, 4, 1, a->n_kv * a->d, 1, a->T) && is_shape(g, a->mask, 4, 1, a->T, 1, a->S);
}

bool ort_attention_find(const struct ort_build *g, const struct npu_op *join, struct ort_attention *a) {
    const struct npu_op *scores = NULL;
    int softmax = NPU_NONE;
    if (join->kind != NPU_OP_CONCAT || !first_head(g, join, a, &softmax, &scores)) return false;
    for (int i = 0; i < a->n_head; i++) {
        int kv = i * a->n_kv / a->n_head;
        const struct npu_op *o = maker(g, join->in[i], NPU_OP_RESHAPE),
                            *m = o ? maker(g, o->in[0], NPU_OP_MATMUL) : NULL;
        const struct npu_op *s = maker(g, scores->in[i], NPU_OP_RESHAPE);
        const struct npu_op *qk = s ? maker(g, s->in[0], NPU_OP_MATMUL) : NULL;
        const struct npu_op *kt = qk ? maker(g, qk->in[0], NPU_OP_TRANSPOSE) : NULL;
        if (!m || !kt || !is_shape(g, join->in[i], 4, 1, a->d, 1, a->S) ||
            !is_shape(g, scores->in[i], 4, 1, a->T, 1, a->S))
            return false;
        if (kt->perm[0] != 0 || kt->perm[1] != 2 || kt->perm[2] != 1 || !is_shape(g, kt->out, 3, 1, a->T, a->d, 0) ||
            !is_shape(g, qk->in[1], 3, 1, a->d, a->S, 0) || !is_shape(g, m->in[0], 3, 1, a->d, a->T, 0) ||
            !is_shape(g, m->in[1], 3, 1, a->T, a->S, 0))
            return false;
        if (sliced(g, m->in[0], 1, kv, a->d) != a->v || sliced(g, m->in[1], 2, i, 1) != softmax ||
            sliced(g, kt->in[0], 1, kv, a->d) != a->k || sliced(g, qk->in[1], 0, i, 1) != a->q)
            return false;
    }
    return true;
}

// Keys or values that are the cache with the window's behind it: their rows are cut before they are joined.
static const struct npu_op *joined(const struct ort_build *g, int id) {
    const struct npu_op *c = maker(g, id, NPU_OP_CONCAT);
    return c && c->axis == 3 && c->n_in == 2 ? c : NULL;
}

int ort_attention_reads(const struct ort_build *g, const struct ort_attention *a, int out[6]) {
    int n = 0;
    out[n++] = a->q;
    out[n++] = a->mask;
    for (int i = 0; i < 2; i++) {
        int id = i == 0 ? a->k : a->v;
        const struct npu_op *c = joined(g, id);
        out[n++] = c ? c->in[0] : id;
        if (c) out[n++] = c->in[1];
    }
    return n;
}

// Rows [begin, end) of axis 1 of a tensor; what comes in as fp16 is cut before it is widened.
static enum tern_status rows_of(struct ort_build *g, int id, int begin, int end, const char *out) {
    char name[ORT_NAME_MAX], part[ORT_NAME_MAX];
    bool narrow = g->port_in[id] > 0;
    if (narrow)
        snprintf(name, sizeof name, "i%d", g->port_in[id] - 1);
    else
        ort_value_name(g, name, id);
    if (!narrow) return ort_node_slice(g, name, out, 1, begin, end);
    if (begin == 0 && end == g->l->tensors[id].shape[1]) return ort_node_cast(g, name, out, g->element);
    snprintf(part, sizeof part, "%s.half", out);
    TRY(ort_node_slice(g, name, part, 1, begin, end));
    return ort_node_cast(g, part, out, g->element);
}

// Keys or values of the heads [begin, end) as (n, 1, d, T), under `out`.
static enum tern_status heads_of(struct ort_build *g, const struct ort_attention *a, int id, int begin, int end,
                                 const char *out) {
    const struct npu_op *c = joined(g, id);
    char all[ORT_NAME_MAX], parts[2][ORT_NAME_MAX];
    const int64_t dims[] = {end - begin, 1, a->d, a->T};
    snprintf(all, sizeof all, "%s.all", out);
    if (!c) {
        TRY(rows_of(g, id, begin * a->d, end * a->d, all));
    } else {
        for (int i = 0; i < 2; i++) {
            snprintf(parts[i], sizeof parts[i], "%s.%d", out, i);
            TRY(rows_of(g, c->in[i], begin * a->d, end * a->d, parts[i]));
        }
        TRY(ort_node_concat(g, (const char *[]){parts[0], parts[1]}, 2, all, 3));
    }
    return ort_node_reshape(g, all, out, dims, 4);
}

static enum tern_status product(struct ort_build *g, const char *a, const char *b, const char *transposed,
                                const char *out) {
    struct ort_attrs attrs = {0};
    ort_attr_int(g, &attrs, transposed, 1);
    return ort_node(g, "com.microsoft", "FusedMatMul", (const char *[]){a, b}, 2, out, &attrs);
}

// Heads of keys and values [begin, end): (1, heads d, 1, S) under `out`.
static enum tern_status group_build(struct ort_build *g, const struct ort_attention *a, int begin, int end,
                                    const char *out) {
    static const char *const names[] = {"q.part", "q", "k", "v", "scores", "masked", "weights", "product"};
    enum { Q_PART, Q, K, V, SCORES, MASKED, WEIGHTS, PRODUCT, N };
    char n[N][ORT_NAME_MAX], q[ORT_NAME_MAX], mask[ORT_NAME_MAX];
    int per = a->n_head / a->n_kv;
    const int64_t dims_q[] = {end - begin, per, a->d, a->S}, dims_out[] = {1, (end - begin) * per * a->d, 1, a->S};
    struct ort_attrs axis = {0};
    for (int i = 0; i < N; i++) snprintf(n[i], sizeof n[i], "a%d.%d.%s", a->q, begin, names[i]);
    snprintf(mask, sizeof mask, "a%d.mask", a->q);
    ort_value_name(g, q, a->q);
    TRY(ort_node_slice(g, q, n[Q_PART], 0, begin * per, end * per));
    TRY(ort_node_reshape(g, n[Q_PART], n[Q], dims_q, 4));
    TRY(heads_of(g, a, a->k, begin, end, n[K]));
    TRY(heads_of(g, a, a->v, begin, end, n[V]));
    TRY(product(g, n[Q], n[K], "transA", n[SCORES]));
    TRY(ort_node(g, "", "Add", (const char *[]){n[SCORES], mask}, 2, n[MASKED], NULL));
    ort_attr_int(g, &axis, "axis", 3);
    TRY(ort_node(g, "", "Softmax", (const char *[]){n[MASKED]}, 1, n[WEIGHTS], &axis));
    TRY(product(g, n[V], n[WEIGHTS], "transB", n[PRODUCT]));
    return ort_node_reshape(g, n[PRODUCT], out, dims_out, 4);
}

enum tern_status ort_attention_build(struct ort_build *g, const struct ort_attention *a, const char *out) {
    int64_t of_head = (int64_t)a->S * a->T * (a->n_head / a->n_kv), step = MAX(1, SCORES_MAX / of_head);
    int n = int_div_up(a->n_kv, (int)MIN(step, a->n_kv)), at = 0;
    char mask[ORT_NAME_MAX], rows[ORT_NAME_MAX];
    char(*names)[ORT_NAME_MAX] = arena_alloc(g->scratch, (size_t)n * sizeof *names);
    const char **parts = arena_alloc(g->scratch, (size_t)n * sizeof *parts);
    struct ort_attrs perm = {0};
    if (!names || !parts) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", g->l->name);
    TRY(ort_value_need(g, a->q));
    TRY(ort_value_need(g, a->mask));
    ort_attr_ints(g, &perm, "perm", (const int64_t[]){0, 2, 3, 1}, 4);
    ort_value_name(g, mask, a->mask);
    snprintf(rows, sizeof rows, "a%d.mask", a->q);
    TRY(ort_node(g, "", "Transpose", (const char *[]){mask}, 1, rows, &perm));
    for (int i = 0; i < n; i++) {
        int end = (int)((int64_t)a->n_kv * (i + 1) / n);
        snprintf(names[i], sizeof names[i], "a%d.%d", a->q, i);
        parts[i] = names[i];
        TRY(group_build(g, a, at, end, n == 1 ? out : names[i]));
        at = end;
    }
    return n == 1 ? TERN_OK : ort_node_concat(g, parts, n, out, 1);
}
