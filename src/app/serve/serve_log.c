// One line for each request on standard error: `--log text` (default), `json` or `none`. Paths are escaped and cut,
// prompts, answers and keys never appear.
#include "base/base.h"
#include "serve.h"

#include <math.h>
#include <stdio.h>

#define LINE_BYTES_MAX (8u << 10)
#define PATH_SHOWN_MAX 120

static void int_put(struct json_writer *w, const char *key, int64_t v) {
    json_write_key(w, key);
    json_write_int(w, v);
}
static void str_put(struct json_writer *w, const char *key, struct str v) {
    json_write_key(w, key);
    json_write_str(w, v);
}

static void json_line(struct buf *b, const struct net_request *r, const struct net_outcome *o, struct str path,
                      double ms) {
    const struct serve_call *call = r->user;
    char when[40];
    clock_format(when, sizeof when, "%Y-%m-%dT%H:%M:%S", clock_wall_s());
    struct json_writer w;
    json_write_init(&w, b);
    json_write_object(&w);
    str_put(&w, "time", str_from(when));
    str_put(&w, "id", str_from(call ? call->id : ""));
    str_put(&w, "remote", r->remote);
    str_put(&w, "method", r->method);
    str_put(&w, "path", path);
    int_put(&w, "status", o->status);
    int_put(&w, "bytes", (int64_t)o->n_bytes);
    json_write_key(&w, "ms");
    json_write_f64(&w, round(ms * 1000) / 1000);
    if (call && call->tenant[0]) str_put(&w, "tenant", str_from(call->tenant));
    if (call && call->n_prompt >= 0) {
        int_put(&w, "prompt_tokens", call->n_prompt);
        int_put(&w, "cached_tokens", call->n_cached);
        int_put(&w, "answer_tokens", call->n_answer);
        str_put(&w, "finish", str_from(call->finish));
        json_write_key(&w, "first_token_ms");
        json_write_f64(&w, round(call->first_token_s * 1e6) / 1000);
    }
    if (call && call->error[0]) str_put(&w, "error", str_from(call->error));
    if (o->gone) str_put(&w, "gone", str_from(o->cause ? o->cause : "the client left"));
    json_write_object_end(&w);
    buf_putc(b, '\n');
}

static void text_line(struct buf *b, const struct net_request *r, const struct net_outcome *o, struct str path,
                      double ms) {
    const struct serve_call *call = r->user;
    char when[40];
    clock_format(when, sizeof when, "%H:%M:%S", clock_wall_s());
    buf_putf(b, "%s %d %.*s %.*s %.1f ms", when, o->status, (int)MIN(r->method.len, 16),
             r->method.len ? r->method.data : "", (int)path.len, path.data, ms);
    if (call && call->n_prompt >= 0)
        buf_putf(b, "; %lld prompt tokens (%lld kept), %lld answered, first after %.1f ms, %s",
                 (long long)call->n_prompt, (long long)call->n_cached, (long long)call->n_answer,
                 call->first_token_s * 1e3, call->finish);
    if (call && call->error[0]) buf_putf(b, "; %s", call->error);
    if (o->gone) buf_putf(b, "; %s", o->cause ? o->cause : "the client left");
    buf_putc(b, '\n');
}

void serve_log_request(struct serve *s, const struct net_request *r, const struct net_outcome *outcome) {
    if (s->o.log && strcmp(s->o.log, "none") == 0) return;
    double ms = (double)(clock_ns() - r->begin_ns) * 1e-6;
    struct buf line, path;
    buf_init(&line, LINE_BYTES_MAX);
    buf_init(&path, 4 * PATH_SHOWN_MAX + 16);
    str_put_escaped(&path, r->path, PATH_SHOWN_MAX);
    struct str shown = path.data ? buf_str(&path) : STR("");
    if (s->o.log && strcmp(s->o.log, "json") == 0)
        json_line(&line, r, outcome, shown, ms);
    else
        text_line(&line, r, outcome, shown, ms);
    if (!line.failed) fwrite(line.data, 1, line.len, stderr); // unbuffered: one write
    buf_release(&line);
    buf_release(&path);
}
