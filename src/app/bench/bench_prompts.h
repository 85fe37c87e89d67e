// Private to app/: prompts of several categories from a file, one JSON object a line, for benches and studies.
#pragma once
#include "base/base.h"

#define PROMPT_CATEGORIES_MAX 16
#define PROMPTS_MAX 4096

struct prompt {
    int category;
    bool rote;                  // the line says "group": "rote": nearly fixed answers, reported apart
    struct str messages, tools; // JSON, into the file
};
struct prompt_set {
    struct buf file;
    struct prompt *items; // [n]
    int n;
    char categories[PROMPT_CATEGORIES_MAX][32];
    int n_categories;
};
// path NULL: a few prompts that come with the program. Release after failure too.
enum tern_status prompt_set_read(struct prompt_set *s, const char *path, struct tern_err *err);
void prompt_set_release(struct prompt_set *s);
// Keeps n prompts of each category, spread evenly: files tend to be sorted.
void prompt_set_thin(struct prompt_set *s, int n);
