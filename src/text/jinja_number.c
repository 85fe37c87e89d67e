// Numbers of the template language: Python's arithmetic on 64-bit integers and doubles, its float printing and parsing.
//
// Integers that leave 64 bits are an error, never a wrap. Floats print as the shortest digits that read back equal,
// with an exponent from 1e16 on and below 1e-4.
#include "base/base.h"
#include "text/jinja_int.h"
#include <math.h>
#include <stdio.h>

#define INT_DIGITS_MAX 24

size_t jfloat_format(char out[JFLOAT_TEXT_MAX], char type, int prec, bool alt, double x) {
    static const char *const formats[][2] = {
        {"%.*f", "%#.*f"}, {"%.*e", "%#.*e"}, {"%.*E", "%#.*E"}, {"%.*g", "%#.*g"}, {"%.*G", "%#.*G"}};
    const char *at = strchr("feEgG", type);
    TERN_ASSERT(at && *at && prec <= JFLOAT_PRECISION_MAX);
    int n = snprintf(out, JFLOAT_TEXT_MAX, formats[at - "feEgG"][alt], prec, x);
    TERN_ASSERT(n > 0 && n < JFLOAT_TEXT_MAX);
    size_t len = 0;
    bool foreign = false; // bytes of the locale's point, which is a dot here
    for (int i = 0; i < n; i++) {
        bool known = (out[i] >= '0' && out[i] <= '9') || strchr("+-eE", out[i]);
        if (known || !foreign) out[len++] = known ? out[i] : '.';
        foreign = !known;
    }
    return len;
}

// The shortest decimal digits (without trailing zeros) of a finite f >= 0, and the exponent of the first.
static int shortest_digits(double f, char digits[20], int *exp10) {
    char text[JFLOAT_TEXT_MAX];
    int n = 0;
    for (int p = 0; p < 17; p++) {
        double back;
        struct str s = {text, jfloat_format(text, 'e', p, false, f)};
        if (p < 16 && (!str_to_f64(s, &back) || back != f)) continue;
        size_t e = str_find(s, STR("e"), 0);
        int x = 0;
        for (size_t i = e + 2; i < s.len; i++) x = x * 10 + (text[i] - '0');
        *exp10 = text[e + 1] == '-' ? -x : x;
        for (size_t i = 0; i < e; i++)
            if (text[i] != '.') digits[n++] = text[i];
        break;
    }
    while (n > 1 && digits[n - 1] == '0') n--;
    return n;
}

size_t jfloat_print(char out[40], double f) {
    size_t len = 0;
    if (f != f) return memcpy(out, "nan", 3), 3;
    if (signbit(f)) {
        out[len++] = '-';
        f = -f;
    }
    if (isinf(f)) return memcpy(out + len, "inf", 3), len + 3;
    char digits[20] = "0";
    int exp10 = 0, n = f == 0 ? 1 : shortest_digits(f, digits, &exp10);
    if (exp10 < -4 || exp10 >= 16) {
        out[len++] = digits[0];
        if (n > 1) out[len++] = '.';
        for (int i = 1; i < n; i++) out[len++] = digits[i];
        out[len++] = 'e';
        out[len++] = exp10 < 0 ? '-' : '+';
        int x = exp10 < 0 ? -exp10 : exp10;
        if (x >= 100) out[len++] = (char)('0' + x / 100);
        out[len++] = (char)('0' + x / 10 % 10);
        out[len++] = (char)('0' + x % 10);
        return len;
    }
    for (int i = exp10; i < 0; i++) {
        out[len++] = '0';
        if (i == exp10) out[len++] = '.';
    }
    for (int i = 0; i < n || i <= exp10; i++) {
        out[len++] = i < n ? digits[i] : '0';
        if (i == exp10) out[len++] = '.';
    }
    if (out[len - 1] == '.') out[len++] = '0';
    return len;
}

static struct jval fail_overflow(struct jinterp *it) { return jfail(it, TERN_LIMIT, "an integer leaves 64 bits"); }

static struct jval fail_operands(struct jinterp *it, enum jop op, struct jval a, struct jval b) {
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (a.type == J_UNDEF || b.type == J_UNDEF) return jfail_undef(it, a.type == J_UNDEF ? a : b);
    return jfail(it, TERN_BAD_FORMAT, "'%s' does not work on '%s' and '%s'", names[op], jtype_name(a), jtype_name(b));
}

static struct jval int_pow(struct jinterp *it, int64_t a, int64_t b) {
    if (b < 0) {
        if (a == 0) return jfail(it, TERN_BAD_FORMAT, "0 cannot be raised to a negative power");
        return jfloat(pow((double)a, (double)b));
    }
    int64_t r = 1;
    while (b > 0) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r)) return fail_overflow(it);
        b >>= 1;
        if (b > 0 && __builtin_mul_overflow(a, a, &a)) return fail_overflow(it);
    }
    return jint(r);
}

static struct jval int_arith(struct jinterp *it, enum jop op, int64_t a, int64_t b) {
    int64_t r = 0;
    switch (op) {
    case OP_ADD: return __builtin_add_overflow(a, b, &r) ? fail_overflow(it) : jint(r);
    case OP_SUB: return __builtin_sub_overflow(a, b, &r) ? fail_overflow(it) : jint(r);
    case OP_MUL: return __builtin_mul_overflow(a, b, &r) ? fail_overflow(it) : jint(r);
    case OP_POW: return int_pow(it, a, b);
    default: break;
    }
    if (b == 0) return jfail(it, TERN_BAD_FORMAT, "division by zero");
    if (op == OP_DIV) return jfloat((double)a / (double)b);
    if (b == -1) {
        if (op == OP_MOD) return jint(0);
        return __builtin_sub_overflow((int64_t)0, a, &r) ? fail_overflow(it) : jint(r);
    }
    int64_t q = a / b, m = a % b;
    if (m != 0 && (m < 0) != (b < 0)) { // towards minus infinity, as in Python
        q--;
        m += b;
    }
    return jint(op == OP_FLOORDIV ? q : m);
}

static struct jval float_arith(struct jinterp *it, enum jop op, double a, double b) {
    switch (op) {
    case OP_ADD: return jfloat(a + b);
    case OP_SUB: return jfloat(a - b);
    case OP_MUL: return jfloat(a * b);
    case OP_POW: {
        if (a == 0 && b < 0) return jfail(it, TERN_BAD_FORMAT, "0 cannot be raised to a negative power");
        double r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b)) return jfail(it, TERN_LIMIT, "a float power overflows");
        if (r != r && a == a && b == b) return jfail(it, TERN_UNSUPPORTED, "a power is a complex number");
        return jfloat(r);
    }
    default: break;
    }
    if (b == 0) return jfail(it, TERN_BAD_FORMAT, "division by zero");
    if (op == OP_DIV) return jfloat(a / b);
    double m = fmod(a, b);
    if (m != 0 && (m < 0) != (b < 0)) m += b;
    if (m == 0) m = copysign(0.0, b);
    if (op == OP_MOD) return jfloat(m);
    double q = (a - m) / b, fl = floor(q);
    if (q - fl > 0.5) fl += 1;
    return jfloat(q == 0 ? copysign(0.0, a / b) : fl);
}

static bool is_sequence(struct jval v) {
    return v.type == J_LIST && (v.u.l->kind <= JL_TUPLE || v.u.l->kind == JL_GROUP);
}

static struct jval list_add(struct jinterp *it, const struct jlist *a, const struct jlist *b) {
    bool a_list = a->kind == JL_LIST, b_list = b->kind == JL_LIST;
    if (a_list != b_list) return jfail(it, TERN_BAD_FORMAT, "a list and a tuple cannot be added");
    if (!jstep(it, (a->len + b->len) / 16)) return jval_undef;
    struct jlist *l = jlist_new(it, a_list ? JL_LIST : JL_TUPLE, a->len + b->len);
    if (!l) return jval_undef;
    if (a->len) memcpy(l->items, a->items, a->len * sizeof(*a->items));
    if (b->len) memcpy(l->items + a->len, b->items, b->len * sizeof(*b->items));
    l->len = a->len + b->len;
    return jlist_val(l);
}

static struct jval list_repeat(struct jinterp *it, const struct jlist *a, int64_t n) {
    size_t total = 0;
    if (n > 0 && !size_mul(a->len, (size_t)n, &total)) total = SIZE_MAX;
    if (!jstep(it, total / 16)) return jval_undef;
    struct jlist *l = jlist_new(it, a->kind == JL_LIST ? JL_LIST : JL_TUPLE, total);
    while (l && l->len < total) jlist_push(it, l, a->items[l->len % a->len]);
    return jlist_val(l);
}

struct jval jarith(struct jinterp *it, enum jop op, struct jval a, struct jval b) {
    int64_t i, k;
    double f, g;
    if (jint_of(a, &i) && jint_of(b, &k)) return int_arith(it, op, i, k);
    if (jnum(a, &f) && jnum(b, &g)) return float_arith(it, op, f, g);
    if (op == OP_ADD && a.type == J_STR && b.type == J_STR) return jstr_concat(it, a.u.s, b.u.s);
    if (op == OP_ADD && is_sequence(a) && is_sequence(b)) return list_add(it, a.u.l, b.u.l);
    if (op == OP_MOD && a.type == J_STR) return jformat_percent(it, a.u.s, b);
    if (op == OP_MUL) {
        bool swap = jint_of(a, &k);
        struct jval seq = swap ? b : a;
        if (swap || jint_of(b, &k)) {
            if (seq.type == J_STR) return jstr_repeat(it, seq.u.s, k);
            if (is_sequence(seq)) return list_repeat(it, seq.u.l, k);
        }
    }
    return fail_operands(it, op, a, b);
}

struct jval jneg(struct jinterp *it, struct jval v, bool minus) {
    int64_t i;
    if (jint_of(v, &i)) {
        if (minus && i == INT64_MIN) return fail_overflow(it);
        return jint(minus ? -i : i);
    }
    if (v.type == J_UNDEF) return jfail_undef(it, v);
    if (v.type == J_FLOAT) return jfloat(minus ? -v.u.f : v.u.f);
    return jfail(it, TERN_BAD_FORMAT, "a sign before '%s'", jtype_name(v));
}

// The whole of s must be digits of the base, with an optional sign.
bool jparse_int(struct str s, int base, int64_t *out, bool *overflow) {
    uint64_t v = 0;
    bool minus = s.len > 0 && s.data[0] == '-';
    size_t i = s.len > 0 && (s.data[0] == '-' || s.data[0] == '+') ? 1 : 0;
    *overflow = false;
    if (i == s.len) return false;
    for (; i < s.len; i++) {
        char c = s.data[i], low = (char)(c | 32);
        int d = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
        if (d >= base) return *overflow = false;
        if (__builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, (uint64_t)d, &v))
            *overflow = true;
    }
    uint64_t max = (uint64_t)INT64_MAX + minus;
    if (*overflow || v > max) {
        *overflow = true;
        return false;
    }
    *out = minus ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

// Python's float(): JSON's grammar, and also ".5", "5.", a plus sign, leading zeros, inf and nan.
bool jparse_float(struct str s, double *out) {
    bool minus = s.len > 0 && s.data[0] == '-';
    if (s.len > 0 && (s.data[0] == '-' || s.data[0] == '+')) {
        s.data++;
        s.len--;
    }
    char low[9];
    if (s.len > 0 && s.len < sizeof(low)) {
        for (size_t i = 0; i < s.len; i++) low[i] = (char)(s.data[i] | 32);
        low[s.len] = 0;
        bool is_inf = strcmp(low, "inf") == 0 || strcmp(low, "infinity") == 0;
        if (is_inf || strcmp(low, "nan") == 0) {
            *out = is_inf ? (minus ? -INFINITY : INFINITY) : (double)NAN;
            return true;
        }
    }
    if (s.len > 400) return false;
    char text[404];
    size_t n = 0, i = 0;
    while (i + 1 < s.len && s.data[i] == '0' && s.data[i + 1] >= '0' && s.data[i + 1] <= '9') i++;
    if (i < s.len && s.data[i] == '.') {
        if (i + 1 >= s.len || s.data[i + 1] < '0' || s.data[i + 1] > '9') return false;
        text[n++] = '0';
    }
    for (; i < s.len; i++) {
        text[n++] = s.data[i];
        bool digit_next = i + 1 < s.len && s.data[i + 1] >= '0' && s.data[i + 1] <= '9';
        if (s.data[i] == '.' && !digit_next) text[n++] = '0';
    }
    if (n == 0 || text[0] < '0' || text[0] > '9') return false;
    if (!str_to_f64((struct str){text, n}, out)) return false;
    if (minus) *out = -*out;
    return true;
}

struct jval jint_of_float(struct jinterp *it, double f) {
    if (f != f || f >= 9223372036854775808.0 || f < -9223372036854775808.0) return fail_overflow(it);
    return jint((int64_t)f);
}

// Rounds to a number of decimal digits, half to even on the exact value, as Python's round().
double jround_half_even(double x, int digits) {
    if (!isfinite(x) || digits > 22) return x;
    if (digits < 0) {
        double p = pow(10.0, -digits), y = nearbyint(x / p);
        return isfinite(p) ? y * p : copysign(0.0, x);
    }
    char text[JFLOAT_TEXT_MAX];
    double out;
    struct str s = {text, jfloat_format(text, 'f', digits, false, x)};
    return str_to_f64(s, &out) ? out : x;
}
