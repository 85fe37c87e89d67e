// Framing of requests by the book (RFC 9112): well over 150 heads and bodies that are not, made from lists of wrong
// pieces. Each is refused and its connection closed, and what stands behind it on the connection is never answered.
#define _GNU_SOURCE 1
#include "server_lib.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HIDDEN "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define POST "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
#define GET "GET /health HTTP/1.1\r\nHost: localhost\r\n"

static struct served server;
static int n_vectors;

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

// All that comes until the server closes; *closed: it did within the time.
static void answers_read(int fd, struct buf *all, bool *closed) {
    char bytes[8192];
    const uint64_t until = clock_ns() + 20000000000u;
    *closed = false;
    while (clock_ns() < until) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 200) <= 0) continue;
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) {
            *closed = true;
            break;
        }
        buf_put(all, bytes, (size_t)n);
    }
    buf_putc(all, 0);
}

// Sent as it is: an error, and then the connection's end.
static void refused(const char *bytes, size_t len) {
    struct buf all;
    bool closed;
    int n_answers = 0, status = 0, fd = client_connect(&server);
    buf_init(&all, 1 << 20);
    client_send(fd, bytes, len);
    answers_read(fd, &all, &closed);
    client_close(fd);
    for (const char *at = all.data; (at = strstr(at, "HTTP/1.1 ")); at += 9, n_answers++) {
        status = (int)strtol(at + 9, NULL, 10);
        if (status < 400) fail_msg("answered with %d: %.300s", status, bytes);
    }
    // libmicrohttpd may send the head of its own 400 twice; an answer to what is hidden would be a 200.
    if (n_answers > 2) fail_msg("%d answers to: %.300s", n_answers, bytes);
    if (!closed) fail_msg("still open, status %d: %.300s", status, bytes);
    buf_release(&all);
    n_vectors++;
}
static void refused_text(const char *text) { refused(text, strlen(text)); }

static void lengths(void **state) {
    (void)state;
    static const char *const values[] = {"-1",
                                         "+2",
                                         "0x2",
                                         "2 2",
                                         "2,2",
                                         "2, 3",
                                         "2;",
                                         "2.0",
                                         "1e1",
                                         "two",
                                         "",
                                         " ",
                                         "2\t2",
                                         "\"2\"",
                                         "--2",
                                         "0-2",
                                         "2a",
                                         "a2",
                                         "0b10",
                                         "2_0",
                                         "0x",
                                         "\xc2\xb2",
                                         "99999999999999999999",
                                         "18446744073709551616",
                                         "18446744073709551618",
                                         "340282366920938463463374607431768211458",
                                         "-0",
                                         "+0",
                                         "2+",
                                         "2-"};
    char text[600];
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        snprintf(text, sizeof text, POST "Content-Length: %s\r\n\r\n{}" HIDDEN, values[i]);
        refused_text(text);
    }
    // Two of them, alike or not, whatever stands between.
    static const char *const pairs[][2] = {{"2", "3"}, {"3", "2"}, {"2", "2"}, {"0", "2"}, {"2", "0"}, {"2", "-2"}};
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        for (int k = 0; k < 3; k++) {
            static const char *const names[] = {"Content-Length", "content-length", "CONTENT-LENGTH"};
            snprintf(text, sizeof text, POST "Content-Length: %s\r\n%s%s: %s\r\n\r\n{}" HIDDEN, pairs[i][0],
                     k ? "X-Other: y\r\n" : "", names[k], pairs[i][1]);
            refused_text(text);
        }
}

static void codings(void **state) {
    (void)state;
    static const char *const values[] = {
        "gzip",     "chunked, gzip",    "gzip, chunked", "identity",    "chunked, chunked",
        "chunked,", "xchunked",         "chunkedx",      "chunked;q=1", "\"chunked\"",
        "chunk",    "chunked identity", "deflate",       "compress",    "chunked\tgzip",
        "cow"};
    char text[600];
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        snprintf(text, sizeof text, POST "Transfer-Encoding: %s\r\n\r\n2\r\n{}\r\n0\r\n\r\n" HIDDEN, values[i]);
        refused_text(text);
    }
    // A length beside chunks, in both orders and several spellings.
    static const char *const lengths[] = {"0", "2", "5", "12", "1000"}, *const te[] = {"chunked", "Chunked", "CHUNKED",
                                                                                       " chunked"};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t k = 0; k < ARRAY_LEN(te); k++)
            for (int order = 0; order < 2; order++) {
                char a[100], b[100];
                snprintf(a, sizeof a, "Content-Length: %s\r\n", lengths[i]);
                snprintf(b, sizeof b, "Transfer-Encoding: %s\r\n", te[k]);
                snprintf(text, sizeof text, POST "%s%s\r\n2\r\n{}\r\n0\r\n\r\n" HIDDEN, order ? a : b, order ? b : a);
                refused_text(text);
            }
    refused_text(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n" HIDDEN);
    refused_text(POST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" HIDDEN);
    refused_text(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" HIDDEN);
}

static void chunks(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "-2\r\n{}\r\n0\r\n\r\n",    "+2\r\n{}\r\n0\r\n\r\n",   "0x2\r\n{}\r\n0\r\n\r\n", "g\r\n{}\r\n0\r\n\r\n",
        "\r\n{}\r\n0\r\n\r\n",      "two\r\n{}\r\n0\r\n\r\n",  "2 2\r\n{}\r\n0\r\n\r\n", "2,\r\n{}\r\n0\r\n\r\n",
        "10000000000000000\r\n{}",  "fffffffffffffffff\r\n{}", "2\r\n{}0\r\n\r\n",       "2\r\n{}x\r\n0\r\n\r\n",
        "2\r\n{}\rx0\r\n\r\n",      "1\r\n{}\r\n0\r\n\r\n",    "2\r\n{}\r\n-0\r\n\r\n",  "2\r\n{}\r\nx\r\n\r\n",
        "2\x01\r\n{}\r\n0\r\n\r\n", "\x80\r\n{}\r\n0\r\n\r\n", "2\r{}\r\n0\r\n\r\n",     "02 \t x\r\n{}\r\n0\r\n\r\n",
    };
    char text[600];
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        snprintf(text, sizeof text, POST "Transfer-Encoding: chunked\r\n\r\n%s" HIDDEN, bodies[i]);
        refused_text(text);
    }
}

static void heads(void **state) {
    (void)state;
    static const char *const lines[] = {"Bad Header: x\r\n",
                                        "Bad\tHeader: x\r\n",
                                        "X : y\r\n",
                                        "X\t: y\r\n",

                                        "noColon\r\n",

                                        " X: y\r\n",
                                        "\tX: y\r\n",
                                        "X: a\x01\r\n",
                                        "X: a\x7f\x02\r\n",
                                        "X\x01: y\r\n",
                                        "(X): y\r\n",
                                        "X@Y: z\r\n",
                                        "X[0]: z\r\n",
                                        "\"X\": z\r\n",
                                        "X{}: z\r\n",
                                        "X: a\rb\r\n",
                                        "Content-Length : 2\r\n",
                                        "Transfer-Encoding : chunked\r\n",
                                        "X/Y: z\r\n",
                                        "X=Y: z\r\n",
                                        "X;Y: z\r\n",
                                        "X,Y: z\r\n",
                                        "X?: z\r\n",
                                        "X\xc3\xa4: z\r\n",
                                        "Host: other\r\n",
                                        "host: localhost\r\n"};
    char text[600];
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        snprintf(text, sizeof text, GET "%s\r\n" HIDDEN, lines[i]);
        refused_text(text);
    }
    static const char nul_name[] = GET "X\0Y: b\r\n\r\n" HIDDEN;
    refused(nul_name, sizeof nul_name - 1);
}

static void request_lines(void **state) {
    (void)state;
    static const char *const lines[] = {"GET /health  HTTP/1.1",
                                        "GET\t/health HTTP/1.1",
                                        "GET /health\tHTTP/1.1",
                                        " GET /health HTTP/1.1",
                                        "GET /health HTTP/1.1 ",
                                        "GET /health HTTP/1.1 x",
                                        "GET /health",
                                        "GET /health HTTP/",
                                        "GET /health HTTP/1",
                                        "GET /health HTTP/1.",
                                        "GET /health HTTP/.1",
                                        "GET /health HTTP/2.0",
                                        "GET /health HTTP/0.9",
                                        "GET /health HTTP/11.1",
                                        "GET /health HTTP/1.10",
                                        "GET /health http/1.1",
                                        "GET /health HTTP/1,1",
                                        "GET /health HTTPS/1.1",
                                        "GET /hea lth HTTP/1.1",
                                        "GET HTTP/1.1",
                                        "GET",
                                        "/health HTTP/1.1",
                                        "G(T /health HTTP/1.1",
                                        "GET health HTTP/1.1",
                                        "GET http://localhost/health HTTP/1.1",
                                        "GET //evil@localhost/health HTTP/1.1",
                                        "CONNECT localhost:1 HTTP/1.1",
                                        "GET /health\x01 HTTP/1.1",
                                        "GET /%00health HTTP/1.1",
                                        "GET /health%2 HTTP/1.1",
                                        "GET /%zz HTTP/1.1",
                                        "PRI * HTTP/2.0",
                                        "GET /health#x HTTP/1.1"};
    char text[600];
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        snprintf(text, sizeof text, "%s\r\nHost: localhost\r\nConnection: close\r\n\r\n" HIDDEN, lines[i]);
        refused_text(text);
    }
}

static void enough(void **state) {
    (void)state;
    if (n_vectors < 150) fail_msg("only %d vectors", n_vectors);
    struct answer_http a = http_post(&server, "/tokenize", "{\"content\": \"x\"}", "");
    assert_int_equal(a.status, 200);
    answer_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lengths),       cmocka_unit_test(codings),
                                       cmocka_unit_test(chunks),        cmocka_unit_test(heads),
                                       cmocka_unit_test(request_lines), cmocka_unit_test(enough)};
    return cmocka_run_group_tests_name("framing", tests, setup, teardown);
}
