// Several models of one server: a request's `model` chooses, what is not loaded is loaded when it is asked for, room is
// made by unloading what nobody uses, and what is at work stays.
#define _GNU_SOURCE 1 // mkdtemp
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PREFIX_RAM "1048576"

static char folder[256], two[300], three[300], broken[300];

static void file_copy(const char *from, const char *to, size_t len_max) {
    struct buf b;
    buf_init(&b, 64 << 20);
    assert_int_equal(file_read_all(&b, from, NULL), TERN_OK);
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    size_t n = MIN(b.len, len_max);
    assert_int_equal(fwrite(b.data, 1, n, f), n);
    fclose(f);
    buf_release(&b);
}

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/tern_models_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(two, sizeof two, "%s/two.gguf", folder);
    snprintf(three, sizeof three, "%s/three.gguf", folder);
    snprintf(broken, sizeof broken, "%s/broken.gguf", folder);
    file_copy(SCRIPT_MODEL, two, SIZE_MAX);
    file_copy(SCRIPT_MODEL, three, SIZE_MAX);
    file_copy(SCRIPT_MODEL, broken, 1000);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    unlink(two);
    unlink(three);
    unlink(broken);
    return rmdir(folder);
}

static double metric(const struct served *s, const char *name, const char *model) {
    struct answer_http a = http_get(s, "/metrics", "");
    char line[200];
    snprintf(line, sizeof line, "\n%s{model_name=\"%s\"} ", name, model);
    const char *at = strstr(a.body, line);
    if (!at) fail_msg("no metric %s of %s", name, model);
    double v = strtod(at + strlen(line), NULL);
    answer_free(&a);
    return v;
}

static struct answer_http ask(const struct served *s, const char *model, const char *user, const char *more) {
    char extra[300];
    snprintf(extra, sizeof extra, ", \"model\": \"%s\"%s", model, more);
    char *body = chat_body(user, extra);
    struct answer_http a = http_post(s, "/v1/chat/completions", body, "");
    mem_free(body);
    return a;
}

static void text_check(struct answer_http *a, const char *model, const char *user) {
    if (a->status != 200) fail_msg("%s: %d %s", model, a->status, a->body);
    json_t *j = answer_json(a);
    json_t *m = json_object_get(json_array_get(json_object_get(j, "choices"), 0), "message");
    assert_string_equal(json_string_value(json_object_get(m, "content")), script_text(user));
    assert_string_equal(json_string_value(json_object_get(j, "model")), model);
    json_decref(j);
    answer_free(a);
}

// The status of each model as /v1/models has it: "loaded", "unloaded" …
static void status_of(const struct served *s, const char *model, char out[32]) {
    char path[100];
    snprintf(path, sizeof path, "/v1/models/%s", model);
    struct answer_http a = http_get(s, path, "");
    assert_int_equal(a.status, 200);
    json_t *j = answer_json(&a);
    snprintf(out, 32, "%s", json_string_value(json_object_get(json_object_get(j, "status"), "value")));
    assert_int_equal(json_is_object(json_object_get(j, "meta")), strcmp(out, "loaded") == 0);
    json_decref(j);
    answer_free(&a);
}
static void status_check(const struct served *s, const char *model, const char *want) {
    char got[32];
    status_of(s, model, got);
    if (strcmp(got, want) != 0) fail_msg("%s is %s, not %s", model, got, want);
}

static size_t list_len(const struct served *s, const char *path, const char *key) {
    struct answer_http a = http_get(s, path, "");
    json_t *j = answer_json(&a);
    size_t n = json_array_size(json_object_get(j, key));
    json_decref(j);
    answer_free(&a);
    return n;
}

static void names_choose(void **state) {
    (void)state;
    struct served s;
    server_start(&s, (const char *const[]){SCRIPT_MODEL, two, broken, "--prefix-ram", PREFIX_RAM, "--ctx", "512",
                                           "--alias", "first", "--log", "none", NULL});
    assert_int_equal(list_len(&s, "/v1/models", "data"), 4);
    assert_int_equal(list_len(&s, "/api/tags", "models"), 4);
    assert_int_equal(list_len(&s, "/api/ps", "models"), 1);
    status_check(&s, "script-lfm2", "loaded");
    status_check(&s, "two", "unloaded");
    struct answer_http a = ask(&s, "two", "s01", "");
    text_check(&a, "two", "s01");
    status_check(&s, "two", "loaded");
    assert_int_equal(list_len(&s, "/api/ps", "models"), 2);
    a = ask(&s, "script-lfm2", "s02", "");
    text_check(&a, "script-lfm2", "s02");
    a = ask(&s, "first", "s02", "");
    text_check(&a, "script-lfm2", "s02");
    a = ask(&s, "", "s02", "");
    text_check(&a, "script-lfm2", "s02");
    a = ask(&s, "four", "s01", "");
    assert_int_equal(a.status, 404);
    assert_string_equal(answer_error(&a, "code"), "model_not_found");
    assert_non_null(strstr(answer_error(&a, "message"), "'two'"));
    answer_free(&a);
    // What cannot be loaded says so each time, and harms nobody.
    for (int i = 0; i < 2; i++) {
        a = ask(&s, "broken", "s01", i ? ", \"stream\": true" : "");
        assert_int_equal(a.status, 500);
        assert_string_equal(answer_error(&a, "code"), "model_not_loaded");
        assert_non_null(strstr(answer_error(&a, "message"), "broken"));
        assert_null(strstr(a.body, folder)); // where it lies is the operator's matter
        answer_free(&a);
    }
    status_check(&s, "broken", "unloaded");
    a = ask(&s, "two", "s21", ", \"stream\": true, \"max_tokens\": 20");
    assert_int_equal(a.status, 200);
    struct chat_stream c = stream_parse(&a, 0);
    assert_int_equal(strncmp(c.text, script_text("s21"), strlen(c.text)), 0);
    assert_true(strlen(c.text) > 10);
    chat_stream_free(&c);
    answer_free(&a);
    assert_int_equal(server_stop(&s), 0);
}

// A draft model of a model beside the first.
static void drafts_are_each_models_own(void **state) {
    (void)state;
    char setting[700];
    struct served s;
    snprintf(setting, sizeof setting, "two=%s", three);
    server_start(&s, (const char *const[]){SCRIPT_MODEL, two, "--draft-model", SCRIPT_MODEL, "--draft-for", setting,
                                           "--draft", "chain", "--prefix-ram", PREFIX_RAM, "--ctx", "512", "--log",
                                           "none", NULL});
    for (int i = 0; i < 2; i++) {
        struct answer_http a = ask(&s, i ? "two" : "script-lfm2", "s05", "");
        assert_int_equal(a.status, 200);
        json_t *j = answer_json(&a), *t = json_object_get(j, "timings");
        const int64_t n = json_integer_value(json_object_get(t, "draft_n_accepted"));
        if (n < 4) fail_msg("%s: %lld drafts accepted", i ? "two" : "script-lfm2", (long long)n);
        answer_free(&a);
        json_decref(j);
        a = ask(&s, i ? "two" : "script-lfm2", "s21", "");
        text_check(&a, i ? "two" : "script-lfm2", "s21");
    }
    assert_int_equal(server_stop(&s), 0);
}

// The other wire formats, each loading or using the model that it names.
static void every_format_chooses(void **state) {
    (void)state;
    static const struct {
        const char *path, *body;
    } rows[] = {
        {"/v1/messages", "{\"model\": \"two\", \"max_tokens\": 20, \"messages\": [{\"role\": \"user\", \"content\": "
                         "\"s01\"}]}"},
        {"/v1/responses", "{\"input\": \"s01\", \"model\": \"two\"}"},
        {"/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 2, \"model\": \"two\"}"},
        {"/api/chat", "{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}], \"stream\": false, \"model\": "
                      "\"two:latest\"}"},
        {"/api/generate", "{\"model\": \"two\", \"stream\": false}"}, // loads it
        {"/api/show", "{\"name\": \"two\"}"},
        {"/tokenize", "{\"content\": \"Hello\", \"model\": \"two\"}"},
        {"/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}], \"model\": \"two\"}"}};
    struct served s;
    server_start(&s, (const char *const[]){SCRIPT_MODEL, "--also", two, "--prefix-ram", PREFIX_RAM, "--ctx", "512",
                                           "--idle", "0.2", "--log", "none", NULL});
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char now[32] = "";
        uint64_t until = clock_ns() + 20000000000u;
        do { // gone again after a while
            clock_sleep_ns(20000000);
            status_of(&s, "two", now);
        } while (strcmp(now, "unloaded") != 0 && clock_ns() < until);
        assert_string_equal(now, "unloaded");
        double loads = metric(&s, "tern_model_loads_total", "two");
        struct answer_http a = http_post(&s, rows[i].path, rows[i].body, "");
        if (a.status != 200) fail_msg("%s: %d %s", rows[i].path, a.status, a.body);
        assert_true(metric(&s, "tern_model_loads_total", "two") == loads + 1);
        answer_free(&a);
    }
    // The first model goes too, and comes again; the server stays ready.
    char now[32] = "";
    for (int i = 0; i < 500 && strcmp(now, "unloaded") != 0; i++) {
        clock_sleep_ns(20000000);
        status_of(&s, "script-lfm2", now);
    }
    assert_string_equal(now, "unloaded");
    struct answer_http a = http_get(&s, "/health", "");
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = http_get(&s, "/props", "");
    assert_int_equal(a.status, 200);
    answer_free(&a);
    a = ask(&s, "default", "s01", "");
    text_check(&a, "script-lfm2", "s01");
    assert_int_equal(server_stop(&s), 0);
}

static int streaming_begin(const struct served *s, const char *model) {
    char extra[200];
    snprintf(extra, sizeof extra, ", \"model\": \"%s\", \"stream\": true", model);
    char *body = chat_body("s20", extra); // never ends by itself
    int fd = client_connect(s);
    client_sendf(fd,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 s->port, strlen(body), body);
    mem_free(body);
    return fd;
}

// Room for two: the third takes the place of the one that was used longest ago, unless both are at work.
static void room_is_made(void **state) {
    (void)state;
    static const char *const common[] = {"--prefix-ram", PREFIX_RAM, "--ctx", "65536", "--threads", "1",
                                         "--log",        "none",     NULL};
    const char *args[24] = {SCRIPT_MODEL, two, three};
    int n = 3;
    char memory[32];
    struct served s;
    for (const char *const *p = common; *p; p++) args[n++] = *p;
    server_start(&s, args);
    double bytes = metric(&s, "tern_model_bytes", "script-lfm2");
    assert_true(bytes > 0);
    assert_int_equal(server_stop(&s), 0);
    snprintf(memory, sizeof memory, "%.0f", 2.6 * bytes);
    args[n++] = "--memory";
    args[n++] = memory;
    server_start(&s, args);
    struct answer_http a = ask(&s, "two", "s01", "");
    text_check(&a, "two", "s01");
    a = ask(&s, "script-lfm2", "s01", "");
    text_check(&a, "script-lfm2", "s01");
    a = ask(&s, "three", "s01", "");
    text_check(&a, "three", "s01");
    status_check(&s, "two", "unloaded"); // used before script-lfm2 was
    status_check(&s, "script-lfm2", "loaded");
    int one = streaming_begin(&s, "script-lfm2"), other = streaming_begin(&s, "three");
    while (metric(&s, "tern_requests_running", "script-lfm2") + metric(&s, "tern_requests_running", "three") < 2)
        clock_sleep_ns(5000000);
    a = ask(&s, "two", "s01", "");
    assert_int_equal(a.status, 503);
    assert_string_equal(answer_error(&a, "code"), "no_room");
    char retry[512];
    assert_non_null(answer_header(&a, "Retry-After", retry));
    answer_free(&a);
    client_close(other);
    for (int i = 0; i < 400 && metric(&s, "tern_requests_running", "three") > 0; i++) clock_sleep_ns(5000000);
    for (int i = 0; i < 100; i++) { // the request itself ends a moment after its job
        a = ask(&s, "two", "s01", "");
        if (a.status == 200) break;
        assert_int_equal(a.status, 503);
        answer_free(&a);
        clock_sleep_ns(20000000);
    }
    text_check(&a, "two", "s01");
    status_check(&s, "three", "unloaded");
    status_check(&s, "script-lfm2", "loaded");
    client_close(one);
    assert_int_equal(server_stop(&s), 0);
}

// Requests for three models at once where one or two fit: each is answered exactly or told to come again.
static void many_at_once(void **state) {
    (void)state;
    enum { N = 24, ROUNDS = 4 };
    static const char *const names[] = {"script-lfm2", "two", "three"};
    struct served s;
    server_start(&s, (const char *const[]){SCRIPT_MODEL, two, three, "--prefix-ram", PREFIX_RAM, "--ctx", "512",
                                           "--idle", "0.15", "--threads", "1", "--log", "none", NULL});
    for (int round = 0; round < ROUNDS; round++) {
        int fds[N];
        for (int i = 0; i < N; i++) {
            char extra[100];
            snprintf(extra, sizeof extra, ", \"model\": \"%s\"", names[(i + round) % 3]);
            char *body = chat_body("s01", extra);
            fds[i] = client_connect(&s);
            client_sendf(fds[i],
                         "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: "
                         "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         s.port, strlen(body), body);
            mem_free(body);
            if (i % 8 == 7) client_close(fds[i]); // leaves while its model is being loaded, or later
        }
        for (int i = 0; i < N; i++) {
            if (i % 8 == 7) continue;
            struct answer_http a = client_read(fds[i], false);
            text_check(&a, names[(i + round) % 3], "s01");
            client_close(fds[i]);
        }
        clock_sleep_ns(round % 2 ? 400000000 : 30000000);
    }
    assert_true(metric(&s, "tern_model_loads_total", "two") >= 2);
    assert_int_equal(server_stop(&s), 0);
}

static void refused_at_start(void **state) {
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/err", folder);
    static const struct {
        const char *args[6], *part;
    } rows[] = {{{"serve", SCRIPT_MODEL, SCRIPT_MODEL, NULL}, "script-lfm2"}, // one name twice
                {{"serve", SCRIPT_MODEL, "/no/such/model.gguf", NULL}, "/no/such/model.gguf"},
                {{"serve", SCRIPT_MODEL, "--draft-for", "x=" SCRIPT_MODEL, NULL}, "no model of that name"},
                {{"serve", SCRIPT_MODEL, "--draft-for", "two", NULL}, "NAME=MODEL"},
                {{"serve", SCRIPT_MODEL, "--draft-for", "script-lfm2=x.gguf", NULL}, "--draft-model"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *argv[16];
        int n = 0;
        static char words[1024];
        char *rest = NULL;
        snprintf(words, sizeof words, "%s", getenv("TERN"));
        for (char *w = strtok_r(words, " ", &rest); w && n < 8; w = strtok_r(NULL, " ", &rest)) argv[n++] = w;
        for (const char *const *p = rows[i].args; *p; p++) argv[n++] = *p;
        argv[n] = NULL;
        struct os_child child;
        struct child_result r = {0};
        assert_int_equal(child_open(&child, &(struct child_options){.argv = argv, .err_path = path}, NULL), TERN_OK);
        assert_int_equal(child_wait(&child, 30000, &r, NULL), TERN_OK);
        assert_int_not_equal(r.code, 0);
        struct buf b;
        buf_init(&b, 1 << 20);
        file_read_all(&b, path, NULL);
        buf_putc(&b, 0);
        if (!strstr(b.data, rows[i].part)) fail_msg("%s", b.data);
        buf_release(&b);
        unlink(path);
    }
}

#define ENCODER TEST_DATA "/hf/lfm2-encoder/model.gguf"

static void vector_of(const struct served *s, const char *text, double *out, size_t n) {
    char body[200];
    snprintf(body, sizeof body, "{\"model\": \"model\", \"input\": \"%s\"}", text);
    struct answer_http a = http_post(s, "/v1/embeddings", body, "");
    if (a.status != 200) fail_msg("%s", a.body);
    json_t *j = answer_json(&a);
    json_t *v = json_object_get(json_array_get(json_object_get(j, "data"), 0), "embedding");
    assert_int_equal(json_array_size(v), n);
    for (size_t i = 0; i < n; i++) out[i] = json_number_value(json_array_get(v, i));
    json_decref(j);
    answer_free(&a);
}

// Documents by the cosine of their vectors with the query's, which /v1/embeddings gives too.
static void reranking(void **state) {
    (void)state;
    enum { WIDTH = 32, N = 4 };
    static const char *const texts[N] = {"one thing", "a query", "quite another", "a query"};
    static const char documents[] = "[\"one thing\", \"a query\", {\"text\": \"quite another\"}, \"a query\"]";
    static const char *const paths[] = {"/v1/rerank", "/rerank", "/v2/rerank"};
    struct served s;
    double query[WIDTH], score[N] = {0};
    server_start(&s, (const char *const[]){SCRIPT_MODEL, ENCODER, "--prefix-ram", PREFIX_RAM, "--ctx", "512", "--log",
                                           "none", NULL});
    vector_of(&s, "a query", query, WIDTH);
    for (int i = 0; i < N; i++) {
        double v[WIDTH];
        vector_of(&s, texts[i], v, WIDTH);
        for (int c = 0; c < WIDTH; c++) score[i] += v[c] * query[c];
    }
    for (size_t p = 0; p < ARRAY_LEN(paths); p++) {
        char body[500];
        snprintf(body, sizeof body,
                 "{\"model\": \"model\", \"query\": \"a query\", \"documents\": %s, \"return_documents\": %s%s}",
                 documents, p ? "false" : "true", p == 2 ? ", \"top_n\": 3" : "");
        struct answer_http a = http_post(&s, paths[p], body, "");
        if (a.status != 200) fail_msg("%s: %d %s", paths[p], a.status, a.body);
        json_t *j = answer_json(&a), *results = json_object_get(j, "results"), *r;
        assert_int_equal(json_array_size(results), p == 2 ? 3 : N);
        assert_non_null(strstr(json_string_value(json_object_get(j, "method")), "cosine"));
        assert_true(json_integer_value(json_object_get(json_object_get(j, "usage"), "total_tokens")) > 0);
        size_t i;
        double last = 2;
        json_array_foreach(results, i, r) {
            const int index = (int)json_integer_value(json_object_get(r, "index"));
            const double have = json_number_value(json_object_get(r, "relevance_score"));
            assert_in_range(index, 0, N - 1);
            if (have > last || have < score[index] - 1e-5 || have > score[index] + 1e-5)
                fail_msg("%s: %d scores %g, not %g; before %g", paths[p], index, have, score[index], last);
            last = have;
            if (i < 2) assert_int_equal(index, i == 0 ? 1 : 3); // equal texts in their order
            const char *text = json_string_value(json_object_get(json_object_get(r, "document"), "text"));
            if (p == 0)
                assert_string_equal(text, texts[index]);
            else
                assert_null(text);
        }
        json_decref(j);
        answer_free(&a);
    }
    assert_int_equal(server_stop(&s), 0);
}

static void reranking_refused(void **state) {
    (void)state;
    struct served s;
    server_start(&s, (const char *const[]){SCRIPT_MODEL, ENCODER, "--prefix-ram", PREFIX_RAM, "--ctx", "512", "--log",
                                           "none", NULL});
    static const struct {
        const char *body, *part;
    } bad[] = {
        {"{\"query\": \"x\", \"documents\": [\"a\"]}", "generates text"}, // the first model does
        {"{\"model\": \"model\", \"documents\": [\"a\"]}", "query is missing"},
        {"{\"model\": \"model\", \"query\": \"x\"}", "documents is missing"},
        {"{\"model\": \"model\", \"query\": \"x\", \"documents\": []}", "empty"},
        {"{\"model\": \"model\", \"query\": \"x\", \"documents\": [5]}", "documents[0]"},
        {"{\"model\": \"model\", \"query\": \"x\", \"documents\": [{\"title\": \"a\"}]}", "documents[0]"},
        {"{\"model\": \"model\", \"query\": \"x\", \"documents\": [\"a\"], \"top_n\": 0}", "top_n"},
        {"{\"model\": \"model\", \"query\": \"x\", \"documents\": [\"a\"], \"rank_fields\": [\"a\"]}", "rank_fields"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct answer_http a = http_post(&s, "/v1/rerank", bad[i].body, "");
        if (a.status != 400 || !strstr(a.body, bad[i].part)) fail_msg("%s: %d %s", bad[i].body, a.status, a.body);
        answer_free(&a);
    }
    struct buf many;
    buf_init(&many, 1 << 20);
    buf_puts(&many, "{\"model\": \"model\", \"query\": \"x\", \"documents\": [\"a\"");
    for (int i = 0; i < 256; i++) buf_puts(&many, ",\"a\"");
    buf_puts(&many, "]}");
    buf_putc(&many, 0);
    struct answer_http a = http_post(&s, "/v1/rerank", many.data, "");
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(a.body, "256"));
    answer_free(&a);
    buf_release(&many);
    assert_int_equal(server_stop(&s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_choose),
                                       cmocka_unit_test(drafts_are_each_models_own),
                                       cmocka_unit_test(every_format_chooses),
                                       cmocka_unit_test(room_is_made),
                                       cmocka_unit_test(many_at_once),
                                       cmocka_unit_test(refused_at_start),
                                       cmocka_unit_test(reranking),
                                       cmocka_unit_test(reranking_refused)};
    return cmocka_run_group_tests_name("several models", tests, setup, teardown);
}
