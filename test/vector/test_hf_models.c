// Small random models of each family, from both kinds of file, against transformers in float32 (test/data/hf): logits
// of every row and the residual after each layer, for each instruction set, in one window and in chunks of 7 rows.
#include "base/base.h"
#include "model_runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define ERROR_MAX 1e-5 // 1e-4 is promised, 1e-6 measured; largest difference, relative to the largest value compared

struct expect {
    struct buf file;
    int n_rows, n_vocab, n_layers, n_embd;
    const int32_t *ids;
    const float *logits, *residuals; // [n_rows][n_vocab]; of the last row: [n_layers][n_embd]
};

static void expect_read(struct expect *e, const char *name) {
    char path[512];
    snprintf(path, sizeof path, TEST_DATA "/hf/%s/expect.bin", name);
    runner_file_read(&e->file, path);
    assert_true(e->file.len >= 20 && memcmp(e->file.data, "TVEC", 4) == 0);
    const uint8_t *at = (const uint8_t *)e->file.data;
    e->n_rows = (int)load_u32(at + 4);
    e->n_vocab = (int)load_u32(at + 8);
    e->n_layers = (int)load_u32(at + 12);
    e->n_embd = (int)load_u32(at + 16);
    size_t n_ids = (size_t)e->n_rows, n_logits = n_ids * (size_t)e->n_vocab,
           n_residuals = (size_t)e->n_layers * (size_t)e->n_embd;
    assert_int_equal(e->file.len, 20 + 4 * (n_ids + n_logits + n_residuals));
    e->ids = (const int32_t *)(const void *)(at + 20);
    e->logits = (const float *)(const void *)(at + 20 + 4 * n_ids);
    e->residuals = e->logits + n_logits;
}

static double error_of(const float *got, const float *want, size_t n, double *largest) {
    double error = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        error = d > error || isnan(d) ? d : error;
        *largest = fmax(*largest, fabs((double)want[i]));
    }
    return error;
}

static void rows_compare(struct runner *r, const struct expect *e, int chunk, const char *what) {
    double logit_error = 0, logit_max = 0;
    size_t n_vocab = (size_t)e->n_vocab, n_embd = (size_t)e->n_embd;
    runner_restart(r);
    for (int at = 0, n = 0; at < e->n_rows; at += n) {
        n = MIN(chunk, e->n_rows - at);
        runner_step(r, e->ids + at, n, n);
        double error = error_of(r->logits, e->logits + (size_t)at * n_vocab, (size_t)n * n_vocab, &logit_max);
        logit_error = error > logit_error || isnan(error) ? error : logit_error;
    }
    int last = (e->n_rows - 1) % chunk;
    double worst = 0;
    for (int i = 0; i < e->n_layers; i++) {
        double max = 0;
        double error = error_of(runner_residual(r, last, i), e->residuals + (size_t)i * n_embd, n_embd, &max) / max;
        worst = error > worst || isnan(error) ? error : worst;
        if (!(error <= ERROR_MAX)) fail_msg("%s: residual after layer %d is off by %.3g", what, i, error);
    }
    print_message("%-42s logits %.2e, residuals %.2e\n", what, logit_error / logit_max, worst);
    if (!(logit_error / logit_max <= ERROR_MAX)) fail_msg("%s: logits are off by %.3g", what, logit_error / logit_max);
}

static void model_compare(const char *name, const char *file) {
    struct expect e;
    char path[512], seen[32] = "", what[128];
    expect_read(&e, name);
    snprintf(path, sizeof path, TEST_DATA "/hf/%s%s", name, file);
    for (int i = 0; runner_isas[i]; i++) {
        struct runner r;
        struct runner_options o = {.path = path,
                                   .isa = runner_isas[i],
                                   .numerics = PROG_CLASS_FP32,
                                   .kv_type = OP_KV_F32,
                                   .window = e.n_rows,
                                   .n_ctx = e.n_rows,
                                   .n_threads = 1 + i % 2,
                                   .residuals = true};
        runner_open(&r, &o);
        assert_int_equal(r.model->hyper.n_vocab, e.n_vocab);
        assert_int_equal(r.model->hyper.n_layers, e.n_layers);
        assert_int_equal(r.model->hyper.n_embd, e.n_embd);
        bool again = strcmp(seen, r.caps.isa) == 0;
        snprintf(seen, sizeof seen, "%s", r.caps.isa);
        snprintf(what, sizeof what, "%s%s, %s", name, file, seen);
        if (!again) rows_compare(&r, &e, e.n_rows, what);
        snprintf(what, sizeof what, "%s%s, %s, rows of 7", name, file, seen);
        if (!again) rows_compare(&r, &e, 7, what);
        runner_close(&r);
    }
    buf_release(&e.file);
}

#define MODEL_TESTS(id, name)                      \
    static void test_##id##_folder(void **state) { \
        (void)state;                               \
        model_compare(name, "");                   \
    }                                              \
    static void test_##id##_gguf(void **state) {   \
        (void)state;                               \
        model_compare(name, "/model.gguf");        \
    }
MODEL_TESTS(lfm2_taps3, "lfm2-taps3")
MODEL_TESTS(lfm2_taps4, "lfm2-taps4")
MODEL_TESTS(llama_plain, "llama-plain")
MODEL_TESTS(llama_scaled, "llama-scaled")
MODEL_TESTS(qwen3_yarn, "qwen3-yarn")
MODEL_TESTS(qwen3_tied, "qwen3-tied")
MODEL_TESTS(lfm2moe, "lfm2moe")
MODEL_TESTS(qwen3moe, "qwen3moe")
MODEL_TESTS(gemma3, "gemma3")
#define FOLDER_TEST(id, name)                      \
    static void test_##id##_folder(void **state) { \
        (void)state;                               \
        model_compare(name, "");                   \
    }
FOLDER_TEST(gemma3_plain, "gemma3-plain")
FOLDER_TEST(qwen3moe_mixed, "qwen3moe-mixed")
FOLDER_TEST(llama_mlx4, "llama-mlx4")
FOLDER_TEST(llama_mlx3, "llama-mlx3")
FOLDER_TEST(lfm2_mlx8, "lfm2-mlx8")
FOLDER_TEST(qwen3_mlx128, "qwen3-mlx128")

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lfm2_taps3_folder),     cmocka_unit_test(test_lfm2_taps3_gguf),
        cmocka_unit_test(test_lfm2_taps4_folder),     cmocka_unit_test(test_lfm2_taps4_gguf),
        cmocka_unit_test(test_llama_plain_folder),    cmocka_unit_test(test_llama_plain_gguf),
        cmocka_unit_test(test_llama_scaled_folder),   cmocka_unit_test(test_llama_scaled_gguf),
        cmocka_unit_test(test_qwen3_yarn_folder),     cmocka_unit_test(test_qwen3_yarn_gguf),
        cmocka_unit_test(test_qwen3_tied_folder),     cmocka_unit_test(test_qwen3_tied_gguf),
        cmocka_unit_test(test_lfm2moe_folder),        cmocka_unit_test(test_lfm2moe_gguf),
        cmocka_unit_test(test_qwen3moe_folder),       cmocka_unit_test(test_qwen3moe_gguf),
        cmocka_unit_test(test_qwen3moe_mixed_folder), cmocka_unit_test(test_llama_mlx4_folder),
        cmocka_unit_test(test_lfm2_mlx8_folder),      cmocka_unit_test(test_qwen3_mlx128_folder),
        cmocka_unit_test(test_gemma3_folder),         cmocka_unit_test(test_gemma3_gguf),
        cmocka_unit_test(test_gemma3_plain_folder),   cmocka_unit_test(test_llama_mlx3_folder),
    };
    return cmocka_run_group_tests_name("small models against transformers", tests, NULL, NULL);
}
