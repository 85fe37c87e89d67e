// A drafter's two programs: what they consist of, what is refused, what their steps must be, and what they cost.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "prog/prog.h"
#include "../../common/tiny_drafter.h"
#include "../../common/tiny_model.h"

#define WINDOW 16
static struct model *target, *drafter;
static char any_buffer;
#define BUFFER ((struct unit_buffer *)(void *)&any_buffer)

static int setup(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    target = tiny_model_create(&shape);
    drafter = tiny_drafter_create(target, 2, FORMAT_F32, 7);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    tiny_drafter_free(drafter);
    tiny_model_free(target);
    return 0;
}

static struct prog *make(enum prog_kind kind, uint32_t outputs) {
    struct prog *p = NULL;
    struct tern_err err = {0};
    struct prog_spec spec = {.kind = kind, .window = WINDOW, .outputs = outputs, .n_out_max = outputs ? -1 : 0};
    if (prog_build(&p, drafter, &spec, &err) != TERN_OK) fail_msg("%s", err.message);
    return p;
}

static void test_ops(void **state) {
    (void)state;
    static const enum prog_op_kind inject_ops[] = {
        PROG_OP_PORT_IN,     PROG_OP_ROPE_TABLE, PROG_OP_LINEAR, PROG_OP_RMSNORM,     PROG_OP_LINEAR,
        PROG_OP_K_NORM_ROPE, PROG_OP_KV_WRITE,   PROG_OP_LINEAR, PROG_OP_K_NORM_ROPE, PROG_OP_KV_WRITE};
    struct prog *p = make(PROG_INJECT, 0);
    assert_int_equal(p->n_ops, ARRAY_LEN(inject_ops));
    for (int i = 0; i < p->n_ops; i++) assert_int_equal(p->ops[i].kind, inject_ops[i]);
    // K and V are made of the hidden norm's rows: the layers' own norms have no part in it.
    for (int i = 0; i < p->n_ops; i++)
        for (int l = 0; l < 2; l++) assert_ptr_not_equal(p->ops[i].w[0], drafter->layers[l].attn_norm);
    assert_ptr_equal(p->ops[2].w[0], drafter->drafter->fc);
    assert_ptr_equal(p->ops[3].w[0], drafter->drafter->hidden_norm);
    for (int l = 0; l < 2; l++) {
        assert_ptr_equal(p->ops[4 + 3 * l].w[0], drafter->layers[l].k);
        assert_ptr_equal(p->ops[4 + 3 * l].w[1], drafter->layers[l].v);
        assert_int_equal(p->ops[4 + 3 * l].in[0], p->ops[3].out[0]);
        assert_ptr_equal(p->ops[5 + 3 * l].w[0], drafter->layers[l].k_norm);
        assert_int_equal(p->ops[6 + 3 * l].state_index, l);
    }
    assert_true(p->has_attn && p->needs_state && !p->has_conv && !p->has_head && !p->reads_tokens);
    assert_int_equal(p->ports, 1u << PORT_ROWS_IN);
    prog_free(p);

    static const enum prog_op_kind layer_ops[] = {PROG_OP_RMSNORM,  PROG_OP_LINEAR,    PROG_OP_QK_NORM_ROPE,
                                                  PROG_OP_KV_WRITE, PROG_OP_ATTENTION, PROG_OP_LINEAR,
                                                  PROG_OP_RMSNORM,  PROG_OP_LINEAR,    PROG_OP_LINEAR};
    p = make(PROG_DRAFT, PROG_OUT_LOGITS | PROG_OUT_HIDDEN);
    int n = ARRAY_LEN(layer_ops);
    assert_int_equal(p->n_ops, 2 + 2 * n + 1);
    assert_int_equal(p->ops[0].kind, PROG_OP_EMBED);
    assert_ptr_equal(p->ops[0].w[0], target->embedding);
    assert_int_equal(p->ops[1].kind, PROG_OP_ROPE_TABLE);
    for (int i = 0; i < 2 * n; i++) assert_int_equal(p->ops[2 + i].kind, layer_ops[i % n]);
    assert_int_equal(p->ops[p->n_ops - 1].kind, PROG_OP_HEAD);
    assert_ptr_equal(p->ops[p->n_ops - 1].w[1], target->output);
    assert_true(p->has_attn && p->has_head && p->reads_tokens);
    assert_int_equal(p->ports, 1u << PORT_LOGITS | 1u << PORT_HIDDEN);
    prog_free(p);
}

static void test_refused(void **state) {
    (void)state;
    const struct {
        const struct model *m;
        struct prog_spec spec;
        const char *text;
    } cases[] = {
        {target, {.kind = PROG_INJECT}, "program inject of model lfm2, which is no drafter"},
        {target, {.kind = PROG_DRAFT, .outputs = PROG_OUT_LOGITS}, "program draft of model lfm2, which is no drafter"},
        {drafter,
         {.kind = PROG_WHOLE, .outputs = PROG_OUT_LOGITS},
         "program whole of model dflash, which is a drafter"},
        {drafter, {.kind = PROG_COMMIT}, "program commit of model dflash, which is a drafter"},
        {drafter, {.kind = PROG_ENCODER}, "program encoder of model dflash, which is a drafter"},
        {drafter, {.kind = PROG_INJECT, .outputs = PROG_OUT_LOGITS}, "program inject: outputs 0x1; it can give 0x0"},
        {drafter, {.kind = PROG_INJECT, .outputs = PROG_OUT_ROWS}, "program inject: outputs 0x10; it can give 0x0"},
        {drafter, {.kind = PROG_DRAFT}, "program draft: no output is asked for"},
        {drafter, {.kind = PROG_DRAFT, .outputs = PROG_OUT_LOGITS | PROG_OUT_ROWS}, "it can give 0xb"},
        {drafter, {.kind = (enum prog_kind)(PROG_DRAFT + 1)}, "unknown kind"},
        {drafter,
         {.kind = PROG_LINEAR, .weight = target->layers[0].ffn_up},
         "is no weight of a product of model dflash"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct prog *p = NULL;
        struct tern_err err = {0};
        struct prog_spec spec = cases[i].spec;
        spec.window = WINDOW;
        spec.n_out_max = spec.outputs ? -1 : 0;
        assert_int_equal(prog_build(&p, cases[i].m, &spec, &err), TERN_INVALID_ARGUMENT);
        if (!strstr(err.message, cases[i].text)) fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].text);
    }
    // Products of a drafter that may be run alone.
    const struct tensor *const weights[] = {drafter->drafter->fc, drafter->drafter->markov_w2, drafter->layers[1].k,
                                            drafter->output};
    for (size_t i = 0; i < ARRAY_LEN(weights); i++) {
        struct prog *p = NULL;
        struct prog_spec spec = {.kind = PROG_LINEAR, .window = WINDOW, .weight = weights[i]};
        assert_int_equal(prog_build(&p, drafter, &spec, NULL), TERN_OK);
        prog_free(p);
    }
}

// The verifier does not trust the builder.
static void test_broken(void **state) {
    (void)state;
    struct tern_err err = {0};
    struct prog *p = make(PROG_INJECT, 0);
    p->values[p->ops[0].out[0]].n_cols -= 1;
    assert_int_equal(prog_verify(p, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "port rows_in (features) has 127 columns, expected 128"));
    prog_free(p);
    p = make(PROG_INJECT, 0);
    p->values[p->ops[5].in[0]].n_cols = 48;
    assert_int_equal(prog_verify(p, &err), TERN_INVALID_ARGUMENT);
    prog_free(p);
    p = make(PROG_INJECT, 0);
    p->ops[5].w[0] = drafter->drafter->hidden_norm;
    assert_int_equal(prog_verify(p, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "k_norm_rope, layer 0): norm of k"));
    prog_free(p);
    p = make(PROG_INJECT, 0);
    p->ops[8].layer = 2;
    assert_int_equal(prog_verify(p, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "layer 2; the program covers 0 to 2"));
    prog_free(p);
}

static void test_steps(void **state) {
    (void)state;
    struct prog *inject = make(PROG_INJECT, 0), *draft = make(PROG_DRAFT, PROG_OUT_LOGITS | PROG_OUT_HIDDEN);
    struct arena arena;
    struct step_builder b;
    struct tern_err err = {0};
    int32_t blocks[] = {3, 1};
    struct state_pool pool = {.kv = BUFFER, .n_blocks = 4};
    arena_init(&arena, 0);
    assert_int_equal(state_layout_init(&pool.layout, drafter, OP_KV_F16, 0, 2, 0, &err), TERN_OK);
    assert_int_equal(pool.layout.n_conv, 0);
    assert_int_equal(pool.layout.n_attn, 2);
    assert_int_equal(pool.layout.slot_bytes, 0);
    assert_int_equal(step_builder_init(&b, &arena, WINDOW, 0, 1, &err), TERN_OK);

    step_begin(&b, &pool, 0);
    int seq = step_add_seq(&b, blocks, 2, 30, -1, -1);
    for (int i = 0; i < 4; i++) step_add_chain_row(&b, seq, -1, false); // tokens are not looked at
    const struct step *s = step_end(&b);
    assert_int_equal(step_check(inject, s, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "port rows_in of the program (inject) is not bound"));
    b.step.ports[PORT_ROWS_IN].buf = BUFFER;
    if (step_check(inject, s, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(prog_port_bytes(inject, s, PORT_ROWS_IN), 4 * 2 * 64 * sizeof(float));
    b.step.flags = STEP_FULL;
    assert_int_equal(step_check(inject, s, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "an injection takes no flags"));

    step_begin(&b, &pool, 0);
    seq = step_add_seq(&b, blocks, 2, 30, -1, -1);
    step_add_tree_row(&b, seq, 0, STEP_NO_PARENT, false);
    step_add_tree_row(&b, seq, 0, STEP_NO_PARENT, false);
    b.step.ports[PORT_ROWS_IN].buf = BUFFER;
    assert_int_equal(step_check(inject, step_end(&b), &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "a drafter's rows are chains"));

    step_begin(&b, &pool, STEP_FULL);
    seq = step_add_seq(&b, blocks, 2, 34, -1, -1);
    for (int i = 0; i < 5; i++) step_add_full_row(&b, seq, i ? drafter->drafter->mask_id : 9, false, true);
    b.step.ports[PORT_LOGITS].buf = b.step.ports[PORT_HIDDEN].buf = BUFFER;
    s = step_end(&b);
    if (step_check(draft, s, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(s->rows[4].pos, 38);
    assert_int_equal(prog_port_bytes(draft, s, PORT_LOGITS), 5 * 300 * sizeof(float));
    b.step.flags = 0;
    assert_int_equal(step_check(draft, s, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "the rows of a draft see one another and need STEP_FULL"));
    b.step.flags = STEP_FULL;
    pool.layout.head_dim = 8;
    assert_int_equal(step_check(draft, s, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "the pool's layout belongs to another model"));
    arena_release(&arena);
    prog_free(inject);
    prog_free(draft);
}

// Counted by hand: width 64, 4 heads and 2 K/V heads of 16, feed-forward 96, 300 ids, 2 layers.
static void test_cost_and_dump(void **state) {
    (void)state;
    struct prog *inject = make(PROG_INJECT, 0), *draft = make(PROG_DRAFT, PROG_OUT_LOGITS);
    struct prog_cost c = prog_cost_get(inject, 3, 0, 100);
    double weights = 128.0 * 64 + 2 * (2 * 64.0 * 32), kv_row = 2 * 2 * 16 * 2.0;
    assert_true(c.flops == 2 * weights * 3);
    assert_true(c.weight_bytes == 4 * weights);
    assert_true(c.kv_bytes == 2 * kv_row * 3);
    c = prog_cost_get(draft, 5, 5, 100);
    double layer = 2 * 64.0 * 64 + 2 * 64.0 * 32 + 3 * 64.0 * 96;
    double pairs = 5 * (100.0 + 5); // every row sees the whole block
    assert_true(c.flops == 2 * (2 * layer + 64.0 * 300) * 5 + 2 * 4 * 64 * pairs);
    assert_true(c.weight_bytes == 4 * (2 * layer + 64.0 * 300 + 64.0 * 5));
    assert_true(c.kv_bytes == 2 * kv_row * (105 + 5));
    struct buf b;
    buf_init(&b, 1 << 16);
    assert_true(prog_dump(inject, &b));
    assert_non_null(strstr(b.data, "program inject of dflash: layers 0-2, window 16, class int8, outputs none\n"));
    assert_non_null(strstr(b.data, "port_in rows_in  "));
    assert_non_null(strstr(b.data, "L1   k_norm_rope"));
    assert_non_null(strstr(b.data, "fc.weight F32 64x128\n"));
    buf_release(&b);
    prog_free(inject);
    prog_free(draft);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),   cmocka_unit_test(test_refused),       cmocka_unit_test(test_broken),
        cmocka_unit_test(test_steps), cmocka_unit_test(test_cost_and_dump),
    };
    return cmocka_run_group_tests_name("prog_drafter", tests, setup, teardown);
}
