// SHA-256 of the models' files, which Ollama's listings tell. Stores that name files by it are believed (the name is
// what `tern pull` checked the bytes against); of other files it is computed once, on a thread of its own that begins
// when somebody asks, and told when it is known. Folders have none.
#include "base/base.h"
#include "serve.h"

#define PIECE_BYTES (4u << 20)

static bool is_hex64(struct str s) {
    bool ok = s.len == 64;
    for (size_t i = 0; i < s.len && ok; i++)
        ok = (s.data[i] >= '0' && s.data[i] <= '9') || (s.data[i] >= 'a' && s.data[i] <= 'f');
    return ok;
}

// By the name of the blob that the path is, or links to: "<64 digits>", "sha256-<64 digits>".
static bool named_digest(const char *path, char out[65]) {
    char target[4096];
    struct str name = str_from(os_link_read(target, sizeof target, path) ? target : path);
    for (size_t i = name.len; i > 0; i--)
        if (name.data[i - 1] == '/') {
            name = (struct str){name.data + i, name.len - i};
            break;
        }
    if (str_starts(name, STR("sha256-"))) name = (struct str){name.data + 7, name.len - 7};
    if (!is_hex64(name)) return false;
    memcpy(out, name.data, name.len);
    out[64] = 0;
    return true;
}

static bool stops(struct serve *s) {
    mutex_lock(s->lock);
    const bool stop = s->is_draining;
    mutex_unlock(s->lock);
    return stop;
}

static bool file_digest(struct serve *s, const char *path, char out[65]) {
    struct os_stat st;
    struct os_map m;
    struct sha256 sha;
    uint8_t digest[32];
    if (!os_stat_get(&st, path) || !st.is_file || map_open(&m, path, NULL) != TERN_OK) return false;
    sha256_init(&sha);
    size_t at = 0;
    for (; at < m.size && !stops(s); at += PIECE_BYTES) sha256_update(&sha, m.data + at, MIN(PIECE_BYTES, m.size - at));
    const bool whole = at >= m.size;
    map_close(&m);
    sha256_final(&sha, digest);
    sha256_hex(digest, out);
    return whole;
}

static void digests_main(void *arg) {
    struct serve *s = arg;
    for (int i = 0; i < s->n_models; i++) {
        struct serve_model *m = &s->models[i];
        char digest[65];
        if (!m->path || m->is_pulled || named_digest(m->path, digest) || !file_digest(s, m->path, digest)) continue;
        mutex_lock(s->lock);
        memcpy(m->digest, digest, sizeof digest);
        mutex_unlock(s->lock);
    }
}

void serve_digests_want(struct serve *s) {
    mutex_lock(s->lock);
    bool missing = false;
    for (int i = 0; i < s->n_models; i++) {
        struct serve_model *m = &s->models[i];
        if (m->path && !m->digest[0] && !named_digest(m->path, m->digest)) missing = true;
    }
    // Only files of the operator's are computed, all in one go; a failure is not tried again.
    if (missing && !s->digester && !s->is_draining && s->is_ready)
        os_thread_create(&s->digester, digests_main, s, NULL);
    mutex_unlock(s->lock);
}

void serve_digests_stop(struct serve *s) {
    os_thread_join(s->digester);
    s->digester = NULL;
}
