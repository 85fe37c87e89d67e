// Classes of code points as the reference tokenizers see them (private to text/).
//
// The committed table holds runs; unicode_map_init() spreads them into two stages, so that a lookup is two loads. The
// classes come from the reference implementation itself, code point by code point: its regular expressions and its
// digit splitter follow different Unicode versions, hence NUMBER and DIGIT apart.
#pragma once
#include "base/base.h"

#define UNICODE_LETTER 1 // \p{L} of the split patterns
#define UNICODE_NUMBER 2 // \p{N} of the split patterns
#define UNICODE_SPACE 4  // \s
#define UNICODE_WORD 8   // \w of the single_word flag
#define UNICODE_DIGIT 16 // what the individual-digits splitter splits at

#define UNICODE_RUNS 2016
extern const uint32_t unicode_runs[UNICODE_RUNS]; // (first code point << 8) | bits

#define UNICODE_PAGE 128                        // code points per page
#define UNICODE_PAGES (0x110000 / UNICODE_PAGE) // pages
#define UNICODE_PAGES_OWN 256                   // pages that are not of one class, at most
struct unicode_map {
    uint16_t page[UNICODE_PAGES];                 // below 256: the class of the whole page; else 256 + index into own
    uint8_t own[UNICODE_PAGES_OWN][UNICODE_PAGE]; // own[0] is ASCII
    int n_own;
};
void unicode_map_init(struct unicode_map *m);
// Class bits of a code point up to U+10FFFF.
static inline uint8_t unicode_class(const struct unicode_map *m, uint32_t rune) {
    uint16_t p = m->page[rune / UNICODE_PAGE];
    return p < 256 ? (uint8_t)p : m->own[p - 256][rune % UNICODE_PAGE];
}
// Class bits of the character at text[0 .. len), len > 0, and its length in bytes. An ill-formed byte is a character of
// its own without any class: it is neither letter, number nor blank.
static inline uint8_t unicode_class_at(const struct unicode_map *m, const uint8_t *text, size_t len, int *n_bytes) {
    if (text[0] < 0x80) {
        *n_bytes = 1;
        return m->own[0][text[0]];
    }
    uint32_t rune = utf8_decode((struct str){(const char *)text, len}, n_bytes);
    if (rune != RUNE_BAD) return unicode_class(m, rune);
    *n_bytes = 1;
    return 0;
}
