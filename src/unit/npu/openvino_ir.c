// A list in OpenVINO's own text format. Its C functions read models but make none, so there is a choice between this
// format and ONNX files: here constants are named by offset into memory that the caller gives, which is the weight
// store as it lies there, so nothing is copied and no file is written; ONNX would need its protobuf written by us, the
// weights inside or in files beside it.
//
// The weights are not one piece of memory. What is given to the runtime as "the weights" is the range of addresses that
// covers every constant; it reads the named constants in it and nothing between.
//
// Linear layers are matrix products of rows, not convolutions: the CPU device keeps int8 weights of a product and
// unpacks them while it multiplies, and folds those of a convolution into floats, four times the memory.
#include "unit/npu/openvino_int.h"
#include <stdio.h>

struct port {
    int layer, port;
};
struct builder {
    struct openvino_ir *ir;
    const struct npu_list *l;
    struct buf edges;
    struct port *at; // [n_tensors] who makes a tensor
    int64_t *index;  // index constants so far, [n_indices]
    int n_indices;
    const int64_t *one;
    uint16_t *halves; // [0]: -0.5
    struct tern_err *err;
};
// What an output of a layer looks like.
struct shape {
    int rank;
    int64_t dims[NPU_RANK_MAX];
};

static struct shape shape_of(const struct npu_tensor *t) {
    struct shape s = {.rank = t->rank};
    for (int i = 0; i < t->rank; i++) s.dims[i] = t->shape[i];
    return s;
}
static struct shape shape1(int64_t n) { return (struct shape){1, {n}}; }
// (1, C, 1, S) as (1, 1, S, C) and back.
static struct shape shape_rows(const struct npu_tensor *t) {
    return (struct shape){4, {1, 1, t->shape[3], t->shape[1]}};
}

static void dims_put(struct buf *b, const struct shape *s, const char *between) {
    for (int i = 0; i < s->rank; i++) buf_putf(b, "%s%lld", i > 0 ? between : "", (long long)s->dims[i]);
}

static void output_put(struct buf *b, int port, const char *precision, const struct shape *s) {
    buf_putf(b, "<port id=\"%d\" precision=\"%s\">", port, precision);
    for (int i = 0; i < s->rank; i++) buf_putf(b, "<dim>%lld</dim>", (long long)s->dims[i]);
    buf_puts(b, "</port>");
}

// A layer over values that are there already; returns its first output. `data`: its attributes, or "".
static struct port layer_add(struct builder *b, const char *type, const char *opset, const char *data,
                             const struct port *in, int n_in, const char *precision, struct shape s) {
    struct buf *x = &b->ir->xml;
    int id = b->ir->n_layers++;
    buf_putf(x, "<layer id=\"%d\" name=\"n%d\" type=\"%s\" version=\"%s\">", id, id, type, opset);
    if (data[0]) buf_putf(x, "<data %s/>", data);
    if (n_in > 0) buf_puts(x, "<input>");
    for (int i = 0; i < n_in; i++) {
        buf_putf(x, "<port id=\"%d\"/>", i);
        buf_putf(&b->edges, "<edge from-layer=\"%d\" from-port=\"%d\" to-layer=\"%d\" to-port=\"%d\"/>", in[i].layer,
                 in[i].port, id, i);
    }
    if (n_in > 0) buf_puts(x, "</input>");
    if (precision) {
        buf_puts(x, "<output>");
        output_put(x, n_in, precision, &s);
        buf_puts(x, "</output>");
    }
    buf_puts(x, "</layer>\n");
    return (struct port){id, n_in};
}

static void range_cover(const uint8_t **lo, const uint8_t **hi, const void *data, size_t bytes) {
    const uint8_t *at = data;
    if (!*lo || at < *lo) *lo = at;
    if (at + bytes > *hi) *hi = at + bytes;
}

static struct port const_add(struct builder *b, const char *element, const char *precision, const void *data,
                             size_t bytes, struct shape s) {
    struct buf text;
    buf_init(&text, 512);
    buf_putf(&text, "element_type=\"%s\" shape=\"", element);
    dims_put(&text, &s, ",");
    buf_putf(&text, "\" offset=\"%llu\" size=\"%zu\"", (unsigned long long)((uintptr_t)data - (uintptr_t)b->ir->base),
             bytes);
    struct port p = layer_add(b, "Const", "opset1", text.failed ? "" : text.data, NULL, 0, precision, s);
    b->ir->xml.failed |= text.failed;
    buf_release(&text);
    return p;
}

// Index constants lie in one block, made before the range of addresses is known: at most so many numbers per op.
#define INDICES_PER_OP 8
static struct port index_add(struct builder *b, const int64_t *v, int n) {
    int64_t *at = b->index + b->n_indices;
    memcpy(at, v, (size_t)n * sizeof *v);
    b->n_indices += n;
    return const_add(b, "i64", "I64", at, (size_t)n * sizeof *v, shape1(n));
}

static struct port transpose_add(struct builder *b, struct port x, const int *perm, struct shape s) {
    int64_t order[NPU_RANK_MAX];
    for (int i = 0; i < s.rank; i++) order[i] = perm[i];
    struct port in[] = {x, index_add(b, order, s.rank)};
    return layer_add(b, "Transpose", "opset1", "", in, 2, "FP16", s);
}

// int8 or int4 [O][I] times the scale of its row; as rows of a product (O, I), or with the shape that the list says.
static struct port weight_add(struct builder *b, const struct npu_tensor *t, bool as_matrix) {
    const struct npu_weight *w = t->weight;
    struct shape s = as_matrix ? (struct shape){2, {t->shape[0], t->shape[1]}} : shape_of(t);
    size_t n = (size_t)npu_tensor_len(t);
    if (w->kind == NPU_WEIGHT_F16) return const_add(b, "f16", "FP16", w->half, n * 2, s);
    struct shape rows = s;
    for (int i = 1; i < rows.rank; i++) rows.dims[i] = 1;
    struct port q =
        w->nibbles ? const_add(b, "i4", "I4", w->nibbles, (n + 1) / 2, s) : const_add(b, "i8", "I8", w->q, n, s);
    struct port in[] = {layer_add(b, "Convert", "opset1", "destination_type=\"f16\"", &q, 1, "FP16", s),
                        const_add(b, "f16", "FP16", w->scale, (size_t)t->shape[0] * 2, rows)};
    return layer_add(b, "Multiply", "opset1", "auto_broadcast=\"numpy\"", in, 2, "FP16", s);
}

static struct port conv_add(struct builder *b, const struct npu_op *op) {
    static const int to_rows[] = {0, 2, 3, 1}, to_columns[] = {0, 3, 1, 2};
    const struct npu_tensor *x = &b->l->tensors[op->in[0]], *y = &b->l->tensors[op->out];
    struct port in[] = {transpose_add(b, b->at[op->in[0]], to_rows, shape_rows(x)),
                        weight_add(b, &b->l->tensors[op->in[1]], true)};
    struct port rows =
        layer_add(b, "MatMul", "opset1", "transpose_a=\"false\" transpose_b=\"true\"", in, 2, "FP16", shape_rows(y));
    return transpose_add(b, rows, to_columns, shape_of(y));
}

// The index output of a TopK of one. Its layer has two outputs, the second is asked for.
static struct port argmax_add(struct builder *b, const struct npu_op *op, const char *axis_text) {
    struct buf *x = &b->ir->xml;
    struct shape s = shape_of(&b->l->tensors[op->out]);
    struct port in[] = {b->at[op->in[0]], const_add(b, "i64", "I64", b->one, sizeof(int64_t), (struct shape){0})};
    int id = b->ir->n_layers++;
    buf_putf(x,
             "<layer id=\"%d\" name=\"n%d\" type=\"TopK\" version=\"opset11\"><data %s mode=\"max\" sort=\"value\" "
             "index_element_type=\"i32\" stable=\"true\"/><input><port id=\"0\"/><port id=\"1\"/></input><output>",
             id, id, axis_text);
    output_put(x, 2, "FP16", &s);
    output_put(x, 3, "I32", &s);
    buf_puts(x, "</output></layer>\n");
    for (int i = 0; i < 2; i++)
        buf_putf(&b->edges, "<edge from-layer=\"%d\" from-port=\"%d\" to-layer=\"%d\" to-port=\"%d\"/>", in[i].layer,
                 in[i].port, id, i);
    struct port index = {id, 3};
    return layer_add(b, "Convert", "opset1", "destination_type=\"f16\"", &index, 1, "FP16", s);
}

static const char *const types[NPU_OP_COUNT] = {
    [NPU_OP_MATMUL] = "MatMul", [NPU_OP_ADD] = "Add",
    [NPU_OP_SUB] = "Subtract",  [NPU_OP_MUL] = "Multiply",
    [NPU_OP_DIV] = "Divide",    [NPU_OP_MAX] = "Maximum",
    [NPU_OP_SILU] = "Swish",    [NPU_OP_SIGMOID] = "Sigmoid",
    [NPU_OP_EXP] = "Exp",       [NPU_OP_SOFTMAX] = "SoftMax",
    [NPU_OP_SUM] = "ReduceSum", [NPU_OP_MEAN] = "ReduceMean",
    [NPU_OP_CONCAT] = "Concat", [NPU_OP_REDUCE_MAX] = "ReduceMax",
};

// flat: one case per operation
static struct port op_add(struct builder *b, const struct npu_op *op, const struct port *in) {
    const char *type = types[op->kind];
    struct shape s = shape_of(&b->l->tensors[op->out]);
    char axis_text[32];
    int64_t v[NPU_RANK_MAX];
    struct port all[5] = {in[0]};
    snprintf(axis_text, sizeof axis_text, "axis=\"%d\"", op->axis);
    switch (op->kind) {
    case NPU_OP_CONV: return conv_add(b, op);
    case NPU_OP_MATMUL:
        return layer_add(b, type, "opset1", "transpose_a=\"false\" transpose_b=\"false\"", in, 2, "FP16", s);
    case NPU_OP_SILU: return layer_add(b, type, "opset4", "", in, 1, "FP16", s);
    case NPU_OP_SIGMOID:
    case NPU_OP_EXP: return layer_add(b, type, "opset1", "", in, 1, "FP16", s);
    case NPU_OP_RSQRT:
        all[1] = const_add(b, "f16", "FP16", &b->halves[0], 2, (struct shape){0});
        return layer_add(b, "Power", "opset1", "auto_broadcast=\"numpy\"", all, 2, "FP16", s);
    case NPU_OP_SOFTMAX: return layer_add(b, type, "opset8", axis_text, in, 1, "FP16", s);
    case NPU_OP_CONCAT: return layer_add(b, type, "opset1", axis_text, in, op->n_in, "FP16", s);
    case NPU_OP_ARGMAX: return argmax_add(b, op, axis_text);
    case NPU_OP_SUM:
    case NPU_OP_MEAN:
    case NPU_OP_REDUCE_MAX:
        v[0] = op->axis;
        all[1] = index_add(b, v, 1);
        return layer_add(b, type, "opset1", "keep_dims=\"true\"", all, 2, "FP16", s);
    case NPU_OP_RESHAPE:
        all[1] = index_add(b, s.dims, s.rank);
        return layer_add(b, "Reshape", "opset1", "special_zero=\"false\"", all, 2, "FP16", s);
    case NPU_OP_TRANSPOSE: return transpose_add(b, in[0], op->perm, s);
    case NPU_OP_SLICE:
        for (int i = 0; i < 4; i++) {
            v[0] = i == 0 ? op->begin : i == 1 ? op->end : i == 2 ? 1 : op->axis;
            all[i + 1] = index_add(b, v, 1);
        }
        return layer_add(b, "Slice", "opset8", "", all, 5, "FP16", s);
    default: return layer_add(b, type, "opset1", "auto_broadcast=\"numpy\"", in, 2, "FP16", s);
    }
}

static void parameter_add(struct builder *b, int id) {
    struct shape s = shape_of(&b->l->tensors[id]);
    char data[128], *at = data;
    at += snprintf(at, 64, "element_type=\"f16\" shape=\"");
    for (int i = 0; i < s.rank; i++) at += snprintf(at, 16, "%s%d", i > 0 ? "," : "", (int)s.dims[i]);
    snprintf(at, 4, "\"");
    b->at[id] = layer_add(b, "Parameter", "opset1", data, NULL, 0, "FP16", s);
}

// One block for every index constant, and the range that covers it and the weights.
static enum tern_status constants_place(struct builder *b) {
    const struct npu_list *l = b->l;
    const uint8_t *lo = NULL, *hi = NULL;
    size_t n = (size_t)l->n_ops * INDICES_PER_OP + 2;
    b->index = arena_calloc(&b->ir->arena, n, sizeof *b->index);
    b->at = arena_calloc(&b->ir->arena, (size_t)l->n_tensors, sizeof *b->at);
    if (!b->index || !b->at) return err_set(b->err, TERN_NO_MEMORY, "no memory to write %s", l->name);
    b->one = b->index;
    b->index[0] = 1;
    b->halves = (uint16_t *)(void *)&b->index[1];
    b->halves[0] = f32_to_f16(-0.5f);
    b->n_indices = 2;
    range_cover(&lo, &hi, b->index, n * sizeof *b->index);
    for (int i = 0; i < l->n_tensors; i++) {
        const struct npu_tensor *t = &l->tensors[i];
        if (t->role != NPU_CONST) continue;
        size_t len = (size_t)npu_tensor_len(t);
        if (t->weight->kind == NPU_WEIGHT_F16) range_cover(&lo, &hi, t->weight->half, len * 2);
        if (t->weight->kind != NPU_WEIGHT_I8) continue;
        if (t->weight->nibbles)
            range_cover(&lo, &hi, t->weight->nibbles, (len + 1) / 2);
        else
            range_cover(&lo, &hi, t->weight->q, len);
        range_cover(&lo, &hi, t->weight->scale, (size_t)t->shape[0] * 2);
    }
    b->ir->base = lo;
    b->ir->span = (uint64_t)(hi - lo);
    return TERN_OK;
}

static enum tern_status text_write(struct builder *b) {
    const struct npu_list *l = b->l;
    struct buf *x = &b->ir->xml;
    TRY(constants_place(b));
    buf_putf(x, "<?xml version=\"1.0\"?>\n<net name=\"%s\" version=\"11\">\n<layers>\n", l->name);
    for (int i = 0; i < l->n_inputs; i++) parameter_add(b, l->inputs[i]);
    for (int i = 0; i < l->n_states; i++) parameter_add(b, l->states[i].old);
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        struct port *in = arena_alloc(&b->ir->arena, (size_t)op->n_in * sizeof *in);
        if (!in) return err_set(b->err, TERN_NO_MEMORY, "no memory to write %s", l->name);
        for (int k = 0; k < op->n_in; k++) {
            const struct npu_tensor *t = &l->tensors[op->in[k]];
            bool is_const = t->role == NPU_CONST && !(op->kind == NPU_OP_CONV && k == 1);
            in[k] = is_const ? weight_add(b, t, false) : b->at[op->in[k]];
        }
        b->at[op->out] = op_add(b, op, in);
    }
    for (int i = 0; i < l->n_outputs + l->n_states; i++) {
        int id = i < l->n_outputs ? l->outputs[i] : l->states[i - l->n_outputs].now;
        layer_add(b, "Result", "opset1", "", &b->at[id], 1, NULL, (struct shape){0});
    }
    buf_puts(x, "</layers>\n<edges>\n");
    if (!b->edges.failed) buf_put(x, b->edges.data, b->edges.len);
    buf_puts(x, "</edges>\n</net>\n");
    if (!x->failed && !b->edges.failed) return TERN_OK;
    return err_set(b->err, TERN_NO_MEMORY, "no memory to write %s", l->name);
}

enum tern_status openvino_ir_write(struct openvino_ir *ir, const struct npu_list *l, struct tern_err *err) {
    struct builder b = {.ir = ir, .l = l, .err = err};
    *ir = (struct openvino_ir){0};
    buf_init(&ir->xml, OPENVINO_XML_MAX);
    buf_init(&b.edges, OPENVINO_XML_MAX);
    arena_init(&ir->arena, 0);
    enum tern_status status = text_write(&b);
    buf_release(&b.edges);
    if (status != TERN_OK) openvino_ir_release(ir);
    return status;
}

void openvino_ir_release(struct openvino_ir *ir) {
    buf_release(&ir->xml);
    arena_release(&ir->arena);
}
