// From a program to what a step runs: ops with resolved pointers, and every byte of memory a step will need.
//
// One block of pages holds the values at the program's own offsets, the program's lists, the shared activations, the
// convolution's u rows and each member's private buffers. Its size follows from the program and the weights' formats
// alone, so that it is told exactly before any weight is there (cpu_program_estimate). A norm whose only reader is the
// product behind it becomes part of that product, so that a row goes from the residual to int8 while it is in the
// cache.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"

// Hands out aligned pieces of the block in two passes: first it counts and gives NULL, then it gives addresses.
struct carver {
    uint8_t *base; // NULL: counting
    size_t used;
    bool overflow;
};

static void *carve(struct carver *c, size_t n, size_t size) {
    size_t bytes;
    if (!size_mul(n, size, &bytes) || !size_align(bytes, CPU_ALIGN, &bytes)) c->overflow = true;
    if (c->overflow) return NULL;
    void *p = c->base ? c->base + c->used : NULL;
    if (!size_add(c->used, bytes, &c->used)) c->overflow = true;
    return p;
}

// Largest needs over all ops.
struct sizes {
    int n_in;                            // columns of an input
    int n_float, n_groups, n_whole;      // padded values of activations for a row of the window, by form
    int act_rows;                        // rows of activations for a row of the window
    int n_expert, n_pairs, n_expert_ops; // n_pairs: by row of the window
    int n_conv;                          // n_embd when there is a convolution
    bool has_attn;
};

static uint32_t form_of(enum cpu_pack pack) {
    if (!cpu_pack_is_int8(pack)) return ACT_FLOAT;
    return pack == CPU_PACK_I8C ? ACT_WHOLE : ACT_GROUPS;
}

static enum tern_status no_weight(const struct tensor *t, const char *what, struct tern_err *err) {
    return err_set(err, TERN_UNSUPPORTED, "the imported weights hold no %s '%.*s'; this program cannot run on them",
                   what, t ? (int)t->name.len : 1, t ? t->name.data : "?");
}

static enum tern_status op_matrix(const struct unit_weights *w, struct cpu_op *c, const struct tensor *t,
                                  struct tern_err *err) {
    const struct cpu_weight *e = t ? cpu_weight_find(w, t) : NULL;
    if (!e || e->matrix.n_tiles == 0) return no_weight(t, "matrix", err);
    c->m[c->n_m++] = &e->matrix;
    c->forms |= form_of(e->matrix.pack);
    return TERN_OK;
}

static enum tern_status op_vector(const struct unit_weights *w, const struct tensor *t, const float **out,
                                  struct tern_err *err) {
    const struct cpu_weight *e = t ? cpu_weight_find(w, t) : NULL;
    if (!e || !e->vector) return no_weight(t, "vector", err);
    *out = e->vector;
    return TERN_OK;
}

static enum tern_status op_experts(const struct unit_weights *w, const struct prog *p, struct cpu_op *c,
                                   struct tern_err *err) {
    for (int i = 0; i < p->hyper->n_expert; i++) {
        const struct model_expert *e = &p->model->layers[c->op->layer].experts[i];
        const struct tensor *list[] = {e->gate, e->up, e->down};
        for (int j = 0; j < 3; j++) {
            const struct cpu_weight *found = cpu_weight_find(w, list[j]);
            if (!found || found->matrix.n_tiles == 0) return no_weight(list[j], "matrix", err);
            c->experts[i][j] = &found->matrix;
            *(j < 2 ? &c->forms : &c->forms_down) |= form_of(found->matrix.pack);
        }
    }
    return TERN_OK;
}

static enum tern_status op_weights(const struct unit_weights *w, struct cpu_op *c, struct tern_err *err) {
    const struct prog_op *op = c->op;
    switch (op->kind) {
    case PROG_OP_EMBED:
        c->table = op->w[0];
        return tensor_has_data(c->table) ? TERN_OK : no_weight(c->table, "embedding", err);
    case PROG_OP_RMSNORM:
    case PROG_OP_NORM_OUT: return op_vector(w, op->w[0], &c->norm, err);
    case PROG_OP_LINEAR:
        for (int i = 0; i < op->n_w; i++) TRY(op_matrix(w, c, op->w[i], err));
        return TERN_OK;
    case PROG_OP_QK_NORM_ROPE:
    case PROG_OP_K_NORM_ROPE:
        for (int i = 0; i < op->n_w; i++)
            if (op->w[i]) TRY(op_vector(w, op->w[i], &c->v[i], err));
        return TERN_OK;
    case PROG_OP_SHORT_CONV: return op_vector(w, op->w[0], &c->v[0], err);
    case PROG_OP_ROUTE: return op->w[0] ? op_vector(w, op->w[0], &c->v[0], err) : TERN_OK;
    case PROG_OP_HEAD: TRY(op_vector(w, op->w[0], &c->norm, err)); return op_matrix(w, c, op->w[1], err);
    default: return TERN_OK;
    }
}

// A norm may move into the product behind it when nothing else reads its result and its input lives on, so that no
// output of the product can lie on it.
static bool norm_fuses(const struct prog *p, int i) {
    const struct prog_op *norm = &p->ops[i], *next = i + 1 < p->n_ops ? &p->ops[i + 1] : NULL;
    if (norm->kind != PROG_OP_RMSNORM || norm->add || !next || next->kind != PROG_OP_LINEAR) return false;
    const struct prog_value *x = &p->values[norm->in[0]], *n = &p->values[norm->out[0]];
    return !next->add && next->in[0] == norm->out[0] && n->last_op == i + 1 && x->last_op > i + 1;
}

// Forms of the input that the matrices of an op read.
static uint32_t forms_of(const struct prog *p, const struct prog_op *op) {
    uint32_t forms = 0;
    int begin = op->kind == PROG_OP_HEAD ? 1 : 0, end = op->kind == PROG_OP_HEAD ? 2 : op->n_w;
    if (op->kind != PROG_OP_HEAD && op->kind != PROG_OP_LINEAR) return 0;
    for (int i = begin; i < end; i++)
        if (op->w[i]) forms |= form_of(cpu_pack_for(op->w[i]->format, p->spec.numerics));
    return forms;
}

// n values in each of so many rows for a row of the window.
static void sizes_act(struct sizes *z, uint32_t forms, int n, int rows) {
    int values = int_round_up(n, 64) * rows;
    z->act_rows = MAX(z->act_rows, rows);
    if (forms & ACT_FLOAT) z->n_float = MAX(z->n_float, values);
    if (forms & ACT_GROUPS) z->n_groups = MAX(z->n_groups, values);
    if (forms & ACT_WHOLE) z->n_whole = MAX(z->n_whole, values);
}

static void sizes_experts(struct sizes *z, const struct prog *p, const struct prog_op *op) {
    const struct model_hyper *h = p->hyper;
    const struct model_expert *e = p->model->layers[op->layer].experts;
    uint32_t in = 0, down = 0;
    for (int i = 0; i < h->n_expert; i++) {
        in |= form_of(cpu_pack_for(e[i].gate->format, p->spec.numerics));
        in |= form_of(cpu_pack_for(e[i].up->format, p->spec.numerics));
        down |= form_of(cpu_pack_for(e[i].down->format, p->spec.numerics));
    }
    sizes_act(z, in, h->n_embd, h->n_expert_used);
    sizes_act(z, down, h->n_ff_expert, h->n_expert_used);
    z->n_expert = h->n_expert;
    z->n_pairs = h->n_expert_used;
    z->n_expert_ops++;
}

static struct sizes sizes_of(const struct prog *p) {
    struct sizes z = {0};
    for (int i = 0; i < p->n_ops; i++) {
        const struct prog_op *op = &p->ops[i];
        if (norm_fuses(p, i)) continue; // what it reads is as wide as what the product reads
        int n_in = op->in[0] >= 0 ? p->values[op->in[0]].n_cols : 0;
        z.n_in = MAX(z.n_in, n_in);
        sizes_act(&z, forms_of(p, op), n_in, 1);
        if (op->kind == PROG_OP_EXPERTS) sizes_experts(&z, p, op);
        if (op->kind == PROG_OP_SHORT_CONV) z.n_conv = p->values[op->out[0]].n_cols;
        if (op->kind == PROG_OP_ATTENTION) z.has_attn = true;
    }
    return z;
}

static float *value_at(const struct unit_program *c, int value) {
    return (float *)(void *)(c->work + c->prog->values[value].offset);
}

static enum tern_status ops_make(struct unit_program *c, struct tern_err *err) {
    const struct prog *p = c->prog;
    const float *norm = NULL;
    const struct cpu_matrix *(*experts)[3] = c->experts;
    int norm_in = -1;
    for (int i = 0; i < p->n_ops; i++) {
        const struct prog_op *op = &p->ops[i];
        if (norm_fuses(p, i)) {
            TRY(op_vector(c->weights, op->w[0], &norm, err));
            norm_in = op->in[0];
            continue;
        }
        struct cpu_op *o = &c->ops[c->n_ops++];
        *o = (struct cpu_op){.kind = op->kind, .op = op, .number = i, .norm = norm};
        TRY(op_weights(c->weights, o, err));
        if (op->kind == PROG_OP_EXPERTS) {
            o->experts = experts;
            experts += p->hyper->n_expert;
            TRY(op_experts(c->weights, p, o, err));
        }
        for (int j = 0; j < PROG_OP_INPUTS; j++) {
            int v = j == 0 && norm ? norm_in : op->in[j];
            if (v < 0) continue;
            o->in[j] = value_at(c, v);
            o->in_cols[j] = p->values[v].n_cols;
        }
        for (int j = 0; j < PROG_OP_WEIGHTS; j++) {
            if (op->out[j] < 0) continue;
            o->out[j] = value_at(c, op->out[j]);
            o->out_cols[j] = p->values[op->out[j]].n_cols;
        }
        o->n_in = o->in_cols[0];
        norm = NULL;
    }
    return TERN_OK;
}

// Room for `values` padded values in each form, in at most `rows` rows.
static void carve_act(struct carver *c, struct cpu_act *a, size_t n_float, size_t n_groups, size_t n_whole,
                      size_t rows) {
    a->x = carve(c, n_float, sizeof(float));
    a->q = carve(c, n_groups, 1);
    a->scale = carve(c, n_groups / OP_GROUP, sizeof(float));
    a->sum = carve(c, n_groups / OP_GROUP, 2 * sizeof(int32_t));
    a->q_whole = carve(c, n_whole, 1);
    a->scale_whole = carve(c, n_whole > 0 ? rows : 0, sizeof(float));
    a->sum_whole = carve(c, n_whole > 0 ? rows : 0, 2 * sizeof(int32_t));
}

static void carve_member(const struct prog *g, struct cpu_member *m, const struct sizes *z, struct carver *c) {
    size_t window = (size_t)g->spec.window;
    size_t half = op_kv_half_bytes(g->spec.kv_type, g->hyper->head_dim);
    carve_act(c, &m->act, z->n_float > 0 ? ACT_PRIVATE_VALUES : 0, z->n_groups > 0 ? ACT_PRIVATE_VALUES : 0,
              z->n_whole > 0 ? ACT_PRIVATE_VALUES : 0, ACT_PRIVATE_VALUES / 64);
    if (z->n_pairs > 0) {
        size_t pairs = window * (size_t)z->n_pairs;
        m->pairs.begin = carve(c, (size_t)z->n_expert + 1, sizeof *m->pairs.begin);
        m->pairs.next = carve(c, (size_t)z->n_expert, sizeof *m->pairs.next);
        m->pairs.row = carve(c, pairs, sizeof *m->pairs.row);
        m->pairs.weight = carve(c, pairs, sizeof *m->pairs.weight);
        m->pairs.place = carve(c, pairs, sizeof *m->pairs.place);
    }
    m->row = carve(c, (size_t)int_round_up(MAX(z->n_in, 1), 64), sizeof(float));
    for (int j = 0; j < 2; j++) m->temp[j] = carve(c, STRIP_FLOATS, sizeof(float));
    m->best = carve(c, (size_t)g->n_out_max, sizeof *m->best);
    if (!z->has_attn) return;
    m->split = carve(c, ATTN_PAIRS, sizeof *m->split);
    m->total = carve(c, ATTN_PAIRS, sizeof *m->total);
    m->q = carve(c, ATTN_PAIRS * (size_t)g->hyper->head_dim, sizeof(float));
    m->tail = carve(c, (window + 2 * OP_BLOCK) / OP_BLOCK, 2 * half);
    m->shifted = carve(c, 2, half);
    m->tail_rows = carve(c, window, sizeof *m->tail_rows);
}

static void carve_all(struct unit_program *p, const struct sizes *z, struct carver *c) {
    const struct prog *g = p->prog;
    size_t window = (size_t)g->spec.window, n_threads = (size_t)p->unit->n_threads;
    struct cpu_member unplaced; // while counting there are no members yet
    carve(c, (size_t)g->work_bytes, 1);
    p->ops = carve(c, (size_t)g->n_ops, sizeof *p->ops);
    p->members = carve(c, n_threads, sizeof *p->members);
    p->attn.chunks = carve(c, window, sizeof *p->attn.chunks);
    p->attn.n_visible = carve(c, window, sizeof *p->attn.n_visible);
    p->rope_freqs = carve(c, (size_t)g->hyper->head_dim, sizeof *p->rope_freqs); // global, local
    p->counters = carve(c, (size_t)g->n_ops, sizeof *p->counters);
    p->experts = carve(c, (size_t)z->n_expert_ops * (size_t)z->n_expert, sizeof *p->experts);
    carve_act(c, &p->act, window * (size_t)z->n_float, window * (size_t)z->n_groups, window * (size_t)z->n_whole,
              window * (size_t)z->act_rows);
    p->conv_u = carve(c, window * (size_t)z->n_conv, sizeof(float));
    for (size_t i = 0; i < n_threads; i++) carve_member(g, p->members ? &p->members[i] : &unplaced, z, c);
    if (!z->has_attn) return;
    p->attn.partials = carve(c, ATTN_PARTIALS, sizeof *p->attn.partials);
    p->attn.totals = carve(c, ATTN_SPLIT_PAIRS, sizeof *p->attn.totals);
}

bool cpu_program_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes) {
    struct unit_program counted = {.unit = (struct unit *)(uintptr_t)u, .prog = p};
    struct sizes z = sizes_of(p);
    struct carver c = {0};
    carve_all(&counted, &z, &c);
    *bytes = MAX(c.used, 1);
    return !c.overflow;
}

static enum tern_status memory_make(struct unit_program *p, struct tern_err *err) {
    uint64_t bytes;
    char text[24];
    if (!cpu_program_estimate(p->unit, p->prog, &bytes))
        return err_set(err, TERN_LIMIT, "program: its work memory does not fit the address space");
    p->work_bytes = (size_t)bytes;
    p->work = mem_map(p->work_bytes); // zeroed
    if (!p->work) return err_set(err, TERN_NO_MEMORY, "program: no memory to work in (%s)", bytes_format(bytes, text));
    struct sizes z = sizes_of(p->prog);
    struct carver c = {.base = p->work};
    carve_all(p, &z, &c);
    p->n_counters = p->prog->n_ops;
    return TERN_OK;
}

static enum tern_status check_fit(const struct prog *p, const struct unit_weights *w, struct tern_err *err) {
    if (p->model != w->model)
        return err_set(err, TERN_MISMATCH, "the program is of model %s, the weights of model %s", p->model->name,
                       w->model->name);
    if (p->spec.numerics != w->numerics)
        return err_set(err, TERN_MISMATCH, "the program and the weights are of different numerics classes");
    return TERN_OK;
}

enum tern_status cpu_program_compile(struct unit *u, struct unit_program **out, const struct prog *p,
                                     struct unit_weights *w, struct tern_err *err) {
    TRY(check_fit(p, w, err));
    struct unit_program *c = mem_calloc(1, sizeof *c);
    if (!c) return err_set(err, TERN_NO_MEMORY, "program: no memory");
    c->unit = u;
    c->prog = p;
    c->weights = w;
    u->host.n_alive++;
    enum tern_status status;
    TRY_GOTO(memory_make(c, err), fail);
    TRY_GOTO(ops_make(c, err), fail);
    const struct model_hyper *h = p->hyper;
    op_rope_freqs(h->rope_base, h->head_dim, h->rope_factors, c->rope_freqs);
    if (h->rope_base_local > 0) op_rope_freqs(h->rope_base_local, h->head_dim, NULL, c->rope_freqs + h->head_dim / 2);
    *out = c;
    return TERN_OK;
fail:
    cpu_program_free(u, c);
    return status;
}

void cpu_program_free(struct unit *u, struct unit_program *p) {
    if (!p) return;
    mem_unmap(p->work, p->work_bytes);
    mem_free(p);
    u->host.n_alive--;
}
