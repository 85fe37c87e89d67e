// Generated traces: 2 to 16 requests that overlap, begin alike or not, are sampled or not, are cancelled at any time.
// Each answer is the one that the same request gets alone, token for token, with cached prefixes and without. The seed
// of a failing trace is told; TERN_TRACE_SEED runs that one alone.
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>

enum { KINDS = 24, TRACE_MAX = 16 };

static struct served cached, plain;
static char *solo[KINDS]; // the whole answer of each kind of request, alone

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// Kinds share beginnings of 0 to 3 blocks of the cache; odd ones are sampled.
static char *kind_body(int kind) {
    struct buf user;
    char extra[160];
    buf_init(&user, 8192);
    for (int i = 0; i < kind % 4 * 24; i++) buf_putf(&user, "word %d ", i);
    buf_putf(&user, "question %d", kind / 4);
    snprintf(extra, sizeof extra,
             ", \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": %d, \"seed\": %d, \"stream\": %s",
             4 + kind * 2, kind % 2, kind, kind % 3 ? "true" : "false");
    char *body = chat_body(user.data, extra);
    buf_release(&user);
    return body;
}

static int kind_post(const struct served *s, int kind) {
    char *body = kind_body(kind);
    int fd = post_begin(s, "/v1/chat/completions", body);
    mem_free(body);
    return fd;
}

static char *kind_text(int fd, int kind) {
    struct answer_http a = client_read(fd, false);
    if (a.status != 200) fail_msg("status %d: %s", a.status, a.body);
    char *text;
    if (kind % 3) {
        struct chat_stream c = stream_parse(&a, 0);
        assert_int_equal(c.n_done, 1);
        assert_string_equal(c.finish, "length");
        text = strdup(c.text);
        chat_stream_free(&c);
    } else {
        json_t *j = answer_json(&a), *choice = json_array_get(json_object_get(j, "choices"), 0);
        text = strdup(json_string_value(json_object_get(json_object_get(choice, "message"), "content")));
        json_decref(j);
    }
    answer_free(&a);
    return text;
}

static int setup(void **state) {
    (void)state;
    server_start(&plain, (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "6", "--prefix-ram", "0", "--log",
                                               "none", NULL});
    server_start(&cached, (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "6", "--prefix-ram", "200000", "--log",
                                                "none", NULL}); // small: blocks come and go
    for (int kind = 0; kind < KINDS; kind++) {
        int fd = kind_post(&plain, kind);
        solo[kind] = kind_text(fd, kind);
        client_close(fd);
        if (strlen(solo[kind]) == 0) return 1;
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) free(solo[kind]);
    return server_stop(&plain) || server_stop(&cached);
}

static void trace_run(const struct served *s, uint32_t seed) {
    uint32_t random = seed * 2654435761u + 1;
    int n = 2 + (int)(next_random(&random) % (TRACE_MAX - 1)), fds[TRACE_MAX], kinds[TRACE_MAX];
    bool leaves[TRACE_MAX];
    for (int i = 0; i < n; i++) {
        kinds[i] = (int)(next_random(&random) % KINDS);
        leaves[i] = next_random(&random) % 4 == 0;
        fds[i] = kind_post(s, kinds[i]);
        if (next_random(&random) % 2) clock_sleep_ns(next_random(&random) % 4000 * 1000u);
        int gone = (int)(next_random(&random) % (uint32_t)(i + 1));
        if (leaves[gone] && fds[gone] >= 0) {
            client_close(fds[gone]);
            fds[gone] = -1;
        }
    }
    for (int i = 0; i < n; i++) {
        if (fds[i] < 0) continue;
        char *text = kind_text(fds[i], kinds[i]);
        if (strcmp(text, solo[kinds[i]]) != 0)
            fail_msg("trace %u, request %d of kind %d: '%s' instead of '%s'", seed, i, kinds[i], text, solo[kinds[i]]);
        free(text);
        client_close(fds[i]);
    }
}

static void traces(void **state) {
    const struct served *s = *state;
    const char *one = getenv("TERN_TRACE_SEED");
    uint32_t n = getenv("TERN_TEST_SHORT") ? 10 : 50;
    if (one) {
        trace_run(s, (uint32_t)strtoul(one, NULL, 10));
        return;
    }
    for (uint32_t seed = 1; seed <= n; seed++) trace_run(s, seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(traces, &plain),
                                       cmocka_unit_test_prestate(traces, &cached)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
