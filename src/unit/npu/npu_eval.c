// Evaluators: memory plan, run, observation.
//
// A tensor lies where its lifetime ends first-fit in one piece of scratch. Reshapes, and slices of the outermost axis
// that is not 1, are views of their source. Inputs and outputs live for the whole run, so the host may fill and read
// them around it in any order.
#include "base/base.h"
#include <math.h>
#include "unit/npu/npu_eval_int.h"

#define ALIGN_FLOATS 16 // one cache line
// Values of an operation that one member does alone, and what a function counts for each.
#define SOLO_WORK 32768
#define SOLO_FUNCTION 8

static bool slice_is_view(const struct npu_list *l, const struct npu_op *op) {
    const struct npu_tensor *t = &l->tensors[op->in[0]];
    for (int i = 0; i < op->axis; i++)
        if (t->shape[i] != 1) return false;
    return true;
}

static int64_t inner_len(const struct npu_tensor *t, int axis) {
    int64_t n = 1;
    for (int i = axis + 1; i < t->rank; i++) n *= t->shape[i];
    return n;
}

// A rule that changes values of a width slice makes a copy necessary.
static bool slice_gains(const struct npu_eval *e, const struct npu_op *op) {
    return e->rules->slice_gain && op->kind == NPU_OP_SLICE && op->begin > 0 &&
           op->axis == e->list->tensors[op->in[0]].rank - 1;
}

static void views_find(struct npu_eval *e) {
    const struct npu_list *l = e->list;
    for (int i = 0; i < l->n_tensors; i++) e->place[i] = (struct npu_place){.root = i, .at = -1};
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        bool slice = op->kind == NPU_OP_SLICE && slice_is_view(l, op) && !slice_gains(e, op);
        if (!slice && op->kind != NPU_OP_RESHAPE) continue;
        int64_t skip = slice ? op->begin * inner_len(&l->tensors[op->in[0]], op->axis) : 0;
        e->is_view[i] = true;
        e->place[op->out].root = e->place[op->in[0]].root;
        e->place[op->out].offset = e->place[op->in[0]].offset + skip;
    }
}

static bool input_by_column(enum npu_role role) {
    return role == NPU_IN_ROWS || role == NPU_IN_COS || role == NPU_IN_SIN || role == NPU_IN_MASK ||
           role == NPU_IN_TAP || role == NPU_IN_PICK;
}

// Where column s of a result depends on column s of what lies behind the last axis alone, or on all of another operand.
static bool op_by_column(const struct npu_eval *e, const struct npu_op *op) {
    const struct npu_tensor *x = &e->list->tensors[op->in[0]], *y = &e->list->tensors[op->out];
    int last = x->rank - 1;
    bool all = true, any = false, of_x = e->by_column[op->in[0]];
    for (int i = 0; i < op->n_in; i++) {
        all = all && e->by_column[op->in[i]];
        any = any || e->by_column[op->in[i]];
    }
    switch (op->kind) {
    case NPU_OP_MATMUL: return e->by_column[op->in[1]];
    case NPU_OP_ADD:
    case NPU_OP_SUB:
    case NPU_OP_MUL:
    case NPU_OP_DIV:
    case NPU_OP_MAX: return any;
    case NPU_OP_SOFTMAX:
    case NPU_OP_SUM:
    case NPU_OP_MEAN:
    case NPU_OP_REDUCE_MAX:
    case NPU_OP_ARGMAX:
    case NPU_OP_SLICE: return of_x && op->axis != last;
    case NPU_OP_CONCAT: return all && op->axis != last;
    case NPU_OP_RESHAPE: return of_x && x->shape[last] == y->shape[y->rank - 1];
    case NPU_OP_TRANSPOSE: return of_x && op->perm[last] == last;
    default: return of_x;
    }
}

static void columns_find(struct npu_eval *e) {
    const struct npu_list *l = e->list;
    for (int i = 0; i < l->n_inputs; i++) e->by_column[l->inputs[i]] = input_by_column(l->tensors[l->inputs[i]].role);
    for (int i = 0; i < l->n_ops; i++) e->by_column[l->ops[i].out] = op_by_column(e, &l->ops[i]);
}

// Inputs that concatenations alone read: those widen them on the way.
static void halves_find(struct npu_eval *e) {
    const struct npu_list *l = e->list;
    for (int i = 0; i < l->n_inputs; i++) {
        enum npu_role role = l->tensors[l->inputs[i]].role;
        e->is_half[l->inputs[i]] = role == NPU_IN_K || role == NPU_IN_V;
    }
    for (int i = 0; i < l->n_ops; i++)
        for (int j = 0; j < l->ops[i].n_in && l->ops[i].kind != NPU_OP_CONCAT; j++) e->is_half[l->ops[i].in[j]] = false;
    for (int i = 0; i < l->n_outputs; i++) e->is_half[e->place[l->outputs[i]].root] = false;
}

// What costs less than a barrier is done by one member, and members meet only where shared work begins or ends.
static void solos_find(struct npu_eval *e) {
    const struct npu_list *l = e->list;
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        int64_t work = npu_tensor_len(&l->tensors[op->out]);
        for (int j = 0; j < op->n_in; j++) work = MAX(work, npu_tensor_len(&l->tensors[op->in[j]]));
        if (op->kind == NPU_OP_MATMUL) work = npu_tensor_len(&l->tensors[op->out]) * l->tensors[op->in[0]].shape[2];
        if (op->kind == NPU_OP_SOFTMAX || op->kind == NPU_OP_SILU || op->kind == NPU_OP_EXP) work *= SOLO_FUNCTION;
        e->is_solo[i] = op->kind != NPU_OP_CONV && work <= SOLO_WORK;
    }
}

struct span {
    int64_t begin, end; // floats
    int last;           // op after which it is free
};
struct plan {
    struct span *spans; // rising
    int n;
    int64_t high;
};

static void span_put(struct plan *p, int64_t len, int last, int64_t *at) {
    int64_t from = 0;
    int i = 0;
    for (; i < p->n; i++) { // the first gap that holds it
        if (p->spans[i].begin - from >= len) break;
        from = MAX(from, p->spans[i].end);
    }
    while (i < p->n && p->spans[i].begin < from) i++;
    memmove(&p->spans[i + 1], &p->spans[i], (size_t)(p->n - i) * sizeof(*p->spans));
    p->spans[i] = (struct span){.begin = from, .end = from + len, .last = last};
    p->n++;
    p->high = MAX(p->high, from + len);
    *at = from;
}

static void spans_expire(struct plan *p, int op) {
    int n = 0;
    for (int i = 0; i < p->n; i++)
        if (p->spans[i].last >= op) p->spans[n++] = p->spans[i];
    p->n = n;
}

static int64_t round_up(int64_t n) { return (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS; }

// An operand that a result may lie over: made by an operation, read for the last time, element by element.
static int operand_over(const struct npu_eval *e, const struct npu_op *op, const int *last, int i) {
    const struct npu_list *l = e->list;
    const struct npu_tensor *y = &l->tensors[op->out];
    bool each = (op->kind >= NPU_OP_ADD && op->kind <= NPU_OP_MAX) ||
                (op->kind >= NPU_OP_SILU && op->kind <= NPU_OP_RSQRT) || op->kind == NPU_OP_SOFTMAX;
    for (int j = 0; each && j < op->n_in; j++) {
        int x = op->in[j];
        const struct npu_tensor *t = &l->tensors[x];
        bool same = t->rank == y->rank && memcmp(t->shape, y->shape, sizeof t->shape) == 0;
        if (!same || e->place[x].root != x || t->op == NPU_NONE || last[x] != i) continue;
        int other = op->n_in > 1 ? op->in[1 - j] : x; // which must not be a part of it
        if (other == x || e->place[other].root != x) return x;
    }
    return NPU_NONE;
}

static enum tern_status memory_plan(struct npu_eval *e, struct tern_err *err) {
    const struct npu_list *l = e->list;
    int *last = mem_calloc((size_t)l->n_tensors, sizeof(int));
    struct plan p = {.spans = mem_calloc((size_t)l->n_tensors + 1, sizeof(struct span))};
    if (!last || !p.spans) {
        mem_free(last);
        mem_free(p.spans);
        return err_set(err, TERN_NO_MEMORY, "npu evaluator %s: no memory", l->name);
    }
    for (int i = 0; i < l->n_ops; i++) {
        last[e->place[l->ops[i].out].root] = MAX(last[e->place[l->ops[i].out].root], i);
        for (int j = 0; j < l->ops[i].n_in; j++) last[e->place[l->ops[i].in[j]].root] = i;
    }
    for (int i = 0; i < l->n_inputs; i++) last[l->inputs[i]] = INT32_MAX;
    for (int i = 0; i < l->n_outputs; i++) last[e->place[l->outputs[i]].root] = INT32_MAX;
    for (int i = 0; i < l->n_states; i++) last[e->place[l->states[i].now].root] = INT32_MAX;
    for (int i = 0; i < l->n_inputs; i++) {
        int64_t len = npu_tensor_len(&l->tensors[l->inputs[i]]);
        if (e->is_half[l->inputs[i]]) len = (len + 1) / 2;
        span_put(&p, round_up(len), INT32_MAX, &e->place[l->inputs[i]].at);
    }
    for (int i = 0; i < l->n_ops; i++) {
        int out = l->ops[i].out;
        spans_expire(&p, i);
        if (e->is_view[i]) continue;
        int over = operand_over(e, &l->ops[i], last, i);
        if (over != NPU_NONE) {
            int64_t at = e->place[out].at = e->place[over].at;
            for (int j = 0; j < p.n; j++)
                if (p.spans[j].begin == at) p.spans[j].last = last[out];
            continue;
        }
        span_put(&p, round_up(npu_tensor_len(&l->tensors[out])), last[out], &e->place[out].at);
    }
    e->scratch_len = (uint64_t)p.high;
    mem_free(last);
    mem_free(p.spans);
    return TERN_OK;
}

// Constants that are no matrices, as floats.
static enum tern_status constants_load(struct npu_eval *e, struct tern_err *err) {
    const struct npu_list *l = e->list;
    for (int i = 0; i < l->n_tensors; i++) {
        const struct npu_weight *w = l->tensors[i].weight;
        bool matrix = w && (w->kind == NPU_WEIGHT_I8 || (w->rank == 4 && w->shape[0] > 1 && w->shape[1] > 1));
        if (!w || matrix) continue;
        if (w->wide) {
            e->outside[i] = (float *)(uintptr_t)w->wide; // only read
            continue;
        }
        size_t n = (size_t)npu_tensor_len(&l->tensors[i]);
        e->outside[i] = arena_alloc(&e->arena, n * sizeof(float));
        if (!e->outside[i]) return err_set(err, TERN_NO_MEMORY, "npu evaluator %s: no memory", l->name);
        e->k->widen(w->half, (int)n, e->outside[i]);
    }
    return TERN_OK;
}

static enum tern_status states_make(struct npu_eval *e, bool shared, struct tern_err *err) {
    for (int i = 0; i < e->list->n_states && !shared; i++) {
        int old = e->list->states[i].old;
        e->outside[old] = arena_calloc(&e->arena, (size_t)npu_tensor_len(&e->list->tensors[old]), sizeof(float));
        if (!e->outside[old]) return err_set(err, TERN_NO_MEMORY, "npu evaluator %s: no memory", e->list->name);
    }
    return TERN_OK;
}

enum tern_status npu_eval_create(struct npu_eval **out, const struct npu_list *l, const struct npu_eval_options *o,
                                 struct tern_err *err) {
    struct npu_eval *e = mem_calloc(1, sizeof(*e));
    if (!e) return err_set(err, TERN_NO_MEMORY, "npu evaluator: no memory");
    arena_init(&e->arena, 0);
    e->list = l;
    e->rules = o->rules;
    e->k = o->kernels ? o->kernels : npu_kernels_get(NULL);
    e->fix = !o->rules->half ? NPU_FIX_NONE : o->rules->ane ? NPU_FIX_ANE : NPU_FIX_HALF;
    e->team = o->team;
    e->act = o->act;
    e->place = arena_calloc(&e->arena, (size_t)l->n_tensors, sizeof(*e->place));
    e->outside = arena_calloc(&e->arena, (size_t)l->n_tensors, sizeof(*e->outside));
    e->is_view = arena_calloc(&e->arena, (size_t)l->n_ops, sizeof(*e->is_view));
    e->is_solo = arena_calloc(&e->arena, (size_t)l->n_ops, sizeof(*e->is_solo));
    e->is_half = arena_calloc(&e->arena, (size_t)l->n_tensors, sizeof(*e->is_half));
    e->half_outside = arena_calloc(&e->arena, (size_t)l->n_tensors, sizeof(*e->half_outside));
    e->by_column = arena_calloc(&e->arena, (size_t)l->n_tensors, sizeof(*e->by_column));
    enum tern_status status = TERN_OK;
    if (!e->place || !e->outside || !e->is_view || !e->is_solo || !e->is_half || !e->half_outside || !e->by_column) {
        status = err_set(err, TERN_NO_MEMORY, "npu evaluator %s: no memory", l->name);
        goto fail;
    }
    views_find(e);
    columns_find(e);
    solos_find(e);
    if (o->halves && e->rules->half) halves_find(e);
    TRY_GOTO(constants_load(e, err), fail);
    TRY_GOTO(states_make(e, o->shared, err), fail);
    TRY_GOTO(memory_plan(e, err), fail);
    if (!o->shared) {
        e->owned = mem_map((size_t)MAX(e->scratch_len, 1) * sizeof(float));
        if (!e->owned) {
            status = err_set(err, TERN_NO_MEMORY, "npu evaluator %s: no memory for %llu values", l->name,
                             (unsigned long long)e->scratch_len);
            goto fail;
        }
        e->scratch = e->owned;
    }
    *out = e;
    return TERN_OK;
fail:
    npu_eval_free(e);
    return status;
}

void npu_eval_free(struct npu_eval *e) {
    if (!e) return;
    if (e->owned) mem_unmap(e->owned, (size_t)MAX(e->scratch_len, 1) * sizeof(float));
    mem_free(e->sites);
    mem_free(e->parts);
    arena_release(&e->arena);
    mem_free(e);
}

uint64_t npu_eval_scratch_bytes(const struct npu_eval *e) { return e->scratch_len * sizeof(float); }
uint64_t npu_eval_bytes(const struct npu_eval *e) { return e->arena.bytes_total + npu_list_bytes(e->list); }
void npu_eval_bind(struct npu_eval *e, void *scratch) { e->scratch = scratch; }
void npu_eval_state_bind(struct npu_eval *e, int state, float *values) {
    e->outside[e->list->states[state].old] = values;
}
float *npu_eval_state(struct npu_eval *e, int state) { return e->outside[e->list->states[state].old]; }
void npu_eval_columns(struct npu_eval *e, int n) { e->columns = n > 0 ? int_round_up(n, 16) : 0; } // whole vectors
float *npu_eval_at(struct npu_eval *e, int tensor) {
    if (e->is_half[tensor]) TERN_BUG("npu evaluator: %s is fp16", e->list->tensors[tensor].name);
    return eval_data(e, tensor);
}
uint16_t *npu_eval_half_at(const struct npu_eval *e, int tensor) {
    return e->is_half[tensor] ? eval_half(e, tensor) : NULL;
}
void npu_eval_half_bind(struct npu_eval *e, int tensor, uint16_t *at) { e->half_outside[tensor] = at; }

// ----------------------------------------------------------------------------------------------------------------- run

static int member_count(const struct npu_eval *e) { return e->team ? team_size(e->team) : 1; }

static void observe(struct npu_eval *e, int op, const struct team_member *self) {
    const struct npu_tensor *t = &e->list->tensors[e->list->ops[op].out];
    struct npu_site *s = &e->parts[self->index * e->list->n_ops + op];
    const float *x = eval_data(e, e->list->ops[op].out);
    int begin, end;
    team_share(self, (int)npu_tensor_len(t), 1024, &begin, &end);
    for (int i = begin; i < end; i++) {
        float a = fabsf(x[i]);
        s->n++;
        if (!(a < 65520)) s->n_over++;
        if (a > 0 && a < 0x1p-14f) s->n_tiny++;
        if (a > s->max && a <= 3.4e38f) s->max = a;
    }
}

static void run_member(void *arg, const struct team_member *self) {
    struct npu_eval *e = arg;
    const struct npu_list *l = e->list;
    const struct team_member one = {.n = 1};
    bool met = true, alone = false; // since the last meeting: nobody worked; the first member only
    for (int i = 0; i < l->n_ops; i++) {
        if (e->is_view[i]) continue;
        bool solo = e->is_solo[i] && !e->parts;
        if (self->team && !met && !(solo && alone)) team_barrier(self);
        if (!solo)
            eval_op(e, &l->ops[i], self);
        else if (self->index == 0)
            eval_op(e, &l->ops[i], &one);
        alone = solo;
        met = false;
        if (!e->parts) continue;
        if (self->team) team_barrier(self);
        met = true;
        observe(e, i, self);
    }
}

static void inputs_clean(struct npu_eval *e) {
    for (int i = 0; i < e->list->n_inputs; i++) {
        int64_t n = npu_tensor_len(&e->list->tensors[e->list->inputs[i]]);
        if (e->is_half[e->list->inputs[i]]) {
            uint16_t *half = eval_half(e, e->list->inputs[i]);
            for (int64_t j = 0; j < n; j++) {
                if ((half[j] & 0x7fff) > 0x7c00) half[j] = 0x7c00;
                if (half[j] == 0x8000) half[j] = 0;
            }
            continue;
        }
        float *x = eval_data(e, e->list->inputs[i]);
        for (int64_t j = 0; j < n; j++) x[j] = x[j] != x[j] ? INFINITY : x[j] + 0.0f;
    }
}

static void sites_fold(struct npu_eval *e) {
    int n = e->list->n_ops;
    for (int m = 0; m < member_count(e); m++)
        for (int i = 0; i < n; i++) {
            struct npu_site *from = &e->parts[m * n + i], *to = &e->sites[i];
            to->max = MAX(to->max, from->max);
            to->n += from->n;
            to->n_over += from->n_over;
            to->n_tiny += from->n_tiny;
            *from = (struct npu_site){0};
        }
}

void npu_eval_run(struct npu_eval *e) {
    if (e->rules->ane) inputs_clean(e);
    if (e->team)
        team_run(e->team, run_member, e);
    else
        run_member(e, &(struct team_member){.index = 0, .n = 1});
    for (int i = 0; i < e->list->n_states; i++) {
        const struct npu_state *s = &e->list->states[i];
        memcpy(e->outside[s->old], eval_data(e, s->now),
               (size_t)npu_tensor_len(&e->list->tensors[s->old]) * sizeof(float));
    }
    if (e->parts) sites_fold(e);
}

enum tern_status npu_eval_observe(struct npu_eval *e, bool on, struct tern_err *err) {
    mem_free(e->sites);
    mem_free(e->parts);
    e->sites = e->parts = NULL;
    if (!on) return TERN_OK;
    e->sites = mem_calloc((size_t)e->list->n_ops, sizeof(*e->sites));
    e->parts = mem_calloc((size_t)e->list->n_ops * (size_t)member_count(e), sizeof(*e->parts));
    if (e->sites && e->parts) return TERN_OK;
    return err_set(err, TERN_NO_MEMORY, "npu evaluator: no memory to observe %s", e->list->name);
}

const struct npu_site *npu_eval_sites(const struct npu_eval *e) { return e->sites; }

const struct npu_kernels *npu_kernels_get(const char *isa) {
    struct str bound = str_from(isa);
    bool any = bound.len == 0;
#if defined(__x86_64__)
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx512 && (any || str_starts(bound, STR("avx512")) || str_starts(bound, STR("amx"))))
        return &npu_kernels_avx512;
    if (avx2 && !str_eqz(bound, "scalar")) return &npu_kernels_avx2;
#endif
    (void)any;
    return &npu_kernels_scalar;
}
