// Checks and benches of the attention kernels: K/V blocks are written by op/'s reference, with noise (NaN bits too) at
// the positions that a kernel must not look at; every partial must have the reference's bits.
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"

static const int head_dims[] = {64, 2, 16, 30, 80, 96, 128, 192, 256};
#define N_HEAD_DIMS ((int)ARRAY_LEN(head_dims))

struct attn_case {
    const struct kernel_row *row;
    enum op_kv_type type;
    struct kernel_rng rng;
    int n_q, n_pos[CPU_ATTN_QUERIES], head_dim;
    int pos; // that is written
    bool join;
    size_t half_bytes;
    uint8_t *k_half, *v_half, *k_want, *v_want; // [half_bytes max]
    float *values;                              // [2][OP_HEAD_DIM_MAX]
    float *q[CPU_ATTN_QUERIES];                 // [OP_HEAD_DIM_MAX] each
    struct op_attn_part *parts[CPU_ATTN_QUERIES], *want;
    struct arena arena;
};

static enum tern_status case_open(struct attn_case *c, const struct kernel_row *row, const struct kernel_trial *t,
                                  struct tern_err *err) {
    *c = (struct attn_case){.row = row, .type = (enum op_kv_type)row->param, .rng = {t->seed}};
    arena_init(&c->arena, 0);
    size_t bytes = op_kv_half_bytes(c->type, OP_HEAD_DIM_MAX) + 64;
    uint8_t **halves[] = {&c->k_half, &c->v_half, &c->k_want, &c->v_want};
    for (size_t i = 0; i < ARRAY_LEN(halves); i++)
        if (!(*halves[i] = arena_calloc(&c->arena, bytes, 1))) goto fail;
    c->values = arena_calloc(&c->arena, 2 * OP_HEAD_DIM_MAX, sizeof(float));
    c->want = arena_calloc(&c->arena, CPU_ATTN_QUERIES, sizeof *c->want);
    if (!c->values || !c->want) goto fail;
    for (int i = 0; i < CPU_ATTN_QUERIES; i++) {
        c->q[i] = arena_calloc(&c->arena, OP_HEAD_DIM_MAX, sizeof(float));
        c->parts[i] = arena_calloc(&c->arena, 1, sizeof *c->parts[i]);
        if (!c->q[i] || !c->parts[i]) goto fail;
    }
    return TERN_OK;
fail:
    arena_release(&c->arena);
    return err_set(err, TERN_NO_MEMORY, "no memory for a kernel check");
}

static void noise(struct attn_case *c, uint8_t *half) {
    for (size_t i = 0; i < c->half_bytes; i++) half[i] = (uint8_t)kernel_rng_next(&c->rng);
    if (kernel_rng_below(&c->rng, 2) == 0) memset(half, 0xff, c->half_bytes); // NaN in every type
}

static void block_setup(struct attn_case *c, int head_dim, int n_q, int n_pos, float scale) {
    c->head_dim = head_dim;
    c->n_q = n_q;
    c->join = kernel_rng_below(&c->rng, 2) == 0;
    c->n_pos[n_q - 1] = n_pos;
    for (int i = n_q - 2; i >= 0; i--) // alike, or rising
        c->n_pos[i] =
            kernel_rng_below(&c->rng, 3) == 0 ? 1 + kernel_rng_below(&c->rng, c->n_pos[i + 1]) : c->n_pos[i + 1];
    c->half_bytes = op_kv_half_bytes(c->type, head_dim);
    noise(c, c->k_half);
    noise(c, c->v_half);
    for (int p = 0; p < n_pos; p++) {
        kernel_rng_fill(&c->rng, c->values, 2 * OP_HEAD_DIM_MAX, p % 5 == 4 ? 1e-6f : 1.0f);
        op_kv_write(c->type, c->k_half, c->v_half, p, c->values, c->values + OP_HEAD_DIM_MAX, head_dim);
    }
    for (int i = 0; i < n_q; i++) kernel_rng_fill(&c->rng, c->q[i], head_dim, scale);
}

static void block_call(void *arg) {
    struct attn_case *c = arg;
    const float *q[CPU_ATTN_QUERIES];
    for (int i = 0; i < c->n_q; i++) q[i] = c->q[i];
    ((cpu_attention_block_fn)c->row->fn)(q, c->n_q, c->k_half, c->v_half, c->k_want, c->v_want, c->n_pos, c->head_dim,
                                         c->join, c->parts);
}

static enum tern_status part_compare(const struct attn_case *c, const struct op_attn_part *have,
                                     const struct op_attn_part *want, struct tern_err *err) {
    enum tern_status status = TERN_OK;
    // Either zero may be the largest score: only differences to it are used.
    if (have->max != want->max) status = kernel_compare(c->row, "max", &have->max, &want->max, 1, err);
    if (status == TERN_OK) status = kernel_compare(c->row, "sum", &have->sum, &want->sum, 1, err);
    if (status == TERN_OK) status = kernel_compare(c->row, "out", have->out, want->out, c->head_dim, err);
    if (status != TERN_OK)
        err_prefix(err, "head_dim %d, %d queries, %d positions", c->head_dim, c->n_q, c->n_pos[c->n_q - 1]);
    return status;
}

static void part_fill(struct attn_case *c, struct op_attn_part *p, float scale) {
    p->max = kernel_rng_float(&c->rng) * scale;
    p->sum = 1.0f + (float)kernel_rng_below(&c->rng, 64);
    kernel_rng_fill(&c->rng, p->out, c->head_dim, p->sum);
}

static enum tern_status block_judge(struct attn_case *c, struct tern_err *err) {
    struct op_attn_part *want = c->want;
    for (int i = 0; i < CPU_ATTN_QUERIES; i++) {
        memset(c->parts[i], 0x5a, sizeof *c->parts[i]);
        if (c->join && i < c->n_q) part_fill(c, c->parts[i], 1.0f);
        want[i] = *c->parts[i];
    }
    block_call(c);
    for (int i = 0; i < c->n_q; i++) {
        struct op_attn_part part;
        op_attention_block(c->type, c->q[i], c->k_half, c->v_half, c->n_pos[i], c->head_dim, &part);
        if (c->join)
            op_attention_combine(&want[i], &part, c->head_dim);
        else
            want[i] = part;
        TRY(part_compare(c, c->parts[i], &want[i], err));
    }
    return TERN_OK;
}

enum tern_status kernel_check_attention_block(const struct kernel_row *row, struct kernel_trial *t,
                                              struct tern_err *err) {
    struct attn_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    if (t->bench_seconds > 0) {
        block_setup(&c, 64, 2, OP_BLOCK, 0.125f);
        // Two queries share a K/V head in the small models of the LFM2 family.
        kernel_time(t, block_call, &c, 2.0 * (double)c.half_bytes * 1e-9, "GB/s of K and V, 2 queries");
    }
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_HEAD_DIMS * 20; i++) {
        int n_q = 1 + kernel_rng_below(&c.rng, i % 2 == 0 ? 8 : CPU_ATTN_QUERIES);
        int n_pos = i % 3 == 0 ? OP_BLOCK : 1 + kernel_rng_below(&c.rng, OP_BLOCK);
        // Large scores drive most exponentials to their lower end.
        block_setup(&c, head_dims[i % N_HEAD_DIMS], n_q, n_pos, i % 4 == 3 ? 50.0f : 0.2f);
        status = block_judge(&c, err);
    }
    arena_release(&c.arena);
    return status;
}

// parts[i] := parts[i] with parts[i + half].
static void combine_call(void *arg) {
    struct attn_case *c = arg;
    const struct op_attn_part *b[CPU_ATTN_QUERIES];
    for (int i = 0; i < c->n_q; i++) b[i] = c->parts[CPU_ATTN_QUERIES / 2 + i];
    ((cpu_attention_combine_fn)c->row->fn)(c->parts, b, c->n_q, c->head_dim);
}

enum tern_status kernel_check_attention_combine(const struct kernel_row *row, struct kernel_trial *t,
                                                struct tern_err *err) {
    struct attn_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    const int half = CPU_ATTN_QUERIES / 2;
    c.head_dim = 64;
    c.n_q = 8;
    for (int i = 0; i < CPU_ATTN_QUERIES; i++) part_fill(&c, c.parts[i], 1.0f);
    if (t->bench_seconds > 0) kernel_time(t, combine_call, &c, 8 * 64 * 1e-9, "Gvalues/s");
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_HEAD_DIMS * 20; i++) {
        float scale = i % 4 == 3 ? 200.0f : 3.0f;
        c.head_dim = head_dims[i % N_HEAD_DIMS];
        c.n_q = 1 + kernel_rng_below(&c.rng, half);
        for (int j = 0; j < CPU_ATTN_QUERIES; j++) part_fill(&c, c.parts[j], scale);
        for (int j = 0; j < half; j++) c.want[j] = *c.parts[j];
        combine_call(&c);
        for (int j = 0; status == TERN_OK && j < half; j++) {
            if (j < c.n_q) op_attention_combine(&c.want[j], c.parts[half + j], c.head_dim);
            status = part_compare(&c, c.parts[j], &c.want[j], err);
        }
    }
    arena_release(&c.arena);
    return status;
}

static void finish_call(void *arg) {
    struct attn_case *c = arg;
    ((cpu_attention_finish_fn)c->row->fn)(c->parts[0], c->head_dim, c->values);
}

enum tern_status kernel_check_attention_finish(const struct kernel_row *row, struct kernel_trial *t,
                                               struct tern_err *err) {
    struct attn_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    c.head_dim = 64;
    part_fill(&c, c.parts[0], 1.0f);
    if (t->bench_seconds > 0) kernel_time(t, finish_call, &c, 64 * 1e-9, "Gvalues/s");
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_HEAD_DIMS * 4; i++) {
        c.head_dim = head_dims[i % N_HEAD_DIMS];
        part_fill(&c, c.parts[0], 1.0f);
        for (int d = 0; d < 2 * OP_HEAD_DIM_MAX; d++) c.values[d] = 7.0f;
        finish_call(&c);
        op_attention_finish(c.parts[0], c.head_dim, c.want->out);
        status = kernel_compare(row, "y", c.values, c.want->out, c.head_dim, err);
        for (int d = c.head_dim; status == TERN_OK && d < 2 * OP_HEAD_DIM_MAX; d++)
            if (c.values[d] != 7.0f) status = err_set(err, TERN_MISMATCH, "%s: wrote past its output", row->name);
    }
    arena_release(&c.arena);
    return status;
}

static void write_call(void *arg) {
    struct attn_case *c = arg;
    ((cpu_kv_write_fn)c->row->fn)(c->k_half, c->v_half, c->pos, c->values, c->values + OP_HEAD_DIM_MAX, c->head_dim);
}

enum tern_status kernel_check_kv_write(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err) {
    struct attn_case c;
    TRY(case_open(&c, row, t, err));
    enum tern_status status = TERN_OK;
    c.head_dim = 64;
    c.pos = 7;
    kernel_rng_fill(&c.rng, c.values, 2 * OP_HEAD_DIM_MAX, 1.0f);
    if (t->bench_seconds > 0) kernel_time(t, write_call, &c, 2 * 64 * 1e-9, "Gvalues/s");
    for (int i = 0; status == TERN_OK && t->bench_seconds <= 0 && i < N_HEAD_DIMS * 40; i++) {
        c.head_dim = head_dims[i % N_HEAD_DIMS];
        c.pos = kernel_rng_below(&c.rng, OP_BLOCK);
        c.half_bytes = op_kv_half_bytes(c.type, c.head_dim);
        noise(&c, c.k_half);
        noise(&c, c.v_half);
        memcpy(c.k_want, c.k_half, c.half_bytes + 64);
        memcpy(c.v_want, c.v_half, c.half_bytes + 64);
        kernel_rng_fill(&c.rng, c.values, 2 * OP_HEAD_DIM_MAX, i % 3 == 2 ? 1e-6f : 1.0f);
        if (i % 4 == 3) kernel_rng_extremes(&c.rng, c.values, 2 * OP_HEAD_DIM_MAX);
        write_call(&c);
        op_kv_write(c.type, c.k_want, c.v_want, c.pos, c.values, c.values + OP_HEAD_DIM_MAX, c.head_dim);
        if (memcmp(c.k_half, c.k_want, c.half_bytes + 64) != 0 || memcmp(c.v_half, c.v_want, c.half_bytes + 64) != 0)
            status =
                err_set(err, TERN_MISMATCH, "%s: stored bytes differ from the reference (head_dim %d, position %d)",
                        row->name, c.head_dim, c.pos);
    }
    arena_release(&c.arena);
    return status;
}
