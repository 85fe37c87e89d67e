// Building a grammar: nodes, edges, rules and key tables in growing arrays. While building, what leaves a node is a
// linked list; constraint_finish.c makes it safe and quick to run. Bytes that no token spells get no edge at all, so
// that what is left can be reached token by token.
#include "base/base.h"
#include "text/constraint_int.h"

#define GROW_FIRST 64

bool grammar_grow(struct grammar_builder *b, void **items, size_t *cap, size_t n, size_t size, size_t max,
                  const char *what) {
    if (!grammar_work(b, 1)) return false;
    if (n < *cap) return true;
    if (n >= max) return GRAMMAR_FAIL(b, TERN_LIMIT, "the constraint is too large: more than %zu %s", max, what);
    size_t cap_new = *cap ? MIN(*cap * 2, max) : GROW_FIRST, bytes;
    void *p = size_mul(cap_new, size, &bytes) ? mem_realloc(*items, bytes) : NULL;
    if (!p) return GRAMMAR_FAIL(b, TERN_NO_MEMORY, "no memory for a constraint");
    *items = p;
    *cap = cap_new;
    return true;
}

bool grammar_work(struct grammar_builder *b, size_t steps) {
    if (b->status != TERN_OK) return false;
    b->work += steps;
    if (b->work <= CONSTRAINT_WORK_MAX) return true;
    return GRAMMAR_FAIL(b, TERN_LIMIT, "the constraint takes more than %d steps to compile; make it smaller",
                        CONSTRAINT_WORK_MAX);
}

// The new item's number after room was made; GRAMMAR_NONE after a failure.
#define GRAMMAR_PUSH(b, field, max, what)                                                                          \
    (grammar_grow(b, (void **)&(b)->g->field, &(b)->g->cap_##field, (b)->g->n_##field, sizeof *(b)->g->field, max, \
                  what)                                                                                            \
         ? (int32_t)(b)->g->n_##field++                                                                            \
         : GRAMMAR_NONE)

int32_t grammar_node(struct grammar_builder *b) {
    int32_t i = GRAMMAR_PUSH(b, nodes, GRAMMAR_NODES_MAX, "nodes");
    if (i < 0) return GRAMMAR_NONE;
    b->g->nodes[i] =
        (struct g_node){.edges = GRAMMAR_NONE, .calls = GRAMMAR_NONE, .tokens = GRAMMAR_NONE, .dense = GRAMMAR_NONE};
    return i;
}

int32_t grammar_rule(struct grammar_builder *b, uint32_t min, uint32_t max) {
    int32_t i = GRAMMAR_PUSH(b, rules, GRAMMAR_RULES_MAX, "rules");
    if (i < 0) return GRAMMAR_NONE;
    b->g->rules[i] = (struct g_rule){.start = GRAMMAR_NONE, .min = min, .max = max, .object = GRAMMAR_NONE};
    return i;
}

static void edge_put(struct grammar_builder *b, int32_t from, int lo, int hi, int32_t to, int flags, int32_t guard) {
    int32_t i = GRAMMAR_PUSH(b, edges, GRAMMAR_EDGES_MAX, "edges");
    if (i < 0) return;
    b->g->edges[i] = (struct g_edge){.lo = (uint8_t)lo,
                                     .hi = (uint8_t)hi,
                                     .flags = (uint8_t)flags,
                                     .to = to,
                                     .guard = guard,
                                     .next = b->g->nodes[from].edges};
    b->g->nodes[from].edges = i;
}

void grammar_edge(struct grammar_builder *b, int32_t from, int lo, int hi, int32_t to, int flags, int32_t guard) {
    if (b->status != TERN_OK || from < 0 || to < 0) return;
    for (int c = lo; c <= hi;) { // the runs of bytes that some token spells
        while (c <= hi && !(b->bytes[c / 8] >> (c % 8) & 1)) c++;
        int start = c;
        while (c <= hi && (b->bytes[c / 8] >> (c % 8) & 1)) c++;
        if (c > start) edge_put(b, from, start, c - 1, to, flags, guard);
    }
}

void grammar_call(struct grammar_builder *b, int32_t from, int32_t rule, int32_t to, bool counts) {
    if (b->status != TERN_OK || from < 0 || rule < 0 || to < 0) return;
    int32_t i = GRAMMAR_PUSH(b, calls, GRAMMAR_EDGES_MAX, "calls");
    if (i < 0) return;
    b->g->calls[i] = (struct g_call){.rule = rule, .to = to, .counts = counts, .next = b->g->nodes[from].calls};
    b->g->nodes[from].calls = i;
}

void grammar_token(struct grammar_builder *b, int32_t from, int32_t id, int32_t to) {
    if (b->status != TERN_OK || from < 0 || to < 0) return;
    int32_t i = GRAMMAR_PUSH(b, tokens, GRAMMAR_EDGES_MAX, "markers");
    if (i < 0) return;
    b->g->tokens[i] = (struct g_token){.id = id, .to = to, .next = b->g->nodes[from].tokens};
    b->g->nodes[from].tokens = i;
}

int32_t grammar_text(struct grammar_builder *b, int32_t from, struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        int32_t to = grammar_node(b);
        grammar_edge(b, from, (uint8_t)text.data[i], (uint8_t)text.data[i], to, 0, GRAMMAR_NONE);
        from = to;
    }
    return from;
}

int32_t grammar_guard(struct grammar_builder *b, const struct key_guard *guard) {
    int32_t i = GRAMMAR_PUSH(b, guards, GRAMMAR_EDGES_MAX, "guards");
    if (i >= 0) b->g->guards[i] = *guard;
    return i;
}

int32_t grammar_object(struct grammar_builder *b, const struct g_object *o) {
    int32_t i = GRAMMAR_PUSH(b, objects, GRAMMAR_RULES_MAX, "objects");
    if (i >= 0) b->g->objects[i] = *o;
    return i;
}

int32_t grammar_key(struct grammar_builder *b, const struct g_key *key) {
    int32_t i = GRAMMAR_PUSH(b, keys, GRAMMAR_EDGES_MAX, "keys");
    if (i >= 0) b->g->keys[i] = *key;
    return i;
}

int32_t grammar_guard_key(struct grammar_builder *b, int32_t key) {
    int32_t i = GRAMMAR_PUSH(b, guard_keys, GRAMMAR_EDGES_MAX, "guarded keys");
    if (i >= 0) b->g->guard_keys[i] = key;
    return i;
}

int32_t grammar_dense(struct grammar_builder *b) { return GRAMMAR_PUSH(b, dense, GRAMMAR_NODES_MAX, "tables"); }

void grammar_free(struct grammar *g) {
    if (!g) return;
    mem_free(g->nodes);
    mem_free(g->edges);
    mem_free(g->calls);
    mem_free(g->tokens);
    mem_free(g->rules);
    mem_free(g->objects);
    mem_free(g->keys);
    mem_free(g->guards);
    mem_free(g->guard_keys);
    mem_free(g->dense);
    mem_free(g);
}

size_t grammar_bytes(const struct grammar *g) {
    return sizeof *g + g->cap_nodes * sizeof *g->nodes + g->cap_edges * sizeof *g->edges +
           g->cap_calls * sizeof *g->calls + g->cap_tokens * sizeof *g->tokens + g->cap_rules * sizeof *g->rules +
           g->cap_objects * sizeof *g->objects + g->cap_keys * sizeof *g->keys + g->cap_guards * sizeof *g->guards +
           g->cap_guard_keys * sizeof *g->guard_keys + g->cap_dense * sizeof *g->dense;
}

bool grammar_table_grow(struct grammar_builder *b, struct grammar_table *t, const void *items, size_t n_items,
                        size_t stride, size_t hash_at) {
    size_t n = t->n ? t->n * 2 : 256;
    int32_t *places = mem_alloc(n * sizeof *places);
    if (!places) return GRAMMAR_FAIL(b, TERN_NO_MEMORY, "no memory for a constraint");
    for (size_t i = 0; i < n; i++) places[i] = GRAMMAR_NONE;
    for (size_t i = 0; i < n_items; i++) {
        uint64_t hash;
        memcpy(&hash, (const char *)items + i * stride + hash_at, sizeof hash);
        size_t at = hash & (n - 1);
        while (places[at] >= 0) at = (at + 1) & (n - 1);
        places[at] = (int32_t)i;
    }
    mem_free(t->places);
    *t = (struct grammar_table){places, n};
    return true;
}
