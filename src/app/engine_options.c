// The options about the model and about sampling that several commands share, and opening the engine with them.
#include "base/base.h"
#include "app.h"
#include "app/store/store.h"

#include <stdio.h>

#ifdef TERN_EMBED_PICO
extern const unsigned char tern_pico_begin[], tern_pico_end[];
#endif

void model_opts_init(struct model_opts *o) {
    *o = (struct model_opts){0};
    tern_engine_options_default(&o->engine);
    o->engine.model_path = env_get("TERN_MODEL");
}

void model_opts_table(struct model_opts *o, struct opt table[MODEL_OPTS_N]) {
    struct tern_engine_options *e = &o->engine;
    const struct opt rows[MODEL_OPTS_N] = {
        {"--model", 'm', "PATH", OPT_TEXT, &e->model_path, 0, 0,
         "file, folder, or a name of `tern list` (default: $TERN_MODEL, else pico)"},
        {"--threads", 't', "N", OPT_INT, &e->n_threads, 1, TEAM_THREADS_MAX,
         "compute threads (default: one per fast core)"},
        {"--ctx", 'c', "N", OPT_INT, &e->n_ctx, 1, 1 << 20,
         "positions of the context (default: the model's, at most 8192)"},
        {"--window", 0, "N", OPT_INT, &e->window, 1, 512, "rows of one step (default 256)"},
        {"--kv", 0, "TYPE", OPT_TEXT, &o->kv, 0, 0, "cache type: f16 (default), q8, f32"},
        {"--class", 0, "NAME", OPT_TEXT, &o->numerics, 0, 0,
         "arithmetic: int8 (default), fp32 (reference, slow), bf16 (for BF16 files)"},
        {"--unit", 0, "NAME", OPT_TEXT, &e->unit, 0, 0, "where to run: cpu (default), npu[:RULES], null (checks only)"},
        {"--plan", 0, "KIND", OPT_TEXT, &e->plan, 0, 0,
         "whole (default); handoff: answers on the --then unit; extend: longer contexts there"},
        {"--then", 0, "NAME", OPT_TEXT, &e->then_unit, 0, 0, "second unit of a plan"},
        {"--no-pack-cache", 0, NULL, OPT_FLAG, &o->no_pack_cache, 0, 0, "do not keep or use packed weights on disk"},
        {"--draft-model", 0, "PATH", OPT_TEXT, &e->draft_path, 0, 0,
         "draft model: a drafter made for the model (DSpark, DFlash), or a smaller model of its vocabulary"},
        {"--draft-unit", 0, "NAME", OPT_TEXT, &e->draft_unit, 0, 0,
         "where the draft model runs (default: where the model does)"},
        {"--draft", 0, "MODE", OPT_TEXT, &o->draft, 0, 0,
         "guess ahead: auto (default: what pays here, which may be nothing), off, chain, tree, ngram"},
        {"--draft-max", 0, "N", OPT_INT, &e->draft_max, 1, TERN_DRAFT_MAX,
         "guessed tokens checked at once, at most (default: by the mode)"},
        {"--memory", 0, "BYTES", OPT_U64, &e->memory_max, 0, 9e18, "refuse to start when more may be needed"},
        {0}};
    memcpy(table, rows, sizeof rows);
}

static bool name_find(const char *name, const char *const *names, int n, int *out) {
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return *out = i, true;
    return false;
}

bool draft_mode_find(const char *name, enum tern_draft *out) {
    static const char *const names[] = {"auto", "off", "chain", "tree", "ngram", "tree-biased", "tree-factorised"};
    int i = 0;
    if (!name_find(name, names, ARRAY_LEN(names), &i)) return false;
    *out = (enum tern_draft)(TERN_DRAFT_AUTO + i);
    return true;
}

struct load_view {
    struct progress bar;
    const char *stage;
};
static bool load_on_progress(void *arg, const char *stage, uint64_t done, uint64_t total) {
    struct load_view *v = arg;
    if (v->stage != stage) {
        if (v->stage) progress_end(&v->bar);
        progress_begin(&v->bar, stage, total, true);
        v->stage = stage;
    }
    progress_update(&v->bar, done);
    return true;
}

struct str builtin_model(const char **path) {
#ifdef TERN_EMBED_PICO
    *path = NULL;
    return (struct str){(const char *)tern_pico_begin, (size_t)(tern_pico_end - tern_pico_begin)};
#else
    *path = TERN_DATADIR "/pico.gguf";
    return (struct str){0};
#endif
}

int model_path_told(const struct command *c, const char **path, struct buf *storage) {
    struct tern_err err = {0};
    buf_init(storage, STORE_PATH_MAX);
    if (!*path) return 0;
    if (store_resolve(*path, storage, NULL, &err) != TERN_OK) return fail_told(c, &err);
    *path = storage->data;
    return 0;
}

int model_opts_finish(const struct command *c, struct model_opts *o) {
    static const char *const kv[] = {"f16", "q8", "f32"}, *const classes[] = {"auto", "int8", "fp32", "bf16"};
    int i = 0;
    if (o->kv && !name_find(o->kv, kv, 3, &i)) return usage_error(c, "--kv wants f16, q8 or f32, not '%s'", o->kv);
    if (o->kv) o->engine.kv_type = (enum tern_kv_type)i;
    if (o->numerics && !name_find(o->numerics, classes, 4, &i))
        return usage_error(c, "--class wants int8, fp32 or bf16, not '%s'", o->numerics);
    if (o->numerics) o->engine.numerics = (enum tern_class)i;
    if (o->draft && !draft_mode_find(o->draft, &o->engine.draft))
        return usage_error(c, "--draft wants one of " DRAFT_MODE_NAMES ", not '%s'", o->draft);
    o->engine.pack_cache = !o->no_pack_cache;
    if (!o->engine.model_path && !o->engine.shape) {
        struct str data = builtin_model(&o->engine.model_path);
        o->engine.model_data = data.data;
        o->engine.model_data_len = data.len;
    }
    return 0;
}

int engine_open_told(const struct command *c, struct model_opts *o, struct tern_engine **out) {
    int code = model_opts_finish(c, o);
    if (code != 0) return code;
    struct buf path, draft_path;
    struct tern_err err = {0};
    code = model_path_told(c, &o->engine.model_path, &path);
    buf_init(&draft_path, 0);
    if (code == 0) code = model_path_told(c, &o->engine.draft_path, &draft_path);
    struct load_view view = {0};
    o->engine.on_progress = load_on_progress;
    o->engine.on_progress_arg = &view;
    if (code == 0 && tern_engine_open(out, &o->engine, &err) != TERN_OK) {
        if (view.stage) progress_end(&view.bar);
        code = fail_told(c, &err);
    } else if (view.stage) {
        progress_end(&view.bar);
    }
    buf_release(&path);
    buf_release(&draft_path);
    return code;
}

void sample_opts_init(struct sample_opts *o) {
    *o = (struct sample_opts){.max_tokens = -1};
    tern_request_options_default(&o->request);
}

void sample_opts_table(struct sample_opts *o, struct opt table[SAMPLE_OPTS_N]) {
    struct tern_request_options *r = &o->request;
    const struct opt rows[SAMPLE_OPTS_N] = {
        {"--max-tokens", 'n', "N", OPT_INT, &o->max_tokens, 1, 1 << 30,
         "tokens of the answer at most (default: what fits)"},
        {"--temp", 0, "T", OPT_FLOAT, &r->temperature, 0, 100, "temperature (default 0: greedy)"},
        {"--top-k", 0, "K", OPT_INT, &r->top_k, 0, 1 << 30, "keep the K likeliest (default 0: off)"},
        {"--top-p", 0, "P", OPT_FLOAT, &r->top_p, 1e-9, 1, "keep the likeliest that sum to P (default 1: off)"},
        {"--min-p", 0, "P", OPT_FLOAT, &r->min_p, 0, 1,
         "keep those at least P times as likely as the best (default 0: off)"},
        {"--repeat-penalty", 0, "X", OPT_FLOAT, &r->repeat_penalty, 0.01, 100,
         "divide logits of recent tokens (default 1: off)"},
        {"--repeat-last", 0, "N", OPT_INT, &r->repeat_last, 0, 4096,
         "tokens that --repeat-penalty looks back at (default 64)"},
        {"--presence-penalty", 0, "X", OPT_FLOAT, &r->presence_penalty, -100, 100,
         "against tokens already in the answer (default 0)"},
        {"--frequency-penalty", 0, "X", OPT_FLOAT, &r->frequency_penalty, -100, 100,
         "the same, per occurrence (default 0)"},
        {"--seed", 0, "N", OPT_U64, &r->seed, 0, 9e18, "of sampling: same seed, same text (default 0)"},
        {"--stop", 0, "TEXT", OPT_TEXTS, &o->stop, 0, 0,
         "end the answer before this text (may be given up to 16 times)"},
        {"--ignore-eos", 0, NULL, OPT_FLAG, &r->ignore_eos, 0, 0, "go on after the end token"},
        {"--no-think", 0, NULL, OPT_FLAG, &o->no_think, 0, 0,
         "answers without thoughts, of models whose template can ask for them"},
        {"--logprobs", 0, "N", OPT_INT, &r->n_logprobs, 0, TERN_TOP_LOGPROBS_MAX,
         "with --json: log-probabilities, and N alternatives"},
        {0}};
    memcpy(table, rows, sizeof rows);
}

void sample_opts_apply(struct sample_opts *o) {
    static const char no_think[] = "{\"enable_thinking\":false,\"thinking\":false}";
    o->request.n_max = o->max_tokens;
    if (o->no_think) o->request.template_json = (struct tern_str){no_think, sizeof no_think - 1};
    for (int i = 0; i < o->stop.n; i++) o->request.stop[i] = o->stop.items[i];
    o->request.n_stop = o->stop.n;
}
