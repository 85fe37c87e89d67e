// Streams that decode together: total speed and the time between tokens, what a long prompt does to those that run,
// what one stream costs over the bare engine, and what a prompt that begins like an earlier one saves. Times of tokens
// are taken where the service tells that there is something to pull. A token that ends within a character has no text
// to tell, so the longest wait for a token is asked of the service.
#include "base/base.h"
#include "app/app.h"
#include "bench_service.h"
#include "bench_stats.h"

#include <stdlib.h>

#define STREAMS_MAX TERN_STREAMS_MAX
#define GAPS_MAX (1 << 16)
#define CACHE_BYTES (256u << 20)
#define TELL_NS 100000000 // waits for news are at most so long

struct stream {
    struct tern_job *job;
    struct service_bench *bench;
    uint64_t last_ns; // of the last token; 0: none yet
    uint64_t gap_max;
    bool done;
};
struct service_bench {
    const struct command *c;
    const struct service_bench_opts *o;
    struct tern_engine *e;
    struct tern_model_info model;
    struct os_mutex *mutex;
    struct os_cond *news;
    bool has_news;
    struct stream streams[STREAMS_MAX + 1];
    double *gaps; // s, between tokens of a stream
    int n_gaps;
    uint64_t random;
    int32_t *ids;
};
struct result {
    double total_tps, gap_median, gap_p95, gap_max;        // s
    double arrival_gap_max, arrival_tps, alone_prompt_tps; // while the prompt runs; its own speed; without streams
    double token_wait;                                     // longest for a token, in all of it
    double bare_tps, shared_first_s, shared_second_s;
    int64_t shared_cached;
};

static int double_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double gap_at(const struct service_bench *b, double q) { // sorted
    return b->n_gaps > 0 ? b->gaps[(int)(q * (b->n_gaps - 1) + 0.5)] : 0;
}

static int32_t id_draw(struct service_bench *b) {
    b->random = b->random * 6364136223846793005ull + 1442695040888963407ull;
    return (int32_t)((b->random >> 33) % (uint64_t)(b->model.n_vocab / 2)) + b->model.n_vocab / 4;
}

static void token_note(void *arg) { // on the service's thread
    struct stream *s = arg;
    struct service_bench *b = s->bench;
    uint64_t now = clock_ns();
    mutex_lock(b->mutex);
    if (s->last_ns && b->n_gaps < GAPS_MAX) b->gaps[b->n_gaps++] = (double)(now - s->last_ns) * 1e-9;
    if (s->last_ns) s->gap_max = MAX(s->gap_max, now - s->last_ns);
    s->last_ns = now;
    b->has_news = true;
    cond_signal(b->news);
    mutex_unlock(b->mutex);
}

static enum tern_status stream_begin(struct service_bench *b, struct tern_service *sv, struct stream *s, int n_prompt,
                                     int n_answer, struct tern_err *err) {
    struct tern_job_options o;
    tern_job_options_default(&o);
    for (int i = 0; i < n_prompt; i++) b->ids[i] = id_draw(b);
    o.request.prompt_ids = b->ids;
    o.request.n_prompt_ids = (size_t)n_prompt;
    o.request.n_max = n_answer;
    o.request.ignore_eos = true;
    o.request.draft = TERN_DRAFT_OFF;
    *s = (struct stream){.bench = b};
    TRY(tern_job_submit(&s->job, sv, &o, err));
    tern_job_notify(s->job, token_note, s);
    return TERN_OK;
}

// Pulls what there is of all; waits when there is nothing.
static enum tern_status streams_pull(struct service_bench *b, int n, struct tern_usage *usage, struct tern_err *err) {
    mutex_lock(b->mutex);
    if (!b->has_news) cond_wait_ns(b->news, b->mutex, TELL_NS);
    b->has_news = false;
    mutex_unlock(b->mutex);
    for (int i = 0; i < n; i++) {
        struct stream *s = &b->streams[i];
        struct tern_event ev;
        while (!s->done) {
            enum tern_status status = tern_job_next(s->job, 0, &ev, err);
            if (status == TERN_AGAIN) break;
            if (status != TERN_OK) return status;
            s->done = ev.type == TERN_EVENT_DONE;
            if (s->done) usage[i] = ev.usage;
        }
    }
    return TERN_OK;
}

static bool all_done(const struct service_bench *b, int n) {
    for (int i = 0; i < n; i++)
        if (!b->streams[i].done) return false;
    return true;
}

static void streams_free(struct service_bench *b, int n) {
    for (int i = 0; i < n; i++) tern_job_free(b->streams[i].job);
    memset(b->streams, 0, sizeof b->streams);
}

// n streams to their end. What counts is the time while all of them answer, by the rows that were run in it.
static enum tern_status together_measure(struct service_bench *b, struct tern_service *sv, int n, struct result *r,
                                         struct tern_err *err) {
    struct tern_usage usage[STREAMS_MAX + 1];
    struct tern_service_info before, after;
    b->n_gaps = 0;
    tern_service_info(sv, &before);
    enum tern_status status = TERN_OK;
    for (int i = 0; i < n && status == TERN_OK; i++)
        status = stream_begin(b, sv, &b->streams[i], b->o->n_prompt, b->o->n_answer, err);
    uint64_t start = 0, end = 0, rows_start = 0, rows_end = 0;
    while (status == TERN_OK && !all_done(b, n)) {
        status = streams_pull(b, n, usage, err);
        int n_answering = 0, n_done = 0;
        for (int i = 0; i < n; i++) {
            n_answering += tern_job_state(b->streams[i].job, NULL) == TERN_JOB_ANSWER;
            n_done += tern_job_state(b->streams[i].job, NULL) == TERN_JOB_DONE;
        }
        tern_service_info(sv, &after);
        if (!start && n_answering == n) {
            start = clock_ns();
            rows_start = after.n_step_rows;
            mutex_lock(b->mutex);
            b->n_gaps = 0;
            mutex_unlock(b->mutex);
        }
        if (start && n_done == 0) {
            end = clock_ns();
            rows_end = after.n_step_rows;
        }
    }
    if (status == TERN_OK) {
        r->total_tps = end > start ? (double)(rows_end - rows_start) * 1e9 / (double)(end - start) : 0;
        qsort(b->gaps, (size_t)b->n_gaps, sizeof *b->gaps, double_compare);
        r->gap_median = gap_at(b, 0.5);
        r->gap_p95 = gap_at(b, 0.95);
        r->gap_max = gap_at(b, 1);
    }
    streams_free(b, n);
    return status;
}

// A long prompt comes while n - 1 streams run.
static enum tern_status arrival_measure(struct service_bench *b, struct tern_service *sv, int n, struct result *r,
                                        struct tern_err *err) {
    struct tern_usage usage[STREAMS_MAX + 1];
    enum tern_status status = TERN_OK;
    int n_streams = n - 1;
    for (int i = 0; i < n_streams && status == TERN_OK; i++)
        status = stream_begin(b, sv, &b->streams[i], b->o->n_prompt, 1 << 20, err);
    for (bool answer = false; status == TERN_OK && !answer;) {
        status = streams_pull(b, n_streams, usage, err);
        answer = true;
        for (int i = 0; i < n_streams; i++)
            answer = answer && tern_job_state(b->streams[i].job, NULL) >= TERN_JOB_ANSWER;
    }
    for (int i = 0; status == TERN_OK && i < 20; i++) status = streams_pull(b, n_streams, usage, err);
    mutex_lock(b->mutex);
    for (int i = 0; i < n_streams; i++) b->streams[i].gap_max = 0;
    mutex_unlock(b->mutex);
    struct stream *book = &b->streams[n_streams];
    if (status == TERN_OK) status = stream_begin(b, sv, book, b->o->n_arrival, 1, err);
    while (status == TERN_OK && !book->done) status = streams_pull(b, n, usage, err);
    uint64_t worst = 0;
    mutex_lock(b->mutex);
    for (int i = 0; i < n_streams; i++) worst = MAX(worst, b->streams[i].gap_max);
    mutex_unlock(b->mutex);
    if (status == TERN_OK) {
        r->arrival_gap_max = (double)worst * 1e-9;
        r->arrival_tps = (double)b->o->n_arrival / usage[n_streams].first_token_s;
    }
    streams_free(b, n);
    return status;
}

static enum tern_status prompt_measure(struct service_bench *b, struct tern_service *sv, double *tps,
                                       struct tern_err *err) {
    struct tern_usage usage;
    enum tern_status status = stream_begin(b, sv, &b->streams[0], b->o->n_arrival, 1, err);
    while (status == TERN_OK && !b->streams[0].done) status = streams_pull(b, 1, &usage, err);
    if (status == TERN_OK) *tps = (double)b->o->n_arrival / usage.first_token_s;
    streams_free(b, 1);
    return status;
}

// The bare engine: a request in a session of its own.
static enum tern_status bare_measure(struct service_bench *b, double *tps, struct tern_err *err) {
    struct tern_session *s = NULL;
    struct tern_request *r = NULL;
    struct tern_request_options o;
    struct tern_event ev = {0};
    tern_request_options_default(&o);
    for (int i = 0; i < b->o->n_prompt; i++) b->ids[i] = id_draw(b);
    o.prompt_ids = b->ids;
    o.n_prompt_ids = (size_t)b->o->n_prompt;
    o.n_max = b->o->n_answer;
    o.ignore_eos = true;
    o.draft = TERN_DRAFT_OFF;
    TRY(tern_session_open(&s, b->e, err));
    enum tern_status status = tern_request_create(&r, s, &o, err);
    while (status == TERN_OK && ev.type != TERN_EVENT_DONE) status = tern_request_next(r, &ev, err);
    if (status == TERN_OK) *tps = (double)(ev.usage.n_answer - 1) / ev.usage.answer_s;
    tern_request_free(r);
    tern_session_close(s);
    return status;
}

static enum tern_status shared_measure(struct service_bench *b, struct result *r, struct tern_err *err) {
    struct tern_service *sv = NULL;
    struct tern_service_options so;
    tern_service_options_default(&so);
    so.n_streams = 1;
    so.prefix_ram_max = CACHE_BYTES;
    TRY(tern_service_open(&sv, b->e, &so, err));
    int n = b->o->n_shared + b->o->n_own;
    enum tern_status status = TERN_OK;
    for (int i = 0; i < n; i++) b->ids[i] = id_draw(b);
    for (int k = 0; k < 2 && status == TERN_OK; k++) {
        struct tern_job *j = NULL;
        struct tern_job_options o;
        struct tern_event ev = {0};
        tern_job_options_default(&o);
        for (int i = b->o->n_shared; i < n; i++) b->ids[i] = id_draw(b);
        o.request.prompt_ids = b->ids;
        o.request.n_prompt_ids = (size_t)n;
        o.request.n_max = 1;
        status = tern_job_submit(&j, sv, &o, err);
        while (status == TERN_OK && ev.type != TERN_EVENT_DONE) status = tern_job_next(j, -1, &ev, err);
        *(k ? &r->shared_second_s : &r->shared_first_s) = ev.usage.first_token_s;
        r->shared_cached = ev.usage.n_cached;
        tern_job_free(j);
    }
    tern_service_close(sv);
    return status;
}

// ------------------------------------------------------------------------------------------------------------ results

#define N_SAMPLES 8
struct samples {
    double v[N_SAMPLES][STATS_MAX];
    int n;
};
static double mid(const double *v, int n) { return stats_quantile(v, n, 0.5); }

static void point_print(const struct service_bench *b, int n, const struct samples *s, bool first) {
    double tps = mid(s->v[0], s->n), gap = mid(s->v[1], s->n) * 1e3, p95 = mid(s->v[2], s->n) * 1e3,
           worst = mid(s->v[3], s->n) * 1e3, arrival = mid(s->v[4], s->n) * 1e3, prompt = mid(s->v[5], s->n),
           alone = mid(s->v[6], s->n), wait = mid(s->v[7], s->n) * 1e3;
    if (b->o->json) {
        out_putf(
            "%s{\"streams\": %d, \"total_tps\": %.2f, \"gap_ms\": {\"median\": %.2f, \"p95\": %.2f, \"max\": %.2f}",
            first ? "" : ", ", n, tps, gap, p95, worst);
        if (n > 1)
            out_putf(", \"arrival\": {\"gap_max_ms\": %.2f, \"token_max_ms\": %.2f, \"prompt_tps\": %.2f, "
                     "\"share\": %.3f}",
                     arrival, wait, prompt, prompt / alone);
        out_puts("}");
        return;
    }
    out_putf("%7d %10.1f %10.2f %10.2f %10.2f", n, tps, gap, p95, worst);
    if (n > 1) out_putf(" %12.1f %10.1f %12.1f %9.2f", arrival, wait, prompt, prompt / alone);
    out_puts("\n");
}

static enum tern_status points_run(struct service_bench *b, struct samples *all, struct tern_err *err) {
    const struct service_bench_opts *o = b->o;
    for (int rep = 0; rep <= o->repeats; rep++) // the first is not counted
        for (int k = 0; k < o->n_points; k++) {
            struct samples *s = &all[k];
            struct result r = {0};
            struct tern_service *sv = NULL;
            struct tern_service_options so;
            tern_service_options_default(&so);
            so.n_streams = o->points[k];
            TRY(tern_service_open(&sv, b->e, &so, err));
            enum tern_status status = together_measure(b, sv, o->points[k], &r, err);
            if (status == TERN_OK && o->points[k] > 1) status = prompt_measure(b, sv, &r.alone_prompt_tps, err);
            if (status == TERN_OK && o->points[k] > 1) status = arrival_measure(b, sv, o->points[k], &r, err);
            struct tern_service_info info;
            tern_service_info(sv, &info);
            r.token_wait = (double)info.token_wait_ns_max * 1e-9;
            tern_service_close(sv);
            if (status != TERN_OK) return status;
            if (rep == 0) continue;
            const double v[N_SAMPLES] = {r.total_tps,       r.gap_median,  r.gap_p95,          r.gap_max,
                                         r.arrival_gap_max, r.arrival_tps, r.alone_prompt_tps, r.token_wait};
            for (int i = 0; i < N_SAMPLES; i++) s->v[i][s->n] = v[i];
            s->n++;
        }
    return TERN_OK;
}

static enum tern_status bench_all(struct service_bench *b, struct samples *all, struct tern_err *err) {
    const struct service_bench_opts *o = b->o;
    double bare[STATS_MAX], first[STATS_MAX], second[STATS_MAX];
    struct result r = {0};
    TRY(points_run(b, all, err));
    for (int i = 0; i <= o->repeats; i++) {
        TRY(bare_measure(b, &bare[i], err));
        TRY(shared_measure(b, &r, err));
        first[i] = r.shared_first_s;
        second[i] = r.shared_second_s;
    }
    double tps = mid(bare + 1, o->repeats), ttft[2] = {mid(first + 1, o->repeats), mid(second + 1, o->repeats)};
    if (o->json) {
        out_puts("{\"model\": ");
        out_quoted(b->model.name);
        out_putf(", \"format\": \"%s\", \"threads\": %d, \"prompt\": %d, \"answer\": %d, "
                 "\"repeats\": %d, \"bare_tps\": %.2f, \"shared\": {\"tokens\": %d, \"own\": %d, \"cached\": %lld, "
                 "\"first_ms\": %.2f, \"second_ms\": %.2f, \"ratio\": %.4f}, \"points\": [",
                 b->model.format, b->model.n_threads, o->n_prompt, o->n_answer, o->repeats, tps, o->n_shared, o->n_own,
                 (long long)r.shared_cached, ttft[0] * 1e3, ttft[1] * 1e3, ttft[1] / ttft[0]);
    } else {
        out_putf("%s, %s, %d threads; streams of %d + %d tokens; a prompt of %d comes\n", b->model.name,
                 b->model.format, b->model.n_threads, o->n_prompt, o->n_answer, o->n_arrival);
        out_putf("bare engine, one stream: %.1f tokens/s\n", tps);
        out_putf("%d shared + %d own tokens: first token after %.1f ms, the second time %.1f ms (%.3f), %lld cached\n",
                 o->n_shared, o->n_own, ttft[0] * 1e3, ttft[1] * 1e3, ttft[1] / ttft[0], (long long)r.shared_cached);
        out_putf("%7s %10s %10s %10s %10s %12s %10s %12s %9s\n", "streams", "tokens/s", "gap ms", "p95", "max",
                 "max, prompt", "of a token", "its tokens/s", "of alone");
    }
    for (int k = 0; k < o->n_points; k++) point_print(b, o->points[k], &all[k], k == 0);
    if (o->json) out_puts("]}\n");
    return TERN_OK;
}

void bench_service_engine(const struct service_bench_opts *o, struct tern_engine_options *engine) {
    int n = o->n_prompt + MAX(o->n_answer, o->n_arrival); // those that run beside the long prompt go on
    engine->n_ctx = MAX(MAX(n, o->n_arrival + 2), o->n_shared + o->n_own + 2);
    engine->n_sessions = o->points[o->n_points - 1];
}

int bench_service_run(const struct command *c, const struct service_bench_opts *o, struct tern_engine *e) {
    struct service_bench *b = mem_calloc(1, sizeof *b);
    struct samples *all = mem_calloc(SERVICE_POINTS_MAX, sizeof *all);
    struct tern_err err = {0};
    enum tern_status status = TERN_OK;
    if (!b || !all) {
        status = err_set(&err, TERN_NO_MEMORY, "no memory for a bench");
        goto done;
    }
    *b = (struct service_bench){.c = c, .o = o, .e = e, .random = o->seed};
    tern_engine_info(e, &b->model);
    b->mutex = mutex_create();
    b->news = cond_create();
    b->gaps = mem_calloc(GAPS_MAX, sizeof *b->gaps);
    b->ids = mem_calloc((size_t)b->model.n_ctx, sizeof *b->ids);
    if (!b->mutex || !b->news || !b->gaps || !b->ids)
        status = err_set(&err, TERN_NO_MEMORY, "no memory for a bench");
    else
        status = bench_all(b, all, &err);
    mutex_free(b->mutex);
    cond_free(b->news);
    mem_free(b->gaps);
    mem_free(b->ids);
done:
    mem_free(b);
    mem_free(all);
    return status == TERN_OK ? EXIT_DONE : fail_told(c, &err);
}
