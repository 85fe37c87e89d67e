// Building steps. Every use of a step (prefill, decode, verification of a chain or tree, several sequences, texts read
// in both directions, the accepted path of a commit) is the same rows with other parents and taps, so there is one way
// to append a row; the public functions differ in how they choose its parent and taps.
//
// K/V slots follow the order of a sequence's rows: in a chain that is the position, in a tree siblings lie side by side
// until a commit moves the accepted ones to their positions.
#include "base/base.h"
#include "prog/prog_int.h"

enum tern_status step_builder_init(struct step_builder *b, struct arena *a, int window, int n_taps, int seqs_cap,
                                   struct tern_err *err) {
    if (window < 1 || window > STEP_WINDOW_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "step: a window of %d rows; 1 to %d are possible", window,
                       STEP_WINDOW_MAX);
    if (n_taps < 0 || n_taps > OP_CONV_LEN_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "step: %d taps; 0 to %d are possible", n_taps, OP_CONV_LEN_MAX);
    if (seqs_cap < 1 || seqs_cap > STEP_SEQS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "step: %d sequences; 1 to %d are possible", seqs_cap, STEP_SEQS_MAX);
    size_t n = (size_t)window;
    *b = (struct step_builder){
        .window = window,
        .n_taps = n_taps,
        .seqs_cap = seqs_cap,
        .rows = arena_calloc(a, n, sizeof(struct step_row)),
        .taps = n_taps > 0 ? arena_calloc(a, n * (size_t)n_taps, sizeof(int16_t)) : NULL,
        .out_rows = arena_calloc(a, n, sizeof(int16_t)),
        .seqs = arena_calloc(a, (size_t)seqs_cap, sizeof(struct step_seq)),
        .last_row = arena_calloc(a, (size_t)seqs_cap, sizeof(int32_t)),
    };
    if (!b->rows || (n_taps > 0 && !b->taps) || !b->out_rows || !b->seqs || !b->last_row)
        return err_set(err, TERN_NO_MEMORY, "step: no memory for a window of %d rows and %d sequences", window,
                       seqs_cap);
    return TERN_OK;
}

void step_begin(struct step_builder *b, const struct state_pool *pool, uint32_t flags) {
    b->step = (struct step){
        .flags = flags,
        .rows = b->rows,
        .taps = b->taps,
        .n_taps = b->n_taps,
        .seqs = b->seqs,
        .pool = pool,
        .out_rows = b->out_rows,
    };
}

int step_add_seq(struct step_builder *b, const int32_t *blocks, int n_blocks, int32_t len, int32_t conv_in,
                 int32_t conv_out) {
    int i = b->step.n_seqs;
    if (i >= b->seqs_cap) TERN_BUG("step: more than %d sequences", b->seqs_cap);
    b->seqs[i] = (struct step_seq){
        .blocks = blocks,
        .n_blocks = n_blocks,
        .len = len,
        .conv_in = conv_in,
        .conv_out = conv_out,
        .row_last = -1,
    };
    b->last_row[i] = -1;
    b->step.n_seqs++;
    return i;
}

static int newest_row(const struct step_builder *b, int seq) {
    if (seq < 0 || seq >= b->step.n_seqs) TERN_BUG("step: row for sequence %d of %d", seq, b->step.n_seqs);
    return b->last_row[seq];
}

static int row_append(struct step_builder *b, int seq, int32_t token, int parent, bool wants_out) {
    int i = b->step.n_rows;
    if (i >= b->window) TERN_BUG("step: more than %d rows", b->window);
    int last = newest_row(b, seq);
    if (parent >= i || (parent >= 0 && b->rows[parent].seq != seq))
        TERN_BUG("step: row %d of sequence %d cannot follow row %d", i, seq, parent);
    const struct step_seq *q = &b->seqs[seq];
    b->rows[i] = (struct step_row){
        .token = token,
        .pos = parent >= 0 ? b->rows[parent].pos + 1 : q->len,
        .slot = last >= 0 ? b->rows[last].slot + 1 : q->len,
        .seq = (int16_t)seq,
        .parent = (int16_t)(parent >= 0 ? parent : STEP_NO_PARENT),
    };
    b->last_row[seq] = i;
    b->step.n_rows++;
    if (wants_out) b->out_rows[b->step.n_out++] = (int16_t)i;
    return i;
}

static void taps_causal(struct step_builder *b, int row) {
    int16_t *t = b->taps + (size_t)row * (size_t)b->n_taps;
    for (int j = 0; j < b->n_taps; j++) t[j] = step_causal_tap(&b->step, row, b->n_taps - 1 - j);
}

// Taps before the row as in a causal step; taps behind it are zero until the rows they read are appended.
static void taps_centred(struct step_builder *b, int row) {
    int before = (b->n_taps - 1) / 2;
    int after = b->n_taps - 1 - before;
    int16_t *t = b->taps + (size_t)row * (size_t)b->n_taps;
    for (int j = 0; j <= before; j++) t[j] = step_causal_tap(&b->step, row, before - j);
    for (int j = 1; j <= after; j++) {
        t[before + j] = STEP_TAP_ZERO;
        int earlier = step_ancestor(&b->step, row, j);
        if (earlier >= 0) b->taps[(size_t)earlier * (size_t)b->n_taps + (size_t)(before + j)] = (int16_t)row;
    }
}

int step_add_chain_row(struct step_builder *b, int seq, int32_t token, bool wants_out) {
    return step_add_tree_row(b, seq, token, newest_row(b, seq), wants_out);
}

int step_add_tree_row(struct step_builder *b, int seq, int32_t token, int parent, bool wants_out) {
    int row = row_append(b, seq, token, parent, wants_out);
    taps_causal(b, row);
    return row;
}

int step_add_full_row(struct step_builder *b, int seq, int32_t token, bool centred, bool wants_out) {
    int row = row_append(b, seq, token, newest_row(b, seq), wants_out);
    if (centred && b->n_taps > 0)
        taps_centred(b, row);
    else
        taps_causal(b, row);
    return row;
}

int step_add_path_row(struct step_builder *b, int seq, const struct step *v, int row) {
    if (v == &b->step || v->n_taps != b->n_taps || row < 0 || row >= v->n_rows)
        TERN_BUG("step: row %d of a verify step with %d rows and %d taps cannot be taken over", row, v->n_rows,
                 v->n_taps);
    int i = row_append(b, seq, v->rows[row].token, newest_row(b, seq), false);
    b->rows[i].pos = v->rows[row].pos;
    b->rows[i].slot = v->rows[row].slot;
    size_t n = (size_t)b->n_taps;
    if (n > 0) memcpy(b->taps + (size_t)i * n, v->taps + (size_t)row * n, n * sizeof(int16_t));
    return i;
}

const struct step *step_end(struct step_builder *b) {
    struct step *s = &b->step;
    // -1: no row yet; -2: the rows are no single chain.
    for (int i = 0; i < s->n_seqs; i++) b->last_row[i] = -1;
    for (int i = 0; i < s->n_rows; i++) {
        int32_t *last = &b->last_row[b->rows[i].seq];
        *last = *last == b->rows[i].parent ? i : -2;
    }
    for (int i = 0; i < s->n_seqs; i++) b->seqs[i].row_last = (int16_t)MAX(b->last_row[i], -1);
    return s;
}

int step_ancestor(const struct step *s, int row, int n) {
    for (; n > 0; n--) {
        row = s->rows[row].parent;
        if (row < 0) return -n; // -1 - (n - 1): the (n-1)-th newest committed position
    }
    return row;
}

int16_t step_causal_tap(const struct step *s, int row, int n) {
    int a = step_ancestor(s, row, n);
    if (a >= 0) return (int16_t)a;
    return s->seqs[s->rows[row].seq].conv_in < 0 ? STEP_TAP_ZERO : STEP_TAP_STORED(-1 - a);
}

bool step_seq_is_chain(const struct step *s, int seq) {
    int last = STEP_NO_PARENT;
    for (int i = 0; i < s->n_rows; i++) {
        const struct step_row *r = &s->rows[i];
        if (r->seq != seq) continue;
        if (r->parent != last || r->slot != r->pos) return false;
        last = i;
    }
    return true;
}
