// Taking a model out of the Hugging Face cache.
//
// A model is links in the snapshots; its bytes are blobs, which several snapshots may share. So first the links go,
// then each blob that they named and no link names any more. A blob that is being downloaded (its lock is held) stops
// it all before anything is removed. Links are removed, never followed.
#include "base/base.h"
#include "store.h"

#include <stdio.h>

#define DEPTH_MAX 8      // of folders below a repository
#define BLOBS_MAX 4096   // of one model
#define DIGEST_BYTES 128 // a blob's name

struct removal {
    struct store_removed *out;
    const struct store_entry *entry;
    struct str file; // GGUF: the file's name below the snapshot; empty: its safetensors
    char root[STORE_PATH_MAX], repo[STORE_PATH_MAX], locks[STORE_PATH_MAX], blobs[STORE_PATH_MAX];
    char (*digests)[DIGEST_BYTES]; // blobs that the removed links named
    int n_digests;
    int n_models; // model files that stay
    bool dry, whole;
    enum tern_status status;
    struct tern_err *err;
};

struct walk { // one folder
    struct removal *r;
    const char *folder;
    struct str below; // its name below the snapshot, with '/' at the end, or empty
    int depth;
    bool (*file)(struct walk *w, const char *path, const char *name);
    bool is_tree; // remove the folders too
};

static bool fail(struct removal *r, enum tern_status status) {
    r->status = status;
    return false;
}

static bool walk_folder(struct walk *w);

static bool walk_entry(void *arg, const char *name, const struct os_stat *st) {
    struct walk *w = arg;
    char path[STORE_PATH_MAX], below[STORE_PATH_MAX], target[STORE_PATH_MAX];
    if (!store_join(path, w->folder, name)) return fail(w->r, err_set(w->r->err, TERN_LIMIT, "a path is too long"));
    if (!st->is_dir || os_link_read(target, sizeof target, path)) return w->file(w, path, name);
    if (w->depth == DEPTH_MAX) return fail(w->r, err_set(w->r->err, TERN_LIMIT, "'%s' is too deep", path));
    const int n = snprintf(below, sizeof below, "%.*s%s/", (int)w->below.len, w->below.data, name);
    if (n >= (int)sizeof below) return fail(w->r, err_set(w->r->err, TERN_LIMIT, "a path is too long"));
    // A snapshot's own name is not part of its files' names.
    const bool is_snapshot = w->depth == 0 && !w->is_tree;
    struct walk in = {.r = w->r,
                      .folder = path,
                      .below = is_snapshot ? STR("") : (struct str){below, (size_t)n},
                      .depth = w->depth + 1,
                      .file = w->file,
                      .is_tree = w->is_tree};
    if (!walk_folder(&in)) return false;
    if (!w->is_tree || w->r->dry) return true;
    const enum tern_status status = os_remove_dir(path, w->r->err);
    return status == TERN_OK || fail(w->r, status);
}

// At most DEPTH_MAX deep.
static bool walk_folder(struct walk *w) {
    const enum tern_status status = os_list(w->folder, walk_entry, w, w->r->err);
    if (status != TERN_OK) return fail(w->r, status);
    return w->r->status == TERN_OK;
}

static bool is_of_model(const struct removal *r, struct str below, struct str name) {
    char path[STORE_PATH_MAX];
    int64_t no, count, first, n;
    if (r->file.len == 0) return below.len == 0 && str_ends(name, STR(".safetensors"));
    snprintf(path, sizeof path, "%.*s%.*s", (int)below.len, below.data, (int)name.len, name.data);
    if (str_eqz(r->file, path)) return true;
    store_shard_read(r->file, &first, &count);
    store_shard_read(str_from(path), &no, &n);
    return count > 1 && n == count && strlen(path) == r->file.len && memcmp(path, r->file.data, r->file.len - 20) == 0;
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_weights(struct str name) { return store_is_gguf(name) || str_ends(name, STR(".safetensors")); }

// First walk over the snapshots: which blobs does the model name, which models stay?
static bool link_note(struct walk *w, const char *path, const char *name) {
    struct removal *r = w->r;
    char target[STORE_PATH_MAX];
    struct os_stat st;
    const struct str n = str_from(name);
    if (!is_of_model(r, w->below, n)) {
        r->n_models += is_weights(n) && os_stat_get(&st, path);
        return true;
    }
    r->out->n_files++;
    if (!os_link_read(target, sizeof target, path)) return true; // a file in the snapshot itself
    const char *digest = base_of(target);
    for (int i = 0; i < r->n_digests; i++)
        if (strcmp(r->digests[i], digest) == 0) return true;
    if (r->n_digests == BLOBS_MAX || strlen(digest) >= DIGEST_BYTES || digest[0] == '.' || !digest[0]) return true;
    snprintf(r->digests[r->n_digests++], DIGEST_BYTES, "%s", digest);
    return true;
}

static bool link_remove(struct walk *w, const char *path, const char *name) {
    if (!is_of_model(w->r, w->below, str_from(name)) || w->r->dry) return true;
    const enum tern_status status = os_remove(path, w->r->err);
    return status == TERN_OK || fail(w->r, status);
}

// A link that stays: its blob does, too.
static bool link_keep(struct walk *w, const char *path, const char *name) {
    struct removal *r = w->r;
    char target[STORE_PATH_MAX];
    if (is_of_model(r, w->below, str_from(name)) || !os_link_read(target, sizeof target, path)) return true;
    for (int i = 0; i < r->n_digests; i++)
        if (strcmp(r->digests[i], base_of(target)) == 0) r->digests[i][0] = 0;
    return true;
}

static bool tree_file_remove(struct walk *w, const char *path, const char *name) {
    char target[STORE_PATH_MAX];
    struct os_stat st;
    (void)name;
    if (!os_link_read(target, sizeof target, path) && os_stat_get(&st, path) && st.is_file)
        w->r->out->n_bytes += st.size, w->r->out->n_files++;
    if (w->r->dry) return true;
    const enum tern_status status = os_remove(path, w->r->err);
    return status == TERN_OK || fail(w->r, status);
}

static bool lock_is_free(void *arg, const char *name, const struct os_stat *st) {
    struct removal *r = arg;
    char path[STORE_PATH_MAX];
    int fd;
    if (!st->is_file || !store_join(path, r->locks, name)) return true;
    const enum tern_status status = os_lock(&fd, path, 0, NULL);
    if (status == TERN_OK) os_unlock(fd);
    if (status != TERN_AGAIN) return true;
    return fail(
        r, err_set(r->err, TERN_AGAIN, "%s is being downloaded (%s is held); stop that first", r->entry->name, path));
}

static void tree_remove(struct removal *r) {
    r->out->n_bytes = 0;
    r->out->n_files = 0;
    struct walk w = {.r = r, .folder = r->repo, .file = tree_file_remove, .is_tree = true};
    if (walk_folder(&w) && !r->dry) r->status = os_remove_dir(r->repo, r->err);
    const uint64_t n_bytes = r->out->n_bytes;
    const int n_files = r->out->n_files;
    struct os_stat st;
    w.folder = r->locks;
    if (r->status == TERN_OK && os_stat_get(&st, r->locks) && walk_folder(&w) && !r->dry)
        r->status = os_remove_dir(r->locks, r->err);
    r->out->n_bytes = n_bytes;
    r->out->n_files = n_files;
}

static void blobs_remove(struct removal *r) {
    for (int i = 0; i < r->n_digests && r->status == TERN_OK; i++) {
        char path[STORE_PATH_MAX];
        struct os_stat st;
        if (!r->digests[i][0] || !store_join(path, r->blobs, r->digests[i]) || !os_stat_get(&st, path)) continue;
        r->out->n_bytes += st.size;
        if (!r->dry) r->status = os_remove(path, r->err);
    }
}

static void model_remove(struct removal *r) {
    char snapshots[STORE_PATH_MAX];
    struct os_stat st;
    if (!store_join(snapshots, r->repo, "snapshots")) {
        fail(r, err_set(r->err, TERN_LIMIT, "a path is too long"));
        return;
    }
    struct walk w = {.r = r, .folder = snapshots, .file = link_note};
    if (os_stat_get(&st, r->locks) && os_list(r->locks, lock_is_free, r, NULL) != TERN_OK) return;
    if (r->status != TERN_OK) return;
    if (!r->whole && os_stat_get(&st, snapshots) && !walk_folder(&w)) return;
    if (r->whole || r->n_models == 0) {
        tree_remove(r);
        return;
    }
    w.file = link_keep;
    if (!walk_folder(&w)) return;
    w.file = link_remove;
    if (walk_folder(&w)) blobs_remove(r);
}

static enum tern_status places_set(struct removal *r, struct tern_err *err) {
    char name[1200], path[STORE_PATH_MAX];
    const struct str id = r->entry->id;
    const size_t slash = str_find(id, STR("/"), 0);
    const int n = slash == (size_t)-1 ? snprintf(name, sizeof name, "models--%.*s", (int)id.len, id.data)
                                      : snprintf(name, sizeof name, "models--%.*s--%.*s", (int)slash, id.data,
                                                 (int)(id.len - slash - 1), id.data + slash + 1);
    if (n >= (int)sizeof name || !store_hf_root(r->root) || !store_join(r->repo, r->root, name) ||
        !store_join(path, r->root, ".locks") || !store_join(r->locks, path, name) ||
        !store_join(r->blobs, r->repo, "blobs"))
        return err_set(err, TERN_LIMIT, "the path of %s is too long", r->entry->name);
    char link[STORE_PATH_MAX];
    if (os_link_read(link, sizeof link, r->repo) || !store_holds(r->root, r->repo))
        return err_set(err, TERN_INVALID_ARGUMENT, "'%s' is a link; nothing of it is removed", r->repo);
    // Snapshots are "<repo>/snapshots/<commit>/": what follows is the file's name.
    const char *below = r->entry->tag.len && r->entry->path ? strstr(r->entry->path, "/snapshots/") : NULL;
    const char *file = below ? strchr(below + strlen("/snapshots/"), '/') : NULL;
    r->file = str_from(file ? file + 1 : "");
    return TERN_OK;
}

enum tern_status store_remove(const char *name, bool whole, bool dry, struct store_removed *out, struct tern_err *err) {
    struct store_list l;
    const struct store_entry *e = NULL;
    struct removal r = {.out = out, .dry = dry, .whole = whole, .err = err};
    *out = (struct store_removed){0};
    TRY(store_scan(&l, err));
    enum tern_status status = store_find(&l, name, STORE_TO_REMOVE, &e, err);
    // Of a repository as a whole any of its models will do.
    for (int i = 0; whole && status != TERN_OK && i < l.n; i++) {
        if (l.entries[i].kind != STORE_HF || !store_name_eq(l.entries[i].id, str_from(name))) continue;
        e = &l.entries[i];
        status = TERN_OK;
    }
    if (status != TERN_OK) goto done;
    if (e->kind != STORE_HF) {
        status = err_set(err, TERN_UNSUPPORTED, "%s belongs to %s; remove it there%s%s", e->name, store_titles[e->kind],
                         e->kind == STORE_OLLAMA ? ": ollama rm " : "", e->kind == STORE_OLLAMA ? e->name : "");
        goto done;
    }
    r.entry = e;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(whole ? e->id.len : strlen(e->name)), e->name);
    TRY_GOTO(places_set(&r, err), done);
    r.digests = mem_calloc(BLOBS_MAX, sizeof *r.digests);
    if (!r.digests) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to look at %s", e->name);
        goto done;
    }
    model_remove(&r);
    status = r.status;
done:
    mem_free(r.digests);
    store_list_release(&l);
    return status;
}
