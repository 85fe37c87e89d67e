// `auto` against recorded reality, deterministically: at every place of pico's answers to 100 prompts, what a tree and
// n-grams would have got (test/data/spec/paths.txt, by `tern study acceptance --paths`), and what rounds of all widths
// took on a machine that was quiet or busy (times_*.txt, by `tern bench --replay … --record`: drafted tokens, time of
// the draft, time of the round, in ns, in the order in which they ran). The chooser sees the recorded times in their
// order, outliers and all. It is judged by the means of the measurements around each, with times beyond four medians
// counted as that: interruptions hit time, not widths, and a few of them would decide everything.
#include "base/base.h"
#include "spec/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define DATA "test/data/spec/"
#define CATEGORIES_MAX 8
#define ANCHORS_MAX 10000
#define PROMPTS_MAX 128
#define SAMPLES_MAX 2000     // of one width
#define AROUND 7             // measurements before and after one that say what a round cost at its time
#define CATCH_UP_SHARE 0.008 // of a draft, for each position that a drafter has not seen (measured 5 of 600 µs)

struct anchor {
    enum width_class text;
    int match, ngrams;
    struct accept_path path;
};
static struct anchor anchors[ANCHORS_MAX];
static struct answer { int category, n_prompt, first, n; } answers[PROMPTS_MAX];
static int n_anchors, n_answers, n_categories;
static char categories[CATEGORIES_MAX][16];

struct times { // of one machine
    const char *name;
    double draft[TREE_NODES_MAX][SAMPLES_MAX], step[TREE_NODES_MAX][SAMPLES_MAX];
    int place[TREE_NODES_MAX][SAMPLES_MAX]; // in the order of all
    int n[TREE_NODES_MAX], at[TREE_NODES_MAX], n_all, clock;
    double draft_median[TREE_NODES_MAX], step_median[TREE_NODES_MAX];
};
static struct times machines[] = {{.name = "quiet1"}, {.name = "quiet2"}, {.name = "busy2"}};

static void read_paths(void) {
    struct buf b;
    struct tern_err err = {0};
    char *end;
    buf_init(&b, 1u << 20);
    if (file_read_all(&b, DATA "paths.txt", &err) != TERN_OK) fail_msg("%s", err.message);
    for (char *line = b.data; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = 0;
        char category[16], group[16];
        struct answer *w = &answers[n_answers];
        if (sscanf(line, "prompt %15s %15s %d %d", category, group, &w->n_prompt, &w->n) == 4) {
            assert_true(n_answers + 1 < PROMPTS_MAX);
            for (w->category = 0; w->category < n_categories && strcmp(categories[w->category], category) != 0;)
                w->category++;
            if (w->category == n_categories) memcpy(categories[n_categories++], category, sizeof category);
            w->first = n_anchors;
            n_answers++;
            continue;
        }
        struct anchor *a = &anchors[n_anchors++];
        assert_true(n_anchors < ANCHORS_MAX);
        char *at = line;
        a->text = (enum width_class)strtol(at, &at, 10);
        a->match = (int)strtol(at, &at, 10);
        a->ngrams = (int)strtol(at, &at, 10);
        a->path.n = 1;
        while (*at) a->path.nodes[a->path.n++] = (int16_t)strtol(at, &at, 10);
    }
    buf_release(&b);
}

static int double_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(const double *v, int n) {
    static double sorted[SAMPLES_MAX];
    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *v, double_order);
    return n > 0 ? sorted[n / 2] : 0;
}

static void read_times(struct times *t) {
    struct buf b;
    struct tern_err err = {0};
    char path[64];
    buf_init(&b, 1u << 20);
    snprintf(path, sizeof path, DATA "times_%s.txt", t->name);
    if (file_read_all(&b, path, &err) != TERN_OK) fail_msg("%s", err.message);
    for (char *at = b.data; *at;) {
        int k = (int)strtol(at, &at, 10);
        double draft = strtod(at, &at), all = strtod(at, &at);
        assert_true(k < TREE_NODES_MAX && t->n[k] < SAMPLES_MAX && *at == '\n');
        t->draft[k][t->n[k]] = draft;
        t->place[k][t->n[k]] = t->n_all++;
        t->step[k][t->n[k]++] = all - draft;
        at++;
    }
    for (int k = 0; k < TREE_NODES_MAX; k++) {
        t->draft_median[k] = median_of(t->draft[k], t->n[k]);
        t->step_median[k] = median_of(t->step[k], t->n[k]);
    }
    buf_release(&b);
}

static int setup(void **state) {
    (void)state;
    read_paths();
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) read_times(&machines[i]);
    return 0;
}

// ------------------------------------------------------------------------------------------------------------ replay

static int recorded_width(const struct times *t, int k) {
    while (t->n[k] == 0) k++;
    return k;
}

// The next measurement of width k at or after the clock, which each round moves on: so what happened to the machine at
// a time happens to all widths.
static int sample_next(struct times *t, int k) {
    if (++t->clock == t->n_all) t->clock = 0;
    if (t->clock == 0) memset(t->at, 0, sizeof t->at);
    while (t->at[k] < t->n[k] && t->place[k][t->at[k]] < t->clock) t->at[k]++;
    return t->at[k] < t->n[k] ? t->at[k] : t->n[k] - 1;
}

static int plain_at(struct times *t) {
    while (t->at[0] < t->n[0] - 1 && t->place[0][t->at[0]] < t->clock) t->at[0]++;
    return t->at[0];
}

// Mean of the measurements around one, outliers bounded.
static double mean_around(const double *v, int n, int at, double median) {
    double sum = 0;
    int lo = MAX(at - AROUND, 0), hi = MIN(at + AROUND, n - 1);
    for (int i = lo; i <= hi; i++) sum += MIN(v[i], 4 * median);
    return sum / (hi - lo + 1);
}

struct totals {
    double cost[CATEGORIES_MAX], plain[CATEGORIES_MAX], best[CATEGORIES_MAX];
    int64_t tokens[CATEGORIES_MAX], rounds[CATEGORIES_MAX], by_model[CATEGORIES_MAX], by_ngrams[CATEGORIES_MAX];
};

// fixed >= 0: that width in every round instead of the chooser's.
static void answer_replay(struct times *t, struct draft_auto *chooser, int fixed, const struct answer *w,
                          struct totals *out) {
    int behind = w->n_prompt;
    struct draft_answer here = {.model = {0}};
    for (int at = 0; at < w->n; out->rounds[w->category]++) {
        const struct anchor *a = &anchors[w->first + at];
        struct draft_place place = {.text = a->text,
                                    .ctx = w->n_prompt + at,
                                    .behind = behind,
                                    .budget_max = 63,
                                    .match = a->match,
                                    .answer = &here};
        struct draft_round round = {.source = fixed > 0 ? DRAFT_MODEL : DRAFT_NONE, .budget = MAX(fixed, 0)};
        if (fixed < 0) draft_auto_choose(chooser, &place, &round);
        int k = recorded_width(t, round.budget), i = sample_next(t, k);
        bool model = round.source == DRAFT_MODEL;
        struct accept_path p = a->path;
        p.n = accept_tokens(&a->path, round.budget);
        if (round.source == DRAFT_NGRAMS) {
            p.n = 1;
            for (int j = 1; j <= MIN(a->ngrams, round.budget); j++) p.nodes[p.n++] = (int16_t)j;
        }
        double late = CATCH_UP_SHARE * behind, draft = model ? t->draft[k][i] * (1 + late) : 0;
        double plain = mean_around(t->step[0], t->n[0], plain_at(t), t->step_median[0]);
        double cost = k > 0 ? mean_around(t->step[k], t->n[k], i, t->step_median[k]) : plain;
        if (model) cost += (1 + late) * mean_around(t->draft[k], t->n[k], i, t->draft_median[k]);
        out->cost[w->category] += cost;
        out->plain[w->category] += plain * MIN(p.n, w->n - at);
        if (fixed < 0) draft_auto_learn(chooser, &here, &round, round.budget, &p, draft, draft + t->step[k][i]);
        behind = model ? p.n : behind + p.n;
        at += p.n;
        out->by_model[w->category] += model;
        out->by_ngrams[w->category] += round.source == DRAFT_NGRAMS;
    }
    out->tokens[w->category] += w->n;
}

static void all_replay(struct times *t, const struct width_costs *costs, bool has_model, int stride, int fixed,
                       struct totals *out) {
    static struct draft_auto chooser;
    struct tern_err err = {0};
    *out = (struct totals){.cost = {0}};
    draft_auto_init(&chooser, has_model);
    if (costs && draft_auto_costs(&chooser, costs, &err) != TERN_OK) fail_msg("%s", err.message);
    t->clock = -1;
    for (int i = 0; i < n_answers; i++) answer_replay(t, &chooser, fixed, &answers[i * stride % n_answers], out);
}

// A calibration: the median of the first measurements of some widths, times what it is wrong by.
static void calibrate(const struct times *t, double wrong, struct width_costs *out) {
    static const int budgets[] = {0, 1, 2, 4, 8, 16, 32, 63};
    *out = (struct width_costs){.n_rows = ARRAY_LEN(budgets), .n_ctx = 1};
    for (size_t i = 0; i < ARRAY_LEN(budgets); i++) {
        int k = recorded_width(t, budgets[i]);
        double v[5];
        for (int j = 0; j < 5; j++) {
            int at = j;
            for (; at > 0 && v[at - 1] > t->step[k][j]; at--) v[at] = v[at - 1];
            v[at] = t->step[k][j];
        }
        out->rows[i] = (int16_t)(1 + budgets[i]);
        out->verify[0][i] = (float)(v[2] * (i > 0 ? wrong : 1));
        if (i > 0) out->verify[0][i] = MAX(out->verify[0][i], out->verify[0][i - 1]);
        if (k == 1) out->draft[0] = (float)(t->draft[k][0] * wrong);
    }
    out->catch_up = (float)(CATCH_UP_SHARE * (double)out->draft[0]);
}

// Least gain: of a category and of everything in a start, and of a category in the mean of the starts. On a machine
// whose other work takes most of it, while two threads wait for one another (busy2: plain steps of 0.5 to 34 ms), a
// drafted round costs 2.2 plain steps in the median, but 8 to 15 of them in a twentieth of the time, and nothing tells
// beforehand; 1 % of a category is 16 plain steps here. So what is held of a start there is the sum. (The replay is
// chaotic there: costs that differ by a thousandth move a category's mean by a hundredth.)
static const struct {
    double category, all, mean;
} bars[ARRAY_LEN(machines)] = {{0.99, 1.1, 0.99}, {0.99, 1.1, 0.99}, {0.80, 0.98, 0.97}};

// Of the best single width in hindsight, plain decoding included, `auto` keeps so much where the machine is not too
// busy for any width's cost to be seen: in the mean of the starts, and in each.
#define OF_BEST_MEAN 0.97
#define OF_BEST_EACH 0.95
#define BUSY 2 // index of that machine

static double gain_of(const struct totals *s) {
    double cost = 0, plain = 0;
    for (int c = 0; c < n_categories; c++) {
        cost += s->cost[c];
        plain += s->plain[c];
    }
    return plain / cost;
}

static bool report(const char *what, const struct times *t, const struct totals *s) {
    size_t m = (size_t)(t - machines);
    double least = 1e9;
    print_message("%-7s %-24s", t->name, what);
    for (int c = 0; c < n_categories; c++) {
        double r = s->plain[c] / s->cost[c];
        print_message(" %s %.3f (%.2f, %2.0f+%2.0f %%)", categories[c], r, (double)s->tokens[c] / (double)s->rounds[c],
                      100.0 * (double)s->by_model[c] / (double)s->rounds[c],
                      100.0 * (double)s->by_ngrams[c] / (double)s->rounds[c]);
        least = MIN(least, r);
    }
    print_message(" all %.3f\n", gain_of(s));
    return least >= bars[m].category && gain_of(s) >= bars[m].all;
}

static void test_never_slower(void **state) {
    (void)state;
    struct totals s;
    struct width_costs costs;
    int n_low = 0;
    static const double wrong[] = {1, 0.5, 2};
    static const int strides[] = {1, 7, 19, 23, 37, 43}; // orders of the answers
    static const int fixed[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24};
    for (size_t m = 0; m < ARRAY_LEN(machines); m++) {
        double best = 1, all = 0, sum[CATEGORIES_MAX] = {0};
        int n_starts = 0;
        for (size_t f = 0; f < ARRAY_LEN(fixed); f++) {
            char what[64];
            all_replay(&machines[m], NULL, true, 1, fixed[f], &s);
            snprintf(what, sizeof what, "always %d", fixed[f]);
            report(what, &machines[m], &s);
            best = MAX(best, gain_of(&s));
        }
        for (size_t w = 0; w < ARRAY_LEN(wrong); w++)
            for (size_t k = 0; k < ARRAY_LEN(strides); k++) {
                int stride = strides[k];
                char what[64];
                calibrate(&machines[m], wrong[w], &costs);
                all_replay(&machines[m], &costs, true, stride, -1, &s);
                snprintf(what, sizeof what, "costs x %.1f, %s", wrong[w], stride == 1 ? "in order" : "mixed");
                n_low += !report(what, &machines[m], &s);
                for (int c = 0; c < n_categories; c++) sum[c] += s.plain[c] / s.cost[c];
                n_starts++;
                n_low += m != BUSY && gain_of(&s) < OF_BEST_EACH * best;
                all += gain_of(&s);
            }
        for (int c = 0; c < n_categories; c++) {
            print_message("%-7s mean of the starts: %s %.3f\n", machines[m].name, categories[c], sum[c] / n_starts);
            n_low += sum[c] < bars[m].mean * n_starts;
        }
        print_message("%-7s mean of the starts: all %.3f\n", machines[m].name, all / n_starts);
        n_low += m != BUSY && all < OF_BEST_MEAN * best * n_starts;
        all_replay(&machines[m], NULL, false, 1, -1, &s);
        n_low += !report("n-grams, guessed costs", &machines[m], &s);
    }
    assert_int_equal(n_low, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_never_slower)};
    return cmocka_run_group_tests_name("auto replay", tests, setup, NULL);
}
