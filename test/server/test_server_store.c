// Ollama's /api/pull and /api/delete against a hub of ours ($HUB): off unless the operator says so, progress as Ollama
// tells it, the model served under its name afterwards and gone when it was removed; digests in /api/tags.
#define _GNU_SOURCE 1 // mkdtemp
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMIT "1111111111111111111111111111111111111111"

static char folder[200], digest[65];
static struct served server;
static struct os_child hub;
static bool has_curl_library;

static void file_put(const char *path, struct str text) {
    char whole[400];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    char *slash = strrchr(whole, '/');
    *slash = 0;
    assert_int_equal(os_mkdirs(whole, NULL), TERN_OK);
    *slash = '/';
    FILE *f = fopen(whole, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text.data, 1, text.len, f), text.len);
    fclose(f);
}

static void hub_mode(const char *text) { file_put("hub/mode", str_from(text)); }

static void hub_start(void) {
    char root[300], out[300];
    const char *program = getenv("HUB");
    struct buf model, port;
    struct sha256 sha;
    uint8_t bytes[32];
    char listing[600];
    assert_non_null(program);
    buf_init(&model, 64 << 20);
    assert_int_equal(file_read_all(&model, SCRIPT_MODEL, NULL), TERN_OK);
    sha256_init(&sha);
    sha256_update(&sha, model.data, model.len);
    sha256_final(&sha, bytes);
    sha256_hex(bytes, digest);
    file_put("hub/acme/Tiny-GGUF/resolve/" COMMIT "/Tiny-Q4_0.gguf", buf_str(&model));
    snprintf(listing, sizeof listing,
             "{\"id\":\"acme/Tiny-GGUF\",\"sha\":\"" COMMIT
             "\",\"siblings\":[{\"rfilename\":\"Tiny-Q4_0.gguf\",\"size\":%zu,"
             "\"blobId\":\"%040d\",\"lfs\":{\"sha256\":\"%s\",\"size\":%zu,\"pointerSize\":130}}]}",
             model.len, 7, digest, model.len);
    file_put("hub/api/models/acme/Tiny-GGUF/revision/main", str_from(listing));
    buf_release(&model);
    hub_mode("ok");
    snprintf(root, sizeof root, "%s/hub", folder);
    snprintf(out, sizeof out, "%s/port", folder);
    const char *const argv[] = {program, root, NULL};
    assert_int_equal(child_open(&hub, &(struct child_options){.argv = argv, .out_path = out}, NULL), TERN_OK);
    buf_init(&port, 100);
    for (int i = 0; i < 500 && !(port.len > 1 && port.data[port.len - 1] == '\n'); i++) {
        clock_sleep_ns(10000000);
        buf_clear(&port);
        file_read_all(&port, out, NULL);
    }
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", atoi(port.data ? port.data : "0"));
    buf_release(&port);
    setenv("HF_ENDPOINT", endpoint, 1);
}

static int setup(void **state) {
    (void)state;
    static const char *const names[] = {"XDG_CACHE_HOME", "HF_HOME",       "HF_HUB_CACHE",   "HUGGINGFACE_HUB_CACHE",
                                        "HF_TOKEN",       "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "OLLAMA_MODELS"};
    snprintf(folder, sizeof folder, "%s/tern_store_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) unsetenv(names[i]);
    setenv("HOME", folder, 1);
    hub_start();
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--manage-models", "--prefix-ram", "8388608",
                                                "--ctx", "512", "--log", "none", NULL});
    struct answer_http a = http_post(&server, "/api/pull", "{\"model\": \"acme/none\", \"stream\": false}", "");
    has_curl_library = !strstr(a.body, "libcurl");
    answer_free(&a);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    const int code = server_stop(&server);
    struct child_result r;
    child_signal_kill(&hub);
    child_wait(&hub, 5000, &r, NULL);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) || code;
}

static struct answer_http http_delete(const char *path, const char *body) {
    int fd = client_connect(&server);
    client_sendf(fd,
                 "DELETE %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 path, server.port, strlen(body), body);
    struct answer_http a = client_read(fd, false);
    client_close(fd);
    return a;
}

struct pull_lines {
    int n, n_manifest, n_pulling, n_success, n_error;
    int64_t total, completed;
    char digest[100], last[64];
};
static void progress_take(void *arg, json_t *j, const char *event) {
    struct pull_lines *p = arg;
    (void)event;
    const char *status = json_text_at(j, "status");
    p->n++;
    assert_int_equal(p->n_error + p->n_success, 0); // the last line
    p->n_error += json_is_string(json_object_get(j, "error"));
    p->n_success += strcmp(status, "success") == 0;
    p->n_manifest += strcmp(status, "pulling manifest") == 0;
    if (strncmp(status, "pulling ", 8) == 0 && json_object_get(j, "digest")) {
        p->n_pulling++;
        snprintf(p->digest, sizeof p->digest, "%s", json_text_at(j, "digest"));
        p->total = json_integer_value(json_object_get(j, "total"));
        assert_true(json_integer_value(json_object_get(j, "completed")) >= p->completed);
        p->completed = json_integer_value(json_object_get(j, "completed"));
    }
}

static bool served_has(const char *name, const char *wanted_digest) {
    struct answer_http a = http_get(&server, "/api/tags", "");
    json_t *j = answer_json(&a), *m;
    size_t i;
    bool found = false;
    json_array_foreach(json_object_get(j, "models"), i, m) {
        if (strcmp(json_text_at(m, "name"), name) != 0) continue;
        found = true;
        if (wanted_digest) assert_string_equal(json_text_at(m, "digest"), wanted_digest);
    }
    json_decref(j);
    answer_free(&a);
    return found;
}

static void pulled_and_removed(void **state) {
    (void)state;
    if (!has_curl_library) skip();
    for (int round = 0; round < 2; round++) {
        hub_mode(round == 0 ? "slow" : "ok");
        char head[512], wanted[100];
        struct pull_lines p = {0};
        struct answer_http a = http_post(&server, "/api/pull", "{\"model\": \"hf.co/acme/Tiny-GGUF\"}", "");
        assert_string_equal(answer_header(&a, "Content-Type", head), "application/x-ndjson");
        stream_each(&a, progress_take, &p);
        if (p.n_success != 1) fail_msg("%s", a.body);
        assert_int_equal(p.n_manifest, 1);
        assert_true(p.n_pulling >= (round == 0 ? 3 : 1)); // of a slow hub some on the way
        assert_true(p.completed == p.total && p.total > 100000);
        snprintf(wanted, sizeof wanted, "sha256:%s", digest);
        assert_string_equal(p.digest, wanted);
        answer_free(&a);
        assert_true(served_has("acme/Tiny-GGUF:Q4_0", digest));
        // It answers, by each of its names.
        static const char *const names[] = {"acme/Tiny-GGUF:Q4_0", "acme/Tiny-GGUF", "acme/Tiny-GGUF:latest",
                                            "hf.co/acme/Tiny-GGUF:Q4_0"};
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            char extra[200];
            snprintf(extra, sizeof extra, ", \"model\": \"%s\"", names[i]);
            a = chat_ask(&server, "s01", extra);
            if (a.status != 200) fail_msg("%s: %s", names[i], a.body);
            json_t *j = answer_json(&a);
            assert_string_equal(json_text_at(message_of(j), "content"), script_text("s01"));
            assert_string_equal(json_text_at(j, "model"), names[0]);
            json_decref(j);
            answer_free(&a);
        }
        a = http_delete("/api/delete", "{\"model\": \"acme/Tiny-GGUF:Q4_0\"}");
        if (a.status != 200) fail_msg("%d %s", a.status, a.body);
        answer_free(&a);
        assert_false(served_has("acme/Tiny-GGUF:Q4_0", NULL));
        a = chat_ask(&server, "s01", ", \"model\": \"acme/Tiny-GGUF:Q4_0\"");
        assert_int_equal(a.status, 404);
        answer_free(&a);
        char blob[400];
        struct os_stat st;
        snprintf(blob, sizeof blob, "%s/.cache/huggingface/hub/models--acme--Tiny-GGUF/blobs/%s", folder, digest);
        assert_false(os_stat_get(&st, blob));
    }
}

// Whole: one object at the end. A failure is an error with its status, streamed as a line.
static void whole_and_failed(void **state) {
    (void)state;
    if (!has_curl_library) skip();
    hub_mode("ok");
    struct answer_http a =
        http_post(&server, "/api/pull", "{\"name\": \"acme/Tiny-GGUF:Q4_0\", \"stream\": false}", "");
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, "{\"status\":\"success\"}");
    answer_free(&a);
    a = http_post(&server, "/api/pull", "{\"model\": \"acme/none\", \"stream\": false}", "");
    assert_int_equal(a.status, 404);
    assert_non_null(strstr(a.body, "\"error\":\""));
    assert_null(strstr(a.body, folder));
    answer_free(&a);
    struct pull_lines p = {0};
    a = http_post(&server, "/api/pull", "{\"model\": \"acme/Tiny-GGUF:Q8_0\"}", "");
    stream_each(&a, progress_take, &p);
    assert_int_equal(p.n_error, 1);
    assert_int_equal(p.n_success, 0);
    answer_free(&a);
}

// A client that leaves ends the download; what came stays, and the next one goes on with it.
static void left_and_gone_on(void **state) {
    (void)state;
    if (!has_curl_library) skip();
    struct answer_http a = http_delete("/api/delete", "{\"model\": \"acme/Tiny-GGUF:Q4_0\"}");
    answer_free(&a);
    hub_mode("slow");
    static const char body[] = "{\"model\": \"acme/Tiny-GGUF\"}";
    int fd = client_connect(&server);
    client_sendf(fd,
                 "POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                 "%zu\r\n\r\n%s",
                 strlen(body), body);
    char part[400];
    struct os_stat st;
    snprintf(part, sizeof part, "%s/.cache/huggingface/hub/models--acme--Tiny-GGUF/blobs/%s.incomplete", folder,
             digest);
    for (int i = 0; i < 1000 && !(os_stat_get(&st, part) && st.size > 8192); i++) clock_sleep_ns(5000000);
    // Meanwhile another one is told to come again.
    a = http_post(&server, "/api/pull", "{\"model\": \"acme/none\"}", "");
    assert_int_equal(a.status, 503);
    char retry[512];
    assert_non_null(answer_header(&a, "Retry-After", retry));
    answer_free(&a);
    client_close(fd);
    hub_mode("ok");
    for (int i = 0;; i++) { // as soon as the first one has noticed
        a = http_post(&server, "/api/pull", "{\"model\": \"acme/Tiny-GGUF\", \"stream\": false}", "");
        if (a.status == 200) break;
        if (i == 200 || a.status != 503) fail_msg("%d %s", a.status, a.body);
        answer_free(&a);
        clock_sleep_ns(50000000);
    }
    answer_free(&a);
    assert_true(served_has("acme/Tiny-GGUF:Q4_0", digest));
    assert_false(os_stat_get(&st, part));
}

static void what_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int status;
    } pulls[] = {{"{}", 400},
                 {"{\"model\": \"llama3.2\"}", 400},
                 {"{\"model\": \"../..\"}", 400},
                 {"{\"model\": 5}", 400},
                 {"{\"model\": \"a/b\", \"stream\": \"yes\"}", 400}},
      deletes[] = {{"{}", 400}, {"{\"model\": \"script-lfm2\"}", 400}, {"{\"model\": \"acme/never\"}", 404}};
    for (size_t i = 0; i < ARRAY_LEN(pulls); i++) {
        struct answer_http a = http_post(&server, "/api/pull", pulls[i].body, "");
        if (a.status != pulls[i].status) fail_msg("%s: %d %s", pulls[i].body, a.status, a.body);
        answer_free(&a);
    }
    for (size_t i = 0; i < ARRAY_LEN(deletes); i++) {
        struct answer_http a = http_delete("/api/delete", deletes[i].body);
        if (a.status != deletes[i].status) fail_msg("%s: %d %s", deletes[i].body, a.status, a.body);
        answer_free(&a);
    }
    // Not at all without --manage-models; nothing is asked of the hub then.
    struct served s;
    char log[300];
    struct os_stat before, after;
    snprintf(log, sizeof log, "%s/hub/log", folder);
    server_start(&s, (const char *const[]){"-m", SCRIPT_MODEL, "--log", "none", NULL});
    const bool was = os_stat_get(&before, log);
    struct answer_http a = http_post(&s, "/api/pull", "{\"model\": \"acme/Tiny-GGUF\"}", "");
    assert_int_equal(a.status, 403);
    assert_non_null(strstr(a.body, "--manage-models"));
    answer_free(&a);
    assert_int_equal(os_stat_get(&after, log), was);
    if (was) assert_int_equal(before.size, after.size);
    assert_int_equal(server_stop(&s), 0);
}

// The first model's file is named by nobody: its digest is computed beside, and told once it is known.
static void digests(void **state) {
    (void)state;
    for (int i = 0;; i++) {
        struct answer_http a = http_get(&server, "/api/tags", "");
        json_t *j = answer_json(&a);
        const bool known = strcmp(json_text_at(j, "models.0.digest"), digest) == 0;
        if (!known) assert_null(json_at(j, "models.0.digest")); // no other
        json_decref(j);
        answer_free(&a);
        if (known) break;
        assert_true(i < 500);
        clock_sleep_ns(20000000);
    }
    struct answer_http a = http_get(&server, "/api/ps", "");
    json_t *j = answer_json(&a);
    assert_string_equal(json_text_at(j, "models.0.digest"), digest);
    json_decref(j);
    answer_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pulled_and_removed), cmocka_unit_test(whole_and_failed),
                                       cmocka_unit_test(left_and_gone_on), cmocka_unit_test(what_is_refused),
                                       cmocka_unit_test(digests)};
    return cmocka_run_group_tests_name("store", tests, setup, teardown);
}
