// POST /v1/messages and /v1/messages/count_tokens: Anthropic's wire format. serve_anthropic_wire.c writes the answers.
//
// Blocks become messages: a tool's results are messages of their own, in the order they came; a user's texts are one
// message; an assistant's texts and calls are one. `metadata` asks for nothing that could be done here.
#include "base/base.h"
#include "serve_anthropic.h"

#include <stdio.h>

struct reading {
    struct serve_chat chat;
    struct serve_ask *a;
    const char *role; // of the message at work
    int i;            // its index
    char path[SERVE_PATH_MAX];
};

static bool image_refuse(struct serve_ask *a, const char *path, struct str type) {
    return serve_bad(a, path, "%s has the type '%.*s'; this model reads text only", path,
                     (int)MIN(type.len, (size_t)40), type.data ? type.data : "");
}

static bool text_block(void *arg, struct str raw, int i) { // of a system prompt or a tool's result
    static const struct serve_field fields[] = {
        PART_FIELD("type", SERVE_FIELD_STR, type), PART_FIELD("text", SERVE_FIELD_STR, text), {0}};
    struct reading *r = arg;
    struct serve_part p;
    char path[SERVE_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s[%d].", r->path, i);
    if (!serve_part_read(r->a, &p, raw, path, fields)) return false;
    path[strlen(path) - 1] = 0;
    if (!str_eqz(p.type, "text")) return image_refuse(r->a, path, p.type);
    serve_chat_text(&r->chat, p.text);
    return true;
}

// A string or a list of text blocks.
static bool text_value(struct reading *r, struct str raw, const char *path) {
    struct str text;
    if (raw.len == 0) return true;
    snprintf(r->path, sizeof r->path, "%s", path);
    if (raw.data[0] == '"' && serve_string_read(r->a, raw, &text)) return serve_chat_text(&r->chat, text), true;
    if (raw.data[0] != '[') return serve_bad(r->a, path, "%s must be a string or a list of blocks", path);
    return serve_list_each(r->a, raw, path, SERVE_MESSAGES_MAX, text_block, r);
}

static const struct serve_field block_fields[] = {
    PART_FIELD("type", SERVE_FIELD_STR, type),           PART_FIELD("text", SERVE_FIELD_STR, text),
    PART_FIELD("thinking", SERVE_FIELD_STR, thinking),   PART_FIELD("id", SERVE_FIELD_STR, id),
    PART_FIELD("name", SERVE_FIELD_STR, name),           PART_FIELD("input", SERVE_FIELD_RAW, input),
    PART_FIELD("tool_use_id", SERVE_FIELD_STR, call_id), PART_FIELD("content", SERVE_FIELD_RAW, content),
    PART_FIELD("is_error", SERVE_FIELD_BOOL, is_error),  {0}};

static bool block_take(void *arg, struct str raw, int i) {
    struct reading *r = arg;
    struct serve_part p;
    char path[SERVE_PATH_MAX];
    const bool is_user = strcmp(r->role, "user") == 0;
    snprintf(path, sizeof path, "messages[%d].content[%d].", r->i, i);
    if (!serve_part_read(r->a, &p, raw, path, block_fields)) return false;
    path[strlen(path) - 1] = 0;
    if (str_eqz(p.type, "text")) {
        serve_chat_text(&r->chat, p.text);
    } else if (str_eqz(p.type, "tool_result") && is_user) {
        serve_chat_close(&r->chat, "user", STR(""), STR(""), false);
        if (p.is_error) serve_chat_text(&r->chat, STR("error:"));
        if (!text_value(r, p.content, path)) return false;
        serve_chat_close(&r->chat, "tool", p.call_id, STR(""), true);
    } else if (str_eqz(p.type, "tool_use") && !is_user) {
        if (p.name.len == 0) return serve_bad(r->a, path, "%s has no name", path);
        if (p.input.len > 0 && p.input.data[0] != '{')
            return serve_bad(r->a, path, "%s: input must be an object", path);
        serve_chat_call(&r->chat, p.id, p.name, p.input);
    } else if (str_eqz(p.type, "thinking") && !is_user) {
        serve_chat_thoughts(&r->chat, p.thinking);
    } else if (!str_eqz(p.type, "redacted_thinking")) {
        return image_refuse(r->a, path, p.type);
    }
    return true;
}

static bool message_take(void *arg, struct str raw, int i) {
    static const struct serve_field fields[] = {
        PART_FIELD("role", SERVE_FIELD_STR, role), PART_FIELD("content", SERVE_FIELD_RAW, content), {0}};
    struct reading *r = arg;
    struct serve_part p;
    struct str text;
    char path[SERVE_PATH_MAX];
    snprintf(path, sizeof path, "messages[%d].", i);
    if (!serve_part_read(r->a, &p, raw, path, fields)) return false;
    if (!str_eqz(p.role, "user") && !str_eqz(p.role, "assistant")) {
        snprintf(path, sizeof path, "messages[%d].role", i);
        return serve_bad(r->a, path, "%s must be user or assistant; the system prompt has a field of its own", path);
    }
    r->role = str_eqz(p.role, "user") ? "user" : "assistant";
    r->i = i;
    snprintf(path, sizeof path, "messages[%d].content", i);
    bool ok = p.content.len > 0;
    if (!ok) return serve_bad(r->a, path, "%s is missing", path);
    if (p.content.data[0] == '"' && serve_string_read(r->a, p.content, &text))
        serve_chat_text(&r->chat, text);
    else
        ok = serve_list_each(r->a, p.content, path, SERVE_MESSAGES_MAX, block_take, r);
    if (ok) serve_chat_close(&r->chat, r->role, STR(""), STR(""), false);
    return ok;
}

// {"type": "auto" | "any" | "tool" | "none", "name", "disable_parallel_tool_use"} in OpenAI's form.
static bool tool_choice_take(struct serve_ask *a) {
    static const struct serve_field fields[] = {PART_FIELD("type", SERVE_FIELD_STR, type),
                                                PART_FIELD("name", SERVE_FIELD_STR, name),
                                                PART_FIELD("disable_parallel_tool_use", SERVE_FIELD_BOOL, no_parallel),
                                                {0}};
    struct serve_part p;
    if (a->tool_choice.len == 0) return true;
    if (!serve_part_read(a, &p, a->tool_choice, "tool_choice.", fields)) return false;
    a->parallel_tool_calls = !p.no_parallel;
    if (str_eqz(p.type, "auto"))
        a->tool_choice = STR("\"auto\"");
    else if (str_eqz(p.type, "any"))
        a->tool_choice = STR("\"required\"");
    else if (str_eqz(p.type, "none"))
        a->tool_choice = STR("\"none\"");
    else if (!str_eqz(p.type, "tool") || p.name.len == 0)
        return serve_bad(a, "tool_choice", "tool_choice.type is auto, any, none, or tool with a name");
    else
        return serve_tool_choice_named(a, p.name);
    return true;
}

static const struct serve_field tool_fields[] = {PART_FIELD("type", SERVE_FIELD_STR, type),
                                                 PART_FIELD("name", SERVE_FIELD_STR, name),
                                                 PART_FIELD("description", SERVE_FIELD_STR, description),
                                                 PART_FIELD("input_schema", SERVE_FIELD_RAW, parameters),
                                                 {0}};
static const struct serve_tool_form tool_form = {"custom", false, tool_fields};

static bool conversation_read(struct serve_ask *a) {
    struct reading r = {.a = a};
    if (a->messages.len == 0) return serve_bad(a, "messages", "messages is missing: a list of messages");
    serve_chat_init(&r.chat, a);
    bool ok = text_value(&r, a->system, "system");
    if (ok) serve_chat_close(&r.chat, "system", STR(""), STR(""), false);
    ok = ok && serve_list_each(a, a->messages, "messages", SERVE_MESSAGES_MAX, message_take, &r);
    if (ok && r.chat.n_messages == 0) ok = serve_bad(a, "messages", "messages holds no text");
    ok = ok && serve_chat_tools(&r.chat, a->tools, &tool_form);
    if (!ok) return serve_chat_release(&r.chat), false;
    a->tools = (struct str){0};
    return serve_chat_finish(&r.chat) && tool_choice_take(a);
}

static const struct serve_field fields[] = {
    SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0),
    SERVE_FIELD("messages", SERVE_FIELD_RAW, messages, 0, 0),
    SERVE_FIELD("system", SERVE_FIELD_RAW, system, 0, 0),
    SERVE_FIELD("max_tokens", SERVE_FIELD_INT, max_tokens, 1, 9e15),
    SERVE_FIELDS_NUCLEUS,
    SERVE_FIELD("top_k", SERVE_FIELD_INT, top_k, 0, 1 << 30),
    {"stop_sequences", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_stop, 0},
    SERVE_FIELD("stream", SERVE_FIELD_BOOL, stream, 0, 0),
    SERVE_FIELD("tools", SERVE_FIELD_RAW, tools, 0, 0),
    SERVE_FIELD("tool_choice", SERVE_FIELD_RAW, tool_choice, 0, 0),
    {"thinking", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_thinking, 0},
    {"mcp_servers", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "the server connects to no other server"},
    {"container", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "the server runs nothing"},
    {0}};

bool serve_anthropic_read(struct serve_ask *a, struct str body) {
    return serve_fields_read(a, body, "", fields) && conversation_read(a);
}

static bool request_read(struct serve *s, struct net_request *r, struct serve_ask *a) {
    bool ok = serve_model_of(s, r)->info.has_template ||
              serve_bad(a, NULL, "the model has no chat template; use /v1/completions");
    ok = ok && serve_anthropic_read(a, r->body);
    if (!ok) serve_fail(r, &a->fault);
    return ok && serve_model_check(s, r, a->model);
}

void serve_messages(struct serve *s, struct net_request *r) {
    struct serve_answer *a = serve_answer_create(s, r, &serve_anthropic_wire, "msg_");
    if (!a) return;
    struct serve_bits *bits = arena_calloc(&a->ask.arena, 1, sizeof *bits);
    bool ok = request_read(s, r, &a->ask);
    if (ok && a->ask.max_tokens == SERVE_UNSET) {
        serve_failf(r, 400, "max_tokens", "invalid_value", "max_tokens is missing: how long may the answer be?");
        ok = false;
    }
    if (ok && !bits) serve_failf(r, 503, NULL, "no_memory", "no memory for the request; try again");
    a->extra = bits;
    if (!ok || !bits || !serve_answer_prepare(a)) {
        serve_answer_free(a);
        return;
    }
    if (a->streams) bits->n_prompt = MAX(serve_prompt_count(s, a->m, &a->ask, NULL), 0); // its first event tells it
    const struct serve_prompt prompt = {.messages = a->ask.messages, .tools = a->ask.tools};
    serve_answer_start(a, &prompt, 1);
}

void serve_count_tokens(struct serve *s, struct net_request *r) {
    struct serve_ask a;
    serve_ask_init(&a, s);
    if (request_read(s, r, &a)) serve_count_reply(s, r, &a, false);
    serve_ask_release(&a);
}
