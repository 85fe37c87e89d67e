// tern calibrate: measures what rounds of speculation cost on this machine and keeps it, so that `--draft auto` knows
// at once. Other work on the machine that lasts as long as the measurement spoils the result.
#include "base/base.h"
#include "app.h"

static int calibrate_main(const struct command *c, int argc, char **argv) {
    struct model_opts model;
    bool curve = false, no_keep = false;
    float seconds = 5;
    model_opts_init(&model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&model, model_rows);
    const struct opt rows[] = {{"--curve", 0, NULL, OPT_FLAG, &curve, 0, 0, "costs of steps by rows, and of drafts"},
                               {"--seconds", 's', "S", OPT_FLOAT, &seconds, 0.1, 600, "time to measure (default 5)"},
                               {"--no-keep", 0, NULL, OPT_FLAG, &no_keep, 0, 0, "print the profile, do not keep it"},
                               {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 0) return usage_error(c, "no arguments expected");
    if (!curve) return usage_error(c, "what is to be measured? There is: --curve");
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    struct tern_str text;
    if (!model.draft) model.draft = "off"; // nothing to be measured while opening
    code = engine_open_told(c, &model, &e);
    if (code == 0 && tern_engine_calibrate(e, (double)seconds, !no_keep, &text, &err) != TERN_OK)
        code = fail_told(c, &err);
    if (code == 0) out_put((struct str){text.data, text.len});
    tern_engine_close(e);
    return code;
}

const struct command command_calibrate = {"calibrate", "--curve", "measure this machine for drafting", NULL,
                                          calibrate_main};
