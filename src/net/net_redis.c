// A Redis client behind functions of ours: one connection, one command at a time, over hiredis. A connection that broke
// is dropped at once and made anew by the next command, so a caller that can repeat its command survives a server that
// went away and came back.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "net/net.h"
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <sys/time.h>

#define CONNECT_S 5
#define NET_REDIS_TEXT_MAX 256 // of user, password, host and path

struct net_redis {
    redisContext *wire; // NULL: to be made
    redisReply *reply;  // of the last command
    char host[NET_REDIS_TEXT_MAX], user[NET_REDIS_TEXT_MAX], password[NET_REDIS_TEXT_MAX];
    bool is_unix;
    int port, db;
};

const char *net_redis_library(void) {
    static char text[32];
    if (!text[0]) snprintf(text, sizeof text, "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    return text;
}

// ---------------------------------------------------------------------------------------------------------- addresses

static bool text_take(char out[NET_REDIS_TEXT_MAX], struct str s) {
    if (s.len >= NET_REDIS_TEXT_MAX) return false;
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        if (c == '%') { // two hexadecimal digits
            int v = 0;
            for (size_t k = i + 1; k <= i + 2; k++) {
                char h = k < s.len ? s.data[k] : 0;
                int d = h >= '0' && h <= '9'   ? h - '0'
                        : h >= 'a' && h <= 'f' ? h - 'a' + 10
                        : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                               : -1;
                if (d < 0) return false;
                v = v * 16 + d;
            }
            if (v == 0) return false;
            c = (char)v;
            i += 2;
        }
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static struct str cut(struct str *rest, const char *at) { // what stands before `at`, which is dropped; all without it
    size_t i = str_find(*rest, str_from(at), 0);
    struct str head = {rest->data, i == (size_t)-1 ? rest->len : i};
    size_t used = i == (size_t)-1 ? rest->len : i + strlen(at);
    *rest = (struct str){rest->data + used, rest->len - used};
    return head;
}

static bool number_take(int *out, struct str s, int hi) {
    int64_t v;
    if (!str_to_i64(s, &v) || v < 0 || v > hi) return false;
    *out = (int)v;
    return true;
}

// redis://[[user]:password@]host[:port][/db], or redis+unix:///path or unix:///path
static bool url_read(struct net_redis *r, struct str url) {
    struct str scheme = cut(&url, "://");
    r->port = 6379;
    if (str_eqz(scheme, "unix") || str_eqz(scheme, "redis+unix")) {
        r->is_unix = true;
        return url.len > 0 && text_take(r->host, url);
    }
    if (!str_eqz(scheme, "redis")) return false;
    if (str_find(url, STR("@"), 0) != (size_t)-1) {
        struct str login = cut(&url, "@"), user = cut(&login, ":");
        if (!text_take(r->user, user) || !text_take(r->password, login)) return false;
    }
    struct str place = cut(&url, "/");
    if (url.len > 0 && !number_take(&r->db, url, 1 << 20)) return false;
    if (place.len > 0 && place.data[0] == '[') { // IPv6
        place = (struct str){place.data + 1, place.len - 1};
        struct str host = cut(&place, "]");
        if (!text_take(r->host, host)) return false;
        if (place.len > 0 && place.data[0] != ':') return false;
        return place.len == 0 || number_take(&r->port, (struct str){place.data + 1, place.len - 1}, 65535);
    }
    struct str host = cut(&place, ":");
    return host.len > 0 && text_take(r->host, host) && (place.len == 0 || number_take(&r->port, place, 65535));
}

// --------------------------------------------------------------------------------------------------------- connection

static void wire_drop(struct net_redis *r) {
    if (r->reply) freeReplyObject(r->reply);
    r->reply = NULL;
    if (r->wire) redisFree(r->wire);
    r->wire = NULL;
}

static enum tern_status wire_say(struct net_redis *r, const char **words, int n, struct tern_err *err) {
    redisReply *reply = redisCommandArgv(r->wire, n, words, NULL);
    enum tern_status status = TERN_OK;
    if (!reply)
        status = err_set(err, TERN_IO, "Redis at %s: %s", r->host, r->wire->errstr);
    else if (reply->type == REDIS_REPLY_ERROR)
        status = err_set(err, TERN_INVALID_ARGUMENT, "Redis at %s refuses %s: %s", r->host, words[0], reply->str);
    if (reply) freeReplyObject(reply);
    return status;
}

static enum tern_status wire_make(struct net_redis *r, struct tern_err *err) {
    const struct timeval wait = {.tv_sec = CONNECT_S};
    r->wire = r->is_unix ? redisConnectUnixWithTimeout(r->host, wait) : redisConnectWithTimeout(r->host, r->port, wait);
    enum tern_status status = TERN_OK;
    char db[16];
    snprintf(db, sizeof db, "%d", r->db);
    const char *login[] = {"AUTH", r->user[0] ? r->user : r->password, r->password}, *choose[] = {"SELECT", db};
    if (!r->wire)
        status = err_set(err, TERN_NO_MEMORY, "no memory for a connection to Redis");
    else if (r->wire->err)
        status = err_set(err, TERN_IO, "no connection to Redis at %s%s%.0d: %s", r->host, r->is_unix ? "" : " port ",
                         r->is_unix ? 0 : r->port, r->wire->errstr);
    else if (!r->is_unix)
        redisEnableKeepAlive(r->wire);
    if (status == TERN_OK && (r->user[0] || r->password[0])) status = wire_say(r, login, r->user[0] ? 3 : 2, err);
    if (status == TERN_OK && r->db > 0) status = wire_say(r, choose, 2, err);
    if (status != TERN_OK) wire_drop(r);
    return status;
}

enum tern_status net_redis_open(struct net_redis **out, const char *url, struct tern_err *err) {
    struct net_redis *r = mem_calloc(1, sizeof *r);
    if (!r) return err_set(err, TERN_NO_MEMORY, "no memory for a connection to Redis");
    enum tern_status status = TERN_OK;
    if (str_starts(str_from(url), STR("rediss://")))
        status = err_set(err, TERN_UNSUPPORTED,
                         "Redis over TLS (rediss://) is not spoken here; use a tunnel to it and redis://");
    else if (!url_read(r, str_from(url)))
        status =
            err_set(err, TERN_INVALID_ARGUMENT,
                    "no address of a Redis server: redis://[user:password@]host[:port][/db] or unix:///path expected");
    if (status == TERN_OK) status = wire_make(r, err);
    if (status == TERN_OK)
        *out = r;
    else
        net_redis_close(r);
    return status;
}

void net_redis_close(struct net_redis *r) {
    if (!r) return;
    wire_drop(r);
    mem_free(r);
}

enum tern_status net_redis_command(struct net_redis *r, const struct str *words, int n, double wait_s,
                                   const struct net_reply **out, struct tern_err *err) {
    const char *data[NET_REDIS_WORDS_MAX];
    size_t lens[NET_REDIS_WORDS_MAX];
    TERN_ASSERT(n > 0 && n <= NET_REDIS_WORDS_MAX);
    for (int i = 0; i < n; i++) {
        data[i] = words[i].data ? words[i].data : "";
        lens[i] = words[i].len;
    }
    if (!r->wire) TRY(wire_make(r, err));
    const struct timeval wait = {.tv_sec = (long)(wait_s + NET_REDIS_PATIENCE_S)};
    redisSetTimeout(r->wire, wait);
    redisReply *before = r->reply; // words may lie in it
    r->reply = redisCommandArgv(r->wire, n, data, lens);
    if (before) freeReplyObject(before);
    if (!r->reply) {
        enum tern_status status = err_set(err, TERN_IO, "Redis at %s: %s", r->host, r->wire->errstr);
        wire_drop(r);
        return status;
    }
    if (r->reply->type == REDIS_REPLY_ERROR) {
        bool later = strncmp(r->reply->str, "LOADING", 7) == 0 || strncmp(r->reply->str, "BUSY ", 5) == 0;
        enum tern_status code = strncmp(r->reply->str, "NOGROUP", 7) == 0     ? TERN_NOT_FOUND
                                : strncmp(r->reply->str, "BUSYGROUP", 9) == 0 ? TERN_MISMATCH
                                : strncmp(r->reply->str, "OOM", 3) == 0       ? TERN_NO_SPACE
                                : later                                       ? TERN_IO
                                                                              : TERN_UNSUPPORTED;
        return err_set(err, code, "Redis at %s: %s", r->host, r->reply->str);
    }
    *out = (const struct net_reply *)r->reply;
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------------------- replies

static const redisReply *of(const struct net_reply *r) { return (const redisReply *)r; }

struct str net_reply_text(const struct net_reply *r) {
    if (!r || (of(r)->type != REDIS_REPLY_STRING && of(r)->type != REDIS_REPLY_STATUS)) return (struct str){0};
    return (struct str){of(r)->str, of(r)->len};
}
int64_t net_reply_int(const struct net_reply *r) {
    return r && of(r)->type == REDIS_REPLY_INTEGER ? (int64_t)of(r)->integer : 0;
}
size_t net_reply_count(const struct net_reply *r) {
    return r && of(r)->type == REDIS_REPLY_ARRAY ? of(r)->elements : 0;
}
const struct net_reply *net_reply_item(const struct net_reply *r, size_t i) {
    return i < net_reply_count(r) ? (const struct net_reply *)of(r)->element[i] : NULL;
}
