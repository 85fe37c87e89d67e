// Speculative decoding changes the time, never the text: token ids of pico's answers are equal for plain decoding and
// every kind of draft, budget, number of threads, with and without state from before; sampled and constrained ones too;
// and what a session is afterwards is the same as well. Cases D08, D11, D13.
#include "../common/prompt_file.h"
#include "../common/tiny_drafter_folder.h"
#include "../common/token_rule.h"
#include "../unit/engine/engine_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DRAFTER TEST_MODELS "/pico-dspark.gguf"
#define PROMPTS 12
#define PROMPT_EVERY 8 // of the file's 100, which are sorted by category
#define TOKENS 32
// Where $TERN_TEST_SHORT is set: slow builds, which look for more than wrong tokens. The script model with a drafter of
// random weights runs every part of a round in a fortieth of the time; n-grams and the model itself draft well.
#define PROMPT_SHORT "[{\"role\": \"user\", \"content\": \"s20\"}]"
#define ACCEPTED_MIN 1.5 // tokens a round, in four modes at least, or nothing was tested

struct mode {
    const char *name;
    enum tern_draft draft;
    int max;
};
static const struct mode modes[] = {
    {"plain", TERN_DRAFT_OFF, 0},
    {"chain 1", TERN_DRAFT_CHAIN, 1},
    {"chain 4", TERN_DRAFT_CHAIN, 4},
    {"chain 9", TERN_DRAFT_CHAIN, 9},
    {"tree 1", TERN_DRAFT_TREE, 1},
    {"tree 4", TERN_DRAFT_TREE, 4},
    {"tree 8", TERN_DRAFT_TREE, 8},
    {"tree 16", TERN_DRAFT_TREE, 16},
    {"tree 46", TERN_DRAFT_TREE, 46},
    {"tree 63", TERN_DRAFT_TREE, 63},
    {"biased 16", TERN_DRAFT_TREE_BIASED, 16},
    {"factorised 16", TERN_DRAFT_TREE_FACTORISED, 16},
    {"auto", TERN_DRAFT_AUTO, 0},
    {"ngram 8", TERN_DRAFT_NGRAM, 8},
};
static const struct mode few_modes[] = {
    {"plain", TERN_DRAFT_OFF, 0}, {"chain", TERN_DRAFT_CHAIN, 9}, {"tree 16", TERN_DRAFT_TREE, 16},
    {"auto", TERN_DRAFT_AUTO, 0}, {"ngram", TERN_DRAFT_NGRAM, 6},
};

static bool is_short;
static int n_prompts = PROMPTS;
static const char *target = PICO_MODEL, *drafter = DRAFTER;
static char drafter_path[256];
static struct prompt_file file;

static int prompts_setup(void **state) {
    fixture_setup(state);
    is_short = env_get("TERN_TEST_SHORT") != NULL;
    if (is_short) {
        n_prompts = 1;
        target = SCRIPT_MODEL;
        drafter = drafter_path;
        fixture_temp_path(drafter_path, "tiny-drafter");
        tiny_drafter_write(target, drafter_path, false);
    }
    prompt_file_read(&file, TEST_DATA "/pico/prompts.jsonl", 0, PROMPT_EVERY, PROMPTS);
    assert_int_equal(file.n, PROMPTS);
    for (int i = 0; i < file.n && is_short; i++) file.lines[i] = (struct prompt_line){str_from(PROMPT_SHORT), {0}};
    return 0;
}

static int prompts_teardown(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", drafter_path);
    prompt_file_release(&file);
    if (is_short && system(command) != 0) return -1;
    return fixture_teardown(state);
}

static struct tern_engine *engine_make(enum tern_draft draft, int n_threads, int n_ctx) {
    struct tern_engine_options o = fixture_options(target);
    o.draft_path = drafter;
    o.draft = draft;
    o.n_threads = n_threads;
    o.n_sessions = 2;
    o.n_ctx = n_ctx;
    return fixture_engine(&o);
}

static struct tern_request_options request_make(int prompt, const struct mode *m, int n_max) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.messages_json = (struct tern_str){file.lines[prompt].messages.data, file.lines[prompt].messages.len};
    o.tools_json = (struct tern_str){file.lines[prompt].tools.data, file.lines[prompt].tools.len};
    o.n_max = n_max;
    o.draft = m->draft;
    o.draft_max = m->max;
    return o;
}

static void same_answer(const struct seen *want, const struct seen *got, const char *what, const char *mode) {
    for (size_t i = 0; i < want->n_ids && i < got->n_ids; i++)
        if (want->ids[i] != got->ids[i])
            fail_msg("%s, %s: token %zu is %d, plain has %d", what, mode, i, got->ids[i], want->ids[i]);
    if (want->n_ids != got->n_ids) fail_msg("%s, %s: %zu tokens, plain has %zu", what, mode, got->n_ids, want->n_ids);
    if (!str_eq(buf_str(&want->text), buf_str(&got->text))) fail_msg("%s, %s: other text", what, mode);
    if (!str_eq(buf_str(&want->calls), buf_str(&got->calls))) fail_msg("%s, %s: other calls", what, mode);
    if (want->finish != got->finish) fail_msg("%s, %s: ends otherwise", what, mode);
    if (want->n_logprobs != got->n_logprobs || want->logprob_sum != got->logprob_sum)
        fail_msg("%s, %s: other log-probabilities", what, mode);
}

static void truncate_all(struct tern_session *s) {
    struct tern_err err = {0};
    fixture_must(tern_session_truncate(s, 0, &err), &err);
}

// ------------------------------------------------------------------------------------------------------------ greedy

static void greedy_check(int n_threads) {
    struct tern_engine *e = engine_make(TERN_DRAFT_AUTO, n_threads, 1024);
    struct tern_session *s = fixture_session(e);
    int64_t tokens[ARRAY_LEN(modes)] = {0}, rounds[ARRAY_LEN(modes)] = {0};
    int n_good = 0;
    for (int p = 0; p < n_prompts; p++) {
        struct seen want = {0}, got;
        size_t len = 0;
        for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
            if (m > 0 && n_threads > 1 && !is_short && ((size_t)p + m) % 3) continue; // pairwise
            struct tern_request_options o = request_make(p, &modes[m], TOKENS);
            char what[48];
            snprintf(what, sizeof what, "prompt %d, %d threads", p, n_threads);
            truncate_all(s);
            seen_run(m ? &got : &want, s, &o);
            if (m == 0) {
                assert_int_equal(want.usage.n_rounds, 0);
                len = tern_session_len(s);
                continue;
            }
            same_answer(&want, &got, what, modes[m].name);
            assert_int_equal(tern_session_len(s), len); // the state ends where plain decoding's does
            assert_true(got.usage.n_drafted <= got.usage.n_rounds * (modes[m].max ? modes[m].max : TERN_DRAFT_MAX));
            tokens[m] += got.usage.n_round_tokens;
            rounds[m] += got.usage.n_rounds;
            seen_release(&got);
            if (((size_t)p + m) % 4) continue;
            // And again from the state that this answer left.
            seen_run(&got, s, &o);
            snprintf(what, sizeof what, "prompt %d from its own state", p);
            same_answer(&want, &got, what, modes[m].name);
            seen_release(&got);
        }
        seen_release(&want);
    }
    for (size_t m = 1; m < ARRAY_LEN(modes); m++) {
        double mean = rounds[m] ? (double)tokens[m] / (double)rounds[m] : 0;
        print_message("%d threads, %s: %.2f tokens a round, %lld rounds\n", n_threads, modes[m].name, mean,
                      (long long)rounds[m]);
        n_good += mean > ACCEPTED_MIN;
    }
    assert_true(n_good >= 4);
    tern_session_close(s);
    tern_engine_close(e);
}

static void test_greedy_one_thread(void **state) {
    (void)state;
    greedy_check(1);
}
static void test_greedy_two_threads(void **state) {
    (void)state;
    greedy_check(2);
}

// ------------------------------------------------------------------------------------------------------------ choices

static void choices_set(struct tern_request_options *o, int kind) {
    static const struct tern_logit_bias bias[] = {{13, -INFINITY}, {500, 2.5f}};
    o->seed = 11 + (uint64_t)kind;
    if (kind > 0) o->temperature = kind == 1 ? 0.7f : kind == 2 ? 1.0f : 1.5f;
    if (kind == 2) o->top_p = 0.9f;
    if (kind == 3) o->top_k = 40;
    if (kind == 3) o->min_p = 0.02f;
    if (kind == 4) {
        o->temperature = 0.8f;
        o->repeat_penalty = 1.2f;
        o->presence_penalty = 0.4f;
        o->frequency_penalty = 0.3f;
        o->logit_bias = bias;
        o->n_logit_bias = ARRAY_LEN(bias);
    }
    if (kind == 5) o->n_logprobs = 3;
    if (kind == 6) {
        o->temperature = 0;
        o->repeat_penalty = 1.3f;
    }
    if (kind == 7) o->temperature = 0;
    if (kind >= 7) o->constraint = &token_rule;
    if (kind == 8) o->temperature = 0.9f;
}

static void test_choices(void **state) {
    (void)state;
    struct tern_engine *e = engine_make(TERN_DRAFT_AUTO, 1, 1024);
    struct tern_session *s = fixture_session(e);
    int64_t accepted = 0;
    for (int kind = 0; kind < 9; kind++)
        for (int p = is_short ? 0 : 1; p < n_prompts; p += 5) {
            struct seen want = {0}, got;
            for (size_t m = 0; m < ARRAY_LEN(few_modes); m++) {
                struct tern_request_options o = request_make(p, &few_modes[m], TOKENS);
                char what[48];
                snprintf(what, sizeof what, "prompt %d, choices %d", p, kind);
                choices_set(&o, kind);
                truncate_all(s);
                seen_run(m ? &got : &want, s, &o);
                if (m == 0) continue;
                same_answer(&want, &got, what, few_modes[m].name);
                accepted += got.usage.n_accepted;
                seen_release(&got);
            }
            seen_release(&want);
        }
    print_message("%lld drafted tokens accepted\n", (long long)accepted);
    assert_true(accepted > 100);
    tern_session_close(s);
    tern_engine_close(e);
}

// Limits and stop strings cut a round in its middle.
static void test_ends(void **state) {
    (void)state;
    struct tern_engine *e = engine_make(TERN_DRAFT_AUTO, 1, 96);
    struct tern_session *s = fixture_session(e);
    static const char *const stops[] = {"the", ". ", "\n", "a"};
    for (int kind = 0; kind < 12 + (int)ARRAY_LEN(stops); kind++) {
        struct seen want = {0}, got;
        size_t len = 0;
        for (size_t m = 0; m < ARRAY_LEN(few_modes); m++) {
            struct tern_request_options o = request_make(0, &few_modes[m], kind < 11 ? kind + 1 : -1);
            char what[32];
            snprintf(what, sizeof what, "end %d", kind);
            o.ignore_eos = kind == 11; // to the end of the context
            if (kind >= 12) {
                o.stop[0] = stops[kind - 12];
                o.n_stop = 1;
            }
            truncate_all(s);
            seen_run(m ? &got : &want, s, &o);
            if (m == 0) {
                len = tern_session_len(s);
                continue;
            }
            same_answer(&want, &got, what, few_modes[m].name);
            assert_int_equal(tern_session_len(s), len);
            seen_release(&got);
        }
        seen_release(&want);
    }
    tern_session_close(s);
    tern_engine_close(e);
}

// ------------------------------------------------------------------------------------------------------------ sessions

static void append_take(struct tern_session *s, const struct mode *m, int n, struct seen *seen) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.append = true;
    o.n_max = n;
    o.draft = m->draft;
    o.draft_max = m->max;
    o.ignore_eos = true;
    seen_run(seen, s, &o);
}

// A state with a drafter's context is of use to an engine without one.
static void other_engine_check(struct tern_session *s, const char *path, const struct seen *want) {
    const struct mode plain = {"plain", TERN_DRAFT_OFF, 0};
    struct tern_err err = {0};
    struct seen got;
    fixture_must(tern_session_load(s, path, &err), &err);
    append_take(s, &plain, TOKENS, &got);
    assert_memory_equal(got.ids, want->ids + TOKENS, TOKENS * sizeof *want->ids);
    seen_release(&got);
}

// Half of an answer, then the rest: in a fork, behind a saved state (with and without the drafter's context in it), and
// by turns in all modes. The drafter's context follows: drafts are accepted as they are without the pause.
static void test_sessions(void **state) {
    (void)state;
    struct tern_engine *e = engine_make(TERN_DRAFT_AUTO, 1, 1024);
    struct tern_engine_options po = fixture_options(target);
    struct tern_engine *bare = fixture_engine(&po);
    struct tern_session *s = fixture_session(e), *fork = NULL, *other = fixture_session(bare);
    struct tern_err err = {0};
    struct seen want, first, got;
    char path[256], bare_path[256];
    const struct mode plain = {"plain", TERN_DRAFT_OFF, 0}, tree = {"tree", TERN_DRAFT_TREE, 16};
    fixture_temp_path(path, "drafts");
    fixture_temp_path(bare_path, "no-drafts");
    struct tern_request_options o = request_make(0, &plain, 2 * TOKENS);
    o.ignore_eos = true;
    seen_run(&want, s, &o);
    for (int way = 0; way < 5; way++) {
        const char *const ways[] = {"no pause", "fork", "saved", "saved without a drafter", "modes by turns"};
        truncate_all(s);
        o = request_make(0, &tree, TOKENS);
        o.ignore_eos = true;
        if (way == 3) {
            truncate_all(other);
            o.draft = TERN_DRAFT_DEFAULT;
            o.draft_max = 0;
        }
        seen_run(&first, way == 3 ? other : s, &o);
        assert_memory_equal(first.ids, want.ids, TOKENS * sizeof *want.ids);
        struct tern_session *at = s;
        if (way == 1) {
            fixture_must(tern_session_fork(&fork, s, &err), &err);
            at = fork;
        }
        if (way == 2 || way == 3) {
            const char *file_path = way == 2 ? path : bare_path;
            fixture_must(tern_session_save(way == 2 ? s : other, file_path, &err), &err);
            truncate_all(s);
            fixture_must(tern_session_load(s, file_path, &err), &err);
        }
        if (way == 4) {
            size_t n = 0;
            for (size_t m = 0; n < TOKENS; m++) {
                append_take(at, &few_modes[m % ARRAY_LEN(few_modes)], 4, &got);
                assert_memory_equal(got.ids, want.ids + TOKENS + n, 4 * sizeof *want.ids);
                n += 4;
                seen_release(&got);
            }
        } else {
            append_take(at, &tree, TOKENS, &got);
            print_message("%s: %lld rounds\n", ways[way], (long long)got.usage.n_rounds);
            assert_memory_equal(got.ids, want.ids + TOKENS, TOKENS * sizeof *want.ids);
            static int64_t rounds;
            if (way == 0) rounds = got.usage.n_rounds;
            if (way == 1 || way == 2) assert_int_equal(got.usage.n_rounds, rounds);
            assert_true(got.usage.n_accepted > 0);
            seen_release(&got);
        }
        seen_release(&first);
    }
    other_engine_check(other, path, &want);
    seen_release(&want);
    fixture_must(os_remove(path, &err), &err);
    fixture_must(os_remove(bare_path, &err), &err);
    tern_session_close(fork);
    tern_session_close(s);
    tern_session_close(other);
    tern_engine_close(e);
    tern_engine_close(bare);
}

// A whole model drafts for itself: what it proposes is right but for the answer's end, also in turn, behind a cut, in a
// fork and behind a loaded state, which it has to see for itself. A wrong row of its state would show as rejections.
static void test_whole_model(void **state) {
    (void)state;
    struct tern_engine_options eo = fixture_options(target);
    eo.draft_path = target;
    eo.draft = TERN_DRAFT_CHAIN;
    eo.n_sessions = 2;
    struct tern_engine *e = fixture_engine(&eo);
    struct tern_session *s = fixture_session(e), *fork = NULL;
    struct tern_err err = {0};
    struct tern_model_info info;
    char path[256];
    const struct mode plain = {"plain", TERN_DRAFT_OFF, 0}, chain = {"chain", TERN_DRAFT_CHAIN, 7},
                      tree = {"tree", TERN_DRAFT_TREE, 16};
    fixture_temp_path(path, "whole-model");
    tern_engine_info(e, &info);
    assert_non_null(info.drafter);
    assert_true(info.bytes_drafter > (is_short ? 10u << 10 : 10u << 20));
    for (int p = 0; p < n_prompts; p += 3) {
        struct seen want, got;
        struct tern_request_options o = request_make(p, &plain, 2 * TOKENS);
        o.ignore_eos = true;
        truncate_all(s);
        seen_run(&want, s, &o);
        for (int way = 0; way < 4; way++) {
            const struct mode *m = way == 3 ? &tree : &chain;
            o = request_make(p, m, TOKENS);
            o.ignore_eos = true;
            truncate_all(s);
            seen_run(&got, s, &o);
            assert_memory_equal(got.ids, want.ids, TOKENS * sizeof *want.ids);
            assert_true(got.usage.n_rounds <= 1 + TOKENS / (m->draft == TERN_DRAFT_TREE ? 6 : 7));
            seen_release(&got);
            struct tern_session *at = s;
            if (way == 1) {
                fixture_must(tern_session_fork(&fork, s, &err), &err);
                at = fork;
            }
            if (way == 2) {
                fixture_must(tern_session_save(s, path, &err), &err);
                truncate_all(s);
                fixture_must(tern_session_load(s, path, &err), &err);
            }
            append_take(at, m, TOKENS, &got);
            assert_memory_equal(got.ids, want.ids + TOKENS, TOKENS * sizeof *want.ids);
            assert_true(got.usage.n_rounds <= 1 + TOKENS / (m->draft == TERN_DRAFT_TREE ? 6 : 7));
            seen_release(&got);
            tern_session_close(fork);
            fork = NULL;
        }
        seen_release(&want);
    }
    fixture_must(os_remove(path, &err), &err);
    tern_session_close(s);
    tern_engine_close(e);
}

// The second turn finds prompt and answer of the first, drafted or not, and says the same (case D13).
static void test_two_turns(void **state) {
    (void)state;
    struct tern_engine *e = engine_make(TERN_DRAFT_AUTO, 1, 1024);
    struct tern_session *s = fixture_session(e);
    struct seen one, two, want = {0};
    for (size_t m = 0; m < ARRAY_LEN(few_modes); m++) {
        struct buf turn;
        truncate_all(s);
        struct tern_request_options o = request_make(1, &few_modes[m], 60);
        seen_run(&one, s, &o);
        buf_init(&turn, 1 << 16);
        buf_put(&turn, file.lines[1].messages.data, file.lines[1].messages.len - 1);
        buf_puts(&turn, ", {\"role\": \"assistant\", \"content\": ");
        json_put_quoted(&turn, buf_str(&one.text));
        buf_puts(&turn, "}, {\"role\": \"user\", \"content\": \"And why?\"}]");
        o.messages_json = (struct tern_str){turn.data, turn.len};
        seen_run(m ? &two : &want, s, &o);
        const struct seen *now = m ? &two : &want;
        // The script model's answers are not the tokens that their texts have.
        if (!is_short) assert_true(now->usage.n_cached >= one.usage.n_prompt + one.usage.n_answer - 8);
        if (m) {
            assert_int_equal(now->usage.n_cached, want.usage.n_cached);
            same_answer(&want, &two, "second turn", few_modes[m].name);
            seen_release(&two);
        }
        seen_release(&one);
        buf_release(&turn);
    }
    seen_release(&want);
    tern_session_close(s);
    tern_engine_close(e);
}

// ------------------------------------------------------------------------------------------------------------ scripts

// Every script comes out exactly whatever the n-gram drafter proposes; a loop is accepted in whole rounds (case D08).
static void test_scripts(void **state) {
    (void)state;
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    o.draft = TERN_DRAFT_NGRAM;
    struct tern_engine *e = fixture_engine(&o);
    struct tern_session *s = fixture_session(e);
    static const int widths[] = {1, 2, 3, 7, 16};
    for (size_t w = 0; w < ARRAY_LEN(widths); w++)
        for (int i = 0; i < fixture_n_scripts; i++) {
            const struct script *script = &fixture_scripts[i];
            bool endless = script->ids[script->n_ids - 1] != 7;
            char prompt[256];
            struct tern_request_options r = script_request(script, prompt);
            struct seen seen;
            r.draft_max = widths[w];
            if (endless) r.n_max = 120;
            seen_run(&seen, s, &r);
            if (!endless) ids_check(&seen, script, script->n_ids, "n-grams");
            for (size_t k = 0; endless && k < seen.n_ids; k++)
                assert_int_equal(seen.ids[k], script->ids[k % (size_t)script->n_ids]);
            if (strcmp(script->name, "s20") == 0) {
                print_message("s20, width %d: %lld of %lld accepted\n", widths[w], (long long)seen.usage.n_accepted,
                              (long long)seen.usage.n_drafted);
                assert_true(seen.usage.n_accepted * 10 > seen.usage.n_drafted * 8 && seen.usage.n_drafted > 20);
            }
            seen_release(&seen);
        }
    tern_session_close(s);
    tern_engine_close(e);
}

// ------------------------------------------------------------------------------------------------------------ refusals

static void open_refused(const struct tern_engine_options *o, const char *word) {
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    enum tern_status status = tern_engine_open(&e, o, &err);
    if (status == TERN_OK) fail_msg("opened, where '%s' is wrong", word);
    if (!strstr(err.message, word)) fail_msg("'%s' does not speak of '%s'", err.message, word);
}

static void test_refusals(void **state) {
    (void)state;
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    o.draft_path = DRAFTER; // of another model
    open_refused(&o, "vocab");
    o = fixture_options(PICO_MODEL);
    o.draft_path = TEST_MODELS "/no-such-drafter.gguf";
    open_refused(&o, "no-such-drafter.gguf");
    o.draft_path = SCRIPT_MODEL; // a whole model, of another vocabulary
    open_refused(&o, "vocabulary");
    o.draft_path = NULL;
    o.draft = TERN_DRAFT_TREE;
    open_refused(&o, "draft model");
    o.draft_path = DRAFTER;
    o.draft_max = TERN_DRAFT_MAX + 1;
    open_refused(&o, "63");
    o.draft_max = 16;
    o.window = 16;
    open_refused(&o, "window");
    // Requests.
    o = fixture_options(target);
    o.draft_path = drafter;
    o.draft = TERN_DRAFT_TREE;
    struct tern_engine *e = fixture_engine(&o);
    struct tern_session *s = fixture_session(e);
    struct tern_err err;
    struct tern_request_options r = request_make(0, &few_modes[0], 8);
    r.draft = TERN_DRAFT_AUTO; // nothing was measured
    refused_run(s, &r, TERN_INVALID_ARGUMENT, &err);
    r.draft = TERN_DRAFT_TREE;
    r.draft_max = 64;
    refused_run(s, &r, TERN_INVALID_ARGUMENT, &err);
    tern_session_close(s);
    tern_engine_close(e);
    // Without a draft model: auto is plain decoding, and says why (case D11); a tree is refused.
    o = fixture_options(target);
    o.draft = TERN_DRAFT_AUTO;
    e = fixture_engine(&o);
    s = fixture_session(e);
    struct seen seen;
    r.draft_max = 0;
    refused_run(s, &r, TERN_INVALID_ARGUMENT, &err);
    r.draft = TERN_DRAFT_AUTO;
    seen_run(&seen, s, &r);
    struct tern_model_info info;
    tern_engine_info(e, &info);
    assert_non_null(strstr(info.draft, "no draft model"));
    seen_release(&seen);
    tern_session_close(s);
    tern_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_one_thread), cmocka_unit_test(test_greedy_two_threads),
        cmocka_unit_test(test_choices),           cmocka_unit_test(test_ends),
        cmocka_unit_test(test_sessions),          cmocka_unit_test(test_two_turns),
        cmocka_unit_test(test_whole_model),       cmocka_unit_test(test_scripts),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("draft modes", tests, prompts_setup, prompts_teardown);
}
