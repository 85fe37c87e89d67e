// What an answer is held to: response_format, the grammars of other servers' clients, a call that must come. One form
// at a time; with tools to choose from, the answer is either calls or in that form. Compiled here, on a worker, within
// the engine's bounds; what it does not support is a 400 that names the keyword.
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

static const char *kind_name(enum tern_constraint_kind kind) {
    switch (kind) {
    case TERN_CONSTRAINT_JSON_SCHEMA: return "json_schema";
    case TERN_CONSTRAINT_JSON_OBJECT: return "json_object";
    case TERN_CONSTRAINT_GBNF: return "gbnf";
    case TERN_CONSTRAINT_REGEX: return "regex";
    case TERN_CONSTRAINT_CHOICE: return "choice";
    case TERN_CONSTRAINT_TOOL_CALL: break;
    }
    return "";
}

// The wish for a call of one of the tools (of the one named), or, with `form`, for that or an answer of this form.
static bool call_wish(struct serve_ask *a, struct str name, const struct wish *form, struct wish *out) {
    struct buf spec;
    buf_init(&spec, SERVE_TEXT_BYTES_MAX);
    struct json_writer j;
    json_write_init(&j, &spec);
    json_write_object(&j);
    json_write_key(&j, "tools");
    json_write_raw(&j, a->tools);
    if (name.len > 0) {
        json_write_key(&j, "name");
        json_write_str(&j, name);
    }
    json_write_key(&j, "parallel");
    json_write_bool(&j, a->parallel_tool_calls);
    if (form) {
        json_write_key(&j, "otherwise");
        json_write_object(&j);
        json_write_key(&j, "kind");
        json_write_str(&j, str_from(kind_name(form->kind)));
        json_write_key(&j, "spec");
        json_write_str(&j, form->spec);
        json_write_object_end(&j);
    }
    json_write_object_end(&j);
    if (spec.failed) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request");
    char *copy = spec.failed ? NULL : serve_ask_dup(a, buf_str(&spec));
    *out = (struct wish){TERN_CONSTRAINT_TOOL_CALL, form ? form->param : "tool_choice", {copy, spec.len}};
    buf_release(&spec);
    return copy != NULL;
}

// "none", "auto", "required", {"type": "function", "function": {"name": …}}. *forced: a call must come; of the function
// `name`, unless that is empty.
static bool tool_choice_read(struct serve_ask *a, bool *forced, struct str *name) {
    static const struct serve_field fields[] = {
        SERVE_FIELD("function", SERVE_FIELD_RAW, input, 0, 0), SERVE_FIELD("name", SERVE_FIELD_STR, model, 0, 0), {0}};
    struct str c = a->tool_choice;
    *forced = false;
    if (c.len == 0 || str_eqz(c, "\"auto\"")) return true;
    if (str_eqz(c, "\"none\"")) {
        a->tools = (struct str){0}; // not offered, so not called
        return true;
    }
    bool named = c.data[0] == '{';
    if (!named && !str_eqz(c, "\"required\""))
        return serve_bad(a, "tool_choice",
                         "tool_choice is \"none\", \"auto\", \"required\" or "
                         "{\"type\": \"function\", \"function\": {\"name\": …}}");
    if (a->tools.len == 0) return serve_bad(a, "tool_choice", "tool_choice asks for a call, but there are no tools");
    struct serve_ask f = {.arena = a->arena};
    bool ok = !named || serve_fields_read(&f, c, "tool_choice.", fields);
    if (ok && f.input.len > 0) ok = serve_fields_read(&f, f.input, "tool_choice.function.", fields + 1);
    a->arena = f.arena;
    if (!ok) return a->fault = f.fault, false;
    if (named && f.model.len == 0)
        return serve_bad(a, "tool_choice",
                         "tool_choice names no function: {\"type\": \"function\", \"function\": {\"name\": …}}");
    *forced = true;
    *name = f.model;
    return true;
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

static bool form_check(struct serve_answer *sa, const struct wish *w) {
    struct tern_constraint form;
    struct tern_err err = {0};
    enum tern_status status = tern_constraint_open(&form, sa->m->engine, w->kind, serve_str(w->spec), &err);
    if (status == TERN_OK)
        tern_constraint_close(&form);
    else
        serve_fault_from(&sa->ask.fault, status, &err, w->param);
    return status == TERN_OK;
}

bool serve_constraint_open(struct serve_answer *sa) {
    struct serve_ask *a = &sa->ask;
    struct wish w = {0};
    struct str name = {0};
    bool forced;
    if (!format_wish(a, &w) || !other_wishes(a, &w) || !tool_choice_read(a, &forced, &name)) return false;
    const struct wish form = w;
    if (forced && w.param && strcmp(w.param, "response_format") != 0)
        return serve_bad(a, w.param, "%s leaves no room for the call that tool_choice asks for", w.param);
    // A call that must come is all there is: response_format speaks of a text that does not come. It is read all the
    // same, so that what would be refused without tool_choice is refused with it.
    if (forced && w.param && !form_check(sa, &w)) return false;
    if (forced && !call_wish(a, name, NULL, &w)) return false;
    if (!forced && w.param && a->tools.len > 0 && !call_wish(a, name, &form, &w)) return false;
    if (!w.param) return true;
    struct tern_err err = {0};
    enum tern_status status = tern_constraint_open(&sa->constraint, sa->m->engine, w.kind, serve_str(w.spec), &err);
    if (status != TERN_OK) {
        serve_fault_from(&a->fault, status, &err, w.param);
        return false;
    }
    sa->request.constraint = &sa->constraint;
    return true;
}
