// kill -9 at any moment while answers are given, their prefixes written to disk and states saved: after it the server
// starts, every state that was acknowledged is there whole, and every answer is the one of a server without any cache.
#define _GNU_SOURCE 1 // mkdtemp, MSG_NOSIGNAL
#include "server_lib.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_PROMPTS 4
#define N_STATES 8

static char folder[256];
static char *prompts[N_PROMPTS], *answers[N_PROMPTS]; // quoted texts; greedy answers
static int64_t saved[N_STATES];                       // tokens that were acknowledged; 0: nothing was
static int n_acknowledged, n_answered;

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/tern_kill_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < N_PROMPTS; i++) {
        struct buf b;
        buf_init(&b, 1 << 16);
        for (int k = 0; k < 120 + 60 * i; k++) buf_putf(&b, "%d ", (k * (i + 3)) % 97);
        buf_putc(&b, 0);
        prompts[i] = b.data;
    }
    return 0;
}
static int teardown(void **state) {
    (void)state;
    char command[400];
    for (int i = 0; i < N_PROMPTS; i++) {
        mem_free(prompts[i]);
        mem_free(answers[i]);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void start(struct served *s, bool cached) {
    char prefix[300], states[300];
    snprintf(prefix, sizeof prefix, "%s/prefix", folder);
    snprintf(states, sizeof states, "%s/states", folder);
    if (cached) // little memory, so that the disk is read
        server_start(s, (const char *const[]){"-m", SCRIPT_MODEL, "--prefix-ram", "400000", "--prefix-dir", prefix,
                                              "--state-dir", states, "--ctx", "2048", "--log", "none", NULL});
    else
        server_start(
            s, (const char *const[]){"-m", SCRIPT_MODEL, "--prefix-ram", "0", "--ctx", "2048", "--log", "none", NULL});
}

static char *messages_of(int prompt, const char *more) {
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_putf(&b, "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]%s}", prompts[prompt], more);
    buf_putc(&b, 0);
    return b.data;
}

// Posts and reads to the connection's end; the whole answer, or NULL when it did not come whole. May be cut any time.
static char *post_try(const struct served *s, const char *path, const char *body) {
    struct buf all;
    char head[256], bytes[4096];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    buf_init(&all, 1 << 20);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) {
        const int n = snprintf(head, sizeof head,
                               "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
                               "application/json\r\nContent-Length: %zu\r\n\r\n",
                               path, strlen(body));
        ssize_t got = send(fd, head, (size_t)n, MSG_NOSIGNAL);
        if (got > 0) got = send(fd, body, strlen(body), MSG_NOSIGNAL);
        while (got > 0 && (got = recv(fd, bytes, sizeof bytes, 0)) > 0) buf_put(&all, bytes, (size_t)got);
    }
    close(fd);
    buf_putc(&all, 0);
    const char *json = strstr(all.data, "\r\n\r\n");
    const size_t len = json ? strlen(json) : 0;
    const bool whole = strncmp(all.data, "HTTP/1.1 200", 12) == 0 && len > 4 && json[len - 1] == '}';
    if (whole) return all.data;
    buf_release(&all);
    return NULL;
}

// Until the server is gone: answers, and states saved one after the other under the same few names.
static void client_main(void *arg) {
    const struct served *s = arg;
    for (int i = 0;; i++) {
        const int name = i % N_STATES, prompt = i % N_PROMPTS;
        char more[64];
        char *body = messages_of(prompt, ", \"max_tokens\": 6");
        char *answer = post_try(s, "/v1/chat/completions", body);
        mem_free(body);
        if (!answer) return;
        n_answered++;
        mem_free(answer);
        snprintf(more, sizeof more, ", \"filename\": \"talk%d\"", name);
        body = messages_of(prompt, more);
        answer = post_try(s, "/slots/0?action=save", body);
        mem_free(body);
        if (!answer) return;
        saved[name] = strtol(strstr(answer, "\"n_saved\":") + 10, NULL, 10);
        n_acknowledged++;
        mem_free(answer);
    }
}

static char *answer_of(const struct served *s, int prompt) {
    char *body = messages_of(prompt, ", \"max_tokens\": 12, \"ignore_eos\": true");
    struct answer_http a = http_post(s, "/v1/chat/completions", body, "");
    mem_free(body);
    if (a.status != 200) fail_msg("%d %s", a.status, a.body);
    json_t *j = answer_json(&a);
    json_t *m = json_object_get(json_array_get(json_object_get(j, "choices"), 0), "message");
    char *text = json_dumps(m, JSON_SORT_KEYS), *copy = mem_strdup(text);
    free(text);
    json_decref(j);
    answer_free(&a);
    return copy;
}

static void all_is_there(const struct served *s, int round) {
    for (int i = 0; i < N_STATES; i++) {
        char body[64];
        if (saved[i] == 0) continue;
        snprintf(body, sizeof body, "{\"filename\": \"talk%d\"}", i);
        struct answer_http a = http_post(s, "/slots/0?action=restore", body, "");
        // The cache may be too small for all of it; the file is whole all the same.
        const bool no_room = a.status == 400 && strstr(a.body, "no room");
        if (a.status != 200 && !no_room) fail_msg("round %d, state %d: %d %s", round, i, a.status, a.body);
        answer_free(&a);
    }
    for (int i = 0; i < N_PROMPTS; i++) {
        char *text = answer_of(s, i);
        if (strcmp(text, answers[i]) != 0) fail_msg("round %d, prompt %d: %s, not %s", round, i, text, answers[i]);
        mem_free(text);
    }
}

static void killed_at_any_moment(void **state) {
    (void)state;
    const bool is_short = getenv("TERN_TEST_SHORT") != NULL; // a sanitizer's server is slow
    const int rounds = is_short ? 5 : getenv("TERN_TEST_FULL") ? 1000 : 50;
    struct served s;
    uint32_t seed = 20261130;
    start(&s, false);
    const uint64_t begin = clock_ns();
    for (int i = 0; i < N_PROMPTS; i++) answers[i] = answer_of(&s, i);
    // Time for a few answers on this machine as it is now, so that kills meet every kind of work.
    const uint32_t least_ms = is_short ? 900 : 120, few_ms = (uint32_t)((clock_ns() - begin) / 1000000u) * 2;
    const uint32_t range_ms = MIN(MAX(few_ms, least_ms), 3000);
    assert_int_equal(server_stop(&s), 0);
    for (int round = 0; round < rounds; round++) {
        struct os_thread *client;
        struct child_result r = {0};
        start(&s, true);
        all_is_there(&s, round);
        assert_int_equal(os_thread_create(&client, client_main, &s, NULL), TERN_OK);
        seed = seed * 1664525u + 1013904223u;
        clock_sleep_ns((uint64_t)((seed >> 12) % range_ms) * 1000000u);
        server_signal(&s, SIGKILL);
        os_thread_join(client);
        assert_int_equal(child_wait(&s.child, 10000, &r, NULL), TERN_OK);
        assert_int_equal(r.code, 128 + SIGKILL);
        unlink(s.out);
        unlink(s.err);
        rmdir(s.folder);
    }
    start(&s, true);
    all_is_there(&s, rounds);
    assert_int_equal(server_stop(&s), 0);
    if (n_acknowledged < rounds / 2 || n_answered < rounds / 2)
        fail_msg("only %d states saved, %d answers in %d rounds", n_acknowledged, n_answered, rounds);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_any_moment)};
    return cmocka_run_group_tests_name("kill -9", tests, setup, teardown);
}
