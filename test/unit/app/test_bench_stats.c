// Medians, quantiles and the bootstrap interval of paired ratios.
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <cmocka.h>
#include "app/bench/bench_stats.h"

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

static void test_share(void **state) {
    (void)state;
    // Wilson's interval of 8 of 10 (0.4901625, 0.9433178), from groups that vary no more than chance.
    const double five[] = {5, 5}, four[] = {4, 4};
    struct stats_interval s = stats_share(four, five, 2);
    NEAR(s.mid, 0.8);
    assert_true(fabs(s.lo - 0.4901625) < 1e-6 && fabs(s.hi - 0.9433178) < 1e-6);
    // All of 300: not an empty interval, and the groups say nothing.
    const double all[] = {100, 100, 100};
    s = stats_share(all, all, 3);
    NEAR(s.mid, 1);
    NEAR(s.hi, 1);
    assert_true(fabs(s.lo - 300 / (300 + 1.959964 * 1.959964)) < 1e-9);
    // The same share from groups that are wholly right or wrong is far less sure than from even ones.
    const double n[] = {50, 50, 50, 50}, even[] = {25, 25, 25, 25}, torn[] = {50, 0, 50, 0};
    struct stats_interval a = stats_share(even, n, 4), b = stats_share(torn, n, 4);
    NEAR(a.mid, b.mid);
    assert_true(b.hi - b.lo > 3 * (a.hi - a.lo));
    const double none[] = {0, 0};
    s = stats_share(none, none, 2);
    assert_true(s.lo == 0 && s.hi == 1);
}

static void test_group_mean(void **state) {
    (void)state;
    const double n[] = {10, 10, 10, 10}, sum[] = {9, 11, 10, 10};
    struct stats_interval s = stats_group_mean(sum, n, 4);
    NEAR(s.mid, 1);
    // variance of the four means 1/150, by 4 groups: standard error 0.0408248
    assert_true(fabs(s.hi - s.mid - 1.959964 * 0.0408248290) < 1e-6 && fabs(s.mid - s.lo - (s.hi - s.mid)) < 1e-12);
    assert_true(stats_group_mean(sum, n, 1).hi == INFINITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantile), cmocka_unit_test(test_paired), cmocka_unit_test(test_interval),
        cmocka_unit_test(test_geomean),  cmocka_unit_test(test_share),  cmocka_unit_test(test_group_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
