// Requests or results by custom_id: entries in their order, and an open hash table over them, at most half full.
#include "base/base.h"
#include "batch.h"

#define SLOTS_MIN 1024u
#define TEXT_BYTES_MAX ((size_t)4 << 30)

void batch_table_init(struct batch_table *t) {
    *t = (struct batch_table){.seed = hash_seed()};
    arena_init(&t->arena, TEXT_BYTES_MAX);
}

void batch_table_release(struct batch_table *t) {
    arena_release(&t->arena);
    mem_free(t->entries);
    mem_free(t->slots);
    *t = (struct batch_table){0};
}

// The slot that holds it, or the free one where it belongs.
static uint32_t slot_of(const struct batch_table *t, const char *custom_id) {
    uint32_t mask = t->n_slots - 1, i = (uint32_t)hash_bytes(custom_id, strlen(custom_id), t->seed) & mask;
    while (t->slots[i] && strcmp(t->entries[t->slots[i] - 1].custom_id, custom_id) != 0) i = (i + 1) & mask;
    return i;
}

struct batch_entry *batch_table_find(const struct batch_table *t, const char *custom_id) {
    if (t->n == 0) return NULL;
    uint32_t at = t->slots[slot_of(t, custom_id)];
    return at ? &t->entries[at - 1] : NULL;
}

static bool table_grow(struct batch_table *t) {
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : SLOTS_MIN / 2;
        void *p = mem_realloc(t->entries, cap * sizeof *t->entries);
        if (!p) return false;
        t->entries = p;
        t->cap = cap;
    }
    if (t->n_slots >= 2 * (t->n + 1)) return true;
    uint32_t n = t->n_slots ? t->n_slots * 2 : SLOTS_MIN;
    uint32_t *slots = mem_calloc(n, sizeof *slots);
    if (!slots) return false;
    mem_free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    for (uint32_t i = 0; i < t->n; i++) t->slots[slot_of(t, t->entries[i].custom_id)] = i + 1;
    return true;
}

enum tern_status batch_table_add(struct batch_table *t, const char *custom_id, const char *digest,
                                 struct batch_entry **out, bool *was_there, struct tern_err *err) {
    struct batch_entry *e = batch_table_find(t, custom_id);
    *was_there = e != NULL;
    if (e) {
        *out = e;
        if (strcmp(e->digest, digest) == 0) return TERN_OK;
        return err_set(err, TERN_MISMATCH, "the custom_id '%.60s' was given to another request before", custom_id);
    }
    if (t->n == BATCH_LINES_MAX) return err_set(err, TERN_LIMIT, "a batch has at most %d requests", BATCH_LINES_MAX);
    const char *copy = arena_dup(&t->arena, custom_id, strlen(custom_id));
    if (!copy || !table_grow(t)) return err_set(err, TERN_NO_MEMORY, "no memory for a batch of %u requests", t->n + 1);
    e = &t->entries[t->n++];
    *e = (struct batch_entry){.custom_id = copy};
    memcpy(e->digest, digest, BATCH_DIGEST_LEN + 1);
    t->slots[slot_of(t, custom_id)] = t->n;
    *out = e;
    return TERN_OK;
}
