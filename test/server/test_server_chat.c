// /v1/chat/completions and /v1/completions against the script model, whose greedy answers are known: every script
// whole and streamed, tool calls, counts, stop, limits of each field, errors by name.
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>

static struct served server;

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "4", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

// Runs of U+FFFD as one: how many an ill-formed run becomes may depend on where a piece ends.
static void fffd_collapse(const char *in, char *out, size_t cap) {
    size_t n = 0;
    bool last = false;
    while (*in && n + 4 < cap) {
        bool now = memcmp(in, "\xef\xbf\xbd", 3) == 0 && strlen(in) >= 3;
        if (!(now && last)) {
            memcpy(out + n, in, now ? 3 : 1);
            n += now ? 3 : 1;
        }
        in += now ? 3 : 1;
        last = now;
    }
    out[n] = 0;
}

static void scripts_whole_and_streamed(void **state) {
    (void)state;
    int n = 0;
    for (const char *name; (name = script_name(n)); n++) {
        if (strcmp(name, "s20") == 0) continue; // never ends
        struct answer_http whole = chat_ask(&server, name, ""),
                           streamed = chat_ask(&server, name, ", \"stream\": true");
        assert_int_equal(whole.status, 200);
        assert_int_equal(streamed.status, 200);
        assert_true(streamed.complete);
        json_t *j = answer_json(&whole), *m = message_of(j);
        struct chat_stream c = stream_parse(&streamed, 0);
        const char *content = json_string_value(json_object_get(m, "content"));
        const char *reasoning = json_string_value(json_object_get(m, "reasoning_content"));
        char a[8192], b[8192];
        fffd_collapse(content ? content : "", a, sizeof a);
        fffd_collapse(c.text, b, sizeof b);
        if (strcmp(a, b) != 0) fail_msg("%s: whole '%s', streamed '%s'", name, a, b);
        assert_string_equal(reasoning ? reasoning : "", c.reasoning);
        assert_string_equal(finish_of(j), c.finish);
        assert_true(c.role_first && c.same_head);
        assert_int_equal(c.n_finish, 1);
        assert_int_equal(c.n_done, 1);
        assert_int_equal(c.n_error + c.n_usage, 0);
        json_decref(j);
        chat_stream_free(&c);
        answer_free(&whole);
        answer_free(&streamed);
    }
    assert_true(n > 20);
}

static void texts_are_exact(void **state) {
    (void)state;
    static const char *const names[] = {"s01", "s02", "s15", "s21", "s30", "s31", "s40"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct answer_http a = chat_ask(&server, names[i], "");
        json_t *j = answer_json(&a);
        assert_string_equal(json_string_value(json_object_get(message_of(j), "content")), script_text(names[i]));
        json_decref(j);
        answer_free(&a);
    }
}

static void counts_and_extras(void **state) {
    (void)state;
    struct answer_http a = chat_ask(&server, "s01", ""),
                       b = chat_ask(&server, "s01",
                                    ", \"stream\": true, \"stream_options\": {\"include_usage\": true}");
    json_t *j = answer_json(&a), *usage = json_object_get(j, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 5);
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")) + 5,
                     json_integer_value(json_object_get(usage, "total_tokens")));
    assert_true(json_is_integer(json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens")));
    assert_true(json_is_number(json_object_get(json_object_get(j, "timings"), "predicted_per_second")));
    assert_true(json_is_null(json_object_get(json_object_get(j, "energy"), "joules")));
    assert_true(json_is_null(json_object_get(message_of(j), "refusal")));
    struct chat_stream c = stream_parse(&b, 0);
    assert_int_equal(c.n_usage, 1);
    assert_int_equal(c.n_answer, 5);
    assert_int_equal(c.n_prompt, json_integer_value(json_object_get(usage, "prompt_tokens")));
    char text[512];
    assert_string_equal(answer_header(&b, "Content-Type", text), "text/event-stream");
    assert_string_equal(answer_header(&b, "Cache-Control", text), "no-cache");
    assert_non_null(answer_header(&b, "X-Request-Id", text));
    chat_stream_free(&c);
    json_decref(j);
    answer_free(&a);
    answer_free(&b);
}

static void empty_answer(void **state) {
    (void)state;
    struct answer_http a = chat_ask(&server, "s28", "");
    json_t *j = answer_json(&a);
    assert_string_equal(json_string_value(json_object_get(message_of(j), "content")), "");
    assert_string_equal(finish_of(j), "stop");
    json_decref(j);
    answer_free(&a);
}

static void tool_calls(void **state) {
    (void)state;
    char *extra = tools_extra(""), *streamed = tools_extra(", \"stream\": true");
    struct answer_http a = chat_ask(&server, "s04", extra), b = chat_ask(&server, "s04", streamed);
    json_t *j = answer_json(&a), *call = json_array_get(json_object_get(message_of(j), "tool_calls"), 0);
    assert_string_equal(finish_of(j), "tool_calls");
    assert_true(json_is_null(json_object_get(message_of(j), "content")));
    assert_string_equal(json_string_value(json_object_get(call, "type")), "function");
    assert_true(strlen(json_string_value(json_object_get(call, "id"))) > 8);
    json_t *f = json_object_get(call, "function");
    assert_string_equal(json_string_value(json_object_get(f, "name")), "get_weather");
    json_t *arguments = json_loads(json_string_value(json_object_get(f, "arguments")), 0, NULL);
    assert_true(json_is_object(arguments));
    json_decref(arguments);
    struct chat_stream c = stream_parse(&b, 0);
    assert_string_equal(c.finish, "tool_calls");
    assert_int_equal(strncmp(c.calls, "get_weather{", 12), 0);
    assert_string_equal(c.text, "");
    chat_stream_free(&c);
    json_decref(j);
    answer_free(&a);
    answer_free(&b);
    mem_free(extra);
    mem_free(streamed);

    // One call only, and none.
    static const struct {
        const char *more;
        size_t n_calls;
    } rows[] = {{"", 2}, {", \"parallel_tool_calls\": false", 1}, {", \"tool_choice\": \"none\"", 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        extra = tools_extra(rows[i].more);
        a = chat_ask(&server, "s26", extra);
        j = answer_json(&a);
        assert_int_equal(a.status, 200);
        if (i < 2) assert_int_equal(json_array_size(json_object_get(message_of(j), "tool_calls")), rows[i].n_calls);
        if (i < 2) assert_string_equal(finish_of(j), "tool_calls");
        json_decref(j);
        answer_free(&a);
        mem_free(extra);
    }
}

static void stops(void **state) {
    (void)state;
    static const struct {
        const char *extra, *text; // text NULL: 400
    } rows[] = {{", \"stop\": null", "Hello, world."},
                {", \"stop\": []", "Hello, world."},
                {", \"stop\": \"wor\"", "Hello, "},
                {", \"stop\": [\"zz\", \"o, \"]", "Hell"},
                {", \"stop\": \"\"", NULL},
                {", \"stop\": [\"\"]", NULL},
                {", \"stop\": 5", NULL},
                {", \"stop\": [\"a\", 5]", NULL},
                {", \"stop\": [\"\u6f22\"]", "Hello, world."}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = chat_ask(&server, "s01", rows[i].extra);
        assert_int_equal(a.status, rows[i].text ? 200 : 400);
        if (rows[i].text) {
            json_t *j = answer_json(&a);
            assert_string_equal(json_string_value(json_object_get(message_of(j), "content")), rows[i].text);
            json_decref(j);
        } else {
            assert_string_equal(answer_error(&a, "param"), "stop");
        }
        answer_free(&a);
    }
}

// Each numeric field just outside and inside its range, and of a wrong type.
static void fields_are_bounded(void **state) {
    (void)state;
    static const struct {
        const char *name, *good[3], *bad[8];
    } rows[] = {
        {"temperature", {"0", "2", "1.5"}, {"-0.1", "2.1", "\"0.7\"", "1e308", "[]", "{}", "true"}},
        {"top_p", {"1", "0.5", "null"}, {"0", "1.5", "-1", "\"x\"", "[]"}},
        {"top_k", {"0", "40", "40.0"}, {"-1", "2.5", "1e300", "\"4\"", "{}"}},
        {"min_p", {"0", "1", "0.1"}, {"-0.1", "1.1", "\"x\""}},
        {"presence_penalty", {"-2", "2", "0"}, {"-2.1", "9", "\"x\"", "[]"}},
        {"frequency_penalty", {"-2", "2", "0"}, {"-2.1", "9", "\"x\"", "[]"}},
        {"repeat_penalty", {"0.5", "1", "2"}, {"0", "-1", "1e9"}},
        {"max_tokens", {"1", "100000000", "null"}, {"0", "-1", "2.5", "\"5\"", "1e300", "[]", "18446744073709551617"}},
        {"max_completion_tokens", {"1", "7", "null"}, {"0", "-1", "\"5\""}},
        {"n", {"1", "2", "null"}, {"0", "9", "-1", "16384", "1.5", "\"2\""}},
        {"seed", {"0", "-1", "9007199254740993"}, {"1.5", "\"x\"", "[]"}},
        {"stream", {"false", "null", "false"}, {"\"yes\"", "1", "[]"}},
        {"logprobs", {"true", "false", "null"}, {"1", "\"x\""}},
        {"parallel_tool_calls", {"true", "false", "null"}, {"1"}},
        {"logit_bias",
         {"[[5, -1.5], [6, false]]", "{\"5\": -100}", "null"},
         {"[5]", "[[5, 101]]", "{\"x\": 1}", "{\"5\": 101}", "{\"5\": \"1\"}", "{\"99999999\": 1}", "5"}},
        {"response_format",
         {"{\"type\": \"text\"}", "null", "{\"type\": \"text\"}"},
         {"5", "{\"type\": \"xml\"}", "[]", "{}"}},
        {"tool_choice", {"\"auto\"", "\"none\"", "null"}, {"\"x\"", "5", "\"required\""}},
        {"tools",
         {"[]", "null", "[]"},
         {"5", "{}", "\"x\"", "[5]", "[{\"type\": \"custom\", \"custom\": {\"name\": \"x\"}}]",
          "[{\"type\": \"web_search\"}]"}},
        {"functions", {"null", "null", "null"}, {"[]"}},
        {"chat_template", {"null", "null", "null"}, {"\"{{ 1 }}\""}},
        {"stream_options", {"{}", "null", "{\"include_usage\": false}"}, {"5", "{\"include_usage\": 1}"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t k = 0; k < 11; k++) {
            bool good = k < 3;
            const char *value = good ? rows[i].good[k] : rows[i].bad[k - 3];
            if (!value) break;
            char extra[256];
            snprintf(extra, sizeof extra, ", \"%s\": %s%s", rows[i].name, value,
                     strncmp(rows[i].name, "max_", 4) == 0 ? "" : ", \"max_tokens\": 2");
            struct answer_http a = chat_ask(&server, "s01", extra);
            if (a.status != (good ? 200 : 400)) fail_msg("%s: %s gave %d: %s", rows[i].name, value, a.status, a.body);
            if (!good) {
                const char *param = answer_error(&a, "param");
                if (strncmp(param, rows[i].name, strlen(rows[i].name)) != 0)
                    fail_msg("%s: %s names '%s': %s", rows[i].name, value, param, a.body);
            }
            answer_free(&a);
        }
}

static void bodies_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int status;
        const char *param, *text; // text: part of the message, or NULL
    } rows[] = {
        {"", 400, "", NULL},
        {"{", 400, "", NULL},
        {"[]", 400, "", "object"},
        {"{} x", 400, "", NULL},
        {"{\"messages\": [], \"messages\": []}", 400, "", "key"},
        {"{\"a\": \"\xff\"}", 400, "", NULL},
        {"{}", 400, "messages", "missing"},
        {"{\"messages\": []}", 400, "messages", NULL},
        {"{\"messages\": 5}", 400, "messages", "list"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", 400, "messages", NULL},
        {"{\"messages\": [{\"role\": \"wizard\", \"content\": \"x\"}]}", 400, "messages", NULL},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": "
         "\"http://127.0.0.1:1/x\"}}]}]}",
         400, "messages", "image_url"},
        {"{\"model\": \"no/such\", \"messages\": [{\"role\": \"user\", \"content\": \"s01\"}]}", 404, "model",
         "no/such"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}], \"max_tokens\": 2, \"max_completion_tokens\": "
         "3}",
         400, "max_tokens", NULL},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}], \"top_logprobs\": 3}", 400, "top_logprobs",
         NULL},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}], \"response_format\": {\"type\": "
         "\"json_schema\"}}",
         400, "response_format.json_schema.schema", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&server, "/v1/chat/completions", rows[i].body, "");
        if (a.status != rows[i].status) fail_msg("%s: %d %s", rows[i].body, a.status, a.body);
        assert_string_equal(answer_error(&a, "param"), rows[i].param);
        if (rows[i].text && !strstr(answer_error(&a, "message"), rows[i].text))
            fail_msg("%s: %s", rows[i].body, a.body);
        answer_free(&a);
    }
    // Sound ones that other servers refused.
    static const char *const good[] = {
        "{\"messages\": [{\"role\": \"developer\", \"content\": \"x\"}, {\"role\": \"user\", \"content\": \"s01\"}]}",
        "{\"model\": \"script-lfm2\", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"s01\"}]}]}",
        "{\"model\": \"default\", \"x_unknown\": {\"a\": 1}, \"user\": \"u-1\", \"metadata\": {}, \"store\": true, "
        "\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}, {\"role\": \"assistant\", \"content\": null, "
        "\"tool_calls\": "
        "[{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, "
        "{\"role\": \"tool\", "
        "\"tool_call_id\": \"c\", \"content\": \"ok\"}], \"max_tokens\": 3}"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct answer_http a = http_post(&server, "/v1/chat/completions", good[i], "");
        if (a.status != 200) fail_msg("%s: %d %s", good[i], a.status, a.body);
        answer_free(&a);
    }
}

static void depth_and_messages_are_bounded(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 8 << 20);
    buf_puts(&b, "{\"x\": ");
    for (int i = 0; i < 100000; i++) buf_putc(&b, '[');
    struct answer_http a = http_post(&server, "/v1/chat/completions", b.data, "");
    assert_int_equal(a.status, 400);
    answer_free(&a);
    buf_clear(&b);
    buf_puts(&b, "{\"messages\": [");
    for (int i = 0; i < 4097; i++) buf_putf(&b, "%s{\"role\": \"user\", \"content\": \"x\"}", i ? "," : "");
    buf_puts(&b, "]}");
    a = http_post(&server, "/v1/chat/completions", b.data, "");
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(answer_error(&a, "message"), "4096"));
    answer_free(&a);
    buf_release(&b);
}

static void logprobs(void **state) {
    (void)state;
    struct answer_http a = chat_ask(&server, "s01", ", \"logprobs\": true, \"top_logprobs\": 2");
    json_t *j = answer_json(&a);
    json_t *content =
        json_object_get(json_object_get(json_array_get(json_object_get(j, "choices"), 0), "logprobs"), "content");
    size_t n = json_array_size(content);
    assert_true(n >= 4);
    struct buf text;
    buf_init(&text, 4096);
    for (size_t i = 0; i < n; i++) {
        json_t *t = json_array_get(content, i);
        assert_true(json_number_value(json_object_get(t, "logprob")) <= 0);
        assert_int_equal(json_array_size(json_object_get(t, "top_logprobs")), 2);
        buf_puts(&text, json_string_value(json_object_get(t, "token")));
    }
    assert_int_equal(strncmp(text.data, "Hello, world.", 13), 0);
    buf_release(&text);
    json_decref(j);
    answer_free(&a);
}

static void several_choices(void **state) {
    (void)state;
    struct answer_http a = chat_ask(&server, "s01", ", \"n\": 3"),
                       b = chat_ask(&server, "s15", ", \"n\": 2, \"stream\": true");
    json_t *j = answer_json(&a);
    assert_int_equal(json_array_size(json_object_get(j, "choices")), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *c = json_array_get(json_object_get(j, "choices"), i);
        assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
        assert_string_equal(json_string_value(json_object_get(json_object_get(c, "message"), "content")),
                            "Hello, world.");
    }
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "usage"), "completion_tokens")), 15);
    for (int i = 0; i < 2; i++) {
        struct chat_stream c = stream_parse(&b, i);
        assert_string_equal(c.text, script_text("s15"));
        assert_int_equal(c.n_finish, 1);
        chat_stream_free(&c);
    }
    json_decref(j);
    answer_free(&a);
    answer_free(&b);
}

static void sampling_by_seed(void **state) {
    (void)state;
    const char *extra = ", \"temperature\": 2, \"seed\": 7, \"max_tokens\": 30, \"ignore_eos\": true";
    struct answer_http a = chat_ask(&server, "hello", extra), b = chat_ask(&server, "hello", extra),
                       c = chat_ask(&server, "hello",
                                    ", \"temperature\": 2, \"seed\": 8, "
                                    "\"max_tokens\": 30, \"ignore_eos\": true");
    json_t *ja = answer_json(&a), *jb = answer_json(&b), *jc = answer_json(&c);
    assert_true(json_equal(message_of(ja), message_of(jb)));
    assert_false(json_equal(message_of(ja), message_of(jc)));
    json_decref(ja);
    json_decref(jb);
    json_decref(jc);
    answer_free(&a);
    answer_free(&b);
    answer_free(&c);
}

static void completions(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int status;
        const char *param;
        size_t n;
    } rows[] = {{"{\"prompt\": \"Once\", \"max_tokens\": 4}", 200, NULL, 1},
                {"{\"prompt\": [1, 6, 109], \"max_tokens\": 4}", 200, NULL, 1},
                {"{\"prompt\": [\"a\", \"b\"], \"max_tokens\": 2, \"n\": 2}", 200, NULL, 4},
                {"{\"prompt\": [[1, 6], [1]], \"max_tokens\": 2}", 200, NULL, 2},
                {"{\"prompt\": \"Once\", \"max_tokens\": 2, \"echo\": true}", 200, NULL, 1},
                {"{\"prompt\": \"Once\", \"max_tokens\": 2, \"logprobs\": 3}", 200, NULL, 1},
                {"{}", 400, "prompt", 0},
                {"{\"prompt\": \"\"}", 400, "prompt", 0},
                {"{\"prompt\": []}", 400, "prompt", 0},
                {"{\"prompt\": [1, \"a\"]}", 400, "prompt", 0},
                {"{\"prompt\": [999999]}", 400, "prompt", 0},
                {"{\"prompt\": {}}", 400, "prompt", 0},
                {"{\"prompt\": \"x\", \"suffix\": \"y\", \"max_tokens\": 2}", 200, NULL, 1},
                {"{\"prompt\": \"x\", \"suffix\": 5}", 400, "suffix", 0},
                {"{\"prompt\": \"x\", \"best_of\": 3}", 400, "best_of", 0},
                {"{\"prompt\": \"x\", \"logprobs\": 6}", 400, "logprobs", 0},
                {"{\"prompt\": [\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\"], \"n\": 8}", 400, "n", 0}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&server, "/v1/completions", rows[i].body, "");
        if (a.status != rows[i].status) fail_msg("%s: %d %s", rows[i].body, a.status, a.body);
        if (rows[i].param) {
            assert_string_equal(answer_error(&a, "param"), rows[i].param);
        } else {
            json_t *j = answer_json(&a), *choices = json_object_get(j, "choices");
            assert_int_equal(json_array_size(choices), rows[i].n);
            const char *text = json_string_value(json_object_get(json_array_get(choices, 0), "text"));
            if (strstr(rows[i].body, "echo")) assert_int_equal(strncmp(text, "Once", 4), 0);
            json_t *lp = json_object_get(json_array_get(choices, 0), "logprobs");
            if (strstr(rows[i].body, "logprobs")) {
                assert_int_equal(json_array_size(json_object_get(lp, "tokens")), 2);
                assert_int_equal(json_array_size(json_object_get(lp, "text_offset")), 2);
                assert_true(json_object_size(json_array_get(json_object_get(lp, "top_logprobs"), 0)) == 3);
            } else {
                assert_true(json_is_null(lp));
            }
            json_decref(j);
        }
        answer_free(&a);
    }
    struct answer_http a =
        http_post(&server, "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 4, \"stream\": true}", "");
    assert_non_null(strstr(a.body, "\"object\":\"text_completion\""));
    assert_non_null(strstr(a.body, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(a.body, "data: [DONE]\n\n"));
    answer_free(&a);
}

static void context_is_told(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 4 << 20);
    for (int i = 0; i < 300000; i++) buf_puts(&b, "hello ");
    struct answer_http a = chat_ask(&server, b.data, "");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_error(&a, "code"), "context_length_exceeded");
    assert_non_null(strstr(answer_error(&a, "message"), "4096"));
    answer_free(&a);
    buf_release(&b);
    a = chat_ask(&server, "s01", ", \"max_tokens\": 2");
    json_t *j = answer_json(&a);
    assert_string_equal(finish_of(j), "length");
    json_decref(j);
    answer_free(&a);
}

#define SCHEMA(schema) \
    ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"schema\": " schema "}}"
#define OBJECT                                                                                         \
    "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"boolean\"}}, \"required\": [\"a\"], " \
    "\"additionalProperties\": false}"

static void held_text_check(json_t *j, const char *extra, const char *const texts[3]) {
    const char *text = json_string_value(json_object_get(message_of(j), "content"));
    bool known = false;
    for (int k = 0; k < 3; k++) known = known || (texts[k] && strcmp(text, texts[k]) == 0);
    if (!known && strstr(extra, "additionalProperties")) {
        json_t *o = json_loads(text, 0, NULL); // blanks are free
        known = json_is_boolean(json_object_get(o, "a")) && json_object_size(o) == 1;
        json_decref(o);
    }
    if (!known) fail_msg("%s: '%s'", extra, text);
    assert_string_equal(finish_of(j), "stop");
}

static void constraints(void **state) {
    (void)state;
    static const struct {
        const char *extra;
        int status;
        const char *texts[3]; // one of these; or of a refusal, param and part of the message
    } rows[] = {
        {SCHEMA("{\"type\": \"boolean\"}"), 200, {"true", "false"}},
        {SCHEMA("{\"enum\": [\"x y\", 5]}"), 200, {"\"x y\"", "5"}},
        {SCHEMA(OBJECT), 200, {NULL}},
        {", \"guided_choice\": [\"yes\", \"no\"]", 200, {"yes", "no"}},
        {", \"guided_regex\": \"[ab]c\"", 200, {"ac", "bc"}},
        {", \"grammar\": \"root ::= \\\"left\\\" | \\\"right\\\"\"", 200, {"left", "right"}},
        {SCHEMA("{\"type\": \"object\", \"patternProperties\": {\"x\": {}}}"),
         400,
         {"response_format", "patternProperties"}},
        {", \"guided_regex\": \"(\"", 400, {"guided_regex", ""}},
        {", \"grammar\": \"no rule\"", 400, {"grammar", ""}},
        {", \"guided_choice\": 5", 400, {"guided_choice", ""}},
        {", \"guided_choice\": [\"a\"], \"guided_regex\": \"b\"", 400, {"guided_choice", "guided_regex"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = chat_ask(&server, "s01", rows[i].extra);
        if (a.status != rows[i].status) fail_msg("%s: %d %s", rows[i].extra, a.status, a.body);
        if (a.status == 200) {
            json_t *j = answer_json(&a);
            held_text_check(j, rows[i].extra, rows[i].texts);
            json_decref(j);
        } else {
            assert_string_equal(answer_error(&a, "param"), rows[i].texts[0]);
            if (!strstr(answer_error(&a, "message"), rows[i].texts[1])) fail_msg("%s: %s", rows[i].extra, a.body);
        }
        answer_free(&a);
    }
}

// A call that must come comes, of the tool that is named, though the script's answer is plain text.
static void forced_calls(void **state) {
    (void)state;
    static const struct {
        const char *more;
        int status;
    } rows[] = {
        {", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"get_weather\"}}, \"max_tokens\": 300",
         200},
        {", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"no_such\"}}", 400},
        {", \"tool_choice\": {\"type\": \"function\"}", 400},
        {", \"tool_choice\": \"sometimes\"", 400},
        {", \"guided_regex\": \"a\", \"tool_choice\": \"required\"", 400},
        // response_format speaks of a text that does not come, but is read all the same.
        {SCHEMA("{\"type\": \"boolean\"}") ", \"tool_choice\": \"required\", \"max_tokens\": 300", 200},
        {SCHEMA("{\"patternProperties\": {\"x\": {}}}") ", \"tool_choice\": \"required\"", 400}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *extra = tools_extra(rows[i].more);
        struct answer_http a = chat_ask(&server, "s01", extra);
        if (a.status != rows[i].status) fail_msg("%s: %d %s", rows[i].more, a.status, a.body);
        if (a.status == 200) {
            json_t *j = answer_json(&a), *calls = json_object_get(message_of(j), "tool_calls");
            if (strcmp(finish_of(j), "length") != 0) { // a small model may fill a text argument for ever
                assert_true(json_array_size(calls) >= 1);
                json_t *f = json_object_get(json_array_get(calls, 0), "function");
                assert_string_equal(json_string_value(json_object_get(f, "name")), "get_weather");
            }
            json_decref(j);
        }
        answer_free(&a);
        mem_free(extra);
    }
}

static int tool_marker(void) {
    struct answer_http a =
        http_post(&server, "/tokenize", "{\"content\": \"<|tool_call_start|>\", \"parse_special\": true}", "");
    json_t *j = answer_json(&a), *tokens = json_object_get(j, "tokens");
    assert_int_equal(json_array_size(tokens), 1);
    int id = (int)json_integer_value(json_array_get(tokens, 0));
    json_decref(j);
    answer_free(&a);
    return id;
}

// With tools to choose from and a form: the script whose answer is a call gives that call; the one whose answer is no
// call is held to the form (the model's next best way out, a call, is biased away).
static void calls_or_form(void **state) {
    (void)state;
    static const struct {
        const char *more, *texts[2];
    } rows[] = {{SCHEMA("{\"type\": \"boolean\"}"), {"true", "false"}},
                {", \"guided_choice\": [\"left\", \"right\"]", {"left", "right"}},
                {", \"grammar\": \"root ::= [ab]\"", {"a", "b"}}};
    const int marker = tool_marker();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int streamed = 0; streamed < 2; streamed++) {
            static const char tools[] =
                ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\"}}]";
            char more[512], biased[600];
            snprintf(more, sizeof more, "%s%s%s", tools, rows[i].more, streamed ? ", \"stream\": true" : "");
            snprintf(biased, sizeof biased, "%s, \"logit_bias\": {\"%d\": -100}", more, marker);
            struct answer_http text = chat_ask(&server, "s01", biased), call = chat_ask(&server, "s04", more);
            assert_int_equal(text.status, 200);
            assert_int_equal(call.status, 200);
            if (streamed) {
                struct chat_stream t = stream_parse(&text, 0), c = stream_parse(&call, 0);
                if (strcmp(t.text, rows[i].texts[0]) != 0 && strcmp(t.text, rows[i].texts[1]) != 0)
                    fail_msg("%s: '%s'", rows[i].more, t.text);
                assert_string_equal(t.finish, "stop");
                assert_string_equal(t.calls, "");
                assert_string_equal(c.finish, "tool_calls");
                assert_string_equal(c.text, "");
                assert_non_null(strstr(c.calls, "get_weather"));
                chat_stream_free(&t);
                chat_stream_free(&c);
            } else {
                json_t *t = answer_json(&text), *c = answer_json(&call);
                const char *content = json_string_value(json_object_get(message_of(t), "content"));
                if (strcmp(content, rows[i].texts[0]) != 0 && strcmp(content, rows[i].texts[1]) != 0)
                    fail_msg("%s: '%s'", rows[i].more, content);
                assert_string_equal(finish_of(t), "stop");
                assert_string_equal(finish_of(c), "tool_calls");
                assert_true(json_array_size(json_object_get(message_of(c), "tool_calls")) >= 1);
                json_decref(t);
                json_decref(c);
            }
            answer_free(&text);
            answer_free(&call);
        }
}

static void constraints_are_kept(void **state) {
    (void)state;
    static const char extra[] = SCHEMA("{\"enum\": [\"kept\", \"compiled once\"]}");
    double opened = metric_of(&server, "tern_constraints_opened_total"),
           compiled = metric_of(&server, "tern_constraints_compiled_total");
    for (int i = 0; i < 3; i++) {
        struct answer_http a = chat_ask(&server, "s01", extra);
        assert_int_equal(a.status, 200);
        answer_free(&a);
    }
    assert_true(metric_of(&server, "tern_constraints_opened_total") == opened + 3);
    assert_true(metric_of(&server, "tern_constraints_compiled_total") == compiled + 1);
    assert_true(metric_of(&server, "tern_constraints_kept") >= 1);
    assert_true(metric_of(&server, "tern_constraints_kept_bytes") <= 64 << 20);
}

// s13 thinks, then answers: its thoughts' tokens, with the two markers, are counted.
static void reasoning_is_counted(void **state) {
    (void)state;
    static const char *const names[] = {"s01", "s13"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct answer_http a = chat_ask(&server, names[i], "");
        json_t *j = answer_json(&a), *usage = json_object_get(j, "usage");
        int64_t n = json_integer_value(
            json_object_get(json_object_get(usage, "completion_tokens_details"), "reasoning_tokens"));
        int64_t all = json_integer_value(json_object_get(usage, "completion_tokens"));
        if (i == 0 ? n != 0 : n < 3 || n >= all) fail_msg("%s: %lld of %lld", names[i], (long long)n, (long long)all);
        json_decref(j);
        answer_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_whole_and_streamed),
        cmocka_unit_test(texts_are_exact),
        cmocka_unit_test(counts_and_extras),
        cmocka_unit_test(empty_answer),
        cmocka_unit_test(tool_calls),
        cmocka_unit_test(stops),
        cmocka_unit_test(fields_are_bounded),
        cmocka_unit_test(bodies_are_checked),
        cmocka_unit_test(depth_and_messages_are_bounded),
        cmocka_unit_test(logprobs),
        cmocka_unit_test(several_choices),
        cmocka_unit_test(sampling_by_seed),
        cmocka_unit_test(completions),
        cmocka_unit_test(context_is_told),
        cmocka_unit_test(constraints),
        cmocka_unit_test(forced_calls),
        cmocka_unit_test(calls_or_form),
        cmocka_unit_test(constraints_are_kept),
        cmocka_unit_test(reasoning_is_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
