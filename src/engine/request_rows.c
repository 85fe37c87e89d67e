// The work of requests: prompts in pieces of the window, then one token a step. A request alone and many in one step go
// the same way, so what a token means (sampling, penalties, constraint, stop strings, limits) exists once.
//
// Copies of the convolution rows are kept where a later request of the session may begin: at the last multiple of
// OP_BLOCK before the prompt's end (the same prompt again, or one that differs in its last words), at the prompt's end
// (another answer), and at the answer's end (the next turn).
#include "base/base.h"
#include "request_int.h"

// Rows of the next prompt piece. Where a session keeps its state at block ends, a piece that would go over the last of
// them before the prompt's end stops there, and others stop at one when they reach one. A service finds the state of
// block ends in the step's rows: there pieces end at any multiple of REQUEST_ROWS_GRAIN, so that a block's end has the
// rows before it that its state needs, or is the piece's.
static int piece_rows(const struct tern_request *r, int n_max) {
    size_t left = r->prompt.len - r->prompt_at, len = r->session->len;
    size_t n = MIN(left, (size_t)n_max), grain = r->leaves_state ? OP_BLOCK : REQUEST_ROWS_GRAIN;
    size_t cut = (len + left - 1) / OP_BLOCK * OP_BLOCK;
    if (n < left && (len + n) / grain * grain > len) n = (len + n) / grain * grain - len;
    if (r->leaves_state && r->session->slot >= 0 && cut > len && cut < len + n) n = cut - len;
    return (int)n;
}

int request_out_rows_max(const struct tern_engine *e) { return MIN(e->window, ENGINE_OUT_ROWS_MAX); }

uint32_t request_output(const struct tern_request *r) {
    return sampler_is_argmax(r->sampler) && !r->mask && r->n_logprobs < 0 && !r->scores ? PROG_OUT_ARGMAX
                                                                                        : PROG_OUT_LOGITS;
}

void request_rows_next(struct request_rows *out, struct tern_request *r, int n_max) {
    *out = (struct request_rows){.r = r, .ids = &r->next, .n = 1, .wants = true, .n_out = 1};
    if (r->phase == REQUEST_ANSWER) return;
    if (r->scores) n_max = MIN(n_max, request_out_rows_max(r->engine));
    out->ids = r->prompt.ids + r->prompt_at;
    out->n = piece_rows(r, n_max);
    size_t left = r->prompt.len - r->prompt_at - (size_t)out->n;
    out->wants = left == 0;
    out->n_out = r->scores ? out->n : out->wants;
    out->keep =
        r->leaves_state && (out->wants || ((r->session->len + (size_t)out->n) % OP_BLOCK == 0 && left <= OP_BLOCK));
}

enum tern_status request_rows_run(struct tern_engine *e, struct request_rows *rows, int n, bool show, uint32_t *want,
                                  struct tern_err *err) {
    struct session_rows s[ENGINE_OUT_ROWS_MAX];
    int n_out = 0;
    TERN_ASSERT(n <= ENGINE_OUT_ROWS_MAX);
    *want = 0;
    for (int i = 0; i < n; i++) {
        s[i] = (struct session_rows){rows[i].r->session, rows[i].ids, rows[i].n, rows[i].n_out};
        rows[i].out = n_out;
        if (rows[i].n_out == 0) continue;
        n_out += rows[i].n_out;
        if (*want != PROG_OUT_LOGITS) *want = request_output(rows[i].r);
    }
    return sessions_run(e, s, n, *want, show, err);
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

enum tern_status request_rows_choose(const struct request_rows *rows, uint32_t want, struct tern_err *err) {
    struct tern_request *r = rows->r;
    if (rows->keep) TRY(session_checkpoint(r->session, err));
    if (r->phase == REQUEST_ANSWER) r->usage.n_steps++;
    if (r->phase == REQUEST_PROMPT && r->scores) request_scores_note(rows);
    const int last = rows->out + rows->n_out - 1;
    return rows->wants ? request_choose(r, want, last, (int64_t)r->session->len, err) : TERN_OK;
}

enum tern_status request_finish(struct tern_request *r, enum tern_finish finish, bool stopped, struct tern_err *err) {
    r->phase = REQUEST_FINISHED;
    r->finish = finish;
    if (r->session && r->leaves_state) {
        mutex_lock(r->engine->mutex);
        enum tern_status status = session_checkpoint(r->session, err);
        mutex_unlock(r->engine->mutex);
        TRY(status);
    }
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

enum tern_status request_rows_take(const struct request_rows *rows, struct tern_err *err) {
    struct tern_request *r = rows->r;
    if (r->phase == REQUEST_PROMPT) {
        r->prompt_at += (size_t)rows->n;
        r->prompt_ns = clock_ns() - r->began_ns;
        if (rows->wants) r->phase = REQUEST_ANSWER;
    }
    if (!rows->wants) return TERN_OK;
    bool ended, stopped;
    enum tern_finish finish;
    TRY(request_take(r, &ended, &finish, &stopped, err));
    return ended ? request_finish(r, finish, stopped, err) : TERN_OK;
}

void request_done(struct tern_request *r, struct tern_event *event) {
    uint64_t now = clock_ns();
    r->usage.n_answer = (int64_t)r->answer.len;
    r->usage.prompt_s = (double)r->prompt_ns * 1e-9;
    r->usage.answer_s = r->first_ns ? (double)(now - r->first_ns) * 1e-9 : 0;
    r->usage.first_token_s = r->first_ns ? (double)(r->first_ns - r->created_ns) * 1e-9 : 0;
    request_draft_usage(r);
    length_record(r->engine, &r->usage);
    *event = (struct tern_event){.type = TERN_EVENT_DONE, .finish = r->finish, .usage = r->usage};
    r->phase = REQUEST_TOLD;
    request_let_go(r);
}

void request_failed(struct tern_request *r) {
    r->phase = REQUEST_TOLD;
    r->next = -1;
    request_let_go(r);
}
