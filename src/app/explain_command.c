// tern explain: the programs that a model becomes, and what a step of them costs.
#include "base/base.h"
#include "app.h"
#include "model/model.h"
#include "prog/prog.h"

static bool kind_find(const char *name, enum prog_kind *out) {
    static const struct {
        const char *name;
        enum prog_kind kind;
    } kinds[] = {{"whole", PROG_WHOLE},    {"layers", PROG_LAYERS}, {"segment", PROG_SEGMENT},
                 {"attention", PROG_ATTN}, {"commit", PROG_COMMIT}, {"encoder", PROG_ENCODER},
                 {"inject", PROG_INJECT},  {"draft", PROG_DRAFT},   {"markov", PROG_LINEAR}};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0) return *out = kinds[i].kind, true;
    return false;
}

static int program_print(const struct command *c, const struct model *m, const struct prog_spec *spec, int rows,
                         int ctx) {
    struct tern_err err = {0};
    struct prog *p;
    if (prog_build(&p, m, spec, &err) != TERN_OK) return fail_told(c, &err);
    struct buf b;
    buf_init(&b, 16u << 20);
    int code = EXIT_DONE;
    if (prog_verify(p, &err) != TERN_OK)
        code = fail_told(c, &err);
    else if (!prog_dump(p, &b))
        code = EXIT_FAILED;
    if (code == EXIT_DONE) {
        int n_out = spec->kind == PROG_DRAFT ? spec->n_out_max : spec->outputs ? MIN(rows, 1) : 0;
        struct prog_cost cost = prog_cost_get(p, rows, n_out, ctx);
        out_put(buf_str(&b));
        out_putf("a step of %d rows behind %d positions: %.3f GFLOP, %.1f MB of weights, %.3f MB of cache\n", rows, ctx,
                 cost.flops / 1e9, cost.weight_bytes / 1e6, cost.kv_bytes / 1e6);
    }
    buf_release(&b);
    prog_free(p);
    return code;
}

// A drafter's programs: the injection takes as many rows as asked for, a block has those it was trained with.
static int drafter_print(const struct command *c, const struct model *target, const char *path, const char *unit,
                         struct prog_spec *spec, int ctx) {
    struct tern_err err = {0};
    struct model *m;
    if (model_open_drafter(&m, path, target, &err) != TERN_OK) return fail_told(c, &err);
    const struct model_drafter *d = m->drafter;
    int code = EXIT_DONE;
    if (spec->kind == PROG_DRAFT) {
        spec->window = d->n_rows;
        spec->n_out_max = d->n_proposals;
        spec->outputs = PROG_OUT_LOGITS;
    }
    if (spec->kind == PROG_LINEAR) {
        spec->window = 1;
        spec->weight = d->markov_w2;
        if (d->markov == MARKOV_NONE)
            code = usage_error(c, "%s has no Markov head: trees are ranked by its logits alone", m->name);
    }
    if (code == EXIT_DONE) code = program_print(c, m, spec, spec->window, ctx);
    if (code == EXIT_DONE)
        out_putf("blocks of %d rows propose %d tokens from row %d on; features of %d layers; %s the target's output\n",
                 d->n_rows, d->n_proposals, d->first_row, d->n_features, unit ? "packs for itself" : "shares");
    if (code == EXIT_DONE && unit)
        out_putf(
            "on unit %s: %d bytes of features for each position cross from the target's unit through host memory\n",
            unit, (int)sizeof(float) * d->n_features * d->n_embd_target);
    model_close(m);
    return code;
}

static int explain_main(const struct command *c, int argc, char **argv) {
    const char *kind = "whole", *draft_path = NULL, *draft_unit = NULL, *path = env_get("TERN_MODEL");
    int window = 64, begin = 0, end = 0, index = 0, ctx = 512;
    bool logits = false, program = true;
    const struct opt rows[] = {
        {"--model", 'm', "PATH", OPT_TEXT, &path, 0, 0, "GGUF file or Hugging Face folder"},
        {"--program", 0, NULL, OPT_FLAG, &program, 0, 0, "the operations of a program (what it prints without, too)"},
        {"--kind", 0, "KIND", OPT_TEXT, &kind, 0, 0,
         "whole (default), layers, segment, attention, commit, encoder; of --draft-model: inject, draft, markov"},
        {"--draft-model", 0, "PATH", OPT_TEXT, &draft_path, 0, 0, "drafter of the model, for its own kinds"},
        {"--draft-unit", 0, "NAME", OPT_TEXT, &draft_unit, 0, 0, "the drafter's, when it is not the model's"},
        {"--window", 0, "N", OPT_INT, &window, 1, STEP_WINDOW_MAX, "rows (default 64)"},
        {"--begin", 0, "N", OPT_INT, &begin, 0, MODEL_LAYERS_MAX, "layers: first"},
        {"--end", 0, "N", OPT_INT, &end, 0, MODEL_LAYERS_MAX, "layers: one past the last (default: all)"},
        {"--index", 0, "N", OPT_INT, &index, 0, MODEL_LAYERS_MAX, "segment or attention: which"},
        {"--behind", 0, "N", OPT_INT, &ctx, 0, 1 << 20, "positions before the step, for its cost (default 512)"},
        {"--logits", 0, NULL, OPT_FLAG, &logits, 0, 0, "logits instead of argmax"},
        {0}};
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args == 1) path = argv[1];
    if (n_args > 1) return usage_error(c, "one model expected: a GGUF file or a Hugging Face folder");
    struct prog_spec spec = {.window = window,
                             .layer_begin = begin,
                             .layer_end = end,
                             .index = index,
                             .n_out_max = -1,
                             .kv_type = OP_KV_F16};
    if (!kind_find(kind, &spec.kind))
        return usage_error(c,
                           "--kind wants whole, layers, segment, attention, commit, encoder, inject, draft or markov, "
                           "not '%s'",
                           kind);
    bool of_drafter = spec.kind == PROG_INJECT || spec.kind == PROG_DRAFT || spec.kind == PROG_LINEAR;
    if (of_drafter && !draft_path) return usage_error(c, "--kind %s is a drafter's: --draft-model says which", kind);
    if (!of_drafter && draft_path) return usage_error(c, "--draft-model has kinds of its own: inject, draft, markov");
    if (draft_unit && !draft_path) return usage_error(c, "--draft-unit goes with --draft-model");
    struct tern_err err = {0};
    struct model *m;
    struct str data = {0};
    struct buf storage;
    code = model_path_told(c, &path, &storage);
    if (code != 0) return buf_release(&storage), code;
    if (!path) data = builtin_model(&path);
    enum tern_status status =
        data.data ? model_open_memory(&m, "pico", data.data, data.len, &err) : model_open(&m, path, &err);
    buf_release(&storage);
    if (status != TERN_OK) return fail_told(c, &err);
    if (end == 0) spec.layer_end = m->hyper.n_layers;
    int n_attn = 0;
    for (int i = 0; i < m->hyper.n_layers; i++) n_attn += m->layers[i].kind == LAYER_ATTENTION;
    bool head = spec.kind == PROG_WHOLE || (spec.kind == PROG_LAYERS && spec.layer_end == m->hyper.n_layers) ||
                (spec.kind == PROG_SEGMENT && spec.index == n_attn); // the last segment
    if (head) spec.outputs = logits ? PROG_OUT_LOGITS : PROG_OUT_ARGMAX;
    code =
        of_drafter ? drafter_print(c, m, draft_path, draft_unit, &spec, ctx) : program_print(c, m, &spec, window, ctx);
    model_close(m);
    return code;
}

const struct command command_explain = {"explain", "[MODEL]", "the programs that a model becomes", NULL, explain_main};
