// One file into the cache: blobs/<digest> with a link to it in the snapshot.
//
// It grows as blobs/<digest>.incomplete, under the lock .locks/<repository>/<digest>.lock, as the hub's own programs
// have it; their part files are gone on with. The digest is computed as the bytes come (of what was there first), so a
// whole file is moved to its name only when size and digest are right: a process that dies at any point leaves a part
// that the next one continues, and never a wrong file. A part that turns out wrong is thrown away and fetched anew
// once; bytes that are wrong from the start are an error.
#include "base/base.h"
#include "pull.h"

#include <stdio.h>

#define LOCK_WAIT_MS (24 * 3600 * 1000)

enum tern_status pull_place_make(struct pull_place *p, const struct pull_repo *r, struct tern_err *err) {
    char name[STORE_PATH_MAX], path[STORE_PATH_MAX];
    const char *slash = strchr(r->id, '/');
    const int n = snprintf(name, sizeof name, "models--%.*s--%s", (int)(slash - r->id), r->id, slash + 1);
    char blobs[STORE_PATH_MAX];
    bool fits = store_hf_root(p->root) && n < (int)sizeof name && store_join(p->repo, p->root, name) &&
                store_join(path, p->root, ".locks") && store_join(p->locks, path, name) &&
                store_join(path, p->repo, "snapshots") && store_join(p->snapshot, path, r->commit) &&
                store_join(blobs, p->repo, "blobs");
    if (!fits)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "no place for models: set HF_HOME or HOME to a folder (of a short path)");
    const char *const folders[] = {p->repo, path, p->snapshot, blobs, p->locks};
    TRY(os_mkdirs(p->root, err));
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        TRY(os_mkdirs(folders[i], err));
        if (!store_holds(p->root, folders[i]))
            return err_set(err, TERN_INVALID_ARGUMENT, "'%s' is a link out of the cache; nothing is written there",
                           folders[i]);
    }
    return TERN_OK;
}

static bool blob_path(char out[STORE_PATH_MAX], const struct pull_place *p, const struct pull_file *f,
                      const char *end) {
    char name[PULL_OID_MAX + 40];
    snprintf(name, sizeof name, "blobs/%s%s", f->oid, end);
    return store_join(out, p->repo, name);
}

uint64_t pull_file_missing(const struct pull_place *p, const struct pull_file *f) {
    char path[STORE_PATH_MAX];
    struct os_stat st;
    if (blob_path(path, p, f, "") && os_stat_get(&st, path) && st.size == f->n_bytes) return 0;
    if (blob_path(path, p, f, ".incomplete") && os_stat_get(&st, path)) return f->n_bytes - MIN(f->n_bytes, st.size);
    return f->n_bytes;
}

bool pull_file_link(const struct pull_place *p, const struct pull_file *f, enum tern_status *status,
                    struct tern_err *err) {
    char path[STORE_PATH_MAX], target[STORE_PATH_MAX], old[STORE_PATH_MAX];
    struct os_stat st;
    size_t n = 0;
    *status = TERN_OK;
    if (!blob_path(path, p, f, "") || !os_stat_get(&st, path) || st.size != f->n_bytes) return false;
    for (const char *c = f->name; *c; c++)
        if (*c == '/') n += (size_t)snprintf(target + n, sizeof target - n, "../");
    snprintf(target + n, sizeof target - n, "../../blobs/%s", f->oid);
    if (!store_join(path, p->snapshot, f->name))
        return *status = err_set(err, TERN_LIMIT, "the path of '%s' is too long", f->name), true;
    if (os_link_read(old, sizeof old, path) && strcmp(old, target) == 0) return true;
    char *slash = strrchr(path, '/');
    *slash = 0;
    *status = os_mkdirs(path, err);
    if (*status == TERN_OK && !store_holds(p->snapshot, path))
        *status = err_set(err, TERN_INVALID_ARGUMENT, "'%s' is a link out of the snapshot", path);
    *slash = '/';
    if (*status == TERN_OK) *status = os_link(target, path, err);
    return true;
}

// ---------------------------------------------------------------------------------------------------------- digest

struct digest {
    bool is_git; // SHA-1 over git's head and the bytes
    struct sha1 sha1;
    struct sha256 sha256;
};
static void digest_init(struct digest *d, const struct pull_file *f) {
    char head[64];
    d->is_git = strlen(f->oid) == 40;
    sha256_init(&d->sha256);
    sha1_init(&d->sha1);
    const int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)f->n_bytes);
    sha1_update(&d->sha1, head, (size_t)n + 1);
}
static void digest_update(struct digest *d, const void *data, size_t len) {
    if (d->is_git)
        sha1_update(&d->sha1, data, len);
    else
        sha256_update(&d->sha256, data, len);
}
static void digest_hex(struct digest *d, char out[PULL_OID_MAX + 1]) {
    uint8_t bytes[32];
    if (d->is_git) {
        sha1_hex(&d->sha1, out);
        return;
    }
    sha256_final(&d->sha256, bytes);
    sha256_hex(bytes, out);
}

// ------------------------------------------------------------------------------------------------------------ fetch

struct fetch {
    const struct pull_hub *hub;
    const struct pull_repo *repo;
    const struct pull_file *file;
    struct os_writer writer;
    struct digest digest;
    struct progress bar;
    uint64_t from; // what this request asked to begin at
    uint64_t n_fetched;
    const struct pull_watch *watch;
    bool is_begun, is_encoded, is_other_range;
    enum tern_status status; // why the callbacks ended the request
    struct tern_err err;
};

static bool fetch_fail(struct fetch *f, enum tern_status status) {
    f->status = status;
    return false;
}

// The hub's own answers name commit and digest; both must be what the listing said.
static bool on_hub_header(void *arg, struct str name, struct str value) {
    struct fetch *f = arg;
    if (store_name_eq(name, STR("x-repo-commit")) && !str_eqz(value, f->repo->commit))
        return fetch_fail(f,
                          err_set(&f->err, TERN_BAD_FORMAT, "%s changed while it was pulled; pull again", f->repo->id));
    if (!store_name_eq(name, STR("x-linked-etag"))) return true;
    if (str_starts(value, STR("W/"))) value = (struct str){value.data + 2, value.len - 2};
    if (value.len >= 2 && value.data[0] == '"') value = (struct str){value.data + 1, value.len - 2};
    if (str_eqz(value, f->file->oid)) return true;
    return fetch_fail(f, err_set(&f->err, TERN_BAD_FORMAT, "%s: the hub lists the digest %s and sends %.*s",
                                 f->file->name, f->file->oid, (int)MIN(value.len, (size_t)80), value.data));
}

static bool on_header(void *arg, int status, struct str name, struct str value) {
    struct fetch *f = arg;
    int64_t n;
    if (store_name_eq(name, STR("content-encoding")) && !store_name_eq(value, STR("identity"))) f->is_encoded = true;
    if (status == 206 && store_name_eq(name, STR("content-range"))) {
        char expected[64];
        snprintf(expected, sizeof expected, "bytes %llu-", (unsigned long long)f->from);
        f->is_other_range = f->is_other_range || !str_starts(value, str_from(expected));
    }
    if (status == 200 && store_name_eq(name, STR("content-length")) && str_to_i64(value, &n) &&
        n != (int64_t)f->file->n_bytes)
        return fetch_fail(f, err_set(&f->err, TERN_BAD_FORMAT,
                                     "%s: the hub lists %llu bytes, and the server wants to send %lld", f->file->name,
                                     (unsigned long long)f->file->n_bytes, (long long)n));
    return true;
}

static bool fetch_begin(struct fetch *f, int status) {
    f->is_begun = true;
    if (f->is_encoded)
        return fetch_fail(f,
                          err_set(&f->err, TERN_BAD_FORMAT, "%s: the server sends it encoded, unasked", f->file->name));
    if (status == 206 && (f->is_other_range || f->from == 0))
        return fetch_fail(f, err_set(&f->err, TERN_BAD_FORMAT, "%s: the server sends another part than was asked for",
                                     f->file->name));
    if (status != 200 || f->writer.n_bytes == 0) return true;
    digest_init(&f->digest, f->file); // this server cannot go on: all of it comes again
    const enum tern_status rewound = writer_rewind(&f->writer, &f->err);
    return rewound == TERN_OK || fetch_fail(f, rewound);
}

static bool on_data(void *arg, int status, struct str piece) {
    struct fetch *f = arg;
    if (status != 200 && status != 206) return true; // a page that says what went wrong
    if (!f->is_begun && !fetch_begin(f, status)) return false;
    if (piece.len > f->file->n_bytes - f->writer.n_bytes)
        return fetch_fail(f, err_set(&f->err, TERN_BAD_FORMAT, "%s: more bytes come than the %llu that are listed",
                                     f->file->name, (unsigned long long)f->file->n_bytes));
    const enum tern_status put = writer_put(&f->writer, piece.data, piece.len, &f->err);
    if (put != TERN_OK) return fetch_fail(f, put);
    digest_update(&f->digest, piece.data, piece.len);
    f->n_fetched += piece.len;
    if (f->watch->show) progress_update(&f->bar, f->writer.n_bytes);
    if (f->watch->on_bytes && !f->watch->on_bytes(f->watch->arg, f->file, f->writer.n_bytes))
        return fetch_fail(f, err_set(&f->err, TERN_CANCELLED, "%s: stopped; the next time goes on", f->file->name));
    return true;
}

// What an earlier run left, into the digest; a part longer than the file is no part of it.
static enum tern_status part_take(struct fetch *f, const char *part, struct tern_err *err) {
    const size_t piece = 4u << 20;
    struct os_map m;
    digest_init(&f->digest, f->file);
    if (f->writer.n_bytes > f->file->n_bytes) return writer_rewind(&f->writer, err);
    if (f->writer.n_bytes == 0) return TERN_OK;
    TRY(map_open(&m, part, err));
    for (size_t at = 0; at < m.size; at += piece) {
        const size_t n = MIN(piece, m.size - at);
        digest_update(&f->digest, m.data + at, n);
        map_drop(&m, at, n);
    }
    f->writer.n_bytes = m.size;
    map_close(&m);
    return TERN_OK;
}

static enum tern_status fetch_ask(struct fetch *f, const char *url, struct pull_answer *a, struct tern_err *err) {
    const struct pull_get g = {.url = url,
                               .from = f->from = f->writer.n_bytes,
                               .n_bytes_max = f->file->n_bytes - f->writer.n_bytes + (64u << 20),
                               .on_hub_header = on_hub_header,
                               .on_header = on_header,
                               .on_data = on_data,
                               .arg = f};
    f->is_begun = f->is_encoded = f->is_other_range = false;
    f->status = TERN_OK;
    const enum tern_status status = pull_hub_get(f->hub, &g, a, err);
    if (f->status == TERN_OK) return status;
    if (err) *err = f->err;
    return f->status;
}

// Asks until every byte is there. Each broken answer is gone on with; n counts those in a row that brought nothing.
static enum tern_status fetch_bytes(struct fetch *f, const char *url, struct tern_err *err) {
    struct pull_answer a = {0};
    int n = 0;
    for (int asked = 0; f->writer.n_bytes < f->file->n_bytes; asked++) {
        const uint64_t before = f->writer.n_bytes;
        enum tern_status status = fetch_ask(f, url, &a, err);
        if (f->status != TERN_OK || asked == PULL_ASKED_MAX) return status != TERN_OK ? status : TERN_IO;
        if (f->writer.n_bytes > before) n = 0;
        if (status == TERN_OK && (a.status == 200 || a.status == 206) && f->writer.n_bytes < f->file->n_bytes)
            status = err_set(err, TERN_IO, "%s: the answer ended %llu bytes early", f->file->name,
                             (unsigned long long)(f->file->n_bytes - f->writer.n_bytes));
        if (f->writer.n_bytes == f->file->n_bytes) return TERN_OK;
        if (status == TERN_OK && a.status == 416) { // it has nothing from there on: the part is of something else
            digest_init(&f->digest, f->file);
            TRY(writer_rewind(&f->writer, err));
        }
        if (f->watch->show) progress_end(&f->bar);
        if (pull_hub_again(f->hub, ++n, status, &a, err) || (a.status == 416 && n < f->hub->n_tries)) continue;
        return status != TERN_OK ? status : pull_answer_fault(f->hub, &a, f->repo->id, err);
    }
    return TERN_OK;
}

static enum tern_status fetch_run(struct fetch *f, const char *part, struct pull_result *out, struct tern_err *err) {
    char hex[PULL_OID_MAX + 1];
    struct buf url;
    enum tern_status status;
    buf_init(&url, 8192);
    buf_putf(&url, "%s/%s/resolve/%s/", f->hub->endpoint, f->repo->id, f->repo->commit);
    pull_url_put(&url, str_from(f->file->name));
    if (url.failed) {
        status = err_set(err, TERN_LIMIT, "the name '%s' is too long", f->file->name);
        goto done;
    }
    TRY_GOTO(part_take(f, part, err), done);
    out->resumed_from = f->writer.n_bytes;
    for (int round = 0;; round++) {
        if (f->watch->show) progress_begin(&f->bar, f->file->name, f->file->n_bytes, true);
        f->bar.n_before = f->writer.n_bytes;
        const uint64_t n_before = f->writer.n_bytes;
        status = fetch_bytes(f, url.data, err);
        if (f->watch->show) progress_end(&f->bar);
        if (status != TERN_OK) break;
        digest_hex(&f->digest, hex);
        if (strcmp(hex, f->file->oid) == 0) break;
        status = err_set(err, TERN_BAD_FORMAT, "%s: its bytes have the digest %s, and %s is listed: thrown away",
                         f->file->name, hex, f->file->oid);
        digest_init(&f->digest, f->file);
        if (n_before == 0 || round > 0) {
            writer_abort(&f->writer);
            break;
        }
        fprintf(stderr, "tern pull: %s: what an earlier run left is damaged; all of it again\n", f->file->name);
        out->resumed_from = 0;
        TRY_GOTO(writer_rewind(&f->writer, err), done);
    }
done:
    out->n_fetched = f->n_fetched;
    buf_release(&url);
    return status;
}

static enum tern_status lock_take(int *fd, const struct pull_place *p, const struct pull_file *f,
                                  struct tern_err *err) {
    char name[PULL_OID_MAX + 16], path[STORE_PATH_MAX];
    snprintf(name, sizeof name, "%s.lock", f->oid);
    if (!store_join(path, p->locks, name)) return err_set(err, TERN_LIMIT, "'%s' is too long", p->locks);
    const enum tern_status status = os_lock(fd, path, 0, err);
    if (status != TERN_AGAIN) return status;
    fprintf(stderr, "tern pull: another program is downloading %s; waiting for it\n", f->name);
    return os_lock(fd, path, LOCK_WAIT_MS, err);
}

enum tern_status pull_file_get(const struct pull_hub *h, const struct pull_repo *r, const struct pull_place *p,
                               const struct pull_file *f, const struct pull_watch *watch, struct pull_result *out,
                               struct tern_err *err) {
    char path[STORE_PATH_MAX], part[STORE_PATH_MAX];
    struct fetch fetch = {.hub = h, .repo = r, .file = f, .watch = watch};
    enum tern_status status;
    int lock;
    *out = (struct pull_result){0};
    if (pull_file_link(p, f, &status, err)) return out->was_there = true, status;
    if (!blob_path(path, p, f, "") || !blob_path(part, p, f, ".incomplete"))
        return err_set(err, TERN_LIMIT, "'%s' is too long", p->repo);
    TRY(lock_take(&lock, p, f, err));
    if (pull_file_link(p, f, &status, err)) { // another program was quicker
        out->was_there = true;
        goto done;
    }
    TRY_GOTO(writer_resume(&fetch.writer, path, part, err), done);
    status = fetch_run(&fetch, part, out, err);
    if (status == TERN_OK) {
        status = writer_commit(&fetch.writer, err);
    } else {
        writer_keep(&fetch.writer, NULL);
    }
    if (status == TERN_OK) pull_file_link(p, f, &status, err);
done:
    os_unlock(lock);
    return status;
}
