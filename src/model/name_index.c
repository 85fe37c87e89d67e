// A hash index over an array of structs that begin with their name: keys and tensors are looked up and told apart in
// constant time, so a file with 65,536 equal names costs no more than one with different ones.
#include "base/base.h"
#include "model/model_int.h"

static struct str name_at(const struct name_index *x, uint32_t entry) {
    return *(const struct str *)(const void *)((const char *)x->base + (size_t)entry * x->stride);
}

bool name_index_init(struct name_index *x, struct arena *a, size_t n_max, const void *base, size_t stride) {
    size_t n_slots = 16;
    while (n_slots < n_max * 2) n_slots *= 2;
    *x = (struct name_index){.mask = (uint32_t)(n_slots - 1), .seed = hash_seed(), .base = base, .stride = stride};
    x->slots = arena_calloc(a, n_slots, sizeof(*x->slots));
    return x->slots != NULL;
}

// The slot that holds the name, or the free one where it would go.
static uint32_t slot_find(const struct name_index *x, struct str name) {
    uint32_t i = (uint32_t)hash_bytes(name.data, name.len, x->seed) & x->mask;
    while (x->slots[i] && !str_eq(name_at(x, x->slots[i] - 1), name)) i = (i + 1) & x->mask;
    return i;
}

int64_t name_index_add(struct name_index *x, uint32_t entry) {
    uint32_t slot = slot_find(x, name_at(x, entry));
    if (x->slots[slot]) return x->slots[slot] - 1;
    x->slots[slot] = entry + 1;
    return -1;
}

int64_t name_index_find(const struct name_index *x, struct str name) {
    if (!x->slots) return -1;
    return (int64_t)x->slots[slot_find(x, name)] - 1;
}
