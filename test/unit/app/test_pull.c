// tern pull without a network: names, listings, which files a name means, where URLs lead.
#include "base/base.h"
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>
#include "app/pull/pull.h"

static void name_is(const char *name, const char *id, const char *tag) {
    struct str i, t;
    if (!pull_name_split(str_from(name), &i, &t)) fail_msg("'%s' is refused", name);
    if (!str_eqz(i, id) || !str_eqz(t, tag))
        fail_msg("'%s': '%.*s' and '%.*s'", name, (int)i.len, i.data, (int)t.len, t.data);
}

static void test_names(void **state) {
    (void)state;
    static const char *const unsound[] = {"",       "x",     "/x",         "x/",    "a/b/c",   "a/b:",   "a/b:c:d",
                                          "a/..",   "./b",   "-a/b",       "a/b--", "a/b--c",  "a/b..c", "a b/c",
                                          "a/b:..", "a/b\n", "http://a/b", "a/b.",  "a/b:\\x", "a/b?c",  "hf:a"};
    struct str id, tag;
    name_is("org/repo", "org/repo", "");
    name_is("org/repo:Q4_0", "org/repo", "Q4_0");
    name_is("hf:org/repo-GGUF:sub/x.gguf", "org/repo-GGUF", "sub/x.gguf");
    name_is("https://huggingface.co/org/repo", "org/repo", "");
    name_is("hf.co/a/b.c_d", "a/b.c_d", "");
    for (size_t i = 0; i < ARRAY_LEN(unsound); i++)
        if (pull_name_split(str_from(unsound[i]), &id, &tag)) fail_msg("'%s' is taken", unsound[i]);
}

static void test_file_names(void **state) {
    (void)state;
    static const char *const sound[] = {"a", "a/b/c.gguf", ".gitattributes", "..a", "a/...", "ü.json"};
    static const char *const unsound[] = {"",     "/a",    "a/",   "a//b", ".",   "..",  "a/..",
                                          "../a", "a/./b", "a\\b", "a\nb", "C:x", "\xff"};
    char long_name[PULL_NAME_MAX + 2];
    for (size_t i = 0; i < ARRAY_LEN(sound); i++)
        if (!pull_file_name_is_sound(str_from(sound[i]))) fail_msg("'%s' is refused", sound[i]);
    for (size_t i = 0; i < ARRAY_LEN(unsound); i++)
        if (pull_file_name_is_sound(str_from(unsound[i]))) fail_msg("'%s' is taken", unsound[i]);
    assert_false(pull_file_name_is_sound((struct str){"a\0b", 3}));
    for (size_t i = 0; i < sizeof long_name; i++) long_name[i] = i % 100 == 99 ? '/' : 'x';
    assert_true(pull_file_name_is_sound((struct str){long_name, PULL_NAME_MAX}));
    assert_false(pull_file_name_is_sound((struct str){long_name, PULL_NAME_MAX + 1}));
    assert_false(pull_file_name_is_sound((struct str){memset(long_name, 'x', 201), 201}));
}

static void origin_is(const char *url, const char *expected) {
    struct str o = pull_url_origin(str_from(url));
    if (!str_eqz(o, expected)) fail_msg("%s: '%.*s'", url, (int)o.len, o.data ? o.data : "");
}

static void test_origins(void **state) {
    (void)state;
    origin_is("https://hub.co/a/b?c", "https://hub.co");
    origin_is("https://hub.co:443", "https://hub.co:443");
    origin_is("http://[::1]:80?x", "http://[::1]:80");
    origin_is("https://hub.co#@evil.com/", "https://hub.co");
    origin_is("https://hub.co@evil.com/", "");
    origin_is("https://hub.co\\@evil.com/", "");
    origin_is("https://", "");
    origin_is("ftp://x/", "");
    origin_is("//x/", "");
}

#define A40 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B64 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define GIT(name) "{\"rfilename\":\"" name "\",\"size\":3,\"blobId\":\"" A40 "\"}"
#define LFS(name) \
    "{\"rfilename\":\"" name "\",\"size\":5,\"blobId\":\"" A40 "\",\"lfs\":{\"sha256\":\"" B64 "\",\"size\":5}}"
#define LISTING(files) "{\"id\":\"o/r\",\"sha\":\"" A40 "\",\"gated\":false,\"siblings\":[" files "]}"

static void refused(const char *json, enum tern_status status, const char *part) {
    struct pull_repo r = {.id = "o/r"};
    struct tern_err err = {0};
    if (pull_listing_parse(&r, str_from(json), &err) != status || !strstr(err.message, part))
        fail_msg("%s: %d, %s", json, (int)err.code, err.message);
    pull_repo_release(&r);
}

static void test_listing(void **state) {
    (void)state;
    struct pull_repo r = {.id = "o/r"};
    struct tern_err err = {0};
    assert_int_equal(pull_listing_parse(&r, str_from(LISTING(GIT("a.json") "," LFS("b/c.gguf"))), &err), TERN_OK);
    assert_int_equal(r.n, 2);
    assert_string_equal(r.commit, A40);
    assert_string_equal(r.files[0].oid, A40);
    assert_string_equal(r.files[1].oid, B64);
    assert_string_equal(r.files[1].name, "b/c.gguf");
    assert_int_equal(r.files[1].n_bytes, 5);
    pull_repo_release(&r);
    refused(LISTING(GIT("../a")), TERN_BAD_FORMAT, "lead out");
    refused("{\"siblings\":[]}", TERN_BAD_FORMAT, "no commit");
    refused("{\"sha\":\"ABC\"}", TERN_BAD_FORMAT, "no commit");
    refused(LISTING("{\"rfilename\":\"a\",\"size\":1}"), TERN_UNSUPPORTED, "blobs=true");
    refused(LISTING("{\"rfilename\":\"a\",\"size\":1.5,\"blobId\":\"" A40 "\"}"), TERN_BAD_FORMAT, "bytes");
    refused(LISTING("{\"rfilename\":\"a\",\"size\":1,\"blobId\":\"x\"}"), TERN_BAD_FORMAT, "blobId");
    refused(LISTING("{\"rfilename\":\"a\",\"size\":1,\"lfs\":{\"sha256\":\"" A40 "\"}}"), TERN_BAD_FORMAT, "SHA-256");
    refused(LISTING("{\"size\":1,\"blobId\":\"" A40 "\"}"), TERN_BAD_FORMAT, "rfilename");
    refused(LISTING("{\"size\":1,\"size\":1}"), TERN_BAD_FORMAT, "size");
    refused(LISTING("3"), TERN_BAD_FORMAT, "no object");
    refused("[]", TERN_BAD_FORMAT, "listing");
    refused("{", TERN_BAD_FORMAT, "");
}

// Files of the listing that `tag` means, as "name name", or the error's text.
static const char *chosen(const char *json, const char *tag) {
    static char text[2048];
    struct pull_repo r = {.id = "o/r"};
    struct tern_err err = {0};
    struct str got;
    int first;
    text[0] = 0;
    assert_int_equal(pull_listing_parse(&r, str_from(json), &err), TERN_OK);
    if (pull_choose(&r, str_from(tag), &got, &first, NULL, &err) != TERN_OK) {
        snprintf(text, sizeof text, "%s", err.message);
    } else {
        for (int i = 0; i < r.n; i++)
            if (r.files[i].is_wanted)
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", text[0] ? " " : "", r.files[i].name);
        snprintf(text + strlen(text), sizeof text - strlen(text), " (%.*s)", (int)got.len, got.data);
    }
    pull_repo_release(&r);
    return text;
}

static void test_choose(void **state) {
    (void)state;
    const char *usual =
        LISTING(GIT("README.md") "," LFS("m-Q8_0.gguf") "," LFS("m.Q4_K_M.gguf") "," LFS("mmproj-m-F16.gguf"));
    assert_string_equal(chosen(usual, ""), "m.Q4_K_M.gguf (Q4_K_M)");
    assert_string_equal(chosen(usual, "q8_0"), "m-Q8_0.gguf (Q8_0)");
    assert_string_equal(chosen(usual, "m-Q8_0"), "m-Q8_0.gguf (Q8_0)");
    assert_string_equal(chosen(usual, "m-q8_0.gguf"), "m-Q8_0.gguf (Q8_0)");
    assert_string_equal(chosen(usual, "F16"), "o/r has no ':F16'; there are: Q8_0 (5 B), Q4_K_M (5 B)");
    const char *rare = LISTING(LFS("m-Q2_K.gguf") "," LFS("m-Q3_K.gguf"));
    assert_string_equal(chosen(rare, ""), "o/r has several models; name one as o/r:TAG: Q2_K (5 B), Q3_K (5 B)");
    assert_string_equal(chosen(LISTING(LFS("odd.gguf") "," LFS("m.imatrix.gguf")), ""), "odd.gguf (odd)");
    const char *shards = LISTING(LFS("x/m-Q4_0-00001-of-00002.gguf") "," LFS("x/m-Q4_0-00002-of-00002.gguf") "," LFS(
        "y/m-Q4_0-00002-of-00002.gguf"));
    assert_string_equal(chosen(shards, ""), "x/m-Q4_0-00001-of-00002.gguf x/m-Q4_0-00002-of-00002.gguf (Q4_0)");
    assert_string_equal(chosen(LISTING(LFS("m-Q4_0-00001-of-00003.gguf")), ""),
                        "o/r: 1 of 3 shards of m-Q4_0-00001-of-00003.gguf are listed");
    const char *same = LISTING(LFS("a-Q4_0.gguf") "," LFS("b-Q4_0.gguf"));
    assert_string_equal(chosen(same, "b-Q4_0"), "b-Q4_0.gguf (b-Q4_0)");
    assert_string_equal(chosen(same, "Q4_0"), "o/r has no ':Q4_0'; there are: a-Q4_0 (5 B), b-Q4_0 (5 B)");
    const char *folder =
        LISTING(GIT("config.json") "," LFS("model.safetensors") "," LFS("consolidated.safetensors") "," LFS(
            "pytorch_model.bin") "," GIT("tokenizer.json") "," GIT("sub/x.json") "," GIT("README.md"));
    assert_string_equal(chosen(folder, ""), "config.json model.safetensors tokenizer.json ()");
    assert_string_equal(chosen(folder, "Q4_0"), "o/r has no GGUF files, so no ':Q4_0'; pull it without");
    assert_non_null(strstr(chosen(LISTING(LFS("x.bin")), ""), "pickles"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),   cmocka_unit_test(test_file_names), cmocka_unit_test(test_origins),
        cmocka_unit_test(test_listing), cmocka_unit_test(test_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
