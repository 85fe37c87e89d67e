// The raw metadata of a model as printable text, for `tern show`: GGUF keys in file order, or config.json's fields.
#include "base/base.h"
#include "model/model_int.h"

#define META_VALUE_BYTES 120 // of one string
#define META_ITEMS 8         // of an array
#define META_LINE_MAX 4096

typedef void (*meta_fn)(void *arg, const char *key, const char *type, const char *value);

static void put_scalar(struct buf *b, enum gguf_type type, const uint8_t *p) {
    double d;
    switch (type) {
    case GGUF_U8: buf_putf(b, "%u", *p); return;
    case GGUF_I8: buf_putf(b, "%d", (int8_t)*p); return;
    case GGUF_U16: buf_putf(b, "%u", load_u16(p)); return;
    case GGUF_I16: buf_putf(b, "%d", (int16_t)load_u16(p)); return;
    case GGUF_U32: buf_putf(b, "%u", load_u32(p)); return;
    case GGUF_I32: buf_putf(b, "%d", (int32_t)load_u32(p)); return;
    case GGUF_U64: buf_putf(b, "%llu", (unsigned long long)load_u64(p)); return;
    case GGUF_I64: buf_putf(b, "%lld", (long long)load_u64(p)); return;
    case GGUF_F32: buf_putf(b, "%g", (double)f32_from_bits(load_u32(p))); return;
    case GGUF_F64:
        memcpy(&d, p, 8);
        buf_putf(b, "%g", d);
        return;
    case GGUF_BOOL: buf_puts(b, *p ? "true" : "false"); return;
    default: return;
    }
}

static void put_value(struct buf *b, const struct gguf_kv *kv) {
    if (kv->type == GGUF_STRING) {
        str_put_escaped(b, (struct str){(const char *)kv->data, (size_t)kv->n}, META_VALUE_BYTES);
        return;
    }
    if (kv->type != GGUF_ARRAY) {
        put_scalar(b, kv->type, kv->data);
        return;
    }
    buf_putf(b, "[%llu] ", (unsigned long long)kv->n);
    const uint8_t *p = kv->data;
    for (uint64_t i = 0; i < kv->n && i < META_ITEMS; i++) {
        if (i) buf_puts(b, ", ");
        if (kv->item_type == GGUF_STRING) {
            struct str item = {(const char *)p + 8, (size_t)load_u64(p)};
            str_put_escaped(b, item, META_VALUE_BYTES / 4);
            p += 8 + item.len;
        } else {
            put_scalar(b, kv->item_type, p);
            p += gguf_type_bytes[kv->item_type];
        }
    }
    if (kv->n > META_ITEMS) buf_puts(b, ", …");
}

static const char *text_of(const struct buf *b) { return b->data && !b->failed ? b->data : ""; }

static void gguf_each(const struct gguf *g, meta_fn fn, void *arg) {
    struct buf key, type, value;
    buf_init(&key, META_LINE_MAX);
    buf_init(&type, META_LINE_MAX);
    buf_init(&value, META_LINE_MAX);
    for (int i = 0; i < g->n_keys; i++) {
        const struct gguf_kv *kv = &g->keys[i];
        buf_clear(&key);
        buf_clear(&type);
        buf_clear(&value);
        str_put_escaped(&key, kv->key, META_VALUE_BYTES);
        buf_puts(&type, gguf_type_names[kv->type]);
        if (kv->type == GGUF_ARRAY) buf_putf(&type, " of %s", gguf_type_names[kv->item_type]);
        put_value(&value, kv);
        fn(arg, text_of(&key), text_of(&type), text_of(&value));
    }
    buf_release(&key);
    buf_release(&type);
    buf_release(&value);
}

static const char *json_type(struct str raw) {
    if (raw.len == 0) return "";
    switch (raw.data[0]) {
    case '{': return "object";
    case '[': return "array";
    case '"': return "string";
    case 't':
    case 'f': return "boolean";
    case 'n': return "null";
    default: return "number";
    }
}

// The file was parsed once when the model was opened, so an error here ends the list and nothing else.
static void config_each(const struct model_file *f, meta_fn fn, void *arg) {
    struct json *j;
    struct json_item it;
    struct str raw;
    struct buf key, value;
    if (json_create(&j, (struct str){(const char *)f->data, f->size}, NULL, NULL) != TERN_OK) return;
    buf_init(&key, META_LINE_MAX);
    buf_init(&value, META_LINE_MAX);
    if (json_next(j, &it, NULL) == JSON_OBJECT) {
        while (json_next(j, &it, NULL) == JSON_KEY) {
            buf_clear(&key);
            buf_clear(&value);
            str_put_escaped(&key, it.text, META_VALUE_BYTES);
            if (json_raw(j, &raw, NULL) != TERN_OK) break;
            str_put_escaped(&value, raw, META_VALUE_BYTES);
            fn(arg, text_of(&key), json_type(raw), text_of(&value));
        }
    }
    buf_release(&key);
    buf_release(&value);
    json_free(j);
}

void model_meta_each(const struct model *m, meta_fn fn, void *arg) {
    const struct model_source *s = m->source;
    if (s->kind == SOURCE_GGUF) gguf_each(&s->gguf, fn, arg);
    if (s->config) config_each(s->config, fn, arg);
}
