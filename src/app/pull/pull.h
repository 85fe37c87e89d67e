// Private to app/: downloading models from a Hugging Face hub into the cache that its own programs use.
//
//   pull_command.c   tern pull: what was asked for, what is told
//   pull_model.c     one model: what is asked of the hub, in which order
//   pull_hub.c       where the hub is, who asks, one request with its redirects
//   pull_listing.c   the files of a repository, as the hub lists them
//   pull_choose.c    which of them are the model that was named
//   pull_fetch.c     one file: locked, resumed, checked, put in place
//
// What a hub says is not believed: names lead nowhere outside the repository's folder, sizes and digests are held
// against what came, redirects are counted, leave https never, and the token goes to no other host.
#pragma once
#include "app/app.h"
#include "app/store/store.h"

#define PULL_FILES_MAX 4096 // of one repository
#define PULL_LISTING_BYTES_MAX (16u << 20)
#define PULL_NAME_MAX 512 // of a file, with its folders
#define PULL_REDIRECTS_MAX 5
#define PULL_TOKEN_MAX 512
#define PULL_STALL_S 30       // a server that sends nothing for so long is asked again
#define PULL_OID_MAX 64       // hexadecimal digits of a SHA-256; git's SHA-1 has 40
#define PULL_ASKED_MAX 100000 // requests for one file in all, each of which brought bytes

// ----------------------------------------------------------------------------------------------------------- the hub

struct pull_hub {
    char endpoint[HTTP_URL_MAX / 2];         // "https://huggingface.co"
    char authorization[PULL_TOKEN_MAX + 32]; // a header's line; empty: nobody is named
    const char *token_from;                  // "HF_TOKEN", for messages
    int n_tries;                             // requests that bring nothing, one after another
    bool (*go_on)(void *arg);                // asked while it waits; NULL: it does
    void *go_on_arg;
};
// By HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME. Refuses when HF_HUB_OFFLINE is set.
enum tern_status pull_hub_init(struct pull_hub *h, struct tern_err *err);

struct pull_get {
    const char *url; // at the hub
    uint64_t from;   // first byte wanted
    uint64_t n_bytes_max;
    // Headers and body of the last answer only; of the hub's own answers, redirects too, on_hub_header.
    bool (*on_hub_header)(void *arg, struct str name, struct str value);
    bool (*on_header)(void *arg, int status, struct str name, struct str value);
    bool (*on_data)(void *arg, int status, struct str piece);
    void *arg;
};
struct pull_answer {
    int status;
    double retry_after_s;
    char said[256]; // X-Error-Message
};
// One request, its redirects followed. TERN_OK: an answer came, whatever its status.
enum tern_status pull_hub_get(const struct pull_hub *h, const struct pull_get *g, struct pull_answer *out,
                              struct tern_err *err);
// An answer other than 200 and 206 as an error that says what to do.
enum tern_status pull_answer_fault(const struct pull_hub *h, const struct pull_answer *a, const char *what,
                                   struct tern_err *err);
// Is it worth asking again after the n-th try brought nothing but this? Tells so, and waits.
bool pull_hub_again(const struct pull_hub *h, int n, enum tern_status status, const struct pull_answer *a,
                    const struct tern_err *err);
// Scheme, host and port of a URL; empty when it has none, or a user's name before the host.
struct str pull_url_origin(struct str url);
bool pull_url_put(struct buf *b, struct str path); // percent-encoded, '/' kept

// ----------------------------------------------------------------------------------------------------------- listing

struct pull_file {
    const char *name; // below the repository: "Q4/x.gguf"
    uint64_t n_bytes;
    char oid[PULL_OID_MAX + 1]; // name of its blob: SHA-256 of a large file, git's SHA-1 of a small one
    bool is_wanted;
};
struct pull_repo {
    struct arena arena;
    const char *id; // "org/repo"
    char commit[PULL_OID_MAX + 1];
    struct pull_file *files;
    int n;
};
// "org/repo" or "org/repo:tag", with or without "hf:", "hf.co/" or "https://huggingface.co/" before it.
bool pull_name_split(struct str name, struct str *id, struct str *tag);
bool pull_file_name_is_sound(struct str name);
// From the JSON of /api/models/…?blobs=true. Release in any case.
enum tern_status pull_listing_parse(struct pull_repo *r, struct str json, struct tern_err *err);
enum tern_status pull_listing_get(struct pull_repo *r, const struct pull_hub *h, const char *revision,
                                  struct tern_err *err);
void pull_repo_release(struct pull_repo *r);

// Marks the files of the model `tag` (empty: the usual one), and says its tag in *chosen ("" for a folder of
// safetensors) and the file that stands for it in *first (-1: the folder). Others that could be pulled in *others.
enum tern_status pull_choose(struct pull_repo *r, struct str tag, struct str *chosen, int *first, struct buf *others,
                             struct tern_err *err);

// ------------------------------------------------------------------------------------------------------------- files

struct pull_place { // of one repository in the cache
    char root[STORE_PATH_MAX], repo[STORE_PATH_MAX], snapshot[STORE_PATH_MAX], locks[STORE_PATH_MAX];
};
enum tern_status pull_place_make(struct pull_place *p, const struct pull_repo *r, struct tern_err *err);
struct pull_result {
    bool was_there;
    uint64_t resumed_from, n_fetched;
};
// The bytes of f that are still to come: its size, less what lies in its blob or part.
uint64_t pull_file_missing(const struct pull_place *p, const struct pull_file *f);
struct pull_watch {           // what the one who pulls is told; functions may be NULL
    bool show;                // a progress line on a terminal
    bool (*go_on)(void *arg); // asked between requests
    void (*on_choice)(void *arg, struct str tag, struct str others);          // what else the repository has
    bool (*on_bytes)(void *arg, const struct pull_file *f, uint64_t n_bytes); // so many are there; false: stop
    void (*on_file)(void *arg, const struct pull_file *f, const struct pull_result *g); // it is there
    void *arg;
};
// Waits for another program that pulls the same. TERN_CANCELLED: on_bytes said so; the part stays for the next time.
enum tern_status pull_file_get(const struct pull_hub *h, const struct pull_repo *r, const struct pull_place *p,
                               const struct pull_file *f, const struct pull_watch *watch, struct pull_result *out,
                               struct tern_err *err);
// snapshots/<commit>/<name> becomes a link to the blob; false: no blob of its size is there.
bool pull_file_link(const struct pull_place *p, const struct pull_file *f, enum tern_status *status,
                    struct tern_err *err);

// ------------------------------------------------------------------------------------------------------- a whole model

struct pull_job {
    // Set before it runs:
    const char *revision; // "main"
    int n_tries;
    struct pull_watch watch;
    // Once it ran:
    struct buf name;    // "org/repo:TAG", as `tern run -m` takes it
    struct buf path;    // of the model
    struct str repo_id; // "org/repo", in name
    struct pull_repo repo;
    struct pull_hub hub;
    struct pull_place place;
    struct str tag;
    int first;
};
void pull_job_init(struct pull_job *j, int n_tries);
enum tern_status pull_job_run(struct pull_job *j, struct str id, struct str tag, struct tern_err *err);
void pull_job_release(struct pull_job *j);
bool pull_revision_is_sound(struct str s);
