// Vocabularies spelled as text: the ids of the `tokenizers` package (test/data/tokenizer/plain.*,
// tools/vectors/make_plain_tokenizer.py), from tokenizer.json with its merges and from the same pieces with scores, as
// GGUF files have them and as `tern quantize` writes them; text comes back from its ids; what is not understood is
// refused.
#include "base/base.h"
#include "text/text.h"
#include "../common/json_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define PLAIN TEST_DATA "/tokenizer/plain"
#define FILE_MAX (1u << 20)
#define TOKENS_MAX 1024

static struct buf json, golden;
static struct tokenizer *from_json, *from_scores, *from_export;
static struct tokenizer_export *exported;

// The file's vocabulary as GGUF arrays.
struct pieces {
    struct str tokens[TOKENS_MAX];
    int32_t types[TOKENS_MAX];
    float scores[TOKENS_MAX];
    struct json_file file;
    struct tokenizer_source src;
};

static void pieces_read(struct pieces *p) {
    *p = (struct pieces){.src = {.kind = STR("llama"), .bos = 2, .eos = 1, .add_bos = -1, .add_blank = 0}};
    json_text_read(&p->file, buf_str(&json));
    JSON_EACH(t, json_get(json_get(p->file.root, "model"), "vocab")) {
        assert_true(t->integer < TOKENS_MAX);
        p->tokens[t->integer] = t->key;
        p->types[t->integer] = t->integer < 6 ? 3 : t->integer < 6 + 256 ? 6 : 1;
        p->scores[t->integer] = -(float)t->integer;
        p->src.n_tokens++;
    }
    p->src.tokens = p->tokens;
    p->src.types = p->types;
    p->src.scores = p->scores;
}

static int begin(void **state) {
    (void)state;
    struct tern_err err = {0};
    static struct pieces p;
    buf_init(&json, FILE_MAX);
    buf_init(&golden, FILE_MAX);
    if (file_read_all(&json, PLAIN ".json", &err) != TERN_OK || file_read_all(&golden, PLAIN ".txt", &err) != TERN_OK)
        fail_msg("%s", err.message);
    struct tokenizer_source src = {.tokenizer_json = buf_str(&json), .bos = -1, .eos = -1, .add_bos = -1};
    if (tokenizer_create(&from_json, &src, &err) != TERN_OK) fail_msg("%s", err.message);
    pieces_read(&p);
    if (tokenizer_create(&from_scores, &p.src, &err) != TERN_OK) fail_msg("%s", err.message);
    json_file_release(&p.file);
    if (tokenizer_export_create(&exported, buf_str(&json), tokenizer_size(from_json) + 1, false, &err) != TERN_OK)
        fail_msg("%s", err.message);
    src = (struct tokenizer_source){.kind = STR("llama"),
                                    .tokens = exported->tokens,
                                    .n_tokens = exported->n_tokens,
                                    .types = exported->types,
                                    .scores = exported->scores,
                                    .bos = 2,
                                    .eos = 1,
                                    .add_bos = exported->adds_bos,
                                    .add_blank = 0};
    if (tokenizer_create(&from_export, &src, &err) != TERN_OK) fail_msg("%s", err.message);
    return 0;
}

static int end(void **state) {
    (void)state;
    tokenizer_free(from_json);
    tokenizer_free(from_scores);
    tokenizer_free(from_export);
    tokenizer_export_free(exported);
    buf_release(&json);
    buf_release(&golden);
    return 0;
}

static void check_line(const struct tokenizer *t, struct str text, struct str ids, const char *what) {
    static const struct encode_options special = {.parse_special = true};
    struct id_list list = {0};
    struct tern_err err = {0};
    struct buf shown, back;
    struct detok d;
    if (tokenizer_encode(t, &list, text, &special, &err) != TERN_OK) fail_msg("%s", err.message);
    buf_init(&shown, FILE_MAX);
    buf_init(&back, FILE_MAX);
    buf_puts(&back, "");
    detok_init(&d, t, true);
    for (size_t i = 0; i < list.len; i++) {
        buf_putf(&shown, "%s%d", i ? " " : "", list.ids[i]);
        detok_put(&d, list.ids[i], &back);
    }
    detok_flush(&d, &back);
    if (!str_eq(buf_str(&shown), ids))
        fail_msg("%s: '%.*s': %.*s instead of %.*s", what, (int)text.len, text.data, (int)shown.len, shown.data,
                 (int)ids.len, ids.data);
    bool has_blank = str_find(text, STR("\xe2\x96\x81"), 0) != (size_t)-1; // comes back as a blank
    if (!has_blank && !str_eq(buf_str(&back), text))
        fail_msg("%s: '%.*s' comes back as '%.*s'", what, (int)text.len, text.data, (int)back.len, back.data);
    buf_release(&shown);
    buf_release(&back);
    id_list_release(&list);
}

static void test_golden(void **state) {
    (void)state;
    int n = 0;
    for (size_t at = 0; at < golden.len; n++) {
        size_t tab = str_find(buf_str(&golden), STR("\t"), at), stop = str_find(buf_str(&golden), STR("\n"), at);
        assert_true(tab != (size_t)-1 && stop != (size_t)-1 && tab < stop);
        struct json_file line;
        json_text_read(&line, (struct str){golden.data + tab + 1, stop - tab - 1});
        struct str ids = {golden.data + at, tab - at};
        check_line(from_json, line.root->text, ids, "merges");
        check_line(from_scores, line.root->text, ids, "scores");
        check_line(from_export, line.root->text, ids, "scores made of merges");
        json_file_release(&line);
        at = stop + 1;
    }
    assert_int_equal(n, 18);
    assert_true(tokenizer_adds_bos(from_json) && tokenizer_bos(from_json) == 2);
    assert_true(tokenizer_adds_bos(from_scores) && tokenizer_is_control(from_json, 5));
    assert_null(tokenizer_note(from_json));
}

// The arrays that the file becomes.
static void test_export(void **state) {
    (void)state;
    int n = exported->n_tokens, last = tokenizer_size(from_json) - 1;
    assert_true(exported->adds_bos && !exported->differs && exported->unk == 3 && exported->n_merges == 0);
    assert_string_equal(exported->pre, "default");
    assert_true(exported->types[0] == 3 && exported->types[3] == 2 && exported->types[6] == 6);
    assert_true(exported->types[last] == 1 && exported->types[n - 1] == 5);
    int n_made = 0;
    for (int i = 0; i < n; i++) n_made += exported->scores[i] > -1000;
    assert_true(n_made > 10 && n_made < n);
    // Merges in another order than one of tokens cannot be said by scores.
    struct buf b;
    struct tokenizer_export *x;
    struct tern_err err = {0};
    buf_init(&b, FILE_MAX);
    size_t at = str_find(buf_str(&json), STR("\"merges\":["), 0), begin, stop;
    assert_true(at != (size_t)-1);
    begin = at + strlen("\"merges\":[");
    stop = str_find(buf_str(&json), STR("]"), begin) + 1; // of the first merge
    assert_true(json.data[stop] == ',');
    size_t close = str_find(buf_str(&json), STR("]]"), begin) + 1;
    buf_put(&b, json.data, begin);
    buf_put(&b, json.data + stop + 1, close - stop - 1);
    buf_putc(&b, ']'); // without the first merge: its token can be cut in two and no merge makes it
    buf_put(&b, json.data + close + 1, json.len - close - 1);
    if (tokenizer_export_create(&x, buf_str(&b), n, false, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_true(x->differs);
    tokenizer_export_free(x);
    buf_release(&b);
}

// Bytes that are no characters are spelled by byte tokens.
static void test_bytes(void **state) {
    (void)state;
    static const struct encode_options none = {0};
    struct id_list ids = {0};
    struct tern_err err;
    assert_int_equal(tokenizer_encode(from_scores, &ids, (struct str){"\xff\xe2\x96", 3}, &none, &err), TERN_OK);
    assert_true(ids.len == 3 && ids.ids[0] == 6 + 0xff && ids.ids[1] == 6 + 0xe2 && ids.ids[2] == 6 + 0x96);
    id_list_release(&ids);
}

static void check_refused(const struct tokenizer_source *src, enum tern_status status, const char *text) {
    struct tokenizer *t = NULL;
    struct tern_err err = {0};
    if (tokenizer_create(&t, src, &err) != status || !strstr(err.message, text))
        fail_msg("'%s' is not in: %s", text, err.message);
    assert_null(t);
}

static void test_refused(void **state) {
    (void)state;
    static struct pieces p;
    pieces_read(&p);
    p.src.add_blank = -1;
    check_refused(&p.src, TERN_UNSUPPORTED, "add_space_prefix is not false");
    p.src.add_blank = 0;
    p.src.scores = NULL;
    check_refused(&p.src, TERN_BAD_FORMAT, "needs a score");
    p.src.scores = p.scores;
    p.scores[300] = __builtin_nanf("");
    check_refused(&p.src, TERN_BAD_FORMAT, "the score of token 300");
    json_file_release(&p.file);
    static const struct {
        const char *from, *to, *text;
    } changes[] = {
        {"\"byte_fallback\":true", "\"byte_fallback\":false", "byte_fallback is supported together with"},
        {"\"type\":\"Replace\",\"pattern\":{\"String\":\" \"}", "\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"}",
         "byte_fallback is supported together with"},
        {"\"type\":\"Split\"", "\"type\":\"Splat\"", "Splat"},
        {"\"type\":\"Fuse\"", "\"type\":\"Fume\"", "Fume"},
    };
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        struct buf b;
        size_t at = str_find(buf_str(&json), str_from(changes[i].from), 0), n = strlen(changes[i].from);
        assert_true(at != (size_t)-1);
        buf_init(&b, FILE_MAX);
        buf_put(&b, json.data, at);
        buf_puts(&b, changes[i].to);
        buf_put(&b, json.data + at + n, json.len - at - n);
        struct tokenizer_source src = {.tokenizer_json = buf_str(&b), .bos = -1, .eos = -1, .add_bos = -1};
        check_refused(&src, TERN_UNSUPPORTED, changes[i].text);
        buf_release(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("vocabularies spelled as text", tests, begin, end);
}
