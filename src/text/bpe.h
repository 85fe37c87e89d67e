// Byte-pair merging over token ids (private to text/).
#pragma once
#include "base/base.h"
#include "text/bpe_queue.h"

#define BPE_MERGES_MAX (4u << 20)
#define BPE_ID_BITS 20   // ids below TOKENIZER_VOCAB_MAX
#define BPE_RANK_BITS 24 // ranks below BPE_MERGES_MAX, and room for "none"
#define BPE_RANK_NONE 0xffffffffu

// The merge rules: (left id, right id) -> rank. A slot is left << 44 | right << 24 | rank; all ones: empty.
struct bpe {
    uint64_t *slots;  // [mask + 1]
    uint64_t mask;    // capacity - 1, a power of two less one
    uint64_t seed[2]; // of the hash; seed[1] is odd
    int32_t *result;  // [n_merges] id that the merge of a rank gives
    int n_merges;
};
enum tern_status bpe_init(struct bpe *b, int n_merges, struct tern_err *err);
void bpe_release(struct bpe *b);
// Adds the rule of this rank. False when the pair has one already; *rank_old is then its rank.
bool bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t result, uint32_t rank, uint32_t *rank_old);
uint32_t bpe_rank(const struct bpe *b, int32_t left, int32_t right); // BPE_RANK_NONE: the two do not merge

// Memory for long pieces, kept from piece to piece.
struct bpe_work {
    int32_t *ids;   // [cap]
    uint32_t *rank; // [cap] of the pair that starts here
    uint32_t *next; // [cap] place of the following symbol
    uint32_t *prev; // [cap]
    uint64_t *heap; // [cap_heap] rank << 32 | place
    size_t cap;
    struct bpe_queue queue;
    uint64_t
        n_steps; // of short pieces; with queue.n_steps: comparisons and moves: tests check that it grows as n log n
};
void bpe_work_release(struct bpe_work *w);
// Room for the ids of a piece of n symbols, to be written at w->ids before bpe_merge. NULL: out of memory.
int32_t *bpe_work_reserve(struct bpe_work *w, size_t n);
// Merges the n symbols at w->ids in place: always the pair of the lowest rank, the leftmost of equals. Returns how many
// are left, packed at w->ids, or -1: out of memory.
int64_t bpe_merge(const struct bpe *b, struct bpe_work *w, size_t n);
