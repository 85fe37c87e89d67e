// What ends an answer or refuses a prompt: n_max, the context (cases K01, K04), stop strings, cancelling, options out
// of range. After each of them the session serves the next request exactly.
#include "engine_fixture.h"

#include <stdio.h>

static struct tern_engine *engine;
static struct tern_session *session;

static void open_with_context(int n_ctx) {
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    o.n_ctx = n_ctx;
    engine = fixture_engine(&o);
    session = fixture_session(engine);
}

static void close_all(void) {
    tern_session_close(session);
    tern_engine_close(engine);
}

static void still_exact(void) {
    char prompt[256];
    struct seen seen;
    struct tern_request_options o = script_request(script_get("s05"), prompt);
    seen_run(&seen, session, &o);
    ids_check(&seen, script_get("s05"), script_get("s05")->n_ids, "after it");
    seen_release(&seen);
}

static void test_n_max(void **state) {
    (void)state;
    const struct script *script = script_get("s21");
    static const int sizes[] = {1, 2, 31, 60};
    open_with_context(1024);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char prompt[256];
        struct seen seen;
        struct tern_request_options o = script_request(script, prompt);
        o.n_max = sizes[i];
        seen_run(&seen, session, &o);
        assert_int_equal(seen.finish, TERN_FINISH_LENGTH);
        ids_check(&seen, script, sizes[i], "n_max");
        assert_true(str_starts(script->text, buf_str(&seen.text)));
        assert_int_equal(seen.usage.n_steps, sizes[i] - 1);
        seen_release(&seen);
    }
    still_exact();
    close_all();
}

static void test_prompt_beyond_context(void **state) {
    (void)state;
    static const struct {
        int n_tokens;
        bool fits;
    } cases[] = {{500, true}, {511, true}, {512, false}, {513, false}, {100000, false}};
    static int32_t ids[100000];
    open_with_context(512);
    ids[0] = 1;
    for (size_t i = 1; i < ARRAY_LEN(ids); i++) ids[i] = 100 + (int32_t)(i % 150);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tern_request_options o;
        struct seen seen;
        struct tern_err err;
        char number[16];
        tern_request_options_default(&o);
        o.prompt_ids = ids;
        o.n_prompt_ids = (size_t)cases[i].n_tokens;
        o.ignore_eos = true;
        if (cases[i].fits) {
            seen_run(&seen, session, &o);
            assert_int_equal(seen.usage.n_prompt, cases[i].n_tokens);
            assert_int_equal(seen.n_ids, 512 - cases[i].n_tokens);
            assert_int_equal(seen.finish, TERN_FINISH_LENGTH);
            seen_release(&seen);
            continue;
        }
        size_t len = tern_session_len(session);
        refused_run(session, &o, TERN_CONTEXT_FULL, &err);
        snprintf(number, sizeof number, "%d", cases[i].n_tokens);
        assert_non_null(strstr(err.message, number));
        assert_non_null(strstr(err.message, "512"));
        assert_int_equal(tern_session_len(session), len); // nothing was cut or thrown away
    }
    still_exact();
    close_all();
}

static void test_answer_to_the_end_of_context(void **state) {
    (void)state;
    char prompt[256];
    struct seen seen;
    open_with_context(128);
    struct tern_request_options o = script_request(script_get("s21"), prompt);
    o.n_max = 100000;
    seen_run(&seen, session, &o);
    assert_int_equal(seen.finish, TERN_FINISH_LENGTH);
    ids_check(&seen, script_get("s21"), 128 - (int)seen.usage.n_prompt, "context used up");
    seen_release(&seen);
    still_exact();
    close_all();
}

static void stop_check(const char *const *stops, int n, const char *script, const char *text, enum tern_finish finish) {
    char prompt[256];
    struct seen seen;
    struct tern_request_options o = script_request(script_get(script), prompt);
    for (int i = 0; i < n; i++) o.stop[i] = stops[i];
    o.n_stop = n;
    seen_run(&seen, session, &o);
    if (!str_eqz(buf_str(&seen.text), text)) fail_msg("%s: '%s', expected '%s'", stops[0], seen.text.data, text);
    assert_int_equal(seen.finish, finish);
    seen_release(&seen);
}

static void test_stop_strings(void **state) {
    (void)state;
    static const char *const comma[] = {","}, *const across[] = {"lo, wor"}, *const start[] = {"H"},
                             *const end[] = {"world."}, *const absent[] = {"world!", "Hello, world. "},
                             *const near[] = {"Hello, w0", "o, world", "ld"}, *const digits[] = {"0003"},
                             *const euro[] = {"\xc3\xa9"};
    open_with_context(1024);
    stop_check(comma, 1, "s01", "Hello", TERN_FINISH_STOP);
    stop_check(across, 1, "s01", "Hel", TERN_FINISH_STOP); // over token borders
    stop_check(start, 1, "s01", "", TERN_FINISH_STOP);
    stop_check(end, 1, "s01", "Hello, ", TERN_FINISH_STOP);
    stop_check(absent, 2, "s01", "Hello, world.", TERN_FINISH_STOP); // the end token, all text shown
    stop_check(near, 3, "s01", "Hell", TERN_FINISH_STOP);            // the one that begins first
    stop_check(digits, 1, "s21", "0001 0002 ", TERN_FINISH_STOP);
    stop_check(euro, 1, "s40", "caf", TERN_FINISH_STOP);
    still_exact();
    close_all();
}

// One character per event: no piece of what may become a stop string is shown before it is known.
static void test_stop_string_never_shown(void **state) {
    (void)state;
    char prompt[256];
    struct tern_request *r;
    struct tern_event ev;
    struct tern_err err = {0};
    open_with_context(1024);
    struct tern_request_options o = script_request(script_get("s01"), prompt);
    o.stop[0] = "world!";
    o.stop[1] = "ld.";
    o.n_stop = 2;
    fixture_must(tern_request_create(&r, session, &o, &err), &err);
    struct buf text;
    buf_init(&text, 1024);
    do {
        fixture_must(tern_request_next(r, &ev, &err), &err);
        if (ev.type == TERN_EVENT_TEXT) buf_put(&text, ev.text.data, ev.text.len);
        assert_int_equal(str_find(buf_str(&text), STR("ld."), 0), (size_t)-1);
    } while (ev.type != TERN_EVENT_DONE);
    assert_true(str_eqz(buf_str(&text), "Hello, wor"));
    buf_release(&text);
    tern_request_free(r);
    close_all();
}

static void cancel_after(int n_events, bool free_at_once) {
    char prompt[256];
    struct tern_request *r;
    struct tern_event ev = {0};
    struct tern_err err = {0};
    struct tern_request_options o = script_request(script_get("s20"), prompt); // endless
    fixture_must(tern_request_create(&r, session, &o, &err), &err);
    for (int i = 0; i < n_events; i++) fixture_must(tern_request_next(r, &ev, &err), &err);
    if (!free_at_once) {
        tern_request_cancel(r);
        do fixture_must(tern_request_next(r, &ev, &err), &err);
        while (ev.type != TERN_EVENT_DONE);
        assert_int_equal(ev.finish, TERN_FINISH_CANCELLED);
        assert_true(ev.usage.n_answer <= n_events + 1);
    }
    tern_request_free(r);
}

static void test_cancel(void **state) {
    (void)state;
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    o.window = 4; // several prompt steps to be cancelled between
    engine = fixture_engine(&o);
    session = fixture_session(engine);
    for (int n = 0; n < 14; n++) {
        cancel_after(n, n % 2);
        still_exact();
    }
    close_all();
}

static void test_one_request_at_a_time(void **state) {
    (void)state;
    char prompt[256];
    struct tern_request *r, *other = NULL;
    struct tern_event ev;
    struct tern_err err = {0};
    open_with_context(1024);
    struct tern_request_options o = script_request(script_get("s01"), prompt);
    fixture_must(tern_request_create(&r, session, &o, &err), &err);
    assert_int_equal(tern_request_create(&other, session, &o, &err), TERN_INVALID_ARGUMENT);
    assert_null(other);
    assert_int_equal(tern_session_truncate(session, 0, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(tern_session_save(session, "/tmp/never", &err), TERN_INVALID_ARGUMENT);
    fixture_must(tern_request_next(r, &ev, &err), &err);
    tern_request_free(r);
    still_exact();
    close_all();
}

#define REFUSED(change)                                                 \
    do {                                                                \
        struct tern_err err;                                            \
        struct tern_request_options o = script_request(script, prompt); \
        change;                                                         \
        refused_run(session, &o, TERN_INVALID_ARGUMENT, &err);          \
    } while (0)

static void test_bad_options(void **state) {
    (void)state;
    char prompt[256];
    const struct script *script = script_get("s01");
    static const int32_t ids[] = {1, 673}, negative[] = {-1};
    static const struct tern_logit_bias bias = {.id = 673, .bias = 1};
    open_with_context(128);
    REFUSED(o.n_max = 0);
    REFUSED(o.n_max = -2);
    REFUSED(o.temperature = -1);
    REFUSED(o.temperature = __builtin_nanf(""));
    REFUSED(o.top_p = 1.5f);
    REFUSED(o.min_p = -0.1f);
    REFUSED(o.top_k = -1);
    REFUSED(o.repeat_penalty = 0);
    REFUSED(o.n_stop = TERN_STOP_MAX + 1);
    REFUSED((o.n_stop = 1, o.stop[0] = ""));
    REFUSED((o.n_stop = 1, o.stop[0] = NULL));
    REFUSED(o.n_logprobs = TERN_TOP_LOGPROBS_MAX + 1);
    REFUSED((o.logit_bias = &bias, o.n_logit_bias = 1));
    REFUSED((o.prompt_ids = ids, o.n_prompt_ids = 2)); // two prompts
    REFUSED((o.prompt.len = 0, o.prompt_ids = ids, o.n_prompt_ids = 2));
    REFUSED((o.prompt.len = 0, o.prompt_ids = negative, o.n_prompt_ids = 1));
    REFUSED((o.prompt.len = 0, o.append = true)); // nothing to continue
    still_exact();
    close_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_n_max),
        cmocka_unit_test(test_prompt_beyond_context),
        cmocka_unit_test(test_answer_to_the_end_of_context),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_stop_string_never_shown),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_one_request_at_a_time),
        cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests_name("limits of requests", tests, fixture_setup, fixture_teardown);
}
