// Private to app/: models that other programs keep on this machine, found and opened in place.
//
//   store.c           the list, the places where stores may be, what lies inside a store
//   store_folder.c    the models in one folder of files (Hugging Face snapshots, LM Studio)
//   store_hf.c        the Hugging Face cache; LM Studio's folder
//   store_ollama.c    Ollama's manifests and blobs
//   store_resolve.c   from a name that a user types to a path
//   store_remove.c    taking a model out of the Hugging Face cache
//
// Stores are only read, but for the Hugging Face cache: pull.h fills it, store_remove takes from it. What a store's
// links, manifests and names say is not believed: a path leads nowhere outside the store, digests are hexadecimal,
// manifests are bounded. A broken entry is listed with its fault and stops nothing.
#pragma once
#include "app/app.h"

#define STORE_ENTRIES_MAX 4096 // of all stores together
#define STORE_PATH_MAX 4096
#define STORE_MANIFEST_BYTES_MAX (1u << 20)
#define STORE_FOLDER_DEPTH_MAX 3 // folders of a snapshot that may hold model files

enum store_kind { STORE_HF, STORE_OLLAMA, STORE_LMSTUDIO, STORE_COUNT };
extern const char *const store_names[STORE_COUNT];  // "hf", "ollama", "lmstudio": prefixes of names
extern const char *const store_titles[STORE_COUNT]; // "Hugging Face cache", …

struct store_entry {
    enum store_kind kind;
    struct str id;     // "org/repo", "smollm2"
    struct str tag;    // "Q4_K_M", "135m"; empty: the only form, a folder of safetensors
    const char *name;  // "org/repo:Q4_K_M"
    const char *path;  // what model_open takes; NULL with a fault that leaves nothing to open
    uint64_t n_bytes;  // of the weights' files
    const char *fault; // NULL, or why it cannot be used
    const char *note;  // "", or what the store says besides
};
struct store_list {
    struct arena arena;
    struct store_entry *entries; // by store, then name
    int n, cap;
    bool is_cut;      // more than STORE_ENTRIES_MAX
    bool failed;      // out of memory
    struct buf notes; // lines about places that could not be read
};
// All stores of this machine, by the environment. TERN_NO_MEMORY is the only failure.
enum tern_status store_scan(struct store_list *l, struct tern_err *err);
void store_list_release(struct store_list *l);
// The Hugging Face cache of this user (HF_HUB_CACHE …), there or not; false when nothing says where.
bool store_hf_root(char out[STORE_PATH_MAX]);

// The path that a model name means: a path (kept as it is), or a model of a store. *entry_name (nullable): the name of
// the store's model, "" for paths. Errors list the candidates, or names like it.
enum tern_status store_resolve(const char *name, struct buf *path, struct buf *entry_name, struct tern_err *err);

// The model of the list that a name means, usable or not. Where none is, the error says what to do for this use.
enum store_use { STORE_TO_OPEN, STORE_TO_REMOVE };
enum tern_status store_find(const struct store_list *l, const char *name, enum store_use use,
                            const struct store_entry **out, struct tern_err *err);

struct store_removed {
    char name[1200];
    uint64_t n_bytes; // freed
    int n_files;
};
// Takes a model out of the Hugging Face cache: its links in every snapshot, the blobs that nothing else uses, and the
// whole repository when no model is left in it (or `whole`). dry: only counts. Other programs' stores are refused.
enum tern_status store_remove(const char *name, bool whole, bool dry, struct store_removed *out, struct tern_err *err);

// ------------------------------------------------------------------------------------------------- inside stores

// The strings are copied. False: out of memory, or the list is full (l->is_cut).
bool store_add(struct store_list *l, const struct store_entry *e);
void store_note(struct store_list *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool store_join(char out[STORE_PATH_MAX], const char *folder, const char *name); // false: too long
// Does path, its links followed, lie in root (links followed)?
bool store_holds(const char *root, const char *path);
// The models in folder as entries `id`: GGUF files, or safetensors with config.json. Files must lie in root.
void store_folder_scan(struct store_list *l, enum store_kind kind, struct str id, const char *folder, const char *root);
// What the name of a GGUF file says. Shard "…-00002-of-00003.gguf": its numbers, else 1 of 1. Stem: the name without
// folder, shard numbers and ".gguf". Tag of a stem: the quantisation it ends in, or the whole stem.
bool store_is_gguf(struct str name);
void store_shard_read(struct str name, int64_t *no, int64_t *count);
struct str store_stem_of(struct str name);
struct str store_tag_of(struct str stem);
void store_hf_scan(struct store_list *l, const char *hub);
void store_lmstudio_scan(struct store_list *l, const char *root);
void store_ollama_scan(struct store_list *l, const char *root);

struct store_manifest {
    char model[72]; // "sha256-<64 hex digits>", the name of the blob; empty: none
    uint64_t n_bytes;
    bool has_template, has_adapter, has_projector;
};
enum tern_status store_manifest_parse(struct store_manifest *out, struct str json, struct tern_err *err);

bool store_name_eq(struct str a, struct str b); // ASCII letters in either case
