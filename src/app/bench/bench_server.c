// `tern bench --server`: servers under load, over HTTP, ours and llama-server in turn. For each number of streams: the
// speed of all together and the time between pieces of text; a long prompt alone and beside running streams; two
// prompts that begin alike; a session with tools. Both get the same token ids and words.
//
// Total speed counts the pieces between the last stream's first piece and the first stream's end, as tokens by each
// stream's own ratio of the two, which is told as well (tokens_a_piece). A piece is a token unless its text ends within
// a character, which with random weights is common, or the server tells fast tokens together; so gaps are those of text
// as a reader sees it. How long a stream waited for a token at most, from its first one on, is asked of our server.
#include "base/base.h"
#include "bench_server.h"
#include "bench_stats.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WAIT_NS 1000000u
#define GAPS_MAX (1 << 16)
#define WARM_PIECES 12     // of each stream, before the long prompt comes
#define RUN_ON_TOKENS 4000 // streams that run beside the long prompt end when it is through
#define CTX_SPARE 64
#define SESSION_CTX 8192
#define CSV_LINE 512

enum sample {
    TOTAL_TPS,
    TTFT_MS,
    GAP_P50_MS,
    GAP_P95_MS,
    GAP_MAX_MS,
    ALONE_TPS,
    ARRIVAL_GAP_MS,
    ARRIVAL_TPS,
    SHARED_FIRST_MS,
    SHARED_SECOND_MS,
    SESSION_REUSED,
    SESSION_P50_MS,
    SESSION_P95_MS,
    TOKEN_WAIT_MS,
    PIECE_TOKENS,
    N_SAMPLES
};
static const char *const sample_names[N_SAMPLES] = {"total_tps",           "ttft_ms",        "gap_p50_ms",
                                                    "gap_p95_ms",          "gap_max_ms",     "alone_prompt_tps",
                                                    "arrival_gap_ms",      "arrival_tps",    "shared_first_ms",
                                                    "shared_second_ms",    "session_reused", "session_ttft_p50_ms",
                                                    "session_ttft_p95_ms", "token_wait_ms",  "tokens_a_piece"};

struct bench {
    const struct server_bench_opts *o;
    struct load_stream streams[SERVER_STREAMS_MAX + 1];
    double gaps[GAPS_MAX];
    int n_gaps;
    uint64_t random;
    int n_vocab;
    int32_t *ids;
    double v[2][SERVER_POINTS_MAX][N_SAMPLES][SERVER_ROUNDS_MAX]; // NaN: not measured
};

static int double_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double gap_at(const struct bench *b, double q) { // sorted
    return b->n_gaps > 0 ? b->gaps[(int)(q * (b->n_gaps - 1) + 0.5)] * 1e-6 : NAN;
}

// Ids of plain text in any vocabulary: neither control tokens at its begin nor rare ones at its end.
static void ids_draw(struct bench *b, int from, int n) {
    for (int i = from; i < n; i++) {
        b->random = b->random * 6364136223846793005ull + 1442695040888963407ull;
        b->ids[i] = b->n_vocab / 4 + (int32_t)((b->random >> 33) % (uint64_t)(b->n_vocab / 2));
    }
}

static int told(const struct load_stream *s) { return atomic_load_explicit(&s->n_told, memory_order_acquire); }

static enum tern_status streams_begin(struct bench *b, const struct server_peer *p, int n, int n_answer,
                                      struct tern_err *err) {
    for (int i = 0; i < n; i++) {
        ids_draw(b, 0, b->o->n_prompt);
        TRY(load_begin(&b->streams[i], p, b->ids, b->o->n_prompt, n_answer, err));
    }
    return TERN_OK;
}
static void streams_release(struct bench *b) {
    for (int i = 0; i <= SERVER_STREAMS_MAX; i++)
        if (b->streams[i].thread) atomic_store(&b->streams[i].stop, true);
    for (int i = 0; i <= SERVER_STREAMS_MAX; i++) load_release(&b->streams[i]);
}

// Gaps between pieces of n streams in [from, to); returns the longest.
static double gaps_take(struct bench *b, int n, uint64_t from, uint64_t to) {
    b->n_gaps = 0;
    for (int i = 0; i < n; i++) {
        const struct load_stream *s = &b->streams[i];
        for (int k = 1; k < told(s) && b->n_gaps < GAPS_MAX; k++)
            if (s->times[k] > from && s->times[k - 1] < to)
                b->gaps[b->n_gaps++] = (double)(s->times[k] - s->times[k - 1]);
    }
    qsort(b->gaps, (size_t)b->n_gaps, sizeof *b->gaps, double_compare);
    return gap_at(b, 1);
}

static enum tern_status together_measure(struct bench *b, const struct server_peer *p, int n, double *v,
                                         struct tern_err *err) {
    double first[SERVER_STREAMS_MAX], tokens = 0, all_tokens = 0, all_pieces = 0;
    uint64_t from = 0, to = UINT64_MAX;
    TRY(streams_begin(b, p, n, b->o->n_answer, err));
    for (int i = 0; i < n; i++) TRY(load_end(&b->streams[i], err));
    for (int i = 0; i < n; i++) {
        const struct load_stream *s = &b->streams[i];
        int k = told(s);
        if (k < 2) return err_set(err, TERN_IO, "%s: an answer of %d pieces of text", p->name, k);
        first[i] = (double)(s->times[0] - s->begin_ns) * 1e-6;
        from = MAX(from, s->times[0]);
        to = MIN(to, s->times[k - 1]);
    }
    if (to <= from)
        return err_set(err, TERN_IO, "%s: the streams did not run at the same time; use longer answers", p->name);
    for (int i = 0; i < n; i++) {
        const struct load_stream *s = &b->streams[i];
        int k = told(s), in = 0;
        for (int m = 0; m < k; m++) in += s->times[m] > from && s->times[m] <= to;
        tokens += (double)in * (s->n_tokens > 0 ? (double)s->n_tokens / k : 1);
        all_tokens += s->n_tokens;
        all_pieces += k;
    }
    v[PIECE_TOKENS] = all_tokens / all_pieces;
    v[TOTAL_TPS] = tokens * 1e9 / (double)(to - from);
    v[TTFT_MS] = stats_quantile(first, n, 0.5);
    v[GAP_MAX_MS] = gaps_take(b, n, from, to);
    v[GAP_P50_MS] = gap_at(b, 0.5);
    v[GAP_P95_MS] = gap_at(b, 0.95);
    streams_release(b);
    return TERN_OK;
}

static enum tern_status prompt_ask(struct bench *b, const struct server_peer *p, struct load_stream *s, int n_ids,
                                   double *ms, struct tern_err *err) {
    TRY(load_begin(s, p, b->ids, n_ids, 2, err)); // one token may be no text
    enum tern_status status = load_end(s, err);
    uint64_t end = status == TERN_OK && told(s) > 0 ? s->times[0] : s->end_ns;
    *ms = (double)(end - s->begin_ns) * 1e-6;
    return status;
}

static bool all_warm(const struct bench *b, int n) {
    for (int i = 0; i < n; i++)
        if (told(&b->streams[i]) < WARM_PIECES) return false;
    return true;
}

static enum tern_status token_wait_ask(const struct server_peer *p, double *ms, struct tern_err *err) {
    struct buf text;
    double seconds;
    buf_init(&text, SERVER_ANSWER_MAX);
    enum tern_status status = load_ask(p, "/metrics", (struct str){0}, &text, &seconds, err);
    if (status == TERN_OK) {
        struct str all = buf_str(&text), name = STR("\ntern_token_wait_nanoseconds_max{");
        size_t at = str_find(all, name, 0), from = str_find(all, STR(" "), at), to = str_find(all, STR("\n"), from);
        if (at == (size_t)-1 || !str_to_f64((struct str){all.data + from + 1, to - from - 1}, ms))
            status = err_set(err, TERN_IO, "%s/metrics does not tell how long tokens took", p->url);
        *ms *= 1e-6;
    }
    buf_release(&text);
    return status;
}

// The long prompt alone, then beside n streams.
static enum tern_status arrival_measure(struct bench *b, const struct server_peer *p, int n, double *v,
                                        struct tern_err *err) {
    double ms;
    struct load_stream *book = &b->streams[SERVER_STREAMS_MAX];
    ids_draw(b, 0, b->o->n_arrival);
    TRY(prompt_ask(b, p, book, b->o->n_arrival, &ms, err));
    load_release(book);
    v[ALONE_TPS] = b->o->n_arrival * 1e3 / ms;
    TRY(streams_begin(b, p, n, RUN_ON_TOKENS, err));
    while (!all_warm(b, n)) {
        for (int i = 0; i < n; i++)
            if (b->streams[i].status != TERN_OK) return load_end(&b->streams[i], err);
        clock_sleep_ns(WAIT_NS);
    }
    ids_draw(b, 0, b->o->n_arrival);
    uint64_t from = clock_ns();
    TRY(prompt_ask(b, p, book, b->o->n_arrival, &ms, err));
    uint64_t to = clock_ns();
    int before[SERVER_STREAMS_MAX]; // each one's piece behind the prompt ends its last gap
    for (int i = 0; i < n; i++) before[i] = told(&b->streams[i]);
    for (int i = 0; i < n; i++)
        while (told(&b->streams[i]) == before[i] && clock_ns() - to < 1000000000u) clock_sleep_ns(WAIT_NS);
    v[ARRIVAL_TPS] = b->o->n_arrival * 1e3 / ms;
    v[ARRIVAL_GAP_MS] = gaps_take(b, n, from, to);
    enum tern_status status = p->is_ours ? token_wait_ask(p, &v[TOKEN_WAIT_MS], err) : TERN_OK;
    streams_release(b);
    return status;
}

static enum tern_status shared_measure(struct bench *b, const struct server_peer *p, double *v, struct tern_err *err) {
    const struct server_bench_opts *o = b->o;
    ids_draw(b, 0, o->n_shared);
    for (int k = 0; k < 2; k++) {
        ids_draw(b, o->n_shared, o->n_shared + o->n_own);
        TRY(prompt_ask(b, p, &b->streams[0], o->n_shared + o->n_own, &v[k ? SHARED_SECOND_MS : SHARED_FIRST_MS], err));
        load_release(&b->streams[0]);
    }
    return TERN_OK;
}

static enum tern_status session_measure(struct bench *b, const struct server_peer *p, double *v, struct tern_err *err) {
    struct session_result r;
    TRY(server_session_run(&r, p, b->o->n_turns, err));
    v[SESSION_REUSED] = r.n_prompt > 0 ? r.n_cached / r.n_prompt : 0;
    v[SESSION_P50_MS] = r.median_s * 1e3;
    v[SESSION_P95_MS] = r.p95_s * 1e3;
    return TERN_OK;
}

// One server, one number of streams.
static enum tern_status point_measure(struct bench *b, bool ours, int n, double *v, struct tern_err *err) {
    const struct server_bench_opts *o = b->o;
    struct server_peer p;
    int n_ctx = MAX(o->n_prompt + o->n_answer, o->n_arrival) + CTX_SPARE;
    n_ctx = MAX(n_ctx, o->n_prompt + RUN_ON_TOKENS); // those that run on must not meet its end
    bool session = n == 1 && o->n_turns > 0;
    if (session) n_ctx = MAX(n_ctx, SESSION_CTX);
    for (int i = 0; i < N_SAMPLES; i++) v[i] = NAN;
    enum tern_status status = server_peer_open(&p, o, ours, n, n_ctx, err);
    double warm[N_SAMPLES];
    if (status == TERN_OK) status = together_measure(b, &p, 1, warm, err); // not counted
    if (status == TERN_OK && o->n_answer > 0) status = together_measure(b, &p, n, v, err);
    if (status == TERN_OK && n > 1 && o->n_arrival > 0) status = arrival_measure(b, &p, n - 1, v, err);
    if (status == TERN_OK && n == 1) status = shared_measure(b, &p, v, err);
    if (status == TERN_OK && session) status = session_measure(b, &p, v, err);
    streams_release(b);
    server_peer_close(&p);
    return status;
}

// ------------------------------------------------------------------------------------------------------------- results

static enum tern_status csv_add(const struct bench *b, bool ours, int n, int round, const double *v,
                                struct tern_err *err) {
    const struct server_bench_opts *o = b->o;
    struct buf line;
    struct os_stat st;
    if (!o->csv) return TERN_OK;
    buf_init(&line, CSV_LINE * 4);
    if (!os_stat_get(&st, o->csv) || st.size == 0) {
        buf_puts(&line, "server,threads,streams,round,prompt,answer,arrival");
        for (int i = 0; i < N_SAMPLES; i++) buf_putf(&line, ",%s", sample_names[i]);
        buf_puts(&line, "\n");
    }
    buf_putf(&line, "%s,%d,%d,%d,%d,%d,%d", ours ? "tern" : "llama-server", o->n_threads, n, round, o->n_prompt,
             o->n_answer, o->n_arrival);
    for (int i = 0; i < N_SAMPLES; i++)
        if (isnan(v[i]))
            buf_puts(&line, ",");
        else
            buf_putf(&line, ",%.4g", v[i]);
    buf_puts(&line, "\n");
    enum tern_status status = file_append(o->csv, line.data, line.len, err);
    buf_release(&line);
    return status;
}

static double mid(const struct bench *b, int server, int point, int sample) {
    const double *v = b->v[server][point][sample];
    return isnan(v[0]) ? NAN : stats_quantile(v, b->o->repeats, 0.5);
}

static void results_print(const struct bench *b) {
    const struct server_bench_opts *o = b->o;
    int n_servers = o->beside ? 2 : 1;
    if (o->json) {
        out_puts("{\"model\": ");
        out_quoted(o->model_path);
        out_putf(", \"threads\": %d, \"repeats\": %d, \"points\": [", o->n_threads, o->repeats);
    } else
        out_putf("%s, %d threads, medians of %d; streams of %d + %d tokens, a prompt of %d\n", o->model_path,
                 o->n_threads, o->repeats, o->n_prompt, o->n_answer, o->n_arrival);
    for (int k = 0; k < o->n_points; k++) {
        if (o->json)
            out_putf("%s{\"streams\": %d", k ? ", " : "", o->points[k]);
        else
            out_putf("\n%-22s %10s %s\n", "", "tern", n_servers > 1 ? "llama-server    tern/llama" : "");
        if (!o->json) out_putf("%d stream%s\n", o->points[k], o->points[k] > 1 ? "s" : "");
        for (int i = 0; i < N_SAMPLES; i++) {
            double a = mid(b, 0, k, i), c = n_servers > 1 ? mid(b, 1, k, i) : NAN;
            if (isnan(a)) continue;
            if (o->json) {
                out_putf(", \"%s\": [%.4g", sample_names[i], a);
                if (!isnan(c)) out_putf(", %.4g", c);
                out_puts("]");
                continue;
            }
            out_putf("  %-20s %10.4g", sample_names[i], a);
            if (!isnan(c)) out_putf(" %12.4g %13.3f", c, a / c);
            out_puts("\n");
        }
        if (o->json) out_puts("}");
    }
    if (o->json) out_puts("]}\n");
}

static enum tern_status rounds_run(struct bench *b, struct tern_err *err) {
    const struct server_bench_opts *o = b->o;
    for (int r = 0; r < o->repeats; r++)
        for (int k = 0; k < o->n_points; k++)
            for (int s = 0; s < (o->beside ? 2 : 1); s++) {
                double v[N_SAMPLES];
                int server = o->beside ? (s + r) % 2 : 0; // who goes first changes
                TRY(point_measure(b, server == 0, o->points[k], v, err));
                for (int i = 0; i < N_SAMPLES; i++) b->v[server][k][i][r] = v[i];
                TRY(csv_add(b, server == 0, o->points[k], r, v, err));
            }
    return TERN_OK;
}

int bench_server_run(const struct command *c, const struct server_bench_opts *o) {
    struct tern_err err = {0};
    struct bench *b = mem_calloc(1, sizeof *b);
    enum tern_status status = TERN_OK;
    if (b) b->ids = mem_calloc((size_t)MAX(o->n_arrival, o->n_shared + o->n_own) + (size_t)o->n_prompt, sizeof *b->ids);
    if (!b || !b->ids) {
        status = err_set(&err, TERN_NO_MEMORY, "no memory for a bench");
    } else {
        struct model *m = NULL;
        b->o = o;
        b->random = o->seed;
        status = model_open(&m, o->model_path, &err);
        if (status == TERN_OK) b->n_vocab = m->hyper.n_vocab;
        model_close(m);
        if (status == TERN_OK) status = rounds_run(b, &err);
        if (status == TERN_OK) results_print(b);
    }
    if (b) mem_free(b->ids);
    mem_free(b);
    return status == TERN_OK ? EXIT_DONE : fail_told(c, &err);
}
