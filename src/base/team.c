// The thread team.
//
// Every wait is on a gate: a 32-bit counter on its own cache line that moves forward once per event (job published, job
// finished, barrier passed). A waiter spins for TEAM_SPIN_NS, then says so in `n_asleep` and blocks; whoever moves the
// gate makes the wake-up call only when somebody sleeps. Both sides use sequentially consistent operations: either the
// mover sees the sleeper, or the sleeper sees the move. With more members than processors nobody spins, as the one that
// is waited for could not run meanwhile.
//
// The caller's place. Members are pinned; a caller that floats ends up beside one of them whenever a third thread wakes
// for a moment, and the two then take turns on one processor, for a time slice each, while the other idles. A thread of
// ours that runs job after job (a service's) is pinned to the first place, which no member has. Pico served over HTTP,
// 2 members on 2 processors: 1,430 tokens/s with a floating caller, 1,815 with a pinned one, 1,890 without a server.
//
// Yielding. Work is shared out evenly, so a long wait at a gate says that somebody lost the processor to another
// process, for a time slice of some milliseconds. Waits beyond STALL_NS are summed; when they are a large part of the
// time, the next jobs run on one member less, whose processor the system then gives to the other process, and after a
// while all members are tried again. One busy process on two processors (Xeon, Sapphire Rapids, kernel 6.18, 2026-11;
// undisturbed 2.0 ms a token of SmolLM2-135M Q4_0): 10.7 ms with waits alone, and longer spinning makes it worse (100
// us: 13.2, 500 us: 24, 2 ms: 64), since a member that blocked beside a busy process waits a slice to come back.
#include "base/base.h"
#include "base/base_int.h"

#define LINE 64            // bytes of a cache line
#define SPINS_PER_CLOCK 32 // reads of a gate between two looks at the clock

#define STALL_NS 50000           // a wait at a gate beyond this is a stall
#define STALL_PART 0.4           // contended: stalls are more than this part of …
#define STALL_WINDOW_NS 50000000 // … so much time of jobs
#define NARROW_NS_MIN 100000000  // first time that jobs run on fewer members, doubled while contention goes on …
#define NARROW_NS_MAX 1600000000 // … up to this
#define CALLER_JOBS 64           // so many jobs in a row make a thread of ours the caller that is pinned
#define N_BITS 9                 // of the job gate's word: the job's number of members

struct gate {
    _Alignas(LINE) _Atomic uint32_t count;
    _Atomic uint32_t n_asleep;
};

struct member_thread {
    struct team *team;
    int index;
    int cpu; // -1: not pinned
    struct os_thread *thread;
};

struct team {
    int n;
    uint64_t spin_ns;
    struct park park;
    struct member_thread *members; // [n]; 0 is the caller and has no thread

    // The job: written by the caller before it moves `job`.
    void (*fn)(void *arg, const struct team_member *self);
    void *arg;
    bool frozen;
    _Atomic bool running;

    // The caller's place.
    int caller_cpu;     // -1: it is not pinned
    const void *caller; // whose jobs were the last; tells threads apart, nothing more
    int n_in_row;

    // Yielding; but for the first, the caller's alone.
    _Atomic uint64_t stalled_ns; // of all members, in the window
    bool yields;
    int n_job;          // members of the next job
    uint64_t window_ns; // time of jobs since the window began
    uint64_t narrow_ns, narrow_end_ns;

    struct gate job;     // set by the caller: a job, or the stop, is there; its number << N_BITS | its members
    struct gate done;    // moved by the last member but the caller to return
    struct gate barrier; // moved by the last member to arrive
    _Alignas(LINE) _Atomic int n_working;
    _Alignas(LINE) _Atomic int n_arrived;
};

static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_add(struct team *t, struct gate *g, uint32_t n) {
    atomic_fetch_add(&g->count, n);
    if (atomic_load(&g->n_asleep) > 0) park_wake_all(&t->park, &g->count);
}

static void gate_move(struct team *t, struct gate *g) { gate_add(t, g, 1); }

// Returns once the gate's count is no longer `old`. stalls: a long wait counts as one.
static void gate_wait(struct team *t, struct gate *g, uint32_t old, bool stalls) {
    uint64_t start = 0;
    if (t->spin_ns > 0) {
        for (;;) {
            for (int i = 0; i < SPINS_PER_CLOCK; i++) {
                if (atomic_load_explicit(&g->count, memory_order_acquire) != old) return;
                cpu_relax();
            }
            uint64_t now = clock_ns();
            if (start == 0) start = now;
            if (now - start >= t->spin_ns) break;
        }
    }
    atomic_fetch_add(&g->n_asleep, 1);
    while (atomic_load(&g->count) == old) park_wait(&t->park, &g->count, old);
    atomic_fetch_sub(&g->n_asleep, 1);
    if (!stalls || !t->yields) return;
    uint64_t waited = clock_ns() - start;
    if (waited > STALL_NS) atomic_fetch_add_explicit(&t->stalled_ns, waited, memory_order_relaxed);
}

static void member_main(void *arg) {
    struct member_thread *m = arg;
    struct team *t = m->team;
    struct team_member self = {t, m->index, t->n};
    if (m->cpu >= 0) thread_pin_self(m->cpu);
    for (uint32_t seen = 0;;) {
        gate_wait(t, &t->job, seen, false);
        seen = atomic_load(&t->job.count);
        self.n = (int)(seen & ((1u << N_BITS) - 1));
        if (self.n == 0) return;
        if (m->index >= self.n) continue; // not of this job: its fields may change at any time
        bool frozen = t->frozen;
        if (frozen) mem_freeze(true);
        t->fn(t->arg, &self);
        if (frozen) mem_freeze(false);
        if (atomic_fetch_sub(&t->n_working, 1) == 1) gate_move(t, &t->done);
    }
}

// Behind a job of so much time: how many members the next one has.
static void yield_decide(struct team *t, uint64_t now, uint64_t job_ns) {
    if (t->n_job < t->n && now >= t->narrow_end_ns) { // all are tried again
        t->n_job = t->n;
        t->window_ns = 0;
        atomic_store_explicit(&t->stalled_ns, 0, memory_order_relaxed);
        return;
    }
    if (t->n_job == 1) return;
    t->window_ns += job_ns;
    if (t->window_ns < STALL_WINDOW_NS) return;
    // One that is waited for by k others stalls all of them.
    uint64_t stalled = atomic_exchange_explicit(&t->stalled_ns, 0, memory_order_relaxed) / (uint64_t)(t->n_job - 1);
    bool contended = (double)stalled > STALL_PART * (double)t->window_ns;
    t->window_ns = 0;
    if (!contended) {
        t->narrow_ns = MAX(t->narrow_ns / 2, NARROW_NS_MIN / 2);
        return;
    }
    t->n_job--;
    t->narrow_ns = MIN(2 * t->narrow_ns, NARROW_NS_MAX);
    t->narrow_end_ns = now + t->narrow_ns;
}

// Changes the job gate's word: a new number, and n members. 0: the stop.
static void job_post(struct team *t, int n) {
    uint32_t old = atomic_load_explicit(&t->job.count, memory_order_relaxed), mask = (1u << N_BITS) - 1;
    gate_add(t, &t->job, (((old & ~mask) + mask + 1) | (uint32_t)n) - old);
}

// The same thread made so many jobs in a row.
static void caller_place(struct team *t) {
    static _Thread_local bool placed;
    if (placed || t->caller_cpu < 0) return;
    if (t->caller != &placed) t->n_in_row = 0;
    t->caller = &placed;
    if (++t->n_in_row < CALLER_JOBS || !thread_is_own()) return;
    placed = true;
    thread_pin_self(t->caller_cpu);
}

void team_run(struct team *t, void (*fn)(void *arg, const struct team_member *self), void *arg) {
    if (atomic_exchange(&t->running, true)) TERN_BUG("team_run: the team already runs a job");
    caller_place(t);
    struct team_member self = {t, 0, t->n_job};
    uint64_t begin = t->yields ? clock_ns() : 0;
    if (self.n > 1) {
        uint32_t done_before = atomic_load_explicit(&t->done.count, memory_order_relaxed);
        t->fn = fn;
        t->arg = arg;
        t->frozen = mem_is_frozen();
        atomic_store_explicit(&t->n_working, self.n - 1, memory_order_relaxed);
        job_post(t, self.n);
        fn(arg, &self);
        gate_wait(t, &t->done, done_before, true);
    } else {
        fn(arg, &self);
    }
    if (t->yields) {
        uint64_t now = clock_ns();
        yield_decide(t, now, now - begin);
    }
    atomic_store(&t->running, false);
}

void team_barrier(const struct team_member *self) {
    struct team *t = self->team;
    if (self->n == 1) return;
    uint32_t phase = atomic_load_explicit(&t->barrier.count, memory_order_relaxed);
    if (atomic_fetch_add(&t->n_arrived, 1) == self->n - 1) {
        atomic_store_explicit(&t->n_arrived, 0, memory_order_relaxed); // before the gate lets anyone arrive again
        gate_move(t, &t->barrier);
    } else {
        gate_wait(t, &t->barrier, phase, true);
    }
}

static void team_stop(struct team *t, int n_started) {
    job_post(t, 0);
    for (int i = 1; i < n_started; i++) os_thread_join(t->members[i].thread);
    park_release(&t->park);
    mem_free(t->members);
    mem_free(t);
}

static enum tern_status team_start(struct team **out, struct team *t, const struct cpu_slot *slots, bool pin,
                                   struct tern_err *err) {
    for (int i = 1; i < t->n; i++) {
        struct member_thread *m = &t->members[i];
        *m = (struct member_thread){.team = t, .index = i, .cpu = pin ? slots[i].cpu : -1};
        enum tern_status status = os_thread_create(&m->thread, member_main, m, err);
        if (status != TERN_OK) {
            err_prefix(err, "thread %d of %d", i + 1, t->n);
            team_stop(t, i);
            return status;
        }
    }
    *out = t;
    return TERN_OK;
}

enum tern_status team_create(struct team **out, const struct team_options *options, struct tern_err *err) {
    struct cpu_slot slots[CPU_SLOTS_MAX];
    int n = options->n_threads, n_slots = cpu_slots_get(slots, NULL);
    if (n < 0 || n > TEAM_THREADS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "%d threads asked for; possible are 1 to %d, or 0 to choose", n,
                       TEAM_THREADS_MAX);
    if (n == 0) {
        struct cpu_topology topology = cpu_slots_summary(slots, n_slots);
        struct cgroup_limits limits;
        cgroup_limits_get(&limits, "");
        n = cpu_threads_default(&topology, limits.cpus);
    }
    struct team *t = mem_calloc(1, sizeof(*t));
    if (!t) return err_set(err, TERN_NO_MEMORY, "no memory for a team of %d threads", n);
    t->n = n;
    t->spin_ns = n <= n_slots ? TEAM_SPIN_NS : 0;
    t->n_job = n;
    t->caller_cpu = options->pin && n > 1 && n <= n_slots ? slots[0].cpu : -1;
    t->yields = options->yields && n > 1 && n <= n_slots;
    t->narrow_ns = NARROW_NS_MIN / 2;
    t->members = mem_calloc((size_t)n, sizeof(*t->members));
    if (!t->members || !park_init(&t->park)) {
        mem_free(t->members);
        mem_free(t);
        return err_set(err, TERN_NO_MEMORY, "no memory for a team of %d threads", n);
    }
    return team_start(out, t, slots, options->pin && n <= n_slots, err);
}

void team_free(struct team *t) {
    if (t) team_stop(t, t->n);
}

int team_size(const struct team *t) { return t->n; }

void team_share(const struct team_member *self, int n, int grain, int *begin, int *end) {
    TERN_ASSERT(n >= 0 && grain > 0);
    int64_t n_pieces = ((int64_t)n + grain - 1) / grain;
    int64_t each = n_pieces / self->n, extra = n_pieces % self->n; // the first `extra` members take one more
    int64_t first = self->index * each + MIN((int64_t)self->index, extra);
    int64_t last = first + each + (self->index < extra);
    *begin = (int)MIN(first * grain, (int64_t)n);
    *end = (int)MIN(last * grain, (int64_t)n);
}
