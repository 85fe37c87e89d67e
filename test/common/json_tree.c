// See json_tree.h.
#include "base/base.h"
#include "json_tree.h"

#define TREE_DEPTH_MAX 32
#define TREE_FILE_MAX (64u << 20)

static struct json_tree *node_add(struct json_file *f, struct json_tree *parent, const struct json_item *it,
                                  struct str key) {
    struct json_tree *node = arena_calloc(&f->arena, 1, sizeof *node);
    char *text = arena_dup(&f->arena, it->text.data, it->text.len);
    if (!node || !text) TERN_BUG("no memory for test data");
    *node = (struct json_tree){.event = it->event,
                               .key = key,
                               .text = {text, it->text.len},
                               .number = it->number,
                               .integer = it->integer,
                               .boolean = it->boolean};
    if (!parent) return node;
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
    parent->n++;
    return node;
}

void json_text_read(struct json_file *f, struct str text) {
    struct tern_err err = {0};
    struct json *j;
    struct json_item it;
    struct json_tree *open[TREE_DEPTH_MAX];
    struct str key = {0};
    int depth = 0;
    *f = (struct json_file){0};
    arena_init(&f->arena, 0);
    if (json_create(&j, text, NULL, &err) != TERN_OK) TERN_BUG("%s", err.message);
    while (json_next(j, &it, &err) != JSON_END) {
        if (it.event == JSON_ERROR || depth == TREE_DEPTH_MAX) TERN_BUG("test data: %s", err.message);
        if (it.event == JSON_OBJECT_END || it.event == JSON_ARRAY_END) {
            depth--;
        } else if (it.event == JSON_KEY) {
            key = (struct str){arena_dup(&f->arena, it.text.data, it.text.len), it.text.len};
            if (!key.data) TERN_BUG("no memory for test data");
        } else {
            struct json_tree *node = node_add(f, depth ? open[depth - 1] : NULL, &it, key);
            if (!f->root) f->root = node;
            key = (struct str){0};
            if (it.event == JSON_OBJECT || it.event == JSON_ARRAY) open[depth++] = node;
        }
    }
    json_free(j);
}

void json_file_read(struct json_file *f, const char *path) {
    struct tern_err err = {0};
    struct buf text;
    buf_init(&text, TREE_FILE_MAX);
    if (file_read_all(&text, path, &err) != TERN_OK) TERN_BUG("%s", err.message);
    json_text_read(f, buf_str(&text));
    buf_release(&text);
}

void json_file_release(struct json_file *f) { arena_release(&f->arena); }

const struct json_tree *json_find(const struct json_tree *t, const char *key) {
    JSON_EACH(child, t)
    if (str_eqz(child->key, key)) return child;
    return NULL;
}

const struct json_tree *json_get(const struct json_tree *t, const char *key) {
    const struct json_tree *found = json_find(t, key);
    if (!found) TERN_BUG("test data has no '%s'", key);
    return found;
}
