// tern serve: options, opening in the order that lets /health answer while the model loads, and a clean end.
//
// The end: at the first SIGTERM or SIGINT no connection and no job is taken any more, what runs may end for --drain
// seconds; then its clients get an error event; a second signal cuts all at once.
#include "base/base.h"
#include "serve.h"

#include <stdio.h>

#define CUT_S 3.0 // for the error events after the drain's time
#define POLL_S 0.05
#define PREFIX_RAM_DEFAULT (256u << 20)
#define PREFIX_RAM_SHARE 8 // of the memory that is free, at most

static const char *const help_text =
    "Listens on 127.0.0.1 and answers OpenAI's API (/v1/chat/completions, /v1/completions, /v1/models, "
    "/v1/embeddings),\n"
    "/tokenize, /detokenize, /apply-template, /health, /metrics, /props, /slots; doc/server.md has a line for each.\n"
    "With several models a request's `model` chooses; the first is loaded at once, others when they are asked for. "
    "--memory\n"
    "bounds what all loaded ones may need; for room the one unused for longest goes.\n"
    "Each option is also a line `name = value` of a file (--config) and a variable TERN_SERVE_NAME.\n"
    "Sampling options are the defaults of requests that do not say; --max-tokens is a ceiling. Keys also come from\n"
    "$TERN_API_KEY.";

static void opts_init(struct serve *s) {
    struct serve_opts *o = &s->o;
    *o = (struct serve_opts){.host = "127.0.0.1",
                             .port = SERVE_PORT_DEFAULT,
                             .log = "text",
                             .n_streams = 4,
                             .n_queue = 512,
                             .n_connections = 1024,
                             .body_mib = 16,
                             .drain_s = 30,
                             .prefix_ram = MIN(PREFIX_RAM_DEFAULT, os_ram_available() / PREFIX_RAM_SHARE)};
    model_opts_init(&s->model);
    sample_opts_init(&s->sample);
}

#define SERVE_OPTS_N 31
static void opts_table(struct serve *s, struct opt table[SERVE_OPTS_N]) {
    struct serve_opts *o = &s->o;
    const struct opt rows[] = {
        {"--host", 0, "ADDRESS", OPT_TEXT, &o->host, 0, 0, "listen on this address (default 127.0.0.1)"},
        {"--port", 'p', "N", OPT_INT, &o->port, 0, 65535, "port (default 8376; 0: any free one, printed)"},
        {"--unix", 0, "PATH", OPT_TEXT, &o->unix_path, 0, 0, "a Unix socket as well, for this user"},
        {"--alias", 0, "NAME", OPT_TEXTS, &o->aliases, 0, 0, "another name of the model (may be repeated)"},
        {"--also", 0, "MODEL", OPT_TEXTS, &o->others, 0, 0,
         "another model, loaded when a request names it (may be repeated)"},
        {"--draft-for", 0, "NAME=MODEL", OPT_TEXTS, &o->draft_for, 0, 0,
         "draft model of a model beside the first (may be repeated)"},
        {"--idle", 0, "S", OPT_FLOAT, &o->idle_s, 0, SERVE_IDLE_S_MAX,
         "unload a model that nobody asked for so many seconds (default 0: never)"},
        {"--streams", 0, "N", OPT_INT, &o->n_streams, 1, TERN_STREAMS_MAX, "answers made together (default 4)"},
        {"--queue", 0, "N", OPT_INT, &o->n_queue, 1, TERN_QUEUE_MAX, "answers waiting at most (default 512), then 503"},
        {"--key-jobs", 0, "N", OPT_INT, &o->n_jobs_key, 0, TERN_QUEUE_MAX,
         "answers of one key at most, then 429 (default 0: no limit)"},
        {"--prompt-rows", 0, "N", OPT_INT, &o->prompt_rows, 0, 512,
         "prompt tokens beside running answers in a step (default: by measured costs)"},
        {"--prefix-ram", 0, "BYTES", OPT_U64, &o->prefix_ram, 0, 9e18,
         "bytes for prompts seen before (default 256 MiB; 0: none)"},
        {"--prefix-dir", 0, "PATH", OPT_TEXT, &o->prefix_dir, 0, 0,
         "a folder that keeps prompts seen before over a restart"},
        {"--prefix-disk", 0, "BYTES", OPT_U64, &o->prefix_disk, 0, 9e18,
         "bytes in that folder at most (default 4 GiB)"},
        {"--state-dir", 0, "PATH", OPT_TEXT, &o->state_dir, 0, 0,
         "a folder (made) for named states: POST /slots/{id}?action=save and restore"},
        {"--api-key", 0, "KEY", OPT_TEXTS, &o->api_keys, 0, 0, "a key that clients must send (may be repeated)"},
        {"--api-key-file", 0, "FILE", OPT_TEXT, &o->api_key_file, 0, 0, "keys, one a line"},
        {"--manage-models", 0, NULL, OPT_FLAG, &o->manage_models, 0, 0,
         "clients may download models from the hub and remove them (/api/pull, /api/delete)"},
        {"--allow-host", 0, "NAME", OPT_TEXTS, &o->allow_hosts, 0, 0, "a Host name by which this server is reached"},
        {"--allow-origin", 0, "ORIGIN", OPT_TEXTS, &o->allow_origins, 0, 0,
         "pages of this origin (https://host) may use the server"},
        {"--open-to-network", 0, NULL, OPT_FLAG, &o->open_to_network, 0, 0,
         "allow an address of the network without a key: anyone there may use the model"},
        {"--connections", 0, "N", OPT_INT, &o->n_connections, 1, 65536, "open connections at most (default 1024)"},
        {"--body-mib", 0, "N", OPT_INT, &o->body_mib, 1, 1024, "MiB of a request's body at most (default 16)"},
        {"--drain", 0, "S", OPT_FLOAT, &o->drain_s, 0, 3600,
         "seconds that running answers have at the end (default 30)"},
        {"--config", 0, "FILE", OPT_TEXT, &o->config, 0, 0,
         "settings (default: /etc/tern/serve.conf, then ~/.config/tern/serve.conf)"},
        {"--check", 0, NULL, OPT_FLAG, &o->check, 0, 0, "tell the settings as they would be used, and end"},
        {"--log", 0, "FORM", OPT_TEXT, &o->log, 0, 0, "a line for each request: text (default), json, none"},
        {0}};
    _Static_assert(ARRAY_LEN(rows) <= SERVE_OPTS_N, "a row more than the table holds");
    memcpy(table, rows, sizeof rows);
}

static bool host_is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 || strncmp(host, "127.", 4) == 0;
}

static int opts_check(const struct command *c, struct serve *s) {
    const char *const logs[] = {"text", "json", "none"};
    bool known = false;
    for (size_t i = 0; i < ARRAY_LEN(logs); i++) known = known || strcmp(s->o.log, logs[i]) == 0;
    if (!known) return usage_error(c, "--log wants text, json or none, not '%s'", s->o.log);
    if (!host_is_loopback(s->o.host) && s->n_keys == 0 && !s->o.open_to_network)
        return usage_error(c,
                           "%s is reached from the network: give --api-key, or --open-to-network when anyone there may "
                           "use the model",
                           s->o.host);
    if (!host_is_loopback(s->o.host)) s->o.open_to_network = true; // Host may be any literal address
    return 0;
}

// ------------------------------------------------------------------------------------------------------------- opening

static void started_tell(const struct serve *s) {
    bool v6 = strchr(s->o.host, ':') != NULL;
    out_putf("http://%s%s%s:%d\n", v6 ? "[" : "", s->o.host, v6 ? "]" : "", net_server_port(s->net));
    if (s->o.unix_path) out_putf("unix:%s\n", s->o.unix_path);
    out_flush();
}

static void decided_tell(const struct serve *s) {
    char weights[24], state[24], work[24], prefix[24];
    const struct tern_model_info *i = &s->models[0].info;
    fprintf(stderr, "model %s (%s, %s) on %s with %d threads, %s; %s\n", s->models[0].id, i->architecture, i->format,
            i->kernels, i->n_threads, i->numerics, i->draft ? i->draft : "no drafting");
    fprintf(stderr,
            "%d answers together of %d tokens each, %d in the queue; %s weights, at most %s state, %s work, %s prefix "
            "cache\n",
            s->o.n_streams, i->n_ctx, s->o.n_queue, bytes_format(i->bytes_weights, weights),
            bytes_format(i->bytes_state_max, state), bytes_format(i->bytes_work, work),
            bytes_format(s->o.prefix_ram, prefix));
    if (s->notes.len > 0) fputs(s->notes.data, stderr);
    if (net_server_port(s->net) > 0)
        fprintf(stderr, "to chat, open the address above in a browser; programs take it with /v1 as their base URL\n");
    fprintf(stderr, "%s; %s\n", s->n_keys ? "clients need a key" : "no key is needed",
            host_is_loopback(s->o.host) ? "only this machine can connect" : "reached from the network");
}

static int net_open_told(const struct command *c, struct serve *s) {
    struct net_options o;
    net_options_default(&o);
    o.host = s->o.host;
    o.port = s->o.port;
    o.unix_path = s->o.unix_path;
    o.n_connections_max = s->o.n_connections;
    o.body_max = (size_t)s->o.body_mib << 20;
    const struct net_handler handler = {.arg = s,
                                        .head = serve_gate_head,
                                        .handle = serve_gate_handle,
                                        .fault = serve_gate_fault,
                                        .end = serve_gate_end};
    struct tern_err err = {0};
    if (net_server_open(&s->net, &o, &handler, &err) == TERN_OK) return 0;
    const int code = fail_told(c, &err);
    if (strstr(err.message, "in use"))
        fprintf(stderr, "(is tern serving already? --port takes another port, 0 any free one)\n");
    return code;
}

// ------------------------------------------------------------------------------------------------------------- ending

// Waits until no request is at work; false: the time is over, or another signal came.
static bool idle_wait(struct serve *s, int *n_signals, double seconds) {
    uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        struct net_counts n;
        net_server_counts(s->net, &n);
        if (n.n_requests == 0) return true;
        if (clock_ns() >= until) return false;
        int now = net_terminate_wait(*n_signals, POLL_S);
        if (now > *n_signals) {
            *n_signals = now;
            return false;
        }
    }
}

static void drain(struct serve *s, int n_signals) {
    struct net_counts n;
    net_notify("STOPPING=1");
    net_server_counts(s->net, &n);
    if (strcmp(s->o.log, "none") != 0)
        fprintf(stderr, "stopping: %d requests at work, %.0f seconds for them\n", n.n_requests, (double)s->o.drain_s);
    serve_models_stop(s);
    net_server_quiesce(s->net);
    if (idle_wait(s, &n_signals, (double)s->o.drain_s)) return;
    mutex_lock(s->lock);
    for (struct serve_answer *a = s->answers; a; a = a->next)
        for (int i = 0; i < a->n_choices; i++) tern_job_cancel(a->choices[i].job);
    mutex_unlock(s->lock);
    if (n_signals < 2) idle_wait(s, &n_signals, CUT_S);
}

// The first model is opened when the address is known already; that it is not there is told before.
static int model_there(const struct command *c, const char *path) {
    struct buf storage;
    struct os_stat st;
    struct tern_err err = {0};
    int code = model_path_told(c, &path, &storage);
    if (code == 0 && path && !os_stat_get(&st, path)) {
        err_set(&err, TERN_NOT_FOUND, "%s: no such file or folder", path);
        code = fail_told(c, &err);
    }
    buf_release(&storage);
    return code;
}

static int serve_run(const struct command *c, struct serve *s, const struct opt *const *tables, char **args,
                     int n_args) {
    struct tern_err err = {0};
    s->lock = mutex_create();
    s->wake = cond_create();
    if (!s->lock || !s->wake) return err_set(&err, TERN_NO_MEMORY, "no memory to start"), fail_told(c, &err);
    if (serve_keys_load(s, &err) != TERN_OK) return fail_told(c, &err);
    int code = opts_check(c, s);
    if (code != 0) return code;
    if (s->o.check) {
        serve_config_tell(tables);
        return EXIT_DONE;
    }
    serve_model_id_set(s);
    code = model_there(c, s->model.engine.model_path);
    for (int i = 0; i < s->o.others.n && code == 0; i++) code = serve_model_add(c, s, s->o.others.items[i]);
    for (int i = 0; i < n_args && code == 0; i++) code = serve_model_add(c, s, args[i]);
    for (int i = 0; i < s->o.draft_for.n && code == 0; i++) code = serve_model_draft_set(c, s, s->o.draft_for.items[i]);
    if (code != 0) return code;
    snprintf(s->fingerprint, sizeof s->fingerprint, "tern-%.50s", tern_version());
    s->begin_s = clock_wall_s();
    s->begin_ns = clock_ns();
    net_terminate_watch();
    code = net_open_told(c, s);
    if (code != 0) return code;
    started_tell(s);
    code = serve_model_open(c, s);
    if (code == 0 && strcmp(s->o.log, "none") != 0) decided_tell(s);
    if (code == 0 && serve_models_start(s, &err) != TERN_OK) code = fail_told(c, &err);
    if (code != 0) return code;
    net_notify("READY=1");
    int n_signals = 0;
    while (n_signals == 0) n_signals = net_terminate_wait(0, 3600);
    drain(s, n_signals);
    return EXIT_DONE;
}

static int serve_main(const struct command *c, int argc, char **argv) {
    struct serve *s = mem_calloc(1, sizeof *s);
    struct tern_err err = {0};
    if (!s) return err_set(&err, TERN_NO_MEMORY, "no memory to start"), fail_told(c, &err);
    opts_init(s);
    buf_init(&s->notes, 65536);
    struct opt rows[SERVE_OPTS_N], model_rows[MODEL_OPTS_N], sample_rows[SAMPLE_OPTS_N];
    opts_table(s, rows);
    model_opts_table(&s->model, model_rows);
    sample_opts_table(&s->sample, sample_rows);
    const struct opt *const tables[] = {rows, sample_rows, model_rows, NULL};
    int n_args, code;
    code = serve_config_read(c, s, tables, argc, argv);
    if (code == 0 && opts_parse(c, tables, argc, argv, &n_args, &code)) {
        sample_opts_apply(&s->sample);
        code = serve_config_variables_check(c, s, tables);
        // The first model is --model, else the first argument.
        char **args = argv + 1;
        if (n_args > 0 && !s->model.engine.model_path && !s->model.engine.shape)
            s->model.engine.model_path = *args++, n_args--;
        if (code == 0) code = serve_run(c, s, tables, args, n_args);
    }
    net_server_close(s->net);
    serve_models_close(s);
    cond_free(s->wake);
    mutex_free(s->lock);
    for (int i = 0; i < s->n_configs; i++) buf_release(&s->configs[i]);
    buf_release(&s->notes);
    mem_free(s->keys);
    mem_free(s);
    return code;
}

const struct command command_serve = {"serve", "[MODEL…]", "answer over HTTP, as OpenAI's API does", help_text,
                                      serve_main};
