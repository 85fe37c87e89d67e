// The commands of tern chat: lines that begin with a slash. They answer on stderr; a conversation is a file of the JSON
// array that `tern template` and other programs read.
#include "base/base.h"
#include "chat.h"

#include <stdio.h>

enum word { WORD_HELP, WORD_RESET, WORD_UNDO, WORD_SYSTEM, WORD_SAVE, WORD_LOAD, WORD_STATS, WORD_BYE, WORDS_N };
const struct term_word chat_words[WORDS_N + 1] = {
    [WORD_HELP] = {"/help", false},     [WORD_RESET] = {"/reset", false}, [WORD_UNDO] = {"/undo", false},
    [WORD_SYSTEM] = {"/system", false}, [WORD_SAVE] = {"/save", true},    [WORD_LOAD] = {"/load", true},
    [WORD_STATS] = {"/stats", false},   [WORD_BYE] = {"/bye", false},
};

static void help_show(void) {
    fprintf(stderr, "/reset         new conversation\n"
                    "/undo          take back the last message and its answer\n"
                    "/system TEXT   system message from here on; alone: show it; off: none\n"
                    "/save FILE     write the conversation (JSON); again without FILE\n"
                    "/load FILE     go on with a saved one\n"
                    "/stats         show speeds after each answer, or stop showing them\n"
                    "/help          this list\n"
                    "/bye           end (as does Ctrl-D)\n"
                    "Ctrl-C stops an answer, or drops the line\n"
                    "\\ at the end of a line, or Alt-Enter: the message goes on; \"\"\" begins and ends one of several "
                    "lines\n");
}

static void told(const struct tern_err *err) { fprintf(stderr, "%s\n", err->message); }

void chat_array_put(const struct chat *c, struct buf *out) {
    buf_puts(out, "[");
    if (c->system.len > 0) {
        buf_puts(out, "{\"role\": \"system\", \"content\": ");
        json_put_quoted(out, buf_str(&c->system));
        buf_puts(out, c->messages.len > 0 ? "}, " : "}");
    }
    if (c->messages.len > 0) buf_put(out, c->messages.data, c->messages.len);
    buf_puts(out, "]");
}

static void undo(struct chat *c) {
    size_t at;
    if (c->turns.len < sizeof at) {
        fprintf(stderr, "(nothing to take back)\n");
        return;
    }
    c->turns.len -= sizeof at;
    memcpy(&at, c->turns.data + c->turns.len, sizeof at);
    c->messages.len = at;
    c->messages.data[at] = 0;
}

static void system_set(struct chat *c, struct str text) {
    if (text.len == 0) {
        if (c->system.len == 0) fprintf(stderr, "(no system message)\n");
        if (c->system.len > 0) fprintf(stderr, "%s\n", c->system.data);
        return;
    }
    buf_clear(&c->system);
    if (!str_eqz(text, "off")) buf_put(&c->system, text.data, text.len);
}

// ~ and ~/ are the home folder.
static bool path_take(struct str given, struct buf *path) {
    const char *home = env_get("HOME");
    if (home && (str_eqz(given, "~") || str_starts(given, STR("~/")))) {
        buf_puts(path, home);
        given.data++;
        given.len--;
    }
    return buf_put(path, given.data, given.len);
}

static void save(struct chat *c, struct str given) {
    struct tern_err err = {0};
    struct os_stat st;
    struct buf path, text;
    buf_init(&path, APP_TEXT_BYTES_MAX);
    buf_init(&text, APP_TEXT_BYTES_MAX);
    path_take(given.len > 0 ? given : buf_str(&c->saved), &path);
    chat_array_put(c, &text);
    buf_puts(&text, "\n");
    bool ours = c->saved.len > 0 && str_eq(buf_str(&path), buf_str(&c->saved));
    if (path.len == 0)
        fprintf(stderr, "(/save FILE)\n");
    else if (!ours && os_stat_get(&st, path.data))
        fprintf(stderr, "%s: is there already; another name, or remove it first\n", path.data);
    else if (path.failed || text.failed)
        fprintf(stderr, "no memory for the conversation\n");
    else if (file_write_atomic(path.data, text.data, text.len, &err) != TERN_OK)
        told(&err);
    else {
        fprintf(stderr, "(saved: %s)\n", path.data);
        if (!ours) {
            buf_clear(&c->saved);
            buf_put(&c->saved, path.data, path.len);
        }
    }
    buf_release(&text);
    buf_release(&path);
}

// What a file holds, before it takes the conversation's place.
struct loaded {
    struct buf system, messages, turns;
};

static enum tern_status message_load(struct loaded *l, struct json *j, struct str text, size_t start,
                                     struct tern_err *err) {
    struct buf role, content;
    buf_init(&role, 32);
    buf_init(&content, APP_TEXT_BYTES_MAX);
    struct json_item item;
    enum tern_status status = TERN_OK;
    enum json_event event;
    while (status == TERN_OK && (event = json_next(j, &item, err)) == JSON_KEY) {
        struct buf *to = str_eqz(item.text, "role") ? &role : str_eqz(item.text, "content") ? &content : NULL;
        if (!to) {
            status = json_skip(j, err);
        } else {
            event = json_next(j, &item, err);
            if (event == JSON_STRING) buf_put(to, item.text.data, item.text.len);
            if (event == JSON_OBJECT || event == JSON_ARRAY) status = json_skip(j, err);
            if (event == JSON_ERROR) status = err->code;
        }
    }
    if (status == TERN_OK && event == JSON_ERROR) status = err->code;
    size_t end = status == TERN_OK ? item.pos + 1 : start;
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    size_t kind = 0;
    while (kind < ARRAY_LEN(roles) && !str_eqz(buf_str(&role), roles[kind])) kind++;
    if (status == TERN_OK && kind == ARRAY_LEN(roles))
        status =
            err_set_at(err, TERN_BAD_FORMAT, (int64_t)start, "message without a role of system, user, assistant, tool");
    if (status == TERN_OK && kind == 0) {
        if (l->messages.len > 0 || l->system.len > 0)
            status = err_set_at(err, TERN_BAD_FORMAT, (int64_t)start, "a system message that is not the first");
        buf_put(&l->system, content.data, content.len);
    } else if (status == TERN_OK) {
        size_t at = l->messages.len;
        if (kind == 1) buf_put(&l->turns, &at, sizeof at);
        if (at > 0) buf_puts(&l->messages, ", ");
        buf_put(&l->messages, text.data + start, end - start);
    }
    buf_release(&content);
    buf_release(&role);
    return status;
}

static enum tern_status array_load(struct loaded *l, struct str text, struct tern_err *err) {
    struct json *j;
    struct json_item item;
    TRY(json_create(&j, text, &(struct json_options){.dup_check = true}, err));
    enum tern_status status = json_expect(j, JSON_ARRAY, &item, "a conversation (an array of messages)", err);
    enum json_event event = JSON_OBJECT;
    while (status == TERN_OK && (event = json_next(j, &item, err)) == JSON_OBJECT)
        status = message_load(l, j, text, item.pos, err);
    if (status == TERN_OK && event == JSON_ERROR) status = err->code;
    if (status == TERN_OK && event != JSON_ARRAY_END)
        status = err_set_at(err, TERN_BAD_FORMAT, (int64_t)item.pos, "a message must be an object");
    if (status == TERN_OK && json_next(j, &item, err) != JSON_END) status = err->code;
    if (status == TERN_OK && (l->system.failed || l->messages.failed || l->turns.failed))
        status = err_set(err, TERN_NO_MEMORY, "no memory for the conversation");
    json_free(j);
    return status;
}

static void swap(struct buf *a, struct buf *b) {
    struct buf t = *a;
    *a = *b;
    *b = t;
}

enum tern_status chat_array_take(struct chat *c, struct str text, struct tern_err *err) {
    struct loaded l;
    buf_init(&l.system, APP_TEXT_BYTES_MAX);
    buf_init(&l.messages, APP_TEXT_BYTES_MAX);
    buf_init(&l.turns, APP_TEXT_BYTES_MAX);
    enum tern_status status = array_load(&l, text, err);
    if (status == TERN_OK) {
        swap(&c->system, &l.system);
        swap(&c->messages, &l.messages);
        swap(&c->turns, &l.turns);
    }
    buf_release(&l.turns);
    buf_release(&l.messages);
    buf_release(&l.system);
    return status;
}

static void load(struct chat *c, struct str given) {
    struct tern_err err = {0};
    struct buf path, text;
    buf_init(&path, APP_TEXT_BYTES_MAX);
    buf_init(&text, APP_TEXT_BYTES_MAX);
    path_take(given, &path);
    if (path.len == 0) {
        fprintf(stderr, "(/load FILE)\n");
    } else if (file_read_all(&text, path.data, &err) != TERN_OK) {
        told(&err);
    } else if (chat_array_take(c, buf_str(&text), &err) != TERN_OK) {
        fprintf(stderr, "%s: ", path.data);
        told(&err);
    } else {
        swap(&c->saved, &path);
        fprintf(stderr, "(loaded; messages of yours in it: %zu)\n", c->turns.len / sizeof(size_t));
    }
    buf_release(&text);
    buf_release(&path);
}

static const char *word_nth(const void *arg, int i) {
    (void)arg;
    return chat_words[i].name;
}

bool chat_command(struct chat *c, struct str line, bool *end) {
    if (line.len == 0 || line.data[0] != '/') return false;
    char name[16];
    size_t len = 0;
    while (len < line.len && !strchr(" \t\n", line.data[len])) len++;
    snprintf(name, sizeof name, "%.*s", (int)MIN(len, sizeof name - 1), line.data);
    struct str rest = str_trim((struct str){line.data + len, line.len - len});
    int word = 0;
    while (word < WORDS_N && strcmp(name, chat_words[word].name) != 0) word++;
    if (strcmp(name, "/exit") == 0 || strcmp(name, "/quit") == 0) word = WORD_BYE;
    switch (word) {
    case WORD_HELP: help_show(); break;
    case WORD_RESET:
        buf_clear(&c->messages);
        buf_clear(&c->turns);
        break;
    case WORD_UNDO: undo(c); break;
    case WORD_SYSTEM: system_set(c, rest); break;
    case WORD_SAVE: save(c, rest); break;
    case WORD_LOAD: load(c, rest); break;
    case WORD_STATS:
        c->stats = !c->stats;
        fprintf(stderr, "(speeds are %s)\n", c->stats ? "shown" : "not shown");
        break;
    case WORD_BYE: *end = true; break;
    default: {
        if (len >= sizeof name || strchr(name + 1, '/')) return false; // a path is a message
        const char *near = name_nearest(name, word_nth, NULL);
        if (near) fprintf(stderr, "no command %s; did you mean %s?\n", name, near);
        if (!near) fprintf(stderr, "no command %s; /help lists them\n", name);
    }
    }
    return true;
}
