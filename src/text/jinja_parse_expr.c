// The template parser, expressions: Jinja2's grammar, whose precedence from loose to tight is
//   if/else, or, and, not, comparison, + -, ~, * / // %, **, unary - +, postfix . [] (), filters and tests.
// Filters and tests are looked up here; an unknown one is an error unless a condition guards it.
#include "base/base.h"
#include "text/jinja_int.h"

static struct jnode *parse_or(struct jparser *p);
static struct jnode *parse_unary(struct jparser *p, bool with_filter);

static struct jnode *node2(struct jparser *p, enum jkind kind, size_t pos, struct jnode *a, struct jnode *b) {
    struct jnode *n = a && b ? jparse_node(p, kind, pos) : NULL;
    if (!n) return NULL;
    n->a = a;
    n->b = b;
    return n;
}

static struct jnode *node_const(struct jparser *p, size_t pos, struct jval v) {
    struct jnode *n = jparse_node(p, K_CONST, pos);
    if (n) n->value = v;
    return n;
}

static struct jnode *node_str(struct jparser *p, size_t pos, struct str text) {
    struct jstr *s = jparse_alloc(p, 1, sizeof(*s));
    if (!s) return NULL;
    *s = (struct jstr){.data = text.data, .len = text.len, .n_runes = jrunes_count(text)};
    return node_const(p, pos, (struct jval){.type = J_STR, .u.s = s});
}

static struct jnode *node_list(struct jparser *p, enum jkind kind, size_t pos, const struct jnode_list *l) {
    struct jnode *n = p->lex.status == TERN_OK ? jparse_node(p, kind, pos) : NULL;
    if (!n) return NULL;
    n->list = l->items;
    n->n_list = l->n;
    return n;
}

struct jnode *jparse_expression(struct jparser *p, bool with_cond) {
    if (!jparse_enter(p)) return NULL;
    size_t pos = p->cur.pos;
    const struct jnode *unknown = p->unknown;
    struct jnode *n = parse_or(p);
    while (n && with_cond && jparse_is_name(p, "if")) {
        p->unknown = unknown; // what the condition guards may be unknown
        if (!jparse_next(p)) break;
        p->n_cond++;
        struct jnode *cond = parse_or(p);
        p->n_cond--;
        struct jnode *c = node2(p, K_COND, pos, n, cond);
        if (c && jparse_skip_name(p, "else")) {
            p->n_cond++;
            c->c = jparse_expression(p, true);
            p->n_cond--;
        }
        n = c;
    }
    p->depth--;
    return p->lex.status == TERN_OK ? n : NULL;
}

static struct jnode *parse_not(struct jparser *p);

static struct jnode *parse_and(struct jparser *p) {
    size_t pos = p->cur.pos;
    struct jnode *n = parse_not(p);
    while (n && jparse_skip_name(p, "and")) n = node2(p, K_AND, pos, n, parse_not(p));
    return n;
}

static struct jnode *parse_or(struct jparser *p) {
    size_t pos = p->cur.pos;
    struct jnode *n = parse_and(p);
    while (n && jparse_skip_name(p, "or")) n = node2(p, K_OR, pos, n, parse_and(p));
    return n;
}

static struct jnode *parse_concat(struct jparser *p);

static struct jnode *parse_sum(struct jparser *p) {
    struct jnode *n = parse_concat(p);
    while (n && (jparse_is_op(p, O_ADD) || jparse_is_op(p, O_SUB))) {
        enum jop op = p->cur.op == O_ADD ? OP_ADD : OP_SUB;
        size_t pos = p->cur.pos;
        if (!jparse_next(p)) return NULL;
        n = node2(p, K_BINARY, pos, n, parse_concat(p));
        if (n) n->op = op;
    }
    return n;
}

// The comparison operator at the current token, which is skipped.
static bool skip_compare(struct jparser *p, enum jop *op) {
    static const struct {
        enum jopc token;
        enum jop op;
    } table[] = {{O_EQ, OP_EQ}, {O_NE, OP_NE}, {O_LT, OP_LT}, {O_LE, OP_LE}, {O_GT, OP_GT}, {O_GE, OP_GE}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (jparse_skip_op(p, table[i].token)) {
            *op = table[i].op;
            return true;
        }
    *op = OP_IN;
    if (jparse_skip_name(p, "in")) return true;
    if (!jparse_is_name(p, "not") || !jparse_peek(p)) return false;
    if (p->look.type != T_NAME || !str_eqz(p->look.text, "in")) return false;
    *op = OP_NOT_IN;
    return jparse_next(p) && jparse_next(p);
}

static struct jnode *parse_compare(struct jparser *p) {
    size_t pos = p->cur.pos;
    struct jnode *first = parse_sum(p);
    struct jnode_list l = {0};
    enum jop ops[JINJA_PARAMS_MAX];
    if (!first || !jparse_push(p, &l, first)) return NULL;
    while (p->lex.status == TERN_OK && skip_compare(p, &ops[l.n - 1])) {
        if (!jparse_push(p, &l, parse_sum(p))) return NULL;
        if (l.n == JINJA_PARAMS_MAX) {
            jlex_fail(&p->lex, TERN_LIMIT, pos, "a chain of more than %d comparisons", JINJA_PARAMS_MAX - 1);
            return NULL;
        }
    }
    if (p->lex.status != TERN_OK || l.n == 1) return p->lex.status == TERN_OK ? first : NULL;
    struct jnode *n = node_list(p, K_COMPARE, pos, &l);
    if (!n || !(n->ops = jparse_alloc(p, (size_t)l.n, sizeof(ops[0])))) return NULL;
    memcpy(n->ops, ops, (size_t)(l.n - 1) * sizeof(ops[0]));
    return n;
}

static struct jnode *parse_not(struct jparser *p) {
    size_t pos = p->cur.pos;
    if (!jparse_is_name(p, "not")) return parse_compare(p);
    if (!jparse_enter(p) || !jparse_next(p)) return NULL;
    struct jnode *a = parse_not(p);
    p->depth--;
    struct jnode *n = a ? jparse_node(p, K_UNARY, pos) : NULL;
    if (n) {
        n->sym = '!';
        n->a = a;
    }
    return n;
}

static struct jnode *parse_pow(struct jparser *p) {
    struct jnode *n = parse_unary(p, true);
    while (n && jparse_is_op(p, O_POW)) {
        size_t pos = p->cur.pos;
        if (!jparse_next(p)) return NULL;
        n = node2(p, K_BINARY, pos, n, parse_unary(p, true));
        if (n) n->op = OP_POW;
    }
    return n;
}

static struct jnode *parse_product(struct jparser *p) {
    struct jnode *n = parse_pow(p);
    while (n && p->cur.type == T_OP) {
        enum jop op;
        switch (p->cur.op) {
        case O_MUL: op = OP_MUL; break;
        case O_DIV: op = OP_DIV; break;
        case O_FLOORDIV: op = OP_FLOORDIV; break;
        case O_MOD: op = OP_MOD; break;
        default: return n;
        }
        size_t pos = p->cur.pos;
        if (!jparse_next(p)) return NULL;
        n = node2(p, K_BINARY, pos, n, parse_pow(p));
        if (n) n->op = op;
    }
    return n;
}

static struct jnode *parse_concat(struct jparser *p) {
    size_t pos = p->cur.pos;
    struct jnode *first = parse_product(p);
    if (!first || !jparse_is_op(p, O_TILDE)) return first;
    struct jnode_list l = {0};
    if (!jparse_push(p, &l, first)) return NULL;
    while (jparse_skip_op(p, O_TILDE))
        if (!jparse_push(p, &l, parse_product(p))) return NULL;
    return node_list(p, K_CONCAT, pos, &l);
}

static struct jnode *parse_list(struct jparser *p, size_t pos) {
    struct jnode_list l = {0};
    while (p->lex.status == TERN_OK && !jparse_is_op(p, O_RBRACKET)) {
        if (l.n > 0 && !jparse_expect_op(p, O_COMMA)) return NULL;
        if (jparse_is_op(p, O_RBRACKET)) break;
        if (!jparse_push(p, &l, jparse_expression(p, true))) return NULL;
    }
    return jparse_expect_op(p, O_RBRACKET) ? node_list(p, K_LIST, pos, &l) : NULL;
}

static struct jnode *parse_dict(struct jparser *p, size_t pos) {
    struct jnode_list l = {0};
    while (p->lex.status == TERN_OK && !jparse_is_op(p, O_RBRACE)) {
        if (l.n > 0 && !jparse_expect_op(p, O_COMMA)) return NULL;
        if (jparse_is_op(p, O_RBRACE)) break;
        if (!jparse_push(p, &l, jparse_expression(p, true)) || !jparse_expect_op(p, O_COLON)) return NULL;
        if (!jparse_push(p, &l, jparse_expression(p, true))) return NULL;
    }
    return jparse_expect_op(p, O_RBRACE) ? node_list(p, K_DICT, pos, &l) : NULL;
}

// Adjacent strings are one.
static struct jnode *parse_string(struct jparser *p) {
    size_t pos = p->cur.pos;
    struct str text = p->cur.text;
    if (!jparse_next(p)) return NULL;
    while (p->cur.type == T_STRING) {
        char *joined = jparse_alloc(p, text.len + p->cur.text.len + 1, 1);
        if (!joined) return NULL;
        if (text.len) memcpy(joined, text.data, text.len);
        if (p->cur.text.len) memcpy(joined + text.len, p->cur.text.data, p->cur.text.len);
        text = (struct str){joined, text.len + p->cur.text.len};
        if (!jparse_next(p)) return NULL;
    }
    return node_str(p, pos, text);
}

static struct jnode *parse_name(struct jparser *p, bool with_ns) {
    static const struct {
        const char *name;
        struct jval value;
    } consts[] = {
        {"true", {.type = J_BOOL, .u.b = true}},
        {"True", {.type = J_BOOL, .u.b = true}},
        {"false", {.type = J_BOOL, .u.b = false}},
        {"False", {.type = J_BOOL, .u.b = false}},
        {"none", {.type = J_NONE}},
        {"None", {.type = J_NONE}},
    };
    struct jtoken t = p->cur;
    if (!jparse_next(p)) return NULL;
    for (size_t i = 0; i < ARRAY_LEN(consts); i++)
        if (str_eqz(t.text, consts[i].name)) return node_const(p, t.pos, consts[i].value);
    struct jnode *n = jparse_node(p, K_NAME, t.pos);
    if (!n || (n->sym = jparse_sym(p, t.text)) < 0) return NULL;
    if (p->macro) {
        p->macro->takes_varargs |= n->sym == p->j->sym_varargs;
        p->macro->takes_kwargs |= n->sym == p->j->sym_kwargs;
        p->macro->takes_caller |= n->sym == p->j->sym_caller;
    }
    if (with_ns && jparse_is_op(p, O_DOT)) {
        if (!jparse_next(p)) return NULL;
        n->kind = K_NSREF;
        n->name = p->cur.text;
        if (p->cur.type != T_NAME) {
            jparse_fail(p, p->cur.pos, "expected an attribute's name after '.'");
            return NULL;
        }
        jparse_next(p);
    }
    return n;
}

static struct jnode *parse_primary(struct jparser *p, bool with_ns) {
    if (p->lex.status != TERN_OK) return NULL;
    struct jtoken t = p->cur;
    char text[JTOKEN_TEXT_MAX];
    switch (t.type) {
    case T_NAME: return parse_name(p, with_ns);
    case T_STRING: return parse_string(p);
    case T_INT:
    case T_FLOAT:
        if (!jparse_next(p)) return NULL;
        return node_const(p, t.pos, t.type == T_INT ? jint(t.integer) : jfloat(t.number));
    case T_OP:
        if (t.op != O_LPAREN && t.op != O_LBRACKET && t.op != O_LBRACE) break;
        if (!jparse_next(p)) return NULL;
        if (t.op == O_LBRACKET) return parse_list(p, t.pos);
        if (t.op == O_LBRACE) return parse_dict(p, t.pos);
        struct jnode *n = jparse_tuple(p, true, true, NULL);
        return n && jparse_expect_op(p, O_RPAREN) ? n : NULL;
    default: break;
    }
    jparse_fail(p, t.pos, "expected an expression, found %s", jtoken_text(&t, text));
    return NULL;
}

static bool push_kw(struct jparser *p, struct jargs *a, int *cap, struct str name, const struct jnode *value) {
    if (a->n_kw == *cap) {
        *cap = *cap ? *cap * 2 : 4;
        struct jarg *kw = jparse_alloc(p, (size_t)*cap, sizeof(*kw));
        if (!kw) return false;
        if (a->n_kw) memcpy(kw, a->kw, (size_t)a->n_kw * sizeof(*kw));
        a->kw = kw;
    }
    a->kw[a->n_kw++] = (struct jarg){name, value};
    return true;
}

bool jparse_args(struct jparser *p, struct jargs **out) {
    struct jargs *a = *out = jparse_alloc(p, 1, sizeof(*a));
    size_t pos = p->cur.pos;
    struct jnode_list l = {0};
    int cap_kw = 0;
    bool bad = false, first = true;
    if (!a || !jparse_expect_op(p, O_LPAREN)) return false;
    while (p->lex.status == TERN_OK && !bad && !jparse_is_op(p, O_RPAREN)) {
        if (!first && !jparse_expect_op(p, O_COMMA)) return false;
        if (!first && jparse_is_op(p, O_RPAREN)) break;
        first = false;
        bool is_kw = p->cur.type == T_NAME && jparse_peek(p) && p->look.type == T_OP && p->look.op == O_ASSIGN;
        if (jparse_skip_op(p, O_MUL)) {
            bad = a->dyn_pos || a->dyn_kw;
            a->dyn_pos = jparse_expression(p, true);
        } else if (jparse_skip_op(p, O_POW)) {
            bad = a->dyn_kw != NULL;
            a->dyn_kw = jparse_expression(p, true);
        } else if (is_kw) {
            struct str name = p->cur.text;
            bad = a->dyn_kw != NULL;
            if (!jparse_next(p) || !jparse_next(p)) return false;
            if (!push_kw(p, a, &cap_kw, name, jparse_expression(p, true))) return false;
        } else {
            bad = a->dyn_pos || a->dyn_kw || a->n_kw > 0;
            if (!jparse_push(p, &l, jparse_expression(p, true))) return false;
        }
    }
    if (bad) return jparse_fail(p, pos, "the arguments of this call are in the wrong order");
    a->pos = l.items;
    a->n_pos = l.n;
    return jparse_expect_op(p, O_RPAREN);
}

// Inside [ ]: an index or a slice. A slice is a K_SLICE node whose parts may be NULL.
static struct jnode *parse_subscript(struct jparser *p) {
    size_t pos = p->cur.pos;
    struct jnode *parts[3] = {0};
    int n = 0;
    for (;;) {
        bool empty = jparse_is_op(p, O_COLON) || jparse_is_op(p, O_RBRACKET) || jparse_is_op(p, O_COMMA);
        if (!empty && !(parts[n] = jparse_expression(p, true))) return NULL;
        if (n == 0 && !jparse_is_op(p, O_COLON)) {
            if (parts[0]) return parts[0];
            jparse_fail(p, pos, "expected an index");
            return NULL;
        }
        if (n == 2 || !jparse_skip_op(p, O_COLON)) break;
        n++;
    }
    struct jnode *s = p->lex.status == TERN_OK ? jparse_node(p, K_SLICE, pos) : NULL;
    if (!s) return NULL;
    s->b = parts[0];
    s->c = parts[1];
    s->d = parts[2];
    return s;
}

static struct jnode *parse_item(struct jparser *p, struct jnode *obj) {
    size_t pos = p->cur.pos;
    struct jnode_list l = {0};
    if (!jparse_next(p)) return NULL;
    while (p->lex.status == TERN_OK && !jparse_is_op(p, O_RBRACKET)) {
        if (l.n > 0 && !jparse_expect_op(p, O_COMMA)) return NULL;
        if (!jparse_push(p, &l, parse_subscript(p))) return NULL;
    }
    if (!jparse_expect_op(p, O_RBRACKET)) return NULL;
    if (l.n == 1 && l.items[0]->kind == K_SLICE && !l.items[0]->a) {
        l.items[0]->a = obj;
        return l.items[0];
    }
    for (int i = 0; i < l.n; i++)
        if (l.items[i]->kind == K_SLICE && !l.items[i]->a) {
            jparse_fail(p, pos, "a slice cannot be one of several indices");
            return NULL;
        }
    return node2(p, K_ITEM, pos, obj, l.n == 1 ? l.items[0] : node_list(p, K_TUPLE, pos, &l));
}

static struct jnode *parse_attr(struct jparser *p, struct jnode *obj) {
    size_t pos = p->cur.pos;
    if (!jparse_next(p)) return NULL;
    struct jtoken t = p->cur;
    if (t.type == T_INT) {
        jparse_next(p);
        return node2(p, K_ITEM, pos, obj, node_const(p, t.pos, jint(t.integer)));
    }
    if (t.type != T_NAME) {
        jparse_fail(p, t.pos, "expected an attribute's name or number after '.'");
        return NULL;
    }
    struct jnode *n = jparse_node(p, K_ATTR, pos);
    if (!n || !jparse_next(p)) return NULL;
    n->a = obj;
    n->name = t.text;
    return n;
}

static struct jnode *parse_call(struct jparser *p, struct jnode *callee) {
    struct jnode *n = jparse_node(p, K_CALL, p->cur.pos);
    if (!n || !jparse_args(p, &n->args)) return NULL;
    n->a = callee;
    return n;
}

static struct jnode *parse_postfix(struct jparser *p, struct jnode *n) {
    while (n && p->cur.type == T_OP) {
        if (p->cur.op == O_DOT)
            n = parse_attr(p, n);
        else if (p->cur.op == O_LBRACKET)
            n = parse_item(p, n);
        else if (p->cur.op == O_LPAREN)
            n = parse_call(p, n);
        else
            break;
    }
    return p->lex.status == TERN_OK ? n : NULL;
}

// A filter's or test's name, which may be dotted.
static bool parse_dotted(struct jparser *p, struct str *name) {
    char text[128];
    size_t n = 0, pos = p->cur.pos;
    do {
        if (p->cur.type != T_NAME) return jparse_fail(p, p->cur.pos, "expected a name");
        if (n + p->cur.text.len + 1 > sizeof(text))
            return jlex_fail(&p->lex, TERN_LIMIT, pos, "the name is longer than %zu bytes", sizeof(text) - 1);
        if (n > 0) text[n++] = '.';
        memcpy(text + n, p->cur.text.data, p->cur.text.len);
        n += p->cur.text.len;
    } while (jparse_next(p) && jparse_skip_op(p, O_DOT));
    char *copy = jparse_alloc(p, n + 1, 1);
    if (!copy) return false;
    memcpy(copy, text, n);
    *name = (struct str){copy, n};
    return p->lex.status == TERN_OK;
}

static void note_unknown(struct jparser *p, const struct jnode *n) {
    if (!n->func && p->n_cond == 0 && !p->unknown) p->unknown = n;
}

struct jnode *jparse_filters(struct jparser *p, struct jnode *value, bool start_inline) {
    struct jnode *n = value;
    while (p->lex.status == TERN_OK && (start_inline || jparse_is_op(p, O_PIPE))) {
        if (!start_inline && !jparse_next(p)) return NULL;
        start_inline = false;
        struct jnode *f = jparse_node(p, K_FILTER, p->cur.pos);
        if (!f || !parse_dotted(p, &f->name)) return NULL;
        if (jparse_is_op(p, O_LPAREN) && !jparse_args(p, &f->args)) return NULL;
        f->a = n;
        f->func = jfilter_find(f->name);
        note_unknown(p, f);
        n = f;
    }
    return p->lex.status == TERN_OK ? n : NULL;
}

// An argument of a test may follow without brackets: "is divisibleby 3".
static bool starts_test_arg(const struct jparser *p) {
    switch (p->cur.type) {
    case T_NAME: return !jparse_is_name(p, "else") && !jparse_is_name(p, "or") && !jparse_is_name(p, "and");
    case T_STRING:
    case T_INT:
    case T_FLOAT: return true;
    case T_OP: return p->cur.op == O_LBRACKET || p->cur.op == O_LBRACE;
    default: return false;
    }
}

static struct jnode *parse_test(struct jparser *p, struct jnode *value) {
    struct jnode *n = jparse_node(p, K_TEST, p->cur.pos);
    if (!n || !jparse_next(p)) return NULL;
    n->negate = jparse_skip_name(p, "not");
    n->a = value;
    if (!parse_dotted(p, &n->name)) return NULL;
    n->func = jtest_find(n->name);
    note_unknown(p, n);
    if (jparse_is_op(p, O_LPAREN)) return jparse_args(p, &n->args) ? n : NULL;
    if (!starts_test_arg(p)) return n;
    if (jparse_is_name(p, "is")) {
        jparse_fail(p, p->cur.pos, "tests cannot be chained with 'is'");
        return NULL;
    }
    struct jnode_list l = {0};
    n->args = jparse_alloc(p, 1, sizeof(*n->args));
    if (!n->args || !jparse_push(p, &l, parse_postfix(p, parse_primary(p, false)))) return NULL;
    n->args->pos = l.items;
    n->args->n_pos = 1;
    return n;
}

static struct jnode *parse_filter_chain(struct jparser *p, struct jnode *n) {
    while (n && p->lex.status == TERN_OK) {
        if (jparse_is_op(p, O_PIPE))
            n = jparse_filters(p, n, false);
        else if (jparse_is_name(p, "is"))
            n = parse_test(p, n);
        else if (jparse_is_op(p, O_LPAREN))
            n = parse_call(p, n);
        else
            break;
    }
    return p->lex.status == TERN_OK ? n : NULL;
}

static struct jnode *parse_unary(struct jparser *p, bool with_filter) {
    struct jnode *n;
    size_t pos = p->cur.pos;
    if (jparse_is_op(p, O_SUB) || jparse_is_op(p, O_ADD)) {
        int sign = p->cur.op == O_SUB ? '-' : '+';
        if (!jparse_enter(p) || !jparse_next(p)) return NULL;
        struct jnode *a = parse_unary(p, false);
        p->depth--;
        n = a ? jparse_node(p, K_UNARY, pos) : NULL;
        if (!n) return NULL;
        n->sym = sign;
        n->a = a;
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    return n && with_filter ? parse_filter_chain(p, n) : n;
}

static bool is_tuple_end(const struct jparser *p, const char *end_name) {
    return p->cur.type == T_VAR_END || p->cur.type == T_BLOCK_END || jparse_is_op(p, O_RPAREN) ||
           (end_name && jparse_is_name(p, end_name));
}

static struct jnode *parse_items(struct jparser *p, bool simple, bool with_cond, bool explicit_parens, bool with_ns,
                                 const char *end_name) {
    size_t pos = p->cur.pos;
    struct jnode_list l = {0};
    bool is_tuple = false;
    for (;;) {
        if (l.n > 0 && !jparse_expect_op(p, O_COMMA)) return NULL;
        if (is_tuple_end(p, end_name)) break;
        if (!jparse_push(p, &l, simple ? parse_primary(p, with_ns) : jparse_expression(p, with_cond))) return NULL;
        if (p->lex.status != TERN_OK) return NULL;
        if (!jparse_is_op(p, O_COMMA)) break;
        is_tuple = true;
    }
    if (!is_tuple && l.n == 1) return l.items[0];
    if (!is_tuple && !explicit_parens) {
        char text[JTOKEN_TEXT_MAX];
        jparse_fail(p, p->cur.pos, "expected an expression, found %s", jtoken_text(&p->cur, text));
        return NULL;
    }
    return node_list(p, K_TUPLE, pos, &l);
}

struct jnode *jparse_tuple(struct jparser *p, bool with_cond, bool explicit_parens, const char *end_name) {
    if (p->lex.status != TERN_OK) return NULL;
    return parse_items(p, false, with_cond, explicit_parens, false, end_name);
}

static bool can_assign(const struct jnode *n) {
    if (n->kind == K_NAME || n->kind == K_NSREF) return true;
    if (n->kind != K_TUPLE) return false;
    for (int i = 0; i < n->n_list; i++)
        if (!can_assign(n->list[i])) return false;
    return true;
}

struct jnode *jparse_target(struct jparser *p, bool with_ns, const char *end_name) {
    if (p->lex.status != TERN_OK) return NULL;
    struct jnode *n = parse_items(p, true, false, false, with_ns, end_name);
    if (!n || can_assign(n)) return n;
    jparse_fail(p, n->pos, "this cannot be assigned to");
    return NULL;
}
