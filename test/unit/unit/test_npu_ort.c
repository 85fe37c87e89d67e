// The ONNX Runtime back end: equal to a plain evaluation within fp16, states, placement, and its errors. The runtime is
// found as npu_backend.h says; without it the tests that need it are skipped, which with CI set is a failure.
#define _GNU_SOURCE 1
#include "npu_backend_test.h"
#include "unit/npu/npu_unit.h"
#include "unit/npu/ort_int.h"
#include <stdio.h>

// The runtime computes in fp32 what the reference rounds to fp16 after every operation. Largest difference over 20
// seeds, relative to 1 + value: 0.0039; a wrong operand gives 0.1 and more.
#define OUTPUT_BOUND 0.01f

static void test_every_op(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    for (uint64_t seed = 1; seed <= 5; seed++) check_every_op(&npu_ort_backend, b, seed, OUTPUT_BOUND);
    npu_ort_backend.close(b);
}

// What other providers get: one graph in fp16 with its constants, here on the CPU's, which casts around operations.
static void test_whole(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    ((struct ort_backend *)b)->in_parts = false;
    for (uint64_t seed = 1; seed <= 3; seed++) check_every_op(&npu_ort_backend, b, seed, OUTPUT_BOUND);
    npu_ort_backend.close(b);
}

static void test_placement(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    struct backend_case c;
    case_open(&c, &npu_ort_backend, b, 7);
    const struct npu_placement *p = &npu_compiled_base_of(c.compiled)->placement;
    assert_true(p->n_ops > c.list->n_ops / 2);
    assert_int_equal(p->n_elsewhere, 0);
    assert_contains(p->detail, "CPUExecutionProvider: ");
    case_close(&c);
    npu_ort_backend.close(b);
}

// Lists of a tiny model.
#define N_LISTS 4
struct lists {
    struct model *model;
    struct npu_store *store;
    struct prog *prog[N_LISTS];
    struct npu_list *list[N_LISTS];
};
static void lists_open(struct lists *s, const struct tiny_shape *shape) {
    static const int buckets[] = {64, 128, 64, 128}, windows[] = {32, 32, 64, 64};
    *s = (struct lists){.model = tiny_model_create(shape)};
    assert_ok(npu_store_create(&s->store, s->model, NPU_FORMAT_I8, &test_err));
    for (int i = 0; i < N_LISTS; i++) {
        struct prog_spec spec = {.kind = PROG_WHOLE,
                                 .numerics = PROG_CLASS_INT8,
                                 .kv_type = OP_KV_F16,
                                 .window = windows[i],
                                 .n_out_max = -1,
                                 .outputs = PROG_OUT_LOGITS | PROG_OUT_ARGMAX};
        assert_ok(prog_build(&s->prog[i], s->model, &spec, &test_err));
        assert_ok(npu_program_list(&s->list[i], s->prog[i], s->store, NULL, buckets[i], 1, &test_err));
    }
}
static void lists_close(struct lists *s) {
    for (int i = 0; i < N_LISTS; i++) {
        npu_list_free(s->list[i]);
        prog_free(s->prog[i]);
    }
    npu_store_free(s->store);
    tiny_model_free(s->model);
}

// One run over random inputs.
static void run_once(struct npu_compiled *c, const struct npu_list *l, struct npu_test_buffers *io) {
    struct npu_binding *bd;
    npu_test_buffers_init(io, l);
    npu_test_buffers_fill(io, l, 5);
    struct npu_buffers buffers = {.inputs = io->inputs, .outputs = io->outputs};
    assert_ok(npu_ort_backend.bind(c, &bd, &buffers, &test_err));
    assert_ok(npu_ort_backend.run(bd, &test_err));
    npu_ort_backend.unbind(bd);
}

static void outputs_equal(const struct npu_list *l, const struct npu_test_buffers *a,
                          const struct npu_test_buffers *b) {
    for (int o = 0; o < l->n_outputs; o++) {
        const struct npu_tensor *t = &l->tensors[l->outputs[o]];
        float most = largest_difference(a->outputs[o], b->outputs[o], npu_tensor_len(t));
        if (!(most <= 1e-5f)) fail_msg("%s, %s differs by %g beside other programs", l->name, t->name, (double)most);
    }
}

// Programs that share parts give what each gives alone, whichever ran before; one that is freed takes nothing along.
static void test_shared_parts(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    const struct tiny_shape shapes[] = {tiny_lfm2_shape(FORMAT_F32, 3), tiny_llama_shape(FORMAT_F32, 4)};
    for (size_t k = 0; k < ARRAY_LEN(shapes); k++) {
        struct lists s;
        struct npu_test_buffers alone[N_LISTS], io;
        struct npu_compiled *c[N_LISTS];
        lists_open(&s, &shapes[k]);
        for (int i = 0; i < N_LISTS; i++) {
            assert_ok(npu_ort_backend.compile(b, &c[i], s.list[i], &test_err));
            run_once(c[i], s.list[i], &alone[i]);
            npu_ort_backend.free(c[i]);
        }
        for (int i = 0; i < N_LISTS; i++) assert_ok(npu_ort_backend.compile(b, &c[i], s.list[i], &test_err));
        for (int n = 0; n < N_LISTS; n++) { // the first goes after each round
            for (int i = N_LISTS - 1; i >= n; i--) {
                run_once(c[i], s.list[i], &io);
                outputs_equal(s.list[i], &io, &alone[i]);
                npu_test_buffers_release(&io);
            }
            npu_ort_backend.free(c[n]);
        }
        for (int i = 0; i < N_LISTS; i++) npu_test_buffers_release(&alone[i]);
        lists_close(&s);
    }
    npu_ort_backend.close(b);
}

// Each allocation of ours fails once: one error, and nothing stays.
static void test_no_memory(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    const struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 3);
    struct npu_compiled *c[2];
    struct lists s;
    int n = 1;
    lists_open(&s, &shape);
    assert_ok(npu_ort_backend.compile(b, &c[0], s.list[0], &test_err)); // the others share parts with it
    uint64_t n_live = mem_stats_get().n_live;
    for (enum tern_status status = TERN_NO_MEMORY; status != TERN_OK; n++) {
        struct tern_err err;
        c[1] = (struct npu_compiled *)(uintptr_t)1;
        mem_fail_at((uint64_t)n, false);
        status = npu_ort_backend.compile(b, &c[1], s.list[1], &err);
        mem_fail_at(0, false);
        if (status == TERN_OK) break;
        assert_int_equal(status, TERN_NO_MEMORY);
        assert_null(c[1]);
        assert_true(mem_stats_get().n_live <= n_live + 1); // the table of constants may have grown
    }
    assert_true(n > 20);
    npu_ort_backend.free(c[1]);
    npu_ort_backend.free(c[0]);
    lists_close(&s);
    npu_ort_backend.close(b);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
static double resident(void) { // MiB
    unsigned long size, pages;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &pages), 2);
    (void)fclose(f);
    return (double)pages * 4096 / (1024 * 1024);
}

// Twelve programs of pico (32 MiB of int8 weights) beside its first: 8 MiB with shared parts. A session of its own for
// each took 87.
static void test_memory(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    npu_ort_backend.close(b);
    const struct unit_driver *d = &unit_npu_driver;
    static const uint32_t gives[] = {0, PROG_OUT_ARGMAX, PROG_OUT_LOGITS};
    struct model *m;
    struct unit *u;
    struct unit_weights *w;
    struct weights_info info;
    struct prog *p[6];
    struct unit_program *c[6];
    double before = 0;
    setenv("TERN_NPU_CTX", "256,512", 1);
    assert_ok(model_open(&m, TEST_MODELS "/pico.gguf", &test_err));
    assert_ok(d->open(&u, &(struct unit_options){.variant = "ort", .n_threads = 1}, &test_err));
    struct weights_options wo = {.numerics = PROG_CLASS_INT8};
    assert_ok(d->weights_import(u, &w, m, &wo, &info, &test_err));
    for (int i = 0; i < 6; i++) {
        struct prog_spec spec = {.kind = PROG_WHOLE,
                                 .numerics = PROG_CLASS_INT8,
                                 .kv_type = OP_KV_F16,
                                 .window = i < 3 ? 64 : 32,
                                 .n_out_max = gives[i % 3] ? -1 : 0,
                                 .outputs = gives[i % 3]};
        assert_ok(prog_build(&p[i], m, &spec, &test_err));
        assert_ok(d->program_compile(u, &c[i], p[i], w, &test_err));
        assert_int_equal(c[i]->n_variants, 2);
        for (int v = 0; v < 2; v++) {
            assert_ok(npu_opener_need(u->opener, c[i]->variants[v], &test_err));
            if (i == 0 && v == 0) before = resident();
        }
    }
    double more = resident() - before, weights = (double)info.bytes / (1024 * 1024);
    print_message("%.1f MiB beside %.1f of weights\n", more, weights);
    if (more > 0.5 * weights) fail_msg("11 more programs hold %.1f MiB beside %.1f of weights", more, weights);
    for (int i = 0; i < 6; i++) {
        d->program_free(u, c[i]);
        prog_free(p[i]);
    }
    d->weights_free(u, w);
    d->close(u);
    model_close(m);
    unsetenv("TERN_NPU_CTX");
}
#endif

static void test_absent(void **state) {
    (void)state;
    struct npu_backend_options o = {.library = "/nowhere/libonnxruntime.so.1"};
    check_open_fails(&npu_ort_backend, &o, TERN_NOT_FOUND, "there is no file '/nowhere/libonnxruntime.so.1'");
    o.library = "meson.build";
    check_open_fails(&npu_ort_backend, &o, TERN_UNSUPPORTED, "cannot load the library './meson.build'");
    o.library = FAKE_OTHER;
    check_open_fails(&npu_ort_backend, &o, TERN_UNSUPPORTED, "is not ONNX Runtime: it has no OrtGetApiBase");
    o.library = FAKE_OLD;
    check_open_fails(&npu_ort_backend, &o, TERN_UNSUPPORTED, "is ONNX Runtime 1.19.2; 1.24 or later is needed");
}

static void test_provider(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    npu_ort_backend.close(b);
    struct npu_backend_options o = {.provider = "QNN"};
    check_open_fails(&npu_ort_backend, &o, TERN_NOT_FOUND, "has no provider 'QNNExecutionProvider'; it has: ");
    o.plugin = "/nowhere/plugin.so";
    check_open_fails(&npu_ort_backend, &o, TERN_UNSUPPORTED, "/nowhere/plugin.so");
}

// The package's other provider runs no operation of ours: what it would leave to the CPU is refused, by the runtime.
static void test_fallback(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    npu_ort_backend.close(b);
    struct npu_backend_options o = {.provider = "Azure", .n_threads = 1};
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct npu_compiled *compiled = (struct npu_compiled *)(uintptr_t)1;
    struct npu_store *store;
    struct tern_err err;
    if (npu_ort_backend.open(&b, &o, &err) != TERN_OK) {
        assert_contains(err.message, "has no provider 'AzureExecutionProvider'");
        skip(); // a library of another build
    }
    struct model *m = tiny_model_create(&shape);
    assert_ok(npu_store_create(&store, m, NPU_FORMAT_I8, &test_err));
    struct npu_list *l = npu_every_op(store, "every", 1);
    assert_int_equal(npu_ort_backend.compile(b, &compiled, l, &err), TERN_UNSUPPORTED);
    assert_contains(err.message, "every does not compile for AzureExecutionProvider");
    assert_contains(err.message, "fallback to CPU EP has been explicitly disabled");
    assert_null(compiled);
    npu_list_free(l);
    npu_store_free(store);
    tiny_model_free(m);
    npu_ort_backend.close(b);
}

static void test_versions(void **state) {
    (void)state;
    int major = 0, minor = 0;
    assert_true(npu_version_parse("1.32.0", &major, &minor));
    assert_int_equal(major, 1);
    assert_int_equal(minor, 32);
    assert_true(npu_version_parse("2026.4.1-22123-abc", &major, &minor));
    assert_int_equal(major, 2026);
    assert_false(npu_version_parse("one", &major, &minor));
    assert_false(npu_version_parse("1", &major, &minor));
    assert_false(npu_version_parse("9999999999.1", &major, &minor));
}

static void test_names(void **state) {
    (void)state;
    const struct npu_backend_driver *d;
    struct tern_err err;
    assert_ok(npu_backend_find(&d, "ort", &test_err));
    assert_ptr_equal(d, &npu_ort_backend);
    assert_int_equal(npu_backend_find(&d, "tpu", &err), TERN_NOT_FOUND);
    assert_contains(err.message, "there are: ort, openvino, coreai");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_provider),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_shared_parts),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_fallback),
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(test_memory),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
