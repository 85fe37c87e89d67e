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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_keywords),
    };
    return cmocka_run_group_tests_name("schema constraints", tests, vocab_setup, vocab_teardown);
}
