// Private to app/: a conversation, and the commands that a person gives it at the terminal.
#pragma once
#include "app.h"
#include "term/term.h"

struct chat {
    const struct command *command;
    struct tern_engine *engine;
    struct tern_session *session;
    struct tern_request_options request;
    struct buf system;   // text of the system message; empty: none
    struct buf messages; // JSON array items behind the system message, without the brackets
    struct buf turns;    // size_t: where in `messages` each user message begins
    struct buf saved;    // the file of the last /save or /load, which /save writes again; empty: none
    bool terminal, stats, no_history;
};

// The conversation so far as a JSON array.
void chat_array_put(const struct chat *c, struct buf *out);
// Such an array takes the conversation's place, or on failure nothing has changed.
enum tern_status chat_array_take(struct chat *c, struct str text, struct tern_err *err);
// A line that begins with '/'. False when it is no command. *end: leave.
bool chat_command(struct chat *c, struct str line, bool *end);
extern const struct term_word chat_words[]; // their names, for the line editor
