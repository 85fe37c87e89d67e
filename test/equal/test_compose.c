// Parts of a model compose to the whole, bit for bit: ranges of layers, segments around attention cores, row ranges of
// one weight; and a tree that is verified and committed leaves what plain decoding of its path leaves.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "../common/tiny_model.h"
#include "../common/unit_bench.h"

#define WINDOW 96

static uint64_t rng;
static bool is_short; // TERN_TEST_SHORT=1 (sanitizers, emulators): fewer setups and rounds
static int below(int n) { return (int)(tiny_random(&rng) % (uint64_t)n); }

static void copy_pool(struct unit_bench *g, uint8_t *kv, uint8_t *conv) {
    memcpy(kv, g->d->buffer_host(g->pool.kv), (size_t)g->kv_bytes);
    if (g->conv_bytes > 0) memcpy(conv, g->d->buffer_host(g->pool.conv), (size_t)g->conv_bytes);
}

// A step of one kind behind what the sequences hold; `kind` 0: a chain, 1: a tree, 2: several sequences mixed.
static const struct step *step_make(struct unit_bench *g, int kind) {
    int n_vocab = g->o.model->hyper.n_vocab;
    step_begin(&g->b, &g->pool, kind == 0 ? 0 : STEP_KEEP_ROWS);
    if (kind == 0) {
        int seq = bench_seq_add(g, &g->b, &g->seqs[0], true);
        for (int i = 0; i < 70; i++) step_add_chain_row(&g->b, seq, below(n_vocab), i % 3 == 0);
        return step_end(&g->b);
    }
    int n_seqs = kind == 1 ? 1 : 3;
    int rows[3][WINDOW], n_rows[3] = {0};
    for (int i = 0; i < n_seqs; i++) bench_seq_add(g, &g->b, &g->seqs[i], false);
    for (int i = 0; i < 40; i++) {
        int seq = below(n_seqs);
        int parent = n_rows[seq] == 0 ? STEP_NO_PARENT : rows[seq][below(n_rows[seq])];
        rows[seq][n_rows[seq]++] = step_add_tree_row(&g->b, seq, below(n_vocab), parent, i % 2 == 0);
    }
    return step_end(&g->b);
}

// What a run left: outputs, pools.
struct result {
    float *logits, *features;
    uint8_t *kv, *conv;
};
static void result_take(struct unit_bench *g, const struct step *s, struct result *r) {
    size_t n_logits = (size_t)s->n_out * (size_t)g->o.model->hyper.n_vocab;
    *r = (struct result){.logits = mem_dup(bench_port(g, PORT_LOGITS), n_logits * sizeof(float)),
                         .kv = mem_alloc((size_t)g->kv_bytes),
                         .conv = mem_alloc((size_t)g->conv_bytes + 1)};
    copy_pool(g, r->kv, r->conv);
}
static void result_free(struct result *r) {
    mem_free(r->logits);
    mem_free(r->features);
    mem_free(r->kv);
    mem_free(r->conv);
}
static void assert_result(struct unit_bench *g, const struct step *s, const struct result *want, const char *what) {
    size_t n_logits = (size_t)s->n_out * (size_t)g->o.model->hyper.n_vocab;
    if (memcmp(bench_port(g, PORT_LOGITS), want->logits, n_logits * sizeof(float)) != 0)
        fail_msg("%s: other logits than the whole", what);
    if (memcmp(g->d->buffer_host(g->pool.kv), want->kv, (size_t)g->kv_bytes) != 0)
        fail_msg("%s: other K/V than the whole", what);
    if (g->conv_bytes > 0 && memcmp(g->d->buffer_host(g->pool.conv), want->conv, (size_t)g->conv_bytes) != 0)
        fail_msg("%s: other convolution rows than the whole", what);
}
static void pool_restore(struct unit_bench *g, const struct result *before) {
    memcpy(g->d->buffer_host(g->pool.kv), before->kv, (size_t)g->kv_bytes);
    if (g->conv_bytes > 0) memcpy(g->d->buffer_host(g->pool.conv), before->conv, (size_t)g->conv_bytes);
}

// Rows of one part become the next part's input through one buffer.
static void run_part(struct unit_bench *g, struct prog_spec spec, const struct step *s) {
    struct step part = *s;
    part.ports[PORT_ROWS_IN].buf = part.ports[PORT_ROWS_OUT].buf = g->ports[PORT_ROWS_OUT];
    if (!(spec.outputs & PROG_OUT_LOGITS)) part.n_out = 0;
    struct bench_program p = bench_program_make(g, spec);
    bench_run(g, &p, &part);
    bench_program_free(g, &p);
}

// Cut behind each layer whose bit is set.
static void run_ranges(struct unit_bench *g, uint64_t cuts, const struct step *s) {
    int n = g->o.model->hyper.n_layers;
    for (int begin = 0, end = 1; end <= n; end++) {
        if (end < n && !(cuts >> (end - 1) & 1)) continue;
        run_part(
            g,
            (struct prog_spec){
                .kind = PROG_LAYERS, .layer_begin = begin, .layer_end = end, .outputs = end == n ? PROG_OUT_LOGITS : 0},
            s);
        begin = end;
    }
}

static void run_segments(struct unit_bench *g, const struct step *s) {
    int n = g->pool.layout.n_attn;
    for (int i = 0; i <= n; i++) {
        run_part(g, (struct prog_spec){.kind = PROG_SEGMENT, .index = i, .outputs = i == n ? PROG_OUT_LOGITS : 0}, s);
        if (i < n) run_part(g, (struct prog_spec){.kind = PROG_ATTN, .index = i}, s);
    }
}

// Residual rows behind every layer, as features of the whole and as outputs of ranges of one layer.
static void check_features(struct unit_bench *g, const struct step *s, const struct result *before) {
    const struct model_hyper *h = &g->o.model->hyper;
    struct prog_spec spec = {.kind = PROG_WHOLE, .outputs = PROG_OUT_FEATURES, .n_features = h->n_layers};
    for (int i = 0; i < h->n_layers; i++) spec.feature_layers[i] = i;
    run_part(g, spec, s);
    size_t n = (size_t)h->n_embd, stride = n * (size_t)h->n_layers;
    float *features = mem_dup(bench_port(g, PORT_FEATURES), (size_t)s->n_rows * stride * sizeof(float));
    pool_restore(g, before);
    for (int i = 0; i < h->n_layers; i++) {
        run_part(g, (struct prog_spec){.kind = PROG_LAYERS, .layer_begin = i, .layer_end = i + 1}, s);
        const float *rows = bench_port(g, PORT_ROWS_OUT);
        for (int r = 0; r < s->n_rows; r++)
            assert_memory_equal(rows + (size_t)r * n, features + (size_t)r * stride + (size_t)i * n, n * sizeof(float));
    }
    mem_free(features);
    pool_restore(g, before);
}

static void check_composition(struct unit_bench *g) {
    for (int kind = 0; kind < 3; kind++) {
        bench_reset(g);
        int32_t prompt[90];
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 90; j++) prompt[j] = below(g->o.model->hyper.n_vocab);
            bench_chain(g, &g->seqs[i], prompt, 1 + below(89), NULL);
        }
        const struct step *s = step_make(g, kind);
        struct result before, whole;
        result_take(g, s, &before);
        bench_run(g, &g->whole, s);
        result_take(g, s, &whole);
        pool_restore(g, &before);
        check_features(g, s, &before);
        for (int i = 0; i < 4; i++) {
            run_ranges(g, i == 0 ? ~0ull : tiny_random(&rng), s);
            assert_result(g, s, &whole, "ranges of layers");
            pool_restore(g, &before);
        }
        run_segments(g, s);
        assert_result(g, s, &whole, "segments and attention cores");
        pool_restore(g, &before);
        // A fill leaves the state that a run with logits leaves.
        run_part(g, (struct prog_spec){.kind = PROG_WHOLE}, s);
        if (kind == 0) {
            memcpy(g->d->buffer_host(g->ports[PORT_LOGITS]), whole.logits,
                   (size_t)s->n_out * (size_t)g->o.model->hyper.n_vocab * sizeof(float));
            assert_result(g, s, &whole, "fill");
        }
        result_free(&before);
        result_free(&whole);
    }
}

// ---------------------------------------------------------------------------------------- row ranges

// y [n_rows][n_out] of a weight by the operations of op/.
static void linear_reference(const struct unit_bench *g, const struct tensor *w, const float *x, int n_rows, float *y) {
    int n_in = (int)w->ne[0], n_out = (int)w->ne[1];
    int8_t *q = mem_alloc((size_t)n_in);
    float *scale = mem_alloc((size_t)n_in * sizeof(float));
    int32_t *sum = mem_alloc((size_t)n_in * sizeof(int32_t));
    bool int8 = g->o.numerics == PROG_CLASS_INT8 && !format_is_float(w->format);
    for (int r = 0; r < n_rows; r++, x += n_in, y += n_out) {
        if (int8) {
            op_quantise_row(x, n_in, q, scale, sum);
            op_linear_int8(w->format, w->data, n_out, n_in, q, scale, sum, y);
        } else {
            op_linear_fp32(w->format, w->data, n_out, n_in, x, y);
        }
    }
    mem_free(q);
    mem_free(scale);
    mem_free(sum);
}

static void check_row_ranges(struct unit_bench *g, const struct tensor *w) {
    int n_in = (int)w->ne[0], n_out = (int)w->ne[1], n_rows = 1 + below(WINDOW);
    struct bench_program p = bench_program_make(g, (struct prog_spec){.kind = PROG_LINEAR, .weight = w});
    float *x = g->d->buffer_host(g->ports[PORT_ROWS_IN]), *y = g->d->buffer_host(g->ports[PORT_ROWS_OUT]);
    for (int i = 0; i < n_rows * n_in; i++) x[i] = 3 * tiny_random_float(&rng);
    size_t bytes = (size_t)n_rows * (size_t)n_out * sizeof(float);
    float *expected = mem_alloc(bytes);
    linear_reference(g, w, x, n_rows, expected);
    struct step s = {.n_rows = n_rows};
    bench_run(g, &p, &s);
    assert_memory_equal(y, expected, bytes);
    // Pieces at any border; what is not asked for stays.
    for (size_t i = 0; i < bytes / sizeof(float); i++) y[i] = 1234;
    for (int begin = 0; begin < n_out;) {
        int size = 1 + below(70), end = MIN(begin + size, n_out);
        s.out_begin = begin;
        s.out_end = end;
        bench_run(g, &p, &s);
        for (int r = 0; r < n_rows; r++) {
            assert_memory_equal(y + (size_t)r * (size_t)n_out, expected + (size_t)r * (size_t)n_out,
                                (size_t)end * sizeof(float));
            for (int o = end; o < n_out; o++) assert_true(y[(size_t)r * (size_t)n_out + (size_t)o] == 1234);
        }
        begin = end;
    }
    mem_free(expected);
    bench_program_free(g, &p);
}

static void check_all_row_ranges(struct unit_bench *g) {
    const struct model *m = g->o.model;
    check_row_ranges(g, m->output);
    for (int i = 0; i < m->hyper.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        const struct tensor *const list[] = {l->q, l->k, l->o, l->conv_in, l->conv_out, l->ffn_gate, l->ffn_down};
        for (size_t j = 0; j < ARRAY_LEN(list); j++)
            if (list[j] && i < 4) check_row_ranges(g, list[j]);
    }
}

// ---------------------------------------------------------------------------------------- commit

#define TREE 24
struct tree {
    int32_t tokens[TREE];
    int rows[TREE], parents[TREE]; // rows of the step; parents as numbers in the tree, -1: the context
    int path[TREE], n_path;        // accepted, root first
};

static void path_choose(struct tree *t) {
    int node = below(TREE), n = 0, up[TREE];
    for (; node >= 0; node = t->parents[node]) up[n++] = node;
    for (int i = 0; i < n; i++) t->path[i] = up[n - 1 - i];
    t->n_path = n;
}

static void assert_state(struct unit_bench *g, const struct bench_seq *a, const struct bench_seq *b, const char *what) {
    size_t n_a = 0, n_b = 0;
    uint8_t *state_a = bench_state(g, a, &n_a), *state_b = bench_state(g, b, &n_b);
    assert_int_equal(a->len, b->len);
    assert_int_equal(n_a, n_b);
    if (memcmp(state_a, state_b, n_a) != 0) fail_msg("%s: other state than plain decoding", what);
    mem_free(state_a);
    mem_free(state_b);
}

static void prompt_run(struct unit_bench *g, struct bench_seq *q, const int32_t *tokens, int n) {
    for (int i = 0; i < n; i += WINDOW) bench_chain(g, q, tokens + i, MIN(WINDOW, n - i), NULL);
}

// Three trees in one step, their paths committed in one commit; sequences 3 … 5 decode the same tokens plainly.
// Round 0 begins behind 0 … 2 positions (stored rows that are not there yet), round 1 behind more than 512, where
// attention may be cut along the context.
static void check_commit(struct unit_bench *g, int round) {
    int n_vocab = g->o.model->hyper.n_vocab;
    struct tree trees[3];
    float *logits = mem_alloc((size_t)n_vocab * sizeof(float));
    bench_reset(g);
    for (int i = 0; i < 3; i++) {
        int32_t prompt[700];
        int n = round == 0 ? i : round == 1 ? 530 + below(100) : 1 + below(69);
        for (int j = 0; j < n; j++) prompt[j] = below(n_vocab);
        for (int j = 0; j < 2; j++) prompt_run(g, &g->seqs[i + 3 * j], prompt, n);
    }
    step_begin(&g->b, &g->pool, STEP_KEEP_ROWS);
    for (int i = 0; i < 3; i++) bench_seq_add(g, &g->b, &g->seqs[i], false);
    for (int k = 0; k < TREE; k++)
        for (int i = 0; i < 3; i++) {
            struct tree *t = &trees[i];
            t->tokens[k] = below(n_vocab);
            t->parents[k] = k == 0 || below(12) == 0 ? -1 : MAX(k - 1 - below(4), 0);
            int parent = t->parents[k] < 0 ? STEP_NO_PARENT : t->rows[t->parents[k]];
            t->rows[k] = step_add_tree_row(&g->b, i, t->tokens[k], parent, true);
        }
    const struct step *v = step_end(&g->b);
    bench_run(g, &g->whole, v);
    float *verified = mem_dup(bench_port(g, PORT_LOGITS), (size_t)v->n_out * (size_t)n_vocab * sizeof(float));
    step_begin(&g->c, &g->pool, 0);
    for (int i = 0; i < 3; i++) bench_seq_add(g, &g->c, &g->seqs[i], true);
    for (int i = 0; i < 3; i++) {
        path_choose(&trees[i]);
        for (int k = 0; k < trees[i].n_path; k++) step_add_path_row(&g->c, i, v, trees[i].rows[trees[i].path[k]]);
    }
    bench_run(g, &g->commit, step_end(&g->c));
    for (int i = 0; i < 3; i++) {
        struct bench_seq *plain = &g->seqs[i + 3];
        g->seqs[i].len += trees[i].n_path;
        for (int k = 0; k < trees[i].n_path; k++) {
            int node = trees[i].path[k];
            bench_chain(g, plain, &trees[i].tokens[node], 1, logits);
            // All rows want output, so a row's logits stand at its own number.
            if (memcmp(logits, verified + (size_t)trees[i].rows[node] * (size_t)n_vocab,
                       (size_t)n_vocab * sizeof(float)))
                fail_msg("round %d, sequence %d, node %d: other logits than plain decoding", round, i, node);
        }
        assert_state(g, &g->seqs[i], plain, "commit");
    }
    mem_free(verified);
    mem_free(logits);
}

// ---------------------------------------------------------------------------------------- tests

static void for_each_setup(void (*check)(struct unit_bench *), enum op_kv_type kv_type) {
    for (int i = 0; i < 8; i++) {
        if (is_short && i > 0 && i < 5) continue; // of scalar only lfm2, of the best lfm2 in floats and llama in both
        struct tiny_shape shape = i & 1 ? tiny_llama_shape(i & 2 ? FORMAT_F32 : FORMAT_Q8_0, 5)
                                        : tiny_lfm2_shape(i & 2 ? FORMAT_F32 : FORMAT_Q8_0, 6);
        struct model *m = tiny_model_create(&shape);
        struct unit_bench g;
        struct unit_bench_options o = {.model = m,
                                       .isa = i & 4 ? NULL : "scalar",
                                       .n_threads = i & 4 ? 3 : 2, // 3: tasks that do not divide
                                       .numerics = i & 2 ? PROG_CLASS_FP32 : PROG_CLASS_INT8,
                                       .kv_type = kv_type,
                                       .window = WINDOW,
                                       .n_ctx = 700};
        rng = (uint64_t)i + 1;
        assert_true(unit_bench_open(&g, &o));
        check(&g);
        unit_bench_close(&g);
        tiny_model_free(m);
    }
}

static void check_commits(struct unit_bench *g) {
    for (int round = 0; round < (is_short ? 3 : 6); round++)
        if (round != 1 || !g->o.isa) check_commit(g, round); // scalar attention is slow
}

static void test_parts_compose(void **state) {
    (void)state;
    for_each_setup(check_composition, OP_KV_F16);
}
static void test_row_ranges(void **state) {
    (void)state;
    for_each_setup(check_all_row_ranges, OP_KV_F16);
}
static void test_tree_and_commit(void **state) {
    (void)state;
    for_each_setup(check_commits, OP_KV_F16);
    for_each_setup(check_commits, OP_KV_Q8);
}

// Four taps reach over more of the tree and of the stored rows; one tap stores none.
static void test_other_tap_counts(void **state) {
    (void)state;
    static const int taps[] = {1, 4, 2, 7};
    for (size_t i = 0; i < (is_short ? 2 : ARRAY_LEN(taps)); i++) {
        struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 7);
        shape.conv_len = taps[i];
        struct model *m = tiny_model_create(&shape);
        struct unit_bench g;
        struct unit_bench_options o = {
            .model = m, .n_threads = 2, .numerics = PROG_CLASS_FP32, .window = WINDOW, .n_ctx = 700};
        rng = i + 50;
        assert_true(unit_bench_open(&g, &o));
        check_commits(&g);
        check_composition(&g);
        unit_bench_close(&g);
        tiny_model_free(m);
    }
}

int main(void) {
    is_short = env_get("TERN_TEST_SHORT") != NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_compose),
        cmocka_unit_test(test_row_ranges),
        cmocka_unit_test(test_tree_and_commit),
        cmocka_unit_test(test_other_tap_counts),
    };
    return cmocka_run_group_tests_name("compose", tests, NULL, NULL);
}
