// Private to text/: the pieces of the answer parser.
#pragma once
#include "base/base.h"
#include "text/text.h"

#define ANSWER_TOOLS_MAX 1024      // names of offered tools that are looked at
#define ANSWER_NESTING_MAX 60      // depth of a call's arguments; below JSON_DEPTH_MAX, which checks the result
#define ANSWER_HOLD_MAX (1u << 20) // bytes of text held back while it may still become a call

// Reads one Python value (str, number, True/False/None, list, tuple, dict; JSON's true/false/null too) at *pos and
// appends it to out as JSON. False: it is none of these (or out failed).
bool literal_to_json(struct str s, size_t *pos, struct buf *out);
// Reads a name at *pos: letters, digits, '_', bytes above 127, and those of `also`. False: none.
bool literal_name(struct str s, size_t *pos, const char *also, struct str *out);
size_t literal_skip_blanks(struct str s, size_t pos);

// A bracket and quote counter over text that comes in bytes.
struct balance {
    int depth;
    char quote; // open one, or 0
    bool escaped;
};
void balance_put(struct balance *b, char c);

// What a block of calls holds, in order. text set: a piece that is no call.
struct block_item {
    bool is_call;
    struct str name, arguments; // call
    struct str raw;             // the source text of the item
};
typedef bool (*block_sink)(void *arg, const struct block_item *item);
// Takes a block of calls apart (LFM2: Python-style list or JSON; Hermes, Llama-3: JSON). Never fails on input: what is
// no call is an item without one. False: the sink stopped or memory ran out (*no_memory).
bool block_parse(struct str content, block_sink sink, void *arg, bool *no_memory);
