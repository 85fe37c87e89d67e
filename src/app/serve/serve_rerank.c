// POST /v1/rerank, /rerank and /v2/rerank: documents in the order of how well they fit a query, in the shape of Jina's
// and Cohere's answers.
//
// What an encoder can give is one vector for each text: a document's score is the cosine between its vector and the
// query's, from -1 to 1, and the answer says so ("method"). A cross-encoder with a trained head would judge better, and
// none is supported; models that generate text give no score at all and are refused.
#include "base/base.h"
#include "serve_parts.h"

#include <stdio.h>
#include <stdlib.h>

#define DOCUMENTS_MAX 256 // of one call

struct rerank_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str query, documents;
    int64_t top_n;
    bool return_documents;
};
#define RERANK_FIELD(name_, kind_, member_, lo_, hi_) \
    { name_, kind_, offsetof(struct rerank_ask, member_), lo_, hi_, 0, 0 }

static const struct serve_field fields[] = {
    RERANK_FIELD("model", SERVE_FIELD_STR, ask.model, 0, 0),
    RERANK_FIELD("query", SERVE_FIELD_STR, query, 0, 0),
    RERANK_FIELD("documents", SERVE_FIELD_RAW, documents, 0, 0),
    RERANK_FIELD("top_n", SERVE_FIELD_INT, top_n, 1, 1e9),
    RERANK_FIELD("return_documents", SERVE_FIELD_BOOL, return_documents, 0, 0),
    {"rank_fields", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "documents are texts here; join their fields into one"},
    {0}};

struct ranked {
    struct str text;
    int index;
    double score;
};
struct ranking {
    struct serve_ask *a;
    struct ranked items[DOCUMENTS_MAX];
    int n;
};

// A string, or {"text": …} as Cohere's older clients send it.
static bool document_take(void *arg, struct str raw, int i) {
    static const struct serve_field parts[] = {PART_FIELD("text", SERVE_FIELD_STR, text), {0}};
    struct ranking *k = arg;
    struct serve_part p = {0};
    char path[SERVE_PATH_MAX];
    snprintf(path, sizeof path, "documents[%d].", i);
    if (raw.len > 0 && raw.data[0] == '{') {
        if (!serve_part_read(k->a, &p, raw, path, parts)) return false;
    } else if (!serve_string_read(k->a, raw, &p.text)) {
        p.text = (struct str){0};
    }
    path[strlen(path) - 1] = 0;
    if (!p.text.data) return serve_bad(k->a, path, "%s must be a text, or an object with a text", path);
    k->items[k->n++] = (struct ranked){.text = p.text, .index = i};
    return true;
}

static int ranked_order(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index - y->index;
}

// The texts' scores; adds up their tokens.
static enum tern_status scores_set(const struct serve_model *m, struct str query, struct ranking *k, int64_t *n_tokens,
                                   struct tern_err *err) {
    const size_t n = (size_t)m->info.n_embd;
    float *v = mem_calloc(2 * n, sizeof *v);
    if (!v) return err_set(err, TERN_NO_MEMORY, "no memory for two vectors");
    enum tern_status status = tern_embed(m->engine, serve_str(query), TERN_POOL_MEAN, v, n, err);
    *n_tokens = status == TERN_OK ? tern_tokenize(m->engine, serve_str(query), true, false, NULL, 0, NULL) : 0;
    for (int i = 0; i < k->n && status == TERN_OK; i++) {
        const struct tern_str text = serve_str(k->items[i].text);
        status = tern_embed(m->engine, text, TERN_POOL_MEAN, v + n, n, err);
        if (status != TERN_OK) break;
        *n_tokens += tern_tokenize(m->engine, text, true, false, NULL, 0, NULL);
        double dot = 0; // both have the length 1
        for (size_t c = 0; c < n; c++) dot += (double)v[c] * (double)v[n + c];
        k->items[i].score = MAX(-1.0, MIN(1.0, dot));
    }
    mem_free(v);
    return status;
}

static void results_reply(struct net_request *r, const struct serve_model *m, const struct ranking *k, int n,
                          bool with_texts, int64_t n_tokens) {
    struct buf out;
    struct json_writer w;
    char id[40];
    serve_id_make(id, sizeof id, "rerank-");
    buf_init(&out, SERVE_TEXT_BYTES_MAX);
    json_write_init(&w, &out);
    json_write_object(&w);
    serve_put_text(&w, "id", id);
    serve_put_text(&w, "object", "list");
    serve_put_text(&w, "model", m->id);
    serve_put_text(&w, "method", "cosine of mean-pooled embeddings");
    json_write_key(&w, "results");
    json_write_array(&w);
    for (int i = 0; i < n; i++) {
        json_write_object(&w);
        serve_put_int(&w, "index", k->items[i].index);
        json_write_key(&w, "relevance_score");
        json_write_f64(&w, k->items[i].score);
        if (with_texts) {
            json_write_key(&w, "document");
            json_write_object(&w);
            serve_put_str(&w, "text", k->items[i].text);
            json_write_object_end(&w);
        }
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_key(&w, "usage");
    json_write_object(&w);
    serve_put_int(&w, "prompt_tokens", n_tokens);
    serve_put_int(&w, "total_tokens", n_tokens);
    json_write_object_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

void serve_rerank(struct serve *s, struct net_request *r) {
    struct rerank_ask q = {.top_n = SERVE_UNSET};
    struct serve_ask *a = &q.ask;
    const struct serve_model *m = serve_model_of(s, r);
    struct ranking *k = mem_calloc(1, sizeof *k);
    struct tern_err err = {0};
    int64_t n_tokens = 0;
    serve_ask_init(a, s);
    bool ok = k != NULL;
    if (!ok) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request; try again");
    ok = ok && serve_fields_read(a, r->body, "", fields);
    if (ok && !q.query.data) ok = serve_bad(a, "query", "query is missing: the text that documents are compared with");
    if (ok && q.documents.len == 0) ok = serve_bad(a, "documents", "documents is missing: a list of texts");
    if (ok) {
        k->a = a;
        ok = serve_list_each(a, q.documents, "documents", DOCUMENTS_MAX, document_take, k);
    }
    if (ok && k->n == 0) ok = serve_bad(a, "documents", "documents is an empty list");
    if (!ok) serve_fail(r, &a->fault);
    ok = ok && serve_model_check(s, r, a->model);
    enum tern_status status = ok ? scores_set(m, q.query, k, &n_tokens, &err) : TERN_OK;
    if (ok && status == TERN_UNSUPPORTED) {
        serve_failf(r, 400, "model", "unsupported",
                    "the model %s generates text; documents are ranked by an encoder, which gives vectors", m->id);
    } else if (ok && status != TERN_OK) {
        struct serve_fault f = {0};
        serve_fault_from(&f, status, &err, "documents");
        serve_fail(r, &f);
    } else if (ok) {
        qsort(k->items, (size_t)k->n, sizeof k->items[0], ranked_order);
        const int n = q.top_n == SERVE_UNSET ? k->n : (int)MIN(q.top_n, (int64_t)k->n);
        results_reply(r, m, k, n, q.return_documents, n_tokens);
    }
    mem_free(k);
    serve_ask_release(a);
}
