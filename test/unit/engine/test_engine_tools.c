// Tool calls and reasoning of the script model, end to end (the cases P… of test/data/script/tool_cases.json).
#include "engine_fixture.h"

#include <stdio.h>

static bool json_same(const struct json_tree *a, const struct json_tree *b) {
    if (a->event != b->event || a->n != b->n) return false;
    if (a->event == JSON_BOOL && a->boolean != b->boolean) return false;
    if (a->event == JSON_NUMBER && a->number != b->number) return false;
    if (a->event == JSON_STRING && !str_eq(a->text, b->text)) return false;
    const struct json_tree *y = b->first;
    for (const struct json_tree *x = a->first; x; x = x->next, y = y->next)
        if (!str_eq(x->key, y->key) || !json_same(x, y)) return false;
    return true;
}

// Runs of blanks as one, none at the ends.
static void blanks_fold(struct str s, struct buf *out) {
    s = str_trim(s);
    buf_init(out, 1 << 16);
    buf_puts(out, "");
    for (size_t i = 0; i < s.len; i++) {
        bool blank = s.data[i] == ' ' || s.data[i] == '\n' || s.data[i] == '\t' || s.data[i] == '\r';
        if (!blank)
            buf_putc(out, s.data[i]);
        else if (out->len && out->data[out->len - 1] != ' ')
            buf_putc(out, ' ');
    }
}

static bool text_same(const struct json_tree *want, struct str got) {
    struct buf folded;
    if (!want) return true;
    blanks_fold(got, &folded);
    bool same = want->event == JSON_NULL ? folded.len == 0 : str_eq(want->text, buf_str(&folded));
    buf_release(&folded);
    return same;
}

static bool outcome_same(const struct json_tree *want, const struct seen *seen, const struct json_tree *calls) {
    const struct json_tree *has = json_find(want, "content_has"), *finish = json_find(want, "finish_reason");
    return text_same(json_find(want, "content_ws"), buf_str(&seen->text)) &&
           text_same(json_find(want, "reasoning_ws"), buf_str(&seen->reasoning)) &&
           json_same(json_get(want, "calls"), calls) &&
           (!has || str_find(buf_str(&seen->text), has->text, 0) != (size_t)-1) &&
           (!finish || str_eqz(finish->text, tern_finish_text(seen->finish)));
}

static void case_check(struct tern_session *s, const struct json_tree *from, struct str tools) {
    char messages[128];
    struct seen seen;
    struct tern_request_options o;
    struct str id = json_get(from, "id")->text;
    tern_request_options_default(&o);
    snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%.*s\"}]",
             (int)json_get(from, "script")->text.len, json_get(from, "script")->text.data);
    o.messages_json = (struct tern_str){messages, strlen(messages)};
    o.tools_json = (struct tern_str){tools.data, tools.len};
    seen_run(&seen, s, &o);
    struct buf list;
    struct json_file calls;
    buf_init(&list, 1 << 16);
    buf_putf(&list, "[%s]", seen.calls.len ? seen.calls.data : "");
    json_text_read(&calls, buf_str(&list));
    bool found = false;
    JSON_EACH(want, json_get(from, "any_of")) found |= outcome_same(want, &seen, calls.root);
    if (!found)
        fail_msg("%.*s: text '%s', reasoning '%s', calls %s, finish %s", (int)id.len, id.data,
                 seen.text.data ? seen.text.data : "", seen.reasoning.data ? seen.reasoning.data : "", list.data,
                 tern_finish_text(seen.finish));
    const struct json_tree *counts = json_get(from, "completion_tokens");
    bool counted = false;
    JSON_EACH(n, counts) counted |= n->integer == seen.usage.n_answer;
    assert_true(counted);
    json_file_release(&calls);
    buf_release(&list);
    seen_release(&seen);
}

static void test_cases(void **state) {
    (void)state;
    struct json_file file;
    struct buf text;
    struct tern_err err = {0};
    buf_init(&text, 1 << 20);
    fixture_must(file_read_all(&text, TEST_DATA "/script/tool_cases.json", &err), &err);
    json_text_read(&file, buf_str(&text));
    // The tools as the file has them: between "tools": and the line's end.
    size_t begin = str_find(buf_str(&text), STR("["), 0), end = str_find(buf_str(&text), STR(",\n\"cases\""), 0);
    assert_true(begin < end);
    struct str tools = {text.data + begin, end - begin};
    static const int windows[] = {256, 32, 1};
    for (size_t w = 0; w < (env_get("TERN_TEST_SHORT") ? 1 : ARRAY_LEN(windows)); w++) {
        struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
        o.window = windows[w];
        o.n_ctx = 4096;
        struct tern_engine *e = fixture_engine(&o);
        struct tern_session *s = fixture_session(e);
        JSON_EACH(from, json_get(file.root, "cases")) case_check(s, from, tools);
        tern_session_close(s);
        tern_engine_close(e);
    }
    assert_true(json_get(file.root, "cases")->n >= 14);
    json_file_release(&file);
    buf_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests_name("tool calls, end to end", tests, fixture_setup, fixture_teardown);
}
