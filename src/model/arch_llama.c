// Llama (1 to 3.x, SmolLM and others of the same shape): attention in every layer, no q/k norms, no biases.
//
// The GGUF converter permutes the rows of q and k, so GGUF files run with interleaved RoPE pairs and safetensors with
// half-split ones. Llama-3 frequency scaling comes as divisors in the tensor rope_freqs.weight, or as four numbers in
// config.json.
#include "base/base.h"
#include "model/arch_tensors.h"

#define HF_LAYER "model.layers.%d."

static const struct arch_tensor llama_tensors[] = {
    ARCH_ROW_OUTPUT_NORM,
    ARCH_ROWS_ATTENTION(HF_LAYER),
    ARCH_ROWS_FFN(HF_LAYER),
};

static enum tern_status params_gguf(struct model_params *p, struct model_source *s, struct tern_err *err) {
    double scale = 0;
    TRY(gguf_params_decoder(p, s, err));
    if (p->hyper.rope_base == 0) p->hyper.rope_base = 10000.0f; // the format's default for this architecture
    TRY(gguf_opt_f64(&s->gguf, "@attention.scale", &scale, err));
    p->hyper.attn_scale = (float)scale;
    TRY(params_check(p, err));
    TRY(gguf_rope_scaling(p, s, err));
    return rope_factors_tensor(p, s, "rope_freqs.weight", err);
}

static enum tern_status params_hf(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                  struct tern_err *err) {
    TRY(hf_params_decoder(p, s, c, err));
    TRY(params_check(p, err));
    return hf_rope_read(p, s, c, 10000.0, err);
}

const struct model_arch_kind arch_llama = {
    .name = "llama",
    .hf_type = "llama",
    .rope_gguf = ROPE_INTERLEAVED,
    .rope_hf = ROPE_HALF,
    .tied_default = false,
    .tensors = llama_tensors,
    .n_tensors = ARRAY_LEN(llama_tensors),
    .ff_name = {"blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"},
    .params_gguf = params_gguf,
    .params_hf = params_hf,
};
