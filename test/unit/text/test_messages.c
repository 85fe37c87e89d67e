// The message normaliser: what is taken, how it comes out, and what is refused with which words.
#include "base/base.h"
#include "text/text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static enum tern_status normalise(const char *in, struct buf *out, struct tern_err *err) {
    buf_init(out, 1u << 24);
    *err = (struct tern_err){0};
    return messages_normalise(out, str_from(in), err);
}

static void test_taken(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"[{\"role\":\"user\",\"content\":\"hi\"}]", "[{\"role\":\"user\",\"content\":\"hi\"}]"},
        {" [ { \"content\" : \"a\\nb\" , \"role\" : \"developer\" } ] ",
         "[{\"content\":\"a\\nb\",\"role\":\"system\"}]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"s01\"},{\"text\":\"and "
         "more\",\"type\":\"text\"}]}]",
         "[{\"role\":\"user\",\"content\":\"s01\\nand more\"}]"},
        {"[{\"role\":\"user\",\"content\":[]}]", "[{\"role\":\"user\",\"content\":\"\"}]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"cache\":{\"a\":[1]}}]}]",
         "[{\"role\":\"user\",\"content\":\"x\"}]"},
        {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":"
         "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": [1, 2.50]}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\","
         "\"content\":\"ok\"}]",
         "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":"
         "{\"name\":\"f\",\"arguments\":{\"a\": [1, 2.50]}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\","
         "\"content\":\"ok\"}]"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":{\"z\":1,\"a\":2}}]}]",
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":{\"z\":1,\"a\":2}}],\"content\":null}"
         "]"},
        {"[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":null}]",
         "[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":null}]"},
        {"[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"\"}}"
         "]}]",
         "[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]}"
         "]"},
        {"[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"why\",\"x\\\"y\":{\"b\":1}}]",
         "[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"why\",\"x\\\"y\":{\"b\":1}}]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf out;
        struct tern_err err;
        if (normalise(cases[i].in, &out, &err) != TERN_OK) fail_msg("%s: %s", cases[i].in, err.message);
        assert_string_equal(out.data, cases[i].out);
        buf_release(&out);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *in;
        enum tern_status status;
        const char *words;
    } cases[] = {
        {"", TERN_BAD_FORMAT, ""},
        {"[", TERN_BAD_FORMAT, ""},
        {"[] x", TERN_INVALID_ARGUMENT, "empty"},
        {"{}", TERN_INVALID_ARGUMENT, "must be a list"},
        {"[]", TERN_INVALID_ARGUMENT, "at least one"},
        {"[1]", TERN_INVALID_ARGUMENT, "messages[0]: expected an object"},
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"content\":\"x\"}]", TERN_INVALID_ARGUMENT,
         "messages[1]: role is missing"},
        {"[{\"role\":\"wizard\",\"content\":\"x\"}]", TERN_INVALID_ARGUMENT, "'wizard' is unknown"},
        {"[{\"role\":3,\"content\":\"x\"}]", TERN_INVALID_ARGUMENT, "role must be a string"},
        {"[{\"role\":\"user\",\"content\":5}]", TERN_INVALID_ARGUMENT, "messages[0]: content must be"},
        {"[{\"role\":\"user\",\"content\":null}]", TERN_INVALID_ARGUMENT, "is null"},
        {"[{\"role\":\"user\"}]", TERN_INVALID_ARGUMENT, "is missing"},
        {"[{\"role\":\"assistant\"}]", TERN_INVALID_ARGUMENT, "needs content or tool_calls"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:,\"}},{\"type\":"
         "\"text\","
         "\"text\":\"s01\"}]}]",
         TERN_UNSUPPORTED, "messages[0]: content[0] has the type 'image_url'"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", TERN_INVALID_ARGUMENT, "content[0] has no text"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]", TERN_INVALID_ARGUMENT,
         "content[0].text"},
        {"[{\"role\":\"user\",\"content\":[7]}]", TERN_INVALID_ARGUMENT, "content[0] must be an object"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]",
         TERN_INVALID_ARGUMENT, "only an assistant"},
        {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", TERN_INVALID_ARGUMENT, "tool_calls must be a list"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[1]}]", TERN_INVALID_ARGUMENT, "tool_calls[0] must be an object"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{}\"}}]}]", TERN_INVALID_ARGUMENT,
         "tool_calls[0] has no function name"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}]",
         TERN_INVALID_ARGUMENT, "is not a JSON object in a string"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}]",
         TERN_INVALID_ARGUMENT, "is not a JSON object in a string"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":3}}]}]",
         TERN_INVALID_ARGUMENT, "must be an object or a string"},
        {"[{\"role\":\"user\",\"role\":\"system\",\"content\":\"x\"}]", TERN_BAD_FORMAT, ""},
        {"[{\"role\":\"user\",\"content\":\"x\"}] []", TERN_BAD_FORMAT, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf out;
        struct tern_err err;
        enum tern_status s = normalise(cases[i].in, &out, &err);
        if (s != cases[i].status || str_find(str_from(err.message), str_from(cases[i].words), 0) == (size_t)-1)
            fail_msg("%s: %s: %s", cases[i].in, tern_status_text(s), err.message);
        assert_int_equal(err.code, s);
        assert_int_equal(out.len, 0);
        buf_release(&out);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    static const char in[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"assistant\","
        "\"k\":1,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}]";
    enum tern_status s = TERN_NO_MEMORY;
    for (uint64_t n = 1; s != TERN_OK; n++) {
        struct buf out;
        struct tern_err err;
        mem_fail_at(n, false);
        s = normalise(in, &out, &err);
        mem_fail_at(0, false);
        if (s != TERN_OK) assert_int_equal(s, TERN_NO_MEMORY);
        buf_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
