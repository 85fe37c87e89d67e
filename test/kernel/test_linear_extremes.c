// The int8 linear kernels on weight rows that no encoder writes: random bits, bytes all at their ends, and scales that
// are zero, subnormal, the largest, infinite or NaN, for both operands. Every kernel that this machine runs, with 1 to
// 40 rows and any number of outputs, gives the bits of op_linear_int8 (NaN for NaN).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"

#define OUT_MAX 50
#define IN_MAX 3072
#define ROWS_MAX 40

static struct {
    uint8_t w[OUT_MAX * (IN_MAX * 2)];
    int8_t q[ROWS_MAX * IN_MAX];
    float scale[ROWS_MAX * IN_MAX / 32];
    int32_t sum[ROWS_MAX * IN_MAX / 16];
    float y[ROWS_MAX * (OUT_MAX + 16)], want[OUT_MAX];
} t;

// Half floats: zeros, the least subnormal, a subnormal, one, a small one, the largest, infinities, NaN.
static const uint16_t halves[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0x9c00, 0x7bff, 0x7c00, 0xfc00, 0x7e01};
static const float floats[] = {0.0f, -0.0f, 0x1p-149f, 0x1.8p-130f, 1.0f, -0.37f, 3.4e38f, INFINITY, NAN};

// What the values of a case look like.
enum bytes { BYTES_RANDOM, BYTES_LOW, BYTES_HIGH, BYTES_COUNT };

static void half_put(uint8_t *p, struct kernel_rng *r, bool wild) {
    uint16_t h = wild ? halves[kernel_rng_below(r, (int)ARRAY_LEN(halves))] : f32_to_f16(kernel_rng_float(r) * 0.01f);
    memcpy(p, &h, 2);
}

// A scale of an MLX block.
static void float_put(enum format type, uint8_t *p, struct kernel_rng *r, bool wild) {
    if (type == FORMAT_F16) {
        half_put(p, r, wild);
        return;
    }
    float v = wild ? floats[kernel_rng_below(r, (int)ARRAY_LEN(floats))] : kernel_rng_float(r) * 0.01f;
    uint16_t b = f32_to_bf16(v);
    if (type == FORMAT_BF16) memcpy(p, &b, 2);
    if (type == FORMAT_F32) memcpy(p, &v, 4);
}

static void weights_make(enum format f, int n_out, int n_in, size_t row_bytes, enum bytes bytes, bool wild,
                         struct kernel_rng *r) {
    const size_t n = (size_t)n_out * row_bytes;
    // 0x80 is the least signed byte; as nibbles and bits 0x00 and 0xff are the ends.
    const uint8_t low = f == FORMAT_Q8_0 || f == FORMAT_I8C ? 0x80 : 0x00, high = low ? 0x7f : 0xff;
    for (size_t i = 0; i < n; i++) {
        t.w[i] = bytes == BYTES_RANDOM ? (uint8_t)kernel_rng_next(r) : bytes == BYTES_LOW ? low : high;
    }
    const size_t block = (size_t)format_table[f].n_bytes;
    for (int o = 0; o < n_out; o++) {
        uint8_t *row = t.w + (size_t)o * row_bytes;
        if (f == FORMAT_I8C) {
            float s = wild ? floats[kernel_rng_below(r, (int)ARRAY_LEN(floats))] : kernel_rng_float(r);
            memcpy(row + n_in, &s, 4);
            continue;
        }
        for (size_t at = 0; format_is_mlx(f) && at < row_bytes; at += block) {
            const struct format_mlx m = format_mlx_get(f);
            float_put(m.scales, row + at, r, wild);
            float_put(m.scales, row + at + m.scale_bytes, r, wild);
        }
        if (format_is_mlx(f)) continue;
        const size_t d_at = f == FORMAT_Q6_K ? 208 : f == FORMAT_Q2_K ? 80 : f == FORMAT_Q3_K ? 108 : 0;
        for (size_t at = 0; at < row_bytes; at += block) {
            half_put(row + at + d_at, r, wild);
            if (op_format_groups(f).has_min) half_put(row + at + d_at + 2, r, wild);
        }
    }
}

static void activations_make(int n_rows, int n_in, enum bytes bytes, bool wild, struct kernel_rng *r) {
    for (int i = 0; i < n_rows * n_in; i++) {
        t.q[i] = (int8_t)(bytes == BYTES_RANDOM ? kernel_rng_below(r, 255) - 127 : bytes == BYTES_LOW ? -127 : 127);
    }
    for (int g = 0; g < n_rows * n_in / 32; g++) {
        t.scale[g] = wild && kernel_rng_below(r, 8) == 0 ? floats[kernel_rng_below(r, (int)ARRAY_LEN(floats))]
                                                         : kernel_rng_float(r);
    }
    for (int g = 0; g < n_rows * n_in / 16; g++) {
        t.sum[g] = 0;
        for (int i = 0; i < 16; i++) t.sum[g] += t.q[g * 16 + i];
    }
}

static void case_run(const struct kernel_row *row, enum format f, int n_out, int n_in, int n_rows) {
    uint64_t row_bytes;
    size_t tile_bytes;
    assert_true(format_row_bytes(f, (uint64_t)n_in, &row_bytes) && (size_t)row_bytes * (size_t)n_out <= sizeof(t.w));
    assert_true(cpu_pack_tile_bytes((enum cpu_pack)row->pack, n_in, &tile_bytes));
    const int n_tiles = int_div_up(n_out, CPU_TILE);
    uint8_t *packed = mem_alloc((size_t)n_tiles * tile_bytes); // of just this size, for the address sanitizer
    void *scratch = mem_alloc(cpu_pack_scratch_bytes(n_in));
    for (int i = 0; i < n_tiles; i++) {
        cpu_pack_tile((enum cpu_pack)row->pack, f, t.w, (size_t)row_bytes, n_out, n_in, i * CPU_TILE,
                      packed + (size_t)i * tile_bytes, scratch);
    }
    const struct cpu_matrix m = {.pack = (enum cpu_pack)row->pack,
                                 .bf16_scales = cpu_pack_bf16_scales(f),
                                 .n_out = n_out,
                                 .n_in = n_in,
                                 .n_tiles = n_tiles,
                                 .tile_bytes = tile_bytes,
                                 .data = packed};
    for (int i = 0; row->pack == CPU_PACK_I8C && i < n_rows; i++) { // the first sum is the row's
        int32_t *sum = &t.sum[i * (n_in / 16)];
        *sum = 0;
        for (int k = 0; k < n_in; k++) *sum += t.q[i * n_in + k];
    }
    const struct cpu_linear_args a = {.m = &m,
                                      .tile_end = n_tiles,
                                      .n_rows = n_rows,
                                      .q = t.q,
                                      .q_stride = (size_t)n_in,
                                      .scale = t.scale,
                                      .scale_stride = (size_t)n_in / 32,
                                      .sum = t.sum,
                                      .y = t.y,
                                      .y_stride = (size_t)n_tiles * CPU_TILE};
    ((cpu_linear_fn)row->fn)(&a);
    for (int i = 0; i < n_rows; i++) {
        op_linear_int8(f, t.w, n_out, n_in, t.q + i * n_in, t.scale + i * n_in / 32, t.sum + i * n_in / 16, t.want);
        for (int o = 0; o < n_out; o++) {
            const float have = t.y[(size_t)i * a.y_stride + (size_t)o];
            if (kernel_same(have, t.want[o])) continue;
            fail_msg("%s, n_in %d, row %d of %d, output %d of %d: %a, wanted %a", row->name, n_in, i, n_rows, o, n_out,
                     (double)have, (double)t.want[o]);
        }
    }
    mem_free(packed);
    mem_free(scratch);
}

static void row_check(const struct kernel_row *row, enum format f, struct kernel_rng *r) {
    const int block = MAX(format_table[f].n_block, 32);
    const int first = row->rows_class == 0 ? 1 : row->rows_class == 1 ? 2 : CPU_ROWS_FEW + 1;
    const int last = row->rows_class == 0 ? 1 : row->rows_class == 1 ? CPU_ROWS_FEW : ROWS_MAX;
    for (int n_rows = first; n_rows <= last; n_rows++) {
        const int n_in = block * (1 + kernel_rng_below(r, n_rows % 5 == 0 ? IN_MAX / block : 3));
        const int n_out = 1 + kernel_rng_below(r, OUT_MAX);
        const enum bytes wb = (enum bytes)kernel_rng_below(r, BYTES_COUNT);
        const enum bytes xb = (enum bytes)kernel_rng_below(r, BYTES_COUNT);
        const bool wild = kernel_rng_below(r, 2) == 0;
        uint64_t row_bytes;
        assert_true(format_row_bytes(f, (uint64_t)n_in, &row_bytes));
        weights_make(f, n_out, n_in, (size_t)row_bytes, wb, wild, r);
        activations_make(n_rows, n_in, xb, wild, r);
        case_run(row, f, n_out, n_in, n_rows);
    }
    // The largest sums of all: both operands at their ends, over the longest row.
    for (int ends = 0; ends < 4; ends++) {
        uint64_t row_bytes;
        assert_true(format_row_bytes(f, IN_MAX, &row_bytes));
        weights_make(f, 17, IN_MAX, (size_t)row_bytes, ends & 1 ? BYTES_LOW : BYTES_HIGH, false, r);
        activations_make(first, IN_MAX, ends & 2 ? BYTES_LOW : BYTES_HIGH, false, r);
        case_run(row, f, 17, IN_MAX, first);
    }
}

static void test_extremes(void **state) {
    (void)state;
    struct kernel_rng r = {20240701};
    int n_run = 0;
    for (int k = 0; k < kernel_rows_count; k++) {
        const struct kernel_row *row = &kernel_rows[k];
        if (!strstr(row->name, "k_linear_") || !cpu_pack_is_int8((enum cpu_pack)row->pack)) continue;
        if ((cpu_isa_present() & row->isa) == 0) continue;
        for (int i = 0; i < FORMAT_COUNT; i++) {
            const enum format f = (enum format)i;
            if ((int)cpu_pack_for(f, PROG_CLASS_INT8) != row->pack) continue;
            row_check(row, f, &r);
            n_run++;
        }
    }
    assert_true(n_run >= 93);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_extremes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
