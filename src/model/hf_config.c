// config.json, generation_config.json and tokenizer_config.json, read into plain structs.
//
// One table of fields per object; a field of the wrong type is an error that names it, null and unknown fields are as
// absent. The same thing may be spelled in several places (rope_theta, theta, rope_parameters.rope_theta): every place
// is read here, what counts is decided by the architecture, and no default is taken without a word.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

enum field_type { FIELD_INT, FIELD_REAL, FIELD_FLAG, FIELD_STR, FIELD_IDS, FIELD_OTHER };
struct reading {
    struct json *j;
    struct model_source *s;
    const char *where; // file name
    struct tern_err *err;
};
struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    enum tern_status (*read)(const struct reading *r, void *base, const struct json_item *first); // FIELD_OTHER
};

static enum tern_status wrong_type(const struct reading *r, const char *name, const char *want, size_t pos) {
    return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)pos, "%s: %s must be %s", r->where, name, want);
}

static enum tern_status ids_add(const struct reading *r, const char *name, struct hf_ids *out,
                                const struct json_item *it) {
    if (it->event != JSON_NUMBER || !it->is_int) return wrong_type(r, name, "a token id or a list of them", it->pos);
    if (it->integer == -1) return TERN_OK; // how some files say "none"
    if (it->integer < 0 || it->integer >= MODEL_VOCAB_MAX)
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)it->pos, "%s: %s holds %lld, no token id", r->where, name,
                          (long long)it->integer);
    if (out->n == HF_EOS_MAX)
        return err_set_at(r->err, TERN_LIMIT, (int64_t)it->pos, "%s: %s has more than %d ids", r->where, name,
                          HF_EOS_MAX);
    out->ids[out->n++] = (int32_t)it->integer;
    return TERN_OK;
}

static enum tern_status ids_read(const struct reading *r, const char *name, struct hf_ids *out,
                                 const struct json_item *first) {
    struct json_item it;
    out->n = 0;
    if (first->event != JSON_ARRAY) return ids_add(r, name, out, first);
    for (;;) {
        TRY(json_step(r->j, &it, r->err));
        if (it.event == JSON_ARRAY_END) return TERN_OK;
        TRY(ids_add(r, name, out, &it));
    }
}

static enum tern_status field_read(const struct reading *r, const struct field *f, void *base) {
    struct json_item it;
    char *at = (char *)base + f->offset;
    TRY(json_step(r->j, &it, r->err));
    if (it.event == JSON_NULL) return TERN_OK;
    switch (f->type) {
    case FIELD_INT:
        if (it.event != JSON_NUMBER || !it.is_int) return wrong_type(r, f->name, "an integer", it.pos);
        memcpy(at, &it.integer, sizeof(it.integer));
        return TERN_OK;
    case FIELD_REAL:
        if (it.event != JSON_NUMBER || !isfinite(it.number)) return wrong_type(r, f->name, "a number", it.pos);
        memcpy(at, &it.number, sizeof(it.number));
        return TERN_OK;
    case FIELD_FLAG: {
        if (it.event != JSON_BOOL) return wrong_type(r, f->name, "true or false", it.pos);
        int v = it.boolean;
        memcpy(at, &v, sizeof(v));
        return TERN_OK;
    }
    case FIELD_STR: {
        if (it.event != JSON_STRING) return wrong_type(r, f->name, "a string", it.pos);
        struct str v;
        TRY(source_strdup(r->s, &v, it.text, r->err));
        memcpy(at, &v, sizeof(v));
        return TERN_OK;
    }
    case FIELD_IDS: return ids_read(r, f->name, (struct hf_ids *)(void *)at, &it);
    case FIELD_OTHER: return f->read(r, at, &it);
    }
    TERN_BUG("field type %d", (int)f->type);
}

// Inside an object whose '{' was read: to its '}'.
static enum tern_status object_read(const struct reading *r, const struct field *fields, size_t n, void *base) {
    struct json_item it;
    for (;;) {
        TRY(json_step(r->j, &it, r->err));
        if (it.event == JSON_OBJECT_END) return TERN_OK;
        size_t k = 0;
        while (k < n && !str_eqz(it.text, fields[k].name)) k++;
        if (k < n) {
            TRY(field_read(r, &fields[k], base));
        } else {
            TRY(json_skip(r->j, r->err));
        }
    }
}

// Skips what is left of a value whose first event was read.
static enum tern_status rest_skip(const struct reading *r, const struct json_item *first) {
    if (first->event == JSON_OBJECT || first->event == JSON_ARRAY) return json_skip(r->j, r->err);
    return TERN_OK;
}

// Fields of a rotation at `at`, the offset of its struct hf_rope.
#define ROPE(at, field) ((at) + offsetof(struct hf_rope, field))
#define ROPE_FIELDS(at)                                                                                             \
    {"rope_theta", FIELD_REAL, ROPE(at, theta), NULL}, {"factor", FIELD_REAL, ROPE(at, factor), NULL},              \
        {"low_freq_factor", FIELD_REAL, ROPE(at, low_freq_factor), NULL},                                           \
        {"high_freq_factor", FIELD_REAL, ROPE(at, high_freq_factor), NULL},                                         \
        {"original_max_position_embeddings", FIELD_REAL, ROPE(at, original_ctx), NULL},                             \
        {"partial_rotary_factor", FIELD_REAL, ROPE(at, partial), NULL},                                             \
        {"beta_fast", FIELD_REAL, ROPE(at, beta_fast), NULL}, {"beta_slow", FIELD_REAL, ROPE(at, beta_slow), NULL}, \
        {"attention_factor", FIELD_REAL, ROPE(at, attention_factor), NULL},                                         \
        {"mscale", FIELD_REAL, ROPE(at, mscale), NULL},                                                             \
        {"mscale_all_dim", FIELD_REAL, ROPE(at, mscale_all_dim), NULL},                                             \
        {"truncate", FIELD_FLAG, ROPE(at, truncate), NULL}, {"type", FIELD_STR, ROPE(at, type), NULL}, {            \
        "rope_type", FIELD_STR, ROPE(at, type), NULL                                                                \
    }
static const struct field rope_fields[] = {ROPE_FIELDS(0)};

static enum tern_status rope_kind_object(const struct reading *r, void *base, const struct json_item *first) {
    if (first->event != JSON_OBJECT) return wrong_type(r, "a kind of rope_parameters", "an object", first->pos);
    return object_read(r, rope_fields, ARRAY_LEN(rope_fields), base);
}

// rope_parameters: of all layers, or one object per kind of layer.
static enum tern_status rope_parameters(const struct reading *r, void *base, const struct json_item *first) {
    static const struct field fields[] = {
        ROPE_FIELDS(offsetof(struct hf_config, rope_parameters)),
        {"full_attention", FIELD_OTHER, offsetof(struct hf_config, rope_full), rope_kind_object},
        {"sliding_attention", FIELD_OTHER, offsetof(struct hf_config, rope_sliding), rope_kind_object},
    };
    if (first->event != JSON_OBJECT) return wrong_type(r, "rope_parameters", "an object", first->pos);
    return object_read(r, fields, ARRAY_LEN(fields), base);
}

static enum tern_status rope_object(const struct reading *r, void *base, const struct json_item *first) {
    if (first->event != JSON_OBJECT) return wrong_type(r, "rope_scaling", "an object", first->pos);
    return object_read(r, rope_fields, ARRAY_LEN(rope_fields), base);
}

static enum tern_status class_names(const struct reading *r, void *base, const struct json_item *first) {
    struct json_item it;
    struct str name = {0};
    if (first->event != JSON_ARRAY) return wrong_type(r, "architectures", "a list of strings", first->pos);
    for (;;) {
        TRY(json_step(r->j, &it, r->err));
        if (it.event == JSON_ARRAY_END) break;
        if (it.event != JSON_STRING) return wrong_type(r, "architectures", "a list of strings", it.pos);
        if (!name.len) TRY(source_strdup(r->s, &name, it.text, r->err));
    }
    memcpy(base, &name, sizeof(name));
    return TERN_OK;
}

// Both lists hold one item per layer at most, so the limit on layers bounds them.
static enum tern_status layer_types(const struct reading *r, void *base, const struct json_item *first) {
    struct hf_config *c = base;
    struct json_item it;
    if (first->event != JSON_ARRAY) return wrong_type(r, "layer_types", "a list of strings", first->pos);
    TRY(source_alloc(r->s, &c->layer_types, MODEL_LAYERS_MAX, sizeof(*c->layer_types), r->err));
    for (c->n_layer_types = 0;; c->n_layer_types++) {
        TRY(json_step(r->j, &it, r->err));
        if (it.event == JSON_ARRAY_END) return TERN_OK;
        if (it.event != JSON_STRING) return wrong_type(r, "layer_types", "a list of strings", it.pos);
        if (c->n_layer_types == MODEL_LAYERS_MAX)
            return err_set(r->err, TERN_LIMIT, "%s: layer_types has more than %d items", r->where, MODEL_LAYERS_MAX);
        static const char *const names[] = {"conv", "full_attention", "sliding_attention"};
        size_t k = 0;
        while (k < ARRAY_LEN(names) && !str_eqz(it.text, names[k])) k++;
        if (k == ARRAY_LEN(names))
            return err_set_at(r->err, TERN_UNSUPPORTED, (int64_t)it.pos,
                              "%s: layer_types holds '%.*s' (conv, full_attention and sliding_attention are known)",
                              r->where, SHOW(it.text));
        c->layer_types[c->n_layer_types] = (enum hf_layer_type)k;
    }
}

// A list of layer numbers, none of them twice.
static enum tern_status layer_list(const struct reading *r, const char *name, int32_t **out, int *n,
                                   const struct json_item *first) {
    struct json_item it;
    if (first->event != JSON_ARRAY) return wrong_type(r, name, "a list of integers", first->pos);
    TRY(source_alloc(r->s, out, MODEL_LAYERS_MAX, sizeof(**out), r->err));
    for (*n = 0;; ++*n) {
        TRY(json_step(r->j, &it, r->err));
        if (it.event == JSON_ARRAY_END) return TERN_OK;
        if (it.event != JSON_NUMBER || !it.is_int || it.integer < 0 || it.integer >= MODEL_LAYERS_MAX)
            return wrong_type(r, name, "a list of layer numbers", it.pos);
        for (int k = 0; k < *n; k++)
            if ((*out)[k] == it.integer)
                return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)it.pos, "%s: %s names layer %lld twice", r->where,
                                  name, (long long)it.integer);
        (*out)[*n] = (int32_t)it.integer;
    }
}

static enum tern_status attn_idxs(const struct reading *r, void *base, const struct json_item *first) {
    struct hf_config *c = base;
    return layer_list(r, "full_attn_idxs", &c->attn_idxs, &c->n_attn_idxs, first);
}

static enum tern_status dense_layers(const struct reading *r, void *base, const struct json_item *first) {
    struct hf_config *c = base;
    return layer_list(r, "mlp_only_layers", &c->dense_layers, &c->n_dense_list, first);
}

static const struct field mlx_layer_fields[] = {
    {"group_size", FIELD_INT, offsetof(struct hf_mlx_layer, group_size), NULL},
    {"bits", FIELD_INT, offsetof(struct hf_mlx_layer, bits), NULL},
};

// An entry of "quantization" with a layer's name: true, false, or an object. *taken: it was one.
static enum tern_status mlx_layer_read(const struct reading *r, struct hf_mlx *x, const struct json_item *key,
                                       const struct json_item *first, bool *taken) {
    *taken = first->event == JSON_OBJECT || first->event == JSON_BOOL;
    if (!*taken) return TERN_OK;
    if (!x->layers) TRY(source_alloc(r->s, &x->layers, HF_MLX_LAYERS_MAX, sizeof(*x->layers), r->err));
    if (x->n_layers == HF_MLX_LAYERS_MAX)
        return err_set_at(r->err, TERN_LIMIT, (int64_t)key->pos, "%s: quantization has more than %d entries", r->where,
                          HF_MLX_LAYERS_MAX);
    struct hf_mlx_layer *l = &x->layers[x->n_layers];
    *l = (struct hf_mlx_layer){.bits = HF_ABSENT, .group_size = HF_ABSENT};
    TRY(source_strdup(r->s, &l->name, key->text, r->err));
    x->n_layers++;
    if (first->event == JSON_BOOL) {
        l->is_float = !first->boolean;
        return TERN_OK;
    }
    return object_read(r, mlx_layer_fields, ARRAY_LEN(mlx_layer_fields), l);
}

// The object of an MLX checkpoint has group_size and bits and no quant_method; it may stand twice, under both names.
static enum tern_status quantization(const struct reading *r, void *base, const struct json_item *first) {
    struct hf_config *c = base;
    struct hf_mlx x = {.bits = HF_ABSENT, .group_size = HF_ABSENT};
    struct json_item key, it;
    if (first->event != JSON_OBJECT) return wrong_type(r, "quantization", "an object", first->pos);
    for (;;) {
        bool taken;
        TRY(json_step(r->j, &key, r->err));
        if (key.event == JSON_OBJECT_END) break;
        struct str name;
        TRY(source_strdup(r->s, &name, key.text, r->err)); // the next step may reuse its bytes
        key.text = name;
        TRY(json_step(r->j, &it, r->err));
        int64_t *number = str_eqz(name, "bits") ? &x.bits : str_eqz(name, "group_size") ? &x.group_size : NULL;
        struct str *text = str_eqz(name, "mode") ? &x.mode : str_eqz(name, "quant_method") ? &x.method : NULL;
        if (number && it.event == JSON_NUMBER && it.is_int) {
            *number = it.integer;
        } else if (text && it.event == JSON_STRING) {
            TRY(source_strdup(r->s, text, it.text, r->err));
        } else {
            TRY(mlx_layer_read(r, &x, &key, &it, &taken));
            if (!taken) TRY(rest_skip(r, &it));
        }
    }
    if (x.method.len || x.bits == HF_ABSENT || x.group_size == HF_ABSENT) {
        c->has_quantization = 1;
        return TERN_OK;
    }
    if (x.n_layers > 0 && !name_index_init(&x.index, &r->s->arena, (size_t)x.n_layers, x.layers, sizeof(*x.layers)))
        return err_set(r->err, TERN_NO_MEMORY, "out of memory for an index of %d names", x.n_layers);
    for (int i = 0; i < x.n_layers; i++) name_index_add(&x.index, (uint32_t)i);
    c->mlx = x;
    return TERN_OK;
}

// Checked for their range by the reader of drafters, who knows the target.
static enum tern_status layer_ids(const struct reading *r, void *base, const struct json_item *first) {
    struct hf_drafter *d = base;
    struct json_item it;
    if (first->event != JSON_ARRAY) return wrong_type(r, "target_layer_ids", "a list of integers", first->pos);
    for (d->n_target_layer_ids = 0;; d->n_target_layer_ids++) {
        TRY(json_step(r->j, &it, r->err));
        if (it.event == JSON_ARRAY_END) return TERN_OK;
        if (it.event != JSON_NUMBER || !it.is_int)
            return wrong_type(r, "target_layer_ids", "a list of integers", it.pos);
        if (d->n_target_layer_ids == MODEL_FEATURES_MAX)
            return err_set_at(r->err, TERN_LIMIT, (int64_t)it.pos, "%s: target_layer_ids has more than %d items",
                              r->where, MODEL_FEATURES_MAX);
        d->target_layer_ids[d->n_target_layer_ids] = it.integer;
    }
}

// Fields of a drafter at `at`, the offset of its struct hf_drafter.
#define DRAFTER(at, field) ((at) + offsetof(struct hf_drafter, field))
#define DRAFTER_FIELDS(at)                                                                      \
    {"block_size", FIELD_INT, DRAFTER(at, block_size), NULL},                                   \
        {"markov_rank", FIELD_INT, DRAFTER(at, markov_rank), NULL},                             \
        {"mask_token_id", FIELD_INT, DRAFTER(at, mask_token_id), NULL},                         \
        {"num_target_layers", FIELD_INT, DRAFTER(at, num_target_layers), NULL},                 \
        {"target_hidden_size", FIELD_INT, DRAFTER(at, target_hidden_size), NULL},               \
        {"enable_confidence_head", FIELD_FLAG, DRAFTER(at, enable_confidence_head), NULL},      \
        {"confidence_head_with_markov", FIELD_FLAG, DRAFTER(at, confidence_with_markov), NULL}, \
        {"sample_from_anchor", FIELD_FLAG, DRAFTER(at, sample_from_anchor), NULL},              \
        {"markov_head_type", FIELD_STR, DRAFTER(at, markov_head_type), NULL}, {                 \
        "target_layer_ids", FIELD_OTHER, (at), layer_ids                                        \
    }
static const struct field drafter_fields[] = {DRAFTER_FIELDS(0)};

static enum tern_status drafter_object(const struct reading *r, void *base, const struct json_item *first) {
    if (first->event != JSON_OBJECT) return wrong_type(r, "dflash_config", "an object", first->pos);
    return object_read(r, drafter_fields, ARRAY_LEN(drafter_fields), base);
}

#define CONFIG(field) offsetof(struct hf_config, field)
static const struct field config_fields[] = {
    {"hidden_size", FIELD_INT, CONFIG(hidden_size), NULL},
    {"num_hidden_layers", FIELD_INT, CONFIG(n_layers), NULL},
    {"num_attention_heads", FIELD_INT, CONFIG(n_head), NULL},
    {"num_key_value_heads", FIELD_INT, CONFIG(n_head_kv), NULL},
    {"head_dim", FIELD_INT, CONFIG(head_dim), NULL},
    {"intermediate_size", FIELD_INT, CONFIG(intermediate_size), NULL},
    {"vocab_size", FIELD_INT, CONFIG(vocab_size), NULL},
    {"max_position_embeddings", FIELD_INT, CONFIG(n_ctx), NULL},
    {"block_ff_dim", FIELD_INT, CONFIG(block_ff_dim), NULL},
    {"block_multiple_of", FIELD_INT, CONFIG(block_multiple_of), NULL},
    {"block_ffn_dim_multiplier", FIELD_REAL, CONFIG(ff_multiplier), NULL},
    {"block_auto_adjust_ff_dim", FIELD_FLAG, CONFIG(ff_adjust), NULL},
    {"conv_L_cache", FIELD_INT, CONFIG(conv_len), NULL},
    {"num_experts", FIELD_INT, CONFIG(n_expert), NULL},
    {"num_local_experts", FIELD_INT, CONFIG(n_expert_local), NULL}, // how transformers 5 writes it
    {"num_experts_per_tok", FIELD_INT, CONFIG(n_expert_used), NULL},
    {"moe_intermediate_size", FIELD_INT, CONFIG(ff_expert), NULL},
    {"num_dense_layers", FIELD_INT, CONFIG(n_dense_layers), NULL},
    {"decoder_sparse_step", FIELD_INT, CONFIG(sparse_step), NULL},
    {"mlp_only_layers", FIELD_OTHER, 0, dense_layers},
    {"routed_scaling_factor", FIELD_REAL, CONFIG(router_scale), NULL},
    {"norm_topk_prob", FIELD_FLAG, CONFIG(router_norm), NULL},
    {"use_expert_bias", FIELD_FLAG, CONFIG(router_bias), NULL},
    {"conv_bias", FIELD_FLAG, CONFIG(conv_bias), NULL},
    {"rms_norm_eps", FIELD_REAL, CONFIG(rms_norm_eps), NULL},
    {"norm_eps", FIELD_REAL, CONFIG(norm_eps), NULL},
    {"rope_theta", FIELD_REAL, CONFIG(rope_theta), NULL},
    {"theta", FIELD_REAL, CONFIG(theta), NULL},
    {"partial_rotary_factor", FIELD_REAL, CONFIG(partial_rotary), NULL},
    {"tie_word_embeddings", FIELD_FLAG, CONFIG(tie_word_embeddings), NULL},
    {"tie_embedding", FIELD_FLAG, CONFIG(tie_embedding), NULL},
    {"attention_bias", FIELD_FLAG, CONFIG(attention_bias), NULL},
    {"mlp_bias", FIELD_FLAG, CONFIG(mlp_bias), NULL},
    {"hidden_act", FIELD_STR, CONFIG(hidden_act), NULL},
    {"model_type", FIELD_STR, CONFIG(model_type), NULL},
    {"bos_token_id", FIELD_IDS, CONFIG(bos), NULL},
    {"eos_token_id", FIELD_IDS, CONFIG(eos), NULL},
    {"pad_token_id", FIELD_IDS, CONFIG(pad), NULL},
    {"architectures", FIELD_OTHER, CONFIG(class_name), class_names},
    {"rope_parameters", FIELD_OTHER, 0, rope_parameters},
    {"rope_scaling", FIELD_OTHER, CONFIG(rope_scaling), rope_object},
    {"layer_types", FIELD_OTHER, 0, layer_types},
    {"full_attn_idxs", FIELD_OTHER, 0, attn_idxs},
    {"quantization_config", FIELD_OTHER, 0, quantization},
    {"quantization", FIELD_OTHER, 0, quantization},
    {"rope_is_neox_style", FIELD_FLAG, CONFIG(rope_is_neox_style), NULL},
    {"use_sliding_window", FIELD_FLAG, CONFIG(use_sliding_window), NULL},
    {"use_bidirectional_attention", FIELD_FLAG, CONFIG(bidirectional), NULL},
    {"sliding_window", FIELD_INT, CONFIG(sliding_window), NULL},
    {"sliding_window_pattern", FIELD_INT, CONFIG(sliding_pattern), NULL},
    {"_sliding_window_pattern", FIELD_INT, CONFIG(sliding_pattern_too), NULL},
    {"rope_local_base_freq", FIELD_REAL, CONFIG(rope_local), NULL},
    {"query_pre_attn_scalar", FIELD_REAL, CONFIG(query_scalar), NULL},
    {"attn_logit_softcapping", FIELD_REAL, CONFIG(softcap_attn), NULL},
    {"final_logit_softcapping", FIELD_REAL, CONFIG(softcap_logits), NULL},
    {"hidden_activation", FIELD_STR, CONFIG(hidden_activation), NULL},
    {"dflash_config", FIELD_OTHER, CONFIG(drafter_nested), drafter_object},
    {"dspark_config", FIELD_OTHER, CONFIG(drafter_nested), drafter_object},
    DRAFTER_FIELDS(CONFIG(drafter)),
};
static const struct field generation_fields[] = {
    {"bos_token_id", FIELD_IDS, CONFIG(bos), NULL},
    {"eos_token_id", FIELD_IDS, CONFIG(eos), NULL},
    {"pad_token_id", FIELD_IDS, CONFIG(pad), NULL},
};

// One file that is one object.
static enum tern_status file_read(struct model_source *s, const char *where, struct str text,
                                  const struct field *fields, size_t n, void *base, struct tern_err *err) {
    struct json_options options = {.depth_max = HF_JSON_DEPTH_MAX, .dup_check = true};
    struct json_item it;
    struct reading r = {.s = s, .where = where, .err = err};
    enum tern_status status = json_create(&r.j, text, &options, err);
    if (status != TERN_OK) return err_prefix(err, "%s", where);
    status = json_step(r.j, &it, err);
    if (status == TERN_OK && it.event != JSON_OBJECT)
        status = err_set_at(err, TERN_BAD_FORMAT, 0, "%s: must be a JSON object", where);
    else if (status == TERN_OK)
        status = object_read(&r, fields, n, base);
    if (status == TERN_OK) status = json_step(r.j, &it, err); // nothing may follow
    json_free(r.j);
    if (status != TERN_OK && !str_starts(str_from(err->message), str_from(where))) err_prefix(err, "%s", where);
    return status;
}

// flat: one line per field
enum tern_status hf_config_parse(struct hf_config *c, struct model_source *s, struct str json, struct tern_err *err) {
    struct hf_rope no_rope = {.theta = NAN,
                              .factor = NAN,
                              .low_freq_factor = NAN,
                              .high_freq_factor = NAN,
                              .original_ctx = NAN,
                              .partial = NAN,
                              .beta_fast = NAN,
                              .beta_slow = NAN,
                              .attention_factor = NAN,
                              .mscale = NAN,
                              .mscale_all_dim = NAN,
                              .truncate = -1};
    struct hf_drafter no_drafter = {.block_size = HF_ABSENT,
                                    .markov_rank = HF_ABSENT,
                                    .mask_token_id = HF_ABSENT,
                                    .num_target_layers = HF_ABSENT,
                                    .target_hidden_size = HF_ABSENT,
                                    .enable_confidence_head = -1,
                                    .confidence_with_markov = -1,
                                    .sample_from_anchor = -1,
                                    .n_target_layer_ids = -1};
    *c = (struct hf_config){
        .hidden_size = HF_ABSENT,
        .n_layers = HF_ABSENT,
        .n_head = HF_ABSENT,
        .n_head_kv = HF_ABSENT,
        .head_dim = HF_ABSENT,
        .intermediate_size = HF_ABSENT,
        .vocab_size = HF_ABSENT,
        .n_ctx = HF_ABSENT,
        .block_ff_dim = HF_ABSENT,
        .block_multiple_of = HF_ABSENT,
        .conv_len = HF_ABSENT,
        .n_expert = HF_ABSENT,
        .n_expert_local = HF_ABSENT,
        .n_expert_used = HF_ABSENT,
        .ff_expert = HF_ABSENT,
        .n_dense_layers = HF_ABSENT,
        .sparse_step = HF_ABSENT,
        .router_scale = NAN,
        .router_norm = -1,
        .router_bias = -1,
        .n_dense_list = -1,
        .rms_norm_eps = NAN,
        .norm_eps = NAN,
        .rope_theta = NAN,
        .theta = NAN,
        .ff_multiplier = NAN,
        .partial_rotary = NAN,
        .tie_word_embeddings = -1,
        .tie_embedding = -1,
        .ff_adjust = -1,
        .conv_bias = -1,
        .attention_bias = -1,
        .mlp_bias = -1,
        .rope_parameters = no_rope,
        .rope_scaling = no_rope,
        .rope_full = no_rope,
        .rope_sliding = no_rope,
        .bidirectional = -1,
        .sliding_window = HF_ABSENT,
        .sliding_pattern = HF_ABSENT,
        .sliding_pattern_too = HF_ABSENT,
        .rope_local = NAN,
        .query_scalar = NAN,
        .softcap_attn = NAN,
        .softcap_logits = NAN,
        .mlx = {.bits = HF_ABSENT, .group_size = HF_ABSENT},
        .n_layer_types = -1,
        .n_attn_idxs = -1,
        .rope_is_neox_style = -1,
        .use_sliding_window = -1,
        .drafter = no_drafter,
        .drafter_nested = no_drafter,
    };
    return file_read(s, "config.json", json, config_fields, ARRAY_LEN(config_fields), c, err);
}

enum tern_status hf_generation_parse(struct hf_config *c, struct model_source *s, struct str json,
                                     struct tern_err *err) {
    return file_read(s, "generation_config.json", json, generation_fields, ARRAY_LEN(generation_fields), c, err);
}

// chat_template is a string, or a list of {"name", "template"} of which "default" counts.
static enum tern_status chat_template(const struct reading *r, void *base, const struct json_item *first) {
    struct named {
        struct str name, text;
    };
    static const struct field fields[] = {
        {"name", FIELD_STR, offsetof(struct named, name), NULL},
        {"template", FIELD_STR, offsetof(struct named, text), NULL},
    };
    struct str *out = base;
    struct json_item it;
    if (first->event == JSON_STRING) return source_strdup(r->s, out, first->text, r->err);
    if (first->event != JSON_ARRAY) return wrong_type(r, "chat_template", "a string or a list", first->pos);
    for (;;) {
        struct named one = {0};
        TRY(json_step(r->j, &it, r->err));
        if (it.event == JSON_ARRAY_END) return TERN_OK;
        if (it.event != JSON_OBJECT) return wrong_type(r, "chat_template", "a string or a list of objects", it.pos);
        TRY(object_read(r, fields, ARRAY_LEN(fields), &one));
        if (str_eqz(one.name, "default")) *out = one.text;
    }
}

enum tern_status hf_tokenizer_config_parse(struct model_vocab *v, struct model_source *s, struct str json,
                                           struct tern_err *err) {
    static const struct field fields[] = {
        {"add_bos_token", FIELD_FLAG, offsetof(struct model_vocab, add_bos), NULL},
        {"add_eos_token", FIELD_FLAG, offsetof(struct model_vocab, add_eos), NULL},
        {"chat_template", FIELD_OTHER, offsetof(struct model_vocab, chat_template), chat_template},
    };
    return file_read(s, "tokenizer_config.json", json, fields, ARRAY_LEN(fields), v, err);
}
