// What the server tells of itself: /health, /props, /slots, /openapi.json. Never a prompt, an answer or a key.
#include "base/base.h"
#include "serve_parts.h"

extern const unsigned char tern_openapi_begin[], tern_openapi_end[];

static void str_put(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    if (value)
        json_write_str(w, str_from(value));
    else
        json_write_null(w);
}
static void int_put(struct json_writer *w, const char *key, int64_t v) {
    json_write_key(w, key);
    json_write_int(w, v);
}
static void f64_put(struct json_writer *w, const char *key, double v) {
    json_write_key(w, key);
    json_write_f64(w, v);
}

void serve_health(struct serve *s, struct net_request *r) {
    bool ready = serve_ready(s);
    if (ready && !s->is_draining) {
        serve_reply(r, "application/json", STR("{\"status\":\"ok\"}"));
        return;
    }
    struct serve_fault f = {.retry_s = 5};
    serve_fault_set(&f, 503, NULL, ready ? "stopping" : "model_loading", "%s",
                    ready ? "the server is stopping" : "the model is loading");
    serve_fail(r, &f);
}

static void limits_put(struct json_writer *w, const struct serve *s) {
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {{"body_bytes", (int64_t)s->o.body_mib << 20},
                {"json_depth", SERVE_JSON_DEPTH_MAX},
                {"messages", SERVE_MESSAGES_MAX},
                {"tools", SERVE_TOOLS_MAX},
                {"stop", TERN_STOP_MAX},
                {"n", SERVE_N_MAX},
                {"prompts", SERVE_PROMPTS_MAX},
                {"choices", SERVE_CHOICES_MAX},
                {"logit_bias", TERN_LOGIT_BIAS_MAX},
                {"top_logprobs", TERN_TOP_LOGPROBS_MAX},
                {"streams", s->o.n_streams},
                {"queue", s->o.n_queue},
                {"jobs_of_a_key", s->o.n_jobs_key},
                {"connections", s->o.n_connections}};
    json_write_key(w, "limits");
    json_write_object(w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) int_put(w, rows[i].key, rows[i].value);
    json_write_object_end(w);
}

static void defaults_put(struct json_writer *w, const struct serve *s, const struct tern_model_info *info) {
    const struct tern_request_options *o = &s->sample.request;
    json_write_key(w, "default_generation_settings");
    json_write_object(w);
    int_put(w, "n_ctx", info->n_ctx);
    json_write_key(w, "params");
    json_write_object(w);
    f64_put(w, "temperature", (double)o->temperature);
    int_put(w, "top_k", o->top_k);
    f64_put(w, "top_p", (double)o->top_p);
    f64_put(w, "min_p", (double)o->min_p);
    f64_put(w, "repeat_penalty", (double)o->repeat_penalty);
    f64_put(w, "presence_penalty", (double)o->presence_penalty);
    f64_put(w, "frequency_penalty", (double)o->frequency_penalty);
    int_put(w, "max_tokens", s->sample.max_tokens);
    json_write_object_end(w);
    json_write_object_end(w);
}

// Of the model that ?model= names, else the first; when that is not loaded, what is only known of a loaded one is null
// or 0.
void serve_props(struct serve *s, struct net_request *r) {
    static const struct tern_model_info unknown = {0};
    struct serve_model *m = serve_model_of(s, r);
    const bool held = serve_model_hold(s, m);
    const struct tern_model_info *info = held ? &m->info : &unknown;
    struct buf out;
    buf_init(&out, 1u << 20);
    struct json_writer w;
    json_write_init(&w, &out);
    json_write_object(&w);
    str_put(&w, "model", m->id);
    str_put(&w, "architecture", info->architecture);
    str_put(&w, "format", info->format);
    str_put(&w, "unit", info->unit);
    str_put(&w, "kernels", info->kernels);
    str_put(&w, "numerics", info->numerics);
    str_put(&w, "draft", info->draft);
    str_put(&w, "drafter", info->drafter);
    json_write_key(&w, "has_template");
    json_write_bool(&w, info->has_template);
    int_put(&w, "total_slots", s->o.n_streams);
    int_put(&w, "threads", info->n_threads);
    json_write_key(&w, "memory");
    json_write_object(&w);
    int_put(&w, "weights", (int64_t)info->bytes_weights);
    int_put(&w, "cache_of_a_token", (int64_t)info->bytes_kv_token);
    int_put(&w, "state_at_most", (int64_t)info->bytes_state_max);
    int_put(&w, "work", (int64_t)info->bytes_work);
    int_put(&w, "drafter", (int64_t)info->bytes_drafter);
    int_put(&w, "prefix_cache_at_most", (int64_t)s->o.prefix_ram);
    json_write_object_end(&w);
    defaults_put(&w, s, info);
    limits_put(&w, s);
    str_put(&w, "build", tern_version());
    str_put(&w, "model_path", m->id); // the names that llama-server's clients look for; paths are nobody's business
    str_put(&w, "build_info", tern_version());
    serve_put_raw(&w, "modalities", STR("{\"vision\":false,\"audio\":false}"));
    str_put(&w, "http", net_library());
    json_write_object_end(&w);
    if (held) serve_model_drop(s, m, false);
    serve_reply_json(r, &out);
}

static const char *state_text(struct serve_choice *c) {
    int place = 0;
    if (c->is_done) return "done";
    switch (tern_job_state(c->job, &place)) {
    case TERN_JOB_QUEUED: return "queued";
    case TERN_JOB_PROMPT: return "prompt";
    case TERN_JOB_ANSWER: return "answer";
    default: return "done";
    }
}

void serve_slots(struct serve *s, struct net_request *r) {
    struct buf out;
    buf_init(&out, 1u << 20);
    struct json_writer w;
    json_write_init(&w, &out);
    json_write_array(&w);
    int id = 0;
    mutex_lock(s->lock);
    const struct serve_model *only = serve_call_of(r)->model; // ?model=
    for (struct serve_answer *a = s->answers; a; a = a->next)
        for (int i = 0; i < a->n_choices && (!only || a->m == only); i++) {
            struct serve_choice *c = &a->choices[i];
            const char *state = state_text(c);
            json_write_object(&w);
            int_put(&w, "id", id++);
            str_put(&w, "answer", a->id);
            str_put(&w, "model", a->m->id);
            str_put(&w, "state", state);
            json_write_key(&w, "is_processing");
            json_write_bool(&w, strcmp(state, "prompt") == 0 || strcmp(state, "answer") == 0);
            json_write_key(&w, "stream");
            json_write_bool(&w, a->streams);
            f64_put(&w, "age_s", (double)(clock_ns() - a->begin_ns) * 1e-9);
            json_write_object_end(&w);
        }
    mutex_unlock(s->lock);
    json_write_array_end(&w);
    serve_reply_json(r, &out);
}

void serve_openapi(struct serve *s, struct net_request *r) {
    (void)s;
    serve_reply(r, "application/json",
                (struct str){(const char *)tern_openapi_begin, (size_t)(tern_openapi_end - tern_openapi_begin)});
}
