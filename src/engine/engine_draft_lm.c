// A whole smaller model as the engine's draft model: it must be of the target's vocabulary, token by token, since ids
// are all that the two exchange, on whatever units they run. One lane of it for each session.
#include "base/base.h"
#include "engine_int.h"

static enum tern_status tokens_compare(const struct tern_engine *e, const struct tokenizer *own, struct tern_err *err) {
    const struct tokenizer *target = e->tokenizer;
    int n = tokenizer_size(own), n_target = tokenizer_size(target);
    if (n != n_target)
        return err_set(err, TERN_MISMATCH,
                       "its vocabulary has %d tokens, the target model's (%s) %d: a draft model must have the same", n,
                       e->model->name, n_target);
    for (int32_t id = 0; id < n; id++) {
        struct str a = tokenizer_token_bytes(own, id), b = tokenizer_token_bytes(target, id);
        if (!str_eq(a, b) || tokenizer_is_control(own, id) != tokenizer_is_control(target, id))
            return err_set(err, TERN_MISMATCH,
                           "token %d is '%.*s', the target model's (%s) is '%.*s': a draft model must have the same "
                           "vocabulary",
                           id, (int)a.len, a.data, e->model->name, (int)b.len, b.data);
    }
    return TERN_OK;
}

enum tern_status draft_lm_check(struct tern_engine *e, const char *path, struct tern_err *err) {
    struct model *m = e->draft.model;
    struct tokenizer *own = NULL;
    enum tern_status status = TERN_OK;
    if (m->hyper.bidirectional)
        status = err_set(err, TERN_UNSUPPORTED, "it is an encoder, which guesses no text");
    else if (!e->tokenizer)
        status = err_set(err, TERN_UNSUPPORTED, "the target model has no vocabulary to compare its own with");
    else
        status = engine_tokenizer_create(&own, m, err);
    if (status == TERN_OK && !own) status = err_set(err, TERN_MISMATCH, "it has no vocabulary");
    if (status == TERN_OK) status = tokens_compare(e, own, err);
    tokenizer_free(own);
    return status == TERN_OK ? TERN_OK : err_prefix(err, "draft model %s", path);
}

static void options_fill(const struct tern_engine *e, struct draft_lm_options *o) {
    *o = (struct draft_lm_options){.model = e->draft.model,
                                   .unit = e->draft.unit,
                                   .weights = e->draft.weights,
                                   .numerics = e->numerics,
                                   .kv_type = e->kv_type,
                                   .window = e->draft.window,
                                   .n_ctx = e->n_ctx,
                                   .n_lanes = e->n_sessions,
                                   .n_used = e->model->hyper.n_vocab_used};
}

bool draft_lm_bytes_estimate(const struct tern_engine *e, uint64_t *bytes) {
    struct draft_lm_options o;
    options_fill(e, &o);
    return draft_lm_estimate(&o, bytes) && u64_add(*bytes, e->draft.model->n_bytes_file, bytes);
}

enum tern_status draft_lm_load(struct tern_engine *e, struct tern_err *err) {
    struct engine_draft *d = &e->draft;
    struct weights_options wo = {.numerics = e->numerics, .pack_cache = e->options.pack_cache};
    struct draft_lm_options o;
    TRY(unit_driver_of(d->unit)->weights_import(d->unit, &d->weights, d->model, &wo, &d->weights_info, err));
    options_fill(e, &o);
    return draft_lm_create(&d->lm, &o, err);
}
