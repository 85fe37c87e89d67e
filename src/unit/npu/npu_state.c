// Between the engine's state pools (prog.h) and columns of a list: keys and values by blocks, convolution rows by
// slots.
//
// Pools hold plain numbers in the model's channel order. Lists carry them times powers of two (npu_scales), in fp16,
// and with the rows of a rotated head in halves when the model rotates pairs; both are undone here.
#include "base/base.h"
#include <math.h>
#include "unit/npu/npu_unit.h"

static int exponent(const struct npu_call *c, const int8_t *list, int layer) {
    const struct npu_scales *s = &c->p->weights->scales;
    return list && layer < s->n_layers ? list[layer] : 0;
}

// Channel j of a list's head is this channel of the model's.
static int model_channel(const struct model_hyper *h, bool is_key, int j) {
    int half = h->head_dim / 2;
    if (!is_key || h->rope != ROPE_INTERLEAVED) return j;
    return j < half ? 2 * j : 2 * (j - half) + 1;
}

static float stored(enum op_kv_type type, const uint8_t *half, size_t i, int head_dim, int pos) {
    switch (type) {
    case OP_KV_F16: return f16_to_f32(load_u16(half + 2 * i));
    case OP_KV_F32: return f32_from_bits(load_u32(half + 4 * i));
    case OP_KV_Q8: {
        const uint8_t *scales = half + (size_t)head_dim * OP_BLOCK;
        return (float)(int8_t)half[i] * f32_from_bits(load_u32(scales + 4 * (size_t)pos));
    }
    }
    TERN_BUG("npu unit: K/V type %d", (int)type);
}

static const uint8_t *half_at(const struct npu_call *c, int32_t block, int layer, int head, bool is_key) {
    const struct state_layout *l = &c->s->pool->layout;
    int index = c->p->state_index[layer];
    return c->s->pool->kv->host +
           (is_key ? state_k_offset(l, block, index, head) : state_v_offset(l, block, index, head));
}

// Where a cache's columns are filled: floats, or fp16 (npu_eval_half_at).
struct columns {
    float *x; // or NULL
    uint16_t *half;
};

static void columns_zero(const struct columns *to, size_t first, size_t n) {
    if (to->half)
        memset(to->half + first, 0, n * sizeof(uint16_t));
    else
        memset(to->x + first, 0, n * sizeof(float));
}

// One block of one head into columns [channel * T + first … + 31].
static void block_fill(const struct npu_call *c, const uint8_t *half, bool is_key, float factor,
                       const struct columns *out, size_t first, int T) {
    const struct state_layout *l = &c->s->pool->layout;
    int d = l->head_dim;
    bool plain = l->kv_type == OP_KV_F16 && is_key;
    for (int j = 0; j < d; j++) {
        size_t at = first + (size_t)j * (size_t)T;
        float values[OP_BLOCK], *to = out->half ? values : out->x + at;
        int ch = model_channel(c->p->prog->hyper, is_key, j);
        if (plain) { // a row of 32 positions, as the list has it
            uint16_t row[OP_BLOCK];
            memcpy(row, half + (size_t)ch * sizeof(row), sizeof(row));
            if (out->half && factor == 1) {
                memcpy(out->half + at, row, sizeof row);
                continue;
            }
            c->u->kernels->widen(row, OP_BLOCK, to);
        } else {
            for (int p = 0; p < OP_BLOCK; p++) {
                size_t i = is_key ? (size_t)ch * OP_BLOCK + (size_t)p : (size_t)p * (size_t)d + (size_t)ch;
                to[p] = stored(l->kv_type, half, i, d, p);
            }
        }
        for (int p = 0; factor != 1 && p < OP_BLOCK; p++) to[p] *= factor;
        if (l->kv_type != OP_KV_F16 || factor != 1) {
            enum npu_fix fix = c->u->rules->half ? NPU_FIX_HALF : NPU_FIX_NONE;
            c->u->kernels->round(fix, OP_BLOCK, to, to);
        }
        if (out->half) c->u->kernels->narrow(OP_BLOCK, to, out->half + at);
    }
}

static struct columns columns_of(const struct npu_call *c, int tensor) {
    uint16_t *half = npu_value_half(c->v, tensor);
    return (struct columns){half ? NULL : npu_value_at(c->v, tensor), half};
}

// What a block holds behind the committed length is not defined, and masked columns still count as 0 * value: columns
// beyond the length become zeros.
static void tail_clear(const struct npu_call *c, int tensor, int begin, int end, const struct columns *out) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    for (int i = 0; i < c->s->n_seqs; i++) {
        int len = c->s->seqs[i].len, pad = int_round_up(len, OP_BLOCK) - len;
        for (int j = begin; c->column[i] >= 0 && pad > 0 && j < end; j++)
            columns_zero(out, (size_t)j * (size_t)t->shape[3] + (size_t)(c->column[i] + len), (size_t)pad);
    }
}

// Channels of the heads [head_begin, head_end).
void npu_cache_fill(const struct npu_call *c, int tensor, int head_begin, int head_end) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    const struct model_hyper *h = c->p->prog->hyper;
    bool is_key = t->role == NPU_IN_K;
    struct columns out = columns_of(c, tensor);
    const struct npu_scales *s = &c->p->weights->scales;
    float factor = ldexpf(1, exponent(c, is_key ? s->key : s->value, t->layer));
    int T = t->shape[3], used = 0;
    for (int i = 0; i < c->s->n_seqs; i++) {
        const struct step_seq *q = &c->s->seqs[i];
        if (c->column[i] < 0) continue;
        for (int b = 0; b < int_div_up(q->len, OP_BLOCK); b++)
            for (int g = head_begin; g < head_end; g++)
                block_fill(c, half_at(c, q->blocks[b], t->layer, g, is_key), is_key, factor, &out,
                           (size_t)(g * h->head_dim) * (size_t)T + (size_t)(c->column[i] + b * OP_BLOCK), T);
        used = MAX(used, c->column[i] + int_round_up(q->len, OP_BLOCK));
    }
    int begin = head_begin * h->head_dim, end = head_end * h->head_dim;
    for (int j = begin; j < end; j++) // masked, but 0 * what lay there must be 0
        columns_zero(&out, (size_t)j * (size_t)T + (size_t)used, (size_t)(T - used));
    tail_clear(c, tensor, begin, end, &out);
}

void npu_cache_store(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    const struct model_hyper *h = c->p->prog->hyper;
    const struct state_layout *l = &c->s->pool->layout;
    int v_tensor = npu_find_role(c->v->list, NPU_OUT_V, t->layer, NPU_NONE), index = c->p->state_index[t->layer];
    const float *k = npu_value_at(c->v, tensor), *v = npu_value_at(c->v, v_tensor);
    const struct npu_scales *s = &c->p->weights->scales;
    float fk = ldexpf(1, -exponent(c, s->key, t->layer)), fv = ldexpf(1, -exponent(c, s->value, t->layer));
    float k_row[OP_HEAD_DIM_MAX], v_row[OP_HEAD_DIM_MAX];
    uint8_t *kv = c->s->pool->kv->host;
    size_t S = (size_t)t->shape[3];
    for (int r = 0; r < c->s->n_rows; r++) {
        const struct step_row *row = &c->s->rows[r];
        if (!npu_call_has(c, row->seq)) continue;
        int32_t block = c->s->seqs[row->seq].blocks[row->slot / OP_BLOCK];
        for (int g = 0; g < h->n_head_kv; g++) {
            for (int j = 0; j < h->head_dim; j++) {
                size_t at = (size_t)(g * h->head_dim + j) * S + (size_t)r;
                k_row[model_channel(h, true, j)] = k[at] * fk;
                v_row[j] = v[at] * fv;
            }
            op_kv_write(l->kv_type, kv + state_k_offset(l, block, index, g), kv + state_v_offset(l, block, index, g),
                        row->slot % OP_BLOCK, k_row, v_row, h->head_dim);
        }
    }
}

// --------------------------------------------------------------------------------------------------------- convolution

static float *slot_row(const struct step *s, int32_t slot, int conv_index, int row) {
    const struct state_layout *l = &s->pool->layout;
    return (float *)(void *)(s->pool->conv->host + state_conv_offset(l, slot, conv_index)) +
           (size_t)row * (size_t)l->n_embd;
}

static float *window_row(const struct step *s, int conv_index, int row) {
    const struct state_layout *l = &s->pool->layout;
    return (float *)(void *)(s->pool->conv->host + state_window_offset(l, s->pool->n_slots, conv_index, row));
}

void npu_frames_fill(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    float *x = npu_value_at(c->v, tensor);
    float factor = ldexpf(1, exponent(c, c->p->weights->scales.conv, t->layer));
    int n = t->shape[1], F = t->shape[3], stored_rows = c->p->prog->hyper->conv_len - 1;
    memset(x, 0, (size_t)n * (size_t)F * sizeof(float));
    for (int i = 0; i < c->s->n_seqs; i++)
        for (int j = 0; c->frame[i] >= 0 && c->s->seqs[i].conv_in >= 0 && j < stored_rows; j++) {
            const float *row = slot_row(c->s, c->s->seqs[i].conv_in, c->p->state_index[t->layer], j);
            for (int k = 0; k < n; k++) x[(size_t)k * (size_t)F + (size_t)(c->frame[i] + j)] = row[k] * factor;
        }
    c->u->kernels->round(c->u->rules->half ? NPU_FIX_HALF : NPU_FIX_NONE, n * F, x, x);
}

// Row `to` of a slot from what a tap reads: a row of u (column-wise with stride S and factor, or row-wise), a stored
// row of conv_in, or zeros. Slots may be the same: callers go from the oldest row on.
static void slot_put(const struct step *s, const struct step_seq *q, int conv_index, int to, int tap, const float *u,
                     size_t stride, float factor) {
    const struct state_layout *l = &s->pool->layout;
    float *row = slot_row(s, q->conv_out, conv_index, to);
    size_t n = (size_t)l->n_embd;
    if (tap == STEP_TAP_ZERO || (tap < 0 && q->conv_in < 0)) {
        memset(row, 0, n * sizeof(float));
    } else if (tap < 0) {
        const float *from = slot_row(s, q->conv_in, conv_index, l->conv_len - 2 - (-1 - tap));
        if (from != row) memmove(row, from, n * sizeof(float));
    } else if (stride == 0) {
        memcpy(row, window_row(s, conv_index, tap), n * sizeof(float));
    } else {
        for (size_t k = 0; k < n; k++) row[k] = u[k * stride + (size_t)tap] * factor;
    }
}

void npu_frames_store(const struct npu_call *c, int tensor) {
    const struct npu_tensor *t = &c->v->list->tensors[tensor];
    const float *u = npu_value_at(c->v, tensor);
    const struct step *s = c->s;
    float factor = ldexpf(1, -exponent(c, c->p->weights->scales.conv, t->layer));
    size_t S = (size_t)t->shape[3];
    int index = c->p->state_index[t->layer], n = c->p->prog->hyper->conv_len - 1;
    for (int r = 0; (s->flags & STEP_KEEP_ROWS) && r < s->n_rows; r++) {
        float *row = window_row(s, index, r);
        if (!npu_call_has(c, s->rows[r].seq)) continue;
        for (int k = 0; k < t->shape[1]; k++) row[k] = u[(size_t)k * S + (size_t)r] * factor;
    }
    for (int i = c->first; i < c->next; i++) {
        const struct step_seq *q = &s->seqs[i];
        for (int j = 0; q->conv_out >= 0 && q->row_last >= 0 && j < n; j++)
            slot_put(s, q, index, j, step_ancestor(s, q->row_last, n - 1 - j), u, S, factor);
    }
}

// -------------------------------------------------------------------------------------------------------------- commit

void npu_commit(const struct unit_program *p, const struct step *s) {
    const struct state_layout *l = &s->pool->layout;
    (void)p;
    for (int r = 0; r < s->n_rows && l->n_attn > 0; r++) {
        const struct step_row *row = &s->rows[r];
        if (row->slot == row->pos) continue;
        const int32_t *blocks = s->seqs[row->seq].blocks;
        int32_t to = blocks[row->pos / OP_BLOCK], from = blocks[row->slot / OP_BLOCK];
        uint8_t *kv = s->pool->kv->host;
        for (int i = 0; i < l->n_attn; i++)
            for (int g = 0; g < l->n_head_kv; g++)
                op_kv_move(l->kv_type, kv + state_k_offset(l, to, i, g), kv + state_v_offset(l, to, i, g),
                           row->pos % OP_BLOCK, kv + state_k_offset(l, from, i, g), kv + state_v_offset(l, from, i, g),
                           row->slot % OP_BLOCK, l->head_dim);
    }
    for (int i = 0; i < s->n_seqs; i++) {
        const struct step_seq *q = &s->seqs[i];
        if (l->n_conv == 0 || q->conv_out < 0 || q->row_last < 0) continue;
        const int16_t *taps = s->taps + (size_t)q->row_last * (size_t)s->n_taps;
        for (int index = 0; index < l->n_conv; index++)
            for (int j = 0; j + 1 < s->n_taps; j++) slot_put(s, q, index, j, taps[j + 1], NULL, 0, 1);
    }
}
