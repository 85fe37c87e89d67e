// Walks over the token trie: which tokens can follow a set of configurations.
//
// A walk meets the same sets over and over: behind a blank, nearly every word of the vocabulary goes on inside one
// string. Sets and the bytes between them are therefore numbered as they come up, a deterministic automaton made on the
// way, and a step that was taken before costs two loads. Without it the blank in front of a grammar's free text cost
// 2.8 ms, with it 0.3 (LFM2's 65,536 tokens; tern bench --mask). Beyond its room a walk goes on step by step.
#include "base/base.h"
#include "text/constraint_state_int.h"

#define STEP_UNKNOWN INT8_MIN
#define STEP_NONE (-1)
#define STEP_FULL (-2)

void tokens_set(const struct token_trie *t, const struct trie_node *n, uint32_t *words) {
    if (n->token < 0) return;
    words[n->token / 32] |= 1u << (n->token % 32);
    for (int32_t token = n->token; n->several && (token = t->same[token]) >= 0;)
        words[token / 32] |= 1u << (token % 32);
}

static uint64_t set_hash(const struct stepper *w, const struct config_set *set) {
    uint64_t h = set->finished;
    for (int i = 0; i < set->n; i++) h += config_hash(&w->frames, &w->configs[set->first + i]);
    return h;
}

static bool set_same(const struct stepper *w, const struct config_set *a, const struct config_set *b) {
    const struct config *x = w->configs + a->first, *y = w->configs + b->first;
    if (a->n != b->n || a->finished != b->finished) return false;
    for (int i = 0; i < a->n; i++)
        if (x[i].node != y[i].node || x[i].frame != y[i].frame || x[i].left != y[i].left || x[i].need != y[i].need)
            return false;
    return true;
}

static int walk_state(struct walk *k, const struct config_set *set, uint64_t hash) {
    struct walk_state *s = &k->states[k->n];
    s->set = *set;
    s->hash = hash;
    memset(s->next, STEP_UNKNOWN, sizeof s->next);
    return k->n++;
}

// The state behind a byte, computed for the first time. Its configurations are kept, and so are the frames under them.
static int walk_step(struct constraint *c, int from, uint8_t byte) {
    struct walk *k = &c->walk;
    struct stepper *w = &c->work;
    if (k->n == WALK_STATES || k->end > k->begin + WALK_CONFIGS - CONFIGS_MAX ||
        w->frames.n > FRAMES_STATE_MAX + WALK_FRAMES)
        return STEP_FULL;
    struct config_set set = stepper_byte(w, &k->states[from].set, k->end, byte);
    int to = STEP_NONE;
    if (set.n > 0 || set.finished) {
        uint64_t hash = set_hash(w, &set);
        for (int i = 0; i < k->n && to < 0; i++)
            if (k->states[i].hash == hash && set_same(w, &k->states[i].set, &set)) to = i;
        if (to < 0) {
            to = walk_state(k, &set, hash);
            k->end += set.n;
        }
    }
    return k->states[from].next[byte] = (int8_t)to;
}

// The tokens below trie node `root`, whose set is `from`, step by step.
static void subtree_step(struct constraint *c, int32_t root, const struct config_set *from, uint32_t *words) {
    const struct token_trie *t = c->trie;
    struct stepper *w = &c->work;
    struct config_set sets[TRIE_TOKEN_BYTES_MAX + 1];
    int frames[TRIE_TOKEN_BYTES_MAX + 1];
    int base = t->nodes[root].depth;
    sets[0] = *from;
    frames[0] = w->frames.n;
    for (int32_t i = root + 1; i < t->nodes[root].skip;) {
        const struct trie_node *n = &t->nodes[i];
        int d = n->depth - base;
        frames_cut(&w->frames, frames[d - 1]);
        sets[d] = stepper_byte(w, &sets[d - 1], sets[d - 1].first + sets[d - 1].n, n->byte);
        if (sets[d].n > 0 || sets[d].finished) tokens_set(t, n, words);
        frames[d] = w->frames.n;
        i = sets[d].n > 0 ? i + 1 : n->skip; // else nothing follows, or the text ends right here
    }
    frames_cut(&w->frames, frames[0]);
}

// A state that most bytes lead back to: goes on behind node i as long as they do, without looking at the path. `top` is
// the highest node from which the path to i is in that state. Returns the first node where a byte leads elsewhere, or
// the end of top's subtree; the path to it is noted in at and tops.
static int32_t loop_walk(const struct token_trie *t, const struct walk_state *s, int8_t state, int32_t i, int32_t top,
                         int base, int8_t *at, int32_t *tops, uint32_t *words) {
    int32_t end = t->nodes[top].skip, j = i + 1;
    for (; j < end && s->next[t->nodes[j].byte] == state; j++) tokens_set(t, &t->nodes[j], words);
    if (j == end || j == i + 1) return j;
    for (int d = t->nodes[top].depth - base; d < t->nodes[j].depth - base; d++) {
        at[d] = state;
        tops[d] = top;
    }
    return j;
}

void subtree_walk(struct constraint *c, int32_t root, const struct config_set *from, uint32_t *words) {
    const struct token_trie *t = c->trie;
    struct walk *k = &c->walk;
    struct stepper *w = &c->work;
    int8_t at[TRIE_TOKEN_BYTES_MAX + 1];    // the state of each node on the path
    int32_t tops[TRIE_TOKEN_BYTES_MAX + 1]; // the highest node from which the path is in that state
    int base = t->nodes[root].depth, frames = w->frames.n;
    k->n = 0;
    k->begin = k->end = from->first + from->n;
    at[0] = (int8_t)walk_state(k, from, set_hash(w, from));
    tops[0] = root;
    for (int32_t i = root + 1; i < t->nodes[root].skip;) {
        const struct trie_node *n = &t->nodes[i];
        int d = n->depth - base, to = k->states[at[d - 1]].next[n->byte];
        if (to == STEP_UNKNOWN) to = walk_step(c, at[d - 1], n->byte);
        if (to == STEP_FULL) {
            int before = w->frames.n;
            struct config_set set = stepper_byte(w, &k->states[at[d - 1]].set, k->end, n->byte);
            if (set.n > 0 || set.finished) tokens_set(t, n, words);
            if (set.n > 0) subtree_step(c, i, &set, words);
            frames_cut(&w->frames, before);
        }
        if (to < 0) {
            i = n->skip;
            continue;
        }
        const struct walk_state *s = &k->states[to];
        tokens_set(t, n, words);
        tops[d] = to == at[d - 1] ? tops[d - 1] : i;
        at[d] = (int8_t)to;
        if (s->set.n == 0) // the text ends right here
            i = n->skip;
        else
            i = loop_walk(t, s, (int8_t)to, i, tops[d], base, at, tops, words);
    }
    frames_cut(&w->frames, frames);
}
