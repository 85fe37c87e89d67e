// Buffers in plain host memory, and state copied between pools in it. Large ones are mapped, so pages that nobody
// touches cost nothing.
#include "base/base.h"
#include "unit/host_buffer.h"

static int *alive(struct unit *u) { return &((struct host_unit *)(void *)u)->n_alive; }

static enum tern_status buffer_make(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes, bool owned,
                                    struct tern_err *err) {
    struct unit_buffer *b = mem_alloc(sizeof *b);
    if (!b) return err_set(err, TERN_NO_MEMORY, "buffer: no memory");
    *b = (struct unit_buffer){.host = host, .bytes = bytes, .owned = owned};
    ++*alive(u);
    *out = b;
    return TERN_OK;
}

enum tern_status host_buffer_alloc(struct unit *u, struct unit_buffer **out, uint64_t bytes, struct tern_err *err) {
    char text[24];
    void *host = bytes < PTRDIFF_MAX ? mem_map((size_t)MAX(bytes, 1)) : NULL;
    if (!host) return err_set(err, TERN_NO_MEMORY, "buffer: no memory for %s", bytes_format(bytes, text));
    enum tern_status status = buffer_make(u, out, host, bytes, true, err);
    if (status != TERN_OK) mem_unmap(host, (size_t)MAX(bytes, 1));
    return status;
}

enum tern_status host_buffer_import(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes,
                                    struct tern_err *err) {
    if (!host && bytes > 0) return err_set(err, TERN_INVALID_ARGUMENT, "buffer: no memory to import");
    if ((uintptr_t)host % sizeof(float) != 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "buffer: imported memory must be aligned to %zu bytes",
                       sizeof(float));
    return buffer_make(u, out, host, bytes, false, err);
}

void host_buffer_free(struct unit *u, struct unit_buffer *b) {
    if (!b) return;
    if (b->owned) mem_unmap(b->host, (size_t)MAX(b->bytes, 1));
    mem_free(b);
    --*alive(u);
}

enum tern_status host_range_check(const struct unit_buffer *b, uint64_t offset, uint64_t bytes, struct tern_err *err) {
    if (offset <= b->bytes && bytes <= b->bytes - offset) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "buffer of %llu bytes: %llu bytes at %llu lie outside",
                   (unsigned long long)b->bytes, (unsigned long long)bytes, (unsigned long long)offset);
}

enum tern_status host_buffer_write(struct unit *u, struct unit_buffer *b, uint64_t offset, const void *src,
                                   uint64_t bytes, struct tern_err *err) {
    (void)u;
    TRY(host_range_check(b, offset, bytes, err));
    if (bytes > 0) memcpy(b->host + offset, src, (size_t)bytes);
    return TERN_OK;
}

enum tern_status host_buffer_read(struct unit *u, const struct unit_buffer *b, uint64_t offset, void *dst,
                                  uint64_t bytes, struct tern_err *err) {
    (void)u;
    TRY(host_range_check(b, offset, bytes, err));
    if (bytes > 0) memcpy(dst, b->host + offset, (size_t)bytes);
    return TERN_OK;
}

enum tern_status host_buffer_copy(struct unit *u, struct unit_buffer *dst, uint64_t dst_offset,
                                  const struct unit_buffer *src, uint64_t src_offset, uint64_t bytes,
                                  struct tern_err *err) {
    (void)u;
    TRY(host_range_check(dst, dst_offset, bytes, err));
    TRY(host_range_check(src, src_offset, bytes, err));
    if (bytes > 0) memmove(dst->host + dst_offset, src->host + src_offset, (size_t)bytes);
    return TERN_OK;
}

void *host_buffer_at(struct unit_buffer *b) { return b->host; }

enum tern_status host_state_convert(struct unit *u, const struct state_pool *dst, const struct state_pool *src,
                                    const int32_t *dst_blocks, const int32_t *src_blocks, int n_blocks,
                                    int32_t dst_slot, int32_t src_slot, struct tern_err *err) {
    const struct state_layout *a = &dst->layout, *b = &src->layout;
    if (b->tag != STATE_CPU_V1 || a->tag != STATE_CPU_V1)
        return err_set(err, TERN_UNSUPPORTED, "state layout %d: unit %s reads layout %d only", (int)b->tag,
                       unit_driver_of(u)->name, (int)STATE_CPU_V1);
    if (a->kv_type != b->kv_type || a->layer_begin != b->layer_begin || a->layer_end != b->layer_end ||
        a->block_bytes != b->block_bytes || a->slot_bytes != b->slot_bytes || a->n_head_kv != b->n_head_kv ||
        a->head_dim != b->head_dim || a->n_embd != b->n_embd || a->conv_len != b->conv_len)
        return err_set(err, TERN_UNSUPPORTED, "states of different layer ranges, types or models cannot be converted");
    for (int i = 0; i < n_blocks; i++) {
        if (dst_blocks[i] < 0 || dst_blocks[i] >= dst->n_blocks || src_blocks[i] < 0 || src_blocks[i] >= src->n_blocks)
            return err_set(err, TERN_INVALID_ARGUMENT, "state: block %d of %d to block %d of %d", (int)src_blocks[i],
                           src->n_blocks, (int)dst_blocks[i], dst->n_blocks);
        TRY(host_buffer_copy(u, dst->kv, (uint64_t)dst_blocks[i] * a->block_bytes, src->kv,
                             (uint64_t)src_blocks[i] * b->block_bytes, a->block_bytes, err));
    }
    if (a->slot_bytes == 0 || src_slot < 0) return TERN_OK;
    if (dst_slot < 0 || dst_slot >= dst->n_slots || src_slot >= src->n_slots)
        return err_set(err, TERN_INVALID_ARGUMENT, "state: slot %d of %d to slot %d of %d", (int)src_slot, src->n_slots,
                       (int)dst_slot, dst->n_slots);
    return host_buffer_copy(u, dst->conv, (uint64_t)dst_slot * a->slot_bytes, src->conv,
                            (uint64_t)src_slot * b->slot_bytes, a->slot_bytes, err);
}
