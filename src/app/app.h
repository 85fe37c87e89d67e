// Private to app/: the commands of the program `tern` and what they share.
//
// Habits of every command: stdout holds only what was asked for, everything else goes to stderr; exit 0 done, 1 failed,
// 2 wrong usage, 130 interrupted; errors are one line that says what to do; a broken pipe ends quietly; a full disk is
// an error. Options are rows of tables from which parsing and --help are made.
#pragma once
#include "base/base.h"

#define EXIT_DONE 0
#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_INTERRUPTED 130
#define APP_TEXT_BYTES_MAX (256u << 20) // prompts and files read whole

// ------------------------------------------------------------------------------------------------------------ options

enum opt_type { OPT_FLAG, OPT_INT, OPT_U64, OPT_FLOAT, OPT_TEXT, OPT_TEXTS };
struct opt_texts { // a repeatable option
    const char *items[TERN_STOP_MAX];
    int n;
};
struct opt {
    const char *name; // "--model"
    char letter;      // 'm', or 0
    const char *arg;  // "FILE"; NULL for flags
    enum opt_type type;
    void *target;  // bool, int, uint64_t, float, const char *, struct opt_texts
    double lo, hi; // range of numbers
    const char *help;
};
struct command;
// Parses argv[1…) by the tables (each ends with name NULL; tables ends with NULL). Positional arguments stay, in order,
// in argv[1 … *n_args]. Returns false with *exit_code set: after --help (0) or a usage error (2, already told).
bool opts_parse(const struct command *c, const struct opt *const *tables, int argc, char **argv, int *n_args,
                int *exit_code);
// While fn is set, --help calls it instead of printing: so manual pages and completions are made of the same tables.
void opts_help_hook(void (*fn)(void *arg, const struct command *c, const struct opt *const *tables), void *arg);
bool opts_help_hooked(void);
// One setting from elsewhere: the option --name gets the value ("true" or "false" for flags), which must live on. where
// is told with errors. 0, or the exit code after telling.
int opts_set(const struct command *c, const struct opt *const *tables, const char *name, const char *value,
             const char *where);
// Edits between two names (Levenshtein, capitals as small letters), or a large number for long ones.
int name_distance(struct str a, struct str b);
// The name of the command or option that was probably meant; NULL: none is near.
const char *name_nearest(const char *given, const char *(*nth)(const void *arg, int i), const void *arg);
// The option that is named most like it, without its dashes; NULL: none is near.
const struct opt *opt_nearest(const struct opt *const *tables, const char *name);
// One line on stderr: "tern run: message" and where to look; returns EXIT_USAGE.
int usage_error(const struct command *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

struct command {
    const char *name;
    const char *args;    // "[PROMPT]"
    const char *summary; // one line
    const char *text;    // more for --help, or NULL
    int (*run)(const struct command *c, int argc, char **argv);
};
extern const struct command command_chat, command_run, command_bench, command_show, command_tokenize, command_template,
    command_perplexity, command_doctor, command_cache, command_explain, command_quantize, command_study,
    command_calibrate, command_fidelity, command_list, command_compare, command_pull, command_rm, command_serve,
    command_compile, command_validate, command_route, command_batch, command_config, command_help, command_completion;
extern const struct command *const commands[]; // all of them
extern const int n_commands;
const char *command_nearest(const char *given);
void help_overview_print(void);
// The command's --help, with its tables given to hook (NULL: printed). The exit code.
int command_help_hooked(const struct command *c,
                        void (*hook)(void *arg, const struct command *c, const struct opt *const *tables));

// ------------------------------------------------------------------------------------------------------------ engine

struct model_opts {
    struct tern_engine_options engine;
    const char *kv, *numerics, *draft; // names
    bool no_pack_cache;
};
void model_opts_init(struct model_opts *o);
// Rows for -m, --threads, --ctx, … bound to o. `table` has room for MODEL_OPTS_N rows.
#define MODEL_OPTS_N 17
void model_opts_table(struct model_opts *o, struct opt table[MODEL_OPTS_N]);
// After parsing: the texts of the options into o->engine, the built-in model when none is named. 0, or the exit code.
int model_opts_finish(const struct command *c, struct model_opts *o);
// The same, and opens the engine: the model named, $TERN_MODEL, or the built-in pico. Progress on a terminal. On
// failure tells and returns the exit code to use, else 0.
int engine_open_told(const struct command *c, struct model_opts *o, struct tern_engine **out);
// A model's name or path, as the user gave it, becomes the path to open, kept in `storage` (released by the caller). On
// failure tells and returns the exit code to use, else 0.
int model_path_told(const struct command *c, const char **path, struct buf *storage);
// The model used when none is named: its bytes in the program, or else (data NULL) the path it was installed under.
struct str builtin_model(const char **path);

// By name ("chain"); false: no such mode. names: for messages.
bool draft_mode_find(const char *name, enum tern_draft *out);
#define DRAFT_MODE_NAMES "off, chain, tree, ngram, auto"

struct constraint_opts {
    const char *schema, *grammar, *regex, *choice, *tool_choice;
    bool json_object;
};
#define CONSTRAINT_OPTS_N 7
void constraint_opts_table(struct constraint_opts *o, struct opt table[CONSTRAINT_OPTS_N]);
int constraint_opts_check(const struct command *c, const struct constraint_opts *o, bool has_tools);
// Opens what is asked for (*opened); notes go to stderr. 0, or the exit code after telling.
int constraint_open_told(const struct command *c, const struct constraint_opts *o, struct tern_engine *e,
                         struct str tools, struct tern_constraint *out, bool *opened);

struct sample_opts {
    struct tern_request_options request;
    struct opt_texts stop;
    int max_tokens;
    bool no_think;
};
void sample_opts_init(struct sample_opts *o);
#define SAMPLE_OPTS_N 15
void sample_opts_table(struct sample_opts *o, struct opt table[SAMPLE_OPTS_N]);
void sample_opts_apply(struct sample_opts *o); // texts into the request, after parsing

// ------------------------------------------------------------------------------------------------------------ output

// stdout, checked: a broken pipe ends the program quietly (exit 0 by `| head`), another fault ends it with exit 1.
void out_put(struct str s);
void out_puts(const char *z);
void out_putf(const char *fmt, ...) PRINTF_LIKE(1, 2);
void out_quoted(const char *z); // as a JSON string
void out_flush(void);
// "tern run: message" on stderr, escaped; returns EXIT_FAILED.
int fail_told(const struct command *c, const struct tern_err *err);

// ------------------------------------------------------------------------------------------------------------ answers

// Runs one request to its end and shows it.
struct answer_view {
    bool show;       // text to stdout as it comes
    struct buf text; // whole answer
    struct buf reasoning;
    struct buf calls;    // JSON array of {"name", "arguments"} objects, without the brackets
    struct buf logprobs; // JSON items, without the brackets, when the request asks for log-probabilities
    int n_calls;
    enum tern_finish finish;
    struct tern_usage usage;
    char draft[256]; // usage.draft outlives the request
    int32_t *ids;    // of the answer
    size_t n_ids;
};
void answer_view_init(struct answer_view *v, bool show);
void answer_view_release(struct answer_view *v);
enum tern_status answer_view_run(struct answer_view *v, struct tern_session *s, const struct tern_request_options *o,
                                 struct tern_err *err);
void usage_tell(const struct tern_usage *u); // one line of speeds on stderr

// Ctrl-C: the first cancels the request named here, the second quits.
void interrupt_watch(struct tern_request *r); // NULL: no request; Ctrl-C then quits at once
// From here on the program goes on after a Ctrl-C: of an answer the third quits, and between answers it is noted only.
void interrupt_hold(bool on);
bool interrupt_seen(void);

// Reads a prompt: from text (may be NULL), else from file ("-": standard input), else standard input when it is no
// terminal. Returns 0, or the exit code after telling. *found: false when there is nothing to read.
int prompt_read(const struct command *c, const char *text, const char *file, struct buf *out, bool *found);
