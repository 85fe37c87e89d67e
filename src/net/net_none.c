// The server of a program built without libmicrohttpd: it says so.
#include "base/base.h"
#include "net/net.h"

void net_options_default(struct net_options *o) { *o = (struct net_options){.host = "127.0.0.1"}; }
const char *net_library(void) { return "none"; }

enum tern_status net_server_open(struct net_server **out, const struct net_options *o,
                                 const struct net_handler *handler, struct tern_err *err) {
    (void)out, (void)o, (void)handler;
    return err_set(err, TERN_UNSUPPORTED,
                   "this tern was built without an HTTP server: install libmicrohttpd (Debian: libmicrohttpd-dev) and "
                   "build it again");
}

// Without a server none of these can be reached.
#define NEVER TERN_BUG("there is no HTTP server in this program")
struct str net_request_header(const struct net_request *r, const char *name) {
    (void)r, (void)name;
    NEVER;
}
struct str net_request_query(const struct net_request *r, const char *name) {
    (void)r, (void)name;
    NEVER;
}
int64_t net_request_body_length(const struct net_request *r) {
    (void)r;
    NEVER;
}
void net_answer(struct net_request *r, const struct net_answer *a) {
    (void)r, (void)a;
    NEVER;
}
void net_stream_begin(struct net_request *r, const struct net_answer *a, const char *ping) {
    (void)r, (void)a, (void)ping;
    NEVER;
}
bool net_stream_put(struct net_request *r, struct str piece) {
    (void)r, (void)piece;
    NEVER;
}
size_t net_stream_room(const struct net_request *r) {
    (void)r;
    NEVER;
}
void net_stream_end(struct net_request *r) {
    (void)r;
    NEVER;
}
void net_request_defer(struct net_request *r, void (*run)(struct net_request *r, void *arg),
                       void (*release)(struct net_request *r, void *arg), void *arg) {
    (void)r, (void)run, (void)release, (void)arg;
    NEVER;
}
void net_request_poke(struct net_request *r) {
    (void)r;
    NEVER;
}
void net_request_rest(struct net_request *r, double seconds) {
    (void)r, (void)seconds;
    NEVER;
}
int net_server_port(const struct net_server *s) {
    (void)s;
    NEVER;
}
void net_server_quiesce(struct net_server *s) {
    (void)s;
    NEVER;
}
void net_server_counts(struct net_server *s, struct net_counts *out) {
    (void)s, (void)out;
    NEVER;
}
void net_server_close(struct net_server *s) { (void)s; }
