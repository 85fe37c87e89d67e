// Events of an answer between the one who makes them and the one who pulls them. Texts and log-probabilities lie in two
// buffers of the queue, so that an event costs no allocation of its own.
#include "base/base.h"
#include "request_int.h"

#include <math.h>

#define EVENTS_FIRST 16   // capacity to begin with: most queues never hold more
#define EVENTS_BEHIND 128 // so many unpulled: the reader is slow, and texts are joined. More than a round's tokens

void event_queue_init(struct event_queue *q) {
    *q = (struct event_queue){0};
    buf_init(&q->text, REQUEST_TEXT_MAX);
}

void event_queue_release(struct event_queue *q) {
    buf_release(&q->text);
    mem_free(q->events);
    mem_free(q->logprobs);
    *q = (struct event_queue){0};
}

static bool no_room(struct event_queue *q) {
    q->out_of_room = true;
    return false;
}

static bool push(struct event_queue *q, struct queued_event ev) {
    if (q->n == q->cap) {
        int cap = q->cap ? MIN(2 * q->cap, REQUEST_EVENTS_MAX) : EVENTS_FIRST;
        struct queued_event *grown = cap > q->cap ? mem_realloc(q->events, (size_t)cap * sizeof *grown) : NULL;
        if (!grown) return no_room(q);
        q->events = grown;
        q->cap = cap;
    }
    q->events[q->n++] = ev;
    return true;
}

bool event_queue_put_text(struct event_queue *q, enum tern_event_type type, struct str text) {
    size_t at = q->text.len, n_logprobs = q->n_logprobs - q->logprobs_taken;
    if (!buf_put(&q->text, text.data, text.len)) return no_room(q);
    struct queued_event *last = q->n - q->at >= EVENTS_BEHIND ? &q->events[q->n - 1] : NULL;
    if (last && last->type == type && last->text_at + last->text_len == at) {
        last->text_len += text.len;
        last->mark = q->mark;
        if (last->logprobs_len == 0) last->logprobs_at = q->logprobs_taken;
        last->logprobs_len += n_logprobs;
    } else if (!push(q, (struct queued_event){.type = type,
                                              .mark = q->mark,
                                              .text_at = at,
                                              .text_len = text.len,
                                              .logprobs_at = q->logprobs_taken,
                                              .logprobs_len = n_logprobs})) {
        return false;
    }
    q->logprobs_taken = q->n_logprobs;
    return true;
}

bool event_queue_put_call(struct event_queue *q, struct str name, struct str arguments) {
    struct queued_event ev = {
        .type = TERN_EVENT_TOOL_CALL, .mark = q->mark, .text_at = q->text.len, .text_len = arguments.len};
    buf_put(&q->text, arguments.data, arguments.len);
    ev.name_at = q->text.len;
    ev.name_len = name.len;
    buf_put(&q->text, name.data, name.len);
    return q->text.failed ? no_room(q) : push(q, ev);
}

bool event_queue_put_progress(struct event_queue *q, int64_t n_cached, int64_t n_done, int64_t n_total) {
    struct queued_event *last = q->n > q->at ? &q->events[q->n - 1] : NULL;
    if (last && last->type == TERN_EVENT_PROGRESS) {
        last->n_done = n_done;
        return true;
    }
    return push(q, (struct queued_event){
                       .type = TERN_EVENT_PROGRESS, .n_cached = n_cached, .n_done = n_done, .n_total = n_total});
}

struct tern_logprob *event_queue_logprobs(struct event_queue *q, size_t n) {
    if (q->n_logprobs + n > q->logprobs_cap) {
        size_t cap = MAX(2 * q->logprobs_cap, 64 * n);
        struct tern_logprob *grown = mem_realloc(q->logprobs, cap * sizeof *grown);
        if (!grown) return NULL;
        q->logprobs = grown;
        q->logprobs_cap = cap;
    }
    struct tern_logprob *at = q->logprobs + q->n_logprobs;
    q->n_logprobs += n;
    return at;
}

bool event_queue_pop(struct event_queue *q, int n_logprobs_token, struct tern_event *event) {
    if (q->at == q->n) return false;
    const struct queued_event *ev = &q->events[q->at++];
    struct tern_str text = {q->text.data + ev->text_at, ev->text_len};
    *event = (struct tern_event){.type = ev->type, .n_done = ev->n_done, .n_total = ev->n_total};
    event->usage.n_cached = ev->n_cached;
    if (ev->type == TERN_EVENT_PROGRESS) return true;
    event->usage = (struct tern_usage){.n_prompt = ev->mark.n_prompt,
                                       .n_cached = ev->mark.n_cached,
                                       .n_answer = ev->mark.n_answer,
                                       .n_rounds = ev->mark.n_rounds,
                                       .n_drafted = ev->mark.n_drafted,
                                       .n_accepted = ev->mark.n_accepted,
                                       .first_token_s = (double)ev->mark.first_ns * 1e-9,
                                       .plan = ev->mark.plan,
                                       .prompt_s = (double)ev->mark.prompt_ns * 1e-9,
                                       .answer_s = (double)ev->mark.answer_ns * 1e-9,
                                       .joules = NAN};
    if (ev->type == TERN_EVENT_TOOL_CALL) {
        event->tool_arguments = text;
        event->tool_name = (struct tern_str){q->text.data + ev->name_at, ev->name_len};
        return true;
    }
    event->text = text;
    if (ev->logprobs_len > 0) {
        event->logprobs = q->logprobs + ev->logprobs_at;
        event->n_logprobs = (int)ev->logprobs_len;
        event->n_logprobs_token = n_logprobs_token;
    }
    return true;
}

void event_queue_rewind(struct event_queue *q) {
    if (q->at < q->n) return;
    q->at = q->n = 0;
    buf_clear(&q->text);
    if (q->logprobs_taken == 0) return;
    memmove(q->logprobs, q->logprobs + q->logprobs_taken, (q->n_logprobs - q->logprobs_taken) * sizeof *q->logprobs);
    q->n_logprobs -= q->logprobs_taken;
    q->logprobs_taken = 0;
}

bool event_queue_move(struct event_queue *to, struct event_queue *from) {
    event_queue_rewind(to);
    TERN_ASSERT(to->n == 0 && to->n_logprobs == 0);
    size_t rest = from->n_logprobs - from->logprobs_taken;
    struct tern_logprob *kept = rest > 0 ? event_queue_logprobs(to, rest) : NULL;
    if (rest > 0 && !kept) return false;
    if (rest > 0) memcpy(kept, from->logprobs + from->logprobs_taken, rest * sizeof *kept);
    from->n_logprobs = from->logprobs_taken;
    struct event_queue full = *from;
    *from = *to;
    *to = full;
    return true;
}
