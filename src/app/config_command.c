// tern config: the settings of `tern serve` as they would be used. The work is `tern serve --check`: one reader of
// files, environment and options.
#include "base/base.h"
#include "app.h"

static int config_main(const struct command *c, int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "check") == 0) {
        static char check[] = "--check";
        argv[1] = check;
        return command_serve.run(&command_serve, argc, argv);
    }
    const struct opt *const tables[] = {NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    return usage_error(c, "`tern config check` expected, then options of `tern serve`");
}

const struct command command_config = {
    "config", "check [OPTIONS OF serve]", "settings of `tern serve`",
    "Reads the files of settings, the environment and the options as `tern serve` does, and tells what would be used;\n"
    "exit 2 and the file and line when something is wrong. Keys are not shown.",
    config_main};
