// Arenas: bump allocation from a list of chunks.
//
// Chunks double from 4 KiB to 1 MiB, so a small arena stays small and a large one makes few calls; a block that is
// larger gets a chunk of its own size. Unused parts of a chunk, the padding between blocks included, are poisoned for
// AddressSanitizer.
#include "base/base.h"
#include "base/base_int.h"

#define ARENA_CHUNK_MIN ((size_t)4096)
#define ARENA_CHUNK_MAX ((size_t)1 << 20)
#define ARENA_ALIGN_SMALL ((size_t)16) // for blocks under MEM_ALIGN bytes

struct arena_chunk {
    struct arena_chunk *prev;
    size_t cap;  // bytes after the header
    size_t used; // of these
};

// Data starts one alignment unit after the header's start, so offsets and addresses are aligned alike.
static char *chunk_data(struct arena_chunk *c) { return (char *)c + MEM_ALIGN; }
_Static_assert(sizeof(struct arena_chunk) <= MEM_ALIGN, "the chunk header must fit its room");

void arena_init(struct arena *a, size_t bytes_max) { *a = (struct arena){.bytes_max = bytes_max}; }

static void chunk_drop(struct arena *a) {
    struct arena_chunk *c = a->chunk;
    a->chunk = c->prev;
    MEM_UNPOISON(chunk_data(c), c->cap);
    mem_free(c);
}

void arena_release(struct arena *a) {
    while (a->chunk) chunk_drop(a);
    a->bytes_total = 0;
}

static bool chunk_push(struct arena *a, size_t need) {
    size_t cap = a->chunk ? MIN(a->chunk->cap * 2, ARENA_CHUNK_MAX) : ARENA_CHUNK_MIN;
    cap = MAX(cap, ARENA_CHUNK_MIN);
    if (need > cap) cap = need;
    size_t total;
    if (!size_add(cap, MEM_ALIGN, &total)) return false;
    struct arena_chunk *c = mem_alloc(total);
    if (!c) return false;
    *c = (struct arena_chunk){.prev = a->chunk, .cap = cap};
    MEM_POISON(chunk_data(c), cap);
    a->chunk = c;
    return true;
}

void *arena_alloc(struct arena *a, size_t size) {
    size_t align = size < MEM_ALIGN ? ARENA_ALIGN_SMALL : MEM_ALIGN;
    size_t room; // the block with its padding behind
    if (!size_align(MAX(size, (size_t)1), ARENA_ALIGN_SMALL, &room)) return NULL;
    size_t start = a->chunk ? (a->chunk->used + align - 1) & ~(align - 1) : 0;
    bool fits = a->chunk && start <= a->chunk->cap && room <= a->chunk->cap - start;
    size_t grown = fits ? start - a->chunk->used : 0; // padding in front counts too
    size_t total;
    if (!size_add(grown, room, &grown) || !size_add(a->bytes_total, grown, &total)) return NULL;
    if (a->bytes_max > 0 && total > a->bytes_max) return NULL;
    if (!fits) {
        if (!chunk_push(a, room)) return NULL;
        start = 0;
    }
    char *p = chunk_data(a->chunk) + start;
    a->chunk->used = start + room;
    a->bytes_total = total;
    MEM_UNPOISON(p, size);
    return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size) {
    size_t total;
    if (!size_mul(n, size, &total)) return NULL;
    void *p = arena_alloc(a, total);
    if (p) memset(p, 0, total);
    return p;
}

void *arena_dup(struct arena *a, const void *data, size_t len) {
    size_t total;
    if (!size_add(len, 1, &total)) return NULL;
    char *p = arena_alloc(a, total);
    if (!p) return NULL;
    if (len > 0) memcpy(p, data, len);
    p[len] = 0;
    return p;
}

struct arena_mark arena_mark_get(const struct arena *a) {
    return (struct arena_mark){a->chunk, a->chunk ? a->chunk->used : 0, a->bytes_total};
}

void arena_mark_reset(struct arena *a, struct arena_mark mark) {
    while (a->chunk && a->chunk != mark.chunk) chunk_drop(a);
    if (a->chunk != mark.chunk) TERN_BUG("the mark is not of this arena, or lies after one reset before");
    if (a->chunk) {
        TERN_ASSERT(mark.used <= a->chunk->used);
        MEM_POISON(chunk_data(a->chunk) + mark.used, a->chunk->cap - mark.used);
        a->chunk->used = mark.used;
    }
    a->bytes_total = mark.bytes_total;
}
