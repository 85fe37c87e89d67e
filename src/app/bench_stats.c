// Medians and the interval of a paired ratio.
//
// The machine drifts, so only measurements made beside one another are compared: each pair gives one ratio. The median
// of the ratios is robust against a disturbed pair; its interval is the percentile bootstrap. With five pairs it is
// nearly the range of the ratios (the least is a resample's median with probability 0.058), which is as much as five
// measurements can say. The generator is fixed: a table computed twice from the same rows is the same.
#include "base/base.h"
#include "bench_stats.h"

#include <math.h>
#include <stdlib.h>

#define BOOTSTRAP_RESAMPLES 4000

static int double_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double sorted_quantile(const double *v, int n, double q) {
    double at = q * (n - 1);
    int i = (int)at;
    if (i >= n - 1) return v[n - 1];
    return v[i] + (at - i) * (v[i + 1] - v[i]);
}

double stats_quantile(const double *v, int n, double q) {
    double sorted[STATS_MAX];
    TERN_ASSERT(n >= 1 && n <= STATS_MAX && q >= 0 && q <= 1);
    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, double_compare);
    return sorted_quantile(sorted, n, q);
}

static uint64_t random_next(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

struct stats_interval stats_paired_ratio(const double *a, const double *b, int n) {
    double ratios[STATS_MAX], sample[STATS_MAX], medians[BOOTSTRAP_RESAMPLES];
    uint64_t state = 1;
    TERN_ASSERT(n >= 1 && n <= STATS_MAX);
    for (int i = 0; i < n; i++) ratios[i] = a[i] / b[i];
    for (int k = 0; k < BOOTSTRAP_RESAMPLES; k++) {
        for (int i = 0; i < n; i++) sample[i] = ratios[random_next(&state) % (uint64_t)n];
        medians[k] = stats_quantile(sample, n, 0.5);
    }
    qsort(medians, BOOTSTRAP_RESAMPLES, sizeof *medians, double_compare);
    return (struct stats_interval){.mid = stats_quantile(ratios, n, 0.5),
                                   .lo = sorted_quantile(medians, BOOTSTRAP_RESAMPLES, 0.025),
                                   .hi = sorted_quantile(medians, BOOTSTRAP_RESAMPLES, 0.975)};
}

double stats_geomean(const double *v, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += log(v[i]);
    return n > 0 ? exp(sum / n) : 1;
}
