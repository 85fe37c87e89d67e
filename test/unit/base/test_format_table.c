// Names, GGUF numbers and row sizes of element formats.
#include "base_test.h"

static void test_lookup(void **state) {
    (void)state;
    enum format f;
    const char *name;
    assert_true(format_from_gguf(2, &f, &name) && f == FORMAT_Q4_0);
    assert_string_equal(name, "Q4_0");
    assert_false(format_from_gguf(16, &f, &name));
    assert_string_equal(name, "IQ2_XXS");
    assert_false(format_from_gguf(4, &f, &name)); // withdrawn
    assert_null(name);
    assert_false(format_from_gguf(4000000000u, &f, &name));
    assert_null(name);
    assert_false(format_from_gguf(UINT32_MAX, &f, NULL)); // -1 marks formats without a number
    assert_true(format_from_name("q6_k", &f) && f == FORMAT_Q6_K);
    assert_true(format_from_name("BF16", &f) && f == FORMAT_BF16);
    assert_false(format_from_name("q6", &f));
    assert_false(format_from_name("", &f));
    for (int i = 0; i < FORMAT_COUNT; i++) {
        assert_true(format_from_name(format_table[i].name, &f) && (int)f == i);
        if (format_table[i].gguf_type < 0) continue;
        assert_true(format_from_gguf((uint32_t)format_table[i].gguf_type, &f, &name) && (int)f == i);
        assert_string_equal(name, format_table[i].name);
    }
}

static void test_row_bytes(void **state) {
    (void)state;
    uint64_t n;
    assert_true(format_row_bytes(FORMAT_F16, 7, &n) && n == 14);
    assert_true(format_row_bytes(FORMAT_Q4_0, 64, &n) && n == 36);
    assert_true(format_row_bytes(FORMAT_Q4_K, 512, &n) && n == 288);
    assert_true(format_row_bytes(FORMAT_Q6_K, 256, &n) && n == 210);
    assert_true(format_row_bytes(FORMAT_I8C, 100, &n) && n == 104);
    assert_true(format_row_bytes(FORMAT_Q8_0, 0, &n) && n == 0);
    assert_false(format_row_bytes(FORMAT_Q4_0, 33, &n));
    assert_false(format_row_bytes(FORMAT_F32, UINT64_MAX / 2, &n));
    assert_false(format_row_bytes(FORMAT_I8C, UINT64_MAX - 2, &n));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lookup), cmocka_unit_test(test_row_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
