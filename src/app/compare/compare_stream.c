// Streamed answers of other engines. llama-server and OpenAI-style servers send events ("data: {…}" lines), Ollama
// one JSON object a line. The network cuts them anywhere; lines are put together first.
//
// A line that is no JSON, an error object, or an end without the engine's own "done" is an error of that engine, told
// as such: a cut answer would otherwise count as a quick one.
#include "base/base.h"
#include "compare.h"

#include <math.h>

void compare_answer_init(struct compare_answer *a) {
    *a = (struct compare_answer){.n_prompt = -1, .n_answer = -1, .prompt_s = NAN, .answer_s = NAN};
    buf_init(&a->text, COMPARE_TEXT_MAX);
}
void compare_answer_release(struct compare_answer *a) { buf_release(&a->text); }

void compare_stream_init(struct compare_stream *s, enum compare_dialect dialect, struct compare_answer *answer) {
    *s = (struct compare_stream){.dialect = dialect, .answer = answer, .start_ns = clock_ns()};
    buf_init(&s->line, COMPARE_LINE_MAX);
}
void compare_stream_release(struct compare_stream *s) { buf_release(&s->line); }

// The fields that any dialect has, from one object.
struct fields {
    bool is_done;
    struct compare_answer *answer;
    struct compare_stream *stream;
    double prompt_ms, answer_ms, prompt_ns, answer_ns; // NaN: absent
    int64_t n_prompt, n_answer;
};

static enum tern_status next(struct json *j, struct json_item *item, struct tern_err *err) {
    return json_next(j, item, err) == JSON_ERROR ? err->code : TERN_OK;
}

static enum tern_status text_take(struct compare_stream *s, const struct json_item *item, struct tern_err *err) {
    if (item->event == JSON_NULL) return TERN_OK;
    if (item->event != JSON_STRING) return err_set(err, TERN_BAD_FORMAT, "a piece of text is no string");
    if (item->text.len == 0) return TERN_OK;
    s->last_ns = clock_ns();
    if (s->n_pieces++ == 0) s->first_ns = s->last_ns;
    if (buf_put(&s->answer->text, item->text.data, item->text.len)) return TERN_OK;
    return err_set(err, TERN_LIMIT, "the text is longer than %u bytes", COMPARE_TEXT_MAX);
}

static const struct number_field {
    const char *name;
    enum compare_dialect dialect;
    size_t offset;
    bool is_int;
} numbers[] = {
    {"prompt_ms", DIALECT_LLAMA_SERVER, offsetof(struct fields, prompt_ms), false},
    {"predicted_ms", DIALECT_LLAMA_SERVER, offsetof(struct fields, answer_ms), false},
    {"prompt_n", DIALECT_LLAMA_SERVER, offsetof(struct fields, n_prompt), true},
    {"predicted_n", DIALECT_LLAMA_SERVER, offsetof(struct fields, n_answer), true},
    {"prompt_eval_duration", DIALECT_OLLAMA, offsetof(struct fields, prompt_ns), false},
    {"eval_duration", DIALECT_OLLAMA, offsetof(struct fields, answer_ns), false},
    {"prompt_eval_count", DIALECT_OLLAMA, offsetof(struct fields, n_prompt), true},
    {"eval_count", DIALECT_OLLAMA, offsetof(struct fields, n_answer), true},
    {"prompt_tokens", DIALECT_OPENAI, offsetof(struct fields, n_prompt), true},
    {"completion_tokens", DIALECT_OPENAI, offsetof(struct fields, n_answer), true},
};

static enum tern_status object_read(struct json *j, struct fields *f, int depth, struct tern_err *err);

// `message` of an error object, or the error itself as a string.
static enum tern_status error_read(struct json *j, struct tern_err *err) {
    struct json_item item;
    TRY(next(j, &item, err));
    if (item.event == JSON_NULL) return TERN_OK;
    if (item.event == JSON_STRING)
        return err_set(err, TERN_IO, "it says: %.*s", (int)MIN(item.text.len, (size_t)300), item.text.data);
    while (item.event == JSON_OBJECT || item.event == JSON_KEY) {
        TRY(next(j, &item, err));
        if (item.event != JSON_KEY) break;
        if (!str_eqz(item.text, "message")) {
            TRY(json_skip(j, err));
            continue;
        }
        TRY(json_expect(j, JSON_STRING, &item, "message", err));
        return err_set(err, TERN_IO, "it says: %.*s", (int)MIN(item.text.len, (size_t)300), item.text.data);
    }
    return err_set(err, TERN_IO, "it answered with an error");
}

// choices: [{"text": "…"}], timings: {…}, usage: {…}
static enum tern_status nested_read(struct json *j, struct fields *f, int depth, struct tern_err *err) {
    struct json_item item;
    TRY(next(j, &item, err));
    if (item.event == JSON_OBJECT) return object_read(j, f, depth + 1, err);
    if (item.event != JSON_ARRAY) return TERN_OK; // null
    for (;;) {
        TRY(next(j, &item, err));
        if (item.event == JSON_ARRAY_END) return TERN_OK;
        if (item.event != JSON_OBJECT) return err_set(err, TERN_BAD_FORMAT, "an item of choices is no object");
        TRY(object_read(j, f, depth + 1, err));
    }
}

static enum tern_status field_read(struct json *j, struct fields *f, struct str key, int depth, struct tern_err *err) {
    static const char *const text_names[] = {
        [DIALECT_LLAMA_SERVER] = "content", [DIALECT_OLLAMA] = "response", [DIALECT_OPENAI] = "text"};
    static const char *const nested[] = {
        [DIALECT_LLAMA_SERVER] = "timings", [DIALECT_OLLAMA] = "", [DIALECT_OPENAI] = "choices"};
    const enum compare_dialect d = f->stream->dialect;
    struct json_item item;
    if (str_eqz(key, "error")) return error_read(j, err);
    if (depth == 0 && (str_eqz(key, nested[d]) || (d == DIALECT_OPENAI && str_eqz(key, "usage"))))
        return nested_read(j, f, depth, err);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (numbers[i].dialect != d || !str_eqz(key, numbers[i].name)) continue;
        TRY(next(j, &item, err));
        if (item.event == JSON_OBJECT || item.event == JSON_ARRAY) return json_skip(j, err);
        if (item.event != JSON_NUMBER || !(item.number >= 0 && item.number < 1e15)) return TERN_OK; // not to be used
        char *at = (char *)f + numbers[i].offset;
        const int64_t whole = (int64_t)item.number;
        if (numbers[i].is_int)
            memcpy(at, &whole, sizeof whole);
        else
            memcpy(at, &item.number, sizeof item.number);
        return TERN_OK;
    }
    const bool is_text = str_eqz(key, text_names[d]),
               is_done = d == DIALECT_OLLAMA ? str_eqz(key, "done") : str_eqz(key, "stop");
    const bool is_reason = d == DIALECT_OPENAI && str_eqz(key, "finish_reason");
    if (!is_text && !is_done && !is_reason) return json_skip(j, err);
    TRY(next(j, &item, err));
    if (item.event == JSON_OBJECT || item.event == JSON_ARRAY) return json_skip(j, err);
    if (is_text) return text_take(f->stream, &item, err);
    if (is_done && item.event == JSON_BOOL && item.boolean) f->is_done = true;
    if (is_reason && item.event == JSON_STRING) f->is_done = true;
    return TERN_OK;
}

// At most two deep: nested_read is entered from depth 0 only.
static enum tern_status object_read(struct json *j, struct fields *f, int depth, struct tern_err *err) {
    struct json_item item;
    for (;;) {
        TRY(next(j, &item, err));
        if (item.event == JSON_OBJECT_END) return TERN_OK;
        TRY(field_read(j, f, item.text, depth, err));
    }
}

static void fields_take(const struct fields *f) {
    struct compare_answer *a = f->answer;
    if (f->n_prompt >= 0) a->n_prompt = f->n_prompt;
    if (f->n_answer >= 0) a->n_answer = f->n_answer;
    if (!isnan(f->prompt_ms)) a->prompt_s = f->prompt_ms / 1e3;
    if (!isnan(f->prompt_ns)) a->prompt_s = f->prompt_ns / 1e9;
    if (!isnan(f->answer_ms)) a->answer_s = f->answer_ms / 1e3;
    if (!isnan(f->answer_ns)) a->answer_s = f->answer_ns / 1e9;
    a->is_over = a->is_over || f->is_done;
}

static enum tern_status object_take(struct compare_stream *s, struct str text, struct tern_err *err) {
    struct fields f = {.answer = s->answer,
                       .stream = s,
                       .prompt_ms = NAN,
                       .answer_ms = NAN,
                       .prompt_ns = NAN,
                       .answer_ns = NAN,
                       .n_prompt = -1,
                       .n_answer = -1};
    struct json *j;
    struct json_item item;
    TRY(json_create(&j, text, NULL, err));
    enum tern_status status = next(j, &item, err);
    if (status == TERN_OK && item.event != JSON_OBJECT)
        status = err_set(err, TERN_BAD_FORMAT, "a line of the answer is no JSON object");
    if (status == TERN_OK) status = object_read(j, &f, 0, err);
    if (status == TERN_OK) status = next(j, &item, err); // nothing may follow
    json_free(j);
    if (status == TERN_OK) fields_take(&f);
    return status;
}

static enum tern_status line_take(struct compare_stream *s, struct tern_err *err) {
    struct str line = str_trim(buf_str(&s->line));
    if (s->dialect != DIALECT_OLLAMA && str_starts(line, STR("data:"))) {
        line = str_trim((struct str){line.data + 5, line.len - 5});
        if (str_eqz(line, "[DONE]")) return TERN_OK;
    } else if (line.len > 0 && s->dialect != DIALECT_OLLAMA && line.data[0] != '{') {
        // "event: …", ": comment" and the like; "error: {…}" is what llama-server's older versions send.
        if (!str_starts(line, STR("error:"))) return TERN_OK;
        line = str_trim((struct str){line.data + 6, line.len - 6});
        struct tern_err why = {0};
        object_take(s, line, &why);
        return err_set(err, TERN_IO, "it answered with an error: %s", why.message);
    }
    return line.len > 0 ? object_take(s, line, err) : TERN_OK;
}

bool compare_stream_put(void *stream, struct str piece) {
    struct compare_stream *s = stream;
    for (size_t i = 0; i < piece.len && s->err.code == TERN_OK; i++) {
        if (piece.data[i] == '\n') {
            line_take(s, &s->err);
            buf_clear(&s->line);
        } else if (!buf_putc(&s->line, piece.data[i])) {
            err_set(&s->err, TERN_LIMIT, "a line of the answer is longer than %u bytes", COMPARE_LINE_MAX);
        }
    }
    return s->err.code == TERN_OK;
}

enum tern_status compare_stream_end(struct compare_stream *s, struct tern_err *err) {
    if (s->err.code == TERN_OK && s->line.len > 0) line_take(s, &s->err);
    buf_clear(&s->line);
    if (s->err.code != TERN_OK) {
        if (err) *err = s->err;
        return s->err.code;
    }
    if (!s->answer->is_over)
        return err_set(err, TERN_IO,
                       "the answer broke off after %zu bytes of text: the engine never said that it is done",
                       s->answer->text.len);
    if (s->n_pieces > 0) {
        s->answer->first_s = (double)(s->first_ns - s->start_ns) / 1e9;
        // An engine that does not time itself is timed by its pieces, a token each.
        if (isnan(s->answer->answer_s)) s->answer->answer_s = (double)(s->last_ns - s->first_ns) / 1e9;
        if (s->answer->n_answer < 0) s->answer->n_answer = s->n_pieces;
    }
    return TERN_OK;
}
