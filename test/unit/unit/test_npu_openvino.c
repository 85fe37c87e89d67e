// The OpenVINO back end: equal to a plain evaluation within fp16, states, placement, and its errors. Skipped without
// the runtime, which with CI set is a failure.
#define _GNU_SOURCE 1
#include "npu_backend_test.h"
#include <unistd.h>

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
    o.library = FAKE_OLD_OPENVINO;
    check_open_fails(&npu_openvino_backend, &o, TERN_UNSUPPORTED,
                     "is OpenVINO 2024.6.0-17404; 2025 or later is needed");
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

static bool blob_find(void *arg, const char *name, const struct os_stat *st) {
    (void)st;
    snprintf(arg, 300, "%s", name);
    return true;
}

static void blob_cut(const char *dir, const char *name) {
    struct buf b;
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    buf_init(&b, 64 << 20);
    assert_ok(file_read_all(&b, path, &test_err));
    assert_ok(file_write_atomic(path, b.data, b.len / 2, &test_err));
    buf_release(&b);
}

// What was compiled is kept and found again, with the same results; a damaged file is not used.
static void test_cache(void **state) {
    (void)state;
    char dir[] = "/tmp/tern-openvino-XXXXXX", blob[300] = "";
    uint16_t *first = NULL;
    assert_non_null(mkdtemp(dir));
    struct npu_backend_options o = {.n_threads = 1, .cache = dir};
    for (int i = 0; i < 3; i++) {
        struct npu_backend *b = backend_open_or_skip(&npu_openvino_backend, &o);
        if (!b) return;
        struct backend_case c;
        if (i == 2) blob_cut(dir, blob);
        case_open(&c, &npu_openvino_backend, b, 7);
        assert_ok(os_list(dir, blob_find, blob, &test_err));
        assert_contains(blob, ".blob");
        assert_ok(npu_openvino_backend.run(c.binding, &test_err));
        size_t n = (size_t)npu_tensor_len(&c.list->tensors[c.list->outputs[0]]) * 2;
        if (i == 0) first = memcpy(mem_alloc(n), c.io.outputs[0], n);
        assert_memory_equal(first, c.io.outputs[0], n);
        assert_contains(npu_compiled_base_of(c.compiled)->placement.detail, "execution devices: CPU (");
        case_close(&c);
        npu_openvino_backend.close(b);
    }
    mem_free(first);
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, blob);
    assert_ok(os_remove(path, &test_err));
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_op), cmocka_unit_test(test_placement),
                                       cmocka_unit_test(test_absent), cmocka_unit_test(test_device),
                                       cmocka_unit_test(test_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
