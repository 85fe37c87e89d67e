// From a tensor table and checked parameters to bound layers. An architecture is a table of names and sizes; this file
// is the only place that looks a weight up, so every missing, misshapen or left-over tensor is refused in one way.
//
// Two sizes are taken from the tensors and not from the keys: the rows of the embedding and the feed-forward width
// (third-party LFM2 files state the width before its adjustment; believing the key would read past the tensor). Tensors
// that no architecture here has are refused, because leaving them out would change the result without a word.
#include "base/base.h"
#include "model/model_int.h"

struct binder {
    struct model *m;
    struct model_source *s;
    const struct model_arch_kind *arch;
    const struct model_params *p;
    bool is_hf;
};

#define NAME_BUF 128

static const char *layer_name(const char *pattern, int layer, char out[NAME_BUF]) {
    struct str s = str_from(pattern);
    size_t at = str_find(s, STR("%d"), 0);
    if (at == (size_t)-1) return pattern;
    snprintf(out, NAME_BUF, "%.*s%d%s", (int)at, pattern, layer, pattern + at + 2);
    return out;
}

static const char *shape_text(int n, const int64_t *ne, char out[NAME_BUF]) {
    size_t len = 0;
    out[0] = 0;
    for (int i = n - 1; i >= 0 && len < NAME_BUF; i--) // rows first, as everyone but GGUF writes it
        len += (size_t)snprintf(out + len, NAME_BUF - len, "%s%lld", i == n - 1 ? "" : ", ", (long long)ne[i]);
    return out;
}

static int64_t dim_size(const struct binder *b, enum dim dim, int layer) {
    const struct model_hyper *h = &b->m->hyper;
    const struct model_drafter *d = b->p->drafter; // not NULL where a table has its sizes
    switch (dim) {
    case DIM_NONE: return 1;
    case DIM_EMBD: return h->n_embd;
    case DIM_VOCAB: return h->n_vocab;
    case DIM_Q: return (int64_t)h->n_head * h->head_dim;
    case DIM_KV: return (int64_t)b->p->n_head_kv[layer] * h->head_dim;
    case DIM_HEAD: return h->head_dim;
    case DIM_FF: return h->n_ff;
    case DIM_EMBD3: return 3 * (int64_t)h->n_embd;
    case DIM_TAPS: return h->conv_len;
    case DIM_ONE: return 1;
    case DIM_EXPERTS: return h->n_expert;
    case DIM_FF_EXPERT: return h->n_ff_expert;
    case DIM_FEATURES: return (int64_t)d->n_features * d->n_embd_target;
    case DIM_RANK: return d->markov_rank;
    case DIM_RANK3: return 3 * (int64_t)d->markov_rank;
    case DIM_GATE_IN: return (int64_t)h->n_embd + d->markov_rank;
    case DIM_RNN_IN: return 2 * (int64_t)d->markov_rank + h->n_embd;
    case DIM_CONF_IN: return (int64_t)h->n_embd + (d->conf_with_markov ? d->markov_rank : 0);
    }
    TERN_BUG("dimension %d", (int)dim);
}

// Convolution taps come as [n_embd, 1, taps], from MLX as [n_embd, taps, 1]: a copy without the sizes of one stands for
// them.
static enum tern_status squeeze(const struct binder *b, const struct tensor **t, struct tern_err *err) {
    if ((*t)->n_dims <= 2) return TERN_OK;
    struct tensor *copy;
    TRY(source_alloc(b->s, &copy, 1, sizeof(*copy), err));
    *copy = **t;
    copy->n_dims = 0;
    for (int i = 0; i < (*t)->n_dims; i++)
        if ((*t)->ne[i] != 1 || (i == 0 && (*t)->ne[1] == 1)) copy->ne[copy->n_dims++] = (*t)->ne[i];
    for (int i = copy->n_dims; i < MODEL_DIMS_MAX; i++) copy->ne[i] = 1;
    *t = copy;
    return TERN_OK;
}

static enum tern_status tensor_take(const struct binder *b, const char *name, int n_dims, const int64_t *ne,
                                    bool is_small, const struct tensor **out, struct tern_err *err) {
    char want[NAME_BUF], found[NAME_BUF];
    const struct tensor *t = table_find(b->s, str_from(name));
    if (!t)
        return err_set(err, TERN_BAD_FORMAT, "tensor %s is missing (expected shape [%s])", name,
                       shape_text(n_dims, ne, want));
    const struct tensor *view = t;
    TRY(squeeze(b, &view, err));
    bool fits = true;
    for (int i = 0; i < MODEL_DIMS_MAX; i++) fits = fits && view->ne[i] == (i < n_dims ? ne[i] : 1);
    if (!fits)
        return err_set(err, TERN_BAD_FORMAT, "tensor %s has shape [%s], expected [%s]", name,
                       shape_text(t->n_dims, t->ne, found), shape_text(n_dims, ne, want));
    if (is_small && !format_is_float(view->format))
        return err_set(err, TERN_UNSUPPORTED, "tensor %s has type %s, must be F32, F16 or BF16", name,
                       format_table[view->format].name);
    b->s->bound[t - b->s->tensors] = true;
    *out = view;
    return TERN_OK;
}

static enum tern_status embedding_bind(struct binder *b, struct tern_err *err) {
    struct model_hyper *h = &b->m->hyper;
    const char *name = b->is_hf ? "model.embed_tokens.weight" : "token_embd.weight";
    const struct tensor *t = table_find(b->s, str_from(name));
    int64_t said = h->n_vocab, rows = t ? t->ne[1] : MAX(said, 1);
    if (t && rows > MODEL_VOCAB_MAX)
        return err_set(err, TERN_LIMIT, "tensor %s has %lld rows, at most %u are supported", name, (long long)rows,
                       MODEL_VOCAB_MAX);
    int64_t ne[2] = {h->n_embd, rows};
    TRY(tensor_take(b, name, 2, ne, false, &b->m->embedding, err));
    if (said && (said > rows || (said < rows && !b->p->vocab_may_be_less)))
        return err_set(err, TERN_BAD_FORMAT, "%s is %lld, but tensor %s has %lld rows", b->p->vocab_key,
                       (long long)said, name, (long long)rows);
    h->n_vocab = h->n_vocab_used = (int)rows;
    return TERN_OK;
}

static enum tern_status output_bind(struct binder *b, struct tern_err *err) {
    struct model *m = b->m;
    const char *name = b->is_hf ? "lm_head.weight" : "output.weight";
    const struct tensor *t = table_find(b->s, str_from(name));
    int64_t ne[2] = {m->hyper.n_embd, m->hyper.n_vocab};
    bool tied = b->p->tied >= 0 ? b->p->tied == 1 : (b->is_hf ? b->arch->tied_default && !t : !t);
    if (!tied) return tensor_take(b, name, 2, ne, false, &m->output, err);
    m->output = m->embedding;
    if (t) b->s->bound[t - b->s->tensors] = true; // a saved copy of the tied matrix
    return TERN_OK;
}

// A drafter's embedding and output are its own where its file has them, else the target's, whose width it then shares.
static enum tern_status drafter_edges_bind(struct binder *b, struct tern_err *err) {
    static const char *const names[2][2] = {{"token_embd.weight", "output.weight"},
                                            {"embed_tokens.weight", "lm_head.weight"}};
    struct model *m = b->m;
    const struct model *target = b->p->drafter->target;
    const struct tensor **fields[2] = {&m->embedding, &m->output};
    const struct tensor *shared[2] = {target->embedding, target->output};
    int64_t ne[2] = {m->hyper.n_embd, target->hyper.n_vocab};
    m->hyper.n_vocab = target->hyper.n_vocab;
    m->hyper.n_vocab_used = target->hyper.n_vocab_used;
    for (int i = 0; i < 2; i++) {
        const char *name = names[b->is_hf][i];
        if (table_find(b->s, str_from(name))) {
            TRY(tensor_take(b, name, 2, ne, false, fields[i], err));
            continue;
        }
        if (m->hyper.n_embd != target->hyper.n_embd)
            return err_set(err, TERN_MISMATCH,
                           "the drafter has no %s and would share the target's, but is %d wide and the target (%s) %d",
                           name, m->hyper.n_embd, target->name, target->hyper.n_embd);
        *fields[i] = shared[i];
    }
    return TERN_OK;
}

static enum tern_status width_take(struct binder *b, struct tern_err *err) {
    struct model_hyper *h = &b->m->hyper;
    const char *name = b->arch->ff_name[b->is_hf];
    const struct tensor *t = table_find(b->s, str_from(name));
    if (!t || t->ne[1] == h->n_ff) return TERN_OK;
    if (t->ne[1] < 1 || t->ne[1] > MODEL_FF_MAX)
        return err_set(err, TERN_LIMIT, "tensor %s has %lld rows, at most %d are supported", name, (long long)t->ne[1],
                       MODEL_FF_MAX);
    source_warn(b->s, "%s means width %d, tensor %s has %lld rows; using %lld", b->p->ff_key, h->n_ff, name,
                (long long)t->ne[1], (long long)t->ne[1]);
    h->n_ff = (int)t->ne[1];
    return TERN_OK;
}

// A norm whose file holds w - 1: the weights that multiply, in floats.
static enum tern_status norm_plus_1(const struct binder *b, const struct tensor **t, struct tern_err *err) {
    struct tensor *copy;
    float *w;
    int64_t n = (*t)->ne[0];
    TRY(source_alloc(b->s, &copy, 1, sizeof(*copy), err));
    TRY(source_alloc(b->s, &w, (size_t)n, sizeof(*w), err));
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *at = (*t)->data + (size_t)i * ((*t)->format == FORMAT_F32 ? 4 : 2);
        float stored = (*t)->format == FORMAT_F32   ? f32_from_bits(load_u32(at))
                       : (*t)->format == FORMAT_F16 ? f16_to_f32(load_u16(at))
                                                    : bf16_to_f32(load_u16(at));
        w[i] = 1.0f + stored;
    }
    *copy = **t;
    copy->format = FORMAT_F32;
    copy->data = (const uint8_t *)w;
    copy->n_bytes = (uint64_t)n * sizeof(*w);
    *t = copy;
    return TERN_OK;
}

static enum tern_status row_bind(struct binder *b, const struct arch_tensor *row, int layer, struct tern_err *err) {
    char name[NAME_BUF];
    enum arch_name column = b->is_hf ? NAME_HF : NAME_GGUF;
    int64_t ne[2] = {dim_size(b, row->ne0, layer), dim_size(b, row->ne1, layer)};
    const char *full = layer_name(row->name[column], layer, name);
    if (!b->is_hf && row->name[NAME_GGUF_ALT] && !table_find(b->s, str_from(full)) &&
        table_find(b->s, str_from(row->name[NAME_GGUF_ALT])))
        full = row->name[NAME_GGUF_ALT];
    const struct tensor *t;
    TRY(tensor_take(b, full, row->ne1 == DIM_NONE ? 1 : 2, ne, row->is_small, &t, err));
    if (b->is_hf && b->arch->norm_plus_1 && row->is_small) TRY(norm_plus_1(b, &t, err));
    char *base = row->where == WHERE_GLOBAL ? (char *)b->m : (char *)&b->m->layers[layer];
    if (row->where >= WHERE_DRAFTER) base = (char *)b->p->drafter;
    memcpy(base + row->field, &t, sizeof(t));
    return TERN_OK;
}

static bool row_applies(const struct binder *b, const struct arch_tensor *row, int layer) {
    bool routed = b->p->routed[layer];
    switch (row->where) {
    case WHERE_LAYER: return true;
    case WHERE_ATTENTION: return b->p->kinds[layer] == LAYER_ATTENTION;
    case WHERE_CONV: return b->p->kinds[layer] == LAYER_CONV;
    case WHERE_DENSE: return !routed;
    case WHERE_ROUTED: return routed;
    case WHERE_ROUTER_BIAS: return routed && b->p->has_router_bias;
    default: return false;
    }
}

// Expert e of the tensor of all: a tensor of its own, cut out of that one's bytes.
static enum tern_status expert_cut(const struct binder *b, const struct tensor *t, struct tensor *out, int e,
                                   struct tern_err *err) {
    char name[NAME_BUF];
    snprintf(name, sizeof(name), "%.*s[%d]", SHOW(t->name), e);
    *out = *t;
    TRY(source_strdup(b->s, &out->name, str_from(name), err));
    out->n_dims = 2;
    out->ne[2] = out->ne[3] = 1;
    out->n_bytes = t->n_bytes / (uint64_t)b->p->hyper.n_expert;
    out->data = t->data + (uint64_t)e * out->n_bytes;
    out->whole = table_find(b->s, t->name);
    return TERN_OK;
}

static enum tern_status expert_row_bind(const struct binder *b, const struct arch_tensor *row, int layer,
                                        struct model_expert *experts, struct tern_err *err) {
    char name[NAME_BUF], full[NAME_BUF];
    int n = b->p->hyper.n_expert;
    int64_t ne[3] = {dim_size(b, row->ne0, layer), dim_size(b, row->ne1, layer), n};
    const struct tensor *t = NULL;
    struct tensor *cuts = NULL;
    const char *of_layer = layer_name(row->name[b->is_hf ? NAME_HF : NAME_GGUF], layer, name);
    if (!b->is_hf) {
        TRY(tensor_take(b, of_layer, 3, ne, false, &t, err));
        TRY(source_alloc(b->s, &cuts, (size_t)n, sizeof(*cuts), err));
    }
    for (int e = 0; e < n; e++) {
        const struct tensor *one = b->is_hf ? NULL : &cuts[e];
        if (b->is_hf)
            TRY(tensor_take(b, layer_name(of_layer, e, full), 2, ne, false, &one, err));
        else
            TRY(expert_cut(b, t, &cuts[e], e, err));
        memcpy((char *)&experts[e] + row->field, &one, sizeof(one));
    }
    return TERN_OK;
}

static enum tern_status experts_bind(const struct binder *b, int layer, struct tern_err *err) {
    struct model_expert *experts;
    TRY(source_alloc(b->s, &experts, (size_t)b->p->hyper.n_expert, sizeof(*experts), err));
    for (int k = 0; k < b->arch->n_tensors; k++)
        if (b->arch->tensors[k].where == WHERE_EXPERT)
            TRY(expert_row_bind(b, &b->arch->tensors[k], layer, experts, err));
    b->m->layers[layer].experts = experts;
    return TERN_OK;
}

static bool part_applies(const struct binder *b, const struct arch_tensor *row) {
    const struct model_drafter *d = b->p->drafter;
    switch (row->where) {
    case WHERE_GLOBAL:
    case WHERE_DRAFTER: return true;
    case WHERE_MARKOV: return d->markov != MARKOV_NONE;
    case WHERE_GATED: return d->markov == MARKOV_GATED;
    case WHERE_RNN: return d->markov == MARKOV_RNN;
    case WHERE_CONF: return b->p->has_conf;
    case WHERE_CONF_BIAS:
        return b->p->has_conf && table_find(b->s, str_from(row->name[b->is_hf ? NAME_HF : NAME_GGUF]));
    default: return false;
    }
}

// Left-over tensors that change nothing: tables that old exporters stored, and tensors without a value.
static bool may_be_left(const struct tensor *t) {
    return t->n_bytes == 0 || t->is_part || str_ends(t->name, STR(".rotary_emb.inv_freq")) ||
           str_eq(t->name, STR("rope_freqs.weight"));
}

// An encoder's head is read by name by whoever uses it: prompt routing (engine/route.c).
bool arch_is_head(struct str name) {
    static const char *const names[] = {"tok_proj.weight", "tok_proj.bias", "rule_proj.weight",
                                        "rule_proj.bias",  "logit_scale",   "score_bias"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eqz(name, names[i])) return true;
    return false;
}

static enum tern_status leftovers_check(const struct binder *b, struct tern_err *err) {
    for (int i = 0; i < b->s->n_tensors; i++) {
        const struct tensor *t = &b->s->tensors[i];
        if (b->s->bound[i] || may_be_left(t) || (b->p->hyper.bidirectional && arch_is_head(t->name))) continue;
        return err_set(err, TERN_UNSUPPORTED,
                       "tensor %.*s belongs to no part of architecture %s with %d layers as supported here",
                       SHOW(t->name), b->arch->name, b->m->hyper.n_layers);
    }
    return TERN_OK;
}

enum tern_status arch_bind(struct model *m, const struct model_arch_kind *arch, struct model_params *p,
                           struct tern_err *err) {
    struct binder b = {.m = m, .s = m->source, .arch = arch, .p = p, .is_hf = m->source->kind == SOURCE_SAFETENSORS};
    m->arch = arch;
    m->arch_name = arch->name;
    m->hyper = p->hyper;
    m->hyper.rope = b.is_hf ? arch->rope_hf : arch->rope_gguf;
    TRY(source_alloc(b.s, &m->layers, (size_t)p->hyper.n_layers, sizeof(*m->layers), err));
    TRY(source_alloc(b.s, &b.s->bound, (size_t)b.s->n_tensors, sizeof(*b.s->bound), err));
    if (p->drafter) {
        TRY(drafter_edges_bind(&b, err));
    } else {
        TRY(embedding_bind(&b, err));
        TRY(output_bind(&b, err));
    }
    TRY(width_take(&b, err));
    for (int k = 0; k < arch->n_tensors; k++)
        if (part_applies(&b, &arch->tensors[k])) TRY(row_bind(&b, &arch->tensors[k], 0, err));
    for (int i = 0; i < p->hyper.n_layers; i++) {
        m->layers[i].kind = p->kinds[i];
        m->layers[i].n_head_kv = p->n_head_kv[i];
        m->layers[i].window = p->windows[i];
        m->layers[i].rope_local = p->windows[i] > 0 && p->hyper.rope_base_local > 0;
        for (int k = 0; k < arch->n_tensors; k++)
            if (row_applies(&b, &arch->tensors[k], i)) TRY(row_bind(&b, &arch->tensors[k], i, err));
        if (p->routed[i]) TRY(experts_bind(&b, i, err));
    }
    return leftovers_check(&b, err);
}
