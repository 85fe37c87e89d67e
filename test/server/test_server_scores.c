// Echoed prompts with their log-probabilities, as harnesses of evaluation ask for them: the lists are of one length,
// the offsets find the tokens in the text, the scores are those that the model gives the same tokens as an answer,
// streamed and whole say the same, and max_tokens 0 generates nothing.
#include "server_lib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct served server;

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

static json_t *json_from(const char *path, const char *body) {
    struct answer_http a = http_post(&server, path, body, "");
    if (a.status != 200) fail_msg("%s: %d %s", body, a.status, a.body);
    json_t *j = answer_json(&a);
    answer_free(&a);
    return j;
}

static json_t *json_of(const char *body) { return json_from("/v1/completions", body); }

static void lists_check(json_t *choice, size_t n_want) {
    json_t *l = json_object_get(choice, "logprobs"), *tokens = json_object_get(l, "tokens");
    const char *text = json_text_at(choice, "text");
    assert_int_equal(json_array_size(tokens), n_want);
    assert_int_equal(json_array_size(json_object_get(l, "token_logprobs")), n_want);
    assert_int_equal(json_array_size(json_object_get(l, "top_logprobs")), n_want);
    assert_int_equal(json_array_size(json_object_get(l, "text_offset")), n_want);
    assert_true(json_is_null(json_at(l, "token_logprobs.0")) && json_is_null(json_at(l, "top_logprobs.0")));
    for (size_t i = 1; i < n_want; i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        const int64_t at = json_integer_value(json_array_get(json_object_get(l, "text_offset"), i));
        assert_true(at >= 0 && (size_t)at <= strlen(text));
        if (strncmp(text + at, token, strlen(token)) != 0) fail_msg("token %zu '%s' at %s", i, token, text + at);
        assert_true(json_number_value(json_array_get(json_object_get(l, "token_logprobs"), i)) <= 0);
        assert_int_equal(json_object_size(json_array_get(json_object_get(l, "top_logprobs"), i)), 2);
    }
}

static void scores_are_those_of_answers(void **state) {
    (void)state;
    // An answer with its scores, then the same tokens as a prompt.
    json_t *answer = json_of("{\"prompt\": \"Once upon\", \"max_tokens\": 6, \"logprobs\": 2, \"echo\": true}");
    json_t *c = json_at(answer, "choices.0"), *scores = json_at(c, "logprobs.token_logprobs");
    const size_t n_prompt = (size_t)json_integer_value(json_at(answer, "usage.prompt_tokens"));
    const size_t n = n_prompt + (size_t)json_integer_value(json_at(answer, "usage.completion_tokens"));
    lists_check(c, n);
    json_t *tokens = json_from("/tokenize", "{\"content\": \"Once upon\", \"add_special\": true}");
    json_t *more = json_from("/completion", "{\"prompt\": \"Once upon\", \"n_predict\": 6, \"return_tokens\": true}");
    json_array_extend(json_object_get(tokens, "tokens"), json_object_get(more, "tokens"));
    char *ids = json_dumps(json_object_get(tokens, "tokens"), 0), body[600];
    snprintf(body, sizeof body, "{\"prompt\": %s, \"max_tokens\": 0, \"logprobs\": 2, \"echo\": true}", ids);
    json_decref(tokens);
    json_decref(more);
    json_t *again = json_of(body), *c2 = json_at(again, "choices.0");
    lists_check(c2, n);
    assert_non_null(strstr(json_text_at(c2, "text"), json_text_at(c, "text"))); // behind the begin token
    assert_string_equal(json_text_at(c2, "finish_reason"), "length");
    assert_int_equal(json_integer_value(json_at(again, "usage.completion_tokens")), 0);
    for (size_t i = 1; i < n; i++) {
        const double a = json_number_value(json_array_get(scores, i));
        const double b = json_number_value(json_array_get(json_at(c2, "logprobs.token_logprobs"), i));
        if (fabs(a - b) > 1e-4) fail_msg("token %zu: %g and %g", i, a, b);
    }
    json_t *lists = json_incref(json_object_get(c2, "logprobs"));
    json_decref(again);
    // Known text changes nothing, and is computed anew.
    again = json_of(body);
    assert_true(json_equal(json_at(again, "choices.0.logprobs"), lists));
    assert_int_equal(json_integer_value(json_at(again, "usage.prompt_tokens_details.cached_tokens")), 0);
    json_decref(lists);
    json_decref(again);
    json_decref(answer);
    free(ids);
}

struct joined {
    struct buf text;
    json_t *lists; // of the four names
    char finish[20];
};
static void join_take(void *arg, json_t *j, const char *event) {
    struct joined *t = arg;
    json_t *c = json_at(j, "choices.0"), *list;
    const char *name;
    (void)event;
    if (json_is_string(json_object_get(c, "finish_reason")))
        snprintf(t->finish, sizeof t->finish, "%s", json_text_at(c, "finish_reason"));
    buf_puts(&t->text, json_text_at(c, "text"));
    json_object_foreach(json_object_get(c, "logprobs"), name, list) {
        if (!json_object_get(t->lists, name)) json_object_set_new(t->lists, name, json_array());
        json_array_extend(json_object_get(t->lists, name), list);
    }
}

static void streamed_is_whole(void **state) {
    (void)state;
    static const char *const prompts[] = {"\"Once upon\"", "[1, 6, 400, 300]", "\"\\u00e9t\\u00e9 \\ud83d\\ude00\""};
    for (int i = 0; i < 6; i++) {
        char body[300];
        snprintf(body, sizeof body,
                 "{\"prompt\": %s, \"max_tokens\": %d, \"logprobs\": 1, \"echo\": true, \"stream\": false}",
                 prompts[i / 2], i % 2 * 3);
        json_t *whole = json_of(body);
        memcpy(strstr(body, "false"), " true", 5);
        struct answer_http a = http_post(&server, "/v1/completions", body, "");
        struct joined t = {.lists = json_object()};
        buf_init(&t.text, 1 << 16);
        stream_each(&a, join_take, &t);
        assert_string_equal(t.text.data, json_text_at(whole, "choices.0.text"));
        assert_string_equal(t.finish, "length");
        assert_true(json_equal(t.lists, json_at(whole, "choices.0.logprobs")));
        buf_release(&t.text);
        json_decref(t.lists);
        json_decref(whole);
        answer_free(&a);
    }
}

// Several prompts at once, beside an answer that streams: each has its own scores, those that it has alone.
static void many_at_once(void **state) {
    (void)state;
    char *stream = chat_body("s20", ", \"stream\": true, \"max_tokens\": 300");
    int fd = post_begin(&server, "/v1/chat/completions", stream);
    mem_free(stream);
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"max_tokens\": 0, \"logprobs\": 2, \"echo\": true, \"prompt\": [");
    for (int i = 0; i < 6; i++) {
        buf_putf(&b, "%s\"", i ? ", " : "");
        for (int k = 0; k < 20 + 30 * i; k++) buf_putf(&b, "word %d ", (i + 1) * k % 17);
        buf_puts(&b, "\"");
    }
    buf_puts(&b, "]}");
    json_t *all = json_of(b.data), *prompts = json_loads(b.data, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(all, "choices")), 6);
    for (size_t i = 0; i < 6; i++) {
        json_t *request = json_deep_copy(prompts);
        json_object_set(request, "prompt", json_array_get(json_object_get(prompts, "prompt"), i));
        char *body = json_dumps(request, 0);
        json_t *one = json_of(body);
        assert_true(json_equal(json_at(one, "choices.0.logprobs"),
                               json_object_get(json_array_get(json_object_get(all, "choices"), i), "logprobs")));
        lists_check(json_at(one, "choices.0"), (size_t)json_integer_value(json_at(one, "usage.prompt_tokens")));
        json_decref(one);
        json_decref(request);
        free(body);
    }
    struct answer_http a = client_read(fd, false);
    struct chat_stream c = stream_parse(&a, 0);
    assert_int_equal(c.n_error, 0);
    chat_stream_free(&c);
    answer_free(&a);
    client_close(fd);
    json_decref(all);
    json_decref(prompts);
    buf_release(&b);
}

static void bounds(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 4 << 20);
    buf_puts(&b, "{\"max_tokens\": 0, \"logprobs\": 0, \"echo\": true, \"n\": 8, \"prompt\": \"");
    for (int i = 0; i < 140000; i++) buf_putc(&b, 'a');
    buf_puts(&b, "\"}");
    struct answer_http a = http_post(&server, "/v1/completions", b.data, "");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_error(&a, "param"), "echo");
    answer_free(&a);
    buf_release(&b);
    a = http_post(&server, "/v1/completions",
                  "{\"prompt\": \"int f(\", \"suffix\": \"}\", \"echo\": true, \"logprobs\": 1}", "");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_error(&a, "param"), "suffix");
    answer_free(&a);
    json_t *j = json_of("{\"prompt\": \"x\", \"max_tokens\": 0}"); // nothing asked, nothing told
    assert_string_equal(json_text_at(j, "choices.0.text"), "");
    assert_int_equal(json_integer_value(json_at(j, "usage.total_tokens")),
                     json_integer_value(json_at(j, "usage.prompt_tokens")));
    json_decref(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores_are_those_of_answers),
                                       cmocka_unit_test(streamed_is_whole), cmocka_unit_test(many_at_once),
                                       cmocka_unit_test(bounds)};
    return cmocka_run_group_tests_name("scores", tests, setup, teardown);
}
