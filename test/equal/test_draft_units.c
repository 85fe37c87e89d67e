// Speculation on the npu unit through the engine: greedy as plain, chain and tree gives the same tokens under the rule
// sets whose sums do not depend on where a key lies and on the runtimes that are here, and pays (mean accepted tokens a
// round). Engines' own rule sets (argument `all`) are counted: their tokens need not be equal.
#define _GNU_SOURCE 1
#include "../common/prompt_file.h"
#include "../unit/engine/engine_fixture.h"
#include "unit/npu/pack_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAFTER TEST_MODELS "/pico-dspark.gguf"
#define TOKENS 16
#define PROMPTS_MAX 5

static int n_prompts = 2;
static struct prompt_file file;

static const struct {
    const char *unit;
    bool exact, runtime;
} units[] = {{"npu:coreai-linux", true, false}, {"npu:fp32", true, false},    {"npu:ort", true, true},
             {"npu:openvino", true, true},      {"npu:ane-m1", false, false}, {"npu:ane-m5", false, false}};
static int n_units = 4;

static void answer(struct tern_session *s, int prompt, enum tern_draft draft, struct seen *out) {
    struct tern_request_options o;
    struct tern_err err;
    tern_request_options_default(&o);
    o.messages_json = (struct tern_str){file.lines[prompt].messages.data, file.lines[prompt].messages.len};
    o.n_max = TOKENS;
    o.temperature = 0;
    o.draft = draft;
    fixture_must(tern_session_truncate(s, 0, &err), &err);
    seen_run(out, s, &o);
}

static void unit_check(const char *unit, bool exact) {
    static const enum tern_draft drafts[] = {TERN_DRAFT_CHAIN, TERN_DRAFT_TREE};
    static const char *const names[] = {"chain", "tree"};
    struct tern_engine_options eo = fixture_options(PICO_MODEL);
    eo.unit = unit;
    eo.draft_path = DRAFTER;
    eo.draft = TERN_DRAFT_TREE;
    eo.window = 64;
    eo.n_threads = 2;
    eo.n_ctx = 512;
    if (strcmp(unit, "npu:fp32") == 0) eo.kv_type = TERN_KV_F32; // or the cache rounds what the window does not
    struct tern_engine *e = fixture_engine(&eo);
    struct tern_session *s = fixture_session(e);
    static struct seen plain[PROMPTS_MAX];
    for (int p = 0; p < n_prompts; p++) answer(s, p, TERN_DRAFT_OFF, &plain[p]);
    for (int d = 0; d < 2; d++) {
        int64_t tokens = 0, rounds = 0;
        int n_equal = 0;
        for (int p = 0; p < n_prompts; p++) {
            const struct seen *want = &plain[p];
            struct seen got;
            answer(s, p, drafts[d], &got);
            bool same = want->n_ids == got.n_ids && memcmp(want->ids, got.ids, want->n_ids * sizeof *want->ids) == 0;
            if (exact && !same) fail_msg("%s, prompt %d, %s: other tokens than plain", unit, p, names[d]);
            n_equal += same;
            tokens += got.usage.n_round_tokens;
            rounds += got.usage.n_rounds;
            seen_release(&got);
        }
        double mean = rounds > 0 ? (double)tokens / (double)rounds : 0;
        print_message("%s, %s: %d of %d answers equal to plain, %.2f tokens a round\n", unit, names[d], n_equal,
                      n_prompts, mean);
        assert_true(mean > 1.5);
    }
    for (int p = 0; p < n_prompts; p++) seen_release(&plain[p]);
    tern_session_close(s);
    tern_engine_close(e);
}

// A runtime that is not here is skipped, which with CI set is a failure. Sanitizers and emulators do not run them.
static bool runtime_is_here(const char *name) {
    struct unit *u = NULL;
    struct tern_err err;
    if (env_get("TERN_TEST_SHORT")) return false;
    enum tern_status status = unit_open(&u, name, &(struct unit_options){.n_threads = 1}, &err);
    if (status == TERN_OK) {
        unit_close(u);
        return true;
    }
    if (status != TERN_NOT_FOUND || env_get("CI")) fail_msg("%s: %s", name, err.message);
    print_message("skipped: %s\n", err.message);
    return false;
}

static void test_units(void **state) {
    (void)state;
    for (int i = 0; i < n_units; i++)
        if (!units[i].runtime || runtime_is_here(units[i].unit)) unit_check(units[i].unit, units[i].exact);
}

// The window that a set's measurements chose is the engine's, unless one is asked for; its buckets bound the context.
static void test_window(void **state) {
    (void)state;
    char dir[256], command[300];
    struct npu_choice choice;
    struct tern_model_info info;
    struct tern_err err;
    struct model *m;
    bool was_there;
    struct tern_engine_options eo = fixture_options(SCRIPT_MODEL);
    snprintf(dir, sizeof dir, "/tmp/tern-window-XXXXXX");
    assert_non_null(mkdtemp(dir));
    setenv("TERN_NPU_CTX", "64", 1);
    fixture_must(model_open(&m, SCRIPT_MODEL, &err), &err);
    struct unit_npu_compile_options co = {.backend = "coreai-linux", .dir = dir, .n_threads = 1};
    fixture_must(unit_npu_compile(m, &co, &was_there, &err), &err);
    setenv("TERN_NPU_SET", dir, 1);
    fixture_must(npu_choice_load(&choice, m, "coreai-linux", dir, &err), &err);
    model_close(m);
    for (int asked = 0; asked <= 16; asked += 16) {
        eo.unit = "npu";
        eo.window = asked;
        eo.n_ctx = 0;
        eo.pack_cache = true;
        struct tern_engine *e = fixture_engine(&eo);
        tern_engine_info(e, &info);
        assert_int_equal(info.window, asked ? asked : choice.window);
        assert_int_equal(info.n_ctx, 64);
        tern_engine_close(e);
    }
    unsetenv("TERN_NPU_SET");
    setenv("TERN_NPU_CTX", "512", 1);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv) {
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    if (env_get("TERN_TEST_SHORT")) n_prompts = 1;
    if (all) n_units = ARRAY_LEN(units), n_prompts = PROMPTS_MAX;
    setenv("TERN_NPU_CTX", "512", 1);
    prompt_file_read(&file, TEST_DATA "/pico/prompts.jsonl", 3, 20, PROMPTS_MAX);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_units), cmocka_unit_test(test_window)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    prompt_file_release(&file);
    return rc;
}
