// What may not come in: hosts, origins, keys, methods, types, framing, sizes, slow senders. The server answers by the
// book or closes, and is there afterwards.
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define KEY "sk-test-0123456789"
#define GOOD_BODY "{\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}]}"
#define GOOD_LENGTH "50"

static struct served server, keyed;
static char socket_path[100];
enum { SLOW_N = 40 };
static int slow[SLOW_N];
static uint64_t slow_ns;
static void slow_begin(void);

static int setup(void **state) {
    (void)state;
    snprintf(socket_path, sizeof socket_path, "/tmp/tern_gate_%d", (int)getpid());
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--allow-host", "tern.example", "--allow-origin",
                                                "https://ui.example", "--unix", socket_path, "--body-mib", "3", NULL});
    server_start(&keyed, (const char *const[]){"-m", SCRIPT_MODEL, "--api-key", KEY, "--api-key", "other-key", "--log",
                                               "json", NULL});
    slow_begin();
    return 0;
}
static int teardown(void **state) {
    (void)state;
    int a = server_stop(&server), b = server_stop(&keyed);
    return a || b || access(socket_path, F_OK) == 0; // the socket is removed
}

static void still_there(const struct served *s) {
    struct answer_http a = http_get(s, "/health", "");
    assert_int_equal(a.status, 200);
    answer_free(&a);
}

// Sends bytes as they are; the status of the first answer, 0 when the connection was closed without one.
static int raw(const char *bytes, size_t len, bool wait, bool *one_answer) {
    int fd = client_connect(&server);
    client_send(fd, bytes, len);
    if (wait) shutdown(fd, SHUT_WR); // nothing more will come: a server that waits for more ends here
    struct answer_http a = client_read(fd, false);
    int status = a.status;
    answer_free(&a);
    if (one_answer) {
        struct answer_http more = client_read(fd, false);
        *one_answer = more.status == 0;
        answer_free(&more);
    }
    client_close(fd);
    return status;
}

static int with_headers(const char *method, const char *path, const char *host, const char *headers) {
    char text[1024];
    bool post = strcmp(method, "POST") == 0;
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s%s\r\n%s", method, path,
                     host, headers, post ? "Content-Length: " GOOD_LENGTH "\r\n" : "", post ? GOOD_BODY : "");
    int fd = client_connect(&server);
    client_send(fd, text, (size_t)n);
    struct answer_http a = client_read(fd, strcmp(method, "HEAD") == 0);
    int status = a.status;
    answer_free(&a);
    client_close(fd);
    return status;
}

static void hosts(void **state) {
    (void)state;
    static const struct {
        const char *host;
        int status;
    } rows[] = {
        {"localhost", 200},        {"LocalHost:8080", 200},         {"127.0.0.1", 200},      {"127.0.0.1:1", 200},
        {"[::1]:80", 200},         {"tern.example", 200},           {"tern.example:9", 200}, {"evil.example", 403},
        {"localhost.evil", 403},   {"127.0.0.1.evil.example", 403}, {"192.168.0.1", 403},    {"", 403},
        {"evil.example:8376", 403}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int status = with_headers("GET", "/health", rows[i].host, "");
        if (status != rows[i].status) fail_msg("Host '%s': %d", rows[i].host, status);
    }
    // A key does not help, and no method escapes.
    assert_int_equal(with_headers("OPTIONS", "/v1/models", "evil.example", ""), 403);
    assert_int_equal(with_headers("POST", "/v1/chat/completions", "evil.example", "Content-Type: application/json\r\n"),
                     403);
}

static void origins(void **state) { // Z02
    (void)state;
    static const struct {
        const char *origin;
        int status;
    } rows[] = {{"https://evil.example", 403},
                {"null", 403},
                {"http://localhost:3000", 200},
                {"https://ui.example", 200},
                {"file://", 403},
                {"http://127.0.0.1.evil.example", 403},
                {"http://localhost.evil", 403},
                {"https://ui.example.evil", 403}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char headers[256];
        snprintf(headers, sizeof headers, "Origin: %s\r\nContent-Type: application/json\r\n", rows[i].origin);
        int status = with_headers("POST", "/v1/chat/completions", "localhost", headers);
        if (status != rows[i].status) fail_msg("Origin '%s': %d", rows[i].origin, status);
        struct answer_http a = http_get(&server, "/v1/models", headers);
        char text[512];
        const char *allowed = answer_header(&a, "Access-Control-Allow-Origin", text);
        bool configured = strcmp(rows[i].origin, "https://ui.example") == 0;
        assert_true(configured ? allowed && strcmp(allowed, rows[i].origin) == 0 : !allowed);
        assert_null(answer_header(&a, "Access-Control-Allow-Credentials", text));
        answer_free(&a);
    }
    // Simple posts of a page.
    assert_int_equal(with_headers("POST", "/v1/chat/completions", "localhost", "Content-Type: text/plain\r\n"), 415);
    assert_int_equal(with_headers("POST", "/v1/chat/completions", "localhost", ""), 415);
    assert_int_equal(
        with_headers("POST", "/v1/chat/completions", "localhost", "Content-Type: application/json; charset=utf-8\r\n"),
        200);
}

// A body that is packed is refused as that, not as bad JSON.
static void codings(void **state) {
    (void)state;
    static const char type[] = "Content-Type: application/json\r\n";
    static const struct {
        const char *header;
        int status;
    } rows[] = {{"gzip", 415}, {"br", 415}, {"deflate, gzip", 415}, {"identity", 200}, {"Identity", 200}, {"", 200}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char headers[200];
        snprintf(headers, sizeof headers, "%sContent-Encoding: %s\r\n", type, rows[i].header);
        int status = with_headers("POST", "/v1/chat/completions", "localhost", headers);
        if (status != rows[i].status) fail_msg("Content-Encoding '%s': %d", rows[i].header, status);
    }
}

static void preflight(void **state) {
    (void)state;
    static const char *const origins_[] = {"https://evil.example", "https://ui.example", "http://localhost:3000"};
    for (int i = 0; i < 3; i++) {
        int fd = client_connect(&server);
        client_sendf(fd,
                     "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\n"
                     "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\r\n",
                     origins_[i]);
        struct answer_http a = client_read(fd, false);
        char text[512];
        assert_int_equal(a.status, i == 0 ? 403 : 204);
        const char *allowed = answer_header(&a, "Access-Control-Allow-Origin", text);
        if (i == 1)
            assert_string_equal(allowed, "https://ui.example");
        else
            assert_null(allowed);
        answer_free(&a);
        client_close(fd);
    }
}

static void methods(void **state) {
    (void)state;
    char text[512];
    int fd = client_connect(&server);
    client_sendf(fd, "DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    struct answer_http a = client_read(fd, false);
    assert_int_equal(a.status, 405);
    assert_string_equal(answer_header(&a, "Allow", text), "GET, HEAD, OPTIONS");
    answer_free(&a);
    // The same connection goes on.
    client_sendf(fd, "HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = client_read(fd, true);
    assert_int_equal(a.status, 200);
    assert_string_equal(answer_header(&a, "Content-Length", text), "15");
    answer_free(&a);
    client_sendf(fd, "GET /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = client_read(fd, false);
    assert_int_equal(a.status, 405);
    assert_string_equal(answer_header(&a, "Allow", text), "POST, OPTIONS");
    answer_free(&a);
    client_sendf(fd, "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = client_read(fd, false);
    assert_int_equal(a.status, 204);
    answer_free(&a);
    // Without the /v1 that belongs to it; the base URL with it twice, or with a slash behind.
    client_sendf(fd, "GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = client_read(fd, false);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "script-lfm2"));
    answer_free(&a);
    client_sendf(fd, "GET /chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = client_read(fd, false);
    assert_int_equal(a.status, 405);
    answer_free(&a);
    static const char *const near[][2] = {{"/v1/v1/models", "/v1/models"},
                                          {"/v1/models/", "/v1/models"},
                                          {"/v1//models", "/v1/models"},
                                          {"//v1/models//", "/v1/models"}};
    for (size_t i = 0; i < ARRAY_LEN(near); i++) {
        client_sendf(fd, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", near[i][0]);
        a = client_read(fd, false);
        assert_int_equal(a.status, 404);
        snprintf(text, sizeof text, "mean %s ", near[i][1]);
        if (!strstr(a.body, text)) fail_msg("%s: %s", near[i][0], a.body);
        answer_free(&a);
    }
    static const char *const lost[] = {"/web/",
                                       "/v2/x",
                                       "/v1/models/",
                                       "/v1/chat/completions/",
                                       "/v1//models",
                                       "/../etc/passwd",
                                       "/v1/models/..%2f..%2fetc%2fpasswd"};
    for (size_t i = 0; i < ARRAY_LEN(lost); i++) {
        client_sendf(fd, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", lost[i]);
        a = client_read(fd, false);
        if (a.status != 404) fail_msg("%s: %d", lost[i], a.status);
        answer_free(&a);
    }
    client_sendf(fd, "BREW /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = client_read(fd, false);
    assert_int_equal(a.status, 405);
    answer_free(&a);
    client_close(fd);
}

static void keys(void **state) {
    (void)state;
    static const struct {
        const char *method, *path;
    } routes[] = {
#define ROUTE(method, path, handler, family, flags) {method, path},
#include "../../src/app/serve/serve_routes.inc"
#undef ROUTE
    };
    int n_open = 0;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        static const char *const wrong[] = {"", "Authorization: Bearer sk-test-012345678\r\n",
                                            "Authorization: Bearer \r\n", "X-Api-Key: nope\r\n",
                                            "Authorization: Basic " KEY "\r\n"};
        for (size_t k = 0; k < ARRAY_LEN(wrong); k++) {
            bool post = strcmp(routes[i].method, "POST") == 0;
            struct answer_http a =
                post ? http_post(&keyed, routes[i].path, "{}", wrong[k]) : http_get(&keyed, routes[i].path, wrong[k]);
            if (strcmp(routes[i].path, "/health") == 0 || strcmp(routes[i].path, "/v1/health") == 0 ||
                strcmp(routes[i].path, "/") == 0) {
                assert_int_equal(a.status, 200);
                n_open++;
            } else if (strcmp(routes[i].path, "/web/{id}") == 0) {
                assert_int_equal(a.status, 404); // the page's files are open; this one is not there
            } else if (a.status != 401) {
                fail_msg("%s %s with '%s': %d", routes[i].method, routes[i].path, wrong[k], a.status);
            }
            answer_free(&a);
        }
    }
    assert_int_equal(n_open, 3 * 5);
    static const char *const right[] = {"Authorization: Bearer " KEY "\r\n", "authorization: bearer " KEY "\r\n",
                                        "X-API-Key: " KEY "\r\n", "x-api-key: other-key\r\n"};
    for (size_t k = 0; k < ARRAY_LEN(right); k++) {
        struct answer_http a = http_get(&keyed, "/v1/models", right[k]);
        assert_int_equal(a.status, 200);
        answer_free(&a);
    }
    static const char *const others[] = {"/no/such/route", "/models", "/v1/models/"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) { // nothing is told without a key
        struct answer_http a = http_get(&keyed, others[i], "");
        assert_int_equal(a.status, 401);
        answer_free(&a);
    }
}

// Of the key in the log: nothing; of a hostile path: escaped, cut.
static void log_is_clean(void **state) {
    (void)state;
    struct answer_http a = http_get(&keyed, "/%1b%5b2J%0d%0aINFO-forged", "X-Api-Key: " KEY "\r\n");
    assert_int_equal(a.status, 404);
    assert_null(strchr(a.body, 0x1b));
    answer_free(&a);
    char *body = chat_body("secret-words", ", \"model\": \"\\u001b[2Jx\\r\\ny\"");
    a = http_post(&keyed, "/v1/chat/completions", body, "X-Api-Key: " KEY "\r\n");
    assert_int_equal(a.status, 404);
    assert_null(strstr(answer_error(&a, "message"), "\x1b"));
    assert_null(strstr(answer_error(&a, "message"), "\n"));
    answer_free(&a);
    mem_free(body);
    struct buf long_name;
    buf_init(&long_name, 2 << 20);
    buf_puts(&long_name, "{\"model\": \"");
    for (int i = 0; i < 1000000; i++) buf_putc(&long_name, 'A');
    buf_puts(&long_name, "\", \"messages\": []}");
    a = http_post(&keyed, "/v1/chat/completions", long_name.data, "X-Api-Key: " KEY "\r\n");
    assert_int_equal(a.status, 404);
    assert_true(a.body_len < 500);
    answer_free(&a);
    buf_release(&long_name);
    clock_sleep_ns(50000000);
    char *log = server_err(&keyed);
    assert_null(strstr(log, KEY));
    assert_null(strstr(log, "secret-words"));
    assert_null(strchr(log, 0x1b));
    assert_non_null(strstr(log, "\"path\":\"/\\\\x1b[2J"));
    int n = 0;
    char *rest = NULL;
    for (char *line = strtok_r(log, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (line[0] != '{') continue;
        json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!j) fail_msg("a log line is no JSON: %s", line);
        assert_true(json_is_integer(json_object_get(j, "status")));
        json_decref(j);
        n++;
    }
    assert_true(n > 10);
    mem_free(log);
}

static void framing(void **state) { // A14
    (void)state;
#define POST "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
#define HIDDEN "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    static const struct {
        const char *bytes;
        int status[3]; // any of these; 0: closed without an answer
    } rows[] = {
        {POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" HIDDEN, {400, 0, 0}},
        {POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" HIDDEN, {400, 0, 0}},
        {POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}   " HIDDEN, {400, 0, 0}},
        {POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n{}   " HIDDEN, {400, 0, 0}},
        {POST "Content-Length: 5, 6\r\n\r\n{}   " HIDDEN, {400, 0, 0}},
        {POST "Content-Length: -1\r\n\r\n" HIDDEN, {400, 0, 0}},
        {POST "Content-Length: +5\r\n\r\n{}   " HIDDEN, {400, 0, 0}},
        {POST "Content-Length: 0x5\r\n\r\n{}   " HIDDEN, {400, 0, 0}},
        {POST "Content-Length: 99999999999999999999999\r\n\r\n", {400, 413, 0}},
        {POST "Content-Length: 9999999999\r\n\r\n", {413, 413, 413}},
        {POST "Transfer-Encoding: gzip\r\n\r\n", {400, 501, 0}},
        {POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" HIDDEN, {400, 501, 0}},
        {POST "Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n" HIDDEN, {400, 0, 0}},
        {POST "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx", {400, 413, 0}},
        {POST "Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n" HIDDEN, {400, 0, 0}},
        {"GET /v1/models HTTP/1.1\r\n\r\n", {400, 400, 400}},
        {"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", {400, 400, 400}},
        {"GET /v1/models HTTP/9.9\r\nHost: localhost\r\n\r\n", {505, 400, 0}},
        {"GET http://evil.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 400, 400}},
        {"GET /v1/%00models HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 400, 400}},
        {"GET /v1/%zzmodels HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 400, 400}},
        {"GET /v1/models%2 HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 400, 400}},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {400, 0, 0}},
        {"garbage\r\n\r\n", {400, 0, 0}},
        {"\r\n\r\n\r\n\r\n", {400, 0, 0}},
        {"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n", {200, 200, 200}},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", {200, 200, 200}},
        {POST "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
         {400, 400, 400}}, // sound, and no messages in it
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bool one = false;
        bool sound = strstr(rows[i].bytes, "2\r\n{}") != NULL; // a client that half-closes is taken for gone
        int status = raw(rows[i].bytes, strlen(rows[i].bytes), !sound, sound ? NULL : &one);
        bool fits = false;
        for (int k = 0; k < 3; k++) fits = fits || status == rows[i].status[k];
        if (!fits) fail_msg("%.200s\n gave %d", rows[i].bytes, status);
        if (strstr(rows[i].bytes, HIDDEN) && !one) fail_msg("%.200s\n: the hidden request was answered", rows[i].bytes);
    }
    still_there(&server);
}

static void heads_are_bounded(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 64 << 20);
    buf_puts(&b, "GET /health HTTP/1.1\r\nHost: localhost\r\n");
    for (int i = 0; i < 100; i++) buf_putf(&b, "X-%d: y\r\n", i);
    buf_puts(&b, "\r\n");
    assert_int_equal(raw(b.data, b.len, true, NULL), 431);
    buf_clear(&b);
    buf_puts(&b, "GET /health HTTP/1.1\r\nHost: localhost\r\n");
    for (int i = 0; i < 100000; i++) buf_putf(&b, "X-%d: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", i);
    int status = raw(b.data, b.len, true, NULL);
    assert_true(status == 431 || status == 413 || status == 0);
    buf_clear(&b);
    buf_puts(&b, "GET /");
    for (int i = 0; i < 200000; i++) buf_putc(&b, 'a');
    buf_puts(&b, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    status = raw(b.data, b.len, true, NULL);
    assert_true(status == 414 || status == 431 || status == 400 || status == 0);
    buf_release(&b);
    still_there(&server);
}

static void bodies_are_bounded(void **state) {
    (void)state;
    // Announced: refused before it is read.
    int fd = client_connect(&server);
    client_sendf(fd, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: 3145729\r\nExpect: 100-continue\r\n\r\n");
    struct answer_http a = client_read(fd, false);
    assert_int_equal(a.status, 413);
    assert_string_equal(answer_error(&a, "code"), "body_too_large");
    answer_free(&a);
    client_close(fd);
    // Chunked: counted while it is read.
    fd = client_connect(&server);
    client_sendf(fd, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n");
    static char block[65536];
    memset(block, ' ', sizeof block);
    for (int i = 0; i < 64; i++) {
        client_sendf(fd, "10000\r\n");
        client_send(fd, block, sizeof block);
        client_sendf(fd, "\r\n");
    }
    client_sendf(fd, "0\r\n\r\n");
    a = client_read(fd, false);
    assert_int_equal(a.status, 413);
    answer_free(&a);
    client_close(fd);
    // Just inside: read, and refused for its tokens only.
    struct buf b;
    buf_init(&b, 8 << 20);
    for (int i = 0; i < 2 << 20; i++) buf_putc(&b, 'a' + (char)(i % 26));
    char *body = chat_body(b.data, "");
    a = http_post(&server, "/v1/chat/completions", body, "");
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_error(&a, "code"), "context_length_exceeded");
    answer_free(&a);
    mem_free(body);
    buf_release(&b);
    // A GET has none.
    fd = client_connect(&server);
    client_sendf(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
    a = client_read(fd, false);
    assert_int_equal(a.status, 413);
    answer_free(&a);
    client_close(fd);
}

static void pieces_and_pipelines(void **state) {
    (void)state;
    // A request byte by byte, its text split inside a character.
    char *body = chat_body("s01 \xe2\x9c\x93 \xf0\x9f\x8e\x89", ", \"max_tokens\": 2");
    int fd = client_connect(&server);
    char head[256];
    int n = snprintf(head, sizeof head,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     strlen(body));
    for (int i = 0; i < n; i++) {
        client_send(fd, head + i, 1);
        if (i % 32 == 0) clock_sleep_ns(1000000);
    }
    for (size_t i = 0; i < strlen(body); i++) {
        client_send(fd, body + i, 1);
        if (i % 16 == 0) clock_sleep_ns(1000000);
    }
    struct answer_http a = client_read(fd, false);
    assert_int_equal(a.status, 200);
    answer_free(&a);
    // Ten more on the same connection.
    for (int i = 0; i < 10; i++) {
        client_send(fd, head, (size_t)n);
        client_send(fd, body, strlen(body));
        a = client_read(fd, false);
        assert_int_equal(a.status, 200);
        answer_free(&a);
    }
    client_close(fd);
    mem_free(body);
}

static void unix_socket(void **state) {
    (void)state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", socket_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    char *body = chat_body("s01", ", \"stream\": true");
    client_sendf(fd,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: anything\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 strlen(body), body);
    struct answer_http answer = client_read(fd, false);
    struct chat_stream c = stream_parse(&answer, 0);
    assert_string_equal(c.text, "Hello, world.");
    chat_stream_free(&c);
    answer_free(&answer);
    mem_free(body);
    client_close(fd);
}

// Heads and bodies that never end, begun before the other tests: all are gone after their time.
static void slow_begin(void) {
    for (int i = 0; i < SLOW_N; i++) {
        slow[i] = client_connect(&server);
        if (i % 2 == 0)
            client_sendf(slow[i], "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ");
        else
            client_sendf(slow[i], "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                  "application/json\r\nContent-Length: 100\r\n\r\n{");
    }
    slow_ns = clock_ns();
}

static void slow_senders(void **state) {
    (void)state;
    int n_early = 0;
    for (int i = 0; i < SLOW_N; i++) {
        if (clock_ns() - slow_ns < 8000000000u) n_early += client_closed(slow[i], 1);
        if (!client_closed(slow[i], 60000))
            fail_msg("slow sender %d is still there after %.1f s", i, (double)(clock_ns() - slow_ns) * 1e-9);
        client_close(slow[i]);
    }
    assert_int_equal(n_early, 0);
    still_there(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts),
        cmocka_unit_test(origins),
        cmocka_unit_test(codings),
        cmocka_unit_test(preflight),
        cmocka_unit_test(methods),
        cmocka_unit_test(keys),
        cmocka_unit_test(log_is_clean),
        cmocka_unit_test(framing),
        cmocka_unit_test(heads_are_bounded),
        cmocka_unit_test(bodies_are_bounded),
        cmocka_unit_test(pieces_and_pipelines),
        cmocka_unit_test(unix_socket),
        cmocka_unit_test(slow_senders),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
