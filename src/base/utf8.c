// UTF-8 by RFC 3629. Ill-formed input is cut into maximal subparts (Unicode 15, section 3.9), so that one broken
// character gives one U+FFFD, as browsers and Python do.
#include "base/base.h"

// Range of the second byte by the first (it excludes overlong forms, surrogates and what lies over U+10FFFF), and the
// length; 0 for bytes that cannot start a character.
static int lead_info(uint8_t lead, uint8_t *low, uint8_t *high) {
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) {
        if (lead == 0xe0) *low = 0xa0;
        if (lead == 0xed) *high = 0x9f;
        return 3;
    }
    if (lead > 0xf4) return 0;
    if (lead == 0xf0) *low = 0x90;
    if (lead == 0xf4) *high = 0x8f;
    return 4;
}

uint32_t utf8_decode(struct str s, int *n_bytes) {
    *n_bytes = 1;
    if (s.len == 0) return RUNE_BAD;
    const uint8_t *p = (const uint8_t *)s.data;
    if (p[0] < 0x80) return p[0];
    uint8_t low, high;
    int n = lead_info(p[0], &low, &high);
    if (n == 0) return RUNE_BAD;
    uint32_t rune = p[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((size_t)i >= s.len || p[i] < low || p[i] > high) {
            *n_bytes = i;
            return RUNE_BAD;
        }
        rune = (rune << 6) | (p[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *n_bytes = n;
    return rune;
}

int utf8_encode(uint32_t rune, char out[4]) {
    if (rune > 0x10ffff || (rune >= 0xd800 && rune < 0xe000)) rune = RUNE_REPLACEMENT;
    if (rune < 0x80) {
        out[0] = (char)rune;
        return 1;
    }
    int n = rune < 0x800 ? 2 : rune < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (rune & 0x3f));
        rune >>= 6;
    }
    out[0] = (char)((0xf00u >> n) | rune);
    return n;
}

bool utf8_valid(struct str s, size_t *bad_pos) {
    size_t i = 0;
    while (i < s.len) {
        while (s.len - i >= 8 && (load_u64(s.data + i) & 0x8080808080808080u) == 0) i += 8;
        if (i == s.len) break;
        if ((uint8_t)s.data[i] < 0x80) {
            i++;
            continue;
        }
        int n;
        if (utf8_decode((struct str){s.data + i, s.len - i}, &n) == RUNE_BAD) {
            if (bad_pos) *bad_pos = i;
            return false;
        }
        i += (size_t)n;
    }
    return true;
}

size_t utf8_incomplete_tail(struct str s) {
    for (size_t back = 1; back <= 3 && back <= s.len; back++) {
        uint8_t byte = (uint8_t)s.data[s.len - back];
        if (byte >= 0x80 && byte < 0xc0) continue; // a continuation: look further back for its lead
        uint8_t low, high;
        int n = lead_info(byte, &low, &high);
        if (n <= (int)back) return 0;
        int got;
        bool prefix = utf8_decode((struct str){s.data + s.len - back, back}, &got) == RUNE_BAD && got == (int)back;
        return prefix ? back : 0;
    }
    return 0;
}

bool utf8_put_clean(struct buf *b, struct str s) {
    size_t i = 0;
    while (i < s.len) {
        size_t bad;
        struct str rest = {s.data + i, s.len - i};
        if (utf8_valid(rest, &bad)) return buf_put(b, rest.data, rest.len);
        int n;
        utf8_decode((struct str){rest.data + bad, rest.len - bad}, &n);
        buf_put(b, rest.data, bad);
        buf_put_rune(b, RUNE_REPLACEMENT);
        i += bad + (size_t)n;
    }
    return !b->failed;
}
