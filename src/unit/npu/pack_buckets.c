// Buckets from counts of contexts: the best division of the contexts into at most n pieces, each paying for its end.
// Dynamic programming over (buckets used, last bucket); with 512 places and 8 buckets two million sums.
#include "unit/npu/pack_buckets.h"
#include <math.h>

double npu_bucket_ms(const struct npu_buckets_cost *points, int n_points, int bucket) {
    int i = 0;
    if (n_points == 1) return points[0].ms;
    while (i < n_points - 2 && bucket > points[i + 1].bucket) i++;
    double slope = (points[i + 1].ms - points[i].ms) / (points[i + 1].bucket - points[i].bucket);
    // A slope that noise turned round would make larger buckets better.
    return points[i].ms + MAX(slope, 0) * (bucket - points[i].bucket);
}

double npu_buckets_ms(const uint64_t *steps, int n_steps, const struct npu_buckets_cost *points, int n_points,
                      const int *buckets, int n_buckets) {
    double sum = 0, n = 0;
    for (int i = 0, b = 0; i < n_steps && b < n_buckets; i++) {
        while (b < n_buckets && (i + 1) * NPU_BLOCK > buckets[b]) b++;
        if (b == n_buckets) break;
        sum += (double)steps[i] * npu_bucket_ms(points, n_points, buckets[b]);
        n += (double)steps[i];
    }
    return n > 0 ? sum / n : 0;
}

int npu_buckets_choose(const uint64_t *steps, int n_steps, const struct npu_buckets_cost *points, int n_points,
                       int largest, int n_max, int out[NPU_BUCKETS_MAX]) {
    int n = MIN(largest / NPU_BLOCK, NPU_CTX_MAX / NPU_BLOCK), last[NPU_BUCKETS_MAX + 1];
    size_t width = (size_t)n + 1;
    double *cost = mem_calloc((NPU_BUCKETS_MAX + 1) * width, sizeof *cost); // [used][end]
    double *before = mem_calloc(width, sizeof *before);                     // steps before an end
    int *from = mem_calloc((NPU_BUCKETS_MAX + 1) * width, sizeof *from);
    int used = 0;
    if (!cost || !before || !from) goto done;
    for (int i = 0; i < n; i++) before[i + 1] = before[i] + (i < n_steps ? (double)steps[i] : 0);
    for (int k = 1; k <= n_max; k++)
        for (int end = k; end <= n; end++) {
            double ms = npu_bucket_ms(points, n_points, end * NPU_BLOCK);
            int begin = k == 1 ? 0 : k - 1, stop = k == 1 ? 0 : end - 1;
            double best = INFINITY;
            for (int i = begin; i <= stop; i++) {
                double c = cost[(size_t)(k - 1) * width + (size_t)i] + ms * (before[end] - before[i]);
                if (c < best) best = c, from[(size_t)k * width + (size_t)end] = i;
            }
            cost[(size_t)k * width + (size_t)end] = best;
        }
    used = 1;
    for (int k = 2; k <= n_max && k <= n; k++) // a bucket that saves nothing is not made
        if (cost[(size_t)k * width + (size_t)n] < cost[(size_t)used * width + (size_t)n]) used = k;
    for (int k = used, end = n; k > 0; k--) {
        last[k - 1] = end;
        end = from[(size_t)k * width + (size_t)end];
    }
    for (int k = 0; k < used; k++) out[k] = last[k] * NPU_BLOCK;
done:
    mem_free(cost);
    mem_free(before);
    mem_free(from);
    return used;
}
