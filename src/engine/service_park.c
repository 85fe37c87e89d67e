// Giving up one's place. An interactive job that finds all streams taken need not wait for the end of a batch job: one
// of these, the one that began last, is parked. Its session's state goes to memory of its own, the session to whoever
// comes; the job waits in front of its class, and goes on later as if nothing had been, since all else that its answer
// depends on (sampler, constraint, text told so far) is the request's.
//
// Batch jobs keep a quarter of the streams (SERVICE_BATCH_TURN), so a service of fewer has none that is sure; there the
// one that began in its turn while others waited keeps its place for SERVICE_KEEP_NS. Either way batch work goes on
// however many interactive jobs come.
#include "base/base.h"
#include "service_int.h"

struct service_parked {
    struct state_shape shape;
    uint64_t bytes;
    size_t at; // while it is filled
    uint8_t data[];
};

static enum tern_status parked_put(void *arg, const void *data, size_t len, struct tern_err *err) {
    struct service_parked *p = arg;
    (void)err;
    TERN_ASSERT(len <= p->bytes - p->at);
    memcpy(p->data + p->at, data, len);
    p->at += len;
    return TERN_OK;
}

void service_parked_free(struct tern_service *s, struct tern_job *j) {
    if (!j->parked) return;
    s->parked_bytes -= j->parked->bytes;
    mem_free(j->parked);
    j->parked = NULL;
}

// Copies the state. False: there is no room for it, and nothing has changed.
static bool state_keep(struct tern_service *s, struct tern_job *j) {
    const struct tern_session *t = j->session;
    struct state_shape shape = session_state_shape(t);
    uint64_t bytes;
    if (!state_shape_bytes(s->engine, &shape, &bytes) || bytes > s->options.park_ram_max - s->parked_bytes)
        return false;
    struct service_parked *p = mem_alloc(sizeof *p + (size_t)bytes);
    if (!p) return false;
    p->shape = shape;
    p->bytes = bytes;
    p->at = 0;
    mutex_lock(s->engine->mutex);
    enum tern_status status = session_state_put(t, parked_put, p, NULL);
    mutex_unlock(s->engine->mutex);
    if (status != TERN_OK) {
        mem_free(p);
        return false;
    }
    TERN_ASSERT(p->at == bytes);
    j->parked = p;
    s->parked_bytes += bytes;
    return true;
}

// The batch job that began last, if batch jobs have more than their share; NULL: nobody gives up a place.
static struct tern_job *victim_find(const struct tern_service *s) {
    struct tern_job *victim = NULL;
    uint64_t now = clock_ns();
    int n_batch = 0;
    for (int i = 0; i < s->n_running; i++) {
        struct tern_job *j = s->running[i];
        if (j->priority != TERN_PRIORITY_BATCH) continue;
        n_batch++;
        if (now >= j->keeps_until_ns) victim = j;
    }
    return n_batch > s->info.n_streams / SERVICE_BATCH_TURN ? victim : NULL;
}

bool service_park(struct tern_service *s) {
    struct tern_job *j = victim_find(s);
    if (!j || !state_keep(s, j)) return false;
    request_detach(j->request);
    service_running_remove(s, j);
    mutex_lock(s->mutex);
    j->phase = TERN_JOB_QUEUED;
    service_queue_push(s, j);
    s->n_at_work = s->n_running;
    s->info.n_parked++;
    mutex_unlock(s->mutex);
    return true;
}

enum tern_status service_unpark(struct tern_service *s, struct tern_job *j, struct tern_err *err) {
    mutex_lock(s->engine->mutex);
    enum tern_status status = session_state_take(j->session, &j->parked->shape, j->parked->data, err);
    mutex_unlock(s->engine->mutex);
    service_parked_free(s, j);
    return status == TERN_OK ? request_reattach(j->request, j->session, err) : status;
}
