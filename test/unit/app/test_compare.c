// Streamed answers in every cut; equal shares; summaries.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "app/compare/compare.h"

static enum tern_status read_all(enum compare_dialect d, struct str text, size_t piece, struct compare_answer *a,
                                 struct tern_err *err) {
    struct compare_stream s;
    compare_answer_init(a);
    compare_stream_init(&s, d, a);
    for (size_t i = 0; i < text.len; i += piece)
        if (!compare_stream_put(&s, (struct str){text.data + i, MIN(piece, text.len - i)})) break;
    enum tern_status status = compare_stream_end(&s, err);
    compare_stream_release(&s);
    return status;
}

static const struct {
    enum compare_dialect dialect;
    const char *text;
} streams[] = {
    {DIALECT_LLAMA_SERVER,
     "data: {\"index\":0,\"content\":\"Gr\\u00fc\",\"tokens\":[1],\"stop\":false}\r\n\r\n: ping\n\ndata: "
     "{\"content\":\"\xc3\x9f\","
     "\"stop\":false}\n\ndata: "
     "{\"content\":\"\",\"stop\":true,\"generation_settings\":{\"stop\":[\"x\"],\"content\":\"no\"},"
     "\"timings\":{\"prompt_n\":7,\"prompt_ms\":70.5,\"predicted_n\":3,\"predicted_ms\":30}}\n\n"},
    {DIALECT_OLLAMA,
     "{\"response\":\"Gr\xc3\xbc\",\"done\":false}\n{\"response\":\"\xc3\x9f\",\"done\":false}\n{\"response\":\"\","
     "\"done\":true,\"context\":[1,2],\"prompt_eval_count\":7,\"prompt_eval_duration\":70500000,\"eval_count\":3,"
     "\"eval_duration\":30000000}"},
    {DIALECT_OPENAI,
     "data: {\"choices\":[{\"text\":\"Gr\xc3\xbc\",\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"text\":"
     "\"\xc3\x9f\",\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,"
     "\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"},
};

static void test_cuts(void **state) {
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(streams); k++) {
        for (size_t piece = 1; piece < 80; piece += 3) {
            struct compare_answer a;
            struct tern_err err = {0};
            if (read_all(streams[k].dialect, str_from(streams[k].text), piece, &a, &err) != TERN_OK)
                fail_msg("%s", err.message);
            assert_string_equal(a.text.data, "Gr\xc3\xbc\xc3\x9f");
            assert_int_equal(a.n_prompt, 7);
            assert_int_equal(a.n_answer, 3);
            if (streams[k].dialect != DIALECT_OPENAI) {
                assert_true(fabs(a.prompt_s - 0.0705) < 1e-9);
                assert_true(fabs(a.answer_s - 0.03) < 1e-9);
            } else {
                assert_true(isnan(a.prompt_s) && a.answer_s >= 0);
            }
            compare_answer_release(&a);
        }
    }
}

// Every shorter stream is an error: a cut answer never counts.
static void test_truncated(void **state) {
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(streams); k++) {
        const char *over =
            strstr(streams[k].text, streams[k].dialect == DIALECT_LLAMA_SERVER ? "\"stop\":true"
                                    : streams[k].dialect == DIALECT_OLLAMA     ? "\"done\":true"
                                                                               : "\"finish_reason\":\"stop\"");
        for (size_t n = 0; n < (size_t)(over - streams[k].text); n++) {
            struct compare_answer a;
            struct tern_err err = {0};
            assert_int_not_equal(read_all(streams[k].dialect, (struct str){streams[k].text, n}, 1000, &a, &err),
                                 TERN_OK);
            assert_true(err.message[0] != 0);
            compare_answer_release(&a);
        }
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        enum compare_dialect dialect;
        const char *text, *word;
    } bad[] = {
        {DIALECT_OLLAMA, "{\"error\":\"model not found\"}\n", "model not found"},
        {DIALECT_LLAMA_SERVER, "data: {\"error\":{\"code\":1,\"message\":\"too long\"}}\n", "too long"},
        {DIALECT_LLAMA_SERVER, "error: {\"message\":\"old\"}\n", "error"},
        {DIALECT_OLLAMA, "<html>\n", "JSON"},
        {DIALECT_OLLAMA, "[1]\n", "no JSON object"},
        {DIALECT_OLLAMA, "{\"response\":7}\n", "no string"},
        {DIALECT_OPENAI, "data: {\"choices\":[7]}\n", "no object"},
    };
    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        struct compare_answer a;
        struct tern_err err = {0};
        assert_int_not_equal(read_all(bad[k].dialect, str_from(bad[k].text), 7, &a, &err), TERN_OK);
        if (!strstr(err.message, bad[k].word)) fail_msg("'%s' has no '%s'", err.message, bad[k].word);
        compare_answer_release(&a);
    }
}

static void test_shares(void **state) {
    (void)state;
    assert_true(compare_prefix_share(STR("abcd"), STR("abcd")) == 1);
    assert_true(compare_prefix_share(STR("abcd"), STR("abxd")) == 0.5);
    assert_true(compare_prefix_share(STR("ab"), STR("abcd")) == 0.5);
    assert_true(compare_prefix_share(STR(""), STR("")) == 1);
    assert_true(compare_prefix_share(STR(""), STR("x")) == 0);
    struct compare_result *r = mem_calloc(1, sizeof *r);
    assert_non_null(r);
    for (int i = 0; i < 5; i++)
        r->rows[r->n_rows++] = (struct compare_row){
            .prompt = i % 2, .first_s = {0.1, 0.3}, .prefill = {200, 100}, .decode = {50, i == 0 ? 0 : 100}};
    struct compare_summary s = compare_summarise(r, METRIC_FIRST, -1);
    assert_true(s.known && fabs(s.faster.mid - 3) < 1e-9 && fabs(s.ours - 0.1) < 1e-9);
    s = compare_summarise(r, METRIC_PREFILL, 1);
    assert_true(s.known && fabs(s.faster.mid - 2) < 1e-9);
    s = compare_summarise(r, METRIC_DECODE, -1);
    assert_true(s.known && fabs(s.faster.mid - 0.5) < 1e-9);
    assert_false(compare_summarise(r, METRIC_DECODE, 7).known);
    mem_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
