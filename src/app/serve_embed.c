// POST /v1/embeddings: vectors of texts, from models that read in both directions.
#include "base/base.h"
#include "serve.h"

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

// Texts of `input` into texts[]; ids become the text that they stand for.
static bool inputs_take(struct serve *s, struct embed_ask *e, struct str texts[SERVE_PROMPTS_MAX], int *n) {
    struct serve_ask *a = &e->ask;
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    (void)s;
    *n = 0;
    if (a->input.len == 0) return serve_bad(a, "input", "input is missing: a text or a list of texts");
    if (json_create(&j, a->input, NULL, &err) != TERN_OK) return serve_bad(a, "input", "%s", err.message);
    bool ok = true, list = json_next(j, &item, &err) == JSON_ARRAY;
    while (ok && (!list || json_next(j, &item, &err) != JSON_ARRAY_END)) {
        if (item.event != JSON_STRING)
            ok = serve_bad(a, "input", "input must be a text or a list of texts");
        else if (*n == SERVE_PROMPTS_MAX)
            ok = serve_bad(a, "input", "input holds more than %d texts", SERVE_PROMPTS_MAX);
        else if (!(texts[*n].data = serve_ask_dup(a, item.text)))
            ok = false;
        else
            texts[(*n)++].len = item.text.len;
        if (!list) break;
    }
    json_free(j);
    if (ok && *n == 0) ok = serve_bad(a, "input", "input is an empty list");
    return ok;
}

static void vectors_answer(struct serve *s, struct net_request *r, const struct str *texts, int n, bool base64) {
    struct tern_err err = {0};
    const struct serve_model *m = serve_model_of(s, r);
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
    for (int i = 0; i < n && status == TERN_OK; i++) {
        status = tern_embed(m->engine, serve_str(texts[i]), TERN_POOL_MEAN, v, (size_t)n_embd, &err);
        if (status != TERN_OK) break;
        n_tokens += tern_tokenize(m->engine, serve_str(texts[i]), true, false, NULL, 0, NULL);
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
    struct str texts[SERVE_PROMPTS_MAX] = {0};
    int n = 0;
    bool ok = serve_fields_read(&e.ask, r->body, "", fields) && inputs_take(s, &e, texts, &n);
    bool base64 = str_eqz(e.encoding, "base64");
    if (ok && e.encoding.len > 0 && !base64 && !str_eqz(e.encoding, "float"))
        ok = serve_bad(&e.ask, "encoding_format", "encoding_format is float or base64");
    if (ok && e.dimensions != SERVE_UNSET && e.dimensions != m->info.n_embd)
        ok =
            serve_bad(&e.ask, "dimensions", "the model's vectors have %d dimensions; they are not cut", m->info.n_embd);
    if (!ok) serve_fail(r, &e.ask.fault);
    if (ok && serve_model_check(s, r, e.ask.model)) vectors_answer(s, r, texts, n, base64);
    serve_ask_release(&e.ask);
}
