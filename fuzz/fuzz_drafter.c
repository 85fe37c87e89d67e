// GGUF bytes through everything that opening a drafter does, against a target of two layers, width 32 and 40 rows. The
// end of every bound tensor is touched, so that a range outside the bytes is seen.
#include "base/base.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;
static const uint8_t embedding_bytes[40 * 32 * 4];

static void tensor_touch(const struct tensor *t) {
    if (t && t->n_bytes) sink = t->data[0] ^ t->data[t->n_bytes - 1];
}

static void drafter_touch(const struct model *m) {
    const struct model_drafter *d = m->drafter;
    const struct tensor *const of_model[] = {m->embedding, m->output,    m->output_norm, d->fc,       d->hidden_norm,
                                             d->markov_w1, d->markov_w2, d->conf,        d->conf_bias};
    for (size_t i = 0; i < ARRAY_LEN(of_model); i++) tensor_touch(of_model[i]);
    for (int i = 0; i < m->hyper.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        const struct tensor *const of_layer[] = {l->attn_norm, l->q,      l->k,       l->v,
                                                 l->o,         l->q_norm, l->k_norm,  l->ffn_norm,
                                                 l->ffn_gate,  l->ffn_up, l->ffn_down};
        for (size_t k = 0; k < ARRAY_LEN(of_layer); k++) tensor_touch(of_layer[k]);
    }
    bool ok = d->n_features > 0 && d->n_rows > d->first_row && d->mask_id >= 0 && d->mask_id < m->hyper.n_vocab;
    for (int i = 0; i < d->n_features; i++) ok = ok && d->feature_layers[i] >= 0 && d->feature_layers[i] < 2;
    if (!ok) TERN_BUG("a drafter that does not fit its target was opened");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct tensor embedding = {.format = FORMAT_F32,
                                            .n_dims = 2,
                                            .ne = {32, 40, 1, 1},
                                            .data = embedding_bytes,
                                            .n_bytes = sizeof(embedding_bytes)};
    const struct model target = {.name = "target",
                                 .hyper = {.n_layers = 2, .n_embd = 32, .n_vocab = 40, .n_vocab_used = 40},
                                 .embedding = &embedding,
                                 .output = &embedding};
    uint64_t n_live = mem_stats_get().n_live;
    struct model *m;
    struct tern_err err = {0};
    enum tern_status status = model_open_drafter_memory(&m, "input", data, size, &target, &err);
    if (status == TERN_OK) {
        drafter_touch(m);
        model_close(m);
    } else if (err.code != status || err.message[0] == 0) {
        TERN_BUG("a refusal without a message: %d", (int)status);
    }
    if (mem_stats_get().n_live != n_live) TERN_BUG("blocks leak");
    return 0;
}
