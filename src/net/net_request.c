// What handlers do with a request: read its head, answer, stream, go on later. The wire side of a request may be over
// before its work is (the client left) and the other way round (an answer on its way): each side holds a reference.
#include "base/base.h"
#include "net/net_int.h"
#include <stdio.h>

static struct net_task *task_of(const struct net_request *r) { return r->task; }

struct net_task *net_task_create(struct net_connection *c) {
    struct net_task *t = mem_calloc(1, sizeof *t);
    if (!t) return NULL;
    buf_init(&t->head, NET_HEAD_BYTES_MAX * 2);
    t->refs = 1;
    t->connection = c;
    t->body_length = -1;
    t->r.task = t;
    t->r.begin_ns = clock_ns();
    return t;
}

void net_task_unref(struct net_task *t) {
    struct net_server *s = t->server;
    mutex_lock(s->lock);
    bool last = --t->refs == 0;
    if (last) s->counts.n_requests--;
    mutex_unlock(s->lock);
    if (!last) return;
    struct net_outcome outcome = {.status = t->is_answered ? t->status
                                            : t->is_gone   ? 499
                                                           : 0,
                                  .n_bytes = t->n_bytes,
                                  .gone = t->is_gone,
                                  .cause = t->cause};
    if (t->head_taken) s->handler.end(s->handler.arg, &t->r, &outcome);
    buf_release(&t->head);
    buf_release(&t->body);
    buf_release(&t->answer);
    buf_release(&t->answer_headers);
    buf_release(&t->out);
    mem_free(t);
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool name_is(const char *a, const char *b) {
    while (*a && lower(*a) == lower(*b)) a++, b++;
    return !*a && !*b;
}

struct str net_request_header(const struct net_request *r, const char *name) {
    const struct net_task *t = task_of(r);
    for (int i = 0; i < t->n_headers; i++)
        if (name_is(t->headers[i].name, name)) return str_from(t->headers[i].value);
    return (struct str){0};
}

struct str net_request_query(const struct net_request *r, const char *name) {
    struct str q = r->query, n = str_from(name);
    while (q.len > 0) {
        size_t amp = str_find(q, STR("&"), 0);
        struct str pair = {q.data, amp == (size_t)-1 ? q.len : amp};
        size_t eq = str_find(pair, STR("="), 0);
        struct str key = {pair.data, eq == (size_t)-1 ? pair.len : eq};
        if (str_eq(key, n)) {
            if (eq == (size_t)-1) return STR("");
            return (struct str){pair.data + eq + 1, pair.len - eq - 1};
        }
        if (amp == (size_t)-1) break;
        q = (struct str){q.data + amp + 1, q.len - amp - 1};
    }
    return (struct str){0};
}

int64_t net_request_body_length(const struct net_request *r) { return task_of(r)->body_length; }

// ------------------------------------------------------------------------------------------------------------ answers

static void answer_head_set(struct net_task *t, const struct net_answer *a) {
    t->status = a->status;
    t->answer_close = a->close;
    snprintf(t->type, sizeof t->type, "%s", a->type ? a->type : "");
    buf_init(&t->answer_headers, NET_HEAD_BYTES_MAX);
    for (int i = 0; i < a->n_headers && i < NET_ANSWER_HEADERS_MAX; i++) {
        buf_put(&t->answer_headers, a->headers[i].name, strlen(a->headers[i].name) + 1);
        buf_put(&t->answer_headers, a->headers[i].value, strlen(a->headers[i].value) + 1);
    }
}

bool net_task_unsuspend_locked(struct net_task *t) {
    if (!t->is_suspended || !t->connection) return false;
    t->is_suspended = false;
    return true;
}

void net_answer(struct net_request *r, const struct net_answer *a) {
    struct net_task *t = task_of(r);
    struct net_server *s = t->server;
    if (t->is_answered) return;
    struct buf body;
    buf_init(&body, a->body.len);
    bool fits = buf_put(&body, a->body.data, a->body.len);
    mutex_lock(s->lock);
    answer_head_set(t, a);
    if (!fits) t->status = 500;
    t->answer = body;
    t->is_answered = true;
    t->is_ended = true;
    if (t->connection && t->is_handed) {
        t->connection->phase = NET_PHASE_ANSWER;
        t->connection->since_ns = clock_ns();
    }
    struct net_connection *c = t->connection;
    bool resume = net_task_unsuspend_locked(t);
    mutex_unlock(s->lock);
    if (resume) net_wire_resume(c);
}

void net_fault_answer(struct net_task *t, int status, const char *message) {
    struct net_server *s = t->server;
    struct buf body;
    buf_init(&body, NET_HEAD_BYTES_MAX);
    const char *type = "text/plain";
    s->handler.fault(s->handler.arg, &t->r, status, message, &body, &type);
    const struct net_header retry = {"Retry-After", "1"};
    net_answer(&t->r, &(struct net_answer){.status = status,
                                           .type = type,
                                           .body = buf_str(&body),
                                           .headers = &retry,
                                           .n_headers = status == 503 ? 1 : 0,
                                           .close = true});
    buf_release(&body);
}

void net_stream_begin(struct net_request *r, const struct net_answer *a, const char *ping) {
    struct net_task *t = task_of(r);
    struct net_server *s = t->server;
    if (t->is_answered) return;
    mutex_lock(s->lock);
    answer_head_set(t, a);
    buf_init(&t->out, s->o.stream_max);
    t->is_answered = t->is_stream = true;
    t->ping = ping;
    t->put_ns = t->taken_ns = clock_ns();
    s->counts.n_streams++;
    struct net_connection *c = t->connection;
    if (c) {
        c->phase = NET_PHASE_STREAM;
        c->since_ns = c->moved_ns = t->put_ns;
        c->n_taken = INT64_MIN;
        c->asked_ns = 0;
    }
    bool resume = net_task_unsuspend_locked(t);
    mutex_unlock(s->lock);
    if (resume) net_wire_resume(c);
}

bool net_stream_put_locked(struct net_task *t, struct str piece) {
    if (t->is_gone || t->is_ended || !t->is_stream) return false;
    if (t->out_at > 0) {
        memmove(t->out.data, t->out.data + t->out_at, t->out.len - t->out_at);
        t->out.len -= t->out_at;
        t->out_at = 0;
    }
    if (t->out.len == 0) t->taken_ns = clock_ns(); // a stall counts from the first byte that waits
    t->put_ns = clock_ns();
    return buf_put(&t->out, piece.data, piece.len);
}

bool net_stream_put(struct net_request *r, struct str piece) {
    struct net_task *t = task_of(r);
    mutex_lock(t->server->lock);
    bool ok = net_stream_put_locked(t, piece);
    bool resume = ok && net_task_unsuspend_locked(t);
    if (!ok && !t->is_gone) resume = net_task_gone_locked(t, "it does not read its answer") || resume;
    struct net_connection *c = t->connection;
    mutex_unlock(t->server->lock);
    if (resume) net_wire_resume(c);
    return ok;
}

size_t net_stream_room(const struct net_request *r) {
    struct net_task *t = task_of(r);
    mutex_lock(t->server->lock);
    size_t room = t->is_stream ? t->server->o.stream_max - (t->out.len - t->out_at) : 0;
    t->wants_room = true;
    mutex_unlock(t->server->lock);
    return room;
}

void net_stream_end(struct net_request *r) {
    struct net_task *t = task_of(r);
    mutex_lock(t->server->lock);
    bool was = t->is_ended || !t->is_stream;
    t->is_ended = true;
    if (!was) t->server->counts.n_streams--;
    bool resume = !was && net_task_unsuspend_locked(t);
    struct net_connection *c = t->connection;
    mutex_unlock(t->server->lock);
    if (resume) net_wire_resume(c);
}

// --------------------------------------------------------------------------------------------------------------- tasks

bool net_task_over_locked(const struct net_task *t) { return t->is_gone || t->is_ended; }

bool net_task_gone_locked(struct net_task *t, const char *cause) {
    if (t->is_gone) return false;
    t->is_gone = true;
    t->cause = cause;
    t->rest_ns = 0;
    if (t->run_state == NET_RUN_QUEUED) cond_signal(t->server->work);
    if (t->is_stream && !t->is_ended) t->server->counts.n_streams--;
    if (t->is_handed) net_task_queue_locked(t);
    return net_task_unsuspend_locked(t);
}

void net_request_defer(struct net_request *r, void (*run)(struct net_request *r, void *arg),
                       void (*release)(struct net_request *r, void *arg), void *arg) {
    struct net_task *t = task_of(r);
    mutex_lock(t->server->lock);
    t->run = run;
    t->release = release;
    t->arg = arg;
    mutex_unlock(t->server->lock);
}

void net_request_poke(struct net_request *r) {
    struct net_task *t = task_of(r);
    mutex_lock(t->server->lock);
    net_task_queue_locked(t);
    mutex_unlock(t->server->lock);
}

void net_request_rest(struct net_request *r, double seconds) {
    struct net_task *t = task_of(r);
    mutex_lock(t->server->lock);
    if (!t->is_gone) t->rest_ns = clock_ns() + (uint64_t)(seconds * 1e9);
    mutex_unlock(t->server->lock);
}
