// Fuzz target: the JSON parser and writer.
//
// The first byte chooses the options, the rest is the text. A text that is taken is written again from its events; the
// writer's text must be taken too and give the same events. Skipping and raw reading must agree with walking.
#include "base/base.h"

#define TEXT_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Strings with bytes that the writer escapes or not are compared unescaped, numbers by value.
static bool item_same(const struct json_item *a, const struct json_item *b) {
    if (a->event != b->event || a->depth != b->depth) return false;
    switch (a->event) {
    case JSON_BOOL: return a->boolean == b->boolean;
    case JSON_NUMBER: return a->number == b->number && (!a->is_int || (b->is_int && a->integer == b->integer));
    case JSON_STRING:
    case JSON_KEY: return str_eq(a->text, b->text);
    default: return true;
    }
}

static void item_write(struct json_writer *w, const struct json_item *item) {
    switch (item->event) {
    case JSON_NULL: json_write_null(w); break;
    case JSON_BOOL: json_write_bool(w, item->boolean); break;
    case JSON_NUMBER:
        if (item->is_int) {
            json_write_int(w, item->integer);
        } else {
            json_write_f64(w, item->number);
        }
        break;
    case JSON_STRING: json_write_str(w, item->text); break;
    case JSON_KEY: json_write_key_str(w, item->text); break;
    case JSON_OBJECT: json_write_object(w); break;
    case JSON_OBJECT_END: json_write_object_end(w); break;
    case JSON_ARRAY: json_write_array(w); break;
    case JSON_ARRAY_END: json_write_array_end(w); break;
    case JSON_ERROR:
    case JSON_END: break;
    }
}

static struct json *open_text(struct str text, const struct json_options *options) {
    struct json *j = NULL;
    if (json_create(&j, text, options, NULL) != TERN_OK) TERN_BUG("no parser");
    return j;
}

// Walks text and writes what it sees; false when it is refused.
static bool rewrite(struct str text, const struct json_options *options, struct buf *out) {
    struct json *j = open_text(text, options);
    struct json_item item;
    struct tern_err err = {0};
    struct json_writer w;
    json_write_init(&w, out);
    while (json_next(j, &item, &err) > JSON_END) {
        TERN_ASSERT(item.pos < text.len);
        item_write(&w, &item);
    }
    bool taken = item.event == JSON_END;
    if (!taken && (err.code == TERN_OK || err.pos < 0 || (size_t)err.pos > text.len)) TERN_BUG("error without a place");
    json_free(j);
    if (taken && w.depth != 0) TERN_BUG("unbalanced events");
    return taken;
}

static void check_same(struct str a, struct str b, const struct json_options *options) {
    struct json *x = open_text(a, options), *y = open_text(b, options);
    struct json_item p, q;
    do {
        json_next(x, &p, NULL);
        json_next(y, &q, NULL);
        if (!item_same(&p, &q)) TERN_BUG("the rewritten text differs at byte %zu, was %zu", q.pos, p.pos);
    } while (p.event > JSON_END);
    json_free(x);
    json_free(y);
}

// The raw bytes of the value are one value themselves.
static void check_raw(struct str text, const struct json_options *options) {
    struct json *j = open_text(text, options);
    struct str raw = {0};
    struct json_item item;
    if (json_raw(j, &raw, NULL) != TERN_OK) TERN_BUG("json_raw refuses what walking takes");
    if (!str_eq(raw, str_trim(text))) TERN_BUG("json_raw gives another value");
    if (json_next(j, &item, NULL) != JSON_END) TERN_BUG("json_raw did not skip");
    json_free(j);
    j = open_text(text, options);
    json_next(j, &item, NULL);
    if (json_skip(j, NULL) != TERN_OK || json_next(j, &item, NULL) != JSON_END) TERN_BUG("json_skip stops elsewhere");
    json_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > TEXT_MAX) return 0;
    struct json_options options = {
        .dup_check = data[0] & 1,
        .depth_max = data[0] & 2 ? 3 : 0,
        .size_max = TEXT_MAX * 8,
    };
    struct str text = {(const char *)data + 1, size - 1};
    struct buf out;
    buf_init(&out, TEXT_MAX * 8); // a control byte becomes six, a number may grow to 24 bytes
    if (rewrite(text, &options, &out)) {
        TERN_ASSERT(!out.failed);
        check_same(text, buf_str(&out), &options);
        check_raw(text, &options);
    }
    buf_release(&out);
    return 0;
}
