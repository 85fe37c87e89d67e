// More cases from other servers' bug reports, over HTTP, plain and streamed: tool calls and reasoning of every script
// that has them (P…), bytes that are no text (A02), a stream's form (A07), framing (A14), large bodies (A15), empty
// answers (A19), contents in parts (J15), schemas without end, clients that leave (X01, X04).
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct served server;
static bool is_short; // sanitizers and slow machines: fewer rounds, no bounds on memory of theirs

static int setup(void **state) {
    (void)state;
    is_short = getenv("TERN_TEST_SHORT") != NULL;
    // It makes resident what the allocator was asked for and nobody uses, and here resident memory is measured.
    unsetenv("MALLOC_PERTURB_");
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "4", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

// ---------------------------------------------------------------------------------------------------------- tool calls

// What an answer came to, whichever way it came.
struct said {
    char text[4096], reasoning[4096], finish[32];
    json_t *calls; // [{"name", "arguments"}]
    int64_t n_answer;
};

static void call_add(json_t *calls, const char *name, const char *arguments) {
    json_error_t e;
    json_t *value = json_loads(arguments, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    if (!value) fail_msg("arguments of %s are no JSON: %s", name, arguments);
    json_array_append_new(calls, json_pack("{s:s, s:o}", "name", name, "arguments", value));
}

static struct said whole_read(const struct answer_http *a) {
    struct said s = {.calls = json_array()};
    json_t *j = answer_json(a), *m = json_object_get(choice_of(j), "message"), *call;
    const char *text = json_string_value(json_object_get(m, "content"));
    const char *thoughts = json_string_value(json_object_get(m, "reasoning_content"));
    size_t i;
    snprintf(s.text, sizeof s.text, "%s", text ? text : "");
    snprintf(s.reasoning, sizeof s.reasoning, "%s", thoughts ? thoughts : "");
    snprintf(s.finish, sizeof s.finish, "%s", json_string_value(json_object_get(choice_of(j), "finish_reason")));
    s.n_answer = json_integer_value(json_object_get(json_object_get(j, "usage"), "completion_tokens"));
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        json_t *f = json_object_get(call, "function");
        assert_true(strlen(json_string_value(json_object_get(call, "id"))) > 8);
        call_add(s.calls, json_string_value(json_object_get(f, "name")),
                 json_string_value(json_object_get(f, "arguments")));
    }
    json_decref(j);
    return s;
}

// Calls of a stream as a client puts them together: by index; id, type and name once each, arguments in pieces.
struct call_part {
    char name[64], arguments[2048];
    int n_names, n_ids, n_types;
};
static void stream_calls_read(const struct answer_http *a, json_t *calls) {
    static struct call_part parts[8];
    size_t n = 0, i;
    json_t *call;
    memset(parts, 0, sizeof parts);
    for (const char *at = a->body; (at = strstr(at, "data: {")); at++) {
        json_t *e = json_loadb(at + 6, (size_t)(strstr(at, "\n\n") - at) - 6, 0, NULL);
        json_t *deltas = json_object_get(json_object_get(choice_of(e), "delta"), "tool_calls");
        json_array_foreach(deltas, i, call) {
            const size_t index = (size_t)json_integer_value(json_object_get(call, "index"));
            json_t *f = json_object_get(call, "function");
            const char *name = json_string_value(json_object_get(f, "name"));
            const char *piece = json_string_value(json_object_get(f, "arguments"));
            assert_true(index < ARRAY_LEN(parts) && index <= n);
            struct call_part *p = &parts[index];
            n = MAX(n, index + 1);
            p->n_ids += json_is_string(json_object_get(call, "id"));
            p->n_types += json_is_string(json_object_get(call, "type"));
            p->n_names += name != NULL;
            if (name) snprintf(p->name, sizeof p->name, "%s", name);
            if (piece)
                snprintf(p->arguments + strlen(p->arguments), sizeof p->arguments - strlen(p->arguments), "%s", piece);
        }
        json_decref(e);
    }
    for (i = 0; i < n; i++) {
        assert_true(parts[i].n_names == 1 && parts[i].n_ids == 1 && parts[i].n_types == 1);
        call_add(calls, parts[i].name, parts[i].arguments);
    }
}

static struct said stream_read(const struct answer_http *a) {
    struct said s = {.calls = json_array()};
    struct chat_stream c = stream_parse(a, 0);
    assert_true(c.role_first && c.same_head && c.n_finish == 1 && c.n_done == 1 && c.n_error == 0);
    snprintf(s.text, sizeof s.text, "%s", c.text);
    snprintf(s.reasoning, sizeof s.reasoning, "%s", c.reasoning);
    snprintf(s.finish, sizeof s.finish, "%s", c.finish);
    s.n_answer = c.n_answer;
    chat_stream_free(&c);
    stream_calls_read(a, s.calls);
    return s;
}

// Runs of blanks as one, none at the ends.
static void blanks_fold(const char *in, char out[4096]) {
    size_t n = 0;
    for (; *in && n + 1 < 4096; in++) {
        const bool blank = strchr(" \t\r\n", *in) != NULL;
        if (!blank)
            out[n++] = *in;
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = 0;
}

static bool text_fits(json_t *want, const char *got) {
    char folded[4096];
    blanks_fold(got, folded);
    if (!want) return true;
    return strcmp(folded, json_is_null(want) ? "" : json_string_value(want)) == 0;
}

static bool outcome_fits(json_t *want, const struct said *s) {
    json_t *has = json_object_get(want, "content_has"), *finish = json_object_get(want, "finish_reason");
    return text_fits(json_object_get(want, "content_ws"), s->text) &&
           text_fits(json_object_get(want, "reasoning_ws"), s->reasoning) &&
           json_equal(json_object_get(want, "calls"), s->calls) && (!has || strstr(s->text, json_string_value(has))) &&
           (!finish || strcmp(json_string_value(finish), s->finish) == 0);
}

static void tool_case_check(json_t *from, const char *tools, bool streamed) {
    const char *id = json_string_value(json_object_get(from, "id"));
    const char *script = json_string_value(json_object_get(from, "script"));
    struct buf extra;
    json_t *want, *n;
    size_t i;
    bool fits = false, counted = false;
    buf_init(&extra, 1 << 20);
    buf_putf(&extra, ", \"tools\": %s%s", tools,
             streamed ? ", \"stream\": true, \"stream_options\": {\"include_usage\": true}" : "");
    struct answer_http a = chat_ask(&server, script, extra.data);
    if (a.status != 200) fail_msg("%s: %d %s", id, a.status, a.body);
    struct said s = streamed ? stream_read(&a) : whole_read(&a);
    json_array_foreach(json_object_get(from, "any_of"), i, want) fits = fits || outcome_fits(want, &s);
    json_array_foreach(json_object_get(from, "completion_tokens"), i, n) counted =
        counted || json_integer_value(n) == s.n_answer;
    char *calls = json_dumps(s.calls, 0);
    if (!fits || !counted)
        fail_msg("%s%s: text '%s', reasoning '%s', calls %s, finish %s, %lld tokens", id, streamed ? ", streamed" : "",
                 s.text, s.reasoning, calls, s.finish, (long long)s.n_answer);
    free(calls);
    json_decref(s.calls);
    answer_free(&a);
    buf_release(&extra);
}

static void tool_calls(void **state) {
    (void)state;
    json_t *file = json_load_file(TEST_DATA "/script/tool_cases.json", 0, NULL), *from;
    size_t i;
    assert_non_null(file);
    char *tools = json_dumps(json_object_get(file, "tools"), 0);
    assert_true(json_array_size(json_object_get(file, "cases")) >= 14);
    json_array_foreach(json_object_get(file, "cases"), i, from) {
        tool_case_check(from, tools, false);
        tool_case_check(from, tools, true);
    }
    free(tools);
    json_decref(file);
}

// --------------------------------------------------------------------------------------------------------------- texts

// A02, A07, A19: text (runs of U+FFFD as one), type and form, whole and streamed.
static void texts_and_forms(void **state) {
    (void)state;
    static const struct {
        const char *script, *text;
    } rows[] = {{"s22", "ok \xef\xbf\xbd bad \xef\xbf\xbd end \xef\xbf\xbd"},
                {"s40", "caf\xc3\xa9\r\nline two\ttab \"quoted\" back\\slash </script> \xe2\x80\xa8 done"},
                {"s28", ""}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int streamed = 0; streamed < 2; streamed++) {
            char type[512], text[4096];
            struct answer_http a =
                chat_ask(&server, rows[i].script,
                         streamed ? ", \"stream\": true, \"stream_options\": {\"include_usage\": true}" : "");
            assert_int_equal(a.status, 200);
            assert_non_null(answer_header(&a, "Content-Type", type));
            assert_int_equal(strncmp(type, streamed ? "text/event-stream" : "application/json", 16), 0);
            if (!streamed) { // an empty answer has a content, and no calls
                json_t *j = answer_json(&a), *m = json_object_get(choice_of(j), "message");
                assert_true(json_is_string(json_object_get(m, "content")));
                assert_null(json_object_get(m, "tool_calls"));
                json_decref(j);
            }
            struct said s = streamed ? stream_read(&a) : whole_read(&a);
            size_t n = 0;
            for (const char *p = s.text; *p; p++) {
                const bool again =
                    n >= 3 && memcmp(text + n - 3, "\xef\xbf\xbd", 3) == 0 && strncmp(p, "\xef\xbf\xbd", 3) == 0;
                if (again)
                    p += 2;
                else
                    text[n++] = *p;
            }
            text[n] = 0;
            if (strcmp(text, rows[i].text) != 0) fail_msg("%s: '%s'", rows[i].script, text);
            assert_string_equal(s.finish, "stop");
            if (i == 2) assert_true(s.n_answer <= 1);
            json_decref(s.calls);
            answer_free(&a);
        }
}

// J15: parts of text are one text, for every role; what is no text is refused by its name.
static void contents_in_parts(void **state) {
    (void)state;
#define PART(text) "{\"type\": \"text\", \"text\": \"" text "\"}"
    static const struct {
        const char *messages;
        int status;
        const char *part; // of the error
    } rows[] = {
        {"[{\"role\": \"user\", \"content\": [" PART("s01") ", " PART("and more") "]}]", 200, NULL},
        {"[{\"role\": \"user\", \"content\": \"s01\"}, {\"role\": \"assistant\", \"content\": [" PART(
             "x") "]}, {\"role\": \"user\", \"content\": \"s01\"}]",
         200, NULL},
        {"[{\"role\": \"system\", \"content\": [" PART("be short") "]}, {\"role\": \"user\", \"content\": "
                                                                   "[" PART("s01") "]}]",
         200, NULL},
        {"[{\"role\": \"user\", \"content\": \"s01\"}, {\"role\": \"assistant\", \"content\": null, "
         "\"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
         "\"arguments\": \"{}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"ok\"}]",
         200, NULL},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:,\"}}, " PART(
             "s01") "]}]",
         400, "image_url"},
        {"[{\"role\": \"user\", \"content\": 5}]", 400, "content"},
        {"[]", 400, "messages"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int streamed = 0; streamed < 2; streamed++) {
            char body[1024];
            snprintf(body, sizeof body, "{\"messages\": %s%s}", rows[i].messages, streamed ? ", \"stream\": true" : "");
            struct answer_http a = http_post(&server, "/v1/chat/completions", body, "");
            if (a.status != rows[i].status) fail_msg("%s: %d %s", body, a.status, a.body);
            if (rows[i].part) {
                assert_non_null(strstr(answer_error(&a, "message"), rows[i].part));
            } else {
                struct said s = streamed ? stream_read(&a) : whole_read(&a);
                if (i < 3 && strcmp(s.text, "Hello, world.") != 0) fail_msg("%s: '%s'", body, s.text);
                json_decref(s.calls);
            }
            answer_free(&a);
        }
}

// -------------------------------------------------------------------------------------------------------------- memory

// A14, A15: a body of 300 MB is refused before it is read, endless heads while they are; the memory stays.
static void large_requests(void **state) {
    (void)state;
    const double rss = metric_of(&server, "tern_resident_bytes");
    static const char head[] =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for (int chunked = 0; chunked < 2; chunked++) {
        static char block[1 << 16];
        int fd = client_connect(&server);
        client_sendf(fd, "%s%s\r\n\r\n", head, chunked ? "Transfer-Encoding: chunked" : "Content-Length: 314572800");
        memset(block, ' ', sizeof block);
        // Announced, the answer is there at once; in chunks, when more was sent than is read (16 MiB).
        for (int i = 0; i < (chunked ? 20 * 16 : 0); i++) {
            client_sendf(fd, "10000\r\n");
            client_send(fd, block, sizeof block);
            client_sendf(fd, "\r\n");
        }
        if (chunked) client_sendf(fd, "0\r\n\r\n");
        struct answer_http a = client_read(fd, false);
        assert_int_equal(a.status, 413);
        answer_free(&a);
        client_close(fd);
    }
    static const size_t sizes[] = {100u << 10, 2u << 20};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct buf text;
        buf_init(&text, 8 << 20);
        while (text.len < sizes[i]) buf_puts(&text, "word ");
        buf_putc(&text, 0);
        struct answer_http a = chat_ask(&server, text.data, ""); // read, and refused for its tokens alone
        assert_int_equal(a.status, 400);
        assert_string_equal(answer_error(&a, "code"), "context_length_exceeded");
        answer_free(&a);
        buf_release(&text);
    }
    const double more = metric_of(&server, "tern_resident_bytes") - rss;
    if (!is_short && more > 64 << 20) fail_msg("%.0f MiB more", more / (1 << 20));
}

// A stream of schemas of which none comes twice: each is held to, and memory stays within 64 MiB of what it was before
// the first of them.
static void schemas_without_end(void **state) {
    (void)state;
    const int n = is_short ? 60 : getenv("TERN_TEST_FULL") ? 10000 : 1500;
    const double rss = metric_of(&server, "tern_resident_bytes");
    for (int i = 0; i < n; i++) {
        char extra[300], want[32];
        snprintf(want, sizeof want, "\"w%d\"", i);
        snprintf(extra, sizeof extra,
                 ", \"max_tokens\": 20, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": "
                 "{\"name\": \"n\", \"schema\": {\"const\": %s}}}",
                 want);
        struct answer_http a = chat_ask(&server, "s01", extra);
        if (a.status != 200) fail_msg("%d %s", a.status, a.body);
        struct said s = whole_read(&a);
        assert_string_equal(s.text, want);
        json_decref(s.calls);
        answer_free(&a);
    }
    assert_true(metric_of(&server, "tern_constraints_kept") <= 64);
    const double more = metric_of(&server, "tern_resident_bytes") - rss;
    print_message("%d schemas: %.1f MiB more\n", n, more / (1 << 20));
    if (!is_short && more > 64 << 20) fail_msg("%.1f MiB more", more / (1 << 20));
}

// --------------------------------------------------------------------------------------------------------- who leaves

static void idle_wait(void) {
    const uint64_t until = clock_ns() + 20000000000u;
    while (metric_of(&server, "tern_requests_running") + metric_of(&server, "tern_requests_waiting") > 0) {
        if (clock_ns() > until) fail_msg("something still runs");
        clock_sleep_ns(2000000);
    }
}

// X01: an endless answer, left after a while: the slot is free within 500 ms, the next request is answered.
static void slot_is_free_soon(void **state) {
    (void)state;
    for (int streamed = 0; streamed < 2; streamed++) {
        const double gone = metric_of(&server, "tern_clients_gone_total");
        char *body = chat_body("s20", streamed ? ", \"stream\": true, \"ignore_eos\": true" : ", \"ignore_eos\": true");
        const int fd = post_begin(&server, "/v1/chat/completions", body);
        const uint64_t until = clock_ns() + 10000000000u;
        while (metric_of(&server, "tern_requests_running") < 1 && clock_ns() < until) clock_sleep_ns(1000000);
        const uint64_t start = clock_ns();
        client_close(fd);
        idle_wait();
        const double ms = (double)(clock_ns() - start) * 1e-6;
        if (ms > (is_short ? 3000 : 500)) fail_msg("the slot was free after %.0f ms", ms);
        assert_true(metric_of(&server, "tern_clients_gone_total") == gone + 1);
        struct answer_http a = chat_ask(&server, "s01", "");
        assert_non_null(strstr(a.body, "Hello, world."));
        answer_free(&a);
        mem_free(body);
    }
}

static bool file_count(void *arg, const char *name, const struct os_stat *st) {
    (void)name, (void)st;
    ++*(int *)arg;
    return true;
}
static int files_open(void) {
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)server.child.pid);
    if (os_list(path, file_count, &n, NULL) != TERN_OK) return 0; // no /proc here
    return n;
}

// X04: a thousand that connect, send and leave at any moment: files, memory and slots are as before.
static void many_that_leave(void **state) {
    (void)state;
    static const char *const names[] = {"s01", "s20", "s21", "s40"};
    const int n = is_short ? 60 : 1000;
    uint32_t seed = 4711;
    idle_wait();
    const int files = files_open();
#ifdef __linux__
    assert_true(files > 4);
#endif
    const double rss = metric_of(&server, "tern_resident_bytes");
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        char *body = chat_body(names[i % 4], i % 3 ? ", \"stream\": true" : "");
        const int fd = client_connect(&server);
        client_sendf(fd,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     strlen(body));
        client_send(fd, body, i % 7 ? strlen(body) : (seed >> 8) % strlen(body)); // some within their body
        clock_sleep_ns((seed >> 16) % 50 * 100000u);                              // 0 to 5 ms
        client_close(fd);
        mem_free(body);
    }
    idle_wait();
    const uint64_t until = clock_ns() + 5000000000u;
    while (files_open() > files && clock_ns() < until) clock_sleep_ns(10000000);
    if (files_open() > files) fail_msg("%d files are open, %d were", files_open(), files);
    const double more = metric_of(&server, "tern_resident_bytes") - rss;
    if (!is_short && more > 16 << 20) fail_msg("%.1f MiB more", more / (1 << 20));
    struct answer_http a = http_get(&server, "/slots", "");
    assert_string_equal(a.body, "[]");
    answer_free(&a);
    a = chat_ask(&server, "s01", ", \"stream\": true");
    struct chat_stream c = stream_parse(&a, 0);
    assert_string_equal(c.text, script_text("s01"));
    chat_stream_free(&c);
    answer_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tool_calls),          cmocka_unit_test(texts_and_forms),
                                       cmocka_unit_test(contents_in_parts),   cmocka_unit_test(large_requests),
                                       cmocka_unit_test(schemas_without_end), cmocka_unit_test(slot_is_free_soon),
                                       cmocka_unit_test(many_that_leave)};
    return cmocka_run_group_tests_name("more reported cases", tests, setup, teardown);
}
