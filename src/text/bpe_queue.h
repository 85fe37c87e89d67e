// The queue of pairs that wait to be merged in a long piece (private to text/).
#pragma once
#include "base/base.h"

#define QUEUE_RUNS 16

// A queue of keys that came in ascending order.
struct queue_run {
    uint64_t *keys; // [cap]; waiting are head .. len - 1
    size_t head, len, cap;
};
struct bpe_queue {
    struct queue_run runs[QUEUE_RUNS];
    uint64_t run_head[QUEUE_RUNS]; // first waiting key of each run, QUEUE_NONE when it is empty
    uint32_t run_rank[QUEUE_RUNS]; // rank of the keys in it
    int n_runs;                    // runs in use so far
    uint64_t *heap;                // [cap_heap] 4-ary heap of the keys that fit no run
    size_t n_heap, cap_heap;
    uint64_t n_steps; // comparisons and moves
};
#define QUEUE_NONE UINT64_MAX
void bpe_queue_release(struct bpe_queue *q);
bool bpe_queue_push(struct bpe_queue *q, uint64_t key); // rank << 32 | place; false: out of memory
uint64_t bpe_queue_pop(struct bpe_queue *q);            // the least key, or QUEUE_NONE
