// Layers with experts: which rows go where, and the experts' products.
//
// Rows are grouped by expert, so that an expert's weights are read once for all rows that chose it, and rows of one
// expert lie side by side for the kernels. Every member counts the groups for itself (a step has few pairs) and then
// takes its share of each expert's tiles: of gate and up, whose gated rows all members share; then, experts ascending,
// of down, whose products it adds to the columns it owns. So a row's sum has the order that op.h defines, however rows
// and threads are spread.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"

void cpu_exec_route(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    const struct model_hyper *h = r->p->prog->hyper;
    struct op_router router = {.n = h->n_expert,
                               .k = h->n_expert_used,
                               .sigmoid = h->router_sigmoid,
                               .normalise = h->router_norm,
                               .eps = h->router_eps,
                               .scale = h->router_scale};
    int begin, end;
    team_share(self, r->n_rows, 1, &begin, &end);
    for (int i = begin; i < end; i++) {
        float *out = op->out[0] + (size_t)i * (size_t)op->out_cols[0];
        op_route(&router, op->in[0] + (size_t)i * (size_t)op->n_in, op->v[0], r->p->members[self->index].row,
                 (int32_t *)(void *)out, out + router.k);
    }
}

static void pairs_make(const struct cpu_run *r, const struct cpu_op *op, struct expert_pairs *p) {
    int n = r->p->prog->hyper->n_expert, k = r->p->prog->hyper->n_expert_used;
    size_t cols = (size_t)op->in_cols[2];
    memset(p->begin, 0, ((size_t)n + 1) * sizeof *p->begin);
    for (int i = 0; i < r->n_rows; i++) {
        const int32_t *ids = (const int32_t *)(const void *)(op->in[2] + (size_t)i * cols);
        for (int j = 0; j < k; j++) p->begin[ids[j] + 1]++;
    }
    for (int e = 0; e < n; e++) {
        p->begin[e + 1] += p->begin[e];
        p->next[e] = p->begin[e];
    }
    for (int i = 0; i < r->n_rows; i++) {
        const float *route = op->in[2] + (size_t)i * cols;
        for (int j = 0; j < k; j++) {
            int at = p->next[((const int32_t *)(const void *)route)[j]]++;
            p->row[at] = i;
            p->weight[at] = route[k + j];
            p->place[i * k + j] = at;
        }
    }
}

static struct cpu_act act_of(const struct cpu_act *a, int n) {
    struct cpu_act out = *a;
    out.x_stride = out.q_stride = (size_t)int_round_up(n, 64);
    out.scale_stride = out.q_stride / OP_GROUP;
    return out;
}

// Row `to` of a becomes what row `from` is.
static void act_copy(const struct cpu_act *a, uint32_t forms, int n, size_t from, size_t to) {
    size_t groups = a->scale_stride;
    if (forms & ACT_FLOAT) memcpy(a->x + to * a->x_stride, a->x + from * a->x_stride, (size_t)n * sizeof(float));
    if (forms & ACT_GROUPS) {
        memcpy(a->q + to * a->q_stride, a->q + from * a->q_stride, a->q_stride);
        memcpy(a->scale + to * groups, a->scale + from * groups, groups * sizeof(float));
        memcpy(a->sum + to * 2 * groups, a->sum + from * 2 * groups, 2 * groups * sizeof(int32_t));
    }
    if (forms & ACT_WHOLE) {
        memcpy(a->q_whole + to * a->q_stride, a->q_whole + from * a->q_stride, a->q_stride);
        a->scale_whole[to] = a->scale_whole[from];
        a->sum_whole[2 * to] = a->sum_whole[2 * from];
    }
}

static bool is_private(const struct team_member *self, const struct cpu_act *a, int n_rows) {
    return self->n > 1 && (size_t)n_rows * a->q_stride <= ACT_PRIVATE_VALUES;
}

// Every pair's input, prepared once per row.
static struct cpu_act inputs_prepare(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op,
                                     const struct expert_pairs *p) {
    int k = r->p->prog->hyper->n_expert_used, begin = 0, end = r->n_rows;
    struct cpu_act a = act_of(&r->p->act, op->n_in);
    bool alone = is_private(self, &a, k * r->n_rows);
    if (alone)
        a = act_of(&r->p->members[self->index].act, op->n_in);
    else
        team_share(self, r->n_rows, 1, &begin, &end);
    for (int i = begin; i < end; i++) {
        size_t first = (size_t)p->place[i * k];
        cpu_act_row(&r->u->k, op->forms, op->in[0] + (size_t)i * (size_t)op->n_in, op->n_in, &a, first);
        for (int j = 1; j < k; j++) act_copy(&a, op->forms, op->n_in, first, (size_t)p->place[i * k + j]);
    }
    if (!alone) team_barrier(self);
    return a;
}

// The gated rows as down's input.
static struct cpu_act gated_prepare(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    int n = r->p->prog->hyper->n_ff_expert, n_pairs = r->n_rows * r->p->prog->hyper->n_expert_used;
    int begin = 0, end = n_pairs;
    uint32_t forms = op->forms_down & ~(uint32_t)ACT_FLOAT;
    struct cpu_act a = act_of(&r->p->act, n);
    bool alone = forms == 0 || is_private(self, &a, n_pairs);
    if (alone)
        a = act_of(&r->p->members[self->index].act, n);
    else
        team_share(self, n_pairs, 1, &begin, &end);
    for (int i = begin; forms != 0 && i < end; i++)
        cpu_act_row(&r->u->k, forms, op->out[1] + (size_t)i * (size_t)n, n, &a, (size_t)i);
    if (!alone) team_barrier(self);
    a.x = op->out[1];
    a.x_stride = (size_t)n;
    return a;
}

static void gate_up_run(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op,
                        const struct cpu_act *a, const struct expert_pairs *p, int e) {
    const struct cpu_matrix *const *m = op->experts[e];
    float *const *temp = r->p->members[self->index].temp;
    int first = p->begin[e], n_rows = p->begin[e + 1] - first, begin, end;
    team_share(self, m[0]->n_tiles, 1, &begin, &end);
    struct cpu_strip s = {0};
    while (cpu_strip_next(&s, 0, n_rows, begin, end, m[0]->n_out)) {
        size_t stride = (size_t)(s.tile_end - s.tile) * CPU_TILE, n = (size_t)m[0]->n_out;
        cpu_product(r, m[0], a, first + s.row, s.n_rows, s.tile, s.tile_end, temp[0], stride);
        cpu_product(r, m[1], a, first + s.row, s.n_rows, s.tile, s.tile_end, temp[1], stride);
        for (int i = 0; i < s.n_rows; i++)
            (r->p->prog->hyper->ffn_gelu ? r->u->k.geglu
                                         : r->u->k.swiglu)(temp[0] + (size_t)i * stride, temp[1] + (size_t)i * stride,
                                                           s.n, op->out[1] + (size_t)(first + s.row + i) * n + s.first);
    }
}

// Into the sums, columns of tiles [begin, end).
static void down_run(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op,
                     const struct cpu_act *a, const struct expert_pairs *p, int e, int begin, int end) {
    const struct cpu_matrix *m = op->experts[e][2];
    float *temp = r->p->members[self->index].temp[0];
    int first = p->begin[e], n_rows = p->begin[e + 1] - first;
    size_t cols = (size_t)op->out_cols[2];
    struct cpu_strip s = {0};
    while (cpu_strip_next(&s, 0, n_rows, begin, end, m->n_out)) {
        size_t stride = (size_t)(s.tile_end - s.tile) * CPU_TILE;
        cpu_product(r, m, a, first + s.row, s.n_rows, s.tile, s.tile_end, temp, stride);
        for (int i = 0; i < s.n_rows; i++) {
            int pair = first + s.row + i;
            r->u->k.axpy(p->weight[pair], temp + (size_t)i * stride, s.n,
                         op->out[2] + (size_t)p->row[pair] * cols + s.first);
        }
    }
}

void cpu_exec_experts(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    struct expert_pairs *p = &r->p->members[self->index].pairs;
    int n_expert = r->p->prog->hyper->n_expert, begin, end;
    pairs_make(r, op, p);
    struct cpu_act a = inputs_prepare(r, self, op, p);
    for (int e = 0; e < n_expert; e++)
        if (p->begin[e + 1] > p->begin[e]) gate_up_run(r, self, op, &a, p, e);
    team_barrier(self);
    a = gated_prepare(r, self, op);
    team_share(self, int_div_up(op->out_cols[2], CPU_TILE), 1, &begin, &end);
    int first = begin * CPU_TILE, n = MIN(end * CPU_TILE, op->out_cols[2]) - first;
    if (n <= 0) return;
    size_t cols = (size_t)op->out_cols[2];
    for (int i = 0; i < r->n_rows; i++) memset(op->out[2] + (size_t)i * cols + first, 0, (size_t)n * sizeof(float));
    for (int e = 0; e < n_expert; e++)
        if (p->begin[e + 1] > p->begin[e]) down_run(r, self, op, &a, p, e, begin, end);
    for (int i = 0; i < r->n_rows; i++) {
        size_t at = (size_t)i * cols + (size_t)first;
        r->u->k.add(op->in[1] + at, op->out[2] + at, n, op->out[0] + at);
    }
}
