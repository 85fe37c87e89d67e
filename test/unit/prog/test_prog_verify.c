// A sound program broken in every way that the verifier names. Each case builds anew, breaks one thing, and wants the
// verifier's words about it.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "prog/prog.h"
#include "../../common/tiny_model.h"

static struct model *m;
static struct tensor copy; // of a weight, to break

static int setup(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_Q8_0, 1);
    m = tiny_model_create(&shape);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    tiny_model_free(m);
    return 0;
}

static struct prog *make(struct prog_spec spec) {
    struct prog *p = NULL;
    struct tern_err err = {0};
    spec.window = 16;
    spec.n_out_max = -1;
    if (prog_build(&p, m, &spec, &err) != TERN_OK) fail_msg("%s", err.message);
    return p;
}

static struct prog *make_whole(void) {
    return make((struct prog_spec){
        .kind = PROG_WHOLE, .outputs = PROG_OUT_LOGITS | PROG_OUT_FEATURES, .n_features = 1, .feature_layers = {2}});
}
static struct prog *make_segment(void) { return make((struct prog_spec){.kind = PROG_SEGMENT, .index = 1}); }
static struct prog *make_attn(void) { return make((struct prog_spec){.kind = PROG_ATTN, .index = 1}); }
static struct prog *make_encoder(void) { return make((struct prog_spec){.kind = PROG_ENCODER}); }
static struct prog *make_linear(void) {
    return make((struct prog_spec){.kind = PROG_LINEAR, .weight = m->layers[0].ffn_down});
}

// The n-th op of a kind.
static struct prog_op *op(struct prog *p, enum prog_op_kind kind, int n) {
    for (int i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind && n-- == 0) return &p->ops[i];
    fail_msg("no such op");
    return NULL;
}
static struct prog_op *op_linear_of(struct prog *p, bool swiglu) {
    for (int i = 0; i < p->n_ops; i++)
        if (swiglu ? p->ops[i].swiglu : p->ops[i].add) return &p->ops[i];
    fail_msg("no such op");
    return NULL;
}
static struct tensor *weight_copy(struct prog_op *o, int i) {
    copy = *o->w[i];
    o->w[i] = &copy;
    return &copy;
}

#define BREAK(make_fn, words, ...)                                                                                  \
    do {                                                                                                            \
        struct tern_err err = {0};                                                                                  \
        struct prog *p = make_fn();                                                                                 \
        assert_int_equal(prog_verify(p, &err), TERN_OK);                                                            \
        __VA_ARGS__;                                                                                                \
        if (prog_verify(p, &err) != TERN_INVALID_ARGUMENT) fail_msg("accepted: %s", #__VA_ARGS__);                  \
        if (!strstr(err.message, words)) fail_msg("%s: said \"%s\", not \"%s\"", #__VA_ARGS__, err.message, words); \
        prog_free(p);                                                                                               \
    } while (0)

static void test_structure(void **state) {
    (void)state;
    BREAK(make_whole, "no ops", p->n_ops = 0);
    BREAK(make_whole, "covers layers 0 to 7 of 6", p->layer_end = 7);
    BREAK(make_whole, "op 3 (unknown, layer 0): operation number 77", p->ops[3].kind = (enum prog_op_kind)77);
    BREAK(make_whole, "input 0 is value -1", op(p, PROG_OP_RMSNORM, 0)->in[0] = -1);
    BREAK(make_whole, "input 0 is value 9999", op(p, PROG_OP_RMSNORM, 0)->in[0] = 9999);
    BREAK(make_whole, "input 1 is set; it has 1", op(p, PROG_OP_RMSNORM, 0)->in[1] = 0);
    BREAK(make_whole, "output 0 is value -1", op(p, PROG_OP_RMSNORM, 0)->out[0] = -1);
    BREAK(make_whole, "output 1 is set; it has 1", op(p, PROG_OP_RMSNORM, 0)->out[1] = 0);
    BREAK(make_whole, "output 0 overwrites input 0 (x)", {
        struct prog_op *o = op(p, PROG_OP_RMSNORM, 0);
        o->out[0] = o->in[0];
    });
    BREAK(make_whole, "outputs 0 and 1 are one value", {
        for (int i = 0; i < p->n_ops; i++)
            if (p->ops[i].n_w == 3) p->ops[i].out[1] = p->ops[i].out[0];
    });
    BREAK(make_whole, "is read before it is written", {
        struct prog_op swap = p->ops[2];
        p->ops[2] = p->ops[3];
        p->ops[3] = swap;
    });
}

static void test_memory(void **state) {
    (void)state;
    BREAK(make_whole, "lifetime ops 0 to", p->values[0].last_op -= 1);
    BREAK(make_whole, "lifetime ops", p->values[3].first_op += 1);
    BREAK(make_whole, "no op touches it", p->values[p->n_values++] = (struct prog_value){.n_cols = 4, .name = "idle"});
    BREAK(make_whole, "is no multiple of 64", p->values[2].offset += 4);
    BREAK(make_whole, "ends at byte", p->values[2].offset = p->work_bytes);
    BREAK(make_whole, "ends at byte", p->work_bytes -= 64);
    BREAK(make_whole, "-5 columns", { p->values[p->n_values++] = (struct prog_value){.n_cols = -5, .name = "x"}; });
    BREAK(make_whole, "live at op", p->values[0].offset = p->values[2].offset); // x and the first n
    // Every pair that lives together: laid on one another, the verifier sees it.
    struct prog *p = make_whole();
    int pairs = 0;
    for (int a = 0; a < p->n_values; a++)
        for (int b = 0; b < a; b++) {
            struct prog_value *va = &p->values[a], *vb = &p->values[b];
            bool together = va->first_op <= vb->last_op && vb->first_op <= va->last_op;
            uint64_t was = va->offset;
            if (!together || vb->offset + (uint64_t)va->n_cols * 64 > p->work_bytes) continue;
            va->offset = vb->offset;
            assert_int_equal(prog_verify(p, NULL), TERN_INVALID_ARGUMENT);
            va->offset = was;
            pairs++;
        }
    assert_true(pairs > 30);
    prog_free(p);
}

static void test_shapes(void **state) {
    (void)state;
    BREAK(make_whole, "output (x) has 63 columns, expected 64", p->values[0].n_cols = 63);
    BREAK(make_whole, "(rope) has 8 columns", p->values[op(p, PROG_OP_ROPE_TABLE, 0)->out[0]].n_cols = 8);
    BREAK(make_whole, "has 32 columns, expected 64", p->values[op(p, PROG_OP_RMSNORM, 0)->out[0]].n_cols = 32);
    BREAK(make_whole, "expected 64", p->values[op(p, PROG_OP_ATTENTION, 0)->out[0]].n_cols = 32);
    BREAK(make_whole, "weight (blk.2.attn_k.weight) is 64 x 32, expected 64 x 16",
          p->values[op(p, PROG_OP_KV_WRITE, 0)->in[0]].n_cols = 16);
    BREAK(make_whole, "residual (bcx) has 192 columns, expected 64", // x = bcx + conv_out · conv
          op_linear_of(p, false)->in[1] = op(p, PROG_OP_LINEAR, 0)->out[0]);
    BREAK(make_segment, "port rows_in (x) has 1 columns", p->values[op(p, PROG_OP_PORT_IN, 0)->out[0]].n_cols = 1);
    BREAK(make_segment, "port attn (attn) has 1 columns", p->values[op(p, PROG_OP_PORT_IN, 1)->out[0]].n_cols = 1);
    BREAK(make_attn, "q of port qkv (q) has 1 columns", p->values[op(p, PROG_OP_PORT_IN, 0)->out[0]].n_cols = 1);
    BREAK(make_attn, "k of port qkv (k) has 1 columns", p->values[op(p, PROG_OP_PORT_IN, 0)->out[1]].n_cols = 1);
    BREAK(make_attn, "v of port qkv (v) has 1 columns", p->values[op(p, PROG_OP_PORT_IN, 0)->out[2]].n_cols = 1);
    BREAK(make_linear, "port rows_in (x) has 95 columns", p->values[0].n_cols = 95);
}

static void test_weights(void **state) {
    (void)state;
    BREAK(make_whole, "no embedding", op(p, PROG_OP_EMBED, 0)->w[0] = NULL);
    BREAK(make_whole, "0 weights, expected 1", op(p, PROG_OP_RMSNORM, 0)->n_w = 0);
    BREAK(make_whole, "embedding (token_embd.weight) is 64 x 301",
          weight_copy(op(p, PROG_OP_EMBED, 0), 0)->ne[1] = 301);
    BREAK(make_whole, "is 64 x 192, expected", weight_copy(op(p, PROG_OP_LINEAR, 0), 0)->ne[2] = 2);
    BREAK(make_whole, "has 13055 bytes, expected 13056", weight_copy(op(p, PROG_OP_LINEAR, 0), 0)->n_bytes -= 1);
    BREAK(make_whole, "no norm", op(p, PROG_OP_RMSNORM, 1)->w[0] = NULL);
    BREAK(make_whole, "is not in a float format", weight_copy(op(p, PROG_OP_RMSNORM, 1), 0)->format = FORMAT_Q8_0);
    BREAK(make_whole, "norm of q (blk.2.attn_q_norm.weight) is 8 x 1",
          weight_copy(op(p, PROG_OP_QK_NORM_ROPE, 0), 0)->ne[0] = 8);
    BREAK(make_whole, "norm of k (blk.2.attn_k_norm.weight) is 8 x 1",
          weight_copy(op(p, PROG_OP_QK_NORM_ROPE, 0), 1)->ne[0] = 8);
    BREAK(make_whole, "no taps", op(p, PROG_OP_SHORT_CONV, 0)->w[0] = NULL);
    BREAK(make_whole, "taps (blk.0.shortconv.conv.weight) is 4 x 64, expected 3 x 64",
          weight_copy(op(p, PROG_OP_SHORT_CONV, 0), 0)->ne[0] = 4);
    BREAK(make_whole, "taps (blk.0.shortconv.conv.weight) are not",
          weight_copy(op(p, PROG_OP_SHORT_CONV, 0), 0)->format = FORMAT_Q8_0);
    BREAK(make_whole, "output weight (token_embd.weight) is 64 x 299",
          weight_copy(op(p, PROG_OP_HEAD, 0), 1)->ne[1] = 299);
    BREAK(make_whole, "no output norm", op(p, PROG_OP_HEAD, 0)->w[0] = NULL);
    BREAK(make_encoder, "no output norm", op(p, PROG_OP_NORM_OUT, 0)->w[0] = NULL);
    BREAK(make_whole, "4 weights; at most 3", op(p, PROG_OP_LINEAR, 0)->n_w = 4);
    BREAK(make_whole, "no weight", op(p, PROG_OP_LINEAR, 0)->n_w = 0);
    BREAK(make_whole, "swiglu takes two weights", op_linear_of(p, true)->n_w = 1);
    BREAK(make_whole, "takes one weight, found 2", op_linear_of(p, false)->n_w = 2);
}

static void test_places(void **state) {
    (void)state;
    BREAK(make_whole, "layer -1; the program covers 0 to 6", op(p, PROG_OP_ATTENTION, 0)->layer = -1);
    BREAK(make_segment, "layer 1; the program covers 2 to 5", op(p, PROG_OP_SHORT_CONV, 0)->layer = 1);
    BREAK(make_whole, "layer 3 is of the other kind", op(p, PROG_OP_KV_WRITE, 0)->layer = 3);
    BREAK(make_whole, "layer 4 is of the other kind", op(p, PROG_OP_SHORT_CONV, 2)->layer = 4);
    BREAK(make_whole, "state index 0, expected 1", op(p, PROG_OP_ATTENTION, 1)->state_index = 0);
    BREAK(make_whole, "state index 3, expected 2", op(p, PROG_OP_SHORT_CONV, 2)->state_index = 3);
    BREAK(make_whole, "feature 1 of 1", op(p, PROG_OP_TAP, 0)->index = 1);
    BREAK(make_whole, "feature 0 belongs to layer 2", op(p, PROG_OP_TAP, 0)->layer = 3);
    BREAK(make_segment, "port 4 (logits) cannot be read this way", op(p, PROG_OP_PORT_IN, 0)->index = PORT_LOGITS);
    BREAK(make_segment, "port 1 (rows_out) cannot be read", op(p, PROG_OP_PORT_IN, 0)->index = PORT_ROWS_OUT);
    BREAK(make_segment, "port 0 (rows_in) cannot be written", op(p, PROG_OP_PORT_OUT, 0)->index = PORT_ROWS_IN);
    BREAK(make_segment, "port 77 (unknown)", op(p, PROG_OP_PORT_OUT, 0)->index = 77);
    BREAK(make_whole, "a commit stands alone", {
        struct prog_op *o = op(p, PROG_OP_HEAD, 0);
        *o = (struct prog_op){.kind = PROG_OP_COMMIT, .layer = -1, .in = {-1, -1, -1, -1}, .out = {-1, -1, -1}};
    });
}

static void test_facts(void **state) {
    (void)state;
    BREAK(make_whole, "says attention 0", p->has_attn = false);
    BREAK(make_whole, "convolution 0", p->has_conv = false);
    BREAK(make_whole, "state 0", p->needs_state = false);
    BREAK(make_whole, "says tokens 0", p->reads_tokens = false);
    BREAK(make_whole, "head 0", p->has_head = false);
    BREAK(make_whole, "says ports", p->ports ^= 1u << PORT_HIDDEN);
    BREAK(make_whole, "17 rows with output in a window of 16", p->n_out_max = 17);
    BREAK(make_whole, "no output asks for it", {
        p->spec.outputs = PROG_OUT_FEATURES;
        p->ports = 1u << PORT_FEATURES;
    });
}

static void test_out_of_memory(void **state) {
    (void)state;
    struct prog *p = make_whole();
    mem_fail_at(1, true);
    struct tern_err err = {0};
    enum tern_status status = prog_verify(p, &err);
    mem_fail_at(0, false);
    assert_int_equal(status, TERN_NO_MEMORY);
    prog_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure),     cmocka_unit_test(test_memory), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_weights),       cmocka_unit_test(test_places), cmocka_unit_test(test_facts),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("prog_verify", tests, setup, teardown);
}
