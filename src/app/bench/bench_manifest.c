// Reading peers.json: strict, since a misspelt key would leave a peer out of a table without a word. Names become parts
// of file names and CSV fields, so they are letters, digits and a few marks.
#include "base/base.h"
#include "bench_manifest.h"

struct reader {
    struct json *j;
    struct manifest *m;
    struct tern_err *err;
};

static bool name_sound(struct str s) {
    if (s.len == 0 || s.len > MANIFEST_NAME_MAX) return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  (i > 0 && (c == '.' || c == '_' || c == '-' || c == '+'));
        if (!ok) return false;
    }
    return true;
}

static enum tern_status text_take(struct reader *r, const char **out, const char *what, bool is_name) {
    struct json_item item;
    TRY(json_expect(r->j, JSON_STRING, &item, what, r->err));
    if (memchr(item.text.data ? item.text.data : "", 0, item.text.len) || item.text.len == 0)
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "%s is empty or holds a zero byte", what);
    if (is_name && !name_sound(item.text))
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos,
                          "%s wants 1 to %d letters, digits, '.', '_', '-' or '+', beginning with a letter or digit",
                          what, MANIFEST_NAME_MAX);
    char *copy = arena_dup(&r->m->arena, item.text.data, item.text.len);
    if (!copy) return err_set(r->err, TERN_NO_MEMORY, "no memory for the manifest");
    *out = copy;
    return TERN_OK;
}

static enum tern_status key_unknown(struct reader *r, const struct json_item *item, const char *where,
                                    const char *known) {
    struct buf b;
    buf_init(&b, 128);
    str_put_escaped(&b, item->text, 64);
    enum tern_status status = err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item->pos,
                                         "%s has an unknown key '%s'; known: %s", where, b.data ? b.data : "", known);
    buf_release(&b);
    return status;
}

int manifest_model_find(const struct manifest *m, struct str name, struct str format) {
    for (int i = 0; i < m->n_models; i++)
        if (str_eqz(name, m->models[i].name) && str_eqz(format, m->models[i].format)) return i;
    return -1;
}

static enum tern_status model_read(struct reader *r) {
    struct json_item item;
    struct bench_model model = {0};
    if (r->m->n_models == MANIFEST_MODELS_MAX)
        return err_set(r->err, TERN_LIMIT, "more than %d models", MANIFEST_MODELS_MAX);
    while (json_next(r->j, &item, r->err) == JSON_KEY) {
        if (str_eqz(item.text, "name"))
            TRY(text_take(r, &model.name, "a model's name", true));
        else if (str_eqz(item.text, "format"))
            TRY(text_take(r, &model.format, "a model's format", true));
        else if (str_eqz(item.text, "file"))
            TRY(text_take(r, &model.file, "a model's file", false));
        else
            return key_unknown(r, &item, "a model", "name, format, file");
    }
    if (item.event == JSON_ERROR) return r->err->code;
    if (!model.name || !model.format || !model.file)
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "a model wants name, format and file");
    if (manifest_model_find(r->m, str_from(model.name), str_from(model.format)) >= 0)
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "the model '%s %s' is listed twice", model.name,
                          model.format);
    r->m->models[r->m->n_models++] = model;
    return TERN_OK;
}

static enum tern_status command_read(struct reader *r, struct bench_peer *p) {
    struct json_item item;
    TRY(json_expect(r->j, JSON_ARRAY, &item, "a peer's command", r->err));
    while (json_next(r->j, &item, r->err) == JSON_STRING) {
        if (p->n_command == MANIFEST_WORDS_MAX)
            return err_set(r->err, TERN_LIMIT, "a peer's command has more than %d words", MANIFEST_WORDS_MAX);
        if (memchr(item.text.data ? item.text.data : "", 0, item.text.len))
            return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "a peer's command holds a zero byte");
        char *copy = arena_dup(&r->m->arena, item.text.data, item.text.len);
        if (!copy) return err_set(r->err, TERN_NO_MEMORY, "no memory for the manifest");
        p->command[p->n_command++] = copy;
    }
    if (item.event == JSON_ERROR) return r->err->code;
    if (item.event != JSON_ARRAY_END || p->n_command == 0 || !p->command[0][0])
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos,
                          "a peer's command is a list of texts, the program first");
    return TERN_OK;
}

static enum tern_status kind_read(struct reader *r, struct bench_peer *p) {
    static const char *const kinds[] = {"llama-bench", "ik-bench", "command"};
    const char *name;
    TRY(text_take(r, &name, "a peer's kind", false));
    for (int i = 0; i < (int)ARRAY_LEN(kinds); i++)
        if (strcmp(name, kinds[i]) == 0) return p->kind = (enum peer_kind)i, TERN_OK;
    return err_set(r->err, TERN_BAD_FORMAT, "a peer's kind is llama-bench, ik-bench or command, not '%s'", name);
}

// "NAME FORMAT": file, for models listed above.
static enum tern_status files_read(struct reader *r, struct bench_peer *p) {
    struct json_item item;
    TRY(json_expect(r->j, JSON_OBJECT, &item, "a peer's models", r->err));
    while (json_next(r->j, &item, r->err) == JSON_KEY) {
        size_t space = str_find(item.text, STR(" "), 0);
        int i = -1;
        if (space != (size_t)-1)
            i = manifest_model_find(r->m, (struct str){item.text.data, space},
                                    (struct str){item.text.data + space + 1, item.text.len - space - 1});
        if (i < 0) return key_unknown(r, &item, "a peer's models", "\"NAME FORMAT\" of the models listed before it");
        TRY(text_take(r, &p->files[i], "a peer's file", false));
    }
    return item.event == JSON_ERROR ? r->err->code : TERN_OK;
}

static enum tern_status peer_key_read(struct reader *r, struct bench_peer *p, const struct json_item *key,
                                      bool *has_kind, bool *has_models) {
    struct json_item item;
    if (str_eqz(key->text, "name")) return text_take(r, &p->name, "a peer's name", true);
    if (str_eqz(key->text, "command")) return command_read(r, p);
    if (str_eqz(key->text, "kind")) return *has_kind = true, kind_read(r, p);
    if (str_eqz(key->text, "models")) return *has_models = true, files_read(r, p);
    if (!str_eqz(key->text, "limit_s")) return key_unknown(r, key, "a peer", "name, kind, command, models, limit_s");
    TRY(json_expect(r->j, JSON_NUMBER, &item, "a peer's limit_s", r->err));
    if (!item.is_int || item.integer < 1 || item.integer > 86400)
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "limit_s wants 1 to 86400 seconds");
    p->limit_s = (int)item.integer;
    return TERN_OK;
}

static enum tern_status peer_read(struct reader *r) {
    struct json_item item;
    bool has_kind = false, has_models = false;
    if (r->m->n_peers == MANIFEST_PEERS_MAX)
        return err_set(r->err, TERN_LIMIT, "more than %d peers", MANIFEST_PEERS_MAX);
    struct bench_peer *p = &r->m->peers[r->m->n_peers];
    *p = (struct bench_peer){.limit_s = PEER_LIMIT_S_DEFAULT};
    while (json_next(r->j, &item, r->err) == JSON_KEY) TRY(peer_key_read(r, p, &item, &has_kind, &has_models));
    if (item.event == JSON_ERROR) return r->err->code;
    if (!p->name || !has_kind || p->n_command == 0)
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "a peer wants name, kind and command");
    if (strcmp(p->name, "tern") == 0)
        return err_set(r->err, TERN_BAD_FORMAT, "a peer cannot be called 'tern': that is us");
    for (int i = 0; i < r->m->n_peers; i++)
        if (strcmp(r->m->peers[i].name, p->name) == 0)
            return err_set(r->err, TERN_BAD_FORMAT, "the peer '%s' is listed twice", p->name);
    for (int i = 0; !has_models && i < r->m->n_models; i++) p->files[i] = r->m->models[i].file;
    r->m->n_peers++;
    return TERN_OK;
}

static enum tern_status list_read(struct reader *r, const char *what, enum tern_status (*one)(struct reader *r)) {
    struct json_item item;
    TRY(json_expect(r->j, JSON_ARRAY, &item, what, r->err));
    while (json_next(r->j, &item, r->err) == JSON_OBJECT) TRY(one(r));
    if (item.event == JSON_ERROR) return r->err->code;
    if (item.event != JSON_ARRAY_END)
        return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "%s is a list of objects", what);
    return TERN_OK;
}

static enum tern_status top_read(struct reader *r) {
    struct json_item item;
    TRY(json_expect(r->j, JSON_OBJECT, &item, "the manifest", r->err));
    while (json_next(r->j, &item, r->err) == JSON_KEY) {
        if (str_eqz(item.text, "models")) {
            if (r->m->n_peers > 0)
                return err_set_at(r->err, TERN_BAD_FORMAT, (int64_t)item.pos, "\"models\" comes before \"peers\"");
            TRY(list_read(r, "models", model_read));
        } else if (str_eqz(item.text, "peers")) {
            TRY(list_read(r, "peers", peer_read));
        } else {
            return key_unknown(r, &item, "the manifest", "models, peers");
        }
    }
    if (item.event != JSON_ERROR) json_next(r->j, &item, r->err);
    if (item.event == JSON_ERROR) return r->err->code;
    if (r->m->n_models == 0 || r->m->n_peers == 0)
        return err_set(r->err, TERN_BAD_FORMAT, "no %s are listed", r->m->n_models ? "peers" : "models");
    return TERN_OK;
}

enum tern_status manifest_parse(struct manifest *out, struct str text, const char *name, struct tern_err *err) {
    struct tern_err own;
    struct json_options options = {.size_max = MANIFEST_BYTES_MAX, .dup_check = true};
    struct reader r = {.m = out, .err = err ? err : &own};
    *out = (struct manifest){0};
    arena_init(&out->arena, 0);
    enum tern_status status = json_create(&r.j, text, &options, r.err);
    if (status == TERN_OK) status = top_read(&r);
    json_free(r.j);
    if (status == TERN_OK) return TERN_OK;
    manifest_release(out);
    if (r.err->pos >= 0)
        err_prefix(r.err, "%s, byte %lld", name, (long long)r.err->pos);
    else
        err_prefix(r.err, "%s", name);
    return status;
}

void manifest_release(struct manifest *m) {
    arena_release(&m->arena);
    *m = (struct manifest){0};
}
