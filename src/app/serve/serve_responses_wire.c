// Answers of /v1/responses: a response object, whole or as numbered events. Each run of thoughts, text or a call is an
// output item; the object at the end repeats them all. There is no "[DONE]".
#include "base/base.h"
#include "serve_responses.h"

#include <stdio.h>

static const struct serve_response *extra_of(const struct serve_answer *a) { return serve_bits_of(a)->extra; }

static bool is_incomplete(const struct serve_answer *a) { return a->choices[0].finish == TERN_FINISH_LENGTH; }

// "msg_3f…_0": of the response's own random part and the item's place.
static void item_id(const struct serve_answer *a, const struct serve_bit *b, char out[64]) {
    static const char *const heads[] = {[SERVE_BIT_THOUGHTS] = "rs", [SERVE_BIT_TEXT] = "msg", [SERVE_BIT_CALL] = "fc"};
    snprintf(out, 64, "%s_%s_%d", heads[b->kind], a->id + strlen("resp_"), b->index);
}

static void text_part_put(struct json_writer *w, struct str text) {
    json_write_object(w);
    serve_put_text(w, "type", "output_text");
    serve_put_str(w, "text", text);
    serve_put_raw(w, "annotations", STR("[]"));
    serve_put_raw(w, "logprobs", STR("[]"));
    json_write_object_end(w);
}
static void thoughts_part_put(struct json_writer *w, struct str text) {
    json_write_object(w);
    serve_put_text(w, "type", "reasoning_text");
    serve_put_str(w, "text", text);
    json_write_object_end(w);
}

static void item_put(struct json_writer *w, const struct serve_answer *a, const struct serve_bit *b, bool done) {
    const struct serve_choice *c = &a->choices[0];
    char id[64];
    item_id(a, b, id);
    json_write_object(w);
    serve_put_text(w, "id", id);
    serve_put_text(w, "type",
                   b->kind == SERVE_BIT_CALL   ? "function_call"
                   : b->kind == SERVE_BIT_TEXT ? "message"
                                               : "reasoning");
    const bool cut = done && is_incomplete(a) && c->is_done && b == serve_bits_of(a)->last;
    serve_put_text(w, "status", !done ? "in_progress" : cut ? "incomplete" : "completed");
    if (b->kind == SERVE_BIT_CALL) {
        serve_put_text(w, "call_id", b->id);
        serve_put_str(w, "name", b->name);
        serve_put_str(w, "arguments", done ? b->arguments : STR(""));
        json_write_object_end(w);
        return;
    }
    if (b->kind == SERVE_BIT_TEXT) serve_put_text(w, "role", "assistant");
    if (b->kind == SERVE_BIT_THOUGHTS) serve_put_raw(w, "summary", STR("[]"));
    json_write_key(w, "content");
    json_write_array(w);
    if (done && b->kind == SERVE_BIT_TEXT) text_part_put(w, serve_bit_text(c, b));
    if (done && b->kind == SERVE_BIT_THOUGHTS) thoughts_part_put(w, serve_bit_text(c, b));
    json_write_array_end(w);
    json_write_object_end(w);
}

static void usage_put(struct json_writer *w, const struct serve_answer *a) {
    const struct tern_usage u = serve_usage_sum(a);
    json_write_key(w, "usage");
    json_write_object(w);
    serve_put_int(w, "input_tokens", u.n_prompt);
    json_write_key(w, "input_tokens_details");
    json_write_object(w);
    serve_put_int(w, "cached_tokens", u.n_cached);
    json_write_object_end(w);
    serve_put_int(w, "output_tokens", u.n_answer);
    json_write_key(w, "output_tokens_details");
    json_write_object(w);
    serve_put_int(w, "reasoning_tokens", u.n_reasoning);
    json_write_object_end(w);
    serve_put_int(w, "total_tokens", u.n_prompt + u.n_answer);
    json_write_object_end(w);
}

// What the response repeats of its request.
static void request_put(struct json_writer *w, const struct serve_answer *a) {
    const struct serve_response *x = extra_of(a);
    const bool limited = a->ask.max_tokens != SERVE_UNSET;
    json_write_key(w, "instructions");
    if (x->instructions.len > 0)
        json_write_str(w, x->instructions);
    else
        json_write_null(w);
    json_write_key(w, "max_output_tokens");
    if (limited)
        json_write_int(w, a->ask.max_tokens);
    else
        json_write_null(w);
    serve_put_text(w, "previous_response_id", NULL);
    serve_put_bool(w, "parallel_tool_calls", a->ask.parallel_tool_calls);
    serve_put_raw(w, "tools", x->tools.len > 0 ? x->tools : STR("[]"));
    serve_put_raw(w, "tool_choice", x->tool_choice.len > 0 ? x->tool_choice : STR("\"auto\""));
    serve_put_raw(w, "text", x->text.len > 0 ? x->text : STR("{\"format\":{\"type\":\"text\"}}"));
    json_write_key(w, "reasoning");
    json_write_object(w);
    serve_put_text(w, "effort", a->ask.think == SERVE_NO ? "none" : a->ask.effort);
    serve_put_text(w, "summary", NULL);
    json_write_object_end(w);
    serve_put_raw(w, "metadata", x->metadata.len > 0 ? x->metadata : STR("{}"));
    json_write_key(w, "temperature");
    json_write_f64(w, (double)a->request.temperature);
    json_write_key(w, "top_p");
    json_write_f64(w, (double)a->request.top_p);
    json_write_key(w, "presence_penalty");
    json_write_f64(w, (double)a->request.presence_penalty);
    json_write_key(w, "frequency_penalty");
    json_write_f64(w, (double)a->request.frequency_penalty);
    serve_put_int(w, "top_logprobs", 0);
    serve_put_bool(w, "store", false);
    serve_put_bool(w, "background", false);
    serve_put_text(w, "truncation", "disabled");
    serve_put_text(w, "service_tier", "default");
    serve_put_text(w, "max_tool_calls", NULL);
    serve_put_text(w, "safety_identifier", NULL);
    serve_put_text(w, "prompt_cache_key", NULL);
    json_write_key(w, "user");
    if (a->ask.user.len > 0)
        json_write_str(w, a->ask.user);
    else
        json_write_null(w);
}

// status: "in_progress", "completed", "incomplete", "failed". fault: of a failed one.
static void response_put(struct json_writer *w, const struct serve_answer *a, const char *status,
                         const struct serve_fault *fault) {
    const bool over = strcmp(status, "in_progress") != 0;
    json_write_object(w);
    serve_put_text(w, "id", a->id);
    serve_put_text(w, "object", "response");
    serve_put_int(w, "created_at", a->created_s);
    json_write_key(w, "completed_at");
    if (strcmp(status, "completed") == 0)
        json_write_int(w, clock_wall_s());
    else
        json_write_null(w);
    serve_put_text(w, "status", status);
    json_write_key(w, "error");
    if (fault) {
        json_write_object(w);
        serve_put_text(w, "code", fault->status == 503 ? "server_unavailable" : "server_error");
        serve_put_text(w, "message", fault->message);
        json_write_object_end(w);
    } else {
        json_write_null(w);
    }
    serve_put_raw(w, "incomplete_details",
                  strcmp(status, "incomplete") == 0 ? STR("{\"reason\":\"max_output_tokens\"}") : STR(""));
    serve_put_text(w, "model", a->m->id);
    json_write_key(w, "output");
    json_write_array(w);
    for (const struct serve_bit *b = serve_bits_of(a)->first; b && over; b = b->next) item_put(w, a, b, true);
    json_write_array_end(w);
    request_put(w, a);
    if (over && !fault) {
        usage_put(w, a);
        serve_timings_put(w, a);
        serve_energy_put(w, a);
    } else {
        serve_put_text(w, "usage", NULL);
    }
    json_write_object_end(w);
}

static void event_open(struct json_writer *w, struct serve_answer *a, struct buf *out, const char *type) {
    buf_putf(out, "event: %s\ndata: ", type);
    json_write_init(w, out);
    json_write_object(w);
    serve_put_text(w, "type", type);
    serve_put_int(w, "sequence_number", a->n_seq++);
}
static void event_close(struct json_writer *w, struct buf *out) {
    json_write_object_end(w);
    buf_puts(out, "\n\n");
}

static void response_event(struct serve_answer *a, struct buf *out, const char *type, const char *status,
                           const struct serve_fault *fault) {
    struct json_writer w;
    event_open(&w, a, out, type);
    json_write_key(&w, "response");
    response_put(&w, a, status, fault);
    event_close(&w, out);
}

static void stream_begin(struct serve_answer *a, struct buf *out) {
    response_event(a, out, "response.created", "in_progress", NULL);
    response_event(a, out, "response.in_progress", "in_progress", NULL);
}

// An event about one item: type, item_id, output_index and content_index, left open.
static void item_event_open(struct json_writer *w, struct serve_answer *a, struct buf *out, const char *type,
                            const struct serve_bit *b) {
    char id[64];
    item_id(a, b, id);
    event_open(w, a, out, type);
    serve_put_text(w, "item_id", id);
    serve_put_int(w, "output_index", b->index);
    if (b->kind != SERVE_BIT_CALL) serve_put_int(w, "content_index", 0);
}

static void item_event(struct serve_answer *a, struct buf *out, const char *type, const struct serve_bit *b,
                       bool done) {
    struct json_writer w;
    event_open(&w, a, out, type);
    serve_put_int(&w, "output_index", b->index);
    json_write_key(&w, "item");
    item_put(&w, a, b, done);
    event_close(&w, out);
}

static void part_event(struct serve_answer *a, struct buf *out, const char *type, const struct serve_bit *b,
                       struct str text) {
    struct json_writer w;
    item_event_open(&w, a, out, type, b);
    json_write_key(&w, "part");
    if (b->kind == SERVE_BIT_TEXT)
        text_part_put(&w, text);
    else
        thoughts_part_put(&w, text);
    event_close(&w, out);
}

// One string about an item: a delta, or the whole of it.
static void string_event(struct serve_answer *a, struct buf *out, const char *type, const struct serve_bit *b,
                         const char *key, struct str text) {
    struct json_writer w;
    item_event_open(&w, a, out, type, b);
    serve_put_str(&w, key, text);
    if (b->kind == SERVE_BIT_TEXT) serve_put_raw(&w, "logprobs", STR("[]"));
    if (b->kind == SERVE_BIT_CALL && strcmp(key, "arguments") == 0) serve_put_str(&w, "name", b->name);
    event_close(&w, out);
}

static void bit_close(struct serve_answer *a, struct buf *out, const struct serve_bit *b) {
    const struct str text = serve_bit_text(&a->choices[0], b);
    const bool is_text = b->kind == SERVE_BIT_TEXT;
    string_event(a, out, is_text ? "response.output_text.done" : "response.reasoning_text.done", b, "text", text);
    part_event(a, out, "response.content_part.done", b, text);
    item_event(a, out, "response.output_item.done", b, true);
}

static void bit_open(struct serve_answer *a, struct buf *out, const struct serve_bit *b) {
    item_event(a, out, "response.output_item.added", b, false);
    if (b->kind != SERVE_BIT_CALL) {
        part_event(a, out, "response.content_part.added", b, STR(""));
        return;
    }
    string_event(a, out, "response.function_call_arguments.delta", b, "delta", b->arguments);
    string_event(a, out, "response.function_call_arguments.done", b, "arguments", b->arguments);
    item_event(a, out, "response.output_item.done", b, true);
}

static void on_event(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out) {
    struct serve_bit *opened, *closed;
    if (!serve_bits_take(a, c, e, &opened, &closed) || !a->streams) return;
    if (closed) bit_close(a, out, closed);
    if (opened) bit_open(a, out, opened);
    if (e->type == TERN_EVENT_TEXT)
        string_event(a, out, "response.output_text.delta", serve_bits_of(a)->last, "delta", serve_view(e->text));
    if (e->type == TERN_EVENT_REASONING)
        string_event(a, out, "response.reasoning_text.delta", serve_bits_of(a)->last, "delta", serve_view(e->text));
}

static void stream_end(struct serve_answer *a, struct buf *out) {
    const bool cut = is_incomplete(a);
    response_event(a, out, cut ? "response.incomplete" : "response.completed", cut ? "incomplete" : "completed", NULL);
}

static void stream_fault(struct serve_answer *a, const struct serve_fault *f, struct buf *out) {
    struct json_writer w;
    event_open(&w, a, out, "error");
    serve_put_text(&w, "code", f->code);
    serve_put_text(&w, "message", f->message);
    serve_put_text(&w, "param", f->param);
    event_close(&w, out);
    response_event(a, out, "response.failed", "failed", f);
}

static void whole(struct serve_answer *a, struct buf *out) {
    struct json_writer w;
    json_write_init(&w, out);
    response_put(&w, a, is_incomplete(a) ? "incomplete" : "completed", NULL);
}

const struct serve_wire serve_responses_wire = {.stream_type = "text/event-stream",
                                                .ping = ": still here\n\n",
                                                .begin = stream_begin,
                                                .event = on_event,
                                                .end = stream_end,
                                                .fault = stream_fault,
                                                .whole = whole};
