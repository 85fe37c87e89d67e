// POST /v1/embeddings: vectors of texts, from models that read in both directions.
#include "base/base.h"
#include "serve_parts.h"

struct embed_ask {
    struct serve_ask ask; // first, as in serve_text.c
    struct str encoding;
    int64_t dimensions;
};
#define EMBED_FIELD(name_, kind_, member_, lo_, hi_) \
    { name_, kind_, offsetof(struct embed_ask, member_), lo_, hi_, 0, 0 }

static const struct serve_field fields[] = {EMBED_FIELD("model", SERVE_FIELD_STR, ask.model, 0, 0),
                                            EMBED_FIELD("input", SERVE_FIELD_RAW, ask.input, 0, 0),
                                            EMBED_FIELD("encoding_format", SERVE_FIELD_STR, encoding, 0, 0),
                                            EMBED_FIELD("dimensions", SERVE_FIELD_INT, dimensions, 1, 1 << 20),
                                            {0}};

static void base64_put(struct buf *b, const uint8_t *data, size_t len) {
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        size_t n = MIN(len - i, (size_t)3);
        uint32_t v = (uint32_t)data[i] << 16;
        if (n > 1) v |= (uint32_t)data[i + 1] << 8;
        if (n > 2) v |= data[i + 2];
        buf_putc(b, set[v >> 18 & 63]);
        buf_putc(b, set[v >> 12 & 63]);
        buf_putc(b, n > 1 ? set[v >> 6 & 63] : '=');
        buf_putc(b, n > 2 ? set[v & 63] : '=');
    }
}

static void vector_put(struct json_writer *w, const float *v, int n, bool base64) {
    if (!base64) {
        json_write_array(w);
        for (int i = 0; i < n; i++) json_write_f64(w, (double)v[i]);
        json_write_array_end(w);
        return;
    }
    struct buf text;
    buf_init(&text, (size_t)n * 8 + 16);
    base64_put(&text, (const uint8_t *)v, (size_t)n * sizeof *v); // little-endian, as every machine tern runs on
    json_write_str(w, buf_str(&text));
    buf_release(&text);
}

struct input { // a text, or ids
    struct str text;
    int32_t *ids;
    size_t n_ids;
};
struct inputs {
    struct serve_ask *a;
    const struct serve_model *m;
    struct input items[SERVE_PROMPTS_MAX];
    int n;
};

static bool input_take(void *arg, struct str raw, int i) {
    struct inputs *in = arg;
    struct input *one = &in->items[i];
    in->n = i + 1;
    if (raw.data[0] == '[') {
        if (!serve_ids_read(in->a, raw, "input", in->m->info.n_vocab, &one->ids, &one->n_ids)) return false;
        return one->n_ids > 0 || serve_bad(in->a, "input", "input holds an empty list of ids");
    }
    return (raw.data[0] == '"' && serve_string_read(in->a, raw, &one->text)) ||
           serve_bad(in->a, "input", "input must be a text, a list of token ids, or a list of these");
}

// A list that begins with a number is one input.
static bool inputs_take(struct inputs *in, struct str raw) {
    if (raw.len == 0) return serve_bad(in->a, "input", "input is missing: a text or a list of texts");
    const struct str first = raw.data[0] == '[' ? str_trim((struct str){raw.data + 1, raw.len - 1}) : raw;
    const bool ids = first.len > 0 && (first.data[0] == '-' || (first.data[0] >= '0' && first.data[0] <= '9'));
    if (raw.data[0] != '[' || ids) return input_take(in, raw, 0);
    if (!serve_list_each(in->a, raw, "input", SERVE_PROMPTS_MAX, input_take, in)) return false;
    return in->n > 0 || serve_bad(in->a, "input", "input is an empty list");
}

static enum tern_status input_embed(const struct serve_model *m, const struct input *one, float *v, int64_t *n_tokens,
                                    struct tern_err *err) {
    const size_t n = (size_t)m->info.n_embd;
    *n_tokens += one->ids ? (int64_t)one->n_ids
                          : MAX(tern_tokenize(m->engine, serve_str(one->text), true, false, NULL, 0, NULL), 0);
    return one->ids ? tern_embed_ids(m->engine, one->ids, one->n_ids, TERN_POOL_MEAN, v, n, err)
                    : tern_embed(m->engine, serve_str(one->text), TERN_POOL_MEAN, v, n, err);
}

static void vectors_answer(struct net_request *r, const struct inputs *in, bool base64) {
    struct tern_err err = {0};
    const struct serve_model *m = in->m;
    int n_embd = m->info.n_embd;
    float *v = mem_calloc((size_t)n_embd, sizeof *v);
    enum tern_status status = v ? TERN_OK : err_set(&err, TERN_NO_MEMORY, "no memory for a vector");
    int64_t n_tokens = 0;
    struct buf out;
    buf_init(&out, SERVE_TEXT_BYTES_MAX);
    struct json_writer w;
    json_write_init(&w, &out);
    json_write_object(&w);
    json_write_key(&w, "object");
    json_write_str(&w, STR("list"));
    json_write_key(&w, "data");
    json_write_array(&w);
    for (int i = 0; i < in->n; i++) {
        if (status == TERN_OK) status = input_embed(m, &in->items[i], v, &n_tokens, &err);
        if (status != TERN_OK) break;
        json_write_object(&w);
        json_write_key(&w, "object");
        json_write_str(&w, STR("embedding"));
        json_write_key(&w, "index");
        json_write_int(&w, i);
        json_write_key(&w, "embedding");
        vector_put(&w, v, n_embd, base64);
        json_write_object_end(&w);
    }
    mem_free(v);
    if (status != TERN_OK) {
        struct serve_fault f = {0};
        serve_fault_from(&f, status, &err, status == TERN_UNSUPPORTED ? "model" : "input");
        serve_fail(r, &f);
        buf_release(&out);
        return;
    }
    json_write_array_end(&w);
    json_write_key(&w, "model");
    json_write_str(&w, str_from(m->id));
    json_write_key(&w, "usage");
    json_write_object(&w);
    json_write_key(&w, "prompt_tokens");
    json_write_int(&w, n_tokens);
    json_write_key(&w, "total_tokens");
    json_write_int(&w, n_tokens);
    json_write_object_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

void serve_embeddings(struct serve *s, struct net_request *r) {
    struct embed_ask e = {.dimensions = SERVE_UNSET};
    const struct serve_model *m = serve_model_of(s, r);
    serve_ask_init(&e.ask, s);
    struct inputs in = {.a = &e.ask, .m = m};
    bool ok = serve_fields_read(&e.ask, r->body, "", fields) && inputs_take(&in, e.ask.input);
    bool base64 = str_eqz(e.encoding, "base64");
    if (ok && e.encoding.len > 0 && !base64 && !str_eqz(e.encoding, "float"))
        ok = serve_bad(&e.ask, "encoding_format", "encoding_format is float or base64");
    if (ok && e.dimensions != SERVE_UNSET && e.dimensions != m->info.n_embd)
        ok =
            serve_bad(&e.ask, "dimensions", "the model's vectors have %d dimensions; they are not cut", m->info.n_embd);
    if (!ok) serve_fail(r, &e.ask.fault);
    if (ok && serve_model_check(s, r, e.ask.model)) vectors_answer(r, &in, base64);
    serve_ask_release(&e.ask);
}
