// What all architectures share before the tensors are bound: the list of them and the range checks.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

const struct model_arch_kind *const arch_list[] = {&arch_gemma3, &arch_lfm2,     &arch_lfm2moe, &arch_llama,
                                                   &arch_qwen3,  &arch_qwen3moe, NULL};

static enum tern_status arch_refuse(struct str name, struct tern_err *err) {
    if (drafter_arch_is(name) || drafter_class_is(name))
        return err_set(
            err, TERN_UNSUPPORTED,
            "architecture %.*s: this is a DSpark drafter, not a model that can run alone; open the model it was "
            "made for",
            SHOW(name));
    if (str_eqz(name, "gemma3"))
        return err_set(
            err, TERN_UNSUPPORTED,
            "architecture gemma3 of a folder is the one with images; its text model alone (gemma3_text, or a "
            "GGUF file) is supported");
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
    TRY(source_alloc(s, &p->windows, (size_t)n_layers, sizeof(*p->windows), err));
    TRY(source_alloc(s, &p->routed, (size_t)n_layers, sizeof(*p->routed), err));
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
