// The hub: where it is, with which token, and a request with its redirects.
//
// Redirects are followed here, not by libcurl, because of what is asked of each: at most five, never from https to
// http, and the token only to the hub's own scheme, host and port. The token itself goes over plain http to this
// machine alone (a mirror that is being tested).
#include "base/base.h"
#include "pull.h"

#include <stdio.h>

static bool is_this_machine(struct str origin) {
    static const char *const heads[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        const size_t n = strlen(heads[i]);
        if (str_starts(origin, str_from(heads[i])) && (origin.len == n || origin.data[n] == ':')) return true;
    }
    return false;
}

struct str pull_url_origin(struct str url) {
    size_t begin = str_starts(url, STR("https://")) ? 8 : str_starts(url, STR("http://")) ? 7 : 0;
    size_t end = begin;
    if (begin == 0) return (struct str){0};
    while (end < url.len && url.data[end] != '/' && url.data[end] != '?' && url.data[end] != '#') {
        const unsigned char c = (unsigned char)url.data[end++];
        if (c == '@' || c == '\\' || c <= ' ' || c >= 127) return (struct str){0};
    }
    return end > begin ? (struct str){url.data, end} : (struct str){0};
}

bool pull_url_put(struct buf *b, struct str path) {
    for (size_t i = 0; i < path.len; i++) {
        const unsigned char c = (unsigned char)path.data[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                           c == '_' || c == '.' || c == '~' || c == '/';
        if (plain)
            buf_putc(b, (char)c);
        else
            buf_putf(b, "%%%02X", c);
    }
    return !b->failed;
}

// Printable ASCII without blanks: nothing else may come into a header.
static enum tern_status token_set(struct pull_hub *h, struct str token, const char *from, struct tern_err *err) {
    bool sound = token.len > 0 && token.len <= PULL_TOKEN_MAX;
    for (size_t i = 0; i < token.len && sound; i++) sound = token.data[i] > ' ' && token.data[i] < 127;
    if (!sound) return err_set(err, TERN_INVALID_ARGUMENT, "%s holds no token: one word of ASCII expected", from);
    snprintf(h->authorization, sizeof h->authorization, "Authorization: Bearer %.*s", (int)token.len, token.data);
    h->token_from = from;
    return TERN_OK;
}

static enum tern_status token_find(struct pull_hub *h, struct tern_err *err) {
    const char *token = env_get("HF_TOKEN"), *path = env_get("HF_TOKEN_PATH"), *home = env_get("HF_HOME");
    char file[STORE_PATH_MAX];
    struct os_stat st;
    struct buf text;
    if (token) return token_set(h, str_trim(str_from(token)), "HF_TOKEN", err);
    if (path)
        snprintf(file, sizeof file, "%s", path);
    else if (home)
        snprintf(file, sizeof file, "%s/token", home);
    else
        os_user_dir(OS_USER_CACHE, "huggingface/token", file, sizeof file);
    if (!os_stat_get(&st, file)) return TERN_OK;
    buf_init(&text, PULL_TOKEN_MAX + 16);
    enum tern_status status = file_read_all(&text, file, err);
    struct str word = str_trim(buf_str(&text));
    if (status == TERN_OK && word.len > 0) status = token_set(h, word, path ? "HF_TOKEN_PATH" : "the token file", err);
    buf_release(&text);
    return status;
}

enum tern_status pull_hub_init(struct pull_hub *h, struct tern_err *err) {
    const char *endpoint = env_get("HF_ENDPOINT"), *offline = env_get("HF_HUB_OFFLINE");
    *h = (struct pull_hub){.n_tries = 5};
    if (offline && strcmp(offline, "0") != 0)
        return err_set(err, TERN_UNSUPPORTED, "HF_HUB_OFFLINE is set, so nothing is downloaded; unset it to pull");
    if (!endpoint) endpoint = "https://huggingface.co";
    struct str url = str_from(endpoint);
    while (url.len > 0 && url.data[url.len - 1] == '/') url.len--;
    if (pull_url_origin(url).len == 0 || url.len >= sizeof h->endpoint || str_find(url, STR("?"), 0) != (size_t)-1)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "HF_ENDPOINT is '%s'; expected http:// or https:// and a host, like https://huggingface.co",
                       endpoint);
    snprintf(h->endpoint, sizeof h->endpoint, "%.*s", (int)url.len, url.data);
    TRY(token_find(h, err));
    if (h->authorization[0] && str_starts(url, STR("http://")) && !is_this_machine(pull_url_origin(url))) {
        log_warn("the token of %s is not sent: HF_ENDPOINT (%s) is not https", h->token_from, h->endpoint);
        h->authorization[0] = 0;
    }
    return TERN_OK;
}

// ----------------------------------------------------------------------------------------------------------- requests

struct hop {
    const struct pull_get *g;
    struct pull_answer *answer;
    bool is_hub;
    int status;
};

static bool name_is(struct str name, const char *expected) { return store_name_eq(name, str_from(expected)); }

static bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool hop_header(void *arg, int status, struct str name, struct str value) {
    struct hop *h = arg;
    int64_t seconds;
    h->status = status;
    if (name_is(name, "retry-after") && str_to_i64(value, &seconds) && seconds >= 0)
        h->answer->retry_after_s = (double)MIN(seconds, 60);
    if (h->is_hub && name_is(name, "x-error-message"))
        snprintf(h->answer->said, sizeof h->answer->said, "%.*s", (int)MIN(value.len, (size_t)250), value.data);
    if (h->is_hub && h->g->on_hub_header && !h->g->on_hub_header(h->g->arg, name, value)) return false;
    if (is_redirect(status) || !h->g->on_header) return true;
    return h->g->on_header(h->g->arg, status, name, value);
}

static bool hop_data(void *arg, struct str piece) {
    struct hop *h = arg;
    return is_redirect(h->status) || h->g->on_data(h->g->arg, h->status, piece);
}

static enum tern_status hop_check(const char *from, const struct buf *to, struct tern_err *err) {
    struct str target = buf_str(to);
    if (to->failed || target.len == 0 || pull_url_origin(target).len == 0)
        return err_set(err, TERN_BAD_FORMAT, "%s: it redirects to nowhere that can be asked", from);
    if (str_starts(str_from(from), STR("https://")) && !str_starts(target, STR("https://")))
        return err_set(err, TERN_BAD_FORMAT, "%s: it redirects to plain http (%.*s), which is not followed", from,
                       (int)pull_url_origin(target).len, target.data);
    return TERN_OK;
}

// A storage's signed URL is long and nobody's business: host and reason are told.
static enum tern_status fault_shorten(const char *url, enum tern_status status, struct tern_err *err) {
    const struct str origin = pull_url_origin(str_from(url));
    const size_t n = strlen(url);
    if (status == TERN_OK || !err || strncmp(err->message, url, n) != 0) return status;
    char why[TERN_ERR_MESSAGE_MAX];
    snprintf(why, sizeof why, "%s", err->message + n);
    return err_set(err, status, "%.*s%s", (int)origin.len, origin.data, why);
}

enum tern_status pull_hub_get(const struct pull_hub *h, const struct pull_get *g, struct pull_answer *out,
                              struct tern_err *err) {
    char range[64];
    struct buf url, next;
    enum tern_status status = TERN_OK;
    buf_init(&url, 16384); // signed URLs of a storage are long
    buf_init(&next, 16384);
    buf_puts(&url, g->url);
    snprintf(range, sizeof range, "Range: bytes=%llu-", (unsigned long long)g->from);
    for (int n = 0;; n++) {
        const struct str origin = pull_url_origin(buf_str(&url)), home = pull_url_origin(str_from(h->endpoint));
        struct hop hop = {.g = g, .answer = out, .is_hub = str_eq(origin, home)};
        const char *headers[3] = {0};
        int n_headers = 0;
        if (g->from > 0) headers[n_headers++] = range;
        if (hop.is_hub && h->authorization[0]) headers[n_headers++] = h->authorization;
        const struct http_request r = {.url = url.data,
                                       .headers = headers,
                                       .is_remote = !is_this_machine(origin),
                                       .n_bytes_max = g->n_bytes_max,
                                       .connect_ms = 10000,
                                       .stall_s = PULL_STALL_S,
                                       .on_data = hop_data,
                                       .on_header = hop_header,
                                       .redirect = &next,
                                       .arg = &hop};
        *out = (struct pull_answer){0};
        buf_clear(&next);
        TRY_GOTO(fault_shorten(url.data, http_do(&r, &out->status, err), err), done);
        if (!is_redirect(out->status)) break;
        if (n == PULL_REDIRECTS_MAX) {
            status = err_set(err, TERN_LIMIT, "%s: over %d redirects", g->url, PULL_REDIRECTS_MAX);
            break;
        }
        TRY_GOTO(hop_check(url.data, &next, err), done);
        buf_clear(&url);
        buf_put(&url, next.data, next.len);
    }
done:
    buf_release(&url);
    buf_release(&next);
    return status;
}

#define WAIT_STEP_NS 200000000u // of a wait that may be ended

bool pull_hub_again(const struct pull_hub *h, int n, enum tern_status status, const struct pull_answer *a,
                    const struct tern_err *err) {
    const bool may_pass = status == TERN_IO || (status == TERN_OK && (a->status == 429 || a->status >= 500));
    if (!may_pass || n >= h->n_tries) return false;
    const double s = a->retry_after_s > 0 ? a->retry_after_s : 0.5 * (double)(1 << MIN(n - 1, 4));
    if (status == TERN_IO)
        fprintf(stderr, "tern pull: %s; again in %.1f s\n", err->message, s);
    else
        fprintf(stderr, "tern pull: HTTP status %d; again in %.1f s\n", a->status, s);
    const uint64_t until = clock_ns() + (uint64_t)(s * 1e9);
    for (uint64_t now = clock_ns(); now < until; now = clock_ns()) {
        if (h->go_on && !h->go_on(h->go_on_arg)) return false;
        clock_sleep_ns(MIN(until - now, WAIT_STEP_NS));
    }
    return true;
}

enum tern_status pull_answer_fault(const struct pull_hub *h, const struct pull_answer *a, const char *what,
                                   struct tern_err *err) {
    char said[300] = "";
    if (a->said[0]) snprintf(said, sizeof said, " (it says: %s)", a->said);
    switch (a->status) {
    case 401:
        if (!h->authorization[0])
            return err_set(err, TERN_NOT_FOUND,
                           "%s: %s answers 401%s: there is no such repository, or it is private or gated. Check the "
                           "name; for a private or gated one set HF_TOKEN to a token that may read it",
                           what, h->endpoint, said);
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "%s: %s answers 401%s: it does not take the token of %s. Make a new one (%s/settings/tokens)",
                       what, h->endpoint, said, h->token_from, h->endpoint);
    case 403:
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "%s: %s answers 403%s: this account may not read it. A gated model's terms are accepted on its "
                       "page, %s/%s; then pull again with HF_TOKEN set",
                       what, h->endpoint, said, h->endpoint, what);
    case 404:
        return err_set(err, TERN_NOT_FOUND, "%s: not found at %s%s; check the name and the revision", what, h->endpoint,
                       said);
    case 429:
        return err_set(err, TERN_AGAIN, "%s: %s answers 429%s: too many requests; try again later%s", what, h->endpoint,
                       said, h->authorization[0] ? "" : ", or set HF_TOKEN");
    default: return err_set(err, TERN_IO, "%s: %s answers with HTTP status %d%s", what, h->endpoint, a->status, said);
    }
}
