// Counts of prompt and answer lengths (policy.h has the format). Two marginals suffice to know at which contexts steps
// ran: a request answers at a context when its prompt ended before it and the whole did not.
#include "base/base.h"
#include "policy/policy.h"

#include <stdio.h>

#define COUNT_MAX ((int64_t)1 << 52) // every sum of bins fits

static int bin_of(int64_t n) { return (int)MIN(MAX(n, 0) / LENGTHS_BIN, LENGTHS_BINS - 1); }

void lengths_add(struct lengths *l, int64_t n_prompt, int64_t n_answer) {
    l->prompts[bin_of(n_prompt)]++;
    l->totals[bin_of(n_prompt + n_answer)]++;
}

void lengths_merge(struct lengths *l, const struct lengths *more) {
    for (int i = 0; i < LENGTHS_BINS; i++) {
        l->prompts[i] = MIN(l->prompts[i] + more->prompts[i], (uint64_t)COUNT_MAX);
        l->totals[i] = MIN(l->totals[i] + more->totals[i], (uint64_t)COUNT_MAX);
    }
}

uint64_t lengths_requests(const struct lengths *l) {
    uint64_t n = 0;
    for (int i = 0; i < LENGTHS_BINS; i++) n += l->totals[i];
    return n;
}

void lengths_steps(const struct lengths *l, uint64_t steps[LENGTHS_BINS]) {
    uint64_t longer = lengths_requests(l);
    for (int i = 0; i < LENGTHS_BINS; i++) {
        steps[i] = longer; // every request that reached this context, in its prompt or its answer
        longer -= MIN(l->totals[i], longer);
    }
}

// ------------------------------------------------------------------------------------------------------------ as text

static enum tern_status number_take(struct json *j, int64_t max, int64_t *out, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_NUMBER, &item, what, err));
    if (!item.is_int || item.integer < 0 || item.integer > max)
        return err_set(err, TERN_BAD_FORMAT, "lengths: '%s' at byte %zu; a whole number from 0 to %lld is expected",
                       what, item.pos, (long long)max);
    *out = item.integer;
    return TERN_OK;
}

static enum tern_status counts_take(struct json *j, uint64_t *counts, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_ARRAY, &item, what, err));
    while (json_next(j, &item, err) == JSON_ARRAY) {
        int64_t bin = 0, n = 0;
        TRY(number_take(j, LENGTHS_BINS - 1, &bin, "bin", err));
        TRY(number_take(j, COUNT_MAX, &n, "count", err));
        if (json_next(j, &item, err) != JSON_ARRAY_END) break;
        counts[bin] = (uint64_t)n;
    }
    if (item.event == JSON_ERROR) return err ? err->code : TERN_BAD_FORMAT;
    if (item.event == JSON_ARRAY_END && item.depth == 1) return TERN_OK;
    return err_set(err, TERN_BAD_FORMAT, "lengths: '%s' at byte %zu holds no pairs of bin and count", what, item.pos);
}

static enum tern_status keys_take(struct lengths *l, struct json *j, struct tern_err *err) {
    struct json_item item, value;
    int64_t version = 0;
    bool named = false;
    TRY(json_expect(j, JSON_OBJECT, &item, "lengths", err));
    while (json_next(j, &item, err) == JSON_KEY) {
        if (str_eqz(item.text, "version")) {
            TRY(number_take(j, INT32_MAX, &version, "version", err));
        } else if (str_eqz(item.text, "format")) {
            TRY(json_expect(j, JSON_STRING, &value, "format", err));
            named = str_eqz(value.text, "tern-lengths");
        } else if (str_eqz(item.text, "prompts")) {
            TRY(counts_take(j, l->prompts, "prompts", err));
        } else if (str_eqz(item.text, "totals")) {
            TRY(counts_take(j, l->totals, "totals", err));
        } else {
            TRY(json_skip(j, err));
        }
    }
    if (item.event == JSON_OBJECT_END) json_next(j, &item, err);
    if (item.event != JSON_END) return err ? err->code : TERN_BAD_FORMAT;
    if (!named) return err_set(err, TERN_BAD_FORMAT, "lengths: 'format' is not tern-lengths");
    if (version == LENGTHS_VERSION) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "lengths: version %lld; this tern reads %d", (long long)version,
                   LENGTHS_VERSION);
}

enum tern_status lengths_parse(struct lengths *out, struct str text, struct tern_err *err) {
    struct json *j = NULL;
    struct json_options options = {.size_max = LENGTHS_BYTES_MAX, .dup_check = true};
    *out = (struct lengths){0};
    TRY(json_create(&j, text, &options, err));
    enum tern_status status = keys_take(out, j, err);
    json_free(j);
    return status;
}

static void counts_put(struct json_writer *w, const char *key, const uint64_t *counts) {
    json_write_key(w, key);
    json_write_array(w);
    for (int i = 0; i < LENGTHS_BINS; i++) {
        if (counts[i] == 0) continue;
        json_write_array(w);
        json_write_int(w, i);
        json_write_int(w, (int64_t)counts[i]);
        json_write_array_end(w);
    }
    json_write_array_end(w);
}

bool lengths_print(const struct lengths *l, struct buf *out) {
    struct json_writer w;
    json_write_init(&w, out);
    json_write_object(&w);
    json_write_key(&w, "format");
    json_write_str(&w, STR("tern-lengths"));
    json_write_key(&w, "version");
    json_write_int(&w, LENGTHS_VERSION);
    counts_put(&w, "prompts", l->prompts);
    counts_put(&w, "totals", l->totals);
    json_write_object_end(&w);
    return buf_putc(out, '\n') && !out->failed;
}

bool lengths_path(const char *model_digest, char *out, size_t cap) {
    char name[64];
    snprintf(name, sizeof name, "tern/lengths-%.16s.json", model_digest);
    return os_user_dir(OS_USER_STATE, name, out, cap)[0] != 0;
}
