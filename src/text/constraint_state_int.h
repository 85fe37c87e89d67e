// Private to text/: a compiled constraint with its kept masks, and a state of it.
#pragma once
#include "text/constraint_int.h"

#define HEAVY_SETS 16        // nodes whose tokens are kept
#define HEAVY_ENDS_MAX 16384 // places in the trie where their rule may end
#define MASKS_KEPT 64        // states whose masks are kept
#define HEAVY_NEVER 255

// Which tokens can be read from a heavy node without leaving its rule, and where in the trie the rule may end. Both
// with the characters that were counted on the way, so one set serves whatever the counters say.
struct heavy_set {
    int32_t node;  // GRAMMAR_NONE: empty
    bool too_many; // ends: the node is walked like any other
    uint64_t used_at;
    uint8_t *counts; // [n_vocab rounded up to 8] HEAVY_NEVER: not from here
    uint32_t *words; // the tokens whatever they count
    int most;        // largest count
    int32_t *ends;   // trie nodes
    uint8_t *end_counts;
    int n_ends;
};
struct kept_mask {
    uint64_t key;
    uint64_t used_at; // 0: empty
    uint32_t *words;
};

struct constraint {
    struct grammar *grammar;
    const struct tokenizer *tokenizer;
    const struct token_trie *trie;
    int32_t *eos;
    int n_eos;
    struct buf note;
    size_t n_words;
    // Under the mutex: work and what is kept.
    struct os_mutex *mutex;
    uint64_t clock;
    struct stepper work;
    struct heavy_set heavy[HEAVY_SETS];
    struct kept_mask kept[MASKS_KEPT];
    void *memory; // of the sets and masks
    uint64_t n_masks, n_kept_hits;
};

struct constraint_state {
    struct constraint *of;
    struct stepper step;
    struct config_set at; // first is 0
};

// The allowed tokens of a state, into words [n_words]; under the mutex.
void mask_compute(struct constraint *c, const struct constraint_state *s, uint32_t *words);
