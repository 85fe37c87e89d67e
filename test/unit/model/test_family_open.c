// Models with experts and with windows, from both kinds of file: what the parameters and the bound tensors are, and
// files that are nearly right: each is refused by its own cause. The files are small ones of test/data/hf with one
// thing changed.
#include "model_test_util.h"
#include <math.h>

#define LFM2_GGUF TEST_DATA "/hf/lfm2moe/model.gguf"
#define QWEN3_GGUF TEST_DATA "/hf/qwen3moe/model.gguf"
#define GEMMA3_GGUF TEST_DATA "/hf/gemma3/model.gguf"
#define FILE_MAX (1u << 20)

static uint8_t *find(struct buf *b, const char *text) {
    size_t at = str_find(buf_str(b), str_from(text), 0);
    if (at == (size_t)-1) fail_msg("no '%s' in the file", text);
    return (uint8_t *)b->data + at;
}

static void check_experts(const struct model *m, int n, int used, int ff) {
    const struct model_hyper *h = &m->hyper;
    assert_true(h->n_expert == n && h->n_expert_used == used && h->n_ff_expert == ff);
    for (int i = 0; i < h->n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        assert_int_equal(l->router != NULL, l->experts != NULL);
        assert_int_equal(l->router != NULL, l->ffn_gate == NULL);
        for (int e = 0; l->experts && e < n; e++) {
            const struct model_expert *x = &l->experts[e];
            assert_true(x->gate->ne[0] == h->n_embd && x->gate->ne[1] == ff && x->gate->n_dims == 2);
            assert_true(x->up->ne[0] == h->n_embd && x->up->ne[1] == ff && x->down->ne[0] == ff);
            assert_true(x->down->ne[1] == h->n_embd && x->down->n_bytes == x->gate->n_bytes);
        }
    }
}

// Both kinds of file give the same experts.
static void test_sound(void **state) {
    (void)state;
    struct model *g, *h;
    struct tern_err err = {0};
    if (model_open(&g, LFM2_GGUF, &err) != TERN_OK) fail_msg("%s", err.message);
    if (model_open(&h, TEST_DATA "/hf/lfm2moe", &err) != TERN_OK) fail_msg("%s", err.message);
    const struct model *both[] = {g, h};
    for (int k = 0; k < 2; k++) {
        const struct model *m = both[k];
        assert_string_equal(m->arch_name, "lfm2moe");
        check_experts(m, 6, 2, 24);
        assert_true(m->hyper.router_sigmoid && m->hyper.router_norm && m->hyper.router_scale == 1.5f);
        assert_true(m->hyper.router_eps == 1e-6f);
        assert_true(!m->layers[0].router && m->layers[1].router && m->layers[2].router_bias);
        assert_int_equal(m->warning.len, 0);
    }
    const struct tensor *a = g->layers[1].experts[5].down, *b = h->layers[1].experts[5].down;
    for (size_t i = 0; i < 24 * 32; i++) // F16 there, BF16 here, the same numbers
        assert_true(f16_to_f32(load_u16(a->data + 2 * i)) == bf16_to_f32(load_u16(b->data + 2 * i)));
    assert_ptr_equal(a->whole, model_tensor_find(g, "blk.1.ffn_down_exps.weight"));
    assert_true(a->data + a->n_bytes == a->whole->data + a->whole->n_bytes);
    assert_null(b->whole);
    model_close(g);
    model_close(h);
    if (model_open(&g, QWEN3_GGUF, &err) != TERN_OK) fail_msg("%s", err.message);
    check_experts(g, 8, 3, 16);
    assert_true(!g->hyper.router_sigmoid && g->hyper.router_norm && g->hyper.router_scale == 1 && !g->layers[0].ffn_up);
    model_close(g);
    if (model_open(&g, TEST_DATA "/hf/qwen3moe-mixed", &err) != TERN_OK) fail_msg("%s", err.message);
    check_experts(g, 5, 2, 16);
    assert_true(!g->hyper.router_norm && g->layers[0].router && !g->layers[1].router && g->layers[1].ffn_gate);
    model_close(g);
}

// Both kinds of file give the same windows, rotations and norms.
static void test_windows(void **state) {
    (void)state;
    struct model *g, *h;
    struct tern_err err = {0};
    if (model_open(&g, GEMMA3_GGUF, &err) != TERN_OK) fail_msg("%s", err.message);
    if (model_open(&h, TEST_DATA "/hf/gemma3", &err) != TERN_OK) fail_msg("%s", err.message);
    const struct model *both[] = {g, h};
    for (int k = 0; k < 2; k++) {
        const struct model *m = both[k];
        const struct model_hyper *x = &m->hyper;
        assert_true(x->rope_base == 1e6f && x->rope_base_local == 1e4f && x->rope_factors && x->rope_factors[7] == 8);
        assert_true(x->ffn_gelu && x->attn_scale == 0.25f && fabsf(x->embed_scale - 5.656854f) < 1e-6f);
        assert_true(m->output == m->embedding);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(m->layers[i].window, i == 2 ? 0 : 20);
            assert_true(m->layers[i].rope_local == (i != 2));
            assert_true(m->layers[i].attn_post_norm && m->layers[i].ffn_post_norm && m->layers[i].q_norm);
        }
    }
    const float *a = (const float *)(const void *)g->layers[1].ffn_post_norm->data;
    const float *b = (const float *)(const void *)h->layers[1].ffn_post_norm->data; // w there is stored as w - 1
    assert_int_equal(h->layers[1].ffn_post_norm->format, FORMAT_F32);
    for (int i = 0; i < 32; i++) assert_true(a[i] == b[i] && b[i] > 0.7f && b[i] < 1.3f);
    model_close(g);
    model_close(h);
    struct buf file;
    buf_init(&file, FILE_MAX);
    file_get(&file, GEMMA3_GGUF);
    *find(&file, "gemma3.attention.sliding_window") = 'x'; // a file that says no size: no windows
    if (model_open_memory(&g, "g", file.data, file.len, &err) != TERN_OK) fail_msg("%s", err.message);
    for (int i = 0; i < 3; i++) assert_true(g->layers[i].window == 0 && !g->layers[i].rope_local);
    model_close(g);
    buf_release(&file);
    if (model_open(&h, TEST_DATA "/hf/gemma3-plain", &err) != TERN_OK) fail_msg("%s", err.message);
    assert_true(h->layers[0].window == 33 && h->layers[1].window == 0 && h->layers[2].window == 33);
    assert_true(!h->hyper.rope_factors && fabsf(h->hyper.attn_scale - 0.20412415f) < 1e-7f);
    model_close(h);
}

// A number behind a key, or a letter of a tensor's name, changed.
static void test_gguf_changed(void **state) {
    (void)state;
    static const struct {
        const char *file, *find;
        uint32_t value; // of the key; 0 with `letter`
        char letter;    // that replaces the text's first
        enum tern_status status;
        const char *text;
    } cases[] = {
        {LFM2_GGUF, "lfm2moe.expert_count", 0, 0, TERN_BAD_FORMAT, "expert_count is 0, must be 1 to 1024"},
        {LFM2_GGUF, "lfm2moe.expert_count", 4096, 0, TERN_BAD_FORMAT, "expert_count is 4096"},
        {LFM2_GGUF, "lfm2moe.expert_count", 5, 0, TERN_BAD_FORMAT,
         "ffn_gate_inp.weight has shape [6, 32], expected [5, 32]"},
        {LFM2_GGUF, "lfm2moe.expert_used_count", 7, 0, TERN_BAD_FORMAT, "expert_used_count is 7, must be 1 to 6"},
        {LFM2_GGUF, "lfm2moe.expert_used_count", 0, 0, TERN_BAD_FORMAT, "expert_used_count is 0"},
        {LFM2_GGUF, "lfm2moe.expert_feed_forward_length", 25, 0, TERN_BAD_FORMAT,
         "ffn_gate_exps.weight has shape [6, 24, 32], expected [6, 25, 32]"},
        {LFM2_GGUF, "lfm2moe.leading_dense_block_count", 4, 0, TERN_BAD_FORMAT, "leading_dense_block_count is 4"},
        {LFM2_GGUF, "lfm2moe.leading_dense_block_count", 0, 0, TERN_BAD_FORMAT, "blk.0.ffn_gate_inp.weight is missing"},
        {LFM2_GGUF, "lfm2moe.leading_dense_block_count", 2, 0, TERN_BAD_FORMAT, "blk.1.ffn_gate.weight is missing"},
        {LFM2_GGUF, "lfm2moe.expert_gating_func", 3, 0, TERN_UNSUPPORTED, "expert_gating_func 3 is not supported"},
        {LFM2_GGUF, "lfm2moe.expert_weights_scale", 0xbf800000u, 0, TERN_BAD_FORMAT, "scale of the experts' weights"},
        {LFM2_GGUF, "lfm2moe.expert_used_count", 0, 'x', TERN_BAD_FORMAT, "lfm2moe.expert_used_count is missing"},
        {LFM2_GGUF, "blk.1.ffn_up_exps.weight", 0, 'x', TERN_BAD_FORMAT, "tensor blk.1.ffn_up_exps.weight is missing"},
        {LFM2_GGUF, "blk.1.exp_probs_b.bias", 0, 'x', TERN_BAD_FORMAT, NULL}, // no bias here, so none in layer 2
        {GEMMA3_GGUF, "gemma3.attention.sliding_window", 0, 0, TERN_BAD_FORMAT, "sliding_window is 0"},
        {GEMMA3_GGUF, "gemma3.attention.sliding_window_pattern", 0, 0, TERN_BAD_FORMAT, "sliding_window_pattern is 0"},
        {GEMMA3_GGUF, "blk.0.post_ffw_norm.weight", 0, 'x', TERN_BAD_FORMAT, "blk.0.post_ffw_norm.weight is missing"},
        {GEMMA3_GGUF, "gemma3.rope.scaling.factor", 0xc0000000u, 0, TERN_BAD_FORMAT, "scaling factor is -2"},
        {QWEN3_GGUF, "qwen3moe.expert_count", 9, 0, TERN_BAD_FORMAT, "shape [8, 32], expected [9, 32]"},
        {QWEN3_GGUF, "qwen3moe.rope.freq_base", 0, 'x', TERN_BAD_FORMAT, "qwen3moe.rope.freq_base is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b;
        buf_init(&b, FILE_MAX);
        file_get(&b, cases[i].file);
        uint8_t *at = find(&b, cases[i].find);
        size_t n = strlen(cases[i].find);
        if (cases[i].letter)
            at[0] = (uint8_t)cases[i].letter;
        else
            memcpy(at + n + 4, &cases[i].value, 4); // behind the type
        const char *text = cases[i].text ? cases[i].text : "belongs to no part of architecture lfm2moe";
        enum tern_status status = cases[i].text ? cases[i].status : TERN_UNSUPPORTED;
        assert_int_equal(refusal_wrong(cases[i].find, buf_str(&b), status, text), 0);
        buf_release(&b);
    }
}

static char folder[512];

static enum tern_status folder_open(const char *of, const char *from, const char *to, struct model **m,
                                    struct tern_err *err) {
    struct buf config, weights, changed;
    char path[512];
    buf_init(&config, FILE_MAX);
    buf_init(&weights, FILE_MAX);
    snprintf(path, sizeof(path), TEST_DATA "/hf/%s/config.json", of);
    file_get(&config, path);
    snprintf(path, sizeof(path), TEST_DATA "/hf/%s/model.safetensors", of);
    file_get(&weights, path);
    size_t at = (size_t)(find(&config, from) - (uint8_t *)config.data);
    buf_init(&changed, FILE_MAX);
    buf_put(&changed, config.data, at);
    buf_puts(&changed, to);
    buf_put(&changed, config.data + at + strlen(from), config.len - at - strlen(from));
    tmp_write("m/config.json", buf_str(&changed));
    tmp_write("m/model.safetensors", buf_str(&weights));
    buf_release(&config);
    buf_release(&weights);
    buf_release(&changed);
    return model_open(m, tmp_path("m", folder), err);
}

static void test_config_changed(void **state) {
    (void)state;
    static const struct {
        const char *of, *from, *to;
        enum tern_status status;
        const char *text;
    } cases[] = {
        {"lfm2moe", "\"num_experts\": 6", "\"num_experts\": null", TERN_BAD_FORMAT, "num_experts is missing"},
        {"lfm2moe", "\"num_experts\": 6", "\"num_experts\": 0", TERN_BAD_FORMAT, "num_experts is 0, must be 1 to 1024"},
        {"lfm2moe", "\"num_experts\": 6", "\"num_experts\": 7", TERN_BAD_FORMAT, "expected [7, 32]"},
        {"lfm2moe", "\"num_experts\": 6", "\"num_experts\": 6, \"num_local_experts\": 5", TERN_BAD_FORMAT, "disagree"},
        {"lfm2moe", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 7", TERN_BAD_FORMAT,
         "num_experts_per_tok is 7, must be 1 to 6"},
        {"lfm2moe", "\"moe_intermediate_size\": 24", "\"moe_intermediate_size\": 23", TERN_BAD_FORMAT,
         "experts.0.w1.weight has shape [24, 32], expected [23, 32]"},
        {"lfm2moe", "\"num_dense_layers\": 1", "\"num_dense_layers\": 4", TERN_BAD_FORMAT, "num_dense_layers is 4"},
        {"lfm2moe", "\"num_dense_layers\": 1", "\"num_dense_layers\": -1", TERN_BAD_FORMAT, "num_dense_layers is -1"},
        {"lfm2moe", "\"use_expert_bias\": true", "\"use_expert_bias\": false", TERN_UNSUPPORTED, "expert_bias belongs"},
        {"lfm2moe", "\"routed_scaling_factor\": 1.5", "\"routed_scaling_factor\": 0", TERN_BAD_FORMAT, "scale of the"},
        {"gemma3", "\"sliding_window\": 20", "\"sliding_window\": 0", TERN_BAD_FORMAT,
         "sliding_window is missing or not"},
        {"gemma3", "\"query_pre_attn_scalar\": 16", "\"query_pre_attn_scalar\": 0", TERN_BAD_FORMAT, "query_pre_attn"},
        {"gemma3", "\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 30.0", TERN_UNSUPPORTED,
         "softcap"},
        {"gemma3", "\"gelu_pytorch_tanh\"", "\"relu\"", TERN_UNSUPPORTED, "hidden_activation relu"},
        {"gemma3", "\"gemma3_text\"", "\"gemma3\"", TERN_UNSUPPORTED, "the one with images"},
        {"gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true", TERN_UNSUPPORTED,
         "use_bidirectional_attention"},
        {"gemma3", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"", TERN_UNSUPPORTED, "of sliding layers"},
        {"gemma3", "\"sliding_attention\": {", "\"sliding_attention\": 1, \"x\": {", TERN_BAD_FORMAT,
         "must be an object"},
        {"gemma3", "\"full_attention\"\n", "\"conv\"\n", TERN_UNSUPPORTED, "layer 2 is no full_attention"},
        {"qwen3moe", "\"num_local_experts\": 8", "\"num_local_experts\": 2", TERN_BAD_FORMAT, "must be 1 to 2"},
        {"qwen3moe", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 0", TERN_BAD_FORMAT, "must be 1 to 512"},
        {"qwen3moe", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2", TERN_BAD_FORMAT,
         "layers.0.mlp.gate_proj.weight is missing"},
        {"qwen3moe", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [2]", TERN_BAD_FORMAT, "names layer 2 of 2"},
        {"qwen3moe", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [1, 1]", TERN_BAD_FORMAT, "names layer 1 twice"},
        {"qwen3moe", "\"mlp_only_layers\": []", "\"mlp_only_layers\": 1", TERN_BAD_FORMAT, "must be a list"},
    };
    int n_wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model *m;
        struct tern_err err = {0};
        enum tern_status status = folder_open(cases[i].of, cases[i].from, cases[i].to, &m, &err);
        if (status == TERN_OK) model_close(m);
        if (status == cases[i].status && strstr(err.message, cases[i].text)) continue;
        print_error("%s: %s: \"%s\"\n", cases[i].to, tern_status_text(status), err.message);
        n_wrong++;
    }
    assert_int_equal(n_wrong, 0);
}

static int folder_begin(void **state) {
    (void)state;
    struct tern_err err;
    return os_mkdirs(tmp_path("m", folder), &err) == TERN_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_gguf_changed),
        cmocka_unit_test(test_config_changed),
    };
    return cmocka_run_group_tests(tests, folder_begin, tmp_end);
}
