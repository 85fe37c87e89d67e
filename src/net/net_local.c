// Requests without a wire: a server that nobody can connect to, whose requests the program makes itself. They go to the
// same workers, tasks and answers as those of clients, so a route need not know where its request came from; nobody's
// clock is watched, since nobody waits at the other end.
#include "base/base.h"
#include "net/net_int.h"

enum tern_status net_local_open(struct net_server **out, int n_workers, const struct net_handler *handler,
                                struct tern_err *err) {
    if (n_workers < 1 || n_workers > NET_WORKERS_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "a server has 1 to %d workers, not %d", NET_WORKERS_MAX, n_workers);
    struct net_server *s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(err, TERN_NO_MEMORY, "no memory for local requests");
    s->handler = *handler;
    s->o.n_workers = n_workers;
    s->o.stream_max = NET_LOCAL_STREAM_MAX;
    s->lock = mutex_create();
    s->work = cond_create();
    s->no_task = cond_create();
    enum tern_status status = s->lock && s->work && s->no_task
                                  ? net_workers_start(s, err)
                                  : err_set(err, TERN_NO_MEMORY, "no memory for local requests");
    if (status != TERN_OK)
        net_local_close(s);
    else
        *out = s;
    return status;
}

void net_local_close(struct net_server *s) {
    if (!s) return;
    if (s->lock && s->work && s->no_task) net_workers_stop(s);
    cond_free(s->work);
    cond_free(s->no_task);
    mutex_free(s->lock);
    mem_free(s);
}

// A name behind the others in the task's head, 0-terminated there.
static void head_put(struct net_task *t, const char *z) { buf_put(&t->head, z, strlen(z) + 1); }

enum tern_status net_local_request(struct net_server *s, const char *method, const char *path, struct str body,
                                   void *user, struct tern_err *err) {
    struct net_task *t = net_task_create(NULL);
    if (!t) return err_set(err, TERN_NO_MEMORY, "no memory for a request");
    t->server = s;
    t->r.user = user;
    t->r.body_max = body.len;
    t->r.remote = STR("local");
    buf_init(&t->body, body.len);
    bool fits = body.len == 0 || buf_put(&t->body, body.data, body.len);
    head_put(t, method);
    head_put(t, path);
    if (!fits || t->head.failed) {
        buf_release(&t->head);
        buf_release(&t->body);
        mem_free(t);
        return err_set(err, TERN_NO_MEMORY, "no memory for a request of %zu bytes", body.len);
    }
    t->r.method = str_from(t->head.data);
    t->r.path = str_from(t->head.data + strlen(method) + 1);
    t->r.body = buf_str(&t->body);
    t->body_length = (int64_t)body.len;
    t->head_taken = t->is_handed = true;
    mutex_lock(s->lock);
    t->r.number = ++s->counts.n_requests_all;
    s->counts.n_requests++;
    s->n_tasks++;
    net_task_queue_locked(t);
    mutex_unlock(s->lock);
    return TERN_OK;
}

struct str net_local_answer(const struct net_request *r) {
    const struct net_task *t = r->task;
    return t->is_stream ? (struct str){0} : buf_str(&t->answer);
}
