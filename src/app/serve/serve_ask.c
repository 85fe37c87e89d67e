// From fields to a request of the engine: the operator's defaults, then what the client asks, checked one against the
// other. What cannot be done is refused by name; nothing is dropped in silence.
#include "base/base.h"
#include "serve_parts.h"

#include <math.h>
#include <stdio.h>

void serve_ask_init(struct serve_ask *a, const struct serve *s) {
    const struct tern_request_options *r = &s->sample.request;
    *a = (struct serve_ask){.temperature = r->temperature,
                            .top_p = r->top_p,
                            .min_p = r->min_p,
                            .presence_penalty = r->presence_penalty,
                            .frequency_penalty = r->frequency_penalty,
                            .repeat_penalty = r->repeat_penalty,
                            .top_k = r->top_k,
                            .dimensions = SERVE_UNSET,
                            .repeat_last = r->repeat_last,
                            .max_tokens = SERVE_UNSET,
                            .max_completion_tokens = SERVE_UNSET,
                            .n = 1,
                            .best_of = SERVE_UNSET,
                            .logprobs_n = SERVE_UNSET,
                            .top_logprobs = SERVE_UNSET,
                            .seed = SERVE_UNSET,
                            .parallel_tool_calls = true,
                            .ignore_eos = r->ignore_eos,
                            .priority = s->priority};
    arena_init(&a->arena, SERVE_TEXT_BYTES_MAX);
    for (int i = 0; i < r->n_stop; i++) a->stop[a->n_stop++] = r->stop[i];
}

// Elements of a raw JSON array; -1: it is none.
static int64_t list_len(struct str raw) {
    struct json *j;
    struct json_item item;
    if (json_create(&j, raw, NULL, NULL) != TERN_OK) return -1;
    int64_t n = json_next(j, &item, NULL) == JSON_ARRAY ? 0 : -1;
    while (n >= 0) {
        enum json_event e = json_next(j, &item, NULL);
        if (e == JSON_ARRAY_END) break;
        if (e == JSON_ERROR) n = -2;
        if ((e == JSON_OBJECT || e == JSON_ARRAY) && json_skip(j, NULL) != TERN_OK) n = -2;
        n++;
    }
    json_free(j);
    return n;
}

static bool list_check(struct serve_ask *a, struct str raw, const char *name, int64_t max) {
    int64_t n = list_len(raw);
    if (n < 0) return serve_bad(a, name, "%s must be a list", name);
    if (n > max) return serve_bad(a, name, "%s has %lld entries; at most %lld", name, (long long)n, (long long)max);
    return true;
}

static bool lengths_set(struct serve_answer *sa) {
    struct serve_ask *a = &sa->ask;
    int64_t old = a->max_tokens, new = a->max_completion_tokens;
    if (old != SERVE_UNSET && new != SERVE_UNSET && old != new)
        return serve_bad(a, "max_tokens",
                         "max_tokens (%lld) and max_completion_tokens (%lld) differ; they mean the same",
                         (long long)old, (long long)new);
    int64_t n = new != SERVE_UNSET ? new : old;
    int ceiling = sa->s->sample.max_tokens;
    if (n == SERVE_UNSET) n = ceiling;
    if (ceiling > 0) n = MIN(n, ceiling);
    sa->request.n_max = (int)MIN(n, INT32_MAX);
    return true;
}

// Tools are functions: what another kind ("custom", "web_search") asks for is not done, so it is not offered.
static bool tool_check(void *arg, struct str raw, int i) {
    static const struct serve_field fields[] = {SERVE_FIELD("type", SERVE_FIELD_STR, system, 0, 0), {0}};
    struct serve_ask *a = arg, f = {.arena = a->arena};
    char prefix[32];
    snprintf(prefix, sizeof prefix, "tools[%d].", i);
    const bool ok = serve_fields_read(&f, raw, prefix, fields);
    a->arena = f.arena;
    if (!ok) return a->fault = f.fault, false;
    if (f.system.len == 0 || str_eqz(f.system, "function")) return true;
    return serve_bad(a, "tools", "tools[%d].type is '%.*s', but only functions can be called", i,
                     (int)MIN(f.system.len, SERVE_NAME_SHOWN_MAX), f.system.data);
}

// An empty list, as some clients send it, offers nothing.
bool serve_tools_check(struct serve_ask *a) {
    if (a->tools.len > 0 && !list_check(a, a->tools, "tools", SERVE_TOOLS_MAX)) return false;
    if (a->tools.len > 0 && list_len(a->tools) == 0) a->tools = (struct str){0};
    return a->tools.len == 0 || serve_list_each(a, a->tools, "tools", SERVE_TOOLS_MAX, tool_check, a);
}

static bool logprobs_set(struct serve_answer *sa) {
    struct serve_ask *a = &sa->ask;
    sa->request.n_logprobs = -1;
    if (a->logprobs_n != SERVE_UNSET) sa->request.n_logprobs = (int)a->logprobs_n; // completions
    if (a->logprobs) sa->request.n_logprobs = a->top_logprobs == SERVE_UNSET ? 0 : (int)a->top_logprobs;
    if (!a->logprobs && a->logprobs_n == SERVE_UNSET && a->top_logprobs != SERVE_UNSET && a->top_logprobs > 0)
        return serve_bad(a, "top_logprobs", "top_logprobs needs logprobs: true");
    return true;
}

static bool bias_check(struct serve_answer *sa) {
    for (int i = 0; i < sa->ask.n_bias; i++)
        if (sa->ask.bias[i].id >= sa->m->info.n_vocab)
            return serve_bad(&sa->ask, "logit_bias", "logit_bias: the model has %d tokens; there is no id %d",
                             sa->m->info.n_vocab, sa->ask.bias[i].id);
    return true;
}

bool serve_answer_prepare(struct serve_answer *sa) {
    struct serve_ask *a = &sa->ask;
    struct tern_request_options *r = &sa->request;
    tern_request_options_default(r);
    bool ok = (a->messages.len == 0 || list_check(a, a->messages, "messages", SERVE_MESSAGES_MAX)) &&
              serve_tools_check(a) && lengths_set(sa) && logprobs_set(sa) && bias_check(sa) &&
              serve_constraint_open(sa);
    if (!ok) {
        serve_fail(sa->r, &a->fault);
        return false;
    }
    const struct str values = serve_template_values(a);
    r->template_json = values.len > 0 ? serve_str(values) : sa->s->sample.request.template_json;
    r->temperature = a->temperature;
    r->top_k = (int)MIN(a->top_k, INT32_MAX);
    r->top_p = a->top_p;
    r->min_p = a->min_p;
    r->repeat_penalty = a->repeat_penalty;
    r->repeat_last = (int)a->repeat_last;
    r->presence_penalty = a->presence_penalty;
    r->frequency_penalty = a->frequency_penalty;
    r->ignore_eos = a->ignore_eos;
    r->logit_bias = a->bias;
    r->n_logit_bias = a->n_bias;
    for (int i = 0; i < a->n_stop; i++) r->stop[i] = a->stop[i];
    r->n_stop = a->n_stop;
    r->draft = sa->s->sample.request.draft;
    if (a->seed != SERVE_UNSET)
        r->seed = (uint64_t)a->seed;
    else if (r->temperature > 0) // without a seed each answer is another one
        os_random(&r->seed, sizeof r->seed);
    sa->streams = a->stream;
    return true;
}

void serve_prompt_options(const struct serve *s, struct serve_ask *a, struct tern_request_options *prompt) {
    const struct str values = serve_template_values(a);
    tern_request_options_default(prompt);
    prompt->messages_json = serve_str(a->messages);
    prompt->tools_json = serve_str(a->tools);
    prompt->template_json = values.len > 0 ? serve_str(values) : s->sample.request.template_json;
}

int64_t serve_prompt_count(const struct serve *s, const struct serve_model *m, struct serve_ask *a,
                           struct tern_err *err) {
    struct tern_request_options prompt;
    serve_prompt_options(s, a, &prompt);
    return tern_prompt_count(m->engine, &prompt, err);
}

void serve_count_reply(struct serve *s, struct net_request *r, struct serve_ask *a, bool responses) {
    struct serve_fault fault = {0};
    struct tern_err err = {0};
    const int64_t n = serve_prompt_count(s, serve_model_of(s, r), a, &err);
    if (n < 0) {
        serve_fault_from(&fault, (enum tern_status)n, &err, responses ? "input" : "messages");
        serve_fail(r, &fault);
        return;
    }
    struct buf out;
    struct json_writer w;
    buf_init(&out, 4096);
    json_write_init(&w, &out);
    json_write_object(&w);
    if (responses) serve_put_text(&w, "object", "response.input_tokens");
    serve_put_int(&w, "input_tokens", n);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}
