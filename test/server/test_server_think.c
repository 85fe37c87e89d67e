// Thinking on request: each format's way of saying it reaches the template as the same variables, nothing else does,
// and the operator's --no-think is what holds where a request says nothing.
#define _GNU_SOURCE 1 // mkdtemp
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SOURCE TEST_DATA "/safetensors/script-hf"
#define BEHIND "{{- '<|im_start|>assistant\\n' -}}"
// What the template of this test writes for each variable.
#define ADDED                                                                                                     \
    BEHIND "{%- if enable_thinking is defined -%}{{- 'no' if not enable_thinking else "                           \
           "'yes!' -}}{%- endif -%}{%- if reasoning_effort is defined -%}{{- "                                    \
           "reasoning_effort -}}{%- endif -%}{%- if keep_past_thinking is defined -%}{{- 'past thoughts' -}}{%- " \
           "endif -%}"

static char folder[256];
static struct served server;

static void file_put(const char *name, struct str text) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text.data, 1, text.len, f), text.len);
    fclose(f);
}
static bool file_copy(void *arg, const char *name, const struct os_stat *st) {
    struct buf b, out;
    char path[400];
    (void)arg;
    if (!st->is_file) return true;
    snprintf(path, sizeof path, SOURCE "/%s", name);
    buf_init(&b, 64 << 20);
    buf_init(&out, 64 << 20);
    assert_int_equal(file_read_all(&b, path, NULL), TERN_OK);
    const size_t at = str_find(buf_str(&b), STR(BEHIND), 0);
    if (strcmp(name, "chat_template.jinja") == 0) {
        assert_true(at != (size_t)-1);
        buf_put(&out, b.data, at);
        buf_puts(&out, ADDED);
        buf_puts(&out, b.data + at + strlen(BEHIND));
    } else {
        buf_put(&out, b.data, b.len);
    }
    file_put(name, buf_str(&out));
    buf_release(&b);
    buf_release(&out);
    return true;
}
static bool file_remove(void *arg, const char *name, const struct os_stat *st) {
    char path[400];
    (void)arg, (void)st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    return true;
}

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/tern_think_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(os_list(SOURCE, file_copy, NULL, NULL), TERN_OK);
    server_start(&server, (const char *const[]){"-m", folder, "--alias", "m", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    const int code = server_stop(&server);
    os_list(folder, file_remove, NULL, NULL);
    return rmdir(folder) || code;
}

// Prompt tokens of a request, whichever format the answer has.
static int64_t prompt_tokens(const struct served *s, const char *path, const char *common, const char *more) {
    char body[512];
    snprintf(body, sizeof body, "{%s%s}", common, more);
    struct answer_http a = http_post(s, path, body, "");
    if (a.status != 200) fail_msg("%s %s: %d %s", path, body, a.status, a.body);
    json_t *j = answer_json(&a), *usage = json_object_get(j, "usage");
    const int64_t n = json_integer_value(json_object_get(usage, "prompt_tokens")) +
                      json_integer_value(json_object_get(usage, "input_tokens")) +
                      json_integer_value(json_object_get(usage, "cache_read_input_tokens")) +
                      json_integer_value(json_object_get(j, "input_tokens")) +
                      json_integer_value(json_object_get(j, "prompt_eval_count"));
    assert_true(n > 5);
    json_decref(j);
    answer_free(&a);
    return n;
}

#define USER "\"messages\": [{\"role\": \"user\", \"content\": \"s01\"}]"
static const struct {
    const char *path, *common;
} formats[] = {{"/v1/chat/completions", "\"max_tokens\": 1, " USER},
               {"/v1/responses", "\"max_output_tokens\": 1, \"input\": \"s01\""},
               {"/v1/messages", "\"max_tokens\": 1, " USER},
               {"/v1/messages/count_tokens", USER},
               {"/v1/responses/input_tokens", "\"input\": \"s01\""},
               {"/api/chat", "\"stream\": false, \"model\": \"m\", \"options\": {\"num_predict\": 1}, " USER},
               {"/api/generate", "\"stream\": false, \"model\": \"m\", \"options\": {\"num_predict\": 1}, \"prompt\": "
                                 "\"s01\""}};

static void each_format_says_it(void **state) {
    (void)state;
    static const struct {
        int format;
        const char *more;
        int n; // tokens that the template adds
    } rows[] = {{0, ", \"reasoning_effort\": \"none\"", 2},
                {0, ", \"reasoning_effort\": \"high\"", 4},
                {0, ", \"reasoning_effort\": null", 0},
                {0, ", \"chat_template_kwargs\": {\"enable_thinking\": false}", 2},
                {0, ", \"chat_template_kwargs\": {\"enable_thinking\": true, \"reasoning_effort\": \"low\"}", 7},
                {0, ", \"chat_template_kwargs\": {\"thinking\": false, \"keep_past_thinking\": true}", 14},
                {0, ", \"chat_template_kwargs\": {}", 0},
                {1, ", \"reasoning\": {\"effort\": \"none\"}", 2},
                {1, ", \"reasoning\": {\"effort\": \"medium\", \"summary\": \"auto\"}", 6},
                {1, ", \"reasoning\": {}", 0},
                {2, ", \"thinking\": {\"type\": \"disabled\"}", 2},
                {2, ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": 1024}", 4},
                {2, ", \"thinking\": {\"type\": \"adaptive\"}", 0},
                {3, ", \"thinking\": {\"type\": \"disabled\"}", 2},
                {4, ", \"reasoning\": {\"effort\": \"none\"}", 2},
                {5, ", \"think\": false", 2},
                {5, ", \"think\": true", 4},
                {5, ", \"think\": \"high\"", 4},
                {6, ", \"think\": false", 2}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *path = formats[rows[i].format].path, *common = formats[rows[i].format].common;
        const int64_t plain = prompt_tokens(&server, path, common, "");
        const int64_t n = prompt_tokens(&server, path, common, rows[i].more);
        if (n != plain + rows[i].n)
            fail_msg("%s%s: %lld tokens more, not %d", path, rows[i].more, (long long)(n - plain), rows[i].n);
    }
}

static void others_are_refused(void **state) {
    (void)state;
    static const struct {
        int format;
        const char *more, *param;
    } rows[] = {
        {0, ", \"reasoning_effort\": \"very\"", "reasoning_effort"},
        {0, ", \"reasoning_effort\": 5", "reasoning_effort"},
        {0, ", \"chat_template_kwargs\": []", "chat_template_kwargs"},
        {0, ", \"chat_template_kwargs\": {\"messages\": []}", "chat_template_kwargs.messages"},
        {0, ", \"chat_template_kwargs\": {\"bos_token\": \"x\"}", "chat_template_kwargs.bos_token"},
        {0, ", \"chat_template_kwargs\": {\"enable_thinking\": \"no\"}", "chat_template_kwargs.enable_thinking"},
        {0, ", \"chat_template_kwargs\": {\"enable_thinking\": {\"a\": 1}}", "chat_template_kwargs"},
        {1, ", \"reasoning\": {\"effort\": \"very\"}", "reasoning.effort"},
        {1, ", \"reasoning\": \"low\"", "reasoning"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char body[512];
        snprintf(body, sizeof body, "{%s%s}", formats[rows[i].format].common, rows[i].more);
        struct answer_http a = http_post(&server, formats[rows[i].format].path, body, "");
        if (a.status != 400) fail_msg("%s: %d %s", body, a.status, a.body);
        const char *param = answer_error(&a, "param");
        if (strncmp(param, rows[i].param, strlen(rows[i].param)) != 0) fail_msg("%s: '%s'", body, param);
        answer_free(&a);
    }
    static const struct {
        int format;
        const char *more;
    } bad[] = {{2, ", \"thinking\": {\"type\": \"sometimes\"}"},
               {2, ", \"thinking\": true"},
               {5, ", \"think\": 1"},
               {6, ", \"think\": \"very\""}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char body[512];
        snprintf(body, sizeof body, "{%s%s}", formats[bad[i].format].common, bad[i].more);
        struct answer_http a = http_post(&server, formats[bad[i].format].path, body, "");
        if (a.status != 400 || !strstr(a.body, "think")) fail_msg("%s: %d %s", body, a.status, a.body);
        answer_free(&a);
    }
}

// /apply-template shows what the model would get to see.
static void templates_show_it(void **state) {
    (void)state;
    static const struct {
        const char *more, *end;
    } rows[] = {{"", "assistant\n"},
                {", \"chat_template_kwargs\": {\"enable_thinking\": false}", "assistant\nno"},
                {", \"chat_template_kwargs\": {\"thinking\": true}", "assistant\n"},
                {", \"reasoning_effort\": \"high\"", "assistant\nhigh"},
                {", \"reasoning_effort\": \"high\", \"add_generation_prompt\": false", "<|im_end|>\n"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char body[400];
        snprintf(body, sizeof body, "{%s%s}", USER, rows[i].more);
        struct answer_http a = http_post(&server, "/apply-template", body, "");
        if (a.status != 200) fail_msg("%s: %d %s", body, a.status, a.body);
        json_t *j = answer_json(&a);
        if (!strstr(json_text_at(j, "prompt"), rows[i].end)) fail_msg("%s: %s", body, json_text_at(j, "prompt"));
        if (i == 0) assert_null(strstr(json_text_at(j, "prompt"), "assistant\nno"));
        json_decref(j);
        answer_free(&a);
    }
    struct answer_http a =
        http_post(&server, "/apply-template", "{" USER ", \"chat_template_kwargs\": {\"messages\": []}}", "");
    assert_int_equal(a.status, 400);
    answer_free(&a);
}

static void operator_says_it(void **state) {
    (void)state;
    struct served s;
    server_start(&s, (const char *const[]){"-m", folder, "--alias", "m", "--no-think", "--log", "none", NULL});
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        assert_int_equal(prompt_tokens(&s, formats[i].path, formats[i].common, ""),
                         prompt_tokens(&server, formats[i].path, formats[i].common, "") + 2);
    assert_int_equal(
        prompt_tokens(&s, formats[0].path, formats[0].common, ", \"chat_template_kwargs\": {\"thinking\": true}"),
        prompt_tokens(&server, formats[0].path, formats[0].common, "") + 4);
    assert_int_equal(server_stop(&s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_format_says_it), cmocka_unit_test(others_are_refused),
                                       cmocka_unit_test(templates_show_it), cmocka_unit_test(operator_says_it)};
    return cmocka_run_group_tests_name("thinking", tests, setup, teardown);
}
