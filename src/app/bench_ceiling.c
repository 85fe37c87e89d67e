// The read ceiling: every thread sums its part of a 1 GiB buffer with independent chains, so that only memory limits
// it. The buffer is made at the first call and kept for the process.
#include "base/base.h"
#include "app.h"

#include "bench_ceiling.h"

#define CEILING_BYTES (1ull << 30)
#define CEILING_PASSES 3

struct read_job {
    const uint64_t *words;
    size_t n;
    uint64_t sums[TEAM_THREADS_MAX];
};

static void read_part(void *arg, const struct team_member *self) {
    struct read_job *job = arg;
    size_t part = job->n / (size_t)self->n / 32 * 32, begin = part * (size_t)self->index;
    const uint64_t *p = job->words + begin;
    uint64_t s[32] = {0}; // four 512-bit sums: enough loads in flight
    for (size_t i = 0; i < part; i += 32)
        for (int j = 0; j < 32; j++) s[j] += p[i + (size_t)j];
    for (int j = 1; j < 32; j++) s[0] += s[j];
    job->sums[self->index] = s[0];
}

double bench_read_gbs(int n_threads) {
    static uint64_t *words;
    static struct team *team;
    struct team_options o = {.n_threads = n_threads, .pin = true};
    if (!words) {
        words = mem_map(CEILING_BYTES);
        if (!words || team_create(&team, &o, NULL) != TERN_OK) return 0;
        for (size_t i = 0; i < CEILING_BYTES / 8; i += 64) words[i] = i;
    }
    struct read_job job = {.words = words, .n = CEILING_BYTES / 8};
    double gbs[CEILING_PASSES];
    for (int i = 0; i < CEILING_PASSES; i++) {
        uint64_t start = clock_ns();
        team_run(team, read_part, &job);
        gbs[i] = (double)CEILING_BYTES / (double)(clock_ns() - start);
    }
    double lo = MIN(gbs[0], gbs[1]), hi = MAX(gbs[0], gbs[1]);
    return MAX(lo, MIN(hi, gbs[2]));
}
