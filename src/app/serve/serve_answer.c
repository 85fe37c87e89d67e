// One generated answer at work: its jobs, taken further whenever the scheduler's notice pokes the request, written by
// the wire format. No thread waits for a job: 1,000 answers in the queue cost their memory only.
//
// Back-pressure: events stay in their job while the client's stream has less than SERVE_ROOM_MIN bytes of room; net/
// pokes again when it drained, and cuts a client that takes nothing. A client that leaves frees the jobs, which cancels
// them at the next step.
#include "base/base.h"
#include "serve_parts.h"

#include <math.h>
#include <stdio.h>

// Tokens within this time of the last ones told are told together. With it pico's stream takes 950 us of processor time
// and 1.05 waits for each token, without it 1,060 us and 3.73 (2-vCPU Sapphire Rapids Xeon, one compute thread).
#define REST_S 0.004
// When so many came in one rest they come that fast: the next rest is longer, so that waking others for them costs the
// model little where it needs all processors itself.
#define REST_FAST_EVENTS 5
#define REST_FAST_S 0.012

struct serve_answer *serve_answer_create(struct serve *s, struct net_request *r, const struct serve_wire *wire,
                                         const char *id_prefix) {
    struct serve_answer *a = mem_calloc(1, sizeof *a);
    if (!a) {
        serve_failf(r, 503, NULL, "no_memory", "no memory for the request; try again");
        return NULL;
    }
    a->s = s;
    a->m = serve_model_of(s, r);
    a->r = r;
    a->wire = wire;
    a->created_s = clock_wall_s();
    a->begin_ns = r->begin_ns;
    buf_init(&a->out, SERVE_TEXT_BYTES_MAX);
    serve_ask_init(&a->ask, s);
    serve_id_make(a->id, sizeof a->id, id_prefix);
    return a;
}

void serve_answer_free(struct serve_answer *a) {
    if (!a) return;
    mutex_lock(a->s->lock);
    if (a->link) {
        *a->link = a->next;
        if (a->next) a->next->link = a->link;
    }
    mutex_unlock(a->s->lock);
    for (int i = 0; i < a->n_choices; i++) {
        struct serve_choice *c = &a->choices[i];
        if (c->job) tern_job_notify(c->job, NULL, NULL); // no poke after this
        tern_job_free(c->job);
        buf_release(&c->text);
        buf_release(&c->reasoning);
        buf_release(&c->calls);
        buf_release(&c->logprobs);
        buf_release(&c->blanks);
        buf_release(&c->shown);
    }
    mem_free(a->choices);
    tern_constraint_close(&a->constraint);
    buf_release(&a->out);
    serve_ask_release(&a->ask);
    mem_free(a);
}

struct tern_usage serve_usage_sum(const struct serve_answer *a) {
    struct tern_usage sum = a->choices[0].usage;
    sum.n_prompt = sum.n_cached = sum.n_answer = sum.n_reasoning = sum.n_steps = 0;
    sum.n_rounds = sum.n_drafted = sum.n_accepted = 0;
    sum.joules = 0;
    for (int i = 0; i < a->n_choices; i++) {
        const struct tern_usage *u = &a->choices[i].usage;
        if (i % (int)a->ask.n == 0) { // the choices of one prompt share it
            sum.n_prompt += u->n_prompt;
            sum.n_cached += u->n_cached;
        }
        sum.n_answer += u->n_answer;
        sum.n_reasoning += u->n_reasoning;
        sum.n_steps += u->n_steps;
        sum.n_rounds += u->n_rounds;
        sum.n_drafted += u->n_drafted;
        sum.n_accepted += u->n_accepted;
        sum.joules += u->joules;
    }
    return sum;
}

static void int_put(struct json_writer *w, const char *key, int64_t v) {
    json_write_key(w, key);
    json_write_int(w, v);
}
static void f64_put(struct json_writer *w, const char *key, double v) {
    json_write_key(w, key);
    json_write_f64(w, v);
}

void serve_usage_put(struct json_writer *w, const struct serve_answer *a) {
    struct tern_usage u = serve_usage_sum(a);
    json_write_object(w);
    int_put(w, "prompt_tokens", u.n_prompt);
    int_put(w, "completion_tokens", u.n_answer);
    int_put(w, "total_tokens", u.n_prompt + u.n_answer);
    json_write_key(w, "prompt_tokens_details");
    json_write_object(w);
    int_put(w, "cached_tokens", u.n_cached);
    json_write_object_end(w);
    json_write_key(w, "completion_tokens_details");
    json_write_object(w);
    int_put(w, "reasoning_tokens", u.n_reasoning);
    json_write_object_end(w);
    json_write_object_end(w);
}

void serve_timings_put(struct json_writer *w, const struct serve_answer *a) {
    struct tern_usage u = serve_usage_sum(a);
    double prompt_n = (double)(u.n_prompt - u.n_cached);
    json_write_key(w, "timings");
    json_write_object(w);
    int_put(w, "cache_n", u.n_cached);
    int_put(w, "prompt_n", u.n_prompt - u.n_cached);
    f64_put(w, "prompt_ms", u.prompt_s * 1e3);
    f64_put(w, "prompt_per_second", u.prompt_s > 0 ? prompt_n / u.prompt_s : NAN);
    int_put(w, "predicted_n", u.n_answer);
    f64_put(w, "predicted_ms", u.answer_s * 1e3);
    f64_put(w, "predicted_per_second", u.answer_s > 0 ? (double)u.n_answer / u.answer_s : NAN);
    f64_put(w, "first_token_ms", u.first_token_s * 1e3);
    int_put(w, "draft_rounds", u.n_rounds);
    int_put(w, "draft_n", u.n_drafted);
    int_put(w, "draft_n_accepted", u.n_accepted);
    json_write_key(w, "plan");
    json_write_str(w, str_from(u.plan ? u.plan : ""));
    json_write_object_end(w);
}

void serve_timings_piece_put(struct json_writer *w, const struct serve_answer *a) {
    if (a->ask.timings_per_token) serve_timings_put(w, a);
}

void serve_energy_put(struct json_writer *w, const struct serve_answer *a) {
    double joules = serve_usage_sum(a).joules;
    json_write_key(w, "energy");
    json_write_object(w);
    f64_put(w, "joules", joules);
    json_write_key(w, "method");
    if (isnan(joules))
        json_write_null(w);
    else
        json_write_str(w, STR("meter"));
    json_write_object_end(w);
}

void serve_progress_put(struct json_writer *w, const struct serve_answer *a, const struct tern_event *e) {
    json_write_key(w, "prompt_progress");
    json_write_object(w);
    int_put(w, "total", e->n_total);
    int_put(w, "cache", e->usage.n_cached);
    int_put(w, "processed", e->n_done);
    f64_put(w, "time_ms", (double)(clock_ns() - a->begin_ns) * 1e-6);
    json_write_object_end(w);
}

// --------------------------------------------------------------------------------------------------------- at work

static void call_keep(struct serve_choice *c, const struct tern_event *e) {
    char id[40];
    serve_id_make(id, sizeof id, "call_");
    if (c->n_calls++ > 0) buf_puts(&c->calls, ",");
    struct json_writer w;
    json_write_init(&w, &c->calls);
    json_write_object(&w);
    json_write_key(&w, "id");
    json_write_str(&w, str_from(id));
    json_write_key(&w, "type");
    json_write_str(&w, STR("function"));
    json_write_key(&w, "function");
    json_write_object(&w);
    json_write_key(&w, "name");
    json_write_str(&w, serve_view(e->tool_name));
    json_write_key(&w, "arguments");
    json_write_str(&w, serve_view(e->tool_arguments));
    json_write_object_end(&w);
    json_write_object_end(&w);
    snprintf(c->call_id, sizeof c->call_id, "%s", id);
}

static void choice_cut(struct serve_choice *c, enum tern_finish finish) {
    c->is_cut = true;
    c->cut_finish = finish;
    tern_job_cancel(c->job);
}

// At a line's end, once the answer has taken as long as it may.
static bool time_is_over(const struct serve_answer *a, const struct serve_choice *c) {
    const double answer_s = (double)(clock_ns() - a->begin_ns) * 1e-9 - serve_call_of(a->r)->first_token_s;
    return a->ask.answer_ms_max > 0 && answer_s * 1e3 > (double)a->ask.answer_ms_max && c->text.len > 0 &&
           memchr(c->text.data, '\n', c->text.len);
}

static void event_take(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e) {
    struct serve_call *call = serve_call_of(a->r);
    struct tern_event less;
    bool over = false;
    if (e->type == TERN_EVENT_TEXT && a->ask.n_indent > 0 && !c->is_cut) {
        less = *e;
        less.text = serve_indent_take(&a->ask, c, e->text, &over);
        e = &less;
    }
    if (e->type == TERN_EVENT_DONE) {
        c->is_done = true;
        c->finish = c->is_cut ? c->cut_finish : e->finish;
        c->usage = e->usage;
    } else if (e->type != TERN_EVENT_PROGRESS) {
        if (c->is_cut) return;
        if (call->first_token_s == 0) call->first_token_s = (double)(clock_ns() - a->begin_ns) * 1e-9;
    }
    if (a->ask.timings_per_token && e->type != TERN_EVENT_DONE && e->type != TERN_EVENT_PROGRESS) c->usage = e->usage;
    switch (e->type) {
    case TERN_EVENT_TEXT: buf_put(&c->text, e->text.data, e->text.len); break;
    case TERN_EVENT_REASONING: buf_put(&c->reasoning, e->text.data, e->text.len); break;
    case TERN_EVENT_TOOL_CALL: call_keep(c, e); break;
    case TERN_EVENT_PROGRESS:
    case TERN_EVENT_DONE: break;
    }
    a->wire->event(a, c, e, &a->out);
    if (e->type == TERN_EVENT_TOOL_CALL && !a->ask.parallel_tool_calls) choice_cut(c, TERN_FINISH_TOOL_CALLS);
    if (e->type == TERN_EVENT_TEXT && (over || time_is_over(a, c))) choice_cut(c, TERN_FINISH_LENGTH);
}

// Takes what the choice's job has to tell, at most so long as there is room. False: *fault says what failed.
static bool choice_pump(struct serve_answer *a, struct serve_choice *c, struct serve_fault *fault) {
    while (!c->is_done && a->out.len < SERVE_ROOM_MIN / 2) {
        struct tern_event e;
        struct tern_err err = {0};
        enum tern_status status = tern_job_next(c->job, 0, &e, &err);
        if (status == TERN_AGAIN) return true;
        if (status != TERN_OK) {
            serve_fault_from(fault, status, &err, NULL);
            if (fault->status == 400) fault->status = 500; // the client's part was found good before
            return false;
        }
        event_take(a, c, &e);
        a->n_events++;
        if (c->is_done && c->finish == TERN_FINISH_CANCELLED) {
            serve_fault_set(fault, 503, NULL, "cancelled", "%s",
                            a->s->is_draining ? "the server is stopping" : "the answer was cancelled");
            fault->retry_s = 1;
            return false;
        }
        if (c->text.failed || c->reasoning.failed || c->calls.failed || c->logprobs.failed || a->out.failed) {
            serve_fault_set(fault, 503, NULL, "no_memory", "no memory for the answer");
            return false;
        }
        if (!a->streams) buf_clear(&a->out);
    }
    return true;
}

static bool out_flush_stream(struct serve_answer *a) {
    bool ok = a->out.len == 0 || net_stream_put(a->r, buf_str(&a->out));
    buf_clear(&a->out);
    return ok;
}

static void answer_end(struct serve_answer *a) {
    struct serve_call *call = serve_call_of(a->r);
    struct tern_usage u = serve_usage_sum(a);
    call->n_prompt = u.n_prompt;
    call->n_cached = u.n_cached;
    call->n_answer = u.n_answer;
    call->finish = tern_finish_text(a->choices[0].finish);
    serve_metrics_answer(a->s, a);
    if (a->streams) {
        a->wire->end(a, &a->out);
        out_flush_stream(a);
        net_stream_end(a->r);
        return;
    }
    struct buf whole;
    buf_init(&whole, 2 * SERVE_TEXT_BYTES_MAX);
    a->wire->whole(a, &whole);
    serve_reply_json(a->r, &whole);
}

static void answer_fault(struct serve_answer *a, const struct serve_fault *fault) {
    struct serve_call *call = serve_call_of(a->r);
    mutex_lock(a->s->lock);
    a->m->metrics.n_failed++;
    mutex_unlock(a->s->lock);
    if (!a->streams) {
        serve_fail(a->r, fault);
        return;
    }
    snprintf(call->error, sizeof call->error, "%s", fault->code);
    a->wire->fault(a, fault, &a->out);
    out_flush_stream(a);
    net_stream_end(a->r);
}

static void answer_run(struct net_request *r, void *arg) {
    struct serve_answer *a = arg;
    struct serve_fault fault = {0};
    int64_t n_before = a->n_events;
    for (bool more = true; more;) {
        if (a->streams && net_stream_room(a->r) < SERVE_ROOM_MIN) return; // poked again when there is room
        int n_done = 0;
        for (int i = 0; i < a->n_choices; i++) {
            struct serve_choice *c = &a->choices[i];
            if (!choice_pump(a, c, &fault)) {
                answer_fault(a, &fault);
                return;
            }
            n_done += c->is_done;
        }
        if (n_done == a->n_choices) {
            answer_end(a);
            return;
        }
        more = a->streams && a->out.len >= SERVE_ROOM_MIN / 2;
        if (a->streams && !out_flush_stream(a)) return; // gone: release comes next
    }
    int64_t n_new = a->n_events - n_before;
    if (n_new > 0) net_request_rest(r, n_new >= REST_FAST_EVENTS ? REST_FAST_S : REST_S);
}

static void answer_release(struct net_request *r, void *arg) {
    (void)r;
    serve_answer_free(arg);
}

static void on_notice(void *arg) { net_request_poke(arg); }

// ------------------------------------------------------------------------------------------------------------ starting

static enum tern_status choice_submit(struct serve_answer *a, struct serve_choice *c, const struct serve_prompt *p,
                                      int i, struct tern_err *err) {
    const struct serve_call *call = serve_call_of(a->r);
    struct tern_job_options o;
    tern_job_options_default(&o);
    o.request = a->request;
    o.priority = a->ask.priority;
    o.tenant = serve_str(str_from(call->tenant));
    o.request.messages_json = serve_str(p->messages);
    o.request.tools_json = serve_str(p->tools);
    o.request.template_json = a->request.template_json;
    o.request.parse_tools = p->tools.len > 0;
    o.request.prompt = serve_str(p->text);
    o.request.prompt_special = p->special;
    o.request.prompt_ids = p->ids;
    o.request.n_prompt_ids = p->n_ids;
    o.request.seed += (uint64_t)i;
    buf_init(&c->text, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->reasoning, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->calls, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->logprobs, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->blanks, SERVE_TEXT_BYTES_MAX);
    buf_init(&c->shown, SERVE_TEXT_BYTES_MAX);
    return tern_job_submit(&c->job, a->m->service, &o, err);
}

void serve_answer_start(struct serve_answer *a, const struct serve_prompt *prompts, int n_prompts) {
    struct serve *s = a->s;
    struct tern_err err = {0};
    struct serve_fault fault = {0};
    int n = n_prompts * (int)a->ask.n;
    bool draining = false;
    if (!a->m->service)
        serve_fault_set(&fault, 400, "model", "unsupported", "this model generates no text: use /v1/embeddings");
    if (n > SERVE_CHOICES_MAX)
        serve_fault_set(&fault, 400, "n", "limit_exceeded", "n times prompts is %d; at most %d", n, SERVE_CHOICES_MAX);
    a->choices = fault.status ? NULL : mem_calloc((size_t)n, sizeof *a->choices);
    if (!fault.status && !a->choices) serve_fault_set(&fault, 503, NULL, "no_memory", "no memory for the request");
    for (int i = 0; i < n && !fault.status; i++) {
        struct serve_choice *c = &a->choices[i];
        *c = (struct serve_choice){.answer = a, .index = i, .finish = TERN_FINISH_CANCELLED};
        c->usage.joules = NAN;
        a->n_choices++;
        enum tern_status status = choice_submit(a, c, &prompts[i / (int)a->ask.n], i % (int)a->ask.n, &err);
        if (status != TERN_OK) serve_fault_from(&fault, status, &err, prompts[0].messages.len ? "messages" : "prompt");
    }
    if (!fault.status) {
        mutex_lock(s->lock);
        draining = s->is_draining;
        if (!draining) {
            a->link = &s->answers;
            a->next = s->answers;
            if (a->next) a->next->link = &a->next;
            s->answers = a;
        }
        mutex_unlock(s->lock);
        if (draining) serve_fault_set(&fault, 503, NULL, "stopping", "the server is stopping");
    }
    if (fault.status) {
        serve_fail(a->r, &fault);
        serve_answer_free(a);
        return;
    }
    net_request_defer(a->r, answer_run, answer_release, a);
    if (a->streams) {
        serve_reply_stream(a->r, a->wire->stream_type, a->wire->ping);
        if (a->wire->begin) a->wire->begin(a, &a->out);
        out_flush_stream(a);
    }
    for (int i = 0; i < n; i++) tern_job_notify(a->choices[i].job, on_notice, a->r);
    net_request_poke(a->r); // events may have come before the notice was set
}
