// Private to app/: what the machine can do at most, measured beside a bench.
#pragma once
#include "base/base.h"

#define CEILING_PEAKS_MAX 8

// GB/s at which n_threads threads read a buffer far larger than the caches: the median of three passes.
double bench_read_gbs(int n_threads);

// All ceilings of n_threads threads, in about half a second.
struct bench_ceilings {
    int n_threads;
    double read_gbs;
    struct {
        const char *name; // "int8_avx512vnni" (unit.h, unit_cpu_peak_name)
        double gops;      // 1e9 operations per second; a multiply-add counts as two
    } peaks[CEILING_PEAKS_MAX];
    int n_peaks;
};
bool bench_ceilings_get(struct bench_ceilings *out, int n_threads); // false: no memory or threads for it
void bench_ceilings_release(void);                                  // the memory that was read
// The largest peak of a kind, "int8" or "bf16"; 0 when there is none.
double bench_ceilings_peak(const struct bench_ceilings *c, const char *kind);
// "read 29.1 GB/s, int8_avx512vnni 945 G/s, …" appended.
bool bench_ceilings_put(const struct bench_ceilings *c, struct buf *out);
void bench_ceilings_json(const struct bench_ceilings *c, struct json_writer *w); // one object
