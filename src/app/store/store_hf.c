// The Hugging Face cache: models--<org>--<repo>/{refs/main, snapshots/<revision>/…, blobs}. The snapshot that
// refs/main names counts; without one, the one used last. Its files are links into blobs. And LM Studio's folder,
// which is <publisher>/<repo>/<files>.
#include "base/base.h"
#include "store.h"

#include <stdio.h>

#define REVISION_MAX 64

struct hub_scan {
    struct store_list *list;
    const char *root; // the store
    const char *folder;
    char publisher[256];
    char newest[REVISION_MAX + 1];
    int64_t newest_ns;
    int n;
};

static bool revision_is_sound(struct str s) {
    if (s.len < 7 || s.len > REVISION_MAX) return false;
    for (size_t i = 0; i < s.len; i++)
        if (!((s.data[i] >= '0' && s.data[i] <= '9') || (s.data[i] >= 'a' && s.data[i] <= 'f'))) return false;
    return true;
}

static bool snapshot_take(void *arg, const char *name, const struct os_stat *st) {
    struct hub_scan *h = arg;
    if (!st->is_dir || !revision_is_sound(str_from(name))) return true;
    if (h->n++ == 0 || st->mtime_ns > h->newest_ns) {
        h->newest_ns = st->mtime_ns;
        snprintf(h->newest, sizeof h->newest, "%s", name);
    }
    return true;
}

// The snapshot's folder into out; false when there is none.
static bool snapshot_find(struct hub_scan *h, const char *repo, char out[STORE_PATH_MAX]) {
    char path[STORE_PATH_MAX], name[STORE_PATH_MAX];
    struct buf text;
    struct os_stat st;
    bool found = false;
    buf_init(&text, 256);
    if (store_join(path, repo, "refs/main") && os_stat_get(&st, path) && store_holds(h->root, path) &&
        file_read_all(&text, path, NULL) == TERN_OK) {
        struct str revision = str_trim(buf_str(&text));
        snprintf(name, sizeof name, "snapshots/%.*s", (int)revision.len, revision.data ? revision.data : "");
        found = revision_is_sound(revision) && store_join(out, repo, name) && os_stat_get(&st, out) && st.is_dir;
    }
    buf_release(&text);
    if (found) return true;
    h->n = 0;
    if (!store_join(path, repo, "snapshots") || os_list(path, snapshot_take, h, NULL) != TERN_OK || h->n == 0)
        return false;
    return store_join(out, path, h->newest);
}

static bool repo_take(void *arg, const char *name, const struct os_stat *st) {
    struct hub_scan *h = arg;
    struct str n = str_from(name), head = STR("models--");
    if (!st->is_dir || !str_starts(n, head)) return true;
    char id[1024], repo[STORE_PATH_MAX], snapshot[STORE_PATH_MAX];
    struct str rest = {n.data + head.len, n.len - head.len};
    size_t cut = str_find(rest, STR("--"), 0);
    int len = cut == (size_t)-1 ? snprintf(id, sizeof id, "%.*s", (int)rest.len, rest.data)
                                : snprintf(id, sizeof id, "%.*s/%s", (int)cut, rest.data, rest.data + cut + 2);
    if (len <= 0 || len >= (int)sizeof id || !store_join(repo, h->root, name)) return true;
    struct str id_str = {id, (size_t)len};
    if (!store_holds(h->root, repo))
        store_add(h->list, &(struct store_entry){
                               .kind = STORE_HF, .id = id_str, .fault = "its folder is a link out of the store"});
    else if (!snapshot_find(h, repo, snapshot))
        store_add(h->list,
                  &(struct store_entry){.kind = STORE_HF, .id = id_str, .fault = "nothing was downloaded yet"});
    else
        store_folder_scan(h->list, STORE_HF, id_str, snapshot, repo);
    return !h->list->is_cut && !h->list->failed;
}

static void root_list(struct store_list *l, const char *root,
                      bool (*fn)(void *, const char *, const struct os_stat *)) {
    struct hub_scan h = {.list = l, .root = root, .folder = root};
    struct tern_err err = {0};
    if (os_list(root, fn, &h, &err) != TERN_OK) store_note(l, "%s", err.message);
}

void store_hf_scan(struct store_list *l, const char *hub) { root_list(l, hub, repo_take); }

// ------------------------------------------------------------------------------------------------- LM Studio

static bool lmstudio_repo_take(void *arg, const char *name, const struct os_stat *st) {
    struct hub_scan *h = arg;
    char id[1024], folder[STORE_PATH_MAX];
    int len = snprintf(id, sizeof id, "%s/%s", h->publisher, name);
    if (!st->is_dir || name[0] == '.' || len >= (int)sizeof id || !store_join(folder, h->folder, name)) return true;
    store_folder_scan(h->list, STORE_LMSTUDIO, (struct str){id, (size_t)len}, folder, h->root);
    return !h->list->is_cut && !h->list->failed;
}

static bool publisher_take(void *arg, const char *name, const struct os_stat *st) {
    struct hub_scan *h = arg;
    char folder[STORE_PATH_MAX];
    if (!st->is_dir || name[0] == '.' || strlen(name) >= sizeof h->publisher) return true;
    if (!store_join(folder, h->root, name) || !store_holds(h->root, folder)) return true;
    struct hub_scan below = {.list = h->list, .root = h->root, .folder = folder};
    snprintf(below.publisher, sizeof below.publisher, "%s", name);
    os_list(folder, lmstudio_repo_take, &below, NULL);
    return !h->list->is_cut && !h->list->failed;
}

void store_lmstudio_scan(struct store_list *l, const char *root) { root_list(l, root, publisher_take); }
