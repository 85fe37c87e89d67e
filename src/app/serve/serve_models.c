// GET /v1/models and /v1/models/{id}: what is served, under its ids and the first one's aliases, loaded or not.
#include "base/base.h"
#include "serve_parts.h"

static void meta_put(struct json_writer *w, const struct tern_model_info *info) {
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {{"n_vocab", info->n_vocab},
                {"n_ctx", info->n_ctx},
                {"n_ctx_train", info->n_ctx_model},
                {"n_embd", info->n_embd},
                {"n_params", (int64_t)info->n_params},
                {"size", (int64_t)info->bytes_weights}};
    json_write_object(w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_write_key(w, rows[i].key);
        json_write_int(w, rows[i].value);
    }
    json_write_key(w, "architecture");
    json_write_str(w, str_from(info->architecture));
    json_write_key(w, "format");
    json_write_str(w, str_from(info->format));
    json_write_object_end(w);
}

static void model_put(struct serve *s, struct json_writer *w, struct serve_model *m, struct str id) {
    static const char *const states[] = {"unloaded", "loading", "loading", "loaded"};
    const bool held = serve_model_hold(s, m);
    mutex_lock(s->lock);
    const enum serve_model_state state = held ? SERVE_LOADED : m->state;
    const double progress = m->progress;
    const bool has_failed = m->has_failed && state == SERVE_UNLOADED;
    mutex_unlock(s->lock);
    json_write_object(w);
    json_write_key(w, "id");
    json_write_str(w, id);
    json_write_key(w, "object");
    json_write_str(w, STR("model"));
    json_write_key(w, "created");
    json_write_int(w, s->begin_s);
    json_write_key(w, "owned_by");
    json_write_str(w, STR("tern"));
    json_write_key(w, "status");
    json_write_object(w);
    json_write_key(w, "value");
    json_write_str(w, str_from(states[state]));
    if (state == SERVE_LOADING) {
        json_write_key(w, "progress");
        json_write_f64(w, progress);
    }
    if (has_failed) serve_put_bool(w, "failed", true);
    json_write_object_end(w);
    serve_put_raw(w, "architecture",
                  !held        ? STR("")
                  : m->service ? STR("{\"input_modalities\":[\"text\"],\"output_modalities\":[\"text\"]}")
                               : STR("{\"input_modalities\":[\"text\"],\"output_modalities\":[\"embeddings\"]}"));
    json_write_key(w, "meta");
    if (held)
        meta_put(w, &m->info);
    else
        json_write_null(w);
    json_write_object_end(w);
    if (held) serve_model_drop(s, m, false);
}

void serve_models(struct serve *s, struct net_request *r) {
    struct buf out;
    buf_init(&out, 1u << 20);
    struct json_writer w;
    json_write_init(&w, &out);
    json_write_object(&w);
    json_write_key(&w, "object");
    json_write_str(&w, STR("list"));
    json_write_key(&w, "data");
    json_write_array(&w);
    for (int i = 0; i < s->n_models; i++)
        if (!s->models[i].is_gone) model_put(s, &w, &s->models[i], str_from(s->models[i].id));
    for (int i = 0; i < s->o.aliases.n; i++) model_put(s, &w, &s->models[0], str_from(s->o.aliases.items[i]));
    json_write_array_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

void serve_model(struct serve *s, struct net_request *r) {
    struct str id = serve_call_of(r)->rest;
    struct serve_model *m = serve_model_find(s, id);
    if (!m) {
        serve_model_check(s, r, id); // tells which there are
        return;
    }
    struct buf out;
    buf_init(&out, 1u << 20);
    struct json_writer w;
    json_write_init(&w, &out);
    model_put(s, &w, m, id);
    serve_reply_json(r, &out);
}
