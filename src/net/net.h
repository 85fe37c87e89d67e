// The face of net/: an HTTP/1.1 server and a Redis client behind structs of ours; what carries them (libmicrohttpd,
// hiredis) is not seen outside.
//
// The model in the reader's head:
//   server   listens, reads requests, times them, runs the handler. A thread of the library's own moves the bytes, one
//            watches clocks and clients that leave, a few workers run the handler: thousands of idle streams cost no
//            thread each.
//   request  one request on its way. The handler sees its head first (to refuse before the body is read), then the
//            whole of it on a worker; it answers at once, or makes itself a task and is run again whenever it is poked.
//   answer   a body in one piece, or a stream whose pieces are sent as they are put.
// A client that closes or half-closes its side is gone: its request is dropped, whether it waits, works or streams.
//
// Threads: everything about one request is called by one thread at a time, but poke, which any thread may call. Nothing
// a client sends is trusted or kept beyond the limits below. Only the program links net/, the library does not.
#pragma once
#include "base/base.h"

#define NET_HEADERS_MAX 64             // header lines of a request
#define NET_HEAD_BYTES_MAX (32u << 10) // memory for its head
#define NET_PATH_BYTES_MAX 2048
#define NET_ANSWER_HEADERS_MAX 8
#define NET_WORKERS_MAX 64
#define NET_LOCAL_STREAM_MAX (256u << 10) // bytes of a stream that nobody reads
#define NET_UNSENT_MAX (64u << 10) // bytes of a TCP connection that the system holds beyond what the client may be sent

struct net_server;
struct net_task;

struct net_request {
    struct str method, path; // path: decoded, without the query
    struct str query;        // as sent, after '?'
    struct str remote;       // address text: "127.0.0.1", "unix"
    struct str body;         // whole; empty before handle()
    uint64_t number;         // counts from 1
    uint64_t begin_ns;       // the request line came
    bool is_head;            // HEAD: answered as GET, the body left out
    size_t body_max;         // head() may lower or raise it; starts as the server's
    void *user;              // the handler's own
    struct net_task *task;   // net's own
};
// The value of a header (names in any case), of the first line with it; data NULL when absent.
struct str net_request_header(const struct net_request *r, const char *name);
// A parameter of the query, undecoded; data NULL when absent.
struct str net_request_query(const struct net_request *r, const char *name);
int64_t net_request_body_length(const struct net_request *r); // as announced; -1: not announced, chunked

struct net_header {
    const char *name, *value;
};
struct net_answer {
    int status;
    const char *type; // content type; NULL: none
    struct str body;  // copied
    const struct net_header *headers;
    int n_headers;
    bool close; // the connection ends after it
};
// Answers; the first answer counts, later ones do nothing.
void net_answer(struct net_request *r, const struct net_answer *a);

// Answers by a stream: status and headers go out with the first piece. ping (may be NULL; not copied) is sent whenever
// nothing else was for a while.
void net_stream_begin(struct net_request *r, const struct net_answer *a, const char *ping);
// False: the client is gone, or does not read (over stream_max bytes wait): then end the request's work.
bool net_stream_put(struct net_request *r, struct str piece);
size_t net_stream_room(const struct net_request *r); // bytes that still fit; the task is poked when more do
void net_stream_end(struct net_request *r);

// Called in handle(): the answer comes later. run is called on a worker after each net_request_poke() until the request
// is answered, its stream ended or its client gone; then release, once.
void net_request_defer(struct net_request *r, void (*run)(struct net_request *r, void *arg),
                       void (*release)(struct net_request *r, void *arg), void *arg);
void net_request_poke(struct net_request *r); // any thread, until release has returned
// Called in run: pokes within the next so many seconds are taken together, at their end. So a fast producer costs a few
// wake-ups, not one for each piece. A client that leaves is told at once all the same.
void net_request_rest(struct net_request *r, double seconds);

struct net_outcome {
    int status;        // 499: the client left before an answer; 0: nothing was answered
    uint64_t n_bytes;  // of the answer's body, handed to the system
    bool gone;         // the client left, or was cut off
    const char *cause; // why it was cut off, or NULL
};
struct net_handler {
    void *arg;
    // The head is there; called on the server's own thread, so it must not wait. Refuses by net_answer().
    void (*head)(void *arg, struct net_request *r);
    // The whole request is there; on a worker. Must answer, begin a stream or defer.
    void (*handle)(void *arg, struct net_request *r);
    // Writes the body of an error that net itself found (bad framing, too large, too slow …); *type: its content type.
    // Calls nothing of net but the accessors. The request may have no method and path yet.
    void (*fault)(void *arg, const struct net_request *r, int status, const char *message, struct buf *out,
                  const char **type);
    // The last call about a request: log it, free r->user.
    void (*end)(void *arg, struct net_request *r, const struct net_outcome *outcome);
};

struct net_options {
    const char *host;      // "127.0.0.1", "::1", "0.0.0.0"; NULL: no TCP
    int port;              // 0: any free one
    const char *unix_path; // a Unix socket, mode 0600; NULL: none
    int n_workers;
    int n_connections_max, n_address_max; // in all, and of one address that is not this machine
    size_t body_max;                      // bytes
    size_t stream_max; // bytes put and not yet taken by the system, of one stream; the system takes NET_UNSENT_MAX
    double head_s, body_gap_s, body_s; // a head must be there within, between two reads of a body, for all of it
    double idle_s;                     // a connection without a request
    double stall_s;                    // a client that takes nothing of its answer
    double ping_s;                     // between signs of life on a silent stream
};
void net_options_default(struct net_options *o);
// handler is copied. TERN_UNSUPPORTED: this program was built without libmicrohttpd.
enum tern_status net_server_open(struct net_server **out, const struct net_options *o,
                                 const struct net_handler *handler, struct tern_err *err);
int net_server_port(const struct net_server *s); // 0: no TCP
// No new connections are taken and answers close theirs; what is at work goes on.
void net_server_quiesce(struct net_server *s);
struct net_counts {
    int n_connections, n_requests, n_streams; // now; requests: begun and not ended
    uint64_t n_connections_all, n_requests_all, n_refused;
};
void net_server_counts(struct net_server *s, struct net_counts *out);
// Cuts what is left, joins all threads.
void net_server_close(struct net_server *s);
// Requests that the program makes itself, of a server that nobody can connect to: each goes through handle() to end(),
// as a client's does; head() is not called. net_local_answer, called in end(), is the body of its answer (a stream has
// none). Works in programs without libmicrohttpd too.
enum tern_status net_local_open(struct net_server **out, int n_workers, const struct net_handler *handler,
                                struct tern_err *err);
// path without query; user becomes r->user. Any thread; method, path and body are copied.
enum tern_status net_local_request(struct net_server *s, const char *method, const char *path, struct str body,
                                   void *user, struct tern_err *err);
struct str net_local_answer(const struct net_request *r);
void net_local_close(struct net_server *s); // waits for the requests at work
// "libmicrohttpd 0.9.75", or "none".
const char *net_library(void);

// For programs that end cleanly. After watch, SIGTERM and SIGINT are only counted; wait returns how many there were, as
// soon as there are more than `seen` or the time is over.
void net_terminate_watch(void);
int net_terminate_wait(int seen, double timeout_s);
// Tells systemd "READY=1" or "STOPPING=1"; false when it does not listen ($NOTIFY_SOCKET), which is no fault.
bool net_notify(const char *state);

// -------------------------------------------------------------------------------------------------------------- Redis

// One connection to a Redis server, one thread at a time. Its address: redis://[[user]:password@]host[:port][/db]
// (parts may be %-escaped) or unix:///path.
struct net_redis;
struct net_reply;
#define NET_REDIS_WORDS_MAX 1032
#define NET_REDIS_PATIENCE_S 20 // for an answer, beyond the time that a command may wait itself
// TERN_IO: no connection; TERN_UNSUPPORTED: built without hiredis, or an address that needs TLS.
enum tern_status net_redis_open(struct net_redis **out, const char *url, struct tern_err *err);
void net_redis_close(struct net_redis *r);
// reply: borrowed until the next command. wait_s: how long the command itself may block the server's answer. TERN_IO:
// the connection broke or the server is not ready; the next command connects anew (whether this one was carried out is
// not known). TERN_NOT_FOUND: NOGROUP, TERN_MISMATCH: BUSYGROUP, TERN_NO_SPACE: its memory is full, TERN_UNSUPPORTED:
// any other refusal.
enum tern_status net_redis_command(struct net_redis *r, const struct str *words, int n, double wait_s,
                                   const struct net_reply **reply, struct tern_err *err);
struct str net_reply_text(const struct net_reply *r);                        // data NULL: nil, or no text
int64_t net_reply_int(const struct net_reply *r);                            // 0: no integer
size_t net_reply_count(const struct net_reply *r);                           // items of an array; 0: none
const struct net_reply *net_reply_item(const struct net_reply *r, size_t i); // NULL: there is none
const char *net_redis_library(void);                                         // "hiredis 0.14.1", or "none"
