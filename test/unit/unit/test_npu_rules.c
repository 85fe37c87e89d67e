// Rule sets through operation lists: every published number of an engine's arithmetic, what was observed of Apple's
// Linux runtime, and equal bits from every instruction set.
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>
#include "unit/npu/npu_eval.h"
#include "unit/npu/npu_store.h"
#include "unit/npu/oplist_lower.h"
#include "../../common/npu_lists.h"
#include "../../common/tiny_model.h"

#define WIDTH 32

static struct model *model;
static struct npu_store *store;

static void must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s", err->message);
}

enum probe { BY_CONV, BY_MATMUL, BY_SUM };

static const struct npu_weight *weight(const char *prefix, int n, const float *values, bool column) {
    static int serial;
    char name[NPU_NAME_MAX];
    const struct npu_weight *w = NULL;
    struct tern_err err;
    (void)snprintf(name, sizeof name, "%s.%d", prefix, serial++);
    const int32_t shape[] = {1, column ? 1 : n, 1, 1};
    must(npu_store_values(store, name, 4, shape, values, NULL, &w, &err), &err);
    return w;
}

// Sum of w[i] * x[i] by one operation of a list; every column gets the same.
static float dot(const char *rules, enum probe by, const float *w, const float *x, int n) {
    struct npu_list *l = NULL;
    struct npu_eval *e = NULL;
    struct tern_err err;
    must(npu_list_begin(&l, "probe", &err), &err);
    int in = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", n, WIDTH), y = 0, a = 0;
    if (by == BY_CONV) {
        y = npu_conv(l, in, npu_const(l, weight("w", n, w, false)));
    } else if (by == BY_MATMUL) {
        a = npu_input(l, NPU_IN_ROWS, NPU_NONE, NPU_NONE, "a", 3, (const int32_t[]){1, WIDTH, int_round_up(n, 32)});
        int row = npu_slice(l, npu_slice(l, a, 1, 0, 1), 2, 0, n);
        y = npu_matmul(l, row, npu_reshape(l, in, 3, (const int32_t[]){1, n, WIDTH}));
    } else {
        y = npu_reduce(l, NPU_OP_SUM, in, 1);
    }
    npu_output(l, y, NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "y");
    must(npu_list_end(l, &err), &err);
    struct npu_eval_options o = {.rules = npu_rules_find(rules)};
    assert_non_null(o.rules);
    must(npu_eval_create(&e, l, &o, &err), &err);
    float *px = npu_eval_at(e, npu_find(l, "x"));
    for (int i = 0; i < n * WIDTH; i++) px[i] = by == BY_SUM ? w[i / WIDTH] * x[i / WIDTH] : x[i / WIDTH];
    if (by == BY_MATMUL) memcpy(npu_eval_at(e, npu_find(l, "a")), w, (size_t)n * sizeof(float));
    npu_eval_run(e);
    float result = npu_eval_at(e, npu_find(l, "y"))[WIDTH - 1];
    npu_eval_free(e);
    npu_list_free(l);
    return result;
}

static float ones_dot(const char *rules, enum probe by, const float *x, int n) {
    static float ones[16384];
    for (int i = 0; i < n; i++) ones[i] = 1;
    return dot(rules, by, ones, x, n);
}

// One elementwise operation on one value (and a second for binary ones).
static float apply(const char *rules, enum npu_op_kind kind, float a, float b) {
    struct npu_list *l = NULL;
    struct npu_eval *e = NULL;
    struct tern_err err;
    bool binary = kind >= NPU_OP_ADD && kind <= NPU_OP_MAX;
    must(npu_list_begin(&l, "probe", &err), &err);
    int x = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", 1, WIDTH), z = NPU_NONE, y = 0;
    if (binary) z = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "z", 1, WIDTH);
    y = binary ? npu_binary(l, kind, x, z) : npu_unary(l, kind, x);
    npu_output(l, y, NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "y");
    must(npu_list_end(l, &err), &err);
    struct npu_eval_options o = {.rules = npu_rules_find(rules)};
    must(npu_eval_create(&e, l, &o, &err), &err);
    for (int i = 0; i < WIDTH; i++) npu_eval_at(e, npu_find(l, "x"))[i] = a;
    for (int i = 0; binary && i < WIDTH; i++) npu_eval_at(e, npu_find(l, "z"))[i] = b;
    npu_eval_run(e);
    float result = npu_eval_at(e, npu_find(l, "y"))[0];
    npu_eval_free(e);
    npu_list_free(l);
    return result;
}

static void is(float have, float want, const char *what) {
    if (f32_bits(have) != f32_bits(want)) fail_msg("%s: %.9g, published %.9g", what, (double)have, (double)want);
}

// The ten published reductions of M1, by each operation that sums.
static void test_m1_reductions(void **state) {
    (void)state;
    static float x[16384];
    for (enum probe by = BY_CONV; by <= BY_SUM; by++) {
        for (int i = 0; i < 1025; i++) x[i] = i == 0 ? 4096 : 1;
        is(ones_dot("ane-m1:tile4", by, x, 1025), 5116, "4096 and 1024 ones");
        for (int i = 0; i < 16384; i++) x[i] = 1;
        is(ones_dot("ane-m1:tile4", by, x, 16384), 16384, "16384 ones");
        is(ones_dot("ane-m1:tile4", by, x, 2049), 2048, "2049 ones");
        static const float big[] = {1024, 3000, 4090, 4096, 8000, 16000, 30000};
        for (size_t j = 0; j < ARRAY_LEN(big); j++) {
            for (int i = 0; i < 48; i++) x[i] = i % 3 == 0 ? big[j] : i % 3 == 1 ? -big[j] : 1;
            is(ones_dot("ane-m1:tile4", by, x, 48), big[j] < 4096 ? 16 : 4, "triples (B, -B, 1)");
            for (int i = 0; i < 48; i++) x[i] = i % 3 == 0 ? -big[j] : i % 3 == 1 ? big[j] : 1;
            is(ones_dot("ane-m1:tile4", by, x, 48), big[j] < 4096 ? 16 : 4, "triples (-B, B, 1)");
        }
    }
    // What a wide sum gives instead, so that the reducers are told apart.
    for (int i = 0; i < 1025; i++) x[i] = i == 0 ? 4096 : 1;
    is(ones_dot("coreai-linux", BY_CONV, x, 1025), 5120, "4096 and 1024 ones, wide");
    for (int i = 0; i < 2049; i++) x[i] = 1;
    is(ones_dot("ane-m2", BY_SUM, x, 2049), 2050, "2049 ones, M2");
    is(ones_dot("ane-m5", BY_SUM, x, 2049), 2050, "2049 ones, M5");
}

static void test_cliff(void **state) {
    (void)state;
    static const char *const sets[] = {"ane-m1", "ane-m1:tile4", "ane-m1:prod16", "ane-m2", "ane-m5"};
    float x[40], up[2] = {16376, 16376}, over[2] = {16384, 16384}, interior[3] = {20000, 20000, -20000};
    for (int i = 0; i < 40; i++) x[i] = 1000;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        for (enum probe by = BY_CONV; by <= BY_MATMUL; by++) {
            is(ones_dot(sets[i], by, up, 2), 32752, "32752 passes");
            is(ones_dot(sets[i], by, over, 2), INFINITY, "32768 is infinite");
            is(ones_dot(sets[i], by, interior, 3), INFINITY, "an interior partial sum");
            is(ones_dot(sets[i], by, x, 33), INFINITY, "33 times 1000");
            is(ones_dot(sets[i], by, x, 1), 1000, "one");
        }
    float one = 60000;
    is(ones_dot("ane-m1", BY_CONV, &one, 1), 60000, "one channel is exempt");
    is(ones_dot("ane-m1", BY_SUM, x, 33), 32992, "a sum over an axis is exempt"); // 33000 in fp16
    is(apply("ane-m1", NPU_OP_MUL, 200, 300), 60000, "elementwise products are exempt");
    is(ones_dot("coreai-linux", BY_CONV, interior, 3), 20000, "no cliff on Linux");
}

static void test_specials(void **state) {
    (void)state;
    static const char *const sets[] = {"ane-m1", "ane-m2", "ane-m5"};
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        is(apply(sets[i], NPU_OP_ADD, NAN, 1), INFINITY, "NaN in");
        is(apply(sets[i], NPU_OP_SUB, INFINITY, INFINITY), 0, "inf - inf");
        is(apply(sets[i], NPU_OP_MUL, 0, INFINITY), 0, "0 * inf");
        is(apply(sets[i], NPU_OP_RSQRT, -1, 0), 0, "sqrt(-1)");
        is(apply(sets[i], NPU_OP_DIV, 1, -0.0f), INFINITY, "1 / -0");
        is(apply(sets[i], NPU_OP_MUL, -0.0f, 1), 0, "-0");
        is(apply(sets[i], NPU_OP_SILU, 0, 0), f16_to_f32(f32_to_f16(-0.001259f)), "swish(0)");
        is(apply(sets[i], NPU_OP_EXP, 11.09375f, 0), f16_to_f32(f32_to_f16(expf(11.09375f))), "exp below 11.094");
        is(apply(sets[i], NPU_OP_EXP, 11.1015625f, 0), INFINITY, "exp beyond 11.094");
        is(apply(sets[i], NPU_OP_MUL, 0x1p-12f, 0x1p-12f), 0x1p-24f, "subnormals, elementwise");
    }
    float tiny = 0x1p-20f, w[2] = {1, 1}, x[2] = {tiny, tiny};
    is(dot("ane-m1", BY_MATMUL, w, x, 2), 0, "M1: subnormals in a sum of products");
    is(dot("ane-m5", BY_MATMUL, w, x, 2), 2 * tiny, "M5: subnormals in a sum of products");
    is(dot("coreai-linux", BY_CONV, w, x, 2), 2 * tiny, "Linux: subnormals in a sum of products");
}

static float width_slice(const char *rules, float v) {
    struct npu_list *l = NULL;
    struct npu_eval *e = NULL;
    struct tern_err err;
    must(npu_list_begin(&l, "probe", &err), &err);
    int y = npu_slice(l, npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", 2, 64), 3, 32, 64);
    npu_output(l, y, NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "y");
    must(npu_list_end(l, &err), &err);
    struct npu_eval_options o = {.rules = npu_rules_find(rules)};
    must(npu_eval_create(&e, l, &o, &err), &err);
    for (int i = 0; i < 128; i++) npu_eval_at(e, npu_find(l, "x"))[i] = v;
    npu_eval_run(e);
    float result = npu_eval_at(e, npu_find(l, "y"))[40];
    npu_eval_free(e);
    npu_list_free(l);
    return result;
}

// Activations rounded to int8: one step for the tensor, and only where a normed residual is read when so asked.
static float act_dot(enum npu_act act, const char *site) {
    struct npu_list *l = NULL;
    struct npu_eval *e = NULL;
    struct tern_err err;
    const float w[2] = {1, 1};
    must(npu_list_begin(&l, "probe", &err), &err);
    npu_site(l, "%s", site);
    int in = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", 2, WIDTH);
    npu_output(l, npu_conv(l, in, npu_const(l, weight("w", 2, w, false))), NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "y");
    must(npu_list_end(l, &err), &err);
    struct npu_eval_options o = {.rules = npu_rules_find("fp32"), .act = act};
    must(npu_eval_create(&e, l, &o, &err), &err);
    for (int i = 0; i < 2 * WIDTH; i++) npu_eval_at(e, npu_find(l, "x"))[i] = i < WIDTH ? 127 : 0.75f;
    npu_eval_run(e);
    float result = npu_eval_at(e, npu_find(l, "y"))[WIDTH - 1];
    npu_eval_free(e);
    npu_list_free(l);
    return result;
}

static void test_activations(void **state) {
    (void)state;
    is(act_dot(NPU_ACT_PLAIN, "l3.down"), 127.75f, "plain");
    is(act_dot(NPU_ACT_INT8, "l3.down"), 128, "rounded to a step of 1");
    is(act_dot(NPU_ACT_INT8_IN, "l3.down"), 127.75f, "the gated product stays");
    is(act_dot(NPU_ACT_INT8_IN, "l3.up"), 128, "the normed residual is rounded");
    is(act_dot(NPU_ACT_INT8_IN, "l3.conv_in.b"), 128, "the convolution's too");
}

static void test_width_slice(void **state) {
    (void)state;
    is(width_slice("ane-m1", 4094), 4094, "4094, M1");
    is(width_slice("ane-m1", 4096), INFINITY, "4096, M1");
    is(width_slice("ane-m2", -4096), -INFINITY, "-4096, M2");
    is(width_slice("ane-m5", 60000), 60000, "M5 is exact");
}

// What the probes of Apple's Linux runtime printed.
static void test_linux_probes(void **state) {
    (void)state;
    static float x[2049], w[2049];
    for (int i = 0; i < 2049; i++) x[i] = i == 0 ? 1 : 0x1p-12f, w[i] = 1;
    is(dot("coreai-linux", BY_CONV, w, x, 2049), 1.5f, "a convolution sums in float");
    is(dot("coreai-linux", BY_MATMUL, w, x, 2049), 1, "a matrix product sums in fp16");
    is(dot("coreai-linux", BY_SUM, w, x, 2049), 1.5f, "a sum over an axis is in float");
    is(apply("coreai-linux", NPU_OP_MUL, 60000, 2), INFINITY, "60000 * 2");
    float big[3] = {65504, 65504, -65504};
    is(ones_dot("coreai-linux", BY_CONV, big, 3), 65504, "no overflow inside a convolution");
    is(ones_dot("coreai-linux", BY_MATMUL, big, 3), INFINITY, "overflow inside a matrix product stays");
}

// Every kernel table on a list with every operation: the bits of plain C.
static void test_instruction_sets(void **state) {
    (void)state;
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    struct tern_err err;
    struct npu_list *l = npu_every_op(store, "every", 3);
    struct npu_test_buffers b;
    npu_test_buffers_init(&b, l);
    for (int r = 0; npu_rules_table[r].name; r++) {
        struct npu_eval *e[3] = {0};
        for (int i = 0; i < 3; i++) {
            struct npu_eval_options o = {.rules = &npu_rules_table[r], .kernels = npu_kernels_get(isas[i])};
            must(npu_eval_create(&e[i], l, &o, &err), &err);
            uint64_t seed = 77;
            for (int j = 0; j < l->n_inputs; j++) {
                const struct npu_tensor *t = &l->tensors[l->inputs[j]];
                for (int64_t k = 0; k < npu_tensor_len(t); k++)
                    npu_eval_at(e[i], l->inputs[j])[k] = f16_to_f32(f32_to_f16(3 * tiny_random_float(&seed)));
            }
            for (int run = 0; run < 2; run++) npu_eval_run(e[i]);
            for (int j = 0; i > 0 && j < l->n_outputs; j++) {
                const float *a = npu_eval_at(e[0], l->outputs[j]), *c = npu_eval_at(e[i], l->outputs[j]);
                for (int64_t k = 0; k < npu_tensor_len(&l->tensors[l->outputs[j]]); k++)
                    if (f32_bits(a[k]) != f32_bits(c[k]))
                        fail_msg("%s, %s, %s[%d]: %.9g, plain C says %.9g", npu_rules_table[r].name, isas[i],
                                 l->tensors[l->outputs[j]].name, (int)k, (double)c[k], (double)a[k]);
            }
        }
        for (int i = 0; i < 3; i++) npu_eval_free(e[i]);
    }
    npu_test_buffers_release(&b);
    npu_list_free(l);
}

// Logits of one window under fp32 rules, with scales folded in and the inputs carrying them.
static void scaled_logits(const struct npu_scales *scales, float *out, int *n) {
    struct npu_store *s = NULL;
    struct npu_list *l = NULL;
    struct npu_eval *e = NULL;
    struct prog *p = NULL;
    struct tern_err err;
    struct prog_spec spec = {.kind = PROG_WHOLE,
                             .numerics = PROG_CLASS_INT8,
                             .kv_type = OP_KV_F16,
                             .window = 32,
                             .n_out_max = -1,
                             .outputs = PROG_OUT_LOGITS};
    struct npu_lower_options o = {
        .name = "scaled", .window = 32, .bucket = 64, .n_chunks = 1, .n_frames = 32, .scales = scales};
    must(npu_store_create(&s, model, NPU_FORMAT_I8, &err), &err);
    must(prog_build(&p, model, &spec, &err), &err);
    must(npu_lower(&l, p, s, &o, &err), &err);
    struct npu_eval_options eo = {.rules = npu_rules_find("fp32")};
    must(npu_eval_create(&e, l, &eo, &err), &err);
    must(npu_eval_observe(e, true, &err), &err);
    uint64_t seed = 4;
    for (int i = 0; i < l->n_inputs; i++) {
        const struct npu_tensor *t = &l->tensors[l->inputs[i]];
        int power = 0;
        if (scales && t->role == NPU_IN_ROWS) power = scales->residual;
        if (scales && t->role == NPU_IN_K) power = scales->key[t->layer];
        if (scales && t->role == NPU_IN_V) power = scales->value[t->layer];
        if (scales && t->role == NPU_IN_FRAMES) power = scales->conv[t->layer];
        for (int64_t k = 0; k < npu_tensor_len(t); k++)
            npu_eval_at(e, l->inputs[i])[k] = ldexpf(tiny_random_float(&seed), power);
    }
    npu_eval_run(e);
    const struct npu_site *sites = npu_eval_sites(e);
    for (int i = 0; i < l->n_ops; i++) // every op that computes was seen
        if (l->ops[i].kind == NPU_OP_CONV && (sites[i].n == 0 || sites[i].max <= 0))
            fail_msg("op %d was not observed", i);
    int id = npu_find(l, "logits.0");
    *n = (int)npu_tensor_len(&l->tensors[id]);
    memcpy(out, npu_eval_at(e, id), (size_t)*n * sizeof(float));
    npu_eval_free(e);
    npu_list_free(l);
    prog_free(p);
    npu_store_free(s);
}

// Powers of two folded into weights change nothing but the places where they are carried.
static void test_scales(void **state) {
    (void)state;
    static float plain[32 * 512], scaled[32 * 512];
    static const int8_t ffn[6] = {1, -2, 1, 0, 2, -1}, conv[6] = {-2, 1, 0, 1, 0, 2}, value[6] = {0, 0, -2, 0, 1, 0},
                        key[6] = {0, 0, 2, 0, -1, 0};
    struct npu_scales s = {.residual = -1, .n_layers = 6, .ffn = ffn, .conv = conv, .value = value, .key = key};
    int n = 0, m = 0;
    scaled_logits(NULL, plain, &n);
    scaled_logits(&s, scaled, &m);
    assert_int_equal(n, m);
    float top = 0, off = 0;
    for (int i = 0; i < n; i++) {
        top = fmaxf(top, fabsf(plain[i]));
        off = fmaxf(off, fabsf(plain[i] - scaled[i]));
    }
    // The norms' constants are fp16, so their epsilon is rounded elsewhere: observed 2e-5; a wrong power gives 0.3.
    if (!(off / top < 1e-3f)) fail_msg("logits up to %g, off by %g", (double)top, (double)off);
}

static int setup(void **state) {
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    (void)state;
    model = tiny_model_create(&shape);
    return npu_store_create(&store, model, NPU_FORMAT_I8, NULL) == TERN_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    npu_store_free(store);
    tiny_model_free(model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_m1_reductions),    cmocka_unit_test(test_cliff),
        cmocka_unit_test(test_specials),         cmocka_unit_test(test_width_slice),
        cmocka_unit_test(test_linux_probes),     cmocka_unit_test(test_activations),
        cmocka_unit_test(test_instruction_sets), cmocka_unit_test(test_scales),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
