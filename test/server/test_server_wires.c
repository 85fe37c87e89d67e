// The formats beside OpenAI's chat (/v1/responses, /v1/messages, Ollama's /api/…) against the script model: every
// script says the same in each format, whole and streamed, as in chat completions; conversations become the same
// prompt; the order and numbering of events; errors in each family's shape. And the chat page's files.
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>

static struct served server;
static char *tools; // OpenAI's form, raw

static int setup(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    if (file_read_all(&b, TEST_DATA "/script/tools.json", NULL) != TERN_OK) return 1;
    tools = b.data;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--alias", "other", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    mem_free(tools);
    return server_stop(&server);
}

// What an answer says, whatever its format.
struct said {
    struct buf text, thoughts, calls; // calls: name and arguments, sorted keys
    char end[64];
    int64_t n_prompt, n_answer;
};
static void said_init(struct said *s) {
    *s = (struct said){0};
    buf_init(&s->text, 1 << 20);
    buf_init(&s->thoughts, 1 << 20);
    buf_init(&s->calls, 1 << 20);
}
static void said_free(struct said *s) {
    buf_release(&s->text);
    buf_release(&s->thoughts);
    buf_release(&s->calls);
}
static void call_put(struct said *s, const char *name, json_t *arguments) {
    char *text = json_dumps(arguments, JSON_COMPACT | JSON_SORT_KEYS);
    buf_putf(&s->calls, "%s%s ", name, text ? text : "?");
    free(text);
}
static void call_put_text(struct said *s, const char *name, const char *arguments) {
    json_t *j = json_loads(arguments, 0, NULL);
    if (!j) fail_msg("the arguments of %s are no JSON: %s", name, arguments);
    call_put(s, name, j);
    json_decref(j);
}
static const char *z(const struct buf *b) { return b->data ? b->data : ""; }

// Runs of U+FFFD as one, and no blanks at the ends of runs: where a run is cut depends on the pieces.
static void same_text(const char *what, const char *script, const char *x, const char *y) {
    char a[8192], b[8192];
    const char *in[2] = {x, y};
    char *out[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        for (const char *p = in[i]; *p && n + 4 < sizeof a; p++) {
            if (n >= 3 && memcmp(p, "\xef\xbf\xbd", 3) == 0 && memcmp(out[i] + n - 3, "\xef\xbf\xbd", 3) == 0)
                p += 2;
            else
                out[i][n++] = *p;
        }
        out[i][n] = 0;
    }
    if (strcmp(a, b) != 0) fail_msg("%s, %s: '%s' and '%s'", script, what, a, b);
}
static void same_said(const char *format, const char *script, struct said *a, struct said *b) {
    char what[64];
    snprintf(what, sizeof what, "%s, text", format);
    same_text(what, script, z(&a->text), z(&b->text));
    snprintf(what, sizeof what, "%s, thoughts", format);
    same_text(what, script, z(&a->thoughts), z(&b->thoughts));
    snprintf(what, sizeof what, "%s, calls", format);
    same_text(what, script, z(&a->calls), z(&b->calls));
    if (a->n_prompt != b->n_prompt || a->n_answer != b->n_answer)
        fail_msg("%s, %s: %lld + %lld tokens and %lld + %lld", format, script, (long long)a->n_prompt,
                 (long long)a->n_answer, (long long)b->n_prompt, (long long)b->n_answer);
}

// ------------------------------------------------------------------------------------------------------ chat: the norm

static struct said chat_said(const char *user) {
    struct answer_http a = http_postf(
        &server, "/v1/chat/completions",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":60,\"tools\":%s}", user, tools);
    json_t *j = answer_json(&a), *message = json_at(j, "choices.0.message"), *call;
    struct said s;
    size_t i;
    said_init(&s);
    buf_puts(&s.text, json_text_at(message, "content"));
    buf_puts(&s.thoughts, json_text_at(message, "reasoning_content"));
    json_array_foreach(json_object_get(message, "tool_calls"), i, call)
        call_put_text(&s, json_text_at(call, "function.name"), json_text_at(call, "function.arguments"));
    s.n_prompt = json_integer_value(json_at(j, "usage.prompt_tokens"));
    s.n_answer = json_integer_value(json_at(j, "usage.completion_tokens"));
    snprintf(s.end, sizeof s.end, "%s", json_text_at(j, "choices.0.finish_reason"));
    json_decref(j);
    answer_free(&a);
    return s;
}

// ----------------------------------------------------------------------------------------------------------- Anthropic

static char *anthropic_tools(void) {
    json_t *all = json_loads(tools, 0, NULL), *out = json_array(), *t;
    size_t i;
    json_array_foreach(all, i, t) {
        json_t *f = json_object_get(t, "function"), *o = json_object();
        json_object_set(o, "name", json_object_get(f, "name"));
        json_object_set(o, "description", json_object_get(f, "description"));
        json_object_set(o, "input_schema", json_object_get(f, "parameters"));
        json_array_append_new(out, o);
    }
    char *text = json_dumps(out, JSON_COMPACT);
    json_decref(all);
    json_decref(out);
    return text;
}

static struct answer_http anthropic_ask(const char *user, bool stream) {
    char *t = anthropic_tools();
    struct answer_http a = http_postf(&server, "/v1/messages",
                                      "{\"model\":\"script-lfm2\",\"max_tokens\":60,\"stream\":%s,\"tools\":%s,"
                                      "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                                      stream ? "true" : "false", t, user);
    free(t);
    return a;
}

static struct said anthropic_whole(const char *user) {
    struct answer_http a = anthropic_ask(user, false);
    json_t *j = answer_json(&a), *block;
    struct said s;
    size_t i;
    said_init(&s);
    assert_string_equal(json_text_at(j, "type"), "message");
    assert_string_equal(json_text_at(j, "role"), "assistant");
    assert_int_equal(strncmp(json_text_at(j, "id"), "msg_", 4), 0);
    json_array_foreach(json_object_get(j, "content"), i, block) {
        const char *type = json_text_at(block, "type");
        if (strcmp(type, "text") == 0) buf_puts(&s.text, json_text_at(block, "text"));
        if (strcmp(type, "thinking") == 0) buf_puts(&s.thoughts, json_text_at(block, "thinking"));
        if (strcmp(type, "tool_use") == 0) call_put(&s, json_text_at(block, "name"), json_object_get(block, "input"));
    }
    s.n_prompt = json_integer_value(json_at(j, "usage.input_tokens")) +
                 json_integer_value(json_at(j, "usage.cache_read_input_tokens"));
    s.n_answer = json_integer_value(json_at(j, "usage.output_tokens"));
    snprintf(s.end, sizeof s.end, "%s", json_text_at(j, "stop_reason"));
    json_decref(j);
    answer_free(&a);
    return s;
}

struct anthropic_stream {
    struct said s;
    int n_start, n_stop, n_delta, next, open; // open: index of the block, -1: none
    char kind[32], name[64];
    struct buf input;
};
static void anthropic_event(void *arg, json_t *j, const char *event) {
    struct anthropic_stream *t = arg;
    const char *type = json_text_at(j, "type");
    assert_string_equal(type, event); // the event's name repeats its type
    assert_int_equal(t->n_stop, 0);   // nothing after the end
    if (strcmp(type, "ping") == 0) return;
    assert_true((t->n_start == 0) == (strcmp(type, "message_start") == 0));
    if (strcmp(type, "message_start") == 0) {
        t->n_start++;
        t->s.n_prompt = json_integer_value(json_at(j, "message.usage.input_tokens"));
        assert_int_equal(json_array_size(json_at(j, "message.content")), 0);
        assert_true(json_is_null(json_at(j, "message.stop_reason")));
    } else if (strcmp(type, "content_block_start") == 0) {
        assert_int_equal(t->open, -1);
        assert_int_equal(json_integer_value(json_at(j, "index")), t->next);
        t->open = t->next++;
        snprintf(t->kind, sizeof t->kind, "%s", json_text_at(j, "content_block.type"));
        snprintf(t->name, sizeof t->name, "%s", json_text_at(j, "content_block.name"));
        buf_clear(&t->input);
    } else if (strcmp(type, "content_block_delta") == 0) {
        assert_int_equal(json_integer_value(json_at(j, "index")), t->open);
        const char *delta = json_text_at(j, "delta.type");
        assert_string_equal(delta, strcmp(t->kind, "text") == 0       ? "text_delta"
                                   : strcmp(t->kind, "thinking") == 0 ? "thinking_delta"
                                                                      : "input_json_delta");
        buf_puts(&t->s.text, json_text_at(j, "delta.text"));
        buf_puts(&t->s.thoughts, json_text_at(j, "delta.thinking"));
        buf_puts(&t->input, json_text_at(j, "delta.partial_json"));
    } else if (strcmp(type, "content_block_stop") == 0) {
        assert_int_equal(json_integer_value(json_at(j, "index")), t->open);
        t->open = -1;
        if (strcmp(t->kind, "tool_use") == 0) call_put_text(&t->s, t->name, z(&t->input));
    } else if (strcmp(type, "message_delta") == 0) {
        assert_int_equal(t->open, -1);
        t->n_delta++;
        t->s.n_answer = json_integer_value(json_at(j, "usage.output_tokens"));
        assert_int_equal(json_integer_value(json_at(j, "usage.input_tokens")) +
                             json_integer_value(json_at(j, "usage.cache_read_input_tokens")),
                         t->s.n_prompt);
        snprintf(t->s.end, sizeof t->s.end, "%s", json_text_at(j, "delta.stop_reason"));
    } else {
        assert_string_equal(type, "message_stop");
        t->n_stop++;
    }
}

static struct said anthropic_streamed(const char *user) {
    struct answer_http a = anthropic_ask(user, true);
    struct anthropic_stream t = {.open = -1};
    said_init(&t.s);
    buf_init(&t.input, 1 << 16);
    stream_each(&a, anthropic_event, &t);
    assert_int_equal(t.n_start, 1);
    assert_int_equal(t.n_delta, 1);
    assert_int_equal(t.n_stop, 1);
    buf_release(&t.input);
    answer_free(&a);
    return t.s;
}

// ----------------------------------------------------------------------------------------------------------- Responses

static char *responses_tools(void) {
    json_t *all = json_loads(tools, 0, NULL), *out = json_array(), *t;
    size_t i;
    json_array_foreach(all, i, t) {
        json_t *o = json_deep_copy(json_object_get(t, "function"));
        json_object_set_new(o, "type", json_string("function"));
        json_array_append_new(out, o);
    }
    char *text = json_dumps(out, JSON_COMPACT);
    json_decref(all);
    json_decref(out);
    return text;
}

static struct answer_http responses_ask(const char *user, bool stream) {
    char *t = responses_tools();
    struct answer_http a = http_postf(&server, "/v1/responses",
                                      "{\"model\":\"script-lfm2\",\"max_output_tokens\":60,\"stream\":%s,\"tools\":%s,"
                                      "\"input\":\"%s\"}",
                                      stream ? "true" : "false", t, user);
    free(t);
    return a;
}

static struct said response_take(json_t *j) {
    json_t *item, *part;
    struct said s;
    size_t i, k;
    said_init(&s);
    assert_string_equal(json_text_at(j, "object"), "response");
    json_array_foreach(json_object_get(j, "output"), i, item) {
        if (strcmp(json_text_at(item, "type"), "function_call") == 0)
            call_put_text(&s, json_text_at(item, "name"), json_text_at(item, "arguments"));
        json_array_foreach(json_object_get(item, "content"), k, part) {
            const bool text = strcmp(json_text_at(part, "type"), "output_text") == 0;
            buf_puts(text ? &s.text : &s.thoughts, json_text_at(part, "text"));
        }
    }
    s.n_prompt = json_integer_value(json_at(j, "usage.input_tokens"));
    s.n_answer = json_integer_value(json_at(j, "usage.output_tokens"));
    snprintf(s.end, sizeof s.end, "%s", json_text_at(j, "status"));
    return s;
}

struct responses_stream {
    struct said s, last; // of the deltas, and of the response at the end
    int64_t next;
    int n_open, n_done, n_end;
    bool is_over;
};
static void responses_event(void *arg, json_t *j, const char *event) {
    struct responses_stream *t = arg;
    const char *type = json_text_at(j, "type");
    assert_string_equal(type, event);
    assert_false(t->is_over);
    assert_int_equal(json_integer_value(json_at(j, "sequence_number")), t->next);
    if (t->next == 0) assert_string_equal(type, "response.created");
    if (t->next == 1) assert_string_equal(type, "response.in_progress");
    t->next++;
    if (strcmp(type, "response.output_item.added") == 0) {
        assert_int_equal(json_integer_value(json_at(j, "output_index")), t->n_open++);
    } else if (strcmp(type, "response.output_item.done") == 0) {
        assert_int_equal(json_integer_value(json_at(j, "output_index")), t->n_done++);
        assert_int_equal(t->n_done, t->n_open); // one after the other
    } else if (strcmp(type, "response.output_text.delta") == 0) {
        buf_puts(&t->s.text, json_text_at(j, "delta"));
    } else if (strcmp(type, "response.reasoning_text.delta") == 0) {
        buf_puts(&t->s.thoughts, json_text_at(j, "delta"));
    } else if (strcmp(type, "response.function_call_arguments.done") == 0) {
        call_put_text(&t->s, json_text_at(j, "name"), json_text_at(j, "arguments"));
    } else if (strcmp(type, "response.completed") == 0 || strcmp(type, "response.incomplete") == 0) {
        t->is_over = true;
        t->last = response_take(json_at(j, "response"));
        assert_string_equal(type + strlen("response."), t->last.end);
    }
}

static struct said responses_whole(const char *user) {
    struct answer_http a = responses_ask(user, false);
    json_t *j = answer_json(&a);
    struct said s = response_take(j);
    assert_true(json_is_false(json_at(j, "store")));
    json_decref(j);
    answer_free(&a);
    return s;
}

static struct said responses_streamed(const char *user) {
    struct answer_http a = responses_ask(user, true);
    struct responses_stream t = {0};
    said_init(&t.s);
    stream_each(&a, responses_event, &t);
    assert_true(t.is_over);
    assert_int_equal(t.n_open, t.n_done);
    assert_null(strstr(a.body, "[DONE]"));
    t.s.n_prompt = t.last.n_prompt;
    t.s.n_answer = t.last.n_answer;
    same_said("the response at the end", user, &t.s, &t.last);
    snprintf(t.s.end, sizeof t.s.end, "%s", t.last.end);
    said_free(&t.last);
    answer_free(&a);
    return t.s;
}

// -------------------------------------------------------------------------------------------------------------- Ollama

struct ollama_stream {
    struct said s;
    int n_done;
};
static void ollama_event(void *arg, json_t *j, const char *event) {
    struct ollama_stream *t = arg;
    json_t *call;
    size_t i;
    (void)event;
    assert_int_equal(t->n_done, 0);
    assert_string_equal(json_text_at(j, "model"), "script-lfm2");
    assert_int_equal(strlen(json_text_at(j, "created_at")), 20);
    assert_true(json_is_boolean(json_object_get(j, "done")));
    buf_puts(&t->s.text, json_text_at(j, "message.content"));
    buf_puts(&t->s.thoughts, json_text_at(j, "message.thinking"));
    json_array_foreach(json_at(j, "message.tool_calls"), i, call)
        call_put(&t->s, json_text_at(call, "function.name"), json_at(call, "function.arguments"));
    if (!json_is_true(json_object_get(j, "done"))) return;
    t->n_done++;
    t->s.n_prompt = json_integer_value(json_at(j, "prompt_eval_count"));
    t->s.n_answer = json_integer_value(json_at(j, "eval_count"));
    snprintf(t->s.end, sizeof t->s.end, "%s", json_text_at(j, "done_reason"));
    assert_true(json_integer_value(json_at(j, "total_duration")) > 1000); // nanoseconds
}

static struct said ollama_said(const char *user, bool stream) {
    struct answer_http a =
        http_postf(&server, "/api/chat",
                   "{\"model\":\"script-lfm2:latest\",\"options\":{\"num_predict\":60},%s\"tools\":%s,"
                   "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                   stream ? "" : "\"stream\":false,", tools, user);
    struct ollama_stream t = {0};
    char type[512];
    said_init(&t.s);
    assert_string_equal(answer_header(&a, "Content-Type", type), stream ? "application/x-ndjson" : "application/json");
    if (stream) {
        stream_each(&a, ollama_event, &t);
    } else {
        json_t *j = answer_json(&a);
        ollama_event(&t, j, "");
        json_decref(j);
    }
    assert_int_equal(t.n_done, 1);
    answer_free(&a);
    return t.s;
}
static struct said ollama_whole(const char *user) { return ollama_said(user, false); }
static struct said ollama_streamed(const char *user) { return ollama_said(user, true); }

static const struct {
    const char *name;
    struct said (*whole)(const char *user), (*streamed)(const char *user);
    const char *stop, *length, *calls;
} formats[] = {{"/v1/messages", anthropic_whole, anthropic_streamed, "end_turn", "max_tokens", "tool_use"},
               {"/v1/responses", responses_whole, responses_streamed, "completed", "incomplete", "completed"},
               {"/api/chat", ollama_whole, ollama_streamed, "stop", "length", "stop"}};

static void scripts_in_each_format(void **state) {
    (void)state;
    int n = 0, n_calls = 0, n_thoughts = 0, n_cut = 0;
    for (const char *name; (name = script_name(n)); n++) {
        struct said norm = chat_said(name);
        for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
            struct said a = formats[f].whole(name), b = formats[f].streamed(name);
            same_said(formats[f].name, name, &norm, &a);
            same_said(formats[f].name, name, &norm, &b);
            const char *end = strcmp(norm.end, "length") == 0       ? formats[f].length
                              : strcmp(norm.end, "tool_calls") == 0 ? formats[f].calls
                                                                    : formats[f].stop;
            assert_string_equal(a.end, end);
            assert_string_equal(b.end, end);
            said_free(&a);
            said_free(&b);
        }
        n_calls += norm.calls.len > 0;
        n_thoughts += norm.thoughts.len > 0;
        n_cut += strcmp(norm.end, "length") == 0;
        said_free(&norm);
    }
    assert_true(n > 20 && n_calls > 3 && n_thoughts > 0 && n_cut > 0);
}

// A tool-calling conversation is the same prompt in every format.
static void conversations(void **state) {
    (void)state;
    static const char *const bodies[][2] = {
        {"/v1/chat/completions",
         "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"Be "
         "brief.\"},{\"role\":\"user\",\"content\":\"Hi\\nthere\"},"
         "{\"role\":\"assistant\",\"content\":\"Let me "
         "see.\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":"
         "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": [1, \\\"x\\\"]}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\","
         "\"content\":\"done\"},{\"role\":\"user\",\"content\":\"s01\"}]}"},
        {"/v1/messages",
         "{\"max_tokens\":1,\"system\":[{\"type\":\"text\",\"text\":\"Be "
         "brief.\",\"cache_control\":{\"type\":\"ephemeral\"}}],"
         "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"},{\"type\":\"text\","
         "\"text\":\"there\"}]},"
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"x\"},"
         "{\"type\":\"text\",\"text\":\"Let me "
         "see.\"},{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"f\",\"input\":{\"a\": [1, \"x\"]}}]},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":[{\"type\":"
         "\"text\",\"text\":\"done\"}]},"
         "{\"type\":\"text\",\"text\":\"s01\"}]}]}"},
        {"/v1/responses",
         "{\"max_output_tokens\":1,\"instructions\":\"Be "
         "brief.\",\"input\":[{\"role\":\"user\",\"content\":\"Hi\\nthere\"},"
         "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Let me "
         "see.\",\"annotations\":[]}]},"
         "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[]},"
         "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\": [1, \\\"x\\\"]}\"},"
         "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"done\"},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"s01\"}]}]}"},
        {"/api/chat", "{\"model\":\"other\",\"stream\":false,\"options\":{\"num_predict\":1},\"messages\":[{\"role\":"
                      "\"system\",\"content\":\"Be brief.\"},"
                      "{\"role\":\"user\",\"content\":\"Hi\\nthere\"},{\"role\":\"assistant\",\"content\":\"Let me "
                      "see.\",\"tool_calls\":"
                      "[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\": [1, "
                      "\"x\"]}}}]},{\"role\":\"tool\",\"content\":\"done\",\"tool_name\":\"f\"},"
                      "{\"role\":\"user\",\"content\":\"s01\"}]}"}};
    static const char *const counts[] = {"usage.prompt_tokens", NULL, "usage.input_tokens", "prompt_eval_count"};
    int64_t norm = 0;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        struct answer_http a = http_postf(&server, bodies[i][0], "%s", bodies[i][1]);
        if (a.status != 200) fail_msg("%s: %s", bodies[i][0], a.body);
        json_t *j = answer_json(&a);
        int64_t n = counts[i] ? json_integer_value(json_at(j, counts[i]))
                              : json_integer_value(json_at(j, "usage.input_tokens")) +
                                    json_integer_value(json_at(j, "usage.cache_read_input_tokens"));
        if (i == 0) norm = n;
        if (n != norm || n < 20) fail_msg("%s: %lld tokens, not %lld", bodies[i][0], (long long)n, (long long)norm);
        json_decref(j);
        answer_free(&a);
    }
    struct answer_http a = http_postf(&server, "/v1/messages/count_tokens", "%s", bodies[1][1]);
    json_t *j = answer_json(&a);
    assert_int_equal(json_integer_value(json_at(j, "input_tokens")), norm);
    json_decref(j);
    answer_free(&a);
}

static void stop_texts(void **state) {
    (void)state;
    struct answer_http a = http_postf(&server, "/v1/messages",
                                      "{\"max_tokens\":9,\"stop_sequences\":[\"zz\",\"wor\"],\"messages\":"
                                      "[{\"role\":\"user\",\"content\":\"s01\"}]}");
    json_t *j = answer_json(&a);
    assert_string_equal(json_text_at(j, "stop_reason"), "stop_sequence");
    assert_string_equal(json_text_at(j, "stop_sequence"), "wor");
    assert_string_equal(json_text_at(j, "content.0.text"), "Hello, ");
    json_decref(j);
    answer_free(&a);
    a = http_postf(&server, "/api/generate",
                   "{\"model\":\"other\",\"stream\":false,\"prompt\":\"s01\",\"options\":{\"stop\":[\"wor\"]}}");
    j = answer_json(&a);
    assert_string_equal(json_text_at(j, "response"), "Hello, ");
    json_decref(j);
    answer_free(&a);
}

// Each is refused with its status, in the family's shape, and names what is wrong.
#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"s01\"}]"
static const struct {
    const char *path, *body;
    int status;
    const char *part;
} refused[] = {
    {"/v1/messages", "{" USER "}", 400, "max_tokens"},
    {"/v1/messages", "{\"max_tokens\":0," USER "}", 400, "max_tokens"},
    {"/v1/messages", "{\"max_tokens\":1}", 400, "messages"},
    {"/v1/messages", "{\"max_tokens\":1,\"messages\":[]}", 400, "messages"},
    {"/v1/messages", "{\"max_tokens\":1,\"messages\":{}}", 400, "messages"},
    {"/v1/messages", "{\"max_tokens\":1,\"messages\":[5]}", 400, "messages[0]"},
    {"/v1/messages", "{\"max_tokens\":1,\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}", 400,
     "messages[0].role"},
    {"/v1/messages", "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content"},
    {"/v1/messages",
     "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]}", 400,
     "messages[0].content[0]"},
    {"/v1/messages",
     "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}]}", 400,
     "messages[0].content[0].text"},
    {"/v1/messages", "{\"max_tokens\":1,\"system\":5," USER "}", 400, "system"},
    {"/v1/messages", "{\"max_tokens\":1,\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"}]," USER "}", 400,
     "tools[0]"},
    {"/v1/messages", "{\"max_tokens\":1,\"tool_choice\":{\"type\":\"maybe\"}," USER "}", 400, "tool_choice"},
    {"/v1/messages", "{\"max_tokens\":1,\"mcp_servers\":[{}]," USER "}", 400, "mcp_servers"},
    {"/v1/messages", "{\"max_tokens\":1,\"model\":\"gpt-9\"," USER "}", 404, "gpt-9"},
    {"/v1/messages", "{\"max_tokens\":1,\"temperature\":\"hot\"," USER "}", 400, "temperature"},
    {"/v1/messages", "{", 400, ""},
    {"/v1/responses", "{}", 400, "input"},
    {"/v1/responses", "{\"input\":[]}", 400, "input"},
    {"/v1/responses", "{\"input\":5}", 400, "input"},
    {"/v1/responses", "{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", 400, "input[0]"},
    {"/v1/responses", "{\"input\":[{\"type\":\"computer_call\"}]}", 400, "computer_call"},
    {"/v1/responses",
     "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"http://x/\"}]}]}", 400,
     "input_image"},
    {"/v1/responses", "{\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]}", 400, "call_id"},
    {"/v1/responses", "{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", 400, "previous_response_id"},
    {"/v1/responses", "{\"input\":\"x\",\"background\":true}", 400, "background"},
    {"/v1/responses", "{\"input\":\"x\",\"tools\":[{\"type\":\"web_search\"}]}", 400, "tools[0]"},
    {"/v1/responses", "{\"input\":\"x\",\"max_output_tokens\":1e300}", 400, "max_output_tokens"},
    {"/v1/responses", "{\"input\":\"x\",\"metadata\":[]}", 400, "metadata"},
    {"/v1/responses", "{\"input\":\"x\",\"model\":\"gpt-9\"}", 404, "gpt-9"},
    {"/api/chat", "{" USER "}", 400, "model"},
    {"/api/chat", "{\"model\":\"gpt-9\"," USER "}", 404, "gpt-9"},
    {"/api/chat", "{\"model\":\"other\",\"messages\":[{\"role\":\"x\",\"content\":\"y\"}]}", 400, "role"},
    {"/api/chat", "{\"model\":\"other\",\"messages\":[{\"role\":\"user\",\"content\":\"y\",\"images\":[\"aa\"]}]}", 400,
     "images"},
    {"/api/chat", "{\"model\":\"other\",\"options\":{\"num_predict\":1.5}," USER "}", 400, "options.num_predict"},
    {"/api/chat", "{\"model\":\"other\",\"options\":{\"temperature\":[]}," USER "}", 400, "options.temperature"},
    {"/api/chat", "{\"model\":\"other\",\"format\":\"xml\"," USER "}", 400, "format"},
    {"/api/generate", "{\"model\":\"other\",\"prompt\":\"x\",\"template\":\"{{ x }}\"}", 400, "template"},
    {"/api/generate", "{\"model\":\"other\",\"prompt\":\"x\",\"context\":[1]}", 400, "context"},
    {"/api/show", "{\"model\":\"gpt-9\"}", 404, "gpt-9"},
    {"/api/embed", "{\"model\":\"other\",\"input\":\"x\"}", 400, "encoders"},
};

static void refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct answer_http a = http_postf(&server, refused[i].path, "%s", refused[i].body);
        json_t *j = json_loads(a.body, 0, NULL);
        const bool anthropic = strstr(refused[i].path, "messages") != NULL,
                   ollama = strstr(refused[i].path, "/api/") != NULL;
        const char *message = json_text_at(j, ollama ? "error" : "error.message");
        if (a.status != refused[i].status || !message[0] || !strstr(a.body, refused[i].part))
            fail_msg("%s %s: %d %s", refused[i].path, refused[i].body, a.status, a.body);
        if (anthropic) assert_string_equal(json_text_at(j, "type"), "error");
        json_decref(j);
        answer_free(&a);
    }
}

static void ollama_extras(void **state) {
    (void)state;
    struct answer_http n =
        http_postf(&server, "/api/chat",
                   "{\"model\":\"other\",\"stream\":false,\"tools\":[ ],\"format\":{\"enum\":[\"s\"]},"
                   "\"messages\":[{\"role\":\"user\",\"content\":\"s01\"}]}");
    json_t *said = answer_json(&n);
    assert_int_equal(n.status, 200); // an empty list of tools leaves room for a format
    assert_string_equal(json_text_at(said, "message.content"), "\"s\"");
    json_decref(said);
    answer_free(&n);
    struct answer_http a = http_get(&server, "/api/tags", "");
    json_t *j = answer_json(&a);
    assert_int_equal(json_array_size(json_at(j, "models")), 2);
    assert_string_equal(json_text_at(j, "models.0.name"), "script-lfm2:latest");
    assert_string_equal(json_text_at(j, "models.1.model"), "other:latest");
    json_decref(j);
    answer_free(&a);
    a = http_postf(&server, "/api/chat", "{\"model\":\"other\"}"); // loads a model, as Ollama's clients ask for it
    j = answer_json(&a);
    assert_string_equal(json_text_at(j, "done_reason"), "load");
    json_decref(j);
    answer_free(&a);
    a = http_postf(&server, "/api/show", "{\"name\":\"other\"}");
    j = answer_json(&a);
    assert_string_equal(json_text_at(j, "model_info.general.architecture"), ""); // one key with a dot in it
    assert_string_equal(json_string_value(json_object_get(json_at(j, "model_info"), "general.architecture")), "lfm2");
    assert_string_equal(json_text_at(j, "capabilities.0"), "completion");
    json_decref(j);
    answer_free(&a);
    a = http_postf(
        &server, "/api/generate",
        "{\"model\":\"other\",\"raw\":true,\"stream\":false,\"prompt\":\"Once\",\"options\":{\"num_predict\":2}}");
    j = answer_json(&a);
    assert_int_equal(json_integer_value(json_at(j, "eval_count")), 2);
    json_decref(j);
    answer_free(&a);
}

// The page's files carry the policy that keeps it to this server, and what the page names is there.
static void page(void **state) {
    (void)state;
    char value[512];
    struct answer_http a = http_get(&server, "/", "");
    assert_int_equal(a.status, 200);
    assert_non_null(answer_header(&a, "Content-Security-Policy", value));
    assert_non_null(strstr(value, "default-src 'none'"));
    assert_null(strstr(value, "unsafe"));
    assert_null(strstr(a.body, "style=\""));
    assert_null(strstr(a.body, "onclick"));
    assert_null(strstr(a.body, "http://"));
    assert_null(strstr(a.body, "https://"));
    int n = 0;
    for (const char *p = a.body; (p = strstr(p, "\"web/")); p++, n++) {
        char path[128] = "/";
        snprintf(path + 1, sizeof path - 1, "%.*s", (int)strcspn(p + 1, "\""), p + 1);
        struct answer_http f = http_get(&server, path, "");
        if (f.status != 200 || f.body_len == 0) fail_msg("%s: %d", path, f.status);
        assert_non_null(answer_header(&f, "Content-Security-Policy", value));
        answer_free(&f);
    }
    assert_true(n >= 3);
    answer_free(&a);
    a = http_get(&server, "/web/../page.html", "");
    assert_int_equal(a.status, 404);
    answer_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scripts_in_each_format),
                                       cmocka_unit_test(conversations),
                                       cmocka_unit_test(stop_texts),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(ollama_extras),
                                       cmocka_unit_test(page)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
