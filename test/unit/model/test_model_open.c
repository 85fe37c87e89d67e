// Sound models end to end: the shipped pico and its drafter, the two-layer script model in both file kinds, a Llama
// GGUF with frequency divisors, shards, metadata, digest, dropped pages.
#include "model_test_util.h"
#include <math.h>

#define SCRIPT_GGUF TEST_DATA "/gguf/script-lfm2.gguf"
#define SCRIPT_HF TEST_DATA "/safetensors/script-hf"

static struct model *must_open(const char *path) {
    struct model *m = NULL;
    struct tern_err err = {0};
    if (model_open(&m, path, &err) != TERN_OK) fail_msg("%s", err.message);
    return m;
}

static char given_name[2000]; // what name_put writes
static int name_put(struct buf *b) {
    kv_str(b, "general.name", given_name);
    return 1;
}

// Names are fit for a terminal and of a bounded length, whatever a file says.
static void test_names(void **state) {
    (void)state;
    static const char hostile[] = "a\033]0;b\n\xc2\x9b\xc3\xa9";
    for (int way = 0; way < 2; way++) {
        memset(given_name, way ? 'n' : 0, sizeof given_name - 1);
        if (!way) memcpy(given_name, hostile, sizeof hostile);
        struct model *m;
        struct tern_err err;
        struct buf b;
        buf_init(&b, 1u << 20);
        struct tiny t;
        tiny_init(&t);
        t.drop_keys = "general.name";
        t.more_keys = name_put;
        tiny_build(&t, &b);
        if (model_open_memory(&m, "memory", b.data, b.len, &err) != TERN_OK) fail_msg("%s", err.message);
        if (way)
            assert_in_range(strlen(m->name), 200, 300);
        else
            assert_string_equal(m->name, "a\\x1b]0;b\\x0a\\xc2\\x9b\xc3\xa9");
        model_close(m);
        buf_release(&b);
    }
}

static void test_pico(void **state) {
    (void)state;
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 3; i++) { // the first touches the file's pages
        uint64_t start = clock_ns();
        struct model *m = must_open(TEST_MODELS "/pico.gguf");
        best = MIN(best, clock_ns() - start);
        model_close(m);
    }
    // 5 ms without sanitizers, 20 with them.
    if (best > 200000000u) fail_msg("opening pico took %llu us", (unsigned long long)best / 1000);
    struct model *m = must_open(TEST_MODELS "/pico.gguf");
    const struct model_hyper *h = &m->hyper;
    assert_string_equal(m->name, "pico");
    assert_true(h->n_layers == 16 && h->n_embd == 384 && h->n_head == 6 && h->n_head_kv == 2 && h->head_dim == 64);
    assert_true(h->n_ff == 1024 && h->n_vocab == 16384 && h->n_vocab_used == 16384 && h->n_ctx == 2048);
    assert_true(h->conv_len == 3 && h->norm_eps == 1e-5f && h->rope_base == 1e6f && h->rope == ROPE_HALF);
    assert_true(h->attn_scale == 0.125f && !h->rope_factors);
    static const int attn[] = {2, 5, 8, 10, 12, 14};
    for (int i = 0, k = 0; i < 16; i++) {
        bool is_attn = k < 6 && attn[k] == i;
        k += is_attn;
        const struct model_layer *l = &m->layers[i];
        assert_int_equal(l->kind, is_attn ? LAYER_ATTENTION : LAYER_CONV);
        assert_int_equal(l->n_head_kv, is_attn ? 2 : 0);
        assert_true(is_attn ? l->q && l->k_norm && !l->conv_in : l->conv_in && l->conv_taps && l->conv_out && !l->q);
        assert_true(l->attn_norm && l->ffn_norm && l->ffn_gate && l->ffn_up && l->ffn_down);
    }
    assert_true(str_eqz(m->layers[3].conv_in->name, "blk.3.shortconv.in_proj.weight"));
    assert_int_equal(m->layers[3].conv_in->ne[1], 3 * 384);
    assert_int_equal(m->layers[3].conv_in->format, FORMAT_Q4_0);
    assert_int_equal(m->layers[3].conv_taps->format, FORMAT_F32);
    assert_ptr_equal(m->output, m->embedding);
    assert_true(str_eqz(m->output_norm->name, "token_embd_norm.weight"));
    assert_int_equal(m->format_main, FORMAT_Q4_0);
    assert_int_equal(m->n_tensors, 148);
    assert_int_equal(m->n_params, 33448320);
    assert_int_equal(m->n_bytes_file, 20264064);
    const struct model_vocab *v = &m->vocab;
    assert_true(str_eqz(v->kind, "gpt2") && str_eqz(v->pre, "lfm2") && v->n_tokens == 16384 && v->n_merges == 16096);
    assert_true(v->bos == 1 && v->eos == 7 && v->pad == 0 && v->unk == -1 && v->add_bos == 1 && v->add_eos == 0);
    assert_true(str_eqz(v->tokens[7], "<|im_end|>") && v->types[7] == 3 && str_eqz(v->merges[0], "\xc4\xa0 t"));
    assert_int_equal(v->chat_template.len, 1668);
    assert_int_equal(m->warning.len, 0);
    model_close(m);
}

static void test_drafter(void **state) {
    (void)state;
    struct model *m;
    struct tern_err err = {0};
    assert_int_equal(model_open(&m, TEST_MODELS "/pico-dspark.gguf", &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "a DSpark drafter, not a model that can run alone"));
    assert_int_equal(model_open_table(&m, TEST_MODELS "/pico-dspark.gguf", &err), TERN_OK);
    assert_null(m->arch);
    assert_int_equal(m->n_tensors, 29);
    assert_non_null(model_tensor_find(m, "markov_w1.weight"));
    model_close(m);
}

// The same weights in both file kinds.
static void test_script(void **state) {
    (void)state;
    struct model *g = must_open(SCRIPT_GGUF), *h = must_open(SCRIPT_HF);
    assert_memory_equal(&g->hyper, &h->hyper, offsetof(struct model_hyper, rope_factors));
    assert_true(g->output != g->embedding && h->output != h->embedding);
    assert_int_equal(g->n_params, h->n_params);
    for (int i = 0; i < g->hyper.n_layers; i++) {
        const struct model_layer *a = &g->layers[i], *b = &h->layers[i];
        const struct tensor *pairs[][2] = {{a->q, b->q},
                                           {a->k, b->k},
                                           {a->v, b->v},
                                           {a->o, b->o},
                                           {a->conv_in, b->conv_in},
                                           {a->conv_out, b->conv_out},
                                           {a->ffn_gate, b->ffn_gate},
                                           {a->ffn_up, b->ffn_up},
                                           {a->ffn_down, b->ffn_down}};
        for (size_t k = 0; k < ARRAY_LEN(pairs); k++) {
            assert_int_equal(pairs[k][0] == NULL, pairs[k][1] == NULL);
            if (!pairs[k][0]) continue;
            assert_memory_equal(pairs[k][0]->ne, pairs[k][1]->ne, sizeof(pairs[k][0]->ne));
            assert_memory_equal(pairs[k][0]->data, pairs[k][1]->data, (size_t)pairs[k][0]->n_bytes);
        }
    }
    // Taps: [128, 1, 3] in safetensors, seen as [128, 3]; F16 there, F32 in GGUF.
    const struct tensor *taps = h->layers[0].conv_taps, *same = g->layers[0].conv_taps;
    assert_true(taps->n_dims == 2 && taps->ne[0] == 3 && taps->ne[1] == 128 && taps->ne[2] == 1);
    for (size_t i = 0; i < 384; i++)
        assert_true(f16_to_f32(load_u16(taps->data + 2 * i)) == f32_from_bits(load_u32(same->data + 4 * i)));
    assert_int_equal(model_tensor_find(h, "model.layers.0.conv.conv.weight")->n_dims, 3);
    assert_string_not_equal(g->digest, h->digest);
    model_close(g);
    model_close(h);
}

// ------------------------------------------------------------------------------------------------ a Llama GGUF

struct llama_file {
    bool factors, no_output;
    const char *scaling;
    float factor;
};

static void llama_build(struct buf *b, const struct llama_file *f) {
    static const struct {
        const char *name;
        uint64_t ne0, ne1;
        uint32_t type;
    } tensors[] = {
        {"token_embd.weight", 16, 10, 0},
        {"output_norm.weight", 16, 0, 0},
        {"blk.0.attn_norm.weight", 16, 0, 0},
        {"blk.0.attn_q.weight", 16, 16, 0},
        {"blk.0.attn_k.weight", 16, 8, 0},
        {"blk.0.attn_v.weight", 16, 8, 0},
        {"blk.0.attn_output.weight", 16, 16, 0},
        {"blk.0.ffn_norm.weight", 16, 0, 0},
        {"blk.0.ffn_gate.weight", 16, 24, 0},
        {"blk.0.ffn_up.weight", 16, 24, 0},
        {"blk.0.ffn_down.weight", 24, 16, 0},
        {"rope_freqs.weight", 4, 0, 0},
        {"output.weight", 16, 10, 0},
    };
    uint64_t n = 11 + (f->factors ? 1u : 0u) + (f->no_output ? 0u : 1u), offset = 0;
    buf_clear(b);
    buf_puts(b, "GGUF");
    put_u32(b, 3);
    put_u64(b, n);
    put_u64(b, 9 + (f->scaling ? 2u : 0u));
    kv_str(b, "general.architecture", "llama");
    kv_u32(b, "llama.block_count", 1);
    kv_u32(b, "llama.context_length", 64);
    kv_u32(b, "llama.embedding_length", 16);
    kv_u32(b, "llama.feed_forward_length", 24);
    kv_u32(b, "llama.attention.head_count", 2);
    kv_u32(b, "llama.attention.head_count_kv", 1);
    kv_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    kv_u32(b, "llama.rope.dimension_count", 8);
    if (f->scaling) {
        kv_str(b, "llama.rope.scaling.type", f->scaling);
        kv_f32(b, "llama.rope.scaling.factor", f->factor);
    }
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        if ((i == 11 && !f->factors) || (i == 12 && f->no_output)) continue;
        put_str(b, tensors[i].name);
        put_u32(b, tensors[i].ne1 ? 2 : 1);
        put_u64(b, tensors[i].ne0);
        if (tensors[i].ne1) put_u64(b, tensors[i].ne1);
        put_u32(b, tensors[i].type);
        put_u64(b, offset);
        offset += (tensors[i].ne0 * (tensors[i].ne1 ? tensors[i].ne1 : 1) * 4 + 31) / 32 * 32;
    }
    put_zeros(b, (32 - b->len % 32) % 32);
    for (uint64_t i = 0; i < offset / 4; i++) put_u32(b, f32_bits((float)i + 1));
    assert_false(b->failed);
}

static void test_llama(void **state) {
    (void)state;
    struct buf b;
    struct model *m;
    struct tern_err err = {0};
    buf_init(&b, 1u << 20);
    llama_build(&b, &(struct llama_file){.factors = true});
    if (model_open_memory(&m, "x", b.data, b.len, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(m->hyper.rope, ROPE_INTERLEAVED);
    assert_true(m->hyper.rope_base == 10000.0f && m->hyper.head_dim == 8 && m->hyper.n_head_kv == 1);
    const float *f = m->hyper.rope_factors,
                *stored = (const float *)(const void *)model_tensor_find(m, "rope_freqs.weight")->data;
    assert_true(f && f[0] == stored[0] && f[3] == stored[3] && f[3] > 1);
    assert_true(m->output != m->embedding && m->layers[0].kind == LAYER_ATTENTION && !m->layers[0].q_norm);
    assert_int_equal(m->vocab.n_tokens, 0);
    assert_int_equal(m->hyper.n_vocab_used, 10);
    model_close(m);
    llama_build(&b, &(struct llama_file){.no_output = true, .scaling = "linear", .factor = 2});
    if (model_open_memory(&m, "x", b.data, b.len, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_ptr_equal(m->output, m->embedding);
    assert_true(m->hyper.rope_factors && m->hyper.rope_factors[0] == 2 && m->hyper.rope_factors[3] == 2);
    model_close(m);
    llama_build(&b, &(struct llama_file){.scaling = "none", .factor = 0});
    expect_open("none", buf_str(&b));
    llama_build(&b, &(struct llama_file){.scaling = "yarn", .factor = 2});
    if (model_open_memory(&m, "x", b.data, b.len, &err) != TERN_OK) fail_msg("%s", err.message);
    f = m->hyper.rope_factors; // the fastest pair as it is, the slowest divided; scores grow by (1 + 0.1 ln 2)^2
    assert_true(f && f[0] == 1 && f[3] == 2);
    assert_float_equal(m->hyper.attn_scale, 1.143437 / sqrt(8), 1e-5);
    model_close(m);
    llama_build(&b, &(struct llama_file){.scaling = "yarn", .factor = 0.5f});
    assert_int_equal(refusal_wrong("yarn below 1", buf_str(&b), TERN_BAD_FORMAT, "YaRN RoPE scaling needs"), 0);
    llama_build(&b, &(struct llama_file){.scaling = "longrope", .factor = 2});
    assert_int_equal(refusal_wrong("longrope", buf_str(&b), TERN_UNSUPPORTED, "rope.scaling.type longrope"), 0);
    llama_build(&b, &(struct llama_file){.factors = true, .scaling = "linear", .factor = 2});
    assert_int_equal(refusal_wrong("both", buf_str(&b), TERN_UNSUPPORTED, "beside rope.scaling keys"), 0);
    llama_build(&b, &(struct llama_file){.scaling = "linear", .factor = -2});
    assert_int_equal(refusal_wrong("negative", buf_str(&b), TERN_BAD_FORMAT, "scaling factor is -2"), 0);
    buf_release(&b);
}

// ------------------------------------------------------------------------------------------------ shards

static int first_keys(struct buf *b) {
    put_key(b, "split.count", 2);
    buf_put(b, "\2\0", 2);
    put_key(b, "split.no", 2);
    buf_put(b, "\0\0", 2);
    put_key(b, "split.tensors.count", 5);
    put_u32(b, TINY_TENSORS);
    return 3;
}
static int wrong_count_keys(struct buf *b) {
    kv_u32(b, "split.count", 2);
    kv_u32(b, "split.tensors.count", TINY_TENSORS + 1);
    return 2;
}
// A shard with tensors [from, to) and, unless it is the first, no other keys than its place.
static void shard_write(const char *file, int from, int to, int no, int count, int (*keys)(struct buf *)) {
    struct buf b;
    struct tiny t;
    buf_init(&b, 1u << 20);
    if (no == 0) {
        tiny_init(&t);
        t.more_keys = keys;
        t.n_tensors = to;
        tiny_build(&t, &b);
    } else {
        uint64_t offset = 0;
        buf_puts(&b, "GGUF");
        put_u32(&b, 3);
        put_u64(&b, (uint64_t)(to - from));
        put_u64(&b, 2);
        kv_u32(&b, "split.no", (uint32_t)no);
        kv_u32(&b, "split.count", (uint32_t)count);
        for (int i = from; i < to; i++) {
            const struct tiny_tensor *x = &tiny_tensors[i];
            put_str(&b, x->name);
            put_u32(&b, x->n_dims);
            for (uint32_t k = 0; k < x->n_dims; k++) put_u64(&b, x->ne[k]);
            put_u32(&b, x->type);
            put_u64(&b, offset);
            offset += (tiny_bytes(x) + 31) / 32 * 32;
        }
        put_zeros(&b, (32 - b.len % 32) % 32 + (size_t)offset);
    }
    tmp_write(file, buf_str(&b));
    buf_release(&b);
}

static void split_refused(const char *text) {
    struct model *m;
    struct tern_err err = {0};
    char path[512];
    struct mem_stats before = mem_stats_get();
    if (model_open(&m, tmp_path("t-00001-of-00002.gguf", path), &err) == TERN_OK)
        fail_msg("opened, expected \"%s\"", text);
    if (!strstr(err.message, text)) fail_msg("\"%s\" does not say \"%s\"", err.message, text);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

static void test_split(void **state) {
    (void)state;
    char path[512];
    struct model *m;
    struct tern_err err = {0};
    shard_write("t-00001-of-00002.gguf", 0, 10, 0, 2, first_keys);
    split_refused("shard 2 of 2");
    shard_write("t-00002-of-00002.gguf", 10, TINY_TENSORS, 1, 2, NULL);
    m = must_open(tmp_path("t-00001-of-00002.gguf", path));
    assert_int_equal(m->n_tensors, TINY_TENSORS);
    assert_int_equal(m->layers[1].q->shard, 1);
    assert_int_equal(m->layers[0].conv_in->shard, 0);
    char digest[65];
    memcpy(digest, m->digest, sizeof(digest));
    model_close(m);
    assert_int_equal(model_open(&m, tmp_path("t-00002-of-00002.gguf", path), &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "shard 2 of 2: open the first one"));
    shard_write("t-00002-of-00002.gguf", 10, TINY_TENSORS - 1, 1, 2, NULL);
    split_refused("hold 20 tensors, split.tensors.count says 21");
    shard_write("t-00002-of-00002.gguf", 10, TINY_TENSORS, 1, 3, NULL);
    split_refused("says it is shard 2 of 3, expected 2 of 2");
    shard_write("t-00002-of-00002.gguf", 9, TINY_TENSORS, 1, 2, NULL);
    split_refused("duplicate tensor name blk.0.ffn_down.weight");
    shard_write("t-00002-of-00002.gguf", 10, TINY_TENSORS, 1, 2, NULL);
    shard_write("t-00001-of-00002.gguf", 0, 10, 0, 2, wrong_count_keys);
    split_refused("hold 21 tensors, split.tensors.count says 22");
    shard_write("odd.gguf", 0, 10, 0, 2, first_keys);
    assert_int_equal(model_open(&m, tmp_path("odd.gguf", path), &err), TERN_BAD_FORMAT);
    assert_non_null(strstr(err.message, "does not end in -00001-of-00002.gguf"));
}

// ------------------------------------------------------------------------------------------------ the rest

struct seen {
    int n;
    bool kv, tokens, template;
};
static void meta_seen(void *arg, const char *key, const char *type, const char *value) {
    struct seen *s = arg;
    s->n++;
    if (strcmp(key, "lfm2.attention.head_count_kv") == 0)
        s->kv = strcmp(type, "array of uint32") == 0 && strcmp(value, "[2] 0, 1") == 0;
    if (strcmp(key, "tokenizer.ggml.tokens") == 0)
        s->tokens =
            strcmp(type, "array of string") == 0 && strstr(value, "[673] <|pad|>, ") == value && strlen(value) < 400;
    if (strcmp(key, "tokenizer.chat_template") == 0) s->template = strlen(value) < 200 && !strchr(value, '\n');
}
static void meta_config(void *arg, const char *key, const char *type, const char *value) {
    struct seen *s = arg;
    s->n++;
    if (strcmp(key, "layer_types") == 0) s->kv = strcmp(type, "array") == 0 && strstr(value, "full_attention");
    if (strcmp(key, "norm_eps") == 0) s->tokens = strcmp(type, "number") == 0 && strcmp(value, "1e-05") == 0;
}

static void test_meta(void **state) {
    (void)state;
    struct seen s = {0};
    struct model *m = must_open(SCRIPT_GGUF);
    model_meta_each(m, meta_seen, &s);
    assert_true(s.n == 25 && s.kv && s.tokens && s.template);
    model_close(m);
    s = (struct seen){0};
    m = must_open(SCRIPT_HF);
    model_meta_each(m, meta_config, &s);
    assert_true(s.n > 20 && s.kv && s.tokens);
    model_close(m);
}

// The digest follows the bytes that are sampled, and nothing else of the file system.
static void test_digest(void **state) {
    (void)state;
    struct buf b;
    char path[512], digest[65];
    buf_init(&b, 4u << 20);
    file_get(&b, SCRIPT_GGUF);
    struct model *m = must_open(SCRIPT_GGUF);
    memcpy(digest, m->digest, sizeof(digest));
    assert_int_equal(strlen(digest), 64);
    model_close(m);
    tmp_write("copy.gguf", buf_str(&b));
    m = must_open(tmp_path("copy.gguf", path));
    assert_string_equal(m->digest, digest);
    model_close(m);
    size_t name = str_find(buf_str(&b), STR("script"), 0);
    const size_t places[] = {name, 14048, b.len - 1}; // header, first and last window
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        b.data[places[i]] ^= 1;
        tmp_write("copy.gguf", buf_str(&b));
        struct tern_err err = {0};
        if (model_open(&m, tmp_path("copy.gguf", path), &err) != TERN_OK) fail_msg("%s", err.message);
        assert_string_not_equal(m->digest, digest);
        model_close(m);
        b.data[places[i]] ^= 1;
    }
    buf_putc(&b, 0);
    tmp_write("copy.gguf", buf_str(&b));
    m = must_open(tmp_path("copy.gguf", path));
    assert_string_not_equal(m->digest, digest);
    model_close(m);
    buf_release(&b);
}

static void test_drop(void **state) {
    (void)state;
    struct model *m = must_open(SCRIPT_GGUF);
    const struct tensor *t = m->layers[1].ffn_down;
    uint64_t before = hash_bytes(t->data, (size_t)t->n_bytes, 1);
    for (int i = 0; i < m->n_tensors; i++) model_tensor_drop(m, &m->tensors[i]);
    assert_true(hash_bytes(t->data, (size_t)t->n_bytes, 1) == before); // read again from the file
    model_close(m);
    model_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pico),   cmocka_unit_test(test_names),  cmocka_unit_test(test_drafter),
        cmocka_unit_test(test_script), cmocka_unit_test(test_llama),  cmocka_unit_test(test_split),
        cmocka_unit_test(test_meta),   cmocka_unit_test(test_digest), cmocka_unit_test(test_drop)};
    return cmocka_run_group_tests(tests, NULL, tmp_end);
}
