// Private to base/: pieces that several of its files share.
#pragma once
#include "base/base.h"
#include <stdatomic.h>

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

// True while mem_freeze holds on this thread.
bool mem_is_frozen(void);

// A logical processor that this process may use.
#define CPU_SLOTS_MAX 1024
struct cpu_slot {
    int cpu;  // the system's number; -1 where threads cannot be pinned
    int core; // equal for the threads of one physical core
    int kind; // larger is faster
};
// What the affinity mask tells (all of one kind where the system does not say). Returns the count, at least 1.
int cpu_slots_affinity(struct cpu_slot slots[CPU_SLOTS_MAX]);
// How fast a processor's kind is as Linux tells it under root (""; tests have others): the capacity of ARM's clusters,
// 1 and 0 for the two kinds of a hybrid Intel processor; 0 where all are alike.
int cpu_kind_of(const char *root, int cpu);
// The same in order of preference, through hwloc when built in; *source (nullable) becomes "hwloc" or "affinity".
int cpu_slots_get(struct cpu_slot slots[CPU_SLOTS_MAX], const char **source);
// Sorts: fast kinds first, in a kind the first thread of every core before second ones, then by number.
void cpu_slots_order(struct cpu_slot *slots, int n);
struct cpu_topology cpu_slots_summary(const struct cpu_slot *slots, int n);
// Threads that a team gets by default on these slots under a quota (0: none) of processor time.
int cpu_threads_default(const struct cpu_topology *topology, double quota);
bool thread_pin_self(int cpu); // false where the system refuses or cannot
bool thread_is_own(void);      // was the calling thread made by os_thread_create?

// Blocking on a 32-bit word: futex on Linux, a mutex and a condition elsewhere (and with TERN_PARK_PTHREAD, to test
// that).
#if defined(__linux__) && !defined(TERN_PARK_PTHREAD)
#define PARK_FUTEX 1
#endif
struct park {
    struct os_mutex *mutex; // NULL with PARK_FUTEX
    struct os_cond *cond;
};
bool park_init(struct park *p); // false: no memory
void park_release(struct park *p);
void park_wait(struct park *p, _Atomic uint32_t *word, uint32_t value); // returns, perhaps early, once *word != value
void park_wake_all(struct park *p, _Atomic uint32_t *word);             // after *word was changed

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
