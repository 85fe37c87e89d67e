// Cost curves of the width controller: values measured elsewhere, read here.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>

static bool is_cost(float v, bool zero_ok) { return isfinite(v) && (v > 0 || (zero_ok && v == 0)); }

enum tern_status width_costs_check(const struct width_costs *c, struct tern_err *err) {
    if (c->n_rows < 1 || c->n_rows > WIDTH_ROWS_MAX || c->n_ctx < 1 || c->n_ctx > WIDTH_CTX_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "cost curves: %d widths and %d contexts; 1 to %d and 1 to %d are possible", c->n_rows, c->n_ctx,
                       WIDTH_ROWS_MAX, WIDTH_CTX_MAX);
    if (c->rows[0] != 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "cost curves: the first width is %d rows, expected 1", c->rows[0]);
    for (int i = 1; i < c->n_rows; i++)
        if (c->rows[i] <= c->rows[i - 1])
            return err_set(err, TERN_INVALID_ARGUMENT, "cost curves: width %d behind width %d; they must ascend",
                           c->rows[i], c->rows[i - 1]);
    for (int x = 0; x < c->n_ctx; x++) {
        if (c->ctx[x] < 0 || (x > 0 && c->ctx[x] <= c->ctx[x - 1]))
            return err_set(err, TERN_INVALID_ARGUMENT, "cost curves: context %d at place %d; they must ascend from 0",
                           c->ctx[x], x);
        for (int i = 0; i < c->n_rows; i++)
            if (!is_cost(c->verify[x][i], false))
                return err_set(err, TERN_INVALID_ARGUMENT,
                               "cost curves: %g for %d rows at context %d; a cost must be above 0",
                               (double)c->verify[x][i], c->rows[i], c->ctx[x]);
        if (!is_cost(c->draft[x], true))
            return err_set(err, TERN_INVALID_ARGUMENT, "cost curves: %g for a draft at context %d; 0 or more expected",
                           (double)c->draft[x], c->ctx[x]);
    }
    if (!is_cost(c->draft_node, true) || !is_cost(c->host, true) || !is_cost(c->host_plain, true) ||
        !is_cost(c->catch_up, true))
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "cost curves: %g a drafted node, %g and %g host, %g catching up; 0 or more expected",
                       (double)c->draft_node, (double)c->host, (double)c->host_plain, (double)c->catch_up);
    return TERN_OK;
}

// Cost at one measured context.
static float verify_at(const struct width_costs *c, int x, int rows) {
    const float *v = c->verify[x];
    int i = 0, last = c->n_rows - 1;
    while (i < last && c->rows[i] < rows) i++;
    if (c->rows[i] == rows || (c->windows && rows < c->rows[i]) || last == 0) return v[i];
    int j = i > 0 ? i - 1 : 0;
    float slope = (v[i] - v[j]) / (float)(c->rows[i] - c->rows[j]);
    if (rows > c->rows[i]) return v[i] + MAX(slope, 0) * (float)(rows - c->rows[i]);
    return v[j] + slope * (float)(rows - c->rows[j]);
}

// Between the measured contexts (linear; beyond the last one its slope goes on, before the first its value stands).
static float between(const struct width_costs *c, int64_t ctx, float (*at)(const struct width_costs *, int, int),
                     int rows) {
    int x = 0, last = c->n_ctx - 1;
    while (x < last && c->ctx[x] < ctx) x++;
    if (x == 0 || c->ctx[x] == ctx) return at(c, x, rows);
    float lo = at(c, x - 1, rows), hi = at(c, x, rows);
    float slope = (hi - lo) / (float)(c->ctx[x] - c->ctx[x - 1]);
    if (ctx > c->ctx[x]) return hi + MAX(slope, 0) * (float)(ctx - c->ctx[x]);
    return lo + slope * (float)(ctx - c->ctx[x - 1]);
}

static float draft_at(const struct width_costs *c, int x, int rows) {
    (void)rows;
    return c->draft[x];
}

float width_cost_verify(const struct width_costs *c, int rows, int64_t ctx) { return between(c, ctx, verify_at, rows); }

float width_cost_round(const struct width_costs *c, int budget, int64_t ctx) {
    if (budget <= 0) return width_cost_verify(c, 1, ctx) + c->host_plain;
    return width_cost_verify(c, 1 + budget, ctx) + between(c, ctx, draft_at, 0) + c->draft_node * (float)budget +
           c->host;
}

float width_cost_plain(const struct width_costs *c, int n_seqs, int64_t ctx) {
    float step = width_cost_verify(c, n_seqs, ctx);
    return (n_seqs > 1 && c->doubt > 0 ? step / c->doubt : step) + c->host_plain;
}

float width_break_even(double rate, double cost_now, double cost_wider, int n_nodes) {
    return (float)(rate * (cost_wider - cost_now) / n_nodes);
}

int width_maximise(const float *tokens, const float *cost, int n, double *rate) {
    int best = 0;
    double lambda = (double)tokens[0] / (double)cost[0];
    for (int step = 0; step < n; step++) { // every step but the last finds a higher rate, so n are enough
        int next = best;
        double most = (double)tokens[best] - lambda * (double)cost[best];
        for (int i = 0; i < n; i++) {
            double v = (double)tokens[i] - lambda * (double)cost[i];
            if (v > most || (v == most && i < next)) {
                most = v;
                next = i;
            }
        }
        if (next == best) break;
        best = next;
        lambda = (double)tokens[best] / (double)cost[best];
    }
    if (rate) *rate = lambda;
    return best;
}
