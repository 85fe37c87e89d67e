// Bytes and text: a borrowed view, a growable buffer with a maximum, UTF-8, and numbers from text.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/err.h"

// A borrowed run of bytes; not terminated, may hold zeros. `data` may be NULL when len is 0.
struct str {
    const char *data;
    size_t len;
};
#define STR(lit) ((struct str){(lit), sizeof(lit) - 1})
static inline struct str str_from(const char *s) { return (struct str){s, s ? strlen(s) : 0}; }
static inline bool str_eq(struct str a, struct str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
static inline bool str_eqz(struct str a, const char *z) { return str_eq(a, str_from(z)); }
static inline bool str_starts(struct str a, struct str prefix) {
    return a.len >= prefix.len && (prefix.len == 0 || memcmp(a.data, prefix.data, prefix.len) == 0);
}
static inline bool str_ends(struct str a, struct str suffix) {
    return a.len >= suffix.len &&
           (suffix.len == 0 || memcmp(a.data + a.len - suffix.len, suffix.data, suffix.len) == 0);
}
int str_cmp(struct str a, struct str b); // bytewise, as memcmp then length
// Offset of the first occurrence of needle at or after from, or (size_t)-1. An empty needle is found at from.
size_t str_find(struct str hay, struct str needle, size_t from);
struct str str_trim(struct str s); // without ASCII blanks at both ends

// A growable buffer with a maximum. After a failed append `failed` stays set and later appends do nothing, so a writer
// checks once, at the end. data is always terminated by a 0 byte that len does not count (NULL before first use).
struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t cap_max; // most bytes of text; 0: no byte fits
    bool failed;    // out of memory or over cap_max
};
void buf_init(struct buf *b, size_t cap_max);
void buf_release(struct buf *b);
void buf_clear(struct buf *b);                 // len = 0, failed = false; keeps the memory
bool buf_reserve(struct buf *b, size_t extra); // room for extra more bytes
bool buf_put(struct buf *b, const void *data, size_t len);
bool buf_puts(struct buf *b, const char *z);
bool buf_putc(struct buf *b, char c);
bool buf_putf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool buf_put_rune(struct buf *b, uint32_t rune); // as UTF-8
static inline struct str buf_str(const struct buf *b) { return (struct str){b->data, b->len}; }

// UTF-8 (RFC 3629: no surrogates, no overlong forms, at most U+10FFFF).
#define RUNE_BAD 0xFFFFFFFFu
#define RUNE_REPLACEMENT 0xFFFDu
// Decodes one code point at s.data; *n_bytes is its length. For an ill-formed start: RUNE_BAD, and *n_bytes is the
// length of the maximal ill-formed subpart (Unicode 15, section 3.9, "U+FFFD substitution"), at least 1.
uint32_t utf8_decode(struct str s, int *n_bytes);
int utf8_encode(uint32_t rune, char out[4]);    // bytes written
bool utf8_valid(struct str s, size_t *bad_pos); // bad_pos (nullable): offset of the first ill-formed byte
// Bytes at the end of s that may still become a whole code point with more input (0..3).
size_t utf8_incomplete_tail(struct str s);
bool utf8_put_clean(struct buf *b, struct str s); // appends s with each ill-formed subpart as U+FFFD
// Appends s fit for a terminal or a log line: control bytes and ill-formed bytes as \xNN, at most max_len input bytes,
// then "…".
bool str_put_escaped(struct buf *b, struct str s, size_t max_len);

// Strict numbers: the whole of s must be the number (decimal; no blanks, no '+'). False otherwise or out of range.
bool str_to_i64(struct str s, int64_t *out);
bool str_to_f64(struct str s, double *out); // JSON's number grammar; locale-independent
// "1.5 GiB", "12.3 MiB", "640 B" into out; returns out.
const char *bytes_format(uint64_t bytes, char out[24]);
