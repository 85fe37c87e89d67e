// Blocking until a word changes. A futex needs no memory and no lock; elsewhere one mutex and one condition serve all
// words of a team (a wake-up is rare: waiters spin first).
#define _GNU_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"

#ifdef PARK_FUTEX
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

bool park_init(struct park *p) {
    *p = (struct park){0};
    return true;
}
void park_release(struct park *p) { (void)p; }

void park_wait(struct park *p, _Atomic uint32_t *word, uint32_t value) {
    (void)p;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void park_wake_all(struct park *p, _Atomic uint32_t *word) {
    (void)p;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
#else
bool park_init(struct park *p) {
    *p = (struct park){mutex_create(), cond_create()};
    if (p->mutex && p->cond) return true;
    park_release(p);
    return false;
}

void park_release(struct park *p) {
    mutex_free(p->mutex);
    cond_free(p->cond);
    *p = (struct park){0};
}

void park_wait(struct park *p, _Atomic uint32_t *word, uint32_t value) {
    mutex_lock(p->mutex);
    while (atomic_load(word) == value) cond_wait(p->cond, p->mutex);
    mutex_unlock(p->mutex);
}

// The lock makes sure that a waiter which saw the old value already waits when we signal.
void park_wake_all(struct park *p, _Atomic uint32_t *word) {
    (void)word;
    mutex_lock(p->mutex);
    cond_broadcast(p->cond);
    mutex_unlock(p->mutex);
}
#endif
