// Making a tokenizer from GGUF arrays: what is refused and how, what is assumed, and what the object tells.
#include "tokenizer_fixture.h"

static const struct encode_options plain = {0};
static const struct encode_options special = {.parse_special = true};

static void test_sound(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    int th = fixture_token(&f, "th", 1), the = fixture_token(&f, "the", 1), bos = fixture_token(&f, "<s>", 3);
    fixture_merge(&f, "t h");
    fixture_merge(&f, "th e");
    f.src.bos = bos;
    f.src.n_vocab_rows = 300; // more rows than tokens are padding
    struct tokenizer *t = fixture_create(&f);
    assert_int_equal(tokenizer_size(t), 259);
    assert_true(tokenizer_adds_bos(t)); // the family does
    assert_int_equal(tokenizer_bos(t), bos);
    assert_null(tokenizer_note(t));
    assert_true(str_eqz(tokenizer_token_bytes(t, the), "the"));
    assert_true(str_eqz(tokenizer_token_bytes(t, bos), "<s>"));
    assert_int_equal(tokenizer_token_bytes(t, 259).len, 0);
    assert_int_equal(tokenizer_token_bytes(t, -1).len, 0);
    assert_int_equal(tokenizer_token_bytes(t, 0).len, 1);
    assert_true(tokenizer_is_control(t, bos));
    assert_false(tokenizer_is_control(t, the) || tokenizer_is_control(t, 259) || tokenizer_is_control(t, -1));
    assert_int_equal(tokenizer_find(t, STR("<s>")), bos);
    assert_int_equal(tokenizer_find(t, STR("the")), -1);
    assert_int_equal(tokenizer_find(t, STR("")), -1);
    check_ids(t, "the th <s>", &special, "257 32 256 32 258");
    check_ids(t, "<s>", &plain, "60 115 62");
    check_ids(t, "the", &(struct encode_options){.add_bos = true}, "258 257");
    check_ids(t, "", &(struct encode_options){.add_bos = true}, "258");
    check_ids(t, "", &special, "");
    assert_int_equal(th, 256);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

static void test_bos(void **state) {
    (void)state;
    struct fixture f;
    struct id_list ids = {0};
    struct tern_err err;
    fixture_init(&f);
    struct tokenizer *t = fixture_create(&f);
    assert_false(tokenizer_adds_bos(t)); // the family would, but there is none
    assert_int_equal(tokenizer_encode(t, &ids, STR("x"), &(struct encode_options){.add_bos = true}, &err),
                     TERN_INVALID_ARGUMENT);
    assert_int_equal(ids.len, 0);
    tokenizer_free(t);
    f.src.add_bos = 1;
    check_refused(&f.src, TERN_BAD_FORMAT, "bos", NULL);
    f.src.bos = 65;
    f.src.add_bos = 0;
    t = fixture_create(&f);
    assert_false(tokenizer_adds_bos(t));
    tokenizer_free(t);
}

static void test_merges_refused(void **state) {
    (void)state;
    static const struct {
        const char *merge, *word;
    } bad[] = {{"th", "one blank"}, {"t  h", "one blank"},       {" th", "one blank"}, {"th ", "one blank"},
               {"", "one blank"},   {"t h e", "one blank"},      {"q Q", "together"},  {"xyz h", "left"},
               {"t xyz", "right"},  {"t \xe4\xb8\xad", "right"}, {"\x01 t", "left"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct fixture f;
        fixture_init(&f);
        fixture_token(&f, "th", 1);
        fixture_merge(&f, "t h");
        fixture_merge(&f, bad[i].merge);
        check_refused(&f.src, TERN_BAD_FORMAT, "merge 2 of 2", bad[i].word, NULL);
    }
    struct fixture f;
    fixture_init(&f);
    fixture_token(&f, "th", 1);
    fixture_merge(&f, "t h");
    fixture_merge(&f, "t h");
    check_refused(&f.src, TERN_BAD_FORMAT, "merge 2 of 2", "repeats merge 1", NULL);
    f.src.n_merges = (int)BPE_MERGES_MAX + 1;
    check_refused(&f.src, TERN_LIMIT, "merges", NULL);
}

// Fewer tokens than rows: the last ones may be left out, and then the merges that lead to them.
static void test_merges_of_cut_tokens(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_token(&f, "ab", 1);
    fixture_merge(&f, "a b");
    fixture_merge(&f, "t h");
    fixture_merge(&f, "th e");
    f.src.n_vocab_rows = 259;
    struct tokenizer *t = fixture_create(&f);
    assert_non_null(strstr(tokenizer_note(t), "2 merges"));
    assert_non_null(strstr(tokenizer_note(t), "257 of 259"));
    check_ids(t, "abthe", &plain, "256 116 104 101");
    tokenizer_free(t);
    f.src.n_vocab_rows = 258; // one row is too few for two tokens
    check_refused(&f.src, TERN_BAD_FORMAT, "merge 3 of 3", "together", NULL);
    f.src.n_vocab_rows = 300;
    fixture_merge(&f, "q zz"); // nothing leads to zz
    check_refused(&f.src, TERN_BAD_FORMAT, "merge 4 of 4", "right", NULL);
}

static void check_token_refused(const char *text, int32_t type, enum tern_status status, const char *word) {
    struct fixture f;
    fixture_init(&f);
    fixture_token(&f, "<s>", 3);
    fixture_token(&f, text, type);
    check_refused(&f.src, status, word, "257", NULL);
}

static void test_tokens_refused(void **state) {
    (void)state;
    check_token_refused("t", 1, TERN_BAD_FORMAT, "same text");
    check_token_refused("<s>", 3, TERN_BAD_FORMAT, "same text");
    check_token_refused("<s>", 4, TERN_BAD_FORMAT, "same text");
    check_token_refused("a b", 1, TERN_BAD_FORMAT, "byte alphabet");
    check_token_refused("\xe4\xb8\xad", 1, TERN_BAD_FORMAT, "byte alphabet");
    check_token_refused("\xc5\x84", 1, TERN_BAD_FORMAT, "byte alphabet"); // U+0144, one past its end
    check_token_refused("\xc2\xad", 1, TERN_BAD_FORMAT, "byte alphabet"); // U+00AD is spelled U+0143
    check_token_refused("ab\xff", 1, TERN_BAD_FORMAT, "not valid UTF-8");
    check_token_refused("<\xe2\x82", 3, TERN_BAD_FORMAT, "not valid UTF-8");
    check_token_refused("x", 0, TERN_BAD_FORMAT, "type 0");
    check_token_refused("x", 7, TERN_BAD_FORMAT, "type 7");
    check_token_refused("<0xG0>", 6, TERN_BAD_FORMAT, "byte token");
    check_token_refused("<0x-1>", 6, TERN_BAD_FORMAT, "byte token");
    check_token_refused("<0x010>", 6, TERN_BAD_FORMAT, "byte token");
    char *longest = malloc(TOKENIZER_TOKEN_BYTES_MAX + 2);
    memset(longest, 'a', TOKENIZER_TOKEN_BYTES_MAX + 1);
    longest[TOKENIZER_TOKEN_BYTES_MAX + 1] = 0;
    check_token_refused(longest, 1, TERN_LIMIT, "bytes long");
    longest[TOKENIZER_MARKER_BYTES_MAX + 1] = 0;
    check_token_refused(longest, 3, TERN_LIMIT, "bytes long");
    free(longest);
}

static void test_ids_refused(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.src.n_vocab_rows = 255;
    check_refused(&f.src, TERN_BAD_FORMAT, "255 rows", NULL);
    f.src.n_vocab_rows = 256;
    f.src.eos = 256;
    check_refused(&f.src, TERN_BAD_FORMAT, "eos", "256", NULL);
    f.src.eos = -2;
    check_refused(&f.src, TERN_BAD_FORMAT, "eos", NULL);
    f.src.eos = 255;
    f.src.bos = 99999;
    check_refused(&f.src, TERN_BAD_FORMAT, "bos", "99999", NULL);
    f.src.bos = -1;
    f.src.n_tokens = 0;
    check_refused(&f.src, TERN_BAD_FORMAT, "no tokens", NULL);
    f.src.n_tokens = (int)TOKENIZER_VOCAB_MAX + 1;
    check_refused(&f.src, TERN_LIMIT, "tokens", NULL);
}

static void test_notes(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    f.src.pre = STR("strange\n");
    struct tokenizer *t = fixture_create(&f);
    assert_non_null(strstr(tokenizer_note(t), "'strange\\x0a'"));
    assert_non_null(strstr(tokenizer_note(t), "gpt-2"));
    tokenizer_free(t);
    f.src.pre = STR("");
    f.src.types = NULL;
    t = fixture_create(&f);
    assert_non_null(strstr(tokenizer_note(t), "names no pre-tokenizer"));
    assert_non_null(strstr(tokenizer_note(t), "no token types"));
    tokenizer_free(t);
}

// A piece that is a token as a whole is taken as it is by the families that ignore merges, and merged by the others.
static void test_ignore_merges(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_token(&f, "abc", 1); // no merges lead to it
    f.src.pre = STR("lfm2");
    struct tokenizer *t = fixture_create(&f);
    check_ids(t, "abc", &plain, "256");
    check_ids(t, "abcd", &plain, "97 98 99 100");
    tokenizer_free(t);
    f.src.pre = STR("qwen2");
    t = fixture_create(&f);
    check_ids(t, "abc", &plain, "97 98 99");
    tokenizer_free(t);
}

// Neither a whole piece nor merges give a control token: only its marker does, where it may be read.
static void test_control_is_not_merged(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_token(&f, "ab", 1);
    fixture_token(&f, "abc", 3);
    fixture_merge(&f, "a b");
    fixture_merge(&f, "ab c");
    for (int i = 0; i < 2; i++) {
        f.src.pre = i ? STR("qwen2") : STR("lfm2");
        struct tokenizer *t = fixture_create(&f);
        check_ids(t, "abc", &special, "257");
        check_ids(t, "abc", &plain, "256 99");
        const struct text_range all = {0, 3};
        check_ids(t, "abc", &(struct encode_options){.parse_special = true, .tainted = &all, .n_tainted = 1}, "256 99");
        tokenizer_free(t);
    }
}

// A vocabulary that cannot spell a byte refuses it with its place; byte tokens help out.
static void test_missing_byte(void **state) {
    (void)state;
    struct fixture f;
    struct id_list ids = {0};
    struct tern_err err;
    fixture_init(&f);
    f.tokens[0xff] = STR("zz");
    struct tokenizer *t = fixture_create(&f);
    id_list_push(&ids, 7);
    assert_int_equal(tokenizer_encode(t, &ids, STR("ab \xff"), &plain, &err), TERN_UNSUPPORTED);
    assert_int_equal(err.pos, 3);
    assert_non_null(strstr(err.message, "0xff"));
    assert_int_equal(ids.len, 1); // as before
    id_list_release(&ids);
    tokenizer_free(t);
    fixture_token(&f, "<0xFF>", 6);
    t = fixture_create(&f);
    check_ids(t, "a\xff", &plain, "97 256");
    assert_true(str_eq(tokenizer_token_bytes(t, 256), STR("\xff")));
    tokenizer_free(t);
}

static void test_too_long(void **state) {
    (void)state;
    struct fixture f;
    struct id_list ids = {0};
    struct tern_err err;
    fixture_init(&f);
    struct tokenizer *t = fixture_create(&f);
    struct str text = {"x", (size_t)TEXT_INPUT_BYTES_MAX + 1}; // refused before it is looked at
    assert_int_equal(tokenizer_encode(t, &ids, text, &plain, &err), TERN_LIMIT);
    tokenizer_free(t);
}

// The n-th allocation fails, for every n: a status, and nothing is lost.
static void test_out_of_memory(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f);
    fixture_token(&f, "th", 1);
    fixture_token(&f, "<s>", 3);
    fixture_merge(&f, "t h");
    f.src.pre = STR("other");
    char text[400];
    memset(text, 't', sizeof text);
    uint64_t live = mem_stats_get().n_live;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct tokenizer *t = NULL;
        struct id_list ids = {0};
        struct tern_err err;
        mem_fail_at(n, false);
        enum tern_status status = tokenizer_create(&t, &f.src, &err);
        if (status == TERN_OK) status = tokenizer_encode(t, &ids, (struct str){text, sizeof text}, &plain, &err);
        mem_fail_at(0, false);
        done = status == TERN_OK;
        if (!done) assert_int_equal(status, TERN_NO_MEMORY);
        id_list_release(&ids);
        tokenizer_free(t);
        assert_int_equal(mem_stats_get().n_live, live);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_merges_refused),
        cmocka_unit_test(test_merges_of_cut_tokens),
        cmocka_unit_test(test_tokens_refused),
        cmocka_unit_test(test_ids_refused),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_control_is_not_merged),
        cmocka_unit_test(test_missing_byte),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
