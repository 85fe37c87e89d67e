// Rounds of speculation in a request. The walk along the drafted tokens is plain decoding itself: at every node the
// next token is chosen, told and judged by the same functions that a plain step uses, in the same order, so sampling,
// penalties, constraints, log-probabilities, stop strings and limits cannot differ. What a round adds is only that the
// next row's output is there already when the choice was a drafted token.
//
// A round: pending features into the drafter's context, a block, a tree of it; one verify step; the walk; the commit of
// the path's rows; the path's features moved together, to be injected before the next draft.
#include "base/base.h"
#include "request_int.h"

#define NGRAM_LEN_MIN 3 // tokens that must match before what followed them is proposed
#define SEED_SHARE 4    // of a tree one node in so many may be such a token, in front of the draft model's

// Modes that look for the last words earlier in the text.
static bool follows_text(enum tern_draft mode) {
    return mode == TERN_DRAFT_NGRAM || mode == TERN_DRAFT_TREE || mode == TERN_DRAFT_AUTO;
}

enum tern_status request_draft_init(struct tern_request *r, const struct tern_request_options *o,
                                    struct tern_err *err) {
    const struct tern_engine *e = r->engine;
    struct request_draft *d = &r->draft;
    if ((unsigned)o->draft > TERN_DRAFT_TREE_FACTORISED || o->draft_max < 0 || o->draft_max > TERN_DRAFT_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "draft mode %d with %d tokens; known modes and 1 to %d are possible",
                       (int)o->draft, o->draft_max, TERN_DRAFT_MAX);
    if (o->draft_max >= e->window)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "%d drafted tokens and the one before them do not fit a window of %d rows", o->draft_max,
                       e->window);
    d->mode = o->draft == TERN_DRAFT_DEFAULT ? e->draft.mode : o->draft;
    bool by_ngram = d->mode == TERN_DRAFT_NGRAM;
    if (d->mode != TERN_DRAFT_OFF && !by_ngram && !e->draft.model && d->mode != TERN_DRAFT_AUTO)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "drafting by %s needs a draft model, and this engine was opened without one",
                       draft_mode_name(d->mode));
    if (d->mode == TERN_DRAFT_AUTO && e->draft.model && !e->draft.chooser.has_costs)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "draft auto needs the costs that are measured when an engine opens with draft auto; this one "
                       "was opened with %s",
                       draft_mode_name(e->draft.mode));
    d->max = draft_max_of(e, d->mode, o->draft_max);
    if (d->max < 1) d->mode = TERN_DRAFT_OFF;
    d->noise = (struct tree_noise){
        .temperature = o->temperature, .seed = o->seed, .top_k = o->top_k, .top_p = o->top_p, .min_p = o->min_p};
    width_text_init(&d->text);
    return TERN_OK;
}

enum tern_status request_draft_attach(struct tern_request *r, struct tern_err *err) {
    return follows_text(r->draft.mode) ? session_ngram_create(r->session, err) : TERN_OK;
}

// `auto` may never draft here: there the first draft pays for the prompt, and is chosen with that in mind.
enum tern_status request_draft_prompt(struct tern_request *r, struct tern_err *err) {
    enum tern_draft mode = r->draft.mode;
    if (mode == TERN_DRAFT_OFF || mode == TERN_DRAFT_NGRAM || mode == TERN_DRAFT_AUTO) return TERN_OK;
    mutex_lock(r->engine->mutex);
    enum tern_status status = session_draft_inject(r->session, err);
    mutex_unlock(r->engine->mutex);
    return status;
}

void request_draft_marker(struct tern_request *r, struct str bytes) {
    if (str_eqz(bytes, "<|tool_call_start|>") || str_eqz(bytes, "<tool_call>")) width_text_tool(&r->draft.text, true);
    if (str_eqz(bytes, "<|tool_call_end|>") || str_eqz(bytes, "</tool_call>")) width_text_tool(&r->draft.text, false);
}

// ------------------------------------------------------------------------------------------------------------ drafting

// Most drafted tokens now. One token left to choose: its row gives it, so nothing is gained.
int request_draft_room(const struct tern_request *r) {
    size_t free_rows = (size_t)r->engine->n_ctx - r->session->len - 1;
    if (r->n_max - (int)r->answer.len < 2) return 0;
    return (int)MIN((size_t)r->draft.max, free_rows);
}

enum tern_status request_draft_propose(struct tern_request *r, enum draft_source source, int budget,
                                       struct tern_err *err) {
    struct tern_session *s = r->session;
    struct engine_draft *ed = &r->engine->draft;
    struct request_draft *d = &r->draft;
    static const enum tree_method methods[] = {[TERN_DRAFT_AUTO] = TREE_CONDITIONED,
                                               [TERN_DRAFT_CHAIN] = TREE_CHAIN,
                                               [TERN_DRAFT_TREE] = TREE_CONDITIONED,
                                               [TERN_DRAFT_TREE_BIASED] = TREE_BIASED,
                                               [TERN_DRAFT_TREE_FACTORISED] = TREE_FACTORISED};
    token_tree_init(&d->tree, r->next);
    if (source == DRAFT_NONE) return TERN_OK;
    if (source == DRAFT_NGRAMS) {
        int32_t tokens[TREE_NODES_MAX];
        int n = ngram_propose(s->draft.ngram, NULL, 0, NGRAM_LEN_MIN, tokens, budget);
        token_tree_add_chain(&d->tree, 0, tokens, n, 1 + budget);
        return TERN_OK;
    }
    // A tree begins with what followed the same words earlier (3 % more tokens a round: doc/speculation.md).
    bool is_chain = d->mode == TERN_DRAFT_CHAIN || (ed->lm && d->mode == TERN_DRAFT_AUTO);
    if (methods[d->mode] == TREE_CONDITIONED && s->draft.ngram && !is_chain) {
        int32_t tokens[TREE_NODES_MAX / SEED_SHARE];
        int n = ngram_propose(s->draft.ngram, NULL, 0, NGRAM_LEN_MIN, tokens, budget / SEED_SHARE);
        token_tree_add_chain(&d->tree, 0, tokens, n, 1 + budget);
    }
    d->noise.pos = (int64_t)s->len + 1;
    if (ed->lm)
        return draft_lm_propose(ed->lm, s->draft.lm_lane, s->ids, s->len, !is_chain, &d->noise, 1 + budget, &d->tree,
                                err);
    TRY(session_draft_inject(s, err));
    return drafter_propose(ed->drafter, s->draft.blocks, ed->n_blocks, (int)s->draft.len, methods[d->mode], &d->noise,
                           1 + budget, &d->tree, err);
}

// -------------------------------------------------------------------------------------------------------- the round

static bool walk_choose(void *arg, const struct token_tree *t, int node, int32_t *token) {
    struct tern_request *r = arg;
    struct request_draft *d = &r->draft;
    int64_t pos = (int64_t)r->session->len + 1 + t->nodes[node].depth;
    *token = -1;
    d->status = request_choose(r, d->want, d->row + node, pos, d->err); // every row of the step has output
    if (d->status != TERN_OK) return false;
    d->status = request_take(r, &d->ended, &d->finish, &d->stopped, d->err);
    if (d->status != TERN_OK) return false;
    *token = r->next;
    return !d->ended;
}

// Features of the rows of many sequences lie behind all lanes, in the step's order.
static int features_row(const struct tern_engine *e, struct tern_request *const *requests, int n) {
    const struct session_draft *sd = &requests[0]->session->draft;
    return n == 1 ? sd->lane * e->draft.n_rows + (int)sd->pending : e->draft.n_rows * e->n_sessions;
}

static enum tern_status verify_run(struct tern_engine *e, struct tern_request *const *requests, int n, uint32_t want,
                                   const struct step **step, struct tern_err *err) {
    struct step_builder *b = &e->builder;
    for (int i = 0; i < n; i++) TRY(session_draft_room(requests[i]->session, requests[i]->draft.tree.n, err));
    step_begin(b, plan_pool(e->plan), STEP_KEEP_ROWS);
    for (int i = 0; i < n; i++) {
        struct tern_session *s = requests[i]->session;
        int seq = step_add_seq(b, s->blocks, s->n_blocks, (int32_t)s->len, s->len > 0 ? s->slot : -1, -1);
        requests[i]->draft.row = tree_step_add(b, seq, &requests[i]->draft.tree);
    }
    if (e->draft.plan) b->step.ports[PORT_FEATURES] = plan_draft_features(e->draft.plan, features_row(e, requests, n));
    *step = step_end(b);
    return plan_run(e->plan, *step, want, err);
}

// The path's rows are the session's now, and their features go behind those that it has.
static enum tern_status path_take(struct tern_request *r, int features, struct tern_err *err) {
    struct tern_session *s = r->session;
    const struct engine_draft *ed = &r->engine->draft;
    const struct accept_path *p = &r->draft.path;
    int to = ed->plan ? s->draft.lane * ed->n_rows + (int)s->draft.pending : 0;
    for (int i = 0; i < p->n; i++) {
        s->ids[s->len + (size_t)i] = r->draft.tree.nodes[p->nodes[i]].token;
        if (ed->plan) TRY(plan_draft_features_copy(ed->plan, to + i, features + r->draft.row + p->nodes[i], 1, err));
    }
    s->len += (size_t)p->n;
    if (ed->plan) s->draft.pending += (size_t)p->n;
    return TERN_OK;
}

static enum tern_status paths_commit(struct tern_engine *e, struct tern_request *const *requests, int n,
                                     const struct step *verify, struct tern_err *err) {
    struct step_builder *b = &e->draft.commit;
    int features = e->draft.plan ? features_row(e, requests, n) : 0;
    step_begin(b, plan_pool(e->plan), 0);
    for (int i = 0; i < n; i++) {
        struct tern_session *s = requests[i]->session;
        const struct request_draft *d = &requests[i]->draft;
        int seq = step_add_seq(b, s->blocks, s->n_blocks, (int32_t)s->len, s->len > 0 ? s->slot : -1, s->slot);
        path_step_add(b, seq, verify, d->row, &d->path);
    }
    enum tern_status status = plan_commit(e->plan, step_end(b), err);
    for (int i = 0; i < n && status == TERN_OK; i++) status = path_take(requests[i], features, err);
    for (int i = 0; i < n && status != TERN_OK; i++) session_fall_back(requests[i]->session);
    return status;
}

// Per depth: was there a token to check, and was one accepted? The last node of an answer that ends was not checked.
static void depths_count(struct tern_request *r) {
    const struct token_tree *t = &r->draft.tree;
    const struct accept_path *p = &r->draft.path;
    bool has_child[TREE_NODES_MAX] = {false};
    for (int i = 1; i < t->n; i++) has_child[t->nodes[i].parent] = true;
    for (int i = 0; i < p->n && i < TERN_DRAFT_DEPTHS; i++) {
        bool checked = i + 1 < p->n || !r->draft.ended;
        r->usage.n_tried[i] += checked && has_child[p->nodes[i]];
        r->usage.n_hit[i] += i + 1 < p->n;
    }
}

static void round_count(struct tern_request *r, size_t answer_before) {
    const struct request_draft *d = &r->draft;
    r->usage.n_steps++;
    if (d->tree.n < 2) return;
    r->usage.n_rounds++;
    r->usage.n_drafted += d->tree.n - 1;
    r->usage.n_accepted += d->path.n - 1;
    r->usage.n_round_tokens += (int64_t)(r->answer.len - answer_before);
    depths_count(r);
}

enum tern_status request_trees_run(struct tern_engine *e, struct tern_request *const *requests, int n,
                                   struct tern_err *err) {
    const struct step *verify = NULL;
    uint32_t want = PROG_OUT_ARGMAX;
    uint64_t start = clock_ns(), walks = 0;
    for (int i = 0; i < n; i++) {
        requests[i]->draft.status = TERN_OK;
        if (request_output(requests[i]) == PROG_OUT_LOGITS) want = PROG_OUT_LOGITS;
    }
    mem_freeze(true);
    enum tern_status status = verify_run(e, requests, n, want, &verify, err);
    mem_freeze(false);
    TRY(status);
    for (int i = 0; i < n; i++) {
        struct tern_request *r = requests[i];
        struct request_draft *d = &r->draft;
        size_t before = r->answer.len;
        uint64_t at = clock_ns();
        d->want = want;
        d->ended = d->stopped = false;
        accept_walk(&d->tree, walk_choose, r, &d->path);
        round_count(r, before);
        walks += clock_ns() - at;
        d->host_ns += clock_ns() - at;
    }
    mem_freeze(true);
    status = paths_commit(e, requests, n, verify, err);
    mem_freeze(false);
    uint64_t ns = clock_ns() - start - walks;
    for (int i = 0; i < n; i++) requests[i]->draft.verify_ns += ns;
    return status;
}

bool request_draft_place(struct tern_request *r, int room, struct draft_place *out) {
    struct request_draft *d = &r->draft;
    struct tern_session *s = r->session;
    if (follows_text(d->mode)) session_ngram_follow(s, r->next);
    if (d->mode != TERN_DRAFT_AUTO) return false;
    int match = ngram_match_len(s->draft.ngram);
    struct draft_lm *lm = r->engine->draft.lm;
    *out = (struct draft_place){.text = width_text_class(&d->text),
                                .ctx = (int64_t)s->len,
                                .behind = lm ? draft_lm_behind(lm, s->draft.lm_lane, s->len) : (int)s->draft.pending,
                                .budget_max = room,
                                .model_max = lm ? DRAFT_LM_DEPTHS : 0,
                                .match = match >= NGRAM_LEN_MIN ? match : 0,
                                .answer = &d->answer};
    return true;
}

// Source and number of drafted tokens of this round; d->round holds what `auto` thought.
static enum draft_source source_choose(struct tern_request *r, int room, int *budget) {
    struct request_draft *d = &r->draft;
    struct draft_place place;
    *budget = room;
    if (!request_draft_place(r, room, &place)) return d->mode == TERN_DRAFT_NGRAM ? DRAFT_NGRAMS : DRAFT_MODEL;
    draft_auto_choose(&r->engine->draft.chooser, &place, &d->round);
    *budget = d->round.budget;
    return d->round.source;
}

static enum tern_status round_run(struct tern_request *r, bool *ran, struct tern_err *err) {
    struct request_draft *d = &r->draft;
    int budget = 0;
    uint64_t start = clock_ns();
    mem_freeze(true);
    enum draft_source source = source_choose(r, request_draft_room(r), &budget);
    enum tern_status status = request_draft_propose(r, source, budget, err);
    mem_freeze(false);
    uint64_t drafted = clock_ns();
    d->draft_ns += drafted - start;
    TRY(status);
    *ran = d->tree.n > 1;
    if (!*ran) {
        if (source != DRAFT_NONE) d->n_empty++;
        d->n_plain++;
        if (d->mode == TERN_DRAFT_AUTO && r->engine->draft.model) d->n_plain_why[d->round.choice.reason]++;
        return TERN_OK;
    }
    d->err = err;
    status = request_trees_run(r->engine, &r, 1, err);
    TRY(d->status != TERN_OK ? d->status : status);
    if (d->mode == TERN_DRAFT_AUTO)
        draft_auto_learn(&r->engine->draft.chooser, &d->answer, &d->round, d->tree.n - 1, d->ended ? NULL : &d->path,
                         (double)(drafted - start), (double)(clock_ns() - start));
    return TERN_OK;
}

void request_draft_plain(struct tern_request *r, uint64_t step_ns) {
    if (r->draft.mode != TERN_DRAFT_AUTO) return;
    mutex_lock(r->engine->mutex);
    draft_auto_learn(&r->engine->draft.chooser, &r->draft.answer, &r->draft.round, 0, NULL, 0, (double)step_ns);
    mutex_unlock(r->engine->mutex);
}

enum tern_status request_draft_round(struct tern_request *r, bool *ran, struct tern_err *err) {
    *ran = false;
    r->draft.round = (struct draft_round){.source = DRAFT_NONE, .ctx = (int64_t)r->session->len};
    if (request_draft_room(r) < 1) return TERN_OK;
    mutex_lock(r->engine->mutex);
    enum tern_status status = round_run(r, ran, err);
    mutex_unlock(r->engine->mutex);
    TRY(status);
    return *ran && r->draft.ended ? request_finish(r, r->draft.finish, r->draft.stopped, err) : TERN_OK;
}

void request_draft_usage(struct tern_request *r) {
    struct request_draft *d = &r->draft;
    struct tern_usage *u = &r->usage;
    struct buf b;
    buf_init(&b, REQUEST_DRAFT_NOTE - 1);
    if (d->mode == TERN_DRAFT_OFF) {
        buf_puts(&b, r->engine->draft.mode == TERN_DRAFT_OFF ? r->engine->draft.note : "off");
    } else {
        buf_putf(&b, "%s, at most %d tokens: %lld rounds, %lld without drafts", draft_mode_name(d->mode), d->max,
                 (long long)u->n_rounds, (long long)d->n_plain);
        int most = 0;
        for (int i = 1; i <= WIDTH_PROBE; i++)
            if (d->n_plain_why[i] > d->n_plain_why[most]) most = i;
        if (d->n_plain_why[most] > 0) buf_putf(&b, " (mostly: %s)", width_reason_name((enum width_reason)most));
        if (d->n_empty > 0) buf_putf(&b, "; %lld times nothing was proposed", (long long)d->n_empty);
    }
    if (!b.failed && b.len < sizeof d->note) memcpy(d->note, b.data, b.len + 1);
    buf_release(&b);
    u->draft = d->note;
    u->draft_s = (double)d->draft_ns * 1e-9;
    u->verify_s = (double)d->verify_ns * 1e-9;
    u->draft_host_s = (double)d->host_ns * 1e-9;
}
