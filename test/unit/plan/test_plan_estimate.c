// plan_bytes_estimate against what opening the plan takes from base/mem.h, on the cpu unit: the estimate is made before
// the weights are there and decides whether a model is refused, so it may be neither low nor much too high.
#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "model/model.h"
#include "plan/plan.h"

#define EXCESS_BYTES (1u << 20)

static struct unit *unit;

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s: %s", tern_status_text(status), err->message);
}

static void compare(const struct model *m, enum prog_class numerics, int window) {
    struct tern_err err = {0};
    const struct unit_driver *d = unit_driver_of(unit);
    struct plan_unit pu = {.unit = unit};
    const struct plan_options o = {.model = m,
                                   .units = &pu,
                                   .n_units = 1,
                                   .numerics = numerics,
                                   .kv_type = OP_KV_F16,
                                   .window = window,
                                   .n_blocks = 64,
                                   .n_slots = 4,
                                   .n_out_max = MIN(window, 64)};
    uint64_t work = 0, state = 0;
    assert_true(plan_bytes_estimate("whole", &o, &work, &state));
    must(d->weights_import(unit, &pu.weights, m, &(struct weights_options){.numerics = numerics}, NULL, &err), &err);
    uint64_t before = mem_stats_get().bytes_now;
    struct plan *plan = NULL;
    must(plan_open(&plan, "whole", &o, &err), &err);
    uint64_t taken = mem_stats_get().bytes_now - before, estimate = work + state;
    print_message("%s, window %d: estimated %llu bytes, taken %llu, told %llu\n", m->name, window,
                  (unsigned long long)estimate, (unsigned long long)taken, (unsigned long long)plan_work_bytes(plan));
    assert_int_equal(plan_work_bytes(plan), estimate); // the cpu unit counts before it takes
    assert_true(taken <= estimate + estimate / 10 + EXCESS_BYTES);
    assert_true(estimate <= taken + taken / 10 + EXCESS_BYTES);
    plan_close(plan);
    assert_int_equal(mem_stats_get().bytes_now, before);
    d->weights_free(unit, pu.weights);
}

static void test_pico(void **state) {
    (void)state;
    struct tern_err err = {0};
    struct model *m = NULL;
    must(model_open(&m, TEST_MODELS "/pico.gguf", &err), &err);
    for (int window = 1; window <= 512; window *= 8) {
        compare(m, PROG_CLASS_INT8, window);
        compare(m, PROG_CLASS_FP32, window);
    }
    model_close(m);
}

// The 350M shape at its full width and vocabulary; three layers of it where the build is slow.
static void test_shape_350m(void **state) {
    (void)state;
    struct tern_err err = {0};
    struct model *m = NULL;
    struct model_shape s = model_shapes[0];
    assert_string_equal(s.name, "lfm2-350m");
    if (env_get("TERN_TEST_SHORT")) s.hyper.n_layers = 3;
    must(model_create_shape(&m, &s, FORMAT_Q4_0, FORMAT_Q4_0, 1, &err), &err);
    compare(m, PROG_CLASS_INT8, 512);
    model_close(m);
}

static int setup(void **state) {
    (void)state;
    return unit_open(&unit, "cpu", &(struct unit_options){.n_threads = 2}, NULL) != TERN_OK;
}
static int teardown(void **state) {
    (void)state;
    unit_close(unit);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pico),
        cmocka_unit_test(test_shape_350m),
    };
    return cmocka_run_group_tests_name("memory told before it is taken", tests, setup, teardown);
}
