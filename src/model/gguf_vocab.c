// The tokenizer's keys of a GGUF file: types, counts and special ids are checked here; what merges mean, by the
// tokenizer.
//
// There may be fewer tokens than rows of the embedding (the rest is padding that is never sampled); more, or a special
// id past the tokens, would make ids that no row or no text belongs to: refused.
#include "base/base.h"
#include "model/model_int.h"

static enum tern_status strings_read(struct model_source *s, const struct gguf_kv *kv, const struct str **out,
                                     struct tern_err *err) {
    struct str *list;
    TRY(source_alloc(s, &list, (size_t)kv->n, sizeof(*list), err));
    const uint8_t *p = kv->data; // lengths were checked when the header was parsed
    for (uint64_t i = 0; i < kv->n; i++) {
        list[i] = (struct str){(const char *)p + 8, (size_t)load_u64(p)};
        p += 8 + list[i].len;
    }
    *out = list;
    return TERN_OK;
}

static enum tern_status tokens_read(struct model *m, struct tern_err *err) {
    const struct gguf_kv *kv;
    struct model_vocab *v = &m->vocab;
    TRY(gguf_opt_array(&m->source->gguf, "tokenizer.ggml.tokens", GGUF_STRING, &kv, err));
    if (!kv) {
        if (v->kind.len == 0) return TERN_OK;
        return err_set(err, TERN_BAD_FORMAT, "key tokenizer.ggml.tokens is missing beside tokenizer.ggml.model");
    }
    if (kv->n == 0) return err_set(err, TERN_BAD_FORMAT, "key tokenizer.ggml.tokens is empty");
    if (kv->n > (uint64_t)m->hyper.n_vocab)
        return err_set(err, TERN_BAD_FORMAT, "tokenizer.ggml.tokens has %llu tokens, more than the %d rows of %.*s",
                       (unsigned long long)kv->n, m->hyper.n_vocab, SHOW(m->embedding->name));
    TRY(strings_read(m->source, kv, &v->tokens, err));
    v->n_tokens = (int)kv->n;
    m->hyper.n_vocab_used = v->n_tokens;
    if (!str_eqz(v->kind, "gpt2")) return TERN_OK;
    for (int i = 0; i < v->n_tokens; i++) {
        if (!utf8_valid(v->tokens[i], NULL))
            return err_set(err, TERN_BAD_FORMAT, "tokenizer.ggml.tokens: token %d is not valid UTF-8", i);
    }
    return TERN_OK;
}

static enum tern_status types_read(struct model *m, struct tern_err *err) {
    const struct gguf_kv *kv;
    struct model_vocab *v = &m->vocab;
    TRY(gguf_opt_array(&m->source->gguf, "tokenizer.ggml.token_type", GGUF_I32, &kv, err));
    if (!kv) return TERN_OK;
    // Padding rows may have types too.
    if (kv->n != (uint64_t)v->n_tokens && kv->n != (uint64_t)m->hyper.n_vocab)
        return err_set(err, TERN_BAD_FORMAT, "tokenizer.ggml.token_type has %llu items for %d tokens",
                       (unsigned long long)kv->n, v->n_tokens);
    int32_t *types;
    TRY(source_alloc(m->source, &types, (size_t)kv->n, sizeof(*types), err));
    memcpy(types, kv->data, (size_t)kv->n * sizeof(*types));
    v->types = types;
    return TERN_OK;
}

static enum tern_status scores_read(struct model *m, struct tern_err *err) {
    const struct gguf_kv *kv;
    struct model_vocab *v = &m->vocab;
    TRY(gguf_opt_array(&m->source->gguf, "tokenizer.ggml.scores", GGUF_F32, &kv, err));
    if (!kv || !str_eqz(v->kind, "llama")) return TERN_OK;
    if (kv->n != (uint64_t)v->n_tokens)
        return err_set(err, TERN_BAD_FORMAT, "tokenizer.ggml.scores has %llu items for %d tokens",
                       (unsigned long long)kv->n, v->n_tokens);
    float *scores;
    TRY(source_alloc(m->source, &scores, (size_t)kv->n, sizeof(*scores), err));
    memcpy(scores, kv->data, (size_t)kv->n * sizeof(*scores));
    v->scores = scores;
    return TERN_OK;
}

static enum tern_status special_read(struct model *m, const char *name, int32_t *out, struct tern_err *err) {
    char key[96];
    int64_t id = -1;
    snprintf(key, sizeof(key), "tokenizer.ggml.%s_token_id", name);
    TRY(gguf_opt_int(&m->source->gguf, key, -1, UINT32_MAX, &id, err));
    if (id == UINT32_MAX) id = -1; // how converters write "none" in a uint32
    if (id >= m->hyper.n_vocab_used)
        return err_set(err, TERN_BAD_FORMAT, "key %s is %lld, past the last of %d tokens", key, (long long)id,
                       m->hyper.n_vocab_used);
    *out = (int32_t)id;
    return TERN_OK;
}

static enum tern_status specials_read(struct model *m, struct tern_err *err) {
    struct model_vocab *v = &m->vocab;
    int32_t eom = -1, *more;
    TRY(special_read(m, "bos", &v->bos, err));
    TRY(special_read(m, "eos", &v->eos, err));
    TRY(special_read(m, "eot", &v->eot, err));
    TRY(special_read(m, "eom", &eom, err));
    TRY(special_read(m, "padding", &v->pad, err));
    TRY(special_read(m, "unknown", &v->unk, err));
    TRY(source_alloc(m->source, &more, 2, sizeof(*more), err));
    v->eos_more = more;
    if (v->eot >= 0 && v->eot != v->eos) more[v->n_eos_more++] = v->eot;
    if (eom >= 0 && eom != v->eos && eom != v->eot) more[v->n_eos_more++] = eom;
    return TERN_OK;
}

enum tern_status gguf_vocab_read(struct model *m, struct tern_err *err) {
    const struct gguf *g = &m->source->gguf;
    struct model_vocab *v = &m->vocab;
    const struct gguf_kv *merges;
    TRY(gguf_opt_str(g, "tokenizer.ggml.model", &v->kind, err));
    TRY(gguf_opt_str(g, "tokenizer.ggml.pre", &v->pre, err));
    TRY(gguf_opt_str(g, "tokenizer.chat_template", &v->chat_template, err));
    TRY(gguf_opt_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, err));
    TRY(gguf_opt_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, err));
    TRY(gguf_opt_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_blank, err));
    TRY(tokens_read(m, err));
    TRY(types_read(m, err));
    TRY(scores_read(m, err));
    TRY(gguf_opt_array(g, "tokenizer.ggml.merges", GGUF_STRING, &merges, err));
    if (merges) {
        TRY(strings_read(m->source, merges, &v->merges, err));
        v->n_merges = (int)merges->n;
    }
    return specials_read(m, err);
}
