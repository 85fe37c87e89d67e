// Private to engine/: one answer being made. request.c creates it and decides what of the session's state serves it;
// request_rows.c runs its prompt and its tokens, together with those of others or alone; request_run.c does so until
// there is an event; request_event.c turns tokens into events, which event_queue.c keeps.
#pragma once
#include "engine_int.h"

#include <stdatomic.h>

#define REQUEST_TEXT_MAX (64u << 20) // bytes of answer text waiting to be pulled
#define REQUEST_EVENTS_MAX 1024      // events waiting to be pulled

struct event_mark { // how far the answer was when an event was made
    int64_t n_prompt, n_cached, n_answer, n_rounds, n_drafted, n_accepted;
    uint64_t prompt_ns, answer_ns, first_ns; // first: from create to the first token
    const char *plan;
};
struct queued_event {
    enum tern_event_type type;
    struct event_mark mark;
    size_t text_at, text_len; // into the queue's text
    size_t name_at, name_len;
    size_t logprobs_at, logprobs_len;
    int64_t n_cached, n_done, n_total; // progress
};
// Events waiting to be pulled, with their texts and log-probabilities. One thread at a time.
struct event_queue {
    struct queued_event *events; // [cap], at most REQUEST_EVENTS_MAX
    int n, at, cap;
    struct buf text;
    struct tern_logprob *logprobs;
    size_t n_logprobs, logprobs_cap, logprobs_taken; // gathered; taken: already given to queued events
    bool out_of_room;                                // an event could not be queued
    struct event_mark mark;                          // of the events that are put now
};
void event_queue_init(struct event_queue *q);
void event_queue_release(struct event_queue *q);
// When many events are unpulled, a text becomes part of the one before it, and progress always takes the place of
// unpulled progress: so a slow reader costs the bytes of the answer and no more. False: no room (out_of_room is set).
bool event_queue_put_text(struct event_queue *q, enum tern_event_type type, struct str text);
bool event_queue_put_call(struct event_queue *q, struct str name, struct str arguments);
bool event_queue_put_progress(struct event_queue *q, int64_t n_cached, int64_t n_done, int64_t n_total);
// Room for n more log-probabilities, to be filled by the caller; they go with the next text. NULL: no memory.
struct tern_logprob *event_queue_logprobs(struct event_queue *q, size_t n);
// The next event; false: none is left. Its texts lie in the queue until the next call of any function but pop.
bool event_queue_pop(struct event_queue *q, int n_logprobs_token, struct tern_event *event);
// A queue that was read empty starts over, so that texts do not pile up.
void event_queue_rewind(struct event_queue *q);
// All of from's events into to, which was read empty. Log-probabilities whose text is still to come stay in from.
// False: no memory, and nothing has moved.
bool event_queue_move(struct event_queue *to, struct event_queue *from);
enum request_phase { REQUEST_PROMPT, REQUEST_ANSWER, REQUEST_FINISHED, REQUEST_TOLD };

#define REQUEST_DRAFT_NOTE 256
// Drafting in one request. The tree and path are those of the round in progress.
struct request_draft {
    enum tern_draft mode; // never TERN_DRAFT_DEFAULT
    int max;
    struct tree_noise noise;    // of the sampler
    struct width_text text;     // what the answer is about, for the width controller
    struct draft_round round;   // of `auto`
    struct draft_answer answer; // … how drafts do here
    bool ended, stopped;        // the walk met the answer's end, by a stop string
    enum tern_finish finish;    // … and why
    uint32_t want;              // output of the verify step
    int row;                    // … in which the root has this row
    enum tern_status status;    // of the walk
    struct tern_err *err;       // … borrowed while it runs
    struct token_tree tree;
    struct accept_path path;
    int64_t n_plain;                               // rounds without drafts
    int64_t n_plain_why[WIDTH_PROBE + 1], n_empty; // of these: by the controller, by reason; nothing was proposed
    uint64_t draft_ns, verify_ns, host_ns;
    char note[REQUEST_DRAFT_NOTE];
};

struct request_score { // a token and its log-probability; id -1: none
    int32_t id;
    float logprob;
};

struct tern_request {
    struct tern_session *session;
    struct tern_engine *engine;
    bool holds_session; // the session is busy with this request
    bool leaves_state;  // checkpoints are kept for later requests of the session
    struct tern_constraint constraint;
    void *constraint_state; // NULL: none
    int n_max;              // tokens; set when it has a session
    bool ignore_eos;
    int n_logprobs;
    enum request_phase phase;
    enum tern_finish finish;
    atomic_bool cancelled;

    struct id_list prompt;        // tokens to run, after what the session already holds
    size_t prompt_at;             // of these, done
    struct request_score *scores; // [n_scores][1 + n_logprobs] of the prompt's tokens; NULL: not asked for
    size_t n_scores;
    struct id_list answer;
    int32_t next; // chosen, not yet run; -1: none

    struct sampler_params sampling;
    struct tern_logit_bias *bias; // of these, or NULL
    struct sampler *sampler;      // NULL: no session yet
    uint32_t *mask;               // [(n_vocab + 31) / 32] when constrained
    struct detok detok;
    struct stop_matcher stops;
    struct answer *parser;
    struct buf piece, passed; // scratch: text of one token; text past the stop strings

    struct event_queue queue;

    struct request_draft draft;
    struct tern_usage usage;
    uint64_t created_ns, began_ns, prompt_ns, first_ns; // began: was given a session's time
    uint64_t step_ns;                                   // of the last plain run, without waiting for the engine
};

// A request without a session: what can be refused without one is refused.
enum tern_status request_open(struct tern_request **out, struct tern_engine *e, const struct tern_request_options *o,
                              struct tern_err *err);
// Gives it a session, which is free, and restores what of its state serves. Once per request.
enum tern_status request_attach(struct tern_request *r, struct tern_session *s, bool reuse, bool append,
                                struct tern_err *err);
// The session is free for others, which keep its state; then it goes on in another that has that state.
void request_detach(struct tern_request *r);
enum tern_status request_reattach(struct tern_request *r, struct tern_session *s, struct tern_err *err);
enum tern_status request_fits(const struct tern_request *r, size_t n_prompt, struct tern_err *err);

#define REQUEST_ROWS_GRAIN 8 // pieces of a service's prompts end at multiples of it

// The rows of one request in a step: a piece of its prompt, or the token chosen last. A step may serve many requests:
// next for each, one run for all, then choose and take for each. Run and choose under the engine's mutex, without
// another run between them.
struct request_rows {
    struct tern_request *r;
    const int32_t *ids;
    int n;
    bool wants; // its output gives the next token
    int n_out;  // rows with output: the last one if it wants, all of them where the prompt is scored
    bool keep;  // a checkpoint comes behind it
    int out;    // index of its first output
};
void request_rows_next(struct request_rows *out, struct tern_request *r, int n_max);
// *want: the kind of output that serves all of them. show: as of sessions_run.
enum tern_status request_rows_run(struct tern_engine *e, struct request_rows *rows, int n, bool show, uint32_t *want,
                                  struct tern_err *err);
// Rows that may have output in one step of this engine.
int request_out_rows_max(const struct tern_engine *e);
enum tern_status request_rows_choose(const struct request_rows *rows, uint32_t want, struct tern_err *err);
enum tern_status request_rows_take(const struct request_rows *rows, struct tern_err *err);
// Scores of the prompt (request_score.c): room for them; what the outputs of a piece say of the tokens behind its rows.
enum tern_status request_scores_open(struct tern_request *r, const struct tern_request_options *o,
                                     struct tern_err *err);
void request_scores_note(const struct request_rows *rows);
void request_done(struct tern_request *r, struct tern_event *event); // the last event, and the session is let go
void request_failed(struct tern_request *r);                         // no more events; the session is let go

// Chooses the next token from output out_index of the last run, for position pos: r->next, and the answer grows.
enum tern_status request_choose(struct tern_request *r, uint32_t want, int out_index, int64_t pos,
                                struct tern_err *err);
// Tells the chosen token; *ended: the answer ends with it.
enum tern_status request_take(struct tern_request *r, bool *ended, enum tern_finish *finish, bool *stopped,
                              struct tern_err *err);
enum tern_status request_finish(struct tern_request *r, enum tern_finish finish, bool stopped, struct tern_err *err);
uint32_t request_output(const struct tern_request *r); // enum prog_output that choosing needs
// Mode and limits of this request; refuses what the engine cannot do.
enum tern_status request_draft_init(struct tern_request *r, const struct tern_request_options *o, struct tern_err *err);
enum tern_status request_draft_attach(struct tern_request *r, struct tern_err *err);
// The prompt has run: the drafter sees it.
enum tern_status request_draft_prompt(struct tern_request *r, struct tern_err *err);
// A round of one request alone and of many in one step go the same way. room: most drafted tokens now. place: where it
// is in its text (false: it was told how to draft). propose: draft.tree, from r->next, of this source.
// trees_run: one verify step of many trees, of a root each at least, the walks and the commit. The last two under the
// engine's mutex. Each request's outcome is in its draft: path, ended, status; the result is that of the step.
int request_draft_room(const struct tern_request *r);
bool request_draft_place(struct tern_request *r, int room, struct draft_place *out);
enum tern_status request_draft_propose(struct tern_request *r, enum draft_source source, int budget,
                                       struct tern_err *err);
enum tern_status request_trees_run(struct tern_engine *e, struct tern_request *const *requests, int n,
                                   struct tern_err *err);
// One round of speculation from r->next, told and taken. *ran false: nothing was drafted, and a plain step is due.
enum tern_status request_draft_round(struct tern_request *r, bool *ran, struct tern_err *err);
// A plain step was taken instead, in so much time.
void request_draft_plain(struct tern_request *r, uint64_t step_ns);
void request_draft_marker(struct tern_request *r, struct str bytes); // a control token of the answer
void request_draft_usage(struct tern_request *r);                    // into r->usage

// The session is free for the next request; a token chosen but not yet run stays with it.
void request_let_go(struct tern_request *r);
// Gives one chosen token to detokenizer, stop strings and parser; queues what can be told. *stopped: a stop string
// came.
enum tern_status request_tell_token(struct tern_request *r, int32_t id, bool *stopped, struct tern_err *err);
// The end of the answer: what is held back comes out.
enum tern_status request_tell_end(struct tern_request *r, bool stopped, struct tern_err *err);
enum tern_status request_note_logprobs(struct tern_request *r, int32_t id, struct tern_err *err);
