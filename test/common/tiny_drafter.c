// See tiny_drafter.h. The layers come from tiny_model_create; what a drafter has beside them is made here.
#include "base/base.h"
#include "tiny_drafter.h"
#include "op/op.h"
#include "tiny_model.h"

struct tiny_drafter {
    struct model model; // a copy, first, so that one pointer serves
    struct model *layers;
    struct model_drafter drafter;
    struct arena arena;
    struct tensor tensors[8];
    int n_tensors;
    uint64_t state;
};

static void *take(struct tiny_drafter *t, size_t n, size_t size) {
    void *p = arena_calloc(&t->arena, n, size);
    if (!p) TERN_BUG("tiny drafter: no memory");
    return p;
}

// [n_out, n_in] (a vector: n_out 1) of values centre ± spread; vectors are F32.
static const struct tensor *tensor_add(struct tiny_drafter *t, const char *name, enum format f, int n_in, int n_out,
                                       float centre, float spread) {
    struct tensor *w = &t->tensors[t->n_tensors++];
    uint64_t row_bytes = 0;
    if (!format_row_bytes(f, (uint64_t)n_in, &row_bytes)) TERN_BUG("tiny drafter: rows of %d values", n_in);
    uint8_t *data = take(t, (size_t)n_out, (size_t)row_bytes);
    float *row = take(t, (size_t)n_in, sizeof(float));
    for (int o = 0; o < n_out; o++) {
        for (int i = 0; i < n_in; i++) row[i] = centre + spread * tiny_random_float(&t->state);
        if (f == FORMAT_F32)
            memcpy(data + (size_t)o * row_bytes, row, (size_t)row_bytes);
        else
            op_quantise_weights(f, row, n_in, data + (size_t)o * row_bytes);
    }
    *w = (struct tensor){.name = str_from(name),
                         .format = f,
                         .n_dims = n_out > 1 ? 2 : 1,
                         .ne = {n_in, n_out, 1, 1},
                         .data = data,
                         .n_bytes = row_bytes * (uint64_t)n_out};
    return w;
}

struct model *tiny_drafter_create(const struct model *target, int n_layers, enum format format, uint64_t seed) {
    const struct model_hyper *h = &target->hyper;
    struct tiny_shape shape = {.arch = "dflash",
                               .n_layers = n_layers,
                               .attn_mask = UINT64_MAX,
                               .n_embd = h->n_embd,
                               .n_head = h->n_head,
                               .n_head_kv = h->n_head_kv,
                               .head_dim = h->head_dim,
                               .n_ff = h->n_ff,
                               .n_vocab = h->n_vocab,
                               .qk_norm = true,
                               .tied = true,
                               .interleaved = true,
                               .format = format,
                               .seed = seed};
    struct tiny_drafter *t = mem_calloc(1, sizeof(*t));
    if (!t) TERN_BUG("tiny drafter: no memory");
    arena_init(&t->arena, 0);
    t->state = seed + 1;
    t->layers = tiny_model_create(&shape);
    t->model = *t->layers;
    t->model.embedding = target->embedding;
    t->model.output = target->output;
    t->model.drafter = &t->drafter;
    int n_in = 2 * h->n_embd;
    float spread = 1.7f / (float)__builtin_sqrt((double)n_in);
    t->drafter = (struct model_drafter){
        .target = target,
        .fc = tensor_add(t, "fc.weight", format, n_in, h->n_embd, 0, spread),
        .hidden_norm = tensor_add(t, "enc.output_norm.weight", FORMAT_F32, h->n_embd, 1, 1, 0.25f),
        .n_features = 2,
        .n_embd_target = h->n_embd,
        .feature_layers = {0, h->n_layers - 1},
        .n_rows = TINY_DRAFTER_ROWS,
        .n_proposals = TINY_DRAFTER_ROWS,
        .mask_id = h->n_vocab - 1,
        .markov = MARKOV_VANILLA,
        .markov_rank = TINY_DRAFTER_RANK,
        .markov_w1 = tensor_add(t, "markov_w1.weight", FORMAT_F32, TINY_DRAFTER_RANK, h->n_vocab, 0, 1),
        .markov_w2 = tensor_add(t, "markov_w2.weight", FORMAT_F32, TINY_DRAFTER_RANK, h->n_vocab, 0, 0.3f),
        .conf_with_markov = true,
        .conf = tensor_add(t, "conf_proj.weight", FORMAT_F32, h->n_embd + TINY_DRAFTER_RANK, 1, 0, 0.2f),
    };
    return &t->model;
}

void tiny_drafter_free(struct model *m) {
    if (!m) return;
    struct tiny_drafter *t = (struct tiny_drafter *)(void *)m;
    tiny_model_free(t->layers);
    arena_release(&t->arena);
    mem_free(t);
}
