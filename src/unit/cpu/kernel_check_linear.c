// Check and bench of the linear rows: for every weight format that lands in the row's pack, random matrices of awkward
// shapes are packed and multiplied, and each output is compared by bits with op/'s reference on the unpacked rows.
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"
#include <math.h>

#define GUARD 16 // floats after each row of y that must stay as they are
#define GUARD_VALUE 12345.0f
#define OWN_SUMS_ERROR_MAX 2e-2 // relative to the norm; 8 significant bits per product leave about 2e-3 on these shapes

struct linear_case {
    const struct kernel_row *row;
    enum format format;
    int n_out, n_in, n_rows;
    size_t row_bytes, q_stride, x_stride, scale_stride, y_stride;
    uint8_t *w, *packed;
    float *x, *scale, *y, *want, *scratch_row;
    int8_t *q;
    int32_t *sum;
    struct cpu_matrix matrix;
    struct cpu_linear_args args;
    struct arena arena;
};

static void case_inputs(struct linear_case *c, struct kernel_rng *r, bool extremes) {
    // Magnitudes from where half-precision scales become subnormal up to large ones.
    static const float magnitudes[] = {0.05f, 1.0f, 1e-6f, 3e3f};
    for (int o = 0; o < c->n_out; o++) {
        kernel_rng_fill(r, c->scratch_row, c->n_in, magnitudes[extremes ? kernel_rng_below(r, 4) : 0]);
        if (extremes && kernel_rng_below(r, 8) == 0) memset(c->scratch_row, 0, (size_t)c->n_in * sizeof(float));
        op_quantise_weights(c->format, c->scratch_row, c->n_in, c->w + (size_t)o * c->row_bytes);
    }
    for (int i = 0; i < c->n_rows; i++) {
        float *x = c->x + (size_t)i * c->x_stride;
        kernel_rng_fill(r, x, c->n_in, 1.0f);
        if (extremes && kernel_rng_below(r, 2) == 0) kernel_rng_extremes(r, x, c->n_in);
        if (extremes && kernel_rng_below(r, 4) == 0) memset(x, 0, (size_t)c->n_in * sizeof(float));
    }
}

static void case_quantise(struct linear_case *c) {
    if (!cpu_pack_is_int8((enum cpu_pack)c->row->pack)) return;
    int n_padded = int_round_up(c->n_in, OP_GROUP);
    for (int i = 0; i < c->n_rows; i++) {
        const float *x = c->x + (size_t)i * c->x_stride;
        int8_t *q = c->q + (size_t)i * c->q_stride;
        float *scale = c->scale + (size_t)i * c->scale_stride;
        int32_t *sum = c->sum + (size_t)i * 2 * c->scale_stride;
        if (c->row->pack == CPU_PACK_I8C) {
            op_quantise_row_whole(x, c->n_in, q, scale);
            *sum = 0;
            for (int j = 0; j < c->n_in; j++) *sum += q[j];
        } else {
            op_quantise_row(x, n_padded, q, scale, sum);
        }
    }
}

static enum tern_status case_pack(struct linear_case *c, struct tern_err *err) {
    enum cpu_pack pack = (enum cpu_pack)c->row->pack;
    size_t tile_bytes;
    if (!cpu_pack_tile_bytes(pack, c->n_in, &tile_bytes)) return err_set(err, TERN_MISMATCH, "tile of %d", c->n_in);
    int n_tiles = int_div_up(c->n_out, CPU_TILE);
    c->packed = arena_calloc(&c->arena, (size_t)n_tiles, tile_bytes);
    void *scratch = arena_alloc(&c->arena, cpu_pack_scratch_bytes(c->n_in));
    if (!c->packed || !scratch) return err_set(err, TERN_NO_MEMORY, "no memory for a kernel check");
    c->matrix = (struct cpu_matrix){.pack = pack,
                                    .bf16_scales = cpu_pack_bf16_scales(c->format),
                                    .n_out = c->n_out,
                                    .n_in = c->n_in,
                                    .n_tiles = n_tiles,
                                    .tile_bytes = tile_bytes,
                                    .data = c->packed};
    for (int t = 0; t < n_tiles; t++)
        cpu_pack_tile(pack, c->format, c->w, c->row_bytes, c->n_out, c->n_in, (int64_t)t * CPU_TILE,
                      c->packed + (size_t)t * tile_bytes, scratch);
    return TERN_OK;
}

static enum tern_status case_init(struct linear_case *c, const struct kernel_row *row, enum format f, int n_out,
                                  int n_in, int n_rows, struct tern_err *err) {
    *c = (struct linear_case){.row = row, .format = f, .n_out = n_out, .n_in = n_in, .n_rows = n_rows};
    arena_init(&c->arena, 0);
    uint64_t row_bytes;
    if (!format_row_bytes(f, (uint64_t)n_in, &row_bytes)) return err_set(err, TERN_MISMATCH, "row of %d", n_in);
    c->row_bytes = (size_t)row_bytes;
    c->q_stride = c->x_stride = (size_t)int_round_up(n_in, 64);
    c->scale_stride = c->q_stride / OP_GROUP;
    c->y_stride = (size_t)int_round_up(n_out, CPU_TILE) + GUARD;
    size_t rows = (size_t)n_rows;
    c->w = arena_calloc(&c->arena, (size_t)n_out, c->row_bytes);
    c->x = arena_calloc(&c->arena, rows * c->x_stride, sizeof(float));
    c->q = arena_calloc(&c->arena, rows * c->q_stride, 1);
    c->scale = arena_calloc(&c->arena, rows * c->scale_stride, sizeof(float));
    c->sum = arena_calloc(&c->arena, rows * 2 * c->scale_stride, sizeof(int32_t));
    c->y = arena_calloc(&c->arena, rows * c->y_stride, sizeof(float));
    c->want = arena_calloc(&c->arena, (size_t)n_out, sizeof(float));
    c->scratch_row = arena_calloc(&c->arena, (size_t)n_in, sizeof(float));
    if (!c->w || !c->x || !c->q || !c->scale || !c->sum || !c->y || !c->want || !c->scratch_row)
        return err_set(err, TERN_NO_MEMORY, "no memory for a kernel check");
    return TERN_OK;
}

static void case_args(struct linear_case *c, int tile_begin, int tile_end) {
    c->args = (struct cpu_linear_args){.m = &c->matrix,
                                       .tile_begin = tile_begin,
                                       .tile_end = tile_end,
                                       .n_rows = c->n_rows,
                                       .q = c->q,
                                       .q_stride = c->q_stride,
                                       .scale = c->scale,
                                       .scale_stride = c->scale_stride,
                                       .sum = c->sum,
                                       .x = c->x,
                                       .x_stride = c->x_stride,
                                       .y = c->y,
                                       .y_stride = c->y_stride};
}

static void case_call(void *arg) {
    const struct linear_case *c = arg;
    ((cpu_linear_fn)c->row->fn)(&c->args);
}

static enum tern_status compare_own_sums(const struct linear_case *c, const float *have, int n, struct tern_err *err) {
    double error = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)have[i] - (double)c->want[i];
        error += d * d;
        norm += (double)c->want[i] * (double)c->want[i];
    }
    if (sqrt(error) <= OWN_SUMS_ERROR_MAX * sqrt(norm)) return TERN_OK;
    return err_set(err, TERN_MISMATCH, "%s: relative error %.3g, at most %.3g is allowed (%s, n_in %d)", c->row->name,
                   sqrt(error / norm), OWN_SUMS_ERROR_MAX, format_table[c->format].name, c->n_in);
}

// Runs tiles [tile_begin, tile_end) and judges every row of y, the guard behind it included.
static enum tern_status case_judge(struct linear_case *c, int tile_begin, int tile_end, struct tern_err *err) {
    for (size_t i = 0; i < (size_t)c->n_rows * c->y_stride; i++) c->y[i] = GUARD_VALUE;
    case_args(c, tile_begin, tile_end);
    case_call(c);
    int first = tile_begin * CPU_TILE, n = MIN(tile_end * CPU_TILE, c->n_out) - first;
    const uint8_t *w = c->w + (size_t)first * c->row_bytes;
    for (int i = 0; i < c->n_rows; i++) {
        size_t at = (size_t)i;
        if (cpu_pack_is_int8(c->matrix.pack))
            op_linear_int8(c->format, w, n, c->n_in, c->q + at * c->q_stride, c->scale + at * c->scale_stride,
                           c->sum + at * 2 * c->scale_stride, c->want);
        else if (c->matrix.pack == CPU_PACK_BF16_PAIRS)
            op_linear_bf16(c->row->flags & KERNEL_BF16_TILES ? OP_BF16_TILES : OP_BF16_PAIRS, w, n, c->n_in,
                           c->x + at * c->x_stride, c->want);
        else
            op_linear_fp32(c->format, w, n, c->n_in, c->x + at * c->x_stride, c->want);
        const float *have = c->y + at * c->y_stride;
        enum tern_status status = c->row->flags & KERNEL_OWN_SUMS ? compare_own_sums(c, have, n, err)
                                                                  : kernel_compare(c->row, "y", have, c->want, n, err);
        if (status != TERN_OK) {
            err_prefix(err, "%s, n_in %d, row %d of %d, tiles %d-%d", format_table[c->format].name, c->n_in, i,
                       c->n_rows, tile_begin, tile_end);
            return status;
        }
        for (int j = (tile_end - tile_begin) * CPU_TILE; j < (int)c->y_stride; j++)
            if (have[j] != GUARD_VALUE)
                return err_set(err, TERN_MISMATCH, "%s: wrote past its tiles at float %d", c->row->name, j);
    }
    return TERN_OK;
}

static enum tern_status check_shape(const struct kernel_row *row, enum format f, int n_out, int n_in, int n_rows,
                                    struct kernel_rng *r, struct tern_err *err) {
    struct linear_case c;
    enum tern_status status = case_init(&c, row, f, n_out, n_in, n_rows, err);
    for (int pass = 0; status == TERN_OK && pass < 2; pass++) {
        // Own-sums kernels are judged by a norm, which extreme values would fill alone.
        case_inputs(&c, r, pass == 1 && !(row->flags & KERNEL_OWN_SUMS));
        case_quantise(&c);
        status = case_pack(&c, err);
        if (status == TERN_OK) status = case_judge(&c, 0, c.matrix.n_tiles, err);
        if (status == TERN_OK && c.matrix.n_tiles > 1) {
            int begin = kernel_rng_below(r, c.matrix.n_tiles);
            int end = begin + 1 + kernel_rng_below(r, c.matrix.n_tiles - begin);
            status = case_judge(&c, begin, end, err);
        }
    }
    arena_release(&c.arena);
    return status;
}

static int rows_pick(int rows_class, int i, struct kernel_rng *r) {
    if (rows_class == 0) return 1;
    if (rows_class == 1) return 2 + i % (CPU_ROWS_FEW - 1);
    return CPU_ROWS_FEW + 1 + (i % 2 == 0 ? kernel_rng_below(r, 16) : kernel_rng_below(r, 80));
}

static enum tern_status bench(const struct kernel_row *row, enum format f, struct kernel_trial *t,
                              struct tern_err *err) {
    static const int bench_rows[CPU_ROWS_CLASSES] = {1, 8, 128};
    struct linear_case c;
    struct kernel_rng r = {t->seed};
    // One row reads 8 MiB and more, past the cores' own caches; many rows work on what a thread's share may be.
    enum tern_status status = case_init(&c, row, f, 4096, 4096, bench_rows[row->rows_class], err);
    if (status == TERN_OK) {
        case_inputs(&c, &r, false);
        case_quantise(&c);
        status = case_pack(&c, err);
    }
    if (status == TERN_OK) {
        case_args(&c, 0, c.matrix.n_tiles);
        double bytes = (double)c.matrix.tile_bytes * c.matrix.n_tiles;
        double ops = 2.0 * c.n_out * c.n_in * c.n_rows;
        if (row->rows_class == 0)
            kernel_time(t, case_call, &c, bytes * 1e-9, "GB/s");
        else
            kernel_time(t, case_call, &c, ops * 1e-9, "GOP/s");
    }
    arena_release(&c.arena);
    return status;
}

enum tern_status kernel_check_linear(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    static const int n_outs[] = {16, 1, 40, 100, 64};
    static const int n_blocks[] = {1, 2, 3, 5, 8};
    struct kernel_rng r = {t->seed};
    bool served = false;
    for (int i = 0; i < FORMAT_COUNT * 2; i++) {
        enum format f = (enum format)(i / 2);
        enum prog_class numerics = i % 2 ? PROG_CLASS_FP32 : PROG_CLASS_INT8;
        if (row->pack == CPU_PACK_BF16_PAIRS) numerics = PROG_CLASS_BF16;
        if ((int)cpu_pack_for(f, numerics) != row->pack) continue;
        served = true;
        if (t->bench_seconds > 0) return bench(row, f, t, err);
        int block = format_table[f].n_block;
        // Every format lands in the floats' pack in the fp32 class: few shapes of each do.
        int n_shapes = numerics == PROG_CLASS_FP32 && !format_is_float(f) ? 2 : 12;
        for (int j = 0; j < n_shapes; j++) {
            // Formats without blocks also meet lengths that no vector divides.
            int n_in = n_blocks[kernel_rng_below(&r, 5)] * (block > 1 ? block : 1 + kernel_rng_below(&r, 70));
            TRY(check_shape(row, f, n_outs[j % 5], n_in, rows_pick(row->rows_class, j, &r), &r, err));
        }
    }
    if (!served) return err_set(err, TERN_MISMATCH, "%s: no weight format uses its pack", row->name);
    return TERN_OK;
}
