// Tokens per run of the target that pico's drafter gives, through the public interface, on 20 of the 100 prompts that
// its acceptance was published for (doc/speculation.md has all of them). The reference ran in float32 on a text of
// its own; this is the int8 class on its own text, so the tree is held to the chain and both to what was measured.
#include "../common/prompt_file.h"
#include "../unit/engine/engine_fixture.h"

#define TOKENS 160
#define SHORT_PROMPTS 5 // of each fifth, where $TERN_TEST_SHORT is set: only that something is accepted

static const struct {
    const char *name;
    enum tern_draft draft;
    int max;
    double want; // tokens a step
} modes[] = {
    {"chain of 9", TERN_DRAFT_CHAIN, 9, 3.25},
    {"tree of 8", TERN_DRAFT_TREE, 8, 3.50},
    {"tree of 46", TERN_DRAFT_TREE, 46, 4.67},
};
#define ERROR_MAX 0.05
#define TREE_OVER_CHAIN_MIN 1.30

static void test_acceptance(void **state) {
    (void)state;
    struct prompt_file file;
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    bool is_short = env_get("TERN_TEST_SHORT") != NULL;
    int64_t tokens[ARRAY_LEN(modes)] = {0}, steps[ARRAY_LEN(modes)] = {0};
    double mean[ARRAY_LEN(modes)];
    o.draft_path = TEST_MODELS "/pico-dspark.gguf";
    o.draft = TERN_DRAFT_TREE;
    o.n_threads = 2;
    struct tern_engine *e = fixture_engine(&o);
    struct tern_session *s = fixture_session(e);
    prompt_file_read(&file, TEST_DATA "/pico/prompts.jsonl", 4, is_short ? 20 : 5, is_short ? SHORT_PROMPTS : 20);
    for (int i = 0; i < file.n; i++)
        for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
            struct tern_request_options r;
            struct tern_err err = {0};
            struct seen seen;
            tern_request_options_default(&r);
            r.messages_json = (struct tern_str){file.lines[i].messages.data, file.lines[i].messages.len};
            r.tools_json = (struct tern_str){file.lines[i].tools.data, file.lines[i].tools.len};
            r.n_max = TOKENS;
            r.draft = modes[m].draft;
            r.draft_max = modes[m].max;
            fixture_must(tern_session_truncate(s, 0, &err), &err);
            seen_run(&seen, s, &r);
            tokens[m] += seen.usage.n_answer - 1;
            steps[m] += seen.usage.n_steps;
            assert_int_equal(tokens[m], tokens[0]);
            seen_release(&seen);
        }
    for (size_t m = 0; m < ARRAY_LEN(modes); m++) {
        mean[m] = (double)tokens[m] / (double)steps[m];
        print_message("%s: %.3f tokens a step (%.2f)\n", modes[m].name, mean[m], modes[m].want);
        if (is_short)
            assert_true(mean[m] > 2);
        else
            assert_true(mean[m] > modes[m].want * (1 - ERROR_MAX) && mean[m] < modes[m].want * (1 + ERROR_MAX));
    }
    if (!is_short) assert_true(mean[2] >= TREE_OVER_CHAIN_MIN * mean[0]);
    prompt_file_release(&file);
    tern_session_close(s);
    tern_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_acceptance)};
    return cmocka_run_group_tests_name("pico's acceptance", tests, NULL, NULL);
}
