// Fidelity: how arithmetics are written, what the same arithmetic and a worse one come out as, lines and verdicts.
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "app/study/study_formats.h"

static struct tern_engine *text;
static struct prompt_set set;
static struct tern_engine_options options;

static int setup(void **state) {
    struct tern_err err = {0};
    (void)state;
    tern_engine_options_default(&options);
    options.model_path = TEST_MODELS "/pico.gguf";
    options.n_threads = 2;
    struct tern_engine_options o = options;
    o.unit = "null";
    if (tern_engine_open(&text, &o, &err) != TERN_OK) return -1;
    if (prompt_set_read(&set, TEST_DATA "/pico/prompts.jsonl", &err) != TERN_OK) return -1;
    prompt_set_thin(&set, 1);
    if (env_get("TERN_TEST_SHORT")) set.n = 2;
    return 0;
}
static int teardown(void **state) {
    (void)state;
    prompt_set_release(&set);
    tern_engine_close(text);
    return 0;
}

static void test_parse(void **state) {
    (void)state;
    struct side_spec s;
    struct tern_err err;
    assert_int_equal(side_parse(&s, "npu:ane-m1@/tmp/a/scales.txt/fp32,kv=f32,window=32", &err), TERN_OK);
    assert_string_equal(s.unit, "npu:ane-m1@/tmp/a/scales.txt");
    assert_int_equal(s.numerics, TERN_CLASS_FP32);
    assert_int_equal(s.kv, OP_KV_F32);
    assert_int_equal(s.window, 32);
    assert_int_equal(side_parse(&s, "cpu,weights=q4_0,model=a/b.gguf,plan=whole", &err), TERN_OK);
    assert_string_equal(s.unit, "cpu");
    assert_int_equal(s.numerics, TERN_CLASS_INT8);
    assert_string_equal(s.weights, "q4_0");
    assert_string_equal(s.model, "a/b.gguf");
    assert_string_equal(s.plan, "whole");
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "UNIT/CLASS"},
               {"/fp32", "UNIT/CLASS"},
               {"cpu/fp16", "fp32, int8 and bf16"},
               {"cpu/", "no class ''"},
               {"cpu/int8,weights=int5", "lut4"},
               {"cpu/int8,weights=lut4", "cpu/fp32,weights=lut4"},
               {"cpu/int8,kv=f8", "kv=f16|q8|f32"},
               {"cpu/int8,window=0", "window=1"},
               {"cpu/int8,window=99999999999999999999", "window=1"},
               {"cpu/int8,", "'='"},
               {"cpu/int8,model=", "model=FILE"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_not_equal(side_parse(&s, bad[i].text, &err), TERN_OK);
        if (!strstr(err.message, bad[i].says)) fail_msg("'%s': %s", bad[i].text, err.message);
    }
    char longer[2 * SIDE_PATH_MAX];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_not_equal(side_parse(&s, longer, &err), TERN_OK);
}

static struct fidelity_line compare(struct fidelity *f, const char *b_text, struct fidelity_verdict *v) {
    struct side_spec spec;
    struct side b;
    struct tern_err err = {0};
    struct fidelity_line all;
    if (side_parse(&spec, b_text, &err) != TERN_OK || side_open(&b, &spec, &options, f->n_ctx, &err) != TERN_OK ||
        fidelity_compare(f, &b, &err) != TERN_OK)
        fail_msg("%s: %s", b_text, err.message);
    struct fidelity_bounds bounds = FIDELITY_BOUNDS;
    *v = fidelity_judge(f, &set, &bounds);
    assert_true(fidelity_line_make(f, &set, -1, -1, &all));
    side_close(&b);
    return all;
}

static void reference_open(struct fidelity *f, int answer_max) {
    struct side_spec spec;
    struct tern_err err = {0};
    assert_int_equal(side_parse(&spec, "cpu/fp32,kv=f32", &err), TERN_OK);
    if (fidelity_open(f, &spec, &options, text, &set, 1024, answer_max, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(f->n_answers, set.n);
}

static void test_compare(void **state) {
    (void)state;
    struct fidelity f;
    struct fidelity_verdict v;
    reference_open(&f, 24);
    // The same class is the same bits, whatever the window.
    struct fidelity_line same = compare(&f, "cpu/fp32,kv=f32,window=7", &v);
    assert_true(same.n > 5 * 8 && same.top1.mid == 1 && same.kl.mid == 0 && same.ppl_a == same.ppl_b && v.adopt);
    assert_true(same.top1.lo < 1); // so few tokens are no proof
    // Lines by category and by band hold the same positions.
    int by_category = 0, by_band = 0;
    struct fidelity_line line;
    for (int i = 0; i < set.n_categories; i++)
        if (fidelity_line_make(&f, &set, i, -1, &line)) by_category += line.n;
    for (int i = 0; i < FIDELITY_BANDS; i++)
        if (fidelity_line_make(&f, &set, -1, i, &line)) by_band += line.n;
    assert_int_equal(by_category, same.n);
    assert_int_equal(by_band, same.n);
    // Coarser weights lie farther away: 8 bits, 4 bits in groups, a palette, 4 bits for a whole output channel.
    struct fidelity_line q8 = compare(&f, "cpu/fp32,weights=q8_0", &v);
    assert_true(v.adopt);
    struct fidelity_line group = compare(&f, "cpu/fp32,weights=int4g32", &v);
    struct fidelity_line channel = compare(&f, "cpu/fp32,weights=int4c", &v);
    assert_false(v.adopt);
    assert_non_null(strstr(v.why, "top-1"));
    struct fidelity_line palette = compare(&f, "cpu/fp32,weights=lut4", &v);
    struct fidelity_line mlx = compare(&f, "cpu/fp32,weights=mlx8", &v);
    assert_true(q8.kl.mid < group.kl.mid && group.kl.mid < channel.kl.mid && mlx.kl.mid < group.kl.mid);
    assert_true(palette.kl.mid > q8.kl.mid && palette.kl.mid < channel.kl.mid);
    fidelity_close(&f);
}

static void test_refused(void **state) {
    (void)state;
    struct side_spec spec;
    struct side b;
    struct tern_err err = {0};
    static const struct {
        const char *text, *says;
    } bad[] = {{"cpu/int8,weights=q4_k", "rows of 384 values"},
               {"cpu/int8,plan=nowhere", "nowhere"},
               {"tpu/int8", "tpu"},
               {"npu:fp32/bf16", "no class bf16"},
               {"npu:fp32@/nowhere/scales/int8", "/nowhere/scales"},
               {"npu:fp32+int5/int8", "w8a8in"},
               {"cpu/int8,model=/nowhere.gguf", "/nowhere.gguf"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(side_parse(&spec, bad[i].text, &err), TERN_OK);
        assert_int_not_equal(side_open(&b, &spec, &options, 256, &err), TERN_OK);
        if (!strstr(err.message, bad[i].says)) fail_msg("'%s': %s", bad[i].text, err.message);
    }
}

// Where a format stands in the name of each kind of unit, and which are values only.
static void test_formats(void **state) {
    (void)state;
    static struct formats t;
    struct tern_err err = {0};
    static const char *const want[] = {
        "npu:ane-m1@/tmp/s/int8",
        "npu:ane-m1+int4@/tmp/s/int8",
        "npu:ane-m1@/tmp/s/fp32,weights=int4g32",
        "npu:ane-m1@/tmp/s/fp32,weights=lut4",
        "npu:ane-m1+w8a8@/tmp/s/int8",
        "npu:ane-m1+w8a8in@/tmp/s/int8",
        "npu:openvino:NPU/int8",
        "npu:openvino+int4:NPU/int8",
        "npu:openvino:NPU/fp32,weights=int4g32",
        "npu:openvino:NPU/fp32,weights=lut4",
        "npu:openvino+w8a8:NPU/int8",
        "npu:openvino+w8a8in:NPU/int8",
        "cpu/fp32,weights=int8c",
        "cpu/fp32,weights=int4c",
        "cpu/int8,weights=q4_0",
        "cpu/fp32,weights=lut4",
        "cpu/int8,weights=int8c",
    };
    assert_int_equal(formats_parse(&t, "npu:ane-m1@/tmp/s,npu:openvino:NPU,cpu", &err), TERN_OK);
    assert_int_equal(t.n, ARRAY_LEN(want));
    int n_values = 0;
    for (int i = 0; i < t.n; i++) {
        assert_string_equal(t.rows[i].spec.text, want[i]);
        n_values += t.rows[i].as_values;
    }
    assert_int_equal(n_values, 6);
    assert_int_equal(formats_parse(&t, "npu", &err), TERN_OK);
    assert_string_equal(t.rows[1].spec.text, "npu:+int4/int8");
    static const char *const bad[] = {"", "cpu,", ",cpu", "cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) assert_int_equal(formats_parse(&t, bad[i], &err), TERN_LIMIT);
}

// A verdict from cells alone: bands count, few tokens do not, and no finite logits no agreement.
static void test_judge(void **state) {
    (void)state;
    struct fidelity_answer answers[4] = {0};
    struct fidelity f = {.answers = answers, .n_answers = 4};
    struct fidelity_bounds bounds = FIDELITY_BOUNDS;
    for (int i = 0; i < 4; i++) {
        answers[i].category = i % 2;
        answers[i].cells[0] = (struct fidelity_cell){.n = 1000, .n_equal = 1000, .nll_a = 300, .nll_b = 300};
    }
    assert_true(fidelity_judge(&f, &set, &bounds).adopt);
    answers[0].cells[3] = (struct fidelity_cell){.n = 50, .n_equal = 30}; // a band of too few tokens
    assert_true(fidelity_judge(&f, &set, &bounds).adopt);
    answers[0].cells[3] = (struct fidelity_cell){.n = 150, .n_equal = 140};
    struct fidelity_verdict v = fidelity_judge(&f, &set, &bounds);
    assert_false(v.adopt);
    assert_string_equal(v.least.name, "at 256-511");
    assert_non_null(strstr(v.why, "at 256-511"));
    answers[0].cells[3] = (struct fidelity_cell){0};
    answers[1].cells[0].n_equal = 900; // the second category; together 97.5 %
    v = fidelity_judge(&f, &set, &bounds);
    assert_false(v.adopt);
    assert_true(v.unsure);
    answers[1].cells[0].n_equal = 1000;
    answers[2].cells[0].n_bad = 1;
    v = fidelity_judge(&f, &set, &bounds);
    assert_non_null(strstr(v.why, "1 positions without finite logits"));
    answers[2].cells[0].n_bad = 0;
    answers[2].cells[0].nll_b = 400;
    assert_non_null(strstr(fidelity_judge(&f, &set, &bounds).why, "perplexity"));
    answers[2].cells[0].nll_b = 300;
    answers[2].cells[0].kl = 100;
    assert_non_null(strstr(fidelity_judge(&f, &set, &bounds).why, "KL 0.025"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),   cmocka_unit_test(test_compare), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_formats), cmocka_unit_test(test_judge),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
