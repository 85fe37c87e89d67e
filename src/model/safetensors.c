// safetensors: 8 bytes of header length, a JSON object of tensors, the data (github.com/huggingface/safetensors).
//
// Stricter than most readers, as strict as the reference one: the object starts at once, only blanks pad it, names are
// unique, offsets leave no hole and no byte over, sizes equal shape times element. An entry of zero values is accepted
// and never stands for another tensor's bytes.
#include "base/base.h"
#include "model/model_int.h"

#define SAFETENSORS_JSON_DEPTH_MAX 8

static const struct dtype {
    const char *name;
    enum format format;
    bool supported;
} dtypes[] = {
    {"F32", FORMAT_F32, true},
    {"F16", FORMAT_F16, true},
    {"BF16", FORMAT_BF16, true},
    {"F64", FORMAT_COUNT, false},
    {"I64", FORMAT_COUNT, false},
    {"I32", FORMAT_COUNT, false},
    {"I16", FORMAT_COUNT, false},
    {"I8", FORMAT_COUNT, false},
    {"U64", FORMAT_COUNT, false},
    {"U32", FORMAT_F32, true},
    /* as large; what its bits mean is told by hf_mlx.c */ {"U16", FORMAT_COUNT, false},
    {"U8", FORMAT_COUNT, false},
    {"BOOL", FORMAT_COUNT, false},
    {"F8_E4M3", FORMAT_COUNT, false},
    {"F8_E5M2", FORMAT_COUNT, false},
    {"F8_E8M0", FORMAT_COUNT, false},
    {"F6_E2M3", FORMAT_COUNT, false},
    {"F6_E3M2", FORMAT_COUNT, false},
    {"F4", FORMAT_COUNT, false},
    {"C64", FORMAT_COUNT, false},
};

// One entry's fields; `name` lives in the arena.
struct entry {
    struct table_entry e;
    uint64_t begin, end;
    bool has_dtype, has_shape, has_offsets;
};

// Positions are the file's: the JSON begins at byte 8.
static enum tern_status bad(const struct entry *x, size_t pos, const char *what, struct tern_err *err) {
    return err_set_at(err, TERN_BAD_FORMAT, (int64_t)pos + 8, "tensor %.*s: %s", SHOW(x->e.name), what);
}

static enum tern_status dtype_read(struct json *j, struct entry *x, struct tern_err *err) {
    struct json_item it;
    TRY(json_step(j, &it, err));
    if (it.event != JSON_STRING) return bad(x, it.pos, "dtype must be a string", err);
    x->has_dtype = true;
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        if (!str_eqz(it.text, dtypes[i].name)) continue;
        if (!dtypes[i].supported)
            return err_set_at(err, TERN_UNSUPPORTED, (int64_t)it.pos + 8,
                              "tensor %.*s has dtype %s, which is not supported", SHOW(x->e.name), dtypes[i].name);
        x->e.format = dtypes[i].format;
        x->e.is_codes = str_eqz(it.text, "U32");
        return TERN_OK;
    }
    return err_set_at(err, TERN_BAD_FORMAT, (int64_t)it.pos + 8, "tensor %.*s has unknown dtype %.*s", SHOW(x->e.name),
                      SHOW(it.text));
}

// A list of n_max non-negative integers at most into out; *n is how many there were.
static enum tern_status list_read(struct json *j, const struct entry *x, const char *what, uint64_t *out, int n_max,
                                  int *n, struct tern_err *err) {
    struct json_item it;
    char text[96];
    TRY(json_step(j, &it, err));
    snprintf(text, sizeof(text), "%s must be a list of non-negative integers", what);
    if (it.event != JSON_ARRAY) return bad(x, it.pos, text, err);
    for (*n = 0;; (*n)++) {
        TRY(json_step(j, &it, err));
        if (it.event == JSON_ARRAY_END) return TERN_OK;
        if (it.event != JSON_NUMBER || !it.is_int || it.integer < 0) return bad(x, it.pos, text, err);
        if (*n == n_max) {
            snprintf(text, sizeof(text), "%s has more than %d items", what, n_max);
            return bad(x, it.pos, text, err);
        }
        out[*n] = (uint64_t)it.integer;
    }
}

static enum tern_status field_read(struct json *j, struct entry *x, const struct json_item *key, struct tern_err *err) {
    if (str_eqz(key->text, "dtype")) return dtype_read(j, x, err);
    if (str_eqz(key->text, "shape")) {
        uint64_t shape[MODEL_DIMS_MAX];
        TRY(list_read(j, x, "shape (dimensions)", shape, MODEL_DIMS_MAX, &x->e.n_dims, err));
        for (int i = 0; i < x->e.n_dims; i++) x->e.ne[i] = shape[x->e.n_dims - 1 - i]; // the last varies fastest
        x->has_shape = true;
        return TERN_OK;
    }
    if (str_eqz(key->text, "data_offsets")) {
        uint64_t range[2];
        int n;
        TRY(list_read(j, x, "data_offsets", range, 2, &n, err));
        if (n != 2) return bad(x, key->pos, "data_offsets must have two items", err);
        x->begin = range[0];
        x->end = range[1];
        x->has_offsets = true;
        return TERN_OK;
    }
    return err_set_at(err, TERN_BAD_FORMAT, (int64_t)key->pos + 8, "tensor %.*s has an unknown field %.*s",
                      SHOW(x->e.name), SHOW(key->text));
}

static enum tern_status entry_read(struct json *j, struct entry *x, struct tern_err *err) {
    struct json_item it;
    TRY(json_step(j, &it, err));
    if (it.event != JSON_OBJECT) return bad(x, it.pos, "its entry must be an object", err);
    for (;;) {
        TRY(json_step(j, &it, err));
        if (it.event == JSON_OBJECT_END) break;
        TRY(field_read(j, x, &it, err));
    }
    if (!x->has_dtype || !x->has_shape || !x->has_offsets)
        return bad(x, it.pos, "its entry lacks dtype, shape or data_offsets", err);
    if (x->begin > x->end) return bad(x, it.pos, "data_offsets are reversed", err);
    uint64_t n_bytes;
    TRY(table_entry_bytes(&x->e, &n_bytes, err));
    if (x->end - x->begin != n_bytes)
        return err_set_at(err, TERN_BAD_FORMAT, x->e.pos,
                          "tensor %.*s: data_offsets hold %llu bytes, its shape needs %llu", SHOW(x->e.name),
                          (unsigned long long)(x->end - x->begin), (unsigned long long)n_bytes);
    x->e.offset = x->begin;
    return TERN_OK;
}

static enum tern_status metadata_read(struct json *j, struct tern_err *err) {
    struct json_item it;
    TRY(json_step(j, &it, err));
    if (it.event == JSON_NULL) return TERN_OK;
    for (bool is_object = it.event == JSON_OBJECT; is_object;) {
        TRY(json_step(j, &it, err));
        if (it.event == JSON_OBJECT_END) return TERN_OK;
        TRY(json_step(j, &it, err));
        if (it.event != JSON_STRING) break;
    }
    return err_set_at(err, TERN_BAD_FORMAT, (int64_t)it.pos + 8, "__metadata__ must be an object of strings");
}

// Pass 0 counts the tensors, pass 1 checks and places them.
static enum tern_status header_pass(struct model_source *s, int shard, struct str text, bool place, int *n,
                                    struct tern_err *err) {
    struct json_options options = {
        .depth_max = SAFETENSORS_JSON_DEPTH_MAX, .size_max = MODEL_SAFETENSORS_HEADER_MAX, .dup_check = place};
    struct json *j;
    struct json_item it;
    enum tern_status status;
    TRY(json_create(&j, text, &options, err));
    TRY_GOTO(json_expect(j, JSON_OBJECT, &it, "the header", err), done);
    for (*n = 0;;) {
        status = json_step(j, &it, err);
        if (status != TERN_OK || it.event == JSON_OBJECT_END) break;
        if (str_eqz(it.text, "__metadata__")) {
            TRY_GOTO(metadata_read(j, err), done);
            continue;
        }
        if (!place) {
            if (++*n > MODEL_TENSORS_MAX) {
                status = err_set_at(err, TERN_LIMIT, (int64_t)it.pos + 8, "more than %d tensors", MODEL_TENSORS_MAX);
                goto done;
            }
            TRY_GOTO(json_skip(j, err), done);
            continue;
        }
        struct entry x = {.e = {.shard = shard, .pos = (int64_t)it.pos + 8}};
        TRY_GOTO(name_check(it.text, SAFETENSORS_NAME_MAX, "a tensor name", x.e.pos, err), done);
        TRY_GOTO(source_strdup(s, &x.e.name, it.text, err), done);
        TRY_GOTO(entry_read(j, &x, err), done);
        TRY_GOTO(table_add(s, &x.e, err), done);
    }
    if (status == TERN_OK) status = json_step(j, &it, err); // nothing may follow
done:
    json_free(j);
    if (status != TERN_OK && str_starts(str_from(err->message), STR("JSON"))) err_prefix(err, "header");
    return status;
}

enum tern_status safetensors_parse(struct model_source *s, int shard, struct tern_err *err) {
    struct model_file *f = &s->files[shard];
    if (f->size < 8)
        return err_set_at(err, TERN_BAD_FORMAT, 0, "the file has %zu bytes, too few for a safetensors header", f->size);
    uint64_t len = load_u64(f->data);
    if (len > f->size - 8 || len > MODEL_SAFETENSORS_HEADER_MAX) {
        if (file_kind_get(f->data, f->size) == FILE_GGUF) return err_set(err, TERN_BAD_FORMAT, "this is a GGUF file");
        if (len <= MODEL_SAFETENSORS_HEADER_MAX)
            return err_set_at(err, TERN_BAD_FORMAT, 0,
                              "header of %llu bytes, but %zu follow: %llu bytes are missing (truncated download?)",
                              (unsigned long long)len, f->size - 8, (unsigned long long)(len - (f->size - 8)));
        return err_set_at(err, TERN_BAD_FORMAT, 0, "header of %llu bytes, at most %u are read", (unsigned long long)len,
                          MODEL_SAFETENSORS_HEADER_MAX);
    }
    struct str text = {(const char *)f->data + 8, (size_t)len};
    while (text.len && text.data[text.len - 1] == ' ') text.len--;
    if (text.len == 0 || text.data[0] != '{')
        return err_set_at(err, TERN_BAD_FORMAT, 8, "the header is not a JSON object");
    if (text.data[text.len - 1] != '}')
        return err_set_at(err, TERN_BAD_FORMAT, 8 + (int64_t)text.len, "the header does not end with its JSON object");
    f->header_len = 8 + (size_t)len;
    int n, first = s->n_tensors;
    enum tern_status status = header_pass(s, shard, text, false, &n, err);
    if (status == TERN_OK) status = table_reserve(s, n, err);
    if (status == TERN_OK) status = header_pass(s, shard, text, true, &n, err);
    if (status == TERN_OK) status = table_check_ranges(s, shard, first, SOURCE_SAFETENSORS, err);
    return status;
}
