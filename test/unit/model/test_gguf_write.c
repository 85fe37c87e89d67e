// A model written as GGUF and read again: tensors bit for bit, keys as they were, folders as the converter's files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include "base/base.h"
#include "model/model.h"

// Value k of a row of floats, in the format wanted.
static void float_put(const struct model_export_tensor *t, const uint8_t *row, int64_t k, struct buf *out) {
    const float v = t->from->format == FORMAT_F32   ? f32_from_bits(load_u32(row + 4 * k))
                    : t->from->format == FORMAT_F16 ? f16_to_f32(load_u16(row + 2 * k))
                                                    : bf16_to_f32(load_u16(row + 2 * k)); // experts are of one format
    const uint16_t half = t->format == FORMAT_F16 ? f32_to_f16(v) : f32_to_bf16(v);
    assert_true(format_is_float(t->from->format) && format_is_float(t->format));
    if (t->format == FORMAT_F32)
        buf_put(out, &v, sizeof v);
    else
        buf_put(out, &half, sizeof half);
}

// Writes x to memory, converting no more than copies and bf16/f16 -> f32 ask for.
static void export_put(struct model_export *x, struct buf *out) {
    struct tern_err err = {0};
    buf_init(out, 64u << 20);
    if (model_export_head(x, 1, out, &err) != TERN_OK) fail_msg("%s", err.message);
    const size_t head = out->len;
    for (int i = 0; i < x->n_tensors; i++) {
        const struct model_export_tensor *t = &x->tensors[i];
        while (out->len < head + t->offset) buf_putc(out, 0);
        if (!t->from) {
            buf_put(out, t->values, (size_t)t->n_bytes);
            continue;
        }
        const size_t row_bytes = (size_t)(t->from->n_bytes / (uint64_t)(t->n_rows / (t->experts ? t->ne[2] : 1)));
        for (int64_t r = 0; r < t->n_rows; r++) {
            int64_t from_row;
            const struct tensor *from = model_export_row(t, r, &from_row);
            const uint8_t *row = from->data + (size_t)from_row * row_bytes;
            for (int64_t k = 0; k < t->ne[0] && t->format != t->from->format; k++) float_put(t, row, k, out);
            if (t->format == t->from->format) buf_put(out, row, row_bytes);
        }
    }
    while (out->len < head + x->n_bytes_data) buf_putc(out, 0);
    assert_false(out->failed);
}

static void meta_put(void *arg, const char *key, const char *type, const char *value) {
    if (strcmp(key, "general.file_type") == 0 || strncmp(key, "split.", 6) == 0) return;
    if (strcmp(key, "general.quantization_version") == 0) return;
    buf_putf(arg, "%s %s %s\n", key, type, value);
}

static void tensors_compare(const struct model *got, const struct model *want) {
    for (int i = 0; i < want->n_tensors; i++) {
        const struct tensor *w = &want->tensors[i];
        char name[128];
        assert_true(w->name.len < sizeof name);
        memcpy(name, w->name.data, w->name.len);
        name[w->name.len] = 0;
        const struct tensor *g = model_tensor_find(got, name);
        if (!g) fail_msg("tensor %s is missing", name);
        assert_int_equal(g->format, w->format);
        assert_memory_equal(g->ne, w->ne, sizeof w->ne);
        assert_int_equal(g->n_bytes, w->n_bytes);
        if (strcmp(name, "rope_freqs.weight") == 0) { // computed here in double, there in float
            for (size_t k = 0; k < w->n_bytes; k += 4) {
                const float a = f32_from_bits(load_u32(g->data + k)), b = f32_from_bits(load_u32(w->data + k));
                assert_true(fabsf(a - b) <= 1e-6f * b);
            }
            continue;
        }
        if (memcmp(g->data, w->data, (size_t)w->n_bytes) != 0) fail_msg("tensor %s holds other bytes", name);
    }
    assert_int_equal(got->n_tensors, want->n_tensors);
}

static void test_gguf_again(void **state) {
    (void)state;
    static const char *const files[] = {TEST_DATA "/gguf/script-lfm2.gguf", TEST_DATA "/gguf/00-sound.gguf",
                                        TEST_DATA "/hf/llama-scaled/model.gguf", TEST_MODELS "/pico.gguf"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct model *m, *again;
        struct model_export *x;
        struct tern_err err = {0};
        struct buf file, keys, keys_again;
        if (model_open(&m, files[i], &err) != TERN_OK) fail_msg("%s", err.message);
        assert_int_equal(model_export_create(&x, m, NULL, &err), TERN_OK);
        for (int k = 0; k < x->n_tensors; k++) x->tensors[k].format = x->tensors[k].from->format; // nothing changes
        export_put(x, &file);
        if (model_open_memory(&again, "again", file.data, file.len, &err) != TERN_OK) fail_msg("%s", err.message);
        tensors_compare(again, m);
        buf_init(&keys, 1u << 20);
        buf_init(&keys_again, 1u << 20);
        model_meta_each(m, meta_put, &keys);
        model_meta_each(again, meta_put, &keys_again);
        assert_string_equal(keys.data, keys_again.data);
        assert_int_equal(m->vocab.n_tokens, again->vocab.n_tokens);
        for (int k = 0; k < m->vocab.n_tokens; k++) assert_true(str_eq(m->vocab.tokens[k], again->vocab.tokens[k]));
        assert_true(str_eq(m->vocab.chat_template, again->vocab.chat_template));
        buf_release(&keys);
        buf_release(&keys_again);
        model_close(again);
        buf_release(&file);
        model_export_free(x);
        model_close(m);
    }
}

// The folders have the file that the converter's rules make of them beside them.
static void test_folder(void **state) {
    (void)state;
    static const char *const folders[] = {"lfm2-taps3", "lfm2-taps4", "llama-plain", "llama-scaled", "qwen3-tied",
                                          "qwen3-yarn", "lfm2moe",    "qwen3moe",    "gemma3",       "lfm2-encoder"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char path[512], path_gguf[544];
        snprintf(path, sizeof path, "%s/hf/%s", TEST_DATA, folders[i]);
        snprintf(path_gguf, sizeof path_gguf, "%s/model.gguf", path);
        struct model *m, *want, *got;
        struct model_export *x;
        struct tern_err err = {0};
        struct buf file;
        if (model_open(&m, path, &err) != TERN_OK) fail_msg("%s", err.message);
        assert_int_equal(model_open(&want, path_gguf, &err), TERN_OK);
        assert_false(model_is_gguf(m));
        assert_true(model_is_gguf(want));
        if (model_export_create(&x, m, NULL, &err) != TERN_OK) fail_msg("%s", err.message);
        assert_int_equal(x->warning != NULL, strcmp(folders[i], "lfm2moe") == 0); // its experts' scale is 1.5
        for (int k = 0; k < x->n_tensors; k++) {
            char name[128];
            snprintf(name, sizeof name, "%.*s", (int)x->tensors[k].name.len, x->tensors[k].name.data);
            const struct tensor *w = model_tensor_find(want, name);
            if (!w) fail_msg("%s: the converter writes no %s", folders[i], name);
            x->tensors[k].format = w->format;
        }
        export_put(x, &file);
        if (model_open_memory(&got, "got", file.data, file.len, &err) != TERN_OK) fail_msg("%s", err.message);
        tensors_compare(got, want);
        assert_string_equal(got->arch_name, want->arch_name);
        want->hyper.n_vocab_used = want->hyper.n_vocab; // one of the files has a tokenizer
        assert_memory_equal(&got->hyper, &want->hyper, offsetof(struct model_hyper, rope_factors));
        const struct model_hyper *a = &got->hyper, *b = &want->hyper;
        assert_int_equal(a->rope_factors != NULL, b->rope_factors != NULL);
        for (int k = 0; a->rope_factors && k < a->head_dim / 2; k++)
            assert_true(fabsf(a->rope_factors[k] - b->rope_factors[k]) <= 1e-6f * b->rope_factors[k]);
        assert_true(a->attn_scale == b->attn_scale && a->embed_scale == b->embed_scale);
        assert_true(a->rope_base_local == b->rope_base_local && a->bidirectional == b->bidirectional);
        for (int k = 0; k < want->hyper.n_layers; k++) {
            assert_int_equal(got->layers[k].kind, want->layers[k].kind);
            assert_int_equal(got->layers[k].n_head_kv, want->layers[k].n_head_kv);
            assert_int_equal(got->layers[k].window, want->layers[k].window);
            assert_int_equal(got->layers[k].router != NULL, want->layers[k].router != NULL);
        }
        model_close(got);
        model_close(want);
        model_export_free(x);
        model_close(m);
        buf_release(&file);
    }
}

// What the format has no word for is refused: every reader would compute something else.
static void test_no_form(void **state) {
    (void)state;
    static const struct {
        const char *folder, *text;
    } cases[] = {{"gemma3-plain", "the scale of scores"}, {"qwen3moe-mixed", "norm_topk_prob false"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[512];
        struct model *m;
        struct model_export *x = NULL;
        struct tern_err err = {0};
        snprintf(path, sizeof path, "%s/hf/%s", TEST_DATA, cases[i].folder);
        assert_int_equal(model_open(&m, path, &err), TERN_OK);
        assert_int_equal(model_export_create(&x, m, NULL, &err), TERN_UNSUPPORTED);
        if (!strstr(err.message, cases[i].text)) fail_msg("'%s' is not in: %s", cases[i].text, err.message);
        assert_null(x);
        if (i == 1) { // and when that is as usual, the layer without experts
            m->hyper.router_norm = true;
            assert_int_equal(model_export_create(&x, m, NULL, &err), TERN_UNSUPPORTED);
            assert_non_null(strstr(err.message, "a layer without experts"));
        }
        model_close(m);
    }
}

// Gemma's windows in an order of their own become a list; a list of another length is refused.
static void test_window_list(void **state) {
    (void)state;
    static const int windows[] = {0, 20, 20};
    struct model *m, *got = NULL;
    struct model_export *x;
    struct tern_err err = {0};
    struct buf file;
    assert_int_equal(model_open(&m, TEST_DATA "/hf/gemma3", &err), TERN_OK);
    for (int i = 0; i < 3; i++) m->layers[i].window = windows[i];
    if (model_export_create(&x, m, NULL, &err) != TERN_OK) fail_msg("%s", err.message);
    export_put(x, &file);
    if (model_open_memory(&got, "got", file.data, file.len, &err) != TERN_OK) fail_msg("%s", err.message);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(got->layers[i].window, windows[i]);
        assert_int_equal(got->layers[i].rope_local, windows[i] > 0);
    }
    model_close(got);
    static const char key[] = "gemma3.attention.sliding_window_pattern";
    size_t at = str_find(buf_str(&file), STR(key), 0);
    assert_true(at != (size_t)-1);
    char *n_items = file.data + at + strlen(key) + 8; // behind the types of the value and of its items
    assert_int_equal(*n_items, 3);
    *n_items = 2;
    file.data[at + strlen(key) + 18] = 0; // the third truth value: now the start of the next key's length
    assert_int_not_equal(model_open_memory(&got, "got", file.data, file.len, &err), TERN_OK);
    model_export_free(x);
    model_close(m);
    buf_release(&file);
}

// Taps have two sizes in a GGUF file, from MLX's order of sizes too; llama.cpp takes no others.
static void test_taps(void **state) {
    (void)state;
    static const char *const folders[] = {"lfm2-taps4", "lfm2-mlx8"};
    static const int64_t sizes[][2] = {{4, 32}, {3, 64}};
    static const int layers[] = {3, 2};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char path[512];
        struct model *m;
        struct model_export *x;
        struct tern_err err = {0};
        int n = 0;
        snprintf(path, sizeof path, "%s/hf/%s", TEST_DATA, folders[i]);
        assert_int_equal(model_open(&m, path, &err), TERN_OK);
        if (model_export_create(&x, m, NULL, &err) != TERN_OK) fail_msg("%s", err.message);
        for (int k = 0; k < x->n_tensors; k++) {
            const struct model_export_tensor *t = &x->tensors[k];
            if (!str_ends(t->name, STR("shortconv.conv.weight"))) continue;
            n++;
            assert_int_equal(t->n_dims, 2);
            assert_memory_equal(t->ne, sizes[i], sizeof sizes[i]);
        }
        assert_int_equal(n, layers[i]);
        model_export_free(x);
        model_close(m);
    }
}

static void test_vocab(void **state) {
    (void)state;
    struct str tokens[96], merges[] = {STR("t1 t2")};
    int32_t types[96];
    char names[96][8];
    for (int i = 0; i < 96; i++) {
        types[i] = i == 0 ? 3 : 1;
        tokens[i] = (struct str){names[i], (size_t)snprintf(names[i], sizeof names[i], "t%d", i)};
    }
    struct model_export_vocab vocab = {tokens, types, 96, merges, 1, "lfm2", true, NULL, -1};
    struct model *m, *got;
    struct model_export *x;
    struct tern_err err = {0};
    struct buf file;
    assert_int_equal(model_open(&m, TEST_DATA "/hf/lfm2-taps4", &err), TERN_OK);
    assert_int_equal(model_export_create(&x, m, &vocab, &err), TERN_OK);
    x->name = "a name";
    export_put(x, &file);
    if (model_open_memory(&got, "got", file.data, file.len, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_string_equal(got->name, "a name");
    assert_int_equal(got->vocab.n_tokens, 96);
    assert_int_equal(got->vocab.n_merges, 1);
    assert_true(str_eq(got->vocab.merges[0], merges[0]));
    assert_true(str_eqz(got->vocab.pre, "lfm2"));
    assert_int_equal(got->vocab.types[0], 3);
    assert_int_equal(got->vocab.add_bos, 1);
    assert_int_equal(got->vocab.bos, m->vocab.bos);
    assert_int_equal(got->vocab.eos, m->vocab.eos);
    model_close(got);
    model_export_free(x);
    model_close(m);
    buf_release(&file);
}

// Places are multiples of the alignment and do not overlap; a format that rows do not fit is refused.
static void test_places(void **state) {
    (void)state;
    struct model *m;
    struct model_export *x;
    struct tern_err err = {0};
    struct buf head;
    buf_init(&head, 1u << 24);
    assert_int_equal(model_open(&m, TEST_MODELS "/pico.gguf", &err), TERN_OK);
    assert_int_equal(model_export_create(&x, m, NULL, &err), TERN_OK);
    assert_int_equal(model_export_head(x, 1, &head, &err), TERN_OK);
    assert_int_equal(head.len % x->align, 0);
    uint64_t end = 0;
    for (int i = 0; i < x->n_tensors; i++) {
        assert_int_equal(x->tensors[i].offset % x->align, 0);
        assert_true(x->tensors[i].offset >= end);
        end = x->tensors[i].offset + x->tensors[i].n_bytes;
    }
    assert_true(x->n_bytes_data >= end && x->n_bytes_data < end + x->align);
    buf_clear(&head);
    int k = 0;
    while (x->tensors[k].n_dims < 2 || x->tensors[k].ne[0] % 256 == 0) k++;
    x->tensors[k].format = FORMAT_Q4_K;
    assert_int_equal(model_export_head(x, 1, &head, &err), TERN_BAD_FORMAT);
    model_export_free(x);
    model_close(m);
    buf_release(&head);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_again),  cmocka_unit_test(test_folder), cmocka_unit_test(test_no_form),
        cmocka_unit_test(test_window_list), cmocka_unit_test(test_taps),   cmocka_unit_test(test_vocab),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
