// Rows of a step among sequences: against all ways to share them, and the rules that bound it.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const struct width_costs curve_free = {.n_rows = 2, .n_ctx = 1, .rows = {1, 64}, .verify = {{1, 1}}};
static const struct width_costs curve_some = {
    .n_rows = 4, .n_ctx = 1, .rows = {1, 8, 16, 64}, .verify = {{1, 1.2f, 2, 8}}};
static const struct width_costs curve_dear = {.n_rows = 2, .n_ctx = 1, .rows = {1, 64}, .verify = {{1, 64}}};

#define N_MAX 5
static uint64_t random_state = 7;
static float random_unit(void) {
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(random_state >> 40) / (float)(1 << 24);
}

// Acceptances that fall.
static void tokens_draw(float tokens[N_MAX + 1]) {
    float p = 0.3f + 0.7f * random_unit();
    tokens[0] = 1;
    for (int k = 1; k <= N_MAX; k++) {
        tokens[k] = tokens[k - 1] + p;
        p *= 0.4f + 0.6f * random_unit();
    }
}

static double rate_of(const struct width_costs *c, const struct share_seq *seqs, const int n[3]) {
    double tokens = 3, cost = 0;
    int rows = 3;
    for (int i = 0; i < 3; i++) {
        tokens += (double)(seqs[i].tokens[n[i]] - 1);
        if (n[i] > 0) cost += (double)(seqs[i].draft + seqs[i].draft_node * (float)n[i]);
        rows += n[i];
    }
    cost += (double)width_cost_verify(c, rows, 0);
    return rows > 3 && cost > (double)(SHARE_STRETCH * width_cost_verify(c, 3, 0)) ? 0 : tokens / cost;
}

// The best of all shares, by trying them: where drafts cost nothing the result is that one, else nearly.
static void test_best(void **state) {
    (void)state;
    const struct width_costs *curves[] = {&curve_free, &curve_some, &curve_dear};
    int n_drafted = 0, n_near = 0;
    double worst = 1, sum = 0;
    for (int trial = 0; trial < 300; trial++) {
        const struct width_costs *c = curves[trial % 3];
        float tokens[3][N_MAX + 1];
        struct share_seq seqs[3];
        bool costs_draft = trial % 2;
        for (int i = 0; i < 3; i++) {
            tokens_draw(tokens[i]);
            seqs[i] = (struct share_seq){
                .tokens = tokens[i], .n_max = 1 + (int)(random_unit() * N_MAX), .draft = costs_draft ? 0.1f : 0};
        }
        double best = 0;
        for (int a = 0; a <= seqs[0].n_max; a++)
            for (int b = 0; b <= seqs[1].n_max; b++)
                for (int d = 0; d <= seqs[2].n_max; d++) best = MAX(best, rate_of(c, seqs, (int[3]){a, b, d}));
        double gain = share_rows(c, 0, seqs, 3, 3, 64), plain = rate_of(c, seqs, (int[3]){0, 0, 0});
        double got = rate_of(c, seqs, (int[3]){seqs[0].n, seqs[1].n, seqs[2].n});
        assert_true(fabs(got / plain - gain) < 1e-5 * gain);
        n_drafted += gain > 1;
        if (best < plain * (double)WIDTH_GAIN_MIN)
            assert_true(gain == 1);
        else if (!costs_draft)
            assert_true(fabs(got - best) < 1e-5 * best);
        else
            worst = MIN(worst, got / best), sum += got / best, n_near++;
    }
    print_message("drafts that cost: %.3f of the best at least, %.4f on average of %d\n", worst, sum / n_near, n_near);
    assert_true(worst > 0.9 && sum / n_near > 0.99);
    assert_true(n_drafted > 100 && n_drafted < 250);
}

// A full step has no room, and a row that costs what it costs alone is worth nothing.
static void test_bounds(void **state) {
    (void)state;
    static const float sure[] = {1, 2, 3, 4, 5, 6}, weak[] = {1, 1.1f, 1.15f, 1.18f, 1.2f, 1.21f};
    struct share_seq seqs[TREE_NODES_MAX];
    for (int i = 0; i < TREE_NODES_MAX; i++) seqs[i] = (struct share_seq){.tokens = sure, .n_max = N_MAX};
    assert_true(share_rows(&curve_free, 0, seqs, TREE_NODES_MAX, TREE_NODES_MAX, TREE_NODES_MAX) == 1);
    for (int i = 0; i < TREE_NODES_MAX; i++) assert_int_equal(seqs[i].n, 0);
    assert_true(share_rows(&curve_free, 0, seqs, 60, 60, 64) > 1);
    int sum = 0;
    for (int i = 0; i < 60; i++) sum += seqs[i].n;
    assert_int_equal(sum, 4);
    assert_true(share_rows(&curve_dear, 0, seqs, 4, 4, 64) == 1);
    // Rows go to the one that is likely to use them, not beyond what the others can wait.
    struct share_seq two[] = {{.tokens = weak, .n_max = N_MAX}, {.tokens = sure, .n_max = N_MAX}};
    assert_true(share_rows(&curve_some, 0, two, 2, 2, 64) > 1);
    assert_int_equal(two[0].n, 0);
    assert_int_equal(two[1].n, N_MAX);
    static float long_sure[TREE_NODES_MAX];
    for (int k = 0; k < TREE_NODES_MAX; k++) long_sure[k] = 1 + (float)k;
    two[1] = (struct share_seq){.tokens = long_sure, .n_max = TREE_NODES_MAX - 1};
    share_rows(&curve_some, 0, two, 2, 2, 64);
    int rows = 2 + two[0].n + two[1].n;
    float plain = width_cost_verify(&curve_some, 2, 0);
    assert_true(width_cost_verify(&curve_some, rows, 0) <= SHARE_STRETCH * plain);
    assert_true(width_cost_verify(&curve_some, rows + 1, 0) > SHARE_STRETCH * plain);
    // A dear draft is not made for one sequence, while the other needs none.
    two[0] = (struct share_seq){.tokens = sure, .n_max = N_MAX, .draft = 10};
    two[1] = (struct share_seq){.tokens = sure, .n_max = N_MAX};
    assert_true(share_rows(&curve_free, 0, two, 2, 2, 64) > 1);
    assert_int_equal(two[0].n, 0);
    assert_int_equal(two[1].n, N_MAX);
}

// What is doubted about wide steps is held against those with drafts, not against plain ones of many sequences.
static void test_doubt(void **state) {
    (void)state;
    static const float weak[] = {1, 1.2f};
    struct width_costs doubted = curve_free;
    struct share_seq seqs[4];
    doubted.verify[0][0] = doubted.verify[0][1] = 1.25f;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 4; i++) seqs[i] = (struct share_seq){.tokens = weak, .n_max = 1};
        doubted.doubt = k ? 1.25f : 0;
        double gain = share_rows(&doubted, 0, seqs, 4, 4, 64);
        assert_true(k ? gain == 1 : fabs(gain - 1.2) < 1e-5);
    }
    assert_true(fabsf(width_cost_plain(&doubted, 4, 0) - 1) < 1e-5f);
    assert_true(fabsf(width_cost_plain(&doubted, 1, 0) - 1.25f) < 1e-5f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_best), cmocka_unit_test(test_bounds),
                                       cmocka_unit_test(test_doubt)};
    return cmocka_run_group_tests_name("share", tests, NULL, NULL);
}
