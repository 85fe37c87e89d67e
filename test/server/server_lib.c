// See server_lib.h. One read loop with a time limit serves all; nothing of the product but base/ is used.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "server_lib.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_S 60.0 // for a server to be ready, for an answer; slow builds, busy machines

static bool file_has(const char *path, const char *text, struct buf *b) {
    buf_clear(b);
    return file_read_all(b, path, NULL) == TERN_OK && b->data && strstr(b->data, text);
}

void server_start_loading(struct served *s, const char *const *args) {
    const char *argv[SERVER_ARGS_MAX + 16], *tern = getenv("TERN");
    static char words[1024]; // $TERN may be an emulator and a program
    int n = 0;
    assert_non_null(tern);
    snprintf(words, sizeof words, "%s", tern);
    for (char *w = strtok_r(words, " ", &(char *){NULL}); w; w = NULL) argv[n++] = w;
    if (strchr(tern, ' ')) {
        n = 0;
        char *rest = NULL;
        snprintf(words, sizeof words, "%s", tern);
        for (char *w = strtok_r(words, " ", &rest); w && n < 8; w = strtok_r(NULL, " ", &rest)) argv[n++] = w;
    }
    argv[n++] = "serve";
    argv[n++] = "--port";
    argv[n++] = "0";
    for (; *args; args++) argv[n++] = *args;
    argv[n] = NULL;
    *s = (struct served){0};
    snprintf(s->folder, sizeof s->folder, "%s/tern_server_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(s->folder));
    snprintf(s->out, sizeof s->out, "%s/out", s->folder);
    snprintf(s->err, sizeof s->err, "%s/err", s->folder);
    struct tern_err err = {0};
    if (child_open(&s->child, &(struct child_options){.argv = argv, .out_path = s->out, .err_path = s->err}, &err) !=
        TERN_OK)
        fail_msg("%s", err.message);
    struct buf text;
    buf_init(&text, 1 << 20);
    uint64_t until = clock_ns() + (uint64_t)(WAIT_S * 1e9);
    while (!file_has(s->out, "\n", &text)) {
        if (child_is_over(&s->child) || clock_ns() > until) {
            file_has(s->err, "", &text);
            fail_msg("the server did not start: %s", text.data ? text.data : "");
        }
        clock_sleep_ns(2000000);
    }
    char *colon = strrchr(text.data, ':');
    const char *http = strstr(text.data, "http://");
    assert_non_null(http);
    colon = strchr(http + 7, ':');
    s->port = (int)strtol(colon + 1, NULL, 10);
    assert_true(s->port > 0);
    buf_release(&text);
}

void server_start(struct served *s, const char *const *args) {
    server_start_loading(s, args);
    uint64_t until = clock_ns() + (uint64_t)(WAIT_S * 1e9);
    for (;;) {
        struct answer_http a = http_get(s, "/health", "");
        int status = a.status;
        answer_free(&a);
        if (status == 200) return;
        if (clock_ns() > until || child_is_over(&s->child)) fail_msg("the server did not get ready: %s", server_err(s));
        clock_sleep_ns(5000000);
    }
}

void server_signal(const struct served *s, int signo) { kill(s->child.pid, signo); }
bool server_over(const struct served *s) { return child_is_over(&s->child); }

int server_stop(struct served *s) {
    struct child_result r = {0};
    assert_true(s->child.pid > 0); // none was started: 0 would signal the tests' own group
    kill(s->child.pid, SIGTERM);
    assert_int_equal(child_wait(&s->child, 40000, &r, NULL), TERN_OK);
    assert_false(r.timed_out);
    unlink(s->out);
    unlink(s->err);
    rmdir(s->folder);
    return r.code;
}

char *server_err(const struct served *s) {
    struct buf b;
    buf_init(&b, 16 << 20);
    file_read_all(&b, s->err, NULL);
    buf_putc(&b, 0);
    return b.data;
}

// ------------------------------------------------------------------------------------------------------------- client

int client_connect(const struct served *s) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) fail_msg("cannot connect: %s", strerror(errno));
    return fd;
}

void client_send(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0) return; // the server has closed; its answer says why
        data += n;
        len -= (size_t)n;
    }
}

void client_sendf(int fd, const char *fmt, ...) {
    char text[8192];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof text);
    client_send(fd, text, (size_t)n);
}

void client_close(int fd) { close(fd); }

// More bytes into b; false: the end, or nothing for so long.
static bool more_read(int fd, struct buf *b, int timeout_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) <= 0) return false;
    char bytes[65536];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    return n > 0 && buf_put(b, bytes, (size_t)n);
}

bool client_closed(int fd, int timeout_ms) {
    char c[4096];
    uint64_t until = clock_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        uint64_t now = clock_ns();
        if (now > until) return false;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((until - now) / 1000000u) + 1) <= 0) return false;
        if (recv(fd, c, sizeof c, 0) <= 0) return true;
    }
}

static const char *header_in(const char *head, const char *name, char out[512]) {
    size_t len = strlen(name);
    for (const char *line = head; line && *line; line = strstr(line, "\r\n") ? strstr(line, "\r\n") + 2 : NULL) {
        if (strncasecmp(line, name, len) != 0 || line[len] != ':') continue;
        const char *v = line + len + 1;
        while (*v == ' ') v++;
        size_t n = strcspn(v, "\r");
        snprintf(out, 512, "%.*s", (int)MIN(n, (size_t)511), v);
        return out;
    }
    return NULL;
}

const char *answer_header(const struct answer_http *a, const char *name, char out[512]) {
    return a->head ? header_in(a->head, name, out) : NULL;
}

// Joins the chunks of raw[at…) into body; true: the last chunk is there.
static bool chunks_join(const struct buf *raw, size_t at, struct buf *body, int *n_chunks) {
    buf_clear(body);
    *n_chunks = 0;
    for (;;) {
        if (at >= raw->len) return false;
        const char *eol = memmem(raw->data + at, raw->len - at, "\r\n", 2);
        if (!eol) return false;
        size_t n = (size_t)strtoull(raw->data + at, NULL, 16);
        at = (size_t)(eol - raw->data) + 2;
        if (n == 0) return true;
        if (at + n + 2 > raw->len) return false;
        buf_put(body, raw->data + at, n);
        (*n_chunks)++;
        at += n + 2;
    }
}

struct answer_http client_read(int fd, bool head_only) {
    struct answer_http a = {0};
    struct buf raw, body;
    buf_init(&raw, 256 << 20);
    buf_init(&body, 256 << 20);
    char text[512];
    size_t head_len = 0;
    for (bool open = true;;) {
        const char *end = raw.len ? memmem(raw.data, raw.len, "\r\n\r\n", 4) : NULL;
        if (end) {
            head_len = (size_t)(end - raw.data) + 4;
            char *head = strndup(raw.data, head_len);
            const char *length = header_in(head, "Content-Length", text);
            bool chunked = header_in(head, "Transfer-Encoding", (char[512]){0}) != NULL;
            a.status = (int)strtol(head + 9, NULL, 10);
            if (a.status == 100) { // continue: the answer follows
                memmove(raw.data, raw.data + head_len, raw.len - head_len);
                raw.len -= head_len;
                free(head);
                continue;
            }
            if (chunked) {
                a.complete = chunks_join(&raw, head_len, &body, &a.n_chunks);
            } else if (head_only || a.status == 204) {
                a.complete = true;
            } else if (length) {
                size_t n = (size_t)strtoull(length, NULL, 10);
                a.complete = raw.len - head_len >= n;
                buf_clear(&body);
                buf_put(&body, raw.data + head_len, MIN(n, raw.len - head_len));
            } else {
                a.complete = !open;
            }
            free(a.head);
            a.head = head;
            if (a.complete) break;
        }
        if (!open) break;
        open = more_read(fd, &raw, (int)(WAIT_S * 1000));
    }
    buf_putc(&body, 0);
    a.body_len = body.len - 1;
    a.body = body.data;
    buf_release(&raw);
    return a;
}

void answer_free(struct answer_http *a) {
    free(a->head);
    mem_free(a->body);
    *a = (struct answer_http){0};
}

struct answer_http http_get(const struct served *s, const char *path, const char *extra_headers) {
    int fd = client_connect(s);
    client_sendf(fd, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n%s\r\n", path, s->port,
                 extra_headers);
    struct answer_http a = client_read(fd, false);
    client_close(fd);
    return a;
}

struct answer_http http_post(const struct served *s, const char *path, const char *json, const char *extra_headers) {
    int fd = client_connect(s);
    client_sendf(fd,
                 "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n%s\r\n",
                 path, s->port, strlen(json), extra_headers);
    client_send(fd, json, strlen(json));
    struct answer_http a = client_read(fd, false);
    client_close(fd);
    return a;
}

json_t *answer_json(const struct answer_http *a) {
    json_error_t e;
    json_t *j = json_loadb(a->body, a->body_len, JSON_REJECT_DUPLICATES, &e);
    if (!j) fail_msg("status %d, no JSON (%s): %.300s", a->status, e.text, a->body);
    return j;
}

const char *answer_error(const struct answer_http *a, const char *member) {
    static char text[1024];
    json_t *j = answer_json(a), *e = json_object_get(j, "error");
    if (!json_is_object(e)) fail_msg("status %d, no error object: %.300s", a->status, a->body);
    const char *v = json_string_value(json_object_get(e, member));
    snprintf(text, sizeof text, "%s", v ? v : "");
    json_decref(j);
    return text;
}

// ------------------------------------------------------------------------------------------------------------- streams

static void delta_take(struct chat_stream *c, json_t *delta, struct buf *text, struct buf *reasoning,
                       struct buf *calls) {
    const char *s = json_string_value(json_object_get(delta, "content"));
    if (s) buf_puts(text, s);
    s = json_string_value(json_object_get(delta, "reasoning_content"));
    if (s) buf_puts(reasoning, s);
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call) {
        json_t *f = json_object_get(call, "function");
        s = json_string_value(json_object_get(f, "name"));
        if (s) buf_putf(calls, "%s%s", calls->len ? " " : "", s);
        s = json_string_value(json_object_get(f, "arguments"));
        if (s) buf_puts(calls, s);
    }
    (void)c;
}

static void event_take(struct chat_stream *c, json_t *e, int index, char first[4][128], struct buf *bufs) {
    static const char *const same[] = {"id", "object", "model", "created"};
    c->n_error += json_object_get(e, "error") != NULL;
    if (json_object_get(e, "error")) return;
    for (int i = 0; i < 4; i++) {
        char *v = json_dumps(json_object_get(e, same[i]), JSON_ENCODE_ANY), now[128];
        snprintf(now, sizeof now, "%.120s", v ? v : "");
        if (first[i][0] && strcmp(first[i], now) != 0) c->same_head = false;
        memcpy(first[i], now, sizeof now);
        free(v);
    }
    json_t *usage = json_object_get(e, "usage");
    if (json_is_object(usage)) {
        c->n_usage++;
        assert_int_equal(json_array_size(json_object_get(e, "choices")), 0);
        c->n_prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
        c->n_answer = json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    json_t *choice = json_array_get(json_object_get(e, "choices"), 0);
    if (!choice || json_integer_value(json_object_get(choice, "index")) != index) return;
    json_t *delta = json_object_get(choice, "delta");
    assert_true(json_is_object(delta));
    if (c->n_events++ == 0) c->role_first = json_object_get(delta, "role") != NULL;
    delta_take(c, delta, &bufs[0], &bufs[1], &bufs[2]);
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish) {
        c->n_finish++;
        snprintf(c->finish, sizeof c->finish, "%s", finish);
    }
}

struct chat_stream stream_parse(const struct answer_http *a, int index) {
    struct chat_stream c = {.same_head = true};
    struct buf bufs[3];
    char first[4][128] = {{0}};
    for (int i = 0; i < 3; i++) {
        buf_init(&bufs[i], 16 << 20);
        buf_puts(&bufs[i], "");
    }
    const char *at = a->body;
    while (*at) {
        const char *end = strstr(at, "\n\n");
        if (!end) break; // cut off
        if (strncmp(at, "data: ", 6) == 0 && strncmp(at + 6, "[DONE]", 6) == 0) {
            c.n_done++;
        } else if (strncmp(at, "data: ", 6) == 0) {
            assert_int_equal(c.n_done, 0);
            json_error_t err;
            json_t *e = json_loadb(at + 6, (size_t)(end - at) - 6, JSON_REJECT_DUPLICATES, &err);
            if (!e) fail_msg("an event is no JSON (%s): %.200s", err.text, at);
            event_take(&c, e, index, first, bufs);
            json_decref(e);
        } else if (*at != ':') {
            fail_msg("no event: %.100s", at);
        }
        at = end + 2;
    }
    char **out[] = {&c.text, &c.reasoning, &c.calls};
    for (int i = 0; i < 3; i++) {
        buf_putc(&bufs[i], 0);
        *out[i] = bufs[i].data;
    }
    return c;
}

void chat_stream_free(struct chat_stream *c) {
    mem_free(c->text);
    mem_free(c->reasoning);
    mem_free(c->calls);
}

// ------------------------------------------------------------------------------------------------------------- scripts

static json_t *scripts(void) {
    static json_t *loaded;
    if (!loaded) loaded = json_load_file(TEST_DATA "/script/scripts.json", 0, NULL);
    assert_non_null(loaded);
    return loaded;
}

const char *script_text(const char *name) {
    const char *text = json_string_value(json_object_get(json_object_get(scripts(), name), "text"));
    if (!text) fail_msg("no script %s", name);
    return text;
}

const char *script_name(int i) {
    const char *key;
    json_t *v;
    json_object_foreach(scripts(), key, v) {
        if (i-- == 0) return key;
    }
    return NULL;
}

char *chat_body(const char *user, const char *extra) {
    struct buf b;
    buf_init(&b, 64 << 20);
    buf_puts(&b, "{\"messages\": [{\"role\": \"user\", \"content\": ");
    json_put_quoted(&b, str_from(user));
    buf_putf(&b, "}]%s}", extra);
    return b.data;
}

// ---------------------------------------------------------------------------------------------------------------- chat

struct answer_http chat_ask(const struct served *s, const char *user, const char *extra) {
    char *body = chat_body(user, extra);
    struct answer_http a = http_post(s, "/v1/chat/completions", body, "");
    mem_free(body);
    return a;
}

struct answer_http http_postf(const struct served *s, const char *path, const char *fmt, ...) {
    static char body[1 << 18];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(body, sizeof body, fmt, args);
    va_end(args);
    assert_in_range(n, 0, sizeof body - 1);
    return http_post(s, path, body, "");
}

int post_begin(const struct served *s, const char *path, const char *body) {
    int fd = client_connect(s);
    client_sendf(fd,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 path, strlen(body));
    client_send(fd, body, strlen(body));
    return fd;
}

json_t *choice_of(json_t *j) { return json_array_get(json_object_get(j, "choices"), 0); }
json_t *message_of(json_t *j) { return json_object_get(choice_of(j), "message"); }
const char *finish_of(json_t *j) { return json_string_value(json_object_get(choice_of(j), "finish_reason")); }

json_t *json_at(json_t *j, const char *path) {
    char key[64];
    while (*path && j) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(key)) : json_object_get(j, key);
        path += n + (path[n] == '.');
    }
    return j;
}

const char *json_text_at(json_t *j, const char *path) {
    const char *s = json_string_value(json_at(j, path));
    return s ? s : "";
}

void stream_each(const struct answer_http *a, void (*fn)(void *arg, json_t *j, const char *event), void *arg) {
    char event[64] = "";
    assert_int_equal(a->status, 200);
    assert_true(a->complete);
    for (const char *line = a->body, *end; (end = strchr(line, '\n')); line = end + 1) {
        if (strncmp(line, "event: ", 7) == 0) snprintf(event, sizeof event, "%.*s", (int)(end - line - 7), line + 7);
        const char *data = strncmp(line, "data: ", 6) == 0 ? line + 6 : line[0] == '{' ? line : NULL;
        if (!data || strncmp(data, "[DONE]", 6) == 0) continue;
        json_t *j = json_loadb(data, (size_t)(end - data), JSON_REJECT_DUPLICATES, NULL);
        if (!j) fail_msg("no JSON: %.*s", (int)(end - data), data);
        fn(arg, j, event);
        json_decref(j);
    }
}

double metric_of(const struct served *s, const char *name) {
    struct answer_http a = http_get(s, "/metrics", "");
    char line[128];
    snprintf(line, sizeof line, "\n%s{", name);
    const char *at = strstr(a.body, line), *end = at ? strchr(at, '}') : NULL;
    if (!end) fail_msg("no metric %s", name);
    const double v = strtod(end + 1, NULL);
    answer_free(&a);
    return v;
}

char *tools_extra(const char *more) {
    struct buf b, tools;
    buf_init(&b, 1 << 20);
    buf_init(&tools, 1 << 20);
    assert_int_equal(file_read_all(&tools, TEST_DATA "/script/tools.json", NULL), TERN_OK);
    buf_putf(&b, ", \"tools\": %s%s", tools.data, more);
    buf_release(&tools);
    return b.data;
}
