// What an answer is held to: response_format, the grammars of other servers' clients, a call that must come. One of
// them at a time; compiled here, on a worker, within the engine's bounds; what it does not support is a 400 that names
// the keyword.
#include "base/base.h"
#include "serve.h"

struct wish {
    enum tern_constraint_kind kind;
    const char *param; // NULL: none yet
    struct str spec;
};

static bool wish_set(struct serve_ask *a, struct wish *w, enum tern_constraint_kind kind, const char *param,
                     struct str spec) {
    if (w->param) return serve_bad(a, param, "%s and %s are given; an answer is held to one of them", w->param, param);
    *w = (struct wish){kind, param, spec};
    return true;
}

// {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": …}}; a schema beside the
// type, as llama-server's clients write it.
static bool format_wish(struct serve_ask *a, struct wish *w) {
    static const struct serve_field fields[] = {SERVE_FIELD("type", SERVE_FIELD_STR, system, 0, 0),
                                                SERVE_FIELD("json_schema", SERVE_FIELD_RAW, json_schema, 0, 0),
                                                SERVE_FIELD("schema", SERVE_FIELD_RAW, input, 0, 0),
                                                {0}};
    static const struct serve_field inner_fields[] = {SERVE_FIELD("schema", SERVE_FIELD_RAW, input, 0, 0), {0}};
    if (a->response_format.len == 0) return true;
    struct serve_ask f = {.arena = a->arena};
    bool ok = serve_fields_read(&f, a->response_format, "response_format.", fields);
    if (ok && f.json_schema.len > 0)
        ok = serve_fields_read(&f, f.json_schema, "response_format.json_schema.", inner_fields);
    a->arena = f.arena;
    if (!ok) return a->fault = f.fault, false;
    if (str_eqz(f.system, "text")) return true;
    bool object = str_eqz(f.system, "json_object");
    if (!object && !str_eqz(f.system, "json_schema"))
        return serve_bad(a, "response_format.type", "response_format.type is text, json_object or json_schema");
    if (f.input.len > 0) return wish_set(a, w, TERN_CONSTRAINT_JSON_SCHEMA, "response_format", f.input);
    if (object) return wish_set(a, w, TERN_CONSTRAINT_JSON_OBJECT, "response_format", STR(""));
    return serve_bad(a, "response_format.json_schema.schema",
                     "response_format.json_schema.schema is missing: the schema that the answer is held to");
}

// "none", "auto", "required", {"type": "function", "function": {"name": …}}.
static bool tool_wish(struct serve_ask *a, struct wish *w) {
    static const struct serve_field fields[] = {
        SERVE_FIELD("function", SERVE_FIELD_RAW, input, 0, 0), SERVE_FIELD("name", SERVE_FIELD_STR, model, 0, 0), {0}};
    struct str c = a->tool_choice;
    if (c.len == 0 || str_eqz(c, "\"auto\"")) return true;
    if (str_eqz(c, "\"none\"")) {
        a->tools = (struct str){0}; // not offered, so not called
        return true;
    }
    bool named = c.data[0] == '{';
    if (!named && !str_eqz(c, "\"required\""))
        return serve_bad(a, "tool_choice",
                         "tool_choice is \"none\", \"auto\", \"required\" or an object with a function");
    if (a->tools.len == 0) return serve_bad(a, "tool_choice", "tool_choice asks for a call, but there are no tools");
    struct serve_ask f = {.arena = a->arena};
    bool ok = !named || serve_fields_read(&f, c, "tool_choice.", fields);
    if (ok && f.input.len > 0) ok = serve_fields_read(&f, f.input, "tool_choice.function.", fields + 1);
    a->arena = f.arena;
    if (!ok) return a->fault = f.fault, false;
    if (named && f.model.len == 0) return serve_bad(a, "tool_choice", "tool_choice names no function");
    struct buf spec;
    buf_init(&spec, SERVE_TEXT_BYTES_MAX);
    struct json_writer j;
    json_write_init(&j, &spec);
    json_write_object(&j);
    json_write_key(&j, "tools");
    json_write_raw(&j, a->tools);
    if (named) {
        json_write_key(&j, "name");
        json_write_str(&j, f.model);
    }
    json_write_key(&j, "parallel");
    json_write_bool(&j, a->parallel_tool_calls);
    json_write_object_end(&j);
    char *copy = spec.failed ? NULL : serve_ask_dup(a, buf_str(&spec));
    ok = copy && wish_set(a, w, TERN_CONSTRAINT_TOOL_CALL, "tool_choice", (struct str){copy, spec.len});
    buf_release(&spec);
    return ok;
}

static bool other_wishes(struct serve_ask *a, struct wish *w) {
    const struct {
        struct str spec;
        enum tern_constraint_kind kind;
        const char *param;
    } rows[] = {{a->json_schema, TERN_CONSTRAINT_JSON_SCHEMA, "json_schema"},
                {a->grammar, TERN_CONSTRAINT_GBNF, "grammar"},
                {a->regex, TERN_CONSTRAINT_REGEX, "guided_regex"},
                {a->choice, TERN_CONSTRAINT_CHOICE, "guided_choice"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].spec.len > 0 && !wish_set(a, w, rows[i].kind, rows[i].param, rows[i].spec)) return false;
    return true;
}

bool serve_constraint_open(struct serve_answer *sa) {
    struct serve_ask *a = &sa->ask;
    struct wish w = {0};
    if (!format_wish(a, &w) || !other_wishes(a, &w)) return false;
    bool format = w.param != NULL;
    if (!tool_wish(a, &w)) return false;
    // The format holds for the whole answer, so no call could come.
    if (format && a->tools.len > 0)
        return serve_bad(a, w.param,
                         "%s leaves no room for calls of tools; send tool_choice \"none\" with it, or no tools",
                         w.param);
    if (!w.param) return true;
    struct tern_err err = {0};
    enum tern_status status = tern_constraint_open(&sa->constraint, sa->s->engine, w.kind, serve_str(w.spec), &err);
    if (status != TERN_OK) {
        serve_fault_from(&a->fault, status, &err, w.param);
        return false;
    }
    sa->request.constraint = &sa->constraint;
    return true;
}
