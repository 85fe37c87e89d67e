// What clients rely on in the wire formats and no other test looks at: fields of each chunk, headers, kinds of
// tool_choice, vectors of ids, what /v1/models tells, other clients' ways to the same routes.
#include "server_lib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ENCODER TEST_DATA "/hf/lfm2-encoder/model.gguf"

static struct served server;

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--also", ENCODER, "--log", "none", NULL});
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

// ------------------------------------------------------------------------------------------------------------- streams

struct chunks {
    int n, n_usage, n_ids_wrong, n_names, n_arguments;
    bool is_over;
};
// With include_usage: null in every chunk but the last, which has no choices. Without: no such member.
static void usage_chunk(void *arg, json_t *j, const char *event) {
    struct chunks *c = arg;
    (void)event;
    c->n++;
    assert_false(c->is_over);
    assert_non_null(json_object_get(j, "usage"));
    assert_non_null(json_object_get(j, "system_fingerprint"));
    c->is_over = json_is_object(json_object_get(j, "usage"));
    assert_true(json_is_array(json_object_get(j, "choices")));
    assert_int_equal(json_array_size(json_object_get(j, "choices")), !c->is_over);
}
static void plain_chunk(void *arg, json_t *j, const char *event) {
    struct chunks *c = arg;
    (void)event;
    c->n++;
    assert_null(json_object_get(j, "usage"));
    assert_int_equal(json_array_size(json_object_get(j, "choices")), 1);
}

static void usage_in_chunks(void **state) {
    (void)state;
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions"};
    static const char *const bodies[] = {"\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}]",
                                         "\"prompt\": \"Hi\""};
    for (int i = 0; i < 4; i++) {
        char body[300], header[512];
        struct chunks c = {0};
        snprintf(body, sizeof body, "{%s, \"max_tokens\": 4, \"stream\": true%s}", bodies[i / 2],
                 i % 2 ? ", \"stream_options\": {\"include_usage\": true}" : "");
        struct answer_http a = http_post(&server, paths[i / 2], body, "");
        stream_each(&a, i % 2 ? usage_chunk : plain_chunk, &c);
        assert_true(c.n >= 3);
        assert_int_equal(c.is_over, i % 2);
        assert_string_equal(a.body + strlen(a.body) - 14, "data: [DONE]\n\n");
        assert_string_equal(answer_header(&a, "X-Accel-Buffering", header), "no");
        assert_string_equal(answer_header(&a, "Cache-Control", header), "no-cache");
        assert_int_equal(strncmp(answer_header(&a, "X-Request-Id", header), "req_", 4), 0);
        answer_free(&a);
    }
}

static void logprobs_in_chunks_take(void *arg, json_t *j, const char *event) {
    json_t *all = arg;
    (void)event;
    json_array_extend(all, json_at(j, "choices.0.logprobs.content"));
}
// The same tokens, whole and streamed.
static void logprobs_in_chunks(void **state) {
    (void)state;
    struct answer_http a = chat_ask(&server, "s01", ", \"logprobs\": true, \"top_logprobs\": 2, \"stream\": true");
    struct answer_http b = chat_ask(&server, "s01", ", \"logprobs\": true, \"top_logprobs\": 2");
    json_t *all = json_array(), *j = answer_json(&b), *whole = json_at(j, "choices.0.logprobs.content");
    stream_each(&a, logprobs_in_chunks_take, all);
    assert_true(json_array_size(all) >= 4);
    assert_true(json_equal(all, whole));
    assert_int_equal(json_array_size(json_at(all, "0.top_logprobs")), 2);
    json_decref(all);
    json_decref(j);
    answer_free(&a);
    answer_free(&b);
}

// ------------------------------------------------------------------------------------------------------ allowed_tools

#define ALLOWED(mode, name)                                                                  \
    ", \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"" mode \
    "\", \"tools\": [{\"type\": "                                                            \
    "\"function\", \"function\": {\"name\": \"" name "\"}}]}}"

static int64_t prompt_tokens(const char *extra) {
    struct answer_http a = chat_ask(&server, "s01", extra);
    if (a.status != 200) fail_msg("%s: %s", extra, a.body);
    json_t *j = answer_json(&a);
    const int64_t n = json_integer_value(json_at(j, "usage.prompt_tokens"));
    json_decref(j);
    answer_free(&a);
    return n;
}

#define TOOL(name)                                                                                            \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name "\", \"parameters\": {\"type\": \"object\", " \
    "\"properties\": {\"x\": {\"type\": \"boolean\"}}, \"required\": [\"x\"], \"additionalProperties\": false}}}"
#define TOOLS \
    ", \"max_tokens\": 60, \"parallel_tool_calls\": false, \"tools\": [" TOOL("first_tool") ", " TOOL("second_tool") "]"

// Only the allowed are offered: the prompt is that of a request with these alone. With `required` one is called.
static void allowed_tools(void **state) {
    (void)state;
    assert_int_equal(prompt_tokens(TOOLS ALLOWED("auto", "second_tool")),
                     prompt_tokens(", \"max_tokens\": 60, \"tools\": [" TOOL("second_tool") "]"));
    assert_true(prompt_tokens(TOOLS) > prompt_tokens(TOOLS ALLOWED("auto", "second_tool")));
    for (int streamed = 0; streamed < 2; streamed++) {
        struct answer_http a = chat_ask(&server, "s01",
                                        streamed ? TOOLS ALLOWED("required", "second_tool") ", \"stream\": true"
                                                 : TOOLS ALLOWED("required", "second_tool"));
        if (streamed) {
            struct chat_stream c = stream_parse(&a, 0);
            assert_string_equal(c.finish, "tool_calls");
            assert_int_equal(strncmp(c.calls, "second_tool{", 12), 0);
            chat_stream_free(&c);
        } else {
            json_t *j = answer_json(&a);
            assert_string_equal(finish_of(j), "tool_calls");
            assert_string_equal(json_text_at(message_of(j), "tool_calls.0.function.name"), "second_tool");
            json_decref(j);
        }
        answer_free(&a);
    }
    static const char *const bad[] = {
        TOOLS ALLOWED("sometimes", "second_tool"),
        TOOLS ALLOWED("auto", "third_tool"),
        ALLOWED("auto", "second_tool"),
        TOOLS
        ", \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\", \"tools\": []}}",
        TOOLS ", \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\"}}",
        TOOLS ", \"tool_choice\": {\"type\": \"allowed_tools\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct answer_http a = chat_ask(&server, "s01", bad[i]);
        if (a.status != 400) fail_msg("%s: %d", bad[i], a.status);
        assert_int_equal(strncmp(answer_error(&a, "param"), "tool_choice", 11), 0);
        answer_free(&a);
    }
}

// In the form of /v1/responses.
static void allowed_tools_of_responses(void **state) {
    (void)state;
    static const char tools[] =
        "\"tools\": [{\"type\": \"function\", \"name\": \"first_tool\"}, {\"type\": \"function\", \"name\": "
        "\"second_tool\"}]";
    char body[600];
    snprintf(
        body, sizeof body,
        "{\"input\": \"s01\", \"max_output_tokens\": 60, %s, \"tool_choice\": {\"type\": \"allowed_tools\", \"mode\": "
        "\"required\", \"tools\": [{\"type\": \"function\", \"name\": \"first_tool\"}]}}",
        tools);
    json_t *j = json_of("/v1/responses", body), *item;
    size_t i, n = 0;
    json_array_foreach(json_object_get(j, "output"), i, item) {
        if (strcmp(json_text_at(item, "type"), "function_call") != 0) continue;
        assert_string_equal(json_text_at(item, "name"), "first_tool");
        n++;
    }
    assert_true(n >= 1 || strcmp(json_text_at(j, "status"), "incomplete") == 0);
    assert_string_equal(json_text_at(j, "tool_choice.type"), "allowed_tools"); // repeated as it was asked
    assert_int_equal(json_array_size(json_object_get(j, "tools")), 2);
    json_decref(j);
}

// ----------------------------------------------------------------------------------------------------------- responses

// The conversations of the public compliance runner of Open Responses, but for its image, with what its schemas ask of
// the answer and of each event.
#define CITY_TOOL                                                                                                   \
    "\"tools\": [{\"type\": \"function\", \"name\": \"get_weather\", \"description\": \"Weather of a place\", "     \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"location\": {\"type\": \"string\"}}, \"required\": " \
    "[\"location\"]}}]"
#define MESSAGE(role, text) "{\"type\": \"message\", \"role\": \"" role "\", \"content\": \"" text "\"}"
static const struct {
    const char *body, *item; // a kind of item that must come
} conversations[] = {
    {"\"input\": [" MESSAGE("user", "s01") "]", "message"},
    {"\"input\": [" MESSAGE("system", "You are a pirate.") ", " MESSAGE("user", "s01") "]", "message"},
    {"\"input\": [" MESSAGE("user", "s04") "], " CITY_TOOL, "function_call"},
    {"\"input\": [" MESSAGE("user", "I am Al.") ", " MESSAGE("assistant", "Hello!") ", " MESSAGE("user", "s01") "]",
     "message"},
    {"\"input\": [" MESSAGE("user", "s13") "]", "reasoning"}};

static void members_check(json_t *j, const char *what, const char *const *names) {
    for (; *names; names++)
        if (!json_object_get(j, *names)) fail_msg("%s has no %s", what, *names);
}

static void response_check(json_t *j, const char *kind) {
    static const char *const all[] = {"id",
                                      "object",
                                      "created_at",
                                      "completed_at",
                                      "status",
                                      "incomplete_details",
                                      "model",
                                      "previous_response_id",
                                      "instructions",
                                      "output",
                                      "error",
                                      "tools",
                                      "tool_choice",
                                      "truncation",
                                      "parallel_tool_calls",
                                      "text",
                                      "top_p",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "top_logprobs",
                                      "temperature",
                                      "reasoning",
                                      "user",
                                      "usage",
                                      "max_output_tokens",
                                      "max_tool_calls",
                                      "store",
                                      "background",
                                      "service_tier",
                                      "metadata",
                                      "safety_identifier",
                                      "prompt_cache_key",
                                      NULL};
    static const char *const tool[] = {"type", "name", "description", "parameters", "strict", NULL};
    static const char *const message[] = {"id", "type", "status", "role", "content", NULL};
    static const char *const call[] = {"id", "type", "status", "call_id", "name", "arguments", NULL};
    static const char *const reasoning[] = {"id", "type", "summary", "content", NULL};
    static const char *const text[] = {"type", "text", "annotations", "logprobs", NULL};
    json_t *item;
    size_t i;
    bool found = false;
    members_check(j, "the response", all);
    assert_string_equal(json_text_at(j, "status"), "completed");
    assert_true(json_is_integer(json_object_get(j, "completed_at")) && json_is_null(json_object_get(j, "error")));
    assert_true(json_is_integer(json_at(j, "usage.input_tokens_details.cached_tokens")) &&
                json_is_integer(json_at(j, "usage.output_tokens_details.reasoning_tokens")));
    json_array_foreach(json_object_get(j, "tools"), i, item) members_check(item, "a tool", tool);
    json_array_foreach(json_object_get(j, "output"), i, item) {
        const char *type = json_text_at(item, "type");
        found = found || strcmp(type, kind) == 0;
        members_check(item, type,
                      strcmp(type, "message") == 0         ? message
                      : strcmp(type, "function_call") == 0 ? call
                                                           : reasoning);
        if (strcmp(type, "message") == 0) members_check(json_at(item, "content.0"), "a text", text);
    }
    if (!found) fail_msg("no item is a %s", kind);
}

struct events {
    const char *kind;
    int n_item_added, n_item_done, n_delta, n_done, n_over;
};
static void responses_event(void *arg, json_t *j, const char *event) {
    static const char *const common[] = {"type", "sequence_number", NULL};
    static const char *const item[] = {"output_index", "item", NULL};
    static const char *const of_item[] = {"item_id", "output_index", NULL};
    struct events *t = arg;
    const char *type = json_text_at(j, "type");
    assert_string_equal(type, event);
    members_check(j, type, common);
    const bool is_kind = strcmp(json_text_at(j, "item.type"), t->kind) == 0;
    const bool is_call = strcmp(t->kind, "function_call") == 0;
    if (strncmp(type, "response.output_item.", 21) == 0) members_check(j, type, item);
    t->n_item_added += is_kind && strcmp(type, "response.output_item.added") == 0;
    t->n_item_done += is_kind && strcmp(type, "response.output_item.done") == 0;
    const char *of = is_call                             ? "response.function_call_arguments."
                     : strcmp(t->kind, "reasoning") == 0 ? "response.reasoning_text."
                                                         : "response.output_text.";
    if (strncmp(type, of, strlen(of)) == 0) {
        const bool delta = strcmp(type + strlen(of), "delta") == 0;
        members_check(j, type, of_item);
        assert_non_null(json_object_get(j, delta ? "delta" : is_call ? "arguments" : "text"));
        t->n_delta += delta;
        t->n_done += !delta;
    }
    if (strcmp(type, "response.completed") != 0) return;
    t->n_over++;
    response_check(json_object_get(j, "response"), t->kind);
}

static void open_responses(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(conversations); i++) {
        char body[1200];
        snprintf(body, sizeof body, "{\"model\": \"script-lfm2\", %s}", conversations[i].body);
        json_t *j = json_of("/v1/responses", body);
        response_check(j, conversations[i].item);
        json_decref(j);
        struct events t = {.kind = conversations[i].item};
        snprintf(body, sizeof body, "{\"model\": \"script-lfm2\", %s, \"stream\": true}", conversations[i].body);
        struct answer_http a = http_post(&server, "/v1/responses", body, "");
        stream_each(&a, responses_event, &t);
        const bool whole = t.n_item_added >= 1 && t.n_item_done == t.n_item_added && t.n_delta >= 1 && t.n_done >= 1;
        if (!whole || t.n_over != 1) fail_msg("%s: %s", body, a.body);
        answer_free(&a);
    }
}

// ------------------------------------------------------------------------------------------------------------- vectors

#define WIDTH 32
static void base64_floats(const char *text, float out[WIDTH]) {
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t bytes[WIDTH * 4 + 3];
    size_t n = 0, len = strlen(text);
    assert_int_equal(len, (WIDTH * 4 + 2) / 3 * 4);
    for (size_t i = 0; i < len; i += 4) {
        uint32_t v = 0;
        for (size_t k = 0; k < 4; k++)
            v = v << 6 | (text[i + k] == '=' ? 0 : (uint32_t)(strchr(set, text[i + k]) - set));
        for (int shift = 16; shift >= 0 && n < sizeof bytes; shift -= 8) bytes[n++] = (uint8_t)(v >> shift);
    }
    memcpy(out, bytes, WIDTH * sizeof *out);
}

// A text, its ids, and both in a list: one vector, of length 1, in either encoding.
static void vectors_of_ids(void **state) {
    (void)state;
    json_t *t = json_of("/tokenize", "{\"model\": \"model\", \"content\": \"a text\", \"add_special\": true}");
    char *ids = json_dumps(json_object_get(t, "tokens"), JSON_COMPACT), body[600];
    json_decref(t);
    snprintf(body, sizeof body, "{\"model\": \"model\", \"input\": [\"a text\", %s]}", ids);
    json_t *both = json_of("/v1/embeddings", body);
    snprintf(body, sizeof body, "{\"model\": \"model\", \"input\": %s, \"encoding_format\": \"base64\"}", ids);
    json_t *alone = json_of("/v1/embeddings", body);
    free(ids);
    assert_int_equal(json_array_size(json_object_get(both, "data")), 2);
    assert_int_equal(json_integer_value(json_at(both, "data.1.index")), 1);
    assert_true(json_equal(json_at(both, "data.0.embedding"), json_at(both, "data.1.embedding")));
    assert_int_equal(json_integer_value(json_at(both, "usage.prompt_tokens")),
                     2 * json_integer_value(json_at(alone, "usage.prompt_tokens")));
    float v[WIDTH];
    double length = 0;
    base64_floats(json_text_at(alone, "data.0.embedding"), v);
    for (int i = 0; i < WIDTH; i++) {
        char path[40];
        snprintf(path, sizeof path, "data.0.embedding.%d", i);
        assert_true((double)v[i] == json_number_value(json_at(both, path)));
        length += (double)v[i] * (double)v[i];
    }
    assert_true(fabs(length - 1) < 1e-5);
    json_decref(both);
    json_decref(alone);
    static const char *const bad[] = {"[1, \"a\"]", "[[]]", "[[1, \"a\"]]", "[99999999]", "[-1]", "[[1.5]]",
                                      "{}",         "5",    "[[[1]]]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(body, sizeof body, "{\"model\": \"model\", \"input\": %s}", bad[i]);
        struct answer_http a = http_post(&server, "/v1/embeddings", body, "");
        if (a.status != 400) fail_msg("%s: %d %s", bad[i], a.status, a.body);
        assert_string_equal(answer_error(&a, "param"), "input");
        answer_free(&a);
    }
}

// -------------------------------------------------------------------------------------------------------------- others

static void models_tell_what_they_read(void **state) {
    (void)state;
    static const char *const ids[] = {"script-lfm2", "model"}, *const gives[] = {"text", "embeddings"};
    json_decref(json_of("/v1/embeddings", "{\"model\": \"model\", \"input\": \"loads it\"}"));
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "/v1/models/%s", ids[i]);
        json_t *j = json_of(path, NULL);
        assert_string_equal(json_text_at(j, "id"), ids[i]);
        assert_string_equal(json_text_at(j, "object"), "model");
        assert_true(json_is_integer(json_object_get(j, "created")) && json_is_string(json_object_get(j, "owned_by")));
        assert_string_equal(json_text_at(j, "architecture.input_modalities.0"), "text");
        assert_string_equal(json_text_at(j, "architecture.output_modalities.0"), gives[i]);
        assert_true(json_integer_value(json_at(j, "meta.n_ctx")) > 0 &&
                    json_integer_value(json_at(j, "meta.size")) > 0);
        json_decref(j);
    }
}

// Paths with a query that says nothing here, headers that only tell who asks, and bodies with fields that ask for
// nothing: as without them.
static void what_asks_for_nothing(void **state) {
    (void)state;
    struct answer_http a =
        http_post(&server, "/v1/messages?beta=true",
                  "{\"model\": \"script-lfm2\", \"max_tokens\": 9, \"metadata\": {\"user_id\": \"u\"}, \"messages\": "
                  "[{\"role\": \"user\", \"content\": \"s01\"}]}",
                  "anthropic-version: 2023-06-01\r\nanthropic-beta: x\r\nx-api-key: any\r\n");
    json_t *j = answer_json(&a);
    assert_int_equal(a.status, 200);
    assert_string_equal(json_text_at(j, "content.0.text"), script_text("s01"));
    json_decref(j);
    answer_free(&a);
    a = chat_ask(&server, "s01",
                 ", \"user\": \"u\", \"metadata\": {\"a\": \"b\"}, \"store\": true, \"service_tier\": \"auto\", "
                 "\"cache_prompt\": false, \"id_slot\": 2, \"no_such_field\": [1]");
    j = answer_json(&a);
    assert_int_equal(a.status, 200);
    assert_string_equal(json_text_at(message_of(j), "content"), script_text("s01"));
    assert_true(json_is_null(json_object_get(message_of(j), "refusal")));
    json_decref(j);
    answer_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_in_chunks),
        cmocka_unit_test(logprobs_in_chunks),
        cmocka_unit_test(allowed_tools),
        cmocka_unit_test(allowed_tools_of_responses),
        cmocka_unit_test(open_responses),
        cmocka_unit_test(vectors_of_ids),
        cmocka_unit_test(models_tell_what_they_read),
        cmocka_unit_test(what_asks_for_nothing),
    };
    return cmocka_run_group_tests_name("boxes", tests, setup, teardown);
}
