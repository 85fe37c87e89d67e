// A priority queue for keys (rank, place) of which most come in order.
//
// Merging goes through a piece from left to right, rank by rank; so the new pairs of one rank nearly always arrive with
// ascending places. Such keys wait in a run of their own, where push and pop take constant time and memory is walked in
// order; the others go to a 4-ary heap. A megabyte of one letter took 0.17 s through the heap alone and its time grew
// by up to 2.6 when the text doubled (the heap left the cache); the runs make it 0.04 s and 2.0. The bound stays
// n log n.
#include "base/base.h"
#include "text/bpe_queue.h"

void bpe_queue_release(struct bpe_queue *q) {
    for (int i = 0; i < QUEUE_RUNS; i++) mem_free(q->runs[i].keys);
    mem_free(q->heap);
    *q = (struct bpe_queue){.n_steps = q->n_steps};
}

static bool keys_grow(uint64_t **keys, size_t n, size_t *cap) {
    if (n < *cap) return true;
    size_t cap_new = MAX(*cap * 2, (size_t)256), bytes;
    uint64_t *grown = size_mul(cap_new, sizeof **keys, &bytes) ? mem_realloc(*keys, bytes) : NULL;
    if (!grown) return false;
    *keys = grown;
    *cap = cap_new;
    return true;
}

static bool heap_push(struct bpe_queue *q, uint64_t key) {
    if (!keys_grow(&q->heap, q->n_heap, &q->cap_heap)) return false;
    uint64_t *heap = q->heap;
    size_t i = q->n_heap++;
    while (i > 0 && heap[(i - 1) / 4] > key) {
        heap[i] = heap[(i - 1) / 4];
        i = (i - 1) / 4;
        q->n_steps++;
    }
    heap[i] = key;
    return true;
}

static uint64_t heap_pop(struct bpe_queue *q) {
    uint64_t *heap = q->heap;
    uint64_t top = heap[0], key = heap[--q->n_heap];
    size_t n = q->n_heap, i = 0;
    for (;;) {
        size_t child = i * 4 + 1;
        if (child >= n) break;
        size_t least = child, child_end = MIN(child + 4, n);
        for (size_t c = child + 1; c < child_end; c++) {
            if (heap[c] < heap[least]) least = c;
        }
        q->n_steps++;
        if (heap[least] >= key) break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = key;
    return top;
}

static bool run_push(struct bpe_queue *q, int i, uint64_t key) {
    struct queue_run *run = &q->runs[i];
    if (!keys_grow(&run->keys, run->len, &run->cap)) return false;
    run->keys[run->len++] = key;
    return true;
}

bool bpe_queue_push(struct bpe_queue *q, uint64_t key) {
    uint32_t rank = (uint32_t)(key >> 32);
    int free_run = -1;
    q->n_steps++;
    for (int i = 0; i < q->n_runs; i++) {
        if (q->run_head[i] == QUEUE_NONE) {
            free_run = i;
        } else if (q->run_rank[i] == rank) {
            if (q->runs[i].keys[q->runs[i].len - 1] > key) return heap_push(q, key);
            return run_push(q, i, key);
        }
    }
    if (free_run < 0 && q->n_runs == QUEUE_RUNS) return heap_push(q, key);
    if (free_run < 0) free_run = q->n_runs++;
    q->runs[free_run].head = q->runs[free_run].len = 0;
    q->run_rank[free_run] = rank;
    q->run_head[free_run] = key;
    if (run_push(q, free_run, key)) return true;
    q->run_head[free_run] = QUEUE_NONE;
    return false;
}

uint64_t bpe_queue_pop(struct bpe_queue *q) {
    uint64_t least = q->n_heap > 0 ? q->heap[0] : QUEUE_NONE;
    int from = -1;
    for (int i = 0; i < q->n_runs; i++) {
        if (q->run_head[i] >= least) continue;
        least = q->run_head[i];
        from = i;
    }
    q->n_steps++;
    if (from < 0) return q->n_heap > 0 ? heap_pop(q) : QUEUE_NONE;
    struct queue_run *run = &q->runs[from];
    run->head++;
    q->run_head[from] = run->head < run->len ? run->keys[run->head] : QUEUE_NONE;
    return least;
}
