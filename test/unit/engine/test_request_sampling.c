// Sampling through the public interface: the same seed gives the same text however the prompt was cut and on whatever
// threads; log-probabilities; bias.
#include "engine_fixture.h"

#include <math.h>
#include <stdio.h>

// Longer than a block of positions, so that a second request finds a part of it in the session's state.
#define PROMPT                                                                                              \
    "<|startoftext|><|im_start|>user\nTell me about the moon, the tides that it makes in the sea, and the " \
    "people who went there and came back with stones.<|im_end|>\n<|im_start|>assistant\n"

static struct tern_engine *engine;
static struct tern_session *session;

static void open_pico(int window, int n_threads) {
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    o.window = window;
    o.n_threads = n_threads;
    engine = fixture_engine(&o);
    session = fixture_session(engine);
}
static void close_all(void) {
    tern_session_close(session);
    tern_engine_close(engine);
}

static struct tern_request_options moon_request(int n_max) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.prompt = (struct tern_str){PROMPT, sizeof PROMPT - 1};
    o.prompt_special = true;
    o.n_max = n_max;
    o.ignore_eos = true;
    return o;
}

static void same_ids(const struct seen *a, const struct seen *b, const char *what) {
    if (a->n_ids != b->n_ids || memcmp(a->ids, b->ids, a->n_ids * sizeof *a->ids) != 0)
        fail_msg("%s: other tokens", what);
}

// Half of it, then the rest in a second request: the noise belongs to the position, not to the request.
static void resumed_check(const struct tern_request_options *whole, const struct seen *want) {
    struct seen half, rest;
    struct tern_request_options o = *whole;
    o.n_max = 25;
    seen_run(&half, session, &o);
    o.append = true;
    o.prompt.len = 0;
    o.n_max = whole->n_max - 25;
    seen_run(&rest, session, &o);
    assert_memory_equal(half.ids, want->ids, 25 * sizeof *half.ids);
    assert_int_equal(rest.n_ids, want->n_ids - 25);
    assert_memory_equal(rest.ids, want->ids + 25, rest.n_ids * sizeof *rest.ids);
    seen_release(&half);
    seen_release(&rest);
}

static void test_seed(void **state) {
    (void)state;
    static const int windows[] = {256, 1, 7, 32};
    struct seen first = {0}, seen;
    struct tern_request_options o = moon_request(60);
    o.temperature = 0.8f;
    o.top_p = 0.95f;
    o.seed = 42;
    for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
        open_pico(windows[i], 1 + (int)i % 2);
        seen_run(i ? &seen : &first, session, &o);
        if (i) {
            same_ids(&seen, &first, "another window");
            seen_release(&seen);
        }
        seen_run(&seen, session, &o); // from the session's state
        assert_true(seen.usage.n_cached >= 32);
        same_ids(&seen, &first, "the prompt's state reused");
        seen_release(&seen);
        resumed_check(&o, &first);
        close_all();
    }
    open_pico(256, 1);
    o.seed = 43;
    seen_run(&seen, session, &o);
    assert_memory_not_equal(seen.ids, first.ids, first.n_ids * sizeof *first.ids);
    seen_release(&seen);
    seen_release(&first);
    close_all();
}

// Temperature 0 ignores the filters, and a penalty of 1 is none (case M03).
static void test_greedy_ignores(void **state) {
    (void)state;
    struct seen plain, seen;
    struct tern_request_options o = moon_request(40);
    open_pico(256, 1);
    seen_run(&plain, session, &o);
    o.top_k = 3;
    o.top_p = 0.1f;
    o.min_p = 0.9f;
    o.seed = 99;
    o.repeat_penalty = 1;
    seen_run(&seen, session, &o);
    same_ids(&seen, &plain, "filters at temperature 0");
    seen_release(&seen);
    o = moon_request(40);
    o.repeat_penalty = 1.5f;
    seen_run(&seen, session, &o);
    assert_memory_not_equal(seen.ids, plain.ids, plain.n_ids * sizeof *plain.ids);
    seen_release(&seen);
    seen_release(&plain);
    close_all();
}

// The chosen tokens' log-probabilities are those that scoring the same text gives.
static void test_logprobs(void **state) {
    (void)state;
    struct seen seen;
    struct tern_err err = {0};
    int32_t ids[256];
    float scores[256];
    open_pico(256, 1);
    for (int n = 0; n <= TERN_TOP_LOGPROBS_MAX; n += 5) {
        struct tern_request_options o = moon_request(30);
        o.n_logprobs = n;
        seen_run(&seen, session, &o);
        assert_int_equal(seen.n_logprobs, 30);
        int64_t n_prompt = tern_tokenize(engine, o.prompt, false, true, ids, ARRAY_LEN(ids), &err);
        memcpy(ids + n_prompt, seen.ids, seen.n_ids * sizeof *ids);
        fixture_must(tern_session_truncate(session, 0, &err), &err);
        fixture_must(tern_session_score(session, ids, (size_t)n_prompt + seen.n_ids, scores, NULL, &err), &err);
        double sum = 0;
        for (size_t i = 0; i < seen.n_ids; i++) sum += (double)scores[(size_t)n_prompt + i];
        assert_true(fabs(sum - seen.logprob_sum) < 1e-3);
        seen_release(&seen);
    }
    close_all();
}

// The prompt's scores are those of scoring, to the last bit, whatever the window and whatever the session holds; the
// likeliest comes first, and without alternatives there are none.
static void test_prompt_logprobs(void **state) {
    (void)state;
    struct tern_err err = {0};
    static const int windows[] = {16, 256};
    for (size_t w = 0; w < ARRAY_LEN(windows); w++) {
        int32_t ids[256], top[256];
        float scores[256];
        struct seen plain;
        open_pico(windows[w], 1);
        struct tern_request_options o = moon_request(4);
        const int64_t n = tern_tokenize(engine, o.prompt, false, true, ids, ARRAY_LEN(ids), &err);
        seen_run(&plain, session, &o); // the session holds the prompt then
        for (int alternatives = -1; alternatives <= 3; alternatives += 2) {
            struct tern_request *r;
            struct seen seen;
            struct tern_logprob lp[1 + TERN_TOP_LOGPROBS_MAX];
            o.n_logprobs = alternatives;
            o.prompt_logprobs = true;
            fixture_must(tern_request_create(&r, session, &o, &err), &err);
            fixture_must(seen_pull(&seen, r, &err), &err);
            same_ids(&seen, &plain, "scored");
            assert_int_equal(seen.usage.n_cached, 0);
            fixture_must(tern_session_truncate(session, 0, &err), &err);
            fixture_must(tern_session_score(session, ids, (size_t)n, scores, top, &err), &err);
            for (int64_t i = 0; i < n; i++) {
                assert_true(tern_request_prompt_logprobs(r, (size_t)i, lp));
                assert_int_equal(lp[0].id, ids[i]);
                if (i == 0) assert_true(isnan(lp[0].logprob) && (alternatives < 1 || lp[1].id == -1));
                if (i == 0) continue;
                assert_true(lp[0].logprob == scores[i]);
                for (int k = 1; k <= alternatives; k++) {
                    assert_true(lp[k].logprob >= lp[0].logprob || lp[k].id != lp[0].id);
                    if (k == 1) assert_int_equal(lp[k].id, top[i]);
                    if (k > 1) assert_true(lp[k].logprob <= lp[k - 1].logprob);
                }
            }
            assert_false(tern_request_prompt_logprobs(r, (size_t)n, lp));
            tern_request_free(r);
            seen_release(&seen);
        }
        o.append = true;
        refused_run(session, &o, TERN_INVALID_ARGUMENT, &err);
        seen_release(&plain);
        close_all();
    }
}

static void test_logit_bias(void **state) {
    (void)state;
    struct seen plain, seen;
    struct tern_request_options o = moon_request(12);
    open_pico(256, 1);
    seen_run(&plain, session, &o);
    struct tern_logit_bias ban = {.id = plain.ids[0], .bias = -INFINITY}, push = {.id = 1234, .bias = 1000};
    o.logit_bias = &ban;
    o.n_logit_bias = 1;
    seen_run(&seen, session, &o);
    for (size_t i = 0; i < seen.n_ids; i++) assert_int_not_equal(seen.ids[i], plain.ids[0]);
    seen_release(&seen);
    o.logit_bias = &push;
    seen_run(&seen, session, &o);
    for (size_t i = 0; i < seen.n_ids; i++) assert_int_equal(seen.ids[i], 1234);
    seen_release(&seen);
    seen_release(&plain);
    close_all();
}

// With every id banned there is no next token: an error, and the session lives on.
static void test_everything_banned(void **state) {
    (void)state;
    static struct tern_logit_bias bans[673];
    char prompt[256];
    struct seen seen;
    struct tern_err err;
    struct tern_engine_options eo = fixture_options(SCRIPT_MODEL);
    engine = fixture_engine(&eo);
    session = fixture_session(engine);
    for (int i = 0; i < 673; i++) bans[i] = (struct tern_logit_bias){.id = i, .bias = -INFINITY};
    struct tern_request_options o = script_request(script_get("s01"), prompt);
    o.logit_bias = bans;
    o.n_logit_bias = 673;
    refused_run(session, &o, TERN_INVALID_ARGUMENT, &err);
    assert_non_null(strstr(err.message, "banned"));
    o.n_logit_bias = 0;
    seen_run(&seen, session, &o);
    ids_check(&seen, script_get("s01"), 5, "after it");
    seen_release(&seen);
    close_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed),       cmocka_unit_test(test_greedy_ignores),
        cmocka_unit_test(test_logprobs),   cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_logit_bias), cmocka_unit_test(test_everything_banned),
    };
    return cmocka_run_group_tests_name("sampling", tests, fixture_setup, fixture_teardown);
}
