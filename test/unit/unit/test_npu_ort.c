// The ONNX Runtime back end: equal to a plain evaluation within fp16, states, placement, and its errors. The runtime is
// found as npu_backend.h says; without it the tests that need it are skipped, which with CI set is a failure.
#include "npu_backend_test.h"

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
        cmocka_unit_test(test_every_op), cmocka_unit_test(test_placement), cmocka_unit_test(test_absent),
        cmocka_unit_test(test_provider), cmocka_unit_test(test_versions),  cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
