// tern validate UNIT/CLASS…: measures how far an arithmetic lies from its reference on this machine, and keeps the
// result (policy.h, "Validations"). Units other than cpu are offered only where such a row was adopted.
//
// Key: model, unit, class and cache type, scales, chip, system, version of the runtime; value: agreement with its
// interval, divergence, the worst category or band, and where the runtime says that programs ran. That two devices give
// equal tokens is never asked for.
#include "base/base.h"
#include <stdio.h>
#include "policy/policy.h"
#include "study_fidelity.h"

#define ARITHMETICS_MAX 16

struct asked {
    const struct command *c;
    struct side_spec reference, sides[ARITHMETICS_MAX];
    int n_sides;
    const char *prompts;
    int thin, answer_max;
    int n_rejected;
};

static void text_copy(char *out, size_t cap, const char *text) {
    size_t n = MIN(strlen(text), cap - 1);
    memcpy(out, text, n);
    out[n] = 0;
}

static void prompts_digest(const struct prompt_set *set, char out[PROFILE_DIGEST]) {
    struct sha256 h;
    uint8_t digest[32];
    sha256_init(&h);
    if (set->file.len > 0) sha256_update(&h, set->file.data, set->file.len);
    sha256_final(&h, digest);
    sha256_hex(digest, out);
}

static enum tern_status row_fill(const struct fidelity *f, const struct side *b, const struct prompt_set *set,
                                 struct validation *row, struct tern_err *err) {
    static const char *const kv[] = {[OP_KV_F16] = "f16", [OP_KV_Q8] = "q8", [OP_KV_F32] = "f32"};
    struct fidelity_bounds bounds = FIDELITY_BOUNDS;
    struct fidelity_verdict v = fidelity_judge(f, set, &bounds);
    struct unit_caps now;
    char numerics[PROFILE_NAME];
    *row = (struct validation){.tokens = v.all.n, .adopted = v.adopt, .made_wall_s = clock_wall_s()};
    (void)snprintf(numerics, sizeof numerics, "%s/kv-%s", b->lab.class_name, kv[b->spec.kv]);
    TRY(validation_key_make(&row->key, b->lab.model->digest, b->spec.unit, &b->lab.caps, numerics, tern_version(),
                            err));
    unit_driver_of(b->lab.unit)->caps(b->lab.unit, &now); // after compiling: with the placement
    text_copy(row->name, sizeof row->name, b->lab.model->name);
    text_copy(row->reference, sizeof row->reference, f->a.spec.text);
    text_copy(row->least, sizeof row->least, v.least.name);
    text_copy(row->missed, sizeof row->missed, v.why);
    (void)snprintf(row->placement, sizeof row->placement, "%s%s", now.detail,
                   now.deterministic ? " (this processor, no engine)" : "");
    row->top1[0] = v.all.top1.mid;
    row->top1[1] = v.all.top1.lo;
    row->top1[2] = v.all.top1.hi;
    row->kl = v.all.kl.mid;
    row->ppl_ratio = v.all.ppl_b / v.all.ppl_a;
    row->least_top1 = v.least.top1.mid;
    prompts_digest(set, row->prompts);
    return TERN_OK;
}

static void row_tell(const struct validation *r) {
    char path[4096];
    out_putf("%s %s %s: top-1 %.2f %% [%.2f, %.2f] of %lld tokens against %s, least %.2f %% (%s), KL %.5f, perplexity "
             "times %.4f\n",
             r->name, r->key.unit, r->key.numerics, 100 * r->top1[0], 100 * r->top1[1], 100 * r->top1[2],
             (long long)r->tokens, r->reference, 100 * r->least_top1, r->least, r->kl, r->ppl_ratio);
    out_putf("machine: %s, %s, %s\nplacement: %s\n", r->key.chip, r->key.system, r->key.runtime, r->placement);
    out_putf("verdict: %s%s", r->adopted ? "adopted" : "rejected: ", r->missed);
    out_putf("; kept in %s\n", validation_path(path, sizeof path) ? path : "nothing");
}

static enum tern_status sides_run(struct asked *q, struct fidelity *f, const struct prompt_set *set,
                                  const struct tern_engine_options *o, struct tern_err *err) {
    for (int i = 0; i < q->n_sides; i++) {
        struct side b;
        struct validation row;
        TRY(side_open(&b, &q->sides[i], o, f->n_ctx, err));
        enum tern_status status = fidelity_compare(f, &b, err);
        if (status == TERN_OK) status = row_fill(f, &b, set, &row, err);
        side_close(&b);
        if (status == TERN_OK) status = validation_keep(&row, err);
        TRY(status);
        row_tell(&row);
        out_flush();
        q->n_rejected += !row.adopted;
    }
    return TERN_OK;
}

static int validate_ask(struct asked *q, struct model_opts *model) {
    struct tern_err err = {0};
    struct fidelity_run r;
    int code = fidelity_run_open(&r, &(struct fidelity_asked){.c = q->c,
                                                              .model = model,
                                                              .a = &q->reference,
                                                              .prompts = q->prompts,
                                                              .thin = q->thin,
                                                              .answer_max = q->answer_max});
    if (code == EXIT_DONE && sides_run(q, &r.f, &r.set, &r.options, &err) != TERN_OK) code = fail_told(q->c, &err);
    fidelity_run_close(&r);
    return code == EXIT_DONE && q->n_rejected > 0 ? EXIT_FAILED : code;
}

static int validate_main(const struct command *c, int argc, char **argv) {
    static struct asked q;
    struct model_opts model;
    struct tern_err err = {0};
    struct opt model_rows[MODEL_OPTS_N];
    const char *reference = "cpu/fp32";
    q = (struct asked){.c = c, .answer_max = 64};
    model_opts_init(&model);
    model_opts_table(&model, model_rows);
    const struct opt rows[] = {
        {"--against", 0, "A", OPT_TEXT, &reference, 0, 0, "the reference (default cpu/fp32)"},
        {"--prompts", 'f', "FILE", OPT_TEXT, &q.prompts, 0, 0,
         "prompts, one JSON object a line (default: a few of its own)"},
        {"--each", 0, "N", OPT_INT, &q.thin, 1, PROMPTS_MAX, "prompts of each category (default: all)"},
        {"--answer", 0, "N", OPT_INT, &q.answer_max, 1, FIDELITY_ANSWER_MAX,
         "tokens of an answer at most (default 64)"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args < 1 || n_args > ARITHMETICS_MAX)
        return usage_error(c, "arithmetics expected, 1 to %d: npu:ort/int8", ARITHMETICS_MAX);
    if (side_parse(&q.reference, reference, &err) != TERN_OK) return usage_error(c, "%s", err.message);
    for (int i = 0; i < n_args; i++) {
        struct side_spec *s = &q.sides[q.n_sides++];
        if (side_parse(s, argv[1 + i], &err) != TERN_OK) return usage_error(c, "%s", err.message);
        if (s->weights[0] || s->model[0] || s->plan[0] || s->window != SIDE_WINDOW)
            return usage_error(c, "'%s': an engine takes a unit, a class and kv=; the rest is for tern fidelity",
                               s->text);
    }
    return validate_ask(&q, &model);
}

const struct command command_validate = {
    "validate", "UNIT/CLASS…",
    "measure an arithmetic on this machine and keep the result; other units than cpu need it",
    "The result is kept by model, unit, class, scales, chip, system and runtime version; `tern doctor` lists them.\n"
    "Exit 1 when an arithmetic was rejected (the bounds of tern fidelity).",
    validate_main};
