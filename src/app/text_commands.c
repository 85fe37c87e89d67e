// tern tokenize and tern template: what the model gets to see.
#include "base/base.h"
#include "app.h"

#include <stdio.h>

static int ids_print(const struct command *c, const struct tern_engine *e, struct str text, bool bos, bool special,
                     bool json) {
    struct tern_err err = {0};
    struct tern_str t = {text.data, text.len};
    int64_t n = tern_tokenize(e, t, bos, special, NULL, 0, &err);
    if (n < 0) return fail_told(c, &err);
    int32_t *ids = mem_alloc((size_t)n * sizeof *ids + 1);
    if (!ids) return err_set(&err, TERN_NO_MEMORY, "no memory for %lld tokens", (long long)n), fail_told(c, &err);
    n = tern_tokenize(e, t, bos, special, ids, (size_t)n, &err);
    if (json) out_puts("[");
    for (int64_t i = 0; i < n; i++) out_putf("%s%d", i == 0 ? "" : json ? ", " : " ", ids[i]);
    out_puts(json ? "]\n" : "\n");
    mem_free(ids);
    return EXIT_DONE;
}

static int ids_decode(const struct command *c, const struct tern_engine *e, int n_args, char **argv) {
    struct tern_err err = {0};
    for (int i = 1; i <= n_args; i++) {
        int64_t v;
        if (!str_to_i64(str_from(argv[i]), &v) || v < INT32_MIN || v > INT32_MAX)
            return usage_error(c, "--decode wants token ids, not '%s'", argv[i]);
        int32_t id = (int32_t)v;
        char bytes[4096];
        int64_t len = tern_detokenize(e, &id, 1, true, bytes, sizeof bytes, &err);
        if (len < 0) return fail_told(c, &err);
        out_put((struct str){bytes, MIN((size_t)len, sizeof bytes)});
    }
    out_puts("\n");
    return EXIT_DONE;
}

static int tokenize_main(const struct command *c, int argc, char **argv) {
    struct model_opts model;
    model_opts_init(&model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&model, model_rows);
    const char *file = NULL;
    bool special = false, bos = false, json = false, decode = false;
    const struct opt rows[] = {
        {"--file", 'f', "FILE", OPT_TEXT, &file, 0, 0, "read the text from a file (-: standard input)"},
        {"--special", 0, NULL, OPT_FLAG, &special, 0, 0, "control markers in the text count"},
        {"--bos", 0, NULL, OPT_FLAG, &bos, 0, 0, "begin with the begin token where the model wants one"},
        {"--decode", 'd', NULL, OPT_FLAG, &decode, 0, 0, "the arguments are ids: print their text"},
        {"--json", 0, NULL, OPT_FLAG, &json, 0, 0, "ids as a JSON array"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (!decode && n_args > 1) return usage_error(c, "one text expected; put it in quotes");
    if (decode && n_args == 0) return usage_error(c, "--decode wants token ids");
    struct buf text = {0};
    bool found = true;
    if (!decode)
        code = prompt_read(c, n_args == 1 ? argv[1] : NULL, file, &text, &found);
    else
        code = 0;
    if (code == 0 && !found)
        code = usage_error(c, "no text: give it as the argument, with -f FILE, or on standard input");
    struct tern_engine *e = NULL;
    model.engine.unit = "null"; // only the tokenizer is needed
    if (code == 0) code = engine_open_told(c, &model, &e);
    if (code == 0) code = decode ? ids_decode(c, e, n_args, argv) : ids_print(c, e, buf_str(&text), bos, special, json);
    tern_engine_close(e);
    buf_release(&text);
    return code;
}

const struct command command_tokenize = {"tokenize", "[TEXT]", "token ids of a text, or the text of ids", NULL,
                                         tokenize_main};

static int template_print(const struct command *c, const struct tern_engine *e, struct str messages, struct str tools,
                          bool prompt) {
    struct tern_err err = {0};
    struct tern_str m = {messages.data, messages.len}, t = {tools.data, tools.len};
    int64_t n = tern_template_render(e, m, t, prompt, NULL, 0, &err);
    if (n < 0) return fail_told(c, &err);
    char *out = mem_alloc((size_t)n + 1);
    if (!out) return err_set(&err, TERN_NO_MEMORY, "no memory for %lld bytes", (long long)n), fail_told(c, &err);
    n = tern_template_render(e, m, t, prompt, out, (size_t)n, &err);
    out_put((struct str){out, (size_t)n});
    mem_free(out);
    return EXIT_DONE;
}

static int template_main(const struct command *c, int argc, char **argv) {
    struct model_opts model;
    model_opts_init(&model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&model, model_rows);
    const char *file = NULL, *tools_file = NULL;
    bool no_prompt = false;
    const struct opt rows[] = {
        {"--file", 'f', "FILE", OPT_TEXT, &file, 0, 0, "JSON array of messages (-: standard input)"},
        {"--tools", 0, "FILE", OPT_TEXT, &tools_file, 0, 0, "JSON array of tools"},
        {"--no-prompt", 0, NULL, OPT_FLAG, &no_prompt, 0, 0, "without the opening of the assistant's turn"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 1) return usage_error(c, "one JSON array of messages expected");
    struct buf messages = {0}, tools;
    buf_init(&tools, APP_TEXT_BYTES_MAX);
    bool found;
    struct tern_err err = {0};
    code = prompt_read(c, n_args == 1 ? argv[1] : NULL, file, &messages, &found);
    if (code == 0 && !found)
        code = usage_error(c, "no messages: give a JSON array as the argument, with -f FILE, or on standard input");
    if (code == 0 && tools_file && file_read_all(&tools, tools_file, &err) != TERN_OK) code = fail_told(c, &err);
    struct tern_engine *e = NULL;
    model.engine.unit = "null";
    if (code == 0) code = engine_open_told(c, &model, &e);
    if (code == 0) code = template_print(c, e, buf_str(&messages), buf_str(&tools), !no_prompt);
    tern_engine_close(e);
    buf_release(&messages);
    buf_release(&tools);
    return code;
}

const struct command command_template = {
    "template", "[MESSAGES]", "a conversation as the model's chat template writes it",
    "MESSAGES is a JSON array such as [{\"role\": \"user\", \"content\": \"Hello\"}].", template_main};
