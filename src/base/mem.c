// Counted, limited and failable allocation.
//
// A block is [64-byte header | payload]: the header holds the size, so that free can count, and a tag, so that a second
// or foreign free aborts instead of corrupting. Counters are relaxed atomics: five of them per pair of calls, and no
// lock. posix_memalign gives exactly size + header bytes, so AddressSanitizer still sees an overrun by one byte; the
// header is poisoned against underruns. bytes_now counts payload bytes.
#define _GNU_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#include <stdatomic.h>
#include <stdlib.h>

#define MEM_HEADER MEM_ALIGN // bytes before the payload; keeps it aligned
#define MEM_TAG_LIVE 0x7465726e6d656d31u
#define MEM_TAG_FREE 0x66726565626c6f6bu

struct mem_header {
    uint64_t tag;
    size_t size; // payload bytes
};

static _Atomic uint64_t bytes_now, bytes_max, n_live, n_calls, n_frozen;
static _Atomic uint64_t bytes_limit; // 0: none
static _Atomic uint64_t fail_call;   // number of the call that fails; 0: none
static _Atomic bool fail_persistent; // and all later ones
static _Thread_local int freeze_depth;

#define GET(v) atomic_load_explicit(&(v), memory_order_relaxed)
#define PUT(v, x) atomic_store_explicit(&(v), (x), memory_order_relaxed)
#define ADD(v, x) atomic_fetch_add_explicit(&(v), (x), memory_order_relaxed)
#define SUB(v, x) atomic_fetch_sub_explicit(&(v), (x), memory_order_relaxed)

// Counts the call and its bytes; false when it must fail (then nothing stays counted but the call).
static bool charge(size_t size) {
    uint64_t call = ADD(n_calls, 1) + 1;
    if (freeze_depth > 0) {
        ADD(n_frozen, 1);
#ifndef NDEBUG
        TERN_BUG("allocation of %zu bytes while the allocator is frozen", size);
#endif
    }
    uint64_t fail = GET(fail_call);
    if (fail != 0 && (call == fail || (call > fail && GET(fail_persistent)))) return false;
    uint64_t now = ADD(bytes_now, size) + size;
    uint64_t limit = GET(bytes_limit);
    if (limit != 0 && now > limit) {
        SUB(bytes_now, size);
        return false;
    }
    ADD(n_live, 1);
    uint64_t seen = GET(bytes_max);
    while (now > seen &&
           !atomic_compare_exchange_weak_explicit(&bytes_max, &seen, now, memory_order_relaxed, memory_order_relaxed)) {
    }
    return true;
}

static void discharge(size_t size) {
    SUB(bytes_now, size);
    SUB(n_live, 1);
}

static struct mem_header *header_get(void *p) {
    struct mem_header *h = (struct mem_header *)((char *)p - MEM_HEADER);
    MEM_UNPOISON(h, MEM_HEADER);
    if (h->tag != MEM_TAG_LIVE) TERN_BUG("%p was not allocated here, or was freed before", p);
    return h;
}

void *mem_alloc(size_t size) {
    size_t total;
    if (!size_add(size, MEM_HEADER, &total) || total > PTRDIFF_MAX) {
        ADD(n_calls, 1);
        return NULL;
    }
    if (!charge(size)) return NULL;
    void *raw = NULL;
    if (posix_memalign(&raw, MEM_ALIGN, total) != 0) {
        discharge(size);
        return NULL;
    }
    struct mem_header *h = raw;
    h->tag = MEM_TAG_LIVE;
    h->size = size;
    MEM_POISON(h, MEM_HEADER);
    return (char *)raw + MEM_HEADER;
}

void *mem_calloc(size_t n, size_t size) {
    size_t total;
    if (!size_mul(n, size, &total)) {
        ADD(n_calls, 1);
        return NULL;
    }
    void *p = mem_alloc(total);
    if (p) memset(p, 0, total);
    return p;
}

void *mem_realloc(void *p, size_t size) {
    void *fresh = mem_alloc(size);
    if (!fresh || !p) return fresh;
    struct mem_header *h = header_get(p);
    size_t n = MIN(h->size, size);
    memcpy(fresh, p, n);
    mem_free(p);
    return fresh;
}

void mem_free(void *p) {
    if (!p) return;
    struct mem_header *h = header_get(p);
    h->tag = MEM_TAG_FREE;
    discharge(h->size);
    free(h);
}

char *mem_strdup(const char *s) { return mem_dup(s, strlen(s)); }

void *mem_dup(const void *data, size_t len) {
    size_t total;
    if (!size_add(len, 1, &total)) return NULL;
    char *p = mem_alloc(total);
    if (!p) return NULL;
    if (len > 0) memcpy(p, data, len);
    p[len] = 0;
    return p;
}

void *mem_map(size_t size) {
    if (!charge(size)) return NULL;
    void *p = os_pages_map(size);
    if (!p) discharge(size);
    return p;
}

void mem_unmap(void *p, size_t size) {
    if (!p) return;
    os_pages_unmap(p, size);
    discharge(size);
}

struct mem_stats mem_stats_get(void) {
    return (struct mem_stats){
        .bytes_now = GET(bytes_now),
        .bytes_max = GET(bytes_max),
        .n_live = GET(n_live),
        .n_calls = GET(n_calls),
        .n_frozen = GET(n_frozen),
    };
}

void mem_limit_set(uint64_t bytes) { PUT(bytes_limit, bytes); }

void mem_fail_at(uint64_t n, bool persistent) {
    PUT(fail_persistent, persistent);
    PUT(fail_call, n == 0 ? 0 : GET(n_calls) + n);
}

bool mem_is_frozen(void) { return freeze_depth > 0; }

void mem_freeze(bool on) {
    if (!on && freeze_depth == 0) TERN_BUG("the allocator was thawed more often than frozen");
    freeze_depth += on ? 1 : -1;
}
