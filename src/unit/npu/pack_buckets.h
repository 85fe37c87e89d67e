// Which buckets serve what was asked of a model before. Private to unit/npu.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_unit.h"

struct npu_buckets_cost { // measured: a step behind so many columns
    int bucket;
    double ms;
};
// Milliseconds of a step with a bucket, on the line between measured points (rising, at least one).
double npu_bucket_ms(const struct npu_buckets_cost *points, int n_points, int bucket);
// Mean milliseconds of a step over the counts: steps[i] at contexts of i to i + 1 blocks of 32. What lies beyond the
// largest bucket is left out.
double npu_buckets_ms(const uint64_t *steps, int n_steps, const struct npu_buckets_cost *points, int n_points,
                      const int *buckets, int n_buckets);
// At most n_max buckets, rising, the last `largest` (a multiple of 32), with the least mean: exact, over every multiple
// of 32. Returns how many; 0: no memory. Without any counts: `largest` alone.
int npu_buckets_choose(const uint64_t *steps, int n_steps, const struct npu_buckets_cost *points, int n_points,
                       int largest, int n_max, int out[NPU_BUCKETS_MAX]);
