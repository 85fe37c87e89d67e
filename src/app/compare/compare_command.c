// tern compare: the same prompts, as the same tokens, to ours and to an engine that the user has, turn by turn.
//
// Order: one answer of each that is not counted; then per repetition and prompt ours and theirs, the order turned every
// other time (ABBA), so that a drift of the machine meets both. While one answers the other is idle: threads sleep.
#include "base/base.h"
#include "compare.h"
#include "app/store/store.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_REPEATS 5
#define DEFAULT_TOKENS 64
#define PROMPT_NAME_MAX 40

// Questions of the kinds that people ask; one long text to read.
static const char *const own_prompts[] = {
    "What is the capital of France, and what is it known for?",
    "Write a Python function that returns the n-th Fibonacci number, with a short explanation.",
    "Explain to a ten-year-old why the sky is blue.",
    "Translate into German: The meeting was moved to Thursday because the train was late.",
    "Summarise in two sentences: The lighthouse at the end of the pier had been dark for eleven years when Mara "
    "took the job. The harbour master handed her a ring of keys and a list of faults, the longest he had ever "
    "written, and told her that the lamp would never turn again. She spent the first winter drying the walls, the "
    "second mending the stairs, and the third taking the clockwork apart on a bed sheet, piece by piece, each with "
    "a number in chalk. Fishermen who came in at night began to see a light behind the glass, not yet the lamp, "
    "only hers. On the first evening of the fourth winter, with half the town on the pier, she let go of the "
    "weight, the wheels caught, and the beam went round over the roofs and far out to sea, where three boats that "
    "had been waiting for the morning turned towards home.",
};

struct compare_opts {
    struct model_opts model;
    const char *with, *prompts, *html, *exe, *url, *engine_model;
    struct opt_texts engine_args;
    int repeats, n_max, stall_s;
    bool json;
};
struct comparing {
    const struct command *command;
    struct compare_opts o;
    struct tern_engine *ours;
    struct tern_session *session;
    struct compare_engine theirs;
    struct compare_prompt prompts[COMPARE_PROMPTS_MAX];
    char names[COMPARE_PROMPTS_MAX][PROMPT_NAME_MAX];
    struct compare_result *result;
    struct arena arena;
};

// ------------------------------------------------------------------------------------------------- prompts

static void name_make(char out[PROMPT_NAME_MAX], struct str text) {
    struct buf b;
    buf_init(&b, PROMPT_NAME_MAX * 8);
    str_put_escaped(&b, text, 30);
    snprintf(out, PROMPT_NAME_MAX, "%.*s", (int)MIN(b.len, (size_t)PROMPT_NAME_MAX - 1), b.data ? b.data : "");
    buf_release(&b);
}

// The chat template around a user's text, or the text itself for a model without one; then ids.
static enum tern_status prompt_make(struct comparing *c, struct str user, struct tern_err *err) {
    struct compare_result *r = c->result;
    struct compare_prompt *p = &c->prompts[r->n_prompts];
    struct buf messages;
    int64_t n;
    if (r->n_prompts == COMPARE_PROMPTS_MAX)
        return err_set(err, TERN_LIMIT, "more than %d prompts", COMPARE_PROMPTS_MAX);
    buf_init(&messages, COMPARE_TEXT_MAX * 2);
    buf_puts(&messages, "[{\"role\":\"user\",\"content\":");
    json_put_quoted(&messages, user);
    buf_puts(&messages, "}]");
    struct tern_str text = {user.data, user.len};
    enum tern_status status = TERN_OK;
    if (r->info.has_template) {
        struct tern_str m = {messages.data, messages.len};
        n = tern_template_render(c->ours, m, (struct tern_str){0}, true, NULL, 0, err);
        char *out = n < 0 ? NULL : arena_alloc(&c->arena, (size_t)n + 1);
        if (n >= 0 && out) n = tern_template_render(c->ours, m, (struct tern_str){0}, true, out, (size_t)n, err);
        if (n < 0)
            status = (enum tern_status)n;
        else if (!out)
            status = err_set(err, TERN_NO_MEMORY, "no memory for a prompt");
        else
            text = (struct tern_str){out, (size_t)n};
    }
    buf_release(&messages);
    TRY(status);
    // A template writes the begin token itself; the tokenizer then adds none.
    n = tern_tokenize(c->ours, text, !r->info.has_template, true, NULL, 0, err);
    if (n < 0) return (enum tern_status)n;
    p->ids = arena_calloc(&c->arena, (size_t)n + 1, sizeof *p->ids);
    if (!p->ids) return err_set(err, TERN_NO_MEMORY, "no memory for a prompt");
    p->n_ids = (int)tern_tokenize(c->ours, text, !r->info.has_template, true, p->ids, (size_t)n, err);
    p->text = (struct str){text.data, text.len};
    // Servers that tokenise the text themselves add the begin token: it must not stand there twice.
    char first[256];
    int64_t len = p->n_ids > 0 ? tern_detokenize(c->ours, p->ids, 1, true, first, sizeof first, err) : 0;
    int32_t bos = -1;
    if (tern_tokenize(c->ours, (struct tern_str){"", 0}, true, false, &bos, 1, NULL) == 1 && p->n_ids > 0 &&
        p->ids[0] == bos && len > 0 && str_starts(p->text, (struct str){first, (size_t)len}))
        p->text = (struct str){p->text.data + len, p->text.len - (size_t)len};
    name_make(c->names[r->n_prompts], user);
    p->name = c->names[r->n_prompts++];
    if (p->n_ids + c->o.n_max > r->info.n_ctx)
        return err_set(err, TERN_CONTEXT_FULL,
                       "prompt '%s' has %d tokens; with an answer of %d it does not fit the %d of --ctx", p->name,
                       p->n_ids, c->o.n_max, r->info.n_ctx);
    return TERN_OK;
}

// A line is a JSON object with "prompt", or the text itself.
static enum tern_status line_take(struct comparing *c, struct str line, int number, struct tern_err *err) {
    struct json *j;
    struct json_item item;
    struct str text = line;
    if (line.data[0] == '{') {
        TRY(json_create(&j, line, NULL, err));
        text = (struct str){0};
        enum tern_status status = json_expect(j, JSON_OBJECT, &item, "a line of the prompts", err);
        while (status == TERN_OK) {
            if (json_next(j, &item, err) == JSON_ERROR) status = err->code;
            if (status != TERN_OK || item.event != JSON_KEY) break;
            const bool is_it = str_eqz(item.text, "prompt");
            status = is_it ? json_expect(j, JSON_STRING, &item, "prompt", err) : json_skip(j, err);
            if (status != TERN_OK || !is_it) continue;
            text = (struct str){arena_dup(&c->arena, item.text.data, item.text.len), item.text.len};
            break;
        }
        json_free(j);
        if (status != TERN_OK) return err_prefix(err, "prompts, line %d", number);
        if (!text.data) return err_set(err, TERN_BAD_FORMAT, "prompts, line %d: no \"prompt\" in the object", number);
    }
    return prompt_make(c, text, err);
}

static enum tern_status prompts_read(struct comparing *c, struct tern_err *err) {
    if (!c->o.prompts) {
        for (size_t i = 0; i < ARRAY_LEN(own_prompts); i++) TRY(prompt_make(c, str_from(own_prompts[i]), err));
        return TERN_OK;
    }
    struct buf file;
    buf_init(&file, COMPARE_TEXT_MAX * 8);
    enum tern_status status = file_read_all(&file, c->o.prompts, err);
    int number = 0;
    for (size_t at = 0; status == TERN_OK && at < file.len;) {
        size_t end = str_find(buf_str(&file), STR("\n"), at);
        if (end == (size_t)-1) end = file.len;
        struct str line = str_trim((struct str){file.data + at, end - at});
        number++;
        at = end + 1;
        if (line.len > 0) status = line_take(c, line, number, err);
    }
    if (status == TERN_OK && c->result->n_prompts == 0)
        status = err_set(err, TERN_INVALID_ARGUMENT, "%s: no prompts", c->o.prompts);
    buf_release(&file);
    return status;
}

// ------------------------------------------------------------------------------------------------- runs

static enum tern_status ours_ask(struct comparing *c, const struct compare_prompt *p, struct compare_answer *out,
                                 struct tern_err *err) {
    struct tern_request_options o;
    struct tern_request *r;
    struct tern_event ev = {.type = TERN_EVENT_PROGRESS};
    tern_request_options_default(&o);
    o.prompt_ids = p->ids;
    o.n_prompt_ids = (size_t)p->n_ids;
    o.n_max = c->o.n_max;
    o.reuse_prefix = false;
    TRY(tern_request_create(&r, c->session, &o, err));
    enum tern_status status = TERN_OK;
    while (status == TERN_OK && ev.type != TERN_EVENT_DONE) status = tern_request_next(r, &ev, err);
    if (status == TERN_OK) {
        size_t n;
        const int32_t *ids = tern_request_ids(r, &n);
        char piece[4096];
        for (size_t i = 0; i < n; i++) {
            int64_t len = tern_detokenize(c->ours, &ids[i], 1, false, piece, sizeof piece, err);
            if (len > 0) buf_put(&out->text, piece, MIN((size_t)len, sizeof piece));
        }
        out->n_prompt = ev.usage.n_prompt;
        out->n_answer = ev.usage.n_answer;
        out->prompt_s = ev.usage.prompt_s;
        out->answer_s = ev.usage.answer_s;
        out->first_s = ev.usage.first_token_s;
        out->n_ahead = ev.usage.n_accepted;
        out->is_over = true;
    }
    tern_request_free(r);
    return status;
}

static double rate(int64_t n, double seconds) { return n > 0 && seconds > 0 ? (double)n / seconds : 0; }

static enum tern_status side_run(struct comparing *c, int side, int prompt, struct compare_row *row,
                                 struct tern_err *err) {
    struct compare_result *r = c->result;
    struct compare_answer a;
    compare_answer_init(&a);
    enum tern_status status = side == COMPARE_OURS ? ours_ask(c, &c->prompts[prompt], &a, err)
                                                   : compare_engine_ask(&c->theirs, &c->prompts[prompt], &a, err);
    if (status == TERN_OK && a.text.failed) status = err_set(err, TERN_NO_MEMORY, "no memory for an answer");
    if (status == TERN_OK) {
        row->first_s[side] = a.first_s;
        row->prefill[side] = rate(a.n_prompt, isnan(a.prompt_s) ? a.first_s : a.prompt_s);
        row->decode[side] = rate(a.n_answer - 1, a.answer_s);
        struct buf *text = &r->texts[prompt].text[side];
        buf_clear(text);
        buf_put(text, a.text.data ? a.text.data : "", a.text.len);
        if (side == COMPARE_OURS) {
            r->n_ours_all += a.n_answer;
            r->n_ours_ahead += a.n_ahead;
            r->texts[prompt].n_prompt = a.n_prompt;
            r->texts[prompt].n_answer = a.n_answer;
        }
    }
    compare_answer_release(&a);
    return status;
}

static struct compare_engine *stop_engine;
static void on_interrupt(void) {
    if (stop_engine) child_signal_kill(&stop_engine->child);
    if (stop_engine && stop_engine->log_path[0]) remove(stop_engine->log_path);
    _Exit(EXIT_INTERRUPTED);
}

static void on_signal(int sig) {
    (void)sig;
    on_interrupt();
}

static enum tern_status all_run(struct comparing *c, struct tern_err *err) {
    struct compare_result *r = c->result;
    struct compare_row unused = {0};
    struct progress bar;
    progress_begin(&bar, "comparing", (uint64_t)(r->n_prompts * c->o.repeats), false);
    enum tern_status status = side_run(c, COMPARE_OURS, 0, &unused, err);
    if (status == TERN_OK) status = side_run(c, COMPARE_THEIRS, 0, &unused, err);
    for (int k = 0; k < c->o.repeats && status == TERN_OK; k++) {
        for (int p = 0; p < r->n_prompts && status == TERN_OK; p++) {
            struct compare_row *row = &r->rows[r->n_rows];
            const int first = (k + p) % 2;
            row->prompt = p;
            status = side_run(c, first, p, row, err);
            if (status == TERN_OK) status = side_run(c, !first, p, row, err);
            if (status == TERN_OK) progress_update(&bar, (uint64_t)++r->n_rows);
        }
    }
    progress_end(&bar);
    for (int p = 0; p < r->n_prompts; p++)
        r->texts[p].equal = compare_prefix_share(buf_str(&r->texts[p].text[0]), buf_str(&r->texts[p].text[1]));
    return status;
}

static int compare_run(struct comparing *c) {
    struct tern_err err = {0};
    struct compare_result *r = c->result;
    struct compare_engine *e = &c->theirs;
    tern_engine_info(c->ours, &r->info);
    r->engine = e;
    r->prompts = c->prompts;
    r->n_repeats = c->o.repeats;
    for (int i = 0; i < COMPARE_PROMPTS_MAX; i++)
        for (int k = 0; k < 2; k++) buf_init(&r->texts[i].text[k], COMPARE_TEXT_MAX);
    struct cpu_topology t = cpu_topology_get();
    snprintf(r->machine, sizeof r->machine, "%d cores, %s, %d threads", t.n_cores, r->info.kernels, r->info.n_threads);
    if (clock_format(r->when, sizeof r->when, "%Y-%m-%d %H:%M", clock_wall_s()) == 0) r->when[0] = 0;
    e->n_threads = r->info.n_threads;
    e->n_ctx = r->info.n_ctx;
    e->n_max = c->o.n_max;
    e->stall_s = c->o.stall_s;
    enum tern_status status = tern_session_open(&c->session, c->ours, &err);
    if (status == TERN_OK) status = prompts_read(c, &err);
    if (status == TERN_OK && r->n_prompts * c->o.repeats > STATS_MAX)
        status = err_set(&err, TERN_LIMIT, "%d prompts %d times are more than %d runs", r->n_prompts, c->o.repeats,
                         STATS_MAX);
    stop_engine = e;
    os_on_interrupt(on_interrupt);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    if (status == TERN_OK) status = compare_engine_open(e, &err);
    if (status == TERN_OK) status = all_run(c, &err);
    compare_engine_close(e);
    os_on_interrupt(NULL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    r->rss[COMPARE_OURS] = os_rss_max();
    r->rss[COMPARE_THEIRS] = e->rss_max;
    if (status == TERN_OK && c->o.html) status = compare_write_html(r, c->o.html, &err);
    if (status != TERN_OK) return fail_told(c->command, &err);
    if (c->o.json)
        compare_print_json(r);
    else
        compare_print(r);
    return EXIT_DONE;
}

static void comparing_release(struct comparing *c) {
    tern_session_close(c->session);
    tern_engine_close(c->ours);
    for (int i = 0; c->result && i < COMPARE_PROMPTS_MAX; i++)
        for (int k = 0; k < 2; k++) buf_release(&c->result->texts[i].text[k]);
    mem_free(c->result);
    arena_release(&c->arena);
    mem_free(c);
}

// The engine's name of the model when it is one of its own store.
static int model_find(struct comparing *c, struct buf *path, struct buf *name) {
    struct tern_err err = {0};
    const char *given = c->o.model.engine.model_path;
    if (!given) return usage_error(c->command, "name a model (-m): both engines open the same file");
    buf_init(path, STORE_PATH_MAX);
    buf_init(name, STORE_PATH_MAX);
    if (store_resolve(given, path, name, &err) != TERN_OK) return fail_told(c->command, &err);
    if (c->theirs.kind->is_started && !str_ends(buf_str(path), STR(".gguf")) &&
        str_find(buf_str(path), STR("/blobs/sha256-"), 0) == (size_t)-1)
        return usage_error(c->command, "%s opens GGUF files; '%s' is none", c->theirs.kind->name, path->data);
    c->result->model_name = given;
    c->theirs.model_path = path->data;
    c->theirs.model_name = c->o.engine_model;
    const bool from_ollama = str_find(buf_str(path), STR("/blobs/sha256-"), 0) != (size_t)-1;
    if (!c->theirs.model_name && from_ollama && strcmp(c->theirs.kind->name, "ollama") == 0)
        c->theirs.model_name = name->data;
    c->o.model.engine.model_path = path->data;
    return 0;
}

static int compare_main(const struct command *c, int argc, char **argv) {
    struct comparing *g = mem_calloc(1, sizeof *g);
    struct buf path = {0}, name = {0};
    if (!g || !(g->result = mem_calloc(1, sizeof *g->result))) {
        mem_free(g);
        return fail_told(c, &(struct tern_err){.message = "no memory"});
    }
    arena_init(&g->arena, 0);
    g->command = c;
    struct compare_opts *o = &g->o;
    *o = (struct compare_opts){
        .with = "llama-server", .repeats = DEFAULT_REPEATS, .n_max = DEFAULT_TOKENS, .stall_s = 120};
    model_opts_init(&o->model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&o->model, model_rows);
    const struct opt rows[] = {
        {"--with", 0, "ENGINE", OPT_TEXT, &o->with, 0, 0,
         "llama-server (default; started), ollama, lmstudio (running)"},
        {"--prompts", 0, "FILE", OPT_TEXT, &o->prompts, 0, 0,
         "a prompt a line, text or {\"prompt\": …} (default: five)"},
        {"--repeats", 0, "N", OPT_INT, &o->repeats, 1, COMPARE_REPEATS_MAX,
         "runs of every prompt on each side (default 5)"},
        {"--max-tokens", 'n', "N", OPT_INT, &o->n_max, 2, 4096, "tokens of an answer at most (default 64)"},
        {"--json", 0, NULL, OPT_FLAG, &o->json, 0, 0, "one JSON object"},
        {"--html", 0, "OUT", OPT_TEXT, &o->html, 0, 0, "write one page to share"},
        {"--engine-path", 0, "FILE", OPT_TEXT, &o->exe, 0, 0, "the llama-server to start (default: found in $PATH)"},
        {"--engine-arg", 0, "ARG", OPT_TEXTS, &o->engine_args, 0, 0,
         "one more argument for it (may be given up to 16 times)"},
        {"--engine-model", 0, "NAME", OPT_TEXT, &o->engine_model, 0, 0, "what the running engine calls the model"},
        {"--url", 0, "URL", OPT_TEXT, &o->url, 0, 0, "where the running engine answers"},
        {"--stall", 0, "SECONDS", OPT_INT, &o->stall_s, 1, 3600, "give up without a byte for so long (default 120)"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code = EXIT_USAGE;
    if (opts_parse(c, tables, argc, argv, &n_args, &code)) {
        g->theirs = (struct compare_engine){.kind = compare_engine_find(o->with),
                                            .exe = o->exe,
                                            .url = o->url,
                                            .args = o->engine_args.items,
                                            .n_args = o->engine_args.n};
        if (n_args > 0)
            code = usage_error(c, "no arguments expected, only options");
        else if (!g->theirs.kind)
            code = usage_error(c, "--with wants llama-server, ollama or lmstudio, not '%s'", o->with);
        else
            code = model_find(g, &path, &name);
        if (code == 0) code = engine_open_told(c, &o->model, &g->ours);
        if (code == 0) code = compare_run(g);
    }
    comparing_release(g);
    buf_release(&path);
    buf_release(&name);
    return code;
}

const struct command command_compare = {
    "compare", "", "ours beside an engine that you have",
    "Both open the same file and get the same tokens, turn by turn (ABBA). Told are the time to the first token, the\n"
    "speeds of reading and writing, memory, and how far the texts are equal (doc/compare.md).",
    compare_main};
