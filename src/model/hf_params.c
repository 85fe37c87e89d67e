// From config.json's fields to parameters: what all architectures write alike, and RoPE.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

static enum tern_status need(int64_t v, const char *name, int64_t max, int *out, struct tern_err *err) {
    if (v == HF_ABSENT) return err_set(err, TERN_BAD_FORMAT, "config.json: %s is missing", name);
    if (v < 1 || v > max)
        return err_set(err, TERN_BAD_FORMAT, "config.json: %s is %lld, must be 1 to %lld", name, (long long)v,
                       (long long)max);
    *out = (int)v;
    return TERN_OK;
}

enum tern_status hf_params_common(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                  struct tern_err *err) {
    struct model_hyper *h = &p->hyper;
    if (c->has_quantization)
        return err_set(err, TERN_UNSUPPORTED,
                       "config.json: quantised safetensors (quantization_config) are not supported");
    TRY(need(c->n_layers, "num_hidden_layers", MODEL_LAYERS_MAX, &h->n_layers, err));
    TRY(need(c->hidden_size, "hidden_size", MODEL_EMBD_MAX, &h->n_embd, err));
    TRY(need(c->n_head, "num_attention_heads", MODEL_HEADS_MAX, &h->n_head, err));
    h->n_head_kv = h->n_head;
    if (c->n_head_kv != HF_ABSENT) TRY(need(c->n_head_kv, "num_key_value_heads", MODEL_HEADS_MAX, &h->n_head_kv, err));
    if (c->head_dim != HF_ABSENT) TRY(need(c->head_dim, "head_dim", MODEL_HEAD_DIM_MAX, &h->head_dim, err));
    TRY(need(c->vocab_size, "vocab_size", MODEL_VOCAB_MAX, &h->n_vocab, err));
    TRY(need(c->n_ctx, "max_position_embeddings", MODEL_CTX_MAX, &h->n_ctx, err));
    p->vocab_key = "vocab_size";
    int tied = c->tie_word_embeddings, tied_too = c->tie_embedding;
    if (tied >= 0 && tied_too >= 0 && tied != tied_too)
        return err_set(err, TERN_BAD_FORMAT, "config.json: tie_word_embeddings and tie_embedding disagree");
    p->tied = tied >= 0 ? tied : tied_too;
    return params_layers(p, s, h->n_layers, err);
}

enum tern_status hf_params_decoder(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                   struct tern_err *err) {
    bool sliding = p->arch->has_windows;
    TRY(hf_params_common(p, s, c, err));
    if (c->rms_norm_eps != c->rms_norm_eps)
        return err_set(err, TERN_BAD_FORMAT, "config.json: rms_norm_eps is missing");
    p->hyper.norm_eps = (float)c->rms_norm_eps;
    if (c->hidden_act.len && !str_eqz(c->hidden_act, "silu"))
        return err_set(err, TERN_UNSUPPORTED, "config.json: hidden_act %.*s is not supported (silu is)",
                       SHOW(c->hidden_act));
    if (c->attention_bias == 1 || c->mlp_bias == 1)
        return err_set(err, TERN_UNSUPPORTED, "config.json: %s is true, which is not supported",
                       c->attention_bias == 1 ? "attention_bias" : "mlp_bias");
    if (c->intermediate_size < 1 || c->intermediate_size > MODEL_FF_MAX)
        return err_set(err, TERN_BAD_FORMAT, "config.json: intermediate_size is missing or not 1 to %d", MODEL_FF_MAX);
    p->hyper.n_ff = (int)c->intermediate_size;
    p->ff_key = "intermediate_size";
    if (c->n_layer_types >= 0 && c->n_layer_types != p->hyper.n_layers)
        return err_set(err, TERN_BAD_FORMAT, "config.json: layer_types has %d items for %d layers", c->n_layer_types,
                       p->hyper.n_layers);
    for (int i = 0; i < p->hyper.n_layers; i++) {
        enum hf_layer_type type = c->n_layer_types >= 0 ? c->layer_types[i] : HF_LAYER_FULL;
        if (type != HF_LAYER_FULL && !(type == HF_LAYER_SLIDING && sliding))
            return err_set(err, TERN_UNSUPPORTED, "config.json: layer %d is no full_attention, as it is supported", i);
        p->kinds[i] = LAYER_ATTENTION;
        p->n_head_kv[i] = p->hyper.n_head_kv;
    }
    return TERN_OK;
}

static bool is_set(double v) { return v == v; }

static enum tern_status theta_read(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                   double theta_default, struct tern_err *err) {
    const double places[] = {c->rope_theta, c->theta, c->rope_parameters.theta, c->rope_scaling.theta,
                             c->rope_full.theta};
    double theta = NAN;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (!is_set(places[i])) continue;
        if (is_set(theta) && theta != places[i])
            return err_set(err, TERN_BAD_FORMAT, "config.json: the RoPE base is %g in one place and %g in another",
                           theta, places[i]);
        theta = places[i];
    }
    if (!is_set(theta)) {
        source_warn(s, "config.json has no rope_theta; using %g", theta_default);
        theta = theta_default;
    }
    if (!(theta >= 1 && theta <= 1e30))
        return err_set(err, TERN_BAD_FORMAT, "config.json: rope_theta is %g, must be at least 1", theta);
    p->hyper.rope_base = (float)theta;
    return TERN_OK;
}

static enum tern_status yarn_read(struct model_params *p, struct model_source *s, const struct hf_rope *r,
                                  struct tern_err *err) {
    if (is_set(r->mscale) || is_set(r->mscale_all_dim))
        return err_set(err, TERN_UNSUPPORTED, "config.json: YaRN scaling with mscale is not supported");
    struct rope_yarn y = {.factor = r->factor,
                          .ctx_original = is_set(r->original_ctx) ? r->original_ctx : p->hyper.n_ctx,
                          .beta_fast = is_set(r->beta_fast) ? r->beta_fast : ROPE_YARN_FAST,
                          .beta_slow = is_set(r->beta_slow) ? r->beta_slow : ROPE_YARN_SLOW,
                          .attention = is_set(r->attention_factor) ? r->attention_factor : 0,
                          .exact_range = r->truncate == 0};
    return rope_factors_yarn(p, s, &y, err);
}

enum tern_status hf_rope_read(struct model_params *p, struct model_source *s, const struct hf_config *c,
                              double theta_default, struct tern_err *err) {
    TRY(theta_read(p, s, c, theta_default, err));
    const double partial[] = {c->partial_rotary, c->rope_parameters.partial, c->rope_scaling.partial,
                              c->rope_full.partial, c->rope_sliding.partial};
    for (size_t i = 0; i < ARRAY_LEN(partial); i++) {
        if (is_set(partial[i]) && partial[i] != 1)
            return err_set(err, TERN_UNSUPPORTED, "config.json: partial_rotary_factor %g is not supported", partial[i]);
    }
    const struct hf_rope *r = c->rope_full.type.len         ? &c->rope_full
                              : c->rope_parameters.type.len ? &c->rope_parameters
                                                            : &c->rope_scaling;
    if (r->type.len == 0 && !is_set(r->factor)) return TERN_OK;
    if (str_eqz(r->type, "default") || (str_eqz(r->type, "linear") && r->factor == 1)) return TERN_OK;
    if (str_eqz(r->type, "linear")) return rope_factors_linear(p, s, r->factor, err);
    if (str_eqz(r->type, "yarn")) return yarn_read(p, s, r, err);
    if (!str_eqz(r->type, "llama3"))
        return err_set(err, TERN_UNSUPPORTED,
                       "config.json: RoPE scaling '%.*s' is not supported (default, linear, llama3, yarn)",
                       SHOW(r->type));
    struct rope_llama3 l = {r->factor, r->low_freq_factor, r->high_freq_factor, r->original_ctx};
    return rope_factors_llama3(p, s, &l, err);
}
