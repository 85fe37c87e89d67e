// The program `tern`: finds the command and runs it. Without a command it chats.
#include "base/base.h"
#include "app.h"

#include <signal.h>
#include <stdlib.h>

static const struct command *const commands[] = {
    &command_chat,     &command_run,      &command_serve,      &command_bench,   &command_show,
    &command_tokenize, &command_template, &command_perplexity, &command_explain, &command_doctor,
    &command_cache,    &command_quantize, &command_compile,    &command_study,   &command_calibrate,
    &command_fidelity, &command_list,     &command_compare,    &command_pull,    &command_rm};

static void help_print(void) {
    out_puts("tern: run a language model on this machine\n\nusage: tern COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) out_putf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    out_puts(
        "\nWithout a command tern chats; without a model it uses the small built-in one (pico).\n"
        "`tern COMMAND --help` tells the options. Environment: TERN_MODEL (default model), TERN_CPU (bound on the\n"
        "instruction set), TERN_LOG (error, warn, info, debug), TERN_PROFILE=1, XDG_CACHE_HOME, TERN_CACHE_BYTES;\n"
        "of the npu unit TERN_NPU_CTX, TERN_NPU_OBSERVE, TERN_NPU_SCALES, TERN_NPU_PACKAGES (doc/npu.md).\n");
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
            err_set(&err, TERN_NOT_FOUND, "no command '%s'; `tern --help` lists them", b.data);
            buf_release(&b);
            fail_told(NULL, &err);
            return EXIT_USAGE;
        }
        argv++;
        argc--;
    } else if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        help_print();
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
