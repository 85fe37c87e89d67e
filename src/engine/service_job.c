// A job from its owner's side: submit, pull, cancel, free. Events pass through the inbox: the service's thread fills it
// when it is empty, the reader takes it as a whole. What comes meanwhile stays with the request, where the texts of a
// slow reader are joined.
#include "base/base.h"
#include "service_int.h"

#include <math.h>

void tern_job_options_default(struct tern_job_options *o) {
    *o = (struct tern_job_options){.priority = TERN_PRIORITY_INTERACTIVE};
    tern_request_options_default(&o->request);
}

static enum tern_status options_check(const struct tern_job_options *o, struct tern_err *err) {
    if (o->request.append)
        return err_set(err, TERN_INVALID_ARGUMENT, "a job has no session whose tokens it could continue: append");
    if ((unsigned)o->priority > TERN_PRIORITY_BATCH)
        return err_set(err, TERN_INVALID_ARGUMENT, "unknown priority %d", (int)o->priority);
    if (o->tenant.len > TERN_TENANT_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "a tenant's name has %zu bytes; at most %d are possible",
                       o->tenant.len, TERN_TENANT_MAX);
    if (!(o->deadline_s >= 0)) return err_set(err, TERN_INVALID_ARGUMENT, "a deadline must not be negative");
    return TERN_OK;
}

// Whole ns, capped at about 292 years.
static uint64_t ns_of(double seconds) { return seconds < 9e9 ? (uint64_t)(seconds * 1e9) : (uint64_t)9e18; }

void job_destroy(struct tern_job *j) {
    tern_request_free(j->request);
    mem_free(j->keys);
    event_queue_release(&j->inbox);
    event_queue_release(&j->out);
    mutex_free(j->mutex);
    cond_free(j->changed);
    mem_free(j);
}

static enum tern_status job_create(struct tern_job **out, struct tern_service *s, const struct tern_job_options *o,
                                   struct tern_err *err) {
    struct tern_job *j = mem_calloc(1, sizeof *j);
    if (!j) return err_set(err, TERN_NO_MEMORY, "no memory for a job");
    *j = (struct tern_job){.service = s, .priority = o->priority, .n_refs = 2};
    event_queue_init(&j->inbox);
    event_queue_init(&j->out);
    j->mutex = mutex_create();
    j->changed = cond_create();
    enum tern_status status = TERN_OK;
    if (!j->mutex || !j->changed) status = err_set(err, TERN_NO_MEMORY, "no memory for a job");
    if (status == TERN_OK) status = request_open(&j->request, s->engine, &o->request, err);
    if (status == TERN_OK && j->request->prompt.len == 0)
        status = err_set(err, TERN_INVALID_ARGUMENT, "the prompt is empty");
    if (status == TERN_OK) status = request_fits(j->request, j->request->prompt.len, err);
    if (status == TERN_OK) status = service_prefix_keys(s, j, o->tenant, err);
    if (status != TERN_OK) {
        job_destroy(j);
        return status;
    }
    j->request->leaves_state = false; // the prefix cache does, at every block
    j->request->usage.n_prompt = (int64_t)j->request->prompt.len;
    if (o->deadline_s > 0) j->deadline_ns = j->request->created_ns + ns_of(o->deadline_s);
    *out = j;
    return TERN_OK;
}

enum tern_status tern_job_submit(struct tern_job **out, struct tern_service *s, const struct tern_job_options *o,
                                 struct tern_err *err) {
    struct tern_job *j = NULL;
    TRY(options_check(o, err));
    TRY(job_create(&j, s, o, err));
    mutex_lock(s->mutex);
    enum tern_status status = service_queue_put(s, j, o->tenant, err);
    if (status == TERN_OK) {
        j->staging = service_prefix_stage(s, j);
        s->n_jobs++;
        s->info.n_jobs++;
        cond_signal(s->work);
    } else if (status == TERN_AGAIN) {
        s->info.n_refused++;
    }
    mutex_unlock(s->mutex);
    if (status != TERN_OK) {
        job_destroy(j);
        return status;
    }
    *out = j;
    return TERN_OK;
}

void job_deliver(struct tern_job *j) {
    struct event_queue *q = &j->request->queue;
    if (q->at == q->n) return;
    mutex_lock(j->mutex);
    if (j->inbox.n == 0 && event_queue_move(&j->inbox, q)) {
        cond_broadcast(j->changed);
        if (j->notify) j->notify(j->notify_arg);
    }
    mutex_unlock(j->mutex);
}

// Under the job's mutex: the reader takes what there is. TERN_AGAIN: nothing yet. *last: the last event is due.
static enum tern_status events_take(struct tern_job *j, bool *last, struct tern_err *err) {
    *last = false;
    struct event_queue *rest = &j->request->queue;
    struct event_queue *from = j->inbox.n > 0 ? &j->inbox : j->ended && rest->n > rest->at ? rest : NULL;
    if (from)
        return event_queue_move(&j->out, from) ? TERN_OK
                                               : err_set(err, TERN_NO_MEMORY, "no memory for log-probabilities");
    if (!j->ended) return TERN_AGAIN;
    *last = true;
    return TERN_OK;
}

enum tern_status tern_job_next(struct tern_job *j, double timeout_s, struct tern_event *event, struct tern_err *err) {
    uint64_t end = timeout_s > 0 ? clock_ns() + ns_of(timeout_s) : 0;
    while (!event_queue_pop(&j->out, j->request->n_logprobs + 1, event)) {
        bool last;
        mutex_lock(j->mutex);
        enum tern_status status = events_take(j, &last, err);
        while (status == TERN_AGAIN && timeout_s != 0) {
            uint64_t now = clock_ns();
            if (timeout_s > 0 && now >= end) break;
            if (timeout_s > 0)
                cond_wait_ns(j->changed, j->mutex, end - now);
            else
                cond_wait(j->changed, j->mutex);
            status = events_take(j, &last, err);
        }
        mutex_unlock(j->mutex);
        if (status == TERN_AGAIN) return err_set(err, TERN_AGAIN, "no event yet");
        TRY(status);
        if (!last) continue;
        if (j->told) return err_set(err, TERN_INVALID_ARGUMENT, "the job is done");
        j->told = true;
        if (j->status != TERN_OK && err) *err = j->err;
        if (j->status == TERN_OK) *event = j->done;
        return j->status;
    }
    return TERN_OK;
}

void tern_job_notify(struct tern_job *j, void (*fn)(void *arg), void *arg) {
    mutex_lock(j->mutex);
    j->notify = fn;
    j->notify_arg = arg;
    mutex_unlock(j->mutex);
}

void tern_job_cancel(struct tern_job *j) {
    tern_request_cancel(j->request);
    mutex_lock(j->service->mutex);
    cond_signal(j->service->work);
    mutex_unlock(j->service->mutex);
}

void tern_job_free(struct tern_job *j) {
    if (!j) return;
    struct tern_service *s = j->service;
    tern_job_notify(j, NULL, NULL);
    tern_job_cancel(j);
    if (j->request->mask) { // its owner may free the constraint behind this call
        mutex_lock(j->mutex);
        while (!j->ended) cond_wait(j->changed, j->mutex);
        mutex_unlock(j->mutex);
    }
    mutex_lock(s->mutex);
    s->n_jobs--;
    bool orphan = --j->n_refs == 0;
    mutex_unlock(s->mutex);
    if (orphan) job_destroy(j);
}

enum tern_job_phase tern_job_state(const struct tern_job *j, int *queue_place) {
    mutex_lock(j->service->mutex);
    enum tern_job_phase phase = j->phase;
    int n = 0;
    if (phase == TERN_JOB_QUEUED)
        for (const struct tern_job *k = j->prev; k; k = k->prev) n++;
    mutex_unlock(j->service->mutex);
    if (queue_place) *queue_place = n;
    return phase;
}

bool tern_job_prompt_logprobs(const struct tern_job *j, size_t i, struct tern_logprob *out) {
    return tern_request_prompt_logprobs(j->request, i, out);
}

const int32_t *tern_job_ids(const struct tern_job *j, size_t *n) {
    *n = j->told ? j->request->answer.len : 0;
    return j->told ? j->request->answer.ids : NULL;
}
