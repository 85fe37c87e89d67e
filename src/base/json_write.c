// The JSON writer: appends to a buffer, whose `failed` flag collects any trouble.
#include "base/base.h"
#include "base/json_int.h"
#include <math.h>
#include <stdio.h>

void json_write_init(struct json_writer *w, struct buf *buf) { *w = (struct json_writer){.buf = buf}; }

// Before a key or a value: the comma that its predecessor left to us.
static void separate(struct json_writer *w) {
    if (w->need_comma && !w->after_key) buf_putc(w->buf, ',');
    w->need_comma = true;
    w->after_key = false;
}

static void container_begin(struct json_writer *w, char c) {
    separate(w);
    buf_putc(w->buf, c);
    w->depth++;
    w->need_comma = false;
}

static void container_end(struct json_writer *w, char c) {
    TERN_ASSERT(w->depth > 0 && !w->after_key);
    buf_putc(w->buf, c);
    w->depth--;
    w->need_comma = true;
}

void json_write_object(struct json_writer *w) { container_begin(w, '{'); }
void json_write_object_end(struct json_writer *w) { container_end(w, '}'); }
void json_write_array(struct json_writer *w) { container_begin(w, '['); }
void json_write_array_end(struct json_writer *w) { container_end(w, ']'); }

void json_write_key(struct json_writer *w, const char *key) { json_write_key_str(w, str_from(key)); }

void json_write_key_str(struct json_writer *w, struct str key) {
    TERN_ASSERT(w->depth > 0 && !w->after_key);
    separate(w);
    json_put_quoted(w->buf, key);
    buf_putc(w->buf, ':');
    w->after_key = true;
}

void json_write_str(struct json_writer *w, struct str s) {
    separate(w);
    json_put_quoted(w->buf, s);
}

void json_write_int(struct json_writer *w, int64_t v) {
    separate(w);
    buf_putf(w->buf, "%lld", (long long)v);
}

void json_write_bool(struct json_writer *w, bool v) {
    separate(w);
    buf_puts(w->buf, v ? "true" : "false");
}

void json_write_null(struct json_writer *w) {
    separate(w);
    buf_puts(w->buf, "null");
}

void json_write_raw(struct json_writer *w, struct str raw) {
    separate(w);
    buf_put(w->buf, raw.data, raw.len);
}

// The C library writes the decimal point of the locale, which may be any bytes; JSON wants a dot.
static void point_fix(char *text) {
    char *to = text;
    bool foreign = false;
    for (const char *from = text; *from; from++) {
        bool known = (*from >= '0' && *from <= '9') || *from == '-' || *from == '+' || *from == 'e' || *from == '.';
        if (known) {
            *to++ = *from;
        } else if (!foreign) {
            *to++ = '.';
        }
        foreign = !known;
    }
    *to = 0;
}

// Up to 15 digits name a normal double uniquely, so the first of 15, 16, 17 that reads back is the shortest;
// subnormals have fewer digits, so all counts are tried.
void json_write_f64(struct json_writer *w, double v) {
    if (!isfinite(v)) {
        json_write_null(w);
        return;
    }
    separate(w);
    char text[40];
    for (int digits = isnormal(v) ? 15 : 1; digits <= 17; digits++) {
        double back;
        snprintf(text, sizeof(text), "%.*g", digits, v);
        point_fix(text);
        if (str_to_f64(str_from(text), &back) && back == v) break;
    }
    buf_puts(w->buf, text);
}

bool json_put_quoted(struct buf *b, struct str s) {
    const char *p = s.data, *end = s.len > 0 ? s.data + s.len : s.data;
    buf_reserve(b, s.len + 2 > s.len ? s.len + 2 : s.len);
    buf_putc(b, '"');
    while (p < end) {
        size_t n = json_plain_run(p, end);
        buf_put(b, p, n);
        p += n;
        if (p == end) break;
        if ((uint8_t)*p >= 0x80) {
            int n_in;
            uint32_t rune = utf8_decode((struct str){p, (size_t)(end - p)}, &n_in);
            if (rune == RUNE_BAD) {
                buf_put_rune(b, RUNE_REPLACEMENT);
            } else {
                buf_put(b, p, (size_t)n_in);
            }
            p += n_in;
            continue;
        }
        switch (*p) {
        case '"': buf_puts(b, "\\\""); break;
        case '\\': buf_puts(b, "\\\\"); break;
        case '\n': buf_puts(b, "\\n"); break;
        case '\r': buf_puts(b, "\\r"); break;
        case '\t': buf_puts(b, "\\t"); break;
        case '\b': buf_puts(b, "\\b"); break;
        case '\f': buf_puts(b, "\\f"); break;
        default: buf_putf(b, "\\u%04x", (unsigned)(uint8_t)*p); break;
        }
        p++;
    }
    return buf_putc(b, '"');
}
