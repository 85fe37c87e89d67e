// Streaming detokenizing: whole characters only, the same text whatever the cuts.
#include "tokenizer_fixture.h"

// Bytes as tokens of the fixture (token b is byte b), put one by one.
static void stream(const struct tokenizer *t, struct str bytes, struct buf *out) {
    struct detok d;
    detok_init(&d, t, false);
    for (size_t i = 0; i < bytes.len; i++) {
        assert_true(detok_put(&d, (uint8_t)bytes.data[i], out));
        assert_true(utf8_valid(buf_str(out), NULL));
    }
    assert_true(detok_flush(&d, out));
}

static void check_same(const struct tokenizer *t, struct str bytes) {
    struct buf got, expected;
    buf_init(&got, 1u << 20);
    buf_init(&expected, 1u << 20);
    stream(t, bytes, &got);
    utf8_put_clean(&expected, bytes);
    assert_true(str_eq(buf_str(&got), buf_str(&expected)));
    buf_release(&got);
    buf_release(&expected);
}

static void test_bytes(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    struct tokenizer *t = fixture_create(&f);
    check_same(t, STR("plain"));
    check_same(t, STR("\xf0\x9f\x98\x80 \xe2\x82\xac \xc3\xa9"));
    check_same(t, STR("ok \xf0\x9f\x98 bad"));
    check_same(t, STR("\xff\xfe"));
    check_same(t, STR("\xc0\xaf"));
    check_same(t, STR("\xed\xa0\x80"));
    check_same(t, STR("\xf4\x90\x80\x80"));
    check_same(t, STR("a\xe2\x82"));
    check_same(t, STR("\xf0\x9f\xf0\x9f\x98\x80"));
    check_same(t, STR("\xe2\xe2\x82\xe2\x82\xac"));
    uint64_t x = 42;
    for (int round = 0; round < 20000; round++) {
        static const char parts[] = "\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9"
                                    "a\xed\xa0\xf4\x90\xc0\xff";
        char bytes[12];
        size_t n = random_next(&x) % sizeof bytes;
        for (size_t i = 0; i < n; i++) bytes[i] = parts[random_next(&x) % (sizeof parts - 1)];
        check_same(t, (struct str){bytes, n});
    }
    tokenizer_free(t);
}

// Every way to cut a text into tokens: tokens of more than one byte, each a cut of the text at i and j.
static void test_every_cut(void **state) {
    (void)state;
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff"
                               "b\xe2\x82";
    size_t n = sizeof text - 1;
    struct buf expected;
    buf_init(&expected, 1000);
    utf8_put_clean(&expected, (struct str){text, n});
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = i; j <= n; j++) {
            struct fixture f;
            char spelled[3][40];
            size_t cuts[4] = {0, i, j, n};
            int32_t ids[3];
            fixture_init(&f);
            for (int k = 0; k < 3; k++) {
                ids[k] = -1; // an empty part: no such token
                if (cuts[k + 1] == cuts[k]) continue;
                size_t len = 0;
                for (size_t at = cuts[k]; at < cuts[k + 1]; at++) {
                    len += (size_t)spell_byte((uint8_t)text[at], spelled[k] + len);
                }
                ids[k] = cuts[k + 1] - cuts[k] == 1 ? (uint8_t)text[cuts[k]] : fixture_token(&f, spelled[k], 1);
            }
            struct tokenizer *t = fixture_create(&f);
            struct detok d;
            struct buf got;
            buf_init(&got, 1000);
            detok_init(&d, t, false);
            for (int k = 0; k < 3; k++) {
                assert_true(detok_put(&d, ids[k], &got));
                assert_true(utf8_valid(buf_str(&got), NULL));
            }
            assert_true(detok_flush(&d, &got));
            assert_true(str_eq(buf_str(&got), buf_str(&expected)));
            buf_release(&got);
            tokenizer_free(t);
        }
    }
    buf_release(&expected);
}

static void test_control(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    int32_t end = fixture_token(&f, "<|end|>", 3), think = fixture_token(&f, "<think>", 4);
    int32_t unused = fixture_token(&f, "[PAD258]", 5);
    struct tokenizer *t = fixture_create(&f);
    const int32_t ids[] = {'a', end, think, unused, 0xc3, end, 0xa9, -1, 9999, 'b'};
    for (int with_control = 0; with_control < 2; with_control++) {
        struct detok d;
        struct buf got;
        buf_init(&got, 1000);
        detok_init(&d, t, with_control);
        for (size_t i = 0; i < ARRAY_LEN(ids); i++) assert_true(detok_put(&d, ids[i], &got));
        assert_true(detok_flush(&d, &got));
        assert_string_equal(got.data, with_control ? "a<|end|><think>\xef\xbf\xbd<|end|>\xef\xbf\xbd"
                                                     "b"
                                                   : "a<think>\xc3\xa9"
                                                     "b");
        buf_release(&got);
    }
    tokenizer_free(t);
}

// A stream that ends in the middle of a character: nothing before the flush, then one U+FFFD.
static void test_cut_short(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    char spelled[10] = "";
    size_t len = (size_t)spell_byte(0xe2, spelled);
    spell_byte(0x82, spelled + len);
    int32_t half = fixture_token(&f, spelled, 1);
    struct tokenizer *t = fixture_create(&f);
    struct detok d;
    struct buf got;
    buf_init(&got, 1000);
    detok_init(&d, t, false);
    assert_true(detok_put(&d, half, &got));
    assert_int_equal(got.len, 0);
    assert_true(detok_flush(&d, &got));
    assert_string_equal(got.data, "\xef\xbf\xbd");
    assert_true(detok_flush(&d, &got));
    assert_string_equal(got.data, "\xef\xbf\xbd");
    buf_release(&got);
    buf_init(&got, 2); // a buffer that is full says so
    assert_false(detok_put(&d, 'a', &got) && detok_put(&d, 'b', &got) && detok_put(&d, 'c', &got));
    buf_release(&got);
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_control),
        cmocka_unit_test(test_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
