// Local requests: they reach handle() whole, are answered at once or by a task of their own that other threads poke,
// and each comes to end() exactly once with its answer; closing waits for those at work.
#include "base/base.h"
#include "net/net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define N_REQUESTS 200

struct place { // of one request
    int n_ends, n_runs, status;
    char answer[64];
    struct net_request *r;
};
struct world {
    struct os_mutex *lock;
    struct os_cond *changed;
    struct place places[N_REQUESTS];
    int n_over;
    bool releases;
};

static void later(struct net_request *r, void *arg) {
    struct world *w = arg;
    struct place *p = r->user;
    mutex_lock(w->lock);
    bool last = ++p->n_runs == 2;
    mutex_unlock(w->lock);
    if (last) net_answer(r, &(struct net_answer){.status = 201, .body = STR("late")});
    if (!last) net_request_poke(r);
}
static void later_release(struct net_request *r, void *arg) {
    struct world *w = arg;
    (void)r;
    mutex_lock(w->lock);
    w->releases = true;
    mutex_unlock(w->lock);
}

static void on_handle(void *arg, struct net_request *r) {
    struct world *w = arg;
    struct place *p = r->user;
    assert_string_equal(r->method.data, "POST");
    assert_true(str_eqz(r->remote, "local"));
    if (str_eqz(r->path, "/late")) {
        net_request_defer(r, later, later_release, w);
        mutex_lock(w->lock);
        p->r = r;
        cond_broadcast(w->changed);
        mutex_unlock(w->lock);
    } else if (str_eqz(r->path, "/stream")) {
        net_stream_begin(r, &(struct net_answer){.status = 200}, NULL);
        net_stream_put(r, STR("piece"));
        net_stream_end(r);
    } else if (str_eqz(r->path, "/echo")) {
        net_answer(r, &(struct net_answer){.status = 200, .body = r->body});
    } // else: not answered
}
static void on_fault(void *arg, const struct net_request *r, int status, const char *message, struct buf *out,
                     const char **type) {
    (void)arg, (void)r, (void)message, (void)type;
    buf_putf(out, "fault %d", status);
}
static void on_end(void *arg, struct net_request *r, const struct net_outcome *o) {
    struct world *w = arg;
    struct place *p = r->user;
    struct str answer = net_local_answer(r);
    mutex_lock(w->lock);
    p->n_ends++;
    p->status = o->status;
    snprintf(p->answer, sizeof p->answer, "%.*s", (int)answer.len, answer.len ? answer.data : "");
    w->n_over++;
    cond_broadcast(w->changed);
    mutex_unlock(w->lock);
}

static struct net_server *server_open(struct world *w, int n_workers) {
    *w = (struct world){.lock = mutex_create(), .changed = cond_create()};
    struct net_server *s = NULL;
    const struct net_handler h = {.arg = w, .handle = on_handle, .fault = on_fault, .end = on_end};
    struct tern_err err = {0};
    assert_int_equal(net_local_open(&s, n_workers, &h, &err), TERN_OK);
    return s;
}
static void world_release(struct world *w) {
    cond_free(w->changed);
    mutex_free(w->lock);
}

static void test_answers(void **state) {
    (void)state;
    static struct world w;
    struct net_server *s = server_open(&w, 3);
    struct tern_err err = {0};
    for (int i = 0; i < N_REQUESTS; i++) {
        char body[32];
        snprintf(body, sizeof body, "body %d", i);
        const char *path = i % 4 == 0 ? "/late" : i % 4 == 1 ? "/stream" : i % 4 == 2 ? "/echo" : "/nothing";
        assert_int_equal(net_local_request(s, "POST", path, str_from(body), &w.places[i], &err), TERN_OK);
    }
    for (int i = 0; i < N_REQUESTS; i += 4) {
        mutex_lock(w.lock);
        while (!w.places[i].r) cond_wait(w.changed, w.lock);
        mutex_unlock(w.lock);
        net_request_poke(w.places[i].r); // from another thread than the workers
    }
    net_local_close(s); // waits for them
    assert_int_equal(w.n_over, N_REQUESTS);
    assert_true(w.releases);
    for (int i = 0; i < N_REQUESTS; i++) {
        const struct place *p = &w.places[i];
        char body[32];
        snprintf(body, sizeof body, "body %d", i);
        assert_int_equal(p->n_ends, 1);
        assert_int_equal(p->status, i % 4 == 0 ? 201 : i % 4 == 3 ? 500 : 200);
        assert_string_equal(p->answer, i % 4 == 0 ? "late" : i % 4 == 1 ? "" : i % 4 == 2 ? body : "fault 500");
    }
    world_release(&w);
}

static void poke(void *arg) {
    struct place *p = arg;
    net_request_poke(p->r);
}

// Closing waits for requests that another thread still has to poke, and never takes a worker's wake-up for its own.
static void test_close_waits(void **state) {
    (void)state;
    static struct world w;
    for (int i = 0; i < 500; i++) {
        struct net_server *s = server_open(&w, 2);
        struct tern_err err = {0};
        struct place *p = &w.places[0];
        assert_int_equal(net_local_request(s, "POST", "/late", STR("x"), p, &err), TERN_OK);
        mutex_lock(w.lock);
        while (!p->r) cond_wait(w.changed, w.lock);
        mutex_unlock(w.lock);
        struct os_thread *t;
        assert_int_equal(os_thread_create(&t, poke, p, &err), TERN_OK);
        net_local_close(s);
        os_thread_join(t);
        assert_int_equal(p->n_ends, 1);
        assert_int_equal(p->status, 201);
        world_release(&w);
    }
}

static void test_bounds(void **state) {
    (void)state;
    static struct world w;
    struct net_server *s = NULL;
    struct tern_err err = {0};
    const struct net_handler h = {.arg = &w};
    assert_int_equal(net_local_open(&s, 0, &h, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(net_local_open(&s, NET_WORKERS_MAX + 1, &h, &err), TERN_INVALID_ARGUMENT);
    assert_null(s);
    s = server_open(&w, 1);
    net_local_close(s); // nothing was asked
    net_local_close(NULL);
    world_release(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_close_waits),
                                       cmocka_unit_test(test_bounds)};
    return cmocka_run_group_tests_name("net_local", tests, NULL, NULL);
}
