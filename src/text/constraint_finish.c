// The last pass over a built grammar: fixed points of what can be produced, what may be empty and how many frames the
// shallowest way needs; then the cut of what leads nowhere, the refusal of left recursion, and edges side by side.
//
// Nodes are visited from the last to the first: builders make a node before what follows it, so few passes are needed.
#include "base/base.h"
#include "text/constraint_int.h"

#define HEIGHT_UNKNOWN UINT16_MAX
#define HEAVY_BYTES 16 // a node where more bytes go on is heavy

// ---------------------------------------------------------------------------------------------------- fixed points

static bool node_is_productive(const struct grammar *g, const struct g_node *n) {
    if (n->accept) return true;
    for (int32_t i = n->edges; i >= 0; i = g->edges[i].next)
        if (g->nodes[g->edges[i].to].productive) return true;
    for (int32_t i = n->tokens; i >= 0; i = g->tokens[i].next)
        if (g->nodes[g->tokens[i].to].productive) return true;
    for (int32_t i = n->calls; i >= 0; i = g->calls[i].next)
        if (g->rules[g->calls[i].rule].productive && g->nodes[g->calls[i].to].productive) return true;
    return false;
}

static bool object_is_productive(const struct grammar *g, const struct g_object *o) {
    bool some = !o->needs_one || (o->generic >= 0 && g->rules[o->generic].productive);
    for (int32_t i = 0; i < o->n_keys; i++) {
        const struct g_key *k = &g->keys[o->first_key + i];
        bool possible = g->rules[k->rule].productive;
        if (k->required && !possible) return false;
        some |= possible;
    }
    return some;
}

static bool rule_is_productive(const struct grammar *g, const struct g_rule *r) {
    if (r->start < 0 || r->min > r->max || !g->nodes[r->start].productive) return false;
    return r->object < 0 || object_is_productive(g, &g->objects[r->object]);
}

static void productive_find(struct grammar_builder *b) {
    struct grammar *g = b->g;
    for (bool changed = true; changed && grammar_work(b, g->n_nodes + g->n_edges);) {
        changed = false;
        for (size_t i = g->n_nodes; i-- > 0;) {
            struct g_node *n = &g->nodes[i];
            if (!n->productive && node_is_productive(g, n)) n->productive = changed = true;
        }
        for (size_t i = 0; i < g->n_rules; i++) {
            struct g_rule *r = &g->rules[i];
            if (!r->productive && rule_is_productive(g, r)) r->productive = changed = true;
        }
    }
}

// A node is empty when its rule may end without another byte, but for the counters.
static bool node_is_empty(const struct grammar *g, const struct g_node *n) {
    if (n->accept) return true;
    for (int32_t i = n->calls; i >= 0; i = g->calls[i].next)
        if (g->rules[g->calls[i].rule].nullable && g->nodes[g->calls[i].to].empty) return true;
    return false;
}

static void nullable_find(struct grammar_builder *b) {
    struct grammar *g = b->g;
    for (bool changed = true; changed && grammar_work(b, g->n_nodes + g->n_edges);) {
        changed = false;
        for (size_t i = g->n_nodes; i-- > 0;)
            if (!g->nodes[i].empty && node_is_empty(g, &g->nodes[i])) g->nodes[i].empty = changed = true;
        for (size_t i = 0; i < g->n_rules; i++) {
            struct g_rule *r = &g->rules[i];
            if (r->nullable || !r->productive || r->min > 0 || !g->nodes[r->start].empty) continue;
            r->nullable = changed = true;
        }
    }
}

// What passing an edge asks for. Once a key has begun, any of the object's keys may have to fit.
static uint16_t edge_height(const struct grammar *g, const struct g_edge *e) {
    if (!(e->flags & EDGE_KEYED)) return g->nodes[e->to].height;
    const struct key_guard *guard = &g->guards[e->guard];
    const struct g_object *o = &g->objects[guard->object];
    if (guard->closes) return o->height_required;
    return o->height_most;
}

static uint16_t node_height(const struct grammar *g, const struct g_node *n) {
    uint16_t best = n->accept ? 0 : HEIGHT_UNKNOWN;
    for (int32_t i = n->edges; i >= 0; i = g->edges[i].next)
        if (g->nodes[g->edges[i].to].productive) best = MIN(best, edge_height(g, &g->edges[i]));
    for (int32_t i = n->tokens; i >= 0; i = g->tokens[i].next) best = MIN(best, g->nodes[g->tokens[i].to].height);
    for (int32_t i = n->calls; i >= 0; i = g->calls[i].next) {
        const struct g_rule *r = &g->rules[g->calls[i].rule];
        if (!r->productive || r->height == HEIGHT_UNKNOWN) continue;
        best = MIN(best, MAX((uint16_t)(r->height + 1), g->nodes[g->calls[i].to].height));
    }
    return best;
}

static bool object_measure(const struct grammar *g, struct g_object *o) {
    uint16_t most = 0;
    bool required = o->needs_one;
    for (int32_t i = -1; i < o->n_keys; i++) {
        int32_t rule = i < 0 ? o->generic : g->keys[o->first_key + i].rule;
        if (rule < 0 || !g->rules[rule].productive) continue;
        if (i >= 0) required |= g->keys[o->first_key + i].required;
        uint16_t h = g->rules[rule].height;
        most = MAX(most, h == HEIGHT_UNKNOWN ? h : (uint16_t)(h + 1));
    }
    bool changed = most != o->height_most;
    o->height_most = most;
    o->height_required = required ? most : 0;
    return changed;
}

static void heights_find(struct grammar_builder *b) {
    struct grammar *g = b->g;
    for (size_t i = 0; i < g->n_nodes; i++) g->nodes[i].height = HEIGHT_UNKNOWN;
    for (size_t i = 0; i < g->n_rules; i++) g->rules[i].height = HEIGHT_UNKNOWN;
    for (bool changed = true; changed && grammar_work(b, g->n_nodes + g->n_edges);) {
        changed = false;
        for (size_t i = 0; i < g->n_objects; i++) changed |= object_measure(g, &g->objects[i]);
        for (size_t i = g->n_nodes; i-- > 0;) {
            if (!g->nodes[i].productive) continue;
            uint16_t h = node_height(g, &g->nodes[i]);
            changed |= h != g->nodes[i].height;
            g->nodes[i].height = h;
        }
        for (size_t i = 0; i < g->n_rules; i++)
            if (g->rules[i].productive) g->rules[i].height = g->nodes[g->rules[i].start].height;
    }
}

// ------------------------------------------------------------------------------------------------- left recursion

struct left_walk {
    struct grammar_builder *b;
    uint8_t *color; // per rule: 0 new, 1 open, 2 done
    int32_t *stack; // rules, and nodes in starts_gather
    int32_t *begun; // per rule: the next of its callees to look at
    int32_t *heads; // per rule: its first in `list`
    int32_t *list;  // callees
    int32_t *seen;  // per node: 1 + the last rule that came here
    size_t n_list, cap_list;
};

// All rules that may be called before a byte is read in this one.
static void starts_gather(struct left_walk *w, int32_t rule) {
    const struct grammar *g = w->b->g;
    int32_t n = 0;
    w->stack[n++] = g->rules[rule].start;
    w->seen[g->rules[rule].start] = rule + 1;
    while (n > 0) {
        int32_t node = w->stack[--n];
        for (int32_t i = g->nodes[node].calls; i >= 0; i = g->calls[i].next) {
            const struct g_call *c = &g->calls[i];
            if (!g->rules[c->rule].productive || !g->nodes[c->to].productive) continue;
            if (!grammar_grow(w->b, (void **)&w->list, &w->cap_list, w->n_list, sizeof *w->list, GRAMMAR_EDGES_MAX,
                              "calls"))
                return;
            w->list[w->n_list++] = c->rule;
            if (!g->rules[c->rule].nullable || w->seen[c->to] == rule + 1) continue;
            w->seen[c->to] = rule + 1;
            w->stack[n++] = c->to;
        }
    }
}

// Depth first without recursion. Returns a rule on a cycle, or GRAMMAR_NONE.
static int32_t left_cycle(struct left_walk *w) {
    int32_t n_rules = (int32_t)w->b->g->n_rules;
    for (int32_t from = 0; from < n_rules; from++) {
        int32_t n = 0;
        if (w->color[from]) continue;
        w->color[from] = 1;
        w->stack[n++] = from;
        while (n > 0) {
            int32_t rule = w->stack[n - 1];
            int32_t at = w->begun[rule]++;
            if (at >= w->heads[rule + 1]) {
                w->color[rule] = 2;
                n--;
                continue;
            }
            int32_t next = w->list[at];
            if (w->color[next] == 1) return next;
            if (w->color[next]) continue;
            w->color[next] = 1;
            w->stack[n++] = next;
        }
    }
    return GRAMMAR_NONE;
}

static void left_recursion_check(struct grammar_builder *b) {
    struct grammar *g = b->g;
    size_t n = g->n_rules + 1;
    struct left_walk w = {.b = b,
                          .color = mem_calloc(n, 1),
                          .stack = mem_calloc(n + g->n_nodes, sizeof *w.stack),
                          .seen = mem_calloc(g->n_nodes + 1, sizeof *w.seen),
                          .begun = mem_calloc(n, sizeof *w.begun),
                          .heads = mem_calloc(n, sizeof *w.heads)};
    if (!w.color || !w.stack || !w.begun || !w.heads || !w.seen)
        GRAMMAR_FAIL(b, TERN_NO_MEMORY, "no memory for a constraint");
    for (size_t i = 0; i < g->n_rules && b->status == TERN_OK; i++) {
        w.heads[i] = w.begun[i] = (int32_t)w.n_list;
        if (g->rules[i].productive) starts_gather(&w, (int32_t)i);
        w.heads[i + 1] = (int32_t)w.n_list;
    }
    int32_t cycle = b->status == TERN_OK ? left_cycle(&w) : GRAMMAR_NONE;
    if (cycle >= 0) {
        struct str name = g->rules[cycle].name;
        GRAMMAR_FAIL(b, TERN_BAD_FORMAT,
                     "%s%.*s begins with itself (left recursion), so it could be entered for ever; write the "
                     "repetition with * or put the recursion at the end",
                     name.len ? "rule " : "a rule", (int)MIN(name.len, 64), name.data);
    }
    mem_free(w.color);
    mem_free(w.stack);
    mem_free(w.begun);
    mem_free(w.seen);
    mem_free(w.heads);
    mem_free(w.list);
}

// -------------------------------------------------------------------------------------------------------- flattening

static void edges_sort(struct g_edge *e, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && e[k].lo < e[k - 1].lo; k--) {
            struct g_edge t = e[k];
            e[k] = e[k - 1];
            e[k - 1] = t;
        }
}

static void node_flatten(struct grammar *g, struct g_node *n, struct g_edge *edges, size_t *n_edges,
                         struct g_call *calls, size_t *n_calls, struct g_token *tokens, size_t *n_tokens) {
    size_t e0 = *n_edges, c0 = *n_calls, t0 = *n_tokens;
    for (int32_t i = n->edges; i >= 0; i = g->edges[i].next)
        if (g->nodes[g->edges[i].to].productive) edges[(*n_edges)++] = g->edges[i];
    for (int32_t i = n->calls; i >= 0; i = g->calls[i].next)
        if (g->rules[g->calls[i].rule].productive && g->nodes[g->calls[i].to].productive)
            calls[(*n_calls)++] = g->calls[i];
    for (int32_t i = n->tokens; i >= 0; i = g->tokens[i].next)
        if (g->nodes[g->tokens[i].to].productive) tokens[(*n_tokens)++] = g->tokens[i];
    n->edges = (int32_t)e0;
    n->calls = (int32_t)c0;
    n->tokens = (int32_t)t0;
    n->n_edges = (uint16_t)(*n_edges - e0);
    n->n_calls = (uint16_t)(*n_calls - c0);
    n->n_tokens = (uint16_t)(*n_tokens - t0);
    edges_sort(edges + e0, n->n_edges);
}

static void flatten(struct grammar_builder *b) {
    struct grammar *g = b->g;
    struct g_edge *edges = mem_calloc(g->n_edges + 1, sizeof *edges);
    struct g_call *calls = mem_calloc(g->n_calls + 1, sizeof *calls);
    struct g_token *tokens = mem_calloc(g->n_tokens + 1, sizeof *tokens);
    size_t n_edges = 0, n_calls = 0, n_tokens = 0;
    if (!edges || !calls || !tokens) {
        GRAMMAR_FAIL(b, TERN_NO_MEMORY, "no memory for a constraint");
        mem_free(edges);
        mem_free(calls);
        mem_free(tokens);
        return;
    }
    for (size_t i = 0; i < g->n_nodes; i++)
        node_flatten(g, &g->nodes[i], edges, &n_edges, calls, &n_calls, tokens, &n_tokens);
    mem_free(g->edges);
    mem_free(g->calls);
    mem_free(g->tokens);
    g->edges = edges;
    g->calls = calls;
    g->tokens = tokens;
    g->cap_edges = g->n_edges + 1;
    g->cap_calls = g->n_calls + 1;
    g->cap_tokens = g->n_tokens + 1;
    g->n_edges = n_edges;
    g->n_calls = n_calls;
    g->n_tokens = n_tokens;
}

static bool keyed_now(const struct grammar *g, const struct g_node *n) {
    for (int i = 0; i < n->n_edges; i++) {
        const struct g_edge *e = &g->edges[n->edges + i];
        if ((e->flags & EDGE_KEYED) || (g->nodes[e->to].plain && g->nodes[e->to].keyed)) return true;
    }
    return false;
}

// Pieces that others were made from stay in the arrays; what the root does not reach is never heavy.
static void unreached_mark(struct grammar_builder *b) {
    struct grammar *g = b->g;
    int32_t *work = mem_calloc(g->n_nodes + 1, sizeof *work);
    bool *seen = mem_calloc(g->n_nodes + 1, sizeof *seen);
    size_t n = 0;
    if (work && seen) {
        work[n++] = g->rules[g->root].start;
        seen[work[0]] = true;
    } else {
        GRAMMAR_FAIL(b, TERN_NO_MEMORY, "no memory for a constraint");
    }
    while (n > 0) {
        const struct g_node *node = &g->nodes[work[--n]];
        for (int k = 0; k < node->n_edges + node->n_tokens + 2 * node->n_calls; k++) {
            int calls = k - node->n_edges - node->n_tokens;
            const struct g_call *call = calls >= 0 ? &g->calls[node->calls + calls / 2] : NULL;
            int32_t to = k < node->n_edges ? g->edges[node->edges + k].to
                         : !call           ? g->tokens[node->tokens + k - node->n_edges].to
                         : calls % 2       ? g->rules[call->rule].start
                                           : call->to;
            if (seen[to]) continue;
            seen[to] = true;
            work[n++] = to;
        }
    }
    for (size_t i = 0; seen && i < g->n_nodes; i++) g->nodes[i].heavy &= seen[i];
    mem_free(work);
    mem_free(seen);
}

static void kinds_find(struct grammar_builder *b) {
    struct grammar *g = b->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        struct g_node *n = &g->nodes[i];
        int bytes = 0;
        for (int k = 0; k < n->n_edges; k++) bytes += g->edges[n->edges + k].hi - g->edges[n->edges + k].lo + 1;
        n->plain = !n->accept && n->n_calls == 0 && n->n_tokens == 0;
        n->heavy = bytes > HEAVY_BYTES && n->n_calls == 0 && n->n_tokens == 0;
    }
    unreached_mark(b);
    for (bool changed = true; changed && grammar_work(b, g->n_nodes + g->n_edges);) {
        changed = false;
        for (size_t i = g->n_nodes; i-- > 0;)
            if (!g->nodes[i].keyed && keyed_now(g, &g->nodes[i])) g->nodes[i].keyed = changed = true;
    }
}

static void dense_make(struct grammar_builder *b) {
    struct grammar *g = b->g;
    for (size_t i = 0; i < g->n_nodes && b->status == TERN_OK; i++) {
        struct g_node *n = &g->nodes[i];
        if (!n->heavy) continue;
        int32_t at = grammar_dense(b);
        if (at < 0) return;
        n->dense = at;
        for (int c = 0; c < 256; c++) g->dense[at][c] = -1;
        for (int k = 0; k < n->n_edges; k++)
            for (int c = g->edges[n->edges + k].lo; c <= g->edges[n->edges + k].hi; c++) g->dense[at][c] = (int16_t)k;
    }
}

// Keys that cannot be produced leave the guards; `stop` is filled in.
static void keys_settle(struct grammar *g) {
    for (size_t i = 0; i < g->n_objects; i++) {
        struct g_object *o = &g->objects[i];
        o->allow_generic = o->generic >= 0 && g->rules[o->generic].productive;
        int32_t stop = o->n_keys;
        for (int32_t k = o->n_keys; k-- > 0;) {
            struct g_key *key = &g->keys[o->first_key + k];
            key->possible = g->rules[key->rule].productive;
            if (key->required) stop = k;
            key->stop = stop;
        }
    }
    for (size_t i = 0; i < g->n_guards; i++) {
        struct key_guard *guard = &g->guards[i];
        const struct g_object *o = &g->objects[guard->object];
        int32_t kept = 0;
        for (int32_t k = 0; k < guard->n; k++)
            if (g->keys[o->first_key + g->guard_keys[guard->first + k]].possible)
                g->guard_keys[guard->first + kept++] = g->guard_keys[guard->first + k];
        guard->n = kept;
        guard->generic &= o->allow_generic;
    }
}

bool grammar_finish(struct grammar_builder *b) {
    if (b->status != TERN_OK) return false;
    struct grammar *g = b->g;
    productive_find(b);
    if (b->status == TERN_OK && !g->rules[g->root].productive)
        return GRAMMAR_FAIL(b, TERN_BAD_FORMAT, "the constraint allows no text at all");
    nullable_find(b);
    if (b->status == TERN_OK) left_recursion_check(b);
    if (b->status != TERN_OK) return false;
    heights_find(b);
    if (b->status == TERN_OK && g->rules[g->root].height > g->depth_max)
        return GRAMMAR_FAIL(b, TERN_LIMIT, "the constraint nests at least %d deep; at most %d is possible",
                            g->rules[g->root].height, g->depth_max);
    if (b->status == TERN_OK) keys_settle(g);
    if (b->status == TERN_OK) flatten(b);
    if (b->status == TERN_OK) kinds_find(b);
    if (b->status == TERN_OK) dense_make(b);
    return b->status == TERN_OK;
}
