// The server as a client on a raw socket sees it: starting `tern serve`, requests byte by byte, answers taken apart.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// Four names of jansson's are base's too; ours step aside here.
#define JSON_OBJECT BASE_JSON_OBJECT
#define JSON_ARRAY BASE_JSON_ARRAY
#define JSON_STRING BASE_JSON_STRING
#define JSON_NULL BASE_JSON_NULL
#include "base/base.h"
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_NULL
#include <jansson.h>

#define SCRIPT_MODEL TEST_DATA "/gguf/script-lfm2.gguf"
#define SERVER_ARGS_MAX 32

struct served {
    struct os_child child;
    int port;
    char folder[256], out[300], err[300];
};
// Starts $TERN serve --port 0 with these arguments (the list ends with NULL) and waits until it is ready.
void server_start(struct served *s, const char *const *args);
void server_start_loading(struct served *s, const char *const *args); // as soon as it listens
int server_stop(struct served *s);                                    // SIGTERM; its exit code
void server_signal(const struct served *s, int signo);
bool server_over(const struct served *s);
char *server_err(const struct served *s); // its standard error so far; mem_free

struct answer_http {
    int status;
    char *head; // with the status line, 0-terminated
    char *body; // chunks joined, 0-terminated
    size_t body_len;
    bool complete; // its framing came to its end
    int n_chunks;
};
int client_connect(const struct served *s);
void client_send(int fd, const char *data, size_t len);
void client_sendf(int fd, const char *fmt, ...) PRINTF_LIKE(2, 3);
void client_close(int fd);
// Reads one answer. head_only: of a HEAD request. Fails the test after 30 s.
struct answer_http client_read(int fd, bool head_only);
bool client_closed(int fd, int timeout_ms); // does the server end the connection?
void answer_free(struct answer_http *a);
// Value of a header, copied into out; NULL when absent.
const char *answer_header(const struct answer_http *a, const char *name, char out[512]);

struct answer_http http_get(const struct served *s, const char *path, const char *extra_headers);
struct answer_http http_post(const struct served *s, const char *path, const char *json, const char *extra_headers);
struct answer_http http_postf(const struct served *s, const char *path, const char *fmt, ...) PRINTF_LIKE(3, 4);
// The body as JSON; fails the test when it is none.
json_t *answer_json(const struct answer_http *a);
// error.code of an OpenAI error body, and its param, into static storage ("" when null).
const char *answer_error(const struct answer_http *a, const char *member);

// Server-sent events of a chat stream, put together.
struct chat_stream {
    char *text, *reasoning, *calls; // calls: "name(arguments) …"
    char finish[32];
    int n_events, n_finish, n_done, n_error, n_usage;
    int64_t n_prompt, n_answer;
    bool role_first, same_head;
};
struct chat_stream stream_parse(const struct answer_http *a, int index);
void chat_stream_free(struct chat_stream *c);

// One chat request: a user message and further members, as chat_body() has them.
struct answer_http chat_ask(const struct served *s, const char *user, const char *extra);
// A body sent and its answer not waited for; the socket.
int post_begin(const struct served *s, const char *path, const char *body);
// Of an answer's first choice.
json_t *choice_of(json_t *j);
json_t *message_of(json_t *j);
const char *finish_of(json_t *j);
// "choices.0.message": NULL where it leads nowhere; "" for a text that is none.
json_t *json_at(json_t *j, const char *path);
const char *json_text_at(json_t *j, const char *path);
// Calls fn for the JSON of each event (each line of NDJSON); event: its name, or "".
void stream_each(const struct answer_http *a, void (*fn)(void *arg, json_t *j, const char *event), void *arg);
double metric_of(const struct served *s, const char *name); // its first row
char *tools_extra(const char *more);                        // ", \"tools\": […]" of the scripts, and more; mem_free

// The texts of the script model: test/data/script/scripts.json.
const char *script_text(const char *name);
const char *script_name(int i); // NULL after the last
// A chat body for one user message; extra: further members, ", \"stream\": true".
char *chat_body(const char *user, const char *extra); // mem_free
