// tern chat: a conversation at the terminal; piped input is one message.
#include "base/base.h"
#include "app.h"

#include <stdio.h>

#define QUOTES "\"\"\"" // around a message of several lines

struct chat {
    const struct command *command;
    struct tern_engine *engine;
    struct tern_session *session;
    struct tern_request_options request;
    const char *system;
    struct buf messages; // JSON array items, without the brackets
    bool terminal, stats;
};

static void message_put(struct chat *c, const char *role, struct str content) {
    if (c->messages.len > 0) buf_puts(&c->messages, ", ");
    buf_putf(&c->messages, "{\"role\": \"%s\", \"content\": ", role);
    json_put_quoted(&c->messages, content);
    buf_puts(&c->messages, "}");
}

static void chat_reset(struct chat *c) {
    buf_clear(&c->messages);
    if (c->system) message_put(c, "system", str_from(c->system));
}

// One user message and its answer. A failed turn leaves the conversation as it was.
static int chat_turn(struct chat *c, struct str text) {
    size_t before = c->messages.len;
    message_put(c, "user", text);
    struct buf array;
    buf_init(&array, APP_TEXT_BYTES_MAX);
    buf_putf(&array, "[%s]", c->messages.data);
    struct tern_request_options r = c->request;
    r.messages_json = (struct tern_str){array.data, array.len};
    struct answer_view v;
    answer_view_init(&v, true);
    struct tern_err err = {0};
    int code = EXIT_DONE;
    if (answer_view_run(&v, c->session, &r, &err) != TERN_OK) {
        code = fail_told(c->command, &err);
        if (c->terminal && err.code == TERN_CONTEXT_FULL) fprintf(stderr, "(/reset starts a new conversation)\n");
        c->messages.len = before;
        if (c->messages.data) c->messages.data[before] = 0;
    } else {
        if (v.n_calls > 0) out_putf("[%s]", v.calls.data);
        if (v.text.len == 0 || v.n_calls > 0 || v.text.data[v.text.len - 1] != '\n') out_puts("\n");
        out_flush();
        message_put(c, "assistant", buf_str(&v.text));
        if (v.finish == TERN_FINISH_CANCELLED) {
            fprintf(stderr, "(stopped)\n");
            if (!c->terminal) code = EXIT_INTERRUPTED;
        }
        if (c->stats) usage_tell(&v.usage);
    }
    answer_view_release(&v);
    buf_release(&array);
    return code;
}

static void chat_help(void) {
    fprintf(stderr, "/reset  new conversation\n/stats  show speeds after each answer, or stop showing them\n"
                    "/help   this list\n/bye    end (as does the end of input)\n"
                    "\"\"\"     begins a message of several lines, and ends it\nCtrl-C stops an answer; twice quits\n");
}

// True when the line was a command. *end: leave.
static bool chat_command(struct chat *c, struct str line, bool *end) {
    if (line.len == 0 || line.data[0] != '/') return false;
    if (str_eqz(line, "/bye") || str_eqz(line, "/exit") || str_eqz(line, "/quit"))
        *end = true;
    else if (str_eqz(line, "/reset"))
        chat_reset(c);
    else if (str_eqz(line, "/stats"))
        c->stats = !c->stats;
    else {
        if (!str_eqz(line, "/help")) fprintf(stderr, "no such command\n");
        chat_help();
    }
    return true;
}

static bool line_read(struct buf *line) {
    int ch;
    while ((ch = getchar()) != EOF && ch != '\n') buf_putc(line, (char)ch);
    return ch != EOF;
}

// The lines between two of QUOTES, the first of which begins `line` and is taken off.
static bool lines_read(struct buf *line) {
    const struct str quotes = STR(QUOTES);
    line->len -= quotes.len;
    memmove(line->data, line->data + quotes.len, line->len);
    bool more = true;
    while (more && !str_ends(str_trim(buf_str(line)), quotes)) {
        fprintf(stderr, ". ");
        buf_putc(line, '\n');
        more = line_read(line);
    }
    while (line->len > 0 && strchr(" \t\r\n", line->data[line->len - 1])) line->len--;
    if (str_ends(buf_str(line), quotes)) line->len -= quotes.len;
    return more;
}

static int chat_terminal(struct chat *c) {
    struct tern_model_info info;
    tern_engine_info(c->engine, &info);
    fprintf(stderr, "%s (%s, %s) on %s, %d threads. /help lists commands.\n", info.name, info.format, info.numerics,
            info.kernels, info.n_threads);
    struct buf line;
    buf_init(&line, APP_TEXT_BYTES_MAX);
    bool end = false;
    while (!end) {
        fprintf(stderr, "> ");
        buf_clear(&line);
        end = !line_read(&line);
        if (!end && str_starts(buf_str(&line), STR(QUOTES))) end = !lines_read(&line);
        struct str text = str_trim(buf_str(&line));
        if (text.len == 0 || chat_command(c, text, &end)) continue;
        chat_turn(c, text);
    }
    fprintf(stderr, "\n");
    buf_release(&line);
    return EXIT_DONE;
}

static int chat_piped(struct chat *c) {
    struct buf text;
    struct tern_err err = {0};
    buf_init(&text, APP_TEXT_BYTES_MAX);
    int code = EXIT_DONE;
    if (file_read_all(&text, "-", &err) != TERN_OK) code = fail_told(c->command, &err);
    struct str s = buf_str(&text);
    if (s.len > 0 && s.data[s.len - 1] == '\n') s.len--;
    if (code == EXIT_DONE && str_trim(s).len > 0) code = chat_turn(c, s);
    buf_release(&text);
    return code;
}

static int chat_main(const struct command *command, int argc, char **argv) {
    struct model_opts model;
    struct sample_opts sample;
    struct chat c = {.command = command, .terminal = tty_is(0)};
    model_opts_init(&model);
    sample_opts_init(&sample);
    struct opt model_rows[MODEL_OPTS_N], sample_rows[SAMPLE_OPTS_N];
    model_opts_table(&model, model_rows);
    sample_opts_table(&sample, sample_rows);
    const struct opt rows[] = {{"--system", 's', "TEXT", OPT_TEXT, &c.system, 0, 0, "system message"},
                               {"--stats", 0, NULL, OPT_FLAG, &c.stats, 0, 0, "counts and speeds after each answer"},
                               {0}};
    const struct opt *const tables[] = {rows, sample_rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(command, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 0) return usage_error(command, "no arguments expected; for one answer use `tern run`");
    sample_opts_apply(&sample);
    c.request = sample.request;
    code = engine_open_told(command, &model, &c.engine);
    if (code != 0) return code;
    struct tern_err err = {0};
    buf_init(&c.messages, APP_TEXT_BYTES_MAX);
    if (tern_session_open(&c.session, c.engine, &err) != TERN_OK) {
        code = fail_told(command, &err);
    } else {
        chat_reset(&c);
        code = c.terminal ? chat_terminal(&c) : chat_piped(&c);
    }
    tern_session_close(c.session);
    tern_engine_close(c.engine);
    buf_release(&c.messages);
    return code;
}

const struct command command_chat = {"chat", "", "talk with a model", NULL, chat_main};
