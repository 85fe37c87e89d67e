// The tests of `is`: Jinja's whole list except those about HTML escaping, which never applies here.
#include "base/base.h"
#include "text/jinja_int.h"

typedef const struct jcall *args_t;

static bool no_args(struct jinterp *it, args_t c, const char *what) {
    return jargs_bind(it, c, what, NULL, 0, 0, NULL);
}

static struct jval t_defined(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "defined") && v.type != J_UNDEF);
}
static struct jval t_undefined(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "undefined") && v.type == J_UNDEF);
}
static struct jval t_none(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "none") && v.type == J_NONE);
}
static struct jval t_string(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "string") && v.type == J_STR);
}
static struct jval t_mapping(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "mapping") && v.type == J_DICT);
}
static struct jval t_boolean(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "boolean") && v.type == J_BOOL);
}
static struct jval t_true(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "true") && v.type == J_BOOL && v.u.b);
}
static struct jval t_false(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "false") && v.type == J_BOOL && !v.u.b);
}
static struct jval t_integer(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "integer") && v.type == J_INT);
}
static struct jval t_float(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "float") && v.type == J_FLOAT);
}
static struct jval t_number(struct jinterp *it, struct jval v, args_t c) {
    double x;
    return jbool(no_args(it, c, "number") && jnum(v, &x));
}
static struct jval t_sequence(struct jinterp *it, struct jval v, args_t c) {
    bool list = v.type == J_LIST && (v.u.l->kind <= JL_RANGE || v.u.l->kind == JL_GROUP);
    return jbool(no_args(it, c, "sequence") && (v.type == J_STR || v.type == J_DICT || v.type == J_UNDEF || list));
}
static struct jval t_iterable(struct jinterp *it, struct jval v, args_t c) {
    bool yes = v.type == J_STR || v.type == J_DICT || v.type == J_UNDEF || v.type == J_LIST || v.type == J_LOOP;
    return jbool(no_args(it, c, "iterable") && yes);
}
static struct jval t_callable(struct jinterp *it, struct jval v, args_t c) {
    bool yes = v.type == J_FUNC || v.type == J_METHOD || v.type == J_MACRO || v.type == J_JOINER || v.type == J_UNDEF ||
               v.type == J_LOOP;
    return jbool(no_args(it, c, "callable") && yes);
}

static struct jval parity(struct jinterp *it, struct jval v, args_t c, const char *what, int64_t want) {
    if (!no_args(it, c, what)) return jval_undef;
    if (v.type == J_STR) return jfail(it, TERN_BAD_FORMAT, "'%s' needs a number, not 'str'", what);
    struct jval r = jarith(it, OP_MOD, v, jint(2));
    return jbool(it->status == TERN_OK && jequal(it, r, jint(want)));
}
static struct jval t_odd(struct jinterp *it, struct jval v, args_t c) { return parity(it, v, c, "odd", 1); }
static struct jval t_even(struct jinterp *it, struct jval v, args_t c) { return parity(it, v, c, "even", 0); }
static struct jval t_divisibleby(struct jinterp *it, struct jval v, args_t c) {
    static const char *const params[] = {"num"};
    struct jval a[1];
    if (!jargs_bind(it, c, "divisibleby", params, 1, 1, a)) return jval_undef;
    struct jval r = jarith(it, OP_MOD, v, a[0]);
    return jbool(it->status == TERN_OK && jequal(it, r, jint(0)));
}

static struct jval cased(struct jinterp *it, struct jval v, args_t c, const char *what, enum jprop p) {
    if (!no_args(it, c, what)) return jval_undef;
    struct jval s = jto_str(it, v);
    return jbool(s.type == J_STR && jstr_is_cased(it, s.u.s, p));
}
static struct jval t_lower(struct jinterp *it, struct jval v, args_t c) { return cased(it, v, c, "lower", PROP_LOWER); }
static struct jval t_upper(struct jinterp *it, struct jval v, args_t c) { return cased(it, v, c, "upper", PROP_UPPER); }

static struct jval t_sameas(struct jinterp *it, struct jval v, args_t c) {
    struct jval a[1];
    if (!jargs_bind(it, c, "sameas", NULL, 1, 1, a)) return jval_undef;
    if (v.type != a[0].type) return jbool(false);
    switch (v.type) {
    case J_NONE: return jbool(true);
    case J_BOOL:
    case J_INT:
    case J_FLOAT: return jbool(jequal(it, v, a[0]));
    case J_STR: return jbool(v.u.s->data == a[0].u.s->data && v.u.s->len == a[0].u.s->len);
    default: return jbool(v.u.s == a[0].u.s);
    }
}

static struct jval compared(struct jinterp *it, struct jval v, args_t c, enum jop op) {
    struct jval a[1];
    if (!jargs_bind(it, c, "a comparison", NULL, 1, 1, a)) return jval_undef;
    return jbool(jcompare_op(it, op, v, a[0]));
}
static struct jval t_eq(struct jinterp *it, struct jval v, args_t c) { return compared(it, v, c, OP_EQ); }
static struct jval t_ne(struct jinterp *it, struct jval v, args_t c) { return compared(it, v, c, OP_NE); }
static struct jval t_lt(struct jinterp *it, struct jval v, args_t c) { return compared(it, v, c, OP_LT); }
static struct jval t_le(struct jinterp *it, struct jval v, args_t c) { return compared(it, v, c, OP_LE); }
static struct jval t_gt(struct jinterp *it, struct jval v, args_t c) { return compared(it, v, c, OP_GT); }
static struct jval t_ge(struct jinterp *it, struct jval v, args_t c) { return compared(it, v, c, OP_GE); }
static struct jval t_in(struct jinterp *it, struct jval v, args_t c) { return compared(it, v, c, OP_IN); }

static struct jval t_filter(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "filter") && v.type == J_STR && jfilter_find(jstr_str(v.u.s)) != NULL);
}
static struct jval t_test(struct jinterp *it, struct jval v, args_t c) {
    return jbool(no_args(it, c, "test") && v.type == J_STR && jtest_find(jstr_str(v.u.s)) != NULL);
}

static const struct jbuiltin tests[] = {
    {"defined", t_defined},
    {"string", t_string},
    {"none", t_none},
    {"mapping", t_mapping},
    {"undefined", t_undefined},
    {"equalto", t_eq},
    {"eq", t_eq},
    {"==", t_eq},
    {"ne", t_ne},
    {"!=", t_ne},
    {"lt", t_lt},
    {"<", t_lt},
    {"lessthan", t_lt},
    {"le", t_le},
    {"<=", t_le},
    {"gt", t_gt},
    {">", t_gt},
    {"greaterthan", t_gt},
    {"ge", t_ge},
    {">=", t_ge},
    {"in", t_in},
    {"sequence", t_sequence},
    {"iterable", t_iterable},
    {"callable", t_callable},
    {"boolean", t_boolean},
    {"true", t_true},
    {"false", t_false},
    {"integer", t_integer},
    {"float", t_float},
    {"number", t_number},
    {"odd", t_odd},
    {"even", t_even},
    {"divisibleby", t_divisibleby},
    {"lower", t_lower},
    {"upper", t_upper},
    {"sameas", t_sameas},
    {"filter", t_filter},
    {"test", t_test},
};

const struct jbuiltin *jtest_find(struct str name) { return jbuiltin_find(tests, ARRAY_LEN(tests), name); }
