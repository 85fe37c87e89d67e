// The servers of a load test. Each is started with as many places as streams will come, drafts off, on a free port of
// this machine, and ended behind its measurement, so that the other one never shares memory or processors with it.
#include "base/base.h"
#include "bench_server.h"

#include <stdio.h>

#define START_SECONDS 120
#define POLL_NS 50000000u
#define ARGS_MAX 40
#define PROMPTS_RAM "536870912" // bytes for prompts seen before

static enum tern_status ready_wait(struct server_peer *p, struct tern_err *err) {
    const uint64_t end = clock_ns() + (uint64_t)START_SECONDS * 1000000000u;
    struct buf answer;
    double s;
    buf_init(&answer, SERVER_ANSWER_MAX);
    enum tern_status status = TERN_AGAIN;
    while (status != TERN_OK) {
        if (child_is_over(&p->child)) {
            status = err_set(err, TERN_IO, "%s ended before it was ready; what it said is in %s", p->name, p->out_path);
            break;
        }
        status = load_ask(p, "/health", (struct str){0}, &answer, &s, err);
        if (status == TERN_UNSUPPORTED) break; // no libcurl
        if (status != TERN_OK && clock_ns() > end) {
            status = err_set(err, TERN_IO, "%s was not ready within %d seconds", p->name, START_SECONDS);
            break;
        }
        if (status != TERN_OK) clock_sleep_ns(POLL_NS);
    }
    buf_release(&answer);
    return status;
}

enum tern_status server_peer_open(struct server_peer *p, const struct server_bench_opts *o, bool ours, int n_streams,
                                  int n_ctx, struct tern_err *err) {
    char exe[1024], port_text[16], threads[16], ctx[16], places[16];
    const char *argv[ARGS_MAX], *tmp = env_get("TMPDIR");
    int n = 0, port = http_port_free();
    *p = (struct server_peer){.name = ours ? "tern" : "llama-server", .is_ours = ours};
    if (port == 0) return err_set(err, TERN_IO, "no free port on 127.0.0.1");
    snprintf(p->url, sizeof p->url, "http://127.0.0.1:%d", port);
    snprintf(p->out_path, sizeof p->out_path, "%s/tern-bench-%d-%d.log", tmp ? tmp : "/tmp", os_pid(), port);
    snprintf(port_text, sizeof port_text, "%d", port);
    snprintf(threads, sizeof threads, "%d", o->n_threads);
    snprintf(places, sizeof places, "%d", n_streams);
    // llama-server's context is that of all places together.
    snprintf(ctx, sizeof ctx, "%d", ours ? n_ctx : n_ctx * n_streams);
    const char *const own[] = {os_exe_path(exe, sizeof exe),
                               "serve",
                               "--streams",
                               places,
                               "--log",
                               "none",
                               "--draft",
                               "off",
                               "--prefix-ram",
                               PROMPTS_RAM};
    const char *const theirs[] = {o->beside, "-np", places, "--no-webui"};
    const char *const both[] = {"-m", o->model_path, "--port", port_text, "-t", threads, "-c", ctx};
    for (size_t i = 0; ours && i < ARRAY_LEN(own); i++) argv[n++] = own[i];
    for (size_t i = 0; !ours && i < ARRAY_LEN(theirs); i++) argv[n++] = theirs[i];
    for (size_t i = 0; i < ARRAY_LEN(both); i++) argv[n++] = both[i];
    argv[n] = NULL;
    struct child_options co = {.argv = argv, .out_path = p->out_path, .err_path = p->out_path};
    TRY(child_open(&p->child, &co, err));
    return ready_wait(p, err);
}

void server_peer_close(struct server_peer *p) {
    if (p->child.pid <= 0) return;
    bool died = child_is_over(&p->child);
    child_signal_kill(&p->child);
    child_close(&p->child);
    if (!died) os_remove(p->out_path, NULL); // what a dead one said is kept
}
