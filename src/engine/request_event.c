// From chosen tokens to events: detokenizer (whole characters), stop strings (nothing of one is shown), answer parser
// (text, reasoning, calls), and the queue, since one token can make several events or none.
#include "base/base.h"
#include "request_int.h"

static bool sink_event(void *arg, const struct answer_event *ev) {
    struct tern_request *r = arg;
    r->queue.mark = (struct event_mark){.n_prompt = r->usage.n_prompt,
                                        .n_rounds = r->usage.n_rounds,
                                        .n_drafted = r->usage.n_drafted,
                                        .n_accepted = r->usage.n_accepted,
                                        .first_ns = r->first_ns ? r->first_ns - r->created_ns : 0,
                                        .plan = r->usage.plan,
                                        .n_cached = r->usage.n_cached,
                                        .n_answer = (int64_t)r->answer.len,
                                        .prompt_ns = r->prompt_ns,
                                        .answer_ns = r->first_ns ? clock_ns() - r->first_ns : 0};
    if (ev->type == ANSWER_CALL) return event_queue_put_call(&r->queue, ev->name, ev->arguments);
    if (ev->text.len == 0) return true;
    return event_queue_put_text(&r->queue, ev->type == ANSWER_TEXT ? TERN_EVENT_TEXT : TERN_EVENT_REASONING, ev->text);
}

static enum tern_status parser_put(struct tern_request *r, struct str piece, bool is_control, struct tern_err *err) {
    if (piece.len == 0) return TERN_OK;
    TRY(answer_put(r->parser, piece, is_control, sink_event, r, err));
    return r->queue.out_of_room
               ? err_set(err, TERN_LIMIT, "the answer grew over %u bytes or %d events without being read",
                         REQUEST_TEXT_MAX, REQUEST_EVENTS_MAX)
               : TERN_OK;
}

// Control tokens, and the added tokens that some models use as markers though they count as text (Qwen3's <tool_call>).
static bool token_is_marker(const struct tokenizer *t, int32_t id) {
    if (tokenizer_is_control(t, id)) return true;
    struct str bytes = tokenizer_token_bytes(t, id);
    return answer_is_marker(bytes) && tokenizer_find(t, bytes) == id;
}

static enum tern_status token_tell(struct tern_request *r, int32_t id, bool *stopped, struct tern_err *err) {
    const struct tokenizer *t = r->engine->tokenizer;
    event_queue_rewind(&r->queue);
    buf_clear(&r->passed);
    if (token_is_marker(t, id)) {
        // Text before a control token is complete: no stop string and no character reaches across it.
        buf_clear(&r->piece);
        detok_flush(&r->detok, &r->piece);
        if (r->draft.mode == TERN_DRAFT_AUTO) request_draft_marker(r, tokenizer_token_bytes(t, id));
        *stopped = stop_matcher_put(&r->stops, buf_str(&r->piece), &r->passed);
        if (!*stopped) stop_matcher_flush(&r->stops, &r->passed);
        TRY(parser_put(r, buf_str(&r->passed), false, err));
        return *stopped ? TERN_OK : parser_put(r, tokenizer_token_bytes(t, id), true, err);
    }
    buf_clear(&r->piece);
    if (!detok_put(&r->detok, id, &r->piece)) return err_set(err, TERN_NO_MEMORY, "no memory for the answer's text");
    if (r->draft.mode == TERN_DRAFT_AUTO) width_text_put(&r->draft.text, r->piece.data, r->piece.len);
    *stopped = stop_matcher_put(&r->stops, buf_str(&r->piece), &r->passed);
    if (r->passed.failed) return err_set(err, TERN_NO_MEMORY, "no memory for the answer's text");
    return parser_put(r, buf_str(&r->passed), false, err);
}

enum tern_status request_tell_token(struct tern_request *r, int32_t id, bool *stopped, struct tern_err *err) {
    *stopped = false;
    if (!r->engine->tokenizer) return TERN_OK;
    bool thought = answer_thinks(r->parser);
    enum tern_status status = token_tell(r, id, stopped, err);
    r->usage.n_reasoning += thought || answer_thinks(r->parser);
    return status;
}

enum tern_status request_tell_end(struct tern_request *r, bool stopped, struct tern_err *err) {
    if (!r->engine->tokenizer) return TERN_OK;
    event_queue_rewind(&r->queue);
    if (!stopped) {
        buf_clear(&r->piece);
        buf_clear(&r->passed);
        detok_flush(&r->detok, &r->piece);
        if (!stop_matcher_put(&r->stops, buf_str(&r->piece), &r->passed)) stop_matcher_flush(&r->stops, &r->passed);
        TRY(parser_put(r, buf_str(&r->passed), false, err));
    }
    return answer_finish(r->parser, sink_event, r, err);
}

enum tern_status request_note_logprobs(struct tern_request *r, int32_t id, struct tern_err *err) {
    size_t per = (size_t)r->n_logprobs + 1;
    struct tern_logprob *at = event_queue_logprobs(&r->queue, per);
    if (!at) return err_set(err, TERN_NO_MEMORY, "no memory for log-probabilities");
    int32_t ids[TERN_TOP_LOGPROBS_MAX];
    float logprobs[TERN_TOP_LOGPROBS_MAX];
    int n = sampler_top(r->sampler, r->n_logprobs, ids, logprobs);
    at[0] = (struct tern_logprob){.id = id, .logprob = sampler_logprob(r->sampler, id)};
    for (int i = 0; i < r->n_logprobs; i++)
        at[i + 1] =
            i < n ? (struct tern_logprob){.id = ids[i], .logprob = logprobs[i]} : (struct tern_logprob){.id = -1};
    for (size_t i = 0; i < per && r->engine->tokenizer; i++)
        if (at[i].id >= 0 && at[i].id < tokenizer_size(r->engine->tokenizer)) {
            struct str bytes = tokenizer_token_bytes(r->engine->tokenizer, at[i].id);
            at[i].bytes = (struct tern_str){bytes.data, bytes.len};
        }
    return TERN_OK;
}
