// tern batch INPUT: the whole batch in this process.
#include "base/base.h"
#include "batch.h"

#include <stdio.h>

#define WAIT_S 0.2

struct run {
    const struct command *c;
    struct batch_input in;
    struct batch_output out;
    struct batch_runner *runner;
    struct progress bar;
    uint32_t n_next;                        // entries looked at
    uint64_t n_reused, n_answers, n_errors; // errors: answers with another status than 200
    int64_t n_prompt_tokens, n_answer_tokens;
    struct batch_job *again; // to be submitted once more
    struct buf lines;        // results not yet written
    uint64_t begin_ns;
};

static enum tern_status reuse(struct run *r, struct tern_err *err) {
    for (uint32_t i = 0; i < r->in.table.n; i++) {
        struct batch_entry *e = &r->in.table.entries[i];
        const struct batch_entry *done = batch_table_find(&r->out.table, e->custom_id);
        if (!done) continue;
        if (strcmp(done->digest, e->digest) != 0)
            return err_set(err, TERN_MISMATCH,
                           "%s holds the answer to another request under the custom_id '%.60s'; name another output",
                           r->out.path, e->custom_id);
        e->is_done = true;
        r->n_reused++;
    }
    return TERN_OK;
}

// The next job: one that is to be tried again, else of the next entry that is not done. NULL: none is left.
static enum tern_status job_next(struct run *r, struct batch_job **out, struct tern_err *err) {
    *out = r->again;
    if (*out) {
        r->again = (*out)->next;
        return TERN_OK;
    }
    while (r->n_next < r->in.table.n && r->in.table.entries[r->n_next].is_done) r->n_next++;
    if (r->n_next == r->in.table.n) return TERN_OK;
    struct batch_request request;
    TRY(batch_request_read(&request, batch_input_line(&r->in, &r->in.table.entries[r->n_next++]), err));
    *out = batch_job_create(&request, "");
    return *out ? TERN_OK : err_set(err, TERN_NO_MEMORY, "no memory for a request");
}

static enum tern_status fill(struct run *r, struct tern_err *err) {
    while (batch_runner_room(r->runner) > 0) {
        struct batch_job *j;
        TRY(job_next(r, &j, err));
        if (!j) return TERN_OK;
        enum tern_status status = batch_runner_submit(r->runner, j, err);
        if (status == TERN_OK) continue;
        batch_job_free(j);
        return status;
    }
    return TERN_OK;
}

// Takes what is over, waiting for the first, and writes its results.
static enum tern_status drain(struct run *r, struct tern_err *err) {
    double wait = WAIT_S;
    buf_clear(&r->lines);
    for (struct batch_job *j; (j = batch_runner_take(r->runner, wait)); wait = 0) {
        if (batch_job_again(j)) {
            j->next = r->again;
            r->again = j;
            continue;
        }
        batch_job_put(&r->lines, j);
        r->n_answers++;
        r->n_errors += j->status != 200;
        r->n_prompt_tokens += j->n_prompt;
        r->n_answer_tokens += j->n_answer;
        batch_job_free(j);
        if (r->lines.len > BATCH_LINE_BYTES_MAX) break;
    }
    if (r->lines.failed) return err_set(err, TERN_NO_MEMORY, "no memory for the results");
    if (r->lines.len > 0) TRY(batch_output_append(&r->out, buf_str(&r->lines), err));
    progress_update(&r->bar, r->n_reused + r->n_answers);
    return TERN_OK;
}

static void summary(const struct run *r, bool json, const char *output) {
    double seconds = (double)(clock_ns() - r->begin_ns) * 1e-9;
    uint64_t n_errors = r->n_errors + r->out.n_errors;
    if (json) {
        out_putf("{\"requests\":%u,\"answered\":%llu,\"reused\":%llu,\"errors\":%llu,\"prompt_tokens\":%lld,"
                 "\"answer_tokens\":%lld,\"seconds\":%.3f}\n",
                 r->in.table.n, (unsigned long long)r->n_answers, (unsigned long long)r->n_reused,
                 (unsigned long long)n_errors, (long long)r->n_prompt_tokens, (long long)r->n_answer_tokens, seconds);
        out_flush();
        return;
    }
    fprintf(stderr, "%llu of %u requests have results in %s", (unsigned long long)(r->n_reused + r->n_answers),
            r->in.table.n, output);
    if (r->n_reused > 0) fprintf(stderr, ", %llu from before", (unsigned long long)r->n_reused);
    if (n_errors > 0) fprintf(stderr, "; %llu are errors", (unsigned long long)n_errors);
    fprintf(stderr, "; %.1f s", seconds);
    if (r->n_answer_tokens > 0 && seconds > 0)
        fprintf(stderr, ", %lld tokens read, %lld written (%.1f a second)", (long long)r->n_prompt_tokens,
                (long long)r->n_answer_tokens, (double)r->n_answer_tokens / seconds);
    fprintf(stderr, "\n");
}

static int work(struct run *r, const struct batch_opts *o) {
    struct tern_err err = {0};
    int code = batch_runner_open(r->c, &r->runner, o);
    if (code != 0) return code;
    net_terminate_watch();
    progress_begin(&r->bar, "batch", r->in.table.n, false);
    r->bar.n_before = r->n_reused;
    enum tern_status status = TERN_OK;
    bool stopped = false;
    while (status == TERN_OK && !stopped && r->n_reused + r->n_answers < r->in.table.n) {
        status = fill(r, &err);
        if (status == TERN_OK) status = drain(r, &err);
        stopped = net_terminate_wait(0, 0) > 0;
    }
    progress_end(&r->bar);
    while (r->again) {
        struct batch_job *j = r->again;
        r->again = j->next;
        batch_job_free(j);
    }
    batch_runner_close(r->runner);
    if (status != TERN_OK) return fail_told(r->c, &err);
    summary(r, o->json, o->output);
    if (stopped) fprintf(stderr, "interrupted; the same command goes on\n");
    return stopped ? EXIT_INTERRUPTED : EXIT_DONE;
}

int batch_run(const struct command *c, const struct batch_opts *o, const char *input) {
    struct run r = {.c = c, .out = {.lock = -1}, .begin_ns = clock_ns()};
    struct tern_err err = {0};
    struct os_stat a, b;
    buf_init(&r.lines, (size_t)4 * BATCH_LINE_BYTES_MAX);
    enum tern_status status = batch_input_open(&r.in, input, &err);
    if (status == TERN_OK && os_stat_get(&a, input) && os_stat_get(&b, o->output) && a.inode == b.inode &&
        a.device == b.device)
        status = err_set(&err, TERN_INVALID_ARGUMENT, "input and output are the same file");
    if (status == TERN_OK) status = batch_output_open(&r.out, o->output, &err);
    if (status == TERN_OK) status = reuse(&r, &err);
    int code = EXIT_DONE;
    if (status != TERN_OK)
        code = fail_told(c, &err);
    else if (r.n_reused == r.in.table.n)
        summary(&r, o->json, o->output);
    else
        code = work(&r, o);
    buf_release(&r.lines);
    batch_output_close(&r.out);
    batch_input_close(&r.in);
    return code;
}
