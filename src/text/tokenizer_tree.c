// JSON to a tree in an arena, without recursion: open containers are kept on a stack as deep as the parser allows.
#include "base/base.h"
#include "text/tokenizer_tree.h"

enum tern_status tree_parse(struct tree_node **out, struct arena *arena, struct str json, struct tern_err *err) {
    struct json *parser;
    TRY(json_create(&parser, json, &(struct json_options){.dup_check = true}, err));
    struct tree_node root = {0}, *open[JSON_DEPTH_MAX + 1] = {&root};
    struct tree_node **tail[JSON_DEPTH_MAX + 1] = {&root.child};
    struct str key = {0};
    int depth = 0, n_nodes = 0;
    enum tern_status status = TERN_OK;
    struct json_item item;
    while (json_next(parser, &item, err) != JSON_END) {
        if (item.event == JSON_ERROR) {
            status = err ? err->code : TERN_BAD_FORMAT;
            break;
        }
        if (item.event == JSON_OBJECT_END || item.event == JSON_ARRAY_END) {
            depth--;
            continue;
        }
        bool has_text = item.event == JSON_KEY || item.event == JSON_STRING || item.event == JSON_NUMBER;
        struct str text = {0};
        if (has_text) text = (struct str){arena_dup(arena, item.text.data, item.text.len), item.text.len};
        if (item.event == JSON_KEY && text.data) {
            key = text;
            continue;
        }
        struct tree_node *node = arena_calloc(arena, 1, sizeof *node);
        if (!node || (has_text && !text.data)) {
            status = err_set(err, TERN_NO_MEMORY, "out of memory for the tokenizer's configuration");
            break;
        }
        if (++n_nodes > TREE_NODES_MAX) {
            status = err_set(err, TERN_LIMIT, "more than %d values", TREE_NODES_MAX);
            break;
        }
        *node = (struct tree_node){item.event, key, text, item.boolean, item.is_int, item.integer, NULL, NULL};
        key = (struct str){0};
        *tail[depth] = node;
        tail[depth] = &node->next;
        if (item.event != JSON_OBJECT && item.event != JSON_ARRAY) continue;
        TERN_ASSERT(depth < JSON_DEPTH_MAX);
        open[++depth] = node;
        tail[depth] = &open[depth]->child;
    }
    json_free(parser);
    if (status == TERN_OK) *out = root.child;
    return status;
}

const struct tree_node *tree_find(const struct tree_node *object, const char *key) {
    if (!object || object->type != JSON_OBJECT) return NULL;
    for (const struct tree_node *n = object->child; n; n = n->next) {
        if (str_eqz(n->key, key)) return n->type == JSON_NULL ? NULL : n;
    }
    return NULL;
}

struct str tree_text(const struct tree_node *object, const char *key) {
    const struct tree_node *n = tree_find(object, key);
    return n && n->type == JSON_STRING ? n->text : (struct str){0};
}

bool tree_bool(const struct tree_node *object, const char *key, bool otherwise) {
    const struct tree_node *n = tree_find(object, key);
    return n && n->type == JSON_BOOL ? n->boolean : otherwise;
}
