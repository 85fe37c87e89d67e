// What drafting gives when many answer at once: the same prompts through a service of so many streams, without drafts
// and with what `auto` makes of them, by turns, so that a drift of the machine meets both alike. Speed is that of all
// answers together, prompts included. The tokens are hashed: both ways give the same, or speculation is broken.
#include "base/base.h"
#include "app/app.h"
#include "bench_prompts.h"
#include "bench_service.h"
#include "bench_stats.h"

enum { WAY_PLAIN, WAY_AUTO, WAYS };

struct way {
    double tps[STATS_MAX];
    uint64_t n_rounds, n_drafted, n_accepted, n_steps;
    char digest[65];
};
struct streams_bench {
    const struct command *c;
    const struct service_bench_opts *o;
    struct tern_engine *e;
    struct prompt_set prompts;
    struct tern_job **jobs; // [prompts]
    bool same;
};

static enum tern_status job_begin(struct streams_bench *b, struct tern_service *sv, int i, int way,
                                  struct tern_err *err) {
    const struct prompt *p = &b->prompts.items[i];
    struct tern_job_options o;
    tern_job_options_default(&o);
    o.request.messages_json = (struct tern_str){p->messages.data, p->messages.len};
    o.request.tools_json = (struct tern_str){p->tools.data, p->tools.len};
    o.request.n_max = b->o->n_answer;
    o.request.draft = way == WAY_AUTO ? TERN_DRAFT_AUTO : TERN_DRAFT_OFF;
    return tern_job_submit(&b->jobs[i], sv, &o, err);
}

static enum tern_status job_end(struct tern_job *j, struct sha256 *sha, int64_t *n_tokens, struct tern_err *err) {
    struct tern_event ev = {0};
    size_t n;
    while (ev.type != TERN_EVENT_DONE) TRY(tern_job_next(j, -1, &ev, err));
    const int32_t *ids = tern_job_ids(j, &n);
    *n_tokens += (int64_t)n;
    sha256_update(sha, ids, n * sizeof *ids);
    return TERN_OK;
}

// All prompts at once, of which so many are at work; counts: the first of the way's repeats.
static enum tern_status way_run(struct streams_bench *b, int n_streams, int way, double *tps, struct way *w,
                                struct tern_err *err) {
    struct tern_service *sv = NULL;
    struct tern_service_options so;
    struct tern_service_info info;
    struct sha256 sha;
    int64_t n_tokens = 0;
    tern_service_options_default(&so);
    so.n_streams = n_streams;
    so.n_queue_max = b->prompts.n;
    TRY(tern_service_open(&sv, b->e, &so, err));
    enum tern_status status = TERN_OK;
    memset(b->jobs, 0, (size_t)b->prompts.n * sizeof(struct tern_job *));
    sha256_init(&sha);
    uint64_t start = clock_ns();
    for (int i = 0; i < b->prompts.n && status == TERN_OK; i++) status = job_begin(b, sv, i, way, err);
    for (int i = 0; i < b->prompts.n && status == TERN_OK; i++) status = job_end(b->jobs[i], &sha, &n_tokens, err);
    *tps = (double)n_tokens * 1e9 / (double)(clock_ns() - start);
    tern_service_info(sv, &info);
    for (int i = 0; i < b->prompts.n; i++) tern_job_free(b->jobs[i]);
    tern_service_close(sv);
    TRY(status);
    uint8_t digest[32];
    char text[65];
    sha256_final(&sha, digest);
    for (int i = 0; i < 32; i++) {
        text[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    text[64] = 0;
    if (w->digest[0] && strcmp(w->digest, text) != 0) b->same = false;
    *w = (struct way){
        .n_rounds = info.n_rounds, .n_drafted = info.n_drafted, .n_accepted = info.n_accepted, .n_steps = info.n_steps};
    memcpy(w->digest, text, sizeof text);
    return TERN_OK;
}

static void point_print(const struct streams_bench *b, int n_streams, const double tps[WAYS][STATS_MAX],
                        const struct way *w, bool first) {
    int n = b->o->repeats;
    struct stats_interval gain = stats_paired_ratio(tps[WAY_AUTO], tps[WAY_PLAIN], n);
    double plain = stats_quantile(tps[WAY_PLAIN], n, 0.5), drafts = stats_quantile(tps[WAY_AUTO], n, 0.5);
    const char *const form = b->o->json
                                 ? "%s{\"streams\": %d, \"plain_tps\": %.2f, \"auto_tps\": %.2f, \"gain\": %.3f, "
                                   "\"gain_low\": %.3f, \"gain_high\": %.3f, \"rounds\": %llu, \"drafted\": %llu, "
                                   "\"accepted\": %llu, \"steps\": %llu}"
                                 : "%s%7d %10.1f %10.1f %8.3f [%.3f, %.3f] %8llu %8llu %8llu %8llu\n";
    out_putf(form, b->o->json && !first ? ", " : "", n_streams, plain, drafts, gain.mid, gain.lo, gain.hi,
             (unsigned long long)w->n_rounds, (unsigned long long)w->n_drafted, (unsigned long long)w->n_accepted,
             (unsigned long long)w->n_steps);
}

static enum tern_status points_run(struct streams_bench *b, double tps[WAYS][STATS_MAX], struct tern_err *err) {
    struct tern_model_info m;
    tern_engine_info(b->e, &m);
    if (b->o->json) {
        out_puts("{\"model\": ");
        out_quoted(m.name);
        out_putf(", \"format\": \"%s\", \"threads\": %d, \"prompts\": %d, \"answer\": %d, \"repeats\": %d, "
                 "\"points\": [",
                 m.format, m.n_threads, b->prompts.n, b->o->n_answer, b->o->repeats);
    } else
        out_putf("%s, %s, %d threads; %d prompts, at most %d tokens each; drafts: %s\n%7s %10s %10s %8s %16s %8s %8s "
                 "%8s %8s\n",
                 m.name, m.format, m.n_threads, b->prompts.n, b->o->n_answer, m.draft, "streams", "plain t/s",
                 "auto t/s", "gain", "95 %", "rounds", "drafted", "accepted", "steps");
    for (int k = 0; k < b->o->n_points; k++) {
        struct way ways[WAYS] = {{.n_rounds = 0}};
        for (int rep = -1; rep < b->o->repeats; rep++) // the first is not counted
            for (int i = 0; i < WAYS; i++) {
                int way = (rep & 1) ? WAYS - 1 - i : i;
                double got;
                TRY(way_run(b, b->o->points[k], way, &got, &ways[way], err));
                if (rep >= 0) tps[way][rep] = got;
            }
        b->same = b->same && strcmp(ways[WAY_PLAIN].digest, ways[WAY_AUTO].digest) == 0;
        point_print(b, b->o->points[k], (const double(*)[STATS_MAX])tps, &ways[WAY_AUTO], k == 0);
    }
    if (b->o->json)
        out_putf("], \"same_tokens\": %s}\n", b->same ? "true" : "false");
    else
        out_puts(b->same ? "the same tokens in all\n" : "OTHER TOKENS\n");
    return TERN_OK;
}

int bench_streams_run(const struct command *c, const struct service_bench_opts *o, struct tern_engine *e) {
    struct streams_bench b = {.c = c, .o = o, .e = e, .same = true};
    struct tern_err err = {0};
    double(*tps)[STATS_MAX] = mem_calloc(WAYS, sizeof *tps);
    enum tern_status status = prompt_set_read(&b.prompts, o->prompts, &err);
    if (status == TERN_OK) {
        if (o->n_each > 0) prompt_set_thin(&b.prompts, o->n_each);
        b.jobs = mem_calloc((size_t)b.prompts.n, sizeof *b.jobs);
        status = !b.jobs || !tps ? err_set(&err, TERN_NO_MEMORY, "no memory for a bench") : points_run(&b, tps, &err);
    }
    prompt_set_release(&b.prompts);
    mem_free(b.jobs);
    mem_free(tps);
    if (status != TERN_OK) return fail_told(c, &err);
    return b.same ? EXIT_DONE : EXIT_FAILED;
}
