// Vectors from an encoder: against rows that torch computed in float32 (test/data/hf/lfm2-encoder), equal for any
// threads and instruction set; what does not fit is refused.
#define _GNU_SOURCE // setenv
#include "engine_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ENCODER TEST_DATA "/hf/lfm2-encoder/model.gguf"
#define WIDTH 32
#define TEXT "A text is read in both directions at once, first and last words alike."

static const struct tern_str text = {TEXT, sizeof(TEXT) - 1};

static struct tern_engine *encoder_open(int n_threads) {
    struct tern_engine_options o = fixture_options(ENCODER);
    o.numerics = TERN_CLASS_FP32;
    o.kv_type = TERN_KV_F32;
    o.n_threads = n_threads;
    return fixture_engine(&o);
}

static void embed(struct tern_engine *e, struct tern_str s, enum tern_pooling pooling, float out[WIDTH]) {
    struct tern_err err = {0};
    fixture_must(tern_embed(e, s, pooling, out, WIDTH, &err), &err);
}

// The rows as they should be, pooled in doubles.
static void expected(enum tern_pooling pooling, double out[WIDTH]) {
    struct buf file;
    struct tern_err err = {0};
    buf_init(&file, 1u << 20);
    fixture_must(file_read_all(&file, TEST_DATA "/hf/lfm2-encoder/expect.bin", &err), &err);
    const uint8_t *at = (const uint8_t *)file.data;
    assert_true(file.len > 12 && memcmp(at, "TENC", 4) == 0 && load_u32(at + 8) == WIDTH);
    size_t n = load_u32(at + 4);
    assert_int_equal(n, text.len + 1); // behind the bos token
    assert_int_equal(file.len, 12 + 4 * n + 4 * n * WIDTH);
    const float *rows = (const float *)(const void *)(at + 12 + 4 * n);
    double length = 0;
    for (int c = 0; c < WIDTH; c++) {
        out[c] = pooling == TERN_POOL_LAST    ? rows[(n - 1) * WIDTH + (size_t)c]
                 : pooling == TERN_POOL_FIRST ? rows[c]
                                              : 0;
        for (size_t i = 0; pooling == TERN_POOL_MEAN && i < n; i++) out[c] += rows[i * WIDTH + (size_t)c];
        length += out[c] * out[c];
    }
    for (int c = 0; c < WIDTH; c++) out[c] /= sqrt(length);
    buf_release(&file);
}

static void test_against_torch(void **state) {
    (void)state;
    struct tern_engine *e = encoder_open(2);
    for (int pooling = 0; pooling <= TERN_POOL_LAST; pooling++) {
        float have[WIDTH];
        double want[WIDTH], worst = 0;
        embed(e, text, (enum tern_pooling)pooling, have);
        expected((enum tern_pooling)pooling, want);
        for (int c = 0; c < WIDTH; c++) {
            double off = fabs(have[c] - want[c]);
            assert_true(off < 1e-5);
            worst = MAX(worst, off); // no fmax: gcc 12 for aarch64 fails on its reduction
        }
        print_message("pooling %d: largest difference %.2e\n", pooling, worst);
    }
    tern_engine_close(e);
}

static void test_equal_bits(void **state) {
    (void)state;
    float want[WIDTH], have[WIDTH], other[WIDTH];
    assert_int_equal(setenv("TERN_CPU", "scalar", 1), 0);
    struct tern_engine *e = encoder_open(1);
    assert_int_equal(unsetenv("TERN_CPU"), 0);
    embed(e, text, TERN_POOL_MEAN, want);
    embed(e, (struct tern_str){TEXT, sizeof(TEXT) - 2}, TERN_POOL_FIRST, other);
    embed(e, text, TERN_POOL_FIRST, have);
    assert_memory_not_equal(have, other, sizeof have); // the first row sees the last letter
    tern_engine_close(e);
    for (int threads = 1; threads <= 3; threads++) {
        e = encoder_open(threads);
        for (int again = 0; again < 2; again++) {
            embed(e, text, TERN_POOL_MEAN, have);
            assert_memory_equal(have, want, sizeof have);
        }
        tern_engine_close(e);
    }
}

static void refused(struct tern_engine *e, struct tern_str s, int pooling, size_t n, enum tern_status status,
                    const char *word) {
    float out[WIDTH];
    struct tern_err err = {0};
    assert_int_equal(tern_embed(e, s, (enum tern_pooling)pooling, out, n, &err), status);
    if (!strstr(err.message, word)) fail_msg("'%s' is not in: %s", word, err.message);
}

static void test_refused(void **state) {
    (void)state;
    static char long_text[5000];
    struct tern_engine *e = encoder_open(1);
    struct tern_session *s = NULL;
    struct tern_err err = {0};
    assert_int_equal(tern_session_open(&s, e, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "encoder"));
    refused(e, text, 0, WIDTH - 1, TERN_INVALID_ARGUMENT, "room for 31 values");
    refused(e, text, 7, WIDTH, TERN_INVALID_ARGUMENT, "unknown pooling 7");
    memset(long_text, 'a', sizeof long_text);
    refused(e, (struct tern_str){long_text, sizeof long_text}, 0, WIDTH, TERN_CONTEXT_FULL, "at most 256");
    tern_engine_close(e);
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    e = fixture_engine(&o);
    refused(e, text, 0, WIDTH, TERN_UNSUPPORTED, "vectors come from encoders");
    tern_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_torch),
        cmocka_unit_test(test_equal_bits),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("vectors from encoders", tests, NULL, NULL);
}
