// tern fidelity A B [B…]: how far each B's predictions lie from A's, teacher-forced, and whether to adopt it.
//
// What is compared: study_fidelity.h; how an arithmetic is written: study_side.h. Tokens of one answer depend on one
// another, so intervals (95 %) count answers, not tokens. Agreement measures numerical fidelity and no more; perplexity
// alone can look harmless where it fails.
#include "base/base.h"
#include <stdio.h>
#include "study_formats.h"

#define SIDES_MAX 64

struct asked {
    const struct command *c;
    struct side_spec sides[SIDES_MAX]; // the first is A
    int n_sides;
    struct formats formats;
    const char *prompts, *units; // whose formats
    int thin, answer_max;
    bool json;
    float top1, top1_any, kl, ppl; // bounds; the first two in percent
};

// -------------------------------------------------------------------------------------------------------------- report

static struct fidelity_bounds bounds_of(const struct asked *q) {
    return (struct fidelity_bounds){.top1 = (double)q->top1 / 100,
                                    .top1_any = (double)q->top1_any / 100,
                                    .kl = (double)q->kl,
                                    .ppl = (double)q->ppl};
}

static double rows_per_s(const struct side *s) { return s->ns > 0 ? (double)s->n_rows * 1e9 / (double)s->ns : 0; }

static void line_put(const struct fidelity_line *g) {
    out_putf("%-14s %7d %8.2f%% [%6.2f, %6.2f] %10.6f [%9.6f, %9.6f] %9.4f %9.4f", g->name, g->n, 100 * g->top1.mid,
             100 * g->top1.lo, 100 * g->top1.hi, g->kl.mid, g->kl.lo, g->kl.hi, g->ppl_a, g->ppl_b);
    if (g->n_bad > 0) out_putf("  %d not finite", g->n_bad);
    out_puts("\n");
}

// Categories, then bands, then all.
static bool line_of(const struct fidelity *f, const struct prompt_set *set, int i, struct fidelity_line *out) {
    if (i < set->n_categories) return fidelity_line_make(f, set, i, -1, out);
    i -= set->n_categories;
    return fidelity_line_make(f, set, -1, i < FIDELITY_BANDS ? i : -1, out);
}

static void text_put(const struct asked *q, const struct fidelity *f, const struct side *b,
                     const struct prompt_set *set) {
    struct fidelity_line line;
    struct fidelity_bounds bounds = bounds_of(q);
    struct fidelity_verdict v = fidelity_judge(f, set, &bounds);
    out_putf("%s against %s, %s, %d answers of %s\n", b->spec.text, f->a.spec.text, f->a.lab.model->name, f->n_answers,
             f->a.spec.text);
    out_putf("%-14s %7s %9s %16s %10s %22s %9s %9s\n", "", "tokens", "top-1", "95 %", "KL", "95 %", "ppl A", "ppl B");
    for (int i = 0; i <= set->n_categories + FIDELITY_BANDS; i++)
        if (line_of(f, set, i, &line)) line_put(&line);
    out_putf("speed: %.1f rows/s (%s), %s %.1f\n", rows_per_s(b), b->lab.caps.detail, f->a.spec.text,
             rows_per_s(&f->a));
    out_putf("bounds: top-1 %.4g %%, in every category and band of %d tokens or more %.4g %%; KL %.4g; perplexity "
             "times %.4g; finite logits\n",
             100 * bounds.top1, FIDELITY_LINE_MIN, 100 * bounds.top1_any, bounds.kl, bounds.ppl);
    out_putf("verdict: %s", v.adopt ? "adopt" : "reject: ");
    out_putf("%s%s\n", v.why, v.unsure ? " (the interval of top-1 holds its bound: more prompts would tell)" : "");
    out_putf("least: %s, top-1 %.2f %%\n\n", v.least.name, 100 * v.least.top1.mid);
}

static void interval_json(struct json_writer *w, const char *key, struct stats_interval s) {
    json_write_key(w, key);
    json_write_array(w);
    json_write_f64(w, s.mid);
    json_write_f64(w, s.lo);
    json_write_f64(w, s.hi);
    json_write_array_end(w);
}

static void key_f64(struct json_writer *w, const char *key, double v) {
    json_write_key(w, key);
    json_write_f64(w, v);
}
static void key_int(struct json_writer *w, const char *key, int64_t v) {
    json_write_key(w, key);
    json_write_int(w, v);
}
static void key_text(struct json_writer *w, const char *key, const char *v) {
    json_write_key(w, key);
    json_write_str(w, str_from(v));
}

static void head_json(const struct asked *q, const struct fidelity *f, struct json_writer *w) {
    struct fidelity_bounds bounds = bounds_of(q);
    json_write_object(w);
    key_text(w, "model", f->a.lab.model->name);
    key_text(w, "digest", f->a.lab.model->digest);
    key_text(w, "reference", f->a.spec.text);
    key_int(w, "answers", f->n_answers);
    json_write_key(w, "bounds");
    json_write_object(w);
    key_f64(w, "top1", bounds.top1);
    key_f64(w, "top1_any", bounds.top1_any);
    key_int(w, "any_tokens", FIDELITY_LINE_MIN);
    key_f64(w, "kl", bounds.kl);
    key_f64(w, "perplexity_ratio", bounds.ppl);
    json_write_object_end(w);
    json_write_key(w, "arithmetics");
    json_write_array(w);
}

static void side_json(const struct asked *q, const struct fidelity *f, const struct side *b,
                      const struct prompt_set *set, struct json_writer *w) {
    struct fidelity_line line;
    struct fidelity_bounds bounds = bounds_of(q);
    struct fidelity_verdict v = fidelity_judge(f, set, &bounds);
    json_write_object(w);
    key_text(w, "name", b->spec.text);
    key_text(w, "unit", b->lab.caps.detail);
    key_f64(w, "rows_per_s", rows_per_s(b));
    key_text(w, "verdict", v.adopt ? "adopt" : "reject");
    json_write_key(w, "unsure");
    json_write_bool(w, v.unsure);
    key_text(w, "missed", v.why);
    json_write_key(w, "lines");
    json_write_array(w);
    for (int i = 0; i <= set->n_categories + FIDELITY_BANDS; i++) {
        if (!line_of(f, set, i, &line)) continue;
        json_write_object(w);
        key_text(w, "by", i < set->n_categories ? "category" : i < set->n_categories + FIDELITY_BANDS ? "band" : "all");
        key_text(w, "name", line.name);
        key_int(w, "tokens", line.n);
        key_int(w, "not_finite", line.n_bad);
        interval_json(w, "top1", line.top1);
        interval_json(w, "kl", line.kl);
        key_f64(w, "perplexity_a", line.ppl_a);
        key_f64(w, "perplexity_b", line.ppl_b);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

// ----------------------------------------------------------------------------------------------------------------- run

static enum tern_status side_run(struct asked *q, struct fidelity *f, const struct side_spec *spec, int format,
                                 const struct prompt_set *set, const struct tern_engine_options *o,
                                 struct json_writer *w, struct tern_err *err) {
    struct side b;
    struct fidelity_bounds bounds = bounds_of(q);
    struct tern_err why;
    enum tern_status status = side_open(&b, spec, o, f->n_ctx, &why);
    if (status == TERN_UNSUPPORTED && format >= 0) { // which is an answer
        (void)snprintf(q->formats.rows[format].why, sizeof q->formats.rows[format].why, "%.*s",
                       (int)sizeof q->formats.rows[format].why - 1, why.message);
        return TERN_OK;
    }
    if (status != TERN_OK) {
        *err = why;
        return status;
    }
    f->a.ns = f->a.n_rows = 0;
    status = fidelity_compare(f, &b, err);
    if (status == TERN_OK && q->json) side_json(q, f, &b, set, w);
    if (status == TERN_OK && !q->json) text_put(q, f, &b, set);
    if (status == TERN_OK && format >= 0) status = formats_measure(&q->formats, format, f, &b, set, &bounds, err);
    out_flush();
    side_close(&b);
    return status;
}

static enum tern_status sides_run(struct asked *q, struct fidelity *f, const struct prompt_set *set,
                                  const struct tern_engine_options *o, struct tern_err *err) {
    struct buf text;
    struct json_writer w;
    buf_init(&text, 64u << 20);
    json_write_init(&w, &text);
    if (q->json) head_json(q, f, &w);
    enum tern_status status = TERN_OK;
    for (int i = 1; i < q->n_sides && status == TERN_OK; i++)
        status = side_run(q, f, &q->sides[i], -1, set, o, &w, err);
    for (int i = 0; i < q->formats.n && status == TERN_OK; i++)
        status = side_run(q, f, &q->formats.rows[i].spec, i, set, o, &w, err);
    if (q->json) {
        json_write_array_end(&w);
        if (q->formats.n > 0) {
            json_write_key(&w, "formats");
            formats_json(&q->formats, &w);
        }
        json_write_object_end(&w);
        if (status == TERN_OK && text.failed) status = err_set(err, TERN_NO_MEMORY, "no memory for the report");
        if (status == TERN_OK) out_put(buf_str(&text));
        if (status == TERN_OK) out_puts("\n");
    } else if (status == TERN_OK && q->formats.n > 0) {
        formats_text(&q->formats);
    }
    buf_release(&text);
    return status;
}

static int fidelity_ask(struct asked *q, struct model_opts *model) {
    struct tern_err err = {0};
    struct fidelity_run r;
    int code = fidelity_run_open(&r, &(struct fidelity_asked){.c = q->c,
                                                              .model = model,
                                                              .a = &q->sides[0],
                                                              .prompts = q->prompts,
                                                              .thin = q->thin,
                                                              .answer_max = q->answer_max});
    if (code == EXIT_DONE && sides_run(q, &r.f, &r.set, &r.options, &err) != TERN_OK) code = fail_told(q->c, &err);
    fidelity_run_close(&r);
    return code;
}

static int fidelity_main(const struct command *c, int argc, char **argv) {
    static struct asked q;
    struct model_opts model;
    struct tern_err err = {0};
    struct opt model_rows[MODEL_OPTS_N];
    q = (struct asked){.c = c, .answer_max = 64, .top1 = 98, .top1_any = 95, .kl = 0.02, .ppl = 1.02};
    model_opts_init(&model);
    model_opts_table(&model, model_rows);
    const struct opt rows[] = {
        {"--prompts", 'f', "FILE", OPT_TEXT, &q.prompts, 0, 0,
         "prompts, one JSON object a line (default: a few of its own)"},
        {"--each", 0, "N", OPT_INT, &q.thin, 1, PROMPTS_MAX, "prompts of each category (default: all)"},
        {"--answer", 0, "N", OPT_INT, &q.answer_max, 1, FIDELITY_ANSWER_MAX,
         "tokens of an answer at most (default 64)"},
        {"--formats", 0, "UNIT,…", OPT_TEXT, &q.units, 0, 0,
         "also int8, int4, int4 in groups, a 4-bit palette, W8A8 and W8A8 at input projections on these units, and a "
         "table of their speed and fidelity"},
        {"--top1", 0, "PERCENT", OPT_FLOAT, &q.top1, 0, 100, "of all tokens, to adopt (default 98)"},
        {"--top1-any", 0, "PERCENT", OPT_FLOAT, &q.top1_any, 0, 100, "of each category and band (default 95)"},
        {"--kl", 0, "NATS", OPT_FLOAT, &q.kl, 0, 100, "divergence at most, to adopt (default 0.02)"},
        {"--ppl", 0, "RATIO", OPT_FLOAT, &q.ppl, 0, 100, "perplexity at most so many times A's (default 1.02)"},
        {"--json", 0, NULL, OPT_FLAG, &q.json, 0, 0, "one JSON object"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args < 1 || (n_args < 2 && !q.units) || n_args > SIDES_MAX)
        return usage_error(c, "two arithmetics or more expected: A, the reference, and what is compared with it");
    for (int i = 0; i < n_args; i++)
        if (side_parse(&q.sides[q.n_sides++], argv[1 + i], &err) != TERN_OK) return usage_error(c, "%s", err.message);
    if (q.units && formats_parse(&q.formats, q.units, &err) != TERN_OK) return usage_error(c, "%s", err.message);
    return fidelity_ask(&q, &model);
}

const struct command command_fidelity = {
    "fidelity", "A B…", "how far an arithmetic's predictions lie from another's, and whether to adopt it",
    "A and B are UNIT/CLASS[,KEY=VALUE…]: cpu/fp32, cpu/bf16, npu:coreai-linux/int8, npu:ane-m1@SCALES/int8, "
    "npu:ort/int8.\n"
    "Keys: weights=FORMAT (" WEIGHTS_FORMAT_NAMES "), model=FILE, kv=f16|q8|f32, plan=KIND, window=N (doc/npu.md).",
    fidelity_main};
