// An HTTP client: for the bench that asks other programs on this machine, and for downloads. One request at a time, its
// answer handed on as it comes. libcurl does the work; it is loaded at the first request, so nothing is linked and a
// machine without it has everything but this.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

#define HTTP_URL_MAX 2048
#define HTTP_ANSWER_BYTES_MAX (64u << 20)

struct http_request {
    const char *url;                              // http or https; no redirects are followed
    struct str body;                              // JSON to POST; data NULL: GET
    const char *const *headers;                   // "Name: value", sent besides; ends with NULL; may be NULL
    bool is_remote;                               // through the proxies that the environment names
    uint64_t n_bytes_max;                         // of the answer's body; 0: HTTP_ANSWER_BYTES_MAX
    int64_t connect_ms;                           // until a connection is there; 0: 5000
    int64_t stall_s;                              // without a byte; 0: 60
    int64_t total_ms;                             // 0: no bound
    bool (*on_data)(void *arg, struct str piece); // body bytes as they come; false ends the request
    // Each header of the answer, before its body; false ends the request. NULL: nobody wants them.
    bool (*on_header)(void *arg, int status, struct str name, struct str value);
    void *arg;
    struct buf *redirect; // where an answer 3xx leads, as a whole URL; may be NULL
};
// TERN_OK: the server answered, with *status (200 …). TERN_CANCELLED: on_data or on_header said so.
// TERN_UNSUPPORTED: no libcurl.
// TERN_IO: no connection, a time-out, or an answer that broke off; the message says which. TERN_LIMIT: too long.
enum tern_status http_do(const struct http_request *r, int *status, struct tern_err *err);
// A TCP port of 127.0.0.1 that nobody listens on now; 0: none found.
int http_port_free(void);
