// The grammar of a valid tool call, in the way of calling that the model was trained on, from the tools on offer.
//
//   LFM2     <|tool_call_start|>[name(key=value, …), …]<|tool_call_end|>   values as in Python, strings as in JSON
//   Hermes   <tool_call>\n{"name": "…", "arguments": {…}}\n</tool_call>, several with line breaks between
//   Llama-3  {"name": "…", "parameters": {…}}
//
// Arguments follow the tool's parameters; keys that these do not declare are not written unless additionalProperties
// says so. Markers are single tokens where the vocabulary has them: text that spells one would not be read as one.
#include "base/base.h"
#include "text/schema_int.h"

#define TOOLS_MAX ANSWER_CALLS_MAX

struct tools {
    struct schema s;
    enum answer_style style;
    const struct tokenizer *tokenizer;
    bool parallel;
    int32_t otherwise; // node of what may come instead of a call, or GRAMMAR_NONE
    struct str only;   // the one tool to call, or empty
    int n;
    int32_t names[TOOLS_MAX], parameters[TOOLS_MAX]; // nodes; parameters may be GRAMMAR_NONE
};

// {"tools": […], "name": "…", "parallel": true}
static bool spec_read(struct tools *t, struct str spec) {
    struct schema *s = &t->s;
    if (!schema_read(s, spec)) return false;
    t->otherwise = schema_get(s, 0, "otherwise");
    int32_t list = schema_get(s, 0, "tools"), name = schema_get(s, 0, "name"), par = schema_get(s, 0, "parallel");
    if (list < 0 || s->nodes[list].event != JSON_ARRAY || s->nodes[list].n == 0)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "tool call: a list of tools is expected under \"tools\"");
    t->parallel = par < 0 || s->nodes[par].event != JSON_BOOL || s->nodes[par].boolean;
    if (name >= 0 && s->nodes[name].event == JSON_STRING) t->only = s->nodes[name].text;
    SCHEMA_EACH(s, child, list) {
        int32_t f = schema_get(s, child, "function");
        if (f < 0) f = child;
        int32_t tool_name = schema_get(s, f, "name");
        if (tool_name < 0 || s->nodes[tool_name].event != JSON_STRING || s->nodes[tool_name].text.len == 0)
            return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "tool call: %s has no name", schema_path(s, child));
        if (t->only.len && !str_eq(t->only, s->nodes[tool_name].text)) continue;
        if (t->n == TOOLS_MAX)
            return GRAMMAR_FAIL(s->b, TERN_LIMIT, "tool call: at most %d tools are allowed", TOOLS_MAX);
        t->names[t->n] = tool_name;
        t->parameters[t->n] = schema_get(s, f, "parameters");
        if (t->parameters[t->n] >= 0) s->nodes[t->parameters[t->n]].root = true;
        t->n++;
    }
    return t->n > 0 || GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "tool call: no tool is named \"%.*s\"",
                                    (int)MIN(t->only.len, 64), t->only.data);
}

// The marker as one token, or else as text.
static int32_t marker_put(struct tools *t, int32_t from, const char *marker) {
    struct grammar_builder *b = t->s.b;
    int32_t id = t->tokenizer ? tokenizer_find(t->tokenizer, str_from(marker)) : -1;
    if (id < 0) return grammar_text(b, from, str_from(marker));
    int32_t to = grammar_node(b);
    grammar_token(b, from, id, to);
    return to;
}

// The rule of a tool's arguments as one object; an empty one without parameters.
static int32_t arguments_rule(struct tools *t, int i) {
    struct grammar_builder *b = t->s.b;
    if (t->parameters[i] >= 0) return schema_rule_of_node(&t->s, t->parameters[i]);
    int32_t rule = grammar_rule(b, 0, COUNT_FREE), start = grammar_node(b);
    int32_t end = grammar_text(b, start, STR("{}"));
    if (b->status != TERN_OK) return GRAMMAR_NONE;
    b->g->rules[rule].start = start;
    b->g->nodes[end].accept = true;
    return rule;
}

static int32_t json_call(struct tools *t, int i, int32_t from, const char *key) {
    struct grammar_builder *b = t->s.b;
    struct buf text;
    buf_init(&text, CONSTRAINT_BYTES_MAX * 8);
    buf_puts(&text, "{\"name\": ");
    json_put_quoted(&text, t->s.nodes[t->names[i]].text);
    buf_putf(&text, ", \"%s\": ", key);
    if (text.failed) GRAMMAR_FAIL(b, TERN_NO_MEMORY, "no memory for a tool call");
    from = grammar_text(b, from, buf_str(&text));
    buf_release(&text);
    int32_t behind = grammar_node(b);
    grammar_call(b, from, arguments_rule(t, i), behind, false);
    return grammar_text(b, behind, STR("}"));
}

// name(key=value, …); parameters that are no plain object of names are written as name(**{…}).
static int32_t python_call(struct tools *t, int i, int32_t from) {
    struct schema *s = &t->s;
    struct str name = s->nodes[t->names[i]].text, word;
    size_t pos = 0;
    if (!literal_name(name, &pos, "-.", &word) || pos != name.len) {
        GRAMMAR_FAIL(s->b, TERN_UNSUPPORTED, "tool call: %s: \"%.*s\" cannot be written as a Python name",
                     schema_path(s, t->names[i]), (int)MIN(name.len, 64), name.data);
        return GRAMMAR_NONE;
    }
    from = grammar_text(s->b, from, name);
    int32_t behind = grammar_node(s->b), rule = GRAMMAR_NONE;
    if (t->parameters[i] < 0) return grammar_text(s->b, from, STR("()"));
    rule = schema_keywords_rule(s, t->parameters[i]);
    if (rule >= 0) {
        grammar_call(s->b, from, rule, behind, false);
        return behind;
    }
    from = grammar_text(s->b, from, STR("(**"));
    grammar_call(s->b, from, arguments_rule(t, i), behind, false);
    return grammar_text(s->b, behind, STR(")"));
}

// One call of any of the tools.
static int32_t call_rule(struct tools *t) {
    struct grammar_builder *b = t->s.b;
    int32_t rule = grammar_rule(b, 0, COUNT_FREE), end = grammar_node(b), start = grammar_node(b);
    if (b->status != TERN_OK) return GRAMMAR_NONE;
    b->g->rules[rule].start = start;
    b->g->nodes[end].accept = true;
    for (int i = 0; i < t->n && b->status == TERN_OK; i++) { // names may begin alike: each is a rule of its own
        int32_t one = grammar_rule(b, 0, COUNT_FREE), from = grammar_node(b), to = GRAMMAR_NONE;
        if (b->status != TERN_OK) break;
        b->g->rules[one].start = from;
        switch (t->style) {
        case ANSWER_LFM2: to = python_call(t, i, from); break;
        case ANSWER_HERMES: to = json_call(t, i, from, "arguments"); break;
        case ANSWER_LLAMA3: to = json_call(t, i, from, "parameters"); break;
        case ANSWER_PLAIN: break;
        }
        if (b->status != TERN_OK) break;
        b->g->nodes[to].accept = true;
        grammar_call(b, start, one, end, false);
    }
    return b->status == TERN_OK ? rule : GRAMMAR_NONE;
}

static void list_put(struct tools *t, int32_t from, int32_t call, int32_t end) {
    struct grammar_builder *b = t->s.b;
    int32_t behind = grammar_node(b);
    if (t->style == ANSWER_LFM2) {
        int32_t open = grammar_text(b, marker_put(t, from, "<|tool_call_start|>"), STR("["));
        grammar_call(b, open, call, behind, false);
        if (t->parallel) grammar_call(b, grammar_text(b, behind, STR(", ")), call, behind, false);
        int32_t close = marker_put(t, grammar_text(b, behind, STR("]")), "<|tool_call_end|>");
        if (b->status == TERN_OK) b->g->nodes[close].accept = true;
    } else if (t->style == ANSWER_HERMES) {
        int32_t open = grammar_text(b, marker_put(t, from, "<tool_call>"), STR("\n"));
        grammar_call(b, open, call, behind, false);
        int32_t close = marker_put(t, grammar_text(b, behind, STR("\n")), "</tool_call>");
        if (b->status != TERN_OK) return;
        b->g->nodes[close].accept = true;
        if (!t->parallel) return;
        int32_t again = marker_put(t, grammar_text(b, close, STR("\n")), "<tool_call>");
        grammar_call(b, grammar_text(b, again, STR("\n")), call, behind, false);
    } else {
        grammar_call(b, from, call, end, false);
    }
}

// {"kind": "json_schema", "spec": "…"}: a rule of its own, which may stand where a call may.
static int32_t otherwise_rule(struct tools *t, const struct constraint_source *src, struct buf *note) {
    static const char *const kinds[] = {[CONSTRAINT_JSON_SCHEMA] = "json_schema",
                                        [CONSTRAINT_JSON_OBJECT] = "json_object",
                                        [CONSTRAINT_GBNF] = "gbnf",
                                        [CONSTRAINT_REGEX] = "regex",
                                        [CONSTRAINT_CHOICE] = "choice"};
    struct schema *s = &t->s;
    int32_t kind = schema_get(s, t->otherwise, "kind"), spec = schema_get(s, t->otherwise, "spec");
    struct constraint_source other = *src;
    other.spec = spec >= 0 && s->nodes[spec].event == JSON_STRING ? s->nodes[spec].text : (struct str){0};
    for (size_t i = 0; kind >= 0 && s->nodes[kind].event == JSON_STRING && i < ARRAY_LEN(kinds); i++) {
        if (!str_eqz(s->nodes[kind].text, kinds[i])) continue;
        other.kind = (enum constraint_kind)i;
        return constraint_rule(s->b, &other, note);
    }
    GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "tool call: otherwise.kind is json_schema, json_object, gbnf, regex or choice");
    return GRAMMAR_NONE;
}

int32_t tool_call_rule(struct grammar_builder *b, const struct constraint_source *src, struct buf *note) {
    struct tools t = {.style = src->style, .tokenizer = src->tokenizer};
    int32_t rule = GRAMMAR_NONE;
    if (src->style == ANSWER_PLAIN) {
        GRAMMAR_FAIL(b, TERN_UNSUPPORTED, "this model's chat template has no way of calling tools");
        return rule;
    }
    schema_init(&t.s, b, note);
    t.s.closed = true;
    t.s.python = src->style == ANSWER_LFM2;
    if (spec_read(&t, src->spec)) {
        rule = grammar_rule(b, 0, COUNT_FREE);
        int32_t from = grammar_node(b), end = grammar_node(b), call = call_rule(&t);
        int32_t other = t.otherwise >= 0 ? otherwise_rule(&t, src, note) : GRAMMAR_NONE;
        if (b->status == TERN_OK) {
            b->g->rules[rule].start = from;
            b->g->nodes[end].accept = true;
            list_put(&t, from, call, end);
            if (other >= 0) grammar_call(b, from, other, end, false);
        }
        schema_build(&t.s);
    }
    schema_release(&t.s);
    return rule;
}
