// The server over libmicrohttpd: its callbacks, and opening and closing.
//
// The library's own thread reads heads and bodies and moves answers. It polls: with epoll, libmicrohttpd 0.9.75 missed
// the end of a connection that had sent nothing but empty lines, and suspended ones are not polled at all. A request
// that has come whole is suspended in it and goes to the workers; its answer resumes it. A second instance, with a
// thread of its own, serves the Unix socket. What the library is lenient about and can be seen from here is refused
// here: two lengths, a length and chunks, two Hosts, other codings, escapes that hide a zero byte.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "net/net_int.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 512
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 // the program ignores SIGPIPE
#endif

void net_options_default(struct net_options *o) {
    *o = (struct net_options){.host = "127.0.0.1",
                              .n_workers = 4,
                              .n_connections_max = 1024,
                              .n_address_max = 256,
                              .body_max = 16u << 20,
                              .stream_max = 256u << 10,
                              .head_s = 10,
                              .body_gap_s = 10,
                              .body_s = 120,
                              .idle_s = 75,
                              .stall_s = 30,
                              .ping_s = 15};
}

const char *net_library(void) {
    static char text[64];
    if (!text[0]) snprintf(text, sizeof text, "libmicrohttpd %s", MHD_get_version());
    return text;
}

void net_wire_resume(struct net_connection *c) { MHD_resume_connection(c->wire); }

// -------------------------------------------------------------------------------------------------------- connections

static bool address_text(const struct sockaddr *a, char out[NET_REMOTE_MAX]) {
    const void *at = NULL;
    bool local = false;
    snprintf(out, NET_REMOTE_MAX, "unix");
    if (!a || a->sa_family == AF_UNIX) return true;
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)a;
        at = &v4->sin_addr;
        local = (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)a;
        at = &v6->sin6_addr;
        local = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    }
    if (at) inet_ntop(a->sa_family, at, out, NET_REMOTE_MAX);
    return local;
}

static void connection_open(struct net_server *s, struct MHD_Connection *wire, void **context) {
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(wire, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *address = MHD_get_connection_info(wire, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct net_connection *c = mem_calloc(1, sizeof *c);
    *context = c;
    if (!c) return; // its first request is refused
    *c = (struct net_connection){.wire = wire, .fd = fd->connect_fd, .slot = -1, .since_ns = clock_ns()};
    c->is_local = address_text(address ? address->client_addr : NULL, c->remote);
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // fails on a Unix socket, which needs none
#ifdef TCP_NOTSENT_LOWAT // or megabytes for a client that does not read would lie in the system's memory
    unsigned unsent = NET_UNSENT_MAX;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
#endif
    mutex_lock(s->lock);
    int n_same = 0;
    for (int i = 0; i < s->n_slots; i++) {
        if (!s->slots[i] && c->slot < 0) c->slot = i;
        if (s->slots[i] && strcmp(s->slots[i]->remote, c->remote) == 0) n_same++;
    }
    if (c->slot >= 0) s->slots[c->slot] = c;
    c->is_refused = c->slot < 0 || s->counts.n_connections >= s->o.n_connections_max ||
                    (!c->is_local && n_same >= s->o.n_address_max);
    bool first = s->counts.n_connections++ == 0;
    s->counts.n_connections_all++;
    mutex_unlock(s->lock);
    if (c->slot < 0) shutdown(c->fd, SHUT_RDWR);
    if (first) net_watch_wake(s);
}

static void connection_close(struct net_server *s, struct net_connection *c) {
    mutex_lock(s->lock);
    if (c->slot >= 0) s->slots[c->slot] = NULL;
    s->counts.n_connections--;
    mutex_unlock(s->lock);
    mem_free(c);
}

static void on_connection(void *cls, struct MHD_Connection *wire, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        connection_open(cls, wire, context);
    else if (*context)
        connection_close(cls, *context);
}

static struct net_connection *connection_of(struct MHD_Connection *wire) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(wire, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void net_fault_send_locked(struct net_connection *c, int status, const char *message) {
    struct net_server *s = c->task ? c->task->server : NULL;
    if (!s) return;
    struct buf body, out;
    buf_init(&body, NET_HEAD_BYTES_MAX);
    buf_init(&out, NET_HEAD_BYTES_MAX);
    const char *type = "text/plain";
    s->handler.fault(s->handler.arg, &c->task->r, status, message, &body, &type);
    buf_putf(&out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status,
             MHD_get_reason_phrase_for((unsigned)status), type, body.len);
    buf_put(&out, body.data, body.len);
    ssize_t n = out.failed ? 0 : send(c->fd, out.data, out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)n; // who does not read it, misses it
    c->task->status = status;
    c->task->is_answered = c->task->is_ended = true;
    buf_release(&body);
    buf_release(&out);
}

// --------------------------------------------------------------------------------------------------------- the request

static int hex_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// The target as sent into path and query, both at the start of t->head, which still grows: head_copy() sets their
// pointers. False: no origin form, a broken escape or a zero byte.
static bool target_take(struct net_task *t, const char *uri) {
    size_t len = strlen(uri);
    if (len > NET_PATH_BYTES_MAX * 2) return false;
    const char *mark = strchr(uri, '?');
    size_t n_path = mark ? (size_t)(mark - uri) : len;
    bool asterisk = len == 1 && uri[0] == '*';
    if ((uri[0] != '/' && !asterisk) || n_path > NET_PATH_BYTES_MAX) return false;
    for (size_t i = 0; i < n_path; i++) {
        char c = uri[i];
        if (c == '%') {
            int hi = i + 2 < n_path ? hex_of(uri[i + 1]) : -1;
            int lo = hi >= 0 ? hex_of(uri[i + 2]) : -1;
            if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) return false;
            c = (char)(hi * 16 + lo);
            i += 2;
        }
        buf_putc(&t->head, c);
    }
    t->r.path.len = t->head.len;
    buf_putc(&t->head, 0);
    t->query_at = t->head.len;
    if (mark) buf_puts(&t->head, mark + 1);
    t->r.query.len = t->head.len - t->query_at;
    buf_putc(&t->head, 0);
    return !t->head.failed;
}

static void *on_target(void *cls, const char *uri, struct MHD_Connection *wire) {
    struct net_server *s = cls;
    struct net_connection *c = connection_of(wire);
    if (!c) return NULL;
    struct net_task *t = net_task_create(c);
    if (!t) return NULL;
    t->server = s;
    t->r.body_max = s->o.body_max;
    mutex_lock(s->lock);
    t->r.number = ++s->counts.n_requests_all;
    s->counts.n_requests++;
    c->task = t;
    c->phase = NET_PHASE_HEAD;
    c->since_ns = t->r.begin_ns;
    c->n_requests++;
    mutex_unlock(s->lock);
    memcpy(t->remote, c->remote, sizeof t->remote);
    t->r.remote = str_from(t->remote);
    buf_init(&t->body, 0);
    if (!target_take(t, uri)) t->r.path.len = t->r.query.len = 0;
    return t;
}

struct header_walk {
    struct net_task *t;
    size_t name_at[NET_HEADERS_MAX], value_at[NET_HEADERS_MAX];
    int n;
    bool bad; // a name that is no token, a value with control characters
};

// RFC 9110, 5.6.2. The library takes what stands before the colon as it is, blanks too: "Content-Length : 5" would be a
// length to one reader and none to the next.
static bool is_token(const char *s, size_t len) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < len; i++) {
        const char c = s[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && (c == 0 || !strchr(others, c))) return false;
    }
    return len > 0;
}
static bool is_value(const char *s, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (((uint8_t)s[i] < 0x20 && s[i] != '\t') || s[i] == 0x7f) return false;
    return true;
}

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                 const char *value, size_t value_len) {
    struct header_walk *w = cls;
    (void)kind;
    w->bad = w->bad || !name || !is_token(name, name_len) || (value && !is_value(value, value_len));
    if (w->bad) return MHD_YES;
    if (w->n < NET_HEADERS_MAX) {
        w->name_at[w->n] = w->t->head.len;
        buf_put(&w->t->head, name, strlen(name) + 1);
        w->value_at[w->n] = w->t->head.len;
        buf_put(&w->t->head, value ? value : "", (value ? strlen(value) : 0) + 1);
    }
    w->n++;
    return MHD_YES;
}

static int header_count(const struct net_task *t, const char *name) {
    int n = 0;
    struct net_task one = {.n_headers = 1, .r = {.task = &one}};
    for (int i = 0; i < t->n_headers; i++) {
        one.headers[0] = t->headers[i];
        if (net_request_header(&one.r, name).data) n++;
    }
    return n;
}

// Copies the head, and names what is wrong with its framing; NULL: nothing.
static const char *head_copy(struct net_task *t, struct MHD_Connection *wire, const char *method, const char *version,
                             int *status) {
    size_t method_at = t->head.len;
    buf_put(&t->head, method, strlen(method) + 1);
    struct header_walk w = {.t = t};
    MHD_get_connection_values_n(wire, MHD_HEADER_KIND, on_header, &w);
    t->r.path.data = t->head.data; // at its start, whatever came of the rest
    t->r.query.data = t->head.data + t->query_at;
    *status = 400;
    if (w.bad) return "a header has a name or a value that no header may have";
    *status = 431;
    if (w.n > NET_HEADERS_MAX || t->head.failed) return "the request has too many or too long headers";
    for (int i = 0; i < w.n; i++)
        t->headers[i] = (struct net_header){t->head.data + w.name_at[i], t->head.data + w.value_at[i]};
    t->n_headers = w.n;
    t->r.method = str_from(t->head.data + method_at);
    t->r.is_head = str_eqz(t->r.method, "HEAD");
    *status = 400;
    if (t->r.path.len == 0) return "the request's target is no path, or is too long";
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return *status = 505, "HTTP/1.1 is spoken";
    int n_length = header_count(t, "Content-Length"), n_coding = header_count(t, "Transfer-Encoding");
    if (header_count(t, "Host") > 1) return "more than one Host header";
    if (n_length > 1 || n_coding > 1 || (n_length && n_coding))
        return "the request has two lengths (Content-Length, Transfer-Encoding)";
    struct str coding = net_request_header(&t->r, "Transfer-Encoding");
    if (n_coding && !str_eqz(coding, "chunked")) return *status = 501, "only the transfer coding 'chunked' is known";
    struct str length = net_request_header(&t->r, "Content-Length");
    if (n_length && (!str_to_i64(length, &t->body_length) || t->body_length < 0 || length.data[0] == '-'))
        return t->body_length = -1, "Content-Length is no number";
    if (!n_length && !n_coding) t->body_length = 0;
    return NULL;
}

static ssize_t on_read(void *cls, uint64_t pos, char *out, size_t max) {
    struct net_task *t = cls;
    struct net_server *s = t->server;
    (void)pos;
    ssize_t rc = 0;
    mutex_lock(s->lock);
    size_t n = MIN(t->out.len - t->out_at, max);
    if (t->is_gone) {
        rc = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        memcpy(out, t->out.data + t->out_at, n);
        t->out_at += n;
        t->n_bytes += n;
        t->taken_ns = clock_ns();
        if (t->out_at == t->out.len) t->out_at = t->out.len = 0;
        if (t->wants_room && t->out.len - t->out_at < s->o.stream_max / NET_WAKE_ROOM_DIVISOR) {
            t->wants_room = false;
            net_task_queue_locked(t);
        }
        rc = (ssize_t)n;
    } else if (t->is_ended) {
        rc = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (t->connection) {
        MHD_suspend_connection(t->connection->wire);
        t->is_suspended = true;
    }
    mutex_unlock(s->lock);
    return rc;
}

// Gives the answer to the library.
static enum MHD_Result answer_wire(struct net_task *t, struct MHD_Connection *wire) {
    struct MHD_Response *response =
        t->is_stream ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, NET_BLOCK_BYTES, on_read, t, NULL)
                     : MHD_create_response_from_buffer(t->answer.len, t->answer.len ? t->answer.data : "",
                                                       MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    if (t->type[0]) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, t->type);
    for (size_t i = 0; i < t->answer_headers.len;) {
        const char *name = t->answer_headers.data + i, *value = name + strlen(name) + 1;
        MHD_add_response_header(response, name, value);
        i += strlen(name) + strlen(value) + 2;
    }
    if (t->answer_close || t->server->is_quiet) MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (!t->is_stream) t->n_bytes = t->answer.len;
    enum MHD_Result rc = MHD_queue_response(wire, (unsigned)t->status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result head_take(struct net_task *t, struct MHD_Connection *wire, const char *method,
                                 const char *version) {
    struct net_server *s = t->server;
    struct net_connection *c = t->connection;
    int status = 400;
    const char *fault = head_copy(t, wire, method, version, &status);
    t->head_taken = true;
    mutex_lock(s->lock);
    bool closing = s->is_closing, refused = c->is_refused;
    if (refused) s->counts.n_refused++;
    c->phase = NET_PHASE_BODY;
    c->since_ns = c->read_ns = clock_ns();
    mutex_unlock(s->lock);
    if (fault) {
        net_fault_answer(t, status, fault);
    } else if (closing || refused) {
        net_fault_answer(t, 503, closing ? "the server is stopping" : "too many connections; try again");
    } else {
        s->handler.head(s->handler.arg, &t->r);
        if (!t->is_answered && t->body_length >= 0 && (uint64_t)t->body_length > t->r.body_max) {
            char text[96];
            snprintf(text, sizeof text, "the body has %lld bytes; at most %zu are read", (long long)t->body_length,
                     t->r.body_max);
            net_fault_answer(t, 413, text);
        }
    }
    t->body.cap_max = t->r.body_max;
    // An answer at this point ends the connection, since a body may follow; without one it waits for the next call.
    return t->is_answered && t->body_length != 0 ? answer_wire(t, wire) : MHD_YES;
}

static enum MHD_Result body_take(struct net_task *t, const char *data, size_t *len) {
    struct net_connection *c = t->connection;
    mutex_lock(t->server->lock);
    c->read_ns = clock_ns();
    t->n_swallowed += *len;
    bool over = t->n_swallowed > t->r.body_max;
    bool far_over = t->n_swallowed / NET_SWALLOW_FACTOR > t->r.body_max;
    if (far_over) net_fault_send_locked(c, 413, "the body is larger than is read here");
    mutex_unlock(t->server->lock);
    if (far_over) return MHD_NO;
    if (over)
        buf_release(&t->body);
    else
        buf_put(&t->body, data, *len);
    *len = 0;
    return MHD_YES;
}

// The request is whole: to the workers.
static enum MHD_Result hand_over(struct net_task *t, struct MHD_Connection *wire) {
    struct net_server *s = t->server;
    if (t->n_swallowed > t->r.body_max) {
        char text[96];
        snprintf(text, sizeof text, "the body has more than the %zu bytes that are read", t->r.body_max);
        net_fault_answer(t, 413, text);
        return answer_wire(t, wire);
    }
    if (t->body.failed) {
        net_fault_answer(t, 503, "no memory for the request; try again");
        return answer_wire(t, wire);
    }
    t->r.body = buf_str(&t->body);
    mutex_lock(s->lock);
    t->is_handed = true;
    t->refs++;
    s->n_tasks++;
    t->connection->phase = NET_PHASE_WORK;
    t->connection->since_ns = clock_ns();
    MHD_suspend_connection(wire);
    t->is_suspended = true;
    net_task_queue_locked(t);
    mutex_unlock(s->lock);
    net_watch_wake(s);
    return MHD_YES;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *wire, const char *url, const char *method,
                                 const char *version, const char *data, size_t *len, void **context) {
    (void)cls, (void)url;
    struct net_task *t = *context;
    if (!t) return MHD_NO;
    if (!t->head_taken) return head_take(t, wire, method, version);
    if (*len > 0) return body_take(t, data, len);
    mutex_lock(t->server->lock);
    bool gone = t->is_gone, ready = t->is_answered, handed = t->is_handed;
    if (handed && !gone && !ready) { // resumed for nothing
        MHD_suspend_connection(wire);
        t->is_suspended = true;
    }
    mutex_unlock(t->server->lock);
    if (gone) return MHD_NO;
    if (ready) return answer_wire(t, wire);
    return handed ? MHD_YES : hand_over(t, wire);
}

static void on_completed(void *cls, struct MHD_Connection *wire, void **context, enum MHD_RequestTerminationCode code) {
    struct net_server *s = cls;
    struct net_task *t = *context;
    (void)wire;
    if (!t) return;
    *context = NULL;
    mutex_lock(s->lock);
    struct net_connection *c = t->connection;
    if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK) (void)net_task_gone_locked(t, "the client left");
    t->connection = NULL;
    c->task = NULL;
    c->phase = NET_PHASE_IDLE;
    c->since_ns = clock_ns();
    mutex_unlock(s->lock);
    net_task_unref(t);
}

// --------------------------------------------------------------------------------------------------------- the server

static enum tern_status listen_tcp(struct net_server *s, struct tern_err *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", s->o.port);
    int rc = getaddrinfo(s->host, port, &hints, &list);
    if (rc != 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "no address '%s' to listen on: %s", s->host, gai_strerror(rc));
    int fd = -1, fault = 0;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        int on = 1;
        if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)) {
            fault = errno;
            close(fd);
            fd = -1;
        } else if (fd < 0) {
            fault = errno;
        }
    }
    freeaddrinfo(list);
    if (fd < 0) return err_set_errno(err, fault, "cannot listen on %s port %d", s->host, s->o.port);
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    getsockname(fd, (struct sockaddr *)&bound, &len);
    s->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                : ((struct sockaddr_in *)&bound)->sin_port);
    s->listen_fds[0] = fd;
    return TERN_OK;
}

static enum tern_status listen_unix(struct net_server *s, struct tern_err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(s->unix_path) >= sizeof a.sun_path)
        return err_set(err, TERN_INVALID_ARGUMENT, "the path of a Unix socket has at most %zu bytes, not %zu: %s",
                       sizeof a.sun_path - 1, strlen(s->unix_path), s->unix_path);
    memcpy(a.sun_path, s->unix_path, strlen(s->unix_path) + 1);
    struct stat st;
    if (lstat(s->unix_path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        int probe = socket(AF_UNIX, SOCK_STREAM, 0); // a socket that nobody answers is left over
        bool alive = probe >= 0 && connect(probe, (struct sockaddr *)&a, sizeof a) == 0;
        if (probe >= 0) close(probe);
        if (alive) return err_set(err, TERN_AGAIN, "another server answers on %s", s->unix_path);
        unlink(s->unix_path);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    mode_t before = umask(0177);
    int rc = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&a, sizeof a);
    int fault = errno;
    umask(before);
    if (rc == 0 && listen(fd, BACKLOG) != 0) rc = -1, fault = errno;
    if (rc != 0) {
        if (fd >= 0) close(fd);
        return err_set_errno(err, fault, "cannot listen on the Unix socket %s", s->unix_path);
    }
    s->listen_fds[1] = fd;
    return TERN_OK;
}

static void library_log(void *arg, const char *fmt, va_list args) {
    (void)arg;
    char text[256];
    vsnprintf(text, sizeof text, fmt, args);
    text[strcspn(text, "\n")] = 0;
    log_debug("http: %s", text);
}

static enum tern_status daemon_start(struct net_server *s, int i, struct tern_err *err) {
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    s->daemons[i] = MHD_start_daemon(
        flags, 0, NULL, NULL, on_access, s, MHD_OPTION_EXTERNAL_LOGGER, library_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        s->listen_fds[i], MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->n_slots, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)NET_HEAD_BYTES_MAX, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, s, MHD_OPTION_URI_LOG_CALLBACK, on_target, s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!s->daemons[i]) return err_set_errno(err, errno, "the HTTP library did not start");
    return TERN_OK;
}

static enum tern_status server_begin(struct net_server *s, struct tern_err *err) {
    s->lock = mutex_create();
    s->work = cond_create();
    s->no_task = cond_create();
    s->slots = mem_calloc((size_t)s->n_slots, sizeof *s->slots);
    s->host = s->o.host ? mem_strdup(s->o.host) : NULL;
    s->unix_path = s->o.unix_path ? mem_strdup(s->o.unix_path) : NULL;
    if (!s->lock || !s->work || !s->no_task || !s->slots || (s->o.host && !s->host) ||
        (s->o.unix_path && !s->unix_path))
        return err_set(err, TERN_NO_MEMORY, "no memory for a server of %d connections", s->n_slots);
    if (s->host) TRY(listen_tcp(s, err));
    if (s->unix_path) TRY(listen_unix(s, err));
    TRY(net_watch_start(s, err));
    TRY(net_workers_start(s, err));
    for (int i = 0; i < 2; i++)
        if (s->listen_fds[i] >= 0) TRY(daemon_start(s, i, err));
    return TERN_OK;
}

enum tern_status net_server_open(struct net_server **out, const struct net_options *o,
                                 const struct net_handler *handler, struct tern_err *err) {
    if (!o->host && !o->unix_path) return err_set(err, TERN_INVALID_ARGUMENT, "nothing to listen on");
    if (o->n_workers < 1 || o->n_workers > NET_WORKERS_MAX || o->n_connections_max < 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "a server has 1 to %d workers and at least one connection",
                       NET_WORKERS_MAX);
    struct net_server *s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(err, TERN_NO_MEMORY, "no memory for a server");
    s->o = *o;
    s->handler = *handler;
    s->n_slots = o->n_connections_max + NET_SPARE;
    s->listen_fds[0] = s->listen_fds[1] = s->wake_fds[0] = s->wake_fds[1] = -1;
    enum tern_status status = server_begin(s, err);
    if (status != TERN_OK)
        net_server_close(s);
    else
        *out = s;
    return status;
}

int net_server_port(const struct net_server *s) { return s->port; }

void net_server_quiesce(struct net_server *s) {
    mutex_lock(s->lock);
    bool was = s->is_quiet;
    s->is_quiet = true;
    mutex_unlock(s->lock);
    for (int i = 0; i < 2 && !was; i++) {
        if (s->daemons[i]) MHD_quiesce_daemon(s->daemons[i]);
        if (s->listen_fds[i] >= 0) close(s->listen_fds[i]);
        s->listen_fds[i] = -1;
    }
    if (!was && s->unix_path) unlink(s->unix_path);
}

void net_server_counts(struct net_server *s, struct net_counts *out) {
    mutex_lock(s->lock);
    *out = s->counts;
    mutex_unlock(s->lock);
}

// Every request at work is told that its client is gone, which ends it.
static void server_cut(struct net_server *s) {
    for (;;) {
        struct net_connection *resume = NULL;
        mutex_lock(s->lock);
        s->is_closing = true;
        for (int i = 0; i < s->n_slots && !resume; i++) {
            struct net_connection *c = s->slots[i];
            if (!c || !c->task || c->task->is_ended) continue;
            c->is_cut = true;
            if (net_task_gone_locked(c->task, "the server stopped")) resume = c;
        }
        mutex_unlock(s->lock);
        if (!resume) return;
        net_wire_resume(resume);
    }
}

void net_server_close(struct net_server *s) {
    if (!s) return;
    if (s->lock && s->work && s->no_task && s->slots) {
        net_server_quiesce(s);
        server_cut(s);
        net_workers_stop(s);
        net_watch_stop(s);
    }
    for (int i = 0; i < 2; i++) {
        if (s->daemons[i]) MHD_stop_daemon(s->daemons[i]);
        if (s->listen_fds[i] >= 0) close(s->listen_fds[i]);
    }
    mem_free(s->slots);
    mem_free(s->host);
    mem_free(s->unix_path);
    cond_free(s->work);
    cond_free(s->no_task);
    mutex_free(s->lock);
    mem_free(s);
}
