// The structure that all runs of a model share: each use of a step is built here and compared field by field, and every
// rule of step_check is broken once.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "prog/prog.h"
#include "../../common/tiny_model.h"

#define WINDOW 64
#define Z STEP_TAP_ZERO
#define S(k) STEP_TAP_STORED(k)

struct bench {
    struct model *lfm2, *llama;
    struct arena arena;
    struct step_builder b, commit, flat; // flat: no taps
    struct state_pool pool, pool_llama;
    int32_t blocks[8][16]; // tables of eight sequences, all blocks their own
    struct prog *whole, *whole_llama, *commit_prog, *encoder, *linear, *fill;
    const struct step *step;
};
static struct bench *g;

// A pool is only looked at by number here, so its buffers need an address and no bytes.
static char any_buffer;
#define BUFFER ((struct unit_buffer *)(void *)&any_buffer)

static struct prog *prog_make(const struct model *m, struct prog_spec spec) {
    struct prog *p = NULL;
    struct tern_err err = {0};
    if (spec.window == 0) spec.window = WINDOW;
    if (prog_build(&p, m, &spec, &err) != TERN_OK) fail_msg("%s", err.message);
    return p;
}

static int setup(void **state) {
    (void)state;
    g = mem_calloc(1, sizeof(*g));
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    g->lfm2 = tiny_model_create(&shape);
    shape = tiny_llama_shape(FORMAT_F32, 2);
    g->llama = tiny_model_create(&shape);
    arena_init(&g->arena, 0);
    assert_int_equal(step_builder_init(&g->b, &g->arena, WINDOW, 3, 8, NULL), TERN_OK);
    assert_int_equal(step_builder_init(&g->commit, &g->arena, WINDOW, 3, 8, NULL), TERN_OK);
    assert_int_equal(step_builder_init(&g->flat, &g->arena, WINDOW, 0, 8, NULL), TERN_OK);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 16; j++) g->blocks[i][j] = (int32_t)(j * 8 + i);
    g->pool = (struct state_pool){.kv = BUFFER, .conv = BUFFER, .n_blocks = 128, .n_slots = 8};
    g->pool_llama = g->pool;
    state_layout_init(&g->pool.layout, g->lfm2, OP_KV_F16, 0, 6, WINDOW, NULL);
    state_layout_init(&g->pool_llama.layout, g->llama, OP_KV_F16, 0, 4, WINDOW, NULL);
    struct prog_spec spec = {.kind = PROG_WHOLE, .n_out_max = -1, .outputs = PROG_OUT_LOGITS};
    g->whole = prog_make(g->lfm2, spec);
    g->whole_llama = prog_make(g->llama, spec);
    g->fill = prog_make(g->lfm2, (struct prog_spec){.kind = PROG_WHOLE});
    g->commit_prog = prog_make(g->lfm2, (struct prog_spec){.kind = PROG_COMMIT});
    g->encoder = prog_make(g->lfm2, (struct prog_spec){.kind = PROG_ENCODER, .outputs = PROG_OUT_HIDDEN});
    g->linear = prog_make(g->lfm2, (struct prog_spec){.kind = PROG_LINEAR, .weight = g->lfm2->layers[0].ffn_gate});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    struct prog *all[] = {g->whole, g->whole_llama, g->commit_prog, g->encoder, g->linear, g->fill};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) prog_free(all[i]);
    tiny_model_free(g->lfm2);
    tiny_model_free(g->llama);
    arena_release(&g->arena);
    mem_free(g);
    return 0;
}

static void bind_ports(struct step *s) {
    for (size_t i = 0; i < ARRAY_LEN(s->ports); i++) s->ports[i].buf = BUFFER;
}

static void assert_fits(const struct prog *p, const struct step *s) {
    struct tern_err err = {0};
    if (step_check(p, s, &err) != TERN_OK) fail_msg("%s", err.message);
}

static void assert_row(const struct step *s, int row, int32_t token, int32_t pos, int32_t slot, int seq, int parent) {
    assert_in_range(row, 0, s->n_rows - 1);
    assert_int_equal(s->rows[row].token, token);
    assert_int_equal(s->rows[row].pos, pos);
    assert_int_equal(s->rows[row].slot, slot);
    assert_int_equal(s->rows[row].seq, seq);
    assert_int_equal(s->rows[row].parent, parent);
}

static void assert_taps(const struct step *s, int row, int t0, int t1, int t2) {
    const int16_t *t = s->taps + row * 3;
    assert_int_equal(t[0], t0);
    assert_int_equal(t[1], t1);
    assert_int_equal(t[2], t2);
}

// ---------------------------------------------------------------------------------------------------------- each use

static void test_prefill_fresh(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, 0);
    int seq = step_add_seq(&g->b, g->blocks[0], 16, 0, -1, 3);
    for (int i = 0; i < 40; i++) step_add_chain_row(&g->b, seq, 100 + i, i == 39);
    const struct step *s = step_end(&g->b);
    assert_int_equal(s->n_rows, 40);
    assert_int_equal(s->n_taps, 3);
    assert_row(s, 0, 100, 0, 0, 0, STEP_NO_PARENT);
    assert_row(s, 39, 139, 39, 39, 0, 38);
    assert_taps(s, 0, Z, Z, 0);
    assert_taps(s, 1, Z, 0, 1);
    assert_taps(s, 2, 0, 1, 2);
    assert_taps(s, 39, 37, 38, 39);
    assert_int_equal(s->n_out, 1);
    assert_int_equal(s->out_rows[0], 39);
    assert_int_equal(s->seqs[0].row_last, 39);
    assert_int_equal(s->seqs[0].conv_out, 3);
    assert_true(step_seq_is_chain(s, 0));
    bind_ports(&g->b.step);
    assert_fits(g->whole, s);
}

// The next chunk continues from the stored rows.
static void test_prefill_next_chunk(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, 0);
    int seq = step_add_seq(&g->b, g->blocks[0], 16, 40, 3, 3);
    for (int i = 0; i < 4; i++) step_add_chain_row(&g->b, seq, i, false);
    const struct step *s = step_end(&g->b);
    assert_row(s, 0, 0, 40, 40, 0, STEP_NO_PARENT);
    assert_taps(s, 0, S(1), S(0), 0);
    assert_taps(s, 1, S(0), 0, 1);
    assert_taps(s, 2, 0, 1, 2);
    assert_int_equal(s->n_out, 0);
    assert_int_equal(step_ancestor(s, 3, 0), 3);
    assert_int_equal(step_ancestor(s, 3, 3), 0);
    assert_int_equal(step_ancestor(s, 3, 4), -1);
    assert_int_equal(step_ancestor(s, 3, 6), -3);
    assert_fits(g->fill, s);
}

static void test_chain_verify(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    int seq = step_add_seq(&g->b, g->blocks[0], 16, 31, 2, -1);
    for (int i = 0; i < 5; i++) step_add_chain_row(&g->b, seq, 7 + i, true);
    const struct step *s = step_end(&g->b);
    assert_int_equal(s->n_out, 5);
    assert_row(s, 4, 11, 35, 35, 0, 3);
    assert_int_equal(s->seqs[0].conv_out, -1);
    assert_true(step_seq_is_chain(s, 0));
    bind_ports(&g->b.step);
    assert_fits(g->whole, s);
}

// root 0 ─┬─ 1 ─┬─ 3
//         │     └─ 4 ── 6
//         └─ 2 ── 5
static void tree_build(struct step_builder *b, int seq) {
    int base = b->step.n_rows;
    int parents[] = {STEP_NO_PARENT, 0, 0, 1, 1, 2, 4};
    for (int i = 0; i < 7; i++) {
        int parent = parents[i] < 0 ? STEP_NO_PARENT : base + parents[i];
        step_add_tree_row(b, seq, 50 + i, parent, true);
    }
}

static void test_tree(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    tree_build(&g->b, step_add_seq(&g->b, g->blocks[0], 16, 10, 0, -1));
    const struct step *s = step_end(&g->b);
    static const int depth[] = {0, 1, 1, 2, 2, 2, 3};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(s->rows[i].pos, 10 + depth[i]);
        assert_int_equal(s->rows[i].slot, 10 + i);
    }
    assert_taps(s, 0, S(1), S(0), 0);
    assert_taps(s, 1, S(0), 0, 1);
    assert_taps(s, 2, S(0), 0, 2);
    assert_taps(s, 3, 0, 1, 3);
    assert_taps(s, 5, 0, 2, 5);
    assert_taps(s, 6, 1, 4, 6);
    assert_int_equal(s->seqs[0].row_last, -1);
    assert_false(step_seq_is_chain(s, 0));
    bind_ports(&g->b.step);
    assert_fits(g->whole, s);
}

// Two roots that follow the context are a tree too.
static void test_tree_two_roots(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    int seq = step_add_seq(&g->b, g->blocks[0], 16, 10, 0, -1);
    step_add_tree_row(&g->b, seq, 1, STEP_NO_PARENT, true);
    step_add_tree_row(&g->b, seq, 2, STEP_NO_PARENT, true);
    const struct step *s = step_end(&g->b);
    assert_row(s, 1, 2, 10, 11, 0, STEP_NO_PARENT);
    assert_taps(s, 1, S(1), S(0), 1);
    assert_int_equal(s->seqs[0].row_last, -1);
    bind_ports(&g->b.step);
    assert_fits(g->whole, s);
}

// The accepted path 0, 1, 4, 6 of the tree, as a commit reads it.
static void test_commit(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    tree_build(&g->b, step_add_seq(&g->b, g->blocks[0], 16, 10, 5, -1));
    const struct step *v = step_end(&g->b);
    step_begin(&g->commit, &g->pool, 0);
    int seq = step_add_seq(&g->commit, g->blocks[0], 16, 10, 5, 5);
    static const int path[] = {0, 1, 4, 6};
    for (int i = 0; i < 4; i++) step_add_path_row(&g->commit, seq, v, path[i]);
    const struct step *s = step_end(&g->commit);
    assert_row(s, 0, 50, 10, 10, 0, STEP_NO_PARENT);
    assert_row(s, 2, 54, 12, 14, 0, 1);
    assert_row(s, 3, 56, 13, 16, 0, 2);
    assert_taps(s, 3, 1, 4, 6); // rows of the window area
    assert_int_equal(s->seqs[0].row_last, 3);
    assert_int_equal(s->n_out, 0);
    assert_fits(g->commit_prog, s);
}

// Prefill of one, decode of another, verification of a third, in one step.
static void test_three_sequences(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    int a = step_add_seq(&g->b, g->blocks[0], 16, 0, -1, -1);
    int b = step_add_seq(&g->b, g->blocks[1], 16, 77, 1, -1);
    int c = step_add_seq(&g->b, g->blocks[2], 16, 5, 2, -1);
    for (int i = 0; i < 3; i++) step_add_chain_row(&g->b, a, i, i == 2);
    step_add_chain_row(&g->b, b, 9, true);
    tree_build(&g->b, c);
    const struct step *s = step_end(&g->b);
    assert_int_equal(s->n_rows, 11);
    assert_row(s, 3, 9, 77, 77, 1, STEP_NO_PARENT);
    assert_row(s, 4, 50, 5, 5, 2, STEP_NO_PARENT);
    assert_row(s, 10, 56, 8, 11, 2, 8);
    assert_taps(s, 2, 0, 1, 2);
    assert_taps(s, 3, S(1), S(0), 3);
    assert_taps(s, 10, 5, 8, 10);
    assert_int_equal(s->seqs[0].row_last, 2);
    assert_int_equal(s->seqs[1].row_last, 3);
    assert_int_equal(s->seqs[2].row_last, -1);
    assert_int_equal(s->n_out, 9);
    assert_true(step_seq_is_chain(s, 0));
    assert_true(step_seq_is_chain(s, 1));
    assert_false(step_seq_is_chain(s, 2));
    bind_ports(&g->b.step);
    assert_fits(g->whole, s);
}

static void test_encoder(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, STEP_FULL);
    int a = step_add_seq(&g->b, g->blocks[0], 16, 0, -1, -1);
    int b = step_add_seq(&g->b, g->blocks[1], 16, 0, -1, -1);
    // Interleaved: a0 b0 a1 b1 a2, so neighbours of a text are not neighbours in the window.
    for (int i = 0; i < 5; i++) step_add_full_row(&g->b, i % 2 ? b : a, i, true, true);
    const struct step *s = step_end(&g->b);
    assert_taps(s, 0, Z, 0, 2);
    assert_taps(s, 2, 0, 2, 4);
    assert_taps(s, 4, 2, 4, Z);
    assert_taps(s, 1, Z, 1, 3);
    assert_taps(s, 3, 1, 3, Z);
    assert_row(s, 4, 4, 2, 2, 0, 2);
    bind_ports(&g->b.step);
    assert_fits(g->encoder, s);
}

// A text of one token reads zeros on both sides; four taps reach one back and two ahead.
static void test_encoder_edges(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, STEP_FULL);
    step_add_full_row(&g->b, step_add_seq(&g->b, g->blocks[0], 16, 0, -1, -1), 4, true, true);
    assert_taps(step_end(&g->b), 0, Z, 0, Z);

    struct step_builder four;
    assert_int_equal(step_builder_init(&four, &g->arena, 8, 4, 1, NULL), TERN_OK);
    step_begin(&four, &g->pool, STEP_FULL);
    int seq = step_add_seq(&four, g->blocks[0], 16, 0, -1, -1);
    for (int i = 0; i < 4; i++) step_add_full_row(&four, seq, i, true, true);
    static const int16_t expected[4][4] = {{Z, 0, 1, 2}, {0, 1, 2, 3}, {1, 2, 3, Z}, {2, 3, Z, Z}};
    assert_memory_equal(step_end(&four)->taps, expected, sizeof(expected));
}

// Target features become K/V of the drafter's layers: a chain without taps that wants no output.
static void test_drafter_inject(void **state) {
    (void)state;
    step_begin(&g->flat, &g->pool_llama, 0);
    int seq = step_add_seq(&g->flat, g->blocks[0], 16, 20, -1, -1);
    for (int i = 0; i < 6; i++) step_add_chain_row(&g->flat, seq, -1, false);
    const struct step *s = step_end(&g->flat);
    assert_null(s->taps);
    assert_row(s, 5, -1, 25, 25, 0, 4);
    struct prog *p = prog_make(g->llama, (struct prog_spec){.kind = PROG_LAYERS, .layer_begin = 1, .layer_end = 3});
    bind_ports(&g->flat.step);
    assert_fits(p, s); // rows come from a port, so tokens are not looked at
    prog_free(p);
}

// A drafter's block sees the committed context and all of itself.
static void test_drafter_block(void **state) {
    (void)state;
    step_begin(&g->flat, &g->pool_llama, STEP_FULL);
    int seq = step_add_seq(&g->flat, g->blocks[0], 16, 26, -1, -1);
    for (int i = 0; i < 8; i++) step_add_full_row(&g->flat, seq, i == 0 ? 17 : 3, false, true);
    const struct step *s = step_end(&g->flat);
    assert_int_equal(s->flags, STEP_FULL);
    assert_int_equal(s->n_out, 8);
    assert_row(s, 7, 3, 33, 33, 0, 6);
    assert_int_equal(s->seqs[0].len, 26);
    bind_ports(&g->flat.step);
    assert_fits(g->whole_llama, s);
}

static void test_row_range(void **state) {
    (void)state;
    step_begin(&g->b, NULL, 0);
    g->b.step.n_rows = 5;
    g->b.step.out_begin = 32;
    g->b.step.out_end = 96;
    bind_ports(&g->b.step);
    const struct step *s = &g->b.step;
    assert_fits(g->linear, s);
    assert_int_equal(prog_port_bytes(g->linear, s, PORT_ROWS_IN), 5 * 64 * 4);
    assert_int_equal(prog_port_bytes(g->linear, s, PORT_ROWS_OUT), 5 * 96 * 4);
}

// A unit that computes whole windows takes eight sequences interleaved: row i belongs to sequence i % 8.
static void test_npu_batch(void **state) {
    (void)state;
    step_begin(&g->b, &g->pool, 0);
    for (int i = 0; i < 8; i++) step_add_seq(&g->b, g->blocks[i], 16, 40 * i, i == 0 ? -1 : i, i);
    for (int i = 0; i < 64; i++) step_add_chain_row(&g->b, i % 8, i, i >= 56);
    const struct step *s = step_end(&g->b);
    for (int i = 0; i < 64; i++) {
        int seq = i % 8, depth = i / 8;
        assert_row(s, i, i, 40 * seq + depth, 40 * seq + depth, seq, depth == 0 ? STEP_NO_PARENT : i - 8);
        int stored1 = seq == 0 ? Z : S(0), stored2 = seq == 0 ? Z : S(1);
        assert_taps(s, i, depth > 1 ? i - 16 : depth == 1 ? stored1 : stored2, depth > 0 ? i - 8 : stored1, i);
    }
    for (int i = 0; i < 8; i++) assert_int_equal(s->seqs[i].row_last, 56 + i);
    assert_int_equal(s->out_rows[0], 56);
    bind_ports(&g->b.step);
    assert_fits(g->whole, s);
}

static void test_builder_limits(void **state) {
    (void)state;
    struct step_builder b;
    struct tern_err err = {0};
    assert_int_equal(step_builder_init(&b, &g->arena, 0, 3, 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(step_builder_init(&b, &g->arena, STEP_WINDOW_MAX + 1, 3, 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(step_builder_init(&b, &g->arena, 4, OP_CONV_LEN_MAX + 1, 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(step_builder_init(&b, &g->arena, 4, -1, 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(step_builder_init(&b, &g->arena, 4, 3, 0, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(step_builder_init(&b, &g->arena, 4, 3, STEP_SEQS_MAX + 1, &err), TERN_INVALID_ARGUMENT);
    mem_fail_at(1, true);
    struct arena empty;
    arena_init(&empty, 0);
    assert_int_equal(step_builder_init(&b, &empty, 4, 3, 1, &err), TERN_NO_MEMORY);
    mem_fail_at(0, false);
    arena_release(&empty);
    // A builder at its limits is used up exactly.
    assert_int_equal(step_builder_init(&b, &g->arena, STEP_WINDOW_MAX, 1, STEP_SEQS_MAX, &err), TERN_OK);
    step_begin(&b, NULL, 0);
    for (int i = 0; i < STEP_SEQS_MAX; i++) step_add_seq(&b, NULL, 0, 0, -1, -1);
    for (int i = 0; i < STEP_WINDOW_MAX; i++) step_add_chain_row(&b, i % STEP_SEQS_MAX, 0, true);
    assert_int_equal(step_end(&b)->n_out, STEP_WINDOW_MAX);
    assert_int_equal(b.step.seqs[STEP_SEQS_MAX - 1].row_last, STEP_WINDOW_MAX - 1);
}

// ------------------------------------------------------------------------------------------------------------- check

// A sound step of a prefill (sequence 0), a decode (1) and a branching verification (2); mutable copies for breaking.
struct broken {
    struct step step;
    struct step_row rows[WINDOW];
    int16_t taps[WINDOW * 3], out_rows[WINDOW];
    struct step_seq seqs[8];
    struct state_pool pool;
    int32_t blocks[3][16];
};

static void broken_copy(struct broken *x, const struct step *s) {
    *x = (struct broken){.step = *s, .pool = g->pool};
    memcpy(x->rows, s->rows, (size_t)s->n_rows * sizeof(x->rows[0]));
    memcpy(x->taps, s->taps, (size_t)s->n_rows * 3 * sizeof(x->taps[0]));
    memcpy(x->out_rows, s->out_rows, (size_t)s->n_out * sizeof(x->out_rows[0]));
    memcpy(x->seqs, s->seqs, (size_t)s->n_seqs * sizeof(x->seqs[0]));
    for (int i = 0; i < s->n_seqs; i++) {
        memcpy(x->blocks[i], g->blocks[i], sizeof(x->blocks[i]));
        x->seqs[i].blocks = x->blocks[i];
    }
    x->step.rows = x->rows;
    x->step.taps = x->taps;
    x->step.out_rows = x->out_rows;
    x->step.seqs = x->seqs;
    x->step.pool = &x->pool;
    bind_ports(&x->step);
}

static void verify_make(struct broken *x) {
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    int a = step_add_seq(&g->b, g->blocks[0], 16, 0, -1, -1);
    int b = step_add_seq(&g->b, g->blocks[1], 16, 77, 1, -1);
    int c = step_add_seq(&g->b, g->blocks[2], 16, 5, 2, -1);
    for (int i = 0; i < 3; i++) step_add_chain_row(&g->b, a, i, i == 2);
    step_add_chain_row(&g->b, b, 9, true);
    tree_build(&g->b, c);
    broken_copy(x, step_end(&g->b));
}

static void prefill_make(struct broken *x) {
    step_begin(&g->b, &g->pool, 0);
    int a = step_add_seq(&g->b, g->blocks[0], 16, 30, 4, 4);
    int b = step_add_seq(&g->b, g->blocks[1], 16, 64, 1, 5);
    for (int i = 0; i < 6; i++) step_add_chain_row(&g->b, i % 2 ? b : a, i, i > 3);
    broken_copy(x, step_end(&g->b));
}

static void commit_make(struct broken *x) {
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    tree_build(&g->b, step_add_seq(&g->b, g->blocks[0], 16, 10, 5, -1));
    const struct step *v = step_end(&g->b);
    step_begin(&g->commit, &g->pool, 0);
    int seq = step_add_seq(&g->commit, g->blocks[0], 16, 10, 5, 5);
    step_add_path_row(&g->commit, seq, v, 0);
    step_add_path_row(&g->commit, seq, v, 2);
    step_add_path_row(&g->commit, seq, v, 5);
    broken_copy(x, step_end(&g->commit));
}

static void encoder_make(struct broken *x) {
    step_begin(&g->b, &g->pool, STEP_FULL);
    int a = step_add_seq(&g->b, g->blocks[0], 16, 0, -1, -1);
    int b = step_add_seq(&g->b, g->blocks[1], 16, 0, -1, -1);
    for (int i = 0; i < 6; i++) step_add_full_row(&g->b, i % 2 ? b : a, i, true, true);
    broken_copy(x, step_end(&g->b));
}

static void linear_make(struct broken *x) {
    *x = (struct broken){.step = {.n_rows = 5, .out_begin = 16, .out_end = 32}};
    bind_ports(&x->step);
}

// Builds a sound step, checks it, breaks one thing, and wants a message with the words.
#define BREAK(make, prog, words, change)                                                                       \
    do {                                                                                                       \
        struct broken x;                                                                                       \
        struct tern_err err = {0};                                                                             \
        make(&x);                                                                                              \
        assert_fits(prog, &x.step);                                                                            \
        change;                                                                                                \
        if (step_check(prog, &x.step, &err) != TERN_INVALID_ARGUMENT) fail_msg("accepted: %s", #change);       \
        if (!strstr(err.message, words)) fail_msg("%s: said \"%s\", not \"%s\"", #change, err.message, words); \
    } while (0)

static void test_check_counts(void **state) {
    (void)state;
    BREAK(verify_make, g->whole, "0 rows; the program (whole) has a window of 64", x.step.n_rows = 0);
    BREAK(verify_make, g->whole, "65 rows", x.step.n_rows = 65);
    BREAK(verify_make, g->whole, "unknown flags 0x8", x.step.flags |= 8);
    BREAK(verify_make, g->whole, "exclude each other", x.step.flags |= STEP_FULL);
    BREAK(commit_make, g->commit_prog, "a commit takes no flags", x.step.flags = STEP_KEEP_ROWS);
    BREAK(encoder_make, g->encoder, "needs STEP_FULL", x.step.flags = 0);
    BREAK(verify_make, g->whole, "no single weight", x.step.out_end = 4);
    BREAK(linear_make, g->linear, "columns 32 to 32 of a weight with 96", x.step.out_begin = 32);
    BREAK(linear_make, g->linear, "columns 16 to 97", x.step.out_end = 97);
    BREAK(linear_make, g->linear, "columns -1 to 32", x.step.out_begin = -1);
    BREAK(verify_make, g->whole, "no rows array", x.step.rows = NULL);
    BREAK(verify_make, g->whole, "0 sequences", x.step.n_seqs = 0);
    BREAK(verify_make, g->whole, "257 sequences", x.step.n_seqs = 257);
    BREAK(verify_make, g->whole, "no sequences array", x.step.seqs = NULL);
    BREAK(verify_make, g->whole, "2 taps a row; the model's convolution has 3", x.step.n_taps = 2);
    BREAK(verify_make, g->whole, "no taps array", x.step.taps = NULL);
}

static void test_check_pool(void **state) {
    (void)state;
    BREAK(verify_make, g->whole, "needs a state pool", x.step.pool = NULL);
    BREAK(verify_make, g->whole, "the pool holds layers 1 to 6", x.pool.layout.layer_begin = 1);
    BREAK(verify_make, g->whole, "the pool's K/V type is 1", x.pool.layout.kv_type = OP_KV_Q8);
    BREAK(verify_make, g->whole, "another model", x.pool.layout.head_dim = 32);
    BREAK(verify_make, g->whole, "another model", x.pool.layout.n_embd = 32);
    BREAK(verify_make, g->whole, "another model", x.pool.layout.conv_len = 4);
    BREAK(verify_make, g->whole, "another model", x.pool.layout.n_head_kv = 4);
    BREAK(verify_make, g->whole, "no K/V buffer", x.pool.kv = NULL);
    BREAK(verify_make, g->whole, "no convolution buffer", x.pool.conv = NULL);
    BREAK(verify_make, g->whole, "11 rows to keep; the pool's window area has 10", x.pool.layout.window = 10);
    BREAK(commit_make, g->commit_prog, "3 rows to keep", x.pool.layout.window = 2);
}

static void test_check_rows(void **state) {
    (void)state;
    BREAK(verify_make, g->whole, "row 2: token 300; the vocabulary has 300", x.rows[2].token = 300);
    BREAK(verify_make, g->whole, "row 0: token -1", x.rows[0].token = -1);
    BREAK(verify_make, g->whole, "row 1: sequence 3 of 3", x.rows[1].seq = 3);
    BREAK(verify_make, g->whole, "row 1: sequence -1 of 3", x.rows[1].seq = -1);
    BREAK(verify_make, g->whole, "row 1: parent 1; parents come before", x.rows[1].parent = 1);
    BREAK(verify_make, g->whole, "row 1: parent -2", x.rows[1].parent = -2);
    BREAK(verify_make, g->whole, "parent 2 belongs to sequence 0", x.rows[3].parent = 2);
    BREAK(verify_make, g->whole, "row 10: position 9, expected 8", x.rows[10].pos = 9);
    BREAK(verify_make, g->whole, "row 3: position 76, expected 77", x.rows[3].pos = 76);
    BREAK(verify_make, g->whole, "row 10: slot 10, expected 11", x.rows[10].slot = 10);
    BREAK(commit_make, g->commit_prog, "an accepted path is a chain", {
        x.rows[2].parent = 0;
        x.rows[2].pos = 11;
    });
    BREAK(commit_make, g->commit_prog, "row 1: slot 10; accepted rows come", x.rows[1].slot = 10);
    BREAK(commit_make, g->commit_prog, "row 2: slot 12; accepted rows come", {
        x.rows[1].slot = 12;
        x.rows[2].slot = 12;
    });
    BREAK(commit_make, g->commit_prog, "row 2: slot 4106", x.rows[2].slot = 10 + STEP_WINDOW_MAX);
}

static void test_check_seqs(void **state) {
    (void)state;
    BREAK(verify_make, g->whole, "sequence 1: length -1", x.seqs[1].len = -1);
    BREAK(verify_make, g->whole, "sequence 1: length 2147483647", x.seqs[1].len = INT32_MAX);
    BREAK(encoder_make, g->encoder, "no committed context", x.seqs[1].len = 4);
    BREAK(verify_make, g->whole, "conv slot 8 to read; the pool has 8", x.seqs[1].conv_in = 8);
    BREAK(verify_make, g->whole, "conv slot -2 to read", x.seqs[1].conv_in = -2);
    BREAK(prefill_make, g->whole, "conv slot 8 to write", x.seqs[1].conv_out = 8);
    BREAK(verify_make, g->whole, "77 committed positions but no conv slot", x.seqs[1].conv_in = -1);
    BREAK(verify_make, g->whole, "a verify step writes no conv slot", x.seqs[1].conv_out = 1);
    BREAK(prefill_make, g->whole, "sequence 0: last row 2 of its chain, expected 4", x.seqs[0].row_last = 2);
    BREAK(verify_make, g->whole, "sequence 2: last row 10 of its chain, expected -1", x.seqs[2].row_last = 10);
    BREAK(verify_make, g->whole, "branch cannot write the state", {
        x.step.flags = 0;
        x.seqs[2].conv_out = 2;
    });
    BREAK(commit_make, g->commit_prog, "a commit needs a conv slot to write", x.seqs[0].conv_out = -1);
    BREAK(verify_make, g->whole, "78 positions; its table of 2 blocks holds 64", x.seqs[1].n_blocks = 2);
    BREAK(verify_make, g->whole, "no block table", x.seqs[1].blocks = NULL);
    BREAK(verify_make, g->whole, "block 128 at place 2 of its table; the pool has 128", x.blocks[1][2] = 128);
    BREAK(verify_make, g->whole, "block -1 at place 0", x.blocks[1][0] = -1);
}

static void test_check_taps(void **state) {
    (void)state;
    BREAK(verify_make, g->whole, "row 10: tap 1 is 9, expected 8", x.taps[10 * 3 + 1] = 9);
    BREAK(verify_make, g->whole, "row 2: tap 0 reads row 11 of 11", x.taps[2 * 3] = 11);
    BREAK(verify_make, g->whole, "row 3: tap 0 reads row 1 of another sequence", x.taps[3 * 3] = 1);
    BREAK(verify_make, g->whole, "row 3: tap 0 reads stored row 2; 2 are stored", x.taps[3 * 3] = S(2));
    BREAK(verify_make, g->whole, "row 0: tap 0 reads stored row 0; 0 are stored", x.taps[0] = S(0));
    BREAK(verify_make, g->whole, "row 3: tap 0 is -32768", x.taps[3 * 3] = Z);
    BREAK(encoder_make, g->encoder, "row 2: tap 2 reads row 3 of another sequence", x.taps[2 * 3 + 2] = 3);
    BREAK(commit_make, g->commit_prog, "reads row 64 of 64", x.taps[2] = 64);
    BREAK(commit_make, g->commit_prog, "stored row 2", x.taps[0] = S(2));
}

static void test_check_sharing(void **state) {
    (void)state;
    BREAK(prefill_make, g->whole, "writes block 8", x.blocks[1][1] = x.blocks[0][1]); // 1 reads what 0 writes
    BREAK(prefill_make, g->whole, "writes block 8", x.blocks[1][2] = x.blocks[0][1]); // both write it
    BREAK(prefill_make, g->whole, "writes block", x.blocks[0][0] = x.blocks[0][1]);   // twice in one table
    BREAK(prefill_make, g->whole, "writes conv slot 4", x.seqs[1].conv_out = 4);
    BREAK(prefill_make, g->whole, "sequence 0 writes conv slot 4, which sequence 1", x.seqs[1].conv_in = 4);
    // A shared prefix that nobody writes is fine, and so is reading one conv slot twice.
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    step_add_seq(&g->b, g->blocks[0], 16, 64, 1, -1);
    step_add_seq(&g->b, g->blocks[1], 16, 80, 1, -1);
    for (int i = 0; i < 4; i++) step_add_chain_row(&g->b, i % 2, i, true);
    struct broken x;
    broken_copy(&x, step_end(&g->b));
    x.blocks[1][0] = x.blocks[0][0];
    x.blocks[1][1] = x.blocks[0][1];
    assert_fits(g->whole, &x.step);
}

static void test_check_outputs(void **state) {
    (void)state;
    BREAK(verify_make, g->whole, "-1 rows with output", x.step.n_out = -1);
    BREAK(verify_make, g->whole, "12 rows with output of 11", x.step.n_out = 12);
    BREAK(verify_make, g->whole, "no array of rows with output", x.step.out_rows = NULL);
    BREAK(verify_make, g->whole, "output 1 of row 2; rows ascend", x.out_rows[1] = 2);
    BREAK(verify_make, g->whole, "output 8 of row 11", x.out_rows[8] = 11);
    BREAK(verify_make, g->whole, "port logits of the program (whole) is not bound",
          x.step.ports[PORT_LOGITS].buf = NULL);
    BREAK(verify_make, g->whole, "port logits at byte 2", x.step.ports[PORT_LOGITS].offset = 2);
    BREAK(linear_make, g->linear, "port rows_in of the program (linear)", x.step.ports[PORT_ROWS_IN].buf = NULL);
    struct broken x;
    struct tern_err err = {0};
    verify_make(&x);
    assert_int_equal(step_check(g->fill, &x.step, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "without a head"));
    struct prog *two =
        prog_make(g->lfm2, (struct prog_spec){.kind = PROG_WHOLE, .n_out_max = 2, .outputs = PROG_OUT_ARGMAX});
    assert_int_equal(step_check(two, &x.step, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "9 rows want output; the program serves 2"));
    prog_free(two);
    // Without rows that want it, the head's port may stay unbound.
    x.step.n_out = 0;
    x.step.ports[PORT_LOGITS].buf = NULL;
    assert_fits(g->whole, &x.step);
}

// Random sound steps pass; any one byte of their arrays changed is either refused or leaves every number in range.
static void test_check_random(void **state) {
    (void)state;
    uint64_t rng = 7;
    for (int round = 0; round < 300; round++) {
        step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
        int n_seqs = 1 + (int)(tiny_random(&rng) % 3);
        for (int i = 0; i < n_seqs; i++) {
            int32_t len = (int32_t)(tiny_random(&rng) % 400);
            step_add_seq(&g->b, g->blocks[i], 16, len, len > 0 ? i : -1, -1);
        }
        int rows[3][WINDOW], n_rows[3] = {0};
        for (int i = 0; i < 30; i++) {
            int seq = (int)(tiny_random(&rng) % (uint64_t)n_seqs);
            int pick = (int)(tiny_random(&rng) % (uint64_t)(n_rows[seq] + 1));
            int parent = pick == n_rows[seq] ? STEP_NO_PARENT : rows[seq][pick];
            rows[seq][n_rows[seq]++] = step_add_tree_row(&g->b, seq, i, parent, i % 3 == 0);
        }
        struct broken x;
        broken_copy(&x, step_end(&g->b));
        assert_fits(g->whole, &x.step);
        size_t at = (size_t)(tiny_random(&rng) % (30 * sizeof(struct step_row)));
        ((uint8_t *)x.rows)[at] ^= (uint8_t)(1 + tiny_random(&rng) % 255);
        struct tern_err err = {0};
        if (step_check(g->whole, &x.step, &err) == TERN_OK) // only the token may change unseen
            assert_true(at % sizeof(struct step_row) < 4 && x.rows[at / sizeof(struct step_row)].token < 300);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefill_fresh),   cmocka_unit_test(test_prefill_next_chunk),
        cmocka_unit_test(test_chain_verify),    cmocka_unit_test(test_tree),
        cmocka_unit_test(test_tree_two_roots),  cmocka_unit_test(test_commit),
        cmocka_unit_test(test_three_sequences), cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_encoder_edges),   cmocka_unit_test(test_drafter_inject),
        cmocka_unit_test(test_drafter_block),   cmocka_unit_test(test_row_range),
        cmocka_unit_test(test_npu_batch),       cmocka_unit_test(test_builder_limits),
        cmocka_unit_test(test_check_counts),    cmocka_unit_test(test_check_pool),
        cmocka_unit_test(test_check_rows),      cmocka_unit_test(test_check_seqs),
        cmocka_unit_test(test_check_taps),      cmocka_unit_test(test_check_sharing),
        cmocka_unit_test(test_check_outputs),   cmocka_unit_test(test_check_random),
    };
    return cmocka_run_group_tests_name("step", tests, setup, teardown);
}
