// A session's state as a file: header, identity, the state's bytes (session_state.c), checksum. Written to the side and
// renamed; read and verified whole before anything live changes. The header says everything that changes
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
    if (strcmp(e->units_text, "cpu") != 0) buf_putf(out, "on %s; ", e->units_text);
    return state_layout_describe(&plan_pool(e->plan)->layout, out) && !out->failed;
}

struct hashed_writer {
    struct os_writer file;
    struct sha256 sha;
};
static enum tern_status hashed_put(void *arg, const void *data, size_t len, struct tern_err *err) {
    struct hashed_writer *w = arg;
    sha256_update(&w->sha, data, len);
    return writer_put(&w->file, data, len, err);
}

static enum tern_status state_write(struct hashed_writer *w, const struct state_shape *shape, struct str identity,
                                    state_body_fn *body, void *arg, struct tern_err *err) {
    struct state_header h = {.n_identity = (uint32_t)identity.len,
                             .n_ids = shape->n_ids,
                             .pending = shape->pending,
                             .n_blocks = state_shape_blocks(shape),
                             .has_slot = shape->has_slot,
                             .n_draft = shape->draft.len,
                             .n_draft_pending = shape->draft.pending,
                             .draft_bytes = shape->draft.bytes};
    memcpy(h.magic, STATE_MAGIC, sizeof h.magic);
    TRY(hashed_put(w, &h, sizeof h, err));
    TRY(hashed_put(w, identity.data, identity.len, err));
    TRY(body(arg, hashed_put, w, err));
    uint8_t digest[32];
    sha256_final(&w->sha, digest);
    return writer_put(&w->file, digest, sizeof digest, err);
}

enum tern_status state_file_write(const struct tern_engine *e, const char *path, const struct state_shape *shape,
                                  state_body_fn *body, void *arg, struct tern_err *err) {
    struct buf identity;
    buf_init(&identity, STATE_IDENTITY_MAX);
    struct hashed_writer w = {0};
    enum tern_status status = TERN_OK;
    if (!engine_state_identity(e, &identity)) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to save a session");
        goto done;
    }
    TRY_GOTO(writer_open(&w.file, path, err), done);
    sha256_init(&w.sha);
    status = state_write(&w, shape, buf_str(&identity), body, arg, err);
    if (status == TERN_OK) status = writer_commit(&w.file, err);
    writer_abort(&w.file);
done:
    buf_release(&identity);
    return status;
}

static enum tern_status session_body(void *arg, state_put_fn *put, void *to, struct tern_err *err) {
    const struct tern_session *s = arg;
    mutex_lock(s->engine->mutex);
    enum tern_status status = session_state_put(s, put, to, err);
    mutex_unlock(s->engine->mutex);
    return status;
}

enum tern_status tern_session_save(const struct tern_session *s, const char *path, struct tern_err *err) {
    if (s->busy) return err_set(err, TERN_INVALID_ARGUMENT, "the session is busy with a request");
    const struct state_shape shape = session_state_shape(s);
    return state_file_write(s->engine, path, &shape, session_body, (void *)s, err);
}

// Sizes first, then the checksum, then whose it is.
static enum tern_status state_check(const struct tern_engine *e, const struct os_map *map, const char *path,
                                    struct state_header *h, struct state_shape *shape, struct tern_err *err) {
    if (map->size < sizeof *h + 32 || memcmp(map->data, STATE_MAGIC, 8) != 0)
        return err_set(err, TERN_BAD_FORMAT, "%s: not a saved session of this version (%s expected at its start)", path,
                       STATE_MAGIC);
    memcpy(h, map->data, sizeof *h);
    if (h->n_identity > STATE_IDENTITY_MAX || h->n_ids > ENGINE_CTX_MAX || h->has_slot > 1 ||
        h->n_blocks != (uint32_t)int_div_up((int)h->n_ids, OP_BLOCK))
        return err_set(err, TERN_BAD_FORMAT, "%s: broken header of a saved session", path);
    *shape = (struct state_shape){.n_ids = h->n_ids,
                                  .pending = h->pending,
                                  .has_slot = h->has_slot,
                                  .draft = {h->n_draft, h->n_draft_pending, h->draft_bytes}};
    uint64_t want;
    bool fits = state_shape_bytes(e, shape, &want) && u64_add(want, sizeof *h + h->n_identity + 32, &want);
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
    if (!session_draft_state_check(e, &shape->draft, map->data + map->size - 32 - h->draft_bytes, h->n_ids))
        return err_set(err, TERN_BAD_FORMAT, "%s: broken sizes of the drafter's context", path);
    if (h->n_ids > (uint32_t)e->n_ctx)
        return err_set(err, TERN_CONTEXT_FULL, "%s: holds %u tokens, but this engine's context has %d positions", path,
                       h->n_ids, e->n_ctx);
    return TERN_OK;
}

static enum tern_status state_ids_check(const struct tern_engine *e, const uint8_t *ids,
                                        const struct state_shape *shape, const char *path, struct tern_err *err) {
    int n_vocab = e->model->hyper.n_vocab;
    bool bad = shape->pending < -1 || shape->pending >= n_vocab;
    for (uint32_t i = 0; i < shape->n_ids; i++) bad |= load_u32(ids + 4 * (size_t)i) >= (uint32_t)n_vocab;
    return bad ? err_set(err, TERN_BAD_FORMAT, "%s: holds token ids outside the vocabulary", path) : TERN_OK;
}

enum tern_status state_file_open(struct state_file *out, const struct tern_engine *e, const char *path,
                                 struct tern_err *err) {
    struct state_header h;
    *out = (struct state_file){0};
    TRY(map_open(&out->map, path, err));
    enum tern_status status = state_check(e, &out->map, path, &h, &out->shape, err);
    if (status == TERN_OK) {
        out->body = out->map.data + sizeof h + h.n_identity;
        status = state_ids_check(e, out->body, &out->shape, path, err);
    }
    if (status != TERN_OK) map_close(&out->map);
    return status;
}

void state_file_close(struct state_file *f) { map_close(&f->map); }

enum tern_status tern_session_load(struct tern_session *s, const char *path, struct tern_err *err) {
    if (s->busy) return err_set(err, TERN_INVALID_ARGUMENT, "the session is busy with a request");
    struct state_file f;
    TRY(state_file_open(&f, s->engine, path, err));
    mutex_lock(s->engine->mutex);
    enum tern_status status = session_state_take(s, &f.shape, f.body, err);
    mutex_unlock(s->engine->mutex);
    state_file_close(&f);
    return status;
}
