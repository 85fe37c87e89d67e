// POST /api/chat and /api/generate as Ollama has them: options in a block of their own, streamed unless told otherwise,
// one JSON object a line, whole tool calls. serve_ollama_info.c has the routes that only tell something.
//
// keep_alive: serve_keep.c. num_ctx is no wish that could be granted at a request; what does
// not fit the context is refused, never cut.
#include "base/base.h"
#include "serve_ollama.h"

#include <stdio.h>

#define OLLAMA_FIELD(name_, kind_, member_) \
    { name_, kind_, offsetof(struct ollama_ask, member_), 0, 0, 0, 0 }

struct reading {
    struct serve_chat chat;
    struct serve_ask *a;
};

bool serve_ollama_model_check(struct serve *s, struct net_request *r, struct str name) {
    if (name.len == 0) {
        serve_failf(r, 400, "model", "invalid_value", "model is missing");
        return false;
    }
    return serve_model_check(s, r, name);
}

static bool call_take(void *arg, struct str raw, int i) {
    static const struct serve_field fields[] = {
        PART_FIELD("id", SERVE_FIELD_STR, id), PART_FIELD("function", SERVE_FIELD_RAW, function), {0}};
    static const struct serve_field function_fields[] = {
        PART_FIELD("name", SERVE_FIELD_STR, name), PART_FIELD("arguments", SERVE_FIELD_RAW, arguments), {0}};
    struct reading *r = arg;
    struct serve_part p, f = {0};
    (void)i;
    if (!serve_part_read(r->a, &p, raw, "tool_calls.", fields)) return false;
    if (p.function.len > 0 && !serve_part_read(r->a, &f, p.function, "tool_calls.function.", function_fields))
        return false;
    if (f.name.len == 0) return serve_bad(r->a, "tool_calls", "tool_calls: a call has no function with a name");
    serve_chat_call(&r->chat, p.id, f.name, f.arguments);
    return true;
}

static bool message_take(void *arg, struct str raw, int i) {
    static const struct serve_field fields[] = {
        PART_FIELD("role", SERVE_FIELD_STR, role),         PART_FIELD("content", SERVE_FIELD_STR, text),
        PART_FIELD("thinking", SERVE_FIELD_STR, thinking), PART_FIELD("tool_calls", SERVE_FIELD_RAW, tool_calls),
        PART_FIELD("tool_name", SERVE_FIELD_STR, name),    PART_FIELD("tool_call_id", SERVE_FIELD_STR, call_id),
        PART_FIELD("images", SERVE_FIELD_RAW, images),     {0}};
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    struct reading *r = arg;
    struct serve_part p;
    const char *role = NULL;
    char path[SERVE_PATH_MAX];
    snprintf(path, sizeof path, "messages[%d].", i);
    if (!serve_part_read(r->a, &p, raw, path, fields)) return false;
    for (size_t k = 0; k < ARRAY_LEN(roles); k++)
        if (str_eqz(p.role, roles[k])) role = roles[k];
    if (!role) return serve_bad(r->a, path, "%srole must be system, user, assistant or tool", path);
    if (p.images.len > 0 && !str_eqz(p.images, "[]"))
        return serve_bad(r->a, path, "%simages: this model reads text only", path);
    serve_chat_text(&r->chat, p.text);
    serve_chat_thoughts(&r->chat, p.thinking);
    if (p.tool_calls.len > 0 && !serve_list_each(r->a, p.tool_calls, "tool_calls", SERVE_TOOLS_MAX, call_take, r))
        return false;
    serve_chat_close(&r->chat, role, p.call_id, p.name, true);
    return true;
}

// -1: as long as it likes, -2: to the end of the context.
static bool predict_take(struct serve_ask *a, struct str raw, const char *name) {
    int64_t n;
    if (!str_to_i64(raw, &n) || n < -2) return serve_bad(a, name, "%s must be a whole number from -2", name);
    if (n > 0) a->max_tokens = n;
    return true;
}

static bool repeat_last_take(struct serve_ask *a, struct str raw, const char *name) {
    int64_t n;
    if (!str_to_i64(raw, &n) || n < -1 || n > 4096)
        return serve_bad(a, name, "%s must be a whole number from -1 to 4096", name);
    a->repeat_last = n < 0 ? 4096 : n;
    return true;
}

static const struct serve_field option_fields[] = {SERVE_FIELDS_SAMPLING,
                                                   {"num_predict", SERVE_FIELD_TAKE, 0, 0, 0, predict_take, 0},
                                                   {"repeat_last_n", SERVE_FIELD_TAKE, 0, 0, 0, repeat_last_take, 0},
                                                   {0}};

// "json" or a schema.
static bool format_take(struct ollama_ask *q) {
    struct serve_ask *a = &q->ask;
    struct buf nested;
    if (q->format.len == 0 || str_eqz(q->format, "\"\"")) return true;
    if (str_eqz(q->format, "\"json\"")) return a->response_format = STR("{\"type\":\"json_object\"}"), true;
    if (q->format.data[0] != '{') return serve_bad(a, "format", "format is \"json\" or a JSON schema");
    buf_init(&nested, q->format.len + 128);
    buf_puts(&nested, "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"format\",\"schema\":");
    buf_put(&nested, q->format.data, q->format.len);
    buf_puts(&nested, "}}");
    a->response_format = (struct str){nested.failed ? NULL : serve_ask_dup(a, buf_str(&nested)), nested.len};
    buf_release(&nested);
    return a->response_format.data != NULL;
}

void serve_ollama_empty_reply(struct serve *s, struct net_request *r, const struct serve_model *m, bool chat,
                              const char *reason) {
    (void)s;
    char when[24];
    struct buf out;
    struct json_writer w;
    buf_init(&out, 8192);
    json_write_init(&w, &out);
    json_write_object(&w);
    serve_put_text(&w, "model", m->id);
    serve_put_text(&w, "created_at", serve_time_text(when, clock_wall_s()));
    if (chat)
        serve_put_raw(&w, "message", STR("{\"role\":\"assistant\",\"content\":\"\"}"));
    else
        serve_put_text(&w, "response", "");
    serve_put_text(&w, "done_reason", reason);
    serve_put_bool(&w, "done", true);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

#define COMMON_FIELDS                                                                                          \
    SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), SERVE_FIELD("stream", SERVE_FIELD_BOOL, stream, 0, 0), \
        OLLAMA_FIELD("options", SERVE_FIELD_RAW, options), OLLAMA_FIELD("format", SERVE_FIELD_RAW, format),    \
        {"keep_alive", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_keep_alive, 0},                                   \
        {"think", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_think, 0},                                             \
        SERVE_FIELD("logprobs", SERVE_FIELD_BOOL, logprobs, 0, 0),                                             \
        SERVE_FIELD("top_logprobs", SERVE_FIELD_INT, top_logprobs, 0, TERN_TOP_LOGPROBS_MAX)

static bool chat_read(struct ollama_ask *q, struct str body) {
    static const struct serve_field fields[] = {COMMON_FIELDS,
                                                SERVE_FIELD("messages", SERVE_FIELD_RAW, messages, 0, 0),
                                                SERVE_FIELD("tools", SERVE_FIELD_RAW, tools, 0, 0),
                                                {0}};
    struct serve_ask *a = &q->ask;
    struct reading read = {.a = a};
    if (!serve_fields_read(a, body, "", fields)) return false;
    if (a->messages.len == 0 || str_eqz(a->messages, "[]")) return a->messages = (struct str){0}, true;
    serve_chat_init(&read.chat, a);
    if (serve_list_each(a, a->messages, "messages", SERVE_MESSAGES_MAX, message_take, &read))
        return serve_chat_finish(&read.chat); // the tools are in the engine's form already
    serve_chat_release(&read.chat);
    return false;
}

static bool generate_read(struct ollama_ask *q, struct str body) {
    static const struct serve_field fields[] = {
        COMMON_FIELDS,
        OLLAMA_FIELD("prompt", SERVE_FIELD_STR, prompt_text),
        OLLAMA_FIELD("system", SERVE_FIELD_STR, system_text),
        OLLAMA_FIELD("raw", SERVE_FIELD_BOOL, raw),
        OLLAMA_FIELD("images", SERVE_FIELD_RAW, images),
        {"template", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "templates of clients are not run"},
        {"context", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "token lists of earlier answers are not read; use /api/chat"},
        {0}};
    struct serve_ask *a = &q->ask;
    struct reading read = {.a = a};
    if (!serve_fields_read(a, body, "", fields)) return false;
    if (q->images.len > 0 && !str_eqz(q->images, "[]"))
        return serve_bad(a, "images", "images: this model reads text only");
    if (q->raw || q->prompt_text.len == 0) return true;
    serve_chat_init(&read.chat, a);
    serve_chat_text(&read.chat, q->system_text);
    serve_chat_close(&read.chat, "system", STR(""), STR(""), false);
    serve_chat_text(&read.chat, q->prompt_text);
    serve_chat_close(&read.chat, "user", STR(""), STR(""), true);
    return serve_chat_finish(&read.chat);
}

bool serve_ollama_read(struct ollama_ask *q, struct str body, bool chat) {
    q->ask.stream = true;
    if (!(chat ? chat_read(q, body) : generate_read(q, body))) return false;
    if (q->options.len > 0 && !serve_fields_read(&q->ask, q->options, "options.", option_fields)) return false;
    return format_take(q);
}

static void answer_start(struct serve *s, struct net_request *r, bool chat) {
    struct serve_answer *a =
        serve_answer_create(s, r, chat ? &serve_ollama_chat_wire : &serve_ollama_generate_wire, "ollama_");
    if (!a) return;
    struct ollama_ask q = {.ask = a->ask};
    bool ok = serve_ollama_read(&q, r->body, chat);
    if (ok && !q.raw && q.ask.messages.len > 0 && !a->m->info.has_template)
        ok = serve_bad(&q.ask, NULL, "the model has no chat template; use /api/generate with raw");
    a->ask = q.ask;
    a->extra = arena_calloc(&a->ask.arena, 1, sizeof(struct serve_bits));
    if (ok && !a->extra) {
        serve_fault_set(&a->ask.fault, 503, NULL, "no_memory", "no memory for the request; try again");
        ok = false;
    }
    if (!ok) serve_fail(r, &a->ask.fault);
    ok = ok && serve_ollama_model_check(s, r, a->ask.model);
    const bool empty = ok && a->ask.messages.len == 0 && q.prompt_text.len == 0;
    if (ok) serve_keep_set(s, a->m, &a->ask);
    if (empty) serve_ollama_empty_reply(s, r, a->m, chat, "load");
    if (!ok || empty || !serve_answer_prepare(a)) {
        serve_answer_free(a);
        return;
    }
    struct serve_prompt prompt = {.messages = a->ask.messages, .tools = a->ask.tools};
    if (q.raw) prompt = (struct serve_prompt){.text = q.prompt_text, .special = true};
    serve_answer_start(a, &prompt, 1);
}

void serve_ollama_chat(struct serve *s, struct net_request *r) { answer_start(s, r, true); }
void serve_ollama_generate(struct serve *s, struct net_request *r) { answer_start(s, r, false); }
