// The OpenVINO back end: equal to a plain evaluation within fp16, states, placement, and its errors. Skipped without
// the runtime, which with CI set is a failure.
#include "npu_backend_test.h"

// As for ONNX Runtime (test_npu_ort.c), and the CPU device has no rounding to fp16 between operations at all. Largest
// difference over 20 seeds, relative to 1 + value: 0.0032.
#define OUTPUT_BOUND 0.01f

static void test_every_op(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_openvino_backend, NULL);
    if (!b) return;
    for (uint64_t seed = 1; seed <= 5; seed++) check_every_op(&npu_openvino_backend, b, seed, OUTPUT_BOUND);
    npu_openvino_backend.close(b);
}

static void test_placement(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_openvino_backend, NULL);
    if (!b) return;
    struct backend_case c;
    case_open(&c, &npu_openvino_backend, b, 7);
    assert_contains(npu_compiled_base_of(c.compiled)->placement.detail, "execution devices: CPU (");
    case_close(&c);
    npu_openvino_backend.close(b);
}

static void test_absent(void **state) {
    (void)state;
    struct npu_backend_options o = {.library = "/nowhere/libopenvino_c.so"};
    check_open_fails(&npu_openvino_backend, &o, TERN_NOT_FOUND, "there is no file '/nowhere/libopenvino_c.so'");
    o.library = FAKE_OTHER;
    check_open_fails(&npu_openvino_backend, &o, TERN_UNSUPPORTED, "has no function ov_get_openvino_version");
}

static void test_device(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_openvino_backend, NULL);
    if (!b) return;
    npu_openvino_backend.close(b);
    struct npu_backend_options o = {.provider = "TPU"};
    check_open_fails(&npu_openvino_backend, &o, TERN_NOT_FOUND, "OpenVINO has no device 'TPU' here; it has: CPU");
    o.provider = "HETERO:NPU,CPU";
    check_open_fails(&npu_openvino_backend, &o, TERN_UNSUPPORTED, "would move work to others");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_op), cmocka_unit_test(test_placement),
                                       cmocka_unit_test(test_absent), cmocka_unit_test(test_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
