// Random walks along masks: no dead end, masks equal to judging every token by itself, and what comes out fits its
// schema by a checker that shares nothing with the product.
#include "constraint_fixture.h"
#include "../../common/schema_check.h"

#define WORDS 2048
#define STEPS_FREE 40 // then closing tokens are preferred
#define STEPS_MAX 4000

static struct json_file file;

// Of the allowed tokens a random one; none: -1.
static int32_t token_pick(const uint32_t *mask, uint64_t *seed) {
    int n = 0, size = tokenizer_size(vocab);
    for (int i = 0; i < size; i++) n += mask_has(mask, i);
    if (n == 0) return -1;
    int k = (int)(random_next(seed) % (uint64_t)n);
    for (int i = 0; i < size; i++)
        if (mask_has(mask, i) && k-- == 0) return i;
    return -1;
}

static int32_t byte_token(char c) {
    for (int32_t i = 0; i < tokenizer_size(vocab); i++) {
        struct str s = tokenizer_token_bytes(vocab, i);
        if (s.len == 1 && s.data[0] == c && !tokenizer_is_control(vocab, i)) return i;
    }
    fail_msg("no token for byte %d", c);
    return -1;
}

// Every token by itself, on a copy.
static void mask_check(const struct constraint_state *s, const uint32_t *mask, const char *what, struct str so_far) {
    for (int32_t i = 0; i < tokenizer_size(vocab); i++) {
        struct constraint_state *copy = constraint_state_clone(s);
        assert_non_null(copy);
        bool ok = constraint_advance(copy, i);
        constraint_state_free(copy);
        if (ok != mask_has(mask, i))
            fail_msg("%s: after '%.*s' token %d '%.*s': the mask says %d, the step %d", what, (int)so_far.len,
                     so_far.data, i, (int)tokenizer_token_bytes(vocab, i).len, tokenizer_token_bytes(vocab, i).data,
                     mask_has(mask, i), ok);
    }
}

static void walk(struct constraint *c, const char *what, uint64_t seed, bool check_masks, struct buf *out) {
    static const char closers[] = "\n\"}])0";
    static uint32_t mask[WORDS];
    struct constraint_state *s = constraint_state_create(c);
    assert_non_null(s);
    buf_clear(out);
    buf_puts(out, "");
    for (int step = 0;; step++) {
        mask_get(s, mask);
        if (check_masks && random_next(&seed) % 8 == 0) mask_check(s, mask, what, buf_str(out));
        if (constraint_may_end(s) != mask_has(mask, EOS)) fail_msg("%s: the end is judged in two ways", what);
        bool closing = step > STEPS_FREE;
        if (mask_has(mask, EOS) && (closing || random_next(&seed) % 4 == 0)) break;
        int32_t id = -1;
        if (closing && random_next(&seed) % 4) // mostly what a pattern may be waiting for
            id = byte_token("abcxyz9@"[random_next(&seed) % 8]);
        if (id >= 0 && !mask_has(mask, id)) id = -1;
        uint64_t first = random_next(&seed);
        for (uint64_t k = 0; closing && id < 0 && k < sizeof closers - 1; k++) {
            char closer = closers[(first + k) % (sizeof closers - 1)];
            if (mask_has(mask, byte_token(closer))) id = byte_token(closer);
        }
        if (id < 0) id = token_pick(mask, &seed);
        if (id == EOS) break;
        if (id < 0) fail_msg("%s: a dead end after '%.*s'", what, (int)out->len, out->data);
        struct str bytes = tokenizer_token_bytes(vocab, id);
        buf_put(out, bytes.data, bytes.len);
        if (!constraint_advance(s, id))
            fail_msg("%s: after '%.*s' token %d is allowed and refused", what, (int)out->len, out->data, id);
        if (step > STEPS_MAX) fail_msg("%s: no end: '%.*s'", what, (int)MIN(out->len, 2000), out->data);
    }
    constraint_state_free(s);
}

static void schema_put(struct buf *out, const struct json_tree *t) {
    switch (t->event) {
    case JSON_STRING: json_put_quoted(out, t->text); return;
    case JSON_NUMBER: buf_put(out, t->text.data, t->text.len); return;
    case JSON_BOOL: buf_puts(out, t->boolean ? "true" : "false"); return;
    case JSON_NULL: buf_puts(out, "null"); return;
    default: break;
    }
    buf_puts(out, t->event == JSON_OBJECT ? "{" : "[");
    JSON_EACH(child, t) {
        if (child != t->first) buf_puts(out, ", ");
        if (t->event == JSON_OBJECT) {
            json_put_quoted(out, child->key);
            buf_puts(out, ": ");
        }
        schema_put(out, child);
    }
    buf_puts(out, t->event == JSON_OBJECT ? "}" : "]");
}

static void schemas_walk(const char *path) {
    json_file_read(&file, path);
    struct buf text;
    buf_init(&text, 1 << 20);
    JSON_EACH(from, file.root) {
        struct buf schema;
        char why[200];
        buf_init(&schema, 1 << 20);
        schema_put(&schema, json_get(from, "schema"));
        struct constraint *c = constraint_get(CONSTRAINT_JSON_SCHEMA, buf_str(&schema));
        uint64_t n_seeds = env_get("TERN_TEST_SHORT") ? 3 : 12;
        for (uint64_t seed = 1; seed <= n_seeds; seed++) {
            walk(c, schema.data, seed * 0x9E3779B97F4A7C15ull, seed == 1 && n_seeds > 3, &text);
            if (!schema_check(schema.data, text.data, text.len, why, sizeof why))
                fail_msg("%s: '%s' does not fit: %s", schema.data, text.data, why);
            if (!accepts_tokens(c, buf_str(&text))) fail_msg("%s: refuses its own '%s'", schema.data, text.data);
        }
        constraint_free(c);
        buf_release(&schema);
    }
    buf_release(&text);
    json_file_release(&file);
}

static void test_schemas(void **state) {
    (void)state;
    schemas_walk(TEST_DATA "/schema/cases.json");
    schemas_walk(TEST_DATA "/schema/keywords.json");
}

static void test_grammars(void **state) {
    (void)state;
    static const struct {
        enum constraint_kind kind;
        const char *spec;
    } rows[] = {
        {CONSTRAINT_GBNF, "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\""},
        {CONSTRAINT_GBNF, "root ::= line{1,3}\nline ::= [^\\n\\\"]* \"\\n\""},
        {CONSTRAINT_GBNF, "root ::= \"\\\"\" text \"\\\"\"\ntext ::= [^\\\"]*"},
        {CONSTRAINT_GBNF, "root ::= a | b\na ::= x x\nb ::= x \"!\"\nx ::= \"x\" x | \"\""},
        {CONSTRAINT_REGEX, "[a-zé]{2,9} (\\d{4}|[^a]{3})"},
        {CONSTRAINT_REGEX, "(.*)\\n(.*)"},
        {CONSTRAINT_CHOICE, "[\"yes\", \"no\", \"é漢\"]"},
        {CONSTRAINT_JSON_OBJECT, ""},
        {CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\", \"minLength\": 5, \"maxLength\": 9}"},
        {CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\", \"maxLength\": 65536}"},
        {CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\", \"format\": \"date-time\"}"},
        {CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\", \"format\": \"email\"}"},
        {CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\", \"format\": \"uri\"}"},
    };
    struct buf text;
    buf_init(&text, 1 << 20);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct constraint *c = constraint_get(rows[i].kind, str_from(rows[i].spec));
        for (uint64_t seed = 1; seed <= 6; seed++) {
            walk(c, rows[i].spec, seed * 77, seed == 1, &text);
            if (!utf8_valid(buf_str(&text), NULL)) fail_msg("%s: ill-formed '%s'", rows[i].spec, text.data);
        }
        constraint_free(c);
    }
    buf_release(&text);
}

// Deep recursion closes in time: the automaton's stack is bounded, and no walk ends inside.
static void test_depth(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}, \"minItems\": 1, \"maxItems\": 1}",
        "{\"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#/$defs/n\"}, \"b\": "
        "{\"type\": "
        "\"object\", \"properties\": {\"c\": {\"$ref\": \"#/$defs/n\"}}, \"required\": [\"c\"], "
        "\"additionalProperties\": false}}, \"additionalProperties\": false}}, \"$ref\": \"#/$defs/n\"}"};
    struct constraint *c;
    struct tern_err err;
    assert_int_equal(constraint_try(&c, CONSTRAINT_JSON_SCHEMA, str_from(schemas[0]), ANSWER_LFM2, &err),
                     TERN_BAD_FORMAT); // without end
    c = constraint_get(CONSTRAINT_JSON_SCHEMA, str_from(schemas[1]));
    struct constraint_state *s = constraint_state_create(c);
    static uint32_t mask[WORDS];
    int depth = 0;
    while (constraint_put(s, STR("{\"b\":{\"c\":"))) depth++;
    constraint_state_free(s);
    s = constraint_state_create(c);
    for (int i = 0; i < depth; i++) assert_true(constraint_put(s, STR("{\"b\":{\"c\":")));
    assert_in_range(depth, 20, CONSTRAINT_NESTING_MAX);
    // From here on any allowed way ends.
    uint64_t seed = 5;
    for (int step = 0; !constraint_may_end(s); step++) {
        mask_get(s, mask);
        int32_t id = mask_has(mask, byte_token('}')) ? byte_token('}') : token_pick(mask, &seed);
        if (id < 0) fail_msg("a dead end at depth %d", depth);
        assert_true(constraint_advance(s, id));
        assert_true(step < 5000);
    }
    constraint_state_free(s);
    constraint_free(c);
}

// Equal states share their masks, and copies do not disturb one another.
static void test_kept(void **state) {
    (void)state;
    static uint32_t a[WORDS], b[WORDS];
    struct constraint *c = constraint_get(CONSTRAINT_JSON_OBJECT, STR(""));
    struct constraint_state *s = constraint_state_create(c), *t;
    assert_true(constraint_put(s, STR("{\"key\": \"some te")));
    mask_get(s, a);
    t = constraint_state_clone(s);
    assert_true(constraint_put(t, STR("xt of many words")));
    struct constraint_info before = constraint_info(c);
    for (int i = 0; i < 46; i++) {
        mask_get(t, b);
        assert_memory_equal(a, b, (size_t)(tokenizer_size(vocab) / 32) * 4);
    }
    struct constraint_info after = constraint_info(c);
    assert_int_equal(after.n_masks - before.n_masks, 46);
    assert_int_equal(after.n_masks_kept - before.n_masks_kept, 46);
    assert_true(constraint_put(t, STR("\"}")));
    assert_true(constraint_may_end(t));
    assert_false(constraint_may_end(s));
    assert_false(constraint_advance(s, EOS));
    assert_true(constraint_advance(t, EOS));
    constraint_state_free(s);
    constraint_state_free(t);
    constraint_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_kept),
    };
    return cmocka_run_group_tests_name("constraint walks", tests, vocab_setup, vocab_teardown);
}
