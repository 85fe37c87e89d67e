// Creating a request: every range is checked and the prompt becomes ids (request_open, which needs no session); then
// what a session already holds of it is kept (request_attach). Whatever can be refused is refused before the session
// changes.
#include "base/base.h"
#include "request_int.h"

#include <math.h>

void tern_request_options_default(struct tern_request_options *o) {
    *o = (struct tern_request_options){
        .reuse_prefix = true, .n_max = -1, .top_p = 1, .repeat_penalty = 1, .repeat_last = 64, .n_logprobs = -1};
}

static enum tern_status options_check(const struct tern_engine *e, const struct tern_request_options *o,
                                      struct tern_err *err) {
    int n_prompts = (o->n_prompt_ids > 0) + (o->messages_json.len > 0) + (o->prompt.len > 0);
    if (n_prompts > 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "give one of prompt, prompt_ids and messages_json, not %d",
                       n_prompts);
    if (o->append && o->messages_json.len > 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "append continues tokens as they are and cannot take messages");
    if (o->n_max < -1 || o->n_max == 0)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "n_max must be at least 1, or -1 for the rest of the context; not %d", o->n_max);
    if (o->n_stop < 0 || o->n_stop > TERN_STOP_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "at most %d stop strings, not %d", TERN_STOP_MAX, o->n_stop);
    if (o->n_logprobs < -1 || o->n_logprobs > TERN_TOP_LOGPROBS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "n_logprobs must be -1 (none) to %d, not %d", TERN_TOP_LOGPROBS_MAX,
                       o->n_logprobs);
    if (o->prompt_logprobs && o->append)
        return err_set(err, TERN_INVALID_ARGUMENT, "prompt_logprobs scores a whole prompt; append has only its end");
    if (!e->tokenizer && o->n_stop > 0) return err_set(err, TERN_UNSUPPORTED, "stop strings need a tokenizer");
    return TERN_OK;
}

enum tern_status request_fits(const struct tern_request *r, size_t n_prompt, struct tern_err *err) {
    size_t n_ctx = (size_t)r->engine->n_ctx;
    if (n_prompt < n_ctx) return TERN_OK;
    return err_set(err, TERN_CONTEXT_FULL,
                   "the prompt has %zu tokens, but the context has %zu positions and one is needed for the answer; "
                   "shorten the prompt or open the model with a larger context",
                   n_prompt, n_ctx);
}

// Decides which tokens of the session stay and leaves in r->prompt those that must run (at least one).
static enum tern_status state_reuse(struct tern_request *r, bool reuse, bool append, struct tern_err *err) {
    struct tern_session *s = r->session;
    struct id_list *p = &r->prompt;
    size_t keep = 0, pending = 0;
    if (append) {
        keep = s->len;
        pending = s->pending >= 0;
        if (p->len + pending == 0)
            return err_set(err, TERN_INVALID_ARGUMENT,
                           "nothing to continue: the session is empty and so is the prompt");
    } else {
        if (p->len == 0) return err_set(err, TERN_INVALID_ARGUMENT, "the prompt is empty");
        size_t same = 0;
        if (reuse)
            while (same < s->len && same < p->len && s->ids[same] == p->ids[same]) same++;
        keep = session_reachable(s, MIN(same, p->len - 1)); // the last token runs again: its logits are needed
    }
    size_t total = append ? keep + pending + p->len : p->len;
    TRY(request_fits(r, total, err));
    r->usage.n_prompt = (int64_t)total;
    r->usage.n_cached = (int64_t)keep;
    size_t room = (size_t)r->engine->n_ctx - total;
    r->n_max = r->n_max < 0 || (size_t)r->n_max > room ? (int)room : r->n_max;
    if (append && pending) {
        if (!id_list_push(p, s->pending)) return err_set(err, TERN_NO_MEMORY, "no memory for the prompt");
        memmove(p->ids + 1, p->ids, (p->len - 1) * sizeof *p->ids);
        p->ids[0] = s->pending;
    } else if (!append) {
        memmove(p->ids, p->ids + keep, (p->len - keep) * sizeof *p->ids);
        p->len -= keep;
    }
    mutex_lock(r->engine->mutex);
    enum tern_status status = session_restore(s, keep, err);
    mutex_unlock(r->engine->mutex);
    return status;
}

// What sampling needs is checked and kept; its memory, some bytes for every id, comes with the session.
static enum tern_status sampling_open(struct tern_request *r, const struct tern_request_options *o,
                                      struct tern_err *err) {
    const struct model_hyper *h = &r->engine->model->hyper;
    r->sampling = (struct sampler_params){.temperature = o->temperature,
                                          .top_k = o->top_k,
                                          .top_p = o->top_p,
                                          .min_p = o->min_p,
                                          .repeat_penalty = o->repeat_penalty,
                                          .repeat_last = o->repeat_last,
                                          .presence_penalty = o->presence_penalty,
                                          .frequency_penalty = o->frequency_penalty,
                                          .seed = o->seed,
                                          .bias = o->logit_bias,
                                          .n_bias = o->n_logit_bias};
    enum tern_status status = sampler_params_check(&r->sampling, h->n_vocab, err);
    if (status != TERN_OK) return status;
    r->bias = o->n_logit_bias > 0 ? mem_dup(o->logit_bias, (size_t)o->n_logit_bias * sizeof *o->logit_bias) : NULL;
    if (o->n_logit_bias > 0 && !r->bias) return err_set(err, TERN_NO_MEMORY, "no memory for logit_bias");
    r->sampling.bias = r->bias;
    if (!o->constraint) return TERN_OK;
    r->constraint = *o->constraint;
    r->mask = mem_calloc(((size_t)h->n_vocab + 31) / 32, sizeof *r->mask);
    r->constraint_state = o->constraint->state_clone(o->constraint->state);
    if (!r->mask || !r->constraint_state) return err_set(err, TERN_NO_MEMORY, "no memory for the constraint");
    return TERN_OK;
}

static enum tern_status output_open(struct tern_request *r, const struct tern_request_options *o, bool reasoning_open,
                                    struct tern_err *err) {
    buf_init(&r->piece, REQUEST_TEXT_MAX);
    buf_init(&r->passed, REQUEST_TEXT_MAX);
    event_queue_init(&r->queue);
    TRY(stop_matcher_init(&r->stops, o->stop, o->n_stop, err));
    if (!r->engine->tokenizer) return TERN_OK;
    detok_init(&r->detok, r->engine->tokenizer, false);
    bool chat = o->messages_json.len > 0, tools = o->parse_tools || o->tools_json.len > 0;
    struct answer_options ao = {.style = tools ? r->engine->style : ANSWER_PLAIN,
                                .reasoning = chat,
                                .reasoning_open = reasoning_open,
                                .tools_json = {o->tools_json.data, o->tools_json.len}};
    return answer_create(&r->parser, &ao, err);
}

enum tern_status request_open(struct tern_request **out, struct tern_engine *e, const struct tern_request_options *o,
                              struct tern_err *err) {
    TRY(options_check(e, o, err));
    struct tern_request *r = mem_calloc(1, sizeof *r);
    if (!r) return err_set(err, TERN_NO_MEMORY, "no memory for a request");
    r->engine = e;
    r->created_ns = r->began_ns = clock_ns();
    r->ignore_eos = o->ignore_eos;
    r->n_logprobs = o->n_logprobs;
    r->n_max = o->n_max;
    r->next = -1;
    r->leaves_state = true;
    bool reasoning_open = false;
    enum tern_status status;
    TRY_GOTO(prompt_build(e, o, &r->prompt, &reasoning_open, err), fail);
    TRY_GOTO(request_scores_open(r, o, err), fail);
    TRY_GOTO(sampling_open(r, o, err), fail);
    TRY_GOTO(output_open(r, o, reasoning_open, err), fail);
    TRY_GOTO(request_draft_init(r, o, err), fail);
    r->usage.joules = (double)NAN;
    r->usage.load_s = (double)e->load_ns * 1e-9;
    r->usage.plan = plan_name(e->plan);
    *out = r;
    return TERN_OK;
fail:
    tern_request_free(r);
    return status;
}

enum tern_status request_attach(struct tern_request *r, struct tern_session *s, bool reuse, bool append,
                                struct tern_err *err) {
    const struct model_hyper *h = &r->engine->model->hyper;
    r->session = s;
    TRY(sampler_create(&r->sampler, &r->sampling, h->n_vocab, h->n_vocab_used, err));
    TRY(request_draft_attach(r, err));
    if (append) { // penalties look back at the whole text
        sampler_prompt(r->sampler, s->ids, s->len);
        if (s->pending >= 0) sampler_prompt(r->sampler, &s->pending, 1);
    }
    sampler_prompt(r->sampler, r->prompt.ids, r->prompt.len);
    TRY(state_reuse(r, reuse && !r->scores, append, err));
    s->busy = r->holds_session = true;
    return TERN_OK;
}

enum tern_status tern_request_create(struct tern_request **out, struct tern_session *s,
                                     const struct tern_request_options *o, struct tern_err *err) {
    if (s->busy) return err_set(err, TERN_INVALID_ARGUMENT, "the session is busy with another request");
    struct tern_request *r = NULL;
    TRY(request_open(&r, s->engine, o, err));
    enum tern_status status = request_attach(r, s, o->reuse_prefix, o->append, err);
    if (status != TERN_OK) {
        tern_request_free(r);
        return status;
    }
    *out = r;
    return TERN_OK;
}

void request_let_go(struct tern_request *r) {
    if (!r->holds_session) return;
    r->holds_session = r->session->busy = false;
    r->session->pending = r->next;
}

void request_detach(struct tern_request *r) {
    request_let_go(r);
    r->session = NULL;
}

enum tern_status request_reattach(struct tern_request *r, struct tern_session *s, struct tern_err *err) {
    r->session = s;
    TRY(request_draft_attach(r, err));
    s->busy = r->holds_session = true;
    return TERN_OK;
}

void tern_request_free(struct tern_request *r) {
    if (!r) return;
    request_let_go(r);
    if (r->constraint_state) r->constraint.state_free(r->constraint_state);
    mem_free(r->mask);
    sampler_free(r->sampler);
    mem_free(r->bias);
    answer_free(r->parser);
    stop_matcher_release(&r->stops);
    id_list_release(&r->prompt);
    mem_free(r->scores);
    id_list_release(&r->answer);
    buf_release(&r->piece);
    buf_release(&r->passed);
    event_queue_release(&r->queue);
    mem_free(r);
}

void tern_request_cancel(struct tern_request *r) { atomic_store_explicit(&r->cancelled, true, memory_order_relaxed); }

const int32_t *tern_request_ids(const struct tern_request *r, size_t *n) {
    *n = r->answer.len;
    return r->answer.ids;
}

const char *tern_finish_text(enum tern_finish finish) {
    static const char *const text[] = {[TERN_FINISH_STOP] = "stop",
                                       [TERN_FINISH_LENGTH] = "length",
                                       [TERN_FINISH_TOOL_CALLS] = "tool_calls",
                                       [TERN_FINISH_CANCELLED] = "cancelled"};
    return (unsigned)finish < ARRAY_LEN(text) ? text[finish] : "unknown";
}
