// Named states: what the prefix cache has of a text, to a file and back. A session of a service lives for one job only;
// what outlives it are the cache's blocks, so saving is reading a run of them, and restoring is putting them there. The
// file is that of tern_session_save.
#include "base/base.h"
#include "service_int.h"

// -------------------------------------------------------------------------------------------------- what the cache has

struct state_text {
    struct id_list ids;
    struct prefix_key *keys;
    size_t n_keys; // whole blocks of the text
    struct prefix_held *held;
    size_t n; // of these, held
};

static void text_release(struct tern_service *s, struct state_text *t) {
    if (t->n > 0) prefix_let_go(s->prefix, t->held, t->n);
    id_list_release(&t->ids);
    mem_free(t->keys);
    mem_free(t->held);
}

static enum tern_status text_keys(struct tern_service *s, struct state_text *t, struct tern_str tenant,
                                  struct tern_err *err) {
    t->n_keys = t->ids.len / OP_BLOCK;
    t->keys = mem_alloc((t->n_keys + 1) * sizeof *t->keys);
    t->held = mem_alloc((t->n_keys + 1) * sizeof *t->held);
    if (!t->keys || !t->held) return err_set(err, TERN_NO_MEMORY, "no memory for a state of %zu tokens", t->ids.len);
    struct prefix_key key;
    prefix_key_root(s->prefix, (struct str){tenant.data, tenant.len}, &key);
    for (size_t i = 0; i < t->n_keys; i++) {
        prefix_key_next(&key, t->ids.ids + i * OP_BLOCK, OP_BLOCK);
        t->keys[i] = key;
    }
    return TERN_OK;
}

struct staging {
    struct os_mutex *mutex;
    struct os_cond *ended;
    bool done;
};
static void staging_done(void *arg) {
    struct staging *g = arg;
    mutex_lock(g->mutex);
    g->done = true;
    cond_signal(g->ended);
    mutex_unlock(g->mutex);
}

// Blocks on disk come to memory first.
static enum tern_status text_hold(struct tern_service *s, struct state_text *t, struct tern_err *err) {
    struct staging g = {.mutex = mutex_create(), .ended = cond_create()};
    struct prefix_task task = {.keys = t->keys, .n = t->n_keys, .done = staging_done, .arg = &g};
    bool ready = g.mutex && g.ended;
    if (ready && prefix_stage(s->prefix, &task)) {
        mutex_lock(g.mutex);
        while (!g.done) cond_wait(g.ended, g.mutex);
        mutex_unlock(g.mutex);
    }
    mutex_free(g.mutex);
    cond_free(g.ended);
    if (!ready) return err_set(err, TERN_NO_MEMORY, "no memory to save a state");
    t->n = prefix_match(s->prefix, t->keys, t->n_keys, t->held);
    if (t->n == 0)
        return err_set(err, TERN_NOT_FOUND,
                       "nothing of this text (%zu tokens) is in the prefix cache: let it be answered first, then save",
                       t->ids.len);
    return TERN_OK;
}

// ---------------------------------------------------------------------------------------------------------------- save

struct state_save {
    const struct tern_service *s;
    const struct state_text *t;
    struct state_shape shape;
};

static enum tern_status save_body(void *arg, state_put_fn *put, void *to, struct tern_err *err) {
    const struct state_save *v = arg;
    const struct tern_engine *e = v->s->engine;
    const struct state_layout *l = &plan_pool(e->plan)->layout;
    const struct state_text *t = v->t;
    TRY(put(to, t->ids.ids, t->n * OP_BLOCK * sizeof(int32_t), err));
    for (size_t i = 0; i < t->n; i++) TRY(put(to, t->held[i].data, l->block_bytes, err));
    if (v->shape.has_slot) TRY(put(to, t->held[t->n - 1].data + l->block_bytes, l->slot_bytes, err));
    if (v->shape.draft.bytes == 0) return TERN_OK;
    size_t block = (size_t)plan_draft_pool(e->draft.plan)->layout.block_bytes;
    TRY(put(to, e->draft.model->digest, DRAFT_DIGEST_BYTES, err));
    for (size_t i = 0; i < t->n; i++) TRY(put(to, service_held_draft(v->s, &t->held[i]), block, err));
    return TERN_OK;
}

static enum tern_status service_has_cache(const struct tern_service *s, struct tern_err *err) {
    if (s->prefix) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "states are kept in the prefix cache, and this service has none");
}

enum tern_status tern_service_state_save(struct tern_service *s, struct tern_str tenant,
                                         const struct tern_request_options *prompt, const char *path, size_t *n_tokens,
                                         struct tern_err *err) {
    struct state_text t = {0};
    bool reasoning_open;
    enum tern_status status;
    *n_tokens = 0;
    TRY(service_has_cache(s, err));
    if (tenant.len > TERN_TENANT_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "a tenant's name has %zu bytes; at most %d are possible", tenant.len,
                       TERN_TENANT_MAX);
    TRY_GOTO(prompt_build(s->engine, prompt, &t.ids, &reasoning_open, err), done);
    if (t.ids.len > (size_t)s->engine->n_ctx) {
        status = err_set(err, TERN_CONTEXT_FULL, "the text has %zu tokens, but the context has %d positions", t.ids.len,
                         s->engine->n_ctx);
        goto done;
    }
    TRY_GOTO(text_keys(s, &t, tenant, err), done);
    TRY_GOTO(text_hold(s, &t, err), done);
    struct state_save v = {.s = s,
                           .t = &t,
                           .shape = {.n_ids = (uint32_t)(t.n * OP_BLOCK),
                                     .pending = -1,
                                     .has_slot = s->engine->model->hyper.conv_len > 1}};
    bool has_draft = s->engine->draft.plan != NULL;
    for (size_t i = 0; i < t.n; i++) has_draft = has_draft && t.held[i].has_draft;
    if (has_draft)
        v.shape.draft =
            (struct draft_state){.len = v.shape.n_ids, .bytes = draft_state_bytes(s->engine, v.shape.n_ids, 0)};
    status = state_file_write(s->engine, path, &v.shape, save_body, &v, err);
    if (status == TERN_OK) *n_tokens = t.n * OP_BLOCK;
done:
    text_release(s, &t);
    return status;
}

// ------------------------------------------------------------------------------------------------------------- restore

// The drafter's blocks of a file, if they are all of this drafter's and from the text's begin; NULL: none.
static const uint8_t *draft_of(const struct tern_engine *e, const struct state_file *f, const uint8_t *data) {
    const struct draft_state *d = &f->shape.draft;
    if (!e->draft.plan || d->len != f->shape.n_ids || d->pending > 0 || d->bytes < DRAFT_DIGEST_BYTES) return NULL;
    return memcmp(data, e->draft.model->digest, DRAFT_DIGEST_BYTES) == 0 ? data + DRAFT_DIGEST_BYTES : NULL;
}

// Blocks that are there stay as they are. *n: how many are there now.
static enum tern_status blocks_put(struct tern_service *s, struct tern_str tenant, const struct state_file *f,
                                   size_t *n, struct tern_err *err) {
    const struct tern_engine *e = s->engine;
    const struct state_layout *l = &plan_pool(e->plan)->layout;
    size_t n_blocks = f->shape.n_ids / OP_BLOCK;
    const uint8_t *kv = f->body + (size_t)f->shape.n_ids * sizeof(int32_t);
    const uint8_t *slot = kv + (size_t)state_shape_blocks(&f->shape) * l->block_bytes;
    const uint8_t *draft = draft_of(e, f, slot + (f->shape.has_slot ? l->slot_bytes : 0));
    size_t draft_bytes = draft ? (size_t)plan_draft_pool(e->draft.plan)->layout.block_bytes : 0;
    struct prefix_key key, parent;
    prefix_key_root(s->prefix, (struct str){tenant.data, tenant.len}, &key);
    for (*n = 0; *n < n_blocks; (*n)++) {
        int32_t ids[OP_BLOCK];
        struct prefix_held held;
        bool full, has_conv = f->shape.has_slot && *n + 1 == n_blocks;
        memcpy(ids, f->body + *n * sizeof ids, sizeof ids);
        parent = key;
        prefix_key_next(&key, ids, OP_BLOCK);
        if (!prefix_place(s->prefix, &key, &parent, (int)*n, has_conv, &held, &full)) {
            if (full)
                return err_set(err, TERN_LIMIT,
                               "the prefix cache has no room for more than %zu of %u tokens now; give it more memory",
                               *n * OP_BLOCK, f->shape.n_ids);
            continue;
        }
        memcpy(held.data, kv + *n * l->block_bytes, l->block_bytes);
        if (has_conv) memcpy(held.data + l->block_bytes, slot, l->slot_bytes);
        if (draft) memcpy(service_held_draft(s, &held), draft + *n * draft_bytes, draft_bytes);
        held.has_draft = draft != NULL;
        prefix_put(s->prefix, &held, true);
    }
    return TERN_OK;
}

enum tern_status tern_service_state_restore(struct tern_service *s, struct tern_str tenant, const char *path,
                                            size_t *n_tokens, struct tern_err *err) {
    struct state_file f;
    size_t n = 0;
    *n_tokens = 0;
    TRY(service_has_cache(s, err));
    TRY(state_file_open(&f, s->engine, path, err));
    enum tern_status status = TERN_OK;
    if (f.shape.n_ids < OP_BLOCK || (f.shape.has_slot && f.shape.n_ids % OP_BLOCK != 0))
        status = err_set(err, TERN_UNSUPPORTED,
                         "%s: holds %u tokens, but a service takes states that end between blocks of %d", path,
                         f.shape.n_ids, OP_BLOCK);
    if (status == TERN_OK) status = blocks_put(s, tenant, &f, &n, err);
    state_file_close(&f);
    if (status == TERN_OK) *n_tokens = n * OP_BLOCK;
    return status;
}
