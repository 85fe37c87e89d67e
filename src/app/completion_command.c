// tern completion: scripts that complete commands and options in a shell, written from the tables that parsing uses.
//
// Each command is asked for its --help, with a hook that gets its tables. A value is completed as a file name where the
// option's argument says that it is one (FILE, PATH, DIR), else by nothing: a wrong guess is worse.
#include "base/base.h"
#include "app.h"

static bool takes_file(const struct opt *o) {
    return o->arg && (strstr(o->arg, "FILE") || strstr(o->arg, "PATH") || strstr(o->arg, "DIR"));
}

// Text inside single quotes of a shell; also_escaped get a backslash.
static void quoted_put(const char *z, const char *also_escaped) {
    for (; *z; z++) {
        if (*z == '\'')
            out_puts("'\\''");
        else if (strchr(also_escaped, *z))
            out_putf("\\%c", *z);
        else
            out_put((struct str){z, 1});
    }
}

static void names_put(const struct opt *const *tables, bool with_value, bool with_file) {
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++) {
            if ((with_value && !o->arg) || (with_file && !takes_file(o))) continue;
            out_putf("%s ", o->name);
            if (o->letter) out_putf("-%c ", o->letter);
        }
}

// ---------------------------------------------------------------------------------------------------------------- bash

static void bash_rows(void *arg, const struct command *c, const struct opt *const *tables) {
    (void)arg;
    out_putf("    %s)\n        options='", c->name);
    names_put(tables, false, false);
    out_puts("--help -h'\n        values=' ");
    names_put(tables, true, false);
    out_puts("'\n        files=' ");
    names_put(tables, true, true);
    out_puts("' ;;\n");
}

static void bash_begin(void) {
    out_puts("# bash completion of tern; made by `tern completion bash`\n"
             "_tern() {\n"
             "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
             "    local command=chat options='' values='' files='' commands='");
    for (int i = 0; i < n_commands; i++) out_putf("%s%s", i > 0 ? " " : "", commands[i]->name);
    out_puts("'\n"
             "    COMPREPLY=()\n"
             "    if [ \"$COMP_CWORD\" -eq 1 ] && [ \"${current#-}\" = \"$current\" ]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$current\")\n"
             "        return\n"
             "    fi\n"
             "    [ \"${COMP_WORDS[1]#-}\" = \"${COMP_WORDS[1]}\" ] && command=${COMP_WORDS[1]}\n"
             "    case $command in\n");
}

static void bash_end(void) {
    out_puts("    esac\n"
             "    case $files in *\" $before \"*)\n"
             "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
             "        return ;;\n"
             "    esac\n"
             "    case $values in *\" $before \"*) return ;; esac\n"
             "    if [ \"${current#-}\" != \"$current\" ]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
             "    elif [ \"$command\" = help ]; then\n"
             "        mapfile -t COMPREPLY < <(compgen -W \"$commands serve.conf\" -- \"$current\")\n"
             "    else\n"
             "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
             "    fi\n"
             "}\n"
             "complete -o filenames -F _tern tern\n");
}

// ----------------------------------------------------------------------------------------------------------------- zsh

static void zsh_spec(const struct opt *o) {
    static const char *const escaped = "[]:\\";
    out_puts(" \\\n            ");
    if (o->type == OPT_TEXTS)
        out_puts("'*'");
    else if (o->letter)
        out_putf("'(-%c %s)'", o->letter, o->name);
    if (o->letter)
        out_putf("{-%c,%s}", o->letter, o->name);
    else
        out_puts(o->name);
    out_puts("'[");
    quoted_put(o->help, escaped);
    out_puts("]");
    if (o->arg) {
        out_puts(":");
        quoted_put(o->arg, escaped);
        out_puts(takes_file(o) ? ":_files" : ": ");
    }
    out_puts("'");
}

static void zsh_rows(void *arg, const struct command *c, const struct opt *const *tables) {
    (void)arg;
    out_putf("    %s)\n        _arguments", c->name);
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++) zsh_spec(o);
    out_puts(" \\\n            '(-h --help)'{-h,--help}'[tell the options]' '*:argument:_files' ;;\n");
}

static void zsh_begin(void) {
    out_puts("#compdef tern\n# made by `tern completion zsh`\n_tern() {\n    local -a commands\n    commands=(");
    for (int i = 0; i < n_commands; i++) {
        out_putf("\n        '%s:", commands[i]->name);
        quoted_put(commands[i]->summary, ":\\");
        out_puts("'");
    }
    out_puts("\n    )\n"
             "    local command=chat\n"
             "    if [[ $words[2] != -* ]]; then\n"
             "        if (( CURRENT == 2 )); then\n"
             "            _describe command commands\n"
             "            return\n"
             "        fi\n"
             "        command=$words[2]\n"
             "        shift words\n"
             "        (( CURRENT-- ))\n"
             "    fi\n"
             "    case $command in\n");
}
static void zsh_end(void) {
    out_puts("    esac\n}\nif [[ $funcstack[1] == _tern ]]; then _tern \"$@\"; else compdef _tern tern; fi\n");
}

// ---------------------------------------------------------------------------------------------------------------- fish

static void fish_rows(void *arg, const struct command *c, const struct opt *const *tables) {
    (void)arg;
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++) {
            out_putf("complete -c tern -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name + 2);
            if (o->letter) out_putf(" -s %c", o->letter);
            if (o->arg) out_puts(takes_file(o) ? " -rF" : " -x");
            out_puts(" -d '");
            for (const char *z = o->help; *z; z++) {
                if (*z == '\'' || *z == '\\') out_puts("\\");
                out_put((struct str){z, 1});
            }
            out_puts("'\n");
        }
}

static void fish_begin(void) {
    out_puts("# fish completion of tern; made by `tern completion fish`\n");
    for (int i = 0; i < n_commands; i++) {
        out_putf("complete -c tern -n __fish_use_subcommand -f -a %s -d '", commands[i]->name);
        for (const char *z = commands[i]->summary; *z; z++) {
            if (*z == '\'' || *z == '\\') out_puts("\\");
            out_put((struct str){z, 1});
        }
        out_puts("'\n");
    }
    out_puts("complete -c tern -l help -s h -d 'tell the options'\n");
}
static void fish_end(void) {}

// ------------------------------------------------------------------------------------------------------------- command

static const struct shell {
    const char *name;
    void (*begin)(void);
    void (*rows)(void *arg, const struct command *c, const struct opt *const *tables);
    void (*end)(void);
} shells[] = {{"bash", bash_begin, bash_rows, bash_end},
              {"zsh", zsh_begin, zsh_rows, zsh_end},
              {"fish", fish_begin, fish_rows, fish_end}};

static int completion_main(const struct command *c, int argc, char **argv) {
    const struct opt *const tables[] = {NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    const struct shell *shell = NULL;
    for (size_t i = 0; i < ARRAY_LEN(shells) && n_args == 1; i++)
        if (strcmp(shells[i].name, argv[1]) == 0) shell = &shells[i];
    if (!shell) return usage_error(c, "one of bash, zsh, fish expected");
    shell->begin();
    code = EXIT_DONE;
    for (int i = 0; i < n_commands && code == EXIT_DONE; i++) code = command_help_hooked(commands[i], shell->rows);
    shell->end();
    return code;
}

const struct command command_completion = {"completion", "bash|zsh|fish",
                                           "completion of commands and options in a shell",
                                           "bash:  source <(tern completion bash)\n"
                                           "zsh:   source <(tern completion zsh)\n"
                                           "fish:  tern completion fish | source\n"
                                           "`make install` puts them where the shells look.",
                                           completion_main};
