// Memory: every heap byte of the product passes here, so it can be counted, limited and made to fail in tests.
//
// mem_alloc and friends return NULL on failure (limit reached, injected fault, or the system's refusal); callers turn
// that into TERN_NO_MEMORY. mem_freeze(true) forbids allocation on this thread until thawed: the engine freezes around
// every step, and an allocation inside one is a bug that aborts (debug and test builds) or is counted (release).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define MEM_ALIGN 64 // alignment in bytes of every block: one cache line, one 512-bit vector

void *mem_alloc(size_t size);            // uninitialised; size 0 gives a valid unique pointer
void *mem_calloc(size_t n, size_t size); // zeroed; NULL when n*size overflows
void *mem_realloc(void *p, size_t size); // p may be NULL; on failure p stays valid
void mem_free(void *p);                  // NULL is fine
char *mem_strdup(const char *s);
void *mem_dup(const void *data, size_t len); // copy of len bytes, plus a 0 byte after them

// Large zeroed pages straight from the system (huge pages when it gives them); counted like the rest.
void *mem_map(size_t size);
void mem_unmap(void *p, size_t size);

struct mem_stats {
    uint64_t bytes_now; // payload of live blocks
    uint64_t bytes_max;
    uint64_t n_live;   // blocks allocated and not freed
    uint64_t n_calls;  // allocations asked for since start, failed ones included
    uint64_t n_frozen; // allocations asked for while frozen
};
struct mem_stats mem_stats_get(void);
void mem_limit_set(uint64_t bytes); // 0: none. Allocations beyond it fail.
// Test hook: the n-th allocation from now fails (1 = the next one); persistent: and all later ones. 0 switches it off.
void mem_fail_at(uint64_t n, bool persistent);
void mem_freeze(bool on); // nests; per thread

// An arena: bump allocation from chunks, freed as a whole. One per lifetime (model, program, session, request, step).
// Not thread-safe. Blocks are aligned to MEM_ALIGN (small ones: to 16).
struct arena_chunk;
struct arena {
    struct arena_chunk *chunk; // newest first
    size_t bytes_total;        // handed out, padding included
    size_t bytes_max;          // limit; 0 = none
};
struct arena_mark {
    struct arena_chunk *chunk;
    size_t used;
    size_t bytes_total;
};
void arena_init(struct arena *a, size_t bytes_max);
void arena_release(struct arena *a);                            // frees all chunks; a is as after arena_init
void *arena_alloc(struct arena *a, size_t size);                // uninitialised, NULL on failure
void *arena_calloc(struct arena *a, size_t n, size_t size);     // zeroed, NULL on failure or overflow
void *arena_dup(struct arena *a, const void *data, size_t len); // copy plus a 0 byte
struct arena_mark arena_mark_get(const struct arena *a);
void arena_mark_reset(struct arena *a, struct arena_mark mark); // gives back what came after the mark
