// Models without a file, for benches: the exact shape of a named model with random weights.
//
// Each matrix has its own pages, so that it can be dropped after packing like the pages of a file. Matrices are drawn
// with a standard deviation of 1/sqrt(n_in) (0.02 for the embedding), norms near one and taps around 1/conv_len: the
// activations stay of order one through any number of layers.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

#define EMBEDDING_STD 0.02
#define BIT(i) (UINT64_C(1) << (i))
#define LFM2_16 (BIT(2) | BIT(5) | BIT(8) | BIT(10) | BIT(12) | BIT(14))
#define LFM2_30 (BIT(2) | BIT(5) | BIT(9) | BIT(13) | BIT(17) | BIT(21) | BIT(24) | BIT(27))
#define LFM2(layers, embd, heads, ff, vocab, base)                                                                    \
    {                                                                                                                 \
        .n_layers = (layers), .n_embd = (embd), .n_head = (heads), .n_head_kv = 8, .head_dim = 64, .n_ff = (ff),      \
        .n_vocab = (vocab), .n_ctx = 128000, .conv_len = 3, .norm_eps = 1e-5f, .rope_base = (base), .rope = ROPE_HALF \
    }

const struct model_shape model_shapes[] = {
    {.name = "lfm2-350m", .hyper = LFM2(16, 1024, 16, 4608, 65536, 1e6f), .attn_layers_mask = LFM2_16, .tied = true},
    {.name = "lfm2-700m", .hyper = LFM2(16, 1536, 24, 6912, 65536, 1e6f), .attn_layers_mask = LFM2_16, .tied = true},
    {.name = "lfm2-1.2b", .hyper = LFM2(16, 2048, 32, 8192, 65536, 1e6f), .attn_layers_mask = LFM2_16, .tied = true},
    {.name = "lfm2-2.6b", .hyper = LFM2(30, 2048, 32, 10752, 65536, 1e6f), .attn_layers_mask = LFM2_30, .tied = true},
    {.name = "lfm2.5-2.6b",
     .hyper = LFM2(30, 2048, 32, 10752, 128000, 1e7f),
     .attn_layers_mask = LFM2_30,
     .tied = true},
    {.name = "lfm2-8b-a1b",
     .hyper = {.n_layers = 24,
               .n_embd = 2048,
               .n_head = 32,
               .n_head_kv = 8,
               .head_dim = 64,
               .n_ff = 7168,
               .n_expert = 32,
               .n_expert_used = 4,
               .n_ff_expert = 1792,
               .router_sigmoid = true,
               .router_norm = true,
               .router_eps = 1e-6f,
               .router_scale = 1,
               .n_vocab = 65536,
               .n_ctx = 128000,
               .conv_len = 3,
               .norm_eps = 1e-5f,
               .rope_base = 1e6f,
               .rope = ROPE_HALF},
     .attn_layers_mask = BIT(2) | BIT(6) | BIT(10) | BIT(14) | BIT(18) | BIT(21),
     .n_dense_layers = 2,
     .tied = true},
    {.name = "llama-7b",
     .hyper = {.n_layers = 32,
               .n_embd = 4096,
               .n_head = 32,
               .n_head_kv = 32,
               .head_dim = 128,
               .n_ff = 11008,
               .n_vocab = 32000,
               .n_ctx = 4096,
               .norm_eps = 1e-5f,
               .rope_base = 1e4f,
               .rope = ROPE_INTERLEAVED},
     .attn_layers_mask = BIT(32) - 1,
     .is_llama = true,
     .tied = false},
    {.name = NULL},
};

struct maker {
    struct model *m;
    struct model_source *s;
    const struct model_shape *shape;
    enum format format, format_embd;
    uint64_t seed;
};

static enum tern_status shape_check(const struct model_shape *x, struct tern_err *err) {
    const struct model_hyper *h = &x->hyper;
    bool ok = h->n_layers >= 1 && h->n_layers <= 64 && h->n_embd >= 1 && h->n_embd <= MODEL_EMBD_MAX &&
              h->n_head >= 1 && h->n_head <= MODEL_HEADS_MAX && h->n_head_kv >= 1 && h->n_head % h->n_head_kv == 0 &&
              h->head_dim >= 2 && h->head_dim % 2 == 0 && h->head_dim <= MODEL_HEAD_DIM_MAX && h->n_ff >= 1 &&
              h->n_ff <= MODEL_FF_MAX && h->n_vocab >= 1 && (uint32_t)h->n_vocab <= MODEL_VOCAB_MAX && h->n_ctx >= 1 &&
              h->n_ctx <= MODEL_CTX_MAX && h->norm_eps > 0 && h->rope_base >= 1;
    uint64_t all = h->n_layers >= 64 ? UINT64_MAX : BIT(h->n_layers) - 1;
    bool has_conv = (x->attn_layers_mask & all) != all;
    if (h->n_expert != 0)
        ok = ok && !x->is_llama && h->n_expert > 0 && h->n_expert <= MODEL_EXPERTS_MAX && h->n_expert_used >= 1 &&
             h->n_expert_used <= h->n_expert && h->n_ff_expert >= 1 && h->n_ff_expert <= MODEL_FF_MAX &&
             h->router_scale > 0 && x->n_dense_layers >= 0 && x->n_dense_layers <= h->n_layers;
    if (has_conv) ok = ok && !x->is_llama && h->conv_len >= 1 && h->conv_len <= MODEL_CONV_LEN_MAX;
    if (ok) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "shape %s: a size is out of range", x->name ? x->name : "(unnamed)");
}

static bool is_embedding(const char *name) { return strcmp(name, "token_embd.weight") == 0; }

static double std_of(const struct maker *k, const char *name, bool is_small, int64_t n_in) {
    if (is_embedding(name)) return EMBEDDING_STD;
    if (is_small && n_in == k->shape->hyper.conv_len)
        return k->shape->hyper.conv_len ? 1.0 / k->shape->hyper.conv_len : 1.0; // taps
    return 1.0 / sqrt((double)n_in);
}

static enum tern_status data_make(struct maker *k, int at, bool is_small, struct tern_err *err) {
    struct tensor *t = &k->s->tensors[at];
    struct shape_block *b = &k->s->blocks[k->s->n_blocks];
    *b = (struct shape_block){.size = (size_t)t->n_bytes, .tensor = at};
    b->data = mem_map(b->size);
    if (!b->data)
        return err_set(err, TERN_NO_MEMORY, "no memory for %llu bytes of tensor %.*s", (unsigned long long)t->n_bytes,
                       SHOW(t->name));
    k->s->n_blocks++;
    t->data = b->data;
    if (is_small && t->n_dims == 1) { // a norm: 1 +- 0.1
        struct shape_fill f = {FORMAT_F32, k->seed + (uint64_t)at * 0x10001u, 0.05, t->ne[0], 1};
        float *w = b->data;
        shape_fill_rows(b->data, &f);
        for (int64_t i = 0; i < t->ne[0]; i++) w[i] += 1.0f;
        return TERN_OK;
    }
    struct shape_fill f = {t->format, k->seed + (uint64_t)at * 0x10001u, std_of(k, t->name.data, is_small, t->ne[0]),
                           t->ne[0], t->ne[1] * t->ne[2]};
    shape_fill_rows(b->data, &f);
    return TERN_OK;
}

// ne1, ne2: 0 where there is no such dimension.
static enum tern_status tensor_make(struct maker *k, const char *name, int64_t ne0, int64_t ne1, int64_t ne2,
                                    bool is_small, struct tern_err *err) {
    struct model_source *s = k->s;
    struct table_entry e = {.name = str_from(name),
                            .n_dims = ne2   ? 3
                                      : ne1 ? 2
                                            : 1,
                            .ne = {(uint64_t)ne0, (uint64_t)ne1, (uint64_t)ne2}};
    e.format = is_small ? FORMAT_F32 : is_embedding(name) ? k->format_embd : k->format;
    uint64_t n_bytes;
    TRY(source_strdup(s, &e.name, e.name, err));
    enum tern_status status = table_entry_bytes(&e, &n_bytes, err);
    if (status != TERN_OK) {
        err_prefix(err, "shape %s in %s", k->shape->name, format_table[e.format].name);
        return status == TERN_BAD_FORMAT && err ? (err->code = TERN_INVALID_ARGUMENT) : status;
    }
    int at = s->n_tensors++;
    s->tensors[at] = (struct tensor){.name = e.name,
                                     .format = e.format,
                                     .n_dims = e.n_dims,
                                     .ne = {ne0, ne1 ? ne1 : 1, ne2 ? ne2 : 1, 1},
                                     .n_bytes = n_bytes};
    name_index_add(&s->index, (uint32_t)at);
    return data_make(k, at, is_small, err);
}

// One row of an architecture's table, in the GGUF names.
static int64_t row_dim(const struct model_hyper *h, enum dim dim) {
    switch (dim) {
    case DIM_NONE: return 0;
    case DIM_EMBD: return h->n_embd;
    case DIM_VOCAB: return h->n_vocab;
    case DIM_Q: return (int64_t)h->n_head * h->head_dim;
    case DIM_KV: return (int64_t)h->n_head_kv * h->head_dim;
    case DIM_HEAD: return h->head_dim;
    case DIM_FF: return h->n_ff;
    case DIM_EMBD3: return 3 * (int64_t)h->n_embd;
    case DIM_TAPS: return h->conv_len;
    case DIM_EXPERTS: return h->n_expert;
    case DIM_FF_EXPERT: return h->n_ff_expert;
    default: TERN_BUG("dimension %d", (int)dim); // a drafter's
    }
}

static enum tern_status rows_make(struct maker *k, const struct model_arch_kind *arch, int layer, bool is_attn,
                                  struct tern_err *err) {
    for (int i = 0; i < arch->n_tensors; i++) {
        const struct arch_tensor *row = &arch->tensors[i];
        bool routed = k->shape->hyper.n_expert > 0 && layer >= k->shape->n_dense_layers, experts = false, applies;
        switch (row->where) {
        case WHERE_GLOBAL: applies = layer < 0; break;
        case WHERE_LAYER: applies = layer >= 0; break;
        case WHERE_ATTENTION: applies = layer >= 0 && is_attn; break;
        case WHERE_CONV: applies = layer >= 0 && !is_attn; break;
        case WHERE_DENSE: applies = layer >= 0 && !routed; break;
        case WHERE_ROUTED:
        case WHERE_ROUTER_BIAS: applies = layer >= 0 && routed; break;
        case WHERE_EXPERT: applies = experts = layer >= 0 && routed; break;
        default: applies = false; break;
        }
        if (!applies) continue;
        char name[128];
        const char *pattern = row->name[NAME_GGUF];
        size_t at = str_find(str_from(pattern), STR("%d"), 0);
        if (at == (size_t)-1) {
            snprintf(name, sizeof(name), "%s", pattern);
        } else {
            snprintf(name, sizeof(name), "%.*s%d%s", (int)at, pattern, layer, pattern + at + 2);
        }
        TRY(tensor_make(k, name, row_dim(&k->shape->hyper, row->ne0), row_dim(&k->shape->hyper, row->ne1),
                        experts ? k->shape->hyper.n_expert : 0, row->is_small, err));
    }
    return TERN_OK;
}

static void shape_digest(const struct maker *k) {
    struct sha256 h;
    uint8_t digest[32];
    const struct model_hyper *x = &k->shape->hyper;
    const int64_t numbers[] = {
        x->n_layers,      x->n_embd,      x->n_head,          x->n_head_kv,   x->head_dim,
        x->n_ff,          x->n_vocab,     x->n_ctx,           x->conv_len,    x->rope,
        k->format,        k->format_embd, k->shape->is_llama, k->shape->tied, (int64_t)k->shape->attn_layers_mask,
        (int64_t)k->seed, x->n_expert,    x->n_expert_used,   x->n_ff_expert, k->shape->n_dense_layers};
    const float reals[] = {x->norm_eps, x->rope_base};
    sha256_init(&h);
    sha256_update(&h, "tern-shape-1", 12);
    sha256_update(&h, numbers, sizeof(numbers));
    sha256_update(&h, reals, sizeof(reals));
    sha256_final(&h, digest);
    sha256_hex(digest, k->m->digest);
}

static enum tern_status shape_build(struct maker *k, struct tern_err *err) {
    const struct model_hyper *h = &k->shape->hyper;
    const struct model_arch_kind *arch = k->shape->is_llama ? &arch_llama : h->n_expert ? &arch_lfm2moe : &arch_lfm2;
    struct model_params p = {.hyper = *h, .tied = k->shape->tied, .ff_key = "n_ff", .vocab_key = "n_vocab"};
    struct str name;
    int n_max = h->n_layers * arch->n_tensors + 3;
    TRY(source_strdup(k->s, &name, str_from(k->shape->name ? k->shape->name : "shape"), err));
    k->m->name = name.data;
    TRY(table_reserve(k->s, n_max, err));
    TRY(source_alloc(k->s, &k->s->blocks, (size_t)n_max, sizeof(*k->s->blocks), err));
    TRY(params_layers(&p, k->s, h->n_layers, err));
    TRY(tensor_make(k, "token_embd.weight", h->n_embd, h->n_vocab, 0, false, err));
    if (!k->shape->tied) TRY(tensor_make(k, "output.weight", h->n_embd, h->n_vocab, 0, false, err));
    TRY(rows_make(k, arch, -1, false, err));
    for (int i = 0; i < h->n_layers; i++) {
        bool is_attn = (k->shape->attn_layers_mask >> i) & 1;
        p.kinds[i] = is_attn ? LAYER_ATTENTION : LAYER_CONV;
        p.n_head_kv[i] = is_attn ? h->n_head_kv : 0;
        p.routed[i] = h->n_expert > 0 && i >= k->shape->n_dense_layers;
        p.has_router_bias = h->n_expert > 0;
        TRY(rows_make(k, arch, i, is_attn, err));
    }
    TRY(params_check(&p, err));
    TRY(arch_bind(k->m, arch, &p, err));
    k->m->hyper.rope = h->rope;
    return TERN_OK;
}

enum tern_status model_create_shape(struct model **out, const struct model_shape *shape, enum format format,
                                    enum format format_embd, uint64_t seed, struct tern_err *err) {
    struct tern_err local;
    struct maker k = {.shape = shape, .format = format, .format_embd = format_embd, .seed = seed};
    if (!err) err = &local;
    if ((unsigned)format >= FORMAT_COUNT || (unsigned)format_embd >= FORMAT_COUNT)
        return err_set(err, TERN_INVALID_ARGUMENT, "no such weight format");
    TRY(shape_check(shape, err));
    TRY(model_create(&k.m, SOURCE_SHAPE, err));
    k.s = k.m->source;
    enum tern_status status = shape_build(&k, err);
    if (status != TERN_OK) {
        model_close(k.m);
        return status;
    }
    model_totals_make(k.m);
    shape_digest(&k);
    *out = k.m;
    return TERN_OK;
}

enum tern_status model_create_named_shape(struct model **out, const char *shape, const char *format, uint64_t seed,
                                          struct tern_err *err) {
    enum format f;
    if (!format_from_name(format ? format : "Q4_0", &f))
        return err_set(err, TERN_INVALID_ARGUMENT, "unknown weight format '%s'", format);
    const struct model_shape *s = model_shapes;
    while (s->name && strcmp(s->name, shape) != 0) s++;
    if (!s->name) {
        struct buf names;
        buf_init(&names, 1024);
        for (s = model_shapes; s->name; s++) buf_putf(&names, " %s", s->name);
        enum tern_status status = err_set(err, TERN_NOT_FOUND, "no shape '%s'; there are:%s", shape, names.data);
        buf_release(&names);
        return status;
    }
    // As quantising tools leave 4-bit files: the embedding stays finer.
    enum format embd = f == FORMAT_Q4_0 || f == FORMAT_Q4_1 || f == FORMAT_Q4_K ? FORMAT_Q6_K : f;
    return model_create_shape(out, s, f, embd, seed, err);
}
