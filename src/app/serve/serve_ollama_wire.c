// Answers of /api/chat and /api/generate: one JSON object a line, the last with counts and nanoseconds.
#include "base/base.h"
#include "serve_ollama.h"

void serve_ollama_head_put(struct json_writer *w, const struct serve_answer *a) {
    char when[24];
    serve_put_text(w, "model", a->m->id);
    serve_put_text(w, "created_at", serve_time_text(when, clock_wall_s()));
}

static bool is_chat(const struct serve_answer *a) { return a->wire == &serve_ollama_chat_wire; }

static int64_t ns(double seconds) { return seconds > 0 ? (int64_t)(seconds * 1e9) : 0; }

// [{"function": {"name", "arguments": {…}}}] of one call, or of all that c->calls holds.
static void calls_put(struct json_writer *w, struct str name, struct str arguments) {
    json_write_object(w);
    json_write_key(w, "function");
    json_write_object(w);
    serve_put_str(w, "name", name);
    serve_put_raw(w, "arguments", arguments);
    json_write_object_end(w);
    json_write_object_end(w);
}

// What the object says: text and thoughts, in the place that each of the two routes has for them.
static void words_put(struct json_writer *w, const struct serve_answer *a, struct str text, struct str thoughts,
                      const struct serve_bit *calls) {
    if (!is_chat(a)) {
        serve_put_str(w, "response", text);
        if (thoughts.len > 0) serve_put_str(w, "thinking", thoughts);
        return;
    }
    json_write_key(w, "message");
    json_write_object(w);
    serve_put_text(w, "role", "assistant");
    serve_put_str(w, "content", text);
    if (thoughts.len > 0) serve_put_str(w, "thinking", thoughts);
    bool any = false;
    for (const struct serve_bit *b = calls; b; b = b->next) {
        if (b->kind != SERVE_BIT_CALL) continue;
        if (!any) {
            json_write_key(w, "tool_calls");
            json_write_array(w);
            any = true;
        }
        calls_put(w, b->name, b->arguments);
    }
    if (any) json_write_array_end(w);
    json_write_object_end(w);
}

static void done_put(struct json_writer *w, const struct serve_answer *a) {
    const struct tern_usage u = serve_usage_sum(a);
    serve_put_bool(w, "done", true);
    serve_put_text(w, "done_reason", a->choices[0].finish == TERN_FINISH_LENGTH ? "length" : "stop");
    serve_put_int(w, "total_duration", (int64_t)(clock_ns() - a->begin_ns));
    serve_put_int(w, "load_duration", 0); // it is loaded before a request comes
    serve_put_int(w, "prompt_eval_count", u.n_prompt);
    serve_put_int(w, "prompt_eval_duration", ns(u.prompt_s));
    serve_put_int(w, "eval_count", u.n_answer);
    serve_put_int(w, "eval_duration", ns(u.answer_s));
    serve_timings_put(w, a);
    serve_energy_put(w, a);
}

static void on_event(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out) {
    struct serve_bit *opened, *closed;
    struct json_writer w;
    if (!serve_bits_take(a, c, e, &opened, &closed) || !a->streams) return;
    if (e->type == TERN_EVENT_PROGRESS || e->type == TERN_EVENT_DONE) return;
    const struct str text = e->type == TERN_EVENT_TEXT ? serve_view(e->text) : STR("");
    const struct str thoughts = e->type == TERN_EVENT_REASONING ? serve_view(e->text) : STR("");
    json_write_init(&w, out);
    json_write_object(&w);
    serve_ollama_head_put(&w, a);
    words_put(&w, a, text, thoughts, e->type == TERN_EVENT_TOOL_CALL ? opened : NULL);
    serve_put_bool(&w, "done", false);
    json_write_object_end(&w);
    buf_putc(out, '\n');
}

static void stream_end(struct serve_answer *a, struct buf *out) {
    struct json_writer w;
    json_write_init(&w, out);
    json_write_object(&w);
    serve_ollama_head_put(&w, a);
    words_put(&w, a, STR(""), STR(""), NULL);
    done_put(&w, a);
    json_write_object_end(&w);
    buf_putc(out, '\n');
}

static void stream_fault(struct serve_answer *a, const struct serve_fault *f, struct buf *out) {
    (void)a;
    serve_fault_put(out, f, SERVE_OLLAMA);
    buf_putc(out, '\n');
}

static void whole(struct serve_answer *a, struct buf *out) {
    const struct serve_choice *c = &a->choices[0];
    struct json_writer w;
    json_write_init(&w, out);
    json_write_object(&w);
    serve_ollama_head_put(&w, a);
    words_put(&w, a, buf_str(&c->text), buf_str(&c->reasoning), serve_bits_of(a)->first);
    done_put(&w, a);
    json_write_object_end(&w);
}

const struct serve_wire serve_ollama_chat_wire = {
    .stream_type = "application/x-ndjson", .event = on_event, .end = stream_end, .fault = stream_fault, .whole = whole};
const struct serve_wire serve_ollama_generate_wire = {
    .stream_type = "application/x-ndjson", .event = on_event, .end = stream_end, .fault = stream_fault, .whole = whole};
