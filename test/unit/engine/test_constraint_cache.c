// Compiled constraints are kept by the engine: the same source is compiled once, those in use stay, and what is kept
// stays within its limits whatever clients send.
#include "engine_fixture.h"

#include <stdio.h>

static struct tern_engine *engine;

static struct tern_constraint opened(enum tern_constraint_kind kind, const char *spec) {
    struct tern_constraint c;
    struct tern_err err;
    fixture_must(tern_constraint_open(&c, engine, kind, (struct tern_str){spec, strlen(spec)}, &err), &err);
    return c;
}

static struct tern_constraint_info info(void) {
    struct tern_constraint_info i;
    tern_constraint_info(engine, &i);
    return i;
}

static int setup(void **state) {
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    if (fixture_setup(state) != 0) return 1;
    engine = fixture_engine(&o);
    return 0;
}
static int teardown(void **state) {
    tern_engine_close(engine);
    return fixture_teardown(state);
}

static void test_compiled_once(void **state) {
    (void)state;
    struct tern_constraint_info before = info();
    struct tern_constraint a = opened(TERN_CONSTRAINT_REGEX, "[ab]+"), b = opened(TERN_CONSTRAINT_REGEX, "[ab]+");
    struct tern_constraint other = opened(TERN_CONSTRAINT_REGEX, "[ab]*"); // another source
    struct tern_constraint kind = opened(TERN_CONSTRAINT_CHOICE, "[\"ab\"]");
    assert_int_equal(info().n_compiled, before.n_compiled + 3);
    assert_int_equal(info().n_opened, before.n_opened + 4);
    // States are apart: what one has read changes nothing for the other.
    int32_t id;
    struct tern_str text = {"a", 1};
    assert_int_equal(tern_tokenize(engine, text, false, false, &id, 1, NULL), 1);
    uint32_t *mask = mem_calloc(65536 / 32, sizeof *mask);
    assert_true(a.advance(a.state, id));
    memset(mask, 0xff, 65536 / 8);
    b.mask(b.state, mask, 65536);
    assert_true(mask[id / 32] >> (id % 32) & 1);
    tern_constraint_close(&a);
    assert_true(b.advance(b.state, id)); // still there
    mem_free(mask);
    tern_constraint_close(&b);
    tern_constraint_close(&other);
    tern_constraint_close(&kind);
    a = opened(TERN_CONSTRAINT_REGEX, "[ab]+"); // found although nobody used it meanwhile
    assert_int_equal(info().n_compiled, before.n_compiled + 3);
    tern_constraint_close(&a);
}

static void test_refused_counts_nothing(void **state) {
    (void)state;
    struct tern_constraint_info before = info();
    struct tern_constraint c;
    assert_int_not_equal(tern_constraint_open(&c, engine, TERN_CONSTRAINT_REGEX, (struct tern_str){"(", 1}, NULL),
                         TERN_OK);
    assert_int_equal(info().n_opened, before.n_opened);
    assert_int_equal(info().n_kept, before.n_kept);
}

static void test_bounded(void **state) {
    (void)state;
    struct tern_constraint held = opened(TERN_CONSTRAINT_REGEX, "held[0-9]");
    char spec[32];
    for (int i = 0; i < 3 * TERN_CONSTRAINTS_KEPT_MAX; i++) {
        snprintf(spec, sizeof spec, "x%dy", i);
        struct tern_constraint c = opened(TERN_CONSTRAINT_REGEX, spec);
        tern_constraint_close(&c);
        assert_true(info().n_kept <= TERN_CONSTRAINTS_KEPT_MAX);
        assert_true(info().bytes_kept <= TERN_CONSTRAINTS_BYTES_MAX);
    }
    uint64_t compiled = info().n_compiled;
    struct tern_constraint again = opened(TERN_CONSTRAINT_REGEX, "held[0-9]"); // in use, so never dropped
    assert_int_equal(info().n_compiled, compiled);
    tern_constraint_close(&again);
    tern_constraint_close(&held);
    struct tern_constraint last = opened(TERN_CONSTRAINT_REGEX, spec), first = opened(TERN_CONSTRAINT_REGEX, "x0y");
    assert_int_equal(info().n_compiled, compiled + 1); // the newest is there, the oldest is not
    tern_constraint_close(&last);
    tern_constraint_close(&first);
}

// All in use: what comes beyond the room is not kept, and goes with its last user.
static void test_all_in_use(void **state) {
    (void)state;
    enum { N = TERN_CONSTRAINTS_KEPT_MAX + 4 };
    struct tern_constraint held[N];
    char spec[32];
    for (int i = 0; i < N; i++) {
        snprintf(spec, sizeof spec, "h%d", i);
        held[i] = opened(TERN_CONSTRAINT_REGEX, spec);
    }
    assert_true(info().n_kept <= TERN_CONSTRAINTS_KEPT_MAX);
    for (int i = 0; i < N; i++) tern_constraint_close(&held[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compiled_once),
                                       cmocka_unit_test(test_refused_counts_nothing), cmocka_unit_test(test_bounded),
                                       cmocka_unit_test(test_all_in_use)};
    return cmocka_run_group_tests_name("kept constraints", tests, setup, teardown);
}
