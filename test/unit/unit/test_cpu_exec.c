// The cpu unit's executor against the plain reference (reference_model.h): equal bits whatever the window, chunk,
// threads, instruction set, batch, tree or K/V type; state kept through verify and commit; no allocation in a step.
#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "unit/unit.h"
#include "../../common/reference_model.h"
#include "../../common/tiny_model.h"

#define WINDOW 64
#define N_BLOCKS 96
#define N_SLOTS 8
#define TABLE 40 // blocks of a sequence's table
static const struct unit_driver *const d = &unit_cpu_driver;

struct setup_options {
    struct tiny_shape shape;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int n_threads;
    const char *isa;
    uint32_t outputs; // 0: logits and argmax
    enum prog_kind kind;
};
struct rig {
    struct setup_options o;
    struct model *model;
    struct unit *unit;
    struct unit_weights *weights;
    struct prog *prog, *commit_prog;
    struct unit_program *program, *commit;
    struct arena arena;
    struct step_builder b, commit_b;
    struct state_pool pool;
    int32_t blocks[3][TABLE];
    struct unit_buffer *logits, *argmax, *hidden;
    float *want; // [n_vocab]
};

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s", err->message);
}

static struct unit_buffer *buffer_make(struct rig *g, uint64_t bytes) {
    struct unit_buffer *b = NULL;
    struct tern_err err;
    must(d->buffer_alloc(g->unit, &b, bytes, &err), &err);
    return b;
}

static void rig_open(struct rig *g, const struct setup_options *o) {
    struct tern_err err;
    memset(g, 0, sizeof *g);
    g->o = *o;
    g->model = tiny_model_create(&o->shape);
    arena_init(&g->arena, 0);
    must(d->open(&g->unit, &(struct unit_options){.n_threads = o->n_threads, .isa = o->isa}, &err), &err);
    struct weights_info info;
    must(d->weights_import(g->unit, &g->weights, g->model, &(struct weights_options){.numerics = o->numerics}, &info,
                           &err),
         &err);
    struct prog_spec spec = {.kind = o->kind,
                             .numerics = o->numerics,
                             .kv_type = o->kv_type,
                             .window = WINDOW,
                             .n_out_max = -1,
                             .outputs = o->outputs ? o->outputs : PROG_OUT_LOGITS | PROG_OUT_ARGMAX};
    must(prog_build(&g->prog, g->model, &spec, &err), &err);
    must(d->program_compile(g->unit, &g->program, g->prog, g->weights, &err), &err);
    spec.kind = PROG_COMMIT;
    spec.outputs = 0;
    spec.n_out_max = 0;
    must(prog_build(&g->commit_prog, g->model, &spec, &err), &err);
    must(d->program_compile(g->unit, &g->commit, g->commit_prog, g->weights, &err), &err);
    int n_taps = g->model->hyper.conv_len;
    must(step_builder_init(&g->b, &g->arena, WINDOW, n_taps, 3, &err), &err);
    must(step_builder_init(&g->commit_b, &g->arena, WINDOW, n_taps, 3, &err), &err);
    g->pool = (struct state_pool){.n_blocks = N_BLOCKS, .n_slots = N_SLOTS};
    must(state_layout_init(&g->pool.layout, g->model, o->kv_type, 0, g->model->hyper.n_layers, WINDOW, &err), &err);
    uint64_t kv = 0, conv = 0;
    assert_true(state_kv_bytes(&g->pool.layout, N_BLOCKS, &kv) && state_conv_bytes(&g->pool.layout, N_SLOTS, &conv));
    g->pool.kv = buffer_make(g, kv);
    g->pool.conv = buffer_make(g, conv);
    // Garbage in unused places must not matter: NaN in all types.
    memset(d->buffer_host(g->pool.kv), 0xff, (size_t)kv);
    memset(d->buffer_host(g->pool.conv), 0xff, (size_t)conv);
    // Sequences of scattered blocks: 0 has a long table, 1 and 2 short ones.
    for (int i = 0; i < TABLE; i++) {
        g->blocks[0][i] = (i * 7 + 3) % TABLE;
        g->blocks[1][i] = TABLE + (i * 3) % 28;
        g->blocks[2][i] = TABLE + 28 + (i * 5) % 28;
    }
    g->logits = buffer_make(g, (uint64_t)WINDOW * (uint64_t)g->model->hyper.n_vocab * sizeof(float));
    g->argmax = buffer_make(g, WINDOW * sizeof(struct prog_argmax));
    g->hidden = buffer_make(g, (uint64_t)WINDOW * (uint64_t)g->model->hyper.n_embd * sizeof(float));
    g->want = arena_calloc(&g->arena, (size_t)g->model->hyper.n_vocab, sizeof(float));
    assert_non_null(g->want);
}

static void rig_close(struct rig *g) {
    struct unit_buffer *buffers[] = {g->pool.kv, g->pool.conv, g->logits, g->argmax, g->hidden};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++) d->buffer_free(g->unit, buffers[i]);
    d->program_free(g->unit, g->program);
    d->program_free(g->unit, g->commit);
    prog_free(g->prog);
    prog_free(g->commit_prog);
    d->weights_free(g->unit, g->weights);
    d->close(g->unit);
    tiny_model_free(g->model);
    arena_release(&g->arena);
}

// Runs the step in the builder, with the allocator frozen.
static void submit(struct rig *g) {
    struct tern_err err;
    struct unit_event event;
    g->b.step.ports[PORT_LOGITS].buf = g->logits;
    g->b.step.ports[PORT_ARGMAX].buf = g->argmax;
    g->b.step.ports[PORT_HIDDEN].buf = g->hidden;
    const struct step *s = step_end(&g->b);
    mem_freeze(true);
    enum tern_status status = d->submit(g->unit, g->program, s, &event, &err);
    mem_freeze(false);
    must(status, &err);
    must(d->event_wait(g->unit, &event, &err), &err);
    assert_true(d->event_poll(g->unit, &event));
}

static void same_bits(const float *have, const float *want, int n, const char *what, int row) {
    for (int i = 0; i < n; i++)
        if (f32_bits(have[i]) != f32_bits(want[i]))
            fail_msg("%s, row %d, element %d: %.9g, the reference says %.9g", what, row, i, (double)have[i],
                     (double)want[i]);
}

static struct reference_options reference_of(const struct rig *g) {
    return (struct reference_options){g->o.numerics, g->o.kv_type, g->o.kind == PROG_ENCODER};
}

// Output row `out` of the last step is what the reference makes of the hidden row.
static void check_hidden(struct rig *g, int out, const float *hidden) {
    struct reference_options o = reference_of(g);
    int n_vocab = g->model->hyper.n_vocab;
    reference_logits(g->model, &o, hidden, g->want);
    const float *have = (const float *)d->buffer_host(g->logits) + (size_t)out * (size_t)n_vocab;
    same_bits(have, g->want, n_vocab, "logits", out);
    const struct prog_argmax *best = (const struct prog_argmax *)d->buffer_host(g->argmax) + out;
    float max;
    assert_int_equal(best->id, op_argmax(g->want, n_vocab, &max));
    assert_true(best->max == max);
}

// The hidden rows of a whole text: row i is that of its first i + 1 tokens.
static const float *hidden_of(struct rig *g, const int32_t *tokens, int n) {
    struct reference_options o = reference_of(g);
    float *h = arena_calloc(&g->arena, (size_t)n * (size_t)g->model->hyper.n_embd, sizeof(float));
    assert_non_null(h);
    reference_run(g->model, &o, tokens, n, h);
    return h;
}

static void check_row(struct rig *g, int out, const int32_t *tokens, int n) {
    check_hidden(g, out, hidden_of(g, tokens, n) + (n - 1) * g->model->hyper.n_embd);
}

static void tokens_make(const struct rig *g, int32_t *t, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) t[i] = (int32_t)(tiny_random(&seed) % (uint64_t)g->model->hyper.n_vocab_used);
}

// Appends tokens [at, at + n) of a text to sequence `seq` of the step; only the last wants output when last_only.
static void add_text(struct rig *g, int table, const int32_t *tokens, int at, int n, int slot, bool last_only) {
    int seq = step_add_seq(&g->b, g->blocks[table], TABLE, at, at > 0 ? slot : -1, slot);
    for (int i = 0; i < n; i++) step_add_chain_row(&g->b, seq, tokens[at + i], !last_only || i == n - 1);
}

static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512vnni", NULL};

static void decode_and_prefill(const struct setup_options *o, int n, const int *chunks, int n_chunks) {
    struct rig g;
    int32_t t[200];
    rig_open(&g, o);
    tokens_make(&g, t, n, 5);
    const float *hidden = hidden_of(&g, t, n);
    for (int at = 0, i = 0; at < n; i++) {
        int rows = MIN(chunks[i % n_chunks], n - at);
        step_begin(&g.b, &g.pool, 0);
        add_text(&g, 0, t, at, rows, 2, true);
        submit(&g);
        at += rows;
        check_hidden(&g, 0, hidden + (at - 1) * g.model->hyper.n_embd);
    }
    rig_close(&g);
}

static void rows_one_by_one(void **state) {
    (void)state;
    static const int one[] = {1};
    for (int format = 0; format < 2; format++)
        for (int kv = OP_KV_F16; kv <= OP_KV_F32; kv++)
            for (int numerics = 0; numerics < 2; numerics++) {
                struct setup_options o = {.shape = tiny_lfm2_shape(format ? FORMAT_Q8_0 : FORMAT_F32, 3),
                                          .numerics = (enum prog_class)numerics,
                                          .kv_type = (enum op_kv_type)kv,
                                          .n_threads = 1 + kv};
                decode_and_prefill(&o, 66, one, 1);
            }
}

static void any_chunks(void **state) {
    (void)state;
    static const int mixed[] = {50, 1, 17, 33, 2, 5, 16, 31};
    for (int kind = 0; kind < 4; kind++)
        for (int threads = 1; threads <= 3; threads++) {
            struct setup_options o = {.shape = kind == 0   ? tiny_lfm2_shape(FORMAT_Q8_0, 9)
                                               : kind == 1 ? tiny_llama_shape(FORMAT_Q8_0, 9)
                                               : kind == 2 ? tiny_gemma_shape(FORMAT_Q8_0, 9)
                                                           : tiny_moe_shape(FORMAT_Q8_0, 9),
                                      .n_threads = threads};
            decode_and_prefill(&o, 120, mixed, ARRAY_LEN(mixed));
        }
}

static void any_instruction_set(void **state) {
    (void)state;
    static const int mixed[] = {40, 1, 9, 1, 1, 20};
    for (int i = 0; isas[i]; i++)
        for (int numerics = 0; numerics < 2; numerics++) {
            struct setup_options o = {.shape = tiny_lfm2_shape(FORMAT_Q8_0, 21),
                                      .numerics = (enum prog_class)numerics,
                                      .n_threads = 2,
                                      .isa = isas[i]};
            struct unit *u;
            struct tern_err err;
            if (d->open(&u, &(struct unit_options){.isa = isas[i], .n_threads = 1}, &err) == TERN_UNSUPPORTED) continue;
            d->close(u);
            decode_and_prefill(&o, 72, mixed, ARRAY_LEN(mixed));
            o.shape = tiny_moe_shape(FORMAT_Q8_0, 22);
            o.shape.router_sigmoid = false; // softmax, no bias
            o.shape.n_expert_used = 5;
            decode_and_prefill(&o, 72, mixed, ARRAY_LEN(mixed));
            o.shape = tiny_gemma_shape(FORMAT_Q8_0, 23);
            o.kv_type = OP_KV_Q8;
            decode_and_prefill(&o, 120, mixed, ARRAY_LEN(mixed));
        }
}

// Widths that no tile or vector divides.
static void odd_shapes(void **state) {
    (void)state;
    static const int mixed[] = {20, 1, 3};
    struct tiny_shape s = {.arch = "llama",
                           .n_layers = 2,
                           .attn_mask = 0x3,
                           .n_embd = 60,
                           .n_head = 5,
                           .n_head_kv = 5,
                           .head_dim = 10,
                           .n_ff = 37,
                           .n_vocab = 203,
                           .format = FORMAT_F32,
                           .seed = 4};
    struct setup_options o = {.shape = s, .numerics = PROG_CLASS_FP32, .n_threads = 2};
    decode_and_prefill(&o, 50, mixed, ARRAY_LEN(mixed));
    struct tiny_shape c = {.arch = "lfm2",
                           .n_layers = 3,
                           .attn_mask = 0x2,
                           .n_embd = 52,
                           .n_head = 3,
                           .n_head_kv = 1,
                           .head_dim = 6,
                           .n_ff = 19,
                           .n_vocab = 33,
                           .conv_len = 5,
                           .tied = true,
                           .qk_norm = true,
                           .format = FORMAT_F32,
                           .seed = 4};
    o.shape = c;
    decode_and_prefill(&o, 50, mixed, ARRAY_LEN(mixed));
    o.shape.conv_len = 1;
    decode_and_prefill(&o, 20, mixed, ARRAY_LEN(mixed));
}

// One K/V head and three threads behind 18 blocks: attention is split along the context.
static void long_context_in_splits(void **state) {
    (void)state;
    struct tiny_shape s = {.arch = "llama",
                           .n_layers = 2,
                           .attn_mask = 0x3,
                           .n_embd = 32,
                           .n_head = 2,
                           .n_head_kv = 1,
                           .head_dim = 16,
                           .n_ff = 32,
                           .n_vocab = 50,
                           .format = FORMAT_F32,
                           .seed = 8};
    for (int threads = 1; threads <= 3; threads += 2) {
        struct setup_options o = {.shape = s, .numerics = PROG_CLASS_FP32, .n_threads = threads};
        struct rig g;
        int32_t t[640];
        rig_open(&g, &o);
        tokens_make(&g, t, 640, 6);
        int at = 0;
        for (; at < 572; at += 52) {
            step_begin(&g.b, &g.pool, 0);
            add_text(&g, 0, t, at, 52, 2, true);
            submit(&g);
        }
        for (int i = 0; i < 4; i++, at++) {
            step_begin(&g.b, &g.pool, 0);
            add_text(&g, 0, t, at, 1, 2, true);
            submit(&g);
        }
        const float *hidden = hidden_of(&g, t, at + 7);
        check_hidden(&g, 0, hidden + (at - 1) * g.model->hyper.n_embd);
        step_begin(&g.b, &g.pool, 0);
        add_text(&g, 0, t, at, 7, 2, false);
        submit(&g);
        for (int i = 0; i < 7; i++) check_hidden(&g, i, hidden + (at + i) * g.model->hyper.n_embd);
        rig_close(&g);
    }
}

static void several_sequences(void **state) {
    (void)state;
    struct setup_options o = {.shape = tiny_lfm2_shape(FORMAT_Q8_0, 31), .n_threads = 2};
    struct rig g;
    int32_t t[3][100];
    rig_open(&g, &o);
    for (int i = 0; i < 3; i++) tokens_make(&g, t[i], 100, 40 + (uint64_t)i);
    int len[3] = {0, 0, 0};
    static const int rows[][3] = {{20, 1, 30}, {1, 1, 1}, {1, 25, 3}, {11, 7, 1}, {1, 1, 1}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        step_begin(&g.b, &g.pool, 0);
        for (int j = 0; j < 3; j++) add_text(&g, j, t[j], len[j], rows[i][j], 3 + j, true);
        submit(&g);
        for (int j = 0; j < 3; j++) check_row(&g, j, t[j], len[j] += rows[i][j]);
    }
    rig_close(&g);
}

// ---------------------------------------------------------------------------------------------------------- trees

// A random tree of n rows; path[i]: the text of row i behind the committed one.
static void tree_add(struct rig *g, int seq, int n, int committed, int32_t paths[][200], int *lens, uint64_t *rng) {
    for (int i = 0; i < n; i++) {
        int parent = i == 0 ? STEP_NO_PARENT : (int)(tiny_random(rng) % (uint64_t)(i + 1)) - 1;
        if (i > 0 && tiny_random(rng) % 3 == 0) parent = i - 1;
        int32_t token = (int32_t)(tiny_random(rng) % (uint64_t)g->model->hyper.n_vocab_used);
        int row = step_add_tree_row(&g->b, seq, token, parent, true);
        assert_int_equal(row, i);
        int from = parent < 0 ? committed : lens[parent];
        if (parent >= 0) memcpy(paths[i], paths[parent], (size_t)from * sizeof(int32_t));
        paths[i][from] = token;
        lens[i] = from + 1;
    }
}

// Commits the path of `row`; returns the new length.
static int commit_path(struct rig *g, int row, int committed, int slot_in, int slot_out) {
    struct tern_err err;
    struct unit_event event;
    int chain[WINDOW], n = 0;
    for (int i = row; i >= 0; i = g->b.rows[i].parent) chain[n++] = i;
    step_begin(&g->commit_b, &g->pool, 0);
    int seq = step_add_seq(&g->commit_b, g->blocks[0], TABLE, committed, slot_in, slot_out);
    for (int i = n - 1; i >= 0; i--) step_add_path_row(&g->commit_b, seq, &g->b.step, chain[i]);
    must(d->submit(g->unit, g->commit, step_end(&g->commit_b), &event, &err), &err);
    return committed + n;
}

static void tree_rounds(const struct setup_options *o) {
    struct rig g;
    static int32_t paths[40][200];
    int lens[40], committed = 29;
    int32_t t[200];
    uint64_t rng = 77;
    rig_open(&g, o);
    tokens_make(&g, t, committed, 12);
    step_begin(&g.b, &g.pool, 0);
    add_text(&g, 0, t, 0, committed, 1, true);
    submit(&g);
    for (int round = 0; round < 4; round++) {
        int n = round == 2 ? 1 : 5 + (int)(tiny_random(&rng) % 30);
        for (int i = 0; i < n; i++) memcpy(paths[i], t, sizeof t);
        step_begin(&g.b, &g.pool, STEP_KEEP_ROWS);
        int seq = step_add_seq(&g.b, g.blocks[0], TABLE, committed, 1, -1);
        tree_add(&g, seq, n, committed, paths, lens, &rng);
        submit(&g);
        for (int i = n / 5; i < n; i += 1 + n / 3) check_row(&g, i, paths[i], lens[i]);
        int row = (int)(tiny_random(&rng) % (uint64_t)n);
        memcpy(t, paths[row], sizeof t);
        // The slot is written in place, or another one.
        committed = commit_path(&g, row, committed, 1, 1);
        assert_int_equal(committed, lens[row]);
        tokens_make(&g, t + committed, 1, rng);
        step_begin(&g.b, &g.pool, 0);
        add_text(&g, 0, t, committed, 1, 1, true);
        submit(&g);
        check_row(&g, 0, t, ++committed);
        if (committed > 150) break;
    }
    rig_close(&g);
}

static void trees_verify_and_commit(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++)
        for (int kv = OP_KV_F16; kv <= OP_KV_F32; kv++) {
            struct setup_options o = {
                .shape = tiny_lfm2_shape(FORMAT_Q8_0, 51), .kv_type = (enum op_kv_type)kv, .n_threads = threads};
            tree_rounds(&o);
        }
    struct setup_options o = {.shape = tiny_lfm2_shape(FORMAT_F32, 51), .numerics = PROG_CLASS_FP32, .n_threads = 2};
    o.shape.conv_len = 5;
    tree_rounds(&o);
    for (int threads = 1; threads <= 3; threads++) {
        o = (struct setup_options){.shape = tiny_moe_shape(FORMAT_Q8_0, 52), .n_threads = threads};
        tree_rounds(&o);
        o = (struct setup_options){.shape = tiny_gemma_shape(FORMAT_Q8_0, 53), .n_threads = threads};
        o.kv_type = (enum op_kv_type)(threads - 1);
        tree_rounds(&o); // windows that begin before the tree
        o.shape.window = 5;
        tree_rounds(&o); // and inside it
    }
}

static void encoder_rows(void **state) {
    (void)state;
    struct setup_options o = {
        .shape = tiny_lfm2_shape(FORMAT_Q8_0, 61), .n_threads = 2, .kind = PROG_ENCODER, .outputs = PROG_OUT_HIDDEN};
    struct rig g;
    rig_open(&g, &o);
    int n_embd = g.model->hyper.n_embd, lens[2] = {45, 17};
    int32_t t[2][64];
    step_begin(&g.b, &g.pool, STEP_FULL);
    for (int i = 0; i < 2; i++) {
        tokens_make(&g, t[i], lens[i], 70 + (uint64_t)i);
        int seq = step_add_seq(&g.b, g.blocks[i], TABLE, 0, -1, -1);
        for (int j = 0; j < lens[i]; j++) step_add_full_row(&g.b, seq, t[i][j], true, false);
    }
    submit(&g);
    for (int i = 0, at = 0; i < 2; at += lens[i++]) {
        const float *want = hidden_of(&g, t[i], lens[i]);
        for (int j = 0; j < lens[i]; j++)
            same_bits((const float *)d->buffer_host(g.hidden) + (size_t)(at + j) * (size_t)n_embd, want + j * n_embd,
                      n_embd, "hidden", at + j);
    }
    rig_close(&g);
}

// ---------------------------------------------------------------------------------------------------------- refusals

static void steps_beyond_buffers_are_refused(void **state) {
    (void)state;
    struct setup_options o = {.shape = tiny_lfm2_shape(FORMAT_F32, 3), .n_threads = 1};
    struct rig g;
    struct tern_err err;
    struct unit_event event;
    int32_t t[4] = {1, 2, 3, 4};
    rig_open(&g, &o);
    step_begin(&g.b, &g.pool, 0);
    add_text(&g, 0, t, 0, 4, 2, false);
    const struct step *s = step_end(&g.b);
    g.b.step.ports[PORT_LOGITS].buf = g.logits;
    g.b.step.ports[PORT_ARGMAX].buf = g.argmax;
    g.b.step.ports[PORT_LOGITS].offset = (uint64_t)(WINDOW - 3) * (uint64_t)g.model->hyper.n_vocab * sizeof(float);
    assert_int_equal(d->submit(g.unit, g.program, s, &event, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "port 4"));
    g.b.step.ports[PORT_LOGITS].offset = 0;
    g.pool.n_slots = N_SLOTS + 1;
    assert_int_equal(d->submit(g.unit, g.program, s, &event, &err), TERN_INVALID_ARGUMENT);
    g.pool.n_slots = N_SLOTS;
    g.pool.n_blocks = N_BLOCKS + 1;
    assert_int_equal(d->submit(g.unit, g.program, s, &event, &err), TERN_INVALID_ARGUMENT);
    g.pool.n_blocks = N_BLOCKS;
    assert_int_equal(d->submit(g.unit, g.program, s, &event, &err), TERN_OK);
    rig_close(&g);
}

static void memory_failures_leave_nothing(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_Q8_0, 3);
    struct model *m = tiny_model_create(&shape);
    struct tern_err err;
    struct prog *p = NULL;
    struct prog_spec spec = {.kind = PROG_WHOLE, .window = 8, .n_out_max = 1, .outputs = PROG_OUT_ARGMAX};
    must(prog_build(&p, m, &spec, &err), &err);
    uint64_t n_live = mem_stats_get().n_live;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct unit *u = NULL;
        struct unit_weights *w = NULL;
        struct unit_program *c = NULL;
        struct unit_buffer *b = NULL;
        struct weights_info info;
        assert_true(n < 200);
        mem_fail_at(n, false);
        enum tern_status status = d->open(&u, &(struct unit_options){.n_threads = 2}, &err);
        if (status == TERN_OK) status = d->weights_import(u, &w, m, &(struct weights_options){0}, &info, &err);
        if (status == TERN_OK) status = d->program_compile(u, &c, p, w, &err);
        if (status == TERN_OK) status = d->buffer_alloc(u, &b, 100, &err);
        mem_fail_at(0, false);
        done = status == TERN_OK;
        if (!done) assert_int_equal(status, TERN_NO_MEMORY);
        if (u) {
            d->buffer_free(u, b);
            d->program_free(u, c);
            d->weights_free(u, w);
            d->close(u);
        }
        assert_int_equal(mem_stats_get().n_live, n_live);
    }
    prog_free(p);
    tiny_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_one_by_one),
        cmocka_unit_test(any_chunks),
        cmocka_unit_test(any_instruction_set),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(long_context_in_splits),
        cmocka_unit_test(several_sequences),
        cmocka_unit_test(trees_verify_and_commit),
        cmocka_unit_test(encoder_rows),
        cmocka_unit_test(steps_beyond_buffers_are_refused),
        cmocka_unit_test(memory_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
