// The service: its thread and its life. The thread sleeps while nothing waits or runs; else it gives free sessions to
// waiting jobs and runs one step of all at work, again and again, so a job begins, is cancelled or ends between any two
// steps.
#include "base/base.h"
#include "service_int.h"

void tern_service_options_default(struct tern_service_options *o) {
    *o = (struct tern_service_options){.n_queue_max = 512, .park_ram_max = SERVICE_PARK_RAM};
}

static enum tern_status options_check(const struct tern_engine *e, const struct tern_service_options *o,
                                      struct tern_err *err) {
    int n_max = MIN(MIN(TERN_STREAMS_MAX, ENGINE_OUT_ROWS_MAX), MIN(e->n_sessions, e->window));
    if (o->n_streams < 0 || o->n_streams > n_max)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "n_streams must be 1 to %d, not %d: at most %d, the engine's sessions (%d) and its window (%d)",
                       n_max, o->n_streams, TERN_STREAMS_MAX, e->n_sessions, e->window);
    if (o->n_queue_max < 1 || o->n_queue_max > TERN_QUEUE_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "n_queue_max must be 1 to %d, not %d", TERN_QUEUE_MAX,
                       o->n_queue_max);
    if (o->n_jobs_key_max < 0 || o->prompt_rows_step < 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "n_jobs_key_max and prompt_rows_step must not be negative");
    if (o->prefix_dir && (o->prefix_ram_max == 0 || o->prefix_disk_max == 0))
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "a prefix cache on disk needs prefix_disk_max, and prefix_ram_max for what is read from it");
    return TERN_OK;
}

// Ends waiting jobs that are over before they began.
static void waiting_look(struct tern_service *s) {
    uint64_t now = clock_ns();
    for (struct tern_job *j = s->first, *next; j; j = next) {
        next = j->next;
        if (j->staging || (!s->closing && !job_is_over(j, now))) continue;
        service_queue_remove(s, j);
        mutex_unlock(s->mutex);
        enum tern_status status = request_finish(j->request, TERN_FINISH_CANCELLED, false, &j->err);
        service_end(s, j, status, &j->err);
        mutex_lock(s->mutex);
        next = s->first; // what came next may be gone
    }
}

// Waits for something to do; false: the service closes and nothing is left.
static bool work_wait(struct tern_service *s) {
    mutex_lock(s->mutex);
    // Jobs whose blocks are being read are no work yet; whoever ends the reading wakes us.
    while (s->n_running == 0 && s->n_waiting == s->n_staging && (!s->closing || s->n_staging > 0))
        cond_wait(s->work, s->mutex);
    if (s->n_waiting > 0) waiting_look(s);
    if (s->closing)
        for (int i = 0; i < s->n_running; i++) tern_request_cancel(s->running[i]->request);
    bool goes_on = !s->closing || s->n_running > 0 || s->n_waiting > 0;
    mutex_unlock(s->mutex);
    return goes_on;
}

static void service_main(void *arg) {
    struct tern_service *s = arg;
    while (work_wait(s)) {
        service_begin(s);
        service_step(s);
    }
}

void service_running_remove(struct tern_service *s, struct tern_job *j) {
    if (j->session) s->sessions[s->n_free++] = j->session;
    j->session = NULL;
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i] == j) {
            memmove(s->running + i, s->running + i + 1, (size_t)(s->n_running - i - 1) * sizeof s->running[0]);
            s->n_running--;
            return;
        }
}

void service_end(struct tern_service *s, struct tern_job *j, enum tern_status status, const struct tern_err *err) {
    struct tern_event done = {0};
    if (status == TERN_OK)
        request_done(j->request, &done);
    else
        request_failed(j->request);
    service_running_remove(s, j);
    service_parked_free(s, j);
    const struct tern_usage *u = &j->request->usage;
    mutex_lock(s->mutex);
    struct tern_service_info *c = &s->info;
    *(status != TERN_OK ? &c->n_failed : done.finish == TERN_FINISH_CANCELLED ? &c->n_cancelled : &c->n_done) += 1;
    c->n_prompt += (uint64_t)u->n_prompt;
    c->n_cached += (uint64_t)u->n_cached;
    c->n_answer += (uint64_t)j->request->answer.len;
    c->n_rounds += (uint64_t)u->n_rounds;
    c->n_drafted += (uint64_t)u->n_drafted;
    c->n_accepted += (uint64_t)u->n_accepted;
    j->phase = TERN_JOB_DONE;
    s->n_at_work = s->n_running;
    mutex_unlock(s->mutex);
    mutex_lock(j->mutex);
    if (status != TERN_OK && err != &j->err) j->err = *err;
    j->status = status;
    j->done = done;
    j->ended = true;
    cond_broadcast(j->changed);
    if (j->notify) j->notify(j->notify_arg);
    mutex_unlock(j->mutex);
    mutex_lock(s->mutex);
    bool orphan = service_job_drop(s, j);
    mutex_unlock(s->mutex);
    if (orphan) job_destroy(j);
}

// ------------------------------------------------------------------------------------------------------- open, close

static void service_free(struct tern_service *s) {
    service_prefix_close(s);
    for (int i = 0; i < s->n_free; i++) tern_session_close(s->sessions[i]);
    mutex_free(s->mutex);
    cond_free(s->work);
    mem_free(s);
}

enum tern_status tern_service_open(struct tern_service **out, struct tern_engine *e,
                                   const struct tern_service_options *o, struct tern_err *err) {
    TRY(options_check(e, o, err));
    struct tern_service *s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(err, TERN_NO_MEMORY, "no memory for a service");
    s->engine = e;
    s->options = *o;
    s->mutex = mutex_create();
    s->work = cond_create();
    enum tern_status status = TERN_OK;
    if (!s->mutex || !s->work) status = err_set(err, TERN_NO_MEMORY, "no memory for a service");
    mutex_lock(e->mutex);
    int n_free = e->n_sessions - e->n_open;
    mutex_unlock(e->mutex);
    if (o->n_streams == 0) s->options.n_streams = MAX(MIN(MIN(n_free, TERN_STREAMS_MAX), e->window), 1);
    while (status == TERN_OK && s->n_free < s->options.n_streams) {
        status = tern_session_open(&s->sessions[s->n_free], e, err);
        if (status == TERN_OK) s->n_free++;
    }
    s->info.n_streams = s->n_free;
    if (status == TERN_OK) status = service_prefix_open(s, err);
    if (status == TERN_OK) status = os_thread_create(&s->thread, service_main, s, err);
    if (status != TERN_OK) {
        service_free(s);
        return status;
    }
    *out = s;
    return TERN_OK;
}

void tern_service_close(struct tern_service *s) {
    if (!s) return;
    mutex_lock(s->mutex);
    s->closing = true;
    cond_signal(s->work);
    mutex_unlock(s->mutex);
    os_thread_join(s->thread);
    if (s->n_jobs > 0) TERN_BUG("a service was closed with %d jobs that are not freed", s->n_jobs);
    service_free(s);
}

void tern_service_drain(struct tern_service *s) {
    mutex_lock(s->mutex);
    s->draining = true;
    mutex_unlock(s->mutex);
}

void tern_service_info(const struct tern_service *s, struct tern_service_info *out) {
    mutex_lock(s->mutex);
    *out = s->info;
    out->n_running = s->n_at_work;
    out->n_waiting = s->n_waiting;
    out->draining = s->draining || s->closing;
    mutex_unlock(s->mutex);
    if (!s->prefix) return;
    struct prefix_info p;
    prefix_cache_info(s->prefix, &p);
    out->prefix_bytes = p.ram_bytes;
    out->prefix_disk_bytes = p.disk_bytes;
}
