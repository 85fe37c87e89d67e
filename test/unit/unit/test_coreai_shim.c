// The C half of Core AI on macOS, against a library in place of the Swift one: what it is given, states, refusals.
#define _GNU_SOURCE 1
#include "npu_backend_test.h"
#include "unit/npu/coreai_int.h"
#include "unit/unit.h"

static char asset[300], root[256];

static void file_put(const char *name, const void *data, size_t n) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", asset, name);
    assert_ok(file_write_atomic(path, data, n, &test_err));
}

static int setup(void **state) {
    static const char program[] = "a program";
    static const char metadata[] = "{\"assetVersion\":\"2.0\",\"creatorDefinedMetadata\":{\"tern.model\":\"ab\"}}";
    struct sha256 s;
    uint8_t digest[32];
    (void)state;
    snprintf(root, sizeof root, "/tmp/tern-shim-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(asset, sizeof asset, "%s/m.aimodel", root);
    assert_ok(os_mkdirs(asset, &test_err));
    sha256_init(&s);
    sha256_update(&s, program, sizeof program);
    sha256_final(&s, digest);
    file_put("main.mlirb", program, sizeof program);
    file_put("main.hash", digest, sizeof digest);
    file_put("metadata.json", metadata, strlen(metadata));
    return 0;
}

static int teardown(void **state) {
    const char *const argv[] = {"rm", "-rf", root, NULL};
    struct child_options o = {.argv = argv};
    struct os_child c;
    struct child_result r;
    (void)state;
    assert_ok(child_open(&c, &o, &test_err));
    assert_ok(child_wait(&c, 60000, &r, &test_err));
    return 0;
}

static void test_run(void **state) {
    (void)state;
    struct npu_backend *b = NULL;
    struct npu_backend_options o = {.library = FAKE_COREAI, .asset = asset};
    struct backend_case c;
    assert_ok(npu_apple_backend.open(&b, &o, &test_err));
    case_open(&c, &npu_apple_backend, b, 3);
    assert_ok(npu_apple_backend.run(c.binding, &test_err));
    for (int i = 0; i < c.list->n_outputs; i++) {
        const struct npu_tensor *t = &c.list->tensors[c.list->outputs[i]];
        const uint16_t *v = c.io.outputs[i];
        for (int64_t k = 0; k < npu_tensor_len(t); k++) assert_int_equal(v[k], strlen(t->name));
    }
    for (int i = 0; i < c.list->n_states; i++) {
        const uint16_t *old = c.io.old[i], *now = c.io.now[i];
        for (int64_t k = 0; k < npu_tensor_len(&c.list->tensors[c.list->states[i].now]); k++)
            assert_int_equal(now[k], (uint16_t)(old[k] + 1));
    }
    struct tern_err err;
    char kept = c.list->name[0];
    c.list->name[0] = 'x'; // a function that the asset does not have
    assert_int_equal(npu_apple_backend.run(c.binding, &err), TERN_UNSUPPORTED);
    assert_contains(err.message, "no such function");
    c.list->name[0] = kept;
    case_close(&c);
    npu_apple_backend.close(b);
}

static void test_refusals(void **state) {
    (void)state;
    struct npu_backend_options o = {.library = FAKE_COREAI, .asset = asset, .provider = "tpu"};
    check_open_fails(&npu_apple_backend, &o, TERN_NOT_FOUND, "ane, gpu, cpu, default");
    o.provider = "gpu";
    check_open_fails(&npu_apple_backend, &o, TERN_UNSUPPORTED, "not for that unit");
    o = (struct npu_backend_options){.library = FAKE_OTHER, .asset = asset};
    check_open_fails(&npu_apple_backend, &o, TERN_UNSUPPORTED, "has no function tern_coreai_load");
    o.library = "/nonexistent.dylib";
    check_open_fails(&npu_apple_backend, &o, TERN_NOT_FOUND, "/nonexistent.dylib");
    unsetenv("TERN_COREAI_SHIM");
    o.library = NULL;
    check_open_fails(&npu_apple_backend, &o, TERN_NOT_FOUND, "tools/coreai/coreai_shim.swift");
    o.library = FAKE_COREAI;
    file_put("main.mlirb", "b", 1);
    check_open_fails(&npu_apple_backend, &o, TERN_BAD_FORMAT, "is damaged");
}

// The unit over an asset that was filled from another model of the same geometry: nothing would show it later.
static void test_other_model(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct model *m = tiny_model_create(&shape);
    struct unit *u = NULL;
    struct unit_weights *w = NULL;
    struct weights_options o = {.numerics = PROG_CLASS_INT8};
    struct tern_err err;
    setenv("TERN_COREAI_SHIM", FAKE_COREAI, 1);
    setenv("TERN_COREAI_ASSET", asset, 1);
    assert_ok(unit_open(&u, "npu:apple", &(struct unit_options){.n_threads = 1}, &test_err));
    assert_int_equal(unit_driver_of(u)->weights_import(u, &w, m, &o, NULL, &err), TERN_MISMATCH);
    assert_contains(err.message, "another model");
    assert_contains(err.message, "tern compile --npu --backend coreai");
    snprintf(m->digest, sizeof m->digest, "ab"); // what its metadata says
    assert_ok(unit_driver_of(u)->weights_import(u, &w, m, &o, NULL, &test_err));
    unit_driver_of(u)->weights_free(u, w);
    unit_close(u);
    unsetenv("TERN_COREAI_ASSET");
    assert_int_equal(unit_open(&u, "npu:apple", NULL, &err), TERN_INVALID_ARGUMENT);
    assert_contains(err.message, "TERN_NPU_SET=DIR");
    unsetenv("TERN_COREAI_SHIM");
    tiny_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_run), cmocka_unit_test(test_other_model),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
