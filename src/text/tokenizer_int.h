// Private to the tokenizer: what the two file forms are read into, and the built tokenizer.
//
//   GGUF arrays     -- tokenizer.c ------+
//                                        +--> struct tokenizer_parts -- tokenizer_build.c --> struct tokenizer
//   tokenizer.json  -- tokenizer_json.c -+
#pragma once
#include "base/base.h"
#include "text/bpe.h"
#include "text/pretok.h"
#include "text/text.h"

#define TOKENIZER_TOKEN_BYTES_MAX (64u << 10) // bytes of one token's text in the file
#define TOKENIZER_POOL_BYTES_MAX (256u << 20) // bytes of all tokens together
#define TOKENIZER_MARKERS_MAX (1u << 16)      // added tokens
#define TOKENIZER_MARKER_BYTES_MAX 512        // of an added token: bounds the work per byte of text

enum token_kind {
    TOKEN_NONE,    // an id without text: padding, unused
    TOKEN_NORMAL,  // spelled in the byte alphabet, made by merges
    TOKEN_ADDED,   // verbatim; found in the text before it is split
    TOKEN_CONTROL, // added, and special: only on request, never out of tainted text, hidden in output
    TOKEN_BYTE,    // <0xNN>
};
// Flags of added tokens, as in tokenizer.json.
#define TOKEN_LSTRIP 1      // swallows the blanks before it
#define TOKEN_RSTRIP 2      // and after it
#define TOKEN_SINGLE_WORD 4 // only between non-word characters
#define TOKEN_NORMALIZED 8  // looked for in a second pass, in what the first pass left

struct part_token {
    struct str text;
    int32_t id;
    uint8_t kind;  // enum token_kind
    uint8_t flags; // TOKEN_LSTRIP …
};
struct part_merge {
    struct str left, right; // in the byte alphabet
};
// A tokenizer as a file describes it, the same for both forms. Strings are borrowed from the source or the arena.
struct tokenizer_parts {
    struct arena arena;
    struct part_token *tokens; // added tokens come after the normal ones
    int n_tokens;
    struct part_merge *merges;
    int n_merges;
    enum pretok_kind pretok;
    bool is_plain;       // tokens are spelled as text, with U+2581 for a blank; a text is one piece
    const float *scores; // [n_tokens] then: GGUF, in place of merges; or NULL
    bool ignore_merges;  // a piece that is a token as a whole is taken as it is
    bool adds_bos;
    int32_t bos, eos; // -1: none
    struct buf note;  // what had to be assumed, for tokenizer_note()
};

struct token {
    uint32_t offset, len; // of its bytes in the pool
    uint8_t kind;         // enum token_kind
    bool whole;           // a piece that has these bytes is this token, without merging
};

// Added tokens of one pass, sorted by bytes, so that a walk narrows a range of them byte by byte.
struct marker {
    struct str text; // in the pool
    int32_t id;
    uint8_t flags;
    bool control;
};
struct marker_set {
    struct marker *markers; // [n] sorted
    int n;
    uint32_t first[257];         // markers[first[b] .. first[b + 1]) start with byte b
    uint8_t pair[256 * 256 / 8]; // bit: some marker starts with these two bytes, or is the first byte alone
};

struct tokenizer {
    struct token *tokens; // [size]
    int size;
    char *pool;    // bytes of all tokens
    uint64_t *map; // [map_mask + 1] bytes -> id: hash tag << 32 | id + 1; 0 is empty
    uint64_t map_mask, map_seed;
    size_t whole_len_max; // longest token that a piece can be as a whole, bytes
    int32_t byte_id[256]; // -1: the vocabulary cannot spell this byte
    struct bpe bpe;
    struct marker_set markers[2]; // by pass
    struct unicode_map unicode;
    enum pretok_kind pretok;
    bool is_plain; // texts begin as characters, not as bytes, and are not split
    bool adds_bos;
    int32_t bos, eos;
    char *note;
};

// tokenizer.c: "left right" with exactly one blank
bool merge_split(struct str text, struct part_merge *out);

// tokenizer_json.c
enum tern_status tokenizer_parts_from_json(struct tokenizer_parts *parts, struct str json, struct tern_err *err);

// tokenizer_build.c
enum tern_status tokenizer_build(struct tokenizer *t, struct tokenizer_parts *parts, int n_vocab_rows,
                                 struct tern_err *err);
int32_t tokenizer_map_find(const struct tokenizer *t, const char *data, size_t len); // -1: no such token
// Room for printing a token's text in a message: at most this many bytes of it.
#define TOKEN_SHOWN_MAX 48
#define TOKEN_SHOWN(s) ((int)MIN((s).len, (size_t)TOKEN_SHOWN_MAX)), (s).data ? (s).data : ""

// tokenizer_merges.c
enum tern_status tokenizer_merges_build(struct tokenizer *t, struct tokenizer_parts *parts, int n_vocab_rows,
                                        struct tern_err *err);

// tokenizer_plain.c: vocabularies spelled as text (Gemma)
#define PLAIN_BLANK STR("\xe2\x96\x81") // U+2581, a blank in such a spelling
// Appends the text with blanks for each U+2581.
void plain_decode(struct buf *out, struct str text);
// Merge rules from scores: every token that is two tokens side by side is made of them, higher scores first.
enum tern_status plain_scores_build(struct tokenizer *t, const struct tokenizer_parts *parts, struct tern_err *err);
int64_t plain_rules_count(const struct tokenizer *t); // how many rules that makes
// The symbols that a text begins as, at most text.len of them, into ids: characters that are tokens, else their bytes.
// Returns how many; at a byte without a token -1, and its offset in *bad.
int64_t plain_symbols(const struct tokenizer *t, struct str text, int32_t *ids, size_t *bad);

// tokenizer_alphabet.c: GPT-2's spelling of bytes as printable characters
// Appends the bytes that text spells. False at a character that is not of the alphabet; *bad_pos is its offset.
bool alphabet_decode(struct buf *out, struct str text, size_t *bad_pos);

// tokenizer_markers.c
enum tern_status marker_sets_build(struct tokenizer *t, const struct tokenizer_parts *parts, struct tern_err *err);
void marker_set_release(struct marker_set *s);
// One pass over text[begin .. end): the next added token, or false.
struct marker_scan {
    const struct tokenizer *t;
    const struct marker_set *set;
    const uint8_t *text;
    size_t begin, end; // what is searched; neighbours outside are not looked at
    size_t pos;        // where the search goes on
    size_t done;       // end of the last match with the blanks it swallowed: everything before is dealt with
    const struct encode_options *options;
    int tainted_next; // first tainted range that may still matter
    uint64_t n_steps;
};
struct marker_match {
    const struct marker *marker;
    size_t begin, end; // with the blanks it swallows
};
bool marker_scan_next(struct marker_scan *s, struct marker_match *m);

// tokenizer_encode.c: tokenizer_encode, and how many elementary steps it took (nullable)
enum tern_status tokenizer_encode_counted(const struct tokenizer *t, struct id_list *out, struct str text,
                                          const struct encode_options *o, uint64_t *n_steps, struct tern_err *err);
