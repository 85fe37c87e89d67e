// POST /v1/responses: the newer OpenAI format. serve_responses_wire.c writes the answers.
//
// Nothing is stored: a conversation is sent whole each time, what refers to a stored one is refused, and `store` in the
// answer is false. Items become messages; calls that follow an assistant's text belong to its message.
#include "base/base.h"
#include "serve_responses.h"

#include <stdio.h>

#define RESPONSES_FIELD(name_, kind_, member_) \
    { name_, kind_, offsetof(struct responses_ask, member_), 0, 0, 0, 0 }

struct reading {
    struct serve_chat chat;
    struct serve_ask *a;
    char path[SERVE_PATH_MAX];
    bool assistant; // an assistant's message is being gathered
};

static void assistant_close(struct reading *r) {
    if (r->assistant) serve_chat_close(&r->chat, "assistant", STR(""), STR(""), false);
    r->assistant = false;
}

static bool content_part(void *arg, struct str raw, int i) {
    static const struct serve_field fields[] = {PART_FIELD("type", SERVE_FIELD_STR, type),
                                                PART_FIELD("text", SERVE_FIELD_STR, text),
                                                PART_FIELD("refusal", SERVE_FIELD_STR, refusal),
                                                {0}};
    struct reading *r = arg;
    struct serve_part p;
    char path[SERVE_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s[%d].", r->path, i);
    if (!serve_part_read(r->a, &p, raw, path, fields)) return false;
    path[strlen(path) - 1] = 0;
    if (str_eqz(p.type, "refusal")) return serve_chat_text(&r->chat, p.refusal), true;
    if (!str_eqz(p.type, "input_text") && !str_eqz(p.type, "output_text") && !str_eqz(p.type, "text"))
        return serve_bad(r->a, path, "%s has the type '%.*s'; this model reads text only", path,
                         (int)MIN(p.type.len, (size_t)40), p.type.data ? p.type.data : "");
    serve_chat_text(&r->chat, p.text);
    return true;
}

// A string or a list of parts.
static bool content_take(struct reading *r, struct str raw, const char *path) {
    struct str text;
    if (raw.len == 0) return serve_bad(r->a, path, "%s is missing", path);
    snprintf(r->path, sizeof r->path, "%s", path);
    if (raw.data[0] == '"' && serve_string_read(r->a, raw, &text)) return serve_chat_text(&r->chat, text), true;
    return serve_list_each(r->a, raw, path, SERVE_MESSAGES_MAX, content_part, r);
}

static bool message_item(struct reading *r, const struct serve_part *p, int i) {
    char path[SERVE_PATH_MAX];
    const bool assistant = str_eqz(p->role, "assistant");
    const char *role = assistant || str_eqz(p->role, "user") ? (assistant ? "assistant" : "user") : "system";
    if (strcmp(role, "system") == 0 && !str_eqz(p->role, "system") && !str_eqz(p->role, "developer")) {
        snprintf(path, sizeof path, "input[%d].role", i);
        return serve_bad(r->a, path, "%s must be user, assistant, system or developer", path);
    }
    assistant_close(r);
    snprintf(path, sizeof path, "input[%d].content", i);
    if (!content_take(r, p->content, path)) return false;
    r->assistant = assistant;
    if (!assistant) serve_chat_close(&r->chat, role, STR(""), STR(""), true);
    return true;
}

static bool item_take(void *arg, struct str raw, int i) {
    static const struct serve_field fields[] = {
        PART_FIELD("type", SERVE_FIELD_STR, type),       PART_FIELD("role", SERVE_FIELD_STR, role),
        PART_FIELD("content", SERVE_FIELD_RAW, content), PART_FIELD("call_id", SERVE_FIELD_STR, call_id),
        PART_FIELD("name", SERVE_FIELD_STR, name),       PART_FIELD("arguments", SERVE_FIELD_RAW, arguments),
        PART_FIELD("output", SERVE_FIELD_RAW, output),   {0}};
    struct reading *r = arg;
    struct serve_part p;
    char path[SERVE_PATH_MAX];
    snprintf(path, sizeof path, "input[%d].", i);
    if (!serve_part_read(r->a, &p, raw, path, fields)) return false;
    path[strlen(path) - 1] = 0;
    if (str_eqz(p.type, "message") || (p.type.len == 0 && p.role.len > 0)) return message_item(r, &p, i);
    if (str_eqz(p.type, "function_call")) {
        if (p.name.len == 0 || p.call_id.len == 0) return serve_bad(r->a, path, "%s needs name and call_id", path);
        r->assistant = true;
        serve_chat_call(&r->chat, p.call_id, p.name, p.arguments);
        return true;
    }
    if (str_eqz(p.type, "function_call_output")) {
        if (p.call_id.len == 0) return serve_bad(r->a, path, "%s has no call_id", path);
        assistant_close(r);
        snprintf(path, sizeof path, "input[%d].output", i);
        if (!content_take(r, p.output, path)) return false;
        serve_chat_close(&r->chat, "tool", p.call_id, STR(""), true);
        return true;
    }
    if (str_eqz(p.type, "reasoning")) return true; // the thoughts of earlier answers are not shown to the model again
    if (str_eqz(p.type, "item_reference"))
        return serve_bad(r->a, path, "%s refers to a stored item; nothing is stored here, so send it whole", path);
    return serve_bad(r->a, path, "%s has the type '%.*s', which is not read here", path,
                     (int)MIN(p.type.len, (size_t)40), p.type.data ? p.type.data : "");
}

static const struct serve_field tool_fields[] = {PART_FIELD("type", SERVE_FIELD_STR, type),
                                                 PART_FIELD("name", SERVE_FIELD_STR, name),
                                                 PART_FIELD("description", SERVE_FIELD_STR, description),
                                                 PART_FIELD("parameters", SERVE_FIELD_RAW, parameters),
                                                 {0}};
static const struct serve_tool_form tool_form = {"function", true, tool_fields};

// The tools as the answer repeats them: members that a client left out are null there.
struct tools_echo {
    struct serve_ask *a;
    struct buf text;
};
static bool tool_echo(void *arg, struct str raw, int i) {
    static const struct serve_field echo_fields[] = {PART_FIELD("type", SERVE_FIELD_RAW, type),
                                                     PART_FIELD("name", SERVE_FIELD_RAW, name),
                                                     PART_FIELD("description", SERVE_FIELD_RAW, description),
                                                     PART_FIELD("parameters", SERVE_FIELD_RAW, parameters),
                                                     PART_FIELD("strict", SERVE_FIELD_RAW, format),
                                                     {0}};
    struct tools_echo *t = arg;
    struct serve_part p;
    struct json_writer w;
    if (!serve_part_read(t->a, &p, raw, "tools.", echo_fields)) return false;
    if (i > 0) buf_putc(&t->text, ',');
    json_write_init(&w, &t->text);
    json_write_object(&w);
    serve_put_raw(&w, "type", p.type);
    serve_put_raw(&w, "name", p.name);
    serve_put_raw(&w, "description", p.description);
    serve_put_raw(&w, "parameters", p.parameters);
    serve_put_raw(&w, "strict", p.format);
    json_write_object_end(&w);
    return true;
}
static bool tools_echo_make(struct responses_ask *q, struct str raw) {
    struct tools_echo t = {.a = &q->ask};
    if (raw.len == 0) return true;
    buf_init(&t.text, SERVE_TEXT_BYTES_MAX);
    buf_putc(&t.text, '[');
    bool ok = serve_list_each(&q->ask, raw, "tools", SERVE_TOOLS_MAX, tool_echo, &t);
    buf_putc(&t.text, ']');
    if (ok && t.text.failed) serve_fault_set(&q->ask.fault, 503, NULL, "no_memory", "no memory for the request");
    ok = ok && !t.text.failed;
    if (ok) q->tools = (struct str){serve_ask_dup(&q->ask, buf_str(&t.text)), t.text.len};
    buf_release(&t.text);
    return ok && q->tools.data;
}

static bool conversation_read(struct responses_ask *q) {
    struct serve_ask *a = &q->ask;
    struct reading r = {.a = a};
    struct str text;
    if (a->input.len == 0) return serve_bad(a, "input", "input is missing: a text or a list of items");
    serve_chat_init(&r.chat, a);
    if (q->instructions.len > 0) {
        serve_chat_text(&r.chat, q->instructions);
        serve_chat_close(&r.chat, "system", STR(""), STR(""), false);
    }
    bool ok = true;
    if (a->input.data[0] == '"' && serve_string_read(a, a->input, &text)) {
        serve_chat_text(&r.chat, text);
        serve_chat_close(&r.chat, "user", STR(""), STR(""), true);
    } else {
        ok = serve_list_each(a, a->input, "input", SERVE_MESSAGES_MAX, item_take, &r);
        if (ok) assistant_close(&r);
    }
    if (ok && r.chat.n_messages == (q->instructions.len > 0)) ok = serve_bad(a, "input", "input holds no message");
    ok = ok && serve_chat_tools(&r.chat, a->tools, &tool_form);
    if (!ok) return serve_chat_release(&r.chat), false;
    a->tools = (struct str){0};
    return serve_chat_finish(&r.chat);
}

// {"format": {"type": "json_schema", "name", "schema", "strict"}} as response_format has it.
static bool text_format_take(struct responses_ask *q) {
    static const struct serve_field fields[] = {PART_FIELD("format", SERVE_FIELD_RAW, format), {0}};
    static const struct serve_field format_fields[] = {PART_FIELD("type", SERVE_FIELD_STR, type), {0}};
    struct serve_ask *a = &q->ask;
    struct serve_part p, f;
    struct buf nested;
    if (q->text.len == 0) return true;
    if (!serve_part_read(a, &p, q->text, "text.", fields)) return false;
    if (p.format.len == 0) return true;
    if (!serve_part_read(a, &f, p.format, "text.format.", format_fields)) return false;
    if (!str_eqz(f.type, "json_schema")) return a->response_format = p.format, true;
    buf_init(&nested, p.format.len + 128);
    buf_puts(&nested, "{\"type\":\"json_schema\",\"json_schema\":");
    buf_put(&nested, p.format.data, p.format.len);
    buf_putc(&nested, '}');
    a->response_format = (struct str){nested.failed ? NULL : serve_ask_dup(a, buf_str(&nested)), nested.len};
    buf_release(&nested);
    return a->response_format.data != NULL;
}

// {"type": "function", "name": …} as chat completions have it.
static bool tool_choice_take(struct serve_ask *a) {
    static const struct serve_field fields[] = {
        PART_FIELD("type", SERVE_FIELD_STR, type), PART_FIELD("name", SERVE_FIELD_STR, name), {0}};
    struct serve_part p;
    if (a->tool_choice.len == 0 || a->tool_choice.data[0] != '{') return true;
    if (!serve_part_read(a, &p, a->tool_choice, "tool_choice.", fields)) return false;
    if (str_eqz(p.type, "allowed_tools")) return true;
    if (p.name.len == 0) return serve_bad(a, "tool_choice", "tool_choice is none, auto, required or a function's name");
    return serve_tool_choice_named(a, p.name);
}

// {"effort", "summary"}: summaries are not made.
static bool reasoning_take(struct serve_ask *a, struct str raw, const char *name) {
    static const struct serve_field inner[] = {{"effort", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_effort, 0}, {0}};
    (void)name;
    return serve_fields_read(a, raw, "reasoning.", inner);
}

static const struct serve_field fields[] = {
    SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0),
    SERVE_FIELD("input", SERVE_FIELD_RAW, input, 0, 0),
    RESPONSES_FIELD("instructions", SERVE_FIELD_STR, instructions),
    SERVE_FIELD("max_output_tokens", SERVE_FIELD_INT, max_tokens, 1, 9e15),
    SERVE_FIELDS_NUCLEUS,
    SERVE_FIELD("stream", SERVE_FIELD_BOOL, stream, 0, 0),
    SERVE_FIELD("tools", SERVE_FIELD_RAW, tools, 0, 0),
    SERVE_FIELD("tool_choice", SERVE_FIELD_RAW, tool_choice, 0, 0),
    SERVE_FIELD("parallel_tool_calls", SERVE_FIELD_BOOL, parallel_tool_calls, 0, 0),
    RESPONSES_FIELD("text", SERVE_FIELD_RAW, text),
    {"reasoning", SERVE_FIELD_TAKE, 0, 0, 0, reasoning_take, 0},
    RESPONSES_FIELD("metadata", SERVE_FIELD_RAW, metadata),
    RESPONSES_FIELD("background", SERVE_FIELD_RAW, background),
    SERVE_FIELD("user", SERVE_FIELD_STR, user, 0, 0),
    {"previous_response_id", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "nothing is stored here; send the conversation whole"},
    {"conversation", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "nothing is stored here; send the conversation whole"},
    {"prompt", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "no prompts are stored here"},
    {0}};

bool serve_responses_read(struct responses_ask *q, struct str body) {
    struct serve_ask *a = &q->ask;
    if (!serve_fields_read(a, body, "", fields)) return false;
    const struct str tools = a->tools;
    if (q->metadata.len > 0 && q->metadata.data[0] != '{') return serve_bad(a, "metadata", "metadata is an object");
    if (q->background.len > 0 && !str_eqz(q->background, "false"))
        return serve_bad(a, "background", "background: answers are not kept here for later");
    return conversation_read(q) && tools_echo_make(q, tools) && text_format_take(q) && tool_choice_take(a);
}

void serve_responses(struct serve *s, struct net_request *r) {
    struct serve_answer *a = serve_answer_create(s, r, &serve_responses_wire, "resp_");
    if (!a) return;
    struct responses_ask q = {.ask = a->ask};
    bool ok = a->m->info.has_template || serve_bad(&q.ask, NULL, "the model has no chat template; use /v1/completions");
    ok = ok && serve_responses_read(&q, r->body);
    a->ask = q.ask;
    struct serve_bits *bits = arena_calloc(&a->ask.arena, 1, sizeof *bits);
    struct serve_response *extra = arena_calloc(&a->ask.arena, 1, sizeof *extra);
    if (ok && (!bits || !extra)) {
        serve_fault_set(&a->ask.fault, 503, NULL, "no_memory", "no memory for the request; try again");
        ok = false;
    }
    if (!ok) serve_fail(r, &a->ask.fault);
    if (!ok || !serve_model_check(s, r, a->ask.model)) {
        serve_answer_free(a);
        return;
    }
    // The body is there for as long as the request: views of it may stay.
    *extra = (struct serve_response){.instructions = q.instructions,
                                     .metadata = q.metadata,
                                     .tools = q.tools,
                                     .tool_choice = a->ask.tool_choice,
                                     .text = q.text};
    bits->extra = extra;
    a->extra = bits;
    if (!serve_answer_prepare(a)) {
        serve_answer_free(a);
        return;
    }
    const struct serve_prompt prompt = {.messages = a->ask.messages, .tools = a->ask.tools};
    serve_answer_start(a, &prompt, 1);
}

// What the input of such a response would count; nothing is generated.
void serve_responses_count(struct serve *s, struct net_request *r) {
    struct responses_ask q = {0};
    serve_ask_init(&q.ask, s);
    bool ok = serve_model_of(s, r)->info.has_template ||
              serve_bad(&q.ask, NULL, "the model has no chat template; use /tokenize");
    ok = ok && serve_responses_read(&q, r->body);
    if (!ok) serve_fail(r, &q.ask.fault);
    if (ok && serve_model_check(s, r, q.ask.model)) serve_count_reply(s, r, &q.ask, true);
    serve_ask_release(&q.ask);
}
