// Drafters: the two GGUF forms and the folder form bind to the same struct, and what does not fit the target is refused
// in one sentence. The target is the small model of model_test_util.h (2 layers, width 32, 40 rows); the drafter has
// one layer, 2 heads and 1 key head of 16, feed-forward 64, a Markov head of rank 8, and reads both layers.
#include "model_test_util.h"

#define MIS TERN_MISMATCH
#define BAD TERN_BAD_FORMAT
#define NOT TERN_UNSUPPORTED

static struct model *target;
static struct buf target_bytes;

// ------------------------------------------------------------------------------------------------ files

enum form { FORM_MAINLINE, FORM_IK, FORM_FOLDER, FORM_COUNT };
struct part {
    const char *name[FORM_COUNT];
    int rows, cols; // cols 0: a vector
};
static const struct part parts[] = {
    {{"fc.weight", "dflash_fc.weight", "fc.weight"}, 32, 64},
    {{"enc.output_norm.weight", "dflash_hidden_norm.weight", "hidden_norm.weight"}, 32, 0},
    {{"output_norm.weight", "output_norm.weight", "norm.weight"}, 32, 0},
    {{"blk.0.attn_norm.weight", "blk.0.attn_norm.weight", "layers.0.input_layernorm.weight"}, 32, 0},
    {{"blk.0.attn_q.weight", "blk.0.attn_q.weight", "layers.0.self_attn.q_proj.weight"}, 32, 32},
    {{"blk.0.attn_k.weight", "blk.0.attn_k.weight", "layers.0.self_attn.k_proj.weight"}, 16, 32},
    {{"blk.0.attn_v.weight", "blk.0.attn_v.weight", "layers.0.self_attn.v_proj.weight"}, 16, 32},
    {{"blk.0.attn_output.weight", "blk.0.attn_output.weight", "layers.0.self_attn.o_proj.weight"}, 32, 32},
    {{"blk.0.attn_q_norm.weight", "blk.0.attn_q_norm.weight", "layers.0.self_attn.q_norm.weight"}, 16, 0},
    {{"blk.0.attn_k_norm.weight", "blk.0.attn_k_norm.weight", "layers.0.self_attn.k_norm.weight"}, 16, 0},
    {{"blk.0.ffn_norm.weight", "blk.0.ffn_norm.weight", "layers.0.post_attention_layernorm.weight"}, 32, 0},
    {{"blk.0.ffn_gate.weight", "blk.0.ffn_gate.weight", "layers.0.mlp.gate_proj.weight"}, 64, 32},
    {{"blk.0.ffn_up.weight", "blk.0.ffn_up.weight", "layers.0.mlp.up_proj.weight"}, 64, 32},
    {{"blk.0.ffn_down.weight", "blk.0.ffn_down.weight", "layers.0.mlp.down_proj.weight"}, 32, 64},
    {{"markov_w1.weight", "markov_w1.weight", "markov_head.markov_w1.weight"}, 40, 8},
    {{"markov_w2.weight", "markov_w2.weight", "markov_head.markov_w2.weight"}, 40, 8},
    {{"conf_proj.weight", "conf_proj.weight", "confidence_head.proj.weight"}, 1, 40},
    {{"conf_proj.bias", "conf_proj.bias", "confidence_head.proj.bias"}, 1, 0},
};

// What one file does otherwise than the sound one.
struct edit {
    const char *drop;    // names of keys and tensors to leave out, each with a comma behind it
    const char *set_key; // a number key with another value, or one more
    int64_t set;
    const char *resize;      // a tensor of other sizes …
    int rows, cols;          // … (rows 0: as it is)
    struct part more[2];     // more tensors, when they have a name
    int layers[4], n_layers; // 0: {1, 2}, or {0, 1} in the ik form
    const char *token;       // of token 5
    const char *arch;
};

static bool dropped(const struct edit *e, const char *name) {
    const char *at = e->drop ? strstr(e->drop, name) : NULL;
    return at && (at == e->drop || at[-1] == ',') && at[strlen(name)] == ',';
}

static void key_put(struct buf *b, int *n, const struct edit *e, const char *arch, const char *key, uint32_t v) {
    char full[96];
    snprintf(full, sizeof(full), "%s%s%s", strchr(key, ':') ? "" : arch, strchr(key, ':') ? "" : ".",
             strchr(key, ':') ? key + 1 : key);
    if (dropped(e, key)) return;
    if (e->set_key && strcmp(e->set_key, key) == 0) v = (uint32_t)e->set;
    kv_u32(b, full, v);
    (*n)++;
}

static int keys_put(struct buf *b, enum form form, const struct edit *e) {
    static const struct {
        const char *key;
        uint32_t v;
        bool of[2]; // mainline, ik
    } numbers[] = {
        {"block_count", 1, {true, true}},
        {"context_length", 64, {true, true}},
        {"embedding_length", 32, {true, true}},
        {"feed_forward_length", 64, {true, true}},
        {"attention.head_count", 2, {true, true}},
        {"attention.head_count_kv", 1, {true, true}},
        {"vocab_size", 40, {true, true}},
        {"block_size", 5, {true, false}},
        {":tokenizer.ggml.mask_token_id", 31, {true, false}},
        {"dflash.block_size", 5, {false, true}},
        {"dflash.mask_token_id", 31, {false, true}},
        {"dflash.n_target_features", 64, {false, true}},
    };
    const char *arch = e->arch ? e->arch : form == FORM_IK ? "dflash-draft" : "dflash";
    char key[96];
    int n = 0;
    bool is_set = false;
    kv_str(b, "general.architecture", arch);
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch);
    kv_f32(b, key, 1e-5f);
    snprintf(key, sizeof(key), "%s.rope.freq_base", arch);
    kv_f32(b, key, 1e6f);
    n += 3;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (!numbers[i].of[form]) continue;
        key_put(b, &n, e, arch, numbers[i].key, numbers[i].v);
        is_set = is_set || (e->set_key && strcmp(e->set_key, numbers[i].key) == 0);
    }
    if (e->set_key && !is_set) key_put(b, &n, e, arch, e->set_key, (uint32_t)e->set);
    const char *list = form == FORM_IK ? "dflash.target_layer_ids" : "target_layers";
    int first = form == FORM_MAINLINE ? 1 : 0, n_layers = e->n_layers ? e->n_layers : 2;
    if (!dropped(e, list)) {
        snprintf(key, sizeof(key), "%s.%s", arch, list);
        put_array(b, key, 5, (uint64_t)n_layers);
        for (int i = 0; i < n_layers; i++) put_u32(b, (uint32_t)(e->n_layers ? e->layers[i] : first + i));
        n++;
    }
    if (dropped(e, "tokens")) return n;
    kv_str(b, "tokenizer.ggml.model", "gpt2");
    put_array(b, "tokenizer.ggml.tokens", 8, TINY_ROWS);
    for (int i = 0; i < TINY_ROWS; i++) {
        char token[4] = {(char)('A' + i / 10), (char)('0' + i % 10), 0, 0};
        put_str(b, i == 5 && e->token ? e->token : token);
    }
    return n + 2;
}

// Parts with the edit applied; *n of them.
static void parts_get(enum form form, const struct edit *e, struct part *out, int *n) {
    *n = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        struct part p = parts[i];
        if (dropped(e, p.name[form])) continue;
        if (e->resize && strcmp(e->resize, p.name[form]) == 0) {
            p.rows = e->rows;
            p.cols = e->cols;
        }
        out[(*n)++] = p;
    }
    for (size_t i = 0; i < ARRAY_LEN(e->more); i++)
        if (e->more[i].name[form]) out[(*n)++] = e->more[i];
}

static void gguf_build(enum form form, const struct edit *e, struct buf *b) {
    struct part list[ARRAY_LEN(parts) + 2];
    struct buf keys;
    int n;
    uint64_t offset = 0;
    buf_init(&keys, 1u << 20);
    int n_keys = keys_put(&keys, form, e);
    parts_get(form, e, list, &n);
    buf_clear(b);
    buf_puts(b, "GGUF");
    put_u32(b, 3);
    put_u64(b, (uint64_t)n);
    put_u64(b, (uint64_t)n_keys);
    buf_put(b, keys.data, keys.len);
    for (int i = 0; i < n; i++) {
        const struct part *p = &list[i];
        put_str(b, p->name[form]);
        put_u32(b, p->cols ? 2 : 1);
        if (p->cols) put_u64(b, (uint64_t)p->cols);
        put_u64(b, (uint64_t)p->rows);
        put_u32(b, 0);
        put_u64(b, offset);
        offset += ((uint64_t)p->rows * (uint64_t)MAX(p->cols, 1) * 4 + 31) / 32 * 32;
    }
    put_zeros(b, (32 - b->len % 32) % 32);
    put_zeros(b, offset);
    assert_false(b->failed || keys.failed);
    buf_release(&keys);
}

static void folder_build(const struct edit *e, const char *config) {
    struct part list[ARRAY_LEN(parts) + 2];
    struct buf header, b;
    char path[512];
    struct tern_err err = {0};
    int n;
    size_t at = 0;
    if (os_mkdirs(tmp_path("d", path), &err) != TERN_OK) fail_msg("%s", err.message);
    buf_init(&header, 1u << 20);
    buf_init(&b, 1u << 20);
    parts_get(FORM_FOLDER, e, list, &n);
    for (int i = 0; i < n; i++) {
        const struct part *p = &list[i];
        size_t size = (size_t)p->rows * (size_t)MAX(p->cols, 1) * 2;
        buf_putf(&header, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d", i ? ',' : '{', p->name[FORM_FOLDER], p->rows);
        if (p->cols) buf_putf(&header, ",%d", p->cols);
        buf_putf(&header, "],\"data_offsets\":[%zu,%zu]}", at, at + size);
        at += size;
    }
    buf_putc(&header, '}');
    safetensors_build(&b, buf_str(&header), at);
    tmp_write("d/model.safetensors", buf_str(&b));
    tmp_write("d/config.json", str_from(config));
    buf_release(&header);
    buf_release(&b);
}

// ------------------------------------------------------------------------------------------------ sound ones

static struct model *gguf_open(enum form form, const struct edit *e, struct buf *bytes) {
    struct model *m = NULL;
    struct tern_err err = {0};
    buf_init(bytes, 1u << 24);
    gguf_build(form, e, bytes);
    if (model_open_drafter_memory(&m, "drafter", bytes->data, bytes->len, target, &err) != TERN_OK)
        fail_msg("%s", err.message);
    return m;
}

// Every part is where it belongs, whatever the file called it.
static void parts_check(const struct model *m, enum form form) {
    const struct model_drafter *d = m->drafter;
    const struct model_layer *l = &m->layers[0];
    const struct tensor *const bound[] = {d->fc,        d->hidden_norm, m->output_norm, l->attn_norm, l->q,
                                          l->k,         l->v,           l->o,           l->q_norm,    l->k_norm,
                                          l->ffn_norm,  l->ffn_gate,    l->ffn_up,      l->ffn_down,  d->markov_w1,
                                          d->markov_w2, d->conf,        d->conf_bias};
    assert_int_equal(ARRAY_LEN(bound), ARRAY_LEN(parts));
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) assert_ptr_equal(bound[i], model_tensor_find(m, parts[i].name[form]));
    assert_ptr_equal(m->embedding, target->embedding);
    assert_ptr_equal(m->output, target->output);
}

static void facts_check(const struct model *m) {
    const struct model_drafter *d = m->drafter;
    assert_ptr_equal(d->target, target);
    assert_int_equal(d->n_features, 2);
    assert_int_equal(d->feature_layers[0], 0);
    assert_int_equal(d->feature_layers[1], 1);
    assert_int_equal(d->n_embd_target, 32);
    assert_int_equal(d->n_rows, 5);
    assert_int_equal(d->first_row, 0);
    assert_int_equal(d->n_proposals, 5);
    assert_int_equal(d->mask_id, 31);
    assert_int_equal(d->markov, MARKOV_VANILLA);
    assert_int_equal(d->markov_rank, 8);
    assert_true(d->conf_with_markov);
    assert_int_equal(m->hyper.n_layers, 1);
    assert_int_equal(m->hyper.head_dim, 16);
    assert_int_equal(m->hyper.n_vocab, 40);
    assert_int_equal(m->hyper.conv_len, 0);
    assert_int_equal(m->layers[0].kind, LAYER_ATTENTION);
    assert_true(m->hyper.rope_base == 1e6f && m->hyper.norm_eps == 1e-5f && m->hyper.attn_scale == 0.25f);
}

static void test_gguf_forms(void **state) {
    (void)state;
    struct buf bytes;
    for (int form = FORM_MAINLINE; form <= FORM_IK; form++) {
        struct edit none = {0};
        struct model *m = gguf_open((enum form)form, &none, &bytes);
        parts_check(m, (enum form)form);
        facts_check(m);
        assert_int_equal(m->hyper.rope, ROPE_HALF);
        assert_int_equal(m->drafter->layers_were_inputs, form == FORM_MAINLINE);
        model_tensor_drop(m, m->embedding); // the target's: stays
        assert_non_null(m->embedding->data);
        model_close(m);
        buf_release(&bytes);
    }
    // The key that says that layers are counted as in config.json.
    struct edit rank = {.set_key = "markov_rank", .set = 8, .layers = {0, 1}, .n_layers = 2};
    struct model *m = gguf_open(FORM_MAINLINE, &rank, &bytes);
    facts_check(m);
    assert_false(m->drafter->layers_were_inputs);
    model_close(m);
    buf_release(&bytes);
}

static void test_kinds(void **state) {
    (void)state;
    struct buf bytes;
    struct edit dflash = {.drop = "markov_w1.weight,markov_w2.weight,conf_proj.weight,conf_proj.bias,"};
    struct model *m = gguf_open(FORM_MAINLINE, &dflash, &bytes);
    assert_int_equal(m->drafter->markov, MARKOV_NONE);
    assert_int_equal(m->drafter->markov_rank, 0);
    assert_int_equal(m->drafter->first_row, 1);
    assert_int_equal(m->drafter->n_rows, 5);
    assert_int_equal(m->drafter->n_proposals, 4);
    assert_true(!m->drafter->conf && !m->drafter->markov_w1);
    model_close(m);
    buf_release(&bytes);

    struct edit plain_conf = {.resize = "conf_proj.weight", .rows = 1, .cols = 32, .drop = "conf_proj.bias,"};
    m = gguf_open(FORM_MAINLINE, &plain_conf, &bytes);
    assert_false(m->drafter->conf_with_markov);
    assert_true(m->drafter->conf && !m->drafter->conf_bias);
    model_close(m);
    buf_release(&bytes);

    struct edit own = {.more = {{{"output.weight", NULL, NULL}, 40, 32}}};
    m = gguf_open(FORM_MAINLINE, &own, &bytes);
    assert_ptr_equal(m->output, model_tensor_find(m, "output.weight"));
    assert_ptr_equal(m->embedding, target->embedding);
    model_close(m);
    buf_release(&bytes);
}

#define CLASS "\"model_type\":\"qwen3\",\"architectures\":[\"Lfm2DSparkDraftModel\"],"
#define SIZES                                                                                                     \
    "\"hidden_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"             \
    "\"head_dim\":16,\"intermediate_size\":64,\"vocab_size\":40,\"max_position_embeddings\":64,\"rms_norm_eps\":" \
    "1e-5,\"rope_theta\":1000000.0"
#define HEADS ",\"block_size\":5,\"markov_rank\":8,\"markov_head_type\":\"vanilla\",\"enable_confidence_head\":true"
#define ROPE ",\"rope_is_neox_style\":false"
#define NESTED ",\"dflash_config\":{\"mask_token_id\":31,\"target_layer_ids\":[0,1],\"num_target_layers\":2}"
#define SOUND "{" CLASS SIZES HEADS ROPE NESTED "}"

static struct model *folder_open(const struct edit *e, const char *config) {
    struct model *m = NULL;
    struct tern_err err = {0};
    char path[512];
    folder_build(e, config);
    if (model_open_drafter(&m, tmp_path("d", path), target, &err) != TERN_OK) fail_msg("%s", err.message);
    return m;
}

static void test_folder(void **state) {
    (void)state;
    struct edit none = {0};
    struct model *m = folder_open(&none, SOUND);
    parts_check(m, FORM_FOLDER);
    facts_check(m);
    assert_int_equal(m->hyper.rope, ROPE_INTERLEAVED);
    model_close(m);
    // Everything at the top, and the other pairing.
    m = folder_open(&none, "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3DSparkModel\"]," SIZES HEADS
                           ",\"mask_token_id\":31,\"target_layer_ids\":[0,1],\"num_target_layers\":2}");
    facts_check(m);
    assert_int_equal(m->hyper.rope, ROPE_HALF);
    model_close(m);
}

static void test_folder_kinds(void **state) {
    (void)state;
    static const char *const configs[] = {
        "{" CLASS SIZES ",\"block_size\":5,\"markov_rank\":8,\"markov_head_type\":\"gated\"" NESTED "}",
        "{" CLASS SIZES ",\"block_size\":5,\"markov_rank\":8,\"markov_head_type\":\"rnn\"" NESTED "}"};
    struct edit gated = {.more = {{{NULL, NULL, "markov_head.gate_proj.weight"}, 8, 40},
                                  {{NULL, NULL, "markov_head.gate_proj.bias"}, 8, 0}}};
    struct edit rnn = {.more = {{{NULL, NULL, "markov_head.joint_proj.weight"}, 24, 48},
                                {{NULL, NULL, "markov_head.joint_proj.bias"}, 24, 0}}};
    struct edit dflash = {.drop = "markov_head.markov_w1.weight,markov_head.markov_w2.weight,"
                                  "confidence_head.proj.weight,confidence_head.proj.bias,"};
    struct model *m;
    struct tern_err err = {0};
    char path[512];
    m = folder_open(&gated, configs[0]);
    assert_int_equal(m->drafter->markov, MARKOV_GATED);
    assert_ptr_equal(m->drafter->markov_gate, model_tensor_find(m, "markov_head.gate_proj.weight"));
    assert_ptr_equal(m->drafter->markov_bias, model_tensor_find(m, "markov_head.gate_proj.bias"));
    assert_true(m->drafter->conf && !m->drafter->markov_joint); // found by its tensors
    model_close(m);
    m = folder_open(&rnn, configs[1]);
    assert_int_equal(m->drafter->markov, MARKOV_RNN);
    assert_ptr_equal(m->drafter->markov_joint, model_tensor_find(m, "markov_head.joint_proj.weight"));
    assert_ptr_equal(m->drafter->markov_bias, model_tensor_find(m, "markov_head.joint_proj.bias"));
    model_close(m);
    gated.more[1].name[FORM_FOLDER] = NULL;
    folder_build(&gated, configs[0]);
    assert_int_equal(model_open_drafter(&m, tmp_path("d", path), target, &err), TERN_BAD_FORMAT);
    assert_non_null(strstr(err.message, "tensor markov_head.gate_proj.bias is missing (expected shape [8])"));
    m = folder_open(&dflash, "{\"model_type\":\"qwen3\",\"architectures\":[\"DFlashDraftModel\"]," SIZES
                             ",\"block_size\":16" NESTED "}");
    assert_int_equal(m->drafter->markov, MARKOV_NONE);
    assert_int_equal(m->drafter->first_row, 1);
    assert_int_equal(m->drafter->n_proposals, 15);
    model_close(m);
}

// ------------------------------------------------------------------------------------------------ refusals

static void expect_refusal(const char *what, enum tern_status got, const struct tern_err *err, enum tern_status want,
                           const char *text, struct mem_stats before) {
    if (got == TERN_OK) fail_msg("%s: opened, expected \"%s\"", what, text);
    if (got != want || err->code != want || !strstr(err->message, text))
        fail_msg("%s: \"%s\" (%s), expected \"%s\" (%s)", what, err->message, tern_status_text(got), text,
                 tern_status_text(want));
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

static const struct {
    const char *what;
    enum form form;
    struct edit edit;
    enum tern_status status;
    const char *text;
} gguf_cases[] = {
    {"vocabulary",
     FORM_MAINLINE,
     {.set_key = "vocab_size", .set = 39},
     MIS,
     "key vocab_size is 39, but the target model (tiny test) has 40 vocabulary rows: the drafter of another model"},
    {"vocabulary by the head",
     FORM_MAINLINE,
     {.resize = "markov_w1.weight", .rows = 41, .cols = 8},
     MIS,
     "rows of tensor markov_w1.weight is 41, but the target model (tiny test) has 40 vocabulary rows"},
    {"tokens", FORM_MAINLINE, {.token = "Zz"}, MIS, "token 5 is 'Zz', the target model's (tiny test) is 'A5'"},
    {"feature width",
     FORM_MAINLINE,
     {.resize = "fc.weight", .rows = 32, .cols = 96},
     BAD,
     "tensor fc.weight has shape [32, 96], expected [32, 64]"},
    {"features said",
     FORM_IK,
     {.set_key = "dflash.n_target_features", .set = 96},
     MIS,
     "key dflash.n_target_features is 96, but the target model (tiny test) has 64 values in these layers"},
    {"target width said",
     FORM_MAINLINE,
     {.set_key = "target_hidden_size", .set = 64},
     MIS,
     "key target_hidden_size is 64, but the target model (tiny test) has 32 values per row"},
    {"layer input past the last",
     FORM_MAINLINE,
     {.layers = {1, 3}, .n_layers = 2},
     MIS,
     "key dflash.target_layers holds 3; of the target model (tiny test) 1 to 2 are possible"},
    {"the embedding as a feature",
     FORM_MAINLINE,
     {.layers = {0, 1}, .n_layers = 2},
     MIS,
     "key dflash.target_layers holds 0; of the target model (tiny test) 1 to 2 are possible"},
    {"layer past the last",
     FORM_IK,
     {.layers = {0, 2}, .n_layers = 2},
     MIS,
     "key dflash-draft.dflash.target_layer_ids holds 2; of the target model (tiny test) 0 to 1 are possible"},
    {"layer twice", FORM_MAINLINE, {.layers = {2, 2}, .n_layers = 2}, BAD, "target_layers holds layer 2 twice"},
    {"no layers", FORM_MAINLINE, {.drop = "target_layers,"}, BAD, "key dflash.target_layers is missing"},
    {"mask",
     FORM_MAINLINE,
     {.set_key = ":tokenizer.ggml.mask_token_id", .set = 40},
     BAD,
     "key tokenizer.ggml.mask_token_id is 40, must be 0 to 39"},
    {"no mask",
     FORM_MAINLINE,
     {.drop = ":tokenizer.ggml.mask_token_id,"},
     BAD,
     "key tokenizer.ggml.mask_token_id is missing"},
    {"no mask, ik",
     FORM_IK,
     {.drop = "dflash.mask_token_id,"},
     BAD,
     "key dflash-draft.dflash.mask_token_id is missing"},
    {"no rows", FORM_MAINLINE, {.set_key = "block_size", .set = 0}, BAD, "key block_size is 0, must be 1 to 64"},
    {"many rows", FORM_MAINLINE, {.set_key = "block_size", .set = 65}, BAD, "key block_size is 65, must be 1 to 64"},
    {"half a head",
     FORM_MAINLINE,
     {.drop = "markov_w2.weight,"},
     BAD,
     "tensor markov_w2.weight is missing: half a Markov head"},
    {"no head",
     FORM_MAINLINE,
     {.drop = "markov_w1.weight,markov_w2.weight,", .set_key = "markov_rank", .set = 8},
     BAD,
     "key dflash.markov_rank is 8, but there are no tensors markov_w1.weight and markov_w2.weight"},
    {"another rank",
     FORM_MAINLINE,
     {.set_key = "markov_rank", .set = 16},
     BAD,
     "key dflash.markov_rank is 16, tensor markov_w1.weight has rank 8"},
    {"ranks differ",
     FORM_MAINLINE,
     {.resize = "markov_w2.weight", .rows = 40, .cols = 16},
     BAD,
     "tensor markov_w2.weight has shape [40, 16], expected [40, 8]"},
    {"confidence width",
     FORM_MAINLINE,
     {.resize = "conf_proj.weight", .rows = 1, .cols = 48},
     BAD,
     "tensor conf_proj.weight has shape [1, 48], expected [1, 40]"},
    {"no norm",
     FORM_MAINLINE,
     {.drop = "enc.output_norm.weight,"},
     BAD,
     "tensor enc.output_norm.weight is missing (expected shape [32])"},
    {"no key norm", FORM_IK, {.drop = "blk.0.attn_k_norm.weight,"}, BAD, "tensor blk.0.attn_k_norm.weight is missing"},
    {"a reduced vocabulary", FORM_MAINLINE, {.more = {{{"d2t", NULL, NULL}, 40, 0}}}, NOT, "a reduced vocabulary"},
    {"sinks",
     FORM_MAINLINE,
     {.more = {{{"blk.0.attn_sinks.weight", NULL, NULL}, 2, 0}}},
     NOT,
     "tensor blk.0.attn_sinks.weight belongs to no part of architecture dflash"},
    {"own width",
     FORM_MAINLINE,
     {.set_key = "embedding_length", .set = 64},
     MIS,
     "the drafter has no token_embd.weight and would share the target's, but is 64 wide and the target (tiny test) "
     "32"},
    {"sliding window",
     FORM_MAINLINE,
     {.set_key = "attention.sliding_window", .set = 128},
     NOT,
     "sliding-window attention (128) is not supported"},
    {"a model", FORM_MAINLINE, {.arch = "llama"}, NOT, "llama is no drafter"},
};

static void test_gguf_refusals(void **state) {
    (void)state;
    struct buf bytes;
    buf_init(&bytes, 1u << 24);
    for (size_t i = 0; i < ARRAY_LEN(gguf_cases); i++) {
        struct model *m = NULL;
        struct tern_err err = {0};
        struct mem_stats before;
        gguf_build(gguf_cases[i].form, &gguf_cases[i].edit, &bytes);
        before = mem_stats_get();
        enum tern_status status = model_open_drafter_memory(&m, "drafter", bytes.data, bytes.len, target, &err);
        expect_refusal(gguf_cases[i].what, status, &err, gguf_cases[i].status, gguf_cases[i].text, before);
    }
    buf_release(&bytes);
}

static void test_folder_refusals(void **state) {
    (void)state;
    static const struct {
        const char *config;
        enum tern_status status;
        const char *text;
    } cases[] = {
        {"{" CLASS SIZES HEADS
         ",\"dflash_config\":{\"mask_token_id\":31,\"target_layer_ids\":[0,1],\"num_target_layers\":"
         "3}}",
         MIS, "config.json: num_target_layers is 3, but the target model (tiny test) has 2 layers"},
        {"{" CLASS SIZES HEADS ",\"dflash_config\":{\"mask_token_id\":31,\"target_layer_ids\":[0,2]}}", MIS,
         "config.json: target_layer_ids holds 2; of the target model (tiny test) 0 to 1 are possible"},
        {"{" CLASS SIZES HEADS ",\"dflash_config\":{\"mask_token_id\":31,\"target_layer_ids\":[-1,1]}}", MIS,
         "config.json: target_layer_ids holds -1"},
        {"{" CLASS SIZES HEADS ",\"dflash_config\":{\"mask_token_id\":31}}", BAD,
         "config.json: target_layer_ids is missing or empty"},
        {"{" CLASS SIZES HEADS ",\"dflash_config\":{\"target_layer_ids\":[0,1]}}", BAD,
         "config.json: mask_token_id is missing or no id below 40"},
        {"{" CLASS SIZES HEADS ",\"mask_token_id\":30" NESTED "}", BAD,
         "config.json: mask_token_id is 31 in one place and 30 in another"},
        {"{" CLASS SIZES HEADS ",\"target_layer_ids\":[0]" NESTED "}", BAD, "target_layer_ids differs in two places"},
        {"{" CLASS SIZES ",\"block_size\":5" NESTED "}", BAD,
         "config.json: markov_rank is missing or 0, but Lfm2DSparkDraftModel has a Markov head"},
        {"{" CLASS SIZES ",\"markov_rank\":8" NESTED "}", BAD, "config.json: block_size is missing"},
        {"{" CLASS SIZES ",\"block_size\":5,\"markov_rank\":8,\"markov_head_type\":\"lstm\"" NESTED "}", NOT,
         "config.json: markov_head_type 'lstm' is not supported (vanilla, gated, rnn)"},
        {"{" CLASS SIZES HEADS ",\"layer_types\":[\"conv\"]" NESTED "}", NOT, "layers other than full attention"},
        {"{" CLASS SIZES HEADS ",\"use_sliding_window\":true" NESTED "}", NOT, "layers other than full attention"},
        {"{" CLASS SIZES HEADS ",\"dflash_config\":[1]}", BAD, "config.json: dflash_config must be an object"},
        {"{" CLASS SIZES HEADS ",\"dflash_config\":{\"target_layer_ids\":[0.5]}}", BAD,
         "config.json: target_layer_ids must be a list of integers"},
        {"{\"model_type\":\"llama\",\"architectures\":[\"Lfm2DSparkDraftModel\"]," SIZES HEADS NESTED "}", NOT,
         "a drafter of model_type 'llama' is not supported"},
        {"{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"]," SIZES "}", NOT,
         "Qwen3ForCausalLM is no drafter"},
    };
    struct edit none = {0};
    char path[512];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model *m = NULL;
        struct tern_err err = {0};
        folder_build(&none, cases[i].config);
        struct mem_stats before = mem_stats_get();
        enum tern_status status = model_open_drafter(&m, tmp_path("d", path), target, &err);
        expect_refusal(cases[i].text, status, &err, cases[i].status, cases[i].text, before);
    }
}

// A drafter alone, a model as a drafter, a drafter as a target.
static void test_wrong_role(void **state) {
    (void)state;
    struct edit none = {0};
    struct buf bytes;
    struct tern_err err = {0};
    struct model *drafter = gguf_open(FORM_MAINLINE, &none, &bytes), *m = NULL;
    struct mem_stats before = mem_stats_get();
    enum tern_status status = model_open_memory(&m, "drafter", bytes.data, bytes.len, &err);
    expect_refusal("alone", status, &err, NOT, "this is a DSpark drafter, not a model that can run alone", before);
    status = model_open_drafter_memory(&m, "model", target_bytes.data, target_bytes.len, target, &err);
    expect_refusal("model", status, &err, NOT, "model: lfm2 is no drafter", before);
    status = model_open_drafter_memory(&m, "drafter", bytes.data, bytes.len, drafter, &err);
    expect_refusal("target", status, &err, TERN_INVALID_ARGUMENT, "is no model that can run", before);
    model_close(drafter);
    folder_build(&none, SOUND);
    char path[512];
    before = mem_stats_get();
    status = model_open(&m, tmp_path("d", path), &err);
    expect_refusal("folder alone", status, &err, NOT, "architecture Lfm2DSparkDraftModel: this is a DSpark drafter",
                   before);
    buf_release(&bytes);
}

// Damaged bytes open or are refused; they never crash, hang or leak.
static void test_damage(void **state) {
    (void)state;
    struct edit none = {0};
    struct buf bytes;
    uint64_t seed = 1;
    model_close(gguf_open(FORM_MAINLINE, &none, &bytes));
    size_t header = 3000; // the rest is tensor data
    struct mem_stats before = mem_stats_get();
    for (int i = 0; i < 4000; i++) {
        struct model *m = NULL;
        struct tern_err err = {0};
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(seed >> 33) % header, len = i % 2 ? at : bytes.len;
        char old = bytes.data[at];
        if (i % 2 == 0) bytes.data[at] = (char)(seed >> 13);
        char *copy = malloc(len ? len : 1); // its own block, so that a sanitizer sees a read past the end
        assert_non_null(copy);
        memcpy(copy, bytes.data, len);
        enum tern_status status = model_open_drafter_memory(&m, "drafter", copy, len, target, &err);
        if (status == TERN_OK) model_close(m);
        if (status != TERN_OK && (err.code != status || !err.message[0])) fail_msg("byte %zu: no message", at);
        free(copy);
        bytes.data[at] = old;
    }
    assert_int_equal(mem_stats_get().n_live, before.n_live);
    buf_release(&bytes);
}

// The same drafter with another target is another model to caches, because it borrows from it.
static void test_pico(void **state) {
    (void)state;
    struct model *pico, *drafter;
    struct tern_err err = {0};
    if (model_open(&pico, TEST_MODELS "/pico.gguf", &err) != TERN_OK) fail_msg("%s", err.message);
    if (model_open_drafter(&drafter, TEST_MODELS "/pico-dspark.gguf", pico, &err) != TERN_OK)
        fail_msg("%s", err.message);
    const struct model_drafter *d = drafter->drafter;
    static const int layers[] = {2, 5, 8, 11, 14};
    assert_int_equal(d->n_features, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(d->feature_layers[i], layers[i]);
    assert_int_equal(d->n_rows, 9);
    assert_int_equal(d->n_proposals, 9);
    assert_int_equal(d->mask_id, 31);
    assert_int_equal(d->markov_rank, 64);
    assert_int_equal(drafter->hyper.n_layers, 2);
    assert_int_equal(drafter->hyper.n_vocab_used, pico->hyper.n_vocab_used);
    char digest[65];
    memcpy(digest, drafter->digest, sizeof(digest));
    model_close(drafter);
    pico->digest[0] = pico->digest[0] == '0' ? '1' : '0';
    if (model_open_drafter(&drafter, TEST_MODELS "/pico-dspark.gguf", pico, &err) != TERN_OK)
        fail_msg("%s", err.message);
    assert_string_not_equal(digest, drafter->digest);
    model_close(drafter);
    assert_int_equal(model_open_drafter(&drafter, TEST_MODELS "/pico-dspark.gguf", target, &err), MIS);
    assert_int_equal(model_open(&drafter, TEST_MODELS "/pico-dspark.gguf", &err), NOT);
    model_close(pico);
}

static int target_open(void **state) {
    (void)state;
    struct tiny t;
    struct tern_err err = {0};
    tiny_init(&t);
    buf_init(&target_bytes, 1u << 24);
    tiny_build(&t, &target_bytes);
    if (model_open_memory(&target, "target", target_bytes.data, target_bytes.len, &err) != TERN_OK)
        fail_msg("%s", err.message);
    return 0;
}

static int target_close(void **state) {
    model_close(target);
    buf_release(&target_bytes);
    return tmp_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_forms),    cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_folder),        cmocka_unit_test(test_folder_kinds),
        cmocka_unit_test(test_gguf_refusals), cmocka_unit_test(test_folder_refusals),
        cmocka_unit_test(test_wrong_role),    cmocka_unit_test(test_damage),
        cmocka_unit_test(test_pico),
    };
    return cmocka_run_group_tests(tests, target_open, target_close);
}
