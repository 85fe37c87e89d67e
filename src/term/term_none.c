// Without libedit: says so; term.c reads plainly.
#include "base/base.h"
#include "term/term_int.h"

const char *term_editor_note(bool *usable) {
    *usable = false;
    return "built without libedit: tern chat has no history and no completion (Debian: libedit-dev, then "
           "meson setup --wipe build)";
}
enum tern_status term_editor_open(struct term_editor **out, const struct term_word *words, struct tern_err *err) {
    (void)words;
    *out = NULL;
    return err_set(err, TERN_UNSUPPORTED, "built without libedit");
}
void term_editor_close(struct term_editor *e) { (void)e; }
enum term_event term_editor_read(struct term_editor *e, const char *prompt, struct buf *out) {
    (void)e;
    (void)prompt;
    (void)out;
    return TERM_END; // nobody asks an editor that did not open
}
void term_editor_remember(struct term_editor *e, struct str message) {
    (void)e;
    (void)message;
}
