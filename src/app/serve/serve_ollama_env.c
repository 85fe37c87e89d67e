// Variables of Ollama's that people have set already. Those that mean the same here are settings of the lowest rank,
// below the files; OLLAMA_MODELS is read where models are looked up. Others are named as doing nothing: OLLAMA_HOST and
// OLLAMA_ORIGINS above all, which say where another server listens (or which one a client asks) and who may use that.
#include "base/base.h"
#include "serve.h"

#include <stdio.h>

#define PREFIX "OLLAMA_"

static const struct {
    const char *name, *option; // option NULL: read elsewhere
} used[] = {{"OLLAMA_KEEP_ALIVE", "idle"},
            {"OLLAMA_NUM_PARALLEL", "streams"},
            {"OLLAMA_MAX_QUEUE", "queue"},
            {"OLLAMA_CONTEXT_LENGTH", "ctx"},
            {"OLLAMA_MODELS", NULL}};
static const struct {
    const char *name, *instead;
} others[] = {{"OLLAMA_HOST", "--host and --port"}, {"OLLAMA_ORIGINS", "--allow-origin"}};

// Ollama's value as the option's, which --idle has its own way for; NULL: not a value that means anything here.
static const char *value_of(const char *name, const char *text, char out[32]) {
    int64_t n;
    const struct str s = str_trim(str_from(text));
    if (strcmp(name, "OLLAMA_KEEP_ALIVE") == 0) {
        if (!serve_keep_parse(s, &n)) return NULL;
        const double seconds = n == SERVE_KEEP_FOREVER ? 0 : MAX((double)n * 1e-9, SERVE_IDLE_S_MIN);
        snprintf(out, 32, "%.3f", MIN(seconds, SERVE_IDLE_S_MAX));
        return out;
    }
    const int64_t max = strcmp(name, "OLLAMA_NUM_PARALLEL") == 0 ? TERN_STREAMS_MAX
                        : strcmp(name, "OLLAMA_MAX_QUEUE") == 0  ? TERN_QUEUE_MAX
                                                                 : INT32_MAX;
    if (!str_to_i64(s, &n) || n < 1 || n > max) return NULL; // 0: Ollama's choice
    snprintf(out, 32, "%lld", (long long)n);
    return out;
}

int serve_ollama_env_read(const struct command *c, struct serve *s, const struct opt *const *tables) {
    int code = 0;
    for (size_t i = 0; i < ARRAY_LEN(used) && code == 0; i++) {
        const char *text = env_get(used[i].name), *value = NULL;
        if (!text) continue;
        if (used[i].option) value = value_of(used[i].name, text, s->ollama_values[i]);
        if (value) code = opts_set(c, tables, used[i].option, value, used[i].name);
        if (value)
            buf_putf(&s->notes, "%s is read as --%s %s, below all other settings\n", used[i].name, used[i].option,
                     value);
        else if (used[i].option)
            buf_putf(&s->notes, "%s is not used: its value means nothing here\n", used[i].name);
    }
    for (int k = 0; env_nth(k); k++) {
        char name[64];
        const char *instead = NULL;
        bool known = false;
        if (strncmp(env_nth(k), PREFIX, strlen(PREFIX)) != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)MIN(strcspn(env_nth(k), "="), sizeof name - 1), env_nth(k));
        for (size_t i = 0; i < ARRAY_LEN(used); i++) known = known || strcmp(used[i].name, name) == 0;
        for (size_t i = 0; i < ARRAY_LEN(others); i++)
            if (strcmp(others[i].name, name) == 0) instead = others[i].instead;
        if (known || !env_get(name)) continue;
        str_put_escaped(&s->notes, str_from(name), sizeof name);
        buf_putf(&s->notes, " is not used%s%s\n", instead ? ": here it is " : "", instead ? instead : "");
    }
    return code;
}
