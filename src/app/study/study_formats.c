// The table of formats by back end: see study_formats.h.
//
// Speed is the time of one step of 64 rows behind an empty context, all rows with logits: the call that a format makes
// faster or slower, the median of some after the first ones, which compile. Rows a second of a whole run would count
// the compiling of programs too.
#include "base/base.h"
#include <stdio.h>
#include "study_formats.h"

#define STEPS_COLD 2
#define STEPS 9
#define STEPS_NS 3000000000u // no further ones after this time

enum back_end { EVALUATOR, RUNTIME, CPU, BACK_ENDS };
// What is written behind the unit; NULL: this back end has nothing of the kind that is not another row.
static const struct {
    const char *name, *spec[BACK_ENDS];
} table[FORMATS_MAX] = {
    {"int8 per channel", {"/int8", "/int8", "/fp32,weights=int8c"}},
    {"int4 per channel", {"+int4/int8", "+int4/int8", "/fp32,weights=int4c"}},
    {"int4 in groups of 32", {"/fp32,weights=int4g32", "/fp32,weights=int4g32", "/int8,weights=q4_0"}},
    {"palette of 16", {"/fp32,weights=lut4", "/fp32,weights=lut4", "/fp32,weights=lut4"}},
    {"W8A8", {"+w8a8/int8", "+w8a8/int8", "/int8,weights=int8c"}},
    {"W8A8 at input projections", {"+w8a8in/int8", "+w8a8in/int8", NULL}},
};

static enum back_end kind_of(const char *unit) {
    static const char *const runtimes[] = {"ort", "openvino", "coreai", "apple"};
    size_t at = strcspn(unit, ":");
    if (!unit[at]) return str_eqz(str_from(unit), "cpu") ? CPU : EVALUATOR;
    struct str name = {unit + at + 1, strcspn(unit + at + 1, ":+@")};
    for (size_t i = 0; i < ARRAY_LEN(runtimes); i++)
        if (str_eqz(name, runtimes[i])) return RUNTIME;
    return EVALUATOR;
}

// "npu:openvino:NPU" with "+int4/int8": the format stands before the device.
static bool text_make(struct buf *out, const char *unit, enum back_end kind, const char *spec) {
    size_t plus = spec[0] == '+' ? strcspn(spec, "/") : 0, n = strlen(unit);
    if (kind == RUNTIME) {
        size_t name = strcspn(unit, ":");
        n = name + (unit[name] ? 1 + strcspn(unit + name + 1, ":") : 0);
    } else {
        n = strcspn(unit, "@"); // scales stand behind the format
    }
    const char *colon = plus > 0 && !strchr(unit, ':') ? ":" : ""; // the format belongs to the variant
    return buf_put(out, unit, n) && buf_puts(out, colon) && buf_put(out, spec, plus) && buf_puts(out, unit + n) &&
           buf_puts(out, spec + plus);
}

static enum tern_status unit_add(struct formats *t, const char *unit, struct tern_err *err) {
    enum back_end kind = kind_of(unit);
    for (int i = 0; i < FORMATS_MAX; i++) {
        struct format_result *r = &t->rows[t->n];
        const char *spec = table[i].spec[kind];
        struct buf text;
        bool is_values = false;
        if (!spec) continue;
        buf_init(&text, SIDE_PATH_MAX);
        enum tern_status status = text_make(&text, unit, kind, spec)
                                      ? side_parse(&r->spec, text.data, err)
                                      : err_set(err, TERN_LIMIT, "--formats: '%.80s' is too long", unit);
        buf_release(&text);
        TRY(status);
        r->format = table[i].name;
        r->unit = unit;
        r->as_values = r->spec.weights[0] && weights_format_find(r->spec.weights, &is_values) && is_values;
        t->n++;
    }
    return TERN_OK;
}

enum tern_status formats_parse(struct formats *t, const char *units, struct tern_err *err) {
    *t = (struct formats){0};
    for (int n = 0;; n++) {
        size_t len = strcspn(units, ",");
        if (n == FORMATS_UNITS_MAX || len == 0 || len >= SIDE_UNIT_MAX)
            return err_set(err, TERN_LIMIT, "--formats: 1 to %d units of at most %d bytes each, separated by commas",
                           FORMATS_UNITS_MAX, SIDE_UNIT_MAX - 1);
        memcpy(t->units[n], units, len);
        TRY(unit_add(t, t->units[n], err));
        if (!units[len]) return TERN_OK;
        units += len + 1;
    }
}

// ------------------------------------------------------------------------------------------------------------- measure

static enum tern_status step_time(const struct fidelity *f, struct side *b, double *ms, struct tern_err *err) {
    int32_t ids[STEP_WINDOW_MAX];
    double all[STEPS];
    int n = 0, window = MIN(b->spec.window, f->n_ctx);
    const struct fidelity_answer *w = &f->answers[0];
    uint64_t begin = clock_ns();
    for (int i = 0; i < window; i++) ids[i] = w->ids[i % (w->n_prompt + w->n_answer)];
    for (int i = 0; i < STEPS_COLD + STEPS; i++) {
        uint64_t start = clock_ns();
        side_rewind(b);
        TRY(side_feed(b, ids, window, window, err));
        if (i >= STEPS_COLD) all[n++] = (double)(clock_ns() - start) * 1e-6;
        if (n > 0 && clock_ns() - begin > STEPS_NS) break;
    }
    *ms = stats_quantile(all, n, 0.5);
    return TERN_OK;
}

enum tern_status formats_measure(struct formats *t, int i, struct fidelity *f, struct side *b,
                                 const struct prompt_set *set, const struct fidelity_bounds *bounds,
                                 struct tern_err *err) {
    struct format_result *r = &t->rows[i];
    r->verdict = fidelity_judge(f, set, bounds);
    r->all = r->verdict.all;
    r->offered = true;
    return step_time(f, b, &r->step_ms, err);
}

// -------------------------------------------------------------------------------------------------------------- report

// Of the same unit's int8 per channel, which is its first row; 0: it was not measured.
static double int8_ms(const struct formats *t, const struct format_result *r) {
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].unit == r->unit) return t->rows[i].offered ? t->rows[i].step_ms : 0;
    return 0;
}

void formats_text(const struct formats *t) {
    out_putf("%-26s %-20s %9s %9s %9s %10s  %s\n", "format", "back end", "ms/step", "x int8", "top-1", "KL", "verdict");
    for (int i = 0; i < t->n; i++) {
        const struct format_result *r = &t->rows[i];
        double first = int8_ms(t, r);
        out_putf("%-26s %-20s ", r->format, r->unit);
        if (!r->offered) {
            out_putf("not offered by the back end: %s\n", r->why);
            continue;
        }
        out_putf("%9.2f ", r->step_ms);
        if (first > 0)
            out_putf("%8.2fx ", first / r->step_ms);
        else
            out_putf("%9s ", "-");
        out_putf("%8.2f%% %10.6f  %s%s%s\n", 100 * r->all.top1.mid, r->all.kl.mid,
                 r->verdict.adopt ? "adopt" : "reject", r->verdict.unsure ? ", unsure" : "",
                 r->as_values ? " (as fp16 values: their speed, not the format's)" : "");
    }
    out_puts(
        "a step has 64 rows behind an empty context, all with logits; x int8: speed beside int8 per channel of the "
        "same back end\n");
}

void formats_json(const struct formats *t, struct json_writer *w) {
    json_write_array(w);
    for (int i = 0; i < t->n; i++) {
        const struct format_result *r = &t->rows[i];
        json_write_object(w);
        json_write_key(w, "format");
        json_write_str(w, str_from(r->format));
        json_write_key(w, "unit");
        json_write_str(w, str_from(r->unit));
        json_write_key(w, "name");
        json_write_str(w, str_from(r->spec.text));
        json_write_key(w, "offered");
        json_write_bool(w, r->offered);
        json_write_key(w, "as_values");
        json_write_bool(w, r->as_values);
        if (r->offered) {
            json_write_key(w, "step_ms");
            json_write_f64(w, r->step_ms);
            json_write_key(w, "top1");
            json_write_f64(w, r->all.top1.mid);
            json_write_key(w, "kl");
            json_write_f64(w, r->all.kl.mid);
            json_write_key(w, "verdict");
            json_write_str(w, r->verdict.adopt ? STR("adopt") : STR("reject"));
        } else {
            json_write_key(w, "why");
            json_write_str(w, str_from(r->why));
        }
        json_write_object_end(w);
    }
    json_write_array_end(w);
}
