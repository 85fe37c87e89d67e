// Patterns (a subset of ECMA-262, doc/constraints.md) as nondeterministic automata.
//
// A recursive descent whose depth is bounded. A repeated atom is read again for every copy, so there is no tree; each
// copy makes nodes, whose number is bounded, and that bounds the work. Anchors count at the ends of the pattern and of
// its alternatives; for a search, the pattern is laid down once for each combination of "at the text's start or later"
// and "at its end or earlier", with the anchors that cannot hold leading nowhere.
#include "base/base.h"
#include "text/regex_int.h"

struct regex {
    struct nfa *nfa;
    struct str s;
    size_t pos;
    bool json;
    bool caret, dollar; // may hold in this copy
    int depth;
};
struct place { // of a piece: nothing before it, nothing after it
    bool first, last;
};

static bool bad(struct regex *r, enum tern_status code, const char *what) {
    return GRAMMAR_FAIL(r->nfa->b, code, "pattern \"%.*s\", character %zu: %s", (int)MIN(r->s.len, 80), r->s.data,
                        r->pos + 1, what);
}
static bool ok(const struct regex *r) { return r->nfa->b->status == TERN_OK; }
static bool at_end(const struct regex *r) { return r->pos >= r->s.len; }
static char peek(const struct regex *r) { return at_end(r) ? 0 : r->s.data[r->pos]; }
static bool take(struct regex *r, char c) {
    if (at_end(r) || r->s.data[r->pos] != c) return false;
    r->pos++;
    return true;
}
static bool rune_take(struct regex *r, uint32_t *rune) {
    int n;
    *rune = utf8_decode((struct str){r->s.data + r->pos, r->s.len - r->pos}, &n);
    if (*rune == RUNE_BAD) return bad(r, TERN_BAD_FORMAT, "ill-formed UTF-8");
    r->pos += (size_t)n;
    return true;
}

// ----------------------------------------------------------------------------------------------------------- escapes

static bool hex_take(struct regex *r, int n, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        char c = peek(r), low = (char)(c | 32);
        int v = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (v < 0) return bad(r, TERN_BAD_FORMAT, "a hexadecimal digit is missing");
        *out = *out * 16 + (uint32_t)v;
        r->pos++;
    }
    return true;
}

static bool unicode_take(struct regex *r, uint32_t *rune) {
    if (take(r, '{')) {
        int n = 0;
        while (r->pos + (size_t)n < r->s.len && r->s.data[r->pos + (size_t)n] != '}') n++;
        if (n < 1 || n > 6) return bad(r, TERN_BAD_FORMAT, "\\u{…} wants 1 to 6 hexadecimal digits");
        if (!hex_take(r, n, rune)) return false;
        if (!take(r, '}') || *rune > RUNE_LAST) return bad(r, TERN_BAD_FORMAT, "there is no such character");
        return true;
    }
    uint32_t low;
    if (!hex_take(r, 4, rune)) return false;
    if (*rune < 0xD800 || *rune > 0xDFFF) return true;
    if (*rune > 0xDBFF || !take(r, '\\') || !take(r, 'u') || !hex_take(r, 4, &low) || low < 0xDC00 || low > 0xDFFF)
        return bad(r, TERN_BAD_FORMAT, "half a surrogate pair");
    *rune = 0x10000 + ((*rune - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

// Behind the backslash: one rune, or a class (then *is_class and it was added to set).
static bool escape_take(struct regex *r, struct rune_set *set, uint32_t *rune, bool *is_class) {
    static const char from[] = "nrtvf", to[] = "\n\r\t\v\f";
    *is_class = false;
    if (at_end(r)) return bad(r, TERN_BAD_FORMAT, "nothing follows the backslash");
    char c = peek(r);
    const char *p = strchr(from, c);
    if (rune_set_add_class(set, c)) {
        r->pos++;
        return *is_class = true;
    }
    if (p) {
        r->pos++;
        *rune = (uint32_t)to[p - from];
        return true;
    }
    if (c == '0' && !(r->pos + 1 < r->s.len && r->s.data[r->pos + 1] >= '0' && r->s.data[r->pos + 1] <= '9')) {
        r->pos++;
        *rune = 0;
        return true;
    }
    if (c == 'x' || c == 'u') {
        r->pos++;
        return c == 'x' ? hex_take(r, 2, rune) : unicode_take(r, rune);
    }
    if (c == 'b' || c == 'B') return bad(r, TERN_UNSUPPORTED, "word boundaries are not supported");
    if (c == 'p' || c == 'P') return bad(r, TERN_UNSUPPORTED, "\\p{…} is not supported");
    if (c == 'k' || (c >= '0' && c <= '9')) return bad(r, TERN_UNSUPPORTED, "references to groups are not supported");
    if (((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_') return bad(r, TERN_BAD_FORMAT, "unknown escape");
    return rune_take(r, rune);
}

// Behind the '['.
static bool class_take(struct regex *r, struct rune_set *set) {
    bool negate = take(r, '^');
    *set = (struct rune_set){0};
    while (!take(r, ']')) {
        uint32_t lo = 0, hi = 0;
        bool is_class = false;
        if (at_end(r)) return bad(r, TERN_BAD_FORMAT, "the class is not closed with ]");
        if (peek(r) == '[' && r->pos + 1 < r->s.len && strchr(":.=", r->s.data[r->pos + 1]))
            return bad(r, TERN_UNSUPPORTED, "POSIX classes are not supported");
        if (take(r, '\\')) {
            if (peek(r) == 'b') {
                r->pos++;
                lo = '\b';
            } else if (peek(r) == '-') {
                r->pos++;
                lo = '-';
            } else if (!escape_take(r, set, &lo, &is_class)) {
                return false;
            }
        } else if (!rune_take(r, &lo)) {
            return false;
        }
        if (is_class) continue;
        hi = lo;
        if (peek(r) == '-' && r->pos + 1 < r->s.len && r->s.data[r->pos + 1] != ']') {
            r->pos++;
            if (take(r, '\\') ? !escape_take(r, set, &hi, &is_class) : !rune_take(r, &hi)) return false;
            if (is_class) return bad(r, TERN_BAD_FORMAT, "a range cannot end with a class");
            if (hi < lo) return bad(r, TERN_BAD_FORMAT, "the range is upside down");
        }
        rune_set_add(set, lo, hi);
    }
    if (set->full) return bad(r, TERN_LIMIT, "too many ranges in one class");
    rune_set_settle(set, negate);
    return true;
}

// ------------------------------------------------------------------------------------------------------------- atoms

static bool alternatives(struct regex *r, int32_t from, int32_t to, struct place place);

static bool group_take(struct regex *r, int32_t from, int32_t to, struct place place) {
    if (take(r, '?')) {
        if (take(r, '<')) {
            char c = peek(r);
            if (c == '=' || c == '!') return bad(r, TERN_UNSUPPORTED, "looking behind is not supported");
            while (!at_end(r) && peek(r) != '>') r->pos++;
            if (!take(r, '>')) return bad(r, TERN_BAD_FORMAT, "the group's name does not end");
        } else if (peek(r) == '=' || peek(r) == '!') {
            return bad(r, TERN_UNSUPPORTED, "looking ahead is not supported");
        } else if (!take(r, ':')) {
            return bad(r, TERN_UNSUPPORTED, "only (…), (?:…) and (?<name>…) are supported");
        }
    }
    if (++r->depth > REGEX_DEPTH_MAX) return bad(r, TERN_LIMIT, "groups are nested too deep");
    if (!alternatives(r, from, to, place)) return false;
    r->depth--;
    return take(r, ')') || bad(r, TERN_BAD_FORMAT, "the group is not closed with )");
}

static bool atom_take(struct regex *r, int32_t from, int32_t to, struct place place) {
    struct rune_set set = {0};
    uint32_t rune;
    bool is_class;
    if (take(r, '(')) return group_take(r, from, to, place);
    if (take(r, '[')) {
        if (!class_take(r, &set)) return false;
    } else if (take(r, '.')) {
        rune_set_any(&set);
    } else if (take(r, '\\')) {
        if (!escape_take(r, &set, &rune, &is_class)) return false;
        if (!is_class) rune_set_add(&set, rune, rune);
    } else {
        if (!rune_take(r, &rune)) return false;
        rune_set_add(&set, rune, rune);
    }
    rune_set_to_nfa(&set, r->nfa, r->json, from, to);
    return ok(r);
}

// Over one atom. What is inside of a group or class is judged when it is read.
static bool atom_skip(struct regex *r) {
    struct rune_set set = {0};
    uint32_t rune;
    bool is_class, in_class = false;
    int depth = 0;
    if (take(r, '\\')) return escape_take(r, &set, &rune, &is_class);
    if (peek(r) != '(' && peek(r) != '[') return rune_take(r, &rune);
    do {
        char c = r->s.data[r->pos++];
        if (c == '\\' && !at_end(r)) r->pos++;
        if (in_class) {
            in_class = c != ']';
            continue;
        }
        if (c == '[') in_class = true;
        if (c == '(') depth++;
        if (c == ')') depth--;
    } while (!at_end(r) && (depth > 0 || in_class));
    return true;
}

// ------------------------------------------------------------------------------------------------------- repetitions

#define REPEAT_OPEN (-1)

static bool count_take(struct regex *r, int *out) {
    int64_t v = 0;
    if (peek(r) < '0' || peek(r) > '9') return false;
    for (; peek(r) >= '0' && peek(r) <= '9'; r->pos++) v = MIN(v * 10 + (peek(r) - '0'), REGEX_REPEAT_MAX + 1);
    *out = (int)v;
    return true;
}

// {m}, {m,}, {m,n} at the place; false: it is none, and nothing is taken.
static bool braces_take(struct regex *r, int *lo, int *hi) {
    size_t start = r->pos;
    if (take(r, '{') && count_take(r, lo)) {
        *hi = *lo;
        if (take(r, ',') && !count_take(r, hi)) *hi = REPEAT_OPEN;
        if (take(r, '}')) return true;
    }
    r->pos = start;
    return false;
}

static bool quantifier_take(struct regex *r, int *lo, int *hi) {
    *lo = *hi = 1;
    if (take(r, '*')) {
        *lo = 0;
        *hi = REPEAT_OPEN;
    } else if (take(r, '+')) {
        *hi = REPEAT_OPEN;
    } else if (take(r, '?')) {
        *lo = 0;
    } else if (!braces_take(r, lo, hi)) {
        return true;
    }
    if (*lo > REGEX_REPEAT_MAX || *hi > REGEX_REPEAT_MAX) return bad(r, TERN_LIMIT, "more than 2000 repetitions");
    if (*hi != REPEAT_OPEN && *hi < *lo) return bad(r, TERN_BAD_FORMAT, "the repetition's bounds are upside down");
    take(r, '?'); // lazy: the same texts
    return true;
}

static bool piece_copies(struct regex *r, size_t start, int lo, int hi, int32_t from, int32_t to, struct place place) {
    size_t end = r->pos;
    int copies = hi == REPEAT_OPEN ? MAX(lo, 1) : MAX(hi, 1);
    if (lo != 1 || hi != 1) place = (struct place){false, false};
    for (int i = 0; i < copies && ok(r); i++) {
        int32_t in = nfa_node(r->nfa), out = nfa_node(r->nfa);
        if (hi != 0) nfa_empty(r->nfa, from, in); // {0}: read, so that it is judged, but not reached
        if (i >= lo || hi == 0) nfa_empty(r->nfa, from, to);
        r->pos = start;
        if (!atom_take(r, in, out, place)) return false;
        if (hi == REPEAT_OPEN && i + 1 == copies) nfa_empty(r->nfa, out, in);
        from = out;
    }
    nfa_empty(r->nfa, from, to);
    r->pos = end;
    return ok(r);
}

// ---------------------------------------------------------------------------------------------------------- sequences

static bool ends_here(const struct regex *r) { return at_end(r) || peek(r) == '|' || peek(r) == ')'; }

static bool only_dollars_left(const struct regex *r) {
    size_t i = r->pos;
    while (i < r->s.len && r->s.data[i] == '$') i++;
    return i >= r->s.len || r->s.data[i] == '|' || r->s.data[i] == ')';
}

static bool sequence(struct regex *r, int32_t from, int32_t to, struct place place) {
    bool first = place.first;
    int32_t at = from;
    while (!ends_here(r) && ok(r)) {
        size_t start = r->pos;
        int lo, hi;
        char c = peek(r);
        int32_t next = nfa_node(r->nfa);
        if (c == '*' || c == '+' || c == '?' || (c == '{' && braces_take(r, &lo, &hi)))
            return bad(r, TERN_BAD_FORMAT, "there is nothing to repeat");
        if (c == '^' || c == '$') {
            r->pos++;
            bool in_place = c == '^' ? first : place.last && only_dollars_left(r);
            if (!in_place) return bad(r, TERN_UNSUPPORTED, "an anchor inside the pattern is not supported");
            if (c == '^' ? r->caret : r->dollar) nfa_empty(r->nfa, at, next);
            at = next;
            continue;
        }
        if (!atom_skip(r) || !quantifier_take(r, &lo, &hi)) return false;
        struct place inside = {first, place.last && only_dollars_left(r)};
        if (!piece_copies(r, start, lo, hi, at, next, inside)) return false;
        at = next;
        first = false;
    }
    nfa_empty(r->nfa, at, to);
    return ok(r);
}

static bool alternatives(struct regex *r, int32_t from, int32_t to, struct place place) {
    do {
        int32_t start = nfa_node(r->nfa);
        nfa_empty(r->nfa, from, start);
        if (!sequence(r, start, to, place)) return false;
    } while (take(r, '|'));
    return true;
}

static bool copy_put(struct regex *r, bool caret, bool dollar, int32_t from, int32_t to) {
    r->caret = caret;
    r->dollar = dollar;
    r->pos = 0;
    r->depth = 0;
    if (!alternatives(r, from, to, (struct place){true, true})) return false;
    return at_end(r) || bad(r, TERN_BAD_FORMAT, "a ) without its (");
}

bool regex_to_nfa(struct nfa *n, struct str pattern, bool json, bool search, int32_t from, int32_t to) {
    struct regex r = {.nfa = n, .s = pattern, .json = json};
    if (!search) return copy_put(&r, true, true, from, to);
    bool carets = memchr(pattern.len ? pattern.data : "", '^', pattern.len) != NULL;
    bool dollars = memchr(pattern.len ? pattern.data : "", '$', pattern.len) != NULL;
    struct rune_set any = {0};
    rune_set_add(&any, 0, RUNE_LAST);
    int32_t before = nfa_node(n), after = nfa_node(n), late = nfa_node(n), early = nfa_node(n);
    rune_set_to_nfa(&any, n, json, before, before);
    rune_set_to_nfa(&any, n, json, after, after);
    // late: at least one rune came first. early: at least one follows.
    rune_set_to_nfa(&any, n, json, from, late);
    nfa_empty(n, late, before);
    rune_set_to_nfa(&any, n, json, early, after);
    nfa_empty(n, after, to);
    int32_t starts[] = {from, before}, ends[] = {to, early};
    if (!carets) nfa_empty(n, from, before);
    for (int s = carets ? 0 : 1; s < 2; s++)
        for (int e = 0; e < 2; e++) {
            if (!dollars && e == 0) continue;
            if (!copy_put(&r, s == 0, e == 0, starts[s], dollars ? ends[e] : after)) return false;
        }
    return ok(&r);
}

int32_t regex_rule(struct grammar_builder *b, struct str pattern) {
    struct nfa n;
    nfa_init(&n, b);
    int32_t rule = grammar_rule(b, 0, COUNT_FREE), from = nfa_node(&n), to = nfa_node(&n);
    if (b->status == TERN_OK && regex_to_nfa(&n, pattern, false, false, from, to)) {
        int32_t start = nfa_determinize(&n, from, to);
        if (b->status == TERN_OK) b->g->rules[rule].start = start;
    }
    nfa_release(&n);
    return rule;
}
