// Compiles lists for a back end when they are needed. A model has a program for each bucket, and a runtime may take
// seconds and its own copy of the weights for each: so one is compiled when the first step needs it, or when the
// context before it is nearly full. A step allocates nothing, so a thread of ours does it and the step waits. Runtimes
// that serve one request at a time (Core AI's process) are never asked ahead, which would run beside a step.
#include "base/base.h"
#include "unit/npu/npu_unit.h"

struct npu_opener {
    struct unit *u;
    struct os_thread *thread;
    struct os_mutex *mutex; // of all below, and of the states of variants
    struct os_cond *changed;
    struct npu_variant *job; // being compiled, or next
    bool stop;
};

static void opener_run(void *arg) {
    struct npu_opener *o = arg;
    mutex_lock(o->mutex);
    while (!o->stop) {
        struct npu_variant *v = o->job;
        if (!v) {
            cond_wait(o->changed, o->mutex);
            continue;
        }
        bool needed = v->needed; // the step waits, so the memory that programs share stays as it is
        mutex_unlock(o->mutex);
        enum tern_status status = v->remote ? TERN_OK : npu_remote_make(o->u, v, &v->why);
        if (status == TERN_OK && needed) status = npu_remote_bind(o->u, v, &v->why);
        mutex_lock(o->mutex);
        v->needed = false;
        v->state = status == TERN_OK ? NPU_OPENED : NPU_FAILED;
        o->job = NULL;
        cond_broadcast(o->changed);
    }
    mutex_unlock(o->mutex);
}

enum tern_status npu_opener_create(struct npu_opener **out, struct unit *u, struct tern_err *err) {
    struct npu_opener *o = mem_calloc(1, sizeof *o);
    enum tern_status status;
    *out = NULL;
    if (!o) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory");
    o->u = u;
    o->mutex = mutex_create();
    o->changed = cond_create();
    if (!o->mutex || !o->changed) {
        status = err_set(err, TERN_NO_MEMORY, "npu unit: no memory");
        goto fail;
    }
    TRY_GOTO(os_thread_create(&o->thread, opener_run, o, err), fail);
    *out = o;
    return TERN_OK;
fail:
    npu_opener_free(o);
    return status;
}

void npu_opener_free(struct npu_opener *o) {
    if (!o) return;
    if (o->thread) {
        mutex_lock(o->mutex);
        o->stop = true;
        cond_broadcast(o->changed);
        mutex_unlock(o->mutex);
        os_thread_join(o->thread);
    }
    if (o->changed) cond_free(o->changed);
    if (o->mutex) mutex_free(o->mutex);
    mem_free(o);
}

enum tern_status npu_opener_need(struct npu_opener *o, struct npu_variant *v, struct tern_err *err) {
    mutex_lock(o->mutex);
    while (v->state == NPU_CLOSED && o->job) cond_wait(o->changed, o->mutex);
    while (v->state == NPU_ASKED) cond_wait(o->changed, o->mutex);
    if (v->state == NPU_CLOSED || (v->state == NPU_OPENED && v->bound != o->u->io)) {
        while (o->job) cond_wait(o->changed, o->mutex);
        v->needed = true;
        v->state = NPU_ASKED;
        o->job = v;
        cond_broadcast(o->changed);
    }
    while (v->state == NPU_ASKED) cond_wait(o->changed, o->mutex);
    bool failed = v->state == NPU_FAILED;
    mutex_unlock(o->mutex);
    if (!failed) return TERN_OK;
    if (err) *err = v->why;
    return v->why.code;
}

void npu_opener_ask(struct npu_opener *o, struct npu_variant *v) {
    if (!o->u->remote_driver->opens_beside) return;
    mutex_lock(o->mutex);
    if (v->state == NPU_CLOSED && !o->job) {
        v->state = NPU_ASKED;
        o->job = v;
        cond_broadcast(o->changed);
    }
    mutex_unlock(o->mutex);
}

void npu_opener_settle(struct npu_opener *o, const struct npu_variant *v) {
    mutex_lock(o->mutex);
    while (o->job == v) cond_wait(o->changed, o->mutex);
    mutex_unlock(o->mutex);
}
