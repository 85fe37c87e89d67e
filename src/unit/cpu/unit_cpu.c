// The cpu unit's driver table: opening and closing, buffers (plain host memory), and what it says of itself. Weights,
// programs and steps are in files of their own. Submissions run to their end before submit returns, so events are
// always done.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"

static bool cpu_probe(const char **reason) {
    uint32_t mask;
    struct tern_err err;
    if (cpu_isa_usable(NULL, &mask, &err) != TERN_OK) {
        *reason = "TERN_CPU names no instruction set of this processor (tern doctor lists them)";
        return false;
    }
    *reason = cpu_isa_name(cpu_kernels_isa(mask));
    return true;
}

static void detail_make(struct unit *u) {
    struct tern_err text;
    err_set(&text, TERN_OK, "%s, %d thread%s", cpu_isa_name(cpu_kernels_isa(u->isa)), u->n_threads,
            u->n_threads == 1 ? "" : "s");
    size_t n = MIN(strlen(text.message), sizeof u->detail - 1);
    memcpy(u->detail, text.message, n);
    u->detail[n] = 0;
}

static enum tern_status cpu_open(struct unit **out, const struct unit_options *o, struct tern_err *err) {
    static const struct unit_options defaults = {0};
    if (!o) o = &defaults;
    struct unit *u = mem_calloc(1, sizeof *u);
    if (!u) return err_set(err, TERN_NO_MEMORY, "cpu unit: no memory");
    u->base.driver = &unit_cpu_driver;
    enum tern_status status;
    TRY_GOTO(cpu_isa_usable(o->isa, &u->isa, err), fail);
    cpu_kernels_init(&u->k, u->isa);
    struct team_options team = {.n_threads = o->n_threads, .pin = o->pin, .yields = true};
    TRY_GOTO(team_create(&u->team, &team, err), fail);
    u->n_threads = team_size(u->team);
    const char *profile = env_get("TERN_PROFILE");
    u->profile = profile && strcmp(profile, "1") == 0;
    detail_make(u);
    *out = u;
    return TERN_OK;
fail:
    mem_free(u);
    return status;
}

static void cpu_close(struct unit *u) {
    if (!u) return;
    if (u->n_alive != 0) TERN_BUG("cpu unit closed with %d buffers, weights or programs alive", u->n_alive);
    team_free(u->team);
    mem_free(u);
}

static void cpu_caps(const struct unit *u, struct unit_caps *out) {
    *out = (struct unit_caps){.name = "cpu",
                              .detail = u->detail,
                              .isa = cpu_isa_name(cpu_kernels_isa(u->isa)),
                              .n_threads = u->n_threads,
                              .host_memory = true,
                              .cost_follows_rows = true,
                              .deterministic = true,
                              .state_tag = STATE_CPU_V1,
                              .bf16_order = u->isa & CPU_AMX ? OP_BF16_TILES : OP_BF16_PAIRS,
                              .window_max = STEP_WINDOW_MAX};
}

// ---------------------------------------------------------------------------------------------------------- buffers

static enum tern_status buffer_make(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes, bool owned,
                                    struct tern_err *err) {
    struct unit_buffer *b = mem_alloc(sizeof *b);
    if (!b) return err_set(err, TERN_NO_MEMORY, "buffer: no memory");
    *b = (struct unit_buffer){.host = host, .bytes = bytes, .owned = owned};
    u->n_alive++;
    *out = b;
    return TERN_OK;
}

static enum tern_status cpu_buffer_alloc(struct unit *u, struct unit_buffer **out, uint64_t bytes,
                                         struct tern_err *err) {
    char text[24];
    void *host = bytes < PTRDIFF_MAX ? mem_map((size_t)MAX(bytes, 1)) : NULL;
    if (!host) return err_set(err, TERN_NO_MEMORY, "buffer: no memory for %s", bytes_format(bytes, text));
    enum tern_status status = buffer_make(u, out, host, bytes, true, err);
    if (status != TERN_OK) mem_unmap(host, (size_t)MAX(bytes, 1));
    return status;
}

static enum tern_status cpu_buffer_import(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes,
                                          struct tern_err *err) {
    if (!host && bytes > 0) return err_set(err, TERN_INVALID_ARGUMENT, "buffer: no memory to import");
    if ((uintptr_t)host % sizeof(float) != 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "buffer: imported memory must be aligned to %zu bytes",
                       sizeof(float));
    return buffer_make(u, out, host, bytes, false, err);
}

static void cpu_buffer_free(struct unit *u, struct unit_buffer *b) {
    if (!b) return;
    if (b->owned) mem_unmap(b->host, (size_t)MAX(b->bytes, 1));
    mem_free(b);
    u->n_alive--;
}

static enum tern_status range_check(const struct unit_buffer *b, uint64_t offset, uint64_t bytes,
                                    struct tern_err *err) {
    if (offset <= b->bytes && bytes <= b->bytes - offset) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "buffer of %llu bytes: %llu bytes at %llu lie outside",
                   (unsigned long long)b->bytes, (unsigned long long)bytes, (unsigned long long)offset);
}

static enum tern_status cpu_buffer_write(struct unit *u, struct unit_buffer *b, uint64_t offset, const void *src,
                                         uint64_t bytes, struct tern_err *err) {
    (void)u;
    TRY(range_check(b, offset, bytes, err));
    if (bytes > 0) memcpy(b->host + offset, src, (size_t)bytes);
    return TERN_OK;
}

static enum tern_status cpu_buffer_read(struct unit *u, const struct unit_buffer *b, uint64_t offset, void *dst,
                                        uint64_t bytes, struct tern_err *err) {
    (void)u;
    TRY(range_check(b, offset, bytes, err));
    if (bytes > 0) memcpy(dst, b->host + offset, (size_t)bytes);
    return TERN_OK;
}

static enum tern_status cpu_buffer_copy(struct unit *u, struct unit_buffer *dst, uint64_t dst_offset,
                                        const struct unit_buffer *src, uint64_t src_offset, uint64_t bytes,
                                        struct tern_err *err) {
    (void)u;
    TRY(range_check(dst, dst_offset, bytes, err));
    TRY(range_check(src, src_offset, bytes, err));
    if (bytes > 0) memmove(dst->host + dst_offset, src->host + src_offset, (size_t)bytes);
    return TERN_OK;
}

static void *cpu_buffer_host(struct unit_buffer *b) { return b->host; }

// ---------------------------------------------------------------------------------------------------------- states

// Two pools of this unit exchange blocks and slots when their layouts agree in all but the window.
static enum tern_status cpu_state_convert(struct unit *u, const struct state_pool *dst, const struct state_pool *src,
                                          const int32_t *dst_blocks, const int32_t *src_blocks, int n_blocks,
                                          int32_t dst_slot, int32_t src_slot, struct tern_err *err) {
    const struct state_layout *a = &dst->layout, *b = &src->layout;
    if (b->tag != STATE_CPU_V1 || a->tag != STATE_CPU_V1)
        return err_set(err, TERN_UNSUPPORTED, "state layout %d: the cpu unit reads layout %d only", (int)b->tag,
                       (int)STATE_CPU_V1);
    if (a->kv_type != b->kv_type || a->layer_begin != b->layer_begin || a->layer_end != b->layer_end ||
        a->block_bytes != b->block_bytes || a->slot_bytes != b->slot_bytes || a->n_head_kv != b->n_head_kv ||
        a->head_dim != b->head_dim || a->n_embd != b->n_embd || a->conv_len != b->conv_len)
        return err_set(err, TERN_UNSUPPORTED, "states of different layer ranges, types or models cannot be converted");
    for (int i = 0; i < n_blocks; i++) {
        if (dst_blocks[i] < 0 || dst_blocks[i] >= dst->n_blocks || src_blocks[i] < 0 || src_blocks[i] >= src->n_blocks)
            return err_set(err, TERN_INVALID_ARGUMENT, "state: block %d of %d to block %d of %d", (int)src_blocks[i],
                           src->n_blocks, (int)dst_blocks[i], dst->n_blocks);
        TRY(cpu_buffer_copy(u, dst->kv, (uint64_t)dst_blocks[i] * a->block_bytes, src->kv,
                            (uint64_t)src_blocks[i] * b->block_bytes, a->block_bytes, err));
    }
    if (a->slot_bytes == 0 || src_slot < 0) return TERN_OK;
    if (dst_slot < 0 || dst_slot >= dst->n_slots || src_slot >= src->n_slots)
        return err_set(err, TERN_INVALID_ARGUMENT, "state: slot %d of %d to slot %d of %d", (int)src_slot, src->n_slots,
                       (int)dst_slot, dst->n_slots);
    return cpu_buffer_copy(u, dst->conv, (uint64_t)dst_slot * a->slot_bytes, src->conv,
                           (uint64_t)src_slot * b->slot_bytes, a->slot_bytes, err);
}

static enum tern_status cpu_event_wait(struct unit *u, const struct unit_event *event, struct tern_err *err) {
    if (event->serial <= u->serial) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "event %llu is of no submission to this unit",
                   (unsigned long long)event->serial);
}

static bool cpu_event_poll(struct unit *u, const struct unit_event *event) { return event->serial <= u->serial; }

static void cpu_counters(const struct unit *u, struct unit_counters *out) { *out = u->counters; }

static uint64_t cpu_program_bytes(const struct unit_program *p) { return p->work_bytes; }

const struct unit_driver unit_cpu_driver = {
    .name = "cpu",
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .caps = cpu_caps,
    .buffer_alloc = cpu_buffer_alloc,
    .buffer_import = cpu_buffer_import,
    .buffer_free = cpu_buffer_free,
    .buffer_write = cpu_buffer_write,
    .buffer_read = cpu_buffer_read,
    .buffer_copy = cpu_buffer_copy,
    .buffer_host = cpu_buffer_host,
    .weights_import = cpu_weights_import,
    .weights_free = cpu_weights_free,
    .program_compile = cpu_program_compile,
    .program_free = cpu_program_free,
    .submit = cpu_submit,
    .event_wait = cpu_event_wait,
    .event_poll = cpu_event_poll,
    .state_convert = cpu_state_convert,
    .counters = cpu_counters,
    .program_bytes = cpu_program_bytes,
    .program_estimate = cpu_program_estimate,
};
