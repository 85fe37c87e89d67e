// What programs of each kind consist of, what is refused, how memory is planned, and what a step costs.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "prog/prog.h"
#include "../../common/tiny_model.h"

static struct model *lfm2, *llama;

static int setup(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_Q8_0, 1);
    lfm2 = tiny_model_create(&shape);
    shape = tiny_llama_shape(FORMAT_F32, 2);
    llama = tiny_model_create(&shape);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    tiny_model_free(lfm2);
    tiny_model_free(llama);
    return 0;
}

static struct prog *make(const struct model *m, struct prog_spec spec) {
    struct prog *p = NULL;
    struct tern_err err = {0};
    if (spec.window == 0) spec.window = 16;
    if (spec.n_out_max == 0) spec.n_out_max = -1;
    if (prog_build(&p, m, &spec, &err) != TERN_OK) fail_msg("%s", err.message);
    return p;
}

static const char kind_letters[PROG_OP_COUNT] = {
    [PROG_OP_EMBED] = 'E',        [PROG_OP_ROPE_TABLE] = 'R', [PROG_OP_RMSNORM] = 'n',   [PROG_OP_LINEAR] = 'l',
    [PROG_OP_QK_NORM_ROPE] = 'r', [PROG_OP_KV_WRITE] = 'w',   [PROG_OP_ATTENTION] = 'a', [PROG_OP_SHORT_CONV] = 'c',
    [PROG_OP_TAP] = 't',          [PROG_OP_HEAD] = 'H',       [PROG_OP_NORM_OUT] = 'N',  [PROG_OP_PORT_IN] = '<',
    [PROG_OP_PORT_OUT] = '>',     [PROG_OP_COMMIT] = 'C',
};

// Ops as letters; a linear op says S (swiglu) or + (into the residual).
static void assert_ops(struct prog *p, const char *expected) {
    char text[256];
    assert_true(p->n_ops < 255);
    for (int i = 0; i < p->n_ops; i++)
        text[i] = p->ops[i].swiglu ? 'S' : p->ops[i].add ? '+' : kind_letters[p->ops[i].kind];
    text[p->n_ops] = 0;
    assert_string_equal(text, expected);
    prog_free(p);
}

#define CONV "nlc+nS+"
#define ATTN "nlrwa+nS+"

static void test_kinds(void **state) {
    (void)state;
    const uint32_t logits = PROG_OUT_LOGITS;
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_WHOLE, .outputs = logits}),
               "ER" CONV CONV ATTN CONV ATTN CONV "H");
    assert_ops(make(llama, (struct prog_spec){.kind = PROG_WHOLE, .outputs = logits}), "ER" ATTN ATTN ATTN ATTN "H");
    assert_ops(make(llama, (struct prog_spec){.kind = PROG_WHOLE, .outputs = logits | PROG_OUT_ROWS}),
               "ER" ATTN ATTN ATTN ATTN ">H");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_LAYERS, .layer_begin = 0, .layer_end = 2}),
               "E" CONV CONV ">");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_LAYERS, .layer_begin = 2, .layer_end = 4}),
               "<R" ATTN CONV ">");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_LAYERS, .layer_begin = 5, .layer_end = 6, .outputs = logits}),
               "<" CONV "H");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_LAYERS, .layer_begin = 5, .layer_end = 6}), "<" CONV ">");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_SEGMENT, .index = 0}), "ER" CONV CONV "nlr>>");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_SEGMENT, .index = 1}), "<R<+nS+" CONV "nlr>>");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_SEGMENT, .index = 2, .outputs = logits}), "<<+nS+" CONV "H");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_ATTN, .index = 1}), "<wa>");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_LINEAR, .weight = lfm2->layers[2].q}), "<l>");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_COMMIT}), "C");
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_ENCODER}), "ER" CONV CONV ATTN CONV ATTN CONV "N");
}

// Nothing reads what follows the last write of state, unless a feature tap does.
static void test_fill_stops_at_the_last_state(void **state) {
    (void)state;
    assert_ops(make(lfm2, (struct prog_spec){.kind = PROG_WHOLE}), "ER" CONV CONV ATTN CONV ATTN "nlc");
    assert_ops(make(llama, (struct prog_spec){.kind = PROG_WHOLE}), "ER" ATTN ATTN ATTN "nlrw");
    struct prog_spec spec = {
        .kind = PROG_WHOLE, .outputs = PROG_OUT_FEATURES, .n_features = 2, .feature_layers = {1, 3}};
    assert_ops(make(lfm2, spec), "ER" CONV CONV "t" ATTN CONV "t" ATTN "nlc");
    spec.feature_layers[1] = 5;
    assert_ops(make(lfm2, spec), "ER" CONV CONV "t" ATTN CONV ATTN CONV "t");
}

static void test_facts(void **state) {
    (void)state;
    struct prog *p = make(lfm2, (struct prog_spec){.kind = PROG_SEGMENT, .index = 1});
    assert_false(p->reads_tokens);
    assert_false(p->has_attn);
    assert_true(p->has_conv);
    assert_int_equal(p->ports, 1u << PORT_ROWS_IN | 1u << PORT_ATTN | 1u << PORT_ROWS_OUT | 1u << PORT_QKV);
    assert_int_equal(p->layer_begin, 2);
    assert_int_equal(p->layer_end, 5);
    prog_free(p);
    p = make(llama, (struct prog_spec){.kind = PROG_SEGMENT, .index = 1});
    assert_false(p->needs_state); // attention layers alone: K/V belong to the cores
    prog_free(p);
    p = make(lfm2, (struct prog_spec){.kind = PROG_WHOLE, .outputs = PROG_OUT_LOGITS | PROG_OUT_HIDDEN});
    assert_true(p->reads_tokens && p->has_head && p->has_attn && p->has_conv);
    assert_int_equal(p->ports, 1u << PORT_LOGITS | 1u << PORT_HIDDEN);
    assert_int_equal(p->n_out_max, 16);
    // State indices count layers of a kind.
    int conv = 0, attn = 0;
    for (int i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind == PROG_OP_SHORT_CONV) assert_int_equal(p->ops[i].state_index, conv++);
        if (p->ops[i].kind == PROG_OP_ATTENTION) assert_int_equal(p->ops[i].state_index, attn++);
    }
    assert_int_equal(conv, 4);
    assert_int_equal(attn, 2);
    prog_free(p);
}

// A range on pools of its own counts from their first layer, on pools of the whole model from layer 0.
static void test_state_range(void **state) {
    (void)state;
    struct prog_spec spec = {.kind = PROG_LAYERS, .layer_begin = 3, .layer_end = 5};
    for (int own = 0; own < 2; own++) {
        if (own) spec.state_begin = 3;
        if (own) spec.state_end = 5;
        struct prog *p = make(lfm2, spec);
        for (int i = 0; i < p->n_ops; i++) {
            if (p->ops[i].kind == PROG_OP_SHORT_CONV) assert_int_equal(p->ops[i].state_index, own ? 0 : 2);
            if (p->ops[i].kind == PROG_OP_KV_WRITE) assert_int_equal(p->ops[i].state_index, own ? 0 : 1);
        }
        prog_free(p);
    }
    struct prog *p = make(lfm2, (struct prog_spec){.kind = PROG_COMMIT, .state_begin = 2, .state_end = 3});
    assert_true(p->has_attn);
    assert_false(p->has_conv);
    prog_free(p);
}

static void test_refused(void **state) {
    (void)state;
    const uint32_t logits = PROG_OUT_LOGITS;
    struct tensor foreign = {.ne = {4, 4, 1, 1}, .n_dims = 2};
    const struct {
        struct prog_spec spec;
        const char *words;
    } rows[] = {
        {{.kind = (enum prog_kind)99, .window = 8}, "unknown kind 99"},
        {{.kind = PROG_WHOLE, .window = 8, .numerics = PROG_CLASS_COUNT}, "unknown numerics class"},
        {{.kind = PROG_WHOLE, .window = 8, .kv_type = (enum op_kv_type)3}, "unknown K/V type"},
        {{.kind = PROG_WHOLE, .window = 0}, "a window of 0 rows"},
        {{.kind = PROG_WHOLE, .window = STEP_WINDOW_MAX + 1}, "a window of 4097 rows"},
        {{.kind = PROG_LAYERS, .window = 8, .layer_begin = 2, .layer_end = 2}, "layers 2 to 2"},
        {{.kind = PROG_LAYERS, .window = 8, .layer_begin = -1, .layer_end = 2}, "layers -1 to 2"},
        {{.kind = PROG_LAYERS, .window = 8, .layer_begin = 2, .layer_end = 7}, "layers 2 to 7"},
        {{.kind = PROG_LAYERS, .window = 8, .layer_end = 2, .outputs = logits, .n_out_max = 1}, "outputs 0x1"},
        {{.kind = PROG_SEGMENT, .window = 8, .index = 3}, "segment 3"},
        {{.kind = PROG_SEGMENT, .window = 8, .index = 1, .outputs = logits, .n_out_max = 1}, "outputs 0x1"},
        {{.kind = PROG_ATTN, .window = 8, .index = 2}, "attention 2"},
        {{.kind = PROG_ATTN, .window = 8, .index = -1}, "attention -1"},
        {{.kind = PROG_WHOLE, .window = 8, .outputs = logits, .n_out_max = 0}, "0 rows with output"},
        {{.kind = PROG_WHOLE, .window = 8, .outputs = logits, .n_out_max = 9}, "9 rows with output"},
        {{.kind = PROG_WHOLE, .window = 8, .outputs = logits, .n_out_max = -2}, "-2 rows with output"},
        {{.kind = PROG_WHOLE, .window = 8, .n_features = 17}, "17 feature layers"},
        {{.kind = PROG_WHOLE, .window = 8, .n_features = 1, .feature_layers = {6}, .outputs = 4}, "feature layer 6"},
        {{.kind = PROG_WHOLE, .window = 8, .n_features = 1}, "no feature output"},
        {{.kind = PROG_WHOLE, .window = 8, .outputs = PROG_OUT_FEATURES}, "outputs 0x4"},
        {{.kind = PROG_SEGMENT, .window = 8, .index = 1, .n_features = 1, .feature_layers = {4}, .outputs = 4},
         "layers 2 to 3"},
        {{.kind = PROG_COMMIT, .window = 8, .outputs = logits}, "outputs 0x1"},
        {{.kind = PROG_LINEAR, .window = 8}, "no weight"},
        {{.kind = PROG_LINEAR, .window = 8, .weight = &foreign}, "no weight of a product"},
        {{.kind = PROG_WHOLE, .window = 8, .state_begin = 1, .state_end = 6}, "on state of layers 1 to 6"},
        {{.kind = PROG_WHOLE, .window = 8, .state_end = 7}, "on state of layers 0 to 7"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct prog *p = NULL;
        struct tern_err err = {0};
        if (prog_build(&p, lfm2, &rows[i].spec, &err) != TERN_INVALID_ARGUMENT) fail_msg("accepted: %s", rows[i].words);
        if (!strstr(err.message, rows[i].words)) fail_msg("said \"%s\", not \"%s\"", err.message, rows[i].words);
        assert_null(p);
    }
}

// A model whose weights do not fit together is refused with the op and the tensor.
static void test_wrong_weights(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct model *m = tiny_model_create(&shape);
    struct prog_spec spec = {.kind = PROG_WHOLE, .window = 8, .outputs = PROG_OUT_LOGITS, .n_out_max = 1};
    struct prog *p = NULL;
    struct tern_err err = {0};
    m->layers[3].ffn_down = m->layers[3].ffn_up;
    assert_int_equal(prog_build(&p, m, &spec, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(
        strstr(err.message, "(linear, layer 3): weight (blk.3.ffn_up.weight) is 64 x 96, expected 96 x 64"));
    tiny_model_free(m);
}

static void test_out_of_memory(void **state) {
    (void)state;
    struct prog_spec spec = {.kind = PROG_WHOLE, .window = 8, .outputs = PROG_OUT_LOGITS, .n_out_max = 1};
    uint64_t live = mem_stats_get().n_live;
    bool built = false;
    for (uint64_t n = 1; !built && n < 50; n++) {
        struct prog *p = NULL;
        struct tern_err err = {0};
        mem_fail_at(n, true);
        enum tern_status status = prog_build(&p, lfm2, &spec, &err);
        mem_fail_at(0, false);
        built = status == TERN_OK;
        if (!built) assert_int_equal(status, TERN_NO_MEMORY);
        prog_free(p);
        assert_int_equal(mem_stats_get().n_live, live);
    }
    assert_true(built);
}

// The plan reaches the lower bound for layer stacks: the largest sum of values that live at one op.
static void test_memory_is_tight(void **state) {
    (void)state;
    const struct model *models[] = {lfm2, llama};
    for (int k = 0; k < 2; k++) {
        struct prog *p =
            make(models[k], (struct prog_spec){.kind = PROG_WHOLE, .window = 100, .outputs = PROG_OUT_LOGITS});
        uint64_t bound = 0, sum = 0;
        for (int i = 0; i < p->n_ops; i++) {
            uint64_t live = 0;
            for (int v = 0; v < p->n_values; v++)
                if (p->values[v].first_op <= i && i <= p->values[v].last_op)
                    live += (uint64_t)p->values[v].n_cols * 400;
            bound = MAX(bound, live);
        }
        for (int v = 0; v < p->n_values; v++) sum += (uint64_t)p->values[v].n_cols * 400;
        assert_in_range(p->work_bytes, bound, bound + bound / 10 + 64 * 8);
        assert_true(p->work_bytes * 3 < sum);
        prog_free(p);
    }
}

static void test_dump(void **state) {
    (void)state;
    struct prog *p = make(lfm2, (struct prog_spec){.kind = PROG_SEGMENT, .index = 2, .outputs = PROG_OUT_ARGMAX});
    struct buf b;
    buf_init(&b, 1 << 16);
    assert_true(prog_dump(p, &b));
    assert_non_null(strstr(b.data, "program segment of lfm2: layers 4-6, window 16, class int8, outputs argmax\n"));
    assert_non_null(
        strstr(b.data, "L4   linear+add  attn#1[64], x#0[64] -> x#0[64]  | blk.4.attn_output.weight Q8_0 64x64\n"));
    assert_non_null(strstr(b.data, "port_in attn"));
    assert_non_null(strstr(b.data, "short_conv state 3"));
    assert_non_null(strstr(b.data, "work memory"));
    int lines = 0;
    for (size_t i = 0; i < b.len; i++) lines += b.data[i] == '\n';
    assert_int_equal(lines, p->n_ops + 2);
    buf_release(&b);
    prog_free(p);
}

// Counted by hand for one layer, and against the sum of its parts.
static void test_cost(void **state) {
    (void)state;
    struct prog *p = make(llama, (struct prog_spec){.kind = PROG_LAYERS, .layer_begin = 1, .layer_end = 2});
    struct prog_cost c = prog_cost_get(p, 3, 0, 100);
    double weights = 96.0 * (192 + 64 + 64) + 192.0 * 96 + 3.0 * 96 * 160;
    double pairs = 3 * 100 + 6;
    assert_true(c.flops == 2 * weights * 3 + 4 * 192.0 * pairs);
    assert_true(c.weight_bytes == 4 * weights);
    assert_true(c.kv_bytes == 2.0 * 2 * 32 * 2 * (103 + 3)); // K and V, heads, dims, half floats
    prog_free(p);

    struct prog *whole = make(lfm2, (struct prog_spec){.kind = PROG_WHOLE, .outputs = PROG_OUT_LOGITS});
    c = prog_cost_get(whole, 5, 2, 64);
    struct prog_cost sum = {0};
    static const int cuts[] = {0, 2, 3, 6};
    for (int i = 0; i < 3; i++) {
        struct prog *part = make(lfm2, (struct prog_spec){.kind = PROG_LAYERS,
                                                          .layer_begin = cuts[i],
                                                          .layer_end = cuts[i + 1],
                                                          .outputs = i == 2 ? PROG_OUT_LOGITS : 0});
        struct prog_cost one = prog_cost_get(part, 5, 2, 64);
        sum.flops += one.flops;
        sum.weight_bytes += one.weight_bytes;
        sum.kv_bytes += one.kv_bytes;
        prog_free(part);
    }
    assert_true(c.flops == sum.flops && c.weight_bytes == sum.weight_bytes && c.kv_bytes == sum.kv_bytes);
    struct prog_cost no_head = prog_cost_get(whole, 5, 0, 64);
    assert_true(c.weight_bytes - no_head.weight_bytes == (double)lfm2->output->n_bytes);
    prog_free(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),         cmocka_unit_test(test_fill_stops_at_the_last_state),
        cmocka_unit_test(test_facts),         cmocka_unit_test(test_state_range),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_wrong_weights),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_memory_is_tight),
        cmocka_unit_test(test_dump),          cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests_name("prog_build", tests, setup, teardown);
}
