// GGUF bytes through everything that opening a model does: header, keys, tensor table, parameters, binding, vocabulary,
// metadata as text. The end of every tensor is touched, so that a range outside the bytes is seen.
#include "base/base.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

static void meta_take(void *arg, const char *key, const char *type, const char *value) {
    (void)arg;
    sink = (uint8_t)(key[0] ^ type[0] ^ value[0]);
}

static void model_touch(const struct model *m) {
    for (int i = 0; i < m->n_tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (t->n_bytes) sink = t->data[0] ^ t->data[t->n_bytes - 1];
    }
    for (int i = 0; i < m->vocab.n_tokens; i++)
        if (m->vocab.tokens[i].len) sink = (uint8_t)m->vocab.tokens[i].data[m->vocab.tokens[i].len - 1];
    for (int i = 0; i < m->vocab.n_merges; i++)
        if (m->vocab.merges[i].len) sink = (uint8_t)m->vocab.merges[i].data[m->vocab.merges[i].len - 1];
    if (m->vocab.types)
        for (int i = 0; i < m->vocab.n_tokens; i++) sink = (uint8_t)m->vocab.types[i];
    model_meta_each(m, meta_take, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t n_live = mem_stats_get().n_live;
    struct model *m;
    struct tern_err err = {0};
    enum tern_status status = model_open_memory(&m, "input", data, size, &err);
    if (status == TERN_OK) {
        model_touch(m);
        model_close(m);
    } else if (err.code != status || err.message[0] == 0) {
        TERN_BUG("a refusal without a message: %d", (int)status);
    }
    if (mem_stats_get().n_live != n_live) TERN_BUG("blocks leak");
    return 0;
}
