// Quantising: which tensor gets what, values within the format's error, and nothing left behind when writing fails.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include "app/quantize/quantize.h"
#include "op/op.h"

static char folder[256];

static int setup(void **state) {
    (void)state;
    uint64_t salt;
    os_random(&salt, sizeof salt);
    snprintf(folder, sizeof folder, "/tmp/tern-test-quantize-%d-%08llx", os_pid(), (unsigned long long)salt);
    return os_mkdirs(folder, NULL);
}

static bool count_entry(void *arg, const char *name, const struct os_stat *st) {
    (void)name;
    (void)st;
    ++*(int *)arg;
    return true;
}
static int files_count(void) {
    int n = 0;
    os_list(folder, count_entry, &n, NULL);
    return n;
}
static const char *file_path(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

struct opened {
    struct model *m;
    struct model_export *x;
};
static struct opened pico_open(void) {
    struct opened o;
    struct tern_err err = {0};
    if (model_open(&o.m, TEST_MODELS "/pico.gguf", &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(model_export_create(&o.x, o.m, NULL, &err), TERN_OK);
    return o;
}
static void opened_close(struct opened o) {
    model_export_free(o.x);
    model_close(o.m);
}

static void row_dequant(const struct tensor *t, int64_t row, float *out) {
    const size_t row_bytes = (size_t)(t->n_bytes / (uint64_t)(t->ne[1] * t->ne[2] * t->ne[3]));
    op_dequant_row(t->format, t->data + (size_t)row * row_bytes, t->ne[0], out);
}

// Root mean square error of a tensor over its root mean square.
static double tensor_error(const struct tensor *a, const struct tensor *b) {
    float *x = mem_calloc((size_t)a->ne[0], 2 * sizeof(float)), *y = x + a->ne[0];
    double e = 0, s = 0;
    assert_non_null(x);
    for (int64_t r = 0; r < a->ne[1]; r++) {
        row_dequant(a, r, x);
        row_dequant(b, r, y);
        for (int64_t i = 0; i < a->ne[0]; i++) {
            e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            s += (double)x[i] * (double)x[i];
        }
    }
    mem_free(x);
    return sqrt(e / s);
}

static void test_all_types(void **state) {
    (void)state;
    // Largest relative error of a tensor of that format, of those that rounding to its bits explains.
    static const struct {
        enum format format;
        double error_max;
    } bounds[] = {{FORMAT_F32, 0},      {FORMAT_F16, 1e-3},   {FORMAT_BF16, 4e-3}, {FORMAT_Q8_0, 8e-3},
                  {FORMAT_Q6_K, 3e-2},  {FORMAT_Q5_1, 0.05},  {FORMAT_Q5_0, 0.06}, {FORMAT_Q4_K, 0.10},
                  {FORMAT_Q4_1, 0.1},   {FORMAT_Q4_0, 0.12},  {FORMAT_I8C, 0.03},  {FORMAT_Q5_K, 0.05},
                  {FORMAT_IQ4_NL, 0.1}, {FORMAT_IQ4_XS, 0.1}, {FORMAT_Q3_K, 0.22}, {FORMAT_Q2_K, 0.4}};
    for (const struct quantize_mix *mix = quantize_mixes; mix->name; mix++) {
        struct opened o = pico_open();
        struct tern_err err = {0};
        struct quantize_result r;
        struct model *got;
        const char *path = file_path("out.gguf");
        assert_int_equal(quantize_choose(o.x, mix, false, NULL, 0, false, &err), TERN_OK);
        o.x->n_tensors = 24; // the embedding and two layers: quick
        if (quantize_write(o.x, mix->file_type, path, 2, &r, &err) != TERN_OK) fail_msg("%s", err.message);
        if (model_open_table(&got, path, &err) != TERN_OK) fail_msg("%s: %s", mix->name, err.message);
        struct os_stat st;
        assert_true(os_stat_get(&st, path));
        assert_int_equal(st.size, r.n_bytes);
        assert_int_equal(got->n_tensors, o.x->n_tensors);
        for (int i = 0; i < got->n_tensors; i++) {
            const struct tensor *a = &o.m->tensors[i], *b = &got->tensors[i];
            assert_true(str_eq(a->name, b->name));
            assert_int_equal(b->format, o.x->tensors[i].format);
            if (a->n_dims < 2) assert_int_equal(b->format, FORMAT_F32);
            if (b->format == a->format) {
                assert_memory_equal(a->data, b->data, (size_t)a->n_bytes);
                continue;
            }
            for (size_t k = 0; k < ARRAY_LEN(bounds); k++) {
                if (bounds[k].format != b->format) continue;
                const double e = tensor_error(a, b);
                if (!(e <= bounds[k].error_max))
                    fail_msg("%s: %.*s as %s: error %g", mix->name, (int)b->name.len, b->name.data,
                             format_table[b->format].name, e);
            }
        }
        model_close(got);
        assert_int_equal(os_remove(path, NULL), TERN_OK);
        opened_close(o);
    }
    assert_int_equal(files_count(), 0);
}

// A table of names and shapes stands for a model.
static void choose(struct model_export_tensor *t, int n, const char *mix, bool pure) {
    static struct tensor any = {.format = FORMAT_F32};
    struct model_export x = {.tensors = t, .n_tensors = n};
    for (int i = 0; i < n; i++) {
        t[i].from = &any;
        t[i].format = FORMAT_F32;
    }
    assert_int_equal(quantize_choose(&x, quantize_mix_find(mix), pure, NULL, 0, false, NULL), TERN_OK);
}

static void test_rules(void **state) {
    (void)state;
    struct model_export_tensor t[2 + 2 * 16] = {{.name = STR("token_embd.weight"), .ne = {512, 1000}},
                                                {.name = STR("blk.0.attn_norm.weight"), .ne = {512}, .is_small = true}};
    char names[32][32];
    for (int i = 0; i < 16; i++) {
        snprintf(names[2 * i], 32, "blk.%d.attn_v.weight", i);
        snprintf(names[2 * i + 1], 32, "blk.%d.ffn_down.weight", i);
        for (int k = 0; k < 2; k++)
            t[2 + 2 * i + k] = (struct model_export_tensor){.name = str_from(names[2 * i + k]), .ne = {512, 8}};
    }
    const int n = (int)ARRAY_LEN(t);
    choose(t, n, "q4_k_m", false);
    assert_int_equal(t[0].format, FORMAT_Q6_K); // tied: it is the output matrix
    assert_int_equal(t[1].format, FORMAT_F32);
    static const bool more[16] = {1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1};
    for (int i = 0; i < 16; i++) {
        assert_int_equal(t[2 + 2 * i].format, more[i] ? FORMAT_Q6_K : FORMAT_Q4_K);
        assert_int_equal(t[3 + 2 * i].format, more[i] ? FORMAT_Q6_K : FORMAT_Q4_K);
    }
    choose(t, n, "Q3_K_M", false);
    assert_int_equal(t[2].format, FORMAT_Q5_K); // attn_v of the first two, ffn_down of the first sixteenth
    assert_int_equal(t[4].format, FORMAT_Q5_K);
    assert_int_equal(t[6].format, FORMAT_Q4_K);
    assert_int_equal(t[3].format, FORMAT_Q5_K);
    assert_int_equal(t[5].format, FORMAT_Q4_K);
    choose(t, n, "Q2_K", false);
    assert_int_equal(t[2].format, FORMAT_Q3_K);
    assert_int_equal(t[3].format, FORMAT_Q3_K);
    choose(t, n, "Q4_K_S", false);
    assert_int_equal(t[2 + 2 * 3].format, FORMAT_Q5_K);
    assert_int_equal(t[2 + 2 * 4].format, FORMAT_Q4_K);
    assert_int_equal(t[3 + 2 * 1].format, FORMAT_Q5_K);
    assert_int_equal(t[3 + 2 * 2].format, FORMAT_Q4_K);
    choose(t, n, "Q4_K", true);
    assert_int_equal(t[0].format, FORMAT_Q4_K);
    choose(t, n, "Q4_0", false);
    assert_int_equal(t[0].format, FORMAT_Q6_K);
    assert_int_equal(t[2].format, FORMAT_Q4_0);
    choose(t, n, "Q8_0", false);
    assert_int_equal(t[0].format, FORMAT_Q8_0);
    choose(t, n, "BF16", false);
    assert_int_equal(t[0].format, FORMAT_BF16);
    t[1] = (struct model_export_tensor){.name = STR("output.weight"), .ne = {512, 1000}};
    choose(t, n, "Q4_K_M", false); // not tied: the embedding is like any matrix
    assert_int_equal(t[0].format, FORMAT_Q4_K);
    assert_int_equal(t[1].format, FORMAT_Q6_K);
}

static void test_fallbacks(void **state) {
    (void)state;
    static const struct {
        const char *mix;
        int64_t n_row;
        enum format format;
    } cases[] = {{"Q4_K_M", 512, FORMAT_Q4_K}, {"Q4_K_M", 576, FORMAT_Q5_0}, {"Q6_K", 576, FORMAT_Q8_0},
                 {"Q4_K_M", 48, FORMAT_F16},   {"Q4_0", 48, FORMAT_F16},     {"Q6_K", 33, FORMAT_F16},
                 {"Q5_K_M", 96, FORMAT_Q5_1},  {"Q2_K", 96, FORMAT_Q4_0},    {"IQ4_XS", 96, FORMAT_IQ4_NL},
                 {"Q8_0", 96, FORMAT_Q8_0},    {"F16", 7, FORMAT_F16},       {"I8C", 7, FORMAT_I8C}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model_export_tensor t[] = {{.name = STR("blk.3.ffn_up.weight"), .ne = {cases[i].n_row, 8}}};
        choose(t, 1, cases[i].mix, false);
        assert_int_equal(t[0].format, cases[i].format);
    }
}

static void test_overrides(void **state) {
    (void)state;
    struct opened o = pico_open();
    struct tern_err err = {0};
    const struct quantize_mix *mix = quantize_mix_find("Q8_0");
    struct quantize_override list[] = {{.name = STR("ffn_down"), .format = FORMAT_F16},
                                       {.name = STR("ffn_up"), .format = FORMAT_Q5_1}};
    assert_int_equal(quantize_choose(o.x, mix, false, list, 2, false, &err), TERN_OK);
    int n_f16 = 0, n_q5 = 0;
    for (int i = 0; i < o.x->n_tensors; i++) {
        n_f16 += o.x->tensors[i].format == FORMAT_F16;
        n_q5 += o.x->tensors[i].format == FORMAT_Q5_1;
    }
    assert_int_equal(n_f16, o.m->hyper.n_layers);
    assert_int_equal(n_q5, o.m->hyper.n_layers);
    assert_int_equal(list[0].n_used, o.m->hyper.n_layers);
    opened_close(o);
}

static void test_refused(void **state) {
    (void)state;
    struct opened o = pico_open();
    struct tern_err err = {0};
    struct quantize_override none[] = {{.name = STR("no_such"), .format = FORMAT_F16}};
    struct quantize_override norm[] = {{.name = STR("attn_norm"), .format = FORMAT_Q8_0}};
    const struct quantize_mix *mix = quantize_mix_find("Q8_0");
    assert_int_equal(quantize_choose(o.x, mix, false, none, 1, false, &err), TERN_NOT_FOUND);
    assert_int_equal(quantize_choose(o.x, mix, false, norm, 1, false, &err), TERN_INVALID_ARGUMENT);
    assert_null(quantize_mix_find("Q4_9"));
    opened_close(o);
}

// Values that a format cannot hold are named, and no file appears.
static void test_not_finite(void **state) {
    (void)state;
    float values[64] = {0};
    struct tensor t = {.name = STR("w"), .format = FORMAT_F32, .n_dims = 2, .ne = {32, 2, 1, 1}, .n_bytes = 256};
    t.data = (const uint8_t *)values;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e6f};
    static const enum format formats[] = {FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_F16};
    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        for (size_t f = 0; f < ARRAY_LEN(formats); f++) {
            struct opened o = pico_open();
            struct tern_err err = {0};
            struct quantize_result r;
            values[40] = bad[k];
            struct model_export_tensor *e = &o.x->tensors[o.x->n_tensors - 1];
            *e = (struct model_export_tensor){
                .name = e->name, .from = &t, .n_dims = 2, .ne = {32, 2, 1, 1}, .n_rows = 2, .format = formats[f]};
            for (int i = 0; i + 1 < o.x->n_tensors; i++) o.x->tensors[i].format = o.x->tensors[i].from->format;
            o.x->tensors[0] = *e;
            o.x->n_tensors = 1;
            enum tern_status status = quantize_write(o.x, 1, file_path("bad.gguf"), 1, &r, &err);
            if (bad[k] == 1e6f && formats[f] != FORMAT_F16) {
                assert_int_equal(status, TERN_OK);
                os_remove(file_path("bad.gguf"), NULL);
            } else {
                assert_int_equal(status, TERN_BAD_FORMAT);
                assert_non_null(strstr(err.message, "row 1"));
            }
            assert_int_equal(files_count(), 0);
            opened_close(o);
        }
    }
}

// Every write, sync and rename fails once: told, and nothing remains.
static void test_disk_full(void **state) {
    (void)state;
    struct opened o = pico_open();
    o.x->n_tensors = 3;
    for (int i = 0; i < 3; i++) o.x->tensors[i].format = FORMAT_F32;
    int n_failed = 0;
    for (int at = 1; at < 100; at++) {
        struct tern_err err = {0};
        struct quantize_result r;
        os_fail_at((uint64_t)at, ENOSPC);
        enum tern_status status = quantize_write(o.x, 0, file_path("full.gguf"), 1, &r, &err);
        os_fail_at(0, 0);
        if (status == TERN_OK) break;
        assert_int_equal(status, TERN_NO_SPACE);
        // When only the folder could not be synced the file is whole and in place.
        if (files_count() > 0) os_remove(file_path("full.gguf"), NULL);
        assert_int_equal(files_count(), 0);
        n_failed++;
    }
    assert_true(n_failed > 5 && n_failed < 99);
    os_remove(file_path("full.gguf"), NULL);
    opened_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_types), cmocka_unit_test(test_rules),   cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_overrides), cmocka_unit_test(test_refused), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_disk_full),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
