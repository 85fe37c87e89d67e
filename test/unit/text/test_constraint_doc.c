// doc/constraints.md against the code: what it calls held or without meaning is read, what it calls refused is refused
// by name, and every keyword of JSON schema's draft 2020-12 is in one of the lists.
#include "constraint_fixture.h"

#include <stdio.h>

static struct buf document;

static int setup(void **state) {
    buf_init(&document, 1 << 20);
    return file_read_all(&document, "doc/constraints.md", NULL) != TERN_OK || vocab_setup(state);
}
static int teardown(void **state) {
    buf_release(&document);
    return vocab_teardown(state);
}

static struct str part(const char *from, const char *to) {
    size_t at = str_find(buf_str(&document), str_from(from), 0);
    assert_int_not_equal(at, (size_t)-1);
    size_t end = str_find(buf_str(&document), str_from(to), at);
    assert_int_not_equal(end, (size_t)-1);
    return (struct str){document.data + at, end - at};
}

// The next word between backticks; false: no more.
static bool word_next(struct str text, size_t *pos, struct str *word) {
    size_t open = str_find(text, STR("`"), *pos);
    if (open == (size_t)-1) return false;
    size_t close = str_find(text, STR("`"), open + 1);
    assert_int_not_equal(close, (size_t)-1);
    *word = (struct str){text.data + open + 1, close - open - 1};
    *pos = close + 1;
    return true;
}

static struct str word_part(int list) {
    switch (list) {
    case 0: return part("| keyword | how it is held", "\n\nRead, and");
    case 1: return part("Read, and saying nothing:", "\n\nRefused, and");
    default: return part("Refused, and so is", "\n\nRefused formats");
    }
}

static bool is_listed(struct str keyword, int list) {
    struct str text = word_part(list), word;
    size_t pos = 0;
    while (word_next(text, &pos, &word))
        if (str_eq(word, keyword)) return true;
    return false;
}

// Is the keyword itself refused? A value that does not fit it is another fault.
static bool is_refused(struct str keyword, const char *value) {
    char schema[200], named[100];
    struct constraint *c = NULL;
    struct tern_err err;
    snprintf(schema, sizeof schema, "{\"%.*s\": %s}", (int)keyword.len, keyword.data, value);
    snprintf(named, sizeof named, "the keyword \"%.*s\" is not supported", (int)keyword.len, keyword.data);
    enum tern_status status = constraint_try(&c, CONSTRAINT_JSON_SCHEMA, str_from(schema), ANSWER_LFM2, &err);
    constraint_free(c);
    return status == TERN_UNSUPPORTED && strstr(err.message, named);
}

static void test_lists_are_true(void **state) {
    (void)state;
    int n[3] = {0};
    struct str word;
    for (int list = 0; list < 3; list++) {
        size_t pos = 0;
        while (word_next(word_part(list), &pos, &word)) {
            if (str_eqz(word, "x-")) continue;
            bool keyword = word.len > 0 && (word.data[0] == '$' || (word.data[0] >= 'a' && word.data[0] <= 'z'));
            for (size_t i = 1; i < word.len; i++)
                keyword &= (word.data[i] | 0x20) >= 'a' && (word.data[i] | 0x20) <= 'z';
            if (!keyword) continue; // an example in the text
            if (is_refused(word, "1") != (list == 2))
                fail_msg("doc/constraints.md tells otherwise of \"%.*s\"", (int)word.len, word.data);
            n[list]++;
        }
    }
    assert_true(n[0] > 25 && n[1] > 10 && n[2] > 20);
}

static void test_every_keyword_is_listed(void **state) {
    (void)state;
    static const char *const keywords[] = {"$schema",
                                           "$id",
                                           "$ref",
                                           "$anchor",
                                           "$dynamicRef",
                                           "$dynamicAnchor",
                                           "$vocabulary",
                                           "$comment",
                                           "$defs",
                                           "prefixItems",
                                           "items",
                                           "contains",
                                           "additionalProperties",
                                           "properties",
                                           "patternProperties",
                                           "dependentSchemas",
                                           "propertyNames",
                                           "if",
                                           "then",
                                           "else",
                                           "allOf",
                                           "anyOf",
                                           "oneOf",
                                           "not",
                                           "unevaluatedItems",
                                           "unevaluatedProperties",
                                           "type",
                                           "const",
                                           "enum",
                                           "multipleOf",
                                           "maximum",
                                           "exclusiveMaximum",
                                           "minimum",
                                           "exclusiveMinimum",
                                           "maxLength",
                                           "minLength",
                                           "pattern",
                                           "maxItems",
                                           "minItems",
                                           "uniqueItems",
                                           "maxContains",
                                           "minContains",
                                           "maxProperties",
                                           "minProperties",
                                           "required",
                                           "dependentRequired",
                                           "title",
                                           "description",
                                           "default",
                                           "deprecated",
                                           "readOnly",
                                           "writeOnly",
                                           "examples",
                                           "format",
                                           "contentEncoding",
                                           "contentMediaType",
                                           "contentSchema"};
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++) {
        struct str k = str_from(keywords[i]);
        if (is_listed(k, 0) + is_listed(k, 1) + is_listed(k, 2) != 1)
            fail_msg("%s is not in one list of doc/constraints.md", keywords[i]);
    }
}

static void test_formats(void **state) {
    (void)state;
    struct str text = part("Refused formats:", "\n\n"), word;
    size_t pos = 0;
    int n = 0;
    for (; word_next(text, &pos, &word); n++) {
        char schema[200];
        struct constraint *c = NULL;
        struct tern_err err;
        snprintf(schema, sizeof schema, "{\"type\": \"string\", \"format\": \"%.*s\"}", (int)word.len, word.data);
        enum tern_status status = constraint_try(&c, CONSTRAINT_JSON_SCHEMA, str_from(schema), ANSWER_LFM2, &err);
        if (status != TERN_UNSUPPORTED) fail_msg("the format %.*s: status %d", (int)word.len, word.data, (int)status);
    }
    assert_true(n >= 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists_are_true),
                                       cmocka_unit_test(test_every_keyword_is_listed), cmocka_unit_test(test_formats)};
    return cmocka_run_group_tests_name("documented keywords", tests, setup, teardown);
}
