// The thread team: shares, jobs, barriers, reuse, refusals.
#define _GNU_SOURCE 1
#include "base_test.h"
#include "abort_test.h"
#include <sched.h>
#include <stdatomic.h>

static struct team *team_of(int n, bool pin) {
    struct team *t = NULL;
    assert_ok(team_create(&t, &(struct team_options){.n_threads = n, .pin = pin}, &test_err));
    assert_int_equal(team_size(t), n);
    return t;
}

// Shares are in order, cover everything once, begin at piece borders, and differ by one piece at most.
static void test_share(void **state) {
    (void)state;
    const int sizes[] = {0, 1, 2, 7, 31, 32, 33, 1000, INT32_MAX - 1, INT32_MAX};
    const int grains[] = {1, 3, 16, 64, INT32_MAX};
    for (size_t a = 0; a < ARRAY_LEN(sizes); a++) {
        for (size_t g = 0; g < ARRAY_LEN(grains); g++) {
            for (int n = 1; n <= 9; n++) {
                int at = 0;
                int64_t least = INT64_MAX, most = 0;
                for (int i = 0; i < n; i++) {
                    int begin, end;
                    team_share(&(struct team_member){NULL, i, n}, sizes[a], grains[g], &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(end >= begin && (begin % grains[g] == 0 || begin == sizes[a]));
                    int64_t pieces = ((int64_t)end - begin + grains[g] - 1) / grains[g];
                    least = MIN(least, pieces);
                    most = MAX(most, pieces);
                    at = end;
                }
                assert_int_equal(at, sizes[a]);
                assert_true(most - least <= 1);
            }
        }
    }
}

struct counts {
    _Atomic int total;
    int by_member[64]; // plain: only its member writes, and the job's end publishes
};
static void count_job(void *arg, const struct team_member *self) {
    struct counts *c = arg;
    atomic_fetch_add(&c->total, 1);
    c->by_member[self->index]++;
}

// Many small jobs, each seen complete by the caller at once; now and then a pause, so that members fall asleep.
static void test_small_jobs(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct team *t = team_of(n, n == 2);
        struct counts c = {0};
        int jobs = n <= 2 ? 20000 : 1500;
        for (int i = 1; i <= jobs; i++) {
            team_run(t, count_job, &c);
            if (c.total != i * n) fail_msg("%d members, job %d: %d calls", n, i, c.total);
            for (int k = 0; k < n; k++)
                if (c.by_member[k] != i) fail_msg("member %d of %d missed job %d", k, n, i);
            if (i % 1000 == 0) clock_sleep_ns(200000);
        }
        team_free(t);
    }
}

#define STAGES 400
struct stages {
    int value[2][64]; // [stage parity][member]
    _Atomic int n_wrong;
};
// Every member writes its number of the stage, then all read everyone's: a barrier that lets one through early is seen.
static void stage_job(void *arg, const struct team_member *self) {
    struct stages *s = arg;
    for (int stage = 1; stage <= STAGES; stage++) {
        int *row = s->value[stage & 1];
        if ((stage * 7 + self->index * 13) % 97 == 0) clock_sleep_ns(60000); // late, so that others block
        row[self->index] = stage;
        team_barrier(self);
        for (int i = 0; i < self->n; i++)
            if (row[i] != stage) atomic_fetch_add(&s->n_wrong, 1);
    }
}

static void test_barrier(void **state) {
    (void)state;
    for (int n = 1; n <= 6; n++) {
        struct team *t = team_of(n, false);
        struct stages s = {0};
        for (int i = 0; i < 3; i++) {
            memset(s.value, 0, sizeof(s.value));
            team_run(t, stage_job, &s);
        }
        assert_int_equal(s.n_wrong, 0);
        team_free(t);
    }
}

static void barrier_job(void *arg, const struct team_member *self) {
    for (int i = 0; i < *(int *)arg; i++) team_barrier(self);
}

// Not a benchmark: only a bound that a lost wake-up or a sleep in the hot path would break.
static void test_hot_cost(void **state) {
    (void)state;
    struct team *t = team_of(2, true);
    struct counts c = {0};
    int n = 20000;
    uint64_t start = clock_ns();
    for (int i = 0; i < n; i++) team_run(t, count_job, &c);
    double run_us = (double)(clock_ns() - start) / n / 1000;
    start = clock_ns();
    team_run(t, barrier_job, &n);
    double barrier_us = (double)(clock_ns() - start) / n / 1000;
    printf("two members: a job %.2f us, a barrier %.2f us\n", run_us, barrier_us);
    assert_true(run_us < 200 && barrier_us < 200);
    team_free(t);
}

static void nested_job(void *arg, const struct team_member *self) {
    if (self->index == 0) team_run(self->team, count_job, arg);
}
static void run_nested(void) {
    struct team *t = team_of(2, false);
    struct counts c = {0};
    team_run(t, nested_job, &c);
}
static void alloc_job(void *arg, const struct team_member *self) {
    (void)arg;
    if (self->index == 1) mem_free(mem_alloc(1));
}
#ifndef NDEBUG
static void alloc_in_frozen_job(void) {
    struct team *t = team_of(2, false);
    mem_freeze(true);
    team_run(t, alloc_job, NULL);
}
#endif

static void test_misuse(void **state) {
    (void)state;
    assert_true(test_aborts(run_nested));
#ifndef NDEBUG
    assert_true(test_aborts(alloc_in_frozen_job));
#endif
    struct team *t = team_of(2, false);
    team_run(t, alloc_job, NULL); // allowed when not frozen
#ifdef NDEBUG
    uint64_t before = mem_stats_get().n_frozen;
    mem_freeze(true);
    team_run(t, alloc_job, NULL);
    mem_freeze(false);
    assert_int_equal(mem_stats_get().n_frozen, before + 1);
#endif
    team_run(t, alloc_job, NULL); // and again after the freeze
    team_free(t);
}

static void test_create(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    struct team *t = NULL;
    struct tern_err err;
    assert_int_equal(team_create(&t, &(struct team_options){.n_threads = -1}, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(team_create(&t, &(struct team_options){.n_threads = TEAM_THREADS_MAX + 1}, &err),
                     TERN_INVALID_ARGUMENT);
    assert_contains(err.message, "257 threads");
    assert_null(t);
    assert_ok(team_create(&t, &(struct team_options){0}, &test_err));
    struct cpu_topology topology = cpu_topology_get();
    assert_in_range(team_size(t), 1, topology.n_cores_fast);
    team_free(t);
    team_free(NULL);
    for (uint64_t n = 1; n <= 5; n++) { // whichever allocation fails, started threads end and nothing stays
        t = NULL;
        mem_fail_at(n, false);
        enum tern_status status = team_create(&t, &(struct team_options){.n_threads = 4}, &err);
        mem_fail_at(0, false);
        assert_int_equal(status, TERN_NO_MEMORY);
        assert_null(t);
    }
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

struct late {
    bool on;
    int n; // members of the last job
};
static void late_job(void *arg, const struct team_member *self) {
    struct late *l = arg;
    if (self->index == 0) l->n = self->n;
    if (l->on && self->index == 1) clock_sleep_ns(4000000);
    team_barrier(self);
}

// A member that is waited for most of the time is left out of jobs, and comes back when all is well again.
static void test_yields(void **state) {
    (void)state;
    struct cpu_topology cpus = cpu_topology_get();
    if (cpus.n_logical < 2) skip(); // nobody yields where members take turns anyway
    struct team *t = NULL;
    struct late l = {.on = true};
    assert_ok(team_create(&t, &(struct team_options){.n_threads = 2, .yields = true}, &test_err));
    int i = 0;
    for (; i < 1000 && l.n != 1; i++) team_run(t, late_job, &l);
    assert_int_equal(l.n, 1);
    assert_true(i > 2); // not because of one long wait
    l.on = false;
    for (i = 0; i < 4000 && l.n != 2; i++) {
        team_run(t, late_job, &l);
        clock_sleep_ns(5000000);
    }
    assert_int_equal(l.n, 2);
    team_free(t);
    assert_ok(team_create(&t, &(struct team_options){.n_threads = 2}, &test_err));
    l.on = true;
    for (i = 0; i < 50; i++) {
        team_run(t, late_job, &l);
        assert_int_equal(l.n, 2); // only when asked
    }
    team_free(t);
}

#ifdef __linux__
static int n_cpus_of_thread(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

struct caller {
    struct team *team;
    int n_jobs, n_cpus, n_slots; // after so many jobs: processors it may use, and those it sees
};
static void caller_main(void *arg) {
    struct caller *c = arg;
    struct counts counts = {0};
    for (int i = 0; i < c->n_jobs; i++) team_run(c->team, count_job, &counts);
    c->n_cpus = n_cpus_of_thread();
    c->n_slots = cpu_topology_get().n_logical;
}
static void caller_run(struct caller *c) {
    struct os_thread *thread = NULL;
    assert_ok(os_thread_create(&thread, caller_main, c, &test_err));
    os_thread_join(thread);
}

// A thread of ours that runs job after job is pinned, no other; and it still sees the processors of the process.
static void test_caller_place(void **state) {
    (void)state;
    int n_cpus = n_cpus_of_thread();
    if (n_cpus < 2) skip();
    struct caller many = {.team = team_of(2, true), .n_jobs = 200}, few = {.team = many.team, .n_jobs = 5}, own = many;
    caller_run(&few);
    assert_int_equal(few.n_cpus, n_cpus);
    caller_run(&many);
    assert_int_equal(many.n_cpus, 1);
    assert_int_equal(many.n_slots, few.n_slots);
    caller_main(&own); // the program's own thread
    assert_int_equal(own.n_cpus, n_cpus);
    team_free(many.team);
    struct caller floats = {.team = team_of(2, false), .n_jobs = 200};
    caller_run(&floats);
    assert_int_equal(floats.n_cpus, n_cpus);
    team_free(floats.team);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),        cmocka_unit_test(test_small_jobs), cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_hot_cost),     cmocka_unit_test(test_misuse),     cmocka_unit_test(test_yields),
        cmocka_unit_test(test_create),
#ifdef __linux__
        cmocka_unit_test(test_caller_place),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
