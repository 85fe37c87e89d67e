// The thread team.
//
// Every wait is on a gate: a 32-bit counter on its own cache line that moves forward once per event (job published, job
// finished, barrier passed). A waiter spins for TEAM_SPIN_NS, then says so in `n_asleep` and blocks; whoever moves the
// gate makes the wake-up call only when somebody sleeps. Both sides use sequentially consistent operations: either the
// mover sees the sleeper, or the sleeper sees the move. With more members than processors nobody spins, as the one that
// is waited for could not run meanwhile.
#include "base/base.h"
#include "base/base_int.h"

#define LINE 64            // bytes of a cache line
#define SPINS_PER_CLOCK 32 // reads of a gate between two looks at the clock

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
    bool stop;
    _Atomic bool running;

    struct gate job;     // moved by the caller: a job, or the stop, is there
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

static void gate_move(struct team *t, struct gate *g) {
    atomic_fetch_add(&g->count, 1);
    if (atomic_load(&g->n_asleep) > 0) park_wake_all(&t->park, &g->count);
}

// Returns once the gate's count is no longer `old`.
static void gate_wait(struct team *t, struct gate *g, uint32_t old) {
    if (t->spin_ns > 0) {
        uint64_t start = 0;
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
}

static void member_main(void *arg) {
    struct member_thread *m = arg;
    struct team *t = m->team;
    struct team_member self = {t, m->index, t->n};
    if (m->cpu >= 0) thread_pin_self(m->cpu);
    for (uint32_t seen = 0;; seen++) {
        gate_wait(t, &t->job, seen);
        if (t->stop) return;
        bool frozen = t->frozen;
        if (frozen) mem_freeze(true);
        t->fn(t->arg, &self);
        if (frozen) mem_freeze(false);
        if (atomic_fetch_sub(&t->n_working, 1) == 1) gate_move(t, &t->done);
    }
}

void team_run(struct team *t, void (*fn)(void *arg, const struct team_member *self), void *arg) {
    if (atomic_exchange(&t->running, true)) TERN_BUG("team_run: the team already runs a job");
    struct team_member self = {t, 0, t->n};
    if (t->n > 1) {
        uint32_t done_before = atomic_load_explicit(&t->done.count, memory_order_relaxed);
        t->fn = fn;
        t->arg = arg;
        t->frozen = mem_is_frozen();
        atomic_store_explicit(&t->n_working, t->n - 1, memory_order_relaxed);
        gate_move(t, &t->job);
        fn(arg, &self);
        gate_wait(t, &t->done, done_before);
    } else {
        fn(arg, &self);
    }
    atomic_store(&t->running, false);
}

void team_barrier(const struct team_member *self) {
    struct team *t = self->team;
    if (t->n == 1) return;
    uint32_t phase = atomic_load_explicit(&t->barrier.count, memory_order_relaxed);
    if (atomic_fetch_add(&t->n_arrived, 1) == t->n - 1) {
        atomic_store_explicit(&t->n_arrived, 0, memory_order_relaxed); // before the gate lets anyone arrive again
        gate_move(t, &t->barrier);
    } else {
        gate_wait(t, &t->barrier, phase);
    }
}

static void team_stop(struct team *t, int n_started) {
    t->stop = true;
    gate_move(t, &t->job);
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
