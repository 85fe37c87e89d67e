// JSON schema constraints: texts that must be accepted and refused, schemas that must be refused.
#include "constraint_fixture.h"

static struct json_file file;

// The raw text of a value of the file: schemas are kept as JSON, not as strings.
static void schema_put(struct buf *out, const struct json_tree *t) {
    const char *close = NULL;
    switch (t->event) {
    case JSON_STRING: json_put_quoted(out, t->text); break;
    case JSON_NUMBER: buf_put(out, t->text.data, t->text.len); break;
    case JSON_BOOL: buf_puts(out, t->boolean ? "true" : "false"); break;
    case JSON_NULL: buf_puts(out, "null"); break;
    default: close = t->event == JSON_OBJECT ? "}" : "]"; buf_puts(out, t->event == JSON_OBJECT ? "{" : "[");
    }
    if (!close) return;
    JSON_EACH(child, t) {
        if (child != t->first) buf_puts(out, ", ");
        if (t->event == JSON_OBJECT) {
            json_put_quoted(out, child->key);
            buf_puts(out, ": ");
        }
        schema_put(out, child);
    }
    buf_puts(out, close);
}

static void vectors_check(const char *path) {
    json_file_read(&file, path);
    JSON_EACH(from, file.root) {
        char name[64];
        struct buf schema;
        buf_init(&schema, 1 << 20);
        schema_put(&schema, json_get(from, "schema"));
        snprintf(name, sizeof name, "%.*s", (int)json_get(from, "id")->text.len, json_get(from, "id")->text.data);
        struct constraint *c = constraint_get(CONSTRAINT_JSON_SCHEMA, buf_str(&schema));
        JSON_EACH(text, json_get(from, "accept")) verdict_check(c, name, text->text, true);
        JSON_EACH(text, json_get(from, "reject")) verdict_check(c, name, text->text, false);
        constraint_free(c);
        buf_release(&schema);
    }
    json_file_release(&file);
}

static void test_cases(void **state) {
    (void)state;
    vectors_check(TEST_DATA "/schema/cases.json");
}

static void test_keywords(void **state) {
    (void)state;
    vectors_check(TEST_DATA "/schema/keywords.json");
}

struct refusal {
    const char *schema;
    enum tern_status status;
    const char *word, *path;
};

static const struct refusal refusals[] = {
    {"", TERN_BAD_FORMAT, "schema", ""},
    {"{\"type\": \"string\"", TERN_BAD_FORMAT, "schema", ""},
    {"[]", TERN_BAD_FORMAT, "object, true or false", "#"},
    {"{\"type\": \"text\"}", TERN_BAD_FORMAT, "expected one or some", "#/type"},
    {"{\"type\": []}", TERN_BAD_FORMAT, "expected one or some", "#/type"},
    {"{\"type\": \"object\", \"type\": \"array\"}", TERN_BAD_FORMAT, "", ""},
    {"{\"not\": {}}", TERN_UNSUPPORTED, "\"not\"", "#"},
    {"{\"properties\": {\"a/b\": {\"if\": {}}}}", TERN_UNSUPPORTED, "\"if\"", "#/properties/a~1b"},
    {"{\"items\": {\"anyOf\": [{}, {\"dependentRequired\": {}}]}}", TERN_UNSUPPORTED, "dependentRequired",
     "#/items/anyOf/1"},
    {"{\"patternProperties\": {}}", TERN_UNSUPPORTED, "patternProperties", "#"},
    {"{\"unevaluatedProperties\": false}", TERN_UNSUPPORTED, "unevaluatedProperties", "#"},
    {"{\"contains\": {}}", TERN_UNSUPPORTED, "contains", "#"},
    {"{\"nullable\": true}", TERN_UNSUPPORTED, "nullable", "#"},
    {"{\"type\": \"array\", \"uniqueItems\": true}", TERN_UNSUPPORTED, "uniqueItems", "#/uniqueItems"},
    {"{\"items\": [{}]}", TERN_UNSUPPORTED, "prefixItems", "#/items"},
    {"{\"format\": \"regex\"}", TERN_UNSUPPORTED, "\"regex\"", "#/format"},
    {"{\"type\": \"number\", \"multipleOf\": 0.1}", TERN_UNSUPPORTED, "whole numbers", "#/multipleOf"},
    {"{\"type\": \"integer\", \"multipleOf\": 5000}", TERN_UNSUPPORTED, "1000", "#"},
    {"{\"type\": \"number\", \"minimum\": 1234567890.1234567}", TERN_UNSUPPORTED, "digits", "#/minimum"},
    {"{\"type\": \"integer\", \"maximum\": 1e30}", TERN_UNSUPPORTED, "digits", "#/maximum"},
    {"{\"type\": \"integer\", \"minimum\": \"1\"}", TERN_BAD_FORMAT, "number", "#/minimum"},
    {"{\"minLength\": -1}", TERN_BAD_FORMAT, "whole number", "#/minLength"},
    {"{\"minItems\": 1.5}", TERN_BAD_FORMAT, "whole number", "#/minItems"},
    {"{\"required\": \"a\"}", TERN_BAD_FORMAT, "names", "#/required"},
    {"{\"required\": [1]}", TERN_BAD_FORMAT, "names", "#/required"},
    {"{\"properties\": []}", TERN_BAD_FORMAT, "object of schemas", "#/properties"},
    {"{\"properties\": {\"a\": 1}}", TERN_BAD_FORMAT, "true or false", "#/properties/a"},
    {"{\"anyOf\": []}", TERN_BAD_FORMAT, "list of schemas", "#/anyOf"},
    {"{\"allOf\": {}}", TERN_BAD_FORMAT, "list of schemas", "#/allOf"},
    {"{\"enum\": []}", TERN_BAD_FORMAT, "list of values", "#/enum"},
    {"{\"$ref\": \"#/$defs/x\"}", TERN_BAD_FORMAT, "not in the schema", "#/$ref"},
    {"{\"$ref\": \"http://x/y\"}", TERN_UNSUPPORTED, "pointers", "#/$ref"},
    {"{\"$ref\": \"#\"}", TERN_BAD_FORMAT, "itself", "#"},
    {"{\"$defs\": {\"a\": {\"$ref\": \"#/$defs/b\"}, \"b\": {\"$ref\": \"#/$defs/a\"}}, \"$ref\": "
     "\"#/$defs/a\"}",
     TERN_BAD_FORMAT, "itself", "#/$defs/a"},
    {"{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}", TERN_BAD_FORMAT, "itself", ""},
    {"false", TERN_BAD_FORMAT, "no text", ""},
    {"{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 2}", TERN_BAD_FORMAT, "no text", ""},
    {"{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 2}", TERN_BAD_FORMAT, "no text", ""},
    {"{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", TERN_BAD_FORMAT, "no text", ""},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}", TERN_BAD_FORMAT,
     "no text", ""},
    {"{\"type\": \"string\", \"pattern\": \"^a{3000}$\"}", TERN_LIMIT, "pattern", "#/pattern"},
    {"{\"type\": \"string\", \"pattern\": \"a\", \"maxLength\": 5000}", TERN_LIMIT, "2000", "#/maxLength"},
    {"{\"type\": \"object\", \"additionalProperties\": {}, \"minProperties\": 2}", TERN_UNSUPPORTED,
     "number of properties", "#/minProperties"},
    {"{\"type\": \"object\", \"maxProperties\": 2}", TERN_UNSUPPORTED, "number of properties", "#/maxProperties"},
    {"{\"enum\": [[1]], \"minItems\": 1}", TERN_UNSUPPORTED, "enum", "#/minItems"},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        const struct refusal *r = &refusals[i];
        struct constraint *c = NULL;
        struct tern_err err;
        struct mem_stats before = mem_stats_get();
        enum tern_status got = constraint_try(&c, CONSTRAINT_JSON_SCHEMA, str_from(r->schema), ANSWER_LFM2, &err);
        if (got != r->status) fail_msg("%s: status %d instead of %d: %s", r->schema, got, r->status, err.message);
        if (!strstr(err.message, r->word) || !strstr(err.message, r->path))
            fail_msg("%s: '%s' and '%s' are not both in: %s", r->schema, r->word, r->path, err.message);
        assert_int_equal(mem_stats_get().bytes_now, before.bytes_now);
    }
}

// The patterns of case S17: refused with the keyword and its path, or held.
static void test_bad_patterns(void **state) {
    (void)state;
    static const char *const patterns[] = {
        "*a",     "(?<=x)*",        "a{2,1}",      "(",          "[z-a]", "\\", "(?<name>x)\\k<name>",
        "(a+)+$", "a{99999999999}", "[[:alpha:]]", "\\p{Greek}", "(?i)a"};
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        struct buf b;
        struct constraint *c = NULL;
        struct tern_err err;
        buf_init(&b, 1 << 16);
        buf_puts(&b, "{\"type\": \"object\", \"properties\": {\"p\": {\"type\": \"string\", \"pattern\": ");
        json_put_quoted(&b, str_from(patterns[i]));
        buf_puts(&b, "}}}");
        enum tern_status got = constraint_try(&c, CONSTRAINT_JSON_SCHEMA, buf_str(&b), ANSWER_LFM2, &err);
        if (i == 7) {
            assert_int_equal(got, TERN_OK);
            constraint_free(c);
        } else if (got == TERN_OK || !strstr(err.message, "pattern") || !strstr(err.message, "#/properties/p")) {
            fail_msg("%s: status %d: %s", patterns[i], got, err.message);
        }
        buf_release(&b);
    }
}

// Large schemas: many keys, many values, a large bound; within the promised time (more is allowed on slow builds).
static void test_large(void **state) {
    (void)state;
    struct buf b;
    struct constraint *c = NULL;
    struct tern_err err;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"type\": \"object\", \"properties\": {");
    for (int i = 0; i < 3000; i++) buf_putf(&b, "%s\"k%d\": {}", i ? "," : "", i);
    buf_puts(&b, "}, \"required\": [\"k77\", \"k2999\"], \"additionalProperties\": false}");
    c = constraint_get(CONSTRAINT_JSON_SCHEMA, buf_str(&b));
    verdict_check(c, "3,000 keys", STR("{\"k0\":1,\"k77\":2,\"k100\":[],\"k2999\":null}"), true);
    verdict_check(c, "3,000 keys", STR("{\"k78\":2,\"k2999\":null}"), false);
    verdict_check(c, "3,000 keys", STR("{\"k77\":2,\"k5\":1,\"k2999\":null}"), false);
    constraint_free(c);
    buf_clear(&b);
    buf_puts(&b, "{\"enum\": [");
    for (int i = 0; i < 1001; i++) buf_putf(&b, "%s\"v%d\"", i ? "," : "", i);
    buf_puts(&b, "]}");
    assert_int_equal(constraint_try(&c, CONSTRAINT_JSON_SCHEMA, buf_str(&b), ANSWER_LFM2, &err), TERN_LIMIT);
    buf_clear(&b);
    buf_puts(&b, "{\"type\": \"array\", \"minItems\": 100000, \"items\": {\"type\": \"string\", "
                 "\"maxLength\": 1000000000}}");
    c = constraint_get(CONSTRAINT_JSON_SCHEMA, buf_str(&b));
    assert_true(constraint_info(c).bytes < 64 << 10);
    verdict_check(c, "large bounds", STR("[\"a\"]"), false);
    constraint_free(c);
    buf_release(&b);
}

// Every allocation fails once: an error, never a leak or a crash.
static void test_no_memory(void **state) {
    (void)state;
    static const char schema[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\", "
                                 "\"pattern\": \"^a+$\"}, \"b\": {\"enum\": [1, \"x\"]}, \"c\": {\"type\": "
                                 "\"array\", \"items\": {\"type\": \"integer\", \"minimum\": 5}}}}";
    struct mem_stats before = mem_stats_get();
    for (uint64_t n = 1;; n++) {
        struct constraint *c = NULL;
        struct tern_err err;
        mem_fail_at(n, false);
        enum tern_status got = constraint_try(&c, CONSTRAINT_JSON_SCHEMA, str_from(schema), ANSWER_LFM2, &err);
        mem_fail_at(0, false);
        if (got == TERN_OK) {
            constraint_free(c);
            assert_true(n > 10);
            break;
        }
        if (got != TERN_NO_MEMORY) fail_msg("allocation %d: status %d: %s", (int)n, got, err.message);
        assert_int_equal(mem_stats_get().bytes_now, before.bytes_now);
    }
    assert_int_equal(mem_stats_get().bytes_now, before.bytes_now);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_keywords), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_patterns), cmocka_unit_test(test_large),    cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("schema constraints", tests, vocab_setup, vocab_teardown);
}
