// What users of other loaders ran into: files from public bug reports with the right behaviour (ids as in the list of
// cases). Refusals are quick, small and say the cause; sound files open. L13's merges are judged by the tokenizer: here
// its files open, but for the token that is not UTF-8.
#include "model_test_util.h"

#define GGUF TEST_DATA "/gguf/"
#define ST TEST_DATA "/safetensors/"

struct load_case {
    const char *id;
    const char *path;
    enum tern_status status; // TERN_OK: opens
    const char *text;        // of the message; of the warning when it opens
};

static const struct load_case cases[] = {
    {"L01", GGUF "01-ndims-9.gguf", TERN_BAD_FORMAT, "blk.0.ffn_gate.weight has 9 dimensions"},
    {"L01", GGUF "02-ndims-4294967295.gguf", TERN_BAD_FORMAT, "has 4294967295 dimensions"},
    {"L03", GGUF "05-zero-dim.gguf", TERN_BAD_FORMAT, "blk.0.ffn_up.weight: dimension 1 is zero"},
    {"L07", GGUF "15-truncated-data.gguf", TERN_BAD_FORMAT, "7338 bytes are missing"},
    {"L07", GGUF "16-truncated-header.gguf", TERN_BAD_FORMAT, "are missing"},
    {"L07", GGUF "17-offset-past-end.gguf", TERN_BAD_FORMAT, "1099511508224 bytes are missing"},
    {"L07", GGUF "18-offset-near-2_64.gguf", TERN_BAD_FORMAT, "overflows"},
    {"L07", GGUF "48-magic-only.gguf", TERN_BAD_FORMAT, "missing"},
    {"L07", GGUF "49-empty.gguf", TERN_BAD_FORMAT, "the file is empty"},
    {"L09", GGUF "23-type-999.gguf", TERN_BAD_FORMAT, "blk.0.ffn_up.weight has unknown type 999"},
    {"L09", GGUF "24-kv-type-77.gguf", TERN_BAD_FORMAT, "key odd: unknown value type 77"},
    {"L11", GGUF "32-eos-out-of-range.gguf", TERN_BAD_FORMAT, "eos_token_id is 1000000, past the last of 274 tokens"},
    {"L11", GGUF "34-more-tokens-than-rows.gguf", TERN_BAD_FORMAT, "276 tokens, more than the 274 rows"},
    {"L13", GGUF "37-merge-without-space.gguf", TERN_OK, ""},
    {"L13", GGUF "38-merge-of-unknown-tokens.gguf", TERN_OK, ""},
    {"L13", GGUF "39-token-invalid-utf8.gguf", TERN_BAD_FORMAT, "token 273 is not valid UTF-8"},
    {"L14", GGUF "41-arch-unknown.gguf", TERN_UNSUPPORTED, "architecture 'lfm9'"},
    {"L14", GGUF "45-version-1.gguf", TERN_UNSUPPORTED, "version 1 "},
    {"L14", GGUF "46-version-99.gguf", TERN_UNSUPPORTED, "version 99 "},
    {"L14", GGUF "47-big-endian.gguf", TERN_UNSUPPORTED, "byte-swapped"},
    {"L14", GGUF "50-html-page.gguf", TERN_BAD_FORMAT, "an HTML page"},
    {"L14", GGUF "51-lfs-pointer.gguf", TERN_BAD_FORMAT, "a Git LFS pointer"},
    {"L14", GGUF "54-name-10k-long.gguf", TERN_LIMIT, "10000 bytes long, at most 64"},
    {"L15", GGUF "00-sound.gguf", TERN_OK, ""},
    {"L15", GGUF "53-trailing-garbage.gguf", TERN_OK, ""},
    {"L15", GGUF "33-fewer-tokens-than-rows.gguf", TERN_OK, ""},
    {"L15", GGUF "script-lfm2.gguf", TERN_OK, ""},
    {"L15", ST "script-hf", TERN_OK, ""},
    {"L25", GGUF "42-ff-says-raw-width.gguf", TERN_OK, "feed_forward_length means width 48"},
};

static const struct load_case tables[] = {
    {"L19", ST "01-header-longer-than-file.safetensors", TERN_BAD_FORMAT, "header of 1099511627776 bytes"},
    {"L19", ST "02-header-length-2_64-1.safetensors", TERN_BAD_FORMAT, "header of 18446744073709551615 bytes"},
    {"L19", ST "03-header-zero.safetensors", TERN_BAD_FORMAT, "the header is not a JSON object"},
    {"L19", ST "04-header-not-json.safetensors", TERN_BAD_FORMAT, "the header is not a JSON object"},
    {"L19", ST "05-header-is-array.safetensors", TERN_BAD_FORMAT, "the header is not a JSON object"},
    {"L19", ST "06-header-200k-deep.safetensors", TERN_LIMIT, "nested deeper"},
    {"L19", ST "13-shape-product-wraps.safetensors", TERN_BAD_FORMAT, "product of its dimensions overflows"},
    {"L19", ST "15-past-end.safetensors", TERN_BAD_FORMAT, "1584 bytes are missing"},
    {"L19", ST "16-unknown-dtype-huge-offset.safetensors", TERN_BAD_FORMAT, "unknown dtype Q9"},
    {"L19", ST "17-negative-offset.safetensors", TERN_BAD_FORMAT, "non-negative integers"},
    {"L19", ST "18-float-offset.safetensors", TERN_BAD_FORMAT, "non-negative integers"},
    {"L19", ST "21-invalid-utf8-name.safetensors", TERN_BAD_FORMAT, "UTF-8"},
    {"L20", ST "00-sound.safetensors", TERN_OK, ""},
    {"L20", ST "19-unsorted-but-sound.safetensors", TERN_OK, ""},
    {"L20", ST "20-empty-tensor-sound.safetensors", TERN_OK, ""},
};

typedef enum tern_status (*open_fn)(struct model **, const char *, struct tern_err *);

static int case_wrong(const struct load_case *c, open_fn open) {
    struct tern_err err = {0};
    struct model *m = NULL;
    struct mem_stats before = mem_stats_get();
    uint64_t start = clock_ns();
    enum tern_status status = open(&m, c->path, &err);
    uint64_t ns = clock_ns() - start;
    char text[TERN_ERR_MESSAGE_MAX];
    snprintf(text, sizeof(text), "%.*s", status == TERN_OK ? (int)m->warning.len : (int)strlen(err.message),
             status == TERN_OK ? m->warning.data : err.message);
    if (status == TERN_OK) model_close(m);
    struct mem_stats after = mem_stats_get();
    bool right = status == c->status && strstr(text, c->text) && ns < REFUSAL_NS_MAX && after.n_live == before.n_live &&
                 after.bytes_max < before.bytes_now + EXTRA_BYTES_MAX;
    // A refusal names the file.
    if (status != TERN_OK) right = right && err.code == status && strstr(text, c->path) == text;
    if (status == TERN_OK && c->text[0] == 0) right = right && text[0] == 0;
    if (!right) print_error("%s %s: %s: \"%s\"\n", c->id, c->path, tern_status_text(status), text);
    return !right;
}

static void test_cases(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) n_wrong += case_wrong(&cases[i], model_open);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) n_wrong += case_wrong(&tables[i], model_open_table);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) { // alone, a sound one is no model either
        struct load_case c = tables[i];
        if (c.status == TERN_OK) c.status = TERN_NOT_FOUND, c.text = "no config.json beside it";
        n_wrong += case_wrong(&c, model_open);
    }
    assert_int_equal(n_wrong, 0);
}

// L06: nested arrays 100,000 deep (1.2 MB, so the file is made here) are in test_gguf_malformed.c.

// L11: rows past the tokens are padding.
static void test_padding(void **state) {
    (void)state;
    struct model *m;
    struct tern_err err = {0};
    if (model_open(&m, GGUF "33-fewer-tokens-than-rows.gguf", &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(m->hyper.n_vocab, 274);
    assert_int_equal(m->hyper.n_vocab_used, 271);
    assert_int_equal(m->vocab.n_tokens, 271);
    model_close(m);
}

// L25: the tensors' width counts, whatever the key says.
static void test_width_of_tensors(void **state) {
    (void)state;
    struct model *m;
    struct tern_err err = {0};
    if (model_open(&m, GGUF "42-ff-says-raw-width.gguf", &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(m->hyper.n_ff, 32);
    assert_int_equal(m->layers[0].ffn_gate->ne[1], 32);
    model_close(m);
}

// L24: the width rule.
static void test_width_rule(void **state) {
    (void)state;
    assert_int_equal(lfm2_ff_width(6656, true, true, 1.0, 256), 4608);
    assert_int_equal(lfm2_ff_width(10240, true, true, 1.0, 256), 6912);
    assert_int_equal(lfm2_ff_width(12288, true, true, 1.0, 256), 8192);
    assert_int_equal(lfm2_ff_width(10752, false, true, 1.0, 256), 10752);
    assert_int_equal(lfm2_ff_width(12288, true, false, 0, 256), 8192);
    assert_int_equal(lfm2_ff_width(1000, true, true, 1.5, 100), 1000); // floor(1.5*666) = 999, up to 1000
    assert_int_equal(lfm2_ff_width(1, true, false, 0, 256), -1);       // two thirds of one
    assert_int_equal(lfm2_ff_width(0, false, false, 0, 256), -1);
    assert_int_equal(lfm2_ff_width(INT64_MAX, true, false, 0, 256), -1);
    assert_int_equal(lfm2_ff_width(12288, true, true, 1e300, 256), -1);
    assert_int_equal(lfm2_ff_width(12288, true, true, (double)f32_from_bits(0x7fc00000), 256), -1);
    assert_int_equal(lfm2_ff_width(12288, true, false, 0, 0), -1);
    assert_int_equal(lfm2_ff_width(12288, true, false, 0, INT64_MAX), -1);
}

// ------------------------------------------------------------------------------------------------ L23

static void variant_open(const char *variant, enum tern_status status, const char *text, struct model **out) {
    char from[512], to[512];
    struct tern_err err = {0};
    struct buf config;
    buf_init(&config, 1u << 20);
    snprintf(from, sizeof(from), ST "variants/%s.config.json", variant);
    file_get(&config, from);
    tmp_write("variant/config.json", buf_str(&config));
    buf_release(&config);
    enum tern_status got = model_open(out, tmp_path("variant", to), &err);
    if (got != status) fail_msg("%s: %s", variant, got == TERN_OK ? "opened" : err.message);
    if (status != TERN_OK && !strstr(err.message, text)) fail_msg("%s: %s", variant, err.message);
}

static void test_variants(void **state) {
    (void)state;
    static const char *const files[] = {"model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json", "chat_template.jinja"};
    static const char *const sound[] = {"rope-nested", "attn-idxs", "nulls", "eos-list"};
    char path[512], name[128];
    struct tern_err err = {0};
    struct buf b;
    struct model *m, *plain;
    buf_init(&b, 4u << 20);
    if (os_mkdirs(tmp_path("variant", path), &err) != TERN_OK) fail_msg("%s", err.message);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), ST "script-hf/%s", files[i]);
        file_get(&b, path);
        snprintf(name, sizeof(name), "variant/%s", files[i]);
        tmp_write(name, buf_str(&b));
    }
    buf_release(&b);
    if (model_open(&plain, ST "script-hf", &err) != TERN_OK) fail_msg("%s", err.message);
    assert_true(plain->hyper.rope_base == 1e6f);
    for (size_t i = 0; i < ARRAY_LEN(sound); i++) {
        variant_open(sound[i], TERN_OK, "", &m);
        assert_true(m->hyper.rope_base == 1000000.0f);
        assert_int_equal(m->warning.len, 0);
        assert_memory_equal(&m->hyper, &plain->hyper, offsetof(struct model_hyper, rope_factors));
        for (int l = 0; l < m->hyper.n_layers; l++) assert_int_equal(m->layers[l].kind, plain->layers[l].kind);
        assert_int_equal(m->vocab.eos, 7);
        assert_int_equal(m->vocab.n_eos_more, 1);
        assert_int_equal(m->vocab.eos_more[0], 2);
        model_close(m);
    }
    model_close(plain);
    variant_open("no-layer-kinds", TERN_BAD_FORMAT, "layer_types or full_attn_idxs", &m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_padding),
                                       cmocka_unit_test(test_width_of_tensors), cmocka_unit_test(test_width_rule),
                                       cmocka_unit_test(test_variants)};
    return cmocka_run_group_tests(tests, NULL, tmp_end);
}
