// Drafts in steps of several streams: whatever each of them was told (auto, chain, tree, n-grams, off), however tokens
// are chosen, and whoever else comes, ends or is cancelled meanwhile, each stream is token for token what its request
// gives alone without drafts. `auto` is given costs at which drafting pays, so that it does.
#include "engine_fixture.h"
#include "../../common/prompt_file.h"
#include "../../common/tiny_drafter_folder.h"
#include "../../common/token_rule.h"
#include "engine/service_int.h"

#include <stdio.h>
#include <stdlib.h>

#define STREAMS 5
#define JOBS 10
#define N_TRACES 6
#define TOKENS 24
#define PROMPTS 12
#define PROMPT_EVERY 8
#define DRAFTER TEST_MODELS "/pico-dspark.gguf"
#define PROMPT_SHORT "[{\"role\": \"user\", \"content\": \"s20\"}]"

static uint64_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((random_state >> 33) % n);
}

static const enum tern_draft modes[] = {TERN_DRAFT_AUTO, TERN_DRAFT_CHAIN, TERN_DRAFT_TREE, TERN_DRAFT_NGRAM,
                                        TERN_DRAFT_AUTO, TERN_DRAFT_OFF,   TERN_DRAFT_AUTO, TERN_DRAFT_TREE_BIASED};
static struct prompt_file file;
static bool is_short;
static const char *target = PICO_MODEL, *drafter = DRAFTER;
static char tiny_path[256];

struct bench {
    struct tern_engine *e;
    struct tern_session *alone;
    struct tern_service *s;
};

// Rows are cheap, drafts too: `auto` drafts in every step that has room.
static void costs_set(struct tern_engine *e) {
    const struct width_costs costs = {
        .n_rows = 2, .n_ctx = 1, .rows = {1, 64}, .verify = {{1e7f, 1.1e7f}}, .draft = {1e5f}};
    struct tern_err err = {0};
    draft_auto_init(&e->draft.chooser, e->draft.model != NULL);
    fixture_must(draft_auto_costs(&e->draft.chooser, &costs, &err), &err);
}

static void bench_open(struct bench *b, const char *draft_path, uint64_t prefix_ram_max) {
    struct tern_engine_options o = fixture_options(target);
    struct tern_service_options so;
    struct tern_err err = {0};
    o.draft_path = draft_path;
    o.draft = TERN_DRAFT_AUTO;
    o.n_threads = 2;
    o.n_sessions = STREAMS + 1;
    o.n_ctx = 1024;
    o.window = 64;
    b->e = fixture_engine(&o);
    b->alone = fixture_session(b->e);
    costs_set(b->e);
    tern_service_options_default(&so);
    so.prefix_ram_max = prefix_ram_max;
    fixture_must(tern_service_open(&b->s, b->e, &so, &err), &err);
}

static void bench_close(struct bench *b) {
    tern_service_close(b->s);
    tern_session_close(b->alone);
    tern_engine_close(b->e);
}

struct trace_job {
    struct tern_job_options o;
    const struct seen *alone;
    struct tern_job *job;
    struct buf text;
    double logprob_sum;
    int n_events, cancel_after; // -1: never
    bool done;
    struct tern_event end;
};

static void job_draw(struct trace_job *t, bool has_model) {
    struct tern_request_options *o = &t->o.request;
    const struct prompt_line *line = &file.lines[random_below((uint32_t)file.n)];
    *t = (struct trace_job){.cancel_after = random_below(6) == 0 ? (int)random_below(8) : -1};
    buf_init(&t->text, 1 << 16);
    tern_job_options_default(&t->o);
    o->messages_json = (struct tern_str){line->messages.data, line->messages.len};
    o->tools_json = (struct tern_str){line->tools.data, line->tools.len};
    o->n_max = 1 + (int)random_below(TOKENS);
    o->ignore_eos = random_below(2) == 0;
    o->draft = modes[random_below(ARRAY_LEN(modes))];
    if (!has_model && o->draft != TERN_DRAFT_OFF && o->draft != TERN_DRAFT_NGRAM) o->draft = TERN_DRAFT_AUTO;
    o->draft_max = random_below(3) == 0 ? 1 + (int)random_below(20) : 0;
    if (random_below(2)) {
        o->temperature = 0.3f + 0.1f * (float)random_below(10);
        o->seed = random_below(1000);
    }
    if (random_below(4) == 0) o->repeat_penalty = 1.2f;
    if (random_below(4) == 0) o->constraint = &token_rule;
    if (random_below(4) == 0) o->n_logprobs = (int)random_below(4);
    if (random_below(4) == 0) {
        o->n_stop = 1;
        o->stop[0] = random_below(2) ? "e" : ". ";
    }
}

static void job_pull(struct trace_job *t, double wait_s) {
    struct tern_event ev;
    struct tern_err err = {0};
    while (!t->done) {
        if (t->n_events == t->cancel_after) tern_job_cancel(t->job);
        enum tern_status status = tern_job_next(t->job, wait_s, &ev, &err);
        if (status == TERN_AGAIN) return;
        fixture_must(status, &err);
        t->n_events++;
        if (ev.type == TERN_EVENT_TEXT) assert_true(buf_put(&t->text, ev.text.data, ev.text.len));
        for (int i = 0; i < ev.n_logprobs; i += ev.n_logprobs_token) t->logprob_sum += (double)ev.logprobs[i].logprob;
        t->done = ev.type == TERN_EVENT_DONE;
        t->end = ev;
    }
}

static void job_check(const struct trace_job *t, int trace, int i) {
    const struct seen *a = t->alone;
    size_t n;
    const int32_t *ids = tern_job_ids(t->job, &n);
    bool whole = t->end.finish != TERN_FINISH_CANCELLED;
    if (!whole) assert_true(t->cancel_after >= 0);
    if (n > a->n_ids || (whole && n != a->n_ids) || (n && memcmp(ids, a->ids, n * sizeof *ids) != 0))
        fail_msg("trace %d, job %d (%d): %zu tokens that differ from the %zu of its solo run", trace, i,
                 (int)t->o.request.draft, n, a->n_ids);
    if (!whole) return;
    assert_true(str_eq(buf_str(&t->text), buf_str(&a->text)));
    assert_int_equal(t->end.finish, a->finish);
    assert_true(t->logprob_sum == a->logprob_sum);
}

// The solo run of a trace's job, without drafts: the same in every round and with every drafter, so it is run once.
static struct seen solos[N_TRACES][JOBS];
static bool solo_known[N_TRACES][JOBS];
static const struct seen *solo_of(struct bench *b, int trace, int i, const struct tern_request_options *o) {
    struct tern_err err = {0};
    struct tern_request_options plain = *o;
    plain.draft = TERN_DRAFT_OFF;
    plain.draft_max = 0;
    if (!solo_known[trace][i]) {
        fixture_must(tern_session_truncate(b->alone, 0, &err), &err);
        seen_run(&solos[trace][i], b->alone, &plain);
        solo_known[trace][i] = true;
    }
    return &solos[trace][i];
}

static void trace_run(struct bench *b, int trace, bool has_model) {
    static struct trace_job jobs[JOBS];
    struct tern_err err = {0};
    random_state = 0x5eed0000u + (uint64_t)trace;
    for (int i = 0; i < JOBS; i++) {
        job_draw(&jobs[i], has_model);
        jobs[i].alone = solo_of(b, trace, i, &jobs[i].o.request);
    }
    for (int i = 0; i < JOBS; i++) {
        fixture_must(tern_job_submit(&jobs[i].job, b->s, &jobs[i].o, &err), &err);
        if (random_below(2)) continue;
        for (int k = 0; k <= i; k++) job_pull(&jobs[k], random_below(4) == 0 ? 0.002 : 0);
    }
    for (int i = 0; i < JOBS; i++) job_pull(&jobs[i], -1);
    for (int i = 0; i < JOBS; i++) {
        job_check(&jobs[i], trace, i);
        tern_job_free(jobs[i].job);
        buf_release(&jobs[i].text);
    }
}

static void traces_check(struct bench *b, int n_traces, bool has_model) {
    struct tern_service_info info;
    for (int i = 0; i < n_traces; i++) trace_run(b, i, has_model);
    tern_service_info(b->s, &info);
    print_message("%llu jobs, %llu steps, %llu rounds, %llu of %llu drafted tokens accepted, %llu cached\n",
                  (unsigned long long)info.n_jobs, (unsigned long long)info.n_steps, (unsigned long long)info.n_rounds,
                  (unsigned long long)info.n_accepted, (unsigned long long)info.n_drafted,
                  (unsigned long long)info.n_cached);
    assert_int_equal(info.n_failed, 0);
    assert_int_equal(info.n_done + info.n_cancelled, info.n_jobs);
    assert_true(info.n_accepted > (is_short ? 5 : 20)); // how many is a matter of times too
}

static void test_traces(void **state) {
    (void)state;
    struct bench b;
    bench_open(&b, drafter, 0);
    traces_check(&b, is_short ? 2 : N_TRACES, true);
    bench_close(&b);
}

// With the prefix cache: blocks that rounds completed, with the drafter's rows, serve others.
static void test_traces_cached(void **state) {
    (void)state;
    struct bench b;
    bench_open(&b, drafter, 32 << 20);
    traces_check(&b, 2, true);
    traces_check(&b, 2, true); // all prompts have been there
    struct tern_service_info info;
    tern_service_info(b.s, &info);
    assert_true(info.n_cached > 0);
    bench_close(&b);
}

// A whole model as drafter, and none.
static void test_traces_sources(void **state) {
    (void)state;
    struct bench b;
    bench_open(&b, target, 0);
    traces_check(&b, 2, true);
    bench_close(&b);
    bench_open(&b, NULL, 0);
    trace_run(&b, 0, false);
    bench_close(&b);
}

// Streams of one mode together: several trees share a step, so there are fewer steps than rounds.
static void rounds_count(enum tern_draft mode) {
    struct bench b;
    struct tern_job *jobs[STREAMS];
    struct tern_service_info info;
    struct tern_err err = {0};
    struct tern_event ev = {0};
    bench_open(&b, drafter, 0);
    for (int i = 0; i < STREAMS; i++) {
        struct tern_job_options o;
        tern_job_options_default(&o);
        o.request.messages_json = (struct tern_str){file.lines[0].messages.data, file.lines[0].messages.len};
        o.request.n_max = 2 * TOKENS;
        o.request.ignore_eos = true;
        o.request.draft = mode;
        fixture_must(tern_job_submit(&jobs[i], b.s, &o, &err), &err);
    }
    for (int i = 0; i < STREAMS; i++) {
        do fixture_must(tern_job_next(jobs[i], -1, &ev, &err), &err);
        while (ev.type != TERN_EVENT_DONE);
        assert_int_equal(ev.usage.n_answer, 2 * TOKENS);
        tern_job_free(jobs[i]);
    }
    tern_service_info(b.s, &info);
    print_message("mode %d: %llu steps, %llu rounds\n", (int)mode, (unsigned long long)info.n_steps,
                  (unsigned long long)info.n_rounds);
    if (mode == TERN_DRAFT_OFF)
        assert_int_equal(info.n_rounds, 0);
    else if (mode == TERN_DRAFT_AUTO)
        assert_true(info.n_rounds > 0); // how many is a matter of times, which on a busy machine do not repeat
    else
        assert_true(info.n_rounds > info.n_steps);
    bench_close(&b);
}

static void test_together(void **state) {
    (void)state;
    rounds_count(TERN_DRAFT_CHAIN);
    rounds_count(TERN_DRAFT_AUTO);
    rounds_count(TERN_DRAFT_OFF);
}

static int setup(void **state) {
    fixture_setup(state);
    is_short = env_get("TERN_TEST_SHORT") != NULL;
    prompt_file_read(&file, TEST_DATA "/pico/prompts.jsonl", 0, PROMPT_EVERY, PROMPTS);
    if (!is_short) return 0;
    target = SCRIPT_MODEL;
    drafter = tiny_path;
    fixture_temp_path(tiny_path, "service-drafter");
    tiny_drafter_write(target, tiny_path, false);
    for (int i = 0; i < file.n; i += 2) file.lines[i] = (struct prompt_line){str_from(PROMPT_SHORT), {0}};
    return 0;
}

static int teardown(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", tiny_path);
    prompt_file_release(&file);
    for (int k = 0; k < N_TRACES * JOBS; k++)
        if (solo_known[k / JOBS][k % JOBS]) seen_release(&solos[k / JOBS][k % JOBS]);
    if (is_short && system(command) != 0) return -1;
    return fixture_teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_together), cmocka_unit_test(test_traces),
                                       cmocka_unit_test(test_traces_cached), cmocka_unit_test(test_traces_sources)};
    return cmocka_run_group_tests_name("service draft", tests, setup, teardown);
}
