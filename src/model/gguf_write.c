// A model as a GGUF file (version 3): the head, and where each tensor's bytes go.
//
// A GGUF source's keys are copied byte for byte in their order; only split.* goes (the shards become one file), and
// general.file_type and general.quantization_version say what the new file holds. Tensors keep the source's order. The
// data itself is the caller's: it streams rows, so memory does not depend on the model's size.
#include "base/base.h"
#include "model/model_int.h"

#define HEAD_BYTES_MAX ((size_t)1 << 30)
#define QUANTISATION_VERSION 2

static uint64_t bytes_of_items(enum gguf_type type, const uint8_t *data, uint64_t n) {
    if (type != GGUF_STRING) return n * gguf_type_bytes[type]; // checked when the file was read
    const uint8_t *p = data;
    for (uint64_t i = 0; i < n; i++) p += 8 + load_u64(p);
    return (uint64_t)(p - data);
}

void gguf_put_u32(struct buf *b, uint32_t v) { buf_put(b, &v, sizeof v); }
void gguf_put_u64(struct buf *b, uint64_t v) { buf_put(b, &v, sizeof v); }
void gguf_put_str(struct buf *b, struct str s) {
    gguf_put_u64(b, s.len);
    buf_put(b, s.data, s.len);
}

void gguf_put_key(struct buf *b, const char *key, enum gguf_type type) {
    gguf_put_str(b, str_from(key));
    gguf_put_u32(b, type);
}

static void value_copy(struct buf *b, const struct gguf_kv *kv) {
    gguf_put_str(b, kv->key);
    gguf_put_u32(b, kv->type);
    if (kv->type == GGUF_STRING) {
        gguf_put_u64(b, kv->n);
        buf_put(b, kv->data, (size_t)kv->n);
    } else if (kv->type == GGUF_ARRAY) {
        gguf_put_u32(b, kv->item_type);
        gguf_put_u64(b, kv->n);
        buf_put(b, kv->data, (size_t)bytes_of_items(kv->item_type, kv->data, kv->n));
    } else {
        buf_put(b, kv->data, gguf_type_bytes[kv->type]);
    }
}

struct new_keys { // what the source's values must not say for the new file
    uint32_t file_type;
    bool has_file_type, has_version, is_quantised;
};

static void file_type_put(struct buf *b, uint32_t file_type) {
    gguf_put_key(b, "general.file_type", GGUF_U32);
    gguf_put_u32(b, file_type);
}

static uint64_t keys_copy(struct buf *b, const struct gguf *g, struct new_keys *k) {
    uint64_t n = 0;
    for (int i = 0; i < g->n_keys; i++) {
        const struct gguf_kv *kv = &g->keys[i];
        if (str_starts(kv->key, STR("split."))) continue;
        n++;
        if (str_eqz(kv->key, "general.file_type")) {
            file_type_put(b, k->file_type);
            k->has_file_type = true;
        } else if (str_eqz(kv->key, "general.quantization_version")) {
            gguf_put_key(b, "general.quantization_version", GGUF_U32);
            gguf_put_u32(b, QUANTISATION_VERSION);
            k->has_version = true;
        } else {
            value_copy(b, kv);
        }
    }
    return n;
}

static enum tern_status keys_put(const struct model_export *x, struct new_keys *k, struct buf *b, uint64_t *n,
                                 struct tern_err *err) {
    if (model_is_gguf(x->model))
        *n = keys_copy(b, &x->model->source->gguf, k);
    else
        TRY(gguf_write_hf_keys(x, b, n, err));
    if (!k->has_file_type) {
        file_type_put(b, k->file_type);
        ++*n;
    }
    if (!k->has_version && k->is_quantised) {
        gguf_put_key(b, "general.quantization_version", GGUF_U32);
        gguf_put_u32(b, QUANTISATION_VERSION);
        ++*n;
    }
    return TERN_OK;
}

// Sizes and places of the tensors, by the formats chosen.
static enum tern_status places_make(struct model_export *x, struct tern_err *err) {
    uint64_t at = 0;
    for (int i = 0; i < x->n_tensors; i++) {
        struct model_export_tensor *t = &x->tensors[i];
        struct table_entry e = {.name = t->name, .format = t->format, .n_dims = t->n_dims};
        for (int d = 0; d < t->n_dims; d++) e.ne[d] = (uint64_t)t->ne[d];
        if (format_table[t->format].gguf_type < 0)
            return err_set(err, TERN_UNSUPPORTED, "tensor %.*s: a GGUF file has no type for %s", SHOW(t->name),
                           format_table[t->format].name);
        TRY(table_entry_bytes(&e, &t->n_bytes, err));
        t->offset = at;
        uint64_t end;
        if (!u64_add(at, t->n_bytes, &end) || !u64_add(end, x->align - 1, &end))
            return err_set(err, TERN_LIMIT, "the tensors' sizes together overflow");
        at = end / x->align * x->align;
    }
    x->n_bytes_data = at;
    return TERN_OK;
}

enum tern_status model_export_head(struct model_export *x, uint32_t file_type, struct buf *out, struct tern_err *err) {
    struct tern_err local;
    if (!err) err = &local;
    TRY(places_make(x, err));
    struct new_keys k = {.file_type = file_type};
    for (int i = 0; i < x->n_tensors; i++) k.is_quantised = k.is_quantised || !format_is_float(x->tensors[i].format);
    struct buf keys;
    uint64_t n_keys = 0;
    buf_init(&keys, HEAD_BYTES_MAX);
    enum tern_status status = keys_put(x, &k, &keys, &n_keys, err);
    buf_put(out, "GGUF", 4);
    gguf_put_u32(out, 3);
    gguf_put_u64(out, (uint64_t)x->n_tensors);
    gguf_put_u64(out, n_keys);
    buf_put(out, keys.data, keys.len);
    bool failed = keys.failed;
    buf_release(&keys);
    TRY(status);
    for (int i = 0; i < x->n_tensors; i++) {
        const struct model_export_tensor *t = &x->tensors[i];
        gguf_put_str(out, t->name);
        gguf_put_u32(out, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) gguf_put_u64(out, (uint64_t)t->ne[d]);
        gguf_put_u32(out, (uint32_t)format_table[t->format].gguf_type);
        gguf_put_u64(out, t->offset);
    }
    while (out->len % x->align != 0 && buf_putc(out, 0)) {
    }
    if (failed || out->failed)
        return err_set(err, TERN_NO_MEMORY, "no memory for the head of a GGUF file (%zu bytes so far)", out->len);
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------- the tensors

// What never is quantised: vectors, and the small matrices that every quantiser leaves alone because an error in them
// reaches everything (routers of experts, convolution taps, mixing coefficients).
static bool name_is_small(struct str name, int n_dims) {
    static const char *const parts[] = {"_norm.weight",
                                        "ffn_gate_inp.weight",
                                        "shortconv.conv.weight",
                                        "tok_proj.weight", // a prompt router's head
                                        "rule_proj.weight",
                                        "ssm_conv1d",
                                        "time_mix_",
                                        "altup",
                                        "laurel",
                                        "pos_embd",
                                        "position_embd",
                                        "token_types",
                                        "attn_rel_b.weight"};
    if (n_dims < 2 || !str_ends(name, STR("weight"))) return true;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (str_find(name, str_from(parts[i]), 0) != (size_t)-1) return true;
    return false;
}

static enum tern_status gguf_tensors_take(struct model_export *x, struct tern_err *err) {
    const struct model *m = x->model;
    for (int i = 0; i < m->n_tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        struct model_export_tensor *e = &x->tensors[x->n_tensors++];
        *e = (struct model_export_tensor){.name = t->name, .from = t, .n_dims = t->n_dims};
        memcpy(e->ne, t->ne, sizeof e->ne);
        if (t->name.len > GGUF_TENSOR_NAME_MAX)
            return err_set(err, TERN_LIMIT, "tensor name %.*s is longer than %d bytes", SHOW(t->name),
                           GGUF_TENSOR_NAME_MAX);
    }
    return TERN_OK;
}

static enum tern_status export_fill(struct model_export *x, struct tern_err *err) {
    const struct model_source *s = x->model->source;
    x->align = model_is_gguf(x->model) ? s->gguf.align : GGUF_ALIGN_DEFAULT;
    // One more than the source has: the RoPE divisors of a folder may be a tensor here.
    x->tensors = arena_calloc(&x->arena, (size_t)x->model->n_tensors + 1, sizeof *x->tensors);
    if (!x->tensors) return err_set(err, TERN_NO_MEMORY, "no memory for a table of %d tensors", x->model->n_tensors);
    TRY(model_is_gguf(x->model) ? gguf_tensors_take(x, err) : gguf_write_hf_tensors(x, err));
    for (int i = 0; i < x->n_tensors; i++) {
        struct model_export_tensor *t = &x->tensors[i];
        t->n_rows = 1;
        for (int d = 1; d < t->n_dims; d++) t->n_rows *= t->ne[d]; // checked by table_entry_bytes
        t->is_small = t->is_small || name_is_small(t->name, t->n_dims);
        t->format = t->is_small || !t->from ? FORMAT_F32 : t->from->format;
    }
    return TERN_OK;
}

bool model_is_gguf(const struct model *m) { return m->source->kind == SOURCE_GGUF; }

enum tern_status model_export_create(struct model_export **out, const struct model *m,
                                     const struct model_export_vocab *vocab, struct tern_err *err) {
    struct tern_err local;
    if (!err) err = &local;
    struct model_export *x = mem_calloc(1, sizeof *x);
    if (!x) return err_set(err, TERN_NO_MEMORY, "no memory to write a model");
    arena_init(&x->arena, 0);
    x->model = m;
    if (vocab) x->vocab = *vocab;
    enum tern_status status = export_fill(x, err);
    if (status == TERN_OK)
        *out = x;
    else
        model_export_free(x);
    return status;
}

void model_export_free(struct model_export *x) {
    if (!x) return;
    arena_release(&x->arena);
    mem_free(x);
}

// Half-split pairs (i, i + d/2) become neighbours (2i, 2i + 1).
const struct tensor *model_export_row(const struct model_export_tensor *t, int64_t row, int64_t *from_row) {
    *from_row = row;
    if (t->experts) {
        *from_row = row % t->ne[1];
        return t->experts[row / t->ne[1]];
    }
    if (t->head_dim == 0) return t->from;
    const int64_t head = row / t->head_dim, i = row % t->head_dim;
    *from_row = head * t->head_dim + i % 2 * (t->head_dim / 2) + i / 2;
    return t->from;
}
