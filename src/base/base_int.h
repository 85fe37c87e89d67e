// Private to base/: pieces that several of its files share.
#pragma once
#include "base/base.h"

// One step of escaping for a terminal: reads one code point, or one ill-formed byte run, at the start of s (not empty)
// and writes it to out, as it is or as \xNN per byte. Returns bytes written; *n_in is the number of bytes read.
#define ESCAPE_STEP_MAX 16
int escape_step(struct str s, int *n_in, char out[ESCAPE_STEP_MAX]);
// Escapes s into out (cap bytes, 0-terminated). What does not fit is cut at a character's border and "…" ends it; so it
// does when `more` says that s itself was cut. Never allocates. Returns the length.
size_t escape_into(char *out, size_t cap, struct str s, bool more);

// The line that progress_update() draws at now_ns, at most width columns. Returns its length.
size_t progress_line(const struct progress *p, uint64_t done, uint64_t now_ns, int width, char *out, size_t cap);

// Zeroed pages from the system, at huge-page borders when size is at least one of them. NULL when refused.
void *os_pages_map(size_t size);
void os_pages_unmap(void *p, size_t size);

// Reads a small file whole into out (cap bytes, 0-terminated; the rest is cut) without allocating. False when
// unreadable.
bool os_read_small(const char *path, char *out, size_t cap);

// Limits that Linux control groups (v1 and v2, with all ancestors) put on this process. root goes in front of
// "/proc/self/cgroup" and "/sys/fs/cgroup": "" but for tests.
struct cgroup_limits {
    uint64_t memory_max; // bytes; UINT64_MAX: none
    uint64_t
        memory_free; // bytes that may still be taken under it, reclaimable page cache included; UINT64_MAX: no limit
    double cpus;     // processor time per wall time; 0: no limit
};
void cgroup_limits_get(struct cgroup_limits *out, const char *root);

// Poisoning makes AddressSanitizer see accesses to the unused parts of blocks that we carve ourselves.
#if defined(__SANITIZE_ADDRESS__)
#define BASE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BASE_ASAN 1
#endif
#endif
#ifdef BASE_ASAN
#include <sanitizer/asan_interface.h>
#define MEM_POISON(p, n) __asan_poison_memory_region((p), (n))
#define MEM_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define MEM_POISON(p, n) ((void)(p), (void)(n))
#define MEM_UNPOISON(p, n) ((void)(p), (void)(n))
#endif
