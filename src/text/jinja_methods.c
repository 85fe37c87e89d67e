// Methods of strings, lists, dicts and the small objects: the ones that Python has and templates use. Anything else is
// undefined, so nothing behind a value can be reached. Methods that would change a list or dict are known by name only:
// they look undefined, as in Jinja's immutable sandbox.
#include "base/base.h"
#include "text/jinja_int.h"

typedef const struct jcall *args_t;

static struct jval m_upper(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "upper()", NULL, 0, 0, NULL) ? jstr_case(it, self.u.s, CASE_UPPER) : jval_undef;
}
static struct jval m_lower(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "lower()", NULL, 0, 0, NULL) ? jstr_case(it, self.u.s, CASE_LOWER) : jval_undef;
}
static struct jval m_casefold(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "casefold()", NULL, 0, 0, NULL) ? jstr_case(it, self.u.s, CASE_FOLD) : jval_undef;
}
static struct jval m_title(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "title()", NULL, 0, 0, NULL) ? jstr_title(it, self.u.s) : jval_undef;
}
static struct jval m_capitalize(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "capitalize()", NULL, 0, 0, NULL) ? jstr_capitalize(it, self.u.s) : jval_undef;
}
static struct jval m_swapcase(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "swapcase()", NULL, 0, 0, NULL) ? jstr_swapcase(it, self.u.s) : jval_undef;
}

static struct jval strip(struct jinterp *it, struct jval self, args_t c, const char *what, bool left, bool right) {
    struct jval a[1];
    if (!jargs_bind(it, c, what, NULL, 1, 0, a)) return jval_undef;
    const struct jstr *chars = NULL;
    if (a[0].type != J_MISSING && a[0].type != J_NONE && !(chars = jarg_str(it, a[0], what))) return jval_undef;
    return jstr_strip(it, self.u.s, chars, left, right);
}
static struct jval m_strip(struct jinterp *it, struct jval self, args_t c) {
    return strip(it, self, c, "strip()", true, true);
}
static struct jval m_lstrip(struct jinterp *it, struct jval self, args_t c) {
    return strip(it, self, c, "lstrip()", true, false);
}
static struct jval m_rstrip(struct jinterp *it, struct jval self, args_t c) {
    return strip(it, self, c, "rstrip()", false, true);
}

static struct jval split(struct jinterp *it, struct jval self, args_t c, const char *what, bool right) {
    static const char *const params[] = {"sep", "maxsplit"};
    struct jval a[2];
    int64_t max;
    if (!jargs_bind(it, c, what, params, 2, 0, a) || !jarg_int(it, a[1], what, -1, &max)) return jval_undef;
    const struct jstr *sep = NULL;
    if (a[0].type != J_MISSING && a[0].type != J_NONE && !(sep = jarg_str(it, a[0], what))) return jval_undef;
    return jstr_split(it, self.u.s, sep, max, right);
}
static struct jval m_split(struct jinterp *it, struct jval self, args_t c) {
    return split(it, self, c, "split()", false);
}
static struct jval m_rsplit(struct jinterp *it, struct jval self, args_t c) {
    return split(it, self, c, "rsplit()", true);
}
static struct jval m_splitlines(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"keepends"};
    struct jval a[1];
    if (!jargs_bind(it, c, "splitlines()", params, 1, 0, a)) return jval_undef;
    return jstr_splitlines(it, self.u.s, jtruth(a[0]));
}

// Arguments (x, start, end) of a search: the part of self to search in and where it starts, in code points.
static bool search_args(struct jinterp *it, struct jval self, args_t c, const char *what, struct jval *x,
                        const struct jstr **part, int64_t *start) {
    struct jval a[3];
    if (!jargs_bind(it, c, what, NULL, 3, 1, a)) return false;
    *x = a[0];
    *start = 0;
    *part = self.u.s;
    if (a[1].type == J_MISSING && a[2].type == J_MISSING) return true;
    struct jval sub = jslice(it, self, a[1], a[2], jval_missing);
    if (it->status != TERN_OK) return false;
    int64_t n = (int64_t)jstr_runes(it, self.u.s);
    if (jint_of(a[1], start) && *start < 0) *start = MAX((int64_t)0, *start + n);
    *part = sub.u.s;
    return true;
}

static struct jval affix(struct jinterp *it, struct jval self, args_t c, const char *what, bool end) {
    struct jval x;
    const struct jstr *part;
    int64_t start;
    if (!search_args(it, self, c, what, &x, &part, &start)) return jval_undef;
    if (start > (int64_t)jstr_runes(it, self.u.s)) return jbool(false);
    struct jval one = x;
    struct jlist single = {.items = &one, .len = 1};
    const struct jlist *l = x.type == J_LIST && x.u.l->kind == JL_TUPLE ? x.u.l : &single;
    for (size_t i = 0; i < l->len; i++) {
        const struct jstr *s = jarg_str(it, l->items[i], what);
        if (!s) return jval_undef;
        if (end ? str_ends(jstr_str(part), jstr_str(s)) : str_starts(jstr_str(part), jstr_str(s))) return jbool(true);
    }
    return jbool(false);
}
static struct jval m_startswith(struct jinterp *it, struct jval self, args_t c) {
    return affix(it, self, c, "startswith()", false);
}
static struct jval m_endswith(struct jinterp *it, struct jval self, args_t c) {
    return affix(it, self, c, "endswith()", true);
}

static struct jval find(struct jinterp *it, struct jval self, args_t c, const char *what, bool right, bool must) {
    struct jval x;
    const struct jstr *part;
    int64_t start;
    if (!search_args(it, self, c, what, &x, &part, &start)) return jval_undef;
    const struct jstr *s = jarg_str(it, x, what);
    if (!s || !jstep(it, part->len / 64)) return jval_undef;
    size_t hit =
        right ? jstr_rfind(it, jstr_str(part), jstr_str(s), part->len) : str_find(jstr_str(part), jstr_str(s), 0);
    if (start > (int64_t)jstr_runes(it, self.u.s)) hit = (size_t)-1;
    if (hit == (size_t)-1) return must ? jfail(it, TERN_BAD_FORMAT, "%s: substring not found", what) : jint(-1);
    return jint(start + (int64_t)jrunes_count((struct str){part->data, hit}));
}
static struct jval m_find(struct jinterp *it, struct jval self, args_t c) {
    return find(it, self, c, "find()", false, false);
}
static struct jval m_rfind(struct jinterp *it, struct jval self, args_t c) {
    return find(it, self, c, "rfind()", true, false);
}
static struct jval m_index(struct jinterp *it, struct jval self, args_t c) {
    return find(it, self, c, "index()", false, true);
}
static struct jval m_rindex(struct jinterp *it, struct jval self, args_t c) {
    return find(it, self, c, "rindex()", true, true);
}

static struct jval m_count(struct jinterp *it, struct jval self, args_t c) {
    struct jval x;
    const struct jstr *part;
    int64_t start, n = 0;
    if (!search_args(it, self, c, "count()", &x, &part, &start)) return jval_undef;
    const struct jstr *s = jarg_str(it, x, "count()");
    if (!s || !jstep(it, part->len / 64)) return jval_undef;
    if (s->len == 0) return jint((int64_t)jstr_runes(it, part) + 1);
    for (size_t p = 0; (p = str_find(jstr_str(part), jstr_str(s), p)) != (size_t)-1 && jstep(it, 1); p += s->len) n++;
    return jint(n);
}

static struct jval m_replace(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[3];
    int64_t max;
    if (!jargs_bind(it, c, "replace()", NULL, 3, 2, a) || !jarg_int(it, a[2], "replace()", -1, &max)) return jval_undef;
    const struct jstr *from = jarg_str(it, a[0], "replace()"), *to = jarg_str(it, a[1], "replace()");
    return from && to ? jstr_replace(it, self.u.s, from, to, max) : jval_undef;
}

static struct jval m_join(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[1];
    if (!jargs_bind(it, c, "join()", NULL, 1, 1, a)) return jval_undef;
    const struct jlist *l = jiterate(it, a[0]);
    return l ? jstr_join(it, self.u.s, l, true) : jval_undef;
}

static struct jval pad(struct jinterp *it, struct jval self, args_t c, const char *what, int where) {
    struct jval a[2];
    int64_t width;
    if (!jargs_bind(it, c, what, NULL, 2, 1, a) || !jarg_int(it, a[0], what, 0, &width)) return jval_undef;
    struct jval fill = a[1].type == J_MISSING ? jstr_lit(it, " ") : a[1];
    const struct jstr *f = jarg_str(it, fill, what);
    if (!f) return jval_undef;
    if (jstr_runes(it, f) != 1) return jfail(it, TERN_BAD_FORMAT, "%s: the fill must be one character", what);
    int64_t n = (int64_t)jstr_runes(it, self.u.s), total = width > n ? width - n : 0;
    // Python's centre puts the odd blank left only when the width is odd too.
    int64_t left = where < 0 ? 0 : where > 0 ? total : total / 2 + (total & width & 1);
    struct jval before = jstr_repeat(it, f, left), after = jstr_repeat(it, f, total - left);
    struct jbuf b = {0};
    if (it->status != TERN_OK) return jval_undef;
    jbuf_put_str(it, &b, before.u.s);
    jbuf_put_str(it, &b, self.u.s);
    jbuf_put_str(it, &b, after.u.s);
    return jbuf_val(it, &b);
}
static struct jval m_ljust(struct jinterp *it, struct jval self, args_t c) { return pad(it, self, c, "ljust()", -1); }
static struct jval m_rjust(struct jinterp *it, struct jval self, args_t c) { return pad(it, self, c, "rjust()", 1); }
static struct jval m_center(struct jinterp *it, struct jval self, args_t c) { return pad(it, self, c, "center()", 0); }

static struct jval m_zfill(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[1];
    int64_t width;
    if (!jargs_bind(it, c, "zfill()", NULL, 1, 1, a) || !jarg_int(it, a[0], "zfill()", 0, &width)) return jval_undef;
    const struct jstr *s = self.u.s;
    int64_t n = (int64_t)jstr_runes(it, s);
    size_t sign = s->len > 0 && (s->data[0] == '-' || s->data[0] == '+');
    struct jval zeros = jstr_lit(it, "0");
    if (zeros.type == J_STR) zeros = jstr_repeat(it, zeros.u.s, width > n ? width - n : 0);
    struct jbuf b = {0};
    if (it->status != TERN_OK) return jval_undef;
    jbuf_put(it, &b, s->data, s->taint, sign);
    jbuf_put_str(it, &b, zeros.u.s);
    jbuf_put(it, &b, s->data + sign, s->taint ? s->taint + sign : NULL, s->len - sign);
    return jbuf_val(it, &b);
}

static struct jval partition(struct jinterp *it, struct jval self, args_t c, const char *what, bool right) {
    struct jval a[1];
    if (!jargs_bind(it, c, what, NULL, 1, 1, a)) return jval_undef;
    const struct jstr *sep = jarg_str(it, a[0], what), *s = self.u.s;
    if (!sep || !jstep(it, s->len / 64)) return jval_undef;
    if (sep->len == 0) return jfail(it, TERN_BAD_FORMAT, "%s needs a separator that is not empty", what);
    size_t hit = right ? jstr_rfind(it, jstr_str(s), jstr_str(sep), s->len) : str_find(jstr_str(s), jstr_str(sep), 0);
    struct jlist *l = jlist_new(it, JL_TUPLE, 3);
    if (hit == (size_t)-1) {
        jlist_push(it, l, right ? jstr_lit(it, "") : self);
        jlist_push(it, l, jstr_lit(it, ""));
        jlist_push(it, l, right ? self : jstr_lit(it, ""));
    } else {
        jlist_push(it, l, jstr_view(it, s, 0, hit));
        jlist_push(it, l, a[0]);
        jlist_push(it, l, jstr_view(it, s, hit + sep->len, s->len - hit - sep->len));
    }
    return jlist_val(l);
}
static struct jval m_partition(struct jinterp *it, struct jval self, args_t c) {
    return partition(it, self, c, "partition()", false);
}
static struct jval m_rpartition(struct jinterp *it, struct jval self, args_t c) {
    return partition(it, self, c, "rpartition()", true);
}

static struct jval m_removeprefix(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[1];
    if (!jargs_bind(it, c, "removeprefix()", NULL, 1, 1, a)) return jval_undef;
    const struct jstr *x = jarg_str(it, a[0], "removeprefix()"), *s = self.u.s;
    if (!x || !str_starts(jstr_str(s), jstr_str(x))) return self;
    return jstr_view(it, s, x->len, s->len - x->len);
}
static struct jval m_removesuffix(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[1];
    if (!jargs_bind(it, c, "removesuffix()", NULL, 1, 1, a)) return jval_undef;
    const struct jstr *x = jarg_str(it, a[0], "removesuffix()"), *s = self.u.s;
    if (!x || !str_ends(jstr_str(s), jstr_str(x))) return self;
    return jstr_view(it, s, 0, s->len - x->len);
}

// All code points have one of the properties (bits of jprop), and there is at least one.
static struct jval all_are(struct jinterp *it, struct jval self, args_t c, const char *what, unsigned props) {
    if (!jargs_bind(it, c, what, NULL, 0, 0, NULL) || !jstep(it, self.u.s->len / 16)) return jval_undef;
    const struct jstr *s = self.u.s;
    for (size_t i = 0; i < s->len;) {
        int n;
        uint32_t r = utf8_decode((struct str){s->data + i, s->len - i}, &n);
        bool yes = false;
        for (int p = 0; p < PROP_COUNT && !yes; p++) yes = (props >> p & 1) && jrune_is(r, (enum jprop)p);
        if (!yes) return jbool(false);
        i += (size_t)n;
    }
    return jbool(s->len > 0);
}
#define BIT(p) (1u << PROP_##p)
static struct jval m_isalpha(struct jinterp *it, struct jval self, args_t c) {
    return all_are(it, self, c, "isalpha()", BIT(ALPHA));
}
static struct jval m_isdigit(struct jinterp *it, struct jval self, args_t c) {
    return all_are(it, self, c, "isdigit()", BIT(DIGIT));
}
static struct jval m_isdecimal(struct jinterp *it, struct jval self, args_t c) {
    return all_are(it, self, c, "isdecimal()", BIT(DECIMAL));
}
static struct jval m_isnumeric(struct jinterp *it, struct jval self, args_t c) {
    return all_are(it, self, c, "isnumeric()", BIT(NUMERIC));
}
static struct jval m_isalnum(struct jinterp *it, struct jval self, args_t c) {
    return all_are(it, self, c, "isalnum()", BIT(ALPHA) | BIT(DECIMAL) | BIT(DIGIT) | BIT(NUMERIC));
}
static struct jval m_isspace(struct jinterp *it, struct jval self, args_t c) {
    return all_are(it, self, c, "isspace()", BIT(SPACE));
}

static struct jval is_cased(struct jinterp *it, struct jval self, args_t c, const char *what, enum jprop want) {
    if (!jargs_bind(it, c, what, NULL, 0, 0, NULL)) return jval_undef;
    return jbool(jstr_is_cased(it, self.u.s, want));
}
static struct jval m_isupper(struct jinterp *it, struct jval self, args_t c) {
    return is_cased(it, self, c, "isupper()", PROP_UPPER);
}
static struct jval m_islower(struct jinterp *it, struct jval self, args_t c) {
    return is_cased(it, self, c, "islower()", PROP_LOWER);
}

// ---- dicts and lists

static struct jval m_get(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[2];
    if (!jargs_bind(it, c, "get()", NULL, 2, 1, a)) return jval_undef;
    if (!jhashable(a[0])) return jfail(it, TERN_BAD_FORMAT, "a '%s' cannot be a key", jtype_name(a[0]));
    struct jval *v = jdict_find(it, self.u.d, a[0]);
    return v ? *v : a[1].type == J_MISSING ? jval_none : a[1];
}

static struct jval dict_view(struct jinterp *it, struct jval self, args_t c, const char *what, enum jlist_kind kind) {
    const struct jdict *d = self.u.d;
    if (!jargs_bind(it, c, what, NULL, 0, 0, NULL) || !jstep(it, d->len / 4)) return jval_undef;
    struct jlist *l = jlist_new(it, kind, d->len);
    for (size_t i = 0; l && i < d->len && it->status == TERN_OK; i++) {
        if (kind != JL_ITEMS) {
            jlist_push(it, l, kind == JL_KEYS ? d->pairs[i].key : d->pairs[i].value);
            continue;
        }
        struct jlist *pair = jlist_new(it, JL_TUPLE, 2);
        jlist_push(it, pair, d->pairs[i].key);
        jlist_push(it, pair, d->pairs[i].value);
        jlist_push(it, l, jlist_val(pair));
    }
    return jlist_val(l);
}
static struct jval m_items(struct jinterp *it, struct jval self, args_t c) {
    return dict_view(it, self, c, "items()", JL_ITEMS);
}
static struct jval m_keys(struct jinterp *it, struct jval self, args_t c) {
    return dict_view(it, self, c, "keys()", JL_KEYS);
}
static struct jval m_values(struct jinterp *it, struct jval self, args_t c) {
    return dict_view(it, self, c, "values()", JL_VALUES);
}
static struct jval m_copy(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "copy()", NULL, 0, 0, NULL) ? self : jval_undef; // nothing can change either
}

static struct jval m_list_index(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[1];
    if (!jargs_bind(it, c, "index()", NULL, 1, 1, a)) return jval_undef;
    for (size_t i = 0; i < self.u.l->len && it->status == TERN_OK; i++)
        if (jequal(it, self.u.l->items[i], a[0])) return jint((int64_t)i);
    return jfail(it, TERN_BAD_FORMAT, "index(): the value is not in the list");
}
static struct jval m_list_count(struct jinterp *it, struct jval self, args_t c) {
    struct jval a[1];
    int64_t n = 0;
    if (!jargs_bind(it, c, "count()", NULL, 1, 1, a)) return jval_undef;
    for (size_t i = 0; i < self.u.l->len && it->status == TERN_OK; i++) n += jequal(it, self.u.l->items[i], a[0]);
    return jint(n);
}

// ---- loop and cycler

static struct jval m_cycle(struct jinterp *it, struct jval self, args_t c) {
    if (c->n_kw > 0 || c->n_pos == 0) return jfail(it, TERN_BAD_FORMAT, "cycle() needs at least one value");
    return c->pos[self.u.loop->index0 % (size_t)c->n_pos];
}
static struct jval m_changed(struct jinterp *it, struct jval self, args_t c) {
    struct jlist *l = jlist_new(it, JL_TUPLE, (size_t)c->n_pos);
    for (int i = 0; i < c->n_pos; i++) jlist_push(it, l, c->pos[i]);
    struct jval now = jlist_val(l);
    struct jloop *loop = self.u.loop;
    if (loop->has_changed && jequal(it, loop->changed, now)) return jbool(false);
    loop->has_changed = true;
    loop->changed = now;
    return jbool(true);
}
static struct jval m_next(struct jinterp *it, struct jval self, args_t c) {
    if (!jargs_bind(it, c, "next()", NULL, 0, 0, NULL)) return jval_undef;
    struct jcycler *y = self.u.cycler;
    struct jval v = y->items->items[y->pos];
    y->pos = (y->pos + 1) % y->items->len;
    return v;
}
static struct jval m_reset(struct jinterp *it, struct jval self, args_t c) {
    if (!jargs_bind(it, c, "reset()", NULL, 0, 0, NULL)) return jval_undef;
    self.u.cycler->pos = 0;
    return jval_none;
}

static const struct jbuiltin str_methods[] = {
    {"split", m_split},
    {"strip", m_strip},
    {"startswith", m_startswith},
    {"endswith", m_endswith},
    {"lstrip", m_lstrip},
    {"rstrip", m_rstrip},
    {"replace", m_replace},
    {"upper", m_upper},
    {"lower", m_lower},
    {"title", m_title},
    {"capitalize", m_capitalize},
    {"casefold", m_casefold},
    {"swapcase", m_swapcase},
    {"rsplit", m_rsplit},
    {"splitlines", m_splitlines},
    {"join", m_join},
    {"find", m_find},
    {"rfind", m_rfind},
    {"index", m_index},
    {"rindex", m_rindex},
    {"count", m_count},
    {"format", jformat_method},
    {"ljust", m_ljust},
    {"rjust", m_rjust},
    {"center", m_center},
    {"zfill", m_zfill},
    {"partition", m_partition},
    {"rpartition", m_rpartition},
    {"isalpha", m_isalpha},
    {"isdigit", m_isdigit},
    {"isdecimal", m_isdecimal},
    {"isnumeric", m_isnumeric},
    {"isalnum", m_isalnum},
    {"isspace", m_isspace},
    {"isupper", m_isupper},
    {"islower", m_islower},
    {"removeprefix", m_removeprefix},
    {"removesuffix", m_removesuffix},
};
static const struct jbuiltin dict_methods[] = {
    {"get", m_get}, {"items", m_items}, {"keys", m_keys}, {"values", m_values}, {"copy", m_copy}};
static const struct jbuiltin list_methods[] = {{"index", m_list_index}, {"count", m_list_count}, {"copy", m_copy}};
static const struct jbuiltin loop_methods[] = {{"cycle", m_cycle}, {"changed", m_changed}};
static const struct jbuiltin cycler_methods[] = {{"next", m_next}, {"reset", m_reset}};

static bool in_names(const char *const *names, size_t n, struct str name) {
    for (size_t i = 0; i < n; i++)
        if (str_eqz(name, names[i])) return true;
    return false;
}

const struct jbuiltin *jmethod_find(struct jval self, struct str name, bool *mutates) {
    static const char *const dict_mutate[] = {"clear", "pop", "popitem", "setdefault", "update"};
    static const char *const list_mutate[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};
    *mutates = false;
    switch (self.type) {
    case J_STR: return jbuiltin_find(str_methods, ARRAY_LEN(str_methods), name);
    case J_DICT:
        *mutates = in_names(dict_mutate, ARRAY_LEN(dict_mutate), name);
        return jbuiltin_find(dict_methods, ARRAY_LEN(dict_methods), name);
    case J_LIST:
        if (self.u.l->kind == JL_LIST) *mutates = in_names(list_mutate, ARRAY_LEN(list_mutate), name);
        if (self.u.l->kind > JL_RANGE && self.u.l->kind != JL_GROUP) return NULL;
        return jbuiltin_find(list_methods, self.u.l->kind == JL_LIST ? 3 : 2, name);
    case J_LOOP: return jbuiltin_find(loop_methods, ARRAY_LEN(loop_methods), name);
    case J_CYCLER: return jbuiltin_find(cycler_methods, ARRAY_LEN(cycler_methods), name);
    default: return NULL;
    }
}
