// The gated short convolution and the commit of a verify step: everything that touches convolution states.
//
// A row's taps are u rows of this step, stored rows of the sequence's slot, or zeros, as the step says. The slot that
// is written may be the one that is read, and stored rows may move down in it, so slots are written when all rows have
// been computed, and from the oldest row on. The u rows of a step lie in the program's own buffer, which the next
// convolution overwrites only behind further barriers.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"

// Rows times channels up to which one member does the whole op: waiting costs more than the work.
#define CONV_ALONE_VALUES 4096

static float *slot_row(const struct cpu_run *r, int32_t slot, int conv_index, int row) {
    return (float *)(void *)(r->conv + state_conv_offset(r->layout, slot, conv_index)) +
           (size_t)row * (size_t)r->layout->n_embd;
}

static float *window_row(const struct cpu_run *r, int conv_index, int row) {
    return (float *)(void *)(r->conv + state_window_offset(r->layout, r->s->pool->n_slots, conv_index, row));
}

// The row behind a tap; NULL: zeros. u: where row 0 of this step (or of the window area) lies.
static const float *tap_row(const struct cpu_run *r, const float *u, const struct step_seq *q, int conv_index,
                            int tap) {
    if (tap >= 0) return u + (size_t)tap * (size_t)r->layout->n_embd;
    if (tap == STEP_TAP_ZERO || q->conv_in < 0) return NULL;
    int newest = -1 - tap; // 0: the newest stored row
    return slot_row(r, q->conv_in, conv_index, r->layout->conv_len - 2 - newest);
}

// Writes the rows of a slot, oldest first: row j comes from sources[j].
static void slot_write(const struct cpu_run *r, int32_t slot, int conv_index, const float *const *sources) {
    size_t bytes = (size_t)r->layout->n_embd * sizeof(float);
    for (int j = 0; j < r->layout->conv_len - 1; j++) {
        float *to = slot_row(r, slot, conv_index, j);
        if (!sources[j])
            memset(to, 0, bytes);
        else if (sources[j] != to)
            memcpy(to, sources[j], bytes);
    }
}

static void states_write(const struct cpu_run *r, int conv_index) {
    const float *sources[OP_CONV_LEN_MAX];
    int n = r->layout->conv_len - 1;
    for (int i = 0; i < r->s->n_seqs; i++) {
        const struct step_seq *q = &r->s->seqs[i];
        if (q->conv_out < 0 || q->row_last < 0) continue;
        for (int j = 0; j < n; j++) {
            int row = step_ancestor(r->s, q->row_last, n - 1 - j); // negative numbers are those of stored taps
            sources[j] = tap_row(r, r->p->conv_u, q, conv_index, row);
        }
        slot_write(r, q->conv_out, conv_index, sources);
    }
}

static void gate_rows(const struct cpu_run *r, const struct cpu_op *op, int begin, int end) {
    int n = op->out_cols[0];
    for (int i = begin; i < end; i++) {
        float *u = r->p->conv_u + (size_t)i * (size_t)n;
        r->u->k.conv_gate(op->in[0] + (size_t)i * (size_t)op->n_in, n, u);
        if (r->s->flags & (STEP_KEEP_ROWS | STEP_SHOW_ROWS))
            memcpy(window_row(r, op->op->state_index, i), u, (size_t)n * sizeof(float));
    }
}

static void conv_rows(const struct cpu_run *r, const struct cpu_op *op, int begin, int end) {
    const struct step *s = r->s;
    int n = op->out_cols[0];
    const float *u[OP_CONV_LEN_MAX];
    for (int i = begin; i < end; i++) {
        const int16_t *taps = s->taps + (size_t)i * (size_t)s->n_taps;
        const struct step_seq *q = &s->seqs[s->rows[i].seq];
        for (int j = 0; j < s->n_taps; j++) u[j] = tap_row(r, r->p->conv_u, q, op->op->state_index, taps[j]);
        r->u->k.short_conv(u, op->v[0], s->n_taps, n, op->in[0] + (size_t)i * (size_t)op->n_in + n,
                           op->out[0] + (size_t)i * (size_t)n);
    }
}

void cpu_exec_short_conv(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    int begin = 0, end = r->n_rows;
    bool alone = self->n == 1 || (int64_t)r->n_rows * op->out_cols[0] <= CONV_ALONE_VALUES;
    if (alone && self->index != 0) return;
    if (!alone) team_share(self, r->n_rows, 1, &begin, &end);
    gate_rows(r, op, begin, end);
    if (!alone) team_barrier(self);
    conv_rows(r, op, begin, end);
    if (!alone) team_barrier(self);
    if (self->index == 0) states_write(r, op->op->state_index);
}

// ---------------------------------------------------------------------------------------------------------- commit

// K/V of the accepted rows to their positions, in order: a row's slot is never behind its position, so none is
// overwritten before it has been moved.
static void commit_kv(const struct cpu_run *r, int attn_index, int head) {
    const struct state_layout *l = r->layout;
    for (int i = 0; i < r->n_rows; i++) {
        const struct step_row *row = &r->s->rows[i];
        if (row->slot == row->pos) continue;
        const int32_t *blocks = r->s->seqs[row->seq].blocks;
        int32_t to = blocks[row->pos / OP_BLOCK], from = blocks[row->slot / OP_BLOCK];
        op_kv_move(l->kv_type, r->kv + state_k_offset(l, to, attn_index, head),
                   r->kv + state_v_offset(l, to, attn_index, head), row->pos % OP_BLOCK,
                   r->kv + state_k_offset(l, from, attn_index, head), r->kv + state_v_offset(l, from, attn_index, head),
                   row->slot % OP_BLOCK, l->head_dim);
    }
}

static void commit_conv(const struct cpu_run *r, int conv_index) {
    const float *sources[OP_CONV_LEN_MAX];
    const float *window = window_row(r, conv_index, 0);
    for (int i = 0; i < r->s->n_seqs; i++) {
        const struct step_seq *q = &r->s->seqs[i];
        if (q->conv_out < 0 || q->row_last < 0) continue;
        const int16_t *taps = r->s->taps + (size_t)q->row_last * (size_t)r->s->n_taps;
        for (int j = 0; j + 1 < r->s->n_taps; j++) sources[j] = tap_row(r, window, q, conv_index, taps[j + 1]);
        slot_write(r, q->conv_out, conv_index, sources);
    }
}

void cpu_exec_commit(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    (void)op;
    const struct state_layout *l = r->layout;
    int begin, end;
    if (!l) return;
    team_share(self, l->n_attn * l->n_head_kv, 1, &begin, &end);
    for (int i = begin; i < end; i++) commit_kv(r, i / l->n_head_kv, i % l->n_head_kv);
    team_share(self, l->n_conv, 1, &begin, &end);
    for (int i = begin; i < end; i++) commit_conv(r, i);
}
