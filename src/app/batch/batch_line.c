// The lines of a batch: requests in, results out.
#include "base/base.h"
#include "batch.h"
#include "app/serve/serve.h"

#include <stdio.h>

// ------------------------------------------------------------------------------------------------------------ requests

static bool route_known(const char *url) {
    for (int i = 0; i < serve_n_routes; i++) {
        const struct serve_route *r = &serve_routes[i];
        if (strcmp(r->path, url) == 0 && strcmp(r->method, "POST") == 0 && strncmp(url, "/v1/", 4) == 0) return true;
    }
    return false;
}

static void digest_set(char out[BATCH_DIGEST_LEN + 1], const char *url, struct str body) {
    struct sha256 h;
    uint8_t digest[32];
    char hex[65];
    sha256_init(&h);
    sha256_update(&h, url, strlen(url) + 1);
    sha256_update(&h, body.data, body.len);
    sha256_final(&h, digest);
    sha256_hex(digest, hex);
    memcpy(out, hex, BATCH_DIGEST_LEN);
    out[BATCH_DIGEST_LEN] = 0;
}

// A string that is the next value, into out of cap bytes with its 0.
static enum tern_status text_take(struct json *j, char *out, size_t cap, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_STRING, &item, what, err));
    if (item.text.len == 0 || item.text.len >= cap)
        return err_set(err, TERN_LIMIT, "%s has %zu bytes; from 1 to %zu are allowed", what, item.text.len, cap - 1);
    if (memchr(item.text.data, 0, item.text.len)) return err_set(err, TERN_BAD_FORMAT, "%s holds a zero byte", what);
    memcpy(out, item.text.data, item.text.len);
    out[item.text.len] = 0;
    return TERN_OK;
}

// The body is an object, and asks for no stream.
static enum tern_status body_check(struct str body, struct tern_err *err) {
    const struct json_options o = {.depth_max = SERVE_JSON_DEPTH_MAX, .size_max = BATCH_LINE_BYTES_MAX};
    struct json *j;
    struct json_item item;
    TRY(json_create(&j, body, &o, err));
    enum tern_status status = json_expect(j, JSON_OBJECT, &item, "body", err);
    while (status == TERN_OK) {
        enum json_event e = json_next(j, &item, err);
        if (e == JSON_OBJECT_END) break;
        if (e == JSON_ERROR) status = TERN_BAD_FORMAT;
        bool stream = e == JSON_KEY && str_eqz(item.text, "stream");
        struct str raw;
        if (status == TERN_OK) status = json_raw(j, &raw, err);
        if (status == TERN_OK && stream && str_eqz(raw, "true"))
            status = err_set(err, TERN_UNSUPPORTED, "body.stream: a batch has no streams; leave it out");
    }
    json_free(j);
    return status;
}

static enum tern_status request_parse(struct batch_request *out, struct json *j, struct tern_err *err) {
    struct json_item item;
    char method[16] = "";
    TRY(json_expect(j, JSON_OBJECT, &item, "a request", err));
    for (;;) {
        enum json_event e = json_next(j, &item, err);
        if (e == JSON_OBJECT_END) break;
        if (e == JSON_ERROR) return TERN_BAD_FORMAT;
        if (str_eqz(item.text, "custom_id"))
            TRY(text_take(j, out->custom_id, sizeof out->custom_id, "custom_id", err));
        else if (str_eqz(item.text, "method"))
            TRY(text_take(j, method, sizeof method, "method", err));
        else if (str_eqz(item.text, "url"))
            TRY(text_take(j, out->url, sizeof out->url, "url", err));
        else if (str_eqz(item.text, "body"))
            TRY(json_raw(j, &out->body, err));
        else
            TRY(json_skip(j, err));
    }
    if (json_next(j, &item, err) != JSON_END) return TERN_BAD_FORMAT;
    const char *missing = !out->custom_id[0] ? "custom_id" : !out->url[0] ? "url" : !out->body.data ? "body" : NULL;
    if (missing) return err_set(err, TERN_BAD_FORMAT, "%s is missing", missing);
    if (strcmp(method, "POST") != 0)
        return err_set(err, TERN_BAD_FORMAT, "method must be \"POST\"%s%s", method[0] ? ", not " : "", method);
    if (!route_known(out->url))
        return err_set(err, TERN_NOT_FOUND, "no url '%s' for batches; /v1/chat/completions, /v1/completions, …",
                       out->url);
    return body_check(out->body, err);
}

enum tern_status batch_request_read(struct batch_request *out, struct str line, struct tern_err *err) {
    const struct json_options o = {
        .depth_max = SERVE_JSON_DEPTH_MAX + 2, .size_max = BATCH_LINE_BYTES_MAX, .dup_check = true};
    struct json *j;
    *out = (struct batch_request){0};
    TRY(json_create(&j, line, &o, err));
    enum tern_status status = request_parse(out, j, err);
    json_free(j);
    if (status == TERN_OK) digest_set(out->digest, out->url, out->body);
    return status;
}

// ------------------------------------------------------------------------------------------------------------- results

static void member_put(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_str(w, str_from(value));
}

void batch_result_put(struct buf *out, const char *custom_id, const char *digest, int status, const char *request_id,
                      struct str body) {
    struct json_writer w;
    char id[BATCH_DIGEST_LEN + 16];
    snprintf(id, sizeof id, "batch_req_%s", digest);
    json_write_init(&w, out);
    json_write_object(&w);
    member_put(&w, "id", id);
    member_put(&w, "custom_id", custom_id);
    json_write_key(&w, "response");
    json_write_object(&w);
    json_write_key(&w, "status_code");
    json_write_int(&w, status);
    member_put(&w, "request_id", request_id);
    json_write_key(&w, "body");
    size_t from = out->len;
    json_write_raw(&w, body);
    for (size_t i = from; i < out->len; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r') out->data[i] = ' '; // between tokens: JSON has none in texts
    json_write_object_end(&w);
    json_write_key(&w, "error");
    json_write_null(&w);
    json_write_object_end(&w);
    buf_putc(out, '\n');
}

void batch_failure_put(struct buf *out, const char *custom_id, const char *digest, const char *message) {
    struct serve_fault f = {0};
    struct buf body;
    buf_init(&body, 1u << 16);
    serve_fault_set(&f, 500, NULL, "internal", "%s", message);
    serve_fault_put(&body, &f, SERVE_OPENAI);
    char request_id[40];
    serve_id_make(request_id, sizeof request_id, "req_");
    batch_result_put(out, custom_id, digest, 500, request_id, buf_str(&body));
    buf_release(&body);
}

static enum tern_status status_take(struct json *j, int *out, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_OBJECT, &item, "response", err));
    for (;;) {
        enum json_event e = json_next(j, &item, err);
        if (e == JSON_OBJECT_END) return TERN_OK;
        if (e == JSON_ERROR) return TERN_BAD_FORMAT;
        if (!str_eqz(item.text, "status_code")) {
            TRY(json_skip(j, err));
            continue;
        }
        TRY(json_expect(j, JSON_NUMBER, &item, "status_code", err));
        *out = item.is_int && item.integer >= 100 && item.integer < 600 ? (int)item.integer : 0;
    }
}

static enum tern_status result_parse(struct batch_result *out, struct json *j, struct tern_err *err) {
    struct json_item item;
    char id[BATCH_DIGEST_LEN + 16] = "";
    TRY(json_expect(j, JSON_OBJECT, &item, "a result", err));
    for (;;) {
        enum json_event e = json_next(j, &item, err);
        if (e == JSON_OBJECT_END) break;
        if (e == JSON_ERROR) return TERN_BAD_FORMAT;
        if (str_eqz(item.text, "custom_id"))
            TRY(text_take(j, out->custom_id, sizeof out->custom_id, "custom_id", err));
        else if (str_eqz(item.text, "id"))
            TRY(text_take(j, id, sizeof id, "id", err));
        else if (str_eqz(item.text, "response"))
            TRY(status_take(j, &out->status, err));
        else
            TRY(json_skip(j, err));
    }
    if (strlen(id) != BATCH_DIGEST_LEN + 10 || strncmp(id, "batch_req_", 10) != 0 || !out->custom_id[0] ||
        out->status == 0)
        return err_set(err, TERN_BAD_FORMAT, "no result of tern batch: id, custom_id or status_code is missing");
    memcpy(out->digest, id + 10, BATCH_DIGEST_LEN + 1);
    return TERN_OK;
}

enum tern_status batch_result_read(struct batch_result *out, struct str line, struct tern_err *err) {
    const struct json_options o = {.depth_max = 4 * SERVE_JSON_DEPTH_MAX, .size_max = BATCH_LINE_BYTES_MAX};
    struct json *j;
    *out = (struct batch_result){0};
    TRY(json_create(&j, line, &o, err));
    enum tern_status status = result_parse(out, j, err);
    json_free(j);
    return status;
}
