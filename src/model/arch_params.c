// What all architectures share before the tensors are bound: the list of them, the range checks, RoPE divisors.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

const struct model_arch_kind *const arch_list[] = {&arch_lfm2, &arch_llama, NULL};

static enum tern_status arch_refuse(struct str name, struct tern_err *err) {
    if (drafter_arch_is(name) || drafter_class_is(name))
        return err_set(
            err, TERN_UNSUPPORTED,
            "architecture %.*s: this is a DSpark drafter, not a model that can run alone; open the model it was "
            "made for",
            SHOW(name));
    if (str_eqz(name, "lfm2moe") || str_eqz(name, "lfm2_moe"))
        return err_set(err, TERN_UNSUPPORTED, "architecture %.*s (mixture of experts) is not supported", SHOW(name));
    struct buf known;
    buf_init(&known, 1024);
    for (int i = 0; arch_list[i]; i++) buf_putf(&known, "%s%s", i ? ", " : "", arch_list[i]->name);
    enum tern_status status = err_set(err, TERN_UNSUPPORTED, "architecture '%.*s' is not supported (supported: %s)",
                                      SHOW(name), known.data ? known.data : "");
    buf_release(&known);
    return status;
}

enum tern_status arch_get_gguf(const struct model_arch_kind **out, struct str name, struct tern_err *err) {
    for (int i = 0; arch_list[i]; i++) {
        if (str_eqz(name, arch_list[i]->name)) {
            *out = arch_list[i];
            return TERN_OK;
        }
    }
    return arch_refuse(name, err);
}

enum tern_status arch_get_hf(const struct model_arch_kind **out, struct str type, struct str class_name,
                             struct tern_err *err) {
    if (drafter_class_is(class_name)) return arch_refuse(class_name, err);
    for (int i = 0; arch_list[i]; i++) {
        if (str_eqz(type, arch_list[i]->hf_type)) {
            *out = arch_list[i];
            return TERN_OK;
        }
    }
    return arch_refuse(type, err);
}

enum tern_status params_layers(struct model_params *p, struct model_source *s, int64_t n_layers, struct tern_err *err) {
    p->hyper.n_layers = (int)n_layers;
    TRY(source_alloc(s, &p->kinds, (size_t)n_layers, sizeof(*p->kinds), err));
    return source_alloc(s, &p->n_head_kv, (size_t)n_layers, sizeof(*p->n_head_kv), err);
}

enum tern_status params_check(struct model_params *p, struct tern_err *err) {
    struct model_hyper *h = &p->hyper;
    if (h->head_dim == 0) {
        if (h->n_embd % h->n_head != 0)
            return err_set(err, TERN_BAD_FORMAT, "width %d is no multiple of the %d attention heads", h->n_embd,
                           h->n_head);
        h->head_dim = h->n_embd / h->n_head;
    }
    if (h->head_dim % 2 != 0 || h->head_dim > MODEL_HEAD_DIM_MAX)
        return err_set(err, TERN_UNSUPPORTED, "head dimension %d is not supported (even, at most %d)", h->head_dim,
                       MODEL_HEAD_DIM_MAX);
    h->n_head_kv = 0;
    for (int i = 0; i < h->n_layers; i++) {
        int n_kv = p->n_head_kv[i];
        if (p->kinds[i] == LAYER_CONV) continue;
        if (n_kv < 1 || h->n_head % n_kv != 0)
            return err_set(err, TERN_BAD_FORMAT, "layer %d: %d query heads are no multiple of %d key heads", i,
                           h->n_head, n_kv);
        h->n_head_kv = MAX(h->n_head_kv, n_kv);
    }
    if (!(h->norm_eps > 0 && h->norm_eps < 1))
        return err_set(err, TERN_BAD_FORMAT, "the norm's epsilon is %g, must be above 0 and below 1",
                       (double)h->norm_eps);
    if (h->rope_base != 0 && !(h->rope_base >= 1 && h->rope_base <= 1e30f))
        return err_set(err, TERN_BAD_FORMAT, "the RoPE base is %g, must be at least 1", (double)h->rope_base);
    if (h->attn_scale == 0) h->attn_scale = (float)(1.0 / sqrt((double)h->head_dim));
    if (!(h->attn_scale > 0 && h->attn_scale < 1e6f))
        return err_set(err, TERN_BAD_FORMAT, "the attention scale is %g, must be above 0", (double)h->attn_scale);
    return TERN_OK;
}

enum tern_status rope_factors_llama3(struct model_params *p, struct model_source *s, const struct rope_llama3 *r,
                                     struct tern_err *err) {
    if (!(r->factor >= 1 && r->low_freq > 0 && r->high_freq > r->low_freq && r->ctx_original >= 1 && r->factor < 1e6 &&
          r->high_freq < 1e6 && r->ctx_original < 1e9))
        return err_set(err, TERN_BAD_FORMAT,
                       "llama3 RoPE scaling needs factor >= 1, 0 < low_freq_factor < high_freq_factor and "
                       "original_max_position_embeddings (found %g, %g, %g, %g)",
                       r->factor, r->low_freq, r->high_freq, r->ctx_original);
    int half = p->hyper.head_dim / 2;
    float *factors;
    TRY(source_alloc(s, &factors, (size_t)half, sizeof(*factors), err));
    const double two_pi = 6.283185307179586;
    for (int i = 0; i < half; i++) {
        double wave = two_pi * pow((double)p->hyper.rope_base, (double)i / half);
        double smooth = (r->ctx_original / wave - r->low_freq) / (r->high_freq - r->low_freq);
        smooth = MIN(MAX(smooth, 0.0), 1.0); // short waves keep their frequency, long ones are divided by factor
        factors[i] = (float)(1.0 / ((1.0 - smooth) / r->factor + smooth));
    }
    p->hyper.rope_factors = factors;
    return TERN_OK;
}

enum tern_status rope_factors_linear(struct model_params *p, struct model_source *s, double factor,
                                     struct tern_err *err) {
    if (!(factor > 0 && factor < 1e6))
        return err_set(err, TERN_BAD_FORMAT, "the RoPE scaling factor is %g, must be above 0", factor);
    int half = p->hyper.head_dim / 2;
    float *factors;
    TRY(source_alloc(s, &factors, (size_t)half, sizeof(*factors), err));
    for (int i = 0; i < half; i++) factors[i] = (float)factor;
    p->hyper.rope_factors = factors;
    return TERN_OK;
}

enum tern_status rope_factors_tensor(struct model_params *p, struct model_source *s, const char *name,
                                     struct tern_err *err) {
    const struct tensor *t = table_find(s, str_from(name));
    int half = p->hyper.head_dim / 2;
    if (!t) return TERN_OK;
    if (p->hyper.rope_factors)
        return err_set(err, TERN_UNSUPPORTED, "tensor %s beside rope.scaling keys is not supported", name);
    if (t->format != FORMAT_F32 || t->n_dims != 1 || t->ne[0] != half)
        return err_set(err, TERN_BAD_FORMAT, "tensor %s is %s of %lld values, expected F32 of %d (half a head)", name,
                       format_table[t->format].name, (long long)t->ne[0], half);
    float *factors;
    TRY(source_alloc(s, &factors, (size_t)half, sizeof(*factors), err));
    memcpy(factors, t->data, (size_t)half * sizeof(*factors));
    for (int i = 0; i < half; i++) {
        if (!(factors[i] > 0 && factors[i] < 1e6f))
            return err_set(err, TERN_BAD_FORMAT, "tensor %s: value %d is %g, must be above 0", name, i,
                           (double)factors[i]);
    }
    p->hyper.rope_factors = factors;
    return TERN_OK;
}
