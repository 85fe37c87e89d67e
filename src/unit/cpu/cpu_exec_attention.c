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

static struct op_attn_part *partial_at(const struct attn_task *t, int pair, int split) {
    const struct attn_plan *a = &t->r->p->attn;
    size_t row = (size_t)(t->chunk->row + pair / t->n_queries), n_head = (size_t)t->r->p->prog->hyper->n_head;
    size_t query = pair_column(t, pair) / (size_t)t->head_dim;
    return &a->partials[(row * n_head + query) * (size_t)a->wave + (size_t)(split - t->wave_first)];
}

// Takes in block b of a pair: into its split, and a finished split into the total.
static void pair_add(const struct attn_task *t, int pair, int b) {
    const struct cpu_kernels *k = &t->r->u->k;
    struct op_attn_part *split = &t->m->split[pair], *total = &t->m->total[pair];
    int n_blocks = row_blocks(t, pair / t->n_queries);
    if (b % OP_ATTN_SPLIT != 0) k->attention_combine(split, &t->m->block[pair], t->head_dim);
    if (b % OP_ATTN_SPLIT != OP_ATTN_SPLIT - 1 && b != n_blocks - 1) return;
    if (t->r->p->attn.splits)
        part_copy(partial_at(t, pair, b / OP_ATTN_SPLIT), split, t->head_dim);
    else if (b < OP_ATTN_SPLIT)
        part_copy(total, split, t->head_dim);
    else
        k->attention_combine(total, split, t->head_dim);
}

// Block b, of which pairs [begin, end) all see n_pos positions.
static void pairs_run(const struct attn_task *t, int begin, int end, int b, const uint8_t *k_half,
                      const uint8_t *v_half, const uint8_t *k_next, const uint8_t *v_next, int n_pos) {
    const float *q[CPU_ATTN_QUERIES];
    struct op_attn_part *parts[CPU_ATTN_QUERIES];
    cpu_attention_block_fn fn = t->r->u->k.attention_block[t->r->layout->kv_type];
    for (int at = begin; at < end; at += CPU_ATTN_QUERIES) {
        int n = MIN(end - at, CPU_ATTN_QUERIES);
        for (int i = 0; i < n; i++) {
            size_t row = (size_t)(t->chunk->row + (at + i) / t->n_queries);
            q[i] = t->op->in[0] + row * (size_t)t->op->in_cols[0] + pair_column(t, at + i);
            parts[i] = b % OP_ATTN_SPLIT == 0 ? &t->m->split[at + i] : &t->m->block[at + i];
        }
        fn(q, n, k_half, v_half, k_next, v_next, n_pos, t->head_dim, parts);
        for (int i = 0; i < n; i++) pair_add(t, at + i, b);
    }
}

static const uint8_t *k_at(const struct attn_task *t, int b) {
    int32_t block = t->r->s->seqs[t->chunk->seq].blocks[b];
    return t->r->kv + state_k_offset(t->r->layout, block, t->op->op->state_index, t->head);
}

static const uint8_t *v_at(const struct attn_task *t, int b) {
    int32_t block = t->r->s->seqs[t->chunk->seq].blocks[b];
    return t->r->kv + state_v_offset(t->r->layout, block, t->op->op->state_index, t->head);
}

// A block of the table for all rows that see some of it; neighbours that see as much go together.
static void shared_block(const struct attn_task *t, int b) {
    const int32_t *n_visible = t->r->p->attn.n_visible + t->chunk->row;
    int ahead = b + 1 < MIN(t->end, t->chunk->n_blocks_shared) ? b + 1 : b;
    const uint8_t *k_half = k_at(t, b), *v_half = v_at(t, b), *k_next = k_at(t, ahead), *v_next = v_at(t, ahead);
    for (int i = 0, next; i < t->chunk->n_rows; i = next) {
        int n_pos = MIN(n_visible[i] - b * OP_BLOCK, OP_BLOCK);
        for (next = i + 1; next < t->chunk->n_rows; next++)
            if (MIN(n_visible[next] - b * OP_BLOCK, OP_BLOCK) != n_pos) break;
        if (n_pos > 0) pairs_run(t, i * t->n_queries, next * t->n_queries, b, k_half, v_half, k_next, v_next, n_pos);
    }
}

// ---------------------------------------------------------------------------------------------------------- trees

static uint8_t *tail_half(const struct attn_task *t, int b, bool v) {
    size_t half = (size_t)t->r->layout->half_bytes;
    return t->m->tail + (size_t)(b - t->chunk->n_blocks_shared) * 2 * half + (v ? half : 0);
}

// The committed positions behind the last block border. What lies behind them in the block is replaced before use.
static void tail_begin(const struct attn_task *t) {
    int len = t->r->s->seqs[t->chunk->seq].len, b = t->chunk->n_blocks_shared;
    size_t half = (size_t)t->r->layout->half_bytes;
    if (len % OP_BLOCK != 0) {
        memcpy(tail_half(t, b, false), k_at(t, b), half);
        memcpy(tail_half(t, b, true), v_at(t, b), half);
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
        op_kv_move(t->r->layout->kv_type, tail_half(t, pos / OP_BLOCK, false), tail_half(t, pos / OP_BLOCK, true),
                   pos % OP_BLOCK, k_at(t, slot / OP_BLOCK), v_at(t, slot / OP_BLOCK), slot % OP_BLOCK, t->head_dim);
    }
}

static void tree_rows(const struct attn_task *t) {
    if (t->end <= t->chunk->n_blocks_shared) return;
    tail_begin(t);
    for (int i = 0; i < t->chunk->n_rows; i++) {
        int n_visible = t->r->p->attn.n_visible[t->chunk->row + i];
        int end = MIN(t->end, row_blocks(t, i));
        tail_path(t, t->chunk->row + i);
        for (int b = MAX(t->begin, t->chunk->n_blocks_shared); b < end; b++) {
            const uint8_t *k_half = tail_half(t, b, false), *v_half = tail_half(t, b, true);
            pairs_run(t, i * t->n_queries, (i + 1) * t->n_queries, b, k_half, v_half, k_half, v_half,
                      MIN(n_visible - b * OP_BLOCK, OP_BLOCK));
        }
    }
}

static void task_run(struct attn_task *t) {
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
                              .wave_first = wave_first};
        t.end = MIN(end, t.chunk->n_blocks);
        task_run(&t);
        if (!r->p->attn.splits) rows_finish(&t);
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
            if (s == 0)
                part_copy(&a->totals[i], p, hd);
            else
                r->u->k.attention_combine(&a->totals[i], p, hd);
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
    if (a->splits) {
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
