// Private to app/: what several measurements say together.
#pragma once
#include "base/base.h"

#define STATS_MAX 1000 // values of one sample

struct stats_interval {
    double mid, lo, hi;
};
// Value at quantile q (0: least, 0.5: median, 1: largest) of n >= 1 values, between neighbours in proportion; v is left
// as it is. n at most STATS_MAX.
double stats_quantile(const double *v, int n, double q);
// Ratio of paired measurements a[i] / b[i], made beside one another: the median of the ratios, and the 2.5 and 97.5 per
// cent points of that median over resamples of the pairs. The same pairs give the same interval. n >= 1; all values
// positive.
struct stats_interval stats_paired_ratio(const double *a, const double *b, int n);
double stats_geomean(const double *v, int n); // of positive values; 1 for none
// Share of successes with its 95 % interval (Wilson), k[i] of n[i] in group i; groups with n[i] 0 count for nothing.
// Members of one group may depend on one another: the interval is that of as many independent ones as the spread of the
// groups' shares says (design effect, at least 1). No members: {0, 0, 1}.
struct stats_interval stats_share(const double *k, const double *n, int m);
// Sum over members by groups, sum[i] of n[i] members in group i: the mean, with an interval of 1.96 standard errors
// between groups. Fewer than two groups: no bounds (lo 0, hi infinite).
struct stats_interval stats_group_mean(const double *sum, const double *n, int m);
