// GGUF: the header and the key table (github.com/ggml-org/ggml docs/gguf.md), versions 2 and 3.
//
// One pass over the bytes. Every count is compared with what is left of the file divided by the smallest record before
// memory is taken for it, so a 24-byte file cannot ask for gigabytes. Values stay where they are in the map; the table
// holds type, count and address. Nested arrays are allowed by the format and used by nobody: refused, not walked.
#include "base/base.h"
#include "model/model_int.h"

#define HEADER_BYTES 24                      // magic, version, number of tensors, number of keys
#define KEY_RECORD_BYTES_MIN (8 + 1 + 4 + 1) // length, one byte, type, one byte of value
#define TENSOR_RECORD_BYTES_MIN (8 + 1 + 4 + 8 + 4 + 8)

const char *const gguf_type_names[GGUF_TYPE_COUNT] = {"uint8",  "int8",    "uint16",  "int16",  "uint32",
                                                      "int32",  "float32", "boolean", "string", "array",
                                                      "uint64", "int64",   "float64"};
const uint8_t gguf_type_bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct reader {
    const uint8_t *data;
    size_t size, pos;
};

static enum tern_status read_need(const struct reader *r, uint64_t n, const char *what, struct tern_err *err) {
    if (n <= r->size - r->pos) return TERN_OK;
    return err_set_at(
        err, TERN_BAD_FORMAT, (int64_t)r->pos,
        "the file ends in its header, inside %s at byte %zu: %llu bytes are missing (truncated download?)", what,
        r->pos, (unsigned long long)(n - (r->size - r->pos)));
}

static enum tern_status read_u32(struct reader *r, uint32_t *out, const char *what, struct tern_err *err) {
    TRY(read_need(r, 4, what, err));
    *out = load_u32(r->data + r->pos);
    r->pos += 4;
    return TERN_OK;
}

static enum tern_status read_u64(struct reader *r, uint64_t *out, const char *what, struct tern_err *err) {
    TRY(read_need(r, 8, what, err));
    *out = load_u64(r->data + r->pos);
    r->pos += 8;
    return TERN_OK;
}

static enum tern_status read_str(struct reader *r, struct str *out, uint64_t len_max, const char *what,
                                 struct tern_err *err) {
    uint64_t len;
    int64_t pos = (int64_t)r->pos;
    TRY(read_u64(r, &len, what, err));
    if (len > len_max)
        return err_set_at(err, TERN_LIMIT, pos, "%s is %llu bytes long, at most %llu are allowed", what,
                          (unsigned long long)len, (unsigned long long)len_max);
    TRY(read_need(r, len, what, err));
    *out = (struct str){(const char *)r->data + r->pos, (size_t)len};
    r->pos += (size_t)len;
    return TERN_OK;
}

static enum tern_status version_check(uint32_t version, struct tern_err *err) {
    if (version == 2 || version == 3) return TERN_OK;
    if (version != 0 && (version & 0xffff) == 0)
        return err_set_at(
            err, TERN_UNSUPPORTED, 4,
            "a byte-swapped (big-endian) GGUF file: its version reads 0x%08x; only little-endian files are "
            "supported",
            version);
    if (version == 1)
        return err_set_at(err, TERN_UNSUPPORTED, 4,
                          "GGUF version 1 is not supported (2 and 3 are): convert the model again");
    if (version == 0) return err_set_at(err, TERN_BAD_FORMAT, 4, "GGUF version 0 does not exist");
    return err_set_at(err, TERN_UNSUPPORTED, 4, "GGUF version %u is not supported (2 and 3 are)", version);
}

// A count that the rest of the file cannot hold, however short its records are.
static enum tern_status count_check(const struct reader *r, uint64_t n, const char *what, uint64_t record_bytes,
                                    int64_t n_max, int64_t pos, struct tern_err *err) {
    uint64_t left = r->size - r->pos, need;
    if (n > left / record_bytes) {
        if (!u64_mul(n, record_bytes, &need)) need = UINT64_MAX;
        return err_set_at(err, TERN_BAD_FORMAT, pos,
                          "the header counts %llu %s, but %llu bytes follow: at least %llu are missing (truncated "
                          "download?)",
                          (unsigned long long)n, what, (unsigned long long)left, (unsigned long long)(need - left));
    }
    if (n > (uint64_t)n_max)
        return err_set_at(err, TERN_LIMIT, pos, "the header counts %llu %s, at most %lld are read",
                          (unsigned long long)n, what, (long long)n_max);
    return TERN_OK;
}

static enum tern_status key_check(struct str key, int64_t pos, struct tern_err *err) {
    if (key.len == 0) return err_set_at(err, TERN_BAD_FORMAT, pos, "a key at byte %lld is empty", (long long)pos);
    for (size_t i = 0; i < key.len; i++) {
        unsigned char c = (unsigned char)key.data[i];
        if (c < 0x20 || c > 0x7e)
            return err_set_at(err, TERN_BAD_FORMAT, pos, "a key at byte %lld holds the byte 0x%02x: keys are ASCII",
                              (long long)pos, c);
    }
    return TERN_OK;
}

static enum tern_status bools_check(const struct gguf_kv *kv, int64_t pos, struct tern_err *err) {
    for (uint64_t i = 0; i < kv->n; i++) {
        if (kv->data[i] > 1)
            return err_set_at(err, TERN_BAD_FORMAT, pos + (int64_t)i, "a boolean holds %u, must be 0 or 1",
                              kv->data[i]);
    }
    return TERN_OK;
}

static enum tern_status array_parse(struct reader *r, struct gguf_kv *kv, struct tern_err *err) {
    uint32_t type;
    int64_t pos = (int64_t)r->pos;
    TRY(read_u32(r, &type, "an array's type", err));
    if (type == GGUF_ARRAY) return err_set_at(err, TERN_UNSUPPORTED, pos, "nested arrays are not supported");
    if (type >= GGUF_TYPE_COUNT)
        return err_set_at(err, TERN_BAD_FORMAT, pos, "array of unknown value type %u (known: 0 to %d)", type,
                          GGUF_TYPE_COUNT - 1);
    kv->item_type = (enum gguf_type)type;
    TRY(read_u64(r, &kv->n, "an array's length", err));
    size_t item_bytes = gguf_type_bytes[type] ? gguf_type_bytes[type] : 8;
    if (kv->n > (r->size - r->pos) / item_bytes)
        return err_set_at(err, TERN_BAD_FORMAT, pos, "array of %llu items is longer than the rest of the file",
                          (unsigned long long)kv->n);
    if (kv->n > MODEL_ARRAY_MAX)
        return err_set_at(err, TERN_LIMIT, pos, "array of %llu items, at most %u are read", (unsigned long long)kv->n,
                          MODEL_ARRAY_MAX);
    kv->data = r->data + r->pos;
    if (type != GGUF_STRING) {
        r->pos += (size_t)kv->n * item_bytes;
        return type == GGUF_BOOL ? bools_check(kv, (int64_t)(kv->data - r->data), err) : TERN_OK;
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        struct str item;
        TRY(read_str(r, &item, MODEL_STRING_BYTES_MAX, "a string of an array", err));
    }
    return TERN_OK;
}

static enum tern_status value_parse(struct reader *r, struct gguf_kv *kv, struct tern_err *err) {
    if (kv->type == GGUF_ARRAY) return array_parse(r, kv, err);
    if (kv->type == GGUF_STRING) {
        struct str value;
        TRY(read_str(r, &value, MODEL_STRING_BYTES_MAX, "a string value", err));
        kv->data = (const uint8_t *)value.data;
        kv->n = value.len;
        return TERN_OK;
    }
    TRY(read_need(r, gguf_type_bytes[kv->type], "a value", err));
    kv->data = r->data + r->pos;
    kv->n = 1;
    r->pos += gguf_type_bytes[kv->type];
    return kv->type == GGUF_BOOL ? bools_check(kv, (int64_t)r->pos - 1, err) : TERN_OK;
}

static enum tern_status key_parse(struct reader *r, struct gguf *g, struct tern_err *err) {
    struct gguf_kv *kv = &g->keys[g->n_keys];
    int64_t pos = (int64_t)r->pos;
    uint32_t type;
    TRY(read_str(r, &kv->key, GGUF_KEY_BYTES_MAX, "a key", err));
    TRY(key_check(kv->key, pos, err));
    if (name_index_add(&g->index, (uint32_t)g->n_keys) >= 0)
        return err_set_at(err, TERN_BAD_FORMAT, pos, "duplicate key %.*s", SHOW(kv->key));
    TRY(read_u32(r, &type, "a key's value type", err));
    if (type >= GGUF_TYPE_COUNT)
        return err_set_at(err, TERN_BAD_FORMAT, (int64_t)r->pos - 4, "key %.*s: unknown value type %u (known: 0 to %d)",
                          SHOW(kv->key), type, GGUF_TYPE_COUNT - 1);
    kv->type = (enum gguf_type)type;
    enum tern_status status = value_parse(r, kv, err);
    if (status != TERN_OK) {
        err_prefix(err, "key %.*s", SHOW(kv->key));
        return status;
    }
    g->n_keys++;
    return TERN_OK;
}

static enum tern_status align_read(struct gguf *g, struct tern_err *err) {
    g->align = GGUF_ALIGN_DEFAULT;
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    if (!kv) return TERN_OK;
    if (kv->type != GGUF_U32)
        return err_set(err, TERN_BAD_FORMAT, "key general.alignment has type %s, must be uint32",
                       gguf_type_names[kv->type]);
    g->align = load_u32(kv->data);
    if (g->align < GGUF_ALIGN_MIN || g->align > GGUF_ALIGN_MAX || (g->align & (g->align - 1)) != 0)
        return err_set(err, TERN_BAD_FORMAT, "general.alignment is %u, must be a power of two from %d to %u", g->align,
                       GGUF_ALIGN_MIN, GGUF_ALIGN_MAX);
    return TERN_OK;
}

enum tern_status gguf_header_parse(struct gguf *g, struct model_source *s, const struct model_file *f,
                                   struct tern_err *err) {
    struct reader r = {.data = f->data, .size = f->size};
    uint64_t n_keys;
    *g = (struct gguf){0};
    if (file_kind_get(f->data, f->size) != FILE_GGUF) {
        if (f->size < 4 || file_kind_get(f->data, f->size) == FILE_OTHER)
            return file_refuse_other(f->data, f->size, err);
        return err_set_at(err, TERN_BAD_FORMAT, 0, "not a GGUF file (bad magic)");
    }
    r.pos = 4;
    TRY(read_u32(&r, &g->version, "the version", err));
    TRY(version_check(g->version, err));
    TRY(read_u64(&r, &g->n_tensors, "the tensor count", err));
    TRY(read_u64(&r, &n_keys, "the key count", err));
    TRY(count_check(&r, g->n_tensors, "tensors", TENSOR_RECORD_BYTES_MIN, MODEL_TENSORS_MAX, 8, err));
    TRY(count_check(&r, n_keys, "keys", KEY_RECORD_BYTES_MIN, MODEL_KEYS_MAX, 16, err));
    TRY(source_alloc(s, &g->keys, (size_t)n_keys, sizeof(*g->keys), err));
    if (!name_index_init(&g->index, &s->arena, (size_t)n_keys, g->keys, sizeof(*g->keys)))
        return err_set(err, TERN_NO_MEMORY, "out of memory for an index of %llu keys", (unsigned long long)n_keys);
    for (uint64_t i = 0; i < n_keys; i++) TRY(key_parse(&r, g, err));
    g->pos = r.pos;
    return align_read(g, err);
}

// The tensor records follow the keys; they use the same reader.
static enum tern_status tensor_record(struct reader *r, struct table_entry *e, struct tern_err *err) {
    uint32_t n_dims, type;
    e->pos = (int64_t)r->pos;
    TRY(read_str(r, &e->name, GGUF_TENSOR_NAME_MAX, "a tensor name", err));
    TRY(name_check(e->name, GGUF_TENSOR_NAME_MAX, "a tensor name", e->pos, err));
    TRY(read_u32(r, &n_dims, "a tensor's number of dimensions", err));
    if (n_dims < 1 || n_dims > MODEL_DIMS_MAX)
        return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s has %u dimensions, must be 1 to %d", SHOW(e->name),
                          n_dims, MODEL_DIMS_MAX);
    e->n_dims = (int)n_dims;
    for (int i = 0; i < e->n_dims; i++) {
        TRY(read_u64(r, &e->ne[i], "a tensor's dimensions", err));
        if (e->ne[i] == 0)
            return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s: dimension %d is zero", SHOW(e->name), i);
    }
    TRY(read_u32(r, &type, "a tensor's type", err));
    const char *type_name = NULL;
    if (!format_from_gguf(type, &e->format, &type_name)) {
        if (type_name)
            return err_set_at(err, TERN_UNSUPPORTED, e->pos,
                              "tensor %.*s has type %s (%u), which is not supported here: take the same model as "
                              "Q2_K or larger, or quantise it anew",
                              SHOW(e->name), type_name, type);
        return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s has unknown type %u", SHOW(e->name), type);
    }
    return read_u64(r, &e->offset, "a tensor's offset", err);
}

enum tern_status gguf_tensors_parse(struct gguf *g, struct model_source *s, int shard, struct tern_err *err) {
    struct model_file *f = &s->files[shard];
    int first = s->n_tensors;
    TRY(table_reserve(s, (int)g->n_tensors, err));
    // The data begins after the last record, so the records are walked once to find it and once to place them.
    for (int pass = 0; pass < 2; pass++) {
        struct reader r = {.data = f->data, .size = f->size, .pos = g->pos};
        for (uint64_t i = 0; i < g->n_tensors; i++) {
            struct table_entry e = {.shard = shard};
            TRY(tensor_record(&r, &e, err));
            if (e.offset % g->align != 0)
                return err_set_at(err, TERN_BAD_FORMAT, e.pos,
                                  "tensor %.*s: offset %llu is no multiple of the alignment %u", SHOW(e.name),
                                  (unsigned long long)e.offset, g->align);
            if (pass == 1) TRY(table_add(s, &e, err));
        }
        if (!size_align(r.pos, g->align, &f->header_len))
            return err_set_at(err, TERN_BAD_FORMAT, (int64_t)r.pos, "the start of the data overflows");
    }
    return table_check_ranges(s, shard, first, SOURCE_GGUF, err);
}
