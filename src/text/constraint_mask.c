// The mask of a state: one pass over the trie, which skips what cannot follow.
//
// Where most tokens can follow (inside strings), the pass would visit most of the vocabulary. Such nodes keep what
// their rule alone allows (struct heavy_set): then only tokens that leave the rule, with a closing quote in them, are
// walked, from the places in the trie where the rule may end. Whole masks are kept by the state's hash, so that equal
// states of a drafted tree or of a long string cost a copy.
#include "base/base.h"
#include "text/constraint_state_int.h"

// ------------------------------------------------------------------------------------------------------- heavy nodes

struct heavy_place { // of a walk by bytes alone
    int32_t node;
    uint32_t need;
    int count;
};

static void tokens_note(struct heavy_set *h, const struct token_trie *t, const struct trie_node *n, int count) {
    if (n->token < 0) return;
    h->most = MAX(h->most, count);
    for (int32_t token = n->token; token >= 0; token = n->several ? t->same[token] : -1) {
        h->counts[token] = (uint8_t)count;
        h->words[token / 32] |= 1u << (token % 32);
    }
}

// One step to trie node i; false: nothing below it is reached by bytes alone.
static bool heavy_step(struct constraint *c, struct heavy_set *h, int32_t i, const struct heavy_place *from,
                       struct heavy_place *to) {
    const struct grammar *g = c->grammar;
    const struct g_edge *e = grammar_step(g, from->node, c->trie->nodes[i].byte);
    if (!e) return false;
    struct config at = {.node = from->node, .left = COUNT_FREE, .need = from->need};
    if ((e->flags & EDGE_KEYED) && !edge_allows(g, e, &at)) return false;
    if (e->flags & (EDGE_KEY | EDGE_AWAY)) at = edge_follow(g, e, &at);
    *to = (struct heavy_place){e->to, at.need, from->count + ((e->flags & EDGE_COUNT) != 0)};
    const struct g_node *n = &g->nodes[e->to];
    if (n->accept && n->n_edges && !n->n_calls && !n->n_tokens && !(e->flags & (EDGE_KEY | EDGE_MET))) {
        h->pops[i / 8] |= (uint8_t)(1u << (i % 8));
        h->has_pops = true;
        h->too_many |= to->count > 0;
    } else if (!n->plain || (e->flags & (EDGE_KEY | EDGE_MET))) {
        if (h->n_ends == HEAVY_ENDS_MAX)
            h->too_many = true;
        else
            h->ends[h->n_ends++] = (struct heavy_end){.at = i,
                                                      .node = e->to,
                                                      .need = to->need,
                                                      .count = (uint8_t)to->count,
                                                      .met = (e->flags & EDGE_MET) != 0};
        return false;
    }
    tokens_note(h, c->trie, &c->trie->nodes[i], to->count);
    return true;
}

// Bytes that lead from a node to itself, and nothing is to be noted on the way but tokens and pops.
struct heavy_loop {
    int32_t node; // GRAMMAR_NONE: of none yet
    bool pops;
    bool bytes[256];
};

static void heavy_loop_set(const struct grammar *g, int32_t node, struct heavy_loop *l) {
    const struct g_node *n = &g->nodes[node];
    memset(l, 0, sizeof *l);
    l->node = node;
    l->pops = n->accept && n->n_edges && !n->n_calls && !n->n_tokens;
    if (!l->pops && !n->plain) return;
    for (int k = 0; k < n->n_edges; k++) {
        const struct g_edge *e = &g->edges[n->edges + k];
        if (e->to == node && e->flags == 0) memset(l->bytes + e->lo, 1, (size_t)(e->hi - e->lo) + 1);
    }
}

// Goes on behind trie node i, as loop_walk does; from `top` on the path is at the place at[its depth].
static int32_t heavy_loop_walk(const struct token_trie *t, struct heavy_set *h, const struct heavy_loop *l, int32_t i,
                               int32_t top, struct heavy_place *at, int32_t *tops) {
    const struct heavy_place place = at[t->nodes[i].depth];
    int32_t end = t->nodes[top].skip, j = i + 1;
    for (; j < end && l->bytes[t->nodes[j].byte]; j++) {
        if (l->pops) h->pops[j / 8] |= (uint8_t)(1u << (j % 8));
        tokens_note(h, t, &t->nodes[j], place.count);
    }
    if (j == end || j == i + 1) return j;
    for (int d = t->nodes[top].depth; d < t->nodes[j].depth; d++) {
        at[d] = place;
        tops[d] = top;
    }
    return j;
}

static void heavy_fill(struct constraint *c, struct heavy_set *h, int32_t node, uint32_t need) {
    const struct token_trie *t = c->trie;
    struct heavy_place at[TRIE_TOKEN_BYTES_MAX + 1] = {{node, need, 0}};
    int32_t tops[TRIE_TOKEN_BYTES_MAX + 1] = {0}; // the highest trie node from which the path is at one place
    struct heavy_loop loop = {.node = GRAMMAR_NONE};
    memset(h->counts, HEAVY_NEVER, c->n_words * 32);
    memset(h->words, 0, c->n_words * sizeof *h->words);
    memset(h->pops, 0, ((size_t)t->n + 7) / 8);
    h->node = node;
    h->need = need;
    h->n_ends = h->most = 0;
    h->too_many = h->has_pops = false;
    for (int32_t i = 1; i < t->n && !h->too_many;) {
        const int d = t->nodes[i].depth;
        if (!heavy_step(c, h, i, &at[d - 1], &at[d])) {
            i = t->nodes[i].skip;
            continue;
        }
        bool same = at[d].node == at[d - 1].node && at[d].need == at[d - 1].need && at[d].count == at[d - 1].count;
        tops[d] = same ? tops[d - 1] : i;
        if (same && loop.node != at[d].node) heavy_loop_set(c->grammar, at[d].node, &loop);
        i = same ? heavy_loop_walk(t, h, &loop, i, tops[d], at, tops) : i + 1;
    }
}

static struct heavy_set *heavy_get(struct constraint *c, const struct config *at) {
    struct heavy_set *oldest = &c->heavy[0];
    uint32_t need = c->grammar->nodes[at->node].keyed ? at->need : 0;
    for (int i = 0; i < HEAVY_SETS; i++) {
        struct heavy_set *h = &c->heavy[i];
        if (h->node == at->node && h->need == need) {
            h->used_at = ++c->clock;
            return h;
        }
        if (h->used_at < oldest->used_at) oldest = h;
    }
    heavy_fill(c, oldest, at->node, need);
    oldest->used_at = ++c->clock;
    return oldest;
}

// The insides of strings and free keys, then what leads there by any letter: within a character few tokens can follow.
static void heavy_warm(struct constraint *c) {
    const struct grammar *g = c->grammar;
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < g->n_nodes && n < HEAVY_WARMED; i++) {
            const struct g_node *node = &g->nodes[i];
            struct config at = {.node = (int32_t)i};
            bool loops = false, leads = false;
            for (int k = 0; node->heavy && k < node->n_edges; k++) {
                const struct g_edge *e = &g->edges[node->edges + k];
                loops |= e->to == (int32_t)i;
                leads |= g->nodes[e->to].heavy && e->lo <= 'z' && e->hi >= 'z';
                if (e->flags & EDGE_KEYED) at.need = (uint32_t)g->objects[g->guards[e->guard].object].n_keys;
            }
            if (pass == 0 ? !loops : loops || !leads) continue;
            heavy_get(c, &at);
            n++;
        }
}

// Tokens with at most `left` counted characters.
static void counts_or(const struct heavy_set *h, uint32_t left, size_t n_words, uint32_t *words) {
    for (size_t w = 0; w < n_words; w++) {
        uint32_t bits = 0;
        for (int k = 0; k < 32; k++) bits |= (uint32_t)(h->counts[w * 32 + (size_t)k] <= left) << k;
        words[w] |= bits;
    }
}

// The rule ends within a token and what called it goes on: nodes of the bytes that can follow, below places of pops.
static void pops_put(struct constraint *c, const struct heavy_set *h, const struct config *at, uint32_t *words) {
    struct stepper *w = &c->work;
    const struct token_trie *t = c->trie;
    const struct frame *f = &w->frames.items[at->frame];
    struct config_set out = {.first = CONFIGS_MAX};
    stepper_add(w, &out, (struct config){.node = f->to, .left = f->left, .need = f->need, .frame = f->parent});
    int frames = w->frames.n;
    for (int b = 0; b < 256 && out.n > 0; b++) {
        frames_cut(&w->frames, frames);
        struct config_set next = stepper_byte(w, &out, out.first + out.n, (uint8_t)b);
        if (next.n == 0 && !next.finished) continue;
        for (int32_t k = t->first[b]; k < t->first[b + 1]; k++) {
            int32_t i = t->by_byte[k], parent = t->parent[i];
            if (!(h->pops[parent / 8] >> (parent % 8) & 1)) continue;
            tokens_set(t, &t->nodes[i], words);
            if (next.n > 0) subtree_walk(c, i, &next, words);
        }
    }
}

static void ends_put(struct constraint *c, const struct heavy_set *h, const struct config *at, uint32_t *words) {
    struct stepper *w = &c->work;
    const struct token_trie *t = c->trie;
    struct config_set out = {.first = CONFIGS_MAX};
    struct config last = {.node = GRAMMAR_NONE};
    int frames = w->frames.n;
    bool keyed = c->grammar->nodes[at->node].keyed;
    for (int i = 0; i < h->n_ends; i++) {
        const struct heavy_end *e = &h->ends[i];
        if (e->count > at->left || (e->met && e->count < at->need)) continue;
        struct config in = {.node = e->node, .left = at->left, .need = e->need, .frame = at->frame};
        if (in.left != COUNT_FREE) in.left -= e->count;
        if (!keyed) in.need = at->need > e->count ? at->need - e->count : 0;
        if (in.node != last.node || in.left != last.left || in.need != last.need) {
            frames_cut(&w->frames, frames);
            out.n = 0;
            out.finished = false;
            stepper_add(w, &out, in);
            last = in;
        }
        if (out.n == 0 && !out.finished) continue;
        tokens_set(t, &t->nodes[e->at], words);
        if (out.n > 0) subtree_walk(c, e->at, &out, words);
    }
}

static void heavy_put(struct constraint *c, const struct heavy_set *h, const struct config *at, uint32_t *words) {
    int frames = c->work.frames.n;
    if (at->left >= (uint32_t)h->most)
        for (size_t i = 0; i < c->n_words; i++) words[i] |= h->words[i];
    else
        counts_or(h, at->left, c->n_words, words);
    ends_put(c, h, at, words);
    frames_cut(&c->work.frames, frames);
    if (h->has_pops && at->frame >= 0) pops_put(c, h, at, words);
    frames_cut(&c->work.frames, frames);
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
        struct heavy_set *h = n->heavy ? heavy_get(c, at) : NULL;
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

// The states that the fewest bytes lead to: where a list's item begins, or an object's key, the next item mostly stands
// on the same stack, and what is costly there (a blank before free text) is met at the first token otherwise.
static void states_warm(struct constraint *c) {
    struct constraint_state *states[STATES_WARMED] = {constraint_state_create(c)};
    uint64_t known[STATES_WARMED];
    int n = states[0] ? 1 : 0;
    if (n) known[0] = state_hash(states[0]);
    for (int i = 0; i < n; i++) {
        mask_get(c, states[i]);
        for (int b = 0; b < 256 && n < STATES_WARMED; b++) {
            struct constraint_state *next = constraint_state_clone(states[i]);
            if (!next) break; // no memory: what is not made now is made when it is asked for
            char byte = (char)b;
            bool fresh = constraint_put(next, (struct str){&byte, 1});
            uint64_t hash = fresh ? state_hash(next) : 0;
            for (int k = 0; k < n && fresh; k++) fresh = known[k] != hash;
            if (fresh) {
                states[n] = next;
                known[n++] = hash;
            } else {
                constraint_state_free(next);
            }
        }
    }
    for (int i = 0; i < n; i++) constraint_state_free(states[i]);
    c->n_masks = c->n_kept_hits = 0;
}

// Before the first mask is asked for, by the thread that compiles.
void masks_warm(struct constraint *c) {
    heavy_warm(c);
    states_warm(c);
}

void constraint_mask(const struct constraint_state *s, uint32_t *mask, int n_vocab) {
    struct constraint *c = s->of;
    size_t n = ((size_t)n_vocab + 31) / 32;
    mutex_lock(c->mutex);
    const uint32_t *words = mask_get(c, s);
    for (size_t i = 0; i < n; i++) mask[i] &= i < c->n_words ? words[i] : 0;
    mutex_unlock(c->mutex);
}
