// See study_shape.h. The layers are those of a made model (attention layers with norms of q and k); what a drafter has
// beside them is made here, quantised from a cheap generator: values do not matter, bytes and shapes do.
#include "base/base.h"
#include "study_shape.h"
#include "op/op.h"

#include <math.h>

#define LAYERS_MAX 8
#define MARKOV_RANK 64
#define FEATURES 5
#define BLOCK_ROWS 9
#define MASK_ID 3

struct shape_drafter {
    struct model model; // the made model's layers under the drafter's face
    struct model *layers;
    struct model_drafter drafter;
    struct arena arena;
    struct tensor tensors[4];
    int n_tensors;
    uint64_t state, bytes;
};

static float random_value(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((int64_t)(*state >> 40) - (1 << 23)) * 0x1p-23f;
}

static const struct tensor *matrix_add(struct shape_drafter *d, const char *name, enum format f, int n_in, int n_out,
                                       float centre, float spread, struct tern_err *err) {
    uint64_t row_bytes = 0, bytes = 0;
    float *row = arena_calloc(&d->arena, (size_t)n_in, sizeof *row);
    if (!format_row_bytes(f, (uint64_t)n_in, &row_bytes) || !u64_mul(row_bytes, (uint64_t)n_out, &bytes) || !row) {
        err_set(err, TERN_NO_MEMORY, "no room for a drafter's %s", name);
        return NULL;
    }
    uint8_t *data = arena_calloc(&d->arena, 1, (size_t)bytes);
    if (!data) {
        err_set(err, TERN_NO_MEMORY, "no memory for a drafter's %s", name);
        return NULL;
    }
    for (int o = 0; o < n_out; o++) {
        for (int i = 0; i < n_in; i++) row[i] = centre + spread * random_value(&d->state);
        if (f == FORMAT_F32)
            memcpy(data + (uint64_t)o * row_bytes, row, (size_t)row_bytes);
        else
            op_quantise_weights(f, row, n_in, data + (uint64_t)o * row_bytes);
    }
    struct tensor *t = &d->tensors[d->n_tensors++];
    *t = (struct tensor){.name = str_from(name),
                         .format = f,
                         .n_dims = n_out > 1 ? 2 : 1,
                         .ne = {n_in, n_out, 1, 1},
                         .data = data,
                         .n_bytes = bytes};
    d->bytes += bytes;
    return t;
}

static uint64_t bytes_of(enum format f, double n) {
    uint64_t block = 0;
    return format_row_bytes(f, 256, &block) ? (uint64_t)(n / 256 * (double)block) : 0;
}

uint64_t shape_bytes(const struct model *m) {
    uint64_t sum = 0;
    for (int i = 0; i < m->n_tensors; i++) sum += m->tensors[i].n_bytes;
    return sum;
}

static int layers_for(const struct model *target, enum format f, double share) {
    const struct model_hyper *h = &target->hyper;
    double embd = h->n_embd, q = h->n_head * h->head_dim, kv = h->n_head_kv * h->head_dim;
    double layer = 2 * embd * q + 2 * embd * kv + 3 * embd * h->n_ff;
    double rest = FEATURES * embd * embd + 2.0 * MARKOV_RANK * h->n_vocab;
    double wanted = share * (double)shape_bytes(target) - (double)bytes_of(f, rest);
    return (int)MIN(MAX(floor(wanted / (double)bytes_of(f, layer) + 0.5), 1), LAYERS_MAX);
}

static enum tern_status parts_make(struct shape_drafter *d, const struct model *target, enum format f, int n_layers,
                                   uint64_t seed, struct tern_err *err) {
    const struct model_hyper *h = &target->hyper;
    struct model_shape shape = {.name = "drafter", .hyper = *h, .attn_layers_mask = UINT64_MAX, .tied = true};
    int n_in = FEATURES * h->n_embd;
    shape.hyper.n_layers = n_layers;
    shape.hyper.n_vocab = BLOCK_ROWS; // its embedding is not used
    shape.hyper.conv_len = 0;
    TRY(model_create_shape(&d->layers, &shape, f, FORMAT_F16, seed, err));
    d->bytes = shape_bytes(d->layers);
    d->model = *d->layers;
    d->model.name = "drafter of a shape";
    d->model.hyper.n_vocab = h->n_vocab;
    d->model.hyper.n_vocab_used = h->n_vocab_used;
    d->model.embedding = target->embedding;
    d->model.output = target->output;
    d->model.drafter = &d->drafter;
    const struct tensor *fc = matrix_add(d, "fc", f, n_in, h->n_embd, 0, 1.7f / sqrtf((float)n_in), err);
    const struct tensor *norm = fc ? matrix_add(d, "norm", FORMAT_F32, h->n_embd, 1, 1, 0.1f, err) : NULL;
    const struct tensor *w1 = norm ? matrix_add(d, "w1", f, MARKOV_RANK, h->n_vocab, 0, 1, err) : NULL;
    const struct tensor *w2 = w1 ? matrix_add(d, "w2", f, MARKOV_RANK, h->n_vocab, 0, 0.3f, err) : NULL;
    if (!w2) return err ? err->code : TERN_NO_MEMORY;
    d->drafter = (struct model_drafter){.target = target,
                                        .fc = fc,
                                        .hidden_norm = norm,
                                        .n_features = FEATURES,
                                        .n_embd_target = h->n_embd,
                                        .n_rows = BLOCK_ROWS,
                                        .n_proposals = BLOCK_ROWS,
                                        .mask_id = MASK_ID,
                                        .markov = MARKOV_VANILLA,
                                        .markov_rank = MARKOV_RANK,
                                        .markov_w1 = w1,
                                        .markov_w2 = w2};
    for (int i = 0; i < FEATURES; i++) d->drafter.feature_layers[i] = 1 + i * (h->n_layers - 2) / (FEATURES - 1);
    return TERN_OK;
}

enum tern_status shape_drafter_create(struct shape_drafter **out, const struct model *target, enum format format,
                                      double share, uint64_t seed, struct tern_err *err) {
    struct tern_err local = {0};
    if (!err) err = &local;
    struct shape_drafter *d = mem_calloc(1, sizeof *d);
    if (!d) return err_set(err, TERN_NO_MEMORY, "no memory for a drafter");
    arena_init(&d->arena, 0);
    d->state = seed;
    enum tern_status status = parts_make(d, target, format, layers_for(target, format, share), seed, err);
    if (status != TERN_OK) {
        shape_drafter_free(d);
        return status;
    }
    *out = d;
    return TERN_OK;
}

void shape_drafter_free(struct shape_drafter *d) {
    if (!d) return;
    model_close(d->layers);
    arena_release(&d->arena);
    mem_free(d);
}

const struct model *shape_drafter_model(const struct shape_drafter *d) { return &d->model; }
uint64_t shape_drafter_bytes(const struct shape_drafter *d) { return d->bytes; }
