// Python's two ways to format: "…" % args and "…".format(…). One field type serves both; what is rare in templates
// (nested fields, locale forms) is refused by name.
#include "base/base.h"
#include "text/jinja_int.h"
#include <math.h>

#define FORMAT_WIDTH_MAX 4096 // columns of one field

struct field {
    uint32_t fill;
    char align; // '<' '>' '^' '=' or 0: by the value's type
    char sign;  // '+' ' ' or 0
    bool alt, zero, comma;
    int64_t width, prec; // -1: not given
    char type;           // 0: default
};

// Digits of a magnitude in a base, most significant first.
static size_t put_digits(char out[66], uint64_t v, unsigned base, bool upper) {
    char rev[66];
    size_t n = 0;
    do rev[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % base];
    while ((v /= base) > 0);
    for (size_t i = 0; i < n; i++) out[i] = rev[n - 1 - i];
    return n;
}

// A float with a precision but no type: %g that keeps a digit after the point, for which it counts one digit more.
static size_t general_text(char out[JFLOAT_TEXT_MAX], double x, int prec) {
    size_t n = jfloat_format(out, 'g', prec, false, x);
    if (memchr(out, '.', n) || memchr(out, 'e', n)) return n;
    if (n < (size_t)prec) {
        memcpy(out + n, ".0", 2);
        return n + 2;
    }
    n = jfloat_format(out, 'e', prec - 1, false, x);
    size_t mark = str_find((struct str){out, n}, STR("e"), 0), digits = mark;
    while (prec > 1 && digits > 1 && out[digits - 1] == '0') digits--;
    if (out[digits - 1] == '.') digits--;
    memmove(out + digits, out + mark, n - mark);
    return digits + n - mark;
}

static size_t int_text(char out[JFLOAT_TEXT_MAX], const struct field *f, char type, int64_t i) {
    char digits[66];
    size_t len = 0, n;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    n = put_digits(digits, u, type == 'd' ? 10 : type == 'o' ? 8 : type == 'b' ? 2 : 16, type == 'X');
    if (f->alt && type != 'd') {
        out[len++] = '0';
        out[len++] = type;
    }
    for (size_t k = n; (int64_t)k < f->prec; k++) out[len++] = '0';
    memcpy(out + len, digits, n);
    return len + n;
}

// The number without sign; 0: the type does not fit the value.
static size_t number_text(char out[JFLOAT_TEXT_MAX], const struct field *f, struct jval v) {
    int64_t i;
    bool is_int = jint_of(v, &i);
    double x = is_int ? fabs((double)i) : fabs(v.u.f);
    char t = f->type ? f->type : is_int ? 'd' : 'r';
    if (t == 'i' || t == 'u') t = 'd';
    if (t == 'F') t = 'f';
    if (strchr("dxXob", t)) return is_int ? int_text(out, f, t, i) : 0;
    if (!strchr("feEgG%r", t)) return 0;
    if (x != x || isinf(x)) return memcpy(out, x != x ? "nan" : "inf", 3), 3;
    if (t == 'r') return f->prec < 0 ? jfloat_print(out, x) : general_text(out, x, (int)MAX(f->prec, 1));
    int prec = f->prec < 0 ? 6 : (int)f->prec;
    if (t != '%') return jfloat_format(out, t, prec, f->alt, x);
    size_t n = jfloat_format(out, 'f', prec, f->alt, x * 100);
    out[n] = '%';
    return n + 1;
}

// Thousands separators into the integer digits at the start of s.
static size_t group_digits(char *out, struct str s) {
    size_t n = 0, len = 0;
    while (n < s.len && s.data[n] >= '0' && s.data[n] <= '9') n++;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0) out[len++] = ',';
        out[len++] = s.data[i];
    }
    memcpy(out + len, s.data + n, s.len - n);
    return len + s.len - n;
}

static void put_fill(struct jinterp *it, struct jbuf *b, uint32_t fill, int64_t n) {
    for (int64_t i = 0; i < n && jstep(it, 1); i++) jbuf_put_rune(it, b, fill, false);
}

static bool put_number(struct jinterp *it, struct jbuf *b, const struct field *f, struct jval v) {
    char text[JFLOAT_TEXT_MAX], grouped[JFLOAT_TEXT_MAX * 2];
    int64_t i;
    bool minus = jint_of(v, &i) ? i < 0 : signbit(v.u.f) != 0 && v.u.f == v.u.f;
    struct str s = {text, number_text(text, f, v)};
    if (s.len == 0) {
        char type[2] = {f->type > ' ' && f->type < 127 ? f->type : '?', 0};
        jfail(it, TERN_BAD_FORMAT, "the format '%s' does not fit a '%s'", type, jtype_name(v));
        return false;
    }
    if (f->comma) s = (struct str){grouped, group_digits(grouped, s)};
    char sign = minus ? '-' : f->sign;
    int64_t pad = f->width - (int64_t)s.len - (sign != 0);
    char align = f->align ? f->align : f->zero ? '=' : '>';
    uint32_t fill = f->zero && !f->align ? '0' : f->fill;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    put_fill(it, b, fill, left);
    if (sign) jbuf_put(it, b, &sign, NULL, 1);
    if (align == '=') put_fill(it, b, fill, pad);
    jbuf_put(it, b, s.data, NULL, s.len);
    if (align == '<' || align == '^') put_fill(it, b, fill, pad - MAX(left, (int64_t)0));
    return it->status == TERN_OK;
}

static bool put_text(struct jinterp *it, struct jbuf *b, const struct field *f, const struct jstr *s, char align) {
    int64_t n = (int64_t)jstr_runes(it, s);
    struct jstr cut = *s;
    if (f->prec >= 0 && f->prec < n) {
        cut.len = jstr_offset(it, s, (size_t)f->prec);
        n = f->prec;
    }
    int64_t pad = f->width - n;
    if (f->align) align = f->align;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    put_fill(it, b, f->fill, left);
    jbuf_put(it, b, cut.data, cut.taint, cut.len);
    put_fill(it, b, f->fill, pad - MAX(left, (int64_t)0));
    return it->status == TERN_OK;
}

static bool parse_number(struct jinterp *it, struct str s, size_t *i, int64_t max, int64_t *out) {
    int64_t v = 0;
    size_t begin = *i;
    for (; *i < s.len && s.data[*i] >= '0' && s.data[*i] <= '9'; (*i)++) {
        v = v * 10 + (s.data[*i] - '0');
        if (v > max) {
            jfail(it, TERN_LIMIT, "a format's width or precision is over %lld", (long long)max);
            return false;
        }
    }
    if (*i > begin) *out = v;
    return true;
}

// ---- "…" % args

struct percent {
    struct jval args;
    const struct jlist *tuple; // NULL: one value
    size_t next;
    bool mapped;
};

static struct jval next_arg(struct jinterp *it, struct percent *p) {
    size_t n = p->tuple ? p->tuple->len : 1;
    if (p->next >= n) return jfail(it, TERN_BAD_FORMAT, "not enough values for the format string");
    return p->tuple ? p->tuple->items[p->next++] : (p->next++, p->args);
}

static bool percent_field(struct jinterp *it, struct percent *p, const struct jstr *fmt, size_t *pos, struct jbuf *b) {
    struct str s = jstr_str(fmt);
    size_t i = *pos + 1;
    struct field f = {.fill = ' ', .width = 0, .prec = -1};
    struct jval v = jval_missing;
    if (i < s.len && s.data[i] == '(') {
        size_t end = str_find(s, STR(")"), i);
        if (end == (size_t)-1 || p->args.type != J_DICT) {
            jfail(it, TERN_BAD_FORMAT, "the format string needs a dict");
            return false;
        }
        struct jval *x = jdict_findz(p->args.u.d, (struct str){s.data + i + 1, end - i - 1});
        if (!x) jfail(it, TERN_BAD_FORMAT, "the format string names a key that is not there");
        if (!x) return false;
        v = *x;
        p->mapped = true;
        i = end + 1;
    }
    for (; i < s.len && strchr("-+ #0", s.data[i]) && s.data[i]; i++) {
        if (s.data[i] == '-') f.align = '<';
        if (s.data[i] == '0') f.zero = true;
        if (s.data[i] == '#') f.alt = true;
        if (s.data[i] == '+' || (s.data[i] == ' ' && f.sign != '+')) f.sign = s.data[i];
    }
    if (!parse_number(it, s, &i, FORMAT_WIDTH_MAX, &f.width)) return false;
    if (i < s.len && s.data[i] == '.') {
        i++;
        f.prec = 0;
        if (!parse_number(it, s, &i, JFLOAT_PRECISION_MAX, &f.prec)) return false;
    }
    while (i < s.len && (s.data[i] == 'l' || s.data[i] == 'h' || s.data[i] == 'L')) i++;
    if (i >= s.len) {
        jfail(it, TERN_BAD_FORMAT, "the format string ends inside a field");
        return false;
    }
    f.type = s.data[i];
    *pos = i + 1;
    if (f.type == '%') return jbuf_puts(it, b, "%");
    if (v.type == J_MISSING) v = next_arg(it, p);
    if (it->status != TERN_OK) return false;
    if (f.type == 's' || f.type == 'r' || f.type == 'a') {
        struct jbuf text = {0};
        if (f.type == 's')
            jbuf_put_val(it, &text, v);
        else
            jbuf_put_repr(it, &text, v);
        struct jval made = jbuf_val(it, &text);
        return made.type == J_STR && put_text(it, b, &f, made.u.s, f.align == '<' ? '<' : '>');
    }
    if (f.type == 'c' && v.type == J_STR && jstr_runes(it, v.u.s) == 1) return put_text(it, b, &f, v.u.s, '>');
    if (strchr("diu", f.type) && v.type == J_FLOAT) v = jint_of_float(it, trunc(v.u.f));
    double x;
    if (it->status == TERN_OK && (!jnum(v, &x) || !strchr("diuoxXeEfFgG", f.type))) {
        jfail(it, TERN_BAD_FORMAT, "the format '%%%c' does not fit a '%s'",
              f.type >= ' ' && f.type < 127 ? f.type : '?', jtype_name(v));
        return false;
    }
    return put_number(it, b, &f, v);
}

struct jval jformat_percent(struct jinterp *it, const struct jstr *fmt, struct jval args) {
    struct percent p = {.args = args};
    if (args.type == J_LIST && (args.u.l->kind == JL_TUPLE || args.u.l->kind == JL_GROUP)) p.tuple = args.u.l;
    struct jbuf b = {0};
    size_t i = 0;
    while (i < fmt->len && jstep(it, 1)) {
        const char *hit = memchr(fmt->data + i, '%', fmt->len - i);
        size_t end = hit ? (size_t)(hit - fmt->data) : fmt->len;
        jbuf_put(it, &b, fmt->data + i, fmt->taint ? fmt->taint + i : NULL, end - i);
        i = end;
        if (hit && !percent_field(it, &p, fmt, &i, &b)) return jval_undef;
    }
    size_t n = p.tuple ? p.tuple->len : 1;
    // What could have been subscripted may go unused, as in Python.
    bool may_rest = args.type == J_DICT || args.type == J_UNDEF || (args.type == J_LIST && args.u.l->kind <= JL_RANGE);
    if (p.next < n && !p.mapped && (p.tuple || !may_rest))
        return jfail(it, TERN_BAD_FORMAT, "not all values were used by the format string");
    return jbuf_val(it, &b);
}

// ---- "…".format(…)

struct braces {
    const struct jcall *c;
    int next; // of the automatic numbers; -1: numbers are given
};

static struct jval fail_field(struct jinterp *it) {
    return jfail(it, TERN_BAD_FORMAT, "format(): the replacement field is not understood");
}

// The value that a field's name stands for: number or name, then .attributes and [items].
static struct jval field_value(struct jinterp *it, struct braces *f, struct str name) {
    size_t i = 0;
    while (i < name.len && name.data[i] != '.' && name.data[i] != '[') i++;
    struct str first = {name.data, i};
    int64_t index;
    struct jval v = jval_missing;
    if (first.len == 0) {
        if (f->next < 0 || name.len > 0) return fail_field(it);
        index = f->next++;
        if (index < f->c->n_pos) v = f->c->pos[index];
    } else if (str_to_i64(first, &index)) {
        if (f->next > 0) return fail_field(it);
        f->next = -1;
        if (index >= 0 && index < f->c->n_pos) v = f->c->pos[index];
    } else {
        for (int k = 0; k < f->c->n_kw; k++)
            if (str_eq(f->c->kw[k].name, first)) v = f->c->kw[k].value;
    }
    if (v.type == J_MISSING) return jfail(it, TERN_BAD_FORMAT, "format(): a field has no value");
    while (i < name.len && jstep(it, 1)) {
        bool attr = name.data[i] == '.';
        size_t begin = ++i;
        while (i < name.len && (attr ? name.data[i] != '.' && name.data[i] != '[' : name.data[i] != ']')) i++;
        struct str part = {name.data + begin, i - begin};
        if (part.len == 0 || (!attr && i == name.len)) return fail_field(it);
        if (!attr) i++;
        if (attr)
            v = jget_attr(it, v, part);
        else
            v = jget_item(it, v, str_to_i64(part, &index) ? jint(index) : jstr_copy(it, part, false));
    }
    return v;
}

static bool parse_spec(struct jinterp *it, struct str s, struct field *f) {
    *f = (struct field){.fill = ' ', .width = 0, .prec = -1};
    size_t i = 0;
    int n = 0;
    bool filled = false;
    uint32_t r = s.len ? utf8_decode(s, &n) : 0;
    if (s.len > (size_t)n && s.len && strchr("<>^=", s.data[n]) && s.data[n]) {
        f->fill = r;
        filled = true;
        f->align = s.data[n];
        i = (size_t)n + 1;
    } else if (s.len && strchr("<>^=", s.data[0]) && s.data[0]) {
        f->align = s.data[i++];
    }
    if (i < s.len && (s.data[i] == '+' || s.data[i] == ' ' || s.data[i] == '-')) {
        f->sign = s.data[i] == '-' ? 0 : s.data[i];
        i++;
    }
    if (i < s.len && s.data[i] == '#') f->alt = s.data[i++] == '#';
    if (i < s.len && s.data[i] == '0') {
        f->zero = true;
        if (f->fill == ' ' && !filled) f->fill = '0';
        i++;
    }
    if (!parse_number(it, s, &i, FORMAT_WIDTH_MAX, &f->width)) return false;
    if (i < s.len && s.data[i] == ',') f->comma = s.data[i++] == ',';
    if (i < s.len && s.data[i] == '.') {
        size_t begin = ++i;
        if (!parse_number(it, s, &i, JFLOAT_PRECISION_MAX, &f->prec) || i == begin) return fail_field(it), false;
    }
    if (i < s.len) f->type = s.data[i++];
    if (i == s.len && (!f->type || strchr("sdxXobfFeEgG%", f->type))) return true;
    return fail_field(it), false;
}

static bool put_field(struct jinterp *it, struct jbuf *b, struct jval v, char conv, struct str spec) {
    struct field f;
    double x;
    if (!parse_spec(it, spec, &f)) return false;
    struct jbuf text = {0};
    if (conv == 'r' || conv == 'a')
        jbuf_put_repr(it, &text, v);
    else if (v.type != J_BOOL && !conv && jnum(v, &x)) {
        if (f.prec >= 0 && v.type == J_INT && (!f.type || strchr("dxXob", f.type))) return fail_field(it), false;
        return put_number(it, b, &f, v);
    } else if (v.type == J_BOOL && !conv && spec.len > 0)
        return put_number(it, b, &f, v);
    else
        jbuf_put_val(it, &text, v);
    if (f.type && f.type != 's') return fail_field(it), false;
    if (v.type != J_STR && !conv && spec.len > 0)
        return jfail(it, TERN_BAD_FORMAT, "format(): a '%s' takes no format", jtype_name(v)), false;
    struct jval made = jbuf_val(it, &text);
    return made.type == J_STR && put_text(it, b, &f, made.u.s, '<');
}

// The field in s, without its braces: name !conversion :spec.
static bool brace_field(struct jinterp *it, struct braces *f, struct str s, struct jbuf *b) {
    size_t i = 0;
    bool in_item = false;
    for (; i < s.len && (in_item || (s.data[i] != '!' && s.data[i] != ':')); i++) {
        if (s.data[i] == '[') in_item = true;
        if (s.data[i] == ']') in_item = false;
    }
    struct jval v = field_value(it, f, (struct str){s.data, i});
    char conv = 0;
    if (i < s.len && s.data[i] == '!') {
        conv = i + 1 < s.len ? s.data[i + 1] : 0;
        i += 2;
        if (!conv || !strchr("rsa", conv) || (i < s.len && s.data[i] != ':')) return fail_field(it), false;
    }
    struct str spec = i < s.len ? (struct str){s.data + i + 1, s.len - i - 1} : (struct str){0};
    return it->status == TERN_OK && put_field(it, b, v, conv, spec);
}

struct jval jformat_method(struct jinterp *it, struct jval self, const struct jcall *c) {
    const struct jstr *fmt = self.u.s;
    struct str s = jstr_str(fmt);
    struct braces f = {.c = c};
    struct jbuf b = {0};
    for (size_t i = 0; i < s.len && jstep(it, 1);) {
        size_t end = i;
        while (end < s.len && s.data[end] != '{' && s.data[end] != '}') end++;
        jbuf_put(it, &b, s.data + i, fmt->taint ? fmt->taint + i : NULL, end - i);
        i = end;
        if (i == s.len) break;
        if (i + 1 < s.len && s.data[i + 1] == s.data[i]) {
            jbuf_put(it, &b, s.data + i, fmt->taint ? fmt->taint + i : NULL, 1);
            i += 2;
            continue;
        }
        end = i + 1;
        while (end < s.len && s.data[end] != '}' && s.data[end] != '{') end++;
        if (s.data[i] == '}' || end == s.len || s.data[end] == '{') return fail_field(it);
        if (!brace_field(it, &f, (struct str){s.data + i + 1, end - i - 1}, &b)) return jval_undef;
        i = end + 1;
    }
    return jbuf_val(it, &b);
}
