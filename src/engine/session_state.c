// A session's state as bytes, whoever keeps them: ids, KV blocks, convolution rows, the drafter's context, in this
// order. session_file.c puts a header and a checksum around them; service_park.c keeps them in memory.
#include "base/base.h"
#include "engine_int.h"

struct state_shape session_state_shape(const struct tern_session *s) {
    return (struct state_shape){.n_ids = (uint32_t)s->len,
                                .pending = s->pending,
                                .has_slot = s->slot >= 0 && s->len > 0,
                                .draft = session_draft_state(s)};
}

uint32_t state_shape_blocks(const struct state_shape *shape) {
    return (uint32_t)int_div_up((int)shape->n_ids, OP_BLOCK);
}

bool state_shape_bytes(const struct tern_engine *e, const struct state_shape *shape, uint64_t *out) {
    const struct state_layout *l = &plan_pool(e->plan)->layout;
    uint64_t slot = shape->has_slot ? l->slot_bytes : 0;
    return u64_mul(state_shape_blocks(shape), l->block_bytes, out) &&
           u64_add(*out, (uint64_t)shape->n_ids * sizeof(int32_t), out) && u64_add(*out, slot, out) &&
           u64_add(*out, shape->draft.bytes, out);
}

enum tern_status session_state_put(const struct tern_session *s, state_put_fn *put, void *arg, struct tern_err *err) {
    const struct state_layout *l = &plan_pool(s->engine->plan)->layout;
    const struct state_shape shape = session_state_shape(s);
    void *data = mem_alloc(MAX(l->block_bytes, l->slot_bytes) + 1);
    if (!data) return err_set(err, TERN_NO_MEMORY, "no memory to save a session");
    enum tern_status status;
    TRY_GOTO(put(arg, s->ids, s->len * sizeof *s->ids, err), done);
    for (uint32_t i = 0; i < state_shape_blocks(&shape); i++) {
        TRY_GOTO(plan_block_read(s->engine->plan, s->blocks[i], data, err), done);
        TRY_GOTO(put(arg, data, l->block_bytes, err), done);
    }
    if (shape.has_slot) {
        TRY_GOTO(plan_slot_read(s->engine->plan, s->slot, data, err), done);
        TRY_GOTO(put(arg, data, l->slot_bytes, err), done);
    }
    status = session_draft_put(s, put, arg, err);
done:
    mem_free(data);
    return status;
}

enum tern_status session_state_take(struct tern_session *s, const struct state_shape *shape, const uint8_t *body,
                                    struct tern_err *err) {
    const struct state_layout *l = &plan_pool(s->engine->plan)->layout;
    s->len = 0;
    session_draft_cut(s, 0);
    s->n_checkpoints = 0;
    s->pending = -1;
    const uint8_t *ids = body, *data = body + (size_t)shape->n_ids * sizeof(int32_t);
    for (uint32_t i = 0; i < state_shape_blocks(shape); i++, data += l->block_bytes)
        TRY(plan_block_write(s->engine->plan, s->blocks[i], data, err));
    if (shape->has_slot) TRY(plan_slot_write(s->engine->plan, s->slot, data, err));
    data += shape->has_slot ? l->slot_bytes : 0;
    if (shape->n_ids > 0) memcpy(s->ids, ids, (size_t)shape->n_ids * sizeof(int32_t));
    s->len = shape->n_ids;
    TRY(session_draft_take(s, &shape->draft, data, err));
    s->pending = shape->pending;
    return session_checkpoint(s, err);
}
