// LFM2 and LFM2.5, dense or with experts behind the first dense layers (lfm2moe): attention layers with per-head q/k
// norms between gated short convolutions; any layer map, any tap count. RoPE pairs are half-split in both file kinds.
// The embedding output is not normalised: the tensor that GGUF calls token_embd_norm is the norm before the logits.
#include "base/base.h"
#include "model/model_int.h"

#define HF_LAYER "model.layers.%d."
#define LAYER(field) offsetof(struct model_layer, field)

static const struct arch_tensor lfm2_tensors[] = {
    {{"token_embd_norm.weight", "model.embedding_norm.weight", "output_norm.weight"},
     WHERE_GLOBAL,
     offsetof(struct model, output_norm),
     DIM_EMBD,
     DIM_NONE,
     true},
    {{"blk.%d.attn_norm.weight", HF_LAYER "operator_norm.weight", NULL},
     WHERE_LAYER,
     LAYER(attn_norm),
     DIM_EMBD,
     DIM_NONE,
     true},
    {{"blk.%d.attn_q.weight", HF_LAYER "self_attn.q_proj.weight", NULL},
     WHERE_ATTENTION,
     LAYER(q),
     DIM_EMBD,
     DIM_Q,
     false},
    {{"blk.%d.attn_k.weight", HF_LAYER "self_attn.k_proj.weight", NULL},
     WHERE_ATTENTION,
     LAYER(k),
     DIM_EMBD,
     DIM_KV,
     false},
    {{"blk.%d.attn_v.weight", HF_LAYER "self_attn.v_proj.weight", NULL},
     WHERE_ATTENTION,
     LAYER(v),
     DIM_EMBD,
     DIM_KV,
     false},
    {{"blk.%d.attn_output.weight", HF_LAYER "self_attn.out_proj.weight", NULL},
     WHERE_ATTENTION,
     LAYER(o),
     DIM_Q,
     DIM_EMBD,
     false},
    {{"blk.%d.attn_q_norm.weight", HF_LAYER "self_attn.q_layernorm.weight", NULL},
     WHERE_ATTENTION,
     LAYER(q_norm),
     DIM_HEAD,
     DIM_NONE,
     true},
    {{"blk.%d.attn_k_norm.weight", HF_LAYER "self_attn.k_layernorm.weight", NULL},
     WHERE_ATTENTION,
     LAYER(k_norm),
     DIM_HEAD,
     DIM_NONE,
     true},
    {{"blk.%d.shortconv.in_proj.weight", HF_LAYER "conv.in_proj.weight", NULL},
     WHERE_CONV,
     LAYER(conv_in),
     DIM_EMBD,
     DIM_EMBD3,
     false},
    {{"blk.%d.shortconv.conv.weight", HF_LAYER "conv.conv.weight", NULL},
     WHERE_CONV,
     LAYER(conv_taps),
     DIM_TAPS,
     DIM_EMBD,
     true},
    {{"blk.%d.shortconv.out_proj.weight", HF_LAYER "conv.out_proj.weight", NULL},
     WHERE_CONV,
     LAYER(conv_out),
     DIM_EMBD,
     DIM_EMBD,
     false},
    {{"blk.%d.ffn_norm.weight", HF_LAYER "ffn_norm.weight", NULL},
     WHERE_LAYER,
     LAYER(ffn_norm),
     DIM_EMBD,
     DIM_NONE,
     true},
    {{"blk.%d.ffn_gate.weight", HF_LAYER "feed_forward.w1.weight", NULL},
     WHERE_DENSE,
     LAYER(ffn_gate),
     DIM_EMBD,
     DIM_FF,
     false},
    {{"blk.%d.ffn_up.weight", HF_LAYER "feed_forward.w3.weight", NULL},
     WHERE_DENSE,
     LAYER(ffn_up),
     DIM_EMBD,
     DIM_FF,
     false},
    {{"blk.%d.ffn_down.weight", HF_LAYER "feed_forward.w2.weight", NULL},
     WHERE_DENSE,
     LAYER(ffn_down),
     DIM_FF,
     DIM_EMBD,
     false},
    {{"blk.%d.ffn_gate_inp.weight", HF_LAYER "feed_forward.gate.weight", NULL},
     WHERE_ROUTED,
     LAYER(router),
     DIM_EMBD,
     DIM_EXPERTS,
     true},
    {{"blk.%d.exp_probs_b.bias", HF_LAYER "feed_forward.expert_bias", NULL},
     WHERE_ROUTER_BIAS,
     LAYER(router_bias),
     DIM_EXPERTS,
     DIM_NONE,
     true},
    {{"blk.%d.ffn_gate_exps.weight", HF_LAYER "feed_forward.experts.%d.w1.weight", NULL},
     WHERE_EXPERT,
     offsetof(struct model_expert, gate),
     DIM_EMBD,
     DIM_FF_EXPERT,
     false},
    {{"blk.%d.ffn_up_exps.weight", HF_LAYER "feed_forward.experts.%d.w3.weight", NULL},
     WHERE_EXPERT,
     offsetof(struct model_expert, up),
     DIM_EMBD,
     DIM_FF_EXPERT,
     false},
    {{"blk.%d.ffn_down_exps.weight", HF_LAYER "feed_forward.experts.%d.w2.weight", NULL},
     WHERE_EXPERT,
     offsetof(struct model_expert, down),
     DIM_FF_EXPERT,
     DIM_EMBD,
     false},
};

int64_t lfm2_ff_width(int64_t block_ff_dim, bool adjust, bool has_multiplier, double multiplier, int64_t multiple_of) {
    if (block_ff_dim < 1 || block_ff_dim > 2 * (int64_t)MODEL_FF_MAX) return -1;
    int64_t ff = block_ff_dim;
    if (adjust) {
        if (multiple_of < 1 || multiple_of > MODEL_FF_MAX) return -1;
        ff = 2 * ff / 3;
        if (has_multiplier) {
            double scaled = multiplier * (double)ff;
            if (!(scaled >= 1 && scaled <= (double)MODEL_FF_MAX)) return -1;
            ff = (int64_t)scaled;
        }
        ff = (ff + multiple_of - 1) / multiple_of * multiple_of;
    }
    return ff >= 1 && ff <= MODEL_FF_MAX ? ff : -1;
}

static bool has_conv(const struct model_params *p) {
    for (int i = 0; i < p->hyper.n_layers; i++)
        if (p->kinds[i] == LAYER_CONV) return true;
    return false;
}

// Does the first layer with experts have the tensor?
static bool first_routed_has(const struct model_params *p, const struct model_source *s, const char *name) {
    char full[MODEL_NAME_MAX];
    int i = 0;
    while (i < p->hyper.n_layers && !p->routed[i]) i++;
    snprintf(full, sizeof(full), "blk.%d.%s", i, name);
    return table_find(s, str_from(full)) != NULL;
}

static enum tern_status params_gguf(struct model_params *p, struct model_source *s, struct tern_err *err) {
    TRY(gguf_params_common(p, s, err));
    if (p->hyper.rope_base == 0) return err_set(err, TERN_BAD_FORMAT, "key %s.rope.freq_base is missing", s->gguf.arch);
    if (p->arch == &arch_lfm2moe) {
        p->hyper.router_sigmoid = true;
        TRY(moe_params_gguf(p, &s->gguf, err));
        p->has_router_bias = first_routed_has(p, s, "exp_probs_b.bias");
    }
    if (has_conv(p)) {
        int64_t n;
        TRY(gguf_need_int(&s->gguf, "@shortconv.l_cache", 1, MODEL_CONV_LEN_MAX, &n, err));
        p->hyper.conv_len = (int)n;
    }
    TRY(params_check(p, err));
    return gguf_rope_scaling(p, s, err);
}

// layer_types or full_attn_idxs; a file that says neither is refused, since the class default (all attention) fits no
// published model.
static enum tern_status layer_map_hf(struct model_params *p, const struct hf_config *c, struct tern_err *err) {
    int n = p->hyper.n_layers;
    if (c->n_layer_types < 0 && c->n_attn_idxs < 0)
        return err_set(err, TERN_BAD_FORMAT,
                       "config.json says nowhere which layers are attention: layer_types or full_attn_idxs is needed");
    if (c->n_layer_types >= 0 && c->n_layer_types != n)
        return err_set(err, TERN_BAD_FORMAT, "config.json: layer_types has %d items for %d layers", c->n_layer_types,
                       n);
    for (int i = 0; i < n; i++) {
        enum hf_layer_type type = c->n_layer_types >= 0 ? c->layer_types[i] : HF_LAYER_CONV;
        if (type == HF_LAYER_SLIDING)
            return err_set(err, TERN_UNSUPPORTED, "config.json: layer %d has sliding attention, which LFM2 has not", i);
        p->kinds[i] = type == HF_LAYER_FULL ? LAYER_ATTENTION : LAYER_CONV;
    }
    int n_attn = 0;
    for (int i = 0; i < n; i++) n_attn += p->kinds[i] == LAYER_ATTENTION;
    for (int k = 0; k < c->n_attn_idxs; k++) {
        int i = c->attn_idxs[k];
        if (i < 0 || i >= n)
            return err_set(err, TERN_BAD_FORMAT, "config.json: full_attn_idxs names layer %d of %d", i, n);
        if (c->n_layer_types >= 0 && p->kinds[i] != LAYER_ATTENTION)
            return err_set(err, TERN_BAD_FORMAT, "config.json: layer_types and full_attn_idxs disagree on layer %d", i);
        p->kinds[i] = LAYER_ATTENTION;
    }
    if (c->n_layer_types >= 0 && c->n_attn_idxs >= 0 && c->n_attn_idxs != n_attn)
        return err_set(err, TERN_BAD_FORMAT, "config.json: layer_types has %d attention layers, full_attn_idxs %d",
                       n_attn, c->n_attn_idxs);
    for (int i = 0; i < n; i++) p->n_head_kv[i] = p->kinds[i] == LAYER_ATTENTION ? p->hyper.n_head_kv : 0;
    return TERN_OK;
}

static enum tern_status params_hf(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                  struct tern_err *err) {
    // A prompt router (Lfm2BidirForSequenceRouting) keeps its encoder under a name of its own, the head beside it.
    if (table_find(s, STR("lfm2.embed_tokens.weight"))) TRY(table_rename(s, "lfm2.", "model.", err));
    TRY(hf_params_common(p, s, c, err));
    p->hyper.bidirectional = str_find(c->class_name, STR("Bidir"), 0) != (size_t)-1; // Lfm2BidirectionalModel
    if (c->n_head_kv == HF_ABSENT) return err_set(err, TERN_BAD_FORMAT, "config.json: num_key_value_heads is missing");
    if (c->norm_eps != c->norm_eps) return err_set(err, TERN_BAD_FORMAT, "config.json: norm_eps is missing");
    p->hyper.norm_eps = (float)c->norm_eps;
    TRY(layer_map_hf(p, c, err));
    if (c->conv_bias == 1)
        return err_set(err, TERN_UNSUPPORTED, "config.json: conv_bias is true, which is not supported");
    if (has_conv(p)) {
        if (c->conv_len == HF_ABSENT) return err_set(err, TERN_BAD_FORMAT, "config.json: conv_L_cache is missing");
        if (c->conv_len < 1 || c->conv_len > MODEL_CONV_LEN_MAX)
            return err_set(err, TERN_BAD_FORMAT, "config.json: conv_L_cache is %lld, must be 1 to %d",
                           (long long)c->conv_len, MODEL_CONV_LEN_MAX);
        p->hyper.conv_len = (int)c->conv_len;
    }
    bool legacy = c->block_ff_dim != HF_ABSENT;
    int64_t raw = legacy ? c->block_ff_dim : c->intermediate_size;
    if (raw == HF_ABSENT)
        return err_set(err, TERN_BAD_FORMAT, "config.json: neither block_ff_dim nor intermediate_size is there");
    bool has_multiplier = c->ff_multiplier == c->ff_multiplier;
    // Absent means true, as in the class: files that store the final width say false, or lack the legacy keys.
    bool adjust = c->ff_adjust >= 0 ? c->ff_adjust : legacy;
    int64_t multiple_of = c->block_multiple_of == HF_ABSENT ? 256 : c->block_multiple_of;
    int64_t ff = lfm2_ff_width(raw, adjust, has_multiplier, c->ff_multiplier, multiple_of);
    if (ff < 0)
        return err_set(err, TERN_BAD_FORMAT, "config.json: block_ff_dim %lld makes no width from 1 to %d",
                       (long long)raw, MODEL_FF_MAX);
    p->hyper.n_ff = (int)ff;
    p->ff_key = legacy ? "block_ff_dim" : "intermediate_size";
    TRY(params_check(p, err));
    return hf_rope_read(p, s, c, 1e6, err);
}

static enum tern_status params_hf_moe(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                      struct tern_err *err) {
    TRY(params_hf(p, s, c, err));
    p->hyper.router_sigmoid = true;
    TRY(moe_params_hf(p, c, err));
    int64_t n_dense = c->n_dense_layers == HF_ABSENT ? 2 : c->n_dense_layers; // the class default
    if (n_dense < 0 || n_dense > p->hyper.n_layers)
        return err_set(err, TERN_BAD_FORMAT, "config.json: num_dense_layers is %lld, must be 0 to %d",
                       (long long)n_dense, p->hyper.n_layers);
    moe_layers_set(p, (int)n_dense);
    p->has_router_bias = c->router_bias != 0;
    return TERN_OK;
}

const struct model_arch_kind arch_lfm2 = {
    .name = "lfm2",
    .hf_type = "lfm2",
    .may_encode = true,
    .rope_gguf = ROPE_HALF,
    .rope_hf = ROPE_HALF,
    .tied_default = true,
    .tensors = lfm2_tensors,
    .n_tensors = ARRAY_LEN(lfm2_tensors),
    .ff_name = {"blk.0.ffn_gate.weight", "model.layers.0.feed_forward.w1.weight"},
    .params_gguf = params_gguf,
    .params_hf = params_hf,
};

const struct model_arch_kind arch_lfm2moe = {
    .name = "lfm2moe",
    .hf_type = "lfm2_moe",
    .rope_gguf = ROPE_HALF,
    .rope_hf = ROPE_HALF,
    .tied_default = true,
    .has_experts = true,
    .tensors = lfm2_tensors,
    .n_tensors = ARRAY_LEN(lfm2_tensors),
    .ff_name = {"blk.0.ffn_gate.weight", "model.layers.0.feed_forward.w1.weight"},
    .params_gguf = params_gguf,
    .params_hf = params_hf_moe,
};
