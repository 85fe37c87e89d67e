// Every script comes out token by token and byte by byte, whatever window, cache type, threads and class; from the GGUF
// file and from the Hugging Face folder with each spelling of its configuration (case L23).
#include "engine_fixture.h"

#include <stdio.h>

#define ENDLESS_TOKENS 40 // of a script that never ends

static bool is_endless(const struct script *s) { return s->ids[s->n_ids - 1] != 7; }

// The script's text without the markers that are control tokens there (those of thinking are ordinary text).
static void text_shown(const struct script *s, struct buf *out) {
    static const char *const markers[] = {"<|tool_call_start|>", "<|tool_call_end|>"};
    buf_init(out, 1 << 16);
    for (size_t at = 0; at < s->text.len;) {
        struct str rest = {s->text.data + at, s->text.len - at};
        size_t skip = 0;
        for (size_t i = 0; s->has_control && i < ARRAY_LEN(markers); i++)
            if (str_starts(rest, str_from(markers[i]))) skip = strlen(markers[i]);
        if (!skip) buf_putc(out, rest.data[0]);
        at += skip ? skip : 1;
    }
}

static void script_check(struct tern_session *s, const struct script *script, const char *what) {
    char prompt[256];
    struct tern_request_options o = script_request(script, prompt);
    struct seen seen;
    struct buf want;
    bool endless = is_endless(script);
    if (endless) o.n_max = ENDLESS_TOKENS;
    seen_run(&seen, s, &o);
    if (endless) {
        assert_int_equal(seen.finish, TERN_FINISH_LENGTH);
        assert_int_equal(seen.n_ids, ENDLESS_TOKENS);
        for (int i = 0; i < ENDLESS_TOKENS; i++) assert_int_equal(seen.ids[i], script->ids[i % script->n_ids]);
    } else {
        assert_int_equal(seen.finish, TERN_FINISH_STOP);
        ids_check(&seen, script, script->n_ids, what);
        text_shown(script, &want);
        if (!str_eq(buf_str(&seen.text), buf_str(&want)))
            fail_msg("%s, %s: '%s', expected '%s'", script->name, what, seen.text.data, want.data);
        buf_release(&want);
    }
    assert_int_equal(seen.n_calls, 0);
    seen_release(&seen);
}

static void engine_check(const struct tern_engine_options *o, const char *what) {
    struct tern_engine *e = fixture_engine(o);
    struct tern_session *s = fixture_session(e);
    struct tern_err err = {0};
    for (int i = 0; i < fixture_n_scripts; i++) {
        if (i % 2) fixture_must(tern_session_truncate(s, 0, &err), &err); // with and without what the last one left
        script_check(s, &fixture_scripts[i], what);
    }
    tern_session_close(s);
    tern_engine_close(e);
}

static void test_windows(void **state) {
    (void)state;
    static const int windows[] = {1, 7, 32, 256};
    for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
        struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
        char what[32];
        o.window = windows[i];
        snprintf(what, sizeof what, "window %d", windows[i]);
        engine_check(&o, what);
    }
}

static void test_cache_types_and_threads(void **state) {
    (void)state;
    static const enum tern_kv_type types[] = {TERN_KV_F16, TERN_KV_Q8, TERN_KV_F32};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int threads = 1; threads <= 2; threads++)
            for (int class = TERN_CLASS_INT8; class <= TERN_CLASS_FP32; class ++) {
                struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
                char what[64];
                o.kv_type = types[i];
                o.n_threads = threads;
                o.numerics = (enum tern_class) class;
                snprintf(what, sizeof what, "cache type %d, %d threads, class %d", (int)types[i], threads, class);
                engine_check(&o, what);
            }
}

static void test_model_in_memory(void **state) {
    (void)state;
    struct buf file;
    struct tern_err err = {0};
    buf_init(&file, 4 << 20);
    fixture_must(file_read_all(&file, SCRIPT_MODEL, &err), &err);
    struct tern_engine_options o = fixture_options(NULL);
    o.model_data = file.data;
    o.model_data_len = file.len;
    engine_check(&o, "model in memory");
    buf_release(&file);
}

static void test_chat_messages(void **state) {
    (void)state;
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    struct tern_engine *e = fixture_engine(&o);
    struct tern_session *s = fixture_session(e);
    for (int i = 0; i < fixture_n_scripts; i++) {
        const struct script *script = &fixture_scripts[i];
        char messages[128];
        struct tern_request_options r;
        struct seen seen;
        tern_request_options_default(&r);
        snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", script->name);
        r.messages_json = (struct tern_str){messages, strlen(messages)};
        r.n_max = ENDLESS_TOKENS;
        seen_run(&seen, s, &r);
        if (!is_endless(script)) ids_check(&seen, script, MIN(script->n_ids, ENDLESS_TOKENS), "chat");
        seen_release(&seen);
    }
    tern_session_close(s);
    tern_engine_close(e);
}

static void file_copy(const char *to_folder, const char *name, const char *from) {
    char to[512];
    struct buf b;
    struct tern_err err = {0};
    buf_init(&b, 4 << 20);
    fixture_must(file_read_all(&b, from, &err), &err);
    snprintf(to, sizeof to, "%s/%s", to_folder, name);
    fixture_must(file_write_atomic(to, b.data, b.len, &err), &err);
    buf_release(&b);
}

#define HF TEST_DATA "/safetensors/script-hf"
#define VARIANTS TEST_DATA "/safetensors/variants"
static const char *const hf_files[] = {"chat_template.jinja", "generation_config.json", "model.safetensors",
                                       "tokenizer.json", "tokenizer_config.json"};

static void variant_check(const char *folder, const char *config, bool is_refused) {
    char from[512];
    snprintf(from, sizeof from, config[0] ? VARIANTS "/%s.config.json" : HF "/config.json", config);
    file_copy(folder, "config.json", from);
    struct tern_engine_options o = fixture_options(folder);
    if (!is_refused) {
        engine_check(&o, config);
        return;
    }
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    assert_int_equal(tern_engine_open(&e, &o, &err), TERN_BAD_FORMAT);
    assert_null(e);
    assert_non_null(strstr(err.message, "layer_types"));
}

static void test_folder_variants(void **state) {
    (void)state;
    char folder[256], path[512];
    struct tern_err err = {0};
    fixture_temp_path(folder, "script-hf");
    fixture_must(os_mkdirs(folder, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(hf_files); i++) {
        snprintf(path, sizeof path, HF "/%s", hf_files[i]);
        file_copy(folder, hf_files[i], path);
    }
    variant_check(folder, "", false);
    variant_check(folder, "rope-nested", false);
    variant_check(folder, "attn-idxs", false);
    variant_check(folder, "nulls", false);
    variant_check(folder, "eos-list", false);
    variant_check(folder, "no-layer-kinds", true);
    for (size_t i = 0; i <= ARRAY_LEN(hf_files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i < ARRAY_LEN(hf_files) ? hf_files[i] : "config.json");
        fixture_must(os_remove(path, &err), &err);
    }
    assert_int_equal(remove(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),         cmocka_unit_test(test_cache_types_and_threads),
        cmocka_unit_test(test_model_in_memory), cmocka_unit_test(test_chat_messages),
        cmocka_unit_test(test_folder_variants),
    };
    return cmocka_run_group_tests_name("scripts", tests, fixture_setup, fixture_teardown);
}
