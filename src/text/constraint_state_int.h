// Private to text/: a compiled constraint with its kept masks, and a state of it.
#pragma once
#include "text/constraint_int.h"

#define HEAVY_SETS 12       // nodes whose tokens are kept
#define HEAVY_WARMED 6      // … from the beginning
#define STATES_WARMED 12    // states near the text's begin whose masks are made with the constraint
#define HEAVY_ENDS_MAX 8192 // places in the trie where such a walk stops at something other than bytes
#define MASKS_KEPT 64       // states whose masks are kept
#define HEAVY_NEVER 255

// What tokens do from a heavy node, as far as bytes alone go, whatever stack it stands on: which can be read, where in
// the trie a node is reached that calls or ends (ends), and where the rule may end but bytes may also go on (pops).
// Counted characters on the way are noted, so that one set serves whatever the counters say.
struct heavy_end {
    int32_t at, node; // of the trie; of the grammar
    uint32_t need;    // the key counter there
    uint8_t count;
    bool met; // the way needs the lower bound to be met
};
struct heavy_set {
    int32_t node;  // GRAMMAR_NONE: empty
    uint32_t need; // the key counter, where that matters
    bool too_many; // ends, or pops with counts: the node is walked like any other
    bool has_pops;
    uint64_t used_at;
    uint8_t *counts; // [n_vocab rounded up] HEAVY_NEVER: not from here
    uint32_t *words; // the tokens whatever they count
    int most;        // largest count
    struct heavy_end *ends;
    int n_ends;
    uint8_t *pops; // bit for each node of the trie
};
struct kept_mask {
    uint64_t key;
    uint64_t used_at; // 0: empty
    uint32_t *words;
};

// A walk over the trie: the sets that came up, numbered, and where bytes lead from each.
#define WALK_STATES 120   // below 128: numbers are bytes
#define WALK_CONFIGS 2048 // of these sets together
#define WALK_FRAMES 1024  // that they may add
struct walk_state {
    struct config_set set;
    uint64_t hash;
    int8_t next[256];
};
struct walk {
    int n, begin, end; // configs[begin … end) are the states'
    struct walk_state states[WALK_STATES];
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
    struct walk walk;
    struct heavy_set heavy[HEAVY_SETS];
    struct kept_mask kept[MASKS_KEPT];
    void *memory; // of the sets and masks
    size_t memory_bytes;
    void *owner;
    uint64_t n_masks, n_kept_hits;
};

struct constraint_state {
    struct constraint *of;
    struct stepper step;
    struct config_set at; // first is 0
};

void tokens_set(const struct token_trie *t, const struct trie_node *n, uint32_t *words); // those of n
// Sets the tokens below trie node root that can follow `from`, which lies at the end of the work's configurations.
void subtree_walk(struct constraint *c, int32_t root, const struct config_set *from, uint32_t *words);
// The allowed tokens of a state, into words [n_words]; under the mutex.
void mask_compute(struct constraint *c, const struct constraint_state *s, uint32_t *words);
void masks_warm(struct constraint *c); // fills some of what is kept
