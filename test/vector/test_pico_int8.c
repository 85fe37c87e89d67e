// pico in the int8 class (activations in 8 bits, the default) against the float32 reference.
//
// "Logit error" of a prompt: root mean square difference over the 320 logits that golden.json stores of its last row.
// test/data/pico/int8.json holds those of the scalar instruction set, fixed when it was written (run this program with
// the argument `reference` to print them): a kernel may not be worse than twice that. The class's logit error is their
// root mean square over the prompts.
//
// Greedy tokens: a position whose stored gap between first and second logit is below 4 times the class's logit error is
// a near tie, which may fall either way. Two tests:
//   free      decoding on its own tokens, each prompt equals the reference up to its first near tie
//   forced    behind the reference's tokens every position clear of a near tie equals; at least 400 of the 512 must be
// The gaps of the 8 prompts end the free runs after 195 positions. A run that is given the reference's token behind a
// near tie and runs free elsewhere sees the same inputs as the forced one: the forced test is the free test begun anew
// behind every near tie.
#include "base/base.h"
#include "../common/json_tree.h"
#include "golden_file.h"
#include "model_runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define WORSE_MAX 2.0
#define GAP_ERRORS 4.0
#define FREE_MIN 195
#define FORCED_MIN 400
#define FREE_MIN_SHORT 42 // of SHORT_PROMPT
#define FORCED_MIN_SHORT 50
#define SHORT_PROMPT 2

static struct golden *golden;
static double reference[GOLDEN_PROMPTS_MAX], class_error;
static char reference_bits[65]; // SHA-256 of SHORT_PROMPT's last logits, as little-endian floats

static void runner_open_int8(struct runner *r, const char *isa) {
    const struct runner_options o = {.path = TEST_MODELS "/pico.gguf",
                                     .isa = isa,
                                     .numerics = PROG_CLASS_INT8,
                                     .kv_type = OP_KV_F16,
                                     .window = 256,
                                     .n_ctx = 512,
                                     .n_threads = 2};
    runner_open(r, &o);
}

static double prompt_error(struct runner *r, const struct golden_prompt *p, double *max) {
    double sum = 0;
    *max = 0;
    runner_restart(r);
    for (int at = 0, n = 0; at < p->n_ids; at += n) {
        n = MIN(r->window, p->n_ids - at);
        runner_step(r, p->ids + at, n, at + n == p->n_ids);
    }
    for (int i = 0; i < p->n_logits; i++) {
        double d = (double)runner_logits(r, 0)[p->logit_ids[i]] - p->logits[i];
        sum += d * d;
        *max = fmax(*max, fabs(d));
    }
    return sqrt(sum / p->n_logits);
}

static bool near_tie(const struct golden_prompt *p, int i) { return p->gaps[i] < GAP_ERRORS * class_error; }

static int32_t greedy_token(const struct runner *r, int row) {
    float max;
    return op_argmax(runner_logits(r, row), r->model->hyper.n_vocab_used, &max);
}

// Behind the prompt: token by token until the first near tie; returns how many were compared.
static int free_count(struct runner *r, const struct golden_prompt *p) {
    int n = 0;
    for (; n < p->n_greedy && !near_tie(p, n); n++) {
        int32_t id = greedy_token(r, 0);
        if (id != p->greedy[n])
            fail_msg("%s: token %d of the free run is %d, expected %d (gap %.3g)", p->name, n, id, p->greedy[n],
                     p->gaps[n]);
        runner_step(r, &id, 1, 1);
    }
    return n;
}

// Behind the prompt: with the reference's tokens as input; returns how many positions were clear of a near tie.
static int forced_count(struct runner *r, const struct golden_prompt *p, int *n_same) {
    int n_compared = 0, n = p->n_greedy;
    int32_t ids[GOLDEN_GREEDY_MAX] = {greedy_token(r, 0)};
    runner_step(r, p->greedy, n - 1, n - 1);
    for (int i = 1; i < n; i++) ids[i] = greedy_token(r, i - 1);
    for (int i = 0; i < n; i++) {
        *n_same += ids[i] == p->greedy[i];
        if (near_tie(p, i)) continue;
        n_compared++;
        if (ids[i] != p->greedy[i])
            fail_msg("%s: greedy token %d is %d, expected %d, though the gap is %.3g and the class's logit error %.3g",
                     p->name, i, ids[i], p->greedy[i], p->gaps[i], class_error);
    }
    return n_compared;
}

static void test_errors_and_greedy(void **state) {
    (void)state;
    struct runner r;
    int n_all = 0, n_forced = 0, n_same = 0, n_free = 0;
    bool is_short = env_get("TERN_TEST_SHORT") != NULL; // one prompt only
    runner_open_int8(&r, NULL);
    for (int i = 0; i < golden->n_prompts; i++) {
        if (is_short && i != SHORT_PROMPT) continue;
        const struct golden_prompt *p = &golden->prompts[i];
        double max, error = prompt_error(&r, p, &max);
        if (!(error <= WORSE_MAX * reference[i]))
            fail_msg("%s: logit error %.4f, the scalar reference has %.4f", p->name, error, reference[i]);
        n_all += p->n_greedy;
        n_forced += forced_count(&r, p, &n_same);
        prompt_error(&r, p, &max);
        int n = free_count(&r, p);
        n_free += n;
        print_message("%-18s %-12s logit error %.4f (scalar %.4f), largest %.3f; free run of %d tokens equal\n",
                      p->name, r.caps.isa, error, reference[i], max, n);
    }
    print_message("greedy tokens: free %d equal, each prompt up to its first near tie; forced %d of %d lie clear of a "
                  "near tie and are equal, %d equal in all\n",
                  n_free, n_forced, n_all, n_same);
    assert_true(n_free >= (is_short ? FREE_MIN_SHORT : FREE_MIN));
    assert_true(n_forced >= (is_short ? FORCED_MIN_SHORT : FORCED_MIN));
    runner_close(&r);
}

static void bits_hash(const float *logits, int n, char hex[65]) {
    struct sha256 hash;
    uint8_t digest[32];
    sha256_init(&hash);
    sha256_update(&hash, logits, (size_t)n * sizeof *logits);
    sha256_final(&hash, digest);
    sha256_hex(digest, hex);
}

// The same bits on every instruction set, scalar included, and on every machine: the file holds them as a hash.
static void test_isas_equal(void **state) {
    (void)state;
    const struct golden_prompt *p = &golden->prompts[SHORT_PROMPT];
    char seen[32] = "";
    bool tells_error = true;
    for (int i = 0; runner_isas[i]; i++) {
        struct runner r;
        runner_open_int8(&r, runner_isas[i]);
        char bits[65];
        if (strcmp(seen, r.caps.isa) != 0) {
            double max, error = prompt_error(&r, p, &max);
            snprintf(seen, sizeof seen, "%s", r.caps.isa);
            // What the file says must be what the scalar code does.
            if (tells_error) assert_true(fabs(error - reference[SHORT_PROMPT]) <= 0.02 * reference[SHORT_PROMPT]);
            tells_error = false;
            bits_hash(runner_logits(&r, 0), r.model->hyper.n_vocab, bits);
            print_message("%-12s %s\n", seen, bits);
            if (strcmp(bits, reference_bits) != 0) fail_msg("%s: other bits than %s", seen, reference_bits);
        }
        runner_close(&r);
    }
}

static void reference_read(void) {
    struct json_file f;
    double sum = 0;
    int n = 0;
    json_file_read(&f, TEST_DATA "/pico/int8.json");
    JSON_EACH(error, json_get(f.root, "logit_error")) {
        assert_true(n < golden->n_prompts);
        reference[n++] = error->number;
        sum += error->number * error->number;
    }
    assert_int_equal(n, golden->n_prompts);
    struct str bits = json_get(f.root, "bits")->text;
    assert_int_equal(bits.len, sizeof reference_bits - 1);
    memcpy(reference_bits, bits.data, bits.len);
    json_file_release(&f);
    class_error = sqrt(sum / golden->n_prompts);
    assert_true(class_error > 0);
}

static int setup(void **state) {
    (void)state;
    golden = golden_read(TEST_DATA "/pico/golden.json");
    reference_read();
    return 0;
}
static int teardown(void **state) {
    (void)state;
    golden_free(golden);
    return 0;
}

static void test_reference_print(void **state) {
    (void)state;
    struct runner r;
    golden = golden_read(TEST_DATA "/pico/golden.json");
    runner_open_int8(&r, "scalar");
    printf("{\"isa\": \"%s\", \"logit_error\": [", r.caps.isa);
    for (int i = 0; i < golden->n_prompts; i++) {
        double max;
        printf("%s%.6f", i ? ", " : "", prompt_error(&r, &golden->prompts[i], &max));
        if (i == SHORT_PROMPT) bits_hash(runner_logits(&r, 0), r.model->hyper.n_vocab, reference_bits);
    }
    printf("], \"bits\": \"%s\"}\n", reference_bits);
    runner_close(&r);
    golden_free(golden);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_and_greedy),
        cmocka_unit_test(test_isas_equal),
    };
    const struct CMUnitTest print[] = {cmocka_unit_test(test_reference_print)};
    if (argc > 1 && strcmp(argv[1], "reference") == 0)
        return cmocka_run_group_tests_name("the scalar reference's errors", print, NULL, NULL);
    return cmocka_run_group_tests_name("pico, int8 class", tests, setup, teardown);
}
