// A schema's document as a tree of nodes in one array, read by the bounded JSON parser: no recursion, no duplicate
// keys. Nodes know their parents, so that messages can name the place as a JSON pointer.
#include "base/base.h"
#include "text/schema_int.h"

#define PATH_MAX_BYTES 300 // of a path in a message

static int32_t node_put(struct schema *s, const struct json_item *item, int32_t parent, struct str key) {
    if (!grammar_grow(s->b, (void **)&s->nodes, &s->cap_nodes, s->n_nodes, sizeof *s->nodes, SCHEMA_NODES_MAX,
                      "values in the schema"))
        return GRAMMAR_NONE;
    int32_t i = (int32_t)s->n_nodes++;
    struct schema_node *n = &s->nodes[i];
    *n = (struct schema_node){.event = item->event,
                              .key = key,
                              .boolean = item->boolean,
                              .parent = parent,
                              .first = GRAMMAR_NONE,
                              .last = GRAMMAR_NONE,
                              .next = GRAMMAR_NONE};
    if (item->event == JSON_STRING || item->event == JSON_NUMBER) {
        n->text = (struct str){arena_dup(&s->arena, item->text.data, item->text.len), item->text.len};
        if (!n->text.data) GRAMMAR_FAIL(s->b, TERN_NO_MEMORY, "no memory for a schema");
    }
    if (parent < 0) return i;
    struct schema_node *p = &s->nodes[parent];
    n->index = p->n++;
    if (p->last >= 0)
        s->nodes[p->last].next = i;
    else
        p->first = i;
    p->last = i;
    return i;
}

static bool items_read(struct schema *s, struct json *j) {
    struct json_item item;
    struct str key = {NULL, 0};
    int32_t open = GRAMMAR_NONE;
    while (s->b->status == TERN_OK) {
        switch (json_next(j, &item, s->b->err)) {
        case JSON_END: return true;
        case JSON_ERROR: s->b->status = s->b->err ? s->b->err->code : TERN_BAD_FORMAT; break;
        case JSON_KEY:
            key = (struct str){arena_dup(&s->arena, item.text.data, item.text.len), item.text.len};
            if (!key.data) GRAMMAR_FAIL(s->b, TERN_NO_MEMORY, "no memory for a schema");
            break;
        case JSON_OBJECT_END:
        case JSON_ARRAY_END: open = s->nodes[open].parent; break;
        default: {
            int32_t i = node_put(s, &item, open, key);
            key = (struct str){NULL, 0};
            if (item.event == JSON_OBJECT || item.event == JSON_ARRAY) open = i;
        }
        }
    }
    return false;
}

bool schema_read(struct schema *s, struct str text) {
    struct json *j;
    struct json_options o = {
        .depth_max = 2 * SCHEMA_DEPTH_MAX, .size_max = CONSTRAINT_TOOLS_BYTES_MAX, .dup_check = true};
    struct tern_err err = {0}; // the parser tells memory from bad input by it
    enum tern_status status = json_create(&j, text, &o, &err);
    if (status != TERN_OK) return GRAMMAR_FAIL(s->b, status, "%s", err.message);
    struct tern_err *outer = s->b->err;
    s->b->err = &err;
    bool read = items_read(s, j);
    s->b->err = outer;
    json_free(j);
    if (!read && outer) err_set_at(outer, s->b->status, err.pos, "schema: %s", err.message);
    return read;
}

const char *schema_path(struct schema *s, int32_t node) {
    int32_t up[2 * SCHEMA_DEPTH_MAX + 2];
    int n = 0;
    for (; node >= 0 && s->nodes[node].parent >= 0 && n < (int)ARRAY_LEN(up); node = s->nodes[node].parent)
        up[n++] = node;
    buf_clear(&s->path);
    buf_putc(&s->path, '#');
    while (n-- > 0) {
        const struct schema_node *x = &s->nodes[up[n]];
        if (s->nodes[x->parent].event == JSON_ARRAY) {
            buf_putf(&s->path, "/%d", x->index);
            continue;
        }
        buf_putc(&s->path, '/');
        for (size_t i = 0; i < x->key.len && s->path.len < PATH_MAX_BYTES; i++) {
            char c = x->key.data[i];
            if (c == '~' || c == '/')
                buf_puts(&s->path, c == '~' ? "~0" : "~1");
            else
                buf_putc(&s->path, c);
        }
    }
    return s->path.failed || !s->path.data ? "#" : s->path.data;
}

int32_t schema_get_str(const struct schema *s, int32_t node, struct str key) {
    if (s->nodes[node].event != JSON_OBJECT) return GRAMMAR_NONE;
    SCHEMA_EACH(s, child, node) if (str_eq(s->nodes[child].key, key)) return child;
    return GRAMMAR_NONE;
}
int32_t schema_get(const struct schema *s, int32_t node, const char *key) {
    return schema_get_str(s, node, str_from(key));
}

// One step of a JSON pointer, after its '/'.
static int32_t pointer_step(const struct schema *s, int32_t at, struct str step) {
    char key[256];
    size_t n = 0;
    for (size_t i = 0; i < step.len; i++) {
        if (n == sizeof key) return GRAMMAR_NONE;
        char c = step.data[i];
        if (c == '~' && i + 1 < step.len && (step.data[i + 1] == '0' || step.data[i + 1] == '1'))
            c = step.data[++i] == '0' ? '~' : '/';
        key[n++] = c;
    }
    int64_t index;
    if (s->nodes[at].event == JSON_OBJECT) return schema_get_str(s, at, (struct str){key, n});
    if (s->nodes[at].event != JSON_ARRAY || !str_to_i64((struct str){key, n}, &index)) return GRAMMAR_NONE;
    SCHEMA_EACH(s, child, at) if (s->nodes[child].index == index) return child;
    return GRAMMAR_NONE;
}

int32_t schema_ref(struct schema *s, int32_t ref_node) {
    const struct schema_node *r = &s->nodes[ref_node];
    struct str ref = r->text;
    int32_t at = ref_node;
    while (s->nodes[at].parent >= 0 && !s->nodes[at].root) at = s->nodes[at].parent;
    if (r->event != JSON_STRING) {
        GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: $ref must be a string", schema_path(s, ref_node));
        return GRAMMAR_NONE;
    }
    if (ref.len == 0 || ref.data[0] != '#' || (ref.len > 1 && ref.data[1] != '/')) {
        GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "schema %s: \"%.*s\": only pointers into this schema (#/…) are supported",
                     schema_path(s, ref_node), (int)MIN(ref.len, 80), ref.data);
        return GRAMMAR_NONE;
    }
    for (size_t pos = 1; pos < ref.len && at >= 0;) {
        size_t end = str_find(ref, STR("/"), pos + 1);
        if (end == (size_t)-1) end = ref.len;
        at = pointer_step(s, at, (struct str){ref.data + pos + 1, end - pos - 1});
        pos = end;
    }
    if (at < 0)
        GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: \"%.*s\" is not in the schema", schema_path(s, ref_node),
                     (int)MIN(ref.len, 80), ref.data);
    return at;
}

bool schema_count(struct schema *s, int32_t node, uint32_t *out) {
    int64_t v;
    const struct schema_node *n = &s->nodes[node];
    if (n->event != JSON_NUMBER || !decimal_is_whole(n->text, &v) || v < 0)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a whole number of at least 0 is expected",
                            schema_path(s, node));
    *out = v >= COUNT_FREE ? COUNT_FREE - 1 : (uint32_t)v;
    return true;
}

static void scalar_put(const struct schema_node *n, struct buf *out, bool python) {
    switch (n->event) {
    case JSON_NULL: buf_puts(out, python ? "None" : "null"); break;
    case JSON_BOOL:
        if (python)
            buf_puts(out, n->boolean ? "True" : "False");
        else
            buf_puts(out, n->boolean ? "true" : "false");
        break;
    case JSON_NUMBER: buf_put(out, n->text.data, n->text.len); break;
    case JSON_STRING: json_put_quoted(out, n->text); break;
    default: break;
    }
}

// Walks the tree by its links.
void schema_json(const struct schema *s, int32_t node, struct buf *out, bool python) {
    int32_t at = node;
    for (;;) {
        const struct schema_node *n = &s->nodes[at];
        if (at != node && s->nodes[n->parent].event == JSON_OBJECT) {
            json_put_quoted(out, n->key);
            buf_putc(out, ':');
        }
        bool is_list = n->event == JSON_OBJECT || n->event == JSON_ARRAY;
        if (is_list) buf_putc(out, n->event == JSON_OBJECT ? '{' : '[');
        scalar_put(n, out, python);
        if (is_list && n->first >= 0) {
            at = n->first;
            continue;
        }
        if (is_list) buf_putc(out, n->event == JSON_OBJECT ? '}' : ']');
        while (at != node && s->nodes[at].next < 0) {
            at = s->nodes[at].parent;
            buf_putc(out, s->nodes[at].event == JSON_OBJECT ? '}' : ']');
        }
        if (at == node) return;
        at = s->nodes[at].next;
        buf_putc(out, ',');
    }
}

static bool scalar_equal(const struct schema_node *a, const struct schema_node *b) {
    if (a->event == JSON_NUMBER && b->event == JSON_NUMBER)
        return str_eq(a->text, b->text) || decimal_cmp(a->text, b->text) == 0;
    return a->event == b->event && a->n == b->n && a->boolean == b->boolean && str_eq(a->text, b->text);
}

// In step through both trees; members of objects are expected in the same order or found by key.
static bool nodes_equal(const struct schema *s, int32_t a, int32_t b, int depth) {
    if (!scalar_equal(&s->nodes[a], &s->nodes[b])) return false;
    if (depth > 2 * SCHEMA_DEPTH_MAX) return false;
    int32_t y = s->nodes[b].first;
    SCHEMA_EACH(s, x, a) {
        int32_t other = s->nodes[a].event == JSON_OBJECT ? schema_get_str(s, b, s->nodes[x].key) : y;
        if (other < 0 || !nodes_equal(s, x, other, depth + 1)) return false;
        y = s->nodes[y].next;
    }
    return true;
}

bool schema_equal(const struct schema *s, int32_t a, int32_t b) { return nodes_equal(s, a, b, 0); }
