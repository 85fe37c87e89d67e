// SmolLM2-135M-Instruct (tools/fetch_smollm2.sh), when its file is there: prompt ids against the `tokenizers`
// package, 32 greedy tokens of ten prompts against transformers in float32 on the dequantised weights
// (test/data/smollm2). fp32 class: every token. int8 class: every token whose gap between first and second logit is
// at least 4 times the class's logit error (root mean square difference to the fp32 class over the 64 largest of each
// prompt's last row, itself bounded); as in test_pico_int8.c the sequence goes on with the reference's token behind a
// near tie.
#include "base/base.h"
#include "golden_file.h"
#include "model_runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define FILE_NAME "SmolLM2-135M-Instruct.Q4_1.gguf"
#define EXIT_SKIPPED 77    // what Meson takes for "skipped"
#define FP32_GAP_MIN 0.005 // float32 sums in another order
#define FP32_COMPARED_MIN 0.99
#define TOP 64
#define INT8_GAP_ERRORS 4.0
#define INT8_ERROR_MAX 0.35 // 0.28 measured: this model's activations have large outliers
#define INT8_COMPARED_MIN 0.6
#define INT8_EQUAL_MIN 0.95 // of all tokens, near ties included

static struct golden *golden;
static char model_path[512];
static float *last_rows[GOLDEN_PROMPTS_MAX]; // fp32 logits of each prompt's last row

static bool model_find(void) {
    const char *folder = env_get("TERN_TEST_MODELS");
    struct os_stat st;
    snprintf(model_path, sizeof model_path, "%s/%s", folder ? folder : "build/models", FILE_NAME);
    return os_stat_get(&st, model_path);
}

static void runner_open_class(struct runner *r, enum prog_class numerics) {
    const struct runner_options o = {.path = model_path,
                                     .numerics = numerics,
                                     .kv_type = numerics == PROG_CLASS_FP32 ? OP_KV_F32 : OP_KV_F16,
                                     .window = 256,
                                     .n_ctx = 512,
                                     .n_threads = 2};
    runner_open(r, &o);
}

// Runs a prompt and its greedy tokens: row k of the logits chooses token k.
static void prompt_run(struct runner *r, const struct golden_prompt *p) {
    int32_t ids[GOLDEN_IDS_MAX + GOLDEN_GREEDY_MAX];
    memcpy(ids, p->ids, (size_t)p->n_ids * sizeof *ids);
    memcpy(ids + p->n_ids, p->greedy, (size_t)p->n_greedy * sizeof *ids);
    runner_restart(r);
    runner_step(r, ids, p->n_ids + p->n_greedy - 1, p->n_greedy);
}

static int prompt_compare(struct runner *r, int i, double gap_min, int *n_same) {
    const struct golden_prompt *p = &golden->prompts[i];
    int n_compared = 0;
    for (int k = 0; k < p->n_greedy; k++) {
        float max;
        int32_t id = op_argmax(runner_logits(r, k), r->model->hyper.n_vocab_used, &max);
        *n_same += id == p->greedy[k];
        if (p->gaps[k] < gap_min) continue;
        n_compared++;
        if (id != p->greedy[k])
            fail_msg("prompt %d: greedy token %d is %d, expected %d (gap %.3g)", i, k, id, p->greedy[k], p->gaps[k]);
    }
    return n_compared;
}

static void test_fp32(void **state) {
    (void)state;
    struct runner r;
    int n_compared = 0, n_same = 0, n = 0;
    runner_open_class(&r, PROG_CLASS_FP32);
    for (int i = 0; i < golden->n_prompts; i++) {
        prompt_run(&r, &golden->prompts[i]);
        last_rows[i] = mem_dup(runner_logits(&r, 0), (size_t)r.model->hyper.n_vocab * sizeof(float));
        assert_non_null(last_rows[i]);
        n_compared += prompt_compare(&r, i, FP32_GAP_MIN, &n_same);
        n += golden->prompts[i].n_greedy;
    }
    print_message("%s: %d of %d greedy tokens compared, %d equal\n", r.caps.isa, n_compared, n, n_same);
    assert_true(n_compared >= (int)(FP32_COMPARED_MIN * n));
    runner_close(&r);
}

// The 64 largest of n floats, by falling size.
static void top_find(const float *x, int n, int top[TOP]) {
    int n_top = 0;
    for (int i = 0; i < n; i++) {
        if (n_top == TOP && x[i] <= x[top[TOP - 1]]) continue;
        int at = n_top < TOP ? n_top++ : TOP - 1;
        for (; at > 0 && x[top[at - 1]] < x[i]; at--) top[at] = top[at - 1];
        top[at] = i;
    }
}

static double class_error(struct runner *r) {
    double sum = 0;
    for (int i = 0; i < golden->n_prompts; i++) {
        int top[TOP] = {0};
        top_find(last_rows[i], r->model->hyper.n_vocab, top);
        prompt_run(r, &golden->prompts[i]);
        double before = sum;
        for (int k = 0; k < TOP; k++) {
            double d = (double)runner_logits(r, 0)[top[k]] - (double)last_rows[i][top[k]];
            sum += d * d;
        }
        print_message("prompt %d: logit error %.3f\n", i, sqrt((sum - before) / TOP));
    }
    return sqrt(sum / golden->n_prompts / TOP);
}

static void test_int8(void **state) {
    (void)state;
    struct runner r;
    int n_compared = 0, n_same = 0, n = 0;
    runner_open_class(&r, PROG_CLASS_INT8);
    double error = class_error(&r);
    for (int i = 0; i < golden->n_prompts; i++) {
        prompt_run(&r, &golden->prompts[i]);
        n_compared += prompt_compare(&r, i, INT8_GAP_ERRORS * error, &n_same);
        n += golden->prompts[i].n_greedy;
    }
    print_message("%s: logit error %.3f, %d of %d greedy tokens compared, %d equal\n", r.caps.isa, error, n_compared, n,
                  n_same);
    assert_true(error <= INT8_ERROR_MAX);
    assert_true(n_compared >= (int)(INT8_COMPARED_MIN * n));
    assert_true(n_same >= (int)(INT8_EQUAL_MIN * n));
    runner_close(&r);
}

static void test_tokenizer(void **state) {
    (void)state;
    struct tern_engine_options o;
    struct tern_engine *e;
    struct tern_err err = {0};
    tern_engine_options_default(&o);
    o.model_path = model_path;
    o.unit = "null";
    if (tern_engine_open(&e, &o, &err) != TERN_OK) fail_msg("%s", err.message);
    for (int i = 0; i < golden->n_prompts; i++) {
        const struct golden_prompt *p = &golden->prompts[i];
        int32_t ids[GOLDEN_IDS_MAX];
        struct tern_str text = {p->text.data, p->text.len};
        assert_int_equal(tern_tokenize(e, text, false, true, ids, GOLDEN_IDS_MAX, &err), p->n_ids);
        assert_memory_equal(ids, p->ids, (size_t)p->n_ids * sizeof *ids);
    }
    tern_engine_close(e);
}

int main(void) {
    if (!model_find()) {
        printf("skipped: no %s; tools/fetch_smollm2.sh brings it\n", model_path);
        return EXIT_SKIPPED;
    }
    golden = golden_read(TEST_DATA "/smollm2/greedy.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer),
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_int8),
    };
    int failed = cmocka_run_group_tests_name("SmolLM2-135M-Instruct", tests, NULL, NULL);
    for (int i = 0; i < golden->n_prompts; i++) mem_free(last_rows[i]);
    golden_free(golden);
    return failed;
}
