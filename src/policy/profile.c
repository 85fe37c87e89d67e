// Profiles as text (policy.h has the format). Numbers pass through microseconds written so that they read back equal.
#include "base/base.h"
#include "policy/policy.h"

#include <math.h>
#include <stdio.h>

#define PROFILE_US_MAX 1e10 // per step: nearly three hours

// ---------------------------------------------------------------------------------------------------------- reading

struct reader {
    struct json *j;
    struct profile *p;
    struct tern_err *err;
    int n_verify, n_verify_rows, n_draft; // lengths seen, to be held against rows and ctx
    bool has_format, has_curve;
    int version;
};

static enum tern_status text_take(struct reader *r, char *out, size_t cap, const char *what) {
    struct json_item item;
    TRY(json_expect(r->j, JSON_STRING, &item, what, r->err));
    if (item.text.len >= cap)
        return err_set(r->err, TERN_BAD_FORMAT, "profile: '%s' has %zu bytes, at most %zu are possible", what,
                       item.text.len, cap - 1);
    memcpy(out, item.text.data, item.text.len);
    out[item.text.len] = 0;
    return TERN_OK;
}

static enum tern_status us_take(struct reader *r, const struct json_item *item, const char *what, float *out) {
    if (item->event != JSON_NUMBER || !(item->number >= 0 && item->number <= PROFILE_US_MAX))
        return err_set(r->err, TERN_BAD_FORMAT,
                       "profile: '%s' at byte %zu; a time from 0 to %g microseconds is expected", what, item->pos,
                       PROFILE_US_MAX);
    *out = (float)(item->number * 1e3);
    return TERN_OK;
}

static enum tern_status int_take(struct reader *r, const struct json_item *item, const char *what, int64_t lo,
                                 int64_t hi, int64_t *out) {
    if (item->event != JSON_NUMBER || !item->is_int || item->integer < lo || item->integer > hi)
        return err_set(r->err, TERN_BAD_FORMAT,
                       "profile: '%s' at byte %zu; a whole number from %lld to %lld is expected", what, item->pos,
                       (long long)lo, (long long)hi);
    *out = item->integer;
    return TERN_OK;
}

// A list of at most cap numbers through take.
static enum tern_status rows_take(struct reader *r) {
    struct json_item item;
    struct width_costs *c = &r->p->costs;
    TRY(json_expect(r->j, JSON_ARRAY, &item, "rows", r->err));
    for (c->n_rows = 0; json_next(r->j, &item, r->err) != JSON_ARRAY_END; c->n_rows++) {
        int64_t v = 0;
        if (item.event == JSON_ERROR) return r->err->code;
        if (c->n_rows == WIDTH_ROWS_MAX)
            return err_set(r->err, TERN_LIMIT, "profile: more than %d widths", WIDTH_ROWS_MAX);
        TRY(int_take(r, &item, "rows", 1, INT16_MAX, &v));
        c->rows[c->n_rows] = (int16_t)v;
    }
    return TERN_OK;
}

static enum tern_status ctx_take(struct reader *r) {
    struct json_item item;
    struct width_costs *c = &r->p->costs;
    TRY(json_expect(r->j, JSON_ARRAY, &item, "ctx", r->err));
    for (c->n_ctx = 0; json_next(r->j, &item, r->err) != JSON_ARRAY_END; c->n_ctx++) {
        int64_t v = 0;
        if (item.event == JSON_ERROR) return r->err->code;
        if (c->n_ctx == WIDTH_CTX_MAX)
            return err_set(r->err, TERN_LIMIT, "profile: more than %d contexts", WIDTH_CTX_MAX);
        TRY(int_take(r, &item, "ctx", 0, INT32_MAX, &v));
        c->ctx[c->n_ctx] = (int32_t)v;
    }
    return TERN_OK;
}

static enum tern_status times_take(struct reader *r, const char *what, float *out, int cap, int *n) {
    struct json_item item;
    for (*n = 0; json_next(r->j, &item, r->err) != JSON_ARRAY_END; ++*n) {
        if (item.event == JSON_ERROR) return r->err->code;
        if (*n == cap) return err_set(r->err, TERN_LIMIT, "profile: '%s' has more than %d times", what, cap);
        TRY(us_take(r, &item, what, &out[*n]));
    }
    return TERN_OK;
}

static enum tern_status verify_take(struct reader *r) {
    struct json_item item;
    TRY(json_expect(r->j, JSON_ARRAY, &item, "verify_us", r->err));
    for (r->n_verify = 0; json_next(r->j, &item, r->err) != JSON_ARRAY_END; r->n_verify++) {
        int n = 0;
        if (item.event == JSON_ERROR) return r->err->code;
        if (item.event != JSON_ARRAY || r->n_verify == WIDTH_CTX_MAX)
            return err_set(r->err, TERN_BAD_FORMAT, "profile: 'verify_us' at byte %zu; at most %d lists are expected",
                           item.pos, WIDTH_CTX_MAX);
        TRY(times_take(r, "verify_us", r->p->costs.verify[r->n_verify], WIDTH_ROWS_MAX, &n));
        if (r->n_verify > 0 && n != r->n_verify_rows)
            return err_set(r->err, TERN_BAD_FORMAT, "profile: 'verify_us' has lists of %d and %d times",
                           r->n_verify_rows, n);
        r->n_verify_rows = n;
    }
    return TERN_OK;
}

static enum tern_status curve_member(struct reader *r, struct str key) {
    struct width_costs *c = &r->p->costs;
    struct json_item item;
    const struct {
        const char *name;
        float *out;
    } times[] = {{"draft_node_us", &c->draft_node},
                 {"catch_up_us", &c->catch_up},
                 {"host_us", &c->host},
                 {"host_plain_us", &c->host_plain}};
    if (str_eqz(key, "rows")) return rows_take(r);
    if (str_eqz(key, "ctx")) return ctx_take(r);
    if (str_eqz(key, "verify_us")) return verify_take(r);
    if (str_eqz(key, "draft_us")) {
        TRY(json_expect(r->j, JSON_ARRAY, &item, "draft_us", r->err));
        return times_take(r, "draft_us", c->draft, WIDTH_CTX_MAX, &r->n_draft);
    }
    for (size_t i = 0; i < ARRAY_LEN(times); i++)
        if (str_eqz(key, times[i].name)) {
            TRY(json_expect(r->j, JSON_NUMBER, &item, times[i].name, r->err));
            return us_take(r, &item, times[i].name, times[i].out);
        }
    return json_skip(r->j, r->err);
}

static enum tern_status curve_take(struct reader *r) {
    struct json_item item;
    const struct width_costs *c = &r->p->costs;
    TRY(json_expect(r->j, JSON_OBJECT, &item, "curve", r->err));
    while (json_next(r->j, &item, r->err) == JSON_KEY) TRY(curve_member(r, item.text));
    if (item.event == JSON_ERROR) return r->err->code;
    if (r->n_verify != c->n_ctx || r->n_draft != c->n_ctx || (c->n_ctx > 0 && r->n_verify_rows != c->n_rows))
        return err_set(r->err, TERN_BAD_FORMAT,
                       "profile: %d contexts and %d widths, but %d lists of %d verify times and %d draft times",
                       c->n_ctx, c->n_rows, r->n_verify, r->n_verify_rows, r->n_draft);
    r->has_curve = true;
    return width_costs_check(c, r->err) == TERN_OK ? TERN_OK : (r->err->code = TERN_BAD_FORMAT);
}

static enum tern_status member_take(struct reader *r, struct str key) {
    struct profile *p = r->p;
    struct json_item item;
    char format[PROFILE_NAME];
    int64_t v = 0;
    if (str_eqz(key, "format")) {
        TRY(text_take(r, format, sizeof format, "format"));
        r->has_format = strcmp(format, "tern-profile") == 0;
        return TERN_OK;
    }
    if (str_eqz(key, "version") || str_eqz(key, "threads") || str_eqz(key, "made")) {
        char name = key.data[0];
        TRY(json_expect(r->j, JSON_NUMBER, &item, name == 'v' ? "version" : name == 't' ? "threads" : "made", r->err));
        TRY(int_take(r, &item, "version, threads or made", 0, name == 'm' ? INT64_MAX : INT16_MAX, &v));
        if (name == 'v') r->version = (int)v;
        if (name == 't') p->threads = (int)v;
        if (name == 'm') p->made_wall_s = v;
        return TERN_OK;
    }
    if (str_eqz(key, "model")) return text_take(r, p->model, sizeof p->model, "model");
    if (str_eqz(key, "drafter")) return text_take(r, p->drafter, sizeof p->drafter, "drafter");
    if (str_eqz(key, "unit")) return text_take(r, p->unit, sizeof p->unit, "unit");
    if (str_eqz(key, "isa")) return text_take(r, p->isa, sizeof p->isa, "isa");
    if (str_eqz(key, "numerics")) return text_take(r, p->numerics, sizeof p->numerics, "numerics");
    if (str_eqz(key, "curve")) return curve_take(r);
    return json_skip(r->j, r->err);
}

enum tern_status profile_parse(struct profile *out, struct str text, struct tern_err *err) {
    struct tern_err local;
    struct reader r = {.p = out, .err = err ? err : &local};
    struct json_options options = {.size_max = PROFILE_BYTES_MAX, .dup_check = true};
    struct json_item item;
    *out = (struct profile){.threads = 0};
    TRY(json_create(&r.j, text, &options, r.err));
    enum tern_status status = json_expect(r.j, JSON_OBJECT, &item, "a profile", r.err);
    while (status == TERN_OK && json_next(r.j, &item, r.err) == JSON_KEY) status = member_take(&r, item.text);
    if (status == TERN_OK && item.event == JSON_OBJECT_END) json_next(r.j, &item, r.err);
    if (status == TERN_OK && item.event == JSON_ERROR) status = r.err->code;
    json_free(r.j);
    TRY(status);
    if (!r.has_format) return err_set(r.err, TERN_BAD_FORMAT, "profile: \"format\": \"tern-profile\" is expected");
    if (r.version != PROFILE_VERSION)
        return err_set(r.err, TERN_UNSUPPORTED, "profile: version %d; this program reads version %d", r.version,
                       PROFILE_VERSION);
    if (!r.has_curve) return err_set(r.err, TERN_BAD_FORMAT, "profile: there is no \"curve\"");
    return TERN_OK;
}

// ---------------------------------------------------------------------------------------------------------- writing

static void us_put(struct json_writer *w, float ns) { json_write_f64(w, (double)ns * 1e-3); }

static void us_field(struct json_writer *w, const char *key, float ns) {
    json_write_key(w, key);
    us_put(w, ns);
}

static void curve_print(struct json_writer *w, const struct width_costs *c) {
    json_write_key(w, "curve");
    json_write_object(w);
    json_write_key(w, "rows");
    json_write_array(w);
    for (int i = 0; i < c->n_rows; i++) json_write_int(w, c->rows[i]);
    json_write_array_end(w);
    json_write_key(w, "ctx");
    json_write_array(w);
    for (int x = 0; x < c->n_ctx; x++) json_write_int(w, c->ctx[x]);
    json_write_array_end(w);
    json_write_key(w, "verify_us");
    json_write_array(w);
    for (int x = 0; x < c->n_ctx; x++) {
        json_write_array(w);
        for (int i = 0; i < c->n_rows; i++) us_put(w, c->verify[x][i]);
        json_write_array_end(w);
    }
    json_write_array_end(w);
    json_write_key(w, "draft_us");
    json_write_array(w);
    for (int x = 0; x < c->n_ctx; x++) us_put(w, c->draft[x]);
    json_write_array_end(w);
    us_field(w, "draft_node_us", c->draft_node);
    us_field(w, "catch_up_us", c->catch_up);
    us_field(w, "host_us", c->host);
    us_field(w, "host_plain_us", c->host_plain);
    json_write_object_end(w);
}

bool profile_print(const struct profile *p, struct buf *out) {
    struct json_writer w;
    const struct {
        const char *key, *value;
    } texts[] = {
        {"model", p->model}, {"drafter", p->drafter}, {"unit", p->unit}, {"isa", p->isa}, {"numerics", p->numerics}};
    json_write_init(&w, out);
    json_write_object(&w);
    json_write_key(&w, "format");
    json_write_str(&w, STR("tern-profile"));
    json_write_key(&w, "version");
    json_write_int(&w, PROFILE_VERSION);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_write_key(&w, texts[i].key);
        json_write_str(&w, str_from(texts[i].value));
    }
    json_write_key(&w, "threads");
    json_write_int(&w, p->threads);
    json_write_key(&w, "made");
    json_write_int(&w, p->made_wall_s);
    curve_print(&w, &p->costs);
    json_write_object_end(&w);
    buf_putc(out, '\n');
    return !out->failed;
}

bool profile_serves(const struct profile *p, const struct profile *key) {
    return strcmp(p->model, key->model) == 0 && strcmp(p->drafter, key->drafter) == 0 &&
           strcmp(p->unit, key->unit) == 0 && strcmp(p->isa, key->isa) == 0 &&
           strcmp(p->numerics, key->numerics) == 0 && p->threads == key->threads;
}

void profile_file_name(const struct profile *key, char out[PROFILE_FILE_NAME]) {
    static const char hex[] = "0123456789abcdef";
    const char *const parts[] = {key->model, key->drafter, key->unit, key->isa, key->numerics};
    struct sha256 h;
    uint8_t digest[32];
    char name[33];
    sha256_init(&h);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) sha256_update(&h, parts[i], strlen(parts[i]) + 1);
    sha256_update(&h, &key->threads, sizeof key->threads);
    sha256_final(&h, digest);
    for (int i = 0; i < 16; i++) {
        name[2 * i] = hex[digest[i] >> 4];
        name[2 * i + 1] = hex[digest[i] & 15];
    }
    name[32] = 0;
    snprintf(out, PROFILE_FILE_NAME, "profile-%s.json", name);
}
