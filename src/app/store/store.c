// The list of models that stores hold, and where stores are: the variables and folders that their programs use.
#include "base/base.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>

#define NOTES_BYTES_MAX 65536

const char *const store_names[STORE_COUNT] = {"hf", "ollama", "lmstudio"};
const char *const store_titles[STORE_COUNT] = {"Hugging Face cache", "Ollama", "LM Studio"};

bool store_join(char out[STORE_PATH_MAX], const char *folder, const char *name) {
    int n = snprintf(out, STORE_PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < STORE_PATH_MAX;
}

bool store_name_eq(struct str a, struct str b) {
    if (a.len != b.len) return false;
    for (size_t i = 0; i < a.len; i++) {
        char x = a.data[i], y = b.data[i];
        if (x >= 'A' && x <= 'Z') x = (char)(x + 32);
        if (y >= 'A' && y <= 'Z') y = (char)(y + 32);
        if (x != y) return false;
    }
    return true;
}

bool store_holds(const char *root, const char *path) {
    char a[STORE_PATH_MAX], b[STORE_PATH_MAX];
    if (!os_real_path(a, sizeof a, root) || !os_real_path(b, sizeof b, path)) return false;
    const size_t n = strlen(a);
    return strncmp(a, b, n) == 0 && (b[n] == '/' || b[n] == 0);
}

void store_note(struct store_list *l, const char *fmt, ...) {
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    str_put_escaped(&l->notes, str_from(line), sizeof line);
    buf_putc(&l->notes, '\n');
}

static bool text_copy(struct store_list *l, const char **out, const char *in) {
    if (!in) return *out = NULL, true;
    *out = arena_dup(&l->arena, in, strlen(in));
    return *out != NULL;
}

static bool entry_put(struct store_list *l, const struct store_entry *e) {
    if (l->n == STORE_ENTRIES_MAX) return l->is_cut = true, false;
    if (l->n == l->cap) {
        const int cap = l->cap ? 2 * l->cap : 64;
        struct store_entry *more = mem_realloc(l->entries, (size_t)cap * sizeof *more);
        if (!more) return false;
        l->entries = more;
        l->cap = cap;
    }
    struct store_entry copy = *e;
    char *name = arena_alloc(&l->arena, e->id.len + e->tag.len + 2);
    if (!name) return false;
    memcpy(name, e->id.data, e->id.len);
    name[e->id.len] = e->tag.len ? ':' : 0;
    if (e->tag.len) memcpy(name + e->id.len + 1, e->tag.data, e->tag.len);
    name[e->id.len + 1 + e->tag.len] = 0;
    copy.name = name;
    copy.id.data = name;
    copy.tag.data = name + e->id.len + 1;
    if (!text_copy(l, &copy.path, e->path) || !text_copy(l, &copy.fault, e->fault) ||
        !text_copy(l, &copy.note, e->note ? e->note : ""))
        return false;
    l->entries[l->n++] = copy;
    return true;
}

bool store_add(struct store_list *l, const struct store_entry *e) {
    if (entry_put(l, e)) return true;
    l->failed = l->failed || !l->is_cut;
    return false;
}

static int entry_order(const void *a, const void *b) {
    const struct store_entry *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    const int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->path ? x->path : "", y->path ? y->path : "");
}

typedef void (*scan_fn)(struct store_list *l, const char *root);

// A place is scanned when it is there; `name` (nullable) is a folder of it.
static void place_scan(struct store_list *l, scan_fn scan, const char *base, const char *name) {
    char path[STORE_PATH_MAX];
    struct os_stat st;
    if (!base || (name && !store_join(path, base, name))) return;
    if (!name) snprintf(path, sizeof path, "%s", base);
    if (os_stat_get(&st, path) && st.is_dir) scan(l, path);
}

bool store_hf_root(char out[STORE_PATH_MAX]) {
    const char *hub = env_get("HF_HUB_CACHE"), *home = env_get("HF_HOME");
    if (!hub) hub = env_get("HUGGINGFACE_HUB_CACHE"); // the older spelling
    if (hub) return snprintf(out, STORE_PATH_MAX, "%s", hub) < STORE_PATH_MAX;
    if (home) return store_join(out, home, "hub");
    return os_user_dir(OS_USER_CACHE, "huggingface/hub", out, STORE_PATH_MAX)[0] != 0;
}

enum tern_status store_scan(struct store_list *l, struct tern_err *err) {
    *l = (struct store_list){0};
    arena_init(&l->arena, 0);
    buf_init(&l->notes, NOTES_BYTES_MAX);
    const char *home = env_get("HOME"), *ollama = env_get("OLLAMA_MODELS");
    char hub[STORE_PATH_MAX];
    if (store_hf_root(hub)) place_scan(l, store_hf_scan, hub, NULL);
    if (ollama) {
        place_scan(l, store_ollama_scan, ollama, NULL);
    } else {
        place_scan(l, store_ollama_scan, home, ".ollama/models");
        place_scan(l, store_ollama_scan, "/usr/share/ollama/.ollama/models", NULL);
    }
    place_scan(l, store_lmstudio_scan, home, ".lmstudio/models");
    place_scan(l, store_lmstudio_scan, home, ".cache/lm-studio/models");
    if (l->n > 1) qsort(l->entries, (size_t)l->n, sizeof *l->entries, entry_order);
    if (l->is_cut) store_note(l, "more than %d models; the rest is left out", STORE_ENTRIES_MAX);
    if (!l->failed) return TERN_OK;
    store_list_release(l);
    return err_set(err, TERN_NO_MEMORY, "no memory to list models");
}

void store_list_release(struct store_list *l) {
    mem_free(l->entries);
    arena_release(&l->arena);
    buf_release(&l->notes);
    *l = (struct store_list){0};
}
