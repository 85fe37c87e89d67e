// Two arithmetics over the same text: answers of A, positions compared, lines and the verdict. See study_fidelity.h.
//
// Nothing is kept of a position but sums, so any number of B can be compared with the answers of one A; A reads them
// again for each, which costs less than keeping its logits.
#include "base/base.h"
#include <math.h>
#include <stdio.h>
#include "study_fidelity.h"

const int fidelity_band_begin[FIDELITY_BANDS] = {0, 64, 128, 256, 512, 1024};

static int band_of(int position) {
    int band = 0;
    while (band + 1 < FIDELITY_BANDS && position >= fidelity_band_begin[band + 1]) band++;
    return band;
}

// ----------------------------------------------------------------------------------------------------------- positions

static int best_of(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

// log of the sum of exponentials, in double; not finite when some value is not.
static double log_sum(const float *x, int n) {
    double top = (double)x[best_of(x, n)], sum = 0, check = 0;
    for (int i = 0; i < n; i++) {
        sum += exp((double)x[i] - top);
        check += (double)x[i] * 0; // not 0 for infinite values and NaN
    }
    return top + log(sum) + check;
}

static void position_add(struct fidelity_cell *c, const float *a, const float *b, int n, int32_t next) {
    double za = log_sum(a, n), zb = log_sum(b, n), kl = 0;
    c->n++;
    if (!(zb - zb == 0)) {
        c->n_bad++;
        return;
    }
    for (int i = 0; i < n; i++) {
        double la = (double)a[i] - za;
        if (la > -80) kl += exp(la) * (la - ((double)b[i] - zb));
    }
    c->n_equal += best_of(a, n) == best_of(b, n);
    c->kl += kl;
    c->nll_a -= (double)a[next] - za;
    c->nll_b -= (double)b[next] - zb;
}

// ------------------------------------------------------------------------------------------------------------- answers

// The prompt's ids, with room for an answer behind them.
static enum tern_status prompt_ids(struct fidelity *f, const struct prompt *p, struct fidelity_answer *w,
                                   struct tern_err *err) {
    struct tern_str messages = {p->messages.data, p->messages.len}, tools = {p->tools.data, p->tools.len};
    int64_t len = tern_template_render(f->text, messages, tools, true, NULL, 0, err);
    if (len < 0) return (enum tern_status)len;
    char *text = mem_alloc((size_t)len + 1);
    int32_t *ids = mem_calloc(FIDELITY_PROMPT_IDS_MAX, sizeof *ids);
    enum tern_status status = TERN_OK;
    int64_t count = 0;
    if (!text || !ids) {
        status = err_set(err, TERN_NO_MEMORY, "no memory for a prompt");
        goto done;
    }
    len = tern_template_render(f->text, messages, tools, true, text, (size_t)len, err);
    count =
        tern_tokenize(f->text, (struct tern_str){text, (size_t)len}, false, true, ids, FIDELITY_PROMPT_IDS_MAX, err);
    if (count < 0) status = (enum tern_status)count;
    if (count + 2 > f->n_ctx || count > FIDELITY_PROMPT_IDS_MAX)
        status =
            err_set(err, TERN_CONTEXT_FULL, "a prompt of %lld tokens; the context has %d", (long long)count, f->n_ctx);
    if (status != TERN_OK) goto done;
    w->n_prompt = (int)count;
    w->ids = arena_calloc(&f->arena, (size_t)count + (size_t)f->answer_max, sizeof *w->ids);
    if (w->ids)
        memcpy(w->ids, ids, (size_t)count * sizeof *ids);
    else
        status = err_set(err, TERN_NO_MEMORY, "no memory for a prompt");
done:
    mem_free(text);
    mem_free(ids);
    return status;
}

static enum tern_status answer_make(struct fidelity *f, struct fidelity_answer *w, struct tern_err *err) {
    struct side *a = &f->a;
    const struct model_vocab *v = &a->lab.model->vocab;
    side_rewind(a);
    for (int at = 0; at < w->n_prompt; at += a->spec.window) {
        int n = MIN(a->spec.window, w->n_prompt - at);
        TRY(side_feed(a, w->ids + at, n, at + n == w->n_prompt, err));
    }
    while (w->n_answer < f->answer_max && w->n_prompt + w->n_answer + 1 < f->n_ctx) {
        int32_t id = best_of(side_logits(a, 0), a->lab.model->hyper.n_vocab_used);
        w->ids[w->n_prompt + w->n_answer++] = id;
        if (id == v->eos || id == v->eot) break;
        TRY(side_feed(a, &id, 1, 1, err));
    }
    return TERN_OK;
}

enum tern_status fidelity_open(struct fidelity *f, const struct side_spec *a, const struct tern_engine_options *o,
                               struct tern_engine *text, const struct prompt_set *set, int n_ctx, int answer_max,
                               struct tern_err *err) {
    *f = (struct fidelity){.text = text, .n_ctx = n_ctx, .answer_max = answer_max};
    arena_init(&f->arena, 0);
    enum tern_status status;
    TRY_GOTO(side_open(&f->a, a, o, n_ctx, err), fail);
    f->rows = mem_calloc((size_t)a->window * (size_t)f->a.lab.model->hyper.n_vocab, sizeof *f->rows);
    f->answers = arena_calloc(&f->arena, (size_t)set->n, sizeof *f->answers);
    if (!f->rows || !f->answers) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to compare");
        goto fail;
    }
    struct progress bar;
    progress_begin(&bar, "answering", (uint64_t)set->n, false);
    status = TERN_OK;
    for (int i = 0; i < set->n && status == TERN_OK; i++) {
        struct fidelity_answer *w = &f->answers[f->n_answers];
        w->category = set->items[i].category;
        status = prompt_ids(f, &set->items[i], w, err);
        if (status == TERN_OK) status = answer_make(f, w, err);
        f->n_answers += status == TERN_OK;
        progress_update(&bar, (uint64_t)(i + 1));
    }
    progress_end(&bar);
    if (status == TERN_OK) return TERN_OK;
fail:
    fidelity_close(f);
    return status;
}

void fidelity_close(struct fidelity *f) {
    side_close(&f->a);
    mem_free(f->rows);
    arena_release(&f->arena);
    *f = (struct fidelity){0};
}

// ----------------------------------------------------------------------------------------------------------- comparing

// Both sides read in steps of the smaller window.
static enum tern_status answer_compare(struct fidelity *f, struct side *b, struct fidelity_answer *w,
                                       struct tern_err *err) {
    struct side *a = &f->a;
    int n = w->n_prompt + w->n_answer - 1; // the last token predicts nothing that is known
    int window = MIN(a->spec.window, b->spec.window), n_used = a->lab.model->hyper.n_vocab_used;
    size_t row = (size_t)a->lab.model->hyper.n_vocab;
    side_rewind(a);
    side_rewind(b);
    memset(w->cells, 0, sizeof w->cells);
    for (int at = 0; at < n; at += window) {
        int rows = MIN(window, n - at), first = MAX(w->n_prompt - 1 - at, 0), n_out = MAX(rows - first, 0);
        TRY(side_feed(a, w->ids + at, rows, n_out, err));
        for (int i = 0; i < n_out; i++) memcpy(f->rows + (size_t)i * row, side_logits(a, i), row * sizeof(float));
        TRY(side_feed(b, w->ids + at, rows, n_out, err));
        for (int i = 0; i < n_out; i++) {
            int next = at + rows - n_out + i + 1;
            position_add(&w->cells[band_of(next)], f->rows + (size_t)i * row, side_logits(b, i), n_used, w->ids[next]);
        }
    }
    return TERN_OK;
}

enum tern_status fidelity_compare(struct fidelity *f, struct side *b, struct tern_err *err) {
    const struct model *ma = f->a.lab.model, *mb = b->lab.model;
    if (mb->hyper.n_vocab_used != ma->hyper.n_vocab_used)
        return err_set(err, TERN_MISMATCH, "%s knows %d tokens, %s %d: another vocabulary cannot be compared", mb->name,
                       mb->hyper.n_vocab_used, ma->name, ma->hyper.n_vocab_used);
    struct progress bar;
    progress_begin(&bar, "comparing", (uint64_t)f->n_answers, false);
    enum tern_status status = TERN_OK;
    for (int i = 0; i < f->n_answers && status == TERN_OK; i++) {
        status = answer_compare(f, b, &f->answers[i], err);
        progress_update(&bar, (uint64_t)(i + 1));
    }
    progress_end(&bar);
    return status;
}

// --------------------------------------------------------------------------------------------------- lines and verdict

static void line_name(const struct prompt_set *set, int category, int band, char out[32]) {
    if (category >= 0)
        (void)snprintf(out, 32, "%s", set->categories[category]);
    else if (band < 0)
        (void)snprintf(out, 32, "all");
    else if (band + 1 < FIDELITY_BANDS)
        (void)snprintf(out, 32, "at %d-%d", fidelity_band_begin[band], fidelity_band_begin[band + 1] - 1);
    else
        (void)snprintf(out, 32, "at %d-", fidelity_band_begin[band]);
}

bool fidelity_line_make(const struct fidelity *f, const struct prompt_set *set, int category, int band,
                        struct fidelity_line *out) {
    static double n[PROMPTS_MAX], equal[PROMPTS_MAX], sound[PROMPTS_MAX], kl[PROMPTS_MAX];
    double nll_a = 0, nll_b = 0, total = 0;
    *out = (struct fidelity_line){.n = 0};
    for (int i = 0; i < f->n_answers; i++) {
        const struct fidelity_answer *w = &f->answers[i];
        n[i] = equal[i] = sound[i] = kl[i] = 0;
        for (int k = 0; k < FIDELITY_BANDS; k++) {
            const struct fidelity_cell *c = &w->cells[k];
            if ((band >= 0 && k != band) || (category >= 0 && w->category != category)) continue;
            out->n += c->n;
            out->n_bad += c->n_bad;
            n[i] += c->n;
            equal[i] += c->n_equal;
            sound[i] += c->n - c->n_bad;
            kl[i] += c->kl;
            nll_a += c->nll_a;
            nll_b += c->nll_b;
        }
        total += sound[i];
    }
    line_name(set, category, band, out->name);
    out->top1 = stats_share(equal, n, f->n_answers);
    out->kl = stats_group_mean(kl, sound, f->n_answers);
    out->ppl_a = exp(nll_a / MAX(total, 1));
    out->ppl_b = exp(nll_b / MAX(total, 1));
    return out->n > 0;
}

static void miss_add(struct fidelity_verdict *v, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void miss_add(struct fidelity_verdict *v, const char *fmt, ...) {
    size_t at = strlen(v->why);
    va_list args;
    va_start(args, fmt);
    if (at > 0 && at + 2 < sizeof v->why) {
        memcpy(v->why + at, ", ", 3);
        at += 2;
    }
    (void)vsnprintf(v->why + at, sizeof v->why - at, fmt, args);
    va_end(args);
}

struct fidelity_verdict fidelity_judge(const struct fidelity *f, const struct prompt_set *set,
                                       const struct fidelity_bounds *bounds) {
    struct fidelity_verdict v = {.adopt = false};
    struct fidelity_line line;
    (void)fidelity_line_make(f, set, -1, -1, &v.all);
    v.least = v.all;
    for (int i = 0; i < set->n_categories + FIDELITY_BANDS; i++) {
        bool category = i < set->n_categories;
        if (!fidelity_line_make(f, set, category ? i : -1, category ? -1 : i - set->n_categories, &line)) continue;
        if (line.n >= FIDELITY_LINE_MIN && line.top1.mid < v.least.top1.mid) v.least = line;
    }
    double ratio = v.all.ppl_b / v.all.ppl_a;
    if (v.all.n == 0) miss_add(&v, "no positions");
    if (v.all.n_bad > 0) miss_add(&v, "%d positions without finite logits", v.all.n_bad);
    if (v.all.top1.mid < bounds->top1) miss_add(&v, "top-1 %.2f %% (%.4g)", 100 * v.all.top1.mid, 100 * bounds->top1);
    if (v.least.top1.mid < bounds->top1_any)
        miss_add(&v, "top-1 of %s %.2f %% (%.4g)", v.least.name, 100 * v.least.top1.mid, 100 * bounds->top1_any);
    if (v.all.kl.mid > bounds->kl) miss_add(&v, "KL %.4f (%.4g)", v.all.kl.mid, bounds->kl);
    if (!(ratio <= bounds->ppl)) miss_add(&v, "perplexity times %.4f (%.4g)", ratio, bounds->ppl);
    v.n_bad = v.all.n_bad;
    v.adopt = v.why[0] == 0;
    v.unsure = v.all.top1.lo < bounds->top1 && v.all.top1.hi > bounds->top1;
    return v;
}
