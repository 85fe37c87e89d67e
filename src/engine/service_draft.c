// Steps in which streams have drafted rows. Alone, a stream drafts as a request does. Several share the rows of one
// verify step: every stream's root is in it, and drafted tokens of whatever streams, most likely ones first, as long as
// they bring more tokens than their time is worth (share_rows). A full batch has no such rows left over, so drafting
// turns itself down there; prompts at work come before it altogether. What a stream says cannot change: the walk is
// that of a request alone (request_draft.c).
//
// Costs by the rows of a step are those that requests alone use and correct, whosever rows they are; steps of many
// correct them too. What all that may lose to plain steps is bounded by a credit, as for one sequence (width). It is
// the engine's: a service's own would be lost anew by each that lives shortly.
//
// A stream that was told how to draft (chain, tree, n-grams) has an equal share of what rows there are, paying or not.
#include "base/base.h"
#include "service_int.h"

// --------------------------------------------------------------------------------------------------------------- costs

static int64_t ctx_mean(const struct tern_service *s) {
    size_t sum = 0;
    for (int i = 0; i < s->n_running; i++) sum += s->running[i]->session->len;
    return (int64_t)(sum / (size_t)s->n_running);
}

// The step's gain in plain steps, by the corrected costs.
static void credit_move(struct draft_auto *a, double gain) {
    a->shared_credit = MIN(MAX(a->shared_credit + gain + (double)WIDTH_LOSS_MAX, 0), (double)WIDTH_CREDIT_MAX);
}

void service_draft_plain(struct tern_service *s, int n_streams, uint64_t ns) {
    if (s->n_running == 0) return;
    mutex_lock(s->engine->mutex);
    draft_auto_step(&s->engine->draft.chooser, n_streams, false, ctx_mean(s), (double)ns);
    credit_move(&s->engine->draft.chooser, 0);
    mutex_unlock(s->engine->mutex);
}

// Of a draft: at all, and of each token.
static void draft_cost(const struct width_costs *c, const struct width_input *in, struct share_seq *q) {
    float one = width_cost_round(c, 1, in->ctx) - width_cost_verify(c, 2, in->ctx) - c->host;
    q->draft_node = c->draft_node;
    q->draft = MAX(one - c->draft_node, 0) + c->catch_up * (float)in->pending;
}

// -------------------------------------------------------------------------------------------------------------- shares

// Most that drafted tokens could bring for what they cost, a row at `row` and a token worth `worth`.
static float source_worth(const struct share_seq *q, float worth, float row) {
    float most = 0;
    for (int k = 1; k <= q->n_max; k++)
        most = MAX(most, worth * (q->tokens[k] - 1) - q->draft - (float)k * (q->draft_node + row));
    return most;
}

// The better source of an `auto` stream, and what it lets expect.
static void stream_expect(struct tern_service *s, int i, int64_t ctx, const struct draft_place *place) {
    struct service_draft *d = &s->draft;
    struct draft_round *round = &d->requests[i]->draft.round;
    const struct width_costs *c = &s->engine->draft.chooser.width.costs;
    struct share_seq model = {.tokens = d->model[i]}, ngrams = {.tokens = d->ngrams[i]};
    d->seqs[i] = (struct share_seq){.tokens = d->model[i]};
    if (!draft_auto_expect(&s->engine->draft.chooser, place, round, d->model[i], d->ngrams[i])) return;
    model.n_max = MIN(round->in.budget_max, TREE_NODES_MAX - 1);
    ngrams.n_max = MIN(round->ngram_in.budget_max, TREE_NODES_MAX - 1);
    draft_cost(c, &round->in, &model);
    int n = s->n_running;
    float step = width_cost_verify(c, n, ctx), row = (width_cost_verify(c, 2 * n, ctx) - step) / (float)n;
    float worth = width_cost_plain(c, n, ctx) / (float)n;
    bool by_ngrams = source_worth(&ngrams, worth, row) >= source_worth(&model, worth, row);
    round->source = by_ngrams ? DRAFT_NGRAMS : DRAFT_MODEL;
    d->seqs[i] = by_ngrams ? ngrams : model;
}

// Drafted tokens of each stream; returns how many in all, *gain: expected of the step over a plain one.
static int budgets_share(struct tern_service *s, int budgets[TERN_STREAMS_MAX]) {
    struct service_draft *d = &s->draft;
    struct draft_place place;
    int n = s->n_running, rows = n, rows_max = MIN(s->engine->window, ENGINE_OUT_ROWS_MAX);
    int64_t ctx = ctx_mean(s);
    bool any = false;
    d->n_told = 0;
    for (int i = 0; i < n; i++) {
        struct request_draft *rd = &d->requests[i]->draft;
        int room = rd->mode == TERN_DRAFT_OFF ? 0 : request_draft_room(d->requests[i]);
        budgets[i] = 0;
        d->seqs[i] = (struct share_seq){.tokens = d->model[i]};
        rd->round = (struct draft_round){.source = DRAFT_NONE, .ctx = (int64_t)d->requests[i]->session->len};
        if (room < 1) continue;
        if (!request_draft_place(d->requests[i], room, &place)) {
            rd->round.source = rd->mode == TERN_DRAFT_NGRAM ? DRAFT_NGRAMS : DRAFT_MODEL;
            budgets[i] = room;
            d->n_told++;
        } else if (s->engine->draft.chooser.has_costs) {
            stream_expect(s, i, ctx, &place);
            any = true;
        }
    }
    for (int i = 0; i < n; i++) {
        budgets[i] = MIN(budgets[i], d->n_told > 0 ? (rows_max - n) / d->n_told : 0);
        rows += budgets[i];
    }
    // The credit must bear a step that gives nothing beyond its roots.
    if (any && s->engine->draft.chooser.shared_credit >= (double)SHARE_STRETCH - 1) {
        share_rows(&s->engine->draft.chooser.width.costs, ctx, d->seqs, n, rows, rows_max);
        for (int i = 0; i < n; i++) budgets[i] += d->seqs[i].n;
    }
    int sum = 0;
    for (int i = 0; i < n; i++) {
        if (budgets[i] == 0) d->requests[i]->draft.round.source = DRAFT_NONE;
        sum += budgets[i];
    }
    return sum;
}

// ---------------------------------------------------------------------------------------------------------------- step

// What the streams propose; *n_drafted 0: nothing.
static enum tern_status trees_propose(struct tern_service *s, const int budgets[TERN_STREAMS_MAX], int *n_drafted,
                                      struct tern_err *err) {
    struct service_draft *d = &s->draft;
    *n_drafted = 0;
    for (int i = 0; i < s->n_running; i++) {
        struct request_draft *rd = &d->requests[i]->draft;
        uint64_t start = clock_ns();
        TRY(request_draft_propose(d->requests[i], rd->round.source, budgets[i], err));
        *n_drafted += rd->tree.n - 1;
        if (budgets[i] == 0) continue;
        double ns = (double)(clock_ns() - start);
        rd->draft_ns += (uint64_t)ns;
        if (rd->tree.n < 2) rd->n_empty++;
        if (rd->round.source == DRAFT_MODEL && rd->mode == TERN_DRAFT_AUTO && rd->round.in.pending == 0)
            draft_auto_draft(&s->engine->draft.chooser, budgets[i], rd->round.ctx, ns);
    }
    return TERN_OK;
}

// ns: of the verify step, walks and commit. ns_drafts: of what was drafted for it.
static void trees_learn(struct tern_service *s, int n_drafted, double ns, double ns_drafts) {
    struct service_draft *d = &s->draft;
    struct draft_auto *a = &s->engine->draft.chooser;
    int n = s->n_running, n_tokens = 0;
    for (int i = 0; i < n; i++) {
        struct request_draft *rd = &d->requests[i]->draft;
        n_tokens += rd->path.n;
        if (rd->tree.n < 2) rd->n_plain++;
        if (rd->tree.n < 2 || rd->mode != TERN_DRAFT_AUTO || rd->ended) continue;
        draft_auto_learn_shared(a, &rd->answer, &rd->round, rd->tree.n - 1, &rd->path);
    }
    int64_t ctx = ctx_mean(s);
    draft_auto_step(a, n + n_drafted, true, ctx, ns);
    if (!a->has_costs || d->n_told > 0) return;
    const struct width_costs *c = &a->width.costs;
    double plain = (double)width_cost_plain(c, n, ctx);
    double cost = (double)(width_cost_verify(c, n + n_drafted, ctx) + c->host);
    for (int i = 0; i < n; i++) {
        const struct share_seq *q = &d->seqs[i];
        if (q->n > 0) cost += (double)(q->draft + q->draft_node * (float)q->n);
    }
    // The more of what it took and of the curves' word, as for one sequence: a wrong curve must not hide a loss.
    double paid = MAX(cost, MIN(ns + ns_drafts, (double)WIDTH_COST_OUTLIER * cost));
    credit_move(a, (double)n_tokens / n - paid / plain);
}

static void step_count(struct tern_service *s, int n_drafted, uint64_t ns) {
    uint64_t before = s->step_end_ns;
    s->step_end_ns = clock_ns();
    mutex_lock(s->mutex);
    s->info.token_wait_ns_max = MAX(s->info.token_wait_ns_max, s->step_end_ns - before);
    s->info.n_steps++;
    s->info.step_ns += ns;
    s->info.n_step_rows += (uint64_t)(s->n_running + n_drafted);
    for (int i = 0; i < s->n_running; i++)
        s->running[i]->tenant->served += (uint64_t)s->draft.requests[i]->draft.tree.n;
    mutex_unlock(s->mutex);
}

// From the streams' trees to what they say; the jobs' errors are their own.
static void trees_run(struct tern_service *s, int n_drafted, double ns_drafts, enum tern_status status[]) {
    struct service_draft *d = &s->draft;
    struct tern_err err = {0};
    size_t len[TERN_STREAMS_MAX];
    int n = s->n_running;
    for (int i = 0; i < n; i++) {
        d->requests[i]->draft.err = &s->running[i]->err;
        len[i] = s->running[i]->session->len;
    }
    uint64_t start = clock_ns();
    enum tern_status ran = request_trees_run(s->engine, d->requests, n, &err);
    for (int i = 0; i < n; i++) {
        status[i] = d->requests[i]->draft.status;
        if (ran == TERN_OK) service_prefix_store(s, s->running[i], (int)(s->running[i]->session->len - len[i]), -1);
        if (ran == TERN_OK || status[i] != TERN_OK) continue;
        status[i] = ran;
        s->running[i]->err = err;
    }
    if (ran == TERN_OK) trees_learn(s, n_drafted, (double)(clock_ns() - start), ns_drafts);
}

static bool may_draft(const struct tern_service *s) {
    bool any = false;
    for (int i = 0; i < s->n_running; i++) {
        const struct tern_request *r = s->running[i]->request;
        if (r->phase != REQUEST_ANSWER) return false;
        any = any || r->draft.mode != TERN_DRAFT_OFF;
    }
    return any && s->n_running <= MIN(s->engine->window, ENGINE_OUT_ROWS_MAX);
}

static bool together_run(struct tern_service *s) {
    struct service_draft *d = &s->draft;
    struct tern_job *jobs[TERN_STREAMS_MAX];
    enum tern_status status[TERN_STREAMS_MAX];
    int budgets[TERN_STREAMS_MAX], n = s->n_running, n_drafted = 0;
    struct tern_err err = {0};
    memcpy(jobs, s->running, (size_t)n * sizeof *jobs);
    for (int i = 0; i < n; i++) d->requests[i] = jobs[i]->request;
    mutex_lock(s->engine->mutex);
    uint64_t start = clock_ns();
    mem_freeze(true);
    enum tern_status drafted = budgets_share(s, budgets) > 0 ? trees_propose(s, budgets, &n_drafted, &err) : TERN_OK;
    mem_freeze(false);
    double ns_drafts = (double)(clock_ns() - start);
    if (drafted == TERN_OK && n_drafted > 0) trees_run(s, n_drafted, ns_drafts, status);
    mutex_unlock(s->engine->mutex);
    if (drafted == TERN_OK && n_drafted == 0) {
        for (int i = 0; i < n; i++) d->requests[i]->draft.n_plain += d->requests[i]->draft.mode != TERN_DRAFT_OFF;
        return false;
    }
    step_count(s, n_drafted, clock_ns() - start);
    for (int i = 0; i < n; i++) {
        const struct request_draft *rd = &d->requests[i]->draft;
        if (drafted != TERN_OK) {
            status[i] = drafted;
            jobs[i]->err = err;
        }
        if (status[i] == TERN_OK && rd->ended)
            status[i] = request_finish(jobs[i]->request, rd->finish, rd->stopped, &jobs[i]->err);
        service_took(s, jobs[i], false, status[i], &jobs[i]->err);
    }
    return true;
}

static bool alone_run(struct tern_service *s) {
    struct tern_job *j = s->running[0];
    struct tern_request *r = j->request;
    bool ran = false;
    int64_t before = r->usage.n_drafted;
    size_t len = j->session->len;
    s->draft.requests[0] = r;
    uint64_t start = clock_ns();
    enum tern_status status = request_draft_round(r, &ran, &j->err);
    if (status == TERN_OK && !ran) return false;
    mutex_lock(s->engine->mutex);
    if (status == TERN_OK) service_prefix_store(s, j, (int)(j->session->len - len), -1);
    mutex_unlock(s->engine->mutex);
    step_count(s, (int)(r->usage.n_drafted - before), clock_ns() - start);
    service_took(s, j, false, status, &j->err);
    return true;
}

bool service_draft_run(struct tern_service *s) {
    if (!may_draft(s)) return false;
    return s->n_running == 1 ? alone_run(s) : together_run(s);
}
