// Private to app/: comparing two arithmetics of a model, teacher-forced, for tern fidelity, tern validate and tests.
//
// A answers every prompt greedily. Then A and B read prompt and answer, and at each position of the answer are
// compared: the share with the same best token (top-1), the divergence KL(A || B) in nats, and the perplexity that each
// gives the answer. Results are kept by answer and by band of positions; lines sum them up by category, band, or all.
#pragma once
#include "app/bench/bench_prompts.h"
#include "app/bench/bench_stats.h"
#include "study_side.h"

#define FIDELITY_BANDS 6
#define FIDELITY_ANSWER_MAX 1024
#define FIDELITY_PROMPT_IDS_MAX 8192
extern const int fidelity_band_begin[FIDELITY_BANDS]; // first position (tokens before it) of each band

struct fidelity_cell { // of one answer in one band
    int n;             // positions compared
    int n_equal;       // with the same best token
    int n_bad;         // where B gave a value that is not finite; they count as unequal and give no KL
    double kl, nll_a, nll_b;
};
struct fidelity_answer {
    int category;
    int32_t *ids; // prompt, then the answer
    int n_prompt, n_answer;
    struct fidelity_cell cells[FIDELITY_BANDS];
};
struct fidelity {
    struct tern_engine *text; // tokenizer and template; borrowed
    struct side a;
    int n_ctx, answer_max;
    struct fidelity_answer *answers; // [n_answers]
    int n_answers;
    float *rows; // [window][n_vocab] of A
    struct arena arena;
};
// Opens A (o names the model) and lets it answer the prompts. Closed after failure too.
enum tern_status fidelity_open(struct fidelity *f, const struct side_spec *a, const struct tern_engine_options *o,
                               struct tern_engine *text, const struct prompt_set *set, int n_ctx, int answer_max,
                               struct tern_err *err);
void fidelity_close(struct fidelity *f);
// Fills the cells of all answers. B has the model of A, or another file of it with the same vocabulary.
enum tern_status fidelity_compare(struct fidelity *f, struct side *b, struct tern_err *err);

// What a command needs to compare arithmetics with A: the model, an engine for its text, prompts and the answers of A.
struct fidelity_asked {
    const struct command *c;
    struct model_opts *model; // parsed; the engine's own options are taken from it
    const struct side_spec *a;
    const char *prompts; // file; NULL: a few of its own
    int thin;            // prompts of each category; 0: all
    int answer_max;
};
struct fidelity_run {
    struct fidelity f;
    struct prompt_set set;
    struct tern_engine_options options; // of further sides
    struct tern_engine *text;
    struct buf storage; // of the model's path
};
// 0, or the exit code after the error was told. fidelity_run_close after failure too.
int fidelity_run_open(struct fidelity_run *r, const struct fidelity_asked *q);
void fidelity_run_close(struct fidelity_run *r);

struct fidelity_line {
    char name[32];
    int n, n_bad;
    struct stats_interval top1, kl; // shares; nats
    double ppl_a, ppl_b;
};
// category, band: -1 for all. False: no positions there.
bool fidelity_line_make(const struct fidelity *f, const struct prompt_set *set, int category, int band,
                        struct fidelity_line *out);

// What an arithmetic must reach to be adopted.
struct fidelity_bounds {
    double top1;     // of all positions: at least
    double top1_any; // of every category and band with FIDELITY_LINE_MIN positions or more: at least
    double kl;       // nats: at most
    double ppl;      // perplexity under B over that under A: at most
};
#define FIDELITY_LINE_MIN 100
#define FIDELITY_BOUNDS ((struct fidelity_bounds){.top1 = 0.98, .top1_any = 0.95, .kl = 0.02, .ppl = 1.02})
struct fidelity_verdict {
    bool adopt;
    bool unsure; // the interval of top-1 holds the bound: more prompts would say more surely
    struct fidelity_line all, least;
    int n_bad;
    char why[256]; // what is missed; empty when adopted
};
struct fidelity_verdict fidelity_judge(const struct fidelity *f, const struct prompt_set *set,
                                       const struct fidelity_bounds *bounds);
