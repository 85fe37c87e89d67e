// The linear kernels beside this machine's ceilings, one thread:
//   ninja -C build test/kernel/linear_bench && build/test/kernel/linear_bench [part of a kernel's name] [n_in]
// Up to CPU_ROWS_FEW rows walk 1 GiB of packed weights, more than any cache holds, and are set against plain reading of
// the same bytes; more rows work on a few hundred outputs and are set against a loop of independent dot products. Work
// is timed in pieces of a few milliseconds at most, and the mean of the faster half is shown, so that a busy machine's
// other work falls out.
#include "base/base.h"
#include <stdio.h>
#include "unit/unit.h"
#include "unit/cpu/kernel_rows.h"

#define POOL_BYTES ((size_t)1 << 30)
#define PIECE_BYTES ((size_t)3 << 20)
#define PIECES_MAX 4096
#define CALLS 60
#define MANY_WORK (64 * 64) // rows times tiles of a call: about 2 ms

typedef uint64_t vec16 __attribute__((vector_size(16), may_alias));

static uint64_t times[PIECES_MAX];

// Mean of the faster half, in seconds.
static double faster_half(int n) {
    for (int i = 1; i < n; i++) {
        uint64_t v = times[i];
        int j = i;
        for (; j > 0 && times[j - 1] > v; j--) times[j] = times[j - 1];
        times[j] = v;
    }
    double sum = 0;
    const int half = n > 1 ? n / 2 : 1;
    for (int i = 0; i < half; i++) sum += (double)times[i];
    return sum / half * 1e-9;
}

// Bytes per second of one thread that does nothing but read.
static double read_ceiling(const uint8_t *pool) {
    int n = 0;
    uint64_t seen = 0;
    for (size_t at = 0; at + PIECE_BYTES <= POOL_BYTES; at += PIECE_BYTES) {
        const uint64_t begin = clock_ns();
        vec16 a = {0}, b = a, c = a, d = a;
        for (size_t i = 0; i < PIECE_BYTES; i += 64) {
            const vec16 *line = (const vec16 *)(const void *)(pool + at + i);
            __builtin_prefetch((const uint8_t *)line + 4096, 0, 3);
            a ^= line[0];
            b ^= line[1];
            c ^= line[2];
            d ^= line[3];
        }
        times[n++] = clock_ns() - begin;
        a ^= b ^ c ^ d;
        seen ^= a[0] ^ a[1];
    }
    if (seen == 1) puts(""); // keeps the loads
    return (double)PIECE_BYTES / faster_half(n);
}

// Operations per second (a multiply and an add are two) of independent 512-bit VPDPBUSD; 0 where there are none.
static double dot_ceiling(void) {
#if defined(__x86_64__)
    if ((cpu_isa_present() & CPU_AVX512VNNI) == 0) return 0;
#define DOT(n) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #n "\n"
    for (int c = 0; c < PIECES_MAX; c++) {
        const uint64_t begin = clock_ns();
        for (int i = 0; i < 2000; i++) {
            __asm__ volatile(DOT(0) DOT(1) DOT(2) DOT(3) DOT(4) DOT(5) DOT(6) DOT(7) DOT(8) DOT(9) DOT(10) DOT(11)::
                                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                                   "xmm10", "xmm11");
        }
        times[c] = clock_ns() - begin;
    }
    return 2000.0 * 12 * 128 / faster_half(PIECES_MAX);
#else
    return 0;
#endif
}

struct activations {
    int8_t *q;
    float *x, *scale, *y;
    int32_t *sum;
};

static bool activations_alloc(struct activations *v, struct arena *a, size_t n_rows, size_t n_in, size_t y_stride) {
    v->q = arena_alloc(a, n_rows * n_in);
    v->x = arena_alloc(a, n_rows * n_in * sizeof(float));
    v->scale = arena_alloc(a, n_rows * n_in / 32 * sizeof(float));
    v->sum = arena_calloc(a, n_rows * n_in / 16, sizeof(int32_t));
    v->y = arena_calloc(a, n_rows * y_stride, sizeof(float));
    if (!v->q || !v->x || !v->scale || !v->sum || !v->y) return false;
    for (size_t i = 0; i < n_rows * n_in; i++) {
        v->q[i] = (int8_t)((int)(i * 37 % 251) - 125);
        v->x[i] = 0.01f;
        v->sum[i / 16] += v->q[i];
    }
    for (size_t i = 0; i < n_rows * n_in / 32; i++) v->scale[i] = 0.01f;
    return true;
}

// Seconds for all `tiles` tiles.
static double kernel_seconds(const struct kernel_row *k, struct cpu_linear_args *a, int tiles) {
    const bool few = a->n_rows <= CPU_ROWS_FEW;
    const int step = few ? MAX((int)(PIECE_BYTES / a->m->tile_bytes), 1) : tiles;
    int n = 0;
    for (int t = 0; n < (few ? PIECES_MAX : CALLS); t += step) {
        if (t + step > tiles) {
            if (few) break;
            t = 0;
        }
        a->tile_begin = t;
        a->tile_end = t + step;
        const uint64_t begin = clock_ns();
        ((cpu_linear_fn)k->fn)(a);
        times[n++] = clock_ns() - begin;
    }
    return faster_half(n) * tiles / step;
}

static void bench_rows(const struct kernel_row *k, const uint8_t *pool, int n_in, int n_rows, double read,
                       double dots) {
    size_t tile_bytes;
    if (!cpu_pack_tile_bytes((enum cpu_pack)k->pack, n_in, &tile_bytes)) return;
    const int tiles = n_rows <= CPU_ROWS_FEW ? (int)(POOL_BYTES / tile_bytes) : MAX(MANY_WORK / n_rows, 16);
    const struct cpu_matrix m = {.pack = (enum cpu_pack)k->pack,
                                 .n_out = tiles * CPU_TILE,
                                 .n_in = n_in,
                                 .n_tiles = tiles,
                                 .tile_bytes = tile_bytes,
                                 .data = pool};
    struct arena arena;
    arena_init(&arena, 0);
    struct activations v;
    if (activations_alloc(&v, &arena, (size_t)n_rows, (size_t)n_in, (size_t)m.n_out)) {
        struct cpu_linear_args a = {.m = &m,
                                    .n_rows = n_rows,
                                    .q = v.q,
                                    .q_stride = (size_t)n_in,
                                    .scale = v.scale,
                                    .scale_stride = (size_t)n_in / 32,
                                    .sum = v.sum,
                                    .x = v.x,
                                    .x_stride = (size_t)n_in,
                                    .y = v.y,
                                    .y_stride = (size_t)m.n_out};
        const double s = kernel_seconds(k, &a, tiles);
        const double bytes = (double)tile_bytes * tiles / s, ops = 2.0 * m.n_out * n_in * n_rows / s;
        printf("%-36s rows %3d  %6.2f GB/s (%3.0f %%)", k->name, n_rows, bytes * 1e-9, 100 * bytes / read);
        if (dots > 0) {
            printf("  %6.1f GOP/s (%3.0f %%)  %.2f times the larger floor", ops * 1e-9, 100 * ops / dots,
                   1 / MAX(bytes / read, ops / dots));
        }
        puts("");
    }
    arena_release(&arena);
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "avx512";
    int64_t n_in = 4096;
    if (argc > 2 && (!str_to_i64(str_from(argv[2]), &n_in) || n_in < 512 || n_in > 65536 || n_in % 512 != 0)) {
        fputs("linear_bench: n_in is a multiple of 512 up to 65536\n", stderr);
        return 2;
    }
    uint8_t *pool = mem_map(POOL_BYTES + PIECE_BYTES); // room for prefetching past the end
    if (!pool) {
        fputs("linear_bench: no memory for 1 GiB of weights\n", stderr);
        return 1;
    }
    memset(pool, 0x11, POOL_BYTES + PIECE_BYTES); // as half floats: small and normal
    const double dots = dot_ceiling();
    double read = 0;
    for (int i = 0; i < 5; i++)
        read = MAX(read, read_ceiling(pool)); // a busy neighbour takes bandwidth, never gives it
    printf("reading %.2f GB/s, 8-bit dot products %.0f GOP/s\n", read * 1e-9, dots * 1e-9);
    static const int rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64, 512};
    for (int i = 0; i < kernel_rows_count; i++) {
        const struct kernel_row *k = &kernel_rows[i];
        if (!strstr(k->name, "k_linear_") || !strstr(k->name, part) || (cpu_isa_present() & k->isa) == 0) continue;
        for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
            const int rows_class = rows[r] == 1 ? 0 : rows[r] <= CPU_ROWS_FEW ? 1 : 2;
            if (rows_class == k->rows_class) bench_rows(k, pool, (int)n_in, rows[r], read, dots);
        }
    }
    mem_unmap(pool, POOL_BYTES + PIECE_BYTES);
    return 0;
}
