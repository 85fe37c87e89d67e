// Lines from a person at a terminal: edited keys, a history, completion by Tab, where libedit is built in; else what
// the terminal itself gives. Only the program links this folder.
//
// One editor at a time, used by one thread. While a line is read, Ctrl-C is TERM_INTERRUPTED and ends nothing; the
// handler of before is there again afterwards. Prompts and what is typed go to stderr, so stdout holds answers only.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/base.h"

#define TERM_LINE_BYTES_MAX (16u << 20) // typed or pasted
#define TERM_HISTORY_MAX 1000           // messages kept

struct term_word { // completed at the beginning of a line
    const char *name;
    bool takes_file; // what comes behind it is completed as a file's name
};
struct term_options {
    const char *history_path;      // file of earlier lines, made with its folder at the first one; NULL: none
    const struct term_word *words; // ends with name NULL
};
enum term_event { TERM_LINE, TERM_INTERRUPTED, TERM_END };

struct term; // the editor
// *history_fault is set when earlier lines cannot be kept, which stops nothing (code TERN_OK: they can).
enum tern_status term_open(struct term **out, const struct term_options *o, struct tern_err *history_fault,
                           struct tern_err *err);
void term_close(struct term *t);
// One line without its end, put behind what `out` holds; it has line ends inside where the person typed or pasted them.
enum term_event term_read(struct term *t, const char *prompt, struct buf *out);
// The message comes back with the up-arrow, in later runs too. One that begins with a blank is not kept.
void term_remember(struct term *t, struct str message, struct tern_err *history_fault);
bool term_edits(const struct term *t); // false: the terminal's own line editing

// "libedit", or why there is no line editor here; *usable tells which.
const char *term_editor_note(bool *usable);
