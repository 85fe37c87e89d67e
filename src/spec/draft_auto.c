// How `auto` drafts: which source (the draft model, n-grams of the text, none) and how many tokens, round by round.
// Both sources have a width controller of their own over the same curves; the better expected rate wins, and plain
// decoding is always there. The curves are measured beforehand, or guessed from the first plain steps (where measuring
// would cost more than it brings); what rounds really take corrects them from then on.
#include "base/base.h"
#include "spec/spec.h"

#define GUESS_STEPS 8   // plain steps before the first guess
#define GUESS_ROW 0.2f  // of a plain step, for each further row: dear, so that it is disproved cheaply
#define PENDING_USUAL 3 // positions that a draft catches up with anyway: part of its measured cost

// Acceptance of a match's k-th token, given those before it, to start from; by length of the match.
static const struct {
    int len;
    float p;
} match_classes[WIDTH_CLASSES] = {{0, 0.35f}, {5, 0.5f}, {8, 0.7f}, {16, 0.85f}};
#define MATCH_PRIOR_ROUNDS 4.0f

static enum width_class match_class(int len) {
    int c = WIDTH_CLASSES - 1;
    while (c > 0 && len < match_classes[c].len) c--;
    return (enum width_class)c;
}

// Drafts from the text cost nothing beside the rows that check them.
static void ngram_costs(const struct width_costs *costs, struct width_costs *out) {
    *out = *costs;
    for (int x = 0; x < out->n_ctx; x++) out->draft[x] = 0;
    out->draft_node = out->catch_up = 0;
}

void draft_auto_init(struct draft_auto *a, bool has_model) {
    *a = (struct draft_auto){.has_model = has_model, .shared_credit = (double)WIDTH_LOSS_START};
}

enum tern_status draft_auto_costs(struct draft_auto *a, const struct width_costs *costs, struct tern_err *err) {
    struct width_costs bare;
    TRY(width_init(&a->width, costs, NULL, 0, err));
    ngram_costs(costs, &bare);
    TRY(width_init(&a->ngram_width, &bare, NULL, 0, err));
    for (int c = 0; c < WIDTH_CLASSES; c++) {
        float tokens[TREE_NODES_MAX - 1], p = 1, sum = 1;
        for (int k = 0; k < TREE_NODES_MAX - 1; k++) tokens[k] = sum += p *= match_classes[c].p;
        width_prior_set(&a->ngram_width, (enum width_class)c, tokens, TREE_NODES_MAX - 1, MATCH_PRIOR_ROUNDS);
    }
    width_times_init(&a->times, costs);
    a->has_costs = true;
    return TERN_OK;
}

static void guess(struct draft_auto *a) {
    struct width_costs c = {.n_rows = 7, .n_ctx = 1, .rows = {1, 2, 4, 8, 16, 32, 64}};
    for (int i = 0; i < c.n_rows; i++) c.verify[0][i] = (float)a->plain_cost * (1 + GUESS_ROW * (float)(c.rows[i] - 1));
    draft_auto_costs(a, &c, NULL);
}

static void place_set(const struct draft_auto *a, const struct draft_place *at, struct draft_round *out) {
    *out = (struct draft_round){.ctx = at->ctx, .choice = {.gain = 1}, .ngram_choice = {.gain = 1}};
    if (!a->has_costs) return;
    out->in = (struct width_input){.text = at->text,
                                   .ctx = at->ctx,
                                   .pending = MAX(at->behind - PENDING_USUAL, 0),
                                   .budget_max = at->model_max ? MIN(at->budget_max, at->model_max) : at->budget_max};
    out->asked_ngram = at->match > 0;
    if (out->asked_ngram)
        out->ngram_in = (struct width_input){.text = match_class(at->match),
                                             .ctx = at->ctx,
                                             .budget_max = at->budget_max,
                                             .lean = at->answer ? width_lean(&at->answer->ngrams) : 1};
}

void draft_auto_choose(const struct draft_auto *a, const struct draft_place *at, struct draft_round *out) {
    place_set(a, at, out);
    if (!a->has_costs) return;
    if (a->has_model) out->choice = width_choose(&a->width, &out->in);
    if (out->asked_ngram) out->ngram_choice = width_choose(&a->ngram_width, &out->ngram_in);
    bool model = out->choice.budget > 0, ngram = out->ngram_choice.budget > 0;
    if (ngram && model) ngram = out->ngram_choice.gain > out->choice.gain;
    out->source = ngram ? DRAFT_NGRAMS : model ? DRAFT_MODEL : DRAFT_NONE;
    out->budget = ngram ? out->ngram_choice.budget : model ? out->choice.budget : 0;
}

bool draft_auto_expect(const struct draft_auto *a, const struct draft_place *at, struct draft_round *out, float *model,
                       float *ngrams) {
    place_set(a, at, out);
    if (!a->has_costs) return false;
    if (a->has_model)
        width_expect(&a->width, &out->in, model);
    else
        out->in.budget_max = 0;
    if (out->asked_ngram) width_expect(&a->ngram_width, &out->ngram_in, ngrams);
    return true;
}

void draft_auto_learn_shared(struct draft_auto *a, struct draft_answer *answer, const struct draft_round *round,
                             int n_drafted, const struct accept_path *path) {
    bool by_model = round->source == DRAFT_MODEL;
    struct width *w = by_model ? &a->width : &a->ngram_width;
    struct width_input in = by_model ? round->in : round->ngram_in;
    float tokens[TREE_NODES_MAX];
    in.lean = 0;
    width_expect(w, &in, tokens);
    const struct width_choice choice = {.budget = n_drafted, .expected = tokens[MIN(n_drafted, TREE_NODES_MAX - 1)]};
    width_learn(w, &in, n_drafted, path);
    width_answer_observe(by_model ? &answer->model : &answer->ngrams, &choice, path);
}

static void costs_refresh(struct draft_auto *a) {
    struct width_costs c, bare;
    width_times_costs(&a->times, &c);
    if (width_costs_set(&a->width, &c, NULL) != TERN_OK) return;
    ngram_costs(&c, &bare);
    width_costs_set(&a->ngram_width, &bare, NULL);
}

static void plain_guess(struct draft_auto *a, int rows, double cost) {
    double step = cost / (1 + (double)GUESS_ROW * (rows - 1));
    a->plain_cost = a->n_plain == 0 ? step : MIN(a->plain_cost, step);
    if (++a->n_plain >= GUESS_STEPS) guess(a);
}

void draft_auto_step(struct draft_auto *a, int rows, bool drafted, int64_t ctx, double cost) {
    if (!(cost > 0)) return;
    if (!a->has_costs) {
        if (!drafted && !a->has_model) plain_guess(a, rows, cost);
        return;
    }
    width_times_step(&a->times, rows, ctx, cost);
    costs_refresh(a);
}

void draft_auto_draft(struct draft_auto *a, int n_drafted, int64_t ctx, double cost) {
    if (a->has_costs) width_times_draft(&a->times, n_drafted, ctx, cost);
}

void draft_auto_learn(struct draft_auto *a, struct draft_answer *answer, const struct draft_round *round, int n_drafted,
                      const struct accept_path *path, double draft_cost, double cost) {
    double step = cost - draft_cost;
    if (!(step > 0)) return;
    if (!a->has_costs) {
        if (n_drafted == 0) plain_guess(a, 1, step);
        return;
    }
    bool by_model = round->source == DRAFT_MODEL;
    width_times_step(&a->times, 1 + n_drafted, round->ctx, step);
    if (n_drafted > 0 && by_model && round->in.pending == 0)
        width_times_draft(&a->times, round->budget, round->ctx, draft_cost);
    costs_refresh(a);
    if (n_drafted == 0) {
        if (a->has_model) width_observe(&a->width, &round->in, &round->choice, 0, NULL, 0);
        if (round->asked_ngram) width_observe(&a->ngram_width, &round->ngram_in, &round->ngram_choice, 0, NULL, 0);
    } else if (path) {
        const struct width_choice *choice = by_model ? &round->choice : &round->ngram_choice;
        width_observe(by_model ? &a->width : &a->ngram_width, by_model ? &round->in : &round->ngram_in, choice,
                      n_drafted, path, cost);
        if (answer) width_answer_observe(by_model ? &answer->model : &answer->ngrams, choice, path);
    }
}
