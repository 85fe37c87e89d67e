// Every allocation and every write of a whole chat fails once, and from there on for good: load with an empty pack
// cache, a session, an answer with tools, fork, save, load, close. Each time the answer is a status with a message,
// nothing stays allocated, and the next run of the same scenario is sound.
#define _GNU_SOURCE // mkdtemp, setenv
#include "base/base.h"
#include "unit/unit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define MODEL TEST_DATA "/gguf/script-lfm2.gguf"
#define ANSWER "Hello, world."

static char state_path[512];
static bool drafts; // with the model as its own draft model

static enum tern_status answer_run(struct tern_session *s, struct buf *text, struct tern_err *err) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"s01\"}]";
    static const char tools[] = "[{\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}]";
    o.messages_json = (struct tern_str){messages, sizeof messages - 1};
    o.tools_json = (struct tern_str){tools, sizeof tools - 1};
    o.n_logprobs = 2;
    o.stop[o.n_stop++] = "never";
    struct tern_request *r;
    TRY(tern_request_create(&r, s, &o, err));
    struct tern_event ev = {0};
    enum tern_status status = TERN_OK;
    while (status == TERN_OK && ev.type != TERN_EVENT_DONE) {
        status = tern_request_next(r, &ev, err);
        if (status == TERN_OK && ev.type == TERN_EVENT_TEXT) buf_put(text, ev.text.data, ev.text.len);
    }
    tern_request_free(r);
    return status;
}

static enum tern_status session_steps(struct tern_session *s, struct buf *text, struct tern_err *err) {
    struct tern_session *copy = NULL;
    TRY(answer_run(s, text, err));
    enum tern_status status = tern_session_fork(&copy, s, err);
    if (status == TERN_OK) status = tern_session_save(copy, state_path, err);
    tern_session_close(copy);
    if (status == TERN_OK) status = tern_session_load(s, state_path, err);
    return status;
}

static enum tern_status scenario(bool cache, struct buf *text, struct tern_err *err) {
    struct tern_engine_options o;
    tern_engine_options_default(&o);
    o.model_path = MODEL;
    o.n_ctx = 256;
    o.n_sessions = 2;
    o.n_threads = 2;
    o.pack_cache = cache;
    if (drafts) {
        o.draft_path = MODEL;
        o.draft = TERN_DRAFT_CHAIN;
    }
    struct tern_engine *e = NULL;
    struct tern_session *s = NULL;
    enum tern_status status = tern_engine_open(&e, &o, err);
    if (status == TERN_OK) status = tern_session_open(&s, e, err);
    if (status == TERN_OK) status = session_steps(s, text, err);
    tern_session_close(s);
    tern_engine_close(e);
    return status;
}

// One run that must be an answer or an error; returns its status.
static enum tern_status run_checked(bool cache, uint64_t n, const char *what) {
    struct tern_err err = {0};
    struct buf text;
    buf_init(&text, 1u << 20);
    uint64_t live = mem_stats_get().n_live;
    enum tern_status status = scenario(cache, &text, &err);
    mem_fail_at(0, false);
    os_fail_at(0, 0);
    if (status == TERN_OK && (!text.data || strcmp(text.data, ANSWER) != 0) && !text.failed)
        fail_msg("%s %llu: a wrong answer: '%s'", what, (unsigned long long)n, text.data ? text.data : "");
    if (status != TERN_OK && (err.code != status || !err.message[0]))
        fail_msg("%s %llu: status %d without a message", what, (unsigned long long)n, (int)status);
    buf_release(&text);
    if (mem_stats_get().n_live != live)
        fail_msg("%s %llu: %lld blocks leaked", what, (unsigned long long)n,
                 (long long)(mem_stats_get().n_live - live));
    return status;
}

static void sound_check(void) { assert_int_equal(run_checked(false, 0, "sound run"), TERN_OK); }

// A few hundred points spread over all calls; with TERN_TEST_FULL=1 every one.
static uint64_t stride_of(uint64_t n_calls) {
    uint64_t points = getenv("TERN_TEST_SHORT") ? 25 : 200;
    return getenv("TERN_TEST_FULL") ? 1 : MAX(n_calls / points, 1);
}

static void allocations_check(void) {
    sound_check();
    uint64_t before = mem_stats_get().n_calls;
    sound_check();
    uint64_t n_calls = mem_stats_get().n_calls - before, n_refused = 0;
    assert_true(n_calls > 100);
    for (int persistent = 0; persistent < 2; persistent++)
        for (uint64_t n = 1; n <= n_calls; n += stride_of(n_calls)) {
            mem_fail_at(n, persistent);
            n_refused += run_checked(false, n, persistent ? "all allocations from" : "allocation") != TERN_OK;
        }
    assert_true(n_refused > 0);
    sound_check();
    print_message("%llu allocations, every %llu-th failed, %llu runs refused\n", (unsigned long long)n_calls,
                  (unsigned long long)stride_of(n_calls), (unsigned long long)n_refused);
}

static void test_allocations(void **state) {
    (void)state;
    allocations_check();
}

static void test_allocations_drafting(void **state) {
    (void)state;
    drafts = true;
    allocations_check();
    drafts = false;
}

static void entry_ignore(void *arg, const struct pack_cache_entry *e) {
    (void)arg;
    (void)e;
}

// Writes: the pack cache may fail without harm (a miss with a note); the saved session's failure is told.
static void test_writes(void **state) {
    (void)state;
    static const int faults[] = {ENOSPC, EIO};
    int n_refused = 0;
    for (size_t f = 0; f < ARRAY_LEN(faults); f++)
        for (uint64_t n = 1; n <= 24; n++) {
            assert_int_equal(pack_cache_prune(0, entry_ignore, NULL, NULL), TERN_OK); // so that every run packs
            os_fail_at(n, faults[f]);
            n_refused += run_checked(true, n, "write") != TERN_OK;
        }
    assert_true(n_refused > 0);
    assert_int_equal(run_checked(true, 0, "sound run with a cache"), TERN_OK);
}

int main(void) {
    char dir[] = "/tmp/tern-fault-XXXXXX";
    if (!mkdtemp(dir)) return 1;
    snprintf(state_path, sizeof state_path, "%s/state", dir);
    setenv("XDG_CACHE_HOME", dir, 1);
    log_level_set(LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocations), cmocka_unit_test(test_allocations_drafting),
                                       cmocka_unit_test(test_writes)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) != 0 || failed;
}
