// The ceilings. Reading: every thread reads its part of a 1 GiB buffer. Arithmetic: every thread runs loops of one
// instruction. Both are the cpu unit's (unit.h), on all threads at once. Buffer and
// team are made at the first call and kept until released.
#include "base/base.h"
#include "unit/unit.h"
#include "app/app.h"

#include "bench_ceiling.h"

#define CEILING_BYTES (1ull << 30)
#define CEILING_PASSES 3
#define PEAK_NS 50000000u // of each peak

// A team of n threads; NULL when there is none to be had. The last one is kept.
static struct team *team_of(int n_threads) {
    static struct team *team;
    if (team && team_size(team) == n_threads) return team;
    team_free(team);
    team = NULL;
    struct team_options o = {.n_threads = n_threads, .pin = true};
    return team_create(&team, &o, NULL) == TERN_OK ? team : NULL;
}

struct read_job {
    const uint64_t *words;
    size_t n;
    uint64_t sums[TEAM_THREADS_MAX];
};

static void read_part(void *arg, const struct team_member *self) {
    struct read_job *job = arg;
    size_t part = job->n / (size_t)self->n / 32 * 32;
    job->sums[self->index] = unit_cpu_read_run(job->words + part * (size_t)self->index, part * sizeof *job->words);
}

static uint64_t *words; // [CEILING_BYTES / 8], or NULL

void bench_ceilings_release(void) {
    if (words) mem_unmap(words, CEILING_BYTES);
    words = NULL;
}

double bench_read_gbs(int n_threads) {
    struct team *team = team_of(n_threads);
    if (!words) {
        words = mem_map(CEILING_BYTES);
        if (!words) return 0;
        for (size_t i = 0; i < CEILING_BYTES / 8; i += 64) words[i] = i;
    }
    if (!team) return 0;
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

struct peak_job {
    int peak;
    double ops[TEAM_THREADS_MAX];
};

static void peak_part(void *arg, const struct team_member *self) {
    struct peak_job *job = arg;
    team_barrier(self); // all at once
    job->ops[self->index] = unit_cpu_peak_run(job->peak, PEAK_NS);
}

bool bench_ceilings_get(struct bench_ceilings *out, int n_threads) {
    *out = (struct bench_ceilings){.n_threads = n_threads, .read_gbs = bench_read_gbs(n_threads)};
    struct team *team = team_of(n_threads);
    if (!team || out->read_gbs <= 0) return false;
    for (int i = 0; i < CEILING_PEAKS_MAX && unit_cpu_peak_name(i); i++) {
        struct peak_job job = {.peak = i};
        team_run(team, peak_part, &job);
        for (int t = 0; t < n_threads; t++) out->peaks[i].gops += job.ops[t] / 1e9;
        out->peaks[i].name = unit_cpu_peak_name(i);
        out->n_peaks = i + 1;
    }
    return true;
}

double bench_ceilings_peak(const struct bench_ceilings *c, const char *kind) {
    double best = 0;
    for (int i = 0; i < c->n_peaks; i++)
        if (str_starts(str_from(c->peaks[i].name), str_from(kind))) best = MAX(best, c->peaks[i].gops);
    return best;
}

bool bench_ceilings_put(const struct bench_ceilings *c, struct buf *out) {
    buf_putf(out, "read %.1f GB/s", c->read_gbs);
    for (int i = 0; i < c->n_peaks; i++) buf_putf(out, ", %s %.0f G/s", c->peaks[i].name, c->peaks[i].gops);
    return !out->failed;
}

void bench_ceilings_json(const struct bench_ceilings *c, struct json_writer *w) {
    json_write_object(w);
    json_write_key(w, "threads");
    json_write_int(w, c->n_threads);
    json_write_key(w, "read_gbs");
    json_write_f64(w, c->read_gbs);
    for (int i = 0; i < c->n_peaks; i++) {
        struct buf b;
        buf_init(&b, 64);
        buf_putf(&b, "%s_gops", c->peaks[i].name);
        json_write_key_str(w, buf_str(&b));
        json_write_f64(w, c->peaks[i].gops);
        buf_release(&b);
    }
    json_write_object_end(w);
}
