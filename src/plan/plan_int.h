// Private to plan/: what every kind of plan is behind its handle.
#pragma once
#include "plan/plan.h"

// A kind's own part. The state pool lies on one unit, whatever else a kind does.
struct plan_ops {
    enum tern_status (*run)(struct plan *p, const struct step *s, uint32_t want, struct tern_err *err);
    enum tern_status (*commit)(struct plan *p, const struct step *s, struct tern_err *err);
    uint64_t (*bytes)(const struct plan *p); // programs and outputs
    bool (*explain)(const struct plan *p, struct buf *out);
    void (*close)(struct plan *p); // frees p; half-built ones too
};
// Begins each kind's struct.
struct plan {
    const struct plan_ops *ops;
    const struct model *model;
    struct unit *state_unit; // holds the pool
    struct state_pool pool;
    uint64_t pool_bytes;
    void *zeros;         // [slot_bytes], to clear slots with
    const float *logits; // [n_out, n_vocab] of the last run, NULL: it gave none
    const struct prog_argmax *argmax;
    int n_out; // of the last run
    char name[64];
};

enum tern_status plan_options_check(const struct plan_options *o, struct tern_err *err);
// Pool buffers on the unit; what was allocated before a failure is freed by plan_pool_release.
enum tern_status plan_pool_init(struct plan *p, const struct plan_options *o, struct unit *u, struct tern_err *err);
void plan_pool_release(struct plan *p);
bool plan_pool_bytes(const struct state_layout *l, int n_blocks, int n_slots, uint64_t *kv, uint64_t *conv);

void plan_name_set(struct plan *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool plan_pool_explain(const struct plan *p, struct buf *out);

extern const struct plan_kind plan_whole_kind, plan_handoff_kind, plan_extend_kind;
