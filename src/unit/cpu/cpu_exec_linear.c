// Products: preparing rows (norm, int8), splitting tiles over the team, and what happens to a product's result.
//
// Rows are prepared once per op, by the members in shares, or by each for itself when that is cheaper than a barrier.
// Then every member multiplies all rows by its share of the op's tiles, of all its weights together; with many rows,
// its share of the rows by all tiles, which needs no barrier and rearranges a row for the kernels once. A plain result
// is written where it belongs; one that is added to the residual, gated, or searched for its largest value passes a
// strip buffer that stays in the member's cache, so logits of all rows never exist unless asked for.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"
#include <math.h>

// ---------------------------------------------------------------------------------------------------------- rows

static void zero_pad(int8_t *q, int n, size_t stride) {
    if ((size_t)n < stride) memset(q + n, 0, stride - (size_t)n);
}

void cpu_act_row(const struct cpu_kernels *k, uint32_t forms, const float *x, int n, const struct cpu_act *a,
                 size_t at) {
    if (forms & ACT_FLOAT) memcpy(a->x + at * a->x_stride, x, (size_t)n * sizeof(float));
    if (forms & ACT_GROUPS) {
        int8_t *q = a->q + at * a->q_stride;
        k->quantise_row(x, n, q, a->scale + at * a->scale_stride, a->sum + at * 2 * a->scale_stride);
        zero_pad(q, n, a->q_stride);
    }
    if (forms & ACT_WHOLE) {
        int8_t *q = a->q_whole + at * a->q_stride;
        k->quantise_row_whole(x, n, q, a->scale_whole + at, a->sum_whole + 2 * at);
        zero_pad(q, n, a->q_stride);
    }
}

// Prepares rows [begin, end) of an op's input in the forms it needs. row: [n_in] floats of the caller's.
static void act_rows(const struct cpu_run *r, const struct cpu_op *op, const struct cpu_act *a, float *row, int begin,
                     int end) {
    const struct cpu_kernels *k = &r->u->k;
    int n = op->n_in;
    for (int i = begin; i < end; i++) {
        size_t at = (size_t)i;
        const float *x = op->in[0] + (op->kind == PROG_OP_HEAD ? (size_t)r->s->out_rows[i] : at) * (size_t)n;
        if (op->norm) {
            float *y = op->forms & ACT_FLOAT ? a->x + at * a->x_stride : row;
            k->rmsnorm(x, op->norm, n, r->p->prog->hyper->norm_eps, y);
            x = y;
        }
        cpu_act_row(k, op->forms & ~(uint32_t)ACT_FLOAT, x, n, a, at);
    }
}

// Rows of an op that this member works on by itself: those it multiplies by every tile, or all of them.
struct rows {
    int begin, end;
    bool shared_out; // by rows
};
static struct rows rows_share(const struct cpu_run *r, const struct team_member *self) {
    struct rows rows = {0, r->n_rows, false};
    if (self->n == 1 || r->n_rows < LINEAR_BY_ROWS * self->n) return rows;
    rows.shared_out = true;
    team_share(self, r->n_rows, CPU_ROWS_FEW, &rows.begin, &rows.end);
    return rows;
}

// The op's rows ready for products. Time goes to RMSNORM in the profile, with or without a norm.
static struct cpu_act act_prepare(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op,
                                  int n_rows, const struct rows *rows) {
    struct cpu_member *m = &r->p->members[self->index];
    size_t stride = (size_t)int_round_up(op->n_in, 64);
    bool alone = self->n > 1 && (size_t)n_rows * stride <= ACT_PRIVATE_VALUES;
    struct cpu_act a = alone ? m->act : r->p->act;
    a.x_stride = a.q_stride = stride;
    a.scale_stride = stride / OP_GROUP;
    if (op->norm || (op->forms & (ACT_GROUPS | ACT_WHOLE))) {
        int begin = 0, end = n_rows;
        bool own = rows && rows->shared_out; // no other member reads them
        if (own) {
            begin = rows->begin;
            end = rows->end;
        } else if (!alone) {
            team_share(self, n_rows, 1, &begin, &end);
        }
        act_rows(r, op, &a, m->row, begin, end);
        if (!alone && !own) team_barrier(self);
    }
    if (!op->norm) { // float products read the value itself
        a.x = op->in[0];
        a.x_stride = (size_t)op->n_in;
    }
    cpu_profile(r, self, PROG_OP_RMSNORM);
    return a;
}

// ---------------------------------------------------------------------------------------------------------- products

void cpu_product(const struct cpu_run *r, const struct cpu_matrix *m, const struct cpu_act *a, int row, int n,
                 int begin, int end, float *y, size_t y_stride) {
    bool whole = m->pack == CPU_PACK_I8C;
    size_t at = (size_t)row;
    struct cpu_linear_args args = {
        .m = m, .tile_begin = begin, .tile_end = end, .n_rows = n, .y = y, .y_stride = y_stride};
    if (!cpu_pack_is_int8(m->pack)) {
        args.x = a->x + at * a->x_stride;
        args.x_stride = a->x_stride;
    } else {
        args.q = (whole ? a->q_whole : a->q) + at * a->q_stride;
        args.q_stride = a->q_stride;
        args.scale = whole ? a->scale_whole + at : a->scale + at * a->scale_stride;
        args.scale_stride = whole ? 1 : a->scale_stride;
        args.sum = whole ? a->sum_whole + at * 2 : a->sum + at * 2 * a->scale_stride;
    }
    r->u->k.linear[m->pack][n == 1 ? 0 : n <= CPU_ROWS_FEW ? 1 : 2](&args);
}

bool cpu_strip_next(struct cpu_strip *s, int row_begin, int row_end, int begin, int end, int n_out) {
    if (row_begin >= row_end || begin >= end) return false;
    int width = STRIP_FLOATS / (MIN(STRIP_ROWS, row_end - row_begin) * CPU_TILE);
    if (s->n_rows == 0) {
        s->row = row_begin;
        s->tile = begin;
    } else {
        s->row += s->n_rows;
        if (s->row >= row_end) {
            s->row = row_begin;
            s->tile = s->tile_end;
        }
    }
    if (s->tile >= end) return false;
    s->n_rows = MIN(STRIP_ROWS, row_end - s->row);
    s->tile_end = MIN(s->tile + width, end);
    s->first = s->tile * CPU_TILE;
    s->n = MIN(s->tile_end * CPU_TILE, n_out) - s->first;
    return true;
}

static void strips_run(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op,
                       const struct cpu_act *a, int w, struct rows rows, int begin, int end) {
    const struct cpu_kernels *k = &r->u->k;
    float *const *temp = r->p->members[self->index].temp;
    bool gelu = r->p->prog->hyper->ffn_gelu;
    size_t cols = (size_t)op->out_cols[w];
    struct cpu_strip s = {0};
    while (cpu_strip_next(&s, rows.begin, rows.end, begin, end, op->m[w]->n_out)) {
        size_t stride = (size_t)(s.tile_end - s.tile) * CPU_TILE;
        cpu_product(r, op->m[w], a, s.row, s.n_rows, s.tile, s.tile_end, temp[0], stride);
        if (op->op->swiglu) cpu_product(r, op->m[1], a, s.row, s.n_rows, s.tile, s.tile_end, temp[1], stride);
        for (int i = 0; i < s.n_rows; i++) {
            size_t at = (size_t)(s.row + i) * cols + (size_t)s.first, from = (size_t)i * stride;
            if (op->op->swiglu)
                (gelu ? k->geglu : k->swiglu)(temp[0] + from, temp[1] + from, s.n, op->out[0] + at);
            else if (op->op->add)
                k->add(op->in[1] + at, temp[0] + from, s.n, op->out[0] + at);
            else
                memcpy(op->out[w] + at, temp[0] + from, (size_t)s.n * sizeof(float));
        }
    }
}

// Rows by tiles [begin, end) of weight w. Kernels write whole tiles, so a last one that is not full takes a detour.
static void weight_run(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op,
                       const struct cpu_act *a, int w, struct rows rows, int begin, int end) {
    if (begin >= end || rows.begin >= rows.end) return;
    int full = op->op->swiglu || op->op->add ? begin : MIN(end, op->m[w]->n_out / CPU_TILE);
    size_t cols = (size_t)op->out_cols[w];
    if (begin < full)
        cpu_product(r, op->m[w], a, rows.begin, rows.end - rows.begin, begin, full,
                    op->out[w] + (size_t)rows.begin * cols + (size_t)begin * CPU_TILE, cols);
    strips_run(r, self, op, a, w, rows, MAX(begin, full), end);
}

void cpu_exec_linear(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    struct rows rows = rows_share(r, self);
    bool part = r->p->prog->spec.kind == PROG_LINEAR && r->s->out_end > 0;
    if (part) rows = (struct rows){0, r->n_rows, false};
    struct cpu_act a = act_prepare(r, self, op, r->n_rows, &rows);
    int n_w = op->op->swiglu ? 1 : op->n_m, begin, end, total = 0;
    if (part) {
        int first = r->s->out_begin / CPU_TILE, last = int_div_up(r->s->out_end, CPU_TILE);
        team_share(self, last - first, 1, &begin, &end);
        weight_run(r, self, op, &a, 0, rows, first + begin, first + end);
        return;
    }
    for (int w = 0; w < n_w; w++) total += op->m[w]->n_tiles;
    begin = 0;
    end = total;
    if (!rows.shared_out) team_share(self, total, 1, &begin, &end);
    for (int w = 0, at = 0; w < n_w; at += op->m[w]->n_tiles, w++)
        weight_run(r, self, op, &a, w, rows, MAX(begin - at, 0), MIN(end - at, op->m[w]->n_tiles));
}

// ---------------------------------------------------------------------------------------------------------- the head

static void hidden_rows(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    float *y = cpu_port(r, PORT_HIDDEN);
    int begin, end;
    size_t n = (size_t)op->n_in;
    team_share(self, r->n_out, 1, &begin, &end);
    for (int i = begin; i < end; i++)
        r->u->k.rmsnorm(op->in[0] + (size_t)r->s->out_rows[i] * n, op->norm, op->n_in, r->p->prog->hyper->norm_eps,
                        y + (size_t)i * n);
}

// Columns of padding ids can never be chosen: their logits are -infinity.
static void strip_finish(const struct cpu_run *r, const struct cpu_strip *s, float *y, size_t stride, float *logits,
                         struct prog_argmax *best) {
    int n_used = MAX(MIN(s->n, r->p->prog->hyper->n_vocab_used - s->first), 0);
    size_t n_vocab = (size_t)r->p->prog->hyper->n_vocab;
    for (int i = 0; i < s->n_rows; i++) {
        float *row = y + (size_t)i * stride;
        for (int j = n_used; j < s->n; j++) row[j] = -INFINITY;
        float *to = logits ? logits + (size_t)(s->row + i) * n_vocab + (size_t)s->first : NULL;
        if (to && to != row) memcpy(to, row, (size_t)s->n * sizeof(float));
        if (!best || n_used == 0) continue;
        float max;
        int32_t id = r->u->k.argmax(row, n_used, &max);
        struct prog_argmax *b = &best[s->row + i];
        if (id >= 0 && (b->id < 0 || max > b->max)) *b = (struct prog_argmax){s->first + id, max};
    }
}

// Members hold rising ranges of ids, so the first of equal values is that of the first member.
static void best_combine(const struct cpu_run *r, const struct team_member *self) {
    struct prog_argmax *out = (struct prog_argmax *)(void *)cpu_port(r, PORT_ARGMAX);
    int begin, end;
    team_share(self, r->n_out, 1, &begin, &end);
    for (int i = begin; i < end; i++) {
        struct prog_argmax b = r->p->members[0].best[i];
        for (int j = 1; j < self->n; j++) {
            const struct prog_argmax *o = &r->p->members[j].best[i];
            if (o->id >= 0 && (b.id < 0 || o->max > b.max)) b = *o;
        }
        out[i] = b;
    }
}

void cpu_exec_head(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    uint32_t outputs = r->p->prog->spec.outputs;
    if (r->n_out == 0) return;
    if (outputs & PROG_OUT_HIDDEN) hidden_rows(r, self, op);
    if (!(outputs & (PROG_OUT_LOGITS | PROG_OUT_ARGMAX))) return;
    struct cpu_act a = act_prepare(r, self, op, r->n_out, NULL);
    struct cpu_member *m = &r->p->members[self->index];
    struct prog_argmax *best = outputs & PROG_OUT_ARGMAX ? m->best : NULL;
    float *logits = outputs & PROG_OUT_LOGITS ? cpu_port(r, PORT_LOGITS) : NULL;
    for (int i = 0; best && i < r->n_out; i++) best[i] = (struct prog_argmax){-1, NAN};
    int begin, end, n_vocab = op->m[0]->n_out;
    team_share(self, op->m[0]->n_tiles, 1, &begin, &end);
    struct cpu_strip s = {0};
    while (cpu_strip_next(&s, 0, r->n_out, begin, end, n_vocab)) {
        bool direct = logits && s.tile_end * CPU_TILE <= n_vocab; // kernels write whole tiles
        size_t stride = direct ? (size_t)n_vocab : (size_t)(s.tile_end - s.tile) * CPU_TILE;
        float *y = direct ? logits + (size_t)s.row * (size_t)n_vocab + (size_t)s.first : m->temp[0];
        cpu_product(r, op->m[0], &a, s.row, s.n_rows, s.tile, s.tile_end, y, stride);
        strip_finish(r, &s, y, stride, logits, best);
    }
    if (!best) return;
    team_barrier(self);
    best_combine(r, self);
}
