// What rounds really take, against the curves of costs. A curve measured once is wrong on a machine that does other
// things too, and by widths unequally; what every round took is known for nothing.
//
// Kept are logarithms of measured over expected, the last few of each measured width and of drafts. The mean of the
// times themselves is what a choice costs in the long run, so that is a width's correction, outliers bounded by the
// median. Few measurements prove little: corrections are drawn towards that of all widths beyond one row together, and
// that one towards none. `load` is the part that everything shares, followed slowly from whatever runs, so that a width
// that has not run for long is not held against others that have seen the machine get slower. The corrected curve is
// made to rise with the rows (pool adjacent violators, weighted by how much each point has seen).
//
// Where times do not repeat, a mean of a few of them is no promise: every width beyond one row counts as dearer by half
// the spread of its kind or of plain steps, whichever is more. On a quiet machine that is a few percent; on one that
// other work takes from, most gains are not worth the risk (doc/speculation.md).
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>

#define LOAD_SHARE 0.1f  // of a residual that the load takes over
#define LOAD_STEP 0.5f   // residuals beyond it count as this
#define LOAD_AFTER 5     // measurements of a width before its residuals move the load
#define DRAW_COMMON 4.0f // measurements that weigh as much as the common correction
#define DRAW_NONE 3.0f   // … as the curve's own word
#define CAUTION 0.5f     // of the times' spread, which a wide step must do better than plain ones by
#define LOG_MAX 4.0f     // measurements further off are bounded to this
#define WEIGHT_UNSEEN 1  // of a curve's point in the fit, beside 1 + the measurements of the others

void width_times_init(struct width_times *t, const struct width_costs *costs) {
    *t = (struct width_times){.base = *costs, .load = 0};
}

static float median(const float *v, int n) {
    float s[WIDTH_TIMES_KEEP] = {0};
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && s[at - 1] > v[i]; at--) s[at] = s[at - 1];
        s[at] = v[i];
    }
    return n % 2 ? s[n / 2] : 0.5f * (s[n / 2 - 1] + s[n / 2]);
}

static void series_put(struct width_times *t, struct width_series *s, double measured, double expected,
                       bool moves_load) {
    if (!(measured > 0) || !(expected > 0)) return;
    float x = (float)log(measured / expected) - t->load;
    x = MIN(MAX(x, -LOG_MAX), LOG_MAX);
    if (moves_load && s->n >= LOAD_AFTER) t->load += LOAD_SHARE * MIN(MAX(x - s->median, -LOAD_STEP), LOAD_STEP);
    s->v[s->at] = x;
    s->at = (s->at + 1) % WIDTH_TIMES_KEEP;
    s->n = MIN(s->n + 1, WIDTH_TIMES_KEEP);
    s->median = median(s->v, s->n);
    double sum = 0;
    for (int i = 0; i < s->n; i++) sum += (double)MIN(expf(s->v[i] - s->median), WIDTH_COST_OUTLIER);
    s->level = s->median + logf((float)sum / (float)s->n);
    float off = 0;
    for (int i = 0; i < s->n; i++) off += fabsf(s->v[i] - s->median);
    s->spread = off / (float)s->n;
}

// The measured width nearest to so many rows, by ratio.
static int point_of(const struct width_costs *c, int rows) {
    int best = 0;
    for (int i = 1; i < c->n_rows; i++)
        if (fabsf(logf((float)c->rows[i] / (float)rows)) < fabsf(logf((float)c->rows[best] / (float)rows))) best = i;
    return rows > 1 && best == 0 && c->n_rows > 1 ? 1 : best; // one row is a kind of its own
}

void width_times_step(struct width_times *t, int rows, int64_t ctx, double cost) {
    double expected = (double)width_cost_verify(&t->base, rows, ctx);
    expected += (double)(rows > 1 ? t->base.host : t->base.host_plain);
    series_put(t, &t->verify[point_of(&t->base, rows)], cost, expected, true);
    if (rows > 1) series_put(t, &t->wider, cost, expected, false);
}

void width_times_draft(struct width_times *t, int budget, int64_t ctx, double cost) {
    double expected =
        (double)(width_cost_round(&t->base, budget, ctx) - width_cost_verify(&t->base, 1 + budget, ctx) - t->base.host);
    series_put(t, &t->draft, cost, expected, true);
}

// The level of a series, drawn towards `to` as if that were `weight` measurements.
static float drawn(const struct width_series *s, float to, float weight) {
    return ((float)s->n * s->level + weight * to) / ((float)s->n + weight);
}

// Least squares among rising curves: neighbours that fall are pooled into their weighted mean.
static void rise_fit(float *v, const float *weight, int n) {
    float mean[WIDTH_ROWS_MAX], sum[WIDTH_ROWS_MAX];
    int count[WIDTH_ROWS_MAX], k = 0;
    for (int i = 0; i < n; i++) {
        mean[k] = v[i];
        sum[k] = weight[i];
        count[k++] = 1;
        for (; k > 1 && mean[k - 2] > mean[k - 1]; k--) {
            mean[k - 2] = (mean[k - 2] * sum[k - 2] + mean[k - 1] * sum[k - 1]) / (sum[k - 2] + sum[k - 1]);
            sum[k - 2] += sum[k - 1];
            count[k - 2] += count[k - 1];
        }
    }
    for (int b = 0, i = 0; b < k; b++)
        for (int j = 0; j < count[b]; j++) v[i++] = mean[b];
}

void width_times_costs(const struct width_times *t, struct width_costs *out) {
    float f[WIDTH_ROWS_MAX], weight[WIDTH_ROWS_MAX];
    *out = t->base;
    float common = drawn(&t->wider, 0, DRAW_NONE), doubt = CAUTION * MAX(t->wider.spread, t->verify[0].spread);
    for (int i = 0; i < out->n_rows; i++) {
        f[i] = i > 0 ? drawn(&t->verify[i], common, DRAW_COMMON) : drawn(&t->verify[0], 0, DRAW_NONE);
        f[i] = expf(f[i] + t->load + (i > 0 ? doubt : 0));
        weight[i] = t->verify[i].n > 0 ? 1 + (float)t->verify[i].n : WEIGHT_UNSEEN;
    }
    for (int x = 0; x < out->n_ctx; x++) {
        for (int i = 0; i < out->n_rows; i++) out->verify[x][i] *= f[i];
        rise_fit(out->verify[x], weight, out->n_rows);
    }
    out->doubt = expf(doubt);
    float load = expf(t->load), draft = expf(drawn(&t->draft, 0, DRAW_NONE) + t->load);
    for (int x = 0; x < out->n_ctx; x++) out->draft[x] *= draft;
    out->draft_node *= draft;
    out->catch_up *= load;
    out->host *= load;
    out->host_plain *= load;
}
