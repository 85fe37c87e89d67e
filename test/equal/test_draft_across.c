// A drafter on another unit than the model's: the model's features cross through host memory, the drafter packs for
// itself what it would borrow on the same unit, and the text is that of plain decoding on the model's unit, in every
// mode, behind a fork and behind a saved state. The drafts stay as good as on the model's own unit, which a lost, stale
// or misplaced row of features would show; so do those of a plan of two units, which both write rows. The
// null unit computes nothing, and its drafts are refused one by one.
#define _GNU_SOURCE 1
#include "../common/prompt_file.h"
#include "../common/tiny_drafter_folder.h"
#include "../unit/engine/engine_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#define DRAFTER TEST_MODELS "/pico-dspark.gguf"
#define PROMPT_SHORT "[{\"role\": \"user\", \"content\": \"s20\"}]"
#define PROMPTS 1
#define TOKENS 16
#define NEAR 0.8 // of the accepted tokens a round on the model's own unit

static const struct {
    const char *unit, *draft_unit;
    enum { BY_DRAFTER, BY_MODEL } by;
    bool computes;
    const char *then_unit; // answers run there (plan handoff), prompts on `unit`, whose features the drafter reads too
} pairs[] = {
    {"cpu", NULL, BY_DRAFTER, true, NULL},
    {"cpu", "npu:fp32", BY_DRAFTER, true, NULL},
    {"cpu", "npu:coreai-linux", BY_DRAFTER, true, NULL},
    {"npu:fp32", "cpu", BY_DRAFTER, true, NULL},
    {"cpu", "null", BY_DRAFTER, false, NULL},
    {"npu:fp32", "cpu", BY_MODEL, true, NULL},
    {"npu:fp32", NULL, BY_DRAFTER, true, "cpu"},
    {"cpu", "npu:fp32", BY_DRAFTER, true, "npu:fp32"},
};
static const struct {
    const char *name;
    enum tern_draft draft;
    int max;
} modes[] = {{"chain", TERN_DRAFT_CHAIN, 7}, {"tree", TERN_DRAFT_TREE, 16}, {"auto", TERN_DRAFT_AUTO, 0}};

static struct prompt_file file;
static bool is_short;
static const char *target = PICO_MODEL, *drafter = DRAFTER;
static char tiny_path[256], state_path[256];

static struct tern_request_options request_make(int prompt, enum tern_draft draft, int max, int n_max) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.messages_json = (struct tern_str){file.lines[prompt].messages.data, file.lines[prompt].messages.len};
    o.draft = draft;
    o.draft_max = max;
    o.n_max = n_max;
    o.ignore_eos = true;
    return o;
}

static void seen_same(const struct seen *want, size_t from, const struct seen *got, const char *what) {
    for (size_t i = 0; i < got->n_ids; i++)
        if (got->ids[i] != want->ids[from + i])
            fail_msg("%s: token %zu is %d, plain has %d", what, from + i, got->ids[i], want->ids[from + i]);
    assert_int_equal(got->n_ids, TOKENS);
}

// The answer's second half, in a fork of its first and behind its saved state: as many rounds as without the pause.
static void pauses_check(struct tern_session *s, const struct seen *want, const char *what) {
    int64_t rounds = 0;
    for (int way = 0; way < 3; way++) {
        struct tern_session *fork = NULL;
        struct tern_err err = {0};
        struct seen got;
        fixture_must(tern_session_truncate(s, 0, &err), &err);
        struct tern_request_options o = request_make(0, TERN_DRAFT_TREE, 16, TOKENS);
        seen_run(&got, s, &o);
        seen_same(want, 0, &got, what);
        seen_release(&got);
        if (way == 1) fixture_must(tern_session_fork(&fork, s, &err), &err);
        if (way == 2) {
            fixture_must(tern_session_save(s, state_path, &err), &err);
            fixture_must(tern_session_truncate(s, 0, &err), &err);
            fixture_must(tern_session_load(s, state_path, &err), &err);
        }
        o.messages_json = (struct tern_str){NULL, 0};
        o.append = true;
        seen_run(&got, fork ? fork : s, &o);
        seen_same(want, TOKENS, &got, what);
        if (way == 0) rounds = got.usage.n_rounds;
        assert_int_equal(got.usage.n_rounds, rounds);
        seen_release(&got);
        tern_session_close(fork);
    }
}

// Accepted tokens a round, chain and tree.
static double pair_run(size_t i) {
    struct tern_engine_options eo = fixture_options(target);
    struct tern_err err = {0};
    struct tern_model_info info;
    int64_t rounds = 0, accepted = 0;
    eo.unit = pairs[i].unit;
    eo.draft_unit = pairs[i].draft_unit;
    eo.plan = pairs[i].then_unit ? "handoff" : NULL;
    eo.then_unit = pairs[i].then_unit;
    eo.draft_path = pairs[i].by == BY_MODEL ? target : drafter;
    eo.draft = TERN_DRAFT_AUTO;
    eo.n_threads = 2;
    eo.n_sessions = 2;
    eo.n_ctx = 256;
    eo.window = 64;
    if (eo.unit[0] == 'n' || eo.then_unit)
        eo.kv_type = TERN_KV_F32; // what its plain steps and its trees need to have the same bits
    struct tern_engine *e = fixture_engine(&eo);
    struct tern_session *s = fixture_session(e);
    tern_engine_info(e, &info);
    if (pairs[i].draft_unit && !strstr(info.draft, pairs[i].draft_unit)) fail_msg("'%s' tells no unit", info.draft);
    for (int p = 0; p < file.n; p++) {
        struct seen want, got;
        struct tern_request_options o = request_make(p, TERN_DRAFT_OFF, 0, 2 * TOKENS);
        fixture_must(tern_session_truncate(s, 0, &err), &err);
        seen_run(&want, s, &o);
        for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
            char what[96];
            snprintf(what, sizeof what, "%s with drafts on %s, prompt %d, %s", pairs[i].unit,
                     pairs[i].draft_unit ? pairs[i].draft_unit : "the same", p, modes[m].name);
            o = request_make(p, modes[m].draft, modes[m].max, TOKENS);
            fixture_must(tern_session_truncate(s, 0, &err), &err);
            seen_run(&got, s, &o);
            seen_same(&want, 0, &got, what);
            if (modes[m].draft != TERN_DRAFT_AUTO) {
                rounds += got.usage.n_rounds;
                accepted += got.usage.n_accepted;
            }
            seen_release(&got);
        }
        if (p == 0) pauses_check(s, &want, pairs[i].draft_unit ? pairs[i].draft_unit : "the same");
        seen_release(&want);
    }
    tern_session_close(s);
    tern_engine_close(e);
    assert_true(rounds > 0);
    return (double)accepted / (double)rounds;
}

static void test_pairs(void **state) {
    (void)state;
    double own = 0;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        double mean = pair_run(i);
        print_message("%s%s%s, drafts on %s%s: %.2f accepted a round\n", pairs[i].unit,
                      pairs[i].then_unit ? ", then " : "", pairs[i].then_unit ? pairs[i].then_unit : "",
                      pairs[i].draft_unit ? pairs[i].draft_unit : "the same",
                      pairs[i].by == BY_MODEL ? " by the model itself" : "", mean);
        if (i == 0) own = mean;
        if (is_short) continue; // the weights are random
        if (pairs[i].computes)
            assert_true(mean > NEAR * own);
        else
            assert_true(mean < 0.5 * own);
    }
}

static void open_refused(const struct tern_engine_options *o, const char *word) {
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    if (tern_engine_open(&e, o, &err) == TERN_OK) fail_msg("opened, where '%s' is wrong", word);
    if (!strstr(err.message, word)) fail_msg("'%s' does not speak of '%s'", err.message, word);
}

static void test_refusals(void **state) {
    (void)state;
    struct tern_engine_options o = fixture_options(target);
    o.draft_unit = "npu:fp32";
    open_refused(&o, "no draft model");
    o.draft_path = drafter;
    o.draft_unit = "tpu";
    open_refused(&o, "tpu");
    o.draft_unit = "npu:a-rule-set-whose-name-is-longer-than-any-there-is";
    open_refused(&o, "characters");
    o.draft_unit = "npu:fp32";
    o.n_ctx = 512;
    open_refused(&o, "unit npu:fp32 holds 256");
    o.n_ctx = 256;
    o.memory_max = 1 << 20;
    open_refused(&o, "drafter");
}

static int setup(void **state) {
    fixture_setup(state);
    is_short = env_get("TERN_TEST_SHORT") != NULL;
    setenv("TERN_NPU_CTX", "256", 1); // no programs for more positions
    fixture_temp_path(state_path, "across");
    fixture_temp_path(tiny_path, "across-drafter");
    prompt_file_read(&file, TEST_DATA "/pico/prompts.jsonl", 0, 1, PROMPTS);
    if (!is_short) return 0;
    target = SCRIPT_MODEL;
    drafter = tiny_path;
    tiny_drafter_write(target, tiny_path, false);
    for (int i = 0; i < file.n; i++) file.lines[i] = (struct prompt_line){str_from(PROMPT_SHORT), {0}};
    return 0;
}

static int teardown(void **state) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", tiny_path, state_path);
    prompt_file_release(&file);
    return system(command) == 0 ? fixture_teardown(state) : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests_name("draft across", tests, setup, teardown);
}
