// tern help: what the program tells about itself, for terminals and as manual pages. The pages are written from the
// tables that parsing uses, so a page cannot lack an option: each command is asked for its --help, with a hook that
// gets its tables instead of printing them.
#include "base/base.h"
#include "app.h"

#include <stdio.h>

#define CONFIG_PAGE "serve.conf"

static const struct {
    const char *name, *help;
} environment[] = {
    {"TERN_MODEL", "the model of commands that are given none"},
    {"TERN_CPU",
     "bound on the instruction set: scalar, avx2, avx512, avx512vnni, avx512bf16, amx, neon, neondot, i8mm"},
    {"TERN_LOG", "what is told of the work: error, warn (default), info, debug"},
    {"TERN_PROFILE", "1: times of the cpu unit's operations, at the end (with TERN_LOG=info)"},
    {"TERN_CACHE_BYTES", "bytes of packed weights kept on disk at most"},
    {"XDG_CACHE_HOME", "folder of caches: packed weights and profiles are in its folder tern (default ~/.cache)"},
    {"TERN_HISTORY", "file of the messages typed in tern chat; off: none"},
    {"XDG_STATE_HOME", "folder of what tern chat and tern serve remember: its folder tern (default ~/.local/state)"},
    {"TERN_NPU_CTX", "positions that programs of the npu unit have room for (doc/npu.md)"},
    {"TERN_NPU_OBSERVE", "file that ranges of activations are written to"},
    {"TERN_NPU_SCALES", "file of scales that such ranges gave"},
    {"TERN_NPU_PACKAGES", "folder of runtimes of the npu unit's back ends"},
    {"HF_HOME, HF_HUB_CACHE", "where the Hugging Face cache is"},
    {"OLLAMA_MODELS", "where Ollama's store is"},
};

// Parts of the list of commands, each from this one on.
static const struct {
    const struct command *first;
    const char *heading;
} parts[] = {{&command_chat, "use a model:"},
             {&command_pull, "models on this machine:"},
             {&command_doctor, "this machine, and how fast it is:"},
             {&command_tokenize, "texts and programs:"},
             {&command_compile, "neural engines, and studies:"},
             {&command_config, "tern itself:"}};

void help_overview_print(void) {
    out_puts("tern: run a language model on this machine\n\nusage: tern COMMAND [OPTIONS]\n");
    for (int i = 0; i < n_commands; i++) {
        for (size_t p = 0; p < ARRAY_LEN(parts); p++)
            if (parts[p].first == commands[i]) out_putf("\n%s\n", parts[p].heading);
        out_putf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    out_puts("\nWithout a command tern chats; without a model it uses the small built-in one (pico).\n"
             "`tern COMMAND --help` tells the options.\n\nto begin with:\n"
             "    tern run \"What is a tern?\"\n"
             "    tern pull org/repo:Q4_K_M && tern chat -m org/repo:Q4_K_M\n"
             "    tern serve            then open http://127.0.0.1:8376 in a browser\n\nenvironment:\n");
    for (size_t i = 0; i < ARRAY_LEN(environment); i++)
        out_putf("  %-22s %s\n", environment[i].name, environment[i].help);
}

// --------------------------------------------------------------------------------------------------------------- pages

// Text as roff wants it.
static void roff_put(const char *z) {
    bool line_begins = true;
    for (; *z; z++) {
        if (line_begins && (*z == '.' || *z == '\'')) out_puts("\\&");
        if (*z == '\\')
            out_puts("\\e");
        else if (*z == '-')
            out_puts("\\-");
        else
            out_put((struct str){z, 1});
        line_begins = *z == '\n';
    }
}

static void page_head(const char *name, int section, const char *summary) {
    out_putf(".TH ");
    for (const char *p = name; *p; p++) out_putf("%c", *p >= 'a' && *p <= 'z' ? *p - 32 : *p);
    struct str version = str_from(tern_version());
    size_t blank = str_find(version, STR(" "), 0);
    if (blank != (size_t)-1) version.len = blank;
    out_putf(" %d \"\" \"tern %.*s\" \"tern\"\n.SH NAME\n", section, (int)version.len, version.data);
    roff_put(name);
    out_puts(" \\- ");
    roff_put(summary);
    out_puts("\n");
}

static void option_put(const struct opt *o) {
    out_puts(".TP\n");
    if (o->letter) out_putf("\\fB\\-%c\\fR, ", o->letter);
    out_puts("\\fB");
    roff_put(o->name);
    out_puts("\\fR");
    if (o->arg) {
        out_puts(" \\fI");
        roff_put(o->arg);
        out_puts("\\fR");
    }
    out_puts("\n");
    roff_put(o->help);
    out_puts("\n");
}

static void command_page(void *arg, const struct command *c, const struct opt *const *tables) {
    (void)arg;
    char name[64];
    snprintf(name, sizeof name, "tern-%s", c->name);
    page_head(name, 1, c->summary);
    out_putf(".SH SYNOPSIS\n\\fBtern %s\\fR [OPTIONS]%s", c->name, c->args[0] ? " " : "");
    roff_put(c->args);
    out_puts("\n");
    if (c->text) {
        out_puts(".SH DESCRIPTION\n.nf\n");
        roff_put(c->text);
        out_puts("\n.fi\n");
    }
    out_puts(".SH OPTIONS\n");
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++) option_put(o);
    out_puts(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\ntell the options\n");
    out_puts(".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 130 interrupted.\n.SH SEE ALSO\n.BR tern (1)");
    if (strcmp(c->name, "serve") == 0) out_puts(",\n.BR tern\\-" CONFIG_PAGE " (5)");
    out_puts("\n");
}

static void overview_page(void) {
    page_head("tern", 1, "run a language model on this machine");
    out_puts(".SH SYNOPSIS\n\\fBtern\\fR \\fICOMMAND\\fR [OPTIONS]\n.SH DESCRIPTION\n"
             "Without a command tern chats; without a model it uses the small built\\-in one, pico.\n.SH COMMANDS\n");
    for (int i = 0; i < n_commands; i++) {
        out_putf(".TP\n.BR tern\\-%s (1)\n", commands[i]->name);
        roff_put(commands[i]->summary);
        out_puts("\n");
    }
    out_puts(".SH ENVIRONMENT\n");
    for (size_t i = 0; i < ARRAY_LEN(environment); i++) {
        out_putf(".TP\n.B %s\n", environment[i].name);
        roff_put(environment[i].help);
        out_puts("\n");
    }
    out_puts(".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 130 interrupted.\n"
             ".SH SEE ALSO\n.BR tern\\-" CONFIG_PAGE " (5)\n");
}

static bool is_setting(const struct opt *o) {
    return strcmp(o->name, "--check") != 0 && strcmp(o->name, "--config") != 0;
}

static void config_page(void *arg, const struct command *c, const struct opt *const *tables) {
    (void)arg;
    page_head("tern-" CONFIG_PAGE, 5, "settings of tern serve");
    out_putf(".SH DESCRIPTION\n\\fBtern %s\\fR reads /etc/tern/serve.conf, then $XDG_CONFIG_HOME/tern/serve.conf\n"
             "(~/.config/tern/serve.conf), or the file of \\fB\\-\\-config\\fR alone, then the environment, then its\n"
             "options; later wins, and what may be repeated collects. A file has one setting a line,\n"
             "\\fIname\\fR = \\fIvalue\\fR, the value bare or in double quotes, true or false for flags; # begins a\n"
             "comment. The setting key\\-jobs is TERN_SERVE_KEY_JOBS in the environment. An unknown name is an error.\n"
             "\\fBtern config check\\fR reads all this and tells what would be used.\n.SH SETTINGS\n",
             c->name);
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++) {
            if (!is_setting(o)) continue;
            out_puts(".TP\n\\fB");
            roff_put(o->name + 2);
            out_puts("\\fR = \\fI");
            roff_put(o->arg ? o->arg : "true|false");
            out_puts("\\fR\n");
            roff_put(o->help);
            out_puts("\n");
        }
    out_puts(".SH SEE ALSO\n.BR tern\\-serve (1)\n");
}

// ------------------------------------------------------------------------------------------------------------- command

static const struct command *command_find(const char *name) {
    for (int i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

int command_help_hooked(const struct command *c,
                        void (*hook)(void *arg, const struct command *c, const struct opt *const *tables)) {
    char help[] = "--help";
    char name[64];
    snprintf(name, sizeof name, "%s", c->name);
    char *argv[] = {name, help, NULL};
    opts_help_hook(hook, NULL);
    int code = c->run(c, 2, argv);
    opts_help_hook(NULL, NULL);
    return code;
}

static int page_print(const struct command *c, const char *what) {
    if (!what) return overview_page(), EXIT_DONE;
    if (strcmp(what, CONFIG_PAGE) == 0) return command_help_hooked(&command_serve, config_page);
    const struct command *of = command_find(what);
    if (!of) return usage_error(c, "no page '%s'; a command, or " CONFIG_PAGE, what);
    return command_help_hooked(of, command_page);
}

static int help_main(const struct command *c, int argc, char **argv) {
    bool man = false;
    const struct opt rows[] = {{"--man", 0, NULL, OPT_FLAG, &man, 0, 0, "the manual page, for man -l"}, {0}};
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 1) return usage_error(c, "one command expected");
    const char *what = n_args > 0 ? argv[1] : NULL;
    if (man) return page_print(c, what);
    if (!what) return help_overview_print(), EXIT_DONE;
    const struct command *of = command_find(what);
    const char *near = of ? NULL : command_nearest(what);
    if (near) return usage_error(c, "no command '%s'; did you mean %s?", what, near);
    if (!of) return usage_error(c, "no command '%s'; `tern --help` lists them", what);
    return command_help_hooked(of, NULL);
}

const struct command command_help = {"help", "[COMMAND|" CONFIG_PAGE "]", "what a command does, and manual pages",
                                     "With --man the page of the command, of tern itself, or of the settings of tern "
                                     "serve (" CONFIG_PAGE "):\n    tern help --man serve | man -l -",
                                     help_main};
