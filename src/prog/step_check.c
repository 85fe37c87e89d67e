// Is a step fit for a program? Units call this once per submission, before they touch any memory by its numbers: a
// step that passes cannot make a unit read or write outside the pool, nor leave a state that a later step reads wrong.
// Cost: a pass over rows, one over block tables, and a comparison of the blocks written by one sequence with those of
// the others. Nothing is allocated; the per-sequence counters live on the stack.
#include "base/base.h"
#include "prog/prog_int.h"

#define FLAGS_ALL (STEP_KEEP_ROWS | STEP_FULL | STEP_SHOW_ROWS)
#define STEP_POS_MAX (INT32_MAX - 2 * STEP_WINDOW_MAX) // so that positions and slots of a window fit 32 bits

struct step_scan {
    const struct prog *p;
    const struct step *s;
    struct tern_err *err;
    int32_t n_rows[STEP_SEQS_MAX];   // of each sequence
    int32_t last[STEP_SEQS_MAX];     // its newest row, -1: none
    int32_t slot_end[STEP_SEQS_MAX]; // its highest slot + 1
    bool chain[STEP_SEQS_MAX];       // its rows are one chain
};

#define BAD(...) err_set(c->err, TERN_INVALID_ARGUMENT, __VA_ARGS__)

static bool is_commit(const struct step_scan *c) { return c->p->spec.kind == PROG_COMMIT; }

static enum tern_status check_counts(struct step_scan *c) {
    const struct prog *p = c->p;
    const struct step *s = c->s;
    if (s->n_rows < 1 || s->n_rows > p->spec.window)
        return BAD("step: %d rows; the program (%s) has a window of %d", s->n_rows, prog_kind_name(p->spec.kind),
                   p->spec.window);
    if (s->flags & ~(uint32_t)FLAGS_ALL) return BAD("step: unknown flags 0x%x", s->flags & ~(uint32_t)FLAGS_ALL);
    if ((s->flags & STEP_KEEP_ROWS) && (s->flags & STEP_FULL))
        return BAD("step: STEP_KEEP_ROWS and STEP_FULL exclude each other");
    if (is_commit(c) && s->flags) return BAD("step: a commit takes no flags, found 0x%x", s->flags);
    if ((s->flags & STEP_FULL) && p->has_windows) return BAD("step: STEP_FULL on layers with a sliding window");
    if (p->spec.kind == PROG_ENCODER && !(s->flags & STEP_FULL))
        return BAD("step: the encoder reads in both directions and needs STEP_FULL");
    if (p->spec.kind == PROG_DRAFT && !(s->flags & STEP_FULL))
        return BAD("step: the rows of a draft see one another and need STEP_FULL");
    if (p->spec.kind == PROG_INJECT && s->flags) return BAD("step: an injection takes no flags, found 0x%x", s->flags);
    int n_out_cols = p->spec.kind == PROG_LINEAR ? (int)p->spec.weight->ne[1] : 0;
    bool all = s->out_begin == 0 && s->out_end == 0;
    if (!all && p->spec.kind != PROG_LINEAR)
        return BAD("step: columns %d to %d asked of a program (%s) that is no single weight", s->out_begin, s->out_end,
                   prog_kind_name(p->spec.kind));
    if (!all && (s->out_begin < 0 || s->out_begin >= s->out_end || s->out_end > n_out_cols))
        return BAD("step: columns %d to %d of a weight with %d", s->out_begin, s->out_end, n_out_cols);
    if (p->spec.kind == PROG_LINEAR) return TERN_OK;
    if (!s->rows) return BAD("step: no rows array");
    if (s->n_seqs < 1 || s->n_seqs > STEP_SEQS_MAX)
        return BAD("step: %d sequences; 1 to %d are possible", s->n_seqs, STEP_SEQS_MAX);
    if (!s->seqs) return BAD("step: no sequences array");
    if (p->has_conv && s->n_taps != p->hyper->conv_len)
        return BAD("step: %d taps a row; the model's convolution has %d", s->n_taps, p->hyper->conv_len);
    if (p->has_conv && !s->taps) return BAD("step: no taps array");
    return TERN_OK;
}

static enum tern_status check_pool(struct step_scan *c) {
    const struct prog *p = c->p;
    if (!p->needs_state) return TERN_OK;
    if (!c->s->pool) return BAD("step: the program (%s) needs a state pool", prog_kind_name(p->spec.kind));
    const struct state_layout *l = &c->s->pool->layout;
    const struct model_hyper *h = p->hyper;
    if (l->layer_begin != p->spec.state_begin || l->layer_end != p->spec.state_end)
        return BAD("step: the pool holds layers %d to %d, the program was built for one with %d to %d", l->layer_begin,
                   l->layer_end, p->spec.state_begin, p->spec.state_end);
    if (l->kv_type != p->spec.kv_type)
        return BAD("step: the pool's K/V type is %d, the program's %d", (int)l->kv_type, (int)p->spec.kv_type);
    if (l->n_head_kv != h->n_head_kv || l->head_dim != h->head_dim || l->n_embd != h->n_embd ||
        l->conv_len != h->conv_len)
        return BAD("step: the pool's layout belongs to another model");
    if (p->has_attn && !c->s->pool->kv) return BAD("step: the pool has no K/V buffer");
    if (p->has_conv && !c->s->pool->conv) return BAD("step: the pool has no convolution buffer");
    bool window = p->has_conv && ((c->s->flags & (STEP_KEEP_ROWS | STEP_SHOW_ROWS)) || is_commit(c));
    if (window && c->s->n_rows > l->window)
        return BAD("step: %d rows to keep; the pool's window area has %d", c->s->n_rows, l->window);
    return TERN_OK;
}

static enum tern_status check_row(struct step_scan *c, int i) {
    const struct step_row *r = &c->s->rows[i];
    const struct prog *p = c->p;
    if (p->reads_tokens && (r->token < 0 || r->token >= p->hyper->n_vocab))
        return BAD("step row %d: token %d; the vocabulary has %d", i, r->token, p->hyper->n_vocab);
    if (r->seq < 0 || r->seq >= c->s->n_seqs) return BAD("step row %d: sequence %d of %d", i, r->seq, c->s->n_seqs);
    if (r->parent != STEP_NO_PARENT && (r->parent < 0 || r->parent >= i))
        return BAD("step row %d: parent %d; parents come before their children", i, r->parent);
    if (r->parent >= 0 && c->s->rows[r->parent].seq != r->seq)
        return BAD("step row %d of sequence %d: parent %d belongs to sequence %d", i, r->seq, r->parent,
                   c->s->rows[r->parent].seq);
    const struct step_seq *q = &c->s->seqs[r->seq];
    int64_t pos = r->parent >= 0 ? (int64_t)c->s->rows[r->parent].pos + 1 : q->len;
    if (r->pos != pos) return BAD("step row %d: position %d, expected %lld", i, r->pos, (long long)pos);
    int seq = r->seq;
    bool follows = r->parent == c->last[seq];
    if (is_commit(c)) {
        if (!follows)
            return BAD("step row %d: an accepted path is a chain; parent %d, expected %d", i, r->parent, c->last[seq]);
        if (r->slot < r->pos || r->slot < c->slot_end[seq] || r->slot - q->len >= STEP_WINDOW_MAX)
            return BAD("step row %d: slot %d; accepted rows come in the verify step's order, from position %d on", i,
                       r->slot, r->pos);
    } else if (r->slot != (int64_t)q->len + c->n_rows[seq]) {
        return BAD("step row %d: slot %d, expected %lld: slots follow the order of a sequence's rows", i, r->slot,
                   (long long)q->len + c->n_rows[seq]);
    }
    bool is_drafter = p->spec.kind == PROG_INJECT || p->spec.kind == PROG_DRAFT;
    if (is_drafter && !follows)
        return BAD("step row %d: a drafter's rows are chains; parent %d, expected %d", i, r->parent, c->last[seq]);
    c->chain[seq] = c->chain[seq] && follows;
    c->last[seq] = i;
    c->slot_end[seq] = r->slot + 1;
    c->n_rows[seq]++;
    return TERN_OK;
}

static enum tern_status check_seq(struct step_scan *c, int i) {
    const struct step_seq *q = &c->s->seqs[i];
    if (q->len < 0 || q->len > STEP_POS_MAX)
        return BAD("step sequence %d: length %d; 0 to %d are possible", i, q->len, STEP_POS_MAX);
    if (c->p->spec.kind == PROG_ENCODER && q->len != 0)
        return BAD("step sequence %d: the encoder has no committed context, found length %d", i, q->len);
    int n_slots = c->s->pool ? c->s->pool->n_slots : 0;
    if (c->p->has_conv && (q->conv_in < -1 || q->conv_in >= n_slots))
        return BAD("step sequence %d: conv slot %d to read; the pool has %d", i, q->conv_in, n_slots);
    if (c->p->has_conv && (q->conv_out < -1 || q->conv_out >= n_slots))
        return BAD("step sequence %d: conv slot %d to write; the pool has %d", i, q->conv_out, n_slots);
    if (c->p->has_conv && q->len > 0 && q->conv_in < 0)
        return BAD("step sequence %d: %d committed positions but no conv slot to read", i, q->len);
    if ((c->s->flags & STEP_KEEP_ROWS) && q->conv_out >= 0)
        return BAD("step sequence %d: a verify step writes no conv slot, found %d; a commit does", i, q->conv_out);
    return TERN_OK;
}

// After the rows: what the sequence writes.
static enum tern_status check_seq_end(struct step_scan *c, int i) {
    const struct step_seq *q = &c->s->seqs[i];
    int expected = c->chain[i] ? c->last[i] : -1;
    if (q->row_last != expected)
        return BAD("step sequence %d: last row %d of its chain, expected %d", i, q->row_last, expected);
    if (c->n_rows[i] > 0 && q->conv_out >= 0 && !c->chain[i])
        return BAD("step sequence %d: rows that branch cannot write the state; verify with STEP_KEEP_ROWS, then commit",
                   i);
    if (is_commit(c) && c->p->has_conv && c->n_rows[i] > 0 && q->conv_out < 0)
        return BAD("step sequence %d: a commit needs a conv slot to write", i);
    if (!c->p->has_attn) return TERN_OK;
    int64_t used = MAX((int64_t)q->len, (int64_t)c->slot_end[i]);
    if (used > (int64_t)q->n_blocks * OP_BLOCK)
        return BAD("step sequence %d: %lld positions; its table of %d blocks holds %lld", i, (long long)used,
                   q->n_blocks, (long long)q->n_blocks * OP_BLOCK);
    if (used > 0 && !q->blocks) return BAD("step sequence %d: no block table", i);
    for (int j = 0; j < (int)((used + OP_BLOCK - 1) / OP_BLOCK); j++)
        if (q->blocks[j] < 0 || q->blocks[j] >= c->s->pool->n_blocks)
            return BAD("step sequence %d: block %d at place %d of its table; the pool has %d", i, q->blocks[j], j,
                       c->s->pool->n_blocks);
    return TERN_OK;
}

static enum tern_status check_taps(struct step_scan *c) {
    const struct step *s = c->s;
    int window = is_commit(c) ? s->pool->layout.window : s->n_rows;
    for (int i = 0; i < s->n_rows; i++) {
        const int16_t *t = s->taps + (size_t)i * (size_t)s->n_taps;
        const struct step_seq *q = &s->seqs[s->rows[i].seq];
        for (int j = 0; j < s->n_taps; j++) {
            if (t[j] == STEP_TAP_ZERO) {
                // A tap of a causal step is compared below.
            } else if (t[j] >= 0) {
                if (t[j] >= window) return BAD("step row %d: tap %d reads row %d of %d", i, j, t[j], window);
                if (!is_commit(c) && s->rows[t[j]].seq != s->rows[i].seq)
                    return BAD("step row %d: tap %d reads row %d of another sequence", i, j, t[j]);
            } else if (t[j] < STEP_TAP_STORED(s->n_taps - 2) || q->conv_in < 0) {
                return BAD("step row %d: tap %d reads stored row %d; %d are stored", i, j, -1 - t[j],
                           q->conv_in < 0 ? 0 : s->n_taps - 1);
            }
            int16_t causal = is_commit(c) || (s->flags & STEP_FULL) ? t[j] : step_causal_tap(s, i, s->n_taps - 1 - j);
            if (t[j] != causal)
                return BAD("step row %d: tap %d is %d, expected %d (the row's ancestors, oldest first)", i, j, t[j],
                           causal);
        }
    }
    return TERN_OK;
}

// Blocks that a sequence writes, as places in its table.
static void written_range(const struct step_scan *c, int seq, int *begin, int *end) {
    *begin = c->s->seqs[seq].len / OP_BLOCK;
    *end = c->n_rows[seq] > 0 ? int_div_up(c->slot_end[seq], OP_BLOCK) : *begin;
}

// A block holds absolute positions, so a block that two tables share lies at the same place of both.
static enum tern_status check_block_owner(struct step_scan *c, int a, int b) {
    const struct step_seq *qa = &c->s->seqs[a], *qb = &c->s->seqs[b];
    int a_begin, a_end, b_begin, b_end;
    written_range(c, a, &a_begin, &a_end);
    written_range(c, b, &b_begin, &b_end);
    int b_used = MAX(int_div_up(qb->len, OP_BLOCK), b_end);
    for (int i = a_begin; i < a_end; i++) {
        bool shared = a != b && i < b_used && qb->blocks[i] == qa->blocks[i];
        for (int j = b_begin; j < b_end && !shared; j++) shared = (a != b || i != j) && qb->blocks[j] == qa->blocks[i];
        if (shared)
            return BAD("step: sequence %d writes block %d, which sequence %d uses too; copy it first", a, qa->blocks[i],
                       b);
    }
    return TERN_OK;
}

static enum tern_status check_sharing(struct step_scan *c) {
    const struct step *s = c->s;
    for (int a = 0; a < s->n_seqs; a++)
        for (int b = 0; b < s->n_seqs; b++) {
            const struct step_seq *qa = &s->seqs[a], *qb = &s->seqs[b];
            if (c->p->has_attn) TRY(check_block_owner(c, a, b));
            if (a == b || !c->p->has_conv || qa->conv_out < 0) continue;
            if (qa->conv_out == qb->conv_out || qa->conv_out == qb->conv_in)
                return BAD("step: sequence %d writes conv slot %d, which sequence %d uses too", a, qa->conv_out, b);
        }
    return TERN_OK;
}

static enum tern_status check_out_rows(struct step_scan *c) {
    const struct step *s = c->s;
    const struct prog *p = c->p;
    if (p->spec.kind == PROG_ENCODER) return TERN_OK; // gives all rows
    if (s->n_out < 0 || s->n_out > s->n_rows) return BAD("step: %d rows with output of %d", s->n_out, s->n_rows);
    if (s->n_out == 0) return TERN_OK;
    if (!p->has_head)
        return BAD("step: %d rows want output of a program (%s) without a head", s->n_out,
                   prog_kind_name(p->spec.kind));
    if (s->n_out > p->n_out_max) return BAD("step: %d rows want output; the program serves %d", s->n_out, p->n_out_max);
    if (!s->out_rows) return BAD("step: no array of rows with output");
    for (int i = 0; i < s->n_out; i++)
        if (s->out_rows[i] < 0 || s->out_rows[i] >= s->n_rows || (i > 0 && s->out_rows[i] <= s->out_rows[i - 1]))
            return BAD("step: output %d of row %d; rows ascend from 0 to %d", i, s->out_rows[i], s->n_rows - 1);
    return TERN_OK;
}

uint64_t prog_port_bytes(const struct prog *p, const struct step *s, enum prog_port port) {
    const struct model_hyper *h = p->hyper;
    uint64_t rows = (uint64_t)s->n_rows, out = (uint64_t)s->n_out, head_dim = (uint64_t)h->head_dim;
    if (!(p->ports & (1u << port))) return 0;
    // Bounded by the limits of model.h and STEP_WINDOW_MAX: no product comes near 64 bits.
    switch (port) {
    case PORT_ROWS_IN: return rows * (uint64_t)prog_rows_cols(p, true) * sizeof(float);
    case PORT_ROWS_OUT: return rows * (uint64_t)prog_rows_cols(p, false) * sizeof(float);
    case PORT_QKV: return rows * (uint64_t)(h->n_head + 2 * h->n_head_kv) * head_dim * sizeof(float);
    case PORT_ATTN: return rows * (uint64_t)h->n_head * head_dim * sizeof(float);
    case PORT_LOGITS: return out * (uint64_t)h->n_vocab * sizeof(float);
    case PORT_ARGMAX: return out * sizeof(struct prog_argmax);
    case PORT_FEATURES: return rows * (uint64_t)p->spec.n_features * (uint64_t)h->n_embd * sizeof(float);
    case PORT_HIDDEN: return (p->has_head ? out : rows) * (uint64_t)h->n_embd * sizeof(float);
    }
    return 0;
}

static enum tern_status check_ports(struct step_scan *c) {
    for (int i = 0; i < (int)ARRAY_LEN(c->s->ports); i++) {
        if (prog_port_bytes(c->p, c->s, (enum prog_port)i) > 0 && !c->s->ports[i].buf)
            return BAD("step: port %s of the program (%s) is not bound", prog_port_name(i),
                       prog_kind_name(c->p->spec.kind));
        if (c->s->ports[i].offset % sizeof(float))
            return BAD("step: port %s at byte %llu, no multiple of %zu", prog_port_name(i),
                       (unsigned long long)c->s->ports[i].offset, sizeof(float));
    }
    return TERN_OK;
}

enum tern_status step_check(const struct prog *p, const struct step *s, struct tern_err *err) {
    struct step_scan scan;
    struct step_scan *c = &scan;
    c->p = p;
    c->s = s;
    c->err = err;
    TRY(check_counts(c));
    if (p->spec.kind == PROG_LINEAR) return check_ports(c);
    for (int i = 0; i < s->n_seqs; i++) {
        c->n_rows[i] = 0;
        c->last[i] = -1;
        c->slot_end[i] = 0;
        c->chain[i] = true;
    }
    TRY(check_pool(c));
    for (int i = 0; i < s->n_seqs; i++) TRY(check_seq(c, i));
    for (int i = 0; i < s->n_rows; i++) TRY(check_row(c, i));
    for (int i = 0; i < s->n_seqs; i++) TRY(check_seq_end(c, i));
    if (p->has_conv) TRY(check_taps(c));
    if (p->needs_state) TRY(check_sharing(c));
    TRY(check_out_rows(c));
    return check_ports(c);
}
