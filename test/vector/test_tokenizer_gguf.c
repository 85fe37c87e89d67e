// Tokenizers out of model files: pico.gguf gives the golden ids and the same as its tokenizer.json.
#include "base/base.h"
#include "model/model.h"
#include "text/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct tokenizer *from_gguf, *from_json;

static struct tokenizer *gguf_tokenizer(const char *path) {
    struct tern_err err;
    struct model *m;
    struct tokenizer *t;
    if (model_open(&m, path, &err) != TERN_OK) fail_msg("%s", err.message);
    const struct model_vocab *v = &m->vocab;
    struct tokenizer_source src = {.tokens = v->tokens,
                                   .n_tokens = v->n_tokens,
                                   .types = v->types,
                                   .merges = v->merges,
                                   .n_merges = v->n_merges,
                                   .pre = v->pre,
                                   .n_vocab_rows = m->hyper.n_vocab,
                                   .bos = v->bos,
                                   .eos = v->eos,
                                   .add_bos = v->add_bos};
    if (tokenizer_create(&t, &src, &err) != TERN_OK) fail_msg("%s", err.message);
    model_close(m);
    return t;
}

static struct tokenizer *json_file_tokenizer(const char *path) {
    struct tern_err err;
    struct buf file;
    struct tokenizer *t;
    buf_init(&file, 16u << 20);
    if (file_read_all(&file, path, &err) != TERN_OK) fail_msg("%s", err.message);
    struct tokenizer_source src = {.tokenizer_json = buf_str(&file), .bos = -1, .eos = -1, .add_bos = -1};
    if (tokenizer_create(&t, &src, &err) != TERN_OK) fail_msg("%s", err.message);
    buf_release(&file);
    return t;
}

static void test_same_vocabulary(void **state) {
    (void)state;
    assert_int_equal(tokenizer_size(from_gguf), tokenizer_size(from_json));
    for (int32_t id = 0; id < tokenizer_size(from_gguf); id++) {
        assert_true(str_eq(tokenizer_token_bytes(from_gguf, id), tokenizer_token_bytes(from_json, id)));
        assert_int_equal(tokenizer_is_control(from_gguf, id), tokenizer_is_control(from_json, id));
    }
    assert_int_equal(tokenizer_bos(from_gguf), 1);
    assert_true(tokenizer_adds_bos(from_gguf) && tokenizer_adds_bos(from_json));
    assert_null(tokenizer_note(from_gguf));
}

static void row_check(struct json *j, int row) {
    struct json_item item;
    struct buf text;
    struct id_list ids = {0}, got[2] = {{0}};
    const struct tokenizer *both[] = {from_gguf, from_json};
    buf_init(&text, 1u << 20);
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
    for (int i = 0; i < 2; i++) {
        struct encode_options o = {.parse_special = true};
        assert_int_equal(tokenizer_encode(both[i], &got[i], buf_str(&text), &o, NULL), TERN_OK);
        if (got[i].len != ids.len || (ids.len > 0 && memcmp(got[i].ids, ids.ids, ids.len * sizeof *ids.ids) != 0)) {
            fail_msg("row %d differs (%s)", row, i ? "tokenizer.json" : "GGUF");
        }
        id_list_release(&got[i]);
    }
    buf_release(&text);
    id_list_release(&ids);
}

static void test_golden(void **state) {
    (void)state;
    struct tern_err err;
    struct buf file;
    int n_rows = 0;
    buf_init(&file, 1u << 20);
    if (file_read_all(&file, TEST_DATA "/tokenizer/pico.jsonl", &err) != TERN_OK) fail_msg("%s", err.message);
    for (size_t at = 0; at < file.len;) {
        size_t end = str_find(buf_str(&file), STR("\n"), at);
        struct json *j;
        struct json_item item;
        assert_int_equal(json_create(&j, (struct str){file.data + at, end - at}, NULL, NULL), TERN_OK);
        assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
        row_check(j, ++n_rows);
        json_free(j);
        at = end + 1;
    }
    assert_int_equal(n_rows, 210);
    buf_release(&file);
}

int main(void) {
    from_gguf = gguf_tokenizer(TEST_MODELS "/pico.gguf");
    from_json = json_file_tokenizer(TEST_MODELS "/tokenizer.json");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_vocabulary), cmocka_unit_test(test_golden)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tokenizer_free(from_gguf);
    tokenizer_free(from_json);
    return failed;
}
