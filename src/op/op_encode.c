// The encoders that files are made with: a search for the scales that lose least, where op_quantise_weights takes the
// first ones that cover the range.
//
// Every group of a super-block is fitted by weighted least squares: trial scales around the one that covers the range
// give integers, the integers give the best scale (and minimum) in closed form, the best trial wins. The group scales
// are then integers times one scale of the block (two with minima): the neighbours of each are tried, and the block's
// own scales are fitted once more to the integers found. Large values weigh more (`weight_kind`): an error in them
// costs more of the output, and without activations at hand that is all one knows.
//
// Sums run in ENCODE_LANES lanes of fixed length, so that compilers vectorise them without reordering anything: the
// bytes are the same from every compiler and machine. Formats without super-blocks have one scale per 32 values and
// keep the encoder of their definition.
#include "base/base.h"
#include "op/op_encode.h"
#include <math.h>

#define ENCODE_LANES 16
#define MIN_TRIALS 24    // trial scales of a group with a minimum: high + t / 12 - 1 steps for t = 0 … 23
#define SIGNED_TRIALS 19 // of a symmetric group: low * (1 + (t - 9) / 10 / low)

static float lanes_sum(const float *v) {
    float s[ENCODE_LANES / 2];
    for (int j = 0; j < ENCODE_LANES / 2; j++) s[j] = v[j] + v[j + ENCODE_LANES / 2];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// What the closed forms need of one choice of integers: weighted sums of q, q² and q·x.
struct fit_sums {
    double q, qq, qx;
};

// q = round((x - low) * inverse) within [q_min, q_max].
static struct fit_sums integers_try(const float *x, const float *w, int n, float inverse, float low, float q_min,
                                    float q_max) {
    float sq[ENCODE_LANES] = {0}, sqq[ENCODE_LANES] = {0}, sqx[ENCODE_LANES] = {0};
    for (int i = 0; i < n; i += ENCODE_LANES) {
        for (int j = 0; j < ENCODE_LANES; j++) {
            float v = (x[i + j] - low) * inverse;
            v = v > q_min ? v : q_min; // NaN too
            v = v < q_max ? v : q_max;
            const float q = round_even(v), wq = w[i + j] * q;
            sq[j] += wq;
            sqq[j] += wq * q;
            sqx[j] += wq * x[i + j];
        }
    }
    return (struct fit_sums){(double)lanes_sum(sq), (double)lanes_sum(sqq), (double)lanes_sum(sqx)};
}

// Weighted error of values scale * q - min with q the nearest integers.
static float error_get(const float *x, const float *w, int n, float scale, float min, float q_min, float q_max) {
    float e[ENCODE_LANES] = {0};
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < n; i += ENCODE_LANES) {
        for (int j = 0; j < ENCODE_LANES; j++) {
            float v = (x[i + j] + min) * inverse;
            v = v > q_min ? v : q_min; // NaN too
            v = v < q_max ? v : q_max;
            const float d = scale * round_even(v) - min - x[i + j];
            e[j] += w[i + j] * d * d;
        }
    }
    return lanes_sum(e);
}

static void integers_take(const float *x, int n, float scale, float min, float q_min, float q_max, int8_t *q) {
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < n; i++) {
        float v = (x[i] + min) * inverse;
        v = v > q_min ? v : q_min; // NaN too
        v = v < q_max ? v : q_max;
        q[i] = (int8_t)(int)round_even(v);
    }
}

static void weights_make(enum encode_weight kind, const float *x, int n, float *w) {
    float squares = 0;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    const float mean = sqrtf(squares / (float)n);
    for (int i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        w[i] = kind == WEIGHT_SQUARE ? x[i] * x[i] : kind == WEIGHT_MAGNITUDE ? a : mean + a;
    }
}

// scale, min >= 0 with x ≈ scale * q - min, q in 0 … high.
static void group_fit_min(const float *x, const float *w, int n, int high, float *scale, float *min) {
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
    for (int t = 0; t < MIN_TRIALS + 2; t++) {
        // The last two tries start from the best scale found.
        const bool again = t >= MIN_TRIALS;
        const float inverse = again ? (*scale > 0 ? 1 / *scale : 0) : ((float)high + (float)t / 12 - 1) / (top - low);
        const struct fit_sums s = integers_try(x, w, n, inverse, again ? -*min : low, 0, (float)high);
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

// A scale of either sign with x ≈ scale * q, q in low … -low - 1.
static float group_fit_signed(const float *x, const float *w, int n, int low) {
    float largest = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(largest)) largest = x[i];
    if (!(fabsf(largest) > OP_AMAX_MIN)) return 0;
    double best = 0;
    float scale = 0;
    for (int t = 0; t < SIGNED_TRIALS; t++) {
        const float inverse = ((float)low + (float)(t - SIGNED_TRIALS / 2) / 10) / largest;
        const struct fit_sums s = integers_try(x, w, n, inverse, 0, (float)low, (float)(-low - 1));
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
            const float e = error_get(x, w, k->group, b->d * (float)s, b->d_min * (float)m, k->q_min, k->q_max);
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
        e += error_get(x + i, w + i, k->group, b->d * (float)b->scale[g], b->d_min * (float)b->min[g], k->q_min,
                       k->q_max);
    }
    return e;
}

static void block_integers(const struct encode_kind *k, const float *x, struct encode_block *b) {
    for (int i = 0; i < ENCODE_BLOCK; i += k->group) {
        const int g = i / k->group;
        integers_take(x + i, k->group, b->d * (float)b->scale[g], b->d_min * (float)b->min[g], k->q_min, k->q_max,
                      b->q + i);
    }
}

static void block_encode(const struct encode_kind *k, const float *x, uint8_t *out) {
    float w[ENCODE_BLOCK], scale[ENCODE_GROUPS_MAX] = {0}, min[ENCODE_GROUPS_MAX] = {0}, scale_top = 0, min_top = 0;
    struct encode_block b = {0};
    for (int i = 0; i < ENCODE_BLOCK; i += k->group) {
        const int g = i / k->group;
        weights_make(k->weight, x + i, k->group, w + i);
        if (k->has_min)
            group_fit_min(x + i, w + i, k->group, (int)k->q_max, &scale[g], &min[g]);
        else
            scale[g] = group_fit_signed(x + i, w + i, k->group, (int)k->q_min);
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

void op_encode_weights(enum format f, const float *x, int64_t n, uint8_t *row) {
    const struct encode_kind *k = encode_kind_find(f);
    if (!k) {
        op_quantise_weights(f, x, n, row);
        return;
    }
    if (n % ENCODE_BLOCK != 0) TERN_BUG("a row of %lld values is no whole number of blocks", (long long)n);
    for (int64_t i = 0; i < n; i += ENCODE_BLOCK) {
        block_encode(k, x + i, row);
        row += format_table[f].n_bytes;
    }
}
