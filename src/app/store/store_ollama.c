// Ollama's store: manifests/<registry>/<namespace>/<model>/<tag> are small JSON files whose layers name blobs by their
// SHA-256; the layer of the model's media type is a GGUF file. Templates, parameters and system texts are layers too:
// tern uses what the GGUF file says, and the list says so.
#include "base/base.h"
#include "store.h"

#include <stdio.h>

#define LEVELS 4 // registry, namespace, model, tag
#define MANIFEST_DEPTH_MAX 16
#define LAYERS_MAX 64

struct layer {
    struct str media, digest; // borrowed from buffers below
    int64_t size;
};

static bool digest_take(struct str digest, char out[72]) {
    if (digest.len != 7 + 64 || !str_starts(digest, STR("sha256:"))) return false;
    for (size_t i = 7; i < digest.len; i++)
        if (!((digest.data[i] >= '0' && digest.data[i] <= '9') || (digest.data[i] >= 'a' && digest.data[i] <= 'f')))
            return false;
    snprintf(out, 72, "sha256-%.64s", digest.data + 7);
    return true;
}

static enum tern_status layer_end(struct store_manifest *m, struct str media, struct str digest, int64_t size,
                                  struct tern_err *err) {
    struct str head = STR("application/vnd.ollama.image.");
    if (!str_starts(media, head)) return TERN_OK;
    struct str what = {media.data + head.len, media.len - head.len};
    m->has_template = m->has_template || str_eqz(what, "template");
    m->has_adapter = m->has_adapter || str_eqz(what, "adapter");
    m->has_projector = m->has_projector || str_eqz(what, "projector");
    if (!str_eqz(what, "model")) return TERN_OK;
    if (m->model[0]) return err_set(err, TERN_UNSUPPORTED, "the manifest names more than one model layer");
    if (!digest_take(digest, m->model))
        return err_set(err, TERN_BAD_FORMAT, "the digest of the model layer is not sha256: and 64 hexadecimal digits");
    if (size < 0) return err_set(err, TERN_BAD_FORMAT, "the model layer says no size");
    m->n_bytes = (uint64_t)size;
    return TERN_OK;
}

static enum tern_status next(struct json *j, struct json_item *item, struct tern_err *err) {
    return json_next(j, item, err) == JSON_ERROR ? err->code : TERN_OK;
}

// One object of `layers`, its '{' read.
static enum tern_status layer_read(struct json *j, struct store_manifest *m, struct tern_err *err) {
    char media[128] = "", digest[80] = "";
    int64_t size = -1;
    struct json_item item;
    for (;;) {
        TRY(next(j, &item, err));
        if (item.event == JSON_OBJECT_END) break;
        const bool is_media = str_eqz(item.text, "mediaType"), is_digest = str_eqz(item.text, "digest");
        const bool is_size = str_eqz(item.text, "size");
        if (!is_media && !is_digest && !is_size) {
            TRY(json_skip(j, err));
            continue;
        }
        TRY(json_expect(j, is_size ? JSON_NUMBER : JSON_STRING, &item, is_size ? "size" : "mediaType or digest", err));
        if (is_size && item.is_int && item.integer >= 0) size = item.integer;
        char *to = is_media ? media : digest;
        const size_t cap = is_media ? sizeof media : sizeof digest;
        if (!is_size && item.text.len < cap) { // a longer one is none that is looked for
            memcpy(to, item.text.data, item.text.len);
            to[item.text.len] = 0;
        }
    }
    return layer_end(m, str_from(media), str_from(digest), size, err);
}

static enum tern_status layers_read(struct json *j, struct store_manifest *m, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_ARRAY, &item, "layers", err));
    for (int n = 0;; n++) {
        TRY(next(j, &item, err));
        if (item.event == JSON_ARRAY_END) return TERN_OK;
        if (n == LAYERS_MAX) return err_set(err, TERN_LIMIT, "the manifest has more than %d layers", LAYERS_MAX);
        if (item.event != JSON_OBJECT) return err_set(err, TERN_BAD_FORMAT, "a layer of the manifest is no object");
        TRY(layer_read(j, m, err));
    }
}

static enum tern_status manifest_read(struct json *j, struct store_manifest *m, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_OBJECT, &item, "the manifest", err));
    for (;;) {
        TRY(next(j, &item, err));
        if (item.event == JSON_OBJECT_END) break;
        if (str_eqz(item.text, "layers"))
            TRY(layers_read(j, m, err));
        else
            TRY(json_skip(j, err));
    }
    TRY(next(j, &item, err)); // nothing may follow
    if (!m->model[0]) return err_set(err, TERN_UNSUPPORTED, "the manifest names no model layer");
    return TERN_OK;
}

enum tern_status store_manifest_parse(struct store_manifest *out, struct str json, struct tern_err *err) {
    struct tern_err local;
    if (!err) err = &local;
    struct json_options options = {
        .depth_max = MANIFEST_DEPTH_MAX, .size_max = STORE_MANIFEST_BYTES_MAX, .dup_check = true};
    struct json *j;
    *out = (struct store_manifest){0};
    TRY(json_create(&j, json, &options, err));
    enum tern_status status = manifest_read(j, out, err);
    json_free(j);
    return status;
}

// ------------------------------------------------------------------------------------------------- the tree

struct ollama_scan {
    struct store_list *list;
    const char *root;
    const char *folder;
    int level;
    const char *part[LEVELS]; // names so far
};

// "library/" and Ollama's own registry are left out of names, as Ollama does.
static bool id_make(const struct ollama_scan *o, char *out, size_t cap) {
    const bool own = strcmp(o->part[0], "registry.ollama.ai") == 0, library = strcmp(o->part[1], "library") == 0;
    int n;
    if (own && library)
        n = snprintf(out, cap, "%s", o->part[2]);
    else if (own)
        n = snprintf(out, cap, "%s/%s", o->part[1], o->part[2]);
    else
        n = snprintf(out, cap, "%s/%s/%s", o->part[0], o->part[1], o->part[2]);
    return n > 0 && n < (int)cap;
}

static const char *note_of(const struct store_manifest *m) {
    if (m->has_adapter) return "Ollama adds an adapter to it; tern runs it without";
    if (m->has_projector) return "text only: its image part is not used";
    if (m->has_template) return "the template of the GGUF file counts, not Ollama's";
    return "";
}

static void manifest_take(struct ollama_scan *o, const char *path) {
    char id[1024], blob[STORE_PATH_MAX], name[128];
    struct store_manifest m = {0};
    struct tern_err err = {0};
    struct buf text;
    struct os_stat st;
    if (!id_make(o, id, sizeof id)) return;
    struct store_entry e = {.kind = STORE_OLLAMA, .id = str_from(id), .tag = str_from(o->part[3])};
    buf_init(&text, STORE_MANIFEST_BYTES_MAX);
    if (!store_holds(o->root, path))
        e.fault = "its manifest is a link out of the store";
    else if (file_read_all(&text, path, &err) != TERN_OK || store_manifest_parse(&m, buf_str(&text), &err) != TERN_OK)
        e.fault = err.message;
    buf_release(&text);
    if (!e.fault) {
        e.n_bytes = m.n_bytes;
        e.note = note_of(&m);
        snprintf(name, sizeof name, "blobs/%s", m.model);
        if (!store_join(blob, o->root, name) || !os_stat_get(&st, blob))
            e.fault = "its blob is not there: the download is not complete";
        else if (!st.is_file || !store_holds(o->root, blob))
            e.fault = "its blob is a link out of the store, or no file";
        else if (st.size != m.n_bytes)
            e.fault = "its blob has another size than the manifest says";
        else
            e.path = blob;
    }
    store_add(o->list, &e);
}

static bool level_take(void *arg, const char *name, const struct os_stat *st) {
    struct ollama_scan *o = arg;
    char path[STORE_PATH_MAX];
    if (name[0] == '.' || !store_join(path, o->folder, name)) return true;
    o->part[o->level] = name;
    if (o->level == LEVELS - 1) {
        if (!st->is_dir) manifest_take(o, path);
    } else if (st->is_dir && store_holds(o->root, path)) {
        struct ollama_scan below = *o;
        below.folder = path;
        below.level++;
        os_list(path, level_take, &below, NULL); // at most LEVELS deep
    }
    return !o->list->is_cut && !o->list->failed;
}

void store_ollama_scan(struct store_list *l, const char *root) {
    char manifests[STORE_PATH_MAX];
    struct os_stat st;
    struct tern_err err = {0};
    if (!store_join(manifests, root, "manifests") || !os_stat_get(&st, manifests)) return;
    struct ollama_scan o = {.list = l, .root = root, .folder = manifests};
    if (os_list(manifests, level_take, &o, &err) != TERN_OK) store_note(l, "%s", err.message);
}
