// The engines that tern is compared with.
//
//   llama-server  started by us on a free port of this machine, asked through /completion with token ids
//   ollama        the one that runs, through /api/generate, raw; it tokenises the text itself
//   lmstudio      the one that runs, through the OpenAI form of /v1/completions
//
// Every prompt is read anew: llama-server is told not to keep it, the others are asked something else in between.
#include "base/base.h"
#include "compare.h"

#include <stdio.h>

#define START_SECONDS 300         // until a started engine must be ready
#define POLL_NS 20000000u         // between two questions whether it is
#define DEATH_WAIT_NS 1000000000u // how long a broken connection's engine is watched for its end
#define SMALL_ANSWER (1u << 20)
#define ARGS_MAX 40

static bool bytes_take(void *arg, struct str piece) { return buf_put(arg, piece.data, piece.len); }

// A small JSON answer into out; TERN_IO with the server's words for other codes than 200.
static enum tern_status get(const struct compare_engine *e, const char *path, struct str body, struct buf *out,
                            struct tern_err *err) {
    char url[HTTP_URL_MAX];
    int code;
    snprintf(url, sizeof url, "%s%s", e->base, path);
    buf_clear(out);
    struct http_request r = {.url = url, .body = body, .on_data = bytes_take, .arg = out, .stall_s = e->stall_s};
    TRY(http_do(&r, &code, err));
    if (code == 200) return TERN_OK;
    return err_set(err, TERN_IO, "%s: answered with HTTP %d: %.200s", url, code, out->data ? out->data : "");
}

// The first string or number of that key, wherever it stands; what is not there leaves out as it is.
static void value_find(struct str json, const char *key, char *text, size_t cap, double *number) {
    struct json *j;
    struct json_item item;
    if (json_create(&j, json, NULL, NULL) != TERN_OK) return;
    bool is_it = false;
    while (json_next(j, &item, NULL) != JSON_ERROR && item.event != JSON_END) {
        if (is_it && text && item.event == JSON_STRING) {
            snprintf(text, cap, "%.*s", (int)MIN(item.text.len, cap - 1), item.text.data);
            break;
        }
        if (is_it && number && item.event == JSON_NUMBER) {
            *number = item.number;
            break;
        }
        is_it = item.event == JSON_KEY && str_eqz(item.text, key);
    }
    json_free(j);
}

static enum tern_status stream_ask(struct compare_engine *e, const char *path, enum compare_dialect dialect,
                                   struct str body, struct compare_answer *out, struct tern_err *err) {
    char url[HTTP_URL_MAX];
    struct compare_stream s;
    int code = 0;
    snprintf(url, sizeof url, "%s%s", e->base, path);
    compare_stream_init(&s, dialect, out);
    struct http_request r = {.url = url, .body = body, .on_data = compare_stream_put, .arg = &s, .stall_s = e->stall_s};
    enum tern_status status = http_do(&r, &code, err);
    if (s.err.code != TERN_OK) { // its reason is the better one
        *err = s.err;
        status = s.err.code;
    } else if (status == TERN_OK) {
        status =
            code == 200 ? compare_stream_end(&s, err) : err_set(err, TERN_IO, "%s: answered with HTTP %d", url, code);
    }
    compare_stream_release(&s);
    return status;
}

// ------------------------------------------------------------------------------------------------- llama-server

// The last lines that the engine wrote.
static void log_tail(const struct compare_engine *e, char *out, size_t cap) {
    struct buf b;
    buf_init(&b, 16u << 20);
    out[0] = 0;
    if (e->log_path[0] && file_read_all(&b, e->log_path, NULL) == TERN_OK && b.len > 0) {
        struct str t = str_trim(buf_str(&b));
        const size_t n = MIN(t.len, cap - 1);
        memcpy(out, t.data + t.len - n, n);
        out[n] = 0;
        for (size_t i = 0; i < n; i++)
            if (out[i] == '\n') out[i] = ' ';
    }
    buf_release(&b);
}

static enum tern_status died(struct compare_engine *e, const char *when, struct tern_err *err) {
    char tail[300];
    struct child_result r = {0};
    log_tail(e, tail, sizeof tail);
    child_wait(&e->child, 1000, &r, NULL);
    return err_set(err, TERN_IO, "%s ended %s (exit code %d)%s%s", e->kind->name, when, r.code, tail[0] ? ": … " : "",
                   tail);
}

static enum tern_status ready_wait(struct compare_engine *e, struct tern_err *err) {
    const uint64_t end = clock_ns() + (uint64_t)START_SECONDS * 1000000000u;
    struct buf answer;
    struct tern_err why = {0};
    buf_init(&answer, SMALL_ANSWER);
    enum tern_status status = TERN_IO;
    while (status != TERN_OK) {
        if (child_is_over(&e->child)) {
            status = died(e, "before it was ready", err);
            break;
        }
        status = get(e, "/health", (struct str){0}, &answer, &why);
        if (status == TERN_UNSUPPORTED) { // no libcurl: waiting does not help
            *err = why;
            break;
        }
        if (status != TERN_OK && clock_ns() > end) {
            err_set(err, TERN_IO, "%s was not ready within %d seconds: %s", e->kind->name, START_SECONDS, why.message);
            break;
        }
        if (status != TERN_OK) clock_sleep_ns(POLL_NS);
    }
    buf_release(&answer);
    return status == TERN_OK ? TERN_OK : err->code;
}

static void command_tell(struct compare_engine *e, const char *const *argv) {
    size_t len = 0;
    for (int i = 0; argv[i] && len < sizeof e->command; i++)
        len += (size_t)snprintf(e->command + len, sizeof e->command - len, "%s%s", i ? " " : "",
                                compare_path_tail(argv[i]));
}

static enum tern_status llama_open(struct compare_engine *e, struct tern_err *err) {
    const int port = http_port_free();
    char port_text[16], threads[16], ctx[16];
    const char *argv[ARGS_MAX], *tmp = env_get("TMPDIR");
    int n = 0;
    if (port == 0) return err_set(err, TERN_IO, "no free port on 127.0.0.1");
    snprintf(port_text, sizeof port_text, "%d", port);
    snprintf(threads, sizeof threads, "%d", e->n_threads);
    snprintf(ctx, sizeof ctx, "%d", e->n_ctx);
    snprintf(e->base, sizeof e->base, "http://127.0.0.1:%d", port);
    uint64_t salt;
    os_random(&salt, sizeof salt);
    snprintf(e->log_path, sizeof e->log_path, "%s/tern-compare-%d-%08llx.log", tmp ? tmp : "/tmp", os_pid(),
             (unsigned long long)salt);
    const char *const usual[] = {e->exe ? e->exe : "llama-server",
                                 "-m",
                                 e->model_path,
                                 "--host",
                                 "127.0.0.1",
                                 "--port",
                                 port_text,
                                 "-t",
                                 threads,
                                 "-c",
                                 ctx,
                                 "-np",
                                 "1"};
    for (size_t i = 0; i < ARRAY_LEN(usual); i++) argv[n++] = usual[i];
    for (int i = 0; i < e->n_args && n + 1 < ARGS_MAX; i++) argv[n++] = e->args[i];
    argv[n] = NULL;
    command_tell(e, argv);
    struct child_options o = {.argv = argv, .out_path = e->log_path, .err_path = e->log_path};
    if (child_open(&e->child, &o, err) != TERN_OK)
        return err_prefix(err, "%s (give its place with --engine-path)", argv[0]);
    TRY(ready_wait(e, err));
    struct buf props;
    buf_init(&props, SMALL_ANSWER);
    if (get(e, "/props", (struct str){0}, &props, NULL) == TERN_OK)
        value_find(buf_str(&props), "build_info", e->version, sizeof e->version, NULL);
    buf_release(&props);
    return TERN_OK;
}

static enum tern_status llama_ask(struct compare_engine *e, const struct compare_prompt *p, struct compare_answer *out,
                                  struct tern_err *err) {
    struct buf b;
    buf_init(&b, COMPARE_TEXT_MAX * 16);
    buf_puts(&b, "{\"prompt\":[");
    for (int i = 0; i < p->n_ids; i++) buf_putf(&b, "%s%d", i ? "," : "", p->ids[i]);
    buf_putf(
        &b,
        "],\"n_predict\":%d,\"temperature\":0,\"top_k\":1,\"repeat_penalty\":1,\"cache_prompt\":false,\"stream\":true}",
        e->n_max);
    enum tern_status status = b.failed ? err_set(err, TERN_NO_MEMORY, "no memory for a request")
                                       : stream_ask(e, "/completion", DIALECT_LLAMA_SERVER, buf_str(&b), out, err);
    buf_release(&b);
    if (status == TERN_OK) return status;
    // Its connection may break before its end is seen.
    for (uint64_t until = clock_ns() + DEATH_WAIT_NS; !child_is_over(&e->child) && clock_ns() < until;)
        clock_sleep_ns(POLL_NS);
    return child_is_over(&e->child) ? died(e, "while it answered", err) : status;
}

// ------------------------------------------------------------------------------------------------- running servers

static enum tern_status server_find(struct compare_engine *e, const char *url, const char *path, struct buf *answer,
                                    struct tern_err *err) {
    struct str base = str_from(e->url ? e->url : url);
    while (base.len > 0 && base.data[base.len - 1] == '/') base.len--;
    if (base.len >= sizeof e->base)
        return err_set(err, TERN_LIMIT, "the address is longer than %zu bytes", sizeof e->base);
    snprintf(e->base, sizeof e->base, "%.*s", (int)base.len, base.data);
    enum tern_status status = get(e, path, (struct str){0}, answer, err);
    if (status == TERN_IO)
        err_prefix(err, "%s does not answer (is it running? --url names another address)", e->kind->title);
    return status;
}

static enum tern_status ollama_open(struct compare_engine *e, struct tern_err *err) {
    struct buf b;
    buf_init(&b, SMALL_ANSWER);
    const char *host = env_get("OLLAMA_HOST");
    char url[512];
    const bool has_scheme = host && str_find(str_from(host), STR("://"), 0) != (size_t)-1;
    snprintf(url, sizeof url, "%s%s", has_scheme ? "" : "http://", host ? host : "127.0.0.1:11434");
    enum tern_status status = server_find(e, url, "/api/version", &b, err);
    if (status == TERN_OK) value_find(buf_str(&b), "version", e->version, sizeof e->version, NULL);
    buf_release(&b);
    if (status == TERN_OK && !e->model_name)
        status =
            err_set(err, TERN_INVALID_ARGUMENT,
                    "Ollama runs the models of its own store: name one of them (`tern list`), or give Ollama's name "
                    "for this file with --engine-model");
    if (status == TERN_OK) snprintf(e->model, sizeof e->model, "%s", e->model_name);
    e->rss_note = "as Ollama reports it for the model (/api/ps)";
    return status;
}

static void quoted_put(struct buf *b, const char *key, struct str v) {
    buf_putf(b, "\"%s\":", key);
    json_put_quoted(b, v);
}

// An open object with what both ask for; released by the caller.
static void request_begin(struct buf *b, const struct compare_engine *e, struct str prompt) {
    buf_init(b, COMPARE_TEXT_MAX * 16);
    buf_putc(b, '{');
    quoted_put(b, "model", str_from(e->model));
    buf_putc(b, ',');
    quoted_put(b, "prompt", prompt);
}

static enum tern_status ollama_generate(struct compare_engine *e, struct str prompt, int n_max,
                                        struct compare_answer *out, struct tern_err *err) {
    struct buf b;
    request_begin(&b, e, prompt);
    buf_putf(&b,
             ",\"raw\":true,\"stream\":true,\"options\":{\"temperature\":0,\"top_k\":1,\"repeat_penalty\":1,\"seed\":0,"
             "\"num_predict\":%d,\"num_ctx\":%d,\"num_thread\":%d}}",
             n_max, e->n_ctx, e->n_threads);
    enum tern_status status = b.failed ? err_set(err, TERN_NO_MEMORY, "no memory for a request")
                                       : stream_ask(e, "/api/generate", DIALECT_OLLAMA, buf_str(&b), out, err);
    buf_release(&b);
    return status;
}

static enum tern_status ollama_ask(struct compare_engine *e, const struct compare_prompt *p, struct compare_answer *out,
                                   struct tern_err *err) {
    struct compare_answer other;
    compare_answer_init(&other);
    enum tern_status status = ollama_generate(e, STR("0"), 1, &other, err); // so that it forgets the last prompt
    compare_answer_release(&other);
    TRY(status);
    TRY(ollama_generate(e, p->text, e->n_max, out, err));
    struct buf ps;
    double size = 0;
    buf_init(&ps, SMALL_ANSWER);
    if (get(e, "/api/ps", (struct str){0}, &ps, NULL) == TERN_OK) value_find(buf_str(&ps), "size", NULL, 0, &size);
    buf_release(&ps);
    if (size > 0 && size < 1e15) e->rss_max = MAX(e->rss_max, (uint64_t)size);
    return TERN_OK;
}

static enum tern_status lmstudio_open(struct compare_engine *e, struct tern_err *err) {
    struct buf b;
    buf_init(&b, SMALL_ANSWER);
    enum tern_status status = server_find(e, "http://127.0.0.1:1234", "/v1/models", &b, err);
    if (status == TERN_OK && e->model_name) snprintf(e->model, sizeof e->model, "%s", e->model_name);
    if (status == TERN_OK && !e->model_name) {
        value_find(buf_str(&b), "id", e->model, sizeof e->model, NULL);
        if (!e->model[0])
            status = err_set(err, TERN_NOT_FOUND,
                             "LM Studio has no model loaded: load this file there, or name it with "
                             "--engine-model");
    }
    buf_release(&b);
    e->rss_note = "LM Studio does not tell";
    return status;
}

static enum tern_status lmstudio_complete(struct compare_engine *e, struct str prompt, int n_max,
                                          struct compare_answer *out, struct tern_err *err) {
    struct buf b;
    request_begin(&b, e, prompt);
    buf_putf(&b, ",\"max_tokens\":%d,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
             n_max);
    enum tern_status status = b.failed ? err_set(err, TERN_NO_MEMORY, "no memory for a request")
                                       : stream_ask(e, "/v1/completions", DIALECT_OPENAI, buf_str(&b), out, err);
    buf_release(&b);
    return status;
}

static enum tern_status lmstudio_ask(struct compare_engine *e, const struct compare_prompt *p,
                                     struct compare_answer *out, struct tern_err *err) {
    struct compare_answer other;
    compare_answer_init(&other);
    enum tern_status status = lmstudio_complete(e, STR("0"), 1, &other, err);
    compare_answer_release(&other);
    TRY(status);
    return lmstudio_complete(e, p->text, e->n_max, out, err);
}

// ------------------------------------------------------------------------------------------------- all

static const struct compare_engine_kind kinds[] = {
    {"llama-server", "llama-server", true, llama_open, llama_ask},
    {"ollama", "Ollama", false, ollama_open, ollama_ask},
    {"lmstudio", "LM Studio", false, lmstudio_open, lmstudio_ask},
};

const struct compare_engine_kind *compare_engine_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

enum tern_status compare_engine_open(struct compare_engine *e, struct tern_err *err) { return e->kind->open(e, err); }

enum tern_status compare_engine_ask(struct compare_engine *e, const struct compare_prompt *p,
                                    struct compare_answer *out, struct tern_err *err) {
    enum tern_status status = e->kind->ask(e, p, out, err);
    if (status != TERN_OK) err_prefix(err, "%s, prompt '%s'", e->kind->title, p->name);
    return status;
}

void compare_engine_close(struct compare_engine *e) {
    struct child_result r = {0};
    if (e->child.pid > 0) {
        child_signal_kill(&e->child);
        if (child_wait(&e->child, 5000, &r, NULL) == TERN_OK) e->rss_max = r.rss_max;
        child_close(&e->child);
    }
    if (e->log_path[0]) os_remove(e->log_path, NULL);
    e->log_path[0] = 0;
}
