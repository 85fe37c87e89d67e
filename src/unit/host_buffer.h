// Buffers of units whose memory is the host's (cpu, npu): private to unit/. Such a unit's handle begins with struct
// host_unit, and its driver table names these functions themselves.
#pragma once
#include "base/base.h"
#include "unit/unit.h"

struct host_unit {
    struct unit_base base;
    int n_alive; // buffers, and what else the driver counts, not yet freed
};
struct unit_buffer {
    uint8_t *host;
    uint64_t bytes;
    bool owned; // else borrowed from the caller (buffer_import)
};

enum tern_status host_buffer_alloc(struct unit *u, struct unit_buffer **out, uint64_t bytes, struct tern_err *err);
enum tern_status host_buffer_import(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes,
                                    struct tern_err *err);
void host_buffer_free(struct unit *u, struct unit_buffer *b);
enum tern_status host_buffer_write(struct unit *u, struct unit_buffer *b, uint64_t offset, const void *src,
                                   uint64_t bytes, struct tern_err *err);
enum tern_status host_buffer_read(struct unit *u, const struct unit_buffer *b, uint64_t offset, void *dst,
                                  uint64_t bytes, struct tern_err *err);
enum tern_status host_buffer_copy(struct unit *u, struct unit_buffer *dst, uint64_t dst_offset,
                                  const struct unit_buffer *src, uint64_t src_offset, uint64_t bytes,
                                  struct tern_err *err);
void *host_buffer_at(struct unit_buffer *b);
// Do the bytes lie in the buffer?
enum tern_status host_range_check(const struct unit_buffer *b, uint64_t offset, uint64_t bytes, struct tern_err *err);
// Blocks and slots between pools whose layouts are STATE_CPU_V1 and agree in all but the window.
enum tern_status host_state_convert(struct unit *u, const struct state_pool *dst, const struct state_pool *src,
                                    const int32_t *dst_blocks, const int32_t *src_blocks, int n_blocks,
                                    int32_t dst_slot, int32_t src_slot, struct tern_err *err);
