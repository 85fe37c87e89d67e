// The clients of a load test. A thread for each stream reads its answer as it comes and notes when each piece of text
// came; what is read of a piece is no more than whether it has text, so that the clients take little of the processors
// that the server needs. An answer without its end, or with an error, is a failure of the measurement.
#include "base/base.h"
#include "bench_server.h"

#include <stdio.h>

#define LINE_MAX_BYTES (1u << 20)
#define STALL_S 120

static bool bytes_take(void *arg, struct str piece) { return buf_put(arg, piece.data, piece.len); }

bool load_number(struct str json, const char *key, double *out) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    size_t at = str_find(json, str_from(quoted), 0);
    if (at == (size_t)-1) return false;
    at += strlen(quoted);
    while (at < json.len && json.data[at] == ' ') at++;
    size_t n = at;
    while (n < json.len && ((json.data[n] >= '0' && json.data[n] <= '9') || json.data[n] == '.')) n++;
    return str_to_f64((struct str){json.data + at, n - at}, out);
}

enum tern_status load_ask(const struct server_peer *p, const char *path, struct str body, struct buf *out,
                          double *seconds, struct tern_err *err) {
    char url[256];
    int code = 0;
    snprintf(url, sizeof url, "%s%s", p->url, path);
    buf_clear(out);
    struct http_request r = {.url = url, .body = body, .on_data = bytes_take, .arg = out, .stall_s = STALL_S};
    uint64_t begin = clock_ns();
    TRY(http_do(&r, &code, err));
    *seconds = (double)(clock_ns() - begin) * 1e-9;
    if (code == 200) return TERN_OK;
    return err_set(err, TERN_IO, "%s: %s answered with HTTP %d: %.200s", url, p->name, code,
                   out->data ? out->data : "");
}

// `"text":"…` with something in it.
static bool line_has_text(struct str line) {
    size_t at = str_find(line, STR("\"text\":"), 0);
    if (at == (size_t)-1) return false;
    for (at += 7; at < line.len && line.data[at] == ' '; at++) {
    }
    return at + 1 < line.len && line.data[at] == '"' && line.data[at + 1] != '"';
}

static void line_take(struct load_stream *s, uint64_t now) {
    struct str line = str_trim(buf_str(&s->line));
    double n;
    if (!str_starts(line, STR("data:"))) return;
    if (str_find(line, STR("\"error\""), 0) != (size_t)-1) {
        s->status = err_set(&s->err, TERN_IO, "an answer ended with an error: %.*s", (int)MIN(line.len, (size_t)300),
                            line.data);
        return;
    }
    int told = atomic_load_explicit(&s->n_told, memory_order_relaxed);
    if (line_has_text(line) && told < s->n_max) {
        s->times[told] = now;
        atomic_store_explicit(&s->n_told, told + 1, memory_order_release);
    }
    if (load_number(line, "completion_tokens", &n)) s->n_tokens = (int)n;
    if (load_number(line, "prompt_tokens", &n)) s->n_prompt = (int)n;
    if (str_find(line, STR("[DONE]"), 0) != (size_t)-1) s->end_ns = now;
}

static bool piece_take(void *arg, struct str piece) {
    struct load_stream *s = arg;
    uint64_t now = clock_ns();
    for (size_t at = 0; at < piece.len;) {
        size_t end = str_find(piece, STR("\n"), at);
        bool whole = end != (size_t)-1;
        if (!whole) end = piece.len;
        if (!buf_put(&s->line, piece.data + at, end - at)) return false;
        at = end + whole;
        if (!whole) break;
        line_take(s, now);
        buf_clear(&s->line);
    }
    return s->status == TERN_OK && !atomic_load_explicit(&s->stop, memory_order_relaxed);
}

static void stream_main(void *arg) {
    struct load_stream *s = arg;
    int code = 0;
    struct tern_err err = {0};
    struct http_request r = {
        .url = s->url, .body = buf_str(&s->body), .on_data = piece_take, .arg = s, .stall_s = STALL_S};
    s->begin_ns = clock_ns();
    enum tern_status status = http_do(&r, &code, &err);
    bool stopped = atomic_load(&s->stop);
    if (s->status != TERN_OK || (status == TERN_CANCELLED && stopped)) return;
    if (status != TERN_OK) {
        s->err = err;
        s->status = status;
    } else if (code != 200) {
        s->status = err_set(&s->err, TERN_IO, "%s: answered with HTTP %d: %.*s", s->url, code,
                            (int)MIN(s->line.len, (size_t)200), s->line.data ? s->line.data : "");
    } else if (s->end_ns == 0) {
        s->status = err_set(&s->err, TERN_IO, "%s: an answer broke off", s->url);
    }
}

enum tern_status load_begin(struct load_stream *s, const struct server_peer *p, const int32_t *ids, int n_ids,
                            int n_answer, struct tern_err *err) {
    *s = (struct load_stream){.n_max = n_answer + 8};
    snprintf(s->url, sizeof s->url, "%s/v1/completions", p->url);
    buf_init(&s->body, SERVER_ANSWER_MAX);
    buf_init(&s->line, LINE_MAX_BYTES);
    s->times = mem_calloc((size_t)s->n_max, sizeof *s->times);
    buf_puts(&s->body, "{\"prompt\":[");
    for (int i = 0; i < n_ids; i++) buf_putf(&s->body, "%s%d", i ? "," : "", ids[i]);
    buf_putf(&s->body,
             "],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true,\"cache_prompt\":true,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true}}",
             n_answer);
    enum tern_status status = TERN_OK;
    if (!s->times || s->body.failed) status = err_set(err, TERN_NO_MEMORY, "no memory for a client");
    if (status == TERN_OK) status = os_thread_create(&s->thread, stream_main, s, err);
    if (status != TERN_OK) load_release(s);
    return status;
}

enum tern_status load_end(struct load_stream *s, struct tern_err *err) {
    os_thread_join(s->thread);
    s->thread = NULL;
    if (s->status != TERN_OK && err) *err = s->err;
    return s->status;
}

void load_release(struct load_stream *s) {
    if (s->thread) {
        atomic_store(&s->stop, true);
        os_thread_join(s->thread);
    }
    buf_release(&s->body);
    buf_release(&s->line);
    mem_free(s->times);
    *s = (struct load_stream){0};
}
