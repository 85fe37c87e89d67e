// The constraint hook with automata of a few lines: only digits, only one word, nothing at all.
#include "engine_fixture.h"

#define PROMPT "<|startoftext|><|im_start|>user\nTell me about the moon.<|im_end|>\n<|im_start|>assistant\n"
#define EOS 7

static struct tern_engine *engine;
static struct tern_session *session;

static void open_pico(void) {
    struct tern_engine_options o = fixture_options(PICO_MODEL);
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
    return o;
}

struct automaton {
    const char *word; // only this word, then the end; NULL: digits, at least `digits`, then the end
    int digits;
    int at;
    bool refuses_all;
};
static int n_states; // live clones

static struct str token_bytes(int32_t id, char out[64]) {
    int64_t n = tern_detokenize(engine, &id, 1, false, out, 64, NULL);
    return (struct str){out, n > 0 && n <= 64 ? (size_t)n : 0};
}
static bool token_fits(const struct automaton *a, int32_t id) {
    char text[64];
    if (a->refuses_all) return false;
    if (id == EOS) return a->word ? a->word[a->at] == 0 : a->at >= a->digits;
    struct str s = token_bytes(id, text);
    if (s.len == 0) return false;
    if (a->word) return str_starts(str_from(a->word + a->at), s);
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] < '0' || s.data[i] > '9') return false;
    return true;
}
static void *automaton_clone(const void *state) {
    n_states++;
    return mem_dup(state, sizeof(struct automaton));
}
static void automaton_free(void *state) {
    n_states--;
    mem_free(state);
}
static bool automaton_advance(void *state, int32_t id) {
    struct automaton *a = state;
    char text[64];
    if (!token_fits(a, id)) return false;
    if (id != EOS) a->at += (int)token_bytes(id, text).len;
    return true;
}
static void automaton_mask(const void *state, uint32_t *mask, int n_vocab) {
    for (int i = 0; i < n_vocab; i++)
        if (!token_fits(state, i)) mask[i / 32] &= ~(1u << (i % 32));
}
static struct tern_constraint constraint_of(struct automaton *a) {
    return (struct tern_constraint){.state = a,
                                    .state_clone = automaton_clone,
                                    .state_free = automaton_free,
                                    .advance = automaton_advance,
                                    .mask = automaton_mask};
}

static void test_constraint_digits(void **state) {
    (void)state;
    struct automaton a = {.digits = 4};
    struct tern_constraint c = constraint_of(&a);
    open_pico();
    for (int i = 0; i < 4; i++) {
        struct seen seen;
        struct tern_request_options o = moon_request(8);
        o.temperature = i ? 1.5f : 0;
        o.seed = (uint64_t)i;
        o.constraint = &c;
        seen_run(&seen, session, &o);
        assert_true(seen.text.len >= 4);
        for (size_t k = 0; k < seen.text.len; k++) assert_in_range(seen.text.data[k], '0', '9');
        seen_release(&seen);
    }
    assert_int_equal(a.at, 0); // the caller's state is not touched
    assert_int_equal(n_states, 0);
    close_all();
}

static void test_constraint_word(void **state) {
    (void)state;
    struct automaton a = {.word = "hippopotamus"};
    struct tern_constraint c = constraint_of(&a);
    struct seen seen;
    struct tern_request_options o = moon_request(20);
    o.temperature = 1;
    o.constraint = &c;
    open_pico();
    seen_run(&seen, session, &o);
    assert_true(str_eqz(buf_str(&seen.text), "hippopotamus"));
    assert_int_equal(seen.finish, TERN_FINISH_STOP);
    assert_int_equal(seen.ids[seen.n_ids - 1], EOS);
    assert_int_equal(n_states, 0);
    seen_release(&seen);
    close_all();
}

static bool advance_never(void *state, int32_t id) {
    (void)state;
    (void)id;
    return false;
}
static void *clone_never(const void *state) {
    (void)state;
    return NULL;
}

static void test_constraint_faults(void **state) {
    (void)state;
    struct automaton none = {.refuses_all = true}, digits = {.digits = 1};
    struct tern_constraint c = constraint_of(&none);
    struct tern_err err;
    struct tern_request_options o = moon_request(8);
    o.constraint = &c;
    open_pico();
    refused_run(session, &o, TERN_INVALID_ARGUMENT, &err);
    assert_non_null(strstr(err.message, "constraint"));
    c = constraint_of(&digits);
    c.advance = advance_never;
    refused_run(session, &o, TERN_INVALID_ARGUMENT, &err);
    assert_non_null(strstr(err.message, "constraint"));
    c.state_clone = clone_never;
    refused_run(session, &o, TERN_NO_MEMORY, &err);
    assert_int_equal(n_states, 0);
    close_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constraint_digits),
        cmocka_unit_test(test_constraint_word),
        cmocka_unit_test(test_constraint_faults),
    };
    return cmocka_run_group_tests_name("constraints", tests, fixture_setup, fixture_teardown);
}
