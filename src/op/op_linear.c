// Linear layers, the reference: one output at a time, one float accumulator, groups (or values) ascending.
#include "base/base.h"
#include <math.h>
#include "op/op_int.h"

static size_t row_bytes_get(enum format f, int n_in) {
    uint64_t bytes;
    if (!format_row_bytes(f, (uint64_t)n_in, &bytes)) {
        TERN_BUG("a %s row of %d values is no whole number of blocks", format_table[f].name, n_in);
    }
    return (size_t)bytes;
}

static float linear_i8c(const uint8_t *w, int n_in, const int8_t *q, float scale) {
    float dw;
    memcpy(&dw, w + n_in, sizeof(float));
    int32_t dot = 0;
    for (int k = 0; k < n_in; k++) dot += (int32_t)(int8_t)w[k] * q[k];
    return (float)dot * (dw * scale);
}

// Adds the groups of one piece of a weight row, already taken apart, to acc.
static float groups_add(struct op_groups groups, int len, const int8_t *w, const float *dw, const float *mn,
                        const int8_t *q, const float *scale, const int32_t *sum, float acc) {
    for (int g = 0; g < len / groups.group; g++) {
        const int at = g * groups.group;
        int32_t dot = 0, sum_x = 0;
        for (int k = at; k < at + groups.group; k++) dot += (int32_t)w[k] * q[k];
        const float dx = scale[at / OP_GROUP];
        acc = fmaf((float)dot, dw[g] * dx, acc);
        if (!groups.has_min) continue;
        for (int h = 0; h < groups.group / 16; h++) sum_x += sum[at / 16 + h];
        acc = fmaf(mn[g], dx * (float)sum_x, acc);
    }
    return acc;
}

void op_linear_int8(enum format f, const uint8_t *w, int n_out, int n_in, const int8_t *q, const float *scale,
                    const int32_t *sum, float *y) {
    const size_t row_bytes = row_bytes_get(f, n_in);
    const struct op_groups groups = op_format_groups(f);
    int8_t piece[OP_PIECE];
    float dw[OP_PIECE_GROUPS], mn[OP_PIECE_GROUPS];
    for (int o = 0; o < n_out; o++, w += row_bytes) {
        if (f == FORMAT_I8C) {
            y[o] = linear_i8c(w, n_in, q, scale[0]);
            continue;
        }
        const uint8_t *row = w;
        float acc = 0;
        for (int k = 0; k < n_in; k += OP_PIECE) {
            const int len = MIN(n_in - k, OP_PIECE);
            op_decompose_row(f, row, len, piece, dw, mn);
            acc = groups_add(groups, len, piece, dw, mn, q + k, scale + k / OP_GROUP, sum + k / 16, acc);
            row += row_bytes_get(f, len);
        }
        y[o] = acc;
    }
}

static float linear_row_i8c_fp32(const uint8_t *w, int n_in, const float *x) {
    float dw, acc = 0;
    memcpy(&dw, w + n_in, sizeof(float));
    for (int k = 0; k < n_in; k++) acc = fmaf(dw * (float)(int8_t)w[k], x[k], acc);
    return acc;
}

void op_linear_fp32(enum format f, const uint8_t *w, int n_out, int n_in, const float *x, float *y) {
    const size_t row_bytes = row_bytes_get(f, n_in);
    float piece[OP_PIECE];
    for (int o = 0; o < n_out; o++, w += row_bytes) {
        if (f == FORMAT_I8C) {
            y[o] = linear_row_i8c_fp32(w, n_in, x);
            continue;
        }
        const uint8_t *row = w;
        float acc = 0;
        for (int k = 0; k < n_in; k += OP_PIECE) {
            const int len = MIN(n_in - k, OP_PIECE);
            op_dequant_row(f, row, len, piece);
            for (int i = 0; i < len; i++) acc = fmaf(piece[i], x[k + i], acc);
            row += row_bytes_get(f, len);
        }
        y[o] = acc;
    }
}
