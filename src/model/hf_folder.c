// A Hugging Face folder: config.json and model.safetensors (or shards with an index) make the model;
// generation_config.json adds end-of-text ids; tokenizer.json, tokenizer_config.json and chat_template.jinja are handed
// on to the text layer. A .safetensors file stands for the folder it lies in.
#include "base/base.h"
#include "model/model_int.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

// "folder/name" in the arena.
static enum tern_status path_join(struct model_source *s, const char *folder, const char *name, const char **out,
                                  struct tern_err *err) {
    size_t a = strlen(folder), b = strlen(name);
    char *p = arena_alloc(&s->arena, a + b + 2);
    if (!p) return err_set(err, TERN_NO_MEMORY, "out of memory for a path");
    memcpy(p, folder, a);
    p[a] = '/';
    memcpy(p + a + 1, name, b + 1);
    *out = p;
    return TERN_OK;
}

static enum tern_status folder_of(struct model_source *s, const char *path, bool is_folder, const char **out,
                                  struct tern_err *err) {
    struct str folder = str_from(path);
    if (is_folder) {
        while (folder.len > 1 && folder.data[folder.len - 1] == '/') folder.len--;
    } else {
        while (folder.len && folder.data[folder.len - 1] != '/') folder.len--;
        if (folder.len > 1) folder.len--;
        if (folder.len == 0) folder = STR(".");
    }
    TRY(source_strdup(s, &folder, folder, err));
    *out = folder.data;
    return TERN_OK;
}

// An optional file of the folder; *out stays NULL when it is not there.
static enum tern_status extra_find(struct model_source *s, const char *folder, const char *name,
                                   const struct model_file **out, struct tern_err *err) {
    const char *path;
    struct os_stat st;
    TRY(path_join(s, folder, name, &path, err));
    if (!os_stat_get(&st, path)) return TERN_OK;
    return source_extra_open(s, path, out, err);
}

enum tern_status hf_extra_find(struct model_source *s, const char *path, bool is_folder, const char *name,
                               const struct model_file **out, struct tern_err *err) {
    const char *folder;
    TRY(folder_of(s, path, is_folder, &folder, err));
    return extra_find(s, folder, name, out, err);
}

struct listing {
    char gguf[256]; // a GGUF file of the folder, for the message
};
static bool listing_add(void *arg, const char *name, const struct os_stat *st) {
    struct listing *l = arg;
    struct str n = str_from(name);
    if (st->is_dir || !str_ends(n, STR(".gguf")) || n.len >= sizeof(l->gguf)) return true;
    memcpy(l->gguf, name, n.len + 1);
    return false;
}

static enum tern_status folder_refuse(const char *folder, const char *missing, struct tern_err *err) {
    struct listing l = {{0}};
    if (os_list(folder, listing_add, &l, NULL) == TERN_OK && l.gguf[0])
        return err_set(err, TERN_NOT_FOUND, "the folder has no %s, but a GGUF file: open %s/%s", missing, folder,
                       l.gguf);
    return err_set(err, TERN_NOT_FOUND, "the folder has no %s: a model folder holds config.json and model.safetensors",
                   missing);
}

static enum tern_status weights_open(struct model_source *s, const char *folder, const char *path, bool is_folder,
                                     struct tern_err *err) {
    const char *single = path;
    struct os_stat st;
    if (is_folder) TRY(path_join(s, folder, SINGLE_NAME, &single, err));
    if (is_folder && !os_stat_get(&st, single)) {
        const struct model_file *index = NULL;
        TRY(extra_find(s, folder, INDEX_NAME, &index, err));
        if (!index) return folder_refuse(folder, SINGLE_NAME " and no " INDEX_NAME, err);
        return hf_shards_open(s, folder, index, err);
    }
    TRY(source_files_reserve(s, 1, err));
    TRY(file_map(&s->files[0], s, single, err));
    s->n_files = 1;
    enum tern_status status = safetensors_parse(s, 0, err);
    if (status != TERN_OK && is_folder) err_prefix(err, SINGLE_NAME);
    return status;
}

static enum tern_status id_check(int64_t id, const char *name, int n_vocab, struct tern_err *err) {
    if (id < n_vocab) return TERN_OK;
    return err_set(err, TERN_BAD_FORMAT, "config.json or generation_config.json: %s is %lld, past the last of %d rows",
                   name, (long long)id, n_vocab);
}

// generation_config.json has the last word on bos and pad; its end ids are added to those of config.json.
static enum tern_status ids_take(struct model *m, const struct hf_config *c, const struct hf_config *g,
                                 struct tern_err *err) {
    struct model_vocab *v = &m->vocab;
    int32_t *more;
    int n_vocab = m->hyper.n_vocab;
    if (c->bos.n || g->bos.n) v->bos = g->bos.n ? g->bos.ids[0] : c->bos.ids[0];
    if (c->pad.n || g->pad.n) v->pad = g->pad.n ? g->pad.ids[0] : c->pad.ids[0];
    TRY(id_check(v->bos, "bos_token_id", n_vocab, err));
    TRY(id_check(v->pad, "pad_token_id", n_vocab, err));
    TRY(source_alloc(m->source, &more, (size_t)c->eos.n + (size_t)g->eos.n, sizeof(*more), err));
    v->eos_more = more;
    const struct hf_ids *lists[] = {&c->eos, &g->eos};
    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        for (int i = 0; i < lists[l]->n; i++) {
            int32_t id = lists[l]->ids[i];
            TRY(id_check(id, "eos_token_id", n_vocab, err));
            bool known = id == v->eos;
            for (int k = 0; k < v->n_eos_more; k++) known = known || more[k] == id;
            if (known) continue;
            if (v->eos < 0) {
                v->eos = id;
            } else {
                more[v->n_eos_more++] = id;
            }
        }
    }
    return TERN_OK;
}

static struct str file_text(const struct model_file *f) { return (struct str){(const char *)f->data, f->size}; }

static enum tern_status text_files(struct model *m, const char *folder, struct tern_err *err) {
    struct model_source *s = m->source;
    const struct model_file *config = NULL, *template = NULL;
    TRY(extra_find(s, folder, "tokenizer.json", &s->tokenizer, err));
    if (s->tokenizer) m->vocab.tokenizer_json = file_text(s->tokenizer);
    TRY(extra_find(s, folder, "tokenizer_config.json", &config, err));
    if (config) {
        m->vocab.tokenizer_config = file_text(config);
        TRY(hf_tokenizer_config_parse(&m->vocab, s, file_text(config), err));
    }
    TRY(extra_find(s, folder, "chat_template.jinja", &template, err));
    if (template) {
        size_t bad;
        if (!utf8_valid(file_text(template), &bad))
            return err_set_at(err, TERN_BAD_FORMAT, (int64_t)bad, "chat_template.jinja is not valid UTF-8 at byte %zu",
                              bad);
        m->vocab.chat_template = file_text(template);
    }
    return TERN_OK;
}

// The folder's name; of a snapshot in the Hugging Face cache (models--org--repo/snapshots/<revision>) the repository's.
static enum tern_status name_take(struct model *m, const char *folder, struct tern_err *err) {
    struct str path = str_from(folder), head = STR("/models--"), snapshots = STR("/snapshots/");
    size_t at = str_find(path, head, 0), end = at == (size_t)-1 ? at : str_find(path, snapshots, at);
    m->name = path_last(folder);
    if (end == (size_t)-1) return TERN_OK;
    struct str repo = {path.data + at + head.len, end - at - head.len};
    size_t org = str_find(repo, STR("--"), 0);
    if (org != (size_t)-1) repo = (struct str){repo.data + org + 2, repo.len - org - 2};
    if (repo.len == 0 || memchr(repo.data, '/', repo.len)) return TERN_OK;
    TRY(source_strdup(m->source, &repo, repo, err));
    m->name = repo.data;
    return TERN_OK;
}

// Matrices of an MLX checkpoint, once the table is there.
static enum tern_status codes_open(struct model_source *s, const char *folder, struct tern_err *err) {
    struct hf_config c;
    if (!codes_find(s)) return TERN_OK;
    TRY(extra_find(s, folder, "config.json", &s->config, err));
    if (!s->config) return codes_refuse(s, ": no config.json beside it says what its bits mean", err);
    TRY(hf_config_parse(&c, s, file_text(s->config), err));
    if (c.has_quantization) return TERN_OK; // refused with its own words when the parameters are read
    if (c.mlx.bits == HF_ABSENT)
        return codes_refuse(s, ": config.json has no quantization with bits and group_size", err);
    return hf_mlx_join(s, &c, err);
}

enum tern_status hf_open(struct model *m, const char *path, bool is_folder, struct tern_err *err) {
    const char *folder;
    TRY(folder_of(m->source, path, is_folder, &folder, err));
    if (is_folder) {
        const char *config;
        struct os_stat st;
        TRY(path_join(m->source, folder, "config.json", &config, err));
        if (!os_stat_get(&st, config)) return folder_refuse(folder, "config.json", err);
    }
    TRY(name_take(m, folder, err));
    TRY(weights_open(m->source, folder, path, is_folder, err));
    return codes_open(m->source, folder, err);
}

enum tern_status hf_bind(struct model *m, const char *path, bool is_folder, struct tern_err *err) {
    struct model_source *s = m->source;
    struct model_params p = {.tied = -1};
    struct hf_config c, g = {0};
    const struct model_arch_kind *arch;
    const struct model_file *generation = NULL;
    const char *folder;
    TRY(folder_of(s, path, is_folder, &folder, err));
    if (!s->config) TRY(extra_find(s, folder, "config.json", &s->config, err));
    if (!s->config)
        return err_set(err, TERN_NOT_FOUND,
                       "no config.json beside it: a safetensors file alone does not say what model it is");
    TRY(hf_config_parse(&c, s, file_text(s->config), err));
    if (c.model_type.len == 0) return err_set(err, TERN_BAD_FORMAT, "config.json: model_type is missing");
    TRY(arch_get_hf(&arch, c.model_type, c.class_name, err));
    p.arch = arch;
    TRY(arch->params_hf(&p, s, &c, err));
    TRY(arch_bind(m, arch, &p, err));
    TRY(extra_find(s, folder, "generation_config.json", &generation, err));
    if (generation) TRY(hf_generation_parse(&g, s, file_text(generation), err));
    TRY(ids_take(m, &c, &g, err));
    return text_files(m, folder, err);
}
