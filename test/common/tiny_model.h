// Small models in memory for tests that need a whole model but no file: random weights, equal for equal shapes.
#pragma once
#include "base/base.h"
#include "model/model.h"

struct tiny_shape {
    const char *arch; // "lfm2" or "llama": the name shown; what layers are is attn_mask's business
    int n_layers;
    uint64_t attn_mask; // bit i: layer i is attention, else a short convolution
    int n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, conv_len;
    int n_expert, n_expert_used, n_ff_expert; // in all layers but the first n_dense; n_expert 0: none
    int n_dense;
    bool router_sigmoid; // and a bias for the choice
    int window;       // of all layers but every third; 0: none. With it: norms behind the parts, gelu, scaled embedding
    bool qk_norm;     // attention layers have norms of q and k
    bool tied;        // output == embedding
    bool interleaved; // rotation pairs (2i, 2i+1)
    enum format format; // of matrices and embedding: FORMAT_F32 or FORMAT_Q8_0 (rows of multiples of 32)
    uint64_t seed;
};
// Six layers: convolution, convolution, attention, convolution, attention, convolution; 3 taps; tied; norms of q and k.
struct tiny_shape tiny_lfm2_shape(enum format format, uint64_t seed);
// Four attention layers, interleaved rotation, an output of its own.
struct tiny_shape tiny_llama_shape(enum format format, uint64_t seed);
// tiny_lfm2_shape with two of seven experts per row in all layers but the first.
struct tiny_shape tiny_moe_shape(enum format format, uint64_t seed);
// Four attention layers, three with a window of 37 positions and a rotation of their own, as Gemma 3 has it.
struct tiny_shape tiny_gemma_shape(enum format format, uint64_t seed);
// Never NULL: a test without memory stops.
struct model *tiny_model_create(const struct tiny_shape *s);
void tiny_model_free(struct model *m); // NULL is fine

// The generator behind it, for other random test data (splitmix64).
uint64_t tiny_random(uint64_t *state);
float tiny_random_float(uint64_t *state); // uniform in [-1, 1)
