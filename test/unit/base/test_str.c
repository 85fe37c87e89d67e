// Views, buffers, UTF-8, escaping.
#include "base_test.h"

static void test_views(void **state) {
    (void)state;
    assert_true(str_cmp(STR("a"), STR("b")) < 0 && str_cmp(STR("b"), STR("a")) > 0);
    assert_true(str_cmp(STR("a"), STR("ab")) < 0 && str_cmp(STR("ab"), STR("a")) > 0);
    assert_true(str_cmp(STR("\xff"), STR("a")) > 0);
    assert_int_equal(str_cmp((struct str){0}, STR("")), 0);
    assert_true(str_eq((struct str){0}, STR("")));
    assert_true(str_starts(STR("abc"), STR("ab")) && !str_starts(STR("a"), STR("ab")));
    assert_true(str_ends(STR("abc"), STR("bc")) && !str_ends(STR("c"), STR("bc")));
    assert_int_equal(str_find(STR("hello"), STR("l"), 0), 2);
    assert_int_equal(str_find(STR("hello"), STR("l"), 3), 3);
    assert_int_equal(str_find(STR("hello"), STR("lo"), 4), SIZE_MAX);
    assert_int_equal(str_find(STR("hello"), STR(""), 5), 5);
    assert_int_equal(str_find(STR("hello"), STR(""), 6), SIZE_MAX);
    assert_int_equal(str_find((struct str){0}, STR("x"), 0), SIZE_MAX);
    assert_true(str_eqz(str_trim(STR(" \t\r\n a b \v\f")), "a b"));
    assert_int_equal(str_trim(STR(" \n ")).len, 0);
}

static void test_buf(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    struct buf b;
    buf_init(&b, 10);
    assert_null(b.data);
    assert_true(buf_puts(&b, "12345") && buf_putc(&b, '6') && buf_putf(&b, "%04d", 7));
    assert_int_equal(b.len, 10);
    assert_string_equal(b.data, "1234560007");
    assert_true(buf_put(&b, NULL, 0));
    assert_false(buf_putc(&b, 'x'));
    assert_true(b.failed);
    assert_string_equal(b.data, "1234560007");
    buf_clear(&b);
    assert_true(!b.failed && b.len == 0 && b.data[0] == 0);
    assert_false(buf_putf(&b, "%s", "0123456789a"));
    assert_string_equal(b.data, "");
    assert_false(buf_puts(&b, "")); // stays failed
    buf_release(&b);
    assert_true(buf_puts(&b, "again"));
    buf_release(&b);
    buf_init(&b, 0);
    assert_false(buf_putc(&b, 'x'));
    buf_release(&b);
    buf_init(&b, SIZE_MAX);
    assert_false(buf_reserve(&b, SIZE_MAX));
    buf_clear(&b);
    assert_true(buf_puts(&b, "x"));
    assert_false(buf_reserve(&b, SIZE_MAX - 1));
    buf_release(&b);
    buf_init(&b, 1000);
    mem_fail_at(1, false);
    assert_false(buf_putc(&b, 'x'));
    buf_clear(&b);
    assert_true(buf_putc(&b, 'y'));
    buf_release(&b);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

static void test_buf_long(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 100000);
    for (int i = 0; i < 10000; i++) assert_true(buf_putf(&b, "%c%c%c", 'a' + i % 26, 'b', 'c'));
    assert_int_equal(b.len, 30000);
    for (int i = 0; i < 10000; i++) assert_int_equal(b.data[3 * i], 'a' + i % 26);
    assert_true(buf_putf(&b, "%070000d", 1));
    assert_int_equal(b.len, 100000);
    assert_false(buf_putc(&b, 'x'));
    buf_release(&b);
}

// Every code point goes to its bytes and back; its bytes cut short are a prefix, not a character.
static void test_utf8_all(void **state) {
    (void)state;
    for (uint32_t rune = 0; rune <= 0x10ffff; rune++) {
        if (rune >= 0xd800 && rune < 0xe000) continue;
        char bytes[4];
        int n = utf8_encode(rune, bytes), got;
        assert_int_equal(n, rune < 0x80 ? 1 : rune < 0x800 ? 2 : rune < 0x10000 ? 3 : 4);
        struct str s = {bytes, (size_t)n};
        if (utf8_decode(s, &got) != rune || got != n || !utf8_valid(s, NULL) || utf8_incomplete_tail(s) != 0)
            fail_msg("U+%04X does not round-trip", (unsigned)rune);
        for (int cut = 1; cut < n; cut++) {
            struct str part = {bytes, (size_t)cut};
            if (utf8_decode(part, &got) != RUNE_BAD || got != cut || utf8_incomplete_tail(part) != (size_t)cut)
                fail_msg("U+%04X cut after %d bytes", (unsigned)rune, cut);
        }
    }
    char bytes[4];
    assert_int_equal(utf8_encode(0xd800, bytes), 3);
    assert_memory_equal(bytes, "\xef\xbf\xbd", 3);
    assert_int_equal(utf8_encode(0x110000, bytes), 3);
    int n;
    assert_int_equal(utf8_decode((struct str){0}, &n), RUNE_BAD);
}

static void check_clean(struct str in, const char *expected) {
    struct buf b;
    buf_init(&b, 1000);
    assert_true(utf8_put_clean(&b, in));
    assert_string_equal(b.data ? b.data : "", expected);
    buf_release(&b);
}

#define BAD "\xef\xbf\xbd"

// The examples of Unicode 15, section 3.9, tables 3-8 to 3-11.
static void test_utf8_ill_formed(void **state) {
    (void)state;
    check_clean(STR("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), BAD BAD BAD BAD BAD BAD BAD BAD "A");
    check_clean(STR("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), BAD BAD BAD BAD BAD BAD BAD BAD "A");
    check_clean(STR("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), BAD BAD BAD BAD BAD "A" BAD BAD "B");
    check_clean(STR("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), BAD BAD BAD BAD "A");
    check_clean(STR("plain"), "plain");
    check_clean(STR(""), "");
    size_t at;
    assert_false(utf8_valid(STR("0123456789\xc3(abcdefghi"), &at));
    assert_int_equal(at, 10);
    assert_true(utf8_valid(STR("01234567\xc3\xa4"
                               "89abcdefgh\xf0\x9f\x98\x80"),
                           &at));
    assert_int_equal(utf8_incomplete_tail(STR("ab\xf0\x9f\x98")), 3);
    assert_int_equal(utf8_incomplete_tail(STR("ab\xe0\x80")), 0); // can become nothing valid
    assert_int_equal(utf8_incomplete_tail(STR("\x80\x80\x80\x80")), 0);
    assert_int_equal(utf8_incomplete_tail(STR("\xff")), 0);
    assert_int_equal(utf8_incomplete_tail(STR("")), 0);
}

static void check_escaped(struct str in, size_t max_len, const char *expected) {
    struct buf b;
    buf_init(&b, 1000);
    assert_true(str_put_escaped(&b, in, max_len));
    assert_string_equal(b.data ? b.data : "", expected);
    buf_release(&b);
}

static void test_escaped(void **state) {
    (void)state;
    check_escaped(STR("a\tb\0\x7f\xc2\x85 \xc3\xa4\xff"), 100, "a\\x09b\\x00\\x7f\\xc2\\x85 \xc3\xa4\\xff");
    check_escaped(STR("abcdef"), 3, "abc\xe2\x80\xa6");
    check_escaped(STR("abcdef"), 6, "abcdef");
    check_escaped(STR("a\xf0\x9f\x98\x80"), 3, "a\xe2\x80\xa6"); // never half a character
    check_escaped(STR("\\\"'"), 9, "\\\"'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),           cmocka_unit_test(test_buf),
        cmocka_unit_test(test_buf_long),        cmocka_unit_test(test_utf8_all),
        cmocka_unit_test(test_utf8_ill_formed), cmocka_unit_test(test_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
