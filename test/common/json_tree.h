// A JSON file as a tree, for tests that read their data from one.
#pragma once
#include "base/base.h"

struct json_tree {
    enum json_event event; // JSON_NULL, _BOOL, _NUMBER, _STRING, _OBJECT or _ARRAY
    struct str key;        // inside an object
    struct str text;       // of a string or number
    double number;
    int64_t integer;
    bool boolean;
    int n; // members or elements
    struct json_tree *first, *last, *next;
};
struct json_file {
    struct arena arena;
    const struct json_tree *root;
};
// These stop the test process with a message when the file or what is asked for is not there.
void json_file_read(struct json_file *f, const char *path);
void json_text_read(struct json_file *f, struct str text);
void json_file_release(struct json_file *f);
const struct json_tree *json_find(const struct json_tree *t, const char *key); // NULL when absent
const struct json_tree *json_get(const struct json_tree *t, const char *key);
#define JSON_EACH(child, list) for (const struct json_tree *child = (list)->first; child; child = child->next)
