// Plain threads, mutexes, conditions.
#include "base_test.h"

struct shared {
    struct os_mutex *mutex;
    struct os_cond *cond;
    int value;
    int n_ready;
};

static void add(void *arg) {
    struct shared *s = arg;
    for (int i = 0; i < 20000; i++) {
        mutex_lock(s->mutex);
        s->value++;
        mutex_unlock(s->mutex);
    }
}

static void test_mutex(void **state) {
    (void)state;
    struct shared s = {.mutex = mutex_create()};
    struct os_thread *t[3];
    for (int i = 0; i < 3; i++) assert_ok(os_thread_create(&t[i], add, &s, &test_err));
    for (int i = 0; i < 3; i++) os_thread_join(t[i]);
    assert_int_equal(s.value, 60000);
    mutex_free(s.mutex);
    os_thread_join(NULL);
    mutex_free(NULL);
    cond_free(NULL);
}

static void wait_for_value(void *arg) {
    struct shared *s = arg;
    mutex_lock(s->mutex);
    s->n_ready++;
    cond_broadcast(s->cond);
    while (s->value == 0) cond_wait(s->cond, s->mutex);
    s->n_ready--;
    mutex_unlock(s->mutex);
}

static void test_cond(void **state) {
    (void)state;
    struct shared s = {.mutex = mutex_create(), .cond = cond_create()};
    struct os_thread *t[3];
    for (int i = 0; i < 3; i++) assert_ok(os_thread_create(&t[i], wait_for_value, &s, &test_err));
    mutex_lock(s.mutex);
    while (s.n_ready < 3) cond_wait(s.cond, s.mutex);
    s.value = 1;
    cond_broadcast(s.cond);
    mutex_unlock(s.mutex);
    for (int i = 0; i < 3; i++) os_thread_join(t[i]);
    assert_int_equal(s.n_ready, 0);
    mutex_lock(s.mutex);
    uint64_t start = clock_ns();
    bool signalled;
    do { // an early return without a signal is allowed, but not for ever
        signalled = cond_wait_ns(s.cond, s.mutex, 30000000);
    } while (signalled && clock_ns() - start < 2000000000u);
    assert_false(signalled);
    assert_true(clock_ns() - start >= 30000000);
    mutex_unlock(s.mutex);
    cond_free(s.cond);
    mutex_free(s.mutex);
}

static void test_no_memory(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    struct os_thread *t = NULL;
    struct tern_err err;
    mem_fail_at(1, true);
    assert_int_equal(os_thread_create(&t, add, NULL, &err), TERN_NO_MEMORY);
    assert_null(t);
    assert_null(mutex_create());
    assert_null(cond_create());
    mem_fail_at(0, false);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutex), cmocka_unit_test(test_cond),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
