// POST /v1/chat/completions: OpenAI's wire format, whole and as server-sent events.
#include "base/base.h"
#include "serve_parts.h"

static const struct serve_field fields[] = {
    SERVE_FIELDS_OPENAI,
    SERVE_FIELD("messages", SERVE_FIELD_RAW, messages, 0, 0),
    SERVE_FIELD("tools", SERVE_FIELD_RAW, tools, 0, 0),
    SERVE_FIELD("tool_choice", SERVE_FIELD_RAW, tool_choice, 0, 0),
    SERVE_FIELD("parallel_tool_calls", SERVE_FIELD_BOOL, parallel_tool_calls, 0, 0),
    SERVE_FIELD("max_completion_tokens", SERVE_FIELD_INT, max_completion_tokens, 1, 9e15),
    SERVE_FIELD("logprobs", SERVE_FIELD_BOOL, logprobs, 0, 0),
    SERVE_FIELD("top_logprobs", SERVE_FIELD_INT, top_logprobs, 0, TERN_TOP_LOGPROBS_MAX),
    {"reasoning_effort", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_effort, 0},
    {"chat_template_kwargs", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_template_values, 0},
    SERVE_FIELD("return_progress", SERVE_FIELD_BOOL, return_progress, 0, 0),
    SERVE_FIELD("timings_per_token", SERVE_FIELD_BOOL, timings_per_token, 0, 0),
    {"functions", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "the old form of tools is not read; use tools"},
    {"function_call", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "the old form of tool_choice is not read; use tool_choice"},
    {"chat_template", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "templates of clients are not run"},
    {"audio", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "the model gives text only"},
    {0}};

// ------------------------------------------------------------------------------------------------------------- pieces

// id, object, created, model, system_fingerprint.
static void head_put(struct json_writer *w, const struct serve_answer *a, const char *object) {
    json_write_object(w);
    serve_put_str(w, "id", str_from(a->id));
    serve_put_str(w, "object", str_from(object));
    json_write_key(w, "created");
    json_write_int(w, a->created_s);
    serve_put_str(w, "model", str_from(a->m->id));
    serve_put_str(w, "system_fingerprint", str_from(a->s->fingerprint));
}

// ------------------------------------------------------------------------------------------------------------- stream

// "data: {…, "choices": [{"index", "delta": {", left open.
static void chunk_open(struct json_writer *w, struct serve_answer *a, int index, struct buf *out) {
    buf_puts(out, "data: ");
    json_write_init(w, out);
    head_put(w, a, "chat.completion.chunk");
    json_write_key(w, "choices");
    json_write_array(w);
    json_write_object(w);
    json_write_key(w, "index");
    json_write_int(w, index);
    json_write_key(w, "delta");
    json_write_object(w);
}

static void chunk_close(struct json_writer *w, struct serve_answer *a, const struct tern_event *e, const char *finish) {
    json_write_object_end(w); // delta
    json_write_key(w, "logprobs");
    if (e && e->n_logprobs > 0) {
        json_write_object(w);
        json_write_key(w, "content");
        json_write_array(w);
        serve_logprobs_put(w, e, false);
        json_write_array_end(w);
        serve_put_text(w, "refusal", NULL);
        json_write_object_end(w);
    } else {
        json_write_null(w);
    }
    json_write_key(w, "finish_reason");
    if (finish)
        json_write_str(w, str_from(finish));
    else
        json_write_null(w);
    json_write_object_end(w);
    json_write_array_end(w);
    if (a->ask.include_usage) serve_put_text(w, "usage", NULL);
}

static void chunk_end(struct json_writer *w, struct buf *out) {
    json_write_object_end(w);
    buf_puts(out, "\n\n");
}

static void stream_begin(struct serve_answer *a, struct buf *out) {
    for (int i = 0; i < a->n_choices; i++) {
        struct json_writer w;
        chunk_open(&w, a, i, out);
        serve_put_str(&w, "role", STR("assistant"));
        serve_put_str(&w, "content", STR(""));
        chunk_close(&w, a, NULL, NULL);
        chunk_end(&w, out);
    }
}

// A call in two chunks: who, then what with.
static void call_chunks_put(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e,
                            struct buf *out) {
    for (int part = 0; part < 2; part++) {
        struct json_writer w;
        chunk_open(&w, a, c->index, out);
        json_write_key(&w, "tool_calls");
        json_write_array(&w);
        json_write_object(&w);
        json_write_key(&w, "index");
        json_write_int(&w, c->n_calls - 1);
        if (part == 0) {
            serve_put_str(&w, "id", str_from(c->call_id));
            serve_put_str(&w, "type", STR("function"));
        }
        json_write_key(&w, "function");
        json_write_object(&w);
        if (part == 0) serve_put_str(&w, "name", serve_view(e->tool_name));
        serve_put_str(&w, "arguments", part == 0 ? STR("") : serve_view(e->tool_arguments));
        json_write_object_end(&w);
        json_write_object_end(&w);
        json_write_array_end(&w);
        chunk_close(&w, a, NULL, NULL);
        if (part == 1) serve_timings_piece_put(&w, a);
        chunk_end(&w, out);
    }
}

static void progress_put(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out) {
    struct json_writer w;
    chunk_open(&w, a, c->index, out);
    chunk_close(&w, a, NULL, NULL);
    serve_progress_put(&w, a, e);
    chunk_end(&w, out);
}

static void on_event(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out) {
    struct json_writer w;
    if (!a->streams) {
        if (e->type == TERN_EVENT_TEXT || e->type == TERN_EVENT_REASONING) serve_logprobs_keep(c, e, false);
        return;
    }
    switch (e->type) {
    case TERN_EVENT_TEXT:
    case TERN_EVENT_REASONING:
        chunk_open(&w, a, c->index, out);
        serve_put_str(&w, e->type == TERN_EVENT_TEXT ? "content" : "reasoning_content", serve_view(e->text));
        chunk_close(&w, a, e, NULL);
        serve_timings_piece_put(&w, a);
        chunk_end(&w, out);
        break;
    case TERN_EVENT_TOOL_CALL: call_chunks_put(a, c, e, out); break;
    case TERN_EVENT_PROGRESS:
        if (a->ask.return_progress) progress_put(a, c, e, out);
        break;
    case TERN_EVENT_DONE:
        if (c->finish == TERN_FINISH_CANCELLED) break; // told as an error
        chunk_open(&w, a, c->index, out);
        chunk_close(&w, a, NULL, tern_finish_text(c->finish));
        if (a->n_choices == 1) {
            serve_timings_put(&w, a);
            serve_energy_put(&w, a);
        }
        chunk_end(&w, out);
        break;
    }
}

static void stream_end(struct serve_answer *a, struct buf *out) {
    if (a->ask.include_usage) {
        struct json_writer w;
        buf_puts(out, "data: ");
        json_write_init(&w, out);
        head_put(&w, a, "chat.completion.chunk");
        json_write_key(&w, "choices");
        json_write_array(&w);
        json_write_array_end(&w);
        json_write_key(&w, "usage");
        serve_usage_put(&w, a);
        serve_timings_put(&w, a);
        serve_energy_put(&w, a);
        chunk_end(&w, out);
    }
    buf_puts(out, "data: [DONE]\n\n");
}

// -------------------------------------------------------------------------------------------------------------- whole

static void choice_put(struct json_writer *w, const struct serve_answer *a, const struct serve_choice *c) {
    json_write_object(w);
    json_write_key(w, "index");
    json_write_int(w, c->index);
    json_write_key(w, "message");
    json_write_object(w);
    serve_put_str(w, "role", STR("assistant"));
    json_write_key(w, "content");
    if (c->n_calls > 0 && c->text.len == 0)
        json_write_null(w);
    else
        json_write_str(w, buf_str(&c->text));
    if (c->reasoning.len > 0) serve_put_str(w, "reasoning_content", buf_str(&c->reasoning));
    if (c->n_calls > 0) {
        json_write_key(w, "tool_calls");
        json_write_array(w);
        json_write_raw(w, buf_str(&c->calls));
        json_write_array_end(w);
    }
    serve_put_text(w, "refusal", NULL);
    json_write_object_end(w);
    json_write_key(w, "logprobs");
    if (a->request.n_logprobs >= 0) {
        json_write_object(w);
        json_write_key(w, "content");
        json_write_array(w);
        if (c->logprobs.len > 0) json_write_raw(w, buf_str(&c->logprobs));
        json_write_array_end(w);
        serve_put_text(w, "refusal", NULL);
        json_write_object_end(w);
    } else {
        json_write_null(w);
    }
    serve_put_str(w, "finish_reason", str_from(tern_finish_text(c->finish)));
    json_write_object_end(w);
}

static void whole(struct serve_answer *a, struct buf *out) {
    struct json_writer w;
    json_write_init(&w, out);
    head_put(&w, a, "chat.completion");
    json_write_key(&w, "choices");
    json_write_array(&w);
    for (int i = 0; i < a->n_choices; i++) choice_put(&w, a, &a->choices[i]);
    json_write_array_end(&w);
    json_write_key(&w, "usage");
    serve_usage_put(&w, a);
    serve_timings_put(&w, a);
    serve_energy_put(&w, a);
    json_write_object_end(&w);
}

static const struct serve_wire wire = {.stream_type = "text/event-stream",
                                       .ping = ": still here\n\n",
                                       .begin = stream_begin,
                                       .event = on_event,
                                       .end = stream_end,
                                       .fault = serve_fault_event,
                                       .whole = whole};

void serve_chat(struct serve *s, struct net_request *r) {
    struct serve_answer *a = serve_answer_create(s, r, &wire, "chatcmpl-");
    if (!a) return;
    bool ok = serve_fields_read(&a->ask, r->body, "", fields);
    if (ok && a->ask.messages.len == 0) ok = serve_bad(&a->ask, "messages", "messages is missing: a list of messages");
    if (ok && !a->m->info.has_template)
        ok = serve_bad(&a->ask, NULL, "the model has no chat template; use /v1/completions");
    if (!ok) serve_fail(r, &a->ask.fault);
    if (!ok || !serve_model_check(s, r, a->ask.model) || !serve_answer_prepare(a)) {
        serve_answer_free(a);
        return;
    }
    const struct serve_prompt prompt = {.messages = a->ask.messages, .tools = a->ask.tools};
    serve_answer_start(a, &prompt, 1);
}
