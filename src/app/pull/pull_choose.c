// Which files of a repository are the model that was named.
//
// GGUF files: those of one tag, all its shards. Without a tag the usual one, Q4_K_M, else the next that is there of a
// short list, else the only one. A repository without GGUF files is a folder of safetensors: its weights, and the
// small files beside them that say how to read them. Pickles (.bin, .pt) are never taken: opening one runs its code.
#include "base/base.h"
#include "pull.h"

#define TAGS_TOLD_MAX 24

static struct str base_of(struct str name) {
    for (size_t i = name.len; i > 0; i--)
        if (name.data[i - 1] == '/') return (struct str){name.data + i, name.len - i};
    return name;
}

static bool holds(struct str name, struct str part) { // ASCII letters in either case
    for (size_t i = 0; i + part.len <= name.len; i++)
        if (store_name_eq((struct str){name.data + i, part.len}, part)) return true;
    return false;
}

// A model's first shard (or its only file)?
static bool is_model(struct str name) {
    int64_t no, count, depth = 0;
    struct str file = base_of(name);
    for (size_t i = 0; i < name.len; i++) depth += name.data[i] == '/';
    if (!store_is_gguf(file) || depth >= STORE_FOLDER_DEPTH_MAX || holds(file, STR("mmproj")) ||
        holds(file, STR("imatrix")))
        return false;
    store_shard_read(file, &no, &count);
    return no == 1;
}

static struct str file_name(const struct pull_repo *r, int i) { return str_from(r->files[i].name); }

// As store_folder_scan names it: two files of one tag get their whole names.
static struct str tag_get(const struct pull_repo *r, int i) {
    struct str stem = store_stem_of(file_name(r, i)), tag = store_tag_of(stem);
    for (int k = 0; k < r->n; k++)
        if (k != i && is_model(file_name(r, k)) && store_name_eq(store_tag_of(store_stem_of(file_name(r, k))), tag))
            return stem;
    return tag;
}

static bool tag_fits(const struct pull_repo *r, int i, struct str tag) {
    struct str file = base_of(file_name(r, i));
    return store_name_eq(tag_get(r, i), tag) || store_name_eq(file, tag) || str_eqz(tag, r->files[i].name) ||
           store_name_eq(store_stem_of(file), tag);
}

static bool same_model(struct str first, struct str other, int64_t count) {
    int64_t no, n;
    store_shard_read(other, &no, &n);
    return store_is_gguf(other) && n == count && other.len == first.len &&
           memcmp(first.data, other.data, first.len - 20) == 0;
}

static enum tern_status shards_mark(struct pull_repo *r, int first, struct tern_err *err) {
    int64_t no, count;
    int n = 0;
    store_shard_read(file_name(r, first), &no, &count);
    if (count == 1) return r->files[first].is_wanted = true, TERN_OK;
    for (int i = 0; i < r->n; i++)
        if (same_model(file_name(r, first), file_name(r, i), count)) r->files[i].is_wanted = true, n++;
    if (n == count) return TERN_OK;
    return err_set(err, TERN_BAD_FORMAT, "%s: %d of %lld shards of %s are listed", r->id, n, (long long)count,
                   r->files[first].name);
}

static uint64_t model_bytes(const struct pull_repo *r, int first) {
    int64_t no, count;
    uint64_t sum = r->files[first].n_bytes;
    store_shard_read(file_name(r, first), &no, &count);
    for (int i = 0; i < r->n && count > 1; i++)
        if (i != first && same_model(file_name(r, first), file_name(r, i), count)) sum += r->files[i].n_bytes;
    return sum;
}

static void tags_put(const struct pull_repo *r, int but, struct buf *out) {
    char size[24];
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        if (i == but || !is_model(file_name(r, i))) continue;
        if (n++ >= TAGS_TOLD_MAX) continue;
        struct str tag = tag_get(r, i);
        buf_putf(out, "%s%.*s (%s)", n > 1 ? ", " : "", (int)tag.len, tag.data, bytes_format(model_bytes(r, i), size));
    }
    if (n > TAGS_TOLD_MAX) buf_putf(out, " and %d more", n - TAGS_TOLD_MAX);
}

static int usual_find(const struct pull_repo *r, int n_models, int only) {
    static const char *const usual[] = {"Q4_K_M", "Q4_0", "Q4_K_S", "Q5_K_M", "Q8_0"};
    for (size_t k = 0; k < ARRAY_LEN(usual); k++)
        for (int i = 0; i < r->n; i++)
            if (is_model(file_name(r, i)) &&
                store_name_eq(store_tag_of(store_stem_of(file_name(r, i))), str_from(usual[k])) &&
                store_name_eq(tag_get(r, i), str_from(usual[k])))
                return i;
    return n_models == 1 ? only : -1;
}

static bool folder_wants(struct str name, bool has_model_weights) {
    if (str_find(name, STR("/"), 0) != (size_t)-1) return false;
    if (str_ends(name, STR(".safetensors"))) // some hold the same weights twice, in their maker's own names
        return !has_model_weights || !str_starts(name, STR("consolidated"));
    return str_ends(name, STR(".json")) || str_ends(name, STR(".jinja")) || str_ends(name, STR("tokenizer.model")) ||
           str_eqz(name, "merges.txt");
}

static enum tern_status folder_mark(struct pull_repo *r, struct tern_err *err) {
    bool has_config = false, has_weights = false, has_model_weights = false, has_pickle = false;
    for (int i = 0; i < r->n; i++) {
        struct str name = file_name(r, i);
        const bool is_weights = str_ends(name, STR(".safetensors")) && str_find(name, STR("/"), 0) == (size_t)-1;
        has_config = has_config || str_eqz(name, "config.json");
        has_weights = has_weights || is_weights;
        has_model_weights = has_model_weights || (is_weights && str_starts(name, STR("model")));
        has_pickle = has_pickle || str_ends(name, STR(".bin")) || str_ends(name, STR(".pt"));
    }
    if (!has_config || !has_weights)
        return err_set(err, TERN_UNSUPPORTED,
                       "%s: no GGUF file and no safetensors with config.json among its %d files%s", r->id, r->n,
                       has_pickle ? " (pickles are not opened: they can run code)" : "");
    for (int i = 0; i < r->n; i++) r->files[i].is_wanted = folder_wants(file_name(r, i), has_model_weights);
    return TERN_OK;
}

enum tern_status pull_choose(struct pull_repo *r, struct str tag, struct str *chosen, int *first, struct buf *others,
                             struct tern_err *err) {
    int n_models = 0, n_fit = 0, only = -1, fit = -1;
    *first = -1;
    *chosen = STR("");
    for (int i = 0; i < r->n; i++) {
        if (!is_model(file_name(r, i))) continue;
        n_models++;
        only = i;
        if (tag.len == 0 || !tag_fits(r, i, tag)) continue;
        n_fit++;
        fit = i;
    }
    if (n_models == 0 && tag.len == 0) return folder_mark(r, err);
    if (tag.len == 0) fit = usual_find(r, n_models, only);
    if (fit < 0 || n_fit > 1) {
        struct buf tags;
        buf_init(&tags, 8192);
        tags_put(r, -1, &tags);
        if (n_models == 0)
            err_set(err, TERN_NOT_FOUND, "%s has no GGUF files, so no ':%.*s'; pull it without", r->id, (int)tag.len,
                    tag.data);
        else if (tag.len > 0)
            err_set(err, TERN_NOT_FOUND, "%s %s ':%.*s'; there are: %s", r->id,
                    n_fit > 1 ? "has several that may be" : "has no", (int)tag.len, tag.data, tags.data);
        else
            err_set(err, TERN_INVALID_ARGUMENT, "%s has several models; name one as %s:TAG: %s", r->id, r->id,
                    tags.data);
        buf_release(&tags);
        return err ? err->code : TERN_NOT_FOUND;
    }
    *first = fit;
    *chosen = tag_get(r, fit);
    if (others && tag.len == 0) tags_put(r, fit, others);
    return shards_mark(r, fit, err);
}
