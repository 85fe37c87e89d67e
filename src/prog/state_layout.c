// Where the bytes of a sequence's state lie. The only place that knows the order of layers, heads and halves inside a
// KV block and of rows inside a conv slot: units and plans ask for offsets. All sizes are checked once, in
// state_layout_init and the two pool sizes, so that offsets of valid block, slot and row numbers cannot overflow.
#include "base/base.h"
#include "prog/prog_int.h"

static const char *const tag_names[] = {[STATE_CPU_V1] = "cpu-v1"};
static const char *const kv_names[] = {[OP_KV_F16] = "f16", [OP_KV_Q8] = "q8", [OP_KV_F32] = "f32"};

int prog_layer_count(const struct model *m, enum layer_kind kind, int begin, int end) {
    int n = 0;
    for (int i = begin; i < end; i++) n += m->layers[i].kind == kind;
    return n;
}

static enum tern_status check_shape(const struct model *m, int begin, int end, struct tern_err *err) {
    const struct model_hyper *h = &m->hyper;
    if (h->head_dim < 2 || h->head_dim % 2 != 0 || h->head_dim > OP_HEAD_DIM_MAX)
        return err_set(err, TERN_UNSUPPORTED, "model %s: head dimension %d; even numbers up to %d are supported",
                       m->name, h->head_dim, OP_HEAD_DIM_MAX);
    for (int i = begin; i < end; i++) {
        const struct model_layer *l = &m->layers[i];
        if (l->kind == LAYER_ATTENTION &&
            (l->n_head_kv < 1 || l->n_head_kv != h->n_head_kv || h->n_head % l->n_head_kv))
            return err_set(
                err, TERN_UNSUPPORTED,
                "model %s, layer %d: %d K/V heads; every attention layer must have the same number (%d) and it must "
                "divide the %d query heads",
                m->name, i, l->n_head_kv, h->n_head_kv, h->n_head);
        if (l->kind == LAYER_CONV && (h->conv_len < 1 || h->conv_len > OP_CONV_LEN_MAX))
            return err_set(err, TERN_UNSUPPORTED, "model %s, layer %d: a convolution of %d taps; 1 to %d are supported",
                           m->name, i, h->conv_len, OP_CONV_LEN_MAX);
    }
    return TERN_OK;
}

enum tern_status state_layout_init(struct state_layout *out, const struct model *m, enum op_kv_type kv_type,
                                   int layer_begin, int layer_end, int window, struct tern_err *err) {
    const struct model_hyper *h = &m->hyper;
    if (kv_type != OP_KV_F16 && kv_type != OP_KV_Q8 && kv_type != OP_KV_F32)
        return err_set(err, TERN_INVALID_ARGUMENT, "state layout: %d is no K/V type", (int)kv_type);
    if (layer_begin < 0 || layer_begin >= layer_end || layer_end > h->n_layers)
        return err_set(err, TERN_INVALID_ARGUMENT, "state layout: layers %d to %d of a model with %d layers",
                       layer_begin, layer_end, h->n_layers);
    if (window < 0 || window > STEP_WINDOW_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "state layout: a window of %d rows; 0 to %d are possible", window,
                       STEP_WINDOW_MAX);
    TRY(check_shape(m, layer_begin, layer_end, err));
    struct state_layout l = {
        .tag = STATE_CPU_V1,
        .kv_type = kv_type,
        .layer_begin = layer_begin,
        .layer_end = layer_end,
        .n_attn = prog_layer_count(m, LAYER_ATTENTION, layer_begin, layer_end),
        .n_conv = prog_layer_count(m, LAYER_CONV, layer_begin, layer_end),
        .n_head_kv = h->n_head_kv,
        .head_dim = h->head_dim,
        .n_embd = h->n_embd,
        .conv_len = h->conv_len,
        .window = window,
        .half_bytes = op_kv_half_bytes(kv_type, h->head_dim),
    };
    uint64_t row_bytes = 0;
    uint64_t conv_rows = l.n_conv > 0 ? (uint64_t)(l.conv_len - 1) : 0;
    bool fits = u64_mul(l.half_bytes, 2 * (uint64_t)l.n_head_kv, &l.block_bytes) &&
                u64_mul(l.block_bytes, (uint64_t)l.n_attn, &l.block_bytes) &&
                u64_mul((uint64_t)l.n_embd * sizeof(float), (uint64_t)l.n_conv, &row_bytes) &&
                u64_mul(row_bytes, conv_rows, &l.slot_bytes) && u64_mul(row_bytes, (uint64_t)window, &l.window_bytes);
    if (!fits) return err_set(err, TERN_LIMIT, "state layout of model %s: its size does not fit 64 bits", m->name);
    *out = l;
    return TERN_OK;
}

uint64_t state_k_offset(const struct state_layout *l, int32_t block, int attn_index, int head) {
    uint64_t layer_bytes = 2 * (uint64_t)l->n_head_kv * l->half_bytes;
    return (uint64_t)block * l->block_bytes + (uint64_t)attn_index * layer_bytes + (uint64_t)head * l->half_bytes;
}

uint64_t state_v_offset(const struct state_layout *l, int32_t block, int attn_index, int head) {
    return state_k_offset(l, block, attn_index, head) + (uint64_t)l->n_head_kv * l->half_bytes;
}

uint64_t state_conv_offset(const struct state_layout *l, int32_t slot, int conv_index) {
    uint64_t layer_bytes = (uint64_t)(l->conv_len - 1) * (uint64_t)l->n_embd * sizeof(float);
    return (uint64_t)slot * l->slot_bytes + (uint64_t)conv_index * layer_bytes;
}

uint64_t state_window_offset(const struct state_layout *l, int n_slots, int conv_index, int row) {
    uint64_t rows = (uint64_t)conv_index * (uint64_t)l->window + (uint64_t)row;
    return (uint64_t)n_slots * l->slot_bytes + rows * (uint64_t)l->n_embd * sizeof(float);
}

bool state_kv_bytes(const struct state_layout *l, int n_blocks, uint64_t *out) {
    return n_blocks >= 0 && u64_mul(l->block_bytes, (uint64_t)n_blocks, out);
}

bool state_conv_bytes(const struct state_layout *l, int n_slots, uint64_t *out) {
    return n_slots >= 0 && u64_mul(l->slot_bytes, (uint64_t)n_slots, out) && u64_add(*out, l->window_bytes, out);
}

// The window area is scratch between a verify step and its commit, so its size does not decide what can be exchanged.
bool state_layout_describe(const struct state_layout *l, struct buf *out) {
    return buf_putf(out, "state %s kv=%s block=%d layers=%d-%d attn=%d kv_heads=%d head_dim=%d conv=%d taps=%d embd=%d",
                    tag_names[l->tag], kv_names[l->kv_type], OP_BLOCK, l->layer_begin, l->layer_end, l->n_attn,
                    l->n_head_kv, l->head_dim, l->n_conv, l->conv_len, l->n_embd);
}
