// The rules that every operation list keeps, and its dump. The limits are the strictest published for any engine or
// runtime (axis sizes before A16, arg-reductions, rows of 64 bytes), so that one list serves all of them.
#include "base/base.h"
#include "unit/npu/oplist.h"

#define BAD(...) err_set(err, TERN_UNSUPPORTED, __VA_ARGS__)
#define WIDTH_MIN 32 // fp16 values of one 64-byte row: a shorter last axis is padded to it on the engine

static enum tern_status name_check(const struct npu_list *l, int id, struct tern_err *err) {
    const char *name = l->tensors[id].name;
    for (const char *c = name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '.' || *c == '_'))
            return BAD("npu list %s: the name '%s' has a character outside [a-z0-9._]", l->name, name);
    if (!*name) return BAD("npu list %s: tensor %d has no name", l->name, id);
    return TERN_OK;
}

static enum tern_status names_check(const struct npu_list *l, struct tern_err *err) {
    for (int i = 0; i < l->n_tensors; i++) {
        TRY(name_check(l, i, err));
        if (l->tensors[i].role == NPU_INNER || l->tensors[i].role == NPU_CONST) continue;
        for (int j = 0; j < i; j++)
            if (l->tensors[j].role != NPU_INNER && !strcmp(l->tensors[i].name, l->tensors[j].name))
                return BAD("npu list %s: two tensors are called %s", l->name, l->tensors[i].name);
    }
    return TERN_OK;
}

static enum tern_status tensor_check(const struct npu_list *l, const struct npu_tensor *t, struct tern_err *err) {
    bool constant = t->role == NPU_CONST;
    for (int i = 0; i < t->rank; i++) {
        int max = constant || i == 1 ? NPU_CHANNELS_MAX : NPU_AXIS_MAX;
        if (t->shape[i] > max)
            return BAD("npu list %s: axis %d of %s has %d places; the engine has at most %d", l->name, i, t->name,
                       (int)t->shape[i], max);
    }
    bool io = !constant && t->role != NPU_INNER;
    if (io && t->shape[t->rank - 1] % WIDTH_MIN)
        return BAD("npu list %s: the last axis of %s has %d places, no multiple of %d", l->name, t->name,
                   (int)t->shape[t->rank - 1], WIDTH_MIN);
    if (constant && !t->weight) return BAD("npu list %s: constant %s has no values", l->name, t->name);
    return TERN_OK;
}

static enum tern_status op_check(const struct npu_list *l, int i, struct tern_err *err) {
    const struct npu_op *op = &l->ops[i];
    for (int j = 0; j < op->n_in; j++) {
        const struct npu_tensor *t = &l->tensors[op->in[j]];
        bool made = t->op == NPU_NONE ? t->role != NPU_INNER : t->op < i;
        if (!made)
            return BAD("npu list %s: op %d (%s) reads %s before it is made", l->name, i, npu_op_name(op->kind),
                       t->name);
        bool matrix = op->kind == NPU_OP_CONV && j == 1;
        if (t->role == NPU_CONST && t->weight->kind == NPU_WEIGHT_I8 && !matrix)
            return BAD("npu list %s: op %d (%s) reads the int8 constant %s", l->name, i, npu_op_name(op->kind),
                       t->name);
        if (matrix && t->role != NPU_CONST)
            return BAD("npu list %s: op %d (conv): its matrix %s is no constant", l->name, i, t->name);
    }
    if (l->tensors[op->out].op != i)
        return BAD("npu list %s: %s is made by op %d and by op %d", l->name, l->tensors[op->out].name, i,
                   l->tensors[op->out].op);
    if (op->kind == NPU_OP_ARGMAX && l->tensors[op->in[0]].shape[op->axis] > NPU_ARGMAX_MAX)
        return BAD("npu list %s: argmax over %d places; the engine has at most %d", l->name,
                   (int)l->tensors[op->in[0]].shape[op->axis], NPU_ARGMAX_MAX);
    return TERN_OK;
}

static enum tern_status states_check(const struct npu_list *l, struct tern_err *err) {
    for (int i = 0; i < l->n_states; i++) {
        const struct npu_state *s = &l->states[i];
        if (s->now == NPU_NONE) return BAD("npu list %s: state %s is never written", l->name, s->name);
        const struct npu_tensor *a = &l->tensors[s->old], *b = &l->tensors[s->now];
        if (a->rank != b->rank || memcmp(a->shape, b->shape, sizeof(a->shape)) != 0)
            return BAD("npu list %s: state %s changes its shape", l->name, s->name);
    }
    return TERN_OK;
}

enum tern_status npu_list_verify(const struct npu_list *l, struct tern_err *err) {
    if (l->n_outputs == 0) return BAD("npu list %s: nothing is given back", l->name);
    TRY(names_check(l, err));
    for (int i = 0; i < l->n_tensors; i++) TRY(tensor_check(l, &l->tensors[i], err));
    for (int i = 0; i < l->n_ops; i++) TRY(op_check(l, i, err));
    return states_check(l, err);
}

static void shape_put(struct buf *out, const struct npu_tensor *t) {
    buf_putc(out, '(');
    for (int i = 0; i < t->rank; i++) buf_putf(out, "%s%d", i > 0 ? ", " : "", (int)t->shape[i]);
    buf_putc(out, ')');
}

static void op_put(struct buf *out, const struct npu_list *l, const struct npu_op *op) {
    const struct npu_tensor *y = &l->tensors[op->out];
    buf_putf(out, "  %s ", y->name);
    shape_put(out, y);
    buf_putf(out, " = %s", npu_op_name(op->kind));
    for (int j = 0; j < op->n_in; j++) buf_putf(out, "%s %s", j > 0 ? "," : "", l->tensors[op->in[j]].name);
    if (op->axis != NPU_NONE) buf_putf(out, " axis %d", op->axis);
    if (op->kind == NPU_OP_SLICE) buf_putf(out, " [%d, %d)", (int)op->begin, (int)op->end);
    if (op->kind == NPU_OP_TRANSPOSE)
        for (int j = 0; j < y->rank; j++) buf_putf(out, "%s%d", j > 0 ? "," : " perm ", op->perm[j]);
    if (op->site[0]) buf_putf(out, "   # %s", op->site);
    buf_putc(out, '\n');
}

bool npu_list_dump(const struct npu_list *l, struct buf *out) {
    buf_putf(out, "%s: window %d, bucket %d, frames %d, head columns %d, %d ops\n", l->name, l->window, l->bucket,
             l->n_frames, l->n_pick, l->n_ops);
    for (int i = 0; i < l->n_inputs; i++) {
        buf_putf(out, "  input %s ", l->tensors[l->inputs[i]].name);
        shape_put(out, &l->tensors[l->inputs[i]]);
        buf_putc(out, '\n');
    }
    for (int i = 0; i < l->n_states; i++) {
        buf_putf(out, "  state %s ", l->states[i].name);
        shape_put(out, &l->tensors[l->states[i].old]);
        buf_putf(out, " becomes %s\n", l->states[i].now == NPU_NONE ? "?" : l->tensors[l->states[i].now].name);
    }
    for (int i = 0; i < l->n_ops; i++) op_put(out, l, &l->ops[i]);
    for (int i = 0; i < l->n_outputs; i++) buf_putf(out, "  output %s\n", l->tensors[l->outputs[i]].name);
    return !out->failed;
}
