// JSON (RFC 8259): a bounded, strict pull parser over bytes in memory, and a writer.
//
// The parser never recurses and never allocates but for the string buffer it decodes escapes into. It refuses:
// ill-formed UTF-8, lone surrogates, leading zeros, NaN, comments, trailing commas, bytes after the value, nesting over
// depth_max, input over size_max. Duplicate keys of one object are refused when dup_check is set (for files and
// requests; costs a hash set per open object). Positions are byte offsets.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

#define JSON_DEPTH_MAX 64          // default nesting limit
#define JSON_SIZE_MAX (256u << 20) // default input limit, bytes

enum json_event {
    JSON_ERROR, // see err; the parser stays in error
    JSON_END,   // after the one top-level value
    JSON_NULL,
    JSON_BOOL,   // .boolean
    JSON_NUMBER, // .text is the literal; .is_int and .integer when it is written without fraction and exponent and
                 // fits an int64; .number always (beyond a double's range is refused)
    JSON_STRING, // .text, unescaped
    JSON_KEY,    // .text, unescaped; the value's event comes next
    JSON_OBJECT, // '{'
    JSON_OBJECT_END,
    JSON_ARRAY, // '['
    JSON_ARRAY_END,
};
struct json_options {
    int depth_max;   // 0: JSON_DEPTH_MAX; at most 1024
    size_t size_max; // 0: JSON_SIZE_MAX
    bool dup_check;  // refuse duplicate keys
};
struct json; // heap object (its stack of open containers and string buffer)

// input is borrowed until json_free. Allowed: a UTF-8 byte order mark is refused.
enum tern_status json_create(struct json **out, struct str input, const struct json_options *options /* nullable */,
                             struct tern_err *err);
void json_free(struct json *j);

struct json_item {
    enum json_event event;
    struct str text; // borrowed until the next json_next
    bool boolean;
    bool is_int;
    int64_t integer;
    double number;
    size_t pos; // byte offset at which the token starts
    int depth;  // open containers around this item
};
// Advances. Returns the event, also stored in item->event.
enum json_event json_next(struct json *j, struct json_item *item, struct tern_err *err);
// Called right after a JSON_KEY: skips its whole value. Called after JSON_OBJECT/JSON_ARRAY: skips to its end. After
// any other event there is nothing to skip.
enum tern_status json_skip(struct json *j, struct tern_err *err);
// Called right after a JSON_KEY, or when a value is next: the raw bytes of the value (borrowed from the input),
// skipped.
enum tern_status json_raw(struct json *j, struct str *out, struct tern_err *err);

// Typed helpers: fail with a message that names `what` when the next value has another type.
enum tern_status json_expect(struct json *j, enum json_event event, struct json_item *item, const char *what,
                             struct tern_err *err);

// Writer: appends to a buf; commas and quoting are its work. Strings: ill-formed UTF-8 becomes U+FFFD; '/' is not
// escaped.
struct json_writer {
    struct buf *buf;
    int depth;
    bool need_comma;
    bool after_key;
};
void json_write_init(struct json_writer *w, struct buf *buf);
void json_write_object(struct json_writer *w);
void json_write_object_end(struct json_writer *w);
void json_write_array(struct json_writer *w);
void json_write_array_end(struct json_writer *w);
void json_write_key(struct json_writer *w, const char *key);
void json_write_key_str(struct json_writer *w, struct str key); // the same for a view
void json_write_str(struct json_writer *w, struct str s);
void json_write_int(struct json_writer *w, int64_t v);
void json_write_f64(struct json_writer *w, double v); // shortest form that reads back equal; NaN and inf as null
void json_write_bool(struct json_writer *w, bool v);
void json_write_null(struct json_writer *w);
void json_write_raw(struct json_writer *w, struct str raw); // already JSON
bool json_put_quoted(struct buf *b, struct str s);          // one JSON string
