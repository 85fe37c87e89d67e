// The n-gram drafter: a suffix automaton (Blumer et al. 1985) over the text, built token by token.
//
// States are the classes of substrings that end at the same places; a state's link is its longest suffix in another
// class. The link of the state of the whole text is the longest suffix that occurred before, so the match costs nothing
// to find. Each state knows where it first ended and a recent place where it ended again: an append refreshes the
// longest few suffixes only (RECENT_STEPS), so that it stays O(1); a place may be older than the newest, never wrong.
//
// Edges lie in one pool, found by a hash of (state, token) and listed by state, for cloning. A cloned edge is never
// removed, so copies are bounded by the number of edges: states < 2n, edges < 3n for n tokens. No undo log: cuts come
// once a request at most, and building again takes about 0.1 µs a token. The hash table takes of its memory what the
// text so far needs, doubling: most texts are much shorter than what there is room for, and what a step touches beside
// the model's weights is taken from their cache.
#include "base/base.h"
#include "spec/spec.h"

#define RECENT_STEPS 4
#define SLOTS_MIN 256 // of the hash table; at most half of them are taken
#define NONE (-1)

struct state {
    int32_t len;        // longest substring of the class
    int32_t link;       // NONE for the root, state 0
    int32_t first_edge; // list over edge.next
    int32_t end_first;  // position of the last token where it first ended
    int32_t end_recent; // … and another place, or the same
};
struct edge {
    int32_t from, token, to;
    int32_t next;
};
struct ngram {
    int tokens_max;
    int n_tokens;         // held
    size_t forgotten;     // tokens before them
    int32_t *text;        // [tokens_max]
    struct state *states; // [2 tokens_max + 1]
    struct edge *edges;   // [3 tokens_max + 1]
    int32_t *slots;       // [slots_max] edge + 1; 0: empty; n_slots of them are in use
    uint32_t slots_max;   // power of two
    uint32_t n_slots;     // power of two
    int n_states, n_edges, last;
    int match, match_end; // state of the longest repeated suffix, and where it ended before
};

enum tern_status ngram_create(struct ngram **out, int tokens_max, struct tern_err *err) {
    if (tokens_max < 2 || tokens_max > NGRAM_TOKENS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "n-gram drafter: room for %d tokens; 2 to %d are possible",
                       tokens_max, NGRAM_TOKENS_MAX);
    struct ngram *g = mem_calloc(1, sizeof *g);
    if (g) {
        size_t n = (size_t)tokens_max;
        g->tokens_max = tokens_max;
        for (g->slots_max = SLOTS_MIN; g->slots_max < 6 * n + 2;) g->slots_max *= 2;
        g->text = mem_alloc(n * sizeof *g->text);
        g->states = mem_alloc((2 * n + 1) * sizeof *g->states);
        g->edges = mem_alloc((3 * n + 1) * sizeof *g->edges);
        g->slots = mem_alloc(g->slots_max * sizeof *g->slots);
    }
    if (!g || !g->text || !g->states || !g->edges || !g->slots) {
        ngram_free(g);
        return err_set(err, TERN_NO_MEMORY, "no memory for an n-gram drafter over %d tokens", tokens_max);
    }
    ngram_clear(g);
    *out = g;
    return TERN_OK;
}

void ngram_free(struct ngram *g) {
    if (!g) return;
    mem_free(g->text);
    mem_free(g->states);
    mem_free(g->edges);
    mem_free(g->slots);
    mem_free(g);
}

static void automaton_clear(struct ngram *g) {
    g->n_slots = SLOTS_MIN;
    memset(g->slots, 0, g->n_slots * sizeof *g->slots);
    g->states[0] = (struct state){.link = NONE, .first_edge = NONE, .end_first = NONE, .end_recent = NONE};
    g->n_states = 1;
    g->n_edges = 0;
    g->n_tokens = 0;
    g->last = 0;
    g->match = 0;
    g->match_end = NONE;
}

void ngram_clear(struct ngram *g) {
    automaton_clear(g);
    g->forgotten = 0;
}

size_t ngram_len(const struct ngram *g) { return g->forgotten + (size_t)g->n_tokens; }

static uint32_t slot_of(const struct ngram *g, int32_t from, int32_t token) {
    uint64_t x = ((uint64_t)(uint32_t)from << 32 | (uint32_t)token) * 0x9E3779B97F4A7C15u;
    return (uint32_t)((x ^ x >> 29) * 0xBF58476D1CE4E5B9u >> 32) & (g->n_slots - 1);
}

// The edge's index, or NONE and in *slot the place for a new one.
static int32_t edge_find(const struct ngram *g, int32_t from, int32_t token, uint32_t *slot) {
    uint32_t at = slot_of(g, from, token);
    for (; g->slots[at]; at = (at + 1) & (g->n_slots - 1)) {
        const struct edge *e = &g->edges[g->slots[at] - 1];
        if (e->from == from && e->token == token) return g->slots[at] - 1;
    }
    *slot = at;
    return NONE;
}

static void slots_double(struct ngram *g) {
    g->n_slots *= 2;
    memset(g->slots, 0, g->n_slots * sizeof *g->slots);
    for (int32_t i = 0; i < g->n_edges; i++) {
        uint32_t at = slot_of(g, g->edges[i].from, g->edges[i].token);
        while (g->slots[at]) at = (at + 1) & (g->n_slots - 1);
        g->slots[at] = i + 1;
    }
}

// slot is as edge_find left it; slots found before are void afterwards.
static void edge_add(struct ngram *g, int32_t from, int32_t token, int32_t to, uint32_t slot) {
    g->edges[g->n_edges] = (struct edge){from, token, to, g->states[from].first_edge};
    g->states[from].first_edge = g->n_edges++;
    g->slots[slot] = g->n_edges;
    if (2 * (uint32_t)g->n_edges >= g->n_slots && g->n_slots < g->slots_max) slots_double(g);
}

// A copy of state q for its substrings of at most len tokens, and the edges of p's suffixes that led to q moved to it.
static int32_t state_split(struct ngram *g, int32_t q, int32_t p, int32_t token, int32_t len) {
    int32_t clone = g->n_states++;
    uint32_t slot = 0;
    g->states[clone] = g->states[q];
    g->states[clone].len = len;
    g->states[clone].first_edge = NONE;
    for (int32_t e = g->states[q].first_edge; e != NONE; e = g->edges[e].next) {
        edge_find(g, clone, g->edges[e].token, &slot);
        edge_add(g, clone, g->edges[e].token, g->edges[e].to, slot);
    }
    for (; p != NONE; p = g->states[p].link) {
        int32_t e = edge_find(g, p, token, &slot);
        if (e == NONE || g->edges[e].to != q) break;
        g->edges[e].to = clone;
    }
    g->states[q].link = clone;
    return clone;
}

static void token_append(struct ngram *g, int32_t token) {
    int32_t pos = g->n_tokens, state = g->n_states++, p = g->last, e = NONE;
    uint32_t slot = 0;
    g->text[g->n_tokens++] = token;
    g->states[state] = (struct state){g->states[p].len + 1, 0, NONE, pos, pos};
    for (; p != NONE && (e = edge_find(g, p, token, &slot)) == NONE; p = g->states[p].link)
        edge_add(g, p, token, state, slot);
    if (p != NONE) {
        int32_t q = g->edges[e].to, len = g->states[p].len + 1;
        g->states[state].link = g->states[q].len == len ? q : state_split(g, q, p, token, len);
    }
    g->last = state;
    g->match = g->states[state].link;
    g->match_end = g->states[g->match].end_recent;
    for (int i = 0, s = g->match; i < RECENT_STEPS && s > 0; i++, s = g->states[s].link) g->states[s].end_recent = pos;
}

// Forgets the older half.
static void text_halve(struct ngram *g) {
    int n = g->tokens_max / 2, from = g->n_tokens - n;
    g->forgotten += (size_t)from;
    automaton_clear(g);
    for (int i = 0; i < n; i++) token_append(g, g->text[from + i]);
}

void ngram_append(struct ngram *g, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (g->n_tokens == g->tokens_max) text_halve(g);
        token_append(g, tokens[i]);
    }
}

void ngram_truncate(struct ngram *g, size_t len) {
    if (len >= ngram_len(g)) return;
    int n = len > g->forgotten ? (int)(len - g->forgotten) : 0;
    automaton_clear(g);
    if (n == 0) g->forgotten = len;
    for (int i = 0; i < n; i++) token_append(g, g->text[i]);
}

int ngram_match_len(const struct ngram *g) { return g->states[g->match].len; }

// Where the longest suffix of text + path that is followed by something ended; *len is its length.
static int32_t match_after(const struct ngram *g, const int32_t *path, int n_path, int32_t *len) {
    int32_t s = g->last, e = NONE;
    uint32_t slot = 0;
    *len = g->states[s].len;
    for (int i = 0; i < n_path; i++) {
        while (s != NONE && (e = edge_find(g, s, path[i], &slot)) == NONE) {
            s = g->states[s].link;
            if (s != NONE) *len = g->states[s].len;
        }
        if (s == NONE) {
            s = 0;
            *len = 0;
            continue;
        }
        s = g->edges[e].to;
        ++*len;
    }
    for (; s > 0; s = g->states[s].link) {
        if (*len > g->states[s].len) *len = g->states[s].len;
        int32_t end = g->states[s].end_recent < g->n_tokens - 1 ? g->states[s].end_recent : g->states[s].end_first;
        if (end < g->n_tokens - 1) return end;
    }
    *len = 0;
    return NONE;
}

int ngram_propose(const struct ngram *g, const int32_t *path, int n_path, int len_min, int32_t *out, int n) {
    int32_t len = g->states[g->match].len, end = g->match_end;
    if (n_path > 0) end = match_after(g, path, n_path, &len);
    if (len < MAX(len_min, 1)) return 0;
    for (int i = 0; i < n; i++) {
        int at = end + 1 + i - g->n_tokens; // beyond the text: into the path, then into the proposal itself
        out[i] = at < 0 ? g->text[at + g->n_tokens] : at < n_path ? path[at] : out[at - n_path];
    }
    return MAX(n, 0);
}

int ngram_extend(const struct ngram *g, struct token_tree *t, int len_min, int n_each, int nodes_max) {
    int n_before = t->n, depth = 0;
    bool done[TREE_NODES_MAX] = {false};
    for (int i = 0; i < n_before; i++) depth = MAX(depth, t->nodes[i].depth);
    nodes_max = MIN(nodes_max, TREE_NODES_MAX);
    while (t->n < nodes_max) {
        int best = TREE_NO_NODE;
        for (int i = 0; i < n_before; i++)
            if (t->nodes[i].depth == depth && !done[i] &&
                (best == TREE_NO_NODE || t->nodes[i].score > t->nodes[best].score))
                best = i;
        if (best == TREE_NO_NODE) break;
        done[best] = true;
        int32_t path[TREE_NODES_MAX], next[TREE_NODES_MAX];
        int n_path = token_tree_path(t, best, path);
        int n = ngram_propose(g, path, n_path, len_min, next, MIN(n_each, nodes_max - t->n));
        token_tree_add_chain(t, best, next, n, nodes_max);
    }
    return t->n - n_before;
}
