// Times of a unit's operations, for TERN_PROFILE=1: what member 0 did from one barrier to the next, its waiting
// included. Told when the unit closes, as lines of the log at level info.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"

static const char *const names[PROG_OP_COUNT] = {
    [PROG_OP_EMBED] = "embedding rows",
    [PROG_OP_ROPE_TABLE] = "tables of the rotation",
    [PROG_OP_RMSNORM] = "norms, and int8 of activations",
    [PROG_OP_LINEAR] = "products",
    [PROG_OP_QK_NORM_ROPE] = "rotation of q and k, with their norms",
    [PROG_OP_K_NORM_ROPE] = "rotation of k, with its norm",
    [PROG_OP_KV_WRITE] = "writing of k and v",
    [PROG_OP_ATTENTION] = "attention",
    [PROG_OP_SHORT_CONV] = "convolution",
    [PROG_OP_ROUTE] = "choice of experts",
    [PROG_OP_EXPERTS] = "experts",
    [PROG_OP_TAP] = "features for a drafter",
    [PROG_OP_HEAD] = "output matrix, with argmax",
    [PROG_OP_NORM_OUT] = "last norm of all rows",
    [PROG_OP_PORT_IN] = "rows from another unit",
    [PROG_OP_PORT_OUT] = "rows to another unit",
    [PROG_OP_COMMIT] = "commits of accepted rows",
};

void cpu_profile(struct cpu_run *r, const struct team_member *self, enum prog_op_kind kind) {
    if (!r->u->profile || self->index != 0) return;
    uint64_t now = clock_ns();
    r->u->counters.op_ns[kind] += now - r->op_begin_ns;
    r->op_begin_ns = now;
}

void cpu_profile_tell(const struct unit *u) {
    const struct unit_counters *c = &u->counters;
    if (!u->profile || c->busy_ns == 0) return;
    log_info("profile: %llu steps of %llu rows in all, %.3f s", (unsigned long long)c->n_steps,
             (unsigned long long)c->n_rows, (double)c->busy_ns * 1e-9);
    for (int i = 0; i < PROG_OP_COUNT; i++)
        if (c->op_ns[i] > 0)
            log_info("profile: %9.3f ms %5.1f %% %s", (double)c->op_ns[i] * 1e-6,
                     100 * (double)c->op_ns[i] / (double)c->busy_ns, names[i]);
}
