// POST /v1/embeddings, /embedding and /embeddings: vectors of texts, from models that read in both directions.
//
// /embedding is llama-server's own form, `content` and a list of lists. /embeddings is that form with `content` and
// OpenAI's with `input`: clients whose base URL lacks the /v1 come here too.
//
// Smaller `dimensions`: the first numbers, scaled to length 1 again, with a notice. No file format says whether a model
// was trained for this (Matryoshka), so it is the client's to know.
#include "base/base.h"
#include "serve_parts.h"

#include <math.h>

#define NORM_MAX 100        // of embd_normalize
#define NORM_INT16 32760.0f // the largest number of embd_normalize 0

struct embed_ask {
    struct serve_ask ask; // first, as in serve_text.c
    struct str encoding;
    struct str content; // raw
    int64_t normalize;  // llama-server's: 0 by the largest number, 1 and more by that norm
    bool native;        // llama-server's form
};
#define EMBED_FIELD(name_, kind_, member_, lo_, hi_) \
    { name_, kind_, offsetof(struct embed_ask, member_), lo_, hi_, 0, 0 }

static const struct serve_field fields[] = {EMBED_FIELD("model", SERVE_FIELD_STR, ask.model, 0, 0),
                                            EMBED_FIELD("input", SERVE_FIELD_RAW, ask.input, 0, 0),
                                            EMBED_FIELD("encoding_format", SERVE_FIELD_STR, encoding, 0, 0),
                                            EMBED_FIELD("dimensions", SERVE_FIELD_INT, ask.dimensions, 1, 1 << 20),
                                            EMBED_FIELD("content", SERVE_FIELD_RAW, content, 0, 0),
                                            EMBED_FIELD("embd_normalize", SERVE_FIELD_INT, normalize, -1, NORM_MAX),
                                            {0}};

bool serve_dimensions_check(struct serve_ask *a, const struct serve_model *m, int *n_dims) {
    *n_dims = m->info.n_embd;
    if (a->dimensions == SERVE_UNSET || m->service) return true; // a model without vectors says so itself
    if (a->dimensions > m->info.n_embd)
        return serve_bad(a, "dimensions", "dimensions is %lld, but the model's vectors have %d",
                         (long long)a->dimensions, m->info.n_embd);
    *n_dims = (int)a->dimensions;
    return true;
}

static void scale(float *v, int n, double by) {
    for (int i = 0; i < n; i++) v[i] = (float)((double)v[i] * by);
}

void serve_vector_cut(float *v, int n, int n_dims) {
    double sum = 0;
    if (n_dims == n) return;
    for (int i = 0; i < n_dims; i++) sum += (double)v[i] * (double)v[i];
    if (sum > 0) scale(v, n_dims, 1 / sqrt(sum));
}

// Of length 1 by another norm.
static void normalize(float *v, int n, int64_t norm) {
    double sum = 0, max = 0;
    for (int i = 0; i < n; i++) {
        max = MAX(max, fabs((double)v[i]));
        if (norm > 2 || norm == 1) sum += pow(fabs((double)v[i]), (double)norm);
    }
    if (norm == 0 && max > 0) scale(v, n, (double)NORM_INT16 / max);
    if (norm != 0 && norm != 2 && sum > 0) scale(v, n, 1 / pow(sum, 1 / (double)norm));
}

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
    const char *name; // of the field
    struct input items[SERVE_PROMPTS_MAX];
    int n;
};

static bool input_take(void *arg, struct str raw, int i) {
    struct inputs *in = arg;
    struct input *one = &in->items[i];
    in->n = i + 1;
    if (raw.data[0] == '[') {
        if (!serve_ids_read(in->a, raw, in->name, in->m->info.n_vocab, &one->ids, &one->n_ids)) return false;
        return one->n_ids > 0 || serve_bad(in->a, in->name, "%s holds an empty list of ids", in->name);
    }
    return (raw.data[0] == '"' && serve_string_read(in->a, raw, &one->text)) ||
           serve_bad(in->a, in->name, "%s must be a text, a list of token ids, or a list of these", in->name);
}

// A list that begins with a number is one input.
static bool inputs_take(struct inputs *in, struct str raw) {
    if (raw.len == 0) return serve_bad(in->a, in->name, "%s is missing: a text or a list of texts", in->name);
    const struct str first = raw.data[0] == '[' ? str_trim((struct str){raw.data + 1, raw.len - 1}) : raw;
    const bool ids = first.len > 0 && (first.data[0] == '-' || (first.data[0] >= '0' && first.data[0] <= '9'));
    if (raw.data[0] != '[' || ids) return input_take(in, raw, 0);
    if (!serve_list_each(in->a, raw, in->name, SERVE_PROMPTS_MAX, input_take, in)) return false;
    return in->n > 0 || serve_bad(in->a, in->name, "%s is an empty list", in->name);
}

static enum tern_status input_embed(const struct serve_model *m, const struct input *one, float *v, int64_t *n_tokens,
                                    struct tern_err *err) {
    const size_t n = (size_t)m->info.n_embd;
    *n_tokens += one->ids ? (int64_t)one->n_ids
                          : MAX(tern_tokenize(m->engine, serve_str(one->text), true, false, NULL, 0, NULL), 0);
    return one->ids ? tern_embed_ids(m->engine, one->ids, one->n_ids, TERN_POOL_MEAN, v, n, err)
                    : tern_embed(m->engine, serve_str(one->text), TERN_POOL_MEAN, v, n, err);
}

static void native_put(struct json_writer *w, const float *v, int n, int i) {
    json_write_object(w);
    serve_put_int(w, "index", i);
    json_write_key(w, "embedding");
    json_write_array(w);
    vector_put(w, v, n, false);
    json_write_array_end(w);
    json_write_object_end(w);
}

static void openai_put(struct json_writer *w, const float *v, int n, int i, bool base64) {
    json_write_object(w);
    serve_put_text(w, "object", "embedding");
    serve_put_int(w, "index", i);
    json_write_key(w, "embedding");
    vector_put(w, v, n, base64);
    json_write_object_end(w);
}

static enum tern_status vectors_put(struct json_writer *w, const struct embed_ask *e, const struct inputs *in,
                                    int n_dims, int64_t *n_tokens, struct tern_err *err) {
    const int n_embd = in->m->info.n_embd;
    const bool base64 = str_eqz(e->encoding, "base64");
    float *v = mem_calloc((size_t)n_embd, sizeof *v);
    enum tern_status status = v ? TERN_OK : err_set(err, TERN_NO_MEMORY, "no memory for a vector");
    json_write_array(w);
    for (int i = 0; i < in->n && status == TERN_OK; i++) {
        status = input_embed(in->m, &in->items[i], v, n_tokens, err);
        if (status != TERN_OK) break;
        serve_vector_cut(v, n_embd, n_dims);
        if (e->native) normalize(v, n_dims, e->normalize);
        if (e->native)
            native_put(w, v, n_dims, i);
        else
            openai_put(w, v, n_dims, i, base64);
    }
    json_write_array_end(w);
    mem_free(v);
    return status;
}

static void vectors_answer(struct net_request *r, const struct embed_ask *e, const struct inputs *in, int n_dims) {
    struct tern_err err = {0};
    const struct serve_model *m = in->m;
    int64_t n_tokens = 0;
    struct buf out;
    struct json_writer w;
    buf_init(&out, SERVE_TEXT_BYTES_MAX);
    json_write_init(&w, &out);
    if (!e->native) {
        json_write_object(&w);
        serve_put_text(&w, "object", "list");
        json_write_key(&w, "data");
    }
    const enum tern_status status = vectors_put(&w, e, in, n_dims, &n_tokens, &err);
    if (status != TERN_OK) {
        struct serve_fault f = {0};
        serve_fault_from(&f, status, &err, status == TERN_UNSUPPORTED ? "model" : in->name);
        serve_fail(r, &f);
        buf_release(&out);
        return;
    }
    if (!e->native) {
        serve_put_text(&w, "model", m->id);
        if (n_dims < m->info.n_embd) serve_put_text(&w, "notice", SERVE_DIMENSIONS_NOTICE);
        json_write_key(&w, "usage");
        json_write_object(&w);
        serve_put_int(&w, "prompt_tokens", n_tokens);
        serve_put_int(&w, "total_tokens", n_tokens);
        json_write_object_end(&w);
        json_write_object_end(&w);
    }
    serve_reply_json(r, &out);
}

static bool native_read(struct embed_ask *e, bool native, bool either) {
    struct serve_ask *a = &e->ask;
    const bool both = e->content.len > 0 && a->input.len > 0;
    e->native = native || (either && e->content.len > 0);
    if (e->native && both) return serve_bad(a, "content", "content and input are both given; they mean the same");
    if (e->native && e->content.len > 0) a->input = e->content;
    return !e->native || e->normalize >= 0 ||
           serve_bad(a, "embd_normalize",
                     "embd_normalize -1: vectors are made of length 1 here, never left as they are");
}

static void embed(struct serve *s, struct net_request *r, bool native, bool either) {
    struct embed_ask e = {.normalize = 2};
    const struct serve_model *m = serve_model_of(s, r);
    int n_dims = 0;
    serve_ask_init(&e.ask, s);
    struct inputs in = {.a = &e.ask, .m = m};
    bool ok = serve_fields_read(&e.ask, r->body, "", fields) && native_read(&e, native, either);
    in.name = e.native ? "content" : "input";
    ok = ok && inputs_take(&in, e.ask.input);
    if (ok && e.encoding.len > 0 && !str_eqz(e.encoding, "base64") && !str_eqz(e.encoding, "float"))
        ok = serve_bad(&e.ask, "encoding_format", "encoding_format is float or base64");
    ok = ok && serve_dimensions_check(&e.ask, m, &n_dims);
    if (!ok) serve_fail(r, &e.ask.fault);
    if (ok && serve_model_check(s, r, e.ask.model)) vectors_answer(r, &e, &in, n_dims);
    serve_ask_release(&e.ask);
}
void serve_embeddings(struct serve *s, struct net_request *r) { embed(s, r, false, false); }
void serve_embedding(struct serve *s, struct net_request *r) { embed(s, r, true, false); }
void serve_embeddings_either(struct serve *s, struct net_request *r) { embed(s, r, false, true); }
