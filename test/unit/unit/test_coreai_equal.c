// The evaluator's rule set coreai-linux against Apple's runtime on Linux: equal bits of all outputs and states, call
// after call. Prints "coreai_equal: N passed, N failed"; a case is one call of one program. Without the runtime it is
// skipped, which with CI set is a failure.
#define _GNU_SOURCE 1
#include "coreai_asset_test.h"
#include "../../common/tiny_drafter.h"
#include "prog/prog.h"
#include "unit/npu/npu_eval.h"
#include "unit/npu/oplist_lower.h"

#define LISTS_MAX 32
#define DIGEST "00000000000000000000000000000000000000000000000000000000000000ab"

static int n_passed, n_failed;

// Programs of one model, lowered.
struct lists {
    const struct npu_list *list[LISTS_MAX];
    struct prog *prog[LISTS_MAX];
    int n;
};

static void add(struct lists *s, struct npu_store *store, const struct prog_spec *spec,
                const struct npu_lower_options *o) {
    struct npu_list *l = NULL;
    struct prog *p = NULL;
    assert_true(s->n < LISTS_MAX);
    assert_ok(prog_build(&p, npu_store_model(store), spec, &test_err));
    assert_ok(npu_lower(&l, p, store, o, &test_err));
    s->prog[s->n] = p;
    s->list[s->n++] = l;
}

static void lists_free(struct lists *s) {
    for (int i = 0; i < s->n; i++) {
        npu_list_free((struct npu_list *)(uintptr_t)s->list[i]);
        prog_free(s->prog[i]);
    }
}

static struct prog_spec whole(int window, uint32_t outputs, int n_out) {
    return (struct prog_spec){
        .kind = PROG_WHOLE, .numerics = PROG_CLASS_FP32, .window = window, .n_out_max = n_out, .outputs = outputs};
}

// The kinds of a whole model: fill, last, verify (chains and trees are data), batch, chunks of attention, stateless.
static void add_kinds(struct lists *s, struct npu_store *store, int bucket, bool all) {
    struct prog_spec fill = whole(64, 0, 0), last = whole(64, PROG_OUT_ARGMAX, 32);
    struct prog_spec verify = whole(64, PROG_OUT_ARGMAX | PROG_OUT_LOGITS, -1), batch = whole(32, PROG_OUT_ARGMAX, -1);
    add(s, store, &verify,
        &(struct npu_lower_options){
            .name = "verify", .window = 64, .bucket = bucket, .n_chunks = 1, .n_frames = 32, .stateful = true});
    if (!all) return;
    add(s, store, &fill,
        &(struct npu_lower_options){
            .name = "fill", .window = 64, .bucket = bucket, .n_chunks = 1, .n_frames = 32, .stateful = true});
    add(s, store, &last,
        &(struct npu_lower_options){.name = "last",
                                    .window = 64,
                                    .bucket = bucket,
                                    .n_chunks = 1,
                                    .n_frames = 32,
                                    .n_pick = 32,
                                    .stateful = true});
    add(s, store, &batch,
        &(struct npu_lower_options){
            .name = "batch", .window = 32, .bucket = 2 * bucket, .n_chunks = 1, .n_frames = 64, .stateful = true});
    add(s, store, &verify,
        &(struct npu_lower_options){
            .name = "chunks", .window = 64, .bucket = 2 * bucket, .n_chunks = 8, .n_frames = 32, .stateful = true});
    add(s, store, &verify,
        &(struct npu_lower_options){
            .name = "stateless", .window = 64, .bucket = bucket, .n_chunks = 1, .n_frames = 32});
    add(s, store, &verify,
        &(struct npu_lower_options){
            .name = "plain", .window = 64, .bucket = bucket, .n_chunks = 1, .n_frames = 32, .plain_norm = true});
}

// Parts of a model: a range of layers, segments and an attention core.
static void add_parts(struct lists *s, struct npu_store *store) {
    struct prog_spec layers = {.kind = PROG_LAYERS,
                               .numerics = PROG_CLASS_FP32,
                               .window = 64,
                               .outputs = PROG_OUT_ROWS,
                               .layer_begin = 1,
                               .layer_end = 4};
    struct prog_spec segment = {.kind = PROG_SEGMENT, .numerics = PROG_CLASS_FP32, .window = 64, .index = 0};
    struct prog_spec attn = {.kind = PROG_ATTN, .numerics = PROG_CLASS_FP32, .window = 64, .index = 0};
    add(s, store, &layers,
        &(struct npu_lower_options){.name = "layers", .window = 64, .bucket = 64, .n_chunks = 1, .n_frames = 32});
    add(s, store, &segment,
        &(struct npu_lower_options){.name = "segment", .window = 64, .bucket = 64, .n_chunks = 1, .n_frames = 32});
    add(s, store, &attn, &(struct npu_lower_options){.name = "attn", .window = 64, .bucket = 64, .n_chunks = 1});
}

// Inputs as the host gives them, at random: a tree's mask, one-hot columns that may be rejected rows, block rows that
// keep all but those written, base moves of 0, 32 and 64 through "sel".
static void one_hot(uint16_t *m, int rows, int cols, int row_max, uint64_t *seed) {
    memset(m, 0, (size_t)rows * (size_t)cols * 2);
    for (int c = 0; c < cols; c++) m[(int)(tiny_random(seed) % (uint64_t)row_max) * cols + c] = f32_to_f16(1);
}
static void inputs_fill(const struct npu_list *l, const struct npu_test_buffers *io, uint64_t *seed) {
    for (int i = 0; i < l->n_inputs; i++) {
        const struct npu_tensor *t = &l->tensors[l->inputs[i]];
        uint16_t *v = io->inputs[i];
        int64_t n = npu_tensor_len(t);
        int cols = t->shape[t->rank - 1], rows = (int)(n / cols), base = (int)(tiny_random(seed) % 3) * 32;
        switch (t->role) {
        case NPU_IN_TAP:
        case NPU_IN_PICK: one_hot(v, rows, cols, rows, seed); break;
        case NPU_IN_SEL:
            memset(v, 0, (size_t)n * 2);
            for (int c = 0; c < cols && c + base < rows; c++) v[(c + base) * cols + c] = f32_to_f16(1);
            break;
        case NPU_IN_PLACE: {
            int n_new = rows - 1,
                first = (int)(tiny_random(seed) % (uint64_t)MAX(1, l->bucket / NPU_BLOCK - n_new + 1));
            memset(v, 0, (size_t)n * 2);
            for (int c = 0; c < l->bucket / NPU_BLOCK; c++) v[c] = f32_to_f16(c < first || c >= first + n_new);
            for (int r = 0; r < n_new; r++) v[(r + 1) * cols + first + r] = f32_to_f16(1);
            break;
        }
        case NPU_IN_MASK:
            for (int64_t k = 0; k < n; k++) v[k] = f32_to_f16(tiny_random(seed) % 4 == 0 ? NPU_MASK_OFF : 0);
            break;
        case NPU_IN_COS:
        case NPU_IN_SIN:
            for (int64_t k = 0; k < n; k++) v[k] = f32_to_f16(tiny_random_float(seed));
            break;
        default:
            for (int64_t k = 0; k < n; k++) v[k] = f32_to_f16(2 * tiny_random_float(seed));
        }
    }
}

static void eval_load(struct npu_eval *e, int id, float *out, const uint16_t *half, int64_t n) {
    float *at = out ? out : npu_eval_at(e, id);
    for (int64_t i = 0; i < n; i++) at[i] = f16_to_f32(half[i]);
}

// Differences in bits; a NaN equals any NaN.
static int64_t bits_differ(const float *a, const uint16_t *b, int64_t n) {
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++) {
        float want = f16_to_f32(b[i]);
        bool both_nan = isnan(a[i]) && isnan(want);
        out += !both_nan && f32_bits(a[i]) != f32_bits(want);
    }
    return out;
}

// calls: one after the other, the states going on.
static void check_list(struct npu_backend *b, const struct npu_list *l, int calls, uint64_t seed) {
    struct npu_test_buffers io;
    struct npu_compiled *c;
    struct npu_binding *bd;
    struct npu_eval *e;
    struct npu_eval_options o = {.rules = npu_rules_find("coreai-linux")};
    assert_non_null(o.rules);
    npu_test_buffers_init(&io, l);
    struct npu_buffers given = {.inputs = io.inputs, .outputs = io.outputs, .old = io.old, .now = io.now};
    assert_ok(npu_coreai_backend.compile(b, &c, l, &test_err));
    assert_ok(npu_coreai_backend.bind(c, &bd, &given, &test_err));
    assert_ok(npu_eval_create(&e, l, &o, &test_err));
    for (int call = 0; call < calls; call++) {
        int64_t differ = 0, n_all = 0;
        const char *where = "";
        inputs_fill(l, &io, &seed);
        for (int i = 0; i < l->n_inputs; i++)
            eval_load(e, l->inputs[i], NULL, io.inputs[i], npu_tensor_len(&l->tensors[l->inputs[i]]));
        uint64_t t0 = clock_ns();
        assert_ok(npu_coreai_backend.run(bd, &test_err));
        uint64_t t1 = clock_ns();
        npu_eval_run(e);
        if (getenv("TEST_VERBOSE"))
            print_message("%s: runtime %.2f s, evaluator %.3f s\n", l->name, (double)(t1 - t0) * 1e-9,
                          (double)(clock_ns() - t1) * 1e-9);
        for (int i = 0; i < l->n_outputs; i++) {
            int64_t n = npu_tensor_len(&l->tensors[l->outputs[i]]);
            int64_t d = bits_differ(npu_eval_at(e, l->outputs[i]), io.outputs[i], n);
            if (d > 0 && differ == 0) where = l->tensors[l->outputs[i]].name;
            differ += d;
            n_all += n;
        }
        for (int i = 0; i < l->n_states; i++) {
            int64_t n = npu_tensor_len(&l->tensors[l->states[i].now]);
            int64_t d = bits_differ(npu_eval_state(e, i), io.now[i], n);
            if (d > 0 && differ == 0) where = l->states[i].name;
            differ += d;
            n_all += n;
            memcpy(io.old[i], io.now[i], (size_t)n * 2);
        }
        if (differ == 0)
            n_passed++;
        else
            n_failed++;
        if (differ > 0)
            print_message("%s, call %d: %lld of %lld values differ, first in %s\n", l->name, call, (long long)differ,
                          (long long)n_all, where);
    }
    npu_eval_free(e);
    npu_coreai_backend.unbind(bd);
    npu_coreai_backend.free(c);
    npu_test_buffers_release(&io);
}

static void check_lists(struct asset_folder *f, const struct lists *s, int calls, uint64_t seed) {
    struct npu_backend *b;
    template_make(f, s->list, s->n);
    assert_ok(coreai_fill(f->tpl, f->asset, s->list, s->n, DIGEST, &test_err));
    struct npu_backend_options o = {.asset = f->asset};
    assert_ok(npu_coreai_backend.open(&b, &o, &test_err));
    for (int i = 0; i < s->n; i++) check_list(b, s->list[i], calls, seed + (uint64_t)i);
    npu_coreai_backend.close(b);
}

static void add_drafter(struct lists *s, struct npu_store *store) {
    struct prog_spec inject = {.kind = PROG_INJECT, .numerics = PROG_CLASS_FP32, .window = 32};
    struct prog_spec draft = {.kind = PROG_DRAFT,
                              .numerics = PROG_CLASS_FP32,
                              .window = 8,
                              .n_out_max = -1,
                              .outputs = PROG_OUT_LOGITS | PROG_OUT_HIDDEN};
    add(s, store, &inject, &(struct npu_lower_options){.name = "inject", .window = 32, .bucket = 64, .n_chunks = 1});
    add(s, store, &draft, &(struct npu_lower_options){.name = "draft", .window = 32, .bucket = 64, .n_chunks = 1});
}

static void add_encoder(struct lists *s, struct npu_store *store) {
    struct prog_spec encoder = {
        .kind = PROG_ENCODER, .numerics = PROG_CLASS_FP32, .window = 64, .outputs = PROG_OUT_HIDDEN};
    add(s, store, &encoder, &(struct npu_lower_options){.name = "encoder", .window = 64, .bucket = 64, .n_chunks = 1});
}

static void finish(struct asset_folder *f, struct lists *s, struct npu_store *store, int calls, uint64_t seed) {
    check_lists(f, s, calls, seed);
    lists_free(s);
    npu_store_free(store);
}

static void test_equal_bits(void **state) {
    (void)state;
    struct asset_folder f;
    if (!asset_folder_init(&f)) return;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1), other = tiny_llama_shape(FORMAT_F32, 2);
    struct model *m = tiny_model_create(&shape), *llama = tiny_model_create(&other);
    struct model *drafter = tiny_drafter_create(m, 2, FORMAT_F32, 4);
    struct npu_store *store;
    struct lists s = {0};
    assert_ok(npu_store_create(&store, m, NPU_FORMAT_I8, &test_err));
    add_kinds(&s, store, 128, true);
    add_parts(&s, store);
    s.list[s.n++] = npu_every_op(store, "every", 3);
    finish(&f, &s, store, 3, 1000);
    s = (struct lists){0}; // rotation of pairs side by side, an output of its own, attention alone
    assert_ok(npu_store_create(&store, llama, NPU_FORMAT_I8, &test_err));
    add_kinds(&s, store, 64, false);
    finish(&f, &s, store, 2, 2000);
    s = (struct lists){0};
    assert_ok(npu_store_create(&store, drafter, NPU_FORMAT_I8, &test_err));
    add_drafter(&s, store);
    finish(&f, &s, store, 2, 3000);
    s = (struct lists){0};
    m->hyper.bidirectional = true;
    assert_ok(npu_store_create(&store, m, NPU_FORMAT_F16, &test_err)); // weights that are not quantised
    add_encoder(&s, store);
    finish(&f, &s, store, 2, 4000);
    tiny_drafter_free(drafter);
    tiny_model_free(llama);
    tiny_model_free(m);
    asset_folder_remove(&f);
    assert_int_equal(n_failed, 0);
    assert_true(n_passed >= 40);
}

// The model that comes along: one verify step of 64 rows.
static void test_pico(void **state) {
    (void)state;
    struct asset_folder f;
    struct model *m;
    struct npu_store *store;
    struct lists s = {0};
    if (env_get("TERN_TEST_SHORT")) skip();
    if (!asset_folder_init(&f)) return;
    assert_ok(model_open(&m, TEST_MODELS "/pico.gguf", &test_err));
    assert_ok(npu_store_create(&store, m, NPU_FORMAT_I8, &test_err));
    add_kinds(&s, store, 64, false);
    finish(&f, &s, store, 1, 5000);
    model_close(m);
    asset_folder_remove(&f);
    assert_int_equal(n_failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal_bits), cmocka_unit_test(test_pico)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    if (n_passed + n_failed > 0) printf("coreai_equal: %d passed, %d failed\n", n_passed, n_failed);
    return rc;
}
