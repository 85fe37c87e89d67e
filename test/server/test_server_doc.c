// The routes of the program, of doc/server.md and of doc/openapi.json are the same, and each curl line of the document
// works as it stands.
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    const char *method, *path;
} routes[] = {
#define ROUTE(method, path, handler, family, flags) {method, path},
#include "../../src/app/serve/serve_routes.inc"
#undef ROUTE
};

static struct served server;
static struct buf document;
static char states[100];

static int setup(void **state) {
    (void)state;
    buf_init(&document, 1 << 20);
    if (file_read_all(&document, "doc/server.md", NULL) != TERN_OK) return 1;
    snprintf(states, sizeof states, "/tmp/tern_doc_states_%d", (int)getpid());
    server_start(&server, (const char *const[]){"-m", SCRIPT_MODEL, "--also", TEST_DATA "/hf/lfm2-encoder/model.gguf",
                                                "--state-dir", states, "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    char path[200];
    buf_release(&document);
    snprintf(path, sizeof path, "%s/all.story.state", states);
    unlink(path);
    rmdir(states);
    return server_stop(&server);
}

static void routes_are_documented(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        char heading[128];
        snprintf(heading, sizeof heading, "%s %s", routes[i].method, routes[i].path);
        bool found = false;
        for (const char *at = document.data; (at = strstr(at, heading)); at++) {
            const char *line = at;
            while (line > document.data && line[-1] != '\n') line--;
            char after = at[strlen(heading)];
            found = found || (strncmp(line, "### ", 4) == 0 && (after == '\n' || after == ','));
        }
        if (!found) fail_msg("doc/server.md has no heading with '%s'", heading);
    }
}

static void openapi_has_the_routes(void **state) {
    (void)state;
    struct answer_http a = http_get(&server, "/openapi.json", "");
    assert_int_equal(a.status, 200);
    json_t *j = answer_json(&a), *paths = json_object_get(j, "paths"), *item;
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        char method[16];
        size_t len = 0;
        for (const char *p = routes[i].method; *p; p++) method[len++] = (char)(*p | 0x20);
        method[len] = 0;
        if (!json_object_get(json_object_get(paths, routes[i].path), method))
            fail_msg("doc/openapi.json has no %s %s", routes[i].method, routes[i].path);
    }
    const char *path;
    json_object_foreach(paths, path, item) n += json_object_size(item);
    assert_int_equal(n, ARRAY_LEN(routes)); // and no others
    json_decref(j);
    answer_free(&a);
}

// Runs the line by the shell; its exit code and output.
static int line_run(const char *line, char *out, size_t cap) {
    char path[320], command[4096];
    snprintf(path, sizeof path, "%s/curl", server.folder);
    snprintf(command, sizeof command, "URL=http://127.0.0.1:%d; exec %s", server.port, line);
    struct os_child child;
    struct child_result r = {0};
    const char *const argv[] = {"sh", "-c", command, NULL};
    assert_int_equal(child_open(&child, &(struct child_options){.argv = argv, .out_path = path}, NULL), TERN_OK);
    assert_int_equal(child_wait(&child, 30000, &r, NULL), TERN_OK);
    struct buf b;
    buf_init(&b, 4 << 20);
    file_read_all(&b, path, NULL);
    snprintf(out, cap, "%s", b.data ? b.data : "");
    buf_release(&b);
    unlink(path);
    return r.code;
}

static void curl_lines_work(void **state) {
    (void)state;
    char out[2048];
    if (line_run("curl --version", out, sizeof out) != 0) skip();
    int n = 0;
    for (const char *at = document.data; (at = strstr(at, "\n    curl ")); at++) {
        const char *end = strchr(at + 1, '\n');
        char line[2048];
        snprintf(line, sizeof line, "%.*s", (int)(end - at - 5), at + 5);
        int code = line_run(line, out, sizeof out);
        if (code != 0 || out[0] == 0) fail_msg("exit %d of: %s\n%s", code, line, out);
        bool refused = strstr(line, "-sf") == NULL; // shown for its error
        const bool has_error = strstr(out, "\"error\"") && !strstr(out, "\"error\":null");
        if (refused != has_error) fail_msg("%s\n answered %s", line, out);
        n++;
    }
    assert_true(n >= 14);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(routes_are_documented),
                                       cmocka_unit_test(openapi_has_the_routes), cmocka_unit_test(curl_lines_work)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
