// Private to engine/: one answer being made. request.c creates it and decides what of the session's state serves it;
// request_run.c works: prompt chunks, then token by token; request_event.c turns tokens into events.
#pragma once
#include "engine_int.h"

#include <stdatomic.h>

#define REQUEST_TEXT_MAX (64u << 20) // bytes of answer text waiting to be pulled
#define REQUEST_EVENTS_MAX 1024      // events waiting to be pulled

struct queued_event {
    enum tern_event_type type;
    size_t text_at, text_len; // into request.text
    size_t name_at, name_len;
    size_t logprobs_at, logprobs_len;
};
enum request_phase { REQUEST_PROMPT, REQUEST_ANSWER, REQUEST_FINISHED, REQUEST_TOLD };

struct tern_request {
    struct tern_session *session;
    struct tern_engine *engine;
    bool holds_session; // the session is busy with this request
    struct tern_constraint constraint;
    void *constraint_state; // NULL: none
    int n_max;              // tokens, always set
    bool ignore_eos;
    int n_logprobs;
    enum request_phase phase;
    enum tern_finish finish;
    atomic_bool cancelled;

    struct id_list prompt; // tokens to run, after what the session already holds
    size_t prompt_at;      // of these, done
    struct id_list answer;
    int32_t next; // chosen, not yet run; -1: none

    struct sampler *sampler;
    uint32_t *mask; // [(n_vocab + 31) / 32] when constrained
    struct detok detok;
    struct stop_matcher stops;
    struct answer *parser;
    struct buf piece, passed; // scratch: text of one token; text past the stop strings

    struct queued_event *events; // [REQUEST_EVENTS_MAX]
    int n_events, event_at;
    struct buf text; // of queued events
    struct tern_logprob *logprobs;
    size_t n_logprobs_held, logprobs_cap, logprobs_taken; // gathered; taken: already given to queued events
    bool out_of_room;                                     // an event could not be queued

    struct tern_usage usage;
    uint64_t created_ns, prompt_ns, first_ns;
};

// The session is free for the next request; a token chosen but not yet run stays with it.
void request_let_go(struct tern_request *r);
// Gives one chosen token to detokenizer, stop strings and parser; queues what can be told. *stopped: a stop string
// came.
enum tern_status request_tell_token(struct tern_request *r, int32_t id, bool *stopped, struct tern_err *err);
// The end of the answer: what is held back comes out.
enum tern_status request_tell_end(struct tern_request *r, bool stopped, struct tern_err *err);
bool request_pop_event(struct tern_request *r, struct tern_event *event);
enum tern_status request_note_logprobs(struct tern_request *r, int32_t id, struct tern_err *err);
