// tern study: questions answered by measurement, each in a file study_*.c that states question, method and stop rule.
#include "base/base.h"
#include "app.h"

#include "study_int.h"

static int study_main(const struct command *c, int argc, char **argv) {
    struct model_opts model;
    struct acceptance_opts o = {.n_max = 160, .seed = 1};
    model_opts_init(&model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&model, model_rows);
    const struct opt rows[] = {
        {"--prompts", 0, "FILE", OPT_TEXT, &o.prompts, 0, 0, "a line {\"category\", \"messages\", \"tools\"} each"},
        {"--each", 0, "N", OPT_INT, &o.n_each, 1, 1 << 20, "prompts of each category (default all)"},
        {"--answer", 'n', "N", OPT_INT, &o.n_max, 2, 1 << 20, "tokens of an answer at most (default 160)"},
        {"--csv", 0, "FILE", OPT_TEXT, &o.csv, 0, 0,
         "tokens a round by kind and drafted tokens, for bench/acceptance.gp"},
        {"--paths", 0, "FILE", OPT_TEXT, &o.paths, 0, 0, "what was accepted behind every token, for replays"},
        {"--seed", 0, "N", OPT_INT, &o.seed, 0, 1 << 30, "of the bootstrap (default 1)"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args != 1 || strcmp(argv[1], "acceptance") != 0)
        return usage_error(c,
                           "which study? There is: acceptance (what drafts of each kind and size would have gained)");
    if (!model.engine.draft_path) return usage_error(c, "acceptance needs --draft-model");
    o.drafter = model.engine.draft_path;
    o.n_threads = model.engine.n_threads;
    model.engine.draft_path = NULL; // the engine only answers; the study runs the drafter
    model.draft = "off";
    struct tern_engine *e = NULL;
    code = engine_open_told(c, &model, &e);
    o.model = model.engine.model_path;
    if (code == 0) code = study_acceptance_run(c, &o, e);
    tern_engine_close(e);
    return code;
}

const struct command command_study = {"study", "acceptance", "measurements that answer a question", NULL, study_main};
