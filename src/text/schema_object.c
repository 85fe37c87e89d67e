// Objects of a schema as rules: declared keys in their order, then others where these are allowed.
//
// The names make one trie; the rule's counter is the first key that may still come, and every edge of the trie is
// guarded by the keys below it (struct g_object), so that thousands of optional keys need no more nodes than their
// letters. Where other keys are allowed, a name may leave the trie: the trie's nodes know what the free key's automaton
// would do with each byte. A free key has one spelling for each name, so it cannot be a declared one in disguise.
#include "base/base.h"
#include "text/schema_int.h"

#define TRIE_NODES_MAX 200000

struct name_node {
    uint8_t byte;
    int32_t child, next; // first child, next sibling
    int32_t key;         // that ends here, or GRAMMAR_NONE
    int32_t keys;        // list of the keys below, newest first
    int32_t node;        // of the grammar
    int32_t free;        // node of the free key's automaton in the same place, or GRAMMAR_NONE
};
struct name_key { // a link of such a list
    int32_t key, next;
};
struct object {
    struct schema *s;
    const struct parts *parts;
    struct name_node *names;
    struct name_key *links;
    size_t n_names, cap_names, n_links, cap_links;
    int32_t object;     // of the grammar
    int32_t value_end;  // node behind a value
    int32_t free_quote; // the node that a free key's closing quote leads to
    int32_t free_first; // the first of the copied nodes of a free key
    bool open;
    bool keywords;   // (key=value, …) instead of {"key": value, …}
    uint32_t lo, hi; // properties
    int32_t count_node;
};

static bool closed_by_default(const struct schema *s, const struct parts *parts) {
    for (int i = 0; i < parts->n; i++)
        if (schema_get(s, parts->items[i].node, "properties") >= 0) return s->closed;
    return false;
}

// ------------------------------------------------------------------------------------------------------------- facts

static bool names_check(struct schema *s, int32_t part, int32_t *properties, int32_t *required) {
    *properties = schema_get(s, part, "properties");
    *required = schema_get(s, part, "required");
    if (*properties >= 0 && s->nodes[*properties].event != JSON_OBJECT)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: an object of schemas is expected",
                            schema_path(s, *properties));
    if (*required < 0) return true;
    bool ok = s->nodes[*required].event == JSON_ARRAY;
    SCHEMA_EACH(s, child, *required) ok &= s->nodes[child].event == JSON_STRING;
    return ok ||
           GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a list of names is expected", schema_path(s, *required));
}

// The rule of the key's value: what each part says of it, or of other keys.
static int32_t value_rule(struct schema *s, const struct parts *parts, struct str key, int32_t known, bool is_free) {
    struct parts p = {.n = 0};
    for (int i = 0; i < parts->n; i++) {
        int32_t part = parts->items[i].node, properties = schema_get(s, part, "properties"), node = GRAMMAR_NONE;
        if (known >= 0 && s->nodes[known].parent == properties)
            node = known; // saves a search: with thousands of keys these would take their square
        else if (properties >= 0 && !is_free)
            node = schema_get_str(s, properties, key);
        if (node < 0) node = schema_get(s, part, "additionalProperties");
        if (node >= 0 && !parts_add(s, &p, node, GRAMMAR_NONE)) return GRAMMAR_NONE;
    }
    return schema_rule_of(s, &p);
}

static int32_t name_find(const struct object *o, struct str text) {
    int32_t at = 0;
    for (size_t i = 0; i < text.len && at >= 0; i++) {
        at = o->names[at].child;
        while (at >= 0 && o->names[at].byte != (uint8_t)text.data[i]) at = o->names[at].next;
    }
    return at;
}

static int32_t name_node_new(struct object *o, uint8_t byte) {
    if (!grammar_grow(o->s->b, (void **)&o->names, &o->cap_names, o->n_names, sizeof *o->names, TRIE_NODES_MAX,
                      "letters of property names"))
        return GRAMMAR_NONE;
    o->names[o->n_names] = (struct name_node){.byte = byte,
                                              .child = GRAMMAR_NONE,
                                              .next = GRAMMAR_NONE,
                                              .key = GRAMMAR_NONE,
                                              .keys = GRAMMAR_NONE,
                                              .node = GRAMMAR_NONE,
                                              .free = GRAMMAR_NONE};
    return (int32_t)o->n_names++;
}

static bool name_link(struct object *o, int32_t at, int32_t key) {
    if (!grammar_grow(o->s->b, (void **)&o->links, &o->cap_links, o->n_links, sizeof *o->links, GRAMMAR_EDGES_MAX,
                      "letters of property names"))
        return false;
    o->links[o->n_links] = (struct name_key){key, o->names[at].keys};
    o->names[at].keys = (int32_t)o->n_links++;
    return true;
}

// Enters a name's spelling into the trie as the object's key.
static bool name_enter(struct object *o, struct str spelling, int32_t key) {
    int32_t at = 0;
    if (!name_link(o, 0, key)) return false;
    for (size_t i = 0; i < spelling.len; i++) {
        uint8_t c = (uint8_t)spelling.data[i];
        int32_t child = o->names[at].child;
        if (!grammar_work(o->s->b, 8)) return false;
        while (child >= 0 && o->names[child].byte != c) child = o->names[child].next;
        if (child < 0) {
            child = name_node_new(o, c);
            if (child < 0) return false;
            o->names[child].next = o->names[at].child;
            o->names[at].child = child;
        }
        at = child;
        if (!name_link(o, at, key)) return false;
    }
    o->names[at].key = key;
    return true;
}

// One key (node: where it is declared): its value's rule, its place. A name that came before only gets `required`.
static bool key_add(struct object *o, struct str name, int32_t node, bool required, struct g_object *g) {
    struct schema *s = o->s;
    struct buf spelling;
    buf_init(&spelling, CONSTRAINT_BYTES_MAX * 8);
    if (!json_put_quoted(&spelling, name)) {
        buf_release(&spelling);
        return GRAMMAR_FAIL(s->b, TERN_NO_MEMORY, "no memory for a schema");
    }
    struct str text = {spelling.data + 1, spelling.len - 2};
    int32_t known = name_find(o, text);
    if (known >= 0 && o->names[known].key >= 0) {
        s->b->g->keys[g->first_key + o->names[known].key].required |= required;
    } else {
        int32_t rule = value_rule(s, o->parts, name, node, false);
        if (rule >= 0) grammar_key(s->b, &(struct g_key){.rule = rule, .required = required});
        if (s->b->status == TERN_OK) name_enter(o, text, g->n_keys++);
    }
    buf_release(&spelling);
    return s->b->status == TERN_OK;
}

static bool keys_read(struct object *o, struct g_object *g) {
    struct schema *s = o->s;
    int32_t properties, required, root = name_node_new(o, 0);
    if (root < 0) return false;
    for (int i = 0; i < o->parts->n; i++) {
        if (!names_check(s, o->parts->items[i].node, &properties, &required)) return false;
        if (properties < 0) continue;
        SCHEMA_EACH(s, child, properties) if (!key_add(o, s->nodes[child].key, child, false, g)) return false;
    }
    for (int i = 0; i < o->parts->n; i++) {
        required = schema_get(s, o->parts->items[i].node, "required");
        if (required < 0) continue;
        SCHEMA_EACH(s, child, required) if (!key_add(o, s->nodes[child].text, GRAMMAR_NONE, true, g)) return false;
    }
    if (g->n_keys > SCHEMA_PROPERTIES_MAX)
        return GRAMMAR_FAIL(s->b, TERN_LIMIT, "schema %s: %d properties; at most %d are allowed",
                            schema_path(s, o->parts->items[0].node), g->n_keys, SCHEMA_PROPERTIES_MAX);
    return true;
}

// minProperties and maxProperties, as far as an order of keys can hold them.
static bool counts_read(struct object *o, struct g_object *g) {
    struct schema *s = o->s;
    uint32_t v, n_required = 0;
    o->hi = COUNT_FREE;
    for (int i = 0; i < o->parts->n; i++) {
        int32_t lo = schema_get(s, o->parts->items[i].node, "minProperties");
        int32_t hi = schema_get(s, o->parts->items[i].node, "maxProperties");
        if (lo >= 0 && !schema_count(s, lo, &v)) return false;
        if (lo >= 0 && v > o->lo) {
            o->lo = v;
            o->count_node = lo;
        }
        if (hi >= 0 && !schema_count(s, hi, &v)) return false;
        if (hi >= 0 && v < o->hi) {
            o->hi = v;
            o->count_node = hi;
        }
    }
    for (int32_t k = 0; k < g->n_keys; k++) n_required += s->b->g->keys[g->first_key + k].required;
    g->needs_one = o->lo > 0 && n_required == 0;
    if (o->hi == n_required) { // only the required ones
        o->open = false;
        int32_t never = grammar_rule(s->b, 1, 0);
        for (int32_t k = 0; k < g->n_keys && never >= 0; k++)
            if (!s->b->g->keys[g->first_key + k].required) s->b->g->keys[g->first_key + k].rule = never;
        o->hi = COUNT_FREE;
    }
    bool lo_held = o->lo <= MAX(n_required, 1);
    bool hi_held = o->hi == COUNT_FREE || (!o->open && o->hi >= (uint32_t)g->n_keys);
    if (lo_held && hi_held) return true;
    return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED,
                        "schema %s: this number of properties cannot be held beside the keys that may come",
                        schema_path(s, o->count_node));
}

// --------------------------------------------------------------------------------------------------------- free keys

// The nodes of a free key behind its opening quote, made once; the closing quote's edge leads to an accepting node.
static bool free_key_make(struct schema *s) {
    struct nfa n;
    if (s->n_key > 0) return true;
    nfa_init(&n, s->b);
    int32_t from = nfa_node(&n), end = nfa_node(&n);
    size_t first = s->b->g->n_nodes;
    if (s->b->status == TERN_OK) {
        nfa_json_runes(&n, from, 0, 0x10FFFF, from);
        nfa_byte(&n, from, '"', '"', end);
        nfa_determinize(&n, from, end);
        s->key_from = (int32_t)first;
        s->n_key = (int32_t)(s->b->g->n_nodes - first);
    }
    nfa_release(&n);
    return s->b->status == TERN_OK;
}

// A copy for this object; the closing quote leads to free_quote and puts the counter behind all keys.
static bool free_key_copy(struct object *o) {
    struct schema *s = o->s;
    struct grammar *g = s->b->g;
    if (!free_key_make(s)) return false;
    int32_t guard = grammar_guard(s->b, &(struct key_guard){.object = o->object, .generic = true});
    o->free_first = (int32_t)g->n_nodes;
    for (int32_t i = 0; i < s->n_key; i++) grammar_node(s->b);
    for (int32_t i = 0; i < s->n_key && s->b->status == TERN_OK; i++)
        for (int32_t e = g->nodes[s->key_from + i].edges; e >= 0; e = g->edges[e].next) {
            struct g_edge x = g->edges[e];
            int32_t from = o->free_first + i, to = o->free_first + (x.to - s->key_from);
            if (g->nodes[x.to].accept)
                grammar_edge(s->b, from, x.lo, x.hi, o->free_quote, EDGE_KEYED | EDGE_KEY, guard);
            else
                grammar_edge(s->b, from, x.lo, x.hi, to, 0, GRAMMAR_NONE);
        }
    return s->b->status == TERN_OK;
}

// -------------------------------------------------------------------------------------------------------- the trie

static int32_t guard_of(struct object *o, int32_t name) {
    struct grammar_builder *b = o->s->b;
    struct key_guard guard = {.first = (int32_t)b->g->n_guard_keys, .object = o->object, .generic = o->open};
    for (int32_t l = o->names[name].keys; l >= 0; l = o->links[l].next) {
        if (grammar_guard_key(b, o->links[l].key) < 0) return GRAMMAR_NONE;
        guard.n++;
    }
    int32_t *keys = b->g->guard_keys + guard.first; // they came newest first
    for (int32_t i = 0; i < guard.n / 2; i++) {
        int32_t t = keys[i];
        keys[i] = keys[guard.n - 1 - i];
        keys[guard.n - 1 - i] = t;
    }
    return grammar_guard(b, &guard);
}

// What follows a key's closing quote or '=': the node in front of the colon or of the value.
static int32_t value_nodes(struct object *o, int32_t rule) {
    struct grammar_builder *b = o->s->b;
    int32_t value = grammar_node(b);
    grammar_call(b, value, rule, o->value_end, false);
    if (o->keywords) return value;
    int32_t colon = grammar_node(b), blank = grammar_node(b);
    grammar_edge(b, colon, ':', ':', value, 0, GRAMMAR_NONE);
    grammar_call(b, value, schema_blank(o->s), blank, false);
    grammar_call(b, blank, rule, o->value_end, false);
    return colon;
}

// The bytes by which a name leaves the trie and becomes a free key.
static void leaving_edges(struct object *o, int32_t name) {
    struct schema *s = o->s;
    struct grammar *g = s->b->g;
    struct name_node *n = &o->names[name];
    if (!grammar_work(s->b, 256)) return;
    if (n->free < 0) return; // only through bytes that no token spells
    int32_t guard = grammar_guard(s->b, &(struct key_guard){.object = o->object, .generic = true});
    for (int32_t e = g->nodes[s->key_from + n->free].edges; e >= 0; e = g->edges[e].next) {
        struct g_edge x = g->edges[e];
        bool quote = g->nodes[x.to].accept;
        if (quote && n->key >= 0) continue; // a declared name
        for (int c = x.lo; c <= x.hi; c++) {
            int32_t child = n->child;
            while (child >= 0 && o->names[child].byte != c) child = o->names[child].next;
            if (child >= 0) {
                o->names[child].free = x.to - s->key_from;
                continue;
            }
            int hi = c;
            for (; hi < x.hi; hi++) {
                int32_t next = n->child;
                while (next >= 0 && o->names[next].byte != hi + 1) next = o->names[next].next;
                if (next >= 0) break;
            }
            if (quote)
                grammar_edge(s->b, n->node, c, hi, o->free_quote, EDGE_KEYED | EDGE_KEY, guard);
            else
                grammar_edge(s->b, n->node, c, hi, o->free_first + (x.to - s->key_from), EDGE_KEYED | EDGE_AWAY, guard);
            c = hi;
        }
    }
}

static bool trie_build(struct object *o, const struct g_object *g) {
    struct grammar_builder *b = o->s->b;
    for (size_t i = 0; i < o->n_names; i++) o->names[i].node = grammar_node(b);
    if (o->open) o->names[0].free = 0;
    for (size_t i = 0; i < o->n_names && b->status == TERN_OK; i++) { // parents before children
        struct name_node *n = &o->names[i];
        if (o->open) leaving_edges(o, (int32_t)i);
        for (int32_t c = n->child; c >= 0; c = o->names[c].next)
            grammar_edge(b, n->node, o->names[c].byte, o->names[c].byte, o->names[c].node, EDGE_KEYED, guard_of(o, c));
        if (n->key < 0) continue;
        struct key_guard guard = {.first = grammar_guard_key(b, n->key), .n = 1, .object = o->object};
        int32_t colon = value_nodes(o, b->status == TERN_OK ? b->g->keys[g->first_key + n->key].rule : GRAMMAR_NONE);
        int quote = o->keywords ? '=' : '"';
        grammar_edge(b, n->node, quote, quote, colon, EDGE_KEYED | EDGE_KEY, grammar_guard(b, &guard));
    }
    return b->status == TERN_OK;
}

// -------------------------------------------------------------------------------------------------------- the frame

// White space behind the last value: only where the object may be closed, since nothing else could follow.
static void closing_blanks(struct object *o, int32_t guard, int32_t closing, int32_t end) {
    struct grammar_builder *b = o->s->b;
    int32_t line = grammar_node(b);
    grammar_edge(b, o->value_end, ' ', ' ', closing, EDGE_KEYED, guard);
    grammar_edge(b, o->value_end, '\n', '\n', line, EDGE_KEYED, guard);
    grammar_edge(b, line, '}', '}', end, EDGE_KEYED | EDGE_KEY, guard);
    grammar_call(b, line, schema_indent(o->s), closing, false);
}

static bool frame_build(struct object *o, const struct g_object *g, int32_t rule) {
    struct grammar_builder *b = o->s->b;
    int32_t start = grammar_node(b), inside = grammar_node(b), blank = grammar_node(b), end = grammar_node(b);
    int32_t closing = grammar_node(b), comma = grammar_node(b), next = grammar_node(b), root = o->names[0].node;
    int32_t blanks = schema_blank(o->s), any = guard_of(o, 0);
    int32_t close = grammar_guard(b, &(struct key_guard){.object = o->object, .closes = true});
    if (b->status != TERN_OK) return false;
    b->g->nodes[end].accept = true;
    b->g->rules[rule].start = start;
    b->g->rules[rule].object = o->object;
    grammar_edge(b, start, '{', '{', inside, 0, GRAMMAR_NONE);
    grammar_call(b, inside, blanks, blank, false);
    int32_t firsts[] = {inside, blank}, laters[] = {comma, next}, ends[] = {o->value_end, closing};
    for (int i = 0; i < 2; i++) {
        grammar_edge(b, firsts[i], '"', '"', root, EDGE_KEYED, any);
        if (!g->needs_one) grammar_edge(b, firsts[i], '}', '}', end, EDGE_KEYED | EDGE_KEY, close);
        grammar_edge(b, laters[i], '"', '"', root, EDGE_KEYED, any);
        grammar_edge(b, ends[i], '}', '}', end, EDGE_KEYED | EDGE_KEY, close);
    }
    grammar_edge(b, o->value_end, ',', ',', comma, EDGE_KEYED, any);
    closing_blanks(o, close, closing, end);
    grammar_call(b, comma, blanks, next, false);
    return b->status == TERN_OK;
}

// The same for (key=value, …): a name begins at once, and a second root stands behind the commas.
static bool keywords_frame(struct object *o, const struct g_object *g, int32_t rule) {
    struct grammar_builder *b = o->s->b;
    int32_t start = grammar_node(b), end = grammar_node(b), comma = grammar_node(b), again = grammar_node(b);
    int32_t close = grammar_guard(b, &(struct key_guard){.object = o->object, .closes = true});
    int32_t any = guard_of(o, 0), root = o->names[0].node;
    if (b->status != TERN_OK) return false;
    b->g->nodes[end].accept = true;
    b->g->rules[rule].start = start;
    b->g->rules[rule].object = o->object;
    for (int32_t c = o->names[0].child; c >= 0; c = o->names[c].next)
        grammar_edge(b, again, o->names[c].byte, o->names[c].byte, o->names[c].node, EDGE_KEYED, guard_of(o, c));
    grammar_edge(b, start, '(', '(', root, 0, GRAMMAR_NONE);
    if (!g->needs_one) grammar_edge(b, root, ')', ')', end, EDGE_KEYED | EDGE_KEY, close);
    grammar_edge(b, o->value_end, ')', ')', end, EDGE_KEYED | EDGE_KEY, close);
    grammar_edge(b, o->value_end, ',', ',', comma, EDGE_KEYED, any);
    grammar_edge(b, comma, ' ', ' ', again, 0, GRAMMAR_NONE);
    return b->status == TERN_OK;
}

static bool names_are_words(const struct object *o) {
    for (size_t i = 1; i < o->n_names; i++) {
        uint8_t c = o->names[i].byte;
        bool digit = c >= '0' && c <= '9';
        bool letter = ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
        if (!letter && !digit) return false;
    }
    for (int32_t c = o->n_names ? o->names[0].child : GRAMMAR_NONE; c >= 0; c = o->names[c].next)
        if (o->names[c].byte >= '0' && o->names[c].byte <= '9') return false;
    return o->n_names > 0 && o->names[0].key < 0;
}

static bool object_make(struct object *o, int32_t rule) {
    struct schema *s = o->s;
    struct g_object g = {.generic = GRAMMAR_NONE, .first_key = (int32_t)s->b->g->n_keys};
    if (!keys_read(o, &g)) return false;
    bool says_other = false;
    for (int i = 0; i < o->parts->n; i++)
        says_other |= schema_get(s, o->parts->items[i].node, "additionalProperties") >= 0;
    o->open = says_other || !closed_by_default(s, o->parts);
    if (o->open) { // `false` everywhere makes a rule that nothing fits: cut, but not worth its nodes
        g.generic = value_rule(s, o->parts, (struct str){NULL, 0}, GRAMMAR_NONE, true);
        if (g.generic < 0) return false;
        o->open = s->b->g->rules[g.generic].min == 0;
    }
    if (!counts_read(o, &g)) return false;
    if (o->keywords && (o->open || !names_are_words(o))) {
        o->keywords = false; // no such call: schema_keywords_rule says so
        return true;
    }
    if (!o->open) g.generic = GRAMMAR_NONE;
    if (o->lo > o->hi) return true;
    o->object = grammar_object(s->b, &g);
    o->value_end = grammar_node(s->b);
    if (o->open) {
        o->free_quote = value_nodes(o, g.generic);
        if (!free_key_copy(o)) return false;
    }
    if (s->b->status != TERN_OK || !trie_build(o, &g)) return false;
    return o->keywords ? keywords_frame(o, &g, rule) : frame_build(o, &g, rule);
}

bool object_build(struct schema *s, const struct parts *parts, int32_t rule) {
    struct object o = {.s = s, .parts = parts};
    bool ok = object_make(&o, rule);
    mem_free(o.names);
    mem_free(o.links);
    return ok;
}

int32_t schema_keywords_rule(struct schema *s, int32_t node) {
    struct parts parts;
    if (!schema_parts_of(s, node, &parts)) return GRAMMAR_NONE;
    for (int i = 0; i < parts.n; i++)
        if (schema_get(s, parts.items[i].node, "anyOf") >= 0 || schema_get(s, parts.items[i].node, "oneOf") >= 0 ||
            schema_get(s, parts.items[i].node, "enum") >= 0 || schema_get(s, parts.items[i].node, "const") >= 0)
            return GRAMMAR_NONE;
    struct object o = {.s = s, .parts = &parts, .keywords = true};
    int32_t rule = grammar_rule(s->b, 0, COUNT_FREE);
    bool ok = rule >= 0 && object_make(&o, rule) && o.keywords;
    mem_free(o.names);
    mem_free(o.links);
    return ok ? rule : GRAMMAR_NONE;
}
