// Reading a request's JSON by a table of its fields: types and ranges are checked in one place, and what is wrong is
// named by its field.
#include "base/base.h"
#include "serve_parts.h"

#include <math.h>
#include <stdio.h>

bool serve_bad(struct serve_ask *a, const char *param, const char *fmt, ...) {
    char text[TERN_ERR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    serve_fault_set(&a->fault, 400, param ? serve_ask_dup(a, str_from(param)) : NULL, "invalid_value", "%s", text);
    return false;
}

char *serve_ask_dup(struct serve_ask *a, struct str s) {
    char *copy = arena_dup(&a->arena, s.data, s.len);
    if (!copy) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request");
    return copy;
}

void serve_ask_release(struct serve_ask *a) { arena_release(&a->arena); }

static const char *kind_text(enum json_event e) {
    switch (e) {
    case JSON_NULL: return "null";
    case JSON_BOOL: return "a boolean";
    case JSON_NUMBER: return "a number";
    case JSON_STRING: return "a string";
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    default: return "something else";
    }
}

struct field_read {
    struct serve_ask *a;
    struct json *j;
    const struct serve_field *f;
    char name[96]; // with prefix
};

static bool json_bad(struct serve_ask *a, const struct tern_err *err) {
    serve_fault_set(&a->fault, 400, NULL, "invalid_json", "%s", err->message);
    return false;
}

static bool number_take(struct field_read *r, const struct json_item *item) {
    const struct serve_field *f = r->f;
    void *target = (char *)r->a + f->offset;
    if (item->event != JSON_NUMBER)
        return serve_bad(r->a, r->name, "%s must be a number, not %s", r->name, kind_text(item->event));
    if (f->kind == SERVE_FIELD_FLOAT) {
        if (!(item->number >= f->lo && item->number <= f->hi))
            return serve_bad(r->a, r->name, "%s must be from %g to %g, not %g", r->name, f->lo, f->hi, item->number);
        *(float *)target = (float)item->number;
        return true;
    }
    int64_t v = item->integer;
    // 7.0 is how some clients write 7.
    if (!item->is_int && item->number == floor(item->number) && fabs(item->number) < 9e15)
        v = (int64_t)item->number;
    else if (!item->is_int)
        return serve_bad(r->a, r->name, "%s must be a whole number, not %g", r->name, item->number);
    if ((double)v < f->lo || (double)v > f->hi)
        return serve_bad(r->a, r->name, "%s must be from %.0f to %.0f, not %lld", r->name, f->lo, f->hi, (long long)v);
    *(int64_t *)target = v;
    return true;
}

// A value for one field, whose first event is `item`.
static bool scalar_take(struct field_read *r, const struct json_item *item) {
    void *target = (char *)r->a + r->f->offset;
    switch (r->f->kind) {
    case SERVE_FIELD_BOOL:
        if (item->event != JSON_BOOL)
            return serve_bad(r->a, r->name, "%s must be true or false, not %s", r->name, kind_text(item->event));
        *(bool *)target = item->boolean;
        return true;
    case SERVE_FIELD_STR: {
        if (item->event != JSON_STRING)
            return serve_bad(r->a, r->name, "%s must be a string, not %s", r->name, kind_text(item->event));
        char *copy = serve_ask_dup(r->a, item->text);
        *(struct str *)target = (struct str){copy, item->text.len};
        return copy != NULL;
    }
    default: return number_take(r, item);
    }
}

static bool field_take(struct field_read *r) {
    struct tern_err err = {0};
    struct json_item item;
    enum serve_kind kind = r->f->kind;
    if (kind != SERVE_FIELD_RAW && kind != SERVE_FIELD_TAKE && kind != SERVE_FIELD_REFUSE) {
        enum json_event e = json_next(r->j, &item, &err);
        if (e == JSON_ERROR) return json_bad(r->a, &err);
        if (e == JSON_NULL) return true;
        return scalar_take(r, &item);
    }
    struct str raw;
    if (json_raw(r->j, &raw, &err) != TERN_OK) return json_bad(r->a, &err);
    if (str_eqz(raw, "null")) return true;
    if (kind == SERVE_FIELD_REFUSE) return serve_bad(r->a, r->name, "%s: %s", r->name, r->f->why);
    if (kind == SERVE_FIELD_TAKE) return r->f->take(r->a, raw, r->name);
    *(struct str *)((char *)r->a + r->f->offset) = raw;
    return true;
}

bool serve_fields_read(struct serve_ask *a, struct str object, const char *prefix, const struct serve_field *fields) {
    struct tern_err err = {0};
    struct field_read r = {.a = a};
    const struct json_options o = {.depth_max = SERVE_JSON_DEPTH_MAX, .size_max = 0, .dup_check = true};
    if (json_create(&r.j, object, &o, &err) != TERN_OK) return json_bad(a, &err);
    struct json_item item;
    bool ok = json_next(r.j, &item, &err) == JSON_OBJECT;
    if (!ok && item.event != JSON_ERROR)
        serve_bad(a, prefix[0] ? prefix : NULL, "%s must be a JSON object, not %s", prefix[0] ? prefix : "the body",
                  kind_text(item.event));
    else if (!ok)
        json_bad(a, &err);
    while (ok) {
        enum json_event e = json_next(r.j, &item, &err);
        if (e == JSON_OBJECT_END) break;
        if (e == JSON_ERROR) {
            ok = json_bad(a, &err);
            break;
        }
        r.f = NULL;
        for (const struct serve_field *f = fields; f->name && !r.f; f++)
            if (str_eqz(item.text, f->name)) r.f = f;
        if (r.f) {
            snprintf(r.name, sizeof r.name, "%s%s", prefix, r.f->name);
            ok = field_take(&r);
        } else if (json_skip(r.j, &err) != TERN_OK) {
            ok = json_bad(a, &err);
        }
    }
    if (ok && json_next(r.j, &item, &err) == JSON_ERROR) ok = json_bad(a, &err);
    json_free(r.j);
    return ok;
}

// ------------------------------------------------------------------------------------------------------- shared fields

static bool stop_add(struct serve_ask *a, const struct json_item *item, const char *name) {
    if (item->event != JSON_STRING)
        return serve_bad(a, name, "%s must be a string or a list of strings, not %s", name, kind_text(item->event));
    if (item->text.len == 0) return serve_bad(a, name, "%s holds an empty string, which would end every answer", name);
    if (memchr(item->text.data, 0, item->text.len)) return serve_bad(a, name, "%s holds a zero byte", name);
    if (a->n_stop == TERN_STOP_MAX) return serve_bad(a, name, "%s holds more than %d strings", name, TERN_STOP_MAX);
    char *copy = serve_ask_dup(a, item->text);
    a->stop[a->n_stop] = copy;
    a->n_stop += copy != NULL;
    return copy != NULL;
}

bool serve_take_stop(struct serve_ask *a, struct str raw, const char *name) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    if (json_create(&j, raw, NULL, &err) != TERN_OK) return json_bad(a, &err);
    a->n_stop = 0;
    bool ok = true;
    if (json_next(j, &item, &err) != JSON_ARRAY)
        ok = stop_add(a, &item, name);
    else
        while (ok && json_next(j, &item, &err) != JSON_ARRAY_END) {
            ok = stop_add(a, &item, name);
        }
    json_free(j);
    return ok;
}

// -100 bans, as OpenAI's documentation has it.
static void bias_add(struct serve_ask *a, int64_t id, double bias) {
    a->bias[a->n_bias++] = (struct tern_logit_bias){(int32_t)id, bias <= -100 ? -INFINITY : (float)bias};
}

// [id, number], or [id, false], which bans it: llama-server's form.
static bool bias_pair(void *arg, struct str raw, int i) {
    struct serve_ask *a = arg;
    struct json *j;
    struct json_item item;
    bool ok = json_create(&j, raw, NULL, NULL) == TERN_OK;
    if (!ok) return serve_bad(a, "logit_bias", "logit_bias[%d] is no list", i);
    ok = json_next(j, &item, NULL) == JSON_ARRAY && json_next(j, &item, NULL) == JSON_NUMBER && item.is_int;
    const int64_t id = ok ? item.integer : -1;
    const enum json_event e = json_next(j, &item, NULL);
    const double bias = e == JSON_NUMBER ? item.number : e == JSON_BOOL && !item.boolean ? -100 : NAN;
    ok = ok && id >= 0 && id <= INT32_MAX && bias >= -100 && bias <= 100 && json_next(j, &item, NULL) == JSON_ARRAY_END;
    json_free(j);
    if (ok) bias_add(a, id, bias);
    return ok || serve_bad(a, "logit_bias", "logit_bias[%d] must be a token id and a number from -100 to 100", i);
}

bool serve_take_logit_bias(struct serve_ask *a, struct str raw, const char *name) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    if (json_create(&j, raw, NULL, &err) != TERN_OK) return json_bad(a, &err);
    a->n_bias = 0;
    a->bias = arena_calloc(&a->arena, TERN_LOGIT_BIAS_MAX, sizeof *a->bias);
    bool ok = a->bias != NULL;
    if (!ok) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request");
    if (ok && json_next(j, &item, &err) == JSON_ARRAY) {
        json_free(j);
        return serve_list_each(a, raw, name, TERN_LOGIT_BIAS_MAX, bias_pair, a);
    }
    if (ok && item.event != JSON_OBJECT)
        ok = serve_bad(a, name, "%s must be an object of token ids and numbers, not %s", name, kind_text(item.event));
    while (ok && json_next(j, &item, &err) == JSON_KEY) {
        int64_t id;
        if (!str_to_i64(item.text, &id) || id < 0 || id > INT32_MAX) {
            ok = serve_bad(a, name, "%s: a key is a token id, not '%.*s'", name, (int)MIN(item.text.len, 20),
                           item.text.data);
        } else if (json_next(j, &item, &err) != JSON_NUMBER || item.number < -100 || item.number > 100) {
            ok = serve_bad(a, name, "%s: a value is a number from -100 to 100", name);
        } else if (a->n_bias == TERN_LOGIT_BIAS_MAX) {
            ok = serve_bad(a, name, "%s has more than %d entries", name, TERN_LOGIT_BIAS_MAX);
        } else {
            bias_add(a, id, item.number);
        }
    }
    json_free(j);
    return ok;
}

bool serve_take_stream_options(struct serve_ask *a, struct str raw, const char *name) {
    static const struct serve_field fields[] = {SERVE_FIELD("include_usage", SERVE_FIELD_BOOL, include_usage, 0, 0),
                                                {0}};
    (void)name;
    return serve_fields_read(a, raw, "stream_options.", fields);
}

bool serve_ids_read(struct serve_ask *a, struct str raw, const char *name, int n_vocab, int32_t **ids, size_t *n) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    if (json_create(&j, raw, NULL, &err) != TERN_OK) return serve_bad(a, name, "%s", err.message);
    bool ok = json_next(j, &item, &err) == JSON_ARRAY;
    if (!ok) serve_bad(a, name, "%s must be a list of token ids", name);
    *n = 0;
    size_t cap = raw.len / 2 + 1; // a digit and a comma each
    *ids = ok ? arena_calloc(&a->arena, cap, sizeof **ids) : NULL;
    if (ok && !*ids) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request"), ok = false;
    while (ok && json_next(j, &item, &err) != JSON_ARRAY_END) {
        if (item.event != JSON_NUMBER || !item.is_int || item.integer < 0 || item.integer >= n_vocab) {
            ok = serve_bad(a, name, "%s must be token ids from 0 to %d", name, n_vocab - 1);
        } else {
            TERN_ASSERT(*n < cap);
            (*ids)[(*n)++] = (int32_t)item.integer;
        }
    }
    json_free(j);
    return ok;
}
