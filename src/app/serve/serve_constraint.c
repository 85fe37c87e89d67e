// What an answer is held to: response_format, the grammars of other servers' clients, a call that must come. One form
// at a time; with tools to choose from, the answer is either calls or in that form. Compiled here, on a worker, within
// the engine's bounds; what it does not support is a 400 that names the keyword.
#include "base/base.h"
#include "serve_parts.h"

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

// Tools of the list `from` that are named in the list `names`.
struct tools_pick {
    struct serve_ask *a;
    struct str name;   // looked for
    struct str *found; // raw
    struct buf picked;
};

// The name of {"function": {"name"}} or {"name"}.
static bool function_name_read(struct serve_ask *a, struct str raw, const char *prefix, struct str *name) {
    static const struct serve_field fields[] = {
        PART_FIELD("function", SERVE_FIELD_RAW, function), PART_FIELD("name", SERVE_FIELD_STR, name), {0}};
    struct serve_part p;
    if (!serve_part_read(a, &p, raw, prefix, fields)) return false;
    *name = p.name;
    if (p.function.len == 0) return true;
    const bool ok = serve_part_read(a, &p, p.function, prefix, fields + 1);
    if (ok) *name = p.name;
    return ok;
}

static bool tool_is(void *arg, struct str raw, int i) {
    struct tools_pick *t = arg;
    struct str name;
    (void)i;
    if (!function_name_read(t->a, raw, "tools.", &name)) return false;
    if (str_eq(name, t->name)) *t->found = raw;
    return true;
}

static bool allowed_take(void *arg, struct str raw, int i) {
    struct tools_pick *t = arg;
    struct str found = {0};
    t->found = &found;
    if (!function_name_read(t->a, raw, "tool_choice.tools.", &t->name)) return false;
    if (!serve_list_each(t->a, t->a->tools, "tools", SERVE_TOOLS_MAX, tool_is, t)) return false;
    if (!found.data)
        return serve_bad(t->a, "tool_choice", "tool_choice allows '%.*s', which is none of the tools",
                         (int)MIN(t->name.len, SERVE_NAME_SHOWN_MAX), t->name.data ? t->name.data : "");
    if (i > 0) buf_putc(&t->picked, ',');
    buf_put(&t->picked, found.data, found.len);
    return true;
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, in /v1/responses without the object within: the other
// tools are not offered, so not called.
static bool allowed_read(struct serve_ask *a, const struct serve_part *p, bool *forced) {
    static const struct serve_field fields[] = {
        PART_FIELD("mode", SERVE_FIELD_STR, text), PART_FIELD("tools", SERVE_FIELD_RAW, content), {0}};
    struct serve_part in;
    struct tools_pick t = {.a = a};
    if (!serve_part_read(a, &in, p->input.len > 0 ? p->input : a->tool_choice, "tool_choice.", fields)) return false;
    *forced = str_eqz(in.text, "required");
    if (!*forced && !str_eqz(in.text, "auto"))
        return serve_bad(a, "tool_choice", "tool_choice.mode of allowed_tools is auto or required");
    if (in.content.len == 0) return serve_bad(a, "tool_choice", "tool_choice.tools is missing: the tools allowed");
    buf_init(&t.picked, SERVE_TEXT_BYTES_MAX);
    buf_putc(&t.picked, '[');
    bool ok = serve_list_each(a, in.content, "tool_choice.tools", SERVE_TOOLS_MAX, allowed_take, &t);
    if (ok && t.picked.len == 1) ok = serve_bad(a, "tool_choice", "tool_choice.tools is empty; none is \"none\"");
    buf_putc(&t.picked, ']');
    if (ok && t.picked.failed) serve_fault_set(&a->fault, 503, NULL, "no_memory", "no memory for the request");
    if (ok && !t.picked.failed) a->tools = (struct str){serve_ask_dup(a, buf_str(&t.picked)), t.picked.len};
    ok = ok && !t.picked.failed && a->tools.data;
    buf_release(&t.picked);
    return ok;
}

// "none", "auto", "required", {"type": "function", "function": {"name": …}}, allowed_tools. *forced: a call must come;
// of the function `name`, unless that is empty.
static bool tool_choice_read(struct serve_ask *a, bool *forced, struct str *name) {
    static const struct serve_field fields[] = {
        PART_FIELD("type", SERVE_FIELD_STR, type), PART_FIELD("allowed_tools", SERVE_FIELD_RAW, input), {0}};
    struct str c = a->tool_choice;
    struct serve_part p = {0};
    *forced = false;
    if (c.len == 0 || str_eqz(c, "\"auto\"")) return true;
    if (str_eqz(c, "\"none\"")) {
        a->tools = (struct str){0}; // not offered, so not called
        return true;
    }
    bool named = c.data[0] == '{';
    if (!named && !str_eqz(c, "\"required\""))
        return serve_bad(a, "tool_choice",
                         "tool_choice is \"none\", \"auto\", \"required\", "
                         "{\"type\": \"function\", \"function\": {\"name\": …}} or allowed_tools");
    if (a->tools.len == 0) return serve_bad(a, "tool_choice", "tool_choice asks for a call, but there are no tools");
    if (named && !serve_part_read(a, &p, c, "tool_choice.", fields)) return false;
    if (str_eqz(p.type, "allowed_tools")) return allowed_read(a, &p, forced);
    if (named && !function_name_read(a, c, "tool_choice.", name)) return false;
    if (named && name->len == 0)
        return serve_bad(a, "tool_choice",
                         "tool_choice names no function: {\"type\": \"function\", \"function\": {\"name\": …}}");
    *forced = true;
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
