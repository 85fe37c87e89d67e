// Typed access to GGUF keys. The stored type is compared with what the consumer needs before a byte is read as it: an
// array of bytes taken for int32 was a heap over-read elsewhere. Integers of any width are accepted where one is meant,
// checked against the consumer's range; floats only where a real number is meant.
#include "base/base.h"
#include "model/model_int.h"

#define KEY_NAME_MAX 160

// "@x" becomes "<architecture>.x".
static const char *key_full(const struct gguf *g, const char *key, char out[KEY_NAME_MAX]) {
    if (key[0] != '@') return key;
    snprintf(out, KEY_NAME_MAX, "%s.%s", g->arch, key + 1);
    return out;
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key) {
    char name[KEY_NAME_MAX];
    int64_t i = name_index_find(&g->index, str_from(key_full(g, key, name)));
    return i < 0 ? NULL : &g->keys[i];
}

static bool type_is_int(enum gguf_type type) {
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL && type != GGUF_STRING && type != GGUF_ARRAY;
}

// False when the value does not fit int64.
static bool item_int(const uint8_t *p, enum gguf_type type, int64_t *out) {
    switch (type) {
    case GGUF_U8: *out = *p; return true;
    case GGUF_I8: *out = (int8_t)*p; return true;
    case GGUF_U16: *out = load_u16(p); return true;
    case GGUF_I16: *out = (int16_t)load_u16(p); return true;
    case GGUF_U32: *out = load_u32(p); return true;
    case GGUF_I32: *out = (int32_t)load_u32(p); return true;
    case GGUF_I64: *out = (int64_t)load_u64(p); return true;
    case GGUF_U64: *out = (int64_t)load_u64(p); return *out >= 0;
    default: TERN_BUG("GGUF type %d is no integer", (int)type);
    }
}

static enum tern_status key_missing(const struct gguf *g, const char *key, struct tern_err *err) {
    char name[KEY_NAME_MAX];
    return err_set(err, TERN_BAD_FORMAT, "key %s is missing", key_full(g, key, name));
}

static enum tern_status key_type(const struct gguf_kv *kv, const char *want, struct tern_err *err) {
    return err_set(err, TERN_BAD_FORMAT, "key %.*s has type %s%s%s, must be %s", SHOW(kv->key),
                   gguf_type_names[kv->type], kv->type == GGUF_ARRAY ? " of " : "",
                   kv->type == GGUF_ARRAY ? gguf_type_names[kv->item_type] : "", want);
}

static enum tern_status int_take(const struct gguf_kv *kv, const uint8_t *p, enum gguf_type type, int64_t min,
                                 int64_t max, int64_t *out, struct tern_err *err) {
    int64_t v;
    if (!item_int(p, type, &v))
        return err_set(err, TERN_BAD_FORMAT, "key %.*s is %llu, must be %lld to %lld", SHOW(kv->key),
                       (unsigned long long)load_u64(p), (long long)min, (long long)max);
    if (v < min || v > max)
        return err_set(err, TERN_BAD_FORMAT, "key %.*s is %lld, must be %lld to %lld", SHOW(kv->key), (long long)v,
                       (long long)min, (long long)max);
    *out = v;
    return TERN_OK;
}

enum tern_status gguf_opt_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                              struct tern_err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return TERN_OK;
    if (!type_is_int(kv->type)) return key_type(kv, "an integer", err);
    return int_take(kv, kv->data, kv->type, min, max, out, err);
}

enum tern_status gguf_need_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                               struct tern_err *err) {
    if (!gguf_find(g, key)) return key_missing(g, key, err);
    return gguf_opt_int(g, key, min, max, out, err);
}

enum tern_status gguf_opt_f64(const struct gguf *g, const char *key, double *out, struct tern_err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return TERN_OK;
    double v;
    if (kv->type == GGUF_F32) {
        v = (double)f32_from_bits(load_u32(kv->data));
    } else if (kv->type == GGUF_F64) {
        memcpy(&v, kv->data, 8);
    } else {
        return key_type(kv, "a float", err);
    }
    if (!(v - v == 0)) return err_set(err, TERN_BAD_FORMAT, "key %.*s is not a finite number", SHOW(kv->key));
    *out = v;
    return TERN_OK;
}

enum tern_status gguf_need_f64(const struct gguf *g, const char *key, double *out, struct tern_err *err) {
    if (!gguf_find(g, key)) return key_missing(g, key, err);
    return gguf_opt_f64(g, key, out, err);
}

enum tern_status gguf_opt_bool(const struct gguf *g, const char *key, int *out, struct tern_err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return TERN_OK;
    if (kv->type != GGUF_BOOL) return key_type(kv, "boolean", err);
    *out = *kv->data;
    return TERN_OK;
}

enum tern_status gguf_opt_str(const struct gguf *g, const char *key, struct str *out, struct tern_err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return TERN_OK;
    if (kv->type != GGUF_STRING) return key_type(kv, "a string", err);
    struct str v = {(const char *)kv->data, (size_t)kv->n};
    if (!utf8_valid(v, NULL)) return err_set(err, TERN_BAD_FORMAT, "key %.*s is not valid UTF-8", SHOW(kv->key));
    *out = v;
    return TERN_OK;
}

enum tern_status gguf_need_ints(const struct gguf *g, const char *key, int64_t min, int64_t max, int *out, int n,
                                struct tern_err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return key_missing(g, key, err);
    int64_t v;
    if (kv->type != GGUF_ARRAY) {
        if (!type_is_int(kv->type)) return key_type(kv, "an integer or an array of integers", err);
        TRY(int_take(kv, kv->data, kv->type, min, max, &v, err));
        for (int i = 0; i < n; i++) out[i] = (int)v;
        return TERN_OK;
    }
    if (!type_is_int(kv->item_type)) return key_type(kv, "an integer or an array of integers", err);
    if (kv->n != (uint64_t)n)
        return err_set(err, TERN_BAD_FORMAT, "key %.*s has %llu items, must have %d (one per layer)", SHOW(kv->key),
                       (unsigned long long)kv->n, n);
    for (int i = 0; i < n; i++) {
        TRY(int_take(kv, kv->data + (size_t)i * gguf_type_bytes[kv->item_type], kv->item_type, min, max, &v, err));
        out[i] = (int)v;
    }
    return TERN_OK;
}

enum tern_status gguf_opt_array(const struct gguf *g, const char *key, enum gguf_type item_type,
                                const struct gguf_kv **out, struct tern_err *err) {
    const struct gguf_kv *kv = gguf_find(g, key);
    *out = NULL;
    if (!kv) return TERN_OK;
    if (kv->type != GGUF_ARRAY || kv->item_type != item_type) {
        char want[48];
        snprintf(want, sizeof(want), "array of %s", gguf_type_names[item_type]);
        return key_type(kv, want, err);
    }
    *out = kv;
    return TERN_OK;
}
