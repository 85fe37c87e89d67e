// Ollama's routes that tell something: /api/tags, /api/ps, /api/show, /api/version, and /api/embed. What Ollama's
// answers have and tern does not know (digests of its own registry, expiry) is left out, not made up.
#include "base/base.h"
#include "serve_ollama.h"

#include <stdio.h>

struct info_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str name, prompt;
};
#define INFO_FIELD(name_, kind_, member_) \
    { name_, kind_, offsetof(struct info_ask, member_), 0, 0, 0, 0 }

static void details_put(struct json_writer *w, const struct serve *s) {
    char size[32];
    const double n = (double)s->info.n_params;
    snprintf(size, sizeof size, n >= 1e9 ? "%.1fB" : "%.0fM", n >= 1e9 ? n / 1e9 : n / 1e6);
    json_write_key(w, "details");
    json_write_object(w);
    serve_put_text(w, "parent_model", "");
    serve_put_text(w, "format", "gguf");
    serve_put_text(w, "family", s->info.architecture);
    json_write_key(w, "families");
    json_write_array(w);
    json_write_str(w, str_from(s->info.architecture));
    json_write_array_end(w);
    serve_put_text(w, "parameter_size", size);
    serve_put_text(w, "quantization_level", s->info.format);
    json_write_object_end(w);
}

static void model_put(struct json_writer *w, const struct serve *s, const char *name, bool running) {
    char full[200], when[24];
    snprintf(full, sizeof full, "%s%s", name, strchr(name, ':') ? "" : ":latest");
    json_write_object(w);
    serve_put_text(w, "name", full);
    serve_put_text(w, "model", full);
    if (!running) serve_put_text(w, "modified_at", serve_time_text(when, s->begin_s));
    serve_put_int(w, "size", (int64_t)s->info.bytes_weights);
    details_put(w, s);
    if (running) {
        serve_put_int(w, "size_vram", 0);
        serve_put_int(w, "context_length", s->info.n_ctx);
    }
    json_write_object_end(w);
}

static void models_reply(struct serve *s, struct net_request *r, bool running) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 1u << 20);
    json_write_init(&w, &out);
    json_write_object(&w);
    json_write_key(&w, "models");
    json_write_array(&w);
    model_put(&w, s, s->model_id, running);
    for (int i = 0; i < s->o.aliases.n && !running; i++) model_put(&w, s, s->o.aliases.items[i], false);
    json_write_array_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}
void serve_ollama_tags(struct serve *s, struct net_request *r) { models_reply(s, r, false); }
void serve_ollama_ps(struct serve *s, struct net_request *r) { models_reply(s, r, true); }

void serve_ollama_version(struct serve *s, struct net_request *r) {
    struct buf out;
    (void)s;
    const char *version = tern_version(), *end = strchr(version, ' ');
    buf_init(&out, 1024);
    buf_putf(&out, "{\"version\":\"%.*s\"}", end ? (int)(end - version) : (int)strlen(version), version);
    serve_reply_json(r, &out);
}

// Does the model's template show tools at all?
static bool template_has_tools(const struct serve *s) {
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"tern_probe\",\"description\":\"\","
                                "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
    const struct tern_str messages = serve_str(STR("[{\"role\":\"user\",\"content\":\"x\"}]"));
    char text[16384];
    if (!s->info.has_template) return false;
    int64_t n = tern_template_render(s->engine, messages, (struct tern_str){tools, sizeof tools - 1}, true, text,
                                     sizeof text, NULL);
    return n > 0 &&
           str_find((struct str){text, (size_t)MIN(n, (int64_t)sizeof text)}, STR("tern_probe"), 0) != (size_t)-1;
}

static void facts_put(struct json_writer *w, const struct serve *s) {
    const struct {
        const char *key; // behind "<architecture>."
        int64_t value;
    } rows[] = {{"context_length", s->info.n_ctx_model},
                {"embedding_length", s->info.n_embd},
                {"block_count", s->info.n_layers}};
    char key[128];
    json_write_key(w, "model_info");
    json_write_object(w);
    serve_put_text(w, "general.architecture", s->info.architecture);
    serve_put_text(w, "general.basename", s->info.name);
    serve_put_int(w, "general.parameter_count", (int64_t)s->info.n_params);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(key, sizeof key, "%s.%s", s->info.architecture, rows[i].key);
        serve_put_int(w, key, rows[i].value);
    }
    json_write_object_end(w);
}

void serve_ollama_show(struct serve *s, struct net_request *r) {
    static const struct serve_field fields[] = {
        SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), INFO_FIELD("name", SERVE_FIELD_STR, name), {0}};
    struct info_ask q = {0};
    serve_ask_init(&q.ask, s);
    bool ok = serve_fields_read(&q.ask, r->body, "", fields);
    if (!ok) serve_fail(r, &q.ask.fault);
    ok = ok && serve_ollama_model_check(s, r, q.ask.model.len > 0 ? q.ask.model : q.name);
    serve_ask_release(&q.ask);
    if (!ok) return;
    char when[24];
    struct buf out;
    struct json_writer w;
    buf_init(&out, 1u << 20);
    json_write_init(&w, &out);
    json_write_object(&w);
    serve_put_text(&w, "modified_at", serve_time_text(when, s->begin_s));
    details_put(&w, s);
    facts_put(&w, s);
    json_write_key(&w, "capabilities");
    json_write_array(&w);
    json_write_str(&w, s->service ? STR("completion") : STR("embedding"));
    if (s->service && template_has_tools(s)) json_write_str(&w, STR("tools"));
    json_write_array_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

// ------------------------------------------------------------------------------------------------------------ vectors

struct embedding {
    struct serve *s;
    struct serve_ask *a;
    struct json_writer w;
    float *v;
    int64_t n_tokens;
    struct tern_err err;
};

static bool vector_put(void *arg, struct str raw, int i) {
    struct embedding *m = arg;
    struct str text;
    (void)i;
    if (!serve_string_read(m->a, raw, &text))
        return serve_bad(m->a, "input", "input must be a text or a list of texts");
    const int n = m->s->info.n_embd;
    const enum tern_status status = tern_embed(m->s->engine, serve_str(text), TERN_POOL_MEAN, m->v, (size_t)n, &m->err);
    if (status != TERN_OK) {
        serve_fault_from(&m->a->fault, status, &m->err, "input");
        return false;
    }
    m->n_tokens += MAX(tern_tokenize(m->s->engine, serve_str(text), true, false, NULL, 0, NULL), 0);
    json_write_array(&m->w);
    for (int k = 0; k < n; k++) json_write_f64(&m->w, (double)m->v[k]);
    json_write_array_end(&m->w);
    return true;
}

// old: /api/embeddings, one text (`prompt`) and one vector.
static void embed(struct serve *s, struct net_request *r, bool old) {
    static const struct serve_field fields[] = {
        SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), SERVE_FIELD("input", SERVE_FIELD_RAW, input, 0, 0), {0}};
    static const struct serve_field old_fields[] = {
        SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), SERVE_FIELD("prompt", SERVE_FIELD_RAW, input, 0, 0), {0}};
    struct serve_ask a;
    struct buf out;
    struct embedding m = {.s = s, .a = &a};
    const uint64_t begin_ns = clock_ns();
    serve_ask_init(&a, s);
    buf_init(&out, SERVE_TEXT_BYTES_MAX);
    json_write_init(&m.w, &out);
    bool ok = serve_fields_read(&a, r->body, "", old ? old_fields : fields);
    if (ok && a.input.len == 0) ok = serve_bad(&a, old ? "prompt" : "input", "the text is missing");
    if (!ok) serve_fail(r, &a.fault);
    if (!ok || !serve_ollama_model_check(s, r, a.model)) goto done;
    m.v = mem_calloc((size_t)s->info.n_embd, sizeof *m.v);
    json_write_object(&m.w);
    serve_put_text(&m.w, "model", s->model_id);
    json_write_key(&m.w, old ? "embedding" : "embeddings");
    if (!old) json_write_array(&m.w);
    if (!m.v)
        serve_fault_set(&a.fault, 503, NULL, "no_memory", "no memory for a vector");
    else if (a.input.data[0] == '[' && !old)
        serve_list_each(&a, a.input, "input", SERVE_PROMPTS_MAX, vector_put, &m);
    else
        vector_put(&m, a.input, 0);
    if (a.fault.status) {
        serve_fail(r, &a.fault);
        goto done;
    }
    if (!old) json_write_array_end(&m.w);
    serve_put_int(&m.w, "total_duration", (int64_t)(clock_ns() - begin_ns));
    serve_put_int(&m.w, "load_duration", 0);
    serve_put_int(&m.w, "prompt_eval_count", m.n_tokens);
    json_write_object_end(&m.w);
    serve_reply_json(r, &out);
done:
    mem_free(m.v);
    buf_release(&out);
    serve_ask_release(&a);
}
void serve_ollama_embed(struct serve *s, struct net_request *r) { embed(s, r, false); }
void serve_ollama_embeddings(struct serve *s, struct net_request *r) { embed(s, r, true); }
