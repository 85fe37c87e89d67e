// Clients that do not read their stream: cut off after the time for it, with a bounded number of bytes on the way; one
// that reads slowly is not.
#define _GNU_SOURCE 1
#include "base/base.h"
#include "net/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define STALL_S 0.6
#define SLOW_STALL_S 1.5 // of one that reads: a loaded machine lets it wait
#define STREAM_MAX (64u << 10)
#define SMALL_BYTES (24u << 10) // a piece that the system takes whole
#define CLIENT_ROOM 2048        // of the receiving buffer of one that does not read
#define SLOW_ROOM 32768         // … of one that reads slowly: with less, TCP itself waits for seconds

struct world {
    struct os_mutex *lock;
    struct os_cond *changed;
    bool is_over, is_small;
    struct net_outcome outcome;
    char cause[64];
    uint64_t end_ns;
};

// As an answer of the server is written: while there is room, poked again when there is more.
static void stream_run(struct net_request *r, void *arg) {
    static char piece[4096];
    const struct world *w = arg;
    memset(piece, 'x', sizeof piece);
    while (!w->is_small && net_stream_room(r) >= sizeof piece)
        if (!net_stream_put(r, (struct str){piece, sizeof piece})) return;
}
static void stream_release(struct net_request *r, void *arg) { (void)r, (void)arg; }

static void on_head(void *arg, struct net_request *r) { (void)arg, (void)r; }
static void on_handle(void *arg, struct net_request *r) {
    static char small[SMALL_BYTES];
    struct world *w = arg;
    memset(small, 'y', sizeof small);
    net_request_defer(r, stream_run, stream_release, w);
    net_stream_begin(r, &(struct net_answer){.status = 200, .type = "text/plain"}, ":\n");
    if (w->is_small) net_stream_put(r, (struct str){small, sizeof small});
    net_request_poke(r);
}
static void on_fault(void *arg, const struct net_request *r, int status, const char *message, struct buf *out,
                     const char **type) {
    (void)arg, (void)r, (void)status, (void)message, (void)out, (void)type;
}
static void on_end(void *arg, struct net_request *r, const struct net_outcome *o) {
    struct world *w = arg;
    (void)r;
    mutex_lock(w->lock);
    w->outcome = *o;
    snprintf(w->cause, sizeof w->cause, "%s", o->cause ? o->cause : "");
    w->end_ns = clock_ns();
    w->is_over = true;
    cond_broadcast(w->changed);
    mutex_unlock(w->lock);
}

static struct net_server *server_open(struct world *w, const char *unix_path, bool small, double stall_s) {
    struct net_options o;
    struct net_server *s = NULL;
    struct tern_err err = {0};
    *w = (struct world){.lock = mutex_create(), .changed = cond_create(), .is_small = small};
    net_options_default(&o);
    o.port = 0;
    o.unix_path = unix_path;
    o.stall_s = stall_s;
    o.stream_max = STREAM_MAX;
    const struct net_handler h = {.arg = w, .head = on_head, .handle = on_handle, .fault = on_fault, .end = on_end};
    assert_int_equal(net_server_open(&s, &o, &h, &err), TERN_OK);
    return s;
}
static void server_close(struct net_server *s, struct world *w) {
    net_server_close(s);
    cond_free(w->changed);
    mutex_free(w->lock);
}

static int ask(int fd, int room, const struct sockaddr *a, socklen_t len) {
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    assert_int_equal(connect(fd, a, len), 0);
    assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
    return fd;
}
static int tcp_ask(const struct net_server *s, int room) {
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)net_server_port(s)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return ask(socket(AF_INET, SOCK_STREAM, 0), room, (const struct sockaddr *)&a, sizeof a);
}

// The request ended within the seconds?
static bool over_within(struct world *w, double seconds) {
    const uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);
    mutex_lock(w->lock);
    while (!w->is_over && clock_ns() < until) cond_wait_ns(w->changed, w->lock, 20000000);
    const bool over = w->is_over;
    mutex_unlock(w->lock);
    return over;
}

static void cut_check(struct world *w, uint64_t begin_ns) {
    assert_true(over_within(w, 30));
    assert_true(w->outcome.gone);
    assert_string_equal(w->cause, "it does not read its answer");
    assert_true((double)(w->end_ns - begin_ns) * 1e-9 >= STALL_S * 0.9);
}

// The client is told at once, though it has not read what came: nothing is kept for it.
static void reset_check(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const uint64_t until = clock_ns() + 10000000000u;
    while (!(p.revents & (POLLERR | POLLHUP)) && clock_ns() < until) poll(&p, 1, 100);
    assert_true(p.revents & (POLLERR | POLLHUP));
}

static void test_endless(void **state) {
    (void)state;
    struct world w;
    struct net_server *s = server_open(&w, NULL, false, STALL_S);
    const uint64_t begin = clock_ns();
    const int fd = tcp_ask(s, CLIENT_ROOM);
    cut_check(&w, begin);
    // What went out fits the system's share, the client's room and what one write may overshoot.
    if (w.outcome.n_bytes > NET_UNSENT_MAX + (256u << 10))
        fail_msg("%llu bytes were given out", (unsigned long long)w.outcome.n_bytes);
    reset_check(fd);
    close(fd);
    server_close(s, &w);
}

// All that there is to say lies in the system's buffers: the server's own are empty, and the client is cut off still.
static void test_small(void **state) {
    (void)state;
    struct world w;
    struct net_server *s = server_open(&w, NULL, true, STALL_S);
    const uint64_t begin = clock_ns();
    const int fd = tcp_ask(s, CLIENT_ROOM);
    cut_check(&w, begin);
    assert_int_equal(w.outcome.n_bytes, SMALL_BYTES);
    reset_check(fd);
    close(fd);
    server_close(s, &w);
}

static void test_unix_socket(void **state) {
    (void)state;
    struct world w;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/tern_slow_%d.sock", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (int)getpid());
    struct net_server *s = server_open(&w, a.sun_path, false, STALL_S);
    const uint64_t begin = clock_ns();
    const int fd = ask(socket(AF_UNIX, SOCK_STREAM, 0), CLIENT_ROOM, (const struct sockaddr *)&a, sizeof a);
    cut_check(&w, begin);
    close(fd);
    server_close(s, &w);
}

// A little at a time, always within the time: for three times as long it stays. (On loopback TCP tells the sender of
// room by tens of kilobytes only, so it is not that little.)
static void test_slow_reader(void **state) {
    (void)state;
    struct world w;
    struct net_server *s = server_open(&w, NULL, false, SLOW_STALL_S);
    const int fd = tcp_ask(s, SLOW_ROOM);
    const uint64_t until = clock_ns() + (uint64_t)(3 * SLOW_STALL_S * 1e9);
    char bytes[8192];
    while (clock_ns() < until) {
        assert_true(recv(fd, bytes, sizeof bytes, 0) > 0);
        if (over_within(&w, 0.01)) fail_msg("%s, %llu bytes", w.cause, (unsigned long long)w.outcome.n_bytes);
    }
    close(fd);
    assert_true(over_within(&w, 30));
    assert_string_equal(w.cause, "the client left");
    server_close(s, &w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_endless), cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_unix_socket), cmocka_unit_test(test_slow_reader)};
    return cmocka_run_group_tests_name("clients that do not read", tests, NULL, NULL);
}
