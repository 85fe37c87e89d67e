// A small tree of JSON values, for the parts of tokenizer.json that are configuration (private to text/).
#pragma once
#include "base/base.h"

#define TREE_NODES_MAX 65536

struct tree_node {
    enum json_event type; // JSON_NULL, _BOOL, _NUMBER, _STRING, _OBJECT, _ARRAY
    struct str key;       // inside an object
    struct str text;      // string; number's literal
    bool boolean;
    bool is_int;
    int64_t integer;
    struct tree_node *child; // first
    struct tree_node *next;
};
// Reads one JSON value into the arena.
enum tern_status tree_parse(struct tree_node **out, struct arena *arena, struct str json, struct tern_err *err);
const struct tree_node *tree_find(const struct tree_node *object, const char *key); // NULL: absent, null, or no object
struct str tree_text(const struct tree_node *object, const char *key);              // the string, or empty
bool tree_bool(const struct tree_node *object, const char *key, bool otherwise);
