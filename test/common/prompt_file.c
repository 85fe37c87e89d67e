// See prompt_file.h.
#include "prompt_file.h"

#include <stdio.h>
#include <stdlib.h>

static void must(enum tern_status status, const struct tern_err *err) {
    if (status == TERN_OK) return;
    fprintf(stderr, "prompts: %s\n", err->message);
    exit(1);
}

static void line_parse(struct str text, struct prompt_line *line) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    must(json_create(&j, text, NULL, &err), &err);
    must(json_expect(j, JSON_OBJECT, &item, "prompt", &err), &err);
    while (json_next(j, &item, &err) == JSON_KEY) {
        if (str_eqz(item.text, "messages")) {
            must(json_raw(j, &line->messages, &err), &err);
        } else if (str_eqz(item.text, "tools")) {
            must(json_raw(j, &line->tools, &err), &err);
        } else {
            must(json_skip(j, &err), &err);
        }
    }
    if (str_eqz(line->tools, "null")) line->tools = (struct str){0};
    json_free(j);
}

void prompt_file_read(struct prompt_file *f, const char *path, int first, int every, int n) {
    struct tern_err err = {0};
    *f = (struct prompt_file){0};
    buf_init(&f->text, 1 << 20);
    must(file_read_all(&f->text, path, &err), &err);
    int line = 0;
    for (size_t at = 0; at < f->text.len && f->n < MIN(n, (int)ARRAY_LEN(f->lines)); line++) {
        size_t end = at;
        while (end < f->text.len && f->text.data[end] != '\n') end++;
        if (line >= first && (line - first) % every == 0)
            line_parse((struct str){f->text.data + at, end - at}, &f->lines[f->n++]);
        at = end + 1;
    }
}

void prompt_file_release(struct prompt_file *f) { buf_release(&f->text); }
