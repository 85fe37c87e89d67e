// Global functions of templates: range, dict, namespace, cycler and joiner of Jinja, raise_exception and strftime_now
// of transformers.
#include "base/base.h"
#include "text/jinja_int.h"

typedef const struct jcall *args_t;

#define STRFTIME_FORMAT_MAX 128 // bytes of the format
#define STRFTIME_RESULT_MAX 1024

static struct jval g_range(struct jinterp *it, struct jval self, args_t c) {
    (void)self;
    struct jval a[3];
    int64_t start, stop, step;
    if (!jargs_bind(it, c, "range()", NULL, 3, 1, a) || !jarg_int(it, a[2], "range()", 1, &step) ||
        !jarg_int(it, a[0], "range()", 0, &start) || !jarg_int(it, a[1], "range()", 0, &stop))
        return jval_undef;
    if (a[1].type == J_MISSING) {
        stop = start;
        start = 0;
    }
    if (step == 0) return jfail(it, TERN_BAD_FORMAT, "range(): the step cannot be 0");
    uint64_t n = 0, width = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 ? start < stop : start > stop) {
        uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
        n = (span - 1) / width + 1;
    }
    if (n > JINJA_RANGE_MAX)
        return jfail(it, TERN_LIMIT, "range() of more than %d items (JINJA_RANGE_MAX)", JINJA_RANGE_MAX);
    if (!jstep(it, n / 16)) return jval_undef;
    struct jlist *l = jlist_new(it, JL_RANGE, (size_t)n);
    if (!l) return jval_undef;
    l->r[0] = start;
    l->r[1] = stop;
    l->r[2] = step;
    for (uint64_t i = 0; i < n; i++) jlist_push(it, l, jint((int64_t)((uint64_t)start + i * (uint64_t)step)));
    return jlist_val(l);
}

// dict(mapping or pairs, **more)
static struct jdict *make_dict(struct jinterp *it, args_t c, const char *what) {
    struct jdict *d = jdict_new(it, 0);
    if (c->n_pos > 1) jfail(it, TERN_BAD_FORMAT, "%s takes at most 1 argument, %d given", what, c->n_pos);
    if (c->n_pos == 1 && c->pos[0].type == J_DICT) {
        const struct jdict *from = c->pos[0].u.d;
        for (size_t i = 0; i < from->len && jstep(it, 1); i++)
            jdict_put(it, d, from->pairs[i].key, from->pairs[i].value);
    } else if (c->n_pos == 1) {
        const struct jlist *l = jiterate(it, c->pos[0]);
        for (size_t i = 0; l && i < l->len && jstep(it, 1); i++) {
            const struct jlist *pair = jiterate(it, l->items[i]);
            if (pair && pair->len != 2) jfail(it, TERN_BAD_FORMAT, "%s needs pairs, found %zu values", what, pair->len);
            if (it->status == TERN_OK) jdict_put(it, d, pair->items[0], pair->items[1]);
        }
    }
    for (int i = 0; i < c->n_kw && it->status == TERN_OK; i++)
        jdict_put(it, d, jstr_copy(it, c->kw[i].name, false), c->kw[i].value);
    return it->status == TERN_OK ? d : NULL;
}

static struct jval g_dict(struct jinterp *it, struct jval self, args_t c) {
    (void)self;
    struct jdict *d = make_dict(it, c, "dict()");
    return d ? (struct jval){.type = J_DICT, .u.d = d} : jval_undef;
}

static struct jval g_namespace(struct jinterp *it, struct jval self, args_t c) {
    (void)self;
    struct jdict *d = make_dict(it, c, "namespace()");
    return d ? (struct jval){.type = J_NS, .u.d = d} : jval_undef;
}

static struct jval g_cycler(struct jinterp *it, struct jval self, args_t c) {
    (void)self;
    if (c->n_kw > 0 || c->n_pos == 0) return jfail(it, TERN_BAD_FORMAT, "cycler() needs at least one value");
    struct jcycler *y = jalloc(it, 1, sizeof(*y));
    struct jlist *l = jlist_new(it, JL_TUPLE, (size_t)c->n_pos);
    for (int i = 0; l && i < c->n_pos; i++) jlist_push(it, l, c->pos[i]);
    if (!y || !l) return jval_undef;
    *y = (struct jcycler){.items = l};
    return (struct jval){.type = J_CYCLER, .u.cycler = y};
}

static struct jval g_joiner(struct jinterp *it, struct jval self, args_t c) {
    (void)self;
    static const char *const params[] = {"sep"};
    struct jval a[1];
    if (!jargs_bind(it, c, "joiner()", params, 1, 0, a)) return jval_undef;
    struct jjoiner *j = jalloc(it, 1, sizeof(*j));
    if (!j) return jval_undef;
    *j = (struct jjoiner){.sep = a[0].type == J_MISSING ? jstr_lit(it, ", ") : a[0]};
    return (struct jval){.type = J_JOINER, .u.joiner = j};
}

// The message is the template's own, without position: users shall read what the model's maker wrote.
static struct jval g_raise(struct jinterp *it, struct jval self, args_t c) {
    (void)self;
    static const char *const params[] = {"message"};
    struct jval a[1];
    if (!jargs_bind(it, c, "raise_exception()", params, 1, 1, a)) return jval_undef;
    struct jval text = jto_str(it, a[0]);
    if (it->status != TERN_OK) return jval_undef;
    it->status = err_set_at(it->err, TERN_TEMPLATE, (int64_t)it->pos, "%.*s",
                            (int)MIN(text.u.s->len, (size_t)TERN_ERR_MESSAGE_MAX), text.u.s->data);
    return jval_undef;
}

// Only plain conversions, with the flags of the C library: no widths, which could ask for any length.
static bool sound_format(const struct jstr *f) {
    for (size_t i = 0; i < f->len; i++) {
        if (f->data[i] == 0) return false;
        if (f->data[i] != '%') continue;
        if (i + 1 < f->len && strchr("-_0^#", f->data[i + 1])) i++;
        if (i + 1 >= f->len || !strchr("aAbBcdDeFgGhHIjklmMnprRsStTuUVwWxXyYzZ%", f->data[i + 1]) ||
            f->data[i + 1] == 0)
            return false;
        i++;
    }
    return true;
}

static struct jval g_strftime_now(struct jinterp *it, struct jval self, args_t c) {
    (void)self;
    static const char *const params[] = {"format"};
    struct jval a[1];
    if (!jargs_bind(it, c, "strftime_now()", params, 1, 1, a) || !jstep(it, 64)) return jval_undef;
    const struct jstr *f = jarg_str(it, a[0], "strftime_now()");
    if (!f) return jval_undef;
    if (f->len > STRFTIME_FORMAT_MAX)
        return jfail(it, TERN_LIMIT, "strftime_now(): the format is longer than %d bytes", STRFTIME_FORMAT_MAX);
    if (!sound_format(f)) return jfail(it, TERN_UNSUPPORTED, "strftime_now(): the format is not understood");
    char fmt[STRFTIME_FORMAT_MAX + 2], out[STRFTIME_RESULT_MAX];
    if (f->len) memcpy(fmt, f->data, f->len);
    memcpy(fmt + f->len, ".", 2); // so that an empty result can be told from one that did not fit
    size_t n = clock_format(out, sizeof(out), fmt, it->now_wall_s);
    if (n == 0) return jfail(it, TERN_LIMIT, "strftime_now(): the result is longer than %d bytes", STRFTIME_RESULT_MAX);
    bool tainted = f->taint && f->len && memchr(f->taint, 1, f->len);
    struct jbuf b = {0};
    for (size_t i = 0; i + 1 < n; i++) jbuf_put(it, &b, out + i, tainted ? (const uint8_t *)"\1" : NULL, 1);
    return jbuf_val(it, &b);
}

static const struct jbuiltin globals[] = {
    {"range", g_range},
    {"dict", g_dict},
    {"namespace", g_namespace},
    {"cycler", g_cycler},
    {"joiner", g_joiner},
    {"raise_exception", g_raise},
    {"strftime_now", g_strftime_now},
};

const struct jbuiltin *jglobal_find(struct str name) { return jbuiltin_find(globals, ARRAY_LEN(globals), name); }
