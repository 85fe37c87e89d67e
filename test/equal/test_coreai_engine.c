// The npu unit on Apple's runtime through the whole engine: pico, its programs in an asset, a prompt in pieces and an
// answer that goes on from one bucket into the next; token for token what the evaluator computes under coreai-linux.
// Without the runtime it is skipped, which with CI set is a failure.
#define _GNU_SOURCE 1
#include "../unit/unit/coreai_asset_test.h"
#include "../unit/engine/engine_fixture.h"
#include "unit/npu/npu_pack.h"
#include "unit/npu/npu_unit.h"

#define WINDOW 16 // one block of 32 rows
#define BUCKETS "32,64"
#define PROMPT                                                                                                    \
    "Once upon a time there was a fox who lived in a small village at the edge of the old forest, and every day " \
    "the fox came out to"
#define LISTS 4
#define N_TOKENS 4 // the prompt has 31, so these lie on both sides of the first bucket

struct lists {
    struct npu_list *list[LISTS];
    struct prog *prog[LISTS];
    int n;
};

// What greedy decoding asks for: a prompt without a head, and rows with argmax.
static void lists_make(struct lists *l, const struct model *m, struct npu_store *s, enum prog_class numerics) {
    static const uint32_t outputs[] = {0, PROG_OUT_ARGMAX};
    static const int buckets[] = {32, 64};
    static const struct npu_scales none;
    l->n = 0;
    for (int b = 0; b < 2; b++)
        for (int g = 0; g < 2; g++, l->n++) {
            struct prog_spec spec = {.kind = PROG_WHOLE,
                                     .numerics = numerics,
                                     .window = WINDOW,
                                     .n_out_max = outputs[g] ? -1 : 0,
                                     .outputs = outputs[g]};
            assert_ok(prog_build(&l->prog[l->n], m, &spec, &test_err));
            assert_ok(npu_program_list(&l->list[l->n], l->prog[l->n], s, &none, buckets[b], 1, &test_err));
        }
}

static void asset_make(struct asset_folder *f, enum npu_format format, enum prog_class numerics) {
    static const struct npu_scales none;
    struct model *m;
    struct npu_store *s;
    struct lists l;
    assert_ok(model_open(&m, PICO_MODEL, &test_err));
    assert_ok(npu_store_create(&s, m, format, &test_err));
    assert_ok(npu_constants_make(s, &none, &test_err));
    lists_make(&l, m, s, numerics);
    template_make(f, (const struct npu_list *const *)l.list, l.n);
    assert_ok(coreai_fill(f->tpl, f->asset, (const struct npu_list *const *)l.list, l.n, m->digest, &test_err));
    for (int i = 0; i < l.n; i++) {
        npu_list_free(l.list[i]);
        prog_free(l.prog[i]);
    }
    npu_store_free(s);
    model_close(m);
}

static void answer(struct seen *out, const char *unit, enum tern_class numerics, int n_tokens) {
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    struct tern_request_options r;
    o.unit = unit;
    o.numerics = numerics;
    o.window = WINDOW;
    o.n_ctx = 0; // what the unit holds
    o.draft = TERN_DRAFT_OFF;
    struct tern_engine *e = fixture_engine(&o);
    struct tern_session *s = fixture_session(e);
    struct tern_model_info info;
    tern_engine_info(e, &info);
    assert_int_equal(info.n_ctx, 64);
    tern_request_options_default(&r);
    r.prompt = (struct tern_str){PROMPT, strlen(PROMPT)};
    r.n_max = n_tokens;
    seen_run(out, s, &r);
    tern_session_close(s);
    tern_engine_close(e);
}

static void check_class(enum npu_format format, enum prog_class prog, enum tern_class numerics, int n_tokens) {
    struct asset_folder f;
    struct seen got, want;
    if (!asset_folder_init(&f)) return;
    setenv("TERN_NPU_CTX", BUCKETS, 1);
    setenv("TERN_COREAI_ASSET", f.asset, 1);
    uint64_t start = clock_ns();
    asset_make(&f, format, prog);
    uint64_t made = clock_ns();
    answer(&got, "npu:coreai", numerics, n_tokens);
    uint64_t ran = clock_ns();
    answer(&want, "npu:coreai-linux", numerics, n_tokens);
    print_message("%zu tokens behind %lld: asset %.1f s, runtime %.1f s, evaluator %.1f s\n", got.n_ids,
                  (long long)got.usage.n_prompt, (double)(made - start) * 1e-9, (double)(ran - made) * 1e-9,
                  (double)(clock_ns() - ran) * 1e-9);
    assert_int_equal(got.n_ids, n_tokens);
    assert_int_equal(got.usage.n_prompt, 31);
    assert_int_equal(got.n_ids, want.n_ids);
    assert_memory_equal(got.ids, want.ids, got.n_ids * sizeof *got.ids);
    seen_release(&got);
    seen_release(&want);
    unsetenv("TERN_NPU_CTX");
    unsetenv("TERN_COREAI_ASSET");
    asset_folder_remove(&f);
}

static void test_int8(void **state) {
    (void)state;
    check_class(NPU_FORMAT_I8, PROG_CLASS_INT8, TERN_CLASS_INT8, N_TOKENS);
}
static void test_fp32(void **state) { // half a minute, so only when asked for: the runtime's arithmetic is the same
    (void)state;
    check_class(NPU_FORMAT_F16, PROG_CLASS_FP32, TERN_CLASS_FP32, 4 * N_TOKENS);
}

int main(int argc, char **argv) {
    const struct CMUnitTest quick[] = {cmocka_unit_test(test_int8)};
    const struct CMUnitTest all[] = {cmocka_unit_test(test_int8), cmocka_unit_test(test_fp32)};
    bool is_all = argc > 1 && strcmp(argv[1], "all") == 0;
    return is_all ? cmocka_run_group_tests(all, NULL, NULL) : cmocka_run_group_tests(quick, NULL, NULL);
}
