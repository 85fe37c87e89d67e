// Strings of a schema as rules: lengths by counters, patterns and formats by automata, several of these by products.
//
// All strings without a pattern share their nodes, so that what is kept of the inside of a string serves every one of
// them; only a rule's counters differ. Characters are counted at their first byte: code points, as JSON schema has it,
// and a pair of escaped surrogates is one. A half of a pair cannot be written.
#include "base/base.h"
#include "text/schema_int.h"

static void edge(struct schema *s, int32_t from, int lo, int hi, int32_t to, int flags) {
    grammar_edge(s->b, from, lo, hi, to, flags, GRAMMAR_NONE);
}

static void hex_edges(struct schema *s, int32_t from, int lo, int hi, int32_t to) { // digits lo … hi
    if (lo <= 9) edge(s, from, '0' + lo, '0' + MIN(hi, 9), to, 0);
    if (hi < 10) return;
    int a = MAX(lo, 10) - 10, z = hi - 10;
    edge(s, from, 'a' + a, 'a' + z, to, 0);
    edge(s, from, 'A' + a, 'A' + z, to, 0);
}

// \uXXXX behind the backslash: no lone surrogates.
static void unicode_escape(struct schema *s, int32_t from, int32_t inside) {
    enum { U, D, HIGH, HIGH3, SLASH, LOW_U, LOW1, LOW2, H3, H2, H1, N };
    int32_t n[N];
    for (int i = 0; i < N; i++) n[i] = grammar_node(s->b);
    edge(s, from, 'u', 'u', n[U], 0);
    hex_edges(s, n[U], 0, 12, n[H3]);
    hex_edges(s, n[U], 14, 15, n[H3]);
    hex_edges(s, n[U], 13, 13, n[D]);
    hex_edges(s, n[D], 0, 7, n[H2]);
    hex_edges(s, n[D], 8, 11, n[HIGH]);
    hex_edges(s, n[HIGH], 0, 15, n[HIGH3]);
    hex_edges(s, n[HIGH3], 0, 15, n[SLASH]);
    edge(s, n[SLASH], '\\', '\\', n[LOW_U], 0);
    edge(s, n[LOW_U], 'u', 'u', n[LOW1], 0);
    hex_edges(s, n[LOW1], 13, 13, n[LOW2]);
    hex_edges(s, n[LOW2], 12, 15, n[H2]);
    hex_edges(s, n[H3], 0, 15, n[H2]);
    hex_edges(s, n[H2], 0, 15, n[H1]);
    hex_edges(s, n[H1], 0, 15, inside);
}

// The quote that opens a string; the nodes behind it are those of every string.
static int32_t string_start(struct schema *s) {
    if (s->string_start >= 0) return s->string_start;
    enum { OPEN, IN, END, U1, U2, U3, E0, ED, F0, F4, ESC, N };
    int32_t n[N];
    for (int i = 0; i < N; i++) n[i] = grammar_node(s->b);
    if (s->b->status != TERN_OK) return GRAMMAR_NONE;
    s->b->g->nodes[n[END]].accept = true;
    edge(s, n[OPEN], '"', '"', n[IN], 0);
    edge(s, n[IN], '"', '"', n[END], EDGE_MET);
    edge(s, n[IN], 0x20, '"' - 1, n[IN], EDGE_COUNT);
    edge(s, n[IN], '"' + 1, '\\' - 1, n[IN], EDGE_COUNT);
    edge(s, n[IN], '\\' + 1, 0x7F, n[IN], EDGE_COUNT);
    edge(s, n[IN], '\\', '\\', n[ESC], EDGE_COUNT);
    edge(s, n[IN], 0xC2, 0xDF, n[U1], EDGE_COUNT);
    edge(s, n[IN], 0xE0, 0xE0, n[E0], EDGE_COUNT);
    edge(s, n[IN], 0xE1, 0xEC, n[U2], EDGE_COUNT);
    edge(s, n[IN], 0xED, 0xED, n[ED], EDGE_COUNT);
    edge(s, n[IN], 0xEE, 0xEF, n[U2], EDGE_COUNT);
    edge(s, n[IN], 0xF0, 0xF0, n[F0], EDGE_COUNT);
    edge(s, n[IN], 0xF1, 0xF3, n[U3], EDGE_COUNT);
    edge(s, n[IN], 0xF4, 0xF4, n[F4], EDGE_COUNT);
    edge(s, n[U1], 0x80, 0xBF, n[IN], 0);
    edge(s, n[U2], 0x80, 0xBF, n[U1], 0);
    edge(s, n[U3], 0x80, 0xBF, n[U2], 0);
    edge(s, n[E0], 0xA0, 0xBF, n[U1], 0);
    edge(s, n[ED], 0x80, 0x9F, n[U1], 0);
    edge(s, n[F0], 0x90, 0xBF, n[U2], 0);
    edge(s, n[F4], 0x80, 0x8F, n[U2], 0);
    for (const char *c = "\"\\/bfnrt"; *c; c++) edge(s, n[ESC], *c, *c, n[IN], 0);
    unicode_escape(s, n[ESC], n[IN]);
    return s->string_start = n[OPEN];
}

// ----------------------------------------------------------------------------------------------------------- products

struct pair {
    int32_t a, z, node; // node: of the product
    uint64_t hash;
};
struct pairs {
    struct grammar_builder *b;
    struct pair *items;
    struct grammar_table table;
    size_t n, cap;
};

static int32_t pair_node(struct pairs *p, int32_t a, int32_t z) {
    const int32_t key[2] = {a, z};
    if (p->n * 2 >= p->table.n &&
        !grammar_table_grow(p->b, &p->table, p->items, p->n, sizeof *p->items, offsetof(struct pair, hash)))
        return GRAMMAR_NONE;
    const uint64_t hash = hash_bytes(key, sizeof key, 3);
    size_t at = hash & (p->table.n - 1);
    for (; p->table.places[at] >= 0; at = (at + 1) & (p->table.n - 1)) {
        const struct pair *x = &p->items[p->table.places[at]];
        if (x->a == a && x->z == z) return x->node;
    }
    if (!grammar_grow(p->b, (void **)&p->items, &p->cap, p->n, sizeof *p->items, GRAMMAR_NFA_MAX,
                      "states where patterns and lengths meet"))
        return GRAMMAR_NONE;
    int32_t node = grammar_node(p->b);
    if (node < 0) return GRAMMAR_NONE;
    p->b->g->nodes[node].accept = p->b->g->nodes[a].accept && p->b->g->nodes[z].accept;
    p->items[p->n] = (struct pair){a, z, node, hash};
    p->table.places[at] = (int32_t)p->n++;
    return node;
}

// What both automata (bytes only) accept.
static int32_t nodes_intersect(struct grammar_builder *b, int32_t a, int32_t z) {
    struct pairs p = {.b = b};
    int32_t first = pair_node(&p, a, z);
    for (size_t i = 0; i < p.n && b->status == TERN_OK; i++) {
        const struct pair pair = p.items[i]; // the array may move
        for (int32_t x = b->g->nodes[pair.a].edges; x >= 0; x = b->g->edges[x].next)
            for (int32_t y = b->g->nodes[pair.z].edges; y >= 0; y = b->g->edges[y].next) {
                if (!grammar_work(b, 1)) break;
                const struct g_edge e = b->g->edges[x], f = b->g->edges[y];
                int lo = MAX(e.lo, f.lo), hi = MIN(e.hi, f.hi);
                if (lo <= hi) grammar_edge(b, pair.node, lo, hi, pair_node(&p, e.to, f.to), 0, GRAMMAR_NONE);
            }
    }
    mem_free(p.items);
    mem_free(p.table.places);
    return b->status == TERN_OK ? first : GRAMMAR_NONE;
}

// ------------------------------------------------------------------------------------------------------------ patterns

// A quoted string that holds the pattern.
static int32_t pattern_nodes(struct schema *s, struct str pattern) {
    struct nfa n;
    int32_t start = GRAMMAR_NONE;
    nfa_init(&n, s->b);
    int32_t open = nfa_node(&n), from = nfa_node(&n), to = nfa_node(&n), end = nfa_node(&n);
    if (s->b->status == TERN_OK) {
        nfa_byte(&n, open, '"', '"', from);
        nfa_byte(&n, to, '"', '"', end);
        if (regex_to_nfa(&n, pattern, true, true, from, to)) start = nfa_determinize(&n, open, end);
    }
    nfa_release(&n);
    return start;
}

// A quoted string of lo to hi characters in the spelling of patterns.
static int32_t length_nodes(struct schema *s, uint32_t lo, uint32_t hi) {
    struct nfa n;
    int32_t start = GRAMMAR_NONE;
    nfa_init(&n, s->b);
    int32_t open = nfa_node(&n), at = nfa_node(&n), end = nfa_node(&n);
    if (s->b->status == TERN_OK) nfa_byte(&n, open, '"', '"', at);
    uint32_t copies = hi == COUNT_FREE ? lo : hi;
    for (uint32_t i = 0; i < copies && s->b->status == TERN_OK; i++) {
        int32_t next = nfa_node(&n);
        if (i >= lo) nfa_byte(&n, at, '"', '"', end);
        nfa_json_runes(&n, at, 0, 0x10FFFF, next);
        at = next;
    }
    if (s->b->status == TERN_OK) {
        if (hi == COUNT_FREE) nfa_json_runes(&n, at, 0, 0x10FFFF, at);
        nfa_byte(&n, at, '"', '"', end);
        start = nfa_determinize(&n, open, end);
    }
    nfa_release(&n);
    return start;
}

static bool pattern_join(struct schema *s, struct string_facts *f, struct str pattern, int32_t node) {
    struct tern_err *outer = s->b->err, err = {0};
    s->b->err = &err;
    int32_t nodes = pattern_nodes(s, pattern);
    if (nodes >= 0 && f->nodes >= 0) nodes = nodes_intersect(s->b, f->nodes, nodes);
    s->b->err = outer;
    if (s->b->status != TERN_OK) {
        if (outer) err_set(outer, s->b->status, "schema %s: %s", schema_path(s, node), err.message);
        return false;
    }
    f->nodes = nodes;
    return true;
}

static bool part_facts(struct schema *s, int32_t part, struct string_facts *f) {
    int32_t lo = schema_get(s, part, "minLength"), hi = schema_get(s, part, "maxLength");
    int32_t pattern = schema_get(s, part, "pattern"), format = schema_get(s, part, "format");
    uint32_t v;
    if (lo >= 0) {
        if (!schema_count(s, lo, &v)) return false;
        f->lo = MAX(f->lo, v);
        f->length_node = lo;
    }
    if (hi >= 0) {
        if (!schema_count(s, hi, &v)) return false;
        f->hi = MIN(f->hi, v);
        f->length_node = hi;
    }
    if (pattern >= 0) {
        if (s->nodes[pattern].event != JSON_STRING)
            return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a string is expected", schema_path(s, pattern));
        if (!pattern_join(s, f, s->nodes[pattern].text, pattern)) return false;
    }
    if (format < 0) return true;
    struct str name = s->nodes[format].text, regex = format_pattern(name);
    if (s->nodes[format].event != JSON_STRING)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a string is expected", schema_path(s, format));
    if (regex.len == 0)
        return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "schema %s: the format \"%.*s\" is not supported",
                            schema_path(s, format), (int)MIN(name.len, 40), name.data);
    return pattern_join(s, f, regex, format);
}

bool string_facts_read(struct schema *s, const struct parts *parts, struct string_facts *f) {
    *f = (struct string_facts){.hi = COUNT_FREE, .nodes = GRAMMAR_NONE, .length_node = 0};
    for (int i = 0; i < parts->n; i++)
        if (!part_facts(s, parts->items[i].node, f)) return false;
    if (f->nodes < 0 || (f->lo == 0 && f->hi == COUNT_FREE)) return true;
    uint32_t copies = f->hi == COUNT_FREE ? f->lo : f->hi;
    if (copies > REGEX_REPEAT_MAX)
        return GRAMMAR_FAIL(s->b, TERN_LIMIT,
                            "schema %s: beside a pattern or format a length of at most %d can be held",
                            schema_path(s, f->length_node), REGEX_REPEAT_MAX);
    if (f->lo > f->hi) return true; // nothing fits: string_build says so
    int32_t lengths = length_nodes(s, f->lo, f->hi);
    if (lengths >= 0) f->nodes = nodes_intersect(s->b, f->nodes, lengths);
    return s->b->status == TERN_OK;
}

bool string_build(struct schema *s, const struct parts *parts, int32_t rule) {
    struct string_facts f;
    if (!string_facts_read(s, parts, &f)) return false;
    int32_t start = f.nodes >= 0 ? f.nodes : string_start(s);
    if (s->b->status != TERN_OK) return false;
    struct g_rule *r = &s->b->g->rules[rule];
    r->start = start;
    if (f.nodes >= 0 && f.lo <= f.hi) return true; // the nodes hold the lengths
    r->min = f.lo;
    r->max = f.hi;
    return true;
}

// Along the linked edges of nodes that are not finished yet.
static bool nodes_accept(const struct grammar *g, int32_t node, struct str text) {
    for (size_t i = 0; i < text.len && node >= 0; i++) {
        int32_t e = g->nodes[node].edges;
        uint8_t c = (uint8_t)text.data[i];
        while (e >= 0 && (c < g->edges[e].lo || c > g->edges[e].hi)) e = g->edges[e].next;
        node = e >= 0 ? g->edges[e].to : GRAMMAR_NONE;
    }
    return node >= 0 && g->nodes[node].accept;
}

bool string_fits(struct schema *s, const struct string_facts *f, struct str text) {
    struct buf quoted;
    uint32_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((uint8_t)text.data[i] & 0xC0) != 0x80;
    bool fits = n >= f->lo && n <= f->hi;
    if (f->nodes < 0 || !fits) return fits;
    buf_init(&quoted, CONSTRAINT_BYTES_MAX * 8);
    if (json_put_quoted(&quoted, text))
        fits = nodes_accept(s->b->g, f->nodes, buf_str(&quoted));
    else
        GRAMMAR_FAIL(s->b, TERN_NO_MEMORY, "no memory for a schema");
    buf_release(&quoted);
    return fits;
}
