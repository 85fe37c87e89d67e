// GET /metrics: Prometheus' text format, under own names, and once more under those of vLLM for its dashboards.
#include "base/base.h"
#include "serve.h"

const double serve_bucket_s[SERVE_BUCKETS] = {0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32,
                                              0.64,  1.28, 2.56, 5,    10,   30,   60};

static void observe(struct serve_histogram *h, double seconds) {
    int i = 0;
    while (i < SERVE_BUCKETS && seconds > serve_bucket_s[i]) i++;
    h->n[i]++;
    h->count++;
    h->sum += seconds;
}

void serve_metrics_answer(struct serve *s, const struct serve_answer *a) {
    const struct serve_call *call = serve_call_of(a->r);
    struct tern_usage u = serve_usage_sum(a);
    double whole = (double)(clock_ns() - a->begin_ns) * 1e-9;
    struct serve_metrics *m = &a->m->metrics;
    mutex_lock(s->lock);
    m->n_prompt += (uint64_t)u.n_prompt;
    m->n_cached += (uint64_t)u.n_cached;
    m->n_answer += (uint64_t)u.n_answer;
    for (int i = 0; i < a->n_choices; i++) m->n_finish[a->choices[i].finish]++;
    if (call->first_token_s > 0) observe(&m->first_token, call->first_token_s);
    if (a->n_choices == 1 && u.n_answer > 1 && call->first_token_s > 0)
        observe(&m->per_token, MAX(whole - call->first_token_s, 0) / (double)(u.n_answer - 1));
    observe(&m->whole, whole);
    mutex_unlock(s->lock);
}

// ---------------------------------------------------------------------------------------------------------------- text

// What one model has to tell at one moment.
struct view {
    char label[2 * sizeof((struct serve_model *)0)->id + 1]; // its name, escaped
    bool loaded;
    uint64_t n_loads, bytes;
    struct serve_metrics m;
    struct tern_service_info service;
    struct tern_constraint_info constraints;
};
struct metrics_out {
    struct buf *b;
    struct view *views;
    int n_views;
};

static void head(struct metrics_out *o, const char *name, const char *type, const char *help) {
    buf_putf(o->b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}
// Of the server; under the first model's name, as scrapers of one model expect it.
static void value(struct metrics_out *o, const char *name, const char *type, const char *help, double v) {
    head(o, name, type, help);
    buf_putf(o->b, "%s{model_name=\"%s\"} %.17g\n", name, o->n_views ? o->views[0].label : "", v);
}

enum number { NUMBER_INT, NUMBER_U64, NUMBER_BOOL };
struct row {
    const char *name, *alias, *help; // alias: vLLM's name, or NULL
    bool counter;
    enum number kind;
    size_t offset; // in struct view
};
#define ROW(name_, alias_, counter_, kind_, member_, help_) \
    { name_, alias_, help_, counter_, kind_, offsetof(struct view, member_) }
static const struct row rows[] = {
    ROW("tern_model_loaded", NULL, false, NUMBER_BOOL, loaded, "1 while the model is in memory."),
    ROW("tern_model_loads_total", NULL, true, NUMBER_U64, n_loads, "Times that it was loaded."),
    ROW("tern_model_bytes", NULL, false, NUMBER_U64, bytes, "Memory that it needs at most when it is loaded."),
    ROW("tern_answers_failed_total", NULL, true, NUMBER_U64, m.n_failed, "Answers that ended with an error."),
    ROW("tern_requests_running", "vllm:num_requests_running", false, NUMBER_INT, service.n_running,
        "Answers being made."),
    ROW("tern_requests_waiting", "vllm:num_requests_waiting", false, NUMBER_INT, service.n_waiting,
        "Answers in the queue."),
    ROW("tern_steps_total", NULL, true, NUMBER_U64, service.n_steps, "Program runs."),
    ROW("tern_jobs_parked_total", NULL, true, NUMBER_U64, service.n_parked,
        "Times that a batch answer gave up its place."),
    ROW("tern_token_wait_nanoseconds_max", NULL, false, NUMBER_U64, service.token_wait_ns_max,
        "Longest that an answer at work waited for its next token."),
    ROW("tern_draft_rounds_total", NULL, true, NUMBER_U64, service.n_rounds, "Runs that checked drafted tokens."),
    ROW("tern_drafted_tokens_total", NULL, true, NUMBER_U64, service.n_drafted, "Tokens drafted."),
    ROW("tern_accepted_tokens_total", NULL, true, NUMBER_U64, service.n_accepted, "Drafted tokens that were right."),
    ROW("tern_prefix_cache_bytes", NULL, false, NUMBER_U64, service.prefix_bytes, "Memory of the prefix cache."),
    ROW("tern_prefix_cache_disk_bytes", NULL, false, NUMBER_U64, service.prefix_disk_bytes,
        "Files of the prefix cache."),
    ROW("tern_constraints_opened_total", NULL, true, NUMBER_U64, constraints.n_opened,
        "Schemas, grammars and their like that answers were held to."),
    ROW("tern_constraints_compiled_total", NULL, true, NUMBER_U64, constraints.n_compiled,
        "Of these, not found compiled."),
    ROW("tern_constraints_kept", NULL, false, NUMBER_INT, constraints.n_kept, "Kept compiled."),
    ROW("tern_constraints_kept_bytes", NULL, false, NUMBER_U64, constraints.bytes_kept, "Memory of those."),
    ROW("tern_prompt_tokens_total", "vllm:prompt_tokens_total", true, NUMBER_U64, m.n_prompt,
        "Prompt tokens, cached ones included."),
    ROW("tern_prompt_tokens_cached_total", "vllm:prefix_cache_hits_total", true, NUMBER_U64, m.n_cached,
        "Of these, not computed again."),
    ROW("tern_answer_tokens_total", "vllm:generation_tokens_total", true, NUMBER_U64, m.n_answer, "Tokens generated."),
    ROW("vllm:prefix_cache_queries_total", NULL, true, NUMBER_U64, m.n_prompt, "Prompt tokens looked up."),
};

static double number_of(const struct view *v, const struct row *r) {
    const char *at = (const char *)v + r->offset;
    switch (r->kind) {
    case NUMBER_INT: return *(const int *)at;
    case NUMBER_U64: return (double)*(const uint64_t *)at;
    case NUMBER_BOOL: return *(const bool *)at;
    }
    return 0;
}

static void row_put(struct metrics_out *o, const struct row *r, const char *name) {
    head(o, name, r->counter ? "counter" : "gauge", r->help);
    for (int i = 0; i < o->n_views; i++)
        buf_putf(o->b, "%s{model_name=\"%s\"} %.17g\n", name, o->views[i].label, number_of(&o->views[i], r));
}

static void histogram_put(struct metrics_out *o, const char *name, const char *help, size_t offset) {
    head(o, name, "histogram", help);
    for (int k = 0; k < o->n_views; k++) {
        const struct serve_histogram *h = (const void *)((const char *)&o->views[k].m + offset);
        const char *label = o->views[k].label;
        uint64_t sum = 0;
        for (int i = 0; i < SERVE_BUCKETS; i++) {
            sum += h->n[i];
            buf_putf(o->b, "%s_bucket{model_name=\"%s\",le=\"%g\"} %llu\n", name, label, serve_bucket_s[i],
                     (unsigned long long)sum);
        }
        buf_putf(o->b, "%s_bucket{model_name=\"%s\",le=\"+Inf\"} %llu\n", name, label, (unsigned long long)h->count);
        buf_putf(o->b, "%s_sum{model_name=\"%s\"} %.17g\n%s_count{model_name=\"%s\"} %llu\n", name, label, h->sum, name,
                 label, (unsigned long long)h->count);
    }
}

static void answers_put(struct metrics_out *o) {
    static const char *const alias = "vllm:request_success_total", *const own = "tern_answers_total";
    for (int pass = 0; pass < 2; pass++) {
        const char *name = pass == 0 ? own : alias;
        head(o, name, "counter", "Choices that came to their end.");
        for (int k = 0; k < o->n_views; k++)
            for (int i = 0; i < 4; i++)
                buf_putf(o->b, "%s{model_name=\"%s\",%s=\"%s\"} %llu\n", name, o->views[k].label,
                         pass == 0 ? "finish" : "finished_reason", tern_finish_text((enum tern_finish)i),
                         (unsigned long long)o->views[k].m.n_finish[i]);
    }
}

static void view_take(struct serve *s, struct serve_model *m, struct view *v) {
    size_t n = 0;
    *v = (struct view){0};
    for (const char *p = m->id; *p; p++) {
        if (*p == '"' || *p == '\\') v->label[n++] = '\\';
        v->label[n++] = *p;
    }
    v->loaded = serve_model_hold(s, m);
    if (v->loaded && m->service) tern_service_info(m->service, &v->service);
    if (v->loaded) tern_constraint_info(m->engine, &v->constraints);
    mutex_lock(s->lock);
    v->m = m->metrics;
    v->bytes = m->bytes;
    v->n_loads = m->n_loads;
    mutex_unlock(s->lock);
    if (v->loaded) serve_model_drop(s, m, false);
}

static void server_put(struct metrics_out *o, struct serve *s) {
    struct net_counts n;
    net_server_counts(s->net, &n);
    mutex_lock(s->lock);
    const uint64_t n_gone = s->n_gone;
    uint64_t by_class[6];
    memcpy(by_class, s->n_by_class, sizeof by_class);
    mutex_unlock(s->lock);
    value(o, "tern_ready", "gauge", "1 when the first model has been loaded.", serve_ready(s));
    value(o, "tern_uptime_seconds", "gauge", "Since start.", (double)(clock_ns() - s->begin_ns) * 1e-9);
    value(o, "tern_resident_bytes", "gauge", "Resident memory.", (double)os_rss());
    value(o, "tern_connections", "gauge", "Open connections.", n.n_connections);
    value(o, "tern_http_requests_total", "counter", "HTTP requests begun.", (double)n.n_requests_all);
    value(o, "tern_http_requests", "gauge", "HTTP requests at work.", n.n_requests);
    value(o, "tern_http_streams", "gauge", "Streams open.", n.n_streams);
    value(o, "tern_clients_gone_total", "counter", "Requests whose client left or was cut off.", (double)n_gone);
    head(o, "tern_http_answers_total", "counter", "HTTP answers by class of status.");
    for (int i = 1; i < 6; i++)
        buf_putf(o->b, "tern_http_answers_total{class=\"%dxx\"} %llu\n", i, (unsigned long long)by_class[i]);
}

void serve_metrics_text(struct serve *s, struct net_request *r) {
    static const struct {
        const char *own, *alias, *help;
        size_t offset;
    } histograms[] = {{"tern_first_token_seconds", "vllm:time_to_first_token_seconds", "From request to first token.",
                       offsetof(struct serve_metrics, first_token)},
                      {"tern_token_seconds", "vllm:inter_token_latency_seconds", "Between tokens, mean of an answer.",
                       offsetof(struct serve_metrics, per_token)},
                      {"tern_answer_seconds", "vllm:e2e_request_latency_seconds", "From request to end.",
                       offsetof(struct serve_metrics, whole)}};
    struct buf out;
    buf_init(&out, 4u << 20);
    const int n_models = s->n_models;
    struct metrics_out o = {&out, mem_calloc((size_t)n_models, sizeof *o.views), n_models};
    if (!o.views) o.n_views = 0, out.failed = true;
    for (int i = 0; i < o.n_views; i++) view_take(s, &s->models[i], &o.views[i]);
    server_put(&o, s);
    answers_put(&o);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        row_put(&o, &rows[i], rows[i].name);
        if (rows[i].alias) row_put(&o, &rows[i], rows[i].alias);
    }
    for (size_t i = 0; i < ARRAY_LEN(histograms); i++) {
        histogram_put(&o, histograms[i].own, histograms[i].help, histograms[i].offset);
        histogram_put(&o, histograms[i].alias, histograms[i].help, histograms[i].offset);
    }
    if (out.failed)
        serve_failf(r, 500, NULL, "internal", "no memory for the answer");
    else
        serve_reply(r, "text/plain; version=0.0.4; charset=utf-8", buf_str(&out));
    mem_free(o.views);
    buf_release(&out);
}
