// Answers in Anthropic's format: one message object, or its events. A block is opened when its first piece comes, and
// closed by the first piece of another. Tokens that the prefix cache held are told apart from those that were read, as
// that API does: input_tokens is what had to be computed.
#include "base/base.h"
#include "serve_anthropic.h"

static void stop_put(struct json_writer *w, const struct serve_answer *a) {
    const enum tern_finish finish = a->choices[0].finish;
    const char *found = serve_stop_found(a, &a->choices[0]);
    serve_put_text(w, "stop_reason",
                   finish == TERN_FINISH_LENGTH       ? "max_tokens"
                   : finish == TERN_FINISH_TOOL_CALLS ? "tool_use"
                   : found                            ? "stop_sequence"
                                                      : "end_turn");
    serve_put_text(w, "stop_sequence", found);
}

static void usage_put(struct json_writer *w, int64_t n_prompt, int64_t n_cached, int64_t n_answer) {
    json_write_key(w, "usage");
    json_write_object(w);
    serve_put_int(w, "input_tokens", n_prompt - n_cached);
    serve_put_int(w, "cache_creation_input_tokens", 0);
    serve_put_int(w, "cache_read_input_tokens", n_cached);
    serve_put_int(w, "output_tokens", n_answer);
    json_write_object_end(w);
}

// {"id", "type", "role", "model", left open.
static void message_open(struct json_writer *w, const struct serve_answer *a) {
    json_write_object(w);
    serve_put_text(w, "id", a->id);
    serve_put_text(w, "type", "message");
    serve_put_text(w, "role", "assistant");
    serve_put_text(w, "model", a->m->id);
}

static void event_open(struct json_writer *w, struct buf *out, const char *type) {
    buf_putf(out, "event: %s\ndata: ", type);
    json_write_init(w, out);
    json_write_object(w);
    serve_put_text(w, "type", type);
}
static void event_close(struct json_writer *w, struct buf *out) {
    json_write_object_end(w);
    buf_puts(out, "\n\n");
}

static void stream_begin(struct serve_answer *a, struct buf *out) {
    struct json_writer w;
    event_open(&w, out, "message_start");
    json_write_key(&w, "message");
    message_open(&w, a);
    json_write_key(&w, "content");
    json_write_array(&w);
    json_write_array_end(&w);
    serve_put_text(&w, "stop_reason", NULL);
    serve_put_text(&w, "stop_sequence", NULL);
    usage_put(&w, serve_bits_of(a)->n_prompt, 0, 0); // what of it was cached is told at the end
    json_write_object_end(&w);
    event_close(&w, out);
}

static void delta_put(struct buf *out, int index, const char *type, const char *key, struct str text) {
    struct json_writer w;
    event_open(&w, out, "content_block_delta");
    serve_put_int(&w, "index", index);
    json_write_key(&w, "delta");
    json_write_object(&w);
    serve_put_text(&w, "type", type);
    serve_put_str(&w, key, text);
    json_write_object_end(&w);
    event_close(&w, out);
}

static void block_open_put(struct buf *out, const struct serve_bit *b) {
    struct json_writer w;
    event_open(&w, out, "content_block_start");
    serve_put_int(&w, "index", b->index);
    json_write_key(&w, "content_block");
    json_write_object(&w);
    if (b->kind == SERVE_BIT_TEXT) {
        serve_put_text(&w, "type", "text");
        serve_put_text(&w, "text", "");
    } else if (b->kind == SERVE_BIT_THOUGHTS) {
        serve_put_text(&w, "type", "thinking");
        serve_put_text(&w, "thinking", "");
        serve_put_text(&w, "signature", "");
    } else {
        serve_put_text(&w, "type", "tool_use");
        serve_put_text(&w, "id", b->id);
        serve_put_str(&w, "name", b->name);
        json_write_key(&w, "input");
        json_write_object(&w);
        json_write_object_end(&w);
    }
    json_write_object_end(&w);
    event_close(&w, out);
}

static void block_close_put(struct buf *out, const struct serve_bit *b) {
    struct json_writer w;
    event_open(&w, out, "content_block_stop");
    serve_put_int(&w, "index", b->index);
    event_close(&w, out);
}

static void on_event(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out) {
    struct serve_bit *opened, *closed;
    if (!serve_bits_take(a, c, e, &opened, &closed) || !a->streams) return;
    if (closed) block_close_put(out, closed);
    if (opened) block_open_put(out, opened);
    const int index = serve_bits_of(a)->last ? serve_bits_of(a)->last->index : 0;
    switch (e->type) {
    case TERN_EVENT_TEXT: delta_put(out, index, "text_delta", "text", serve_view(e->text)); break;
    case TERN_EVENT_REASONING: delta_put(out, index, "thinking_delta", "thinking", serve_view(e->text)); break;
    case TERN_EVENT_TOOL_CALL:
        delta_put(out, index, "input_json_delta", "partial_json", serve_view(e->tool_arguments));
        block_close_put(out, opened);
        break;
    case TERN_EVENT_PROGRESS:
    case TERN_EVENT_DONE: break;
    }
}

static void stream_end(struct serve_answer *a, struct buf *out) {
    const struct tern_usage u = serve_usage_sum(a);
    struct json_writer w;
    event_open(&w, out, "message_delta");
    json_write_key(&w, "delta");
    json_write_object(&w);
    stop_put(&w, a);
    json_write_object_end(&w);
    usage_put(&w, u.n_prompt, u.n_cached, u.n_answer);
    serve_timings_put(&w, a);
    serve_energy_put(&w, a);
    event_close(&w, out);
    event_open(&w, out, "message_stop");
    event_close(&w, out);
}

static void stream_fault(struct serve_answer *a, const struct serve_fault *f, struct buf *out) {
    (void)a;
    buf_puts(out, "event: error\ndata: ");
    serve_fault_put(out, f, SERVE_ANTHROPIC);
    buf_puts(out, "\n\n");
}

static void block_put(struct json_writer *w, const struct serve_choice *c, const struct serve_bit *b) {
    json_write_object(w);
    if (b->kind == SERVE_BIT_TEXT) {
        serve_put_text(w, "type", "text");
        serve_put_str(w, "text", serve_bit_text(c, b));
    } else if (b->kind == SERVE_BIT_THOUGHTS) {
        serve_put_text(w, "type", "thinking");
        serve_put_str(w, "thinking", serve_bit_text(c, b));
        serve_put_text(w, "signature", "");
    } else {
        serve_put_text(w, "type", "tool_use");
        serve_put_text(w, "id", b->id);
        serve_put_str(w, "name", b->name);
        serve_put_raw(w, "input", b->arguments);
    }
    json_write_object_end(w);
}

static void whole(struct serve_answer *a, struct buf *out) {
    const struct tern_usage u = serve_usage_sum(a);
    struct json_writer w;
    json_write_init(&w, out);
    message_open(&w, a);
    json_write_key(&w, "content");
    json_write_array(&w);
    for (const struct serve_bit *b = serve_bits_of(a)->first; b; b = b->next) block_put(&w, &a->choices[0], b);
    json_write_array_end(&w);
    stop_put(&w, a);
    usage_put(&w, u.n_prompt, u.n_cached, u.n_answer);
    serve_timings_put(&w, a);
    serve_energy_put(&w, a);
    json_write_object_end(&w);
}

const struct serve_wire serve_anthropic_wire = {.stream_type = "text/event-stream",
                                                .ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n",
                                                .begin = stream_begin,
                                                .event = on_event,
                                                .end = stream_end,
                                                .fault = stream_fault,
                                                .whole = whole};
