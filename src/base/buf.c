// The growable buffer. It doubles from 64 bytes up to its maximum, and remembers a failure until cleared.
#include "base/base.h"
#include <stdio.h>

#define BUF_CAP_MIN ((size_t)64)

void buf_init(struct buf *b, size_t cap_max) { *b = (struct buf){.cap_max = cap_max}; }

void buf_release(struct buf *b) {
    mem_free(b->data);
    buf_init(b, b->cap_max);
}

void buf_clear(struct buf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = 0;
}

// cap counts the room for the terminating 0, cap_max does not.
static bool buf_grow(struct buf *b, size_t extra) {
    if (extra > b->cap_max - MIN(b->cap_max, b->len)) return false;
    size_t need = b->len + extra, cap = MAX(BUF_CAP_MIN, b->cap);
    if (need == SIZE_MAX) return false;
    while (cap - 1 < need) cap = cap > SIZE_MAX / 2 ? need + 1 : cap * 2;
    if (b->cap_max < SIZE_MAX && cap > b->cap_max + 1) cap = b->cap_max + 1;
    char *data = mem_realloc(b->data, cap);
    if (!data) return false;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = 0;
    return true;
}

bool buf_reserve(struct buf *b, size_t extra) {
    if (b->failed) return false;
    if (b->cap > b->len && extra <= b->cap - b->len - 1) return true;
    if (!buf_grow(b, extra)) b->failed = true;
    return !b->failed;
}

bool buf_put(struct buf *b, const void *data, size_t len) {
    if (!buf_reserve(b, len)) return false;
    if (len > 0) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return true;
}

bool buf_puts(struct buf *b, const char *z) { return buf_put(b, z, strlen(z)); }
bool buf_putc(struct buf *b, char c) { return buf_put(b, &c, 1); }

bool buf_putf(struct buf *b, const char *fmt, ...) {
    if (!buf_reserve(b, 0)) return false;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(b->data + b->len, b->cap - b->len, fmt, args);
    va_end(args);
    b->data[b->len] = 0;
    if (n < 0) b->failed = true;
    if (n < 0 || !buf_reserve(b, (size_t)n)) return false;
    va_start(args, fmt);
    vsnprintf(b->data + b->len, b->cap - b->len, fmt, args);
    va_end(args);
    b->len += (size_t)n;
    return true;
}

bool buf_put_rune(struct buf *b, uint32_t rune) {
    char bytes[4];
    int n = utf8_encode(rune, bytes);
    return buf_put(b, bytes, (size_t)n);
}
