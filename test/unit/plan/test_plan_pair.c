// Plans of two units against the same work done by hand: two whole plans, with the state read out of one and written
// into the other where the pair changes units. Equal bits show that each step ran on the unit that it should have, and
// that nothing of the state was lost on the way.
#define _GNU_SOURCE 1
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan/plan.h"
#include "../../common/tiny_model.h"

#define WINDOW 40
#define N_BLOCKS 8
#define N_PROMPT 90
#define N_ANSWER 12

static struct tern_err test_err;
static void assert_fine(enum tern_status status, int line) {
    if (status != TERN_OK) fail_msg("line %d: %s", line, test_err.message);
}
#define assert_ok(x) assert_fine((x), __LINE__)

struct seat { // the model on a unit
    struct unit *unit;
    struct unit_weights *weights;
    struct unit_advice advice;
};
static void seat_open(struct seat *s, const char *name, const struct model *m) {
    struct weights_options wo = {.numerics = PROG_CLASS_FP32};
    assert_ok(unit_open(&s->unit, name, &(struct unit_options){.n_threads = 1}, &test_err));
    assert_ok(unit_advise(s->unit, m, false, &s->advice, &test_err));
    assert_ok(unit_driver_of(s->unit)->weights_import(s->unit, &s->weights, m, &wo, NULL, &test_err));
}
static void seat_close(struct seat *s) {
    unit_driver_of(s->unit)->weights_free(s->unit, s->weights);
    unit_close(s->unit);
}

struct runner {
    struct plan *plan;
    struct arena arena;
    struct step_builder b;
    int32_t blocks[N_BLOCKS], len;
};
static void runner_open(struct runner *r, const char *kind, const struct model *m, const struct seat *seats, int n) {
    struct plan_unit units[2] = {{seats[0].unit, seats[0].weights}};
    if (n == 2) units[1] = (struct plan_unit){seats[1].unit, seats[1].weights};
    struct plan_options o = {.model = m,
                             .units = units,
                             .n_units = n,
                             .first_ctx_max = seats[0].advice.ctx_max,
                             .numerics = PROG_CLASS_FP32,
                             .kv_type = OP_KV_F32,
                             .window = WINDOW,
                             .n_blocks = N_BLOCKS,
                             .n_slots = 1,
                             .n_out_max = 8};
    *r = (struct runner){0};
    arena_init(&r->arena, 0);
    assert_ok(plan_open(&r->plan, kind, &o, &test_err));
    assert_ok(step_builder_init(&r->b, &r->arena, WINDOW, m->hyper.conv_len, 1, &test_err));
    for (int i = 0; i < N_BLOCKS; i++) r->blocks[i] = i;
}
static void runner_close(struct runner *r) {
    plan_close(r->plan);
    arena_release(&r->arena);
}
static const float *feed(struct runner *r, int n, int n_out) {
    step_begin(&r->b, plan_pool(r->plan), 0);
    int q = step_add_seq(&r->b, r->blocks, N_BLOCKS, r->len, r->len > 0 ? 0 : -1, 0);
    for (int i = 0; i < n; i++) step_add_chain_row(&r->b, q, (r->len + i) * 7 % 250, i >= n - n_out);
    mem_freeze(true);
    enum tern_status status = plan_run(r->plan, step_end(&r->b), n_out > 0 ? PROG_OUT_LOGITS : 0, &test_err);
    mem_freeze(false);
    assert_ok(status);
    r->len += n;
    return n_out > 0 ? plan_logits(r->plan, 0) : NULL;
}
static void move(struct runner *to, struct runner *from) {
    const struct state_layout *l = &plan_pool(from->plan)->layout;
    void *block = mem_alloc((size_t)l->block_bytes), *slot = mem_alloc((size_t)l->slot_bytes);
    for (int i = 0; i < N_BLOCKS; i++) {
        assert_ok(plan_block_read(from->plan, i, block, &test_err));
        assert_ok(plan_block_write(to->plan, i, block, &test_err));
    }
    assert_ok(plan_slot_read(from->plan, 0, slot, &test_err));
    assert_ok(plan_slot_write(to->plan, 0, slot, &test_err));
    to->len = from->len;
    mem_free(block);
    mem_free(slot);
}

// Prompt in pieces of 30 whose last row gives logits, then one token a step.
#define N_STEPS (N_PROMPT / 30 + N_ANSWER)
static int rows_of(int step) { return step < N_PROMPT / 30 ? 30 : 1; }

// hand[k]: which of the two whole plans takes step k.
static void check_pair(const char *kind, const struct model *m, const struct seat seats[2], const int hand[N_STEPS]) {
    struct runner pair, whole[2], *at = NULL;
    uint64_t n_vocab = (uint64_t)m->hyper.n_vocab;
    int n_first = 0;
    runner_open(&pair, kind, m, seats, 2);
    for (int i = 0; i < 2; i++) runner_open(&whole[i], "whole", m, &seats[i], 1);
    for (int k = 0; k < N_STEPS; k++) {
        struct runner *next = &whole[hand[k]];
        if (at && next != at) move(next, at);
        at = next;
        n_first += hand[k] == 0;
        const float *got = feed(&pair, rows_of(k), 1), *want = feed(at, rows_of(k), 1);
        if (memcmp(got, want, (size_t)n_vocab * sizeof *got) != 0) fail_msg("%s: step %d differs", kind, k);
    }
    struct buf text;
    char said[64];
    buf_init(&text, 1 << 16);
    assert_true(plan_explain(pair.plan, &text));
    for (int i = 0; i < 2; i++) {
        snprintf(said, sizeof said, "%d steps so far", i == 0 ? n_first : N_STEPS - n_first);
        if (!strstr(text.data, said)) fail_msg("no '%s' in: %s", said, text.data);
    }
    buf_release(&text);
    for (int i = 0; i < 2; i++) runner_close(&whole[i]);
    runner_close(&pair);
}

static void test_handoff(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct model *m = tiny_model_create(&shape);
    struct seat seats[2], swapped[2];
    int hand[N_STEPS];
    seat_open(&seats[0], "npu:ane-m1", m);
    seat_open(&seats[1], "cpu", m);
    swapped[0] = seats[1];
    swapped[1] = seats[0];
    for (int k = 0; k < N_STEPS; k++) hand[k] = rows_of(k) == 1;
    check_pair("handoff", m, seats, hand);
    check_pair("handoff", m, swapped, hand);
    for (int i = 0; i < 2; i++) seat_close(&seats[i]);
    tiny_model_free(m);
}

// The first unit's programs hold 32 and 64 positions; the text goes on beyond them.
static void test_extend(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct model *m = tiny_model_create(&shape);
    struct seat seats[2];
    int hand[N_STEPS], len = 0;
    setenv("TERN_NPU_CTX", "64", 1);
    seat_open(&seats[0], "npu:ane-m1", m);
    seat_open(&seats[1], "cpu", m);
    assert_int_equal(seats[0].advice.ctx_max, 64);
    assert_int_equal(seats[1].advice.ctx_max, 0);
    for (int k = 0; k < N_STEPS; k++) {
        hand[k] = len > 64;
        len += rows_of(k);
    }
    check_pair("extend", m, seats, hand);
    for (int i = 0; i < 2; i++) seat_close(&seats[i]);
    unsetenv("TERN_NPU_CTX");
    tiny_model_free(m);
}

// A text goes on in a larger bucket of one unit with the bits that it would have had there from the start.
static void test_buckets_lose_nothing(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct model *m = tiny_model_create(&shape);
    struct seat small, large;
    struct runner a, b;
    setenv("TERN_NPU_CTX", "256", 1); // one bucket
    seat_open(&large, "npu:coreai-linux", m);
    runner_open(&b, "whole", m, &large, 1);
    setenv("TERN_NPU_CTX", "32,64,256", 1);
    seat_open(&small, "npu:coreai-linux", m);
    runner_open(&a, "whole", m, &small, 1);
    for (int k = 0; k < 3 + N_ANSWER; k++) {
        const float *got = feed(&a, k < 3 ? 30 : 1, 1), *want = feed(&b, k < 3 ? 30 : 1, 1);
        if (memcmp(got, want, (size_t)m->hyper.n_vocab * sizeof *got) != 0) fail_msg("step %d differs", k);
    }
    unsetenv("TERN_NPU_CTX");
    runner_close(&a);
    runner_close(&b);
    seat_close(&small);
    seat_close(&large);
    tiny_model_free(m);
}

static void test_refused(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct model *m = tiny_model_create(&shape);
    struct seat seats[2];
    seat_open(&seats[0], "cpu", m);
    seat_open(&seats[1], "npu:fp32", m);
    const struct plan_unit units[2] = {{seats[0].unit, seats[0].weights}, {seats[1].unit, seats[1].weights}};
    const struct plan_options plain = {.model = m,
                                       .units = units,
                                       .n_units = 2,
                                       .numerics = PROG_CLASS_FP32,
                                       .window = WINDOW,
                                       .n_blocks = N_BLOCKS,
                                       .n_slots = 1,
                                       .n_out_max = 8};
    static const struct {
        const char *kind, *text;
        int n_units, window;
    } cases[] = {{"handoff", "it runs on two units", 1, WINDOW},
                 {"extend", "the first unit holds any context", 2, WINDOW},
                 {"handoff", "larger than the unit's largest", 2, 200}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan_options o = plain;
        struct plan *p = NULL;
        uint64_t work = 1, pools = 1;
        o.n_units = cases[i].n_units;
        o.window = cases[i].window;
        assert_int_equal(plan_open(&p, cases[i].kind, &o, &test_err), TERN_UNSUPPORTED);
        if (!strstr(test_err.message, cases[i].text)) fail_msg("said \"%s\"", test_err.message);
        assert_null(p);
        assert_true(plan_bytes_estimate(cases[i].kind, &o, &work, &pools));
        assert_int_equal(work + pools, 0);
    }
    uint64_t work = 0, pools = 0;
    struct plan *p = NULL;
    assert_true(plan_bytes_estimate("handoff", &plain, &work, &pools));
    assert_ok(plan_open(&p, "handoff", &plain, &test_err));
    uint64_t held = plan_work_bytes(p);
    assert_true(work + pools >= held && work + pools <= held + held / 10 + (1 << 20));
    plan_close(p);
    assert_int_equal(plan_kind_units("whole"), 1);
    assert_int_equal(plan_kind_units("extend"), 2);
    assert_int_equal(plan_kind_units("none"), 0);
    for (int i = 0; i < 2; i++) seat_close(&seats[i]);
    tiny_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handoff),
        cmocka_unit_test(test_extend),
        cmocka_unit_test(test_buckets_lose_nothing),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
