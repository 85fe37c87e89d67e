// Which ids may be drawn: top-k, then top-p, then min-p, on logits already divided by the temperature.
//
// The whole vocabulary is never sorted. Candidates are gathered in bands below the best logit and each band is sorted
// only when the rules before it still want more: with the usual settings the first band is enough, and the exact answer
// for any setting costs at most one full sort.
#include "base/base.h"
#include "sampler_int.h"

#include <math.h>

#define BAND_WIDTH 8.0f // in logits: e^-8 of the best probability

// Best first; equal logits: lowest id first, so that every rule prefers low ids.
static int order_compare(const float *scaled, int32_t a, int32_t b) {
    if (scaled[a] != scaled[b]) return scaled[a] > scaled[b] ? -1 : 1;
    return a < b ? -1 : a > b;
}

static void sift_down(const float *scaled, int32_t *ids, int root, int n) {
    for (;;) {
        int child = 2 * root + 1;
        if (child >= n) return;
        if (child + 1 < n && order_compare(scaled, ids[child], ids[child + 1]) < 0) child++;
        if (order_compare(scaled, ids[root], ids[child]) >= 0) return;
        int32_t t = ids[root];
        ids[root] = ids[child];
        ids[child] = t;
        root = child;
    }
}

// Heap sort: no allocation, no recursion, n log n on any input.
static void order_sort(const float *scaled, int32_t *ids, int n) {
    for (int i = n / 2 - 1; i >= 0; i--) sift_down(scaled, ids, i, n);
    for (int i = n - 1; i > 0; i--) {
        int32_t t = ids[0];
        ids[0] = ids[i];
        ids[i] = t;
        sift_down(scaled, ids, 0, i);
    }
}

// Appends the ids with lo <= scaled < hi to kept, sorted. Returns the new count.
static int band_add(struct sampler *s, int n, float lo, float hi) {
    int begin = n;
    for (int i = 0; i < s->n_used; i++)
        if (s->scaled[i] >= lo && s->scaled[i] < hi) s->kept[n++] = i;
    order_sort(s->scaled, s->kept + begin, n - begin);
    return n;
}

// Number of ids of the sorted prefix whose probability first reaches top_p of the total; 0: the prefix is not enough.
static int top_p_count(const struct sampler *s, int n, double total, float best) {
    double sum = 0, want = (double)s->params.top_p * total;
    for (int i = 0; i < n; i++) {
        sum += exp((double)(s->scaled[s->kept[i]] - best));
        if (sum >= want) return i + 1;
    }
    return 0;
}

void sampler_filter(struct sampler *s) {
    const struct sampler_params *p = &s->params;
    float best = -INFINITY;
    for (int i = 0; i < s->n_used; i++)
        if (s->scaled[i] > best) best = s->scaled[i];
    s->n_kept = 0;
    if (!(best > -INFINITY)) return;
    int k = p->top_k > 0 ? MIN(p->top_k, s->n_used) : s->n_used;
    float min_p_floor = p->min_p > 0 ? best + logf(p->min_p) : -INFINITY;
    bool want_all = k == s->n_used && p->top_p >= 1 && p->min_p <= 0;

    double total = 0; // of what top-k leaves; known at once when top-k is off
    if (k == s->n_used && p->top_p < 1)
        for (int i = 0; i < s->n_used; i++) total += exp((double)(s->scaled[i] - best));

    int n = 0;
    float hi = INFINITY, lo = best - BAND_WIDTH;
    for (;;) {
        n = band_add(s, n, lo, hi);
        bool last = lo == -INFINITY;
        if (!want_all) {
            bool enough_k = n >= k, below_floor = lo <= min_p_floor;
            if (k < s->n_used && enough_k) break;
            if (k == s->n_used && p->top_p < 1 && top_p_count(s, n, total, best) > 0) break;
            if (k == s->n_used && p->top_p >= 1 && below_floor) break;
        }
        if (last) break;
        hi = lo;
        lo = best - lo > 64 * BAND_WIDTH ? -INFINITY : best - 2 * (best - lo);
        if (want_all) lo = -INFINITY;
    }
    // The lowest band reaches -inf itself (banned ids): those are no candidates.
    while (n > 0 && !(s->scaled[s->kept[n - 1]] > -INFINITY)) n--;
    n = MIN(n, k);
    if (p->top_p < 1) {
        if (k < s->n_used)
            for (int i = 0; i < n; i++) total += exp((double)(s->scaled[s->kept[i]] - best));
        int m = top_p_count(s, n, total, best);
        if (m > 0) n = m;
    }
    while (n > 1 && s->scaled[s->kept[n - 1]] < min_p_floor) n--;
    s->n_kept = n;
}
