// Programs as text, for `tern explain --program` and for the eyes of whoever debugs a builder: a line about the whole,
// one line per op with its values and weights, one about memory.
#include "base/base.h"
#include "prog/prog_int.h"

static void put_values(const struct prog *p, const int *v, int n, struct buf *out) {
    for (int i = 0; i < n; i++)
        if (v[i] >= 0 && v[i] < p->n_values)
            buf_putf(out, "%s%s#%d[%d]", i > 0 ? ", " : "", p->values[v[i]].name, v[i], p->values[v[i]].n_cols);
}

static void put_weight(const struct tensor *w, struct buf *out) {
    if (!w) {
        buf_puts(out, " -");
        return;
    }
    buf_putf(out, " %.*s %s %lldx%lld", (int)w->name.len, w->name.data, format_table[w->format].name,
             (long long)w->ne[1], (long long)w->ne[0]);
}

static void put_op(const struct prog *p, int i, struct buf *out) {
    const struct prog_op *op = &p->ops[i];
    int n_in, n_out, n_w;
    prog_op_counts(op, &n_in, &n_out, &n_w);
    buf_putf(out, "%4d ", i);
    if (op->layer >= 0)
        buf_putf(out, "L%-3d ", op->layer);
    else
        buf_puts(out, "     ");
    buf_putf(out, "%s%s%s", prog_op_table[op->kind].name, op->swiglu ? "+swiglu" : "", op->add ? "+add" : "");
    if (op->kind == PROG_OP_PORT_IN || op->kind == PROG_OP_PORT_OUT) buf_putf(out, " %s", prog_port_name(op->index));
    if (op->kind == PROG_OP_TAP) buf_putf(out, " feature %d", op->index);
    if (op->state_index >= 0) buf_putf(out, " state %d", op->state_index);
    buf_puts(out, "  ");
    put_values(p, op->in, n_in, out);
    if (n_out > 0) buf_puts(out, " -> ");
    put_values(p, op->out, n_out, out);
    if (op->n_w > 0) buf_puts(out, "  |");
    for (int j = 0; j < op->n_w; j++) put_weight(op->w[j], out);
    buf_putc(out, '\n');
}

bool prog_dump(const struct prog *p, struct buf *out) {
    char text[24];
    static const char *const outputs[] = {"logits", "argmax", "features", "hidden", "rows"};
    buf_putf(out, "program %s of %s: layers %d-%d, window %d, class %s, outputs", prog_kind_name(p->spec.kind),
             p->model->name, p->layer_begin, p->layer_end, p->spec.window, prog_class_name(p->spec.numerics));
    for (size_t i = 0; i < ARRAY_LEN(outputs); i++)
        if (p->spec.outputs & (1u << i)) buf_putf(out, " %s", outputs[i]);
    if (!p->spec.outputs) buf_puts(out, " none");
    buf_putc(out, '\n');
    for (int i = 0; i < p->n_ops; i++) put_op(p, i, out);
    uint64_t sum = 0;
    for (int v = 0; v < p->n_values; v++) {
        uint64_t bytes = 0;
        if (prog_value_bytes(p, v, &bytes)) sum += bytes;
    }
    buf_putf(out, "work memory %s", bytes_format(p->work_bytes, text));
    return buf_putf(out, " for %d values of %s together\n", p->n_values, bytes_format(sum, text));
}
