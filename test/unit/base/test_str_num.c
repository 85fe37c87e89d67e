// Numbers from text, against the C library where it is a judge, and human-readable sizes.
#include "base_test.h"
#include <math.h>

static void test_i64(void **state) {
    (void)state;
    int64_t v = 5;
    assert_true(str_to_i64(STR("9223372036854775807"), &v) && v == INT64_MAX);
    assert_true(str_to_i64(STR("-9223372036854775808"), &v) && v == INT64_MIN);
    assert_true(str_to_i64(STR("-0"), &v) && v == 0);
    assert_true(str_to_i64(STR("007"), &v) && v == 7);
    const char *bad[] = {"",
                         "-",
                         "+1",
                         " 1",
                         "1 ",
                         "1a",
                         "0x1",
                         "1.0",
                         "9223372036854775808",
                         "-9223372036854775809",
                         "99999999999999999999",
                         "--1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        v = 5;
        assert_false(str_to_i64(str_from(bad[i]), &v));
        assert_int_equal(v, 5);
    }
}

static void check_f64(const char *text) {
    double got, expected = strtod(text, NULL);
    if (!str_to_f64(str_from(text), &got)) fail_msg("'%s' was refused", text);
    if (memcmp(&got, &expected, sizeof(got)) != 0) fail_msg("'%s': %.17g, not %.17g", text, got, expected);
}

static void test_f64(void **state) {
    (void)state;
    const char *good[] = {"0",
                          "-0",
                          "1",
                          "-1.5",
                          "1e22",
                          "1e23",
                          "1e-22",
                          "9007199254740993",
                          "9007199254740992.999",
                          "4.9e-324",
                          "2.4703282292062327e-324",
                          "2.4703282292062328e-324",
                          "2.2250738585072011e-308",
                          "1.7976931348623157e308",
                          "1.7976931348623158e308",
                          "0.1",
                          "1E5",
                          "1e+5",
                          "123456789012345678901234567890",
                          "1e-999",
                          "0e999999999999",
                          "0.000000000000000000000000000000000000001e39",
                          "8.5e-320",
                          "5e-324",
                          "0.30000000000000004",
                          "-1e-400"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) check_f64(good[i]);
    const char *bad[] = {"",
                         "-",
                         "+1",
                         "01",
                         "-01",
                         "1.",
                         ".5",
                         "1e",
                         "1e+",
                         "1e5.5",
                         "NaN",
                         "inf",
                         "1 ",
                         " 1",
                         "0x1",
                         "1,5",
                         "1e400",
                         "-1e309",
                         "1.7976931348623159e308",
                         "1e99999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        double v = 5;
        if (str_to_f64(str_from(bad[i]), &v)) fail_msg("'%s' was taken for %g", bad[i], v);
        assert_true(v == 5);
    }
}

// Literals longer than what is kept: the halfway point between two doubles (1 + 2^-53, 54 digits), padded with zeros
// and then with a last digit that decides the rounding.
static void test_f64_long(void **state) {
    (void)state;
    const char *half = "1.00000000000000011102230246251565404236316680908203125";
    static char text[3000];
    for (size_t zeros = 600; zeros < 2500; zeros += 100) {
        size_t len = strlen(half);
        memcpy(text, half, len);
        memset(text + len, '0', zeros);
        text[len + zeros] = 0;
        double v;
        assert_true(str_to_f64(str_from(text), &v) && v == 1.0);
        text[len + zeros - 1] = '1';
        assert_true(str_to_f64(str_from(text), &v) && v == 1.0 + 0x1p-52);
        check_f64(text);
    }
    memset(text, '7', sizeof(text) - 1); // over 10^308, brought back by the exponent
    memcpy(text + sizeof(text) - 8, "e-2900", 7);
    check_f64(text);
}

static void test_f64_random(void **state) {
    (void)state;
    struct test_rng rng;
    test_rng_init(&rng, "f64");
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = test_rng_next(&rng);
        double v;
        memcpy(&v, &bits, 8);
        if (!isfinite(v)) continue;
        char text[64];
        snprintf(text, sizeof(text), "%.*e", (int)test_rng_below(&rng, 25), v);
        double got;
        if (isinf(strtod(text, NULL))) {
            assert_false(str_to_f64(str_from(text), &got)); // rounded up over the range
        } else {
            check_f64(text);
        }
        snprintf(text, sizeof(text), "%d.%de%d", (int)test_rng_below(&rng, 100000), (int)test_rng_below(&rng, 1000000),
                 (int)test_rng_below(&rng, 60) - 30);
        check_f64(text);
    }
}

static void test_bytes(void **state) {
    (void)state;
    char out[24];
    assert_string_equal(bytes_format(0, out), "0 B");
    assert_string_equal(bytes_format(1023, out), "1023 B");
    assert_string_equal(bytes_format(1024, out), "1.0 KiB");
    assert_string_equal(bytes_format(1536u << 20, out), "1.5 GiB");
    assert_string_equal(bytes_format((1u << 20) - 1, out), "1.0 MiB");
    assert_string_equal(bytes_format(UINT64_MAX, out), "16.0 EiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i64),        cmocka_unit_test(test_f64),   cmocka_unit_test(test_f64_long),
        cmocka_unit_test(test_f64_random), cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
