// The width controller (spec.h): learned acceptance, a Dinkelbach step, and an allowance that bounds what a wrong guess
// may cost.
//
// Learning. Budgets are nested, so a verify of b nodes shows for every k <= b whether node k was accepted: the mean of
// that is p_k, and A(b) = 1 + p_1 + … + p_b. Counts fade (FADE), so about the last hundred rounds speak, and start as
// PRIOR_ROUNDS rounds of the class's prior. Nodes not verified lately are guessed from the band of nodes before them
// that were: the prior's shape, scaled as the band is.
//
// Trying. Wider budgets are tried when an optimist could gain (nodes as good as the band, or as their own few rounds
// leave possible), plain decoding's rivals when the class can afford it. Both back off by doubling while they bring
// nothing, and start again after a change of class or a probe that paid: nothing latches. Rejected: fixed probing
// periods (3.6 % loss at a period of ten rounds).
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>

#define FADE 0.99f
#define PRIOR_ROUNDS 3.0f
#define RECENT_FADE 0.9f
#define RECENT_ROUNDS 5.0f  // before recent rounds can raise a doubt
#define DOUBT_SHARE 0.42    // of what was expected
#define STALE_ROUNDS 300    // a node not verified for so long counts as unseen
#define WIDEN_ROUNDS 8      // first interval of widening, in rounds
#define WIDEN_BACKOFF 5     // doublings at most
#define WIDEN_FACTOR 2      // widest step
#define WIDEN_OPTIMISM 2.0f // standard deviations
#define WIDEN_GAIN 1.01     // that the optimist must see
#define PROBE_SHARE 0.5f    // of the loss bound that probing may use
#define PROBE_BACKOFF 2     // doublings at most
#define DOUBT_ROUNDS 6.0f   // weight that what was learned keeps after a doubt
#define PROBE_OPTIMISM 1.0f // standard deviations
#define LEAN_TOKENS 3.0f    // accepted tokens as expected that every answer starts with

// Tokens per round of a tree with so many drafted nodes (a small trained DSpark drafter, parent-conditioned trees),
// pooled over chat, story, math, code and tool prompts, and of tool calls alone: only the start of what is learned.
// Tool calls have their own because they are short and nearly determined: by the pooled figures such an answer is over
// before wide budgets are tried (4.7 accepted tokens a round where 6.2 were to be had).
static const struct {
    int n;
    float tokens, tool;
} prior_points[] = {{0, 1, 1},          {1, 1.73f, 1.92f},  {2, 2.23f, 2.81f},  {3, 2.60f, 3.60f},
                    {4, 2.85f, 4.23f},  {6, 3.18f, 5.47f},  {8, 3.44f, 6.25f},  {12, 3.71f, 6.91f},
                    {16, 3.87f, 7.00f}, {24, 4.06f, 7.00f}, {32, 4.17f, 7.00f}, {63, 4.47f, 7.19f}};
static const int16_t budgets_default[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 46, 54, 63};
_Static_assert(ARRAY_LEN(budgets_default) + WIDTH_ROWS_MAX <= WIDTH_BUDGETS_MAX, "room for every width of the curves");

static float prior_tokens(size_t i, enum width_class text) {
    return text == WIDTH_TOOL ? prior_points[i].tool : prior_points[i].tokens;
}

static void stats_init(struct width_stats *s, enum width_class text) {
    *s = (struct width_stats){.credit = (double)WIDTH_LOSS_CLASS};
    for (size_t i = 1; i < ARRAY_LEN(prior_points); i++) {
        int from = prior_points[i - 1].n, to = prior_points[i].n;
        for (int k = from + 1; k <= to; k++) {
            float p = (prior_tokens(i, text) - prior_tokens(i - 1, text)) / (float)(to - from);
            s->prior[k] = p;
            s->n[k] = PRIOR_ROUNDS;
            s->hits[k] = PRIOR_ROUNDS * p;
            s->seen[k] = -1;
        }
    }
}

// The steps of a staircase end at measured widths, so those are budgets too (root and drafts fill them).
static int budgets_make(const struct width_costs *costs, int16_t out[WIDTH_BUDGETS_MAX]) {
    bool wanted[TREE_NODES_MAX] = {false};
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(budgets_default); i++) wanted[budgets_default[i]] = true;
    for (int i = 0; i < costs->n_rows; i++)
        if (costs->rows[i] <= TREE_NODES_MAX) wanted[costs->rows[i] - 1] = true;
    for (int k = 1; k < TREE_NODES_MAX; k++)
        if (wanted[k]) out[n++] = (int16_t)k;
    return n;
}

enum tern_status width_init(struct width *w, const struct width_costs *costs, const int16_t *budgets, int n_budgets,
                            struct tern_err *err) {
    TRY(width_costs_check(costs, err));
    if (budgets && (n_budgets < 1 || n_budgets > WIDTH_BUDGETS_MAX))
        return err_set(err, TERN_INVALID_ARGUMENT, "width: %d budgets; 1 to %d are possible", n_budgets,
                       WIDTH_BUDGETS_MAX);
    *w = (struct width){.costs = *costs, .n_budgets = n_budgets};
    for (int i = 0; budgets && i < n_budgets; i++) {
        if (budgets[i] < 1 || budgets[i] >= TREE_NODES_MAX || (i > 0 && budgets[i] <= budgets[i - 1]))
            return err_set(err, TERN_INVALID_ARGUMENT, "width: budget %d at place %d; they must ascend within 1 to %d",
                           budgets[i], i, TREE_NODES_MAX - 1);
        w->budgets[i] = budgets[i];
    }
    if (!budgets) w->n_budgets = budgets_make(costs, w->budgets);
    for (int c = 0; c < WIDTH_CLASSES; c++) stats_init(&w->stats[c], (enum width_class)c);
    w->pool = (double)WIDTH_LOSS_START;
    return TERN_OK;
}

enum tern_status width_costs_set(struct width *w, const struct width_costs *costs, struct tern_err *err) {
    TRY(width_costs_check(costs, err));
    w->costs = *costs;
    return TERN_OK;
}

void width_prior_set(struct width *w, enum width_class text, const float *tokens, int n, float rounds) {
    struct width_stats *s = &w->stats[text];
    float last = 1;
    for (int k = 1; k < TREE_NODES_MAX; k++) {
        float p = k <= n ? tokens[k - 1] - last : 0;
        if (k <= n) last = tokens[k - 1];
        s->prior[k] = MIN(MAX(p, 0), 1);
        s->n[k] = rounds;
        s->hits[k] = rounds * s->prior[k];
    }
}

const char *width_reason_name(enum width_reason r) {
    switch (r) {
    case WIDTH_BEST: return "best expected";
    case WIDTH_PLAIN_BEST: return "drafting is not expected to pay";
    case WIDTH_NO_CREDIT: return "the allowance for trying is used up";
    case WIDTH_EXPLORE: return "trying a wider budget";
    case WIDTH_PROBE: return "trying whether drafting pays by now";
    }
    return "unknown";
}

// --------------------------------------------------------------------------------------------------------- expectation

static bool is_known(const struct width_stats *s, int k) {
    return s->seen[k] >= 0 && s->n_rounds - s->seen[k] <= STALE_ROUNDS;
}

// Last node that was verified lately (0: none), the mean acceptance of the band before it, and the prior's there.
static int known_end(const struct width_stats *s, float *band, float *prior) {
    int end = 0;
    while (end + 1 < TREE_NODES_MAX && is_known(s, end + 1)) end++;
    float n = 0, hits = 0, sum = 0;
    for (int k = end / 2 + 1; k <= end; k++) {
        n += s->n[k];
        hits += s->hits[k];
        sum += s->prior[k];
    }
    *band = n > 0 ? hits / n : 1;
    *prior = end > 0 ? sum / (float)(end - end / 2) : 1;
    return end;
}

static float deviation(const struct width_stats *s, int k, float p) {
    return sqrtf((p * (1 - p) + 0.05f) / (s->n[k] + 1));
}

// tokens[k]: expected tokens of a round with k drafted nodes.
static void expect_tokens(const struct width_stats *s, float tokens[TREE_NODES_MAX]) {
    float band, prior;
    int end = known_end(s, &band, &prior);
    tokens[0] = 1;
    for (int k = 1; k < TREE_NODES_MAX; k++) {
        float p = s->n[k] > 0 ? s->hits[k] / s->n[k] : 0;
        if (k > end && end > 0) {
            float guess = MIN(band, prior > 0 ? s->prior[k] * band / prior : band * (float)end / (float)k);
            p = s->seen[k] >= 0 ? MIN(p, guess) : guess;
        }
        tokens[k] = tokens[k - 1] + MIN(p, 1);
    }
}

// The same with all that a node's rounds leave possible, within what the nodes before it allow.
static void hope_tokens(const struct width_stats *s, float optimism, float tokens[TREE_NODES_MAX]) {
    float band, prior;
    int end = known_end(s, &band, &prior);
    tokens[0] = 1;
    for (int k = 1; k < TREE_NODES_MAX; k++) {
        float p = s->n[k] > 0 ? s->hits[k] / s->n[k] : 0;
        float most = k > end ? band : 1;
        p = s->seen[k] < 0 && end > 0 ? most : MIN(p + optimism * deviation(s, k, p), most);
        tokens[k] = tokens[k - 1] + p;
    }
}

// The budgets of a decision: entry 0 is plain.
struct arms {
    int n;
    int budgets[WIDTH_BUDGETS_MAX + 1];
    float cost[WIDTH_BUDGETS_MAX + 1];
    float worst[WIDTH_BUDGETS_MAX + 1]; // loss of a round that gives one token
};

static void arms_set(const struct width *w, const struct width_input *in, struct arms *a) {
    float plain = width_cost_round(&w->costs, 0, in->ctx);
    float catch_up = w->costs.catch_up * (float)MAX(in->pending, 0);
    *a = (struct arms){.n = 1, .cost = {plain}};
    for (int i = 0; i < w->n_budgets && w->budgets[i] <= in->budget_max; i++) {
        a->budgets[a->n] = w->budgets[i];
        a->cost[a->n] = width_cost_round(&w->costs, w->budgets[i], in->ctx);
        a->worst[a->n] = MAX(a->cost[a->n] - plain, 0) + catch_up;
        a->n++;
    }
}

// What the class may still lose: its own credit, then the common pool. In plain steps, so a machine that gets slower
// changes nothing.
static double credit_of(const struct width *w, const struct width_stats *s, double plain) {
    return (s->credit + w->pool) * plain;
}

// A round gained so many plain steps (lost, below 0) and gave n_tokens.
static void credit_move(struct width *w, struct width_stats *s, double gain, int n_tokens) {
    s->credit += gain + (double)WIDTH_LOSS_MAX * n_tokens;
    double over = s->credit < 0 ? s->credit : MAX(s->credit - (double)WIDTH_CREDIT_MAX, 0);
    s->credit -= over;
    w->pool = MIN(w->pool + over, (double)WIDTH_LOSS_START);
}

// The best affordable arm, plain included.
static int best_arm(const struct arms *a, const float tokens[TREE_NODES_MAX], double credit, double *rate) {
    float t[WIDTH_BUDGETS_MAX + 1], c[WIDTH_BUDGETS_MAX + 1];
    int at[WIDTH_BUDGETS_MAX + 1], n = 0;
    for (int i = 0; i < a->n; i++) {
        if (i > 0 && (double)a->worst[i] > credit) continue;
        t[n] = tokens[a->budgets[i]];
        c[n] = a->cost[i];
        at[n++] = i;
    }
    int best = width_maximise(t, c, n, rate);
    if (best == 0 || *rate > (double)(WIDTH_GAIN_MIN * t[0] / c[0])) return at[best];
    *rate = (double)(t[0] / c[0]);
    return 0;
}

// ------------------------------------------------------------------------------------------------------------ choice

// A wider arm than `best` that an optimist prefers, or best itself.
static int widen(const struct width_stats *s, const struct arms *a, int best, double rate, double credit) {
    if (s->n_rounds - s->wide_round < (int64_t)WIDEN_ROUNDS << s->backoff) return best;
    float tokens[TREE_NODES_MAX];
    hope_tokens(s, WIDEN_OPTIMISM, tokens);
    int limit = WIDEN_FACTOR * a->budgets[best] + 2, found = best;
    rate *= WIDEN_GAIN;
    for (int i = best + 1; i < a->n && a->budgets[i] <= limit; i++) {
        double r = (double)tokens[a->budgets[i]] / (double)a->cost[i];
        if ((double)a->worst[i] > credit || r <= rate) continue;
        rate = r;
        found = i;
    }
    return found;
}

// Plain is best: the arm to probe with, or 0. A probe may cost PROBE_SHARE of the bound, so its interval follows its
// price; after a change of class the first one comes at once, if the class can bear it.
static int probe(const struct width *w, const struct width_stats *s, const struct width_input *in, const struct arms *a,
                 double credit) {
    float tokens[TREE_NODES_MAX];
    hope_tokens(s, PROBE_OPTIMISM, tokens);
    int found = 0;
    double best = 0;
    bool is_new = in->text != w->last;
    for (int i = 1; i < a->n; i++) {
        double wait = (double)a->worst[i] / (double)(PROBE_SHARE * WIDTH_LOSS_MAX * a->cost[0]);
        double waited = (double)(s->n_tokens - s->wide_tokens);
        if ((double)a->worst[i] > credit || (!is_new && waited < ldexp(wait, s->backoff))) continue;
        double r = (double)tokens[a->budgets[i]] / (double)a->cost[i];
        if (r > best) {
            best = r;
            found = i;
        }
    }
    return found;
}

void width_expect(const struct width *w, const struct width_input *in, float tokens[TREE_NODES_MAX]) {
    expect_tokens(&w->stats[in->text], tokens);
    for (int k = 1; k < TREE_NODES_MAX && in->lean > 0; k++)
        tokens[k] = MIN(1 + in->lean * (tokens[k] - 1), (float)(k + 1));
}

struct width_choice width_choose(const struct width *w, const struct width_input *in) {
    const struct width_stats *s = &w->stats[in->text];
    struct arms a;
    float tokens[TREE_NODES_MAX], expected[TREE_NODES_MAX];
    arms_set(w, in, &a);
    expect_tokens(s, expected);
    width_expect(w, in, tokens);
    double credit = credit_of(w, s, (double)a.cost[0]), rate = 0, rate_free = 0;
    int at = best_arm(&a, tokens, credit, &rate), wanted = best_arm(&a, tokens, (double)INFINITY, &rate_free);
    enum width_reason reason = WIDTH_BEST;
    if (at > 0) {
        int wider = widen(s, &a, at, rate, credit);
        if (wider != at) reason = WIDTH_EXPLORE;
        at = wider;
    } else if (wanted > 0) {
        reason = WIDTH_NO_CREDIT;
    } else {
        at = probe(w, s, in, &a, credit);
        reason = at > 0 ? WIDTH_PROBE : WIDTH_PLAIN_BEST;
    }
    struct width_choice c = {.budget = a.budgets[at], .reason = reason, .tokens = tokens[a.budgets[at]]};
    c.expected = expected[a.budgets[at]];
    c.off = at == 0 && w->n_plain >= WIDTH_OFF_ROUNDS;
    c.gain = c.tokens / a.cost[at] * a.cost[0];
    return c;
}

// ------------------------------------------------------------------------------------------------------------ learning

static void learn(struct width_stats *s, int n_drafted, const struct accept_path *path) {
    int next = 1;
    for (int k = 1; k <= n_drafted; k++) {
        while (next < path->n && path->nodes[next] < k) next++;
        bool hit = next < path->n && path->nodes[next] == k;
        s->n[k] = FADE * s->n[k] + 1;
        s->hits[k] = FADE * s->hits[k] + (hit ? 1 : 0);
        s->seen[k] = s->n_rounds;
    }
}

// Rounds that give much less than was expected for a while: what was learned before weighs little from now on.
static void doubt(struct width_stats *s, const struct width_choice *choice, int n_tokens, double cost, double plain) {
    s->recent_n = RECENT_FADE * s->recent_n + 1;
    s->recent_tokens = RECENT_FADE * s->recent_tokens + (float)n_tokens;
    s->recent_cost = (double)RECENT_FADE * s->recent_cost + cost;
    double gain = (double)s->recent_tokens / s->recent_cost * plain;
    if (s->recent_n < RECENT_ROUNDS || gain > DOUBT_SHARE * (double)choice->gain) return;
    for (int k = 1; k < TREE_NODES_MAX; k++) {
        float keep = s->n[k] > DOUBT_ROUNDS ? DOUBT_ROUNDS / s->n[k] : 1;
        s->n[k] *= keep;
        s->hits[k] *= keep;
    }
}

void width_observe(struct width *w, const struct width_input *in, const struct width_choice *choice, int n_drafted,
                   const struct accept_path *path, double took) {
    struct width_stats *s = &w->stats[in->text];
    double plain = (double)width_cost_round(&w->costs, 0, in->ctx), cost = plain;
    int n_tokens = 1;
    n_drafted = MIN(n_drafted, TREE_NODES_MAX - 1);
    if (in->text != w->last) s->backoff = 0;
    if (n_drafted > 0) {
        cost = (double)width_cost_round(&w->costs, n_drafted, in->ctx) +
               (double)w->costs.catch_up * (double)MAX(in->pending, 0);
        n_tokens = path->n;
        learn(s, n_drafted, path);
        doubt(s, choice, n_tokens, cost, plain);
    }
    s->n_rounds++;
    s->n_tokens += n_tokens;
    double paid = n_drafted > 0 ? MAX(cost, MIN(took, (double)WIDTH_COST_OUTLIER * cost)) : cost;
    credit_move(w, s, n_tokens - paid / plain, n_tokens);
    w->n_plain = n_drafted > 0 ? 0 : w->n_plain + 1;
    w->last = in->text;
    if (choice->reason == WIDTH_EXPLORE || choice->reason == WIDTH_PROBE) {
        bool is_probe = choice->reason == WIDTH_PROBE;
        s->wide_round = s->n_rounds;
        s->wide_tokens = s->n_tokens;
        bool better = (double)n_tokens / cost * plain > (double)choice->gain;
        if (is_probe || !better) s->backoff = MIN(s->backoff + 1, is_probe ? PROBE_BACKOFF : WIDEN_BACKOFF);
        if (is_probe && plain * n_tokens > cost) s->backoff = 0;
    }
}

void width_learn(struct width *w, const struct width_input *in, int n_drafted, const struct accept_path *path) {
    struct width_stats *s = &w->stats[in->text];
    learn(s, MIN(n_drafted, TREE_NODES_MAX - 1), path);
    s->n_rounds++;
    s->n_tokens += path->n;
    w->n_plain = 0;
}

float width_lean(const struct width_answer *a) { return (a->got + LEAN_TOKENS) / (a->expected + LEAN_TOKENS); }

void width_answer_observe(struct width_answer *a, const struct width_choice *choice, const struct accept_path *path) {
    a->expected += choice->expected - 1;
    a->got += (float)(path->n - 1);
}
