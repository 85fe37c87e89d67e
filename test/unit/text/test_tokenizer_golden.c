// pico's tokenizer against the reference, line by line, and any bytes through it and back.
#include "tokenizer_fixture.h"

static struct tokenizer *pico;

// One line {"text": …, "ids": […]}; other keys are left aside.
static void line_check(struct str line, int line_number) {
    struct json *j;
    struct json_item item;
    struct buf text;
    struct id_list ids = {0};
    buf_init(&text, 1u << 20);
    buf_puts(&text, "");
    assert_int_equal(json_create(&j, line, NULL, NULL), TERN_OK);
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    while (json_next(j, &item, NULL) == JSON_KEY) {
        if (str_eqz(item.text, "text")) {
            assert_int_equal(json_next(j, &item, NULL), JSON_STRING);
            buf_put(&text, item.text.data, item.text.len);
        } else if (str_eqz(item.text, "ids")) {
            assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
            while (json_next(j, &item, NULL) == JSON_NUMBER) id_list_push(&ids, (int32_t)item.integer);
        } else {
            assert_int_equal(json_skip(j, NULL), TERN_OK);
        }
    }
    json_free(j);
    struct id_list got = encode(pico, buf_str(&text), &(struct encode_options){.parse_special = true});
    if (got.len != ids.len || (ids.len > 0 && memcmp(got.ids, ids.ids, ids.len * sizeof *ids.ids) != 0)) {
        fail_msg("line %d differs: %s", line_number, text.data);
    }
    struct buf back;
    buf_init(&back, 1u << 20);
    put_bytes(pico, &got, &back);
    assert_true(str_eq(buf_str(&back), buf_str(&text)));
    buf_release(&back);
    buf_release(&text);
    id_list_release(&got);
    id_list_release(&ids);
}

static void file_check(const char *path, int n_expected) {
    struct buf file;
    struct tern_err err;
    buf_init(&file, 1u << 20);
    if (file_read_all(&file, path, &err) != TERN_OK) fail_msg("%s", err.message);
    int n = 0;
    for (size_t at = 0; at < file.len;) {
        size_t end = str_find(buf_str(&file), STR("\n"), at);
        if (end == (size_t)-1) end = file.len;
        line_check((struct str){file.data + at, end - at}, ++n);
        at = end + 1;
    }
    assert_int_equal(n, n_expected);
    buf_release(&file);
}

static void test_golden(void **state) {
    (void)state;
    file_check(TEST_DATA "/tokenizer/pico.jsonl", 210);
}

// Texts on which other programs have failed: emoji families, combining marks, digits, blanks, mixed scripts, markers.
static void test_cases(void **state) {
    (void)state;
    file_check(TEST_DATA "/tokenizer/pico_cases.jsonl", 85);
}

static void check_round_trip(struct str text, bool parse_special) {
    struct id_list ids = encode(pico, text, &(struct encode_options){.parse_special = parse_special});
    struct buf back;
    buf_init(&back, 1u << 20);
    put_bytes(pico, &ids, &back);
    assert_true(str_eq(buf_str(&back), text));
    buf_release(&back);
    id_list_release(&ids);
}

static void test_any_bytes(void **state) {
    (void)state;
    check_round_trip(STR("ok \xf0\x9f\x98 bad"), true);
    check_round_trip(STR("\xff\xfe"), true);
    check_round_trip(STR("\xc0\xaf"), true);
    check_round_trip(STR("\xed\xa0\x80"), true);
    check_round_trip(STR("\xf4\x90\x80\x80"), true);
    check_round_trip(STR("a\xe2\x82"), true);
    check_round_trip(STR("a\0b"), true);
    uint64_t x = 1;
    for (int round = 0; round < 5000; round++) {
        char text[64];
        size_t n = random_next(&x) % sizeof text;
        for (size_t i = 0; i < n; i++) text[i] = (char)(random_next(&x) >> 40);
        check_round_trip((struct str){text, n}, round % 2);
    }
}

// Every token that is valid UTF-8 and ordinary text encodes to itself; markers do when control tokens are read.
static void test_every_token(void **state) {
    (void)state;
    int n_checked = 0;
    for (int32_t id = 0; id < tokenizer_size(pico); id++) {
        struct str text = tokenizer_token_bytes(pico, id);
        assert_true(text.len > 0);
        if (!utf8_valid(text, NULL)) continue;
        struct id_list ids = encode(pico, text, &(struct encode_options){.parse_special = true});
        assert_int_equal(ids.len, 1);
        assert_int_equal(ids.ids[0], id);
        id_list_release(&ids);
        n_checked++;
    }
    assert_true(n_checked > 16000);
    assert_int_equal(tokenizer_size(pico), 16384);
    assert_int_equal(tokenizer_find(pico, STR("<|im_end|>")), 7);
    assert_true(tokenizer_adds_bos(pico));
    assert_int_equal(tokenizer_bos(pico), 1);
}

int main(void) {
    pico = pico_tokenizer();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_every_token),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tokenizer_free(pico);
    return failed;
}
