// Opening a drafter against its target: which form the file has, its parameters, its tensors, and a comparison of the
// vocabularies where both files list theirs. How a drafter goes wrong otherwise is silence: any weights of fitting
// shapes run, and nothing but the acceptance tells.
#include "base/base.h"
#include "model/model_int.h"

static enum tern_status not_a_drafter(struct str what, struct tern_err *err) {
    return err_set(err, TERN_UNSUPPORTED,
                   "%.*s is no drafter (GGUF of architecture dflash or dflash-draft, or a folder of class "
                   "Lfm2DSparkDraftModel, DSparkDraftModel, Qwen3DSparkModel or DFlashDraftModel)",
                   SHOW(what));
}

// Ids of both models must mean the same text.
static enum tern_status tokens_compare(const struct model *m, const struct model *target, struct tern_err *err) {
    const struct model_vocab *a = &m->vocab, *b = &target->vocab;
    if (a->n_tokens == 0 || b->n_tokens == 0) return TERN_OK;
    if (a->n_tokens != b->n_tokens)
        return err_set(err, TERN_MISMATCH,
                       "its vocabulary has %d tokens, the target model's (%s) %d: the drafter of "
                       "another model",
                       a->n_tokens, target->name, b->n_tokens);
    for (int i = 0; i < a->n_tokens; i++)
        if (!str_eq(a->tokens[i], b->tokens[i]))
            return err_set(err, TERN_MISMATCH,
                           "token %d is '%.*s', the target model's (%s) is '%.*s': the drafter of another model", i,
                           SHOW(a->tokens[i]), target->name, SHOW(b->tokens[i]));
    return TERN_OK;
}

static enum tern_status bind_gguf(struct model *m, struct model_params *p, struct tern_err *err) {
    struct model_source *s = m->source;
    struct str name = {0};
    TRY(gguf_opt_str(&s->gguf, "general.architecture", &name, err));
    if (!drafter_arch_is(name)) return not_a_drafter(name.len ? name : STR("the file"), err);
    TRY(gguf_general_check(&s->gguf, m, err));
    TRY(drafter_params_gguf(p, s, err));
    TRY(arch_bind(m, &arch_drafter, p, err));
    TRY(gguf_vocab_read(m, err));
    TRY(tokens_compare(m, p->drafter->target, err));
    m->hyper.n_vocab_used = p->drafter->target->hyper.n_vocab_used;
    return TERN_OK;
}

static enum tern_status config_read(struct model_source *s, const char *path, bool is_folder, struct hf_config *out,
                                    struct tern_err *err) {
    if (!s->config) TRY(hf_extra_find(s, path, is_folder, "config.json", &s->config, err));
    if (!s->config)
        return err_set(err, TERN_NOT_FOUND,
                       "no config.json beside it: a safetensors file alone does not say what model it is");
    return hf_config_parse(out, s, (struct str){(const char *)s->config->data, s->config->size}, err);
}

enum tern_status drafter_detect(struct model *m, const char *path, bool is_folder, bool *is_drafter,
                                struct tern_err *err) {
    struct model_source *s = m->source;
    struct str name = {0};
    struct hf_config c;
    if (s->kind == SOURCE_GGUF) {
        TRY(gguf_opt_str(&s->gguf, "general.architecture", &name, err));
        *is_drafter = drafter_arch_is(name);
        return TERN_OK;
    }
    TRY(config_read(s, path, is_folder, &c, err));
    *is_drafter = drafter_class_is(c.class_name);
    return TERN_OK;
}

static enum tern_status bind_folder(struct model *m, struct model_params *p, const char *path, bool is_folder,
                                    struct tern_err *err) {
    struct model_source *s = m->source;
    struct hf_config c;
    if (s->n_joined > 0)
        return err_set(err, TERN_UNSUPPORTED, "quantised safetensors are not supported for drafters: use one in float");
    TRY(config_read(s, path, is_folder, &c, err));
    if (!drafter_class_is(c.class_name))
        return not_a_drafter(c.class_name.len ? c.class_name : STR("config.json"), err);
    if (!str_eqz(c.model_type, "qwen3"))
        return err_set(err, TERN_UNSUPPORTED, "config.json: a drafter of model_type '%.*s' is not supported (qwen3 is)",
                       SHOW(c.model_type));
    TRY(drafter_params_hf(p, s, &c, err));
    TRY(arch_bind(m, &arch_drafter, p, err));
    if (c.rope_is_neox_style == 0) m->hyper.rope = ROPE_INTERLEAVED;
    return TERN_OK;
}

enum tern_status drafter_bind(struct model *m, const struct model *target, const char *path, bool is_folder,
                              struct tern_err *err) {
    struct model_params p = {.tied = -1};
    if (target->drafter || !target->embedding || !target->output)
        return err_set(err, TERN_INVALID_ARGUMENT, "the target (%s) is no model that can run", target->name);
    TRY(source_alloc(m->source, &p.drafter, 1, sizeof(*p.drafter), err));
    p.drafter->target = target;
    m->drafter = p.drafter;
    if (m->source->kind == SOURCE_GGUF) return bind_gguf(m, &p, err);
    return bind_folder(m, &p, path, is_folder, err);
}
