// Calibration end to end: its prompts are not those that judge; a rescaled pico (rescaled_model.h) falls under an
// engine's arithmetic without calibration and recovers with it.
//
//   build/test/unit/test_calibration rescale FILE    writes the variant, for tables made by hand
#define _GNU_SOURCE 1 // setenv
#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "app/study/study_fidelity.h"
#include "../../common/rescaled_model.h"

#define SEED 7
#define CALIBRATION TEST_DATA "/pico/calibration.jsonl"
#define PROMPTS TEST_DATA "/pico/prompts.jsonl"

static char folder[128], model_file[160], scales_file[160];
static struct tern_engine *text;
static struct tern_engine_options options;

static int setup(void **state) {
    struct tern_err err = {0};
    uint64_t salt;
    (void)state;
    os_random(&salt, sizeof salt);
    (void)snprintf(folder, sizeof folder, "/tmp/tern-test-calibration-%d-%08llx", os_pid(), (unsigned long long)salt);
    (void)snprintf(model_file, sizeof model_file, "%s/rescaled.gguf", folder);
    (void)snprintf(scales_file, sizeof scales_file, "%s/scales.txt", folder);
    tern_engine_options_default(&options);
    options.model_path = TEST_MODELS "/pico.gguf";
    options.n_threads = 2;
    struct tern_engine_options o = options;
    o.unit = "null";
    if (os_mkdirs(folder, &err) != TERN_OK || tern_engine_open(&text, &o, &err) != TERN_OK) return -1;
    return rescaled_model_write(TEST_MODELS "/pico.gguf", model_file, SEED, &err) == TERN_OK ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    tern_engine_close(text);
    (void)os_remove(model_file, NULL);
    (void)os_remove(scales_file, NULL);
    return os_remove_dir(folder, NULL) == TERN_OK ? 0 : -1;
}

static void prompts_read(struct prompt_set *s, const char *path) {
    struct tern_err err = {0};
    if (prompt_set_read(s, path, &err) != TERN_OK) fail_msg("%s", err.message);
}

static void test_apart(void **state) {
    (void)state;
    struct prompt_set a, b;
    int n_tools = 0, n_same = 0;
    prompts_read(&a, CALIBRATION);
    prompts_read(&b, PROMPTS);
    assert_int_equal(a.n_categories, b.n_categories); // every kind of prompt is in both
    for (int i = 0; i < a.n; i++) {
        n_tools += a.items[i].tools.len > 0;
        for (int k = 0; k < b.n; k++) {
            if (str_eq(a.items[i].messages, b.items[k].messages)) fail_msg("calibration prompt %d judges too", i);
            n_same += a.items[i].tools.len > 0 && str_eq(a.items[i].tools, b.items[k].tools);
        }
    }
    assert_true(n_tools >= 5);
    assert_int_equal(n_same, 0);
    prompt_set_release(&a);
    prompt_set_release(&b);
}

static struct fidelity_verdict compare(struct fidelity *f, const struct prompt_set *set, const char *unit,
                                       const char *class_name, const char *scales, const char *model) {
    struct side_spec spec;
    struct side b;
    struct tern_err err = {0};
    char name[512];
    (void)snprintf(name, sizeof name, "%s%s%s/%s,model=%s", unit, scales ? "@" : "", scales ? scales : "", class_name,
                   model);
    if (side_parse(&spec, name, &err) != TERN_OK || side_open(&b, &spec, &options, f->n_ctx, &err) != TERN_OK ||
        fidelity_compare(f, &b, &err) != TERN_OK)
        fail_msg("%s: %s", name, err.message);
    side_close(&b); // writes what was observed
    struct fidelity_bounds bounds = FIDELITY_BOUNDS;
    return fidelity_judge(f, set, &bounds);
}

static void reference_open(struct fidelity *f, struct prompt_set *set, const char *prompts, int answer_max) {
    struct side_spec spec;
    struct tern_err err = {0};
    prompts_read(set, prompts);
    prompt_set_thin(set, 1);
    if (env_get("TERN_TEST_SHORT")) set->n = 2;
    assert_int_equal(side_parse(&spec, "cpu/fp32,kv=f32", &err), TERN_OK);
    if (fidelity_open(f, &spec, &options, text, set, 512, answer_max, &err) != TERN_OK) fail_msg("%s", err.message);
}

static void test_rescaled(void **state) {
    (void)state;
    struct fidelity f;
    struct prompt_set set;
    setenv("TERN_NPU_CTX", "512", 1);
    reference_open(&f, &set, CALIBRATION, 8);
    setenv("TERN_NPU_OBSERVE", scales_file, 1);
    (void)compare(&f, &set, "npu:fp32", "fp32", NULL, model_file);
    unsetenv("TERN_NPU_OBSERVE");
    fidelity_close(&f);
    prompt_set_release(&set);

    reference_open(&f, &set, PROMPTS, 16);
    struct fidelity_verdict kept = compare(&f, &set, "cpu", "fp32,kv=f32", NULL, model_file);
    struct fidelity_verdict raw = compare(&f, &set, "npu:ane-m1", "int8", NULL, model_file);
    struct fidelity_verdict scaled = compare(&f, &set, "npu:ane-m1", "int8", scales_file, model_file);
    print_message(
        "top-1 (KL) of %d tokens: rescaled %.2f %% (%.2g), ane-m1 %.2f %% (%.3g), calibrated %.2f %% (%.3g)\n",
        kept.all.n, 100 * kept.all.top1.mid, kept.all.kl.mid, 100 * raw.all.top1.mid, raw.all.kl.mid,
        100 * scaled.all.top1.mid, scaled.all.kl.mid);
    assert_true(kept.adopt && kept.all.kl.mid < 1e-6); // the function is kept: sums in another order, no more
    assert_false(raw.adopt);
    assert_true(raw.all.top1.mid < 0.5);
    if (!(scaled.all.top1.mid >= 0.98 && scaled.all.n_bad == 0)) fail_msg("calibrated: %s", scaled.why);
    fidelity_close(&f);
    prompt_set_release(&set);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_apart), cmocka_unit_test(test_rescaled)};
    struct tern_err err = {0};
    if (argc == 3 && strcmp(argv[1], "rescale") == 0) {
        if (rescaled_model_write(TEST_MODELS "/pico.gguf", argv[2], SEED, &err) == TERN_OK) return 0;
        print_error("%s\n", err.message);
        return 1;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
