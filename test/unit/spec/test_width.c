// The width controller: cost curves, the Dinkelbach step, the figures of published machines, and synthetic streams with
// known acceptance: as good as the best fixed budget, never much worse than plain decoding, awake after a change.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

// ------------------------------------------------------------------------------------------------------------ curves

// Costs in units of a plain step, or ms where a machine is named.
static const struct width_costs curve_flat = {
    .n_rows = 2, .n_ctx = 1, .rows = {1, 64}, .verify = {{1, 1}}, .draft = {0.24f}};
static const struct width_costs curve_cpu = {
    .n_rows = 3, .n_ctx = 1, .rows = {1, 9, 64}, .verify = {{1, 1, 7.04f}}, .draft = {0.35f}};
static const struct width_costs curve_few = { // 8 rows for 1.6, an eighth of the weights drafted
    .n_rows = 4,
    .n_ctx = 1,
    .rows = {1, 8, 16, 64},
    .verify = {{1, 1.6f, 2.8f, 10}},
    .draft = {0.2f}};
static const struct width_costs curve_steep = { // weights in the cache: rows cost nearly what they cost alone
    .n_rows = 2,
    .n_ctx = 1,
    .rows = {1, 64},
    .verify = {{1, 51.4f}},
    .draft = {0.5f}};
static const struct width_costs curve_m4_npu = {.n_rows = 4,
                                                .n_ctx = 1,
                                                .rows = {1, 10, 47, 64},
                                                .verify = {{29.6f, 29.8f, 30.6f, 30.97f}},
                                                .draft = {7.2f},
                                                .host = 2.5f,
                                                .host_plain = 2.5f};
static const struct width_costs curve_m4_gpu = {.n_rows = 4,
                                                .n_ctx = 1,
                                                .rows = {1, 8, 10, 64},
                                                .verify = {{12.9f, 17.6f, 39.9f, 90}},
                                                .windows = true,
                                                .draft = {5.7f},
                                                .host = 2.5f};
static const struct {
    const char *name;
    const struct width_costs *costs;
} curves[] = {{"flat", &curve_flat},   {"cpu", &curve_cpu},       {"few", &curve_few},
              {"steep", &curve_steep}, {"m4 npu", &curve_m4_npu}, {"m4 gpu", &curve_m4_gpu}};

// Tokens per round at budgets 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 46, 48, 63 of parent-conditioned trees (measured with a
// small trained drafter), and streams on which drafting fails.
static const int points[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 46, 48, 63};
static const struct {
    const char *name;
    float tokens[ARRAY_LEN(points)];
} streams[] = {
    {"chat", {1.72f, 2.23f, 2.61f, 2.87f, 3.16f, 3.44f, 3.71f, 3.90f, 4.10f, 4.20f, 4.33f, 4.34f, 4.46f}},
    {"math", {1.52f, 1.82f, 1.97f, 2.10f, 2.28f, 2.39f, 2.49f, 2.54f, 2.61f, 2.69f, 2.77f, 2.79f, 2.82f}},
    {"code", {1.79f, 2.34f, 2.79f, 3.06f, 3.48f, 3.77f, 4.13f, 4.28f, 4.49f, 4.58f, 4.81f, 4.81f, 4.98f}},
    {"tool", {1.92f, 2.81f, 3.60f, 4.23f, 5.47f, 6.25f, 6.91f, 7.00f, 7.00f, 7.00f, 7.00f, 7.00f, 7.19f}},
    {"weak", {1.15f, 1.20f, 1.22f, 1.24f, 1.26f, 1.28f, 1.29f, 1.30f, 1.30f, 1.30f, 1.30f, 1.30f, 1.30f}},
    {"hopeless", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
};
enum { CHAT, MATH, CODE, TOOL, WEAK, HOPELESS };

// One round's path through a full tree: one round in five is bad from the first node on.
static void path_draw(int stream, uint64_t *seed, struct accept_path *p) {
    *p = (struct accept_path){.n = 1};
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    if ((uint32_t)(*seed >> 33) % 5 == 0) return;
    float last = 1;
    int from = 0;
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        float share = (streams[stream].tokens[i] - last) / (float)(points[i] - from) / 0.8f;
        for (int k = from + 1; k <= points[i]; k++) {
            *seed = *seed * 6364136223846793005u + 1442695040888963407u;
            if ((float)(*seed >> 40) * 0x1p-24f < share) p->nodes[p->n++] = (int16_t)k;
        }
        last = streams[stream].tokens[i];
        from = points[i];
    }
}

struct run {
    struct width w;
    uint64_t seed;
    double cost, plain; // so far: spent, and what plain decoding would have
    double over;        // most that was ever spent beyond plain and its allowance, in plain steps
    int64_t n_tokens, n_drafted;
};

static void run_init(struct run *r, const struct width_costs *costs, uint64_t seed) {
    struct tern_err err = {0};
    *r = (struct run){.seed = seed};
    if (width_init(&r->w, costs, NULL, 0, &err) != TERN_OK) fail_msg("%s", err.message);
}

// Returns the path of the round's full tree.
static struct accept_path run_round(struct run *r, int stream, enum width_class text) {
    struct width_input in = {.text = text, .ctx = 100, .budget_max = 63};
    struct width_choice c = width_choose(&r->w, &in);
    struct accept_path full, p;
    path_draw(stream, &r->seed, &full);
    p = full;
    p.n = accept_tokens(&full, c.budget);
    width_observe(&r->w, &in, &c, c.budget, &p, 0);
    double unit = (double)width_cost_round(&r->w.costs, 0, 100);
    r->cost += (double)width_cost_round(&r->w.costs, c.budget, 100);
    r->plain += unit * p.n;
    r->n_tokens += p.n;
    r->n_drafted += c.budget > 0;
    double allowed = (double)(WIDTH_LOSS_START + WIDTH_LOSS_CLASS) * unit + (double)WIDTH_LOSS_MAX * r->plain;
    r->over = MAX(r->over, (r->cost - r->plain - allowed) / unit);
    return full;
}

// Each curve with each stream, one class, from nothing. Measured over 12 seeds (432 runs): at least 0.97 of the best
// fixed budget in all but one (0.958) where that gains more than 6 % or nothing does; at least 0.94 where the gain is
// less, because the allowance may end before what is slightly better has shown itself.
static void best_fixed_check(int c, int s, uint64_t seed) {
    enum { ROUNDS = 3000 };
    struct run r;
    double tokens[TREE_NODES_MAX] = {0}, best = 0;
    run_init(&r, curves[c].costs, seed);
    for (int i = 0; i < ROUNDS; i++) {
        struct accept_path full = run_round(&r, s, WIDTH_PROSE);
        for (int k = 0; k < TREE_NODES_MAX; k++) tokens[k] += accept_tokens(&full, k);
    }
    double plain = 1 / (double)width_cost_round(curves[c].costs, 0, 100);
    for (int k = 0; k < TREE_NODES_MAX; k++)
        best = MAX(best, tokens[k] / ROUNDS / (double)width_cost_round(curves[c].costs, k, 100));
    double share = (double)r.n_tokens / r.cost / best;
    bool marginal = best > plain && best < 1.06 * plain;
    if (share < (marginal ? 0.93 : 0.97) || r.over > 1e-3 || r.cost > 1.01 * r.plain)
        fail_msg("%s, %s, seed %llu: %.3f of the best fixed budget (%.2f of plain), %.2f of plain, %.2f over the bound",
                 curves[c].name, streams[s].name, (unsigned long long)seed, share, best / plain, r.plain / r.cost,
                 r.over);
}

static void test_best_fixed(void **state) {
    (void)state;
    for (int c = 0; c < (int)ARRAY_LEN(curves); c++)
        for (int s = 0; s < (int)ARRAY_LEN(streams); s++)
            for (uint64_t seed = 1; seed <= 2; seed++)
                best_fixed_check(c, s, 1000 * seed + 10 * (uint64_t)c + (uint64_t)s);
}

// Short hopeless answers: the allowance at the start, and no more.
static void test_hopeless_start(void **state) {
    (void)state;
    for (int c = 0; c < (int)ARRAY_LEN(curves); c++) {
        struct run r;
        run_init(&r, curves[c].costs, 3);
        for (int i = 0; i < 100; i++) run_round(&r, HOPELESS, WIDTH_PROSE);
        double unit = (double)width_cost_round(curves[c].costs, 0, 100);
        assert_true(r.cost - r.plain <=
                    (double)(WIDTH_LOSS_START + WIDTH_LOSS_CLASS) * unit + (double)WIDTH_LOSS_MAX * r.plain + 1e-3);
    }
}

// Prose that cannot be drafted and tool calls that can, in turns: each class keeps what it learned.
static void test_classes(void **state) {
    (void)state;
    struct run r;
    run_init(&r, &curve_cpu, 5);
    int64_t drafted_tool = 0, drafted_prose = 0;
    for (int turn = 0; turn < 40; turn++)
        for (int i = 0; i < 60; i++) {
            int64_t before = r.n_drafted;
            run_round(&r, turn % 2 ? TOOL : HOPELESS, turn % 2 ? WIDTH_TOOL : WIDTH_PROSE);
            *(turn % 2 ? &drafted_tool : &drafted_prose) += r.n_drafted - before;
        }
    assert_true(drafted_tool >= 1190);
    assert_true(drafted_prose <= 60); // measured 26 of 1,200
    assert_true(r.over <= 1e-3);
}

// Within one class a hopeless text becomes a good one: nothing latches. A good one that turns hopeless costs little.
static void test_change_within_class(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct run r;
        run_init(&r, &curve_cpu, seed);
        for (int i = 0; i < 2000; i++) run_round(&r, HOPELESS, WIDTH_CODE);
        int waited = 0;
        for (; waited < 3000 && r.w.n_plain > 0; waited++) run_round(&r, TOOL, WIDTH_CODE);
        double cost = r.cost, plain = r.plain;
        for (int i = 0; i < 3000; i++) run_round(&r, TOOL, WIDTH_CODE);
        double gain = (r.plain - plain) / (r.cost - cost);
        if (gain < 3.2) fail_msg("seed %d: %d rounds until a probe, then %.2f of plain", (int)seed, waited, gain);
        cost = r.cost;
        plain = r.plain;
        for (int i = 0; i < 3000; i++) run_round(&r, HOPELESS, WIDTH_CODE);
        double lost = (r.cost - cost) - (r.plain - plain);
        if (lost > 0.02 * 3000) fail_msg("seed %d: lost %.1f plain steps of 3000 after the change", (int)seed, lost);
    }
}

// ------------------------------------------------------------------------------------------------------------ figures

// M4 Pro, published: at 5.59 tokens per 40.3 ms on the neural engine a node pays above 0.003, so the window is filled;
// at 3.74 per 25.8 ms on the GPU the two rows from 8 to 10 would need 1.6 each, so 8 rows are the end.
static void test_published(void **state) {
    (void)state;
    float node = width_break_even(5.59 / 40.3, 29.8, 30.6, 37), pair = width_break_even(3.74 / 25.8, 17.6, 39.9, 2);
    assert_true(fabsf(node - 0.0030f) < 0.0001f);
    assert_true(fabsf(pair - 1.616f) < 0.005f);
    float p[TREE_NODES_MAX], total = 1;
    for (int k = 0; k < TREE_NODES_MAX - 1; k++) p[k] = total += 0.74f / (1 + 0.35f * (float)k);
    struct width w;
    struct tern_err err = {0};
    struct width_input in = {.text = WIDTH_TOOL, .ctx = 1000, .budget_max = 63};
    assert_int_equal(width_init(&w, &curve_m4_npu, NULL, 0, &err), TERN_OK);
    width_prior_set(&w, WIDTH_TOOL, p, 63, 100);
    assert_int_equal(width_choose(&w, &in).budget, 63);
    in.budget_max = 46;
    assert_int_equal(width_choose(&w, &in).budget, 46);
    in.budget_max = 0;
    assert_int_equal(width_choose(&w, &in).budget, 0);
    in.budget_max = 63;
    assert_int_equal(width_init(&w, &curve_m4_gpu, NULL, 0, &err), TERN_OK);
    width_prior_set(&w, WIDTH_TOOL, p, 63, 100);
    struct width_choice c = width_choose(&w, &in);
    assert_int_equal(c.budget, 7);
    assert_int_equal(c.reason, WIDTH_BEST);
    assert_true(fabsf(c.tokens - p[6]) < 1e-3f);
    assert_true(fabsf(c.gain - p[6] / 25.8f * 12.9f) < 1e-3f);
}

static void test_maximise(void **state) {
    (void)state;
    uint64_t seed = 2;
    for (int round = 0; round < 2000; round++) {
        float tokens[20], cost[20];
        int n = 1 + round % 20, best = 0;
        for (int i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            tokens[i] = 1 + (float)(seed >> 40) * 0x1p-22f;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            cost[i] = 1 + (float)(seed >> 60); // few values: equal rates occur
            if (round % 3 == 0) tokens[i] = floorf(tokens[i]);
            if ((double)tokens[i] / (double)cost[i] > (double)tokens[best] / (double)cost[best]) best = i;
        }
        double rate = 0;
        int found = width_maximise(tokens, cost, n, &rate);
        assert_true((double)tokens[found] / (double)cost[found] == (double)tokens[best] / (double)cost[best]);
        assert_true(rate == (double)tokens[best] / (double)cost[best]);
    }
}

static bool near(float a, float b) { return fabsf(a - b) < 1e-4f; }

static void test_costs(void **state) {
    (void)state;
    struct width_costs c = {.n_rows = 3,
                            .n_ctx = 2,
                            .rows = {1, 8, 16},
                            .ctx = {1000, 3000},
                            .verify = {{10, 17, 33}, {14, 25, 49}},
                            .draft = {3, 5},
                            .draft_node = 0.5f,
                            .host = 2,
                            .host_plain = 1};
    struct tern_err err = {0};
    assert_int_equal(width_costs_check(&c, &err), TERN_OK);
    assert_true(near(width_cost_verify(&c, 1, 0), 10));
    assert_true(near(width_cost_verify(&c, 8, 1000), 17));
    assert_true(near(width_cost_verify(&c, 4, 500), 13));
    assert_true(near(width_cost_verify(&c, 12, 2000), 31));
    assert_true(near(width_cost_verify(&c, 18, 1000), 37)); // the last slope goes on
    assert_true(near(width_cost_verify(&c, 1, 5000), 18));
    assert_true(near(width_cost_round(&c, 0, 1000), 11));
    assert_true(near(width_cost_round(&c, 7, 2000), 21 + 4 + 3.5f + 2));
    c.windows = true;
    assert_true(near(width_cost_verify(&c, 4, 1000), 17));
    assert_true(near(width_cost_verify(&c, 9, 1000), 33));
    assert_true(near(width_cost_verify(&c, 1, 1000), 10));
#define REFUSED(change)                                                               \
    do {                                                                              \
        struct width_costs bad = c;                                                   \
        struct width w;                                                               \
        change;                                                                       \
        assert_int_equal(width_costs_check(&bad, &err), TERN_INVALID_ARGUMENT);       \
        assert_int_equal(width_init(&w, &bad, NULL, 0, &err), TERN_INVALID_ARGUMENT); \
    } while (0)
    REFUSED(bad.n_rows = 0);
    REFUSED(bad.n_ctx = WIDTH_CTX_MAX + 1);
    REFUSED(bad.rows[0] = 2);
    REFUSED(bad.rows[2] = 8);
    REFUSED(bad.ctx[1] = 1000);
    REFUSED(bad.verify[1][2] = 0);
    REFUSED(bad.verify[0][0] = NAN);
    REFUSED(bad.draft[0] = -1);
    REFUSED(bad.host = INFINITY);
    struct width w;
    assert_int_equal(width_init(&w, &c, (const int16_t[]){4, 4}, 2, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(width_init(&w, &c, (const int16_t[]){0}, 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(width_init(&w, &c, (const int16_t[]){64}, 1, &err), TERN_INVALID_ARGUMENT);
}

// What a drafter has to catch up with counts against a probe, and long plain runs put the drafter away.
static void test_pending_and_off(void **state) {
    (void)state;
    struct width_costs costs = curve_cpu;
    struct width w;
    struct tern_err err = {0};
    costs.catch_up = 0.01f;
    assert_int_equal(width_init(&w, &costs, NULL, 0, &err), TERN_OK);
    struct width_input in = {.text = WIDTH_PROSE, .ctx = 10, .budget_max = 63};
    assert_true(width_choose(&w, &in).budget > 0);
    in.pending = 1000; // ten plain steps: more than the start's allowance
    struct width_choice c = width_choose(&w, &in);
    assert_int_equal(c.budget, 0);
    assert_int_equal(c.reason, WIDTH_NO_CREDIT);
    assert_false(c.off);
    for (int i = 0; i < WIDTH_OFF_ROUNDS; i++) width_observe(&w, &in, &c, 0, NULL, 0);
    assert_true(width_choose(&w, &in).off);
    in.pending = 0;
    assert_true(width_choose(&w, &in).budget > 0);
}

// Rounds that take three times what the curves say end at the allowance, however well the drafts do.
static void test_took(void **state) {
    (void)state;
    struct width_input in = {.text = WIDTH_PROSE, .ctx = 10, .budget_max = 8};
    struct accept_path p = {.n = 3, .nodes = {0, 1, 2}};
    for (int slow = 0; slow < 2; slow++) {
        struct run r;
        int n = 0;
        run_init(&r, &curve_cpu, 1);
        for (int i = 0; i < 60; i++) {
            struct width_choice c = width_choose(&r.w, &in);
            double cost = (double)width_cost_round(&r.w.costs, c.budget, in.ctx);
            n += c.budget > 0;
            width_observe(&r.w, &in, &c, c.budget, &p, slow && c.budget > 0 ? 3 * cost : cost);
        }
        assert_true(slow ? n < 10 : n == 60);
    }
}

// Times that do not repeat make wide steps dearer, and only those.
static void test_spread(void **state) {
    (void)state;
    struct width_times t[2];
    struct width_costs c[2];
    for (int k = 0; k < 2; k++) {
        width_times_init(&t[k], &curve_cpu);
        for (int i = 0; i < 200; i++) {
            double off = k && i % 2 ? 1.5 : k ? 0.5 : 1; // the same mean
            width_times_step(&t[k], 1, 10, off * (double)width_cost_round(&curve_cpu, 0, 10));
            width_times_step(&t[k], 8, 10, off * (double)(width_cost_verify(&curve_cpu, 8, 10) + curve_cpu.host));
        }
        width_times_costs(&t[k], &c[k]);
    }
    float one = width_cost_verify(&c[1], 1, 10) / width_cost_verify(&c[0], 1, 10);
    float eight = width_cost_verify(&c[1], 8, 10) / width_cost_verify(&c[0], 8, 10);
    assert_true(fabsf(logf(one)) < 0.15f);
    assert_true(eight > 1.15f * one);
}

// The same inputs give the same choices, in a second controller and after a copy in the middle.
static void test_replay(void **state) {
    (void)state;
    struct run a, b;
    run_init(&a, &curve_few, 9);
    b = a;
    for (int i = 0; i < 500; i++) run_round(&a, i / 100 % 4, (enum width_class)(i / 100 % 4));
    for (int i = 0; i < 500; i++) run_round(&b, i / 100 % 4, (enum width_class)(i / 100 % 4));
    assert_true(a.cost == b.cost && a.n_tokens == b.n_tokens && a.n_drafted == b.n_drafted);
    for (int c = 0; c < WIDTH_CLASSES; c++)
        assert_memory_equal(a.w.stats[c].hits, b.w.stats[c].hits, sizeof a.w.stats[c].hits);
    for (int r = 0; r <= WIDTH_PROBE; r++) assert_true(strcmp(width_reason_name((enum width_reason)r), "unknown") != 0);
}

// ------------------------------------------------------------------------------------------------------------ text

static enum width_class class_of(const char *text) {
    struct width_text t;
    width_text_init(&t);
    width_text_put(&t, text, strlen(text));
    return width_text_class(&t);
}

static void test_text(void **state) {
    (void)state;
    assert_int_equal(class_of(""), WIDTH_PROSE);
    assert_int_equal(class_of("Once upon a time there was a little fox who lived near the river. Every day it ran "
                              "through the woods, and in 1999 it met a bear."),
                     WIDTH_PROSE);
    assert_int_equal(class_of("To find the total, add them: 12 + 7 = 19. Then 19 * 3 = 57, and 57 / 3 = 19. So x = 19 "
                              "and 2x + 5 = 43."),
                     WIDTH_MATH);
    assert_int_equal(class_of("static int count_words(const char *s) {\n    int n = 0;\n    for (; s[n]; n++) {\n"
                              "        if (s[n] == ' ') total_words++;\n    }\n"),
                     WIDTH_CODE);
    assert_int_equal(class_of("Here is the function:\n```python\nprint"), WIDTH_CODE);
    assert_int_equal(class_of("Here it is:\n```python\nprint(1)\n```\nThis prints a number on the screen, and then the "
                              "program ends without saying anything else to the reader."),
                     WIDTH_PROSE);
    struct width_text t;
    width_text_init(&t);
    width_text_put(&t, "Let me look that up for you, please wait", 40);
    width_text_tool(&t, true);
    assert_int_equal(width_text_class(&t), WIDTH_TOOL);
    width_text_put(&t, "[get_weather(city=\"Paris\", days=3)]", 35);
    assert_int_equal(width_text_class(&t), WIDTH_TOOL);
    width_text_tool(&t, false);
    assert_int_not_equal(width_text_class(&t), WIDTH_TOOL);
    // In pieces it is the same.
    const char *text = "if (a[i] < b[j]) { c[k++] = a[i++]; } else { c[k++] = b[j++]; } x_y = z_w;\n";
    struct width_text whole, pieces;
    width_text_init(&whole);
    width_text_init(&pieces);
    width_text_put(&whole, text, strlen(text));
    for (size_t i = 0; i < strlen(text); i++) width_text_put(&pieces, text + i, 1);
    assert_int_equal(whole.signs_code, pieces.signs_code);
    assert_int_equal(whole.signs_math, pieces.signs_math);
    assert_int_equal(whole.now, pieces.now);
    assert_int_equal(whole.now, WIDTH_CODE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_fixed), cmocka_unit_test(test_hopeless_start),
        cmocka_unit_test(test_classes),    cmocka_unit_test(test_change_within_class),
        cmocka_unit_test(test_published),  cmocka_unit_test(test_maximise),
        cmocka_unit_test(test_costs),      cmocka_unit_test(test_pending_and_off),
        cmocka_unit_test(test_took),       cmocka_unit_test(test_spread),
        cmocka_unit_test(test_replay),     cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests_name("width", tests, NULL, NULL);
}
