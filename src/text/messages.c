// OpenAI-style messages to what chat templates expect, checked on the way: one pass over the JSON, one message at a
// time, writing the normalised form. What is not understood is refused by name; keys that templates may know (name,
// tool_call_id, reasoning_content …) pass through as they are.
#include "base/base.h"
#include "text/text.h"

#define MESSAGES_MAX 4096
#define MESSAGE_CALLS_MAX 128

enum content_kind { CONTENT_MISSING, CONTENT_NULL, CONTENT_TEXT };

struct normaliser {
    struct json *in;
    struct json_writer w;
    struct tern_err *err;
    int index;          // of the message
    struct buf scratch; // joined text of content parts
};

#define FAIL(n, ...) \
    (err_set((n)->err, TERN_INVALID_ARGUMENT, __VA_ARGS__), err_prefix((n)->err, "messages[%d]", (n)->index))

static enum tern_status next_item(struct normaliser *n, struct json_item *item) {
    return json_next(n->in, item, n->err) == JSON_ERROR ? n->err->code : TERN_OK;
}

static enum tern_status put_role(struct normaliser *n, struct buf *role) {
    static const char *const known[] = {"system", "user", "assistant", "tool"};
    struct json_item item;
    TRY(next_item(n, &item));
    if (item.event != JSON_STRING) return FAIL(n, "role must be a string");
    struct str name = str_eqz(item.text, "developer") ? STR("system") : item.text;
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) found |= str_eqz(name, known[i]);
    if (!found)
        return FAIL(n, "role '%.*s' is unknown; expected system, developer, user, assistant or tool",
                    (int)MIN(name.len, (size_t)40), name.data);
    if (!buf_put(role, name.data, name.len))
        return err_set(n->err, TERN_NO_MEMORY, "out of memory while reading messages");
    json_write_str(&n->w, name);
    return TERN_OK;
}

// One part of a content list: its text goes to scratch.
static enum tern_status take_part(struct normaliser *n, int part) {
    struct json_item item;
    char type[48] = "";
    bool has_text = false;
    for (;;) {
        TRY(next_item(n, &item));
        if (item.event == JSON_OBJECT_END) break;
        bool is_type = str_eqz(item.text, "type"), is_text = str_eqz(item.text, "text");
        if (!is_type && !is_text) {
            TRY(json_skip(n->in, n->err));
            continue;
        }
        TRY(next_item(n, &item));
        if (item.event != JSON_STRING)
            return FAIL(n, "content[%d].%s must be a string", part, is_type ? "type" : "text");
        if (is_type) {
            size_t len = MIN(item.text.len, sizeof(type) - 1);
            memcpy(type, item.text.data, len);
            type[len] = 0;
            continue;
        }
        if (n->scratch.len > 0 && item.text.len > 0) buf_putc(&n->scratch, '\n');
        buf_put(&n->scratch, item.text.data, item.text.len);
        has_text = true;
    }
    if (strcmp(type, "text") != 0) {
        err_set(n->err, TERN_UNSUPPORTED, "content[%d] has the type '%s', but only 'text' is supported", part, type);
        return err_prefix(n->err, "messages[%d]", n->index);
    }
    return has_text ? TERN_OK : FAIL(n, "content[%d] has no text", part);
}

static enum tern_status put_parts(struct normaliser *n) {
    struct json_item item;
    buf_clear(&n->scratch);
    for (int part = 0;; part++) {
        TRY(next_item(n, &item));
        if (item.event == JSON_ARRAY_END) break;
        if (item.event == JSON_STRING) { // a bare string as a part, as some clients send
            if (n->scratch.len > 0 && item.text.len > 0) buf_putc(&n->scratch, '\n');
            buf_put(&n->scratch, item.text.data, item.text.len);
            continue;
        }
        if (item.event != JSON_OBJECT) return FAIL(n, "content[%d] must be an object with a type", part);
        TRY(take_part(n, part));
    }
    if (n->scratch.failed) return err_set(n->err, TERN_NO_MEMORY, "out of memory while reading messages");
    json_write_str(&n->w, buf_str(&n->scratch));
    return TERN_OK;
}

static enum tern_status put_content(struct normaliser *n, enum content_kind *kind) {
    struct json_item item;
    TRY(next_item(n, &item));
    *kind = CONTENT_TEXT;
    switch (item.event) {
    case JSON_STRING: json_write_str(&n->w, item.text); return TERN_OK;
    case JSON_ARRAY: return put_parts(n);
    case JSON_NULL:
        *kind = CONTENT_NULL;
        json_write_null(&n->w);
        return TERN_OK;
    default: return FAIL(n, "content must be a string, a list of parts or null");
    }
}

// The text must be one JSON object without duplicate keys.
static enum tern_status check_object(struct normaliser *n, struct str text, int call) {
    struct json *j;
    struct json_item item;
    struct tern_err why;
    struct json_options o = {.dup_check = true};
    TRY(json_create(&j, text, &o, n->err));
    enum json_event e = json_next(j, &item, &why);
    bool object = e == JSON_OBJECT;
    while (e != JSON_END && e != JSON_ERROR) e = json_next(j, &item, &why);
    json_free(j);
    if (e == JSON_ERROR && why.code == TERN_NO_MEMORY)
        return err_set(n->err, TERN_NO_MEMORY, "out of memory while reading messages");
    if (object && e == JSON_END) return TERN_OK;
    return FAIL(n, "tool_calls[%d].function.arguments is not a JSON object in a string%s%s", call,
                e == JSON_ERROR ? ": " : "", e == JSON_ERROR ? why.message : "");
}

static enum tern_status put_arguments(struct normaliser *n, int call) {
    struct str raw;
    TRY(json_raw(n->in, &raw, n->err));
    if (str_eqz(raw, "null")) {
        json_write_raw(&n->w, STR("{}"));
        return TERN_OK;
    }
    if (raw.len > 0 && raw.data[0] == '{') {
        json_write_raw(&n->w, raw);
        return TERN_OK;
    }
    struct json *j;
    struct json_item item;
    TRY(json_create(&j, raw, NULL, n->err));
    enum tern_status status = TERN_OK;
    enum json_event e = json_next(j, &item, n->err);
    struct str text = e == JSON_STRING ? str_trim(item.text) : (struct str){0};
    if (e == JSON_ERROR)
        status = n->err->code;
    else if (e != JSON_STRING)
        status = FAIL(n, "tool_calls[%d].function.arguments must be an object or a string with one", call);
    else if (text.len > 0)
        status = check_object(n, text, call);
    if (status == TERN_OK) json_write_raw(&n->w, text.len > 0 ? text : STR("{}"));
    json_free(j);
    return status;
}

// The object of a call, or of its function: the same keys may stand in either.
static enum tern_status put_call(struct normaliser *n, int call, bool inner, bool *has_name) {
    struct json_item item;
    json_write_object(&n->w);
    for (;;) {
        TRY(next_item(n, &item));
        if (item.event == JSON_OBJECT_END) break;
        bool is_function = !inner && str_eqz(item.text, "function"), is_args = str_eqz(item.text, "arguments");
        bool is_name = str_eqz(item.text, "name");
        if (is_function || is_args || is_name)
            json_write_key(&n->w, is_function ? "function" : is_args ? "arguments" : "name");
        if (is_function) {
            TRY(next_item(n, &item));
            if (item.event != JSON_OBJECT) return FAIL(n, "tool_calls[%d].function must be an object", call);
            TRY(put_call(n, call, true, has_name));
        } else if (is_args) {
            TRY(put_arguments(n, call));
        } else if (is_name) {
            TRY(next_item(n, &item));
            if (item.event != JSON_STRING) return FAIL(n, "tool_calls[%d].function.name must be a string", call);
            json_write_str(&n->w, item.text);
            *has_name = true;
        } else {
            buf_clear(&n->scratch);
            buf_put(&n->scratch, item.text.data, item.text.len);
            if (n->scratch.failed) return err_set(n->err, TERN_NO_MEMORY, "out of memory while reading messages");
            struct str raw;
            TRY(json_raw(n->in, &raw, n->err));
            json_write_key_str(&n->w, buf_str(&n->scratch));
            json_write_raw(&n->w, raw);
        }
    }
    json_write_object_end(&n->w);
    return TERN_OK;
}

static enum tern_status put_calls(struct normaliser *n, bool *any) {
    struct json_item item;
    TRY(next_item(n, &item));
    if (item.event == JSON_NULL) {
        json_write_null(&n->w);
        return TERN_OK;
    }
    if (item.event != JSON_ARRAY) return FAIL(n, "tool_calls must be a list");
    json_write_array(&n->w);
    for (int call = 0;; call++) {
        TRY(next_item(n, &item));
        if (item.event == JSON_ARRAY_END) break;
        if (item.event != JSON_OBJECT) return FAIL(n, "tool_calls[%d] must be an object", call);
        if (call == MESSAGE_CALLS_MAX) return FAIL(n, "more than %d tool calls", MESSAGE_CALLS_MAX);
        bool has_name = false;
        TRY(put_call(n, call, false, &has_name));
        if (!has_name) return FAIL(n, "tool_calls[%d] has no function name", call);
        *any = true;
    }
    json_write_array_end(&n->w);
    return TERN_OK;
}

static enum tern_status put_other(struct normaliser *n, struct str key) {
    buf_clear(&n->scratch);
    buf_put(&n->scratch, key.data, key.len); // the item is gone after the next call of the parser
    if (n->scratch.failed) return err_set(n->err, TERN_NO_MEMORY, "out of memory while reading messages");
    struct str raw;
    TRY(json_raw(n->in, &raw, n->err));
    json_write_key_str(&n->w, buf_str(&n->scratch));
    json_write_raw(&n->w, raw);
    return TERN_OK;
}

static enum tern_status put_message(struct normaliser *n, struct buf *role) {
    struct json_item item;
    enum content_kind content = CONTENT_MISSING;
    bool has_calls = false;
    buf_clear(role);
    json_write_object(&n->w);
    for (;;) {
        TRY(next_item(n, &item));
        if (item.event == JSON_OBJECT_END) break;
        if (str_eqz(item.text, "role")) {
            json_write_key(&n->w, "role");
            TRY(put_role(n, role));
        } else if (str_eqz(item.text, "content")) {
            json_write_key(&n->w, "content");
            TRY(put_content(n, &content));
        } else if (str_eqz(item.text, "tool_calls")) {
            json_write_key(&n->w, "tool_calls");
            TRY(put_calls(n, &has_calls));
        } else {
            TRY(put_other(n, item.text));
        }
    }
    if (role->len == 0) return FAIL(n, "role is missing");
    bool assistant = str_eqz(buf_str(role), "assistant");
    if (has_calls && !assistant) return FAIL(n, "only an assistant message can have tool_calls");
    if (content != CONTENT_TEXT && !assistant)
        return FAIL(n, "content of a %s message is %s", role->data, content == CONTENT_NULL ? "null" : "missing");
    if (content == CONTENT_MISSING) { // templates look at it without asking whether it is there
        if (!has_calls) return FAIL(n, "an assistant message needs content or tool_calls");
        json_write_key(&n->w, "content");
        json_write_null(&n->w);
    }
    json_write_object_end(&n->w);
    return TERN_OK;
}

static enum tern_status put_messages(struct normaliser *n, struct buf *role) {
    struct json_item item;
    TRY(next_item(n, &item));
    if (item.event != JSON_ARRAY) return err_set(n->err, TERN_INVALID_ARGUMENT, "messages must be a list of objects");
    json_write_array(&n->w);
    for (;; n->index++) {
        TRY(next_item(n, &item));
        if (item.event == JSON_ARRAY_END) break;
        if (item.event != JSON_OBJECT) return FAIL(n, "expected an object with role and content");
        if (n->index == MESSAGES_MAX)
            return err_set(n->err, TERN_LIMIT, "more than %d messages (MESSAGES_MAX)", MESSAGES_MAX);
        TRY(put_message(n, role));
    }
    if (n->index == 0) return err_set(n->err, TERN_INVALID_ARGUMENT, "messages is empty: at least one is needed");
    json_write_array_end(&n->w);
    TRY(next_item(n, &item)); // nothing may follow
    return TERN_OK;
}

enum tern_status messages_normalise(struct buf *out, struct str messages_json, struct tern_err *err) {
    struct tern_err own;
    struct normaliser n = {.err = err ? err : &own};
    struct json_options o = {.dup_check = true, .size_max = TEXT_INPUT_BYTES_MAX};
    struct buf made, role;
    buf_init(&made, out->cap_max);
    buf_init(&role, 64);
    buf_init(&n.scratch, TEXT_INPUT_BYTES_MAX);
    enum tern_status status = json_create(&n.in, messages_json, &o, n.err);
    if (status == TERN_OK) {
        json_write_init(&n.w, &made);
        status = put_messages(&n, &role);
        json_free(n.in);
    }
    if (status == TERN_OK && (made.failed || !buf_put(out, made.data, made.len)))
        status = err_set(n.err, TERN_NO_MEMORY, "no memory for the messages");
    buf_release(&made);
    buf_release(&role);
    buf_release(&n.scratch);
    return status;
}
