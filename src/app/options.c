// Command-line options from tables: parsing, ranges, and --help.
#include "base/base.h"
#include "app.h"

#include <stdio.h>

// File and line, or variable, of the setting that is being read; NULL: the command line.
static const char *where_now;

int usage_error(const struct command *c, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct buf b;
    buf_init(&b, 4096);
    str_put_escaped(&b, str_from(text), sizeof text);
    fprintf(stderr, "tern %s: %s%s%s (see `tern %s --help`)\n", c->name, where_now ? where_now : "",
            where_now ? ": " : "", b.data ? b.data : "", c->name);
    buf_release(&b);
    return EXIT_USAGE;
}

static void (*help_hook)(void *arg, const struct command *c, const struct opt *const *tables);
static void *help_hook_arg;

void opts_help_hook(void (*fn)(void *arg, const struct command *c, const struct opt *const *tables), void *arg) {
    help_hook = fn;
    help_hook_arg = arg;
}
bool opts_help_hooked(void) { return help_hook != NULL; }

#define HELP_COLUMN 28 // of what an option does
#define HELP_NARROW 60 // columns: on narrower terminals it stands on the next line

static int columns_of(const char *z, size_t len) {
    int n = 0;
    for (size_t i = 0; i < len; i++) n += (z[i] & 0xc0) != 0x80;
    return n;
}

// Text that begins at a column; on a terminal it is broken between words, and further lines are indented. Elsewhere
// lines stay whole, for grep.
static void wrapped_put(const char *z, int column, int indent) {
    const int width = tty_is(1) ? MAX(tty_width(1), HELP_COLUMN) : 1 << 30;
    while (*z) {
        size_t blanks = strspn(z, " "), word = strcspn(z + blanks, " \n");
        int n = (int)blanks + columns_of(z + blanks, word);
        if (word > 0 && column > indent && column + n > width) {
            out_putf("\n%*s", indent, "");
            column = indent;
            z += blanks;
            continue;
        }
        out_put((struct str){z, blanks + word});
        column += n;
        z += blanks + word;
        if (*z == '\n') {
            out_puts("\n");
            column = 0;
            z++;
        }
    }
    out_puts("\n");
}

static void help_row(const char *head, const char *help) {
    int width = HELP_COLUMN + (int)strlen(head) - columns_of(head, strlen(head)); // bytes that take no column
    if (tty_is(1) && tty_width(1) < HELP_NARROW) {
        out_putf("  %s\n      ", head);
        wrapped_put(help, 6, 6);
    } else {
        out_putf("  %-*s ", width, head);
        wrapped_put(help, 3 + MAX(HELP_COLUMN, columns_of(head, strlen(head))), 3 + HELP_COLUMN);
    }
}

static void help_print(const struct command *c, const struct opt *const *tables) {
    out_putf("tern %s: %s\n\nusage: tern %s [OPTIONS]%s%s\n", c->name, c->summary, c->name, c->args[0] ? " " : "",
             c->args);
    if (c->text) {
        out_puts("\n");
        wrapped_put(c->text, 0, 0);
    }
    out_puts("\noptions:\n");
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++) {
            char head[64];
            snprintf(head, sizeof head, "%c%c%s%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
                     o->letter ? ", " : "  ", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
            help_row(head, o->help);
        }
    help_row("-h, --help", "this text");
}

static const struct opt *opt_find(const struct opt *const *tables, struct str name, char letter) {
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++)
            if (letter ? o->letter == letter : str_eqz(name, o->name)) return o;
    return NULL;
}

const char *name_nearest(const char *given, const char *(*nth)(const void *arg, int i), const void *arg) {
    const char *best = NULL, *name;
    const size_t len = strlen(given);
    int least = len < 3 ? 1 : 3; // so many edits are no slip of the hand any more
    for (int i = 0; (name = nth(arg, i)); i++) {
        // What begins as a name does, or goes on behind it, was cut short or written out.
        const size_t n_name = strlen(name), n_same = MIN(len, n_name);
        const bool begins = n_same >= 3 && strncmp(name, given, n_same) == 0;
        const int n = begins ? 1 : name_distance(str_from(given), str_from(name));
        if (n < least && n < (int)n_name) {
            least = n;
            best = name;
        }
    }
    return best;
}

static const char *opt_nth(const void *arg, int i) {
    for (const struct opt *const *tables = arg; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++)
            if (i-- == 0) return o->name + 2;
    return NULL;
}

const struct opt *opt_nearest(const struct opt *const *tables, const char *name) {
    const char *near = name_nearest(name, opt_nth, tables);
    for (; near && *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++)
            if (o->name + 2 == near) return o;
    return NULL;
}

static int opt_unknown(const struct command *c, const struct opt *const *tables, const char *arg) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)MIN(strcspn(arg, "="), sizeof name - 1), arg);
    const char *near = arg[1] == '-' && strlen(name) > 3 ? name_nearest(name + 2, opt_nth, tables) : NULL;
    if (near) return usage_error(c, "unknown option '%s'; did you mean --%s?", arg, near);
    return usage_error(c, "unknown option '%s'", arg);
}

// Sets the option's target; false after telling.
static bool opt_set(const struct command *c, const struct opt *o, const char *value) {
    struct str s = str_from(value);
    double f = 0;
    int64_t i = 0;
    switch (o->type) {
    case OPT_FLAG: *(bool *)o->target = true; return true;
    case OPT_TEXT: *(const char **)o->target = value; return true;
    case OPT_TEXTS: {
        struct opt_texts *t = o->target;
        if (t->n == TERN_STOP_MAX)
            return usage_error(c, "%s may be given at most %d times", o->name, TERN_STOP_MAX), false;
        t->items[t->n++] = value;
        return true;
    }
    case OPT_INT:
    case OPT_U64:
        if (!str_to_i64(s, &i) || (double)i < o->lo || (double)i > o->hi)
            return usage_error(c, "%s wants a whole number from %.0f to %.0f, not '%s'", o->name, o->lo, o->hi, value),
                   false;
        if (o->type == OPT_INT)
            *(int *)o->target = (int)i;
        else
            *(uint64_t *)o->target = (uint64_t)i;
        return true;
    case OPT_FLOAT:
        if (!str_to_f64(s, &f) || !(f >= o->lo && f <= o->hi))
            return usage_error(c, "%s wants a number from %g to %g, not '%s'", o->name, o->lo, o->hi, value), false;
        *(float *)o->target = (float)f;
        return true;
    }
    return false;
}

// Parses one option at argv[*i]; false after telling.
static bool opt_parse(const struct command *c, const struct opt *const *tables, int argc, char **argv, int *i) {
    const char *arg = argv[*i], *value = NULL;
    const struct opt *o;
    if (arg[1] == '-') {
        struct str name = str_from(arg);
        size_t eq = str_find(name, STR("="), 0);
        if (eq != (size_t)-1) {
            name.len = eq;
            value = arg + eq + 1;
        }
        o = opt_find(tables, name, 0);
    } else {
        o = opt_find(tables, STR(""), arg[1]);
        if (arg[2]) value = arg + 2;
    }
    if (!o) return opt_unknown(c, tables, arg), false;
    if (!o->arg) {
        if (value) return usage_error(c, "%s takes no value", o->name), false;
        return opt_set(c, o, "");
    }
    if (!value) {
        if (*i + 1 >= argc) return usage_error(c, "%s wants a value: %s", o->name, o->arg), false;
        value = argv[++*i];
    }
    return opt_set(c, o, value);
}

int opts_set(const struct command *c, const struct opt *const *tables, const char *name, const char *value,
             const char *where) {
    where_now = where;
    const struct opt *o = NULL;
    for (const struct opt *const *t = tables; *t && !o; t++)
        for (const struct opt *row = *t; row->name && !o; row++)
            if (strcmp(row->name + 2, name) == 0) o = row;
    int code = 0;
    if (!o) {
        const char *near = name_nearest(name, opt_nth, tables);
        code = near ? usage_error(c, "no setting is named '%s'; did you mean %s?", name, near)
                    : usage_error(c, "no setting is named '%s'", name);
    } else if (o->type == OPT_FLAG) {
        bool on = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
        if (!on && strcmp(value, "false") != 0 && strcmp(value, "0") != 0)
            code = usage_error(c, "%s is true or false, not '%s'", name, value);
        *(bool *)o->target = on;
    } else if (!opt_set(c, o, value)) {
        code = EXIT_USAGE;
    }
    where_now = NULL;
    return code;
}

bool opts_parse(const struct command *c, const struct opt *const *tables, int argc, char **argv, int *n_args,
                int *exit_code) {
    bool only_args = false;
    *n_args = 0;
    *exit_code = EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (only_args || arg[0] != '-' || !arg[1]) {
            argv[++*n_args] = argv[i];
        } else if (strcmp(arg, "--") == 0) {
            only_args = true;
        } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            if (help_hook)
                help_hook(help_hook_arg, c, tables);
            else
                help_print(c, tables);
            *exit_code = EXIT_DONE;
            return false;
        } else if (!opt_parse(c, tables, argc, argv, &i)) {
            return false;
        }
    }
    return true;
}
