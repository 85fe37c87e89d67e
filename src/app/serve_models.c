// GET /v1/models and /v1/models/{id}: what is served, under its id and its aliases.
#include "base/base.h"
#include "serve.h"

static bool name_known(struct serve *s, struct str name) {
    if (name.len == 0 || str_eqz(name, "default") || str_eqz(name, s->model_id)) return true;
    for (int i = 0; i < s->o.aliases.n; i++)
        if (str_eqz(name, s->o.aliases.items[i])) return true;
    return false;
}

bool serve_model_check(struct serve *s, struct net_request *r, struct str name) {
    if (name_known(s, name)) return true;
    struct buf shown;
    buf_init(&shown, 4 * SERVE_NAME_SHOWN_MAX + 16);
    str_put_escaped(&shown, name, SERVE_NAME_SHOWN_MAX);
    serve_failf(r, 404, "model", "model_not_found", "no model '%s' here; '%s' is served (more names: --alias)",
                shown.data ? shown.data : "", s->model_id);
    buf_release(&shown);
    return false;
}

static void model_put(struct serve *s, struct json_writer *w, struct str id) {
    bool ready = serve_ready(s);
    json_write_object(w);
    json_write_key(w, "id");
    json_write_str(w, id);
    json_write_key(w, "object");
    json_write_str(w, STR("model"));
    json_write_key(w, "created");
    json_write_int(w, s->begin_s);
    json_write_key(w, "owned_by");
    json_write_str(w, STR("tern"));
    json_write_key(w, "meta");
    if (ready) {
        const struct {
            const char *key;
            int64_t value;
        } rows[] = {{"n_vocab", s->info.n_vocab},
                    {"n_ctx", s->info.n_ctx},
                    {"n_ctx_train", s->info.n_ctx_model},
                    {"n_embd", s->info.n_embd},
                    {"n_params", (int64_t)s->info.n_params},
                    {"size", (int64_t)s->info.bytes_weights}};
        json_write_object(w);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            json_write_key(w, rows[i].key);
            json_write_int(w, rows[i].value);
        }
        json_write_key(w, "architecture");
        json_write_str(w, str_from(s->info.architecture));
        json_write_key(w, "format");
        json_write_str(w, str_from(s->info.format));
        json_write_object_end(w);
    } else {
        json_write_null(w); // loading
    }
    json_write_object_end(w);
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
    model_put(s, &w, str_from(s->model_id));
    for (int i = 0; i < s->o.aliases.n; i++) model_put(s, &w, str_from(s->o.aliases.items[i]));
    json_write_array_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

void serve_model(struct serve *s, struct net_request *r) {
    struct str id = serve_call_of(r)->rest;
    if (!serve_model_check(s, r, id)) return;
    struct buf out;
    buf_init(&out, 1u << 20);
    struct json_writer w;
    json_write_init(&w, &out);
    model_put(s, &w, id);
    serve_reply_json(r, &out);
}
