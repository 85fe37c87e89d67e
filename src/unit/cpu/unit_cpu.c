// The cpu unit's driver table: opening and closing, and what it says of itself. Weights, programs and steps are in
// files of their own, buffers in host_buffer.c. Submissions run to their end before submit returns, so events are
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
    u->host.base.driver = &unit_cpu_driver;
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
    if (u->host.n_alive != 0) TERN_BUG("cpu unit closed with %d buffers, weights or programs alive", u->host.n_alive);
    cpu_profile_tell(u);
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
    .buffer_alloc = host_buffer_alloc,
    .buffer_import = host_buffer_import,
    .buffer_free = host_buffer_free,
    .buffer_write = host_buffer_write,
    .buffer_read = host_buffer_read,
    .buffer_copy = host_buffer_copy,
    .buffer_host = host_buffer_at,
    .weights_import = cpu_weights_import,
    .weights_free = cpu_weights_free,
    .program_compile = cpu_program_compile,
    .program_free = cpu_program_free,
    .submit = cpu_submit,
    .event_wait = cpu_event_wait,
    .event_poll = cpu_event_poll,
    .state_convert = host_state_convert,
    .counters = cpu_counters,
    .program_bytes = cpu_program_bytes,
    .program_estimate = cpu_program_estimate,
};
