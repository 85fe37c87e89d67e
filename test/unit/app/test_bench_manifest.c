// peers.json: what is read, each kind of fault with its own message; command lines of peers and their outputs.
#include "base/base.h"
#include <math.h>
#include <setjmp.h>
#include <cmocka.h>
#include "app/bench/bench_manifest.h"

static const char sound[] =
    "{\"models\": [{\"name\": \"m\", \"format\": \"Q4_0\", \"file\": \"m-q4.gguf\"},"
    " {\"name\": \"m\", \"format\": \"Q8_0\", \"file\": \"m-q8.gguf\"}],"
    "\"peers\": [{\"name\": \"llama.cpp\", \"kind\": \"llama-bench\", \"command\": [\"bin/llama-bench\", \"-fa\", "
    "\"1\"]},"
    " {\"name\": \"ik\", \"kind\": \"ik-bench\", \"command\": [\"ik\"], \"limit_s\": 5},"
    " {\"name\": \"ov\", \"kind\": \"command\", \"models\": {\"m Q8_0\": \"dir\"},"
    "  \"command\": [\"py\", \"-m{model}\", \"{threads}\", \"{prompt}\", \"{answer}\", \"{depth}\", \"{other}\"]}]}";

static void test_read(void **state) {
    (void)state;
    static struct manifest m;
    struct tern_err err;
    assert_int_equal(manifest_parse(&m, str_from(sound), "peers.json", &err), TERN_OK);
    assert_int_equal(m.n_models, 2);
    assert_int_equal(m.n_peers, 3);
    assert_int_equal(manifest_model_find(&m, STR("m"), STR("Q8_0")), 1);
    assert_int_equal(manifest_model_find(&m, STR("m"), STR("Q5_0")), -1);
    assert_string_equal(m.peers[0].files[1], "m-q8.gguf"); // all of ours
    assert_null(m.peers[2].files[0]);
    assert_string_equal(m.peers[2].files[1], "dir");
    assert_int_equal(m.peers[0].limit_s, PEER_LIMIT_S_DEFAULT);
    assert_int_equal(m.peers[1].limit_s, 5);
    manifest_release(&m);
    manifest_release(&m); // twice does nothing
}

static void refused(const char *from, const char *to, const char *message) {
    static struct manifest m;
    struct tern_err err = {0};
    struct buf text;
    buf_init(&text, 1 << 16);
    size_t at = str_find(str_from(sound), str_from(from), 0);
    assert_true(at != (size_t)-1);
    buf_put(&text, sound, at);
    buf_puts(&text, to);
    buf_puts(&text, sound + at + strlen(from));
    assert_true(manifest_parse(&m, buf_str(&text), "peers.json", &err) != TERN_OK);
    if (!strstr(err.message, message)) fail_msg("'%s' has no '%s'", err.message, message);
    assert_non_null(strstr(err.message, "peers.json"));
    assert_int_equal(m.n_models, 0); // nothing is left of it
    buf_release(&text);
}

static void test_refuse(void **state) {
    (void)state;
    refused("\"m-q4.gguf\"}", "\"m-q4.gguf\", \"size\": 1}", "unknown key 'size'");
    refused("\"m-q4.gguf\"", "\"\"", "empty");
    refused("\"name\": \"m\"", "\"name\": \"../m\"", "a model's name wants");
    refused("\"Q8_0\", \"file\"", "\"Q4_0\", \"file\"", "listed twice");
    refused(", \"file\": \"m-q8.gguf\"", "", "a model wants name, format and file");
    refused("\"kind\": \"ik-bench\"", "\"kind\": \"magic\"", "not 'magic'");
    refused("\"name\": \"ik\"", "\"name\": \"tern\"", "that is us");
    refused("\"name\": \"ik\"", "\"name\": \"llama.cpp\"", "listed twice");
    refused("[\"ik\"]", "[]", "the program first");
    refused("[\"ik\"]", "\"ik\"", "a peer's command");
    refused("[\"ik\"]", "[\"ik\", 5]", "list of texts");
    refused("\"limit_s\": 5", "\"limit_s\": 0", "limit_s wants");
    refused("\"m Q8_0\": \"dir\"", "\"m Q9\": \"dir\"", "unknown key 'm Q9'");
    refused("\"kind\": \"ik-bench\", ", "", "a peer wants name, kind and command");
    refused("\"models\": [", "\"mdels\": [", "unknown key 'mdels'");
    refused("}]}", "}]} x", "peers.json");
    refused("\"limit_s\": 5", "\"limit_s\": 5, \"limit_s\": 6", "peers.json");
    static struct manifest m;
    struct tern_err err;
    assert_int_equal(manifest_parse(&m, STR("{\"models\": [], \"peers\": []}"), "p", &err), TERN_BAD_FORMAT);
    assert_non_null(strstr(err.message, "no models are listed"));
    assert_int_equal(manifest_parse(&m, STR(""), "p", &err), TERN_BAD_FORMAT);
    assert_int_equal(manifest_parse(&m, STR("{\"peers\": 3}"), "p", NULL), TERN_BAD_FORMAT);
}

static void command_is(const struct manifest *m, int peer, int model, struct bench_test t, const char *expected) {
    const char *words[PEER_ARGV_MAX];
    struct arena a;
    struct buf line;
    arena_init(&a, 0);
    buf_init(&line, 4096);
    int n = peer_command_make(&m->peers[peer], model, &t, &a, words);
    assert_true(n > 0);
    assert_null(words[n]);
    for (int i = 0; i < n; i++) buf_putf(&line, "%s%s", i ? " " : "", words[i]);
    assert_string_equal(line.data, expected);
    buf_release(&line);
    arena_release(&a);
}

static void test_commands(void **state) {
    (void)state;
    static struct manifest m;
    assert_int_equal(manifest_parse(&m, str_from(sound), "p", NULL), TERN_OK);
    struct bench_test decode = {PHASE_DECODE, 64, 2048, 2}, prefill = {PHASE_PREFILL, 512, 0, 1};
    command_is(&m, 0, 0, decode,
               "bin/llama-bench -fa 1 -m m-q4.gguf -o json -r 1 --no-warmup -t 2 -p 0 -n 8,64 -d 2048");
    command_is(&m, 0, 1, prefill, "bin/llama-bench -fa 1 -m m-q8.gguf -o json -r 1 --no-warmup -t 1 -p 16,512 -n 0");
    command_is(&m, 1, 0, decode, "ik -m m-q4.gguf -o json -r 1 -w 0 -t 2 -p 0 -n 8 -gp 2048,64");
    command_is(&m, 1, 0, (struct bench_test){PHASE_DECODE, 64, 0, 2},
               "ik -m m-q4.gguf -o json -r 1 -w 0 -t 2 -p 0 -n 8,64");
    command_is(&m, 2, 1, decode, "py -mdir 2 0 64 2048 {other}");
    command_is(&m, 2, 1, prefill, "py -mdir 1 512 0 0 {other}");
    manifest_release(&m);
}

static void test_outputs(void **state) {
    (void)state;
    struct tern_err err;
    double tps;
    struct bench_test decode = {PHASE_DECODE, 64, 0, 2}, deep = {PHASE_DECODE, 64, 2048, 2},
                      prefill = {PHASE_PREFILL, 512, 0, 2};
    static const char list[] =
        "[{\"n_prompt\": 16, \"n_gen\": 0, \"avg_ts\": 1.5}, {\"cpu\": {\"n_gen\": 7}, \"n_prompt\": 512, \"n_gen\": "
        "0, "
        "\"avg_ts\": 402.5, \"samples_ts\": [402.5]}, {\"n_prompt\": 0, \"n_gen\": 64, \"avg_ts\": 105.25},"
        " {\"n_prompt\": 2048, \"n_gen\": 64, \"avg_ts\": 72}]\n";
    assert_int_equal(peer_output_parse(PEER_LLAMA_BENCH, &prefill, str_from(list), &tps, &err), TERN_OK);
    assert_true(tps == 402.5);
    assert_int_equal(peer_output_parse(PEER_LLAMA_BENCH, &decode, str_from(list), &tps, &err), TERN_OK);
    assert_true(tps == 105.25);
    assert_int_equal(peer_output_parse(PEER_LLAMA_BENCH, &deep, str_from(list), &tps, &err), TERN_OK); // by -d
    assert_true(tps == 105.25);
    assert_int_equal(peer_output_parse(PEER_IK_BENCH, &deep, str_from(list), &tps, &err), TERN_OK); // by -gp
    assert_true(tps == 72);
    prefill.tokens = 64;
    assert_int_equal(peer_output_parse(PEER_LLAMA_BENCH, &prefill, str_from(list), &tps, &err), TERN_BAD_FORMAT);
    assert_non_null(strstr(err.message, "no speed for this test"));
    assert_int_equal(
        peer_output_parse(PEER_COMMAND, &decode, STR("loading\n{\"tokens_per_s\": 12.5, \"x\": [1]}\n"), &tps, &err),
        TERN_OK);
    assert_true(tps == 12.5);
    assert_int_equal(peer_output_parse(PEER_COMMAND, &decode, STR("{\"tokens_per_s\": 0}"), &tps, &err),
                     TERN_BAD_FORMAT);
    assert_int_equal(peer_output_parse(PEER_COMMAND, &decode, STR("nothing"), &tps, NULL), TERN_BAD_FORMAT);
    assert_int_equal(peer_output_parse(PEER_LLAMA_BENCH, &decode, STR(""), &tps, &err), TERN_BAD_FORMAT);
    assert_int_equal(peer_output_parse(PEER_LLAMA_BENCH, &decode, STR("[{\"n_gen\": \"64\"}]"), &tps, &err),
                     TERN_BAD_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_refuse),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
