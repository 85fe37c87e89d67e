// Counting, limits, injected faults, freezing; arenas.
#define _GNU_SOURCE 1
#include "base_test.h"
#include "abort_test.h"

static void test_counts(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    char *a = mem_alloc(100), *b = mem_calloc(10, 30), *c = mem_dup("xyz", 3), *d = mem_strdup("hi"), *e = mem_alloc(0);
    assert_true(a && b && c && d && e && d != e);
    struct mem_stats now = mem_stats_get();
    assert_int_equal(now.bytes_now - before.bytes_now, 100 + 300 + 4 + 3);
    assert_int_equal(now.n_live - before.n_live, 5);
    assert_int_equal(now.n_calls - before.n_calls, 5);
    assert_true(now.bytes_max >= now.bytes_now);
    assert_int_equal((uintptr_t)a % MEM_ALIGN + (uintptr_t)c % MEM_ALIGN + (uintptr_t)e % MEM_ALIGN, 0);
    for (int i = 0; i < 300; i++) assert_int_equal(b[i], 0);
    assert_string_equal(c, "xyz");
    memset(a, 'q', 100);
    a = mem_realloc(a, 1000);
    assert_true(a && a[0] == 'q' && a[99] == 'q');
    a = mem_realloc(a, 10);
    assert_true(a && a[9] == 'q');
    assert_int_equal(mem_stats_get().bytes_now - before.bytes_now, 10 + 300 + 4 + 3);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
    mem_free(e);
    mem_free(NULL);
    char *f = mem_realloc(NULL, 5);
    assert_non_null(f);
    mem_free(f);
    now = mem_stats_get();
    assert_int_equal(now.bytes_now, before.bytes_now);
    assert_int_equal(now.n_live, before.n_live);
}

static void test_overflow(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    assert_null(mem_calloc(SIZE_MAX / 2, 3));
    assert_null(mem_alloc(SIZE_MAX));
    assert_null(mem_alloc(SIZE_MAX - 70));
    assert_null(mem_dup("", SIZE_MAX));
    char *a = mem_strdup("stays");
    assert_null(mem_realloc(a, SIZE_MAX));
    assert_string_equal(a, "stays");
    mem_free(a);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
    assert_int_equal(mem_stats_get().bytes_now, before.bytes_now);
}

static void test_limit(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    mem_limit_set(before.bytes_now + 1000);
    void *a = mem_alloc(600), *b = mem_alloc(401), *c = mem_alloc(400);
    mem_limit_set(0);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_int_equal(mem_stats_get().bytes_now, before.bytes_now + 1000);
    mem_free(a);
    mem_free(c);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

static void test_fail_at(void **state) {
    (void)state;
    mem_fail_at(2, false);
    void *a = mem_alloc(1), *b = mem_alloc(1), *c = mem_alloc(1);
    assert_true(a && !b && c);
    mem_fail_at(1, true);
    void *d = mem_alloc(1), *e = mem_map(4096), *f = mem_realloc(a, 100);
    mem_fail_at(0, false);
    assert_true(!d && !e && !f);
    void *g = mem_alloc(1);
    assert_non_null(g);
    mem_free(a);
    mem_free(c);
    mem_free(g);
}

static void test_map(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    size_t sizes[] = {1, 4096, 5000, (size_t)2 << 20, ((size_t)4 << 20) + 1};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char *p = mem_map(sizes[i]);
        assert_non_null(p);
        if (sizes[i] >= (size_t)2 << 20) assert_int_equal((uintptr_t)p % ((size_t)2 << 20), 0);
        assert_int_equal(p[0] + p[sizes[i] - 1], 0);
        p[0] = p[sizes[i] - 1] = 1;
        assert_int_equal(mem_stats_get().bytes_now - before.bytes_now, sizes[i]);
        mem_unmap(p, sizes[i]);
    }
    assert_null(mem_map(SIZE_MAX));
    assert_null(mem_map(0));
    mem_unmap(NULL, 10);
    assert_int_equal(mem_stats_get().bytes_now, before.bytes_now);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

#ifndef NDEBUG
static void alloc_frozen(void) {
    mem_freeze(true);
    mem_free(mem_alloc(1));
}
#endif
static void thaw_too_often(void) { mem_freeze(false); }
static void free_foreign(void) {
    char *p = mem_calloc(1, 256);
    mem_free(p + 128); // no header of ours stands before it
}

static void freeze_elsewhere(void *arg) {
    mem_freeze(true);
    mem_freeze(true);
    mem_freeze(false);
    *(bool *)arg = true;
    mem_freeze(false);
}

static void test_freeze(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
#ifdef NDEBUG
    mem_freeze(true);
    void *p = mem_alloc(1);
    mem_freeze(false);
    assert_non_null(p);
    mem_free(p);
    assert_int_equal(mem_stats_get().n_frozen, before.n_frozen + 1);
#else
    assert_true(test_aborts(alloc_frozen));
    assert_int_equal(mem_stats_get().n_frozen, before.n_frozen);
#endif
    assert_true(test_aborts(thaw_too_often));
    bool done = false;
    struct os_thread *t;
    mem_freeze(true); // this thread's freeze is not the other's, and freeing is allowed
    mem_freeze(false);
    assert_ok(os_thread_create(&t, freeze_elsewhere, &done, &test_err));
    os_thread_join(t);
    assert_true(done);
    mem_free(mem_alloc(1));
}

static void test_foreign_free(void **state) {
    (void)state;
    assert_true(test_aborts(free_foreign));
}

static void hammer(void *arg) {
    (void)arg;
    void *held[16] = {0};
    for (int i = 0; i < 20000; i++) {
        mem_free(held[i % 16]);
        held[i % 16] = mem_alloc((size_t)(i % 300));
    }
    for (int i = 0; i < 16; i++) mem_free(held[i]);
}

static void test_threads(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    struct os_thread *t[4];
    for (int i = 0; i < 4; i++) assert_ok(os_thread_create(&t[i], hammer, NULL, &test_err));
    for (int i = 0; i < 4; i++) os_thread_join(t[i]);
    struct mem_stats now = mem_stats_get();
    assert_int_equal(now.bytes_now, before.bytes_now);
    assert_int_equal(now.n_live, before.n_live);
    assert_int_equal(now.n_calls - before.n_calls, 4 * 20000 + 4);
}

static void test_arena(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    struct test_rng rng;
    test_rng_init(&rng, "arena");
    struct arena a;
    arena_init(&a, 0);
    struct {
        uint8_t *p;
        size_t n;
    } block[500];
    for (int i = 0; i < 500; i++) {
        size_t n = test_rng_below(&rng, i % 50 == 0 ? 300000 : 200);
        block[i].n = n;
        block[i].p = arena_alloc(&a, n);
        assert_non_null(block[i].p);
        assert_int_equal((uintptr_t)block[i].p % (n >= 64 ? 64 : 16), 0);
        if (n > 0) memset(block[i].p, i & 0xff, n);
    }
    for (int i = 0; i < 500; i++)
        for (size_t k = 0; k < block[i].n; k++) assert_int_equal(block[i].p[k], i & 0xff);
    int *zeros = arena_calloc(&a, 100, sizeof(int));
    for (int i = 0; i < 100; i++) assert_int_equal(zeros[i], 0);
    assert_string_equal(arena_dup(&a, "abcdef", 3), "abc");
    assert_null(arena_calloc(&a, SIZE_MAX, 2));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 100));
    assert_true(arena_alloc(&a, 0) != arena_alloc(&a, 0));
    arena_release(&a);
    assert_int_equal(a.bytes_total, 0);
    assert_non_null(arena_alloc(&a, 10)); // as after init
    arena_release(&a);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
    assert_int_equal(mem_stats_get().bytes_now, before.bytes_now);
}

static void test_arena_limit(void **state) {
    (void)state;
    struct arena a;
    arena_init(&a, 1000);
    assert_null(arena_alloc(&a, 1001));
    assert_int_equal(a.bytes_total, 0);
    assert_non_null(arena_alloc(&a, 900));
    assert_non_null(arena_alloc(&a, 60));
    assert_null(arena_alloc(&a, 60));
    assert_true(a.bytes_total <= 1000);
    arena_release(&a);
    assert_non_null(arena_alloc(&a, 900)); // the limit is on what is handed out, and stays
    assert_null(arena_alloc(&a, 200));
    arena_release(&a);
    mem_fail_at(1, false);
    assert_null(arena_alloc(&a, 10));
    assert_int_equal(a.bytes_total, 0);
    assert_non_null(arena_alloc(&a, 10));
    arena_release(&a);
}

static void test_arena_mark(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    struct arena a;
    arena_init(&a, 0);
    struct arena_mark empty = arena_mark_get(&a);
    char *first = arena_dup(&a, "keep", 4);
    struct arena_mark mark = arena_mark_get(&a);
    size_t total = a.bytes_total;
    char *second = arena_alloc(&a, 100);
    for (int i = 0; i < 100; i++) assert_non_null(arena_alloc(&a, 5000));
    arena_mark_reset(&a, mark);
    assert_int_equal(a.bytes_total, total);
    assert_string_equal(first, "keep");
    assert_ptr_equal(arena_alloc(&a, 100), second);
    assert_int_equal(mem_stats_get().n_live, before.n_live + 1); // later chunks were given back
    arena_mark_reset(&a, empty);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
    arena_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),       cmocka_unit_test(test_overflow),   cmocka_unit_test(test_limit),
        cmocka_unit_test(test_fail_at),      cmocka_unit_test(test_map),        cmocka_unit_test(test_freeze),
        cmocka_unit_test(test_foreign_free), cmocka_unit_test(test_threads),    cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_limit),  cmocka_unit_test(test_arena_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
