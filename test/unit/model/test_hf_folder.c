// A Hugging Face folder: what config.json may say and how, RoPE scaling, shards and their index, the other JSON files.
// The model is a Llama of one layer: width 16, 2 heads and 1 key head of 8, feed-forward 24, 10 rows.
#include "model_test_util.h"
#include <math.h>

#define HEAD "\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
#define SIZES                                                                                         \
    "\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1," \
    "\"intermediate_size\":24,\"vocab_size\":10,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5"
#define THETA ",\"rope_theta\":500000.0"
#define SOUND "{" HEAD SIZES THETA "}"

struct hf_tensor {
    const char *name;
    int rows, cols; // cols 0: a vector
};
static const struct hf_tensor tensors[] = {
    {"model.embed_tokens.weight", 10, 16},
    {"model.norm.weight", 16, 0},
    {"lm_head.weight", 10, 16},
    {"model.layers.0.input_layernorm.weight", 16, 0},
    {"model.layers.0.post_attention_layernorm.weight", 16, 0},
    {"model.layers.0.self_attn.q_proj.weight", 16, 16},
    {"model.layers.0.self_attn.k_proj.weight", 8, 16},
    {"model.layers.0.self_attn.v_proj.weight", 8, 16},
    {"model.layers.0.self_attn.o_proj.weight", 16, 16},
    {"model.layers.0.mlp.gate_proj.weight", 24, 16},
    {"model.layers.0.mlp.up_proj.weight", 24, 16},
    {"model.layers.0.mlp.down_proj.weight", 16, 24},
};

// Tensors [from, to) but `skip`, in BF16.
static void weights_write(const char *file, int from, int to, const char *skip) {
    struct buf header, b;
    size_t at = 0;
    buf_init(&header, 1u << 20);
    buf_init(&b, 1u << 20);
    buf_putc(&header, '{');
    for (int i = from; i < to; i++) {
        const struct hf_tensor *t = &tensors[i];
        if (skip && strcmp(skip, t->name) == 0) continue;
        size_t n = (size_t)t->rows * (size_t)(t->cols ? t->cols : 1) * 2;
        buf_putf(&header, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d", at ? "," : "", t->name, t->rows);
        if (t->cols) buf_putf(&header, ",%d", t->cols);
        buf_putf(&header, "],\"data_offsets\":[%zu,%zu]}", at, at + n);
        at += n;
    }
    buf_putc(&header, '}');
    safetensors_build(&b, buf_str(&header), at);
    tmp_write(file, buf_str(&b));
    buf_release(&header);
    buf_release(&b);
}

static int folder_begin(void **state) {
    (void)state;
    char path[512];
    struct tern_err err = {0};
    if (os_mkdirs(tmp_path("m", path), &err) != TERN_OK) fail_msg("%s", err.message);
    weights_write("m/model.safetensors", 0, ARRAY_LEN(tensors), NULL);
    return 0;
}

static enum tern_status open_with(const char *config, struct model **out, struct tern_err *err) {
    char path[512];
    tmp_write("m/config.json", str_from(config));
    return model_open(out, tmp_path("m", path), err);
}

static struct model *open_sound(const char *config) {
    struct model *m = NULL;
    struct tern_err err = {0};
    if (open_with(config, &m, &err) != TERN_OK) fail_msg("%s: %s", config, err.message);
    return m;
}

static void test_sound(void **state) {
    (void)state;
    struct model *m = open_sound(SOUND);
    assert_string_equal(m->arch_name, "llama");
    assert_string_equal(m->name, "m");
    assert_int_equal(m->hyper.rope, ROPE_HALF);
    assert_int_equal(m->hyper.head_dim, 8);
    assert_int_equal(m->hyper.n_head_kv, 1);
    assert_true(m->hyper.rope_base == 500000.0f && !m->hyper.rope_factors && m->hyper.norm_eps == 1e-5f);
    assert_true(fabsf(m->hyper.attn_scale - 0.35355339f) < 1e-7f);
    assert_true(m->output && m->output != m->embedding && m->output_norm);
    assert_true(m->layers[0].q && m->layers[0].ffn_down && !m->layers[0].q_norm && !m->layers[0].conv_in);
    assert_int_equal(m->layers[0].k->ne[1], 8);
    assert_int_equal(m->vocab.bos, -1);
    assert_int_equal(m->vocab.tokenizer_json.len, 0);
    assert_int_equal(m->warning.len, 0);
    assert_int_equal(m->format_main, FORMAT_BF16);
    assert_int_equal(m->n_params, 10 * 16 * 2 + 16 * 3 + 16 * 16 * 2 + 8 * 16 * 2 + 24 * 16 * 3);
    model_close(m);
    m = open_sound("{" HEAD SIZES THETA ",\"tie_word_embeddings\":true}"); // the saved copy is left out
    assert_ptr_equal(m->output, m->embedding);
    model_close(m);
    m = open_sound("{" HEAD SIZES
                   ",\"rope_theta\":null,\"rope_scaling\":null,\"head_dim\":null,\"extra\":{\"a\":[1]}}");
    assert_true(m->hyper.rope_base == 10000.0f);
    assert_non_null(strstr(m->warning.data, "no rope_theta; using 10000"));
    model_close(m);
}

static void test_rope(void **state) {
    (void)state;
    // Llama-3's numbers; the expectation is worked out from the rule: short waves stay, long ones are divided by 8,
    // between them the divisor moves smoothly. Wave i is 2*pi*base^(i/4).
    struct model *m = open_sound("{" HEAD SIZES THETA
                                 ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                                 "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
    const float *f = m->hyper.rope_factors;
    assert_non_null(f);
    const double two_pi = 6.283185307179586;
    assert_true(f[0] == 1.0f);
    assert_true(f[1] == 1.0f);                                   // wave 167 < 8192/4
    double s = (8192.0 / (two_pi * sqrt(500000.0)) - 1.0) / 3.0; // wave 4443
    assert_true(fabs(f[2] - 1.0 / ((1.0 - s) / 8.0 + s)) < 1e-6);
    assert_true(f[2] > 1.5f && f[2] < 5.0f);
    assert_true(f[3] == 8.0f); // wave 118145 > 8192
    model_close(m);
    m = open_sound("{" HEAD SIZES ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,\"rope_theta\":7e5}}");
    assert_true(m->hyper.rope_base == 7e5f && m->hyper.rope_factors[0] == 4.0f && m->hyper.rope_factors[3] == 4.0f);
    model_close(m);
    m = open_sound("{" HEAD SIZES
                   ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7e5},\"theta\":700000}");
    assert_true(m->hyper.rope_base == 7e5f && !m->hyper.rope_factors);
    model_close(m);
}

struct kind {
    const char *config;
    enum tern_status status;
    const char *text;
};
#define BAD TERN_BAD_FORMAT
#define NOT TERN_UNSUPPORTED
static const struct kind kinds[] = {
    {"", BAD, "config.json: JSON"},
    {"[]", BAD, "config.json: must be a JSON object"},
    {"{" HEAD SIZES THETA, BAD, "config.json: JSON"},
    {"{" HEAD SIZES THETA "}x", BAD, "config.json: JSON"},
    {"{" SIZES THETA "}", BAD, "config.json: model_type is missing"},
    {"{\"model_type\":\"qwen9\"," SIZES "}", NOT, "architecture 'qwen9' is not supported (supported: gemma3, lfm2"},
    {"{\"model_type\":\"lfm2_moe\"," SIZES "}", BAD, "norm_eps is missing"},
    {"{\"model_type\":\"qwen3\",\"architectures\":[\"Lfm2DSparkDraftModel\"]," SIZES "}", NOT, "a DSpark drafter"},
    {"{" HEAD SIZES THETA ",\"hidden_size\":16}", BAD, "'hidden_size' appears twice"},
    {"{\"model_type\":\"llama\"" THETA "}", BAD, "num_hidden_layers is missing"},
    {"{" HEAD "\"num_hidden_layers\":513,\"hidden_size\":16}", BAD, "num_hidden_layers is 513, must be 1 to 512"},
    {"{" HEAD "\"num_hidden_layers\":\"1\"}", BAD, "config.json: num_hidden_layers must be an integer"},
    {"{" HEAD "\"num_hidden_layers\":1.0}", BAD, "config.json: num_hidden_layers must be an integer"},
    {"{" HEAD "\"num_hidden_layers\":1e400}", BAD, "config.json: "},
    {"{" HEAD SIZES THETA ",\"rope_theta_\":1,\"theta\":1e4}", BAD, "RoPE base is 500000 in one place and 10000"},
    {"{" HEAD SIZES ",\"rope_theta\":\"1\"}", BAD, "rope_theta must be a number"},
    {"{" HEAD SIZES ",\"rope_theta\":-1}", BAD, "rope_theta is -1"},
    {"{" HEAD SIZES THETA ",\"rope_scaling\":3}", BAD, "rope_scaling must be an object"},
    {"{" HEAD SIZES THETA ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":4}}", NOT, "RoPE scaling 'longrope'"},
    {"{" HEAD SIZES THETA ",\"rope_scaling\":{\"type\":\"yarn\"}}", BAD, "YaRN RoPE scaling needs factor >= 1"},
    {"{" HEAD SIZES THETA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":1,\"beta_slow\":2}}", BAD,
     "YaRN RoPE scaling needs"},
    {"{" HEAD SIZES THETA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":1}}", NOT, "with mscale"},
    {"{" HEAD SIZES THETA ",\"layer_types\":[\"sliding_attention\"]}", NOT, "layer 0 is no full_attention"},
    {"{" HEAD SIZES THETA ",\"layer_types\":[]}", BAD, "layer_types has 0 items for 1 layers"},
    {"{\"model_type\":\"qwen3\"," SIZES THETA ",\"head_dim\":8,\"use_sliding_window\":true}", NOT,
     "use_sliding_window"},
    {"{\"model_type\":\"qwen3\"," SIZES THETA ",\"head_dim\":8}", BAD, "self_attn.q_norm.weight is missing"},
    {"{" HEAD SIZES THETA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}}", BAD, "llama3 RoPE scaling needs"},
    {"{" HEAD SIZES THETA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":-2}}", BAD, "scaling factor is -2"},
    {"{" HEAD SIZES THETA ",\"partial_rotary_factor\":0.5}", NOT, "partial_rotary_factor 0.5"},
    {"{" HEAD SIZES THETA ",\"hidden_act\":\"gelu\"}", NOT, "hidden_act gelu"},
    {"{" HEAD SIZES THETA ",\"attention_bias\":true}", NOT, "attention_bias is true"},
    {"{" HEAD SIZES THETA ",\"mlp_bias\":true}", NOT, "mlp_bias is true"},
    {"{" HEAD SIZES THETA ",\"mlp_bias\":1}", BAD, "mlp_bias must be true or false"},
    {"{" HEAD SIZES THETA ",\"quantization_config\":{\"quant_method\":\"awq\"}}", NOT, "quantised safetensors"},
    {"{" HEAD SIZES THETA ",\"head_dim\":7}", NOT, "head dimension 7"},
    {"{" HEAD SIZES THETA ",\"head_dim\":16}", BAD, "q_proj.weight has shape [16, 16], expected [32, 16]"},
    {"{" HEAD SIZES THETA ",\"tie_word_embeddings\":true,\"tie_embedding\":false}", BAD, "disagree"},
    {"{" HEAD SIZES THETA ",\"eos_token_id\":10}", BAD, "eos_token_id is 10, past the last of 10 rows"},
    {"{" HEAD SIZES THETA ",\"eos_token_id\":[1,\"2\"]}", BAD, "eos_token_id must be a token id or a list"},
    {"{" HEAD SIZES THETA ",\"bos_token_id\":-2}", BAD, "bos_token_id holds -2"},
    {"{\"model_type\":\"llama\",\"architectures\":\"x\"}", BAD, "architectures must be a list of strings"},
    {"{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
     "\"num_key_value_heads\":1,\"intermediate_size\":24,\"vocab_size\":11,\"max_position_embeddings\":64,"
     "\"rms_norm_eps\":1e-5,\"rope_theta\":1e4}",
     BAD, "vocab_size is 11, but tensor model.embed_tokens.weight has 10 rows"},
    {"{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
     "\"num_key_value_heads\":1,\"intermediate_size\":24,\"vocab_size\":10,\"max_position_embeddings\":64,"
     "\"rms_norm_eps\":1e-5,\"rope_theta\":1e4}",
     BAD, "tensor model.layers.1.input_layernorm.weight is missing (expected shape [16])"},
    {"{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
     "\"num_key_value_heads\":1,\"intermediate_size\":24,\"vocab_size\":10,\"max_position_embeddings\":64,"
     "\"rms_norm_eps\":0,\"rope_theta\":1e4}",
     BAD, "epsilon is 0"},
};

#define LFM2                                                                                         \
    "{\"model_type\":\"lfm2\",\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":2," \
    "\"num_key_value_heads\":1,\"vocab_size\":10,\"max_position_embeddings\":64,\"rope_theta\":1e6"
#define EPS ",\"norm_eps\":1e-5"
#define MAP ",\"layer_types\":[\"conv\",\"full_attention\"]"
#define TAPS ",\"conv_L_cache\":3"
static const struct kind lfm2_kinds[] = {
    {LFM2 MAP TAPS "}", BAD, "norm_eps is missing"},
    {LFM2 EPS TAPS "}", BAD, "layer_types or full_attn_idxs is needed"},
    {LFM2 EPS TAPS ",\"layer_types\":[\"conv\"]}", BAD, "layer_types has 1 items for 2 layers"},
    {LFM2 EPS TAPS ",\"layer_types\":[\"conv\",\"mamba\"]}", NOT, "layer_types holds 'mamba'"},
    {LFM2 EPS TAPS ",\"layer_types\":[\"conv\",1]}", BAD, "layer_types must be a list of strings"},
    {LFM2 EPS TAPS ",\"full_attn_idxs\":[2]}", BAD, "full_attn_idxs names layer 2 of 2"},
    {LFM2 EPS TAPS ",\"full_attn_idxs\":[1,1]}", BAD, "full_attn_idxs names layer 1 twice"},
    {LFM2 EPS TAPS ",\"full_attn_idxs\":[-1]}", BAD, "full_attn_idxs must be a list of layer numbers"},
    {LFM2 EPS TAPS ",\"full_attn_idxs\":1}", BAD, "full_attn_idxs must be a list of integers"},
    {LFM2 EPS TAPS MAP ",\"full_attn_idxs\":[0]}", BAD, "disagree on layer 0"},
    {LFM2 EPS TAPS MAP ",\"full_attn_idxs\":[]}", BAD, "1 attention layers, full_attn_idxs 0"},
    {LFM2 EPS MAP "}", BAD, "conv_L_cache is missing"},
    {LFM2 EPS MAP ",\"conv_L_cache\":65}", BAD, "conv_L_cache is 65, must be 1 to 64"},
    {LFM2 EPS MAP TAPS ",\"conv_bias\":true}", NOT, "conv_bias is true"},
    {LFM2 EPS MAP TAPS "}", BAD, "neither block_ff_dim nor intermediate_size"},
    {LFM2 EPS MAP TAPS ",\"block_ff_dim\":0}", BAD, "block_ff_dim 0 makes no width"},
    {LFM2 EPS MAP TAPS ",\"block_ff_dim\":64,\"block_multiple_of\":0}", BAD, "block_ff_dim 64 makes no width"},
    {LFM2 EPS MAP TAPS ",\"block_ff_dim\":64}", BAD, "tensor model.embedding_norm.weight is missing"},
};

static int kind_wrong(const struct kind *k) {
    struct model *m;
    struct tern_err err = {0};
    struct mem_stats before = mem_stats_get();
    enum tern_status status = open_with(k->config, &m, &err);
    if (status == TERN_OK) model_close(m);
    if (status == k->status && strstr(err.message, k->text) && mem_stats_get().n_live == before.n_live) return 0;
    print_error("%s: %s: \"%s\"\n", k->config, tern_status_text(status), err.message);
    return 1;
}

static void test_kinds(void **state) {
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) n_wrong += kind_wrong(&kinds[i]);
    for (size_t i = 0; i < ARRAY_LEN(lfm2_kinds); i++) n_wrong += kind_wrong(&lfm2_kinds[i]);
    assert_int_equal(n_wrong, 0);
}

// Every byte of a sound config.json, cut there or changed: an error or a model, never more.
static void test_config_damage(void **state) {
    (void)state;
    static const char config[] = "{" HEAD SIZES THETA ",\"eos_token_id\":[1,2],\"layer_types\":[\"conv\"]}";
    char text[sizeof(config)];
    int n_open = 0;
    for (size_t i = 0; i < 2 * (sizeof(config) - 1); i++) {
        struct model *m;
        struct tern_err err = {0};
        size_t at = i / 2;
        memcpy(text, config, sizeof(config));
        text[at] = i % 2 ? 0 : (char)(text[at] ^ (1 << at % 7));
        struct mem_stats before = mem_stats_get();
        if (open_with(text, &m, &err) == TERN_OK) {
            model_close(m);
            n_open++;
        } else {
            assert_true(err.message[0] != 0);
        }
        assert_int_equal(mem_stats_get().n_live, before.n_live);
    }
    assert_true(n_open > 0 && n_open < (int)sizeof(config));
}

static void test_text_files(void **state) {
    (void)state;
    tmp_write("m/tokenizer.json", STR("{\"version\":\"1.0\"}"));
    tmp_write("m/generation_config.json", STR("{\"eos_token_id\":[7,3,2],\"bos_token_id\":4}"));
    tmp_write("m/tokenizer_config.json",
              STR("{\"add_bos_token\":true,\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},"
                  "{\"name\":\"default\",\"template\":\"D\\n\"}]}"));
    struct model *m = open_sound("{" HEAD SIZES THETA ",\"eos_token_id\":3,\"bos_token_id\":1,\"pad_token_id\":-1}");
    const struct model_vocab *v = &m->vocab;
    assert_true(str_eqz(v->tokenizer_json, "{\"version\":\"1.0\"}"));
    assert_true(str_eqz(v->chat_template, "D\n"));
    assert_true(str_starts(v->tokenizer_config, STR("{\"add_bos")));
    assert_true(v->bos == 4 && v->eos == 3 && v->pad == -1 && v->add_bos == 1 && v->add_eos == -1);
    assert_true(v->n_eos_more == 2 && v->eos_more[0] == 7 && v->eos_more[1] == 2);
    char digest[65];
    memcpy(digest, m->digest, sizeof(digest));
    model_close(m);
    tmp_write("m/chat_template.jinja", STR("J"));
    tmp_write("m/tokenizer.json", STR("{\"version\":\"2.0\"}"));
    m = open_sound(SOUND);
    assert_true(str_eqz(m->vocab.chat_template, "J"));
    assert_string_not_equal(m->digest, digest);
    model_close(m);
    static const struct {
        const char *file, *bytes, *text;
    } bad[] = {
        {"m/chat_template.jinja", "\xff", "chat_template.jinja is not valid UTF-8"},
        {"m/tokenizer_config.json", "{\"chat_template\":1}", "tokenizer_config.json: chat_template must be"},
        {"m/tokenizer_config.json", "{\"add_bos_token\":\"yes\"}", "tokenizer_config.json: add_bos_token must be"},
        {"m/generation_config.json", "{\"eos_token_id\":1000}", "eos_token_id is 1000, past the last of 10 rows"},
        {"m/generation_config.json", "{", "generation_config.json: JSON"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tern_err err = {0};
        tmp_write(bad[i].file, str_from(bad[i].bytes));
        if (open_with(SOUND, &m, &err) == TERN_OK) fail_msg("%s opened", bad[i].text);
        assert_non_null(strstr(err.message, bad[i].text));
        tmp_remove(bad[i].file);
    }
    tmp_remove("m/tokenizer.json");
}

// ------------------------------------------------------------------------------------------------ shards

#define N_FIRST 6 // tensors of the first shard
static void index_write(const char *first, const char *second, const char *skip, const char *extra) {
    struct buf b;
    buf_init(&b, 1u << 16);
    buf_puts(&b, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    bool comma = false;
    for (int i = 0; i < (int)ARRAY_LEN(tensors); i++) {
        if (skip && strcmp(skip, tensors[i].name) == 0) continue;
        buf_putf(&b, "%s\"%s\":\"%s\"", comma ? "," : "", tensors[i].name, i < N_FIRST ? first : second);
        comma = true;
    }
    buf_puts(&b, extra);
    buf_puts(&b, "}}");
    tmp_write("s/model.safetensors.index.json", buf_str(&b));
    buf_release(&b);
}

static void shards_refused(const char *text) {
    struct model *m;
    struct tern_err err = {0};
    char path[512];
    struct mem_stats before = mem_stats_get();
    if (model_open(&m, tmp_path("s", path), &err) == TERN_OK) fail_msg("opened, expected \"%s\"", text);
    if (!strstr(err.message, text)) fail_msg("\"%s\" does not say \"%s\"", err.message, text);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

#define ONE "model-00001-of-00002.safetensors"
#define TWO "model-00002-of-00002.safetensors"
static void test_shards(void **state) {
    (void)state;
    char path[512];
    struct tern_err err = {0};
    struct model *m;
    if (os_mkdirs(tmp_path("s", path), &err) != TERN_OK) fail_msg("%s", err.message);
    tmp_write("s/config.json", STR(SOUND));
    shards_refused("no model.safetensors and no model.safetensors.index.json");
    weights_write("s/" ONE, 0, N_FIRST, NULL);
    weights_write("s/" TWO, N_FIRST, ARRAY_LEN(tensors), NULL);
    index_write(ONE, TWO, NULL, "");
    if (model_open(&m, tmp_path("s", path), &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(m->n_tensors, ARRAY_LEN(tensors));
    assert_int_equal(m->layers[0].ffn_down->shard, 1);
    assert_int_equal(m->embedding->shard, 0);
    model_tensor_drop(m, m->layers[0].ffn_down);
    assert_int_equal(m->layers[0].ffn_down->data[4] + 1, m->layers[0].ffn_down->data[5]);
    model_close(m);

    index_write(TWO, ONE, NULL, "");
    shards_refused("is not in shard");
    index_write(ONE, TWO, "lm_head.weight", "");
    shards_refused("lists 11 tensors, the shards hold 12");
    index_write(ONE, TWO, NULL, ",\"more\":\"" TWO "\"");
    shards_refused("tensor more is not in shard " TWO);
    index_write(ONE, "model-00003-of-00002.safetensors", NULL, "");
    shards_refused("shard model-00003-of-00002.safetensors");
    static const char *const outside[] = {"../" TWO, "/etc/x.safetensors", "sub/" TWO, ".hidden.safetensors", "passwd"};
    for (size_t i = 0; i < ARRAY_LEN(outside); i++) {
        index_write(ONE, outside[i], NULL, "");
        shards_refused("is not the name of a .safetensors file of the same folder");
    }
    index_write(ONE, TWO, NULL, ",\"more\":1");
    shards_refused("weight_map: tensor more must name a file");
    index_write(ONE, TWO, NULL, ",\"lm_head.weight\":\"" ONE "\"");
    shards_refused("'lm_head.weight' appears twice");
    tmp_write("s/model.safetensors.index.json", STR("{\"metadata\":{}}"));
    shards_refused("weight_map is missing or empty");
    tmp_write("s/model.safetensors.index.json", STR("[]"));
    shards_refused("model.safetensors.index.json");
    weights_write("s/" TWO, N_FIRST - 1, ARRAY_LEN(tensors), NULL);
    index_write(ONE, TWO, NULL, "");
    shards_refused("duplicate tensor name model.layers.0.self_attn.q_proj.weight");
    weights_write("s/" TWO, N_FIRST, ARRAY_LEN(tensors), "model.layers.0.mlp.up_proj.weight");
    index_write(ONE, TWO, "model.layers.0.mlp.up_proj.weight", "");
    shards_refused("tensor model.layers.0.mlp.up_proj.weight is missing (expected shape [24, 16])");
}

static void test_folder(void **state) {
    (void)state;
    struct model *m;
    struct tern_err err = {0};
    char path[512], file[600];
    tmp_write("m/config.json", STR(SOUND));
    snprintf(file, sizeof(file), "%s/model.safetensors", tmp_path("m", path));
    if (model_open(&m, file, &err) != TERN_OK) fail_msg("%s", err.message);
    model_close(m);
    snprintf(file, sizeof(file), "%s///", tmp_path("m", path));
    if (model_open(&m, file, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_string_equal(m->name, "m");
    model_close(m);
    if (os_mkdirs(tmp_path("g", path), &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(model_open(&m, path, &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "the folder has no config.json"));
    tmp_write("g/x.gguf", STR("GGUF"));
    assert_int_equal(model_open(&m, path, &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "but a GGUF file: open "));
    assert_int_equal(model_open(&m, tmp_path("absent", path), &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "no such file or folder"));
    assert_int_equal(model_open(&m, tmp_path("m/config.json", path), NULL), TERN_BAD_FORMAT);
    assert_int_equal(model_open(&m, path, &err), TERN_BAD_FORMAT);
    assert_non_null(strstr(err.message, "a JSON file: give the folder"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sound),      cmocka_unit_test(test_rope),
                                       cmocka_unit_test(test_kinds),      cmocka_unit_test(test_config_damage),
                                       cmocka_unit_test(test_text_files), cmocka_unit_test(test_shards),
                                       cmocka_unit_test(test_folder)};
    return cmocka_run_group_tests(tests, folder_begin, tmp_end);
}
