// Question: how many tokens does a round of speculation give, by kind of draft and number of drafted tokens?
//
// Method. The engine answers every prompt greedily, without drafts. Then each place of each answer is an anchor: the
// drafter sees what it would have seen there, makes its tree of 63 drafted tokens, and the walk goes along the known
// text. Trees are nested, so that walk tells the accepted tokens for every smaller number too (but for trees with
// extensions, which are built for each number). Rounds are then replayed from the first token on: a round gives what it
// accepts and one more, cut at the text's end. Tokens per round are pooled: all tokens over all rounds.
//
// Intervals: paired bootstrap of prompts within categories, 2,000 draws, 95 %. They say nothing about other models.
// Stop rule: every prompt once. Nothing is timed.
#include "base/base.h"
#include "app/app.h"

#include <stdlib.h>

#include "app/bench/bench_prompts.h"
#include "study_int.h"
#include "study_runner.h"

#define DRAWS 2000
#define BUDGETS TREE_NODES_MAX // 0 … 63 drafted tokens
#define GROUPS_MAX (PROMPT_CATEGORIES_MAX + 3)
#define NGRAM_LEN_MIN 3 // as the engine's
#define SEED_SHARE 4    // of a tree one node in so many may be an n-gram's, in front: as the engine's
#define EXTEND_TOKENS 4 // behind the drafter's block
#define EXTEND_LEN_MIN 4

enum kind { K_CHAIN, K_FACTORISED, K_BIASED, K_TREE, K_NGRAM, K_SEEDED, K_EXTENDED, KINDS };
static const char *const kind_names[KINDS] = {"chain", "factorised", "biased", "tree", "n-grams", "seeded", "extended"};

struct answer_record {
    int n_anchors;     // answer tokens that a round can start from
    uint8_t *accepted; // [n_anchors][KINDS][BUDGETS] drafted tokens accepted
    int rounds[KINDS][BUDGETS];
};
struct study {
    const struct command *command;
    const struct acceptance_opts *o;
    struct tern_engine *engine;
    struct tern_session *session;
    struct model *model, *drafter;
    struct study_runner *runner;
    struct ngram *ngram;
    struct prompt_set prompts;
    struct answer_record *records; // [prompts.n]
    struct buf paths;
    int n_ctx;
};

// ------------------------------------------------------------------------------------------------------------ replay

// Nodes of the tree that lie on the text behind the anchor.
static void path_along(const struct token_tree *t, const int32_t *text, int n, struct accept_path *out) {
    *out = (struct accept_path){.n = 1};
    for (int node = 0, i = 0; i < n; i++) {
        node = token_tree_child(t, node, text[i]);
        if (node == TREE_NO_NODE) return;
        out->nodes[out->n++] = (int16_t)node;
    }
}

static void accepted_set(uint8_t *out, const struct accept_path *p) {
    for (int k = 0; k < BUDGETS; k++) out[k] = (uint8_t)(accept_tokens(p, k) - 1);
}

// The tree of k drafted tokens whose last ones go on below the block's end by what followed earlier in the text.
static void extended_set(const struct study *s, const struct token_tree *full, const int32_t *text, int n,
                         uint8_t *out) {
    struct accept_path p;
    for (int k = 0; k < BUDGETS; k++) {
        struct token_tree t = *full;
        int depth = 0, depths = s->drafter->drafter->n_proposals;
        token_tree_cut(&t, MAX(1 + k - EXTEND_TOKENS, 1));
        for (int i = 0; i < t.n; i++) depth = MAX(depth, t.nodes[i].depth);
        if (depth < depths || ngram_extend(s->ngram, &t, EXTEND_LEN_MIN, EXTEND_TOKENS, 1 + k) == 0) {
            t = *full;
            token_tree_cut(&t, 1 + k);
        }
        path_along(&t, text, n, &p);
        out[k] = (uint8_t)(p.n - 1);
    }
}

static void path_print(struct study *s, enum width_class text, int match, int by_ngrams, const struct accept_path *p) {
    if (!s->o->paths) return;
    buf_putf(&s->paths, "%d %d %d", (int)text, match, by_ngrams);
    for (int i = 1; i < p->n; i++) buf_putf(&s->paths, " %d", p->nodes[i]);
    buf_putc(&s->paths, '\n');
}

// Trees that begin with what followed the same words earlier, by as much as their size allows.
static enum tern_status seeded_run(struct study *s, const int32_t *ids, int at, int n, const int32_t *chain,
                                   int n_chain, uint8_t *out, struct tern_err *err) {
    uint8_t *seeded = out + K_SEEDED * BUDGETS;
    memcpy(seeded, out + K_TREE * BUDGETS, BUDGETS);
    for (int len = 1; n_chain > 0 && len <= (BUDGETS - 1) / SEED_SHARE; len++) {
        struct token_tree t;
        struct accept_path p;
        token_tree_init(&t, ids[at]);
        token_tree_add_chain(&t, 0, chain, MIN(n_chain, len), TREE_NODES_MAX);
        TRY(study_runner_propose(s->runner, TREE_CONDITIONED, at, TREE_NODES_MAX, &t, err));
        path_along(&t, ids + at + 1, n - at - 1, &p);
        for (int k = len * SEED_SHARE; k < MIN((len + 1) * SEED_SHARE, BUDGETS); k++)
            seeded[k] = (uint8_t)(accept_tokens(&p, k) - 1);
    }
    return TERN_OK;
}

// Everything behind one anchor: ids[at] is the newest token, ids[at + 1 … n) what will follow.
static enum tern_status anchor_run(struct study *s, const int32_t *ids, int at, int n, enum width_class class,
                                   uint8_t *out, struct tern_err *err) {
    static const enum tree_method methods[] = {TREE_CHAIN, TREE_FACTORISED, TREE_BIASED, TREE_CONDITIONED};
    struct token_tree t;
    struct accept_path p, tree_path;
    int32_t chain[TREE_NODES_MAX];
    const int32_t *rest = ids + at + 1;
    int n_rest = n - at - 1;
    for (int k = 0; k < (int)ARRAY_LEN(methods); k++) {
        token_tree_init(&t, ids[at]);
        TRY(study_runner_propose(s->runner, methods[k], at, TREE_NODES_MAX, &t, err));
        path_along(&t, rest, n_rest, &p);
        accepted_set(out + k * BUDGETS, &p);
    }
    tree_path = p; // K_TREE was the last
    extended_set(s, &t, rest, n_rest, out + K_EXTENDED * BUDGETS);
    int match = ngram_match_len(s->ngram);
    int n_chain = ngram_propose(s->ngram, NULL, 0, NGRAM_LEN_MIN, chain, TREE_NODES_MAX - 1);
    token_tree_init(&t, ids[at]);
    token_tree_add_chain(&t, 0, chain, n_chain, TREE_NODES_MAX);
    path_along(&t, rest, n_rest, &p);
    accepted_set(out + K_NGRAM * BUDGETS, &p);
    path_print(s, class, match >= NGRAM_LEN_MIN ? match : 0, p.n - 1, &tree_path);
    return seeded_run(s, ids, at, n, chain, n_chain, out, err);
}

static void class_follow(const struct study *s, struct width_text *w, int32_t id) {
    char bytes[64], plain[64];
    int64_t n = tern_detokenize(s->engine, &id, 1, true, bytes, sizeof bytes, NULL);
    bool marker = tern_detokenize(s->engine, &id, 1, false, plain, sizeof plain, NULL) == 0;
    if (n < 0 || n > (int64_t)sizeof bytes) return;
    if (!marker)
        width_text_put(w, bytes, (size_t)n);
    else if (str_eq((struct str){bytes, (size_t)n}, STR("<|tool_call_start|>")))
        width_text_tool(w, true);
    else if (str_eq((struct str){bytes, (size_t)n}, STR("<|tool_call_end|>")))
        width_text_tool(w, false);
}

static void rounds_count(struct answer_record *r) {
    for (int k = 0; k < KINDS; k++)
        for (int b = 0; b < BUDGETS; b++)
            for (int at = 0; at < r->n_anchors; r->rounds[k][b]++)
                at += 1 + r->accepted[((size_t)at * KINDS + (size_t)k) * BUDGETS + (size_t)b];
}

static enum tern_status answer_replay(struct study *s, int prompt, const int32_t *ids, int n_prompt, int n,
                                      struct tern_err *err) {
    struct answer_record *r = &s->records[prompt];
    const struct prompt *p = &s->prompts.items[prompt];
    struct width_text text;
    int32_t next;
    r->n_anchors = n - n_prompt - 1;
    r->accepted = mem_calloc((size_t)MAX(r->n_anchors, 1) * KINDS, BUDGETS);
    if (!r->accepted) return err_set(err, TERN_NO_MEMORY, "no memory for %d anchors", r->n_anchors);
    buf_putf(&s->paths, "prompt %s %s %d %d\n", s->prompts.categories[p->category], p->rote ? "rote" : "open", n_prompt,
             r->n_anchors);
    study_runner_clear(s->runner);
    TRY(study_runner_feed(s->runner, ids, n, &next, err));
    ngram_clear(s->ngram);
    ngram_append(s->ngram, ids, (size_t)n_prompt);
    width_text_init(&text);
    for (int i = 0; i < r->n_anchors; i++) {
        ngram_append(s->ngram, ids + n_prompt + i, 1);
        class_follow(s, &text, ids[n_prompt + i]);
        TRY(anchor_run(s, ids, n_prompt + i, n, width_text_class(&text), r->accepted + (size_t)i * KINDS * BUDGETS,
                       err));
    }
    rounds_count(r);
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------------------ answers

// The prompt's ids as the engine sees them: n_want of them.
static enum tern_status prompt_ids(struct study *s, const struct prompt *p, int n_want, int32_t *ids,
                                   struct tern_err *err) {
    struct tern_str messages = {p->messages.data, p->messages.len}, tools = {p->tools.data, p->tools.len};
    int64_t n = tern_template_render(s->engine, messages, tools, true, NULL, 0, err);
    if (n < 0) return (enum tern_status)n;
    char *text = mem_alloc((size_t)n + 1);
    if (!text) return err_set(err, TERN_NO_MEMORY, "no memory for a prompt");
    tern_template_render(s->engine, messages, tools, true, text, (size_t)n, err);
    int64_t n_ids = 0;
    for (int bos = 0; bos < 2 && n_ids != n_want; bos++)
        n_ids = tern_tokenize(s->engine, (struct tern_str){text, (size_t)n}, bos, true, ids, (size_t)n_want, err);
    mem_free(text);
    if (n_ids == n_want) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "a prompt whose text holds markers cannot be replayed");
}

static enum tern_status prompt_replay(struct study *s, int prompt, struct tern_err *err) {
    const struct prompt *p = &s->prompts.items[prompt];
    struct tern_request_options o;
    struct answer_view v;
    tern_request_options_default(&o);
    o.messages_json = (struct tern_str){p->messages.data, p->messages.len};
    o.tools_json = (struct tern_str){p->tools.data, p->tools.len};
    o.n_max = s->o->n_max;
    o.draft = TERN_DRAFT_OFF;
    answer_view_init(&v, false);
    enum tern_status status = tern_session_truncate(s->session, 0, err);
    if (status == TERN_OK) status = answer_view_run(&v, s->session, &o, err);
    if (status == TERN_OK && v.finish == TERN_FINISH_CANCELLED) status = err_set(err, TERN_CANCELLED, "interrupted");
    int n_prompt = (int)v.usage.n_prompt, n = n_prompt + (int)v.n_ids;
    int32_t *ids = NULL;
    if (status == TERN_OK) {
        ids = mem_calloc((size_t)n + 1, sizeof *ids);
        status = ids ? prompt_ids(s, p, n_prompt, ids, err) : err_set(err, TERN_NO_MEMORY, "no memory for ids");
    }
    if (status == TERN_OK) {
        memcpy(ids + n_prompt, v.ids, v.n_ids * sizeof *ids);
        status = answer_replay(s, prompt, ids, n_prompt, n, err);
    }
    mem_free(ids);
    answer_view_release(&v);
    return status;
}

// ------------------------------------------------------------------------------------------------------------ figures

// Groups: 0 all, 1 open, 2 rote, then the categories.
static bool in_group(const struct study *s, int prompt, int group) {
    const struct prompt *p = &s->prompts.items[prompt];
    return group == 0 || (group == 1 && !p->rote) || (group == 2 && p->rote) || group - 3 == p->category;
}

static const char *group_name(const struct study *s, int group) {
    static const char *const first[] = {"all", "open", "rote"};
    return group < 3 ? first[group] : s->prompts.categories[group - 3];
}

struct pick { // one curve's point
    enum kind kind;
    int budget;
};

// Tokens per round of a over that of b (b->budget 0: plain decoding, one a round), with weights of prompts.
static double ratio(const struct study *s, int group, struct pick a, struct pick b, const int *weights) {
    double rounds_a = 0, rounds_b = 0;
    for (int i = 0; i < s->prompts.n; i++) {
        if (!in_group(s, i, group)) continue;
        int w = weights ? weights[i] : 1;
        rounds_a += w * s->records[i].rounds[a.kind][a.budget];
        rounds_b += w * s->records[i].rounds[b.kind][b.budget];
    }
    return rounds_a > 0 ? rounds_b / rounds_a : 0;
}

static int double_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static uint32_t random_next(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33);
}

// Draws prompts within their categories.
static void weights_draw(const struct study *s, uint64_t *state, int *weights) {
    memset(weights, 0, (size_t)s->prompts.n * sizeof *weights);
    for (int c = 0; c < s->prompts.n_categories; c++) {
        int members[PROMPTS_MAX], n = 0;
        for (int i = 0; i < s->prompts.n; i++)
            if (s->prompts.items[i].category == c) members[n++] = i;
        for (int i = 0; i < n; i++) weights[members[random_next(state) % (uint32_t)n]]++;
    }
}

struct interval {
    double value, lo, hi;
};

static enum tern_status interval_get(const struct study *s, int group, struct pick a, struct pick b,
                                     struct interval *out, struct tern_err *err) {
    double *draws = mem_alloc(DRAWS * sizeof *draws);
    int *weights = mem_calloc((size_t)s->prompts.n, sizeof *weights);
    enum tern_status status = TERN_OK;
    uint64_t state = (uint64_t)s->o->seed;
    if (!draws || !weights) TRY_GOTO(err_set(err, TERN_NO_MEMORY, "no memory for a bootstrap"), done);
    for (int d = 0; d < DRAWS; d++) {
        weights_draw(s, &state, weights);
        draws[d] = ratio(s, group, a, b, weights);
    }
    qsort(draws, DRAWS, sizeof *draws, double_order);
    *out = (struct interval){ratio(s, group, a, b, NULL), draws[DRAWS / 40], draws[DRAWS - 1 - DRAWS / 40]};
done:
    mem_free(draws);
    mem_free(weights);
    return status;
}

static enum tern_status csv_write(const struct study *s, struct tern_err *err) {
    struct buf b;
    buf_init(&b, 16u << 20);
    buf_puts(&b, "kind,drafted");
    for (int g = 0; g < 3 + s->prompts.n_categories; g++) buf_putf(&b, ",%s", group_name(s, g));
    buf_putc(&b, '\n');
    for (int k = 0; k < KINDS; k++)
        for (int n = 1; n < BUDGETS; n++) {
            buf_putf(&b, "%s,%d", kind_names[k], n);
            for (int g = 0; g < 3 + s->prompts.n_categories; g++)
                buf_putf(&b, ",%.4f", ratio(s, g, (struct pick){(enum kind)k, n}, (struct pick){K_TREE, 0}, NULL));
            buf_putc(&b, '\n');
        }
    enum tern_status status = b.failed ? err_set(err, TERN_NO_MEMORY, "no memory for the table")
                                       : file_write_atomic(s->o->csv, b.data, b.len, err);
    buf_release(&b);
    return status;
}

// What this acceptance is worth on a machine whose rounds take so long.
static void cycles_print(const struct study *s) {
    static const struct pick picks[] = {{K_TREE, 0}, {K_CHAIN, 9}, {K_SEEDED, 46}};
    static const char *const names[] = {"plain", "chain of 9", "tree of 46"};
    double plain[GROUPS_MAX];
    out_puts("\ntokens/s (x plain) of rounds that take so many ms\n");
    for (int i = 0; i < 3; i++) {
        out_putf("%-12s %9.1f", names[i], s->o->cycle_ms[i]);
        for (int g = 0; g < 3 + s->prompts.n_categories; g++) {
            double rate = ratio(s, g, picks[i], picks[0], NULL) * 1e3 / s->o->cycle_ms[i];
            if (i == 0) plain[g] = rate;
            out_putf("  %s %.1f (%.2f)", group_name(s, g), rate, plain[g] > 0 ? rate / plain[g] : 0);
        }
        out_puts("\n");
    }
}

static enum tern_status results_print(const struct study *s, struct tern_err *err) {
    static const struct pick rows[] = {{K_CHAIN, 8},     {K_CHAIN, 9},    {K_FACTORISED, 46}, {K_BIASED, 46},
                                       {K_TREE, 8},      {K_TREE, 16},    {K_TREE, 32},       {K_TREE, 46},
                                       {K_TREE, 63},     {K_NGRAM, 8},    {K_SEEDED, 16},     {K_SEEDED, 46},
                                       {K_EXTENDED, 16}, {K_EXTENDED, 46}};
    static const struct {
        struct pick a, b;
        const char *text;
    } pairs[] = {{{K_TREE, 46}, {K_CHAIN, 9}, "tree 46 / chain 9"},
                 {{K_TREE, 8}, {K_CHAIN, 8}, "tree 8 / chain 8"},
                 {{K_TREE, 46}, {K_BIASED, 46}, "tree 46 / biased 46"},
                 {{K_SEEDED, 46}, {K_TREE, 46}, "seeded 46 / tree 46"},
                 {{K_SEEDED, 16}, {K_TREE, 16}, "seeded 16 / tree 16"},
                 {{K_EXTENDED, 46}, {K_TREE, 46}, "extended 46 / tree 46"},
                 {{K_EXTENDED, 16}, {K_TREE, 16}, "extended 16 / tree 16"}};
    const struct pick plain = {K_TREE, 0};
    struct interval v;
    int n_groups = 3 + s->prompts.n_categories;
    out_putf("%-22s", "tokens a round");
    for (int g = 0; g < n_groups; g++) out_putf(g ? " %7s" : " %22s", group_name(s, g));
    out_puts("\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        TRY(interval_get(s, 0, rows[i], plain, &v, err));
        out_putf("%-12s %9d %8.3f [%5.2f, %5.2f]", kind_names[rows[i].kind], rows[i].budget, v.value, v.lo, v.hi);
        for (int g = 1; g < n_groups; g++) out_putf(" %7.2f", ratio(s, g, rows[i], plain, NULL));
        out_puts("\n");
    }
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        for (int g = 0; g < 3; g++) {
            TRY(interval_get(s, g, pairs[i].a, pairs[i].b, &v, err));
            out_putf("%-22s %s %.3f [%.3f, %.3f]\n", pairs[i].text, group_name(s, g), v.value, v.lo, v.hi);
        }
    if (s->o->cycles) cycles_print(s);
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------------------ whole

static enum prog_class class_of(const char *name) {
    for (int c = 0; c < PROG_CLASS_COUNT; c++) {
        if (str_starts(str_from(name), str_from(prog_class_name((enum prog_class)c)))) return (enum prog_class)c;
    }
    TERN_BUG("class %s", name);
}

static enum tern_status runner_open(struct study *s, struct tern_err *err) {
    const char *path = s->o->model;
    struct str data = path ? (struct str){0} : builtin_model(&path);
    struct tern_model_info info;
    tern_engine_info(s->engine, &info);
    if (path)
        TRY(model_open(&s->model, path, err));
    else
        TRY(model_open_memory(&s->model, "built-in model", data.data, data.len, err));
    TRY(model_open_drafter(&s->drafter, s->o->drafter, s->model, err));
    s->n_ctx = info.n_ctx;
    struct study_options so = {.target = s->model,
                               .drafter = s->drafter,
                               .numerics = class_of(info.numerics),
                               .n_threads = s->o->n_threads,
                               .n_ctx = info.n_ctx};
    TRY(study_runner_create(&s->runner, &so, err));
    return ngram_create(&s->ngram, MIN(info.n_ctx + 1, NGRAM_TOKENS_DEFAULT), err);
}

static enum tern_status study_all(struct study *s, struct tern_err *err) {
    TRY(prompt_set_read(&s->prompts, s->o->prompts, err));
    if (s->o->n_each > 0) prompt_set_thin(&s->prompts, s->o->n_each);
    TRY(runner_open(s, err));
    TRY(tern_session_open(&s->session, s->engine, err));
    s->records = mem_calloc((size_t)s->prompts.n, sizeof *s->records);
    if (!s->records) return err_set(err, TERN_NO_MEMORY, "no memory for the records");
    struct progress bar;
    enum tern_status status = TERN_OK;
    progress_begin(&bar, "replaying", (uint64_t)s->prompts.n, false);
    for (int i = 0; i < s->prompts.n && status == TERN_OK; i++) {
        status = prompt_replay(s, i, err);
        progress_update(&bar, (uint64_t)(i + 1));
    }
    progress_end(&bar);
    TRY(status);
    TRY(results_print(s, err));
    if (s->o->csv) TRY(csv_write(s, err));
    if (!s->o->paths) return TERN_OK;
    if (s->paths.failed) return err_set(err, TERN_NO_MEMORY, "no memory for the paths");
    return file_write_atomic(s->o->paths, s->paths.data, s->paths.len, err);
}

int study_acceptance_run(const struct command *c, const struct acceptance_opts *o, struct tern_engine *e) {
    struct study *s = mem_calloc(1, sizeof *s);
    struct tern_err err = {0};
    if (!s) return EXIT_FAILED;
    s->command = c;
    s->o = o;
    s->engine = e;
    buf_init(&s->paths, 64u << 20);
    int code = study_all(s, &err) == TERN_OK ? EXIT_DONE : fail_told(c, &err);
    for (int i = 0; s->records && i < s->prompts.n; i++) mem_free(s->records[i].accepted);
    mem_free(s->records);
    ngram_free(s->ngram);
    study_runner_free(s->runner);
    tern_session_close(s->session);
    model_close(s->drafter);
    model_close(s->model);
    prompt_set_release(&s->prompts);
    buf_release(&s->paths);
    mem_free(s);
    return code;
}
