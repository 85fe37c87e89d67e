// Sampling through trees is sampling from the model: 200,000 tokens of a random model over a small vocabulary pass a
// chi-square test against its exact distribution, at three temperatures, while rounds accept several drafted tokens and
// often siblings that were not the drafter's first. Rules of acceptance that are broken on purpose fail the same test.
// Plain sampling with the same seed gives the same tokens.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define VOCAB 12
#define SAMPLES 200000
#define SAMPLES_SHORT 40000 // where $TERN_TEST_SHORT is set: slow builds
#define NODES 17
#define DEPTHS 8
#define SPREAD 1.2f      // of the model's logits
#define DRAFT_ERROR 0.8f // of the drafter's
#define ACCEPTED_MIN 2.0
#define SIBLINGS_MIN 0.1
// VOCAB * (VOCAB - 1) degrees of freedom: mean 132, standard deviation 16.2. The limit is five of them above; the
// right rule gave 113 to 123, the broken ones 1,163 and more.
#define CHI_MAX 213.0

static int n_samples = SAMPLES;
static float model[VOCAB][VOCAB], drafter[VOCAB][VOCAB]; // logits behind each token

static float random_value(uint64_t *state) { // -1 … 1
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((int64_t)(*state >> 40) - (1 << 23)) * 0x1p-23f;
}

static void tables_make(void) {
    uint64_t state = 77;
    for (int i = 0; i < VOCAB; i++)
        for (int j = 0; j < VOCAB; j++) {
            model[i][j] = SPREAD * 1.7f * random_value(&state);
            drafter[i][j] = model[i][j] + DRAFT_ERROR * random_value(&state);
        }
}

static void bias_of(void *arg, const struct token_tree *t, int node, const int32_t *ids, int n, float *out) {
    (void)arg;
    for (int i = 0; i < n; i++) out[i] = drafter[t->nodes[node].token][ids ? ids[i] : i];
}

// What a rule of acceptance works with.
struct rule_input {
    struct sampler *sampler;
    int64_t pos;
    float temperature;
    uint64_t seed;
};

static bool rule_right(void *arg, const struct token_tree *t, int node, int32_t *token) {
    struct rule_input *r = arg;
    struct accept_sampled a = {.sampler = r->sampler, .logits = model[0], .stride = 0, .pos = r->pos, .end = -1};
    a.logits = model[t->nodes[node].token];
    return accept_choose_sampled(&a, t, node, token);
}

static double share_of(const struct rule_input *r, int32_t prev, int32_t token) {
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += exp((double)(model[prev][i] / r->temperature));
    return exp((double)(model[prev][token] / r->temperature)) / sum;
}

// Broken: a drafted token that the model finds likely enough is taken without asking the noise.
static bool rule_eager(void *arg, const struct token_tree *t, int node, int32_t *token) {
    struct rule_input *r = arg;
    for (int i = node + 1; i < t->n; i++)
        if (t->nodes[i].parent == node && share_of(r, t->nodes[node].token, t->nodes[i].token) > 0.15) {
            *token = t->nodes[i].token;
            return true;
        }
    return rule_right(arg, t, node, token);
}

// Broken: every node of a round chooses with the root's noise.
static bool rule_one_noise(void *arg, const struct token_tree *t, int node, int32_t *token) {
    struct rule_input *r = arg;
    *token = sampler_pick(r->sampler, model[t->nodes[node].token], r->pos, NULL).id;
    return true;
}

// Broken: siblings are tried one after another, each with its whole share instead of its share of what is left.
static bool rule_no_residual(void *arg, const struct token_tree *t, int node, int32_t *token) {
    struct rule_input *r = arg;
    int64_t pos = r->pos + t->nodes[node].depth;
    for (int i = node + 1; i < t->n; i++) {
        if (t->nodes[i].parent != node) continue;
        double u = exp(-exp(-(double)sampler_gumbel(r->seed + 1, pos, t->nodes[i].token)));
        if (u >= share_of(r, t->nodes[node].token, t->nodes[i].token)) continue;
        *token = t->nodes[i].token;
        return true;
    }
    return rule_right(arg, t, node, token);
}

struct outcome {
    double chi, accepted, siblings; // per round: drafted tokens accepted, rounds with one that was not first
    int32_t first[1000];
};

static void counts_judge(const struct rule_input *r, int64_t counts[VOCAB][VOCAB], struct outcome *out) {
    out->chi = 0;
    for (int p = 0; p < VOCAB; p++) {
        double n = 0;
        for (int t = 0; t < VOCAB; t++) n += (double)counts[p][t];
        for (int t = 0; t < VOCAB && n > 0; t++) {
            double want = n * share_of(r, p, t), d = (double)counts[p][t] - want;
            out->chi += d * d / want;
        }
    }
}

static void tokens_run(float temperature, uint64_t seed, accept_choose_fn *rule, struct outcome *out) {
    static const float base[DEPTHS][VOCAB]; // the drafter knows only what the token before says
    int64_t counts[VOCAB][VOCAB] = {{0}}, n = 0, rounds = 0, accepted = 0, siblings = 0;
    struct sampler_params sp;
    struct rule_input r = {.temperature = temperature, .seed = seed};
    struct tree_builder *builder = NULL;
    struct tern_err err = {0};
    sampler_params_default(&sp);
    sp.temperature = temperature;
    sp.seed = seed;
    assert_int_equal(sampler_create(&r.sampler, &sp, VOCAB, VOCAB, &err), TERN_OK);
    assert_int_equal(tree_builder_create(&builder, VOCAB, true, &err), TERN_OK);
    for (int32_t prev = 0; n < n_samples; rounds++) {
        struct token_tree t;
        struct accept_path p;
        struct tree_source s = {.n_depths = DEPTHS,
                                .n_vocab = VOCAB,
                                .n_used = VOCAB,
                                .base = base[0],
                                .bias = bias_of,
                                .exact = true,
                                .noise = {.temperature = temperature, .seed = seed, .pos = n, .top_p = 1}};
        token_tree_init(&t, prev);
        tree_build(builder, TREE_CONDITIONED, &s, NODES, &t);
        r.pos = n;
        accept_walk(&t, rule, &r, &p);
        bool other = false;
        for (int i = 1; i <= p.n; i++) {
            int32_t token = i < p.n ? t.nodes[p.nodes[i]].token : p.bonus;
            counts[prev][token]++;
            if (n < (int64_t)ARRAY_LEN(out->first)) out->first[n] = token;
            prev = token;
            n++;
            other = other || (i < p.n && t.nodes[p.nodes[i]].rank > 0);
        }
        accepted += p.n - 1;
        siblings += other;
    }
    counts_judge(&r, counts, out);
    out->accepted = (double)accepted / (double)rounds;
    out->siblings = (double)siblings / (double)rounds;
    tree_builder_free(builder);
    sampler_free(r.sampler);
}

static const float temperatures[] = {0.7f, 1.0f, 1.5f};

static void test_right(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(temperatures); i++) {
        struct outcome o;
        tokens_run(temperatures[i], 10 + i, rule_right, &o);
        print_message("T %.1f: chi-square %.1f, %.2f accepted a round, a later sibling in %.1f %%\n",
                      (double)temperatures[i], o.chi, o.accepted, 100 * o.siblings);
        assert_true(o.chi < CHI_MAX);
        assert_true(o.accepted >= ACCEPTED_MIN && o.siblings >= SIBLINGS_MIN);
    }
}

static void test_broken(void **state) {
    (void)state;
    accept_choose_fn *const rules[] = {rule_eager, rule_one_noise, rule_no_residual};
    for (size_t k = 0; k < ARRAY_LEN(rules); k++)
        for (size_t i = 0; i < ARRAY_LEN(temperatures); i++) {
            struct outcome o;
            tokens_run(temperatures[i], 20 + i, rules[k], &o);
            print_message("broken rule %zu, T %.1f: chi-square %.0f\n", k, (double)temperatures[i], o.chi);
            assert_true(o.chi > CHI_MAX);
        }
}

static void test_same_as_plain(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(temperatures); i++) {
        struct outcome o;
        struct sampler_params sp;
        struct sampler *s = NULL;
        struct tern_err err = {0};
        tokens_run(temperatures[i], 30 + i, rule_right, &o);
        sampler_params_default(&sp);
        sp.temperature = temperatures[i];
        sp.seed = 30 + i;
        assert_int_equal(sampler_create(&s, &sp, VOCAB, VOCAB, &err), TERN_OK);
        int32_t prev = 0;
        for (size_t n = 0; n < ARRAY_LEN(o.first); n++) {
            prev = sampler_pick(s, model[prev], (int64_t)n, NULL).id;
            assert_int_equal(prev, o.first[n]);
        }
        sampler_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_broken),
                                       cmocka_unit_test(test_same_as_plain)};
    tables_make();
    if (env_get("TERN_TEST_SHORT")) n_samples = SAMPLES_SHORT;
    return cmocka_run_group_tests_name("speculative sampling", tests, NULL, NULL);
}
