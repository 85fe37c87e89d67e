// Building operation lists. Ids are indices; tensors and ops lie in growing arrays, cut to their length at the end. A
// failed allocation sets `failed` and building goes on over tensor 0, so that lowering needs one check at its end.
#include "base/base.h"
#include <stdio.h>
#include "unit/npu/oplist.h"

#define TENSORS_FIRST 256

static const char *const op_names[NPU_OP_COUNT] = {
    [NPU_OP_CONV] = "conv",     [NPU_OP_MATMUL] = "matmul",   [NPU_OP_ADD] = "add",
    [NPU_OP_SUB] = "sub",       [NPU_OP_MUL] = "mul",         [NPU_OP_DIV] = "div",
    [NPU_OP_MAX] = "max",       [NPU_OP_SILU] = "silu",       [NPU_OP_SIGMOID] = "sigmoid",
    [NPU_OP_EXP] = "exp",       [NPU_OP_RSQRT] = "rsqrt",     [NPU_OP_SOFTMAX] = "softmax",
    [NPU_OP_SUM] = "sum",       [NPU_OP_MEAN] = "mean",       [NPU_OP_REDUCE_MAX] = "reduce_max",
    [NPU_OP_ARGMAX] = "argmax", [NPU_OP_RESHAPE] = "reshape", [NPU_OP_TRANSPOSE] = "transpose",
    [NPU_OP_SLICE] = "slice",   [NPU_OP_CONCAT] = "concat",
};

const char *npu_op_name(enum npu_op_kind k) { return (size_t)k < NPU_OP_COUNT ? op_names[k] : "unknown"; }

static void name_set(char out[NPU_NAME_MAX], const char *name) {
    size_t n = strlen(name);
    if (n >= NPU_NAME_MAX) TERN_BUG("npu list: the name %s is too long", name);
    memcpy(out, name, n + 1);
}

enum tern_status npu_list_begin(struct npu_list **out, const char *name, struct tern_err *err) {
    struct npu_list *l = mem_calloc(1, sizeof(*l));
    if (!l) return err_set(err, TERN_NO_MEMORY, "npu list: no memory");
    arena_init(&l->arena, 0);
    name_set(l->name, name);
    *out = l;
    return TERN_OK;
}

void npu_list_free(struct npu_list *l) {
    if (!l) return;
    arena_release(&l->arena);
    mem_free(l->tensors);
    mem_free(l->ops);
    mem_free(l->inputs);
    mem_free(l->outputs);
    mem_free(l);
}

uint64_t npu_list_bytes(const struct npu_list *l) {
    return l->arena.bytes_total + (uint64_t)l->tensors_cap * sizeof *l->tensors +
           (uint64_t)l->ops_cap * sizeof *l->ops + 2 * (uint64_t)l->io_cap * sizeof *l->inputs;
}

// An array of n elements with room for one more; NULL and `failed` without memory.
static void *room(struct npu_list *l, void *at, int n, int *cap, size_t size) {
    if (n < *cap) return at;
    int more = MAX(2 * *cap, TENSORS_FIRST);
    void *bigger = mem_realloc(at, (size_t)more * size);
    if (!bigger) {
        l->failed = true;
        return NULL;
    }
    memset((char *)bigger + (size_t)n * size, 0, (size_t)(more - n) * size);
    *cap = more;
    return bigger;
}

static int tensor_add(struct npu_list *l, const char *name, enum npu_role role, int rank, const int32_t *shape) {
    struct npu_tensor *bigger = room(l, l->tensors, l->n_tensors, &l->tensors_cap, sizeof(*l->tensors));
    if (!bigger) return 0;
    l->tensors = bigger;
    if (rank < 1 || rank > NPU_RANK_MAX) TERN_BUG("npu list %s: tensor %s of rank %d", l->name, name, rank);
    struct npu_tensor *t = &l->tensors[l->n_tensors];
    *t = (struct npu_tensor){.role = role, .layer = NPU_NONE, .index = NPU_NONE, .rank = rank, .op = NPU_NONE};
    name_set(t->name, name);
    for (int i = 0; i < NPU_RANK_MAX; i++) t->shape[i] = i < rank ? shape[i] : 1;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 1) TERN_BUG("npu list %s: tensor %s: axis %d is %d", l->name, name, i, shape[i]);
    return l->n_tensors++;
}

static void io_add(struct npu_list *l, int id, bool is_input) {
    int n = MAX(l->n_inputs, l->n_outputs), cap = l->io_cap;
    int *in = room(l, l->inputs, n, &cap, sizeof(int));
    if (in) l->inputs = in;
    cap = l->io_cap;
    int *out = room(l, l->outputs, n, &cap, sizeof(int));
    if (out) l->outputs = out;
    if (!in || !out) return;
    l->io_cap = cap;
    if (is_input)
        l->inputs[l->n_inputs++] = id;
    else
        l->outputs[l->n_outputs++] = id;
}

int npu_input(struct npu_list *l, enum npu_role role, int layer, int index, const char *name, int rank,
              const int32_t *shape) {
    int id = tensor_add(l, name, role, rank, shape);
    if (l->failed) return 0;
    l->tensors[id].layer = layer;
    l->tensors[id].index = index;
    io_add(l, id, true);
    return id;
}

int npu_input4(struct npu_list *l, enum npu_role role, int layer, const char *name, int channels, int width) {
    const int32_t shape[] = {1, channels, 1, width};
    return npu_input(l, role, layer, NPU_NONE, name, 4, shape);
}

int npu_const(struct npu_list *l, const struct npu_weight *w) {
    for (int i = 0; i < l->n_tensors; i++)
        if (l->tensors[i].weight == w) return i;
    int id = tensor_add(l, w->name, NPU_CONST, w->rank, w->shape);
    if (!l->failed) l->tensors[id].weight = w;
    return id;
}

void npu_output(struct npu_list *l, int id, enum npu_role role, int layer, int index, const char *name) {
    if (l->failed) return;
    struct npu_tensor *t = &l->tensors[id];
    if (t->role != NPU_INNER)
        TERN_BUG("npu list %s: %s is no inner tensor and cannot be output %s", l->name, t->name, name);
    t->role = role;
    t->layer = layer;
    t->index = index;
    name_set(t->name, name);
    io_add(l, id, false);
}

int npu_state(struct npu_list *l, const char *name, int rank, const int32_t *shape) {
    int cap = l->n_states;
    struct npu_state *s = arena_calloc(&l->arena, (size_t)cap + 1, sizeof(*s)); // few: copied for each
    int id = tensor_add(l, name, NPU_STATE_OLD, rank, shape);
    if (!s || l->failed) {
        l->failed = true;
        return 0;
    }
    if (cap > 0) memcpy(s, l->states, (size_t)cap * sizeof(*s));
    l->states = s;
    l->states[l->n_states] = (struct npu_state){.old = id, .now = NPU_NONE};
    name_set(l->states[l->n_states++].name, name);
    return id;
}

void npu_state_set(struct npu_list *l, int old, int now) {
    if (l->failed) return;
    for (int i = 0; i < l->n_states; i++) {
        if (l->states[i].old != old) continue;
        l->states[i].now = now;
        return;
    }
    TERN_BUG("npu list %s: tensor %d is no state", l->name, old);
}

void npu_site(struct npu_list *l, const char *fmt, ...) {
    char text[64];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    char *kept = n > 0 ? arena_dup(&l->arena, text, MIN((size_t)n, sizeof(text) - 1)) : NULL;
    if (!kept) l->failed = true;
    l->site = kept ? kept : "";
}

// ----------------------------------------------------------------------------------------------------------------- ops

static int op_add(struct npu_list *l, enum npu_op_kind kind, const int *in, int n_in, int rank, const int32_t *shape) {
    struct npu_op *bigger = room(l, l->ops, l->n_ops, &l->ops_cap, sizeof(*l->ops));
    int *ids = arena_alloc(&l->arena, (size_t)n_in * sizeof(int));
    char name[NPU_NAME_MAX];
    (void)snprintf(name, sizeof(name), "t%d", l->n_tensors);
    int out = tensor_add(l, name, NPU_INNER, rank, shape);
    if (!bigger || !ids || l->failed) {
        l->failed = true;
        return 0;
    }
    l->ops = bigger;
    memcpy(ids, in, (size_t)n_in * sizeof(int));
    l->ops[l->n_ops] = (struct npu_op){
        .kind = kind, .in = ids, .n_in = n_in, .out = out, .axis = NPU_NONE, .site = l->site ? l->site : ""};
    l->tensors[out].op = l->n_ops++;
    return out;
}

static const struct npu_tensor *tensor_of(const struct npu_list *l, int id) {
    if (id < 0 || id >= l->n_tensors) TERN_BUG("npu list %s: tensor %d of %d", l->name, id, l->n_tensors);
    return &l->tensors[id];
}

_Noreturn static void misfit(const struct npu_list *l, enum npu_op_kind kind, const struct npu_tensor *a,
                             const struct npu_tensor *b) {
    TERN_BUG("npu list %s: %s of %s (%d, %d, %d, %d) and %s (%d, %d, %d, %d)", l->name, npu_op_name(kind), a->name,
             (int)a->shape[0], (int)a->shape[1], (int)a->shape[2], (int)a->shape[3], b->name, (int)b->shape[0],
             (int)b->shape[1], (int)b->shape[2], (int)b->shape[3]);
}

int npu_conv(struct npu_list *l, int x, int weight) {
    if (l->failed) return 0;
    const struct npu_tensor *a = tensor_of(l, x), *w = tensor_of(l, weight);
    if (a->rank != 4 || w->rank != 4 || a->shape[0] != 1 || a->shape[2] != 1 || w->shape[1] != a->shape[1])
        misfit(l, NPU_OP_CONV, a, w);
    const int32_t shape[] = {1, w->shape[0], 1, a->shape[3]};
    return op_add(l, NPU_OP_CONV, (const int[]){x, weight}, 2, 4, shape);
}

int npu_matmul(struct npu_list *l, int a, int b) {
    if (l->failed) return 0;
    const struct npu_tensor *x = tensor_of(l, a), *y = tensor_of(l, b);
    if (x->rank != 3 || y->rank != 3 || x->shape[0] != y->shape[0] || x->shape[2] != y->shape[1])
        misfit(l, NPU_OP_MATMUL, x, y);
    const int32_t shape[] = {x->shape[0], x->shape[1], y->shape[2]};
    return op_add(l, NPU_OP_MATMUL, (const int[]){a, b}, 2, 3, shape);
}

int npu_binary(struct npu_list *l, enum npu_op_kind kind, int a, int b) {
    if (l->failed) return 0;
    const struct npu_tensor *x = tensor_of(l, a), *y = tensor_of(l, b);
    int32_t shape[NPU_RANK_MAX];
    if (x->rank != y->rank) misfit(l, kind, x, y);
    for (int i = 0; i < x->rank; i++) {
        if (x->shape[i] != y->shape[i] && x->shape[i] != 1 && y->shape[i] != 1) misfit(l, kind, x, y);
        shape[i] = MAX(x->shape[i], y->shape[i]);
    }
    return op_add(l, kind, (const int[]){a, b}, 2, x->rank, shape);
}

int npu_unary(struct npu_list *l, enum npu_op_kind kind, int x) {
    if (l->failed) return 0;
    const struct npu_tensor t = *tensor_of(l, x);
    return op_add(l, kind, &x, 1, t.rank, t.shape);
}

int npu_reduce(struct npu_list *l, enum npu_op_kind kind, int x, int axis) {
    if (l->failed) return 0;
    struct npu_tensor t = *tensor_of(l, x);
    if (axis < 0 || axis >= t.rank)
        TERN_BUG("npu list %s: %s over axis %d of %d", l->name, npu_op_name(kind), axis, t.rank);
    if (kind != NPU_OP_SOFTMAX) t.shape[axis] = 1;
    int out = op_add(l, kind, &x, 1, t.rank, t.shape);
    if (!l->failed) l->ops[l->n_ops - 1].axis = axis;
    return out;
}

int npu_reshape(struct npu_list *l, int x, int rank, const int32_t *shape) {
    if (l->failed) return 0;
    int out = op_add(l, NPU_OP_RESHAPE, &x, 1, rank, shape);
    if (!l->failed && npu_tensor_len(&l->tensors[x]) != npu_tensor_len(&l->tensors[out]))
        misfit(l, NPU_OP_RESHAPE, &l->tensors[x], &l->tensors[out]);
    return out;
}

int npu_transpose(struct npu_list *l, int x, const int *perm) {
    if (l->failed) return 0;
    const struct npu_tensor t = *tensor_of(l, x);
    int32_t shape[NPU_RANK_MAX];
    unsigned seen = 0;
    for (int i = 0; i < t.rank; i++) {
        if (perm[i] < 0 || perm[i] >= t.rank || seen & 1u << perm[i])
            TERN_BUG("npu list %s: transpose of %s: axis %d from %d", l->name, t.name, i, perm[i]);
        seen |= 1u << perm[i];
        shape[i] = t.shape[perm[i]];
    }
    int out = op_add(l, NPU_OP_TRANSPOSE, &x, 1, t.rank, shape);
    for (int i = 0; !l->failed && i < t.rank; i++) l->ops[l->n_ops - 1].perm[i] = perm[i];
    return out;
}

int npu_slice(struct npu_list *l, int x, int axis, int begin, int end) {
    if (l->failed) return 0;
    struct npu_tensor t = *tensor_of(l, x);
    if (axis < 0 || axis >= t.rank || begin < 0 || begin >= end || end > t.shape[axis])
        TERN_BUG("npu list %s: slice [%d, %d) of axis %d of %s", l->name, begin, end, axis, t.name);
    if (end - begin == t.shape[axis]) return x;
    t.shape[axis] = end - begin;
    int out = op_add(l, NPU_OP_SLICE, &x, 1, t.rank, t.shape);
    if (l->failed) return 0;
    struct npu_op *op = &l->ops[l->n_ops - 1];
    op->axis = axis;
    op->begin = begin;
    op->end = end;
    return out;
}

int npu_concat(struct npu_list *l, int axis, const int *xs, int n) {
    if (l->failed) return 0;
    struct npu_tensor t = *tensor_of(l, xs[0]);
    if (n == 1) return xs[0];
    for (int i = 1; i < n; i++) {
        const struct npu_tensor *u = tensor_of(l, xs[i]);
        for (int j = 0; j < t.rank; j++)
            if (u->rank != t.rank || (j != axis && u->shape[j] != t.shape[j])) misfit(l, NPU_OP_CONCAT, &t, u);
        t.shape[axis] += u->shape[axis];
    }
    int out = op_add(l, NPU_OP_CONCAT, xs, n, t.rank, t.shape);
    if (!l->failed) l->ops[l->n_ops - 1].axis = axis;
    return out;
}

// ----------------------------------------------------------------------------------------------------------- finishing

// Drops ops, constants and inputs that no output or state needs, and numbers the tensors anew.
static enum tern_status unused_drop(struct npu_list *l, struct tern_err *err) {
    size_t n = (size_t)MAX(l->n_tensors, 1);
    bool *used = mem_calloc(n, sizeof(*used));
    int *id = mem_calloc(n, sizeof(*id));
    if (!used || !id) {
        mem_free(used);
        mem_free(id);
        return err_set(err, TERN_NO_MEMORY, "npu list %s: no memory", l->name);
    }
    for (int i = 0; i < l->n_outputs; i++) used[l->outputs[i]] = true;
    for (int i = 0; i < l->n_states; i++) {
        used[l->states[i].old] = true;
        if (l->states[i].now != NPU_NONE) used[l->states[i].now] = true;
    }
    for (int i = l->n_ops - 1; i >= 0; i--) // ops come after what they read
        for (int j = 0; used[l->ops[i].out] && j < l->ops[i].n_in; j++) used[l->ops[i].in[j]] = true;
    int n_ops = 0, n_tensors = 0, n_inputs = 0;
    for (int i = 0; i < l->n_tensors; i++) {
        id[i] = n_tensors;
        if (used[i]) l->tensors[n_tensors++] = l->tensors[i];
    }
    for (int i = 0; i < l->n_ops; i++) {
        if (!used[l->ops[i].out]) continue;
        struct npu_op op = l->ops[i];
        int *in = arena_alloc(&l->arena, (size_t)op.n_in * sizeof(int));
        for (int j = 0; in && j < op.n_in; j++) in[j] = id[op.in[j]];
        l->failed = l->failed || !in;
        op.in = in;
        op.out = id[op.out];
        l->tensors[op.out].op = n_ops;
        l->ops[n_ops++] = op;
    }
    for (int i = 0; i < l->n_inputs; i++)
        if (used[l->inputs[i]]) l->inputs[n_inputs++] = id[l->inputs[i]];
    for (int i = 0; i < l->n_outputs; i++) l->outputs[i] = id[l->outputs[i]];
    for (int i = 0; i < l->n_states; i++) {
        l->states[i].old = id[l->states[i].old];
        if (l->states[i].now != NPU_NONE) l->states[i].now = id[l->states[i].now];
    }
    l->n_ops = n_ops;
    l->n_tensors = n_tensors;
    l->n_inputs = n_inputs;
    mem_free(used);
    mem_free(id);
    return TERN_OK;
}

enum tern_status npu_list_end(struct npu_list *l, struct tern_err *err) {
    if (!l->failed) TRY(unused_drop(l, err));
    if (l->failed) return err_set(err, TERN_NO_MEMORY, "npu list %s: no memory for its operations", l->name);
    void *tensors = mem_realloc(l->tensors, (size_t)MAX(l->n_tensors, 1) * sizeof *l->tensors);
    if (tensors) {
        l->tensors = tensors;
        l->tensors_cap = l->n_tensors;
    }
    void *ops = mem_realloc(l->ops, (size_t)MAX(l->n_ops, 1) * sizeof *l->ops);
    if (ops) {
        l->ops = ops;
        l->ops_cap = l->n_ops;
    }
    return npu_list_verify(l, err);
}

// ------------------------------------------------------------------------------------------------------------- reading

int64_t npu_tensor_len(const struct npu_tensor *t) {
    int64_t n = 1; // shapes are bounded by npu_list_verify; while building each axis is an int of the model's limits
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

int npu_find(const struct npu_list *l, const char *name) {
    for (int i = 0; i < l->n_tensors; i++)
        if (str_eqz(str_from(l->tensors[i].name), name)) return i;
    return NPU_NONE;
}

int npu_find_role(const struct npu_list *l, enum npu_role role, int layer, int index) {
    for (int i = 0; i < l->n_tensors; i++) {
        const struct npu_tensor *t = &l->tensors[i];
        if (t->role == role && (layer == NPU_NONE || t->layer == layer) && (index == NPU_NONE || t->index == index))
            return i;
    }
    return NPU_NONE;
}

struct npu_cost npu_list_cost(const struct npu_list *l) {
    struct npu_cost c = {0};
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        const struct npu_tensor *a = &l->tensors[op->in[0]], *y = &l->tensors[op->out];
        if (op->kind == NPU_OP_CONV) {
            const struct npu_weight *w = l->tensors[op->in[1]].weight;
            c.conv += (double)npu_tensor_len(y) * a->shape[1];
            c.weight_bytes += (double)a->shape[1] * y->shape[1] * (w && w->kind == NPU_WEIGHT_I8 ? 1 : 2);
        }
        if (op->kind == NPU_OP_MATMUL) c.matmul += (double)npu_tensor_len(y) * a->shape[2];
    }
    return c;
}
