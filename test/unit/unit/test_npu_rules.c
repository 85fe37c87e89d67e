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

// Sum of w[i] * x[i] by one operation of a list; every column gets the same, and every run gives the same bits.
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
    float result = 0;
    for (int run = 0; run < 2; run++) {
        npu_eval_run(e);
        const float *y_at = npu_eval_at(e, npu_find(l, "y"));
        if (run == 0) result = y_at[0];
        for (int i = 0; i < WIDTH; i++)
            if (f32_bits(y_at[i]) != f32_bits(result))
                fail_msg("%s, column %d, run %d: %.9g, elsewhere %.9g", rules, i, run, (double)y_at[i], (double)result);
    }
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
    is(ones_dot("ane-m1", BY_SUM, x, 2049), 2048, "2049 ones, M1: nearest even");
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
    // 2 * 16376 + 7 and + 7.75: the cliff of M2 lies at about 32,759, M1's at 32,760; what passes is stored as 32,752.
    float w[2] = {2, 1}, below[2] = {16376, 7}, between[2] = {16376, 7.75f}, beyond[2] = {16376, 8};
    for (enum probe by = BY_CONV; by <= BY_MATMUL; by++) {
        for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
            if (strstr(sets[i], "tile4")) continue; // knows no 7 beside 32,752
            is(dot(sets[i], by, w, below, 2), 32752, "32759 passes");
            is(dot(sets[i], by, w, beyond, 2), INFINITY, "32760 does not");
        }
        is(dot("ane-m1", by, w, between, 2), 32752, "32759.75, M1");
        is(dot("ane-m2", by, w, between, 2), INFINITY, "32759.75, M2");
    }
    // What ONNX Runtime's CPU gave for the same sums: no cliff, no narrow tiles.
    static float triples[48];
    for (int i = 0; i < 48; i++) triples[i] = i % 3 == 0 ? 30000 : i % 3 == 1 ? -30000 : 1;
    is(ones_dot("coreai-linux", BY_CONV, triples, 48), 16, "sixteen survivors");
    is(ones_dot("coreai-linux", BY_CONV, x, 33), 32992, "33 times 1000");
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
    const float low[2] = {0x1p-10f, 0}, lost[2] = {0x1p-20f, 0}, neg[2] = {-1, 0}, zero[2] = {0, 0};
    for (enum probe by = BY_CONV; by <= BY_MATMUL; by++) {
        is(dot("ane-m1", by, x, w, 2), 0, "M1: subnormal weights");
        is(dot("ane-m1", by, low, low, 2), 0, "M1: a subnormal result of normal operands");
        is(dot("ane-m5", by, low, low, 2), 0x1p-20f, "M5: the same");
        is(dot("ane-m5", by, lost, w, 2), 0x1p-20f, "M5: subnormal weights");
        for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
            const float nan_in[2] = {NAN, 0};
            is(dot(sets[i], by, w, nan_in, 2), INFINITY, "NaN into a sum of products");
            is(dot(sets[i], by, neg, zero, 2), 0, "-1 * 0 is +0");
        }
    }
}

// int8 weights are brought to fp16 before they are multiplied: the same bits as fp16 weights of those values.
static void test_dequantised(void **state) {
    (void)state;
    static const char *const sets[] = {"coreai-linux", "ane-m1", "ane-m1:tile4", "ane-m2:prod16", "ane-m5"};
    struct tern_err err;
    enum { OUT = 4, IN = 96 };
    static int8_t q[OUT * IN];
    static float half[OUT * IN];
    const float scale[OUT] = {0.0131f, 0.0007f, 0.21f, 3.7e-6f}; // the last one's products are subnormal
    uint64_t seed = 5;
    for (int i = 0; i < OUT * IN; i++) {
        q[i] = (int8_t)(127 * tiny_random_float(&seed));
        half[i] = f16_to_f32(f32_to_f16((float)q[i] * f16_to_f32(f32_to_f16(scale[i / IN]))));
    }
    const struct npu_weight *wq = NULL, *wh = NULL;
    const int32_t shape[] = {OUT, IN, 1, 1};
    must(npu_store_values(store, "dq.int8", 4, shape, scale, q, &wq, &err), &err);
    must(npu_store_values(store, "dq.half", 4, shape, half, NULL, &wh, &err), &err);
    for (size_t r = 0; r < ARRAY_LEN(sets); r++) {
        struct npu_list *l = NULL;
        struct npu_eval *e = NULL;
        must(npu_list_begin(&l, "probe", &err), &err);
        int in = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", IN, WIDTH);
        npu_output(l, npu_conv(l, in, npu_const(l, wq)), NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "a");
        npu_output(l, npu_conv(l, in, npu_const(l, wh)), NPU_OUT_HIDDEN, NPU_NONE, NPU_NONE, "b");
        must(npu_list_end(l, &err), &err);
        struct npu_eval_options o = {.rules = npu_rules_find(sets[r])};
        assert_non_null(o.rules);
        must(npu_eval_create(&e, l, &o, &err), &err);
        for (int i = 0; i < IN * WIDTH; i++)
            npu_eval_at(e, npu_find(l, "x"))[i] = f16_to_f32(f32_to_f16(tiny_random_float(&seed)));
        npu_eval_run(e);
        for (int i = 0; i < OUT * WIDTH; i++)
            is(npu_eval_at(e, npu_find(l, "a"))[i], npu_eval_at(e, npu_find(l, "b"))[i], sets[r]);
        npu_eval_free(e);
        npu_list_free(l);
    }
}

// Root mean square error over root mean square of Gaussian sums of products of k terms, against double.
static double gauss_error(const char *rules, enum probe by, int k) {
    enum { OUT = 16, COLS = 64 };
    struct npu_list *l = NULL;
    struct npu_eval *e = NULL;
    struct tern_err err;
    char name[NPU_NAME_MAX];
    const struct npu_weight *w = NULL;
    float *values = mem_calloc((size_t)(OUT + COLS) * (size_t)k, sizeof *values), *x = values + OUT * k;
    uint64_t seed = 11 + (uint64_t)k;
    assert_non_null(values);
    for (int i = 0; i < (OUT + COLS) * k; i++) {
        float sum = 0; // of twelve even ones: close to Gaussian
        for (int j = 0; j < 12; j++) sum += tiny_random_float(&seed);
        float column = i < OUT * k ? 0.02f : exp2f((float)((i - OUT * k) % COLS) / COLS); // every place in an octave
        values[i] = f16_to_f32(f32_to_f16(sum * 0.5f * column));
    }
    (void)snprintf(name, sizeof name, "gauss.%d", k);
    must(npu_store_values(store, name, 4, (const int32_t[]){OUT, k, 1, 1}, values, NULL, &w, &err), &err);
    must(npu_list_begin(&l, "probe", &err), &err);
    int in = npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", k, COLS), y = 0;
    if (by == BY_CONV) {
        y = npu_conv(l, in, npu_const(l, w));
    } else {
        int a = npu_input(l, NPU_IN_ROWS, NPU_NONE, 1, "a", 3, (const int32_t[]){1, OUT, k});
        y = npu_matmul(l, a, npu_reshape(l, in, 3, (const int32_t[]){1, k, COLS}));
    }
    npu_output(l, y, NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "y");
    must(npu_list_end(l, &err), &err);
    struct npu_eval_options o = {.rules = npu_rules_find(rules)};
    must(npu_eval_create(&e, l, &o, &err), &err);
    memcpy(npu_eval_at(e, npu_find(l, "x")), x, (size_t)COLS * (size_t)k * sizeof *x);
    if (by == BY_MATMUL) memcpy(npu_eval_at(e, npu_find(l, "a")), values, (size_t)OUT * (size_t)k * sizeof *x);
    npu_eval_run(e);
    double off = 0, all = 0;
    for (int i = 0; i < OUT * COLS; i++) {
        double sum = 0;
        for (int j = 0; j < k; j++) sum += (double)values[i / COLS * k + j] * (double)x[j * COLS + i % COLS];
        double d = (double)npu_eval_at(e, npu_find(l, "y"))[i] - sum;
        off += d * d;
        all += sum * sum;
    }
    npu_eval_free(e);
    npu_list_free(l);
    mem_free(values);
    return sqrt(off / all);
}

// The published errors of each reducer: wide 2.05e-4, fp16 products 3.0e-4, tiles of four 4.0e-4 to 4.5e-4.
static void test_reducers(void **state) {
    (void)state;
    static const struct {
        const char *rules;
        double lo, hi;
    } bounds[] = {{"ane-m1", 1.9e-4, 2.4e-4}, {"ane-m1:prod16", 2.8e-4, 3.2e-4}, {"ane-m1:tile4", 3.9e-4, 4.6e-4}};
    static const int depths[] = {1024, 2048, 5632};
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
        for (size_t j = 0; j < ARRAY_LEN(depths); j++)
            for (enum probe by = BY_CONV; by <= BY_MATMUL; by++) {
                double e = gauss_error(bounds[i].rules, by, depths[j]);
                if (!(e > bounds[i].lo && e < bounds[i].hi))
                    fail_msg("%s, %d terms, %s: %.3g", bounds[i].rules, depths[j], by == BY_CONV ? "conv" : "matmul",
                             e);
            }
}

// [32, 64) of an axis that has 64 places: 3 the width, 1 the channels; begin 0: the first 32.
static float cut(const char *rules, float v, int axis, int begin) {
    struct npu_list *l = NULL;
    struct npu_eval *e = NULL;
    struct tern_err err;
    must(npu_list_begin(&l, "probe", &err), &err);
    int y = npu_slice(l, npu_input4(l, NPU_IN_ROWS, NPU_NONE, "x", 64, 64), axis, begin, begin + 32);
    npu_output(l, y, NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "y");
    must(npu_list_end(l, &err), &err);
    struct npu_eval_options o = {.rules = npu_rules_find(rules)};
    must(npu_eval_create(&e, l, &o, &err), &err);
    for (int i = 0; i < 64 * 64; i++) npu_eval_at(e, npu_find(l, "x"))[i] = v;
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
    is(cut("ane-m1", 4094, 3, 32), 4094, "4094, M1");
    is(cut("ane-m1", 4096, 3, 32), INFINITY, "4096, M1");
    is(cut("ane-m2", 4094, 3, 32), 4094, "4094, M2");
    is(cut("ane-m2", -4096, 3, 32), -INFINITY, "-4096, M2");
    is(cut("ane-m5", 60000, 3, 32), 60000, "M5 is exact");
    is(cut("ane-m1", 60000, 3, 0), 60000, "without an offset");
    is(cut("ane-m1", 60000, 1, 32), 60000, "channels");
}

// The strictest published dimensions: a list beyond them is refused by number, one at them is not.
static enum tern_status shaped(int rank, const int32_t *shape, bool argmax, struct tern_err *err) {
    struct npu_list *l = NULL;
    must(npu_list_begin(&l, "shaped", err), err);
    int x = npu_input(l, NPU_IN_ROWS, NPU_NONE, NPU_NONE, "x", rank, shape);
    int y = argmax ? npu_reduce(l, NPU_OP_ARGMAX, x, 1) : npu_binary(l, NPU_OP_ADD, x, x);
    npu_output(l, y, NPU_OUT_ROWS, NPU_NONE, NPU_NONE, "y");
    enum tern_status status = npu_list_end(l, err);
    npu_list_free(l);
    return status;
}

static void test_dimensions(void **state) {
    (void)state;
    static const struct {
        int32_t shape[4];
        bool argmax, fits;
        const char *says;
    } cases[] = {{{1, 1, 1, 16384}, false, true, ""},  {{1, 1, 1, 16416}, false, false, "16384"},
                 {{1, 1, 16384, 32}, false, true, ""}, {{1, 1, 16385, 32}, false, false, "16384"},
                 {{1, 65536, 1, 32}, false, true, ""}, {{1, 65537, 1, 32}, false, false, "65536"},
                 {{1, 2048, 1, 32}, true, true, ""},   {{1, 2049, 1, 32}, true, false, "2048"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tern_err err = {0};
        enum tern_status status = shaped(4, cases[i].shape, cases[i].argmax, &err);
        if ((status == TERN_OK) != cases[i].fits || !strstr(err.message, cases[i].says))
            fail_msg("case %d: %s", (int)i, err.message);
    }
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
        cmocka_unit_test(test_m1_reductions), cmocka_unit_test(test_cliff),
        cmocka_unit_test(test_specials),      cmocka_unit_test(test_width_slice),
        cmocka_unit_test(test_linux_probes),  cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_dequantised),   cmocka_unit_test(test_reducers),
        cmocka_unit_test(test_activations),   cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_scales),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
