// The workers: a few threads that take tasks from one queue and run their handlers. A task is with one worker at a
// time; a poke while it runs makes it run once more.
#include "base/base.h"
#include "net/net_int.h"

void net_task_queue_locked(struct net_task *t) {
    struct net_server *s = t->server;
    if (t->run_state == NET_RUN_BUSY) t->run_state = NET_RUN_AGAIN;
    if (t->run_state != NET_RUN_IDLE) return;
    t->run_state = NET_RUN_QUEUED;
    t->next = NULL;
    if (s->queue_tail)
        s->queue_tail->next = t;
    else
        s->queue_head = t;
    s->queue_tail = t;
    cond_signal(s->work);
}

static void task_step(struct net_task *t) {
    struct net_server *s = t->server;
    bool first = !t->is_begun;
    t->is_begun = true;
    if (first) {
        s->handler.handle(s->handler.arg, &t->r);
        if (!t->run && !t->is_answered)
            net_fault_answer(t, 500, "the request was not answered; this is a fault of tern");
        if (!t->run && t->is_stream) net_stream_end(&t->r);
    } else if (t->run) {
        t->run(&t->r, t->arg);
    }
}

// The first task that does not rest, taken out of the queue; waits for one. NULL: stopping.
static struct net_task *task_take_locked(struct net_server *s) {
    for (;;) {
        if (!s->queue_head && s->is_stopping) return NULL;
        uint64_t now = s->queue_head ? clock_ns() : 0, due = UINT64_MAX;
        struct net_task *before = NULL;
        for (struct net_task *t = s->queue_head; t; before = t, t = t->next) {
            if (t->rest_ns > now) {
                due = MIN(due, t->rest_ns);
                continue;
            }
            if (before)
                before->next = t->next;
            else
                s->queue_head = t->next;
            if (s->queue_tail == t) s->queue_tail = before;
            if (s->queue_head) cond_signal(s->work); // somebody else looks after the rest
            return t;
        }
        if (due == UINT64_MAX)
            cond_wait(s->work, s->lock);
        else
            cond_wait_ns(s->work, s->lock, due - now);
    }
}

static void worker_main(void *arg) {
    struct net_server *s = arg;
    mutex_lock(s->lock);
    for (struct net_task *t; (t = task_take_locked(s));) {
        t->run_state = NET_RUN_BUSY;
        bool over = net_task_over_locked(t);
        mutex_unlock(s->lock);
        if (!over) task_step(t);
        mutex_lock(s->lock);
        over = net_task_over_locked(t);
        if (!over) {
            bool again = t->run_state == NET_RUN_AGAIN;
            t->run_state = NET_RUN_IDLE;
            if (again) net_task_queue_locked(t);
            continue;
        }
        mutex_unlock(s->lock);
        if (t->release) t->release(&t->r, t->arg);
        mutex_lock(s->lock);
        t->run_state = NET_RUN_OVER;
        s->n_tasks--;
        if (s->n_tasks == 0) cond_signal(s->no_task);
        mutex_unlock(s->lock);
        net_task_unref(t);
        mutex_lock(s->lock);
    }
    mutex_unlock(s->lock);
}

enum tern_status net_workers_start(struct net_server *s, struct tern_err *err) {
    for (int i = 0; i < s->o.n_workers; i++) {
        TRY(os_thread_create(&s->workers[i], worker_main, s, err));
        s->n_workers++;
    }
    return TERN_OK;
}

void net_workers_stop(struct net_server *s) {
    mutex_lock(s->lock);
    while (s->n_workers > 0 && s->n_tasks > 0) cond_wait(s->no_task, s->lock);
    s->is_stopping = true;
    cond_broadcast(s->work);
    mutex_unlock(s->lock);
    for (int i = 0; i < s->n_workers; i++) os_thread_join(s->workers[i]);
    s->n_workers = 0;
}
