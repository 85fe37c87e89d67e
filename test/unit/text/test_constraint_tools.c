// Tool calls as constraints, in each way of calling: what they accept, and that the answer parser reads every text that
// they let through as calls of the offered tools whose arguments fit.
#include "constraint_fixture.h"
#include "../../common/schema_check.h"

#define WEATHER                                                                                                    \
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 9}, \"days\": "       \
    "{\"type\": \"array\", \"items\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 9}, \"maxItems\": 3}, " \
    "\"deep\": {\"type\": \"object\", \"properties\": {\"ok\": {\"type\": \"boolean\"}, \"none\": {\"type\": "     \
    "\"null\"}}}}, \"required\": [\"city\"]}"
#define ODD "{\"type\": \"object\", \"properties\": {\"a b\": {\"type\": \"boolean\"}}, \"required\": [\"a b\"]}"
#define TOOLS                                                                                             \
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": " WEATHER "}}, " \
    "{\"name\": \"get\", \"parameters\": " ODD "}, {\"function\": {\"name\": \"stop\"}}]"
#define SPEC "{\"tools\": " TOOLS "}"

static const struct vector {
    enum answer_style style;
    const char *spec;
    const char *accept[6], *reject[8];
} vectors[] = {
    {ANSWER_LLAMA3,
     SPEC,
     {"{\"name\": \"stop\", \"parameters\": {}}", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}",
      "{\"name\": \"get\", \"parameters\": {\"a b\":true}}"},
     {"{\"name\": \"go\", \"parameters\": {}}", "{\"name\": \"get_weather\", \"parameters\": {}}",
      "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"x\": 1}}", "", "stop"}},
    {ANSWER_HERMES, // pico has no such marker: as text
     SPEC,
     {"<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", "
      "\"arguments\": {\"city\": \"\", \"days\": [1, 2]}}\n</tool_call>"},
     {"{\"name\": \"stop\", \"arguments\": {}}", "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n"}},
    {ANSWER_HERMES,
     "{\"tools\": " TOOLS ", \"name\": \"stop\", \"parallel\": false}",
     {"<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"},
     {"<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a b\": true}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", "
      "\"arguments\": {}}\n</tool_call>"}},
};

static void test_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        const struct vector *v = &vectors[i];
        struct constraint *c;
        struct tern_err err;
        if (constraint_try(&c, CONSTRAINT_TOOL_CALL, str_from(v->spec), v->style, &err) != TERN_OK)
            fail_msg("%s", err.message);
        for (int k = 0; k < 6 && v->accept[k]; k++) verdict_check(c, "tool call", str_from(v->accept[k]), true);
        for (int k = 0; k < 8 && v->reject[k]; k++) verdict_check(c, "tool call", str_from(v->reject[k]), false);
        constraint_free(c);
    }
}

// The LFM2 form: markers are tokens, and only those.
static bool lfm2_accepts(struct constraint *c, const char *list) {
    int32_t open = tokenizer_find(vocab, STR("<|tool_call_start|>"));
    int32_t close = tokenizer_find(vocab, STR("<|tool_call_end|>"));
    assert_true(open >= 0 && close >= 0);
    struct constraint_state *s = constraint_state_create(c);
    bool ok = !constraint_may_end(s) && constraint_advance(s, open) && constraint_put(s, str_from(list)) &&
              constraint_advance(s, close) && constraint_may_end(s);
    constraint_state_free(s);
    s = constraint_state_create(c);
    assert_false(constraint_put(s, STR("<|tool_call_start|>"))); // spelled
    constraint_state_free(s);
    return ok;
}

static void test_lfm2(void **state) {
    (void)state;
    static const char *const accept[] = {
        "[stop()]", "[get_weather(city=\"Oslo\")]",
        "[get_weather(city=\"\\\"x\\\"\", days=[1, 2], deep={\"ok\": True, \"none\": None})]",
        "[get(**{\"a b\": False})]", "[stop(), get_weather(city=\"a\", deep={}), stop()]"};
    static const char *const reject[] = {"[]",
                                         "stop()",
                                         "[stop(x=1)]",
                                         "[get_weather()]",
                                         "[get_weather(days=[1])]",
                                         "[get_weather(city=\"a\", city=\"b\")]",
                                         "[get_weather(city=\"a\",)]",
                                         "[get_weather(city=\"a\", deep={\"ok\": true})]",
                                         "[get_weather(city=\"0123456789\")]",
                                         "[go()]",
                                         "[stop() stop()]"};
    struct constraint *c = constraint_get(CONSTRAINT_TOOL_CALL, STR(SPEC));
    for (size_t i = 0; i < ARRAY_LEN(accept); i++)
        if (!lfm2_accepts(c, accept[i])) fail_msg("refuses %s", accept[i]);
    for (size_t i = 0; i < ARRAY_LEN(reject); i++)
        if (lfm2_accepts(c, reject[i])) fail_msg("accepts %s", reject[i]);
    constraint_free(c);
}

struct taken {
    int n_calls, n_texts;
    struct buf shown;
};

static bool call_take(void *arg, const struct answer_event *ev) {
    struct taken *t = arg;
    char why[200];
    if (ev->type != ANSWER_CALL) {
        t->n_texts++;
        return true;
    }
    t->n_calls++;
    buf_putf(&t->shown, "%.*s %.*s\n", (int)ev->name.len, ev->name.data, (int)ev->arguments.len, ev->arguments.data);
    const char *schema = str_eqz(ev->name, "get_weather") ? WEATHER
                         : str_eqz(ev->name, "get")       ? ODD
                                                          : "{\"maxProperties\": 0}";
    if (!schema_check(schema, ev->arguments.data, ev->arguments.len, why, sizeof why))
        fail_msg("%.*s: %.*s does not fit: %s", (int)ev->name.len, ev->name.data, (int)ev->arguments.len,
                 ev->arguments.data, why);
    return true;
}

// A random text of the constraint, token by token into the parser.
static void walk_parse(struct constraint *c, enum answer_style style, uint64_t seed) {
    static uint32_t mask[2048];
    struct answer_options o = {.style = style, .tools_json = STR(TOOLS)};
    struct taken t = {0};
    struct answer *a;
    struct tern_err err;
    buf_init(&t.shown, 1 << 20);
    assert_int_equal(answer_create(&a, &o, &err), TERN_OK);
    struct constraint_state *s = constraint_state_create(c);
    for (int step = 0; step < 3000; step++) {
        mask_get(s, mask);
        if (mask_has(mask, EOS)) break;
        int32_t best = -1;
        int n = 0;
        for (int32_t i = 0; i < tokenizer_size(vocab); i++) {
            if (!mask_has(mask, i)) continue;
            struct str bytes = tokenizer_token_bytes(vocab, i);
            bool closes = bytes.len == 1 && strchr("\"}])\n", bytes.data[0]);
            if (step > 50 && closes && random_next(&seed) % 2) {
                best = i;
                break;
            }
            if (random_next(&seed) % (uint64_t)++n == 0) best = i;
        }
        assert_true(best >= 0);
        assert_true(constraint_advance(s, best));
        struct str bytes = tokenizer_token_bytes(vocab, best);
        assert_int_equal(answer_put(a, bytes, tokenizer_is_control(vocab, best), call_take, &t, &err), TERN_OK);
    }
    assert_true(constraint_may_end(s));
    assert_int_equal(answer_finish(a, call_take, &t, &err), TERN_OK);
    if (t.n_calls < 1 || t.n_texts > 0)
        fail_msg("style %d: %d calls, %d texts: %s", style, t.n_calls, t.n_texts, t.shown.data ? t.shown.data : "");
    constraint_state_free(s);
    answer_free(a);
    buf_release(&t.shown);
}

static void test_parsed(void **state) {
    (void)state;
    static const enum answer_style styles[] = {ANSWER_LFM2, ANSWER_LLAMA3};
    for (size_t i = 0; i < ARRAY_LEN(styles); i++) {
        struct constraint *c;
        struct tern_err err;
        if (constraint_try(&c, CONSTRAINT_TOOL_CALL, STR(SPEC), styles[i], &err) != TERN_OK)
            fail_msg("%s", err.message);
        for (uint64_t seed = 1; seed <= 10; seed++) walk_parse(c, styles[i], seed * 991);
        constraint_free(c);
    }
}

// Calls or a text of another form: both are accepted, nothing between.
static void test_otherwise(void **state) {
    (void)state;
#define OTHERWISE(kind, spec) "{\"tools\": " TOOLS ", \"otherwise\": {\"kind\": \"" kind "\", \"spec\": \"" spec "\"}}"
    static const struct {
        enum answer_style style;
        const char *spec, *accept[3], *reject[3];
    } rows[] = {{ANSWER_LFM2,
                 OTHERWISE("json_schema", "{\\\"type\\\": \\\"boolean\\\"}"),
                 {"true", "false"},
                 {"[stop()]", "null", "true[stop()]"}},
                {ANSWER_LFM2, OTHERWISE("json_object", ""), {"{}", "{\"a\": [1]}"}, {"[]", "{", "1"}},
                {ANSWER_LFM2, OTHERWISE("regex", "[ab]{2}"), {"ab", "ba"}, {"a", "abc"}},
                {ANSWER_LFM2, OTHERWISE("gbnf", "root ::= [0-9]+"), {"7", "12"}, {"", "x"}},
                {ANSWER_LFM2, OTHERWISE("choice", "[\\\"yes\\\", \\\"[no\\\"]"), {"yes", "[no"}, {"[", "no"}},
                {ANSWER_LLAMA3,
                 OTHERWISE("json_schema", "{\\\"type\\\": \\\"boolean\\\"}"),
                 {"true", "{\"name\": \"stop\", \"parameters\": {}}"},
                 {"{\"name\": \"go\", \"parameters\": {}}", "{}", "true{\"name\": \"stop\", \"parameters\": {}}"}}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct constraint *c;
        struct tern_err err;
        if (constraint_try(&c, CONSTRAINT_TOOL_CALL, str_from(rows[i].spec), rows[i].style, &err) != TERN_OK)
            fail_msg("row %zu: %s", i, err.message);
        for (int k = 0; k < 3 && rows[i].accept[k]; k++)
            verdict_check(c, "otherwise", str_from(rows[i].accept[k]), true);
        for (int k = 0; k < 3 && rows[i].reject[k]; k++)
            verdict_check(c, "otherwise", str_from(rows[i].reject[k]), false);
        if (rows[i].style == ANSWER_LFM2) assert_true(lfm2_accepts(c, "[stop(), get_weather(city=\"a\")]"));
        constraint_free(c);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *spec;
        enum answer_style style;
        enum tern_status status;
        const char *word;
    } rows[] = {{SPEC, ANSWER_PLAIN, TERN_UNSUPPORTED, "template"},
                {"{}", ANSWER_LFM2, TERN_BAD_FORMAT, "tools"},
                {"{\"tools\": [{}]}", ANSWER_LFM2, TERN_BAD_FORMAT, "no name"},
                {"{\"tools\": [{\"name\": \"a b\"}]}", ANSWER_LFM2, TERN_UNSUPPORTED, "a b"},
                {"{\"tools\": " TOOLS ", \"name\": \"nosuch\"}", ANSWER_LFM2, TERN_BAD_FORMAT, "nosuch"},
                {"{\"tools\": [{\"name\": \"f\", \"parameters\": {\"properties\": {\"x\": {\"not\": {}}}}}]}",
                 ANSWER_LFM2, TERN_UNSUPPORTED, "#/tools/0/parameters/properties/x"},
                {OTHERWISE("tool_call", ""), ANSWER_LFM2, TERN_BAD_FORMAT, "otherwise.kind"},
                {OTHERWISE("json_schema", "{\\\"not\\\": {}}"), ANSWER_LFM2, TERN_UNSUPPORTED, "\"not\""}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct constraint *c = NULL;
        struct tern_err err;
        enum tern_status got = constraint_try(&c, CONSTRAINT_TOOL_CALL, str_from(rows[i].spec), rows[i].style, &err);
        if (got != rows[i].status || !strstr(err.message, rows[i].word))
            fail_msg("row %zu: status %d: %s", i, got, err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),   cmocka_unit_test(test_lfm2),    cmocka_unit_test(test_parsed),
        cmocka_unit_test(test_otherwise), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("tool call constraints", tests, vocab_setup, vocab_teardown);
}
