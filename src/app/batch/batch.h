// Private to the files batch_*.c: `tern batch`, many requests from a file, answered here or by workers on many
// machines.
//
// The model in the reader's head:
//   request   one line of the input, as in OpenAI's batches: {"custom_id", "method": "POST", "url", "body"}. Its digest
//             is of url and body: the same custom_id with the same digest is the same request, however often it comes.
//   result    one line of the output, {"id": "batch_req_<digest>", "custom_id", "response", "error"}. A line that ends
//             with '\n' in the output file, or a field of the results in Redis, is final: there is never another one.
//   runner    answers requests by the routes of `tern serve`, in this process.
//   output    the file of results: appended and synced; a torn last line (the power went) is cut off when opened again.
//   queue     a batch in Redis: what was submitted, what workers hold, what they answered.
#pragma once
#include "app/app.h"
#include "net/net.h"

#define BATCH_ID_BYTES_MAX 512
#define BATCH_URL_BYTES_MAX 128
#define BATCH_LINES_MAX (1 << 24)
#define BATCH_LINE_BYTES_MAX (64u << 20) // of a request, and of a result
#define BATCH_DIGEST_LEN 24              // hexadecimal digits
#define BATCH_TRIES_MAX 3                // of a request that failed by no fault of its own
#define BATCH_DELIVERIES_MAX 8           // workers that may die with a request before it is given up
#define BATCH_TAG_MAX 48                 // bytes of a queue's name for one delivery

struct batch_request {
    char custom_id[BATCH_ID_BYTES_MAX + 1];
    char url[BATCH_URL_BYTES_MAX + 1];
    char digest[BATCH_DIGEST_LEN + 1];
    struct str body; // a view of the line
};
// Reads and checks one line: the parts, the route, that no stream is asked for.
enum tern_status batch_request_read(struct batch_request *out, struct str line, struct tern_err *err);
struct batch_result {
    char custom_id[BATCH_ID_BYTES_MAX + 1];
    char digest[BATCH_DIGEST_LEN + 1];
    int status; // HTTP's
};
enum tern_status batch_result_read(struct batch_result *out, struct str line, struct tern_err *err);
// One line with its '\n'. body: JSON; line ends in it become blanks.
void batch_result_put(struct buf *out, const char *custom_id, const char *digest, int status, const char *request_id,
                      struct str body);
// The same for a request that got no answer; message is told as an error of the server.
void batch_failure_put(struct buf *out, const char *custom_id, const char *digest, const char *message);

// -------------------------------------------------------------------------------------------------------------- table

struct batch_entry {
    const char *custom_id;
    char digest[BATCH_DIGEST_LEN + 1];
    bool is_done;
    size_t offset, len; // of the line in its file
};
// By custom_id.
struct batch_table {
    struct arena arena;
    struct batch_entry *entries; // in the order of adding
    uint32_t *slots;             // entry + 1; 0: free
    uint32_t n, cap, n_slots;
    uint64_t seed;
};
void batch_table_init(struct batch_table *t);
void batch_table_release(struct batch_table *t);
struct batch_entry *batch_table_find(const struct batch_table *t, const char *custom_id);
// *was_there: it was, with the same digest; with another one: TERN_MISMATCH. *out may move with the next add.
enum tern_status batch_table_add(struct batch_table *t, const char *custom_id, const char *digest,
                                 struct batch_entry **out, bool *was_there, struct tern_err *err);

// --------------------------------------------------------------------------------------------------------- the input

struct batch_input {
    struct os_map map;
    struct batch_table table; // one entry for each request; the same one twice is one
    uint64_t n_lines;
};
// Reads and checks all of it; a fault names file and line.
enum tern_status batch_input_open(struct batch_input *in, const char *path, struct tern_err *err);
void batch_input_close(struct batch_input *in);
struct str batch_input_line(const struct batch_input *in, const struct batch_entry *e);

// --------------------------------------------------------------------------------------------------------- the output

struct batch_output {
    const char *path;
    int lock;                 // -1: none
    struct batch_table table; // of the results in it
    uint64_t n_errors;        // of these, with a status other than 200
};
// Created when absent. One process at a time; results of another run stay.
enum tern_status batch_output_open(struct batch_output *o, const char *path, struct tern_err *err);
// Whole lines; durable when it returns.
enum tern_status batch_output_append(struct batch_output *o, struct str lines, struct tern_err *err);
void batch_output_close(struct batch_output *o);

// ---------------------------------------------------------------------------------------------------------- the runner

struct batch_job {
    char custom_id[BATCH_ID_BYTES_MAX + 1];
    char url[BATCH_URL_BYTES_MAX + 1];
    char digest[BATCH_DIGEST_LEN + 1];
    char tag[BATCH_TAG_MAX];
    struct buf body;
    int n_tries;
    // once it is over
    int status;
    char request_id[40];
    struct buf answer;
    int64_t n_prompt, n_answer; // tokens
    struct batch_job *next;
};
// NULL: no memory.
struct batch_job *batch_job_create(const struct batch_request *r, const char *tag);
void batch_job_free(struct batch_job *j);
void batch_job_put(struct buf *out, const struct batch_job *j); // its result line

struct batch_opts {
    const char *output, *redis, *name;
    struct opt_texts aliases;
    int n_streams;
    float lease_s;
    bool json, once, no_wait;
    struct model_opts model;
    struct sample_opts sample;
};

struct batch_runner;
// Opens model and service; the exit code after telling, else 0.
int batch_runner_open(const struct command *c, struct batch_runner **out, const struct batch_opts *o);
void batch_runner_close(struct batch_runner *b);     // ends what is at work
int batch_runner_room(const struct batch_runner *b); // requests that may be begun
int batch_runner_busy(const struct batch_runner *b); // requests begun and not taken
// The runner owns j until it is taken; when it fails the caller does.
enum tern_status batch_runner_submit(struct batch_runner *b, struct batch_job *j, struct tern_err *err);
// One that is over, in any order; waits up to so many seconds. NULL: none.
struct batch_job *batch_runner_take(struct batch_runner *b, double wait_s);
void batch_runner_cancel(struct batch_runner *b); // from here on all end soon, unanswered (503)
// Should a job that came back be submitted again?
bool batch_job_again(const struct batch_job *j);

// ----------------------------------------------------------------------------------------------------------- the queue

struct batch_queue;
struct batch_counts {
    int64_t n_submitted, n_results, n_waiting, n_held, n_workers; // held: with a worker
};
// A batch named `name` in the Redis server at url.
enum tern_status batch_queue_open(struct batch_queue **out, const char *url, const char *name, struct tern_err *err);
void batch_queue_close(struct batch_queue *q);
// For so long a lost connection is made anew before a call fails; < 0: for ever, until a signal comes.
void batch_queue_patience(struct batch_queue *q, double seconds);
// *is_new: it was not there. TERN_MISMATCH: another request has its custom_id.
enum tern_status batch_queue_add(struct batch_queue *q, const struct batch_request *r, struct str line, bool *is_new,
                                 struct tern_err *err);
// Requests for this worker, at most max: new ones, then (stale_ms > 0 instead) those that a worker has held for so long
// without a sign of life. fn gets a request's tag, line, and how often it was given out.
typedef void (*batch_on_request)(void *arg, const char *tag, struct str line, int64_t n_deliveries);
enum tern_status batch_queue_take(struct batch_queue *q, int max, int64_t block_ms, batch_on_request fn, void *arg,
                                  struct tern_err *err);
enum tern_status batch_queue_claim(struct batch_queue *q, int max, int64_t stale_ms, batch_on_request fn, void *arg,
                                   struct tern_err *err);
// A sign of life for what is held; with idle_ms > 0 instead it counts as held for so long, so that others take it.
enum tern_status batch_queue_beat(struct batch_queue *q, const char *const *tags, int n, int64_t idle_ms,
                                  struct tern_err *err);
// The request's result, unless it has one, and its end in the queue.
enum tern_status batch_queue_finish(struct batch_queue *q, const char *tag, const char *custom_id, struct str line,
                                    struct tern_err *err);
// Results from the from-th on, in the order in which they came; at most max. *n: how many.
enum tern_status batch_queue_results(struct batch_queue *q, int64_t from, int max,
                                     enum tern_status (*fn)(void *arg, struct str line, struct tern_err *err),
                                     void *arg, int *n, struct tern_err *err);
enum tern_status batch_queue_count(struct batch_queue *q, struct batch_counts *out, struct tern_err *err);
enum tern_status batch_queue_leave(struct batch_queue *q, struct tern_err *err); // this worker takes no more
enum tern_status batch_queue_remove(struct batch_queue *q, struct tern_err *err);

// ------------------------------------------------------------------------------------------------------------- actions

int batch_run(const struct command *c, const struct batch_opts *o, const char *input);
int batch_submit(const struct command *c, const struct batch_opts *o, const char *input);
int batch_work(const struct command *c, const struct batch_opts *o);
int batch_collect(const struct command *c, const struct batch_opts *o);
int batch_status(const struct command *c, const struct batch_opts *o);
int batch_remove(const struct command *c, const struct batch_opts *o);
