// The template parser, statements: tokens to a tree, by recursive descent with a depth limit. Expressions are in
// jinja_parse_expr.c. The grammar is Jinja2's; blocks that load other templates are refused by name.
#include "base/base.h"
#include "text/jinja_int.h"

#define SYM_TABLE_SIZE (JINJA_SYMS_MAX * 2) // open addressing, at most half full

void *jparse_alloc(struct jparser *p, size_t n, size_t size) {
    void *out = arena_calloc(p->arena, n, size);
    if (out) return out;
    size_t bytes;
    if (!size_mul(n, size, &bytes) ||
        bytes > JINJA_MEMORY_BYTES_MAX - MIN(p->arena->bytes_total + 128, JINJA_MEMORY_BYTES_MAX))
        jlex_fail(&p->lex, TERN_LIMIT, p->cur.pos, "the template needs more than %u MiB when parsed",
                  JINJA_MEMORY_BYTES_MAX >> 20);
    else
        jlex_fail(&p->lex, TERN_NO_MEMORY, p->cur.pos, "out of memory while parsing the template");
    return NULL;
}

struct jnode *jparse_node(struct jparser *p, enum jkind kind, size_t pos) {
    struct jnode *n = jparse_alloc(p, 1, sizeof(*n));
    if (!n) return NULL;
    n->kind = kind;
    n->pos = (uint32_t)pos;
    n->sym = -1;
    return n;
}

bool jparse_push(struct jparser *p, struct jnode_list *l, struct jnode *n) {
    if (l->n == l->cap) {
        int cap = l->cap ? l->cap * 2 : 4;
        struct jnode **items = jparse_alloc(p, (size_t)cap, sizeof(struct jnode *));
        if (!items) return false;
        if (l->n) memcpy(items, l->items, (size_t)l->n * sizeof(*items));
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = n;
    return true;
}

bool jparse_next(struct jparser *p) {
    if (p->has_look) {
        p->cur = p->look;
        p->has_look = false;
        return p->lex.status == TERN_OK;
    }
    return jlex_next(&p->lex, &p->cur);
}

bool jparse_peek(struct jparser *p) {
    if (!p->has_look) p->has_look = jlex_next(&p->lex, &p->look);
    return p->has_look;
}

const char *jtoken_text(const struct jtoken *t, char out[JTOKEN_TEXT_MAX]) {
    static const char *const names[] = {
        [T_END] = "end of template", [T_DATA] = "text",      [T_VAR_BEGIN] = "'{{'", [T_VAR_END] = "'}}'",
        [T_BLOCK_BEGIN] = "'{%'",    [T_BLOCK_END] = "'%}'", [T_STRING] = "a string"};
    if (t->type < ARRAY_LEN(names) && names[t->type]) return names[t->type];
    size_t n = MIN(t->text.len, (size_t)40);
    n -= utf8_incomplete_tail((struct str){t->text.data, n});
    out[0] = '\'';
    memcpy(out + 1, t->text.data, n);
    memcpy(out + 1 + n, "'", 2);
    return out;
}

bool jparse_is_op(const struct jparser *p, enum jopc op) { return p->cur.type == T_OP && p->cur.op == op; }
bool jparse_is_name(const struct jparser *p, const char *name) {
    return p->cur.type == T_NAME && str_eqz(p->cur.text, name);
}
bool jparse_skip_op(struct jparser *p, enum jopc op) {
    if (!jparse_is_op(p, op)) return false;
    jparse_next(p);
    return true;
}
bool jparse_skip_name(struct jparser *p, const char *name) {
    if (!jparse_is_name(p, name)) return false;
    jparse_next(p);
    return true;
}

static bool fail_expected(struct jparser *p, const char *what) {
    char text[JTOKEN_TEXT_MAX];
    return jparse_fail(p, p->cur.pos, "expected %s, found %s", what, jtoken_text(&p->cur, text));
}

bool jparse_expect_op(struct jparser *p, enum jopc op) {
    static const char *const names[] = {
        [O_RPAREN] = "')'", [O_RBRACKET] = "']'", [O_RBRACE] = "'}'", [O_LPAREN] = "'('", [O_LBRACKET] = "'['",
        [O_LBRACE] = "'{'", [O_ASSIGN] = "'='",   [O_COLON] = "':'",  [O_COMMA] = "','"};
    if (p->lex.status != TERN_OK) return false;
    if (!jparse_is_op(p, op)) return fail_expected(p, op < ARRAY_LEN(names) && names[op] ? names[op] : "an operator");
    return jparse_next(p);
}

static bool expect_type(struct jparser *p, enum jtok type, const char *what) {
    if (p->lex.status != TERN_OK) return false;
    return p->cur.type == type ? jparse_next(p) : fail_expected(p, what);
}

bool jparse_enter(struct jparser *p) {
    if (p->lex.status != TERN_OK) return false;
    if (p->depth == JINJA_DEPTH_MAX)
        return jlex_fail(&p->lex, TERN_LIMIT, p->cur.pos, "nested more than %d deep (JINJA_DEPTH_MAX)",
                         JINJA_DEPTH_MAX);
    p->depth++;
    return true;
}

int jparse_sym(struct jparser *p, struct str name) {
    struct jinja *j = p->j;
    if (!p->sym_table && !(p->sym_table = jparse_alloc(p, SYM_TABLE_SIZE, sizeof(*p->sym_table)))) return -1;
    uint64_t slot = hash_bytes(name.data, name.len, 0) % SYM_TABLE_SIZE;
    for (; p->sym_table[slot] > 0; slot = (slot + 1) % SYM_TABLE_SIZE)
        if (str_eq(j->syms[p->sym_table[slot] - 1], name)) return p->sym_table[slot] - 1;
    if (j->n_syms == JINJA_SYMS_MAX) {
        jlex_fail(&p->lex, TERN_LIMIT, p->cur.pos, "more than %d different names", JINJA_SYMS_MAX);
        return -1;
    }
    if (j->n_syms == j->cap_syms) {
        int cap = j->cap_syms ? j->cap_syms * 2 : 32;
        struct str *syms = jparse_alloc(p, (size_t)cap, sizeof(*syms));
        if (!syms) return -1;
        if (j->n_syms) memcpy(syms, j->syms, (size_t)j->n_syms * sizeof(*syms));
        j->syms = syms;
        j->cap_syms = cap;
    }
    j->syms[j->n_syms] = name;
    p->sym_table[slot] = (int16_t)(j->n_syms + 1);
    return j->n_syms++;
}

static struct jnode *parse_statement(struct jparser *p);

static bool is_end_name(const struct jparser *p, const char *const *ends) {
    for (; *ends; ends++)
        if (jparse_is_name(p, *ends)) return true;
    return false;
}

// Template text and statements up to a tag that starts with one of `ends` (NULL: the template's end). The tag's name is
// then the current token.
static struct jnode *parse_body(struct jparser *p, const char *const *ends) {
    static const char *const no_ends[] = {NULL};
    size_t start = p->cur.pos;
    if (!jparse_enter(p)) return NULL;
    struct jnode_list l = {0};
    while (p->lex.status == TERN_OK && p->cur.type != T_END) {
        struct jnode *n = NULL;
        if (p->cur.type == T_DATA) {
            n = jparse_node(p, K_DATA, p->cur.pos);
            struct jstr *s = jparse_alloc(p, 1, sizeof(*s));
            if (!n || !s) break;
            *s = (struct jstr){.data = p->cur.text.data, .len = p->cur.text.len, .n_runes = jrunes_count(p->cur.text)};
            n->value = (struct jval){.type = J_STR, .u.s = s};
            jparse_next(p);
        } else if (p->cur.type == T_VAR_BEGIN) {
            n = jparse_node(p, K_PRINT, p->cur.pos);
            if (!n || !jparse_next(p)) break;
            n->a = jparse_tuple(p, true, false, NULL);
            expect_type(p, T_VAR_END, "'}}'");
        } else { // T_BLOCK_BEGIN: the lexer gives nothing else outside tags
            if (!jparse_next(p)) break;
            if (is_end_name(p, ends ? ends : no_ends)) goto done;
            n = parse_statement(p);
            expect_type(p, T_BLOCK_END, "'%}'");
        }
        if (!n || !jparse_push(p, &l, n)) break;
    }
    if (p->lex.status == TERN_OK && ends)
        jparse_fail(p, start, "this block is never closed: expected {%% %s %%}", ends[0]);
done:
    p->depth--;
    if (p->lex.status != TERN_OK) return NULL;
    struct jnode *body = jparse_node(p, K_BODY, start);
    if (!body) return NULL;
    body->list = l.items;
    body->n_list = l.n;
    return body;
}

// The body of a block statement: its tag's end, then statements up to one of `ends`.
static struct jnode *parse_block(struct jparser *p, const char *const *ends) {
    if (p->lex.status != TERN_OK) return NULL;
    jparse_skip_op(p, O_COLON);
    if (!expect_type(p, T_BLOCK_END, "'%}'")) return NULL;
    return parse_body(p, ends);
}

static struct jnode *parse_block_to(struct jparser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    struct jnode *body = parse_block(p, ends);
    if (body) jparse_next(p);
    return body;
}

static struct jnode *parse_if(struct jparser *p, struct jnode *n) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jnode_list l = {0};
    p->n_cond++;
    for (;;) {
        if (!jparse_push(p, &l, jparse_tuple(p, false, false, NULL)) || !jparse_push(p, &l, parse_block(p, ends)))
            break;
        if (p->lex.status != TERN_OK) break;
        if (jparse_skip_name(p, "elif")) continue;
        if (jparse_skip_name(p, "else"))
            jparse_push(p, &l, parse_block_to(p, "endif"));
        else
            jparse_next(p);
        break;
    }
    p->n_cond--;
    n->list = l.items;
    n->n_list = l.n;
    return n;
}

static struct jnode *parse_for(struct jparser *p, struct jnode *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    n->a = jparse_target(p, false, "in");
    if (p->lex.status != TERN_OK) return NULL;
    if (!jparse_skip_name(p, "in")) {
        fail_expected(p, "'in'");
        return NULL;
    }
    n->b = jparse_tuple(p, false, false, "recursive");
    if (jparse_skip_name(p, "if")) n->c = jparse_expression(p, true);
    if (jparse_is_name(p, "recursive")) {
        jlex_fail(&p->lex, TERN_UNSUPPORTED, p->cur.pos, "recursive loops are not supported");
        return NULL;
    }
    p->n_loops++;
    n->d = parse_block(p, ends);
    p->n_loops--;
    if (!n->d) return NULL;
    if (jparse_skip_name(p, "else"))
        n->e = parse_block_to(p, "endfor");
    else
        jparse_next(p);
    return n;
}

static struct jnode *parse_set(struct jparser *p, struct jnode *n) {
    n->a = jparse_target(p, true, NULL);
    if (p->lex.status != TERN_OK) return NULL;
    if (jparse_skip_op(p, O_ASSIGN)) {
        n->b = jparse_tuple(p, true, false, NULL);
        return n;
    }
    n->kind = K_SET_BLOCK;
    if (jparse_is_op(p, O_PIPE)) n->b = jparse_filters(p, NULL, false);
    n->d = parse_block_to(p, "endset");
    return n;
}

static bool parse_signature(struct jparser *p, struct jnode *n) {
    struct jparam params[JINJA_PARAMS_MAX];
    int count = 0;
    if (!jparse_expect_op(p, O_LPAREN)) return false;
    while (p->lex.status == TERN_OK && !jparse_is_op(p, O_RPAREN)) {
        if (count > 0 && !jparse_expect_op(p, O_COMMA)) return false;
        if (p->cur.type != T_NAME) return fail_expected(p, "a parameter name");
        if (count == JINJA_PARAMS_MAX)
            return jlex_fail(&p->lex, TERN_LIMIT, p->cur.pos, "more than %d parameters", JINJA_PARAMS_MAX);
        struct jparam *x = &params[count++];
        *x = (struct jparam){.sym = jparse_sym(p, p->cur.text), .name = p->cur.text};
        jparse_next(p);
        if (jparse_skip_op(p, O_ASSIGN))
            x->init = jparse_expression(p, true);
        else if (count > 1 && params[count - 2].init)
            return jparse_fail(p, p->cur.pos, "a parameter without default follows one with a default");
    }
    n->params = jparse_alloc(p, (size_t)count + 1, sizeof(*n->params));
    if (!n->params) return false;
    if (count) memcpy(n->params, params, (size_t)count * sizeof(params[0]));
    n->n_params = count;
    return jparse_expect_op(p, O_RPAREN);
}

// The body of a macro or call block: a function of its own, with its own loops and special names.
static struct jnode *parse_function(struct jparser *p, struct jnode *n, const char *end) {
    struct jnode *outer = p->macro;
    int n_loops = p->n_loops;
    p->macro = n;
    p->n_loops = 0;
    n->d = parse_block_to(p, end);
    p->n_loops = n_loops;
    p->macro = outer;
    for (int i = 0; i < n->n_params && n->takes_caller; i++)
        if (str_eqz(n->params[i].name, "caller") && !n->params[i].init)
            jparse_fail(p, n->pos, "the parameter 'caller' needs a default");
    if (outer) {
        outer->takes_varargs |= n->takes_varargs;
        outer->takes_kwargs |= n->takes_kwargs;
        outer->takes_caller |= n->takes_caller;
    }
    return n;
}

static struct jnode *parse_macro(struct jparser *p, struct jnode *n) {
    if (p->cur.type != T_NAME) {
        fail_expected(p, "the macro's name");
        return NULL;
    }
    n->name = p->cur.text;
    n->sym = jparse_sym(p, n->name);
    if (!jparse_next(p) || !parse_signature(p, n)) return NULL;
    return parse_function(p, n, "endmacro");
}

static struct jnode *parse_call_block(struct jparser *p, struct jnode *n) {
    if (jparse_is_op(p, O_LPAREN) && !parse_signature(p, n)) return NULL;
    size_t pos = p->cur.pos;
    n->a = jparse_expression(p, true);
    if (!n->a) return NULL;
    if (n->a->kind != K_CALL) {
        jparse_fail(p, pos, "expected a call after 'call'");
        return NULL;
    }
    n->name = STR("caller");
    return parse_function(p, n, "endcall");
}

static struct jnode *parse_with(struct jparser *p, struct jnode *n) {
    struct jnode_list l = {0};
    while (p->lex.status == TERN_OK && p->cur.type != T_BLOCK_END) {
        if (l.n > 0 && !jparse_expect_op(p, O_COMMA)) return NULL;
        if (!jparse_push(p, &l, jparse_target(p, false, NULL))) return NULL;
        if (!jparse_expect_op(p, O_ASSIGN) || !jparse_push(p, &l, jparse_expression(p, true))) return NULL;
    }
    n->list = l.items;
    n->n_list = l.n;
    n->d = parse_block_to(p, "endwith");
    return n;
}

static struct jnode *parse_filter_block(struct jparser *p, struct jnode *n) {
    n->b = jparse_filters(p, NULL, true);
    n->d = parse_block_to(p, "endfilter");
    return n;
}

static struct jnode *parse_generation(struct jparser *p, struct jnode *n) {
    int n_loops = p->n_loops; // a block of its own: loops outside cannot be left from inside, as in transformers
    p->n_loops = 0;
    n->d = parse_block_to(p, "endgeneration");
    p->n_loops = n_loops;
    return n;
}

static struct jnode *parse_loop_control(struct jparser *p, struct jnode *n) {
    if (p->n_loops > 0) return n;
    jparse_fail(p, n->pos, "'%s' outside a loop", n->kind == K_BREAK ? "break" : "continue");
    return NULL;
}

static struct jnode *parse_print(struct jparser *p, struct jnode *n) {
    struct jnode_list l = {0};
    do {
        if (!jparse_push(p, &l, jparse_expression(p, true))) return NULL;
    } while (jparse_skip_op(p, O_COMMA));
    n->a = p->lex.status == TERN_OK ? jparse_node(p, K_CONCAT, n->pos) : NULL;
    if (!n->a) return NULL;
    n->a->list = l.items;
    n->a->n_list = l.n;
    return n;
}

static struct jnode *parse_statement(struct jparser *p) {
    static const struct {
        const char *name;
        enum jkind kind;
        struct jnode *(*parse)(struct jparser *, struct jnode *);
    } table[] = {
        {"if", K_IF, parse_if},
        {"for", K_FOR, parse_for},
        {"set", K_SET, parse_set},
        {"macro", K_MACRO, parse_macro},
        {"call", K_CALL_BLOCK, parse_call_block},
        {"filter", K_FILTER_BLOCK, parse_filter_block},
        {"with", K_WITH, parse_with},
        {"generation", K_SCOPE, parse_generation},
        {"break", K_BREAK, parse_loop_control},
        {"continue", K_CONTINUE, parse_loop_control},
        {"print", K_PRINT, parse_print},
    };
    static const char *const refused[] = {"block", "extends", "include", "import", "from", "do", "autoescape", "trans"};
    if (p->lex.status != TERN_OK) return NULL;
    size_t pos = p->cur.pos;
    if (p->cur.type != T_NAME) {
        fail_expected(p, "a statement's name");
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (!jparse_is_name(p, table[i].name)) continue;
        struct jnode *n = jparse_node(p, table[i].kind, pos);
        if (!n || !jparse_next(p)) return NULL;
        n = table[i].parse(p, n);
        return p->lex.status == TERN_OK ? n : NULL;
    }
    char text[JTOKEN_TEXT_MAX];
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (jparse_is_name(p, refused[i])) {
            jlex_fail(&p->lex, TERN_UNSUPPORTED, pos, "the statement '%s' is not supported in chat templates",
                      refused[i]);
            return NULL;
        }
    jparse_fail(p, pos, "unknown statement %s", jtoken_text(&p->cur, text));
    return NULL;
}

enum tern_status jinja_parse(struct jinja *j, struct tern_err *err) {
    struct jparser p = {.j = j, .arena = &j->arena};
    p.lex = (struct jlexer){.src = j->source, .line_starting = true, .arena = &j->arena, .err = err};
    j->sym_loop = jparse_sym(&p, STR("loop"));
    j->sym_caller = jparse_sym(&p, STR("caller"));
    j->sym_varargs = jparse_sym(&p, STR("varargs"));
    j->sym_kwargs = jparse_sym(&p, STR("kwargs"));
    if (jparse_next(&p)) j->root = parse_body(&p, NULL);
    if (p.lex.status == TERN_OK && p.unknown)
        jlex_fail(&p.lex, TERN_UNSUPPORTED, p.unknown->pos, "no %s named '%.*s' is known here",
                  p.unknown->kind == K_FILTER ? "filter" : "test", (int)MIN(p.unknown->name.len, (size_t)60),
                  p.unknown->name.data);
    return p.lex.status;
}
