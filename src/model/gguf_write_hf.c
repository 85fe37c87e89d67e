// What a Hugging Face folder becomes in GGUF: keys and tensor names as llama.cpp's converters write them for lfm2,
// llama and qwen3. Tensors are found through the architecture's own table of names, so nothing is listed twice.
//
// llama's q and k change the order of their rows (GGUF runs them with interleaved RoPE pairs), Llama-3 frequency
// scaling becomes the tensor rope_freqs.weight, convolution taps lose their size of one.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

#define NAME_BUF 128

static void put_u32_key(struct buf *b, uint64_t *n, const char *arch, const char *key, uint32_t v) {
    char name[NAME_BUF];
    snprintf(name, sizeof name, "%s%s%s", arch, arch[0] ? "." : "", key);
    gguf_put_key(b, name, GGUF_U32);
    gguf_put_u32(b, v);
    ++*n;
}

static void put_f32_key(struct buf *b, uint64_t *n, const char *arch, const char *key, float v) {
    char name[NAME_BUF];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_put_key(b, name, GGUF_F32);
    gguf_put_u32(b, f32_bits(v));
    ++*n;
}

static void put_str_key(struct buf *b, uint64_t *n, const char *key, struct str v) {
    gguf_put_key(b, key, GGUF_STRING);
    gguf_put_str(b, v);
    ++*n;
}

static void put_bool_key(struct buf *b, uint64_t *n, const char *key, bool v) {
    gguf_put_key(b, key, GGUF_BOOL);
    buf_putc(b, v ? 1 : 0);
    ++*n;
}

static void put_strs_key(struct buf *b, uint64_t *n, const char *key, const struct str *v, int n_items) {
    gguf_put_key(b, key, GGUF_ARRAY);
    gguf_put_u32(b, GGUF_STRING);
    gguf_put_u64(b, (uint64_t)n_items);
    for (int i = 0; i < n_items; i++) gguf_put_str(b, v[i]);
    ++*n;
}

static void hyper_keys(const struct model *m, struct buf *b, uint64_t *n) {
    const struct model_hyper *h = &m->hyper;
    const char *a = m->arch_name;
    put_u32_key(b, n, a, "block_count", (uint32_t)h->n_layers);
    put_u32_key(b, n, a, "context_length", (uint32_t)h->n_ctx);
    put_u32_key(b, n, a, "embedding_length", (uint32_t)h->n_embd);
    put_u32_key(b, n, a, "feed_forward_length", (uint32_t)h->n_ff);
    put_u32_key(b, n, a, "attention.head_count", (uint32_t)h->n_head);
    put_f32_key(b, n, a, "attention.layer_norm_rms_epsilon", h->norm_eps);
    put_f32_key(b, n, a, "rope.freq_base", h->rope_base);
    put_u32_key(b, n, a, "vocab_size", (uint32_t)h->n_vocab);
    if (h->head_dim * h->n_head != h->n_embd || m->arch == &arch_qwen3) {
        put_u32_key(b, n, a, "attention.key_length", (uint32_t)h->head_dim);
        put_u32_key(b, n, a, "attention.value_length", (uint32_t)h->head_dim);
    }
    if (m->arch == &arch_llama) {
        put_u32_key(b, n, a, "attention.head_count_kv", (uint32_t)h->n_head_kv);
        put_u32_key(b, n, a, "rope.dimension_count", (uint32_t)h->head_dim);
        return;
    }
    if (m->arch == &arch_qwen3) {
        put_u32_key(b, n, a, "attention.head_count_kv", (uint32_t)h->n_head_kv);
        return;
    }
    char name[NAME_BUF];
    snprintf(name, sizeof name, "%s.attention.head_count_kv", a);
    gguf_put_key(b, name, GGUF_ARRAY);
    gguf_put_u32(b, GGUF_I32);
    gguf_put_u64(b, (uint64_t)h->n_layers);
    for (int i = 0; i < h->n_layers; i++) gguf_put_u32(b, (uint32_t)m->layers[i].n_head_kv); // 0: a convolution layer
    ++*n;
    if (h->conv_len > 0) put_u32_key(b, n, a, "shortconv.l_cache", (uint32_t)h->conv_len);
}

static void vocab_keys(const struct model_export *x, struct buf *b, uint64_t *n) {
    const struct model_vocab *v = &x->model->vocab;
    const struct model_export_vocab *e = &x->vocab;
    put_str_key(b, n, "tokenizer.ggml.model", STR("gpt2"));
    put_str_key(b, n, "tokenizer.ggml.pre", str_from(e->pre));
    put_strs_key(b, n, "tokenizer.ggml.tokens", e->tokens, e->n_tokens);
    gguf_put_key(b, "tokenizer.ggml.token_type", GGUF_ARRAY);
    gguf_put_u32(b, GGUF_I32);
    gguf_put_u64(b, (uint64_t)e->n_tokens);
    buf_put(b, e->types, (size_t)e->n_tokens * sizeof *e->types);
    ++*n;
    put_strs_key(b, n, "tokenizer.ggml.merges", e->merges, e->n_merges);
    // Up to two further end tokens have keys of their own.
    static const char *const more[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", v->bos},
               {"tokenizer.ggml.eos_token_id", v->eos},
               {"tokenizer.ggml.padding_token_id", v->pad}};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (ids[i].id >= 0) put_u32_key(b, n, "", ids[i].key, (uint32_t)ids[i].id);
    for (int i = 0; i < v->n_eos_more && i < (int)ARRAY_LEN(more); i++)
        put_u32_key(b, n, "", more[i], (uint32_t)v->eos_more[i]);
    put_bool_key(b, n, "tokenizer.ggml.add_bos_token", v->add_bos >= 0 ? v->add_bos == 1 : e->adds_bos);
    if (v->add_eos >= 0) put_bool_key(b, n, "tokenizer.ggml.add_eos_token", v->add_eos == 1);
    if (v->chat_template.len > 0) put_str_key(b, n, "tokenizer.chat_template", v->chat_template);
}

enum tern_status gguf_write_hf_keys(const struct model_export *x, struct buf *b, uint64_t *n_keys,
                                    struct tern_err *err) {
    const struct model *m = x->model;
    if (x->vocab.n_tokens > 0 && m->vocab.n_eos_more > 2)
        return err_set(err, TERN_UNSUPPORTED, "the model has %d end tokens; a GGUF file can name 3",
                       m->vocab.n_eos_more + 1);
    put_str_key(b, n_keys, "general.architecture", str_from(m->arch_name));
    put_str_key(b, n_keys, "general.type", STR("model"));
    put_str_key(b, n_keys, "general.name", str_from(x->name ? x->name : m->name));
    hyper_keys(m, b, n_keys);
    if (x->vocab.n_tokens > 0) vocab_keys(x, b, n_keys);
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------- tensors

static const char *name_fill(const char *pattern, int layer, char out[NAME_BUF]) {
    size_t at = str_find(str_from(pattern), STR("%d"), 0);
    if (at == (size_t)-1)
        snprintf(out, NAME_BUF, "%s", pattern);
    else
        snprintf(out, NAME_BUF, "%.*s%d%s", (int)at, pattern, layer, pattern + at + 2);
    return out;
}

static enum tern_status tensor_add(struct model_export *x, const char *name, const char *hf_name, bool is_small,
                                   struct tern_err *err) {
    const struct tensor *t = table_find(x->model->source, str_from(hf_name));
    if (!t) return TERN_OK; // not in this layer
    if (x->n_tensors > x->model->n_tensors) TERN_BUG("tensor %s is listed twice", hf_name);
    struct model_export_tensor *e = &x->tensors[x->n_tensors++];
    *e = (struct model_export_tensor){.from = t, .is_small = is_small};
    e->name = (struct str){arena_dup(&x->arena, name, strlen(name)), strlen(name)};
    if (!e->name.data) return err_set(err, TERN_NO_MEMORY, "no memory for a tensor's name");
    for (int i = 0; i < t->n_dims; i++)
        if (i == 0 || t->n_dims <= 2 || t->ne[i] != 1) e->ne[e->n_dims++] = t->ne[i];
    for (int i = e->n_dims; i < MODEL_DIMS_MAX; i++) e->ne[i] = 1;
    bool is_rotated = str_ends(e->name, STR("attn_q.weight")) || str_ends(e->name, STR("attn_k.weight"));
    if (is_rotated && x->model->arch->rope_gguf == ROPE_INTERLEAVED && x->model->arch->rope_hf == ROPE_HALF)
        e->head_dim = x->model->hyper.head_dim;
    return TERN_OK;
}

static enum tern_status layers_add(struct model_export *x, struct tern_err *err) {
    const struct model_arch_kind *arch = x->model->arch;
    char name[NAME_BUF], hf_name[NAME_BUF];
    for (int layer = -1; layer < x->model->hyper.n_layers; layer++) { // -1: the global ones
        for (int k = 0; k < arch->n_tensors; k++) {
            const struct arch_tensor *row = &arch->tensors[k];
            if ((row->where == WHERE_GLOBAL) != (layer < 0)) continue;
            TRY(tensor_add(x, name_fill(row->name[NAME_GGUF], layer, name),
                           name_fill(row->name[NAME_HF], layer, hf_name), row->is_small, err));
        }
    }
    return TERN_OK;
}

enum tern_status gguf_write_hf_tensors(struct model_export *x, struct tern_err *err) {
    const struct model *m = x->model;
    if (m->arch != &arch_lfm2 && m->arch != &arch_llama && m->arch != &arch_qwen3)
        return err_set(err, TERN_UNSUPPORTED,
                       "a Hugging Face folder of architecture %s cannot be written as GGUF here (lfm2, llama and qwen3 "
                       "can); convert it with llama.cpp first",
                       m->arch_name);
    float usual = (float)(1.0 / sqrt((double)m->hyper.head_dim)); // YaRN changes it
    if ((m->hyper.rope_factors && m->arch != &arch_llama) || m->hyper.attn_scale != usual)
        return err_set(err, TERN_UNSUPPORTED, "RoPE scaling of a %s model has no form in a GGUF file", m->arch_name);
    TRY(tensor_add(x, "token_embd.weight", "model.embed_tokens.weight", false, err));
    if (m->output != m->embedding) TRY(tensor_add(x, "output.weight", "lm_head.weight", false, err));
    if (m->hyper.rope_factors) {
        struct model_export_tensor *e = &x->tensors[x->n_tensors++];
        *e = (struct model_export_tensor){
            .name = STR("rope_freqs.weight"), .values = m->hyper.rope_factors, .n_dims = 1, .is_small = true};
        e->ne[0] = m->hyper.head_dim / 2;
        e->ne[1] = e->ne[2] = e->ne[3] = 1;
    }
    return layers_add(x, err);
}
