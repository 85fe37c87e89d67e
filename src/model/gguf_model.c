// A GGUF model from its first file: the other shards, the general keys, and the parameters that every architecture
// writes alike.
//
// A split model is NAME-00001-of-0000N.gguf and so on; only the first shard carries the metadata. All shards must be
// there, say the same count and hold together as many tensors as the first one promises.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

#define SHARD_SUFFIX_LEN 20 // "-00001-of-00003.gguf"

static enum tern_status shard_keys(const struct gguf *g, int64_t *no, int64_t *count, int64_t *n_tensors,
                                   struct tern_err *err) {
    *no = 0;
    *count = 1;
    *n_tensors = -1;
    TRY(gguf_opt_int(g, "split.no", 0, MODEL_SHARDS_MAX - 1, no, err));
    TRY(gguf_opt_int(g, "split.count", 0, MODEL_SHARDS_MAX, count, err));
    TRY(gguf_opt_int(g, "split.tensors.count", 0, MODEL_TENSORS_MAX, n_tensors, err));
    if (*count == 0) *count = 1; // how an unsplit file may say so
    if (*no >= *count)
        return err_set(err, TERN_BAD_FORMAT, "split.no is %lld of split.count %lld", (long long)*no, (long long)*count);
    return TERN_OK;
}

// Writes shard i's path (zero-based) into out; false when the first path is not named like a shard of `count`.
static bool shard_path(const char *first, int64_t i, int64_t count, struct buf *out) {
    struct str path = str_from(first);
    char suffix[48];
    snprintf(suffix, sizeof(suffix), "-%05d-of-%05d.gguf", 1, (int)count);
    if (!str_ends(path, str_from(suffix))) return false;
    buf_clear(out);
    buf_put(out, path.data, path.len - SHARD_SUFFIX_LEN);
    buf_putf(out, "-%05d-of-%05d.gguf", (int)i + 1, (int)count);
    return !out->failed;
}

static enum tern_status shard_open(struct model_source *s, int64_t i, int64_t count, const char *path,
                                   struct tern_err *err) {
    struct gguf g;
    int64_t no, said, n_tensors;
    struct model_file *f = &s->files[i];
    enum tern_status status = file_map(f, s, path, err);
    if (status != TERN_OK) {
        err_prefix(err, "shard %lld of %lld", (long long)i + 1, (long long)count);
        return status;
    }
    s->n_files++;
    status = gguf_header_parse(&g, s, f, err);
    if (status == TERN_OK) status = shard_keys(&g, &no, &said, &n_tensors, err);
    if (status == TERN_OK && (no != i || said != count))
        status = err_set(err, TERN_BAD_FORMAT, "says it is shard %lld of %lld, expected %lld of %lld",
                         (long long)no + 1, (long long)said, (long long)i + 1, (long long)count);
    if (status == TERN_OK) status = gguf_tensors_parse(&g, s, (int)i, err);
    if (status != TERN_OK) err_prefix(err, "shard %s", path_last(path));
    return status;
}

static enum tern_status shards_open(struct model_source *s, int64_t count, int64_t n_tensors, struct tern_err *err) {
    struct model_file first = s->files[0];
    TRY(source_files_reserve(s, (int)count, err));
    s->files[0] = first;
    struct buf path;
    buf_init(&path, 1u << 16);
    enum tern_status status = TERN_OK;
    for (int64_t i = 1; i < count && status == TERN_OK; i++) {
        if (!first.is_mapped || !shard_path(first.path, i, count, &path))
            status =
                err_set(err, TERN_BAD_FORMAT,
                        "this is the first of %lld shards, but its name does not end in -00001-of-%05d.gguf, so the "
                        "others cannot be found",
                        (long long)count, (int)count);
        else
            status = shard_open(s, i, count, path.data, err);
    }
    buf_release(&path);
    if (status == TERN_OK && n_tensors >= 0 && n_tensors != s->n_tensors)
        status = err_set(err, TERN_BAD_FORMAT, "the %lld shards hold %d tensors, split.tensors.count says %lld",
                         (long long)count, s->n_tensors, (long long)n_tensors);
    return status;
}

enum tern_status gguf_general_check(const struct gguf *g, const struct model *m, struct tern_err *err) {
    struct str type = {0};
    TRY(gguf_opt_str(g, "general.type", &type, err));
    if (type.len && !str_eqz(type, "model"))
        return err_set(err, TERN_UNSUPPORTED, "general.type is %.*s, not a model that can run alone", SHOW(type));
    int64_t version = 2;
    TRY(gguf_opt_int(g, "general.quantization_version", 0, UINT32_MAX, &version, err));
    for (int i = 0; i < m->source->n_tensors && version != 2; i++) {
        if (!format_is_float(m->source->tensors[i].format))
            return err_set(err, TERN_UNSUPPORTED,
                           "general.quantization_version is %lld, only 2 is supported: quantise the model again",
                           (long long)version);
    }
    return TERN_OK;
}

enum tern_status gguf_open(struct model *m, struct tern_err *err) {
    struct model_source *s = m->source;
    struct gguf *g = &s->gguf;
    int64_t no, count, n_tensors;
    struct str arch = {0}, name = {0};
    TRY(gguf_header_parse(g, s, &s->files[0], err));
    TRY(gguf_opt_str(g, "general.architecture", &arch, err));
    snprintf(g->arch, sizeof(g->arch), "%.*s", (int)MIN(arch.len, sizeof(g->arch) - 1), arch.len ? arch.data : "");
    TRY(gguf_opt_str(g, "general.name", &name, err));
    if (name.len) {
        TRY(source_strdup(s, &name, name, err));
        m->name = name.data;
    }
    TRY(shard_keys(g, &no, &count, &n_tensors, err));
    if (no != 0)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "this is shard %lld of %lld: open the first one (…-00001-of-%05d.gguf)", (long long)no + 1,
                       (long long)count, (int)count);
    TRY(gguf_tensors_parse(g, s, 0, err));
    if (count > 1) return shards_open(s, count, n_tensors, err);
    return TERN_OK;
}

enum tern_status gguf_bind(struct model *m, struct tern_err *err) {
    struct model_source *s = m->source;
    struct model_params p = {.tied = -1};
    const struct model_arch_kind *arch;
    struct str name = {0};
    TRY(gguf_opt_str(&s->gguf, "general.architecture", &name, err));
    if (name.len == 0) return err_set(err, TERN_BAD_FORMAT, "key general.architecture is missing or empty");
    TRY(arch_get_gguf(&arch, name, err));
    TRY(gguf_general_check(&s->gguf, m, err));
    p.arch = arch;
    TRY(arch->params_gguf(&p, s, err));
    TRY(arch_bind(m, arch, &p, err));
    return gguf_vocab_read(m, err);
}

// Keys that change the computation and that no architecture here has. A drafter's block is not causal.
static enum tern_status unsupported_keys(const struct gguf *g, const struct model_params *p, struct tern_err *err) {
    bool is_drafter = p->drafter != NULL;
    bool has_experts = p->arch && p->arch->has_experts, has_windows = p->arch && p->arch->has_windows;
    int64_t experts = 0, window = 0;
    int causal = 1;
    TRY(gguf_opt_int(g, "@expert_count", 0, UINT32_MAX, &experts, err));
    if (experts > 0 && !has_experts)
        return err_set(err, TERN_UNSUPPORTED, "a mixture of %lld experts is not supported", (long long)experts);
    TRY(gguf_opt_bool(g, "@attention.causal", &causal, err));
    if (!causal && !is_drafter && !(p->arch && p->arch->may_encode))
        return err_set(err, TERN_UNSUPPORTED, "an encoder (attention.causal is false) is not supported");
    TRY(gguf_opt_int(g, "@attention.sliding_window", 0, UINT32_MAX, &window, err));
    if (window > 0 && !has_windows)
        return err_set(err, TERN_UNSUPPORTED, "sliding-window attention (%lld) is not supported", (long long)window);
    return TERN_OK;
}

static enum tern_status head_keys(struct model_params *p, const struct gguf *g, struct tern_err *err) {
    struct model_hyper *h = &p->hyper;
    int64_t key_len = 0, value_len, rope_dims;
    TRY(gguf_opt_int(g, "@attention.key_length", 1, MODEL_HEAD_DIM_MAX, &key_len, err));
    h->head_dim = (int)key_len;
    value_len = key_len ? key_len : h->n_embd / h->n_head;
    rope_dims = value_len;
    int64_t head_dim = value_len;
    TRY(gguf_opt_int(g, "@attention.value_length", 1, MODEL_HEAD_DIM_MAX, &value_len, err));
    TRY(gguf_opt_int(g, "@rope.dimension_count", 0, MODEL_HEAD_DIM_MAX, &rope_dims, err));
    if (value_len != head_dim)
        return err_set(err, TERN_UNSUPPORTED, "heads of %lld key and %lld value dimensions are not supported",
                       (long long)head_dim, (long long)value_len);
    if (rope_dims != head_dim)
        return err_set(err, TERN_UNSUPPORTED, "rope.dimension_count is %lld of %lld: partial rotation is not supported",
                       (long long)rope_dims, (long long)head_dim);
    return TERN_OK;
}

static enum tern_status gguf_yarn(struct model_params *p, struct model_source *s, double factor, struct tern_err *err) {
    int64_t ctx = p->hyper.n_ctx;
    double attention = 0, log_multiplier = 0;
    struct rope_yarn y = {.factor = factor, .beta_fast = ROPE_YARN_FAST, .beta_slow = ROPE_YARN_SLOW};
    TRY(gguf_opt_int(&s->gguf, "@rope.scaling.original_context_length", 1, MODEL_CTX_MAX, &ctx, err));
    TRY(gguf_opt_f64(&s->gguf, "@rope.scaling.yarn_beta_fast", &y.beta_fast, err));
    TRY(gguf_opt_f64(&s->gguf, "@rope.scaling.yarn_beta_slow", &y.beta_slow, err));
    TRY(gguf_opt_f64(&s->gguf, "@rope.scaling.attn_factor", &attention, err));
    TRY(gguf_opt_f64(&s->gguf, "@rope.scaling.yarn_log_multiplier", &log_multiplier, err));
    if (log_multiplier != 0) return err_set(err, TERN_UNSUPPORTED, "rope.scaling.yarn_log_multiplier is not supported");
    y.ctx_original = (double)ctx;
    y.attention = attention;
    if (attention != 0 && factor >= 1) y.attention = attention * (1 + 0.1 * log(factor));
    return rope_factors_yarn(p, s, &y, err);
}

enum tern_status gguf_rope_scaling(struct model_params *p, struct model_source *s, struct tern_err *err) {
    const struct gguf *g = &s->gguf;
    struct str type = {0};
    double factor = 0, linear = 0;
    TRY(gguf_opt_str(g, "@rope.scaling.type", &type, err));
    TRY(gguf_opt_f64(g, "@rope.scaling.factor", &factor, err));
    TRY(gguf_opt_f64(g, "@rope.scale_linear", &linear, err)); // the older spelling
    if (type.len && !str_eqz(type, "none") && !str_eqz(type, "linear") && !str_eqz(type, "yarn"))
        return err_set(err, TERN_UNSUPPORTED, "rope.scaling.type %.*s is not supported (none, linear, yarn)",
                       SHOW(type));
    if (str_eqz(type, "none")) return TERN_OK;
    if (factor == 0) factor = linear;
    if (str_eqz(type, "yarn")) return gguf_yarn(p, s, factor, err);
    if (factor == 0 || factor == 1) return TERN_OK;
    return rope_factors_linear(p, s, factor, err);
}

enum tern_status gguf_params_common(struct model_params *p, struct model_source *s, struct tern_err *err) {
    const struct gguf *g = &s->gguf;
    struct model_hyper *h = &p->hyper;
    int64_t n_layers, n_embd, n_ctx, n_vocab = 0;
    double eps, base = 0;
    TRY(unsupported_keys(g, p, err));
    TRY(gguf_need_int(g, "@block_count", 1, MODEL_LAYERS_MAX, &n_layers, err));
    TRY(gguf_need_int(g, "@embedding_length", 1, MODEL_EMBD_MAX, &n_embd, err));
    TRY(gguf_need_int(g, "@context_length", 1, MODEL_CTX_MAX, &n_ctx, err));
    TRY(gguf_opt_int(g, "@vocab_size", 1, MODEL_VOCAB_MAX, &n_vocab, err));
    TRY(gguf_need_f64(g, "@attention.layer_norm_rms_epsilon", &eps, err));
    TRY(gguf_opt_f64(g, "@rope.freq_base", &base, err));
    h->n_embd = (int)n_embd;
    h->n_ctx = (int)n_ctx;
    h->n_vocab = (int)n_vocab;
    h->norm_eps = (float)eps;
    h->rope_base = (float)base;
    int causal = 1;
    TRY(gguf_opt_bool(g, "@attention.causal", &causal, err));
    h->bidirectional = !causal && !p->drafter;
    p->vocab_key = "vocab_size";
    p->vocab_may_be_less = true;
    p->ff_key = "feed_forward_length";
    TRY(params_layers(p, s, n_layers, err));
    int *per_layer;
    TRY(source_alloc(s, &per_layer, (size_t)n_layers, sizeof(*per_layer), err));
    TRY(gguf_need_ints(g, "@attention.head_count", 1, MODEL_HEADS_MAX, per_layer, (int)n_layers, err));
    h->n_head = per_layer[0];
    for (int i = 1; i < (int)n_layers; i++) {
        if (per_layer[i] != h->n_head)
            return err_set(err, TERN_UNSUPPORTED, "head_count differs between layers (%d and %d): not supported",
                           h->n_head, per_layer[i]);
    }
    TRY(gguf_need_ints(g, "@feed_forward_length", 1, MODEL_FF_MAX, per_layer, (int)n_layers, err));
    h->n_ff = per_layer[0];
    for (int i = 1; i < (int)n_layers; i++) {
        if (per_layer[i] != h->n_ff)
            return err_set(err, TERN_UNSUPPORTED,
                           "feed_forward_length differs between layers (%d and %d): not supported", h->n_ff,
                           per_layer[i]);
    }
    if (!gguf_find(g, "@attention.head_count_kv"))
        for (int i = 0; i < (int)n_layers; i++) p->n_head_kv[i] = h->n_head;
    else
        TRY(gguf_need_ints(g, "@attention.head_count_kv", 0, MODEL_HEADS_MAX, p->n_head_kv, (int)n_layers, err));
    for (int i = 0; i < (int)n_layers; i++) p->kinds[i] = p->n_head_kv[i] ? LAYER_ATTENTION : LAYER_CONV;
    return head_keys(p, g, err);
}

enum tern_status gguf_params_decoder(struct model_params *p, struct model_source *s, struct tern_err *err) {
    TRY(gguf_params_common(p, s, err));
    for (int i = 0; i < p->hyper.n_layers; i++) {
        if (p->kinds[i] != LAYER_ATTENTION)
            return err_set(err, TERN_BAD_FORMAT, "%s.attention.head_count_kv is 0 in layer %d", s->gguf.arch, i);
    }
    return TERN_OK;
}
