// Values of the template language: making them, truth, equality, order, lists, dicts and iteration, as Python has them.
//
// Everything comes from the render's arena and is never freed singly: a render is short and its memory is bounded.
// Dicts are searched linearly (their steps are charged), since those of chats and tool schemas are small.
#include "base/base.h"
#include "text/jinja_int.h"

const struct jval jval_none = {.type = J_NONE};
const struct jval jval_undef = {.type = J_UNDEF};
const struct jval jval_missing = {.type = J_MISSING};

struct jval jfail_done(struct jinterp *it, enum tern_status code) {
    int line, col;
    jinja_line_col(it->j->source, it->pos, &line, &col);
    err_prefix(it->err, "template line %d, column %d", line, col);
    it->status = code;
    return jval_undef;
}

bool jstep(struct jinterp *it, size_t n) {
    if (it->status != TERN_OK) return false;
    it->steps += n;
    if (it->steps > JINJA_STEPS_MAX) {
        jfail(it, TERN_LIMIT, "the template takes more than %d steps (JINJA_STEPS_MAX)", JINJA_STEPS_MAX);
        return false;
    }
    if (it->steps >= it->steps_clock) {
        it->steps_clock = it->steps + JINJA_CLOCK_STEPS;
        if (clock_ns() > it->deadline_ns) {
            jfail(it, TERN_LIMIT, "the template takes more than %d ms (JINJA_TIME_MS_MAX)", JINJA_TIME_MS_MAX);
            return false;
        }
    }
    return true;
}

void *jalloc(struct jinterp *it, size_t n, size_t size) {
    if (it->status != TERN_OK) return NULL;
    size_t bytes;
    bool sound = size_mul(n, size, &bytes);
    void *p = sound ? arena_alloc(&it->arena, bytes) : NULL;
    if (p) return p;
    if (!sound || bytes > JINJA_MEMORY_BYTES_MAX ||
        it->arena.bytes_total > JINJA_MEMORY_BYTES_MAX - MIN(bytes + 128, JINJA_MEMORY_BYTES_MAX))
        jfail(it, TERN_LIMIT, "the template needs more than %u MiB of memory (JINJA_MEMORY_BYTES_MAX)",
              JINJA_MEMORY_BYTES_MAX >> 20);
    else
        jfail(it, TERN_NO_MEMORY, "out of memory while rendering the template");
    return NULL;
}

struct jval jint(int64_t i) {
    return (struct jval){.type = J_INT, .u.i = i};
}
struct jval jfloat(double f) {
    return (struct jval){.type = J_FLOAT, .u.f = f};
}
struct jval jbool(bool b) {
    return (struct jval){.type = J_BOOL, .u.b = b};
}

struct jval jundef(struct jinterp *it, struct str name) {
    struct jstr *s = jalloc(it, 1, sizeof(*s));
    if (s) *s = (struct jstr){.data = name.data, .len = name.len, .n_runes = SIZE_MAX};
    return (struct jval){.type = J_UNDEF, .u.s = s};
}

struct jval jfail_undef(struct jinterp *it, struct jval v) {
    if (!v.u.s) return jfail(it, TERN_BAD_FORMAT, "the value is undefined");
    return jfail(it, TERN_BAD_FORMAT, "'%.*s' is undefined", (int)MIN(v.u.s->len, (size_t)80), v.u.s->data);
}

const char *jtype_name(struct jval v) {
    switch (v.type) {
    case J_MISSING:
    case J_UNDEF: return "undefined";
    case J_NONE: return "None";
    case J_BOOL: return "bool";
    case J_INT: return "int";
    case J_FLOAT: return "float";
    case J_STR: return "str";
    case J_DICT: return "dict";
    case J_NS: return "namespace";
    case J_LOOP: return "loop";
    case J_MACRO: return "macro";
    case J_FUNC:
    case J_METHOD: return "function";
    case J_CYCLER: return "cycler";
    case J_JOINER: return "joiner";
    case J_LIST: break;
    }
    static const char *const names[] = {"list",      "tuple",       "range",      "iterator",
                                        "dict_keys", "dict_values", "dict_items", "tuple"};
    return names[v.u.l->kind];
}

bool jtruth(struct jval v) {
    switch (v.type) {
    case J_MISSING:
    case J_UNDEF:
    case J_NONE: return false;
    case J_BOOL: return v.u.b;
    case J_INT: return v.u.i != 0;
    case J_FLOAT: return v.u.f != 0;
    case J_STR: return v.u.s->len > 0;
    case J_LIST: return v.u.l->kind == JL_ITER || v.u.l->len > 0;
    case J_DICT: return v.u.d->len > 0;
    default: return true;
    }
}

bool jint_of(struct jval v, int64_t *out) {
    if (v.type != J_BOOL && v.type != J_INT) return false;
    *out = v.type == J_BOOL ? v.u.b : v.u.i;
    return true;
}

bool jnum(struct jval v, double *out) {
    int64_t i;
    if (v.type == J_FLOAT) {
        *out = v.u.f;
        return true;
    }
    if (!jint_of(v, &i)) return false;
    *out = (double)i;
    return true;
}

// Order of two numbers, exact between integers and floats. NaN: 2.
static int num_compare(struct jval a, struct jval b) {
    int64_t x = 0, y;
    if (jint_of(a, &x) && jint_of(b, &y)) return x < y ? -1 : x > y;
    double f, g;
    if (!jnum(a, &f) || !jnum(b, &g) || f != f || g != g) return 2;
    if (f != g || (a.type == J_FLOAT && b.type == J_FLOAT)) return f < g ? -1 : f > g;
    // equal as doubles, one an integer that may have been rounded
    bool a_int = jint_of(a, &x);
    double fl = a_int ? g : f;
    if (!a_int) jint_of(b, &x);
    if (fl >= 9223372036854775808.0) return a_int ? -1 : 1;
    int64_t z = (int64_t)fl;
    int c = x < z ? -1 : x > z;
    return a_int ? c : -c;
}

static bool seq_kind(const struct jlist *l) { return l->kind <= JL_RANGE || l->kind == JL_GROUP; }

static bool dict_equal(struct jinterp *it, const struct jdict *a, const struct jdict *b) {
    if (a->len != b->len) return false;
    for (size_t i = 0; i < a->len; i++) {
        struct jval *v = jdict_find(it, b, a->pairs[i].key);
        if (it->status != TERN_OK || !v || !jequal(it, a->pairs[i].value, *v)) return false;
    }
    return true;
}

bool jequal(struct jinterp *it, struct jval a, struct jval b) {
    double x, y;
    if (!jstep(it, 1)) return false;
    if (jnum(a, &x) && jnum(b, &y)) return num_compare(a, b) == 0;
    if (a.type != b.type) return false;
    bool equal = false;
    switch (a.type) {
    case J_UNDEF:
    case J_NONE: return true;
    case J_STR: return jstep(it, MIN(a.u.s->len, b.u.s->len) / 256) && str_eq(jstr_str(a.u.s), jstr_str(b.u.s));
    case J_LIST: {
        const struct jlist *l = a.u.l, *m = b.u.l;
        if (l == m) return true;
        enum jlist_kind k = l->kind == JL_GROUP ? JL_TUPLE : l->kind, n = m->kind == JL_GROUP ? JL_TUPLE : m->kind;
        if (k != n || !(seq_kind(l) || k == JL_KEYS || k == JL_ITEMS) || l->len != m->len) return false;
        if (++it->depth > JINJA_EVAL_DEPTH_MAX) {
            jfail(it, TERN_LIMIT, "values are nested more than %d deep", JINJA_EVAL_DEPTH_MAX);
            return false;
        }
        equal = true;
        for (size_t i = 0; equal && i < l->len; i++) equal = jequal(it, l->items[i], m->items[i]);
        it->depth--;
        return equal && it->status == TERN_OK;
    }
    case J_DICT:
        if (++it->depth > JINJA_EVAL_DEPTH_MAX) {
            jfail(it, TERN_LIMIT, "values are nested more than %d deep", JINJA_EVAL_DEPTH_MAX);
            return false;
        }
        equal = dict_equal(it, a.u.d, b.u.d);
        it->depth--;
        return equal && it->status == TERN_OK;
    case J_METHOD: return a.u.method == b.u.method;
    default: return a.u.s == b.u.s; // the same object
    }
}

static int fail_order(struct jinterp *it, struct jval a, struct jval b) {
    if (a.type == J_UNDEF || b.type == J_UNDEF)
        jfail_undef(it, a.type == J_UNDEF ? a : b);
    else
        jfail(it, TERN_BAD_FORMAT, "'%s' and '%s' have no order", jtype_name(a), jtype_name(b));
    return 0;
}

int jcompare(struct jinterp *it, struct jval a, struct jval b) {
    double x, y;
    if (!jstep(it, 1)) return 0;
    if (jnum(a, &x) && jnum(b, &y)) return num_compare(a, b);
    if (a.type == J_STR && b.type == J_STR) {
        jstep(it, MIN(a.u.s->len, b.u.s->len) / 256);
        int order = str_cmp(jstr_str(a.u.s), jstr_str(b.u.s)); // UTF-8 orders as code points do
        return order < 0 ? -1 : order > 0;
    }
    if (a.type != J_LIST || b.type != J_LIST) return fail_order(it, a, b);
    const struct jlist *l = a.u.l, *m = b.u.l;
    bool lists = l->kind == JL_LIST && m->kind == JL_LIST;
    bool tuples = (l->kind == JL_TUPLE || l->kind == JL_GROUP) && (m->kind == JL_TUPLE || m->kind == JL_GROUP);
    if (!lists && !tuples) return fail_order(it, a, b);
    if (++it->depth > JINJA_EVAL_DEPTH_MAX) {
        jfail(it, TERN_LIMIT, "values are nested more than %d deep", JINJA_EVAL_DEPTH_MAX);
        return 0;
    }
    int c = 0;
    size_t n = MIN(l->len, m->len), i = 0;
    while (i < n && it->status == TERN_OK && jequal(it, l->items[i], m->items[i])) i++;
    if (it->status == TERN_OK)
        c = i < n ? jcompare(it, l->items[i], m->items[i]) : l->len < m->len ? -1 : l->len > m->len;
    it->depth--;
    return c;
}

struct jlist *jlist_new(struct jinterp *it, enum jlist_kind kind, size_t cap) {
    struct jlist *l = jalloc(it, 1, sizeof(*l));
    if (!l) return NULL;
    *l = (struct jlist){.kind = kind, .cap = cap};
    if (cap > 0 && !(l->items = jalloc(it, cap, sizeof(*l->items)))) return NULL;
    return l;
}

bool jlist_push(struct jinterp *it, struct jlist *l, struct jval v) {
    if (it->status != TERN_OK || !l) return false;
    if (l->len == l->cap) {
        size_t cap = MAX(l->cap * 2, (size_t)4);
        struct jval *items = jalloc(it, cap, sizeof(*items));
        if (!items) return false;
        if (l->len) memcpy(items, l->items, l->len * sizeof(*items));
        l->items = items;
        l->cap = cap;
    }
    l->items[l->len++] = v;
    return true;
}

struct jval jlist_val(struct jlist *l) {
    return l ? (struct jval){.type = J_LIST, .u.l = l} : jval_undef;
}

struct jdict *jdict_new(struct jinterp *it, size_t cap) {
    struct jdict *d = jalloc(it, 1, sizeof(*d));
    if (!d) return NULL;
    *d = (struct jdict){.cap = cap};
    if (cap > 0 && !(d->pairs = jalloc(it, cap, sizeof(*d->pairs)))) return NULL;
    return d;
}

bool jhashable(struct jval v) {
    if (v.type == J_DICT) return false;
    if (v.type != J_LIST) return true;
    return v.u.l->kind != JL_LIST && v.u.l->kind < JL_KEYS;
}

struct jval *jdict_findz(const struct jdict *d, struct str key) {
    for (size_t i = 0; i < d->len; i++)
        if (d->pairs[i].key.type == J_STR && str_eq(jstr_str(d->pairs[i].key.u.s), key)) return &d->pairs[i].value;
    return NULL;
}

struct jval *jdict_find(struct jinterp *it, const struct jdict *d, struct jval key) {
    size_t key_len = key.type == J_STR ? key.u.s->len : 0;
    if (!jstep(it, d->len / 16 + key_len * d->len / 4096)) return NULL;
    if (key.type == J_STR) return jdict_findz(d, jstr_str(key.u.s));
    for (size_t i = 0; i < d->len && it->status == TERN_OK; i++)
        if (jequal(it, d->pairs[i].key, key)) return &d->pairs[i].value;
    return NULL;
}

bool jdict_append(struct jinterp *it, struct jdict *d, struct jval key, struct jval value) {
    if (d->len == d->cap) {
        size_t cap = MAX(d->cap * 2, (size_t)4);
        struct jpair *pairs = jalloc(it, cap, sizeof(*pairs));
        if (!pairs) return false;
        if (d->len) memcpy(pairs, d->pairs, d->len * sizeof(*pairs));
        d->pairs = pairs;
        d->cap = cap;
    }
    d->pairs[d->len++] = (struct jpair){key, value};
    return true;
}

bool jdict_put(struct jinterp *it, struct jdict *d, struct jval key, struct jval value) {
    if (!d) return false;
    if (!jhashable(key)) {
        jfail(it, TERN_BAD_FORMAT, "a '%s' cannot be a key", jtype_name(key));
        return false;
    }
    struct jval *old = jdict_find(it, d, key);
    if (it->status != TERN_OK) return false;
    if (old) {
        *old = value;
        return true;
    }
    return jdict_append(it, d, key, value);
}

static struct jlist *chars_of(struct jinterp *it, const struct jstr *s) {
    struct jlist *l = jlist_new(it, JL_LIST, 0);
    for (size_t i = 0; l && i < s->len && jstep(it, 1);) {
        int n;
        utf8_decode((struct str){s->data + i, s->len - i}, &n);
        jlist_push(it, l, jstr_view(it, s, i, (size_t)n));
        i += (size_t)n;
    }
    return l;
}

struct jlist *jiterate(struct jinterp *it, struct jval v) {
    struct jlist *l = NULL;
    switch (v.type) {
    case J_MISSING:
    case J_UNDEF: return jlist_new(it, JL_LIST, 0);
    case J_STR: l = chars_of(it, v.u.s); break;
    case J_LIST:
        l = v.u.l;
        if (l->kind == JL_ITER) {
            struct jlist *rest = jlist_new(it, JL_LIST, 0);
            if (!rest) return NULL;
            rest->items = l->items + l->pos;
            rest->len = rest->cap = l->len - l->pos;
            l->pos = l->len;
            l = rest;
        }
        break;
    case J_DICT:
        l = jlist_new(it, JL_LIST, v.u.d->len);
        for (size_t i = 0; l && i < v.u.d->len; i++) jlist_push(it, l, v.u.d->pairs[i].key);
        break;
    default: jfail(it, TERN_BAD_FORMAT, "'%s' cannot be iterated", jtype_name(v));
    }
    return it->status == TERN_OK ? l : NULL;
}

bool jcontains(struct jinterp *it, struct jval container, struct jval item) {
    if (container.type == J_STR) {
        if (item.type != J_STR) {
            jfail(it, TERN_BAD_FORMAT, "'in' a string needs a string on its left, not '%s'", jtype_name(item));
            return false;
        }
        return jstep(it, container.u.s->len / 256) &&
               str_find(jstr_str(container.u.s), jstr_str(item.u.s), 0) != (size_t)-1;
    }
    if (container.type == J_DICT) {
        if (!jhashable(item)) jfail(it, TERN_BAD_FORMAT, "a '%s' cannot be a key", jtype_name(item));
        return it->status == TERN_OK && jdict_find(it, container.u.d, item) != NULL;
    }
    if (container.type != J_LIST && container.type != J_UNDEF) {
        jfail(it, TERN_BAD_FORMAT, "'in' needs a container on its right, not '%s'", jtype_name(container));
        return false;
    }
    if (container.type == J_UNDEF) return false;
    struct jlist *l = container.u.l;
    for (size_t i = l->kind == JL_ITER ? l->pos : 0; i < l->len && it->status == TERN_OK; i++) {
        if (l->kind == JL_ITER) l->pos = i + 1;
        if (jequal(it, l->items[i], item)) return it->status == TERN_OK;
    }
    return false;
}
