// One request from start to end, shown and gathered: text to stdout as it comes, progress of long prompts on a
// terminal.
#include "base/base.h"
#include "app.h"

#include <math.h>
#include <stdio.h>

void answer_view_init(struct answer_view *v, bool show) {
    *v = (struct answer_view){.show = show};
    buf_init(&v->text, APP_TEXT_BYTES_MAX);
    buf_init(&v->reasoning, APP_TEXT_BYTES_MAX);
    buf_init(&v->calls, APP_TEXT_BYTES_MAX);
    buf_init(&v->logprobs, APP_TEXT_BYTES_MAX);
}

void answer_view_release(struct answer_view *v) {
    buf_release(&v->text);
    buf_release(&v->reasoning);
    buf_release(&v->calls);
    buf_release(&v->logprobs);
    mem_free(v->ids);
}

static void call_take(struct answer_view *v, const struct tern_event *ev) {
    if (v->n_calls++ > 0) buf_puts(&v->calls, ", ");
    buf_puts(&v->calls, "{\"name\": ");
    json_put_quoted(&v->calls, (struct str){ev->tool_name.data, ev->tool_name.len});
    buf_putf(&v->calls, ", \"arguments\": %.*s}", (int)ev->tool_arguments.len, ev->tool_arguments.data);
}

static void logprobs_take(struct answer_view *v, const struct tern_event *ev) {
    for (int i = 0; i < ev->n_logprobs; i++) {
        const struct tern_logprob *l = &ev->logprobs[i];
        if (l->id < 0) continue;
        bool chosen = i % ev->n_logprobs_token == 0;
        if (v->logprobs.len > 0) buf_puts(&v->logprobs, chosen ? "}, " : ", ");
        buf_putf(&v->logprobs, chosen ? "{\"id\": %d, \"logprob\": " : "\"%d\": ", l->id);
        struct json_writer w;
        json_write_init(&w, &v->logprobs);
        json_write_f64(&w, (double)l->logprob);
    }
}

static void event_take(struct answer_view *v, const struct tern_event *ev) {
    struct str text = {ev->text.data, ev->text.len};
    if (ev->n_logprobs > 0) logprobs_take(v, ev);
    switch (ev->type) {
    case TERN_EVENT_TEXT:
        buf_put(&v->text, text.data, text.len);
        if (v->show) {
            out_put(text);
            out_flush();
        }
        break;
    case TERN_EVENT_REASONING: buf_put(&v->reasoning, text.data, text.len); break;
    case TERN_EVENT_TOOL_CALL: call_take(v, ev); break;
    case TERN_EVENT_PROGRESS:
    case TERN_EVENT_DONE: break;
    }
}

enum tern_status answer_view_run(struct answer_view *v, struct tern_session *s, const struct tern_request_options *o,
                                 struct tern_err *err) {
    struct tern_request *r;
    TRY(tern_request_create(&r, s, o, err));
    struct progress bar;
    bool bar_open = false;
    interrupt_watch(r);
    struct tern_event ev = {.type = TERN_EVENT_PROGRESS};
    enum tern_status status = TERN_OK;
    while (status == TERN_OK && ev.type != TERN_EVENT_DONE) {
        status = tern_request_next(r, &ev, err);
        if (status != TERN_OK) break;
        if (ev.type == TERN_EVENT_PROGRESS) {
            if (!bar_open) progress_begin(&bar, "reading the prompt", (uint64_t)ev.n_total, false);
            bar_open = true;
            progress_update(&bar, (uint64_t)ev.n_done);
        } else if (bar_open) {
            progress_end(&bar);
            bar_open = false;
        }
        event_take(v, &ev);
    }
    if (bar_open) progress_end(&bar);
    if (status == TERN_OK) {
        v->finish = ev.finish;
        v->usage = ev.usage;
        snprintf(v->draft, sizeof v->draft, "%s", ev.usage.draft);
        v->usage.draft = v->draft;
        mem_free(v->ids);
        const int32_t *ids = tern_request_ids(r, &v->n_ids);
        v->ids = mem_calloc(v->n_ids + 1, sizeof *v->ids);
        if (v->ids && v->n_ids) memcpy(v->ids, ids, v->n_ids * sizeof *ids);
    }
    if (v->logprobs.len > 0) buf_puts(&v->logprobs, "}");
    interrupt_watch(NULL);
    tern_request_free(r);
    if (status == TERN_OK && (v->text.failed || v->calls.failed || v->reasoning.failed || v->logprobs.failed))
        return err_set(err, TERN_NO_MEMORY, "no memory to keep the answer");
    return status;
}

void usage_tell(const struct tern_usage *u) {
    double prompt_n = (double)(u->n_prompt - u->n_cached), answer_n = (double)(u->n_answer - 1);
    fprintf(stderr, "%lld prompt tokens (%lld kept) in %.2f s", (long long)u->n_prompt, (long long)u->n_cached,
            u->prompt_s);
    if (u->prompt_s > 0) fprintf(stderr, ", %.0f/s", prompt_n / u->prompt_s);
    fprintf(stderr, "; %lld answer tokens", (long long)u->n_answer);
    if (answer_n > 0 && u->answer_s > 0) fprintf(stderr, ", %.1f/s", answer_n / u->answer_s);
    if (u->n_rounds > 0)
        fprintf(stderr, "; %.2f tokens a round of drafts", (double)u->n_round_tokens / (double)u->n_rounds);
    if (!isnan(u->joules)) fprintf(stderr, "; %.2f J", u->joules);
    fprintf(stderr, "\n");
}
