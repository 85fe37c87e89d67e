// The mask of a state: one pass over the trie, which skips what cannot follow.
//
// Where most tokens can follow (inside strings), the pass would visit most of the vocabulary. Such nodes keep what
// their rule alone allows (struct heavy_set): then only tokens that leave the rule, with a closing quote in them, are
// walked, from the places in the trie where the rule may end. Whole masks are kept by the state's hash, so that equal
// states of a drafted tree or of a long string cost a copy.
#include "base/base.h"
#include "text/constraint_state_int.h"

static void token_set(const struct token_trie *t, int32_t token, uint32_t *words) {
    for (; token >= 0; token = t->same[token]) words[token / 32] |= 1u << (token % 32);
}

// All tokens below a trie node that can follow the set `from`, which lies at the end of the work's configurations.
static void subtree_walk(struct constraint *c, int32_t root, const struct config_set *from, uint32_t *words) {
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
        if (sets[d].n == 0) { // nothing follows, but the text may end right here
            if (sets[d].finished) token_set(t, n->token, words);
            i = n->skip;
            continue;
        }
        token_set(t, n->token, words);
        frames[d] = w->frames.n;
        i++;
    }
    frames_cut(&w->frames, frames[0]);
}

// ------------------------------------------------------------------------------------------------------- heavy nodes

static void heavy_fill(struct constraint *c, struct heavy_set *h, int32_t node) {
    const struct token_trie *t = c->trie;
    const struct grammar *g = c->grammar;
    int32_t at[TRIE_TOKEN_BYTES_MAX + 1];
    uint8_t counts[TRIE_TOKEN_BYTES_MAX + 1];
    memset(h->counts, HEAVY_NEVER, c->n_words * 32);
    memset(h->words, 0, c->n_words * sizeof *h->words);
    h->node = node;
    h->n_ends = h->most = 0;
    h->too_many = false;
    at[0] = node;
    counts[0] = 0;
    for (int32_t i = 1; i < t->n;) {
        const struct trie_node *n = &t->nodes[i];
        const struct g_edge *e = grammar_step(g, at[n->depth - 1], n->byte);
        if (!e) {
            i = n->skip;
            continue;
        }
        const struct g_node *to = &g->nodes[e->to];
        int count = counts[n->depth - 1] + ((e->flags & EDGE_COUNT) != 0);
        at[n->depth] = e->to;
        counts[n->depth] = (uint8_t)count;
        if (to->accept) {
            if (h->n_ends == HEAVY_ENDS_MAX) {
                h->too_many = true;
                return;
            }
            h->end_counts[h->n_ends] = (uint8_t)count;
            h->ends[h->n_ends++] = i;
        }
        for (int32_t token = to->n_edges ? n->token : -1; token >= 0; token = t->same[token]) {
            h->counts[token] = (uint8_t)count;
            h->most = MAX(h->most, count);
            h->words[token / 32] |= 1u << (token % 32);
        }
        i = to->n_edges ? i + 1 : n->skip;
    }
}

static struct heavy_set *heavy_get(struct constraint *c, int32_t node) {
    struct heavy_set *oldest = &c->heavy[0];
    for (int i = 0; i < HEAVY_SETS; i++) {
        struct heavy_set *h = &c->heavy[i];
        if (h->node == node) {
            h->used_at = ++c->clock;
            return h;
        }
        if (h->used_at < oldest->used_at) oldest = h;
    }
    heavy_fill(c, oldest, node);
    oldest->used_at = ++c->clock;
    return oldest;
}

// Tokens with at most `left` counted characters.
static void counts_or(const struct heavy_set *h, uint32_t left, size_t n_words, uint32_t *words) {
    for (size_t w = 0; w < n_words; w++) {
        uint32_t bits = 0;
        for (int k = 0; k < 32; k++) bits |= (uint32_t)(h->counts[w * 32 + (size_t)k] <= left) << k;
        words[w] |= bits;
    }
}

static void heavy_put(struct constraint *c, const struct heavy_set *h, const struct config *at, uint32_t *words) {
    struct stepper *w = &c->work;
    const struct token_trie *t = c->trie;
    if (at->left >= (uint32_t)h->most)
        for (size_t i = 0; i < c->n_words; i++) words[i] |= h->words[i];
    else
        counts_or(h, at->left, c->n_words, words);
    struct config_set out = {.first = CONFIGS_MAX};
    int frames = w->frames.n;
    if (at->frame >= 0) {
        const struct frame *f = &w->frames.items[at->frame];
        stepper_add(w, &out, (struct config){.node = f->to, .left = f->left, .need = f->need, .frame = f->parent});
    }
    for (int i = 0; i < h->n_ends; i++) {
        if (h->end_counts[i] > at->left || h->end_counts[i] < at->need) continue;
        token_set(t, t->nodes[h->ends[i]].token, words);
        if (out.n > 0) subtree_walk(c, h->ends[i], &out, words);
    }
    frames_cut(&w->frames, frames);
}

// -------------------------------------------------------------------------------------------------------------- masks

void mask_compute(struct constraint *c, const struct constraint_state *s, uint32_t *words) {
    struct stepper *w = &c->work;
    const struct grammar *g = c->grammar;
    memset(words, 0, c->n_words * sizeof *words);
    w->frames.n = s->step.frames.n;
    memcpy(w->frames.items, s->step.frames.items, (size_t)s->step.frames.n * sizeof(struct frame));
    memcpy(w->frames.heads, s->step.frames.heads, sizeof w->frames.heads);
    struct config_set light = {0};
    for (int i = 0; i < s->at.n; i++) {
        const struct config *at = &s->step.configs[i];
        const struct g_node *n = &g->nodes[at->node];
        for (int k = 0; k < n->n_tokens; k++) {
            int32_t id = g->tokens[n->tokens + k].id;
            words[id / 32] |= 1u << (id % 32);
        }
        struct heavy_set *h = n->heavy ? heavy_get(c, at->node) : NULL;
        if (h && !h->too_many)
            heavy_put(c, h, at, words);
        else if (n->n_edges)
            w->configs[light.n++] = *at;
    }
    if (light.n > 0) subtree_walk(c, 0, &light, words);
}

static uint64_t state_hash(const struct constraint_state *s) {
    uint64_t h = s->at.finished;
    for (int i = 0; i < s->at.n; i++) h += config_hash(&s->step.frames, &s->step.configs[i]);
    return h ? h : 1;
}

static const uint32_t *mask_get(struct constraint *c, const struct constraint_state *s) {
    uint64_t key = state_hash(s);
    struct kept_mask *oldest = &c->kept[0];
    c->n_masks++;
    for (int i = 0; i < MASKS_KEPT; i++) {
        struct kept_mask *m = &c->kept[i];
        if (m->used_at && m->key == key) {
            c->n_kept_hits++;
            m->used_at = ++c->clock;
            return m->words;
        }
        if (m->used_at < oldest->used_at) oldest = m;
    }
    mask_compute(c, s, oldest->words);
    if (s->at.finished)
        for (int i = 0; i < c->n_eos; i++)
            if (c->eos[i] >= 0 && c->eos[i] < c->trie->n_vocab) oldest->words[c->eos[i] / 32] |= 1u << (c->eos[i] % 32);
    oldest->key = key;
    oldest->used_at = ++c->clock;
    return oldest->words;
}

void constraint_mask(const struct constraint_state *s, uint32_t *mask, int n_vocab) {
    struct constraint *c = s->of;
    size_t n = ((size_t)n_vocab + 31) / 32;
    mutex_lock(c->mutex);
    const uint32_t *words = mask_get(c, s);
    for (size_t i = 0; i < n; i++) mask[i] &= i < c->n_words ? words[i] : 0;
    mutex_unlock(c->mutex);
}
