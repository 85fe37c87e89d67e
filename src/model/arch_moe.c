// Layers with experts: the numbers of the router, from both kinds of file, in one place with their checks.
//
// What differs between families is a default here or there: LFM2 scores by sigmoid, adds a bias for the choice and
// divides by the sum plus 1e-6; Qwen3 takes the softmax over all experts and divides by the sum.
#include "base/base.h"
#include "model/model_int.h"

#define GATING_SOFTMAX 1 // GGUF's expert_gating_func
#define GATING_SIGMOID 2
#define LFM2_ROUTER_EPS 1e-6f

static enum tern_status moe_check(const struct model_params *p, struct tern_err *err) {
    const struct model_hyper *h = &p->hyper;
    if (h->n_expert < 1 || h->n_expert > MODEL_EXPERTS_MAX)
        return err_set(err, TERN_BAD_FORMAT, "the number of experts is %d, must be 1 to %d", h->n_expert,
                       MODEL_EXPERTS_MAX);
    if (h->n_expert_used < 1 || h->n_expert_used > h->n_expert)
        return err_set(err, TERN_BAD_FORMAT, "each row uses %d experts of %d: must be 1 to %d", h->n_expert_used,
                       h->n_expert, h->n_expert);
    if (h->n_ff_expert < 1 || h->n_ff_expert > MODEL_FF_MAX)
        return err_set(err, TERN_BAD_FORMAT, "the width of an expert is %d, must be 1 to %d", h->n_ff_expert,
                       MODEL_FF_MAX);
    if (!(h->router_scale > 0 && h->router_scale < 1e6f))
        return err_set(err, TERN_BAD_FORMAT, "the scale of the experts' weights is %g, must be above 0",
                       (double)h->router_scale);
    return TERN_OK;
}

void moe_layers_set(struct model_params *p, int n_dense) {
    for (int i = 0; i < p->hyper.n_layers; i++) p->routed[i] = i >= n_dense;
}

enum tern_status moe_params_gguf(struct model_params *p, const struct gguf *g, struct tern_err *err) {
    struct model_hyper *h = &p->hyper;
    int64_t n, used, ff, n_dense = 0, n_shared = 0, gating = h->router_sigmoid ? GATING_SIGMOID : GATING_SOFTMAX;
    int norm = 1;
    double scale = 1;
    TRY(gguf_need_int(g, "@expert_count", 1, MODEL_EXPERTS_MAX, &n, err));
    TRY(gguf_need_int(g, "@expert_used_count", 1, n, &used, err));
    TRY(gguf_need_int(g, "@expert_feed_forward_length", 1, MODEL_FF_MAX, &ff, err));
    TRY(gguf_opt_int(g, "@leading_dense_block_count", 0, h->n_layers, &n_dense, err));
    TRY(gguf_opt_int(g, "@expert_shared_count", 0, UINT32_MAX, &n_shared, err));
    TRY(gguf_opt_int(g, "@expert_gating_func", 0, UINT32_MAX, &gating, err));
    TRY(gguf_opt_bool(g, "@expert_weights_norm", &norm, err));
    TRY(gguf_opt_f64(g, "@expert_weights_scale", &scale, err));
    if (n_shared > 0)
        return err_set(err, TERN_UNSUPPORTED, "%lld shared experts are not supported", (long long)n_shared);
    if (gating != GATING_SOFTMAX && gating != GATING_SIGMOID)
        return err_set(err, TERN_UNSUPPORTED, "expert_gating_func %lld is not supported (1 softmax, 2 sigmoid)",
                       (long long)gating);
    h->n_expert = (int)n;
    h->n_expert_used = (int)used;
    h->n_ff_expert = (int)ff;
    h->router_sigmoid = gating == GATING_SIGMOID;
    h->router_norm = norm == 1;
    h->router_eps = h->router_sigmoid ? LFM2_ROUTER_EPS : 0;
    h->router_scale = scale == 0 ? 1 : (float)scale; // how some converters say "none"
    moe_layers_set(p, (int)n_dense);
    return moe_check(p, err);
}

static enum tern_status need(int64_t v, const char *name, int64_t max, int *out, struct tern_err *err) {
    if (v == HF_ABSENT) return err_set(err, TERN_BAD_FORMAT, "config.json: %s is missing", name);
    if (v < 1 || v > max)
        return err_set(err, TERN_BAD_FORMAT, "config.json: %s is %lld, must be 1 to %lld", name, (long long)v,
                       (long long)max);
    *out = (int)v;
    return TERN_OK;
}

enum tern_status moe_params_hf(struct model_params *p, const struct hf_config *c, struct tern_err *err) {
    struct model_hyper *h = &p->hyper;
    if (c->n_expert != HF_ABSENT && c->n_expert_local != HF_ABSENT && c->n_expert != c->n_expert_local)
        return err_set(err, TERN_BAD_FORMAT, "config.json: num_experts and num_local_experts disagree");
    int64_t n_expert = c->n_expert != HF_ABSENT ? c->n_expert : c->n_expert_local;
    TRY(need(n_expert, "num_experts", MODEL_EXPERTS_MAX, &h->n_expert, err));
    TRY(need(c->n_expert_used, "num_experts_per_tok", h->n_expert, &h->n_expert_used, err));
    TRY(need(c->ff_expert, "moe_intermediate_size", MODEL_FF_MAX, &h->n_ff_expert, err));
    h->router_norm = c->router_norm >= 0 ? c->router_norm == 1 : h->router_sigmoid; // the classes' defaults
    h->router_eps = h->router_sigmoid ? LFM2_ROUTER_EPS : 0;
    h->router_scale = c->router_scale == c->router_scale ? (float)c->router_scale : 1;
    return moe_check(p, err);
}
