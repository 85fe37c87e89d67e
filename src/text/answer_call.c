// Blocks of tool calls taken apart: Python-style lists as LFM2 writes them, and JSON calls of every dialect.
//
// Each item of a list stands for itself: one that is no sound call is handed on as text and does not take its
// neighbours with it. Where an item ends is found by counting brackets and quotes. Arguments are checked once more as
// JSON (duplicate keys, depth), so what leaves here is always one sound object.
#include "base/base.h"
#include "text/answer_int.h"

// Running out of memory must not look like input that is no call: it is told through the output buffer's flag.
static bool json_ok(enum tern_status status, struct buf *out) {
    if (status == TERN_NO_MEMORY) out->failed = true;
    return status == TERN_OK;
}

// The text must be one JSON object without duplicate keys.
static bool is_json_object(struct str text, struct buf *out) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {.code = TERN_OK};
    struct json_options o = {.dup_check = true};
    if (!json_ok(json_create(&j, text, &o, &err), out)) return false;
    enum json_event e = json_next(j, &item, &err);
    bool object = e == JSON_OBJECT;
    while (e != JSON_END && e != JSON_ERROR) e = json_next(j, &item, &err);
    json_free(j);
    if (e == JSON_ERROR) json_ok(err.code, out);
    return object && e == JSON_END;
}

// "**{…}": the dict's items become arguments. The JSON object is written without its braces.
static bool merge_dict(struct str s, size_t *pos, struct buf *args) {
    size_t begin = args->len;
    *pos = literal_skip_blanks(s, *pos);
    if (*pos >= s.len || s.data[*pos] != '{' || !literal_to_json(s, pos, args)) return false;
    memmove(args->data + begin, args->data + begin + 1, args->len - begin - 1);
    args->len -= 2;
    return true;
}

// f(a=1, b='x', **{…}) as a whole; args gets the JSON object.
static bool python_call(struct str s, struct str *name, struct buf *args) {
    size_t pos = literal_skip_blanks(s, 0);
    if (!literal_name(s, &pos, ".-:/", name)) return false;
    pos = literal_skip_blanks(s, pos);
    if (pos >= s.len || s.data[pos++] != '(') return false;
    bool comma = true;
    buf_putc(args, '{');
    for (;;) {
        struct str key;
        pos = literal_skip_blanks(s, pos);
        if (pos >= s.len) return false;
        if (s.data[pos] == ')') break;
        if (!comma) return false;
        size_t before = args->len;
        if (before > 1) buf_putc(args, ',');
        if (s.len - pos > 2 && s.data[pos] == '*' && s.data[pos + 1] == '*') {
            size_t start = args->len;
            pos += 2;
            if (!merge_dict(s, &pos, args)) return false;
            if (args->len == start) args->len = before; // an empty dict
        } else {
            if (!literal_name(s, &pos, "-", &key)) return false;
            pos = literal_skip_blanks(s, pos);
            if (pos >= s.len || s.data[pos++] != '=') return false;
            json_put_quoted(args, key);
            buf_putc(args, ':');
            if (!literal_to_json(s, &pos, args)) return false;
        }
        pos = literal_skip_blanks(s, pos);
        comma = pos < s.len && s.data[pos] == ',';
        if (comma) pos++;
    }
    buf_putc(args, '}');
    return !args->failed && literal_skip_blanks(s, pos + 1) == s.len && is_json_object(buf_str(args), args);
}

// Arguments of a JSON call: an object, or a string that holds one.
static bool json_arguments(struct str raw, struct buf *args) {
    if (raw.len > 0 && raw.data[0] == '{') return buf_put(args, raw.data, raw.len);
    if (str_eqz(raw, "null")) return buf_puts(args, "{}");
    struct json *j;
    struct json_item item;
    struct tern_err err = {.code = TERN_OK};
    if (!json_ok(json_create(&j, raw, NULL, &err), args)) return false;
    bool ok = json_next(j, &item, &err) == JSON_STRING;
    if (item.event == JSON_ERROR) json_ok(err.code, args);
    if (ok) {
        struct str text = str_trim(item.text);
        ok = text.len == 0 ? buf_puts(args, "{}") : is_json_object(text, args) && buf_put(args, text.data, text.len);
    }
    json_free(j);
    return ok;
}

static bool json_call_fields(struct str s, struct buf *name, struct buf *args, int depth);

static bool json_call_field(struct json *j, struct str key, struct buf *name, struct buf *args, int depth,
                            struct tern_err *err) {
    struct json_item item;
    struct str raw;
    if (str_eqz(key, "name")) {
        if (json_next(j, &item, err) != JSON_STRING) return false;
        buf_clear(name);
        return buf_put(name, item.text.data, item.text.len);
    }
    bool is_args = str_eqz(key, "arguments") || str_eqz(key, "parameters");
    bool is_function = str_eqz(key, "function");
    if (json_raw(j, &raw, err) != TERN_OK) return false;
    if (is_args && args->len == 0) return json_arguments(raw, args);
    return !is_function || depth > 0 || json_call_fields(raw, name, args, depth + 1);
}

static bool json_call_fields(struct str s, struct buf *name, struct buf *args, int depth) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {.code = TERN_OK};
    struct json_options o = {.dup_check = true};
    if (!json_ok(json_create(&j, s, &o, &err), args)) return false;
    bool ok = json_next(j, &item, &err) == JSON_OBJECT;
    while (ok) {
        enum json_event e = json_next(j, &item, &err);
        if (e == JSON_OBJECT_END) break;
        char key[16]; // longer keys are none of ours
        size_t len = item.text.len < sizeof(key) ? item.text.len : 0;
        if (len) memcpy(key, item.text.data, len);
        ok = e == JSON_KEY && json_call_field(j, (struct str){key, len}, name, args, depth, &err);
    }
    ok = ok && json_next(j, &item, &err) == JSON_END;
    json_free(j);
    return ok || json_ok(err.code == TERN_NO_MEMORY ? TERN_NO_MEMORY : TERN_BAD_FORMAT, args);
}

// {"name": …, "arguments" or "parameters": …}, also inside {"function": …}.
static bool json_call(struct str s, struct buf *name, struct buf *args) {
    if (!json_call_fields(s, name, args, 0) || name->len == 0) return false;
    if (args->len == 0) buf_puts(args, "{}");
    return !args->failed && !name->failed && is_json_object(buf_str(args), args);
}

// One item of a list, without the comma after it. False: memory or the sink.
static bool take_item(struct str raw, block_sink sink, void *arg, bool *no_memory) {
    struct block_item item = {.raw = str_trim(raw)};
    if (item.raw.len == 0) return true;
    struct buf args, name;
    buf_init(&args, ANSWER_CALL_BYTES_MAX * 8); // a control byte becomes six when escaped
    buf_init(&name, ANSWER_CALL_BYTES_MAX);
    if (item.raw.data[0] == '{') {
        item.is_call = json_call(item.raw, &name, &args);
        item.name = buf_str(&name);
    } else {
        item.is_call = python_call(item.raw, &item.name, &args);
    }
    item.arguments = buf_str(&args);
    *no_memory = args.failed || name.failed;
    bool ok = !*no_memory && sink(arg, &item);
    buf_release(&args);
    buf_release(&name);
    return ok;
}

// The end of the item at pos: a comma or closing bracket outside all quotes and brackets, or (JSON objects side by
// side) the end of an object that another one follows.
static size_t item_end(struct str s, size_t pos) {
    struct balance b = {0};
    for (size_t i = pos; i < s.len; i++) {
        char c = s.data[i];
        if (b.depth == 0 && !b.quote && (c == ',' || c == ']')) return i;
        balance_put(&b, c);
        if (c == '}' && b.depth == 0 && !b.quote && s.data[pos] == '{') {
            size_t next = literal_skip_blanks(s, i + 1);
            if (next < s.len && (s.data[next] == '{' || s.data[next] == ';')) return i + 1;
        }
        if (b.depth < 0) return i;
    }
    return s.len;
}

bool block_parse(struct str content, block_sink sink, void *arg, bool *no_memory) {
    struct str s = str_trim(content);
    *no_memory = false;
    bool in_list = s.len > 0 && s.data[0] == '[';
    size_t pos = in_list ? 1 : 0;
    while ((pos = literal_skip_blanks(s, pos)) < s.len) {
        if (in_list && s.data[pos] == ']') { // what follows a list may be another one
            pos = literal_skip_blanks(s, pos + 1);
            in_list = false;
            if (pos < s.len && s.data[pos] == '[') {
                in_list = true;
                pos++;
            }
            continue;
        }
        if (s.data[pos] == ',' || s.data[pos] == ';') {
            pos++;
            continue;
        }
        size_t end = item_end(s, pos);
        if (end == pos) end++; // a stray closing bracket: an item of its own
        if (!take_item((struct str){s.data + pos, end - pos}, sink, arg, no_memory)) return false;
        pos = end;
    }
    return true;
}
