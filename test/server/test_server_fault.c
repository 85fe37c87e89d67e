// A fault in the middle of a step: of all who were in it each is told, once, in its own format, and nothing looks like
// a normal end; the next answers are right. The server's steps fail now and then (test/common/step_fault.c).
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>

#define EVERY "23" // steps
#define N_CLIENTS 6

static struct served server;
static int n_whole, n_cut, n_refused;

static int setup(void **state) {
    (void)state;
    assert_non_null(getenv("TERN_FAULT_PROGRAM"));
    setenv("TERN", getenv("TERN_FAULT_PROGRAM"), 1);
    setenv("TERN_STEP_FAULT", EVERY, 1);
    server_start(&server,
                 (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "4", "--draft", "off", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

struct wire {
    const char *path, *body; // of a stream of the script's
    const char *end, *fault; // what its normal end has, and its fault
    const char *also_end;    // NULL: nothing
};
static const struct wire formats[] = {
    {"/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"stream\": %s}",
     "\"finish_reason\":\"stop\"", "\"error\":", "data: [DONE]"},
    {"/v1/completions", "{\"prompt\": \"%s\", \"max_tokens\": 40, \"ignore_eos\": true, \"stream\": %s}",
     "\"finish_reason\":\"length\"", "\"error\":", "data: [DONE]"},
    {"/v1/responses", "{\"input\": \"%s\", \"stream\": %s}", "event: response.completed", "event: response.failed",
     NULL},
    {"/v1/messages", "{\"max_tokens\": 400, \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"stream\": %s}",
     "event: message_stop", "event: error", NULL},
    {"/api/chat",
     "{\"model\": \"script-lfm2\", \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"stream\": %s}",
     "\"done\":true", "\"error\":", NULL},
};

static int count_of(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

static int begin(const struct wire *f, const char *script, bool streamed) {
    char body[512];
    snprintf(body, sizeof body, f->body, script, streamed ? "true" : "false");
    int fd = client_connect(&server);
    client_sendf(
        fd, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        f->path, strlen(body), body);
    return fd;
}

static void stream_check(const struct wire *f, const struct answer_http *a) {
    const int n_end = count_of(a->body, f->end), n_fault = count_of(a->body, f->fault);
    if (a->status != 200) { // the step with its first token failed, and nothing was sent yet
        assert_int_equal(a->status, 500);
        assert_true(strstr(a->body, "\"error\":") != NULL);
        n_refused++;
        return;
    }
    if (n_end + n_fault != 1) fail_msg("%s: %d ends and %d faults in %s", f->path, n_end, n_fault, a->body);
    if (n_fault && f->also_end && strstr(a->body, f->also_end))
        fail_msg("%s: a fault, then an end: %s", f->path, a->body);
    if (n_fault && strstr(a->body, "\"finish_reason\":\"")) fail_msg("%s: a fault and a finish: %s", f->path, a->body);
    n_cut += n_fault;
    n_whole += n_end;
}

static void everybody_is_told(void **state) {
    (void)state;
    for (int round = 0; round < 8; round++)
        for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
            int fds[N_CLIENTS];
            for (int k = 0; k < N_CLIENTS; k++) fds[k] = begin(&formats[i], k % 2 ? "s01" : "s21", true);
            for (int k = 0; k < N_CLIENTS; k++) {
                struct answer_http a = client_read(fds[k], false);
                stream_check(&formats[i], &a);
                answer_free(&a);
                client_close(fds[k]);
            }
        }
    print_message("%d streams whole, %d cut by a fault, %d before their first token\n", n_whole, n_cut, n_refused);
    assert_true(n_whole > 20 && n_cut > 20);
}

// Whole answers: 500 with an error, or the text that a server without faults gives.
static void whole_answers(void **state) {
    (void)state;
    int n_right = 0, n_told = 0;
    for (int i = 0; i < 60; i++) {
        const char *script = i % 2 ? "s01" : "s21";
        int fd = begin(&formats[0], script, false);
        struct answer_http a = client_read(fd, false);
        if (a.status == 200) {
            json_t *j = answer_json(&a);
            json_t *m = json_object_get(json_array_get(json_object_get(j, "choices"), 0), "message");
            const char *text = json_string_value(json_object_get(m, "content"));
            if (strcmp(text ? text : "", script_text(script)) != 0) fail_msg("%s", a.body);
            json_decref(j);
            n_right++;
        } else {
            assert_int_equal(a.status, 500);
            assert_string_equal(answer_error(&a, "type"), "server_error");
            n_told++;
        }
        answer_free(&a);
        client_close(fd);
    }
    print_message("%d answers right, %d told to have failed\n", n_right, n_told);
    assert_true(n_told > 5 && n_right > 5 && n_right + n_told == 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(everybody_is_told), cmocka_unit_test(whole_answers)};
    return cmocka_run_group_tests_name("a fault in the middle", tests, setup, teardown);
}
