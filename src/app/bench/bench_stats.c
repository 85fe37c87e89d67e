// Medians, the interval of a paired ratio, shares and means over groups.
//
// The machine drifts, so only measurements made beside one another are compared: each pair gives one ratio. The median
// of the ratios is robust against a disturbed pair; its interval is the percentile bootstrap. With five pairs it is
// nearly the range of the ratios (the least is a resample's median with probability 0.058), which is as much as five
// measurements can say. The generator is fixed: a table computed twice from the same rows is the same.
//
// Tokens of one answer are not independent. A share's interval is Wilson's with the number of tokens divided by the
// design effect (variance between answers over that of independent tokens): closed form, and not empty where every
// token agreed, as resampling would be.
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

#define Z95 1.959964

// Variance of sum / n over groups (ratio estimator), and the sums.
static double group_variance(const double *sum, const double *n, int m, double *mean, double *total, int *groups) {
    double all = 0, count = 0, squares = 0;
    *groups = 0;
    for (int i = 0; i < m; i++) {
        all += sum[i];
        count += n[i];
        *groups += n[i] > 0;
    }
    *total = count;
    *mean = count > 0 ? all / count : 0;
    for (int i = 0; i < m; i++) {
        double d = sum[i] - *mean * n[i];
        squares += d * d;
    }
    return *groups > 1 ? squares / (count * count) * *groups / (*groups - 1) : 0;
}

struct stats_interval stats_share(const double *k, const double *n, int m) {
    double p, total;
    int groups;
    double between = group_variance(k, n, m, &p, &total, &groups);
    if (total <= 0) return (struct stats_interval){.mid = 0, .lo = 0, .hi = 1};
    double plain = p * (1 - p) / total;
    double count = plain > 0 && between > plain ? total * plain / between : total;
    double z2 = Z95 * Z95 / count, middle = (p + z2 / 2) / (1 + z2);
    double half = Z95 / (1 + z2) * sqrt(p * (1 - p) / count + z2 / (4 * count));
    return (struct stats_interval){.mid = p, .lo = fmax(middle - half, 0), .hi = fmin(middle + half, 1)};
}

struct stats_interval stats_group_mean(const double *sum, const double *n, int m) {
    double mean, total;
    int groups;
    double half = Z95 * sqrt(group_variance(sum, n, m, &mean, &total, &groups));
    if (groups < 2) return (struct stats_interval){.mid = mean, .lo = 0, .hi = INFINITY};
    return (struct stats_interval){.mid = mean, .lo = mean - half, .hi = mean + half};
}
