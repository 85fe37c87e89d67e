// The JSON pull parser.
//
// One pass over the input with an explicit stack of open containers. A string without escapes is handed out as a view
// of the input; only one with escapes is decoded into the parser's buffer. UTF-8 is checked where strings are scanned,
// so there is no pass of its own. Duplicate keys are found through 64-bit seeded hashes of the unescaped keys
// (json_keys.c); on an equal hash the older key is decoded again from the input and compared, so no key is ever copied.
#include "base/base.h"
#include "base/json_int.h"
#include <stdio.h>

#define DEPTH_HARD_MAX 1024
#define SIZE_HARD_MAX ((size_t)UINT32_MAX) // positions of keys are 32 bits wide

enum state {
    STATE_VALUE,        // a value must follow: at the start, or after a key and its colon
    STATE_ARRAY_FIRST,  // value or ']'
    STATE_ARRAY_NEXT,   // ',' or ']'
    STATE_OBJECT_FIRST, // key or '}'
    STATE_OBJECT_NEXT,  // ',' or '}'
    STATE_TAIL,         // only blanks may follow
    STATE_ERROR,
};

struct frame {
    bool is_object;
    struct json_keys_object keys; // used for objects with dup_check
};

struct json {
    const char *start, *end;
    const char *p; // next byte to read
    enum state state;
    bool dup_check;
    enum json_event last; // event returned last, for json_skip
    int depth, depth_max;
    struct frame *frames; // [depth_max]
    struct json_keys keys;
    struct buf text; // the last string with escapes, unescaped
    struct tern_err err;
};

enum tern_status json_create(struct json **out, struct str input, const struct json_options *options,
                             struct tern_err *err) {
    struct json_options o = options ? *options : (struct json_options){0};
    if (o.depth_max == 0) o.depth_max = JSON_DEPTH_MAX;
    if (o.size_max == 0) o.size_max = JSON_SIZE_MAX;
    if (o.depth_max < 0 || o.depth_max > DEPTH_HARD_MAX || o.size_max > SIZE_HARD_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "JSON limits out of range: depth %d (1..%d), size %zu", o.depth_max,
                       DEPTH_HARD_MAX, o.size_max);
    if (input.len > o.size_max)
        return err_set(err, TERN_LIMIT, "the JSON text has %zu bytes; at most %zu are read", input.len, o.size_max);
    struct json *j = mem_calloc(1, sizeof(*j));
    if (!j) return err_set(err, TERN_NO_MEMORY, "no memory to read JSON");
    j->frames = mem_calloc((size_t)o.depth_max, sizeof(*j->frames));
    if (!j->frames) {
        mem_free(j);
        return err_set(err, TERN_NO_MEMORY, "no memory to read JSON");
    }
    j->start = j->p = input.len > 0 ? input.data : "";
    j->end = j->start + input.len;
    j->depth_max = o.depth_max;
    j->dup_check = o.dup_check;
    if (o.dup_check) j->keys.seed = hash_seed();
    buf_init(&j->text, input.len);
    *out = j;
    return TERN_OK;
}

void json_free(struct json *j) {
    if (!j) return;
    while (j->depth > 0) json_keys_close(&j->keys, &j->frames[--j->depth].keys);
    json_keys_release(&j->keys);
    buf_release(&j->text);
    mem_free(j->frames);
    mem_free(j);
}

// ------------------------------------------------------------------------------------------------------- failures

#define WHERE_MAX 80
#define FOUND_MAX 32

// "byte 17 (line 2, column 5)"; columns count bytes.
static void where_text(const struct json *j, const char *at, char out[WHERE_MAX]) {
    size_t line = 1;
    const char *line_start = j->start;
    for (const char *p = j->start; p < at; p++) {
        if (*p != '\n') continue;
        line++;
        line_start = p + 1;
    }
    snprintf(out, WHERE_MAX, "byte %zu (line %zu, column %zu)", (size_t)(at - j->start), line,
             (size_t)(at - line_start) + 1);
}

static void found_text(const struct json *j, const char *at, char out[FOUND_MAX]) {
    if (at >= j->end) {
        snprintf(out, FOUND_MAX, "the end of the input");
    } else if (*at > 0x20 && *at < 0x7f) {
        snprintf(out, FOUND_MAX, "'%c'", *at);
    } else {
        snprintf(out, FOUND_MAX, "byte 0x%02x", (unsigned)(uint8_t)*at);
    }
}

static enum json_event fail(struct json *j, enum tern_status code, const char *at, const char *message) {
    char where[WHERE_MAX];
    where_text(j, at, where);
    err_set_at(&j->err, code, at - j->start, "JSON: %s at %s", message, where);
    j->state = STATE_ERROR;
    return JSON_ERROR;
}

static enum json_event fail_expected(struct json *j, const char *at, const char *expected) {
    char found[FOUND_MAX], message[128];
    found_text(j, at, found);
    snprintf(message, sizeof(message), "expected %s, found %s", expected, found);
    return fail(j, TERN_BAD_FORMAT, at, message);
}

// -------------------------------------------------------------------------------------------------------- strings

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static int64_t hex4(const char *p, const char *end) {
    if (end - p < 4) return -1;
    int64_t v = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(p[i]);
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

// Decodes the escape at p (its backslash). Returns the bytes read; 0 with *why set when it is ill-formed.
static int escape_decode(const char *p, const char *end, char out[4], int *n_out, const char **why) {
    static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t"; // pairs: letter, value
    *why = "unknown escape in a string";
    if (end - p < 2) return 0;
    for (int i = 0; i < (int)sizeof(plain) - 1; i += 2) {
        if (p[1] != plain[i]) continue;
        out[0] = plain[i + 1];
        *n_out = 1;
        return 2;
    }
    if (p[1] != 'u') return 0;
    *why = "\\u needs four hexadecimal digits";
    int64_t rune = hex4(p + 2, end);
    if (rune < 0) return 0;
    int n_in = 6;
    *why = "lone surrogate escape in a string";
    if (rune >= 0xdc00 && rune < 0xe000) return 0;
    if (rune >= 0xd800 && rune < 0xdc00) {
        if (end - p < 12 || p[6] != '\\' || p[7] != 'u') return 0;
        int64_t low = hex4(p + 8, end);
        if (low < 0xdc00 || low >= 0xe000) return 0;
        rune = 0x10000 + ((rune - 0xd800) << 10) + (low - 0xdc00);
        n_in = 12;
    }
    *n_out = utf8_encode((uint32_t)rune, out);
    return n_in;
}

// Reads the string whose opening quote is at j->p. False: the parser is in error.
static bool string_read(struct json *j, struct str *out) {
    const char *open = j->p, *p = open + 1, *run = p; // run: start of what is not yet copied
    bool copied = false;
    for (;;) {
        p += json_plain_run(p, j->end);
        if (p == j->end) return fail(j, TERN_BAD_FORMAT, open, "string without its closing quote"), false;
        if (*p == '"') break;
        if ((uint8_t)*p >= 0x80) {
            int n;
            if (utf8_decode((struct str){p, (size_t)(j->end - p)}, &n) == RUNE_BAD)
                return fail(j, TERN_BAD_FORMAT, p, "ill-formed UTF-8 in a string"), false;
            p += n;
            continue;
        }
        if (*p != '\\') return fail(j, TERN_BAD_FORMAT, p, "control character in a string (it must be escaped)"), false;
        char bytes[4];
        const char *why;
        int n_out, n_in = escape_decode(p, j->end, bytes, &n_out, &why);
        if (n_in == 0) return fail(j, TERN_BAD_FORMAT, p, why), false;
        if (!copied) buf_clear(&j->text);
        copied = true;
        buf_put(&j->text, run, (size_t)(p - run));
        buf_put(&j->text, bytes, (size_t)n_out);
        p += n_in;
        run = p;
    }
    if (copied && !buf_put(&j->text, run, (size_t)(p - run)))
        return fail(j, TERN_NO_MEMORY, open, "no memory for a string"), false;
    *out = copied ? buf_str(&j->text) : (struct str){open + 1, (size_t)(p - open - 1)};
    j->p = p + 1;
    return true;
}

// Compares the (valid) string token at p with text, unescaping as it goes.
static bool string_is(const struct json *j, const char *p, struct str text) {
    size_t at = 0;
    for (p++; *p != '"';) {
        char bytes[4] = {*p};
        const char *why;
        int n_out = 1;
        p += *p == '\\' ? escape_decode(p, j->end, bytes, &n_out, &why) : 1;
        if (text.len - at < (size_t)n_out || memcmp(text.data + at, bytes, (size_t)n_out) != 0) return false;
        at += (size_t)n_out;
    }
    return at == text.len;
}

static bool key_check(struct json *j, struct str key, const char *at) {
    struct json_keys_object *o = &j->frames[j->depth - 1].keys;
    uint64_t hash = hash_bytes(key.data, key.len, j->keys.seed);
    size_t cursor = 0;
    const struct json_key *seen;
    while ((seen = json_keys_find(&j->keys, o, hash, &cursor)) != NULL) {
        if (!string_is(j, j->start + seen->pos, key)) continue;
        char shown[128], message[256];
        struct buf quoted;
        buf_init(&quoted, sizeof(shown) - 1);
        str_put_escaped(&quoted, key, 64);
        snprintf(message, sizeof(message), "the key '%s' appears twice in one object (first at byte %u)",
                 quoted.data ? quoted.data : "", (unsigned)seen->pos);
        buf_release(&quoted);
        return fail(j, TERN_BAD_FORMAT, at, message), false;
    }
    if (!json_keys_add(&j->keys, o, hash, (uint32_t)(at - j->start)))
        return fail(j, TERN_NO_MEMORY, at, "no memory for the keys of an object"), false;
    return true;
}

// --------------------------------------------------------------------------------------------------------- values

static bool is_digit(const char *p, const char *end) { return p < end && *p >= '0' && *p <= '9'; }

static enum json_event number_read(struct json *j, struct json_item *item) {
    const char *start = j->p, *p = start, *end = j->end;
    bool minus = *p == '-';
    if (minus) p++;
    if (!is_digit(p, end)) return fail_expected(j, p, "a digit");
    const char *digits = p;
    uint64_t magnitude = 0; // right while there are at most 18 digits
    for (; is_digit(p, end); p++) magnitude = magnitude * 10 + (uint64_t)(*p - '0');
    if (*digits == '0' && p - digits > 1) return fail(j, TERN_BAD_FORMAT, digits, "number with a leading zero");
    bool whole = p - digits <= 18;
    item->is_int = true;
    if (p < end && *p == '.') {
        item->is_int = false;
        p++;
        if (!is_digit(p, end)) return fail_expected(j, p, "a digit after the decimal point");
        while (is_digit(p, end)) p++;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        item->is_int = false;
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        if (!is_digit(p, end)) return fail_expected(j, p, "a digit of the exponent");
        while (is_digit(p, end)) p++;
    }
    item->text = (struct str){start, (size_t)(p - start)};
    if (item->is_int && whole) {
        item->integer = minus ? -(int64_t)magnitude : (int64_t)magnitude;
        item->number = minus ? -(double)magnitude : (double)magnitude;
    } else {
        item->is_int = item->is_int && str_to_i64(item->text, &item->integer);
        if (!str_to_f64(item->text, &item->number))
            return fail(j, TERN_BAD_FORMAT, start, "number outside the range of a 64-bit float");
    }
    j->p = p;
    return JSON_NUMBER;
}

static void value_done(struct json *j) {
    if (j->depth == 0) {
        j->state = STATE_TAIL;
    } else {
        j->state = j->frames[j->depth - 1].is_object ? STATE_OBJECT_NEXT : STATE_ARRAY_NEXT;
    }
}

static enum json_event literal_read(struct json *j, struct str word, enum json_event event) {
    if (!str_starts((struct str){j->p, (size_t)(j->end - j->p)}, word)) return fail_expected(j, j->p, "a value");
    j->p += word.len;
    value_done(j);
    return event;
}

static enum json_event container_open(struct json *j, bool is_object) {
    if (j->depth == j->depth_max) {
        char message[80];
        snprintf(message, sizeof(message), "nested deeper than the limit of %d", j->depth_max);
        return fail(j, TERN_LIMIT, j->p, message);
    }
    struct frame *f = &j->frames[j->depth++];
    f->is_object = is_object;
    json_keys_open(&j->keys, &f->keys);
    j->p++;
    j->state = is_object ? STATE_OBJECT_FIRST : STATE_ARRAY_FIRST;
    return is_object ? JSON_OBJECT : JSON_ARRAY;
}

static enum json_event container_close(struct json *j, struct json_item *item) {
    struct frame *f = &j->frames[--j->depth];
    json_keys_close(&j->keys, &f->keys);
    j->p++;
    item->depth = j->depth;
    value_done(j);
    return f->is_object ? JSON_OBJECT_END : JSON_ARRAY_END;
}

static void blanks_skip(struct json *j) {
    const char *p = j->p;
    while (p < j->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    j->p = p;
}

static enum json_event value_read(struct json *j, struct json_item *item) {
    if (j->p == j->end) return fail_expected(j, j->p, "a value");
    switch (*j->p) {
    case '{': return container_open(j, true);
    case '[': return container_open(j, false);
    case '"':
        if (!string_read(j, &item->text)) return JSON_ERROR;
        value_done(j);
        return JSON_STRING;
    case 't': item->boolean = true; return literal_read(j, STR("true"), JSON_BOOL);
    case 'f': item->boolean = false; return literal_read(j, STR("false"), JSON_BOOL);
    case 'n': return literal_read(j, STR("null"), JSON_NULL);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': {
        enum json_event event = number_read(j, item);
        if (event != JSON_ERROR) value_done(j);
        return event;
    }
    default: break;
    }
    if (str_starts((struct str){j->p, (size_t)(j->end - j->p)}, STR("\xef\xbb\xbf")))
        return fail(j, TERN_BAD_FORMAT, j->p, "byte order mark (remove it)");
    return fail_expected(j, j->p, "a value");
}

static enum json_event key_read(struct json *j, struct json_item *item) {
    const char *at = j->p;
    if (at == j->end || *at != '"') return fail_expected(j, at, "a key in double quotes");
    if (!string_read(j, &item->text)) return JSON_ERROR;
    if (j->dup_check && !key_check(j, item->text, at)) return JSON_ERROR;
    blanks_skip(j);
    if (j->p == j->end || *j->p != ':') return fail_expected(j, j->p, "':' after a key");
    j->p++;
    j->state = STATE_VALUE;
    return JSON_KEY;
}

static enum json_event event_read(struct json *j, struct json_item *item) {
    blanks_skip(j);
    item->pos = (size_t)(j->p - j->start);
    item->depth = j->depth;
    char c = j->p < j->end ? *j->p : 0;
    switch (j->state) {
    case STATE_VALUE: return value_read(j, item);
    case STATE_ARRAY_FIRST: return c == ']' ? container_close(j, item) : value_read(j, item);
    case STATE_OBJECT_FIRST: return c == '}' ? container_close(j, item) : key_read(j, item);
    case STATE_ARRAY_NEXT:
    case STATE_OBJECT_NEXT: {
        bool is_object = j->state == STATE_OBJECT_NEXT;
        if (c == (is_object ? '}' : ']')) return container_close(j, item);
        if (c != ',') return fail_expected(j, j->p, is_object ? "',' or '}'" : "',' or ']'");
        j->p++;
        blanks_skip(j);
        item->pos = (size_t)(j->p - j->start);
        return is_object ? key_read(j, item) : value_read(j, item);
    }
    case STATE_TAIL:
        if (j->p < j->end) return fail(j, TERN_BAD_FORMAT, j->p, "bytes after the value");
        return JSON_END;
    case STATE_ERROR: break;
    }
    return JSON_ERROR;
}

enum json_event json_next(struct json *j, struct json_item *item, struct tern_err *err) {
    *item = (struct json_item){0};
    item->event = j->last = event_read(j, item);
    if (item->event == JSON_ERROR && err) *err = j->err;
    return item->event;
}

// -------------------------------------------------------------------------------------------------------- helpers

// Reads on until `depth` containers are open.
static enum tern_status skip_to_depth(struct json *j, int depth, struct tern_err *err) {
    struct json_item item;
    while (j->depth > depth)
        if (json_next(j, &item, err) == JSON_ERROR) return j->err.code;
    return TERN_OK;
}

enum tern_status json_skip(struct json *j, struct tern_err *err) {
    struct json_item item;
    if (j->state == STATE_ERROR || j->last == JSON_KEY) {
        if (json_next(j, &item, err) == JSON_ERROR) return j->err.code;
    }
    if (j->last != JSON_OBJECT && j->last != JSON_ARRAY) return TERN_OK;
    return skip_to_depth(j, j->depth - 1, err);
}

static const char *event_text(enum json_event event) {
    switch (event) {
    case JSON_ERROR: return "an error";
    case JSON_END: return "the end of the input";
    case JSON_NULL: return "null";
    case JSON_BOOL: return "true or false";
    case JSON_NUMBER: return "a number";
    case JSON_STRING: return "a string";
    case JSON_KEY: return "a key";
    case JSON_OBJECT: return "an object";
    case JSON_OBJECT_END: return "the end of an object";
    case JSON_ARRAY: return "an array";
    case JSON_ARRAY_END: return "the end of an array";
    }
    return "nothing known";
}

static enum tern_status wrong_type(const struct json *j, const struct json_item *item, const char *what,
                                   const char *expected, struct tern_err *err) {
    char where[WHERE_MAX];
    where_text(j, j->start + item->pos, where);
    return err_set_at(err, TERN_BAD_FORMAT, (int64_t)item->pos, "%s: expected %s, found %s at %s", what, expected,
                      event_text(item->event), where);
}

enum tern_status json_raw(struct json *j, struct str *out, struct tern_err *err) {
    struct json_item item;
    enum json_event event = json_next(j, &item, err);
    if (event == JSON_ERROR) return j->err.code;
    if (event == JSON_KEY || event == JSON_END || event == JSON_OBJECT_END || event == JSON_ARRAY_END)
        return wrong_type(j, &item, "JSON", "a value", err);
    TRY(skip_to_depth(j, item.depth, err));
    const char *start = j->start + item.pos;
    *out = (struct str){start, (size_t)(j->p - start)};
    return TERN_OK;
}

enum tern_status json_expect(struct json *j, enum json_event event, struct json_item *item, const char *what,
                             struct tern_err *err) {
    enum json_event got = json_next(j, item, err);
    if (got == event) return TERN_OK;
    if (got != JSON_ERROR) return wrong_type(j, item, what, event_text(event), err);
    err_prefix(err, "%s", what);
    return j->err.code;
}
