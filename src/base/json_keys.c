// The set of keys of each open object, for refusing duplicates in linear time.
#include "base/base.h"
#include "base/json_int.h"

#define TABLE_CAP_MIN 64

void json_keys_open(struct json_keys *k, struct json_keys_object *o) {
    *o = (struct json_keys_object){.first = k->len};
}

void json_keys_close(struct json_keys *k, struct json_keys_object *o) {
    k->len = o->first;
    mem_free(o->table);
    o->table = NULL;
    o->table_cap = 0;
}

const struct json_key *json_keys_find(const struct json_keys *k, const struct json_keys_object *o, uint64_t hash,
                                      size_t *cursor) {
    if (k->len == o->first) return NULL;
    const struct json_key *run = k->list + o->first;
    if (!o->table) {
        for (size_t i = *cursor, n = k->len - o->first; i < n; i++) {
            if (run[i].hash != hash) continue;
            *cursor = i + 1;
            return &run[i];
        }
        return NULL;
    }
    for (;; (*cursor)++) {
        uint32_t index = o->table[(hash + *cursor) & (o->table_cap - 1)];
        if (index == 0) return NULL;
        if (run[index - 1].hash != hash) continue;
        (*cursor)++;
        return &run[index - 1];
    }
}

static void table_put(struct json_keys_object *o, uint64_t hash, size_t index) {
    size_t slot = hash & (o->table_cap - 1);
    while (o->table[slot] != 0) slot = (slot + 1) & (o->table_cap - 1);
    o->table[slot] = (uint32_t)index + 1;
}

// At most half of the table is ever filled.
static bool table_grow(const struct json_keys *k, struct json_keys_object *o) {
    size_t n = k->len - o->first, cap = o->table_cap > 0 ? 2 * o->table_cap : TABLE_CAP_MIN;
    uint32_t *table = mem_calloc(cap, sizeof(*table));
    if (!table) return false;
    mem_free(o->table);
    o->table = table;
    o->table_cap = cap;
    for (size_t i = 0; i < n; i++) table_put(o, k->list[o->first + i].hash, i);
    return true;
}

bool json_keys_add(struct json_keys *k, struct json_keys_object *o, uint64_t hash, uint32_t pos) {
    if (k->len == k->cap) {
        size_t cap = k->cap > 0 ? 2 * k->cap : 64;
        struct json_key *list = mem_realloc(k->list, cap * sizeof(*list));
        if (!list) return false;
        k->list = list;
        k->cap = cap;
    }
    size_t n = k->len - o->first;
    if (n >= JSON_KEYS_LINEAR && 2 * (n + 1) > o->table_cap && !table_grow(k, o)) return false;
    k->list[k->len++] = (struct json_key){hash, pos};
    if (o->table) table_put(o, hash, n);
    return true;
}

void json_keys_release(struct json_keys *k) {
    mem_free(k->list);
    *k = (struct json_keys){0};
}
