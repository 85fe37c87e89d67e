// Sessions: one timeline of tokens each. Going back is possible where a copy of the convolution rows was kept;
// attention's rows need no copy, since positions beyond the length are simply written again.
#include "base/base.h"
#include "engine_int.h"

int engine_blocks_per_session(const struct tern_engine *e) { return int_div_up(e->n_ctx, OP_BLOCK); }

int engine_slots_per_session(const struct tern_engine *e) {
    return e->model->hyper.conv_len > 1 ? 1 + SESSION_CHECKPOINTS_MAX : 0;
}

static enum tern_status session_take(struct tern_session *s, struct tern_err *err) {
    struct tern_engine *e = s->engine;
    int n_blocks = engine_blocks_per_session(e), n_slots = engine_slots_per_session(e);
    if (e->n_free_blocks < n_blocks || e->n_free_slots < n_slots)
        return err_set(err, TERN_LIMIT,
                       "all %d sessions of this engine are in use; close one or open the engine with more n_sessions",
                       e->n_sessions);
    for (int i = 0; i < n_blocks; i++) s->blocks[s->n_blocks++] = e->free_blocks[--e->n_free_blocks];
    if (n_slots > 0) {
        s->slot = e->free_slots[--e->n_free_slots];
        for (int i = 0; i < SESSION_CHECKPOINTS_MAX; i++) s->checkpoints[i].slot = e->free_slots[--e->n_free_slots];
    }
    e->n_open++;
    return TERN_OK;
}

static void session_give_back(struct tern_session *s) {
    struct tern_engine *e = s->engine;
    if (s->n_blocks == 0) return;
    while (s->n_blocks > 0) e->free_blocks[e->n_free_blocks++] = s->blocks[--s->n_blocks];
    if (s->slot >= 0) {
        e->free_slots[e->n_free_slots++] = s->slot;
        for (int i = 0; i < SESSION_CHECKPOINTS_MAX; i++) e->free_slots[e->n_free_slots++] = s->checkpoints[i].slot;
    }
    e->n_open--;
}

enum tern_status tern_session_open(struct tern_session **out, struct tern_engine *e, struct tern_err *err) {
    if (e->model->hyper.bidirectional)
        return err_set(err, TERN_UNSUPPORTED,
                       "%s is an encoder, which gives vectors and no text: it has no sessions (tern_embed)",
                       e->model->name);
    struct tern_session *s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(err, TERN_NO_MEMORY, "no memory for a session");
    s->engine = e;
    s->pending = -1;
    s->slot = -1;
    s->draft.lane = s->draft.lm_lane = -1;
    s->ids = mem_calloc((size_t)e->n_ctx, sizeof *s->ids);
    s->blocks = mem_calloc((size_t)engine_blocks_per_session(e), sizeof *s->blocks);
    if (!s->ids || !s->blocks) {
        tern_session_close(s);
        return err_set(err, TERN_NO_MEMORY, "no memory for a session of %d positions", e->n_ctx);
    }
    mutex_lock(e->mutex);
    enum tern_status status = session_take(s, err);
    mutex_unlock(e->mutex);
    if (status == TERN_OK) status = session_draft_open(s, err);
    if (status != TERN_OK) {
        tern_session_close(s);
        return status;
    }
    *out = s;
    return TERN_OK;
}

void tern_session_close(struct tern_session *s) {
    if (!s) return;
    if (s->busy) TERN_BUG("a session was closed while a request works on it");
    mutex_lock(s->engine->mutex);
    session_give_back(s);
    mutex_unlock(s->engine->mutex);
    session_draft_close(s);
    mem_free(s->ids);
    mem_free(s->blocks);
    mem_free(s);
}

size_t tern_session_len(const struct tern_session *s) { return s->len; }

size_t session_reachable(const struct tern_session *s, size_t limit) {
    if (s->slot < 0 || limit >= s->len) return MIN(limit, s->len);
    size_t best = 0;
    for (int i = 0; i < s->n_checkpoints; i++)
        if (s->checkpoints[i].len <= limit) best = s->checkpoints[i].len;
    return best;
}

enum tern_status session_restore(struct tern_session *s, size_t len, struct tern_err *err) {
    TERN_ASSERT(session_reachable(s, len) == len);
    s->pending = -1;
    if (len == s->len) return TERN_OK;
    if (s->slot >= 0 && len > 0)
        for (int i = 0; i < s->n_checkpoints; i++)
            if (s->checkpoints[i].len == len)
                TRY(plan_slot_copy(s->engine->plan, s->slot, s->checkpoints[i].slot, err));
    while (s->n_checkpoints > 0 && s->checkpoints[s->n_checkpoints - 1].len > len) s->n_checkpoints--;
    s->len = len;
    session_draft_cut(s, len);
    return TERN_OK;
}

// When all are taken, the checkpoint whose neighbours lie closest together goes: the rest stay spread over the text.
static void checkpoint_drop_one(struct tern_session *s) {
    int drop = 0;
    size_t gap_min = (size_t)-1;
    for (int i = 0; i < s->n_checkpoints; i++) {
        size_t before = i > 0 ? s->checkpoints[i - 1].len : 0;
        size_t after = i + 1 < s->n_checkpoints ? s->checkpoints[i + 1].len : s->len;
        if (after - before < gap_min) {
            gap_min = after - before;
            drop = i;
        }
    }
    struct checkpoint gone = s->checkpoints[drop];
    memmove(&s->checkpoints[drop], &s->checkpoints[drop + 1],
            (size_t)(s->n_checkpoints - drop - 1) * sizeof s->checkpoints[0]);
    s->checkpoints[--s->n_checkpoints] = gone; // its slot is free for the next
}

enum tern_status session_checkpoint(struct tern_session *s, struct tern_err *err) {
    if (s->slot < 0 || s->len == 0) return TERN_OK;
    if (s->n_checkpoints > 0 && s->checkpoints[s->n_checkpoints - 1].len == s->len) return TERN_OK;
    if (s->n_checkpoints == SESSION_CHECKPOINTS_MAX) checkpoint_drop_one(s);
    struct checkpoint *c = &s->checkpoints[s->n_checkpoints];
    TRY(plan_slot_copy(s->engine->plan, c->slot, s->slot, err));
    c->len = s->len;
    s->n_checkpoints++;
    return TERN_OK;
}

void session_fall_back(struct tern_session *s) {
    size_t len = s->slot >= 0 ? (s->n_checkpoints > 0 ? s->checkpoints[s->n_checkpoints - 1].len : 0) : s->len;
    if (s->slot >= 0 && len > 0 &&
        plan_slot_copy(s->engine->plan, s->slot, s->checkpoints[s->n_checkpoints - 1].slot, NULL) != TERN_OK)
        len = 0;
    if (len == 0) s->n_checkpoints = 0;
    s->len = len;
    s->pending = -1;
    session_draft_cut(s, len);
}

// Features of a step of one session go where they belong; those of several lie in the step's order first, behind all
// lanes, and are then moved.
static struct step_port features_port(const struct tern_engine *e, const struct session_rows *rows, int n) {
    if (n == 1) return session_draft_port(rows[0].s);
    return plan_draft_features(e->draft.plan, e->draft.n_rows * e->n_sessions);
}

static enum tern_status features_move(struct tern_engine *e, const struct session_rows *rows, int n,
                                      struct tern_err *err) {
    int from = e->draft.n_rows * e->n_sessions;
    for (int i = 0; i < n; i++) {
        struct session_draft *sd = &rows[i].s->draft;
        int to = sd->lane * e->draft.n_rows + (int)sd->pending;
        if (n > 1) TRY(plan_draft_features_copy(e->draft.plan, to, from, rows[i].n, err));
        from += rows[i].n;
        sd->pending += (size_t)rows[i].n;
    }
    return TERN_OK;
}

static void rows_add(struct step_builder *b, const struct session_rows *rows) {
    struct tern_session *s = rows->s;
    if (s->len + (size_t)rows->n > (size_t)s->engine->n_ctx)
        TERN_BUG("a step of %d rows behind %zu in a context of %d", rows->n, s->len, s->engine->n_ctx);
    int seq = step_add_seq(b, s->blocks, s->n_blocks, (int32_t)s->len, s->len > 0 ? s->slot : -1, s->slot);
    for (int i = 0; i < rows->n; i++) step_add_chain_row(b, seq, rows->ids[i], i >= rows->n - rows->n_out);
}

enum tern_status sessions_run(struct tern_engine *e, const struct session_rows *rows, int n, uint32_t want, bool show,
                              struct tern_err *err) {
    struct step_builder *b = &e->builder;
    for (int i = 0; i < n; i++) TRY(session_draft_room(rows[i].s, rows[i].n, err));
    step_begin(b, plan_pool(e->plan), show ? STEP_SHOW_ROWS : 0);
    for (int i = 0; i < n; i++) rows_add(b, &rows[i]);
    if (e->draft.plan) b->step.ports[PORT_FEATURES] = features_port(e, rows, n);
    mem_freeze(true);
    enum tern_status status = plan_run(e->plan, step_end(b), want, err);
    if (status == TERN_OK && e->draft.plan) status = features_move(e, rows, n, err);
    mem_freeze(false);
    for (int i = 0; i < n; i++) {
        struct tern_session *s = rows[i].s;
        if (status != TERN_OK) {
            session_fall_back(s);
            continue;
        }
        memcpy(s->ids + s->len, rows[i].ids, (size_t)rows[i].n * sizeof *rows[i].ids);
        s->len += (size_t)rows[i].n;
    }
    return status;
}

enum tern_status session_run_all(struct tern_session *s, const int32_t *ids, int n, struct tern_err *err) {
    const struct session_rows rows = {s, ids, n, n};
    return sessions_run(s->engine, &rows, 1, PROG_OUT_LOGITS, false, err);
}

enum tern_status tern_session_truncate(struct tern_session *s, size_t len, struct tern_err *err) {
    if (s->busy) return err_set(err, TERN_INVALID_ARGUMENT, "the session is busy with a request");
    if (len > s->len)
        return err_set(err, TERN_INVALID_ARGUMENT, "the session holds %zu tokens and cannot be cut to %zu", s->len,
                       len);
    size_t near = session_reachable(s, len);
    if (near != len)
        return err_set_at(err, TERN_UNSUPPORTED, (int64_t)near,
                          "this model's convolution state was kept at other positions; the nearest below %zu is %zu",
                          len, near);
    mutex_lock(s->engine->mutex);
    enum tern_status status = session_restore(s, len, err);
    mutex_unlock(s->engine->mutex);
    return status;
}

static enum tern_status session_copy(struct tern_session *to, const struct tern_session *from, struct tern_err *err) {
    struct plan *plan = from->engine->plan;
    for (int i = 0; i < int_div_up((int)from->len, OP_BLOCK); i++)
        TRY(plan_block_copy(plan, to->blocks[i], from->blocks[i], err));
    if (from->slot >= 0) {
        TRY(plan_slot_copy(plan, to->slot, from->slot, err));
        for (int i = 0; i < from->n_checkpoints; i++) {
            TRY(plan_slot_copy(plan, to->checkpoints[i].slot, from->checkpoints[i].slot, err));
            to->checkpoints[i].len = from->checkpoints[i].len;
        }
        to->n_checkpoints = from->n_checkpoints;
    }
    memcpy(to->ids, from->ids, from->len * sizeof *from->ids);
    to->len = from->len;
    to->pending = from->pending;
    return session_draft_copy(to, from, err);
}

enum tern_status tern_session_fork(struct tern_session **out, const struct tern_session *s, struct tern_err *err) {
    struct tern_session *copy;
    TRY(tern_session_open(&copy, s->engine, err));
    mutex_lock(s->engine->mutex);
    enum tern_status status = session_copy(copy, s, err);
    mutex_unlock(s->engine->mutex);
    if (status != TERN_OK) {
        tern_session_close(copy);
        return status;
    }
    *out = copy;
    return TERN_OK;
}
