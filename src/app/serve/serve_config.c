// Settings of `tern serve` from files and the environment, by the same table of options as the command line: the option
// --key-jobs is `key-jobs = 4` in a file and TERN_SERVE_KEY_JOBS in the environment.
//
// Later wins: variables of Ollama's that mean the same (serve_ollama_env.c), /etc/tern/serve.conf, then
// $XDG_CONFIG_HOME/tern/serve.conf (both may be absent) or the file of --config alone, then the environment, then the
// command line. An option that may be repeated collects. A file has one setting a line: `name = value`, the value bare
// or in double quotes, `true` or `false` for flags; # begins a comment. An unknown name is an error: a misspelt setting
// must not be passed over.
#include "base/base.h"
#include "serve.h"

#include <stdio.h>

#define CONFIG_BYTES_MAX (1u << 20)
#define SYSTEM_FILE "/etc/tern/serve.conf"
#define VARIABLE "TERN_SERVE_"

// Values stay in the text, 0-terminated, as long as the program runs.
static char *line_end(char *p) {
    while (*p && *p != '\n') p++;
    return p;
}

static char *trim(char *from, char *to) {
    while (from < to && (*from == ' ' || *from == '\t')) from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t' || to[-1] == '\r')) to--;
    *to = 0;
    return from;
}

// The value without its quotes; NULL: an open quote, or text behind it.
static char *value_take(char *value) {
    if (value[0] != '"') {
        char *comment = strstr(value, " #");
        return comment ? trim(value, comment) : value;
    }
    char *close = strchr(value + 1, '"');
    if (!close) return NULL;
    char *rest = trim(close + 1, close + 1 + strlen(close + 1));
    if (*rest && *rest != '#') return NULL;
    *close = 0;
    return value + 1;
}

// One line; 0, or the exit code after telling.
static int line_read(const struct command *c, const struct opt *const *tables, char *line, char *end,
                     const char *where) {
    line = trim(line, end);
    if (!*line || *line == '#') return 0;
    char *equals = strchr(line, '=');
    if (!equals) return usage_error(c, "%s: 'name = value' expected, found '%s'", where, line);
    char *value = trim(equals + 1, equals + 1 + strlen(equals + 1)), *name = trim(line, equals);
    value = value_take(value);
    if (!value) return usage_error(c, "%s: the value of %s has an open quote, or text behind it", where, name);
    return opts_set(c, tables, name, value, where);
}

static int file_read(const struct command *c, struct serve *s, const struct opt *const *tables, const char *path) {
    struct tern_err err = {0};
    struct buf *text = &s->configs[s->n_configs++];
    buf_init(text, CONFIG_BYTES_MAX);
    if (file_read_all(text, path, &err) != TERN_OK) return fail_told(c, &err);
    if (text->len == 0) return 0;
    if (memchr(text->data, 0, text->len))
        return usage_error(c, "%s: no UTF-8 text: it holds a zero byte (UTF-16? save it as UTF-8)", path);
    int code = 0, n = 1;
    const bool has_mark = str_starts(buf_str(text), STR("\xef\xbb\xbf")); // which some editors put before UTF-8
    for (char *line = text->data + (has_mark ? 3 : 0); code == 0 && line < text->data + text->len; n++) {
        char *end = line_end(line), *next = end + 1, where[512];
        snprintf(where, sizeof where, "%s:%d", path, n);
        code = line_read(c, tables, line, end, where);
        line = next;
    }
    return code;
}

// The option's variable: TERN_SERVE_KEY_JOBS of --key-jobs.
static void variable_name(char out[64], const struct opt *o) {
    const size_t len = (size_t)snprintf(out, 64, VARIABLE "%s", o->name + 2);
    for (size_t i = 0; i < MIN(len, (size_t)64); i++) {
        if (out[i] == '-') out[i] = '_';
        if (out[i] >= 'a' && out[i] <= 'z') out[i] = (char)(out[i] - 32);
    }
}

static int environment_read(const struct command *c, const struct opt *const *tables) {
    int code = 0;
    for (const struct opt *const *t = tables; *t && code == 0; t++)
        for (const struct opt *o = *t; o->name && code == 0; o++) {
            char name[64];
            variable_name(name, o);
            const char *value = env_get(name);
            if (value) code = opts_set(c, tables, o->name + 2, value, name);
        }
    return code;
}

static bool variable_known(const struct opt *const *tables, const char *name) {
    char of[64];
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++) {
            variable_name(of, o);
            if (strcmp(of, name) == 0) return true;
        }
    return false;
}

int serve_config_variables_check(const struct command *c, const struct serve *s, const struct opt *const *tables) {
    for (int i = 0; env_nth(i); i++) {
        char name[128], as_option[128], near[100] = "";
        if (strncmp(env_nth(i), VARIABLE, strlen(VARIABLE)) != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)MIN(strcspn(env_nth(i), "="), sizeof name - 1), env_nth(i));
        if (variable_known(tables, name)) continue;
        size_t n = 0;
        for (const char *p = name + strlen(VARIABLE); *p; p++)
            as_option[n++] = *p == '_' ? '-' : *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;
        as_option[n] = 0;
        const struct opt *o = opt_nearest(tables, as_option);
        if (o) {
            char of[64];
            variable_name(of, o);
            snprintf(near, sizeof near, "; did you mean %s?", of);
        }
        if (s->o.check) return usage_error(c, "%s: no setting has this variable%s", name, near);
        log_warn("%s: no setting has this variable, it does nothing%s", name, near);
    }
    return 0;
}

int serve_config_read(const struct command *c, struct serve *s, const struct opt *const *tables, int argc,
                      char **argv) {
    if (opts_help_hooked()) return 0; // a page is made, nothing is used
    const char *given = env_get("TERN_SERVE_CONFIG");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) given = argv[i + 1];
        if (strncmp(argv[i], "--config=", 9) == 0) given = argv[i] + 9;
    }
    char user[4096];
    os_user_dir(OS_USER_CONFIG, "tern/serve.conf", user, sizeof user);
    const char *const paths[] = {given ? given : SYSTEM_FILE, given ? "" : user};
    struct os_stat st;
    int code = serve_ollama_env_read(c, s, tables);
    for (int i = 0; i < 2 && code == 0; i++)
        if (paths[i][0] && (given || os_stat_get(&st, paths[i]))) code = file_read(c, s, tables, paths[i]);
    return code ? code : environment_read(c, tables);
}

// ------------------------------------------------------------------------------------------------------------- telling

static void setting_tell(const struct opt *o) {
    const char *name = o->name + 2;
    if (strcmp(name, "api-key") == 0) return; // never shown
    switch (o->type) {
    case OPT_FLAG: out_putf("%s = %s\n", name, *(const bool *)o->target ? "true" : "false"); break;
    case OPT_INT: out_putf("%s = %d\n", name, *(const int *)o->target); break;
    case OPT_U64: out_putf("%s = %llu\n", name, (unsigned long long)*(const uint64_t *)o->target); break;
    case OPT_FLOAT: out_putf("%s = %g\n", name, (double)*(const float *)o->target); break;
    case OPT_TEXT: {
        const char *text = *(const char *const *)o->target;
        if (text) out_putf("%s = \"%s\"\n", name, text);
        break;
    }
    case OPT_TEXTS: {
        const struct opt_texts *t = o->target;
        for (int i = 0; i < t->n; i++) out_putf("%s = \"%s\"\n", name, t->items[i]);
        break;
    }
    }
}

void serve_config_tell(const struct opt *const *tables) {
    for (; *tables; tables++)
        for (const struct opt *o = *tables; o->name; o++)
            if (strcmp(o->name, "--check") != 0 && strcmp(o->name, "--config") != 0) setting_tell(o);
}
