// Who waits and who is next. Interactive jobs go first, but every SERVICE_BATCH_TURN-th job that begins is a batch one;
// within a class the tenant that was served least so far is next, and of its jobs the one that came first. So nobody
// waits for ever, and a tenant with many jobs delays another by no more than those that already run.
#include "base/base.h"
#include "service_int.h"

static enum tern_status tenant_get(struct service_tenant **out, struct tern_service *s, struct tern_str name,
                                   struct tern_err *err) {
    for (struct service_tenant *t = s->tenants; t; t = t->next)
        if (t->len == name.len && (name.len == 0 || memcmp(t->name, name.data, name.len) == 0)) {
            *out = t;
            return TERN_OK;
        }
    struct service_tenant *t = mem_calloc(1, sizeof *t);
    char *copy = t ? mem_dup(name.len ? name.data : "", name.len) : NULL;
    if (!copy) {
        mem_free(t);
        return err_set(err, TERN_NO_MEMORY, "no memory for a job");
    }
    *t = (struct service_tenant){.next = s->tenants, .name = copy, .len = name.len, .served = s->served_floor};
    s->tenants = t;
    *out = t;
    return TERN_OK;
}

static void tenant_drop(struct tern_service *s, struct service_tenant *t) {
    if (--t->n_jobs > 0) return;
    struct service_tenant **at = &s->tenants;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    mem_free(t->name);
    mem_free(t);
}

enum tern_status service_queue_put(struct tern_service *s, struct tern_job *j, struct tern_str tenant,
                                   struct tern_err *err) {
    const struct tern_service_options *o = &s->options;
    struct service_tenant *t = NULL;
    if (s->draining || s->closing)
        return err_set(err, TERN_AGAIN, "this service takes no more jobs: it is being closed");
    if (s->n_waiting >= o->n_queue_max)
        return err_set(err, TERN_AGAIN, "%d jobs wait already, as many as the queue holds; try again later",
                       s->n_waiting);
    TRY(tenant_get(&t, s, tenant, err));
    if (o->n_jobs_key_max > 0 && t->n_jobs >= o->n_jobs_key_max)
        return err_set_at(err, TERN_AGAIN, 0,
                          "%d jobs of this key wait or run already, as many as its quota allows; try again later",
                          t->n_jobs);
    t->n_jobs++;
    j->tenant = t;
    j->prev = s->last;
    *(s->last ? &s->last->next : &s->first) = j;
    s->last = j;
    s->n_waiting++;
    return TERN_OK;
}

void service_queue_remove(struct tern_service *s, struct tern_job *j) {
    *(j->prev ? &j->prev->next : &s->first) = j->next;
    *(j->next ? &j->next->prev : &s->last) = j->prev;
    j->next = j->prev = NULL;
    s->n_waiting--;
}

void service_queue_push(struct tern_service *s, struct tern_job *j) {
    j->prev = NULL;
    j->next = s->first;
    *(s->first ? &s->first->prev : &s->last) = j;
    s->first = j;
    s->n_waiting++;
}

bool service_queue_has_interactive(const struct tern_service *s) {
    for (const struct tern_job *j = s->first; j; j = j->next)
        if (!j->staging && j->priority == TERN_PRIORITY_INTERACTIVE) return true;
    return false;
}

struct tern_job *service_queue_take(struct tern_service *s, bool batch, bool *turn) {
    struct tern_job *best[2] = {NULL, NULL};
    for (struct tern_job *j = s->first; j; j = j->next) {
        if (j->staging) continue;
        struct tern_job **b = &best[j->priority == TERN_PRIORITY_BATCH];
        if (!*b || j->tenant->served < (*b)->tenant->served) *b = j;
    }
    *turn = batch && best[0] && best[1] && s->n_begun % SERVICE_BATCH_TURN == SERVICE_BATCH_TURN - 1;
    struct tern_job *j = best[0] && !*turn ? best[0] : batch ? best[1] : NULL;
    if (!j) return NULL;
    service_queue_remove(s, j);
    s->n_begun++;
    s->served_floor = MAX(s->served_floor, j->tenant->served);
    return j;
}

bool service_job_drop(struct tern_service *s, struct tern_job *j) {
    tenant_drop(s, j->tenant);
    j->tenant = NULL;
    return --j->n_refs == 0;
}
