// The k largest of a row of logits, for shortlists: one pass at memory speed, no sort of the row.
//
// Maxima of blocks of 64 values come first (plain loops that compilers turn into vector maxima). The k-th largest of
// them is a floor: k blocks reach it, so the k largest values do too, and only blocks that reach it are looked into,
// about k of them for any row without many equal values. Values go through a heap of k; ids ascend, so a later equal
// value never replaces an earlier one, which is the tie rule.
#include "base/base.h"
#include "spec/spec.h"

#include <math.h>

#define BLOCK 64
#define LANES 16
#define BLOCKS_MAX 4096 // maxima held at a time: a longer row is taken in parts

// The worst of the kept is at the root: the smallest value, of equals the highest id.
struct heap {
    int k, n;
    float *values;
    int32_t *ids;
};

static bool is_worse(const struct heap *h, int a, int b) {
    if (h->values[a] != h->values[b]) return h->values[a] < h->values[b];
    return h->ids[a] > h->ids[b];
}

static void heap_swap(struct heap *h, int a, int b) {
    float v = h->values[a];
    int32_t id = h->ids[a];
    h->values[a] = h->values[b];
    h->ids[a] = h->ids[b];
    h->values[b] = v;
    h->ids[b] = id;
}

static void heap_down(struct heap *h, int at, int n) {
    for (;;) {
        int worst = at, left = 2 * at + 1;
        if (left < n && is_worse(h, left, worst)) worst = left;
        if (left + 1 < n && is_worse(h, left + 1, worst)) worst = left + 1;
        if (worst == at) return;
        heap_swap(h, at, worst);
        at = worst;
    }
}

static void heap_put(struct heap *h, float value, int32_t id) {
    if (h->n == h->k) {
        if (!(value > h->values[0])) return;
        h->values[0] = value;
        h->ids[0] = id;
        heap_down(h, 0, h->n);
        return;
    }
    int at = h->n++;
    h->values[at] = value;
    h->ids[at] = id;
    for (; at > 0 && is_worse(h, at, (at - 1) / 2); at = (at - 1) / 2) heap_swap(h, at, (at - 1) / 2);
}

static inline float larger(float a, float b) {
    return a > b ? a : b; // b when a is NaN
}

// Each loop is one vector operation a step, with nothing kept in memory between steps, so that compilers make vector
// maxima of it even at -O2. One loop over lanes in memory took 42 µs for a row of 65,536; this takes 30.
static float block_max(const float *x) {
    float a[LANES], b[LANES / 2], c[LANES / 4];
    for (int j = 0; j < LANES; j++)
        a[j] = larger(x[j + 48], larger(x[j + 32], larger(x[j + 16], larger(x[j], -INFINITY))));
    for (int j = 0; j < LANES / 2; j++) b[j] = larger(a[j], a[j + LANES / 2]);
    for (int j = 0; j < LANES / 4; j++) c[j] = larger(b[j], b[j + LANES / 4]);
    return larger(larger(c[0], c[1]), larger(c[2], c[3]));
}

// The k-th largest of n maxima, or -infinity when there are fewer.
static float floor_of(const float *maxima, int n, int k) {
    float values[TOPK_MAX] = {0};
    int32_t ids[TOPK_MAX];
    struct heap h = {.k = k, .values = values, .ids = ids};
    for (int i = 0; i < n; i++) heap_put(&h, maxima[i], i);
    return h.n == k ? values[0] : -INFINITY;
}

static void part_select(struct heap *h, const float *x, int begin, int n) {
    float maxima[BLOCKS_MAX];
    int n_blocks = n / BLOCK;
    for (int b = 0; b < n_blocks; b++) maxima[b] = block_max(x + begin + b * BLOCK);
    float floor = floor_of(maxima, n_blocks, h->k);
    for (int b = 0; b < n_blocks; b++) {
        if (!(maxima[b] >= floor) || (h->n == h->k && !(maxima[b] > h->values[0]))) continue;
        int at = begin + b * BLOCK;
        for (int i = at; i < at + BLOCK; i++)
            if (x[i] >= floor && x[i] > -INFINITY) heap_put(h, x[i], i);
    }
    for (int i = begin + n_blocks * BLOCK; i < begin + n; i++)
        if (x[i] >= floor && x[i] > -INFINITY) heap_put(h, x[i], i);
}

int topk_select(const float *x, int n, int k, int32_t *ids, float *values) {
    if (k < 1 || k > TOPK_MAX) TERN_BUG("topk: %d of a row; 1 to %d are possible", k, TOPK_MAX);
    struct heap h = {.k = k, .values = values, .ids = ids};
    for (int begin = 0; begin < n; begin += BLOCK * BLOCKS_MAX)
        part_select(&h, x, begin, MIN(n - begin, BLOCK * BLOCKS_MAX));
    for (int i = h.n - 1; i > 0; i--) {
        heap_swap(&h, 0, i);
        heap_down(&h, 0, i);
    }
    return h.n;
}
