// A session's context for the drafter: rows of features of positions not injected yet, KV blocks of those that are, and
// the text of the n-gram drafter. All of it is by position, so going back cuts it, and nothing needs a checkpoint.
#include "base/base.h"
#include "engine_int.h"

static int row_of(const struct tern_session *s, size_t i) { return s->draft.lane * s->engine->draft.n_rows + (int)i; }

enum tern_status session_draft_open(struct tern_session *s, struct tern_err *err) {
    struct tern_engine *e = s->engine;
    struct engine_draft *d = &e->draft;
    struct session_draft *sd = &s->draft;
    if (d->lm) {
        mutex_lock(e->mutex);
        sd->lm_lane = draft_lm_lane_take(d->lm);
        mutex_unlock(e->mutex);
        TERN_ASSERT(sd->lm_lane >= 0); // as many as sessions
    }
    if (!d->plan) return TERN_OK;
    sd->blocks = mem_calloc((size_t)d->n_blocks, sizeof *sd->blocks);
    if (!sd->blocks) return err_set(err, TERN_NO_MEMORY, "no memory for a session of %d positions", e->n_ctx);
    mutex_lock(e->mutex);
    TERN_ASSERT(d->n_free_lanes > 0); // as many as sessions
    sd->lane = d->free_lanes[--d->n_free_lanes];
    mutex_unlock(e->mutex);
    for (int i = 0; i < d->n_blocks; i++) sd->blocks[i] = sd->lane * d->n_blocks + i;
    return TERN_OK;
}

void session_draft_close(struct tern_session *s) {
    struct engine_draft *d = &s->engine->draft;
    struct session_draft *sd = &s->draft;
    mutex_lock(s->engine->mutex);
    if (sd->lm_lane >= 0) draft_lm_lane_give(d->lm, sd->lm_lane);
    if (sd->lane >= 0) d->free_lanes[d->n_free_lanes++] = sd->lane;
    mutex_unlock(s->engine->mutex);
    sd->lane = sd->lm_lane = -1;
    mem_free(sd->blocks);
    ngram_free(sd->ngram);
}

enum tern_status session_draft_inject(struct tern_session *s, struct tern_err *err) {
    struct session_draft *sd = &s->draft;
    if (sd->pending == 0) return TERN_OK;
    TRY(drafter_inject(s->engine->draft.drafter, sd->blocks, s->engine->draft.n_blocks, (int)sd->len, (int)sd->pending,
                       row_of(s, 0), err));
    sd->len += sd->pending;
    sd->pending = 0;
    return TERN_OK;
}

enum tern_status session_draft_room(struct tern_session *s, int n, struct tern_err *err) {
    if (s->draft.lane < 0 || s->draft.pending + (size_t)n <= (size_t)s->engine->draft.n_rows) return TERN_OK;
    return session_draft_inject(s, err);
}

struct step_port session_draft_port(const struct tern_session *s) {
    return plan_draft_features(s->engine->draft.plan, row_of(s, s->draft.pending));
}

void session_draft_cut(struct tern_session *s, size_t len) {
    struct session_draft *sd = &s->draft;
    sd->ngram_same = MIN(sd->ngram_same, len);
    if (sd->lane < 0) return;
    size_t injected = len > sd->base ? MIN(sd->len, len - sd->base) : 0;
    sd->base = MIN(sd->base, len);
    sd->pending = MIN(sd->pending, len - sd->base - injected);
    sd->len = injected;
}

enum tern_status session_draft_copy(struct tern_session *to, const struct tern_session *from, struct tern_err *err) {
    const struct session_draft *f = &from->draft;
    struct session_draft *t = &to->draft;
    struct plan_draft *plan = from->engine->draft.plan;
    if (f->lane < 0) return TERN_OK;
    for (int i = 0; i < int_div_up((int)f->len, OP_BLOCK); i++)
        TRY(plan_draft_block_copy(plan, t->blocks[i], f->blocks[i], err));
    TRY(plan_draft_features_copy(plan, row_of(to, 0), row_of(from, 0), (int)f->pending, err));
    t->base = f->base;
    t->len = f->len;
    t->pending = f->pending;
    return TERN_OK;
}

// ---------------------------------------------------------------------------------------------------------- as bytes

uint64_t draft_state_bytes(const struct tern_engine *e, uint64_t len, uint64_t pending) {
    struct plan_draft *plan = e->draft.plan;
    return DRAFT_DIGEST_BYTES + (len + OP_BLOCK - 1) / OP_BLOCK * plan_draft_pool(plan)->layout.block_bytes +
           pending * plan_draft_feature_row_bytes(plan);
}

struct draft_state session_draft_state(const struct tern_session *s) {
    const struct session_draft *sd = &s->draft;
    if (sd->lane < 0) return (struct draft_state){0};
    return (struct draft_state){.len = (uint32_t)sd->len,
                                .pending = (uint32_t)sd->pending,
                                .bytes = draft_state_bytes(s->engine, sd->len, sd->pending)};
}

enum tern_status session_draft_put(const struct tern_session *s, state_put_fn *put, void *arg, struct tern_err *err) {
    const struct session_draft *sd = &s->draft;
    const struct engine_draft *d = &s->engine->draft;
    if (sd->lane < 0) return TERN_OK;
    size_t block = (size_t)plan_draft_pool(d->plan)->layout.block_bytes;
    size_t row = (size_t)plan_draft_feature_row_bytes(d->plan);
    void *data = mem_alloc(MAX(block, row));
    if (!data) return err_set(err, TERN_NO_MEMORY, "no memory to save a drafter's context");
    enum tern_status status;
    TRY_GOTO(put(arg, d->model->digest, DRAFT_DIGEST_BYTES, err), done);
    for (int i = 0; i < int_div_up((int)sd->len, OP_BLOCK); i++) {
        TRY_GOTO(plan_draft_block_read(d->plan, sd->blocks[i], data, err), done);
        TRY_GOTO(put(arg, data, block, err), done);
    }
    for (size_t i = 0; i < sd->pending; i++) {
        TRY_GOTO(plan_draft_features_read(d->plan, row_of(s, i), 1, data, err), done);
        TRY_GOTO(put(arg, data, row, err), done);
    }
done:
    mem_free(data);
    return status;
}

static bool is_own(const struct tern_engine *e, const struct draft_state *state, const uint8_t *data) {
    return e->draft.plan && state->bytes >= DRAFT_DIGEST_BYTES &&
           memcmp(data, e->draft.model->digest, DRAFT_DIGEST_BYTES) == 0;
}

bool session_draft_state_check(const struct tern_engine *e, const struct draft_state *state, const uint8_t *data,
                               size_t n_ids) {
    if ((uint64_t)state->len + state->pending > n_ids) return false;
    if (!is_own(e, state, data)) return true;
    return state->pending <= (uint32_t)e->draft.n_rows &&
           state->bytes == draft_state_bytes(e, state->len, state->pending);
}

enum tern_status session_draft_take(struct tern_session *s, const struct draft_state *state, const uint8_t *data,
                                    struct tern_err *err) {
    struct session_draft *sd = &s->draft;
    struct plan_draft *plan = s->engine->draft.plan;
    sd->ngram_same = 0;
    sd->base = s->len;
    sd->len = sd->pending = 0;
    if (!is_own(s->engine, state, data)) return TERN_OK;
    data += DRAFT_DIGEST_BYTES;
    for (int i = 0; i < int_div_up((int)state->len, OP_BLOCK); i++) {
        TRY(plan_draft_block_write(plan, sd->blocks[i], data, err));
        data += plan_draft_pool(plan)->layout.block_bytes;
    }
    TRY(plan_draft_features_write(plan, row_of(s, 0), (int)state->pending, data, err));
    sd->len = state->len;
    sd->pending = state->pending;
    sd->base = s->len - sd->len - sd->pending;
    return TERN_OK;
}

enum tern_status session_ngram_create(struct tern_session *s, struct tern_err *err) {
    if (s->draft.ngram) return TERN_OK;
    s->draft.ngram_same = 0;
    return ngram_create(&s->draft.ngram, MIN(s->engine->n_ctx + 1, NGRAM_TOKENS_DEFAULT), err);
}

void session_ngram_follow(struct tern_session *s, int32_t next) {
    struct session_draft *sd = &s->draft;
    size_t same = sd->ngram_same;
    if (ngram_len(sd->ngram) > same && s->len > same && s->ids[same] == sd->ngram_tail) same++;
    if (ngram_len(sd->ngram) > same) ngram_truncate(sd->ngram, same);
    ngram_append(sd->ngram, s->ids + same, s->len - same);
    ngram_append(sd->ngram, &next, 1);
    sd->ngram_same = s->len;
    sd->ngram_tail = next;
}
