// model.safetensors.index.json: which shard holds which tensor. Shard names come from the file, so they may only name
// files of the same folder. Index and shards must agree in both directions.
#include "base/base.h"
#include "model/model_int.h"

#define INDEX_NAME "model.safetensors.index.json"
#define SHARD_NAME_MAX 255

struct index_entry {
    struct str name;
    int shard;
};
struct index {
    struct model_source *s;
    struct index_entry *entries; // heap
    int n_entries, n_cap;
    struct str shards[MODEL_SHARDS_MAX]; // file names
    int n_shards;
};

static enum tern_status shard_name_check(struct str name, int64_t pos, struct tern_err *err) {
    TRY(name_check(name, SHARD_NAME_MAX, "a shard's name", pos, err));
    bool plain = name.data[0] != '.' && str_ends(name, STR(".safetensors"));
    for (size_t i = 0; i < name.len; i++) plain = plain && name.data[i] != '/' && name.data[i] != '\\';
    if (plain) return TERN_OK;
    return err_set_at(err, TERN_BAD_FORMAT, pos, "'%.*s' is not the name of a .safetensors file of the same folder",
                      SHOW(name));
}

static enum tern_status shard_get(struct index *x, struct str name, int64_t pos, int *out, struct tern_err *err) {
    for (int i = x->n_shards; i-- > 0;) { // neighbours share a shard
        if (str_eq(x->shards[i], name)) {
            *out = i;
            return TERN_OK;
        }
    }
    TRY(shard_name_check(name, pos, err));
    if (x->n_shards == MODEL_SHARDS_MAX)
        return err_set_at(err, TERN_LIMIT, pos, "more than %d shards", MODEL_SHARDS_MAX);
    TRY(source_strdup(x->s, &x->shards[x->n_shards], name, err));
    *out = x->n_shards++;
    return TERN_OK;
}

static enum tern_status entry_add(struct index *x, struct json *j, const struct json_item *key, struct tern_err *err) {
    struct json_item it;
    if (x->n_entries == MODEL_TENSORS_MAX)
        return err_set_at(err, TERN_LIMIT, (int64_t)key->pos, "weight_map has more than %d tensors", MODEL_TENSORS_MAX);
    if (x->n_entries == x->n_cap) {
        int cap = x->n_cap ? x->n_cap * 2 : 256;
        void *grown = mem_realloc(x->entries, (size_t)cap * sizeof(*x->entries));
        if (!grown) return err_set(err, TERN_NO_MEMORY, "out of memory for %d tensors of the index", cap);
        x->entries = grown;
        x->n_cap = cap;
    }
    struct index_entry *e = &x->entries[x->n_entries];
    TRY(source_strdup(x->s, &e->name, key->text, err));
    TRY(json_step(j, &it, err));
    if (it.event != JSON_STRING)
        return err_set_at(err, TERN_BAD_FORMAT, (int64_t)it.pos, "weight_map: tensor %.*s must name a file",
                          SHOW(e->name));
    TRY(shard_get(x, it.text, (int64_t)it.pos, &e->shard, err));
    x->n_entries++;
    return TERN_OK;
}

static enum tern_status index_read(struct index *x, struct json *j, struct tern_err *err) {
    struct json_item it;
    bool found = false;
    TRY(json_expect(j, JSON_OBJECT, &it, "the index", err));
    for (;;) {
        TRY(json_step(j, &it, err));
        if (it.event == JSON_OBJECT_END) break;
        if (!str_eqz(it.text, "weight_map")) {
            TRY(json_skip(j, err));
            continue;
        }
        found = true;
        TRY(json_expect(j, JSON_OBJECT, &it, "weight_map", err));
        for (;;) {
            TRY(json_step(j, &it, err));
            if (it.event == JSON_OBJECT_END) break;
            TRY(entry_add(x, j, &it, err));
        }
    }
    TRY(json_step(j, &it, err)); // nothing may follow
    if (!found || x->n_entries == 0) return err_set(err, TERN_BAD_FORMAT, "weight_map is missing or empty");
    return TERN_OK;
}

static enum tern_status shards_open(struct index *x, const char *folder, struct tern_err *err) {
    struct model_source *s = x->s;
    struct buf path;
    buf_init(&path, 1u << 16);
    enum tern_status status = source_files_reserve(s, x->n_shards, err);
    for (int i = 0; i < x->n_shards && status == TERN_OK; i++) {
        buf_clear(&path);
        buf_putf(&path, "%s/%.*s", folder, (int)x->shards[i].len, x->shards[i].data);
        if (path.failed) {
            status = err_set(err, TERN_NO_MEMORY, "out of memory for a shard's path");
            break;
        }
        status = file_map(&s->files[i], s, path.data, err);
        if (status == TERN_OK) {
            s->n_files++;
            status = safetensors_parse(s, i, err);
        }
        if (status != TERN_OK) err_prefix(err, "shard %.*s", SHOW(x->shards[i]));
    }
    buf_release(&path);
    return status;
}

static enum tern_status index_compare(const struct index *x, struct tern_err *err) {
    const struct model_source *s = x->s;
    for (int i = 0; i < x->n_entries; i++) {
        const struct index_entry *e = &x->entries[i];
        const struct tensor *t = table_find(s, e->name);
        if (!t || t->shard != e->shard)
            return err_set(err, TERN_BAD_FORMAT, INDEX_NAME ": tensor %.*s is not in shard %.*s", SHOW(e->name),
                           SHOW(x->shards[e->shard]));
    }
    if (x->n_entries != s->n_tensors)
        return err_set(err, TERN_BAD_FORMAT, INDEX_NAME " lists %d tensors, the shards hold %d", x->n_entries,
                       s->n_tensors);
    return TERN_OK;
}

enum tern_status hf_shards_open(struct model_source *s, const char *folder, const struct model_file *index_file,
                                struct tern_err *err) {
    struct index *x = mem_calloc(1, sizeof(*x));
    if (!x) return err_set(err, TERN_NO_MEMORY, "out of memory for the index of shards");
    x->s = s;
    struct json_options options = {.depth_max = 8, .dup_check = true};
    struct json *j = NULL;
    enum tern_status status =
        json_create(&j, (struct str){(const char *)index_file->data, index_file->size}, &options, err);
    if (status == TERN_OK) status = index_read(x, j, err);
    if (status != TERN_OK) err_prefix(err, INDEX_NAME);
    json_free(j);
    if (status == TERN_OK) status = shards_open(x, folder, err);
    if (status == TERN_OK) status = index_compare(x, err);
    mem_free(x->entries);
    mem_free(x);
    return status;
}
