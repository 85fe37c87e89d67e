// Drafters (DSpark, DFlash): the tensors of the three file forms, and the keys of the two GGUF forms.
//
//   dflash        llama.cpp. A DSpark drafter is told by its markov_* tensors. target_layers count layer *inputs*, one
//                 more than the config.json ids of the same drafter; files with the key markov_rank, which llama.cpp's
//                 converter never writes, hold the ids themselves. (Nothing fails with the wrong ones: acceptance
//                 drops.) RoPE pairs are half-split: the converter reorders q and k where config.json says interleaved.
//   dflash-draft  ik_llama.cpp. Its own keys begin with dflash-draft.dflash., target_layer_ids are config.json's.
//   a folder      drafter_config.c.
#include "base/base.h"
#include "model/arch_tensors.h"

#define HF_LAYER "layers.%d."
#define PART(field) offsetof(struct model_drafter, field)

static const struct arch_tensor drafter_tensors[] = {
    {{"fc.weight", "fc.weight", "dflash_fc.weight"}, WHERE_DRAFTER, PART(fc), DIM_FEATURES, DIM_EMBD, false},
    {{"enc.output_norm.weight", "hidden_norm.weight", "dflash_hidden_norm.weight"},
     WHERE_DRAFTER,
     PART(hidden_norm),
     DIM_EMBD,
     DIM_NONE,
     true},
    {{"output_norm.weight", "norm.weight", NULL},
     WHERE_GLOBAL,
     offsetof(struct model, output_norm),
     DIM_EMBD,
     DIM_NONE,
     true},
    {{"markov_w1.weight", "markov_head.markov_w1.weight", NULL},
     WHERE_MARKOV,
     PART(markov_w1),
     DIM_RANK,
     DIM_VOCAB,
     false},
    {{"markov_w2.weight", "markov_head.markov_w2.weight", NULL},
     WHERE_MARKOV,
     PART(markov_w2),
     DIM_RANK,
     DIM_VOCAB,
     false},
    {{"", "markov_head.gate_proj.weight", NULL}, WHERE_GATED, PART(markov_gate), DIM_GATE_IN, DIM_RANK, false},
    {{"", "markov_head.gate_proj.bias", NULL}, WHERE_GATED, PART(markov_bias), DIM_RANK, DIM_NONE, true},
    {{"", "markov_head.joint_proj.weight", NULL}, WHERE_RNN, PART(markov_joint), DIM_RNN_IN, DIM_RANK3, false},
    {{"", "markov_head.joint_proj.bias", NULL}, WHERE_RNN, PART(markov_bias), DIM_RANK3, DIM_NONE, true},
    {{"conf_proj.weight", "confidence_head.proj.weight", NULL}, WHERE_CONF, PART(conf), DIM_CONF_IN, DIM_ONE, false},
    {{"conf_proj.bias", "confidence_head.proj.bias", NULL}, WHERE_CONF_BIAS, PART(conf_bias), DIM_ONE, DIM_NONE, true},
    ARCH_ROWS_ATTENTION(HF_LAYER),
    ARCH_ROWS_HEAD_NORMS(HF_LAYER),
    ARCH_ROWS_FFN(HF_LAYER),
};

const struct model_arch_kind arch_drafter = {
    .name = "dflash",
    .hf_type = "qwen3",
    .rope_gguf = ROPE_HALF,
    .rope_hf = ROPE_HALF,
    .tensors = drafter_tensors,
    .n_tensors = ARRAY_LEN(drafter_tensors),
    .ff_name = {"blk.0.ffn_gate.weight", "layers.0.mlp.gate_proj.weight"},
};

bool drafter_arch_is(struct str gguf_name) {
    return str_eqz(gguf_name, "dflash") || str_eqz(gguf_name, "dflash-draft");
}

bool drafter_class_is(struct str class_name) {
    static const char *const classes[] = {"Lfm2DSparkDraftModel", "DSparkDraftModel", "Qwen3DSparkModel",
                                          "DFlashDraftModel"};
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (str_eqz(class_name, classes[i])) return true;
    return false;
}

// ---------------------------------------------------------------------------------------------- what all forms share

enum tern_status drafter_agree(const struct model_drafter *d, const char *key, int64_t v, int64_t of_target,
                               const char *what, struct tern_err *err) {
    if (v == HF_ABSENT || v == of_target) return TERN_OK;
    return err_set(err, TERN_MISMATCH,
                   "%s is %lld, but the target model (%s) has %lld %s: the drafter of another model", key, (long long)v,
                   d->target->name, (long long)of_target, what);
}

enum tern_status drafter_features_set(struct model_drafter *d, const char *key, const int64_t *list, int n, int shift,
                                      struct tern_err *err) {
    int n_layers = d->target->hyper.n_layers;
    if (n < 1) return err_set(err, TERN_BAD_FORMAT, "%s is missing or empty", key);
    d->n_embd_target = d->target->hyper.n_embd;
    d->layers_were_inputs = shift == 1;
    for (int i = 0; i < n; i++) {
        if (list[i] < shift || list[i] - shift >= n_layers)
            return err_set(err, TERN_MISMATCH,
                           "%s holds %lld; of the target model (%s) %d to %d are possible: the drafter of another "
                           "model",
                           key, (long long)list[i], d->target->name, shift, n_layers - 1 + shift);
        for (int k = 0; k < i; k++)
            if (list[k] == list[i])
                return err_set(err, TERN_BAD_FORMAT, "%s holds layer %lld twice", key, (long long)list[i]);
        d->feature_layers[i] = (int)(list[i] - shift);
    }
    d->n_features = n;
    return TERN_OK;
}

enum tern_status drafter_rows_set(struct model_drafter *d, const char *key, int64_t block_size, int from_anchor,
                                  struct tern_err *err) {
    d->first_row = (from_anchor < 0 ? d->markov != MARKOV_NONE : from_anchor) ? 0 : 1;
    if (block_size <= d->first_row || block_size > MODEL_DRAFT_ROWS_MAX)
        return err_set(err, TERN_BAD_FORMAT, "%s is %lld, must be %d to %d", key, (long long)block_size,
                       d->first_row + 1, MODEL_DRAFT_ROWS_MAX);
    d->n_rows = (int)block_size;
    d->n_proposals = d->n_rows - d->first_row;
    return TERN_OK;
}

// ---------------------------------------------------------------------------------------------- GGUF

// Keys that change what a drafter computes and that none here has.
static enum tern_status neutral_keys(const struct gguf *g, struct tern_err *err) {
    static const struct {
        const char *key;
        double neutral; // beside 0
    } keys[] = {{"@logit_scale", 1}, {"@final_logit_softcapping", 0}, {"@attention.value_scale", 1}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        double v = 0;
        TRY(gguf_opt_f64(g, keys[i].key, &v, err));
        if (v != 0 && v != keys[i].neutral)
            return err_set(err, TERN_UNSUPPORTED, "key %s.%s is %g, which is not supported", g->arch, keys[i].key + 1,
                           v);
    }
    return TERN_OK;
}

static enum tern_status layers_read(struct model_drafter *d, const struct gguf *g, const char *key, int shift,
                                    struct tern_err *err) {
    char name[96];
    int items[MODEL_FEATURES_MAX];
    int64_t list[MODEL_FEATURES_MAX];
    const struct gguf_kv *kv = gguf_find(g, key);
    snprintf(name, sizeof(name), "key %s.%s", g->arch, key + 1);
    uint64_t n = kv && kv->type == GGUF_ARRAY ? kv->n : 1;
    if (n > MODEL_FEATURES_MAX)
        return err_set(err, TERN_LIMIT, "%s has %llu items, at most %d are supported", name, (unsigned long long)n,
                       MODEL_FEATURES_MAX);
    TRY(gguf_need_ints(g, key, INT32_MIN, INT32_MAX, items, (int)n, err));
    for (uint64_t i = 0; i < n; i++) list[i] = items[i];
    return drafter_features_set(d, name, list, (int)n, shift, err);
}

// The Markov and confidence heads: by their tensors, whose widths give the rank.
static enum tern_status heads_find(struct model_params *p, const struct model_source *s, int64_t rank_said,
                                   struct tern_err *err) {
    struct model_drafter *d = p->drafter;
    const struct tensor *w1 = table_find(s, STR("markov_w1.weight")), *w2 = table_find(s, STR("markov_w2.weight"));
    const struct tensor *conf = table_find(s, STR("conf_proj.weight"));
    if (!w1 != !w2)
        return err_set(err, TERN_BAD_FORMAT, "tensor %s is missing: half a Markov head",
                       w1 ? "markov_w2.weight" : "markov_w1.weight");
    if (rank_said > 0 && !w1)
        return err_set(err, TERN_BAD_FORMAT,
                       "key %s.markov_rank is %lld, but there are no tensors markov_w1.weight and markov_w2.weight",
                       s->gguf.arch, (long long)rank_said);
    if (w1) {
        if (w1->ne[0] > MODEL_MARKOV_RANK_MAX)
            return err_set(err, TERN_LIMIT, "tensor markov_w1.weight has rank %lld, at most %d are supported",
                           (long long)w1->ne[0], MODEL_MARKOV_RANK_MAX);
        d->markov = MARKOV_VANILLA;
        d->markov_rank = (int)w1->ne[0];
        if (rank_said > 0 && rank_said != d->markov_rank)
            return err_set(err, TERN_BAD_FORMAT, "key %s.markov_rank is %lld, tensor markov_w1.weight has rank %d",
                           s->gguf.arch, (long long)rank_said, d->markov_rank);
        TRY(drafter_agree(d, "the number of rows of tensor markov_w1.weight", w1->ne[1], d->target->hyper.n_vocab,
                          "vocabulary rows", err));
    }
    p->has_conf = conf != NULL;
    d->conf_with_markov = conf && w1 && conf->ne[0] != p->hyper.n_embd;
    return TERN_OK;
}

static enum tern_status own_keys(struct model_params *p, struct model_source *s, struct tern_err *err) {
    const struct gguf *g = &s->gguf;
    struct model_drafter *d = p->drafter;
    bool is_ik = str_eqz(str_from(g->arch), "dflash-draft");
    const char *block_key = is_ik ? "@dflash.block_size" : "@block_size";
    int64_t block = 0, mask = 0, rank = 0, width = HF_ABSENT, features = HF_ABSENT;
    int from_anchor = -1;
    TRY(gguf_opt_int(g, "@markov_rank", 0, MODEL_MARKOV_RANK_MAX, &rank, err));
    TRY(heads_find(p, s, rank, err));
    int shift = is_ik || gguf_find(g, "@markov_rank") ? 0 : 1;
    TRY(layers_read(d, g, is_ik ? "@dflash.target_layer_ids" : "@target_layers", shift, err));
    TRY(gguf_opt_int(g, "@target_hidden_size", 0, INT32_MAX, &width, err));
    TRY(drafter_agree(d, "key target_hidden_size", width, d->n_embd_target, "values per row", err));
    TRY(gguf_opt_int(g, "@dflash.n_target_features", 0, INT32_MAX, &features, err));
    TRY(drafter_agree(d, "key dflash.n_target_features", features, (int64_t)d->n_features * d->n_embd_target,
                      "values in these layers", err));
    TRY(gguf_need_int(g, block_key, INT32_MIN, INT32_MAX, &block, err));
    TRY(gguf_opt_bool(g, "@sample_from_anchor", &from_anchor, err));
    TRY(drafter_rows_set(d, is_ik ? "key dflash.block_size" : "key block_size", block, from_anchor, err));
    TRY(gguf_need_int(g, is_ik ? "@dflash.mask_token_id" : "tokenizer.ggml.mask_token_id", 0,
                      d->target->hyper.n_vocab - 1, &mask, err));
    d->mask_id = (int32_t)mask;
    return TERN_OK;
}

enum tern_status drafter_params_gguf(struct model_params *p, struct model_source *s, struct tern_err *err) {
    const struct gguf *g = &s->gguf;
    double base = 0;
    TRY(gguf_params_common(p, s, err));
    TRY(neutral_keys(g, err));
    if (table_find(s, STR("d2t")))
        return err_set(err, TERN_UNSUPPORTED, "a drafter with a reduced vocabulary (tensor d2t) is not supported");
    if (p->hyper.n_vocab)
        TRY(drafter_agree(p->drafter, "key vocab_size", p->hyper.n_vocab, p->drafter->target->hyper.n_vocab,
                          "vocabulary rows", err));
    for (int i = 0; i < p->hyper.n_layers; i++)
        if (p->kinds[i] != LAYER_ATTENTION)
            return err_set(err, TERN_BAD_FORMAT, "key attention.head_count_kv is 0 in layer %d", i);
    TRY(gguf_opt_f64(g, "@dflash.backbone_rotary_base", &base, err));
    if (base != 0 && p->hyper.rope_base != 0 && (float)base != p->hyper.rope_base)
        return err_set(err, TERN_UNSUPPORTED, "another RoPE base for the context (%g) than for the block (%g)", base,
                       (double)p->hyper.rope_base);
    if (p->hyper.rope_base == 0) p->hyper.rope_base = base != 0 ? (float)base : 10000.0f; // the format's default
    TRY(own_keys(p, s, err));
    TRY(params_check(p, err));
    return gguf_rope_scaling(p, s, err);
}
