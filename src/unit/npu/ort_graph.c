// A part of an operation list (ort_cut.c) as an ONNX graph, made through the model editor: no protobuf, no 2 GB limit.
// Weights are inputs, or constants that the runtime borrows: both stay in the weight store's memory, so all programs of
// a model share one copy.
//
// Two forms. For the CPU provider the graph computes in fp32, rounded to fp16 where a value leaves the program
// (outputs, states, and what later operations read of them): that provider has no fp16 arithmetic on x86 and would put
// a cast around every operation. int8 weights pass DequantizeLinear in every run: one weight at a time exists in fp32.
// Measured for 64 columns of a 1024 x 4608 matrix (2-vCPU Sapphire Rapids Xeon, runtime 1.32.0): 183 GFLOP/s, against
// 259 with fp32 weights packed by the runtime (five times the memory) and 68 to 87 with its MatMulNBits in fp32; its
// quantised activations (357) leave fp16's error by a factor of ten. Other providers get fp16 throughout.
#include "unit/npu/ort_graph.h"
#include <stdio.h>

#define ORT_EXTERNAL_MIN 128 // bytes; smaller constants must be the runtime's own copy
#define ORT_INDICES_FIRST 64

void ort_value_name(const struct ort_build *g, char out[ORT_NAME_MAX], int id) {
    if (g->value_in[id])
        snprintf(out, ORT_NAME_MAX, "i%d", g->value_in[id] - 1);
    else if (g->value_out[id])
        snprintf(out, ORT_NAME_MAX, "o%d", g->value_out[id] - 1);
    else
        snprintf(out, ORT_NAME_MAX, "t%d", id);
}

static void dims_get(const struct npu_tensor *t, int64_t dims[NPU_RANK_MAX]) {
    for (int i = 0; i < t->rank; i++) dims[i] = t->shape[i];
}

void ort_attr_ints(struct ort_build *g, struct ort_attrs *a, const char *name, const int64_t *v, int n) {
    if (a->failed) return;
    a->failed = g->b->api->create_op_attr(name, v, n, n > 0 ? ORT_ATTR_INTS : ORT_ATTR_INT, &a->list[a->n]);
    if (!a->failed) a->n++;
}
void ort_attr_int(struct ort_build *g, struct ort_attrs *a, const char *name, int64_t v) {
    if (a->failed) return;
    a->failed = g->b->api->create_op_attr(name, &v, 1, ORT_ATTR_INT, &a->list[a->n]);
    if (!a->failed) a->n++;
}

enum tern_status ort_node(struct ort_build *g, const char *domain, const char *op, const char *const *in, size_t n_in,
                          const char *out, struct ort_attrs *attrs) {
    const struct ort_api *api = g->b->api;
    struct ort_node *node = NULL;
    char name[ORT_NAME_MAX];
    snprintf(name, sizeof name, "n%d.%s", g->n_nodes++, op);
    struct ort_status *s = attrs ? attrs->failed : NULL;
    if (!s)
        s = g->b->editor->create_node(op, domain, name, in, n_in, &out, 1, attrs ? attrs->list : NULL,
                                      attrs ? attrs->n : 0, &node);
    for (size_t i = 0; attrs && i < attrs->n; i++) api->release_op_attr(attrs->list[i]);
    if (!s) {
        s = g->b->editor->add_node_to_graph(g->graph, node);
        if (s) api->release_node(node);
    }
    return ort_check(g->b, s, g->err, "%s, %s", g->l->name, name);
}

static enum tern_status node_add(struct ort_build *g, const char *op, const char *const *in, size_t n_in,
                                 const char *out, struct ort_attrs *attrs) {
    return ort_node(g, "", op, in, n_in, out, attrs);
}

static enum tern_status node1(struct ort_build *g, const char *op, const char *in, const char *out,
                              struct ort_attrs *attrs) {
    return node_add(g, op, &in, 1, out, attrs);
}

enum tern_status ort_node_cast(struct ort_build *g, const char *in, const char *out, int element) {
    struct ort_attrs a = {0};
    ort_attr_int(g, &a, "to", element);
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
    snprintf(name, ORT_NAME_MAX, "c%d", i);
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

enum tern_status ort_node_reshape(struct ort_build *g, const char *in, const char *out, const int64_t *dims, int rank) {
    char index[ORT_NAME_MAX];
    TRY(indices_add(g, index, dims, rank));
    return node_add(g, "Reshape", (const char *[]){in, index}, 2, out, NULL);
}

enum tern_status ort_node_slice(struct ort_build *g, const char *in, const char *out, int axis, int64_t begin,
                                int64_t end) {
    const int64_t at[] = {begin, end, axis, 1};
    char index[4][ORT_NAME_MAX];
    for (int i = 0; i < 4; i++) TRY(indices_add(g, index[i], &at[i], 1));
    return node_add(g, "Slice", (const char *[]){in, index[0], index[1], index[2], index[3]}, 5, out, NULL);
}

enum tern_status ort_node_concat(struct ort_build *g, const char *const *in, int n, const char *out, int axis) {
    struct ort_attrs a = {0};
    ort_attr_int(g, &a, "axis", axis);
    return node_add(g, "Concat", in, (size_t)n, out, &a);
}

// The whole numbers of an int8 weight as fp32, in pieces "w<id>.<k>", of the input or constant `q`.
static enum tern_status piece_unpack(struct ort_build *g, int id, int k, const char *q) {
    const float one = 1;
    char out[ORT_NAME_MAX];
    if (!g->has_one) TRY(constant_add(g, "one", ORT_F32, &one, sizeof one, NULL, 0));
    g->has_one = true;
    snprintf(out, sizeof out, "w%d.%d", id, k);
    return node_add(g, "DequantizeLinear", (const char *[]){q, "one"}, 2, out, NULL);
}

static enum tern_status rows_unpack(struct ort_build *g, int id, const char *q, const char *s) {
    char out[ORT_NAME_MAX];
    struct ort_attrs a = {0};
    ort_value_name(g, out, id);
    ort_attr_int(g, &a, "axis", 0);
    return node_add(g, "DequantizeLinear", (const char *[]){q, s}, 2, out, &a);
}

static enum tern_status const_build(struct ort_build *g, int id) {
    const struct npu_tensor *t = &g->l->tensors[id];
    const struct npu_weight *w = t->weight;
    int64_t dims[NPU_RANK_MAX], rows[1] = {t->shape[0]};
    char out[ORT_NAME_MAX], q[ORT_NAME_MAX], s[ORT_NAME_MAX];
    dims_get(t, dims);
    ort_value_name(g, out, id);
    if (w->kind == NPU_WEIGHT_F16) return constant_halves(g, out, w->half, npu_tensor_len(t), dims, t->rank);
    snprintf(q, sizeof q, "q%d", id);
    snprintf(s, sizeof s, "s%d", id);
    TRY(constant_add(g, q, ORT_I8, w->q, (size_t)npu_tensor_len(t), dims, t->rank));
    TRY(constant_halves(g, s, w->scale, rows[0], rows, 1));
    return rows_unpack(g, id, q, s);
}

enum tern_status ort_value_need(struct ort_build *g, int id) {
    char port[ORT_NAME_MAX], value[ORT_NAME_MAX];
    if (g->known[id]) return TERN_OK;
    g->known[id] = true;
    if (g->port_in[id]) {
        snprintf(port, sizeof port, "i%d", g->port_in[id] - 1);
        ort_value_name(g, value, id);
        return ort_node_cast(g, port, value, g->element);
    }
    return g->l->tensors[id].role == NPU_CONST ? const_build(g, id) : TERN_OK;
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
    int step = ort_piece_rows(w), n = 0;
    snprintf(whole, sizeof whole, "m%d", op->out);
    snprintf(s, sizeof s, "s%d", op->in[1]);
    for (int at = 0; at < w->shape[0]; at += step, n++) {
        struct ort_attrs a = {0};
        ort_attr_ints(g, &a, "kernel_shape", (const int64_t[]){1, 1}, 2);
        snprintf(weight, sizeof weight, "w%d.%d", op->in[1], n);
        snprintf(names[n], sizeof names[n], "m%d.%d", op->out, n);
        parts[n] = names[n];
        const char *to = step == w->shape[0] ? whole : names[n];
        TRY(node_add(g, "Conv", (const char *[]){x, weight}, 2, to, &a));
    }
    if (n > 1) TRY(ort_node_concat(g, parts, n, whole, 1));
    return node_add(g, "Mul", (const char *[]){whole, s}, 2, out, NULL);
}

// Softmax over an axis that is not the last: spelt out on the CPU provider, whose own transposes twice and takes three
// times as long (84 ms against 24 for the six of a 64-row step over 576 keys and 16 heads).
static enum tern_status softmax_build(struct ort_build *g, const struct npu_op *op, const char *in, const char *out) {
    char max[ORT_NAME_MAX], less[ORT_NAME_MAX], e[ORT_NAME_MAX], sum[ORT_NAME_MAX], index[ORT_NAME_MAX];
    int64_t axis = op->axis;
    struct ort_attrs a = {0}, b = {0};
    if (!g->b->in_parts) {
        ort_attr_int(g, &a, "axis", axis);
        return node1(g, "Softmax", in, out, &a);
    }
    snprintf(max, sizeof max, "m%d.max", op->out);
    snprintf(less, sizeof less, "m%d.less", op->out);
    snprintf(e, sizeof e, "m%d.exp", op->out);
    snprintf(sum, sizeof sum, "m%d.sum", op->out);
    TRY(indices_add(g, index, &axis, 1));
    ort_attr_int(g, &a, "keepdims", 1);
    ort_attr_int(g, &b, "keepdims", 1);
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
    char inner[ORT_NAME_MAX], index[ORT_NAME_MAX];
    struct ort_attrs a = {0};
    struct ort_attention attention;
    int64_t v[ORT_INDICES_MAX], axis = op->axis;
    snprintf(inner, sizeof inner, "m%d", op->out);
    switch (op->kind) {
    case NPU_OP_CONV:
        if (g->cuts->unscaled[op->in[1]]) return conv_pieces_build(g, op, in[0], out);
        ort_attr_ints(g, &a, "kernel_shape", (const int64_t[]){1, 1}, 2);
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
        TRY(indices_add(g, index, &axis, 1));
        ort_attr_int(g, &a, "keepdims", 1);
        const char *both[] = {in[0], index};
        return node_add(g, name, both, 2, out, &a);
    }
    case NPU_OP_ARGMAX:
        ort_attr_int(g, &a, "axis", axis);
        ort_attr_int(g, &a, "keepdims", 1);
        ort_attr_int(g, &a, "select_last_index", 0);
        TRY(node1(g, name, in[0], inner, &a));
        return ort_node_cast(g, inner, out, g->element);
    case NPU_OP_RESHAPE: dims_get(t, v); return ort_node_reshape(g, in[0], out, v, t->rank);
    case NPU_OP_TRANSPOSE:
        for (int i = 0; i < t->rank; i++) v[i] = op->perm[i];
        ort_attr_ints(g, &a, "perm", v, t->rank);
        return node1(g, name, in[0], out, &a);
    case NPU_OP_SLICE: return ort_node_slice(g, in[0], out, (int)axis, op->begin, op->end);
    case NPU_OP_CONCAT:
        if (g->b->in_parts && ort_attention_find(g, op, &attention)) return ort_attention_build(g, &attention, out);
        return ort_node_concat(g, in, op->n_in, out, (int)axis);
    default: return node_add(g, name, in, (size_t)op->n_in, out, NULL);
    }
}

static enum tern_status op_add(struct ort_build *g, const struct npu_op *op) {
    char out[ORT_NAME_MAX], raw[ORT_NAME_MAX], half[ORT_NAME_MAX];
    char(*names)[ORT_NAME_MAX] = arena_alloc(g->scratch, (size_t)op->n_in * sizeof *names);
    const char **in = arena_alloc(g->scratch, (size_t)op->n_in * sizeof *in);
    if (!names || !in) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", g->l->name);
    for (int k = 0; k < op->n_in; k++) {
        TRY(ort_value_need(g, op->in[k]));
        ort_value_name(g, names[k], op->in[k]);
        in[k] = names[k];
    }
    ort_value_name(g, out, op->out);
    if (g->element == ORT_F16 || !g->cuts->leaves[op->out]) {
        TRY(op_build(g, op, in, out));
    } else {
        snprintf(raw, sizeof raw, "r%d", op->out);
        snprintf(half, sizeof half, "h%d", op->out);
        TRY(op_build(g, op, in, raw));
        TRY(ort_node_cast(g, raw, half, ORT_F16));
        TRY(ort_node_cast(g, half, out, ORT_F32));
    }
    return TERN_OK;
}

static enum tern_status info_create(struct ort_build *g, struct ort_value_info **out, const char *name,
                                    const struct ort_io *io) {
    const struct ort_api *api = g->b->api;
    struct ort_shape_info *shape = NULL;
    struct ort_type_info *type = NULL;
    int64_t dims[NPU_RANK_MAX];
    int element, rank = ort_io_shape(g->cuts, io, &element, dims);
    struct ort_status *s = api->create_tensor_type_and_shape_info(&shape);
    if (!s) s = api->set_tensor_element_type(shape, element);
    if (!s) s = api->set_dimensions(shape, dims, (size_t)rank);
    if (!s) s = g->b->editor->create_tensor_type_info(shape, &type);
    if (!s) s = g->b->editor->create_value_info(name, type, out);
    if (type) api->release_type_info(type);
    if (shape) api->release_tensor_type_and_shape_info(shape);
    return ort_check(g->b, s, g->err, "%s, %s", g->l->name, name);
}

// What an input is to the operations: a value of their element type, or an unpacked weight.
static enum tern_status input_add(struct ort_build *g, const struct ort_io *io, const char *name) {
    const struct npu_tensor *t = &g->l->tensors[io->tensor];
    bool unscaled = g->cuts->unscaled[io->tensor];
    const int64_t columns[] = {1, t->shape[0], 1, 1};
    char value[ORT_NAME_MAX], wide[ORT_NAME_MAX];
    ort_value_name(g, value, io->tensor);
    if (io->kind == ORT_IO_PORT) return TERN_OK; // widened where it is read
    g->known[io->tensor] = true;
    switch (io->kind) {
    case ORT_IO_PORT:
    case ORT_IO_VALUE: return TERN_OK;
    case ORT_IO_HALF: return ort_node_cast(g, name, value, g->element);
    case ORT_IO_WEIGHT: return unscaled ? piece_unpack(g, io->tensor, io->index, name) : TERN_OK;
    case ORT_IO_SCALE: break;
    }
    snprintf(wide, sizeof wide, "f%d", io->tensor);
    snprintf(value, sizeof value, "s%d", io->tensor);
    TRY(ort_node_cast(g, name, unscaled ? wide : value, g->element));
    if (!unscaled) {
        snprintf(wide, sizeof wide, "i%d", (int)(io - g->cut->ins) - 1); // the rows come before their scales
        return rows_unpack(g, io->tensor, wide, value);
    }
    return ort_node_reshape(g, wide, value, columns, 4);
}

static enum tern_status output_add(struct ort_build *g, const struct ort_io *io, const char *name) {
    char value[ORT_NAME_MAX];
    if (io->kind == ORT_IO_VALUE) return TERN_OK;
    TRY(ort_value_need(g, io->tensor));
    ort_value_name(g, value, io->tensor);
    return ort_node_cast(g, value, name, ORT_F16);
}

// Names, types and shapes of what goes in and out, and what stands between that and the operations.
static enum tern_status ios_build(struct ort_build *g) {
    const struct ort_cut *cut = g->cut;
    int n_in = cut->n_ins, n = n_in + cut->n_outs, n_made = 0;
    struct ort_value_info **info = arena_calloc(g->scratch, (size_t)n + 1, sizeof(struct ort_value_info *));
    enum tern_status status = TERN_OK;
    if (!info) return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", g->l->name);
    for (int i = 0; i < n; i++) {
        const struct ort_io *io = i < n_in ? &cut->ins[i] : &cut->outs[i - n_in];
        char name[ORT_NAME_MAX];
        snprintf(name, sizeof name, i < n_in ? "i%d" : "o%d", i < n_in ? i : i - n_in);
        TRY_GOTO(info_create(g, &info[i], name, io), done);
        n_made++;
        TRY_GOTO(i < n_in ? input_add(g, io, name) : output_add(g, io, name), done);
    }
    TRY_GOTO(ort_check(g->b, g->b->editor->set_graph_inputs(g->graph, info, (size_t)n_in), g->err, "%s", g->l->name),
             done);
    memset(info, 0, (size_t)n_in * sizeof(struct ort_value_info *)); // the graph's now
    TRY_GOTO(ort_check(g->b, g->b->editor->set_graph_outputs(g->graph, info + n_in, (size_t)cut->n_outs), g->err, "%s",
                       g->l->name),
             done);
    return TERN_OK;
done:
    for (int i = 0; i < n_made; i++)
        if (info[i]) g->b->api->release_value_info(info[i]);
    return status;
}

// Operations whose results are read, when attention is built as a whole.
static void wanted_find(struct ort_build *g) {
    const struct npu_list *l = g->l;
    const struct ort_cut *cut = g->cut;
    int reads[6];
    for (int i = 0; i < cut->n_outs; i++) {
        int op = l->tensors[cut->outs[i].tensor].op;
        if (op != NPU_NONE) g->wanted[op - cut->begin] = true;
    }
    for (int i = cut->end - 1; i >= cut->begin; i--) {
        struct ort_attention a;
        if (!g->wanted[i - cut->begin]) continue;
        bool whole = g->b->in_parts && ort_attention_find(g, &l->ops[i], &a);
        const int *in = whole ? reads : l->ops[i].in;
        int n = whole ? ort_attention_reads(g, &a, reads) : l->ops[i].n_in;
        for (int k = 0; k < n; k++) {
            int op = l->tensors[in[k]].op;
            if (op != NPU_NONE && op >= cut->begin) g->wanted[op - cut->begin] = true;
        }
    }
}

static enum tern_status graph_build(struct ort_build *g) {
    const struct ort_cut *cut = g->cut;
    size_t n = (size_t)g->l->n_tensors;
    g->value_in = arena_calloc(g->scratch, n, sizeof *g->value_in);
    g->value_out = arena_calloc(g->scratch, n, sizeof *g->value_out);
    g->port_in = arena_calloc(g->scratch, n, sizeof *g->port_in);
    g->known = arena_calloc(g->scratch, n, sizeof *g->known);
    g->wanted = arena_calloc(g->scratch, (size_t)(cut->end - cut->begin) + 1, sizeof *g->wanted);
    if (!g->value_in || !g->value_out || !g->port_in || !g->known || !g->wanted)
        return err_set(g->err, TERN_NO_MEMORY, "no memory to make a graph of %s", g->l->name);
    for (int i = 0; i < cut->n_ins; i++) {
        if (cut->ins[i].kind == ORT_IO_VALUE) g->value_in[cut->ins[i].tensor] = i + 1;
        if (cut->ins[i].kind == ORT_IO_PORT) g->port_in[cut->ins[i].tensor] = i + 1;
    }
    for (int i = 0; i < cut->n_outs; i++)
        if (cut->outs[i].kind == ORT_IO_VALUE) g->value_out[cut->outs[i].tensor] = i + 1;
    wanted_find(g);
    TRY(ios_build(g));
    for (int i = cut->begin; i < cut->end; i++)
        if (g->wanted[i - cut->begin]) TRY(op_add(g, &g->l->ops[i]));
    return TERN_OK;
}

enum tern_status ort_model_build(const struct ort_backend *b, struct ort_model **out, const struct ort_cuts *cuts,
                                 const struct ort_cut *cut, struct tern_err *err) {
    struct ort_build g = {
        .b = b, .l = cut->list, .cuts = cuts, .cut = cut, .element = b->in_parts ? ORT_F32 : ORT_F16, .err = err};
    const char *const domains[] = {"", "com.microsoft"};
    const int opsets[] = {ORT_OPSET, 1};
    struct arena scratch;
    enum tern_status status;
    *out = NULL;
    arena_init(&scratch, 0);
    g.scratch = &scratch;
    TRY(ort_check(b, b->editor->create_graph(&g.graph), err, "%s", g.l->name));
    TRY_GOTO(graph_build(&g), fail);
    TRY_GOTO(ort_check(b, b->editor->create_model(domains, opsets, b->in_parts ? 2 : 1, out), err, "%s", g.l->name),
             fail);
    TRY_GOTO(ort_check(b, b->editor->add_graph_to_model(*out, g.graph), err, "%s", g.l->name), fail);
    arena_release(&scratch);
    return TERN_OK;
fail:
    if (*out) b->api->release_model(*out);
    b->api->release_graph(g.graph);
    arena_release(&scratch);
    *out = NULL;
    return status;
}
