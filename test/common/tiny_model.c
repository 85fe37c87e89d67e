// See tiny_model.h. Weights are uniform with deviations that keep activations near one through the layers, so that
// differences do not vanish in a saturated softmax; norm weights lie around one.
#include "base/base.h"
#include "op/op.h"
#include "tiny_model.h"

#define TINY_TENSORS_MAX 1024

struct tiny {
    struct model model; // first, so that one pointer serves
    struct arena arena;
    struct tensor *tensors;
    int n_tensors;
    uint64_t state;
};

uint64_t tiny_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float tiny_random_float(uint64_t *state) {
    return (float)(tiny_random(state) >> 40) / (float)(1 << 23) - 1.0f; // 24 bits
}

struct tiny_shape tiny_lfm2_shape(enum format format, uint64_t seed) {
    return (struct tiny_shape){
        .arch = "lfm2",
        .n_layers = 6,
        .attn_mask = 0x14,
        .n_embd = 64,
        .n_head = 4,
        .n_head_kv = 2,
        .head_dim = 16,
        .n_ff = 96,
        .n_vocab = 300,
        .conv_len = 3,
        .qk_norm = true,
        .tied = true,
        .format = format,
        .seed = seed,
    };
}

struct tiny_shape tiny_llama_shape(enum format format, uint64_t seed) {
    return (struct tiny_shape){
        .arch = "llama",
        .n_layers = 4,
        .attn_mask = 0xf,
        .n_embd = 96,
        .n_head = 6,
        .n_head_kv = 2,
        .head_dim = 32,
        .n_ff = 160,
        .n_vocab = 257,
        .interleaved = true,
        .format = format,
        .seed = seed,
    };
}

struct tiny_shape tiny_gemma_shape(enum format format, uint64_t seed) {
    return (struct tiny_shape){
        .arch = "gemma3",
        .n_layers = 4,
        .attn_mask = 0xf,
        .n_embd = 64,
        .n_head = 4,
        .n_head_kv = 1,
        .head_dim = 32,
        .n_ff = 96,
        .n_vocab = 300,
        .qk_norm = true,
        .tied = true,
        .window = 37,
        .format = format,
        .seed = seed,
    };
}

struct tiny_shape tiny_moe_shape(enum format format, uint64_t seed) {
    struct tiny_shape s = tiny_lfm2_shape(format, seed);
    s.arch = "lfm2moe";
    s.n_dense = 1;
    s.n_expert = 7;
    s.n_expert_used = 2;
    s.n_ff_expert = 64;
    s.router_sigmoid = true;
    return s;
}

static void *take(struct tiny *t, size_t n, size_t size) {
    void *p = arena_calloc(&t->arena, n, size);
    if (!p) TERN_BUG("tiny model: no memory");
    return p;
}

// Values of one row in the format; 8-bit blocks are rounded to nearest as the usual encoder does.
static void put_row(enum format f, const float *x, int n, uint8_t *out) {
    if (format_is_float(f)) {
        op_quantise_weights(f, x, n, out);
        return;
    }
    for (int g = 0; g < n / 32; g++, out += 34) {
        float amax = 0;
        for (int i = 0; i < 32; i++) {
            float a = x[g * 32 + i] < 0 ? -x[g * 32 + i] : x[g * 32 + i];
            amax = MAX(amax, a);
        }
        float scale = amax / 127.0f;
        uint16_t half = f32_to_f16(scale);
        memcpy(out, &half, 2);
        for (int i = 0; i < 32; i++) {
            float q = scale > 0 ? x[g * 32 + i] / scale : 0;
            out[2 + i] = (uint8_t)(int8_t)(q < 0 ? q - 0.5f : q + 0.5f);
        }
    }
}

// A matrix [n_out, n_in] (a vector: n_out 1) of values centre ± spread.
static const struct tensor *tensor_add(struct tiny *t, enum format f, int n_in, int n_out, float centre, float spread,
                                       const char *name, int layer) {
    if (t->n_tensors >= TINY_TENSORS_MAX) TERN_BUG("tiny model: more than %d tensors", TINY_TENSORS_MAX);
    struct tensor *w = &t->tensors[t->n_tensors++];
    uint64_t row_bytes = 0;
    if (!format_row_bytes(f, (uint64_t)n_in, &row_bytes)) TERN_BUG("tiny model: rows of %d values", n_in);
    struct buf text;
    buf_init(&text, 100);
    if (layer >= 0)
        buf_putf(&text, "blk.%d.%s.weight", layer, name);
    else
        buf_putf(&text, "%s.weight", name);
    *w = (struct tensor){
        .name = {arena_dup(&t->arena, text.data, text.len), text.len},
        .format = f,
        .n_dims = n_out > 1 ? 2 : 1,
        .ne = {n_in, n_out, 1, 1},
        .n_bytes = row_bytes * (uint64_t)n_out,
    };
    buf_release(&text);
    uint8_t *data = take(t, (size_t)n_out, (size_t)row_bytes);
    float *row = take(t, (size_t)n_in, sizeof(float));
    for (int o = 0; o < n_out; o++) {
        for (int i = 0; i < n_in; i++) row[i] = centre + spread * tiny_random_float(&t->state);
        put_row(f, row, n_in, data + (size_t)o * row_bytes);
    }
    w->data = data;
    t->model.n_params += (uint64_t)n_in * (uint64_t)n_out;
    t->model.n_bytes_file += w->n_bytes;
    return w;
}

static const struct tensor *norm_add(struct tiny *t, int n, const char *name, int layer) {
    return tensor_add(t, FORMAT_F32, n, 1, 1.0f, 0.25f, name, layer);
}

static const struct tensor *matrix_add(struct tiny *t, const struct tiny_shape *s, int n_in, int n_out,
                                       const char *name, int layer) {
    float spread = 1.7f / (float)__builtin_sqrt((double)n_in); // uniform: deviation spread / sqrt(3)
    return tensor_add(t, s->format, n_in, n_out, 0, spread, name, layer);
}

static void experts_make(struct tiny *t, const struct tiny_shape *s, struct model_layer *l, int i) {
    struct model_expert *e = take(t, (size_t)s->n_expert, sizeof(*e));
    l->router = tensor_add(t, FORMAT_F32, s->n_embd, s->n_expert, 0, 0.2f, "ffn_gate_inp", i);
    if (s->router_sigmoid) l->router_bias = tensor_add(t, FORMAT_F32, s->n_expert, 1, 0, 0.1f, "exp_probs_b", i);
    for (int k = 0; k < s->n_expert; k++) {
        e[k].gate = matrix_add(t, s, s->n_embd, s->n_ff_expert, "ffn_gate_exps", i);
        e[k].up = matrix_add(t, s, s->n_embd, s->n_ff_expert, "ffn_up_exps", i);
        e[k].down = matrix_add(t, s, s->n_ff_expert, s->n_embd, "ffn_down_exps", i);
    }
    l->experts = e;
}

static void layer_make(struct tiny *t, const struct tiny_shape *s, struct model_layer *l, int i) {
    l->attn_norm = norm_add(t, s->n_embd, "attn_norm", i);
    if (s->attn_mask >> i & 1) {
        int n_q = s->n_head * s->head_dim, n_kv = s->n_head_kv * s->head_dim;
        l->kind = LAYER_ATTENTION;
        l->n_head_kv = s->n_head_kv;
        l->q = matrix_add(t, s, s->n_embd, n_q, "attn_q", i);
        l->k = matrix_add(t, s, s->n_embd, n_kv, "attn_k", i);
        l->v = matrix_add(t, s, s->n_embd, n_kv, "attn_v", i);
        l->o = matrix_add(t, s, n_q, s->n_embd, "attn_output", i);
        if (s->qk_norm) l->q_norm = norm_add(t, s->head_dim, "attn_q_norm", i);
        if (s->qk_norm) l->k_norm = norm_add(t, s->head_dim, "attn_k_norm", i);
        l->window = i % 3 == 2 ? 0 : s->window;
        l->rope_local = l->window > 0;
        if (s->window > 0) l->attn_post_norm = norm_add(t, s->n_embd, "post_attention_norm", i);
        if (s->window > 0) l->ffn_post_norm = norm_add(t, s->n_embd, "post_ffw_norm", i);
    } else {
        l->kind = LAYER_CONV;
        l->conv_in = matrix_add(t, s, s->n_embd, 3 * s->n_embd, "shortconv.in_proj", i);
        l->conv_taps = tensor_add(t, FORMAT_F32, s->conv_len, s->n_embd, 0, 1.0f, "shortconv.conv", i);
        l->conv_out = matrix_add(t, s, s->n_embd, s->n_embd, "shortconv.out_proj", i);
    }
    l->ffn_norm = norm_add(t, s->n_embd, "ffn_norm", i);
    if (s->n_expert > 0 && i >= s->n_dense) {
        experts_make(t, s, l, i);
        return;
    }
    l->ffn_gate = matrix_add(t, s, s->n_embd, s->n_ff, "ffn_gate", i);
    l->ffn_up = matrix_add(t, s, s->n_embd, s->n_ff, "ffn_up", i);
    l->ffn_down = matrix_add(t, s, s->n_ff, s->n_embd, "ffn_down", i);
}

struct model *tiny_model_create(const struct tiny_shape *s) {
    struct tiny *t = mem_calloc(1, sizeof(*t));
    if (!t) TERN_BUG("tiny model: no memory");
    arena_init(&t->arena, 0);
    t->tensors = take(t, TINY_TENSORS_MAX, sizeof(*t->tensors));
    t->state = s->seed;
    struct model *m = &t->model;
    m->arch_name = s->arch;
    m->name = s->arch;
    m->format_main = s->format;
    m->hyper = (struct model_hyper){
        .n_layers = s->n_layers,
        .n_embd = s->n_embd,
        .n_head = s->n_head,
        .n_head_kv = s->n_head_kv,
        .head_dim = s->head_dim,
        .n_ff = s->n_ff,
        .n_expert = s->n_expert,
        .n_expert_used = s->n_expert_used,
        .n_ff_expert = s->n_ff_expert,
        .router_sigmoid = s->router_sigmoid,
        .router_norm = true,
        .router_eps = s->router_sigmoid ? 1e-6f : 0,
        .router_scale = 1.25f,
        .n_vocab = s->n_vocab,
        .n_vocab_used = s->n_vocab,
        .n_ctx = 4096,
        .conv_len = s->conv_len,
        .norm_eps = 1e-5f,
        .rope_base = s->window > 0 ? 1e6f : 10000.0f,
        .rope_base_local = s->window > 0 ? 10000.0f : 0,
        .embed_scale = s->window > 0 ? 1.5f : 0,
        .ffn_gelu = s->window > 0,
        .rope = s->interleaved ? ROPE_INTERLEAVED : ROPE_HALF,
        .attn_scale = 1.0f / (float)__builtin_sqrt((double)s->head_dim),
    };
    m->embedding = tensor_add(t, s->format, s->n_embd, s->n_vocab, 0, 1.0f, "token_embd", -1);
    m->layers = take(t, (size_t)s->n_layers, sizeof(*m->layers));
    for (int i = 0; i < s->n_layers; i++) layer_make(t, s, &m->layers[i], i);
    m->output_norm = norm_add(t, s->n_embd, "output_norm", -1);
    m->output = s->tied ? m->embedding : matrix_add(t, s, s->n_embd, s->n_vocab, "output", -1);
    m->vocab =
        (struct model_vocab){.bos = -1, .eos = -1, .eot = -1, .pad = -1, .unk = -1, .add_bos = -1, .add_eos = -1};
    m->tensors = t->tensors;
    m->n_tensors = t->n_tensors;
    struct sha256 h; // of the shape; padding is zeroed by the copy into zeroed memory
    struct tiny_shape *key = take(t, 1, sizeof(*key));
    key->n_layers = s->n_layers;
    key->attn_mask = s->attn_mask;
    key->n_embd = s->n_embd;
    key->n_head = s->n_head;
    key->n_ff = s->n_ff;
    key->n_expert = s->n_expert;
    key->window = s->window;
    key->n_vocab = s->n_vocab;
    key->format = s->format;
    key->seed = s->seed;
    uint8_t digest[32];
    sha256_init(&h);
    sha256_update(&h, key, sizeof(*key));
    sha256_final(&h, digest);
    sha256_hex(digest, m->digest);
    return m;
}

void tiny_model_free(struct model *m) {
    if (!m) return;
    struct tiny *t = (struct tiny *)(void *)m;
    arena_release(&t->arena);
    mem_free(t);
}
