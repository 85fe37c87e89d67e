// The Redis client of a program built without hiredis: it says so.
#include "base/base.h"
#include "net/net.h"

const char *net_redis_library(void) { return "none"; }

enum tern_status net_redis_open(struct net_redis **out, const char *url, struct tern_err *err) {
    (void)out, (void)url;
    return err_set(err, TERN_UNSUPPORTED,
                   "this tern was built without a Redis client: install hiredis (Debian: libhiredis-dev) and build it "
                   "again");
}
void net_redis_close(struct net_redis *r) { (void)r; }

// Nothing of this can be reached without a connection.
enum tern_status net_redis_command(struct net_redis *r, const struct str *words, int n, double wait_s,
                                   const struct net_reply **out, struct tern_err *err) {
    (void)r, (void)words, (void)n, (void)wait_s, (void)out, (void)err;
    TERN_BUG("there is no Redis client in this program");
}
struct str net_reply_text(const struct net_reply *r) {
    (void)r;
    return (struct str){0};
}
int64_t net_reply_int(const struct net_reply *r) {
    (void)r;
    return 0;
}
size_t net_reply_count(const struct net_reply *r) {
    (void)r;
    return 0;
}
const struct net_reply *net_reply_item(const struct net_reply *r, size_t i) {
    (void)r, (void)i;
    return NULL;
}
