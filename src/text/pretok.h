// Cuts text into the pieces that byte pairs are merged in (private to text/).
#pragma once
#include "base/base.h"
#include "text/unicode_tables.h"

// The families of split patterns. Their regular expressions, as tokenizer files spell them, stand in pretok.c.
enum pretok_kind {
    PRETOK_LLAMA3, // also lfm2: contractions in any case, digits in threes
    PRETOK_QWEN2,  // the same with single digits
    PRETOK_GPT2,   // also the fallback for families that are not known
    PRETOK_SMOLLM, // digits cut out one by one, then as gpt-2
    PRETOK_COUNT
};

struct pretok {
    const struct unicode_map *map;
    enum pretok_kind kind;
    const uint8_t *text;
    size_t pos, end;
    size_t limit;     // smollm: where the next digit starts, once pos reaches it a new one is looked for
    uint64_t n_steps; // characters looked at: tests check that it stays linear
};
void pretok_init(struct pretok *p, const struct unicode_map *map, enum pretok_kind kind, struct str text);
// The next piece (not empty), or false at the end. The pieces put together are the text.
bool pretok_next(struct pretok *p, struct str *piece);

// The family of a GGUF pre-tokenizer name; false when it is not known. Out-parameters: what files of that family mean
// when they do not say it.
bool pretok_from_gguf(struct str name, enum pretok_kind *kind, bool *ignore_merges, bool *adds_bos);
// The family whose split pattern is this regular expression.
bool pretok_from_regex(struct str regex, enum pretok_kind *kind);
const char *pretok_name(enum pretok_kind kind);
