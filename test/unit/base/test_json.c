// The JSON parser: events, positions, strictness, limits, skipping, memory failures.
#include "base_test.h"

// All events in a compact spelling: N null, T/F, i:integer, n:number, "string", k:key, braces; "!" and the status at an
// error.
static const char *events(struct str input, const struct json_options *options) {
    static struct buf out;
    if (!out.data) buf_init(&out, 1 << 20);
    buf_clear(&out);
    struct json *j = NULL;
    struct tern_err err = {0};
    enum tern_status status = json_create(&j, input, options, &err);
    if (status != TERN_OK) {
        buf_putf(&out, "!%d", status);
        return out.data;
    }
    struct json_item item;
    enum json_event event;
    while ((event = json_next(j, &item, &err)) > JSON_END) {
        assert_int_equal(event, item.event);
        switch (event) {
        case JSON_NULL: buf_putc(&out, 'N'); break;
        case JSON_BOOL: buf_putc(&out, item.boolean ? 'T' : 'F'); break;
        case JSON_NUMBER:
            if (item.is_int) {
                buf_putf(&out, "i:%lld", (long long)item.integer);
            } else {
                buf_putf(&out, "n:%.17g", item.number);
            }
            break;
        case JSON_STRING: json_put_quoted(&out, item.text); break;
        case JSON_KEY:
            buf_puts(&out, "k:");
            buf_put(&out, item.text.data, item.text.len);
            break;
        case JSON_OBJECT: buf_putc(&out, '{'); break;
        case JSON_OBJECT_END: buf_putc(&out, '}'); break;
        case JSON_ARRAY: buf_putc(&out, '['); break;
        case JSON_ARRAY_END: buf_putc(&out, ']'); break;
        case JSON_ERROR:
        case JSON_END: break;
        }
        buf_putc(&out, ' ');
    }
    if (event == JSON_ERROR) {
        assert_true(err.code != TERN_OK && strlen(err.message) > 0);
        assert_true(err.pos >= 0 && (size_t)err.pos <= input.len);
        struct tern_err again = {0};
        assert_int_equal(json_next(j, &item, &again), JSON_ERROR); // stays in error
        assert_string_equal(again.message, err.message);
        buf_putf(&out, "!%d", err.code);
    } else {
        assert_int_equal(json_next(j, &item, NULL), JSON_END);
    }
    json_free(j);
    return out.data;
}

static void check(const char *text, const char *expected) {
    const char *got = events(str_from(text), NULL);
    if (strcmp(got, expected) != 0) fail_msg("%s\n gives   %s\n wanted  %s", text, got, expected);
}

static void test_values(void **state) {
    (void)state;
    check("null", "N ");
    check(" \t\r\n true \n", "T ");
    check("[false]", "[ F ] ");
    check("{}", "{ } ");
    check("[]", "[ ] ");
    check("[[],{}]", "[ [ ] { } ] ");
    check("{\"a\":1,\"b\" : [2 , 3.5]}", "{ k:a i:1 k:b [ i:2 n:3.5 ] } ");
    check("\"\"", "\"\" ");
    check("{\"\":\"\"}", "{ k: \"\" } ");
}

static void test_numbers(void **state) {
    (void)state;
    check("[0,-0,7,-7]", "[ i:0 i:0 i:7 i:-7 ] ");
    check("9223372036854775807", "i:9223372036854775807 ");
    check("-9223372036854775808", "i:-9223372036854775808 ");
    check("9223372036854775808", "n:9.2233720368547758e+18 ");
    check("[1.0,1e2,1E+2,1e-2,-1.25e1]", "[ n:1 n:100 n:100 n:0.01 n:-12.5 ] ");
    check("123456789012345678901234567890", "n:1.2345678901234568e+29 ");
    check("0.1", "n:0.10000000000000001 ");
    check("1e-999", "n:0 ");
    struct json *j;
    struct json_item item;
    assert_ok(json_create(&j, STR("-0"), NULL, &test_err));
    json_next(j, &item, NULL);
    assert_true(item.is_int && item.integer == 0 && f32_bits((float)item.number) == 0x80000000u);
    assert_true(str_eqz(item.text, "-0"));
    json_free(j);
    const char *bad[] = {"01",    "-01", "00",    "-",     "+1",  "1.",       "1.e5",        ".5",    "1e",
                         "1e+",   "1e-", "0x10",  "1_000", "NaN", "Infinity", "-Infinity",   "1e400", "-1e400",
                         "[1 2]", "--1", "1.5.5", "1e5e5", "[-]", "- 1",      "\xef\xbc\x91"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *got = events(str_from(bad[i]), NULL);
        if (!strchr(got, '!')) fail_msg("%s was taken: %s", bad[i], got);
    }
}

static void test_strings(void **state) {
    (void)state;
    check("\"a\\\"\\\\\\/\\b\\f\\n\\r\\tz\"", "\"a\\\"\\\\/\\b\\f\\n\\r\\tz\" ");
    check("\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\" ");
    check("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\" ");
    check("\"\\u0000\"", "\"\\u0000\" ");
    check("\"\\uFFFF\\uFDD0\"", "\"\xef\xbf\xbf\xef\xb7\x90\" "); // noncharacters are characters
    check("{\"\\u0061b\":1}", "{ k:ab i:1 } ");
    const char *bad[] = {"\"",
                         "\"a",
                         "\"\\\"",
                         "\"\\",
                         "\"\\x\"",
                         "\"\\u12\"",
                         "\"\\u12G4\"",
                         "\"\\U0041\"",
                         "\"\\ud800\"",
                         "\"\\udc00\"",
                         "\"\\ud800\\n\"",
                         "\"\\ud800\\u0041\"",
                         "\"\\ud800",
                         "\"\\ud800\\\"",
                         "\"\\ud800\\ud800\"",
                         "\"a\nb\"",
                         "\"a\tb\"",
                         "\"\x01\"",
                         "\"\xff\"",
                         "\"\xc3\"",
                         "\"\xc0\xaf\"",
                         "\"\xed\xa0\x80\"",
                         "\"\xf4\x90\x80\x80\"",
                         "\"\xe2\x82\"",
                         "'a'",
                         "\"\\'\"",
                         "\"\\u 123\"",
                         "\"\\u+123\"",
                         "\"a\x80\"",
                         "\"\\u\xc3\xa9\xc3\xa9\""};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *got = events(str_from(bad[i]), NULL);
        if (!strstr(got, "!-2")) fail_msg("%s was taken: %s", bad[i], got);
    }
    assert_string_equal(events((struct str){"\"a\0b\"", 5}, NULL), "!-2");
}

static void test_structure(void **state) {
    (void)state;
    const char *bad[] = {"",
                         " ",
                         "[",
                         "]",
                         "{",
                         "}",
                         "[1,]",
                         "[,1]",
                         "[,]",
                         "[1,,2]",
                         "{\"a\"}",
                         "{\"a\":}",
                         "{\"a\":1,}",
                         "{,\"a\":1}",
                         "{1:2}",
                         "{a:1}",
                         "{'a':1}",
                         "{\"a\",1}",
                         "[1:2]",
                         "[1}",
                         "{\"a\":1]",
                         "1 2",
                         "[]]",
                         "{}}",
                         "[] x",
                         "nul",
                         "nulL",
                         "truee",
                         "tru",
                         "False",
                         "[true",
                         "// c\n1",
                         "/* c */1",
                         "[1]//",
                         "#1",
                         "{\"a\":1 \"b\":2}",
                         "[\"a\" \"b\"]",
                         "\xef\xbb\xbf[]",
                         "[\v1]",
                         "[\f]",
                         "\xc2\xa0[]",
                         "{\"a\"::1}",
                         "{\"a\":1,,\"b\":2}",
                         "[1",
                         "{\"a\":1",
                         "[\"a\",\n4\n,1,",
                         "{null:1}",
                         "*",
                         "@"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *got = events(str_from(bad[i]), NULL);
        if (!strstr(got, "!-2")) fail_msg("%s was taken: %s", bad[i], got);
    }
    assert_string_equal(events((struct str){"[]\0", 3}, NULL), "[ ] !-2");
    assert_string_equal(events((struct str){NULL, 0}, NULL), "!-2");
    assert_string_equal(events((struct str){"\xff\xfe[\0]\0", 6}, NULL), "!-2");
}

// Every prefix of a valid text is refused, and read without a byte more (AddressSanitizer watches the copy).
static void test_prefixes(void **state) {
    (void)state;
    const char *text = "{\"k\\u0041\":[null,true,-1.5e+3,\"\\ud83d\\ude00 \xe2\x82\xac long enough\"],\"z\":{}}";
    for (size_t n = 0; n < strlen(text); n++) {
        char *copy = mem_alloc(n);
        memcpy(copy, text, n);
        const char *got = events((struct str){copy, n}, NULL);
        mem_free(copy);
        if (!strstr(got, "!-2")) fail_msg("the first %zu bytes were taken: %s", n, got);
    }
    assert_null(strchr(events(str_from(text), NULL), '!'));
}

static void test_messages(void **state) {
    (void)state;
    struct {
        const char *text, *message;
        int64_t pos;
    } cases[] = {
        {"[1,\n 2,\n x]", "JSON: expected a value, found 'x' at byte 9 (line 3, column 2)", 9},
        {"{\"a\" 1}", "JSON: expected ':' after a key, found '1' at byte 5 (line 1, column 6)", 5},
        {"[1", "JSON: expected ',' or ']', found the end of the input at byte 2 (line 1, column 3)", 2},
        {"\xef\xbb\xbf{}", "JSON: byte order mark (remove it) at byte 0 (line 1, column 1)", 0},
        {"[\"a\x01\"]", "JSON: control character in a string (it must be escaped) at byte 3 (line 1, column 4)", 3},
        {"[] []", "JSON: bytes after the value at byte 3 (line 1, column 4)", 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json *j;
        struct json_item item;
        struct tern_err err = {0};
        assert_ok(json_create(&j, str_from(cases[i].text), NULL, &test_err));
        while (json_next(j, &item, &err) > JSON_END) {
        }
        assert_string_equal(err.message, cases[i].message);
        assert_int_equal(err.pos, cases[i].pos);
        json_free(j);
    }
}

static void test_positions(void **state) {
    (void)state;
    const char *text = " {\"a\" : [1, \"b\"] }";
    const size_t pos[] = {1, 2, 8, 9, 12, 15, 17};
    const int depth[] = {0, 1, 1, 2, 2, 1, 0};
    struct json *j;
    struct json_item item;
    assert_ok(json_create(&j, str_from(text), NULL, &test_err));
    for (size_t i = 0; i < ARRAY_LEN(pos); i++) {
        assert_true(json_next(j, &item, NULL) > JSON_END);
        assert_int_equal(item.pos, pos[i]);
        assert_int_equal(item.depth, depth[i]);
        if (i == 4) assert_ptr_equal(item.text.data, text + 13); // a view, no copy
    }
    assert_int_equal(json_next(j, &item, NULL), JSON_END);
    json_free(j);
}

static void test_limits(void **state) {
    (void)state;
    static char deep[4000];
    for (int n = 1; n <= 1025; n++) {
        memset(deep, '[', (size_t)n);
        memset(deep + n, ']', (size_t)n);
        struct str s = {deep, 2 * (size_t)n};
        bool refused = strstr(events(s, NULL), "!-7") != NULL;
        assert_int_equal(refused, n > JSON_DEPTH_MAX);
        refused = strstr(events(s, &(struct json_options){.depth_max = 1024}), "!-7") != NULL;
        assert_int_equal(refused, n > 1024);
    }
    assert_string_equal(events(STR("[[1]]"), &(struct json_options){.depth_max = 1}), "[ !-7");
    assert_string_equal(events(STR("[{}]"), &(struct json_options){.depth_max = 2}), "[ { } ] ");
    assert_string_equal(events(STR("[]"), &(struct json_options){.depth_max = 1025}), "!-1");
    assert_string_equal(events(STR("[]"), &(struct json_options){.depth_max = -1}), "!-1");
    assert_string_equal(events(STR("[12]"), &(struct json_options){.size_max = 3}), "!-7");
    assert_string_equal(events(STR("[12]"), &(struct json_options){.size_max = 4}), "[ i:12 ] ");
}

static const struct json_options dup = {.dup_check = true};

static void test_duplicates(void **state) {
    (void)state;
    assert_string_equal(events(STR("{\"a\":1,\"a\":2}"), NULL), "{ k:a i:1 k:a i:2 } ");
    assert_string_equal(events(STR("{\"a\":1,\"a\":2}"), &dup), "{ k:a i:1 !-2");
    assert_string_equal(events(STR("{\"a\":1,\"\\u0061\":2}"), &dup), "{ k:a i:1 !-2");
    assert_string_equal(events(STR("{\"\\u0061\":1,\"a\":2}"), &dup), "{ k:a i:1 !-2");
    assert_string_equal(events(STR("{\"\":1,\"\":2}"), &dup), "{ k: i:1 !-2");
    assert_null(
        strchr(events(STR("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1},\"A\":[{\"a\":1},{\"a\":1}]}"), &dup), '!'));
    assert_string_equal(events(STR("{\"a\":{\"b\":1},\"b\":1,\"a\":2}"), &dup), "{ k:a { k:b i:1 } k:b i:1 !-2");
}

// Objects of every size around the switch to a table, nested, with the duplicate at every distance.
static void test_duplicates_sizes(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    for (int n = 1; n < 140; n += n < 40 ? 1 : 25) {
        for (int again = -1; again < n; again += n < 40 ? 1 : 40) {
            buf_clear(&b);
            buf_puts(&b, "{\"outer\":{");
            for (int i = 0; i < n; i++) buf_putf(&b, "\"key%d\":{\"key%d\":0},", i, i + 1);
            buf_putf(&b, "\"%s%d\":1},\"key0\":1}", again < 0 ? "other" : "key", again);
            bool refused = strchr(events(buf_str(&b), &dup), '!') != NULL;
            assert_int_equal(refused, again >= 0);
        }
    }
    buf_release(&b);
}

// 300,000 keys: quadratic work would take minutes.
static void test_duplicates_time(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 64u << 20);
    buf_putc(&b, '{');
    for (int i = 0; i < 300000; i++) buf_putf(&b, "%s\"%d\":%d", i > 0 ? "," : "", i * 64, i);
    buf_putc(&b, '}');
    struct json *j;
    struct json_item item;
    int n = 0;
    uint64_t start = clock_ns();
    assert_ok(json_create(&j, buf_str(&b), &dup, &test_err));
    while (json_next(j, &item, &test_err) > JSON_END) n++;
    assert_int_equal(item.event, JSON_END);
    assert_int_equal(n, 600002);
    json_free(j);
    assert_true(clock_ns() - start < 5000000000u);
    buf_release(&b);
}

static void test_skip(void **state) {
    (void)state;
    struct json *j;
    struct json_item item;
    struct str raw;
    struct tern_err err;
    const char *text = "{\"a\":[1,{\"x\":[]},2],\"b\": \"s\" ,\"c\":{\"d\":{\"e\":1}},\"f\": [ 1 , [ ] ] , \"g\":-1e3}";
    assert_ok(json_create(&j, str_from(text), NULL, &test_err));
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_ok(json_skip(j, &test_err)); // after a key: the array
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_true(str_eqz(item.text, "b"));
    assert_ok(json_skip(j, &test_err)); // a scalar
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    assert_ok(json_skip(j, &test_err)); // inside: to its end
    assert_ok(json_skip(j, &test_err)); // nothing more to skip
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_true(str_eqz(item.text, "f"));
    assert_ok(json_raw(j, &raw, &test_err));
    assert_true(str_eqz(raw, "[ 1 , [ ] ]"));
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_ok(json_raw(j, &raw, &test_err));
    assert_true(str_eqz(raw, "-1e3"));
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT_END);
    assert_int_equal(json_next(j, &item, NULL), JSON_END);
    json_free(j);

    assert_ok(json_create(&j, STR(" [ {\"a\":1} , \"b\\n\" ] "), NULL, &test_err));
    assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
    assert_ok(json_raw(j, &raw, &test_err));
    assert_true(str_eqz(raw, "{\"a\":1}"));
    assert_ok(json_raw(j, &raw, &test_err));
    assert_true(str_eqz(raw, "\"b\\n\""));
    assert_int_equal(json_raw(j, &raw, &err), TERN_BAD_FORMAT); // no value any more
    assert_contains(err.message, "found the end of an array");
    json_free(j);

    assert_ok(json_create(&j, STR("[[1,2"), NULL, &test_err));
    assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
    assert_int_equal(json_skip(j, &err), TERN_BAD_FORMAT);
    assert_int_equal(json_skip(j, &err), TERN_BAD_FORMAT);
    assert_int_equal(json_raw(j, &raw, &err), TERN_BAD_FORMAT);
    json_free(j);
    json_free(NULL);
}

static void test_expect(void **state) {
    (void)state;
    struct json *j;
    struct json_item item;
    struct tern_err err;
    assert_ok(json_create(&j, STR("[5, 6, x]"), NULL, &test_err));
    assert_ok(json_expect(j, JSON_ARRAY, &item, "config.sizes", &test_err));
    assert_ok(json_expect(j, JSON_NUMBER, &item, "config.sizes", &test_err));
    assert_int_equal(item.integer, 5);
    assert_int_equal(json_expect(j, JSON_STRING, &item, "config.name", &err), TERN_BAD_FORMAT);
    assert_string_equal(err.message, "config.name: expected a string, found a number at byte 4 (line 1, column 5)");
    assert_int_equal(err.pos, 4);
    assert_int_equal(json_expect(j, JSON_NUMBER, &item, "config.x", &err), TERN_BAD_FORMAT);
    assert_string_equal(err.message, "config.x: JSON: expected a value, found 'x' at byte 7 (line 1, column 8)");
    assert_int_equal(json_expect(j, JSON_NUMBER, &item, "config.x", NULL), TERN_BAD_FORMAT);
    json_free(j);
}

// Each allocation fails once: a clean error each time, nothing left behind.
static void test_no_memory(void **state) {
    (void)state;
    struct mem_stats before = mem_stats_get();
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_puts(&b, "{\"e\":\"\\n and more\\t\"");
    for (int i = 0; i < 100; i++) buf_putf(&b, ",\"\\u0041%d\":[{\"a\":\"\\\\\"}]", i);
    buf_putc(&b, '}');
    uint64_t n = 1;
    for (;; n++) {
        struct json *j = NULL;
        struct json_item item;
        struct tern_err err = {0};
        mem_fail_at(n, false);
        enum tern_status status = json_create(&j, buf_str(&b), &dup, &err);
        enum json_event event = JSON_ERROR;
        if (status == TERN_OK)
            while ((event = json_next(j, &item, &err)) > JSON_END) {
            }
        mem_fail_at(0, false);
        json_free(j);
        if (event == JSON_END) break;
        assert_int_equal(err.code, TERN_NO_MEMORY);
    }
    assert_true(n > 6);
    buf_release(&b);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),          cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings),         cmocka_unit_test(test_structure),
        cmocka_unit_test(test_prefixes),        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_positions),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_duplicates),      cmocka_unit_test(test_duplicates_sizes),
        cmocka_unit_test(test_duplicates_time), cmocka_unit_test(test_skip),
        cmocka_unit_test(test_expect),          cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
