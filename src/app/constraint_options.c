// The options that hold an answer to a form: --schema, --json-object, --grammar, --regex, --choice, --tool-choice.
#include "base/base.h"
#include "app.h"

#include <stdio.h>

void constraint_opts_table(struct constraint_opts *o, struct opt table[CONSTRAINT_OPTS_N]) {
    const struct opt rows[CONSTRAINT_OPTS_N] = {
        {"--schema", 0, "FILE", OPT_TEXT, &o->schema, 0, 0, "the answer is JSON that fits this JSON schema"},
        {"--json-object", 0, NULL, OPT_FLAG, &o->json_object, 0, 0, "the answer is a JSON object"},
        {"--grammar", 0, "FILE", OPT_TEXT, &o->grammar, 0, 0, "the answer follows this grammar (GBNF, rule root)"},
        {"--regex", 0, "PATTERN", OPT_TEXT, &o->regex, 0, 0, "the whole answer matches this pattern"},
        {"--choice", 0, "A,B,…", OPT_TEXT, &o->choice, 0, 0, "the answer is one of these texts"},
        {"--tool-choice", 0, "NAME", OPT_TEXT, &o->tool_choice, 0, 0,
         "with --tools: the answer is a call, of the tool of this name or of any (required)"},
        {0}};
    memcpy(table, rows, sizeof rows);
}

// Texts with commas between, as a JSON list.
static void choices_put(struct buf *out, struct str list) {
    buf_puts(out, "[");
    for (size_t pos = 0; pos <= list.len;) {
        size_t end = str_find(list, STR(","), pos);
        if (end == (size_t)-1) end = list.len;
        if (pos > 0) buf_puts(out, ", ");
        json_put_quoted(out, (struct str){list.data + pos, end - pos});
        pos = end + 1;
    }
    buf_puts(out, "]");
}

static void tool_choice_put(struct buf *out, const char *name, struct str tools) {
    buf_puts(out, "{\"tools\": ");
    buf_put(out, tools.data, tools.len);
    if (strcmp(name, "required") != 0) {
        buf_puts(out, ", \"parallel\": false, \"name\": ");
        json_put_quoted(out, str_from(name));
    }
    buf_puts(out, "}");
}

int constraint_opts_check(const struct command *c, const struct constraint_opts *o, bool has_tools) {
    int n = (o->schema != NULL) + o->json_object + (o->grammar != NULL) + (o->regex != NULL) + (o->choice != NULL) +
            (o->tool_choice != NULL);
    if (n > 1)
        return usage_error(
            c, "one of --schema, --json-object, --grammar, --regex, --choice and --tool-choice, not %d of them", n);
    if (o->tool_choice && !has_tools) return usage_error(c, "--tool-choice goes with --tools");
    return EXIT_DONE;
}

int constraint_open_told(const struct command *c, const struct constraint_opts *o, struct tern_engine *e,
                         struct str tools, struct tern_constraint *out, bool *opened) {
    struct tern_err err = {0};
    struct buf spec;
    enum tern_constraint_kind kind = TERN_CONSTRAINT_JSON_OBJECT;
    const char *file = o->schema ? o->schema : o->grammar;
    int code = EXIT_DONE;
    buf_init(&spec, APP_TEXT_BYTES_MAX);
    *opened = o->json_object || file || o->regex || o->choice || o->tool_choice;
    if (o->schema) kind = TERN_CONSTRAINT_JSON_SCHEMA;
    if (o->grammar) kind = TERN_CONSTRAINT_GBNF;
    if (o->regex) {
        kind = TERN_CONSTRAINT_REGEX;
        buf_puts(&spec, o->regex);
    }
    if (o->choice) {
        kind = TERN_CONSTRAINT_CHOICE;
        choices_put(&spec, str_from(o->choice));
    }
    if (o->tool_choice) {
        kind = TERN_CONSTRAINT_TOOL_CALL;
        tool_choice_put(&spec, o->tool_choice, tools);
    }
    if (file && file_read_all(&spec, file, &err) != TERN_OK) code = fail_told(c, &err);
    if (code == EXIT_DONE && *opened &&
        tern_constraint_open(out, e, kind, (struct tern_str){spec.data, spec.len}, &err) != TERN_OK)
        code = fail_told(c, &err);
    *opened &= code == EXIT_DONE;
    const char *note = *opened ? tern_constraint_note(out) : NULL;
    if (note) fprintf(stderr, "tern %s: note: %s\n", c->name, note);
    buf_release(&spec);
    return code;
}
