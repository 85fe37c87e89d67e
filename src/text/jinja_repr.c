// Values as text: Python's str() and repr(), and tojson with json.dumps' separators, order and escapes (nothing is
// escaped for HTML, as in transformers). Bytes that come from a tainted string stay tainted, their escapes too.
#include "base/base.h"
#include "text/jinja_int.h"

static const uint8_t ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static bool enter(struct jinterp *it) {
    if (!jstep(it, 1)) return false;
    if (it->depth >= JINJA_EVAL_DEPTH_MAX) {
        jfail(it, TERN_LIMIT, "values are nested more than %d deep", JINJA_EVAL_DEPTH_MAX);
        return false;
    }
    it->depth++;
    return true;
}

static bool put_hex(struct jinterp *it, struct jbuf *b, char kind, int digits, uint32_t r, bool tainted) {
    char out[12] = {'\\', kind};
    for (int i = 0; i < digits; i++) out[2 + i] = "0123456789abcdef"[(r >> (4 * (digits - 1 - i))) & 15];
    return jbuf_put(it, b, out, tainted ? ones : NULL, (size_t)digits + 2);
}

static bool put_escape(struct jinterp *it, struct jbuf *b, char c, bool tainted) {
    char out[2] = {'\\', c};
    return jbuf_put(it, b, out, tainted ? ones : NULL, 2);
}

static bool put_str_repr(struct jinterp *it, struct jbuf *b, const struct jstr *s) {
    bool has_single = s->len && memchr(s->data, '\'', s->len), has_double = s->len && memchr(s->data, '"', s->len);
    char quote = has_single && !has_double ? '"' : '\'';
    jstep(it, s->len / 32);
    jbuf_put(it, b, &quote, NULL, 1);
    for (size_t i = 0; i < s->len && it->status == TERN_OK;) {
        int n;
        uint32_t r = utf8_decode((struct str){s->data + i, s->len - i}, &n);
        bool tainted = s->taint && s->taint[i];
        if (r == (uint8_t)quote || r == '\\')
            put_escape(it, b, (char)r, tainted);
        else if (r == '\n' || r == '\r' || r == '\t')
            put_escape(it, b, r == '\n' ? 'n' : r == '\r' ? 'r' : 't', tainted);
        else if (r < 0x80 ? r >= 0x20 && r < 0x7f : jrune_is(r, PROP_PRINT))
            jbuf_put(it, b, s->data + i, s->taint ? s->taint + i : NULL, (size_t)n);
        else
            put_hex(it, b, r < 0x100 ? 'x' : r < 0x10000 ? 'u' : 'U', r < 0x100 ? 2 : r < 0x10000 ? 4 : 8, r, tainted);
        i += (size_t)n;
    }
    return jbuf_put(it, b, &quote, NULL, 1);
}

static bool put_int(struct jinterp *it, struct jbuf *b, int64_t v) {
    char out[24];
    size_t i = sizeof(out);
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do out[--i] = (char)('0' + u % 10);
    while ((u /= 10) > 0);
    if (v < 0) out[--i] = '-';
    return jbuf_put(it, b, out + i, NULL, sizeof(out) - i);
}

static bool put_list_repr(struct jinterp *it, struct jbuf *b, const struct jlist *l) {
    static const char *const open[] = {"[", "(", "", "", "dict_keys([", "dict_values([", "dict_items([", "("};
    static const char *const close[] = {"]", ")", "", "", "])", "])", "])", ")"};
    if (l->kind == JL_ITER) return jbuf_puts(it, b, "<iterator>");
    if (l->kind == JL_RANGE) {
        jbuf_puts(it, b, "range(");
        put_int(it, b, l->r[0]);
        jbuf_puts(it, b, ", ");
        put_int(it, b, l->r[1]);
        if (l->r[2] != 1) {
            jbuf_puts(it, b, ", ");
            put_int(it, b, l->r[2]);
        }
        return jbuf_puts(it, b, ")");
    }
    jbuf_puts(it, b, open[l->kind]);
    for (size_t i = 0; i < l->len && it->status == TERN_OK; i++) {
        if (i > 0) jbuf_puts(it, b, ", ");
        jbuf_put_repr(it, b, l->items[i]);
    }
    if (l->len == 1 && (l->kind == JL_TUPLE || l->kind == JL_GROUP)) jbuf_puts(it, b, ",");
    return jbuf_puts(it, b, close[l->kind]);
}

static bool put_dict_repr(struct jinterp *it, struct jbuf *b, const struct jdict *d) {
    jbuf_puts(it, b, "{");
    for (size_t i = 0; i < d->len && it->status == TERN_OK; i++) {
        if (i > 0) jbuf_puts(it, b, ", ");
        jbuf_put_repr(it, b, d->pairs[i].key);
        jbuf_puts(it, b, ": ");
        jbuf_put_repr(it, b, d->pairs[i].value);
    }
    return jbuf_puts(it, b, "}");
}

static bool put_object_repr(struct jinterp *it, struct jbuf *b, struct jval v) {
    switch (v.type) {
    case J_NS:
        jbuf_puts(it, b, "<Namespace ");
        put_dict_repr(it, b, v.u.d);
        return jbuf_puts(it, b, ">");
    case J_LOOP:
        jbuf_puts(it, b, "<LoopContext ");
        put_int(it, b, (int64_t)v.u.loop->index0 + 1);
        jbuf_puts(it, b, "/");
        put_int(it, b, (int64_t)v.u.loop->list->len);
        return jbuf_puts(it, b, ">");
    case J_MACRO:
        jbuf_puts(it, b, "<Macro '");
        jbuf_put(it, b, v.u.macro->node->name.data, NULL, v.u.macro->node->name.len);
        return jbuf_puts(it, b, "'>");
    default:
        jbuf_puts(it, b, "<");
        jbuf_puts(it, b, jtype_name(v));
        return jbuf_puts(it, b, ">");
    }
}

bool jbuf_put_repr(struct jinterp *it, struct jbuf *b, struct jval v) {
    char text[40];
    if (!enter(it)) return false;
    switch (v.type) {
    case J_MISSING:
    case J_UNDEF: jbuf_puts(it, b, "Undefined"); break;
    case J_NONE: jbuf_puts(it, b, "None"); break;
    case J_BOOL: jbuf_puts(it, b, v.u.b ? "True" : "False"); break;
    case J_INT: put_int(it, b, v.u.i); break;
    case J_FLOAT: jbuf_put(it, b, text, NULL, jfloat_print(text, v.u.f)); break;
    case J_STR: put_str_repr(it, b, v.u.s); break;
    case J_LIST: put_list_repr(it, b, v.u.l); break;
    case J_DICT: put_dict_repr(it, b, v.u.d); break;
    default: put_object_repr(it, b, v); break;
    }
    it->depth--;
    return it->status == TERN_OK;
}

bool jbuf_put_val(struct jinterp *it, struct jbuf *b, struct jval v) {
    if (v.type == J_UNDEF) return it->status == TERN_OK;
    if (v.type == J_STR) return jbuf_put_str(it, b, v.u.s);
    return jbuf_put_repr(it, b, v);
}

struct jval jto_str(struct jinterp *it, struct jval v) {
    if (v.type == J_STR) return v;
    struct jbuf b = {0};
    jbuf_put_val(it, &b, v);
    return jbuf_val(it, &b);
}

// ---- tojson

struct jjson {
    struct jbuf *b;
    const struct jstr *item_sep, *key_sep; // NULL: the default
    const struct jstr *indent;             // NULL: one line
    bool ascii, sort;
    int level;
};

static bool json_str(struct jinterp *it, const struct jjson *j, const struct jstr *s) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    jstep(it, s->len / 32);
    jbuf_puts(it, j->b, "\"");
    size_t plain = 0; // start of the run that needs no escape
    for (size_t i = 0; i < s->len && it->status == TERN_OK;) {
        uint8_t c = (uint8_t)s->data[i];
        bool wide = j->ascii && c >= 0x7f;
        if (c >= 0x20 && c != '"' && c != '\\' && !wide) {
            i++;
            continue;
        }
        jbuf_put(it, j->b, s->data + plain, s->taint ? s->taint + plain : NULL, i - plain);
        int n;
        uint32_t r = utf8_decode((struct str){s->data + i, s->len - i}, &n);
        bool tainted = s->taint && s->taint[i];
        const char *p = c ? strchr(from, c) : NULL;
        if (p) {
            put_escape(it, j->b, to[p - from], tainted);
        } else if (r >= 0x10000) {
            put_hex(it, j->b, 'u', 4, 0xD800 + ((r - 0x10000) >> 10), tainted);
            put_hex(it, j->b, 'u', 4, 0xDC00 + ((r - 0x10000) & 0x3FF), tainted);
        } else {
            put_hex(it, j->b, 'u', 4, r, tainted);
        }
        plain = i += (size_t)n;
    }
    jbuf_put(it, j->b, s->data + plain, s->taint ? s->taint + plain : NULL, s->len - plain);
    return jbuf_puts(it, j->b, "\"");
}

static bool json_float(struct jinterp *it, const struct jjson *j, double f) {
    char text[40];
    if (f != f) return jbuf_puts(it, j->b, "NaN");
    if (f - f != 0) return jbuf_puts(it, j->b, f < 0 ? "-Infinity" : "Infinity");
    return jbuf_put(it, j->b, text, NULL, jfloat_print(text, f));
}

static bool json_newline(struct jinterp *it, const struct jjson *j) {
    if (!j->indent) return it->status == TERN_OK;
    jbuf_puts(it, j->b, "\n");
    for (int i = 0; i < j->level; i++) jbuf_put_str(it, j->b, j->indent);
    return it->status == TERN_OK;
}

static bool json_sep(struct jinterp *it, const struct jjson *j) {
    if (j->item_sep) return jbuf_put_str(it, j->b, j->item_sep);
    return jbuf_puts(it, j->b, j->indent ? "," : ", ");
}

static bool json_value(struct jinterp *it, struct jjson *j, struct jval v);

static bool json_key(struct jinterp *it, struct jjson *j, struct jval key) {
    switch (key.type) {
    case J_STR: return json_str(it, j, key.u.s);
    case J_NONE:
    case J_BOOL:
    case J_INT:
    case J_FLOAT: return jbuf_puts(it, j->b, "\"") && json_value(it, j, key) && jbuf_puts(it, j->b, "\"");
    default: jfail(it, TERN_BAD_FORMAT, "tojson: a '%s' cannot be an object's key", jtype_name(key)); return false;
    }
}

static int pair_order(struct jinterp *it, const struct jpair *a, const struct jpair *b) {
    return jcompare(it, a->key, b->key);
}

// Insertion by halving into a sorted copy: objects are small and the order is stable.
static const struct jpair *sorted_pairs(struct jinterp *it, const struct jdict *d) {
    struct jpair *out = jalloc(it, d->len, sizeof(*out));
    for (size_t i = 0; out && i < d->len && jstep(it, 1 + i / 16); i++) {
        size_t low = 0, high = i;
        while (low < high) {
            size_t mid = (low + high) / 2;
            if (pair_order(it, &d->pairs[i], &out[mid]) < 0)
                high = mid;
            else
                low = mid + 1;
        }
        memmove(out + low + 1, out + low, (i - low) * sizeof(*out));
        out[low] = d->pairs[i];
    }
    return out;
}

static bool json_dict(struct jinterp *it, struct jjson *j, const struct jdict *d) {
    const struct jpair *pairs = j->sort && d->len > 0 ? sorted_pairs(it, d) : d->pairs;
    if (it->status != TERN_OK) return false;
    if (d->len == 0) return jbuf_puts(it, j->b, "{}");
    jbuf_puts(it, j->b, "{");
    j->level++;
    for (size_t i = 0; i < d->len && it->status == TERN_OK; i++) {
        if (i > 0) json_sep(it, j);
        json_newline(it, j);
        json_key(it, j, pairs[i].key);
        if (j->key_sep)
            jbuf_put_str(it, j->b, j->key_sep);
        else
            jbuf_puts(it, j->b, ": ");
        json_value(it, j, pairs[i].value);
    }
    j->level--;
    return json_newline(it, j) && jbuf_puts(it, j->b, "}");
}

static bool json_list(struct jinterp *it, struct jjson *j, const struct jlist *l) {
    if (l->kind != JL_LIST && l->kind != JL_TUPLE && l->kind != JL_GROUP) {
        jfail(it, TERN_BAD_FORMAT, "tojson: a '%s' is no JSON value",
              jtype_name((struct jval){.type = J_LIST, .u.l = (struct jlist *)l}));
        return false;
    }
    if (l->len == 0) return jbuf_puts(it, j->b, "[]");
    jbuf_puts(it, j->b, "[");
    j->level++;
    for (size_t i = 0; i < l->len && it->status == TERN_OK; i++) {
        if (i > 0) json_sep(it, j);
        json_newline(it, j);
        json_value(it, j, l->items[i]);
    }
    j->level--;
    return json_newline(it, j) && jbuf_puts(it, j->b, "]");
}

static bool json_value(struct jinterp *it, struct jjson *j, struct jval v) {
    if (!enter(it)) return false;
    switch (v.type) {
    case J_NONE: jbuf_puts(it, j->b, "null"); break;
    case J_BOOL: jbuf_puts(it, j->b, v.u.b ? "true" : "false"); break;
    case J_INT: put_int(it, j->b, v.u.i); break;
    case J_FLOAT: json_float(it, j, v.u.f); break;
    case J_STR: json_str(it, j, v.u.s); break;
    case J_LIST: json_list(it, j, v.u.l); break;
    case J_DICT: json_dict(it, j, v.u.d); break;
    default: jfail(it, TERN_BAD_FORMAT, "tojson: a '%s' is no JSON value", jtype_name(v)); break;
    }
    it->depth--;
    return it->status == TERN_OK;
}

struct jval jfilter_tojson(struct jinterp *it, struct jval self, const struct jcall *c) {
    static const char *const params[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    struct jval a[4];
    if (!jargs_bind(it, c, "tojson", params, 4, 0, a)) return jval_undef;
    struct jbuf b = {0};
    struct jjson j = {.b = &b, .ascii = jtruth(a[0]), .sort = jtruth(a[3])};
    int64_t width;
    if (jint_of(a[1], &width)) {
        struct jval spaces = jstr_lit(it, " ");
        if (spaces.type == J_STR) spaces = jstr_repeat(it, spaces.u.s, width);
        if (spaces.type != J_STR) return jval_undef;
        j.indent = spaces.u.s;
    } else if (a[1].type == J_STR) {
        j.indent = a[1].u.s;
    } else if (a[1].type != J_NONE && a[1].type != J_MISSING) {
        return jfail(it, TERN_BAD_FORMAT, "tojson: indent must be a number or a string, not '%s'", jtype_name(a[1]));
    }
    if (a[2].type == J_LIST) {
        const struct jlist *l = a[2].u.l;
        if (l->len != 2 || l->items[0].type != J_STR || l->items[1].type != J_STR)
            return jfail(it, TERN_BAD_FORMAT, "tojson: separators must be two strings");
        j.item_sep = l->items[0].u.s;
        j.key_sep = l->items[1].u.s;
    } else if (a[2].type != J_NONE && a[2].type != J_MISSING) {
        return jfail(it, TERN_BAD_FORMAT, "tojson: separators must be two strings");
    }
    json_value(it, &j, self);
    return jbuf_val(it, &b);
}
