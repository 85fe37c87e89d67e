// Matrices of an opened model rounded to another format in memory, so that formats can be compared without files.
//
// Each matrix that a step multiplies by is read row by row, encoded, and the model's table points at the new bytes. A
// format that no kernel has (int4 per output channel or in groups, palettes) becomes fp16 values: what neural engines
// multiply by after they unpack such weights, and what the reference unit multiplies by without loss.
#include "base/base.h"
#include <math.h>
#include "model/model.h"
#include "op/op.h"
#include "study_side.h"

#define PALETTE 16
#define PALETTE_BINS 4096
#define PALETTE_ROUNDS 40
#define MATRICES_MAX (MODEL_LAYERS_MAX * 8 + 1)

enum value_kind { VALUES_NONE, VALUES_INT4_CHANNEL, VALUES_INT4_GROUP, VALUES_PALETTE };
static const struct {
    const char *name;
    enum format format;
    enum value_kind values;
} named[] = {{"mlx4", FORMAT_MLX4_64_BF16, VALUES_NONE}, {"mlx8", FORMAT_MLX8_64_BF16, VALUES_NONE},
             {"int8c", FORMAT_I8C, VALUES_NONE},         {"int4c", FORMAT_F16, VALUES_INT4_CHANNEL},
             {"int4g32", FORMAT_F16, VALUES_INT4_GROUP}, {"lut4", FORMAT_F16, VALUES_PALETTE}};

struct weights_change {
    enum format format;
    enum value_kind values;
    struct {
        void *data;
        size_t bytes;
    } maps[MATRICES_MAX];
    int n_maps;
    const struct tensor *done[MATRICES_MAX];
    int n_done;
    float centre[PALETTE]; // of the matrix at hand
};

static bool format_get(const char *name, enum format *format, enum value_kind *values) {
    *values = VALUES_NONE;
    for (size_t i = 0; i < ARRAY_LEN(named); i++)
        if (str_eqz(str_from(name), named[i].name)) {
            *format = named[i].format;
            *values = named[i].values;
            return true;
        }
    return format_from_name(name, format);
}

bool weights_format_find(const char *name, bool *is_values) {
    enum format f;
    enum value_kind v;
    if (!format_get(name, &f, &v)) return false;
    *is_values = v != VALUES_NONE;
    return true;
}

enum tern_status weights_change_create(struct weights_change **out, const char *name, struct tern_err *err) {
    struct weights_change *c = mem_calloc(1, sizeof *c);
    if (!c) return err_set(err, TERN_NO_MEMORY, "no memory to round weights");
    if (!format_get(name, &c->format, &c->values)) TERN_BUG("weights format %s", name);
    *out = c;
    return TERN_OK;
}

void weights_change_free(struct weights_change *c) {
    if (!c) return;
    for (int i = 0; i < c->n_maps; i++) mem_unmap(c->maps[i].data, c->maps[i].bytes);
    mem_free(c);
}

static void row_read(const struct tensor *t, int64_t row, uint8_t *bytes, float *out) {
    model_tensor_read(t, row, 0, t->ne[0], bytes);
    op_dequant_row(t->format, bytes, t->ne[0], out);
}

// Sixteen values for a whole matrix by Lloyd's iteration over a histogram, from evenly spaced quantiles.
static bool palette_find(struct weights_change *c, const struct tensor *t, uint8_t *bytes, float *row) {
    double *bins = mem_calloc(PALETTE_BINS, sizeof *bins);
    float top = 0;
    if (!bins) return false;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t r = 0; r < t->ne[1]; r++) {
            row_read(t, r, bytes, row);
            for (int64_t i = 0; i < t->ne[0]; i++) {
                if (pass == 0)
                    top = fmaxf(top, fabsf(row[i]));
                else if (top > 0)
                    bins[(int)((row[i] / top + 1) * 0.5f * (PALETTE_BINS - 1) + 0.5f)]++;
            }
        }
    double total = (double)t->ne[0] * (double)t->ne[1], seen = 0;
    for (int i = 0, k = 0; i < PALETTE_BINS && k < PALETTE; i++) {
        seen += bins[i];
        while (k < PALETTE && seen >= total * (k + 0.5) / PALETTE) c->centre[k++] = (float)i;
    }
    for (int round = 0; round < PALETTE_ROUNDS; round++) {
        double sum[PALETTE] = {0}, n[PALETTE] = {0};
        for (int i = 0, k = 0; i < PALETTE_BINS; i++) {
            while (k + 1 < PALETTE && fabsf((float)i - c->centre[k + 1]) < fabsf((float)i - c->centre[k])) k++;
            sum[k] += bins[i] * i;
            n[k] += bins[i];
        }
        for (int k = 0; k < PALETTE; k++)
            if (n[k] > 0) c->centre[k] = (float)(sum[k] / n[k]);
    }
    for (int k = 0; k < PALETTE; k++) // bins into values
        c->centre[k] = f16_to_f32(f32_to_f16((c->centre[k] / (PALETTE_BINS - 1) * 2 - 1) * top));
    mem_free(bins);
    return true;
}

static void group_round(float *x, int64_t n) { // 15 levels, symmetric, an fp16 scale
    float top = 0;
    for (int64_t i = 0; i < n; i++) top = fmaxf(top, fabsf(x[i]));
    float s = f16_to_f32(f32_to_f16(top / 7));
    for (int64_t i = 0; i < n; i++) x[i] = s > 0 ? fminf(fmaxf(nearbyintf(x[i] / s), -7), 7) * s : 0;
}

static void values_round(const struct weights_change *c, float *x, int64_t n) {
    switch (c->values) {
    case VALUES_INT4_CHANNEL: group_round(x, n); break;
    case VALUES_INT4_GROUP:
        for (int64_t i = 0; i < n; i += 32) group_round(x + i, MIN(32, n - i));
        break;
    case VALUES_PALETTE:
        for (int64_t i = 0; i < n; i++) {
            int best = 0;
            for (int k = 1; k < PALETTE; k++)
                if (fabsf(x[i] - c->centre[k]) < fabsf(x[i] - c->centre[best])) best = k;
            x[i] = c->centre[best];
        }
        break;
    case VALUES_NONE: break;
    }
}

static enum tern_status matrix_change(struct weights_change *c, const struct tensor *t, struct tern_err *err) {
    uint64_t row_in = 0, row_out = 0, all = 0;
    for (int i = 0; i < c->n_done; i++)
        if (c->done[i] == t) return TERN_OK;
    if (t->n_dims != 2 || !tensor_has_data(t) || c->n_done == MATRICES_MAX)
        return err_set(err, TERN_UNSUPPORTED, "%.*s cannot be rounded to %s", (int)t->name.len, t->name.data,
                       format_table[c->format].name);
    if (!format_row_bytes(t->format, (uint64_t)t->ne[0], &row_in) ||
        !format_row_bytes(c->format, (uint64_t)t->ne[0], &row_out) || !u64_mul(row_out, (uint64_t)t->ne[1], &all) ||
        all > PTRDIFF_MAX)
        return err_set(err, TERN_UNSUPPORTED, "%.*s has rows of %lld values: no whole blocks of %s (%d)",
                       (int)t->name.len, t->name.data, (long long)t->ne[0], format_table[c->format].name,
                       format_table[c->format].n_block);
    uint8_t *to = mem_map((size_t)all), *bytes = mem_alloc((size_t)row_in);
    float *row = mem_alloc((size_t)t->ne[0] * sizeof *row);
    if (to) {
        c->maps[c->n_maps].data = to;
        c->maps[c->n_maps++].bytes = (size_t)all;
    }
    bool fits = to && bytes && row && (c->values != VALUES_PALETTE || palette_find(c, t, bytes, row));
    for (int64_t r = 0; fits && r < t->ne[1]; r++) {
        row_read(t, r, bytes, row);
        values_round(c, row, t->ne[0]);
        op_encode_weights(c->format, row, t->ne[0], to + (size_t)r * (size_t)row_out);
    }
    mem_free(bytes);
    mem_free(row);
    if (!fits)
        return err_set(err, TERN_NO_MEMORY, "no memory to round %.*s to %s", (int)t->name.len, t->name.data,
                       format_table[c->format].name);
    struct tensor *mine = (struct tensor *)(uintptr_t)t; // of the model that was opened for this side alone
    mine->format = c->format;
    mine->data = to;
    mine->parts = NULL;
    mine->n_bytes = all;
    c->done[c->n_done++] = t;
    return TERN_OK;
}

enum tern_status weights_change_run(void *change, struct model *m, struct tern_err *err) {
    struct weights_change *c = change;
    if (m->hyper.n_expert > 0)
        return err_set(err, TERN_UNSUPPORTED, "weights of experts are not rounded in memory; quantise %s to a file",
                       m->name);
    for (int i = 0; i < m->hyper.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        const struct tensor *all[] = {l->q,        l->k,        l->v,      l->o,       l->conv_in,
                                      l->conv_out, l->ffn_gate, l->ffn_up, l->ffn_down};
        for (size_t j = 0; j < ARRAY_LEN(all); j++)
            if (all[j]) TRY(matrix_change(c, all[j], err));
    }
    return matrix_change(c, m->output, err);
}
