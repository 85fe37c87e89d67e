// A drafter's programs on the units: the cpu's K/V of injected rows against op/ bit for bit; drafts that do not depend
// on how the context was injected, on threads, on other sequences, or on whose weights hold the shared matrices; the
// null unit's watch over shared weights.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "op/op.h"
#include "unit/unit.h"
#include "../../common/tiny_drafter.h"
#include "../../common/tiny_model.h"

#define WINDOW 64
#define CTX 90
#define BLOCKS 16
#define ROWS TINY_DRAFTER_ROWS

struct kit {
    struct model *target, *drafter;
    const struct unit_driver *d;
    struct unit *unit;
    struct unit_weights *of_target, *weights;
    struct weights_info info;
    struct prog *inject, *draft;
    struct unit_program *inject_program, *draft_program;
    struct state_pool pool;
    struct arena arena;
    struct step_builder b;
    struct unit_buffer *features, *logits, *hidden;
    int n_threads;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    bool is_null, alone; // alone: the drafter's weights share nothing
};

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s: %s", tern_status_text(status), err->message);
}

static void program(struct kit *t, enum prog_kind kind, struct prog **p, struct unit_program **c) {
    struct tern_err err = {0};
    struct prog_spec spec = {
        .kind = kind, .numerics = t->numerics, .kv_type = t->kv_type, .window = WINDOW, .n_out_max = ROWS};
    if (kind == PROG_DRAFT) spec.outputs = PROG_OUT_LOGITS | PROG_OUT_HIDDEN;
    if (kind == PROG_INJECT) spec.n_out_max = 0;
    must(prog_build(p, t->drafter, &spec, &err), &err);
    must(t->d->program_compile(t->unit, c, *p, t->weights, &err), &err);
}

static float *host(struct kit *t, struct unit_buffer *b) { return t->d->buffer_host(b); }

static void kit_open(struct kit *t) {
    struct tern_err err = {0};
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_Q8_0, 1);
    struct unit_options uo = {.n_threads = t->n_threads};
    struct weights_options wo = {.numerics = t->numerics};
    t->target = tiny_model_create(&shape);
    t->drafter = tiny_drafter_create(t->target, 2, FORMAT_Q8_0, 9);
    must(unit_open(&t->unit, t->is_null ? "null" : "cpu", &uo, &err), &err);
    t->d = unit_driver_of(t->unit);
    must(t->d->weights_import(t->unit, &t->of_target, t->target, &wo, &t->info, &err), &err);
    wo.shared = t->alone ? NULL : t->of_target;
    must(t->d->weights_import(t->unit, &t->weights, t->drafter, &wo, &t->info, &err), &err);
    program(t, PROG_INJECT, &t->inject, &t->inject_program);
    program(t, PROG_DRAFT, &t->draft, &t->draft_program);
    t->pool = (struct state_pool){.n_blocks = BLOCKS};
    must(state_layout_init(&t->pool.layout, t->drafter, t->kv_type, 0, 2, 0, &err), &err);
    must(t->d->buffer_alloc(t->unit, &t->pool.kv, t->pool.layout.block_bytes * BLOCKS, &err), &err);
    must(t->d->buffer_alloc(t->unit, &t->features, CTX * 128 * sizeof(float), &err), &err);
    must(t->d->buffer_alloc(t->unit, &t->logits, 2 * ROWS * 300 * sizeof(float), &err), &err);
    must(t->d->buffer_alloc(t->unit, &t->hidden, 2 * ROWS * 64 * sizeof(float), &err), &err);
    uint64_t seed = 5;
    for (int i = 0; i < CTX * 128; i++) host(t, t->features)[i] = tiny_random_float(&seed);
    arena_init(&t->arena, 0);
    must(step_builder_init(&t->b, &t->arena, WINDOW, 0, 2, &err), &err);
}

static void kit_close(struct kit *t) {
    t->d->program_free(t->unit, t->inject_program);
    t->d->program_free(t->unit, t->draft_program);
    struct unit_buffer *all[] = {t->pool.kv, t->features, t->logits, t->hidden};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) t->d->buffer_free(t->unit, all[i]);
    t->d->weights_free(t->unit, t->weights);
    t->d->weights_free(t->unit, t->of_target);
    unit_close(t->unit);
    prog_free(t->inject);
    prog_free(t->draft);
    tiny_drafter_free(t->drafter);
    tiny_model_free(t->target);
    arena_release(&t->arena);
}

static void submit(struct kit *t, struct unit_program *p) {
    struct tern_err err = {0};
    struct unit_event e;
    must(t->d->submit(t->unit, p, step_end(&t->b), &e, &err), &err);
    must(t->d->event_wait(t->unit, &e, &err), &err);
}

// Positions [begin, end) of the features into a sequence, `chunk` rows at a time.
static void inject(struct kit *t, const int32_t *blocks, int begin, int end, int chunk) {
    for (int at = begin; at < end; at += chunk) {
        step_begin(&t->b, &t->pool, 0);
        int seq = step_add_seq(&t->b, blocks, 4, at, -1, -1);
        for (int i = at; i < MIN(at + chunk, end); i++) step_add_chain_row(&t->b, seq, 0, false);
        t->b.step.ports[PORT_ROWS_IN].buf = t->features;
        t->b.step.ports[PORT_ROWS_IN].offset = (uint64_t)at * 128 * sizeof(float);
        submit(t, t->inject_program);
    }
}

// Drafts behind len[i] positions of each table; answers lie one sequence after another.
static void draft(struct kit *t, const int32_t *const *blocks, const int *len, const int32_t *anchor, int n) {
    step_begin(&t->b, &t->pool, STEP_FULL);
    for (int s = 0; s < n; s++) {
        int seq = step_add_seq(&t->b, blocks[s], 4, len[s], -1, -1);
        for (int i = 0; i < ROWS; i++)
            step_add_full_row(&t->b, seq, i ? t->drafter->drafter->mask_id : anchor[s], false, n == 1 || i == 2);
    }
    t->b.step.ports[PORT_LOGITS].buf = t->logits;
    t->b.step.ports[PORT_HIDDEN].buf = t->hidden;
    submit(t, t->draft_program);
}

static void draft_one(struct kit *t, const int32_t *blocks, int len, int32_t anchor) {
    draft(t, &blocks, &len, &anchor, 1);
}

static const int32_t table_a[4] = {7, 2, 11, 4}, table_b[4] = {0, 9, 1, 5};

// ------------------------------------------------------------------------------------------------ against op/

static void floats_of(const struct tensor *w, float *out) {
    uint64_t row_bytes = 0;
    assert_true(format_row_bytes(w->format, (uint64_t)w->ne[0], &row_bytes));
    op_dequant_row(w->format, w->data, w->ne[0], out);
}

static void linear(const struct kit *t, const struct tensor *w, const float *x, float *y) {
    int8_t q[128];
    float scale[4];
    int32_t sum[8];
    if (t->numerics == PROG_CLASS_FP32) {
        op_linear_fp32(w->format, w->data, (int)w->ne[1], (int)w->ne[0], x, y);
        return;
    }
    op_quantise_row(x, (int)w->ne[0], q, scale, sum);
    op_linear_int8(w->format, w->data, (int)w->ne[1], (int)w->ne[0], q, scale, sum, y);
}

// The stored bytes of every injected position, made by the definition.
static void kv_check(struct kit *t, int n) {
    const struct model *m = t->drafter;
    const struct model_hyper *h = &m->hyper;
    const struct state_layout *l = &t->pool.layout;
    uint8_t k_want[8192], v_want[8192], *kv = (uint8_t *)host(t, t->pool.kv);
    float fused[64], normed[64], norm[64], k_norm[16], k[32], v[32], table[16];
    double freqs[8];
    op_rope_freqs(h->rope_base, h->head_dim, h->rope_factors, freqs);
    floats_of(m->drafter->hidden_norm, norm);
    assert_true(l->half_bytes <= sizeof(k_want));
    for (int pos = 0; pos < n; pos++) {
        linear(t, m->drafter->fc, host(t, t->features) + pos * 128, fused);
        op_rmsnorm(fused, norm, 64, h->norm_eps, normed);
        op_rope_table(pos, freqs, 8, table);
        for (int i = 0; i < 2; i++) {
            linear(t, m->layers[i].k, normed, k);
            linear(t, m->layers[i].v, normed, v);
            floats_of(m->layers[i].k_norm, k_norm);
            for (int head = 0; head < 2; head++) {
                // Written over a copy of what is stored: equal bytes show that nothing would change.
                uint8_t *k_half = kv + state_k_offset(l, table_a[pos / 32], i, head);
                uint8_t *v_half = kv + state_v_offset(l, table_a[pos / 32], i, head);
                op_qk_norm_rope(k + head * 16, 16, k_norm, h->norm_eps, table, h->rope == ROPE_INTERLEAVED);
                memcpy(k_want, k_half, (size_t)l->half_bytes);
                memcpy(v_want, v_half, (size_t)l->half_bytes);
                op_kv_write(t->kv_type, k_want, v_want, pos % 32, k + head * 16, v + head * 16, 16);
                if (memcmp(k_want, k_half, (size_t)l->half_bytes) != 0 ||
                    memcmp(v_want, v_half, (size_t)l->half_bytes) != 0)
                    fail_msg("layer %d, head %d: K/V of position %d differ from the definition", i, head, pos);
            }
        }
    }
}

static void test_injected_kv(void **state) {
    (void)state;
    static const struct {
        enum prog_class numerics;
        enum op_kv_type kv_type;
    } cases[] = {{PROG_CLASS_FP32, OP_KV_F32}, {PROG_CLASS_INT8, OP_KV_F16}, {PROG_CLASS_INT8, OP_KV_Q8}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kit t = {.n_threads = 2, .numerics = cases[i].numerics, .kv_type = cases[i].kv_type};
        kit_open(&t);
        inject(&t, table_a, 0, CTX, 40);
        kv_check(&t, CTX);
        kit_close(&t);
    }
}

// ------------------------------------------------------------------------------------------------ nothing else matters

struct answer {
    float logits[ROWS * 300], hidden[ROWS * 64];
};
static void answer_take(struct kit *t, struct answer *a) {
    memcpy(a->logits, host(t, t->logits), sizeof(a->logits));
    memcpy(a->hidden, host(t, t->hidden), sizeof(a->hidden));
}

static void answer_same(struct kit *t, const struct answer *a, const char *what) {
    if (memcmp(a->logits, host(t, t->logits), sizeof(a->logits)) != 0) fail_msg("%s: other logits", what);
    if (memcmp(a->hidden, host(t, t->hidden), sizeof(a->hidden)) != 0) fail_msg("%s: other hidden rows", what);
}

static void paths_check(struct kit *t, struct answer *a) {
    int len = 77;
    kit_open(t);
    inject(t, table_a, 0, len, WINDOW);
    draft_one(t, table_a, len, 17);
    answer_take(t, a);
    draft_one(t, table_a, len, 17); // the block's own K/V are not context
    answer_same(t, a, "a second draft");
    draft_one(t, table_a, len, 18);
    assert_memory_not_equal(a->logits, host(t, t->logits), sizeof(a->logits)); // the anchor counts
    draft_one(t, table_a, len - 1, 17);
    assert_memory_not_equal(a->logits, host(t, t->logits), sizeof(a->logits)); // so does the context
    inject(t, table_b, 0, len, 1);
    draft_one(t, table_b, len, 17);
    answer_same(t, a, "row by row");
    // In rounds, each draft's block overwritten by the next injection.
    for (int at = 0, n = 1; at < len; at += n, n = n % 7 + 1) {
        inject(t, table_b, at, MIN(at + n, len), n);
        draft_one(t, table_b, MIN(at + n, len), 17);
    }
    answer_same(t, a, "in rounds");
    // A prefix taken over: two whole blocks shared, the partial one copied.
    int32_t fork[4] = {table_a[0], table_a[1], 14, 15};
    struct tern_err err = {0};
    uint64_t bytes = t->pool.layout.block_bytes;
    must(t->d->buffer_copy(t->unit, t->pool.kv, 14 * bytes, t->pool.kv, (uint64_t)table_a[2] * bytes, bytes, &err),
         &err);
    inject(t, fork, 70, len, 3);
    draft_one(t, fork, len, 17);
    answer_same(t, a, "after prefix reuse");
    // Two sequences in one step.
    inject(t, table_b, 0, 40, 40);
    const int32_t *tables[] = {table_b, fork};
    draft(t, tables, (const int[]){40, len}, (const int32_t[]){3, 17}, 2);
    if (memcmp(host(t, t->logits) + 300, a->logits + 2 * 300, 300 * sizeof(float)) != 0)
        fail_msg("beside another sequence: other logits");
}

static void test_paths(void **state) {
    (void)state;
    for (int numerics = PROG_CLASS_INT8; numerics <= PROG_CLASS_FP32; numerics++) {
        struct kit one = {.n_threads = 1, .numerics = (enum prog_class)numerics, .kv_type = OP_KV_F16}, two = one;
        struct answer a, b;
        two.n_threads = 2;
        two.alone = true;
        paths_check(&one, &a);
        paths_check(&two, &b);
        assert_memory_equal(&a, &b, sizeof(a));
        // The output matrix is packed once: what is not shared is at least as large.
        assert_true(two.info.bytes >= one.info.bytes + one.drafter->output->n_bytes);
        kit_close(&one);
        kit_close(&two);
    }
}

static void test_wrong_share(void **state) {
    (void)state;
    struct kit t = {.n_threads = 1, .kv_type = OP_KV_F16};
    struct tern_err err = {0};
    struct unit_weights *w = NULL;
    kit_open(&t);
    struct weights_options wo = {.numerics = PROG_CLASS_FP32, .shared = t.of_target};
    assert_int_equal(t.d->weights_import(t.unit, &w, t.drafter, &wo, NULL, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "the weights to share are of another unit or numerics class"));
    kit_close(&t);
}

// ------------------------------------------------------------------------------------------------ the null unit

static void test_null(void **state) {
    (void)state;
    struct kit t = {.is_null = true, .kv_type = OP_KV_F16};
    struct tern_err err = {0};
    struct unit_weights *w = NULL;
    kit_open(&t);
    inject(&t, table_a, 0, 50, 20);
    draft_one(&t, table_a, 50, 17);
    for (int i = 0; i < ROWS; i++) { // the null unit's rule for a row's token and position
        int token = i ? t.drafter->drafter->mask_id : 17;
        assert_true(host(&t, t.logits)[i * 300 + (token * 31 + (50 + i) * 7 + 1) % 300] == 1);
    }
    struct weights_options wo = {.numerics = PROG_CLASS_FP32, .shared = t.of_target};
    assert_int_equal(t.d->weights_import(t.unit, &w, t.drafter, &wo, NULL, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "the weights to share are not alive on this unit or of another class"));
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        signal(SIGABRT, SIG_DFL);
        t.d->weights_free(t.unit, t.of_target); // still shared: aborts
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    kit_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_injected_kv),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_wrong_share),
        cmocka_unit_test(test_null),
    };
    return cmocka_run_group_tests_name("unit_drafter", tests, NULL, NULL);
}
