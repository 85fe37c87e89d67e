// Line editing by libedit. Chosen over readline for its licence (BSD; readline's GPL would be the program's), and
// because macOS and the BSDs have it.
//
// What libedit lacks is added as functions bound to keys: a bracketed paste comes into the line with its line ends,
// Alt-Enter and a backslash at the end of a line begin another, Tab completes commands. Its narrow interface reads by
// the locale, so the wide one is used and UTF-8 is converted here; the locale's character type must be UTF-8 all the
// same, because libedit writes by it, so C is replaced by C.UTF-8. Without that, and on a terminal that cannot move its
// cursor, there is no editor.
#define _GNU_SOURCE 1 // nl_langinfo, wide characters
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "term/term_int.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <wchar.h>

#define PROMPT_MAX 64

struct term_editor {
    EditLine *el;
    HistoryW *history;
    const struct term_word *words;
    wchar_t prompt[PROMPT_MAX];
};

static bool locale_is_utf8(void) { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

static const char *reason_none(void) {
    const char *name = env_get("TERM");
    if (!name || strcmp(name, "dumb") == 0) return "not on this terminal (TERM is unset or dumb)";
    if (!setlocale(LC_CTYPE, "") || !locale_is_utf8()) setlocale(LC_CTYPE, "C.UTF-8");
    if (!locale_is_utf8()) return "no UTF-8 locale on this machine (LC_CTYPE, C.UTF-8)";
    return NULL;
}

const char *term_editor_note(bool *usable) {
    const char *reason = reason_none();
    *usable = !reason;
    return reason ? reason : "libedit";
}

static struct term_editor *editor_of(EditLine *el) {
    void *e = NULL;
    el_wget(el, EL_CLIENTDATA, &e);
    return e;
}

static wchar_t *prompt_of(EditLine *el) { return editor_of(el)->prompt; }

// ---------------------------------------------------------------------------------------------------------------- text

// UTF-8 to wide characters, terminated; the caller frees. NULL: no memory.
static wchar_t *wide_make(struct str s) {
    wchar_t *w = mem_calloc(s.len + 1, sizeof *w);
    size_t n = 0;
    while (w && s.len > 0) {
        int bytes;
        uint32_t rune = utf8_decode(s, &bytes);
        w[n++] = (wchar_t)(rune == RUNE_BAD ? RUNE_REPLACEMENT : rune);
        s.data += bytes;
        s.len -= (size_t)bytes;
    }
    return w;
}

static void wide_put(struct buf *out, const wchar_t *w, size_t n) {
    for (size_t i = 0; i < n; i++) buf_put_rune(out, (uint32_t)w[i]);
}

// ---------------------------------------------------------------------------------------------------------------- keys

static unsigned char on_newline(EditLine *el, wint_t ch) {
    (void)ch;
    return el_winsertstr(el, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

// Enter: at the end of a backslash the message goes on; before the prompt is given back the line's end is shown.
static unsigned char on_enter(EditLine *el, wint_t ch) {
    const LineInfoW *l = el_wline(el);
    if (l->cursor > l->buffer && l->cursor == l->lastchar && l->cursor[-1] == L'\\') {
        el_deletestr(el, 1);
        return on_newline(el, ch);
    }
    el_cursor(el, (int)(l->lastchar - l->cursor));
    if (el_winsertstr(el, L"\n") != 0) return CC_ERROR;
    return CC_NEWLINE;
}

// What comes between ESC [200~ and ESC [201~. Line ends stay, other control characters but tabs are dropped: a paste
// moves no cursor and runs nothing.
static unsigned char on_paste(EditLine *el, wint_t ch) {
    static const wchar_t end[] = L"\033[201~";
    const size_t end_len = ARRAY_LEN(end) - 1;
    (void)ch;
    wchar_t *text = NULL;
    size_t n = 0, cap = 0;
    wchar_t c;
    bool room = true;
    while (el_wgetc(el, &c) == 1) {
        if (n + 1 >= cap && room) {
            size_t grown = MAX((size_t)256, cap * 2);
            wchar_t *more = grown * sizeof *text > TERM_LINE_BYTES_MAX * sizeof *text
                                ? NULL
                                : mem_realloc(text, grown * sizeof *text);
            if (more) text = more, cap = grown;
            room = more != NULL;
        }
        if (!room) { // the paste's end is looked for in what is thrown away, too
            if (n >= end_len)
                memmove(text, text + 1, (n - 1) * sizeof *text), n--;
            else
                break;
        }
        text[n++] = c;
        if (n >= end_len && wmemcmp(text + n - end_len, end, end_len) == 0) break;
    }
    n = room && n >= end_len ? n - end_len : 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        wchar_t one = text[i];
        if (one == L'\r') {
            if (i + 1 < n && text[i + 1] == L'\n') continue;
            one = L'\n';
        }
        if ((one < 32 && one != L'\n' && one != L'\t') || one == 127) continue;
        text[kept++] = one;
    }
    unsigned char code = CC_ERROR;
    if (kept > 0) {
        text[kept] = 0;
        code = el_winsertstr(el, text) == 0 ? CC_REFRESH : CC_ERROR;
    }
    mem_free(text);
    return code;
}

// Keys, not signals: a signal that comes just before the terminal is read would be noticed only at the next key.
static unsigned char on_ctrl_c(EditLine *el, wint_t ch) {
    (void)el;
    (void)ch;
    term_interrupted = 1;
    return CC_EOF;
}
static unsigned char on_ctrl_z(EditLine *el, wint_t ch) {
    (void)el;
    (void)ch;
    raise(SIGTSTP); // libedit's handler gives the terminal back first
    return CC_REFRESH;
}

// The words that begin as the line does: how many, one of them, and how far all of them agree.
static int words_find(const struct term_word *words, struct str begun, const struct term_word **one, size_t *agree) {
    int n = 0;
    for (const struct term_word *w = words; w && w->name; w++) {
        struct str name = str_from(w->name);
        if (!str_starts(name, begun)) continue;
        if (n++ == 0) {
            *one = w;
            *agree = name.len;
        }
        size_t same = 0;
        while (same < *agree && (*one)->name[same] == w->name[same]) same++;
        *agree = same;
    }
    return n;
}

static void words_show(const struct term_word *words, struct str begun) {
    fputs("\n", stderr);
    for (const struct term_word *w = words; w->name; w++)
        if (str_starts(str_from(w->name), begun)) fprintf(stderr, "%s  ", w->name);
    fputs("\n", stderr);
}

static unsigned char on_tab(EditLine *el, wint_t ch) {
    struct term_editor *e = editor_of(el);
    const LineInfoW *l = el_wline(el);
    struct buf line, rest;
    buf_init(&line, TERM_LINE_BYTES_MAX);
    buf_init(&rest, TERM_LINE_BYTES_MAX);
    wide_put(&line, l->buffer, (size_t)(l->cursor - l->buffer));
    unsigned char code = CC_ERROR;
    const struct term_word *one = NULL;
    size_t agree = 0, blank = line.data ? str_find(buf_str(&line), STR(" "), 0) : (size_t)-1;
    if (blank != (size_t)-1) {
        for (const struct term_word *w = e->words; w && w->name; w++)
            if (w->takes_file && str_eq(str_from(w->name), (struct str){line.data, blank}))
                code = _el_fn_complete(el, (int)ch);
    } else if (line.len > 0 && words_find(e->words, buf_str(&line), &one, &agree) > 0) {
        bool whole = one->name[agree] == 0;
        if (agree > line.len || whole) {
            buf_put(&rest, one->name + line.len, agree - line.len);
            if (whole && one->takes_file) buf_puts(&rest, " ");
            wchar_t *w = wide_make(buf_str(&rest));
            if (w && (w[0] == 0 || el_winsertstr(el, w) == 0)) code = CC_REFRESH;
            mem_free(w);
        } else {
            words_show(e->words, buf_str(&line));
            code = CC_REDISPLAY;
        }
    }
    buf_release(&rest);
    buf_release(&line);
    return code;
}

// -------------------------------------------------------------------------------------------------------------- editor

static void keys_bind(EditLine *el) {
    el_wset(el, EL_ADDFN, L"tern-newline", L"begin another line", on_newline);
    el_wset(el, EL_ADDFN, L"tern-enter", L"end the message", on_enter);
    el_wset(el, EL_ADDFN, L"tern-paste", L"take a paste as it is", on_paste);
    el_wset(el, EL_ADDFN, L"tern-tab", L"complete a command", on_tab);
    el_wset(el, EL_ADDFN, L"tern-drop", L"drop the line", on_ctrl_c);
    el_wset(el, EL_ADDFN, L"tern-suspend", L"back to the shell", on_ctrl_z);
    el_wset(el, EL_SETTY, L"-d", L"-isig", NULL);
    el_wset(el, EL_BIND, L"^C", L"tern-drop", NULL);
    el_wset(el, EL_BIND, L"^Z", L"tern-suspend", NULL);
    el_wset(el, EL_BIND, L"\033\r", L"tern-newline", NULL);
    el_wset(el, EL_BIND, L"\033\n", L"tern-newline", NULL);
    el_wset(el, EL_BIND, L"\r", L"tern-enter", NULL);
    el_wset(el, EL_BIND, L"\n", L"tern-enter", NULL);
    el_wset(el, EL_BIND, L"\033[200~", L"tern-paste", NULL);
    el_wset(el, EL_BIND, L"\t", L"tern-tab", NULL);
    el_wset(el, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
    // As in shells; libedit's own is to take the line's whole rest, or nothing.
    el_wset(el, EL_BIND, L"^W", L"ed-delete-prev-word", NULL);
    el_wset(el, EL_BIND, L"\033[3~", L"ed-delete-next-char", NULL);
    el_wset(el, EL_BIND, L"\033[1;5D", L"ed-prev-word", NULL);
    el_wset(el, EL_BIND, L"\033[1;5C", L"em-next-word", NULL);
}

enum tern_status term_editor_open(struct term_editor **out, const struct term_word *words, struct tern_err *err) {
    *out = NULL;
    const char *reason = reason_none();
    if (reason || !tty_is(0) || !tty_is(2))
        return err_set(err, TERN_UNSUPPORTED, "%s", reason ? reason : "no terminal");
    struct term_editor *e = mem_calloc(1, sizeof *e);
    if (!e) return err_set(err, TERN_NO_MEMORY, "no memory for the line editor");
    *out = e;
    e->words = words;
    HistEventW event;
    e->history = history_winit();
    e->el = e->history ? el_init("tern", stdin, stderr, stderr) : NULL;
    if (!e->el || history_w(e->history, &event, H_SETSIZE, TERM_HISTORY_MAX) < 0) {
        term_editor_close(e);
        *out = NULL;
        return err_set(err, TERN_NO_MEMORY, "no memory for the line editor");
    }
    el_wset(e->el, EL_CLIENTDATA, e);
    el_wset(e->el, EL_EDITOR, L"emacs");
    el_wset(e->el, EL_PROMPT, prompt_of);
    el_wset(e->el, EL_SIGNAL, 1); // suspension, a window's new size
    el_wset(e->el, EL_HIST, history_w, e->history);
    el_source(e->el, NULL); // ~/.editrc
    keys_bind(e->el);
    return TERN_OK;
}

void term_editor_close(struct term_editor *e) {
    if (!e) return;
    if (e->el) el_end(e->el);
    if (e->history) history_wend(e->history);
    mem_free(e);
}

enum term_event term_editor_read(struct term_editor *e, const char *prompt, struct buf *out) {
    struct str s = str_from(prompt);
    size_t n_prompt = 0;
    for (; n_prompt + 1 < PROMPT_MAX && n_prompt < s.len; n_prompt++) e->prompt[n_prompt] = (wchar_t)s.data[n_prompt];
    e->prompt[n_prompt] = 0;
    // el_wgets shows the prompt before it takes the terminal over: a Ctrl-D typed in between would be lost, a Ctrl-C
    // be a signal that no read sees.
    el_wset(e->el, EL_PREP_TERM, 1);
    int n = 0;
    const wchar_t *line = NULL;
    if (term_interrupted) {
        el_wset(e->el, EL_PREP_TERM, 0);
    } else {
        fputs("\033[?2004h", stderr); // pastes are marked
        line = el_wgets(e->el, &n);
        fputs("\033[?2004l", stderr);
    }
    if (term_interrupted) {
        fputs("^C", stderr);
        return TERM_INTERRUPTED;
    }
    if (!line || n <= 0) return TERM_END;
    if (line[n - 1] == L'\n') n--;
    wide_put(out, line, (size_t)n);
    return TERM_LINE;
}

void term_editor_remember(struct term_editor *e, struct str message) {
    HistEventW event;
    wchar_t *w = wide_make(message);
    if (w) history_w(e->history, &event, H_ENTER, w);
    mem_free(w);
}
