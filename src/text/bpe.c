// Byte-pair merging.
//
// Short pieces (nearly all words) are merged in an array: find the lowest rank, close the gap, look two pairs up; n is
// so small that this beats any queue. Long pieces (a megabyte of one letter is a single piece) go through a queue of
// (rank, place) with lazy deletion over a linked list of symbols, n log n in the piece. An entry is stale when the rank
// stored for its place is another one; the same pair cannot come back to a place, because symbols only grow.
#include "base/base.h"
#include "text/bpe.h"

#define BPE_SHORT 40 // symbols; above it the queue is faster
#define SLOT_EMPTY UINT64_MAX
#define SLOT_RANK(slot) ((uint32_t)(slot) & ((1u << BPE_RANK_BITS) - 1))

enum tern_status bpe_init(struct bpe *b, int n_merges, struct tern_err *err) {
    *b = (struct bpe){0};
    if (n_merges < 0 || (uint32_t)n_merges > BPE_MERGES_MAX) {
        return err_set(err, TERN_LIMIT, "the tokenizer has %d merges, at most %u are allowed", n_merges,
                       BPE_MERGES_MAX);
    }
    size_t cap = 16;
    while (cap < (size_t)n_merges * 2) cap *= 2;
    b->slots = mem_alloc(cap * sizeof *b->slots);
    b->result = mem_alloc(((size_t)n_merges + 1) * sizeof *b->result);
    if (!b->slots || !b->result) {
        bpe_release(b);
        return err_set(err, TERN_NO_MEMORY, "out of memory for %d merges of the tokenizer", n_merges);
    }
    memset(b->slots, 0xff, cap * sizeof *b->slots);
    b->mask = cap - 1;
    b->seed[0] = hash_seed();
    b->seed[1] = b->seed[0] * 0x9e3779b97f4a7c15u | 1;
    b->n_merges = n_merges;
    return TERN_OK;
}

void bpe_release(struct bpe *b) {
    mem_free(b->slots);
    mem_free(b->result);
    *b = (struct bpe){0};
}

static inline uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << BPE_ID_BITS | (uint32_t)right;
}

static inline uint64_t pair_slot(const struct bpe *b, uint64_t key) {
    uint64_t x = (key ^ b->seed[0]) * b->seed[1];
    x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
    return x >> 32 & b->mask;
}

bool bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t result, uint32_t rank, uint32_t *rank_old) {
    uint64_t key = pair_key(left, right);
    uint64_t i = pair_slot(b, key);
    for (; b->slots[i] != SLOT_EMPTY; i = (i + 1) & b->mask) {
        if (b->slots[i] >> BPE_RANK_BITS != key) continue;
        *rank_old = SLOT_RANK(b->slots[i]);
        return false;
    }
    b->slots[i] = key << BPE_RANK_BITS | rank;
    b->result[rank] = result;
    return true;
}

uint32_t bpe_rank(const struct bpe *b, int32_t left, int32_t right) {
    uint64_t key = pair_key(left, right);
    for (uint64_t i = pair_slot(b, key); b->slots[i] != SLOT_EMPTY; i = (i + 1) & b->mask) {
        if (b->slots[i] >> BPE_RANK_BITS == key) return SLOT_RANK(b->slots[i]);
    }
    return BPE_RANK_NONE;
}

void bpe_work_release(struct bpe_work *w) {
    mem_free(w->ids);
    mem_free(w->rank);
    mem_free(w->next);
    mem_free(w->prev);
    bpe_queue_release(&w->queue);
    *w = (struct bpe_work){.n_steps = w->n_steps, .queue.n_steps = w->queue.n_steps};
}

static bool grow(void **p, size_t n, size_t size) {
    size_t bytes;
    void *grown = size_mul(n, size, &bytes) ? mem_realloc(*p, bytes) : NULL;
    if (!grown) return false;
    *p = grown;
    return true;
}

int32_t *bpe_work_reserve(struct bpe_work *w, size_t n) {
    if (n <= w->cap) return w->ids;
    size_t cap = MAX(MAX(n, w->cap + w->cap / 2), (size_t)256);
    if (!grow((void **)&w->ids, cap, sizeof *w->ids)) return NULL;
    if (!grow((void **)&w->rank, cap, sizeof *w->rank)) return NULL;
    if (!grow((void **)&w->next, cap, sizeof *w->next)) return NULL;
    if (!grow((void **)&w->prev, cap, sizeof *w->prev)) return NULL;
    w->cap = cap;
    return w->ids;
}

static int64_t merge_short(const struct bpe *b, struct bpe_work *w, size_t n) {
    int32_t *ids = w->ids;
    uint32_t *rank = w->rank;
    for (size_t i = 0; i + 1 < n; i++) rank[i] = bpe_rank(b, ids[i], ids[i + 1]);
    while (n > 1) {
        uint32_t best = BPE_RANK_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            if (rank[i] < best) {
                best = rank[i];
                at = i;
            }
        }
        w->n_steps += n;
        if (best == BPE_RANK_NONE) break;
        ids[at] = b->result[best];
        n--;
        for (size_t i = at + 1; i < n; i++) ids[i] = ids[i + 1];
        for (size_t i = at + 1; i + 1 < n; i++) rank[i] = rank[i + 1];
        if (at + 1 < n) rank[at] = bpe_rank(b, ids[at], ids[at + 1]);
        if (at > 0) rank[at - 1] = bpe_rank(b, ids[at - 1], ids[at]);
    }
    return (int64_t)n;
}

#define PLACE_NONE UINT32_MAX

static bool pair_push(struct bpe_work *w, const struct bpe *b, uint32_t place) {
    uint32_t next = w->next[place];
    w->rank[place] = next == PLACE_NONE ? BPE_RANK_NONE : bpe_rank(b, w->ids[place], w->ids[next]);
    if (w->rank[place] == BPE_RANK_NONE) return true;
    return bpe_queue_push(&w->queue, (uint64_t)w->rank[place] << 32 | place);
}

static int64_t merge_long(const struct bpe *b, struct bpe_work *w, size_t n) {
    for (size_t i = 0; i < n; i++) {
        w->prev[i] = i == 0 ? PLACE_NONE : (uint32_t)i - 1;
        w->next[i] = i + 1 == n ? PLACE_NONE : (uint32_t)i + 1;
    }
    for (size_t i = 0; i + 1 < n; i++) {
        if (!pair_push(w, b, (uint32_t)i)) return -1;
    }
    w->rank[n - 1] = BPE_RANK_NONE;
    for (uint64_t top; (top = bpe_queue_pop(&w->queue)) != QUEUE_NONE;) {
        uint32_t place = (uint32_t)top, rank = (uint32_t)(top >> 32);
        if (w->rank[place] != rank) continue;
        uint32_t gone = w->next[place], after = w->next[gone];
        w->ids[place] = b->result[rank];
        w->rank[gone] = BPE_RANK_NONE;
        w->next[place] = after;
        if (after != PLACE_NONE) w->prev[after] = place;
        if (!pair_push(w, b, place)) return -1;
        if (w->prev[place] != PLACE_NONE && !pair_push(w, b, w->prev[place])) return -1;
    }
    int64_t n_left = 0;
    for (uint32_t place = 0; place != PLACE_NONE; place = w->next[place]) w->ids[n_left++] = w->ids[place];
    return n_left;
}

int64_t bpe_merge(const struct bpe *b, struct bpe_work *w, size_t n) {
    TERN_ASSERT(n > 0 && n <= w->cap && n < PLACE_NONE);
    return n <= BPE_SHORT ? merge_short(b, w, n) : merge_long(b, w, n);
}
