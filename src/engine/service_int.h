// Private to engine/: many answers at once.
//
//   service.c        the thread and its life
//   service_queue.c  who waits and who is next
//   service_job.c    a job from its owner's side
//   service_prefix.c between sessions and the prefix cache
//   service_step.c   those at work, together, step by step
//   service_park.c   a batch job gives up its place
//   service_state.c  what the prefix cache has of a text, as a named state
//   service_draft.c  steps in which streams have drafted rows
//   service_pace.c   how many prompt rows go beside running streams
//
// Threads: jobs are submitted, cancelled and freed by any; one thread of the service alone works on requests and
// sessions. The service's mutex guards the queue, tenants and counters; each job's own guards what passes to its
// reader. Neither is held while the other is taken, nor during a step.
#pragma once
#include "request_int.h"
#include "prefix_int.h"

// How long a step with prompt rows beside running streams may take: long enough that the prompt keeps its share of the
// rate that it has alone, and no longer, since every stream waits for it; never so long that a stream waits longer
// than SERVICE_WAIT_NS_MAX for its token, less what comes on top of the step (costs that rise, telling of tokens).
#define SERVICE_PROMPT_SHARE 0.62
#define SERVICE_STEP_NS_MIN 40000000
#define SERVICE_WAIT_NS_MAX 150000000
#define SERVICE_STEP_NS_MAX (SERVICE_WAIT_NS_MAX - 30000000)
#define SERVICE_BATCH_TURN 4          // every so many-th job that begins is a batch one, if one waits
#define SERVICE_PARK_RAM (256u << 20) // default of park_ram_max
#define SERVICE_KEEP_NS 1000000000ull // a batch job that began in its turn is not parked for so long
#define SERVICE_ROWS_FIRST 64         // prompt rows of a step before any cost is known
#define SERVICE_ROWS_MIN 16
#define SERVICE_SCORE_ROWS 16 // rows of scored prompts beside others, in a step: their softmaxes take processor time

struct service_tenant {
    struct service_tenant *next;
    char *name;
    size_t len;
    int n_jobs;      // waiting and running
    uint64_t served; // rows run for it, from where the others were when it came
};

struct tern_job {
    struct tern_service *service;
    struct tern_request *request; // from its begin to its end the service thread's
    struct service_tenant *tenant;
    enum tern_priority priority;
    uint64_t deadline_ns;          // 0: none
    struct tern_session *session;  // of those of the service; NULL: waits or is done
    struct service_parked *parked; // its state, while it waits to go on; the thread's
    uint64_t keeps_until_ns;       // until then it is not parked; the thread's

    // The prefix cache's side: keys of the prompt's blocks; then how far the session's text has been put there.
    struct prefix_key *keys;
    size_t n_keys;
    struct prefix_key root, last; // before the first block; of the last one known
    size_t n_known;               // blocks of the session's text that the cache has or has let go
    bool cache_off;               // there was no room
    struct prefix_task stage;

    // Under the service's mutex.
    struct tern_job *next, *prev; // in the queue
    bool staging;                 // its blocks are being read from disk: it is not yet to begin
    enum tern_job_phase phase;
    int n_refs; // its owner's and the service's

    struct os_mutex *mutex; // guards what follows
    struct os_cond *changed;
    struct event_queue inbox; // to be taken by the reader; what comes while it is full stays in the request's queue
    bool ended;               // the service thread is done with it
    enum tern_status status;  // of the end
    struct tern_err err;
    struct tern_event done;
    void (*notify)(void *arg);
    void *notify_arg;

    // The reader's.
    struct event_queue out;
    bool told;
};

// What steps cost, smoothed, in ns.
struct service_pace {
    double plain[TERN_STREAMS_MAX + 1]; // of a step of so many streams without prompt rows; 0: not known
    double row;                         // of one prompt row more; 0: not known
};
// Prompt rows that fit beside so many streams.
int service_pace_rows(const struct service_pace *p, int n_streams, int n_max);
void service_pace_learn(struct service_pace *p, int n_streams, int n_prompt_rows, uint64_t ns);

// Drafts in steps of several streams: what may still be lost to drafting, and the step at hand.
struct service_draft {
    int n_told; // streams of the step at hand that were told how to draft
    struct share_seq seqs[TERN_STREAMS_MAX];
    float model[TERN_STREAMS_MAX][TREE_NODES_MAX], ngrams[TERN_STREAMS_MAX][TREE_NODES_MAX];
    struct tern_request *requests[TERN_STREAMS_MAX];
};

struct tern_service {
    struct tern_engine *engine;
    struct tern_service_options options;
    struct os_thread *thread;
    struct tern_session *sessions[TERN_STREAMS_MAX]; // free ones
    int n_free;
    struct tern_job *running[TERN_STREAMS_MAX]; // in the order in which they began; the thread's
    int n_running;
    uint64_t parked_bytes;
    uint64_t step_end_ns; // of the last step
    struct service_pace pace;
    struct service_draft draft;
    struct prefix_cache *prefix; // NULL: none
    struct prefix_held *held;    // [blocks of a session], while one begins

    struct os_mutex *mutex; // guards what follows
    struct os_cond *work;   // something to do
    struct tern_job *first, *last;
    int n_waiting, n_staging; // staging: of those that wait
    struct service_tenant *tenants;
    uint64_t served_floor; // a new tenant's served
    uint64_t n_begun;
    int n_jobs;    // not yet freed
    int n_at_work; // as running, for others to see
    bool closing, draining;
    struct tern_service_info info;
};

// Under the service's mutex.
enum tern_status service_queue_put(struct tern_service *s, struct tern_job *j, struct tern_str tenant,
                                   struct tern_err *err);
// Who is next; NULL: nobody waits. batch: a batch job may be. *turn: it is one that goes before interactive jobs.
struct tern_job *service_queue_take(struct tern_service *s, bool batch, bool *turn);
bool service_queue_has_interactive(const struct tern_service *s);
void service_queue_push(struct tern_service *s, struct tern_job *j);   // in front, whatever the limits
void service_queue_remove(struct tern_service *s, struct tern_job *j); // one that waits
// Drops the service's part of a job. True: the owner has freed it already, and job_destroy is due without the mutex.
bool service_job_drop(struct tern_service *s, struct tern_job *j);
// Without any mutex.
void job_destroy(struct tern_job *j);
bool job_is_over(const struct tern_job *j, uint64_t now); // cancelled, or beyond its deadline

// Of a held block: convolution rows behind its middle; the drafter's part.
static inline uint8_t *service_held_middle(const struct tern_service *s, const struct prefix_held *h) {
    const struct state_layout *l = &plan_pool(s->engine->plan)->layout;
    return h->data + l->block_bytes + l->slot_bytes;
}
static inline uint8_t *service_held_draft(const struct tern_service *s, const struct prefix_held *h) {
    return service_held_middle(s, h) + plan_pool(s->engine->plan)->layout.slot_bytes;
}

// The prefix cache. open: as the options say, which may be none. keys: of a prompt, in the submitting thread; stage
// before it is queued: true when reading has begun (service_staged ends it). The rest on the service's thread.
enum tern_status service_prefix_open(struct tern_service *s, struct tern_err *err);
void service_prefix_close(struct tern_service *s);
enum tern_status service_prefix_keys(struct tern_service *s, struct tern_job *j, struct tern_str tenant,
                                     struct tern_err *err);
bool service_prefix_stage(struct tern_service *s, struct tern_job *j);
// What the cache has of the job's prompt becomes the state of its session.
enum tern_status service_prefix_restore(struct tern_service *s, struct tern_job *j, struct tern_err *err);
// Does a piece of n rows behind len positions end blocks before its end?
bool service_prefix_wants_rows(const struct tern_service *s, size_t len, int n);
// After a run, under the engine's mutex: blocks that the session's last n rows completed go to the cache. row: the
// first of them in the step, which showed its rows; -1: it did not.
void service_prefix_store(struct tern_service *s, struct tern_job *j, int n, int row);

// On the service's thread.
bool service_park(struct tern_service *s); // true: a session is free now
enum tern_status service_unpark(struct tern_service *s, struct tern_job *j, struct tern_err *err);
void service_parked_free(struct tern_service *s, struct tern_job *j);
void service_running_remove(struct tern_service *s, struct tern_job *j); // with its session, which is free then
void service_begin(struct tern_service *s);                              // waiting jobs get the free sessions
void service_step(struct tern_service *s); // one step of those at work; ends the jobs that end
// What a step did for a job goes to its reader, or it ends.
void service_took(struct tern_service *s, struct tern_job *j, bool was_prompt, enum tern_status status,
                  const struct tern_err *err);
// A step in which streams draft. False: none does, and a plain step is due; learn: what that took, if it had no prompt
// rows.
bool service_draft_run(struct tern_service *s);
void service_draft_plain(struct tern_service *s, int n_streams, uint64_t ns);
// The end of a job: its last event or its failure.
void service_end(struct tern_service *s, struct tern_job *j, enum tern_status status, const struct tern_err *err);
void job_deliver(struct tern_job *j); // events to its reader
