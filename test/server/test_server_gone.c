// Clients that leave, many in each state a request can be in: waiting for a place, its prompt being read, its answer
// being streamed or made whole, its model being loaded. How long until the place is free again is measured; then
// nothing is computed any more, and streams beside all that say what they say alone.
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FREE_MS 250       // until a place is free again …
#define LATE_SHARE 0.02   // … but for so many of them, where others use the processors
#define FREE_MS_MAX 20000 // and never longer
#define N_MAX 200
#define WITNESS_TOKENS "40"
#define ANSWERS_MIN 10 // of the witnesses

static int n_leave = N_MAX;
static bool is_short; // a sanitizer's server, a hundred times as slow

enum state { WAITS, PROMPT, STREAM, WHOLE, N_STATES };
static const char *const state_names[N_STATES] = {"waits", "prompt", "stream", "whole answer"};

static double number_of(const char *text, const char *name) {
    char key[128];
    snprintf(key, sizeof key, "\n%s{", name);
    const char *at = strstr(text, key);
    if (!at) fail_msg("no metric %s", name);
    return strtod(strchr(at, '}') + 1, NULL);
}
struct load {
    double running, waiting, steps, gone;
};
static struct load load_of(const struct served *s) {
    struct answer_http a = http_get(s, "/metrics", "");
    struct load l = {number_of(a.body, "tern_requests_running"), number_of(a.body, "tern_requests_waiting"),
                     number_of(a.body, "tern_steps_total"), number_of(a.body, "tern_clients_gone_total")};
    answer_free(&a);
    return l;
}

// A text of n words that no other number gives.
static char *body_make(int n, int number, const char *more) {
    struct buf b;
    buf_init(&b, 1 << 18);
    buf_putf(&b, "{\"prompt\": \"Tale %d:", number);
    for (int i = 0; i < n; i++) buf_putf(&b, " %s", i % 3 == number % 3 ? "once" : "there");
    buf_putf(&b, "\", \"ignore_eos\": true%s}", more);
    buf_putc(&b, 0);
    return b.data;
}

// Is a request in that state now? /slots has those at work and those that wait, by name.
static bool is_seen(const struct served *s, enum state state) {
    struct answer_http a = http_get(s, "/slots", "");
    static const char *const words[N_STATES] = {"\"queued\"", "\"prompt\"", "\"answer\"", "\"answer\""};
    bool seen = strstr(a.body, words[state]) != NULL;
    answer_free(&a);
    return seen;
}

static void times_tell(const char *what, double *ms, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && ms[k - 1] > ms[k]; k--) {
            double t = ms[k];
            ms[k] = ms[k - 1];
            ms[k - 1] = t;
        }
    int n_late = 0;
    for (int i = 0; i < n; i++) n_late += ms[i] > (is_short ? FREE_MS_MAX : FREE_MS);
    print_message("%s: %d left; free after %.1f ms in the median, %.1f in the 99th percentile, %.1f at most\n", what, n,
                  ms[n / 2], ms[(int)(0.99 * (n - 1))], ms[n - 1]);
    if (n_late > LATE_SHARE * n + 1)
        fail_msg("%d of %d places were free only after more than %d ms", n_late, n, FREE_MS);
}

// One place. In the state of waiting another request has it, which must go on.
static void one_leaves(const struct served *s, enum state state, int number, double *ms, int *holder) {
    static const char *const more[N_STATES] = {"", ", \"max_tokens\": 4", ", \"stream\": true", ""};
    for (int tries = 0; *ms < 0 && tries < 50; tries++) {
        struct load before = load_of(s);
        if (state == WAITS && before.running == 0) { // the one that had the place is through
            if (*holder >= 0) client_close(*holder);
            char *body = body_make(3, 9000 + number, ", \"stream\": true");
            *holder = post_begin(s, "/v1/completions", body);
            mem_free(body);
            while (load_of(s).running < 1) clock_sleep_ns(500000);
        }
        char *body = body_make(state == PROMPT ? is_short ? 60 : 1500 : 3, number, more[state]);
        int fd = post_begin(s, "/v1/completions", body);
        mem_free(body);
        bool seen = false;
        for (int look = 0; look < 300 && !seen; look++) {
            seen = is_seen(s, state);
            if (!seen) clock_sleep_ns(200000);
        }
        uint64_t start = clock_ns();
        client_close(fd);
        for (;;) {
            struct load l = load_of(s);
            double took = (double)(clock_ns() - start) * 1e-6;
            if (l.waiting == 0 && (state == WAITS || l.running == 0)) {
                // It may have been answered before its client left; then it is tried again.
                if (seen && l.gone > before.gone) *ms = took;
                break;
            }
            if (took > FREE_MS_MAX) fail_msg("%s: the place is not free after %.0f ms", state_names[state], took);
            clock_sleep_ns(300000);
        }
    }
    if (*ms < 0) fail_msg("%s: no request was met in that state", state_names[state]);
}

static void places_are_free(void **arg) {
    (void)arg;
    struct served s;
    server_start(&s, (const char *const[]){"--streams", "1", "--ctx", "2048", "--prefix-ram", "0", "--draft", "off",
                                           "--threads", "1", "--log", "none", NULL});
    for (int state = 0; state < N_STATES; state++) {
        // A prompt is left at the end of a step, which has hundreds of its tokens: fewer of them in the short run.
        const int n = state == PROMPT && !getenv("TERN_TEST_FULL") ? (n_leave + 3) / 4 : n_leave;
        double ms[N_MAX];
        int holder = -1;
        for (int i = 0; i < n; i++) {
            ms[i] = -1;
            one_leaves(&s, state, i, &ms[i], &holder);
        }
        if (holder >= 0) client_close(holder);
        while (load_of(&s).running > 0) clock_sleep_ns(1000000);
        double steps = load_of(&s).steps;
        clock_sleep_ns(20000000);
        assert_true(load_of(&s).steps == steps); // nothing is computed any more
        times_tell(state_names[state], ms, n);
    }
    assert_int_equal(server_stop(&s), 0);
}

// ------------------------------------------------------------------------------------------------------- beside others

struct witness {
    const struct served *s;
    atomic_bool stop;
    char *alone;
    atomic_int n;
    int n_other; // answers; those that were not the one of the request alone
};
static char *witness_text(const struct served *s) {
    char *body = body_make(30, 77, ", \"max_tokens\": " WITNESS_TOKENS ", \"seed\": 5, \"temperature\": 0.8");
    struct answer_http a = http_post(s, "/v1/completions", body, "");
    mem_free(body);
    json_t *j = a.status == 200 ? answer_json(&a) : NULL;
    const char *text = json_string_value(json_object_get(json_array_get(json_object_get(j, "choices"), 0), "text"));
    char *copy = mem_strdup(text ? text : "");
    json_decref(j);
    answer_free(&a);
    return copy;
}
static void witness_main(void *arg) {
    struct witness *w = arg;
    while (!atomic_load(&w->stop)) {
        char *text = witness_text(w->s);
        atomic_fetch_add(&w->n, 1);
        w->n_other += strcmp(text, w->alone) != 0;
        mem_free(text);
    }
}

static void others_say_the_same(void **arg) {
    (void)arg;
    struct served s;
    struct os_thread *threads[2];
    struct witness w[2] = {{.s = &s}, {.s = &s}};
    uint32_t seed = 20261201;
    server_start(&s, (const char *const[]){"--streams", "3", "--ctx", "2048", "--threads", "1", "--log", "none", NULL});
    for (int i = 0; i < 2; i++) {
        w[i].alone = witness_text(&s);
        assert_true(strlen(w[i].alone) > 20);
        assert_int_equal(os_thread_create(&threads[i], witness_main, &w[i], NULL), TERN_OK);
    }
    int n_left = 0;
    for (int i = 0; i < n_leave || (atomic_load(&w[0].n) < ANSWERS_MIN && i < n_leave * 20); i++) {
        char *body = body_make(i % 4 == 1 ? 900 : 3, i, i % 2 ? ", \"stream\": true" : "");
        int fds[3], n_at_once = 1 + i % 3; // some of them wait
        for (int k = 0; k < n_at_once; k++) fds[k] = post_begin(&s, "/v1/completions", body);
        mem_free(body);
        seed = seed * 1664525u + 1013904223u;
        clock_sleep_ns((seed >> 16) % 80 * 100000u); // 0 to 8 ms
        for (int k = 0; k < n_at_once; k++) client_close(fds[k]);
        n_left += n_at_once;
    }
    int n = 0;
    for (int i = 0; i < 2; i++) {
        atomic_store(&w[i].stop, true);
        os_thread_join(threads[i]);
        const int answers = atomic_load(&w[i].n);
        n += answers;
        if (w[i].n_other > 0) fail_msg("%d of %d answers were not what they are alone", w[i].n_other, answers);
        mem_free(w[i].alone);
    }
    print_message("%d left beside %d answers\n", n_left, n);
    assert_true(n >= (is_short ? 1 : ANSWERS_MIN));
    assert_int_equal(server_stop(&s), 0);
}

// ----------------------------------------------------------------------------------------------------- while it loads

// There is room for one model: whoever left while one was being loaded does not hold it, or the other could not come.
static void models_are_let_go(void **arg) {
    (void)arg;
    char folder[300], one[340], memory[32];
    struct buf file;
    struct served s;
    struct tern_err err = {0};
    snprintf(folder, sizeof folder, "%s/tern_gone_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(one, sizeof one, "%s/other.gguf", folder);
    buf_init(&file, 64u << 20);
    assert_int_equal(file_read_all(&file, SCRIPT_MODEL, &err), TERN_OK);
    assert_int_equal(file_append(one, file.data, file.len, &err), TERN_OK);
    buf_release(&file);
    static const char *const common[] = {"--prefix-ram", "0", "--ctx", "512", "--threads", "1", "--log", "none"};
    const char *args[16] = {SCRIPT_MODEL, one};
    for (int i = 0; i < 8; i++) args[2 + i] = common[i];
    server_start(&s, args);
    struct answer_http a = http_get(&s, "/metrics", "");
    snprintf(memory, sizeof memory, "%.0f", 1.5 * number_of(a.body, "tern_model_bytes"));
    answer_free(&a);
    assert_int_equal(server_stop(&s), 0);
    args[10] = "--memory";
    args[11] = memory;
    server_start(&s, args);
    uint32_t seed = 20261202;
    int n_answered = 0, n = n_leave / 2;
    for (int i = 0; i < n; i++) {
        static const char *const bodies[] = {"{\"model\": \"other\", \"prompt\": \"a\", \"max_tokens\": 2}",
                                             "{\"model\": \"script-lfm2\", \"prompt\": \"a\", \"max_tokens\": 2}"};
        int fds[2] = {post_begin(&s, "/v1/completions", bodies[i % 2]),
                      post_begin(&s, "/v1/completions", bodies[i % 2])};
        seed = seed * 1664525u + 1013904223u;
        clock_sleep_ns((seed >> 16) % 60 * 100000u); // 0 to 6 ms
        for (int k = 0; k < 2; k++) client_close(fds[k]);
        if (i % 10 != 9) continue;
        uint64_t until = clock_ns() + (uint64_t)FREE_MS_MAX * 1000000u;
        for (int k = 0; k < 2; k++) { // each of the two finds its room
            struct answer_http b = {0};
            do {
                answer_free(&b);
                b = http_post(&s, "/v1/completions", bodies[k], "");
            } while (b.status == 503 && clock_ns() < until);
            if (b.status != 200) fail_msg("%d %s", b.status, b.body);
            n_answered++;
            answer_free(&b);
        }
    }
    print_message("%d left while models were loaded, %d answers between\n", n * 2, n_answered);
    assert_int_equal(server_stop(&s), 0);
    unlink(one);
    rmdir(folder);
}

int main(void) {
    is_short = getenv("TERN_TEST_SHORT") != NULL;
    if (is_short) n_leave = 20;
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_are_free), cmocka_unit_test(others_say_the_same),
                                       cmocka_unit_test(models_are_let_go)};
    return cmocka_run_group_tests_name("clients that leave", tests, NULL, NULL);
}
