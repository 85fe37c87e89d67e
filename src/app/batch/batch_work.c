// tern batch work: answers requests of a batch in Redis until it is told to stop. It may die at any point: what it held
// goes to another worker after --lease seconds without a sign of life, and a result counts once.
#include "base/base.h"
#include "batch.h"

#include <stdio.h>

#define N_HELD_MAX (2 * TERN_STREAMS_MAX + BATCH_BACKLOG)
#define BATCH_BACKLOG 64  // results that wait for Redis
#define BUSY_WAIT_S 0.05  // between looks for new requests while some run
#define IDLE_BLOCK_MS 500 // waiting for new requests while none run
#define DRAIN_S 30        // for running answers after the first signal

struct work {
    const struct command *c;
    struct batch_queue *q;
    struct batch_runner *runner;
    struct batch_job *begun; // told to Redis as held; by next_held
    struct batch_job *ready; // taken, not yet begun
    char held[N_HELD_MAX][BATCH_TAG_MAX];
    int n_held;
    enum tern_status status; // of what went wrong in a callback
    struct tern_err err;
    int64_t n_answered;
    struct buf line;
};

static void held_drop(struct work *w, const char *tag) {
    for (int i = 0; i < w->n_held; i++)
        if (strcmp(w->held[i], tag) == 0) {
            w->n_held--;
            memmove(w->held[i], w->held[w->n_held], BATCH_TAG_MAX);
            return;
        }
}

static enum tern_status finish(struct work *w, const char *tag, const char *custom_id, struct tern_err *err) {
    if (w->line.failed) return err_set(err, TERN_NO_MEMORY, "no memory for a result");
    // Without the line's end: collect puts it.
    return batch_queue_finish(w->q, tag, custom_id, (struct str){w->line.data, w->line.len - 1}, err);
}

// A request came. Replies are borrowed until the next command, so what is wrong with one is answered later, as a job
// without a body.
static void on_request(void *arg, const char *tag, struct str line, int64_t n_deliveries) {
    struct work *w = arg;
    struct batch_request r;
    struct tern_err err = {0};
    bool poison = n_deliveries > BATCH_DELIVERIES_MAX;
    enum tern_status status = batch_request_read(&r, line, &err);
    struct batch_job *j = batch_job_create(&r, tag);
    if (!j || w->n_held == N_HELD_MAX) { // it stays ours until the lease is over, then somebody takes it
        batch_job_free(j);
        return;
    }
    if (status != TERN_OK || poison) {
        j->status = -1;
        buf_puts(&j->answer, poison ? "given up: too many workers ended while they worked on it" : err.message);
    }
    snprintf(w->held[w->n_held++], BATCH_TAG_MAX, "%s", tag);
    j->next = w->ready;
    w->ready = j;
}

// Begins what was taken; what cannot be answered gets its result here.
static enum tern_status begin(struct work *w, struct tern_err *err) {
    while (w->ready) {
        struct batch_job *j = w->ready;
        w->ready = j->next;
        enum tern_status status;
        if (j->status == -1) {
            buf_clear(&w->line);
            batch_failure_put(&w->line, j->custom_id, j->digest, j->answer.data ? j->answer.data : "");
            status = finish(w, j->tag, j->custom_id, err);
            held_drop(w, j->tag);
            batch_job_free(j);
        } else {
            status = batch_runner_submit(w->runner, j, err);
            if (status != TERN_OK) batch_job_free(j);
        }
        TRY(status);
    }
    return TERN_OK;
}

static enum tern_status results_send(struct work *w, double wait_s, struct tern_err *err) {
    for (struct batch_job *j; (j = batch_runner_take(w->runner, wait_s)); wait_s = 0) {
        enum tern_status status = TERN_OK;
        if (batch_job_again(j)) {
            status = batch_runner_submit(w->runner, j, err);
        } else {
            buf_clear(&w->line);
            batch_job_put(&w->line, j);
            status = finish(w, j->tag, j->custom_id, err);
            if (status == TERN_OK) held_drop(w, j->tag);
            w->n_answered += status == TERN_OK;
            batch_job_free(j);
            j = NULL;
        }
        if (status != TERN_OK) {
            batch_job_free(j);
            return status;
        }
    }
    return TERN_OK;
}

static enum tern_status held_beat(struct work *w, int64_t idle_ms, struct tern_err *err) {
    const char *tags[N_HELD_MAX];
    for (int i = 0; i < w->n_held; i++) tags[i] = w->held[i];
    return w->n_held > 0 ? batch_queue_beat(w->q, tags, w->n_held, idle_ms, err) : TERN_OK;
}

// One turn. *idle: nothing runs and nothing came.
static enum tern_status turn(struct work *w, int64_t lease_ms, uint64_t *beat_ns, bool *idle, struct tern_err *err) {
    uint64_t now = clock_ns();
    int room = batch_runner_room(w->runner);
    bool due = (double)(now - *beat_ns) * 1e-6 > (double)lease_ms / 3;
    if (due) {
        TRY(held_beat(w, 0, err));
        if (room > 0) TRY(batch_queue_claim(w->q, room, lease_ms, on_request, w, err));
        *beat_ns = now;
        TRY(begin(w, err));
        room = batch_runner_room(w->runner);
    }
    bool busy = batch_runner_busy(w->runner) > 0;
    if (room > 0) TRY(batch_queue_take(w->q, room, busy ? 0 : MIN(IDLE_BLOCK_MS, lease_ms / 3), on_request, w, err));
    TRY(begin(w, err));
    *idle = batch_runner_busy(w->runner) == 0;
    return results_send(w, BUSY_WAIT_S, err);
}

// Is every submitted request answered, whoever did it?
static bool batch_over(struct work *w) {
    struct batch_counts n;
    return batch_queue_count(w->q, &n, NULL) == TERN_OK && n.n_submitted > 0 && n.n_results >= n.n_submitted;
}

static void stop(struct work *w, int64_t lease_ms) {
    struct tern_err err = {0};
    uint64_t until = clock_ns() + (uint64_t)DRAIN_S * 1000000000u, beat_ns = clock_ns();
    fprintf(stderr, "stopping: %d answers at work\n", batch_runner_busy(w->runner));
    batch_queue_patience(w->q, 2);
    while (batch_runner_busy(w->runner) > 0 && clock_ns() < until && net_terminate_wait(1, 0) < 2) {
        if (results_send(w, 0.1, &err) != TERN_OK) break;
        if ((double)(clock_ns() - beat_ns) * 1e-6 > (double)lease_ms / 3) {
            if (held_beat(w, 0, &err) != TERN_OK) break;
            beat_ns = clock_ns();
        }
    }
    // What is left is free for others at once.
    if (held_beat(w, lease_ms + 1, &err) == TERN_OK && w->n_held == 0) batch_queue_leave(w->q, &err);
}

int batch_work(const struct command *c, const struct batch_opts *o) {
    static struct work w; // its table of what is held is large
    struct tern_err err = {0};
    int64_t lease_ms = (int64_t)((double)o->lease_s * 1e3);
    w = (struct work){.c = c};
    buf_init(&w.line, (size_t)2 * BATCH_LINE_BYTES_MAX);
    if (batch_queue_open(&w.q, o->redis, o->name, &err) != TERN_OK) return fail_told(c, &err);
    int code = batch_runner_open(c, &w.runner, o);
    if (code == 0) {
        net_terminate_watch();
        batch_queue_patience(w.q, -1);
        fprintf(stderr, "working on batch %s\n", o->name);
        uint64_t beat_ns = 0;
        bool idle = false;
        enum tern_status status = TERN_OK;
        while (status == TERN_OK && net_terminate_wait(0, 0) == 0 && !(o->once && idle && batch_over(&w)))
            status = turn(&w, lease_ms, &beat_ns, &idle, &err);
        if (status != TERN_OK && net_terminate_wait(0, 0) == 0) code = fail_told(c, &err);
        stop(&w, lease_ms);
        fprintf(stderr, "%lld requests answered\n", (long long)w.n_answered);
    }
    while (w.ready) {
        struct batch_job *j = w.ready;
        w.ready = j->next;
        batch_job_free(j);
    }
    batch_runner_close(w.runner);
    batch_queue_close(w.q);
    buf_release(&w.line);
    return code;
}
