// SmolLM2-135M-Instruct (tools/fetch_smollm2.sh), when its file is there: prompt ids against the `tokenizers` package, 32
// greedy tokens of ten prompts against transformers in float32 on the dequantised weights (test/data/smollm2). fp32
// class: every token. int8 class: every token whose gap between first and second logit is clear of the class's error;
// as in test_pico_int8.c the sequence goes on with the reference's token behind a near tie.
#include "base/base.h"
#include "golden_file.h"
#include "model_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define FILE_NAME "SmolLM2-135M-Instruct.Q4_1.gguf"
#define EXIT_SKIPPED 77    // what Meson takes for "skipped"
#define FP32_GAP_MIN 0.005 // float32 sums in another order
#define INT8_GAP_MIN 0.6   // four times a logit error of 0.15
#define INT8_COMPARED_MIN 0.7

static struct golden *golden;
static char model_path[512];

static bool model_find(void) {
    const char *folder = env_get("TERN_TEST_MODELS");
    struct os_stat st;
    snprintf(model_path, sizeof model_path, "%s/%s", folder ? folder : "build/models", FILE_NAME);
    return os_stat_get(&st, model_path);
}

static void greedy_compare(enum prog_class numerics, enum op_kv_type kv_type, double gap_min, double compared_min) {
    const struct runner_options o = {
        .path = model_path, .numerics = numerics, .kv_type = kv_type, .window = 256, .n_ctx = 512, .n_threads = 2};
    struct runner r;
    int n_compared = 0, n_same = 0, n = 0;
    runner_open(&r, &o);
    for (int i = 0; i < golden->n_prompts; i++) {
        const struct golden_prompt *p = &golden->prompts[i];
        int32_t ids[GOLDEN_IDS_MAX + GOLDEN_GREEDY_MAX];
        memcpy(ids, p->ids, (size_t)p->n_ids * sizeof *ids);
        memcpy(ids + p->n_ids, p->greedy, (size_t)p->n_greedy * sizeof *ids);
        runner_restart(&r);
        runner_step(&r, ids, p->n_ids + p->n_greedy - 1, p->n_greedy);
        for (int k = 0; k < p->n_greedy; k++, n++) {
            float max;
            int32_t id = op_argmax(runner_logits(&r, k), r.model->hyper.n_vocab_used, &max);
            n_same += id == p->greedy[k];
            if (p->gaps[k] < gap_min) continue;
            n_compared++;
            if (id != p->greedy[k])
                fail_msg("prompt %d: greedy token %d is %d, expected %d (gap %.3g)", i, k, id, p->greedy[k],
                         p->gaps[k]);
        }
    }
    print_message("%s: %d of %d greedy tokens compared, %d equal\n", r.caps.isa, n_compared, n, n_same);
    assert_true(n_compared >= (int)(compared_min * n));
    runner_close(&r);
}

static void test_fp32(void **state) {
    (void)state;
    greedy_compare(PROG_CLASS_FP32, OP_KV_F32, FP32_GAP_MIN, 0.99);
}

static void test_int8(void **state) {
    (void)state;
    greedy_compare(PROG_CLASS_INT8, OP_KV_F16, INT8_GAP_MIN, INT8_COMPARED_MIN);
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
    golden_free(golden);
    return failed;
}
