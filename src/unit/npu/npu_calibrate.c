// Calibration: what values a model's programs carry, and the powers of two that keep them inside fp16.
//
// While TERN_NPU_OBSERVE names a file, every evaluator counts what each site's results were; when the weights are
// freed, sites are reported and scales chosen and written there. TERN_NPU_SCALES names such a file for later runs. A
// site gets the exponent that brings its largest magnitude to CALIBRATE_TOP; sites that overflow nowhere and lose next
// to nothing keep what they have. Within bounds that the weights set: what a site gains, the matrix before it carries
// and the one behind it gives back, and the fp16 scales of both stay normal numbers. So a model whose layers come
// scaled by large powers of two is brought back even where its values alone look well. Observe under rule set fp32 in
// class fp32: nothing is lost there yet.
#include "base/base.h"
#include <math.h>
#include "unit/npu/npu_unit.h"

#define CALIBRATE_TOP 11     // log2: half of the cliff of sums of products, and a reserve of 8
#define CALIBRATE_FREE 6     // largest exponent where no weights bound it: of the residual
#define CALIBRATE_MAX 24     // and in a file
#define SCALE_LEAST (-14)    // log2 of the smallest normal fp16 number: int8 steps
#define TAP_LEAST (-8)       // of a largest tap, which has no step of its own
#define CALIBRATE_LOSS 0.001 // share of values below the normal numbers that is let be
#define SCALES_FILE_MAX (1 << 20)

enum part { PART_FFN, PART_CONV, PART_VALUE, PART_KEY, PART_COUNT };
static const char *const part_names[PART_COUNT] = {"ffn", "conv", "value", "key"};
static const char *const part_sites[PART_COUNT] = {"swiglu", "u", "v", "k"};

struct npu_calibration {
    int n_layers;
    struct npu_site residual;
    struct npu_site *sites; // [PART_COUNT][n_layers]
    int8_t *exponents;      // [PART_COUNT][n_layers], of the scales in use
};

enum tern_status npu_calibration_create(struct npu_calibration **out, int n_layers, struct tern_err *err) {
    struct npu_calibration *c = mem_calloc(1, sizeof(*c));
    if (c) {
        c->n_layers = n_layers;
        c->sites = mem_calloc((size_t)n_layers * PART_COUNT, sizeof(*c->sites));
        c->exponents = mem_calloc((size_t)n_layers * PART_COUNT, 1);
    }
    if (!c || !c->sites || !c->exponents) {
        npu_calibration_free(c);
        return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for scales");
    }
    *out = c;
    return TERN_OK;
}

void npu_calibration_free(struct npu_calibration *c) {
    if (!c) return;
    mem_free(c->sites);
    mem_free(c->exponents);
    mem_free(c);
}

static void site_add(struct npu_site *to, const struct npu_site *from) {
    to->max = MAX(to->max, from->max);
    to->n += from->n;
    to->n_over += from->n_over;
    to->n_tiny += from->n_tiny;
}

// "l3.swiglu": the layer, and what is behind the dot; -1 for other sites.
static int site_split(const char *site, const char **what) {
    const char *dot = strchr(site, '.');
    int64_t layer = -1;
    if (site[0] != 'l' || !dot || !str_to_i64((struct str){site + 1, (size_t)(dot - site - 1)}, &layer)) return -1;
    *what = dot + 1;
    return (int)MIN(layer, INT32_MAX);
}

// Takes over what an evaluator saw: the products of the gated parts, keys, values, and the residual's sums.
void npu_calibration_add(struct npu_calibration *c, const struct npu_list *l, const struct npu_site *sites) {
    for (int i = 0; i < l->n_ops; i++) {
        const struct npu_op *op = &l->ops[i];
        const char *what = NULL;
        int layer = site_split(op->site, &what);
        if (layer < 0 || layer >= c->n_layers) continue;
        if (op->kind == NPU_OP_ADD && strcmp(what, "residual") == 0) site_add(&c->residual, &sites[i]);
        bool gated = op->kind == NPU_OP_MUL, matrix = op->kind == NPU_OP_CONV;
        for (int p = 0; p < PART_COUNT; p++)
            if (strcmp(what, part_sites[p]) == 0 && (p < PART_VALUE ? gated : matrix))
                site_add(&c->sites[p * c->n_layers + layer], &sites[i]);
    }
}

struct range {
    int lo, hi;
};

// log2 of the largest magnitude in rows [first, first + n_rows) of a tensor; false: it cannot be read any more, or all
// are zero.
static bool top_find(const struct tensor *t, int64_t first, int64_t n_rows, float *out) {
    uint64_t row_bytes = 0;
    float top = 0;
    if (!t || !tensor_has_data(t) || !format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes)) return false;
    uint8_t *bytes = mem_alloc((size_t)row_bytes);
    float *row = mem_alloc((size_t)t->ne[0] * sizeof(float));
    for (int64_t r = first; bytes && row && r < first + n_rows; r++) {
        model_tensor_read(t, r, 0, t->ne[0], bytes);
        op_dequant_row(t->format, bytes, t->ne[0], row);
        for (int64_t i = 0; i < t->ne[0]; i++) top = MAX(top, fabsf(row[i]));
    }
    mem_free(bytes);
    mem_free(row);
    *out = log2f(top);
    return top > 0;
}

// What the weights around a site bear: `before` is multiplied by 2^e, `behind` by 2^-e.
static struct range weights_range(const struct model *m, enum part part, int layer) {
    const struct model_layer *l = &m->layers[layer];
    const struct tensor *before = part == PART_FFN ? l->ffn_up : part == PART_CONV ? l->conv_in : l->v;
    const struct tensor *behind = part == PART_FFN ? l->ffn_down : part == PART_CONV ? l->conv_taps : l->o;
    float a, b, step = log2f(127);
    int64_t rows = before ? part == PART_CONV ? m->hyper.n_embd : before->ne[1] : 0; // of conv_in the first third, B
    if (!top_find(before, 0, rows, &a) || !top_find(behind, 0, behind->ne[1], &b))
        return (struct range){-CALIBRATE_FREE, CALIBRATE_FREE};
    struct range r = {.lo = (int)ceilf(SCALE_LEAST + step - a),
                      .hi = (int)floorf(part == PART_CONV ? b - TAP_LEAST : b - step - SCALE_LEAST)};
    if (r.lo > r.hi) r.lo = r.hi = (r.lo + r.hi) / 2; // neither fits wholly
    return (struct range){MAX(r.lo, -CALIBRATE_MAX), MIN(r.hi, CALIBRATE_MAX)};
}

// The exponent for a site that was observed with `now` folded in already.
static int exponent_choose(const struct npu_site *s, int now, struct range r) {
    int e = now;
    if (s->n > 0 && s->max > 0) {
        int top = (int)ceilf(log2f(s->max)) - now;
        bool high = top + now > CALIBRATE_TOP || s->n_over > 0;
        bool low = (double)s->n_tiny > CALIBRATE_LOSS * (double)s->n;
        if (high || low) e = CALIBRATE_TOP - top;
    }
    return MIN(MAX(e, r.lo), r.hi);
}

static void line_put(struct buf *out, const char *name, int layer, int e, const struct npu_site *s) {
    double n = (double)MAX(s->n, 1);
    buf_putf(out, "%s %d %d # max %.6g, below normal %.4f %%, beyond fp16 %llu of %llu\n", name, layer, e,
             (double)s->max, 100 * (double)s->n_tiny / n, (unsigned long long)s->n_over, (unsigned long long)s->n);
}

enum tern_status npu_calibration_write(const struct npu_calibration *c, const struct model *m, int residual,
                                       const char *path, struct tern_err *err) {
    struct buf b;
    buf_init(&b, SCALES_FILE_MAX);
    buf_puts(&b, "# what layer exponent: powers of two that programs carry (doc/npu.md)\n");
    struct range free_range = {-CALIBRATE_FREE, CALIBRATE_FREE};
    line_put(&b, "residual", 0, exponent_choose(&c->residual, residual, free_range), &c->residual);
    for (int p = 0; p < PART_KEY; p++) // q and k that are normed need none
        for (int i = 0; i < c->n_layers; i++) {
            const struct npu_site *s = &c->sites[p * c->n_layers + i];
            int now = c->exponents[p * c->n_layers + i];
            if (s->n > 0) line_put(&b, part_names[p], i, exponent_choose(s, now, weights_range(m, (enum part)p, i)), s);
        }
    enum tern_status status = b.failed ? err_set(err, TERN_NO_MEMORY, "npu unit: no memory for scales")
                                       : file_write_atomic(path, b.data, b.len, err);
    buf_release(&b);
    return status;
}

static enum tern_status line_read(struct npu_calibration *c, struct str line, int number, const char *path,
                                  struct npu_scales *out, struct tern_err *err) {
    struct str word[3] = {0};
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        while (at < line.len && line.data[at] == ' ') at++;
        size_t begin = at;
        while (at < line.len && line.data[at] != ' ') at++;
        word[i] = (struct str){line.data + begin, at - begin};
    }
    int64_t layer = 0, e = 0;
    bool fits = str_to_i64(word[1], &layer) && str_to_i64(word[2], &e) && layer >= 0 && layer < c->n_layers &&
                e >= -CALIBRATE_MAX && e <= CALIBRATE_MAX;
    if (fits && str_eqz(word[0], "residual")) {
        out->residual = (int)e;
        return TERN_OK;
    }
    for (int p = 0; fits && p < PART_COUNT; p++)
        if (str_eqz(word[0], part_names[p])) {
            c->exponents[p * c->n_layers + layer] = (int8_t)e;
            return TERN_OK;
        }
    return err_set(
        err, TERN_BAD_FORMAT,
        "%s, line %d: expected residual, ffn, conv, value or key, a layer below %d and an exponent of -%d to "
        "%d",
        path, number, c->n_layers, CALIBRATE_MAX, CALIBRATE_MAX);
}

enum tern_status npu_scales_read(struct npu_calibration *c, const char *path, struct npu_scales *out,
                                 struct tern_err *err) {
    struct buf b;
    buf_init(&b, SCALES_FILE_MAX);
    enum tern_status status = file_read_all(&b, path, err);
    int number = 1;
    for (size_t at = 0; status == TERN_OK && at < b.len; number++) {
        size_t end = at;
        while (end < b.len && b.data[end] != '\n') end++;
        struct str line = {b.data + at, end - at};
        at = end + 1;
        size_t comment = str_find(line, STR("#"), 0);
        line = str_trim((struct str){line.data, MIN(comment, line.len)});
        if (line.len > 0) status = line_read(c, line, number, path, out, err);
    }
    buf_release(&b);
    out->n_layers = c->n_layers;
    out->ffn = c->exponents + PART_FFN * c->n_layers;
    out->conv = c->exponents + PART_CONV * c->n_layers;
    out->value = c->exponents + PART_VALUE * c->n_layers;
    out->key = c->exponents + PART_KEY * c->n_layers;
    return status;
}
