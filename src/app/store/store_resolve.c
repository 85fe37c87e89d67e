// From what a user types to a path.
//
//   1  a path that is there, or that looks like one, stays what it is
//   2  a model of a store by its whole name (hf before ollama before lmstudio; "hf:…" names the store)
//   3  the last part of a name ("SmolLM2-135M-Instruct-GGUF:Q8_0"), where only one model has it
//
// A name that several models of one store have (":Q4_K_M" left out) is an error that lists them, never a choice.
#include "base/base.h"
#include "app/pull/pull.h"
#include "store.h"

#include <stdio.h>

#define NAMES_TOLD_MAX 12
#define NAME_MAX_TO_COMPARE 96

static bool looks_like_path(struct str name) {
    if (name.len == 0 || name.data[0] == '/' || name.data[0] == '.' || name.data[0] == '~') return true;
    if (str_find(name, STR(":"), 0) != (size_t)-1) return false; // "org/repo:file.gguf" is a name
    return str_ends(name, STR(".gguf")) || str_ends(name, STR(".safetensors")) || str_ends(name, STR("/"));
}

struct query {
    int kind; // of the store asked for; -1: any
    struct str id, tag;
};

static struct query query_make(struct str name) {
    struct query q = {.kind = -1};
    for (int k = 0; k < STORE_COUNT; k++) {
        struct str head = str_from(store_names[k]);
        if (!str_starts(name, head) || name.len <= head.len || name.data[head.len] != ':') continue;
        q.kind = k;
        name = (struct str){name.data + head.len + 1, name.len - head.len - 1};
        break;
    }
    q.id = name;
    for (size_t i = name.len; i > 0 && name.data[i - 1] != '/'; i--) {
        if (name.data[i - 1] != ':') continue;
        q.id = (struct str){name.data, i - 1};
        q.tag = (struct str){name.data + i, name.len - i};
        break;
    }
    return q;
}

static struct str last_part(struct str id) {
    for (size_t i = id.len; i > 0; i--)
        if (id.data[i - 1] == '/') return (struct str){id.data + i, id.len - i};
    return id;
}

// What ":tag" may mean: the tag, or the file's name with or without .gguf.
static bool tag_fits(const struct store_entry *e, struct str tag) {
    if (tag.len == 0 || store_name_eq(e->tag, tag)) return true;
    if (!e->path) return false;
    struct str file = last_part(str_from(e->path));
    return store_name_eq(file, tag) ||
           (str_ends(file, STR(".gguf")) && store_name_eq((struct str){file.data, file.len - 5}, tag));
}

// Entries of store `kind` that fit; in *first the first, or, without a tag, the one that means the name alone:
// a folder, Ollama's "latest".
static int matches_find(const struct store_list *l, const struct query *q, int kind, bool whole, int *first) {
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        const struct store_entry *e = &l->entries[i];
        if ((int)e->kind != kind || !store_name_eq(whole ? e->id : last_part(e->id), q->id) || !tag_fits(e, q->tag))
            continue;
        const bool is_plain =
            q->tag.len == 0 && (e->tag.len == 0 || (kind == STORE_OLLAMA && str_eqz(e->tag, "latest")));
        if (is_plain && whole) return *first = i, 1;
        if (n++ == 0) *first = i;
    }
    return n;
}

static enum tern_status ambiguous(const struct store_list *l, const struct query *q, int kind, bool whole,
                                  const char *name, struct tern_err *err) {
    struct buf names;
    buf_init(&names, 4096);
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        const struct store_entry *e = &l->entries[i];
        if ((kind >= 0 && (int)e->kind != kind) || !store_name_eq(whole ? e->id : last_part(e->id), q->id) ||
            !tag_fits(e, q->tag))
            continue;
        if (n++ < NAMES_TOLD_MAX)
            buf_putf(&names, "%s%s%s%s", n > 1 ? ", " : "", whole ? "" : store_names[e->kind], whole ? "" : ":",
                     e->name);
    }
    if (n > NAMES_TOLD_MAX) buf_putf(&names, " and %d more", n - NAMES_TOLD_MAX);
    enum tern_status status =
        err_set(err, TERN_INVALID_ARGUMENT, "'%s' may be one of %d models: %s", name, n, names.data ? names.data : "");
    buf_release(&names);
    return status;
}

static enum tern_status entry_use(const struct store_entry *e, struct buf *path, struct buf *entry_name,
                                  struct tern_err *err) {
    if (e->fault) return err_set(err, TERN_BAD_FORMAT, "%s (%s): %s", e->name, store_titles[e->kind], e->fault);
    buf_puts(path, e->path);
    if (entry_name) buf_puts(entry_name, e->name);
    return path->failed ? err_set(err, TERN_NO_MEMORY, "no memory for a path") : TERN_OK;
}

int name_distance(struct str a, struct str b) {
    int row[NAME_MAX_TO_COMPARE + 1];
    if (a.len > NAME_MAX_TO_COMPARE || b.len > NAME_MAX_TO_COMPARE) return 1000;
    for (int j = 0; j <= (int)b.len; j++) row[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= b.len; j++) {
            const bool same = store_name_eq((struct str){a.data + i - 1, 1}, (struct str){b.data + j - 1, 1});
            const int best = MIN(MIN(row[j], row[j - 1]) + 1, diagonal + (same ? 0 : 1));
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b.len];
}

static bool holds_part(struct str hay, struct str needle) {
    for (size_t i = 0; needle.len > 2 && i + needle.len <= hay.len; i++)
        if (store_name_eq((struct str){hay.data + i, needle.len}, needle)) return true;
    return false;
}

// Of a model that is to be removed: only what is installed helps, no file and no download.
static enum tern_status not_installed(const struct store_list *l, const char *name, const struct buf *near,
                                      struct tern_err *err) {
    if (near->len > 0)
        return err_set(err, TERN_NOT_FOUND, "%s: no model of that name is installed; did you mean %s?", name,
                       near->data);
    return err_set(err, TERN_NOT_FOUND, "%s: no model of that name is installed (%d models; `tern list` shows them)",
                   name, l->n);
}

static enum tern_status not_found(const struct store_list *l, const struct query *q, const char *name,
                                  enum store_use use, struct tern_err *err) {
    struct buf names;
    buf_init(&names, 4096);
    int n = 0;
    for (int i = 0; i < l->n && n < 3; i++) {
        const struct store_entry *e = &l->entries[i];
        const struct str part = last_part(q->id), own = last_part(e->id);
        const int limit = MAX(2, (int)part.len / 3);
        const bool same_id = store_name_eq(e->id, q->id) || store_name_eq(own, q->id);
        if (!same_id && name_distance(own, part) > limit && name_distance(e->id, q->id) > limit &&
            !holds_part(e->id, part))
            continue;
        buf_putf(&names, "%s%s", n++ ? ", " : "", e->name);
    }
    char pull[300] = "";
    struct str id, tag;
    const bool can_pull = (q->kind < 0 || q->kind == STORE_HF) && pull_name_split(str_from(name), &id, &tag);
    if (can_pull) snprintf(pull, sizeof pull, "; `tern pull %.200s` downloads it, if the hub has it", name);
    if (!can_pull && n == 0 && !strchr(name, '/')) snprintf(pull, sizeof pull, "; `tern pull org/repo` downloads one");
    enum tern_status status =
        use == STORE_TO_REMOVE ? not_installed(l, name, &names, err)
        : n > 0
            ? err_set(err, TERN_NOT_FOUND, "%s: no such file or folder, and no model of that name; did you mean %s?%s",
                      name, names.data, pull)
            : err_set(err, TERN_NOT_FOUND,
                      "%s: no such file or folder, and no model of that name in the stores of this machine (%d "
                      "models; `tern list` shows them)%s",
                      name, l->n, pull);
    buf_release(&names);
    return status;
}

enum tern_status store_find(const struct store_list *l, const char *name, enum store_use use,
                            const struct store_entry **out, struct tern_err *err) {
    struct query q = query_make(str_from(name));
    int first = 0;
    for (int k = 0; k < STORE_COUNT; k++) {
        if (q.kind >= 0 && q.kind != k) continue;
        const int n = matches_find(l, &q, k, true, &first);
        if (n == 1) return *out = &l->entries[first], TERN_OK;
        if (n > 1) return ambiguous(l, &q, k, true, name, err);
    }
    int n_all = 0, found = 0;
    for (int k = 0; k < STORE_COUNT; k++) {
        if (q.kind >= 0 && q.kind != k) continue;
        const int n = matches_find(l, &q, k, false, &first);
        if (n > 0 && n_all == 0) found = first;
        n_all += n;
    }
    if (n_all == 1) return *out = &l->entries[found], TERN_OK;
    if (n_all > 1) return ambiguous(l, &q, q.kind, false, name, err);
    return not_found(l, &q, name, use, err);
}

enum tern_status store_resolve(const char *name, struct buf *path, struct buf *entry_name, struct tern_err *err) {
    struct os_stat st;
    if (looks_like_path(str_from(name)) || os_stat_get(&st, name)) {
        buf_puts(path, name);
        return path->failed ? err_set(err, TERN_NO_MEMORY, "no memory for a path") : TERN_OK;
    }
    struct store_list l;
    const struct store_entry *entry;
    TRY(store_scan(&l, err));
    enum tern_status status = store_find(&l, name, STORE_TO_OPEN, &entry, err);
    if (status == TERN_OK) status = entry_use(entry, path, entry_name, err);
    store_list_release(&l);
    return status;
}
