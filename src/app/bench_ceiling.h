// Private to app/: what the machine can do at most, measured beside a bench.
#pragma once

// GB/s at which n_threads threads read a buffer far larger than the caches: the median of three passes.
double bench_read_gbs(int n_threads);
