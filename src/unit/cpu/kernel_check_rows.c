// Checks and benches of the row kernels: each runs against the op/ function of its name on lengths around every vector
// width, with ordinary and with extreme values, and must give the same bits.
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"

#define N_MAX 1100   // longest row of a check, floats
#define BENCH_N 4096 // row of a bench, floats: in the first-level cache or nearly so
#define GUARD 64     // bytes behind outputs that must stay as they are
#define GUARD_BYTE 0x5a

// Buffers of all families. Inputs a, b, w; outputs y (kernel) and z (reference), both with a guard behind them.
struct rows_case {
    const struct kernel_row *row;
    struct kernel_rng rng;
    int n;
    float *a, *b, *w, *y, *z;
    int8_t *qy, *qz;
    int32_t *sy, *sz;
    struct arena arena;
};

static enum tern_status case_open(struct rows_case *c, const struct kernel_row *row, const struct kernel_trial *t,
                                  struct tern_err *err) {
    *c = (struct rows_case){.row = row, .rng = {t->seed}};
    arena_init(&c->arena, 0);
    size_t floats = (size_t)MAX(3 * BENCH_N, OP_CONV_LEN_MAX * N_MAX) + GUARD;
    float **all[] = {&c->a, &c->b, &c->w, &c->y, &c->z};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (!(*all[i] = arena_calloc(&c->arena, floats, sizeof(float)))) goto fail;
    c->qy = arena_calloc(&c->arena, floats, 1);
    c->qz = arena_calloc(&c->arena, floats, 1);
    c->sy = arena_calloc(&c->arena, floats, sizeof(int32_t));
    c->sz = arena_calloc(&c->arena, floats, sizeof(int32_t));
    if (c->qy && c->qz && c->sy && c->sz) return TERN_OK;
fail:
    arena_release(&c->arena);
    return err_set(err, TERN_NO_MEMORY, "no memory for a kernel check");
}

// The i-th length to try: 1 … 70, then odd ones, then those of models.
static int length_of(int i) {
    static const int more[] = {96, 127, 255, 256, 257, 512, 576, 1000, 1024, 1088};
    return i < 70 ? i + 1 : more[i - 70];
}
#define N_LENGTHS 80

static void inputs(struct rows_case *c, int n, int variant) {
    static const float magnitudes[] = {1.0f, 1e-3f, 40.0f, 1e-20f};
    float *all[] = {c->a, c->b, c->w};
    c->n = n;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        kernel_rng_fill(&c->rng, all[i], n, magnitudes[variant]);
        if (variant > 0 && kernel_rng_below(&c->rng, 2) == 0) kernel_rng_extremes(&c->rng, all[i], n);
    }
    memset(c->y, GUARD_BYTE, (size_t)n * sizeof(float) + GUARD);
    memset(c->z, GUARD_BYTE, (size_t)n * sizeof(float) + GUARD);
}

static enum tern_status guard_check(const struct rows_case *c, const void *end, struct tern_err *err) {
    for (int i = 0; i < GUARD; i++)
        if (((const uint8_t *)end)[i] != GUARD_BYTE)
            return err_set(err, TERN_MISMATCH, "%s: wrote past its output of %d values", c->row->name, c->n);
    return TERN_OK;
}

static enum tern_status judge(const struct rows_case *c, const char *what, struct tern_err *err) {
    TRY(kernel_compare(c->row, what, c->y, c->z, c->n, err));
    return guard_check(c, c->y + c->n, err);
}

// ---------------------------------------------------------------------------------------------------- quantise

static void quantise_call(void *arg) {
    struct rows_case *c = arg;
    ((cpu_quantise_fn)c->row->fn)(c->a, c->n, c->qy, c->y, c->sy);
}

static enum tern_status quantise_judge(struct rows_case *c, bool with_sums, int n_scales, struct tern_err *err) {
    for (int i = 0; i < c->n; i++)
        if (c->qy[i] != c->qz[i])
            return err_set(err, TERN_MISMATCH, "%s: q[%d] of %d is %d, the reference says %d", c->row->name, i, c->n,
                           c->qy[i], c->qz[i]);
    for (int i = 0; with_sums && i < c->n / 16; i++)
        if (c->sy[i] != c->sz[i])
            return err_set(err, TERN_MISMATCH, "%s: sum[%d] is %d, the reference says %d", c->row->name, i, c->sy[i],
                           c->sz[i]);
    TRY(kernel_compare(c->row, "scale", c->y, c->z, n_scales, err));
    TRY(guard_check(c, c->qy + c->n, err));
    return guard_check(c, c->y + n_scales, err);
}

// Values that fall on ties of rounding: multiples of half a step.
static void ties(struct rows_case *c, int n) {
    inputs(c, n, 0);
    for (int i = 0; i < n; i++) c->a[i] = ((float)kernel_rng_below(&c->rng, 509) - 254.0f) * 0.5f;
    for (int i = 0; i < n; i += OP_GROUP) c->a[i] = 127.0f;
}

enum tern_status kernel_check_quantise(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    struct rows_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    if (t->bench_seconds > 0) {
        inputs(&c, BENCH_N, 0);
        kernel_time(t, quantise_call, &c, BENCH_N * 1e-9, "Gvalues/s");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < 35 * 5; i++) {
        int n = OP_GROUP * (1 + i % 35);
        if (i / 35 == 4)
            ties(&c, n);
        else
            inputs(&c, n, i / 35);
        memset(c.qy, GUARD_BYTE, (size_t)n + GUARD);
        quantise_call(&c);
        op_quantise_row(c.a, n, c.qz, c.z, c.sz);
        status = quantise_judge(&c, true, n / OP_GROUP, err);
    }
    arena_release(&c.arena);
    return status;
}

static void quantise_whole_call(void *arg) {
    struct rows_case *c = arg;
    ((cpu_quantise_whole_fn)c->row->fn)(c->a, c->n, c->qy, c->y, c->sy);
}

enum tern_status kernel_check_quantise_whole(const struct kernel_row *row, struct kernel_trial *t,
                                             struct tern_err *err) {
    struct rows_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    if (t->bench_seconds > 0) {
        inputs(&c, BENCH_N, 0);
        kernel_time(t, quantise_whole_call, &c, BENCH_N * 1e-9, "Gvalues/s");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_LENGTHS * 5; i++) {
        int n = length_of(i % N_LENGTHS);
        if (i / N_LENGTHS == 4)
            ties(&c, n);
        else
            inputs(&c, n, i / N_LENGTHS);
        memset(c.qy, GUARD_BYTE, (size_t)n + GUARD);
        quantise_whole_call(&c);
        op_quantise_row_whole(c.a, n, c.qz, c.z);
        int32_t sum = 0;
        for (int j = 0; j < n; j++) sum += c.qz[j];
        status = quantise_judge(&c, false, 1, err);
        if (status == TERN_OK && c.sy[0] != sum)
            status = err_set(err, TERN_MISMATCH, "%s: sum %d of %d values, expected %d", row->name, c.sy[0], n, sum);
    }
    arena_release(&c.arena);
    return status;
}

// ---------------------------------------------------------------------------------------------------- one in, one out

typedef void (*rows_fn)(void *arg);
struct rows_kind {
    rows_fn kernel, reference;
    int n_min, n_max, n_step; // lengths; step 2: even ones only
    int bench_n;
};

static enum tern_status check_kind(const struct kernel_row *row, struct kernel_trial *t, const struct rows_kind *kind,
                                   struct tern_err *err) {
    struct rows_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    if (t->bench_seconds > 0) {
        inputs(&c, kind->bench_n, 0);
        kernel_time(t, kind->kernel, &c, kind->bench_n * 1e-9, "Gvalues/s");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_LENGTHS * 4; i++) {
        int n = length_of(i % N_LENGTHS);
        if (n < kind->n_min || n > kind->n_max || n % kind->n_step != 0) continue;
        inputs(&c, n, i / N_LENGTHS);
        kind->kernel(&c);
        kind->reference(&c);
        status = judge(&c, "y", err);
    }
    arena_release(&c.arena);
    return status;
}

static void rmsnorm_call(void *arg) {
    struct rows_case *c = arg;
    ((cpu_rmsnorm_fn)c->row->fn)(c->a, c->w, c->n, 1e-5f, c->y);
}
static void rmsnorm_reference(void *arg) {
    struct rows_case *c = arg;
    op_rmsnorm(c->a, c->w, c->n, 1e-5f, c->z);
}
enum tern_status kernel_check_rmsnorm(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    static const struct rows_kind kind = {rmsnorm_call, rmsnorm_reference, 1, N_MAX, 1, BENCH_N};
    return check_kind(row, t, &kind, err);
}

static void swiglu_call(void *arg) {
    struct rows_case *c = arg;
    ((cpu_swiglu_fn)c->row->fn)(c->a, c->b, c->n, c->y);
}
static void swiglu_reference(void *arg) {
    struct rows_case *c = arg;
    op_swiglu(c->a, c->b, c->n, c->z);
}
enum tern_status kernel_check_swiglu(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    static const struct rows_kind kind = {swiglu_call, swiglu_reference, 1, N_MAX, 1, BENCH_N};
    return check_kind(row, t, &kind, err);
}

static void geglu_reference(void *arg) {
    struct rows_case *c = arg;
    op_geglu(c->a, c->b, c->n, c->z);
}
enum tern_status kernel_check_geglu(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    static const struct rows_kind kind = {swiglu_call, geglu_reference, 1, N_MAX, 1, BENCH_N};
    return check_kind(row, t, &kind, err);
}

// In place, so both begin with b.
static void axpy_call(void *arg) {
    struct rows_case *c = arg;
    memcpy(c->y, c->b, (size_t)c->n * sizeof(float));
    ((cpu_axpy_fn)c->row->fn)(c->w[0], c->a, c->n, c->y);
}
static void axpy_reference(void *arg) {
    struct rows_case *c = arg;
    memcpy(c->z, c->b, (size_t)c->n * sizeof(float));
    op_axpy(c->w[0], c->a, c->n, c->z);
}
enum tern_status kernel_check_axpy(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    static const struct rows_kind kind = {axpy_call, axpy_reference, 1, N_MAX, 1, BENCH_N};
    return check_kind(row, t, &kind, err);
}

static void add_call(void *arg) {
    struct rows_case *c = arg;
    ((cpu_add_fn)c->row->fn)(c->a, c->b, c->n, c->y);
}
static void add_reference(void *arg) {
    struct rows_case *c = arg;
    op_add(c->a, c->b, c->n, c->z);
}
enum tern_status kernel_check_add(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    static const struct rows_kind kind = {add_call, add_reference, 1, N_MAX, 1, BENCH_N};
    return check_kind(row, t, &kind, err);
}

// [B | C | X] is made of a, b and w, laid into one row behind y.
static void conv_gate_call(void *arg) {
    struct rows_case *c = arg;
    ((cpu_conv_gate_fn)c->row->fn)(c->a, c->n / 3, c->y);
}
enum tern_status kernel_check_conv_gate(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    struct rows_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    if (t->bench_seconds > 0) {
        inputs(&c, 3 * BENCH_N, 0);
        kernel_time(t, conv_gate_call, &c, BENCH_N * 1e-9, "Gvalues/s");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_LENGTHS * 4; i++) {
        int n = length_of(i % N_LENGTHS);
        inputs(&c, 3 * n, i / N_LENGTHS);
        conv_gate_call(&c);
        op_conv_gate(c.a, n, c.z);
        c.n = n;
        status = judge(&c, "u", err);
    }
    arena_release(&c.arena);
    return status;
}

// ---------------------------------------------------------------------------------------------------- heads

struct rope_case {
    struct rows_case *rows;
    const float *w, *table;
    bool interleaved;
    float factor;
};

static void rope_call(void *arg) {
    const struct rope_case *r = arg;
    const struct rows_case *c = r->rows;
    memcpy(c->y, c->a, (size_t)c->n * sizeof(float)); // in place: each call starts anew
    ((cpu_qk_norm_rope_fn)c->row->fn)(c->y, c->n, r->w, 1e-5f, r->table, r->interleaved, r->factor);
}

enum tern_status kernel_check_qk_norm_rope(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    struct rows_case c;
    TRY(case_open(&c, row, t, err));
    struct rope_case rope = {.rows = &c, .table = c.b, .factor = 0.125f};
    enum tern_status status = TERN_OK;
    if (t->bench_seconds > 0) {
        inputs(&c, 64, 0);
        rope.w = c.w;
        kernel_time(t, rope_call, &rope, 64 * 1e-9, "Gvalues/s");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_LENGTHS * 16; i++) {
        int n = length_of(i % N_LENGTHS), variant = i / N_LENGTHS;
        if (n % 2 != 0 || n > OP_HEAD_DIM_MAX) continue;
        inputs(&c, n, variant & 3);
        memcpy(c.z, c.a, (size_t)n * sizeof(float));
        rope.w = variant & 4 ? c.w : NULL;
        rope.interleaved = (variant & 8) != 0;
        rope.factor = i % 3 == 0 ? 1.0f : 0.1767767f;
        rope_call(&rope);
        op_qk_norm_rope(c.z, n, rope.w, 1e-5f, rope.table, rope.interleaved);
        for (int j = 0; j < n; j++) c.z[j] *= rope.factor;
        status = judge(&c, rope.interleaved ? "interleaved head" : "half-split head", err);
    }
    arena_release(&c.arena);
    return status;
}

// ---------------------------------------------------------------------------------------------------- short
// convolution

struct conv_case {
    struct rows_case *rows;
    const float *u[OP_CONV_LEN_MAX];
    float *taps_by_tap; // [len][n]
    int len;
};

static void conv_call(void *arg) {
    const struct conv_case *k = arg;
    const struct rows_case *c = k->rows;
    ((cpu_short_conv_fn)c->row->fn)(k->u, k->taps_by_tap, k->len, c->n, c->w, c->y);
}

static void conv_setup(struct conv_case *k, int len, int n, int variant) {
    struct rows_case *c = k->rows;
    k->len = len;
    inputs(c, n, variant);
    kernel_rng_fill(&c->rng, c->a, len * n, 1.0f);
    kernel_rng_fill(&c->rng, c->b, len * n, 1.0f);
    if (variant > 0) kernel_rng_extremes(&c->rng, c->a, len * n);
    for (int j = 0; j < len; j++) {
        k->u[j] = kernel_rng_below(&c->rng, 6) == 0 ? NULL : c->a + (size_t)j * (size_t)n;
        for (int i = 0; i < n; i++) k->taps_by_tap[j * n + i] = c->b[i * len + j];
    }
}

enum tern_status kernel_check_short_conv(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    struct rows_case c;
    TRY(case_open(&c, row, t, err));
    struct conv_case k = {.rows = &c};
    k.taps_by_tap = arena_calloc(&c.arena, (size_t)MAX(3 * BENCH_N, OP_CONV_LEN_MAX * N_MAX), sizeof(float));
    enum tern_status status = k.taps_by_tap ? TERN_OK : err_set(err, TERN_NO_MEMORY, "no memory for a kernel check");
    if (status == TERN_OK && t->bench_seconds > 0) {
        conv_setup(&k, 3, BENCH_N, 0);
        kernel_time(t, conv_call, &k, BENCH_N * 1e-9, "Gvalues/s");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_LENGTHS * 4; i++) {
        int n = length_of(i % N_LENGTHS);
        conv_setup(&k, 1 + kernel_rng_below(&c.rng, i % 8 == 0 ? OP_CONV_LEN_MAX : 4), n, i / N_LENGTHS);
        conv_call(&k);
        op_short_conv(k.u, c.b, k.len, n, c.w, c.z);
        status = judge(&c, "y", err);
    }
    arena_release(&c.arena);
    return status;
}

// ---------------------------------------------------------------------------------------------------- choice

static void argmax_call(void *arg) {
    struct rows_case *c = arg;
    ((cpu_argmax_fn)c->row->fn)(c->a, c->n, c->y);
}

static enum tern_status argmax_judge(struct rows_case *c, struct tern_err *err) {
    c->y[0] = c->z[0] = 0.0f;
    int32_t have = ((cpu_argmax_fn)c->row->fn)(c->a, c->n, c->y), want = op_argmax(c->a, c->n, c->z);
    if (have != want)
        return err_set(err, TERN_MISMATCH, "%s: index %d of %d, the reference says %d", c->row->name, (int)have, c->n,
                       (int)want);
    return kernel_compare(c->row, "max", c->y, c->z, want >= 0 ? 1 : 0, err);
}

enum tern_status kernel_check_argmax(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    struct rows_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    if (t->bench_seconds > 0) {
        inputs(&c, BENCH_N, 0);
        kernel_time(t, argmax_call, &c, BENCH_N * 1e-9, "Gvalues/s");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_LENGTHS * 8; i++) {
        int n = length_of(i % N_LENGTHS), variant = i / N_LENGTHS;
        inputs(&c, n, variant & 3);
        // Few distinct values make ties; then only NaN, or only -infinity.
        for (int j = 0; variant >= 4 && j < n; j++) {
            if (variant == 4) c.a[j] = (float)kernel_rng_below(&c.rng, 3) - 1.0f;
            if (variant == 5) c.a[j] = f32_from_bits(0x7fc00000u);
            if (variant == 6) c.a[j] = f32_from_bits(0xff800000u);
            if (variant == 7) c.a[j] = kernel_rng_below(&c.rng, 2) ? 0.0f : -0.0f;
        }
        status = argmax_judge(&c, err);
    }
    arena_release(&c.arena);
    return status;
}
