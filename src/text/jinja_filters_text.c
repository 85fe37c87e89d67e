// Filters on texts, numbers and single values. Lists are in jinja_filters_list.c.
//
// There is no HTML escaping in chat templates, so `safe` changes nothing, and `escape` gives an ordinary string.
#include "base/base.h"
#include "text/jinja_int.h"
#include <math.h>

typedef const struct jcall *args_t;

// The value as a string, for filters that take any value.
static const struct jstr *text_of(struct jinterp *it, struct jval self) {
    struct jval v = jto_str(it, self);
    return it->status == TERN_OK && v.type == J_STR ? v.u.s : NULL;
}

static struct jval f_trim(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"chars"};
    struct jval a[1];
    const struct jstr *s = text_of(it, self), *chars = NULL;
    if (!s || !jargs_bind(it, c, "trim", params, 1, 0, a)) return jval_undef;
    if (a[0].type != J_MISSING && a[0].type != J_NONE && !(chars = jarg_str(it, a[0], "trim"))) return jval_undef;
    return jstr_strip(it, s, chars, true, true);
}

static struct jval f_upper(struct jinterp *it, struct jval self, args_t c) {
    const struct jstr *s = text_of(it, self);
    return s && jargs_bind(it, c, "upper", NULL, 0, 0, NULL) ? jstr_case(it, s, CASE_UPPER) : jval_undef;
}
static struct jval f_lower(struct jinterp *it, struct jval self, args_t c) {
    const struct jstr *s = text_of(it, self);
    return s && jargs_bind(it, c, "lower", NULL, 0, 0, NULL) ? jstr_case(it, s, CASE_LOWER) : jval_undef;
}
static struct jval f_title(struct jinterp *it, struct jval self, args_t c) {
    const struct jstr *s = text_of(it, self);
    return s && jargs_bind(it, c, "title", NULL, 0, 0, NULL) ? jstr_title_filter(it, s) : jval_undef;
}
static struct jval f_capitalize(struct jinterp *it, struct jval self, args_t c) {
    const struct jstr *s = text_of(it, self);
    return s && jargs_bind(it, c, "capitalize", NULL, 0, 0, NULL) ? jstr_capitalize(it, s) : jval_undef;
}
static struct jval f_string(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "string", NULL, 0, 0, NULL) ? jto_str(it, self) : jval_undef;
}

static struct jval f_replace(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"old", "new", "count"};
    struct jval a[3];
    int64_t max = -1;
    const struct jstr *s = text_of(it, self);
    if (!s || !jargs_bind(it, c, "replace", params, 3, 2, a)) return jval_undef;
    if (a[2].type != J_NONE && !jarg_int(it, a[2], "replace", -1, &max)) return jval_undef;
    const struct jstr *from = text_of(it, a[0]), *to = text_of(it, a[1]);
    return from && to ? jstr_replace(it, s, from, to, max) : jval_undef;
}

static struct jval f_indent(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"width", "first", "blank"};
    struct jval a[3], by = jstr_lit(it, " ");
    int64_t width;
    const struct jstr *s = jarg_str(it, self, "indent");
    if (!s || !jargs_bind(it, c, "indent", params, 3, 0, a)) return jval_undef;
    if (a[0].type == J_STR)
        by = a[0];
    else if (!jarg_int(it, a[0], "indent", 4, &width) || (by = jstr_repeat(it, by.u.s, width)).type != J_STR)
        return jval_undef;
    struct jval nl = jstr_lit(it, "\n");
    struct jval with_nl = it->status == TERN_OK ? jstr_concat(it, s, nl.u.s) : jval_undef;
    struct jval lines = with_nl.type == J_STR ? jstr_splitlines(it, with_nl.u.s, false) : jval_undef;
    if (it->status != TERN_OK) return jval_undef;
    struct jbuf b = {0};
    if (jtruth(a[1])) jbuf_put_str(it, &b, by.u.s);
    for (size_t i = 0; i < lines.u.l->len && jstep(it, 1); i++) {
        const struct jstr *line = lines.u.l->items[i].u.s;
        if (i > 0) jbuf_puts(it, &b, "\n");
        if (i > 0 && (line->len > 0 || jtruth(a[2]))) jbuf_put_str(it, &b, by.u.s);
        jbuf_put_str(it, &b, line);
    }
    return jbuf_val(it, &b);
}

static struct jval f_safe(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "safe", NULL, 0, 0, NULL) ? jto_str(it, self) : jval_undef;
}

static struct jval f_escape(struct jinterp *it, struct jval self, args_t c) {
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const uint8_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const struct jstr *s = text_of(it, self);
    if (!s || !jargs_bind(it, c, "escape", NULL, 0, 0, NULL)) return jval_undef;
    struct jbuf b = {0};
    for (size_t i = 0; i < s->len && jstep(it, (i & 31) == 0); i++) {
        const char *p = s->data[i] ? strchr(from, s->data[i]) : NULL;
        const uint8_t *taint = s->taint ? s->taint + i : NULL;
        if (p)
            jbuf_put(it, &b, to[p - from], taint && *taint ? ones : NULL, strlen(to[p - from]));
        else
            jbuf_put(it, &b, s->data + i, taint, 1);
    }
    return jbuf_val(it, &b);
}

static struct jval f_format(struct jinterp *it, struct jval self, args_t c) {
    const struct jstr *s = text_of(it, self);
    if (!s) return jval_undef;
    if (c->n_kw > 0 && c->n_pos > 0)
        return jfail(it, TERN_BAD_FORMAT, "format takes positional or named values, not both");
    if (c->n_kw == 0) {
        struct jlist *l = jlist_new(it, JL_TUPLE, (size_t)c->n_pos);
        for (int i = 0; i < c->n_pos; i++) jlist_push(it, l, c->pos[i]);
        return l ? jformat_percent(it, s, jlist_val(l)) : jval_undef;
    }
    struct jdict *d = jdict_new(it, (size_t)c->n_kw);
    for (int i = 0; d && i < c->n_kw; i++) jdict_put(it, d, jstr_copy(it, c->kw[i].name, false), c->kw[i].value);
    return it->status == TERN_OK ? jformat_percent(it, s, (struct jval){.type = J_DICT, .u.d = d}) : jval_undef;
}

static struct jval f_center(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"width"};
    struct jval a[1];
    bool mutates;
    const struct jstr *s = text_of(it, self);
    if (!s || !jargs_bind(it, c, "center", params, 1, 0, a)) return jval_undef;
    struct jval str = {.type = J_STR, .u.s = (struct jstr *)s}, width = a[0].type == J_MISSING ? jint(80) : a[0];
    struct jcall sub = {.pos = &width, .n_pos = 1};
    return jmethod_find(str, STR("center"), &mutates)->fn(it, str, &sub);
}

static struct jval f_wordcount(struct jinterp *it, struct jval self, args_t c) {
    const struct jstr *s = text_of(it, self);
    if (!s || !jargs_bind(it, c, "wordcount", NULL, 0, 0, NULL) || !jstep(it, s->len / 16)) return jval_undef;
    int64_t n = 0;
    bool in_word = false;
    for (size_t i = 0; i < s->len;) {
        int len;
        uint32_t r = utf8_decode((struct str){s->data + i, s->len - i}, &len);
        bool word = r == '_' || jrune_is(r, PROP_ALPHA) || jrune_is(r, PROP_NUMERIC) || jrune_is(r, PROP_DIGIT);
        n += word && !in_word;
        in_word = word;
        i += (size_t)len;
    }
    return jint(n);
}

static struct jval f_truncate(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"length", "killwords", "end", "leeway"};
    struct jval a[4];
    int64_t length, leeway = 5;
    const struct jstr *s = jarg_str(it, self, "truncate");
    if (!s || !jargs_bind(it, c, "truncate", params, 4, 0, a) || !jarg_int(it, a[0], "truncate", 255, &length) ||
        (a[3].type != J_NONE && !jarg_int(it, a[3], "truncate", 5, &leeway)))
        return jval_undef;
    struct jval end = a[2].type == J_MISSING ? jstr_lit(it, "...") : a[2];
    const struct jstr *e = jarg_str(it, end, "truncate");
    if (!e) return jval_undef;
    int64_t n = (int64_t)jstr_runes(it, s), n_end = (int64_t)jstr_runes(it, e);
    if (length < n_end) return jfail(it, TERN_BAD_FORMAT, "truncate: the length is below that of the end");
    if (leeway < 0) return jfail(it, TERN_BAD_FORMAT, "truncate: the leeway is negative");
    if (n <= length + leeway) return (struct jval){.type = J_STR, .u.s = (struct jstr *)s};
    size_t cut = jstr_offset(it, s, (size_t)(length - n_end));
    if (!jtruth(a[1])) {
        size_t space = cut > 0 ? jstr_rfind(it, (struct str){s->data, cut}, STR(" "), cut) : (size_t)-1;
        if (space != (size_t)-1) cut = space;
    }
    struct jval head = jstr_view(it, s, 0, cut);
    return head.type == J_STR ? jstr_concat(it, head.u.s, e) : jval_undef;
}

// ---- numbers

// A number's text without blanks around and with single underscores between digits taken out; false: not so.
static bool clean_number(struct jinterp *it, const struct jstr *s, struct str *out) {
    struct jval v = jstr_strip(it, s, NULL, true, true);
    char *text = v.type == J_STR ? jalloc(it, v.u.s->len + 1, 1) : NULL;
    size_t n = 0;
    if (!text) return false;
    struct str t = jstr_str(v.u.s);
    for (size_t i = 0; i < t.len; i++) {
        bool inner = i > 0 && i + 1 < t.len && t.data[i - 1] != '_' && t.data[i + 1] != '_';
        if (t.data[i] != '_')
            text[n++] = t.data[i];
        else if (!inner || t.data[i - 1] == '+' || t.data[i - 1] == '-' || t.data[i - 1] == '.' || t.data[i + 1] == '.')
            return false;
    }
    *out = (struct str){text, n};
    return true;
}

static struct str skip_prefix(struct str s, int base, char sign[1]) {
    size_t i = s.len > 0 && (s.data[0] == '-' || s.data[0] == '+');
    char x = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : 0;
    sign[0] = i ? s.data[0] : 0;
    if (x && s.len > i + 2 && s.data[i] == '0' && (s.data[i + 1] | 32) == x) i += 2;
    return (struct str){s.data + i, s.len - i};
}

static struct jval f_int(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"default", "base"};
    struct jval a[2];
    int64_t base, v;
    double f;
    if (!jargs_bind(it, c, "int", params, 2, 0, a) || !jarg_int(it, a[1], "int", 10, &base)) return jval_undef;
    struct jval dflt = a[0].type == J_MISSING ? jint(0) : a[0];
    if (self.type == J_UNDEF) return jfail_undef(it, self);
    if (jint_of(self, &v)) return jint(v);
    if (self.type == J_FLOAT) return self.u.f != self.u.f ? dflt : jint_of_float(it, trunc(self.u.f));
    if (self.type != J_STR) return dflt;
    if (base < 2 || base > 36) return dflt;
    struct str text;
    if (!clean_number(it, self.u.s, &text)) return it->status == TERN_OK ? dflt : jval_undef;
    char sign;
    bool overflow = false;
    struct str digits = skip_prefix(text, (int)base, &sign);
    bool ok = digits.len > 0 && digits.data[0] != '-' && digits.data[0] != '+' &&
              jparse_int(digits, (int)base, &v, &overflow);
    if (overflow) return jfail(it, TERN_LIMIT, "an integer leaves 64 bits");
    if (ok) return jint(sign == '-' ? -v : v);
    if (!jparse_float(text, &f) || f != f || isinf(f)) return dflt;
    return jint_of_float(it, trunc(f));
}

static struct jval f_float(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"default"};
    struct jval a[1];
    double f;
    struct str text;
    if (!jargs_bind(it, c, "float", params, 1, 0, a)) return jval_undef;
    if (self.type == J_UNDEF) return jfail_undef(it, self);
    if (jnum(self, &f)) return jfloat(f);
    if (self.type == J_STR && clean_number(it, self.u.s, &text) && jparse_float(text, &f)) return jfloat(f);
    return it->status != TERN_OK ? jval_undef : a[0].type == J_MISSING ? jfloat(0) : a[0];
}

static struct jval f_abs(struct jinterp *it, struct jval self, args_t c) {
    int64_t i;
    if (!jargs_bind(it, c, "abs", NULL, 0, 0, NULL)) return jval_undef;
    if (self.type == J_FLOAT) return jfloat(fabs(self.u.f));
    if (jint_of(self, &i)) return i < 0 ? jneg(it, jint(i), true) : jint(i);
    return self.type == J_UNDEF ? jfail_undef(it, self)
                                : jfail(it, TERN_BAD_FORMAT, "abs needs a number, not '%s'", jtype_name(self));
}

static struct jval round_int(struct jinterp *it, int64_t v, int64_t digits) {
    if (digits >= 0) return jint(v);
    if (digits < -18) return jint(0);
    int64_t p = 1;
    for (int64_t i = digits; i < 0; i++) p *= 10;
    int64_t m = v % p, low = v - m;
    if (m < 0) {
        m += p;
        if (__builtin_sub_overflow(low, p, &low)) return jfail(it, TERN_LIMIT, "an integer leaves 64 bits");
    }
    bool up = m > p - m || (m == p - m && (low / p) % 2 != 0);
    if (up && __builtin_add_overflow(low, p, &low)) return jfail(it, TERN_LIMIT, "an integer leaves 64 bits");
    return jint(low);
}

static struct jval f_round(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"precision", "method"};
    struct jval a[2];
    int64_t digits, i;
    double x;
    if (!jargs_bind(it, c, "round", params, 2, 0, a) || !jarg_int(it, a[0], "round", 0, &digits)) return jval_undef;
    if (!jnum(self, &x)) {
        if (self.type == J_UNDEF) return jfail_undef(it, self);
        return jfail(it, TERN_BAD_FORMAT, "round needs a number, not '%s'", jtype_name(self));
    }
    if (digits < -300 || digits > 300) return jfail(it, TERN_LIMIT, "round: the precision is out of range");
    struct str method = a[1].type == J_STR ? jstr_str(a[1].u.s) : STR("common");
    if (str_eqz(method, "common"))
        return jint_of(self, &i) ? round_int(it, i, digits) : jfloat(jround_half_even(x, (int)digits));
    bool up = str_eqz(method, "ceil");
    if (!up && !str_eqz(method, "floor"))
        return jfail(it, TERN_BAD_FORMAT, "round: the method must be common, ceil or floor");
    double p = pow(10.0, (double)digits), y = up ? ceil(x * p) : floor(x * p);
    if (!isfinite(y)) return jfail(it, TERN_BAD_FORMAT, "round: not a finite number");
    return jfloat(y / p);
}

// ---- any value

static struct jval f_default(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"default_value", "boolean"};
    struct jval a[2];
    if (!jargs_bind(it, c, "default", params, 2, 0, a)) return jval_undef;
    if (self.type != J_UNDEF && !(jtruth(a[1]) && !jtruth(self))) return self;
    return a[0].type == J_MISSING ? jstr_lit(it, "") : a[0];
}

static struct jval f_length(struct jinterp *it, struct jval self, args_t c) {
    if (!jargs_bind(it, c, "length", NULL, 0, 0, NULL)) return jval_undef;
    switch (self.type) {
    case J_UNDEF: return jint(0);
    case J_STR: return jint((int64_t)jstr_runes(it, self.u.s));
    case J_DICT: return jint((int64_t)self.u.d->len);
    case J_LOOP: return jint((int64_t)self.u.loop->list->len);
    case J_LIST:
        if (self.u.l->kind != JL_ITER) return jint((int64_t)self.u.l->len);
        break;
    default: break;
    }
    return jfail(it, TERN_BAD_FORMAT, "a '%s' has no length", jtype_name(self));
}

static struct jval f_attr(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"name"};
    struct jval a[1], v;
    if (!jargs_bind(it, c, "attr", params, 1, 1, a)) return jval_undef;
    const struct jstr *name = jarg_str(it, a[0], "attr");
    if (self.type == J_UNDEF) return jfail_undef(it, self);
    return name && jtype_attr(it, self, jstr_str(name), &v) ? v : jval_undef;
}

static const struct jbuiltin filters[] = {
    {"tojson", jfilter_tojson}, {"trim", f_trim},
    {"length", f_length},       {"default", f_default},
    {"d", f_default},           {"count", f_length},
    {"upper", f_upper},         {"lower", f_lower},
    {"title", f_title},         {"capitalize", f_capitalize},
    {"replace", f_replace},     {"indent", f_indent},
    {"string", f_string},       {"safe", f_safe},
    {"escape", f_escape},       {"e", f_escape},
    {"format", f_format},       {"int", f_int},
    {"float", f_float},         {"abs", f_abs},
    {"round", f_round},         {"center", f_center},
    {"wordcount", f_wordcount}, {"truncate", f_truncate},
    {"attr", f_attr},
};

const struct jbuiltin *jfilter_find(struct str name) {
    const struct jbuiltin *f = jbuiltin_find(filters, ARRAY_LEN(filters), name);
    return f ? f : jfilter_list_find(name);
}
