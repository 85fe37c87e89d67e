// tern study: questions answered by measurement, each in a file study_*.c that states question, method and stop rule.
#include "base/base.h"
#include "app/app.h"

#include "study_int.h"

static bool cycles_read(const char *text, double ms[3]) {
    for (int i = 0; i < 3; i++) {
        size_t n = strcspn(text, ",");
        if (!str_to_f64((struct str){text, n}, &ms[i]) || !(ms[i] > 0)) return false;
        text += n;
        if ((i < 2) != (*text == ',')) return false;
        text += i < 2;
    }
    return *text == 0;
}

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
        {"--cycles", 0, "P,C,T", OPT_TEXT, &o.cycles, 0, 0,
         "a machine's ms of a plain step, of a round with a chain of 9, with a tree of 46: its tokens/s"},
        {"--seed", 0, "N", OPT_INT, &o.seed, 0, 1 << 30, "of the bootstrap (default 1)"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args != 1 || strcmp(argv[1], "acceptance") != 0)
        return usage_error(c,
                           "which study? There is: acceptance (what drafts of each kind and size would have gained)");
    if (!model.engine.draft_path) return usage_error(c, "acceptance needs --draft-model");
    if (model.engine.draft_unit) return usage_error(c, "acceptance runs the drafter on the cpu: no --draft-unit");
    if (o.cycles && !cycles_read(o.cycles, o.cycle_ms))
        return usage_error(c, "--cycles wants three times in ms, as in 31.1,39.8,40.9, not '%s'", o.cycles);
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
