// Private to text/: the template interpreter's values, tree and helpers.
//
// Values are 16-byte tagged unions; what they point to lives in the render's arena (for literals: in the template's)
// and never changes after it was made, except dicts while being built, namespaces, loops, cyclers and iterators.
// Every string carries a taint byte per byte, so slices are views, and copies move both. NULL taint means clean.
// Failing: jfail() records the first error in the render; every loop and every caller checks `it->status`.
#pragma once
#include "base/base.h"
#include "text/text.h"

#define JINJA_EVAL_DEPTH_MAX 1000 // nested evaluations: tree depth times macro depth
#define JINJA_RANGE_MAX 100000    // items of one range(), as in Jinja's sandbox
#define JINJA_PARAMS_MAX 32       // parameters of a macro or a built-in; operands of a comparison chain
#define JINJA_ARGS_MAX 1024       // arguments of one call
#define JINJA_SYMS_MAX 4096       // different names in a template
#define JINJA_CLOCK_STEPS 2048    // steps between looks at the clock

enum jtype {
    J_MISSING, // internal: argument not given
    J_UNDEF,   // .s: the name that was looked up, for the message; may be NULL
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST, // also tuples, ranges, iterators and dict views: see jlist.kind
    J_DICT,
    J_NS,
    J_LOOP,
    J_MACRO,
    J_FUNC,   // built-in global
    J_METHOD, // built-in bound to a value
    J_CYCLER,
    J_JOINER,
};

struct jval {
    enum jtype type;
    union {
        bool b;
        int64_t i;
        double f;
        struct jstr *s;
        struct jlist *l;
        struct jdict *d; // J_DICT, and the attributes of J_NS
        struct jloop *loop;
        struct jmacro *macro;
        const struct jbuiltin *func;
        struct jmethod *method;
        struct jcycler *cycler;
        struct jjoiner *joiner;
    } u;
};

// A growing string. Strings made by concatenation keep a pointer to it, so that `x = x + y` in a loop appends in place.
struct jbuf {
    char *data;
    uint8_t *taint; // NULL until a tainted byte arrives
    size_t len, cap;
};
struct jstr {
    const char *data;
    const uint8_t *taint; // [len], 1: came from input; NULL: all clean
    size_t len;
    size_t n_runes; // code points; SIZE_MAX: not counted yet
    struct jbuf *own;
};

enum jlist_kind {
    JL_LIST,
    JL_TUPLE,
    JL_RANGE,
    JL_ITER, // one pass: pos moves; always true, has no length
    JL_KEYS,
    JL_VALUES,
    JL_ITEMS,
    JL_GROUP, // a tuple of groupby: .grouper, .list
};
struct jlist {
    enum jlist_kind kind;
    struct jval *items;
    size_t len, cap;
    size_t pos;   // JL_ITER
    int64_t r[3]; // JL_RANGE: start, stop, step
};
struct jpair {
    struct jval key, value;
};
struct jdict {
    struct jpair *pairs; // insertion order
    size_t len, cap;
};
struct jvar {
    int sym;
    struct jval value;
};
struct jscope {
    struct jscope *parent;
    struct jvar *vars;
    int n, cap;
    bool captured; // a macro or caller body looks into it: not reused by the next iteration
};
struct jloop {
    const struct jlist *list;
    size_t index0, start;
    struct jval changed;
    bool has_changed;
    int depth0;
};
struct jmacro {
    const struct jnode *node; // K_MACRO or K_CALL_BLOCK
    struct jscope *scope;     // where it was defined
};
struct jmethod {
    struct jval self;
    const struct jbuiltin *func; // or NULL: one that would change its object, which fails when called
};
struct jcycler {
    const struct jlist *items;
    size_t pos;
};
struct jjoiner {
    struct jval sep;
    bool used;
};

// Evaluated arguments of a call.
struct jkw {
    struct str name;
    struct jval value;
};
struct jcall {
    const struct jval *pos;
    int n_pos;
    const struct jkw *kw;
    int n_kw;
};
struct jinterp;
typedef struct jval (*jfn)(struct jinterp *it, struct jval self, const struct jcall *c);
struct jbuiltin {
    const char *name;
    jfn fn;
};

// ---- the tree

enum jkind {
    // expressions
    K_CONST,   // value
    K_NAME,    // sym
    K_LIST,    // list
    K_TUPLE,   // list
    K_DICT,    // list: key, value, key, value …
    K_UNARY,   // op '-' '+' '!' ; a
    K_BINARY,  // op; a, b
    K_CONCAT,  // list
    K_AND,     // a, b
    K_OR,      // a, b
    K_COMPARE, // list: operands; ops
    K_COND,    // a if b else c (c may be NULL)
    K_ATTR,    // a.name
    K_ITEM,    // a[b]
    K_SLICE,   // a[b:c:d]
    K_CALL,    // a(args)
    K_FILTER,  // a | func(args); a NULL in filter blocks: the block's text
    K_TEST,    // a is func(args)
    // statements
    K_BODY,         // list
    K_DATA,         // value
    K_PRINT,        // a
    K_IF,           // list: cond, body, cond, body, … [else body]
    K_FOR,          // target a, iterable b, condition c, body d, else body e
    K_SET,          // target a, value b
    K_SET_BLOCK,    // target a, filter chain b (may be NULL), body d
    K_MACRO,        // sym, params, body d
    K_CALL_BLOCK,   // params, call a, body d
    K_FILTER_BLOCK, // filter chain b, body d
    K_WITH,         // list: target, value, …; body d
    K_SCOPE,        // body d: generation blocks
    K_BREAK,
    K_CONTINUE,
    // targets: K_NAME, K_TUPLE of targets, K_NSREF (sym, name)
    K_NSREF,
};
enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

struct jarg {
    struct str name; // keyword arguments
    const struct jnode *value;
};
struct jargs {
    struct jnode **pos;
    int n_pos;
    struct jarg *kw;
    int n_kw;
    const struct jnode *dyn_pos, *dyn_kw; // *x, **x
};
struct jparam {
    int sym;
    struct str name;
    const struct jnode *init; // default, or NULL
};
struct jnode {
    enum jkind kind;
    enum jop op;
    uint32_t pos; // byte in the source
    bool negate;  // K_TEST: is not
    int sym;
    struct jnode *a, *b, *c, *d, *e;
    struct jnode **list;
    int n_list;
    enum jop *ops;
    struct jval value;
    struct str name;
    struct jargs *args;
    struct jparam *params;
    int n_params;
    const struct jbuiltin *func; // K_FILTER, K_TEST; NULL: unknown name, fails when reached
    bool takes_varargs, takes_kwargs, takes_caller;
};

struct jinja {
    struct arena arena;
    struct str source; // newlines normalised
    struct str *syms;  // names of variables
    int n_syms, cap_syms;
    const struct jnode *root;
    int sym_loop, sym_caller, sym_varargs, sym_kwargs;
};

// ---- one render

enum jflow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
struct jinterp {
    const struct jinja *j;
    struct arena arena;
    struct tern_err *err;
    enum tern_status status; // first failure
    uint64_t steps, steps_clock;
    uint64_t deadline_ns;
    int depth, macro_depth;
    uint32_t pos; // source byte being evaluated, for messages
    struct jscope *scope;
    struct jval *globals; // [n_syms]; J_MISSING where not set
    struct jbuf *sink;
    struct jval block_text; // of the filter block being filtered
    const uint8_t *ones;    // shared taint of input strings
    size_t n_ones;
    int64_t now_wall_s;
};

// jinja_value.c
// Records the first failure, with line and column; gives an undefined value.
#define jfail(it, code, ...)                                                                          \
    ((it)->status == TERN_OK                                                                          \
         ? (err_set_at((it)->err, (code), (int64_t)(it)->pos, __VA_ARGS__), jfail_done((it), (code))) \
         : jval_undef)
struct jval jfail_done(struct jinterp *it, enum tern_status code);
bool jstep(struct jinterp *it, size_t n); // charges n steps; false: over a limit
void *jalloc(struct jinterp *it, size_t n, size_t size);
struct jval jundef(struct jinterp *it, struct str name); // name is borrowed for the render
struct jval jfail_undef(struct jinterp *it, struct jval v);
struct jval jint(int64_t i);
struct jval jfloat(double f);
struct jval jbool(bool b);
extern const struct jval jval_none, jval_undef, jval_missing;
const char *jtype_name(struct jval v); // Python's name of the type
bool jtruth(struct jval v);
bool jequal(struct jinterp *it, struct jval a, struct jval b);
// <0, 0, >0; fails for types that do not order.
int jcompare(struct jinterp *it, struct jval a, struct jval b);
bool jnum(struct jval v, double *out);     // bool, int, float
bool jint_of(struct jval v, int64_t *out); // bool, int
struct jlist *jlist_new(struct jinterp *it, enum jlist_kind kind, size_t cap);
bool jlist_push(struct jinterp *it, struct jlist *l, struct jval v);
struct jval jlist_val(struct jlist *l);
struct jdict *jdict_new(struct jinterp *it, size_t cap);
struct jval *jdict_find(struct jinterp *it, const struct jdict *d, struct jval key);
struct jval *jdict_findz(const struct jdict *d, struct str key);
// Behind the others, unlooked: the caller knows that the key is not there.
bool jdict_append(struct jinterp *it, struct jdict *d, struct jval key, struct jval value);
bool jdict_put(struct jinterp *it, struct jdict *d, struct jval key, struct jval value);
bool jhashable(struct jval v);
// All items of an iterable as a list (may be shared, do not change); consumes iterators. NULL: failed.
struct jlist *jiterate(struct jinterp *it, struct jval v);
bool jcontains(struct jinterp *it, struct jval container, struct jval item);

// jinja_text.c
bool jbuf_put(struct jinterp *it, struct jbuf *b, const char *data, const uint8_t *taint, size_t len);
bool jbuf_puts(struct jinterp *it, struct jbuf *b, const char *z);
bool jbuf_put_str(struct jinterp *it, struct jbuf *b, const struct jstr *s);
bool jbuf_put_rune(struct jinterp *it, struct jbuf *b, uint32_t rune, bool tainted);
struct jval jbuf_val(struct jinterp *it, struct jbuf *b); // takes the buffer over
struct jval jstr_lit(struct jinterp *it, const char *z);
struct jval jstr_copy(struct jinterp *it, struct str s, bool tainted);
struct jval jstr_view(struct jinterp *it, const struct jstr *s, size_t begin, size_t len);
struct jval jstr_concat(struct jinterp *it, const struct jstr *a, const struct jstr *b);
size_t jrunes_count(struct str s);
size_t jstr_runes(struct jinterp *it, const struct jstr *s);
size_t jstr_offset(struct jinterp *it, const struct jstr *s, size_t rune); // byte offset of a code point
struct str jstr_str(const struct jstr *s);
struct jval jstr_slice(struct jinterp *it, const struct jstr *s, int64_t start, int64_t step, size_t n);
struct jval jstr_strip(struct jinterp *it, const struct jstr *s, const struct jstr *chars, bool left, bool right);
struct jval jstr_split(struct jinterp *it, const struct jstr *s, const struct jstr *sep, int64_t max, bool right);
struct jval jstr_splitlines(struct jinterp *it, const struct jstr *s, bool keep);
struct jval jstr_replace(struct jinterp *it, const struct jstr *s, const struct jstr *from, const struct jstr *to,
                         int64_t max);
struct jval jstr_join(struct jinterp *it, const struct jstr *sep, const struct jlist *l, bool strict);
struct jval jstr_repeat(struct jinterp *it, const struct jstr *s, int64_t n);
size_t jstr_rfind(struct jinterp *it, struct str hay, struct str needle, size_t from);

// jinja_case.c: code point properties and case mappings as Python has them (Unicode 14)
enum jprop {
    PROP_ALPHA,
    PROP_DECIMAL,
    PROP_DIGIT,
    PROP_NUMERIC,
    PROP_LOWER,
    PROP_UPPER,
    PROP_TITLE,
    PROP_SPACE,
    PROP_PRINT,
    PROP_COUNT
};
enum jcase { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_FOLD };
bool jrune_is(uint32_t r, enum jprop p);
int jrune_map(uint32_t r, enum jcase c, uint32_t out[3]); // code points written
struct jval jstr_case(struct jinterp *it, const struct jstr *s, enum jcase c);
struct jval jstr_capitalize(struct jinterp *it, const struct jstr *s);
struct jval jstr_title(struct jinterp *it, const struct jstr *s);        // str.title()
struct jval jstr_title_filter(struct jinterp *it, const struct jstr *s); // Jinja's |title
struct jval jstr_swapcase(struct jinterp *it, const struct jstr *s);
bool jstr_is_cased(struct jinterp *it, const struct jstr *s, enum jprop want);

// jinja_repr.c
struct jval jto_str(struct jinterp *it, struct jval v); // Python's str()
bool jbuf_put_val(struct jinterp *it, struct jbuf *b, struct jval v);
bool jbuf_put_repr(struct jinterp *it, struct jbuf *b, struct jval v);
struct jval jfilter_tojson(struct jinterp *it, struct jval self, const struct jcall *c);

// jinja_number.c
size_t jfloat_print(char out[40], double f); // Python's repr
#define JFLOAT_PRECISION_MAX 64
#define JFLOAT_TEXT_MAX 512 // a float has at most 309 digits before the point
// printf's %.*f, e, E, g or G (alt: with #), with a dot whatever the locale.
size_t jfloat_format(char out[JFLOAT_TEXT_MAX], char type, int prec, bool alt, double x);
struct jval jarith(struct jinterp *it, enum jop op, struct jval a, struct jval b);
struct jval jneg(struct jinterp *it, struct jval v, bool minus);
bool jparse_int(struct str s, int base, int64_t *out, bool *overflow);
bool jparse_float(struct str s, double *out);
struct jval jint_of_float(struct jinterp *it, double f);
double jround_half_even(double x, int digits);

// jinja_format.c
struct jval jformat_percent(struct jinterp *it, const struct jstr *fmt, struct jval args);
struct jval jformat_method(struct jinterp *it, struct jval self, const struct jcall *c);

// jinja_lex.c
enum jtok {
    T_END,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP,
};
enum jopc { // operators of T_OP
    O_ADD,
    O_SUB,
    O_MUL,
    O_DIV,
    O_FLOORDIV,
    O_MOD,
    O_POW,
    O_TILDE,
    O_LPAREN,
    O_RPAREN,
    O_LBRACKET,
    O_RBRACKET,
    O_LBRACE,
    O_RBRACE,
    O_EQ,
    O_NE,
    O_LT,
    O_LE,
    O_GT,
    O_GE,
    O_ASSIGN,
    O_DOT,
    O_COLON,
    O_COMMA,
    O_PIPE,
    O_SEMICOLON,
};
struct jtoken {
    enum jtok type;
    enum jopc op;
    uint32_t pos;
    struct str text; // data, name, decoded string
    int64_t integer;
    double number;
};
struct jlexer {
    struct str src;
    size_t pos;
    bool line_starting;
    enum { LEX_ROOT, LEX_VAR, LEX_BLOCK } state;
    struct jtoken queue[3];
    int q_head, q_len;
    char *brackets; // open ones
    int n_brackets;
    struct arena *arena;
    struct tern_err *err;
    enum tern_status status;
};
// Line and column (from 1, in code points) of a byte of the source.
void jinja_line_col(struct str source, size_t pos, int *line, int *col);
#define jlex_fail(l, code, at, ...)                                                                      \
    ((l)->status == TERN_OK                                                                              \
         ? (err_set_at((l)->err, (code), (int64_t)(at), __VA_ARGS__), jlex_fail_done((l), (code), (at))) \
         : false)
bool jlex_fail_done(struct jlexer *l, enum tern_status code, size_t pos); // false
bool jlex_next(struct jlexer *l, struct jtoken *out);
bool jrune_space(uint32_t r);

// jinja_parse.c, jinja_parse_expr.c
struct jparser {
    struct jlexer lex;
    struct jinja *j;
    struct arena *arena;
    struct jtoken cur, look;
    bool has_look;
    int depth;
    int n_loops;                 // enclosing for bodies of this function
    int n_cond;                  // enclosing conditions: unknown filters fail only when reached
    int16_t *sym_table;          // symbol + 1 by the name's hash
    struct jnode *macro;         // being parsed, or NULL
    const struct jnode *unknown; // first filter or test that nothing knows and no condition guards
};
enum tern_status jinja_parse(struct jinja *j, struct tern_err *err);
bool jparse_next(struct jparser *p);
bool jparse_peek(struct jparser *p);
#define jparse_fail(p, at, ...) jlex_fail(&(p)->lex, TERN_BAD_FORMAT, (at), __VA_ARGS__)
struct jnode *jparse_node(struct jparser *p, enum jkind kind, size_t pos);
bool jparse_is_op(const struct jparser *p, enum jopc op);
bool jparse_is_name(const struct jparser *p, const char *name);
bool jparse_skip_op(struct jparser *p, enum jopc op); // true: was there and is skipped (check status)
bool jparse_skip_name(struct jparser *p, const char *name);
bool jparse_expect_op(struct jparser *p, enum jopc op);
bool jparse_enter(struct jparser *p);
int jparse_sym(struct jparser *p, struct str name);
void *jparse_alloc(struct jparser *p, size_t n, size_t size);
struct jnode_list {
    struct jnode **items;
    int n, cap;
};
bool jparse_push(struct jparser *p, struct jnode_list *l, struct jnode *n);
struct jnode *jparse_expression(struct jparser *p, bool with_cond);
struct jnode *jparse_tuple(struct jparser *p, bool with_cond, bool explicit_parens, const char *end_name);
struct jnode *jparse_target(struct jparser *p, bool with_ns, const char *end_name);
struct jnode *jparse_filters(struct jparser *p, struct jnode *value, bool start_inline);
bool jparse_args(struct jparser *p, struct jargs **out);
#define JTOKEN_TEXT_MAX 64
const char *jtoken_text(const struct jtoken *t, char out[JTOKEN_TEXT_MAX]); // for messages

// jinja_eval.c
struct jval jeval(struct jinterp *it, const struct jnode *n);
struct jval jget_attr(struct jinterp *it, struct jval obj, struct str name);
// Attributes and methods of the type only, not its items; false: none of that name.
bool jtype_attr(struct jinterp *it, struct jval obj, struct str name, struct jval *out);
struct jval jget_item(struct jinterp *it, struct jval obj, struct jval key);
struct jval jget_path(struct jinterp *it, struct jval obj, struct jval path, struct jval dflt);
struct jval jslice(struct jinterp *it, struct jval obj, struct jval start, struct jval stop, struct jval step);
bool jcompare_op(struct jinterp *it, enum jop op, struct jval a, struct jval b);

// jinja_exec.c
enum jflow jexec(struct jinterp *it, const struct jnode *n);
struct jval *jscope_find(struct jinterp *it, int sym);
bool jscope_set(struct jinterp *it, struct jscope *s, int sym, struct jval v);
struct jscope *jscope_push(struct jinterp *it, struct jscope *parent);
bool jassign(struct jinterp *it, const struct jnode *target, struct jval v);

// jinja_call.c
bool jargs_eval(struct jinterp *it, const struct jargs *args, struct jcall *out);
struct jval jcall_value(struct jinterp *it, struct jval callee, const struct jcall *c);
// Binds arguments to n parameters by position and name; absent ones are J_MISSING. The first n_required must be there.
bool jargs_bind(struct jinterp *it, const struct jcall *c, const char *what, const char *const *params, int n,
                int n_required, struct jval *out);
bool jarg_int(struct jinterp *it, struct jval v, const char *what, int64_t dflt, int64_t *out);
const struct jstr *jarg_str(struct jinterp *it, struct jval v, const char *what); // NULL: failed
const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, int n, struct str name);
struct jval jrun_block(struct jinterp *it, const struct jnode *body, struct jscope *scope); // its output as a string

// tables: jinja_filters_text.c, jinja_filters_list.c, jinja_tests.c, jinja_methods.c, jinja_globals.c
const struct jbuiltin *jfilter_find(struct str name);
const struct jbuiltin *jfilter_list_find(struct str name);
const struct jbuiltin *jtest_find(struct str name);
const struct jbuiltin *jglobal_find(struct str name);
const struct jbuiltin *jmethod_find(struct jval self, struct str name, bool *mutates);

// jinja_input.c
enum tern_status jinja_value_from_json(struct jinterp *it, struct jval *out, struct str json, const char *what);
