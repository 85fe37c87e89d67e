// One step of all that is at work: a row for every stream that answers, and beside them prompt rows of those that
// begin. Half of the prompt rows go to the prompt that came first, so that it is never overtaken for ever, the rest to
// the shortest, so that a question of a few words need not wait for a book.
//
// When no prompt is at work, streams may have drafted rows too (service_draft.c).
#include "base/base.h"
#include "service_int.h"

bool job_is_over(const struct tern_job *j, uint64_t now) {
    return atomic_load_explicit(&j->request->cancelled, memory_order_relaxed) ||
           (j->deadline_ns > 0 && now >= j->deadline_ns);
}

// A job that waits gets a free session: a new one begins, a parked one goes on. False: none is due.
static bool begin_one(struct tern_service *s, bool batch) {
    bool turn;
    mutex_lock(s->mutex);
    struct tern_job *j = service_queue_take(s, batch, &turn);
    if (j) {
        j->phase = j->request->answer.len > 0 ? TERN_JOB_ANSWER : TERN_JOB_PROMPT;
        s->n_at_work = s->n_running + 1;
    }
    mutex_unlock(s->mutex);
    if (!j) return false;
    struct tern_err err = {0};
    j->session = s->sessions[--s->n_free];
    s->running[s->n_running++] = j;
    enum tern_status status;
    if (turn) j->keeps_until_ns = clock_ns() + SERVICE_KEEP_NS;
    if (j->parked) {
        status = service_unpark(s, j, &err);
    } else {
        j->request->began_ns = clock_ns();
        status = service_prefix_restore(s, j, &err);
        if (status == TERN_OK) status = request_attach(j->request, j->session, true, false, &err);
    }
    if (status != TERN_OK) service_end(s, j, status, &err);
    return true;
}

void service_begin(struct tern_service *s) {
    while (s->n_free > 0 && begin_one(s, true)) {
    }
    if (s->n_free > 0 || s->options.park_ram_max == 0) return;
    mutex_lock(s->mutex);
    bool wants = service_queue_has_interactive(s) && !s->closing;
    mutex_unlock(s->mutex);
    if (wants && service_park(s)) begin_one(s, false); // one between two steps
}

// -------------------------------------------------------------------------------------------------------------- rows

struct step_rows {
    struct request_rows rows[TERN_STREAMS_MAX];
    struct tern_job *jobs[TERN_STREAMS_MAX];
    int n, n_streams, n_prompt_rows;
    bool show;   // the prefix cache wants states between rows
    bool scores; // a prompt is scored, which takes its own time
};

static void rows_put(struct tern_service *s, struct step_rows *t, struct tern_job *j, int n_max) {
    struct request_rows *rows = &t->rows[t->n];
    request_rows_next(rows, j->request, n_max);
    t->jobs[t->n++] = j;
    t->scores |= rows->n_out > 1;
    t->show |= service_prefix_wants_rows(s, j->session->len, rows->n);
    if (j->request->phase == REQUEST_ANSWER)
        t->n_streams++;
    else
        t->n_prompt_rows += rows->n;
}

static size_t prompt_left(const struct tern_job *j) { return j->request->prompt.len - j->request->prompt_at; }

static void prompts_put(struct tern_service *s, struct step_rows *t) {
    struct tern_job *by_left[TERN_STREAMS_MAX];
    int n = 0, room = s->engine->window - t->n_streams;
    int budget = s->options.prompt_rows_step > 0 && t->n_streams > 0 ? MIN(s->options.prompt_rows_step, room)
                                                                     : service_pace_rows(&s->pace, t->n_streams, room);
    for (int i = 0; i < s->n_running; i++) {
        struct tern_job *j = s->running[i];
        if (j->request->phase != REQUEST_PROMPT) continue;
        int at = n++; // behind the first, by what is left
        for (; at > 1 && prompt_left(by_left[at - 1]) > prompt_left(j); at--) by_left[at] = by_left[at - 1];
        by_left[at] = j;
    }
    if (n == 0) return;
    // Each has a row with output at the end; what is left of these rows goes to prompts that are scored.
    int out_room = request_out_rows_max(s->engine) - t->n_streams - n;
    if (t->n_streams > 0 || n > 1) out_room = MIN(out_room, SERVICE_SCORE_ROWS);
    size_t others = 0;
    for (int i = 1; i < n; i++) others += prompt_left(by_left[i]);
    int first = MAX(budget - (int)MIN(others, (size_t)budget), (budget + 1) / 2);
    for (int i = 0; i < n && budget > 0; i++) {
        const bool scored = by_left[i]->request->scores != NULL;
        const int n_max = i == 0 ? first : budget;
        rows_put(s, t, by_left[i], scored ? MIN(n_max, 1 + out_room) : n_max);
        budget -= t->rows[t->n - 1].n;
        if (scored) out_room -= t->rows[t->n - 1].n - 1;
    }
}

static void rows_gather(struct tern_service *s, struct step_rows *t) {
    *t = (struct step_rows){0};
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i]->request->phase == REQUEST_ANSWER) rows_put(s, t, s->running[i], 1);
    prompts_put(s, t);
}

// --------------------------------------------------------------------------------------------------------------- step

static void counts_add(struct tern_service *s, const struct step_rows *t, uint64_t ns) {
    uint64_t before = s->step_end_ns;
    s->step_end_ns = clock_ns();
    mutex_lock(s->mutex);
    s->info.n_steps++;
    s->info.step_ns += ns;
    // A stream of this step had its last token, or its first, in the step before.
    if (t->n_streams > 0) s->info.token_wait_ns_max = MAX(s->info.token_wait_ns_max, s->step_end_ns - before);
    s->info.n_step_prompt_rows += (uint64_t)t->n_prompt_rows;
    for (int i = 0; i < t->n; i++) {
        s->info.n_step_rows += (uint64_t)t->rows[i].n;
        t->jobs[i]->tenant->served += (uint64_t)t->rows[i].n;
        if (t->jobs[i]->request->phase == REQUEST_ANSWER) t->jobs[i]->phase = TERN_JOB_ANSWER;
    }
    mutex_unlock(s->mutex);
}

void service_took(struct tern_service *s, struct tern_job *j, bool was_prompt, enum tern_status status,
                  const struct tern_err *err) {
    struct tern_request *r = j->request;
    if (status == TERN_OK && was_prompt && r->phase == REQUEST_PROMPT &&
        !event_queue_put_progress(&r->queue, r->usage.n_cached, r->usage.n_cached + (int64_t)r->prompt_at,
                                  r->usage.n_prompt))
        r->queue.out_of_room = false; // progress is not needed
    if (status != TERN_OK || r->phase == REQUEST_FINISHED)
        service_end(s, j, status, err);
    else
        job_deliver(j);
}

static void batch_run(struct tern_service *s) {
    struct step_rows t;
    enum tern_status status[TERN_STREAMS_MAX];
    struct tern_err err = {0};
    uint32_t want;
    rows_gather(s, &t);
    mutex_lock(s->engine->mutex);
    uint64_t start = clock_ns();
    enum tern_status ran = request_rows_run(s->engine, t.rows, t.n, t.show, &want, &err);
    for (int i = 0, row = 0; i < t.n; row += t.rows[i++].n) {
        if (ran == TERN_OK) service_prefix_store(s, t.jobs[i], t.rows[i].n, t.show ? row : -1);
        status[i] = ran == TERN_OK ? request_rows_choose(&t.rows[i], want, &t.jobs[i]->err) : ran;
        if (ran != TERN_OK) t.jobs[i]->err = err;
    }
    uint64_t ns = clock_ns() - start;
    mutex_unlock(s->engine->mutex);
    if (ran == TERN_OK && !t.scores) service_pace_learn(&s->pace, t.n_streams, t.n_prompt_rows, ns);
    bool was_prompt[TERN_STREAMS_MAX];
    for (int i = 0; i < t.n; i++) {
        was_prompt[i] = t.jobs[i]->request->phase == REQUEST_PROMPT;
        if (status[i] == TERN_OK) status[i] = request_rows_take(&t.rows[i], &t.jobs[i]->err);
    }
    counts_add(s, &t, ns);
    // What it costs to go without drafts, for those who choose.
    if (t.n == 1 && !was_prompt[0] && status[0] == TERN_OK) request_draft_plain(t.jobs[0]->request, ns);
    if (t.n_streams > 1 && t.n_prompt_rows == 0 && ran == TERN_OK) service_draft_plain(s, t.n_streams, ns);
    for (int i = 0; i < t.n; i++) service_took(s, t.jobs[i], was_prompt[i], status[i], &t.jobs[i]->err);
}

static void overs_end(struct tern_service *s) {
    uint64_t now = clock_ns();
    for (int i = s->n_running - 1; i >= 0; i--) {
        struct tern_job *j = s->running[i];
        if (!job_is_over(j, now)) continue;
        enum tern_status status = request_finish(j->request, TERN_FINISH_CANCELLED, false, &j->err);
        service_end(s, j, status, &j->err);
    }
}

void service_step(struct tern_service *s) {
    overs_end(s);
    if (s->n_running > 0 && !service_draft_run(s)) batch_run(s);
}
