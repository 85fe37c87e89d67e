// Folders of every family written as GGUF by `tern quantize`: the file gives the bits of the folder where the formats
// hold its values (F32; BF16 of BF16 folders), and what it quantises is what it makes of its own F32 file. llama's q
// and k change the order of their rows, so its scores are summed in another order: close, not equal.
#include "base/base.h"
#include "app/quantize/quantize.h"
#include "../../vector/model_runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define N_ROWS 24
#define ORDER_ERROR_MAX 2e-6f // of the largest logit

static char work[256];

static int setup(void **state) {
    (void)state;
    uint64_t salt;
    os_random(&salt, sizeof salt);
    snprintf(work, sizeof work, "/tmp/tern-test-folder-gguf-%d-%08llx", os_pid(), (unsigned long long)salt);
    return os_mkdirs(work, NULL);
}

static void file_write(const char *from, const char *type, const char *to) {
    const struct quantize_mix *mix = quantize_mix_find(type);
    struct tern_err err = {0};
    struct model *m = NULL;
    struct model_export *x = NULL;
    struct quantize_result r;
    if (model_open(&m, from, &err) != TERN_OK || model_export_create(&x, m, NULL, &err) != TERN_OK)
        fail_msg("%s: %s", from, err.message);
    assert_int_equal(quantize_choose(x, mix, false, NULL, 0, false, &err), TERN_OK);
    if (quantize_write(x, mix->file_type, to, 2, &r, &err) != TERN_OK) fail_msg("%s: %s", from, err.message);
    model_export_free(x);
    model_close(m);
}

// The logits of all rows; caller's, mem_free.
static float *logits_of(const char *path, enum prog_class numerics, size_t *n) {
    struct runner r;
    struct runner_options o = {
        .path = path, .numerics = numerics, .kv_type = OP_KV_F32, .window = N_ROWS, .n_ctx = N_ROWS, .n_threads = 1};
    runner_open(&r, &o);
    int32_t ids[N_ROWS];
    for (int i = 0; i < N_ROWS; i++) ids[i] = (i * 37 + 5) % r.model->hyper.n_vocab;
    runner_step(&r, ids, N_ROWS, N_ROWS);
    *n = (size_t)N_ROWS * (size_t)r.model->hyper.n_vocab;
    float *copy = mem_alloc(*n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, r.logits, *n * sizeof *copy);
    runner_close(&r);
    return copy;
}

static void files_compare(const char *a, const char *b, enum prog_class numerics, bool is_turned, const char *what) {
    size_t na, nb;
    float *x = logits_of(a, numerics, &na), *y = logits_of(b, numerics, &nb);
    assert_int_equal(na, nb);
    bool differs = false;
    float error = 0, largest = 0;
    for (size_t i = 0; i < na; i++) {
        differs = differs || x[i] != x[0];
        largest = fmaxf(largest, fabsf(x[i]));
        error = x[i] - y[i] == 0 ? error : fmaxf(error, fabsf(x[i] - y[i]));
    }
    assert_true(differs && isfinite(largest)); // else anything would be equal
    if (is_turned ? !(error <= ORDER_ERROR_MAX * largest) : memcmp(x, y, na * sizeof *x) != 0)
        fail_msg("%s: other logits than %s, by %g of %g", what, a, (double)error, (double)largest);
    mem_free(x);
    mem_free(y);
}

static void test_folders(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is_bf16;
    } folders[] = {{"lfm2-taps3", true}, {"lfm2-taps4", false}, {"llama-plain", false}, {"llama-scaled", true},
                   {"qwen3-yarn", true}, {"qwen3-tied", false}, {"lfm2moe", true},      {"qwen3moe", true},
                   {"gemma3", true},     {"lfm2-mlx8", false},  {"llama-mlx4", false}};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        const bool is_turned = strncmp(folders[i].name, "llama", 5) == 0;
        char folder[512], f32[512], other[512];
        snprintf(folder, sizeof folder, "%s/hf/%s", TEST_DATA, folders[i].name);
        snprintf(f32, sizeof f32, "%s/f32.gguf", work);
        snprintf(other, sizeof other, "%s/other.gguf", work);
        file_write(folder, "F32", f32);
        files_compare(folder, f32, PROG_CLASS_FP32, is_turned, folders[i].name);
        if (folders[i].is_bf16) {
            file_write(folder, "BF16", other);
            files_compare(folder, other, PROG_CLASS_FP32, is_turned, folders[i].name);
            assert_int_equal(os_remove(other, NULL), TERN_OK);
        }
        char again[512];
        snprintf(again, sizeof again, "%s/again.gguf", work);
        file_write(folder, "Q8_0", other);
        file_write(f32, "Q8_0", again);
        files_compare(other, again, PROG_CLASS_INT8, false, folders[i].name);
        assert_int_equal(os_remove(f32, NULL), TERN_OK);
        assert_int_equal(os_remove(other, NULL), TERN_OK);
        assert_int_equal(os_remove(again, NULL), TERN_OK);
    }
    assert_int_equal(os_remove_dir(work, NULL), TERN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folders)};
    return cmocka_run_group_tests_name("folders as GGUF files", tests, setup, NULL);
}
