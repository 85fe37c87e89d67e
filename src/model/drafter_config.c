// A drafter's config.json: Liquid AI's form (the drafter's fields in an object dflash_config, RoPE pairs interleaved
// unless rope_is_neox_style), DeepSeek's (all fields at the top) and z-lab's DFlash. The same field may stand in both
// places; two values for it are refused.
#include "base/base.h"
#include "model/model_int.h"

static enum tern_status int_pick(const char *name, int64_t a, int64_t b, int64_t *out, struct tern_err *err) {
    if (a != HF_ABSENT && b != HF_ABSENT && a != b)
        return err_set(err, TERN_BAD_FORMAT, "config.json: %s is %lld in one place and %lld in another", name,
                       (long long)a, (long long)b);
    *out = a != HF_ABSENT ? a : b;
    return TERN_OK;
}

static enum tern_status flag_pick(const char *name, int a, int b, int *out, struct tern_err *err) {
    if (a >= 0 && b >= 0 && a != b)
        return err_set(err, TERN_BAD_FORMAT, "config.json: %s is true in one place and false in another", name);
    *out = a >= 0 ? a : b;
    return TERN_OK;
}

// One set of fields from the two places.
static enum tern_status fields_merge(const struct hf_config *c, struct hf_drafter *out, struct tern_err *err) {
    const struct hf_drafter *a = &c->drafter_nested, *b = &c->drafter;
    *out = a->n_target_layer_ids >= 0 ? *a : *b;
    TRY(int_pick("block_size", a->block_size, b->block_size, &out->block_size, err));
    TRY(int_pick("markov_rank", a->markov_rank, b->markov_rank, &out->markov_rank, err));
    TRY(int_pick("mask_token_id", a->mask_token_id, b->mask_token_id, &out->mask_token_id, err));
    TRY(int_pick("num_target_layers", a->num_target_layers, b->num_target_layers, &out->num_target_layers, err));
    TRY(int_pick("target_hidden_size", a->target_hidden_size, b->target_hidden_size, &out->target_hidden_size, err));
    TRY(flag_pick("enable_confidence_head", a->enable_confidence_head, b->enable_confidence_head,
                  &out->enable_confidence_head, err));
    TRY(flag_pick("confidence_head_with_markov", a->confidence_with_markov, b->confidence_with_markov,
                  &out->confidence_with_markov, err));
    TRY(flag_pick("sample_from_anchor", a->sample_from_anchor, b->sample_from_anchor, &out->sample_from_anchor, err));
    if (a->markov_head_type.len && b->markov_head_type.len && !str_eq(a->markov_head_type, b->markov_head_type))
        return err_set(err, TERN_BAD_FORMAT, "config.json: markov_head_type differs in two places");
    out->markov_head_type = a->markov_head_type.len ? a->markov_head_type : b->markov_head_type;
    bool same = a->n_target_layer_ids == b->n_target_layer_ids;
    for (int i = 0; same && i < a->n_target_layer_ids; i++) same = a->target_layer_ids[i] == b->target_layer_ids[i];
    if (a->n_target_layer_ids >= 0 && b->n_target_layer_ids >= 0 && !same)
        return err_set(err, TERN_BAD_FORMAT, "config.json: target_layer_ids differs in two places");
    return TERN_OK;
}

static enum tern_status markov_read(struct model_drafter *d, const struct hf_config *c, const struct hf_drafter *f,
                                    struct tern_err *err) {
    static const struct {
        const char *name;
        enum markov_kind kind;
    } kinds[] = {{"vanilla", MARKOV_VANILLA}, {"gated", MARKOV_GATED}, {"rnn", MARKOV_RNN}, {"none", MARKOV_NONE}};
    int64_t rank = f->markov_rank == HF_ABSENT ? 0 : f->markov_rank;
    if (rank < 0 || rank > MODEL_MARKOV_RANK_MAX)
        return err_set(err, TERN_BAD_FORMAT, "config.json: markov_rank is %lld, must be 0 to %d", (long long)rank,
                       MODEL_MARKOV_RANK_MAX);
    if (rank == 0) {
        if (!str_eqz(c->class_name, "DFlashDraftModel"))
            return err_set(err, TERN_BAD_FORMAT, "config.json: markov_rank is missing or 0, but %.*s has a Markov head",
                           SHOW(c->class_name));
        return TERN_OK;
    }
    d->markov = MARKOV_VANILLA;
    size_t k = 0;
    while (k < ARRAY_LEN(kinds) && !str_eqz(f->markov_head_type, kinds[k].name)) k++;
    if (k < ARRAY_LEN(kinds)) d->markov = kinds[k].kind;
    if (k == ARRAY_LEN(kinds) && f->markov_head_type.len)
        return err_set(err, TERN_UNSUPPORTED,
                       "config.json: markov_head_type '%.*s' is not supported (vanilla, gated, rnn)",
                       SHOW(f->markov_head_type));
    d->markov_rank = d->markov == MARKOV_NONE ? 0 : (int)rank;
    return TERN_OK;
}

static enum tern_status backbone_read(struct model_params *p, const struct hf_config *c, struct tern_err *err) {
    struct model_hyper *h = &p->hyper;
    if (c->rms_norm_eps != c->rms_norm_eps)
        return err_set(err, TERN_BAD_FORMAT, "config.json: rms_norm_eps is missing");
    h->norm_eps = (float)c->rms_norm_eps;
    if (c->hidden_act.len && !str_eqz(c->hidden_act, "silu"))
        return err_set(err, TERN_UNSUPPORTED, "config.json: hidden_act %.*s is not supported (silu is)",
                       SHOW(c->hidden_act));
    if (c->attention_bias == 1 || c->mlp_bias == 1)
        return err_set(err, TERN_UNSUPPORTED, "config.json: %s is true, which is not supported",
                       c->attention_bias == 1 ? "attention_bias" : "mlp_bias");
    bool all_full = c->n_layer_types == h->n_layers; // neither convolutions nor sliding windows
    for (int i = 0; i < c->n_layer_types; i++) all_full = all_full && c->layer_types[i] == HF_LAYER_FULL;
    if ((c->use_sliding_window == 1 || c->n_layer_types >= 0) && !all_full)
        return err_set(err, TERN_UNSUPPORTED,
                       "config.json: a drafter of layers other than full attention is not supported");
    if (c->intermediate_size < 1 || c->intermediate_size > MODEL_FF_MAX)
        return err_set(err, TERN_BAD_FORMAT, "config.json: intermediate_size is missing or not 1 to %d", MODEL_FF_MAX);
    h->n_ff = (int)c->intermediate_size;
    p->ff_key = "intermediate_size";
    for (int i = 0; i < h->n_layers; i++) {
        p->kinds[i] = LAYER_ATTENTION;
        p->n_head_kv[i] = h->n_head_kv;
    }
    return TERN_OK;
}

enum tern_status drafter_params_hf(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                   struct tern_err *err) {
    struct model_drafter *d = p->drafter;
    const struct model_hyper *target = &d->target->hyper;
    struct hf_drafter f;
    TRY(fields_merge(c, &f, err));
    TRY(hf_params_common(p, s, c, err));
    TRY(backbone_read(p, c, err));
    TRY(drafter_agree(d, "config.json: vocab_size", p->hyper.n_vocab, target->n_vocab, "vocabulary rows", err));
    TRY(drafter_agree(d, "config.json: num_target_layers", f.num_target_layers, target->n_layers, "layers", err));
    TRY(drafter_agree(d, "config.json: target_hidden_size", f.target_hidden_size, target->n_embd, "values per row",
                      err));
    TRY(markov_read(d, c, &f, err));
    TRY(drafter_features_set(d, "config.json: target_layer_ids", f.target_layer_ids, f.n_target_layer_ids, 0, err));
    if (f.block_size == HF_ABSENT) return err_set(err, TERN_BAD_FORMAT, "config.json: block_size is missing");
    TRY(drafter_rows_set(d, "config.json: block_size", f.block_size, f.sample_from_anchor, err));
    if (f.mask_token_id < 0 || f.mask_token_id >= target->n_vocab)
        return err_set(err, TERN_BAD_FORMAT, "config.json: mask_token_id is missing or no id below %d",
                       target->n_vocab);
    d->mask_id = (int32_t)f.mask_token_id;
    // A file that does not say has the head when it has its tensors.
    p->has_conf = f.enable_confidence_head == 1 ||
                  (f.enable_confidence_head < 0 && table_find(s, STR("confidence_head.proj.weight")));
    d->conf_with_markov = f.confidence_with_markov < 0 ? d->markov != MARKOV_NONE : f.confidence_with_markov == 1;
    if (p->has_conf && d->conf_with_markov && d->markov == MARKOV_NONE)
        return err_set(err, TERN_BAD_FORMAT,
                       "config.json: confidence_head_with_markov is true, but there is no Markov head");
    d->conf_with_markov = d->conf_with_markov && p->has_conf;
    TRY(params_check(p, err));
    return hf_rope_read(p, s, c, 10000.0, err);
}
