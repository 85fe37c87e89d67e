// Views: comparing, finding, trimming, and escaping for terminals and log lines.
#define _GNU_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"

int str_cmp(struct str a, struct str b) {
    size_t n = MIN(a.len, b.len);
    int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    if (order != 0) return order;
    return a.len < b.len ? -1 : a.len > b.len;
}

// memmem is linear in glibc and on macOS; a loop of our own over memchr would be quadratic on hostile input.
size_t str_find(struct str hay, struct str needle, size_t from) {
    if (from > hay.len) return SIZE_MAX;
    if (needle.len == 0) return from;
    if (needle.len > hay.len - from) return SIZE_MAX;
    const char *hit = memmem(hay.data + from, hay.len - from, needle.data, needle.len);
    return hit ? (size_t)(hit - hay.data) : SIZE_MAX;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

struct str str_trim(struct str s) {
    while (s.len > 0 && is_blank(s.data[0])) {
        s.data++;
        s.len--;
    }
    while (s.len > 0 && is_blank(s.data[s.len - 1])) s.len--;
    return s;
}

int escape_step(struct str s, int *n_in, char out[ESCAPE_STEP_MAX]) {
    static const char hex[] = "0123456789abcdef";
    uint32_t rune = utf8_decode(s, n_in);
    bool control = rune < 0x20 || (rune >= 0x7f && rune < 0xa0);
    if (rune != RUNE_BAD && !control) {
        memcpy(out, s.data, (size_t)*n_in);
        return *n_in;
    }
    for (int i = 0; i < *n_in; i++) {
        uint8_t byte = (uint8_t)s.data[i];
        char *p = out + 4 * i;
        p[0] = '\\';
        p[1] = 'x';
        p[2] = hex[byte >> 4];
        p[3] = hex[byte & 15];
    }
    return 4 * *n_in;
}

#define ELLIPSIS "\xe2\x80\xa6"
#define ELLIPSIS_LEN (sizeof(ELLIPSIS) - 1)

size_t escape_into(char *out, size_t cap, struct str s, bool more) {
    TERN_ASSERT(cap > ELLIPSIS_LEN);
    if (more) s.len -= utf8_incomplete_tail(s);
    size_t len = 0, cut_len = 0; // cut_len: the longest prefix that leaves room for the ellipsis
    size_t i = 0;
    while (i < s.len) {
        char unit[ESCAPE_STEP_MAX];
        int n_in;
        size_t n = (size_t)escape_step((struct str){s.data + i, s.len - i}, &n_in, unit);
        if (len + n + 1 > cap) break;
        memcpy(out + len, unit, n);
        len += n;
        i += (size_t)n_in;
        if (len + ELLIPSIS_LEN + 1 <= cap) cut_len = len;
    }
    if (i < s.len || more) {
        memcpy(out + cut_len, ELLIPSIS, ELLIPSIS_LEN);
        len = cut_len + ELLIPSIS_LEN;
    }
    out[len] = 0;
    return len;
}

bool str_put_escaped(struct buf *b, struct str s, size_t max_len) {
    size_t i = 0;
    while (i < s.len) {
        char unit[ESCAPE_STEP_MAX];
        int n_in;
        int n = escape_step((struct str){s.data + i, s.len - i}, &n_in, unit);
        if (i + (size_t)n_in > max_len) return buf_put(b, ELLIPSIS, ELLIPSIS_LEN);
        buf_put(b, unit, (size_t)n);
        i += (size_t)n_in;
    }
    return !b->failed;
}
