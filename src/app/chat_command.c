// tern chat: a conversation at the terminal; piped input is one message.
#include "base/base.h"
#include "chat.h"

#include <stdio.h>

#define QUOTES "\"\"\"" // around a message of several lines

static void message_put(struct chat *c, const char *role, struct str content) {
    if (c->messages.len > 0) buf_puts(&c->messages, ", ");
    buf_putf(&c->messages, "{\"role\": \"%s\", \"content\": ", role);
    json_put_quoted(&c->messages, content);
    buf_puts(&c->messages, "}");
}

// One user message and its answer. A failed turn leaves the conversation as it was.
static int chat_turn(struct chat *c, struct str text) {
    size_t before = c->messages.len;
    message_put(c, "user", text);
    struct buf array;
    buf_init(&array, APP_TEXT_BYTES_MAX);
    chat_array_put(c, &array);
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
        buf_put(&c->turns, &before, sizeof before);
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

// The lines between two of QUOTES, the first of which begins `line` and is taken off.
static enum term_event lines_read(struct term *t, struct buf *line) {
    const struct str quotes = STR(QUOTES);
    line->len -= quotes.len;
    memmove(line->data, line->data + quotes.len, line->len);
    enum term_event event = TERM_LINE;
    while (event == TERM_LINE && !str_ends(str_trim(buf_str(line)), quotes)) {
        buf_putc(line, '\n');
        event = term_read(t, ". ", line);
    }
    while (line->len > 0 && strchr(" \t\r\n", line->data[line->len - 1])) line->len--;
    if (str_ends(buf_str(line), quotes)) line->len -= quotes.len;
    return event;
}

// One message: lines that end with a backslash go on (the editor keeps such lines together itself).
static enum term_event message_read(struct term *t, struct buf *line) {
    buf_clear(line);
    enum term_event event = term_read(t, "> ", line);
    if (event == TERM_LINE && str_starts(buf_str(line), STR(QUOTES))) return lines_read(t, line);
    while (event == TERM_LINE && !term_edits(t) && line->len > 0 && line->data[line->len - 1] == '\\') {
        line->data[line->len - 1] = '\n';
        event = term_read(t, ". ", line);
    }
    return event;
}

// $TERN_HISTORY, or $XDG_STATE_HOME/tern/chat_history, else ~/.local/state/tern/chat_history; NULL: none.
static const char *history_path(const struct chat *c, struct buf *path) {
    const char *given = env_get("TERN_HISTORY");
    char kept[4096];
    if (c->no_history || (given && strcmp(given, "off") == 0)) return NULL;
    buf_puts(path, given ? given : os_user_dir(OS_USER_STATE, "tern/chat_history", kept, sizeof kept));
    return path->len > 0 && !path->failed ? path->data : NULL;
}

static void chat_talk(struct chat *c, struct term *t) {
    struct buf line;
    struct tern_err history_err;
    buf_init(&line, APP_TEXT_BYTES_MAX);
    bool end = false, hinted = false;
    while (!end) {
        enum term_event event = message_read(t, &line);
        struct str text = str_trim(buf_str(&line));
        if (event == TERM_END) break; // what was begun is not sent
        if (event == TERM_INTERRUPTED) {
            if (!hinted) fprintf(stderr, "(Ctrl-D or /bye ends)\n");
            hinted = true;
            continue;
        }
        if (text.len == 0) continue;
        term_remember(t, line.data[0] == ' ' ? buf_str(&line) : text, &history_err);
        if (history_err.code != TERN_OK) fail_told(c->command, &history_err);
        if (!chat_command(c, text, &end)) chat_turn(c, text);
    }
    buf_release(&line);
}

static int chat_terminal(struct chat *c) {
    struct tern_model_info info;
    struct term *t;
    struct tern_err err = {0}, history_err;
    struct buf path;
    buf_init(&path, 1u << 16);
    struct term_options o = {.history_path = history_path(c, &path), .words = chat_words};
    int code = EXIT_DONE;
    if (term_open(&t, &o, &history_err, &err) != TERN_OK) {
        code = fail_told(c->command, &err);
    } else {
        if (history_err.code != TERN_OK) fail_told(c->command, &history_err);
        tern_engine_info(c->engine, &info);
        fprintf(stderr, "%s (%s, %s) on %s, %d threads. /help lists commands.\n", info.name, info.format, info.numerics,
                info.kernels, info.n_threads);
        interrupt_hold(true);
        chat_talk(c, t);
        interrupt_hold(false);
        term_close(t);
    }
    buf_release(&path);
    return code;
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
    const char *system = NULL;
    const struct opt rows[] = {{"--system", 's', "TEXT", OPT_TEXT, &system, 0, 0, "system message"},
                               {"--stats", 0, NULL, OPT_FLAG, &c.stats, 0, 0, "counts and speeds after each answer"},
                               {"--no-history", 0, NULL, OPT_FLAG, &c.no_history, 0, 0,
                                "keep no file of the messages typed (TERN_HISTORY=off is the same)"},
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
    struct buf *const bufs[] = {&c.system, &c.messages, &c.turns, &c.saved};
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) buf_init(bufs[i], APP_TEXT_BYTES_MAX);
    if (tern_session_open(&c.session, c.engine, &err) != TERN_OK) {
        code = fail_told(command, &err);
    } else {
        if (system) buf_puts(&c.system, system);
        code = c.terminal ? chat_terminal(&c) : chat_piped(&c);
    }
    tern_session_close(c.session);
    tern_engine_close(c.engine);
    for (size_t i = 0; i < ARRAY_LEN(bufs); i++) buf_release(bufs[i]);
    return code;
}

const struct command command_chat = {
    "chat", "", "talk with a model",
    "Ctrl-C stops an answer, Ctrl-D ends the chat (typed during an answer: behind it).\n"
    "Up-arrow and Ctrl-R find earlier messages, /help lists commands. Piped input is one message.\n"
    "Keys are libedit's and those of ~/.editrc. Messages typed are kept in $XDG_STATE_HOME/tern/chat_history\n"
    "(~/.local/state; TERN_HISTORY names another file), readable for you alone; one\n"
    "that begins with a blank is not.",
    chat_main};
