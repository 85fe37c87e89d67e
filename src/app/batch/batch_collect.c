// tern batch submit, collect, status, remove: a batch in Redis from the side of whoever wants the answers. Each of them
// can be repeated: what was submitted is not submitted twice, what was collected stays.
#include "base/base.h"
#include "batch.h"

#include <stdio.h>

#define RESULTS_AT_ONCE 256
#define POLL_S 0.3

int batch_submit(const struct command *c, const struct batch_opts *o, const char *input) {
    struct batch_input in;
    struct batch_queue *q = NULL;
    struct tern_err err = {0};
    uint32_t n_new = 0, i = 0;
    enum tern_status status = batch_input_open(&in, input, &err);
    if (status == TERN_OK) status = batch_queue_open(&q, o->redis, o->name, &err);
    struct progress bar;
    progress_begin(&bar, "submitting", in.table.n, false);
    net_terminate_watch();
    for (; status == TERN_OK && i < in.table.n && net_terminate_wait(0, 0) == 0; i++) {
        struct str line = batch_input_line(&in, &in.table.entries[i]);
        struct batch_request r;
        bool is_new = false;
        status = batch_request_read(&r, line, &err);
        if (status == TERN_OK) status = batch_queue_add(q, &r, line, &is_new, &err);
        n_new += is_new;
        progress_update(&bar, i + 1);
    }
    progress_end(&bar);
    bool stopped = status == TERN_OK && i < in.table.n;
    int code = status != TERN_OK ? fail_told(c, &err) : stopped ? EXIT_INTERRUPTED : EXIT_DONE;
    if (status == TERN_OK && o->json)
        out_putf("{\"requests\":%u,\"submitted\":%u,\"there_before\":%u}\n", in.table.n, n_new, i - n_new);
    else if (status == TERN_OK)
        fprintf(stderr, "%u requests submitted to batch %s, %u were there before%s\n", n_new, o->name, i - n_new,
                stopped ? "; interrupted: the same command goes on" : "");
    batch_queue_close(q);
    batch_input_close(&in);
    return code;
}

struct collect {
    struct batch_output out;
    struct buf lines;
    uint64_t n_new;
};

static enum tern_status on_result(void *arg, struct str line, struct tern_err *err) {
    struct collect *k = arg;
    struct batch_result r;
    struct batch_entry *e;
    bool was_there;
    TRY(batch_result_read(&r, line, err));
    TRY(batch_table_add(&k->out.table, r.custom_id, r.digest, &e, &was_there, err));
    if (was_there) return TERN_OK;
    k->out.n_errors += r.status != 200;
    k->n_new++;
    buf_put(&k->lines, line.data, line.len);
    buf_putc(&k->lines, '\n');
    return k->lines.failed ? err_set(err, TERN_NO_MEMORY, "no memory for the results") : TERN_OK;
}

static enum tern_status collect_all(struct collect *k, struct batch_queue *q, const struct batch_opts *o,
                                    struct batch_counts *counts, struct tern_err *err) {
    struct progress bar;
    int64_t from = 0;
    TRY(batch_queue_count(q, counts, err));
    if (counts->n_submitted == 0) return err_set(err, TERN_NOT_FOUND, "nothing was submitted to the batch %s", o->name);
    progress_begin(&bar, "results", (uint64_t)counts->n_submitted, false);
    bar.n_before = k->out.table.n;
    enum tern_status status = TERN_OK;
    while (status == TERN_OK) {
        int n = 0;
        buf_clear(&k->lines);
        status = batch_queue_results(q, from, RESULTS_AT_ONCE, on_result, k, &n, err);
        if (status == TERN_OK && k->lines.len > 0) status = batch_output_append(&k->out, buf_str(&k->lines), err);
        from += n;
        progress_update(&bar, (uint64_t)from);
        if (status != TERN_OK || n == RESULTS_AT_ONCE) continue;
        status = batch_queue_count(q, counts, err);
        if (counts->n_submitted <= from || o->no_wait || net_terminate_wait(0, POLL_S) > 0) break;
    }
    progress_end(&bar);
    return status;
}

int batch_collect(const struct command *c, const struct batch_opts *o) {
    struct collect k = {.out = {.lock = -1}};
    struct batch_queue *q = NULL;
    struct batch_counts n = {0};
    struct tern_err err = {0};
    buf_init(&k.lines, (size_t)4 * BATCH_LINE_BYTES_MAX);
    enum tern_status status = batch_output_open(&k.out, o->output, &err);
    if (status == TERN_OK) status = batch_queue_open(&q, o->redis, o->name, &err);
    net_terminate_watch();
    if (status == TERN_OK) status = collect_all(&k, q, o, &n, &err);
    int code = status != TERN_OK                                         ? fail_told(c, &err)
               : n.n_results < n.n_submitted && net_terminate_wait(0, 0) ? EXIT_INTERRUPTED
                                                                         : EXIT_DONE;
    if (status == TERN_OK && o->json)
        out_putf("{\"submitted\":%lld,\"results\":%u,\"new\":%llu,\"errors\":%llu}\n", (long long)n.n_submitted,
                 k.out.table.n, (unsigned long long)k.n_new, (unsigned long long)k.out.n_errors);
    else if (status == TERN_OK)
        fprintf(stderr, "%u of %lld requests have results in %s, %llu of them new, %llu errors\n", k.out.table.n,
                (long long)n.n_submitted, o->output, (unsigned long long)k.n_new, (unsigned long long)k.out.n_errors);
    batch_queue_close(q);
    batch_output_close(&k.out);
    buf_release(&k.lines);
    return code;
}

int batch_status(const struct command *c, const struct batch_opts *o) {
    struct batch_queue *q = NULL;
    struct batch_counts n;
    struct tern_err err = {0};
    enum tern_status status = batch_queue_open(&q, o->redis, o->name, &err);
    if (status == TERN_OK) status = batch_queue_count(q, &n, &err);
    batch_queue_close(q);
    if (status != TERN_OK) return fail_told(c, &err);
    if (o->json)
        out_putf("{\"submitted\":%lld,\"results\":%lld,\"waiting\":%lld,\"held\":%lld,\"workers\":%lld}\n",
                 (long long)n.n_submitted, (long long)n.n_results, (long long)n.n_waiting, (long long)n.n_held,
                 (long long)n.n_workers);
    else
        out_putf("batch %s: %lld submitted, %lld with results, %lld waiting, %lld with %lld workers\n", o->name,
                 (long long)n.n_submitted, (long long)n.n_results, (long long)n.n_waiting, (long long)n.n_held,
                 (long long)n.n_workers);
    return EXIT_DONE;
}

int batch_remove(const struct command *c, const struct batch_opts *o) {
    struct batch_queue *q = NULL;
    struct tern_err err = {0};
    enum tern_status status = batch_queue_open(&q, o->redis, o->name, &err);
    if (status == TERN_OK) status = batch_queue_remove(q, &err);
    batch_queue_close(q);
    return status == TERN_OK ? EXIT_DONE : fail_told(c, &err);
}
