// Arrays of a schema as rules: leading elements one by one, then a loop whose counters hold minItems and maxItems.
#include "base/base.h"
#include "text/schema_int.h"

struct array_facts {
    uint32_t lo, hi;
    int32_t n_prefix;
};

// The lists and counts of all parts.
static bool facts_read(struct schema *s, const struct parts *parts, struct array_facts *f) {
    *f = (struct array_facts){.hi = COUNT_FREE};
    bool unique = false;
    int32_t unique_node = 0;
    for (int i = 0; i < parts->n; i++) {
        int32_t part = parts->items[i].node, prefix = schema_get(s, part, "prefixItems");
        int32_t lo = schema_get(s, part, "minItems"), hi = schema_get(s, part, "maxItems");
        int32_t only = schema_get(s, part, "uniqueItems"), items = schema_get(s, part, "items");
        uint32_t v;
        if (lo >= 0 && !schema_count(s, lo, &v)) return false;
        if (lo >= 0) f->lo = MAX(f->lo, v);
        if (hi >= 0 && !schema_count(s, hi, &v)) return false;
        if (hi >= 0) f->hi = MIN(f->hi, v);
        if (items >= 0 && s->nodes[items].event == JSON_ARRAY)
            return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "schema %s: a list here is of an older draft; use prefixItems",
                                schema_path(s, items));
        if (only >= 0 && s->nodes[only].event == JSON_BOOL && s->nodes[only].boolean) {
            unique = true;
            unique_node = only;
        }
        if (prefix < 0) continue;
        if (s->nodes[prefix].event != JSON_ARRAY || s->nodes[prefix].n == 0)
            return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a list of schemas is expected",
                                schema_path(s, prefix));
        f->n_prefix = MAX(f->n_prefix, s->nodes[prefix].n);
    }
    if (unique && f->hi > 1)
        return GRAMMAR_FAIL(
            s->b, TERN_UNSUPPORTED,
            "schema %s: the keyword \"uniqueItems\" is not supported for arrays of more than one element",
            schema_path(s, unique_node));
    return true;
}

// What holds for element i; for i = GRAMMAR_NONE, for those behind all prefixes.
static int32_t element_rule(struct schema *s, const struct parts *parts, int32_t i) {
    struct parts p = {.n = 0};
    for (int k = 0; k < parts->n; k++) {
        int32_t part = parts->items[k].node, prefix = schema_get(s, part, "prefixItems");
        int32_t node = schema_get(s, part, "items");
        if (prefix >= 0 && i >= 0 && i < s->nodes[prefix].n) {
            node = s->nodes[prefix].first;
            while (s->nodes[node].index != i) node = s->nodes[node].next;
        }
        if (node >= 0 && !parts_add(s, &p, node, GRAMMAR_NONE)) return GRAMMAR_NONE;
    }
    return schema_rule_of(s, &p);
}

// `from` may be followed by white space and then by `byte`, or a rule: both ways end in `to`.
static void spaced_edge(struct schema *s, int32_t from, int byte, int32_t to) {
    int32_t blank = grammar_node(s->b);
    grammar_call(s->b, from, schema_blank(s), blank, false);
    grammar_edge(s->b, from, byte, byte, to, 0, GRAMMAR_NONE);
    grammar_edge(s->b, blank, byte, byte, to, 0, GRAMMAR_NONE);
}
static void spaced_call(struct schema *s, int32_t from, int32_t rule, int32_t to, bool counts) {
    int32_t blank = grammar_node(s->b);
    grammar_call(s->b, from, schema_blank(s), blank, false);
    grammar_call(s->b, from, rule, to, counts);
    grammar_call(s->b, blank, rule, to, counts);
}

// element (',' element)*, lo to hi of them, lo >= 1
static int32_t loop_rule(struct schema *s, int32_t element, uint32_t lo, uint32_t hi) {
    int32_t rule = grammar_rule(s->b, lo, hi), first = grammar_node(s->b), behind = grammar_node(s->b);
    int32_t comma = grammar_node(s->b);
    if (s->b->status != TERN_OK) return GRAMMAR_NONE;
    s->b->g->rules[rule].start = first;
    s->b->g->nodes[behind].accept = true;
    grammar_call(s->b, first, element, behind, true);
    grammar_edge(s->b, behind, ',', ',', comma, EDGE_LEFT, GRAMMAR_NONE);
    spaced_call(s, comma, element, behind, true);
    return rule;
}

bool array_build(struct schema *s, const struct parts *parts, int32_t rule) {
    struct array_facts f;
    if (!facts_read(s, parts, &f)) return false;
    if (f.lo > f.hi) return true; // the rule stays empty: nothing fits
    int32_t at = grammar_node(s->b), end = grammar_node(s->b), inside = grammar_node(s->b);
    if (s->b->status != TERN_OK) return false;
    s->b->g->rules[rule].start = at;
    s->b->g->nodes[end].accept = true;
    grammar_edge(s->b, at, '[', '[', inside, 0, GRAMMAR_NONE);
    at = inside;
    int32_t n = (int32_t)MIN((uint32_t)f.n_prefix, f.hi);
    for (int32_t i = 0; i <= n; i++) { // at: behind i elements
        int32_t from = at;
        bool can_end = (uint32_t)i >= f.lo, more = i < n || f.hi > (uint32_t)n;
        if (can_end) spaced_edge(s, at, ']', end);
        if (!more) break;
        if (i > 0) {
            from = grammar_node(s->b);
            grammar_edge(s->b, at, ',', ',', from, 0, GRAMMAR_NONE);
        }
        int32_t element = element_rule(s, parts, i < n ? i : GRAMMAR_NONE);
        if (element < 0) return false;
        at = grammar_node(s->b);
        if (i < n) {
            spaced_call(s, from, element, at, false);
            continue;
        }
        uint32_t left = f.hi == COUNT_FREE ? f.hi : f.hi - (uint32_t)n;
        uint32_t need = f.lo > (uint32_t)n ? f.lo - (uint32_t)n : 1;
        int32_t loop = loop_rule(s, element, MAX(need, 1), left);
        if (loop < 0) return false;
        spaced_call(s, from, loop, at, false);
        spaced_edge(s, at, ']', end);
    }
    return s->b->status == TERN_OK;
}
