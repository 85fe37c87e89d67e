// Gemma 3, text: attention in every layer, five layers of six with a sliding window and a rotation of their own, the
// sixth over the whole context. Norms stand before and behind both parts of a layer, and before the rotation of q and
// k; embeddings are scaled by the square root of the width; the feed-forward gate is gelu.
//
// Folders store norms as w - 1, GGUF as they multiply. GGUF files say nothing of the usual pattern of layers, of the
// local rotation's base and of the scale of scores, because one engine knows them; here they are named and may be
// given. A pattern is every which layer has no window, or a truth value for each layer; without a window's size none
// has one.
#include "base/base.h"
#include "model/arch_tensors.h"
#include <math.h>

#define LOCAL_BASE 10000.0f

#define HF_LAYER "model.layers.%d."
#define ROW(gguf, hf, field, ne0, ne1, small) ARCH_ROW(HF_LAYER, gguf, hf, WHERE_LAYER, field, ne0, ne1, small)

static const struct arch_tensor gemma3_tensors[] = {
    ARCH_ROW_OUTPUT_NORM,
    ARCH_ROWS_ATTENTION(HF_LAYER),
    ARCH_ROWS_HEAD_NORMS(HF_LAYER),
    ROW("post_attention_norm", "post_attention_layernorm", attn_post_norm, DIM_EMBD, DIM_NONE, true),
    ROW("ffn_norm", "pre_feedforward_layernorm", ffn_norm, DIM_EMBD, DIM_NONE, true),
    ROW("ffn_gate", "mlp.gate_proj", ffn_gate, DIM_EMBD, DIM_FF, false),
    ROW("ffn_up", "mlp.up_proj", ffn_up, DIM_EMBD, DIM_FF, false),
    ROW("ffn_down", "mlp.down_proj", ffn_down, DIM_FF, DIM_EMBD, false),
    ROW("post_ffw_norm", "post_feedforward_layernorm", ffn_post_norm, DIM_EMBD, DIM_NONE, true),
};

static void facts_set(struct model_params *p) {
    p->hyper.ffn_gelu = true;
    p->hyper.embed_scale = sqrtf((float)p->hyper.n_embd);
}

static void pattern_set(struct model_params *p, int window, int pattern) {
    for (int i = 0; i < p->hyper.n_layers; i++) p->windows[i] = (i + 1) % pattern != 0 ? window : 0;
}

static enum tern_status windows_gguf(struct model_params *p, const struct gguf *g, struct tern_err *err) {
    const char *const key = "@attention.sliding_window_pattern";
    int64_t window = 0, pattern = GEMMA3_PATTERN;
    const struct gguf_kv *list = gguf_find(g, key);
    TRY(gguf_opt_int(g, "@attention.sliding_window", 1, MODEL_CTX_MAX, &window, err));
    if (list && list->type == GGUF_ARRAY) {
        TRY(gguf_opt_array(g, key, GGUF_BOOL, &list, err));
        if (list->n != (uint64_t)p->hyper.n_layers)
            return err_set(err, TERN_BAD_FORMAT, "key %s.%s has %llu entries, the model %d layers", g->arch, key + 1,
                           (unsigned long long)list->n, p->hyper.n_layers);
        for (int i = 0; i < p->hyper.n_layers; i++) p->windows[i] = list->data[i] ? (int)window : 0;
        return TERN_OK;
    }
    TRY(gguf_opt_int(g, key, 1, MODEL_LAYERS_MAX, &pattern, err));
    pattern_set(p, (int)window, (int)pattern);
    return TERN_OK;
}

static enum tern_status params_gguf(struct model_params *p, struct model_source *s, struct tern_err *err) {
    const struct gguf *g = &s->gguf;
    double local = LOCAL_BASE, cap = 0;
    TRY(gguf_params_decoder(p, s, err));
    TRY(windows_gguf(p, g, err));
    TRY(gguf_opt_f64(g, "@rope.freq_base_swa", &local, err));
    TRY(gguf_opt_f64(g, "@attn_logit_softcapping", &cap, err));
    if (cap != 0) return err_set(err, TERN_UNSUPPORTED, "attn_logit_softcapping is not supported");
    TRY(gguf_opt_f64(g, "@final_logit_softcapping", &cap, err));
    if (cap != 0) return err_set(err, TERN_UNSUPPORTED, "final_logit_softcapping is not supported");
    if (!(local >= 1 && local <= 1e30))
        return err_set(err, TERN_BAD_FORMAT, "the local RoPE base is %g, must be at least 1", local);
    if (p->hyper.rope_base == 0) p->hyper.rope_base = 1e6f;
    p->hyper.rope_base_local = (float)local;
    if (p->hyper.n_layers == GEMMA3_LAYERS_OF_27B) {
        double of_head = (double)p->hyper.n_embd / p->hyper.n_head;
        p->hyper.attn_scale = (float)(1.0 / sqrt(of_head));
    }
    facts_set(p);
    TRY(params_check(p, err));
    return gguf_rope_scaling(p, s, err);
}

static enum tern_status windows_hf(struct model_params *p, const struct hf_config *c, struct tern_err *err) {
    int64_t pattern = c->sliding_pattern != HF_ABSENT       ? c->sliding_pattern
                      : c->sliding_pattern_too != HF_ABSENT ? c->sliding_pattern_too
                                                            : GEMMA3_PATTERN;
    if (c->sliding_window < 1 || c->sliding_window > MODEL_CTX_MAX) // HF_ABSENT too
        return err_set(err, TERN_BAD_FORMAT, "config.json: sliding_window is missing or not 1 to %d", MODEL_CTX_MAX);
    if (pattern < 1 || pattern > MODEL_LAYERS_MAX)
        return err_set(err, TERN_BAD_FORMAT, "config.json: sliding_window_pattern is %lld, must be 1 to %d",
                       (long long)pattern, MODEL_LAYERS_MAX);
    pattern_set(p, (int)c->sliding_window, (int)pattern);
    for (int i = 0; i < p->hyper.n_layers && c->n_layer_types >= 0; i++)
        p->windows[i] = c->layer_types[i] == HF_LAYER_SLIDING ? (int)c->sliding_window : 0;
    double local = c->rope_local == c->rope_local                   ? c->rope_local
                   : c->rope_sliding.theta == c->rope_sliding.theta ? c->rope_sliding.theta
                                                                    : LOCAL_BASE;
    if (!(local >= 1 && local <= 1e30))
        return err_set(err, TERN_BAD_FORMAT, "config.json: the local RoPE base is %g, must be at least 1", local);
    if (c->rope_sliding.type.len && !str_eqz(c->rope_sliding.type, "default"))
        return err_set(err, TERN_UNSUPPORTED, "config.json: RoPE scaling '%.*s' of sliding layers is not supported",
                       SHOW(c->rope_sliding.type));
    p->hyper.rope_base_local = (float)local;
    return TERN_OK;
}

static enum tern_status params_hf(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                  struct tern_err *err) {
    TRY(hf_params_decoder(p, s, c, err));
    if (c->hidden_activation.len && !str_eqz(c->hidden_activation, "gelu_pytorch_tanh"))
        return err_set(err, TERN_UNSUPPORTED, "config.json: hidden_activation %.*s is not supported (%s is)",
                       SHOW(c->hidden_activation), "gelu_pytorch_tanh");
    if (c->softcap_attn == c->softcap_attn || c->softcap_logits == c->softcap_logits)
        return err_set(err, TERN_UNSUPPORTED, "config.json: softcapping of scores or logits is not supported");
    if (c->bidirectional == 1)
        return err_set(err, TERN_UNSUPPORTED, "config.json: use_bidirectional_attention is not supported");
    if (c->head_dim == HF_ABSENT) p->hyper.head_dim = 256; // the class default
    double scalar = c->query_scalar == c->query_scalar ? c->query_scalar : 256;
    if (!(scalar > 0 && scalar < 1e6))
        return err_set(err, TERN_BAD_FORMAT, "config.json: query_pre_attn_scalar is %g, must be above 0", scalar);
    p->hyper.attn_scale = (float)(1.0 / sqrt(scalar));
    TRY(windows_hf(p, c, err));
    facts_set(p);
    TRY(params_check(p, err));
    return hf_rope_read(p, s, c, 1e6, err);
}

const struct model_arch_kind arch_gemma3 = {
    .name = "gemma3",
    .hf_type = "gemma3_text",
    .rope_gguf = ROPE_HALF,
    .rope_hf = ROPE_HALF,
    .tied_default = true,
    .has_windows = true,
    .norm_plus_1 = true,
    .tensors = gemma3_tensors,
    .n_tensors = ARRAY_LEN(gemma3_tensors),
    .ff_name = {"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"},
    .params_gguf = params_gguf,
    .params_hf = params_hf,
};
