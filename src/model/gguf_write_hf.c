// What a Hugging Face folder becomes in GGUF: keys and tensor names as llama.cpp's converters write them. Tensors are
// found through the architecture's own table of names, so nothing is listed twice.
//
// llama's q and k change the order of their rows (GGUF runs them with interleaved RoPE pairs), Llama-3 frequency
// scaling becomes the tensor rope_freqs.weight, convolution taps lose their size of one, the matrices of a layer's
// experts become one tensor, Gemma's norms multiply as they stand. What a folder can say and the format has no word for
// (a layer without experts among Qwen3's, another scale of scores …) is refused: every reader of the file would compute
// something else. A key that llama.cpp passes over is written and told.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

#define NAME_BUF 128
#define GATING_SIGMOID 2 // expert_gating_func

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

static void put_bools_key(struct buf *b, uint64_t *n, const char *arch, const char *key, const bool *v, int n_items) {
    char name[NAME_BUF];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_put_key(b, name, GGUF_ARRAY);
    gguf_put_u32(b, GGUF_BOOL);
    gguf_put_u64(b, (uint64_t)n_items);
    for (int i = 0; i < n_items; i++) buf_putc(b, v[i] ? 1 : 0);
    ++*n;
}

static void put_strs_key(struct buf *b, uint64_t *n, const char *key, const struct str *v, int n_items) {
    gguf_put_key(b, key, GGUF_ARRAY);
    gguf_put_u32(b, GGUF_STRING);
    gguf_put_u64(b, (uint64_t)n_items);
    for (int i = 0; i < n_items; i++) gguf_put_str(b, v[i]);
    ++*n;
}

// The one divisor of all RoPE pairs; 0: none, or not the same of all.
static float linear_factor(const struct model_hyper *h) {
    for (int i = 1; h->rope_factors && i < h->head_dim / 2; i++)
        if (h->rope_factors[i] != h->rope_factors[0]) return 0;
    return h->rope_factors ? h->rope_factors[0] : 0;
}

static double yarn_attention(const struct rope_yarn *y) { return 1 + 0.1 * log(y->factor); }

static void rope_keys(const struct model *m, struct buf *b, uint64_t *n) {
    const struct rope_yarn *y = &m->source->yarn;
    const char *a = m->arch_name;
    char name[NAME_BUF];
    if (y->factor == 0 && linear_factor(&m->hyper) == 0) return; // none, or a tensor of divisors
    snprintf(name, sizeof name, "%s.rope.scaling.type", a);
    put_str_key(b, n, name, y->factor > 0 ? STR("yarn") : STR("linear"));
    put_f32_key(b, n, a, "rope.scaling.factor", y->factor > 0 ? (float)y->factor : linear_factor(&m->hyper));
    if (y->factor == 0) return;
    put_u32_key(b, n, a, "rope.scaling.original_context_length", (uint32_t)y->ctx_original);
    if (y->beta_fast != ROPE_YARN_FAST) put_f32_key(b, n, a, "rope.scaling.yarn_beta_fast", (float)y->beta_fast);
    if (y->beta_slow != ROPE_YARN_SLOW) put_f32_key(b, n, a, "rope.scaling.yarn_beta_slow", (float)y->beta_slow);
    if (y->attention > 0) // readers multiply it with what the factor gives
        put_f32_key(b, n, a, "rope.scaling.attn_factor", (float)(y->attention / yarn_attention(y)));
}

static int dense_layers(const struct model *m) {
    int n = 0;
    while (n < m->hyper.n_layers && !m->layers[n].router) n++;
    return n;
}

static void expert_keys(const struct model *m, struct buf *b, uint64_t *n) {
    const struct model_hyper *h = &m->hyper;
    const char *a = m->arch_name;
    put_u32_key(b, n, a, "expert_count", (uint32_t)h->n_expert);
    put_u32_key(b, n, a, "expert_used_count", (uint32_t)h->n_expert_used);
    put_u32_key(b, n, a, "expert_feed_forward_length", (uint32_t)h->n_ff_expert);
    if (h->router_scale != 1) put_f32_key(b, n, a, "expert_weights_scale", h->router_scale);
    if (m->arch != &arch_lfm2moe) return;
    put_u32_key(b, n, a, "leading_dense_block_count", (uint32_t)dense_layers(m));
    put_u32_key(b, n, a, "expert_gating_func", GATING_SIGMOID);
}

// Every which layer sees everything, the others a window; 0: no such rule.
static int window_pattern(const struct model *m, int *window) {
    *window = m->hyper.n_ctx;
    for (int i = 0; i < m->hyper.n_layers; i++)
        if (m->layers[i].window) *window = m->layers[i].window;
    for (int pattern = 1; pattern <= m->hyper.n_layers + 1; pattern++) {
        bool fits = true;
        for (int i = 0; i < m->hyper.n_layers && fits; i++)
            fits = m->layers[i].window == ((i + 1) % pattern != 0 ? *window : 0);
        if (fits) return pattern;
    }
    return 0;
}

static void window_keys(const struct model *m, struct buf *b, uint64_t *n) {
    int window, pattern = window_pattern(m, &window);
    bool has_window[MODEL_LAYERS_MAX];
    for (int i = 0; i < m->hyper.n_layers; i++) has_window[i] = m->layers[i].window > 0;
    put_u32_key(b, n, m->arch_name, "attention.sliding_window", (uint32_t)window);
    if (pattern == 0)
        put_bools_key(b, n, m->arch_name, "attention.sliding_window_pattern", has_window, m->hyper.n_layers);
    else if (pattern != GEMMA3_PATTERN)
        put_u32_key(b, n, m->arch_name, "attention.sliding_window_pattern", (uint32_t)pattern);
    put_f32_key(b, n, m->arch_name, "rope.freq_base_swa", m->hyper.rope_base_local);
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
    bool is_qwen3 = m->arch == &arch_qwen3 || m->arch == &arch_qwen3moe, is_gemma3 = m->arch == &arch_gemma3;
    rope_keys(m, b, n);
    if (h->n_expert > 0) expert_keys(m, b, n);
    if (h->bidirectional) {
        char causal[NAME_BUF];
        snprintf(causal, sizeof causal, "%s.attention.causal", a);
        put_bool_key(b, n, causal, false);
    }
    if (h->head_dim * h->n_head != h->n_embd || is_qwen3 || is_gemma3) {
        put_u32_key(b, n, a, "attention.key_length", (uint32_t)h->head_dim);
        put_u32_key(b, n, a, "attention.value_length", (uint32_t)h->head_dim);
    }
    if (m->arch == &arch_llama || is_qwen3 || is_gemma3) {
        put_u32_key(b, n, a, "attention.head_count_kv", (uint32_t)h->n_head_kv);
        if (m->arch == &arch_llama) put_u32_key(b, n, a, "rope.dimension_count", (uint32_t)h->head_dim);
        if (is_gemma3) window_keys(m, b, n);
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
    put_str_key(b, n, "tokenizer.ggml.model", e->scores ? STR("llama") : STR("gpt2"));
    put_str_key(b, n, "tokenizer.ggml.pre", str_from(e->pre));
    put_strs_key(b, n, "tokenizer.ggml.tokens", e->tokens, e->n_tokens);
    gguf_put_key(b, "tokenizer.ggml.token_type", GGUF_ARRAY);
    gguf_put_u32(b, GGUF_I32);
    gguf_put_u64(b, (uint64_t)e->n_tokens);
    buf_put(b, e->types, (size_t)e->n_tokens * sizeof *e->types);
    ++*n;
    if (e->scores) {
        gguf_put_key(b, "tokenizer.ggml.scores", GGUF_ARRAY);
        gguf_put_u32(b, GGUF_F32);
        gguf_put_u64(b, (uint64_t)e->n_tokens);
        buf_put(b, e->scores, (size_t)e->n_tokens * sizeof *e->scores);
        ++*n;
        put_bool_key(b, n, "tokenizer.ggml.add_space_prefix", false);
    } else {
        put_strs_key(b, n, "tokenizer.ggml.merges", e->merges, e->n_merges);
    }
    // Up to two further end tokens have keys of their own.
    static const char *const more[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", v->bos},
               {"tokenizer.ggml.eos_token_id", v->eos},
               {"tokenizer.ggml.padding_token_id", v->pad},
               {"tokenizer.ggml.unknown_token_id", e->scores ? e->unk : -1}};
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

static enum tern_status tensor_add(struct model_export *x, const char *name, const struct tensor *t, bool is_small,
                                   struct tern_err *err) {
    if (!t) return TERN_OK; // not in this layer
    if (x->n_tensors > x->model->n_tensors) TERN_BUG("tensor %s is listed twice", name);
    struct model_export_tensor *e = &x->tensors[x->n_tensors++];
    *e = (struct model_export_tensor){.from = t, .is_small = is_small};
    e->name = (struct str){arena_dup(&x->arena, name, strlen(name)), strlen(name)};
    if (!e->name.data) return err_set(err, TERN_NO_MEMORY, "no memory for a tensor's name");
    for (int i = 0; i < t->n_dims; i++) e->ne[e->n_dims++] = t->ne[i];
    e->n_dims = MAX(e->n_dims, 1); // a single number
    for (int i = e->n_dims; i < MODEL_DIMS_MAX; i++) e->ne[i] = 1;
    bool is_rotated = str_ends(e->name, STR("attn_q.weight")) || str_ends(e->name, STR("attn_k.weight"));
    if (is_rotated && x->model->arch->rope_gguf == ROPE_INTERLEAVED && x->model->arch->rope_hf == ROPE_HALF)
        e->head_dim = x->model->hyper.head_dim;
    return TERN_OK;
}

static const struct tensor *source_find(const struct model *m, const char *hf_name) {
    return table_find(m->source, str_from(hf_name));
}

// What the row became when the model was bound: norms that were stored as w - 1 multiply there, convolution taps have
// lost their size of one, wherever it stood.
static const struct tensor *bound_get(const struct model *m, const struct arch_tensor *row, int layer) {
    const char *base = layer < 0 ? (const char *)m : (const char *)&m->layers[layer];
    const struct tensor *t;
    memcpy(&t, base + row->field, sizeof t);
    return t;
}

// One tensor of all experts of a layer.
static enum tern_status experts_add(struct model_export *x, const char *name, const char *hf_pattern,
                                    struct tern_err *err) {
    const struct model *m = x->model;
    const int n = m->hyper.n_expert;
    char hf_name[NAME_BUF];
    const struct tensor *first = source_find(m, name_fill(hf_pattern, 0, hf_name));
    if (!first) return TERN_OK; // a layer without
    const struct tensor **all = arena_calloc(&x->arena, (size_t)n, sizeof(*all));
    if (!all) return err_set(err, TERN_NO_MEMORY, "no memory for a table of %d experts", n);
    for (int e = 0; e < n; e++) all[e] = source_find(m, name_fill(hf_pattern, e, hf_name)); // bound, so it is there
    TRY(tensor_add(x, name, first, false, err));
    struct model_export_tensor *t = &x->tensors[x->n_tensors - 1];
    t->experts = all;
    t->n_dims = 3;
    t->ne[2] = n;
    return TERN_OK;
}

static enum tern_status layers_add(struct model_export *x, struct tern_err *err) {
    const struct model *m = x->model;
    const struct model_arch_kind *arch = m->arch;
    char name[NAME_BUF], hf_name[NAME_BUF];
    for (int layer = -1; layer < m->hyper.n_layers; layer++) { // -1: the global ones
        for (int k = 0; k < arch->n_tensors; k++) {
            const struct arch_tensor *row = &arch->tensors[k];
            if ((row->where == WHERE_GLOBAL) != (layer < 0)) continue;
            name_fill(row->name[NAME_GGUF], layer, name);
            name_fill(row->name[NAME_HF], layer, hf_name);
            if (row->where == WHERE_EXPERT) {
                TRY(experts_add(x, name, hf_name, err));
                continue;
            }
            const struct tensor *t = source_find(m, hf_name);
            bool is_changed = t && (t->n_dims > 2 || (arch->norm_plus_1 && row->is_small));
            if (is_changed) t = bound_get(m, row, layer);
            TRY(tensor_add(x, name, t, row->is_small, err));
        }
    }
    return TERN_OK;
}

// A prompt router's head keeps its names.
static enum tern_status head_add(struct model_export *x, struct tern_err *err) {
    const struct model *m = x->model;
    char name[NAME_BUF];
    for (int i = 0; m->hyper.bidirectional && i < m->n_tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (!arch_is_head(t->name)) continue;
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        TRY(tensor_add(x, name, t, true, err));
    }
    return TERN_OK;
}

static enum tern_status no_form(const struct model *m, const char *what, struct tern_err *err) {
    return err_set(err, TERN_UNSUPPORTED, "%s of this %s model has no form in a GGUF file", what, m->arch_name);
}

// The scale of scores that readers of the file take.
static float usual_scale(const struct model *m) {
    const struct model_hyper *h = &m->hyper;
    const struct rope_yarn *y = &m->source->yarn;
    double of_head = m->arch == &arch_gemma3 && h->n_layers == GEMMA3_LAYERS_OF_27B ? (double)h->n_embd / h->n_head
                                                                                    : (double)h->head_dim;
    double scale = (double)(float)(1.0 / sqrt(of_head));
    double attention = y->factor == 0 ? 1 : y->attention > 0 ? y->attention : yarn_attention(y);
    return (float)(scale * attention * attention);
}

static enum tern_status forms_check(const struct model *m, struct tern_err *err) {
    const struct model_hyper *h = &m->hyper;
    if (h->attn_scale != usual_scale(m)) return no_form(m, "the scale of scores", err);
    if (m->source->yarn.exact_range) return no_form(m, "YaRN scaling with truncate false", err);
    if (h->rope_factors && m->source->yarn.factor == 0 && linear_factor(h) == 0 && m->arch != &arch_llama)
        return no_form(m, "the kind of RoPE scaling", err);
    if (h->n_expert > 0 && !h->router_norm) return no_form(m, "norm_topk_prob false", err);
    for (int i = dense_layers(m); h->n_expert > 0 && i < h->n_layers; i++)
        if (!m->layers[i].router) return no_form(m, "a layer without experts behind one with experts", err);
    if (m->arch == &arch_qwen3moe && dense_layers(m) > 0) return no_form(m, "a layer without experts", err);
    return TERN_OK;
}

enum tern_status gguf_write_hf_tensors(struct model_export *x, struct tern_err *err) {
    const struct model *m = x->model;
    TRY(forms_check(m, err));
    if (m->hyper.n_expert > 0 && m->hyper.router_scale != 1)
        x->warning = "llama.cpp reads no scale of the experts' weights for this architecture and takes 1: it will "
                     "compute something else from this file";
    TRY(tensor_add(x, "token_embd.weight", source_find(m, "model.embed_tokens.weight"), false, err));
    if (m->output != m->embedding) TRY(tensor_add(x, "output.weight", source_find(m, "lm_head.weight"), false, err));
    if (m->hyper.rope_factors && m->source->yarn.factor == 0 && linear_factor(&m->hyper) == 0) {
        struct model_export_tensor *e = &x->tensors[x->n_tensors++];
        *e = (struct model_export_tensor){
            .name = STR("rope_freqs.weight"), .values = m->hyper.rope_factors, .n_dims = 1, .is_small = true};
        e->ne[0] = m->hyper.head_dim / 2;
        e->ne[1] = e->ne[2] = e->ne[3] = 1;
    }
    TRY(layers_add(x, err));
    return head_add(x, err);
}
