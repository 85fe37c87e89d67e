// The JSON writer: separators, quoting, numbers that read back equal.
#define _GNU_SOURCE 1
#include "base_test.h"
#include "abort_test.h"
#include <locale.h>
#include <math.h>

static void test_document(void **state) {
    (void)state;
    struct buf b;
    struct json_writer w;
    buf_init(&b, 1000);
    json_write_init(&w, &b);
    json_write_object(&w);
    json_write_key(&w, "a");
    json_write_int(&w, INT64_MIN);
    json_write_key_str(&w, (struct str){"b\0c", 3});
    json_write_array(&w);
    json_write_array(&w);
    json_write_array_end(&w);
    json_write_object(&w);
    json_write_object_end(&w);
    json_write_bool(&w, true);
    json_write_bool(&w, false);
    json_write_null(&w);
    json_write_raw(&w, STR("{\"raw\": 1}"));
    json_write_str(&w, STR("x"));
    json_write_array_end(&w);
    json_write_key(&w, "z");
    json_write_f64(&w, 0.5);
    json_write_object_end(&w);
    assert_false(b.failed);
    assert_int_equal(w.depth, 0);
    assert_string_equal(b.data, "{\"a\":-9223372036854775808,\"b\\u0000c\":[[],{},true,false,null,{\"raw\": 1},\"x\"],"
                                "\"z\":0.5}");
    buf_release(&b);
}

static void check_quoted(struct str s, const char *expected) {
    struct buf b;
    buf_init(&b, 1000);
    assert_true(json_put_quoted(&b, s));
    assert_string_equal(b.data, expected);
    buf_release(&b);
}

static void test_quoted(void **state) {
    (void)state;
    check_quoted(STR("a\"b\\c/\b\f\n\r\t\x01\x1f\x7f\0"), "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u0000\"");
    check_quoted(STR("\xc3\xa4\xf0\x9f\x98\x80"), "\"\xc3\xa4\xf0\x9f\x98\x80\"");
    check_quoted(STR("a\xff\xe2\x82z\xed\xa0\x80"),
                 "\"a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    check_quoted((struct str){NULL, 0}, "\"\"");
    struct buf b;
    buf_init(&b, 3);
    assert_false(json_put_quoted(&b, STR("ab")));
    assert_true(b.failed);
    buf_release(&b);
}

static const char *f64_text(double v) {
    static struct buf b;
    if (!b.data) buf_init(&b, 100);
    buf_clear(&b);
    struct json_writer w;
    json_write_init(&w, &b);
    json_write_f64(&w, v);
    return b.data;
}

static void test_f64(void **state) {
    (void)state;
    assert_string_equal(f64_text(0), "0");
    assert_string_equal(f64_text(-0.0), "-0");
    assert_string_equal(f64_text(0.1), "0.1");
    assert_string_equal(f64_text(1e21), "1e+21");
    assert_string_equal(f64_text(100), "100");
    assert_string_equal(f64_text(0.30000000000000004), "0.30000000000000004");
    assert_string_equal(f64_text(5e-324), "5e-324");
    assert_string_equal(f64_text((double)0.1f), "0.10000000149011612");
    assert_string_equal(f64_text(NAN), "null");
    assert_string_equal(f64_text(-INFINITY), "null");
    struct test_rng rng;
    test_rng_init(&rng, "write_f64");
    for (int i = 0; i < 50000; i++) {
        uint64_t bits = test_rng_next(&rng);
        if (i % 4 == 0) bits &= 0x800fffffffffffffu; // subnormal
        double v, back;
        memcpy(&v, &bits, 8);
        if (!isfinite(v)) continue;
        assert_true(str_to_f64(str_from(f64_text(v)), &back));
        assert_memory_equal(&v, &back, 8);
    }
}

static void test_locale(void **state) {
    (void)state;
    const char *comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF.UTF-8"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_LEN(comma); i++) {
        if (!setlocale(LC_ALL, comma[i])) continue;
        found = true;
        double v;
        assert_string_equal(f64_text(-12.5e-9), "-1.25e-08");
        assert_true(str_to_f64(STR("0.30000000000000004441"), &v) && v == 0.30000000000000004);
    }
    setlocale(LC_ALL, "C");
    if (!found) skip();
}

static void unbalanced(void) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, 100);
    json_write_init(&w, &b);
    json_write_array(&w);
    json_write_array_end(&w);
    json_write_array_end(&w);
}
static void key_without_value(void) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, 100);
    json_write_init(&w, &b);
    json_write_object(&w);
    json_write_key(&w, "a");
    json_write_object_end(&w);
}

static void test_misuse(void **state) {
    (void)state;
    assert_true(test_aborts(unbalanced));
    assert_true(test_aborts(key_without_value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_document), cmocka_unit_test(test_quoted), cmocka_unit_test(test_f64),
        cmocka_unit_test(test_locale),   cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
