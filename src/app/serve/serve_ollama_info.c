// Ollama's routes that tell something: /api/tags, /api/ps, /api/show, /api/version, and /api/embed. What Ollama's
// answers have and tern does not know (a digest that is not computed yet, expiry) is left out, not made up.
#include "base/base.h"
#include "serve_ollama.h"

#include <stdio.h>

struct info_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str name, prompt;
};
#define FOREVER_S INT64_C(9223372036) // as Ollama tells it: the nanoseconds that 63 bits hold
#define INFO_FIELD(name_, kind_, member_) \
    { name_, kind_, offsetof(struct info_ask, member_), 0, 0, 0, 0 }

static void details_put(struct json_writer *w, const struct serve_model *m) {
    char size[32];
    const double n = (double)m->info.n_params;
    snprintf(size, sizeof size, n >= 1e9 ? "%.1fB" : "%.0fM", n >= 1e9 ? n / 1e9 : n / 1e6);
    json_write_key(w, "details");
    json_write_object(w);
    serve_put_text(w, "parent_model", "");
    serve_put_text(w, "format", "gguf");
    serve_put_text(w, "family", m->info.architecture);
    json_write_key(w, "families");
    json_write_array(w);
    json_write_str(w, str_from(m->info.architecture));
    json_write_array_end(w);
    serve_put_text(w, "parameter_size", size);
    serve_put_text(w, "quantization_level", m->info.format);
    json_write_object_end(w);
}

// A model that is not loaded: its file's size, and no details.
static void model_put(struct serve *s, struct json_writer *w, struct serve_model *m, const char *name, bool running) {
    char full[200], when[24];
    const bool held = serve_model_hold(s, m);
    if (running && !held) return;
    struct os_stat st = {0};
    int64_t expires_s = clock_wall_s();
    if (!held && m->path) os_stat_get(&st, m->path);
    snprintf(full, sizeof full, "%s%s", name, strchr(name, ':') ? "" : ":latest");
    json_write_object(w);
    serve_put_text(w, "name", full);
    serve_put_text(w, "model", full);
    if (!running) serve_put_text(w, "modified_at", serve_time_text(when, s->begin_s));
    serve_put_int(w, "size", held ? (int64_t)m->info.bytes_weights : (int64_t)st.size);
    mutex_lock(s->lock);
    char digest[sizeof m->digest];
    memcpy(digest, m->digest, sizeof digest);
    m->n_users -= held; // for this look it counts as unused
    const uint64_t expires_ns = serve_model_expires_locked(s, m), now = clock_ns();
    m->n_users += held;
    expires_s += expires_ns == UINT64_MAX ? FOREVER_S
                 : expires_ns > now       ? (int64_t)((expires_ns - now) / 1000000000)
                                          : 0;
    mutex_unlock(s->lock);
    if (digest[0]) serve_put_text(w, "digest", digest);
    if (held) details_put(w, m);
    if (running) {
        serve_put_int(w, "size_vram", 0);
        serve_put_int(w, "context_length", m->info.n_ctx);
        serve_put_text(w, "expires_at", serve_time_text(when, expires_s));
    }
    json_write_object_end(w);
    if (held) serve_model_drop(s, m, false);
}

static void models_reply(struct serve *s, struct net_request *r, bool running) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 1u << 20);
    json_write_init(&w, &out);
    json_write_object(&w);
    json_write_key(&w, "models");
    json_write_array(&w);
    serve_digests_want(s);
    for (int i = 0; i < s->n_models; i++)
        if (!s->models[i].is_gone) model_put(s, &w, &s->models[i], s->models[i].id, running);
    for (int i = 0; i < s->o.aliases.n && !running; i++) model_put(s, &w, &s->models[0], s->o.aliases.items[i], false);
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
static bool template_has_tools(const struct serve_model *m) {
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"tern_probe\",\"description\":\"\","
                                "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
    const struct tern_str messages = serve_str(STR("[{\"role\":\"user\",\"content\":\"x\"}]"));
    char text[16384];
    if (!m->info.has_template) return false;
    int64_t n = tern_template_render(m->engine, messages, (struct tern_str){tools, sizeof tools - 1}, true, text,
                                     sizeof text, NULL);
    return n > 0 &&
           str_find((struct str){text, (size_t)MIN(n, (int64_t)sizeof text)}, STR("tern_probe"), 0) != (size_t)-1;
}

static void facts_put(struct json_writer *w, const struct serve_model *m) {
    const struct {
        const char *key; // behind "<architecture>."
        int64_t value;
    } rows[] = {{"context_length", m->info.n_ctx_model},
                {"embedding_length", m->info.n_embd},
                {"block_count", m->info.n_layers}};
    char key[128];
    json_write_key(w, "model_info");
    json_write_object(w);
    serve_put_text(w, "general.architecture", m->info.architecture);
    serve_put_text(w, "general.basename", m->info.name);
    serve_put_int(w, "general.parameter_count", (int64_t)m->info.n_params);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(key, sizeof key, "%s.%s", m->info.architecture, rows[i].key);
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
    const struct serve_model *m = serve_model_of(s, r);
    details_put(&w, m);
    facts_put(&w, m);
    json_write_key(&w, "capabilities");
    json_write_array(&w);
    json_write_str(&w, m->service ? STR("completion") : STR("embedding"));
    if (m->service && template_has_tools(m)) json_write_str(&w, STR("tools"));
    json_write_array_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

// ------------------------------------------------------------------------------------------------------------ vectors

struct embedding {
    const struct serve_model *of;
    struct serve_ask *a;
    struct json_writer w;
    float *v;
    int n_dims;
    int64_t n_tokens;
    struct tern_err err;
};

static bool vector_put(void *arg, struct str raw, int i) {
    struct embedding *m = arg;
    struct str text;
    (void)i;
    if (!serve_string_read(m->a, raw, &text))
        return serve_bad(m->a, "input", "input must be a text or a list of texts");
    const int n = m->of->info.n_embd;
    const enum tern_status status =
        tern_embed(m->of->engine, serve_str(text), TERN_POOL_MEAN, m->v, (size_t)n, &m->err);
    if (status != TERN_OK) {
        serve_fault_from(&m->a->fault, status, &m->err, "input");
        return false;
    }
    m->n_tokens += MAX(tern_tokenize(m->of->engine, serve_str(text), true, false, NULL, 0, NULL), 0);
    serve_vector_cut(m->v, n, m->n_dims);
    json_write_array(&m->w);
    for (int k = 0; k < m->n_dims; k++) json_write_f64(&m->w, (double)m->v[k]);
    json_write_array_end(&m->w);
    return true;
}

#define EMBED_FIELDS                                                      \
    SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), {                 \
        "keep_alive", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_keep_alive, 0 \
    }

// old: /api/embeddings, one text (`prompt`) and one vector.
static void embed(struct serve *s, struct net_request *r, bool old) {
    static const struct serve_field fields[] = {EMBED_FIELDS,
                                                SERVE_FIELD("input", SERVE_FIELD_RAW, input, 0, 0),
                                                SERVE_FIELD("dimensions", SERVE_FIELD_INT, dimensions, 0, 1 << 20),
                                                {0}};
    static const struct serve_field old_fields[] = {
        EMBED_FIELDS, SERVE_FIELD("prompt", SERVE_FIELD_RAW, input, 0, 0), {0}};
    struct serve_ask a;
    struct buf out;
    struct serve_model *of = serve_model_of(s, r);
    struct embedding m = {.of = of, .a = &a};
    const uint64_t begin_ns = clock_ns();
    serve_ask_init(&a, s);
    buf_init(&out, SERVE_TEXT_BYTES_MAX);
    json_write_init(&m.w, &out);
    bool ok = serve_fields_read(&a, r->body, "", old ? old_fields : fields);
    if (ok && a.input.len == 0) ok = serve_bad(&a, old ? "prompt" : "input", "the text is missing");
    if (a.dimensions == 0) a.dimensions = SERVE_UNSET; // as Ollama's clients say it
    ok = ok && serve_dimensions_check(&a, of, &m.n_dims);
    if (!ok) serve_fail(r, &a.fault);
    if (!ok || !serve_ollama_model_check(s, r, a.model)) goto done;
    serve_keep_set(s, of, &a);
    m.v = mem_calloc((size_t)m.of->info.n_embd, sizeof *m.v);
    json_write_object(&m.w);
    serve_put_text(&m.w, "model", m.of->id);
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
    if (m.n_dims < of->info.n_embd) serve_put_text(&m.w, "notice", SERVE_DIMENSIONS_NOTICE);
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
