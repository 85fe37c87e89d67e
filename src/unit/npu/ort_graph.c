// An operation list as an ONNX graph, made through the model editor: no protobuf, no 2 GB limit, and constants that
// stay in the weight store's memory (the runtime borrows them, so all programs of a model share one copy).
//
// Two forms. For the CPU provider the graph computes in fp32, rounded to fp16 where a value leaves the program
// (outputs, states, and what later operations read of them): that provider has no fp16 arithmetic on x86 and would put
// a cast around every operation. int8 weights pass DequantizeLinear in every run: one weight at a time exists in fp32.
// Measured for 64 columns of a 1024 x 4608 matrix (2-vCPU Sapphire Rapids Xeon, runtime 1.32.0): 183 GFLOP/s, against
// 259 with fp32 weights packed by the runtime (five times the memory) and 68 to 87 with its MatMulNBits in fp32; its
// quantised activations (357) leave fp16's error by a factor of ten. Other providers get fp16 throughout.
#include "unit/npu/ort_int.h"
#include <stdio.h>

#define ORT_NAME_MAX 64
#define ORT_EXTERNAL_MIN 128 // bytes; smaller constants must be the runtime's own copy
#define ORT_INDICES_MAX 8    // values of one
#define ORT_INDICES_FIRST 64
// Weights of a piece: 9 MB in fp32. Larger ones cost work memory (65 MB for a piece of a head), smaller ones time.
#define ORT_PIECE ((int64_t)2304 * 1024)
#define ORT_PIECES_MAX 64

struct ort_indices { // "i<number>"
    int n;
    int64_t v[ORT_INDICES_MAX];
};
struct ort_build {
    const struct ort_backend *b;
    const struct npu_list *l;
    struct ort_graph *graph;
    int element;                 // of computed values
    bool *unscaled;              // [n_tensors]: int8 weights of convolutions alone, whose results are scaled instead
    bool *leaves;                // [n_tensors]: an output or a state's new value, so rounded to fp16
    struct ort_indices *indices; // [n_indices] constants of int64 so far
    int n_indices, indices_cap;
    struct arena *scratch;
    int n_nodes;
    struct tern_err *err;
};

void ort_state_names(const struct npu_state *s, char old[NPU_NAME_MAX + 8], char now[NPU_NAME_MAX + 8]) {
    snprintf(old, NPU_NAME_MAX + 8, "%s", s->name);
    snprintf(now, NPU_NAME_MAX + 8, "%s.now", s->name);
}

static void value_name(char out[ORT_NAME_MAX], int id) { snprintf(out, ORT_NAME_MAX, "t%d", id); }

static void dims_get(const struct npu_tensor *t, int64_t dims[NPU_RANK_MAX]) {
    for (int i = 0; i < t->rank; i++) dims[i] = t->shape[i];
}

struct ort_attrs {
    struct ort_attr *list[4];
    size_t n;
    struct ort_status *failed;
};
static void attr_ints(struct ort_build *g, struct ort_attrs *a, const char *name, const int64_t *v, int n) {
    if (a->failed) return;
    a->failed = g->b->api->create_op_attr(name, v, n, n > 0 ? ORT_ATTR_INTS : ORT_ATTR_INT, &a->list[a->n]);
    if (!a->failed) a->n++;
}
static void attr_int(struct ort_build *g, struct ort_attrs *a, const char *name, int64_t v) {
    if (a->failed) return;
    a->failed = g->b->api->create_op_attr(name, &v, 1, ORT_ATTR_INT, &a->list[a->n]);
    if (!a->failed) a->n++;
}

static enum tern_status node_add(struct ort_build *g, const char *op, const char *const *in, size_t n_in,
                                 const char *out, struct ort_attrs *attrs) {
    const struct ort_api *api = g->b->api;
    struct ort_node *node = NULL;
    char name[ORT_NAME_MAX];
    snprintf(name, sizeof name, "n%d.%s", g->n_nodes++, op);
    struct ort_status *s = attrs ? attrs->failed : NULL;
    if (!s)
        s = g->b->editor->create_node(op, "", name, in, n_in, &out, 1, attrs ? attrs->list : NULL, attrs ? attrs->n : 0,
                                      &node);
    for (size_t i = 0; attrs && i < attrs->n; i++) api->release_op_attr(attrs->list[i]);
    if (!s) {
        s = g->b->editor->add_node_to_graph(g->graph, node);
        if (s) api->release_node(node);
    }
    return ort_check(g->b, s, g->err, "%s, %s", g->l->name, name);
}

static enum tern_status node1(struct ort_build *g, const char *op, const char *in, const char *out,
                              struct ort_attrs *attrs) {
    return node_add(g, op, &in, 1, out, attrs);
}

static enum tern_status node_cast(struct ort_build *g, const char *in, const char *out, int element) {
    struct ort_attrs a = {0};
    attr_int(g, &a, "to", element);
    return node1(g, "Cast", in, out, &a);
}

static enum tern_status initializer_add(struct ort_build *g, const char *name, struct ort_value *v, bool external) {
    struct ort_status *s = g->b->editor->add_initializer_to_graph(g->graph, name, v, external);
    if (s) g->b->api->release_value(v);
    return ort_check(g->b, s, g->err, "%s, constant %s", g->l->name, name);
}

// A constant: borrowed when `external`, else room in *data that the caller fills before initializer_add.
static enum tern_status constant_value(struct ort_build *g, struct ort_value **v, void **data, int element,
                                       size_t bytes, const int64_t *dims, int rank, bool external) {
    const struct ort_api *api = g->b->api;
    struct ort_status *s;
    if (external) {
        s = api->create_tensor_with_data_as_value(g->b->memory, *data, bytes, dims, (size_t)rank, element, v);
    } else {
        s = api->create_tensor_as_value(g->b->allocator, dims, (size_t)rank, element, v);
        if (!s) s = api->get_tensor_mutable_data(*v, data);
    }
    return ort_check(g->b, s, g->err, "%s, a constant of %zu bytes", g->l->name, bytes);
}

static enum tern_status constant_add(struct ort_build *g, const char *name, int element, const void *src, size_t bytes,
                                     const int64_t *dims, int rank) {
    struct ort_value *v;
    bool external = bytes >= ORT_EXTERNAL_MIN;
    void *data = (void *)(uintptr_t)src;
    TRY(constant_value(g, &v, &data, element, bytes, dims, rank, external));
    if (!external) memcpy(data, src, bytes);
    return initializer_add(g, name, v, external);
}

// fp16 values as fp32 constants.
static enum tern_status constant_add_f32(struct ort_build *g, const char *name, const uint16_t *half, int64_t n,
                                         const int64_t *dims, int rank) {
    struct ort_value *v;
    void *data;
    TRY(constant_value(g, &v, &data, ORT_F32, (size_t)n * 4, dims, rank, false));
    for (int64_t i = 0; i < n; i++) ((float *)data)[i] = f16_to_f32(half[i]);
    return initializer_add(g, name, v, false);
}

static enum tern_status constant_halves(struct ort_build *g, const char *name, const uint16_t *half, int64_t n,
                                        const int64_t *dims, int rank) {
    if (g->element == ORT_F32) return constant_add_f32(g, name, half, n, dims, rank);
    return constant_add(g, name, ORT_F16, half, (size_t)n * 2, dims, rank);
}

// Equal ones are one constant: a session keeps a kilobyte and more for each.
static enum tern_status indices_add(struct ort_build *g, char name[ORT_NAME_MAX], const int64_t *v, int n) {
    int64_t dims[1] = {n};
    int i = 0;
    while (i < g->n_indices && (g->indices[i].n != n || memcmp(g->indices[i].v, v, (size_t)n * sizeof *v) != 0)) i++;
    snprintf(name, ORT_NAME_MAX, "i%d", i);
    if (i < g->n_indices) return TERN_OK;
    if (g->n_indices == g->indices_cap) {
        int cap = MAX(2 * g->indices_cap, ORT_INDICES_FIRST);
        struct ort_indices *more = arena_alloc(g->scratch, (size_t)cap * sizeof *more);
        if (!more) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", g->l->name);
        if (g->n_indices > 0) memcpy(more, g->indices, (size_t)g->n_indices * sizeof *more);
        g->indices = more;
        g->indices_cap = cap;
    }
    g->indices[g->n_indices].n = n;
    memcpy(g->indices[g->n_indices++].v, v, (size_t)n * sizeof *v);
    return constant_add(g, name, ORT_I64, v, (size_t)n * sizeof *v, dims, 1);
}

// Rows of a piece of a weight that is unpacked and used before the next one is.
static int piece_rows(const struct npu_tensor *t) {
    int64_t n = ORT_PIECE / MAX(1, t->shape[1]);
    return (int)MIN((int64_t)t->shape[0], MAX(n, (int64_t)t->shape[0] / ORT_PIECES_MAX + 1));
}

// The whole numbers of an int8 weight as fp32, in pieces "w<id>.<k>", and its scales as "s<id>" (1, O, 1, 1).
static enum tern_status pieces_build(struct ort_build *g, int id) {
    const struct npu_tensor *t = &g->l->tensors[id];
    const int64_t columns[] = {1, t->shape[0], 1, 1};
    int64_t dims[NPU_RANK_MAX];
    char q[ORT_NAME_MAX], out[ORT_NAME_MAX], s[ORT_NAME_MAX];
    int step = piece_rows(t);
    size_t row = (size_t)npu_tensor_len(t) / (size_t)t->shape[0];
    dims_get(t, dims);
    snprintf(s, sizeof s, "s%d", id);
    TRY(constant_halves(g, s, t->weight->scale, columns[1], columns, 4));
    for (int at = 0, k = 0; at < t->shape[0]; at += step, k++) {
        dims[0] = MIN(step, t->shape[0] - at);
        snprintf(q, sizeof q, "q%d.%d", id, k);
        snprintf(out, sizeof out, "w%d.%d", id, k);
        TRY(constant_add(g, q, ORT_I8, t->weight->q + (size_t)at * row, (size_t)dims[0] * row, dims, t->rank));
        TRY(node_add(g, "DequantizeLinear", (const char *[]){q, "one"}, 2, out, NULL));
    }
    return TERN_OK;
}

static enum tern_status const_build(struct ort_build *g, int id) {
    const struct npu_tensor *t = &g->l->tensors[id];
    const struct npu_weight *w = t->weight;
    int64_t dims[NPU_RANK_MAX], rows[1] = {t->shape[0]};
    char out[ORT_NAME_MAX], q[ORT_NAME_MAX], s[ORT_NAME_MAX];
    dims_get(t, dims);
    value_name(out, id);
    if (w->kind == NPU_WEIGHT_F16) return constant_halves(g, out, w->half, npu_tensor_len(t), dims, t->rank);
    if (g->unscaled[id]) return pieces_build(g, id);
    snprintf(q, sizeof q, "q%d", id);
    snprintf(s, sizeof s, "s%d", id);
    TRY(constant_add(g, q, ORT_I8, w->q, (size_t)npu_tensor_len(t), dims, t->rank));
    const char *in[] = {q, s};
    TRY(constant_halves(g, s, w->scale, rows[0], rows, 1));
    struct ort_attrs a = {0};
    attr_int(g, &a, "axis", 0);
    return node_add(g, "DequantizeLinear", in, 2, out, &a);
}

static const char *const op_names[NPU_OP_COUNT] = {
    [NPU_OP_CONV] = "Conv",     [NPU_OP_MATMUL] = "MatMul",   [NPU_OP_ADD] = "Add",
    [NPU_OP_SUB] = "Sub",       [NPU_OP_MUL] = "Mul",         [NPU_OP_DIV] = "Div",
    [NPU_OP_MAX] = "Max",       [NPU_OP_SILU] = "Sigmoid",    [NPU_OP_SIGMOID] = "Sigmoid",
    [NPU_OP_EXP] = "Exp",       [NPU_OP_RSQRT] = "Sqrt",      [NPU_OP_SOFTMAX] = "Softmax",
    [NPU_OP_SUM] = "ReduceSum", [NPU_OP_MEAN] = "ReduceMean", [NPU_OP_REDUCE_MAX] = "ReduceMax",
    [NPU_OP_ARGMAX] = "ArgMax", [NPU_OP_RESHAPE] = "Reshape", [NPU_OP_TRANSPOSE] = "Transpose",
    [NPU_OP_SLICE] = "Slice",   [NPU_OP_CONCAT] = "Concat",
};

// A convolution by the pieces of an unscaled weight, side by side, times the scales.
static enum tern_status conv_pieces_build(struct ort_build *g, const struct npu_op *op, const char *x,
                                          const char *out) {
    const struct npu_tensor *w = &g->l->tensors[op->in[1]];
    char names[ORT_PIECES_MAX + 1][ORT_NAME_MAX], weight[ORT_NAME_MAX], whole[ORT_NAME_MAX], s[ORT_NAME_MAX];
    const char *parts[ORT_PIECES_MAX + 1];
    int step = piece_rows(w), n = 0;
    snprintf(whole, sizeof whole, "m%d", op->out);
    snprintf(s, sizeof s, "s%d", op->in[1]);
    for (int at = 0; at < w->shape[0]; at += step, n++) {
        struct ort_attrs a = {0};
        attr_ints(g, &a, "kernel_shape", (const int64_t[]){1, 1}, 2);
        snprintf(weight, sizeof weight, "w%d.%d", op->in[1], n);
        snprintf(names[n], sizeof names[n], "m%d.%d", op->out, n);
        parts[n] = names[n];
        const char *to = step == w->shape[0] ? whole : names[n];
        TRY(node_add(g, "Conv", (const char *[]){x, weight}, 2, to, &a));
    }
    if (n > 1) {
        struct ort_attrs a = {0};
        attr_int(g, &a, "axis", 1);
        TRY(node_add(g, "Concat", parts, (size_t)n, whole, &a));
    }
    return node_add(g, "Mul", (const char *[]){whole, s}, 2, out, NULL);
}

// Softmax over an axis that is not the last: spelt out on the CPU provider, whose own transposes twice and takes three
// times as long (84 ms against 24 for the six of a 64-row step over 576 keys and 16 heads).
static enum tern_status softmax_build(struct ort_build *g, const struct npu_op *op, const char *in, const char *out) {
    char max[ORT_NAME_MAX], less[ORT_NAME_MAX], e[ORT_NAME_MAX], sum[ORT_NAME_MAX], index[ORT_NAME_MAX];
    int64_t axis = op->axis;
    struct ort_attrs a = {0}, b = {0};
    if (!g->b->is_cpu) {
        attr_int(g, &a, "axis", axis);
        return node1(g, "Softmax", in, out, &a);
    }
    snprintf(max, sizeof max, "m%d.max", op->out);
    snprintf(less, sizeof less, "m%d.less", op->out);
    snprintf(e, sizeof e, "m%d.exp", op->out);
    snprintf(sum, sizeof sum, "m%d.sum", op->out);
    TRY(indices_add(g, index, &axis, 1));
    attr_int(g, &a, "keepdims", 1);
    attr_int(g, &b, "keepdims", 1);
    TRY(node_add(g, "ReduceMax", (const char *[]){in, index}, 2, max, &a));
    TRY(node_add(g, "Sub", (const char *[]){in, max}, 2, less, NULL));
    TRY(node1(g, "Exp", less, e, NULL));
    TRY(node_add(g, "ReduceSum", (const char *[]){e, index}, 2, sum, &b));
    return node_add(g, "Div", (const char *[]){e, sum}, 2, out, NULL);
}

// The operation itself, its result under `out`. in: the names of its operands.
// flat: one case per operation
static enum tern_status op_build(struct ort_build *g, const struct npu_op *op, const char *const *in, const char *out) {
    const struct npu_tensor *t = &g->l->tensors[op->out];
    const char *name = op_names[op->kind];
    char inner[ORT_NAME_MAX], index[4][ORT_NAME_MAX];
    struct ort_attrs a = {0};
    int64_t v[ORT_INDICES_MAX], axis = op->axis;
    snprintf(inner, sizeof inner, "m%d", op->out);
    switch (op->kind) {
    case NPU_OP_CONV:
        if (g->unscaled[op->in[1]]) return conv_pieces_build(g, op, in[0], out);
        attr_ints(g, &a, "kernel_shape", (const int64_t[]){1, 1}, 2);
        return node_add(g, name, in, 2, out, &a);
    case NPU_OP_SILU: {
        TRY(node1(g, name, in[0], inner, NULL));
        const char *both[] = {in[0], inner};
        return node_add(g, "Mul", both, 2, out, NULL);
    }
    case NPU_OP_RSQRT: TRY(node1(g, name, in[0], inner, NULL)); return node1(g, "Reciprocal", inner, out, NULL);
    case NPU_OP_SOFTMAX: return softmax_build(g, op, in[0], out);
    case NPU_OP_SUM:
    case NPU_OP_MEAN:
    case NPU_OP_REDUCE_MAX: {
        TRY(indices_add(g, index[0], &axis, 1));
        attr_int(g, &a, "keepdims", 1);
        const char *both[] = {in[0], index[0]};
        return node_add(g, name, both, 2, out, &a);
    }
    case NPU_OP_ARGMAX:
        attr_int(g, &a, "axis", axis);
        attr_int(g, &a, "keepdims", 1);
        attr_int(g, &a, "select_last_index", 0);
        TRY(node1(g, name, in[0], inner, &a));
        return node_cast(g, inner, out, g->element);
    case NPU_OP_RESHAPE: {
        dims_get(t, v);
        TRY(indices_add(g, index[0], v, t->rank));
        const char *both[] = {in[0], index[0]};
        return node_add(g, name, both, 2, out, NULL);
    }
    case NPU_OP_TRANSPOSE:
        for (int i = 0; i < t->rank; i++) v[i] = op->perm[i];
        attr_ints(g, &a, "perm", v, t->rank);
        return node1(g, name, in[0], out, &a);
    case NPU_OP_SLICE: {
        const int64_t at[] = {op->begin, op->end, axis, 1};
        for (int i = 0; i < 4; i++) TRY(indices_add(g, index[i], &at[i], 1));
        const char *all[] = {in[0], index[0], index[1], index[2], index[3]};
        return node_add(g, name, all, 5, out, NULL);
    }
    case NPU_OP_CONCAT: attr_int(g, &a, "axis", axis); return node_add(g, name, in, (size_t)op->n_in, out, &a);
    default: return node_add(g, name, in, (size_t)op->n_in, out, NULL);
    }
}

static enum tern_status ops_build(struct ort_build *g, struct arena *scratch) {
    const struct npu_list *l = g->l;
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        char out[ORT_NAME_MAX], raw[ORT_NAME_MAX], half[ORT_NAME_MAX];
        char(*names)[ORT_NAME_MAX] = arena_alloc(scratch, (size_t)op->n_in * sizeof *names);
        const char **in = arena_alloc(scratch, (size_t)op->n_in * sizeof *in);
        if (!names || !in) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", l->name);
        for (int k = 0; k < op->n_in; k++) {
            value_name(names[k], op->in[k]);
            in[k] = names[k];
        }
        value_name(out, op->out);
        if (g->element == ORT_F16 || !g->leaves[op->out]) {
            TRY(op_build(g, op, in, out));
            continue;
        }
        snprintf(raw, sizeof raw, "r%d", op->out);
        snprintf(half, sizeof half, "h%d", op->out);
        TRY(op_build(g, op, in, raw));
        TRY(node_cast(g, raw, half, ORT_F16));
        TRY(node_cast(g, half, out, ORT_F32));
    }
    return TERN_OK;
}

static enum tern_status info_create(struct ort_build *g, struct ort_value_info **out, const char *name, int id) {
    const struct ort_api *api = g->b->api;
    const struct npu_tensor *t = &g->l->tensors[id];
    struct ort_shape_info *shape = NULL;
    struct ort_type_info *type = NULL;
    int64_t dims[NPU_RANK_MAX];
    dims_get(t, dims);
    struct ort_status *s = api->create_tensor_type_and_shape_info(&shape);
    if (!s) s = api->set_tensor_element_type(shape, ORT_F16);
    if (!s) s = api->set_dimensions(shape, dims, (size_t)t->rank);
    if (!s) s = g->b->editor->create_tensor_type_info(shape, &type);
    if (!s) s = g->b->editor->create_value_info(name, type, out);
    if (type) api->release_type_info(type);
    if (shape) api->release_tensor_type_and_shape_info(shape);
    return ort_check(g->b, s, g->err, "%s, %s", g->l->name, name);
}

// Inputs: the list's, then the states' old values; outputs: the list's, then the new values.
static enum tern_status ports_build(struct ort_build *g, struct arena *scratch) {
    const struct npu_list *l = g->l;
    int n_in = l->n_inputs + l->n_states, n_out = l->n_outputs + l->n_states, n_made = 0;
    struct ort_value_info **info = arena_calloc(scratch, (size_t)(n_in + n_out), sizeof(struct ort_value_info *));
    enum tern_status status = TERN_OK;
    if (!info) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", l->name);
    for (int i = 0; i < n_in + n_out; i++) {
        bool is_in = i < n_in;
        int k = is_in ? i : i - n_in, n_plain = is_in ? l->n_inputs : l->n_outputs;
        const struct npu_state *st = k < n_plain ? NULL : &l->states[k - n_plain];
        int id = st ? (is_in ? st->old : st->now) : is_in ? l->inputs[k] : l->outputs[k];
        char old[NPU_NAME_MAX + 8], now[NPU_NAME_MAX + 8], value[ORT_NAME_MAX];
        if (st) ort_state_names(st, old, now);
        const char *name = st ? (is_in ? old : now) : l->tensors[id].name;
        value_name(value, id);
        TRY_GOTO(info_create(g, &info[i], name, id), done);
        n_made++;
        if (is_in) TRY_GOTO(node_cast(g, name, value, g->element), done);
        if (!is_in) TRY_GOTO(node_cast(g, value, name, ORT_F16), done);
    }
    TRY_GOTO(ort_check(g->b, g->b->editor->set_graph_inputs(g->graph, info, (size_t)n_in), g->err, "%s", l->name),
             done);
    memset(info, 0, (size_t)n_in * sizeof(struct ort_value_info *)); // the graph's now
    TRY_GOTO(
        ort_check(g->b, g->b->editor->set_graph_outputs(g->graph, info + n_in, (size_t)n_out), g->err, "%s", l->name),
        done);
    return TERN_OK;
done:
    for (int i = 0; i < n_made; i++)
        if (info[i]) g->b->api->release_value_info(info[i]);
    return status;
}

// One scale for all rows unpacks faster than one per row, so on the CPU provider weights stay whole numbers and the
// scale of its row meets each output (2-vCPU Sapphire Rapids Xeon, 64 columns of 8 matrices of 1024 x 4608: 29.5 ms
// against 31.4).
static enum tern_status unscaled_find(struct ort_build *g, struct arena *scratch) {
    const struct npu_list *l = g->l;
    const float one = 1;
    g->unscaled = arena_calloc(scratch, (size_t)l->n_tensors, sizeof(bool));
    if (!g->unscaled) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", l->name);
    if (!g->b->is_cpu) return TERN_OK;
    for (int i = 0; i < l->n_tensors; i++)
        g->unscaled[i] = l->tensors[i].role == NPU_CONST && l->tensors[i].weight->kind == NPU_WEIGHT_I8;
    for (int i = 0; i < l->n_ops; i++)
        for (int k = 0; k < l->ops[i].n_in; k++)
            if (l->ops[i].kind != NPU_OP_CONV || k != 1) g->unscaled[l->ops[i].in[k]] = false;
    return constant_add(g, "one", ORT_F32, &one, sizeof one, NULL, 0);
}

static enum tern_status graph_build(struct ort_build *g, struct arena *scratch) {
    const struct npu_list *l = g->l;
    g->leaves = arena_calloc(scratch, (size_t)l->n_tensors, sizeof(bool));
    if (!g->leaves) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", l->name);
    TRY(unscaled_find(g, scratch));
    for (int i = 0; i < l->n_outputs; i++) g->leaves[l->outputs[i]] = true;
    for (int i = 0; i < l->n_states; i++) g->leaves[l->states[i].now] = true;
    TRY(ports_build(g, scratch));
    for (int i = 0; i < l->n_tensors; i++)
        if (l->tensors[i].role == NPU_CONST) TRY(const_build(g, i));
    return ops_build(g, scratch);
}

enum tern_status ort_model_build(const struct ort_backend *b, struct ort_model **out, const struct npu_list *l,
                                 struct tern_err *err) {
    struct ort_build g = {.b = b, .l = l, .element = b->is_cpu ? ORT_F32 : ORT_F16, .err = err};
    const char *domain = "";
    int opset = ORT_OPSET;
    struct arena scratch;
    enum tern_status status;
    *out = NULL;
    arena_init(&scratch, 0);
    g.scratch = &scratch;
    TRY(ort_check(b, b->editor->create_graph(&g.graph), err, "%s", l->name));
    TRY_GOTO(graph_build(&g, &scratch), fail);
    TRY_GOTO(ort_check(b, b->editor->create_model(&domain, &opset, 1, out), err, "%s", l->name), fail);
    TRY_GOTO(ort_check(b, b->editor->add_graph_to_model(*out, g.graph), err, "%s", l->name), fail);
    arena_release(&scratch);
    return TERN_OK;
fail:
    if (*out) b->api->release_model(*out);
    b->api->release_graph(g.graph);
    arena_release(&scratch);
    *out = NULL;
    return status;
}
