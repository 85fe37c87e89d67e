// Rows of a verify step among sequences (spec.h). Greedy by acceptance, then the best of the order's beginnings: with
// acceptances that fall along each sequence that is the best set of its size, so only the size is a question, and costs
// may have any shape over the rows. A draft costs something whatever its length, which that order does not see; so it
// is tried with the sequences whose drafts cost nothing, and with one more of the others each time, those first that
// bring most by themselves.
#include "base/base.h"
#include "spec/spec.h"

#define SEQS_MAX TREE_NODES_MAX // as many rows as a verify step has
struct shared {
    int n[SEQS_MAX];
    double rate;
};
struct sharing {
    const struct width_costs *c;
    int64_t ctx;
    const struct share_seq *seqs;
    int n_seqs, rows, rows_max;
    double plain;      // cost of the step without drafts
    bool in[SEQS_MAX]; // may have rows
};

// Acceptance of a sequence's next token; never more than that of one before it.
static float next_of(const struct share_seq *q, int n, float last) {
    return n < q->n_max ? MIN(q->tokens[n + 1] - q->tokens[n], last) : 0;
}

static void share(const struct sharing *g, struct shared *best) {
    int n[SEQS_MAX] = {0};
    float last[SEQS_MAX];
    double tokens = g->rows, drafts = 0;
    for (int i = 0; i < g->n_seqs; i++) last[i] = 1;
    for (int rows = g->rows + 1; rows <= g->rows_max; rows++) {
        int at = -1;
        float most = 0;
        for (int i = 0; i < g->n_seqs; i++) {
            float p = g->in[i] ? next_of(&g->seqs[i], n[i], last[i]) : 0;
            if (p <= most) continue;
            most = p;
            at = i;
        }
        if (at < 0) return;
        last[at] = most;
        drafts += (double)((n[at] == 0 ? g->seqs[at].draft : 0) + g->seqs[at].draft_node);
        tokens += (double)most;
        n[at]++;
        double cost = (double)(width_cost_verify(g->c, rows, g->ctx) + g->c->host) + drafts;
        if (cost > (double)SHARE_STRETCH * g->plain) return;
        if (tokens / cost <= best->rate) continue;
        best->rate = tokens / cost;
        memcpy(best->n, n, sizeof n);
    }
}

// Most that a sequence's drafted tokens bring beyond their cost, when a token is worth what it costs without drafts.
static double value_of(const struct sharing *g, const struct share_seq *q) {
    double most = 0,
           row = (double)(width_cost_verify(g->c, 2 * g->rows, g->ctx) - width_cost_verify(g->c, g->rows, g->ctx)) /
                 g->rows;
    for (int k = 1; k <= q->n_max; k++) {
        double worth = (double)(q->tokens[k] - 1) * g->plain / g->rows;
        most = MAX(most, worth - (double)q->draft - k * (row + (double)q->draft_node));
    }
    return most;
}

double share_rows(const struct width_costs *c, int64_t ctx, struct share_seq *seqs, int n_seqs, int rows,
                  int rows_max) {
    struct sharing g = {.c = c, .ctx = ctx, .seqs = seqs, .n_seqs = MIN(n_seqs, SEQS_MAX), .rows = rows};
    double values[SEQS_MAX];
    g.rows_max = MIN(rows_max, TREE_NODES_MAX);
    g.plain = (double)width_cost_plain(c, rows, ctx);
    struct shared best = {.rate = rows / g.plain};
    for (int i = 0; i < g.n_seqs; i++) {
        g.in[i] = seqs[i].draft <= 0;
        values[i] = g.in[i] ? 0 : value_of(&g, &seqs[i]);
    }
    share(&g, &best);
    for (;;) {
        int at = -1;
        for (int i = 0; i < g.n_seqs; i++)
            if (!g.in[i] && values[i] > 0 && (at < 0 || values[i] > values[at])) at = i;
        if (at < 0) break;
        g.in[at] = true;
        share(&g, &best);
    }
    double gain = best.rate * g.plain / rows;
    bool pays = gain >= (double)WIDTH_GAIN_MIN;
    for (int i = 0; i < n_seqs; i++) seqs[i].n = pays && i < g.n_seqs ? best.n[i] : 0;
    return pays ? gain : 1;
}
