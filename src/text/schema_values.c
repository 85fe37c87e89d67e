// enum and const: the values that fit everything else that is said of them, each in its JSON spelling.
#include "base/base.h"
#include "text/schema_int.h"

struct value_filter {
    struct schema *s;
    const struct parts *parts;
    uint32_t types;
    struct string_facts strings;
    struct number_range numbers;
};

static const char *const deep_keywords[] = {"properties", "required",    "additionalProperties", "minProperties",
                                            "items",      "prefixItems", "maxProperties",        "minItems",
                                            "maxItems",   "uniqueItems"};

static uint32_t value_type(const struct schema_node *n) {
    int64_t v;
    switch (n->event) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_BOOL: return TYPE_BOOL;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    case JSON_OBJECT: return TYPE_OBJECT;
    default: return decimal_is_whole(n->text, &v) ? TYPE_INTEGER : TYPE_FRACTION;
    }
}

static bool number_fits(const struct value_filter *f, struct str text) {
    const struct number_range *r = &f->numbers;
    int lo = r->lo.len ? decimal_cmp(text, r->lo) : 1, hi = r->hi.len ? decimal_cmp(text, r->hi) : -1;
    int64_t v;
    if (lo == DECIMAL_UNKNOWN || hi == DECIMAL_UNKNOWN) return false;
    if (lo < 0 || (lo == 0 && r->lo_open) || hi > 0 || (hi == 0 && r->hi_open)) return false;
    return r->multiple_of == 0 || (decimal_is_whole(text, &v) && v % r->multiple_of == 0);
}

static bool list_holds(const struct schema *s, int32_t list, int32_t value) {
    SCHEMA_EACH(s, child, list) if (schema_equal(s, child, value)) return true;
    return false;
}

static bool value_fits(const struct value_filter *f, int32_t value) {
    struct schema *s = f->s;
    uint32_t type = value_type(&s->nodes[value]);
    if (!(f->types & type)) return false;
    for (int i = 0; i < f->parts->n; i++) {
        int32_t part = f->parts->items[i].node;
        int32_t list = schema_get(s, part, "enum"), one = schema_get(s, part, "const");
        if (list >= 0 && !list_holds(s, list, value)) return false;
        if (one >= 0 && !schema_equal(s, one, value)) return false;
    }
    if (type == TYPE_STRING) return string_fits(s, &f->strings, s->nodes[value].text);
    return !(type & (TYPE_INTEGER | TYPE_FRACTION)) || number_fits(f, s->nodes[value].text);
}

// Keywords about the inside of arrays and objects beside values that are such: not judged here, so refused.
static bool deep_check(const struct value_filter *f, int32_t value) {
    struct schema *s = f->s;
    if (s->nodes[value].event != JSON_ARRAY && s->nodes[value].event != JSON_OBJECT) return true;
    for (int i = 0; i < f->parts->n; i++)
        for (size_t k = 0; k < ARRAY_LEN(deep_keywords); k++) {
            int32_t node = schema_get(s, f->parts->items[i].node, deep_keywords[k]);
            if (node >= 0)
                return GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED,
                                    "schema %s: not supported beside enum or const with arrays or objects",
                                    schema_path(s, node));
        }
    return true;
}

// The spelling between from and to; one blank is allowed behind commas and colons outside strings.
static void spelling_put(struct nfa *n, struct str text, bool is_list, int32_t from, int32_t to) {
    bool quoted = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        from = nfa_text(n, from, (struct str){&c, 1});
        if (quoted && c == '\\' && i + 1 < text.len) {
            from = nfa_text(n, from, (struct str){&text.data[++i], 1});
        } else if (c == '"') {
            quoted = !quoted;
        } else if (is_list && !quoted && (c == ',' || c == ':')) {
            int32_t next = nfa_node(n);
            nfa_empty(n, from, next);
            nfa_byte(n, from, ' ', ' ', next);
            from = next;
        }
    }
    nfa_empty(n, from, to);
}

static bool value_put(struct value_filter *f, struct nfa *n, int32_t value, int32_t from, int32_t to) {
    struct schema *s = f->s;
    if (!value_fits(f, value)) return s->b->status == TERN_OK;
    if (!deep_check(f, value)) return false;
    struct buf text;
    buf_init(&text, CONSTRAINT_BYTES_MAX * 8);
    schema_json(s, value, &text, s->python);
    bool is_list = s->nodes[value].event == JSON_ARRAY || s->nodes[value].event == JSON_OBJECT;
    if (text.failed)
        GRAMMAR_FAIL(s->b, TERN_NO_MEMORY, "no memory for a schema");
    else
        spelling_put(n, buf_str(&text), is_list, from, to);
    buf_release(&text);
    return s->b->status == TERN_OK;
}

// The first enum or const; the others filter it.
static int32_t first_values(const struct schema *s, const struct parts *parts) {
    for (int i = 0; i < parts->n; i++) {
        int32_t one = schema_get(s, parts->items[i].node, "const"), list = schema_get(s, parts->items[i].node, "enum");
        if (one >= 0) return one;
        if (list >= 0) return list;
    }
    return GRAMMAR_NONE;
}

bool values_build(struct schema *s, const struct parts *parts, uint32_t types, int32_t rule) {
    struct value_filter f = {.s = s, .parts = parts, .types = types};
    int32_t at, values = first_values(s, parts);
    bool is_const = str_eqz(s->nodes[values].key, "const");
    if (!is_const && (s->nodes[values].event != JSON_ARRAY || s->nodes[values].n == 0))
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a list of values is expected", schema_path(s, values));
    if (!is_const && s->nodes[values].n > SCHEMA_ENUM_MAX)
        return GRAMMAR_FAIL(s->b, TERN_LIMIT, "schema %s: %d values; at most %d are allowed", schema_path(s, values),
                            s->nodes[values].n, SCHEMA_ENUM_MAX);
    if (!string_facts_read(s, parts, &f.strings) || !number_facts(s, parts, false, &f.numbers, &at)) return false;
    struct nfa n;
    nfa_init(&n, s->b);
    int32_t from = nfa_node(&n), to = nfa_node(&n);
    bool ok = s->b->status == TERN_OK;
    if (is_const)
        ok = ok && value_put(&f, &n, values, from, to);
    else
        for (int32_t v = s->nodes[values].first; ok && v >= 0; v = s->nodes[v].next)
            ok = value_put(&f, &n, v, from, to);
    if (ok) {
        int32_t start = nfa_determinize(&n, from, to);
        ok = s->b->status == TERN_OK;
        if (ok) s->b->g->rules[rule].start = start;
    }
    nfa_release(&n);
    return ok;
}
