// Validations: what is written is read back, rows are found by the whole key, a broken file is refused by name and put
// aside, a failed write leaves what was there, and a unit without an adopted row is not offered.
#define _GNU_SOURCE 1 // setenv
#include "base/base.h"
#include "policy/policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static struct validation example(void) {
    return (struct validation){.key = {.model = "0123",
                                       .unit = "npu:ort",
                                       .numerics = "int8/kv-f16",
                                       .scales = "",
                                       .chip = "Some \"chip\"",
                                       .system = "Linux 6.1",
                                       .runtime = "ONNX Runtime 1.30.0 on CPU"},
                               .name = "pico",
                               .reference = "cpu/fp32",
                               .prompts = "4567",
                               .tokens = 1234,
                               .top1 = {0.995, 0.99, 0.998},
                               .kl = 0.00031,
                               .ppl_ratio = 1.0002,
                               .least = "tool",
                               .least_top1 = 0.97,
                               .adopted = true,
                               .placement = "CPU: 812 nodes, 0 elsewhere",
                               .made_wall_s = 1796036400};
}

// Field by field: a copied struct has other bytes between its fields.
static void same_row(const struct validation *a, const struct validation *b) {
    assert_memory_equal(&a->key, &b->key, sizeof a->key); // characters only
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->reference, b->reference);
    assert_string_equal(a->prompts, b->prompts);
    assert_int_equal(a->tokens, b->tokens);
    assert_memory_equal(a->top1, b->top1, sizeof a->top1);
    assert_true(a->kl == b->kl && a->ppl_ratio == b->ppl_ratio && a->least_top1 == b->least_top1);
    assert_string_equal(a->least, b->least);
    assert_int_equal(a->adopted, b->adopted);
    assert_string_equal(a->missed, b->missed);
    assert_string_equal(a->placement, b->placement);
    assert_int_equal(a->made_wall_s, b->made_wall_s);
}

static void test_round_trip(void **state) {
    (void)state;
    struct validation row = example();
    struct validations v = {0}, w;
    struct tern_err err = {0};
    struct buf b;
    buf_init(&b, VALIDATIONS_BYTES_MAX);
    assert_true(validations_put(&v, &row));
    row.key.scales[0] = 'a';
    row.adopted = false;
    assert_true(validations_put(&v, &row));
    assert_true(validations_print(&v, &b));
    if (validations_parse(&w, buf_str(&b), &err) != TERN_OK) fail_msg("%s\n%s", err.message, b.data);
    assert_int_equal(w.n, 2);
    for (int i = 0; i < 2; i++) same_row(&v.rows[i], &w.rows[i]);
    validations_release(&v);
    validations_release(&w);
    buf_release(&b);
}

// Each part of the key tells rows apart; the same key replaces; the oldest goes when the table is full.
static void test_keys(void **state) {
    (void)state;
    struct validations v = {0};
    struct validation row = example();
    assert_true(validations_put(&v, &row));
    char *const parts[] = {row.key.model, row.key.unit,   row.key.numerics, row.key.scales,
                           row.key.chip,  row.key.system, row.key.runtime};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char first = parts[i][0];
        parts[i][0] = 'X';
        assert_null(validations_find(&v, &row.key));
        parts[i][0] = first;
    }
    row.tokens = 5;
    assert_true(validations_put(&v, &row));
    assert_int_equal(v.n, 1);
    assert_int_equal(validations_find(&v, &row.key)->tokens, 5);
    for (int i = 0; i < VALIDATIONS_MAX; i++) {
        (void)snprintf(row.key.unit, sizeof row.key.unit, "npu:%d", i);
        assert_true(validations_put(&v, &row));
    }
    assert_int_equal(v.n, VALIDATIONS_MAX);
    assert_string_equal(v.rows[0].key.unit, "npu:0");
    validations_release(&v);
}

#define KEY                                                                                                          \
    "\"model\":\"m\",\"unit\":\"u\",\"numerics\":\"n\",\"scales\":\"\",\"chip\":\"c\",\"system\":\"s\",\"runtime\":" \
    "\"r\""
#define FILE_OF(rows) "{\"format\":\"tern-validations\",\"version\":1,\"rows\":" rows "}"
static void test_wrong(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } wrong[] = {{"", "byte"},
                 {"[]", "validations"},
                 {"{}", "tern-validations"},
                 {"{\"format\":\"tern-profile\",\"version\":1,\"rows\":[]}", "tern-validations"},
                 {"{\"format\":\"tern-validations\",\"version\":2,\"rows\":[]}", "version 2"},
                 {"{\"format\":\"tern-validations\",\"version\":1}", "rows"},
                 {FILE_OF("{}"), "rows"},
                 {FILE_OF("[1]"), "a row"},
                 {FILE_OF("[{}]"), "no 'model'"},
                 {FILE_OF("[{\"model\":1}]"), "model"},
                 {FILE_OF("[{" KEY ",\"top1\":[0.5,0.4,1.5]}]"), "0 to 1"},
                 {FILE_OF("[{" KEY ",\"top1\":[0.5]}]"), "0 to 1"},
                 {FILE_OF("[{" KEY ",\"adopted\":1}]"), "adopted"},
                 {FILE_OF("[{" KEY ",\"unit\":\"v\"}]"), "unit"},
                 {FILE_OF("[{" KEY "}"), "byte"},
                 {FILE_OF("[]") "x", "byte"}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct validations v;
        struct tern_err err = {0};
        assert_int_not_equal(validations_parse(&v, str_from(wrong[i].text), &err), TERN_OK);
        if (!strstr(err.message, wrong[i].word)) fail_msg("%s: %s", wrong[i].text, err.message);
        validations_release(&v);
    }
}

static char folder[128], path[256];

static int folder_make(void **state) {
    uint64_t salt;
    (void)state;
    os_random(&salt, sizeof salt);
    (void)snprintf(folder, sizeof folder, "/tmp/tern-test-validation-%d-%08llx", os_pid(), (unsigned long long)salt);
    setenv("XDG_CACHE_HOME", folder, 1);
    unsetenv("TERN_UNVALIDATED");
    return validation_path(path, sizeof path) ? 0 : -1;
}
static int folder_remove(void **state) {
    static const char *const names[] = {"", ".lock", ".broken"};
    char file[300];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)snprintf(file, sizeof file, "%s%s", path, names[i]);
        (void)os_remove(file, NULL);
    }
    (void)snprintf(file, sizeof file, "%s/tern", folder);
    (void)os_remove_dir(file, NULL);
    return os_remove_dir(folder, NULL) == TERN_OK ? 0 : -1;
}

static void test_store(void **state) {
    (void)state;
    struct validation row = example();
    struct validations v;
    struct tern_err err = {0};
    struct os_stat st;
    char aside[300];
    assert_int_equal(validations_load(&v, &err), TERN_OK); // no file: no rows
    assert_int_equal(v.n, 0);
    assert_int_equal(validation_require(&row.key, false, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "`tern validate npu:ort/int8`"));
    assert_int_equal(validation_keep(&row, &err), TERN_OK);
    assert_int_equal(validation_require(&row.key, false, &err), TERN_OK);
    // A write that fails leaves the rows as they were.
    row.adopted = false;
    (void)snprintf(row.missed, sizeof row.missed, "top-1 87 %%");
    for (uint64_t n = 1; n <= 3; n++) {
        os_fail_at(n, EIO);
        enum tern_status status = validation_keep(&row, &err);
        os_fail_at(0, 0);
        if (status == TERN_OK) break;
        assert_int_equal(validation_require(&row.key, false, &err), TERN_OK);
    }
    assert_int_equal(validation_keep(&row, &err), TERN_OK);
    assert_int_equal(validation_require(&row.key, false, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "top-1 87 %"));
    // Broken: nothing passes, the error names the file; the next row begins anew and keeps the broken bytes.
    assert_int_equal(file_write_atomic(path, "{\"format\"", 9, &err), TERN_OK);
    assert_int_not_equal(validation_require(&row.key, false, &err), TERN_OK);
    assert_non_null(strstr(err.message, path));
    row.adopted = true;
    assert_int_equal(validation_keep(&row, &err), TERN_OK);
    assert_int_equal(validation_require(&row.key, false, &err), TERN_OK);
    (void)snprintf(aside, sizeof aside, "%s.broken", path);
    assert_true(os_stat_get(&st, aside) && st.size == 9);
}

static void test_offered(void **state) {
    (void)state;
    struct validation_key key = example().key;
    struct tern_err err = {0};
    (void)snprintf(key.numerics, sizeof key.numerics, "fp32/kv-q8");
    assert_int_equal(validation_require(&key, false, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "`tern validate npu:ort/fp32,kv=q8`"));
    assert_int_equal(validation_require(&key, true, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "`tern route --cases FILE --agree npu:ort/fp32,kv=q8`"));
    setenv("TERN_UNVALIDATED", "1", 1);
    assert_int_equal(validation_require(&key, false, &err), TERN_OK);
    unsetenv("TERN_UNVALIDATED");
    (void)snprintf(key.unit, sizeof key.unit, "cpu"); // tests hold the reference unit
    assert_int_equal(validation_require(&key, false, &err), TERN_OK);
    // The key of this machine: scales count by their content, a runtime by its version.
    struct unit_caps caps = {.name = "npu", .detail = "ONNX Runtime 1.30 on CPU", .deterministic = false};
    struct validation_key a, b;
    char unit[300];
    (void)snprintf(unit, sizeof unit, "npu:ane-m1@%s.broken", path);
    assert_int_equal(validation_key_make(&a, "m", unit, &caps, "int8/kv-f16", "0.1.0 (abc)", &err), TERN_OK);
    assert_string_equal(a.unit, "npu:ane-m1");
    assert_string_equal(a.runtime, caps.detail);
    assert_int_equal(strlen(a.scales), 64);
    assert_true(a.chip[0] && a.system[0] && validation_here(&a));
    caps.deterministic = true;
    assert_int_equal(validation_key_make(&b, "m", "npu:ane-m1", &caps, "int8/kv-f16", "0.1.0 (abc)", &err), TERN_OK);
    assert_string_equal(b.runtime, "tern 0.1.0");
    assert_string_equal(b.scales, "");
    caps.arithmetic = "1a2b3c4d"; // what the release number does not tell
    assert_int_equal(validation_key_make(&b, "m", "npu:ane-m1", &caps, "int8/kv-f16", "0.1.0 (abc)", &err), TERN_OK);
    assert_string_equal(b.runtime, "tern 0.1.0, programs 1a2b3c4d");
    caps.deterministic = false;
    assert_int_equal(validation_key_make(&b, "m", "npu:ort", &caps, "int8/kv-f16", "0.1.0 (abc)", &err), TERN_OK);
    assert_string_equal(b.runtime, "ONNX Runtime 1.30 on CPU, programs 1a2b3c4d");
    b.chip[0]++;
    assert_false(validation_here(&b));
    assert_int_not_equal(validation_key_make(&b, "m", "npu@/nowhere", &caps, "int8", "1", &err), TERN_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_keys),    cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_store),      cmocka_unit_test(test_offered),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
