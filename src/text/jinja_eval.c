// Evaluates expressions by walking the tree. Every visit costs a step and a level of depth, so neither a deep tree nor
// a long loop can run away. Attribute access reaches only the values given and the methods listed in jinja_methods.c:
// there is no host object behind any value.
#include "base/base.h"
#include "text/jinja_int.h"

static struct jval loop_attr(struct jinterp *it, struct jloop *l, struct str name, bool *found) {
    *found = true;
    int64_t index0 = (int64_t)l->index0, n = (int64_t)l->list->len;
    if (str_eqz(name, "index0")) return jint(index0);
    if (str_eqz(name, "index")) return jint(index0 + 1);
    if (str_eqz(name, "first")) return jbool(index0 == 0);
    if (str_eqz(name, "last")) return jbool(index0 + 1 == n);
    if (str_eqz(name, "length")) return jint(n);
    if (str_eqz(name, "revindex")) return jint(n - index0);
    if (str_eqz(name, "revindex0")) return jint(n - index0 - 1);
    if (str_eqz(name, "depth")) return jint(1);
    if (str_eqz(name, "depth0")) return jint(0);
    if (str_eqz(name, "previtem")) return index0 > 0 ? l->list->items[index0 - 1] : jundef(it, name);
    if (str_eqz(name, "nextitem")) return index0 + 1 < n ? l->list->items[index0 + 1] : jundef(it, name);
    *found = false;
    return jval_undef;
}

// What obj.name gives without looking at keys: attributes and methods of the type.
bool jtype_attr(struct jinterp *it, struct jval obj, struct str name, struct jval *out) {
    bool found = false, mutates = false;
    if (obj.type == J_NS) {
        struct jval *v = jdict_findz(obj.u.d, name);
        if (v) *out = *v;
        return v != NULL;
    }
    if (obj.type == J_LOOP) *out = loop_attr(it, obj.u.loop, name, &found);
    if (obj.type == J_LIST && obj.u.l->kind == JL_GROUP) {
        found = str_eqz(name, "grouper") || str_eqz(name, "list");
        if (found) *out = obj.u.l->items[str_eqz(name, "list")];
    }
    if (obj.type == J_CYCLER && str_eqz(name, "current")) {
        *out = obj.u.cycler->items->items[obj.u.cycler->pos];
        found = true;
    }
    if (obj.type == J_MACRO && str_eqz(name, "name")) {
        *out = jstr_copy(it, obj.u.macro->node->name, false);
        found = true;
    }
    if (found) return true;
    const struct jbuiltin *func = jmethod_find(obj, name, &mutates);
    if (!func && !mutates) return false;
    struct jmethod *m = jalloc(it, 1, sizeof(*m));
    if (!m) return false;
    *m = (struct jmethod){.self = obj, .func = func};
    // A method that would change its object looks undefined, and fails when called.
    *out = func ? (struct jval){.type = J_METHOD, .u.method = m} : jundef(it, name);
    return true;
}

// obj[key]; false: there is no such item (not an error).
static bool subscript(struct jinterp *it, struct jval obj, struct jval key, struct jval *out) {
    int64_t i;
    if (obj.type == J_DICT) {
        struct jval *v = jhashable(key) ? jdict_find(it, obj.u.d, key) : NULL;
        if (v) *out = *v;
        return v != NULL;
    }
    if (!jint_of(key, &i)) return false;
    if (obj.type == J_LIST && (obj.u.l->kind <= JL_RANGE || obj.u.l->kind == JL_GROUP)) {
        int64_t n = (int64_t)obj.u.l->len;
        if (i < 0) i += n;
        if (i < 0 || i >= n) return false;
        *out = obj.u.l->items[i];
        return true;
    }
    if (obj.type != J_STR) return false;
    int64_t n = (int64_t)jstr_runes(it, obj.u.s);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return false;
    *out = jstr_slice(it, obj.u.s, i, 1, 1);
    return true;
}

struct jval jget_attr(struct jinterp *it, struct jval obj, struct str name) {
    struct jval v = jval_undef;
    if (it->status != TERN_OK) return v;
    if (obj.type == J_UNDEF) return jfail_undef(it, obj);
    if (jtype_attr(it, obj, name, &v)) return v;
    if (obj.type == J_DICT) {
        struct jval *item = jstep(it, obj.u.d->len / 16) ? jdict_findz(obj.u.d, name) : NULL;
        if (item) return *item;
    }
    return jundef(it, name);
}

struct jval jget_item(struct jinterp *it, struct jval obj, struct jval key) {
    struct jval v = jval_undef;
    if (it->status != TERN_OK) return v;
    if (obj.type == J_UNDEF) return jfail_undef(it, obj);
    if (subscript(it, obj, key, &v) || it->status != TERN_OK) return v;
    if (key.type == J_STR && jtype_attr(it, obj, jstr_str(key.u.s), &v)) return v;
    if (key.type == J_STR) return jundef(it, jstr_str(key.u.s));
    return jval_undef;
}

// "a.b.0" or an integer, as the attribute arguments of filters take it.
struct jval jget_path(struct jinterp *it, struct jval obj, struct jval path, struct jval dflt) {
    if (path.type != J_STR) {
        struct jval v = jget_item(it, obj, path);
        return v.type == J_UNDEF && dflt.type != J_MISSING && dflt.type != J_NONE ? dflt : v;
    }
    struct str p = jstr_str(path.u.s);
    for (size_t begin = 0; begin <= p.len && jstep(it, 1);) {
        size_t end = str_find(p, STR("."), begin);
        if (end == (size_t)-1) end = p.len;
        struct str part = {p.data + begin, end - begin};
        int64_t i;
        struct jval key =
            str_to_i64(part, &i) && part.data[0] != '-' ? jint(i) : jstr_view(it, path.u.s, begin, part.len);
        obj = jget_item(it, obj, key);
        if (obj.type == J_UNDEF && dflt.type != J_MISSING && dflt.type != J_NONE) obj = dflt;
        begin = end + 1;
    }
    return obj;
}

static bool slice_part(struct jinterp *it, struct jval v, int64_t dflt, int64_t *out) {
    *out = dflt;
    if (v.type == J_MISSING || v.type == J_NONE) return true;
    if (jint_of(v, out)) return true;
    jfail(it, TERN_BAD_FORMAT, "a slice needs integers, not '%s'", jtype_name(v));
    return false;
}

static int64_t clip(int64_t i, int64_t low, int64_t high) { return i < low ? low : i > high ? high : i; }

struct jval jslice(struct jinterp *it, struct jval obj, struct jval start, struct jval stop, struct jval step) {
    int64_t a, b, s;
    if (it->status != TERN_OK) return jval_undef;
    if (obj.type == J_UNDEF) return jfail_undef(it, obj);
    bool is_list = obj.type == J_LIST && (obj.u.l->kind <= JL_RANGE || obj.u.l->kind == JL_GROUP);
    if (obj.type != J_STR && !is_list) return jfail(it, TERN_BAD_FORMAT, "a '%s' has no slices", jtype_name(obj));
    int64_t n = obj.type == J_STR ? (int64_t)jstr_runes(it, obj.u.s) : (int64_t)obj.u.l->len;
    if (!slice_part(it, step, 1, &s)) return jval_undef;
    if (s == 0) return jfail(it, TERN_BAD_FORMAT, "a slice's step cannot be 0");
    if (!slice_part(it, start, s > 0 ? 0 : n - 1, &a) || !slice_part(it, stop, s > 0 ? n : -n - 1, &b))
        return jval_undef;
    int64_t low = s > 0 ? 0 : -1, high = s > 0 ? n : n - 1;
    a = clip(a < 0 && start.type != J_MISSING && start.type != J_NONE ? a + n : a, low, high);
    b = clip(b < 0 ? b + n : b, low, high);
    if (s < 0 && (stop.type == J_MISSING || stop.type == J_NONE)) b = -1;
    s = clip(s, -(n + 1), n + 1);
    int64_t span = s > 0 ? b - a : a - b, width = s > 0 ? s : -s;
    size_t count = span > 0 ? (size_t)((span + width - 1) / width) : 0;
    if (obj.type == J_STR) return jstr_slice(it, obj.u.s, a, s, count);
    struct jlist *l = jlist_new(it, obj.u.l->kind == JL_LIST || obj.u.l->kind == JL_RANGE ? JL_LIST : JL_TUPLE, 0);
    if (!l || !jstep(it, count / 16)) return jval_undef;
    if (s == 1) { // shares the items: no list is changed after it was made
        l->items = obj.u.l->items + a;
        l->len = l->cap = count;
        return jlist_val(l);
    }
    for (size_t i = 0; i < count; i++, a += s) jlist_push(it, l, obj.u.l->items[a]);
    return jlist_val(l);
}

bool jcompare_op(struct jinterp *it, enum jop op, struct jval a, struct jval b) {
    switch (op) {
    case OP_EQ: return jequal(it, a, b);
    case OP_NE: return !jequal(it, a, b);
    case OP_IN: return jcontains(it, b, a);
    case OP_NOT_IN: return !jcontains(it, b, a);
    default: break;
    }
    int c = jcompare(it, a, b);
    if (it->status != TERN_OK || c == 2) return false;
    return op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0;
}

static struct jval eval_list(struct jinterp *it, const struct jnode *n) {
    struct jlist *l = jlist_new(it, n->kind == K_LIST ? JL_LIST : JL_TUPLE, (size_t)n->n_list);
    for (int i = 0; l && i < n->n_list && it->status == TERN_OK; i++) jlist_push(it, l, jeval(it, n->list[i]));
    return jlist_val(l);
}

static struct jval eval_dict(struct jinterp *it, const struct jnode *n) {
    struct jdict *d = jdict_new(it, (size_t)n->n_list / 2);
    for (int i = 0; d && i + 1 < n->n_list && it->status == TERN_OK; i += 2) {
        struct jval key = jeval(it, n->list[i]), value = jeval(it, n->list[i + 1]);
        if (it->status == TERN_OK) jdict_put(it, d, key, value);
    }
    return d ? (struct jval){.type = J_DICT, .u.d = d} : jval_undef;
}

static struct jval eval_concat(struct jinterp *it, const struct jnode *n) {
    struct jbuf b = {0};
    for (int i = 0; i < n->n_list && it->status == TERN_OK; i++) {
        struct jval v = jeval(it, n->list[i]);
        if (it->status == TERN_OK) jbuf_put_val(it, &b, v);
    }
    return jbuf_val(it, &b);
}

static struct jval eval_compare(struct jinterp *it, const struct jnode *n) {
    struct jval a = jeval(it, n->list[0]);
    for (int i = 1; i < n->n_list && it->status == TERN_OK; i++) {
        struct jval b = jeval(it, n->list[i]);
        if (it->status != TERN_OK || !jcompare_op(it, n->ops[i - 1], a, b)) return jbool(false);
        a = b;
    }
    return jbool(true);
}

static struct jval eval_name(struct jinterp *it, const struct jnode *n) {
    struct jval *v = jscope_find(it, n->sym);
    return v ? *v : jundef(it, it->j->syms[n->sym]);
}

static struct jval eval_filter(struct jinterp *it, const struct jnode *n) {
    struct jcall c = {0};
    struct jval self = n->a ? jeval(it, n->a) : it->block_text;
    if (it->status != TERN_OK || (n->args && !jargs_eval(it, n->args, &c))) return jval_undef;
    it->pos = n->pos;
    if (!n->func)
        return jfail(it, TERN_UNSUPPORTED, "no filter named '%.*s' is known here", (int)MIN(n->name.len, (size_t)60),
                     n->name.data);
    return n->func->fn(it, self, &c);
}

static struct jval eval_test(struct jinterp *it, const struct jnode *n) {
    struct jcall c = {0};
    struct jval self = jeval(it, n->a);
    if (it->status != TERN_OK || (n->args && !jargs_eval(it, n->args, &c))) return jval_undef;
    it->pos = n->pos;
    if (!n->func)
        return jfail(it, TERN_UNSUPPORTED, "no test named '%.*s' is known here", (int)MIN(n->name.len, (size_t)60),
                     n->name.data);
    bool yes = jtruth(n->func->fn(it, self, &c));
    return jbool(yes != n->negate);
}

static struct jval eval_call(struct jinterp *it, const struct jnode *n) {
    struct jcall c = {0};
    struct jval callee = jeval(it, n->a);
    if (it->status != TERN_OK || !jargs_eval(it, n->args, &c)) return jval_undef;
    it->pos = n->pos;
    return jcall_value(it, callee, &c);
}

static struct jval eval_slice(struct jinterp *it, const struct jnode *n) {
    struct jval obj = jeval(it, n->a), part[3] = {jval_missing, jval_missing, jval_missing};
    const struct jnode *nodes[3] = {n->b, n->c, n->d};
    for (int i = 0; i < 3 && it->status == TERN_OK; i++)
        if (nodes[i]) part[i] = jeval(it, nodes[i]);
    return jslice(it, obj, part[0], part[1], part[2]);
}

static struct jval eval_unary(struct jinterp *it, const struct jnode *n) {
    struct jval v = jeval(it, n->a);
    if (it->status != TERN_OK) return jval_undef;
    if (n->sym == '!') return jbool(!jtruth(v));
    return jneg(it, v, n->sym == '-');
}

static struct jval eval_binary(struct jinterp *it, const struct jnode *n) {
    struct jval a = jeval(it, n->a);
    if (it->status != TERN_OK) return jval_undef;
    struct jval b = jeval(it, n->b);
    if (it->status != TERN_OK) return jval_undef;
    it->pos = n->pos;
    return jarith(it, n->op, a, b);
}

static struct jval eval_node(struct jinterp *it, const struct jnode *n) {
    struct jval v;
    switch (n->kind) {
    case K_CONST: return n->value;
    case K_NAME: return eval_name(it, n);
    case K_LIST:
    case K_TUPLE: return eval_list(it, n);
    case K_DICT: return eval_dict(it, n);
    case K_UNARY: return eval_unary(it, n);
    case K_BINARY: return eval_binary(it, n);
    case K_CONCAT: return eval_concat(it, n);
    case K_AND: v = jeval(it, n->a); return it->status == TERN_OK && jtruth(v) ? jeval(it, n->b) : v;
    case K_OR: v = jeval(it, n->a); return it->status == TERN_OK && !jtruth(v) ? jeval(it, n->b) : v;
    case K_COMPARE: return eval_compare(it, n);
    case K_COND:
        v = jeval(it, n->b);
        if (it->status != TERN_OK) return jval_undef;
        if (jtruth(v)) return jeval(it, n->a);
        return n->c ? jeval(it, n->c) : jval_undef;
    case K_ATTR: return jget_attr(it, jeval(it, n->a), n->name);
    case K_ITEM: {
        struct jval obj = jeval(it, n->a);
        return it->status == TERN_OK ? jget_item(it, obj, jeval(it, n->b)) : jval_undef;
    }
    case K_SLICE: return eval_slice(it, n);
    case K_CALL: return eval_call(it, n);
    case K_FILTER: return eval_filter(it, n);
    case K_TEST: return eval_test(it, n);
    default: TERN_BUG("node kind %d is no expression", (int)n->kind);
    }
}

struct jval jeval(struct jinterp *it, const struct jnode *n) {
    if (!jstep(it, 1)) return jval_undef;
    if (it->depth >= JINJA_EVAL_DEPTH_MAX)
        return jfail(it, TERN_LIMIT, "evaluation is nested more than %d deep (JINJA_EVAL_DEPTH_MAX)",
                     JINJA_EVAL_DEPTH_MAX);
    it->depth++;
    it->pos = n->pos;
    struct jval v = eval_node(it, n);
    it->depth--;
    return v;
}
