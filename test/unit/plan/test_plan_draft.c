// A drafter beside the plan `whole` on the cpu unit, with a tiny target and drafter: features go from one to the other,
// however the text was cut into steps and injections; blocks, feature rows, the Markov product; the estimate; refusals.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include "plan/plan.h"
#include "../../common/tiny_drafter.h"
#include "../../common/tiny_model.h"

#define WINDOW 24
#define TEXT 50
#define BLOCKS 4
#define LAYERS 2

struct bench {
    struct model *target, *model;
    struct unit *unit;
    struct unit_weights *target_weights, *weights;
    struct plan *plan;
    struct plan_draft *draft;
    struct plan_draft_options o;
    struct arena arena;
    struct step_builder b, d;
    int32_t ids[TEXT];
};

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s", err->message);
}

static void bench_open(struct bench *g) {
    struct tern_err err = {0};
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_Q8_0, 3);
    *g = (struct bench){.target = tiny_model_create(&shape)};
    g->model = tiny_drafter_create(g->target, LAYERS, FORMAT_Q8_0, 5);
    arena_init(&g->arena, 0);
    must(unit_open(&g->unit, "cpu", &(struct unit_options){.n_threads = 1}, &err), &err);
    const struct unit_driver *d = unit_driver_of(g->unit);
    struct weights_options wo = {.numerics = PROG_CLASS_INT8};
    must(d->weights_import(g->unit, &g->target_weights, g->target, &wo, NULL, &err), &err);
    wo.shared = g->target_weights;
    must(d->weights_import(g->unit, &g->weights, g->model, &wo, NULL, &err), &err);
    const struct plan_unit pu = {g->unit, g->target_weights};
    const struct plan_options po = {.model = g->target,
                                    .units = &pu,
                                    .n_units = 1,
                                    .kv_type = OP_KV_F16,
                                    .window = WINDOW,
                                    .n_blocks = BLOCKS,
                                    .n_slots = 1,
                                    .n_out_max = 1,
                                    .feature_layers = g->model->drafter->feature_layers,
                                    .n_features = g->model->drafter->n_features};
    must(plan_open(&g->plan, "whole", &po, &err), &err);
    g->o = (struct plan_draft_options){.drafter = g->model,
                                       .unit = g->unit,
                                       .weights = g->weights,
                                       .kv_type = OP_KV_F16,
                                       .window = WINDOW,
                                       .n_blocks = 2 * BLOCKS,
                                       .n_feature_rows = 2 * TEXT,
                                       .hidden = true};
    must(plan_draft_open(&g->draft, &g->o, &err), &err);
    must(step_builder_init(&g->b, &g->arena, WINDOW, g->target->hyper.conv_len, 1, &err), &err);
    must(step_builder_init(&g->d, &g->arena, WINDOW, 0, 1, &err), &err);
    for (int i = 0; i < TEXT; i++) g->ids[i] = (i * 37 + 11) % g->target->hyper.n_vocab;
}

static void bench_close(struct bench *g) {
    const struct unit_driver *d = unit_driver_of(g->unit);
    plan_draft_close(g->draft);
    plan_close(g->plan);
    d->weights_free(g->unit, g->weights);
    d->weights_free(g->unit, g->target_weights);
    unit_close(g->unit);
    tiny_drafter_free(g->model);
    tiny_model_free(g->target);
    arena_release(&g->arena);
}

static const int32_t target_blocks[BLOCKS] = {2, 0, 3, 1};

// The text through the target, `chunk` rows a step, features into rows from `row` on.
static void features_run(struct bench *g, int chunk, int row) {
    struct tern_err err = {0};
    for (int at = 0; at < TEXT; at += chunk) {
        step_begin(&g->b, plan_pool(g->plan), 0);
        int seq = step_add_seq(&g->b, target_blocks, BLOCKS, at, at > 0 ? 0 : -1, 0);
        for (int i = at; i < MIN(at + chunk, TEXT); i++) step_add_chain_row(&g->b, seq, g->ids[i], false);
        g->b.step.ports[PORT_FEATURES] = plan_draft_features(g->draft, row + at);
        must(plan_run(g->plan, step_end(&g->b), 0, &err), &err);
    }
}

static void inject_run(struct bench *g, const int32_t *blocks, int chunk, int row) {
    struct tern_err err = {0};
    for (int at = 0; at < TEXT; at += chunk) {
        step_begin(&g->d, plan_draft_pool(g->draft), 0);
        int seq = step_add_seq(&g->d, blocks, BLOCKS, at, -1, -1);
        for (int i = at; i < MIN(at + chunk, TEXT); i++) step_add_chain_row(&g->d, seq, 0, false);
        must(plan_draft_inject(g->draft, step_end(&g->d), row + at, &err), &err);
    }
}

// A block behind the text: logits [n_proposals][n_vocab], then hidden rows, copied.
static float *block_run(struct bench *g, const int32_t *blocks, size_t *n) {
    struct tern_err err = {0};
    const struct model_drafter *md = g->model->drafter;
    step_begin(&g->d, plan_draft_pool(g->draft), STEP_FULL);
    int seq = step_add_seq(&g->d, blocks, BLOCKS, TEXT, -1, -1);
    for (int i = 0; i < md->n_rows; i++)
        step_add_full_row(&g->d, seq, i > 0 ? md->mask_id : 9, false, i >= md->first_row);
    must(plan_draft_run(g->draft, step_end(&g->d), &err), &err);
    size_t n_logits = (size_t)(md->n_proposals * g->model->hyper.n_vocab);
    size_t n_hidden = (size_t)(md->n_proposals * g->model->hyper.n_embd);
    float *out = mem_alloc((n_logits + n_hidden) * sizeof *out);
    assert_non_null(out);
    memcpy(out, plan_draft_logits(g->draft), n_logits * sizeof *out);
    memcpy(out + n_logits, plan_draft_hidden(g->draft), n_hidden * sizeof *out);
    *n = n_logits + n_hidden;
    return out;
}

static const int32_t one[BLOCKS] = {0, 5, 2, 7}, two[BLOCKS] = {1, 3, 4, 6};

static void test_ways(void **state) {
    (void)state;
    struct bench g;
    size_t n = 0;
    bench_open(&g);
    features_run(&g, WINDOW, 0);
    inject_run(&g, one, WINDOW, 0);
    float *want = block_run(&g, one, &n);
    static const int chunks[] = {1, 7, 13};
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        features_run(&g, chunks[i], TEXT); // other rows of features, another cut
        inject_run(&g, two, chunks[(i + 1) % ARRAY_LEN(chunks)], TEXT);
        float *got = block_run(&g, two, &n);
        assert_memory_equal(got, want, n * sizeof *want);
        mem_free(got);
    }
    mem_free(want);
    bench_close(&g);
}

// Blocks and rows of features as bytes, and copied: the same draft from them.
static void test_state(void **state) {
    (void)state;
    struct bench g;
    struct tern_err err = {0};
    size_t n = 0;
    bench_open(&g);
    features_run(&g, WINDOW, 0);
    inject_run(&g, one, WINDOW, 0);
    float *want = block_run(&g, one, &n);
    void *block = mem_alloc((size_t)plan_draft_pool(g.draft)->layout.block_bytes);
    assert_non_null(block);
    must(plan_draft_block_copy(g.draft, two[0], one[0], &err), &err);
    must(plan_draft_block_read(g.draft, one[1], block, &err), &err);
    must(plan_draft_block_write(g.draft, two[1], block, &err), &err);
    float *got = block_run(&g, two, &n);
    assert_memory_equal(got, want, n * sizeof *want);
    mem_free(got);
    assert_int_equal(plan_draft_block_copy(g.draft, 2 * BLOCKS, 0, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(plan_draft_block_read(g.draft, -1, block, &err), TERN_INVALID_ARGUMENT);
    // Feature rows 0 … TEXT - 1, by half copied and by half through bytes, injected again.
    void *rows = mem_alloc((size_t)plan_draft_feature_row_bytes(g.draft) * (TEXT / 2));
    assert_non_null(rows);
    must(plan_draft_features_copy(g.draft, TEXT, 0, TEXT / 2, &err), &err);
    must(plan_draft_features_read(g.draft, TEXT / 2, TEXT / 2, rows, &err), &err);
    must(plan_draft_features_write(g.draft, TEXT + TEXT / 2, TEXT / 2, rows, &err), &err);
    inject_run(&g, two, 10, TEXT);
    got = block_run(&g, two, &n);
    assert_memory_equal(got, want, n * sizeof *want);
    mem_free(got);
    mem_free(rows);
    mem_free(block);
    mem_free(want);
    bench_close(&g);
}

static void test_markov(void **state) {
    (void)state;
    struct bench g;
    struct tern_err err = {0};
    float e[TINY_DRAFTER_RANK], row[TINY_DRAFTER_RANK];
    bench_open(&g);
    const struct tensor *w2 = g.model->drafter->markov_w2;
    int n_vocab = g.model->hyper.n_vocab, rank = g.model->drafter->markov_rank;
    assert_int_equal(rank, TINY_DRAFTER_RANK);
    uint64_t row_bytes = 0, seed = 4;
    assert_true(format_row_bytes(w2->format, (uint64_t)rank, &row_bytes));
    float *out = mem_alloc((size_t)n_vocab * sizeof *out);
    assert_non_null(out);
    double worst = 0, largest = 0;
    for (int i = 0; i < rank; i++) e[i] = tiny_random_float(&seed);
    must(plan_draft_markov(g.draft, e, out, &err), &err);
    for (int v = 0; v < n_vocab; v++) {
        double sum = 0;
        op_dequant_row(w2->format, w2->data + (uint64_t)v * row_bytes, rank, row);
        for (int i = 0; i < rank; i++) sum += (double)row[i] * (double)e[i];
        worst = fmax(worst, fabs(sum - (double)out[v]));
        largest = fmax(largest, fabs(sum));
    }
    assert_true(largest > 0 && worst < 0.02 * largest); // activations are int8
    mem_free(out);
    bench_close(&g);
}

static void test_figures(void **state) {
    (void)state;
    struct bench g;
    struct tern_err err = {0};
    uint64_t estimate = 0;
    struct buf b;
    bench_open(&g);
    assert_true(plan_draft_bytes_estimate(&g.o, &estimate));
    assert_int_equal(plan_draft_bytes(g.draft), estimate); // of the cpu unit, which counts before it takes
    buf_init(&b, 4096);
    assert_true(plan_draft_explain(g.draft, &b));
    assert_non_null(strstr(b.data, "drafter"));
    buf_release(&b);
    struct plan_draft *none = NULL;
    struct plan_draft_options o = g.o;
    o.n_blocks = 0;
    assert_int_equal(plan_draft_open(&none, &o, &err), TERN_INVALID_ARGUMENT);
    o = g.o;
    o.drafter = g.target; // runs alone
    assert_int_equal(plan_draft_open(&none, &o, &err), TERN_INVALID_ARGUMENT);
    assert_null(none);
    bench_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_state),
                                       cmocka_unit_test(test_markov), cmocka_unit_test(test_figures)};
    return cmocka_run_group_tests_name("plan: drafter", tests, NULL, NULL);
}
