// Code point properties and case mappings of the template language, as Python's str methods have them.
//
// The tables are made by tools/jinja/make_unicode.py: ranges searched by halving. Mappings that give several code
// points (ß to SS) are listed apart. A lower-case sigma at the end of a word is the final one, as in Python.
#include "base/base.h"
#include "text/jinja_int.h"

struct rune_range {
    uint32_t first, last;
};
struct case_run {
    uint32_t first, last;
    int stride, delta;
};
struct case_multi {
    uint32_t rune;
    int n;
    uint32_t out[3];
};
#include "text/jinja_unicode_table.inc"

#define TABLE(a) \
    { a, ARRAY_LEN(a) }
static const struct {
    const struct rune_range *rows;
    size_t n;
} props[PROP_COUNT] = {
    [PROP_ALPHA] = TABLE(prop_alpha),     [PROP_DECIMAL] = TABLE(prop_decimal), [PROP_DIGIT] = TABLE(prop_digit),
    [PROP_NUMERIC] = TABLE(prop_numeric), [PROP_LOWER] = TABLE(prop_lower),     [PROP_UPPER] = TABLE(prop_upper),
    [PROP_TITLE] = TABLE(prop_title),     [PROP_SPACE] = TABLE(prop_space),     [PROP_PRINT] = TABLE(prop_print)};
static const struct {
    const struct case_run *rows;
    size_t n;
    const struct case_multi *multi;
    size_t n_multi;
} cases[] = {[CASE_LOWER] = {case_lower, ARRAY_LEN(case_lower), multi_lower, ARRAY_LEN(multi_lower)},
             [CASE_UPPER] = {case_upper, ARRAY_LEN(case_upper), multi_upper, ARRAY_LEN(multi_upper)},
             [CASE_TITLE] = {case_title, ARRAY_LEN(case_title), multi_title, ARRAY_LEN(multi_title)},
             [CASE_FOLD] = {case_fold, ARRAY_LEN(case_fold), multi_fold, ARRAY_LEN(multi_fold)}};

bool jrune_is(uint32_t r, enum jprop p) {
    size_t low = 0, high = props[p].n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (props[p].rows[mid].last < r)
            low = mid + 1;
        else
            high = mid;
    }
    return low < props[p].n && props[p].rows[low].first <= r;
}

bool jrune_space(uint32_t r) {
    if (r < 0x80) return r == ' ' || (r >= '\t' && r <= '\r') || (r >= 0x1c && r <= 0x1f);
    return jrune_is(r, PROP_SPACE);
}

int jrune_map(uint32_t r, enum jcase c, uint32_t out[3]) {
    out[0] = r;
    if (r < 0x80) {
        bool is_upper = r >= 'A' && r <= 'Z', is_lower = r >= 'a' && r <= 'z';
        if (c == CASE_LOWER || c == CASE_FOLD) out[0] = is_upper ? r + 32 : r;
        if (c == CASE_UPPER || c == CASE_TITLE) out[0] = is_lower ? r - 32 : r;
        return 1;
    }
    size_t low = 0, high = cases[c].n_multi;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cases[c].multi[mid].rune < r)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < cases[c].n_multi && cases[c].multi[low].rune == r) {
        memcpy(out, cases[c].multi[low].out, sizeof(cases[c].multi[low].out));
        return cases[c].multi[low].n;
    }
    low = 0;
    high = cases[c].n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cases[c].rows[mid].last < r)
            low = mid + 1;
        else
            high = mid;
    }
    const struct case_run *row = &cases[c].rows[low];
    if (low < cases[c].n && row->first <= r && (r - row->first) % (uint32_t)row->stride == 0)
        out[0] = (uint32_t)((int64_t)r + row->delta);
    return 1;
}

static uint32_t rune_at(const struct jstr *s, size_t i, size_t *n) {
    int len;
    uint32_t r = utf8_decode((struct str){s->data + i, s->len - i}, &len);
    *n = (size_t)len;
    return r;
}

static bool put_mapped(struct jinterp *it, struct jbuf *b, uint32_t r, enum jcase c, bool tainted) {
    uint32_t out[3];
    int n = jrune_map(r, c, out);
    bool ok = true;
    for (int i = 0; i < n && ok; i++) ok = jbuf_put_rune(it, b, out[i], tainted);
    return ok;
}

static bool is_cased(uint32_t r) {
    return jrune_is(r, PROP_LOWER) || jrune_is(r, PROP_UPPER) || jrune_is(r, PROP_TITLE);
}

// A capital sigma at i that ends a word: a cased letter before (not before `from`), none after.
static bool is_final_sigma(const struct jstr *s, size_t from, size_t i, size_t n) {
    size_t p = i, len;
    if (p <= from) return false;
    do p--;
    while (p > 0 && ((uint8_t)s->data[p] & 0xC0) == 0x80);
    if (!is_cased(rune_at(s, p, &len))) return false;
    return i + n >= s->len || !is_cased(rune_at(s, i + n, &len));
}

static bool put_lower(struct jinterp *it, struct jbuf *b, const struct jstr *s, size_t from, size_t i, size_t n) {
    bool tainted = s->taint && s->taint[i];
    size_t len;
    uint32_t r = rune_at(s, i, &len);
    if (r == 0x3A3 && is_final_sigma(s, from, i, n)) return jbuf_put_rune(it, b, 0x3C2, tainted);
    return put_mapped(it, b, r, CASE_LOWER, tainted);
}

struct jval jstr_case(struct jinterp *it, const struct jstr *s, enum jcase c) {
    struct jbuf b = {0};
    jstep(it, s->len / 32);
    for (size_t i = 0, n; i < s->len && it->status == TERN_OK; i += n) {
        uint32_t r = rune_at(s, i, &n);
        if (c == CASE_LOWER)
            put_lower(it, &b, s, 0, i, n);
        else
            put_mapped(it, &b, r, c, s->taint && s->taint[i]);
    }
    return jbuf_val(it, &b);
}

struct jval jstr_capitalize(struct jinterp *it, const struct jstr *s) {
    struct jbuf b = {0};
    jstep(it, s->len / 32);
    for (size_t i = 0, n; i < s->len && it->status == TERN_OK; i += n) {
        uint32_t r = rune_at(s, i, &n);
        if (i == 0)
            put_mapped(it, &b, r, CASE_TITLE, s->taint && s->taint[0]);
        else
            put_lower(it, &b, s, 0, i, n);
    }
    return jbuf_val(it, &b);
}

struct jval jstr_title(struct jinterp *it, const struct jstr *s) {
    struct jbuf b = {0};
    bool after_cased = false;
    jstep(it, s->len / 32);
    for (size_t i = 0, n; i < s->len && it->status == TERN_OK; i += n) {
        uint32_t r = rune_at(s, i, &n);
        if (after_cased)
            put_lower(it, &b, s, 0, i, n);
        else
            put_mapped(it, &b, r, CASE_TITLE, s->taint && s->taint[i]);
        after_cased = is_cased(r);
    }
    return jbuf_val(it, &b);
}

// Jinja's |title: words are cut at blanks and at - ( { [ < , their first code point goes up and the rest down.
struct jval jstr_title_filter(struct jinterp *it, const struct jstr *s) {
    struct jbuf b = {0};
    bool first = true;
    size_t rest = 0; // where the rest of the word starts: no sigma looks back beyond it
    jstep(it, s->len / 32);
    for (size_t i = 0, n; i < s->len && it->status == TERN_OK; i += n) {
        uint32_t r = rune_at(s, i, &n);
        bool border = jrune_space(r) || r == '-' || r == '(' || r == '{' || r == '[' || r == '<';
        if (first || border)
            put_mapped(it, &b, r, CASE_UPPER, s->taint && s->taint[i]);
        else
            put_lower(it, &b, s, rest, i, n);
        if (first || border) rest = i + n;
        first = border;
    }
    return jbuf_val(it, &b);
}

struct jval jstr_swapcase(struct jinterp *it, const struct jstr *s) {
    struct jbuf b = {0};
    jstep(it, s->len / 32);
    for (size_t i = 0, n; i < s->len && it->status == TERN_OK; i += n) {
        uint32_t r = rune_at(s, i, &n);
        if (jrune_is(r, PROP_UPPER))
            put_lower(it, &b, s, 0, i, n);
        else if (jrune_is(r, PROP_LOWER))
            put_mapped(it, &b, r, CASE_UPPER, s->taint && s->taint[i]);
        else
            jbuf_put(it, &b, s->data + i, s->taint ? s->taint + i : NULL, n);
    }
    return jbuf_val(it, &b);
}

// str.isupper and str.islower: at least one cased code point, and all of these as wanted.
bool jstr_is_cased(struct jinterp *it, const struct jstr *s, enum jprop want) {
    bool any = false;
    jstep(it, s->len / 16);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t r = rune_at(s, i, &n);
        if (!is_cased(r)) continue;
        if (!jrune_is(r, want)) return false;
        any = true;
    }
    return any;
}
