// Filters on lists and dicts. What is a generator in Jinja is an iterator here as well (JL_ITER): always true, without
// length, empty after one pass; its items are computed at once, which differs only where nothing reads them.
#include "base/base.h"
#include "text/jinja_int.h"

typedef const struct jcall *args_t;

static struct jval as_iter(struct jlist *l) {
    if (l) l->kind = JL_ITER;
    return jlist_val(l);
}

// A new list with the items of an iterable.
static struct jlist *copy_items(struct jinterp *it, struct jval v) {
    const struct jlist *src = jiterate(it, v);
    if (!src || !jstep(it, src->len / 16)) return NULL;
    struct jlist *l = jlist_new(it, JL_LIST, src->len);
    if (!l) return NULL;
    if (src->len) memcpy(l->items, src->items, src->len * sizeof(*l->items));
    l->len = src->len;
    return l;
}

static struct jval f_list(struct jinterp *it, struct jval self, args_t c) {
    return jargs_bind(it, c, "list", NULL, 0, 0, NULL) ? jlist_val(copy_items(it, self)) : jval_undef;
}

static struct jval f_first(struct jinterp *it, struct jval self, args_t c) {
    if (!jargs_bind(it, c, "first", NULL, 0, 0, NULL)) return jval_undef;
    if (self.type == J_STR) return self.u.s->len > 0 ? jstr_slice(it, self.u.s, 0, 1, 1) : jval_undef;
    if (self.type == J_LIST && self.u.l->kind == JL_ITER)
        return self.u.l->pos < self.u.l->len ? self.u.l->items[self.u.l->pos++] : jval_undef;
    const struct jlist *l = jiterate(it, self);
    return l && l->len > 0 ? l->items[0] : jval_undef;
}

static struct jval f_last(struct jinterp *it, struct jval self, args_t c) {
    if (!jargs_bind(it, c, "last", NULL, 0, 0, NULL)) return jval_undef;
    if (self.type == J_LIST && self.u.l->kind == JL_ITER)
        return jfail(it, TERN_BAD_FORMAT, "last does not work on an iterator: put |list before it");
    const struct jlist *l = jiterate(it, self);
    return l && l->len > 0 ? l->items[l->len - 1] : jval_undef;
}

static struct jval f_join(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"d", "attribute"};
    struct jval a[2];
    if (!jargs_bind(it, c, "join", params, 2, 0, a)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    if (l && a[1].type != J_MISSING && a[1].type != J_NONE) {
        struct jlist *parts = jlist_new(it, JL_LIST, l->len);
        for (size_t i = 0; parts && i < l->len && jstep(it, 1); i++)
            jlist_push(it, parts, jget_path(it, l->items[i], a[1], jval_missing));
        l = parts;
    }
    struct jval sep = a[0].type == J_MISSING ? jstr_lit(it, "") : jto_str(it, a[0]);
    return l && it->status == TERN_OK ? jstr_join(it, sep.u.s, l, false) : jval_undef;
}

static struct jval f_reverse(struct jinterp *it, struct jval self, args_t c) {
    if (!jargs_bind(it, c, "reverse", NULL, 0, 0, NULL)) return jval_undef;
    if (self.type == J_STR) return jslice(it, self, jval_missing, jval_missing, jint(-1));
    bool was_iter = self.type == J_LIST && self.u.l->kind == JL_ITER;
    struct jlist *l = copy_items(it, self);
    for (size_t i = 0; l && i < l->len / 2; i++) {
        struct jval t = l->items[i];
        l->items[i] = l->items[l->len - 1 - i];
        l->items[l->len - 1 - i] = t;
    }
    return was_iter ? jlist_val(l) : as_iter(l);
}

// ---- order

static struct jval sort_key(struct jinterp *it, struct jval item, struct jval path, struct jval dflt,
                            bool case_sensitive) {
    if (path.type != J_MISSING && path.type != J_NONE) item = jget_path(it, item, path, dflt);
    return item.type == J_STR && !case_sensitive ? jstr_case(it, item.u.s, CASE_LOWER) : item;
}

static struct jlist *sort_keys(struct jinterp *it, const struct jlist *l, struct jval path, struct jval dflt,
                               bool case_sensitive) {
    struct jlist *keys = jlist_new(it, JL_LIST, l->len);
    for (size_t i = 0; keys && i < l->len && jstep(it, 1); i++)
        jlist_push(it, keys, sort_key(it, l->items[i], path, dflt, case_sensitive));
    return it->status == TERN_OK ? keys : NULL;
}

// The keys of `sort`: lists of one value for each comma-separated path. As lists, equal values without an order pass.
static struct jlist *multi_keys(struct jinterp *it, const struct jlist *l, struct jval paths, bool case_sensitive) {
    struct jlist *keys = jlist_new(it, JL_LIST, l->len), one = {.items = &paths, .len = 1};
    const struct jlist *parts = &one;
    if (paths.type == J_STR) {
        struct jval comma = jstr_lit(it, ",");
        struct jval v = comma.type == J_STR ? jstr_split(it, paths.u.s, comma.u.s, -1, false) : jval_undef;
        if (v.type != J_LIST) return NULL;
        parts = v.u.l;
    }
    for (size_t i = 0; keys && i < l->len && jstep(it, 1); i++) {
        struct jlist *key = jlist_new(it, JL_LIST, parts->len);
        for (size_t k = 0; key && k < parts->len && it->status == TERN_OK; k++)
            jlist_push(it, key, sort_key(it, l->items[i], parts->items[k], jval_missing, case_sensitive));
        jlist_push(it, keys, jlist_val(key));
    }
    return it->status == TERN_OK ? keys : NULL;
}

// Stable merge sort of indices by their keys.
static size_t *sort_indices(struct jinterp *it, const struct jlist *keys, bool reverse) {
    size_t n = keys->len, *a = jalloc(it, n + 1, sizeof(*a)), *b = jalloc(it, n + 1, sizeof(*b));
    if (!a || !b) return NULL;
    for (size_t i = 0; i < n; i++) a[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t mid = MIN(low + width, n), high = MIN(low + 2 * width, n), i = low, k = mid;
            for (size_t out = low; out < high; out++) {
                bool right = i == mid;
                if (!right && k < high) {
                    int order = jcompare(it, keys->items[a[k]], keys->items[a[i]]);
                    if (it->status != TERN_OK) return NULL;
                    right = order != 2 && (reverse ? order > 0 : order < 0);
                }
                b[out] = right ? a[k++] : a[i++];
            }
        }
        size_t *t = a;
        a = b;
        b = t;
    }
    return a;
}

static struct jlist *sort_items(struct jinterp *it, const struct jlist *l, const struct jlist *keys, bool reverse) {
    size_t *order = keys ? sort_indices(it, keys, reverse) : NULL;
    struct jlist *out = order ? jlist_new(it, JL_LIST, l->len) : NULL;
    for (size_t i = 0; out && i < l->len; i++) jlist_push(it, out, l->items[order[i]]);
    return out;
}

static struct jval f_sort(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"reverse", "case_sensitive", "attribute"};
    struct jval a[3];
    if (!jargs_bind(it, c, "sort", params, 3, 0, a)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    if (!l) return jval_undef;
    return jlist_val(sort_items(it, l, multi_keys(it, l, a[2], jtruth(a[1])), jtruth(a[0])));
}

static struct jval f_dictsort(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"case_sensitive", "by", "reverse"};
    struct jval a[3];
    if (!jargs_bind(it, c, "dictsort", params, 3, 0, a)) return jval_undef;
    if (self.type != J_DICT)
        return self.type == J_UNDEF ? jfail_undef(it, self)
                                    : jfail(it, TERN_BAD_FORMAT, "dictsort needs a dict, not '%s'", jtype_name(self));
    struct str by = a[1].type == J_STR ? jstr_str(a[1].u.s) : STR("key");
    bool by_value = str_eqz(by, "value");
    if (!by_value && !str_eqz(by, "key")) return jfail(it, TERN_BAD_FORMAT, "dictsort sorts by \"key\" or \"value\"");
    bool mutates;
    struct jcall none = {0};
    struct jval items = jmethod_find(self, STR("items"), &mutates)->fn(it, self, &none);
    if (items.type != J_LIST) return jval_undef;
    struct jlist *keys = sort_keys(it, items.u.l, jint(by_value), jval_missing, jtruth(a[0]));
    return jlist_val(sort_items(it, items.u.l, keys, jtruth(a[2])));
}

static struct jval f_unique(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"case_sensitive", "attribute"};
    struct jval a[2];
    if (!jargs_bind(it, c, "unique", params, 2, 0, a)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    const struct jlist *keys = l ? sort_keys(it, l, a[1], jval_missing, jtruth(a[0])) : NULL;
    struct jdict *seen = jdict_new(it, 0);
    struct jlist *out = jlist_new(it, JL_LIST, 0);
    for (size_t i = 0; keys && out && seen && i < l->len && jstep(it, 1); i++) {
        if (!jhashable(keys->items[i]))
            return jfail(it, TERN_BAD_FORMAT, "unique: a '%s' cannot be compared", jtype_name(keys->items[i]));
        if (jdict_find(it, seen, keys->items[i])) continue;
        jdict_put(it, seen, keys->items[i], jval_none);
        jlist_push(it, out, l->items[i]);
    }
    return as_iter(out);
}

static struct jval extreme(struct jinterp *it, struct jval self, args_t c, const char *what, int want) {
    static const char *const params[] = {"case_sensitive", "attribute"};
    struct jval a[2];
    if (!jargs_bind(it, c, what, params, 2, 0, a)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    const struct jlist *keys = l ? sort_keys(it, l, a[1], jval_missing, jtruth(a[0])) : NULL;
    if (!keys || l->len == 0) return jval_undef;
    size_t best = 0;
    for (size_t i = 1; i < l->len && it->status == TERN_OK; i++)
        if (jcompare(it, keys->items[i], keys->items[best]) == want) best = i;
    return l->items[best];
}
static struct jval f_min(struct jinterp *it, struct jval self, args_t c) { return extreme(it, self, c, "min", -1); }
static struct jval f_max(struct jinterp *it, struct jval self, args_t c) { return extreme(it, self, c, "max", 1); }

static struct jval f_sum(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"attribute", "start"};
    struct jval a[2];
    if (!jargs_bind(it, c, "sum", params, 2, 0, a)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    struct jval total = a[1].type == J_MISSING ? jint(0) : a[1];
    if (total.type == J_STR) return jfail(it, TERN_BAD_FORMAT, "sum does not add strings: use join");
    for (size_t i = 0; l && i < l->len && jstep(it, 1); i++) {
        struct jval v = l->items[i];
        if (a[0].type != J_MISSING && a[0].type != J_NONE) v = jget_path(it, v, a[0], jval_missing);
        if (it->status == TERN_OK) total = jarith(it, OP_ADD, total, v);
    }
    return total;
}

// ---- selection

static struct jval f_map(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"attribute", "default"};
    struct jlist *out = jlist_new(it, JL_LIST, 0);
    if (!jtruth(self)) return as_iter(out);
    struct jval a[2];
    const struct jbuiltin *f = NULL;
    if (c->n_pos > 0) {
        const struct jstr *name = jarg_str(it, c->pos[0], "map");
        if (!name) return jval_undef;
        if (!(f = jfilter_find(jstr_str(name))))
            return jfail(it, TERN_UNSUPPORTED, "map: no filter named '%.*s' is known here",
                         (int)MIN(name->len, (size_t)60), name->data);
    } else if (!jargs_bind(it, c, "map", params, 2, 1, a)) {
        return jval_undef;
    }
    struct jcall sub = {.pos = c->pos + 1, .n_pos = c->n_pos - 1, .kw = c->kw, .n_kw = c->n_kw};
    const struct jlist *l = jiterate(it, self);
    for (size_t i = 0; l && out && i < l->len && jstep(it, 1); i++)
        jlist_push(it, out, f ? f->fn(it, l->items[i], &sub) : jget_path(it, l->items[i], a[0], a[1]));
    return as_iter(out);
}

static struct jval choose(struct jinterp *it, struct jval self, args_t c, const char *what, bool by_attr, bool want) {
    struct jlist *out = jlist_new(it, JL_LIST, 0);
    if (!jtruth(self)) return as_iter(out);
    int off = by_attr ? 1 : 0;
    if (c->n_pos < off) return jfail(it, TERN_BAD_FORMAT, "%s needs an attribute's name", what);
    const struct jbuiltin *test = NULL;
    if (c->n_pos > off) {
        const struct jstr *name = jarg_str(it, c->pos[off], what);
        if (!name) return jval_undef;
        if (!(test = jtest_find(jstr_str(name))))
            return jfail(it, TERN_UNSUPPORTED, "%s: no test named '%.*s' is known here", what,
                         (int)MIN(name->len, (size_t)60), name->data);
    }
    struct jcall sub = {.n_pos = MAX(c->n_pos - off - 1, 0), .kw = c->kw, .n_kw = c->n_kw};
    if (sub.n_pos > 0) sub.pos = c->pos + off + 1;
    const struct jlist *l = jiterate(it, self);
    for (size_t i = 0; l && out && i < l->len && jstep(it, 1); i++) {
        struct jval v = by_attr ? jget_path(it, l->items[i], c->pos[0], jval_missing) : l->items[i];
        if (it->status != TERN_OK) break;
        bool yes = jtruth(test ? test->fn(it, v, &sub) : v);
        if (yes == want) jlist_push(it, out, l->items[i]);
    }
    return as_iter(out);
}
static struct jval f_select(struct jinterp *it, struct jval self, args_t c) {
    return choose(it, self, c, "select", false, true);
}
static struct jval f_reject(struct jinterp *it, struct jval self, args_t c) {
    return choose(it, self, c, "reject", false, false);
}
static struct jval f_selectattr(struct jinterp *it, struct jval self, args_t c) {
    return choose(it, self, c, "selectattr", true, true);
}
static struct jval f_rejectattr(struct jinterp *it, struct jval self, args_t c) {
    return choose(it, self, c, "rejectattr", true, false);
}

// ---- shapes

static struct jval f_items(struct jinterp *it, struct jval self, args_t c) {
    if (!jargs_bind(it, c, "items", NULL, 0, 0, NULL)) return jval_undef;
    if (self.type == J_UNDEF) return as_iter(jlist_new(it, JL_LIST, 0));
    if (self.type != J_DICT) return jfail(it, TERN_BAD_FORMAT, "items needs a dict, not '%s'", jtype_name(self));
    bool mutates;
    struct jval v = jmethod_find(self, STR("items"), &mutates)->fn(it, self, c);
    return v.type == J_LIST ? as_iter(v.u.l) : jval_undef;
}

static struct jval f_batch(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"linecount", "fill_with"};
    struct jval a[2];
    int64_t n;
    if (!jargs_bind(it, c, "batch", params, 2, 1, a) || !jarg_int(it, a[0], "batch", 0, &n)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    struct jlist *out = jlist_new(it, JL_LIST, 0), *row = jlist_new(it, JL_LIST, 0);
    for (size_t i = 0; l && out && row && i < l->len && jstep(it, 1); i++) {
        if ((int64_t)row->len == n) {
            jlist_push(it, out, jlist_val(row));
            row = jlist_new(it, JL_LIST, 0);
        }
        jlist_push(it, row, l->items[i]);
    }
    if (!row || row->len == 0) return as_iter(out);
    bool fill = a[1].type != J_MISSING && a[1].type != J_NONE;
    while (fill && (int64_t)row->len < n && jstep(it, 1)) jlist_push(it, row, a[1]);
    jlist_push(it, out, jlist_val(row));
    return as_iter(out);
}

static struct jval f_slice(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"slices", "fill_with"};
    struct jval a[2];
    int64_t n;
    if (!jargs_bind(it, c, "slice", params, 2, 1, a) || !jarg_int(it, a[0], "slice", 0, &n)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    struct jlist *out = jlist_new(it, JL_LIST, 0);
    if (!l || !out) return jval_undef;
    if (n == 0) return jfail(it, TERN_BAD_FORMAT, "slice: 0 slices");
    int64_t each = (int64_t)l->len / n, extra = (int64_t)l->len % n, pos = 0;
    bool fill = a[1].type != J_MISSING && a[1].type != J_NONE;
    for (int64_t i = 0; i < n && jstep(it, 1); i++) {
        struct jlist *row = jlist_new(it, JL_LIST, 0);
        for (int64_t k = 0; row && k < each + (i < extra); k++) jlist_push(it, row, l->items[pos++]);
        if (fill && i >= extra) jlist_push(it, row, a[1]);
        jlist_push(it, out, jlist_val(row));
    }
    return as_iter(out);
}

static struct jval f_groupby(struct jinterp *it, struct jval self, args_t c) {
    static const char *const params[] = {"attribute", "default", "case_sensitive"};
    struct jval a[3];
    if (!jargs_bind(it, c, "groupby", params, 3, 1, a)) return jval_undef;
    const struct jlist *l = jiterate(it, self);
    const struct jlist *keys = l ? sort_keys(it, l, a[0], a[1], jtruth(a[2])) : NULL;
    size_t *order = keys ? sort_indices(it, keys, false) : NULL;
    struct jlist *out = order ? jlist_new(it, JL_LIST, 0) : NULL, *members = NULL;
    for (size_t i = 0; out && i < l->len && jstep(it, 1); i++) {
        bool same = i > 0 && jequal(it, keys->items[order[i - 1]], keys->items[order[i]]);
        if (!same) {
            struct jlist *group = jlist_new(it, JL_GROUP, 2);
            members = jlist_new(it, JL_LIST, 0);
            struct jval key = keys->items[order[i]];
            if (!jtruth(a[2])) key = jget_path(it, l->items[order[i]], a[0], a[1]);
            jlist_push(it, group, key);
            jlist_push(it, group, jlist_val(members));
            jlist_push(it, out, jlist_val(group));
        }
        jlist_push(it, members, l->items[order[i]]);
    }
    return jlist_val(out);
}

static const struct jbuiltin filters[] = {
    {"list", f_list},
    {"join", f_join},
    {"first", f_first},
    {"last", f_last},
    {"items", f_items},
    {"map", f_map},
    {"selectattr", f_selectattr},
    {"rejectattr", f_rejectattr},
    {"select", f_select},
    {"reject", f_reject},
    {"sort", f_sort},
    {"unique", f_unique},
    {"dictsort", f_dictsort},
    {"reverse", f_reverse},
    {"min", f_min},
    {"max", f_max},
    {"sum", f_sum},
    {"batch", f_batch},
    {"slice", f_slice},
    {"groupby", f_groupby},
};

const struct jbuiltin *jfilter_list_find(struct str name) { return jbuiltin_find(filters, ARRAY_LEN(filters), name); }
