// The encoders that files are made with: a search for the scales that lose least, where op_quantise_weights takes the
// first ones that cover the range.
//
// Every group of a super-block is fitted by weighted least squares: trial scales around the one that covers the range
// give integers, the integers give the best scale (and minimum) in closed form, the best trial wins. The group scales
// are then integers times one scale of the block (two with minima): the neighbours of each are tried, and the block's
// own scales are fitted once more to the integers found. Outliers weigh more (weights_make): without activations at
// hand that is all one knows.
//
// Sums run in ENCODE_LANES lanes of fixed length, so that compilers vectorise them without reordering anything: the
// bytes are the same from every compiler and machine. Formats with one scale per 32 even steps keep the encoder of
// their definition.
#include "base/base.h"
#include "op/op_encode.h"
#include <math.h>

#define ENCODE_LANES 16
#define AGAIN_TRIALS 2
#define MIN_TRIALS 24    // trial scales of a group with a minimum: high + t / 12 - 1 steps for t = 0 … 23
#define SIGNED_TRIALS 19 // of a symmetric group: low * (1 + (t - 9) / 10 / low)

static float lanes_sum(const float *v) {
    float s[ENCODE_LANES / 2];
    for (int j = 0; j < ENCODE_LANES / 2; j++) s[j] = v[j] + v[j + ENCODE_LANES / 2];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// The grid of integers: all from q_min to q_max, or, for formats with a table, the table's values.
static inline void grid_round(const struct encode_kind *k, const float *v, float *q) {
    if (!k->values) {
        for (int j = 0; j < ENCODE_LANES; j++) {
            float c = v[j] > k->q_min ? v[j] : k->q_min; // NaN too
            c = c < k->q_max ? c : k->q_max;
            q[j] = round_even(c);
        }
        return;
    }
    float sum[ENCODE_LANES];
    for (int j = 0; j < ENCODE_LANES; j++) sum[j] = (float)k->values[0];
    for (int i = 0; i < 15; i++) {
        const float border = 0.5f * (float)(k->values[i] + k->values[i + 1]);
        const float step = (float)(k->values[i + 1] - k->values[i]);
        for (int j = 0; j < ENCODE_LANES; j++) sum[j] += v[j] > border ? step : 0;
    }
    for (int j = 0; j < ENCODE_LANES; j++) q[j] = sum[j];
}

// What the closed forms need of one choice of integers: weighted sums of q, q² and q·x.
struct fit_sums {
    double q, qq, qx;
};

// q = the grid's nearest to (x - low) * inverse.
static struct fit_sums integers_try(const struct encode_kind *k, const float *x, const float *w, float inverse,
                                    float low) {
    float sq[ENCODE_LANES] = {0}, sqq[ENCODE_LANES] = {0}, sqx[ENCODE_LANES] = {0};
    for (int i = 0; i < k->group; i += ENCODE_LANES) {
        float v[ENCODE_LANES], q[ENCODE_LANES];
        for (int j = 0; j < ENCODE_LANES; j++) v[j] = (x[i + j] - low) * inverse;
        grid_round(k, v, q);
        for (int j = 0; j < ENCODE_LANES; j++) {
            const float wq = w[i + j] * q[j];
            sq[j] += wq;
            sqq[j] += wq * q[j];
            sqx[j] += wq * x[i + j];
        }
    }
    return (struct fit_sums){(double)lanes_sum(sq), (double)lanes_sum(sqq), (double)lanes_sum(sqx)};
}

// Weighted error of values scale * q - min with the grid's nearest q.
static float error_get(const struct encode_kind *k, const float *x, const float *w, float scale, float min) {
    float e[ENCODE_LANES] = {0};
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < k->group; i += ENCODE_LANES) {
        float v[ENCODE_LANES], q[ENCODE_LANES];
        for (int j = 0; j < ENCODE_LANES; j++) v[j] = (x[i + j] + min) * inverse;
        grid_round(k, v, q);
        for (int j = 0; j < ENCODE_LANES; j++) {
            const float d = scale * q[j] - min - x[i + j];
            e[j] += w[i + j] * d * d;
        }
    }
    return lanes_sum(e);
}

static void integers_take(const struct encode_kind *k, const float *x, float scale, float min, int8_t *out) {
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < k->group; i += ENCODE_LANES) {
        float v[ENCODE_LANES], q[ENCODE_LANES];
        for (int j = 0; j < ENCODE_LANES; j++) v[j] = (x[i + j] + min) * inverse;
        grid_round(k, v, q);
        for (int j = 0; j < ENCODE_LANES; j++) out[i + j] = (int8_t)(int)q[j];
    }
}

// A value weighs 1, and an outlier its square besides: u^2 for u = value / (OUTLIER * rms of the row). Without outliers
// even weights give the best text; but a few weights of 20 to 30 times the rms carry activations of a hundred times the
// others', and all later layers with them (SmolLM2: one weight of layer 11 makes 86 % of what its matrix puts out).
// Measured on SmolLM2-135M as KL divergence from the F16 model, mean of 2,560 predictions: Q3_K in ffn_down 0.210, with
// even weights 0.288, with mean + |value| 0.288, with squares alone 0.209; IQ4_NL everywhere 0.176, 0.181, 0.185, 0.205
// (its scales of one sign yet); Q2_K in ffn_down 0.98, 0.98, 1.11, 1.43.
#define OUTLIER 4

static float outlier_inverse(const float *x, int64_t n) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    return squares > 0 ? (float)(1 / (OUTLIER * sqrt(squares / (double)n))) : 0;
}

static void weights_make(const float *x, int n, float inverse, float *w) {
    for (int i = 0; i < n; i++) {
        const float u = x[i] * inverse;
        w[i] = 1 + u * u;
    }
}

// scale, min >= 0 with x ≈ scale * q - min.
static void group_fit_min(const struct encode_kind *k, const float *x, const float *w, float *scale, float *min) {
    const int n = k->group;
    float low = 0, top = 0; // zero is always within: a minimum above zero cannot be stored
    double sw = 0, swx = 0;
    for (int i = 0; i < n; i++) {
        low = MIN(low, x[i]);
        top = MAX(top, x[i]);
        sw += (double)w[i];
        swx += (double)w[i] * (double)x[i];
    }
    *scale = 0;
    *min = -low;
    if (!(top - low > 0) || !(sw > 0)) return;
    double best = INFINITY;
    for (int t = 0; t < MIN_TRIALS + AGAIN_TRIALS; t++) {
        // The last tries start from the best scale found.
        const bool again = t >= MIN_TRIALS;
        const float inverse = again ? (*scale > 0 ? 1 / *scale : 0) : (k->q_max + (float)t / 12 - 1) / (top - low);
        const struct fit_sums s = integers_try(k, x, w, inverse, again ? -*min : low);
        const double det = sw * s.qq - s.q * s.q;
        if (!(s.qq > 0)) continue;
        double a = s.qx / s.qq, b = 0; // without a minimum
        if (det > 1e-9 * sw * s.qq && s.qq * swx < s.q * s.qx) {
            a = (sw * s.qx - swx * s.q) / det;
            b = (s.qq * swx - s.q * s.qx) / det;
        }
        // Without the constant Σwx².
        const double error = a * (a * s.qq + 2 * b * s.q - 2 * s.qx) + b * (b * sw - 2 * swx);
        if (!(error < best) || !(a > 0)) continue;
        best = error;
        *scale = (float)a;
        *min = (float)-b;
    }
}

// A scale of either sign with x ≈ scale * q.
static float group_fit_signed(const struct encode_kind *k, const float *x, const float *w) {
    const int n = k->group;
    float largest = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    if (!(fabsf(largest) > OP_AMAX_MIN)) return 0;
    double best = 0;
    float scale = 0;
    // A tenth of a step apart, for the wide grid of a table a hundredth of its reach. The largest value lies at the
    // long end of the grid or, where the ends differ enough (small grids, tables), at the other: 6 % less error of
    // IQ4_NL and IQ4_XS. The last tries start from the best scale found.
    const float step = k->values ? 0.01f * k->q_min : 0.1f;
    const int n_sides = k->q_max < 8 || k->values ? 2 : 1;
    for (int t = 0; t < n_sides * SIGNED_TRIALS + AGAIN_TRIALS; t++) {
        const float end = t < SIGNED_TRIALS ? k->q_min : k->q_max;
        float inverse = (end + (float)(t % SIGNED_TRIALS - SIGNED_TRIALS / 2) * step) / largest;
        if (t >= n_sides * SIGNED_TRIALS) inverse = scale != 0 ? 1 / scale : 0;
        const struct fit_sums s = integers_try(k, x, w, inverse, 0);
        if (!(s.qq > 0)) continue;
        const double gain = s.qx * s.qx / s.qq; // what the error falls below Σwx²
        if (!(gain > best)) continue;
        best = gain;
        scale = (float)(s.qx / s.qq);
    }
    return scale;
}

// ------------------------------------------------------------------------------------------------- super-blocks

static int clamp_int(float v, int lo, int hi) {
    return (int)round_even(!(v > (float)lo) ? (float)lo : v < (float)hi ? v : (float)hi);
}

// The neighbours of the nearest integers for scale and minimum of one group, with d and d_min as stored.
static void group_round(const struct encode_kind *k, const float *x, const float *w, float scale, float min,
                        struct encode_block *b, int g) {
    const int s0 = b->d != 0 ? clamp_int(scale / b->d, k->scale_min, k->scale_max) : 0;
    const int m0 = b->d_min > 0 ? clamp_int(min / b->d_min, 0, k->scale_max) : 0;
    float best = INFINITY;
    for (int s = MAX(s0 - 1, k->scale_min); s <= MIN(s0 + 1, k->scale_max); s++) {
        for (int m = k->has_min ? MAX(m0 - 1, 0) : 0; m <= (k->has_min ? MIN(m0 + 1, k->scale_max) : 0); m++) {
            const float e = error_get(k, x, w, b->d * (float)s, b->d_min * (float)m);
            if (!(e < best)) continue;
            best = e;
            b->scale[g] = s;
            b->min[g] = m;
        }
    }
}

static float half_round(double v) { return f16_to_f32(f32_to_f16((float)v)); }

// d and d_min fitted to all integers of the block at once.
static void block_refit(const struct encode_kind *k, const float *x, const float *w, struct encode_block *b) {
    double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0; // of u = scale * q and v = min
    for (int i = 0; i < ENCODE_BLOCK; i++) {
        const int g = i / k->group;
        const double u = (double)b->scale[g] * b->q[i], v = b->min[g], wi = (double)w[i], xi = (double)x[i];
        ss += wi * u * u;
        sm += wi * u * v;
        mm += wi * v * v;
        sx += wi * u * xi;
        mx += wi * v * xi;
    }
    if (!(ss > 0)) return;
    const double det = ss * mm - sm * sm;
    if (!(det > 1e-9 * ss * mm)) { // no minima, or nothing to tell them by: the scale alone
        b->d = half_round((sx + (double)b->d_min * sm) / ss);
        return;
    }
    const double d = (sx * mm - mx * sm) / det, d_min = (sx * sm - mx * ss) / det;
    b->d = half_round(d);
    if (d_min >= 0) b->d_min = half_round(d_min);
}

static float block_error(const struct encode_kind *k, const float *x, const float *w, const struct encode_block *b) {
    float e = 0;
    for (int i = 0; i < ENCODE_BLOCK; i += k->group) {
        const int g = i / k->group;
        e += error_get(k, x + i, w + i, b->d * (float)b->scale[g], b->d_min * (float)b->min[g]);
    }
    return e;
}

static void block_integers(const struct encode_kind *k, const float *x, struct encode_block *b) {
    for (int i = 0; i < ENCODE_BLOCK; i += k->group) {
        const int g = i / k->group;
        integers_take(k, x + i, b->d * (float)b->scale[g], b->d_min * (float)b->min[g], b->q + i);
    }
}

static void block_encode(const struct encode_kind *k, const float *x, float inverse, uint8_t *out) {
    float w[ENCODE_BLOCK], scale[ENCODE_GROUPS_MAX] = {0}, min[ENCODE_GROUPS_MAX] = {0}, scale_top = 0, min_top = 0;
    struct encode_block b = {0};
    for (int i = 0; i < ENCODE_BLOCK; i += k->group) {
        const int g = i / k->group;
        weights_make(x + i, k->group, inverse, w + i);
        if (k->has_min)
            group_fit_min(k, x + i, w + i, &scale[g], &min[g]);
        else
            scale[g] = group_fit_signed(k, x + i, w + i);
        if (fabsf(scale[g]) > fabsf(scale_top)) scale_top = scale[g];
        min_top = MAX(min_top, min[g]);
    }
    // With signed scales the largest takes the end of the range that reaches one further.
    b.d = half_round((double)scale_top / (k->scale_min < 0 ? k->scale_min : k->scale_max));
    b.d_min = half_round((double)min_top / k->scale_max);
    for (int g = 0; g < ENCODE_BLOCK / k->group; g++)
        group_round(k, x + g * k->group, w + g * k->group, scale[g], min[g], &b, g);
    block_integers(k, x, &b);
    struct encode_block fitted = b;
    block_refit(k, x, w, &fitted);
    if (block_error(k, x, w, &fitted) < block_error(k, x, w, &b)) b = fitted;
    block_integers(k, x, &b);
    k->pack(&b, out);
}

// One scale of its own for each group, no super-block.
static void group_encode(const struct encode_kind *k, const float *x, float inverse, uint8_t *out) {
    float w[ENCODE_BLOCK];
    struct encode_block b = {0};
    weights_make(x, k->group, inverse, w);
    b.d = half_round((double)group_fit_signed(k, x, w));
    integers_take(k, x, b.d, 0, b.q);
    k->pack(&b, out);
}

void op_encode_weights(enum format f, const float *x, int64_t n, uint8_t *row) {
    const struct encode_kind *k = encode_kind_find(f);
    if (!k) {
        op_quantise_weights(f, x, n, row);
        return;
    }
    const int n_block = format_table[f].n_block;
    if (n % n_block != 0) TERN_BUG("a row of %lld values is no whole number of blocks", (long long)n);
    const float inverse = outlier_inverse(x, n);
    for (int64_t i = 0; i < n; i += n_block) {
        if (n_block == k->group)
            group_encode(k, x + i, inverse, row);
        else
            block_encode(k, x + i, inverse, row);
        row += format_table[f].n_bytes;
    }
}
