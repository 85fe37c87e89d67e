// topk_select against a literal selection: sizes around block borders, ties, NaN and infinities, rows of real size.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static uint32_t random_next(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*x >> 33);
}

// One by one: the largest not yet taken, the lowest index of equals.
static void oracle_check(const float *x, int n, int k) {
    static int32_t ids[TOPK_MAX];
    static float values[TOPK_MAX];
    uint8_t *taken = mem_calloc((size_t)n + 1, 1);
    int n_found = topk_select(x, n, k, ids, values), i = 0;
    for (; i < k; i++) {
        int best = -1;
        for (int j = 0; j < n; j++)
            if (!taken[j] && x[j] > -INFINITY && (best < 0 || x[j] > x[best])) best = j;
        if (best < 0) break;
        taken[best] = 1;
        if (i >= n_found || ids[i] != best || values[i] != x[best])
            fail_msg("n %d k %d: place %d is id %d, expected %d", n, k, i, i < n_found ? ids[i] : -1, best);
    }
    assert_int_equal(n_found, i);
    mem_free(taken);
}

static void test_random(void **state) {
    (void)state;
    const int sizes[] = {0, 1, 2, 63, 64, 65, 127, 128, 200, 1000, 4095, 4096, 8191, 8192, 8193, 20000};
    const int ks[] = {1, 2, 63, 64, 128};
    uint64_t seed = 7;
    float *x = mem_alloc(20000 * sizeof *x);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
        for (size_t k = 0; k < ARRAY_LEN(ks); k++)
            for (int kind = 0; kind < 3; kind++) {
                for (int i = 0; i < sizes[s]; i++) {
                    uint32_t r = random_next(&seed);
                    x[i] = kind == 0 ? (float)r * 0x1p-20f : (float)(r % 7) - 3;
                    if (kind == 2 && r % 5 == 0) x[i] = r % 3 == 0 ? NAN : r % 3 == 1 ? -INFINITY : INFINITY;
                }
                oracle_check(x, sizes[s], ks[k]);
            }
    mem_free(x);
}

// Rows on which a threshold helps least: all equal, ascending, all below one block, nothing at all.
static void test_hard_rows(void **state) {
    (void)state;
    int n = 70000;
    float *x = mem_alloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) x[i] = 1;
    oracle_check(x, n, 64);
    for (int i = 0; i < n; i++) x[i] = (float)i;
    oracle_check(x, n, 64);
    for (int i = 0; i < n; i++) x[i] = -(float)i;
    oracle_check(x, n, 64);
    for (int i = 0; i < n; i++) x[i] = NAN;
    oracle_check(x, n, 64);
    x[n - 1] = -3;
    oracle_check(x, n, 64);
    mem_free(x);
}

// Longer than the part that is taken at a time.
static void test_long_row(void **state) {
    (void)state;
    int n = 64 * 4096 * 2 + 77;
    uint64_t seed = 3;
    float *x = mem_alloc((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) x[i] = (float)(random_next(&seed) % 50000);
    oracle_check(x, n, 32);
    mem_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_hard_rows),
        cmocka_unit_test(test_long_row),
    };
    return cmocka_run_group_tests_name("topk", tests, NULL, NULL);
}
