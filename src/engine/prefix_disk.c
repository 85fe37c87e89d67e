// The disk tier of the prefix cache: one immutable file for each block, named by its key, checksummed over all of it,
// written to the side, synced and renamed. Nothing on disk is an index: the folder's names and the files' heads are, so
// a process that was killed at any point loses what was not yet written and no more. A file that does not fit its
// checksum, its key or this model is not used; a damaged one is removed.
//
// One thread reads and writes, so that no step waits for a disk. Reading goes first. What waits to be written is
// bounded: beyond STORES_MAX blocks are not stored. When a write fails, writing ends for this process, and that is told
// once.
#include "base/base.h"
#include "prefix_int.h"

#define FILE_MAGIC "TERNKVB2"
#define FILE_END ".kvb"
#define KEY_HEX 64
#define STORES_MAX 1024 // blocks waiting to be written
#define TMP_OLD_S 600   // a file being written that is older was left by a killed process
#define PATH_BYTES_MAX 4096
enum { FILE_HAS_CONV = 1, FILE_HAS_DRAFT = 2, FILE_HAS_HALF = 4 };

// Little-endian, no padding: then the parts of the data, then SHA-256 of all before it.
struct file_head {
    char magic[8];
    struct prefix_key key, parent, identity, drafter, half;
    uint32_t depth, flags;
    uint64_t kv_bytes, conv_bytes, draft_bytes;
};

struct prefix_disk {
    char *dir;
    uint64_t bytes_max;
    struct os_thread *thread;
    struct os_cond *work;
    // Under the cache's mutex.
    struct prefix_task *tasks, **tasks_end;
    int32_t stores[STORES_MAX]; // ring of held blocks
    int store_at, n_stores;
    bool closing, failed;
};

static bool path_make(const struct prefix_disk *d, const struct prefix_key *key, char out[PATH_BYTES_MAX]) {
    char hex[KEY_HEX + 1];
    struct buf b;
    sha256_hex(key->b, hex);
    buf_init(&b, PATH_BYTES_MAX - 1);
    buf_putf(&b, "%s/%s" FILE_END, d->dir, hex);
    bool ok = !b.failed;
    if (ok) memcpy(out, b.data, b.len + 1);
    buf_release(&b);
    return ok;
}

static uint64_t data_bytes(const struct file_head *h) { return h->kv_bytes + h->conv_bytes + h->draft_bytes; }

// ----------------------------------------------------------------------------------------------------------- writing

static void file_forget(struct prefix_cache *c, int32_t i) { // under the mutex
    c->disk_bytes -= c->blocks[i].disk_bytes;
    c->blocks[i].disk_bytes = 0;
    c->blocks[i].disk_half = false;
    prefix_half_list(c, i);
    prefix_block_unused(c, i);
}

// The least recently used file, of equals the deepest; PREFIX_NONE: none.
static int32_t file_oldest(const struct prefix_cache *c) {
    int32_t best = PREFIX_NONE;
    for (int32_t i = 0; i < c->n_blocks; i++) {
        const struct prefix_block *b = &c->blocks[i], *a = best != PREFIX_NONE ? &c->blocks[best] : NULL;
        if (b->disk_bytes == 0) continue;
        if (!a || b->stamp < a->stamp || (b->stamp == a->stamp && b->depth > a->depth)) best = i;
    }
    return best;
}

// Under the mutex, which is let go while files are removed. False: there is no room, or what would go is newer.
static bool room_make(struct prefix_cache *c, uint64_t bytes, uint64_t stamp) {
    struct prefix_disk *d = c->disk;
    if (bytes > d->bytes_max) return false;
    while (c->disk_bytes + bytes > d->bytes_max) {
        char path[PATH_BYTES_MAX];
        int32_t i = file_oldest(c);
        if (i == PREFIX_NONE || c->blocks[i].stamp >= stamp || !path_make(d, &c->blocks[i].key, path)) return false;
        file_forget(c, i);
        mutex_unlock(c->mutex);
        os_remove(path, NULL);
        mutex_lock(c->mutex);
    }
    return true;
}

static enum tern_status file_write(const struct prefix_disk *d, const struct file_head *h, const uint8_t *data,
                                   struct tern_err *err) {
    char path[PATH_BYTES_MAX];
    struct os_writer w;
    struct sha256 sha;
    uint8_t digest[32];
    if (!path_make(d, &h->key, path)) return err_set(err, TERN_LIMIT, "the folder's path is too long");
    sha256_init(&sha);
    sha256_update(&sha, h, sizeof *h);
    sha256_update(&sha, data, (size_t)data_bytes(h));
    sha256_final(&sha, digest);
    TRY(writer_open(&w, path, err));
    enum tern_status status = writer_put(&w, h, sizeof *h, err);
    if (status == TERN_OK) status = writer_put(&w, data, (size_t)data_bytes(h), err);
    if (status == TERN_OK) status = writer_put(&w, digest, sizeof digest, err);
    if (status == TERN_OK) status = writer_commit(&w, err);
    writer_abort(&w);
    return status;
}

// Under the mutex, which is let go meanwhile. The block is held.
static void store_run(struct prefix_cache *c, int32_t i) {
    struct prefix_disk *d = c->disk;
    const struct prefix_block b = c->blocks[i];
    struct file_head h = {.key = b.key,
                          .parent = b.parent,
                          .identity = c->identity,
                          .drafter = c->drafter,
                          .half = b.half,
                          .depth = (uint32_t)b.depth,
                          .flags = (b.has_conv ? FILE_HAS_CONV : 0u) | (b.has_draft ? FILE_HAS_DRAFT : 0u) |
                                   (b.has_half ? FILE_HAS_HALF : 0u),
                          .kv_bytes = c->shape.kv_bytes,
                          .conv_bytes = c->shape.conv_bytes,
                          .draft_bytes = c->shape.draft_bytes};
    memcpy(h.magic, FILE_MAGIC, sizeof h.magic);
    uint64_t bytes = sizeof h + data_bytes(&h) + 32;
    bool lacks = b.disk_bytes == 0 || (b.has_conv && !b.disk_conv);
    if (d->failed || !lacks || !room_make(c, bytes, b.stamp)) return;
    struct tern_err err = {0};
    mutex_unlock(c->mutex);
    enum tern_status status = file_write(d, &h, c->cells + (size_t)b.cell * (size_t)c->cell_bytes, &err);
    if (status != TERN_OK) log_warn("prefix cache: nothing is written any more: %s", err.message);
    mutex_lock(c->mutex);
    if (status != TERN_OK) {
        d->failed = true;
        return;
    }
    c->disk_bytes += bytes - c->blocks[i].disk_bytes; // one without convolution rows was replaced, or none
    c->blocks[i].disk_bytes = bytes;
    c->blocks[i].disk_conv = b.has_conv;
    c->blocks[i].disk_half = b.has_half;
    prefix_half_list(c, i);
    c->info.n_stored++;
}

void prefix_disk_store(struct prefix_cache *c, int32_t block) {
    struct prefix_disk *d = c->disk;
    if (d->failed || d->n_stores == STORES_MAX) return;
    c->blocks[block].n_held++;
    d->stores[(d->store_at + d->n_stores++) % STORES_MAX] = block;
    cond_signal(d->work);
}

// ----------------------------------------------------------------------------------------------------------- reading

static enum tern_status head_check(const struct os_map *m, struct file_head *h, const char *path,
                                   struct tern_err *err) {
    if (m->size < sizeof *h + 32 || memcmp(m->data, FILE_MAGIC, 8) != 0)
        return err_set(err, TERN_BAD_FORMAT, "%s: no block of a prefix cache (%s expected at its start)", path,
                       FILE_MAGIC);
    memcpy(h, m->data, sizeof *h);
    uint64_t bytes = sizeof *h + 32;
    if (!u64_add(bytes, h->kv_bytes, &bytes) || !u64_add(bytes, h->conv_bytes, &bytes) ||
        !u64_add(bytes, h->draft_bytes, &bytes) || bytes != m->size || h->depth > ENGINE_CTX_MAX)
        return err_set(err, TERN_BAD_FORMAT, "%s: has %zu bytes, which do not fit its head; it was cut or changed",
                       path, m->size);
    return TERN_OK;
}

// The file's data into a cell. A drafter's part of another drafter is left out.
static enum tern_status file_take(const struct prefix_cache *c, const struct os_map *m, const struct prefix_key *key,
                                  const char *path, struct prefix_held *to, struct tern_err *err) {
    struct file_head h;
    struct sha256 sha;
    uint8_t digest[32];
    TRY(head_check(m, &h, path, err));
    sha256_init(&sha);
    sha256_update(&sha, m->data, m->size - 32);
    sha256_final(&sha, digest);
    if (memcmp(digest, m->data + m->size - 32, 32) != 0)
        return err_set(err, TERN_BAD_FORMAT, "%s: its checksum does not fit; the file was changed or damaged", path);
    if (memcmp(&h.key, key, sizeof *key) != 0 || memcmp(&h.identity, &c->identity, sizeof h.identity) != 0 ||
        h.kv_bytes != c->shape.kv_bytes || h.conv_bytes != c->shape.conv_bytes)
        return err_set(err, TERN_BAD_FORMAT, "%s: holds another block than its name says", path);
    bool own = memcmp(&h.drafter, &c->drafter, sizeof h.drafter) == 0 && h.draft_bytes == c->shape.draft_bytes;
    to->has_conv = h.flags & FILE_HAS_CONV;
    to->has_draft = own && (h.flags & FILE_HAS_DRAFT);
    to->has_half = h.flags & FILE_HAS_HALF;
    to->half = h.half;
    memcpy(to->data, m->data + sizeof h, (size_t)(h.kv_bytes + h.conv_bytes + (own ? h.draft_bytes : 0)));
    return TERN_OK;
}

// One block from its file. False: it cannot be had.
static bool block_load(struct prefix_cache *c, const struct prefix_key *key) {
    struct prefix_held held;
    struct tern_err err = {0};
    char path[PATH_BYTES_MAX];
    bool full;
    mutex_lock(c->mutex);
    int32_t i = prefix_find(c, key);
    bool ready = i != PREFIX_NONE && c->blocks[i].ready, on_disk = i != PREFIX_NONE && c->blocks[i].disk_bytes > 0;
    struct prefix_key parent = on_disk ? c->blocks[i].parent : *key;
    int depth = on_disk ? c->blocks[i].depth : 0;
    mutex_unlock(c->mutex);
    if (ready || !on_disk || !path_make(c->disk, key, path)) return ready;
    if (!prefix_place(c, key, &parent, depth, true, &held, &full)) return false;
    struct os_map m = {.fd = -1};
    enum tern_status status = map_open(&m, path, &err);
    if (status == TERN_OK) {
        status = file_take(c, &m, key, path, &held, &err);
        map_close(&m);
    }
    if (status == TERN_OK) {
        os_touch(path);
        prefix_put(c, &held, false);
        mutex_lock(c->mutex);
        c->info.n_loaded++;
        mutex_unlock(c->mutex);
        return true;
    }
    if (status == TERN_BAD_FORMAT) {
        log_warn("prefix cache: a file is removed: %s", err.message);
        os_remove(path, NULL);
    }
    mutex_lock(c->mutex);
    c->info.n_damaged += status == TERN_BAD_FORMAT;
    file_forget(c, held.block); // the block goes with its cell
    mutex_unlock(c->mutex);
    prefix_drop(c, &held);
    return false;
}

// Behind the known blocks: one on disk whose first half the text has, and which memory has of no other.
static bool half_is_needed(const struct prefix_cache *c, struct prefix_task *t) {
    struct prefix_key half = t->n_known > 0 ? t->keys[t->n_known - 1] : *t->root;
    if (!t->ids || t->n_ids < t->n_known * OP_BLOCK + PREFIX_HALF) return false;
    prefix_key_next(&half, t->ids + t->n_known * OP_BLOCK, PREFIX_HALF);
    int32_t i = prefix_find_half(c, &half);
    if (i == PREFIX_NONE || c->blocks[i].ready) return false;
    t->half = c->blocks[i].key;
    return true;
}

bool prefix_stage(struct prefix_cache *c, struct prefix_task *task) {
    struct prefix_disk *d = c->disk;
    if (!d) return false;
    bool needed = false;
    mutex_lock(c->mutex);
    for (task->n_known = 0; task->n_known < task->n; task->n_known++) {
        int32_t i = prefix_find(c, &task->keys[task->n_known]);
        if (i == PREFIX_NONE || (!c->blocks[i].ready && c->blocks[i].disk_bytes == 0)) break;
        needed = needed || !c->blocks[i].ready;
    }
    task->has_half = half_is_needed(c, task);
    needed = needed || task->has_half;
    if (needed) {
        task->next = NULL;
        *d->tasks_end = task;
        d->tasks_end = &task->next;
        cond_signal(d->work);
    }
    mutex_unlock(c->mutex);
    return needed;
}

// ------------------------------------------------------------------------------------------------------------- thread

static void task_run(struct prefix_cache *c, const struct prefix_task *t) {
    size_t k = 0;
    while (k < t->n_known && block_load(c, &t->keys[k])) k++;
    if (k == t->n_known && t->has_half) block_load(c, &t->half);
}

static void disk_main(void *arg) {
    struct prefix_cache *c = arg;
    struct prefix_disk *d = c->disk;
    mutex_lock(c->mutex);
    for (;;) {
        if (d->tasks) {
            struct prefix_task *t = d->tasks;
            d->tasks = t->next;
            if (!d->tasks) d->tasks_end = &d->tasks;
            mutex_unlock(c->mutex);
            task_run(c, t);
            t->done(t->arg);
            mutex_lock(c->mutex);
        } else if (d->n_stores > 0) {
            int32_t i = d->stores[d->store_at];
            d->store_at = (d->store_at + 1) % STORES_MAX;
            d->n_stores--;
            store_run(c, i);
            c->blocks[i].n_held--;
        } else if (d->closing) {
            break;
        } else {
            cond_wait(d->work, c->mutex);
        }
    }
    mutex_unlock(c->mutex);
}

// ------------------------------------------------------------------------------------------------------------ folder

struct scan {
    struct prefix_cache *c;
    int64_t now_s;
};

static bool hex_to_key(const char *hex, struct prefix_key *out) {
    for (int i = 0; i < KEY_HEX; i++) {
        char ch = hex[i];
        int v = ch >= '0' && ch <= '9' ? ch - '0' : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
        if (v < 0) return false;
        out->b[i / 2] = (uint8_t)(i % 2 ? out->b[i / 2] | v : v << 4);
    }
    return true;
}

// A file counts by its head; whether its data is sound shows when it is read.
static void scan_file(struct scan *s, const char *path, const struct prefix_key *key, const struct os_stat *st) {
    struct prefix_cache *c = s->c;
    struct file_head h;
    struct os_map m;
    struct tern_err err = {0};
    if (map_open(&m, path, &err) != TERN_OK) return;
    enum tern_status status = head_check(&m, &h, path, &err);
    map_close(&m);
    if (status != TERN_OK) {
        log_warn("prefix cache: a file is removed: %s", err.message);
        os_remove(path, NULL);
        c->info.n_damaged++;
        return;
    }
    bool own = memcmp(&h.identity, &c->identity, sizeof h.identity) == 0;
    int32_t i = memcmp(&h.key, key, sizeof *key) == 0 ? prefix_block_new(c, key, &h.parent, own ? (int)h.depth : 0)
                                                      : PREFIX_NONE;
    if (i == PREFIX_NONE) return;
    c->blocks[i].disk_bytes = st->size;
    c->blocks[i].disk_conv = h.flags & FILE_HAS_CONV;
    c->blocks[i].disk_half = own && (h.flags & FILE_HAS_HALF);
    c->blocks[i].half = h.half;
    prefix_half_list(c, i);
    c->blocks[i].stamp = (uint64_t)MAX(st->mtime_ns, 0);
    c->disk_bytes += st->size;
}

static bool scan_entry(void *arg, const char *name, const struct os_stat *st) {
    struct scan *s = arg;
    struct prefix_key key;
    char path[PATH_BYTES_MAX];
    size_t len = strlen(name), end = strlen(FILE_END);
    if (!st->is_file || len < KEY_HEX + end || !hex_to_key(name, &key) || memcmp(name + KEY_HEX, FILE_END, end) != 0 ||
        !path_make(s->c->disk, &key, path))
        return true;
    if (len == KEY_HEX + end) {
        scan_file(s, path, &key, st);
    } else if (st->mtime_ns / 1000000000 < s->now_s - TMP_OLD_S && strlen(path) + len < PATH_BYTES_MAX) {
        memcpy(path + strlen(path), name + KEY_HEX + end, len - KEY_HEX - end + 1);
        os_remove(path, NULL);
    }
    return true;
}

// Times become stamps: parents are as new as what hangs from them. Files of one age differ by depth alone.
static void stamps_settle(struct prefix_cache *c) {
    for (int32_t i = 0; i < c->n_blocks; i++) {
        uint64_t stamp = c->blocks[i].stamp;
        c->clock = MAX(c->clock, stamp);
        for (int32_t k = prefix_up(c, i); k != PREFIX_NONE && c->blocks[k].stamp < stamp; k = prefix_up(c, k))
            c->blocks[k].stamp = stamp;
    }
}

enum tern_status prefix_disk_open(struct prefix_cache *c, const char *dir, uint64_t disk_max, struct tern_err *err) {
    TRY(os_mkdirs(dir, err));
    struct prefix_disk *d = mem_calloc(1, sizeof *d);
    if (!d) return err_set(err, TERN_NO_MEMORY, "no memory for a prefix cache");
    c->disk = d;
    d->tasks_end = &d->tasks;
    d->bytes_max = disk_max;
    d->dir = mem_strdup(dir);
    d->work = cond_create();
    if (!d->dir || !d->work) return err_set(err, TERN_NO_MEMORY, "no memory for a prefix cache");
    struct scan s = {c, clock_wall_s()};
    TRY(os_list(dir, scan_entry, &s, err));
    stamps_settle(c);
    return os_thread_create(&d->thread, disk_main, c, err);
}

void prefix_disk_close(struct prefix_cache *c) {
    struct prefix_disk *d = c->disk;
    if (!d) return;
    if (d->thread) {
        mutex_lock(c->mutex);
        d->closing = true;
        cond_signal(d->work);
        mutex_unlock(c->mutex);
        os_thread_join(d->thread);
    }
    cond_free(d->work);
    mem_free(d->dir);
    mem_free(d);
    c->disk = NULL;
}
