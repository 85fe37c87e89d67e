// Rows of arch_tensor tables that families share whose Hugging Face layers are named as Llama's: attention, norms of
// its heads, the gated feed-forward. `layer` is the folder's layer prefix, a string literal with %d.
#pragma once
#include "model/model_int.h"

#define ARCH_ROW(layer, gguf, hf, where, field, ne0, ne1, is_small)                                                 \
    {                                                                                                               \
        {"blk.%d." gguf ".weight", layer hf ".weight", NULL}, where, offsetof(struct model_layer, field), ne0, ne1, \
            is_small                                                                                                \
    }
// The norm behind the last layer.
#define ARCH_ROW_OUTPUT_NORM                                                                                  \
    {                                                                                                         \
        {"output_norm.weight", "model.norm.weight", NULL}, WHERE_GLOBAL, offsetof(struct model, output_norm), \
            DIM_EMBD, DIM_NONE, true                                                                          \
    }
#define ARCH_ROWS_ATTENTION(layer)                                                                     \
    ARCH_ROW(layer, "attn_norm", "input_layernorm", WHERE_LAYER, attn_norm, DIM_EMBD, DIM_NONE, true), \
        ARCH_ROW(layer, "attn_q", "self_attn.q_proj", WHERE_LAYER, q, DIM_EMBD, DIM_Q, false),         \
        ARCH_ROW(layer, "attn_k", "self_attn.k_proj", WHERE_LAYER, k, DIM_EMBD, DIM_KV, false),        \
        ARCH_ROW(layer, "attn_v", "self_attn.v_proj", WHERE_LAYER, v, DIM_EMBD, DIM_KV, false),        \
        ARCH_ROW(layer, "attn_output", "self_attn.o_proj", WHERE_LAYER, o, DIM_Q, DIM_EMBD, false)
#define ARCH_ROWS_HEAD_NORMS(layer)                                                                    \
    ARCH_ROW(layer, "attn_q_norm", "self_attn.q_norm", WHERE_LAYER, q_norm, DIM_HEAD, DIM_NONE, true), \
        ARCH_ROW(layer, "attn_k_norm", "self_attn.k_norm", WHERE_LAYER, k_norm, DIM_HEAD, DIM_NONE, true)
#define ARCH_ROWS_FFN(layer)                                                                                  \
    ARCH_ROW(layer, "ffn_norm", "post_attention_layernorm", WHERE_LAYER, ffn_norm, DIM_EMBD, DIM_NONE, true), \
        ARCH_ROW(layer, "ffn_gate", "mlp.gate_proj", WHERE_DENSE, ffn_gate, DIM_EMBD, DIM_FF, false),         \
        ARCH_ROW(layer, "ffn_up", "mlp.up_proj", WHERE_DENSE, ffn_up, DIM_EMBD, DIM_FF, false),               \
        ARCH_ROW(layer, "ffn_down", "mlp.down_proj", WHERE_DENSE, ffn_down, DIM_FF, DIM_EMBD, false)
