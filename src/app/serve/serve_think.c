// Whether and how long a model thinks, as each format says it, as one set of template variables: OpenAI's
// reasoning_effort, the chat_template_kwargs of other servers, Ollama's think, Anthropic's thinking. Templates read
// them or not; what a template does not read has no effect. No other variable of a template can be set: a template is
// part of the model, not of the request.
#include "base/base.h"
#include "serve.h"

#include <stdio.h>

// "none" is no thinking; the others are the template's to understand.
static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};

static bool effort_set(struct serve_ask *a, struct str text, const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(efforts); i++) {
        if (!str_eqz(text, efforts[i])) continue;
        if (i == 0)
            a->think = SERVE_NO;
        else
            a->effort = efforts[i];
        return true;
    }
    return serve_bad(a, name, "%s is none, minimal, low, medium, high or xhigh", name);
}

// The first value of a raw JSON text.
static enum json_event value_read(struct str raw, struct json **j, struct json_item *item) {
    *j = NULL;
    return json_create(j, raw, NULL, NULL) == TERN_OK ? json_next(*j, item, NULL) : JSON_ERROR;
}

bool serve_take_effort(struct serve_ask *a, struct str raw, const char *name) {
    struct json *j;
    struct json_item item;
    const bool ok = value_read(raw, &j, &item) == JSON_STRING ? effort_set(a, item.text, name)
                                                              : serve_bad(a, name, "%s must be a string", name);
    json_free(j);
    return ok;
}

bool serve_take_think(struct serve_ask *a, struct str raw, const char *name) {
    struct json *j;
    struct json_item item;
    const enum json_event e = value_read(raw, &j, &item);
    bool ok = e == JSON_BOOL || e == JSON_STRING;
    if (e == JSON_BOOL) a->think = item.boolean ? SERVE_YES : SERVE_NO;
    if (e == JSON_STRING) ok = effort_set(a, item.text, name);
    if (!ok && !a->fault.status) serve_bad(a, name, "%s is true, false or an effort: low, medium, high", name);
    json_free(j);
    return ok;
}

bool serve_take_thinking(struct serve_ask *a, struct str raw, const char *name) {
    static const struct serve_field fields[] = {SERVE_FIELD("type", SERVE_FIELD_STR, thinking_type, 0, 0), {0}};
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (!serve_fields_read(a, raw, prefix, fields)) return false;
    if (str_eqz(a->thinking_type, "disabled"))
        a->think = SERVE_NO;
    else if (str_eqz(a->thinking_type, "enabled"))
        a->think = SERVE_YES;
    else if (!str_eqz(a->thinking_type, "adaptive"))
        return serve_bad(a, name, "%s.type is enabled, disabled or adaptive", name);
    return true;
}

bool serve_take_template_values(struct serve_ask *a, struct str raw, const char *name) {
    const struct {
        const char *key;
        enum serve_tristate *value;
    } rows[] = {{"enable_thinking", &a->think}, {"thinking", &a->think}, {"keep_past_thinking", &a->keep_thoughts}};
    struct json *j;
    struct json_item item;
    char full[96];
    bool ok = value_read(raw, &j, &item) == JSON_OBJECT;
    if (!ok) serve_bad(a, name, "%s must be an object", name);
    while (ok && json_next(j, &item, NULL) == JSON_KEY) {
        enum serve_tristate *value = NULL;
        const bool is_effort = str_eqz(item.text, "reasoning_effort");
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
            if (str_eqz(item.text, rows[i].key)) value = rows[i].value;
        snprintf(full, sizeof full, "%s.%.*s", name, (int)MIN(item.text.len, 40), item.text.data);
        if (!value && !is_effort) {
            ok = serve_bad(a, full,
                           "%s: of a template's variables a request sets enable_thinking, thinking, "
                           "keep_past_thinking and reasoning_effort only",
                           full);
            break;
        }
        const enum json_event e = json_next(j, &item, NULL);
        if (is_effort)
            ok = e == JSON_STRING ? effort_set(a, item.text, full) : serve_bad(a, full, "%s must be a string", full);
        else if (e == JSON_BOOL)
            *value = item.boolean ? SERVE_YES : SERVE_NO;
        else
            ok = serve_bad(a, full, "%s must be true or false", full);
    }
    json_free(j);
    return ok;
}

struct str serve_template_values(struct serve_ask *a) {
    char text[160];
    size_t len = 0;
    const struct {
        const char *key;
        enum serve_tristate value;
    } rows[] = {{"enable_thinking", a->think}, {"thinking", a->think}, {"keep_past_thinking", a->keep_thoughts}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].value != SERVE_UNSAID)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s\"%s\":%s", len ? "," : "{", rows[i].key,
                                    rows[i].value == SERVE_YES ? "true" : "false");
    if (a->effort)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s\"reasoning_effort\":\"%s\"", len ? "," : "{",
                                a->effort);
    if (len == 0) return STR("");
    len += (size_t)snprintf(text + len, sizeof text - len, "}");
    char *copy = serve_ask_dup(a, (struct str){text, len});
    return (struct str){copy, copy ? len : 0};
}
