// Operations on one row: norms, rotary positions, the gated short convolution, elementwise work.
#include "base/base.h"
#include <math.h>
#include "op/op_int.h"

static float rms_factor(const float *x, int n, float eps) { return 1 / sqrtf(op_sum_squares(x, n) / (float)n + eps); }

void op_rmsnorm(const float *x, const float *w, int n, float eps, float *y) {
    const float r = rms_factor(x, n, eps);
    for (int i = 0; i < n; i++) y[i] = (x[i] * r) * w[i];
}

void op_rope_table(int32_t pos, const double *freq, int half, float *out) {
    for (int i = 0; i < half; i++) {
        const double angle = (double)pos * freq[i];
        out[i] = (float)cos(angle);
        out[half + i] = (float)sin(angle);
    }
}

void op_rope_freqs(float base, int head_dim, const float *factors, double *freq) {
    for (int i = 0; i < head_dim / 2; i++) {
        freq[i] = pow((double)base, -2.0 * i / head_dim);
        if (factors) freq[i] /= (double)factors[i];
    }
}

void op_qk_norm_rope(float *head, int head_dim, const float *w, float eps, const float *table, bool interleaved) {
    const int half = head_dim / 2;
    if (w) op_rmsnorm(head, w, head_dim, eps, head);
    for (int i = 0; i < half; i++) {
        float *pa = interleaved ? &head[2 * i] : &head[i];
        float *pb = interleaved ? &head[2 * i + 1] : &head[i + half];
        const float a = *pa, b = *pb, c = table[i], s = table[half + i];
        *pa = fmaf(a, c, -(b * s));
        *pb = fmaf(b, c, a * s);
    }
}

void op_swiglu(const float *gate, const float *up, int n, float *y) {
    for (int i = 0; i < n; i++) y[i] = op_silu(gate[i]) * up[i];
}

void op_geglu(const float *gate, const float *up, int n, float *y) {
    for (int i = 0; i < n; i++) y[i] = op_gelu(gate[i]) * up[i];
}

void op_add(const float *a, const float *b, int n, float *y) {
    for (int i = 0; i < n; i++) y[i] = a[i] + b[i];
}

void op_conv_gate(const float *bcx, int n, float *u_out) {
    for (int i = 0; i < n; i++) u_out[i] = bcx[i] * bcx[2 * n + i];
}

void op_short_conv(const float *const *u, const float *taps, int len, int n, const float *c, float *y) {
    for (int i = 0; i < n; i++) {
        const float *w = &taps[i * len];
        float v = w[0] * (u[0] ? u[0][i] : 0.0f);
        for (int j = 1; j < len; j++) v = fmaf(w[j], u[j] ? u[j][i] : 0.0f, v);
        y[i] = c[i] * v;
    }
}

void op_axpy(float a, const float *x, int n, float *y) {
    for (int i = 0; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

static void router_scores(const struct op_router *r, const float *logits, float *score) {
    if (r->sigmoid) {
        for (int i = 0; i < r->n; i++) score[i] = op_sigmoid(logits[i]);
        return;
    }
    float max = logits[0], sum = 0;
    for (int i = 1; i < r->n; i++) max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < r->n; i++) sum += score[i] = op_exp(logits[i] - max);
    for (int i = 0; i < r->n; i++) score[i] /= sum;
}

void op_route(const struct op_router *r, const float *logits, const float *bias, float *score, int32_t *ids,
              float *weights) {
    router_scores(r, logits, score);
    for (int j = 0; j < r->k; j++) { // ids[0 .. j) are sorted: the next choice is the best that is not among them
        int32_t best = -1;
        float value = 0;
        for (int32_t i = 0, at = 0; i < r->n; i++) {
            if (at < j && ids[at] == i) {
                at++;
                continue;
            }
            float v = bias ? score[i] + bias[i] : score[i];
            if (v != v) v = -INFINITY;
            if (best >= 0 && !(v > value)) continue;
            best = i;
            value = v;
        }
        int at = j;
        for (; at > 0 && ids[at - 1] > best; at--) ids[at] = ids[at - 1];
        ids[at] = best;
    }
    float sum = 0;
    for (int j = 0; j < r->k; j++) sum += weights[j] = score[ids[j]];
    for (int j = 0; j < r->k; j++) {
        if (r->normalise) weights[j] /= sum + r->eps;
        weights[j] *= r->scale;
    }
}
