// pico in the fp32 class against the float32 reference (test/data/pico): prompt ids, residual after each layer, logits,
// and 64 greedy tokens of 8 prompts. The greedy tokens are checked teacher-forced: with the reference's tokens as input
// every row must choose the reference's next one, which is the same as decoding freely and never leaving it.
#include "base/base.h"
#include "golden_file.h"
#include "model_runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define ERROR_MAX 1e-4
#define ISA_BEST NULL
#define SHORT_PROMPT 2 // 16 tokens; what slow arithmetic is tried on
#define SHORT_GREEDY 6
#define SHORT_IDS_MAX 64 // with TERN_TEST_SHORT=1 (sanitizers, emulators) longer prompts are left out

static struct golden *golden;

static void runner_open_fp32(struct runner *r, const char *isa) {
    const struct runner_options o = {.path = TEST_MODELS "/pico.gguf",
                                     .isa = isa,
                                     .numerics = PROG_CLASS_FP32,
                                     .kv_type = OP_KV_F32,
                                     .window = 256,
                                     .n_ctx = 512,
                                     .n_threads = 2,
                                     .residuals = true};
    runner_open(r, &o);
}

// Runs a whole prompt; returns the number of rows of its last step.
static int prompt_run(struct runner *r, const struct golden_prompt *p) {
    int n = 0;
    runner_restart(r);
    for (int at = 0; at < p->n_ids; at += n) {
        n = MIN(r->window, p->n_ids - at);
        runner_step(r, p->ids + at, n, at + n == p->n_ids);
    }
    return n;
}

// The larger of two errors; not a number is larger than any.
static double larger(double a, double b) { return a > b || isnan(a) ? a : b; }

// Largest difference over the stored logits, relative to the largest of them.
static double logits_error(const struct golden_prompt *p, const float *logits) {
    double error = 0, max = 0;
    for (int i = 0; i < p->n_logits; i++) {
        error = larger(fabs((double)logits[p->logit_ids[i]] - p->logits[i]), error);
        max = fmax(max, fabs(p->logits[i]));
    }
    return error / max;
}

static double logsumexp_of(const float *x, int n) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) max = fmax(max, (double)x[i]);
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - max);
    return max + log(sum);
}

// Largest difference of what is stored of the row, each relative to its natural size: single values to the largest
// stored one or the row's root mean square, the sum to the sum of absolute values.
static double residual_error(const struct golden_residual *want, const float *x, int n) {
    double sum = 0, sum_abs = 0, sum_sq = 0, first = 0, size = sqrt(want->sum_sq / n);
    for (int i = 0; i < n; i++) {
        sum += (double)x[i];
        sum_abs += fabs((double)x[i]);
        sum_sq += (double)x[i] * (double)x[i];
    }
    for (int i = 0; i < GOLDEN_FIRST; i++) {
        first = larger(fabs((double)x[i] - want->first[i]), first);
        size = fmax(size, fabs(want->first[i]));
    }
    double sums = larger(fabs(sum - want->sum), fabs(sum_abs - want->sum_abs)) / want->sum_abs,
           squares = fabs(sum_sq - want->sum_sq) / want->sum_sq;
    return larger(first / size, larger(sums, squares));
}

static void prompt_compare(struct runner *r, const struct golden_prompt *p) {
    const struct model_hyper *h = &r->model->hyper;
    int last = prompt_run(r, p) - 1;
    double logits = logits_error(p, runner_logits(r, 0)),
           total = fabs(logsumexp_of(runner_logits(r, 0), h->n_vocab) - p->logsumexp) / fabs(p->logsumexp), rows = 0;
    assert_int_equal(p->n_residuals, h->n_layers);
    for (int i = 0; i < h->n_layers; i++) {
        double error = residual_error(&p->residuals[i], runner_residual(r, last, i), h->n_embd);
        if (!(error <= ERROR_MAX)) fail_msg("%s: residual after layer %d is off by %.3g", p->name, i, error);
        rows = fmax(rows, error);
    }
    print_message("%-18s %-12s residuals %.1e, logits %.1e, log-sum-exp %.1e\n", p->name, r->caps.isa, rows, logits,
                  total);
    if (!(logits <= ERROR_MAX)) fail_msg("%s: logits are off by %.3g", p->name, logits);
    if (!(total <= ERROR_MAX)) fail_msg("%s: log-sum-exp is off by %.3g", p->name, total);
}

// Behind prompt_run: every one of n greedy tokens.
static void greedy_compare(struct runner *r, const struct golden_prompt *p, int n) {
    int n_vocab = r->model->hyper.n_vocab_used;
    float max;
    assert_int_equal(op_argmax(runner_logits(r, 0), n_vocab, &max), p->greedy[0]);
    runner_step(r, p->greedy, n - 1, n - 1);
    for (int i = 1; i < n; i++) {
        int32_t id = op_argmax(runner_logits(r, i - 1), n_vocab, &max);
        if (id != p->greedy[i])
            fail_msg("%s: greedy token %d is %d, expected %d (gap %.3g)", p->name, i, id, p->greedy[i], p->gaps[i]);
    }
}

static void test_best_isa(void **state) {
    (void)state;
    struct runner r;
    int n = 0;
    runner_open_fp32(&r, ISA_BEST);
    bool is_short = env_get("TERN_TEST_SHORT") != NULL;
    for (int i = 0; i < golden->n_prompts; i++) {
        if (is_short && golden->prompts[i].n_ids > SHORT_IDS_MAX) continue;
        prompt_compare(&r, &golden->prompts[i]);
        greedy_compare(&r, &golden->prompts[i], golden->prompts[i].n_greedy);
        n += golden->prompts[i].n_greedy;
    }
    print_message("greedy tokens: %d equal\n", n);
    assert_int_equal(n, is_short ? 6 * 64 : 512);
    runner_close(&r);
}

static void test_every_isa_short(void **state) {
    (void)state;
    const struct golden_prompt *p = &golden->prompts[SHORT_PROMPT];
    char seen[32] = "";
    for (int i = 0; runner_isas[i]; i++) {
        struct runner r;
        runner_open_fp32(&r, runner_isas[i]);
        if (strcmp(seen, r.caps.isa) != 0) {
            snprintf(seen, sizeof seen, "%s", r.caps.isa);
            prompt_compare(&r, p);
            greedy_compare(&r, p, SHORT_GREEDY);
        }
        runner_close(&r);
    }
}

static int setup(void **state) {
    (void)state;
    golden = golden_read(TEST_DATA "/pico/golden.json");
    return 0;
}
static int teardown(void **state) {
    (void)state;
    golden_free(golden);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_isa),
        cmocka_unit_test(test_every_isa_short),
    };
    return cmocka_run_group_tests_name("pico, fp32 class", tests, setup, teardown);
}
