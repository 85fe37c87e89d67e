// GBNF, the grammar notation of the llama.cpp family: rules of literals, character classes, groups and repetitions.
//
// Every rule becomes one automaton whose calls are other rules. As in patterns, what is repeated is read again for each
// copy; names get their rules when they are first seen.
#include "base/base.h"
#include "text/regex_int.h"

#define GBNF_NAMES_MAX 5000

struct gbnf_name {
    struct str name;
    int32_t rule;
    bool defined;
};
struct gbnf {
    struct grammar_builder *b;
    struct nfa *nfa;
    struct str s;
    size_t pos;
    int depth;
    struct gbnf_name *names;
    size_t n_names, cap_names;
};

static bool bad(struct gbnf *g, enum tern_status code, const char *what) {
    int line = 1;
    size_t start = 0;
    for (size_t i = 0; i < g->pos && i < g->s.len; i++) {
        if (g->s.data[i] != '\n') continue;
        line++;
        start = i + 1;
    }
    return GRAMMAR_FAIL(g->b, code, "grammar, line %d, column %zu: %s", line, g->pos - start + 1, what);
}
static bool ok(const struct gbnf *g) { return g->b->status == TERN_OK; }
static bool at_end(const struct gbnf *g) { return g->pos >= g->s.len; }
static char peek(const struct gbnf *g) { return at_end(g) ? 0 : g->s.data[g->pos]; }
static bool take(struct gbnf *g, char c) {
    if (at_end(g) || g->s.data[g->pos] != c) return false;
    g->pos++;
    return true;
}

static void blanks_skip(struct gbnf *g, bool lines) {
    while (!at_end(g)) {
        char c = peek(g);
        if (c == '#') {
            while (!at_end(g) && peek(g) != '\n') g->pos++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->pos++;
        } else {
            return;
        }
    }
}

static bool is_word(char c) {
    return ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static struct str word_take(struct gbnf *g) {
    size_t start = g->pos;
    while (!at_end(g) && is_word(peek(g))) g->pos++;
    return (struct str){g->s.data + start, g->pos - start};
}

static struct gbnf_name *name_get(struct gbnf *g, struct str name) {
    if (!grammar_work(g->b, g->n_names)) return NULL;
    for (size_t i = 0; i < g->n_names; i++)
        if (str_eq(g->names[i].name, name)) return &g->names[i];
    if (!grammar_grow(g->b, (void **)&g->names, &g->cap_names, g->n_names, sizeof *g->names, GBNF_NAMES_MAX,
                      "rules in a grammar"))
        return NULL;
    int32_t rule = grammar_rule(g->b, 0, COUNT_FREE);
    if (rule < 0) return NULL;
    g->b->g->rules[rule].name = name;
    g->names[g->n_names] = (struct gbnf_name){.name = name, .rule = rule};
    return &g->names[g->n_names++];
}

// ------------------------------------------------------------------------------------------------------------ pieces

static bool rune_take(struct gbnf *g, uint32_t *rune) {
    int n;
    if (!take(g, '\\')) {
        *rune = utf8_decode((struct str){g->s.data + g->pos, g->s.len - g->pos}, &n);
        if (*rune == RUNE_BAD) return bad(g, TERN_BAD_FORMAT, "ill-formed UTF-8");
        g->pos += (size_t)n;
        return true;
    }
    static const char from[] = "nrt\\\"[]-^/.'", to[] = "\n\r\t\\\"[]-^/.'";
    char c = peek(g);
    if (at_end(g)) return bad(g, TERN_BAD_FORMAT, "nothing follows the backslash");
    g->pos++;
    const char *p = c ? strchr(from, c) : NULL;
    if (p) {
        *rune = (uint32_t)(unsigned char)to[p - from];
        return true;
    }
    n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n == 0) return bad(g, TERN_BAD_FORMAT, "unknown escape");
    *rune = 0;
    for (int i = 0; i < n; i++) {
        char h = peek(g), low = (char)(h | 32);
        int v = h >= '0' && h <= '9' ? h - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (v < 0) return bad(g, TERN_BAD_FORMAT, "a hexadecimal digit is missing");
        *rune = *rune * 16 + (uint32_t)v;
        g->pos++;
    }
    if (*rune > RUNE_LAST || (*rune >= 0xD800 && *rune < 0xE000))
        return bad(g, TERN_BAD_FORMAT, "there is no such character");
    return true;
}

static bool literal_take(struct gbnf *g, int32_t from, int32_t to) {
    while (!take(g, '"')) {
        uint32_t rune;
        if (at_end(g)) return bad(g, TERN_BAD_FORMAT, "the text is not closed with \"");
        if (!rune_take(g, &rune)) return false;
        int32_t next = nfa_node(g->nfa);
        nfa_runes(g->nfa, from, rune, rune, next);
        if (!ok(g)) return false;
        from = next;
    }
    nfa_empty(g->nfa, from, to);
    return ok(g);
}

static bool class_take(struct gbnf *g, int32_t from, int32_t to) {
    struct rune_set set = {0};
    bool negate = take(g, '^');
    while (!take(g, ']')) {
        uint32_t lo, hi;
        if (at_end(g)) return bad(g, TERN_BAD_FORMAT, "the class is not closed with ]");
        if (!rune_take(g, &lo)) return false;
        hi = lo;
        if (peek(g) == '-' && g->pos + 1 < g->s.len && g->s.data[g->pos + 1] != ']') {
            g->pos++;
            if (!rune_take(g, &hi)) return false;
            if (hi < lo) return bad(g, TERN_BAD_FORMAT, "the range is upside down");
        }
        rune_set_add(&set, lo, hi);
    }
    if (set.full) return bad(g, TERN_LIMIT, "too many ranges in one class");
    rune_set_settle(&set, negate);
    rune_set_to_nfa(&set, g->nfa, false, from, to);
    return ok(g);
}

static bool alternatives(struct gbnf *g, int32_t from, int32_t to, bool nested);

static bool item_take(struct gbnf *g, int32_t from, int32_t to) {
    if (take(g, '"')) return literal_take(g, from, to);
    if (take(g, '[')) return class_take(g, from, to);
    if (take(g, '.')) {
        nfa_runes(g->nfa, from, 0, RUNE_LAST, to);
        return ok(g);
    }
    if (take(g, '(')) {
        if (++g->depth > REGEX_DEPTH_MAX) return bad(g, TERN_LIMIT, "groups are nested too deep");
        if (!alternatives(g, from, to, true)) return false;
        g->depth--;
        return take(g, ')') || bad(g, TERN_BAD_FORMAT, "the group is not closed with )");
    }
    if (peek(g) == '<' || peek(g) == '!')
        return bad(g, TERN_UNSUPPORTED, "tokens as symbols are not supported; write their text");
    if (!is_word(peek(g))) return bad(g, TERN_BAD_FORMAT, "expected a text, a class, a group or a rule's name");
    const struct gbnf_name *n = name_get(g, word_take(g));
    if (!n) return false;
    nfa_call(g->nfa, from, n->rule, to);
    return ok(g);
}

#define REPEAT_OPEN (-1)

static bool count_take(struct gbnf *g, int *out) {
    int v = 0;
    if (peek(g) < '0' || peek(g) > '9') return bad(g, TERN_BAD_FORMAT, "a number is expected");
    for (; peek(g) >= '0' && peek(g) <= '9'; g->pos++) v = MIN(v * 10 + (peek(g) - '0'), REGEX_REPEAT_MAX + 1);
    if (v > REGEX_REPEAT_MAX) return bad(g, TERN_LIMIT, "more than 2000 repetitions");
    *out = v;
    return true;
}

static bool quantifier_take(struct gbnf *g, int *lo, int *hi) {
    *lo = *hi = 1;
    if (take(g, '*')) {
        *lo = 0;
        *hi = REPEAT_OPEN;
    } else if (take(g, '+')) {
        *hi = REPEAT_OPEN;
    } else if (take(g, '?')) {
        *lo = 0;
    } else if (take(g, '{')) {
        blanks_skip(g, true);
        if (!count_take(g, lo)) return false;
        blanks_skip(g, true);
        *hi = *lo;
        if (take(g, ',')) {
            blanks_skip(g, true);
            *hi = REPEAT_OPEN;
            if (peek(g) != '}' && !count_take(g, hi)) return false;
            blanks_skip(g, true);
        }
        if (!take(g, '}')) return bad(g, TERN_BAD_FORMAT, "the repetition is not closed with }");
        if (*hi != REPEAT_OPEN && *hi < *lo) return bad(g, TERN_BAD_FORMAT, "the repetition's bounds are upside down");
    }
    return true;
}

// The item read once, its repetition, and the other copies.
static bool piece_take(struct gbnf *g, int32_t from, int32_t to) {
    size_t start = g->pos;
    int lo, hi;
    int32_t in = nfa_node(g->nfa), out = nfa_node(g->nfa);
    if (!item_take(g, in, out)) return false;
    if (!quantifier_take(g, &lo, &hi)) return false;
    size_t end = g->pos;
    int copies = hi == REPEAT_OPEN ? MAX(lo, 1) : MAX(hi, 1);
    for (int i = 0; i < copies && ok(g); i++) {
        if (i > 0) {
            in = nfa_node(g->nfa);
            out = nfa_node(g->nfa);
            g->pos = start;
            if (!item_take(g, in, out)) return false;
        }
        if (hi != 0) nfa_empty(g->nfa, from, in);
        if (i >= lo || hi == 0) nfa_empty(g->nfa, from, to);
        if (hi == REPEAT_OPEN && i + 1 == copies) nfa_empty(g->nfa, out, in);
        from = out;
    }
    nfa_empty(g->nfa, from, to);
    g->pos = end;
    return ok(g);
}

// At a line's end: does the rule go on with '|' on the next one?
static bool goes_on(struct gbnf *g, bool nested) {
    size_t start = g->pos;
    blanks_skip(g, true);
    if (nested || peek(g) == '|') return true;
    g->pos = start;
    return false;
}

static bool alternatives(struct gbnf *g, int32_t from, int32_t to, bool nested) {
    do {
        int32_t at = nfa_node(g->nfa);
        nfa_empty(g->nfa, from, at);
        blanks_skip(g, true);
        while (ok(g)) {
            blanks_skip(g, nested);
            char c = peek(g);
            if (at_end(g) || c == '|' || c == ')') break;
            if ((c == '\n' || c == '\r') && !goes_on(g, nested)) break;
            if (peek(g) == '|') break;
            int32_t next = nfa_node(g->nfa);
            if (!piece_take(g, at, next)) return false;
            at = next;
        }
        nfa_empty(g->nfa, at, to);
    } while (ok(g) && take(g, '|'));
    return ok(g);
}

static bool rule_take(struct gbnf *g) {
    struct nfa n;
    struct str name = word_take(g);
    if (name.len == 0) return bad(g, TERN_BAD_FORMAT, "a rule's name is expected");
    blanks_skip(g, false);
    if (!take(g, ':') || !take(g, ':') || !take(g, '=')) return bad(g, TERN_BAD_FORMAT, "::= is expected");
    struct gbnf_name *entry = name_get(g, name);
    if (!entry) return false;
    if (entry->defined) return bad(g, TERN_BAD_FORMAT, "this rule was defined before");
    entry->defined = true;
    int32_t rule = entry->rule;
    nfa_init(&n, g->b);
    g->nfa = &n;
    g->depth = 0;
    int32_t from = nfa_node(&n), to = nfa_node(&n);
    if (ok(g) && alternatives(g, from, to, false)) {
        int32_t start = nfa_determinize(&n, from, to);
        if (ok(g)) g->b->g->rules[rule].start = start;
    }
    nfa_release(&n);
    if (ok(g) && !at_end(g) && peek(g) != '\n' && peek(g) != '\r')
        return bad(g, TERN_BAD_FORMAT, "the rule should end here");
    return ok(g);
}

int32_t gbnf_rule(struct grammar_builder *b, struct str text) {
    struct gbnf g = {.b = b, .s = text};
    int32_t root = GRAMMAR_NONE;
    blanks_skip(&g, true);
    while (ok(&g) && !at_end(&g)) {
        if (!rule_take(&g)) break;
        blanks_skip(&g, true);
    }
    for (size_t i = 0; i < g.n_names; i++) {
        struct str name = g.names[i].name;
        if (!g.names[i].defined)
            GRAMMAR_FAIL(b, TERN_BAD_FORMAT, "grammar: the rule \"%.*s\" is used but not defined",
                         (int)MIN(name.len, 64), name.data);
        if (str_eqz(name, "root")) root = g.names[i].rule;
    }
    if (root < 0) GRAMMAR_FAIL(b, TERN_BAD_FORMAT, "grammar: there is no rule named root");
    mem_free(g.names);
    return root;
}
