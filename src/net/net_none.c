// The server of a program built without libmicrohttpd: it says so. Local requests (net_local.c) work all the same.
#include "base/base.h"
#include "net/net_int.h"

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
void net_wire_resume(struct net_connection *c) {
    (void)c;
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
