// The work of a request: prompt in chunks of the window, then one token a step. Copies of the convolution rows are kept
// where a later request may begin: at the last multiple of OP_BLOCK before the prompt's end (the same prompt again, or
// one that differs in its last words), at the prompt's end (another answer), and at the answer's end (the next turn).
#include "base/base.h"
#include "request_int.h"

// Rows of the next prompt chunk: one that would go over the last block boundary before the prompt's end stops there.
static int chunk_rows(const struct tern_request *r) {
    size_t left = r->prompt.len - r->prompt_at, len = r->session->len;
    size_t n = MIN(left, (size_t)r->engine->window), cut = (len + left - 1) / OP_BLOCK * OP_BLOCK;
    if (r->session->slot >= 0 && cut > len && cut < len + n) n = cut - len;
    return (int)n;
}

uint32_t request_output(const struct tern_request *r) {
    return sampler_is_argmax(r->sampler) && !r->mask && r->n_logprobs < 0 ? PROG_OUT_ARGMAX : PROG_OUT_LOGITS;
}

enum tern_status request_choose(struct tern_request *r, uint32_t want, int out_index, int64_t pos,
                                struct tern_err *err) {
    struct tern_engine *e = r->engine;
    if (want == PROG_OUT_ARGMAX) {
        r->next = plan_argmax(e->plan)[out_index].id;
    } else {
        if (r->mask) {
            memset(r->mask, 0xff, ((size_t)e->model->hyper.n_vocab + 31) / 32 * sizeof *r->mask);
            r->constraint.mask(r->constraint_state, r->mask, e->model->hyper.n_vocab);
        }
        r->next = sampler_pick(r->sampler, plan_logits(e->plan, out_index), pos, r->mask).id;
        if (r->next >= 0 && r->n_logprobs >= 0) TRY(request_note_logprobs(r, r->next, err));
    }
    if (r->next < 0)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       r->mask ? "the constraint allows no token here"
                               : "every token is banned or the model gave no number");
    sampler_accept(r->sampler, r->next);
    if (r->mask && !r->constraint.advance(r->constraint_state, r->next))
        return err_set(err, TERN_INVALID_ARGUMENT, "the constraint refused token %d, which its own mask allowed",
                       r->next);
    if (!id_list_push(&r->answer, r->next)) return err_set(err, TERN_NO_MEMORY, "no memory for the answer");
    return TERN_OK;
}

static enum tern_status run_step(struct tern_request *r, const int32_t *ids, int n, uint32_t want, bool keep,
                                 struct tern_err *err) {
    mutex_lock(r->engine->mutex);
    uint64_t start = clock_ns();
    enum tern_status status = session_run(r->session, ids, n, want, err);
    if (status == TERN_OK && keep) status = session_checkpoint(r->session, err);
    if (status == TERN_OK && want) status = request_choose(r, want, 0, (int64_t)r->session->len, err);
    r->step_ns = clock_ns() - start;
    mutex_unlock(r->engine->mutex);
    return status;
}

enum tern_status request_finish(struct tern_request *r, enum tern_finish finish, bool stopped, struct tern_err *err) {
    r->phase = REQUEST_FINISHED;
    r->finish = finish;
    mutex_lock(r->engine->mutex);
    enum tern_status status = session_checkpoint(r->session, err);
    mutex_unlock(r->engine->mutex);
    TRY(status);
    TRY(request_tell_end(r, stopped, err));
    if (finish == TERN_FINISH_STOP && r->parser && answer_n_calls(r->parser) > 0) r->finish = TERN_FINISH_TOOL_CALLS;
    return TERN_OK;
}

enum tern_status request_take(struct tern_request *r, bool *ended, enum tern_finish *finish, bool *stopped,
                              struct tern_err *err) {
    *stopped = false;
    *ended = true;
    *finish = TERN_FINISH_STOP;
    if (r->answer.len == 1) r->first_ns = clock_ns();
    if (engine_is_eos(r->engine, r->next) && !r->ignore_eos) return TERN_OK;
    TRY(request_tell_token(r, r->next, stopped, err));
    if (*stopped) return TERN_OK;
    *finish = TERN_FINISH_LENGTH;
    *ended = (int)r->answer.len >= r->n_max;
    return TERN_OK;
}

// What the chosen token means: an end, text, or a step more.
static enum tern_status token_take(struct tern_request *r, struct tern_err *err) {
    bool ended, stopped;
    enum tern_finish finish;
    TRY(request_take(r, &ended, &finish, &stopped, err));
    return ended ? request_finish(r, finish, stopped, err) : TERN_OK;
}

static enum tern_status prompt_step(struct tern_request *r, struct tern_event *event, bool *told,
                                    struct tern_err *err) {
    int n = chunk_rows(r);
    bool last = r->prompt_at + (size_t)n == r->prompt.len;
    uint32_t want = last ? request_output(r) : 0;
    size_t left = r->prompt.len - r->prompt_at - (size_t)n;
    bool keep = last || ((r->session->len + (size_t)n) % OP_BLOCK == 0 && left <= OP_BLOCK);
    TRY(run_step(r, r->prompt.ids + r->prompt_at, n, want, keep, err));
    r->prompt_at += (size_t)n;
    r->prompt_ns = clock_ns() - r->created_ns;
    if (last) {
        r->phase = REQUEST_ANSWER;
        TRY(token_take(r, err));
        return r->phase == REQUEST_ANSWER ? request_draft_prompt(r, err) : TERN_OK;
    }
    *event = (struct tern_event){
        .type = TERN_EVENT_PROGRESS, .n_done = r->usage.n_cached + (int64_t)r->prompt_at, .n_total = r->usage.n_prompt};
    *told = true;
    return TERN_OK;
}

static enum tern_status answer_step(struct tern_request *r, struct tern_err *err) {
    bool ran = false;
    if (r->draft.mode != TERN_DRAFT_OFF) TRY(request_draft_round(r, &ran, err));
    if (ran) return TERN_OK;
    int32_t id = r->next;
    r->next = -1;
    r->usage.n_steps++;
    TRY(run_step(r, &id, 1, request_output(r), false, err));
    uint64_t start = clock_ns();
    TRY(token_take(r, err));
    if (r->phase == REQUEST_ANSWER) request_draft_plain(r, r->step_ns + clock_ns() - start);
    return TERN_OK;
}

static void done_tell(struct tern_request *r, struct tern_event *event) {
    uint64_t now = clock_ns();
    r->usage.n_answer = (int64_t)r->answer.len;
    r->usage.prompt_s = (double)r->prompt_ns * 1e-9;
    r->usage.answer_s = r->first_ns ? (double)(now - r->first_ns) * 1e-9 : 0;
    r->usage.first_token_s = r->first_ns ? (double)(r->first_ns - r->created_ns) * 1e-9 : 0;
    request_draft_usage(r);
    *event = (struct tern_event){.type = TERN_EVENT_DONE, .finish = r->finish, .usage = r->usage};
    r->phase = REQUEST_TOLD;
    request_let_go(r);
}

enum tern_status tern_request_next(struct tern_request *r, struct tern_event *event, struct tern_err *err) {
    for (;;) {
        if (request_pop_event(r, event)) return TERN_OK;
        enum tern_status status = TERN_OK;
        bool told = false;
        if (r->phase == REQUEST_TOLD) return err_set(err, TERN_INVALID_ARGUMENT, "the request is done");
        if (r->phase == REQUEST_FINISHED) {
            done_tell(r, event);
            return TERN_OK;
        }
        if (atomic_load_explicit(&r->cancelled, memory_order_relaxed))
            status = request_finish(r, TERN_FINISH_CANCELLED, false, err);
        else if (r->phase == REQUEST_PROMPT)
            status = prompt_step(r, event, &told, err);
        else
            status = answer_step(r, err);
        if (status != TERN_OK) {
            r->phase = REQUEST_TOLD;
            r->next = -1;
            request_let_go(r);
            return status;
        }
        if (told) return TERN_OK;
    }
}
