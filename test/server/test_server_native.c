// llama-server's own formats, /completion and /infill, and filling gaps by /v1/completions, against the script model:
// whole and streamed say the same, prompts of each shape become the same tokens, each field does what it says or is
// refused by name.
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>

static struct served server;
static char prompt[600]; // of s01, quoted

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--log", "none", NULL});
    struct answer_http a =
        http_post(&server, "/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}]}", "");
    json_t *j = answer_json(&a);
    char *quoted = json_dumps(json_object_get(j, "prompt"), JSON_ENCODE_ANY);
    snprintf(prompt, sizeof prompt, "%s", quoted);
    free(quoted);
    json_decref(j);
    answer_free(&a);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

static json_t *json_of(const char *path, const char *body) {
    struct answer_http a = body ? http_post(&server, path, body, "") : http_get(&server, path, "");
    if (a.status != 200) fail_msg("%s %s: %d %s", path, body ? body : "", a.status, a.body);
    json_t *j = answer_json(&a);
    answer_free(&a);
    return j;
}

struct pieces {
    struct buf text;
    json_t *tokens, *probs, *last;
    int n_progress;
    int64_t n_processed, n_total, n_cache;
};
static void piece_take(void *arg, json_t *j, const char *event) {
    struct pieces *p = arg;
    (void)event;
    assert_null(p->last); // nothing after the end
    if (json_is_true(json_object_get(j, "stop"))) {
        p->last = json_incref(j);
        return;
    }
    json_t *progress = json_object_get(j, "prompt_progress");
    if (progress) {
        p->n_progress++;
        p->n_total = json_integer_value(json_object_get(progress, "total"));
        p->n_cache = json_integer_value(json_object_get(progress, "cache"));
        const int64_t n = json_integer_value(json_object_get(progress, "processed"));
        assert_true(n > p->n_processed && n >= p->n_cache && n <= p->n_total);
        p->n_processed = n;
    }
    assert_int_equal(json_integer_value(json_object_get(j, "index")), 0);
    buf_puts(&p->text, json_text_at(j, "content"));
    json_array_extend(p->tokens, json_object_get(j, "tokens"));
    json_array_extend(p->probs, json_object_get(j, "completion_probabilities"));
}
static struct pieces streamed(const char *body) {
    struct answer_http a = http_post(&server, "/completion", body, "");
    struct pieces p = {.tokens = json_array(), .probs = json_array()};
    char type[512];
    buf_init(&p.text, 1 << 16);
    assert_string_equal(answer_header(&a, "Content-Type", type), "text/event-stream");
    stream_each(&a, piece_take, &p);
    assert_non_null(p.last);
    assert_null(strstr(a.body, "[DONE]"));
    answer_free(&a);
    return p;
}
static void pieces_free(struct pieces *p) {
    buf_release(&p->text);
    json_decref(p->tokens);
    json_decref(p->probs);
    json_decref(p->last);
}

static void whole_and_streamed(void **state) {
    (void)state;
    char body[1000];
    snprintf(body, sizeof body, "{\"prompt\": %s, \"n_predict\": 20, \"n_probs\": 3, \"return_tokens\": true}", prompt);
    json_t *j = json_of("/completion", body), *probs = json_object_get(j, "completion_probabilities"), *one;
    assert_string_equal(json_text_at(j, "content"), script_text("s01"));
    assert_string_equal(json_text_at(j, "stop_type"), "eos");
    assert_string_equal(json_text_at(j, "stopping_word"), "");
    assert_true(json_is_true(json_object_get(j, "stop")) && json_is_false(json_object_get(j, "truncated")));
    assert_int_equal(json_integer_value(json_object_get(j, "tokens_predicted")), 5);
    assert_int_equal(json_array_size(json_object_get(j, "tokens")), 5);
    assert_int_equal(json_integer_value(json_at(j, "generation_settings.n_predict")), 20);
    assert_true(json_is_number(json_at(j, "timings.predicted_per_second")));
    size_t i;
    assert_true(json_array_size(probs) >= 4);
    json_array_foreach(probs, i, one) {
        assert_true(json_number_value(json_object_get(one, "logprob")) <= 0);
        assert_int_equal(json_array_size(json_object_get(one, "top_logprobs")), 3);
        // Greedy: what was taken is the likeliest, and is the token told beside it.
        assert_int_equal(json_integer_value(json_object_get(one, "id")),
                         json_integer_value(json_at(one, "top_logprobs.0.id")));
        assert_true(json_equal(json_object_get(one, "id"), json_array_get(json_object_get(j, "tokens"), i)));
    }
    snprintf(body, sizeof body,
             "{\"prompt\": %s, \"n_predict\": 20, \"n_probs\": 3, \"return_tokens\": true, \"stream\": true}", prompt);
    struct pieces p = streamed(body);
    assert_string_equal(p.text.data, script_text("s01"));
    assert_true(json_equal(p.probs, probs));
    assert_string_equal(json_text_at(p.last, "stop_type"), "eos");
    assert_string_equal(json_text_at(p.last, "content"), "");
    for (i = 0; i < json_array_size(p.tokens); i++) // but the end token, which has no text
        assert_true(json_equal(json_array_get(p.tokens, i), json_array_get(json_object_get(j, "tokens"), i)));
    assert_true(i >= 4);
    pieces_free(&p);
    json_decref(j);
}

// An answer's end, by each cause; a stop word is told and not shown.
static void ends(void **state) {
    (void)state;
    static const struct {
        const char *more, *text, *type, *word;
    } rows[] = {{"\"n_predict\": 20, \"stop\": [\"zzz\", \"o, \"]", "Hell", "word", "o, "},
                {"\"n_predict\": 2", "Hello, ", "limit", ""},
                {"\"n_predict\": -1", "Hello, world.", "eos", ""},
                {"\"n_predict\": 0", "", "limit", ""}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char body[1000];
        snprintf(body, sizeof body, "{\"prompt\": %s, %s}", prompt, rows[i].more);
        json_t *j = json_of("/completion", body);
        if (strcmp(json_text_at(j, "content"), rows[i].text) != 0)
            fail_msg("%s: '%s'", rows[i].more, json_text_at(j, "content"));
        assert_string_equal(json_text_at(j, "stop_type"), rows[i].type);
        assert_string_equal(json_text_at(j, "stopping_word"), rows[i].word);
        json_decref(j);
        snprintf(body, sizeof body, "{\"prompt\": %s, %s, \"stream\": true}", prompt, rows[i].more);
        struct pieces p = streamed(body);
        assert_string_equal(p.text.data ? p.text.data : "", rows[i].text);
        assert_string_equal(json_text_at(p.last, "stop_type"), rows[i].type);
        assert_string_equal(json_text_at(p.last, "stopping_word"), rows[i].word);
        pieces_free(&p);
    }
}

static void fields_that_are_named(void **state) {
    (void)state;
    char body[1000];
    snprintf(body, sizeof body,
             "{\"prompt\": %s, \"n_predict\": 2, \"response_fields\": [\"content\", \"timings/prompt_n\", "
             "\"generation_settings/n_predict\", \"no/such\", \"content/x\"]}",
             prompt);
    json_t *j = json_of("/completion", body);
    assert_int_equal(json_object_size(j), 3);
    assert_string_equal(json_string_value(json_object_get(j, "content")), "Hello, ");
    assert_int_equal(json_integer_value(json_object_get(j, "generation_settings/n_predict")), 2);
    assert_true(json_is_integer(json_object_get(j, "timings/prompt_n")));
    json_decref(j);
}

// Texts, ids, both, and lists of these.
static void prompts_of_each_shape(void **state) {
    (void)state;
    json_t *j = json_of("/completion", "{\"prompt\": [\"Hi\", [1, 6], [1, \"x\", 6]], \"n_predict\": 2, \"n\": 2}"),
           *one;
    static const char *const texts[] = {"Hi", "<|startoftext|><|im_start|>", "<|startoftext|>x<|im_start|>"};
    assert_int_equal(json_array_size(j), 6);
    size_t i;
    json_array_foreach(j, i, one) {
        assert_int_equal(json_integer_value(json_object_get(one, "index")), i);
        assert_string_equal(json_text_at(one, "prompt"), texts[i / 2]);
        assert_int_equal(json_integer_value(json_object_get(one, "tokens_evaluated")), i < 4 ? i < 2 ? 3 : 2 : 3);
    }
    assert_string_equal(json_text_at(json_array_get(j, 0), "content"), json_text_at(json_array_get(j, 1), "content"));
    json_decref(j);
    // The template's text is read as the template means it: markers are control tokens, the begin token stands once.
    char body[1000];
    snprintf(body, sizeof body, "{\"prompt\": %s, \"n_predict\": 1}", prompt);
    j = json_of("/completion", body);
    struct answer_http a = chat_ask(&server, "s01", ", \"max_tokens\": 1");
    json_t *c = answer_json(&a);
    assert_int_equal(json_integer_value(json_object_get(j, "tokens_evaluated")),
                     json_integer_value(json_at(c, "usage.prompt_tokens")));
    json_decref(c);
    json_decref(j);
    answer_free(&a);
}

static void progress_is_told(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    for (int round = 0; round < 2; round++) {
        buf_clear(&b);
        buf_puts(&b, "{\"n_predict\": 1, \"stream\": true, \"return_progress\": true, \"prompt\": \"");
        for (int i = 0; i < 250; i++) buf_putf(&b, "word %d ", i);
        for (int i = 0; i < 150 && round; i++) buf_putf(&b, "more %d ", i); // a piece of its own to read
        buf_puts(&b, "\"}");
        struct pieces p = streamed(b.data);
        assert_true(p.n_progress >= 1 && p.n_total > 700);
        if (round == 0) assert_int_equal(p.n_cache, 0);
        if (round == 1) assert_true(p.n_cache > 700 && p.n_cache < p.n_total);
        assert_int_equal(json_integer_value(json_object_get(p.last, "tokens_cached")), p.n_cache);
        pieces_free(&p);
    }
    buf_release(&b);
}

// What stands where, and that what was typed goes on with the text before the gap.
static void gaps(void **state) {
    (void)state;
    static const struct {
        const char *body, *prompt;
    } rows[] = {
        {"\"input_prefix\": \"int f(\", \"input_suffix\": \") {}\"",
         "<|startoftext|><|fim_pre|>int f(<|fim_suf|>) {}<|fim_mid|>"},
        {"\"input_prefix\": \"int f(\", \"input_suffix\": \") {}\", \"prompt\": \"int\"",
         "<|startoftext|><|fim_pre|>int f(int<|fim_suf|>) {}<|fim_mid|>"},
        {"\"input_prefix\": \"\", \"input_suffix\": \"<|fim_mid|>\"", // of users: no marker
         "<|startoftext|><|fim_pre|><|fim_suf|><|fim_mid|><|fim_mid|>"},
        {"\"input_prefix\": \"a\", \"input_suffix\": \"b\", \"input_extra\": [{\"filename\": \"x.c\", \"text\": "
         "\"one\"}, {\"text\": \"two\"}]",
         "<|startoftext|>\n\n--- x.c\none\n\n--- file\ntwo\n\n<|fim_pre|>a<|fim_suf|>b<|fim_mid|>"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char body[600];
        snprintf(body, sizeof body, "{%s, \"n_predict\": 3}", rows[i].body);
        json_t *j = json_of("/infill", body);
        assert_string_equal(json_text_at(j, "prompt"), rows[i].prompt);
        if (i == 2) assert_true(json_integer_value(json_object_get(j, "tokens_evaluated")) > 6);
        json_decref(j);
    }
    // A suffix in OpenAI's format is the same prompt, so the same answer.
    json_t *x = json_of("/infill", "{\"input_prefix\": \"int f(\", \"input_suffix\": \") {}\", \"n_predict\": 6}");
    json_t *y = json_of("/v1/completions", "{\"prompt\": \"int f(\", \"suffix\": \") {}\", \"max_tokens\": 6}");
    json_t *plain = json_of("/v1/completions", "{\"prompt\": \"int f(\", \"max_tokens\": 6}");
    assert_string_equal(json_text_at(x, "content"), json_text_at(y, "choices.0.text"));
    assert_int_equal(json_integer_value(json_object_get(x, "tokens_evaluated")),
                     json_integer_value(json_at(y, "usage.prompt_tokens")));
    assert_true(json_integer_value(json_at(plain, "usage.prompt_tokens")) <
                json_integer_value(json_at(y, "usage.prompt_tokens")));
    json_decref(x);
    json_decref(y);
    json_decref(plain);
}

static void no_gaps_without_markers(void **state) {
    (void)state;
    struct served s;
    server_start(&s, (const char *const[]){"-m", TEST_DATA "/hf/llama-plain", "--log", "none", NULL});
    static const struct {
        const char *path, *body, *param;
    } rows[] = {{"/infill", "{\"input_prefix\": \"a\", \"input_suffix\": \"b\"}", "input_prefix"},
                {"/v1/completions", "{\"prompt\": \"a\", \"suffix\": \"b\"}", "suffix"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&s, rows[i].path, rows[i].body, "");
        assert_int_equal(a.status, 400);
        assert_string_equal(answer_error(&a, "param"), rows[i].param);
        assert_non_null(strstr(answer_error(&a, "message"), "markers"));
        answer_free(&a);
    }
    assert_int_equal(server_stop(&s), 0);
}

static void fields_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *field, *good, *bad;
    } rows[] = {{"n_predict", "3", "-3"},
                {"n_predict", "2", "\"2\""},
                {"n_probs", "0", "21"},
                {"return_tokens", "false", "1"},
                {"response_fields", "[\"content\"]", "[5]"},
                {"response_fields", "[]", "\"content\""},
                {"seed", "-1", "\"x\""},
                {"seed", "7.0", "true"},
                {"seed", "4294967295", "1.5"},
                {"repeat_last_n", "-1", "-2"},
                {"n_cmpl", "1", "9"},
                {"n_indent", "2", "-1"},
                {"n_indent", "null", "true"},
                {"timings_per_token", "true", "1"},
                {"t_max_predict_ms", "1000", "-1"},
                {"logit_bias", "[[5, 1.5], [6, false]]", "[[5]]"},
                {"typical_p", "1.0", "0.9"},
                {"mirostat", "0", "2"},
                {"xtc_probability", "0", "0.1"},
                {"dry_multiplier", "0.0", "0.8"},
                {"dynatemp_range", "0", "0.5"},
                {"post_sampling_probs", "false", "true"},
                {"lora", "[]", "[{\"id\": 0, \"scale\": 1}]"},
                {"json_schema", "{\"type\": \"boolean\"}", "{\"patternProperties\": {\"x\": {}}}"},
                {"grammar", "\"root ::= [ab]\"", "\"no rule\""},
                // Only say how to do the same.
                {"cache_prompt", "false", NULL},
                {"id_slot", "3", NULL},
                {"n_keep", "-1", NULL},
                {"samplers", "[\"top_k\"]", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int bad = 0; bad < 2; bad++) {
            const char *value = bad ? rows[i].bad : rows[i].good;
            if (!value) continue;
            struct answer_http a =
                http_postf(&server, "/completion", "{\"prompt\": \"x\", \"%s\": %s%s}", rows[i].field, value,
                           strcmp(rows[i].field, "n_predict") == 0 ? "" : ", \"n_predict\": 2");
            if (a.status != (bad ? 400 : 200)) fail_msg("%s %s: %d %s", rows[i].field, value, a.status, a.body);
            if (bad && strncmp(answer_error(&a, "param"), rows[i].field, strlen(rows[i].field)) != 0)
                fail_msg("%s %s: %s", rows[i].field, value, a.body);
            answer_free(&a);
        }
    static const struct {
        const char *path, *body, *param;
    } others[] = {
        {"/completion", "{}", "prompt"},
        {"/completion", "{\"prompt\": [1, [2]]}", "prompt"},
        {"/completion", "{\"prompt\": [1, 999999, \"x\"]}", "prompt"},
        {"/completion", "{\"prompt\": {\"prompt_string\": \"x\"}}", "prompt"},
        {"/infill", "{\"input_suffix\": \"x\"}", "input_prefix"},
        {"/infill", "{\"input_prefix\": \"x\"}", "input_suffix"},
        {"/infill", "{\"input_prefix\": \"x\", \"input_suffix\": \"y\", \"input_extra\": [{}]}", "input_extra"},
        {"/infill", "{\"input_prefix\": \"x\", \"input_suffix\": \"y\", \"prompt\": [1]}", "prompt"}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct answer_http a = http_post(&server, others[i].path, others[i].body, "");
        if (a.status != 400) fail_msg("%s: %d %s", others[i].body, a.status, a.body);
        assert_string_equal(answer_error(&a, "param"), others[i].param);
        answer_free(&a);
    }
}

// n_indent: the answer ends before a line that stands too far out; blank lines do not count, the first line neither.
static void lines_too_far_out(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int n_indent;
        const char *told, *stop_type;
    } rows[] = {{"a\\n  b\\n\\n   c\\n d\\ne", 2, "a\n  b\n\n   c\n", "limit"},
                {"a\\n  b\\n\\n   c\\n d\\ne", 1, "a\n  b\n\n   c\n d\n", "limit"},
                {"a\\n  b\\n\\n   c\\n d\\ne", 0, "a\n  b\n\n   c\n d\ne", "eos"},
                {"a\\n\\tb", 1, "a\n\tb", "eos"},
                {"a\\n\\tb", 2, "a\n", "limit"},
                {"  a\\n    b", 4, "  a\n    b", "eos"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int stream = 0; stream < 2; stream++) {
            char body[400];
            snprintf(body, sizeof body,
                     "{\"prompt\": \"x\", \"grammar\": \"root ::= \\\"%s\\\"\", \"n_predict\": 60, \"n_indent\": %d%s}",
                     rows[i].text, rows[i].n_indent, stream ? ", \"stream\": true" : "");
            struct pieces p = {0};
            json_t *j = stream ? NULL : json_of("/completion", body);
            if (stream) p = streamed(body);
            const char *told = stream ? p.text.data : json_text_at(j, "content");
            if (strcmp(told, rows[i].told) != 0) fail_msg("%s: '%s'", body, told);
            assert_string_equal(json_text_at(stream ? p.last : j, "stop_type"), rows[i].stop_type);
            if (stream) pieces_free(&p);
            json_decref(j);
        }
}

// timings_per_token: counts that grow by piece and end with the answer's own; without it no piece has them.
struct counted {
    int n_pieces, n_with;
    int64_t n_last;
};
static void timed_take(void *arg, json_t *j, const char *event) {
    struct counted *c = arg;
    json_t *timings = json_object_get(j, "timings");
    const int64_t n = json_integer_value(json_object_get(timings, "predicted_n"));
    (void)event;
    json_t *stop = json_object_get(j, "stop"); // /completion has it in each piece, chats never
    if (stop ? json_is_true(stop) : json_is_string(json_at(j, "choices.0.finish_reason"))) {
        assert_true(timings && n >= c->n_last);
        return;
    }
    c->n_pieces++;
    if (!timings) return;
    c->n_with++;
    assert_true(n > c->n_last);
    assert_true(json_integer_value(json_object_get(timings, "prompt_n")) +
                    json_integer_value(json_object_get(timings, "cache_n")) >
                0);
    assert_string_equal(json_text_at(timings, "plan"), "whole(cpu)");
    c->n_last = n;
}
static void timings_by_piece(void **state) {
    (void)state;
    for (int said = 0; said < 2; said++) {
        char body[1000];
        struct counted c = {0};
        snprintf(body, sizeof body, "{\"prompt\": %s, \"stream\": true, \"timings_per_token\": %s}", prompt,
                 said ? "true" : "false");
        struct answer_http a = http_post(&server, "/completion", body, "");
        stream_each(&a, timed_take, &c);
        assert_true(c.n_pieces >= 2);
        assert_int_equal(c.n_with, said ? c.n_pieces : 0);
        answer_free(&a);
        a = chat_ask(&server, "s01", said ? ", \"stream\": true, \"timings_per_token\": true" : ", \"stream\": true");
        c = (struct counted){0};
        stream_each(&a, timed_take, &c);
        assert_int_equal(c.n_with, said ? c.n_pieces - 1 : 0); // but the first chunk, which has no token
        answer_free(&a);
    }
}

static void adapters(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int status;
    } rows[] = {{"[]", 200}, {" [ ] ", 200}, {"[{\"id\": 0, \"scale\": 1}]", 400}, {"{}", 400}, {"", 400},
                {"[", 400},  {"null", 400}};
    json_t *j = json_of("/lora-adapters", NULL);
    assert_true(json_is_array(j) && json_array_size(j) == 0);
    json_decref(j);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&server, "/lora-adapters", rows[i].body, "");
        if (a.status != rows[i].status) fail_msg("%s: %d %s", rows[i].body, a.status, a.body);
        if (a.status == 200) assert_string_equal(a.body, "{\"success\":true}");
        answer_free(&a);
    }
}

// t_max_predict_ms: an answer of many lines that would go on for thousands of tokens ends soon after the time.
static void time_is_bounded(void **state) {
    (void)state;
    static const char body[] =
        "{\"prompt\": \"x\", \"ignore_eos\": true, \"grammar\": \"root ::= (\\\"a\\\" \\\"\\\\n\\\")+\", "
        "\"n_predict\": 4000, \"t_max_predict_ms\": 5}";
    json_t *j = json_of("/completion", body);
    assert_string_equal(json_text_at(j, "stop_type"), "limit");
    assert_true(json_is_true(json_object_get(j, "has_new_line")));
    assert_non_null(strchr(json_text_at(j, "content"), '\n'));
    assert_in_range(json_integer_value(json_object_get(j, "tokens_predicted")), 2, 3900);
    json_decref(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_and_streamed),      cmocka_unit_test(ends),
        cmocka_unit_test(fields_that_are_named),   cmocka_unit_test(prompts_of_each_shape),
        cmocka_unit_test(progress_is_told),        cmocka_unit_test(gaps),
        cmocka_unit_test(no_gaps_without_markers), cmocka_unit_test(fields_are_checked),
        cmocka_unit_test(time_is_bounded),         cmocka_unit_test(lines_too_far_out),
        cmocka_unit_test(timings_by_piece),        cmocka_unit_test(adapters)};
    return cmocka_run_group_tests_name("native", tests, setup, teardown);
}
