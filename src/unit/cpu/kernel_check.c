// What all check families share: a generator whose numbers are the same everywhere, extreme values, comparison by bits,
// and the timing loop of the bench.
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"
#include <math.h>

// PCG32 (O'Neill 2014), one stream.
uint32_t kernel_rng_next(struct kernel_rng *r) {
    uint64_t old = r->state;
    r->state = old * 6364136223846793005ull + 1442695040888963407ull;
    uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27), rot = (uint32_t)(old >> 59);
    return (x >> rot) | (x << ((32 - rot) & 31));
}

int kernel_rng_below(struct kernel_rng *r, int n) { return (int)(((uint64_t)kernel_rng_next(r) * (uint64_t)n) >> 32); }

// Sum of four uniforms: near enough to normal, and exact everywhere.
float kernel_rng_float(struct kernel_rng *r) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) sum += (float)(kernel_rng_next(r) >> 8) * 0x1p-24f;
    return (sum - 2.0f) * 1.75f;
}

void kernel_rng_fill(struct kernel_rng *r, float *x, int n, float scale) {
    for (int i = 0; i < n; i++) x[i] = kernel_rng_float(r) * scale;
}

void kernel_rng_extremes(struct kernel_rng *r, float *x, int n) {
    static const float values[] = {0.0f,    -0.0f,    1e30f,    -1e30f,   3.4e38f,   1e-30f, 1e-40f,
                                   -1e-45f, 65504.0f, 65520.0f, INFINITY, -INFINITY, NAN};
    int n_put = 1 + n / 16;
    for (int i = 0; i < n_put; i++) x[kernel_rng_below(r, n)] = values[kernel_rng_below(r, (int)ARRAY_LEN(values))];
}

bool kernel_same(float a, float b) { return f32_bits(a) == f32_bits(b) || (a != a && b != b); }

enum tern_status kernel_compare(const struct kernel_row *row, const char *what, const float *have, const float *want,
                                int n, struct tern_err *err) {
    for (int i = 0; i < n; i++)
        if (!kernel_same(have[i], want[i]))
            return err_set(err, TERN_MISMATCH,
                           "%s: %s, element %d of %d is %.9g (%08x), the reference says %.9g (%08x)", row->name, what,
                           i, n, (double)have[i], f32_bits(have[i]), (double)want[i], f32_bits(want[i]));
    return TERN_OK;
}

void kernel_time(struct kernel_trial *t, void (*fn)(void *arg), void *arg, double work, const char *unit) {
    fn(arg);
    uint64_t begin = clock_ns(), now = begin, n_calls = 0;
    int batch = 1;
    do {
        for (int i = 0; i < batch; i++) fn(arg);
        n_calls += (uint64_t)batch;
        uint64_t before = now;
        now = clock_ns();
        if (now - before < 100000 && batch < 1 << 20) batch *= 2;
    } while ((double)(now - begin) < t->bench_seconds * 1e9);
    t->rate = work * (double)n_calls / ((double)(now - begin) * 1e-9);
    t->rate_unit = unit;
}
