// Teacher-forced scoring: every row of a step asks for its logits, and what they say of the next given token is kept.
#include "base/base.h"
#include "engine_int.h"

#include <math.h>

// log softmax(logits)[id] over the ids that exist, and the best of them.
static float row_score(const float *logits, int n, int32_t id, int32_t *best) {
    float max;
    int32_t top = op_argmax(logits, n, &max);
    if (best) *best = top;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)(logits[i] - max));
    return (float)((double)logits[id] - (double)max - log(sum));
}

// One step of n rows under the mutex; scores[i], top[i] are about ids[i + 1] and are written for i < n_next.
static enum tern_status score_step(struct tern_session *s, const int32_t *ids, int n, int n_next, float *scores,
                                   int32_t *top, struct tern_err *err) {
    struct tern_engine *e = s->engine;
    mutex_lock(e->mutex);
    enum tern_status status = session_run_all(s, ids, n, err);
    for (int i = 0; status == TERN_OK && i < n_next; i++)
        scores[i] = row_score(plan_logits(e->plan, i), e->model->hyper.n_vocab_used, ids[i + 1], top ? top + i : NULL);
    mutex_unlock(e->mutex);
    return status;
}

enum tern_status tern_session_score(struct tern_session *s, const int32_t *ids, size_t n, float *logprobs, int32_t *top,
                                    struct tern_err *err) {
    struct tern_engine *e = s->engine;
    if (s->busy) return err_set(err, TERN_INVALID_ARGUMENT, "the session is busy with a request");
    if (s->len > 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "scoring starts from an empty session; truncate it to 0 first");
    if (n > (size_t)e->n_ctx)
        return err_set(err, TERN_CONTEXT_FULL, "%zu tokens to score, but the context has %d positions", n, e->n_ctx);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->model->hyper.n_vocab_used)
            return err_set(err, TERN_INVALID_ARGUMENT, "token %zu is %d, but ids go from 0 to %d", i, ids[i],
                           e->model->hyper.n_vocab_used - 1);
    if (n == 0) return TERN_OK;
    logprobs[0] = NAN;
    if (top) top[0] = -1;
    size_t chunk = (size_t)MIN(e->window, ENGINE_OUT_ROWS_MAX);
    for (size_t at = 0; at < n; at += chunk) {
        size_t rows = MIN(chunk, n - at), n_next = MIN(rows, n - at - 1);
        TRY(score_step(s, ids + at, (int)rows, (int)n_next, logprobs + at + 1, top ? top + at + 1 : NULL, err));
    }
    return TERN_OK;
}
