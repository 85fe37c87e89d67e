// Programs compiled ahead: made once, found again, each failure told. The runtimes as in the other tests.
#define _GNU_SOURCE 1
#include "npu_backend_test.h"
#include "unit/unit.h"

static char root[256];
static struct model *model;
static int n_ok, n_failed;

static void on_program(void *arg, const char *name, const char *fault, double ms, const char *note) {
    (void)arg;
    assert_true(strlen(name) > 0 && ms >= 0);
    if (!fault) assert_true(strlen(note) > 0);
    n_ok += fault == NULL;
    n_failed += fault != NULL;
}

static enum tern_status make(const char *backend, const char *provider, const char *name, bool *was_there,
                             struct tern_err *err) {
    char dir[300];
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    struct unit_npu_compile_options o = {
        .backend = backend, .provider = provider, .dir = dir, .n_threads = 1, .on_program = on_program};
    n_ok = n_failed = 0;
    uint64_t n_live = mem_stats_get().n_live;
    enum tern_status status = unit_npu_compile(model, &o, was_there, err);
    assert_int_equal(mem_stats_get().n_live, n_live);
    return status;
}

static void test_made_once(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    npu_ort_backend.close(b);
    bool was_there = true;
    char path[400];
    struct os_stat st;
    assert_ok(make("ort", NULL, "ort", &was_there, &test_err));
    assert_false(was_there);
    assert_int_equal(n_ok, 6); // fill, argmax, logits in two windows of one bucket
    assert_int_equal(n_failed, 0);
    snprintf(path, sizeof path, "%s/ort/weights.pack", root);
    assert_true(os_stat_get(&st, path) && st.size > 0);
    assert_ok(make("ort", NULL, "ort", &was_there, &test_err));
    assert_true(was_there);
    assert_int_equal(n_ok, 0);
    assert_ok(os_remove(path, &test_err)); // half of it gone: made again
    assert_ok(make("ort", NULL, "ort", &was_there, &test_err));
    assert_false(was_there);
}

static void test_failures(void **state) {
    (void)state;
    bool was_there;
    struct tern_err err;
    assert_int_equal(make("tpu", NULL, "x", &was_there, &err), TERN_NOT_FOUND);
    assert_contains(err.message, "ort, openvino, coreai");
    struct npu_backend *b = backend_open_or_skip(&npu_ort_backend, NULL);
    if (!b) return;
    npu_ort_backend.close(b);
    assert_int_equal(make("ort", "QNN", "x", &was_there, &err), TERN_NOT_FOUND);
    assert_contains(err.message, "has no provider 'QNNExecutionProvider'");
}

static void test_no_template(void **state) {
    (void)state;
    struct npu_backend *b = backend_open_or_skip(&npu_coreai_backend, NULL);
    bool was_there;
    struct tern_err err;
    if (!b) return;
    npu_coreai_backend.close(b);
    assert_int_equal(make("coreai", NULL, "coreai", &was_there, &err), TERN_NOT_FOUND);
    assert_contains(err.message, "make it once with: python3 tools/coreai/make_template.py");
}

int main(void) {
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    setenv("TERN_NPU_CTX", "64", 1); // one bucket
    snprintf(root, sizeof root, "/tmp/tern-compile-XXXXXX");
    if (!mkdtemp(root)) return 1;
    model = tiny_model_create(&shape);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made_once), cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_no_template)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_model_free(model);
    const char *const argv[] = {"rm", "-rf", root, NULL};
    struct child_options o = {.argv = argv};
    struct os_child c;
    struct child_result r;
    if (child_open(&c, &o, NULL) == TERN_OK) child_wait(&c, 60000, &r, NULL);
    return rc;
}
