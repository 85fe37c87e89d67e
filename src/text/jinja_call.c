// Calls: arguments, macros, methods and the binding of arguments to parameters, by Python's rules.
#include "base/base.h"
#include "text/jinja_int.h"

// *x and **x.
static bool eval_dynamic(struct jinterp *it, const struct jargs *args, struct jlist **more, struct jdict **more_kw) {
    if (args->dyn_pos) {
        struct jval v = jeval(it, args->dyn_pos);
        if (it->status != TERN_OK || !(*more = jiterate(it, v))) return false;
    }
    if (args->dyn_kw) {
        struct jval v = jeval(it, args->dyn_kw);
        if (it->status != TERN_OK) return false;
        if (v.type != J_DICT) {
            jfail(it, TERN_BAD_FORMAT, "** needs a dict, not '%s'", jtype_name(v));
            return false;
        }
        *more_kw = v.u.d;
        for (size_t i = 0; i < v.u.d->len; i++)
            if (v.u.d->pairs[i].key.type != J_STR) {
                jfail(it, TERN_BAD_FORMAT, "** needs string keys, found '%s'", jtype_name(v.u.d->pairs[i].key));
                return false;
            }
    }
    return true;
}

bool jargs_eval(struct jinterp *it, const struct jargs *args, struct jcall *out) {
    *out = (struct jcall){0};
    if (!args) return true;
    struct jlist *pos = jlist_new(it, JL_LIST, (size_t)args->n_pos), *more = NULL;
    struct jdict *more_kw = NULL;
    for (int i = 0; pos && i < args->n_pos && it->status == TERN_OK; i++) jlist_push(it, pos, jeval(it, args->pos[i]));
    struct jkw *kw = jalloc(it, (size_t)args->n_kw + 1, sizeof(*kw));
    for (int i = 0; kw && i < args->n_kw && it->status == TERN_OK; i++)
        kw[i] = (struct jkw){args->kw[i].name, jeval(it, args->kw[i].value)};
    if (it->status != TERN_OK || !eval_dynamic(it, args, &more, &more_kw)) return false;
    for (size_t i = 0; more && i < more->len && jstep(it, 1); i++) jlist_push(it, pos, more->items[i]);
    size_t n_kw = (size_t)args->n_kw;
    if (more_kw) {
        struct jkw *all = jalloc(it, n_kw + more_kw->len + 1, sizeof(*all));
        if (!all) return false;
        memcpy(all, kw, n_kw * sizeof(*all));
        for (size_t i = 0; i < more_kw->len && jstep(it, 1); i++)
            all[n_kw++] = (struct jkw){jstr_str(more_kw->pairs[i].key.u.s), more_kw->pairs[i].value};
        kw = all;
    }
    if (it->status != TERN_OK) return false;
    if (pos->len > JINJA_ARGS_MAX || n_kw > JINJA_ARGS_MAX) {
        jfail(it, TERN_LIMIT, "a call with more than %d arguments (JINJA_ARGS_MAX)", JINJA_ARGS_MAX);
        return false;
    }
    *out = (struct jcall){.pos = pos->items, .n_pos = (int)pos->len, .kw = kw, .n_kw = (int)n_kw};
    if (!jstep(it, n_kw * n_kw / 32)) return false;
    for (size_t i = 1; i < n_kw; i++)
        for (size_t k = 0; k < i; k++)
            if (str_eq(kw[i].name, kw[k].name)) {
                jfail(it, TERN_BAD_FORMAT, "the argument '%.*s' is given twice", (int)MIN(kw[i].name.len, (size_t)60),
                      kw[i].name.data);
                return false;
            }
    return true;
}

bool jargs_bind(struct jinterp *it, const struct jcall *c, const char *what, const char *const *params, int n,
                int n_required, struct jval *out) {
    if (it->status != TERN_OK) return false;
    for (int i = 0; i < n; i++) out[i] = i < c->n_pos ? c->pos[i] : jval_missing;
    if (c->n_pos > n) {
        jfail(it, TERN_BAD_FORMAT, "%s takes at most %d arguments, %d given", what, n, c->n_pos);
        return false;
    }
    for (int k = 0; k < c->n_kw; k++) {
        int i = 0;
        while (i < n && !(params && str_eqz(c->kw[k].name, params[i]))) i++;
        if (i == n || out[i].type != J_MISSING) {
            jfail(it, TERN_BAD_FORMAT, "%s %s argument '%.*s'", what, i == n ? "takes no" : "has two values for",
                  (int)MIN(c->kw[k].name.len, (size_t)60), c->kw[k].name.data);
            return false;
        }
        out[i] = c->kw[k].value;
    }
    for (int i = 0; i < n_required; i++)
        if (out[i].type == J_MISSING) {
            jfail(it, TERN_BAD_FORMAT, "%s needs %d argument%s, %d given", what, n_required, n_required == 1 ? "" : "s",
                  c->n_pos);
            return false;
        }
    return true;
}

bool jarg_int(struct jinterp *it, struct jval v, const char *what, int64_t dflt, int64_t *out) {
    *out = dflt;
    if (v.type == J_MISSING) return it->status == TERN_OK;
    if (jint_of(v, out)) return it->status == TERN_OK;
    if (v.type == J_UNDEF)
        jfail_undef(it, v);
    else
        jfail(it, TERN_BAD_FORMAT, "%s needs an integer, not '%s'", what, jtype_name(v));
    return false;
}

const struct jstr *jarg_str(struct jinterp *it, struct jval v, const char *what) {
    if (it->status != TERN_OK) return NULL;
    if (v.type == J_STR) return v.u.s;
    jfail(it, TERN_BAD_FORMAT, "%s needs a string, not '%s'", what, jtype_name(v));
    return NULL;
}

const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, int n, struct str name) {
    for (int i = 0; i < n; i++)
        if (str_eqz(name, table[i].name)) return &table[i];
    return NULL;
}

static const struct jkw *find_kw(const struct jcall *c, struct str name) {
    for (int i = 0; i < c->n_kw; i++)
        if (str_eq(c->kw[i].name, name)) return &c->kw[i];
    return NULL;
}

static bool is_param(const struct jnode *m, struct str name, int from) {
    for (int i = from; i < m->n_params; i++)
        if (str_eq(m->params[i].name, name)) return true;
    return false;
}

// Keyword arguments that no parameter took: into kwargs, or an error.
static bool bind_extra(struct jinterp *it, const struct jnode *m, const struct jcall *c, struct jscope *scope) {
    int n_taken = MIN(c->n_pos, m->n_params);
    bool caller_is_param = is_param(m, STR("caller"), 0);
    struct jdict *kwargs = m->takes_kwargs ? jdict_new(it, 0) : NULL;
    for (int i = 0; i < c->n_kw && it->status == TERN_OK; i++) {
        if (is_param(m, c->kw[i].name, n_taken)) continue;
        if (m->takes_caller && !caller_is_param && str_eqz(c->kw[i].name, "caller")) continue;
        if (!kwargs) {
            jfail(it, TERN_BAD_FORMAT, "macro '%.*s' takes no argument '%.*s'", (int)MIN(m->name.len, (size_t)60),
                  m->name.data, (int)MIN(c->kw[i].name.len, (size_t)60), c->kw[i].name.data);
            return false;
        }
        jdict_put(it, kwargs, jstr_copy(it, c->kw[i].name, false), c->kw[i].value);
    }
    if (kwargs) jscope_set(it, scope, it->j->sym_kwargs, (struct jval){.type = J_DICT, .u.d = kwargs});
    if (m->takes_varargs) {
        struct jlist *l = jlist_new(it, JL_TUPLE, 0);
        for (int i = n_taken; i < c->n_pos; i++) jlist_push(it, l, c->pos[i]);
        jscope_set(it, scope, it->j->sym_varargs, jlist_val(l));
    } else if (c->n_pos > m->n_params) {
        jfail(it, TERN_BAD_FORMAT, "macro '%.*s' takes at most %d arguments, %d given",
              (int)MIN(m->name.len, (size_t)60), m->name.data, m->n_params, c->n_pos);
    }
    return it->status == TERN_OK;
}

static struct jval call_macro(struct jinterp *it, const struct jmacro *macro, const struct jcall *c) {
    const struct jnode *m = macro->node;
    if (it->macro_depth >= JINJA_DEPTH_MAX)
        return jfail(it, TERN_LIMIT, "macros call one another more than %d deep (JINJA_DEPTH_MAX)", JINJA_DEPTH_MAX);
    struct jscope *scope = jscope_push(it, macro->scope), *outer = it->scope;
    if (!scope) return jval_undef;
    if (m->takes_caller && !is_param(m, STR("caller"), 0)) {
        const struct jkw *kw = find_kw(c, STR("caller"));
        jscope_set(it, scope, it->j->sym_caller, kw ? kw->value : jundef(it, STR("caller")));
    }
    if (!bind_extra(it, m, c, scope)) return jval_undef;
    it->macro_depth++;
    for (int i = 0; i < m->n_params && it->status == TERN_OK; i++) {
        const struct jkw *kw = i < c->n_pos ? NULL : find_kw(c, m->params[i].name);
        struct jval v = jundef(it, m->params[i].name);
        if (i < c->n_pos) {
            v = c->pos[i];
        } else if (kw) {
            v = kw->value;
        } else if (m->params[i].init) {
            it->scope = scope;
            v = jeval(it, m->params[i].init);
            it->scope = outer;
        }
        jscope_set(it, scope, m->params[i].sym, v);
    }
    struct jval out = it->status == TERN_OK ? jrun_block(it, m->d, scope) : jval_undef;
    it->macro_depth--;
    return out;
}

struct jval jcall_value(struct jinterp *it, struct jval callee, const struct jcall *c) {
    if (it->status != TERN_OK) return jval_undef;
    switch (callee.type) {
    case J_FUNC: return callee.u.func->fn(it, jval_undef, c);
    case J_METHOD: return callee.u.method->func->fn(it, callee.u.method->self, c);
    case J_MACRO: return call_macro(it, callee.u.macro, c);
    case J_JOINER: {
        struct jval sep = callee.u.joiner->used ? callee.u.joiner->sep : jstr_lit(it, "");
        callee.u.joiner->used = true;
        return sep;
    }
    case J_UNDEF: return jfail_undef(it, callee);
    default: return jfail(it, TERN_BAD_FORMAT, "a '%s' cannot be called", jtype_name(callee));
    }
}
