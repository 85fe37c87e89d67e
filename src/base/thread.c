// Plain threads, mutexes and condition variables over pthreads. Condition variables count time on the monotonic clock.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define CHECK(expr)                                                         \
    do {                                                                    \
        int check_rc_ = (expr);                                             \
        if (check_rc_ != 0) TERN_BUG("%s: %s", #expr, strerror(check_rc_)); \
    } while (0)

struct os_thread {
    pthread_t handle;
    void (*fn)(void *arg);
    void *arg;
};
struct os_mutex {
    pthread_mutex_t handle;
};
struct os_cond {
    pthread_cond_t handle;
};

static _Thread_local bool is_own;

bool thread_is_own(void) { return is_own; }

static void *thread_main(void *arg) {
    struct os_thread *t = arg;
    is_own = true;
    t->fn(t->arg);
    return NULL;
}

// Signals stay with the threads of the program: ours block them all.
enum tern_status os_thread_create(struct os_thread **out, void (*fn)(void *arg), void *arg, struct tern_err *err) {
    struct os_thread *t = mem_alloc(sizeof(*t));
    if (!t) return err_set(err, TERN_NO_MEMORY, "no memory for a thread");
    t->fn = fn;
    t->arg = arg;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->handle, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        mem_free(t);
        return err_set_errno(err, rc, "cannot start a thread");
    }
    *out = t;
    return TERN_OK;
}

void os_thread_join(struct os_thread *t) {
    if (!t) return;
    CHECK(pthread_join(t->handle, NULL));
    mem_free(t);
}

struct os_mutex *mutex_create(void) {
    struct os_mutex *m = mem_alloc(sizeof(*m));
    if (!m) return NULL;
    CHECK(pthread_mutex_init(&m->handle, NULL));
    return m;
}

void mutex_free(struct os_mutex *m) {
    if (!m) return;
    CHECK(pthread_mutex_destroy(&m->handle));
    mem_free(m);
}

void mutex_lock(struct os_mutex *m) { CHECK(pthread_mutex_lock(&m->handle)); }
void mutex_unlock(struct os_mutex *m) { CHECK(pthread_mutex_unlock(&m->handle)); }

struct os_cond *cond_create(void) {
    struct os_cond *c = mem_alloc(sizeof(*c));
    if (!c) return NULL;
    pthread_condattr_t attr;
    CHECK(pthread_condattr_init(&attr));
#ifndef __APPLE__
    CHECK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
#endif
    CHECK(pthread_cond_init(&c->handle, &attr));
    pthread_condattr_destroy(&attr);
    return c;
}

void cond_free(struct os_cond *c) {
    if (!c) return;
    CHECK(pthread_cond_destroy(&c->handle));
    mem_free(c);
}

void cond_signal(struct os_cond *c) { CHECK(pthread_cond_signal(&c->handle)); }
void cond_broadcast(struct os_cond *c) { CHECK(pthread_cond_broadcast(&c->handle)); }
void cond_wait(struct os_cond *c, struct os_mutex *m) { CHECK(pthread_cond_wait(&c->handle, &m->handle)); }

bool cond_wait_ns(struct os_cond *c, struct os_mutex *m, uint64_t timeout_ns) {
#ifdef __APPLE__
    struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    int rc = pthread_cond_timedwait_relative_np(&c->handle, &m->handle, &t);
#else
    uint64_t at = clock_ns() + MIN(timeout_ns, (uint64_t)1 << 62);
    struct timespec t = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    int rc = pthread_cond_timedwait(&c->handle, &m->handle, &t);
#endif
    if (rc != 0 && rc != ETIMEDOUT) TERN_BUG("waiting for a condition: %s", strerror(rc));
    return rc == 0;
}
