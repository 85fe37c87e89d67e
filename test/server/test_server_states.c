// Named states over HTTP: saved, restored in another process, kept apart by key, never a path.
#define _GNU_SOURCE 1 // mkdtemp
#include "server_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXT                                                                                                    \
    "s01 begins a long message, so that a few blocks of the cache are full of it: one two three four five six " \
    "seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"" TEXT "\"}]"
#define KEY_A "X-Api-Key: key-of-a\r\n"
#define KEY_B "X-Api-Key: key-of-b\r\n"

static char folder[256];

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "%s/tern_states_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    return 0;
}
static bool file_remove(void *arg, const char *name, const struct os_stat *st) {
    char path[700];
    (void)arg;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (st->is_file) unlink(path);
    return true;
}
static int teardown(void **state) {
    (void)state;
    os_list(folder, file_remove, NULL, NULL);
    return rmdir(folder);
}

static bool damaged_find(void *arg, const char *name, const struct os_stat *st) {
    if (st->is_file && strstr(name, ".damaged.")) snprintf(arg, 700, "%s/%s", folder, name);
    return true;
}

static void start(struct served *s, const char *model) {
    server_start(s, (const char *const[]){"-m", model, "--state-dir", folder, "--api-key", "key-of-a", "--api-key",
                                          "key-of-b", "--ctx", "512", "--log", "none", NULL});
}

// The member of a 200's body; fails with what came instead.
static int64_t done(struct answer_http a, const char *member) {
    if (a.status != 200) fail_msg("%d %s", a.status, a.body);
    json_t *j = answer_json(&a);
    int64_t n = json_integer_value(json_object_get(j, member));
    json_decref(j);
    answer_free(&a);
    return n;
}

static int64_t cached(const struct served *s, const char *key, char text[512]) {
    struct answer_http a = http_post(s, "/v1/chat/completions", "{" MESSAGES ", \"max_tokens\": 12}", key);
    if (a.status != 200) fail_msg("%d %s", a.status, a.body);
    json_t *j = answer_json(&a), *usage = json_object_get(j, "usage");
    json_t *m = json_object_get(json_array_get(json_object_get(j, "choices"), 0), "message");
    snprintf(text, 512, "%s", json_string_value(json_object_get(m, "content")));
    int64_t n = json_integer_value(json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens"));
    json_decref(j);
    answer_free(&a);
    return n;
}

static void over_a_restart(void **state) {
    (void)state;
    struct served s;
    char first[512], again[512];
    start(&s, SCRIPT_MODEL);
    struct answer_http a = http_post(&s, "/slots/0?action=save", "{\"filename\": \"x\", " MESSAGES "}", KEY_A);
    assert_int_equal(a.status, 404); // nothing was asked yet
    answer_free(&a);
    assert_int_equal(cached(&s, KEY_A, first), 0);
    int64_t n =
        done(http_post(&s, "/slots/3?action=save", "{\"filename\": \"talk-1.a\", " MESSAGES "}", KEY_A), "n_saved");
    assert_true(n >= 32 && n % 32 == 0);
    assert_int_equal(server_stop(&s), 0);
    start(&s, SCRIPT_MODEL);
    // The other key has no such file, and is given none of this one's.
    a = http_post(&s, "/slots/0?action=restore", "{\"filename\": \"talk-1.a\"}", KEY_B);
    assert_int_equal(a.status, 404);
    answer_free(&a);
    assert_int_equal(
        done(http_post(&s, "/slots/0?action=restore", "{\"filename\": \"talk-1.a\"}", KEY_A), "n_restored"), n);
    assert_int_equal(cached(&s, KEY_B, again), 0);
    assert_string_equal(again, first);
    assert_true(cached(&s, KEY_A, again) >= n - 32);
    assert_string_equal(again, first);
    assert_int_equal(server_stop(&s), 0);
    // Another model refuses it and answers as ever.
    start(&s, TEST_MODELS "/pico.gguf");
    a = http_post(&s, "/slots/0?action=restore", "{\"filename\": \"talk-1.a\"}", KEY_A);
    assert_int_equal(a.status, 400);
    assert_string_equal(answer_error(&a, "code"), "mismatch");
    answer_free(&a);
    assert_int_equal(cached(&s, KEY_A, again), 0);
    assert_int_equal(server_stop(&s), 0);
}

// A file that was cut or changed is refused by its name; where the server keeps it is not told.
static void damaged_files(const struct served *s) {
    static const char body[] = "{\"filename\": \"damaged\", " MESSAGES "}";
    char text[512], path[700] = "";
    cached(s, KEY_A, text);
    for (int kind = 0; kind < 3; kind++) {
        done(http_post(s, "/slots/0?action=save", body, KEY_A), "n_saved");
        path[0] = 0;
        os_list(folder, damaged_find, path, NULL);
        assert_true(path[0] != 0);
        struct buf b;
        buf_init(&b, 64 << 20);
        assert_int_equal(file_read_all(&b, path, NULL), TERN_OK);
        assert_true(b.len > 100);
        if (kind == 1) b.data[b.len / 2] ^= 1;
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fwrite(b.data, 1, kind == 0 ? b.len / 2 : kind == 1 ? b.len : 3, f);
        fclose(f);
        buf_release(&b);
        struct answer_http a = http_post(s, "/slots/0?action=restore", "{\"filename\": \"damaged\"}", KEY_A);
        assert_int_equal(a.status, 400);
        if (strstr(a.body, folder) || !strstr(a.body, "damaged")) fail_msg("%s", a.body);
        answer_free(&a);
    }
    // A link in its place is not followed out of the folder, neither to read nor to write.
    char target[600];
    snprintf(target, sizeof target, "%s/outside", folder);
    FILE *f = fopen(target, "wb");
    assert_non_null(f);
    fputs("keep me", f);
    fclose(f);
    unlink(path);
    assert_int_equal(symlink(target, path), 0);
    struct answer_http a = http_post(s, "/slots/0?action=restore", "{\"filename\": \"damaged\"}", KEY_A);
    if (a.status != 400 || strstr(a.body, "keep me") || strstr(a.body, folder)) fail_msg("%d %s", a.status, a.body);
    answer_free(&a);
    done(http_post(s, "/slots/0?action=save", body, KEY_A), "n_saved");
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(file_read_all(&b, target, NULL), TERN_OK);
    assert_true(str_eqz(buf_str(&b), "keep me"));
    buf_release(&b);
    done(http_post(s, "/slots/0?action=restore", "{\"filename\": \"damaged\"}", KEY_A), "n_restored");
    cached(s, KEY_A, text); // and all is well
    unlink(path);
    unlink(target);
}

// An erased one makes room for another of its key; the other key's of that name stays.
static void erased_make_room(const struct served *s) {
    struct answer_http gone = http_post(s, "/slots/0?action=erase", "{\"filename\": \"mine\"}", KEY_B);
    assert_int_equal(gone.status, 404);
    answer_free(&gone);
    assert_true(done(http_post(s, "/slots/0?action=erase", "{\"filename\": \"many3\"}", KEY_B), "n_removed") > 100);
    done(http_post(s, "/slots/0?action=save", "{\"filename\": \"another\", " MESSAGES "}", KEY_B), "n_saved");
    gone = http_post(s, "/slots/0?action=restore", "{\"filename\": \"many3\"}", KEY_B);
    assert_int_equal(gone.status, 404);
    answer_free(&gone);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *path, *body, *part;
        int status;
    } rows[] = {{"/slots/0?action=save", "{\"filename\": \"../x\", " MESSAGES "}", "filename", 400},
                {"/slots/0?action=save", "{\"filename\": \"a/b\", " MESSAGES "}", "filename", 400},
                {"/slots/0?action=save", "{\"filename\": \".hidden\", " MESSAGES "}", "filename", 400},
                {"/slots/0?action=save", "{\"filename\": \"\", " MESSAGES "}", "filename", 400},
                {"/slots/0?action=save", "{\"filename\": \"a\\u0000b\", " MESSAGES "}", "filename", 400},
                {"/slots/0?action=save", "{\"filename\": \"/etc/passwd\", " MESSAGES "}", "filename", 400},
                {"/slots/0?action=save", "{\"filename\": \"x\\\\y\", " MESSAGES "}", "filename", 400},
                {"/slots/0?action=save",
                 "{\"filename\": \"0123456789012345678901234567890123456789012345678901234567890123456789\", " MESSAGES
                 "}",
                 "filename", 400},
                {"/slots/0?action=save", "{" MESSAGES "}", "filename", 400},
                {"/slots/0?action=save", "{\"filename\": \"x\"}", "messages", 400},
                {"/slots/0?action=save", "{\"filename\": \"x\", \"prompt\": \"a\", " MESSAGES "}", "messages", 400},
                {"/slots/0?action=erase", "{\"filename\": \"../x\"}", "filename", 400},
                {"/slots/0?action=erase", "{\"filename\": \"none\"}", "no state", 404},
                {"/slots/0?action=erase", "", "n_erased\":0", 200},
                {"/slots/0?action=erase", "{}", "n_erased\":0", 200},
                {"/slots/-1?action=erase", "{}", "id_slot", 400},
                {"/slots/x?action=erase", "{}", "id_slot", 400},
                {"/slots/0?action=drop", "{\"filename\": \"x\"}", "action", 400},
                {"/slots/0", "{\"filename\": \"x\"}", "action", 400},
                {"/slots/0?action=restore", "{\"filename\": \"../x\"}", "filename", 400},
                {"/slots/0?action=restore", "{\"filename\": \"none\"}", "no state", 404}};
    struct served s;
    start(&s, SCRIPT_MODEL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&s, rows[i].path, rows[i].body, KEY_A);
        if (a.status != rows[i].status || !strstr(a.body, rows[i].part))
            fail_msg("%s %s: %d %s", rows[i].path, rows[i].body, a.status, a.body);
        answer_free(&a);
    }
    damaged_files(&s);
    // So many files, and no more; one of a name that is there is replaced.
    char text[512], body[800];
    cached(&s, KEY_A, text);
    cached(&s, KEY_B, text);
    int n = 0, status = 200;
    for (; n < 80 && status == 200; n++) {
        snprintf(body, sizeof body, "{\"filename\": \"many%d\", " MESSAGES "}", n);
        struct answer_http a = http_post(&s, "/slots/0?action=save", body, KEY_B);
        status = a.status;
        if (status != 200) assert_non_null(strstr(a.body, "one key"));
        answer_free(&a);
    }
    assert_int_equal(status, 400);
    assert_int_equal(n, 65);
    done(http_post(&s, "/slots/0?action=save", "{\"filename\": \"many3\", " MESSAGES "}", KEY_B), "n_saved");
    done(http_post(&s, "/slots/0?action=save", "{\"filename\": \"mine\", " MESSAGES "}", KEY_A), "n_saved");
    erased_make_room(&s);
    assert_int_equal(server_stop(&s), 0);
    server_start(&s, (const char *const[]){"-m", SCRIPT_MODEL, "--log", "none", NULL});
    struct answer_http a = http_post(&s, "/slots/0?action=restore", "{\"filename\": \"x\"}", "");
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(a.body, "--state-dir"));
    answer_free(&a);
    assert_int_equal(server_stop(&s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(over_a_restart), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests_name("named states", tests, setup, teardown);
}
