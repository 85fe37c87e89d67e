// The plan `whole` on the null unit: which program serves which step, results, state work, memory, refusals. The null
// unit holds the plan to every contract of units; a second table over it stands for a unit with memory of its own whose
// cost follows the window.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "plan/plan.h"
#include "../../common/tiny_model.h"

#define WINDOW 40

struct bench {
    struct model *model;
    struct unit *unit;
    struct plan_unit pu;
    struct plan_options o;
    struct plan *plan;
    struct arena arena;
    struct step_builder b, c;
    int32_t blocks[2][8];
};

static bool far_memory;
static struct unit_driver far_driver;
static uint64_t last_window; // of the program submitted last
static const struct prog *compiled_of[64];
static struct unit_program *programs[64];
static int n_programs;

static void far_caps(const struct unit *u, struct unit_caps *out) {
    unit_null_driver.caps(u, out);
    out->name = "far";
    out->host_memory = false;
    out->cost_follows_rows = false;
    out->window_max = 64;
}
static void *far_host(struct unit_buffer *b) {
    (void)b;
    return NULL;
}
static enum tern_status far_compile(struct unit *u, struct unit_program **out, const struct prog *p,
                                    struct unit_weights *w, struct tern_err *err) {
    TRY(unit_null_driver.program_compile(u, out, p, w, err));
    compiled_of[n_programs] = p;
    programs[n_programs++] = *out;
    return TERN_OK;
}
static enum tern_status far_submit(struct unit *u, struct unit_program *p, const struct step *s, struct unit_event *e,
                                   struct tern_err *err) {
    for (int i = 0; i < n_programs; i++)
        if (programs[i] == p) last_window = (uint64_t)compiled_of[i]->spec.window;
    return unit_null_driver.submit(u, p, s, e, err);
}
static uint64_t far_bytes(const struct unit_program *p) {
    (void)p;
    return 1000;
}

static bool far_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes) {
    (void)u;
    (void)p;
    *bytes = 1000;
    return true;
}

static struct bench *bench_make(bool is_llama) {
    struct bench *g = mem_calloc(1, sizeof(*g));
    struct tiny_shape shape = is_llama ? tiny_llama_shape(FORMAT_F32, 1) : tiny_lfm2_shape(FORMAT_F32, 1);
    g->model = tiny_model_create(&shape);
    arena_init(&g->arena, 0);
    assert_int_equal(unit_null_driver.open(&g->unit, &(struct unit_options){0}, NULL), TERN_OK);
    if (far_memory) {
        far_driver = unit_null_driver;
        far_driver.caps = far_caps;
        far_driver.buffer_host = far_host;
        far_driver.program_compile = far_compile;
        far_driver.submit = far_submit;
        far_driver.program_bytes = far_bytes;
        far_driver.program_estimate = far_estimate;
        ((struct unit_base *)(void *)g->unit)->driver = &far_driver;
        n_programs = 0;
    }
    g->pu.unit = g->unit;
    assert_int_equal(
        unit_null_driver.weights_import(g->unit, &g->pu.weights, g->model, &(struct weights_options){0}, NULL, NULL),
        TERN_OK);
    g->o = (struct plan_options){.model = g->model,
                                 .units = &g->pu,
                                 .n_units = 1,
                                 .kv_type = OP_KV_F16,
                                 .window = WINDOW,
                                 .n_blocks = 16,
                                 .n_slots = is_llama ? 0 : 4,
                                 .n_out_max = 8};
    struct tern_err err = {0};
    if (plan_open(&g->plan, "whole", &g->o, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(step_builder_init(&g->b, &g->arena, STEP_WINDOW_MAX, is_llama ? 0 : 3, 2, NULL), TERN_OK);
    assert_int_equal(step_builder_init(&g->c, &g->arena, WINDOW, is_llama ? 0 : 3, 2, NULL), TERN_OK);
    for (int i = 0; i < 16; i++) g->blocks[i % 2][i / 2] = i;
    return g;
}

static void bench_free(struct bench *g) {
    plan_close(g->plan);
    unit_null_driver.weights_free(g->unit, g->pu.weights);
    unit_null_driver.close(g->unit); // aborts when the plan left anything alive
    tiny_model_free(g->model);
    arena_release(&g->arena);
    mem_free(g);
}

static const struct step *prefill(struct bench *g, int n_rows, int n_out) {
    step_begin(&g->b, plan_pool(g->plan), 0);
    int seq = step_add_seq(&g->b, g->blocks[0], 8, 0, -1, 0);
    for (int i = 0; i < n_rows; i++) step_add_chain_row(&g->b, seq, i % 250, i >= n_rows - n_out);
    return step_end(&g->b);
}

static int32_t expected_id(const struct bench *g, int32_t token, int32_t pos) {
    return (token * 31 + pos * 7 + 1) % g->model->hyper.n_vocab_used;
}

static void assert_runs(struct bench *g, const struct step *s, uint32_t want) {
    struct tern_err err = {0};
    mem_freeze(true);
    uint64_t frozen = mem_stats_get().n_frozen;
    enum tern_status status = plan_run(g->plan, s, want, &err);
    mem_freeze(false);
    if (status != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(mem_stats_get().n_frozen, frozen);
}

static void check_results(struct bench *g) {
    int n_vocab = g->model->hyper.n_vocab;
    assert_runs(g, prefill(g, 20, 3), PROG_OUT_LOGITS);
    for (int i = 0; i < 3; i++) {
        int32_t id = expected_id(g, 17 + i, 17 + i);
        for (int v = 0; v < n_vocab; v++) assert_true(plan_logits(g->plan, i)[v] == (v == id ? 1.0f : 0.0f));
    }
    assert_runs(g, prefill(g, 20, 8), PROG_OUT_ARGMAX);
    for (int i = 0; i < 8; i++) assert_int_equal(plan_argmax(g->plan)[i].id, expected_id(g, 12 + i, 12 + i));
    assert_runs(g, prefill(g, WINDOW, 0), 0);
    assert_runs(g, prefill(g, 5, 0), PROG_OUT_LOGITS); // nothing wants logits: a fill
}

static void test_results(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        far_memory = i >= 2;
        struct bench *g = bench_make(i % 2);
        check_results(g);
        bench_free(g);
    }
    far_memory = false;
}

// Window ladder of a unit whose cost follows the window: the smallest rung that holds the rows.
static void test_windows(void **state) {
    (void)state;
    static const int rows[][2] = {{1, 1}, {2, 4}, {4, 4}, {5, 16}, {16, 16}, {17, 40}, {40, 40}};
    far_memory = true;
    struct bench *g = bench_make(false);
    assert_int_equal(n_programs, 4 * 3 + 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int n_out = 0; n_out <= 1; n_out++) {
            assert_runs(g, prefill(g, rows[i][0], n_out), n_out ? PROG_OUT_ARGMAX : 0);
            assert_int_equal(last_window, rows[i][1]);
        }
    }
    struct buf b;
    buf_init(&b, 4000);
    assert_true(plan_explain(g->plan, &b));
    assert_non_null(strstr(b.data, "window 4: fill"));
    assert_non_null(strstr(b.data, "cost follows the window"));
    buf_release(&b);
    assert_string_equal(plan_name(g->plan), "whole(far)");
    uint64_t out = 8 * (300 * 4 + sizeof(struct prog_argmax)) * 2, work = 0, pools = 0;
    const struct state_pool *pool = plan_pool(g->plan);
    uint64_t kept = 16 * pool->layout.block_bytes + 4 * pool->layout.slot_bytes + pool->layout.window_bytes;
    assert_int_equal(plan_work_bytes(g->plan), 13 * 1000 + out + kept);
    assert_true(plan_bytes_estimate("whole", &g->o, &work, &pools));
    assert_int_equal(pools, kept);
    assert_int_equal(work, 13 * 1000 + out);
    bench_free(g);
    far_memory = false;
}

static void test_one_window(void **state) {
    (void)state;
    struct bench *g = bench_make(false);
    struct buf b;
    buf_init(&b, 4000);
    assert_true(plan_explain(g->plan, &b));
    assert_non_null(strstr(b.data, "whole(null): every step of lfm2 on unit null"));
    assert_non_null(strstr(b.data, "window 40: fill (0 B), logits (0 B), argmax (0 B)"));
    assert_null(strstr(b.data, "window 4:"));
    buf_release(&b);
    bench_free(g);
}

// A tree is verified, its accepted path committed.
static void test_commit(void **state) {
    (void)state;
    for (int is_llama = 0; is_llama < 2; is_llama++) {
        struct bench *g = bench_make(is_llama);
        int32_t slot = is_llama ? -1 : 1;
        step_begin(&g->b, plan_pool(g->plan), STEP_KEEP_ROWS);
        int seq = step_add_seq(&g->b, g->blocks[0], 8, 30, slot, -1);
        int root = step_add_tree_row(&g->b, seq, 5, STEP_NO_PARENT, true);
        step_add_tree_row(&g->b, seq, 6, root, true);
        int other = step_add_tree_row(&g->b, seq, 7, root, true);
        const struct step *v = step_end(&g->b);
        assert_runs(g, v, PROG_OUT_ARGMAX);
        assert_int_equal(plan_argmax(g->plan)[2].id, expected_id(g, 7, 31));
        step_begin(&g->c, plan_pool(g->plan), 0);
        seq = step_add_seq(&g->c, g->blocks[0], 8, 30, slot, slot);
        step_add_path_row(&g->c, seq, v, root);
        step_add_path_row(&g->c, seq, v, other);
        struct tern_err err = {0};
        if (plan_commit(g->plan, step_end(&g->c), &err) != TERN_OK) fail_msg("%s", err.message);
        g->c.rows[1].slot = 5;
        assert_int_equal(plan_commit(g->plan, &g->c.step, &err), TERN_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "plan whole(null), commit: step row 1: slot 5"));
        bench_free(g);
    }
}

static void test_state_work(void **state) {
    (void)state;
    struct bench *g = bench_make(false);
    const struct state_layout *l = &plan_pool(g->plan)->layout;
    uint8_t *block = mem_alloc((size_t)l->block_bytes), *slot = mem_alloc((size_t)l->slot_bytes);
    uint8_t *back = mem_alloc((size_t)MAX(l->block_bytes, l->slot_bytes));
    uint64_t rng = 3;
    for (uint64_t i = 0; i < l->block_bytes; i++) block[i] = (uint8_t)tiny_random(&rng);
    for (uint64_t i = 0; i < l->slot_bytes; i++) slot[i] = (uint8_t)tiny_random(&rng);
    assert_int_equal(plan_block_write(g->plan, 15, block, NULL), TERN_OK);
    assert_int_equal(plan_block_copy(g->plan, 2, 15, NULL), TERN_OK);
    assert_int_equal(plan_block_copy(g->plan, 2, 2, NULL), TERN_OK);
    assert_int_equal(plan_block_read(g->plan, 2, back, NULL), TERN_OK);
    assert_memory_equal(back, block, (size_t)l->block_bytes);
    assert_int_equal(plan_block_read(g->plan, 1, back, NULL), TERN_OK);
    for (uint64_t i = 0; i < l->block_bytes; i++) assert_int_equal(back[i], 0);
    assert_int_equal(plan_slot_write(g->plan, 3, slot, NULL), TERN_OK);
    assert_int_equal(plan_slot_copy(g->plan, 0, 3, NULL), TERN_OK);
    assert_int_equal(plan_slot_clear(g->plan, 3, NULL), TERN_OK);
    assert_int_equal(plan_slot_read(g->plan, 0, back, NULL), TERN_OK);
    assert_memory_equal(back, slot, (size_t)l->slot_bytes);
    assert_int_equal(plan_slot_read(g->plan, 3, back, NULL), TERN_OK);
    for (uint64_t i = 0; i < l->slot_bytes; i++) assert_int_equal(back[i], 0);
    struct tern_err err = {0};
    assert_int_equal(plan_block_copy(g->plan, 16, 0, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "block 16; the pool has 16"));
    assert_int_equal(plan_block_copy(g->plan, 0, -1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(plan_block_read(g->plan, 16, back, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(plan_block_write(g->plan, -1, back, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(plan_slot_copy(g->plan, 4, 0, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "conv slot 4; the pool has 4"));
    assert_int_equal(plan_slot_copy(g->plan, 0, 4, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(plan_slot_clear(g->plan, -1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(plan_slot_read(g->plan, 4, back, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(plan_slot_write(g->plan, 4, back, &err), TERN_INVALID_ARGUMENT);
    mem_free(block);
    mem_free(slot);
    mem_free(back);
    bench_free(g);
}

#define REFUSED(g, s, want, words)                                                                \
    do {                                                                                          \
        struct tern_err err = {0};                                                                \
        assert_int_equal(plan_run((g)->plan, s, want, &err), TERN_INVALID_ARGUMENT);              \
        if (!strstr(err.message, words)) fail_msg("said \"%s\", not \"%s\"", err.message, words); \
    } while (0)

static void test_refused_steps(void **state) {
    (void)state;
    struct bench *g = bench_make(false);
    REFUSED(g, prefill(g, 5, 1), PROG_OUT_HIDDEN, "outputs 0x8");
    REFUSED(g, prefill(g, 5, 1), PROG_OUT_LOGITS | PROG_OUT_ARGMAX, "outputs 0x3");
    REFUSED(g, prefill(g, 5, 1), 0, "1 rows want output of a run that gives none");
    REFUSED(g, prefill(g, 41, 1), PROG_OUT_LOGITS, "a step of 41 rows; its window has 40");
    REFUSED(g, prefill(g, 20, 9), PROG_OUT_LOGITS, "9 rows want output; it serves 8");
    const struct step *s = prefill(g, 5, 1);
    struct state_pool pool = *plan_pool(g->plan);
    g->b.step.pool = &pool;
    REFUSED(g, s, PROG_OUT_LOGITS, "on another pool");
    assert_int_equal(plan_commit(g->plan, s, NULL), TERN_INVALID_ARGUMENT);
    s = prefill(g, 5, 1);
    g->b.rows[2].token = 999;
    REFUSED(g, s, PROG_OUT_LOGITS, "plan whole(null): step row 2: token 999");
    check_results(g); // none of these left a trace
    bench_free(g);
}

static void test_refused_options(void **state) {
    (void)state;
    struct bench *g = bench_make(false);
    struct tern_err err = {0};
    struct plan *p = NULL;
    struct plan_unit two[2] = {g->pu, g->pu};
    struct plan_options o = g->o;
#define TRY_WITH(status, text, ...)                                                             \
    do {                                                                                        \
        o = g->o;                                                                               \
        __VA_ARGS__;                                                                            \
        assert_int_equal(plan_open(&p, "whole", &o, &err), status);                             \
        if (!strstr(err.message, text)) fail_msg("said \"%s\", not \"%s\"", err.message, text); \
        assert_null(p);                                                                         \
    } while (0)
    TRY_WITH(TERN_INVALID_ARGUMENT, "a model and at least one unit", o.model = NULL);
    TRY_WITH(TERN_INVALID_ARGUMENT, "a model and at least one unit", o.n_units = 0);
    TRY_WITH(TERN_INVALID_ARGUMENT, "a window of 0", o.window = 0);
    TRY_WITH(TERN_INVALID_ARGUMENT, "a window of 4097", o.window = STEP_WINDOW_MAX + 1);
    TRY_WITH(TERN_INVALID_ARGUMENT, "41 rows with output", o.n_out_max = 41);
    TRY_WITH(TERN_INVALID_ARGUMENT, "0 rows with output", o.n_out_max = 0);
    TRY_WITH(TERN_INVALID_ARGUMENT, "a pool of -1 blocks", o.n_blocks = -1);
    TRY_WITH(TERN_INVALID_ARGUMENT, "needs K/V blocks", o.n_blocks = 0);
    TRY_WITH(TERN_INVALID_ARGUMENT, "needs conv slots", o.n_slots = 0);
    TRY_WITH(TERN_UNSUPPORTED, "it runs on one unit", (o.units = two, o.n_units = 2));
    TRY_WITH(TERN_INVALID_ARGUMENT, "weights", o.numerics = PROG_CLASS_FP32);
    assert_int_equal(plan_open(&p, "none", &g->o, &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "there are: whole"));
    uint64_t work = 1, pools = 1;
    assert_true(plan_bytes_estimate("none", &g->o, &work, &pools));
    assert_int_equal(work + pools, 0);
    o = g->o;
    o.n_units = 2; // does not fit
    work = pools = 1;
    assert_true(plan_bytes_estimate("whole", &o, &work, &pools));
    assert_int_equal(work + pools, 0);
    o = g->o;
    o.n_blocks = INT32_MAX;
    assert_true(plan_bytes_estimate("whole", &o, &work, &pools)); // huge, not overflowing
    assert_true(pools > (uint64_t)INT32_MAX * plan_pool(g->plan)->layout.block_bytes);
    bench_free(g);
    far_memory = true;
    g = bench_make(false);
    TRY_WITH(TERN_UNSUPPORTED, "larger than the unit's largest", o.window = 65);
    bench_free(g);
    far_memory = false;
}

// The n-th allocation fails: one status, nothing left.
static void test_out_of_memory(void **state) {
    (void)state;
    struct bench *g = bench_make(false);
    uint64_t live = mem_stats_get().n_live;
    bool opened = false;
    for (uint64_t n = 1; !opened && n < 300; n++) {
        struct plan *p = NULL;
        mem_fail_at(n, true);
        enum tern_status status = plan_open(&p, "whole", &g->o, NULL);
        mem_fail_at(0, false);
        opened = status == TERN_OK;
        if (!opened) assert_int_equal(status, TERN_NO_MEMORY);
        plan_close(p);
        assert_int_equal(mem_stats_get().n_live, live);
    }
    assert_true(opened);
    bench_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),         cmocka_unit_test(test_windows),
        cmocka_unit_test(test_one_window),      cmocka_unit_test(test_commit),
        cmocka_unit_test(test_state_work),      cmocka_unit_test(test_refused_steps),
        cmocka_unit_test(test_refused_options), cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("plan_whole", tests, NULL, NULL);
}
