// How long models stay: keep_alive of each form, unloading and loading by request, what /api/ps and /v1/models tell of
// it, and that nobody's answer suffers. One model (of a server that never had to load a second one) and two.
#define _GNU_SOURCE 1 // timegm
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TWO TEST_DATA "/hf/lfm2-encoder/model.gguf"

static struct served server;

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--also", TWO, "--log", "none", NULL});
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

// Seconds until /api/ps says that the model goes; -1: it is not loaded.
static double expires_in(const char *name) {
    json_t *j = json_of("/api/ps", NULL), *m;
    size_t i;
    double s = -1;
    json_array_foreach(json_object_get(j, "models"), i, m) {
        struct tm tm = {0};
        int y, mo, d, h, mi, se;
        if (strncmp(json_text_at(m, "name"), name, strlen(name)) != 0) continue;
        assert_int_equal(sscanf(json_text_at(m, "expires_at"), "%d-%d-%dT%d:%d:%dZ", &y, &mo, &d, &h, &mi, &se), 6);
        tm = (struct tm){.tm_year = y - 1900, .tm_mon = mo - 1, .tm_mday = d, .tm_hour = h, .tm_min = mi, .tm_sec = se};
        s = difftime(timegm(&tm), time(NULL));
    }
    json_decref(j);
    return s;
}

static void status_wait(const char *name, const char *want) {
    char path[100], now[40] = "";
    uint64_t until = clock_ns() + 20000000000u;
    snprintf(path, sizeof path, "/v1/models/%s", name);
    do {
        json_t *j = json_of(path, NULL);
        snprintf(now, sizeof now, "%s", json_text_at(j, "status.value"));
        json_decref(j);
        if (strcmp(now, want) != 0) clock_sleep_ns(10000000);
    } while (strcmp(now, want) != 0 && clock_ns() < until);
    assert_string_equal(now, want);
}

static void durations(void **state) {
    (void)state;
    static const struct {
        const char *value;
        double seconds; // -1: for ever; -2: refused
    } rows[] = {{"\"5m\"", 300},       {"\"1h30m\"", 5400},  {"600", 600},   {"\"90\"", 90},
                {"1.5e2", 150},        {"\"2h0.5m\"", 7230}, {"-1", -1},     {"\"-1\"", -1},
                {"\"-1m\"", -1},       {"1e300", -1},        {"null", -1},   {"\"\"", -1},
                {"\"120000ms\"", 120}, {"\"5 m\"", -2},      {"\"m\"", -2},  {"\"5x\"", -2},
                {"true", -2},          {"[]", -2},           {"{}", -2},     {"\"5m5\"", -2},
                {"\"--5m\"", -2},      {"\"1e3s\"", -2},     {"\"nan\"", -2}};
    char body[300];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(body, sizeof body, "{\"model\": \"script-lfm2\", \"keep_alive\": %s}", rows[i].value);
        struct answer_http a = http_post(&server, i % 2 ? "/api/chat" : "/api/generate", body, "");
        if (a.status != (rows[i].seconds == -2 ? 400 : 200)) fail_msg("%s: %d %s", rows[i].value, a.status, a.body);
        answer_free(&a);
        if (rows[i].seconds == -2) continue;
        const double in = expires_in("script-lfm2");
        if (rows[i].seconds == -1 ? in < 9e9 : in < rows[i].seconds - 5 || in > rows[i].seconds + 1)
            fail_msg("%s: goes in %g s", rows[i].value, in);
    }
    // It stays said, and counts from the last request.
    json_decref(json_of("/api/generate", "{\"model\": \"script-lfm2\", \"keep_alive\": 500}"));
    struct answer_http a = chat_ask(&server, "s01", "");
    assert_int_equal(a.status, 200);
    answer_free(&a);
    assert_true(expires_in("script-lfm2") > 490 && expires_in("script-lfm2") <= 500);
}

static void time_passes(void **state) {
    (void)state;
    json_t *j =
        json_of("/api/generate",
                "{\"model\": \"script-lfm2\", \"prompt\": \"s01\", \"stream\": false, \"keep_alive\": \"200ms\"}");
    assert_string_equal(json_text_at(j, "response"), script_text("s01"));
    json_decref(j);
    status_wait("script-lfm2", "unloaded");
    assert_true(expires_in("script-lfm2") == -1);
    // 0: behind this answer. It comes again for the next, and is then the server's to keep.
    j = json_of("/api/chat", "{\"model\": \"script-lfm2\", \"messages\": [{\"role\": \"user\", \"content\": \"s01\"}], "
                             "\"stream\": false, \"keep_alive\": 0}");
    assert_string_equal(json_text_at(j, "message.content"), script_text("s01"));
    json_decref(j);
    status_wait("script-lfm2", "unloaded");
    j = json_of("/api/generate", "{\"model\": \"script-lfm2\"}");
    assert_string_equal(json_text_at(j, "done_reason"), "load");
    json_decref(j);
    assert_true(expires_in("script-lfm2") > 9e9);
}

static void unloading(void **state) {
    (void)state;
    const double loads = metric_of(&server, "tern_model_loads_total");
    for (int i = 0; i < 4; i++) {
        static const char *const bodies[] = {"{\"model\": \"script-lfm2\", \"keep_alive\": 0}",
                                             "{\"model\": \"script-lfm2\", \"keep_alive\": \"0s\", \"prompt\": \"\"}",
                                             "{\"keep_alive\": 0, \"messages\": [], \"model\": \"script-lfm2:latest\"}",
                                             NULL};
        json_decref(json_of("/models/load", "{\"model\": \"script-lfm2\"}"));
        status_wait("script-lfm2", "loaded");
        json_t *j = bodies[i] ? json_of(i == 2 ? "/api/chat" : "/api/generate", bodies[i])
                              : json_of("/models/unload", "{\"model\": \"script-lfm2\"}");
        if (bodies[i]) assert_string_equal(json_text_at(j, "done_reason"), "unload");
        json_decref(j);
        assert_true(expires_in("script-lfm2") == -1);                                           // at once
        if (bodies[i]) json_decref(json_of(i == 2 ? "/api/chat" : "/api/generate", bodies[i])); // loads nothing
        assert_true(expires_in("script-lfm2") == -1);
    }
    assert_true(metric_of(&server, "tern_model_loads_total") <= loads + 4);
    static const struct {
        const char *path, *body, *code;
        int status;
    } rows[] = {{"/models/unload", "{\"model\": \"script-lfm2\"}", "not_loaded", 400},
                {"/models/unload", "{\"model\": \"none\"}", "model_not_found", 404},
                {"/models/load", "{\"model\": \"none\"}", "model_not_found", 404},
                {"/models/load", "{}", "invalid_value", 400},
                {"/models/load", "{\"model\": 5}", "invalid_value", 400}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&server, rows[i].path, rows[i].body, "");
        assert_int_equal(a.status, rows[i].status);
        assert_string_equal(answer_error(&a, "code"), rows[i].code);
        answer_free(&a);
    }
}

// A model at work stays for its answer and goes behind it.
static void at_work(void **state) {
    (void)state;
    char *body = chat_body("s20", ", \"stream\": true, \"max_tokens\": 600"); // never ends by itself
    int fd = post_begin(&server, "/v1/chat/completions", body);
    mem_free(body);
    status_wait("script-lfm2", "loaded");
    while (metric_of(&server, "tern_http_streams") < 1) clock_sleep_ns(5000000);
    json_decref(json_of("/models/unload", "{\"model\": \"script-lfm2\"}"));
    struct answer_http a = client_read(fd, false);
    struct chat_stream c = stream_parse(&a, 0);
    assert_string_equal(c.finish, "length");
    chat_stream_free(&c);
    answer_free(&a);
    client_close(fd);
    status_wait("script-lfm2", "unloaded");
}

static void by_query(void **state) {
    (void)state;
    json_t *j = json_of("/props?model=m%6Fdel&x=1", NULL);
    assert_string_equal(json_text_at(j, "model"), "model");
    assert_true(json_integer_value(json_at(j, "memory.weights")) > 0); // it is loaded for this
    json_decref(j);
    json_decref(json_of("/slots?model=model", NULL));
    struct answer_http a = http_get(&server, "/props?model=other", "");
    assert_int_equal(a.status, 404);
    answer_free(&a);
    json_decref(json_of("/models/unload", "{\"model\": \"model\"}"));
}

// Loads, unloads and answers at once: every answer is whole, whatever happens to the model.
static void under_load(void **state) {
    (void)state;
    int fds[12];
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 12; i++) {
            char *body = chat_body("s01", "");
            fds[i] = i % 3 == 2
                         ? post_begin(&server, "/api/generate", "{\"model\": \"script-lfm2\", \"keep_alive\": 0}")
                         : post_begin(&server, "/v1/chat/completions", body);
            mem_free(body);
        }
        for (int i = 0; i < 12; i++) {
            struct answer_http a = client_read(fds[i], false);
            assert_int_equal(a.status, 200);
            json_t *j = answer_json(&a);
            if (i % 3 != 2) assert_string_equal(json_text_at(message_of(j), "content"), script_text("s01"));
            json_decref(j);
            answer_free(&a);
            client_close(fds[i]);
        }
    }
}

static void alone(void **state) {
    (void)state;
    struct served s, before = server;
    server_start(&s, (const char *const[]){"-m", SCRIPT_MODEL, "--log", "none", NULL});
    server = s; // the helpers ask it
    json_decref(json_of("/api/generate", "{\"model\": \"script-lfm2\", \"keep_alive\": 0}"));
    status_wait("script-lfm2", "unloaded");
    struct answer_http a = chat_ask(&server, "s01", "");
    json_t *j = answer_json(&a);
    assert_string_equal(json_text_at(message_of(j), "content"), script_text("s01"));
    json_decref(j);
    answer_free(&a);
    server = before;
    assert_int_equal(server_stop(&s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(durations), cmocka_unit_test(time_passes),
                                       cmocka_unit_test(unloading), cmocka_unit_test(at_work),
                                       cmocka_unit_test(by_query),  cmocka_unit_test(under_load),
                                       cmocka_unit_test(alone)};
    return cmocka_run_group_tests_name("keep", tests, setup, teardown);
}
