// Saved sessions: saved after any number of tokens and restored by another process's engine, the text goes on as
// without the pause (case H10); what is foreign, cut or damaged is refused and changes nothing.
#include "engine_fixture.h"

#include <stdio.h>

static const int lengths[] = {1, 2, 31, 32, 33, 500};
#define ANSWER 24

static struct tern_engine *pico_engine(enum tern_kv_type kv_type, int n_ctx) {
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    o.kv_type = kv_type;
    o.n_ctx = n_ctx;
    o.n_sessions = 2;
    return fixture_engine(&o);
}

// n tokens of prose behind the begin token.
static void prompt_ids(struct tern_engine *e, int32_t *ids, int n) {
    struct buf text;
    struct tern_err err = {0};
    static int32_t all[16384];
    buf_init(&text, 1 << 20);
    fixture_must(file_read_all(&text, TEST_DATA "/pico/heldout.txt", &err), &err);
    assert_true(tern_tokenize(e, (struct tern_str){text.data, text.len}, true, false, all, ARRAY_LEN(all), &err) > n);
    memcpy(ids, all, (size_t)n * sizeof *ids);
    buf_release(&text);
}

static void answer_take(struct tern_session *s, const int32_t *ids, int n, bool append, int n_max, struct seen *seen) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.prompt_ids = ids;
    o.n_prompt_ids = (size_t)n;
    o.append = append;
    o.n_max = n_max;
    o.ignore_eos = true;
    seen_run(seen, s, &o);
}

static void pause_check(enum tern_kv_type kv_type, int n) {
    char path[256];
    int32_t ids[512];
    struct seen whole, part, rest;
    struct tern_err err = {0};
    fixture_temp_path(path, "session");
    struct tern_engine *e = pico_engine(kv_type, 1024);
    struct tern_session *s = fixture_session(e);
    prompt_ids(e, ids, n);
    answer_take(s, ids, n, false, ANSWER, &whole);
    fixture_must(tern_session_truncate(s, 0, &err), &err);
    answer_take(s, ids, n, false, 1, &part); // the state now holds exactly n tokens, one more is chosen
    assert_int_equal(tern_session_len(s), n);
    fixture_must(tern_session_save(s, path, &err), &err);
    tern_session_close(s);
    tern_engine_close(e);

    e = pico_engine(kv_type, 777); // another engine; the context may differ
    s = fixture_session(e);
    fixture_must(tern_session_load(s, path, &err), &err);
    assert_int_equal(tern_session_len(s), n);
    answer_take(s, NULL, 0, true, ANSWER - 1, &rest);
    assert_int_equal(rest.ids[0], whole.ids[1]);
    assert_memory_equal(rest.ids, whole.ids + 1, (ANSWER - 1) * sizeof *rest.ids);
    // As a prefix of a new prompt, too.
    fixture_must(tern_session_load(s, path, &err), &err);
    seen_release(&rest);
    ids[n] = whole.ids[0];
    answer_take(s, ids, n + 1, false, ANSWER - 1, &rest);
    assert_int_equal(rest.usage.n_cached, n);
    assert_memory_equal(rest.ids, whole.ids + 1, (ANSWER - 1) * sizeof *rest.ids);
    tern_session_close(s);
    tern_engine_close(e);
    fixture_must(os_remove(path, &err), &err);
    seen_release(&whole);
    seen_release(&part);
    seen_release(&rest);
}

static void test_pause(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) pause_check(TERN_KV_F16, lengths[i]);
    pause_check(TERN_KV_Q8, 33);
    pause_check(TERN_KV_F32, 2);
}

static void test_empty_session(void **state) {
    (void)state;
    char path[256];
    struct tern_err err = {0};
    struct tern_engine *e = pico_engine(TERN_KV_F16, 128);
    struct tern_session *s = fixture_session(e);
    fixture_temp_path(path, "empty");
    fixture_must(tern_session_save(s, path, &err), &err);
    fixture_must(tern_session_load(s, path, &err), &err);
    assert_int_equal(tern_session_len(s), 0);
    assert_int_equal(tern_session_save(s, "/nonexistent-folder/state", &err), TERN_NOT_FOUND);
    assert_int_equal(tern_session_load(s, "/nonexistent-folder/state", &err), TERN_NOT_FOUND);
    fixture_must(os_remove(path, &err), &err);
    tern_session_close(s);
    tern_engine_close(e);
}

// Loads must be refused with this status and leave the session as it was.
static void load_refused(struct tern_session *s, const char *path, enum tern_status want, const char *what) {
    struct tern_err err = {0};
    size_t len = tern_session_len(s);
    enum tern_status status = tern_session_load(s, path, &err);
    if (status != want)
        fail_msg("%s: '%s' where '%s' is wanted (%s)", what, tern_status_text(status), tern_status_text(want),
                 err.message);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(tern_session_len(s), len);
}

static void file_put(const char *path, const void *data, size_t len) {
    struct tern_err err = {0};
    fixture_must(file_write_atomic(path, data, len, &err), &err);
}

static void test_damage(void **state) {
    (void)state;
    char path[256];
    int32_t ids[64];
    struct seen seen, after;
    struct tern_err err = {0};
    struct buf file;
    fixture_temp_path(path, "damage");
    struct tern_engine *e = pico_engine(TERN_KV_F16, 256);
    struct tern_session *s = fixture_session(e);
    prompt_ids(e, ids, 40);
    answer_take(s, ids, 40, false, 5, &seen);
    fixture_must(tern_session_save(s, path, &err), &err);
    buf_init(&file, 8 << 20);
    fixture_must(file_read_all(&file, path, &err), &err);
    static const size_t cuts[] = {0, 1, 7, 8, 31, 32, 33, 40, 100, 200, 500};
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        file_put(path, file.data, cuts[i]);
        enum tern_status got = tern_session_load(s, path, &err);
        assert_true(got == TERN_BAD_FORMAT || got == TERN_MISMATCH); // cut inside the identity
    }
    file_put(path, file.data, file.len - 1);
    load_refused(s, path, TERN_BAD_FORMAT, "cut at the end");
    for (size_t at = 0; at < file.len; at += 1 + file.len / 97) {
        file.data[at] ^= 0x20;
        file_put(path, file.data, file.len);
        assert_int_not_equal(tern_session_load(s, path, &err), TERN_OK);
        file.data[at] ^= 0x20;
    }
    assert_true(buf_put(&file, "x", 1));
    file_put(path, file.data, file.len);
    load_refused(s, path, TERN_BAD_FORMAT, "a byte too long");
    // After all of it the session goes on.
    answer_take(s, NULL, 0, true, 3, &after);
    seen_release(&seen);
    fixture_must(tern_session_truncate(s, 0, &err), &err);
    answer_take(s, ids, 40, false, 8, &seen);
    assert_memory_equal(after.ids, seen.ids + 5, 3 * sizeof *after.ids);
    seen_release(&seen);
    seen_release(&after);
    buf_release(&file);
    fixture_must(os_remove(path, &err), &err);
    tern_session_close(s);
    tern_engine_close(e);
}

static void foreign_check(const struct tern_engine_options *o, const char *path, enum tern_status want,
                          const char *what) {
    struct tern_engine *e = fixture_engine(o);
    struct tern_session *s = fixture_session(e);
    load_refused(s, path, want, what);
    tern_session_close(s);
    tern_engine_close(e);
}

static void test_foreign(void **state) {
    (void)state;
    char path[256];
    int32_t ids[64];
    struct seen seen;
    struct tern_err err = {0};
    fixture_temp_path(path, "foreign");
    struct tern_engine *e = pico_engine(TERN_KV_F16, 256);
    struct tern_session *s = fixture_session(e);
    prompt_ids(e, ids, 40);
    answer_take(s, ids, 40, false, 1, &seen);
    fixture_must(tern_session_save(s, path, &err), &err);
    tern_session_close(s);
    tern_engine_close(e);
    seen_release(&seen);
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    foreign_check(&o, path, TERN_MISMATCH, "another model");
    o = fixture_options(PICO_MODEL);
    o.kv_type = TERN_KV_Q8;
    foreign_check(&o, path, TERN_MISMATCH, "another cache type");
    o.kv_type = TERN_KV_F16;
    o.numerics = TERN_CLASS_FP32;
    foreign_check(&o, path, TERN_MISMATCH, "another class");
    o.numerics = TERN_CLASS_AUTO;
    o.n_ctx = 39;
    foreign_check(&o, path, TERN_CONTEXT_FULL, "a smaller context");
    foreign_check(&o, PICO_MODEL, TERN_BAD_FORMAT, "no session at all");
    fixture_must(os_remove(path, &err), &err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_empty_session),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_foreign),
    };
    return cmocka_run_group_tests_name("saved sessions", tests, fixture_setup, fixture_teardown);
}
