// Medians, quantiles and the bootstrap interval of paired ratios.
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <cmocka.h>
#include "app/bench_stats.h"

#define NEAR(a, b) assert_true(fabs((a) - (b)) < 1e-12)

static void test_quantile(void **state) {
    (void)state;
    const double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    NEAR(stats_quantile(odd, 5, 0.5), 3);
    NEAR(stats_quantile(odd, 5, 0), 1);
    NEAR(stats_quantile(odd, 5, 1), 5);
    NEAR(stats_quantile(odd, 5, 0.25), 2);
    NEAR(stats_quantile(even, 4, 0.5), 2.5);
    NEAR(stats_quantile(one, 1, 0.5), 7);
    NEAR(odd[0], 5); // the sample is left as it was
}

// A drift that meets both sides alike leaves the ratio exact, though the values themselves spread by a factor of four.
static void test_paired(void **state) {
    (void)state;
    const double b[] = {10, 20, 40, 15, 30};
    double a[5];
    for (int i = 0; i < 5; i++) a[i] = 1.25 * b[i];
    struct stats_interval r = stats_paired_ratio(a, b, 5);
    NEAR(r.mid, 1.25);
    NEAR(r.lo, 1.25);
    NEAR(r.hi, 1.25);
}

static void test_interval(void **state) {
    (void)state;
    const double ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, five[] = {1.0, 1.1, 1.2, 1.3, 1.4};
    struct stats_interval r = stats_paired_ratio(five, ones, 5);
    NEAR(r.mid, 1.2);
    NEAR(r.lo, 1.0); // five values say no more than their range
    NEAR(r.hi, 1.4);
    // One wild pair moves the end of the interval, not the middle.
    const double wild[] = {1.2, 1.2, 1.2, 9.0, 1.2};
    NEAR(stats_paired_ratio(wild, ones, 5).mid, 1.2);
    // More pairs of the same spread: a narrower interval, inside the range.
    const double nine[] = {1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4};
    struct stats_interval n = stats_paired_ratio(nine, ones, 9);
    assert_true(n.lo > 1.0 && n.hi < 1.4 && n.lo < n.mid && n.mid < n.hi);
    // The same pairs, the same interval.
    struct stats_interval again = stats_paired_ratio(nine, ones, 9);
    assert_memory_equal(&n, &again, sizeof n);
    // Exchanged, it is the reciprocal (odd counts: the median is one of the ratios).
    struct stats_interval back = stats_paired_ratio(ones, five, 5);
    NEAR(back.mid, 1 / 1.2);
    NEAR(back.lo, 1 / 1.4);
    NEAR(back.hi, 1);
}

static void test_geomean(void **state) {
    (void)state;
    const double v[] = {1, 4, 2};
    NEAR(stats_geomean(v, 3), 2);
    NEAR(stats_geomean(v, 0), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantile),
        cmocka_unit_test(test_paired),
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_geomean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
