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
    struct serve_metrics *m = &s->metrics;
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

struct metrics_out {
    struct buf *b;
    const char *model;
};

static void head(struct metrics_out *o, const char *name, const char *type, const char *help) {
    buf_putf(o->b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}
static void value(struct metrics_out *o, const char *name, const char *type, const char *help, double v) {
    head(o, name, type, help);
    buf_putf(o->b, "%s{model_name=\"%s\"} %.17g\n", name, o->model, v);
}

static void histogram(struct metrics_out *o, const char *name, const char *help, const struct serve_histogram *h) {
    head(o, name, "histogram", help);
    uint64_t sum = 0;
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        sum += h->n[i];
        buf_putf(o->b, "%s_bucket{model_name=\"%s\",le=\"%g\"} %llu\n", name, o->model, serve_bucket_s[i],
                 (unsigned long long)sum);
    }
    buf_putf(o->b, "%s_bucket{model_name=\"%s\",le=\"+Inf\"} %llu\n", name, o->model, (unsigned long long)h->count);
    buf_putf(o->b, "%s_sum{model_name=\"%s\"} %.17g\n%s_count{model_name=\"%s\"} %llu\n", name, o->model, h->sum, name,
             o->model, (unsigned long long)h->count);
}

static void answers_put(struct metrics_out *o, const struct serve_metrics *m) {
    static const char *const alias = "vllm:request_success_total", *const own = "tern_answers_total";
    for (int pass = 0; pass < 2; pass++) {
        const char *name = pass == 0 ? own : alias;
        head(o, name, "counter", "Choices that came to their end.");
        for (int i = 0; i < 4; i++)
            buf_putf(o->b, "%s{model_name=\"%s\",%s=\"%s\"} %llu\n", name, o->model,
                     pass == 0 ? "finish" : "finished_reason", tern_finish_text((enum tern_finish)i),
                     (unsigned long long)m->n_finish[i]);
    }
    head(o, "tern_http_answers_total", "counter", "HTTP answers by class of status.");
    for (int i = 1; i < 6; i++)
        buf_putf(o->b, "tern_http_answers_total{class=\"%dxx\"} %llu\n", i, (unsigned long long)m->n_by_class[i]);
}

static void constraints_put(struct metrics_out *o, const struct tern_constraint_info *i) {
    value(o, "tern_constraints_opened_total", "counter", "Schemas, grammars and their like that answers were held to.",
          (double)i->n_opened);
    value(o, "tern_constraints_compiled_total", "counter", "Of these, not found compiled.", (double)i->n_compiled);
    value(o, "tern_constraints_kept", "gauge", "Kept compiled.", i->n_kept);
    value(o, "tern_constraints_kept_bytes", "gauge", "Memory of those.", (double)i->bytes_kept);
}

static void service_put(struct metrics_out *o, const struct tern_service_info *i) {
    value(o, "tern_requests_running", "gauge", "Answers being made.", i->n_running);
    value(o, "tern_requests_waiting", "gauge", "Answers in the queue.", i->n_waiting);
    value(o, "tern_steps_total", "counter", "Program runs.", (double)i->n_steps);
    value(o, "tern_draft_rounds_total", "counter", "Runs that checked drafted tokens.", (double)i->n_rounds);
    value(o, "tern_drafted_tokens_total", "counter", "Tokens drafted.", (double)i->n_drafted);
    value(o, "tern_accepted_tokens_total", "counter", "Drafted tokens that were right.", (double)i->n_accepted);
    value(o, "tern_prefix_cache_bytes", "gauge", "Memory of the prefix cache.", (double)i->prefix_bytes);
    value(o, "tern_prefix_cache_disk_bytes", "gauge", "Files of the prefix cache.", (double)i->prefix_disk_bytes);
    value(o, "vllm:num_requests_running", "gauge", "Alias of tern_requests_running.", i->n_running);
    value(o, "vllm:num_requests_waiting", "gauge", "Alias of tern_requests_waiting.", i->n_waiting);
}

void serve_metrics_text(struct serve *s, struct net_request *r) {
    struct buf out, model;
    buf_init(&out, 1u << 20);
    buf_init(&model, 1024);
    for (const char *p = s->model_id; *p; p++) {
        if (*p == '"' || *p == '\\') buf_putc(&model, '\\');
        buf_putc(&model, *p);
    }
    struct metrics_out o = {&out, model.data ? model.data : ""};
    struct net_counts n;
    struct tern_service_info info = {0};
    struct tern_constraint_info constraints = {0};
    net_server_counts(s->net, &n);
    bool ready = serve_ready(s);
    if (ready && s->service) tern_service_info(s->service, &info);
    if (ready) tern_constraint_info(s->engine, &constraints);
    mutex_lock(s->lock);
    struct serve_metrics m = s->metrics;
    mutex_unlock(s->lock);
    value(&o, "tern_ready", "gauge", "1 when the model is loaded.", ready);
    value(&o, "tern_uptime_seconds", "gauge", "Since start.", (double)(clock_ns() - s->begin_ns) * 1e-9);
    value(&o, "tern_resident_bytes", "gauge", "Resident memory.", (double)os_rss());
    value(&o, "tern_connections", "gauge", "Open connections.", n.n_connections);
    value(&o, "tern_http_requests_total", "counter", "HTTP requests begun.", (double)n.n_requests_all);
    value(&o, "tern_http_requests", "gauge", "HTTP requests at work.", n.n_requests);
    value(&o, "tern_http_streams", "gauge", "Streams open.", n.n_streams);
    value(&o, "tern_clients_gone_total", "counter", "Requests whose client left or was cut off.", (double)m.n_gone);
    value(&o, "tern_answers_failed_total", "counter", "Answers that ended with an error.", (double)m.n_failed);
    answers_put(&o, &m);
    service_put(&o, &info);
    constraints_put(&o, &constraints);
    value(&o, "tern_prompt_tokens_total", "counter", "Prompt tokens, cached ones included.", (double)m.n_prompt);
    value(&o, "tern_prompt_tokens_cached_total", "counter", "Of these, not computed again.", (double)m.n_cached);
    value(&o, "tern_answer_tokens_total", "counter", "Tokens generated.", (double)m.n_answer);
    value(&o, "vllm:prompt_tokens_total", "counter", "Alias of tern_prompt_tokens_total.", (double)m.n_prompt);
    value(&o, "vllm:generation_tokens_total", "counter", "Alias of tern_answer_tokens_total.", (double)m.n_answer);
    value(&o, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", (double)m.n_prompt);
    value(&o, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", (double)m.n_cached);
    const struct {
        const char *own, *alias, *help;
        const struct serve_histogram *h;
    } rows[] = {
        {"tern_first_token_seconds", "vllm:time_to_first_token_seconds", "From request to first token.",
         &m.first_token},
        {"tern_token_seconds", "vllm:inter_token_latency_seconds", "Between tokens, mean of an answer.", &m.per_token},
        {"tern_answer_seconds", "vllm:e2e_request_latency_seconds", "From request to end.", &m.whole}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        histogram(&o, rows[i].own, rows[i].help, rows[i].h);
        histogram(&o, rows[i].alias, rows[i].help, rows[i].h);
    }
    if (out.failed)
        serve_failf(r, 500, NULL, "internal", "no memory for the answer");
    else
        serve_reply(r, "text/plain; version=0.0.4; charset=utf-8", buf_str(&out));
    buf_release(&out);
    buf_release(&model);
}
