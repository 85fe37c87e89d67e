// Cuts a list into parts that programs share.
//
// A session keeps 3 to 4 KB of objects for each node, so one for each program, of 3,500 nodes, took most of the memory
// (327 of 1,023 MiB for the 30 programs of a 350M model with 339 MiB of weights). But the programs of a model are
// nearly the same: layers of a kind are equal but for their weights, and buckets differ in attention alone. So on the
// CPU provider, where a call costs microseconds, a program is a chain of parts, cut where at most one value is alive
// and the operations' site changes (behind each residual), and parts with equal operations and shapes are one session
// that gets its weights as inputs, from the store's memory. Other providers get whole programs with constants, which
// is what engines compile.
#include "unit/npu/ort_int.h"

#define CUT_VALUES 1 // alive at a cut
#define KEY_MAX (64u << 20)

int ort_port_tensor(const struct npu_list *l, int port) {
    if (port < l->n_inputs) return l->inputs[port];
    port -= l->n_inputs;
    if (port < l->n_states) return l->states[port].old;
    port -= l->n_states;
    return port < l->n_outputs ? l->outputs[port] : l->states[port - l->n_outputs].now;
}

int ort_piece_rows(const struct npu_tensor *t) {
    int64_t n = ORT_PIECE / MAX(1, t->shape[1]);
    return (int)MIN((int64_t)t->shape[0], MAX(n, (int64_t)t->shape[0] / ORT_PIECES_MAX + 1));
}

int ort_io_shape(const struct ort_cuts *c, const struct ort_io *io, int *element, int64_t dims[NPU_RANK_MAX]) {
    const struct npu_tensor *t = &c->list->tensors[io->tensor];
    int rows = ort_piece_rows(t);
    static const int elements[] = {ORT_F16, ORT_F32, ORT_I8, ORT_F16, ORT_F16};
    *element = elements[io->kind];
    for (int i = 0; i < t->rank; i++) dims[i] = t->shape[i];
    if (io->kind == ORT_IO_SCALE) return 1; // of its rows
    if (io->kind == ORT_IO_WEIGHT && c->unscaled[io->tensor]) dims[0] = MIN(rows, t->shape[0] - io->index * rows);
    return t->rank;
}

struct cutter {
    struct ort_cuts *c;
    const struct npu_list *l;
    bool is_whole;
    int *at;             // [n_tensors] index + 1 of a tensor's first input in this cut
    int *port;           // [n_tensors] index + 1 of the port that a tensor is read from
    struct ort_io *list; // room for one cut's
    int n, cap;
    struct buf *key;
    struct tern_err *err;
};

static void put(struct cutter *x, int v) { buf_put(x->key, &v, sizeof v); }

static void shape_put(struct cutter *x, int id) {
    const struct npu_tensor *t = &x->l->tensors[id];
    put(x, t->rank);
    for (int i = 0; i < t->rank; i++) put(x, t->shape[i]);
}

static void io_add(struct cutter *x, enum ort_io_kind kind, int tensor, int index) {
    if (x->n == x->cap) TERN_BUG("ort: more inputs than were counted in %s", x->l->name);
    x->list[x->n++] = (struct ort_io){kind, tensor, index};
    put(x, (int)kind);
    shape_put(x, tensor);
}

static void weight_need(struct cutter *x, int id) {
    const struct npu_tensor *t = &x->l->tensors[id];
    bool whole = !x->c->unscaled[id];
    if (t->weight->kind == NPU_WEIGHT_F16) {
        io_add(x, ORT_IO_HALF, id, 0);
        return;
    }
    for (int row = 0, k = 0; row < (whole ? 1 : t->shape[0]); row += ort_piece_rows(t)) {
        io_add(x, ORT_IO_WEIGHT, id, k++);
        put(x, whole);
    }
    io_add(x, ORT_IO_SCALE, id, 0);
}

// Numbers are constants of the graph, by their value.
bool ort_is_number(const struct npu_tensor *t) {
    return t->role == NPU_CONST && t->weight->kind == NPU_WEIGHT_F16 && npu_tensor_len(t) == 1;
}

// An operand that is not made in this cut; numbered in the order of use, so that equal cuts count alike.
static void need(struct cutter *x, const struct ort_cut *cut, int id) {
    const struct npu_tensor *t = &x->l->tensors[id];
    if (t->op != NPU_NONE && t->op >= cut->begin && t->op < cut->end) {
        put(x, -1 - (t->op - cut->begin));
        return;
    }
    if (ort_is_number(t)) {
        put(x, 0);
        put(x, t->weight->half[0]);
        shape_put(x, id);
        return;
    }
    if (!x->at[id]) {
        x->at[id] = x->n + 1;
        if (t->role == NPU_CONST && !x->is_whole)
            weight_need(x, id);
        else if (x->port[id])
            io_add(x, ORT_IO_PORT, id, x->port[id] - 1);
        else if (t->role != NPU_CONST)
            io_add(x, ORT_IO_VALUE, id, 0);
    }
    put(x, x->at[id]);
}

static const struct ort_io *taken(struct cutter *x, int *n) {
    struct ort_io *out = arena_alloc(&x->c->arena, (size_t)MAX(x->n, 1) * sizeof *out);
    if (out) memcpy(out, x->list, (size_t)x->n * sizeof *out);
    *n = x->n;
    x->n = 0;
    return out;
}

static enum tern_status cut_describe(struct cutter *x, struct ort_cut *cut) {
    const struct npu_list *l = x->l;
    bool is_last = cut->end == l->n_ops;
    x->key = &cut->key;
    for (int i = cut->begin; i < cut->end; i++) {
        const struct npu_op *op = &l->ops[i];
        put(x, (int)op->kind);
        put(x, op->axis);
        put(x, op->begin);
        put(x, op->end);
        for (int k = 0; k < NPU_RANK_MAX; k++) put(x, op->perm[k]);
        put(x, op->n_in);
        for (int k = 0; k < op->n_in; k++) need(x, cut, op->in[k]);
        shape_put(x, op->out);
        put(x, x->c->leaves[op->out]);
    }
    for (int p = ort_ports_in(l); is_last && p < ort_ports(l); p++) // what nothing makes is given back by the last
        if (l->tensors[ort_port_tensor(l, p)].op == NPU_NONE) need(x, cut, ort_port_tensor(l, p));
    for (int k = 0; k < x->n; k++) x->at[x->list[k].tensor] = 0;
    for (int i = 0; x->is_whole && i < l->n_tensors; i++) x->at[i] = 0;
    cut->ins = taken(x, &cut->n_ins);
    for (int p = ort_ports_in(l); p < ort_ports(l); p++) {
        int id = ort_port_tensor(l, p), op = l->tensors[id].op;
        if (op == NPU_NONE ? !is_last : op < cut->begin || op >= cut->end) continue;
        io_add(x, ORT_IO_PORT, id, p);
        put(x, op == NPU_NONE ? 0 : op - cut->begin);
    }
    for (int i = cut->begin; i < cut->end; i++) {
        int id = l->ops[i].out;
        if (x->c->leaves[id] || x->c->last[id] < cut->end) continue;
        io_add(x, ORT_IO_VALUE, id, 0);
        put(x, i - cut->begin);
    }
    cut->outs = taken(x, &cut->n_outs);
    if (cut->ins && cut->outs && !cut->key.failed) return TERN_OK;
    return err_set(x->err, TERN_NO_MEMORY, "no memory to cut %s", l->name);
}

// One scale for all rows unpacks faster than one per row, so on the CPU provider weights stay whole numbers and the
// scale of its row meets each output (2-vCPU Sapphire Rapids Xeon, 64 columns of 8 matrices of 1024 x 4608: 29.5 ms
// against 31.4).
static void unscaled_find(struct cutter *x) {
    const struct npu_list *l = x->l;
    for (int i = 0; i < l->n_tensors && !x->is_whole; i++)
        x->c->unscaled[i] = l->tensors[i].role == NPU_CONST && l->tensors[i].weight->kind == NPU_WEIGHT_I8;
    for (int i = 0; i < l->n_ops; i++)
        for (int k = 0; k < l->ops[i].n_in; k++)
            if (l->ops[i].kind != NPU_OP_CONV || k != 1) x->c->unscaled[l->ops[i].in[k]] = false;
}

// Ends of the cuts, [n_ops] at most; how many.
static int ends_find(struct cutter *x, int *ends) {
    const struct npu_list *l = x->l;
    int alive = 0, n = 0, *last = x->c->last;
    for (int i = 0; i < l->n_ops; i++)
        for (int k = 0; k < l->ops[i].n_in; k++) last[l->ops[i].in[k]] = i;
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        alive += !x->c->leaves[op->out] && last[op->out] > i;
        for (int k = 0; k < op->n_in; k++) {
            bool seen = false;
            for (int j = 0; j < k; j++) seen = seen || op->in[j] == op->in[k];
            const struct npu_tensor *t = &l->tensors[op->in[k]];
            alive -= !seen && t->op != NPU_NONE && !x->c->leaves[op->in[k]] && last[op->in[k]] == i;
        }
        bool is_end =
            i + 1 == l->n_ops || (!x->is_whole && alive <= CUT_VALUES && strcmp(op->site, l->ops[i + 1].site) != 0);
        if (is_end) ends[n++] = i + 1;
    }
    return n;
}

static enum tern_status cuts_find(struct cutter *x, struct arena *scratch) {
    const struct npu_list *l = x->l;
    struct ort_cuts *c = x->c;
    size_t n = (size_t)l->n_tensors;
    int *ends = arena_alloc(scratch, ((size_t)l->n_ops + 1) * sizeof *ends);
    x->cap = ort_ports(l) + l->n_tensors * 2;
    for (int i = 0; i < l->n_tensors; i++)
        if (l->tensors[i].role == NPU_CONST) x->cap += ORT_PIECES_MAX + 1;
    x->at = arena_calloc(scratch, n, sizeof *x->at);
    x->port = arena_calloc(scratch, n, sizeof *x->port);
    x->list = arena_alloc(scratch, (size_t)x->cap * sizeof *x->list);
    c->unscaled = arena_calloc(&c->arena, n, sizeof(bool));
    c->leaves = arena_calloc(&c->arena, n, sizeof(bool));
    c->last = arena_calloc(&c->arena, n, sizeof(int));
    if (!ends || !x->at || !x->port || !x->list || !c->unscaled || !c->leaves || !c->last)
        return err_set(x->err, TERN_NO_MEMORY, "no memory to cut %s", l->name);
    for (int p = ort_ports(l) - 1; p >= 0; p--) x->port[ort_port_tensor(l, p)] = p + 1;
    for (int p = ort_ports_in(l); p < ort_ports(l); p++) c->leaves[ort_port_tensor(l, p)] = true;
    unscaled_find(x);
    c->n = ends_find(x, ends);
    c->all = arena_calloc(&c->arena, (size_t)c->n, sizeof *c->all);
    if (!c->all) return err_set(x->err, TERN_NO_MEMORY, "no memory to cut %s", l->name);
    for (int i = 0; i < c->n; i++) {
        c->all[i] = (struct ort_cut){.list = l, .begin = i > 0 ? ends[i - 1] : 0, .end = ends[i]};
        buf_init(&c->all[i].key, KEY_MAX);
    }
    for (int i = 0; i < c->n; i++) TRY(cut_describe(x, &c->all[i]));
    return TERN_OK;
}

enum tern_status ort_cuts_make(struct ort_cuts *c, const struct npu_list *l, bool is_whole, struct tern_err *err) {
    struct cutter x = {.c = c, .l = l, .is_whole = is_whole, .err = err};
    struct arena scratch;
    *c = (struct ort_cuts){.list = l};
    arena_init(&c->arena, 0);
    arena_init(&scratch, 0);
    enum tern_status status = cuts_find(&x, &scratch);
    arena_release(&scratch);
    if (status != TERN_OK) ort_cuts_release(c);
    return status;
}

void ort_cuts_release(struct ort_cuts *c) {
    for (int i = 0; c->all && i < c->n; i++) buf_release(&c->all[i].key);
    arena_release(&c->arena);
    *c = (struct ort_cuts){0};
}
