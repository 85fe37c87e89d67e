// RoPE divisors: what stretches the rotation of a model to contexts longer than it was first trained for. Every way of
// writing it (llama3 and YaRN numbers, one linear factor, a tensor) becomes one divisor per pair of dimensions.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

#define TWO_PI 6.283185307179586

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
    for (int i = 0; i < half; i++) {
        double wave = TWO_PI * pow((double)p->hyper.rope_base, (double)i / half);
        double smooth = (r->ctx_original / wave - r->low_freq) / (r->high_freq - r->low_freq);
        smooth = MIN(MAX(smooth, 0.0), 1.0); // short waves keep their frequency, long ones are divided by factor
        factors[i] = (float)(1.0 / ((1.0 - smooth) / r->factor + smooth));
    }
    p->hyper.rope_factors = factors;
    return TERN_OK;
}

// The pair that turns `turns` times within ctx positions.
static double yarn_pair(const struct model_params *p, double turns, double ctx) {
    return p->hyper.head_dim * log(ctx / (turns * TWO_PI)) / (2 * log((double)p->hyper.rope_base));
}

enum tern_status rope_factors_yarn(struct model_params *p, struct model_source *s, const struct rope_yarn *r,
                                   struct tern_err *err) {
    if (!(r->factor >= 1 && r->factor < 1e6 && r->ctx_original >= 1 && r->ctx_original < 1e9 && r->beta_slow > 0 &&
          r->beta_fast > r->beta_slow && r->beta_fast < 1e6 && r->attention >= 0 && r->attention < 1e3))
        return err_set(err, TERN_BAD_FORMAT,
                       "YaRN RoPE scaling needs factor >= 1, 0 < beta_slow < beta_fast, an original context and an "
                       "attention factor above 0 (found %g, %g, %g, %g, %g)",
                       r->factor, r->beta_slow, r->beta_fast, r->ctx_original, r->attention);
    int half = p->hyper.head_dim / 2;
    float *factors;
    TRY(source_alloc(s, &factors, (size_t)half, sizeof(*factors), err));
    double low = yarn_pair(p, r->beta_fast, r->ctx_original), high = yarn_pair(p, r->beta_slow, r->ctx_original);
    if (!r->exact_range) low = floor(low), high = ceil(high);
    low = MAX(low, 0.0);
    high = MIN(high, p->hyper.head_dim - 1.0);
    if (low == high) high += 0.001; // as the reference does where the ramp has no width
    for (int i = 0; i < half; i++) {
        double ramp = MIN(MAX((i - low) / (high - low), 0.0), 1.0); // fast pairs keep their frequency
        factors[i] = (float)(1.0 / (ramp / r->factor + (1.0 - ramp)));
    }
    double attention = r->attention > 0 ? r->attention : 1 + 0.1 * log(r->factor);
    p->hyper.attn_scale = (float)((double)p->hyper.attn_scale * attention * attention);
    p->hyper.rope_factors = factors;
    s->yarn = *r;
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
