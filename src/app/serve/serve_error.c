// Errors and plain answers: one fault object, written in the shape of the family that the route belongs to.
#include "base/base.h"
#include "serve.h"

#include <stdio.h>

struct serve_call *serve_call_of(const struct net_request *r) {
    return r->user;
}

static const char *type_of(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void serve_fault_set(struct serve_fault *f, int status, const char *param, const char *code, const char *fmt, ...) {
    struct tern_err err;
    char text[TERN_ERR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(&err, TERN_INVALID_ARGUMENT, "%s", text); // escapes control bytes
    f->status = status;
    f->param = param;
    f->code = code;
    memcpy(f->message, err.message, sizeof f->message);
}

void serve_fault_from(struct serve_fault *f, enum tern_status status, const struct tern_err *err, const char *param) {
    static const struct {
        enum tern_status status;
        int http;
        const char *code;
        int retry_s;
    } rows[] = {{TERN_INVALID_ARGUMENT, 400, "invalid_value", 0},
                {TERN_BAD_FORMAT, 400, "invalid_value", 0},
                {TERN_UNSUPPORTED, 400, "unsupported", 0},
                {TERN_NOT_FOUND, 404, "not_found", 0},
                {TERN_LIMIT, 400, "limit_exceeded", 0},
                {TERN_MISMATCH, 400, "mismatch", 0},
                {TERN_CONTEXT_FULL, 400, "context_length_exceeded", 0},
                {TERN_TEMPLATE, 400, "template_refused", 0},
                {TERN_AGAIN, 503, "queue_full", 1},
                {TERN_NO_MEMORY, 503, "no_memory", 5},
                {TERN_CANCELLED, 503, "cancelled", 1}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].status == status) {
            serve_fault_set(f, rows[i].http, rows[i].http == 400 ? param : NULL, rows[i].code, "%s", err->message);
            f->retry_s = rows[i].retry_s;
            if (status != TERN_AGAIN || err->pos != 0) return;
            f->status = 429; // the tenant's own quota
            f->code = "quota_reached";
            return;
        }
    serve_fault_set(f, 500, NULL, "internal", "%s", err->message);
}

void serve_path_hide(struct tern_err *err, const char *path, struct str filename) {
    const struct str p = str_from(path);
    struct str rest = str_from(err->message);
    char text[TERN_ERR_MESSAGE_MAX];
    size_t len = 0, at;
    while ((at = str_find(rest, p, 0)) != (size_t)-1 && len < sizeof text) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%.*s%.*s", (int)at, rest.data, (int)filename.len,
                                filename.data);
        rest = (struct str){rest.data + at + p.len, rest.len - at - p.len};
    }
    if (len < sizeof text) snprintf(text + len, sizeof text - len, "%.*s", (int)rest.len, rest.data);
    memcpy(err->message, text, sizeof text);
}

static void member_put(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    if (value)
        json_write_str(w, str_from(value));
    else
        json_write_null(w);
}

void serve_fault_put(struct buf *out, const struct serve_fault *f, enum serve_family family) {
    struct json_writer w;
    json_write_init(&w, out);
    json_write_object(&w);
    if (family == SERVE_OLLAMA) {
        member_put(&w, "error", f->message);
    } else {
        const char *type = type_of(f->status);
        if (family == SERVE_ANTHROPIC) {
            member_put(&w, "type", "error");
            if (f->status == 503) type = "overloaded_error";
            if (f->status == 500) type = "api_error";
        }
        json_write_key(&w, "error");
        json_write_object(&w);
        member_put(&w, "type", type);
        member_put(&w, "message", f->message);
        if (family == SERVE_OPENAI) {
            member_put(&w, "param", f->param);
            member_put(&w, "code", f->code);
        }
        json_write_object_end(&w);
    }
    json_write_object_end(&w);
}

void serve_fault_event(struct serve_answer *a, const struct serve_fault *f, struct buf *out) {
    (void)a;
    buf_puts(out, "data: ");
    serve_fault_put(out, f, SERVE_OPENAI);
    buf_puts(out, "\n\n");
}

// The headers that every answer of ours has.
static int headers_common(const struct net_request *r, struct net_header *headers) {
    const struct serve_call *call = serve_call_of(r);
    int n = 0;
    headers[n++] = (struct net_header){"X-Request-Id", call->id};
    headers[n++] = (struct net_header){"X-Content-Type-Options", "nosniff"};
    if (call->cors) {
        headers[n++] = (struct net_header){"Access-Control-Allow-Origin", call->origin};
        headers[n++] = (struct net_header){"Vary", "Origin"};
    }
    return n;
}

void serve_fail(struct net_request *r, const struct serve_fault *f) {
    struct serve_call *call = serve_call_of(r);
    snprintf(call->error, sizeof call->error, "%s", f->code ? f->code : "");
    struct buf body;
    buf_init(&body, 64u << 10);
    serve_fault_put(&body, f, call->route ? call->route->family : SERVE_OPENAI);
    struct net_header headers[NET_ANSWER_HEADERS_MAX];
    int n = headers_common(r, headers);
    char retry[16];
    snprintf(retry, sizeof retry, "%d", f->retry_s);
    if (f->retry_s > 0) headers[n++] = (struct net_header){"Retry-After", retry};
    if (f->status == 401) headers[n++] = (struct net_header){"WWW-Authenticate", "Bearer"};
    net_answer(r, &(struct net_answer){.status = f->status,
                                       .type = "application/json",
                                       .body = buf_str(&body),
                                       .headers = headers,
                                       .n_headers = n});
    buf_release(&body);
}

void serve_failf(struct net_request *r, int status, const char *param, const char *code, const char *fmt, ...) {
    struct serve_fault f = {0};
    char text[TERN_ERR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    serve_fault_set(&f, status, param, code, "%s", text);
    serve_fail(r, &f);
}

void serve_reply(struct net_request *r, const char *type, struct str body) {
    struct net_header headers[NET_ANSWER_HEADERS_MAX];
    int n = headers_common(r, headers);
    net_answer(r, &(struct net_answer){.status = 200, .type = type, .body = body, .headers = headers, .n_headers = n});
}

void serve_reply_json(struct net_request *r, struct buf *body) {
    if (body->failed)
        serve_failf(r, 500, NULL, "internal", "no memory for the answer");
    else
        serve_reply(r, "application/json", buf_str(body));
    buf_release(body);
}

void serve_reply_stream(struct net_request *r, const char *type, const char *ping) {
    struct net_header headers[NET_ANSWER_HEADERS_MAX];
    int n = headers_common(r, headers);
    headers[n++] = (struct net_header){"Cache-Control", "no-cache"};
    headers[n++] = (struct net_header){"X-Accel-Buffering", "no"};
    net_stream_begin(r, &(struct net_answer){.status = 200, .type = type, .headers = headers, .n_headers = n}, ping);
}

void serve_id_make(char *out, size_t cap, const char *prefix) {
    uint8_t random[12];
    os_random(random, sizeof random);
    size_t len = (size_t)snprintf(out, cap, "%s", prefix);
    for (size_t i = 0; i < sizeof random && len + 2 < cap; i++)
        len += (size_t)snprintf(out + len, cap - len, "%02x", random[i]);
}
