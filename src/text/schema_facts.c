// Which keywords there are, and what those of a conjunction say of one value: its types, its numbers' bounds, the
// values it may be. Keywords that are not in the table are refused by name: nothing that may mean something is ignored.
#include "base/base.h"
#include "text/schema_int.h"

enum keyword_use { KEYWORD_HELD, KEYWORD_TELLS, KEYWORD_REFUSED };
static const struct {
    const char *name;
    enum keyword_use use;
    uint32_t type; // the only type it speaks of
} keywords[] = {
    {"type", KEYWORD_HELD, 0},
    {"enum", KEYWORD_HELD, 0},
    {"const", KEYWORD_HELD, 0},
    {"anyOf", KEYWORD_HELD, 0},
    {"oneOf", KEYWORD_HELD, 0},
    {"allOf", KEYWORD_HELD, 0},
    {"$ref", KEYWORD_HELD, 0},
    {"properties", KEYWORD_HELD, TYPE_OBJECT},
    {"required", KEYWORD_HELD, TYPE_OBJECT},
    {"additionalProperties", KEYWORD_HELD, TYPE_OBJECT},
    {"minProperties", KEYWORD_HELD, TYPE_OBJECT},
    {"maxProperties", KEYWORD_HELD, TYPE_OBJECT},
    {"items", KEYWORD_HELD, TYPE_ARRAY},
    {"prefixItems", KEYWORD_HELD, TYPE_ARRAY},
    {"minItems", KEYWORD_HELD, TYPE_ARRAY},
    {"maxItems", KEYWORD_HELD, TYPE_ARRAY},
    {"uniqueItems", KEYWORD_HELD, TYPE_ARRAY},
    {"minLength", KEYWORD_HELD, TYPE_STRING},
    {"maxLength", KEYWORD_HELD, TYPE_STRING},
    {"pattern", KEYWORD_HELD, TYPE_STRING},
    {"format", KEYWORD_HELD, TYPE_STRING},
    {"minimum", KEYWORD_HELD, TYPE_FRACTION},
    {"maximum", KEYWORD_HELD, TYPE_FRACTION},
    {"exclusiveMinimum", KEYWORD_HELD, TYPE_FRACTION},
    {"exclusiveMaximum", KEYWORD_HELD, TYPE_FRACTION},
    {"multipleOf", KEYWORD_HELD, TYPE_FRACTION},
    {"$defs", KEYWORD_TELLS, 0},
    {"definitions", KEYWORD_TELLS, 0},
    {"$schema", KEYWORD_TELLS, 0},
    {"$id", KEYWORD_TELLS, 0},
    {"$comment", KEYWORD_TELLS, 0},
    {"title", KEYWORD_TELLS, 0},
    {"description", KEYWORD_TELLS, 0},
    {"default", KEYWORD_TELLS, 0},
    {"example", KEYWORD_TELLS, 0},
    {"examples", KEYWORD_TELLS, 0},
    {"deprecated", KEYWORD_TELLS, 0},
    {"readOnly", KEYWORD_TELLS, 0},
    {"writeOnly", KEYWORD_TELLS, 0},
    {"contentMediaType", KEYWORD_TELLS, 0},
    {"contentEncoding", KEYWORD_TELLS, 0},
};

bool keywords_check(struct schema *s, int32_t node) {
    if (s->nodes[node].checked) return true;
    s->nodes[node].checked = true;
    SCHEMA_EACH(s, child, node) {
        struct str key = s->nodes[child].key;
        size_t i = 0;
        while (i < ARRAY_LEN(keywords) && !str_eqz(key, keywords[i].name)) i++;
        if (i < ARRAY_LEN(keywords) || str_starts(key, STR("x-"))) continue;
        return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "schema %s: the keyword \"%.*s\" is not supported",
                            schema_path(s, node), (int)MIN(key.len, 64), key.data);
    }
    return true;
}

static uint32_t type_of_name(struct str name) {
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"null", TYPE_NULL},       {"boolean", TYPE_BOOL},
                 {"integer", TYPE_INTEGER}, {"number", TYPE_INTEGER | TYPE_FRACTION},
                 {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_eqz(name, types[i].name)) return types[i].type;
    return 0;
}

static bool type_read(struct schema *s, int32_t node, uint32_t *out) {
    const struct schema_node *n = &s->nodes[node];
    *out = n->event == JSON_STRING ? type_of_name(n->text) : 0;
    if (n->event == JSON_ARRAY) SCHEMA_EACH(s, child, node) {
            uint32_t t = s->nodes[child].event == JSON_STRING ? type_of_name(s->nodes[child].text) : 0;
            if (t == 0) return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: no such type", schema_path(s, child));
            *out |= t;
        }
    if (*out) return true;
    return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT,
                        "schema %s: expected one or some of null, boolean, integer, number, string, array, object",
                        schema_path(s, node));
}

// Without a type, keywords about one kind of value mean that kind: a narrower reading that every answer still fits.
static uint32_t type_guess(struct schema *s, const struct parts *parts) {
    uint32_t types = 0;
    for (int i = 0; i < parts->n; i++) SCHEMA_EACH(s, child, parts->items[i].node)
    for (size_t k = 0; k < ARRAY_LEN(keywords); k++)
        if (str_eqz(s->nodes[child].key, keywords[k].name)) types |= keywords[k].type;
    if (types == 0 || (types & (types - 1))) return TYPE_ANY;
    return types == TYPE_FRACTION ? TYPE_FRACTION | TYPE_INTEGER : types;
}

static bool bound_take(struct schema *s, int32_t node, bool is_lo, bool open, struct number_range *r, int32_t *at) {
    const struct schema_node *n = &s->nodes[node];
    if (n->event != JSON_NUMBER)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a number is expected", schema_path(s, node));
    struct str *bound = is_lo ? &r->lo : &r->hi;
    bool *is_open = is_lo ? &r->lo_open : &r->hi_open;
    int c = bound->len ? decimal_cmp(n->text, *bound) : is_lo ? 1 : -1;
    if (c == DECIMAL_UNKNOWN)
        return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "schema %s: the bound has too many digits", schema_path(s, node));
    if (c == 0) *is_open |= open;
    if (is_lo ? c <= 0 : c >= 0) return true;
    *bound = n->text;
    *is_open = open;
    *at = node;
    return true;
}

static bool multiple_take(struct schema *s, int32_t node, bool *integer, struct number_range *r) {
    const struct schema_node *n = &s->nodes[node];
    int64_t v;
    if (n->event != JSON_NUMBER || n->text.data[0] == '-')
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a number above 0 is expected", schema_path(s, node));
    if (!decimal_is_whole(n->text, &v))
        return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "schema %s: multipleOf is supported for whole numbers only",
                            schema_path(s, node));
    if (v == 0)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a number above 0 is expected", schema_path(s, node));
    if (r->multiple_of > 1 && v > 1 && v != r->multiple_of)
        return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "schema %s: two different multipleOf for one value",
                            schema_path(s, node));
    *integer = true;
    r->multiple_of = MAX(v, r->multiple_of);
    return true;
}

bool number_facts(struct schema *s, const struct parts *parts, bool integer, struct number_range *r, int32_t *at) {
    static const struct {
        const char *name;
        bool is_lo, open;
    } bounds[] = {{"minimum", true, false},
                  {"exclusiveMinimum", true, true},
                  {"maximum", false, false},
                  {"exclusiveMaximum", false, true}};
    *r = (struct number_range){.integer = integer};
    *at = parts->n ? parts->items[0].node : 0;
    for (int i = 0; i < parts->n; i++) {
        for (size_t k = 0; k < ARRAY_LEN(bounds); k++) {
            int32_t node = schema_get(s, parts->items[i].node, bounds[k].name);
            if (node >= 0 && !bound_take(s, node, bounds[k].is_lo, bounds[k].open, r, at)) return false;
        }
        int32_t multiple = schema_get(s, parts->items[i].node, "multipleOf");
        if (multiple >= 0 && !multiple_take(s, multiple, &r->integer, r)) return false;
    }
    return true;
}

static bool number_build(struct schema *s, const struct parts *parts, bool integer, int32_t rule) {
    struct number_range r;
    struct nfa n;
    int32_t at;
    if (!number_facts(s, parts, integer, &r, &at)) return false;
    nfa_init(&n, s->b);
    int32_t from = nfa_node(&n), to = nfa_node(&n);
    if (s->b->status == TERN_OK && number_to_nfa(&n, &r, schema_path(s, at), from, to)) {
        int32_t start = nfa_determinize(&n, from, to);
        if (s->b->status == TERN_OK) s->b->g->rules[rule].start = start;
    }
    nfa_release(&n);
    return s->b->status == TERN_OK;
}

static void word_put(struct schema *s, int32_t from, const char *word) {
    int32_t end = grammar_text(s->b, from, str_from(word));
    if (s->b->status == TERN_OK) s->b->g->nodes[end].accept = true;
}

// One alternative for each type; a single one takes the rule itself.
static bool types_build(struct schema *s, const struct parts *parts, uint32_t types, int32_t rule) {
    uint32_t numbers = types & (TYPE_INTEGER | TYPE_FRACTION);
    if (types == TYPE_STRING) return string_build(s, parts, rule);
    if (types == TYPE_ARRAY) return array_build(s, parts, rule);
    if (types == TYPE_OBJECT) return object_build(s, parts, rule);
    if (types == numbers && numbers) return number_build(s, parts, !(numbers & TYPE_FRACTION), rule);
    int32_t start = grammar_node(s->b), end = grammar_node(s->b);
    if (s->b->status != TERN_OK) return false;
    s->b->g->nodes[end].accept = true;
    s->b->g->rules[rule].start = start;
    if (types & TYPE_NULL) word_put(s, start, s->python ? "None" : "null");
    if (types & TYPE_BOOL) {
        word_put(s, start, s->python ? "True" : "true");
        word_put(s, start, s->python ? "False" : "false");
    }
    static const uint32_t rest[] = {TYPE_STRING, TYPE_ARRAY, TYPE_OBJECT};
    for (size_t i = 0; i < ARRAY_LEN(rest); i++) {
        if (!(types & rest[i])) continue;
        int32_t sub = grammar_rule(s->b, 0, COUNT_FREE);
        if (sub < 0 || !types_build(s, parts, rest[i], sub)) return false;
        grammar_call(s->b, start, sub, end, false);
    }
    if (numbers) {
        int32_t sub = grammar_rule(s->b, 0, COUNT_FREE);
        if (sub < 0 || !number_build(s, parts, !(numbers & TYPE_FRACTION), sub)) return false;
        grammar_call(s->b, start, sub, end, false);
    }
    return s->b->status == TERN_OK;
}

bool facts_build(struct schema *s, const struct parts *parts, int32_t rule) {
    uint32_t types = TYPE_ANY;
    bool has_type = false, has_values = false;
    for (int i = 0; i < parts->n; i++) {
        int32_t node = parts->items[i].node, type = schema_get(s, node, "type");
        uint32_t t = TYPE_ANY;
        if (type >= 0 && !type_read(s, type, &t)) return false;
        has_type |= type >= 0;
        types &= t;
        has_values |= schema_get(s, node, "enum") >= 0 || schema_get(s, node, "const") >= 0;
    }
    if (has_values) return values_build(s, parts, types, rule);
    if (!has_type && parts->n > 0) {
        types = type_guess(s, parts);
        if (types != TYPE_ANY)
            schema_note(s, parts->items[0].node, "no type is given; the one of its keywords is meant");
    }
    return types_build(s, parts, types, rule);
}
