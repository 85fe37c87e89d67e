// The answer parser: cases of every dialect, each fed whole, in small pieces and in random ones.
#include "base/base.h"
#include "text/text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define TEXT_MAX (8u << 20)

struct call_list {
    struct buf json; // [{"name":…,"arguments":…},…]
    int n;
};
struct result {
    struct buf text, reasoning, order;
    struct call_list calls;
    char last; // kind of the last event in order
};
struct answer_case {
    char id[80];
    enum answer_style style;
    bool spelled, no_tools, no_reasoning, reasoning_open;
    struct buf raw, text, reasoning, order, calls;
};

static void result_init(struct result *r) {
    *r = (struct result){0};
    struct buf *all[] = {&r->text, &r->reasoning, &r->order, &r->calls.json};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        buf_init(all[i], TEXT_MAX);
        buf_puts(all[i], "");
    }
}

static void result_release(struct result *r) {
    buf_release(&r->text);
    buf_release(&r->reasoning);
    buf_release(&r->order);
    buf_release(&r->calls.json);
}

static bool take_event(void *arg, const struct answer_event *ev) {
    struct result *r = arg;
    char kind = ev->type == ANSWER_TEXT ? 't' : ev->type == ANSWER_REASONING ? 'r' : 'c';
    if (kind != r->last || kind == 'c') {
        if (r->last) buf_putc(&r->order, ' ');
        buf_putc(&r->order, kind);
        buf_putc(&r->order, ':');
    }
    r->last = kind;
    struct str shown = kind == 'c' ? ev->name : ev->text;
    buf_put(&r->order, shown.data, shown.len);
    if (kind == 't') buf_put(&r->text, ev->text.data, ev->text.len);
    if (kind == 'r') buf_put(&r->reasoning, ev->text.data, ev->text.len);
    if (kind != 'c') {
        assert_true(ev->text.len > 0);
        return true;
    }
    struct json *j;
    assert_int_equal(json_create(&j, ev->arguments, NULL, NULL), TERN_OK);
    struct json_item item;
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    while (json_next(j, &item, NULL) != JSON_END) assert_int_not_equal(item.event, JSON_ERROR);
    json_free(j);
    buf_puts(&r->calls.json, r->calls.n++ ? ",{\"name\":" : "{\"name\":");
    json_put_quoted(&r->calls.json, ev->name);
    buf_puts(&r->calls.json, ",\"arguments\":");
    json_put_quoted(&r->calls.json, ev->arguments);
    buf_puts(&r->calls.json, "}");
    return true;
}

// Length of the control marker at the start of s, 0 if there is none.
static size_t marker_len(struct str s) {
    static const char *const markers[] = {"<|tool_call_start|>", "<|tool_call_end|>", "<think>",        "</think>",
                                          "<tool_call>",         "</tool_call>",      "<|python_tag|>", "<|im_end|>"};
    for (size_t i = 0; i < ARRAY_LEN(markers); i++)
        if (str_starts(s, str_from(markers[i]))) return strlen(markers[i]);
    return 0;
}

static uint64_t random_next(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

// Feeds raw in pieces of `size` bytes (0: random sizes), markers as control pieces.
static void feed(struct answer *a, const struct answer_case *c, struct str raw, size_t size, uint64_t *x,
                 struct result *r) {
    size_t pos = 0;
    struct tern_err err;
    while (pos < raw.len) {
        size_t marker = c->spelled ? 0 : marker_len((struct str){raw.data + pos, raw.len - pos});
        if (marker) {
            assert_int_equal(answer_put(a, (struct str){raw.data + pos, marker}, true, take_event, r, &err), TERN_OK);
            pos += marker;
            continue;
        }
        size_t n = size ? size : 1 + (size_t)(random_next(x) % 9), end = pos;
        while (end < raw.len && end - pos < n &&
               (c->spelled || !marker_len((struct str){raw.data + end, raw.len - end})))
            end++;
        assert_int_equal(answer_put(a, (struct str){raw.data + pos, end - pos}, false, take_event, r, &err), TERN_OK);
        pos = end;
    }
    assert_int_equal(answer_finish(a, take_event, r, &err), TERN_OK);
    assert_int_equal(answer_n_calls(a), r->calls.n);
}

static void expect(const char *id, size_t size, const char *what, const struct buf *got, const struct buf *want) {
    if (str_eq(buf_str(got), buf_str(want))) return;
    fail_msg("%s, pieces of %zu: %s is\n  '%.*s', expected\n  '%.*s'", id, size, what, (int)got->len, got->data,
             (int)want->len, want->data);
}

static void run_case(const struct answer_case *c, struct str tools) {
    static const size_t sizes[] = {SIZE_MAX, 1, 3, 0, 0, 0};
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct answer_options o = {.style = c->style,
                                   .reasoning = !c->no_reasoning,
                                   .reasoning_open = c->reasoning_open,
                                   .tools_json = c->no_tools ? STR("") : tools};
        struct answer *a;
        struct tern_err err;
        struct result r;
        result_init(&r);
        assert_int_equal(answer_create(&a, &o, &err), TERN_OK);
        feed(a, c, buf_str(&c->raw), sizes[i], &x, &r);
        expect(c->id, sizes[i], "text", &r.text, &c->text);
        expect(c->id, sizes[i], "reasoning", &r.reasoning, &c->reasoning);
        expect(c->id, sizes[i], "calls", &r.calls.json, &c->calls);
        if (c->order.len > 0) expect(c->id, sizes[i], "order", &r.order, &c->order);
        answer_free(a);
        result_release(&r);
    }
}

static enum answer_style style_of(struct str name) {
    static const char *const names[] = {"plain", "lfm2", "hermes", "llama3"};
    for (int i = 0; i < 4; i++)
        if (str_eqz(name, names[i])) return (enum answer_style)i;
    fail_msg("style '%.*s'", (int)name.len, name.data);
    return ANSWER_PLAIN;
}

static void read_calls(struct json *j, struct buf *out) {
    struct json_item item;
    int n = 0;
    assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
    while (json_next(j, &item, NULL) == JSON_OBJECT) {
        buf_puts(out, n++ ? ",{" : "{");
        for (int k = 0; json_next(j, &item, NULL) == JSON_KEY; k++) {
            if (k) buf_putc(out, ',');
            json_put_quoted(out, item.text);
            buf_putc(out, ':');
            assert_int_equal(json_next(j, &item, NULL), JSON_STRING);
            json_put_quoted(out, item.text);
        }
        buf_putc(out, '}');
    }
}

static void read_field(struct answer_case *c, struct json *j, struct str key) {
    char name[32];
    struct json_item item;
    assert_true(key.len < sizeof(name));
    memcpy(name, key.data, key.len);
    name[key.len] = 0;
    if (strcmp(name, "calls") == 0) {
        read_calls(j, &c->calls);
        return;
    }
    enum json_event e = json_next(j, &item, NULL);
    if (strcmp(name, "id") == 0) {
        size_t n = MIN(item.text.len, sizeof(c->id) - 1);
        memcpy(c->id, item.text.data, n);
        c->id[n] = 0;
    } else if (strcmp(name, "style") == 0) {
        c->style = style_of(item.text);
    } else if (e == JSON_BOOL) {
        c->spelled |= strcmp(name, "spelled") == 0;
        c->no_tools |= strcmp(name, "no_tools") == 0;
        c->no_reasoning |= strcmp(name, "no_reasoning") == 0;
        c->reasoning_open |= strcmp(name, "reasoning_open") == 0;
    } else {
        struct buf *b = strcmp(name, "raw") == 0         ? &c->raw
                        : strcmp(name, "text") == 0      ? &c->text
                        : strcmp(name, "reasoning") == 0 ? &c->reasoning
                                                         : &c->order;
        buf_put(b, item.text.data, item.text.len);
    }
}

static void case_init(struct answer_case *c) {
    *c = (struct answer_case){0};
    struct buf *all[] = {&c->raw, &c->text, &c->reasoning, &c->order, &c->calls};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        buf_init(all[i], TEXT_MAX);
        buf_puts(all[i], "");
    }
}

static void case_release(struct answer_case *c) {
    buf_release(&c->raw);
    buf_release(&c->text);
    buf_release(&c->reasoning);
    buf_release(&c->order);
    buf_release(&c->calls);
}

static void test_cases(void **state) {
    (void)state;
    struct buf file, tools;
    struct tern_err err;
    buf_init(&file, TEXT_MAX);
    buf_init(&tools, TEXT_MAX);
    assert_int_equal(file_read_all(&file, TEST_DATA "/answer/cases.json", &err), TERN_OK);
    assert_int_equal(file_read_all(&tools, TEST_DATA "/answer/tools.json", &err), TERN_OK);
    struct json *j;
    struct json_item item;
    int n = 0;
    assert_int_equal(json_create(&j, buf_str(&file), NULL, &err), TERN_OK);
    assert_int_equal(json_next(j, &item, &err), JSON_ARRAY);
    while (json_next(j, &item, &err) == JSON_OBJECT) {
        struct answer_case c;
        case_init(&c);
        while (json_next(j, &item, &err) == JSON_KEY) read_field(&c, j, item.text);
        run_case(&c, buf_str(&tools));
        case_release(&c);
        n++;
    }
    assert_int_equal(item.event, JSON_ARRAY_END);
    assert_true(n >= 80);
    json_free(j);
    buf_release(&file);
    buf_release(&tools);
}

// What is certain goes out at once: nothing of a plain text is held back.
static void test_streams(void **state) {
    (void)state;
    struct answer *a;
    struct result r;
    struct answer_options o = {.style = ANSWER_LFM2, .reasoning = true, .tools_json = STR("[{\"name\":\"f\"}]")};
    result_init(&r);
    assert_int_equal(answer_create(&a, &o, NULL), TERN_OK);
    const char *pieces[] = {"Hel", "lo ", "[x", "] and", "\n", "[g", " ok"};
    size_t shown = 0;
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        shown += strlen(pieces[i]);
        assert_int_equal(answer_put(a, str_from(pieces[i]), false, take_event, &r, NULL), TERN_OK);
        assert_int_equal(r.text.len, shown);
    }
    assert_int_equal(answer_put(a, STR("\n[f("), false, take_event, &r, NULL), TERN_OK);
    assert_int_equal(r.text.len, shown + 1); // "[f(" may be a call
    answer_free(a);
    result_release(&r);
}

static bool stop_at_once(void *arg, const struct answer_event *ev) {
    (void)ev;
    ++*(int *)arg;
    return false;
}

static void test_stop(void **state) {
    (void)state;
    struct answer *a;
    int n = 0;
    struct answer_options o = {.style = ANSWER_LFM2};
    assert_int_equal(answer_create(&a, &o, NULL), TERN_OK);
    assert_int_equal(answer_put(a, STR("<|tool_call_start|>"), true, stop_at_once, &n, NULL), TERN_OK);
    assert_int_equal(answer_put(a, STR("[f(),g()]"), false, stop_at_once, &n, NULL), TERN_OK);
    assert_int_equal(answer_put(a, STR("<|tool_call_end|>"), true, stop_at_once, &n, NULL), TERN_OK);
    assert_int_equal(answer_put(a, STR("more"), false, stop_at_once, &n, NULL), TERN_OK);
    assert_int_equal(answer_finish(a, stop_at_once, &n, NULL), TERN_OK);
    assert_int_equal(n, 1);
    answer_free(a);
}

// The limits: calls beyond the maximum, and a block that is too long, come out as text.
static void test_limits(void **state) {
    (void)state;
    struct answer *a;
    struct result r;
    struct answer_options o = {.style = ANSWER_LFM2};
    struct buf block;
    buf_init(&block, TEXT_MAX);
    buf_puts(&block, "[");
    for (int i = 0; i < ANSWER_CALLS_MAX + 2; i++) buf_puts(&block, "f(),");
    buf_puts(&block, "]");
    result_init(&r);
    assert_int_equal(answer_create(&a, &o, NULL), TERN_OK);
    assert_int_equal(answer_put(a, STR("<|tool_call_start|>"), true, take_event, &r, NULL), TERN_OK);
    assert_int_equal(answer_put(a, buf_str(&block), false, take_event, &r, NULL), TERN_OK);
    assert_int_equal(answer_put(a, STR("<|tool_call_end|>"), true, take_event, &r, NULL), TERN_OK);
    assert_int_equal(r.calls.n, ANSWER_CALLS_MAX);
    assert_string_equal(r.text.data, "f()f()");
    buf_clear(&block);
    for (size_t i = 0; i <= ANSWER_CALL_BYTES_MAX; i++) buf_putc(&block, '(');
    assert_int_equal(answer_put(a, STR("<|tool_call_start|>"), true, take_event, &r, NULL), TERN_OK);
    assert_int_equal(answer_put(a, buf_str(&block), false, take_event, &r, NULL), TERN_OK);
    assert_int_equal(r.text.len, 6 + block.len);
    answer_free(a);
    result_release(&r);
    buf_release(&block);
}

static void test_tools(void **state) {
    (void)state;
    static const char *const bad[] = {
        "{}", "[1]", "[{\"name\":1}]", "[{\"name\":\"\"}]", "[{\"function\":3}]", "[{", "[{\"name\":\"a\\u0000b\"}]"};
    struct answer *a;
    struct tern_err err;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct answer_options o = {.style = ANSWER_LFM2, .tools_json = str_from(bad[i])};
        assert_int_not_equal(answer_create(&a, &o, &err), TERN_OK);
        assert_true(strlen(err.message) > 0);
    }
    struct answer_options o = {.style = ANSWER_LFM2, .tools_json = STR("[]")};
    assert_int_equal(answer_create(&a, &o, &err), TERN_OK);
    answer_free(a);
    answer_free(NULL);
}

static void test_styles(void **state) {
    (void)state;
    assert_int_equal(answer_style_detect(STR("x <|tool_call_start|> y"), NULL), ANSWER_LFM2);
    assert_int_equal(answer_style_detect(STR("x <tool_call> y"), NULL), ANSWER_HERMES);
    assert_int_equal(answer_style_detect(STR("x <|python_tag|> y"), NULL), ANSWER_LLAMA3);
    assert_int_equal(answer_style_detect(STR("{{ messages }}"), NULL), ANSWER_PLAIN);
    assert_true(answer_is_marker(STR("<think>")));
    assert_true(answer_is_marker(STR("</tool_call>")));
    assert_false(answer_is_marker(STR("<|im_end|>")));
}

struct count {
    int calls;
    size_t text;
};
static bool count_event(void *arg, const struct answer_event *ev) {
    struct count *c = arg;
    c->calls += ev->type == ANSWER_CALL;
    c->text += ev->text.len;
    return true;
}

// Every allocation of a parse fails once: an error or the right result, never a call turned into text.
static void test_no_memory(void **state) {
    (void)state;
    static const char block[] = "[f(a='x'), {\"name\": \"g\", \"arguments\": \"{}\"}]";
    enum tern_status s = TERN_NO_MEMORY;
    for (uint64_t n = 1; s != TERN_OK; n++) {
        struct answer *a = NULL;
        struct count c = {0};
        struct answer_options o = {.style = ANSWER_LFM2, .reasoning = true, .tools_json = STR("[{\"name\":\"f\"}]")};
        mem_fail_at(n, false);
        s = answer_create(&a, &o, NULL);
        if (s == TERN_OK) s = answer_put(a, STR("Hi "), false, count_event, &c, NULL);
        if (s == TERN_OK) s = answer_put(a, STR("<|tool_call_start|>"), true, count_event, &c, NULL);
        if (s == TERN_OK) s = answer_put(a, str_from(block), false, count_event, &c, NULL);
        if (s == TERN_OK) s = answer_put(a, STR("<|tool_call_end|>"), true, count_event, &c, NULL);
        if (s == TERN_OK) s = answer_finish(a, count_event, &c, NULL);
        mem_fail_at(0, false);
        assert_true(c.text <= 3);
        if (s == TERN_OK) {
            assert_int_equal(c.calls, 2);
            assert_true(n > 10);
        } else {
            assert_int_equal(s, TERN_NO_MEMORY);
        }
        answer_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),     cmocka_unit_test(test_streams), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_tools),   cmocka_unit_test(test_styles),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
