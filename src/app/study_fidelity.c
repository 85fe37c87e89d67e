// tern fidelity A B: how far B's predictions lie from A's, teacher-forced. A and B are arithmetics of one model:
// "UNIT/CLASS" ("cpu/fp32", "npu:ane-m1/int8").
//
// A answers every prompt greedily; both then read prompt and answer, and at each position of the answer are compared:
// the share with the same best token, the divergence KL(A || B) in nats, and the perplexity that each gives the answer.
// Positions of one answer depend on one another, so intervals (95 %) come from resampling whole answers. Agreement
// measures numerical fidelity and no more; perplexity alone can look harmless where it fails.
#include "base/base.h"
#include <math.h>
#include <stdlib.h>
#include "bench_lab.h"
#include "bench_prompts.h"

#define WINDOW 64
#define ANSWER_MAX 1024
#define RESAMPLES 1000
#define PROMPT_IDS_MAX 8192

struct side { // A or B
    const char *name;
    struct lab lab;
    struct lab_run run;
};
struct answer { // of one prompt
    int category;
    int n;       // positions compared
    int n_equal; // with the same best token
    double kl, nll_a, nll_b;
};
struct fidelity {
    const struct command *c;
    struct tern_engine *text; // tokenizer and template
    struct side a, b;
    int n_vocab, n_ctx, answer_max;
    int32_t *ids; // prompt, then answer
    float *rows;  // [WINDOW][n_vocab] of A
    struct answer *answers;
    int n_answers;
};

// "npu:fp32/int8" into options. The text before the last slash is kept in `unit`.
static bool side_parse(const char *text, struct tern_engine_options *o, char *unit, size_t cap) {
    const char *slash = strrchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    if (n == 0 || n >= cap) return false;
    memcpy(unit, text, n);
    unit[n] = 0;
    o->unit = unit;
    o->numerics = TERN_CLASS_INT8;
    if (slash && strcmp(slash, "/fp32") == 0) o->numerics = TERN_CLASS_FP32;
    return !slash || strcmp(slash, "/fp32") == 0 || strcmp(slash, "/int8") == 0;
}

static enum tern_status side_open(struct side *s, const char *name, const struct tern_engine_options *o, int n_ctx,
                                  struct tern_err *err) {
    s->name = name;
    TRY(lab_open(&s->lab, o, err));
    s->lab.model->hyper.n_vocab_used = MIN(s->lab.model->hyper.n_vocab_used, s->lab.model->hyper.n_vocab);
    return lab_run_open(&s->run, &s->lab, OP_KV_F16, n_ctx, 1, WINDOW, err);
}

static void side_close(struct side *s) {
    lab_run_close(&s->run);
    lab_close(&s->lab);
}

// Appends n tokens to the one sequence; the last `n_out` rows give logits.
static enum tern_status feed(struct side *s, const int32_t *ids, int n, int n_out, struct tern_err *err) {
    struct lab_run *r = &s->run;
    const struct state_pool *pool = plan_pool(r->plan);
    int32_t slot = pool->n_slots > 0 ? 0 : -1;
    step_begin(&r->b, pool, 0);
    int q = step_add_seq(&r->b, r->blocks, r->n_blocks, r->len[0], r->len[0] > 0 ? slot : -1, slot);
    for (int i = 0; i < n; i++) step_add_chain_row(&r->b, q, ids[i], i >= n - n_out);
    TRY(plan_run(r->plan, step_end(&r->b), n_out > 0 ? PROG_OUT_LOGITS : 0, err));
    r->len[0] += n;
    return TERN_OK;
}

static int best_of(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

// log of the sum of exponentials, in double.
static double log_sum(const float *x, int n) {
    double top = (double)x[best_of(x, n)], sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - top);
    return top + log(sum);
}

static void position_add(const struct fidelity *f, struct answer *w, const float *a, const float *b, int32_t next) {
    int n = f->a.lab.model->hyper.n_vocab_used;
    double za = log_sum(a, n), zb = log_sum(b, n), kl = 0;
    for (int i = 0; i < n; i++) {
        double la = (double)a[i] - za;
        if (la > -80) kl += exp(la) * (la - ((double)b[i] - zb));
    }
    w->n++;
    w->n_equal += best_of(a, n) == best_of(b, n);
    w->kl += kl;
    w->nll_a -= (double)a[next] - za;
    w->nll_b -= (double)b[next] - zb;
}

// A's greedy answer behind the prompt's ids; its length.
static enum tern_status answer_make(struct fidelity *f, int n_prompt, int *n_answer, struct tern_err *err) {
    f->a.run.len[0] = 0;
    *n_answer = 0;
    for (int at = 0; at < n_prompt; at += WINDOW) {
        int n = MIN(WINDOW, n_prompt - at);
        TRY(feed(&f->a, f->ids + at, n, at + n == n_prompt, err));
    }
    const struct model_vocab *v = &f->a.lab.model->vocab;
    while (*n_answer < f->answer_max && f->a.run.len[0] + 1 < f->n_ctx) {
        int32_t id = best_of(plan_logits(f->a.run.plan, 0), f->a.lab.model->hyper.n_vocab_used);
        f->ids[n_prompt + (*n_answer)++] = id;
        if (id == v->eos || id == v->eot) break;
        TRY(feed(&f->a, &id, 1, 1, err));
    }
    return TERN_OK;
}

static enum tern_status answer_compare(struct fidelity *f, int n_prompt, int n_answer, struct answer *w,
                                       struct tern_err *err) {
    int n = n_prompt + n_answer - 1; // the last token predicts nothing that is known
    f->a.run.len[0] = f->b.run.len[0] = 0;
    for (int at = 0; at < n; at += WINDOW) {
        int rows = MIN(WINDOW, n - at), first = MAX(n_prompt - 1 - at, 0), n_out = MAX(rows - first, 0);
        TRY(feed(&f->a, f->ids + at, rows, n_out, err));
        for (int i = 0; i < n_out; i++)
            memcpy(f->rows + (size_t)i * (size_t)f->n_vocab, plan_logits(f->a.run.plan, i),
                   (size_t)f->n_vocab * sizeof(float));
        TRY(feed(&f->b, f->ids + at, rows, n_out, err));
        for (int i = 0; i < n_out; i++)
            position_add(f, w, f->rows + (size_t)i * (size_t)f->n_vocab, plan_logits(f->b.run.plan, i),
                         f->ids[at + rows - n_out + i + 1]);
    }
    return TERN_OK;
}

static enum tern_status prompt_ids(struct fidelity *f, const struct prompt *p, int *n, struct tern_err *err) {
    struct tern_str messages = {p->messages.data, p->messages.len}, tools = {p->tools.data, p->tools.len};
    int64_t len = tern_template_render(f->text, messages, tools, true, NULL, 0, err);
    if (len < 0) return (enum tern_status)len;
    char *text = mem_alloc((size_t)len + 1);
    if (!text) return err_set(err, TERN_NO_MEMORY, "no memory for a prompt");
    len = tern_template_render(f->text, messages, tools, true, text, (size_t)len, err);
    int64_t count =
        tern_tokenize(f->text, (struct tern_str){text, (size_t)len}, false, true, f->ids, PROMPT_IDS_MAX, err);
    mem_free(text);
    if (count < 0) return (enum tern_status)count;
    if (count + 2 > f->n_ctx || count > PROMPT_IDS_MAX)
        return err_set(err, TERN_CONTEXT_FULL, "a prompt of %lld tokens; the context has %d", (long long)count,
                       f->n_ctx);
    *n = (int)count;
    return TERN_OK;
}

// -------------------------------------------------------------------------------------------------------------- report

struct figures {
    double agree, kl, ppl_a, ppl_b;
    int n;
};
// Of the answers picked[0 … n).
static struct figures figures_of(const struct fidelity *f, const int *picked, int n) {
    struct figures g = {0};
    double equal = 0, kl = 0, nll_a = 0, nll_b = 0;
    for (int i = 0; i < n; i++) {
        const struct answer *w = &f->answers[picked[i]];
        g.n += w->n;
        equal += w->n_equal;
        kl += w->kl;
        nll_a += w->nll_a;
        nll_b += w->nll_b;
    }
    double d = MAX(g.n, 1);
    return (struct figures){equal / d, kl / d, exp(nll_a / d), exp(nll_b / d), g.n};
}

static int double_cmp(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void line_put(const struct fidelity *f, const char *name, const int *picked, int n) {
    static double agree[RESAMPLES];
    static int again[PROMPTS_MAX];
    uint64_t random = 12345;
    if (n == 0) return;
    struct figures g = figures_of(f, picked, n);
    for (int r = 0; r < RESAMPLES; r++) {
        for (int i = 0; i < n; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            again[i] = picked[(random >> 33) % (uint64_t)n];
        }
        agree[r] = figures_of(f, again, n).agree;
    }
    qsort(agree, RESAMPLES, sizeof(double), double_cmp);
    out_putf("%-12s %8d %9.2f%% [%6.2f, %6.2f] %10.5f %10.3f %10.3f\n", name, g.n, 100 * g.agree,
             100 * agree[RESAMPLES / 40], 100 * agree[RESAMPLES - 1 - RESAMPLES / 40], g.kl, g.ppl_a, g.ppl_b);
}

static void report(const struct fidelity *f, const struct prompt_set *set) {
    static int picked[PROMPTS_MAX];
    out_putf("%s against %s, %s, %d answers of %s\n", f->b.name, f->a.name, f->a.lab.model->name, f->n_answers,
             f->a.name);
    out_putf("%-12s %8s %10s %16s %10s %10s %10s\n", "category", "tokens", "top-1", "95 %", "KL", "ppl A", "ppl B");
    for (int k = 0; k <= set->n_categories; k++) {
        int n = 0;
        for (int i = 0; i < f->n_answers; i++)
            if (k == set->n_categories || f->answers[i].category == k) picked[n++] = i;
        line_put(f, k == set->n_categories ? "all" : set->categories[k], picked, n);
    }
}

// ----------------------------------------------------------------------------------------------------------------- run

static enum tern_status run(struct fidelity *f, const struct prompt_set *set, struct tern_err *err) {
    f->n_vocab = f->a.lab.model->hyper.n_vocab;
    f->ids = mem_calloc(PROMPT_IDS_MAX + ANSWER_MAX, sizeof *f->ids);
    f->rows = mem_calloc((size_t)WINDOW * (size_t)f->n_vocab, sizeof *f->rows);
    f->answers = mem_calloc((size_t)set->n, sizeof *f->answers);
    if (!f->ids || !f->rows || !f->answers) return err_set(err, TERN_NO_MEMORY, "no memory to compare");
    struct progress bar;
    progress_begin(&bar, "comparing", (uint64_t)set->n, false);
    enum tern_status status = TERN_OK;
    for (int i = 0; i < set->n && status == TERN_OK; i++) {
        int n_prompt = 0, n_answer = 0;
        struct answer *w = &f->answers[f->n_answers];
        w->category = set->items[i].category;
        TRY_GOTO(prompt_ids(f, &set->items[i], &n_prompt, err), done);
        TRY_GOTO(answer_make(f, n_prompt, &n_answer, err), done);
        TRY_GOTO(answer_compare(f, n_prompt, n_answer, w, err), done);
        f->n_answers++;
        progress_update(&bar, (uint64_t)(i + 1));
    }
done:
    progress_end(&bar);
    return status;
}

static int fidelity_run(struct fidelity *f, struct model_opts *model, const char *const names[2], const char *file,
                        int thin) {
    struct tern_err err = {0};
    struct prompt_set set;
    char unit[2][64];
    struct tern_engine_options o[2] = {{0}, {0}};
    struct buf storage;
    buf_init(&storage, 0);
    if (!side_parse(names[0], &o[0], unit[0], sizeof unit[0]) || !side_parse(names[1], &o[1], unit[1], sizeof unit[1]))
        return usage_error(f->c, "A and B are UNIT/CLASS, class int8 or fp32: cpu/fp32, npu:ane-m1/int8");
    int code = model_opts_finish(f->c, model);
    if (code == 0) code = model_path_told(f->c, &model->engine.model_path, &storage);
    const char *path = model->engine.model_path; // into storage
    model->engine.unit = "null";
    if (code == 0) code = engine_open_told(f->c, model, &f->text);
    model->engine.model_path = path;
    for (int i = 0; i < 2; i++) { // the model that engine_open_told found
        const char *name = o[i].unit;
        enum tern_class numerics = o[i].numerics;
        o[i] = model->engine;
        o[i].unit = name;
        o[i].numerics = numerics;
        o[i].window = WINDOW;
    }
    if (code != 0) {
        buf_release(&storage);
        return code;
    }
    enum tern_status status = prompt_set_read(&set, file, &err);
    if (status == TERN_OK && thin > 0) prompt_set_thin(&set, thin);
    if (status == TERN_OK) status = side_open(&f->a, names[0], &o[0], f->n_ctx, &err);
    if (status == TERN_OK) status = side_open(&f->b, names[1], &o[1], f->n_ctx, &err);
    if (status == TERN_OK) status = run(f, &set, &err);
    if (status == TERN_OK) report(f, &set);
    side_close(&f->a);
    side_close(&f->b);
    prompt_set_release(&set);
    tern_engine_close(f->text);
    buf_release(&storage);
    mem_free(f->ids);
    mem_free(f->rows);
    mem_free(f->answers);
    return status == TERN_OK ? EXIT_DONE : fail_told(f->c, &err);
}

static int fidelity_main(const struct command *c, int argc, char **argv) {
    struct model_opts model;
    struct fidelity f = {.c = c, .answer_max = 64};
    model_opts_init(&model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&model, model_rows);
    const char *file = NULL;
    int thin = 0;
    const struct opt rows[] = {
        {"--prompts", 'f', "FILE", OPT_TEXT, &file, 0, 0,
         "prompts, one JSON object a line (default: a few of its own)"},
        {"--each", 0, "N", OPT_INT, &thin, 1, PROMPTS_MAX, "prompts of each category (default: all)"},
        {"--answer", 0, "N", OPT_INT, &f.answer_max, 1, ANSWER_MAX, "tokens of an answer at most (default 64)"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args != 2) return usage_error(c, "two arithmetics expected: A, the reference, and B");
    f.n_ctx = model.engine.n_ctx > 0 ? model.engine.n_ctx : 1024;
    const char *const names[2] = {argv[1], argv[2]};
    return fidelity_run(&f, &model, names, file, thin);
}

const struct command command_fidelity = {"fidelity", "A B", "how far an arithmetic's predictions lie from another's",
                                         "A and B are UNIT/CLASS: cpu/fp32, cpu/int8, npu:fp32/fp32, "
                                         "npu:coreai-linux/int8, npu:ane-m1/int8, …",
                                         fidelity_main};
