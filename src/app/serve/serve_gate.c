// What stands before every route, in one place and in this order, before any byte of a body is read: Host, Origin, key,
// route, method, content type. A browser page of another site fails on Host (rebound names) or Origin; nothing here
// looks at the model.
#include "base/base.h"
#include "serve.h"

#include <stdio.h>

#define ROUTE(method, path, handler, family, flags) {method, path, handler, family, flags},
const struct serve_route serve_routes[] = {
#include "serve_routes.inc"
};
#undef ROUTE
const int serve_n_routes = (int)ARRAY_LEN(serve_routes);

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
static bool str_eq_nocase(struct str a, struct str b) {
    if (a.len != b.len) return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower(a.data[i]) != lower(b.data[i])) return false;
    return true;
}

// -------------------------------------------------------------------------------------------------------- Host, Origin

// "name:port", "[::1]:port" without the port and the brackets.
static struct str host_name(struct str host) {
    if (host.len > 0 && host.data[0] == '[') {
        size_t end = str_find(host, STR("]"), 0);
        return end == (size_t)-1 ? host : (struct str){host.data + 1, end - 1};
    }
    size_t colon = str_find(host, STR(":"), 0);
    return colon == (size_t)-1 ? host : (struct str){host.data, colon};
}

// A literal address: a page that was reached by it has no name that could be bound to another one.
static bool is_address(struct str name) {
    bool v4 = name.len > 0, v6 = str_find(name, STR(":"), 0) != (size_t)-1;
    for (size_t i = 0; i < name.len; i++) {
        char c = lower(name.data[i]);
        bool digit = c >= '0' && c <= '9';
        if (!digit && c != '.') v4 = false;
        if (!digit && c != ':' && c != '.' && !(c >= 'a' && c <= 'f')) v6 = false;
    }
    return v4 || v6;
}

static bool is_loopback(struct str name) {
    return str_eq_nocase(name, STR("localhost")) || str_eqz(name, "::1") ||
           (is_address(name) && str_starts(name, STR("127.")));
}

static bool texts_have(const struct opt_texts *t, struct str s) {
    for (int i = 0; i < t->n; i++)
        if (str_eq_nocase(str_from(t->items[i]), s)) return true;
    return false;
}

static bool host_allowed(const struct serve *s, const struct net_request *r) {
    if (str_eqz(r->remote, "unix")) return true; // no browser reaches it
    struct str name = host_name(net_request_header(r, "Host"));
    if (name.len == 0) return false;
    if (is_loopback(name) || str_eq_nocase(name, str_from(s->o.host)) || texts_have(&s->o.allow_hosts, name))
        return true;
    return s->o.open_to_network && is_address(name);
}

// The origin of a page: ours, one of this machine, or a configured one (*configured).
static bool origin_allowed(const struct serve *s, const struct net_request *r, struct str origin, bool *configured) {
    *configured = texts_have(&s->o.allow_origins, origin);
    if (*configured) return true;
    struct str rest = origin;
    if (str_starts(origin, STR("http://")))
        rest = (struct str){origin.data + 7, origin.len - 7};
    else if (str_starts(origin, STR("https://")))
        rest = (struct str){origin.data + 8, origin.len - 8};
    else
        return false;
    return is_loopback(host_name(rest)) || str_eq_nocase(rest, net_request_header(r, "Host"));
}

// ------------------------------------------------------------------------------------------------------------- routes

// short_: without the /v1 of the route, which some clients leave out (their base URL is the server's address alone).
static bool path_fits(const struct serve_route *route, bool short_, struct str path, struct str *rest) {
    struct str pattern = str_from(route->path);
    if (short_ && !str_starts(pattern, STR("/v1/"))) return false;
    if (short_) pattern = (struct str){pattern.data + 3, pattern.len - 3};
    *rest = (struct str){0};
    if (!str_ends(pattern, STR("{id}"))) return str_eq(pattern, path);
    pattern.len -= 4;
    if (!str_starts(path, pattern) || path.len == pattern.len) return false;
    *rest = (struct str){path.data + pattern.len, path.len - pattern.len};
    return true;
}

static bool method_fits(const struct serve_route *route, struct str method) {
    return str_eqz(method, route->method) || (str_eqz(method, "HEAD") && strcmp(route->method, "GET") == 0);
}

// Does some route have the path as it stands?
static bool path_known(struct str path) {
    struct str rest;
    bool known = false;
    for (int i = 0; i < serve_n_routes; i++) known = known || path_fits(&serve_routes[i], false, path, &rest);
    return known;
}

// The methods of a path, for Allow: "GET, HEAD, OPTIONS"; "" when no route has the path. *any: one of its routes.
static void methods_put(struct str path, char out[96], const struct serve_route **any) {
    const bool short_ = !path_known(path);
    out[0] = 0;
    *any = NULL;
    size_t len = 0;
    for (int i = 0; i < serve_n_routes; i++) {
        struct str rest;
        const struct serve_route *route = &serve_routes[i];
        if (!path_fits(route, short_, path, &rest) || strstr(out, route->method)) continue;
        *any = route;
        bool get = strcmp(route->method, "GET") == 0;
        len += (size_t)snprintf(out + len, 96 - len, "%s%s", route->method, get ? ", HEAD, " : ", ");
        if (len > 64) break;
    }
    if (*any) snprintf(out + len, 96 - len, "OPTIONS");
}

#define PATH_MEANT_MAX 256 // longer ones have no slip in them

// The path that a client with a slip in its base URL meant: /v1 twice, a slash twice or at the end; empty: none is
// near. out: what is made anew lies there.
static struct str path_meant(struct str path, char out[PATH_MEANT_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < path.len && n < PATH_MEANT_MAX; i++)
        if (path.data[i] != '/' || i == 0 || path.data[i - 1] != '/') out[n++] = path.data[i];
    if (n < PATH_MEANT_MAX) path = (struct str){out, n};
    if (str_starts(path, STR("/v1/v1/"))) path = (struct str){path.data + 3, path.len - 3};
    while (path.len > 1 && path.data[path.len - 1] == '/') path.len--;
    return path_known(path) ? path : (struct str){0};
}

static void preflight_answer(struct serve *s, struct net_request *r, struct str origin, const char *methods) {
    (void)s;
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)MIN(origin.len, sizeof text - 1), origin.data);
    const struct net_header headers[] = {
        {"Access-Control-Allow-Origin", text},
        {"Access-Control-Allow-Methods", methods},
        {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, Anthropic-Version, Anthropic-Beta"},
        {"Access-Control-Max-Age", "600"},
        {"Vary", "Origin"}};
    net_answer(r, &(struct net_answer){.status = 204, .headers = headers, .n_headers = (int)ARRAY_LEN(headers)});
}

// --------------------------------------------------------------------------------------------------------- the checks

// Bearer or x-api-key.
static struct str key_given(const struct net_request *r) {
    struct str bearer = net_request_header(r, "Authorization");
    if (bearer.len > 7 && str_eq_nocase((struct str){bearer.data, 7}, STR("Bearer ")))
        return str_trim((struct str){bearer.data + 7, bearer.len - 7});
    return net_request_header(r, "X-Api-Key");
}

static bool origin_check(struct serve *s, struct net_request *r, struct serve_call *call) {
    struct str origin = net_request_header(r, "Origin");
    if (!origin.data) return true;
    bool configured = false;
    if (!origin_allowed(s, r, origin, &configured)) {
        serve_failf(r, 403, NULL, "origin_not_allowed",
                    "pages of this origin may not use the server; allow it with --allow-origin");
        return false;
    }
    if (configured && origin.len < sizeof call->origin) {
        call->cors = true;
        snprintf(call->origin, sizeof call->origin, "%.*s", (int)origin.len, origin.data);
    }
    return true;
}

static bool key_check(struct serve *s, struct net_request *r, struct serve_call *call) {
    if (s->n_keys == 0 || (call->route && (call->route->flags & SERVE_OPEN))) return true;
    struct str key = key_given(r);
    const char *tenant = serve_key_tenant(s, key);
    if (!tenant) {
        serve_failf(r, 401, NULL, "invalid_api_key", "%s",
                    key.len ? "the API key is not known here"
                            : "an API key is needed: Authorization: Bearer KEY, or X-Api-Key: KEY");
        return false;
    }
    memcpy(call->tenant, tenant, sizeof call->tenant);
    return true;
}

static bool type_check(struct net_request *r, const struct serve_call *call) {
    const struct str coding = str_trim(net_request_header(r, "Content-Encoding"));
    if (coding.len > 0 && !str_eq_nocase(coding, STR("identity"))) {
        serve_failf(r, 415, NULL, "unsupported_media_type",
                    "bodies are read as they are: send this one without the Content-Encoding '%.*s'",
                    (int)MIN(coding.len, SERVE_NAME_SHOWN_MAX), coding.data);
        return false;
    }
    if (strcmp(call->route->method, "POST") != 0 || net_request_body_length(r) == 0) return true;
    struct str type = net_request_header(r, "Content-Type");
    size_t semi = type.data ? str_find(type, STR(";"), 0) : (size_t)-1;
    if (semi != (size_t)-1) type.len = semi;
    if (str_eq_nocase(str_trim(type), STR("application/json"))) return true;
    bool browser = net_request_header(r, "Origin").data || net_request_header(r, "Sec-Fetch-Site").data;
    if ((call->route->flags & SERVE_ANY_TYPE) && !browser) return true;
    serve_failf(r, 415, NULL, "unsupported_media_type", "the body must be JSON: Content-Type: application/json");
    return false;
}

// Route and method; answers 404, 405, OPTIONS. False: answered.
static bool route_check(struct serve *s, struct net_request *r, struct serve_call *call) {
    char methods[96], path[80];
    const struct serve_route *any;
    methods_put(r->path, methods, &any);
    if (call->route) return true;
    if (str_eqz(r->method, "OPTIONS") && (any || str_eqz(r->path, "*"))) {
        if (call->cors && net_request_header(r, "Access-Control-Request-Method").data) {
            preflight_answer(s, r, net_request_header(r, "Origin"), methods);
            return false;
        }
        const struct net_header allow = {"Allow", any ? methods : "GET, HEAD, POST, OPTIONS"};
        net_answer(r, &(struct net_answer){.status = 204, .headers = &allow, .n_headers = 1});
        return false;
    }
    struct buf shown;
    buf_init(&shown, 512);
    str_put_escaped(&shown, r->path, SERVE_NAME_SHOWN_MAX);
    snprintf(path, sizeof path, "%.70s", shown.data ? shown.data : "");
    buf_release(&shown);
    if (!any) {
        char made[PATH_MEANT_MAX];
        const struct str meant = path_meant(r->path, made);
        if (meant.len > 0)
            serve_failf(r, 404, NULL, "unknown_route", "no route %s here; did you mean %.*s (see the base URL)?", path,
                        (int)meant.len, meant.data);
        else
            serve_failf(r, 404, NULL, "unknown_route", "no route %s here; /openapi.json lists them", path);
        return false;
    }
    struct serve_fault f = {0};
    serve_fault_set(&f, 405, NULL, "method_not_allowed", "%s answers %s only", path, methods);
    struct buf body;
    buf_init(&body, 4096);
    serve_fault_put(&body, &f, any->family);
    const struct net_header headers[] = {{"Allow", methods}, {"X-Request-Id", call->id}};
    snprintf(call->error, sizeof call->error, "%s", f.code);
    net_answer(
        r, &(struct net_answer){
               .status = 405, .type = "application/json", .body = buf_str(&body), .headers = headers, .n_headers = 2});
    buf_release(&body);
    return false;
}

void serve_gate_head(void *arg, struct net_request *r) {
    struct serve *s = arg;
    struct serve_call *call = mem_calloc(1, sizeof *call);
    if (!call) {
        net_answer(r, &(struct net_answer){.status = 503, .close = true});
        return;
    }
    r->user = call;
    call->n_prompt = -1;
    serve_id_make(call->id, sizeof call->id, "req_");
    const bool short_ = !path_known(r->path);
    for (int i = 0; i < serve_n_routes && !call->route; i++)
        if (path_fits(&serve_routes[i], short_, r->path, &call->rest) && method_fits(&serve_routes[i], r->method))
            call->route = &serve_routes[i];
    if (!host_allowed(s, r)) {
        serve_failf(r, 403, NULL, "host_not_allowed",
                    "this Host name is not this server's; allow it with --allow-host (a page may have rebound it)");
        return;
    }
    if (!origin_check(s, r, call) || !key_check(s, r, call) || !route_check(s, r, call) || !type_check(r, call)) return;
    if (strcmp(call->route->method, "GET") == 0) r->body_max = 0;
    // Quick and always there, however busy the workers are.
    if (call->route->handle == serve_health) serve_health(s, r);
}

void serve_gate_handle(void *arg, struct net_request *r) {
    struct serve *s = arg;
    const struct serve_call *call = serve_call_of(r);
    if (!(call->route->flags & SERVE_EARLY) && !serve_ready(s)) {
        struct serve_fault f = {.retry_s = 5};
        serve_fault_set(&f, 503, NULL, "model_loading", "the model is still loading; try again");
        serve_fail(r, &f);
        return;
    }
    // What is posted asks something of a model; what is got is told whatever is loaded.
    const bool names = (call->route->flags & SERVE_QUERY) && net_request_query(r, "model").data;
    if (names || (strcmp(call->route->method, "POST") == 0 && !(call->route->flags & SERVE_NO_MODEL)))
        serve_model_route(s, r);
    else
        call->route->handle(s, r);
}

void serve_gate_fault(void *arg, const struct net_request *r, int status, const char *message, struct buf *out,
                      const char **type) {
    (void)arg;
    const struct serve_call *call = r->user;
    struct serve_fault f = {0};
    const char *code = status == 408   ? "request_timeout"
                       : status == 413 ? "body_too_large"
                       : status == 431 ? "headers_too_large"
                       : status >= 500 ? "unavailable"
                                       : "bad_request";
    serve_fault_set(&f, status, NULL, code, "%s", message);
    serve_fault_put(out, &f, call && call->route ? call->route->family : SERVE_OPENAI);
    *type = "application/json";
}

void serve_gate_end(void *arg, struct net_request *r, const struct net_outcome *outcome) {
    struct serve *s = arg;
    mutex_lock(s->lock);
    if (outcome->status >= 100 && outcome->status < 600) s->n_by_class[outcome->status / 100]++;
    s->n_gone += outcome->gone;
    mutex_unlock(s->lock);
    serve_log_request(s, r, outcome);
    struct serve_call *call = r->user;
    if (call && call->model) serve_model_drop(s, call->model, true);
    mem_free(call);
}
