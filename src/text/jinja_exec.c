// Runs statements: scopes, assignment, loops and output.
//
// Scopes follow Jinja: loops (a fresh one per iteration), macros, call, with, filter, set and generation blocks open
// one, `if` does not; an assignment goes to the innermost. A scope that a macro or caller body can still see is marked
// captured and not reused by the next iteration.
#include "base/base.h"
#include "text/jinja_int.h"

struct jscope *jscope_push(struct jinterp *it, struct jscope *parent) {
    struct jscope *s = jalloc(it, 1, sizeof(*s));
    if (s) *s = (struct jscope){.parent = parent};
    return s;
}

bool jscope_set(struct jinterp *it, struct jscope *s, int sym, struct jval v) {
    if (it->status != TERN_OK || !s || sym < 0) return false;
    for (int i = 0; i < s->n; i++)
        if (s->vars[i].sym == sym) {
            s->vars[i].value = v;
            return true;
        }
    if (s->n == s->cap) {
        int cap = s->cap ? s->cap * 2 : 4;
        struct jvar *vars = jalloc(it, (size_t)cap, sizeof(*vars));
        if (!vars) return false;
        if (s->n) memcpy(vars, s->vars, (size_t)s->n * sizeof(*vars));
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (struct jvar){sym, v};
    return true;
}

struct jval *jscope_find(struct jinterp *it, int sym) {
    size_t seen = 0;
    struct jval *found = NULL;
    for (struct jscope *s = it->scope; s && !found; s = s->parent)
        for (int i = 0; i < s->n && !found; i++, seen++)
            if (s->vars[i].sym == sym) found = &s->vars[i].value;
    if (!jstep(it, seen / 32)) return NULL;
    if (!found && it->globals[sym].type != J_MISSING) found = &it->globals[sym];
    return found;
}

static void capture(struct jscope *s) {
    for (; s && !s->captured; s = s->parent) s->captured = true;
}

static bool assign_items(struct jinterp *it, const struct jnode *target, struct jval v) {
    struct jlist *l = jiterate(it, v);
    if (!l) return false;
    if (l->len != (size_t)target->n_list) {
        it->pos = target->pos;
        jfail(it, TERN_BAD_FORMAT, "%d names for %zu values", target->n_list, l->len);
        return false;
    }
    bool ok = true;
    for (int i = 0; ok && i < target->n_list; i++) ok = jassign(it, target->list[i], l->items[i]);
    return ok;
}

bool jassign(struct jinterp *it, const struct jnode *target, struct jval v) {
    if (it->status != TERN_OK) return false;
    if (target->kind == K_NAME) return jscope_set(it, it->scope, target->sym, v);
    if (target->kind == K_TUPLE) return assign_items(it, target, v);
    struct jval *ns = jscope_find(it, target->sym);
    it->pos = target->pos;
    if (!ns || ns->type != J_NS) {
        jfail(it, TERN_BAD_FORMAT, "cannot assign an attribute to '%.*s': it is no namespace",
              (int)MIN(it->j->syms[target->sym].len, (size_t)60), it->j->syms[target->sym].data);
        return false;
    }
    struct jval key = jstr_copy(it, target->name, false);
    struct jval *old = jdict_findz(ns->u.d, target->name);
    if (old) {
        *old = v;
        return true;
    }
    return key.type == J_STR && jdict_put(it, ns->u.d, key, v);
}

// Items of a loop after its condition.
static struct jlist *loop_items(struct jinterp *it, const struct jnode *n) {
    struct jval iterable = jeval(it, n->b);
    struct jlist *all = it->status == TERN_OK ? jiterate(it, iterable) : NULL;
    if (!all || !n->c) return all;
    struct jlist *kept = jlist_new(it, JL_LIST, 0);
    struct jscope *outer = it->scope, *inner = jscope_push(it, outer);
    for (size_t i = 0; inner && kept && i < all->len && jstep(it, 1); i++) {
        if (inner->captured && !(inner = jscope_push(it, outer))) break;
        inner->n = 0;
        it->scope = inner;
        if (jassign(it, n->a, all->items[i]) && jtruth(jeval(it, n->c))) jlist_push(it, kept, all->items[i]);
        it->scope = outer;
    }
    return it->status == TERN_OK ? kept : NULL;
}

static enum jflow exec_for(struct jinterp *it, const struct jnode *n) {
    struct jlist *items = loop_items(it, n);
    struct jloop *loop = items ? jalloc(it, 1, sizeof(*loop)) : NULL;
    if (!loop) return FLOW_NEXT;
    *loop = (struct jloop){.list = items};
    bool finished = false; // some pass ran to its end: in Jinja `else` asks for that
    struct jscope *outer = it->scope, *inner = jscope_push(it, outer);
    for (size_t i = 0; inner && i < items->len && jstep(it, 1); i++) {
        if (inner->captured && !(inner = jscope_push(it, outer))) break;
        inner->n = 0;
        it->scope = inner;
        loop->index0 = i;
        enum jflow flow = FLOW_NEXT;
        if (jassign(it, n->a, items->items[i]) &&
            jscope_set(it, inner, it->j->sym_loop, (struct jval){.type = J_LOOP, .u.loop = loop}))
            flow = jexec(it, n->d);
        it->scope = outer;
        finished |= flow == FLOW_NEXT;
        if (flow == FLOW_BREAK) break;
    }
    if (n->e && !finished && it->status == TERN_OK) return jexec(it, n->e);
    return FLOW_NEXT;
}

static enum jflow exec_if(struct jinterp *it, const struct jnode *n) {
    int i = 0;
    for (; i + 1 < n->n_list; i += 2) {
        struct jval cond = jeval(it, n->list[i]);
        if (it->status != TERN_OK) return FLOW_NEXT;
        if (jtruth(cond)) return jexec(it, n->list[i + 1]);
    }
    return i < n->n_list ? jexec(it, n->list[i]) : FLOW_NEXT;
}

struct jval jrun_block(struct jinterp *it, const struct jnode *body, struct jscope *scope) {
    struct jscope *outer = it->scope;
    struct jbuf *sink = it->sink, own = {0};
    if (!scope) return jval_undef;
    it->scope = scope;
    it->sink = &own;
    jexec(it, body);
    it->scope = outer;
    it->sink = sink;
    return jbuf_val(it, &own);
}

// A block's output through the filters in front of it.
static struct jval block_value(struct jinterp *it, const struct jnode *n) {
    struct jval text = jrun_block(it, n->d, jscope_push(it, it->scope)), outer = it->block_text;
    if (it->status != TERN_OK || !n->b) return text;
    it->block_text = text;
    text = jeval(it, n->b);
    it->block_text = outer;
    return text;
}

static enum jflow exec_with(struct jinterp *it, const struct jnode *n) {
    struct jscope *outer = it->scope, *inner = jscope_push(it, outer);
    for (int i = 0; inner && i + 1 < n->n_list && it->status == TERN_OK; i += 2) {
        struct jval v = jeval(it, n->list[i + 1]);
        it->scope = inner;
        jassign(it, n->list[i], v);
        it->scope = outer;
    }
    if (!inner || it->status != TERN_OK) return FLOW_NEXT;
    it->scope = inner;
    enum jflow flow = jexec(it, n->d);
    it->scope = outer;
    return flow;
}

static struct jval macro_value(struct jinterp *it, const struct jnode *n) {
    struct jmacro *m = jalloc(it, 1, sizeof(*m));
    if (!m) return jval_undef;
    capture(it->scope);
    *m = (struct jmacro){.node = n, .scope = it->scope};
    return (struct jval){.type = J_MACRO, .u.macro = m};
}

static void exec_call_block(struct jinterp *it, const struct jnode *n) {
    struct jcall c = {0};
    struct jval callee = jeval(it, n->a->a);
    if (it->status != TERN_OK || !jargs_eval(it, n->a->args, &c)) return;
    struct jkw *kw = jalloc(it, (size_t)c.n_kw + 1, sizeof(*kw));
    if (!kw) return;
    if (c.n_kw) memcpy(kw, c.kw, (size_t)c.n_kw * sizeof(*kw));
    kw[c.n_kw] = (struct jkw){STR("caller"), macro_value(it, n)};
    c.kw = kw;
    c.n_kw++;
    it->pos = n->pos;
    struct jval v = jcall_value(it, callee, &c);
    if (it->status == TERN_OK) jbuf_put_val(it, it->sink, v);
}

static enum jflow exec_body(struct jinterp *it, const struct jnode *n) {
    for (int i = 0; i < n->n_list && it->status == TERN_OK; i++) {
        enum jflow flow = jexec(it, n->list[i]);
        if (flow != FLOW_NEXT) return flow;
    }
    return FLOW_NEXT;
}

static enum jflow exec_node(struct jinterp *it, const struct jnode *n) {
    struct jval v;
    switch (n->kind) {
    case K_BODY: return exec_body(it, n);
    case K_DATA: jbuf_put_str(it, it->sink, n->value.u.s); break;
    case K_PRINT:
        v = jeval(it, n->a);
        if (it->status == TERN_OK) jbuf_put_val(it, it->sink, v);
        break;
    case K_IF: return exec_if(it, n);
    case K_FOR: return exec_for(it, n);
    case K_SET:
        v = jeval(it, n->b);
        jassign(it, n->a, v);
        break;
    case K_SET_BLOCK: jassign(it, n->a, block_value(it, n)); break;
    case K_MACRO: jscope_set(it, it->scope, n->sym, macro_value(it, n)); break;
    case K_CALL_BLOCK: exec_call_block(it, n); break;
    case K_FILTER_BLOCK:
        v = block_value(it, n);
        if (it->status == TERN_OK) jbuf_put_val(it, it->sink, v);
        break;
    case K_WITH: return exec_with(it, n);
    case K_SCOPE: {
        struct jscope *outer = it->scope;
        it->scope = jscope_push(it, outer);
        if (it->scope) jexec(it, n->d);
        it->scope = outer;
        break;
    }
    case K_BREAK: return FLOW_BREAK;
    case K_CONTINUE: return FLOW_CONTINUE;
    default: TERN_BUG("node kind %d is no statement", (int)n->kind);
    }
    return FLOW_NEXT;
}

enum jflow jexec(struct jinterp *it, const struct jnode *n) {
    if (!jstep(it, 1)) return FLOW_NEXT;
    if (it->depth >= JINJA_EVAL_DEPTH_MAX) {
        jfail(it, TERN_LIMIT, "blocks are nested more than %d deep (JINJA_EVAL_DEPTH_MAX)", JINJA_EVAL_DEPTH_MAX);
        return FLOW_NEXT;
    }
    it->depth++;
    it->pos = n->pos;
    enum jflow flow = exec_node(it, n);
    it->depth--;
    return flow;
}
