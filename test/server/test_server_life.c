// Over time: clients that leave free what they held, many streams at once are exact and cost no thread each, loading
// and stopping are told.
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static struct served server;

static int setup(void **state) {
    (void)state;
    server_start(&server,
                 (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "4", "--queue", "300", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

// Waits until nothing runs and waits; milliseconds.
static double idle_after(const struct served *s, double limit_ms) {
    uint64_t start = clock_ns();
    for (;;) {
        double ms = (double)(clock_ns() - start) * 1e-6;
        if (metric_of(s, "tern_requests_running") == 0 && metric_of(s, "tern_requests_waiting") == 0) return ms;
        if (ms > limit_ms) fail_msg("something still runs after %.0f ms", ms);
        clock_sleep_ns(2000000);
    }
}

static void text_is_exact(const struct served *s, const char *script) {
    char *body = chat_body(script, ", \"stream\": true");
    struct answer_http a = http_post(s, "/v1/chat/completions", body, "");
    struct chat_stream c = stream_parse(&a, 0);
    assert_string_equal(c.text, script_text(script));
    chat_stream_free(&c);
    answer_free(&a);
    mem_free(body);
}

// s20 never ends by itself: a client that leaves must end it, streamed or not, running or in the queue.
static void client_gone_frees(void **state) {
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        double gone = metric_of(&server, "tern_clients_gone_total");
        char *body = chat_body("s20", stream ? ", \"stream\": true, \"ignore_eos\": true" : ", \"ignore_eos\": true");
        int fds[6]; // two more than run together
        for (int i = 0; i < 6; i++) fds[i] = post_begin(&server, "/v1/chat/completions", body);
        clock_sleep_ns(60000000);
        for (int i = 0; i < 6; i++) client_close(fds[i]);
        double ms = idle_after(&server, 3000);
        if (ms > 1500) fail_msg("slots were free only after %.0f ms", ms);
        assert_true(metric_of(&server, "tern_clients_gone_total") >= gone + 1);
        text_is_exact(&server, "s01");
        mem_free(body);
    }
}

static void many_that_leave(void **state) {
    (void)state;
    double rss = metric_of(&server, "tern_resident_bytes");
    uint32_t seed = 12345;
    int n = getenv("TERN_TEST_SHORT") ? 40 : 150;
    for (int i = 0; i < n; i++) {
        static const char *const names[] = {"s01", "s20", "s21", "s40"};
        char *body = chat_body(names[i % 4], i % 3 ? ", \"stream\": true" : "");
        int fd = post_begin(&server, "/v1/chat/completions", body);
        seed = seed * 1664525u + 1013904223u;
        clock_sleep_ns((seed >> 16) % 12 * 1000000u);
        client_close(fd);
        mem_free(body);
    }
    idle_after(&server, 5000);
    struct answer_http a = http_get(&server, "/slots", "");
    assert_string_equal(a.body, "[]");
    answer_free(&a);
    // One is the request for the metrics, one may be the request before, not yet put away.
    uint64_t until = clock_ns() + 3000000000u;
    double left;
    while ((left = metric_of(&server, "tern_http_requests")) > 2 && clock_ns() < until) clock_sleep_ns(5000000);
    assert_true(left <= 2);
    double most = getenv("TERN_TEST_SHORT") ? 256 << 20 : 16 << 20; // a sanitizer keeps freed memory back
    assert_true(metric_of(&server, "tern_resident_bytes") - rss < most);
    text_is_exact(&server, "s01");
}

// Scripts at once, joining and leaving at all lengths: each is the right text.
static void streams_together_are_exact(void **state) {
    (void)state;
    enum { N = 24 };
    static const char *const names[] = {"s05", "s10", "s13", "s21", "s26", "s40", "s02", "s15"};
    char *want[8];
    for (int i = 0; i < 8; i++) {
        char *body = chat_body(names[i], ", \"stream\": true");
        struct answer_http a = http_post(&server, "/v1/chat/completions", body, "");
        struct chat_stream c = stream_parse(&a, 0);
        want[i] = strdup(c.text);
        chat_stream_free(&c);
        answer_free(&a);
        mem_free(body);
    }
    int fds[N], bad = 0;
    for (int i = 0; i < N; i++) {
        char extra[64];
        snprintf(extra, sizeof extra, ", \"stream\": true%s", i % 5 == 4 ? ", \"max_tokens\": 3" : "");
        char *body = chat_body(names[i % 8], extra);
        fds[i] = post_begin(&server, "/v1/chat/completions", body);
        mem_free(body);
        if (i % 6 == 3) { // bad neighbours
            struct answer_http a =
                http_post(&server, "/v1/chat/completions", "{\"messages\": [{\"role\": \"user\"", "");
            bad += a.status == 400;
            answer_free(&a);
            int fd = post_begin(&server, "/v1/chat/completions",
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"s20\"}]}");
            client_close(fd);
        }
    }
    assert_true(bad == 4);
    for (int i = 0; i < N; i++) {
        struct answer_http a = client_read(fds[i], false);
        assert_int_equal(a.status, 200);
        struct chat_stream c = stream_parse(&a, 0);
        size_t len = i % 5 == 4 ? strlen(c.text) : strlen(want[i % 8]);
        if (strncmp(c.text, want[i % 8], len) != 0)
            fail_msg("%s: '%s' instead of '%s'", names[i % 8], c.text, want[i % 8]);
        if (i % 5 != 4) assert_string_equal(c.text, want[i % 8]);
        assert_int_equal(c.n_done, 1);
        chat_stream_free(&c);
        answer_free(&a);
        client_close(fds[i]);
    }
    for (int i = 0; i < 8; i++) free(want[i]);
}

// Idle streams wait in the queue behind endless ones; the server answers others and uses no thread for each.
static void idle_streams_are_cheap(void **state) {
    (void)state;
    enum { N = 200 };
    static int fds[N];
    double rss = metric_of(&server, "tern_resident_bytes");
    char *body = chat_body("s20", ", \"stream\": true, \"ignore_eos\": true");
    for (int i = 0; i < N; i++) fds[i] = post_begin(&server, "/v1/chat/completions", body);
    mem_free(body);
    uint64_t until = clock_ns() + 20000000000u;
    while (metric_of(&server, "tern_http_streams") < N - 20 && clock_ns() < until) clock_sleep_ns(10000000);
    assert_true(metric_of(&server, "tern_http_streams") >= N - 20); // the first may have used up their context
    double each = (metric_of(&server, "tern_resident_bytes") - rss) / N;
    if (each > (getenv("TERN_TEST_SHORT") ? 512 << 10 : 64 << 10)) // a sanitizer's own
        fail_msg("an idle stream takes %.0f bytes", each);
    uint64_t start = clock_ns();
    struct answer_http a = http_get(&server, "/health", "");
    assert_int_equal(a.status, 200);
    assert_true(clock_ns() - start < 1000000000u);
    answer_free(&a);
    for (int i = 0; i < N; i++) client_close(fds[i]);
    idle_after(&server, 10000);
    text_is_exact(&server, "s01");
}

static void queue_full_is_told(void **state) {
    (void)state;
    struct served small;
    server_start(&small, (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "1", "--queue", "1", "--key-jobs", "2",
                                               "--log", "none", NULL});
    char *body = chat_body("s20", ", \"stream\": true, \"ignore_eos\": true");
    int first = post_begin(&small, "/v1/chat/completions", body);
    uint64_t until = clock_ns() + 10000000000u;
    while (metric_of(&small, "tern_requests_running") < 1 && clock_ns() < until) clock_sleep_ns(2000000);
    int second = post_begin(&small, "/v1/chat/completions", body);
    while (metric_of(&small, "tern_requests_waiting") < 1 && clock_ns() < until) clock_sleep_ns(2000000);
    struct answer_http a = http_post(&small, "/v1/chat/completions", body, "");
    char text[512];
    assert_true(a.status == 429 || a.status == 503);
    assert_non_null(answer_header(&a, "Retry-After", text));
    answer_free(&a);
    client_close(first);
    client_close(second);
    idle_after(&small, 5000);
    mem_free(body);
    assert_int_equal(server_stop(&small), 0);
}

static int64_t cached_of(const struct served *s, const char *key, char text[1024]) {
    struct buf user;
    buf_init(&user, 4096);
    for (int i = 0; i < 40; i++) buf_putf(&user, "word %d ", i);
    char *body = chat_body(user.data, ", \"max_tokens\": 20, \"ignore_eos\": true"), header[128];
    snprintf(header, sizeof header, "X-Api-Key: %s\r\n", key);
    struct answer_http a = http_post(s, "/v1/chat/completions", body, header);
    assert_int_equal(a.status, 200);
    json_t *j = answer_json(&a), *usage = json_object_get(j, "usage");
    int64_t n = json_integer_value(json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens"));
    json_t *choice = json_array_get(json_object_get(j, "choices"), 0);
    snprintf(text, 1024, "%s", json_string_value(json_object_get(json_object_get(choice, "message"), "content")));
    json_decref(j);
    answer_free(&a);
    mem_free(body);
    buf_release(&user);
    return n;
}

// A prompt seen before is not computed again, for the same key only, and the answer is the same.
static void prefixes_stay_with_their_key(void **state) {
    (void)state;
    struct served s;
    char first[1024], again[1024];
    server_start(&s, (const char *const[]){"-m", SCRIPT_MODEL, "--api-key", "key-of-a", "--api-key", "key-of-b",
                                           "--log", "none", NULL});
    assert_int_equal(cached_of(&s, "key-of-a", first), 0);
    assert_true(cached_of(&s, "key-of-a", again) > 64);
    assert_string_equal(first, again);
    assert_int_equal(cached_of(&s, "key-of-b", again), 0);
    assert_string_equal(first, again);
    assert_true(cached_of(&s, "key-of-b", again) > 64);
    assert_string_equal(first, again);
    assert_int_equal(server_stop(&s), 0);
}

// A18: SIGTERM: a short answer ends well, an endless one gets an error event after the time for it; exit 0.
static void drain_ends_streams(void **state) {
    (void)state;
    struct served s;
    server_start(&s, (const char *const[]){"-m", SCRIPT_MODEL, "--drain", "1", "--log", "none", NULL});
    char *endless = chat_body("s20", ", \"stream\": true, \"ignore_eos\": true, \"logit_bias\": {\"7\": -100}");
    int fd = post_begin(&s, "/v1/chat/completions", endless);
    uint64_t until = clock_ns() + 10000000000u;
    while (metric_of(&s, "tern_requests_running") < 1 && clock_ns() < until) clock_sleep_ns(2000000);
    uint64_t start = clock_ns();
    server_signal(&s, SIGTERM);
    struct answer_http a = client_read(fd, false);
    double took = (double)(clock_ns() - start) * 1e-9;
    struct chat_stream c = stream_parse(&a, 0);
    // The context may be used up before: then it ended by itself.
    if (c.n_finish == 0) {
        assert_int_equal(c.n_error, 1);
        assert_int_equal(c.n_done, 0);
        assert_true(took > 0.9);
    }
    assert_true(took < 8);
    chat_stream_free(&c);
    answer_free(&a);
    client_close(fd);
    mem_free(endless);
    assert_int_equal(server_stop(&s), 0);
}

static void second_signal_is_at_once(void **state) {
    (void)state;
    struct served s;
    server_start(&s, (const char *const[]){"-m", SCRIPT_MODEL, "--drain", "30", "--log", "none", NULL});
    char *endless = chat_body("s20", ", \"stream\": true, \"ignore_eos\": true, \"n\": 8");
    int fds[8];
    for (int i = 0; i < 8; i++) fds[i] = post_begin(&s, "/v1/chat/completions", endless);
    uint64_t until = clock_ns() + 10000000000u;
    while (metric_of(&s, "tern_requests_running") < 1 && clock_ns() < until) clock_sleep_ns(2000000);
    server_signal(&s, SIGTERM);
    clock_sleep_ns(100000000);
    uint64_t start = clock_ns();
    assert_int_equal(server_stop(&s), 0); // the second one
    assert_true((double)(clock_ns() - start) * 1e-9 < 10);
    for (int i = 0; i < 8; i++) client_close(fds[i]);
    mem_free(endless);
}

// A20: while the model loads /health says 503, /v1/models has the name, a chat waits for nobody.
static void loading_is_told(void **state) {
    (void)state;
    struct served s;
    server_start_loading(&s, (const char *const[]){"--no-pack-cache", "--log", "none", NULL}); // pico: larger
    int n_loading = 0, n_ready = 0;
    uint64_t until = clock_ns() + 60000000000u;
    while (n_ready == 0 && clock_ns() < until) {
        struct answer_http a = http_get(&s, "/health", ""), b = http_get(&s, "/v1/models", "");
        struct answer_http c = http_post(&s, "/v1/chat/completions", "{\"messages\": 5}", "");
        char text[512];
        assert_true(a.status == 200 || a.status == 503);
        assert_int_equal(b.status, 200);
        assert_non_null(strstr(b.body, "\"pico\""));
        assert_true(c.status == 503 || c.status == 400);
        if (a.status == 503) assert_non_null(answer_header(&a, "Retry-After", text));
        if (c.status == 503) assert_non_null(answer_header(&c, "Retry-After", text));
        n_loading += a.status == 503;
        n_ready += a.status == 200;
        answer_free(&a);
        answer_free(&b);
        answer_free(&c);
    }
    assert_int_equal(n_ready, 1);
    (void)n_loading; // a quick machine may be ready at once
    assert_int_equal(server_stop(&s), 0);
}

static void text_routes(void **state) {
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *part;
    } rows[] = {
        {"/tokenize", "{\"content\": \"Hello\"}", 200, "\"count\":5"},
        {"/tokenize", "{\"content\": \"Hello\", \"with_pieces\": true}", 200, "\"piece\":\"H\""},
        {"/tokenize", "{\"content\": \"<|im_start|>\", \"parse_special\": true, \"add_special\": true}", 200, "[1,6]"},
        {"/tokenize", "{}", 400, "content"},
        {"/tokenize", "{\"content\": 5}", 400, "content"},
        {"/detokenize", "{\"tokens\": [109, 138, 145, 145, 148]}", 200, "\"content\":\"Hello\""},
        {"/detokenize", "{\"tokens\": []}", 200, "\"content\":\"\""},
        {"/detokenize", "{\"tokens\": [-1]}", 400, "tokens"},
        {"/detokenize", "{\"tokens\": [1e99]}", 400, "tokens"},
        {"/detokenize", "{\"tokens\": 5}", 400, "tokens"},
        {"/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}]}", 200,
         "<|im_start|>user\\ns01<|im_end|>"},
        {"/apply-template", "{\"messages\": []}", 400, "messages"},
        {"/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [null]}", 400,
         "tools"},
        {"/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [[[]]]}", 400,
         "tools"},
        {"/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"chat_template\": \"y\"}", 400,
         "chat_template"},
        {"/v1/embeddings", "{\"input\": \"x\"}", 400, "encoders"},
        {"/v1/embeddings", "{\"input\": []}", 400, "input"},
        {"/v1/embeddings", "{\"input\": \"x\", \"encoding_format\": \"hex\"}", 400, "encoding_format"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&server, rows[i].path, rows[i].body, "");
        if (a.status != rows[i].status || !strstr(a.body, rows[i].part))
            fail_msg("%s %s: %d %s", rows[i].path, rows[i].body, a.status, a.body);
        answer_free(&a);
    }
    struct answer_http a = http_get(&server, "/props", "");
    json_t *j = answer_json(&a);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "limits"), "messages")), 4096);
    json_decref(j);
    answer_free(&a);
}

// Vectors of an encoder, as numbers and as base64 of the same numbers.
static void embeddings(void **state) {
    (void)state;
    struct served s;
    server_start(&s, (const char *const[]){"-m", TEST_DATA "/hf/lfm2-encoder/model.gguf", "--log", "none", NULL});
    struct answer_http a = http_post(&s, "/v1/embeddings", "{\"input\": [\"a text\", \"another\"]}", "");
    if (a.status != 200) { // this small encoder has no tokenizer
        assert_int_equal(a.status, 400);
        assert_non_null(strstr(a.body, "tokenizer"));
    } else {
        json_t *j = answer_json(&a);
        assert_int_equal(json_array_size(json_object_get(j, "data")), 2);
        json_decref(j);
    }
    answer_free(&a);
    a = http_post(&s, "/v1/completions", "{\"prompt\": \"x\"}", "");
    assert_int_equal(a.status, 400);
    answer_free(&a);
    assert_int_equal(server_stop(&s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_routes),
        cmocka_unit_test(client_gone_frees),
        cmocka_unit_test(many_that_leave),
        cmocka_unit_test(streams_together_are_exact),
        cmocka_unit_test(idle_streams_are_cheap),
        cmocka_unit_test(queue_full_is_told),
        cmocka_unit_test(drain_ends_streams),
        cmocka_unit_test(second_signal_is_at_once),
        cmocka_unit_test(loading_is_told),
        cmocka_unit_test(prefixes_stay_with_their_key),
        cmocka_unit_test(embeddings),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
