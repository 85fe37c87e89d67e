// Cases from other servers' bug reports that no other test has as they were reported, whole and streamed: stop and
// length fields of every kind, forms, hostile patterns, bad neighbours, many lengths at once, prompts that were
// cancelled or sent back, strings that want to get into the log.
#define _GNU_SOURCE 1 // strdup
#include "server_lib.h"
#include "../common/schema_check.h"

#include <stdio.h>
#include <stdlib.h>

static struct served server;

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "8", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

// s01 with each of these members, whole and streamed: the status, and of a 200 text and finish (NULL: any).
struct row {
    const char *extra;
    int status;
    const char *text, *finish;
};
static void rows_check(const struct row *rows, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (int streamed = 0; streamed < 2; streamed++) {
            char extra[600], text[512] = "", finish[32] = "";
            snprintf(extra, sizeof extra, "%s%s", rows[i].extra, streamed ? ", \"stream\": true" : "");
            struct answer_http a = chat_ask(&server, "s01", extra);
            if (a.status != rows[i].status) fail_msg("%s: %d %s", extra, a.status, a.body);
            if (a.status != 200) {
                assert_true(strlen(answer_error(&a, "message")) > 0 && strlen(answer_error(&a, "type")) > 0);
            } else if (streamed) {
                struct chat_stream c = stream_parse(&a, 0);
                assert_int_equal(c.n_done, 1);
                snprintf(text, sizeof text, "%s", c.text);
                snprintf(finish, sizeof finish, "%s", c.finish);
                chat_stream_free(&c);
            } else {
                json_t *j = answer_json(&a), *c = choice_of(j);
                snprintf(text, sizeof text, "%s",
                         json_string_value(json_object_get(json_object_get(c, "message"), "content")));
                snprintf(finish, sizeof finish, "%s", json_string_value(json_object_get(c, "finish_reason")));
                json_decref(j);
            }
            if (rows[i].text && strcmp(text, rows[i].text) != 0) fail_msg("%s: '%s'", extra, text);
            if (rows[i].finish && strcmp(finish, rows[i].finish) != 0) fail_msg("%s: %s", extra, finish);
            answer_free(&a);
        }
}
#define ROWS(...)                                   \
    static const struct row rows[] = {__VA_ARGS__}; \
    (void)state;                                    \
    rows_check(rows, ARRAY_LEN(rows))

static void stop_fields(void **state) { // A05
    ROWS({", \"stop\": null", 200, "Hello, world.", "stop"}, {", \"stop\": []", 200, "Hello, world.", "stop"},
         {", \"stop\": \"wor\"", 200, "Hello, ", "stop"}, {", \"stop\": [\"zz\", \"o, \"]", 200, "Hell", "stop"},
         {", \"stop\": \"\"", 400, NULL, NULL}, {", \"stop\": [\"\"]", 400, NULL, NULL},
         {", \"stop\": 5", 400, NULL, NULL}, {", \"stop\": [\"a\", 5]", 400, NULL, NULL},
         {", \"stop\": [\"\\u6f22\"]", 200, "Hello, world.", "stop"});
}

static void length_fields(void **state) { // A11
    ROWS({", \"max_tokens\": null", 200, "Hello, world.", "stop"}, {", \"max_tokens\": 0", 400, NULL, NULL},
         {", \"max_tokens\": -1", 400, NULL, NULL}, {", \"max_tokens\": 100000000", 200, "Hello, world.", "stop"},
         {", \"max_completion_tokens\": 2", 200, NULL, "length"},
         {", \"max_tokens\": 2, \"max_completion_tokens\": 3", 400, NULL, NULL},
         {", \"max_tokens\": \"5\"", 400, NULL, NULL}, {", \"max_tokens\": 2.5", 400, NULL, NULL},
         {", \"max_tokens\": 18446744073709551617", 400, NULL, NULL});
}

static void other_fields(void **state) { // A17
    ROWS({", \"temperature\": \"0.7\"", 400, NULL, NULL}, {", \"temperature\": -1", 400, NULL, NULL},
         {", \"temperature\": 3", 400, NULL, NULL}, {", \"top_p\": 1.5", 400, NULL, NULL},
         {", \"top_p\": 0", 400, NULL, NULL}, {", \"x_unknown\": {\"a\": 1}", 200, "Hello, world.", "stop"},
         {", \"model\": \"no/such\"", 404, NULL, NULL},
         {", \"user\": \"u-1\", \"metadata\": {}", 200, "Hello, world.", "stop"},
         {", \"stream\": \"yes\"", 400, NULL, NULL}, {", \"presence_penalty\": 9", 400, NULL, NULL});
}

static void form_fields(void **state) { // S25
    ROWS({", \"response_format\": {\"type\": \"text\"}", 200, "Hello, world.", "stop"},
         {", \"response_format\": {\"type\": \"yaml\"}", 400, NULL, NULL},
         {", \"response_format\": {\"type\": \"json_schema\"}", 400, NULL, NULL},
         {", \"response_format\": \"json\"", 400, NULL, NULL},
         {", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"strict\": true, "
          "\"schema\": {\"const\": \"Hello\"}}}",
          200, "\"Hello\"", "stop"});
}

// S17: refused, or held with the meaning kept; never slow, never the server's end.
static void hostile_patterns(void **state) {
    (void)state;
    static const struct {
        const char *json;
        int status;
    } rows[] = {{"*a", 400},
                {"(?<=x)*", 400},
                {"a{2,1}", 400},
                {"(", 400},
                {"[z-a]", 400},
                {"\\\\", 400},
                {"(?<name>x)\\\\k<name>", 400},
                {"(a+)+$", 200},
                {"a{99999999999}", 400},
                {"[[:alpha:]]", 400},
                {"\\\\p{Greek}", 400},
                {"(?i)a", 400}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char extra[400];
        snprintf(extra, sizeof extra,
                 ", \"max_tokens\": 20, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": "
                 "\"n\", \"schema\": {\"type\": \"string\", \"pattern\": \"%s\"}}}",
                 rows[i].json);
        const uint64_t start = clock_ns();
        struct answer_http a = chat_ask(&server, "s01", extra);
        if (a.status != rows[i].status) fail_msg("%s: %d %s", rows[i].json, a.status, a.body);
        if (a.status == 400) assert_non_null(strstr(answer_error(&a, "message"), "pattern"));
        assert_true(clock_ns() - start < 20000000000u);
        answer_free(&a);
    }
}

static int stream_begin(const char *user, const char *extra) {
    char more[200];
    snprintf(more, sizeof more, ", \"stream\": true%s", extra);
    char *body = chat_body(user, more);
    int fd = client_connect(&server);
    client_sendf(fd,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 server.port, strlen(body));
    client_send(fd, body, strlen(body));
    mem_free(body);
    return fd;
}

static char *stream_text(int fd) {
    struct answer_http a = client_read(fd, false);
    assert_int_equal(a.status, 200);
    struct chat_stream c = stream_parse(&a, 0);
    assert_int_equal(c.n_error, 0);
    assert_int_equal(c.n_done, 1);
    char *text = c.text;
    c.text = NULL;
    chat_stream_free(&c);
    answer_free(&a);
    client_close(fd);
    return text;
}

// B01: six good streams beside a prompt that is too long, a bad schema, a model that may say nothing, and one that
// leaves.
static void bad_neighbours(void **state) {
    (void)state;
    static const char *const good[] = {"s05", "s10", "s13", "s21", "s26", "s40"};
    enum { N = ARRAY_LEN(good) };
    char *want[N];
    int fds[N];
    for (int i = 0; i < N; i++) want[i] = stream_text(stream_begin(good[i], ""));
    for (int i = 0; i < N; i++) fds[i] = stream_begin(good[i], "");
    struct buf words;
    buf_init(&words, 1 << 20);
    for (int i = 0; i < 20000; i++) buf_puts(&words, "word ");
    buf_putc(&words, 0);
    struct answer_http a = chat_ask(&server, words.data, "");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_error(&a, "code"), "context_length_exceeded");
    answer_free(&a);
    buf_release(&words);
    a = chat_ask(&server, "s01",
                 ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"not\": {}}}}");
    assert_int_equal(a.status, 400);
    answer_free(&a);
    struct buf banned;
    buf_init(&banned, 1 << 20);
    buf_puts(&banned, ", \"max_tokens\": 5, \"logit_bias\": {");
    for (int i = 0; i < 1024; i++) buf_putf(&banned, "%s\"%d\": -100", i ? ", " : "", i);
    buf_puts(&banned, "}");
    buf_putc(&banned, 0);
    a = chat_ask(&server, "s01", banned.data); // whatever it says, it harms nobody
    assert_true(a.status == 200 || a.status == 400 || a.status == 500);
    answer_free(&a);
    buf_release(&banned);
    client_close(stream_begin("s20", ""));
    for (int i = 0; i < N; i++) {
        char *text = stream_text(fds[i]);
        if (strcmp(text, want[i]) != 0) fail_msg("%s: '%s' instead of '%s'", good[i], text, want[i]);
        mem_free(text);
        mem_free(want[i]);
    }
}

// B03: 60 lengths, 5 ms apart: each is the text's beginning, and as long as was asked for.
static void many_lengths(void **state) {
    (void)state;
    enum { N = 60 };
    int fds[N];
    char *whole = stream_text(stream_begin("s21", ""));
    for (int i = 0; i < N; i++) {
        char extra[100];
        snprintf(extra, sizeof extra, ", \"max_tokens\": %d, \"stream_options\": {\"include_usage\": true}", i + 1);
        fds[i] = stream_begin("s21", extra);
        clock_sleep_ns(5000000);
    }
    for (int i = 0; i < N; i++) {
        struct answer_http a = client_read(fds[i], false);
        struct chat_stream c = stream_parse(&a, 0);
        assert_int_equal(c.n_answer, i + 1);
        assert_string_equal(c.finish, "length");
        if (strncmp(c.text, whole, strlen(c.text)) != 0) fail_msg("%d: '%s'", i + 1, c.text);
        chat_stream_free(&c);
        answer_free(&a);
        client_close(fds[i]);
    }
    mem_free(whole);
}

static char *asked(const char *messages, int64_t *cached) {
    struct buf body;
    buf_init(&body, 1 << 20);
    buf_putf(&body, "{\"max_tokens\": 40, \"messages\": %s}", messages);
    buf_putc(&body, 0);
    struct answer_http a = http_post(&server, "/v1/chat/completions", body.data, "");
    buf_release(&body);
    if (a.status != 200) fail_msg("%d %s", a.status, a.body);
    json_t *j = answer_json(&a), *details = json_object_get(json_object_get(j, "usage"), "prompt_tokens_details");
    char *text = strdup(json_string_value(json_object_get(json_object_get(choice_of(j), "message"), "content")));
    if (cached) *cached = json_integer_value(json_object_get(details, "cached_tokens"));
    json_decref(j);
    answer_free(&a);
    return text;
}

// H07: an answer whose tokens are not those of its text, sent back: as a server answers that never saw it.
static void answers_sent_back(void **state) {
    (void)state;
    struct buf messages;
    struct served fresh = {0}, kept = server;
    free(asked("[{\"role\": \"user\", \"content\": \"s02\"}]", NULL));
    buf_init(&messages, 1 << 16);
    buf_puts(&messages, "[{\"role\": \"user\", \"content\": \"s02\"}, {\"role\": \"assistant\", \"content\": ");
    json_put_quoted(&messages, str_from(script_text("s02")));
    buf_puts(&messages, "}, {\"role\": \"user\", \"content\": \"s01\"}]");
    buf_putc(&messages, 0);
    char *here = asked(messages.data, NULL);
    server_start(&fresh, (const char *const[]){"-m", SCRIPT_MODEL, "--prefix-ram", "0", "--log", "none", NULL});
    server = fresh;
    char *there = asked(messages.data, NULL);
    server = kept;
    assert_int_equal(server_stop(&fresh), 0);
    assert_string_equal(here, there);
    free(here);
    free(there);
    buf_release(&messages);
}

// H09: long prompts cancelled at any time while they are read; then they are answered as if nothing had been.
static void cancelled_prompts(void **state) {
    (void)state;
    enum { PROMPTS = 4 };
    const int n = getenv("TERN_TEST_SHORT") ? 24 : 80;
    char *prompts[PROMPTS], *want[PROMPTS];
    uint32_t seed = 99;
    struct served plain = {0}, kept = server;
    server_start(&plain, (const char *const[]){"-m", SCRIPT_MODEL, "--prefix-ram", "0", "--log", "none", NULL});
    for (int i = 0; i < PROMPTS; i++) {
        struct buf b;
        buf_init(&b, 1 << 16);
        for (int k = 0; k < 350; k++) buf_putf(&b, "%d ", (k * (i + 3)) % 97);
        buf_putc(&b, 0);
        prompts[i] = b.data;
        server = plain;
        want[i] = stream_text(stream_begin(prompts[i], ", \"max_tokens\": 12"));
        server = kept;
    }
    assert_int_equal(server_stop(&plain), 0);
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        int fd = stream_begin(prompts[i % PROMPTS], "");
        clock_sleep_ns((seed >> 16) % 25 * 1000000u);
        client_close(fd);
    }
    for (int i = 0; i < PROMPTS; i++) {
        char *text = stream_text(stream_begin(prompts[i], ", \"max_tokens\": 12"));
        if (strcmp(text, want[i]) != 0) fail_msg("prompt %d: '%s' instead of '%s'", i, text, want[i]);
        mem_free(text);
        mem_free(want[i]);
        mem_free(prompts[i]);
    }
}

// Z05: what a client names comes back short and escaped, and not at all in the log.
static void strings_of_clients(void **state) {
    (void)state;
    struct buf long_name;
    buf_init(&long_name, 4 << 20);
    for (int i = 0; i < 1 << 20; i++) buf_putc(&long_name, 'A');
    buf_putc(&long_name, 0);
    const char *const strings[] = {"\\u001b[2J", "a\\r\\nINFO forged", long_name.data};
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        for (int as_name = 0; as_name < 2; as_name++) {
            struct buf body;
            buf_init(&body, 8 << 20);
            buf_putf(&body,
                     as_name ? "{\"%s\": 1, \"messages\": 5}"
                             : "{\"model\": \"%s\", \"messages\": [{\"role\": "
                               "\"user\", \"content\": \"s01\"}]}",
                     strings[i]);
            buf_putc(&body, 0);
            struct answer_http a = http_post(&server, "/v1/chat/completions", body.data, "");
            if (a.status != (as_name ? 400 : 404)) fail_msg("%d %.300s", a.status, a.body);
            assert_true(a.body_len <= 2048);
            assert_null(memchr(a.body, 0x1b, a.body_len));
            answer_free(&a);
            buf_release(&body);
        }
    buf_release(&long_name);
    char *log = server_err(&server);
    assert_null(strchr(log, 0x1b));
    assert_null(strstr(log, "\nINFO forged"));
    assert_null(strstr(log, "AAAAAAAA"));
    mem_free(log);
}

// ------------------------------------------------------------------------------------------------------------- schemas

// Every schema of the cases (S…) as response_format, whole and streamed: one answer, which fits the schema by another
// checker where it came to its end, and is a beginning of one where its length ended it.
static void schema_answers(void **state) {
    (void)state;
    json_t *cases = json_load_file(TEST_DATA "/schema/cases.json", 0, NULL), *from;
    size_t i;
    int n_whole = 0;
    assert_true(json_array_size(cases) >= 8);
    json_array_foreach(cases, i, from) {
        const char *id = json_text_at(from, "id");
        char *schema = json_dumps(json_object_get(from, "schema"), JSON_ENCODE_ANY), why[300];
        struct buf whole, streamed;
        buf_init(&whole, 1 << 20);
        buf_init(&streamed, 1 << 20);
        buf_putf(&whole,
                 ", \"max_tokens\": 120, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": "
                 "\"n\", \"strict\": true, \"schema\": %s}}",
                 schema);
        buf_putf(&streamed, "%s, \"stream\": true", whole.data);
        struct answer_http a = chat_ask(&server, "s01", whole.data), b = chat_ask(&server, "s01", streamed.data);
        if (a.status != 200 || b.status != 200) fail_msg("%s: %d %s", id, a.status, a.body);
        json_t *j = answer_json(&a);
        struct chat_stream c = stream_parse(&b, 0);
        const char *text = json_text_at(message_of(j), "content");
        assert_string_equal(text, c.text);
        assert_string_equal(finish_of(j), c.finish);
        if (strcmp(c.finish, "stop") == 0 && !schema_check(schema, text, strlen(text), why, sizeof why))
            fail_msg("%s: '%s' does not fit: %s", id, text, why);
        n_whole += strcmp(c.finish, "stop") == 0;
        chat_stream_free(&c);
        json_decref(j);
        answer_free(&a);
        answer_free(&b);
        buf_release(&whole);
        buf_release(&streamed);
        free(schema);
    }
    assert_true(n_whole >= 5);
    json_decref(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema_answers),    cmocka_unit_test(stop_fields),       cmocka_unit_test(length_fields),
        cmocka_unit_test(other_fields),      cmocka_unit_test(form_fields),       cmocka_unit_test(hostile_patterns),
        cmocka_unit_test(bad_neighbours),    cmocka_unit_test(many_lengths),      cmocka_unit_test(answers_sent_back),
        cmocka_unit_test(cancelled_prompts), cmocka_unit_test(strings_of_clients)};
    return cmocka_run_group_tests_name("reported cases", tests, setup, teardown);
}
