// Prompt routing: an encoder reads the routes and the text together, and a small head compares them.
//
// The input is a heading "Categories:", a line "- route" for each, a blank line, a heading "Text:", the text. A route's
// vector is the mean of the rows whose tokens overlap its name, the text's the mean of those that end behind its
// beginning; tokens without text (the begin token) count nowhere. Places are bytes: routes and text begin and end at
// ASCII line ends, where bytes and characters part alike. Then
//   q = unit(tok_proj(text)), c = unit(rule_proj(route)), logit = q · c * min(exp(logit_scale), 30) + score_bias
// The head is some thousand products, so it stays on the host, in doubles: equal rows give equal logits on any machine.
#include "base/base.h"
#include "engine_int.h"

#include <math.h>

#define ROUTE_SCALE_MAX 30.0
#define ROUTE_NORM_MIN 1e-12 // as torch's normalize
#define ROUTE_TEXT_MAX (1u << 20)
#define ROUTE_WIDTH_MAX 65536

struct router {
    const struct tensor *text_w, *text_b, *route_w, *route_b; // [width, n_embd], [width] each
    double scale, bias;
    int width;
};

static void tensor_row(const struct tensor *t, int64_t row, uint8_t *bytes, float *out) {
    model_tensor_read(t, row, 0, t->ne[0], bytes);
    op_dequant_row(t->format, bytes, t->ne[0], out);
}

static enum tern_status head_tensor(const struct model *m, const char *name, int64_t n_in, int64_t n_out,
                                    const struct tensor **out, struct tern_err *err) {
    const struct tensor *t = *out = model_tensor_find(m, name);
    if (!t)
        return err_set(err, TERN_UNSUPPORTED,
                       "%s has no %s: routing needs an encoder with a prompt-router head (tok_proj, rule_proj, "
                       "logit_scale, score_bias)",
                       m->name, name);
    if (!format_is_float(t->format) || !tensor_has_data(t) || (n_in > 0 && t->ne[0] != n_in) ||
        (n_out > 0 && t->ne[1] != n_out) || t->ne[2] != 1 || t->ne[3] != 1 || t->ne[1] > ROUTE_WIDTH_MAX)
        return err_set(err, TERN_BAD_FORMAT, "%s: %s is %lld by %lld, expected %lld by %lld in F32, F16 or BF16",
                       m->name, name, (long long)t->ne[1], (long long)t->ne[0], (long long)n_out, (long long)n_in);
    return TERN_OK;
}

static enum tern_status head_scalar(const struct model *m, const char *name, double *out, struct tern_err *err) {
    const struct tensor *t;
    uint8_t bytes[4];
    float v;
    TRY(head_tensor(m, name, 1, 1, &t, err));
    tensor_row(t, 0, bytes, &v);
    if (!(fabsf(v) < INFINITY)) return err_set(err, TERN_BAD_FORMAT, "%s: %s is not finite", m->name, name);
    *out = (double)v;
    return TERN_OK;
}

static enum tern_status router_find(const struct model *m, struct router *r, struct tern_err *err) {
    int64_t n = m->hyper.n_embd;
    double scale;
    TRY(head_tensor(m, "tok_proj.weight", n, 0, &r->text_w, err));
    int64_t width = r->text_w->ne[1];
    TRY(head_tensor(m, "tok_proj.bias", width, 1, &r->text_b, err));
    TRY(head_tensor(m, "rule_proj.weight", n, width, &r->route_w, err));
    TRY(head_tensor(m, "rule_proj.bias", width, 1, &r->route_b, err));
    TRY(head_scalar(m, "logit_scale", &scale, err));
    TRY(head_scalar(m, "score_bias", &r->bias, err));
    r->scale = MIN(exp(scale), ROUTE_SCALE_MAX);
    r->width = (int)width;
    return TERN_OK;
}

// ---------------------------------------------------------------------------------------------------------------- inpu

static enum tern_status input_make(struct buf *out, const struct tern_str *routes, size_t n, struct tern_str text,
                                   struct text_range *places, struct tern_err *err) {
    if (n == 0 || n > TERN_ROUTES_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "%zu routes; 1 to %d can be scored", n, TERN_ROUTES_MAX);
    if (text.len == 0) return err_set(err, TERN_INVALID_ARGUMENT, "an empty text has no route");
    buf_puts(out, "Categories:\n");
    for (size_t i = 0; i < n; i++) {
        if (routes[i].len == 0 || memchr(routes[i].data, '\n', routes[i].len))
            return err_set(err, TERN_INVALID_ARGUMENT, "route %zu is empty or has a line end; a route is one line",
                           i + 1);
        buf_puts(out, "- ");
        places[i].begin = out->len;
        buf_put(out, routes[i].data, routes[i].len);
        places[i].end = out->len;
        buf_puts(out, "\n");
    }
    buf_puts(out, "\nText:\n");
    places[n].begin = out->len;
    buf_put(out, text.data, text.len);
    places[n].end = out->len;
    return out->failed ? err_set(err, TERN_LIMIT, "text and routes have more than %u bytes", ROUTE_TEXT_MAX) : TERN_OK;
}

// Byte ranges of the tokens; that they spell the text is checked.
static enum tern_status spans_make(const struct tokenizer *t, const struct id_list *ids, struct str text,
                                   struct text_range *spans, struct tern_err *err) {
    size_t at = 0;
    for (size_t i = 0; i < ids->len; i++) {
        struct str s = tokenizer_token_bytes(t, ids->ids[i]);
        if (tokenizer_is_control(t, ids->ids[i])) s.len = 0;
        if (s.len > text.len - at || (s.len > 0 && memcmp(s.data, text.data + at, s.len) != 0))
            return err_set(err, TERN_UNSUPPORTED, "this tokenizer changes text, so routes have no place in it");
        spans[i] = (struct text_range){at, at + s.len};
        at += s.len;
    }
    return at == text.len ? TERN_OK
                          : err_set(err, TERN_UNSUPPORTED, "this tokenizer drops text, so routes have no place in it");
}

// ----------------------------------------------------------------------------------------------------------------- hea

struct scoring {
    const struct router *r;
    const float *rows; // [n_rows][n_embd]
    const struct text_range *spans;
    int n_rows, n_embd;
    double *mean; // [n_embd]
    float *row;   // [n_embd or width]
    uint8_t *bytes;
};

// The mean of the rows whose tokens lie in [begin, end) in part; is_text: that end behind begin.
static bool mean_make(const struct scoring *s, struct text_range place, bool is_text) {
    int n = 0;
    memset(s->mean, 0, (size_t)s->n_embd * sizeof *s->mean);
    for (int i = 0; i < s->n_rows; i++) {
        struct text_range t = s->spans[i];
        if (t.begin == t.end || t.end <= place.begin || (!is_text && t.begin >= place.end)) continue;
        for (int c = 0; c < s->n_embd; c++) s->mean[c] += (double)s->rows[(size_t)i * (size_t)s->n_embd + (size_t)c];
        n++;
    }
    for (int c = 0; n > 0 && c < s->n_embd; c++) s->mean[c] /= n;
    return n > 0;
}

// out [width]: the mean projected, of length one.
static void project(const struct scoring *s, const struct tensor *w, const struct tensor *b, double *out) {
    double length = 0;
    for (int o = 0; o < s->r->width; o++) {
        double sum = 0;
        tensor_row(w, o, s->bytes, s->row);
        for (int c = 0; c < s->n_embd; c++) sum += (double)s->row[c] * s->mean[c];
        out[o] = sum;
    }
    tensor_row(b, 0, s->bytes, s->row);
    for (int o = 0; o < s->r->width; o++) {
        out[o] += (double)s->row[o];
        length += out[o] * out[o];
    }
    length = MAX(sqrt(length), ROUTE_NORM_MIN);
    for (int o = 0; o < s->r->width; o++) out[o] /= length;
}

static enum tern_status routes_score(struct scoring *s, const struct text_range *places, size_t n, float *logits,
                                     struct arena *a, struct tern_err *err) {
    size_t width = (size_t)s->r->width, widest = MAX(width, (size_t)s->n_embd);
    double *q = arena_calloc(a, 2 * width, sizeof *q), *c = q + width;
    s->mean = arena_calloc(a, (size_t)s->n_embd, sizeof *s->mean);
    s->row = arena_calloc(a, widest, sizeof *s->row);
    s->bytes = arena_calloc(a, widest, sizeof(float));
    if (!q || !s->mean || !s->row || !s->bytes) return err_set(err, TERN_NO_MEMORY, "no memory to score routes");
    if (!mean_make(s, places[n], true)) return err_set(err, TERN_INVALID_ARGUMENT, "the text has no tokens");
    project(s, s->r->text_w, s->r->text_b, q);
    for (size_t i = 0; i < n; i++) {
        double dot = 0;
        if (!mean_make(s, places[i], false))
            return err_set(err, TERN_INVALID_ARGUMENT, "route %zu has no tokens", i + 1);
        project(s, s->r->route_w, s->r->route_b, c);
        for (size_t k = 0; k < width; k++) dot += q[k] * c[k];
        logits[i] = (float)(dot * s->r->scale + s->r->bias);
    }
    return TERN_OK;
}

enum tern_status tern_route(struct tern_engine *e, struct tern_str text, const struct tern_str *routes, size_t n_routes,
                            float *logits, struct tern_err *err) {
    struct router r;
    struct buf input;
    struct arena a;
    struct id_list ids = {0};
    float *rows = NULL;
    if (!e->model->hyper.bidirectional)
        return err_set(err, TERN_UNSUPPORTED, "%s generates text; routes are scored by encoders", e->model->name);
    if (!e->tokenizer) return err_set(err, TERN_UNSUPPORTED, "this model has no tokenizer");
    TRY(router_find(e->model, &r, err));
    arena_init(&a, 0);
    buf_init(&input, ROUTE_TEXT_MAX);
    struct text_range *places = arena_calloc(&a, MIN(n_routes, TERN_ROUTES_MAX) + 1, sizeof *places), *spans = NULL;
    enum tern_status status = places ? input_make(&input, routes, n_routes, text, places, err)
                                     : err_set(err, TERN_NO_MEMORY, "no memory to score routes");
    struct encode_options o = {.add_bos = tokenizer_adds_bos(e->tokenizer)};
    if (status == TERN_OK) status = tokenizer_encode(e->tokenizer, &ids, buf_str(&input), &o, err);
    if (status == TERN_OK) {
        spans = arena_calloc(&a, ids.len + 1, sizeof *spans);
        status = spans ? spans_make(e->tokenizer, &ids, buf_str(&input), spans, err)
                       : err_set(err, TERN_NO_MEMORY, "no memory to score routes");
    }
    if (status == TERN_OK) status = engine_encode(e, &ids, &rows, err);
    if (status == TERN_OK) {
        struct scoring s = {
            .r = &r, .rows = rows, .spans = spans, .n_rows = (int)ids.len, .n_embd = e->model->hyper.n_embd};
        status = routes_score(&s, places, n_routes, logits, &a, err);
    }
    mem_free(rows);
    id_list_release(&ids);
    buf_release(&input);
    arena_release(&a);
    return status;
}
