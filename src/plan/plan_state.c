// The state pool of a plan and the work on it by block and slot number. A pool without layers of a kind has no buffer
// of that kind; work on it then moves nothing.
#include "base/base.h"
#include "plan/plan_int.h"

bool plan_pool_bytes(const struct state_layout *l, int n_blocks, int n_slots, uint64_t *kv, uint64_t *conv) {
    return state_kv_bytes(l, n_blocks, kv) && state_conv_bytes(l, n_slots, conv);
}

enum tern_status plan_pool_init(struct plan *p, const struct plan_options *o, struct unit *u, struct tern_err *err) {
    const struct unit_driver *d = unit_driver_of(u);
    struct state_layout *l = &p->pool.layout;
    uint64_t kv = 0, conv = 0;
    TRY(state_layout_init(l, o->model, o->kv_type, 0, o->model->hyper.n_layers, o->window, err));
    if (l->n_attn > 0 && o->n_blocks < 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan: a model with attention needs K/V blocks, found %d",
                       o->n_blocks);
    if (l->n_conv > 0 && o->n_slots < 1)
        return err_set(err, TERN_INVALID_ARGUMENT, "plan: a model with convolutions needs conv slots, found %d",
                       o->n_slots);
    if (!plan_pool_bytes(l, o->n_blocks, o->n_slots, &kv, &conv) || !u64_add(kv, conv, &p->pool_bytes))
        return err_set(err, TERN_LIMIT, "plan: a pool of %d blocks and %d slots does not fit 64 bits", o->n_blocks,
                       o->n_slots);
    p->state_unit = u;
    p->pool.n_blocks = o->n_blocks;
    p->pool.n_slots = o->n_slots;
    if (kv > 0) TRY(d->buffer_alloc(u, &p->pool.kv, kv, err));
    if (conv > 0) TRY(d->buffer_alloc(u, &p->pool.conv, conv, err));
    if (l->slot_bytes == 0) return TERN_OK;
    p->zeros = l->slot_bytes > SIZE_MAX ? NULL : mem_calloc(1, (size_t)l->slot_bytes);
    if (!p->zeros) return err_set(err, TERN_NO_MEMORY, "plan: no memory for a conv slot");
    return TERN_OK;
}

void plan_pool_release(struct plan *p) {
    if (!p->state_unit) return;
    const struct unit_driver *d = unit_driver_of(p->state_unit);
    d->buffer_free(p->state_unit, p->pool.kv);
    d->buffer_free(p->state_unit, p->pool.conv);
    mem_free(p->zeros);
}

static enum tern_status number_check(const struct plan *p, const char *what, int32_t i, int n, struct tern_err *err) {
    if (i >= 0 && i < n) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "plan %s: %s %d; the pool has %d", p->name, what, i, n);
}

static enum tern_status block_check(const struct plan *p, int32_t i, struct tern_err *err) {
    return number_check(p, "block", i, p->pool.n_blocks, err);
}

static enum tern_status slot_check(const struct plan *p, int32_t i, struct tern_err *err) {
    return number_check(p, "conv slot", i, p->pool.n_slots, err);
}

static uint64_t block_at(const struct plan *p, int32_t i) { return (uint64_t)i * p->pool.layout.block_bytes; }
static uint64_t slot_at(const struct plan *p, int32_t i) { return (uint64_t)i * p->pool.layout.slot_bytes; }

enum tern_status plan_block_copy(struct plan *p, int32_t dst, int32_t src, struct tern_err *err) {
    TRY(block_check(p, dst, err));
    TRY(block_check(p, src, err));
    if (!p->pool.kv || dst == src) return TERN_OK;
    return unit_driver_of(p->state_unit)
        ->buffer_copy(p->state_unit, p->pool.kv, block_at(p, dst), p->pool.kv, block_at(p, src),
                      p->pool.layout.block_bytes, err);
}

enum tern_status plan_slot_copy(struct plan *p, int32_t dst, int32_t src, struct tern_err *err) {
    TRY(slot_check(p, dst, err));
    TRY(slot_check(p, src, err));
    if (p->pool.layout.slot_bytes == 0 || dst == src) return TERN_OK;
    return unit_driver_of(p->state_unit)
        ->buffer_copy(p->state_unit, p->pool.conv, slot_at(p, dst), p->pool.conv, slot_at(p, src),
                      p->pool.layout.slot_bytes, err);
}

enum tern_status plan_slot_clear(struct plan *p, int32_t slot, struct tern_err *err) {
    return plan_slot_write(p, slot, p->zeros, err);
}

enum tern_status plan_block_read(struct plan *p, int32_t block, void *out, struct tern_err *err) {
    TRY(block_check(p, block, err));
    if (!p->pool.kv) return TERN_OK;
    return unit_driver_of(p->state_unit)
        ->buffer_read(p->state_unit, p->pool.kv, block_at(p, block), out, p->pool.layout.block_bytes, err);
}

enum tern_status plan_block_write(struct plan *p, int32_t block, const void *in, struct tern_err *err) {
    TRY(block_check(p, block, err));
    if (!p->pool.kv) return TERN_OK;
    return unit_driver_of(p->state_unit)
        ->buffer_write(p->state_unit, p->pool.kv, block_at(p, block), in, p->pool.layout.block_bytes, err);
}

enum tern_status plan_slot_read(struct plan *p, int32_t slot, void *out, struct tern_err *err) {
    TRY(slot_check(p, slot, err));
    if (p->pool.layout.slot_bytes == 0) return TERN_OK;
    return unit_driver_of(p->state_unit)
        ->buffer_read(p->state_unit, p->pool.conv, slot_at(p, slot), out, p->pool.layout.slot_bytes, err);
}

enum tern_status plan_slot_write(struct plan *p, int32_t slot, const void *in, struct tern_err *err) {
    TRY(slot_check(p, slot, err));
    if (p->pool.layout.slot_bytes == 0) return TERN_OK;
    return unit_driver_of(p->state_unit)
        ->buffer_write(p->state_unit, p->pool.conv, slot_at(p, slot), in, p->pool.layout.slot_bytes, err);
}

enum tern_status plan_rows_read(struct plan *p, const int *rows, void *out, struct tern_err *err) {
    const struct state_layout *l = &p->pool.layout;
    uint8_t *to = out;
    size_t bytes = (size_t)l->n_embd * sizeof(float);
    for (int i = 0; i < l->n_conv; i++)
        for (int j = 0; j < l->conv_len - 1; j++, to += bytes) {
            TRY(number_check(p, "row", rows[j], l->window, err));
            uint64_t at = state_window_offset(l, p->pool.n_slots, i, rows[j]);
            TRY(unit_driver_of(p->state_unit)->buffer_read(p->state_unit, p->pool.conv, at, to, bytes, err));
        }
    return TERN_OK;
}
