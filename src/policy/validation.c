// Rows of validations as text (policy.h has the format), found and replaced by their key.
#include "base/base.h"
#include "policy/policy.h"

#include <stddef.h>

// Text members of a row, in the order they are written.
static const struct {
    const char *name;
    size_t at, cap;
} texts[] = {
#define TEXT(name, member) \
    { name, offsetof(struct validation, member), sizeof(((struct validation *)0)->member) }
    TEXT("model", key.model),     TEXT("unit", key.unit), TEXT("numerics", key.numerics),
    TEXT("scales", key.scales),   TEXT("chip", key.chip), TEXT("system", key.system),
    TEXT("runtime", key.runtime), TEXT("name", name),     TEXT("reference", reference),
    TEXT("prompts", prompts),     TEXT("least", least),   TEXT("missed", missed),
    TEXT("placement", placement),
#undef TEXT
};
#define KEY_TEXTS 7 // of them the key

static char *member_at(struct validation *v, size_t i) { return (char *)v + texts[i].at; }
static const char *member_of(const struct validation *v, size_t i) { return (const char *)v + texts[i].at; }

// ------------------------------------------------------------------------------------------------------------- reading

static enum tern_status bad(const struct json_item *item, const char *what, struct tern_err *err) {
    return err_set(err, TERN_BAD_FORMAT, "validations: %s is expected at byte %zu", what, item->pos);
}

static enum tern_status number_take(struct json *j, const char *what, double lo, double hi, double *out,
                                    struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_NUMBER, &item, what, err));
    if (!(item.number >= lo && item.number <= hi)) return bad(&item, what, err);
    *out = item.number;
    return TERN_OK;
}

static enum tern_status member_take(struct json *j, struct str key, struct validation *v, unsigned *seen,
                                    struct tern_err *err) {
    struct json_item item;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (!str_eqz(key, texts[i].name)) continue;
        TRY(json_expect(j, JSON_STRING, &item, texts[i].name, err));
        if (item.text.len >= texts[i].cap || memchr(item.text.data, 0, item.text.len))
            return err_set(err, TERN_BAD_FORMAT,
                           "validations: '%s' at byte %zu: a text of at most %zu bytes is expected", texts[i].name,
                           item.pos, texts[i].cap - 1);
        memcpy(member_at(v, i), item.text.data, item.text.len);
        *seen |= 1u << i;
        return TERN_OK;
    }
    double tokens = 0, made = 0;
    if (str_eqz(key, "kl")) return number_take(j, "kl", -1, 1e6, &v->kl, err);
    if (str_eqz(key, "perplexity_ratio")) return number_take(j, "perplexity_ratio", 0, 1e30, &v->ppl_ratio, err);
    if (str_eqz(key, "least_top1")) return number_take(j, "a share of 0 to 1", 0, 1, &v->least_top1, err);
    if (str_eqz(key, "tokens")) {
        TRY(number_take(j, "a number of tokens", 0, 1e12, &tokens, err));
        v->tokens = (int64_t)tokens;
    } else if (str_eqz(key, "made")) {
        TRY(number_take(j, "seconds", 0, 1e12, &made, err));
        v->made_wall_s = (int64_t)made;
    } else if (str_eqz(key, "adopted")) {
        TRY(json_expect(j, JSON_BOOL, &item, "adopted", err));
        v->adopted = item.boolean;
    } else if (str_eqz(key, "top1")) {
        TRY(json_expect(j, JSON_ARRAY, &item, "top1", err));
        for (int i = 0; i < 3; i++) TRY(number_take(j, "a share of 0 to 1", 0, 1, &v->top1[i], err));
        TRY(json_expect(j, JSON_ARRAY_END, &item, "the end of top1", err));
    } else {
        TRY(json_skip(j, err));
    }
    return TERN_OK;
}

static enum tern_status row_take(struct json *j, const struct json_item *at, struct validations *out,
                                 struct tern_err *err) {
    struct validation v = {.tokens = 0};
    struct json_item item;
    unsigned seen = 0, wanted = (1u << KEY_TEXTS) - 1;
    if (at->event != JSON_OBJECT) return bad(at, "a row", err);
    while (json_next(j, &item, err) == JSON_KEY) TRY(member_take(j, item.text, &v, &seen, err));
    if (item.event == JSON_ERROR) return err->code;
    for (size_t i = 0; i < KEY_TEXTS; i++)
        if ((seen & wanted & (1u << i)) == 0)
            return err_set(err, TERN_BAD_FORMAT, "validations: the row at byte %zu has no '%s'", at->pos,
                           texts[i].name);
    if (!validations_put(out, &v)) return err_set(err, TERN_NO_MEMORY, "no memory for validations");
    return TERN_OK;
}

static enum tern_status rows_take(struct json *j, struct validations *out, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_ARRAY, &item, "rows", err));
    while (json_next(j, &item, err) != JSON_ARRAY_END) {
        if (item.event == JSON_ERROR) return err->code;
        TRY(row_take(j, &item, out, err));
    }
    return TERN_OK;
}

static enum tern_status object_take(struct json *j, struct validations *out, struct tern_err *err) {
    struct json_item item;
    bool format = false, rows = false;
    double version = 0;
    TRY(json_expect(j, JSON_OBJECT, &item, "validations", err));
    while (json_next(j, &item, err) == JSON_KEY) {
        if (str_eqz(item.text, "format")) {
            TRY(json_expect(j, JSON_STRING, &item, "format", err));
            format = str_eqz(item.text, "tern-validations");
        } else if (str_eqz(item.text, "version")) {
            TRY(number_take(j, "a version", 0, 1e9, &version, err));
        } else if (str_eqz(item.text, "rows")) {
            TRY(rows_take(j, out, err));
            rows = true;
        } else {
            TRY(json_skip(j, err));
        }
    }
    if (item.event == JSON_ERROR) return err->code;
    if (!format || !rows)
        return err_set(err, TERN_BAD_FORMAT, "validations: no object with format 'tern-validations' and rows");
    if (version != VALIDATIONS_VERSION)
        return err_set(err, TERN_MISMATCH, "validations: version %g; this program knows %d", version,
                       VALIDATIONS_VERSION);
    return json_next(j, &item, err) == JSON_END ? TERN_OK : err->code;
}

enum tern_status validations_parse(struct validations *out, struct str text, struct tern_err *err) {
    const struct json_options o = {.dup_check = true, .size_max = VALIDATIONS_BYTES_MAX};
    struct json *j;
    *out = (struct validations){0};
    TRY(json_create(&j, text, &o, err));
    enum tern_status status = object_take(j, out, err);
    json_free(j);
    return status;
}

// ------------------------------------------------------------------------------------------------------------- writing

static void row_print(struct json_writer *w, const struct validation *v) {
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"kl", v->kl}, {"perplexity_ratio", v->ppl_ratio}, {"least_top1", v->least_top1}};
    json_write_object(w);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_write_key(w, texts[i].name);
        json_write_str(w, str_from(member_of(v, i)));
    }
    json_write_key(w, "tokens");
    json_write_int(w, v->tokens);
    json_write_key(w, "top1");
    json_write_array(w);
    for (int i = 0; i < 3; i++) json_write_f64(w, v->top1[i]);
    json_write_array_end(w);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        double x = numbers[i].value;
        json_write_key(w, numbers[i].name);
        json_write_f64(w, x == x && x < 1e6 ? x : 1e6); // rows of arithmetics that broke have no finite ones
    }
    json_write_key(w, "adopted");
    json_write_bool(w, v->adopted);
    json_write_key(w, "made");
    json_write_int(w, v->made_wall_s);
    json_write_object_end(w);
}

bool validations_print(const struct validations *v, struct buf *out) {
    struct json_writer w;
    json_write_init(&w, out);
    json_write_object(&w);
    json_write_key(&w, "format");
    json_write_str(&w, STR("tern-validations"));
    json_write_key(&w, "version");
    json_write_int(&w, VALIDATIONS_VERSION);
    json_write_key(&w, "rows");
    json_write_array(&w);
    for (int i = 0; i < v->n; i++) row_print(&w, &v->rows[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    buf_putc(out, '\n');
    return !out->failed;
}

void validations_release(struct validations *v) {
    mem_free(v->rows);
    *v = (struct validations){0};
}

static bool key_eq(const struct validation_key *a, const struct validation_key *b) {
    return strcmp(a->model, b->model) == 0 && strcmp(a->unit, b->unit) == 0 && strcmp(a->numerics, b->numerics) == 0 &&
           strcmp(a->scales, b->scales) == 0 && strcmp(a->chip, b->chip) == 0 && strcmp(a->system, b->system) == 0 &&
           strcmp(a->runtime, b->runtime) == 0;
}

const struct validation *validations_find(const struct validations *v, const struct validation_key *key) {
    for (int i = v->n - 1; i >= 0; i--)
        if (key_eq(&v->rows[i].key, key)) return &v->rows[i];
    return NULL;
}

bool validations_put(struct validations *v, const struct validation *row) {
    if (!v->rows) v->rows = mem_calloc(VALIDATIONS_MAX, sizeof *v->rows);
    if (!v->rows) return false;
    int at = 0;
    while (at < v->n && !key_eq(&v->rows[at].key, &row->key)) at++;
    if (at == v->n && v->n == VALIDATIONS_MAX) at = 0; // the oldest makes room
    if (at < v->n) memmove(&v->rows[at], &v->rows[at + 1], (size_t)(--v->n - at) * sizeof *v->rows);
    v->rows[v->n++] = *row;
    return true;
}

void validation_key_text(const struct validation_key *key, struct buf *out) {
    buf_putf(out, "%s, %s%s, on %s, %s, %s", key->unit, key->numerics, key->scales[0] ? " with scales" : "", key->chip,
             key->system, key->runtime);
}
