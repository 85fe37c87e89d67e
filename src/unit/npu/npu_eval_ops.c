// What each operation computes, shared out over a team's members: by rows of results, never inside a sum.
//
// Products (convolutions, matrix products, sums over an axis) go through one tile kernel: 16 rows by 64 columns by 128
// terms at a time. The weights of a tile are dequantised into it, so int8 weights are never expanded as a whole.
#include "base/base.h"
#include <math.h>
#include "unit/npu/npu_eval_int.h"

#define GRAIN 4096 // elementwise values of one piece of work

static int64_t product(const struct npu_tensor *t, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= t->shape[i];
    return n;
}

// ------------------------------------------------------------------------------------------------------------ products

typedef void (*weights_fn)(const struct npu_eval *e, const void *arg, int row, int rows, int k, int depth, float *out);
struct product {
    weights_fn weights; // fills out[r][NPU_TILE_DEPTH]
    const void *arg;
    const float *x; // [depth][x_stride]
    int64_t x_stride;
    int depth, cols;
    enum npu_mac mac;
    float *y; // [rows][y_stride]
    int64_t y_stride;
    float step;    // of x rounded to int8 first; 0: not
    float divide;  // the sum by this before it is stored; 0: not
    bool sum_away; // see npu_rules.h
    bool sparse;   // terms of zeros are left out
};

static void tile_x(const struct npu_eval *e, const struct product *p, int k, int depth, int c, int cols, int padded,
                   float *out) {
    for (int i = 0; i < depth; i++) {
        float *row = out + i * NPU_TILE_COLS;
        const float *from = p->x + (int64_t)(k + i) * p->x_stride + c;
        if (e->rules->flush && p->divide == 0)
            e->k->flush(cols, from, row);
        else
            memcpy(row, from, (size_t)cols * sizeof(float));
        if (p->step > 0) { // to the nearest of 255 steps: adding 1.5 * 2^23 rounds to whole numbers
            for (int j = 0; j < cols; j++) row[j] = (row[j] / p->step + 0x1.8p23f - 0x1.8p23f) * p->step;
            if (e->rules->half) e->k->round(NPU_FIX_HALF, cols, row, row);
        }
        for (int j = cols; j < padded; j++) row[j] = 0;
    }
}

static float store_away(float v) { // fp16, half away from zero
    float y = f16_to_f32(f32_to_f16(v)), up = f16_to_f32(f32_to_f16(v + (v - y)));
    return fabsf(up) > fabsf(y) && fabsf(v - y) == fabsf(up - v) ? up : y;
}

static void tile_store(const struct npu_eval *e, const struct product *p, int row, int rows, int c, int cols,
                       float acc[NPU_TILE_ROWS][NPU_TILE_COLS]) {
    bool is_sum = p->divide != 0;
    for (int r = 0; r < rows; r++) {
        float *y = p->y + (int64_t)(row + r) * p->y_stride + c;
        for (int j = 0; p->divide > 0 && j < cols; j++) acc[r][j] = acc[r][j] / p->divide;
        for (int j = 0; p->sum_away && j < cols; j++) acc[r][j] = store_away(acc[r][j]);
        e->k->round(e->fix, cols, acc[r], y);
        if (e->rules->flush && !is_sum) e->k->flush(cols, y, y);
    }
}

// Most terms of a one-hot product, and of attention behind a short context, are zeros: a zero of x adds nothing to any
// sum unless it meets an infinity. Runs of terms that count, in whole tiles of four.
struct live {
    uint64_t bits[NPU_AXIS_MAX / 256 + 1]; // of fours of terms: some x is not zero
    bool finite;                           // all of x
};

static void live_find(const struct npu_eval *e, const struct product *p, struct live *live) {
    uint32_t all = 0;
    memset(live->bits, 0, (size_t)(p->depth / 256 + 1) * sizeof live->bits[0]);
    for (int k = 0; k < p->depth; k++) {
        uint32_t any = e->k->look(p->cols, p->x + k * p->x_stride);
        if (any != 0) live->bits[k / 256] |= 1ull << (k / 4 % 64);
        all |= any;
    }
    live->finite = !(all & NPU_LOOK_WILD);
}

// The tile's terms from k on, of a product whose terms may be left out.
static void tile_sparse(const struct npu_eval *e, const struct product *p, const struct live *live, int k,
                        const struct npu_tile *t) {
    uint32_t any = 0;
    for (int r = 0; r < t->rows; r++) any |= e->k->look(t->depth, t->w + r * t->w_stride);
    if (any == 0 && live->finite) return;
    if (any & NPU_LOOK_WILD) {
        e->k->mac(p->mac, t);
        return;
    }
    for (int i = 0; i < t->depth;) {
        int begin = i;
        while (i < t->depth && (live->bits[(k + i) / 256] >> ((k + i) / 4 % 64) & 1)) i += 4;
        if (i == begin) {
            i += 4;
            continue;
        }
        struct npu_tile part = *t;
        part.w += begin;
        part.x += (int64_t)begin * t->x_stride;
        part.depth = MIN(i, t->depth) - begin;
        e->k->mac(p->mac, &part);
    }
}

// Rows [begin, end) of results.
static void product_run(const struct npu_eval *e, const struct product *p, int begin, int end) {
    _Alignas(64) float acc[NPU_TILE_ROWS][NPU_TILE_COLS];
    _Alignas(64) float w[NPU_TILE_ROWS * NPU_TILE_DEPTH];
    _Alignas(64) float x[NPU_TILE_DEPTH * NPU_TILE_COLS];
    struct live live;
    bool is_sum = p->divide != 0;
    // Sums of fp16 values are never -0, which leaving out a term could change.
    bool sparse = p->sparse && e->rules->half && p->depth <= NPU_AXIS_MAX && begin < end;
    if (sparse) live_find(e, p, &live);
    for (int row = begin; row < end; row += NPU_TILE_ROWS)
        for (int c = 0; c < p->cols; c += NPU_TILE_COLS) {
            int rows = MIN(NPU_TILE_ROWS, end - row), cols = MIN(NPU_TILE_COLS, p->cols - c);
            int padded = int_round_up(cols, 16);
            bool copy = cols != padded || (e->rules->flush && !is_sum) || p->step > 0;
            memset(acc, 0, (size_t)rows * sizeof acc[0]);
            for (int k = 0; k < p->depth; k += NPU_TILE_DEPTH) {
                int depth = MIN(NPU_TILE_DEPTH, p->depth - k);
                struct npu_tile t = {.w = w,
                                     .w_stride = NPU_TILE_DEPTH,
                                     .acc = &acc[0][0],
                                     .rows = rows,
                                     .cols = padded,
                                     .depth = depth,
                                     .x = p->x + (int64_t)k * p->x_stride + c,
                                     .x_stride = (int)p->x_stride,
                                     .cliff = is_sum || p->depth == 1 ? 0 : e->rules->cliff};
                p->weights(e, p->arg, row, rows, k, depth, w);
                for (int r = 0; e->rules->flush && !is_sum && r < rows; r++)
                    e->k->flush(depth, w + r * NPU_TILE_DEPTH, w + r * NPU_TILE_DEPTH);
                if (copy) {
                    tile_x(e, p, k, depth, c, cols, padded, x);
                    t.x = x;
                    t.x_stride = NPU_TILE_COLS;
                }
                if (sparse)
                    tile_sparse(e, p, &live, k, &t);
                else
                    e->k->mac(p->mac, &t);
            }
            tile_store(e, p, row, rows, c, cols, acc);
        }
}

static void weights_conv(const struct npu_eval *e, const void *arg, int row, int rows, int k, int depth, float *out) {
    const struct npu_weight *w = arg;
    size_t n = (size_t)w->shape[1];
    for (int r = 0; r < rows; r++) {
        size_t at = (size_t)(row + r) * n + (size_t)k;
        float *to = out + r * NPU_TILE_DEPTH;
        if (w->kind == NPU_WEIGHT_I8)
            e->k->dequant(w->q + at, f16_to_f32(w->scale[row + r]), depth, e->rules->half, to);
        else
            e->k->widen(w->half + at, depth, to);
    }
}

static bool site_reads_norm(const char *site) {
    static const char *const ends[] = {".q", ".k", ".v", ".gate", ".up", ".conv_in"};
    struct str s = str_from(site);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (str_ends(s, str_from(ends[i]))) return true;
    return str_find(s, STR(".conv_in."), 0) != (size_t)-1;
}

// The step of a convolution's rounded input; 0: it is not rounded. Every member finds the same.
static float act_step(const struct npu_eval *e, const struct npu_op *op, const float *x, int64_t n) {
    float top = 0;
    if (e->act == NPU_ACT_PLAIN || (e->act == NPU_ACT_INT8_IN && !site_reads_norm(op->site))) return 0;
    for (int64_t i = 0; i < n; i++) top = fabsf(x[i]) > top && fabsf(x[i]) < INFINITY ? fabsf(x[i]) : top;
    return top / 127;
}

// Columns that nobody reads, of rows [begin, end): zero, for a later product multiplies them with zeros.
static void rest_clear(float *y, int begin, int end, int cols, int used) {
    for (int64_t r = begin; r < end && used < cols; r++)
        memset(y + r * cols + used, 0, (size_t)(cols - used) * sizeof(float));
}

static void op_conv(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *x = &e->list->tensors[op->in[0]];
    const struct npu_weight *w = e->list->tensors[op->in[1]].weight;
    int begin, end, cols = x->shape[3];
    struct product p = {.weights = weights_conv,
                        .arg = w,
                        .x = eval_data(e, op->in[0]),
                        .x_stride = cols,
                        .depth = x->shape[1],
                        .cols = eval_columns(e, op->out),
                        .mac = e->rules->conv,
                        .y = eval_data(e, op->out),
                        .y_stride = cols,
                        .step = act_step(e, op, eval_data(e, op->in[0]), npu_tensor_len(x))};
    team_share(self, w->shape[0], NPU_TILE_ROWS, &begin, &end);
    product_run(e, &p, begin, end);
    rest_clear(p.y, begin, end, cols, p.cols);
}

struct rows_arg {
    const float *w;
    int64_t stride;
};

static void weights_rows(const struct npu_eval *e, const void *arg, int row, int rows, int k, int depth, float *out) {
    const struct rows_arg *a = arg;
    (void)e;
    for (int r = 0; r < rows; r++)
        memcpy(out + r * NPU_TILE_DEPTH, a->w + (int64_t)(row + r) * a->stride + k, (size_t)depth * sizeof(float));
}

static void op_matmul(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *a = &e->list->tensors[op->in[0]], *y = &e->list->tensors[op->out];
    int m = a->shape[1], k = a->shape[2], n = y->shape[2], begin, end;
    team_share(self, m, NPU_TILE_ROWS, &begin, &end);
    for (int b = 0; b < a->shape[0]; b++) {
        struct rows_arg w = {.w = eval_data(e, op->in[0]) + (int64_t)b * m * k, .stride = k};
        struct product p = {.weights = weights_rows,
                            .arg = &w,
                            .x = eval_data(e, op->in[1]) + (int64_t)b * k * n,
                            .x_stride = n,
                            .depth = k,
                            .cols = eval_columns(e, op->out),
                            .mac = e->rules->matmul,
                            .y = eval_data(e, op->out) + (int64_t)b * m * n,
                            .y_stride = n,
                            .sparse = true};
        product_run(e, &p, begin, end);
        rest_clear(p.y, begin, end, n, p.cols);
    }
}

static void weights_ones(const struct npu_eval *e, const void *arg, int row, int rows, int k, int depth, float *out) {
    (void)e, (void)arg, (void)row, (void)rows, (void)k;
    for (int i = 0; i < depth; i++) out[i] = 1;
}

// Over an axis: a product with ones, one row of results for each outer index.
static void op_sum(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *x = &e->list->tensors[op->in[0]];
    int n = x->shape[op->axis], begin, end;
    int64_t outer = product(x, 0, op->axis), inner = product(x, op->axis + 1, x->rank);
    bool mean = op->kind == NPU_OP_MEAN;
    team_share(self, (int)(outer * inner), 1, &begin, &end);
    for (int64_t i = begin; i < end;) {
        int64_t o = i / inner, c = i % inner, cols = MIN(inner - c, end - i);
        struct product p = {.weights = weights_ones,
                            .x = eval_data(e, op->in[0]) + o * n * inner + c,
                            .x_stride = inner,
                            .depth = n,
                            .cols = (int)cols,
                            .mac = e->rules->sum,
                            .y = eval_data(e, op->out) + o * inner + c,
                            .y_stride = inner,
                            .divide = mean ? (float)n : -1,
                            .sum_away = e->rules->sum_away};
        product_run(e, &p, 0, 1);
        i += cols;
    }
}

// --------------------------------------------------------------------------------------------------------- elementwise

static void op_binary(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *a = &e->list->tensors[op->in[0]], *b = &e->list->tensors[op->in[1]];
    const struct npu_tensor *y = &e->list->tensors[op->out];
    const float *pa = eval_data(e, op->in[0]), *pb = eval_data(e, op->in[1]);
    float *py = eval_data(e, op->out);
    int begin, end, split = y->rank; // axes [split, rank) are equal in all three, or one of a and b has one value there
    bool same_a = true, same_b = true;
    int64_t sa = 1, sb = 1, run = 1;
    int64_t stride_a[NPU_RANK_MAX], stride_b[NPU_RANK_MAX];
    for (int i = y->rank - 1; i >= 0; i--) {
        stride_a[i] = a->shape[i] == 1 && y->shape[i] != 1 ? 0 : sa;
        stride_b[i] = b->shape[i] == 1 && y->shape[i] != 1 ? 0 : sb;
        sa *= a->shape[i];
        sb *= b->shape[i];
    }
    for (int i = y->rank - 1; i >= 0; i--) { // grow the inner run while both operands step or stand still in it
        bool fits_a = y->shape[i] == 1 || (stride_a[i] != 0) == same_a || run == 1;
        bool fits_b = y->shape[i] == 1 || (stride_b[i] != 0) == same_b || run == 1;
        if (!fits_a || !fits_b) break;
        if (y->shape[i] != 1) {
            same_a = stride_a[i] != 0;
            same_b = stride_b[i] != 0;
        }
        run *= y->shape[i];
        split = i;
    }
    int64_t n_runs = product(y, 0, split);
    int piece = (int)MAX(1, GRAIN / MAX(run, 1)), step_a = same_a ? 1 : 0, step_b = same_b ? 1 : 0;
    if (n_runs == 1) {
        team_share(self, (int)run, 64, &begin, &end);
        if (begin < end)
            e->k->binary((int)op->kind, e->fix, end - begin, pa + (step_a ? begin : 0), step_a,
                         pb + (step_b ? begin : 0), step_b, py + begin);
        return;
    }
    team_share(self, (int)n_runs, piece, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, at_a = 0, at_b = 0;
        for (int j = split - 1; j >= 0; j--) {
            int64_t at = rest % y->shape[j];
            rest /= y->shape[j];
            at_a += at * stride_a[j];
            at_b += at * stride_b[j];
        }
        e->k->binary((int)op->kind, e->fix, (int)run, pa + at_a, step_a, pb + at_b, step_b, py + i * run);
    }
}

static float unary(const struct npu_eval *e, enum npu_op_kind kind, float x) {
    bool ane = e->rules->ane;
    switch (kind) {
    case NPU_OP_SILU: return ane && x == 0 ? NPU_SILU_ZERO : x / (1 + expf(-x));
    case NPU_OP_SIGMOID: return 1 / (1 + expf(-x));
    case NPU_OP_EXP: return ane && x >= NPU_EXP_MAX ? INFINITY : expf(x);
    case NPU_OP_RSQRT: return 1 / sqrtf(x);
    default: TERN_BUG("npu evaluator: %s is no function", npu_op_name(kind));
    }
}

static void op_unary(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const float *x = eval_data(e, op->in[0]);
    float *y = eval_data(e, op->out);
    const struct npu_tensor *t = &e->list->tensors[op->out];
    int begin, end, cols = t->shape[t->rank - 1], used = eval_columns(e, op->out);
    team_share(self, (int)(npu_tensor_len(t) / cols), MAX(1, 64 / cols), &begin, &end);
    for (int r = begin; r < end; r++) {
        const float *from = x + (int64_t)r * cols;
        float *to = y + (int64_t)r * cols;
        for (int i = 0; i < used; i++) to[i] = unary(e, op->kind, from[i]);
        for (int i = used; i < cols; i++) to[i] = 1; // no sum of them is zero
    }
    if (begin < end) e->k->round(e->fix, (end - begin) * cols, y + (int64_t)begin * cols, y + (int64_t)begin * cols);
}

// ------------------------------------------------------------------------------------------------------------ an axis

// Columns [c, c + cols) of one outer index, cols <= NPU_TILE_COLS.
static void softmax_cols(struct npu_eval *e, const float *x, float *y, int n, int64_t stride, int cols) {
    float top[NPU_TILE_COLS], sum[NPU_TILE_COLS] = {0};
    memcpy(top, x, (size_t)cols * sizeof(float));
    for (int i = 1; i < n; i++) e->k->max(cols, x + i * stride, top);
    for (int i = 0; i < n; i++) {
        const float *row = x + i * stride;
        float *to = y + i * stride;
        for (int j = 0; j < cols; j++) to[j] = expf(row[j] - top[j]);
        e->k->add(cols, to, sum);
    }
    for (int i = 0; i < n; i++) e->k->div(e->fix, cols, y + i * stride, sum, y + i * stride);
}

static void max_cols(struct npu_eval *e, const float *x, float *y, int n, int64_t stride, int cols) {
    float top[NPU_TILE_COLS];
    memcpy(top, x, (size_t)cols * sizeof(float));
    for (int i = 1; i < n; i++) e->k->max(cols, x + i * stride, top);
    memcpy(y, top, (size_t)cols * sizeof(float));
}

// The first of the largest; NaN never wins.
static void argmax_cols(const float *x, float *y, int n, int64_t stride, int cols) {
    for (int j = 0; j < cols; j++) {
        int best = 0;
        float top = NAN;
        for (int i = 0; i < n; i++) {
            float v = x[i * stride + j];
            if (v != v || v <= top) continue;
            top = v;
            best = i;
        }
        y[j] = (float)best;
    }
}

static void op_axis(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *x = &e->list->tensors[op->in[0]];
    const float *px = eval_data(e, op->in[0]);
    float *py = eval_data(e, op->out);
    int n = x->shape[op->axis], begin, end, last = x->shape[x->rank - 1], used = eval_columns(e, op->out);
    int64_t inner = product(x, op->axis + 1, x->rank), keep = op->kind == NPU_OP_SOFTMAX ? n : 1;
    team_share(self, (int)(product(x, 0, op->axis) * inner), 16, &begin, &end);
    for (int64_t i = begin; i < end;) {
        int64_t o = i / inner, c = i % inner;
        int cols = (int)MIN(MIN(inner - c, end - i), NPU_TILE_COLS);
        const float *from = px + o * n * inner + c;
        float *to = py + o * keep * inner + c;
        if (used < last && op->axis < x->rank - 1) { // the columns of one row
            int at = (int)(c % last);
            cols = MIN(cols, at < used ? used - at : last - at);
            if (at >= used) {
                for (int64_t k = 0; k < keep; k++) memset(to + k * inner, 0, (size_t)cols * sizeof(float));
                i += cols;
                continue;
            }
        }
        if (op->kind == NPU_OP_SOFTMAX) softmax_cols(e, from, to, n, inner, cols);
        if (op->kind == NPU_OP_REDUCE_MAX) max_cols(e, from, to, n, inner, cols);
        if (op->kind == NPU_OP_ARGMAX) argmax_cols(from, to, n, inner, cols);
        i += cols;
    }
}

// -------------------------------------------------------------------------------------------------------------- moving

static void op_transpose(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *x = &e->list->tensors[op->in[0]], *y = &e->list->tensors[op->out];
    const float *px = eval_data(e, op->in[0]);
    float *py = eval_data(e, op->out);
    int64_t stride[NPU_RANK_MAX], s = 1, from[NPU_RANK_MAX];
    int last = y->rank - 1, begin, end;
    for (int i = x->rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= x->shape[i];
    }
    for (int i = 0; i < y->rank; i++) from[i] = stride[op->perm[i]];
    int64_t cols = y->shape[last];
    team_share(self, (int)(npu_tensor_len(y) / cols), 16, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, at = 0;
        for (int j = last - 1; j >= 0; j--) {
            at += rest % y->shape[j] * from[j];
            rest /= y->shape[j];
        }
        for (int64_t j = 0; j < cols; j++) py[i * cols + j] = px[at + j * from[last]];
    }
}

static void op_slice(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *x = &e->list->tensors[op->in[0]];
    const float *px = eval_data(e, op->in[0]);
    float *py = eval_data(e, op->out);
    int64_t inner = product(x, op->axis + 1, x->rank), n = x->shape[op->axis], len = (op->end - op->begin) * inner;
    bool gain = e->rules->slice_gain && op->axis == x->rank - 1 && op->begin > 0;
    int begin, end;
    team_share(self, (int)product(x, 0, op->axis), 1, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *to = py + i * len;
        memcpy(to, px + (i * n + op->begin) * inner, (size_t)len * sizeof(float));
        for (int64_t j = 0; gain && j < len; j++)
            if (fabsf(to[j]) > NPU_SLICE_MAX) to[j] = to[j] > 0 ? INFINITY : -INFINITY;
    }
}

// Values [first, first + n) of an operand.
static void values_copy(const struct npu_eval *e, int id, int64_t first, int64_t n, float *to) {
    if (e->is_half[id])
        e->k->widen(eval_half(e, id) + first, (int)n, to);
    else
        memcpy(to, eval_data(e, id) + first, (size_t)n * sizeof(float));
}

static void op_concat(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    const struct npu_tensor *y = &e->list->tensors[op->out];
    float *py = eval_data(e, op->out);
    int64_t inner = product(y, op->axis + 1, y->rank), row = y->shape[op->axis] * inner, at = 0;
    int64_t outer = product(y, 0, op->axis);
    for (int i = 0; i < op->n_in; i++) {
        int64_t len = e->list->tensors[op->in[i]].shape[op->axis] * inner;
        int begin, end;
        if (outer == 1) { // few long pieces: share each
            team_share(self, (int)len, 1024, &begin, &end);
            if (begin < end) values_copy(e, op->in[i], begin, end - begin, py + at + begin);
        } else {
            team_share(self, (int)outer, 1, &begin, &end);
            for (int64_t o = begin; o < end; o++) values_copy(e, op->in[i], o * len, len, py + o * row + at);
        }
        at += len;
    }
}

void eval_op(struct npu_eval *e, const struct npu_op *op, const struct team_member *self) {
    switch (op->kind) {
    case NPU_OP_CONV: op_conv(e, op, self); break;
    case NPU_OP_MATMUL: op_matmul(e, op, self); break;
    case NPU_OP_ADD:
    case NPU_OP_SUB:
    case NPU_OP_MUL:
    case NPU_OP_DIV:
    case NPU_OP_MAX: op_binary(e, op, self); break;
    case NPU_OP_SILU:
    case NPU_OP_SIGMOID:
    case NPU_OP_EXP:
    case NPU_OP_RSQRT: op_unary(e, op, self); break;
    case NPU_OP_SUM:
    case NPU_OP_MEAN: op_sum(e, op, self); break;
    case NPU_OP_SOFTMAX:
    case NPU_OP_REDUCE_MAX:
    case NPU_OP_ARGMAX: op_axis(e, op, self); break;
    case NPU_OP_RESHAPE: break; // a view
    case NPU_OP_TRANSPOSE: op_transpose(e, op, self); break;
    case NPU_OP_SLICE: op_slice(e, op, self); break;
    case NPU_OP_CONCAT: op_concat(e, op, self); break;
    case NPU_OP_COUNT: TERN_BUG("npu evaluator: no operation");
    }
}
