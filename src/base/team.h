// A persistent team of threads for compute. One team per unit; a job is one function run by every member.
//
// The caller is member 0. Between jobs and at barriers members spin shortly (TEAM_SPIN_NS), then block on a futex, so
// that a busy neighbour costs its share and not ten times it. Members are pinned when `pin` is set and there are enough
// cores; fast cores come first (hwloc when built in, else the affinity mask as it is). A caller is pinned only if it is
// a thread of ours that runs job after job. While its allocator is frozen (mem_freeze), so is the members' in its job.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

#define TEAM_THREADS_MAX 256
#define TEAM_SPIN_NS 20000

struct team;
struct team_options {
    int n_threads; // 0: one per usable fast core (physical, inside the affinity mask and cgroup quota)
    bool pin;
    // Jobs may run on fewer members (team_member.n says how many) while other processes want the processors: a member
    // that has lost its own for a time slice holds up all others, at every barrier.
    bool yields;
};
struct team_member {
    struct team *team;
    int index; // 0 … n-1
    int n;     // of this job: team_size, or fewer when the team yields
};
enum tern_status team_create(struct team **out, const struct team_options *options, struct tern_err *err);
void team_free(struct team *t);
int team_size(const struct team *t);
// Runs fn on every member of the job and returns when all have returned. Not reentrant: one job at a time per team.
void team_run(struct team *t, void (*fn)(void *arg, const struct team_member *self), void *arg);
// Inside a job: returns when every member has called it (all must).
void team_barrier(const struct team_member *self);
// [*begin, *end): this member's share of n items in pieces of `grain` (the last piece may be short); shares differ by
// one piece at most.
void team_share(const struct team_member *self, int n, int grain, int *begin, int *end);

// Machine facts, for doctor and defaults.
struct cpu_topology {
    int n_logical;    // usable by this process
    int n_cores;      // physical
    int n_cores_fast; // of the fastest kind
    int n_kinds;
    const char *source; // "hwloc" or "affinity"
};
struct cpu_topology cpu_topology_get(void);

// Plain threads and locks, for the engine's own threads.
struct os_thread;
enum tern_status os_thread_create(struct os_thread **out, void (*fn)(void *arg), void *arg, struct tern_err *err);
void os_thread_join(struct os_thread *t); // waits and frees; NULL is fine
struct os_mutex;
struct os_cond;
struct os_mutex *mutex_create(void);
void mutex_free(struct os_mutex *m);
void mutex_lock(struct os_mutex *m);
void mutex_unlock(struct os_mutex *m);
struct os_cond *cond_create(void);
void cond_free(struct os_cond *c);
void cond_signal(struct os_cond *c);
void cond_broadcast(struct os_cond *c);
void cond_wait(struct os_cond *c, struct os_mutex *m);
bool cond_wait_ns(struct os_cond *c, struct os_mutex *m, uint64_t timeout_ns); // false: timed out
