// The npu unit's driver over the evaluator: agrees with the cpu unit's fp32 class; equal bits however a text is cut
// into steps, as chain, tree or beside other sequences; state through verify and commit; planted faults are seen.
#define _GNU_SOURCE 1
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "coreai_asset_test.h"
#include "unit/npu/npu_unit.h"

#define WINDOW 64
#define N_BLOCKS 64
#define N_SLOTS 8
#define TABLE 16
#define TEXT 100

static int up_power; // of the next models: their feed-forward parts carry values times 2^up_power, the function kept

struct rig {
    const struct unit_driver *d;
    struct model *model;
    struct unit *unit;
    struct unit_weights *weights;
    struct prog *prog, *commit_prog;
    struct unit_program *program, *commit;
    struct arena arena;
    struct step_builder b, commit_b;
    struct state_pool pool;
    int32_t blocks[4][TABLE];
    int32_t len[4];
    bool begun[4];
    struct unit_buffer *logits, *argmax;
    int n_vocab;
};

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s", err->message);
}

static struct unit_buffer *buffer_make(struct rig *g, uint64_t bytes) {
    struct unit_buffer *b = NULL;
    struct tern_err err;
    must(g->d->buffer_alloc(g->unit, &b, bytes, &err), &err);
    return b;
}

static void rig_open(struct rig *g, const char *unit, const struct tiny_shape *shape, enum prog_class numerics) {
    // Without fp16 values the window's own keys are floats, so the cache must keep floats for bits to be equal.
    enum op_kv_type kv_type = strcmp(unit, "npu:fp32") == 0 ? OP_KV_F32 : OP_KV_F16;
    struct tern_err err;
    struct weights_info info;
    memset(g, 0, sizeof *g);
    g->model = tiny_model_create(shape);
    for (int i = 0; up_power != 0 && i < g->model->hyper.n_layers; i++) {
        const struct tensor *t[2] = {g->model->layers[i].ffn_up, g->model->layers[i].ffn_down};
        for (int j = 0; j < 2; j++)
            for (int64_t k = 0; k < t[j]->ne[0] * t[j]->ne[1]; k++)
                ((float *)(uintptr_t)t[j]->data)[k] *= ldexpf(1, j == 0 ? up_power : -up_power);
    }
    g->n_vocab = g->model->hyper.n_vocab;
    arena_init(&g->arena, 0);
    must(unit_open(&g->unit, unit, &(struct unit_options){.n_threads = 2}, &err), &err);
    g->d = unit_driver_of(g->unit);
    must(g->d->weights_import(g->unit, &g->weights, g->model, &(struct weights_options){.numerics = numerics}, &info,
                              &err),
         &err);
    struct prog_spec spec = {.kind = PROG_WHOLE,
                             .numerics = numerics,
                             .kv_type = kv_type,
                             .window = WINDOW,
                             .n_out_max = -1,
                             .outputs = PROG_OUT_LOGITS | PROG_OUT_ARGMAX};
    must(prog_build(&g->prog, g->model, &spec, &err), &err);
    must(g->d->program_compile(g->unit, &g->program, g->prog, g->weights, &err), &err);
    spec.kind = PROG_COMMIT;
    spec.outputs = 0;
    spec.n_out_max = 0;
    must(prog_build(&g->commit_prog, g->model, &spec, &err), &err);
    must(g->d->program_compile(g->unit, &g->commit, g->commit_prog, g->weights, &err), &err);
    int n_taps = g->model->hyper.conv_len;
    must(step_builder_init(&g->b, &g->arena, WINDOW, n_taps, 4, &err), &err);
    must(step_builder_init(&g->commit_b, &g->arena, WINDOW, n_taps, 4, &err), &err);
    g->pool = (struct state_pool){.n_blocks = N_BLOCKS, .n_slots = N_SLOTS};
    must(state_layout_init(&g->pool.layout, g->model, kv_type, 0, g->model->hyper.n_layers, WINDOW, &err), &err);
    uint64_t kv = 0, conv = 0;
    assert_true(state_kv_bytes(&g->pool.layout, N_BLOCKS, &kv) && state_conv_bytes(&g->pool.layout, N_SLOTS, &conv));
    g->pool.kv = buffer_make(g, MAX(kv, 4));
    g->pool.conv = buffer_make(g, MAX(conv, 4));
    // Garbage in unused places must not matter: NaN in all types.
    memset(g->d->buffer_host(g->pool.kv), 0xff, (size_t)kv);
    memset(g->d->buffer_host(g->pool.conv), 0xff, (size_t)conv);
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < TABLE; i++) g->blocks[s][i] = s * TABLE + (i * 7 + 3) % TABLE;
    g->logits = buffer_make(g, (uint64_t)WINDOW * (uint64_t)g->n_vocab * sizeof(float));
    g->argmax = buffer_make(g, WINDOW * sizeof(struct prog_argmax));
}

static void rig_close(struct rig *g) {
    struct unit_buffer *buffers[] = {g->pool.kv, g->pool.conv, g->logits, g->argmax};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++) g->d->buffer_free(g->unit, buffers[i]);
    g->d->program_free(g->unit, g->program);
    g->d->program_free(g->unit, g->commit);
    prog_free(g->prog);
    prog_free(g->commit_prog);
    g->d->weights_free(g->unit, g->weights);
    unit_close(g->unit);
    tiny_model_free(g->model);
    arena_release(&g->arena);
}

static void submit(struct rig *g) {
    struct tern_err err;
    struct unit_event event;
    g->b.step.ports[PORT_LOGITS].buf = g->logits;
    g->b.step.ports[PORT_ARGMAX].buf = g->argmax;
    const struct step *s = step_end(&g->b);
    mem_freeze(true);
    enum tern_status status = g->d->submit(g->unit, g->program, s, &event, &err);
    mem_freeze(false);
    must(status, &err);
    must(g->d->event_wait(g->unit, &event, &err), &err);
}

static int seq_add(struct rig *g, int seq, bool keep) {
    return step_add_seq(&g->b, g->blocks[seq], TABLE, g->len[seq], g->begun[seq] ? seq : -1, keep ? -1 : seq);
}

// The next n tokens of a sequence in one step; logits of the last row to out.
static void feed(struct rig *g, int seq, const int32_t *tokens, int n, float *out) {
    step_begin(&g->b, &g->pool, 0);
    int q = seq_add(g, seq, false);
    for (int i = 0; i < n; i++) step_add_chain_row(&g->b, q, tokens[i], i == n - 1);
    submit(g);
    g->len[seq] += n;
    g->begun[seq] = true;
    if (out) memcpy(out, g->d->buffer_host(g->logits), (size_t)g->n_vocab * sizeof(float));
}

static void text_make(const struct rig *g, int32_t *out, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) out[i] = (int32_t)(tiny_random(&seed) % (uint64_t)g->n_vocab);
}

static float *row_make(struct rig *g) {
    float *p = arena_calloc(&g->arena, (size_t)g->n_vocab, sizeof(float));
    assert_non_null(p);
    return p;
}

static int differ(const float *a, const float *b, int n) {
    int bad = 0;
    for (int i = 0; i < n; i++) bad += f32_bits(a[i]) != f32_bits(b[i]);
    return bad;
}

static void same_bits(const float *a, const float *b, int n, const char *what) {
    int bad = differ(a, b, n);
    if (bad) fail_msg("%s: %d of %d logits differ in bits", what, bad, n);
}

// Largest difference over the largest magnitude.
static float distance(const float *a, const float *b, int n) {
    float top = 0, diff = 0;
    for (int i = 0; i < n; i++) {
        top = fmaxf(top, fabsf(b[i]));
        diff = fmaxf(diff, fabsf(a[i] - b[i]));
    }
    return diff / top;
}

// Sets whose sums do not depend on where a key lies (tiles of 4 do).
static const char *const exact_sets[] = {"npu:fp32", "npu:coreai-linux", "npu:ane-m1", "npu:ane-m5:prod16"};

static void check_agreement(const char *reference, const char *unit, enum prog_class numerics,
                            const struct tiny_shape *shape) {
    struct rig cpu, npu;
    int32_t text[TEXT];
    rig_open(&cpu, reference, shape, numerics);
    rig_open(&npu, unit, shape, numerics);
    float *want = row_make(&cpu), *have = row_make(&npu);
    text_make(&cpu, text, TEXT, 5);
    for (int i = 0, n = 0; i < TEXT; i += n) { // steps of 1 … 40 rows over several blocks
        static const int sizes[] = {40, 1, 1, 17, 33, 8};
        n = sizes[(i / 7) % 6];
        n = MIN(n, TEXT - i);
        feed(&cpu, 0, text + i, n, want);
        feed(&npu, 0, text + i, n, have);
        float far = distance(have, want, cpu.n_vocab); // fp16 weights: observed up to 0.002; a wrong row gives 0.3
        if (getenv("TEST_VERBOSE")) print_message("%s %s, position %d: off by %g\n", unit, shape->arch, i, (double)far);
        if (!(far < 0.01f)) fail_msg("%s %s, position %d: off by %g", unit, shape->arch, i + n, (double)far);
        const struct prog_argmax *best = npu.d->buffer_host(npu.argmax);
        float top = -INFINITY;
        int id = -1;
        for (int k = 0; k < npu.n_vocab; k++)
            if (have[k] > top) top = have[k], id = k;
        assert_int_equal(best[0].id, id);
    }
    rig_close(&cpu);
    rig_close(&npu);
}

static void test_agrees_with_cpu(void **state) {
    (void)state;
    struct tiny_shape lfm2 = tiny_lfm2_shape(FORMAT_F32, 3), llama = tiny_llama_shape(FORMAT_F32, 4);
    check_agreement("cpu", "npu:fp32", PROG_CLASS_FP32, &lfm2);
    check_agreement("cpu", "npu:fp32", PROG_CLASS_FP32, &llama);
}

static void test_cuts(void **state) {
    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(exact_sets); r++) {
        struct rig g;
        int32_t text[TEXT];
        struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 7);
        rig_open(&g, exact_sets[r], &shape, PROG_CLASS_INT8);
        text_make(&g, text, TEXT, 11);
        float *want = row_make(&g), *have = row_make(&g);
        feed(&g, 0, text, 50, NULL);
        feed(&g, 0, text + 50, 20, want);
        static const int cuts[] = {1, 31, 2, 30, 1, 5};
        for (size_t i = 0, at = 0; i < ARRAY_LEN(cuts); at += (size_t)cuts[i++]) feed(&g, 1, text + at, cuts[i], have);
        same_bits(have, want, g.n_vocab, exact_sets[r]);
        rig_close(&g);
    }
}

// A tree behind 37 positions: every row's logits are those of its path as a chain; then a path is committed.
static void test_tree(void **state) {
    (void)state;
    static const int parents[] = {-1, 0, 0, 1, 2, 2, 4, 3, 6};
    enum { N = ARRAY_LEN(parents) };
    for (size_t r = 0; r < ARRAY_LEN(exact_sets); r++) {
        struct rig g;
        int32_t text[TEXT], nodes[N];
        struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 9);
        rig_open(&g, exact_sets[r], &shape, PROG_CLASS_INT8);
        text_make(&g, text, TEXT, 1);
        text_make(&g, nodes, N, 2);
        float *want = row_make(&g), *have = row_make(&g);
        float *rows = arena_calloc(&g.arena, (size_t)N * (size_t)g.n_vocab, sizeof(float));
        assert_non_null(rows);
        feed(&g, 0, text, 37, NULL);
        step_begin(&g.b, &g.pool, STEP_KEEP_ROWS);
        int q = seq_add(&g, 0, true);
        for (int i = 0; i < N; i++)
            step_add_tree_row(&g.b, q, nodes[i], parents[i] < 0 ? STEP_NO_PARENT : parents[i], true);
        submit(&g);
        memcpy(rows, g.d->buffer_host(g.logits), (size_t)N * (size_t)g.n_vocab * sizeof(float));
        int path[N], n = 0;
        for (int i = N - 1; i >= 0; i = parents[i]) path[n++] = i;
        step_begin(&g.commit_b, &g.pool, 0);
        q = step_add_seq(&g.commit_b, g.blocks[0], TABLE, g.len[0], 0, 0);
        for (int i = n - 1; i >= 0; i--) step_add_path_row(&g.commit_b, q, &g.b.step, path[i]);
        struct unit_event event;
        struct tern_err err;
        must(g.d->submit(g.unit, g.commit, step_end(&g.commit_b), &event, &err), &err);
        g.len[0] += n;
        feed(&g, 0, text + 37, 9, have);
        feed(&g, 1, text, 37, NULL);
        for (int i = n - 1; i >= 0; i--) {
            feed(&g, 1, &nodes[path[i]], 1, want);
            same_bits(rows + (size_t)path[i] * (size_t)g.n_vocab, want, g.n_vocab, "a row of the tree");
        }
        feed(&g, 1, text + 37, 9, want);
        same_bits(have, want, g.n_vocab, "after the commit");
        rig_close(&g);
    }
}

// Three sequences of different lengths in one step give what each gives alone.
static void check_together(const char *ctx) {
    struct rig g;
    int32_t text[4][TEXT];
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 21);
    if (ctx) setenv("TERN_NPU_CTX", ctx, 1);
    rig_open(&g, "npu", &shape, PROG_CLASS_INT8);
    unsetenv("TERN_NPU_CTX");
    float *want[3], *behind[3];
    for (int s = 0; s < 3; s++) {
        text_make(&g, text[s], TEXT, 30 + (uint64_t)s);
        want[s] = row_make(&g);
        behind[s] = row_make(&g);
        feed(&g, 3, text[s], 20 + 15 * s, NULL);
        feed(&g, 3, text[s] + 20 + 15 * s, 3, want[s]);
        feed(&g, 3, text[s] + 23 + 15 * s, 1, behind[s]);
        g.len[3] = 0;
        g.begun[3] = false;
        feed(&g, s, text[s], 20 + 15 * s, NULL);
    }
    step_begin(&g.b, &g.pool, 0);
    for (int s = 0; s < 3; s++) seq_add(&g, s, false);
    for (int i = 0; i < 3; i++)
        for (int s = 0; s < 3; s++) step_add_chain_row(&g.b, s, text[s][20 + 15 * s + i], i == 2);
    submit(&g);
    const float *have = g.d->buffer_host(g.logits);
    const struct prog_argmax *top = (const struct prog_argmax *)g.d->buffer_host(g.argmax);
    for (int s = 0; s < 3; s++) {
        same_bits(have + (size_t)s * (size_t)g.n_vocab, want[s], g.n_vocab, "beside others");
        for (int k = 0; k < g.n_vocab; k++) assert_true(want[s][k] <= top[s].max);
    }
    for (int s = 0; s < 3; s++) { // what the step left
        g.len[s] += 3;
        feed(&g, s, text[s] + g.len[s], 1, want[s]);
        same_bits(want[s], behind[s], g.n_vocab, "behind a step beside others");
    }
    rig_close(&g);
}

// In one run of the program, and in passes: together the sequences have more columns than the largest bucket.
static void test_together(void **state) {
    (void)state;
    check_together(NULL);
    check_together("32,64");
    check_together("64");
}

// Each fault changes what the checks above compare, so it cannot pass them. noise: of two equal runs.
static void check_faults(const char *unit, float noise) {
    struct rig g;
    int32_t text[TEXT];
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 40);
    rig_open(&g, unit, &shape, PROG_CLASS_INT8);
    text_make(&g, text, TEXT, 50);
    float *want = row_make(&g), *have = row_make(&g);
    feed(&g, 0, text, 64, NULL);
    feed(&g, 0, text + 64, 1, want);
    for (int fault = 0; fault < 4; fault++) {
        g.len[1] = 0;
        g.begun[1] = false;
        feed(&g, 1, text, 64, NULL);
        size_t slot = (size_t)g.pool.layout.slot_bytes, row = (size_t)g.pool.layout.n_embd * sizeof(float);
        uint8_t *conv = (uint8_t *)g.d->buffer_host(g.pool.conv) + slot, *kv = g.d->buffer_host(g.pool.kv);
        if (fault == 0) // control: nothing planted
            (void)row;
        if (fault == 1) { // the first row behind a window edge reads a wrong grandparent: the older stored row
            memcpy(conv, conv + row, row);
        }
        if (fault == 2) { // a stale block: the second block of the context is still that of another text
            memcpy(kv + (size_t)g.blocks[1][1] * (size_t)g.pool.layout.block_bytes,
                   kv + (size_t)g.blocks[1][0] * (size_t)g.pool.layout.block_bytes, (size_t)g.pool.layout.block_bytes);
        }
        if (fault == 3) g.len[1] = 32; // a context one block short
        feed(&g, 1, text + 64, 1, have);
        float far = distance(have, want, g.n_vocab);
        if (getenv("TEST_VERBOSE")) print_message("%s, fault %d: off by %g\n", unit, fault, (double)far);
        if (fault == 0 && !(far <= noise)) fail_msg("%s: off by %g without a fault", unit, (double)far);
        if (fault > 0 && !(far > 10 * noise))
            fail_msg("%s: fault %d was not seen: off by %g", unit, fault, (double)far);
    }
    step_begin(&g.b, &g.pool, 0); // the head on a wrong row
    g.len[2] = 0;
    int q = seq_add(&g, 2, false);
    for (int i = 0; i < 60; i++) step_add_chain_row(&g.b, q, text[i], i == 58);
    submit(&g);
    memcpy(have, g.d->buffer_host(g.logits), (size_t)g.n_vocab * sizeof(float));
    g.len[3] = 0;
    feed(&g, 3, text, 60, want);
    assert_true(distance(have, want, g.n_vocab) > 10 * noise);
    rig_close(&g);
}

static void test_planted_faults(void **state) {
    (void)state;
    check_faults("npu", 0);
}

static float far_from(const float *want, const char *unit, const struct tiny_shape *shape, const int32_t *text) {
    struct rig g;
    rig_open(&g, unit, shape, PROG_CLASS_INT8);
    float *have = row_make(&g);
    feed(&g, 0, text, 60, have);
    float far = distance(have, want, g.n_vocab);
    rig_close(&g);
    return far;
}

// A model whose feed-forward values lie below fp16's normal numbers fails on an engine that flushes them, and works
// again with the scales that observing it gives.
static void test_calibration(void **state) {
    (void)state;
    char path[] = "/tmp/tern-scales-XXXXXX";
    int fd = mkstemp(path);
    struct rig cpu;
    int32_t text[TEXT];
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 61);
    assert_true(fd >= 0);
    close(fd);
    up_power = -11;
    rig_open(&cpu, "cpu", &shape, PROG_CLASS_FP32);
    text_make(&cpu, text, TEXT, 70);
    float *want = row_make(&cpu);
    feed(&cpu, 0, text, 60, want);
    float without = far_from(want, "npu:ane-m1", &shape, text);
    setenv("TERN_NPU_OBSERVE", path, 1);
    float ideal = far_from(want, "npu:fp32", &shape, text);
    unsetenv("TERN_NPU_OBSERVE");
    setenv("TERN_NPU_SCALES", path, 1);
    float with = far_from(want, "npu:ane-m1", &shape, text);
    print_message("off by %.4f under fp32, %.4f under ane-m1, %.4f with scales\n", (double)ideal, (double)without,
                  (double)with);
    assert_true(with < 0.5f * without);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("ffn 2 99\n", f);
    fclose(f);
    struct unit *u = NULL;
    struct unit_weights *w = NULL;
    struct tern_err err;
    must(unit_open(&u, "npu", &(struct unit_options){.n_threads = 1}, &err), &err);
    struct weights_options o = {.numerics = PROG_CLASS_INT8};
    assert_int_equal(unit_driver_of(u)->weights_import(u, &w, cpu.model, &o, NULL, &err), TERN_BAD_FORMAT);
    assert_non_null(strstr(err.message, "line 1"));
    unit_close(u);
    unsetenv("TERN_NPU_SCALES");
    up_power = 0;
    unlink(path);
    rig_close(&cpu);
}

static void test_refusals(void **state) {
    (void)state;
    struct tern_err err;
    struct unit *u = NULL;
    struct unit_weights *w = NULL;
    assert_int_equal(unit_open(&u, "npu:m9", NULL, &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "ane-m1"));
    assert_int_equal(unit_open(&u, "cpu:x", NULL, &err), TERN_INVALID_ARGUMENT);
    must(unit_open(&u, "npu", &(struct unit_options){.n_threads = 1}, &err), &err);
    struct tiny_shape shapes[] = {tiny_moe_shape(FORMAT_F32, 1), tiny_gemma_shape(FORMAT_F32, 1)};
    static const char *const words[] = {"mixture of experts", "gelu"};
    for (int i = 0; i < 2; i++) {
        struct model *m = tiny_model_create(&shapes[i]);
        struct weights_options o = {.numerics = PROG_CLASS_INT8};
        assert_int_equal(unit_driver_of(u)->weights_import(u, &w, m, &o, NULL, &err), TERN_UNSUPPORTED);
        assert_non_null(strstr(err.message, words[i]));
        tiny_model_free(m);
    }
    unit_close(u);
}

// A back end's runtime is not here: skipped, which with CI set is a failure (not with sanitizers, nor in an emulator).
static bool remote_is_here(const char *unit) {
    struct unit *u = NULL;
    struct tern_err err;
    enum tern_status status = unit_open(&u, unit, &(struct unit_options){.n_threads = 1}, &err);
    if (status == TERN_OK) {
        unit_close(u);
        return true;
    }
    if (status != TERN_NOT_FOUND || (env_get("CI") && !env_get("TERN_TEST_SHORT")))
        fail_msg("%s: %s", unit, err.message);
    print_message("skipped: %s\n", err.message);
    return false;
}

#define PROMPT 20
#define ANSWER 16

// Greedy over a back end: token by token, as one chain, and as a tree with a wrong branch beside every token.
static void check_remote(const char *unit, const struct tiny_shape *shape) {
    struct rig g;
    int32_t text[PROMPT + ANSWER + 1];
    const struct prog_argmax *top;
    rig_open(&g, unit, shape, PROG_CLASS_INT8);
    top = (const struct prog_argmax *)g.d->buffer_host(g.argmax);
    text_make(&g, text, PROMPT, 5);
    feed(&g, 0, text, PROMPT, NULL);
    text[PROMPT] = top[0].id;
    for (int i = PROMPT; i < PROMPT + ANSWER; i++) {
        feed(&g, 0, &text[i], 1, NULL);
        text[i + 1] = top[0].id;
    }
    feed(&g, 1, text, PROMPT, NULL);
    step_begin(&g.b, &g.pool, STEP_KEEP_ROWS);
    int q = seq_add(&g, 1, true);
    for (int i = 0; i < ANSWER; i++) step_add_chain_row(&g.b, q, text[PROMPT + i], true);
    submit(&g);
    for (int i = 0; i < ANSWER; i++) assert_int_equal(top[i].id, text[PROMPT + i + 1]);
    step_begin(&g.b, &g.pool, STEP_KEEP_ROWS);
    q = seq_add(&g, 1, true);
    int parent = STEP_NO_PARENT;
    for (int i = 0; i < ANSWER; i++) {
        step_add_tree_row(&g.b, q, (text[PROMPT + i] + 1) % g.n_vocab, parent, false); // rejected
        parent = step_add_tree_row(&g.b, q, text[PROMPT + i], parent, true);
    }
    submit(&g);
    for (int i = 0; i < ANSWER; i++) assert_int_equal(top[i].id, text[PROMPT + i + 1]);
    rig_close(&g);
}

static void test_remote(void **state) {
    (void)state;
    static const char *const units[] = {"npu:ort", "npu:openvino"};
    struct tiny_shape lfm2 = tiny_lfm2_shape(FORMAT_F32, 3), llama = tiny_llama_shape(FORMAT_F32, 4);
    setenv("TERN_NPU_CTX", "64", 1); // one bucket
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
#ifdef __SANITIZE_ADDRESS__
        if (i == 1) continue; // its thread library and the sanitizer exclude each other
#endif
        if (!remote_is_here(units[i])) continue;
        check_remote(units[i], &lfm2);
        check_remote(units[i], &llama);
    }
    unsetenv("TERN_NPU_CTX");
}

// The evaluator's logits on a runtime within fp16, over two buckets, and faults that such a comparison sees. Keys and
// values lie in memory that layers use in turn, so what one layer left there is such a fault.
static void test_remote_agrees(void **state) {
    (void)state;
    struct tiny_shape lfm2 = tiny_lfm2_shape(FORMAT_F32, 3), llama = tiny_llama_shape(FORMAT_F32, 4);
    setenv("TERN_NPU_CTX", "64,128", 1);
    if (remote_is_here("npu:ort")) {
        check_agreement("npu:fp32", "npu:ort", PROG_CLASS_INT8, &lfm2);
        check_agreement("npu:fp32", "npu:ort", PROG_CLASS_INT8, &llama);
        check_faults("npu:ort", 1e-4f);
    }
    unsetenv("TERN_NPU_CTX");
}

#ifndef __SANITIZE_ADDRESS__ // see test_remote
// Logits behind PROMPT tokens.
static void format_logits(const char *unit, const struct tiny_shape *shape, float *out) {
    struct rig g;
    int32_t text[PROMPT];
    rig_open(&g, unit, shape, PROG_CLASS_INT8);
    text_make(&g, text, PROMPT, 5);
    feed(&g, 0, text, PROMPT, out);
    rig_close(&g);
}
#endif

// A runtime's int4 is the evaluator's: the same values, which are not int8's. What a runtime has not is refused.
static void test_remote_formats(void **state) {
    (void)state;
    static const struct {
        const char *unit, *says;
    } bad[] = {{"npu:ort+int4", "ONNX Runtime offers no int4 here; it has int8, f16"},
               {"npu:openvino+w8a8in", "OpenVINO offers no w8a8in here; it has int8, f16, int4, w8a8"},
               {"npu:coreai+f16", "offers no f16"},
               {"npu:openvino+int3:CPU", "no weight format 'int3'"}};
    struct unit *u = NULL;
    struct tern_err err;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_not_equal(unit_open(&u, bad[i].unit, &(struct unit_options){.n_threads = 1}, &err), TERN_OK);
        if (!strstr(err.message, bad[i].says)) fail_msg("%s: %s", bad[i].unit, err.message);
    }
#ifndef __SANITIZE_ADDRESS__
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 3);
    int n = shape.n_vocab;
    if (!remote_is_here("npu:openvino")) return;
    float *all = mem_calloc((size_t)n * 4, sizeof *all), *int8 = all, *int4 = all + n, *theirs = all + 2 * n,
          *acts = all + 3 * n;
    setenv("TERN_NPU_CTX", "64", 1); // one bucket
    format_logits("npu:fp32", &shape, int8);
    format_logits("npu:fp32+int4", &shape, int4);
    format_logits("npu:openvino+int4:CPU", &shape, theirs);
    format_logits("npu:openvino+w8a8", &shape, acts);
    unsetenv("TERN_NPU_CTX");
    float apart = distance(int4, int8, n), near = distance(theirs, int4, n);
    if (getenv("TEST_VERBOSE"))
        print_message("int4 to int8 %g, OpenVINO's to int4 %g, w8a8 to int8 %g\n", (double)apart, (double)near,
                      (double)distance(acts, int8, n));
    assert_true(near < 0.02f && apart > 5 * near);
    assert_true(distance(acts, int8, n) < apart);
    mem_free(all);
#endif
}

// The programs of a rig as an asset for Apple's runtime: what the unit asks for by name.
static bool asset_make(struct asset_folder *f, const struct tiny_shape *shape) {
    struct model *m;
    struct npu_store *store = NULL;
    struct prog *p = NULL;
    struct npu_list *l = NULL;
    struct tern_err err;
    struct prog_spec spec = {.kind = PROG_WHOLE,
                             .numerics = PROG_CLASS_INT8,
                             .kv_type = OP_KV_F16,
                             .window = WINDOW,
                             .n_out_max = -1,
                             .outputs = PROG_OUT_LOGITS | PROG_OUT_ARGMAX};
    if (!asset_folder_init(f)) return false;
    m = tiny_model_create(shape);
    must(npu_store_create(&store, m, NPU_FORMAT_I8, &err), &err);
    must(prog_build(&p, m, &spec, &err), &err);
    must(npu_program_list(&l, p, store, NULL, 64, 1, &err), &err);
    const struct npu_list *const lists[] = {l};
    template_make(f, lists, 1);
    must(coreai_fill(f->tpl, f->asset, lists, 1, m->digest, &err), &err);
    npu_list_free(l);
    prog_free(p);
    npu_store_free(store);
    tiny_model_free(m);
    return true;
}

// Apple's runtime in the driver: the same tokens as plain, chain and tree, and the evaluator's logits in every bit.
static void test_coreai(void **state) {
    (void)state;
    struct asset_folder f;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 3);
    if (asset_make(&f, &shape)) { // else skipped, out of here
        struct rig apple, own;
        int32_t text[TEXT];
        setenv("TERN_NPU_CTX", "64", 1); // one bucket
        setenv("TERN_COREAI_ASSET", f.asset, 1);
        check_remote("npu:coreai", &shape);
        rig_open(&apple, "npu:coreai", &shape, PROG_CLASS_INT8);
        rig_open(&own, "npu:coreai-linux", &shape, PROG_CLASS_INT8);
        text_make(&own, text, TEXT, 8);
        float *have = row_make(&apple), *want = row_make(&own);
        for (int i = 0; i < 60; i += 20) {
            feed(&apple, 0, text + i, 20, have);
            feed(&own, 0, text + i, 20, want);
            same_bits(have, want, own.n_vocab, "Apple's runtime in the driver");
        }
        rig_close(&own);
        rig_close(&apple);
        unsetenv("TERN_COREAI_ASSET");
        unsetenv("TERN_NPU_CTX");
        asset_folder_remove(&f);
    }
}

// Qwen3: attention with norms of q and k in every layer, halves rotated, an output of its own or the embedding.
static void test_qwen3(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct tiny_shape shape = tiny_llama_shape(FORMAT_F32, 14);
        shape.arch = "qwen3";
        shape.qk_norm = true;
        shape.interleaved = false;
        shape.tied = tied;
        check_agreement("cpu", "npu:fp32", PROG_CLASS_FP32, &shape);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coreai),
        cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_agrees_with_cpu),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_planted_faults),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_remote),
        cmocka_unit_test(test_remote_agrees),
        cmocka_unit_test(test_remote_formats),
        cmocka_unit_test(test_calibration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
