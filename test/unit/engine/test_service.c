// Many jobs at once: each stream is, token for token, what its request gives alone in an empty session, whatever else
// runs, comes, or is cancelled meanwhile. Traces are generated from a seed; how threads meet is not, so every run of
// the test is another trace in time.
#include "engine_fixture.h"

#include <stdio.h>

#define STREAMS 6
#define JOBS_MAX 16
#define N_TRACES 12
#define TEXT_MAX 2048

static uint64_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((random_state >> 33) % n);
}

static const char *const words[] = {"the ",   "sea ",  "lamp ",  "and ", "a ",     "rabbit ",  "who ",
                                    "found ", "key. ", "Then ",  "it ",  "said: ", "\"no\", ", "winter ",
                                    "ship ",  "of ",   "light ", "\n",   "two ",   "old "};

static void words_put(struct buf *b, int n) {
    for (int i = 0; i < n; i++) buf_puts(b, words[random_below(ARRAY_LEN(words))]);
    assert_false(b->failed);
}

struct trace_job {
    struct buf prompt;
    struct tern_job_options o;
    const struct seen *alone;
    struct tern_job *job;
    struct buf text;
    int32_t ids[SEEN_IDS_MAX];
    size_t n_ids;
    int n_logprobs;
    double logprob_sum, score_sum; // of the answer; of the prompt, weighted by place
    enum tern_finish finish;
    bool done, cancelled;
    int cancel_after; // events; -1: never
    int n_events;
};

static void options_draw(struct tern_request_options *o) {
    o->n_max = 1 + (int)random_below(40);
    o->ignore_eos = random_below(2) == 0;
    if (random_below(2)) {
        o->temperature = 0.3f + 0.1f * (float)random_below(10);
        o->seed = random_below(1000);
        if (random_below(2)) o->top_k = 1 + (int)random_below(40);
        if (random_below(2)) o->top_p = 0.9f;
    }
    if (random_below(3) == 0) o->repeat_penalty = 1.2f;
    if (random_below(3) == 0) o->presence_penalty = 0.5f, o->frequency_penalty = 0.25f;
    if (random_below(3) == 0) {
        static const char *const stops[] = {"e", " a", "th", ".", "\n"};
        o->n_stop = 1 + (int)random_below(2);
        for (int i = 0; i < o->n_stop; i++) o->stop[i] = stops[random_below(ARRAY_LEN(stops))];
    }
    if (random_below(3) == 0) o->n_logprobs = (int)random_below(4);
    o->prompt_logprobs = random_below(4) == 0;
}

static void job_draw(struct trace_job *t, const struct buf *shared) {
    *t = (struct trace_job){.cancel_after = random_below(5) == 0 ? (int)random_below(8) : -1};
    buf_init(&t->prompt, TEXT_MAX);
    buf_init(&t->text, 1 << 16);
    tern_job_options_default(&t->o);
    if (random_below(2)) buf_put(&t->prompt, shared->data, random_below((uint32_t)shared->len));
    words_put(&t->prompt, 1 + (int)random_below(40));
    t->o.request.prompt = (struct tern_str){t->prompt.data, t->prompt.len};
    t->o.priority = random_below(3) == 0 ? TERN_PRIORITY_BATCH : TERN_PRIORITY_INTERACTIVE;
    static const char *const tenants[] = {"", "a", "b"};
    const char *tenant = tenants[random_below(3)];
    t->o.tenant = (struct tern_str){tenant, strlen(tenant)};
    options_draw(&t->o.request);
}

static void event_note(struct trace_job *t, const struct tern_event *ev) {
    t->n_events++;
    if (ev->type == TERN_EVENT_TEXT) assert_true(buf_put(&t->text, ev->text.data, ev->text.len));
    for (int i = 0; i < ev->n_logprobs; i += ev->n_logprobs_token) {
        t->n_logprobs++;
        t->logprob_sum += (double)ev->logprobs[i].logprob;
    }
    if (ev->type != TERN_EVENT_DONE) return;
    t->done = true;
    t->finish = ev->finish;
    const int32_t *ids = tern_job_ids(t->job, &t->n_ids);
    if (t->n_ids) memcpy(t->ids, ids, t->n_ids * sizeof *ids);
    struct tern_logprob lp[1 + TERN_TOP_LOGPROBS_MAX];
    for (size_t i = 1; tern_job_prompt_logprobs(t->job, i, lp); i++) t->score_sum += (double)lp[0].logprob * (double)i;
    if (t->o.request.prompt_logprobs && t->finish != TERN_FINISH_CANCELLED) assert_true(t->score_sum < 0);
    assert_int_equal(ev->usage.n_answer, t->n_ids);
    assert_int_equal(tern_job_next(t->job, 0, &(struct tern_event){0}, NULL), TERN_INVALID_ARGUMENT);
}

// Pulls what is there; waits for at most so long.
static void job_pull(struct trace_job *t, double wait_s) {
    struct tern_event ev;
    struct tern_err err = {0};
    while (!t->done) {
        if (t->n_events == t->cancel_after && !t->cancelled) {
            tern_job_cancel(t->job);
            t->cancelled = true;
        }
        enum tern_status status = tern_job_next(t->job, wait_s, &ev, &err);
        if (status == TERN_AGAIN) return;
        fixture_must(status, &err);
        event_note(t, &ev);
    }
}

static void job_check(const struct trace_job *t, int trace, int i) {
    const struct seen *a = t->alone;
    bool whole = t->finish != TERN_FINISH_CANCELLED;
    if (!whole) assert_true(t->cancelled);
    if (t->n_ids > a->n_ids || (whole && t->n_ids != a->n_ids) ||
        (t->n_ids && memcmp(t->ids, a->ids, t->n_ids * sizeof *t->ids) != 0))
        fail_msg("trace %d, job %d: %zu tokens that differ from the %zu of its solo run", trace, i, t->n_ids, a->n_ids);
    assert_true(t->text.len <= a->text.len &&
                memcmp(t->text.len ? t->text.data : "", a->text.len ? a->text.data : "", t->text.len) == 0);
    if (!whole) return;
    assert_int_equal(t->finish, a->finish);
    assert_int_equal(t->text.len, a->text.len);
    assert_int_equal(t->n_logprobs, a->n_logprobs);
    assert_true(t->logprob_sum == a->logprob_sum);
    assert_true(t->score_sum == a->score_sum);
}

// The solo run of a trace's job: the same in every round and with every service, so it is run once.
static const struct seen *solo_of(struct tern_session *alone, int trace, int i, const struct tern_request_options *o) {
    static struct seen solos[N_TRACES][JOBS_MAX];
    static bool known[N_TRACES][JOBS_MAX];
    struct tern_err err = {0};
    if (!alone) {
        for (int k = 0; k < N_TRACES * JOBS_MAX; k++)
            if (known[k / JOBS_MAX][k % JOBS_MAX]) seen_release(&solos[k / JOBS_MAX][k % JOBS_MAX]);
        return NULL;
    }
    if (!known[trace][i]) {
        fixture_must(tern_session_truncate(alone, 0, &err), &err);
        seen_run(&solos[trace][i], alone, o);
        known[trace][i] = true;
    }
    return &solos[trace][i];
}

static void trace_run(struct tern_engine *e, struct tern_session *alone, struct tern_service *s, int trace) {
    static struct trace_job jobs[JOBS_MAX];
    struct buf shared;
    struct tern_err err = {0};
    random_state = 0x5eed0000u + (uint64_t)trace;
    buf_init(&shared, TEXT_MAX);
    words_put(&shared, 60);
    (void)e;
    int n = 2 + (int)random_below(JOBS_MAX - 1);
    for (int i = 0; i < n; i++) {
        job_draw(&jobs[i], &shared);
        jobs[i].alone = solo_of(alone, trace, i, &jobs[i].o.request);
    }
    for (int i = 0; i < n; i++) {
        fixture_must(tern_job_submit(&jobs[i].job, s, &jobs[i].o, &err), &err);
        if (random_below(2)) continue;
        for (int k = 0; k <= i; k++) job_pull(&jobs[k], random_below(4) == 0 ? 0.002 : 0);
    }
    for (int i = 0; i < n; i++) job_pull(&jobs[n - 1 - i], -1);
    for (int i = 0; i < n; i++) {
        job_check(&jobs[i], trace, i);
        tern_job_free(jobs[i].job);
        buf_release(&jobs[i].text);
        buf_release(&jobs[i].prompt);
    }
    buf_release(&shared);
}

struct bench {
    struct tern_engine *e;
    struct tern_session *alone;
    struct tern_service *s;
};

static int bench_open(void **state, uint64_t prefix_ram_max) {
    static struct bench b;
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    struct tern_service_options so;
    struct tern_err err = {0};
    o.n_sessions = STREAMS + 1;
    o.n_ctx = 512;
    o.window = 64;
    b.e = fixture_engine(&o);
    b.alone = fixture_session(b.e);
    tern_service_options_default(&so);
    so.prefix_ram_max = prefix_ram_max;
    fixture_must(tern_service_open(&b.s, b.e, &so, &err), &err);
    *state = &b;
    return 0;
}
static int bench_open_plain(void **state) { return bench_open(state, 0); }
static int bench_open_cached(void **state) { return bench_open(state, 64 << 20); }

static int bench_close(void **state) {
    struct bench *b = *state;
    tern_service_close(b->s);
    tern_session_close(b->alone);
    tern_engine_close(b->e);
    return 0;
}

static void test_traces(void **state) {
    struct bench *b = *state;
    int n = env_get("TERN_TEST_SHORT") ? N_TRACES / 4 : N_TRACES;
    for (int i = 0; i < n; i++) trace_run(b->e, b->alone, b->s, i);
    struct tern_service_info info;
    tern_service_info(b->s, &info);
    print_message("%d traces: %llu jobs, %llu steps with %.2f rows on average\n", n, (unsigned long long)info.n_jobs,
                  (unsigned long long)info.n_steps, (double)info.n_step_rows / (double)info.n_steps);
    assert_int_equal(info.n_running, 0);
    assert_int_equal(info.n_waiting, 0);
    assert_int_equal(info.n_failed, 0);
    assert_int_equal(info.n_done + info.n_cancelled, info.n_jobs);
    assert_true(info.n_step_rows > 2 * info.n_steps); // they did run together
}

// The same with the cache: every stream is still its solo run, though most of the prompts' begins come from others.
static void test_traces_cached(void **state) {
    struct bench *b = *state;
    struct tern_service_info info;
    for (int i = 0; i < 4; i++) trace_run(b->e, b->alone, b->s, i);
    tern_service_info(b->s, &info);
    uint64_t first = info.n_cached;
    for (int i = 0; i < 4; i++) trace_run(b->e, b->alone, b->s, i); // all prompts have been there
    tern_service_info(b->s, &info);
    print_message("cached of prompts: %llu in the first round, %llu in the second; %llu bytes\n",
                  (unsigned long long)first, (unsigned long long)(info.n_cached - first),
                  (unsigned long long)info.prefix_bytes);
    assert_int_equal(info.n_failed, 0);
    assert_true(info.n_cached - first > first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_traces, bench_open_plain, bench_close),
        cmocka_unit_test_setup_teardown(test_traces_cached, bench_open_cached, bench_close),
    };
    int rc = cmocka_run_group_tests_name("service", tests, fixture_setup, fixture_teardown);
    solo_of(NULL, 0, 0, NULL); // lets go of them
    return rc;
}
