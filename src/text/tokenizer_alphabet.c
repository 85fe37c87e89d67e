// GPT-2's byte alphabet: vocabularies spell each byte as one printable character. Printable Latin-1 stands for itself;
// the 68 other bytes are U+0100 upward, in byte order. All characters are one or two bytes of UTF-8.
#include "base/base.h"
#include "text/tokenizer_int.h"

// The byte that a character stands for, or -1.
static int alphabet_byte(uint32_t rune) {
    if ((rune >= 0x21 && rune <= 0x7e) || (rune >= 0xa1 && rune <= 0xac) || (rune >= 0xae && rune <= 0xff)) {
        return (int)rune;
    }
    if (rune < 0x100 || rune > 0x143) return -1;
    uint32_t n = rune - 0x100; // the n-th of: 0..0x20, 0x7f..0xa0, 0xad
    if (n <= 0x20) return (int)n;
    if (n <= 0x42) return (int)(n - 0x21 + 0x7f);
    return 0xad;
}

bool alphabet_decode(struct buf *out, struct str text, size_t *bad_pos) {
    if (!buf_reserve(out, text.len)) return true; // out->failed tells
    const uint8_t *p = (const uint8_t *)text.data;
    char *to = out->data + out->len;
    for (size_t i = 0; i < text.len;) {
        uint32_t rune = p[i];
        size_t n = 1;
        if (rune >= 0xc2 && rune <= 0xc5 && i + 1 < text.len && (p[i + 1] & 0xc0) == 0x80) {
            rune = (rune & 0x1f) << 6 | (p[i + 1] & 0x3f);
            n = 2;
        } else if (rune >= 0x80) {
            *bad_pos = i;
            return false;
        }
        int byte = alphabet_byte(rune);
        if (byte < 0) {
            *bad_pos = i;
            return false;
        }
        *to++ = (char)byte;
        i += n;
    }
    out->len = (size_t)(to - out->data);
    if (out->data) *to = 0;
    return true;
}
