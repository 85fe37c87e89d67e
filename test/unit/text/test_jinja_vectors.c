// Template snippets and whole chat templates against what Jinja2 made of them, byte for byte (tools/jinja). Where
// Jinja2 raised an error, there must be one; where the template called raise_exception, its text is the message.
#include "base/base.h"
#include "text/text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#define FILE_MAX (4u << 20)
#define TEMPLATES_MAX 16

static void file_read(struct buf *b, const char *path) {
    struct tern_err err;
    buf_init(b, FILE_MAX);
    if (file_read_all(b, path, &err) != TERN_OK) fail_msg("%s", err.message);
}

// What a template shall do.
struct wanted {
    struct buf text;
    enum { WANT_TEXT, WANT_RAISE, WANT_ERROR } kind;
};

// A key of a result object and its string value.
static bool wanted_take(struct wanted *w, struct json *j, struct str key) {
    struct json_item item;
    if (key.len != 1 || !strchr("ore", key.data[0])) return false;
    w->kind = key.data[0] == 'o' ? WANT_TEXT : key.data[0] == 'r' ? WANT_RAISE : WANT_ERROR;
    assert_int_equal(json_next(j, &item, NULL), JSON_STRING);
    buf_clear(&w->text);
    buf_put(&w->text, item.text.data, item.text.len);
    return true;
}

static bool check(const struct wanted *w, enum tern_status s, const struct jinja_output *got,
                  const struct tern_err *err, const char *what) {
    struct str want = buf_str(&w->text);
    if (w->kind == WANT_ERROR && s != TERN_OK) return true;
    if (w->kind == WANT_RAISE && s == TERN_TEMPLATE && str_eq(str_from(err->message), want)) return true;
    if (w->kind == WANT_TEXT && s == TERN_OK && str_eq(buf_str(&got->text), want)) return true;
    static const char *const kinds[] = {"the text", "raise_exception with", "an error:"};
    print_message("%s\n  gives    %s%.*s\n  expected %s %.*s\n", what, s == TERN_OK ? "" : err->message,
                  s == TERN_OK ? (int)got->text.len : 0, s == TERN_OK ? got->text.data : "", kinds[w->kind],
                  (int)want.len, want.data);
    return false;
}

static enum tern_status render_snippet(struct jinja_output *out, struct str source, struct str vars,
                                       struct tern_err *err) {
    struct jinja *j;
    TRY(jinja_create(&j, source, err));
    enum tern_status s = jinja_render_vars(j, out, vars, 1700000000, err);
    jinja_free(j);
    return s;
}

// One row {"t": template, "o" | "r" | "e": …}.
static bool run_snippet(struct json *j, struct str vars, struct wanted *w) {
    struct json_item item;
    struct buf source;
    buf_init(&source, FILE_MAX);
    buf_puts(&source, "");
    while (json_next(j, &item, NULL) == JSON_KEY) {
        if (wanted_take(w, j, item.text)) continue;
        assert_int_equal(json_next(j, &item, NULL), JSON_STRING);
        buf_put(&source, item.text.data, item.text.len);
    }
    struct jinja_output out = {0};
    struct tern_err err = {0};
    enum tern_status s = render_snippet(&out, buf_str(&source), vars, &err);
    bool ok = check(w, s, &out, &err, source.data);
    if (s != TERN_OK && s != TERN_TEMPLATE) ok = ok && str_starts(str_from(err.message), STR("template line "));
    jinja_output_release(&out);
    buf_release(&source);
    return ok;
}

static void test_snippets(void **state) {
    (void)state;
    struct buf file;
    struct json *j;
    struct json_item item;
    struct str vars = {0};
    struct wanted w = {0};
    int n = 0, n_bad = 0;
    file_read(&file, TEST_DATA "/template/snippets.json");
    buf_init(&w.text, FILE_MAX);
    assert_int_equal(json_create(&j, buf_str(&file), NULL, NULL), TERN_OK);
    assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    assert_int_equal(json_next(j, &item, NULL), JSON_KEY);
    assert_int_equal(json_raw(j, &vars, NULL), TERN_OK);
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT_END);
    for (; json_next(j, &item, NULL) == JSON_OBJECT; n++) n_bad += !run_snippet(j, vars, &w);
    assert_int_equal(item.event, JSON_ARRAY_END);
    json_free(j);
    buf_release(&file);
    buf_release(&w.text);
    assert_true(n > 1000);
    assert_int_equal(n_bad, 0);
}

// ---- whole templates

struct chat {
    char names[TEMPLATES_MAX][40];
    struct jinja *templates[TEMPLATES_MAX];
    int n;
};

static struct jinja *chat_template(struct chat *c, struct str name) {
    char path[512];
    struct buf source;
    struct tern_err err;
    for (int i = 0; i < c->n; i++)
        if (str_eqz(name, c->names[i])) return c->templates[i];
    assert_true(c->n < TEMPLATES_MAX && name.len < sizeof(c->names[0]));
    bool is_pico = str_starts(name, STR("pico"));
    snprintf(path, sizeof(path), "%s/%.*s", is_pico ? "models" : TEST_DATA "/template/chat", (int)name.len, name.data);
    file_read(&source, path);
    if (jinja_create(&c->templates[c->n], buf_str(&source), &err) != TERN_OK) fail_msg("%s: %s", path, err.message);
    memcpy(c->names[c->n], name.data, name.len);
    c->names[c->n][name.len] = 0;
    buf_release(&source);
    return c->templates[c->n++];
}

// The conversation's keys: messages and tools apart, the rest as further variables.
static void input_read(struct jinja_input *in, struct buf *extra, struct json *j) {
    struct json_item item;
    struct json_writer w;
    buf_clear(extra);
    json_write_init(&w, extra);
    json_write_object(&w);
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    while (json_next(j, &item, NULL) == JSON_KEY) {
        struct str raw;
        bool is_messages = str_eqz(item.text, "messages"), is_tools = str_eqz(item.text, "tools");
        if (!is_messages && !is_tools) json_write_key_str(&w, item.text);
        assert_int_equal(json_raw(j, &raw, NULL), TERN_OK);
        if (is_messages)
            in->messages = raw;
        else if (is_tools)
            in->tools = raw;
        else
            json_write_raw(&w, raw);
    }
    json_write_object_end(&w);
    in->extra = buf_str(extra);
}

static int run_outputs(struct chat *c, const struct jinja_input *in, struct json *j, struct wanted *w, int *n) {
    struct json_item item;
    int n_bad = 0;
    assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
    while (json_next(j, &item, NULL) == JSON_KEY) {
        struct jinja *t = chat_template(c, item.text);
        char what[64];
        snprintf(what, sizeof(what), "conversation %d, %.*s", *n, (int)item.text.len, item.text.data);
        assert_int_equal(json_next(j, &item, NULL), JSON_OBJECT);
        while (json_next(j, &item, NULL) == JSON_KEY) assert_true(wanted_take(w, j, item.text));
        struct jinja_output out = {0};
        struct tern_err err = {0};
        n_bad += !check(w, jinja_render(t, &out, in, &err), &out, &err, what);
        jinja_output_release(&out);
    }
    ++*n;
    return n_bad;
}

static void test_chats(void **state) {
    (void)state;
    struct buf file, extra;
    struct json *j;
    struct json_item item;
    struct wanted w = {0};
    static struct chat c;
    int n = 0, n_bad = 0;
    file_read(&file, TEST_DATA "/template/chat.json");
    buf_init(&w.text, FILE_MAX);
    buf_init(&extra, FILE_MAX);
    assert_int_equal(json_create(&j, buf_str(&file), NULL, NULL), TERN_OK);
    assert_int_equal(json_next(j, &item, NULL), JSON_ARRAY);
    while (json_next(j, &item, NULL) == JSON_OBJECT) {
        struct jinja_input in = {.bos_token = STR("<|startoftext|>"), .eos_token = STR("<|im_end|>")};
        while (json_next(j, &item, NULL) == JSON_KEY) {
            if (str_eqz(item.text, "in")) {
                input_read(&in, &extra, j);
            } else if (str_eqz(item.text, "add_generation_prompt")) {
                assert_int_equal(json_next(j, &item, NULL), JSON_BOOL);
                in.add_generation_prompt = item.boolean;
            } else {
                n_bad += run_outputs(&c, &in, j, &w, &n);
            }
        }
    }
    assert_int_equal(item.event, JSON_ARRAY_END);
    for (int i = 0; i < c.n; i++) jinja_free(c.templates[i]);
    json_free(j);
    buf_release(&file);
    buf_release(&extra);
    buf_release(&w.text);
    assert_true(n >= 20 && c.n >= 7);
    assert_int_equal(n_bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_snippets), cmocka_unit_test(test_chats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
