// HTTP through libcurl's stable binary interface (curl.h's numbers do not change). Loading it by name, with its few
// functions declared here, keeps it out of everybody's link: few commands speak HTTP.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

// From curl/curl.h.
enum {
    OPT_URL = 10002,
    OPT_WRITEDATA = 10001,
    OPT_WRITEFUNCTION = 20011,
    OPT_HEADERDATA = 10029,
    OPT_HEADERFUNCTION = 20079,
    OPT_USERAGENT = 10018,
    OPT_POSTFIELDS = 10015,
    OPT_POSTFIELDSIZE_LARGE = 30120,
    OPT_HTTPHEADER = 10023,
    OPT_NOPROXY = 10177,
    OPT_LOW_SPEED_LIMIT = 19,
    OPT_LOW_SPEED_TIME = 20,
    OPT_NOSIGNAL = 99,
    OPT_TCP_NODELAY = 121,
    OPT_TIMEOUT_MS = 155,
    OPT_CONNECTTIMEOUT_MS = 156,
    OPT_PROTOCOLS = 181,
    PROTOCOLS_HTTP_HTTPS = 3,
    INFO_RESPONSE_CODE = 0x200000 + 2,
    INFO_REDIRECT_URL = 0x100000 + 31,
    CURL_OK = 0,
    CURL_WRITE_ERROR = 23,
};

struct curl_api {
    void *(*easy_init)(void);
    int (*easy_setopt)(void *easy, int option, ...);
    int (*easy_perform)(void *easy);
    int (*easy_getinfo)(void *easy, int info, ...);
    void (*easy_cleanup)(void *easy);
    const char *(*easy_strerror)(int code);
    void *(*slist_append)(void *list, const char *text);
    void (*slist_free_all)(void *list);
};

static bool symbol_take(const struct os_library *lib, const char *name, void *out /* pointer to a function pointer */) {
    os_function f = library_symbol(lib, name);
    memcpy(out, &f, sizeof f);
    return f != NULL;
}

// Loaded once and kept: unloading a library that started threads or handlers is not safe.
static enum tern_status curl_load(struct curl_api *api, struct tern_err *err) {
#ifdef __APPLE__
    static const char *const names[] = {"libcurl.4.dylib", "libcurl.dylib"};
#else
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
#endif
    struct os_library *lib = NULL;
    enum tern_status status = TERN_NOT_FOUND;
    for (size_t i = 0; i < ARRAY_LEN(names) && status == TERN_NOT_FOUND; i++)
        status = library_open(&lib, names[i], err);
    if (status == TERN_UNSUPPORTED) return status; // a static program
    if (lib && symbol_take(lib, "curl_easy_init", &api->easy_init) &&
        symbol_take(lib, "curl_easy_setopt", &api->easy_setopt) &&
        symbol_take(lib, "curl_easy_perform", &api->easy_perform) &&
        symbol_take(lib, "curl_easy_getinfo", &api->easy_getinfo) &&
        symbol_take(lib, "curl_easy_cleanup", &api->easy_cleanup) &&
        symbol_take(lib, "curl_easy_strerror", &api->easy_strerror) &&
        symbol_take(lib, "curl_slist_append", &api->slist_append) &&
        symbol_take(lib, "curl_slist_free_all", &api->slist_free_all))
        return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED,
                   "this needs libcurl to speak HTTP, and it is not on this machine (Debian: apt install libcurl4)");
}

struct receiving {
    const struct http_request *r;
    uint64_t n_bytes, n_bytes_max;
    int status; // of the answer whose headers come
    bool stopped, too_long;
};

// One line of the head: a status line begins an answer, "100 Continue" and a proxy's among them.
static size_t on_head(char *data, size_t size, size_t n, void *arg) {
    struct receiving *g = arg;
    const size_t len = size * n;
    struct str line = str_trim((struct str){data, len});
    const size_t colon = str_find(line, STR(":"), 0), blank = str_find(line, STR(" "), 0);
    int64_t status;
    if (str_starts(line, STR("HTTP/")) && blank != (size_t)-1) {
        if (line.len >= blank + 4 && str_to_i64((struct str){line.data + blank + 1, 3}, &status))
            g->status = (int)status;
        return len;
    }
    if (!g->r->on_header || g->status < 200 || colon == (size_t)-1) return len;
    const struct str name = {line.data, colon}, value = {line.data + colon + 1, line.len - colon - 1};
    if (g->r->on_header(g->r->arg, g->status, name, str_trim(value))) return len;
    g->stopped = true;
    return len + 1;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg) {
    struct receiving *g = arg;
    const size_t len = size * n;
    g->n_bytes += len;
    g->too_long = g->n_bytes > g->n_bytes_max;
    if (!g->too_long && (!g->r->on_data || g->r->on_data(g->r->arg, (struct str){data, len}))) return len;
    g->stopped = !g->too_long;
    return len + 1; // another number than len: libcurl ends the transfer
}

// Expect: 100-continue would cost a second with servers that do not know it.
static void *headers_make(const struct curl_api *api, const struct http_request *r) {
    void *list = api->slist_append(NULL, "Expect:");
    void *more = list && r->body.data ? api->slist_append(list, "Content-Type: application/json") : list;
    for (int i = 0; more && r->headers && r->headers[i]; i++) more = api->slist_append(list, r->headers[i]);
    if (!more && list) api->slist_free_all(list);
    return more ? list : NULL;
}

enum tern_status http_do(const struct http_request *r, int *status, struct tern_err *err) {
    struct curl_api api = {0};
    TRY(curl_load(&api, err));
    void *easy = api.easy_init();
    void *headers = headers_make(&api, r);
    struct receiving g = {.r = r, .n_bytes_max = r->n_bytes_max ? r->n_bytes_max : HTTP_ANSWER_BYTES_MAX};
    enum tern_status result = TERN_OK;
    *status = 0;
    if (!easy || !headers) {
        result = err_set(err, TERN_NO_MEMORY, "no memory for a request to %s", r->url);
        goto done;
    }
    api.easy_setopt(easy, OPT_URL, r->url);
    api.easy_setopt(easy, OPT_PROTOCOLS, (long)PROTOCOLS_HTTP_HTTPS);
    if (!r->is_remote) api.easy_setopt(easy, OPT_NOPROXY, "*");
    api.easy_setopt(easy, OPT_USERAGENT, "tern");
    api.easy_setopt(easy, OPT_HTTPHEADER, headers);
    api.easy_setopt(easy, OPT_HEADERFUNCTION, on_head);
    api.easy_setopt(easy, OPT_HEADERDATA, &g);
    api.easy_setopt(easy, OPT_NOSIGNAL, 1L);
    api.easy_setopt(easy, OPT_TCP_NODELAY, 1L);
    api.easy_setopt(easy, OPT_CONNECTTIMEOUT_MS, (long)(r->connect_ms ? r->connect_ms : 5000));
    api.easy_setopt(easy, OPT_TIMEOUT_MS, (long)r->total_ms);
    api.easy_setopt(easy, OPT_LOW_SPEED_LIMIT, 1L);
    api.easy_setopt(easy, OPT_LOW_SPEED_TIME, (long)(r->stall_s ? r->stall_s : 60));
    api.easy_setopt(easy, OPT_WRITEFUNCTION, on_body);
    api.easy_setopt(easy, OPT_WRITEDATA, &g);
    if (r->body.data) {
        api.easy_setopt(easy, OPT_POSTFIELDSIZE_LARGE, (int64_t)r->body.len);
        api.easy_setopt(easy, OPT_POSTFIELDS, r->body.data);
    }
    int code = api.easy_perform(easy);
    long response = 0;
    api.easy_getinfo(easy, INFO_RESPONSE_CODE, &response);
    *status = (int)response;
    const char *redirect = NULL;
    if (r->redirect && api.easy_getinfo(easy, INFO_REDIRECT_URL, &redirect) == CURL_OK && redirect)
        buf_puts(r->redirect, redirect);
    if (g.too_long)
        result = err_set(err, TERN_LIMIT, "%s: the answer is longer than %llu bytes", r->url,
                         (unsigned long long)g.n_bytes_max);
    else if (code == CURL_WRITE_ERROR && g.stopped)
        result = err_set(err, TERN_CANCELLED, "%s: the answer was not read to its end", r->url);
    else if (code != CURL_OK)
        result = err_set(err, TERN_IO, "%s: %s", r->url, api.easy_strerror(code));
done:
    if (headers) api.slist_free_all(headers);
    if (easy) api.easy_cleanup(easy);
    return result;
}

int http_port_free(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0), port = 0;
    if (fd < 0) return 0;
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0)
        port = ntohs(a.sin_port);
    close(fd);
    return port;
}
