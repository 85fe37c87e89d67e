// Added tokens in text: the reference's rules and flags, and taint.
#include "tokenizer_fixture.h"

static const struct encode_options plain = {0};
static const struct encode_options special = {.parse_special = true};

// {"added": […], "rows": [[text, ids, ids without control tokens], …]}
static void tokenizer_text(struct buf *out, struct str added) {
    buf_init(out, 1u << 20);
    buf_putf(out,
             "{\"added_tokens\":%.*s,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
             "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
             (int)added.len, added.data);
    for (int b = 0; b < 256; b++) {
        char spelled[3];
        int n = spell_byte(b, spelled);
        json_put_quoted(out, (struct str){spelled, (size_t)n});
        buf_putf(out, ":%d%s", b, b < 255 ? "," : "}}}");
    }
}

static void ids_check(struct json *j, const struct tokenizer *t, struct str text, const struct encode_options *o,
                      int line_number) {
    struct json_item item;
    struct id_list expected = {0}, got = encode(t, text, o);
    assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
    while (json_next(j, &item, NULL) == JSON_NUMBER) id_list_push(&expected, (int32_t)item.integer);
    if (got.len != expected.len || (got.len > 0 && memcmp(got.ids, expected.ids, got.len * sizeof *got.ids) != 0)) {
        fail_msg("line %d differs%s: %.*s", line_number, o->parse_special ? "" : " (plain)", (int)text.len, text.data);
    }
    id_list_release(&expected);
    id_list_release(&got);
}

static int line_check(struct str line, int line_number) {
    struct json *j;
    struct json_item item;
    struct str added;
    struct buf file, text;
    int n_rows = 0;
    assert_int_equal(json_create(&j, line, NULL, NULL), TERN_OK);
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_int_equal(json_raw(j, &added, NULL), TERN_OK);
    tokenizer_text(&file, added);
    struct tokenizer *t = json_tokenizer(file.data);
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
    buf_init(&text, 1u << 20);
    while (json_next(j, &item, NULL) == JSON_ARRAY) {
        assert_int_equal(json_next(j, &item, NULL), JSON_STRING);
        buf_clear(&text);
        buf_put(&text, item.text.data, item.text.len);
        ids_check(j, t, buf_str(&text), &special, line_number);
        ids_check(j, t, buf_str(&text), &plain, line_number);
        assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY_END);
        n_rows++;
    }
    buf_release(&text);
    buf_release(&file);
    tokenizer_free(t);
    json_free(j);
    return n_rows;
}

static void test_as_reference(void **state) {
    (void)state;
    struct buf file;
    struct tern_err err;
    buf_init(&file, 1u << 20);
    if (file_read_all(&file, TEST_DATA "/tokenizer/added.jsonl", &err) != TERN_OK) fail_msg("%s", err.message);
    int n_lines = 0, n_rows = 0;
    for (size_t at = 0; at < file.len;) {
        size_t end = str_find(buf_str(&file), STR("\n"), at);
        n_rows += line_check((struct str){file.data + at, end - at}, ++n_lines);
        at = end + 1;
    }
    assert_int_equal(n_rows, 60 * 14);
    buf_release(&file);
}

static struct tokenizer *chat_tokenizer(void) {
    struct fixture f;
    fixture_init(&f);
    fixture_token(&f, "<|im_start|>", 3); // 256
    fixture_token(&f, "<|im_end|>", 3);   // 257
    fixture_token(&f, "<|im_end|>\n", 3); // 258
    fixture_token(&f, "<think>", 4);      // 259
    fixture_token(&f, "im", 4);           // 260
    return fixture_create(&f);
}

static void check_tainted(const struct tokenizer *t, const char *text, const struct text_range *ranges, int n,
                          const char *expected) {
    struct encode_options o = {.parse_special = true, .tainted = ranges, .n_tainted = n};
    check_ids(t, text, &o, expected);
}

#define RANGE(b, e) (&(struct text_range){b, e}), 1

static void test_taint(void **state) {
    (void)state;
    struct tokenizer *t = chat_tokenizer();
    check_tainted(t, "<|im_end|>x<|im_end|>", NULL, 0, "257 120 257");
    // Text that spells a marker is letters; ordinary added tokens are found everywhere.
    check_tainted(t, "<|im_end|>x<|im_end|>", RANGE(0, 10), "60 124 260 95 101 110 100 124 62 120 257");
    check_tainted(t, "<|im_end|>x<|im_end|>", RANGE(10, 11), "257 120 257");
    check_tainted(t, "a<think>", RANGE(0, 8), "97 259");
    // One tainted byte is enough, first, middle or last.
    const char *letters = "60 124 260 95 101 110 100 124 62";
    for (size_t i = 0; i < 10; i++) check_tainted(t, "<|im_end|>", RANGE(i, i + 1), letters);
    check_tainted(t, "<|im_end|>", RANGE(0, 0), "257"); // an empty range taints nothing
    // User text cannot make the longer marker, nor take the shorter one away.
    check_tainted(t, "<|im_end|>\n", NULL, 0, "258");
    check_tainted(t, "<|im_end|>\n", RANGE(10, 11), "257 10");
    // Several ranges.
    const struct text_range two[] = {{0, 10}, {20, 30}};
    check_tainted(t, "<|im_end|><|im_end|><|im_end|>", two, 2,
                  "60 124 260 95 101 110 100 124 62 257 60 124 260 95 101 110 100 124 62");
    tokenizer_free(t);
}

// With every possible tainted range of a text: no control token over a tainted byte, and the bytes come back.
static void test_taint_every_range(void **state) {
    (void)state;
    struct tokenizer *t = chat_tokenizer();
    struct str text = STR("<|im_start|>a<|im_end|>\n<<|im_end|>");
    for (size_t b = 0; b <= text.len; b++) {
        for (size_t e = b; e <= text.len; e++) {
            struct text_range range = {b, e};
            struct id_list ids =
                encode(t, text, &(struct encode_options){.parse_special = true, .tainted = &range, .n_tainted = 1});
            size_t at = 0;
            for (size_t i = 0; i < ids.len; i++) {
                struct str bytes = tokenizer_token_bytes(t, ids.ids[i]);
                bool over = b < e && at < e && at + bytes.len > b;
                assert_false(over && tokenizer_is_control(t, ids.ids[i]));
                assert_memory_equal(text.data + at, bytes.data, bytes.len);
                at += bytes.len;
            }
            assert_int_equal(at, text.len);
            id_list_release(&ids);
        }
    }
    tokenizer_free(t);
}

// single_word and lstrip for every code point beside the marker, against the classes that test_pretok compares with the
// reference.
static void test_flags_every_code_point(void **state) {
    (void)state;
    struct unicode_map map;
    struct buf file;
    unicode_map_init(&map);
    tokenizer_text(&file, STR("[{\"id\":256,\"content\":\"XX\",\"single_word\":true},"
                              "{\"id\":257,\"content\":\"YY\",\"lstrip\":true,\"rstrip\":true}]"));
    struct tokenizer *t = json_tokenizer(file.data);
    for (uint32_t rune = 1; rune < 0x110000; rune += rune < 0x3400 ? 1 : 37) {
        if (rune >= 0xd800 && rune < 0xe000) continue;
        char text[16];
        size_t n = (size_t)utf8_encode(rune, text);
        memcpy(text + n, "XX", 2);
        struct id_list ids = encode(t, (struct str){text, n + 2}, &plain);
        assert_int_equal(ids.ids[ids.len - 1] == 256, !(unicode_class(&map, rune) & UNICODE_WORD));
        id_list_release(&ids);
        memcpy(text + n, "YY", 2);
        memcpy(text + n + 2, text, n);
        ids = encode(t, (struct str){text, 2 * n + 2}, &plain);
        assert_int_equal(ids.len == 1, (unicode_class(&map, rune) & UNICODE_SPACE) != 0);
        id_list_release(&ids);
    }
    tokenizer_free(t);
    buf_release(&file);
}

// Ill-formed bytes beside markers: no class, nothing read beyond the text.
static void test_flags_ill_formed(void **state) {
    (void)state;
    struct buf file;
    tokenizer_text(&file, STR("[{\"id\":256,\"content\":\"XX\",\"single_word\":true},"
                              "{\"id\":257,\"content\":\"YY\",\"lstrip\":true,\"rstrip\":true}]"));
    struct tokenizer *t = json_tokenizer(file.data);
    check_ids(t, "\xa0XX\xe3\x80", &plain, "160 256 227 128");
    check_ids(t, "\x80\x80\x80\x80\x80YY\xe3", &plain, "128 128 128 128 128 257 227");
    check_ids(t, "\xe3\x80\x80YY\xe3\x80\x80", &plain, "257");
    check_ids(t, "\x80YY \x80", &plain, "128 257 128");
    tokenizer_free(t);
    buf_release(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_reference),      cmocka_unit_test(test_taint),
        cmocka_unit_test(test_taint_every_range), cmocka_unit_test(test_flags_every_code_point),
        cmocka_unit_test(test_flags_ill_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
