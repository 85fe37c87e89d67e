// The rules that every program keeps, checked against the program as it is and not as its builder meant it: lifetimes
// are computed anew from the ops, so a wrong plan cannot vouch for itself. Shapes and weights per op are in
// prog_verify_ops.c.
#include "base/base.h"
#include "prog/prog_int.h"

#define BAD(...) err_set(err, TERN_INVALID_ARGUMENT, __VA_ARGS__)

static enum tern_status check_values_of_op(const struct prog *p, int i, const int *first, struct tern_err *err) {
    const struct prog_op *op = &p->ops[i];
    int n_in, n_out, n_w;
    prog_op_counts(op, &n_in, &n_out, &n_w);
    bool adds = op->add || op->kind == PROG_OP_EXPERTS; // to the residual, in place
    if (op->n_w < 0 || op->n_w > PROG_OP_WEIGHTS)
        return BAD("%d weights; at most %d are possible", op->n_w, PROG_OP_WEIGHTS);
    for (int j = 0; j < (int)ARRAY_LEN(op->in); j++) {
        if (j >= n_in && op->in[j] != PROG_NONE) return BAD("input %d is set; it has %d", j, n_in);
        if (j < n_in && (op->in[j] < 0 || op->in[j] >= p->n_values))
            return BAD("input %d is value %d of %d", j, op->in[j], p->n_values);
        // A value's first op is the one that writes it, so an op that is first and reads it reads nothing.
        if (j < n_in && first[op->in[j]] >= i)
            return BAD("input %d (%s) is read before it is written", j, p->values[op->in[j]].name);
    }
    for (int j = 0; j < (int)ARRAY_LEN(op->out); j++) {
        if (j >= n_out && op->out[j] != PROG_NONE) return BAD("output %d is set; it has %d", j, n_out);
        if (j < n_out && (op->out[j] < 0 || op->out[j] >= p->n_values))
            return BAD("output %d is value %d of %d", j, op->out[j], p->n_values);
        for (int k = 0; k < n_in && j < n_out; k++)
            if (op->in[k] == op->out[j] && !(adds && j == 0 && k == 1))
                return BAD("output %d overwrites input %d (%s)", j, k, p->values[op->in[k]].name);
        for (int k = 0; k < j && j < n_out; k++)
            if (op->out[k] == op->out[j]) return BAD("outputs %d and %d are one value", k, j);
    }
    return TERN_OK;
}

static enum tern_status check_ops(const struct prog *p, const int *first, struct tern_err *err) {
    for (int i = 0; i < p->n_ops; i++) {
        const struct prog_op *op = &p->ops[i];
        bool known = (unsigned)op->kind < PROG_OP_COUNT;
        enum tern_status status =
            known ? check_values_of_op(p, i, first, err) : BAD("operation number %d", (int)op->kind);
        if (status == TERN_OK) status = prog_verify_op(p, i, err);
        if (status == TERN_OK) continue;
        err_prefix(err, "program %s, op %d (%s, layer %d)", prog_kind_name(p->spec.kind), i,
                   known ? prog_op_table[op->kind].name : "unknown", op->layer);
        return status;
    }
    return TERN_OK;
}

static enum tern_status check_value(const struct prog *p, int v, const int *first, const int *last,
                                    struct tern_err *err) {
    const struct prog_value *a = &p->values[v];
    const char *kind = prog_kind_name(p->spec.kind);
    uint64_t bytes = 0, end = 0;
    if (!prog_value_bytes(p, v, &bytes) || !u64_add(a->offset, bytes, &end))
        return BAD("program %s, value %d (%s): %d columns", kind, v, a->name, a->n_cols);
    if (first[v] == PROG_NONE) return BAD("program %s, value %d (%s): no op touches it", kind, v, a->name);
    if (a->first_op != first[v] || a->last_op != last[v])
        return BAD("program %s, value %d (%s): lifetime ops %d to %d, but ops %d to %d touch it", kind, v, a->name,
                   a->first_op, a->last_op, first[v], last[v]);
    if (a->offset % PROG_ALIGN)
        return BAD("program %s, value %d (%s): offset %llu is no multiple of %d", kind, v, a->name,
                   (unsigned long long)a->offset, PROG_ALIGN);
    if (end > p->work_bytes)
        return BAD("program %s, value %d (%s): ends at byte %llu of %llu", kind, v, a->name, (unsigned long long)end,
                   (unsigned long long)p->work_bytes);
    for (int w = 0; w < v; w++) {
        const struct prog_value *b = &p->values[w];
        uint64_t b_bytes = 0;
        if (first[v] > last[w] || first[w] > last[v]) continue;
        if (!prog_value_bytes(p, w, &b_bytes)) continue; // reported for w itself
        if (a->offset < b->offset + b_bytes && b->offset < end)
            return BAD("program %s, values %d (%s) and %d (%s) live at op %d in the same bytes", kind, w, b->name, v,
                       a->name, MAX(first[v], first[w]));
    }
    return TERN_OK;
}

// Facts that step_check relies on, recomputed.
static enum tern_status check_facts(const struct prog *p, struct tern_err *err) {
    const char *kind = prog_kind_name(p->spec.kind);
    bool attn = false, conv = false, embed = false, head = false;
    uint32_t ports = 0;
    for (int i = 0; i < p->n_ops; i++) {
        const struct prog_op *op = &p->ops[i];
        const uint32_t out = p->spec.outputs;
        attn = attn || op->kind == PROG_OP_KV_WRITE || op->kind == PROG_OP_ATTENTION;
        conv = conv || op->kind == PROG_OP_SHORT_CONV;
        embed = embed || op->kind == PROG_OP_EMBED;
        head = head || op->kind == PROG_OP_HEAD;
        if (op->kind == PROG_OP_PORT_IN || op->kind == PROG_OP_PORT_OUT) ports |= 1u << op->index;
        if (op->kind == PROG_OP_TAP) ports |= 1u << PORT_FEATURES;
        if (op->kind == PROG_OP_NORM_OUT) ports |= 1u << PORT_HIDDEN;
        if (op->kind == PROG_OP_HEAD)
            ports |= (out & PROG_OUT_LOGITS ? 1u << PORT_LOGITS : 0) | (out & PROG_OUT_ARGMAX ? 1u << PORT_ARGMAX : 0) |
                     (out & PROG_OUT_HIDDEN ? 1u << PORT_HIDDEN : 0);
        if (op->kind == PROG_OP_COMMIT) {
            attn = attn || prog_layer_count(p->model, LAYER_ATTENTION, p->spec.state_begin, p->spec.state_end) > 0;
            conv = conv || prog_layer_count(p->model, LAYER_CONV, p->spec.state_begin, p->spec.state_end) > 0;
        }
    }
    if (attn != p->has_attn || conv != p->has_conv || p->needs_state != (attn || conv))
        return BAD("program %s: says attention %d, convolution %d, state %d; its ops say %d, %d, %d", kind, p->has_attn,
                   p->has_conv, p->needs_state, attn, conv, attn || conv);
    if (embed != p->reads_tokens || head != p->has_head)
        return BAD("program %s: says tokens %d, head %d; its ops say %d, %d", kind, p->reads_tokens, p->has_head, embed,
                   head);
    if (ports != p->ports) return BAD("program %s: says ports 0x%x, its ops say 0x%x", kind, p->ports, ports);
    if (head && (p->n_out_max < 1 || p->n_out_max > p->spec.window))
        return BAD("program %s: %d rows with output in a window of %d", kind, p->n_out_max, p->spec.window);
    return TERN_OK;
}

enum tern_status prog_verify(const struct prog *p, struct tern_err *err) {
    const char *kind = prog_kind_name(p->spec.kind);
    if (p->n_ops < 1) return BAD("program %s: no ops", kind);
    if (p->layer_begin < 0 || p->layer_end > p->hyper->n_layers || p->layer_begin > p->layer_end)
        return BAD("program %s: covers layers %d to %d of %d", kind, p->layer_begin, p->layer_end, p->hyper->n_layers);
    struct arena scratch;
    arena_init(&scratch, 0);
    int *first = arena_calloc(&scratch, (size_t)p->n_values + 1, sizeof(*first));
    int *last = arena_calloc(&scratch, (size_t)p->n_values + 1, sizeof(*last));
    enum tern_status status = TERN_OK;
    if (!first || !last) {
        status = err_set(err, TERN_NO_MEMORY, "program %s: no memory to verify its %d values", kind, p->n_values);
        goto done;
    }
    prog_lifetimes(p, first, last);
    TRY_GOTO(check_ops(p, first, err), done);
    for (int v = 0; v < p->n_values; v++) TRY_GOTO(check_value(p, v, first, last, err), done);
    TRY_GOTO(check_facts(p, err), done);
done:
    arena_release(&scratch);
    return status;
}
