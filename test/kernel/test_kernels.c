// Every row of the kernel list against op/'s reference, with two seeds each (with TERN_TEST_SHORT=1: one). Rows whose
// instruction set this machine lacks are skipped by name; at least the scalar rows run everywhere. TERN_KERNEL names a
// single row to run.
#include "base/base.h"
#include "unit/unit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define SEEDS 2

static void check_row(void **state) {
    int i = *(const int *)*state;
    uint64_t n_seeds = env_get("TERN_TEST_SHORT") ? 1 : SEEDS;
    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        struct tern_err err;
        enum tern_status status = unit_cpu_kernel_check(i, seed, &err);
        if (status == TERN_UNSUPPORTED) {
            print_message("%s\n", err.message);
            skip();
        }
        if (status != TERN_OK) fail_msg("seed %d: %s", (int)seed, err.message);
    }
}

static void every_row_has_its_own_name(void **state) {
    (void)state;
    int n = unit_cpu_kernels_count();
    assert_true(n > 0);
    for (int i = 0; i < n; i++) assert_non_null(strstr(unit_cpu_kernel_name(i), "__"));
}

int main(void) {
    int n = unit_cpu_kernels_count();
    struct CMUnitTest *tests = mem_calloc((size_t)n + 1, sizeof *tests);
    int *index = mem_calloc((size_t)n, sizeof *index);
    if (!tests || !index) TERN_BUG("no memory for %d tests", n);
    const char *only = env_get("TERN_KERNEL");
    size_t n_tests = 0;
    tests[n_tests++] = (struct CMUnitTest)cmocka_unit_test(every_row_has_its_own_name);
    for (int i = 0; i < n; i++) {
        index[i] = i;
        if (only && strcmp(only, unit_cpu_kernel_name(i)) != 0) continue;
        tests[n_tests++] =
            (struct CMUnitTest){.name = unit_cpu_kernel_name(i), .test_func = check_row, .initial_state = &index[i]};
    }
    int failed = _cmocka_run_group_tests("kernels", tests, n_tests, NULL, NULL);
    mem_free(index);
    mem_free(tests);
    return failed;
}
