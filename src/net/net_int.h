// Private to net/: the server's and a request's inside, shared by net_server.c (the library's callbacks), net_request.c
// (what handlers call), net_worker.c (threads that run handlers) and net_watch.c (clocks, clients that leave).
//
// One mutex, server.lock, guards all of it. Functions named _locked want it held; a handler is never called with it.
#pragma once
#include "net/net.h"

#define NET_SPARE 64               // connections over the limit that are still told so
#define NET_SWALLOW_FACTOR 4       // a body over its limit is read on to so many times the limit, to be told so
#define NET_TYPE_MAX 96            // bytes of a content type
#define NET_REMOTE_MAX 64          // bytes of an address
#define NET_WAKE_ROOM_DIVISOR 2    // a stream's task is poked when so large a part of its buffer is free again
#define NET_WRITE_S 120.0          // for the whole of a plain answer
#define NET_BLOCK_BYTES (8u << 10) // moved at once from a stream to the system

struct MHD_Connection;
struct MHD_Daemon;

enum net_phase {
    NET_PHASE_IDLE,   // no request line yet
    NET_PHASE_HEAD,   // reading the head
    NET_PHASE_BODY,   // reading the body
    NET_PHASE_WORK,   // with a worker or a task; suspended in the library, so we watch the client ourselves
    NET_PHASE_STREAM, // answering by a stream
    NET_PHASE_ANSWER, // the answer is on its way
};
struct net_connection {
    struct MHD_Connection *wire;
    int fd, slot;
    enum net_phase phase;
    uint64_t since_ns; // begin of the phase
    uint64_t read_ns;  // last bytes of a body
    uint64_t n_requests;
    int64_t n_taken;       // of a stream: bytes given to the system less those that still wait in its queue
    uint64_t moved_ns;     // … when the client last took some
    uint64_t asked_ns;     // … when the system was last asked
    struct net_task *task; // NULL between requests
    bool is_local, is_refused, is_cut;
    char remote[NET_REMOTE_MAX];
};

enum net_run { NET_RUN_IDLE, NET_RUN_QUEUED, NET_RUN_BUSY, NET_RUN_AGAIN, NET_RUN_OVER };
struct net_task {
    struct net_request r;
    struct net_server *server;
    struct net_connection *connection; // NULL once the library is done with the request
    int refs;                          // one of the library, one of the work
    struct net_task *next;             // in the workers' queue
    enum net_run run_state;
    uint64_t rest_ns; // not run before

    char remote[NET_REMOTE_MAX];
    struct buf head; // path, query, method, then name and value of each header, each 0-terminated
    size_t query_at;
    struct net_header headers[NET_HEADERS_MAX];
    int n_headers;
    int64_t body_length;
    struct buf body;
    uint64_t n_swallowed;
    bool head_taken, is_handed, is_begun;

    bool is_answered; // answer or stream begun
    int status;
    char type[NET_TYPE_MAX];
    struct buf answer;         // body
    struct buf answer_headers; // "name\0value\0…"
    bool answer_close;

    bool is_stream, is_ended, is_suspended, wants_room;
    struct buf out; // put and not yet taken; begins at out_at
    size_t out_at;
    const char *ping;
    uint64_t put_ns, taken_ns;

    bool is_gone;
    const char *cause;
    uint64_t n_bytes;

    void (*run)(struct net_request *r, void *arg);
    void (*release)(struct net_request *r, void *arg);
    void *arg;
};

struct net_server {
    struct net_options o;
    struct net_handler handler;
    char *host, *unix_path;
    struct MHD_Daemon *daemons[2]; // TCP, Unix
    int listen_fds[2];
    int port;
    struct os_mutex *lock;
    struct os_cond *work; // the queue has something, or stopping: workers wait
    struct os_cond
        *no_task; // the last one ended: net_workers_stop waits, which must not eat a signal meant for a worker
    struct net_task *queue_head, *queue_tail;
    struct os_thread *workers[NET_WORKERS_MAX];
    int n_workers;
    struct os_thread *watcher;
    int wake_fds[2]; // a pipe that wakes the watcher
    bool is_stopping, is_closing;
    _Atomic bool is_quiet;         // read by the HTTP library's threads without the lock
    struct net_connection **slots; // [n_slots]; NULL: free
    int n_slots;
    struct net_counts counts;
    uint64_t n_tasks;
};

// net_server.c
void net_wire_resume(struct net_connection *c);
// Writes an answer past the library, for requests that it has not been asked to answer yet, and ends the connection.
void net_fault_send_locked(struct net_connection *c, int status, const char *message);

// net_request.c
struct net_task *net_task_create(struct net_connection *c);
void net_task_unref(struct net_task *t); // takes the lock itself
void net_fault_answer(struct net_task *t, int status, const char *message);
// The client left or is cut off: wakes whoever must know. True: the connection is to be resumed, without the lock.
bool net_task_gone_locked(struct net_task *t, const char *cause);
bool net_task_over_locked(const struct net_task *t);
bool net_task_unsuspend_locked(struct net_task *t); // true: the caller resumes the connection, without the lock
bool net_stream_put_locked(struct net_task *t, struct str piece);

// net_worker.c
enum tern_status net_workers_start(struct net_server *s, struct tern_err *err);
void net_workers_stop(struct net_server *s);
void net_task_queue_locked(struct net_task *t);

// net_watch.c
enum tern_status net_watch_start(struct net_server *s, struct tern_err *err);
void net_watch_stop(struct net_server *s);
void net_watch_wake(struct net_server *s);
