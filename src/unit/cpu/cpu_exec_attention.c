// The attention cores of a step.
//
// Work is cut into tasks: a chunk of neighbouring rows of one sequence times one K/V head. A task walks the blocks of
// its context once; all query heads of the group and all rows of the chunk share each block while it is in the cache.
// Tasks are taken from a counter. When they are too few to keep the team busy behind a long context (few rows, heads
// that do not divide by the threads), they are cut once more along the context, into splits of OP_ATTN_SPLIT blocks
// whose partials are stored and then combined in order. None of this changes a bit: a row's result is defined by its
// blocks, by absolute position (op.h).
//
// A row of a tree sees its ancestors only. Whole committed blocks are read like anyone's; from the last block border at
// or before the committed length on, a task keeps the row's positions in a private tail, into which ancestors' stored
// K/V are moved. Rows come parents first, so a row mostly finds its path there already and adds itself.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"

// ---------------------------------------------------------------------------------------------------------- the plan

static int group_size(const struct cpu_run *r) { return r->p->prog->hyper->n_head / r->layout->n_head_kv; }

// What every row sees, and which sequences are chains.
static void rows_scan(struct cpu_run *r, bool *chain) {
    const struct step *s = r->s;
    int32_t last[STEP_SEQS_MAX], n_rows[STEP_SEQS_MAX];
    for (int i = 0; i < s->n_seqs; i++) {
        last[i] = STEP_NO_PARENT;
        n_rows[i] = 0;
        chain[i] = true;
    }
    for (int i = 0; i < s->n_rows; i++) {
        const struct step_row *row = &s->rows[i];
        if (row->parent != last[row->seq] || row->slot != row->pos) chain[row->seq] = false;
        last[row->seq] = i;
        n_rows[row->seq]++;
    }
    for (int i = 0; i < s->n_rows; i++) {
        const struct step_row *row = &s->rows[i];
        bool full = (s->flags & STEP_FULL) != 0;
        r->p->attn.n_visible[i] = full ? s->seqs[row->seq].len + n_rows[row->seq] : row->pos + 1;
    }
}

static void chunks_make(struct cpu_run *r, const bool *chain, int rows_max) {
    struct attn_plan *a = &r->p->attn;
    const struct step *s = r->s;
    a->n_chunks = 0;
    a->n_blocks_max = 0;
    for (int i = 0; i < s->n_rows; i++) {
        int seq = s->rows[i].seq, n_blocks = int_div_up(a->n_visible[i], OP_BLOCK);
        struct attn_chunk *c = a->n_chunks > 0 ? &a->chunks[a->n_chunks - 1] : NULL;
        if (!c || c->seq != seq || c->n_rows >= rows_max) {
            c = &a->chunks[a->n_chunks++];
            *c = (struct attn_chunk){.row = i, .seq = seq, .tree = !chain[seq]};
        }
        c->n_rows++;
        c->n_blocks = MAX(c->n_blocks, n_blocks);
        c->n_blocks_shared = c->tree ? s->seqs[seq].len / OP_BLOCK : c->n_blocks;
        a->n_blocks_max = MAX(a->n_blocks_max, n_blocks);
    }
}

void attn_plan_make(struct cpu_run *r) {
    struct attn_plan *a = &r->p->attn;
    int n_threads = r->u->n_threads, heads = r->layout->n_head_kv, pairs = r->n_rows * r->p->prog->hyper->n_head;
    int rows_max = MAX(ATTN_PAIRS / group_size(r), 1);
    bool chain[STEP_SEQS_MAX];
    rows_scan(r, chain);
    chunks_make(r, chain, rows_max);
    int n_tasks = a->n_chunks * heads;
    a->splits = false;
    if (n_tasks % n_threads == 0 || n_tasks >= 4 * n_threads) return;
    if (a->n_blocks_max > 2 * OP_ATTN_SPLIT && pairs <= ATTN_SPLIT_PAIRS) {
        a->splits = true;
        a->wave = MIN(ATTN_PARTIALS / pairs, int_div_up(a->n_blocks_max, OP_ATTN_SPLIT));
        return;
    }
    chunks_make(r, chain, MIN(MAX(r->n_rows * heads / (2 * n_threads), 1), rows_max));
}

// ---------------------------------------------------------------------------------------------------------- one task

struct attn_task {
    const struct cpu_run *r;
    const struct cpu_op *op;
    const struct attn_chunk *chunk;
    struct cpu_member *m;
    int head;             // K/V head
    int query, n_queries; // of the head's group; row i's pairs are i * n_queries …
    int begin, end;       // blocks
    int head_dim;
    int wave_first; // splits: the first one in flight
    bool splits;    // partials of splits are stored; never in layers with a window
    int window;     // of the layer; 0: none
    // By pair: its query, and its running results.
    const float *q[ATTN_PAIRS];
    struct op_attn_part *split[ATTN_PAIRS], *total[ATTN_PAIRS];
};

struct halves {
    uint8_t *k, *v; // of one block and head
};

static void part_copy(struct op_attn_part *to, const struct op_attn_part *from, int head_dim) {
    to->max = from->max;
    to->sum = from->sum;
    memcpy(to->out, from->out, (size_t)head_dim * sizeof(float));
}

// Offset of a pair's query head in a row of q or of the result.
static size_t pair_column(const struct attn_task *t, int pair) {
    int query = t->head * group_size(t->r) + t->query + pair % t->n_queries;
    return (size_t)query * (size_t)t->head_dim;
}

static int row_blocks(const struct attn_task *t, int row) {
    return int_div_up(t->r->p->attn.n_visible[t->chunk->row + row], OP_BLOCK);
}

// First position that a row of the chunk sees.
static int row_first(const struct attn_task *t, int row) {
    int n_visible = t->r->p->attn.n_visible[t->chunk->row + row];
    return t->window > 0 ? MAX(n_visible - t->window, 0) : 0;
}

static struct op_attn_part *partial_at(const struct attn_task *t, int pair, int split) {
    const struct attn_plan *a = &t->r->p->attn;
    size_t row = (size_t)(t->chunk->row + pair / t->n_queries), n_head = (size_t)t->r->p->prog->hyper->n_head;
    size_t query = pair_column(t, pair) / (size_t)t->head_dim;
    return &a->partials[(row * n_head + query) * (size_t)a->wave + (size_t)(split - t->wave_first)];
}

// Pairs [begin, end), whose split ends with block b and whose first block is b_first: into the totals, or stored.
static void splits_end(const struct attn_task *t, int begin, int end, int b, int b_first) {
    if (!t->splits && b / OP_ATTN_SPLIT > b_first / OP_ATTN_SPLIT) {
        t->r->u->k.attention_combine(t->total + begin, (const struct op_attn_part *const *)(t->split + begin),
                                     end - begin, t->head_dim);
        return;
    }
    for (int i = begin; i < end; i++)
        part_copy(t->splits ? partial_at(t, i, b / OP_ATTN_SPLIT) : t->total[i], t->split[i], t->head_dim);
}

// Block b for rows [begin, end) of the chunk, which begin at the same block, all see some of b's positions, and the
// later ones no fewer; its first `skipped` positions are not in h. The first block of a split, or of a row, starts it,
// others join.
static void rows_run(const struct attn_task *t, int begin, int end, int b, const struct halves *h,
                     const struct halves *next, int skipped) {
    int b_first = row_first(t, begin) / OP_BLOCK;
    const struct cpu_kernels *k = &t->r->u->k;
    const int32_t *n_visible = t->r->p->attn.n_visible + t->chunk->row;
    int nq = t->n_queries, first = begin * nq, n = (end - begin) * nq, n_pos[ATTN_PAIRS];
    bool starts = b % OP_ATTN_SPLIT == 0 || b == b_first, ends = b % OP_ATTN_SPLIT == OP_ATTN_SPLIT - 1;
    for (int i = begin, at = 0; i < end; i++) {
        const int sees = MIN(n_visible[i] - b * OP_BLOCK, OP_BLOCK) - skipped;
        for (int j = 0; j < nq; j++) n_pos[at++] = sees;
    }
    k->attention_block[t->r->layout->kv_type](t->q + first, n, h->k, h->v, next->k, next->v, n_pos, t->head_dim,
                                              !starts, t->split + first);
    if (ends) splits_end(t, first, first + n, b, b_first);
    for (int i = begin; !ends && i < end; i++)
        if (b == row_blocks(t, i) - 1) splits_end(t, i * nq, (i + 1) * nq, b, b_first);
}

static struct halves table_block(const struct attn_task *t, int b) {
    int32_t block = t->r->s->seqs[t->chunk->seq].blocks[b];
    return (struct halves){t->r->kv + state_k_offset(t->r->layout, block, t->op->op->state_index, t->head),
                           t->r->kv + state_v_offset(t->r->layout, block, t->op->op->state_index, t->head)};
}

// The first block of a row's window, of which it sees the positions from `first` on.
static void shifted_run(const struct attn_task *t, int row, int b, const struct halves *h, int first) {
    struct halves to = {t->m->shifted, t->m->shifted + t->r->layout->half_bytes};
    op_kv_shift(t->r->layout->kv_type, to.k, to.v, h->k, h->v, first, t->head_dim);
    rows_run(t, row, row + 1, b, &to, &to, first);
}

// A block of the table for rows with a window.
static void windowed_block(const struct attn_task *t, int b, const struct halves *here, const struct halves *next) {
    const int32_t *n_visible = t->r->p->attn.n_visible + t->chunk->row;
    for (int i = 0, end; i < t->chunk->n_rows; i = end) {
        int n_pos = MIN(n_visible[i] - b * OP_BLOCK, OP_BLOCK), first = row_first(t, i), b_first = first / OP_BLOCK;
        end = i + 1;
        if (n_pos <= 0 || b < b_first) continue;
        if (b == b_first && first % OP_BLOCK != 0) {
            shifted_run(t, i, b, here, first % OP_BLOCK);
            continue;
        }
        for (; end < t->chunk->n_rows; end++)
            if (MIN(n_visible[end] - b * OP_BLOCK, OP_BLOCK) != n_pos || row_first(t, end) / OP_BLOCK != b_first ||
                (b == b_first && row_first(t, end) != first))
                break;
        rows_run(t, i, end, b, here, next, 0);
    }
}

// A block of the table for all rows that see some of it, as far as neighbours see no less than those before them.
static void shared_block(const struct attn_task *t, int b) {
    const int32_t *n_visible = t->r->p->attn.n_visible + t->chunk->row;
    struct halves here = table_block(t, b), next = here;
    if (b + 1 < MIN(t->end, t->chunk->n_blocks_shared)) next = table_block(t, b + 1);
    if (t->window > 0) {
        windowed_block(t, b, &here, &next);
        return;
    }
    for (int i = 0, end; i < t->chunk->n_rows; i = end) {
        end = i + 1;
        if (n_visible[i] <= b * OP_BLOCK) continue;
        while (end < t->chunk->n_rows &&
               MIN(n_visible[end], (b + 1) * OP_BLOCK) >= MIN(n_visible[end - 1], (b + 1) * OP_BLOCK))
            end++;
        rows_run(t, i, end, b, &here, &next, 0);
    }
}

// ---------------------------------------------------------------------------------------------------------- trees

static struct halves tail_block(const struct attn_task *t, int b) {
    size_t half = (size_t)t->r->layout->half_bytes;
    uint8_t *at = t->m->tail + (size_t)(b - t->chunk->n_blocks_shared) * 2 * half;
    return (struct halves){at, at + half};
}

// The committed positions behind the last block border. What lies behind them in the block is replaced before use.
static void tail_begin(const struct attn_task *t) {
    int len = t->r->s->seqs[t->chunk->seq].len, b = t->chunk->n_blocks_shared;
    if (len % OP_BLOCK != 0) {
        struct halves to = tail_block(t, b), from = table_block(t, b);
        memcpy(to.k, from.k, (size_t)t->r->layout->half_bytes);
        memcpy(to.v, from.v, (size_t)t->r->layout->half_bytes);
    }
    for (int i = 0; i < t->r->n_rows; i++) t->m->tail_rows[i] = -1;
}

// Puts the path of a row into the tail. Entries of tail_rows behind a replaced one belong to another branch.
static void tail_path(const struct attn_task *t, int row) {
    const struct step *s = t->r->s;
    const struct step_seq *q = &s->seqs[t->chunk->seq];
    int32_t *held = t->m->tail_rows;
    for (int d = s->rows[row].pos - q->len + 1; d < t->r->n_rows && held[d] >= 0; d++) held[d] = -1;
    for (int i = row; i >= 0; i = s->rows[i].parent) {
        int pos = s->rows[i].pos, slot = s->rows[i].slot;
        if (held[pos - q->len] == i) break;
        held[pos - q->len] = i;
        struct halves to = tail_block(t, pos / OP_BLOCK), from = table_block(t, slot / OP_BLOCK);
        op_kv_move(t->r->layout->kv_type, to.k, to.v, pos % OP_BLOCK, from.k, from.v, slot % OP_BLOCK, t->head_dim);
    }
}

static void tree_rows(const struct attn_task *t) {
    if (t->end <= t->chunk->n_blocks_shared) return;
    tail_begin(t);
    for (int i = 0; i < t->chunk->n_rows; i++) {
        int end = MIN(t->end, row_blocks(t, i));
        tail_path(t, t->chunk->row + i);
        int first = row_first(t, i), b_first = first / OP_BLOCK;
        for (int b = MAX(MAX(t->begin, t->chunk->n_blocks_shared), b_first); b < end; b++) {
            struct halves h = tail_block(t, b);
            if (b == b_first && first % OP_BLOCK != 0)
                shifted_run(t, i, b, &h, first % OP_BLOCK);
            else
                rows_run(t, i, i + 1, b, &h, &h, 0);
        }
    }
}

// Queries of neighbouring rows lie a power of two apart as often as not, where they push one another out of the
// first-level cache; side by side they do not.
static void pairs_init(struct attn_task *t) {
    for (int pair = 0; pair < t->chunk->n_rows * t->n_queries; pair++) {
        size_t row = (size_t)(t->chunk->row + pair / t->n_queries), hd = (size_t)t->head_dim;
        float *q = t->m->q + (size_t)pair * hd;
        memcpy(q, t->op->in[0] + row * (size_t)t->op->in_cols[0] + pair_column(t, pair), hd * sizeof(float));
        t->q[pair] = q;
        t->split[pair] = &t->m->split[pair];
        t->total[pair] = &t->m->total[pair];
    }
}

static void task_run(struct attn_task *t) {
    pairs_init(t);
    for (int b = t->begin; b < MIN(t->end, t->chunk->n_blocks_shared); b++) shared_block(t, b);
    if (t->chunk->tree) tree_rows(t);
}

// ---------------------------------------------------------------------------------------------------------- the op

static void rows_finish(const struct attn_task *t) {
    for (int pair = 0; pair < t->chunk->n_rows * t->n_queries; pair++) {
        size_t row = (size_t)(t->chunk->row + pair / t->n_queries);
        float *y = t->op->out[0] + row * (size_t)t->op->out_cols[0] + pair_column(t, pair);
        t->r->u->k.attention_finish(&t->m->total[pair], t->head_dim, y);
    }
}

// A chunk and K/V head over blocks [begin, end), in passes over query heads where the group is larger than the buffers.
static void chunk_run(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op, int chunk, int head,
                      int begin, int end, int wave_first) {
    int group = group_size(r);
    for (int query = 0; query < group; query += ATTN_PAIRS) {
        struct attn_task t = {.r = r,
                              .op = op,
                              .chunk = &r->p->attn.chunks[chunk],
                              .m = &r->p->members[self->index],
                              .head = head,
                              .query = query,
                              .n_queries = MIN(group - query, ATTN_PAIRS),
                              .begin = begin,
                              .head_dim = r->layout->head_dim,
                              .wave_first = wave_first,
                              .window = r->p->prog->model->layers[op->op->layer].window};
        t.end = MIN(end, t.chunk->n_blocks);
        t.splits = r->p->attn.splits && t.window == 0;
        if (t.window > 0) {
            t.begin = row_first(&t, 0) / OP_BLOCK;
            for (int i = 1; i < t.chunk->n_rows; i++) t.begin = MIN(t.begin, row_first(&t, i) / OP_BLOCK);
        }
        task_run(&t);
        if (!t.splits) rows_finish(&t);
    }
}

// The splits of one wave, in order, into the totals; with the last one the results.
static void wave_combine(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op, int first,
                         bool last) {
    const struct attn_plan *a = &r->p->attn;
    int n_head = r->p->prog->hyper->n_head, hd = r->layout->head_dim, begin, end;
    team_share(self, r->n_rows * n_head, 1, &begin, &end);
    for (int i = begin; i < end; i++) {
        int row = i / n_head, n_splits = int_div_up(int_div_up(a->n_visible[row], OP_BLOCK), OP_ATTN_SPLIT);
        for (int s = first; s < MIN(first + a->wave, n_splits); s++) {
            const struct op_attn_part *p = &a->partials[(size_t)i * (size_t)a->wave + (size_t)(s - first)];
            struct op_attn_part *total = &a->totals[i];
            if (s == 0)
                part_copy(total, p, hd);
            else
                r->u->k.attention_combine(&total, &p, 1, hd);
        }
        float *y = op->out[0] + (size_t)row * (size_t)op->out_cols[0] + (size_t)(i % n_head) * (size_t)hd;
        if (last) r->u->k.attention_finish(&a->totals[i], hd, y);
    }
}

static void splits_run(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    const struct attn_plan *a = &r->p->attn;
    int heads = r->layout->n_head_kv, n_splits = int_div_up(a->n_blocks_max, OP_ATTN_SPLIT);
    for (int first = 0; first < n_splits; first += a->wave) {
        int n = MIN(a->wave, n_splits - first), begin, end;
        team_share(self, a->n_chunks * heads * n, 1, &begin, &end);
        for (int i = begin; i < end; i++) {
            int split = first + i % n;
            chunk_run(r, self, op, i / n / heads, i / n % heads, split * OP_ATTN_SPLIT, (split + 1) * OP_ATTN_SPLIT,
                      first);
        }
        team_barrier(self);
        wave_combine(r, self, op, first, first + n >= n_splits);
        if (first + n < n_splits) team_barrier(self);
    }
}

void cpu_exec_attention(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    const struct attn_plan *a = &r->p->attn;
    if (a->splits && r->p->prog->model->layers[op->op->layer].window == 0) {
        splits_run(r, self, op);
        return;
    }
    int heads = r->layout->n_head_kv, n_tasks = a->n_chunks * heads;
    for (;;) {
        int i = atomic_fetch_add_explicit(&r->p->counters[op->number], 1, memory_order_relaxed);
        if (i >= n_tasks) return;
        // The longest context first: what is left at the end is short.
        int chunk = a->n_chunks - 1 - i / heads;
        chunk_run(r, self, op, chunk, i % heads, 0, a->chunks[chunk].n_blocks, 0);
    }
}
