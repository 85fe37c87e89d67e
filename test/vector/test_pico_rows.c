// pico over test/data/pico/heldout.txt through the public interface: the tokenizer on the prompts and the text,
// perplexity of both classes against transformers' losses of the same rows, and how often the int8 class puts the fp32
// class's token first. All 21 rows, or with TERN_TEST_SHORT=1 (sanitizers, emulators) the first two.
#include "base/base.h"
#include "../common/json_tree.h"
#include "golden_file.h"
#include "model_runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define ROWS_QUICK 2
#define ROWS_MAX 32
#define ROW 512 // begin token and 511 ids
#define IDS_MAX 16384
#define FP32_PERPLEXITY_ERROR 0.0005
#define INT8_PERPLEXITY_ERROR 0.01
#define TOP_AGREEMENT_MIN 0.99
#define TOP_AGREEMENT_MIN_QUICK 0.98 // fewer positions scatter more: 98.6 % where the whole text has 99.05 %

static struct {
    int n_rows;
    double nll[ROWS_MAX]; // sum of -log p over a row's 511 predictions
    double perplexity;    // of all rows, as published with the model
    int32_t top[ROWS_QUICK][ROW - 1];
} want;
static int n_rows;
static int32_t ids[IDS_MAX];
static int32_t top_fp32[ROWS_MAX][ROW], top_int8[ROWS_MAX][ROW];

static struct tern_engine *engine_open(enum tern_class numerics, enum tern_kv_type kv_type) {
    struct tern_engine_options o;
    struct tern_engine *e;
    struct tern_err err = {0};
    tern_engine_options_default(&o);
    o.model_path = TEST_MODELS "/pico.gguf";
    o.numerics = numerics;
    o.kv_type = kv_type;
    o.n_ctx = ROW;
    o.n_threads = 2;
    o.pack_cache = false;
    if (tern_engine_open(&e, &o, &err) != TERN_OK) fail_msg("%s", err.message);
    return e;
}

// Perplexity of the first n rows; top: the likeliest ids.
static double rows_perplexity(struct tern_engine *e, int n, int32_t (*top)[ROW]) {
    struct tern_session *s;
    struct tern_err err = {0};
    float logprobs[ROW];
    double nll = 0;
    if (tern_session_open(&s, e, &err) != TERN_OK) fail_msg("%s", err.message);
    for (int i = 0; i < n; i++) {
        int32_t row[ROW] = {1};
        memcpy(row + 1, ids + i * (ROW - 1), (ROW - 1) * sizeof *ids);
        if (tern_session_truncate(s, 0, &err) != TERN_OK ||
            tern_session_score(s, row, ROW, logprobs, top[i], &err) != TERN_OK)
            fail_msg("%s", err.message);
        assert_true(isnan(logprobs[0]) && top[i][0] == -1);
        for (int k = 1; k < ROW; k++) nll -= (double)logprobs[k];
    }
    tern_session_close(s);
    return exp(nll / (n * (ROW - 1)));
}

static double wanted_perplexity(int n) {
    double nll = 0;
    for (int i = 0; i < n; i++) nll += want.nll[i];
    return n == want.n_rows ? want.perplexity : exp(nll / (n * (ROW - 1)));
}

static void perplexity_check(const char *what, double got, double error_max) {
    double right = wanted_perplexity(n_rows), error = fabs(got / right - 1);
    print_message("%s: perplexity %.5f over %d rows, reference %.5f (%.4f %% off)\n", what, got, n_rows, right,
                  100 * error);
    assert_true(error <= error_max);
}

static double agreement(int32_t (*a)[ROW], int32_t (*b)[ROW], int n) {
    int same = 0;
    for (int i = 0; i < n; i++)
        for (int k = 1; k < ROW; k++) same += a[i][k] == b[i][k];
    return (double)same / (n * (ROW - 1));
}

static void test_tokenizer(void **state) {
    (void)state;
    struct golden *g = golden_read(TEST_DATA "/pico/golden.json");
    struct tern_engine *e = engine_open(TERN_CLASS_INT8, TERN_KV_F16);
    struct tern_err err = {0};
    for (int i = 0; i < g->n_prompts; i++) {
        const struct golden_prompt *p = &g->prompts[i];
        int32_t got[GOLDEN_IDS_MAX];
        struct tern_str text = {p->text.data, p->text.len};
        assert_int_equal(tern_tokenize(e, text, false, true, got, GOLDEN_IDS_MAX, &err), p->n_ids);
        assert_memory_equal(got, p->ids, (size_t)p->n_ids * sizeof *got);
    }
    tern_engine_close(e);
    golden_free(g);
}

static void test_fp32(void **state) {
    (void)state;
    struct tern_engine *e = engine_open(TERN_CLASS_FP32, TERN_KV_F32);
    perplexity_check("fp32", rows_perplexity(e, n_rows, top_fp32), FP32_PERPLEXITY_ERROR);
    for (int i = 0; i < ROWS_QUICK; i++)
        for (int k = 1; k < ROW; k++)
            if (top_fp32[i][k] != want.top[i][k - 1])
                print_message("row %d, token %d: likeliest %d, reference %d\n", i, k, top_fp32[i][k],
                              want.top[i][k - 1]);
    tern_engine_close(e);
}

static void test_int8(void **state) {
    (void)state;
    struct tern_engine *e = engine_open(TERN_CLASS_AUTO, TERN_KV_F16);
    struct tern_model_info info;
    tern_engine_info(e, &info);
    assert_string_equal(info.numerics, "int8/kv-f16"); // what a user gets who asks for nothing
    perplexity_check("int8", rows_perplexity(e, n_rows, top_int8), INT8_PERPLEXITY_ERROR);
    tern_engine_close(e);
    double same = agreement(top_int8, top_fp32, n_rows);
    print_message("int8 puts the fp32 class's token first in %.2f %% of %d positions\n", 100 * same,
                  n_rows * (ROW - 1));
    assert_true(same >= (n_rows == want.n_rows ? TOP_AGREEMENT_MIN : TOP_AGREEMENT_MIN_QUICK));
}

static void want_read(void) {
    struct json_file f;
    json_file_read(&f, TEST_DATA "/pico/rows.json");
    JSON_EACH(nll, json_get(f.root, "nll")) {
        assert_true(want.n_rows < ROWS_MAX);
        want.nll[want.n_rows++] = nll->number;
    }
    int i = 0;
    JSON_EACH(row, json_get(f.root, "top")) {
        int k = 0;
        assert_true(i < ROWS_QUICK && row->n == ROW - 1);
        JSON_EACH(id, row) want.top[i][k++] = (int32_t)id->integer;
        i++;
    }
    assert_int_equal(i, ROWS_QUICK);
    want.perplexity = json_get(f.root, "perplexity")->number;
    json_file_release(&f);
}

static int setup(void **state) {
    (void)state;
    want_read();
    n_rows = env_get("TERN_TEST_SHORT") ? ROWS_QUICK : want.n_rows;

    struct buf text;
    struct tern_err err = {0};
    runner_file_read(&text, TEST_DATA "/pico/heldout.txt");
    struct tern_engine *e = engine_open(TERN_CLASS_INT8, TERN_KV_F16);
    int64_t n = tern_tokenize(e, (struct tern_str){text.data, text.len}, false, false, ids, IDS_MAX, &err);
    assert_int_equal(n, 11136);
    tern_engine_close(e);
    buf_release(&text);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer),
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_int8),
    };
    return cmocka_run_group_tests_name("pico over a text", tests, setup, NULL);
}
