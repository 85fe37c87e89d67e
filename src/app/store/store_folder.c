// The models in one folder of files: every GGUF file (of a split one the first shard stands for all), and the folder
// itself when it holds safetensors with a config.json.
//
// A GGUF file's tag is the name of its quantisation as its file name ends in it ("…-Q4_K_M.gguf": Q4_K_M), or its
// whole name without an end like that. Two files of one tag get their whole names.
#include "base/base.h"
#include "store.h"

#include <stdio.h>

#define FILES_MAX 1024 // of one folder, its sub-folders included

struct folder_file {
    char path[STORE_PATH_MAX]; // below the folder
    uint64_t n_bytes;
    bool is_file; // else a link to nowhere
};
struct folder_scan {
    struct store_list *list;
    const char *folder, *root;
    char below[STORE_PATH_MAX]; // sub-folder being read, "" or "x/"
    int depth;
    struct folder_file *files;
    int n;
    bool has_config, has_weights, is_outside;
    uint64_t n_bytes_weights;
};

bool store_is_gguf(struct str name) {
    return name.len > 5 && store_name_eq((struct str){name.data + name.len - 5, 5}, STR(".gguf"));
}

// "…-00002-of-00003.gguf": the numbers; else count 1.
void store_shard_read(struct str name, int64_t *no, int64_t *count) {
    *no = *count = 1;
    const size_t n = 20; // "-00001-of-00003.gguf"
    if (name.len <= n || name.data[name.len - n] != '-') return;
    const char *p = name.data + name.len - n;
    int64_t a, b;
    if (memcmp(p + 6, "-of-", 4) != 0) return;
    struct str first = {p + 1, 5}, second = {p + 10, 5};
    while (first.len > 1 && first.data[0] == '0') first = (struct str){first.data + 1, first.len - 1};
    while (second.len > 1 && second.data[0] == '0') second = (struct str){second.data + 1, second.len - 1};
    if (!str_to_i64(first, &a) || !str_to_i64(second, &b) || a < 1 || b < a) return;
    *no = a;
    *count = b;
}

// The file name without folder, shard numbers and ".gguf".
struct str store_stem_of(struct str name) {
    for (size_t i = name.len; i > 0; i--) {
        if (name.data[i - 1] != '/') continue;
        name = (struct str){name.data + i, name.len - i};
        break;
    }
    int64_t no, count;
    store_shard_read(name, &no, &count);
    name.len -= count > 1 ? 20 : 5;
    return name;
}

static bool is_quant(struct str s) {
    static const char *const heads[] = {"Q", "IQ", "F16", "F32", "BF16", "FP16", "MXFP4", "TQ", "UD"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        struct str head = str_from(heads[i]);
        if (s.len < head.len || !store_name_eq((struct str){s.data, head.len}, head)) continue;
        const bool needs_digit = head.data[head.len - 1] == 'Q';
        if (!needs_digit && s.len == head.len) return true;
        if (s.len > head.len && s.data[head.len] >= '0' && s.data[head.len] <= '9') return true;
    }
    return false;
}

struct str store_tag_of(struct str stem) {
    for (size_t i = stem.len; i > 0; i--) {
        const char c = stem.data[i - 1];
        if (c != '-' && c != '.') continue;
        struct str tail = {stem.data + i, stem.len - i};
        if (is_quant(tail)) return tail;
        break;
    }
    return stem;
}

static bool file_take(void *arg, const char *name, const struct os_stat *st);

static void sub_folder_take(struct folder_scan *f, const char *name) {
    const size_t len = strlen(f->below);
    char path[STORE_PATH_MAX];
    if (f->depth + 1 >= STORE_FOLDER_DEPTH_MAX || len + strlen(name) + 2 >= sizeof f->below || name[0] == '.') return;
    snprintf(f->below + len, sizeof f->below - len, "%s/", name);
    f->depth++;
    if (store_join(path, f->folder, f->below) && store_holds(f->root, path)) os_list(path, file_take, f, NULL);
    f->depth--;
    f->below[len] = 0;
}

static bool file_take(void *arg, const char *name, const struct os_stat *st) {
    struct folder_scan *f = arg;
    struct str n = str_from(name);
    char path[STORE_PATH_MAX];
    if (st->is_dir) return sub_folder_take(f, name), true;
    const bool is_config = f->depth == 0 && strcmp(name, "config.json") == 0;
    const bool is_weights = f->depth == 0 && str_ends(n, STR(".safetensors"));
    const bool is_other = f->depth == 0 && (str_ends(n, STR(".json")) || str_ends(n, STR(".jinja")));
    const bool is_model = store_is_gguf(n) && !str_starts(n, STR("mmproj"));
    if (!is_config && !is_weights && !is_other && !is_model) return true;
    char relative[STORE_PATH_MAX];
    if ((size_t)snprintf(relative, sizeof relative, "%s%s", f->below, name) >= sizeof relative) return true;
    if (!store_join(path, f->folder, relative)) return true;
    const bool outside = st->is_file && !store_holds(f->root, path);
    if (is_model && !outside) {
        if (f->n == FILES_MAX) return false;
        struct folder_file *file = &f->files[f->n++];
        snprintf(file->path, sizeof file->path, "%s", relative);
        file->n_bytes = st->size;
        file->is_file = st->is_file;
    } else if (outside) {
        // A link that leaves the store: nothing of it is opened, and a folder with one is not either.
        f->is_outside = true;
    } else {
        f->has_config = f->has_config || is_config;
        f->has_weights = f->has_weights || (is_weights && st->is_file);
        if (is_weights) f->n_bytes_weights += st->size;
    }
    return true;
}

static const char *shards_check(const struct folder_scan *f, int i, uint64_t *n_bytes, char text[256]) {
    struct str name = str_from(f->files[i].path);
    int64_t no, count;
    store_shard_read(name, &no, &count);
    *n_bytes = f->files[i].n_bytes;
    if (!f->files[i].is_file) return "its link leads nowhere: the download is not complete";
    int n_found = 1;
    for (int k = 0; k < f->n && count > 1; k++) {
        struct str other = str_from(f->files[k].path);
        int64_t other_no, other_count;
        store_shard_read(other, &other_no, &other_count);
        if (k == i || other_count != count || other.len != name.len || !f->files[k].is_file ||
            memcmp(other.data, name.data, name.len - 20) != 0)
            continue;
        n_found++;
        *n_bytes += f->files[k].n_bytes;
    }
    if (n_found == count) return NULL;
    snprintf(text, 256, "%d of %lld shards are there", n_found, (long long)count);
    return text;
}

static void gguf_add(struct folder_scan *f, enum store_kind kind, struct str id, int i) {
    struct str name = str_from(f->files[i].path), stem = store_stem_of(name), tag = store_tag_of(stem);
    int64_t no, count;
    char path[STORE_PATH_MAX], text[256];
    store_shard_read(name, &no, &count);
    if (no != 1) return;
    for (int k = 0; k < f->n; k++) {
        struct str other = str_from(f->files[k].path);
        store_shard_read(other, &no, &count);
        if (k != i && no == 1 && store_name_eq(store_tag_of(store_stem_of(other)), tag)) tag = stem;
    }
    struct store_entry e = {.kind = kind, .id = id, .tag = tag, .path = path};
    e.fault = shards_check(f, i, &e.n_bytes, text);
    if (store_join(path, f->folder, f->files[i].path)) store_add(f->list, &e);
}

void store_folder_scan(struct store_list *l, enum store_kind kind, struct str id, const char *folder,
                       const char *root) {
    struct folder_scan f = {.list = l, .folder = folder, .root = root};
    struct tern_err err = {0};
    f.files = mem_calloc(FILES_MAX, sizeof *f.files);
    if (!f.files) {
        l->failed = true;
        return;
    }
    if (!store_holds(root, folder)) {
        store_add(l, &(struct store_entry){.kind = kind, .id = id, .fault = "its folder is a link out of the store"});
    } else if (os_list(folder, file_take, &f, &err) != TERN_OK) {
        store_add(l, &(struct store_entry){.kind = kind, .id = id, .fault = err.message});
    } else {
        for (int i = 0; i < f.n; i++) gguf_add(&f, kind, id, i);
        const bool is_model = f.has_config && f.has_weights && !f.is_outside;
        struct store_entry e = {.kind = kind, .id = id, .path = folder, .n_bytes = f.n_bytes_weights};
        if (f.is_outside)
            e.fault = "a file of it is a link out of the store";
        else if (!is_model)
            e.fault = f.has_config ? "only its configuration is there, no weights" : "no model file is there";
        if (e.fault) e.path = NULL;
        if (is_model || f.is_outside || f.n == 0) store_add(l, &e);
    }
    mem_free(f.files);
}
