// MLX checkpoints, quantised by MLX itself (test/data/hf, tools/vectors/make_hf_vectors.py): what matrices become of
// codes, scales and biases, and every refusal by its own cause.
#include "model_test_util.h"

#define FOLDER TEST_DATA "/hf/llama-mlx4"
#define BAD TERN_BAD_FORMAT
#define NOT TERN_UNSUPPORTED
#define QUANT "\"quantization\":"

static struct buf weights, config; // of FOLDER

static int setup(void **state) {
    (void)state;
    char path[512];
    assert_int_equal(os_mkdirs(tmp_path("m", path), NULL), TERN_OK);
    buf_init(&weights, 1u << 20);
    buf_init(&config, 1u << 20);
    file_get(&weights, FOLDER "/model.safetensors");
    file_get(&config, FOLDER "/config.json");
    return 0;
}

static int teardown(void **state) {
    buf_release(&weights);
    buf_release(&config);
    return tmp_end(state);
}

// The first `from` in b becomes `to`, of the same length.
static void bytes_change(struct buf *b, const char *from, const char *to) {
    const size_t n = strlen(from);
    assert_int_equal(n, strlen(to));
    for (size_t i = 0; i + n <= b->len; i++) {
        if (memcmp(b->data + i, from, n) != 0) continue;
        memcpy(b->data + i, to, n);
        return;
    }
    fail_msg("%s is not there", from);
}

// Opens the folder with `quantisation` in place of the file's own two objects (NULL: as they are).
static enum tern_status open_with(const char *quantisation, const char *from, const char *to, struct model **out,
                                  struct tern_err *err) {
    struct buf w, c;
    char path[512];
    buf_init(&w, 1u << 20);
    buf_init(&c, 1u << 20);
    buf_put(&w, weights.data, weights.len);
    if (from) bytes_change(&w, from, to);
    buf_put(&c, config.data, config.len);
    if (quantisation) { // the last of equal keys would be refused, so the file's get other names
        bytes_change(&c, "\"quantization\"", "\"quantizatioX\"");
        bytes_change(&c, "\"quantization_config\"", "\"quantization_confiX\"");
        c.len--;
        while (c.data[c.len] != '}') c.len--;
        buf_putf(&c, ",%s}", quantisation);
    }
    tmp_write("m/model.safetensors", buf_str(&w));
    tmp_write("m/config.json", buf_str(&c));
    buf_release(&w);
    buf_release(&c);
    return model_open(out, tmp_path("m", path), err);
}

static void test_matrices(void **state) {
    (void)state;
    struct model *m = NULL;
    struct tern_err err = {0};
    if (open_with(NULL, NULL, NULL, &m, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(m->format_main, FORMAT_MLX4_32_BF16);
    assert_int_equal(m->embedding->format, FORMAT_MLX4_32_BF16);
    assert_int_equal(m->layers[0].o->format, FORMAT_BF16); // "false" in config.json
    assert_int_equal(m->layers[1].o->format, FORMAT_MLX4_32_BF16);
    assert_int_equal(m->layers[1].ffn_down->format, FORMAT_MLX8_32_BF16);
    assert_true(m->layers[1].ffn_down->ne[0] == 96 && m->layers[1].ffn_down->ne[1] == 64);
    const struct tensor *t = m->layers[1].ffn_down;
    assert_true(!t->data && tensor_has_data(t));
    assert_int_equal(t->n_bytes, 64 * 3 * 36);
    assert_int_equal(m->n_params, 2 * 96 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96) + 5 * 64);
    uint8_t row[3 * 36], block[36];
    model_tensor_read(t, 5, 0, 96, row);
    for (int g = 0; g < 3; g++) {
        model_tensor_read(t, 5, 32 * g, 32, block);
        assert_memory_equal(block, row + 36 * g, 36);
        assert_memory_equal(block, t->parts->scales + (5 * 3 + g) * 2, 2);
        assert_memory_equal(block + 2, t->parts->biases + (5 * 3 + g) * 2, 2);
        assert_memory_equal(block + 4, t->parts->codes + 5 * 96 + 32 * g, 32);
    }
    model_tensor_drop(m, t);
    model_tensor_read(t, 5, 64, 32, block);
    assert_memory_equal(block, row + 72, 36);
    model_close(m);
}

static const struct kind {
    const char *quantisation, *from, *to;
    enum tern_status status;
    const char *text;
} kinds[] = {
    {"\"none\":0", NULL, NULL, NOT, "dtype U32, which is not supported: config.json has no quantization"},
    {QUANT "null", NULL, NULL, NOT, "config.json has no quantization"},
    {QUANT "4", NULL, NULL, BAD, "quantization must be an object"},
    {QUANT "{\"bits\":4,\"group_size\":32,\"quant_method\":\"gptq\"}", NULL, NULL, NOT, "quantised safetensors"},
    {QUANT "{\"group_size\":32}", NULL, NULL, NOT, "quantised safetensors"},
    {QUANT "{\"bits\":4,\"group_size\":32,\"mode\":\"mxfp4\"}", NULL, NULL, NOT, "mode mxfp4"},
    {QUANT "{\"bits\":7,\"group_size\":32}", NULL, NULL, NOT, "codes of 7 bits in groups of 32"},
    {QUANT "{\"bits\":3,\"group_size\":32}", NULL, NULL, BAD, "scales for"},
    {QUANT "{\"bits\":-4,\"group_size\":32}", NULL, NULL, NOT, "codes of -4 bits"},
    {QUANT "{\"bits\":0,\"group_size\":32}", NULL, NULL, NOT, "codes of 0 bits"},
    {QUANT "{\"bits\":4,\"group_size\":16}", NULL, NULL, NOT, "groups of 16"},
    {QUANT "{\"bits\":4,\"group_size\":64}", NULL, NULL, BAD, "scales for"},
    {QUANT "{\"bits\":8,\"group_size\":32}", NULL, NULL, BAD, "scales for"},
    {QUANT "{\"bits\":4,\"group_size\":32,\"model.layers.1.mlp.down_proj\":{\"bits\":\"8\"}}", NULL, NULL, BAD,
     "bits must be an integer"},
    {QUANT "{\"bits\":4,\"group_size\":32,\"lm_head\":false}", NULL, NULL, BAD, "it is not quantised"},
    {NULL, "lm_head.scales", "lm_head.scaleX", BAD, "lm_head.weight holds codes, but there is no lm_head.scales"},
    {NULL, "lm_head.biases", "lm_head.biaseX", BAD, "there is no lm_head.biases"},
    {NULL, "\"BF16\"", "\"F16\" ", BAD, "differ in type"},
    {NULL, "lm_head.weight", "lm_head.weighX", NOT, "no matrix with a name that ends in .weight"},
};

static void test_kinds(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        struct model *m = NULL;
        struct tern_err err = {0};
        struct mem_stats before = mem_stats_get();
        enum tern_status status = open_with(k->quantisation, k->from, k->to, &m, &err);
        if (status == TERN_OK) model_close(m);
        if (status == k->status && strstr(err.message, k->text) && mem_stats_get().n_live == before.n_live) continue;
        print_error("%s %s: %s: \"%s\"\n", k->quantisation ? k->quantisation : k->from, k->text,
                    tern_status_text(status), err.message);
        n_wrong++;
    }
    assert_int_equal(n_wrong, 0);
}

// Weights alone do not say what their codes mean.
static void test_alone(void **state) {
    (void)state;
    struct model *m = NULL;
    struct tern_err err = {0};
    assert_int_equal(model_open_memory(&m, "alone", weights.data, weights.len, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "no config.json says what its bits mean"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matrices), cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_alone)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
