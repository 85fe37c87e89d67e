// Reading tokenizer.json: both forms of merges, added tokens, templates; what is not understood is refused by its name.
#include "tokenizer_fixture.h"

static const struct encode_options plain = {0};
static const struct encode_options special = {.parse_special = true};

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"

// A file with a small vocabulary; each part may be replaced.
struct file {
    const char *added, *normalizer, *pre_tokenizer, *post_processor, *decoder, *model_more, *vocab, *merges, *more;
};
static const struct file usual = {
    .added = "[]",
    .normalizer = "null",
    .pre_tokenizer = BYTE_LEVEL,
    .post_processor = "null",
    .decoder = "{\"type\":\"ByteLevel\"}",
    .model_more = "",
    .vocab = "{\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3,\"\\u0120a\":4,\"\\\"\":5}",
    .merges = "[\"a b\",[\"\\u0120\",\"a\"]]",
    .more = "",
};

static void file_text(struct buf *out, const struct file *f) {
    buf_init(out, 1u << 20);
    buf_putf(out,
             "{\"version\":\"1.0\",\"truncation\":null,\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,"
             "\"post_processor\":%s,\"decoder\":%s,\"model\":{\"type\":\"BPE\",%s\"vocab\":%s,\"merges\":%s}%s}",
             f->added, f->normalizer, f->pre_tokenizer, f->post_processor, f->decoder, f->model_more, f->vocab,
             f->merges, f->more);
}

static struct tokenizer *make(const struct file *f) {
    struct buf text;
    file_text(&text, f);
    struct tokenizer *t = json_tokenizer(text.data);
    buf_release(&text);
    return t;
}

static void refused(const struct file *f, enum tern_status status, const char *word) {
    struct buf text;
    file_text(&text, f);
    struct tokenizer_source src = {.tokenizer_json = buf_str(&text), .bos = -1, .eos = -1, .add_bos = -1};
    check_refused(&src, status, word, NULL);
    buf_release(&text);
}

static void test_sound(void **state) {
    (void)state;
    struct tokenizer *t = make(&usual);
    assert_int_equal(tokenizer_size(t), 6);
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_bos(t), -1);
    assert_null(tokenizer_note(t));
    check_ids(t, "ab a\"", &plain, "3 4 5");
    tokenizer_free(t);
}

static void test_added(void **state) {
    (void)state;
    struct file f = usual;
    f.added = "[{\"id\":9,\"content\":\"<e\\u006ed>\",\"special\":true,\"normalized\":false,\"future\":[1,{}]},"
              "{\"id\":3,\"content\":\"ab\",\"special\":false,\"normalized\":true}]";
    struct tokenizer *t = make(&f);
    assert_int_equal(tokenizer_size(t), 10); // ids 6 to 8 have no text
    assert_int_equal(tokenizer_token_bytes(t, 7).len, 0);
    assert_int_equal(tokenizer_find(t, STR("<end>")), 9);
    assert_int_equal(tokenizer_find(t, STR("ab")), 3);
    assert_true(tokenizer_is_control(t, 9));
    assert_false(tokenizer_is_control(t, 3));
    check_ids(t, "aab<end>", &special, "0 3 9");
    tokenizer_free(t);

    f.added = "[{\"id\":0,\"content\":\"a\",\"single_word\":true}]"; // still the byte's token inside words
    t = make(&f);
    check_ids(t, "a ab", &plain, "0 2 3");
    tokenizer_free(t);
    f.vocab = "{\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3,\"\\u0120a\":4,\"\\u00e9\":5}";
    f.added = "[{\"id\":5,\"content\":\"\\u00e9\"}]"; // byte 0xe9, or the letter?
    refused(&f, TERN_UNSUPPORTED, "token 5");
    f.vocab = usual.vocab;

    f.added = "[{\"id\":3,\"content\":\"zz\"}]"; // the id is another token's
    refused(&f, TERN_BAD_FORMAT, "id 3");
    f.added = "[{\"id\":1048576,\"content\":\"zz\"}]";
    refused(&f, TERN_BAD_FORMAT, "integer");
    f.added = "[{\"content\":\"zz\"}]";
    refused(&f, TERN_BAD_FORMAT, "an id");
    f.added = "[{\"id\":9}]";
    refused(&f, TERN_BAD_FORMAT, "content");
    f.added = "[{\"id\":9,\"content\":\"x\",\"special\":1}]";
    refused(&f, TERN_BAD_FORMAT, "special");
    f.added = "[7]";
    refused(&f, TERN_BAD_FORMAT, "added token");
    f.added = "{}";
    refused(&f, TERN_BAD_FORMAT, "added_tokens");
    f.added = "[{\"id\":9,\"content\":\"x\"},{\"id\":9,\"content\":\"y\"}]";
    refused(&f, TERN_BAD_FORMAT, "id 9");
    f.added = "[{\"id\":9,\"content\":\"x\"},{\"id\":10,\"content\":\"x\"}]";
    refused(&f, TERN_BAD_FORMAT, "same text");
}

static void test_model_refused(void **state) {
    (void)state;
    static const struct {
        const char *more, *vocab, *merges;
        enum tern_status status;
        const char *word;
    } bad[] = {
        {.more = "\"dropout\":0.1,", .status = TERN_UNSUPPORTED, .word = "dropout"},
        {.more = "\"byte_fallback\":true,", .status = TERN_UNSUPPORTED, .word = "byte_fallback"},
        {.more = "\"continuing_subword_prefix\":\"##\",", .status = TERN_UNSUPPORTED, .word = "prefix"},
        {.more = "\"end_of_word_suffix\":\"</w>\",", .status = TERN_UNSUPPORTED, .word = "suffix"},
        {.more = "\"type\":\"Unigram\",", .status = TERN_UNSUPPORTED, .word = "Unigram"},
        {.vocab = "[[\"a\",0.5]]", .status = TERN_BAD_FORMAT, .word = "vocab"},
        {.vocab = "{\"a\":-1}", .status = TERN_BAD_FORMAT, .word = "integer"},
        {.vocab = "{\"a\":0.5}", .status = TERN_BAD_FORMAT, .word = "integer"},
        {.vocab = "{\"a\":1048576}", .status = TERN_BAD_FORMAT, .word = "integer"},
        {.vocab = "{\"a\":0,\"b\":0}", .merges = "[]", .status = TERN_BAD_FORMAT, .word = "id 0"},
        {.vocab = "{\"a\":0,\"a\":1}", .merges = "[]", .status = TERN_BAD_FORMAT, .word = "same text"},
        {.vocab = "{}", .merges = "[]", .status = TERN_BAD_FORMAT, .word = "no tokens"},
        {.merges = "[\"ab\"]", .status = TERN_BAD_FORMAT, .word = "merge 1"},
        {.merges = "[\"a b\",\"a  b\"]", .status = TERN_BAD_FORMAT, .word = "merge 2"},
        {.merges = "[\"a b\",[\"a\"]]", .status = TERN_BAD_FORMAT, .word = "merge 2"},
        {.merges = "[\"a b\",[\"a\",\"b\",\"c\"]]", .status = TERN_BAD_FORMAT, .word = "merge 2"},
        {.merges = "[\"a b\",[]]", .status = TERN_BAD_FORMAT, .word = "merge 2"},
        {.merges = "[\"a b\",5]", .status = TERN_BAD_FORMAT, .word = "merge 2"},
        {.merges = "[\"a b\",[[\"a\"],\"b\"]]", .status = TERN_BAD_FORMAT, .word = "merge 2"},
        {.merges = "[\"a b\",\"b z\"]", .status = TERN_BAD_FORMAT, .word = "merge 2 of 2"},
        {.merges = "[\"a b\",\"b a\"]", .status = TERN_BAD_FORMAT, .word = "merge 2 of 2"},
        {.merges = "{}", .status = TERN_BAD_FORMAT, .word = "merges"},
        {.more = "\"merges\":[],", .status = TERN_BAD_FORMAT, .word = "once"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct file f = usual;
        if (bad[i].more) f.model_more = bad[i].more;
        if (bad[i].vocab) f.vocab = bad[i].vocab;
        if (bad[i].merges) f.merges = bad[i].merges;
        refused(&f, bad[i].status, bad[i].word);
    }
    struct file f = usual; // none of these changes anything
    f.model_more = "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null,"
                   "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":true,";
    f.vocab = "{\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3,\"\\u0120a\":4,\"\\\"\":5,\"ba\":6}";
    struct tokenizer *t = make(&f);
    check_ids(t, "ba", &plain, "6"); // ignore_merges: no merge makes it
    assert_null(tokenizer_note(t));
    tokenizer_free(t);
    f.normalizer = "{\"type\":\"NFC\"}"; // is the caller's, which the note says
    t = make(&f);
    assert_non_null(strstr(tokenizer_note(t), "NFC"));
    tokenizer_free(t);
}

static void test_components_refused(void **state) {
    (void)state;
    static const struct {
        const char *normalizer, *pre, *post, *decoder, *word;
    } bad[] = {
        {.normalizer = "{\"type\":\"NFKC\"}", .word = "NFKC"},
        {.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}", .word = "Lowercase"},
        {.pre = "null", .word = "ByteLevel"},
        {.pre = "{\"type\":\"Metaspace\"}", .word = "Metaspace"},
        {.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}", .word = "add_prefix_space"},
        {.pre = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", .word = "pattern"},
        {.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+x\"},"
                "\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL "]}",
         .word = "\\w+x"},
        {.pre =
             "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":false}," BYTE_LEVEL
             "]}",
         .word = "Digits"},
        {.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL "," BYTE_LEVEL "]}", .word = "ByteLevel"},
        {.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\",\"pretokenizers\":[]}]}",
         .word = "sequence"},
        {.post = "{\"type\":\"BertProcessing\"}", .word = "BertProcessing"},
        {.post =
             "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"z\"}}],\"special_tokens\":{}}",
         .word = "TemplateProcessing"},
        {.decoder = "{\"type\":\"WordPiece\"}", .word = "WordPiece"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct file f = usual;
        if (bad[i].normalizer) f.normalizer = bad[i].normalizer;
        if (bad[i].pre) f.pre_tokenizer = bad[i].pre;
        if (bad[i].post) f.post_processor = bad[i].post;
        if (bad[i].decoder) f.decoder = bad[i].decoder;
        refused(&f, TERN_UNSUPPORTED, bad[i].word);
    }
}

#define TEMPLATE(before, after)                                                                       \
    "{\"type\":\"TemplateProcessing\",\"single\":[" before "{\"Sequence\":{\"id\":\"A\"}}" after "]," \
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[7],\"tokens\":[\"<s>\"]}}}"
#define START "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"

static void test_template(void **state) {
    (void)state;
    struct file f = usual;
    f.added = "[{\"id\":7,\"content\":\"<s>\",\"special\":true}]";
    f.post_processor = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE(START ",", "") "]}";
    struct tokenizer *t = make(&f);
    assert_true(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_bos(t), 7);
    assert_null(tokenizer_note(t));
    tokenizer_free(t);
    f.post_processor = TEMPLATE("", "," START);
    t = make(&f);
    assert_false(tokenizer_adds_bos(t));
    assert_non_null(strstr(tokenizer_note(t), "<s>"));
    tokenizer_free(t);
    f.post_processor = TEMPLATE(START "," START ",", "");
    refused(&f, TERN_UNSUPPORTED, "TemplateProcessing");
    f.added = "[]"; // the bos is no token
    f.post_processor = TEMPLATE(START ",", "");
    refused(&f, TERN_BAD_FORMAT, "bos");
}

static void test_not_a_tokenizer(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {{"{}", "no model"},
               {"[]", "object"},
               {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "model.merges"},
               {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "model.vocab"},
               {"{\"model\":", "JSON"},
               {"{\"model\":null}", "model"},
               {"{\"normalizer\":{\"a\":1,\"a\":1},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}", "normalizer"},
               {"<html>", "JSON"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tokenizer_source src = {.tokenizer_json = str_from(bad[i].text), .bos = -1, .eos = -1, .add_bos = -1};
        check_refused(&src, TERN_BAD_FORMAT, bad[i].word, NULL);
    }
    struct file f = usual;
    f.more = "} x";
    refused(&f, TERN_BAD_FORMAT, "JSON");
}

static void test_out_of_memory(void **state) {
    (void)state;
    struct file f = usual;
    f.added = "[{\"id\":7,\"content\":\"<\\u0073>\",\"special\":true}]";
    f.post_processor = TEMPLATE(START ",", "," START);
    struct buf text;
    file_text(&text, &f);
    struct tokenizer_source src = {.tokenizer_json = buf_str(&text), .bos = -1, .eos = -1, .add_bos = -1};
    uint64_t live = mem_stats_get().n_live;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct tokenizer *t = NULL;
        struct tern_err err;
        mem_fail_at(n, false);
        enum tern_status status = tokenizer_create(&t, &src, &err);
        mem_fail_at(0, false);
        done = status == TERN_OK;
        if (!done) assert_int_equal(status, TERN_NO_MEMORY);
        tokenizer_free(t);
        assert_int_equal(mem_stats_get().n_live, live);
        assert_true(n < 1000);
    }
    buf_release(&text);
}

// The arrays of a GGUF file make the same tokenizer; ids without a token become padding; memory failing is told.
static void test_export(void **state) {
    (void)state;
    struct file f = usual;
    f.added = "[{\"id\":9,\"content\":\"<e\\u006ed>\",\"special\":true},{\"id\":3,\"content\":\"ab\"}]";
    struct buf text;
    file_text(&text, &f);
    struct tokenizer_export *x = NULL;
    struct tern_err err = {0};
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        mem_fail_at(n, false);
        enum tern_status status = tokenizer_export_create(&x, buf_str(&text), 12, false, &err);
        mem_fail_at(0, false);
        done = status == TERN_OK;
        if (!done) assert_int_equal(status, TERN_NO_MEMORY);
        assert_true(n < 1000);
    }
    static const int32_t types[12] = {1, 1, 1, 4, 1, 1, 5, 5, 5, 3, 5, 5};
    assert_int_equal(x->n_tokens, 12);
    assert_memory_equal(x->types, types, sizeof types);
    assert_true(str_eqz(x->tokens[7], "[PAD7]"));
    assert_true(str_eqz(x->tokens[9], "<end>"));
    assert_int_equal(x->n_merges, 2);
    assert_true(str_eqz(x->merges[0], "a b"));
    assert_string_equal(x->pre, "gpt-2");
    assert_false(x->adds_bos || x->differs);
    struct tokenizer_source src = {.tokens = x->tokens,
                                   .n_tokens = 12,
                                   .types = x->types,
                                   .merges = x->merges,
                                   .n_merges = 2,
                                   .pre = str_from(x->pre),
                                   .bos = -1,
                                   .eos = -1,
                                   .add_bos = -1};
    struct tokenizer *t;
    if (tokenizer_create(&t, &src, &err) != TERN_OK) fail_msg("%s", err.message);
    check_ids(t, "aab<end> a", &special, "0 3 9 4");
    tokenizer_free(t);
    tokenizer_export_free(x);
    assert_int_equal(tokenizer_export_create(&x, buf_str(&text), 5, false, &err), TERN_BAD_FORMAT); // id 5 of 5 rows
    // An added token without a row is left out, in both forms.
    assert_int_equal(tokenizer_export_create(&x, buf_str(&text), 9, false, &err), TERN_OK);
    assert_memory_equal(x->types, types, 9 * sizeof *types);
    tokenizer_export_free(x);
    src = (struct tokenizer_source){
        .tokenizer_json = buf_str(&text), .n_vocab_rows = 9, .bos = -1, .eos = -1, .add_bos = -1};
    if (tokenizer_create(&t, &src, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_non_null(strstr(tokenizer_note(t), "token 9 \"<end>\" has no row"));
    assert_int_equal(tokenizer_find(t, STR("<end>")), -1);
    tokenizer_free(t);
    src.bos = 9;
    assert_int_equal(tokenizer_create(&t, &src, &err), TERN_BAD_FORMAT);
    buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_added),
        cmocka_unit_test(test_model_refused),
        cmocka_unit_test(test_components_refused),
        cmocka_unit_test(test_template),
        cmocka_unit_test(test_not_a_tokenizer),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
