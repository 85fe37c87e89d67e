// Private to term/: the history, and what an editor (term_libedit.c, term_none.c) does.
#pragma once
#include "term/term.h"

#include <signal.h>

struct term_editor; // of libedit
struct term {
    struct term_editor *editor; // NULL: plain reading
    struct term_options options;
    char *history_path; // NULL: not kept
    struct str last;    // most recent message of this run, not put twice in a row
    char *last_data;
    char typed[4096]; // plain reading: what was read behind the last line
    size_t n_typed;
};

// The lines of a file, oldest first, each a JSON string. A file with more than twice TERM_HISTORY_MAX of them is
// written anew with the last ones.
enum tern_status history_load(const char *path, void (*fn)(void *arg, struct str line), void *arg,
                              struct tern_err *err);
enum tern_status history_add(const char *path, struct str line, struct tern_err *err);

extern volatile sig_atomic_t term_interrupted; // set by Ctrl-C while a line is read
enum term_event term_read_plain(struct term *t, const char *prompt, struct buf *out);

// TERN_UNSUPPORTED: plain reading is all there is.
enum tern_status term_editor_open(struct term_editor **out, const struct term_word *words, struct tern_err *err);
void term_editor_close(struct term_editor *e);
enum term_event term_editor_read(struct term_editor *e, const char *prompt, struct buf *out);
void term_editor_remember(struct term_editor *e, struct str message);
