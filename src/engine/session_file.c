// A session's state as a file: header, ids, KV blocks, convolution rows, the drafter's context, checksum. Written to
// the side and renamed; read and verified whole before anything live changes. The header says everything that changes
// values (model, numerics, layout), so a state can never be continued by a model or a class that did not write it.
#include "base/base.h"
#include "engine_int.h"

#define STATE_MAGIC "TERNSTA2"

// Little-endian, no padding: 48 bytes, then identity, ids, blocks, slot, drafter, SHA-256 of all before it.
struct state_header {
    char magic[8];
    uint32_t n_identity, n_ids;
    int32_t pending;
    uint32_t n_blocks, has_slot;
    uint32_t n_draft, n_draft_pending, reserved; // positions of the drafter's context, and feature rows behind them
    uint64_t draft_bytes;
};

bool engine_state_identity(const struct tern_engine *e, struct buf *out) {
    buf_putf(out, "model %s; numerics %s; ", e->model->digest, e->numerics_text);
    return state_layout_describe(&plan_pool(e->plan)->layout, out) && !out->failed;
}

struct hashed_writer {
    struct os_writer file;
    struct sha256 sha;
};
static enum tern_status hashed_put(struct hashed_writer *w, const void *data, size_t len, struct tern_err *err) {
    sha256_update(&w->sha, data, len);
    return writer_put(&w->file, data, len, err);
}

static enum tern_status draft_put(void *arg, const void *data, size_t len, struct tern_err *err) {
    return hashed_put(arg, data, len, err);
}

static enum tern_status state_write(const struct tern_session *s, struct hashed_writer *w, struct str identity,
                                    void *block, struct tern_err *err) {
    const struct state_layout *l = &plan_pool(s->engine->plan)->layout;
    const struct draft_state draft = session_draft_state(s);
    struct state_header h = {.n_identity = (uint32_t)identity.len,
                             .n_ids = (uint32_t)s->len,
                             .pending = s->pending,
                             .n_blocks = (uint32_t)int_div_up((int)s->len, OP_BLOCK),
                             .has_slot = s->slot >= 0 && s->len > 0,
                             .n_draft = draft.len,
                             .n_draft_pending = draft.pending,
                             .draft_bytes = draft.bytes};
    memcpy(h.magic, STATE_MAGIC, sizeof h.magic);
    TRY(hashed_put(w, &h, sizeof h, err));
    TRY(hashed_put(w, identity.data, identity.len, err));
    TRY(hashed_put(w, s->ids, s->len * sizeof *s->ids, err));
    for (uint32_t i = 0; i < h.n_blocks; i++) {
        TRY(plan_block_read(s->engine->plan, s->blocks[i], block, err));
        TRY(hashed_put(w, block, l->block_bytes, err));
    }
    if (h.has_slot) {
        TRY(plan_slot_read(s->engine->plan, s->slot, block, err));
        TRY(hashed_put(w, block, l->slot_bytes, err));
    }
    TRY(session_draft_put(s, draft_put, w, err));
    uint8_t digest[32];
    sha256_final(&w->sha, digest);
    return writer_put(&w->file, digest, sizeof digest, err);
}

enum tern_status tern_session_save(const struct tern_session *s, const char *path, struct tern_err *err) {
    if (s->busy) return err_set(err, TERN_INVALID_ARGUMENT, "the session is busy with a request");
    const struct state_layout *l = &plan_pool(s->engine->plan)->layout;
    struct buf identity;
    buf_init(&identity, STATE_IDENTITY_MAX);
    void *block = mem_alloc(MAX(l->block_bytes, l->slot_bytes) + 1);
    struct hashed_writer w = {0};
    enum tern_status status = TERN_OK;
    if (!block || !engine_state_identity(s->engine, &identity)) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to save a session");
        goto done;
    }
    TRY_GOTO(writer_open(&w.file, path, err), done);
    sha256_init(&w.sha);
    mutex_lock(s->engine->mutex);
    status = state_write(s, &w, buf_str(&identity), block, err);
    mutex_unlock(s->engine->mutex);
    if (status == TERN_OK) status = writer_commit(&w.file, err);
    writer_abort(&w.file);
done:
    mem_free(block);
    buf_release(&identity);
    return status;
}

// Sizes first, then the checksum, then whose it is.
static enum tern_status state_check(const struct tern_session *s, const struct os_map *map, const char *path,
                                    struct state_header *h, struct tern_err *err) {
    const struct tern_engine *e = s->engine;
    const struct state_layout *l = &plan_pool(e->plan)->layout;
    if (map->size < sizeof *h + 32 || memcmp(map->data, STATE_MAGIC, 8) != 0)
        return err_set(err, TERN_BAD_FORMAT, "%s: not a saved session of this version (%s expected at its start)", path,
                       STATE_MAGIC);
    memcpy(h, map->data, sizeof *h);
    if (h->n_identity > STATE_IDENTITY_MAX || h->n_ids > ENGINE_CTX_MAX || h->has_slot > 1 ||
        h->n_blocks != (uint32_t)int_div_up((int)h->n_ids, OP_BLOCK))
        return err_set(err, TERN_BAD_FORMAT, "%s: broken header of a saved session", path);
    uint64_t want = sizeof *h + h->n_identity + (uint64_t)h->n_ids * 4 + h->n_blocks * l->block_bytes +
                    h->has_slot * l->slot_bytes + 32;
    bool fits = u64_add(want, h->draft_bytes, &want);
    struct str identity = {(const char *)map->data + sizeof *h, h->n_identity};
    struct buf own;
    buf_init(&own, STATE_IDENTITY_MAX);
    bool made = engine_state_identity(e, &own),
         same = made && sizeof *h + h->n_identity + 32 <= map->size && str_eq(identity, buf_str(&own));
    enum tern_status status = TERN_OK;
    if (!made)
        status = err_set(err, TERN_NO_MEMORY, "no memory to load a session");
    else if (!same)
        status = err_set(err, TERN_MISMATCH,
                         "%s: saved by another model, numerics class or version; this engine is: %s", path, own.data);
    else if (!fits || map->size != want)
        status = err_set(err, TERN_BAD_FORMAT, "%s: has %zu bytes but %llu are expected; it was cut or grew", path,
                         map->size, (unsigned long long)want);
    buf_release(&own);
    TRY(status);
    struct sha256 sha;
    uint8_t digest[32];
    sha256_init(&sha);
    sha256_update(&sha, map->data, map->size - 32);
    sha256_final(&sha, digest);
    if (memcmp(digest, map->data + map->size - 32, 32) != 0)
        return err_set(err, TERN_BAD_FORMAT, "%s: its checksum does not fit; the file was changed or damaged", path);
    const struct draft_state draft = {h->n_draft, h->n_draft_pending, h->draft_bytes};
    if (!session_draft_state_check(s, &draft, map->data + map->size - 32 - h->draft_bytes, h->n_ids))
        return err_set(err, TERN_BAD_FORMAT, "%s: broken sizes of the drafter's context", path);
    if (h->n_ids > (uint32_t)e->n_ctx)
        return err_set(err, TERN_CONTEXT_FULL, "%s: holds %u tokens, but this engine's context has %d positions", path,
                       h->n_ids, e->n_ctx);
    return TERN_OK;
}

static enum tern_status state_ids_check(const struct tern_session *s, const uint8_t *ids, const struct state_header *h,
                                        const char *path, struct tern_err *err) {
    int n_vocab = s->engine->model->hyper.n_vocab;
    bool bad = h->pending < -1 || h->pending >= n_vocab;
    for (uint32_t i = 0; i < h->n_ids; i++) bad |= load_u32(ids + 4 * (size_t)i) >= (uint32_t)n_vocab;
    return bad ? err_set(err, TERN_BAD_FORMAT, "%s: holds token ids outside the vocabulary", path) : TERN_OK;
}

static enum tern_status state_take(struct tern_session *s, const uint8_t *at, const struct state_header *h,
                                   struct tern_err *err) {
    const struct state_layout *l = &plan_pool(s->engine->plan)->layout;
    s->len = 0;
    session_draft_cut(s, 0);
    s->n_checkpoints = 0;
    s->pending = -1;
    const uint8_t *ids = at + sizeof *h + h->n_identity, *data = ids + (size_t)h->n_ids * 4;
    for (uint32_t i = 0; i < h->n_blocks; i++, data += l->block_bytes)
        TRY(plan_block_write(s->engine->plan, s->blocks[i], data, err));
    if (h->has_slot) TRY(plan_slot_write(s->engine->plan, s->slot, data, err));
    data += h->has_slot * l->slot_bytes;
    memcpy(s->ids, ids, (size_t)h->n_ids * 4);
    s->len = h->n_ids;
    const struct draft_state draft = {h->n_draft, h->n_draft_pending, h->draft_bytes};
    TRY(session_draft_take(s, &draft, data, err));
    s->pending = h->pending;
    return session_checkpoint(s, err);
}

enum tern_status tern_session_load(struct tern_session *s, const char *path, struct tern_err *err) {
    if (s->busy) return err_set(err, TERN_INVALID_ARGUMENT, "the session is busy with a request");
    struct os_map map;
    struct state_header h;
    TRY(map_open(&map, path, err));
    enum tern_status status = state_check(s, &map, path, &h, err);
    if (status == TERN_OK) status = state_ids_check(s, map.data + sizeof h + h.n_identity, &h, path, err);
    if (status == TERN_OK) {
        mutex_lock(s->engine->mutex);
        status = state_take(s, map.data, &h, err);
        mutex_unlock(s->engine->mutex);
    }
    map_close(&map);
    return status;
}
