// The pack cache: packed weights kept on disk; the next start maps them, and reads them where there is room.
//
//   $XDG_CACHE_HOME/tern/pack/<key>.pack     key: from the model's digest, the layout, the numerics class, the variant
//   file = header | table | zeros up to a page | payload (the matrices as kernels read them) | check sum of it
//
// A file is taken only when its size, its header's SHA-256 (over header and table) and its whole table are exactly what
// this build would write for this model; the payload is covered by a fast 64-bit check sum that `tern cache verify`
// looks at (a start must not read a gigabyte). It stands last, so a payload can be written while it is being made.
// Anything else, a full disk, a read-only home or a lock that is held is a miss with a note: the cache is never needed.
// Files appear whole (written beside, synced, renamed), so readers need no lock; writers and pruners exclude each other
// by one lock file. The least recently used files, by time stamp, make room.
#include "base/base.h"
#include "unit/pack_cache.h"
#include <stdlib.h>

#define PACK_MAGIC "TERNPACK"
#define PACK_FILE_VERSION 2
#define PACK_PAGE 4096
#define PACK_SUFFIX ".pack"
#define PACK_PATH_MAX 4096
#define PACK_FILES_MAX 4096                   // looked at in the folder
#define PACK_WRITE_PIECE ((size_t)8 << 20)    // bytes per write
#define PACK_LOCK_MS 1000                     // a writer that waits longer gives up
#define PACK_DISK_SPARE ((uint64_t)256 << 20) // left free on the disk
#define PACK_SUM_BYTES 8
#define SUM_FACTOR 0x9e3779b97f4a7c15u
#define SUM_BEGIN ((struct sum){.lane = {1, 2, 3, 4}})
#define PACK_LEFTOVER_S 3600 // an unfinished file older than this belongs to nobody

struct pack_header {
    char magic[8];
    uint32_t file_version, layout;
    uint32_t numerics, n_matrices;
    uint64_t table_bytes, payload_offset, payload_bytes, file_bytes;
    uint64_t variant;
    char model_digest[72];
    char model_name[128];
    uint8_t sha[32]; // SHA-256 over the header with this field zero, then the table
};

// Four independent multiply-and-rotate lanes over 32 bytes each, then folded: memory speed, and any single flipped bit
// changes the sum (each step is a bijection of its lane). Against accidents, not against forgery.
struct sum {
    uint64_t lane[4], n;
    uint8_t rest[32]; // bytes that do not fill the lanes yet
};

static void sum_lanes(struct sum *s, const uint8_t *p) {
    for (int j = 0; j < 4; j++) {
        uint64_t x = (s->lane[j] ^ load_u64(p + 8 * j)) * SUM_FACTOR;
        s->lane[j] = x << 29 | x >> 35;
    }
}

static void sum_add(struct sum *s, const uint8_t *p, size_t n) {
    size_t held = (size_t)(s->n % 32), i = 0;
    s->n += n;
    if (held > 0) {
        size_t take = MIN(n, 32 - held);
        memcpy(s->rest + held, p, take);
        if (held + take < 32) return;
        sum_lanes(s, s->rest);
        i = take;
    }
    for (; i + 32 <= n; i += 32) sum_lanes(s, p + i);
    if (i < n) memcpy(s->rest, p + i, n - i);
}

static uint64_t sum_end(const struct sum *s) {
    uint64_t sum = s->n;
    for (int j = 0; j < 4; j++) {
        sum = (sum ^ s->lane[j]) * SUM_FACTOR;
        sum ^= sum >> 31;
    }
    for (size_t i = 0; i < s->n % 32; i++) sum = (sum ^ s->rest[i]) * SUM_FACTOR;
    return sum ^ sum >> 29;
}

static uint64_t payload_sum(const uint8_t *p, size_t n) {
    struct sum s = SUM_BEGIN;
    sum_add(&s, p, n);
    return sum_end(&s);
}

static void header_sha(const struct pack_header *h, const void *table, uint8_t out[32]) {
    struct pack_header copy = *h;
    memset(copy.sha, 0, sizeof copy.sha);
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, &copy, sizeof copy);
    sha256_update(&s, table, (size_t)h->table_bytes);
    sha256_final(&s, out);
}

static void text_copy(char *out, size_t cap, const char *text) {
    size_t n = MIN(strlen(text), cap - 1);
    memcpy(out, text, n);
    memset(out + n, 0, cap - n);
}

static void header_make(const struct pack_wanted *w, struct pack_header *h) {
    memset(h, 0, sizeof *h); // padding included: the bytes are hashed
    memcpy(h->magic, PACK_MAGIC, sizeof h->magic);
    h->file_version = PACK_FILE_VERSION;
    h->layout = w->layout;
    h->numerics = w->numerics;
    h->variant = w->variant;
    h->n_matrices = w->n_matrices;
    h->table_bytes = (uint64_t)w->n_matrices * sizeof(struct pack_matrix);
    h->payload_offset = (sizeof *h + h->table_bytes + PACK_PAGE - 1) / PACK_PAGE * PACK_PAGE;
    h->payload_bytes = w->payload_bytes;
    h->file_bytes = h->payload_offset + h->payload_bytes + PACK_SUM_BYTES;
    text_copy(h->model_digest, sizeof h->model_digest, w->model_digest);
    text_copy(h->model_name, sizeof h->model_name, w->model_name);
}

// ---------------------------------------------------------------------------------------------------------- names

static void note_set(char *note, const char *why, const char *detail) {
    struct tern_err e;
    err_set(&e, TERN_IO, "%s%s%s", why, detail[0] ? ": " : "", detail);
    text_copy(note, PACK_NOTE_MAX, e.message);
}

// The folder's path, or false without one.
static bool folder_path(struct buf *out) {
    char dir[PACK_PATH_MAX];
    buf_init(out, PACK_PATH_MAX);
    return os_cache_dir(dir, sizeof dir)[0] != 0 && buf_putf(out, "%s/pack", dir);
}

static bool file_path(struct buf *out, const struct pack_wanted *w) {
    struct sha256 s;
    uint8_t digest[32];
    char hex[65];
    const uint32_t words[3] = {PACK_FILE_VERSION, w->layout, w->numerics};
    sha256_init(&s);
    sha256_update(&s, w->model_digest, strlen(w->model_digest));
    sha256_update(&s, words, sizeof words);
    sha256_update(&s, &w->variant, sizeof w->variant);
    sha256_final(&s, digest);
    sha256_hex(digest, hex);
    return folder_path(out) && buf_putf(out, "/%.32s" PACK_SUFFIX, hex);
}

// ---------------------------------------------------------------------------------------------------------- reading

// Checks what a mapped file says of itself. fault: at least 160 bytes.
static bool file_sound(const struct os_map *m, bool payload_too, char *fault) {
    const struct pack_header *h = (const struct pack_header *)(const void *)m->data;
    const char *why = NULL;
    uint8_t sha[32];
    if (m->size < sizeof *h || memcmp(h->magic, PACK_MAGIC, sizeof h->magic) != 0)
        why = "not a pack file";
    else if (h->file_version != PACK_FILE_VERSION || (h->layout != PACK_LAYOUT_CPU && h->layout != PACK_LAYOUT_NPU))
        why = "written by another version";
    else if (h->file_bytes != m->size)
        why = "truncated or grown";
    else if (h->table_bytes > m->size - sizeof *h || h->table_bytes != h->n_matrices * sizeof(struct pack_matrix) ||
             h->payload_offset % PACK_PAGE != 0 || h->payload_offset < sizeof *h + h->table_bytes ||
             h->payload_offset > m->size - PACK_SUM_BYTES ||
             h->payload_bytes != m->size - PACK_SUM_BYTES - h->payload_offset)
        why = "broken header";
    if (!why) {
        header_sha(h, m->data + sizeof *h, sha);
        if (memcmp(sha, h->sha, sizeof sha) != 0) why = "broken header or table (SHA-256 differs)";
    }
    if (!why && payload_too &&
        payload_sum(m->data + h->payload_offset, (size_t)h->payload_bytes) !=
            load_u64(m->data + m->size - PACK_SUM_BYTES))
        why = "broken weights (check sum differs)";
    if (why) text_copy(fault, 160, why);
    return !why;
}

// Sound, and exactly what this build would write for this model. fault: at least 160 bytes.
static bool file_fits(const struct os_map *m, const struct pack_wanted *w, char *fault) {
    struct pack_header wanted;
    header_make(w, &wanted);
    if (!file_sound(m, false, fault)) return false;
    const struct pack_header *h = (const struct pack_header *)(const void *)m->data;
    if (strcmp(h->model_digest, wanted.model_digest) == 0 && h->numerics == wanted.numerics &&
        h->layout == wanted.layout && h->variant == wanted.variant && h->table_bytes == wanted.table_bytes &&
        h->payload_bytes == wanted.payload_bytes &&
        memcmp(m->data + sizeof *h, w->table, (size_t)wanted.table_bytes) == 0)
        return true;
    text_copy(fault, 160, "made for another model or build");
    return false;
}

bool pack_cache_load(const struct pack_wanted *w, struct os_map *out, const uint8_t **payload, char *note) {
    struct buf path;
    struct tern_err err;
    struct os_stat st;
    bool found = false;
    char fault[160] = "";
    note[0] = 0;
    if (!file_path(&path, w)) {
        note_set(note, "no pack cache", "neither XDG_CACHE_HOME nor HOME is set");
        goto done;
    }
    if (!os_stat_get(&st, path.data)) goto done; // an ordinary first start: nothing to note
    if (map_open(out, path.data, &err) != TERN_OK) {
        note_set(note, "cached pack not used", err.message);
        goto done;
    }
    found = file_fits(out, w, fault);
    const struct pack_header *h = (const struct pack_header *)(const void *)out->data;
    if (found) {
        *payload = out->data + h->payload_offset;
        map_prefetch(out, (size_t)h->payload_offset, (size_t)h->payload_bytes);
        os_touch(path.data);
    } else {
        note_set(note, "cached pack not used", fault);
        map_close(out);
    }
done:
    buf_release(&path);
    return found;
}

bool pack_cache_has(const struct pack_wanted *w) {
    struct os_map map;
    const uint8_t *payload;
    char note[PACK_NOTE_MAX];
    bool found = pack_cache_load(w, &map, &payload, note);
    if (found) map_close(&map);
    return found;
}

// ---------------------------------------------------------------------------------------------------------- the folder

struct folder {
    const char *path; // of the folder
    struct pack_cache_entry *entries;
    int n, cap;
    bool verify, with_leftovers;
    bool no_memory;
};

static void entry_read(struct folder *f, struct pack_cache_entry *e) {
    struct buf path;
    struct os_map map;
    struct tern_err err;
    buf_init(&path, PACK_PATH_MAX);
    if (!buf_putf(&path, "%s/%s", f->path, e->file)) {
        text_copy(e->fault, sizeof e->fault, "its path is too long");
    } else if (map_open(&map, path.data, &err) != TERN_OK) {
        text_copy(e->fault, sizeof e->fault, err.message);
    } else {
        e->sound = file_sound(&map, f->verify, e->fault);
        const struct pack_header *h = (const struct pack_header *)(const void *)map.data;
        if (e->sound) text_copy(e->model, sizeof e->model, h->model_name);
        map_close(&map);
    }
    buf_release(&path);
}

static bool entry_add(void *arg, const char *name, const struct os_stat *st) {
    struct folder *f = arg;
    struct str s = str_from(name);
    bool pack = str_ends(s, STR(PACK_SUFFIX));
    bool leftover = !pack && str_find(s, STR(PACK_SUFFIX ".tmp."), 0) != (size_t)-1;
    int64_t used_s = st->mtime_ns / 1000000000;
    if (!st->is_file || s.len >= sizeof f->entries->file || f->n >= PACK_FILES_MAX) return true;
    if (!pack && !(f->with_leftovers && leftover && clock_wall_s() - used_s > PACK_LEFTOVER_S)) return true;
    if (f->n == f->cap) {
        int cap = MAX(2 * f->cap, 16);
        void *more = mem_realloc(f->entries, (size_t)cap * sizeof *f->entries);
        if (!more) {
            f->no_memory = true;
            return false;
        }
        f->entries = more;
        f->cap = cap;
    }
    struct pack_cache_entry *e = &f->entries[f->n++];
    memset(e, 0, sizeof *e);
    text_copy(e->file, sizeof e->file, name);
    e->bytes = st->size;
    e->used_wall_s = used_s;
    if (leftover)
        text_copy(e->fault, sizeof e->fault, "left over by a run that was stopped");
    else
        entry_read(f, e);
    return true;
}

static int by_use(const void *a, const void *b) {
    const struct pack_cache_entry *x = a, *y = b;
    if (x->used_wall_s != y->used_wall_s) return x->used_wall_s < y->used_wall_s ? -1 : 1;
    return strcmp(x->file, y->file);
}

static enum tern_status folder_read(struct folder *f, struct tern_err *err) {
    struct os_stat st;
    if (!os_stat_get(&st, f->path)) return TERN_OK; // nothing was ever cached
    TRY(os_list(f->path, entry_add, f, err));
    if (f->no_memory) return err_set(err, TERN_NO_MEMORY, "no memory to list '%s'", f->path);
    if (f->n > 1) qsort(f->entries, (size_t)f->n, sizeof *f->entries, by_use);
    return TERN_OK;
}

enum tern_status pack_cache_list(void (*fn)(void *arg, const struct pack_cache_entry *e), void *arg, bool verify,
                                 struct tern_err *err) {
    struct buf path;
    enum tern_status status = TERN_OK;
    if (folder_path(&path)) {
        struct folder f = {.path = path.data, .verify = verify};
        status = folder_read(&f, err);
        for (int i = 0; status == TERN_OK && i < f.n; i++) fn(arg, &f.entries[i]);
        mem_free(f.entries);
    }
    buf_release(&path);
    return status;
}

static enum tern_status lock_take(int *fd, const char *folder, struct tern_err *err) {
    struct buf path;
    buf_init(&path, PACK_PATH_MAX);
    enum tern_status status = buf_putf(&path, "%s/lock", folder)
                                  ? os_lock(fd, path.data, PACK_LOCK_MS, err)
                                  : err_set(err, TERN_LIMIT, "the path of '%s' is too long", folder);
    buf_release(&path);
    return status;
}

static enum tern_status entry_remove(const struct folder *f, const struct pack_cache_entry *e, struct tern_err *err) {
    struct buf path;
    buf_init(&path, PACK_PATH_MAX);
    enum tern_status status = buf_putf(&path, "%s/%s", f->path, e->file)
                                  ? os_remove(path.data, err)
                                  : err_set(err, TERN_LIMIT, "the path of '%s' is too long", e->file);
    buf_release(&path);
    return status == TERN_NOT_FOUND ? TERN_OK : status;
}

// The lock is held.
static enum tern_status prune_locked(const char *folder, uint64_t bytes_max,
                                     void (*fn)(void *arg, const struct pack_cache_entry *e), void *arg,
                                     struct tern_err *err) {
    struct folder f = {.path = folder, .with_leftovers = true};
    enum tern_status status = folder_read(&f, err);
    uint64_t total = 0;
    for (int i = 0; i < f.n; i++) total += f.entries[i].bytes;
    for (int pass = 0; pass < 2; pass++) // unsound ones first, then the oldest
        for (int i = 0; status == TERN_OK && i < f.n; i++) {
            const struct pack_cache_entry *e = &f.entries[i];
            if (pass == 0 ? e->sound : !e->sound || total <= bytes_max) continue;
            status = entry_remove(&f, e, err);
            if (status != TERN_OK) break;
            total -= e->bytes;
            if (fn) fn(arg, e);
        }
    mem_free(f.entries);
    return status;
}

enum tern_status pack_cache_prune(uint64_t bytes_max, void (*fn)(void *arg, const struct pack_cache_entry *e),
                                  void *arg, struct tern_err *err) {
    struct buf path;
    struct os_stat st;
    enum tern_status status = TERN_OK;
    if (folder_path(&path) && os_stat_get(&st, path.data)) {
        int lock;
        status = lock_take(&lock, path.data, err);
        if (status == TERN_OK) {
            status = prune_locked(path.data, bytes_max, fn, arg, err);
            os_unlock(lock);
        }
    }
    buf_release(&path);
    return status;
}

// ---------------------------------------------------------------------------------------------------------- writing

struct pack_sink {
    struct os_writer writer;
    struct sum sum;
};

enum tern_status pack_put(struct pack_sink *sink, const void *data, size_t n, struct tern_err *err) {
    const uint8_t *at = data;
    for (size_t done = 0; done < n; done += PACK_WRITE_PIECE) {
        size_t piece = MIN(n - done, PACK_WRITE_PIECE);
        sum_add(&sink->sum, at + done, piece);
        TRY(writer_put(&sink->writer, at + done, piece, err));
    }
    return TERN_OK;
}

enum tern_status pack_file_write(const char *path, const struct pack_wanted *w, pack_produce produce, void *arg,
                                 struct tern_err *err) {
    static const uint8_t zeros[PACK_PAGE];
    struct pack_sink sink = {.sum = SUM_BEGIN};
    struct os_writer *out = &sink.writer;
    struct pack_header h;
    uint64_t sum;
    enum tern_status status;
    header_make(w, &h);
    header_sha(&h, w->table, h.sha);
    TRY(writer_open(out, path, err));
    TRY_GOTO(writer_put(out, &h, sizeof h, err), fail);
    TRY_GOTO(writer_put(out, w->table, (size_t)h.table_bytes, err), fail);
    TRY_GOTO(writer_put(out, zeros, (size_t)(h.payload_offset - sizeof h - h.table_bytes), err), fail);
    TRY_GOTO(produce(arg, &sink, err), fail);
    if (sink.sum.n != h.payload_bytes)
        TERN_BUG("pack: %llu bytes of weights were given, %llu told", (unsigned long long)sink.sum.n,
                 (unsigned long long)h.payload_bytes);
    sum = sum_end(&sink.sum);
    TRY_GOTO(writer_put(out, &sum, PACK_SUM_BYTES, err), fail);
    return writer_commit(out, err);
fail:
    writer_abort(out);
    return status;
}

enum tern_status pack_file_open(const char *path, const struct pack_wanted *w, struct os_map *out,
                                const uint8_t **payload, struct tern_err *err) {
    char fault[160];
    TRY(map_open(out, path, err));
    const struct pack_header *h = (const struct pack_header *)(const void *)out->data;
    if (file_fits(out, w, fault)) {
        *payload = out->data + h->payload_offset;
        return TERN_OK;
    }
    bool other = file_sound(out, false, fault);
    if (other) text_copy(fault, sizeof fault, "made for another model or build");
    map_close(out);
    return err_set(err, other ? TERN_MISMATCH : TERN_BAD_FORMAT, "%s: %s", path, fault);
}

enum tern_status pack_file_verify(const char *path, const struct pack_wanted *w, struct tern_err *err) {
    struct os_map map;
    const uint8_t *payload;
    char fault[160];
    TRY(pack_file_open(path, w, &map, &payload, err));
    bool sound = file_sound(&map, true, fault);
    map_close(&map);
    return sound ? TERN_OK : err_set(err, TERN_BAD_FORMAT, "%s: %s", path, fault);
}

static uint64_t cache_limit(void) {
    const char *text = env_get("TERN_CACHE_BYTES");
    int64_t v;
    if (!text) return PACK_CACHE_BYTES_DEFAULT;
    if (str_to_i64(str_from(text), &v) && v >= 0) return (uint64_t)v;
    log_put(LOG_WARN, "TERN_CACHE_BYTES=%s is no number of bytes: %llu is taken", text,
            (unsigned long long)PACK_CACHE_BYTES_DEFAULT);
    return PACK_CACHE_BYTES_DEFAULT;
}

static enum tern_status store_locked(const char *folder, const char *path, const struct pack_wanted *w,
                                     pack_produce produce, void *arg, struct tern_err *err) {
    struct os_map other;
    struct pack_header head, *h = &head;
    header_make(w, h);
    if (map_open(&other, path, NULL) == TERN_OK) { // a process beside us was faster
        char fault[160];
        bool fits = file_fits(&other, w, fault);
        map_close(&other);
        if (fits) return TERN_OK;
    }
    char need[24], have[24];
    uint64_t limit = cache_limit();
    if (h->file_bytes > limit)
        return err_set(err, TERN_LIMIT, "it needs %s, the cache may hold %s (TERN_CACHE_BYTES)",
                       bytes_format(h->file_bytes, need), bytes_format(limit, have));
    TRY(prune_locked(folder, limit - h->file_bytes, NULL, NULL, err));
    uint64_t free_bytes = os_disk_free(folder);
    if (free_bytes < h->file_bytes || free_bytes - h->file_bytes < PACK_DISK_SPARE)
        return err_set(err, TERN_NO_SPACE, "it needs %s, the disk has %s free", bytes_format(h->file_bytes, need),
                       bytes_format(free_bytes, have));
    return pack_file_write(path, w, produce, arg, err);
}

bool pack_cache_store(const struct pack_wanted *w, pack_produce produce, void *arg, char *note) {
    struct buf folder, path;
    struct tern_err err;
    int lock;
    bool stored = false;
    note[0] = 0;
    bool has_path = file_path(&path, w), has_folder = folder_path(&folder);
    if (!has_path || !has_folder)
        err_set(&err, TERN_NOT_FOUND, "neither XDG_CACHE_HOME nor HOME is set");
    else if (os_mkdirs(folder.data, &err) == TERN_OK && lock_take(&lock, folder.data, &err) == TERN_OK) {
        stored = store_locked(folder.data, path.data, w, produce, arg, &err) == TERN_OK;
        os_unlock(lock);
    }
    if (!stored) note_set(note, "pack not cached", err.message);
    buf_release(&folder);
    buf_release(&path);
    return stored;
}
