// Qwen3, dense or with experts (qwen3moe): attention in every layer, RMS norms of each query and key head before the
// rotation, no biases. A head's width is a number of its own and need not be the model's divided by the heads. RoPE
// pairs are half-split in both kinds of file.
#include "base/base.h"
#include "model/arch_tensors.h"

#define HF_LAYER "model.layers.%d."
#define EXPERT(gguf, hf, field, ne0, ne1)                                                        \
    {                                                                                            \
        {"blk.%d." gguf ".weight", HF_LAYER "mlp.experts.%d." hf ".weight", NULL}, WHERE_EXPERT, \
            offsetof(struct model_expert, field), ne0, ne1, false                                \
    }

static const struct arch_tensor qwen3_tensors[] = {
    ARCH_ROW_OUTPUT_NORM,
    ARCH_ROWS_ATTENTION(HF_LAYER),
    ARCH_ROWS_HEAD_NORMS(HF_LAYER),
    ARCH_ROWS_FFN(HF_LAYER),
    ARCH_ROW(HF_LAYER, "ffn_gate_inp", "mlp.gate", WHERE_ROUTED, router, DIM_EMBD, DIM_EXPERTS, true),
    EXPERT("ffn_gate_exps", "gate_proj", gate, DIM_EMBD, DIM_FF_EXPERT),
    EXPERT("ffn_up_exps", "up_proj", up, DIM_EMBD, DIM_FF_EXPERT),
    EXPERT("ffn_down_exps", "down_proj", down, DIM_FF_EXPERT, DIM_EMBD),
};

static enum tern_status params_gguf(struct model_params *p, struct model_source *s, struct tern_err *err) {
    TRY(gguf_params_decoder(p, s, err));
    if (p->hyper.rope_base == 0) return err_set(err, TERN_BAD_FORMAT, "key %s.rope.freq_base is missing", s->gguf.arch);
    if (p->arch->has_experts) TRY(moe_params_gguf(p, &s->gguf, err));
    TRY(params_check(p, err));
    return gguf_rope_scaling(p, s, err);
}

static enum tern_status params_hf(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                  struct tern_err *err) {
    TRY(hf_params_decoder(p, s, c, err));
    if (c->head_dim == HF_ABSENT) p->hyper.head_dim = 128; // the class default
    if (c->use_sliding_window == 1)
        return err_set(err, TERN_UNSUPPORTED, "config.json: use_sliding_window is true, which is not supported");
    TRY(params_check(p, err));
    return hf_rope_read(p, s, c, 1e6, err);
}

// Every sparse_step-th layer has experts, but for those that are named.
static enum tern_status params_hf_moe(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                      struct tern_err *err) {
    TRY(params_hf(p, s, c, err));
    TRY(moe_params_hf(p, c, err));
    int64_t step = c->sparse_step == HF_ABSENT ? 1 : c->sparse_step;
    if (step < 1 || step > MODEL_LAYERS_MAX)
        return err_set(err, TERN_BAD_FORMAT, "config.json: decoder_sparse_step is %lld, must be 1 to %d",
                       (long long)step, MODEL_LAYERS_MAX);
    for (int i = 0; i < p->hyper.n_layers; i++) p->routed[i] = (i + 1) % step == 0;
    for (int k = 0; k < c->n_dense_list; k++) {
        if (c->dense_layers[k] >= p->hyper.n_layers)
            return err_set(err, TERN_BAD_FORMAT, "config.json: mlp_only_layers names layer %d of %d",
                           c->dense_layers[k], p->hyper.n_layers);
        p->routed[c->dense_layers[k]] = false;
    }
    return TERN_OK;
}

const struct model_arch_kind arch_qwen3 = {
    .name = "qwen3",
    .hf_type = "qwen3",
    .rope_gguf = ROPE_HALF,
    .rope_hf = ROPE_HALF,
    .tied_default = false,
    .tensors = qwen3_tensors,
    .n_tensors = ARRAY_LEN(qwen3_tensors),
    .ff_name = {"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"},
    .params_gguf = params_gguf,
    .params_hf = params_hf,
};

const struct model_arch_kind arch_qwen3moe = {
    .name = "qwen3moe",
    .hf_type = "qwen3_moe",
    .rope_gguf = ROPE_HALF,
    .rope_hf = ROPE_HALF,
    .tied_default = false,
    .has_experts = true,
    .tensors = qwen3_tensors,
    .n_tensors = ARRAY_LEN(qwen3_tensors),
    .ff_name = {"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"},
    .params_gguf = params_gguf,
    .params_hf = params_hf_moe,
};
