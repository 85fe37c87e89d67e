// The tree of blocks and their data in memory. All data has one size, so memory is cells of one map: the limit holds by
// construction, and nothing is allocated for data after open.
//
// A use of a block is a use of all that it hangs from, the root last: so the least recently used block is never one
// that a more recent one hangs from, and eviction takes leaves. A block to be added never drives out what it
// hangs from.
#include "base/base.h"
#include "prefix_int.h"

#define BLOCKS_MAX (1 << 20)
#define BLOCKS_FIRST 256
#define KEY_TEXT "tern prefix block 2"

// ------------------------------------------------------------------------------------------------------------- keys

static void text_put(struct sha256 *h, struct str text) {
    uint8_t len[8];
    for (int i = 0; i < 8; i++) len[i] = (uint8_t)((uint64_t)text.len >> (8 * i));
    sha256_update(h, len, sizeof len);
    sha256_update(h, text.data, text.len);
}

void prefix_key_root(const struct prefix_cache *c, struct str tenant, struct prefix_key *out) {
    struct sha256 h;
    sha256_init(&h);
    text_put(&h, STR(KEY_TEXT));
    sha256_update(&h, c->identity.b, sizeof c->identity.b);
    text_put(&h, tenant);
    sha256_final(&h, out->b);
}

void prefix_key_next(struct prefix_key *key, const int32_t *ids, size_t n) {
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, key->b, sizeof key->b);
    sha256_update(&h, ids, n * sizeof *ids);
    sha256_final(&h, key->b);
}

// ------------------------------------------------------------------------------------------------------------- tree

static int32_t *bucket_of(const struct prefix_cache *c, const struct prefix_key *key) {
    return &c->buckets[load_u64(key->b) & (uint64_t)(c->n_buckets - 1)];
}

static int32_t *half_bucket_of(const struct prefix_cache *c, const struct prefix_key *half) {
    return &c->half_buckets[load_u64(half->b) & (uint64_t)(c->n_buckets - 1)];
}

static bool half_in_memory(const struct prefix_block *b) { return b->ready && b->has_half; }

void prefix_half_list(struct prefix_cache *c, int32_t i) {
    struct prefix_block *b = &c->blocks[i];
    const bool due = half_in_memory(b) || b->disk_half;
    if (due == b->half_listed) return;
    int32_t *at = half_bucket_of(c, &b->half);
    if (due) {
        b->half_next = *at;
        *at = i;
    } else {
        while (*at != i) at = &c->blocks[*at].half_next;
        *at = b->half_next;
    }
    b->half_listed = due;
}

int32_t prefix_find_half(const struct prefix_cache *c, const struct prefix_key *half) {
    int32_t found = PREFIX_NONE;
    for (int32_t i = *half_bucket_of(c, half); i != PREFIX_NONE; i = c->blocks[i].half_next) {
        if (memcmp(c->blocks[i].half.b, half->b, sizeof half->b) != 0) continue;
        found = i;
        if (half_in_memory(&c->blocks[i])) break;
    }
    return found;
}

int32_t prefix_find(const struct prefix_cache *c, const struct prefix_key *key) {
    int32_t i = *bucket_of(c, key);
    while (i != PREFIX_NONE && memcmp(c->blocks[i].key.b, key->b, sizeof key->b) != 0) i = c->blocks[i].bucket_next;
    return i;
}

// Depths fall on the way up, so it ends, whatever a damaged file's head said.
int32_t prefix_up(const struct prefix_cache *c, int32_t i) {
    const struct prefix_block *b = &c->blocks[i];
    int32_t up = b->depth > 0 ? prefix_find(c, &b->parent) : PREFIX_NONE;
    return up != PREFIX_NONE && c->blocks[up].depth == b->depth - 1 ? up : PREFIX_NONE;
}

static bool blocks_grow(struct prefix_cache *c) {
    int cap = c->blocks_cap ? 2 * c->blocks_cap : BLOCKS_FIRST;
    if (cap > BLOCKS_MAX) return false;
    struct prefix_block *blocks = mem_realloc(c->blocks, (size_t)cap * sizeof *blocks);
    if (!blocks) return false;
    c->blocks = blocks;
    int32_t *buckets = mem_alloc(2 * (size_t)cap * sizeof *buckets);
    if (!buckets) return false;
    mem_free(c->buckets);
    c->buckets = buckets;
    c->half_buckets = buckets + cap;
    c->n_buckets = cap;
    c->blocks_cap = cap;
    for (int i = 0; i < 2 * cap; i++) buckets[i] = PREFIX_NONE;
    for (int i = 0; i < c->n_blocks; i++) { // none is free, or it would have been taken
        int32_t *b = bucket_of(c, &blocks[i].key);
        blocks[i].bucket_next = *b;
        *b = i;
        blocks[i].half_listed = false;
        prefix_half_list(c, i);
    }
    return true;
}

int32_t prefix_block_new(struct prefix_cache *c, const struct prefix_key *key, const struct prefix_key *parent,
                         int depth) {
    int32_t i = c->first_free;
    if (i == PREFIX_NONE && c->n_blocks == c->blocks_cap && !blocks_grow(c)) return PREFIX_NONE;
    if (i != PREFIX_NONE)
        c->first_free = c->blocks[i].bucket_next;
    else
        i = c->n_blocks++;
    int32_t *b = bucket_of(c, key);
    c->blocks[i] = (struct prefix_block){.key = *key,
                                         .parent = *parent,
                                         .depth = depth,
                                         .bucket_next = *b,
                                         .cell = -1,
                                         .newer = PREFIX_NONE,
                                         .older = PREFIX_NONE};
    *b = i;
    return i;
}

void prefix_block_unused(struct prefix_cache *c, int32_t i) {
    struct prefix_block *b = &c->blocks[i];
    if (b->cell >= 0 || b->disk_bytes > 0 || b->n_held > 0) return;
    int32_t *at = bucket_of(c, &b->key);
    while (*at != i) at = &c->blocks[*at].bucket_next;
    *at = b->bucket_next;
    b->bucket_next = c->first_free;
    c->first_free = i;
}

// --------------------------------------------------------------------------------------------------------------- use

static void list_remove(struct prefix_cache *c, int32_t i) {
    struct prefix_block *b = &c->blocks[i];
    *(b->newer != PREFIX_NONE ? &c->blocks[b->newer].older : &c->newest) = b->older;
    *(b->older != PREFIX_NONE ? &c->blocks[b->older].newer : &c->oldest) = b->newer;
    b->newer = b->older = PREFIX_NONE;
}

static void list_put(struct prefix_cache *c, int32_t i) {
    struct prefix_block *b = &c->blocks[i];
    b->older = c->newest;
    *(c->newest != PREFIX_NONE ? &c->blocks[c->newest].newer : &c->oldest) = i;
    c->newest = i;
}

void prefix_touch(struct prefix_cache *c, int32_t i) {
    c->clock++;
    for (; i != PREFIX_NONE; i = prefix_up(c, i)) {
        c->blocks[i].stamp = c->clock;
        if (!c->blocks[i].ready) continue;
        list_remove(c, i);
        list_put(c, i);
    }
}

static void cell_free(struct prefix_cache *c, int32_t i) {
    struct prefix_block *b = &c->blocks[i];
    if (b->ready) list_remove(c, i);
    c->free_cells[c->n_cells - c->n_cells_used--] = b->cell;
    b->cell = -1;
    b->ready = false;
    prefix_half_list(c, i);
    prefix_block_unused(c, i);
}

// A free cell, by eviction if it must be; -1: all are held or of the last use.
static int32_t cell_take(struct prefix_cache *c) {
    if (c->n_cells_used == c->n_cells) {
        int32_t i = c->oldest;
        while (i != PREFIX_NONE && c->blocks[i].n_held > 0) i = c->blocks[i].newer;
        if (i == PREFIX_NONE || c->blocks[i].stamp == c->clock) return -1;
        cell_free(c, i);
    }
    return c->free_cells[c->n_cells - ++c->n_cells_used];
}

static struct prefix_held held_make(struct prefix_cache *c, int32_t i) {
    struct prefix_block *b = &c->blocks[i];
    b->n_held++;
    return (struct prefix_held){.block = i,
                                .data = c->cells + (size_t)b->cell * (size_t)c->cell_bytes,
                                .has_conv = b->has_conv,
                                .has_draft = b->has_draft,
                                .has_half = b->has_half,
                                .half = b->half};
}

size_t prefix_match(struct prefix_cache *c, const struct prefix_key *keys, size_t n, struct prefix_held *out) {
    size_t n_found = 0, n_end = 0;
    mutex_lock(c->mutex);
    for (; n_found < n; n_found++) {
        int32_t i = prefix_find(c, &keys[n_found]);
        if (i == PREFIX_NONE || !c->blocks[i].ready) break;
        out[n_found] = held_make(c, i);
        if (c->shape.conv_bytes == 0 || c->blocks[i].has_conv) n_end = n_found + 1;
    }
    for (size_t k = n_end; k < n_found; k++) c->blocks[out[k].block].n_held--;
    if (n_end > 0) prefix_touch(c, out[n_end - 1].block);
    mutex_unlock(c->mutex);
    return n_end;
}

bool prefix_match_half(struct prefix_cache *c, const struct prefix_key *half, struct prefix_held *out) {
    mutex_lock(c->mutex);
    int32_t i = prefix_find_half(c, half);
    const bool found = i != PREFIX_NONE && half_in_memory(&c->blocks[i]);
    if (found) {
        *out = held_make(c, i);
        prefix_touch(c, i);
    }
    mutex_unlock(c->mutex);
    return found;
}

void prefix_let_go(struct prefix_cache *c, const struct prefix_held *held, size_t n) {
    mutex_lock(c->mutex);
    for (size_t i = 0; i < n; i++) c->blocks[held[i].block].n_held--;
    mutex_unlock(c->mutex);
}

bool prefix_place(struct prefix_cache *c, const struct prefix_key *key, const struct prefix_key *parent, int depth,
                  bool has_conv, struct prefix_held *out, bool *full) {
    *full = false;
    mutex_lock(c->mutex);
    int32_t i = prefix_find(c, key), up = depth > 0 ? prefix_find(c, parent) : PREFIX_NONE;
    prefix_touch(c, i != PREFIX_NONE ? i : up);
    bool taken = false;
    if (i != PREFIX_NONE && c->blocks[i].cell >= 0) {
        // Known without its convolution rows, and nobody looks at it: it is filled again.
        struct prefix_block *b = &c->blocks[i];
        taken = b->ready && !b->has_conv && has_conv && b->n_held == 0;
        if (taken) list_remove(c, i);
    } else {
        int32_t cell = cell_take(c);
        if (cell >= 0 && i == PREFIX_NONE) i = prefix_block_new(c, key, parent, depth);
        if (cell >= 0 && i == PREFIX_NONE) c->free_cells[c->n_cells - c->n_cells_used--] = cell;
        taken = cell >= 0 && i != PREFIX_NONE;
        *full = !taken;
        if (taken) c->blocks[i].cell = cell;
    }
    if (taken) {
        c->blocks[i].ready = false;
        prefix_half_list(c, i);
        c->blocks[i].stamp = c->clock;
        *out = held_make(c, i);
        out->has_conv = has_conv;
        out->has_draft = out->has_half = false;
    }
    mutex_unlock(c->mutex);
    return taken;
}

void prefix_put(struct prefix_cache *c, const struct prefix_held *held, bool store) {
    mutex_lock(c->mutex);
    struct prefix_block *b = &c->blocks[held->block];
    b->has_conv = held->has_conv;
    b->has_draft = held->has_draft;
    b->has_half = held->has_half;
    if (!b->half_listed) b->half = held->half; // else it is the same, of the file's head
    b->ready = true;
    prefix_half_list(c, held->block);
    b->n_held--;
    list_put(c, held->block);
    prefix_touch(c, held->block);
    if (store && c->disk) prefix_disk_store(c, held->block);
    mutex_unlock(c->mutex);
}

void prefix_drop(struct prefix_cache *c, const struct prefix_held *held) {
    mutex_lock(c->mutex);
    c->blocks[held->block].n_held--;
    cell_free(c, held->block);
    mutex_unlock(c->mutex);
}

void prefix_cache_info(struct prefix_cache *c, struct prefix_info *out) {
    mutex_lock(c->mutex);
    *out = c->info;
    out->ram_bytes = (uint64_t)c->n_cells_used * c->cell_bytes;
    out->disk_bytes = c->disk_bytes;
    mutex_unlock(c->mutex);
}

// ------------------------------------------------------------------------------------------------------- open, close

static enum tern_status cells_open(struct prefix_cache *c, uint64_t ram_max, struct tern_err *err) {
    uint64_t bytes = c->shape.kv_bytes + c->shape.conv_bytes + c->shape.draft_bytes, available = os_ram_available();
    char text[3][24];
    c->cell_bytes = (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    if (c->cell_bytes == 0 || ram_max < c->cell_bytes)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "the prefix cache keeps blocks of %d positions, of %s each; a limit of %s holds none", OP_BLOCK,
                       bytes_format(c->cell_bytes, text[0]), bytes_format(ram_max, text[1]));
    if (ram_max > available)
        return err_set(err, TERN_NO_MEMORY, "a prefix cache of %s, but %s of memory are available",
                       bytes_format(ram_max, text[0]), bytes_format(available, text[1]));
    c->n_cells = (int)MIN(ram_max / c->cell_bytes, BLOCKS_MAX / 2);
    c->cells = mem_map((size_t)c->n_cells * (size_t)c->cell_bytes);
    c->free_cells = mem_alloc((size_t)c->n_cells * sizeof *c->free_cells);
    if (!c->cells || !c->free_cells)
        return err_set(err, TERN_NO_MEMORY, "no memory for a prefix cache of %s", bytes_format(ram_max, text[0]));
    for (int i = 0; i < c->n_cells; i++) c->free_cells[i] = c->n_cells - 1 - i;
    return TERN_OK;
}

enum tern_status prefix_cache_open(struct prefix_cache **out, const struct prefix_options *o, struct tern_err *err) {
    struct prefix_cache *c = mem_calloc(1, sizeof *c);
    if (!c) return err_set(err, TERN_NO_MEMORY, "no memory for a prefix cache");
    *c = (struct prefix_cache){.shape = o->shape,
                               .drafter = o->drafter,
                               .first_free = PREFIX_NONE,
                               .newest = PREFIX_NONE,
                               .oldest = PREFIX_NONE,
                               .mutex = mutex_create()};
    struct sha256 h;
    sha256_init(&h);
    text_put(&h, o->identity);
    sha256_final(&h, c->identity.b);
    enum tern_status status = TERN_OK;
    if (!c->mutex || !blocks_grow(c)) status = err_set(err, TERN_NO_MEMORY, "no memory for a prefix cache");
    if (status == TERN_OK) status = cells_open(c, o->ram_max, err);
    if (status == TERN_OK && o->dir) status = prefix_disk_open(c, o->dir, o->disk_max, err);
    if (status != TERN_OK) {
        prefix_cache_close(c);
        return status;
    }
    *out = c;
    return TERN_OK;
}

void prefix_cache_close(struct prefix_cache *c) {
    if (!c) return;
    prefix_disk_close(c);
    if (c->cells) mem_unmap(c->cells, (size_t)c->n_cells * (size_t)c->cell_bytes);
    mem_free(c->free_cells);
    mem_free(c->blocks);
    mem_free(c->buckets);
    mutex_free(c->mutex);
    mem_free(c);
}
