// What a session keeps of earlier requests changes the time, never the answer: two turns, the same prompt again,
// answers whose text tokenises otherwise (case H07), truncation, forks, and work cut short.
#include "engine_fixture.h"

#include <stdio.h>

#define KEPT_EVERY 32 // positions: where the same prompt may begin again

struct bench {
    struct tern_engine *e;
    struct tern_session *s, *fresh; // the one under test, and one that is emptied before every use
};

static int bench_open(void **state) {
    static struct bench b;
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    o.n_sessions = 4;
    b.e = fixture_engine(&o);
    b.s = fixture_session(b.e);
    b.fresh = fixture_session(b.e);
    *state = &b;
    return 0;
}

static int bench_close(void **state) {
    struct bench *b = *state;
    tern_session_close(b->s);
    tern_session_close(b->fresh);
    tern_engine_close(b->e);
    return 0;
}

static struct tern_request_options chat_options(const struct buf *messages, int n_max) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.messages_json = (struct tern_str){messages->data, messages->len};
    o.n_max = n_max;
    o.n_logprobs = 0; // of the chosen tokens: they show what the tokens alone would not
    return o;
}

static void message_put(struct buf *b, const char *role, struct str content) {
    if (b->len == 0)
        buf_puts(b, "[");
    else
        b->data[b->len - 1] = ','; // over the closing bracket
    buf_putf(b, "{\"role\": \"%s\", \"content\": ", role);
    json_put_quoted(b, content);
    buf_puts(b, "}]");
    assert_false(b->failed);
}

static void same_answer(const struct seen *a, const struct seen *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    assert_true(str_eq(buf_str(&a->text), buf_str(&b->text)));
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n_logprobs, b->n_logprobs);
    assert_true(a->n_logprobs > 0 && a->logprob_sum == b->logprob_sum);
}

// Runs it in s and in an emptied session; both must answer alike. The result of s stays in seen.
static void run_both(struct bench *b, const struct tern_request_options *o, struct seen *seen) {
    struct seen alone;
    struct tern_err err = {0};
    fixture_must(tern_session_truncate(b->fresh, 0, &err), &err);
    seen_run(&alone, b->fresh, o);
    assert_int_equal(alone.usage.n_cached, 0);
    seen_run(seen, b->s, o);
    same_answer(seen, &alone);
    assert_int_equal(seen->usage.n_prompt, alone.usage.n_prompt);
    seen_release(&alone);
}

// The second turn takes prompt and answer of the first from the state (case D13).
static void test_two_turns(void **state) {
    struct bench *b = *state;
    struct buf messages;
    struct seen one, two, three;
    buf_init(&messages, 1 << 16);
    message_put(&messages, "system", STR("You are a helpful assistant who answers in full sentences."));
    message_put(&messages, "user", STR("What is a lighthouse, and why do people like to visit one?"));
    struct tern_request_options o = chat_options(&messages, 60);
    run_both(b, &o, &one);
    message_put(&messages, "assistant", buf_str(&one.text));
    message_put(&messages, "user", STR("And who keeps it?"));
    o = chat_options(&messages, 60);
    run_both(b, &o, &two);
    print_message("turn 2: %lld of %lld prompt tokens from the state\n", (long long)two.usage.n_cached,
                  (long long)two.usage.n_prompt);
    assert_true(two.usage.n_cached >= one.usage.n_prompt + one.usage.n_answer - 8);
    // The same request again: all but the last block of its prompt is there.
    run_both(b, &o, &three);
    assert_true(three.usage.n_cached >= two.usage.n_prompt - KEPT_EVERY);
    same_answer(&two, &three);
    // Another answer in the first turn's place: what came before it is kept, nothing of the old answer.
    buf_clear(&messages);
    message_put(&messages, "system", STR("You are a helpful assistant who answers in full sentences."));
    message_put(&messages, "user", STR("What is a lighthouse, and why do people like to visit one?"));
    message_put(&messages, "assistant", STR("A tower with a lamp."));
    message_put(&messages, "user", STR("And who keeps it?"));
    seen_release(&three);
    o = chat_options(&messages, 60);
    run_both(b, &o, &three);
    assert_true(three.usage.n_cached >= one.usage.n_prompt);
    seen_release(&one);
    seen_release(&two);
    seen_release(&three);
    buf_release(&messages);
}

static void test_no_reuse_when_told(void **state) {
    struct bench *b = *state;
    struct buf messages;
    struct seen seen;
    buf_init(&messages, 1 << 16);
    message_put(&messages, "user", STR("Name three rivers."));
    struct tern_request_options o = chat_options(&messages, 16);
    o.reuse_prefix = false;
    for (int i = 0; i < 2; i++) {
        run_both(b, &o, &seen);
        assert_int_equal(seen.usage.n_cached, 0);
        seen_release(&seen);
    }
    buf_release(&messages);
}

// Generated as tokens A, B, sent back as text that is one token C: the tokens of script s02 are none that its tokenizer
// makes. The state of A, B must not serve C (case H07).
static void test_answer_retokenised(void **state) {
    (void)state;
    struct tern_engine_options eo = fixture_options(SCRIPT_MODEL);
    eo.n_sessions = 2;
    struct bench b = {.e = fixture_engine(&eo)};
    b.s = fixture_session(b.e);
    b.fresh = fixture_session(b.e);
    struct buf messages;
    struct seen one, two;
    buf_init(&messages, 1 << 16);
    message_put(&messages, "user", STR("s02"));
    struct tern_request_options o = chat_options(&messages, -1);
    run_both(&b, &o, &one);
    message_put(&messages, "assistant", script_get("s02")->text);
    message_put(&messages, "user", STR("s05"));
    o = chat_options(&messages, -1);
    run_both(&b, &o, &two);
    ids_check(&two, script_get("s05"), script_get("s05")->n_ids, "second turn");
    // The prompt's last token, the script's marker, is not part of the second prompt.
    assert_true(two.usage.n_cached <= one.usage.n_prompt - 1);
    seen_release(&one);
    seen_release(&two);
    buf_release(&messages);
    tern_session_close(b.s);
    tern_session_close(b.fresh);
    tern_engine_close(b.e);
}

static void test_truncate(void **state) {
    struct bench *b = *state;
    struct buf messages;
    struct seen one, again;
    struct tern_err err = {0};
    buf_init(&messages, 1 << 16);
    message_put(&messages, "user", STR("Tell me about the sea and the ships that cross it in winter."));
    struct tern_request_options o = chat_options(&messages, 40);
    fixture_must(tern_session_truncate(b->s, 0, &err), &err);
    seen_run(&one, b->s, &o);
    size_t len = tern_session_len(b->s), prompt = (size_t)one.usage.n_prompt;
    assert_int_equal(len, prompt + one.n_ids - 1); // the last token was chosen, not run
    assert_int_equal(tern_session_truncate(b->s, len + 1, &err), TERN_INVALID_ARGUMENT);
    // Between checkpoints: refused, with the nearest reachable position below.
    assert_int_equal(tern_session_truncate(b->s, len - 1, &err), TERN_UNSUPPORTED);
    assert_int_equal(err.pos, prompt);
    assert_int_equal(tern_session_len(b->s), len);
    // To the prompt's end, and on from there with the answer's own first token: the rest must come out again.
    fixture_must(tern_session_truncate(b->s, prompt, &err), &err);
    assert_int_equal(tern_session_len(b->s), prompt);
    struct tern_request_options more;
    tern_request_options_default(&more);
    more.append = true;
    more.prompt_ids = one.ids;
    more.n_prompt_ids = 1;
    more.n_max = 39;
    seen_run(&again, b->s, &more);
    assert_int_equal(again.n_ids, one.n_ids - 1);
    assert_memory_equal(again.ids, one.ids + 1, again.n_ids * sizeof *again.ids);
    fixture_must(tern_session_truncate(b->s, 0, &err), &err);
    assert_int_equal(tern_session_len(b->s), 0);
    seen_release(&one);
    seen_release(&again);
    buf_release(&messages);
}

// The next token of the script model depends on two tokens that only its convolution rows know: going back must bring
// the rows of that place.
static void test_truncate_restores_rows(void **state) {
    (void)state;
    char prompt[256];
    struct seen seen;
    struct tern_err err = {0};
    struct tern_engine_options eo = fixture_options(SCRIPT_MODEL);
    struct tern_engine *e = fixture_engine(&eo);
    struct tern_session *s = fixture_session(e);
    const struct script *script = script_get("s21");
    struct tern_request_options o = script_request(script, prompt), more;
    o.n_max = 20;
    seen_run(&seen, s, &o);
    size_t n_prompt = (size_t)seen.usage.n_prompt;
    seen_release(&seen);
    fixture_must(tern_session_truncate(s, n_prompt, &err), &err);
    tern_request_options_default(&more);
    more.append = true;
    more.prompt_ids = script->ids;
    more.n_prompt_ids = 1;
    more.n_max = 30;
    seen_run(&seen, s, &more);
    assert_int_equal(seen.n_ids, 30);
    assert_memory_equal(seen.ids, script->ids + 1, 30 * sizeof *seen.ids);
    seen_release(&seen);
    tern_session_close(s);
    tern_engine_close(e);
}

// A fork goes its own way; both lines answer as sessions that were never forked.
static void test_fork(void **state) {
    struct bench *b = *state;
    struct buf messages;
    struct seen whole, part, rest[2];
    struct tern_session *fork = NULL;
    struct tern_err err = {0};
    buf_init(&messages, 1 << 16);
    message_put(&messages, "user", STR("Write a short story about a rabbit who finds a key."));
    struct tern_request_options o = chat_options(&messages, 80);
    o.ignore_eos = true;
    fixture_must(tern_session_truncate(b->fresh, 0, &err), &err);
    seen_run(&whole, b->fresh, &o);
    o.n_max = 33;
    o.reuse_prefix = false;
    seen_run(&part, b->s, &o);
    fixture_must(tern_session_fork(&fork, b->s, &err), &err);
    assert_int_equal(tern_session_len(fork), tern_session_len(b->s));
    struct tern_request_options more;
    tern_request_options_default(&more);
    more.append = true;
    more.n_max = 47;
    more.ignore_eos = true;
    struct tern_session *lines[2] = {b->s, fork};
    for (int i = 0; i < 2; i++) {
        seen_run(&rest[i], lines[i], &more);
        assert_int_equal(rest[i].n_ids, 47);
        assert_memory_equal(rest[i].ids, whole.ids + 33, 47 * sizeof *whole.ids);
        seen_release(&rest[i]);
    }
    tern_session_close(fork);
    seen_release(&whole);
    seen_release(&part);
    buf_release(&messages);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_turns, bench_open, bench_close),
        cmocka_unit_test_setup_teardown(test_no_reuse_when_told, bench_open, bench_close),
        cmocka_unit_test(test_answer_retokenised),
        cmocka_unit_test_setup_teardown(test_truncate, bench_open, bench_close),
        cmocka_unit_test(test_truncate_restores_rows),
        cmocka_unit_test_setup_teardown(test_fork, bench_open, bench_close),
    };
    return cmocka_run_group_tests_name("reuse of a session's state", tests, fixture_setup, fixture_teardown);
}
