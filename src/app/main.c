// The program `tern`: finds the command and runs it. Without a command it chats.
#define _POSIX_C_SOURCE 200112L // setenv
#include "base/base.h"
#include "app.h"

#include <signal.h>
#include <stdlib.h>

// In the order of `tern --help`, whose headings help_command.c has.
const struct command *const commands[] = {
    &command_chat,    &command_run,       &command_serve,    &command_batch,    &command_pull,       &command_list,
    &command_rm,      &command_show,      &command_quantize, &command_cache,    &command_doctor,     &command_bench,
    &command_compare, &command_calibrate, &command_tokenize, &command_template, &command_perplexity, &command_explain,
    &command_route,   &command_compile,   &command_fidelity, &command_validate, &command_study,      &command_config,
    &command_help,    &command_completion};
const int n_commands = (int)ARRAY_LEN(commands);

static const char *command_nth(const void *arg, int i) {
    (void)arg;
    return i < n_commands ? commands[i]->name : NULL;
}

const char *command_nearest(const char *given) {
    // Names by which other programs call these.
    static const char *const names[][2] = {
        {"ls", "list"},      {"models", "list"},  {"download", "pull"},   {"install", "pull"}, {"remove", "rm"},
        {"delete", "rm"},    {"generate", "run"}, {"complete", "run"},    {"ask", "run"},      {"info", "show"},
        {"inspect", "show"}, {"api", "serve"},    {"convert", "quantize"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i][0], given) == 0) return names[i][1];
    return name_nearest(given, command_nth, NULL);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // a broken pipe is an error of the write, seen by out_put
    // hwloc would complain on stderr where /sys is not mounted; the processors allowed to us are known without it.
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    const struct command *command = &command_chat;
    if (argc > 1 && argv[1][0] != '-') {
        command = NULL;
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
            if (strcmp(commands[i]->name, argv[1]) == 0) command = commands[i];
        if (!command) {
            struct buf b;
            buf_init(&b, 512);
            str_put_escaped(&b, str_from(argv[1]), 60);
            struct tern_err err = {0};
            const char *near = command_nearest(argv[1]);
            if (near)
                err_set(&err, TERN_NOT_FOUND, "no command '%s'; did you mean `tern %s`?", b.data, near);
            else
                err_set(&err, TERN_NOT_FOUND, "no command '%s'; `tern --help` lists them", b.data);
            buf_release(&b);
            fail_told(NULL, &err);
            return EXIT_USAGE;
        }
        argv++;
        argc--;
    } else if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        help_overview_print();
        out_flush();
        return EXIT_DONE;
    } else if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        out_putf("tern %s\n", tern_version());
        out_flush();
        return EXIT_DONE;
    }
    int code = command->run(command, argc, argv);
    out_flush();
    return code;
}
