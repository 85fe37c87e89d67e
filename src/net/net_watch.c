// The watcher: one thread that knows what libmicrohttpd does not. A suspended connection neither times out nor notices
// that its client left (its manual says so), and its one time-out cannot tell a slow head from a slow reader. So this
// thread polls the sockets of requests at work for a closed far end, and holds every phase of a connection to its time.
// A stream that its client does not read is known by the system's own queue: what is sent stays in it.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "net/net_int.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef POLLRDHUP
#define WATCH_EVENTS POLLRDHUP
#else
#define WATCH_EVENTS 0 // POLLHUP comes unasked
#endif
#define WATCH_REST_NS 60000000000u // between looks at the clocks without a connection
#define WATCH_TICK_NS 250000000u   // … and with one: phases that begin meanwhile have their deadlines

struct look {
    struct pollfd *fds; // [1 + n_slots]; 0: the pipe
    int *slots;         // [1 + n_slots] slot of each
    struct net_connection **resumes;
    int n_fds, n_resumes;
    uint64_t now, due; // next deadline
};

static uint64_t after(uint64_t from, double seconds) { return from + (uint64_t)(seconds * 1e9); }

static void due_note(struct look *l, uint64_t at) { l->due = MIN(l->due, at); }

static void cut_locked(struct look *l, struct net_connection *c, int status, const char *message, const char *cause) {
    c->is_cut = true;
    if (status) net_fault_send_locked(c, status, message);
    if (!status && cause) { // who does not read does not see the end either: what waits for it is dropped by a reset
        const struct linger none = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    }
    if (c->task && net_task_gone_locked(c->task, cause)) l->resumes[l->n_resumes++] = c;
    shutdown(c->fd, SHUT_RDWR); // the library sees the end of the stream and closes
}

// Bytes that were given to the system and that the client's side has not taken; 0 where nothing tells.
static int64_t unread_bytes(int fd) {
    int n = 0;
#if defined(SO_NWRITE) // macOS, whose TIOCOUTQ is for terminals
    socklen_t len = sizeof n;
    if (getsockopt(fd, SOL_SOCKET, SO_NWRITE, &n, &len) != 0) n = 0;
#elif defined(TIOCOUTQ)
    if (ioctl(fd, TIOCOUTQ, &n) != 0) n = 0;
#endif
    return n;
}

// When a stream's client has taken nothing for too long. (What the system counts is more than the stream's own bytes:
// chunk heads, on a Unix socket its bookkeeping too. So only a rise says that something was taken.)
static uint64_t stall_at_locked(const struct net_options *o, const struct look *l, struct net_connection *c) {
    const uint64_t at = after(c->moved_ns, o->stall_s);
    // Every request wakes the watcher; with hundreds of streams beside it, asking for each of them each time would hold
    // it up.
    if (at > l->now && l->now < c->asked_ns + WATCH_TICK_NS) return at;
    c->asked_ns = l->now;
    const int64_t unread = unread_bytes(c->fd), taken = (int64_t)c->task->n_bytes - unread;
    if (unread == 0 || taken > c->n_taken) c->moved_ns = l->now;
    c->n_taken = taken;
    return after(c->moved_ns, o->stall_s);
}

// The clocks of one connection.
static void clocks_look_locked(struct net_server *s, struct look *l, struct net_connection *c) {
    const struct net_options *o = &s->o;
    struct net_task *t = c->task;
    uint64_t at = UINT64_MAX;
    switch (c->phase) {
    case NET_PHASE_IDLE:
        at = after(c->since_ns, c->n_requests > 0 ? o->idle_s : MIN(o->idle_s, o->head_s));
        if (at <= l->now) cut_locked(l, c, 0, NULL, NULL);
        break;
    case NET_PHASE_HEAD:
        at = after(c->since_ns, o->head_s);
        if (at <= l->now) cut_locked(l, c, 408, "the request's head took too long", "its head took too long");
        break;
    case NET_PHASE_BODY:
        at = MIN(after(c->since_ns, o->body_s), after(c->read_ns, o->body_gap_s));
        if (at <= l->now) cut_locked(l, c, 408, "the request's body took too long", "its body took too long");
        break;
    case NET_PHASE_WORK: break;
    case NET_PHASE_STREAM:
        if (stall_at_locked(o, l, c) <= l->now) {
            at = l->now;
            cut_locked(l, c, 0, NULL, "it does not read its answer");
        } else if (t->out.len > t->out_at) {
            at = after(t->taken_ns, o->stall_s);
            if (at <= l->now) cut_locked(l, c, 0, NULL, "it does not read its answer");
        } else if (t->ping && !t->is_ended) {
            at = after(t->put_ns, o->ping_s);
            if (at <= l->now) {
                net_stream_put_locked(t, str_from(t->ping));
                if (net_task_unsuspend_locked(t)) l->resumes[l->n_resumes++] = c;
                at = after(t->put_ns, o->ping_s);
            }
        } else if (t->is_ended) {
            at = after(t->put_ns, o->stall_s);
            if (at <= l->now) cut_locked(l, c, 0, NULL, "it does not read its answer");
        }
        break;
    case NET_PHASE_ANSWER:
        at = after(c->since_ns, NET_WRITE_S);
        if (at <= l->now) cut_locked(l, c, 0, NULL, "it does not read its answer");
        break;
    }
    if (at > l->now) due_note(l, at);
}

static void look_begin_locked(struct net_server *s, struct look *l) {
    l->now = clock_ns();
    l->due = l->now + (s->counts.n_connections > 0 ? WATCH_TICK_NS : WATCH_REST_NS);
    l->n_fds = 1;
    l->n_resumes = 0;
    l->fds[0] = (struct pollfd){.fd = s->wake_fds[0], .events = POLLIN};
    for (int i = 0; i < s->n_slots; i++) {
        struct net_connection *c = s->slots[i];
        if (!c || c->is_cut) continue;
        clocks_look_locked(s, l, c);
        if (c->is_cut || !c->task || (c->phase != NET_PHASE_WORK && c->phase != NET_PHASE_STREAM)) continue;
        l->fds[l->n_fds] = (struct pollfd){.fd = c->fd, .events = WATCH_EVENTS};
        l->slots[l->n_fds++] = i;
    }
}

static void look_end_locked(struct net_server *s, struct look *l) {
    l->n_resumes = 0;
    for (int i = 1; i < l->n_fds; i++) {
        if (l->fds[i].revents == 0) continue;
        struct net_connection *c = s->slots[l->slots[i]];
        // The slot may hold a newer connection by now; its own state says whether it is to be watched.
        if (!c || c->fd != l->fds[i].fd || !c->task || c->is_cut) continue;
        if (c->phase != NET_PHASE_WORK && c->phase != NET_PHASE_STREAM) continue;
        struct pollfd again = {.fd = c->fd, .events = WATCH_EVENTS};
        if (poll(&again, 1, 0) <= 0 || again.revents == 0) continue;
        c->is_cut = true;
        if (net_task_gone_locked(c->task, "the client left")) l->resumes[l->n_resumes++] = c;
    }
}

static void resumes_do(struct look *l) {
    for (int i = 0; i < l->n_resumes; i++) net_wire_resume(l->resumes[i]);
}

static void watch_main(void *arg) {
    struct net_server *s = arg;
    size_t n = (size_t)s->n_slots + 1;
    struct look l = {.fds = mem_calloc(n, sizeof *l.fds),
                     .slots = mem_calloc(n, sizeof *l.slots),
                     .resumes = mem_calloc(n, sizeof *l.resumes)};
    if (!l.fds || !l.slots || !l.resumes) TERN_BUG("no memory for the watcher of %d connections", s->n_slots);
    mutex_lock(s->lock);
    while (!s->is_stopping) {
        look_begin_locked(s, &l);
        mutex_unlock(s->lock);
        resumes_do(&l);
        uint64_t now = clock_ns();
        int wait_ms = l.due > now ? (int)((l.due - now) / 1000000u) + 1 : 0;
        int rc = poll(l.fds, (nfds_t)l.n_fds, wait_ms);
        if (rc > 0 && (l.fds[0].revents & POLLIN)) {
            char sink[256];
            while (read(s->wake_fds[0], sink, sizeof sink) == (ssize_t)sizeof sink) {
            }
        }
        mutex_lock(s->lock);
        if (rc > 0) {
            look_end_locked(s, &l);
            mutex_unlock(s->lock);
            resumes_do(&l);
            mutex_lock(s->lock);
        }
    }
    mutex_unlock(s->lock);
    mem_free(l.fds);
    mem_free(l.slots);
    mem_free(l.resumes);
}

void net_watch_wake(struct net_server *s) {
    ssize_t n = write(s->wake_fds[1], "", 1); // a full pipe wakes as well
    (void)n;
}

enum tern_status net_watch_start(struct net_server *s, struct tern_err *err) {
    if (pipe(s->wake_fds) != 0) return err_set_errno(err, errno, "no pipe for the watcher");
    for (int i = 0; i < 2; i++) {
        fcntl(s->wake_fds[i], F_SETFL, O_NONBLOCK);
        fcntl(s->wake_fds[i], F_SETFD, FD_CLOEXEC);
    }
    return os_thread_create(&s->watcher, watch_main, s, err);
}

void net_watch_stop(struct net_server *s) {
    if (s->watcher) {
        net_watch_wake(s);
        os_thread_join(s->watcher);
        s->watcher = NULL;
    }
    for (int i = 0; i < 2; i++) {
        if (s->wake_fds[i] >= 0) close(s->wake_fds[i]);
        s->wake_fds[i] = -1;
    }
}
