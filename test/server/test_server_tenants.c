// What one key's user could learn of another's prompts by a clock: nothing. Texts that another key has had answered
// take this key as long as texts that nobody ever sent. The measure is the chance that a text of the one kind comes
// sooner than one of the other (the area under the curve, 0.5 for kinds that cannot be told apart); a key's own texts
// are the control that the measure sees a cache at all.
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>

#define PROBES_MAX 1000
#define WORDS 240
#define SEEN_LEAST 0.75 // of a key's own texts; 0.99 where nothing else runs

static struct served server;
static int n_probes;
static double apart_most; // from 0.5

static int setup(void **state) {
    (void)state;
    n_probes = getenv("TERN_TEST_FULL") ? PROBES_MAX : getenv("TERN_TEST_SHORT") ? 20 : 200;
    // With n of each kind the measure's own deviation is 0.41 / sqrt(n): 0.013, 0.029, 0.09.
    apart_most = n_probes == PROBES_MAX ? 0.05 : n_probes == 200 ? 0.12 : 0.4;
    server_start(&server,
                 (const char *const[]){"-m", SCRIPT_MODEL, "--streams", "1", "--ctx", "1024", "--threads", "1",
                                       "--api-key", "key-of-a", "--api-key", "key-of-b", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

// ms until the only token of the answer is there; *cached: prompt tokens that the key's cache had.
static double ask(const char *key, uint32_t number, int64_t *cached) {
    struct buf user;
    char header[64];
    buf_init(&user, 1 << 16);
    for (int i = 0; i < WORDS; i++) {
        number = number * 1664525u + 1013904223u;
        buf_putf(&user, "%c ", 'a' + (char)(number >> 24) % 26);
    }
    buf_putc(&user, 0);
    char *body = chat_body(user.data, ", \"max_tokens\": 1");
    buf_release(&user);
    snprintf(header, sizeof header, "X-Api-Key: %s\r\n", key);
    uint64_t start = clock_ns();
    struct answer_http a = http_post(&server, "/v1/chat/completions", body, header);
    double ms = (double)(clock_ns() - start) * 1e-6;
    mem_free(body);
    if (a.status != 200) fail_msg("%d %s", a.status, a.body);
    const char *at = strstr(a.body, "\"cached_tokens\":");
    assert_non_null(at);
    *cached = strtol(at + 16, NULL, 10);
    answer_free(&a);
    return ms;
}

static double sooner(const double *a, const double *b, int n) {
    double wins = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) wins += a[i] < b[k] ? 1 : a[i] == b[k] ? 0.5 : 0;
    return wins / ((double)n * n);
}

static void clocks_tell_nothing(void **arg) {
    (void)arg;
    static double own[PROBES_MAX], foreign[PROBES_MAX], fresh[PROBES_MAX];
    int64_t cached;
    for (int i = 0; i < n_probes; i++) {
        const uint32_t seen = 1000003u * (uint32_t)(2 * i + 1), unseen = 1000003u * (uint32_t)(2 * i + 2);
        ask("key-of-a", seen, &cached);
        assert_int_equal(cached, 0);
        own[i] = ask("key-of-a", seen, &cached);
        assert_true(cached > WORDS / 2);
        for (int k = 0; k < 2; k++) { // each goes first as often
            bool is_foreign = (k + i) % 2 == 0;
            *(is_foreign ? &foreign[i] : &fresh[i]) = ask("key-of-b", is_foreign ? seen : unseen, &cached);
            assert_int_equal(cached, 0);
        }
    }
    double control = sooner(own, fresh, n_probes), told = sooner(foreign, fresh, n_probes);
    print_message("%d probes: of another key's texts %.3f come sooner, of its own %.3f\n", n_probes, told, control);
    if (control < SEEN_LEAST) fail_msg("the measure sees no cache: %.3f", control);
    if (told < 0.5 - apart_most || told > 0.5 + apart_most) fail_msg("another key's texts can be told: %.3f", told);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(clocks_tell_nothing)};
    return cmocka_run_group_tests_name("tenants", tests, setup, teardown);
}
