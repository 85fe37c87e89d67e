// Answers requests in this process: a `serve` without a wire, whose routes, checks and answers are those of clients.
// Its jobs have batch priority. Twice as many requests are begun as streams run, so that prompts are rendered and
// checked while others are answered and no stream waits for the next one.
#include "base/base.h"
#include "batch.h"
#include "app/serve/serve.h"

#include <stdio.h>

#define PREFIX_RAM ((uint64_t)256 << 20) // bytes for beginnings that requests share
#define N_WORKERS 2                      // threads that read requests and write answers

struct batch_call {         // net_request.user
    struct serve_call call; // first: what routes know of it
    struct batch_job *job;
};
struct batch_runner {
    struct serve s;
    struct net_server *net;
    struct os_mutex *lock; // of what follows
    struct os_cond *over_cond;
    struct batch_job *over;
    int n_begun, n_slots;
};

struct batch_job *batch_job_create(const struct batch_request *r, const char *tag) {
    struct batch_job *j = mem_calloc(1, sizeof *j);
    if (!j) return NULL;
    memcpy(j->custom_id, r->custom_id, sizeof j->custom_id);
    memcpy(j->url, r->url, sizeof j->url);
    memcpy(j->digest, r->digest, sizeof j->digest);
    snprintf(j->tag, sizeof j->tag, "%s", tag);
    buf_init(&j->body, r->body.len);
    buf_init(&j->answer, BATCH_LINE_BYTES_MAX);
    if (buf_put(&j->body, r->body.data, r->body.len)) return j;
    batch_job_free(j);
    return NULL;
}

void batch_job_free(struct batch_job *j) {
    if (!j) return;
    buf_release(&j->body);
    buf_release(&j->answer);
    mem_free(j);
}

void batch_job_put(struct buf *out, const struct batch_job *j) {
    if (j->answer.failed || j->answer.len == 0)
        batch_failure_put(out, j->custom_id, j->digest, "the answer is larger than a line may be, or had no memory");
    else
        batch_result_put(out, j->custom_id, j->digest, j->status, j->request_id, buf_str(&j->answer));
}

// What the request itself causes is below 500 and not 429: the same again would give the same.
bool batch_job_again(const struct batch_job *j) {
    return (j->status >= 500 || j->status == 429 || j->status == 0) && j->n_tries < BATCH_TRIES_MAX;
}

static void on_handle(void *arg, struct net_request *r) {
    struct batch_runner *b = arg;
    struct batch_call *call = r->user;
    for (int i = 0; i < serve_n_routes && !call->call.route; i++)
        if (str_eqz(r->path, serve_routes[i].path) && str_eqz(r->method, serve_routes[i].method))
            call->call.route = &serve_routes[i];
    if (call->call.route)
        call->call.route->handle(&b->s, r);
    else
        serve_failf(r, 404, NULL, "unknown_route", "no route of this tern");
}

static void on_end(void *arg, struct net_request *r, const struct net_outcome *o) {
    struct batch_runner *b = arg;
    struct batch_call *call = r->user;
    struct batch_job *j = call->job;
    struct str answer = net_local_answer(r);
    j->status = o->status;
    buf_clear(&j->answer);
    if (answer.len > 0) buf_put(&j->answer, answer.data, answer.len);
    snprintf(j->request_id, sizeof j->request_id, "%s", call->call.id);
    j->n_prompt = MAX(call->call.n_prompt, 0);
    j->n_answer = MAX(call->call.n_answer, 0);
    mem_free(call);
    mutex_lock(b->lock);
    j->next = b->over;
    b->over = j;
    cond_signal(b->over_cond);
    mutex_unlock(b->lock);
}

int batch_runner_open(const struct command *c, struct batch_runner **out, const struct batch_opts *o) {
    struct tern_err err = {0};
    struct batch_runner *b = mem_calloc(1, sizeof *b);
    if (!b) return err_set(&err, TERN_NO_MEMORY, "no memory to start"), fail_told(c, &err);
    b->s.o = (struct serve_opts){
        .n_streams = o->n_streams, .n_queue = 2 * o->n_streams * SERVE_CHOICES_MAX, .aliases = o->aliases};
    b->s.o.prefix_ram = MIN(PREFIX_RAM, os_ram_available() / 8);
    b->s.model = o->model;
    b->s.sample = o->sample;
    b->s.priority = TERN_PRIORITY_BATCH;
    b->s.lock = mutex_create();
    b->s.begin_s = clock_wall_s();
    b->s.begin_ns = clock_ns();
    b->lock = mutex_create();
    b->over_cond = cond_create();
    b->n_slots = 2 * o->n_streams;
    snprintf(b->s.fingerprint, sizeof b->s.fingerprint, "tern-%.50s", tern_version());
    int code = 0;
    const struct net_handler h = {.arg = b, .handle = on_handle, .fault = serve_gate_fault, .end = on_end};
    if (!b->s.lock || !b->lock || !b->over_cond) {
        err_set(&err, TERN_NO_MEMORY, "no memory to start");
        code = fail_told(c, &err);
    }
    if (code == 0) {
        serve_model_id_set(&b->s);
        code = serve_model_open(c, &b->s);
    }
    if (code == 0 && net_local_open(&b->net, N_WORKERS, &h, &err) != TERN_OK) code = fail_told(c, &err);
    if (code == 0)
        *out = b;
    else
        batch_runner_close(b);
    return code;
}

void batch_runner_close(struct batch_runner *b) {
    if (!b) return;
    if (b->net) batch_runner_cancel(b);
    net_local_close(b->net);
    while (b->over) {
        struct batch_job *j = b->over;
        b->over = j->next;
        batch_job_free(j);
    }
    serve_models_close(&b->s);
    mutex_free(b->s.lock);
    mutex_free(b->lock);
    cond_free(b->over_cond);
    mem_free(b);
}

int batch_runner_room(const struct batch_runner *b) { return b->n_slots - b->n_begun; }
int batch_runner_busy(const struct batch_runner *b) { return b->n_begun; }

enum tern_status batch_runner_submit(struct batch_runner *b, struct batch_job *j, struct tern_err *err) {
    struct batch_call *call = mem_calloc(1, sizeof *call);
    if (!call) return err_set(err, TERN_NO_MEMORY, "no memory for a request");
    call->job = j;
    call->call.n_prompt = -1;
    serve_id_make(call->call.id, sizeof call->call.id, "req_");
    j->n_tries++;
    enum tern_status status = net_local_request(b->net, "POST", j->url, buf_str(&j->body), call, err);
    if (status == TERN_OK)
        b->n_begun++;
    else
        mem_free(call);
    return status;
}

struct batch_job *batch_runner_take(struct batch_runner *b, double wait_s) {
    if (b->n_begun == 0) return NULL;
    uint64_t until = clock_ns() + (uint64_t)(wait_s * 1e9);
    mutex_lock(b->lock);
    for (uint64_t now = clock_ns(); !b->over && now < until; now = clock_ns())
        cond_wait_ns(b->over_cond, b->lock, until - now);
    struct batch_job *j = b->over;
    if (j) b->over = j->next;
    mutex_unlock(b->lock);
    if (j) b->n_begun--;
    return j;
}

void batch_runner_cancel(struct batch_runner *b) {
    mutex_lock(b->s.lock);
    b->s.is_draining = true;
    for (struct serve_answer *a = b->s.answers; a; a = a->next)
        for (int i = 0; i < a->n_choices; i++) tern_job_cancel(a->choices[i].job);
    mutex_unlock(b->s.lock);
}
