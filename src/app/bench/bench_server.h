// Private to app/: servers under load (`tern bench --server`).
//
//   bench_server.c          what is measured, in which order; results
//   bench_server_peer.c     the servers: ours and llama-server, started for a measurement and ended behind it
//   bench_server_load.c     the clients: a thread for each stream, which notes when pieces of text come
//   bench_server_session.c  a conversation with tools of many turns, with edits, branches and answers made anew
#pragma once
#include "app/app.h"

#include <stdatomic.h>

#define SERVER_POINTS_MAX 16
#define SERVER_STREAMS_MAX 64
#define SERVER_ROUNDS_MAX 64
#define SERVER_TURNS_MAX 60
#define SERVER_ANSWER_MAX (16u << 20) // bytes of an answer

struct server_bench_opts {
    int points[SERVER_POINTS_MAX]; // streams, rising
    int n_points;
    const char *model_path;
    const char *beside; // llama-server's program; NULL: ours alone
    const char *csv;    // a line for each measurement is added here; NULL: none
    int n_threads;
    int n_prompt, n_answer, n_arrival, n_shared, n_own; // tokens
    int repeats;
    int n_turns; // of the session; 0: none
    uint64_t seed;
    bool json;
};
int bench_server_run(const struct command *c, const struct server_bench_opts *o);

// ------------------------------------------------------------------------------------------------------------ servers

struct server_peer {
    const char *name;
    bool is_ours;
    char url[64], out_path[512];
    struct os_child child;
};
// Starts a server of n_streams places of n_ctx positions each and waits until it is ready.
enum tern_status server_peer_open(struct server_peer *p, const struct server_bench_opts *o, bool ours, int n_streams,
                                  int n_ctx, struct tern_err *err);
void server_peer_close(struct server_peer *p);

// ------------------------------------------------------------------------------------------------------------ clients

struct load_stream {
    char url[128];
    struct buf body, line;
    struct os_thread *thread;
    atomic_bool stop;  // leave as soon as a piece comes
    atomic_int n_told; // pieces of text so far
    // The thread's until it is joined; what times says is there once n_told says so.
    uint64_t begin_ns, end_ns;
    uint64_t *times;               // [n_max] of pieces
    int n_max, n_tokens, n_prompt; // tokens as the server counts them; 0: it did not say
    enum tern_status status;
    struct tern_err err;
};
// Asks /v1/completions for n_answer tokens behind these ids, streamed. begin starts the thread; end joins it and gives
// its status: TERN_OK also for one that was stopped.
enum tern_status load_begin(struct load_stream *s, const struct server_peer *p, const int32_t *ids, int n_ids,
                            int n_answer, struct tern_err *err);
enum tern_status load_end(struct load_stream *s, struct tern_err *err);
void load_release(struct load_stream *s);
// A request that is answered whole: *seconds from asking to the end of the answer, which goes to out.
enum tern_status load_ask(const struct server_peer *p, const char *path, struct str body, struct buf *out,
                          double *seconds, struct tern_err *err);
bool load_number(struct str json, const char *key, double *out); // the first number of that key, wherever it stands

// ------------------------------------------------------------------------------------------------------------ session

struct session_result {
    int n_requests;
    double n_prompt, n_cached;       // tokens of all but the first request
    double first_s, median_s, p95_s; // time to an answer's first token: of the first request, of the others
};
enum tern_status server_session_run(struct session_result *out, const struct server_peer *p, int n_turns,
                                    struct tern_err *err);
