// JSON text to values of the template language, without recursion. Strings inside are tainted.
#include "base/base.h"
#include "text/jinja_int.h"

// An open container and the key that the next value goes under.
struct open {
    struct jval value;
    struct jval key;
};

static bool put(struct jinterp *it, struct open *top, struct jval v) {
    if (top->value.type == J_LIST) return jlist_push(it, top->value.u.l, v);
    return jdict_append(it, top->value.u.d, top->key, v); // keys are unique: the parser checked
}

static struct jval make(struct jinterp *it, const struct json_item *item, const char *what) {
    switch (item->event) {
    case JSON_NULL: return jval_none;
    case JSON_BOOL: return jbool(item->boolean);
    case JSON_NUMBER:
        if (item->is_int) return jint(item->integer);
        if (item->text.len && !memchr(item->text.data, '.', item->text.len) &&
            !memchr(item->text.data, 'e', item->text.len) && !memchr(item->text.data, 'E', item->text.len))
            return jfail(it, TERN_LIMIT, "%s: an integer at byte %zu is beyond 64 bits", what, item->pos);
        return jfloat(item->number);
    case JSON_STRING:
    case JSON_KEY: return jstr_copy(it, item->text, true);
    case JSON_OBJECT: {
        struct jdict *d = jdict_new(it, 0);
        return d ? (struct jval){.type = J_DICT, .u.d = d} : jval_undef;
    }
    case JSON_ARRAY: return jlist_val(jlist_new(it, JL_LIST, 0));
    default: TERN_BUG("event %d makes no value", (int)item->event);
    }
}

static enum tern_status build(struct jinterp *it, struct json *j, struct jval *out, const char *what) {
    struct open stack[JSON_DEPTH_MAX + 1];
    struct json_item item;
    int depth = 0;
    for (;;) {
        enum json_event e = json_next(j, &item, it->err);
        if (e == JSON_END) return TERN_OK;
        if (e == JSON_ERROR) {
            it->status = it->err->code;
            err_prefix(it->err, "%s", what);
            return it->status;
        }
        if (e == JSON_OBJECT_END || e == JSON_ARRAY_END) {
            depth--;
            continue;
        }
        struct jval v = make(it, &item, what);
        if (it->status != TERN_OK) return it->status;
        if (e == JSON_KEY) {
            stack[depth - 1].key = v;
            continue;
        }
        if (depth == 0)
            *out = v;
        else if (!put(it, &stack[depth - 1], v))
            return it->status;
        if (e == JSON_OBJECT || e == JSON_ARRAY) stack[depth++] = (struct open){.value = v};
    }
}

enum tern_status jinja_value_from_json(struct jinterp *it, struct jval *out, struct str json, const char *what) {
    struct json *j;
    struct json_options o = {.depth_max = JSON_DEPTH_MAX, .size_max = TEXT_INPUT_BYTES_MAX, .dup_check = true};
    *out = jval_none;
    enum tern_status status = json_create(&j, json, &o, it->err);
    if (status != TERN_OK) {
        err_prefix(it->err, "%s", what);
        return it->status = status;
    }
    status = build(it, j, out, what);
    json_free(j);
    return status;
}
