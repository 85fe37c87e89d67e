// Nondeterministic pieces (patterns, number ranges, lists of values, grammar rules) made deterministic by subsets.
//
// A piece has byte ranges, empty moves and calls. Each subset of its nodes becomes one node of the grammar; the work is
// bounded by nodes, by the sum of the subsets' sizes and by the builder's time, so a pattern that explodes is refused.
#include "base/base.h"
#include "text/constraint_int.h"

#define SUBSETS_MAX 50000
#define SUBSET_ITEMS_MAX 4000000 // of all subsets together

void nfa_init(struct nfa *n, struct grammar_builder *b) { *n = (struct nfa){.b = b}; }

void nfa_release(struct nfa *n) {
    mem_free(n->heads);
    mem_free(n->edges);
    *n = (struct nfa){0};
}

int32_t nfa_node(struct nfa *n) {
    if (!grammar_grow(n->b, (void **)&n->heads, &n->cap, n->n, sizeof *n->heads, GRAMMAR_NFA_MAX,
                      "states in one pattern, rule or list"))
        return 0;
    n->heads[n->n] = GRAMMAR_NONE;
    return (int32_t)n->n++;
}

static void edge_put(struct nfa *n, int32_t from, struct nfa_edge e) {
    if (!grammar_grow(n->b, (void **)&n->edges, &n->cap_edges, n->n_edges, sizeof *n->edges, GRAMMAR_NFA_MAX * 16,
                      "moves in one pattern, rule or list"))
        return;
    e.next = n->heads[from];
    n->edges[n->n_edges] = e;
    n->heads[from] = (int32_t)n->n_edges++;
}

void nfa_byte(struct nfa *n, int32_t from, int lo, int hi, int32_t to) {
    edge_put(n, from, (struct nfa_edge){.to = to, .rule = GRAMMAR_NONE, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
}
void nfa_empty(struct nfa *n, int32_t from, int32_t to) {
    edge_put(n, from, (struct nfa_edge){.to = to, .rule = GRAMMAR_NONE, .empty = true});
}
void nfa_call(struct nfa *n, int32_t from, int32_t rule, int32_t to) {
    edge_put(n, from, (struct nfa_edge){.to = to, .rule = rule});
}

int32_t nfa_text(struct nfa *n, int32_t from, struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        int32_t to = nfa_node(n);
        nfa_byte(n, from, (uint8_t)text.data[i], (uint8_t)text.data[i], to);
        from = to;
    }
    return from;
}

// -------------------------------------------------------------------------------------------------------------- runes

// One range whose ends have equally long encodings: split until every byte but the last is fixed or spans 80…BF.
static void runes_same_len(struct nfa *n, int32_t from, uint32_t lo, uint32_t hi, int len, int32_t to) {
    for (int i = 1; i < len; i++) {
        uint32_t m = (1u << (6 * i)) - 1;
        if ((lo & ~m) == (hi & ~m)) continue;
        if (lo & m) {
            runes_same_len(n, from, lo, lo | m, len, to);
            runes_same_len(n, from, (lo | m) + 1, hi, len, to);
            return;
        }
        if ((hi & m) != m) {
            runes_same_len(n, from, lo, (hi & ~m) - 1, len, to);
            runes_same_len(n, from, hi & ~m, hi, len, to);
            return;
        }
    }
    char a[4], z[4];
    utf8_encode(lo, a);
    utf8_encode(hi, z);
    for (int i = 0; i < len; i++) {
        int32_t next = i + 1 < len ? nfa_node(n) : to;
        nfa_byte(n, from, (uint8_t)a[i], (uint8_t)z[i], next);
        from = next;
    }
}

void nfa_runes(struct nfa *n, int32_t from, uint32_t lo, uint32_t hi, int32_t to) {
    static const struct {
        uint32_t lo, hi;
        int len;
    } parts[] = {{0, 0x7F, 1}, {0x80, 0x7FF, 2}, {0x800, 0xD7FF, 3}, {0xE000, 0xFFFF, 3}, {0x10000, 0x10FFFF, 4}};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        uint32_t a = MAX(lo, parts[i].lo), z = MIN(hi, parts[i].hi);
        if (a <= z) runes_same_len(n, from, a, z, parts[i].len, to);
    }
}

void nfa_json_runes(struct nfa *n, int32_t from, uint32_t lo, uint32_t hi, int32_t to) {
    static const struct { uint32_t lo, hi; } plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        uint32_t a = MAX(lo, plain[i].lo), z = MIN(hi, plain[i].hi);
        if (a <= z) nfa_runes(n, from, a, z, to);
    }
    for (uint32_t r = lo; r <= MIN(hi, 0x5Cu); r++) {
        if (r >= 0x20 && r != '"' && r != '\\') continue;
        char c = (char)r;
        struct buf b;
        buf_init(&b, 32);
        if (!json_put_quoted(&b, (struct str){&c, 1})) {
            GRAMMAR_FAIL(n->b, TERN_NO_MEMORY, "no memory for a constraint");
        } else {
            int32_t end = nfa_text(n, from, (struct str){b.data + 1, b.len - 2});
            nfa_empty(n, end, to);
        }
        buf_release(&b);
    }
}

// ------------------------------------------------------------------------------------------------------------ subsets

struct subset {
    size_t first, n; // in items
    uint64_t hash;
    int32_t node;
};
struct subsets {
    struct nfa *nfa;
    struct grammar_builder *b;
    int32_t *items;
    struct subset *sets;
    struct grammar_table table;
    size_t n_items, cap_items, n_sets, cap_sets;
    uint32_t *mark; // per NFA node: the stamp of the closure it is in
    uint32_t stamp;
    int32_t *work, *gather; // [n_nfa] stacks
    int32_t accept;
};

static void ints_sift(int32_t *v, size_t at, size_t n) {
    for (size_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && v[child + 1] > v[child]) child++;
        if (v[at] >= v[child]) return;
        int32_t t = v[at];
        v[at] = v[child];
        v[child] = t;
    }
}

static void ints_sort(int32_t *v, size_t n) {
    for (size_t i = n / 2; i-- > 0;) ints_sift(v, i, n);
    for (size_t i = n; i-- > 1;) {
        int32_t t = v[0];
        v[0] = v[i];
        v[i] = t;
        ints_sift(v, 0, i);
    }
}

// Appends the closure of gather[0 … n) to the items, sorted. Nodes with empty moves only are not remembered.
static bool closure_put(struct subsets *s, size_t n, size_t *count) {
    const struct nfa *nfa = s->nfa;
    size_t n_work = 0;
    *count = 0;
    s->stamp++;
    for (size_t i = 0; i < n; i++) {
        if (s->mark[s->gather[i]] == s->stamp) continue;
        s->mark[s->gather[i]] = s->stamp;
        s->work[n_work++] = s->gather[i];
    }
    while (n_work > 0) {
        int32_t at = s->work[--n_work];
        bool needed = at == s->accept;
        for (int32_t e = nfa->heads[at]; e >= 0; e = nfa->edges[e].next) {
            int32_t to = nfa->edges[e].to;
            needed |= !nfa->edges[e].empty;
            if (!nfa->edges[e].empty || s->mark[to] == s->stamp) continue;
            s->mark[to] = s->stamp;
            s->work[n_work++] = to;
        }
        if (!needed) continue;
        if (!grammar_grow(s->b, (void **)&s->items, &s->cap_items, s->n_items + *count, sizeof *s->items,
                          SUBSET_ITEMS_MAX, "states of a pattern at once"))
            return false;
        s->items[s->n_items + (*count)++] = at;
    }
    if (*count > 0) ints_sort(s->items + s->n_items, *count);
    return true;
}

// The subset that is the closure of gather[0 … n), new or known; its node of the grammar, or GRAMMAR_NONE.
static int32_t subset_node(struct subsets *s, size_t n) {
    size_t count;
    if (!closure_put(s, n, &count)) return GRAMMAR_NONE;
    if (s->n_sets * 2 >= s->table.n &&
        !grammar_table_grow(s->b, &s->table, s->sets, s->n_sets, sizeof *s->sets, offsetof(struct subset, hash)))
        return GRAMMAR_NONE;
    const int32_t *items = s->items + s->n_items;
    uint64_t hash = count ? hash_bytes(items, count * sizeof *items, 1) : 1;
    size_t at = hash & (s->table.n - 1);
    for (; s->table.places[at] >= 0; at = (at + 1) & (s->table.n - 1)) {
        const struct subset *o = &s->sets[s->table.places[at]];
        if (o->hash == hash && o->n == count &&
            (count == 0 || memcmp(s->items + o->first, items, count * sizeof *items) == 0))
            return o->node;
    }
    if (!grammar_grow(s->b, (void **)&s->sets, &s->cap_sets, s->n_sets, sizeof *s->sets, SUBSETS_MAX,
                      "states of one pattern, rule or list"))
        return GRAMMAR_NONE;
    int32_t node = grammar_node(s->b);
    if (node < 0) return GRAMMAR_NONE;
    for (size_t i = 0; i < count; i++)
        if (items[i] == s->accept) s->b->g->nodes[node].accept = true;
    s->sets[s->n_sets] = (struct subset){.first = s->n_items, .n = count, .hash = hash, .node = node};
    s->table.places[at] = (int32_t)s->n_sets++;
    s->n_items += count;
    return node;
}

static void subset_bytes(struct subsets *s, const struct subset *set) {
    const struct nfa *nfa = s->nfa;
    bool cut[257] = {false};
    for (size_t i = 0; i < set->n; i++)
        for (int32_t e = nfa->heads[s->items[set->first + i]]; e >= 0; e = nfa->edges[e].next) {
            const struct nfa_edge *x = &nfa->edges[e];
            if (!x->empty && x->rule < 0) cut[x->lo] = cut[x->hi + 1] = true;
        }
    int run_lo = 0;
    int32_t run_to = GRAMMAR_NONE;
    for (int lo = 0; lo <= 256; lo++) {
        if (!cut[lo] && lo < 256) continue;
        size_t n = 0;
        if (!grammar_work(s->b, set->n)) return;
        for (size_t i = 0; lo < 256 && i < set->n; i++)
            for (int32_t e = nfa->heads[s->items[set->first + i]]; e >= 0; e = nfa->edges[e].next) {
                const struct nfa_edge *x = &nfa->edges[e];
                if (!x->empty && x->rule < 0 && x->lo <= lo && lo <= x->hi && n < nfa->n) s->gather[n++] = x->to;
            }
        int32_t to = n ? subset_node(s, n) : GRAMMAR_NONE;
        if (to == run_to) continue;
        if (run_to >= 0) grammar_edge(s->b, set->node, run_lo, lo - 1, run_to, 0, GRAMMAR_NONE);
        run_lo = lo;
        run_to = to;
    }
}

// The calls of a subset, those of one rule together.
static void subset_calls(struct subsets *s, const struct subset *set) {
    const struct nfa *nfa = s->nfa;
    int32_t done = GRAMMAR_NONE;
    for (;;) { // rules by rising number
        int32_t rule = INT32_MAX;
        size_t n = 0;
        if (!grammar_work(s->b, set->n)) return;
        for (size_t i = 0; i < set->n; i++)
            for (int32_t e = nfa->heads[s->items[set->first + i]]; e >= 0; e = nfa->edges[e].next) {
                const struct nfa_edge *x = &nfa->edges[e];
                if (x->empty || x->rule <= done || x->rule > rule) continue;
                if (x->rule < rule) n = 0;
                rule = x->rule;
                if (n < nfa->n) s->gather[n++] = x->to;
            }
        if (rule == INT32_MAX) return;
        done = rule;
        grammar_call(s->b, set->node, rule, subset_node(s, n), false);
        if (s->b->status != TERN_OK) return;
    }
}

int32_t nfa_determinize(struct nfa *n, int32_t start, int32_t accept) {
    struct subsets s = {.nfa = n, .b = n->b, .accept = accept};
    int32_t first = GRAMMAR_NONE;
    if (n->b->status != TERN_OK) return GRAMMAR_NONE;
    s.mark = mem_calloc(n->n, sizeof *s.mark);
    s.work = mem_calloc(n->n, sizeof *s.work);
    s.gather = mem_calloc(n->n, sizeof *s.gather);
    if (!s.mark || !s.work || !s.gather) {
        GRAMMAR_FAIL(n->b, TERN_NO_MEMORY, "no memory for a constraint");
    } else {
        s.gather[0] = start;
        first = subset_node(&s, 1);
    }
    for (size_t i = 0; i < s.n_sets && n->b->status == TERN_OK; i++) {
        struct subset set = s.sets[i];
        subset_bytes(&s, &set);
        subset_calls(&s, &set);
    }
    mem_free(s.mark);
    mem_free(s.work);
    mem_free(s.gather);
    mem_free(s.items);
    mem_free(s.sets);
    mem_free(s.table.places);
    return n->b->status == TERN_OK ? first : GRAMMAR_NONE;
}
