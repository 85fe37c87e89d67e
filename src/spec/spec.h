// The face of spec/: choosing the next token, and guessing several of them ahead.
//
//   sampler ........ the next token from logits, by the contract's rule
//   token trees .... drafted tokens, best first; built from a drafter's logits, a chain, or an n-gram match
//   acceptance ..... the verify step of a tree, the walk along the target's choices, the commit step of the path
//   n-gram drafter . continues the longest suffix of the text that occurred before
//   width .......... how many drafted tokens pay on this machine and this text; none is always a choice
//   share .......... the same for many sequences in one step
//
// A round of speculation: width_choose → tree_build / ngram_propose → tree_step_add → the unit → accept_walk →
// path_step_add → the unit → width_observe. Drafts never decide the text: only the sampler's choices on the target's
// rows do. Whatever is made with create or init allocates there; nothing else here allocates.
#pragma once
#include "base/base.h"
#include "prog/prog.h"
#include "plan/plan.h"

// ------------------------------------------------------------------------------------------------------------ sampler
//
// The sampler's rule is the contract's: after penalties, bias, constraint and filters, token = argmax(logit / T +
// Gumbel(seed, position, id)), which is exact sampling and gives the same text for a seed whether run plain,
// speculative, batched or cached. Temperature 0 is argmax, ties to the lowest id.

#define SAMPLER_REPEAT_LAST_MAX 4096

struct sampler_params {
    float temperature;    // 0: greedy
    int top_k;            // 0: off
    float top_p;          // 1: off
    float min_p;          // 0: off
    float repeat_penalty; // 1: off
    int repeat_last;
    float presence_penalty, frequency_penalty; // over the answer only
    uint64_t seed;
    const struct tern_logit_bias *bias; // [n_bias], borrowed
    int n_bias;
};
void sampler_params_default(struct sampler_params *p);
// Every field in its range, else TERN_INVALID_ARGUMENT naming the field, the range and the value. NaN is never in
// range.
enum tern_status sampler_params_check(const struct sampler_params *p, int n_vocab, struct tern_err *err);

struct sampler; // working memory for one sequence: nothing is allocated while sampling
enum tern_status sampler_create(struct sampler **out, const struct sampler_params *p, int n_vocab, int n_vocab_used,
                                struct tern_err *err);
void sampler_free(struct sampler *s);
// True when plain argmax of the raw logits is the answer (greedy, no penalties, no bias): the unit's argmax serves.
bool sampler_is_argmax(const struct sampler *s);
// Tells the sampler the tokens before the answer (penalties look back at them), then each chosen token.
void sampler_prompt(struct sampler *s, const int32_t *ids, size_t n);
void sampler_accept(struct sampler *s, int32_t id);

// What a constraint or a caller may ban: bit i%32 of word i/32 is id i; set = allowed. (n_vocab + 31) / 32 words.
struct sampler_choice {
    int32_t id;  // -1: nothing is allowed (mask or bias banned everything)
    float logit; // after penalties and bias
};
// Chooses for absolute position pos from logits [n_vocab] (unchanged). Order of the rules: bias, penalties, mask; then,
// at temperature > 0, logits / T, and on that distribution top-k, top-p, min-p, each over what the one before left,
// each keeping at least one id and preferring low ids among equals; then the noise. mask may be NULL.
struct sampler_choice sampler_pick(struct sampler *s, const float *logits, int64_t pos, const uint32_t *mask);
// Of the last sampler_pick: natural log-probability of an id over all ids at temperature 1, after bias, penalties and
// mask, before filters; -inf for banned ids.
float sampler_logprob(struct sampler *s, int32_t id);
// The n likeliest ids of that distribution, best first (ties: lowest id); returns how many there are.
int sampler_top(struct sampler *s, int n, int32_t *ids, float *logprobs);
// Test view of the last sampler_pick: the ids that survived the filters, best first; returns how many (at most cap
// written).
int sampler_kept(const struct sampler *s, int32_t *ids, int cap);

// The noise: -log(-log(u)), u in (0, 1) from Philox4x32-10 (Salmon et al. 2011): key = seed, counter = (id / 4,
// position), word id % 4; u = (word + 0.5) / 2^32.
float sampler_gumbel(uint64_t seed, int64_t pos, int32_t id);
#define SAMPLER_GUMBEL_MAX 22.9f // no noise exceeds it: -log(-log(1 - 2^-33))
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

// -------------------------------------------------------------------------------------------------------- token trees
//
// Node 0 is the root: the newest token of the text, whose row gives the first choice. Parents come before children, and
// nodes lie in the order in which a builder added them, best first, so trees are nested: the first k nodes of a tree
// are the tree of k. Order of two candidates: higher score, then lower depth, then lower token id, then the parent that
// was added first. Equal siblings do not occur.

#define TREE_NODES_MAX 64 // the root and 63 drafted tokens: the rows of a verify step
#define TREE_BLOCK_MAX 16 // depths of one drafter block
#define TREE_NO_NODE (-1)

struct tree_node {
    int32_t token;
    int16_t parent; // TREE_NO_NODE for the root
    int16_t depth;  // 0 for the root
    int16_t rank;   // its place in the drafter's order of the parent's children, 0 the first
    float score;    // the drafter's log-probability of the path; orders nodes, promises no acceptance
};
struct token_tree {
    int n; // nodes, root included
    struct tree_node nodes[TREE_NODES_MAX];
};
void token_tree_init(struct token_tree *t, int32_t root);
int token_tree_child(const struct token_tree *t, int node, int32_t token); // TREE_NO_NODE: no such child
// Adds a child, or finds it; TREE_NO_NODE when the tree is full. A new node ranks behind the children there are.
int token_tree_add(struct token_tree *t, int parent, int32_t token, float score);
// Adds tokens one below the other under node, along nodes that exist, until nodes_max nodes; returns the last one.
int token_tree_add_chain(struct token_tree *t, int node, const int32_t *tokens, int n, int nodes_max);
void token_tree_cut(struct token_tree *t, int n); // to its first n nodes, at least the root
// Tokens from depth 1 down to the node into out [TREE_NODES_MAX]; returns how many: the node's depth.
int token_tree_path(const struct token_tree *t, int node, int32_t *out);
// The rules above, and tokens within the vocabulary: for trees from elsewhere.
enum tern_status token_tree_check(const struct token_tree *t, int n_vocab, struct tern_err *err);

// The k largest of x, best first, ties to the lowest index; NaN and -infinity are never taken. Returns how many.
#define TOPK_MAX 128
int topk_select(const float *x, int n, int k, int32_t *ids, float *values);

// The SUCCESSORS_N likeliest tokens behind each token by the Markov head alone (the largest of W2·W1[token]). Rows are
// computed when first asked for, by the caller's product; the least recently used ones make room (clock). A row costs
// one product (rank × n_vocab multiply-adds: 1 M for pico, 17 M for 65,536 tokens and rank 256) and 256 bytes, the
// index 4 bytes a token. One thread at a time.
#define SUCCESSORS_N 64
#define SUCCESSORS_BYTES_DEFAULT (16u << 20)
typedef bool successors_product_fn(void *arg, int32_t token, float *out /* [n_vocab] */); // false: failed
struct successors;
// Ids n_used and above are never successors. bytes_max: of rows; at least one row, at most one for each token is kept.
enum tern_status successors_create(struct successors **out, int n_vocab, int n_used, size_t bytes_max,
                                   successors_product_fn *product, void *arg, struct tern_err *err);
void successors_free(struct successors *s);
// Best first, *n of them; borrowed until the next successors_get. NULL: the token is none, or the product failed.
const int32_t *successors_get(struct successors *s, int32_t token, int *n);
const int32_t *successors_find(struct successors *s, int32_t token, int *n); // NULL too when it has to be computed
struct successors_stats {
    int n_rows, n_rows_max;
    uint64_t n_fills, n_evictions;
    size_t bytes;
};
struct successors_stats successors_stats_get(const struct successors *s);

enum tree_method {
    TREE_CHAIN,      // the greedy chain
    TREE_FACTORISED, // one distribution for each depth: the base logits, no bias. For comparison
    TREE_BIASED,     // one distribution for each depth: base plus the bias of the greedy chain's token
    TREE_CONDITIONED // one distribution for each node: base plus its own token's bias
};
// Bias of each id as child of a node of t (its token, its depth, for heads with memory its path): out[i] is added to
// the base logit of ids[i], or of id i where ids is NULL and n is n_vocab. -infinity bans a child.
typedef void tree_bias_fn(void *arg, const struct token_tree *t, int node, const int32_t *ids, int n, float *out);

// How the sampler will choose, so that drafts are ranked with its own noise: a child at depth d is scored by base +
// bias + T · Gumbel(seed, pos + d - 1, id), and loses as much again as it lies below the filters' floor. At T = 0 that
// is the plain rule, which treats the drafter's error as noise of size 1 on the logits.
struct tree_noise {
    float temperature; // 0: none
    uint64_t seed;
    int64_t pos;        // what sampler_pick will be given for the root's row
    int top_k;          // 0: off
    float top_p, min_p; // 1 and 0: off
};
// One round's drafter output, borrowed during tree_build.
struct tree_source {
    int n_depths;      // rows of base: 1 … TREE_BLOCK_MAX
    int n_vocab;       // floats per row
    int n_used;        // ids from here on are padding, never drafted
    const float *base; // [n_depths][n_vocab] logits; row d ranks children of nodes of depth d; not finite: no candidate
    tree_bias_fn *bias; // NULL: none
    void *bias_arg;
    struct successors *successors; // NULL: the shortlist is the base's alone
    int fills_max;                 // successor rows to compute in this build; nodes beyond rank by the base's shortlist
    bool exact;                    // candidates from all ids, not from the shortlist
    struct tree_noise noise;
};
// A node's candidates are the 64 largest of its base row and its token's successors, and its scores are log-softmax
// over them (measured against the whole vocabulary: 0.993 of the accepted tokens at 46 nodes). exact: over all ids.
struct tree_builder; // working memory, for any source of at most n_vocab ids
enum tern_status tree_builder_create(struct tree_builder **out, int n_vocab, bool exact, struct tern_err *err);
void tree_builder_free(struct tree_builder *b);
// Grows t (a root, perhaps with nodes from another drafter, which stay first) to n nodes at most, root included.
void tree_build(struct tree_builder *b, enum tree_method method, const struct tree_source *s, int n,
                struct token_tree *t);

// ------------------------------------------------------------------------------------------------------------ drafter
//
// A draft model (model.h, struct model_drafter) run through a plan_draft, with its Markov head on the host: one block
// of base logits, then any tree of them. Its context is a sequence of its own: KV blocks by table, and len positions.

struct drafter;
struct drafter_stats {
    uint64_t n_drafts, n_rows_injected;
    struct successors_stats successors;
};
// window: rows of the plan's largest injection.
enum tern_status drafter_create(struct drafter **out, const struct model *m, struct plan_draft *plan, int window,
                                struct tern_err *err);
void drafter_free(struct drafter *d); // NULL is fine
// Does this model's Markov head read the drafter's normed rows (plan_draft_options.hidden)?
bool drafter_wants_hidden(const struct model *m);
uint64_t drafter_bytes(const struct model *m); // of host memory, weights in float included
int drafter_depths(const struct drafter *d);   // proposals of a block
int drafter_rows(const struct drafter *d);     // positions that a block writes behind the context
// n rows of features from feature_row on become positions len … len + n - 1.
enum tern_status drafter_inject(struct drafter *d, const int32_t *blocks, int n_blocks, int len, int n, int feature_row,
                                struct tern_err *err);
// One block behind len positions: t, whose root is the newest token, grows to n nodes at most.
enum tern_status drafter_propose(struct drafter *d, const int32_t *blocks, int n_blocks, int len,
                                 enum tree_method method, const struct tree_noise *noise, int n, struct token_tree *t,
                                 struct tern_err *err);
struct drafter_stats drafter_stats_get(const struct drafter *d);

// -------------------------------------------------------------------------------------------- a whole model as drafter
//
// A smaller language model of the same vocabulary drafts token by token: one step of it for each depth. A lane is its
// state of one sequence; it follows the text by comparing ids, so nobody has to tell it what was taken back.

#define DRAFT_LM_DEPTHS 16     // drafted tokens of a chain at most
#define DRAFT_LM_TREE_DEPTHS 8 // … of a tree's depth: the greedy chain's logits at each depth, branching

struct draft_lm_options {
    const struct model *model;
    struct unit *unit;
    struct unit_weights *weights;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int window, n_ctx; // rows of its largest step, positions of a sequence
    int n_lanes;
    int n_used; // ids of the target below this are tokens
};
struct draft_lm_stats {
    uint64_t n_drafts, n_steps, n_rows;
};
struct draft_lm;
enum tern_status draft_lm_create(struct draft_lm **out, const struct draft_lm_options *o, struct tern_err *err);
void draft_lm_free(struct draft_lm *d);                                    // NULL is fine
bool draft_lm_estimate(const struct draft_lm_options *o, uint64_t *bytes); // without weights; false: overflow
uint64_t draft_lm_bytes(const struct draft_lm *d);
int draft_lm_lane_take(struct draft_lm *d); // -1: all are taken
void draft_lm_lane_give(struct draft_lm *d, int lane);
// Of a text of n tokens, those that a draft would have to catch up with.
int draft_lm_behind(const struct draft_lm *d, int lane, size_t n);
// Behind the text ids[0 … n), below t's root, which follows it: t, a root alone unless it branches, grows to n_nodes at
// most.
enum tern_status draft_lm_propose(struct draft_lm *d, int lane, const int32_t *ids, size_t n, bool branches,
                                  const struct tree_noise *noise, int n_nodes, struct token_tree *t,
                                  struct tern_err *err);
struct draft_lm_stats draft_lm_stats_get(const struct draft_lm *d);

// --------------------------------------------------------------------------------------------------------- acceptance

// Adds the tree's nodes as rows of a verify step (STEP_KEEP_ROWS), all with head output; returns node 0's row, and node
// i has row + i. The root follows the committed context.
int tree_step_add(struct step_builder *b, int seq, const struct token_tree *t);

// The target's token behind a node (row). False: the text ends with it, so the walk does too. A negative token: nothing
// is allowed there; the walk ends without one.
typedef bool accept_choose_fn(void *arg, const struct token_tree *t, int node, int32_t *token);
struct accept_path {
    int n;                         // accepted nodes, root included
    int16_t nodes[TREE_NODES_MAX]; // ascending, nodes[0] = 0
    int32_t bonus;                 // the target's token behind the last of them; -1: none
};
// From the root to the child that equals the target's choice, until there is none; each node on the way is asked once,
// in order. The round's text: the tokens of nodes[1 …], then the bonus.
void accept_walk(const struct token_tree *t, accept_choose_fn *choose, void *arg, struct accept_path *out);
// Ready-made choices. Greedy: the unit's argmax of each node's row. Sampled: sampler_pick on each node's logits, and
// sampler_accept of what it chose, so that penalties see the path.
struct accept_greedy {
    const struct prog_argmax *rows; // [nodes]
    int32_t end;                    // the text ends with this token; -1: with none
};
accept_choose_fn accept_choose_greedy;
struct accept_sampled {
    struct sampler *sampler;
    const float *logits; // [nodes][stride]
    size_t stride;
    int64_t pos; // sampler_pick's for the root's row
    int32_t end;
    // The constraint after a node's path (a mask for sampler_pick, or NULL); NULL: no constraint.
    const uint32_t *(*mask)(void *arg, const struct token_tree *t, int node);
    void *mask_arg;
};
accept_choose_fn accept_choose_sampled;
// Tokens that the round would have given with only the first k drafted nodes: exact for greedy choices, and the reason
// why one verify teaches every narrower width.
int accept_tokens(const struct accept_path *p, int k);
// Adds the accepted rows to a commit step. row: what tree_step_add returned for the verify step.
void path_step_add(struct step_builder *b, int seq, const struct step *verify, int row, const struct accept_path *p);

// ------------------------------------------------------------------------------------------------------ n-gram drafter
//
// A suffix automaton over the text so far. Appending is O(1) amortised (about 0.1 µs), the longest suffix that occurred
// before is always at hand. About 130 bytes a token of capacity. A full one starts again from the newer half of its
// text, which costs as much as appending that.

#define NGRAM_TOKENS_MAX (1 << 17)
#define NGRAM_TOKENS_DEFAULT (1 << 15)
struct ngram;
enum tern_status ngram_create(struct ngram **out, int tokens_max, struct tern_err *err);
void ngram_free(struct ngram *g);
void ngram_clear(struct ngram *g);
void ngram_append(struct ngram *g, const int32_t *tokens, size_t n);
size_t ngram_len(const struct ngram *g); // tokens appended, those forgotten included
// Cuts the text to its first len tokens: built again from what is left, O(len). Cut into forgotten text, it is empty
// but keeps counting from len.
void ngram_truncate(struct ngram *g, size_t len);
int ngram_match_len(const struct ngram *g); // longest suffix of the text that ended earlier too; 0: none
// What followed the longest match of the text with `path` behind it, if that is at least len_min tokens: up to n tokens
// into out. A match that overlaps the end goes on periodically. Returns how many.
int ngram_propose(const struct ngram *g, const int32_t *path, int n_path, int len_min, int32_t *out, int n);
// Goes on below the deepest nodes of a tree, best score first, with what followed their paths in the text, by at most
// n_each tokens each, to nodes_max nodes at most. Returns how many were added.
int ngram_extend(const struct ngram *g, struct token_tree *t, int len_min, int n_each, int nodes_max);

// -------------------------------------------------------------------------------------------------------------- width
//
// How many drafted tokens to verify: the budget b that makes tokens per cost largest, A(b) / C(b), with C from measured
// curves and A(b), the tokens of a round, learned from every verify for all narrower budgets at once. Path
// probabilities of the drafter are not used: they promise too much. Budget 0 is plain decoding.
//
// Bound: what is lost to plain decoding stays below WIDTH_LOSS_MAX of the tokens so far, WIDTH_LOSS_START plain steps
// for all classes together, and WIDTH_LOSS_CLASS for each. It is kept by credit: every token earns a class
// WIDTH_LOSS_MAX of a plain step, rounds add what they gain and take what they lose, and a budget is taken only if the
// class could bear that the round gives one token alone. Credit ends at WIDTH_CREDIT_MAX, so a good hour does not pay
// for a bad one: that is the most that a change to the worse can cost. Bound and gain are as true as the curves, so
// these are corrected by what rounds really take (width_times).
//
// No clock and no random numbers: choices are a function of what went in, so they replay.

#define WIDTH_BUDGETS_MAX 48
#define WIDTH_ROWS_MAX 24 // points of a curve over rows
#define WIDTH_CTX_MAX 8   // … and over context
#define WIDTH_LOSS_MAX 0.006f
#define WIDTH_LOSS_START 3.0f // plain steps
#define WIDTH_LOSS_CLASS 1.0f // plain steps
#define WIDTH_CREDIT_MAX 8.0f // plain steps
#define WIDTH_GAIN_MIN 1.03f  // expected of drafting, or plain decoding it is
#define WIDTH_OFF_ROUNDS 512  // plain rounds after which a drafter is better put away

struct width_costs {
    int n_rows, n_ctx;
    int16_t rows[WIDTH_ROWS_MAX];                // ascending, from 1
    int32_t ctx[WIDTH_CTX_MAX];                  // ascending, positions
    float verify[WIDTH_CTX_MAX][WIDTH_ROWS_MAX]; // of a step with so many rows behind so many positions
    bool windows;               // fixed windows: rows between two points cost the upper point; else linear between
    float draft[WIDTH_CTX_MAX]; // of one block of the drafter, its context's update included
    float draft_node;           // of one more drafted node
    float host, host_plain;     // of a round, with drafts and without
    float catch_up;             // of one position that the drafter has not seen, after plain rounds
    float doubt;                // factor within the costs of more than one row, for times that do not repeat; 0: none
};
enum tern_status width_costs_check(const struct width_costs *c, struct tern_err *err);
float width_cost_verify(const struct width_costs *c, int rows, int64_t ctx); // beyond the points: the last slope
float width_cost_round(const struct width_costs *c, int budget, int64_t ctx);
// A step of so many sequences that draft nothing: nothing is doubted about it.
float width_cost_plain(const struct width_costs *c, int n_seqs, int64_t ctx);
// Mean acceptance that n_nodes more nodes need to pay: rate × what they cost, over n_nodes. rate: tokens per cost now.
float width_break_even(double rate, double cost_now, double cost_wider, int n_nodes);
// Dinkelbach: the index that maximises tokens[i] / cost[i]. Costs are positive; ties to the lowest index.
int width_maximise(const float *tokens, const float *cost, int n, double *rate);

enum width_class { WIDTH_PROSE, WIDTH_CODE, WIDTH_MATH, WIDTH_TOOL, WIDTH_CLASSES };
enum width_reason {
    WIDTH_BEST,       // the budget expected to be fastest
    WIDTH_PLAIN_BEST, // nothing is expected to beat plain decoding
    WIDTH_NO_CREDIT,  // something is, but the class has lost its allowance
    WIDTH_EXPLORE,    // a wider budget than the best, to learn
    WIDTH_PROBE,      // plain is best so far; is it still?
};
const char *width_reason_name(enum width_reason r);
struct width_input {
    enum width_class text;
    int64_t ctx;    // committed positions
    int pending;    // positions that the drafter has not seen
    int budget_max; // most drafted nodes that fit now
    float lean;     // how this answer's drafts do against its class's (width_lean); 0: as those
};
struct width_choice {
    int budget; // drafted nodes; 0: plain
    enum width_reason reason;
    bool off;       // plain for so long that the drafter may be put away
    float tokens;   // expected of this round
    float expected; // … of the class, whatever the answer's lean
    float gain;     // expected rate of this budget over that of plain decoding
};
struct width_stats {              // of one class
    float prior[TREE_NODES_MAX];  // acceptance of node k to start from
    float n[TREE_NODES_MAX];      // rounds that node k was verified in, fading
    float hits[TREE_NODES_MAX];   // … and accepted
    int64_t seen[TREE_NODES_MAX]; // round of the class it was last verified in, -1: never
    int64_t n_rounds, n_tokens;
    int64_t wide_round;            // round of the last widening or probe
    int64_t wide_tokens;           // n_tokens then
    int backoff;                   // doublings of the interval until the next
    float recent_n, recent_tokens; // drafted rounds of late, fading fast, their tokens …
    double recent_cost;            // … and cost
    double credit;                 // plain steps that it may lose
};
struct width {
    struct width_costs costs;
    int n_budgets;
    int16_t budgets[WIDTH_BUDGETS_MAX]; // ascending, above 0
    enum width_class last;              // class of the last round
    int64_t n_plain;                    // plain rounds in a row
    double pool;                        // plain steps that any class may lose beyond its credit
    struct width_stats stats[WIDTH_CLASSES];
};
// budgets NULL: about twenty from 1 to 63, and those that fill a width of the curves.
enum tern_status width_init(struct width *w, const struct width_costs *costs, const int16_t *budgets, int n_budgets,
                            struct tern_err *err);
// New curves, what was learned stays.
enum tern_status width_costs_set(struct width *w, const struct width_costs *costs, struct tern_err *err);
// What a class starts from, as tokens per round with 1 … n nodes (ascending): rounds is its weight, in rounds.
void width_prior_set(struct width *w, enum width_class text, const float *tokens, int n, float rounds);
struct width_choice width_choose(const struct width *w, const struct width_input *in);
// After a round: n_drafted nodes were verified (0: plain, path is ignored) and path accepted. took: what the round
// cost, 0 where that is not known; the credit pays the more of this and of the curves' word.
void width_observe(struct width *w, const struct width_input *in, const struct width_choice *choice, int n_drafted,
                   const struct accept_path *path, double took);
// For rounds that share a step with other sequences: what a round with 0 … TREE_NODES_MAX - 1 drafted nodes lets expect
// (lean as in width_choose), and what one taught of acceptance. The credit is the sharer's business.
void width_expect(const struct width *w, const struct width_input *in, float tokens[TREE_NODES_MAX]);
void width_learn(struct width *w, const struct width_input *in, int n_drafted, const struct accept_path *path);
// One answer among its class: accepted tokens, and those that the class let expect. Starts as {0}.
struct width_answer {
    float got, expected;
};
float width_lean(const struct width_answer *a);
void width_answer_observe(struct width_answer *a, const struct width_choice *choice, const struct accept_path *path);

// Curves corrected by what rounds took. Costs given must exceed 0; about 2 µs a call.
#define WIDTH_TIMES_KEEP 31
#define WIDTH_COST_OUTLIER 4.0f // a time counts as at most so many times the median
struct width_series {
    float v[WIDTH_TIMES_KEEP]; // ring of log(measured / expected), without the load
    int n, at;
    float median, level; // level: log of the mean without outliers, the correction
    float spread;        // mean distance from the median
};
struct width_times {
    struct width_costs base;
    struct width_series verify[WIDTH_ROWS_MAX]; // of each width of the curves
    struct width_series wider, draft;           // of all widths beyond one row; of drafts
    float load;                                 // log of what all costs are times the base of late
};
void width_times_init(struct width_times *t, const struct width_costs *costs);
// A step of so many rows with all that a round adds but the draft; a draft of so many nodes, catching up not included.
void width_times_step(struct width_times *t, int rows, int64_t ctx, double cost);
void width_times_draft(struct width_times *t, int budget, int64_t ctx, double cost);
void width_times_costs(const struct width_times *t, struct width_costs *out);

// What `auto` does in a round: which source drafts, how many tokens; nothing is always a choice. One for all sessions
// of an engine: what was learned and lost is counted once. Values in, values out: no clock.
enum draft_source { DRAFT_NONE, DRAFT_MODEL, DRAFT_NGRAMS };
struct draft_auto {
    bool has_model, has_costs;
    int n_plain; // plain steps seen before there are costs
    double plain_cost;
    struct width_times times;
    struct width width;       // of the draft model
    struct width ngram_width; // of n-grams: its classes are lengths of the match
    double shared_credit;     // plain steps that steps of several sequences may lose
};
struct draft_place {
    enum width_class text;
    int64_t ctx;                       // committed positions
    int behind;                        // of these, not yet in the drafter's context
    int budget_max;                    // most drafted tokens that fit
    int model_max;                     // … that the draft model can make; 0: any number
    int match;                         // tokens of the text's end that occurred before; 0: too few to draft from
    const struct draft_answer *answer; // NULL: nothing is known of this one yet
};
// How the two sources do in the answer at hand. Starts as {0}.
struct draft_answer {
    struct width_answer model, ngrams;
};
struct draft_round {
    enum draft_source source;
    int budget;
    bool asked_ngram; // there was a match to choose about
    int64_t ctx;
    struct width_input in, ngram_in;
    struct width_choice choice, ngram_choice;
};
void draft_auto_init(struct draft_auto *a, bool has_model);
// Curves measured beforehand. Without them rounds are plain until a few steps allow a guess; only without a model.
enum tern_status draft_auto_costs(struct draft_auto *a, const struct width_costs *costs, struct tern_err *err);
void draft_auto_choose(const struct draft_auto *a, const struct draft_place *at, struct draft_round *out);
// After the round: n_drafted nodes were checked (0: a plain step) and path accepted (NULL: the answer ended in it, so
// it says nothing). draft_cost: of its draft, cost: of everything, in the curves' unit.
void draft_auto_learn(struct draft_auto *a, struct draft_answer *answer, const struct draft_round *round, int n_drafted,
                      const struct accept_path *path, double draft_cost, double cost);

// The same for a step that several sequences share (share_rows). expect: what so many drafted tokens of either source
// give, [TREE_NODES_MAX] each; out->in.budget_max and out->ngram_in.budget_max are the most of each, 0 where it has
// none. False: no costs are known yet. learn: of acceptance alone; n_drafted > 0. step: rows of whatever sequences took
// so long together, drafts not included; draft: one of the model's, with nothing to catch up with.
bool draft_auto_expect(const struct draft_auto *a, const struct draft_place *at, struct draft_round *out, float *model,
                       float *ngrams);
void draft_auto_learn_shared(struct draft_auto *a, struct draft_answer *answer, const struct draft_round *round,
                             int n_drafted, const struct accept_path *path);
void draft_auto_step(struct draft_auto *a, int rows, bool drafted, int64_t ctx, double cost);
void draft_auto_draft(struct draft_auto *a, int n_drafted, int64_t ctx, double cost);

// Rows of one verify step among sequences, by confidence: whatever sequence the next drafted token is of, the one most
// likely to be accepted comes first, and the step ends where one more would cost more than it brings. With the steps'
// time they share its loss: it may not take more than SHARE_STRETCH times as long as with no drafts, for those that
// draft nothing wait too. A pure function of its arguments.
#define SHARE_STRETCH 1.5f
struct share_seq {
    const float *tokens; // [n_max + 1] expected of 0 … n_max drafted tokens; tokens[0] is 1
    int n_max;
    float draft, draft_node; // cost of a draft, and of each token of it
    int n;                   // out: of these, in the step
};
// rows: of the step without these drafts, each of them a token; at most rows_max with them. Returns expected tokens per
// cost over those of the step without (1: nothing pays, all n are 0).
double share_rows(const struct width_costs *c, int64_t ctx, struct share_seq *seqs, int n_seqs, int rows, int rows_max);

// What kind of text an answer is in, from its bytes so far: fences, line shapes and the share of certain signs in the
// last few hundred bytes, with some inertia. Cheap (a few ns a byte) and wrong at times: it only picks counters.
struct width_text {
    uint32_t signs_code, signs_math, bytes; // fading counts, 1/256
    int fence;                              // backticks in a row; in_fence: between two ```
    bool in_fence, in_tool, line_start;
    enum width_class now, next;
    int next_bytes; // bytes for which `next` has been seen
};
void width_text_init(struct width_text *t);
void width_text_put(struct width_text *t, const void *bytes, size_t n);
void width_text_tool(struct width_text *t, bool inside); // markers of a tool call, which are tokens of their own
enum width_class width_text_class(const struct width_text *t);
