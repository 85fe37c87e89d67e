// A step as inputs of a list, and a list's outputs as what the step asked for.
//
// Columns of the window are the step's rows. Cache columns are those of the step's sequences, one behind the other,
// each from a multiple of 32 on, so one list serves a chain, a tree, or many sequences: the mask says who sees what.
// Frames are the stored convolution rows of each sequence.
#include "base/base.h"
#include <math.h>
#include "unit/npu/npu_unit.h"

#define PIECE 256 // values of an embedding row at a time: a multiple of every block

static enum tern_status too_long(const struct npu_call *c, int columns, struct tern_err *err) {
    const struct unit_program *p = c->p;
    return err_set(err, TERN_LIMIT,
                   "npu unit: a context of %d positions; the largest bucket has %d (TERN_NPU_CTX sets it, up to %d)",
                   columns, p->variants[p->n_variants - 1]->bucket, NPU_CTX_MAX);
}

enum tern_status npu_call_begin(struct npu_call *c, struct tern_err *err) {
    const struct step *s = c->s;
    const struct prog *p = c->p->prog;
    const struct npu_variant *largest = c->p->variants[c->p->n_variants - 1];
    int columns = 0, frames = 0, per_seq = p->hyper->conv_len - 1, v = 0;
    for (int i = 0; i < s->n_seqs; i++) c->column[i] = c->frame[i] = -1;
    c->next = s->n_seqs;
    for (int i = c->first; p->spec.kind != PROG_LINEAR && i < s->n_seqs; i++) {
        bool used = false;
        for (int r = 0; r < s->n_rows && !used; r++) used = s->rows[r].seq == i;
        int more = used && p->has_attn ? int_round_up(s->seqs[i].len, NPU_BLOCK) : 0;
        bool frame = used && p->has_conv && s->seqs[i].conv_in >= 0;
        if (more > largest->bucket) return too_long(c, more, err);
        if (columns + more > largest->bucket || (frame && frames + per_seq > largest->list->n_frames)) {
            c->next = i;
            break;
        }
        if (more > 0) c->column[i] = columns;
        if (frame) c->frame[i] = frames;
        columns += more;
        frames += frame ? per_seq : 0;
    }
    while (c->p->variants[v]->bucket < columns) v++;
    c->v = c->p->variants[v];
    c->columns = columns;
    return TERN_OK;
}

// A linear layer's rows are of no sequence.
static bool row_has(const struct npu_call *c, int row) {
    return c->p->prog->spec.kind == PROG_LINEAR || npu_call_has(c, c->s->rows[row].seq);
}

static void half_round(const struct npu_call *c, float *x, int n) {
    if (c->u->rules->half) c->u->kernels->round(NPU_FIX_HALF, n, x, x);
}

static float *port_at(const struct step *s, enum prog_port port) {
    return s->ports[port].buf ? (float *)(void *)(s->ports[port].buf->host + s->ports[port].offset) : NULL;
}

// Row-wise floats [rows][stride] to columns of x (1, n, 1, S), times a factor; the other columns are zero.
static void rows_fill(const struct npu_call *c, const float *rows, size_t stride, float factor, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    float *x = npu_value_at(c->v, tensor);
    int n = t->shape[1], S = t->shape[3];
    memset(x, 0, (size_t)n * (size_t)S * sizeof(float));
    for (int r = 0; r < c->s->n_rows; r++)
        for (int k = 0; k < n; k++)
            x[(size_t)k * (size_t)S + (size_t)r] = rows[(size_t)r * stride + (size_t)k] * factor;
    half_round(c, x, n * S);
}

// Columns to rows [n_rows][stride]; row_of: rows of the step that they are, NULL for all of them; picked: column i is
// what the head picked, else that of the row.
static void rows_take(const struct npu_call *c, int tensor, int n_rows, const int16_t *row_of, bool picked,
                      float factor, float *rows, size_t stride) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    const float *x = npu_value_at(c->v, tensor);
    size_t S = (size_t)t->shape[3];
    for (int r = 0; rows && r < n_rows; r++) {
        int row = row_of ? row_of[r] : r;
        if (!row_has(c, row)) continue;
        size_t col = picked ? (size_t)r : (size_t)row;
        for (int k = 0; k < t->shape[1]; k++) rows[(size_t)r * stride + (size_t)k] = x[(size_t)k * S + col] * factor;
    }
}

static float residual(const struct npu_call *c) { return ldexpf(1, c->p->weights->scales.residual); }

static void embed_fill(const struct npu_call *c, int tensor) {
    const struct model *m = c->p->prog->model;
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    float *x = npu_value_at(c->v, tensor);
    int n = t->shape[1], S = t->shape[3];
    float factor = residual(c) * (m->hyper.embed_scale > 0 ? m->hyper.embed_scale : 1);
    uint8_t bytes[4 * PIECE];
    float piece[PIECE];
    memset(x, 0, (size_t)n * (size_t)S * sizeof(float));
    for (int r = 0; r < c->s->n_rows; r++)
        for (int k = 0; k < n; k += PIECE) {
            int len = MIN(n - k, PIECE);
            model_tensor_read(m->embedding, c->s->rows[r].token, k, len, bytes);
            op_dequant_row(m->embedding->format, bytes, len, piece);
            for (int j = 0; j < len; j++) x[(size_t)(k + j) * (size_t)S + (size_t)r] = piece[j] * factor;
        }
    half_round(c, x, n * S);
}

static void rope_fill(const struct npu_call *c, int tensor, bool is_sin) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    float *x = npu_value_at(c->v, tensor), table[OP_HEAD_DIM_MAX];
    int d = t->shape[1], S = t->shape[3], half = d / 2;
    for (int r = 0; r < S; r++) {
        op_rope_table(r < c->s->n_rows ? c->s->rows[r].pos : 0, c->p->weights->rope_freq, half, table);
        for (int j = 0; j < d; j++) x[(size_t)j * (size_t)S + (size_t)r] = table[j % half + (is_sin ? half : 0)];
    }
    half_round(c, x, d * S);
}

static void mask_fill(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    float *x = npu_value_at(c->v, tensor);
    const struct step *s = c->s;
    size_t keys = (size_t)t->shape[1], S = (size_t)t->shape[3], T = keys - S;
    for (size_t i = 0; i < keys * S; i++) x[i] = NPU_MASK_OFF;
    for (int r = 0; r < s->n_rows; r++) {
        const struct step_row *row = &s->rows[r];
        for (int j = 0; c->column[row->seq] >= 0 && j < s->seqs[row->seq].len; j++)
            x[(size_t)(c->column[row->seq] + j) * S + (size_t)r] = 0;
        if (s->flags & STEP_FULL) {
            for (int j = 0; j < s->n_rows; j++)
                if (s->rows[j].seq == row->seq) x[(T + (size_t)j) * S + (size_t)r] = 0;
        } else {
            for (int j = r; j >= 0; j = s->rows[j].parent) x[(T + (size_t)j) * S + (size_t)r] = 0;
        }
    }
}

static void tap_fill(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    const struct step *s = c->s;
    float *x = npu_value_at(c->v, tensor);
    int S = t->shape[1], F = c->v->list->n_frames, newest = s->n_taps - 2;
    memset(x, 0, (size_t)t->shape[0] * (size_t)S * sizeof(float));
    for (int r = 0; r < s->n_rows; r++) {
        int tap = s->taps[(size_t)r * (size_t)s->n_taps + (size_t)t->index], frame = c->frame[s->rows[r].seq];
        if (tap == STEP_TAP_ZERO || (tap < 0 && frame < 0)) continue;
        int at = tap >= 0 ? F + tap : frame + newest - (-1 - tap);
        x[(size_t)at * (size_t)S + (size_t)r] = 1;
    }
}

static void pick_fill(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    float *x = npu_value_at(c->v, tensor);
    memset(x, 0, (size_t)npu_tensor_len(t) * sizeof(float));
    for (int o = 0; o < c->s->n_out; o++) x[(size_t)c->s->out_rows[o] * (size_t)t->shape[1] + (size_t)o] = 1;
}

static void rows_in_fill(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    const struct prog *p = c->p->prog;
    const struct model_hyper *h = p->hyper;
    size_t n = (size_t)t->shape[1], all = (size_t)((h->n_head + 2 * h->n_head_kv) * h->head_dim);
    if (t->index >= 0) { // q, k or v of PORT_QKV
        size_t kv = (size_t)(h->n_head_kv * h->head_dim);
        size_t at = t->index == 0 ? 0 : (size_t)(h->n_head * h->head_dim) + (t->index == 2 ? kv : 0);
        rows_fill(c, port_at(c->s, PORT_QKV) + at, all, 1, tensor);
    } else if (p->reads_tokens) {
        embed_fill(c, tensor);
    } else {
        bool attn = p->spec.kind == PROG_SEGMENT && t->layer == (int)PORT_ATTN;
        bool rows = p->spec.kind == PROG_LAYERS || p->spec.kind == PROG_SEGMENT;
        rows_fill(c, port_at(c->s, attn ? PORT_ATTN : PORT_ROWS_IN), n, rows && !attn ? residual(c) : 1, tensor);
    }
}

static void input_fill(const struct npu_call *c, int tensor) {
    switch (c->v->list->tensors[tensor].role) {
    case NPU_IN_ROWS: rows_in_fill(c, tensor); break;
    case NPU_IN_COS: rope_fill(c, tensor, false); break;
    case NPU_IN_SIN: rope_fill(c, tensor, true); break;
    case NPU_IN_MASK: mask_fill(c, tensor); break;
    case NPU_IN_TAP: tap_fill(c, tensor); break;
    case NPU_IN_PICK: pick_fill(c, tensor); break;
    case NPU_IN_K:
    case NPU_IN_V: npu_cache_fill(c, tensor, 0, c->p->prog->hyper->n_head_kv); break;
    case NPU_IN_FRAMES: npu_frames_fill(c, tensor); break;
    default: TERN_BUG("npu unit: input %s has no filler", c->v->list->tensors[tensor].name);
    }
}

static void fill_member(void *arg, const struct team_member *self) {
    const struct npu_call *c = arg;
    for (int i = self->index; i < c->v->list->n_inputs; i += self->n) {
        bool late = c->v->stage && npu_stage_turn(c->v->stage, i) != NPU_NONE;
        if (!late) input_fill(c, c->v->list->inputs[i]);
    }
}

void npu_call_fill(struct npu_call *c) { team_run(c->u->team, fill_member, c); }

// ------------------------------------------------------------------------------------------------------------- results

// Column of the head for each output: its own with "pick", else that of its row.
static size_t head_column(const struct npu_call *c, int o) {
    return c->v->list->picks ? (size_t)o : (size_t)c->s->out_rows[o];
}

static void logits_take(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    const uint16_t *half = npu_value_half(c->v, tensor);
    const float *x = half ? NULL : npu_value_at(c->v, tensor);
    const struct model_hyper *h = c->p->prog->hyper;
    size_t R = (size_t)t->shape[3], n = (size_t)h->n_vocab;
    size_t first = (size_t)t->index * NPU_HEAD_PIECE, whole = (size_t)(h->n_vocab_used / NPU_SUBRANGE * NPU_SUBRANGE);
    first = MIN(first, whole);
    float *out = port_at(c->s, PORT_LOGITS), wide[NPU_WINDOW_MAX];
    for (int k = 0; out && k < t->shape[1]; k++) {
        const float *from = half ? wide : x + (size_t)k * R;
        if (half) c->u->kernels->widen(half + (size_t)k * R, (int)R, wide);
        for (int o = 0; o < c->s->n_out; o++)
            if (row_has(c, c->s->out_rows[o])) out[(size_t)o * n + first + (size_t)k] = from[head_column(c, o)];
    }
    for (int o = 0; out && o < c->s->n_out; o++)
        for (size_t k = (size_t)h->n_vocab_used; row_has(c, c->s->out_rows[o]) && k < n; k++)
            out[(size_t)o * n + k] = -INFINITY;
}

// The first sub-range with the largest maximum; its index counts from its first id.
static void argmax_take(const struct npu_call *c, int tensor) {
    const struct npu_list *l = c->v->list;
    const struct npu_tensor *t = &l->tensors[tensor];
    const float *top = npu_value_at(c->v, tensor);
    const float *arg = npu_value_at(c->v, npu_find_role(l, NPU_OUT_ARG, NPU_NONE, t->index));
    struct prog_argmax *out = (struct prog_argmax *)(void *)port_at(c->s, PORT_ARGMAX);
    int whole = c->p->prog->hyper->n_vocab_used / NPU_SUBRANGE * NPU_SUBRANGE;
    int first = MIN(t->index * NPU_HEAD_PIECE, whole);
    size_t R = (size_t)t->shape[3];
    for (int o = 0; out && o < c->s->n_out; o++) {
        if (!row_has(c, c->s->out_rows[o])) continue;
        if (t->index == 0) out[o] = (struct prog_argmax){.id = -1, .max = NAN};
        for (int i = 0; i < t->shape[1]; i++) {
            size_t at = (size_t)i * R + head_column(c, o);
            if (!(top[at] == top[at]) || (out[o].id >= 0 && !(top[at] > out[o].max))) continue;
            out[o] = (struct prog_argmax){.id = first + i * NPU_SUBRANGE + (int32_t)arg[at], .max = top[at]};
        }
    }
}

static void output_take(const struct npu_call *c, int tensor) {
    const struct step *s = c->s;
    const struct prog *p = c->p->prog;
    const struct model_hyper *h = p->hyper;
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    size_t n = (size_t)t->shape[1];
    float back = 1 / residual(c);
    switch (t->role) {
    case NPU_OUT_LOGITS: logits_take(c, tensor); break;
    case NPU_OUT_MAX: argmax_take(c, tensor); break;
    case NPU_OUT_ROWS:
        rows_take(c, tensor, s->n_rows, NULL, false, p->spec.kind == PROG_LINEAR ? 1 : back, port_at(s, PORT_ROWS_OUT),
                  n);
        break;
    case NPU_OUT_QKV: {
        size_t kv = (size_t)(h->n_head_kv * h->head_dim), q = (size_t)(h->n_head * h->head_dim);
        size_t at = t->index == 0 ? 0 : q + (t->index == 2 ? kv : 0);
        rows_take(c, tensor, s->n_rows, NULL, false, 1, port_at(s, PORT_QKV) + at, q + 2 * kv);
        break;
    }
    case NPU_OUT_ATTN: rows_take(c, tensor, s->n_rows, NULL, false, 1, port_at(s, PORT_ATTN), n); break;
    case NPU_OUT_FEATURE: {
        float *rows = port_at(s, PORT_FEATURES);
        if (rows)
            rows_take(c, tensor, s->n_rows, NULL, false, back, rows + (size_t)t->index * n,
                      (size_t)p->spec.n_features * n);
        break;
    }
    case NPU_OUT_HIDDEN:
        if (p->has_head)
            rows_take(c, tensor, s->n_out, s->out_rows, c->v->list->picks, 1, port_at(s, PORT_HIDDEN), n);
        else
            rows_take(c, tensor, s->n_rows, NULL, false, 1, port_at(s, PORT_HIDDEN), n);
        break;
    case NPU_OUT_K: npu_cache_store(c, tensor); break;
    case NPU_OUT_FRAMES: npu_frames_store(c, tensor); break;
    default: break; // ARG goes with MAX, V with K
    }
}

static void take_member(void *arg, const struct team_member *self) {
    const struct npu_call *c = arg;
    const struct npu_list *l = c->v->list;
    int at = 0;
    for (int i = 0; i < l->n_outputs; i++) {
        bool max = l->tensors[l->outputs[i]].role == NPU_OUT_MAX; // pieces in order, by one member
        if (max ? self->index == 0 : at++ % self->n == self->index) output_take(c, l->outputs[i]);
    }
}

void npu_call_take(struct npu_call *c) { team_run(c->u->team, take_member, c); }
