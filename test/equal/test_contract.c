// The arithmetic contract of op.h on the cpu unit, bitwise: a row's logits and the state it leaves do not depend on the
// window, on how a prompt is cut, on threads, on the instruction set, on where its rows stand in a step, or on what
// else runs beside it. The measure is always the same: one token at a time, alone, scalar, on one thread.
#include "base/base.h"
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>
#include "plan/plan.h"
#include "../common/tiny_model.h"
#include "../common/unit_bench.h"

#define PROMPT 110
#define LONG_PROMPT 900
#define LONG_PROMPT_SHORT 300

static uint64_t rng;
static bool
    is_short; // TERN_TEST_SHORT=1 (sanitizers, emulators): fewer windows, one K/V type in each, shorter contexts
static int below(int n) { return (int)(tiny_random(&rng) % (uint64_t)n); }

static void tokens_draw(int32_t *t, int n, int n_vocab) {
    for (int i = 0; i < n; i++) t[i] = below(n_vocab);
}

// Logits of every position and the state behind the last.
struct answer {
    int n;
    float *logits;
    uint8_t *state;
    size_t n_state;
};
static void answer_free(struct answer *a) {
    mem_free(a->logits);
    mem_free(a->state);
}

// Runs tokens behind a fresh sequence 0 in pieces of `chunk` rows (0: of random sizes).
static struct answer run_chunks(struct unit_bench *g, const int32_t *tokens, int n, int chunk) {
    size_t n_vocab = (size_t)g->o.model->hyper.n_vocab;
    struct answer a = {.n = n, .logits = mem_alloc((size_t)n * n_vocab * sizeof(float))};
    bench_reset(g);
    for (int i = 0; i < n;) {
        int size = chunk > 0 ? chunk : 1 + below(MIN(g->o.window, 70));
        size = MIN(size, n - i);
        bench_chain(g, &g->seqs[0], tokens + i, size, a.logits + (size_t)i * n_vocab);
        i += size;
    }
    a.state = bench_state(g, &g->seqs[0], &a.n_state);
    return a;
}

static void assert_answer(const struct answer *have, const struct answer *want, size_t n_vocab, const char *what) {
    assert_int_equal(have->n, want->n);
    for (int i = 0; i < want->n; i++)
        if (memcmp(have->logits + (size_t)i * n_vocab, want->logits + (size_t)i * n_vocab, n_vocab * sizeof(float)) !=
            0)
            fail_msg("%s: other logits at position %d", what, i);
    assert_int_equal(have->n_state, want->n_state);
    if (memcmp(have->state, want->state, want->n_state) != 0) fail_msg("%s: other state", what);
}

struct setup {
    struct model *model;
    enum prog_class numerics;
    enum op_kv_type kv_type;
};

static bool bench_open(struct unit_bench *g, const struct setup *s, const char *isa, int n_threads, int window) {
    struct unit_bench_options o = {.model = s->model,
                                   .isa = isa,
                                   .n_threads = n_threads,
                                   .numerics = s->numerics,
                                   .kv_type = s->kv_type,
                                   .window = window,
                                   .n_ctx = LONG_PROMPT + 60};
    return unit_bench_open(g, &o);
}

static struct answer measure(const struct setup *s, const int32_t *tokens, int n) {
    struct unit_bench g;
    assert_true(bench_open(&g, s, "scalar", 1, 1));
    struct answer a = run_chunks(&g, tokens, n, 1);
    unit_bench_close(&g);
    return a;
}

// lfm2, llama, lfm2moe and gemma3 in 8 bits, then (n_models 8) in floats.
static void for_each_model(void (*check)(const struct setup *), int n_models) {
    typedef struct tiny_shape (*shape_fn)(enum format format, uint64_t seed);
    static const shape_fn shapes[] = {tiny_lfm2_shape, tiny_llama_shape, tiny_moe_shape, tiny_gemma_shape};
    if (is_short) n_models = MIN(n_models, (int)ARRAY_LEN(shapes) + 1); // of those in floats lfm2
    for (int i = 0; i < n_models; i++) {
        bool floats = i >= (int)ARRAY_LEN(shapes);
        struct tiny_shape shape =
            shapes[(size_t)i % ARRAY_LEN(shapes)](floats ? FORMAT_F32 : FORMAT_Q8_0, 12 - (uint64_t)i % 2);
        struct setup s = {.model = tiny_model_create(&shape), .numerics = floats ? PROG_CLASS_FP32 : PROG_CLASS_INT8};
        rng = (uint64_t)i + 100;
        check(&s);
        tiny_model_free(s.model);
    }
}

// ---------------------------------------------------------------------------------------- windows, chunks, threads

struct cut {
    int window, chunk, n_threads;
};

static void check_cuts(const struct setup *s, const struct answer *want, const int32_t *tokens, const struct cut *cuts,
                       size_t n_cuts) {
    char what[128];
    for (int isa = 0; bench_isas[isa]; isa++)
        for (size_t i = 0; i < n_cuts; i++) {
            struct unit_bench g;
            if (isa == 0 && i % 3 != 0) continue; // scalar attention is slow
            if (!bench_open(&g, s, bench_isas[isa], cuts[i].n_threads, cuts[i].window)) break;
            struct answer have = run_chunks(&g, tokens, want->n, cuts[i].chunk);
            snprintf(what, sizeof(what), "%s, %s, K/V %d, window %d, chunk %d, %d threads", s->model->name,
                     bench_isas[isa], (int)s->kv_type, cuts[i].window, cuts[i].chunk, cuts[i].n_threads);
            assert_answer(&have, want, (size_t)s->model->hyper.n_vocab, what);
            answer_free(&have);
            unit_bench_close(&g);
        }
}

static void check_windows(const struct setup *base) {
    static const struct cut many[] = {{1, 1, 1},   {2, 2, 2},   {3, 3, 1},    {8, 8, 2},   {16, 16, 1},
                                      {17, 17, 2}, {32, 32, 1}, {33, 33, 3},  {64, 64, 1}, {128, 128, 2},
                                      {256, 0, 1}, {512, 0, 3}, {512, 512, 1}};
    static const struct cut few[] = {{1, 1, 2}, {512, 512, 2}, {64, 0, 1}};
    int32_t tokens[PROMPT];
    static const struct cut fewest[] = {{17, 17, 2}, {64, 0, 1}, {512, 512, 3}};
    for (int type = 0; type < 3; type++) {
        struct setup s = *base;
        s.kv_type = (enum op_kv_type)type;
        if (is_short && s.kv_type == OP_KV_F32) continue;
        tokens_draw(tokens, PROMPT, s.model->hyper.n_vocab);
        struct answer want = measure(&s, tokens, PROMPT);
        if (is_short)
            check_cuts(&s, &want, tokens, fewest, ARRAY_LEN(fewest));
        else if (s.kv_type == OP_KV_F16)
            check_cuts(&s, &want, tokens, many, ARRAY_LEN(many));
        else
            check_cuts(&s, &want, tokens, few, ARRAY_LEN(few));
        answer_free(&want);
    }
}

// ---------------------------------------------------------------------------------------- neighbours in the step

// Prompts of several sequences in shared steps, rows placed at random, then decoded together.
struct mix {
    int n_seqs;
    int lens[BENCH_SEQS_MAX];
    int32_t *tokens[BENCH_SEQS_MAX]; // prompt, then what is decoded
    float *logits[BENCH_SEQS_MAX];   // of every position
};

// One step over the sequences: rows of each in order, sequences picked at random, at most `room` rows each.
static void mix_step(struct unit_bench *g, struct mix *m, const int *ends, int room) {
    size_t n_vocab = (size_t)g->o.model->hyper.n_vocab;
    int n[BENCH_SEQS_MAX], where[BENCH_SEQS_MAX][512], todo = 0, done[BENCH_SEQS_MAX] = {0};
    step_begin(&g->b, &g->pool, 0);
    for (int i = 0; i < m->n_seqs; i++) {
        bench_seq_add(g, &g->b, &g->seqs[i], true);
        n[i] = MIN(room, ends[i] - g->seqs[i].len);
        todo += n[i];
    }
    while (todo > 0 && g->b.step.n_rows < g->o.window) {
        int i = below(m->n_seqs);
        if (done[i] == n[i]) continue;
        int32_t token = m->tokens[i][g->seqs[i].len + done[i]];
        where[i][done[i]++] = step_add_chain_row(&g->b, i, token, true);
        todo--;
    }
    bench_run(g, &g->whole, step_end(&g->b));
    for (int i = 0; i < m->n_seqs; i++) {
        for (int k = 0; k < done[i]; k++)
            memcpy(m->logits[i] + (size_t)(g->seqs[i].len + k) * n_vocab,
                   bench_port(g, PORT_LOGITS) + (size_t)where[i][k] * n_vocab, n_vocab * sizeof(float));
        g->seqs[i].len += done[i];
    }
}

static void mix_run(struct unit_bench *g, struct mix *m, int n_decode) {
    int ends[BENCH_SEQS_MAX], left = 1;
    bench_reset(g);
    memcpy(ends, m->lens, sizeof(ends));
    while (left > 0) {
        mix_step(g, m, ends, g->o.window);
        left = 0;
        for (int i = 0; i < m->n_seqs; i++) left += ends[i] - g->seqs[i].len;
    }
    for (int k = 0; k < n_decode; k++) {
        for (int i = 0; i < m->n_seqs; i++) ends[i]++;
        mix_step(g, m, ends, 1);
    }
}

static void check_mix(const struct setup *s, const int *lens, int n_seqs, int n_decode, int window) {
    size_t n_vocab = (size_t)s->model->hyper.n_vocab;
    struct mix m = {.n_seqs = n_seqs};
    struct answer want[BENCH_SEQS_MAX];
    char what[128];
    for (int i = 0; i < n_seqs; i++) {
        int n = lens[i] + n_decode;
        m.lens[i] = lens[i];
        m.tokens[i] = mem_alloc((size_t)n * sizeof(int32_t));
        m.logits[i] = mem_alloc((size_t)n * n_vocab * sizeof(float));
        tokens_draw(m.tokens[i], n, s->model->hyper.n_vocab);
        want[i] = measure(s, m.tokens[i], n);
    }
    for (int isa = 0; bench_isas[isa]; isa++) {
        struct unit_bench g;
        // Three threads do not divide the heads: a decode behind a long context is then cut along the context.
        if (!bench_open(&g, s, bench_isas[isa], 2 + isa % 2, window)) continue;
        mix_run(&g, &m, n_decode);
        for (int i = 0; i < n_seqs; i++) {
            struct answer have = {.n = lens[i] + n_decode, .logits = m.logits[i]};
            have.state = bench_state(&g, &g.seqs[i], &have.n_state);
            snprintf(what, sizeof(what), "%s, %s, sequence %d of %d", s->model->name, bench_isas[isa], i, n_seqs);
            assert_answer(&have, &want[i], n_vocab, what);
            mem_free(have.state);
        }
        unit_bench_close(&g);
    }
    for (int i = 0; i < n_seqs; i++) {
        mem_free(m.tokens[i]);
        mem_free(m.logits[i]);
        answer_free(&want[i]);
    }
}

static void check_short_and_long(const struct setup *s) {
    const int lens[] = {3, is_short ? LONG_PROMPT_SHORT : LONG_PROMPT};
    check_mix(s, lens, 2, 3, 512);
}
static void check_eight(const struct setup *s) {
    static const int lens[] = {1, 31, 32, 33, 64, 5, 90, 17};
    check_mix(s, lens, 8, is_short ? 4 : 20, 96);
}

// ---------------------------------------------------------------------------------------- both directions

static void hidden_run(struct unit_bench *g, const struct bench_program *p, const struct step *s, float *out) {
    bench_run(g, p, s);
    memcpy(out, bench_port(g, PORT_HIDDEN), (size_t)s->n_rows * (size_t)g->o.model->hyper.n_embd * sizeof(float));
}

// Texts read in both directions: rows of a text alone, and spread among another's in a larger step.
static void check_encoder(const struct setup *s) {
    if (s->model->hyper.rope_base_local > 0) return; // has windows
    size_t n_embd = (size_t)s->model->hyper.n_embd;
    int32_t a[60], b[40];
    float alone[60 * 96], mixed[100 * 96];
    tokens_draw(a, 60, s->model->hyper.n_vocab);
    tokens_draw(b, 40, s->model->hyper.n_vocab);
    struct unit_bench g;
    assert_true(bench_open(&g, s, "scalar", 1, 64));
    struct bench_program p =
        bench_program_make(&g, (struct prog_spec){.kind = PROG_ENCODER, .outputs = PROG_OUT_HIDDEN});
    step_begin(&g.b, &g.pool, STEP_FULL);
    bench_seq_add(&g, &g.b, &g.seqs[0], false);
    for (int i = 0; i < 60; i++) step_add_full_row(&g.b, 0, a[i], true, false);
    hidden_run(&g, &p, step_end(&g.b), alone);
    bench_program_free(&g, &p);
    unit_bench_close(&g);
    for (int isa = 0; bench_isas[isa]; isa++) {
        if (!bench_open(&g, s, bench_isas[isa], 2, 128)) continue;
        p = bench_program_make(&g, (struct prog_spec){.kind = PROG_ENCODER, .outputs = PROG_OUT_HIDDEN});
        step_begin(&g.b, &g.pool, STEP_FULL);
        for (int i = 0; i < 2; i++) bench_seq_add(&g, &g.b, &g.seqs[i], false);
        int row_of[60], n_a = 0, n_b = 0;
        while (n_a < 60 || n_b < 40)
            if (n_b == 40 || (n_a < 60 && below(5) < 3)) {
                row_of[n_a] = step_add_full_row(&g.b, 0, a[n_a], true, false);
                n_a++;
            } else {
                step_add_full_row(&g.b, 1, b[n_b++], true, false);
            }
        hidden_run(&g, &p, step_end(&g.b), mixed);
        for (int i = 0; i < 60; i++)
            if (memcmp(mixed + (size_t)row_of[i] * n_embd, alone + (size_t)i * n_embd, n_embd * sizeof(float)) != 0)
                fail_msg("%s, %s: other encoder row %d", s->model->name, bench_isas[isa], i);
        bench_program_free(&g, &p);
        unit_bench_close(&g);
    }
}

// The bf16 class has an order of sums per kind of instruction: equal bits within each, whatever the cut.
static void test_bf16_class(void **state) {
    (void)state;
    static const struct cut cuts[] = {{1, 1, 2}, {8, 8, 1}, {17, 17, 2}, {64, 0, 1}, {128, 128, 3}};
    struct tiny_shape shape = tiny_llama_shape(FORMAT_BF16, 5);
    struct setup s = {.model = tiny_model_create(&shape), .numerics = PROG_CLASS_BF16};
    const size_t n_vocab = (size_t)s.model->hyper.n_vocab;
    struct answer wants[2] = {{0}};
    int32_t tokens[PROMPT];
    rng = 31;
    tokens_draw(tokens, PROMPT, s.model->hyper.n_vocab);
    for (int isa = 0; bench_isas[isa]; isa++) {
        for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
            struct unit_bench g;
            struct unit_caps caps;
            char what[96];
            if (!bench_open(&g, &s, bench_isas[isa], cuts[i].n_threads, cuts[i].window)) break;
            g.d->caps(g.unit, &caps);
            struct answer have = run_chunks(&g, tokens, PROMPT, cuts[i].chunk), *want = &wants[caps.bf16_order];
            snprintf(what, sizeof(what), "bf16, %s, window %d, %d threads", bench_isas[isa], cuts[i].window,
                     cuts[i].n_threads);
            if (want->logits) {
                assert_answer(&have, want, n_vocab, what);
                answer_free(&have);
            } else {
                *want = have;
            }
            unit_bench_close(&g);
        }
    }
    assert_non_null(wants[OP_BF16_PAIRS].logits);
    for (int i = 0; i < 2; i++) {
        if (wants[i].logits) answer_free(&wants[i]);
    }
    tiny_model_free(s.model);
}

// With one attention layer the last row sees the same in both directions as in a chain: a drafter's block behind a
// context, and an encoder's text.
static void test_full_rows_see_all(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_llama_shape(FORMAT_F32, 3);
    shape.n_layers = 1;
    struct setup s = {.model = tiny_model_create(&shape), .numerics = PROG_CLASS_FP32};
    size_t n_vocab = (size_t)s.model->hyper.n_vocab;
    int32_t tokens[48];
    rng = 9;
    tokens_draw(tokens, 48, s.model->hyper.n_vocab);
    for (int isa = 0; bench_isas[isa]; isa++) {
        struct unit_bench g;
        if (!bench_open(&g, &s, bench_isas[isa], 2, 64)) continue;
        struct answer want = run_chunks(&g, tokens, 48, 48);
        for (int context = 0; context <= 40; context += 40) {
            bench_reset(&g);
            if (context > 0) bench_chain(&g, &g.seqs[0], tokens, context, NULL);
            step_begin(&g.b, &g.pool, STEP_FULL);
            bench_seq_add(&g, &g.b, &g.seqs[0], false);
            for (int i = context; i < 48; i++) step_add_full_row(&g.b, 0, tokens[i], false, true);
            bench_run(&g, &g.whole, step_end(&g.b));
            const float *logits = bench_port(&g, PORT_LOGITS);
            assert_memory_equal(logits + (size_t)(47 - context) * n_vocab, want.logits + 47 * n_vocab,
                                n_vocab * sizeof(float));
            // The first row of more sees more than it does in a chain.
            assert_memory_not_equal(logits, want.logits + (size_t)context * n_vocab, n_vocab * sizeof(float));
        }
        answer_free(&want);
        unit_bench_close(&g);
    }
    tiny_model_free(s.model);
}

// ---------------------------------------------------------------------------------------- through a plan

// The engine's way to the same bits: logits, argmax and fill of the plan `whole`. What it holds stays below the
// estimate that is made before anything is allocated.
static void check_plan(const struct setup *s, int window, int n_threads) {
    struct unit *unit = NULL;
    struct plan *plan = NULL;
    struct tern_err err = {0};
    struct arena arena;
    struct step_builder b;
    int32_t blocks[4] = {3, 1, 0, 2}, tokens[100];
    int n_vocab = s->model->hyper.n_vocab, n = MIN(window, 100);
    tokens_draw(tokens, 100, n_vocab);
    struct answer want = measure(s, tokens, n);
    assert_int_equal(unit_open(&unit, "cpu", &(struct unit_options){.n_threads = n_threads}, &err), TERN_OK);
    const struct unit_driver *d = unit_driver_of(unit);
    struct plan_unit pu = {.unit = unit};
    struct plan_options o = {.model = s->model,
                             .units = &pu,
                             .n_units = 1,
                             .numerics = s->numerics,
                             .kv_type = s->kv_type,
                             .window = window,
                             .n_blocks = 4,
                             .n_slots = 2,
                             .n_out_max = window};
    uint64_t work = 0, state = 0;
    assert_true(plan_bytes_estimate("whole", &o, &work, &state));
    struct weights_options wo = {.numerics = s->numerics};
    assert_int_equal(d->weights_import(unit, &pu.weights, s->model, &wo, NULL, &err), TERN_OK);
    if (plan_open(&plan, "whole", &o, &err) != TERN_OK) fail_msg("%s", err.message);
    if (plan_work_bytes(plan) != work + state)
        fail_msg("window %d, %d threads: %llu bytes, estimated %llu", window, n_threads,
                 (unsigned long long)plan_work_bytes(plan), (unsigned long long)(work + state));
    arena_init(&arena, 0);
    assert_int_equal(step_builder_init(&b, &arena, window, s->model->hyper.conv_len, 1, NULL), TERN_OK);
    static const uint32_t wants[] = {PROG_OUT_LOGITS, PROG_OUT_ARGMAX, 0};
    for (int k = 0; k < 3; k++) {
        step_begin(&b, plan_pool(plan), 0);
        step_add_seq(&b, blocks, 4, 0, -1, 1);
        for (int i = 0; i < n; i++) step_add_chain_row(&b, 0, tokens[i], wants[k] != 0);
        if (plan_run(plan, step_end(&b), wants[k], &err) != TERN_OK) fail_msg("%s", err.message);
        for (int i = 0; i < n && k < 2; i++) {
            const float *expected = want.logits + (size_t)i * (size_t)n_vocab;
            float max = 0;
            int32_t id = op_argmax(expected, n_vocab, &max);
            if (k == 0) assert_memory_equal(plan_logits(plan, i), expected, (size_t)n_vocab * sizeof(float));
            if (k == 1) assert_true(plan_argmax(plan)[i].id == id && plan_argmax(plan)[i].max == max);
        }
    }
    plan_close(plan);
    d->weights_free(unit, pu.weights);
    unit_close(unit);
    arena_release(&arena);
    answer_free(&want);
}

static void check_plans(const struct setup *base) {
    static const int windows[] = {1, 40, 512};
    struct setup s = *base;
    for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
        s.kv_type = (enum op_kv_type)i;
        check_plan(&s, windows[i], 1 + (int)i);
    }
}

// ---------------------------------------------------------------------------------------- tests

static void test_plan(void **state) {
    (void)state;
    for_each_model(check_plans, 8);
    if (is_short) return;
    // A wider model, where the rows' memory outweighs the constants.
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_Q8_0, 3);
    shape.n_embd = 512;
    shape.n_head = 8;
    shape.head_dim = 64;
    shape.n_ff = 1536;
    struct setup s = {.model = tiny_model_create(&shape), .numerics = PROG_CLASS_INT8};
    check_plans(&s);
    tiny_model_free(s.model);
}
static void test_windows_chunks_threads(void **state) {
    (void)state;
    for_each_model(check_windows, 8);
}
static void test_short_beside_long(void **state) {
    (void)state;
    for_each_model(check_short_and_long, 4);
}
static void test_eight_together(void **state) {
    (void)state;
    for_each_model(check_eight, 8);
}
static void test_encoder_rows(void **state) {
    (void)state;
    for_each_model(check_encoder, 8);
}

int main(void) {
    is_short = env_get("TERN_TEST_SHORT") != NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows_chunks_threads),
        cmocka_unit_test(test_short_beside_long),
        cmocka_unit_test(test_eight_together),
        cmocka_unit_test(test_encoder_rows),
        cmocka_unit_test(test_bf16_class),
        cmocka_unit_test(test_full_rows_see_all),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests_name("contract", tests, NULL, NULL);
}
