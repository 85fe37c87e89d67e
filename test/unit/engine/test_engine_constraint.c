// Ready-made constraints through the public interface: the same text plain and by every way of drafting, sampled and
// greedy; JSON that fits its schema; calls of tools that the parser reads.
#include "engine_fixture.h"
#include "../../common/schema_check.h"

#define PROMPT "<|startoftext|><|im_start|>user\nTell me about the moon.<|im_end|>\n<|im_start|>assistant\n"
#define TOOLS                                                                                                         \
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\", "     \
    "\"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 12}, \"unit\": {\"enum\": [\"celsius\", "       \
    "\"fahrenheit\"]}, \"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 9}}, \"required\": [\"city\", " \
    "\"days\"]}}}, {\"type\": \"function\", \"function\": {\"name\": \"stop\", \"description\": \"ends it\"}}]"

static const struct {
    enum tern_constraint_kind kind;
    const char *spec;
} rows[] = {
    {TERN_CONSTRAINT_JSON_SCHEMA,
     "{\"type\": \"object\", \"properties\": {\"reason\": {\"type\": \"string\", \"maxLength\": 40}, \"score\": "
     "{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 100}, \"tags\": {\"type\": \"array\", \"items\": {\"enum\": "
     "[\"moon\", \"sun\", \"star\"]}, \"minItems\": 1, \"maxItems\": 3}, \"ok\": {\"type\": \"boolean\"}}, "
     "\"required\": [\"reason\", \"score\", \"tags\", \"ok\"], \"additionalProperties\": false}"},
    {TERN_CONSTRAINT_JSON_SCHEMA, "{\"type\": \"array\", \"items\": {\"type\": \"number\", \"minimum\": 0.5, "
                                  "\"maximum\": 2}, \"minItems\": 3, \"maxItems\": 5}"},
    {TERN_CONSTRAINT_REGEX, "The [a-z ]{3,20}(moon|sun)\\."},
    {TERN_CONSTRAINT_CHOICE, "[\"yes\", \"no\", \"perhaps\"]"},
    {TERN_CONSTRAINT_GBNF, "root ::= item{2}\nitem ::= \"- \" [a-z]{1,8} \" \" [a-z]{1,8} \"\\n\""},
};

static struct tern_str str_of(const char *text) { return (struct tern_str){text, strlen(text)}; }

static struct tern_request_options request_of(const struct tern_constraint *c, int seed) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.prompt = str_of(PROMPT);
    o.prompt_special = true;
    o.n_max = 200;
    o.constraint = c;
    o.temperature = seed ? 0.9f : 0;
    o.seed = (uint64_t)seed;
    return o;
}

static void test_same_text(void **state) {
    (void)state;
    static const enum tern_draft drafts[] = {TERN_DRAFT_OFF, TERN_DRAFT_CHAIN, TERN_DRAFT_TREE, TERN_DRAFT_NGRAM};
    struct tern_engine_options eo = fixture_options(PICO_MODEL);
    eo.draft_path = TEST_MODELS "/pico-dspark.gguf";
    eo.draft = TERN_DRAFT_OFF;
    struct tern_engine *e = fixture_engine(&eo);
    struct tern_session *s = fixture_session(e);
    int64_t n_accepted = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tern_constraint c;
        struct tern_err err;
        char why[200];
        fixture_must(tern_constraint_open(&c, e, rows[i].kind, str_of(rows[i].spec), &err), &err);
        for (int seed = 0; seed < 3; seed++) {
            struct seen plain, seen;
            for (size_t d = 0; d < ARRAY_LEN(drafts); d++) {
                struct tern_request_options o = request_of(&c, seed);
                o.draft = drafts[d];
                seen_run(d ? &seen : &plain, s, &o);
                if (d == 0) continue;
                n_accepted += seen.usage.n_accepted;
                if (seen.n_ids != plain.n_ids || memcmp(seen.ids, plain.ids, plain.n_ids * sizeof *plain.ids) != 0)
                    fail_msg("row %zu, seed %d, draft %d: '%s' instead of '%s'", i, seed, (int)drafts[d],
                             seen.text.data, plain.text.data);
                seen_release(&seen);
            }
            if (plain.finish == TERN_FINISH_STOP && rows[i].kind == TERN_CONSTRAINT_JSON_SCHEMA &&
                !schema_check(rows[i].spec, plain.text.data, plain.text.len, why, sizeof why))
                fail_msg("row %zu: '%s' does not fit: %s", i, plain.text.data, why);
            if (i != 2 && plain.finish != TERN_FINISH_STOP) fail_msg("row %zu: no end: '%s'", i, plain.text.data);
            seen_release(&plain);
        }
        tern_constraint_close(&c);
    }
    assert_true(n_accepted > 0);
    tern_session_close(s);
    tern_engine_close(e);
}

static void test_tool_choice(void **state) {
    (void)state;
    static const char *const specs[] = {"{\"tools\": " TOOLS "}", "{\"tools\": " TOOLS ", \"name\": \"stop\"}",
                                        "{\"tools\": " TOOLS ", \"name\": \"get_weather\", \"parallel\": false}"};
    struct tern_engine_options eo = fixture_options(PICO_MODEL);
    struct tern_engine *e = fixture_engine(&eo);
    struct tern_session *s = fixture_session(e);
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        struct tern_constraint c;
        struct tern_err err;
        fixture_must(tern_constraint_open(&c, e, TERN_CONSTRAINT_TOOL_CALL, str_of(specs[i]), &err), &err);
        for (int seed = 0; seed < 4; seed++) {
            struct seen seen;
            struct tern_request_options o = request_of(&c, seed);
            o.prompt = (struct tern_str){0};
            o.messages_json = str_of("[{\"role\": \"user\", \"content\": \"How is the weather in Oslo?\"}]");
            o.tools_json = str_of(TOOLS);
            seen_run(&seen, s, &o);
            const char *calls = seen.calls.data ? seen.calls.data : "";
            if (seen.finish != TERN_FINISH_LENGTH && (seen.n_calls < 1 || seen.finish != TERN_FINISH_TOOL_CALLS))
                fail_msg("spec %zu, seed %d: text '%s', calls %s", i, seed, seen.text.data, calls);
            if (seen.finish == TERN_FINISH_TOOL_CALLS && seen.text.len > 0) fail_msg("text: '%s'", seen.text.data);
            if (i == 1) assert_string_equal(calls, "{\"name\": \"stop\", \"arguments\": {}}");
            if (i == 2 && seen.finish == TERN_FINISH_TOOL_CALLS) {
                assert_int_equal(seen.n_calls, 1);
                assert_non_null(strstr(calls, "\"get_weather\""));
                assert_non_null(strstr(calls, "\"city\":"));
                assert_non_null(strstr(calls, "\"days\":"));
            }
            seen_release(&seen);
        }
        tern_constraint_close(&c);
    }
    tern_session_close(s);
    tern_engine_close(e);
}

static void refused(struct tern_engine *e, enum tern_constraint_kind kind, const char *spec, enum tern_status want,
                    const char *word) {
    struct tern_constraint c = {0};
    struct tern_err err = {0};
    enum tern_status got = tern_constraint_open(&c, e, kind, str_of(spec), &err);
    if (got != want || !strstr(err.message, word))
        fail_msg("%s: status %d instead of %d: %s", spec, (int)got, (int)want, err.message);
    assert_null(c.state);
    tern_constraint_close(&c);
}

static void test_refused(void **state) {
    (void)state;
    struct tern_engine_options eo = fixture_options(PICO_MODEL);
    struct tern_engine *e = fixture_engine(&eo);
    refused(e, TERN_CONSTRAINT_JSON_SCHEMA, "{\"not\": {}}", TERN_UNSUPPORTED, "\"not\"");
    refused(e, TERN_CONSTRAINT_JSON_SCHEMA, "{", TERN_BAD_FORMAT, "schema");
    refused(e, TERN_CONSTRAINT_TOOL_CALL, "{\"tools\": []}", TERN_BAD_FORMAT, "tools");
    refused(e, TERN_CONSTRAINT_TOOL_CALL, "{\"tools\": " TOOLS ", \"name\": \"f\"}", TERN_BAD_FORMAT, "\"f\"");
    refused(e, (enum tern_constraint_kind)77, "", TERN_INVALID_ARGUMENT, "77");
    struct tern_constraint c;
    fixture_must(tern_constraint_open(&c, e, TERN_CONSTRAINT_JSON_SCHEMA,
                                      str_of("{\"oneOf\": [{\"type\": \"null\"}, {\"type\": \"integer\"}]}"), NULL),
                 NULL);
    assert_non_null(strstr(tern_constraint_note(&c), "oneOf"));
    tern_constraint_close(&c);
    tern_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_text),
        cmocka_unit_test(test_tool_choice),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("constraints of the engine", tests, fixture_setup, fixture_teardown);
}
