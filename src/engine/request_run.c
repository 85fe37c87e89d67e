// A request alone, pulled by its caller: works until there is an event to tell.
#include "base/base.h"
#include "request_int.h"

static enum tern_status run_rows(struct tern_request *r, struct request_rows *rows, struct tern_err *err) {
    uint32_t want;
    request_rows_next(rows, r, r->engine->window);
    mutex_lock(r->engine->mutex);
    uint64_t start = clock_ns();
    enum tern_status status = request_rows_run(r->engine, rows, 1, false, &want, err);
    if (status == TERN_OK) status = request_rows_choose(rows, want, err);
    r->step_ns = clock_ns() - start;
    mutex_unlock(r->engine->mutex);
    return status;
}

static enum tern_status prompt_step(struct tern_request *r, struct tern_event *event, bool *told,
                                    struct tern_err *err) {
    struct request_rows rows;
    TRY(run_rows(r, &rows, err));
    TRY(request_rows_take(&rows, err));
    if (rows.wants) return r->phase == REQUEST_ANSWER ? request_draft_prompt(r, err) : TERN_OK;
    *event = (struct tern_event){.type = TERN_EVENT_PROGRESS,
                                 .n_done = r->usage.n_cached + (int64_t)r->prompt_at,
                                 .n_total = r->usage.n_prompt,
                                 .usage.n_cached = r->usage.n_cached};
    *told = true;
    return TERN_OK;
}

static enum tern_status answer_step(struct tern_request *r, struct tern_err *err) {
    bool ran = false;
    struct request_rows rows;
    if (r->draft.mode != TERN_DRAFT_OFF) TRY(request_draft_round(r, &ran, err));
    if (ran) return TERN_OK;
    TRY(run_rows(r, &rows, err));
    uint64_t start = clock_ns();
    TRY(request_rows_take(&rows, err));
    if (r->phase == REQUEST_ANSWER) request_draft_plain(r, r->step_ns + clock_ns() - start);
    return TERN_OK;
}

enum tern_status tern_request_next(struct tern_request *r, struct tern_event *event, struct tern_err *err) {
    for (;;) {
        if (event_queue_pop(&r->queue, r->n_logprobs + 1, event)) return TERN_OK;
        enum tern_status status = TERN_OK;
        bool told = false;
        if (r->phase == REQUEST_TOLD) return err_set(err, TERN_INVALID_ARGUMENT, "the request is done");
        if (r->phase == REQUEST_FINISHED) {
            request_done(r, event);
            return TERN_OK;
        }
        if (atomic_load_explicit(&r->cancelled, memory_order_relaxed))
            status = request_finish(r, TERN_FINISH_CANCELLED, false, err);
        else if (r->phase == REQUEST_PROMPT)
            status = prompt_step(r, event, &told, err);
        else
            status = answer_step(r, err);
        if (status != TERN_OK) {
            request_failed(r);
            return status;
        }
        if (told) return TERN_OK;
    }
}
